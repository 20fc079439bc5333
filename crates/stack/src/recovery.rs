//! Which segments are sent again before smoltcp's timer does it.
//!
//! smoltcp sends one segment again at the third duplicate acknowledgement, and all of them when its timer ends, after
//! a second or more (RFC 6298, 2.4). A second loss in the same window, the loss of what was sent again, and the loss
//! of the last segments wait for that timer. Two rules spare them the wait:
//!
//! ```text
//!   partial    an acknowledgement is new, and not of all that was sent when the loss was noticed (RFC 6582, 3.2):
//!              the next missing segment is sent at once
//!   probe      nothing new was acknowledged for two round trips, and for no less than 20 ms (RFC 8985, 7): the first
//!              missing segment is sent, and again after twice the time; four times, then smoltcp's timer is left to it
//! ```
//!
//! This decides, from what [`Received`](crate::sequence::Received) and [`Sent`](crate::sequence::Sent) have followed;
//! [`Connection`](crate::connection::Connection) has smoltcp do it. What must always hold: a silent peer is probed a
//! bounded number of times, so the connection's own time limit ends it. No clock of its own.

use crate::sequence::is_before;

/// Duplicates at which smoltcp sends again by itself (RFC 5681, 3.2).
pub(crate) const DUPLICATES: u8 = 3;
/// No probe is sent earlier: a machine that has other work is late by milliseconds.
const PROBE_NS_MIN: u64 = 20_000_000;
/// A peer may hold back the acknowledgement of a single segment for so long (Linux: 40 to 200 ms).
const HELD_BACK_NS: u64 = 200_000_000;
/// Probes without an acknowledgement of anything new.
const PROBES_MAX: u32 = 4;
/// A round trip is at most so long; what takes longer is smoltcp's timer's.
const ROUND_NS_MAX: u64 = 1_000_000_000;

/// What is known when a segment of the peer has been looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looked {
    /// The end of what the peer has acknowledged.
    pub(crate) acknowledged: u32,
    /// The end of all that was sent.
    pub(crate) sent: u32,
    /// It only repeats what an earlier segment stated.
    pub(crate) is_duplicate: bool,
}

/// The losses of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recovery {
    acknowledged: u32,
    /// All that was sent when a loss was noticed; nothing while none is known.
    point: Option<u32>,
    duplicates: u8,
    /// When something new was acknowledged, sent while nothing was under way, or sent again.
    since_ns: u64,
    probes: u32,
    /// The mean round trip and its variation (RFC 6298, 2.3); 0 before the first.
    round_ns: u64,
    variation_ns: u64,
    /// A byte whose round trip is measured: its end, and when it was sent.
    timed: Option<(u32, u64)>,
}

impl Recovery {
    /// Of a connection of which so much is acknowledged, whose handshake took so long.
    pub(crate) fn new(acknowledged: u32, round_ns: u64, now_ns: u64) -> Recovery {
        // That of the handshake has a guess for a variation (RFC 6298, 2.2).
        let round_ns = if round_ns <= ROUND_NS_MAX { round_ns } else { 0 };
        let variation_ns = round_ns / 2;
        Recovery { acknowledged, since_ns: now_ns, round_ns, variation_ns, ..Recovery::default() }
    }

    /// Looks at what a segment has brought; true if the next missing segment is to be sent now.
    pub(crate) fn look(&mut self, looked: Looked, now_ns: u64) -> bool {
        let Looked { acknowledged, sent, is_duplicate } = looked;
        if !is_before(self.acknowledged, acknowledged) {
            if is_duplicate && is_before(acknowledged, sent) {
                self.duplicates = self.duplicates.saturating_add(1);
                if self.duplicates == DUPLICATES && self.point.is_none() {
                    self.begin(sent, now_ns);
                }
            }
            return false;
        }
        if let Some((end, sent_ns)) = self.timed
            && !is_before(acknowledged, end)
        {
            self.timed = None;
            self.measure(now_ns.saturating_sub(sent_ns));
        }
        self.acknowledged = acknowledged;
        (self.duplicates, self.probes, self.since_ns) = (0, 0, now_ns);
        let is_partial = self.point.is_some_and(|point| is_before(acknowledged, point));
        if !is_partial {
            self.point = None;
        }
        is_partial && is_before(acknowledged, sent)
    }

    /// Something was sent, the end of all of it being here; before, so many bytes were under way.
    pub(crate) fn send(&mut self, end: u32, under_way_before: usize, now_ns: u64) {
        if under_way_before == 0 {
            self.since_ns = now_ns;
        }
        if self.timed.is_none() && self.point.is_none() {
            self.timed = Some((end, now_ns));
        }
    }

    /// When the first missing segment is to be sent again, of so many bytes under way in segments of `mss_bytes`.
    pub(crate) fn due_ns(&self, under_way_bytes: usize, mss_bytes: usize) -> Option<u64> {
        if under_way_bytes == 0 || self.probes >= PROBES_MAX || self.round_ns == 0 {
            return None;
        }
        let wait_ns = (2 * self.round_ns).max(self.round_ns + 4 * self.variation_ns);
        let held_back_ns = if under_way_bytes <= mss_bytes { HELD_BACK_NS } else { 0 };
        let wait_ns = wait_ns.max(PROBE_NS_MIN) + held_back_ns;
        Some(self.since_ns.saturating_add(wait_ns << self.probes))
    }

    /// The first missing segment is sent again because its time has come.
    pub(crate) fn probe(&mut self, sent: u32, now_ns: u64) {
        self.probes += 1;
        if self.probes == PROBES_MAX {
            // From here on smoltcp sends all of it again, from its beginning.
            self.point = None;
        } else {
            self.begin(sent, now_ns);
        }
        self.since_ns = now_ns;
    }

    /// A loss was noticed when all up to `sent` was sent.
    fn begin(&mut self, sent: u32, now_ns: u64) {
        self.point = Some(
            self.point.map_or(sent, |point| if is_before(point, sent) { sent } else { point }),
        );
        // Which of two copies is acknowledged is not known (Karn).
        self.timed = None;
        self.since_ns = now_ns;
    }

    fn measure(&mut self, round_ns: u64) {
        let round_ns = round_ns.clamp(1, ROUND_NS_MAX);
        if self.round_ns == 0 {
            (self.round_ns, self.variation_ns) = (round_ns, round_ns / 2);
            return;
        }
        let off_ns = self.round_ns.abs_diff(round_ns);
        self.variation_ns = self.variation_ns - self.variation_ns / 4 + off_ns / 4;
        self.round_ns = (self.round_ns - self.round_ns / 8 + round_ns / 8).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const MSS: usize = 1000;
    /// Close to the wrap of the numbers.
    const FIRST: u32 = u32::MAX - 5_000;

    fn at(bytes: u32) -> u32 {
        FIRST.wrapping_add(bytes)
    }

    fn looked(acknowledged: u32, sent: u32, is_duplicate: bool) -> Looked {
        Looked { acknowledged: at(acknowledged), sent: at(sent), is_duplicate }
    }

    fn of_round(round_ns: u64) -> Recovery {
        Recovery::new(FIRST, round_ns, 0)
    }

    #[test]
    fn each_partial_acknowledgement_has_the_next_segment_sent_until_all_is_acknowledged() {
        let mut recovery = of_round(MS);
        recovery.send(at(20_000), 0, 0);
        for n in 1..=5 {
            assert!(!recovery.look(looked(0, 20_000, true), n), "smoltcp does that one");
        }
        assert_eq!(recovery.point, Some(at(20_000)));
        assert!(recovery.look(looked(3_000, 25_000, false), 10));
        assert!(recovery.look(looked(9_000, 25_000, false), 11));
        assert!(!recovery.look(looked(20_000, 25_000, false), 12), "all that was sent by then");
        assert!(!recovery.look(looked(22_000, 25_000, false), 13), "no loss is known");
    }

    #[test]
    fn an_acknowledgement_that_is_no_duplicate_counts_for_nothing() {
        let mut recovery = of_round(MS);
        recovery.send(at(5_000), 0, 0);
        for n in 0..9 {
            assert!(!recovery.look(looked(0, 5_000, false), n));
        }
        assert_eq!(recovery.point, None);
        for n in 0..9 {
            assert!(!recovery.look(looked(5_000, 5_000, n > 0), n), "nothing is under way");
        }
        assert_eq!(recovery.point, None);
    }

    #[test]
    fn a_silent_peer_is_probed_ever_later_and_not_for_ever() {
        let mut recovery = of_round(20 * MS);
        recovery.send(at(5_000), 0, 100 * MS);
        let mut now_ns = 100 * MS;
        for wait_ms in [60, 120, 240, 480] {
            let due_ns = recovery.due_ns(5_000, MSS).expect("it is probed");
            assert_eq!(due_ns, now_ns + wait_ms * MS);
            now_ns = due_ns;
            recovery.probe(at(5_000), now_ns);
        }
        assert_eq!(recovery.due_ns(5_000, MSS), None);
        assert!(!recovery.look(looked(1_000, 5_000, false), now_ns + 1), "smoltcp sends all again");
        assert!(recovery.due_ns(4_000, MSS).is_some(), "the peer is there");
    }

    #[test]
    fn the_last_segment_waits_for_an_acknowledgement_that_may_be_held_back() {
        let mut recovery = of_round(MS);
        recovery.send(at(500), 0, 0);
        assert_eq!(recovery.due_ns(500, MSS), Some(PROBE_NS_MIN + HELD_BACK_NS));
        assert_eq!(recovery.due_ns(1_500, MSS), Some(PROBE_NS_MIN));
        assert_eq!(recovery.due_ns(0, MSS), None);
        assert_eq!(of_round(u64::MAX).due_ns(1_500, MSS), None, "no round trip is known");
    }

    #[test]
    fn round_trips_are_measured_but_not_of_what_was_sent_again() {
        let mut recovery = of_round(u64::MAX);
        recovery.send(at(100), 0, 0);
        recovery.look(looked(100, 100, false), 8 * MS);
        assert_eq!((recovery.round_ns, recovery.variation_ns), (8 * MS, 4 * MS));
        recovery.send(at(5_000), 0, 10 * MS);
        recovery.probe(at(5_000), 50 * MS);
        recovery.look(looked(5_000, 5_000, false), 500 * MS);
        assert_eq!(recovery.round_ns, 8 * MS);
    }
}
