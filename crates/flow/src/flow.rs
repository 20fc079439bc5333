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

use crate::layout::{CField, c_struct};
use crate::{BEHIND_NS, FLOW_KEY_BYTES, FlowKey, FlowLimits, Has, Record, mean_and_deviation};
use laneway_wire::tcp_flags::{ACK, FIN, RST, SYN};

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

/// Bits of [`Side::state`].
pub mod side_state {
    /// `seq_end` is valid.
    pub const SEQ: u8 = 0x01;
    /// `last_ack` is valid.
    pub const ACK: u8 = 0x02;
    /// `win_first` to `win_max` are valid.
    pub const WIN: u8 = 0x04;
    /// A FIN was sent.
    pub const FIN: u8 = 0x08;
    /// `mss` is valid.
    pub const MSS: u8 = 0x10;
    /// `wscale` is valid.
    pub const WSCALE: u8 = 0x20;
}

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

/// What one end of a flow sent. Units: bytes, ns, frames; squares in the unit squared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Side {
    /// Frames.
    pub pkts: u64,
    /// Sum of `frame_len`.
    pub bytes: u64,
    /// IP header and payload ([`Record::ip_total_bytes`]).
    pub ip_bytes: u64,
    /// IP payload: layer-4 header and payload.
    pub l4_bytes: u64,
    /// Bytes behind the layer-4 header.
    pub payload_bytes: u64,
    /// IP and layer-4 headers.
    pub hdr_bytes: u64,
    /// Sum of `frame_len` squared; wraps only for lengths that no link has.
    pub len_sq: u64,
    /// Sum of payload bytes squared.
    pub payload_sq: u64,
    /// Times between frames of this side, in ns.
    pub iat: Span,
    /// Sum of those times squared, in ns^2.
    pub iat_sq: u128,
    /// Time of the last frame of this side.
    pub last_ns: u64,
    /// Least `frame_len`; meaningful with `pkts > 0`, as the other minima.
    pub len_min: u32,
    /// Greatest `frame_len`.
    pub len_max: u32,
    /// Frames with payload.
    pub data_pkts: u64,
    /// Start of the run of data frames now open.
    pub run_start_ns: u64,
    /// Last frame of that run.
    pub run_last_ns: u64,
    /// Payload of that run.
    pub run_bytes: u64,
    /// Frames of that run.
    pub run_pkts: u32,
    /// Highest end of sequence space seen; valid with [`side_state::SEQ`].
    pub seq_end: u32,
    /// Last acknowledgement number; valid with [`side_state::ACK`].
    pub last_ack: u32,
    /// TCP frames with window 0, RST left out.
    pub zero_win_pkts: u32,
    /// First window; valid with [`side_state::WIN`], as the next three.
    pub win_first: u16,
    /// Last window.
    pub win_last: u16,
    /// Least window.
    pub win_min: u16,
    /// Greatest window.
    pub win_max: u16,
    /// First MSS option in bytes; valid with [`side_state::MSS`].
    pub mss: u16,
    /// First TTL.
    pub ttl_first: u8,
    /// Last TTL.
    pub ttl_last: u8,
    /// Least TTL.
    pub ttl_min: u8,
    /// Greatest TTL.
    pub ttl_max: u8,
    /// First window scale option; valid with [`side_state::WSCALE`].
    pub wscale: u8,
    /// Bits of [`side_state`].
    pub state: u8,
    /// Frames with each TCP flag, FIN first.
    pub flags: [u32; TCP_FLAG_COUNT],
    /// Least payload.
    pub payload_min: u32,
    /// Greatest payload.
    pub payload_max: u32,
    /// Frames with sequence space that start before the highest end seen.
    pub retrans_pkts: u32,
    /// Frames that start beyond it: something before them is missing.
    pub ahead_pkts: u32,
    /// Frames without sequence space that repeat acknowledgement and window.
    pub dup_ack_pkts: u32,
    /// Runs of 4 or more data frames, each at most 1 s after the last.
    pub bulk_n: u64,
    /// Frames by length, see [`LEN_HIST_BOUNDS_BYTES`].
    pub len_hist: [u32; HIST_BINS],
    /// Times between frames, see [`IAT_HIST_BOUNDS_NS`].
    pub iat_hist: [u32; HIST_BINS],
    /// Frames in those runs.
    pub bulk_pkts: u64,
    /// Payload of those runs.
    pub bulk_bytes: u64,
    /// Duration of those runs in ns.
    pub bulk_ns: u64,
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

#[inline]
fn square(value: u64) -> u128 {
    u128::from(value) * u128::from(value)
}

#[inline]
fn bin<T: PartialOrd, const N: usize>(bounds: &[T; N], value: T) -> usize {
    bounds.iter().filter(|bound| value >= **bound).count()
}

impl Side {
    /// Mean and deviation of `frame_len` in bytes.
    pub fn len_stats(&self) -> (Option<f64>, Option<f64>) {
        mean_and_deviation(self.pkts, self.bytes, self.len_sq.into())
    }

    /// Mean and deviation of the payload in bytes.
    pub fn payload_stats(&self) -> (Option<f64>, Option<f64>) {
        mean_and_deviation(self.pkts, self.payload_bytes, self.payload_sq.into())
    }

    /// Mean and deviation of the times between frames in ns.
    pub fn iat_stats(&self) -> (Option<f64>, Option<f64>) {
        mean_and_deviation(self.iat.n, self.iat.sum, self.iat_sq)
    }

    /// Closes the run of data frames and books it if it was a bulk.
    fn close_run(&mut self) {
        if self.run_pkts >= BULK_PKTS_MIN {
            self.bulk_n = self.bulk_n.wrapping_add(1);
            self.bulk_pkts = self.bulk_pkts.wrapping_add(self.run_pkts.into());
            self.bulk_bytes = self.bulk_bytes.wrapping_add(self.run_bytes);
            let lasted_ns = self.run_last_ns.saturating_sub(self.run_start_ns);
            self.bulk_ns = self.bulk_ns.wrapping_add(lasted_ns);
        }
        self.run_pkts = 0;
        self.run_bytes = 0;
    }

    #[inline]
    fn add(&mut self, record: &Record, now_ns: u64) {
        let (ip_bytes, l4_bytes, payload) = record.claimed_bytes();
        let len = record.frame_len;
        if self.pkts == 0 {
            (self.len_min, self.len_max) = (len, len);
            (self.payload_min, self.payload_max) = (payload, payload);
            (self.ttl_first, self.ttl_min, self.ttl_max) = (record.ttl, record.ttl, record.ttl);
        } else {
            let gap_ns = now_ns.saturating_sub(self.last_ns);
            self.iat.add(gap_ns);
            self.iat_sq = self.iat_sq.wrapping_add(square(gap_ns));
            let count = &mut self.iat_hist[bin(&IAT_HIST_BOUNDS_NS, gap_ns)];
            *count = count.wrapping_add(1);
            self.len_min = self.len_min.min(len);
            self.len_max = self.len_max.max(len);
            self.payload_min = self.payload_min.min(payload);
            self.payload_max = self.payload_max.max(payload);
            self.ttl_min = self.ttl_min.min(record.ttl);
            self.ttl_max = self.ttl_max.max(record.ttl);
        }
        self.ttl_last = record.ttl;
        self.last_ns = now_ns;
        self.pkts = self.pkts.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(len.into());
        self.ip_bytes = self.ip_bytes.wrapping_add(ip_bytes.into());
        self.l4_bytes = self.l4_bytes.wrapping_add(l4_bytes.into());
        self.payload_bytes = self.payload_bytes.wrapping_add(payload.into());
        let headers = u64::from(record.l3_hdr_len) + u64::from(record.l4_hdr_len);
        self.hdr_bytes = self.hdr_bytes.wrapping_add(headers);
        self.len_sq = self.len_sq.wrapping_add(u64::from(len) * u64::from(len));
        self.payload_sq = self.payload_sq.wrapping_add(u64::from(payload) * u64::from(payload));
        let count = &mut self.len_hist[bin(&LEN_HIST_BOUNDS_BYTES, len)];
        *count = count.wrapping_add(1);

        if payload > 0 {
            self.data_pkts = self.data_pkts.wrapping_add(1);
            if self.run_pkts > 0 && now_ns.saturating_sub(self.run_last_ns) > GAP_SUBFLOW_NS {
                self.close_run();
            }
            if self.run_pkts == 0 {
                self.run_start_ns = now_ns;
            }
            self.run_pkts = self.run_pkts.wrapping_add(1);
            self.run_bytes = self.run_bytes.wrapping_add(payload.into());
            self.run_last_ns = now_ns;
        }
        if record.has.contains(Has::TCP) {
            self.add_tcp(record, payload);
        }
    }

    #[inline]
    fn add_tcp(&mut self, record: &Record, payload: u32) {
        let flag = |flag: u16| record.tcp_flags & flag != 0;
        let space = payload + u32::from(flag(SYN)) + u32::from(flag(FIN));
        let end = record.tcp_seq.wrapping_add(space);

        for (bit, count) in self.flags.iter_mut().enumerate() {
            *count = count.wrapping_add(u32::from(record.tcp_flags >> bit & 1));
        }
        if space > 0 && !flag(RST) {
            if self.state & side_state::SEQ == 0 {
                self.seq_end = end;
                self.state |= side_state::SEQ;
            } else {
                // Sequence numbers are compared around the circle (RFC 9293, 3.4).
                let start_ahead = record.tcp_seq.wrapping_sub(self.seq_end) as i32;
                if start_ahead < 0 {
                    self.retrans_pkts = self.retrans_pkts.wrapping_add(1);
                } else if start_ahead > 0 {
                    self.ahead_pkts = self.ahead_pkts.wrapping_add(1);
                }
                if end.wrapping_sub(self.seq_end) as i32 > 0 {
                    self.seq_end = end;
                }
            }
        }
        let window = record.tcp_win;
        if flag(ACK) {
            if self.state & side_state::ACK != 0
                && space == 0
                && !flag(RST)
                && record.tcp_ack == self.last_ack
                && window == self.win_last
            {
                self.dup_ack_pkts = self.dup_ack_pkts.wrapping_add(1);
            }
            self.last_ack = record.tcp_ack;
            self.state |= side_state::ACK;
        }
        if window == 0 && !flag(RST) {
            self.zero_win_pkts = self.zero_win_pkts.wrapping_add(1);
        }
        if self.state & side_state::WIN == 0 {
            (self.win_first, self.win_min, self.win_max) = (window, window, window);
            self.state |= side_state::WIN;
        }
        self.win_min = self.win_min.min(window);
        self.win_max = self.win_max.max(window);
        self.win_last = window;
        if record.has.contains(Has::MSS) && self.state & side_state::MSS == 0 {
            self.mss = record.tcp_mss;
            self.state |= side_state::MSS;
        }
        if record.has.contains(Has::WSCALE) && self.state & side_state::WSCALE == 0 {
            self.wscale = record.tcp_wscale;
            self.state |= side_state::WSCALE;
        }
        if flag(FIN) {
            self.state |= side_state::FIN;
        }
    }

    /// Adds another part of the same side; both runs are closed.
    fn merge(&mut self, other: &Side) {
        if other.pkts == 0 {
            return;
        }
        if self.pkts == 0 {
            *self = *other;
            return;
        }
        let later = other.last_ns > self.last_ns;
        self.pkts = self.pkts.wrapping_add(other.pkts);
        for (mine, theirs) in [
            (&mut self.bytes, other.bytes),
            (&mut self.ip_bytes, other.ip_bytes),
            (&mut self.l4_bytes, other.l4_bytes),
            (&mut self.payload_bytes, other.payload_bytes),
            (&mut self.hdr_bytes, other.hdr_bytes),
            (&mut self.len_sq, other.len_sq),
            (&mut self.payload_sq, other.payload_sq),
            (&mut self.data_pkts, other.data_pkts),
            (&mut self.bulk_n, other.bulk_n),
            (&mut self.bulk_pkts, other.bulk_pkts),
            (&mut self.bulk_bytes, other.bulk_bytes),
            (&mut self.bulk_ns, other.bulk_ns),
        ] {
            *mine = mine.wrapping_add(theirs);
        }
        self.iat.merge(&other.iat);
        self.iat_sq = self.iat_sq.wrapping_add(other.iat_sq);
        self.last_ns = self.last_ns.max(other.last_ns);
        self.len_min = self.len_min.min(other.len_min);
        self.len_max = self.len_max.max(other.len_max);
        self.payload_min = self.payload_min.min(other.payload_min);
        self.payload_max = self.payload_max.max(other.payload_max);
        self.ttl_min = self.ttl_min.min(other.ttl_min);
        self.ttl_max = self.ttl_max.max(other.ttl_max);
        for (mine, theirs) in [
            (&mut self.retrans_pkts, other.retrans_pkts),
            (&mut self.ahead_pkts, other.ahead_pkts),
            (&mut self.dup_ack_pkts, other.dup_ack_pkts),
            (&mut self.zero_win_pkts, other.zero_win_pkts),
        ] {
            *mine = mine.wrapping_add(theirs);
        }
        for (mine, theirs) in (self.flags.iter_mut().zip(other.flags))
            .chain(self.len_hist.iter_mut().zip(other.len_hist))
            .chain(self.iat_hist.iter_mut().zip(other.iat_hist))
        {
            *mine = mine.wrapping_add(theirs);
        }
        if later {
            self.ttl_last = other.ttl_last;
        }
        self.merge_tcp(other, later);
    }

    fn merge_tcp(&mut self, other: &Side, later: bool) {
        let takes = |bit: u8, mine: u8| other.state & bit != 0 && (mine & bit == 0 || later);
        if other.state & side_state::WIN != 0 {
            if self.state & side_state::WIN == 0 {
                self.win_first = other.win_first;
                (self.win_min, self.win_max) = (other.win_min, other.win_max);
            }
            self.win_min = self.win_min.min(other.win_min);
            self.win_max = self.win_max.max(other.win_max);
        }
        if takes(side_state::WIN, self.state) {
            self.win_last = other.win_last;
        }
        if takes(side_state::ACK, self.state) {
            self.last_ack = other.last_ack;
        }
        if takes(side_state::SEQ, self.state) {
            self.seq_end = other.seq_end;
        }
        if self.state & side_state::MSS == 0 {
            self.mss = other.mss;
        }
        if self.state & side_state::WSCALE == 0 {
            self.wscale = other.wscale;
        }
        self.state |= other.state;
    }
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
    /// Exact with any split: frames, bytes, squares of lengths, TCP flags, length histogram,
    /// minima and maxima, first and last time, last TTL and window.
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
mod tests {
    use super::*;
    use crate::RECORD_BYTES;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn flows_whose_fields_disagree_never_panic(
            mut a in proptest::collection::vec(any::<u8>(), FLOW_RECORD_BYTES),
            mut b in proptest::collection::vec(any::<u8>(), FLOW_RECORD_BYTES),
            mut record in proptest::collection::vec(any::<u8>(), RECORD_BYTES),
            codes in any::<[(u8, bool); 2]>(),
            now_ns in any::<u64>(),
        ) {
            for (bytes, (end, syn_side)) in [&mut a, &mut b].into_iter().zip(codes) {
                bytes[FLOW_KEY_BYTES + 890] = end % 6;
                bytes[FLOW_KEY_BYTES + 891] = u8::from(syn_side);
            }
            let read = |bytes: Vec<u8>| {
                let bytes: [u8; FLOW_RECORD_BYTES] = bytes.try_into().unwrap();
                let (key, flow) = Flow::from_record_bytes(&bytes).unwrap();
                prop_assert_eq!(Flow::from_record_bytes(&flow.to_record_bytes(&key)), Some((key, flow)));
                Ok(flow)
            };
            let (mut flow, other) = (read(a)?, read(b)?);
            record[95] = 0;
            let record: [u8; RECORD_BYTES] = record.try_into().unwrap();
            let record = Record::from_bytes(&record).expect("status 0 is one");
            flow.add(&record, now_ns ^ record.ts_ns, now_ns % 2 == 0);
            flow.merge(&other);
            flow.ended(&FlowLimits::default(), None, now_ns);
            flow.close(EndReason::Forced);
            flow.duration_ns();
            for stats in [flow.iat_stats(), flow.len_stats(), flow.payload_stats(),
                flow.active_stats(), flow.idle_stats(), flow.side[0].iat_stats(),
                flow.side[1].len_stats()]
            {
                prop_assert!(stats.1.is_none_or(|d| d >= 0.0));
            }
        }
    }

    fn frame(ts_ns: u64, payload: u16) -> Record {
        Record {
            ts_ns,
            frame_len: 54 + u32::from(payload),
            ip_len: 40 + payload,
            l3_hdr_len: 20,
            l4_hdr_len: 20,
            ttl: 64,
            proto: 6,
            tcp_flags: ACK,
            tcp_win: 100,
            has: Has::IPV4.with(Has::PORTS).with(Has::TCP),
            ..Record::default()
        }
    }

    /// Adds a record at the time it is stamped.
    fn add(flow: &mut Flow, record: &Record, source_is_low: bool) -> Added {
        flow.add(record, record.ts_ns, source_is_low)
    }

    #[test]
    fn a_frame_from_the_past_counts_at_its_predecessors_time() {
        let mut flow = Flow::default();
        add(&mut flow, &frame(1000, 0), true);
        assert_eq!(add(&mut flow, &frame(400, 0), true).gap_ns, 0);
        add(&mut flow, &frame(1100, 0), true);
        assert_eq!((flow.iat.sum, flow.iat.max, flow.last_ns), (100, 100, 1100));
        assert_eq!((flow.first_stamp_ns, flow.last_stamp_ns), (1000, 1100));
    }

    #[test]
    fn a_flow_keeps_what_its_frames_were_stamped_wherever_the_clock_is() {
        let mut flow = Flow::default();
        flow.add(&frame(7000, 0), 50, true);
        flow.add(&frame(400, 0), 90, true);
        assert_eq!((flow.first_stamp_ns, flow.last_stamp_ns, flow.duration_ns()), (7000, 400, 40));
    }

    /// Linux sends a SYN again after 1 s.
    #[test]
    fn a_handshake_is_measured_from_the_syn_that_was_answered_last() {
        let mut flow = Flow::default();
        let flagged = |ts_ns, tcp_flags| Record { tcp_flags, ..frame(ts_ns, 0) };
        for (ts_ns, flags, from_low) in [
            (1000, SYN, true),
            (2000, SYN, true),
            (2030, SYN | ACK, false),
            (2040, SYN | ACK, false),
            (2050, ACK, true),
            (2060, SYN, true),
        ] {
            add(&mut flow, &flagged(ts_ns, flags), from_low);
        }
        assert_eq!((flow.syn_ns, flow.syn_ack_ns, flow.ack_ns), (2000, 2030, 2050));
        let mut both = Flow::default();
        add(&mut both, &flagged(1000, SYN), true);
        add(&mut both, &flagged(1500, SYN), false);
        assert_eq!((both.syn_ns, both.syn_side), (1000, Direction::Forward), "opened by both");
    }

    #[test]
    fn a_frame_stamped_far_ahead_ends_with_the_next_one_that_is_not() {
        let limits = FlowLimits::default();
        let far_ns = limits.idle_ns() + BEHIND_NS;
        let mut flow = Flow::default();
        add(&mut flow, &frame(1000 + far_ns, 0), true);
        let next = frame(1000, 0);
        assert_eq!(flow.ended(&limits, Some(&next), 1000), Some(EndReason::Idle));
        assert_eq!(flow.ended(&limits, Some(&next), 1001), None);
        assert_eq!(flow.ended(&limits, None, 1000), None, "a later frame may yet confirm it");
    }

    #[test]
    fn four_data_frames_close_together_are_a_bulk_and_three_are_not() {
        for (frames, bulks) in [(3, 0), (4, 1)] {
            let mut flow = Flow::default();
            for i in 0..frames {
                add(&mut flow, &frame(i * 1_000_000_000, 10), true);
            }
            flow.close(EndReason::Forced);
            assert_eq!(flow.side[0].bulk_n, bulks);
        }
    }

    #[test]
    fn the_gap_of_a_second_is_part_of_a_subflow_and_a_longer_one_is_not() {
        let mut flow = Flow::default();
        add(&mut flow, &frame(0, 0), true);
        add(&mut flow, &frame(1_000_000_000, 0), true);
        assert_eq!(flow.subflows, 1);
        add(&mut flow, &frame(2_000_000_001, 0), true);
        assert_eq!(flow.subflows, 2);
    }

    #[test]
    fn merged_parts_of_different_directions_equal_the_whole() {
        let mut whole = Flow::default();
        let mut parts = [Flow::default(); 2];
        for i in 0..40u64 {
            let mut record = frame(1 + i * 7_000, (i % 5) as u16);
            record.ttl = 60 + (i % 3) as u8;
            record.tcp_win = 10 + (i * 7 % 13) as u16;
            let from_low = i % 3 != 0;
            add(&mut whole, &record, from_low);
            add(&mut parts[usize::from(from_low)], &record, from_low);
        }
        let mut merged = parts[1];
        merged.merge(&parts[0]);
        whole.close(EndReason::Forced);
        merged.close(EndReason::Forced);
        // Gaps between the two sides are lost; everything within a side is exact.
        assert_eq!(merged.side, whole.side);
        assert_eq!((merged.first_ns, merged.last_ns), (whole.first_ns, whole.last_ns));
        assert_eq!(merged.fwd_is_lo, whole.fwd_is_lo);
    }

    #[test]
    fn merging_with_nothing_changes_nothing() {
        let mut flow = Flow::default();
        add(&mut flow, &frame(5, 3), true);
        let before = flow;
        flow.merge(&Flow::default());
        assert_eq!(flow, before);
        let mut empty = Flow::default();
        empty.merge(&before);
        assert_eq!(empty, before);
    }

    #[test]
    fn unknown_codes_are_no_flow() {
        let mut bytes = Flow::default().to_bytes();
        assert!(Flow::from_bytes(&bytes).is_some());
        bytes[890] = 6;
        assert!(Flow::from_bytes(&bytes).is_none());
        bytes[890] = 0;
        bytes[891] = 2;
        assert!(Flow::from_bytes(&bytes).is_none());
    }
}
