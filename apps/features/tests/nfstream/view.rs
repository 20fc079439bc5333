//! How NFStream 6.6.0 sees a frame, where that is otherwise than we do.
//!
//! Kinds of rule. *Opened*: it looks inside what we take as it is, so we look inside too. *Changed*:
//! it has another length or time, so we take that. *Unseen*: it passes over a frame that we take, so
//! we leave the frame out. *Garbled*: it takes a frame otherwise than the frame says, so the frame is
//! left out, and on both sides the flows that NFStream may have put it in: those between these hosts
//! of this protocol. A frame that no rule names stays as it is.
//!
//! The rules are written from NFStream's behaviour on the captures. One that is wrong shows as a
//! difference, because NFStream reads the capture itself; what garbled frames may take away with them
//! is bounded in `main.rs`.

use laneway_features::{Stamp, parse};
use laneway_flow::{Has, Record, Status};
use std::net::{Ipv4Addr, Ipv6Addr};

macro_rules! rules {
    ($($(#[doc = $doc:literal])+ $rule:ident = $why:literal,)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Rule { $($(#[doc = $doc])+ $rule,)+ }

        impl Rule {
            pub(crate) const ALL: [Rule; [$($why),+].len()] = [$(Rule::$rule),+];

            pub(crate) fn why(self) -> &'static str {
                match self { $(Rule::$rule => $why,)+ }
            }
        }
    };
}

rules! {
    /// Opened.
    IpInIp = "IP in IP, which NFStream opens",
    /// Opened.
    Mpls = "MPLS, which NFStream opens",
    /// Changed.
    SnapLength = "beyond the file's snapshot length, to which libpcap cuts them",
    /// Changed.
    LongLength = "longer than 65,535 bytes: NFStream keeps 16 bits of the length",
    /// Changed.
    Late = "stamped before their predecessor, whose time NFStream gives them",
    /// Unseen.
    Short = "fewer than 28 bytes captured: NFStream passes over them",
    /// Unseen.
    LaterFragment = "fragments but the first: NFStream passes over them",
    /// Unseen.
    CutIpv6 = "IPv6 not captured to its end (in 16 bits): NFStream passes over them",
    /// Garbled, mostly unseen.
    OtherTag = "behind a tag that is not 802.1Q's: NFStream takes the tag for the packet",
    /// Unseen.
    BadExtensions = "IPv6 whose extension headers lead to no layer 4: NFStream passes over them",
    /// Garbled.
    NotIp = "no IP, or a bad header: NFStream takes what starts with the digit 4 or 6",
    /// Garbled.
    Length = "IP length 0, or beyond the frame: NFStream counts what is stated",
    /// Garbled.
    CutLayer4 = "layer-4 header not whole: NFStream reads on, or has another payload",
    /// Garbled.
    BadTcpLength = "TCP header of impossible length: NFStream takes its flags all the same",
    /// Garbled.
    Sctp = "SCTP, whose ports NFStream does not read",
    /// Garbled.
    StopsEarly = "IPv6 with a header that NFStream takes for layer 4 (AH, HIP, Shim6)",
    /// The same on both sides.
    WithoutIp = "no IP, for NFStream neither: in no flow of either side",
    /// Their captures are left out.
    LinkLayer = "of a link layer that our side does not read",
}

/// Two hosts and a protocol.
pub(crate) type Pair = (Ipv6Addr, Ipv6Addr, u8);

/// The pair in the order of its addresses.
pub(crate) fn pair(a: Ipv6Addr, b: Ipv6Addr, proto: u8) -> Pair {
    (a.min(b), a.max(b), proto)
}

/// What NFStream makes of a frame.
pub(crate) enum Seen {
    /// These bytes, or, where they are no IP, nothing.
    As(Vec<u8>),
    /// Nothing.
    Nothing(Rule),
    /// Part of a flow between these hosts that our side does not have, or has otherwise.
    Garbled(Rule, Pair),
}

/// Fewest captured bytes behind which NFStream looks.
const CAPTURED_BYTES_MIN: usize = 28;

/// NFStream's view of an Ethernet frame of which a capture holds `captured` bytes, link header
/// included, and lacks `missing` ones. Adds the rules by which the frame was opened to `opened`.
pub(crate) fn view(frame: &[u8], captured: usize, missing: u32, opened: &mut Vec<Rule>) -> Seen {
    if captured < CAPTURED_BYTES_MIN {
        return Seen::Nothing(Rule::Short);
    }
    let mut bytes = frame.to_vec();
    while let Some((rule, inner)) = inside(&bytes) {
        opened.push(rule);
        bytes = inner;
    }
    let wire_len = bytes.len() as u32 + missing;
    let record = parse(&bytes, Stamp { wire_len, ..Stamp::default() });
    let is_q = bytes.get(12..14) == Some(&[0x81, 0]);
    let packet = bytes.get(if is_q { 18 } else { 14 }..).unwrap_or_default();
    if record.has.contains(Has::VLAN) && !is_q {
        return match raw_pair(packet) {
            Some(pair) => Seen::Garbled(Rule::OtherTag, pair),
            None => Seen::Nothing(Rule::OtherTag),
        };
    }
    if !record.has_ip() {
        return match raw_pair(packet) {
            Some(pair) => Seen::Garbled(Rule::NotIp, pair),
            None => Seen::As(bytes),
        };
    }
    let of = |proto| pair(record.source(), record.destination(), proto);
    if let Some(header) = stop(&record, packet) {
        return Seen::Garbled(Rule::StopsEarly, of(header));
    }
    if record.has.intersects(Has::LEN_UNSTATED.with(Has::LEN_BEYOND)) {
        // Of a jumbogram it reads no extension header.
        let is_jumbo = record.has.contains(Has::IPV6.with(Has::LEN_UNSTATED));
        return Seen::Garbled(Rule::Length, of(if is_jumbo { packet[6] } else { record.proto }));
    }
    if let Some(rule) = unseen(&record, packet) {
        return Seen::Nothing(rule);
    }
    match garbled(&record) {
        Some(rule) => Seen::Garbled(rule, of(record.proto)),
        None => Seen::As(bytes),
    }
}

/// The first of an IPv6 packet's extension headers that NFStream does not know as one.
fn stop(record: &Record, packet: &[u8]) -> Option<u8> {
    if !record.has.contains(Has::IPV6) {
        return None;
    }
    let (mut header, mut at) = (packet[6], 40);
    while at < usize::from(record.l3_hdr_len) {
        if matches!(header, 51 | 139 | 140) {
            return Some(header);
        }
        // All the others state their length in units of 8 bytes, less one; a fragment header has
        // 0 there.
        let (next, units) = (*packet.get(at)?, *packet.get(at + 1)?);
        (header, at) = (next, at + 8 * (usize::from(units) + 1));
    }
    None
}

/// IPv6: no next header.
const NO_NEXT: u8 = 59;

fn unseen(record: &Record, packet: &[u8]) -> Option<Rule> {
    if record.status == Status::Fragment {
        return Some(Rule::LaterFragment);
    }
    if !record.has.contains(Has::IPV6) {
        return None;
    }
    // NFStream keeps 16 bits of how many bytes were captured.
    let captured = packet.len() & 0xffff;
    let headers = match record.status {
        Status::L3BadLength | Status::L3Truncated | Status::L3ExtLimit => 40,
        _ if record.proto == NO_NEXT => usize::from(record.l3_hdr_len),
        _ => captured,
    };
    if captured < record.ip_total_bytes() as usize {
        Some(Rule::CutIpv6)
    } else if captured > headers + 1 {
        // It looks for the next header as long as there are bytes for one.
        Some(Rule::BadExtensions)
    } else {
        None
    }
}

fn garbled(record: &Record) -> Option<Rule> {
    let has_ports = record.has.contains(Has::PORTS);
    match (record.proto, record.status) {
        (6, Status::L4BadLength) if has_ports => Some(Rule::BadTcpLength),
        (1 | 6 | 17 | 58, Status::L4Truncated) | (1 | 58, Status::L4BadLength) => {
            Some(Rule::CutLayer4)
        }
        (132, _) if has_ports => Some(Rule::Sctp),
        _ => None,
    }
}

/// Whose packet it is, by the version digit alone.
fn raw_pair(packet: &[u8]) -> Option<Pair> {
    let v4 = |at: usize| Some(Ipv4Addr::from(*packet.get(at..)?.first_chunk()?).to_ipv6_mapped());
    let v6 = |at: usize| Some(Ipv6Addr::from(*packet.get(at..)?.first_chunk::<16>()?));
    match packet.first()? >> 4 {
        4 => Some(pair(v4(12)?, v4(16)?, packet[9])),
        6 => Some(pair(v6(8)?, v6(24)?, packet[6])),
        _ => None,
    }
}

/// The packet that NFStream finds inside `frame`, as a frame with the same VLAN tag.
fn inside(frame: &[u8]) -> Option<(Rule, Vec<u8>)> {
    let ether_type = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    // Where the EtherType behind the tag is.
    let at = if ether_type(12)? == 0x8100 { 16 } else { 12 };
    let (rule, start) = match ether_type(at)? {
        0x8847 | 0x8848 => {
            let mut labels = frame.get(at + 2..)?.chunks_exact(4);
            let is_last = |label: &[u8]| label[2] & 1 == 1;
            (Rule::Mpls, at + 2 + 4 * (labels.position(is_last)? + 1))
        }
        _ => {
            let record = parse(frame, Stamp::default());
            if !record.has_ip() || !matches!(record.proto, 4 | 41) {
                return None;
            }
            (Rule::IpInIp, at + 2 + usize::from(record.l3_hdr_len))
        }
    };
    let inner = frame.get(start..)?;
    let ether_type: u16 = if inner.first()? >> 4 == 6 { 0x86dd } else { 0x0800 };
    Some((rule, [&frame[..at], &ether_type.to_be_bytes(), inner].concat()))
}
