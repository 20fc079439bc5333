//! UDP headers and their checksums, without a look at payloads whose sum is known.
//!
//! A received checksum that is right says what its payload sums up to (RFC 1624): all else that it
//! covers is in the headers. From that the checksum of the same payload between any other ends
//! follows, of either IP version, so a payload is summed at most once however often it is sent on.

use crate::ip::{self, Header};
use laneway_wire::{UDP_BYTES, Udp, checksum, protocol};
use std::net::SocketAddr;

/// What the headers of a datagram sum up to, its checksum left out.
fn header_sum(source: SocketAddr, destination: SocketAddr, payload_bytes: usize) -> u64 {
    let total_bytes = UDP_BYTES + payload_bytes;
    ip::pseudo_sum(source.ip(), destination.ip(), protocol::UDP, total_bytes)
        + u64::from(source.port())
        + u64::from(destination.port())
        + total_bytes as u64
}

/// What a payload sums up to whose checksum is this and was found right.
pub(crate) fn payload_sum(
    checksum: u16,
    source: SocketAddr,
    destination: SocketAddr,
    payload_bytes: usize,
) -> u16 {
    let headers = header_sum(source, destination, payload_bytes);
    !checksum::fold(headers + u64::from(checksum))
}

/// The checksum of a datagram; never 0, which stands for none (RFC 768).
fn checksum_of(
    source: SocketAddr,
    destination: SocketAddr,
    payload_bytes: usize,
    payload_sum: u16,
) -> u16 {
    let headers = header_sum(source, destination, payload_bytes);
    match !checksum::fold(headers + u64::from(payload_sum)) {
        0 => 0xffff,
        sum => sum,
    }
}

/// What bytes sum up to.
pub(crate) fn sum_of(bytes: &[u8]) -> u16 {
    checksum::fold(checksum::sum(bytes))
}

/// What is written in front of a payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Headers {
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    /// What the payload sums up to.
    pub(crate) payload_sum: u16,
}

impl Headers {
    /// Bytes of the headers together.
    pub(crate) fn bytes(&self) -> usize {
        ip::header_bytes(self.destination.ip()) + UDP_BYTES
    }

    /// The IP header of a payload of so many bytes.
    pub(crate) fn ip(&self, payload_bytes: usize) -> Header {
        Header {
            source: self.source.ip(),
            destination: self.destination.ip(),
            protocol: protocol::UDP,
            hop_limit: self.hop_limit,
            traffic_class: self.traffic_class,
            payload_bytes: UDP_BYTES + payload_bytes,
        }
    }

    /// Writes the UDP header of so many bytes of payload at the front of `to`.
    pub(crate) fn emit_udp(&self, to: &mut [u8], payload_bytes: usize) {
        let Headers { source, destination, payload_sum, .. } = *self;
        let udp = Udp {
            source_port: source.port(),
            destination_port: destination.port(),
            total_bytes: (UDP_BYTES + payload_bytes) as u16,
            checksum: checksum_of(source, destination, payload_bytes, payload_sum),
        };
        let emitted = udp.emit(to);
        debug_assert!(emitted, "there is room for the header");
    }

    /// Writes both headers of so many bytes of payload at the front of `packet`; gives how long they are.
    pub(crate) fn emit_heads(&self, packet: &mut [u8], payload_bytes: usize) -> usize {
        let front = self.bytes();
        self.ip(payload_bytes).emit(packet);
        self.emit_udp(&mut packet[front - UDP_BYTES..], payload_bytes);
        front
    }

    /// Writes both headers and the payload; `packet` is as long as they are together.
    pub(crate) fn emit(&self, packet: &mut [u8], payload: &[u8]) {
        let front = self.emit_heads(packet, payload.len());
        packet[front..].copy_from_slice(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ends(v4: bool) -> impl Strategy<Value = (SocketAddr, SocketAddr)> {
        let one = move || {
            (any::<[u8; 16]>(), any::<u16>()).prop_map(move |(octets, port)| {
                let v4_octets = [octets[0], octets[1], octets[2], octets[3]];
                match v4 {
                    true => SocketAddr::from((v4_octets, port)),
                    false => SocketAddr::from((octets, port)),
                }
            })
        };
        (one(), one())
    }

    /// A datagram whose checksum was computed from all of its bytes.
    fn whole((source, destination): (SocketAddr, SocketAddr), payload: &[u8]) -> Vec<u8> {
        let mut datagram = vec![0; UDP_BYTES];
        datagram.extend_from_slice(payload);
        datagram[..2].copy_from_slice(&source.port().to_be_bytes());
        datagram[2..4].copy_from_slice(&destination.port().to_be_bytes());
        let total_bytes = datagram.len() as u16;
        datagram[4..6].copy_from_slice(&total_bytes.to_be_bytes());
        ip::seal_payload(&mut datagram, 6, source.ip(), destination.ip(), protocol::UDP);
        datagram
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// Of whatever versions both are.
        #[test]
        fn a_checksum_by_difference_is_the_one_of_all_bytes(
            before in any::<bool>().prop_flat_map(ends), after in any::<bool>().prop_flat_map(ends),
            payload in prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..64),
                proptest::collection::vec(prop_oneof![Just(0u8), Just(0xff)], 0..64),
            ]
        ) {
            let received = whole(before, &payload);
            let checksum = u16::from_be_bytes([received[6], received[7]]);
            let payload_sum = payload_sum(checksum, before.0, before.1, payload.len());
            let (source, destination) = after;
            let (hop_limit, traffic_class) = (1, 0);
            let headers = Headers { source, destination, hop_limit, traffic_class, payload_sum };
            let mut packet = vec![0; headers.bytes() + payload.len()];
            headers.emit(&mut packet, &payload);
            prop_assert_eq!(&packet[headers.bytes() - UDP_BYTES..], &whole(after, &payload)[..]);
        }
    }
}
