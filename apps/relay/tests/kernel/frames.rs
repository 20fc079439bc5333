//! The frames that everything here is compared on: made by hand, so that every fate has some, and the
//! captures of the tree (and others where `LANEWAY_CAPTURES` names some).

use laneway_capture::{Reader, ethernet};
use laneway_testkit::{captures, skip};
use laneway_wire::checksum;
use std::{net::IpAddr, ops::RangeInclusive, sync::OnceLock};

/// Frames looked at per capture.
const FRAMES_MAX: usize = 2000;
/// What BPF_PROG_RUN takes in one buffer.
const FRAME_BYTES: RangeInclusive<usize> = 14..=1600;

/// A datagram in a frame, and what may be odd about it.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) vlan: Option<u16>,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) ports: [u16; 2],
    pub(crate) ttl: u8,
    pub(crate) tos: u8,
    pub(crate) fragment: u16,
    /// Of IPv4 in words, of IPv6 an extension header of this number.
    pub(crate) options: u8,
    pub(crate) has_checksum: bool,
    /// Beyond what the headers say.
    pub(crate) padding: usize,
    /// Added to what IP, and what UDP, says of its length.
    pub(crate) lies: [i16; 2],
    pub(crate) payload: Vec<u8>,
}

impl Made {
    /// A whole one between these two.
    pub(crate) fn between(source: &str, destination: &str) -> Made {
        Made {
            vlan: None,
            source: source.parse().expect("an address"),
            destination: destination.parse().expect("an address"),
            ports: [4000, 5000],
            ttl: 9,
            tos: 0x03,
            fragment: 0x4000,
            options: 0,
            has_checksum: true,
            padding: 0,
            lies: [0, 0],
            payload: b"twenty bytes of data".to_vec(),
        }
    }

    /// Its bytes.
    pub(crate) fn build(&self) -> Vec<u8> {
        let mut frame = vec![1, 0, 0x5e, 1, 1, 1, 2, 0, 0, 0, 0, 9];
        if let Some(vlan) = self.vlan {
            frame.extend([0x81, 0]);
            frame.extend((0x6000 | vlan).to_be_bytes());
        }
        let lied = |bytes: usize, by: i16| (bytes as u16).wrapping_add_signed(by).to_be_bytes();
        let udp_bytes = 8 + self.payload.len();
        let mut udp = [self.ports[0].to_be_bytes(), self.ports[1].to_be_bytes()].concat();
        udp.extend(lied(udp_bytes, self.lies[1]));
        udp.extend([0, 0]);
        udp.extend(&self.payload);
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                frame.extend([0x08, 0]);
                let words = 5 + usize::from(self.options);
                let mut ip = vec![0x40 | words as u8, self.tos];
                ip.extend(lied(words * 4 + udp_bytes, self.lies[0]));
                ip.extend([0, 7]);
                ip.extend(self.fragment.to_be_bytes());
                ip.extend([self.ttl, 17, 0, 0]);
                ip.extend(source.octets());
                ip.extend(destination.octets());
                ip.resize(words * 4, 1);
                let sum = checksum::of(&ip);
                ip[10..12].copy_from_slice(&sum.to_be_bytes());
                self.seal(&mut udp, &ip[12..20]);
                frame.extend(ip);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                frame.extend([0x86, 0xdd, 0x60 | self.tos >> 4, self.tos << 4 | 0x0a, 0xbc, 0xde]);
                let extension = if self.options == 0 { 0 } else { 8 };
                frame.extend(lied(extension + udp_bytes, self.lies[0]));
                frame.extend([if self.options == 0 { 17 } else { self.options }, self.ttl]);
                let addresses = [source.octets(), destination.octets()].concat();
                frame.extend(&addresses);
                if self.options != 0 {
                    frame.extend([17, 0, 0, 0, 0, 0, 0, 0]);
                }
                self.seal(&mut udp, &addresses);
            }
            _ => panic!("both of one family"),
        }
        frame.extend(udp);
        frame.resize(frame.len() + self.padding, 0xee);
        frame
    }

    fn seal(&self, udp: &mut [u8], addresses: &[u8]) {
        if self.has_checksum {
            let pseudo = checksum::sum(addresses) + 17 + udp.len() as u64;
            let sum = !checksum::fold(pseudo + checksum::sum(udp));
            udp[6..8].copy_from_slice(&(if sum == 0 { 0xffff } else { sum }).to_be_bytes());
        }
    }
}

/// Some of every fate.
pub(crate) fn by_hand() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for (source, group) in [("192.0.2.7", "239.1.1.1"), ("2001:db8::7", "ff3e::1:1")] {
        let made = Made::between(source, group);
        let is_v6 = made.source.is_ipv6();
        let extension = if is_v6 { 60 } else { 1 };
        let odd = [
            made.clone(),
            Made {
                source: if is_v6 { "2001:db8::8" } else { "192.0.2.8" }.parse().unwrap(),
                ..made.clone()
            },
            Made { vlan: Some(0), ..made.clone() },
            Made { vlan: Some(5), ..made.clone() },
            Made { ttl: 1, ..made.clone() },
            Made { ttl: 0, ..made.clone() },
            Made { fragment: 0x2000, ..made.clone() },
            Made { fragment: 0x0007, ..made.clone() },
            Made { options: extension, ..made.clone() },
            Made { options: if is_v6 { 44 } else { 2 }, ..made.clone() },
            Made { has_checksum: false, ..made.clone() },
            Made { padding: 9, ..made.clone() },
            Made { payload: Vec::new(), ..made.clone() },
            Made { payload: vec![0xff; 1400], ..made.clone() },
            Made { payload: vec![1; 33], ..made.clone() },
            Made { ports: [4000, 5001], ..made.clone() },
            Made { lies: [1, 0], ..made.clone() },
            Made { lies: [-1, 0], ..made.clone() },
            Made { lies: [0, 1], ..made.clone() },
            Made { lies: [0, -1], ..made.clone() },
            Made { lies: [-21, 0], ..made.clone() },
        ];
        let whole = made.build();
        all.extend((14..whole.len()).map(|cut| whole[..cut].to_vec()));
        all.extend(odd.iter().map(Made::build));
        // A wrong version, another protocol; every checksum that follows to each of its two zeros.
        let mut other = whole.clone();
        other[14] ^= 0x20;
        all.push(other);
        let mut other = whole.clone();
        other[if is_v6 { 20 } else { 23 }] = 6;
        all.push(other);
        for payload in 0..=255u8 {
            all.push(Made { payload: vec![payload, 3 * (payload & 1)], ..made.clone() }.build());
        }
    }
    all
}

/// To the address that a rule's group has where it is mapped.
pub(crate) fn mapped() -> Vec<u8> {
    Made::between("2001:db8::7", "::ffff:239.1.1.1").build()
}

/// Frames made by hand and those of captures.
pub(crate) fn frames() -> &'static [Vec<u8>] {
    static FRAMES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    FRAMES.get_or_init(load)
}

fn load() -> Vec<Vec<u8>> {
    let (mut frames, mut left_out) = (by_hand(), 0);
    for file in captures() {
        let Ok(mut reader) = Reader::open(&file.path) else { continue };
        let (mut scratch, mut of_file) = (Vec::new(), 0);
        while let Ok(Some(record)) = reader.next_record() {
            match ethernet(&record, &mut scratch) {
                Ok(frame) if of_file < FRAMES_MAX && FRAME_BYTES.contains(&frame.data.len()) => {
                    frames.push(frame.data.to_vec());
                    of_file += 1;
                }
                _ => left_out += 1,
            }
        }
    }
    if left_out > 0 {
        skip(format!(
            "{left_out} frames of captures: no Ethernet, longer than {} bytes, or beyond the first \
             {FRAMES_MAX} of a capture",
            FRAME_BYTES.end()
        ));
    }
    frames
}
