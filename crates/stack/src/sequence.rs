//! The sequence numbers of acknowledgements that carry nothing else.
//!
//! RFC 9293 (3.10.7.4) wants them to say SND.NXT, the end of all that was sent. smoltcp goes back to
//! its oldest unacknowledged byte when it sends again, and says that. If the acknowledgements of both
//! directions are lost at once, each end then takes those of the other for old, drops them, and the
//! connection stands still until it times out. So they are corrected on their way out.

use laneway_wire::{IPV4_BYTES_MIN, IPV6_BYTES, Tcp, checksum, tcp_flags};

/// Where sequence number and checksum lie in a TCP header.
const SEQUENCE_AT: usize = 4;
const CHECKSUM_AT: usize = 16;

/// The end of all that one connection has sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    end: Option<u32>,
}

impl Sent {
    /// Looks at a packet that smoltcp has written (so it is whole and has no IP options), and
    /// corrects it if it only acknowledges.
    pub(crate) fn follow(&mut self, packet: &mut [u8]) {
        let at = match packet.first() {
            Some(first) if first >> 4 == 4 => IPV4_BYTES_MIN,
            _ => IPV6_BYTES,
        };
        let Some(segment) = packet.get_mut(at..) else { return };
        let Ok(tcp) = Tcp::parse(segment) else { return };
        let payload_bytes = segment.len().saturating_sub(tcp.header_bytes) as u32;
        let marks = tcp.flags & (tcp_flags::SYN | tcp_flags::FIN);
        if tcp.flags & tcp_flags::RST != 0 {
            return;
        }
        if payload_bytes == 0 && marks == 0 {
            if let Some(end) = self.end.filter(|&end| is_before(tcp.sequence, end)) {
                correct(segment, tcp.sequence, end);
            }
            return;
        }
        // One byte may be a keep-alive, or the probe of a closed window, which sends nothing.
        if payload_bytes == 1 && marks == 0 {
            return;
        }
        let end = tcp.sequence.wrapping_add(payload_bytes + u32::from(marks != 0));
        if self.end.is_none_or(|before| is_before(before, end)) {
            self.end = Some(end);
        }
    }
}

/// True if `a` lies before `b` in the sequence space.
fn is_before(a: u32, b: u32) -> bool {
    (b.wrapping_sub(a) as i32) > 0
}

fn correct(segment: &mut [u8], before: u32, after: u32) {
    let words = |sequence: u32| [(sequence >> 16) as u16, sequence as u16];
    let mut sum = u16::from_be_bytes([segment[CHECKSUM_AT], segment[CHECKSUM_AT + 1]]);
    for (old, new) in words(before).into_iter().zip(words(after)) {
        sum = checksum::replace(sum, old, new);
    }
    segment[SEQUENCE_AT..SEQUENCE_AT + 4].copy_from_slice(&after.to_be_bytes());
    segment[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::{Header, pseudo_sum, seal_payload};
    use laneway_wire::protocol;
    use proptest::prelude::*;
    use std::net::IpAddr;

    const ENDS: [IpAddr; 2] = [
        IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)),
        IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)),
    ];

    fn packet(flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
        let [source, destination] = ENDS;
        let mut packet = vec![0; 40];
        packet.extend_from_slice(payload);
        let bytes = packet.len() - 20;
        let header = Header {
            source,
            destination,
            protocol: protocol::TCP,
            hop_limit: 64,
            traffic_class: 0,
            payload_bytes: bytes,
        };
        header.emit(&mut packet);
        let tcp = Tcp {
            source_port: 1,
            destination_port: 2,
            sequence,
            acknowledgement: 3,
            header_bytes: 20,
            flags,
            window: 4,
            checksum: 0,
            urgent: 0,
        };
        assert!(tcp.emit(&mut packet[20..]));
        seal_payload(&mut packet[20..], CHECKSUM_AT, source, destination, protocol::TCP);
        packet
    }

    fn followed(sent: &mut Sent, mut packet: Vec<u8>) -> u32 {
        sent.follow(&mut packet);
        let sum = pseudo_sum(ENDS[0], ENDS[1], protocol::TCP, packet.len() - 20);
        assert_eq!(checksum::fold(sum + checksum::sum(&packet[20..])), 0xffff);
        Tcp::parse(&packet[20..]).unwrap().sequence
    }

    #[test]
    fn an_acknowledgement_says_the_end_of_all_that_was_sent() {
        let mut sent = Sent::default();
        let start = u32::MAX - 3; // The end lies beyond the wrap.
        assert_eq!(followed(&mut sent, packet(tcp_flags::SYN, start, b"")), start);
        assert_eq!(followed(&mut sent, packet(tcp_flags::ACK, start + 1, b"12345678")), start + 1);
        assert_eq!(followed(&mut sent, packet(tcp_flags::ACK, start + 1, b"")), 5);
        assert_eq!(followed(&mut sent, packet(tcp_flags::ACK, start + 1, b"1234")), start + 1);
        assert_eq!(followed(&mut sent, packet(tcp_flags::ACK, 5, b"p")), 5, "a probe");
        assert_eq!(followed(&mut sent, packet(tcp_flags::ACK, 5, b"")), 5);
        assert_eq!(followed(&mut sent, packet(tcp_flags::FIN, 5, b"")), 5);
        assert_eq!(followed(&mut sent, packet(tcp_flags::ACK, 5, b"")), 6);
        assert_eq!(followed(&mut sent, packet(tcp_flags::RST, 5, b"")), 5);
    }

    proptest! {
        #[test]
        fn checksums_stay_right(ends in proptest::collection::vec((any::<u32>(), 0usize..40), 1..8)) {
            let mut sent = Sent::default();
            for (sequence, bytes) in ends {
                followed(&mut sent, packet(tcp_flags::ACK, sequence, &vec![7; bytes]));
            }
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let mut bytes = bytes;
            Sent { end: Some(9) }.follow(&mut bytes);
        }
    }
}
