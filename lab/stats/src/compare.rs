//! One metric of one arm against the base arm, block by block.
//!
//! Most metrics are compared by ratio, on the log scale, where "twice" and "half" are equally far
//! from "equal" and swapping the arms only flips the sign. A metric that may honestly be zero
//! (lost frames) has no logarithm and is compared by difference instead.
//!
//! Must always hold: no value is dropped in silence. A block whose pair cannot be compared is kept
//! by number with its reason, and a comparison with such a block gives no verdict: leaving out the
//! blocks in which an arm delivered nothing would flatter exactly that arm.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::bootstrap::{Bootstrap, Interval};
use crate::limits::{BLOCKS_MAX, VALUE_MAX};
use crate::rank::signed_rank_p;
use crate::summary::median_of_sorted;

/// Which way a metric is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// More is better: records per second.
    HigherIsBetter,
    /// Less is better: nanoseconds, losses.
    LowerIsBetter,
}

/// How two values of a block are set against each other.
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
}

impl Rule {
    /// A rate: ratio, higher is better, 2 % threshold, 2 % half-width.
    pub const RATE: Self = Self {
        scale: Scale::Ratio,
        direction: Direction::HigherIsBetter,
        threshold_min: 0.02,
        half_width_target: 0.02,
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
        }
    }
}

/// The effect of one block: arm / base, or arm - base.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// Block number, from 0.
    pub block: usize,
    /// Ratio or difference.
    pub value: f64,
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

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Base => "base arm",
            Self::Arm => "arm",
        })
    }
}

/// Why a block has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Error, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Unusable {
    /// The trial gave no value (it was invalid, or the metric was not measured).
    #[error("block {block}: no value from the {side}; run the block again")]
    Missing {
        /// Block number, from 0.
        block: usize,
        /// Whose value.
        side: Side,
    },
    /// The value is NaN, infinite, or beyond [`VALUE_MAX`]: a fault of the meter.
    #[error(
        "block {block}: the value of the {side} is not a number up to {VALUE_MAX:e}; look at the meter"
    )]
    OutOfRange {
        /// Block number, from 0.
        block: usize,
        /// Whose value.
        side: Side,
    },
    /// A ratio needs values above zero (and above 1 / [`VALUE_MAX`]).
    #[error(
        "block {block}: the {side} gave {value}, which has no ratio; \
         find out why, or compare this metric by difference"
    )]
    NotPositive {
        /// Block number, from 0.
        block: usize,
        /// Whose value.
        side: Side,
        /// The value, zero or less.
        value: f64,
    },
}

/// Why nothing was compared.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CompareError {
    /// The arms ran different numbers of blocks.
    #[error("the base has {base} blocks, the arm {arm}; pair them, with None for a missing value")]
    Unpaired {
        /// Blocks of the base arm.
        base: usize,
        /// Blocks of the arm.
        arm: usize,
    },
    /// More than [`BLOCKS_MAX`].
    #[error("{0} blocks; at most {BLOCKS_MAX} are compared")]
    Blocks(usize),
}

/// One metric of one arm against the base, over all blocks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// How it was compared.
    pub rule: Rule,
    /// Per usable block, in block order: the dots of the report.
    pub effects: Vec<Effect>,
    /// Blocks without an effect, each with its reason (the base's first, if both lack a value).
    pub unusable: Vec<Unusable>,
    /// Median effect of the usable blocks: a ratio or a difference.
    pub median: Option<f64>,
    /// Interval of that median; absent below 3 usable blocks.
    pub interval: Option<Interval>,
    /// Wilcoxon signed-rank, two-sided, not corrected for the family (see [`crate::holm`]).
    pub p: Option<f64>,
    /// Resamples and seed behind the interval.
    pub bootstrap: Bootstrap,
}

impl Comparison {
    /// Compares the values of one metric, one per block and arm; `None` where a trial gave none.
    pub fn new(
        base: &[Option<f64>],
        arm: &[Option<f64>],
        rule: Rule,
        bootstrap: Bootstrap,
    ) -> Result<Self, CompareError> {
        if base.len() != arm.len() {
            return Err(CompareError::Unpaired { base: base.len(), arm: arm.len() });
        }
        if base.len() > BLOCKS_MAX {
            return Err(CompareError::Blocks(base.len()));
        }
        let mut effects = Vec::with_capacity(base.len());
        let mut unusable = Vec::new();
        // Work on the additive scale: log-ratios, or differences as they are.
        let mut additive = Vec::with_capacity(base.len());
        for (block, (&base, &arm)) in base.iter().zip(arm).enumerate() {
            let pair = usable(rule.scale, block, Side::Base, base)
                .and_then(|base| Ok((base, usable(rule.scale, block, Side::Arm, arm)?)));
            match pair {
                Ok((base, arm)) => {
                    let (value, added) = match rule.scale {
                        Scale::Ratio => (arm / base, arm.ln() - base.ln()),
                        Scale::Difference => (arm - base, arm - base),
                    };
                    effects.push(Effect { block, value });
                    additive.push(added);
                }
                Err(reason) => unusable.push(reason),
            }
        }
        let p = (!additive.is_empty()).then(|| signed_rank_p(&additive));
        additive.sort_unstable_by(f64::total_cmp);
        let natural = |added: f64| match rule.scale {
            Scale::Ratio => added.exp(),
            Scale::Difference => added,
        };
        let median = (!additive.is_empty()).then(|| natural(median_of_sorted(&additive)));
        let interval = bootstrap.median_interval(&additive).map(|interval| Interval {
            lower: natural(interval.lower),
            upper: natural(interval.upper),
            ..interval
        });
        Ok(Self { rule, effects, unusable, median, interval, p, bootstrap })
    }

    /// Half the width of the interval: relative for a ratio (0.02 = 2 %, half on the log scale),
    /// in the metric's unit for a difference. For an A/A pair this is the noise floor.
    pub fn half_width(&self) -> Option<f64> {
        let interval = self.interval?;
        Some(match self.rule.scale {
            Scale::Ratio => (interval.upper / interval.lower).sqrt() - 1.0,
            Scale::Difference => 0.5 * (interval.upper - interval.lower),
        })
    }

    /// Whether the interval is as narrow as the rule asks.
    pub fn is_precise(&self) -> bool {
        self.half_width().is_some_and(|width| width <= self.rule.half_width_target)
    }
}

/// The value, if this scale can use it.
fn usable(scale: Scale, block: usize, side: Side, value: Option<f64>) -> Result<f64, Unusable> {
    let value = value.ok_or(Unusable::Missing { block, side })?;
    if value.is_nan() || value.abs() > VALUE_MAX {
        return Err(Unusable::OutOfRange { block, side });
    }
    if scale == Scale::Ratio && value < 1.0 / VALUE_MAX {
        return Err(Unusable::NotPositive { block, side, value });
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn compare(base: &[Option<f64>], arm: &[Option<f64>], rule: Rule) -> Comparison {
        let bootstrap = Bootstrap::new(500, 11).expect("inside the limits");
        Comparison::new(base, arm, rule, bootstrap).expect("paired")
    }

    #[test]
    fn a_constant_factor_is_found_exactly() {
        let base = [80.0, 100.0, 125.0, 90.0].map(Some);
        let arm = [88.0, 110.0, 137.5, 99.0].map(Some);
        let found = compare(&base, &arm, Rule::RATE);
        let interval = found.interval.expect("four blocks");
        for value in [found.median.expect("four blocks"), interval.lower, interval.upper] {
            assert!((value - 1.1).abs() < 1e-12, "{found:?}");
        }
        assert!(found.half_width().expect("four blocks") < 1e-12);
    }

    #[test]
    fn zero_missing_and_broken_values_get_a_name_and_never_a_nan() {
        let base = [Some(1.0), Some(0.0), None, Some(f64::NAN), Some(2.0)];
        let arm = [Some(-3.0), Some(0.0), None, Some(1.0), Some(f64::INFINITY)];
        let found = compare(&base, &arm, Rule::RATE);
        assert_eq!(
            found.unusable,
            [
                Unusable::NotPositive { block: 0, side: Side::Arm, value: -3.0 },
                Unusable::NotPositive { block: 1, side: Side::Base, value: 0.0 },
                Unusable::Missing { block: 2, side: Side::Base },
                Unusable::OutOfRange { block: 3, side: Side::Base },
                Unusable::OutOfRange { block: 4, side: Side::Arm },
            ]
        );
        assert_eq!((found.median, found.interval, found.p), (None, None, None));
    }

    #[test]
    fn zero_is_an_ordinary_value_for_a_difference() {
        let rule = Rule::difference(Direction::LowerIsBetter, 5.0);
        let base = [Some(0.0); 9];
        let arm = [0.0, 0.0, 3.0, 0.0, 1.0, 0.0, 0.0, 2.0, 0.0].map(Some);
        let found = compare(&base, &arm, rule);
        assert!(found.unusable.is_empty());
        assert_eq!(found.median, Some(0.0));
        let interval = found.interval.expect("nine blocks");
        assert!(interval.lower >= 0.0 && interval.upper <= 3.0, "{interval:?}");
    }

    #[test]
    fn two_blocks_have_a_median_but_no_interval() {
        let found = compare(&[Some(1.0); 2], &[Some(2.0); 2], Rule::RATE);
        assert_eq!((found.median, found.interval), (Some(2.0), None));
        assert!(!found.is_precise());
    }

    #[test]
    fn arms_with_different_block_counts_are_refused() {
        let bootstrap = Bootstrap::standard(1);
        let refused = Comparison::new(&[Some(1.0)], &[], Rule::RATE, bootstrap);
        assert_eq!(refused, Err(CompareError::Unpaired { base: 1, arm: 0 }));
    }

    #[test]
    fn a_comparison_survives_json() {
        let found = compare(
            &[Some(1.0), None, Some(3.0), Some(0.0), Some(1.5)],
            &[Some(1.1); 5],
            Rule::TAIL_LATENCY,
        );
        let text = serde_json::to_string(&found).expect("plain data");
        assert_eq!(serde_json::from_str::<Comparison>(&text).expect("our own text"), found);
    }

    proptest! {
        #[test]
        fn any_input_gives_finite_results(
            pairs in prop::collection::vec((any::<Option<f64>>(), any::<Option<f64>>()), 0..14),
            by_ratio: bool,
        ) {
            let (base, arm): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
            let rule = if by_ratio {
                Rule::RATE
            } else {
                Rule::difference(Direction::HigherIsBetter, 1.0)
            };
            let found = compare(&base, &arm, rule);
            prop_assert_eq!(found.effects.len() + found.unusable.len(), base.len());
            let interval = found.interval.iter().flat_map(|i| [i.lower, i.upper, i.confidence]);
            let numbers = found.effects.iter().map(|effect| effect.value).chain(interval);
            let scalars = [found.median, found.p, found.half_width()];
            for number in numbers.chain(scalars.into_iter().flatten()) {
                prop_assert!(number.is_finite());
            }
        }
    }
}
