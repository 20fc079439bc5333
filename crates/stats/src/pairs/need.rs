//! Whether a comparison is decided, and which one should get the next segments.

use super::Comparison;
use crate::compare::Scale;
use crate::verdict::Verdict;

/// A difference is stated precisely enough when its interval reaches no farther than this share of
/// the distance from "none": "3.9 times (2.8 to 5.5)".
const WIDTH_SHARE_OF_EFFECT: f64 = 0.25;
/// Most data that is ever asked for at once, in multiples of what there is.
const NEED_MAX: f64 = 9.0;
/// Pairs asked for by a comparison that has none, or no interval.
const PAIRS_TO_BEGIN: f64 = 16.0;

impl Comparison {
    /// Whether the race may stop for this comparison. `noise` as in [`Self::judge`]. Either the verdict is
    /// better or worse, and the interval is as narrow as the rule asks or a quarter of the effect; or it is as
    /// narrow as the rule asks and holds "none": at the stated width there is nothing to see (*same*
    /// where it also lies inside the threshold). An interval that excludes "none" and reaches across the
    /// threshold is worth the rest of the time.
    pub fn is_decided(&self, noise: Option<&Self>) -> bool {
        let judged = self.judge(noise);
        match judged.verdict {
            Verdict::Better | Verdict::Worse => self.is_narrow_for_its_effect(),
            Verdict::Same => true,
            Verdict::Inconclusive => {
                self.is_precise() && self.holds_none() && !self.lacks_whole_pairs()
            }
        }
    }

    fn holds_none(&self) -> bool {
        let none = self.rule.scale.none();
        self.interval.is_some_and(|interval| (interval.lower..=interval.upper).contains(&none))
    }

    /// Whether a quieter stretch of time may mend what forbids a verdict.
    fn lacks_whole_pairs(&self) -> bool {
        (self.effects.len() as f64) < crate::limits::WHOLE_PAIRS_SHARE_MIN * self.offered() as f64
    }

    fn is_narrow_for_its_effect(&self) -> bool {
        let Some((estimate, half_width)) = self.additive() else { return false };
        half_width <= WIDTH_SHARE_OF_EFFECT * estimate.abs() || self.is_precise()
    }

    /// Estimate and half-width on the scale on which effects add.
    fn additive(&self) -> Option<(f64, f64)> {
        let (estimate, half_width) = (self.estimate?, self.half_width()?);
        Some(match self.rule.scale {
            Scale::Ratio => (estimate.ln(), half_width.ln_1p()),
            Scale::Difference => (estimate, half_width),
        })
    }

    /// How many more pairs, about, would decide this comparison; 0 if it is decided. An interval
    /// shrinks with the root of the data: half the width takes four times as many.
    pub fn pairs_wanted(&self, noise: Option<&Self>) -> f64 {
        if self.is_decided(noise) {
            return 0.0;
        }
        let pairs = (self.effects.len() as f64).max(PAIRS_TO_BEGIN);
        let Some((estimate, half_width)) = self.additive() else {
            return pairs;
        };
        let threshold = self.judge(noise).threshold;
        let (threshold, target) = match self.rule.scale {
            Scale::Ratio => (threshold.ln_1p(), self.rule.half_width_target.ln_1p()),
            Scale::Difference => (threshold, self.rule.half_width_target),
        };
        let to_threshold = estimate.abs() - threshold;
        let narrow = if half_width > target {
            target.max(to_threshold.min(WIDTH_SHARE_OF_EFFECT * estimate.abs()))
        } else {
            to_threshold.abs()
        };
        let more = (half_width / narrow).powi(2) - 1.0;
        // Not decided and yet narrow enough: an A/A pair or whole pairs are missing; a few more.
        pairs * if more.is_finite() { more.clamp(1.0 / PAIRS_TO_BEGIN, NEED_MAX) } else { NEED_MAX }
    }
}

/// Where the next segments should go: for each comparison (with its A/A pair) its share of them, in
/// proportion to the pairs it still wants. All zero when everything is decided.
pub fn next_shares(comparisons: &[(&Comparison, Option<&Comparison>)]) -> Vec<f64> {
    let wanted: Vec<f64> =
        comparisons.iter().map(|(found, noise)| found.pairs_wanted(*noise)).collect();
    let total: f64 = wanted.iter().sum();
    wanted.into_iter().map(|pairs| if total > 0.0 { pairs / total } else { 0.0 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Rule;
    use crate::pairs::tests::found;

    #[test]
    fn a_large_difference_is_decided_long_before_the_stated_width() {
        assert!(found(Rule::COST, 2.8, 5.5).is_decided(None));
        assert!(!found(Rule::COST, 1.5, 9.0).is_decided(None), "too vague a sentence");
        assert!(!found(Rule::COST, 1.025, 1.08).is_decided(None));
    }

    #[test]
    fn nothing_to_see_at_the_stated_width_is_decided() {
        assert!(found(Rule::COST, 0.99, 1.01).is_decided(None));
        assert!(found(Rule::COST, 0.99, 1.025).is_decided(None), "not the same, and not different");
        assert!(!found(Rule::COST, 1.01, 1.03).is_decided(None), "different: by how much?");
        assert!(!found(Rule::COST, 0.95, 1.05).is_decided(None));
    }

    #[test]
    fn segments_go_where_doubt_is_left() {
        let decided = found(Rule::COST, 3.0, 3.1);
        let wide = found(Rule::COST, 0.9, 1.1);
        let wider = found(Rule::COST, 0.85, 1.15);
        let shares = next_shares(&[(&decided, None), (&wide, None), (&wider, None)]);
        assert!(shares[0] == 0.0 && shares[2] >= shares[1], "{shares:?}");
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert_eq!(next_shares(&[(&decided, None)]), [0.0]);
    }

    #[test]
    fn nothing_known_asks_for_a_beginning() {
        let mut nothing = found(Rule::COST, 1.0, 1.0);
        nothing.interval = None;
        assert_eq!(nothing.pairs_wanted(None), PAIRS_TO_BEGIN);
    }
}
