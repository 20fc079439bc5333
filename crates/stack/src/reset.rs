//! Resets for TCP segments that belong to no connection (RFC 9293, 3.10.7.1), sent in the frame that
//! brought the segment, and no more often than the rate limit says.

use crate::{
    host::{Host, rewrite, sender_mac},
    ip::{self, Header, Packet},
    limit::RateLimit,
};
use laneway_core::{DropReason, FrameMut, PortId, Verdict};
use laneway_wire::{TCP_BYTES_MIN, Tcp, protocol, tcp_flags};

/// Where the checksum lies in a TCP header.
const TCP_CHECKSUM_AT: usize = 16;

/// A segment whose header is whole and whose checksum is right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) tcp: Tcp,
    /// What it takes of the sequence space: payload, SYN and FIN.
    pub(crate) sequence_bytes: u32,
}

impl Segment {
    /// Reads the TCP header of `packet`, and judges its checksum.
    pub(crate) fn parse(frame: &[u8], packet: &Packet) -> Result<Segment, DropReason> {
        let bytes = packet.payload(frame);
        let tcp = Tcp::parse(bytes).map_err(|_| DropReason::Malformed)?;
        if tcp.header_bytes < TCP_BYTES_MIN || tcp.header_bytes > bytes.len() {
            return Err(DropReason::Malformed);
        }
        if !packet.payload_sums_up(frame) {
            return Err(DropReason::BadChecksum);
        }
        let marks = (tcp.flags & tcp_flags::SYN) / tcp_flags::SYN + (tcp.flags & tcp_flags::FIN);
        let payload_bytes = (bytes.len() - tcp.header_bytes) as u32;
        Ok(Segment { tcp, sequence_bytes: payload_bytes + u32::from(marks) })
    }
}

impl Host {
    /// Answers a segment of no connection here, or an unwanted one. The caller counts it.
    pub(crate) fn reset(
        &mut self,
        port: PortId,
        frame: &mut FrameMut<'_>,
        packet: &Packet,
        segment: &Segment,
        (limit, now_ns): (&mut RateLimit, u64),
    ) -> Verdict {
        let tcp = segment.tcp;
        if tcp.flags & tcp_flags::RST != 0 {
            return Verdict::Drop;
        }
        if !limit.allow(now_ns) {
            self.events.resets_suppressed += 1;
            return Verdict::Drop;
        }
        let acknowledges = tcp.flags & tcp_flags::ACK != 0;
        let reset = Tcp {
            source_port: tcp.destination_port,
            destination_port: tcp.source_port,
            sequence: if acknowledges { tcp.acknowledgement } else { 0 },
            acknowledgement: if acknowledges {
                0
            } else {
                tcp.sequence.wrapping_add(segment.sequence_bytes)
            },
            header_bytes: TCP_BYTES_MIN,
            flags: if acknowledges { tcp_flags::RST } else { tcp_flags::RST | tcp_flags::ACK },
            window: 0,
            checksum: 0,
            urgent: 0,
        };
        let mut bytes = [0; TCP_BYTES_MIN];
        let emitted = reset.emit(&mut bytes);
        if !(emitted && self.answer_segment(port, frame, packet, &mut bytes)) {
            self.counters.drop_one(DropReason::TxRefused);
            return Verdict::Drop;
        }
        self.events.resets_sent += 1;
        Verdict::Tx
    }

    /// Makes `frame`, which brought `packet`, an answer of the TCP segment `bytes`. False, and nothing
    /// changed, without the room.
    #[must_use]
    pub(crate) fn answer_segment(
        &self,
        port: PortId,
        frame: &mut FrameMut<'_>,
        packet: &Packet,
        bytes: &mut [u8],
    ) -> bool {
        let (source, destination) = (packet.destination, packet.source);
        ip::seal_payload(bytes, TCP_CHECKSUM_AT, source, destination, protocol::TCP);
        let header = Header {
            source,
            destination,
            protocol: protocol::TCP,
            hop_limit: self.hop_limit,
            traffic_class: 0,
            payload_bytes: bytes.len(),
        };
        let hop = self.hop(port.0 as u8, sender_mac(frame));
        rewrite(frame, bytes, hop, &header)
    }
}
