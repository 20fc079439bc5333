//! The real clocks. `std::time::Instant` hides its epoch; these do not, because stamps are compared
//! with those that eBPF programs and capture files carry.

use laneway_core::{Clock, ClockDomain};
use rustix::time::{ClockId, clock_gettime};

/// Pairs that [`unix_offset_ns`] takes; one undisturbed pair is enough.
const OFFSET_PAIRS: usize = 32;

/// CLOCK_MONOTONIC: the values equal those of `bpf_ktime_get_ns`.
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    #[inline]
    fn now_ns(&self) -> u64 {
        // Nanoseconds since boot fit an u64 for five centuries.
        read_ns(ClockId::Monotonic) as u64
    }

    fn domain(&self) -> ClockDomain {
        ClockDomain::Monotonic
    }
}

/// Time since 1970 UTC that never decreases: CLOCK_MONOTONIC plus the offset at creation. A clock
/// step later on is not followed.
#[derive(Clone, Copy, Debug)]
pub struct UnixClock {
    offset_ns: i64,
}

impl UnixClock {
    /// Measures the offset.
    pub fn new() -> UnixClock {
        UnixClock { offset_ns: unix_offset_ns() }
    }
}

impl Default for UnixClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for UnixClock {
    #[inline]
    fn now_ns(&self) -> u64 {
        MonotonicClock.now_ns().saturating_add_signed(self.offset_ns)
    }

    fn domain(&self) -> ClockDomain {
        ClockDomain::Unix
    }
}

/// CLOCK_REALTIME minus CLOCK_MONOTONIC, in nanoseconds: what to add to a monotonic stamp to get
/// Unix time. Of several readings, each bracketed by two of the other clock, the tightest counts,
/// so that a preemption in between does not.
pub fn unix_offset_ns() -> i64 {
    let pairs = (0..OFFSET_PAIRS).map(|_| {
        let before_ns = read_ns(ClockId::Monotonic);
        let unix_ns = read_ns(ClockId::Realtime);
        let after_ns = read_ns(ClockId::Monotonic);
        let bracket_ns = after_ns - before_ns;
        (bracket_ns, unix_ns - before_ns - bracket_ns / 2)
    });
    pairs.min().map_or(0, |(_, offset_ns)| offset_ns)
}

#[inline]
fn read_ns(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{SystemTime, UNIX_EPOCH};

    #[test]
    fn the_monotonic_clock_never_decreases() {
        let readings: Vec<u64> = (0..1000).map(|_| MonotonicClock.now_ns()).collect();
        assert!(readings.is_sorted());
    }

    #[test]
    fn monotonic_time_plus_the_offset_lies_between_two_readings_of_unix_time() {
        // The machine's clock may be slewed meanwhile: a millisecond covers any legal slew.
        let slack_ns = 1_000_000;
        let unix_ns = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
        let (before, now, after) = (unix_ns(), UnixClock::new().now_ns(), unix_ns());
        assert!(before <= now + slack_ns && now <= after + slack_ns, "{before} {now} {after}");
    }
}
