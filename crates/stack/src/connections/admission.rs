//! Which peers may open a connection, and which connection makes room for it.
//!
//! While too many handshakes are not complete, a SYN is answered by a SYN cookie and nothing is kept.
//! The segment that brings the cookie back finds its connection as if it had been half-open.
//!
//! Of a newcomer whose first segments behind the SYN-ACK are lost, the next ones name a number that
//! no cookie was made for, with bytes or without: the answer to a second SYN-ACK has none. While
//! cookies are out, what acknowledges and is of no connection is therefore dropped without a reset:
//! such a newcomer sends its first bytes again.

use super::{Connections, LEND_FRAMES_MAX};
use crate::{
    connection::{Connection, Phase},
    cookie,
    ends::Ends,
    host::Host,
    ip::{self, Packet},
    isn,
    limit::RateLimit,
    reset::Segment,
    syn::SynOptions,
};
use laneway_core::{Burst, DropReason, PortId, Verdict};
use laneway_wire::{TCP_BYTES_MIN, tcp_flags};
use smoltcp::socket::tcp::State;
use std::net::IpAddr;

/// SYN cookies of a stack.
pub(super) struct Cookies {
    limit: RateLimit,
    /// When the last one was sent.
    sent_ns: Option<u64>,
}

impl Cookies {
    pub(super) fn new(per_second: u32) -> Cookies {
        // A turn's SYNs arrive at one time: at once leaves what is due in 10 ms.
        Cookies { limit: RateLimit::new(per_second, per_second / 100), sent_ns: None }
    }

    /// True while one that was sent can come back.
    fn are_out(&self, now_ns: u64) -> bool {
        self.sent_ns.is_some_and(|sent_ns| now_ns.saturating_sub(sent_ns) < cookie::LIFETIME_NS)
    }
}

/// A peer that wants to connect.
#[derive(Clone, Copy)]
pub(super) struct Newcomer {
    pub(super) ends: Ends,
    /// The port of the stack that listens there, and the interface that received the segment.
    pub(super) port: u8,
    pub(super) link: PortId,
}

/// Why a newcomer finds no room.
pub(super) enum Refusal {
    /// There are too many connections, of all or of this source.
    Full,
    /// Too many handshakes are not complete.
    HalfOpenFull,
}

impl Connections {
    /// Finds a slot for a newcomer whose SYN has arrived, or whose cookie was returned.
    pub(super) fn admit(
        &mut self,
        host: &mut Host,
        newcomer: Newcomer,
        cookie: Option<u32>,
        now_ns: u64,
    ) -> Result<u32, Refusal> {
        let Newcomer { ends, port, link } = newcomer;
        let from_there = self.per_source.get(&ends.remote.ip()).copied().unwrap_or(0);
        if from_there as usize >= self.limits.per_source_max {
            return Err(Refusal::Full);
        }
        let is_full = self.index.len() >= self.limits.connections_max;
        if is_full && self.lingering == 0 {
            return Err(Refusal::Full);
        }
        if cookie.is_none() && self.half_open >= self.limits.half_open_max {
            return Err(Refusal::HalfOpenFull);
        }
        if is_full && !self.evict_lingering(true) {
            return Err(Refusal::Full);
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Connection::new(&self.limits, ends));
            self.wheel.add_entry();
            (self.slots.len() - 1) as u32
        });
        let mtu_bytes = host.mtu_to(ends.remote.ip(), link.index(), now_ns);
        let sequence = cookie.unwrap_or_else(|| isn::initial_sequence(self.secret, &ends, now_ns));
        let connection = &mut self.slots[slot as usize];
        connection.port = port;
        connection.link = link.0 as u8;
        let drawn = (isn::seed_for(sequence), mtu_bytes);
        let listens = connection.listen(ends, drawn, &self.limits, self.hop_limit, now_ns);
        debug_assert!(listens, "a cleared socket listens");
        let deadline_ns = connection.deadline_ns;
        self.index.insert(ends, slot);
        *self.per_source.entry(ends.remote.ip()).or_insert(0) += 1;
        self.half_open += 1;
        self.wheel.set(slot, deadline_ns, now_ns);
        Ok(slot)
    }

    /// Answers a newcomer that finds no room.
    pub(super) fn refuse(
        &mut self,
        host: &mut Host,
        newcomer: Newcomer,
        (burst, i): (&mut Burst, usize),
        (packet, segment): (&Packet, &Segment),
        (refusal, now_ns): (Refusal, u64),
    ) -> Verdict {
        let Newcomer { ends, port, link } = newcomer;
        match refusal {
            Refusal::HalfOpenFull if self.cookies.limit.allow(now_ns) => {
                let syn = packet.payload(burst.frame(i).bytes);
                let peer = SynOptions::parse(syn, segment.tcp.header_bytes);
                let sequence = segment.tcp.sequence;
                let cookie = cookie::make(self.secret, &ends, sequence, peer.mss_bytes, now_ns);
                let mtu_bytes = host.mtu_to(ends.remote.ip(), link.index(), now_ns);
                let headers_bytes = ip::header_bytes(ends.local.ip()) + TCP_BYTES_MIN;
                let own = SynOptions::of_mss((mtu_bytes - headers_bytes) as u16);
                let window = u16::try_from(self.limits.rx_bytes).unwrap_or(u16::MAX);
                self.cookies.sent_ns = Some(now_ns);
                let (frame, seen) = (&mut burst.frame_mut(i), (packet, segment));
                host.send_cookie(link, frame, seen, (cookie, window), &own)
            }
            Refusal::HalfOpenFull => {
                self.counters[usize::from(port)].drop_one(DropReason::ConnTableFull);
                Verdict::Drop
            }
            Refusal::Full => {
                self.counters[usize::from(port)].drop_one(DropReason::ConnTableFull);
                let (frame, limit) = (&mut burst.frame_mut(i), &mut self.resets);
                host.reset(link, frame, packet, segment, (limit, now_ns))
            }
        }
    }

    /// The MSS in the SYN cookie that a segment brings back, if it brings one.
    pub(super) fn cookie_in(&self, ends: &Ends, segment: &Segment, now_ns: u64) -> Option<u16> {
        let tcp = segment.tcp;
        if !self.cookies.are_out(now_ns) || !acknowledges_only(segment) {
            return None;
        }
        let (peer, own) = (tcp.sequence.wrapping_sub(1), tcp.acknowledgement.wrapping_sub(1));
        cookie::check(self.secret, ends, peer, own, now_ns)
    }

    /// True if a segment of no connection may be a later one of a newcomer with a cookie.
    pub(super) fn may_be_early(&self, segment: &Segment, now_ns: u64) -> bool {
        self.cookies.are_out(now_ns) && acknowledges_only(segment)
    }

    /// Opens the connection of a segment that brings a cookie for `mss_bytes` back.
    pub(super) fn redeem(
        &mut self,
        host: &mut Host,
        newcomer: Newcomer,
        (burst, i): (&mut Burst, usize),
        (packet, segment): (&Packet, &Segment),
        (mss_bytes, now_ns): (u16, u64),
    ) -> Verdict {
        let tcp = segment.tcp;
        let cookie = tcp.acknowledgement.wrapping_sub(1);
        let slot = match self.admit(host, newcomer, Some(cookie), now_ns) {
            Ok(slot) => slot,
            Err(refusal) => {
                let seen = (packet, segment);
                return self.refuse(host, newcomer, (burst, i), seen, (refusal, now_ns));
            }
        };
        host.events.syn_cookies_redeemed += 1;
        let (sequence, options) = (tcp.sequence.wrapping_sub(1), SynOptions::of_mss(mss_bytes));
        let connection = &mut self.slots[slot as usize];
        connection.meet(sequence, options, &self.limits, now_ns);
        let room = (&mut self.reply, &mut self.spill);
        connection.imagine_syn((sequence, tcp.window), room, now_ns);
        let (frame, seen) = ((newcomer.link, burst, i), (packet, segment));
        let verdict = self.deliver(host, slot, frame, seen, now_ns);
        if self.slots[slot as usize].state() == State::SynReceived {
            // TCP could not read it. The next segment of that client brings the cookie again.
            self.release(slot);
        }
        verdict
    }

    /// One connection less counts for this source.
    pub(super) fn uncount(&mut self, source: IpAddr) {
        if let Some(count) = self.per_source.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                self.per_source.remove(&source);
            }
        }
    }

    /// Makes room by ending the oldest connection that the app knows to be closed; one whose FIN or reset may not have
    /// left only if it `may_be_unsent`, else it becomes the youngest.
    fn evict_lingering(&mut self, may_be_unsent: bool) -> bool {
        while let Some((slot, generation)) = self.lingerers.pop_front() {
            if !self.lingers(slot, generation) {
                continue;
            }
            if self.slots[slot as usize].is_sending && !may_be_unsent {
                self.lingerers.push_back((slot, generation));
                return false;
            }
            self.release(slot);
            return true;
        }
        false
    }

    fn lingers(&self, slot: u32, generation: u32) -> bool {
        let connection = &self.slots[slot as usize];
        connection.generation == generation && connection.phase == Phase::Lingering
    }

    pub(super) fn linger(&mut self, slot: u32) {
        // A turn that closes more than may linger goes over the limit, because none of their ends has left yet. With
        // two for one, later turns get below it again.
        for _ in 0..2 {
            if self.lingering >= self.limits.lingering_max {
                self.evict_lingering(false);
            }
        }
        let connection = &mut self.slots[slot as usize];
        connection.phase = Phase::Lingering;
        connection.deadline_ns = self.now_ns.saturating_add(self.limits.linger_ns);
        self.lingering += 1;
        self.lingerers.push_back((slot, connection.generation));
        let source = connection.ends.remote.ip();
        self.uncount(source);
        // One that outlives all later ones keeps their entries in the queue.
        if self.lingerers.len() > 2 * self.lingering + LEND_FRAMES_MAX {
            let mut lingerers = std::mem::take(&mut self.lingerers);
            lingerers.retain(|&(slot, generation)| self.lingers(slot, generation));
            self.lingerers = lingerers;
        }
    }
}

/// True for a segment that acknowledges, and neither begins nor breaks a connection.
fn acknowledges_only(segment: &Segment) -> bool {
    let marks = segment.tcp.flags & (tcp_flags::SYN | tcp_flags::ACK | tcp_flags::RST);
    marks == tcp_flags::ACK
}
