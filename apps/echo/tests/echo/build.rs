//! Frames to ask with, made field by field; and the answers to them, made from scratch.
//!
//! Shares no code with the app: checksums are summed up here, over whole packets.

use crate::MAC;

pub(crate) const ASKER_MAC: [u8; 6] = [0x02, 0x4c, 0x57, 0x00, 0xaa, 0x01];
pub(crate) const OURS_V4: [u8; 4] = [10, 77, 0, 9];
pub(crate) const ASKER_V4: [u8; 4] = [10, 77, 0, 1];

/// `fd00:77::<last>`
pub(crate) fn v6(last: u8) -> [u8; 16] {
    [0xfd, 0, 0, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]
}

pub(crate) fn ours_v6() -> [u8; 16] {
    v6(9)
}

pub(crate) fn sum(parts: &[&[u8]]) -> u16 {
    let mut total = 0u64;
    for part in parts {
        for pair in part.chunks(2) {
            total += u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
        }
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

fn seal(bytes: &mut [u8], at: usize, in_front: &[&[u8]]) {
    bytes[at..at + 2].fill(0);
    let checksum = !sum(&[in_front, &[bytes]].concat());
    bytes[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// Ethernet, tags as pairs of EtherType and TCI, and what they carry.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) destination: [u8; 6],
    pub(crate) source: [u8; 6],
    pub(crate) tags: Vec<(u16, u16)>,
}

impl Link {
    pub(crate) fn frame(&self, ether_type: u16, packet: &[u8]) -> Vec<u8> {
        let mut frame = [self.destination, self.source].concat();
        for (kind, tci) in &self.tags {
            frame.extend(kind.to_be_bytes());
            frame.extend(tci.to_be_bytes());
        }
        frame.extend(ether_type.to_be_bytes());
        frame.extend(packet);
        frame
    }
}

/// From the asker to us.
pub(crate) fn link() -> Link {
    Link { destination: MAC, source: ASKER_MAC, tags: Vec::new() }
}

/// From us to the asker.
fn back(link: &Link) -> Link {
    Link { destination: link.source, source: MAC, tags: link.tags.clone() }
}

/// A ping over IPv4.
#[derive(Clone, Debug)]
pub(crate) struct Ping4 {
    pub(crate) link: Link,
    pub(crate) source: [u8; 4],
    pub(crate) destination: [u8; 4],
    pub(crate) version: u8,
    pub(crate) tos: u8,
    pub(crate) fragment: u16,
    pub(crate) ttl: u8,
    pub(crate) protocol: u8,
    pub(crate) options: Vec<u8>,
    pub(crate) kind: u8,
    pub(crate) code: u8,
    pub(crate) id: u16,
    pub(crate) number: u16,
    pub(crate) data: Vec<u8>,
    /// Added to the right total length.
    pub(crate) longer: i16,
    /// Bytes behind the packet.
    pub(crate) trailer: Vec<u8>,
}

pub(crate) fn ping4() -> Ping4 {
    Ping4 {
        link: link(),
        source: ASKER_V4,
        destination: OURS_V4,
        version: 4,
        tos: 0x10,
        fragment: 0x4000,
        ttl: 61,
        protocol: 1,
        options: Vec::new(),
        kind: 8,
        code: 0,
        id: 0x1234,
        number: 7,
        data: (0..56).collect(),
        longer: 0,
        trailer: Vec::new(),
    }
}

impl Ping4 {
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Ping4)) -> Ping4 {
        change(&mut self);
        self
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        let header_bytes = 20 + self.options.len();
        let total = (header_bytes + 8 + self.data.len()) as i64 + i64::from(self.longer);
        let mut header = vec![self.version << 4 | (header_bytes / 4) as u8, self.tos];
        header.extend((total as u16).to_be_bytes());
        header.extend([0xbe, 0xef]);
        header.extend(self.fragment.to_be_bytes());
        header.extend([self.ttl, self.protocol, 0, 0]);
        header.extend(self.source);
        header.extend(self.destination);
        header.extend(&self.options);
        seal(&mut header, 10, &[]);
        let mut message = vec![self.kind, self.code, 0, 0];
        message.extend(self.id.to_be_bytes());
        message.extend(self.number.to_be_bytes());
        message.extend(&self.data);
        seal(&mut message, 2, &[]);
        self.link.frame(0x0800, &[&header[..], &message, &self.trailer].concat())
    }

    /// The reply to it, with this TTL.
    pub(crate) fn reply(&self, ttl: u8) -> Vec<u8> {
        let reply = Ping4 {
            link: back(&self.link),
            source: self.destination,
            destination: self.source,
            ttl,
            kind: 0,
            ..self.clone()
        };
        reply.frame()
    }
}

/// A ping or another ICMPv6 message.
#[derive(Clone, Debug)]
pub(crate) struct Ping6 {
    pub(crate) link: Link,
    pub(crate) source: [u8; 16],
    pub(crate) destination: [u8; 16],
    pub(crate) version: u8,
    pub(crate) hop_limit: u8,
    pub(crate) next_header: u8,
    /// Between the fixed header and the message.
    pub(crate) extensions: Vec<u8>,
    pub(crate) kind: u8,
    pub(crate) code: u8,
    /// All behind the checksum.
    pub(crate) rest: Vec<u8>,
    pub(crate) longer: i16,
    pub(crate) trailer: Vec<u8>,
}

pub(crate) fn ping6() -> Ping6 {
    Ping6 {
        link: link(),
        source: v6(1),
        destination: ours_v6(),
        version: 6,
        hop_limit: 61,
        next_header: 58,
        extensions: Vec::new(),
        kind: 128,
        code: 0,
        rest: (0..60).collect(),
        longer: 0,
        trailer: Vec::new(),
    }
}

/// A neighbour solicitation for us, to our group, with the asker's link-layer address.
pub(crate) fn solicitation() -> Ping6 {
    let mut link = link();
    link.destination = [0x33, 0x33, 0xff, 0, 0, 9];
    let rest = [&[0; 4][..], &ours_v6(), &[1, 1], &ASKER_MAC].concat();
    Ping6 { link, destination: our_group(), hop_limit: 255, kind: 135, rest, ..ping6() }
}

pub(crate) fn our_group() -> [u8; 16] {
    [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 9]
}

impl Ping6 {
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Ping6)) -> Ping6 {
        change(&mut self);
        self
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        let mut message = [&[self.kind, self.code, 0, 0][..], &self.rest].concat();
        let bytes = message.len() as u32;
        let pseudo = [&self.source[..], &self.destination, &bytes.to_be_bytes(), &[0, 0, 0, 58]];
        seal(&mut message, 2, &pseudo);
        let payload = (self.extensions.len() + message.len()) as i64 + i64::from(self.longer);
        let mut packet = vec![self.version << 4 | 1, 0x23, 0x45, 0x67];
        packet.extend((payload as u16).to_be_bytes());
        packet.extend([self.next_header, self.hop_limit]);
        packet.extend(self.source);
        packet.extend(self.destination);
        packet.extend(&self.extensions);
        packet.extend(message);
        packet.extend(&self.trailer);
        self.link.frame(0x86dd, &packet)
    }

    /// The reply to a ping, with this hop limit.
    pub(crate) fn reply(&self, hop_limit: u8) -> Vec<u8> {
        let reply = Ping6 {
            link: back(&self.link),
            source: self.destination,
            destination: self.source,
            hop_limit,
            kind: 129,
            ..self.clone()
        };
        reply.frame()
    }

    /// The advertisement that answers a solicitation.
    pub(crate) fn advertisement(&self) -> Vec<u8> {
        let mut rest = self.rest.clone();
        rest[..4].copy_from_slice(&[0x60, 0, 0, 0]);
        if rest.len() > 20 {
            rest.truncate(20);
            rest.extend([2, 1]);
            rest.extend(MAC);
        }
        let answer = Ping6 {
            link: back(&self.link),
            source: ours_v6(),
            destination: self.source,
            kind: 136,
            rest,
            ..self.clone()
        };
        answer.frame()
    }
}

/// An ARP request or something like it, padded to what Ethernet wants at least.
#[derive(Clone, Debug)]
pub(crate) struct Arp {
    pub(crate) link: Link,
    pub(crate) head: [u8; 8],
    pub(crate) sender: ([u8; 6], [u8; 4]),
    pub(crate) target: ([u8; 6], [u8; 4]),
}

pub(crate) fn arp() -> Arp {
    let mut link = link();
    link.destination = [0xff; 6];
    Arp {
        link,
        head: [0, 1, 8, 0, 6, 4, 0, 1],
        sender: (ASKER_MAC, ASKER_V4),
        target: ([0; 6], OURS_V4),
    }
}

impl Arp {
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Arp)) -> Arp {
        change(&mut self);
        self
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        let parts = [&self.sender.0[..], &self.sender.1, &self.target.0, &self.target.1];
        let mut frame = self.link.frame(0x0806, &[&self.head[..], &parts.concat()].concat());
        frame.resize(frame.len().max(60), 0);
        frame
    }

    pub(crate) fn reply(&self) -> Vec<u8> {
        let reply = Arp {
            link: back(&self.link),
            head: [0, 1, 8, 0, 6, 4, 0, 2],
            sender: (MAC, self.target.1),
            target: self.sender,
        };
        reply.frame()
    }
}
