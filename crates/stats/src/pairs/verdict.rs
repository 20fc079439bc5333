//! Better, worse, same or inconclusive; met, missed or undecided.
//!
//! As everywhere in this crate a verdict comes from the interval: *better* and *worse* when all of it
//! lies beyond the threshold, *same* when it lies wholly inside and is as narrow as the rule asks,
//! *inconclusive* otherwise, with the doubt named. The threshold is the larger of what matters and of
//! the noise floor, what two runs of the same arm differ by (the A/A pair).
//!
//! Goals look at the same two things. A limit is met or missed when the whole interval lies beyond it
//! by more than the noise floor; two runs of one arm then meet or miss a limit of 1.0 no more often
//! than the error rate allows, even if the machine favours one of them.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Comparison, GENERATIONS_FOR_INTERVAL};
use crate::compare::{Direction, Rule, Scale};
use crate::limits::{BROKEN_SHARE_MAX, WHOLE_PAIRS_SHARE_MIN};
use crate::verdict::Verdict;

/// Why there is no verdict.
#[derive(Debug, Clone, Copy, PartialEq, Error, Serialize, Deserialize)]
#[serde(tag = "doubt", rename_all = "snake_case")]
pub enum Doubt {
    /// Too many values that are there cannot be compared.
    #[error(
        "{not_positive} values of zero or less, which have no ratio, and {out_of_range} that are no \
         numbers among {pairs} pairs; find out why, or compare this metric by difference"
    )]
    BrokenValues {
        /// Zero or less.
        not_positive: usize,
        /// NaN, infinite, beyond the range.
        out_of_range: usize,
        /// Pairs offered.
        pairs: usize,
    },
    /// Too few pairs have both halves.
    #[error(
        "too few whole segments: {whole} of {pairs} pairs can be compared, a verdict needs \
         {min:.0} %; the machine was busy, or segments are too short for this metric",
        min = WHOLE_PAIRS_SHARE_MIN * 100.0
    )]
    TooFewWhole {
        /// Pairs compared.
        whole: usize,
        /// Pairs offered.
        pairs: usize,
    },
    /// Too few generations for an interval.
    #[error(
        "{generations} generations of processes have no interval; it takes \
         {GENERATIONS_FOR_INTERVAL}, so give the race more time"
    )]
    TooFewGenerations {
        /// Generations with an effect.
        generations: usize,
    },
    /// So early in the race nothing may be concluded.
    #[error("{percent:.0} % of the race's time has gone, too early to conclude; race on", percent = share * 100.0)]
    TooEarly {
        /// Share of the time gone.
        share: f64,
    },
    /// The machine changed faster than pairs are close.
    #[error(
        "the base's own cost changed by {percent:.1} % from one round to the next, more than pairs absorb; race again \
         when the machine is steadier", percent = per_round * 100.0
    )]
    Drifted {
        /// The change from one round to the next, as a share.
        per_round: f64,
    },
    /// The generator was at its own limit.
    #[error(
        "the generator does not keep 1.5 times this load into a sink, so what an arm took of it is no capacity; \
         offer less, or use a faster generator"
    )]
    NoHeadroom,
    /// A client was at its own limit.
    #[error(
        "the client's side was busy for more than nine tenths of the time in which it asked, so that a rate there is as \
         much the client's, and the arm can do that or more; compare CPU per record"
    )]
    ClientLimited,
    /// A search had no upper end.
    #[error(
        "a search for the rate ended at the highest that was asked for, or at what the generator keeps, so that the \
         arm can do that or more; search higher, or use a faster generator"
    )]
    OpenSearch,
    /// An arm did not deliver the load.
    #[error(
        "{percent:.1} % of this load, or of the connections of a closed loop, had no answer from one of the two: what an \
         arm spends on what it loses is no cost of its work; compare at a load that both deliver", percent = share * 100.0
    )]
    Collapsed {
        /// Of the arm of which it is more, as a share.
        share: f64,
    },
    /// An arm did not last as long as the race.
    #[error("an arm ended by itself in the middle of the race; find out why, and race again")]
    Ended,
    /// What interrupted the arms may be theirs, and is more than the answer bears.
    #[error(
        "what interrupted an arm's own tasks and has no known cause is {percent:.1} % of its CPU time, and the answer does \
         not hold with it; quieten the machine, or race longer", percent = share * 100.0
    )]
    Unattributed {
        /// Of the arm of which it is more, as a share of its own CPU time.
        share: f64,
    },
    /// The A/A pair has no interval, or too few whole pairs.
    #[error("the A/A pair gives no noise floor yet; race on, or when the machine is quieter")]
    NoNoiseFloor,
    /// The A/A pair belongs to another metric.
    #[error("the A/A pair was compared by another rule; use the one of the same metric")]
    ForeignNoiseFloor,
    /// The interval holds the threshold: the effect may or may not matter.
    #[error("the interval reaches across the threshold of {threshold}; race longer")]
    AcrossThreshold {
        /// The threshold, relative or in the metric's unit.
        threshold: f64,
    },
    /// The interval holds the threshold, and always will around no effect: values are known to no less.
    #[error(
        "values are known to {resolution} only, the threshold is {threshold}, so that a difference of less than both is \
         not seen; search finer"
    )]
    Coarse {
        /// How far a value may be from what it stands for, as the threshold.
        resolution: f64,
        /// The threshold, relative or in the metric's unit.
        threshold: f64,
    },
    /// Inside the threshold, but only because noise made the threshold wide.
    #[error(
        "the half-width {half_width} misses the target {target}, too noisy to call the arms the \
         same; race longer or quieten the machine"
    )]
    Imprecise {
        /// Half-width reached.
        half_width: f64,
        /// Half-width asked for.
        target: f64,
    },
    /// The interval holds the limit, or is nearer to it than the noise floor.
    #[error(
        "the interval is not beyond the limit of {limit} by the noise floor of {margin}; race longer"
    )]
    AcrossLimit {
        /// The limit.
        limit: f64,
        /// The noise floor, relative or in the metric's unit.
        margin: f64,
    },
}

/// A verdict with what it rests on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// The threshold used: relative for a ratio, in the metric's unit for a difference.
    pub threshold: f64,
    /// The confidence of the interval; `None` without one.
    pub confidence: Option<f64>,
    /// Present exactly when the verdict is inconclusive.
    pub doubt: Option<Doubt>,
}

/// A bound that a goal or a claim sets to an effect.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The effect is this or less.
    AtMost(f64),
    /// The effect is this or more.
    AtLeast(f64),
}

/// Whether an effect keeps a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It does.
    Met,
    /// It does not.
    Missed,
    /// The data does not say; see the doubt.
    Undecided,
}

/// An answer with what it rests on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    /// The answer.
    pub answer: Answer,
    /// The noise floor used, 0 without an A/A pair: relative for a ratio, else in the metric's unit.
    pub margin: f64,
    /// Present exactly when the answer is undecided.
    pub doubt: Option<Doubt>,
}

impl Comparison {
    /// Judges this comparison. `noise` is the A/A pair of the same metric and race; `None` is for
    /// the A/A pair itself, which cannot be its own yardstick, and for races without.
    pub fn judge(&self, noise: Option<&Self>) -> Judgement {
        let threshold = self.margin(noise).map(|floor| floor.max(self.rule.threshold_min));
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

    /// Whether the effect keeps a limit. `noise` as in [`Self::judge`].
    pub fn answer(&self, limit: Limit, noise: Option<&Self>) -> Answered {
        let margin = self.margin(noise);
        let (answer, doubt) = match margin.and_then(|margin| self.against(limit, margin)) {
            Ok(answer) => (answer, None),
            Err(doubt) => (Answer::Undecided, Some(doubt)),
        };
        Answered { answer, margin: margin.unwrap_or(0.0), doubt }
    }

    fn margin(&self, noise: Option<&Self>) -> Result<f64, Doubt> {
        let Some(noise) = noise else {
            return Ok(0.0);
        };
        if noise.rule != self.rule {
            return Err(Doubt::ForeignNoiseFloor);
        }
        noise.ends().map_err(|_| Doubt::NoNoiseFloor)?;
        noise.noise_floor().ok_or(Doubt::NoNoiseFloor)
    }

    /// The ends of the interval, if anything may be concluded from them.
    fn ends(&self) -> Result<(f64, f64), Doubt> {
        let (whole, pairs) = (self.effects.len(), self.offered());
        if self.unusable.broken() as f64 > BROKEN_SHARE_MAX * pairs as f64 {
            let not_positive = self.unusable.not_positive.total();
            let out_of_range = self.unusable.out_of_range.total();
            return Err(Doubt::BrokenValues { not_positive, out_of_range, pairs });
        }
        if (whole as f64) < WHOLE_PAIRS_SHARE_MIN * pairs as f64 {
            return Err(Doubt::TooFewWhole { whole, pairs });
        }
        match self.interval {
            Some(interval) => Ok((interval.lower, interval.upper)),
            None => Err(self.no_interval()),
        }
    }

    fn no_interval(&self) -> Doubt {
        let mut generations: Vec<usize> = self.effects.iter().map(|e| e.generation).collect();
        generations.sort_unstable();
        generations.dedup();
        match generations.len() {
            few if few < GENERATIONS_FOR_INTERVAL => Doubt::TooFewGenerations { generations: few },
            _ => Doubt::TooEarly { share: self.look.share },
        }
    }

    fn settle(&self, threshold: f64) -> Result<Verdict, Doubt> {
        let (lower, upper) = self.ends()?;
        let Rule { scale, direction, half_width_target: target, .. } = self.rule;
        let (low, high) = around(scale, scale.none(), threshold);
        let (above, below) = match direction {
            Direction::HigherIsBetter => (Verdict::Better, Verdict::Worse),
            Direction::LowerIsBetter => (Verdict::Worse, Verdict::Better),
        };
        if lower > high {
            Ok(above)
        } else if upper < low {
            Ok(below)
        } else if lower < low || upper > high {
            Err(match self.rule.resolution {
                resolution if resolution >= threshold => Doubt::Coarse { resolution, threshold },
                _ => Doubt::AcrossThreshold { threshold },
            })
        } else if let Some(half_width) = self.half_width().filter(|width| *width > target) {
            Err(Doubt::Imprecise { half_width, target })
        } else {
            Ok(Verdict::Same)
        }
    }

    fn against(&self, limit: Limit, margin: f64) -> Result<Answer, Doubt> {
        let (lower, upper) = self.ends()?;
        let (Limit::AtMost(bound) | Limit::AtLeast(bound)) = limit;
        let (low, high) = around(self.rule.scale, bound, margin);
        // The limit itself keeps the limit.
        let (beneath, above) = match limit {
            Limit::AtMost(_) => (upper <= low, lower > high),
            Limit::AtLeast(_) => (upper < low, lower >= high),
        };
        match (limit, beneath, above) {
            (Limit::AtMost(_), true, _) | (Limit::AtLeast(_), _, true) => Ok(Answer::Met),
            (Limit::AtMost(_), _, true) | (Limit::AtLeast(_), true, _) => Ok(Answer::Missed),
            _ => Err(Doubt::AcrossLimit { limit: bound, margin }),
        }
    }
}

impl Scale {
    /// The effect of no effect.
    pub(super) fn none(self) -> f64 {
        match self {
            Self::Ratio => 1.0,
            Self::Difference => 0.0,
        }
    }
}

/// What is nearer to a value than the margin.
fn around(scale: Scale, value: f64, margin: f64) -> (f64, f64) {
    match scale {
        Scale::Ratio => (value / (1.0 + margin), value * (1.0 + margin)),
        Scale::Difference => (value - margin, value + margin),
    }
}

#[cfg(test)]
mod tests;
