//! ICMP and ICMPv6 at work: pings, errors that we send, and the one that we must heed.
//!
//! An error answers only a packet that was sent to one of our addresses, in a frame for us alone, by
//! a host that can be answered; never another error, a fragment, or a packet for many (RFC 1122,
//! 3.2.2; RFC 4443, 2.4 e), and no more often than the rate limit says. It goes out in the frame that
//! it is about. A reported path MTU is believed within sense (RFC 8201, 4): it must quote a packet that
//! comes from an address of ours, and can only make packets smaller, for a while, down to what
//! every path takes. Redirects are not heeded.

use crate::{
    config::MTU_BYTES_MIN,
    host::{Audience, Flow, Host, Refusal, Sorted, reframe, sender_mac},
    ip::{self, Header, Packet},
    report::{MLD_QUERY, Query},
};
use laneway_core::{DropReason, FrameMut, PortId, Verdict};
use laneway_wire::{ETHERNET_BYTES, ICMP_BYTES, IPV6_BYTES, Icmp, Ipv4, Ipv6, checksum, protocol};
use std::net::{IpAddr, SocketAddr};

/// How many bytes of a packet an error quotes: all that fit in what every host must receive
/// (RFC 1812, 4.3.2.3; RFC 4443, 2.4 c).
const ERROR_BYTES_MAX_V4: usize = 576;
const ERROR_BYTES_MAX_V6: usize = 1280;
/// What every IPv6 path takes (RFC 8200, 5).
const PATH_MTU_MIN_V6: usize = 1280;

impl Refusal {
    /// Type and code.
    fn code(self, v4: bool) -> (u8, u8) {
        match (self, v4) {
            (Refusal::Port, true) => (3, 3),
            (Refusal::Protocol, true) => (3, 2),
            (Refusal::Port, false) => (1, 4),
            (Refusal::Protocol, false) => (4, 1),
        }
    }
}

impl Host {
    pub(crate) fn on_icmp_v4(
        &mut self,
        port: PortId,
        frame: &mut FrameMut<'_>,
        packet: &Packet,
        audience: Audience,
        now_ns: u64,
    ) -> Sorted {
        let message = packet.payload(frame.bytes());
        if checksum::of(message) != 0 {
            return self.rest(DropReason::BadChecksum);
        }
        let Ok(icmp) = Icmp::parse(message) else { return self.rest(DropReason::Malformed) };
        match (icmp.kind, icmp.code) {
            (8, 0) if audience == Audience::Us && self.answer_echo => {
                Sorted::Done(self.echo(port, frame, packet, 0))
            }
            (3, 4) if audience == Audience::Us => {
                let mtu_bytes = u16::from_be_bytes([icmp.rest[2], icmp.rest[3]]);
                let flow = quoted_v4(&message[ICMP_BYTES..]);
                self.too_big(flow, usize::from(mtu_bytes), now_ns)
            }
            _ => self.rest(DropReason::NoListener),
        }
    }

    pub(crate) fn on_icmp_v6(
        &mut self,
        port: PortId,
        frame: &mut FrameMut<'_>,
        packet: &Packet,
        audience: Audience,
        now_ns: u64,
    ) -> Sorted {
        if !packet.payload_sums_up(frame.bytes()) {
            return self.rest(DropReason::BadChecksum);
        }
        let message = packet.payload(frame.bytes());
        let Ok(icmp) = Icmp::parse(message) else { return self.rest(DropReason::Malformed) };
        if Host::is_nd(icmp.kind, audience) {
            return Sorted::Done(self.on_nd(port, frame, packet, now_ns));
        }
        if icmp.kind == MLD_QUERY {
            let query = Query::parse_v6(frame.bytes(), packet);
            return self.on_group_query(port, false, query, now_ns);
        }
        let answerable = ip_sender(self, packet.source) && audience == Audience::Us;
        match (icmp.kind, icmp.code) {
            (128, 0) if answerable && self.answer_echo => {
                Sorted::Done(self.echo(port, frame, packet, 129))
            }
            (2, _) if answerable => {
                let mtu_bytes = u32::from_be_bytes(icmp.rest);
                let flow = quoted_v6(&message[ICMP_BYTES..]);
                self.too_big(flow, mtu_bytes as usize, now_ns)
            }
            _ => self.rest(DropReason::NoListener),
        }
    }

    /// Answers a ping in its own frame: type and headers change, the data stays where it is.
    fn echo(
        &mut self,
        port: PortId,
        frame: &mut FrameMut<'_>,
        packet: &Packet,
        reply_kind: u8,
    ) -> Verdict {
        let hop = self.hop(port.0 as u8, sender_mac(frame));
        let header = Header {
            source: packet.destination,
            destination: packet.source,
            protocol: packet.protocol,
            hop_limit: self.hop_limit,
            traffic_class: 0,
            payload_bytes: packet.payload.len(),
        };
        if !reframe(frame, packet.payload.clone(), hop, &header) {
            self.counters.drop_one(DropReason::TxRefused);
            return Verdict::Drop;
        }
        let at = ETHERNET_BYTES + ip::header_bytes(header.destination);
        let message = &mut frame.bytes_mut()[at..];
        // Swapping the addresses leaves the pseudo-header's sum as it was.
        let before = u16::from_be_bytes([message[0], message[1]]);
        message[0] = reply_kind;
        let after = u16::from_be_bytes([message[0], message[1]]);
        let sum = u16::from_be_bytes([message[2], message[3]]);
        message[2..4].copy_from_slice(&checksum::replace(sum, before, after).to_be_bytes());
        self.events.echoes_answered += 1;
        Verdict::Tx
    }

    /// Refuses a packet that was sent to us alone: counts it, and says so to its sender if the rate
    /// limit lets us.
    pub(crate) fn refuse(
        &mut self,
        port: PortId,
        frame: &mut FrameMut<'_>,
        packet: &Packet,
        refusal: Refusal,
        now_ns: u64,
    ) -> Verdict {
        self.counters.drop_one(DropReason::NoListener);
        if !self.icmp_errors.allow(now_ns) {
            self.events.icmp_errors_suppressed += 1;
            return Verdict::Drop;
        }
        let v4 = packet.source.is_ipv4();
        let (icmp_protocol, error_bytes_max) = if v4 {
            (protocol::ICMP, ERROR_BYTES_MAX_V4)
        } else {
            (protocol::ICMPV6, ERROR_BYTES_MAX_V6)
        };
        let front = ip::header_bytes(packet.source) + ICMP_BYTES;
        let quoted = packet.bytes(frame.bytes()).len().min(error_bytes_max - front);
        let hop = self.hop(port.0 as u8, sender_mac(frame));
        let header = Header {
            source: packet.destination,
            destination: packet.source,
            protocol: icmp_protocol,
            hop_limit: self.hop_limit,
            traffic_class: 0,
            payload_bytes: ICMP_BYTES + quoted,
        };
        // The quoted packet stays where it is; ICMP header and all else go in front of it.
        let grown = frame.grow_front(ICMP_BYTES);
        let message = packet.header_at..packet.header_at + ICMP_BYTES + quoted;
        if !(grown && reframe(frame, message, hop, &header)) {
            self.counters.drop_one(DropReason::TxRefused);
            return Verdict::Drop;
        }
        let at = ETHERNET_BYTES + ip::header_bytes(header.destination);
        let message = &mut frame.bytes_mut()[at..];
        let (kind, code) = refusal.code(v4);
        message[..ICMP_BYTES].copy_from_slice(&[kind, code, 0, 0, 0, 0, 0, 0]);
        if refusal == Refusal::Protocol && !v4 {
            // Parameter problem points at the field (RFC 4443, 3.4): next header, if there are no
            // extension headers.
            message[7] = 6;
        }
        if v4 {
            let sum = checksum::of(message);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
        } else {
            ip::seal_payload(message, 2, header.source, header.destination, icmp_protocol);
        }
        self.events.icmp_errors_sent += 1;
        Verdict::Tx
    }

    fn too_big(&mut self, flow: Option<Flow>, mtu_bytes: usize, now_ns: u64) -> Sorted {
        let Some(flow) = flow.filter(|flow| self.is_own(flow.local.ip())) else {
            return self.rest(DropReason::Malformed);
        };
        let floor = if flow.local.is_ipv4() { MTU_BYTES_MIN } else { PATH_MTU_MIN_V6 };
        let mtu_bytes = mtu_bytes.max(floor);
        let remote = flow.remote.ip();
        if self.interfaces.iter().all(|i| mtu_bytes >= i.mtu_bytes) {
            return Sorted::Done(self.consumed());
        }
        let is_new = self.path_mtus.learn(remote, mtu_bytes, now_ns);
        self.events.path_mtus_learned += u64::from(is_new);
        // A flow may not know what another one over the same path has learnt, or what there was no room for.
        let known = self.path_mtus.get(remote, now_ns);
        Sorted::TooBig(flow, known.map_or(mtu_bytes, |known| known.min(mtu_bytes)))
    }
}

fn ip_sender(host: &Host, source: IpAddr) -> bool {
    crate::address::is_sender(source) && !host.is_own(source)
}

/// The flow of the packet that an error quotes, which it claims that we sent.
fn quoted_v4(bytes: &[u8]) -> Option<Flow> {
    let header = Ipv4::parse(bytes).ok()?;
    let ports = bytes.get(header.header_bytes..)?.first_chunk::<4>()?;
    if header.fragment_offset_bytes() != 0 {
        return None;
    }
    Some(flow(header.protocol, header.source.into(), header.destination.into(), ports))
}

fn quoted_v6(bytes: &[u8]) -> Option<Flow> {
    let header = Ipv6::parse(bytes).ok()?;
    let ports = bytes.get(IPV6_BYTES..)?.first_chunk::<4>()?;
    Some(flow(header.next_header, header.source.into(), header.destination.into(), ports))
}

fn flow(protocol: u8, source: IpAddr, destination: IpAddr, ports: &[u8; 4]) -> Flow {
    let [a, b, c, d] = *ports;
    Flow {
        protocol,
        local: SocketAddr::new(source, u16::from_be_bytes([a, b])),
        remote: SocketAddr::new(destination, u16::from_be_bytes([c, d])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_quoted_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..80), first in 0u8..3) {
            let mut bytes = bytes;
            if let Some(byte) = bytes.first_mut() {
                *byte = [0x45, 0x60, *byte][usize::from(first)];
            }
            let _ = (quoted_v4(&bytes), quoted_v6(&bytes));
        }
    }
}
