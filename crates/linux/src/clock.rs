//! The kernel's clocks as nanoseconds, and the distance between the wall clock and the one that never steps.

use rustix::time::{ClockId, clock_gettime};

/// How far a stamp may be from the last measurement of the distance.
const MEASURED_AGE_NS_MAX: u64 = 1_000_000_000;
/// Readings per measurement; the tightest counts, so that a preemption in between does not.
const READINGS: usize = 32;

/// CLOCK_MONOTONIC, ns since boot: what `bpf_ktime_get_ns` gives.
#[inline]
pub fn monotonic_ns() -> u64 {
    // Nanoseconds since boot fit an u64 for five centuries.
    read_ns(ClockId::Monotonic) as u64
}

/// CLOCK_REALTIME, ns since 1970 UTC.
#[inline]
pub fn unix_ns() -> u64 {
    read_ns(ClockId::Realtime) as u64
}

/// CLOCK_REALTIME minus CLOCK_MONOTONIC, ns: what to add to a monotonic stamp to get Unix time.
pub fn unix_offset_ns() -> i64 {
    let readings = (0..READINGS).map(|_| {
        let before_ns = read_ns(ClockId::Monotonic);
        let unix_ns = read_ns(ClockId::Realtime);
        let bracket_ns = read_ns(ClockId::Monotonic) - before_ns;
        (bracket_ns, unix_ns - before_ns - bracket_ns / 2)
    });
    readings.min().map_or(0, |(_, offset_ns)| offset_ns)
}

#[inline]
fn read_ns(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Turns the kernel's receive stamps (AF_PACKET and SO_TIMESTAMPNS stamp by CLOCK_REALTIME) into monotonic time.
///
/// The distance is measured at creation and again whenever a stamp is more than a second away from the last
/// measurement, so that slewing and steps of the wall clock do not add up. A frame that was queued across a
/// step of the wall clock is off by the step.
#[derive(Debug)]
pub struct WallClock {
    ahead_ns: i64,
    measured_at_ns: u64,
}

impl WallClock {
    /// Measures now.
    pub fn measure() -> WallClock {
        WallClock { ahead_ns: unix_offset_ns(), measured_at_ns: unix_ns() }
    }

    /// The monotonic time of a wall-clock stamp.
    pub fn monotonic(&mut self, real_ns: u64) -> u64 {
        if real_ns.abs_diff(self.measured_at_ns) > MEASURED_AGE_NS_MAX {
            *self = WallClock::measure();
        }
        real_ns.wrapping_sub(self.ahead_ns as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A step of the wall clock inside a test would need as much luck as a lottery; slewing does not reach it.
    const MARGIN_NS: u64 = 1_000_000;

    #[test]
    fn the_monotonic_clock_never_decreases() {
        let readings: Vec<u64> = (0..1000).map(|_| monotonic_ns()).collect();
        assert!(readings.is_sorted());
    }

    #[test]
    fn a_wall_clock_stamp_lies_between_monotonic_readings_around_it() {
        let mut clock = WallClock::measure();
        let before = monotonic_ns();
        let stamp = clock.monotonic(unix_ns());
        let after = monotonic_ns();
        assert!(before <= stamp + MARGIN_NS && stamp <= after + MARGIN_NS);
    }

    #[test]
    fn monotonic_time_plus_the_offset_lies_between_two_readings_of_unix_time() {
        let offset_ns = unix_offset_ns();
        let (before, now) = (unix_ns(), monotonic_ns().saturating_add_signed(offset_ns));
        let after = unix_ns();
        assert!(before <= now + MARGIN_NS && now <= after + MARGIN_NS, "{before} {now} {after}");
    }

    #[test]
    fn a_stale_measurement_is_replaced() {
        let mut clock = WallClock { ahead_ns: 0, measured_at_ns: 0 };
        clock.monotonic(unix_ns());
        assert!(clock.measured_at_ns > 0 && clock.ahead_ns != 0);
    }
}
