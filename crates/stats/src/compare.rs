//! How two values of a metric are set against each other; fixed before the race, never after.
//!
//! Most metrics are compared by ratio, on the log scale, where "twice" and "half" are equally far
//! from "equal" and swapping the arms only flips the sign. A metric that may honestly be zero
//! (lost frames) has no logarithm and is compared by difference instead.

use serde::{Deserialize, Serialize};

/// Which way a metric is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// More is better: records per second.
    HigherIsBetter,
    /// Less is better: nanoseconds, losses.
    LowerIsBetter,
}

/// How two values are set against each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// arm / base; both must be above zero. Thresholds and half-widths are relative (0.02 = 2 %).
    Ratio,
    /// arm - base, in the metric's unit; zero is a value like any other. Thresholds and
    /// half-widths are in that unit.
    Difference,
}

/// How a metric is compared and judged; fixed before the race, never after.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// Ratio or difference.
    pub scale: Scale,
    /// Which way is good.
    pub direction: Direction,
    /// Effects within this of none do not matter. The noise floor can raise it, never lower it.
    pub threshold_min: f64,
    /// The half-width the stop rule waits for, and without which nothing is called the same. An
    /// interval as wide as the threshold hardly ever lies inside it: to find equal arms the same
    /// and not just inconclusive, ask for half the threshold.
    pub half_width_target: f64,
    /// How far a value may be from what it stands for, all values in one direction even: that of a search is the last
    /// rate that passed, and the truth is below the first that did not. Relative for a ratio (0.15 = 15 %), else in the
    /// metric's unit. Intervals are that much wider at either end.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub resolution: f64,
}

fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

impl Rule {
    /// A rate: ratio, higher is better, 2 % threshold, 2 % half-width.
    pub const RATE: Self = Self {
        scale: Scale::Ratio,
        direction: Direction::HigherIsBetter,
        threshold_min: 0.02,
        half_width_target: 0.02,
        resolution: 0.0,
    };
    /// CPU or memory cost: ratio, lower is better, 2 % threshold, 2 % half-width.
    pub const COST: Self = Self { direction: Direction::LowerIsBetter, ..Self::RATE };
    /// p99 latency: ratio, lower is better, 2 % threshold, 5 % half-width.
    pub const TAIL_LATENCY: Self = Self { half_width_target: 0.05, ..Self::COST };

    /// A metric that may be zero: difference, with the smallest difference that matters as both
    /// threshold and half-width target, in the metric's unit.
    pub const fn difference(direction: Direction, threshold_min: f64) -> Self {
        Self {
            scale: Scale::Difference,
            direction,
            threshold_min,
            half_width_target: threshold_min,
            resolution: 0.0,
        }
    }
}

/// Which of the two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The arm compared against.
    Base,
    /// The arm under judgement.
    Arm,
}
