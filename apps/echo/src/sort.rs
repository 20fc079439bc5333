//! What a frame is: a question to us, or which row of the table of fates it is otherwise.
//!
//! Looks and changes nothing. Assumes only that `bytes` start with the Ethernet header and are the
//! first `bytes.len()` of `captured_bytes` that were received. `bpf/echo.h` asks the same in the same
//! order; the order is part of the specification (see `fate.rs`).

use crate::{
    fate::Fate,
    own::{AnsweredAddresses, Key, is_sender_v4, is_sender_v6, key_v4},
};
use laneway_wire::{
    Ethernet, ICMP_BYTES, IPV4_BYTES_MIN, IPV6_BYTES, Icmp, Ipv4, Ipv6, Layer2, Malformed,
    checksum, ether_type, extension, is_extension, protocol,
};

/// Bytes of an ARP packet of Ethernet and IPv4.
pub(crate) const ARP_BYTES: usize = 28;
/// Bytes of a neighbour solicitation without options.
pub(crate) const SOLICITATION_BYTES: usize = 24;
/// Bytes of the option that holds a MAC address.
pub(crate) const LINK_OPTION_BYTES: usize = 8;

/// The types of an echo request.
pub(crate) const ECHO_REQUEST_V4: u8 = 8;
pub(crate) const ECHO_REQUEST_V6: u8 = 128;
const SOLICITATION: u8 = 135;
/// ARP over Ethernet for IPv4, a request.
const ARP_REQUEST: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 1];
/// Source link-layer address, one unit of 8 bytes.
const LINK_OPTION: [u8; 2] = [1, 1];

/// A question that is to be answered, rate limits aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) kind: Kind,
    /// Where the header behind Ethernet and tags starts.
    pub(crate) at: usize,
    /// The host that asks.
    pub(crate) source: Key,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    EchoV4,
    EchoV6,
    Arp,
    /// A neighbour solicitation of this many bytes.
    Nd {
        message_bytes: usize,
    },
}

/// The question that a frame is, or its fate.
#[inline]
pub(crate) fn sort(
    bytes: &[u8],
    captured_bytes: usize,
    own: &AnsweredAddresses,
) -> Result<Question, Fate> {
    let ethernet = Ethernet::parse(bytes).map_err(|_| Fate::PassedTruncated)?;
    let layer2 = Layer2::parse(bytes).map_err(|_| Fate::PassedTruncated)?;
    if layer2.is_cut {
        return Err(Fate::PassedTruncated);
    }
    let frame = Sorting { bytes, captured_bytes, at: layer2.layer3_at, ethernet, own };
    match layer2.ether_type {
        ether_type::IPV4 => frame.ipv4(),
        ether_type::IPV6 => frame.ipv6(),
        ether_type::ARP => frame.arp(),
        _ => Err(Fate::PassedProtocol),
    }
}

/// A frame whose layer 2 has been read.
struct Sorting<'a> {
    bytes: &'a [u8],
    captured_bytes: usize,
    at: usize,
    ethernet: Ethernet,
    own: &'a AnsweredAddresses,
}

impl Sorting<'_> {
    fn ipv4(&self) -> Result<Question, Fate> {
        let header = Ipv4::parse(&self.bytes[self.at..]).map_err(bad_header)?;
        if header.protocol != protocol::ICMP {
            return Err(Fate::PassedProtocol);
        }
        let (source, destination) = (header.source.octets(), header.destination.octets());
        let is_group = header.destination.is_multicast() || header.destination.is_broadcast();
        self.check_audience(is_group, self.own.has_v4(destination))?;
        if header.is_fragment() {
            return Err(Fate::PassedFragment);
        }
        if header.header_bytes > IPV4_BYTES_MIN {
            return Err(Fate::PassedOptions);
        }
        let total_bytes = usize::from(header.total_bytes);
        self.check_echo(IPV4_BYTES_MIN, total_bytes - IPV4_BYTES_MIN, ECHO_REQUEST_V4)?;
        if checksum::of(&self.bytes[self.at..self.at + IPV4_BYTES_MIN]) != 0 {
            return Err(Fate::DroppedChecksum);
        }
        if !is_sender_v4(source) || self.own.has_v4(source) || self.is_from_group() {
            return Err(Fate::DroppedSource);
        }
        Ok(Question { kind: Kind::EchoV4, at: self.at, source: key_v4(source) })
    }

    fn ipv6(&self) -> Result<Question, Fate> {
        let header = Ipv6::parse(&self.bytes[self.at..]).map_err(bad_header)?;
        let is_icmp = header.next_header == protocol::ICMPV6;
        if !is_icmp && !is_extension(header.next_header) {
            return Err(Fate::PassedProtocol);
        }
        let payload_bytes = usize::from(header.payload_bytes);
        if is_icmp && self.bytes.get(self.at + IPV6_BYTES) == Some(&SOLICITATION) {
            return self.nd(&header, payload_bytes);
        }
        let (source, destination) = (header.source.octets(), header.destination.octets());
        self.check_audience(header.destination.is_multicast(), self.own.has_v6(destination))?;
        match header.next_header {
            extension::FRAGMENT => return Err(Fate::PassedFragment),
            _ if !is_icmp => return Err(Fate::PassedOptions),
            _ => (),
        }
        self.check_echo(IPV6_BYTES, payload_bytes, ECHO_REQUEST_V6)?;
        if !is_sender_v6(source) || self.own.has_v6(source) || self.is_from_group() {
            return Err(Fate::DroppedSource);
        }
        Ok(Question { kind: Kind::EchoV6, at: self.at, source })
    }

    /// A neighbour solicitation (RFC 4861, 7.1.1 and 7.2.4). The answer must be as long as it, so that
    /// what would need a longer one is left to the stack.
    fn nd(&self, header: &Ipv6, payload_bytes: usize) -> Result<Question, Fate> {
        let message = &self.bytes[self.at + IPV6_BYTES..];
        let Some(solicitation) = message.first_chunk::<SOLICITATION_BYTES>() else {
            return Err(Fate::PassedTruncated);
        };
        if payload_bytes < SOLICITATION_BYTES {
            return Err(Fate::PassedTruncated);
        }
        if !self.own.answers_neighbours {
            return Err(Fate::PassedNeighbour);
        }
        let mut target = [0; 16];
        target.copy_from_slice(&solicitation[8..]);
        if !self.own.has_v6(target) {
            return Err(Fate::PassedForeignAddress);
        }
        self.check_group_or_own_mac()?;
        let has_option = payload_bytes == SOLICITATION_BYTES + LINK_OPTION_BYTES;
        let is_to_target = header.destination.octets() == target;
        let (source, code) = (header.source.octets(), solicitation[1]);
        let is_to_group = header.destination.octets() == solicited_node(target);
        let fits = match payload_bytes {
            SOLICITATION_BYTES => is_to_target,
            _ => has_option && (is_to_target || is_to_group),
        };
        if !fits
            || code != 0
            || header.hop_limit != 255
            || !is_sender_v6(source)
            || self.own.has_v6(source)
            || self.is_from_group()
        {
            return Err(Fate::PassedNeighbour);
        }
        let Some(message) = message.get(..payload_bytes) else { return Err(Fate::DroppedLength) };
        if has_option && message[SOLICITATION_BYTES..][..2] != LINK_OPTION {
            return Err(Fate::PassedNeighbour);
        }
        if advertised_sum(&self.bytes[self.at..], payload_bytes) != 0xffff {
            return Err(Fate::DroppedChecksum);
        }
        Ok(Question { kind: Kind::Nd { message_bytes: payload_bytes }, at: self.at, source })
    }

    fn arp(&self) -> Result<Question, Fate> {
        let Some(arp) = self.bytes[self.at..].first_chunk::<ARP_BYTES>() else {
            return Err(Fate::PassedTruncated);
        };
        if !self.own.answers_neighbours || arp[..8] != ARP_REQUEST {
            return Err(Fate::PassedNeighbour);
        }
        let (sender, target) =
            ([arp[14], arp[15], arp[16], arp[17]], [24, 25, 26, 27].map(|i| arp[i]));
        if !self.own.has_v4(target) {
            return Err(Fate::PassedForeignAddress);
        }
        self.check_group_or_own_mac()?;
        let is_asker = sender == [0; 4] || is_sender_v4(sender) && !self.own.has_v4(sender);
        if !is_asker || arp[8] & 1 != 0 || self.is_from_group() {
            return Err(Fate::PassedNeighbour);
        }
        Ok(Question { kind: Kind::Arp, at: self.at, source: key_v4(sender) })
    }

    /// For us alone?
    fn check_audience(&self, is_group: bool, is_own: bool) -> Result<(), Fate> {
        if is_group || self.ethernet.destination[0] & 1 != 0 {
            return Err(Fate::PassedGroup);
        }
        if self.ethernet.destination != self.own.mac {
            return Err(Fate::PassedForeignMac);
        }
        if is_own { Ok(()) } else { Err(Fate::PassedForeignAddress) }
    }

    /// A whole echo request, with a header of `header_bytes` in front and so many bytes by its length?
    fn check_echo(&self, header_bytes: usize, message_bytes: usize, kind: u8) -> Result<(), Fate> {
        let at = self.at + header_bytes;
        check_echo(&self.bytes[at..], message_bytes, self.captured_bytes - at, kind)
    }

    fn check_group_or_own_mac(&self) -> Result<(), Fate> {
        let mac = self.ethernet.destination;
        if mac[0] & 1 != 0 || mac == self.own.mac { Ok(()) } else { Err(Fate::PassedForeignMac) }
    }

    fn is_from_group(&self) -> bool {
        self.ethernet.source[0] & 1 != 0
    }
}

/// Is `message` a whole echo request of type `kind`? The headers in front of it state `message_bytes` as
/// its length; `captured_bytes` of it were received.
#[inline]
pub(crate) fn check_echo(
    message: &[u8],
    message_bytes: usize,
    captured_bytes: usize,
    kind: u8,
) -> Result<(), Fate> {
    let icmp = Icmp::parse(message).map_err(|_| Fate::PassedTruncated)?;
    if message_bytes < ICMP_BYTES {
        return Err(Fate::PassedTruncated);
    }
    if (icmp.kind, icmp.code) != (kind, 0) {
        return Err(Fate::PassedOtherIcmp);
    }
    if message_bytes > captured_bytes {
        return Err(Fate::DroppedLength);
    }
    Ok(())
}

fn bad_header(malformed: Malformed) -> Fate {
    match malformed {
        Malformed::Truncated => Fate::PassedTruncated,
        Malformed::Version | Malformed::Length => Fate::PassedBadHeader,
    }
}

/// The group that solicitations for `target` go to (RFC 4291, 2.7.1).
fn solicited_node(target: [u8; 16]) -> [u8; 16] {
    let [.., a, b, c] = target;
    [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c]
}

/// The folded sum over pseudo-header and message of an ICMPv6 packet, checksum included: 0xffff where
/// it fits.
pub(crate) fn advertised_sum(packet: &[u8], message_bytes: usize) -> u16 {
    let addresses = checksum::sum(&packet[8..IPV6_BYTES]);
    let message = checksum::sum(&packet[IPV6_BYTES..IPV6_BYTES + message_bytes]);
    let rest = message_bytes as u64 + u64::from(protocol::ICMPV6);
    checksum::fold(addresses + message + rest)
}
