//! Looking at a race while it runs, as often as one likes, without being fooled by it.
//!
//! A race that looks twenty times at a 95 % interval and stops when it excludes "equal" is wrong far
//! more often than in 5 % of cases. Here each look gets its own, smaller error rate (its *level*),
//! such that all looks together stay within one. How much may be gone by when is a spending
//! function of the share of the race's time (Lan and DeMets, "Discrete Sequential Boundaries for
//! Clinical Trials", Biometrika 70, 1983); how much of that a look costs follows from how much new
//! information it saw (the recursion in `boundary`). Levels, not z-values, are handed on, so that
//! Student's quantiles can be used with few generations (Pocock's significance level approach;
//! Jennison and Turnbull, "Group Sequential Methods", 2000, section 3.8).
//!
//! The interval of a look at its level is a repeated confidence interval (Jennison and Turnbull,
//! "Interim Analyses: The Repeated Confidence Interval Approach", JRSS B 51, 1989): the truth lies
//! in the intervals of all looks at once with the stated confidence, so the race may stop at any of
//! them, for any reason.
//!
//! What it assumes: the clock (the share) depends on no data, and neither is the moment of a look. A caller that
//! moves segments to where doubt is left lets the data choose how much is learnt by the next look; that
//! strains the second assumption, and the simulator shows by how much (not measurably).

mod boundary;

use boundary::Boundary;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::normal;
use crate::student::TAIL_MIN;

/// A look that saw less new information than this (relative) is the look before once more.
const NEWS_MIN: f64 = 1e-3;

/// What [`Spending::Reserved`] spends before the last look.
const EARLY_SHARE: f64 = 0.2;

/// How fast the error rate may be spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spending {
    /// Like O'Brien and Fleming's boundaries: next to nothing early. The last look is nearly as
    /// sharp as if it were the only one; with few generations early looks cannot conclude at all.
    ObrienFleming,
    /// The cube of the share (power family: Kim and DeMets, "Design and Analysis of Group
    /// Sequential Tests Based on the Type I Error Spending Rate Function", Biometrika 74, 1987).
    Cubic,
    /// A fifth of the rate by the cube of the share, the rest kept for the last look (the thought is
    /// Haybittle's and Peto's). The default: a factor of two is seen after a few generations, and the last
    /// interval is 5 % wider than without any looks (cubic: 10 %).
    ///
    /// The last look does not count on what crossed early crossing again at the end. Brownian motion
    /// mostly does, Student's t of few generations less so: for the other functions that makes the rate
    /// over all looks 5.5 instead of 5 % on the simulator, for this one 4.5 %.
    #[default]
    Reserved,
    /// The square of the share: earlier still, for more at the end.
    Quadratic,
    /// Like Pocock's boundaries: about the same z-value at every look.
    Pocock,
}

impl Spending {
    /// How much of the two-sided rate `alpha` may be spent when this share of the time has gone.
    fn spent(self, alpha: f64, share: f64) -> f64 {
        match self {
            Self::ObrienFleming => {
                let z = normal::quantile(1.0 - 0.25 * alpha).unwrap_or(0.0);
                4.0 * normal::upper_tail(z / share.sqrt())
            }
            Self::Cubic => alpha * share.powi(3),
            Self::Reserved if share < 1.0 => EARLY_SHARE * alpha * share.powi(3),
            Self::Reserved => alpha,
            Self::Quadratic => alpha * share.powi(2),
            Self::Pocock => alpha * (1.0 + (std::f64::consts::E - 1.0) * share).ln(),
        }
    }
}

/// One look at a comparison: what may be concluded from it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// Which look at this comparison, from 1; looks that saw nothing new are not counted.
    pub number: usize,
    /// Share of the race's time gone, above 0 and at most 1.
    pub share: f64,
    /// Error rate over all looks together; 1 - alpha is the confidence of the interval.
    pub alpha: f64,
    /// Error rate of this look alone, two-sided: the interval is made with it and the p-value is to be set
    /// against it. `None`: too early to conclude anything.
    pub level: Option<f64>,
}

impl Look {
    /// The only look at a comparison, after its race: the level is `alpha` itself.
    pub fn only(alpha: f64) -> Self {
        let level = (TAIL_MIN..1.0).contains(&alpha).then_some(alpha);
        Self { number: 1, share: 1.0, alpha, level }
    }

    /// Confidence of the interval, over all looks together.
    pub fn confidence(&self) -> f64 {
        1.0 - self.alpha
    }
}

/// Why there is no look.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum LookError {
    /// The share of time is no share.
    #[error("a look at {0} of the race's time; give a share above 0 (1 is the last look)")]
    Share(f64),
    /// The information is no amount.
    #[error("a look with information {0}; give a finite amount above 0, see information()")]
    Information(f64),
    /// The error rate is none.
    #[error("an error rate of {0}; give one above 0 and up to 0.5, 0.05 is usual")]
    Alpha(f64),
    /// A look with share 1 was taken before.
    #[error("the last look was taken (all of the race's time had gone); judge that one")]
    Over,
}

/// The looks at one comparison so far.
#[derive(Debug, Clone)]
pub struct Looks {
    spending: Spending,
    /// Share and information of each counted look.
    past: Vec<(f64, f64)>,
    /// The boundaries of the past looks, for the error rate asked for last.
    plan: Plan,
}

/// All looks so far under one error rate.
#[derive(Debug, Clone)]
struct Plan {
    alpha: f64,
    spent: f64,
    boundary: Boundary,
    levels: Vec<f64>,
}

impl Looks {
    /// No look has been taken yet.
    pub fn new(spending: Spending) -> Self {
        Self { spending, past: Vec::new(), plan: Plan::new(0.0) }
    }

    /// Looks, when a `share` of the race's time has gone, at a comparison that has gathered
    /// `information` (any unit that grows as the variance of the estimate shrinks:
    /// [`crate::pairs::information`]). The last look of a race passes 1 as its share, even if some
    /// seconds are left.
    ///
    /// `alpha` may grow from look to look, as [`crate::Family`] hands error rate on: the look is then the one
    /// that a race with the larger rate from its beginning would have now. What it might have concluded
    /// earlier is not concluded late, so paths in which another comparison's data chose the moment are safe.
    pub fn look(&mut self, share: f64, information: f64, alpha: f64) -> Result<Look, LookError> {
        if share.is_nan() || share <= 0.0 {
            return Err(LookError::Share(share));
        }
        if !(information > 0.0 && information.is_finite()) {
            return Err(LookError::Information(information));
        }
        if !(alpha > 0.0 && alpha <= 0.5) {
            return Err(LookError::Alpha(alpha));
        }
        let last = self.past.last().copied().unwrap_or_default();
        // An interval may not shrink because a clock ran on: without news it is the same look.
        if information > last.1 * (1.0 + NEWS_MIN) {
            if last.0 >= 1.0 {
                return Err(LookError::Over);
            }
            self.past.push((share.clamp(last.0, 1.0), information));
        }
        if self.plan.alpha != alpha {
            self.plan = Plan::new(alpha);
        }
        self.plan.catch_up(&self.past, self.spending);
        let level = self.plan.levels.last().copied().filter(|level| *level >= TAIL_MIN);
        let (share, _) = *self.past.last().expect("the first look is always news");
        Ok(Look { number: self.past.len(), share, alpha, level })
    }
}

impl Plan {
    fn new(alpha: f64) -> Self {
        Self { alpha, spent: 0.0, boundary: Boundary::new(), levels: Vec::new() }
    }

    fn catch_up(&mut self, past: &[(f64, f64)], spending: Spending) {
        for &(share, information) in &past[self.levels.len()..] {
            let spend = spending.spent(self.alpha, share) - self.spent;
            // Too little to be distinguished from nothing is kept for the next look.
            let spend = if spend < TAIL_MIN { 0.0 } else { spend };
            self.spent += spend;
            let boundary = self.boundary.look(information, spend);
            let stands_alone = spending == Spending::Reserved && share >= 1.0;
            let level = if stands_alone { spend } else { 2.0 * normal::upper_tail(boundary) };
            self.levels.push(level);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// z-values of looks at these shares, with information that grows alike.
    fn boundaries(spending: Spending, shares: &[f64], alpha: f64) -> Vec<f64> {
        let mut looks = Looks::new(spending);
        let mut level = |&share: &f64| {
            let look = looks.look(share, share * 7.0, alpha).expect("a share");
            look.level.map_or(f64::INFINITY, |level| {
                normal::quantile(1.0 - 0.5 * level).expect("a level")
            })
        };
        shares.iter().map(&mut level).collect()
    }

    fn check(spending: Spending, expected: &[f64]) {
        let shares: Vec<f64> =
            (1..=expected.len()).map(|k| k as f64 / expected.len() as f64).collect();
        let found = boundaries(spending, &shares, 0.05);
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1.5e-4, "{spending:?}: {found} {expected}");
        }
    }

    // Reboussin, DeMets, Kim and Lan, "Computations for Group Sequential Boundaries Using the
    // Lan-DeMets Spending Function Method", Controlled Clinical Trials 21, 2000 (the ld98 program),
    // also ldbounds for R: five equally spaced looks, two-sided 0.05. They print four digits, the last
    // of which is theirs: a direct double integral (trapezium, 4,000 points) gives 3.35701 for 3.3569.
    #[test]
    fn boundaries_match_the_published_ones() {
        check(Spending::ObrienFleming, &[4.8769, 3.3569, 2.6803, 2.2898, 2.0310]);
        check(Spending::Pocock, &[2.4380, 2.4268, 2.4101, 2.3966, 2.3859]);
        let found = boundaries(Spending::ObrienFleming, &[0.2, 0.4], 0.05);
        assert!((found[0] - 4.876_885).abs() < 1e-6, "{found:?}");
        assert!((found[1] - 3.357_012).abs() < 2e-6, "{found:?}");
    }

    #[test]
    fn a_single_look_costs_nothing() {
        for spending in [Spending::ObrienFleming, Spending::Reserved, Spending::Pocock] {
            let found = boundaries(spending, &[1.0], 0.05)[0];
            assert!(
                (found - normal::quantile(0.975).expect("inside (0, 1)")).abs() < 1e-6,
                "{spending:?} {found}"
            );
        }
        assert_eq!(Look::only(0.05).level, Some(0.05));
    }

    #[test]
    fn looks_close_together_keep_the_recursion_accurate() {
        // Crowded looks take no more than many even ones take; a coarse grid fails here.
        let even: Vec<f64> = (1..=40).map(|k| f64::from(k) / 40.0).collect();
        let mut crowded = even.clone();
        crowded.extend(even.iter().skip(10).map(|share| share - 0.0245));
        crowded.sort_by(f64::total_cmp);
        let last =
            |shares: &[f64]| *boundaries(Spending::Cubic, shares, 0.05).last().expect("some");
        let (few, many) = (last(&even), last(&crowded));
        assert!(many >= few - 1e-4 && many < few + 0.05, "{few} {many}");
    }

    #[test]
    fn a_look_without_news_is_the_look_before() {
        let mut looks = Looks::new(Spending::Cubic);
        let first = looks.look(0.4, 3.0, 0.05).expect("a look");
        let again = looks.look(0.6, 3.001, 0.05).expect("a look");
        assert_eq!((first.number, again), (1, first));
        let second = looks.look(0.6, 5.0, 0.05).expect("a look");
        assert_eq!(second.number, 2);
    }

    #[test]
    fn a_larger_rate_gives_the_look_it_would_have_given_all_along() {
        let mut all_along = Looks::new(Spending::Cubic);
        let mut handed_on = all_along.clone();
        for (share, early) in [(0.3, 0.01), (0.5, 0.01), (0.7, 0.02)] {
            let expected = all_along.look(share, share, 0.02).expect("a look");
            let found = handed_on.look(share, share, early).expect("a look");
            assert_eq!(found == expected, early == 0.02);
        }
    }

    #[test]
    fn what_is_no_look_is_named() {
        let mut looks = Looks::new(Spending::Cubic);
        assert_eq!(looks.look(0.0, 1.0, 0.05), Err(LookError::Share(0.0)));
        assert_eq!(looks.look(0.1, -1.0, 0.05), Err(LookError::Information(-1.0)));
        assert_eq!(looks.look(0.1, 1.0, 0.7), Err(LookError::Alpha(0.7)));
        let last = looks.look(1.2, 1.0, 0.05).expect("late is the last");
        assert_eq!(last.share, 1.0);
        assert_eq!(looks.look(1.3, 1.0, 0.05), Ok(last));
        assert_eq!(looks.look(1.3, 2.0, 0.05), Err(LookError::Over));
    }

    #[test]
    fn too_early_a_look_concludes_nothing_and_costs_nothing() {
        let mut looks = Looks::new(Spending::ObrienFleming);
        assert_eq!(looks.look(0.02, 0.02, 0.05).expect("a look").level, None);
        let last = looks.look(1.0, 1.0, 0.05).expect("a look").level.expect("late enough");
        assert!((last - 0.05).abs() < 1e-6, "{last}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn any_looks_stay_within_the_rate(
            steps in prop::collection::vec((0.0f64..0.4, 0.0f64..3.0), 1..12), alpha in 0.001f64..0.5,
        ) {
            let mut looks = Looks::new(Spending::Cubic);
            let (mut share, mut information, mut levels, mut most) = (0.01, 0.01, 0.0, 0.0f64);
            for (later, more) in steps {
                share += later;
                information += more;
                match looks.look(share, information, alpha) {
                    Ok(look) => {
                        let level = look.level.unwrap_or(0.0);
                        prop_assert!(level.is_finite() && (0.0..=alpha * 1.000_001).contains(&level));
                        levels += level;
                        most = most.max(level);
                    }
                    Err(error) => prop_assert_eq!(error, LookError::Over),
                }
            }
            prop_assert!(most <= levels + 1e-12);
        }
    }
}
