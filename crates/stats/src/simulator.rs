//! A machine whose truth is known, to prove the judge before it judges real ones.
//!
//! [`PairMachine`] offers short segments in pairs, over generations of fresh processes, as a race does. It models
//! the numbers of a race, not packets. [`RunMachine`] makes whole runs of two sides, each with many quantities.
//! Everything is a function of its seed.

mod paired;
mod runs;

pub use paired::{NoiseBurst, PairMachine, Plan};
pub use runs::{RunMachine, RunOrder};

use serde::{Deserialize, Serialize};

/// A disturbance that hits some trials and multiplies what they measure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Episode {
    /// Probability that a trial is hit, independent of the arm.
    pub share: f64,
    /// What the measured value is multiplied by; above 0.
    pub factor: f64,
}

impl Episode {
    /// Never happens.
    pub const NEVER: Self = Self { share: 0.0, factor: 1.0 };
}
