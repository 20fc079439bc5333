//! One metric of one arm against the base, pair by pair.
//!
//! A race keeps base and arm alive at once and offers a short segment to one and then, in random
//! order, to the other: a *pair*. What the machine did to both within those 200 ms cancels. Every few
//! pairs all processes are replaced by fresh ones: a *generation*. Processes differ from start to start
//! by more than many pairs can average away, so the independent unit is the generation; pairs inside
//! one, which share processes and moments, only sharpen its centre (`pool`).
//!
//! Ratios are compared on the log scale, where "twice" and "half" are equally far from "equal" and
//! swapping the arms only flips the sign; what may honestly be zero (losses) by difference.
//!
//! A pair with a missing half is counted, and not compared: which segments could not be used, the
//! race decided before it knew their values. A value that is there but has no ratio, or is no number,
//! is another matter; more than a few forbid a verdict, because leaving out the segments in which an arm
//! delivered nothing would flatter exactly that arm.
//!
//! The interval is that of a [`Look`]: however often one looks and whenever one stops, it covers
//! with its confidence. Values that are known to a [resolution](Rule::resolution) only may agree to the last digit and
//! be wrong alike, so their scatter says too little: the interval is wider by that resolution.
//!
//! Percentiles of latency are compared like everything else, one value per segment. A segment gives
//! a percentile only if it has the samples for it ([`crate::LatencySummary`]); without, that half is missing.

mod need;
mod pool;
mod verdict;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use need::next_shares;
pub use verdict::{Answer, Answered, Doubt, Judgement, Limit};

use crate::compare::{Rule, Scale, Side};
use crate::limits::{PAIRS_MAX, PAIRS_PER_GENERATION_MAX, VALUE_MAX};
use crate::sequential::Look;
use crate::student;

/// Fewest generations with an interval.
pub(crate) const GENERATIONS_FOR_INTERVAL: usize = 3;
/// Variance of a pair over variance between generations, as measured on the machines the lab was
/// made on (0.13 and 0.046, on the log scale). It only sets by how much a look's information
/// grows inside a generation.
const PAIRS_PER_GENERATION_WORTH: f64 = 8.0;
/// Farthest end of an interval of a ratio, on the log scale: beyond e^100 it says nothing.
const LOG_MAX: f64 = 100.0;

/// Two segments, offered right after one another.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// Which set of fresh processes, from 0.
    pub generation: usize,
    /// The base's value; `None` if its segment cannot be used (the race says why).
    pub base: Option<f64>,
    /// The arm's value.
    pub arm: Option<f64>,
}

impl Pair {
    /// Whether both segments gave a value.
    fn is_whole(&self) -> bool {
        self.base.is_some() && self.arm.is_some()
    }
}

/// How much these pairs can teach, for [`crate::Looks::look`]. A generation of eight pairs counts
/// half as much as one of endlessly many. Depends on which pairs are whole, never on their values.
pub fn information(pairs: &[Pair]) -> f64 {
    let mut whole = BTreeMap::<usize, f64>::new();
    for pair in pairs.iter().filter(|pair| pair.is_whole()) {
        *whole.entry(pair.generation).or_default() += 1.0;
    }
    whole.values().map(|pairs| pairs / (pairs + PAIRS_PER_GENERATION_WORTH)).sum()
}

/// The effect of one pair: arm / base, or arm - base.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// Its place among all pairs, from 0, in the order of time.
    pub pair: usize,
    /// Its generation.
    pub generation: usize,
    /// Ratio or difference.
    pub value: f64,
}

/// A count for each half of the pairs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Halves {
    /// Of the base's segments.
    pub base: usize,
    /// Of the arm's segments.
    pub arm: usize,
}

impl Halves {
    fn count(&mut self, side: Side) {
        match side {
            Side::Base => self.base += 1,
            Side::Arm => self.arm += 1,
        }
    }

    /// Both together.
    pub fn total(self) -> usize {
        self.base + self.arm
    }
}

/// What was not compared, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unusable {
    /// Pairs without an effect.
    pub pairs: usize,
    /// Segments that gave no value.
    pub missing: Halves,
    /// Values of zero or less, where a ratio was asked for.
    pub not_positive: Halves,
    /// Values that are NaN, infinite or beyond [`VALUE_MAX`]: a fault of the meter.
    pub out_of_range: Halves,
}

impl Unusable {
    /// Values that are there and cannot be compared.
    pub fn broken(&self) -> usize {
        self.not_positive.total() + self.out_of_range.total()
    }
}

/// How an interval was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IntervalMethod {
    /// Random effects over generations, Student's t, at the level of the look.
    RandomEffects,
}

/// An interval around an estimate, in the unit of the effect.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub lower: f64,
    /// Upper end.
    pub upper: f64,
    /// With which probability it covers, over all looks at this comparison together.
    pub confidence: f64,
    /// How it was made.
    pub method: IntervalMethod,
    /// Generations it rests on.
    pub generations: usize,
}

/// How much effects scatter, on the log scale for ratios: standard deviations.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Of a pair inside its generation.
    pub within: f64,
    /// Of generations, beyond what their pairs explain.
    pub between: f64,
}

impl Spread {
    /// How many pairs a generation should have, if starting one costs as much time as
    /// `start_pairs` pairs: fewer waste starts, more teach about the same processes again. `None` if
    /// generations do not differ: then as few generations as the interval needs.
    pub fn best_pairs(&self, start_pairs: f64) -> Option<f64> {
        let best = start_pairs.sqrt() * self.within / self.between;
        (best.is_finite() && best > 0.0).then(|| best.max(1.0))
    }
}

/// Why nothing was compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CompareError {
    /// More than [`PAIRS_MAX`].
    #[error("{0} pairs; at most {PAIRS_MAX} are compared, so offer longer segments")]
    Pairs(usize),
    /// More than [`PAIRS_PER_GENERATION_MAX`] in one generation.
    #[error(
        "generation {generation} has {pairs} pairs; start fresh processes at least every \
         {PAIRS_PER_GENERATION_MAX} pairs (every 5 to 10 is best)"
    )]
    Generation {
        /// Which.
        generation: usize,
        /// Its pairs.
        pairs: usize,
    },
}

/// One metric of one arm against the base, over all pairs so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// How it was compared.
    pub rule: Rule,
    /// Per usable pair, in the order of time: the dots of the report.
    pub effects: Vec<Effect>,
    /// Pairs without an effect, by reason.
    pub unusable: Unusable,
    /// Effect over all generations: a ratio or a difference.
    #[serde(alias = "median")]
    pub estimate: Option<f64>,
    /// How the effects scatter; `None` below 2 generations, or if none has 2 pairs.
    pub spread: Option<Spread>,
    /// Interval of the estimate; absent below 3 generations, and while a look is too early.
    pub interval: Option<Interval>,
    /// Two-sided, of "there is no effect", from this data alone: set it against the look's level,
    /// not against 0.05.
    pub p: Option<f64>,
    /// The look this is.
    pub look: Look,
}

/// Why a value cannot be compared.
enum Fault {
    Missing,
    NotPositive,
    OutOfRange,
}

impl Comparison {
    /// Compares the values of one metric of two arms, at a look.
    pub fn of_pairs(pairs: &[Pair], rule: Rule, look: Look) -> Result<Self, CompareError> {
        if pairs.len() > PAIRS_MAX {
            return Err(CompareError::Pairs(pairs.len()));
        }
        let mut effects = Vec::with_capacity(pairs.len());
        let mut unusable = Unusable::default();
        let mut generations = BTreeMap::<usize, Vec<f64>>::new();
        for (place, pair) in pairs.iter().enumerate() {
            let Some((base, arm)) = unusable.sort_out(rule.scale, pair) else { continue };
            let (value, added) = match rule.scale {
                Scale::Ratio => (arm / base, arm.ln() - base.ln()),
                Scale::Difference => (arm - base, arm - base),
            };
            effects.push(Effect { pair: place, generation: pair.generation, value });
            generations.entry(pair.generation).or_default().push(added);
        }
        let crowded = generations.iter().find(|(_, pairs)| pairs.len() > PAIRS_PER_GENERATION_MAX);
        if let Some((&generation, pairs)) = crowded {
            return Err(CompareError::Generation { generation, pairs: pairs.len() });
        }
        let pooled = pool::pool(&generations);
        let spread = pooled
            .and_then(|pooled| Some(Spread { within: pooled.within?, between: pooled.between? }));
        Ok(Self {
            rule,
            effects,
            unusable,
            estimate: pooled.map(|pooled| natural(rule.scale, pooled.estimate)),
            spread,
            interval: pooled.and_then(|pooled| interval(rule, pooled, look)),
            p: pooled.and_then(|pooled| p(rule, pooled)),
            look,
        })
    }

    /// Half the width of the interval: relative for a ratio (0.02 = 2 %, half on the log scale),
    /// in the metric's unit for a difference.
    pub fn half_width(&self) -> Option<f64> {
        let interval = self.interval?;
        Some(match self.rule.scale {
            Scale::Ratio => (interval.upper / interval.lower).sqrt() - 1.0,
            Scale::Difference => 0.5 * interval.upper - 0.5 * interval.lower,
        })
    }

    /// What two runs of the same arm differ by, if this is an A/A pair: the half-width, or, where
    /// the pair surely differs, by how much it surely does if that is more. The resolution is no part of it: the
    /// interval that it is set against is wider by that already.
    pub fn noise_floor(&self) -> Option<f64> {
        let Interval { lower, upper, .. } = self.interval?;
        let surely = match self.rule.scale {
            Scale::Ratio => (lower - 1.0).max(1.0 / upper - 1.0),
            Scale::Difference => lower.max(-upper),
        };
        let half_width = match self.rule.scale {
            Scale::Ratio => (self.half_width()? + 1.0) / (1.0 + self.rule.resolution) - 1.0,
            Scale::Difference => self.half_width()? - self.rule.resolution,
        };
        Some(half_width.max(surely).max(0.0))
    }

    /// Whether the interval is as narrow as the rule asks.
    pub fn is_precise(&self) -> bool {
        self.half_width().is_some_and(|width| width <= self.rule.half_width_target)
    }

    /// Pairs offered, compared or not.
    pub fn offered(&self) -> usize {
        self.effects.len() + self.unusable.pairs
    }
}

impl Unusable {
    /// Both values, or a count of what is wrong with either.
    fn sort_out(&mut self, scale: Scale, pair: &Pair) -> Option<(f64, f64)> {
        let base = self.half(scale, Side::Base, pair.base);
        let arm = self.half(scale, Side::Arm, pair.arm);
        let both = base.zip(arm);
        self.pairs += usize::from(both.is_none());
        both
    }

    fn half(&mut self, scale: Scale, side: Side, value: Option<f64>) -> Option<f64> {
        match usable(scale, value) {
            Ok(value) => return Some(value),
            Err(Fault::Missing) => self.missing.count(side),
            Err(Fault::NotPositive) => self.not_positive.count(side),
            Err(Fault::OutOfRange) => self.out_of_range.count(side),
        }
        None
    }
}

/// The value, if this scale can use it.
fn usable(scale: Scale, value: Option<f64>) -> Result<f64, Fault> {
    let value = value.ok_or(Fault::Missing)?;
    if value.is_nan() || value.abs() > VALUE_MAX {
        return Err(Fault::OutOfRange);
    }
    if scale == Scale::Ratio && value < 1.0 / VALUE_MAX {
        return Err(Fault::NotPositive);
    }
    Ok(value)
}

fn natural(scale: Scale, added: f64) -> f64 {
    match scale {
        Scale::Ratio => added.exp(),
        Scale::Difference => added,
    }
}

/// The resolution on the scale on which effects add up.
fn resolution(rule: Rule) -> f64 {
    match rule.scale {
        Scale::Ratio => rule.resolution.ln_1p(),
        Scale::Difference => rule.resolution,
    }
}

fn interval(rule: Rule, pooled: pool::Pooled, look: Look) -> Option<Interval> {
    let scale = rule.scale;
    let generations = pooled.generations;
    if generations < GENERATIONS_FOR_INTERVAL {
        return None;
    }
    let chance = student::critical(look.level?, generations - 1)? * pooled.error?;
    let reach = chance + resolution(rule);
    let (lower, upper) = (pooled.estimate - reach, pooled.estimate + reach);
    let farthest = lower.abs().max(upper.abs());
    let says_something = match scale {
        Scale::Ratio => farthest <= LOG_MAX,
        Scale::Difference => farthest.is_finite(),
    };
    says_something.then(|| Interval {
        lower: natural(scale, lower),
        upper: natural(scale, upper),
        confidence: look.confidence(),
        method: IntervalMethod::RandomEffects,
        generations,
    })
}

fn p(rule: Rule, pooled: pool::Pooled) -> Option<f64> {
    let error = pooled.error.filter(|_| pooled.generations >= GENERATIONS_FOR_INTERVAL)?;
    let beyond = pooled.estimate.abs() - resolution(rule);
    if beyond <= 0.0 {
        return Some(1.0);
    }
    Some(student::two_sided_p(beyond / error, pooled.generations - 1))
}

#[cfg(test)]
mod tests;
