//! Better, worse, same, or inconclusive.
//!
//! A verdict comes from the interval, never from the point estimate: *better* and *worse* when the
//! whole interval lies beyond the threshold, *same* when it lies wholly inside and is as narrow as
//! the rule asks, *inconclusive* otherwise, with the doubt named. The threshold is the larger of
//! what matters (2 %) and what two runs of the same arm differ by (the A/A half-width).
//!
//! For ratios the threshold is symmetric on the log scale (1 + t and 1 / (1 + t)), so swapping the
//! arms swaps better and worse and nothing else. A wide interval does not forbid better or worse:
//! an arm that is surely at least 3 times cheaper is better, though "3 to 5 times" is imprecise.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::bootstrap::BLOCKS_FOR_INTERVAL;
use crate::compare::{Comparison, Direction, Rule, Scale, Unusable};

/// What a race says about one metric of one arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The arm is better than the base, by more than the threshold.
    Better,
    /// The arm is worse than the base, by more than the threshold.
    Worse,
    /// Any difference is smaller than the threshold.
    Same,
    /// The data does not say; see the doubt.
    Inconclusive,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Same => "same",
            Self::Inconclusive => "inconclusive",
        })
    }
}

/// Why a verdict is inconclusive.
#[derive(Debug, Clone, Copy, PartialEq, Error, Serialize, Deserialize)]
#[serde(tag = "doubt", rename_all = "snake_case")]
pub enum Doubt {
    /// Some blocks could not be compared.
    #[error("blocks that cannot be compared: {count}, the first is {first}")]
    UnusableBlocks {
        /// How many.
        count: usize,
        /// The first of them.
        first: Unusable,
    },
    /// No interval exists.
    #[error("{blocks} blocks have no interval; run at least {BLOCKS_FOR_INTERVAL}")]
    TooFewBlocks {
        /// Blocks compared.
        blocks: usize,
    },
    /// The A/A pair has no interval, or has unusable blocks.
    #[error("the A/A pair gives no noise floor; run it in every block of the race")]
    NoNoiseFloor,
    /// The A/A pair belongs to another metric.
    #[error("the A/A pair was compared by another rule; use the one of the same metric")]
    ForeignNoiseFloor,
    /// The interval holds the threshold: the effect may or may not matter.
    #[error("the interval reaches across the threshold of {threshold}; run more blocks")]
    AcrossThreshold {
        /// The threshold, relative or in the metric's unit.
        threshold: f64,
    },
    /// Inside the threshold, but only because noise made the threshold wide.
    #[error(
        "the half-width {half_width} misses the target {target}, too noisy to call the arms the \
         same; run more blocks or quieten the machine"
    )]
    Imprecise {
        /// Half-width reached.
        half_width: f64,
        /// Half-width asked for.
        target: f64,
    },
}

/// A verdict with what it rests on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// The threshold used: relative for a ratio, in the metric's unit for a difference.
    pub threshold: f64,
    /// The confidence its interval can claim: below 6 blocks less than 0.95, so print it beside the
    /// verdict. `None` without an interval.
    pub confidence: Option<f64>,
    /// Present exactly when the verdict is inconclusive.
    pub doubt: Option<Doubt>,
}

impl Comparison {
    /// Judges this comparison. `noise` is the A/A pair of the same metric and session; `None` is
    /// for the A/A pair itself, which cannot be its own yardstick.
    pub fn judge(&self, noise: Option<&Self>) -> Judgement {
        let threshold = self.threshold(noise);
        let (verdict, doubt) = match threshold.and_then(|threshold| self.settle(threshold)) {
            Ok(verdict) => (verdict, None),
            Err(doubt) => (Verdict::Inconclusive, Some(doubt)),
        };
        Judgement {
            verdict,
            threshold: threshold.unwrap_or(self.rule.threshold_min),
            confidence: self.interval.map(|interval| interval.confidence),
            doubt,
        }
    }

    fn threshold(&self, noise: Option<&Self>) -> Result<f64, Doubt> {
        let Some(noise) = noise else {
            return Ok(self.rule.threshold_min);
        };
        if noise.rule != self.rule {
            return Err(Doubt::ForeignNoiseFloor);
        }
        match noise.half_width() {
            Some(floor) if noise.unusable.is_empty() => Ok(self.rule.threshold_min.max(floor)),
            _ => Err(Doubt::NoNoiseFloor),
        }
    }

    fn settle(&self, threshold: f64) -> Result<Verdict, Doubt> {
        if let Some(&first) = self.unusable.first() {
            return Err(Doubt::UnusableBlocks { count: self.unusable.len(), first });
        }
        let (Some(interval), Some(half_width)) = (self.interval, self.half_width()) else {
            return Err(Doubt::TooFewBlocks { blocks: self.effects.len() });
        };
        let Rule { scale, direction, half_width_target: target, .. } = self.rule;
        let (low, high) = match scale {
            Scale::Ratio => (1.0 / (1.0 + threshold), 1.0 + threshold),
            Scale::Difference => (-threshold, threshold),
        };
        let (above, below) = match direction {
            Direction::HigherIsBetter => (Verdict::Better, Verdict::Worse),
            Direction::LowerIsBetter => (Verdict::Worse, Verdict::Better),
        };
        if interval.lower > high {
            Ok(above)
        } else if interval.upper < low {
            Ok(below)
        } else if interval.lower < low || interval.upper > high {
            Err(Doubt::AcrossThreshold { threshold })
        } else if half_width > target {
            Err(Doubt::Imprecise { half_width, target })
        } else {
            Ok(Verdict::Same)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::bootstrap::{Bootstrap, Interval, IntervalMethod};

    /// A comparison that found just this interval.
    fn found(rule: Rule, lower: f64, upper: f64) -> Comparison {
        let (confidence, method) = (0.95, IntervalMethod::Bca);
        Comparison {
            rule,
            effects: Vec::new(),
            unusable: Vec::new(),
            median: None,
            interval: Some(Interval { lower, upper, confidence, method }),
            p: None,
            bootstrap: Bootstrap::standard(1),
        }
    }

    fn check(rule: Rule, ends: (f64, f64), noise: Option<&Comparison>, expected: Verdict) {
        let judged = found(rule, ends.0, ends.1).judge(noise);
        assert_eq!(judged.verdict, expected, "{ends:?} {judged:?}");
        assert_eq!(judged.doubt.is_some(), expected == Verdict::Inconclusive);
    }

    #[test]
    fn the_whole_interval_must_lie_beyond_the_threshold() {
        check(Rule::RATE, (1.021, 1.3), None, Verdict::Better);
        check(Rule::RATE, (1.019, 1.3), None, Verdict::Inconclusive);
        check(Rule::RATE, (0.7, 0.979), None, Verdict::Worse);
        check(Rule::RATE, (0.7, 0.981), None, Verdict::Inconclusive);
        check(Rule::RATE, (0.985, 1.015), None, Verdict::Same);
        check(Rule::RATE, (0.9, 1.1), None, Verdict::Inconclusive);
    }

    #[test]
    fn direction_turns_the_verdict_round() {
        check(Rule::COST, (1.021, 1.3), None, Verdict::Worse);
        check(Rule::COST, (0.7, 0.979), None, Verdict::Better);
    }

    #[test]
    fn the_noise_floor_raises_the_threshold() {
        let noise = found(Rule::RATE, 1.0 / 1.05, 1.05);
        check(Rule::RATE, (1.03, 1.08), Some(&noise), Verdict::Inconclusive);
        check(Rule::RATE, (1.051, 1.08), Some(&noise), Verdict::Better);
    }

    #[test]
    fn noise_alone_cannot_make_two_arms_the_same() {
        let noise = found(Rule::RATE, 0.8, 1.25);
        let judged = found(Rule::RATE, 0.9, 1.1).judge(Some(&noise));
        assert!(matches!(judged.doubt, Some(Doubt::Imprecise { target: 0.02, .. })), "{judged:?}");
    }

    #[test]
    fn a_difference_is_judged_in_its_own_unit() {
        let losses = Rule::difference(Direction::LowerIsBetter, 10.0);
        check(losses, (0.0, 0.0), None, Verdict::Same);
        check(losses, (11.0, 400.0), None, Verdict::Worse);
        check(losses, (-400.0, -11.0), None, Verdict::Better);
        check(losses, (-3.0, 12.0), None, Verdict::Inconclusive);
    }

    #[test]
    fn an_unusable_block_forbids_a_verdict_and_says_why() {
        let base = [Some(100.0); 10];
        let mut arm = [Some(150.0); 10];
        arm[4] = Some(0.0);
        let bootstrap = Bootstrap::standard(1);
        let judged =
            Comparison::new(&base, &arm, Rule::RATE, bootstrap).expect("paired").judge(None);
        assert_eq!(judged.verdict, Verdict::Inconclusive);
        assert_eq!(
            judged.doubt.expect("inconclusive").to_string(),
            "blocks that cannot be compared: 1, the first is block 4: the arm gave 0, which has no \
             ratio; find out why, or compare this metric by difference"
        );
    }

    #[test]
    fn two_blocks_and_a_useless_noise_floor_are_named() {
        let bootstrap = Bootstrap::standard(1);
        let two = Comparison::new(&[Some(1.0); 2], &[Some(2.0); 2], Rule::RATE, bootstrap)
            .expect("paired");
        assert_eq!(two.judge(None).doubt, Some(Doubt::TooFewBlocks { blocks: 2 }));
        let clear = found(Rule::RATE, 2.0, 2.1);
        assert_eq!(clear.judge(Some(&two)).doubt, Some(Doubt::NoNoiseFloor));
        let foreign = found(Rule::COST, 1.0, 1.0);
        assert_eq!(clear.judge(Some(&foreign)).doubt, Some(Doubt::ForeignNoiseFloor));
    }

    proptest! {
        #[test]
        fn swapping_the_arms_swaps_better_and_worse(
            centre in -0.1f64..0.1, half in 0.0f64..0.05, higher: bool,
        ) {
            let rule = if higher { Rule::RATE } else { Rule::COST };
            let (lower, upper) = ((centre - half).exp(), (centre + half).exp());
            let there = found(rule, lower, upper).judge(None).verdict;
            let back = found(rule, 1.0 / upper, 1.0 / lower).judge(None).verdict;
            let mirrored = match there {
                Verdict::Better => Verdict::Worse,
                Verdict::Worse => Verdict::Better,
                unchanged => unchanged,
            };
            prop_assert_eq!(back, mirrored);
        }
    }
}
