//! IP packets in frames: reading one into a value that cannot be wrong, and writing headers.
//!
//! [`Packet::parse`] is the only door: what it returns has checked lengths, a right header checksum,
//! a sender that can be answered, and is whole. Later code does not check again. IPv4 options and
//! IPv6 extension headers are stepped over; a routing header that is not used up is refused, an option that
//! asks for it is, and fragments are, because the stack puts none together.

use laneway_core::DropReason;
use laneway_wire::{
    ETHERNET_BYTES, Ethernet, Extensions, IPV4_BYTES_MIN, IPV6_BYTES, Ipv4, Ipv6, Mac, checksum,
    ether_type, extension,
};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ops::Range,
};

/// Don't fragment (RFC 791): what we send fits the path or is not sent.
const DONT_FRAGMENT: u16 = 0x4000;

/// One whole IP packet in a frame. Positions count from the frame's first byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    /// Time to live.
    pub(crate) hop_limit: u8,
    /// What the payload is, behind all extension headers.
    pub(crate) protocol: u8,
    /// Where the IP header begins.
    pub(crate) header_at: usize,
    /// The payload, behind options and extension headers, without the frame's padding.
    pub(crate) payload: Range<usize>,
}

impl Packet {
    /// Reads the packet behind the Ethernet header of `frame`.
    pub(crate) fn parse(frame: &[u8], ether_type: u16) -> Result<Packet, DropReason> {
        let bytes = frame.get(ETHERNET_BYTES..).ok_or(DropReason::Malformed)?;
        match ether_type {
            ether_type::IPV4 => parse_v4(bytes),
            ether_type::IPV6 => parse_v6(bytes),
            _ => Err(DropReason::NotForUs),
        }
    }

    /// The payload's bytes.
    pub(crate) fn payload<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        &frame[self.payload.clone()]
    }

    /// The bytes of the whole packet.
    pub(crate) fn bytes<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        &frame[self.header_at..self.payload.end]
    }

    /// The whole packet with nothing between IP header and payload: what TCP is shown, which knows less of IP than
    /// this does. Another header is written over the end of what was stepped over.
    pub(crate) fn plain<'a>(&self, frame: &'a mut [u8]) -> &'a [u8] {
        let header_bytes = header_bytes(self.source);
        let plain = &mut frame[self.payload.start - header_bytes..self.payload.end];
        if self.payload.start > self.header_at + header_bytes {
            let header = Header {
                source: self.source,
                destination: self.destination,
                protocol: self.protocol,
                hop_limit: self.hop_limit,
                traffic_class: 0,
                payload_bytes: self.payload.len(),
            };
            header.emit(plain);
        }
        plain
    }

    /// True if the payload, which starts with a header that holds a checksum, has a right one.
    pub(crate) fn payload_sums_up(&self, frame: &[u8]) -> bool {
        let payload = self.payload(frame);
        let pseudo = pseudo_sum(self.source, self.destination, self.protocol, payload.len());
        checksum::fold(pseudo + checksum::sum(payload)) == 0xffff
    }
}

fn parse_v4(bytes: &[u8]) -> Result<Packet, DropReason> {
    let header = Ipv4::parse(bytes).map_err(|_| DropReason::Malformed)?;
    let total_bytes = usize::from(header.total_bytes);
    // `parse` made sure that the header lies within the total.
    let whole = bytes.get(..total_bytes).ok_or(DropReason::Malformed)?;
    if checksum::of(&whole[..header.header_bytes]) != 0 {
        return Err(DropReason::BadChecksum);
    }
    if header.is_fragment() {
        return Err(DropReason::Fragment);
    }
    Ok(Packet {
        source: header.source.into(),
        destination: header.destination.into(),
        hop_limit: header.ttl,
        protocol: header.protocol,
        header_at: ETHERNET_BYTES,
        payload: ETHERNET_BYTES + header.header_bytes..ETHERNET_BYTES + total_bytes,
    })
}

fn parse_v6(bytes: &[u8]) -> Result<Packet, DropReason> {
    let header = Ipv6::parse(bytes).map_err(|_| DropReason::Malformed)?;
    let end = IPV6_BYTES + usize::from(header.payload_bytes);
    let whole = bytes.get(..end).ok_or(DropReason::Malformed)?;
    let payload_bytes = usize::from(header.payload_bytes);
    let mut headers = Extensions::new(header.next_header, &whole[IPV6_BYTES..], payload_bytes);
    loop {
        let at_hand = headers.rest();
        let Some(extension) = headers.step() else { break };
        let extension = extension.map_err(|_| DropReason::Malformed)?;
        match extension.kind {
            // A hop-by-hop header comes first or not at all (RFC 8200, 4.1).
            extension::HOP_BY_HOP if headers.stepped_bytes() > extension.bytes => {
                return Err(DropReason::Malformed);
            }
            // We are a stop on a source route, and no router.
            extension::ROUTING if extension.segments_left != Some(0) => {
                return Err(DropReason::NotForUs);
            }
            // An atomic fragment is whole (RFC 6946).
            extension::FRAGMENT if extension.fragment.is_none_or(|f| f.fragment != 0) => {
                return Err(DropReason::Fragment);
            }
            extension::HOP_BY_HOP | extension::DESTINATION => {
                // It lies within the packet.
                match may_be_skipped(&at_hand[2..extension.bytes]) {
                    Some(true) => (),
                    Some(false) => return Err(DropReason::NoListener),
                    None => return Err(DropReason::Malformed),
                }
            }
            // An authentication header cannot be verified here.
            extension::AUTHENTICATION => return Err(DropReason::NoListener),
            _ => (),
        }
    }
    Ok(Packet {
        source: header.source.into(),
        destination: header.destination.into(),
        hop_limit: header.hop_limit,
        protocol: headers.next_header(),
        header_at: ETHERNET_BYTES,
        payload: ETHERNET_BYTES + end - headers.available()..ETHERNET_BYTES + end,
    })
}

/// True if a host that knows none of these options may step over all of them (RFC 8200, 4.2); nothing if they do not
/// end where their header does.
fn may_be_skipped(mut options: &[u8]) -> Option<bool> {
    while let [kind, rest @ ..] = options {
        if kind >> 6 != 0 {
            return Some(false);
        }
        options = match (kind, rest) {
            (0, rest) => rest,
            (_, [bytes, rest @ ..]) => rest.get(usize::from(*bytes)..)?,
            _ => return None,
        };
    }
    Some(true)
}

/// The sum over the pseudo-header (RFC 768; RFC 8200, 8.1), to be added to that of the payload.
/// Addresses of different versions never meet here.
pub(crate) fn pseudo_sum(
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    payload_bytes: usize,
) -> u64 {
    address_sum(source) + address_sum(destination) + u64::from(protocol) + payload_bytes as u64
}

fn address_sum(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(v4) => u64::from(v4.to_bits()),
        IpAddr::V6(v6) => checksum::sum(&v6.octets()),
    }
}

/// Bytes of the IP header that we write for `address`'s version.
pub(crate) fn header_bytes(address: IpAddr) -> usize {
    if address.is_ipv4() { IPV4_BYTES_MIN } else { IPV6_BYTES }
}

/// The EtherType of `address`'s version.
pub(crate) fn ether_type_of(address: IpAddr) -> u16 {
    if address.is_ipv4() { ether_type::IPV4 } else { ether_type::IPV6 }
}

/// What an IP header that we write says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) hop_limit: u8,
    /// DSCP and ECN.
    pub(crate) traffic_class: u8,
    pub(crate) payload_bytes: usize,
}

impl Header {
    /// Writes the header to the front of `bytes`.
    ///
    /// # Panics
    /// Without the room, or for addresses of two versions: our own bugs.
    pub(crate) fn emit(&self, bytes: &mut [u8]) {
        let written = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let header = Ipv4 {
                    header_bytes: IPV4_BYTES_MIN,
                    tos: self.traffic_class,
                    total_bytes: (IPV4_BYTES_MIN + self.payload_bytes) as u16,
                    id: 0, // Never fragmented, so it needs none (RFC 6864, 4.1).
                    fragment: DONT_FRAGMENT,
                    ttl: self.hop_limit,
                    protocol: self.protocol,
                    checksum: 0,
                    source,
                    destination,
                };
                header.emit(bytes) && Ipv4::seal(bytes)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => Ipv6 {
                traffic_class: self.traffic_class,
                flow_label: 0,
                payload_bytes: self.payload_bytes as u16,
                next_header: self.protocol,
                hop_limit: self.hop_limit,
                source,
                destination,
            }
            .emit(bytes),
            _ => false,
        };
        assert!(written, "an IP header of one version with room for it");
    }
}

/// Writes the checksum of a payload whose checksum field lies at `at`. A sum of zero is sent as
/// 0xffff where zero means none, which is harmless elsewhere (RFC 768).
pub(crate) fn seal_payload(
    payload: &mut [u8],
    at: usize,
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
) {
    payload[at..at + 2].fill(0);
    let pseudo = pseudo_sum(source, destination, protocol, payload.len());
    let sum = match !checksum::fold(pseudo + checksum::sum(payload)) {
        0 => 0xffff,
        sum => sum,
    };
    payload[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Writes an Ethernet header to the front of `frame`.
///
/// # Panics
/// Below 14 bytes: our own bug.
pub(crate) fn emit_ethernet(frame: &mut [u8], destination: Mac, source: Mac, ether_type: u16) {
    let written = Ethernet { destination, source, ether_type }.emit(frame);
    assert!(written, "a frame is longer than its Ethernet header");
}

/// A socket address with an IPv4 address in its own form.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// All hosts on every link.
pub(crate) fn is_limited_broadcast(address: IpAddr) -> bool {
    address == IpAddr::V4(Ipv4Addr::BROADCAST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_wire::protocol;
    use proptest::prelude::*;

    fn emitted(source: &str, destination: &str, payload: &[u8]) -> Vec<u8> {
        let header = Header {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            protocol: protocol::UDP,
            hop_limit: 9,
            traffic_class: 0,
            payload_bytes: payload.len(),
        };
        let at = ETHERNET_BYTES + header_bytes(header.source);
        let mut frame = vec![0; at];
        header.emit(&mut frame[ETHERNET_BYTES..]);
        frame.extend_from_slice(payload);
        frame
    }

    #[test]
    fn reads_what_it_writes_and_leaves_out_padding() {
        for (source, destination, kind) in
            [("10.0.0.1", "10.0.0.2", ether_type::IPV4), ("fd00::1", "fd00::2", ether_type::IPV6)]
        {
            let mut frame = emitted(source, destination, b"payload");
            frame.extend_from_slice(&[0; 20]);
            let packet = Packet::parse(&frame, kind).unwrap();
            assert_eq!(packet.payload(&frame), b"payload");
            assert_eq!(packet.source, source.parse::<IpAddr>().unwrap());
            assert_eq!((packet.protocol, packet.hop_limit), (protocol::UDP, 9));
        }
    }

    #[test]
    fn a_broken_header_has_a_reason() {
        let good = emitted("10.0.0.1", "10.0.0.2", &[0; 8]);
        let check = |at: usize, value: u8, sealed: bool, want| {
            let mut frame = good.clone();
            frame[ETHERNET_BYTES + at] = value;
            if sealed {
                assert!(Ipv4::seal(&mut frame[ETHERNET_BYTES..]));
            }
            assert_eq!(Packet::parse(&frame, ether_type::IPV4), Err(want), "byte {at}");
        };
        check(8, 1, false, DropReason::BadChecksum);
        check(3, 200, true, DropReason::Malformed);
        check(6, 0x20, true, DropReason::Fragment);
        check(7, 1, true, DropReason::Fragment);
    }

    #[test]
    fn extension_headers_are_stepped_over_unless_they_matter() {
        let parse = |kind: u8, header: [u8; 8]| {
            let mut payload = header.to_vec();
            payload.extend_from_slice(b"rest");
            let mut frame = emitted("fd00::1", "fd00::2", &payload);
            frame[ETHERNET_BYTES + 6] = kind;
            Packet::parse(&frame, ether_type::IPV6).map(|p| p.payload(&frame).to_vec())
        };
        assert_eq!(parse(0, [17, 0, 1, 4, 0, 0, 0, 0]).unwrap(), b"rest");
        assert_eq!(parse(44, [17, 0, 0, 0, 0, 0, 0, 1]).unwrap(), b"rest");
        assert_eq!(parse(44, [17, 0, 0, 1, 0, 0, 0, 1]), Err(DropReason::Fragment));
        assert_eq!(parse(43, [17, 0, 0, 1, 0, 0, 0, 0]), Err(DropReason::NotForUs));
        assert_eq!(parse(60, [17, 9, 0, 0, 0, 0, 0, 0]), Err(DropReason::Malformed));
        for kind in [0, 60] {
            assert_eq!(parse(kind, [17, 0, 0, 0x1e, 3, 1, 2, 3]).unwrap(), b"rest");
            assert_eq!(parse(kind, [17, 0, 0x1e, 9, 0, 0, 0, 0]), Err(DropReason::Malformed));
            assert_eq!(parse(kind, [17, 0, 0, 0x5e, 3, 1, 2, 3]), Err(DropReason::NoListener));
        }
    }

    #[test]
    fn a_plain_packet_has_nothing_before_its_payload() {
        let long = [&[17, 1][..], &[0; 14]].concat();
        for between in [&[][..], &[17, 0, 0, 0, 0, 0, 0, 0], &long] {
            let payload = [between, b"rest"].concat();
            let mut frame = emitted("fd00::1", "fd00::2", &payload);
            if !between.is_empty() {
                frame[ETHERNET_BYTES + 6] = 60;
            }
            frame.push(0); // Padding.
            let packet = Packet::parse(&frame, ether_type::IPV6).unwrap();
            let plain = emitted("fd00::1", "fd00::2", b"rest");
            assert_eq!(packet.plain(&mut frame), &plain[ETHERNET_BYTES..]);
        }
    }

    #[test]
    fn a_sealed_payload_sums_up() {
        for (source, destination, kind) in
            [("10.0.0.1", "10.0.0.2", ether_type::IPV4), ("fd00::1", "fd00::2", ether_type::IPV6)]
        {
            let mut frame = emitted(source, destination, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
            let packet = Packet::parse(&frame, kind).unwrap();
            seal_payload(
                &mut frame[packet.payload.clone()],
                6,
                packet.source,
                packet.destination,
                packet.protocol,
            );
            assert!(packet.payload_sums_up(&frame));
            frame[packet.payload.start] ^= 1;
            assert!(!packet.payload_sums_up(&frame));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..200), first in 0u8..3, v6: bool
        ) {
            let mut bytes = bytes;
            if let Some(byte) = bytes.get_mut(ETHERNET_BYTES) {
                *byte = [0x45, 0x60, *byte][usize::from(first)];
            }
            let kind = if v6 { ether_type::IPV6 } else { ether_type::IPV4 };
            if let Ok(packet) = Packet::parse(&bytes, kind) {
                prop_assert!(packet.payload.end <= bytes.len());
                packet.payload_sums_up(&bytes);
            }
        }

        #[test]
        fn chains_of_extension_headers_end(
            kinds in proptest::collection::vec(prop_oneof![Just(0u8), Just(43), Just(44), Just(60), Just(17)], 0..12),
            noise in any::<[u8; 6]>()
        ) {
            let mut payload = Vec::new();
            for kind in &kinds {
                payload.push(*kind);
                payload.push(0);
                payload.extend_from_slice(&noise);
            }
            let mut frame = emitted("fd00::1", "fd00::2", &payload);
            frame[ETHERNET_BYTES + 6] = 60;
            let _ = Packet::parse(&frame, ether_type::IPV6);
        }
    }
}
