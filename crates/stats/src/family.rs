//! The error rate of a whole race, shared among its comparisons.
//!
//! Each comparison gets an equal part (Bonferroni). A comparison that the race has called better or
//! worse needs its part no longer and hands it to the rest (Holm, "A Simple Sequentially Rejective
//! Multiple Test Procedure", Scandinavian Journal of Statistics 6, 1979; for sequential looks Ye, Li, Liu
//! and Yao, "A Group Sequential Holm Procedure with Multiple Primary Endpoints", Statistics in
//! Medicine 32, 2013). "Same" hands nothing on: it rejects no hypothesis of equality.
//!
//! What is guaranteed, whatever the correlation among comparisons (they share the base) and however
//! often one looks:
//! - the chance that any verdict calls a difference beyond its threshold where there is none is at most `alpha`;
//! - each interval covers its truth at every look with the confidence it states, at least 1 - alpha;
//! - intervals that have only their own part, `alpha_each(0)`, cover all together with 1 - alpha. So any limits may be
//!   read from them, as goals and claims do, and the chance that any is answered wrongly is at most `alpha`. What Holm
//!   hands on is no good for them: it rests on the hypothesis of equality that was rejected, and a limit is another.
//!
//! A metric that no verdict rests on (shown only) need not be counted: its interval covers by itself
//! at the rate it is given, and belongs to no claim.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The comparisons of a race and the error rate they share.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Family {
    alpha: f64,
    comparisons: usize,
}

/// No family has these figures.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
#[error(
    "{comparisons} comparisons with an error rate of {alpha}; give at least one, and a rate above 0 \
     and up to 0.5 (0.05 is usual)"
)]
pub struct FamilyError {
    alpha: f64,
    comparisons: usize,
}

impl Family {
    /// `comparisons` that share the error rate `alpha`: count every arm, load and metric for which
    /// the race may claim something, the A/A pair too if it is judged.
    pub fn new(alpha: f64, comparisons: usize) -> Result<Self, FamilyError> {
        if !(alpha > 0.0 && alpha <= 0.5) || comparisons == 0 {
            return Err(FamilyError { alpha, comparisons });
        }
        Ok(Self { alpha, comparisons })
    }

    /// The chance of any false claim in the race.
    pub fn alpha(&self) -> f64 {
        self.alpha
    }

    /// The error rate of each comparison once `differences` of them have been called better or
    /// worse. Those calls are final: a later look must not take them back.
    pub fn alpha_each(&self, differences: usize) -> f64 {
        self.alpha / self.comparisons.saturating_sub(differences).max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_found_difference_hands_its_part_on() {
        let family = Family::new(0.06, 3).expect("a family");
        let parts = [0, 1, 2, 3, 9].map(|found| family.alpha_each(found));
        for (found, expected) in parts.into_iter().zip([0.02, 0.03, 0.06, 0.06, 0.06]) {
            assert!((found - expected).abs() < 1e-12, "{parts:?}");
        }
    }

    #[test]
    fn nothing_to_share_is_refused() {
        for (alpha, comparisons) in [(0.0, 1), (0.6, 1), (f64::NAN, 1), (0.05, 0)] {
            let refused = Family::new(alpha, comparisons).expect_err("not a family");
            assert!(refused.to_string().contains("error rate"), "{refused}");
        }
    }
}
