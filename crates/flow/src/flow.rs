//! The accumulators of one flow and the rules that feed and end it.
//!
//! [`Flow`], [`Side`] and [`Span`] mirror `struct lw_flow`, `lw_flow_side` and `lw_span` of flow.h,
//! which is their specification; the fields lie in another order here, so that what every frame
//! touches fills whole cache lines. Sums wrap, as the kernel's do; only lengths that no link
//! carries get them there.
//!
//! Flows live by flow time ([`crate::PacketClock`]). Time within a flow never runs backwards: a frame
//! before its predecessor counts at its predecessor's time.
//!
//! A flow read from a kernel map may have been copied while it was written, so its fields need not
//! agree. Nothing here panics on such a flow: counts wrap, and a time that would be negative is 0.

mod side;

use crate::layout::{CField, c_struct};
use crate::{BEHIND_NS, FLOW_KEY_BYTES, FlowKey, FlowLimits, Has, Record, mean_and_deviation};
use laneway_wire::tcp_flags::{ACK, RST, SYN};
pub use side::Side;
pub use side::side_state;
use side::square;

/// Bytes of `struct lw_flow`.
pub const FLOW_BYTES: usize = 912;
/// Bytes of `struct lw_flow_record`: a key and its flow.
pub const FLOW_RECORD_BYTES: usize = FLOW_KEY_BYTES + FLOW_BYTES;
/// Counted TCP flags: FIN SYN RST PSH ACK URG ECE CWR AE, in the order of their bits.
pub const TCP_FLAG_COUNT: usize = 9;
/// Bins of each histogram.
pub const HIST_BINS: usize = 8;
/// Upper bounds (exclusive) of all frame-length bins but the last, in bytes.
pub const LEN_HIST_BOUNDS_BYTES: [u32; HIST_BINS - 1] = [64, 128, 256, 512, 1024, 1519, 4096];
/// Upper bounds (exclusive) of all inter-arrival bins but the last, in ns: 10 us to 10 s.
pub const IAT_HIST_BOUNDS_NS: [u64; HIST_BINS - 1] =
    [10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000];

/// A longer gap starts a subflow and ends a bulk.
const GAP_SUBFLOW_NS: u64 = 1_000_000_000;
/// A longer gap is idle time between two active stretches.
const GAP_ACTIVE_NS: u64 = 5_000_000_000;
const BULK_PKTS_MIN: u32 = 4;

/// Bits of [`Flow::state`].
pub mod flow_state {
    /// Either side sent a RST.
    pub const RST: u8 = 0x01;
    /// A frame without a time is in it: the stamps say nothing.
    pub const NO_TIME: u8 = 0x02;
}

/// Which way a frame went: forward is the way of the flow's first frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Direction {
    /// As the first frame.
    #[default]
    Forward = 0,
    /// Against it.
    Backward = 1,
}

/// Why a flow ended: IPFIX flowEndReason (RFC 5102, 5.11.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EndReason {
    /// No frame for the idle timeout.
    Idle = 1,
    /// It lasted for the active timeout.
    Active = 2,
    /// RST, or FIN from both sides.
    EndSeen = 3,
    /// The run ended.
    Forced = 4,
    /// Its place in the table was needed.
    Resources = 5,
}

impl EndReason {
    /// Every reason, in the order of its code.
    pub const ALL: [EndReason; 5] = [
        EndReason::Idle,
        EndReason::Active,
        EndReason::EndSeen,
        EndReason::Forced,
        EndReason::Resources,
    ];

    /// The name used in results.
    pub fn name(self) -> &'static str {
        match self {
            EndReason::Idle => "idle",
            EndReason::Active => "active",
            EndReason::EndSeen => "end_seen",
            EndReason::Forced => "forced",
            EndReason::Resources => "resources",
        }
    }

    /// The reason of an IPFIX code.
    pub fn from_code(code: u8) -> Option<EndReason> {
        EndReason::ALL.into_iter().find(|r| *r as u8 == code)
    }
}

/// How far a TCP connection's handshake got, as far as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Handshake {
    /// No SYN without ACK.
    Unseen,
    /// A SYN, to which no SYN and ACK was seen.
    Syn,
    /// A SYN, and a SYN and ACK from the other side.
    SynAck,
    /// All three: an ACK from the SYN's side, too.
    Complete,
}

/// A running minimum, maximum and sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Span {
    /// How many values.
    pub n: u64,
    /// Their sum.
    pub sum: u64,
    /// The least; meaningful with `n > 0`.
    pub min: u64,
    /// The greatest.
    pub max: u64,
}

c_struct!(Span, "lw_span", 32, { n @ 0, sum @ 8, min @ 16, max @ 24, });

impl Span {
    #[inline]
    fn add(&mut self, value: u64) {
        self.sum = self.sum.wrapping_add(value);
        self.min = if self.n == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.n = self.n.wrapping_add(1);
    }

    fn merge(&mut self, other: &Span) {
        self.min = match (self.n, other.n) {
            (_, 0) => self.min,
            (0, _) => other.min,
            _ => self.min.min(other.min),
        };
        self.max = self.max.max(other.max);
        self.n = self.n.wrapping_add(other.n);
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

c_struct!(Side, "lw_flow_side", 344, {
    pkts @ 0,
    bytes @ 8,
    ip_bytes @ 16,
    l4_bytes @ 24,
    payload_bytes @ 32,
    hdr_bytes @ 40,
    data_pkts @ 48,
    len_sq @ 56,
    payload_sq @ 64,
    iat @ 72,
    iat_sq @ 104,
    last_ns @ 120,
    bulk_n @ 128,
    bulk_pkts @ 136,
    bulk_bytes @ 144,
    bulk_ns @ 152,
    run_start_ns @ 160,
    run_last_ns @ 168,
    run_bytes @ 176,
    run_pkts @ 184,
    len_min @ 188,
    len_max @ 192,
    payload_min @ 196,
    payload_max @ 200,
    flags @ 204,
    retrans_pkts @ 240,
    ahead_pkts @ 244,
    dup_ack_pkts @ 248,
    zero_win_pkts @ 252,
    seq_end @ 256,
    last_ack @ 260,
    len_hist @ 264,
    iat_hist @ 296,
    win_first @ 328,
    win_last @ 330,
    win_min @ 332,
    win_max @ 334,
    mss @ 336,
    ttl_first @ 338,
    ttl_last @ 339,
    ttl_min @ 340,
    ttl_max @ 341,
    wscale @ 342,
    state @ 343,
});

/// One flow: what both sides did together, and each side. `Flow::default()` is a flow before its
/// first frame. Units as in [`Side`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Flow {
    /// Flow time of the last frame, as are all times but the stamps.
    pub last_ns: u64,
    /// Time of the first frame.
    pub first_ns: u64,
    /// Times between frames of either side.
    pub iat: Span,
    /// Sum of those times squared, in ns^2.
    pub iat_sq: u128,
    /// Last SYN without ACK before the SYN and ACK; 0: none.
    pub syn_ns: u64,
    /// First SYN and ACK after it, from the other side; 0: none.
    pub syn_ack_ns: u64,
    /// First ACK after that, from the SYN's side; 0: none.
    pub ack_ns: u64,
    /// Gaps over 1 s, plus 1.
    pub subflows: u64,
    /// Start of the active stretch now open.
    pub active_since_ns: u64,
    /// The sender of the first frame is the key's low end.
    pub fwd_is_lo: bool,
    /// Bits of [`flow_state`].
    pub state: u8,
    /// Why it ended; `None` while it has not.
    pub end: Option<EndReason>,
    /// The way of the SYN of `syn_ns`.
    pub syn_side: Direction,
    /// Frames whose IP length is not the header's: `Has::LEN_UNSTATED`, `Has::LEN_BEYOND`.
    pub len_odd_pkts: u32,
    /// What the first frame was stamped.
    pub first_stamp_ns: u64,
    /// What the frame of `last_ns` was stamped.
    pub last_stamp_ns: u64,
    /// Sum of active stretches squared, in ns^2.
    pub active_sq: u128,
    /// Stretches without a gap over 5 s; the last one is booked when the flow ends.
    pub active: Span,
    /// Gaps over 5 s.
    pub idle: Span,
    /// Sum of those gaps squared, in ns^2.
    pub idle_sq: u128,
    /// Forward and backward.
    pub side: [Side; 2],
}

c_struct!(Flow, "lw_flow", FLOW_BYTES, {
    first_ns @ 0,
    last_ns @ 8,
    syn_ns @ 16,
    syn_ack_ns @ 24,
    ack_ns @ 32,
    subflows @ 40,
    active_since_ns @ 48,
    iat_sq @ 56,
    active_sq @ 72,
    idle_sq @ 88,
    iat @ 104,
    active @ 136,
    idle @ 168,
    side @ 200,
    fwd_is_lo @ 888,
    state @ 889,
    end @ 890,
    syn_side @ 891,
    len_odd_pkts @ 892,
    first_stamp_ns @ 896,
    last_stamp_ns @ 904,
});

// What every frame touches lies in five lines of a side and two of the flow.
const _: () = assert!(size_of::<Side>() == 384 && size_of::<Flow>() == 1024);

impl CField for Option<EndReason> {
    const BYTES: usize = 1;

    fn read(bytes: &[u8]) -> Option<Self> {
        match u8::read(bytes)? {
            0 => Some(None),
            code => EndReason::from_code(code).map(Some),
        }
    }

    fn write(&self, bytes: &mut [u8]) {
        self.map_or(0, |r| r as u8).write(bytes);
    }
}

impl CField for Direction {
    const BYTES: usize = 1;

    fn read(bytes: &[u8]) -> Option<Self> {
        match u8::read(bytes)? {
            0 => Some(Direction::Forward),
            1 => Some(Direction::Backward),
            _ => None,
        }
    }

    fn write(&self, bytes: &mut [u8]) {
        (*self as u8).write(bytes);
    }
}

/// What a frame was to its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// Which way it went.
    pub direction: Direction,
    /// Time since the flow's previous frame in ns; 0 for the first.
    pub gap_ns: u64,
}

impl Flow {
    /// Frames of both sides.
    #[inline]
    pub fn pkts(&self) -> u64 {
        self.side[0].pkts.wrapping_add(self.side[1].pkts)
    }

    /// The side of a direction.
    pub fn side(&self, direction: Direction) -> &Side {
        &self.side[direction as usize]
    }

    /// From first to last frame, in ns.
    pub fn duration_ns(&self) -> u64 {
        self.last_ns.saturating_sub(self.first_ns)
    }

    /// Mean and deviation of the times between frames of either side, in ns.
    pub fn iat_stats(&self) -> (Option<f64>, Option<f64>) {
        mean_and_deviation(self.iat.n, self.iat.sum, self.iat_sq)
    }

    /// Mean and deviation of `frame_len` over both sides, in bytes.
    pub fn len_stats(&self) -> (Option<f64>, Option<f64>) {
        let [f, b] = &self.side;
        let squares = u128::from(f.len_sq) + u128::from(b.len_sq);
        mean_and_deviation(self.pkts(), f.bytes.wrapping_add(b.bytes), squares)
    }

    /// Mean and deviation of the payload over both sides, in bytes.
    pub fn payload_stats(&self) -> (Option<f64>, Option<f64>) {
        let [f, b] = &self.side;
        let squares = u128::from(f.payload_sq) + u128::from(b.payload_sq);
        mean_and_deviation(self.pkts(), f.payload_bytes.wrapping_add(b.payload_bytes), squares)
    }

    /// Mean and deviation of the active stretches, in ns.
    pub fn active_stats(&self) -> (Option<f64>, Option<f64>) {
        mean_and_deviation(self.active.n, self.active.sum, self.active_sq)
    }

    /// Mean and deviation of the idle gaps, in ns.
    pub fn idle_stats(&self) -> (Option<f64>, Option<f64>) {
        mean_and_deviation(self.idle.n, self.idle.sum, self.idle_sq)
    }

    /// True once RST, or FIN from both sides, was seen.
    #[inline]
    pub fn end_seen(&self) -> bool {
        self.state & flow_state::RST != 0
            || self.side[0].state & self.side[1].state & side_state::FIN != 0
    }

    /// How far the handshake got, by what either side sent: the same wherever, and in whatever order, it was seen.
    pub fn handshake(&self) -> Handshake {
        let sent = |side: usize, bit: u8| self.side[side].state & bit != 0;
        let opened_by = |opener: usize| {
            if !sent(opener, side_state::SYN) {
                Handshake::Unseen
            } else if !sent(1 - opener, side_state::SYN_ACK) {
                Handshake::Syn
            } else if !sent(opener, side_state::ACK) {
                Handshake::SynAck
            } else {
                Handshake::Complete
            }
        };
        opened_by(0).max(opened_by(1))
    }

    /// Whether the flow had ended before `record` (which then starts another one), and why.
    /// Without a record: has it ended by `now_ns`?
    ///
    /// `now_ns` is the record's flow time, or without a record the clock's floor, before which no
    /// later frame's flow time is.
    #[inline]
    pub fn ended(
        &self,
        limits: &FlowLimits,
        record: Option<&Record>,
        now_ns: u64,
    ) -> Option<EndReason> {
        let closing = limits.end_ns() > 0 && self.end_seen();
        self.ended_if(closing, limits, record, now_ns)
    }

    /// [`Flow::ended`] for a caller that knows whether ends are looked at and this one was seen.
    #[inline]
    pub(crate) fn ended_if(
        &self,
        closing: bool,
        limits: &FlowLimits,
        record: Option<&Record>,
        now_ns: u64,
    ) -> Option<EndReason> {
        let quiet_ns = now_ns.saturating_sub(self.last_ns);
        if closing {
            // The ports are used again: a new connection, not a tail of the old one.
            let reopens = record
                .is_some_and(|r| r.has.contains(Has::TCP) && r.tcp_flags & (SYN | ACK) == SYN);
            if quiet_ns >= limits.end_ns() || reopens {
                return Some(EndReason::EndSeen);
            }
        }
        if quiet_ns >= limits.idle_ns() {
            return Some(EndReason::Idle);
        }
        if now_ns.saturating_sub(self.first_ns) >= limits.active_ns() {
            return Some(EndReason::Active);
        }
        // Its last frame was stamped far ahead, and that proves wrong.
        let far_ahead_ns = now_ns.saturating_add(limits.idle_ns()).saturating_add(BEHIND_NS);
        (record.is_some() && self.last_ns >= far_ahead_ns).then_some(EndReason::Idle)
    }

    /// Adds a record of a flow that has not ended; `now_ns` is the record's flow time.
    #[inline]
    pub fn add(&mut self, record: &Record, mut now_ns: u64, source_is_low: bool) -> Added {
        let mut gap_ns = 0;
        // The first frame counts a subflow, so none means no frame yet.
        if self.subflows == 0 {
            self.fwd_is_lo = source_is_low;
            (self.first_ns, self.active_since_ns) = (now_ns, now_ns);
            (self.first_stamp_ns, self.last_stamp_ns) = (record.ts_ns, record.ts_ns);
            self.subflows = 1;
        } else {
            if now_ns >= self.last_ns {
                self.last_stamp_ns = record.ts_ns;
            }
            now_ns = now_ns.max(self.last_ns);
            gap_ns = now_ns - self.last_ns;
            self.iat.add(gap_ns);
            self.iat_sq = self.iat_sq.wrapping_add(square(gap_ns));
            if gap_ns > GAP_SUBFLOW_NS {
                self.subflows = self.subflows.wrapping_add(1);
            }
            if gap_ns > GAP_ACTIVE_NS {
                self.book_active();
                self.idle.add(gap_ns);
                self.idle_sq = self.idle_sq.wrapping_add(square(gap_ns));
                self.active_since_ns = now_ns;
            }
        }
        self.last_ns = now_ns;
        if record.has.intersects(Has::LEN_UNSTATED.with(Has::LEN_BEYOND)) {
            self.len_odd_pkts = self.len_odd_pkts.wrapping_add(1);
        }
        if record.has.contains(Has::NO_TIME) {
            self.state |= flow_state::NO_TIME;
        }

        let direction =
            if source_is_low == self.fwd_is_lo { Direction::Forward } else { Direction::Backward };
        self.side[direction as usize].add(record, now_ns);
        if record.has.contains(Has::TCP) {
            self.add_handshake(record.tcp_flags, direction, now_ns);
        }
        Added { direction, gap_ns }
    }

    #[inline]
    fn add_handshake(&mut self, flags: u16, direction: Direction, now_ns: u64) {
        if flags & RST != 0 {
            self.state |= flow_state::RST;
        }
        let is_opener = direction == self.syn_side;
        match (flags & SYN != 0, flags & ACK != 0) {
            // Sent again: the answer that comes is to the last one, as in Wireshark.
            (true, false) if self.syn_ack_ns == 0 && (self.syn_ns == 0 || is_opener) => {
                self.syn_ns = now_ns;
                self.syn_side = direction;
            }
            (true, true) if self.syn_ns != 0 && self.syn_ack_ns == 0 && !is_opener => {
                self.syn_ack_ns = now_ns;
            }
            (false, true) if self.syn_ack_ns != 0 && self.ack_ns == 0 && is_opener => {
                self.ack_ns = now_ns;
            }
            _ => {}
        }
    }

    fn book_active(&mut self) {
        let active_ns = self.last_ns.saturating_sub(self.active_since_ns);
        self.active.add(active_ns);
        self.active_sq = self.active_sq.wrapping_add(square(active_ns));
    }

    /// Books what is still open. Called once, when the flow has ended.
    pub fn close(&mut self, reason: EndReason) {
        self.side[0].close_run();
        self.side[1].close_run();
        self.book_active();
        self.end = Some(reason);
    }

    /// Adds another part of the same flow, seen by another CPU; neither part is closed.
    ///
    /// Exact with any split: frames, bytes, squares of lengths, TCP flags, how far the handshake got, length
    /// histogram, minima and maxima, first and last time, last TTL and window.
    /// Not exact, because the order of frames across parts is lost: times between frames (those of
    /// each part stand), subflows, active and idle stretches, handshake times; and when both parts
    /// saw frames of one side, also that side's first TTL, window and options (the part that began
    /// first wins), retransmitted, ahead and duplicate-ACK frames, and bulks.
    /// A flow that one CPU saw alone is exact.
    pub fn merge(&mut self, other: &Flow) {
        if other.pkts() == 0 {
            return;
        }
        if self.pkts() == 0 {
            *self = *other;
            return;
        }
        let mut other = *other;
        if other.first_ns < self.first_ns {
            std::mem::swap(self, &mut other);
        }
        for side in self.side.iter_mut().chain(&mut other.side) {
            side.close_run();
        }
        if self.fwd_is_lo != other.fwd_is_lo {
            other.side.swap(0, 1);
            other.syn_side = match other.syn_side {
                Direction::Forward => Direction::Backward,
                Direction::Backward => Direction::Forward,
            };
        }
        // The open active stretch is that of the part which was active last; the other's is over.
        if other.last_ns > self.last_ns {
            self.book_active();
            self.active_since_ns = other.active_since_ns;
        } else {
            other.book_active();
        }
        if other.last_ns >= self.last_ns {
            (self.last_ns, self.last_stamp_ns) = (other.last_ns, other.last_stamp_ns);
        }
        self.subflows = self.subflows.wrapping_add(other.subflows).wrapping_sub(1);
        self.iat.merge(&other.iat);
        self.active.merge(&other.active);
        self.idle.merge(&other.idle);
        self.iat_sq = self.iat_sq.wrapping_add(other.iat_sq);
        self.active_sq = self.active_sq.wrapping_add(other.active_sq);
        self.idle_sq = self.idle_sq.wrapping_add(other.idle_sq);
        if other.syn_ns != 0 && (self.syn_ns == 0 || other.syn_ns < self.syn_ns) {
            (self.syn_ns, self.syn_side) = (other.syn_ns, other.syn_side);
        }
        self.syn_ack_ns = first_set(self.syn_ack_ns, other.syn_ack_ns);
        self.ack_ns = first_set(self.ack_ns, other.ack_ns);
        self.state |= other.state;
        self.len_odd_pkts = self.len_odd_pkts.wrapping_add(other.len_odd_pkts);
        for (mine, theirs) in self.side.iter_mut().zip(&other.side) {
            mine.merge(theirs);
        }
    }

    /// Reads `struct lw_flow`; `None` if a code in it has no meaning.
    pub fn from_bytes(bytes: &[u8; FLOW_BYTES]) -> Option<Flow> {
        Flow::read(bytes)
    }

    /// Writes `struct lw_flow`.
    pub fn to_bytes(&self) -> [u8; FLOW_BYTES] {
        let mut bytes = [0; FLOW_BYTES];
        self.write(&mut bytes);
        bytes
    }

    /// Reads `struct lw_flow_record`, what a kernel half hands over when a flow has ended.
    pub fn from_record_bytes(bytes: &[u8; FLOW_RECORD_BYTES]) -> Option<(FlowKey, Flow)> {
        Some((FlowKey::read(bytes)?, Flow::read(&bytes[FLOW_KEY_BYTES..])?))
    }

    /// Writes `struct lw_flow_record`.
    pub fn to_record_bytes(&self, key: &FlowKey) -> [u8; FLOW_RECORD_BYTES] {
        let mut bytes = [0; FLOW_RECORD_BYTES];
        key.write(&mut bytes);
        self.write(&mut bytes[FLOW_KEY_BYTES..]);
        bytes
    }
}

/// The earlier of two times where 0 means none.
fn first_set(a: u64, b: u64) -> u64 {
    match (a, b) {
        (0, t) | (t, 0) => t,
        _ => a.min(b),
    }
}

#[cfg(test)]
mod tests;
