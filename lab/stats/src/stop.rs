//! When a race has run enough blocks.
//!
//! It goes on until every metric's interval is as narrow as its rule asks, and stops at a maximum
//! in any case. The rule looks at widths only, never at the effect or its sign: stopping when the
//! answer pleases would turn noise into findings. It stops only after whole ABBA pairs, because
//! half a pair leaves steady drift uncancelled.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::bootstrap::BLOCKS_FOR_INTERVAL;
use crate::compare::Comparison;
use crate::limits::BLOCKS_MAX;

/// Fewest and most blocks of a race; both even.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopRule {
    blocks_min: usize,
    blocks_max: usize,
}

/// The block counts make no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "a race of {min} to {max} blocks cannot be run: give even numbers with \
     {BLOCKS_FOR_INTERVAL} < min <= max <= {BLOCKS_MAX}"
)]
pub struct StopError {
    min: usize,
    max: usize,
}

/// What to do after a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Run another block.
    Continue,
    /// Stop: every metric is as precise as asked.
    Settled,
    /// Stop: the most blocks are run and some interval is still too wide. Judge what there is;
    /// what did not settle comes out inconclusive.
    Exhausted,
}

impl StopRule {
    /// The protocol's 10 to 40 blocks.
    pub const FULL: Self = Self { blocks_min: 10, blocks_max: 40 };

    /// A race of at least `min` and at most `max` blocks, both even.
    pub fn new(min: usize, max: usize) -> Result<Self, StopError> {
        let possible = BLOCKS_FOR_INTERVAL < min && min <= max && max <= BLOCKS_MAX;
        if !possible || min % 2 == 1 || max % 2 == 1 {
            return Err(StopError { min, max });
        }
        Ok(Self { blocks_min: min, blocks_max: max })
    }

    /// Fewest blocks.
    pub fn blocks_min(&self) -> usize {
        self.blocks_min
    }

    /// Most blocks: how long an order to prepare.
    pub fn blocks_max(&self) -> usize {
        self.blocks_max
    }

    /// What to do after `blocks` blocks, given every comparison that counts (the A/A pairs too).
    /// A comparison with an unusable block does not hold the race up: no further block mends it.
    pub fn step<'a>(
        &self,
        blocks: usize,
        comparisons: impl IntoIterator<Item = &'a Comparison>,
    ) -> Step {
        let settled =
            comparisons.into_iter().all(|found| found.is_precise() || !found.unusable.is_empty());
        let whole_pairs = blocks.is_multiple_of(2);
        if blocks >= self.blocks_min && whole_pairs && settled {
            Step::Settled
        } else if blocks >= self.blocks_max {
            Step::Exhausted
        } else {
            Step::Continue
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::Bootstrap;
    use crate::compare::Rule;

    fn spread(share: f64) -> Comparison {
        let arm: Vec<_> = (0..12).map(|i| Some(1.0 + share * f64::from(i % 5 - 2))).collect();
        Comparison::new(&[Some(1.0); 12], &arm, Rule::RATE, Bootstrap::standard(1)).expect("paired")
    }

    #[test]
    fn goes_on_until_every_interval_is_narrow() {
        let (narrow, wide) = (spread(0.001), spread(0.2));
        assert_eq!(StopRule::FULL.step(12, [&narrow, &wide]), Step::Continue);
        assert_eq!(StopRule::FULL.step(12, [&narrow, &narrow]), Step::Settled);
        assert_eq!(StopRule::FULL.step(40, [&narrow, &wide]), Step::Exhausted);
    }

    #[test]
    fn runs_the_fewest_blocks_and_whole_pairs_whatever_the_width() {
        let narrow = spread(0.001);
        assert_eq!(StopRule::FULL.step(8, [&narrow]), Step::Continue);
        assert_eq!(StopRule::FULL.step(11, [&narrow]), Step::Continue);
    }

    #[test]
    fn a_metric_that_cannot_be_mended_does_not_hold_the_race_up() {
        let mut wide = spread(0.2);
        wide.unusable.push(crate::Unusable::Missing { block: 3, side: crate::Side::Arm });
        assert_eq!(StopRule::FULL.step(12, [&wide]), Step::Settled);
    }

    #[test]
    fn odd_or_reversed_counts_are_refused() {
        for (min, max) in [(5, 8), (4, 7), (8, 4), (2, 8), (4, 20_000)] {
            assert_eq!(StopRule::new(min, max), Err(StopError { min, max }));
        }
        assert_eq!(StopRule::new(10, 40), Ok(StopRule::FULL));
    }
}
