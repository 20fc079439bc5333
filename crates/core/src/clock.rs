//! Time as a value: apps and lanes are told the time, they never read it.

use serde::{Deserialize, Serialize};

/// A source of nanoseconds. The engine owns the only real one.
pub trait Clock {
    /// Nanoseconds since the epoch of [`Clock::domain`]; never decreases.
    fn now_ns(&self) -> u64;
    /// Which epoch the nanoseconds count from.
    fn domain(&self) -> ClockDomain;
}

/// What a time stamp counts from. Stamps of different domains are never subtracted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClockDomain {
    /// CLOCK_MONOTONIC, which `bpf_ktime_get_ns` reads as well.
    Monotonic,
    /// Nanoseconds since 1970 UTC, as capture files carry them.
    Unix,
    /// The simulated clock of a `sim` lane.
    Virtual,
}
