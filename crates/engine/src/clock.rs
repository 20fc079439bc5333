//! The real clocks. `std::time::Instant` hides its epoch; these do not, because stamps are compared
//! with those that eBPF programs and capture files carry.

use laneway_core::{Clock, ClockDomain};
use laneway_linux::{monotonic_ns, unix_offset_ns};

/// CLOCK_MONOTONIC: the values equal those of `bpf_ktime_get_ns`.
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    #[inline]
    fn now_ns(&self) -> u64 {
        monotonic_ns()
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{SystemTime, UNIX_EPOCH};

    #[test]
    fn monotonic_time_plus_the_offset_lies_between_two_readings_of_unix_time() {
        // The machine's clock may be slewed meanwhile: a millisecond covers any legal slew.
        let slack_ns = 1_000_000;
        let unix_ns = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
        let (before, now, after) = (unix_ns(), UnixClock::new().now_ns(), unix_ns());
        assert!(before <= now + slack_ns && now <= after + slack_ns, "{before} {now} {after}");
    }
}
