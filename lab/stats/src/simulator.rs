//! A machine whose truth is known, to prove the judge before it judges real ones.
//!
//! It produces what a race would measure if its arms truly differed by given factors, disturbed by
//! the four things that make real machines lie: noise that remembers (AR(1)), steady drift, two
//! operating modes, and rare stalls. Disturbances follow the order in which trials run, so the
//! order of the arms matters here as it does on a real machine.
//!
//! It models the numbers of a race, not packets; everything is a function of its seed.
//!
//! [`Machine`] runs blocks of whole trials; [`PairMachine`] offers short segments in pairs, over
//! generations of fresh processes.

mod paired;

pub use paired::{Burst, PairMachine, Plan};

use serde::{Deserialize, Serialize};

use crate::order::BlockOrder;
use crate::random::Random;

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

/// How a simulated machine disturbs what is measured on it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Standard deviation of the noise, on the log scale (0.015 is about 1.5 %).
    pub noise: f64,
    /// Correlation of the noise of successive trials, 0 to below 1.
    pub memory: f64,
    /// Change from trial to trial, on the log scale (-0.001 slows by 0.1 % each).
    pub drift: f64,
    /// A second operating mode.
    pub mode: Episode,
    /// Rare stalls.
    pub stall: Episode,
}

impl Machine {
    /// Independent noise of 1.5 % and nothing else.
    pub const QUIET: Self =
        Self { noise: 0.015, memory: 0.0, drift: 0.0, mode: Episode::NEVER, stall: Episode::NEVER };

    /// Runs a race: the value each arm measures in each block (outer index arm, inner block).
    /// Arm `i` truly measures `100 * truth[i]`; `order` must be of `truth.len()` arms.
    pub fn race(&self, order: &BlockOrder, truth: &[f64], seed: u64) -> Vec<Vec<Option<f64>>> {
        let mut random = Random::seeded(seed);
        let mut values = vec![vec![None; order.blocks().len()]; truth.len()];
        // Start in the stationary state and keep its spread whatever the memory.
        let mut noise = random.normal();
        let fresh = (1.0 - self.memory * self.memory).sqrt();
        let mut drift = 0.0;
        for (block, arms) in order.blocks().enumerate() {
            for &arm in arms {
                let mut value = 100.0 * truth[arm] * (self.noise * noise + drift).exp();
                for episode in [self.mode, self.stall] {
                    if random.unit() < episode.share {
                        value *= episode.factor;
                    }
                }
                values[arm][block] = Some(value);
                noise = self.memory * noise + fresh * random.normal();
                drift += self.drift;
            }
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_undisturbed_machine_measures_the_truth() {
        let still = Machine { noise: 0.0, ..Machine::QUIET };
        let order = BlockOrder::new(3, 4, 9).expect("inside the limits");
        let values = still.race(&order, &[1.0, 0.9, 1.1], 5);
        for (arm, truth) in values.iter().zip([100.0, 90.0, 110.0]) {
            assert!(arm.iter().flatten().all(|value| (value - truth).abs() < 1e-9), "{arm:?}");
        }
    }

    #[test]
    fn memory_correlates_successive_trials_and_keeps_the_spread() {
        let machine = Machine { noise: 0.1, memory: 0.8, ..Machine::QUIET };
        let order = BlockOrder::new(1, 10_000, 1).expect("inside the limits");
        let noise: Vec<f64> = machine.race(&order, &[1.0], 2)[0]
            .iter()
            .flatten()
            .map(|value| (value / 100.0).ln())
            .collect();
        let variance = noise.iter().map(|x| x * x).sum::<f64>() / noise.len() as f64;
        let shifted = noise.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>();
        let correlation = shifted / (variance * noise.len() as f64);
        assert!((variance.sqrt() - 0.1).abs() < 0.01, "{variance}");
        assert!((correlation - 0.8).abs() < 0.03, "{correlation}");
    }
}
