//! One direction of a flow.

use super::{
    BULK_PKTS_MIN, GAP_SUBFLOW_NS, HIST_BINS, IAT_HIST_BOUNDS_NS, LEN_HIST_BOUNDS_BYTES, Span,
    TCP_FLAG_COUNT,
};
use crate::{Has, Record, mean_and_deviation};
use laneway_wire::tcp_flags::{ACK, FIN, RST, SYN};

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
    /// A SYN without ACK was sent.
    pub const SYN: u8 = 0x40;
    /// A SYN with ACK was sent.
    pub const SYN_ACK: u8 = 0x80;
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
    pub(super) fn close_run(&mut self) {
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
    pub(super) fn add(&mut self, record: &Record, now_ns: u64) {
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
    pub(super) fn add_tcp(&mut self, record: &Record, payload: u32) {
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
        if flag(SYN) {
            self.state |= if flag(ACK) { side_state::SYN_ACK } else { side_state::SYN };
        }
    }

    /// Adds another part of the same side; both runs are closed.
    pub(super) fn merge(&mut self, other: &Side) {
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

    pub(super) fn merge_tcp(&mut self, other: &Side, later: bool) {
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

#[inline]
pub(super) fn square(value: u64) -> u128 {
    u128::from(value) * u128::from(value)
}

#[inline]
pub(super) fn bin<T: PartialOrd, const N: usize>(bounds: &[T; N], value: T) -> usize {
    bounds.iter().filter(|bound| value >= **bound).count()
}
