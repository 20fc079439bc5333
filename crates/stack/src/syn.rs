//! SYNs by hand: what one says of its sender, the SYN-ACK that carries a cookie, and the segments of a
//! handshake that the app never sees.
//!
//! smoltcp's sockets come to life by a handshake alone. One that is to begin in the middle of a
//! connection is shown a SYN that makes it so; its answer goes nowhere.

use crate::{
    ends::Ends,
    host::Host,
    ip::{Header, Packet, header_bytes},
    reset::Segment,
};
use laneway_core::{DropReason, FrameMut, PortId, Verdict};
use laneway_wire::{TCP_BYTES_MIN, Tcp, TcpOption, TcpOptions, protocol, tcp_flags};
use std::net::SocketAddr;

/// All options that are written here.
const OPTIONS_BYTES_MAX: usize = 12;
/// The longest packet that is imagined: IPv6, TCP, options.
const IMAGINED_BYTES_MAX: usize = 40 + TCP_BYTES_MIN + OPTIONS_BYTES_MAX;
/// The MSS of a peer that states none (RFC 9293, 3.7.1).
const MSS_BYTES_UNSTATED: u16 = 536;
/// The largest shift of a window (RFC 7323, 2.3).
pub(crate) const WINDOW_SHIFT_MAX: u8 = 14;
/// Selective acknowledgements are permitted (RFC 2018).
const SACK_PERMITTED: u8 = 4;

/// What a SYN says of its sender, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SynOptions {
    pub(crate) mss_bytes: u16,
    /// By how much windows are shifted; nothing if neither side may shift.
    pub(crate) window_shift: Option<u8>,
    pub(crate) permits_sack: bool,
}

impl SynOptions {
    /// Of a SYN that can carry an MSS and nothing else.
    pub(crate) fn of_mss(mss_bytes: u16) -> SynOptions {
        SynOptions { mss_bytes, window_shift: None, permits_sack: false }
    }

    /// Reads the options of a TCP segment; those behind a malformed one count as absent.
    pub(crate) fn parse(segment: &[u8], header_bytes: usize) -> SynOptions {
        let mut options = SynOptions::of_mss(MSS_BYTES_UNSTATED);
        let bytes = segment.get(TCP_BYTES_MIN..header_bytes).unwrap_or_default();
        for option in TcpOptions::new(bytes).map_while(Result::ok) {
            match option {
                // As on Linux, an MSS of nothing is none.
                TcpOption::Mss(mss_bytes) if mss_bytes > 0 => options.mss_bytes = mss_bytes,
                TcpOption::WindowScale(shift) => {
                    options.window_shift = Some(shift.min(WINDOW_SHIFT_MAX));
                }
                TcpOption::Other(SACK_PERMITTED, _) => options.permits_sack = true,
                TcpOption::Mss(_) | TcpOption::Other(..) => (),
            }
        }
        options
    }

    /// Writes the options to the front of `bytes`; gives how many bytes they are.
    fn emit(&self, bytes: &mut [u8; OPTIONS_BYTES_MAX]) -> usize {
        let [high, low] = self.mss_bytes.to_be_bytes();
        bytes[..4].copy_from_slice(&[2, 4, high, low]);
        let mut len = 4;
        if let Some(shift) = self.window_shift {
            bytes[len..len + 4].copy_from_slice(&[1, 3, 3, shift]);
            len += 4;
        }
        if self.permits_sack {
            bytes[len..len + 4].copy_from_slice(&[1, 1, SACK_PERMITTED, 2]);
            len += 4;
        }
        len
    }
}

/// Writes a TCP header with `options`; gives its length.
fn emit_syn(tcp: Tcp, options: &SynOptions, bytes: &mut [u8]) -> usize {
    let mut written = [0; OPTIONS_BYTES_MAX];
    let options_bytes = options.emit(&mut written);
    let len = TCP_BYTES_MIN + options_bytes;
    let emitted = Tcp { header_bytes: len, ..tcp }.emit(bytes);
    assert!(emitted, "there is room for a TCP header");
    bytes[TCP_BYTES_MIN..len].copy_from_slice(&written[..options_bytes]);
    len
}

/// A header of which only the ports are filled in.
fn bare(from: SocketAddr, to: SocketAddr) -> Tcp {
    Tcp {
        source_port: from.port(),
        destination_port: to.port(),
        sequence: 0,
        acknowledgement: 0,
        header_bytes: TCP_BYTES_MIN,
        flags: 0,
        window: 0,
        checksum: 0,
        urgent: 0,
    }
}

/// A made packet, never sent. Its checksum is not filled in.
pub(crate) struct Imagined {
    bytes: [u8; IMAGINED_BYTES_MAX],
    len: usize,
}

impl Imagined {
    /// The SYN with which the far end of a connection would have begun it.
    pub(crate) fn syn(ends: Ends, sequence: u32, window: u16, options: &SynOptions) -> Imagined {
        let tcp = Tcp { sequence, flags: tcp_flags::SYN, window, ..bare(ends.remote, ends.local) };
        Imagined::new(ends, |bytes| emit_syn(tcp, options, bytes))
    }

    /// A segment of the far end: its number, what it acknowledges, and its window; and a byte or none.
    pub(crate) fn segment(
        ends: Ends,
        (sequence, acknowledgement, window): (u32, u32, u16),
        payload_bytes: usize,
    ) -> Imagined {
        let front = bare(ends.remote, ends.local);
        let tcp = Tcp { sequence, acknowledgement, flags: tcp_flags::ACK, window, ..front };
        Imagined::new(ends, |bytes| {
            assert!(tcp.emit(bytes), "there is room for a TCP header");
            TCP_BYTES_MIN + payload_bytes
        })
    }

    /// A packet from the far end whose TCP segment `emit` writes; it gives the segment's length.
    fn new(ends: Ends, emit: impl FnOnce(&mut [u8]) -> usize) -> Imagined {
        let mut bytes = [0; IMAGINED_BYTES_MAX];
        let at = header_bytes(ends.local.ip());
        let tcp_bytes = emit(&mut bytes[at..]);
        let header = Header {
            source: ends.remote.ip(),
            destination: ends.local.ip(),
            protocol: protocol::TCP,
            hop_limit: 1,
            traffic_class: 0,
            payload_bytes: tcp_bytes,
        };
        header.emit(&mut bytes);
        Imagined { bytes, len: at + tcp_bytes }
    }

    /// The whole packet.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Host {
    /// Answers a SYN, in the frame that brought it, by a SYN-ACK of number `cookie` that promises
    /// `window` bytes and segments of `options`.
    pub(crate) fn send_cookie(
        &mut self,
        port: PortId,
        frame: &mut FrameMut<'_>,
        (packet, segment): (&Packet, &Segment),
        (cookie, window): (u32, u16),
        options: &SynOptions,
    ) -> Verdict {
        let tcp = segment.tcp;
        let (own, peer) = (packet.destination, packet.source);
        let (own, peer) = ((own, tcp.destination_port), (peer, tcp.source_port));
        let answer = Tcp {
            sequence: cookie,
            // Data in a SYN is not kept; its sender sends it again.
            acknowledgement: tcp.sequence.wrapping_add(1),
            flags: tcp_flags::SYN | tcp_flags::ACK,
            window,
            ..bare(own.into(), peer.into())
        };
        let mut bytes = [0; TCP_BYTES_MIN + OPTIONS_BYTES_MAX];
        let len = emit_syn(answer, options, &mut bytes);
        if !self.answer_segment(port, frame, packet, &mut bytes[..len]) {
            self.counters.drop_one(DropReason::TxRefused);
            return Verdict::Drop;
        }
        self.events.syn_cookies_sent += 1;
        Verdict::Tx
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_wire::{ETHERNET_BYTES, ether_type};
    use proptest::prelude::*;

    fn options() -> impl Strategy<Value = SynOptions> {
        let shift = proptest::option::of(0..=WINDOW_SHIFT_MAX);
        (1u16.., shift, any::<bool>()).prop_map(|(mss_bytes, window_shift, permits_sack)| {
            SynOptions { mss_bytes, window_shift, permits_sack }
        })
    }

    #[test]
    fn who_states_no_mss_or_one_of_nothing_has_the_usual_one() {
        let usual = SynOptions::of_mss(536);
        assert_eq!(SynOptions::parse(&[0; 20], 20), usual);
        let mut segment = vec![0; 20];
        segment.extend_from_slice(&[2, 4, 0, 0]);
        assert_eq!(SynOptions::parse(&segment, 24), usual);
        segment.extend_from_slice(&[3, 3, 200, 0]);
        assert_eq!(SynOptions::parse(&segment, 28).window_shift, Some(14));
    }

    proptest! {
        #[test]
        fn an_imagined_syn_has_the_options_of_the_cookie(
            options in options(), sequence: u32, window: u16, ports: [u16; 2], v6: bool
        ) {
            let ips = if v6 { ["fd00::1", "fd00::2"] } else { ["10.0.0.1", "10.0.0.2"] };
            let end = |i: usize| SocketAddr::new(ips[i].parse().unwrap(), ports[i]);
            let ends = Ends { local: end(0), remote: end(1) };
            let syn = Imagined::syn(ends, sequence, window, &options);
            let frame = [&[0; ETHERNET_BYTES], syn.bytes()].concat();
            let kind = if v6 { ether_type::IPV6 } else { ether_type::IPV4 };
            let packet = Packet::parse(&frame, kind).expect("a sound packet");
            let segment = packet.payload(&frame);
            let tcp = Tcp::parse(segment).unwrap();
            prop_assert_eq!((packet.source, packet.destination), (end(1).ip(), end(0).ip()));
            prop_assert_eq!((tcp.source_port, tcp.destination_port), (ports[1], ports[0]));
            prop_assert_eq!((tcp.sequence, tcp.window, tcp.flags), (sequence, window, tcp_flags::SYN));
            prop_assert_eq!(SynOptions::parse(segment, tcp.header_bytes), options);
        }

        #[test]
        fn any_options_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..60), claimed in 0usize..70) {
            let options = SynOptions::parse(&bytes, claimed);
            prop_assert!(options.mss_bytes > 0 && options.window_shift.is_none_or(|shift| shift <= 14));
        }
    }
}
