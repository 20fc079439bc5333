//! The numbers of a connection: what was sent, what has come, and how windows are shifted.
//!
//! Two things are corrected on their way out. RFC 9293 (3.10.7.4) wants an acknowledgement that carries
//! nothing else to say SND.NXT, the end of all that was sent. smoltcp goes back to its oldest
//! unacknowledged byte when it sends again, and says that. If the acknowledgements of both directions
//! are lost at once, each end then takes those of the other for old, drops them, and the connection
//! stands still until it times out. A reset says SND.NXT too (RFC 9293, 3.10.5): behind a timeout smoltcp gives it a
//! number that may lie before the window of the peer, which then drops it.
//!
//! And a shift of windows is promised once, in the SYN-ACK, for the largest window that a connection may
//! come to have (RFC 7323, 2.3). smoltcp knows the present buffer alone and shifts for that: its shift
//! is replaced by the promised one.

use crate::reset::Segment;
use laneway_wire::{IPV4_BYTES_MIN, IPV6_BYTES, TCP_BYTES_MIN, Tcp, checksum, protocol, tcp_flags};

/// Where sequence number, window and checksum lie in a TCP header.
const SEQUENCE_AT: usize = 4;
const WINDOW_AT: usize = 14;
const CHECKSUM_AT: usize = 16;
/// The option that says a shift (RFC 7323), and its length.
const WINDOW_SCALE: [u8; 2] = [3, 3];

/// How the windows that we offer are shifted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scale {
    /// By smoltcp, for the present buffer.
    pub(crate) socket: u8,
    /// By what the peer was granted.
    pub(crate) promised: u8,
}

impl Scale {
    /// The shift that smoltcp chooses for a receive buffer.
    pub(crate) fn of(buffer_bytes: usize) -> u8 {
        (usize::BITS - buffer_bytes.leading_zeros()).saturating_sub(u16::BITS) as u8
    }

    /// Makes the window of a segment, or the shift in a SYN, the promised one.
    fn apply(self, segment: &mut [u8], tcp: &Tcp) {
        if self.socket == self.promised {
            return;
        }
        if tcp.flags & tcp_flags::SYN == 0 {
            let bytes = usize::from(tcp.window) << self.socket;
            let window = u16::try_from(bytes >> self.promised).unwrap_or(u16::MAX);
            return replace(segment, WINDOW_AT, window);
        }
        let mut at = TCP_BYTES_MIN;
        while (at + 2) | 1 < tcp.header_bytes.min(segment.len()) {
            match segment[at] {
                1 => at += 1,
                0 => break,
                _ if segment[at..at + 2] == WINDOW_SCALE => {
                    let mut word = [segment[(at + 2) & !1], segment[(at + 2) | 1]];
                    word[at & 1] = self.promised;
                    return replace(segment, (at + 2) & !1, u16::from_be_bytes(word));
                }
                _ => at += usize::from(segment[at + 1].max(2)),
            }
        }
    }
}

/// The end of all that one connection has sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    pub(crate) end: Option<u32>,
    pub(crate) scale: Scale,
    /// Bytes were sent again since the last look.
    pub(crate) has_repeated: bool,
}

impl Sent {
    /// Looks at a packet that smoltcp has written (so it is whole and has no IP options), and
    /// corrects its window, and its number if it only acknowledges, or resets. A packet that is not TCP has none.
    pub(crate) fn follow(&mut self, packet: &mut [u8]) {
        let (at, protocol_at) = match packet.first() {
            Some(first) if first >> 4 == 4 => (IPV4_BYTES_MIN, 9),
            _ => (IPV6_BYTES, 6),
        };
        if packet.get(protocol_at) != Some(&protocol::TCP) {
            return;
        }
        let Some(segment) = packet.get_mut(at..) else { return };
        let Ok(tcp) = Tcp::parse(segment) else { return };
        let payload_bytes = segment.len().saturating_sub(tcp.header_bytes) as u32;
        let marks = tcp.flags & (tcp_flags::SYN | tcp_flags::FIN);
        if tcp.flags & tcp_flags::RST != 0 {
            // One that acknowledges nothing answers a segment, by the number that this one wants.
            if tcp.flags & tcp_flags::ACK != 0 {
                self.put_end(segment, &tcp);
            }
            return;
        }
        self.scale.apply(segment, &tcp);
        if payload_bytes == 0 && marks == 0 {
            self.put_end(segment, &tcp);
            return;
        }
        // One byte may be a keep-alive, or the probe of a closed window, which sends nothing.
        if payload_bytes == 1 && marks == 0 {
            return;
        }
        let end = tcp.sequence.wrapping_add(payload_bytes + u32::from(marks != 0));
        if self.end.is_none_or(|before| is_before(before, end)) {
            self.end = Some(end);
        } else {
            self.has_repeated = true;
        }
    }

    /// Makes the number of a segment the end of all that was sent, if it lies before that.
    #[inline]
    fn put_end(&self, segment: &mut [u8], tcp: &Tcp) {
        if let Some(end) = self.end.filter(|&end| is_before(tcp.sequence, end)) {
            replace(segment, SEQUENCE_AT, (end >> 16) as u16);
            replace(segment, SEQUENCE_AT + 2, end as u16);
        }
    }
}

/// What has come from the peer of one connection. Bytes are counted as smoltcp's buffers change: what
/// segments say may be a keep-alive's, a probe's or a stranger's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Received {
    /// The end of all that has come in order.
    pub(crate) end: u32,
    /// The end of the furthest bytes received.
    furthest: u32,
    /// The end of what the peer has acknowledged.
    pub(crate) acknowledged: u32,
    /// The window, as it stands in the last segment that acknowledged no less.
    pub(crate) window: u16,
}

impl Received {
    /// Of a peer whose SYN had this number.
    pub(crate) fn behind_syn(sequence: u32) -> Received {
        let end = sequence.wrapping_add(1);
        Received { end, furthest: end, acknowledged: 0, window: 0 }
    }

    /// The peer has acknowledged our SYN, which ended here.
    pub(crate) fn open(&mut self, acknowledged: u32) {
        self.acknowledged = acknowledged;
    }

    /// So many bytes more have come in order, and were acknowledged.
    pub(crate) fn take(&mut self, bytes: usize, acknowledged_bytes: usize) {
        self.end = self.end.wrapping_add(bytes as u32);
        self.acknowledged = self.acknowledged.wrapping_add(acknowledged_bytes as u32);
    }

    /// Looks at a segment that TCP has looked at, when the receive buffer has `buffer_bytes`.
    pub(crate) fn follow(&mut self, segment: &Segment, buffer_bytes: usize) {
        let tcp = segment.tcp;
        let end = tcp.sequence.wrapping_add(segment.sequence_bytes);
        let is_near = end.wrapping_sub(self.end) as usize <= buffer_bytes;
        if is_before(self.furthest, self.end) {
            self.furthest = self.end;
        }
        if is_near && is_before(self.furthest, end) {
            self.furthest = end;
        }
        // Should it be a stranger's guess, the next segment of the peer puts it right.
        if tcp.flags & tcp_flags::ACK != 0 && tcp.acknowledgement == self.acknowledged {
            self.window = tcp.window;
        }
    }

    /// True if something may have come behind what is missing.
    pub(crate) fn has_holes(&self) -> bool {
        is_before(self.end, self.furthest)
    }

    /// Bytes sent that the peer has not acknowledged; the last one may be left out.
    pub(crate) fn under_way_bytes(&self, sent: &Sent) -> usize {
        let end = sent.end.filter(|&end| is_before(self.acknowledged, end));
        end.map_or(0, |end| end.wrapping_sub(self.acknowledged) as usize)
    }
}

/// True if `a` lies before `b` in the sequence space.
pub(crate) fn is_before(a: u32, b: u32) -> bool {
    (b.wrapping_sub(a) as i32) > 0
}

/// Writes a word of a segment at an even place, and corrects the checksum by the difference (RFC 1624).
fn replace(segment: &mut [u8], at: usize, word: u16) {
    let old = u16::from_be_bytes([segment[at], segment[at + 1]]);
    let sum = u16::from_be_bytes([segment[CHECKSUM_AT], segment[CHECKSUM_AT + 1]]);
    let sum = checksum::replace(sum, old, word);
    segment[at..at + 2].copy_from_slice(&word.to_be_bytes());
    segment[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::{Header, pseudo_sum, seal_payload};
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
        assert!(!sent.has_repeated);
        assert_eq!(followed(&mut sent, packet(tcp_flags::ACK, start + 1, b"1234")), start + 1);
        assert!(sent.has_repeated);
        assert_eq!(followed(&mut sent, packet(tcp_flags::ACK, 5, b"p")), 5, "a probe");
        assert_eq!(followed(&mut sent, packet(tcp_flags::ACK, 5, b"")), 5);
        assert_eq!(followed(&mut sent, packet(tcp_flags::FIN, 5, b"")), 5);
        assert_eq!(followed(&mut sent, packet(tcp_flags::ACK, 5, b"")), 6);
        assert_eq!(followed(&mut sent, packet(tcp_flags::RST | tcp_flags::ACK, 5, b"")), 6);
        assert_eq!(followed(&mut sent, packet(tcp_flags::RST, 5, b"")), 5, "an answer");
    }

    #[test]
    fn a_packet_of_another_protocol_says_nothing_of_what_was_sent() {
        let mut sent = Sent::default();
        followed(&mut sent, packet(tcp_flags::ACK, 1, b"1234"));
        let mut other = packet(tcp_flags::ACK, 100, b"1234");
        other[9] = protocol::ICMP;
        sent.follow(&mut other);
        assert_eq!(sent.end, Some(5));
    }

    #[test]
    fn windows_have_the_promised_shift_and_so_has_the_syn() {
        let followed = |bytes: &[u8], socket| {
            let mut packet = bytes.to_vec();
            let scale = Scale { socket, promised: 5 };
            Sent { scale, ..Sent::default() }.follow(&mut packet);
            let sum = pseudo_sum(ENDS[0], ENDS[1], protocol::TCP, packet.len() - 20);
            assert_eq!(checksum::fold(sum + checksum::sum(&packet[20..])), 0xffff);
            packet
        };
        let mut data = packet(tcp_flags::ACK, 1, b"data");
        data[34..36].copy_from_slice(&0x4321u16.to_be_bytes());
        seal_payload(&mut data[20..], CHECKSUM_AT, ENDS[0], ENDS[1], protocol::TCP);
        for (socket, shift) in [(0, 5), (2, 3), (5, 0)] {
            assert_eq!(Tcp::parse(&followed(&data, socket)[20..]).unwrap().window, 0x4321 >> shift);
        }
        for options in [&[2, 4, 5, 180, 3, 3, 0, 0][..], &[1, 3, 3, 0], &[1, 1, 4, 2, 1, 3, 3, 0]] {
            let mut syn = packet(tcp_flags::SYN | tcp_flags::ACK, 1, options);
            syn[32] = ((20 + options.len()) as u8 / 4) << 4;
            seal_payload(&mut syn[20..], CHECKSUM_AT, ENDS[0], ENDS[1], protocol::TCP);
            let syn = followed(&syn, 0);
            let header_bytes = 20 + options.len();
            let shift = laneway_wire::TcpOptions::new(&syn[40..20 + header_bytes])
                .find(|option| matches!(option, Ok(laneway_wire::TcpOption::WindowScale(_))));
            assert_eq!(shift, Some(Ok(laneway_wire::TcpOption::WindowScale(5))));
            assert_eq!(Tcp::parse(&syn[20..]).unwrap().window, 4, "that of a SYN is never shifted");
        }
    }

    #[test]
    fn what_has_come_says_whether_anything_is_under_way() {
        let sent = Sent { end: Some(105), ..Sent::default() };
        let segment = |sequence, bytes, acknowledgement, window| Segment {
            tcp: Tcp {
                source_port: 1,
                destination_port: 2,
                sequence,
                acknowledgement,
                header_bytes: 20,
                flags: tcp_flags::ACK,
                window,
                checksum: 0,
                urgent: 0,
            },
            sequence_bytes: bytes,
        };
        let mut received = Received::behind_syn(u32::MAX);
        received.open(5);
        assert_eq!((received.end, received.under_way_bytes(&sent)), (0, 100));
        received.follow(&segment(0, 0, 5, 9), 1000);
        received.follow(&segment(0, 0, 106, 8), 1000);
        received.follow(&segment(0, 0, 55, 8), 1000);
        assert_eq!((received.under_way_bytes(&sent), received.window), (100, 9), "not accepted");
        received.take(0, 50);
        received.follow(&segment(0, 0, 55, 7), 1000);
        received.follow(&segment(0, 0, 5, 6), 1000);
        assert_eq!((received.under_way_bytes(&sent), received.window), (50, 7));
        received.take(0, 51);
        assert_eq!(received.under_way_bytes(&sent), 0, "a single byte was sent behind the end");
        received.follow(&segment(5000, 10, 105, 7), 1000);
        assert!(!received.has_holes(), "outside the window");
        received.follow(&segment(10, 10, 105, 7), 1000);
        assert!(received.has_holes());
        received.take(10, 0);
        assert!(received.has_holes());
        received.take(10, 0);
        assert!(!received.has_holes());
    }

    #[test]
    fn the_shift_is_that_of_smoltcp() {
        for (bytes, shift) in [(2048, 0), (65_535, 0), (65_536, 1), (1 << 20, 5), (1 << 30, 15)] {
            assert_eq!(Scale::of(bytes), shift);
        }
    }

    proptest! {
        #[test]
        fn checksums_stay_right(
            ends in proptest::collection::vec((any::<u32>(), 0usize..40), 1..8), promised in 0u8..=14
        ) {
            let mut sent = Sent { scale: Scale { socket: 0, promised }, ..Sent::default() };
            for (sequence, bytes) in ends {
                followed(&mut sent, packet(tcp_flags::ACK, sequence, &vec![7; bytes]));
            }
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..80), v4: bool) {
            let mut bytes = bytes;
            for (at, byte) in [(0, if v4 { 0x45 } else { 0x60 }), (if v4 { 9 } else { 6 }, protocol::TCP)] {
                bytes.get_mut(at).into_iter().for_each(|b| *b = byte);
            }
            let scale = Scale { socket: 0, promised: 5 };
            Sent { end: Some(9), scale, has_repeated: false }.follow(&mut bytes);
        }
    }
}
