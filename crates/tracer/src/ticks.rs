//! Time as the CPU counts it, and its place on the kernel's clocks.
//!
//! Reading CLOCK_MONOTONIC costs more than all the rest of recording an event, so records carry
//! the CPU's counter, and now and then a [`SyncPoint`] says which counter value was which time. Where the
//! counter is not usable (it stops or varies, or a virtual machine hides that it does not),
//! `quanta` falls back to CLOCK_MONOTONIC: then a tick is a nanosecond and everything else stays the
//! same, at two to three times the cost.
//!
//! Assumes that counters of different CPUs agree, which is what "invariant" promises. What must
//! always hold: what one [`Ticks`] counts, another one of the same process counts, too.

use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;

/// Attempts at a [`SyncPoint`]; the one that took the fewest ticks counts, so that a preemption in the
/// middle does not.
const SYNC_ATTEMPTS: usize = 16;

/// How far apart the two syncs are by which the counter's rate is estimated.
const RATE_NS: u64 = 2_000_000;

/// Reads the CPU's counter.
#[derive(Clone, Debug)]
pub struct Ticks(quanta::Clock);

impl Ticks {
    /// The counter of this machine. The first call of a process takes up to 200 ms, in which `quanta`
    /// looks at the counter.
    pub fn new() -> Ticks {
        Ticks(quanta::Clock::new())
    }

    /// Now.
    #[inline]
    pub fn now(&self) -> u64 {
        self.0.raw()
    }

    /// The counter and the kernel's clocks at one moment.
    pub fn sync(&self) -> SyncPoint {
        let attempts = (0..SYNC_ATTEMPTS).map(|_| {
            let before = self.now();
            let monotonic_ns = read_ns(ClockId::Monotonic);
            let between = self.now();
            let realtime_ns = read_ns(ClockId::Realtime);
            let ticks = before + between.saturating_sub(before) / 2;
            // All three readings: a preemption before the last would put Unix time off.
            let took = self.now().saturating_sub(before);
            (took, SyncPoint { ticks, monotonic_ns, realtime_ns })
        });
        attempts.min_by_key(|(took, _)| *took).map_or_else(SyncPoint::default, |(_, sync)| sync)
    }

    /// Ticks per second, estimated over two milliseconds; the syncs of a file say it better.
    pub fn per_second(&self) -> u64 {
        let first = self.sync();
        loop {
            let last = self.sync();
            let ns = last.monotonic_ns.saturating_sub(first.monotonic_ns);
            if ns >= RATE_NS {
                let ticks = u128::from(last.ticks.saturating_sub(first.ticks));
                return u64::try_from(ticks * 1_000_000_000 / u128::from(ns)).unwrap_or(u64::MAX);
            }
        }
    }
}

impl Default for Ticks {
    fn default() -> Self {
        Self::new()
    }
}

/// One moment on three clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncPoint {
    /// The counter.
    pub ticks: u64,
    /// CLOCK_MONOTONIC, ns.
    pub monotonic_ns: u64,
    /// CLOCK_REALTIME, ns; read a few tens of nanoseconds after the others.
    pub realtime_ns: u64,
}

impl SyncPoint {
    /// This moment by clocks that count nanoseconds themselves: a tick is a nanosecond of
    /// CLOCK_MONOTONIC. For events whose stamps come from the kernel.
    pub fn of_monotonic() -> SyncPoint {
        let attempts = (0..SYNC_ATTEMPTS).map(|_| {
            let before_ns = read_ns(ClockId::Monotonic);
            let realtime_ns = read_ns(ClockId::Realtime);
            let took_ns = read_ns(ClockId::Monotonic) - before_ns;
            let monotonic_ns = before_ns + took_ns / 2;
            (took_ns, SyncPoint { ticks: monotonic_ns, monotonic_ns, realtime_ns })
        });
        attempts
            .min_by_key(|(took_ns, _)| *took_ns)
            .map_or_else(SyncPoint::default, |(_, sync)| sync)
    }

    /// CLOCK_REALTIME minus CLOCK_MONOTONIC.
    pub fn unix_offset_ns(&self) -> i64 {
        self.realtime_ns.wrapping_sub(self.monotonic_ns) as i64
    }
}

fn read_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Both clocks are past zero, and their nanoseconds fit an u64 for five centuries.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Most syncs of a file that are kept: one a second for 18 hours.
const SYNCS_MAX: usize = 1 << 16;

/// Syncs as they are read. Of too many every second one is kept, so that those that are cover the whole file.
#[derive(Debug)]
pub(crate) struct Syncs {
    kept: Vec<SyncPoint>,
    last: Option<SyncPoint>,
    seen: u64,
    every: u64,
}

impl Default for Syncs {
    fn default() -> Syncs {
        Syncs { kept: Vec::new(), last: None, seen: 0, every: 1 }
    }
}

impl Syncs {
    pub(crate) fn push(&mut self, sync: SyncPoint) {
        if self.kept.len() == SYNCS_MAX {
            let mut number = 0;
            self.kept.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.every *= 2;
        }
        if self.seen.is_multiple_of(self.every) {
            self.kept.push(sync);
        }
        self.last = Some(sync);
        self.seen += 1;
    }

    /// Those that are kept, and the last one.
    pub(crate) fn kept(mut self) -> Vec<SyncPoint> {
        self.kept.extend(self.last.filter(|_| !(self.seen - 1).is_multiple_of(self.every)));
        self.kept
    }
}

/// Turns counter values into CLOCK_MONOTONIC: straight lines between syncs.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    /// By ticks, strictly growing in both clocks. Shared: each thread of a file has a cursor of its own.
    syncs: Arc<[SyncPoint]>,
    ticks_per_s: u64,
    /// The line that was used last: events come in order.
    at: usize,
}

impl Timeline {
    /// Keeps the syncs that go forward on both clocks; gives how many did not.
    pub(crate) fn new(mut all: Vec<SyncPoint>, ticks_per_s: u64) -> (Timeline, usize) {
        all.sort_by_key(|sync| sync.ticks);
        let mut syncs: Vec<SyncPoint> = Vec::with_capacity(all.len());
        let mut odd = 0;
        for sync in all {
            match syncs.last() {
                Some(last)
                    if sync.ticks <= last.ticks || sync.monotonic_ns <= last.monotonic_ns =>
                {
                    // The same moment twice is no oddity, but adds no line either.
                    odd += usize::from(sync != *last);
                }
                _ => syncs.push(sync),
            }
        }
        (Timeline { syncs: syncs.into(), ticks_per_s: ticks_per_s.max(1), at: 0 }, odd)
    }

    /// CLOCK_MONOTONIC at `ticks`, ns. Never decreases with growing ticks.
    pub(crate) fn monotonic_ns(&mut self, ticks: u64) -> u64 {
        if self.syncs.len() < 2 {
            let from = self.syncs.first().copied().unwrap_or_default();
            return along(from, ticks, 1_000_000_000, self.ticks_per_s);
        }
        let lines = self.syncs.len() - 1;
        if ticks < self.syncs[self.at].ticks {
            self.at = self.syncs.partition_point(|sync| sync.ticks <= ticks).saturating_sub(1);
        }
        while self.at + 1 < lines && ticks >= self.syncs[self.at + 1].ticks {
            self.at += 1;
        }
        let (from, to) = (self.syncs[self.at], self.syncs[self.at + 1]);
        along(from, ticks, to.monotonic_ns - from.monotonic_ns, to.ticks - from.ticks)
    }

    /// `ticks` as a length of time, ns, at the rate of the line used last.
    pub(crate) fn length_ns(&self, ticks: u64) -> u64 {
        let (ns, per) = match self.syncs.get(self.at..self.at + 2) {
            Some([from, to]) => (to.monotonic_ns - from.monotonic_ns, to.ticks - from.ticks),
            _ => (1_000_000_000, self.ticks_per_s),
        };
        saturated(u128::from(ticks) * u128::from(ns) / u128::from(per))
    }
}

/// The line through `from` that rises `ns` per `per` ticks, at `ticks`.
fn along(from: SyncPoint, ticks: u64, ns: u64, per: u64) -> u64 {
    let scaled = |ticks: u64| saturated(u128::from(ticks) * u128::from(ns) / u128::from(per));
    match ticks.checked_sub(from.ticks) {
        Some(after) => from.monotonic_ns.saturating_add(scaled(after)),
        None => from.monotonic_ns.saturating_sub(scaled(from.ticks - ticks)),
    }
}

fn saturated(ns: u128) -> u64 {
    u64::try_from(ns).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sync(ticks: u64, monotonic_ns: u64) -> SyncPoint {
        SyncPoint { ticks, monotonic_ns, realtime_ns: 0 }
    }

    #[test]
    fn the_counter_goes_forward_and_syncs_with_the_clocks() {
        let ticks = Ticks::new();
        let readings: Vec<u64> = (0..1000).map(|_| ticks.now()).collect();
        assert!(readings.is_sorted());
        let (first, last) = (ticks.sync(), ticks.sync());
        assert!(first.ticks <= last.ticks && first.monotonic_ns <= last.monotonic_ns);
        assert!(ticks.per_second() > 1_000_000, "slower than any counter there is");
    }

    #[test]
    fn times_lie_on_the_line_between_syncs_and_beyond_the_last() {
        let (mut line, odd) = Timeline::new(vec![sync(100, 1000), sync(200, 2000)], 1);
        assert_eq!(odd, 0);
        let at = |line: &mut Timeline, ticks| line.monotonic_ns(ticks);
        assert_eq!(
            [50, 100, 150, 200, 300].map(|t| at(&mut line, t)),
            [500, 1000, 1500, 2000, 3000]
        );
        assert_eq!(line.length_ns(7), 70);
    }

    #[test]
    fn one_sync_is_continued_at_the_stated_rate() {
        let (mut line, _) = Timeline::new(vec![sync(0, 5)], 500_000_000);
        assert_eq!((line.monotonic_ns(10), line.length_ns(10)), (25, 20));
    }

    #[test]
    fn a_sync_that_goes_backwards_is_left_out_and_counted() {
        let (mut line, odd) = Timeline::new(vec![sync(0, 10), sync(5, 3), sync(10, 20)], 1);
        assert_eq!((odd, line.monotonic_ns(5)), (1, 15));
    }

    proptest! {
        #[test]
        fn time_never_decreases(
            steps in prop::collection::vec((1u64..1 << 40, 1u64..1 << 40), 0..6),
            mut at in prop::collection::vec(any::<u64>(), 2..40),
        ) {
            let mut now = SyncPoint::default();
            let syncs = steps.iter().map(|(ticks, ns)| {
                now.ticks += ticks;
                now.monotonic_ns += ns;
                now
            });
            let (mut line, odd) = Timeline::new(syncs.collect(), 2_600_000_000);
            prop_assert_eq!(odd, 0);
            at.sort_unstable();
            let times: Vec<u64> = at.iter().map(|&ticks| line.monotonic_ns(ticks)).collect();
            prop_assert!(times.is_sorted());
        }
    }
}
