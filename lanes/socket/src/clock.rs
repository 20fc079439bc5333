//! Kernel stamps, which count from 1970, in the lane's clock, which is CLOCK_MONOTONIC.
//!
//! SO_TIMESTAMPNS stamps by CLOCK_REALTIME. The distance between the two clocks is measured at
//! open and again whenever a stamp is more than a second away from the last measurement, so that
//! slewing and steps of the wall clock do not add up. A datagram that was queued across a step of
//! the wall clock is off by the step.

use crate::sys;

/// How far a stamp may be from the last measurement.
const MEASURED_AGE_NS_MAX: u64 = 1_000_000_000;
/// Attempts per measurement; the tightest counts.
const ATTEMPTS: usize = 3;

/// CLOCK_MONOTONIC in nanoseconds.
fn monotonic_ns() -> u64 {
    sys::clock_ns(libc::CLOCK_MONOTONIC)
}

/// The distance between the wall clock and the lane's clock.
pub(crate) struct WallClock {
    ahead_ns: i64,
    measured_at_ns: u64,
}

impl WallClock {
    /// Measures now.
    pub(crate) fn measure() -> WallClock {
        let attempt = || {
            let before = monotonic_ns();
            let real = sys::clock_ns(libc::CLOCK_REALTIME);
            let after = monotonic_ns();
            let ahead_ns = real.wrapping_sub(before + (after - before) / 2) as i64;
            (after - before, WallClock { ahead_ns, measured_at_ns: real })
        };
        let best = (0..ATTEMPTS).map(|_| attempt()).min_by_key(|(width_ns, _)| *width_ns);
        best.expect("at least one attempt").1
    }

    /// The monotonic time of a wall-clock stamp.
    pub(crate) fn monotonic(&mut self, real_ns: u64) -> u64 {
        if real_ns.abs_diff(self.measured_at_ns) > MEASURED_AGE_NS_MAX {
            *self = WallClock::measure();
        }
        real_ns.wrapping_sub(self.ahead_ns as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_clock_stamp_lies_between_monotonic_readings_around_it() {
        /// A step of the wall clock inside the test would need as much luck as a lottery.
        const MARGIN_NS: u64 = 1_000_000;
        let mut clock = WallClock::measure();
        let before = monotonic_ns();
        let stamp = clock.monotonic(sys::clock_ns(libc::CLOCK_REALTIME));
        let after = monotonic_ns();
        assert!(before <= stamp + MARGIN_NS && stamp <= after + MARGIN_NS);
    }

    #[test]
    fn a_stale_measurement_is_replaced() {
        let mut clock = WallClock { ahead_ns: 0, measured_at_ns: 0 };
        clock.monotonic(sys::clock_ns(libc::CLOCK_REALTIME));
        assert!(clock.measured_at_ns > 0 && clock.ahead_ns != 0);
    }
}
