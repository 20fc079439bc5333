//! Wilcoxon's signed-rank test on paired effects, and Holm's correction over a family of tests.
//!
//! The p-value accompanies a verdict, it does not make it: with enough blocks an effect of no
//! interest becomes "significant". Effects of exactly zero are left out (Wilcoxon's own rule) and
//! equal magnitudes share their mean rank. Up to 50 effects the distribution is exact, ties
//! included, by counting every assignment of signs; beyond that it is the normal approximation
//! with tie and continuity correction.

use crate::normal;

/// Most effects for the exact distribution: its 2^50 sign patterns are still exact in an f64.
const EXACT_MAX: usize = 50;

/// Two-sided p-value of "the effects are symmetric around zero". 1 when none differs from zero.
/// Effects are finite.
pub(crate) fn signed_rank_p(effects: &[f64]) -> f64 {
    let mut nonzero: Vec<f64> = effects.iter().copied().filter(|&effect| effect != 0.0).collect();
    if nonzero.is_empty() {
        return 1.0;
    }
    nonzero.sort_unstable_by(|a, b| a.abs().total_cmp(&b.abs()));
    // Mean ranks may be halves; doubled they are integers, and sums of them stay exact.
    let mut doubled_ranks = Vec::with_capacity(nonzero.len());
    let mut tie_term = 0.0;
    for tied in nonzero.chunk_by(|a, b| a.abs() == b.abs()) {
        let first = doubled_ranks.len() + 1;
        let last = doubled_ranks.len() + tied.len();
        doubled_ranks.resize(last, first + last);
        let size = tied.len() as f64;
        tie_term += size.powi(3) - size;
    }
    let positive: usize = nonzero
        .iter()
        .zip(&doubled_ranks)
        .filter(|(effect, _)| **effect > 0.0)
        .map(|(_, rank)| rank)
        .sum();
    if nonzero.len() <= EXACT_MAX {
        exact_p(&doubled_ranks, positive)
    } else {
        approximate_p(nonzero.len(), tie_term, positive as f64 / 2.0)
    }
}

/// Counts for every doubled rank sum how many sign patterns reach it.
fn exact_p(doubled_ranks: &[usize], positive: usize) -> f64 {
    let mut patterns = vec![0.0; doubled_ranks.iter().sum::<usize>() + 1];
    patterns[0] = 1.0;
    for &rank in doubled_ranks {
        for sum in (rank..patterns.len()).rev() {
            patterns[sum] += patterns[sum - rank];
        }
    }
    let all = 2f64.powi(doubled_ranks.len() as i32);
    let at_most: f64 = patterns[..=positive].iter().sum();
    let at_least: f64 = patterns[positive..].iter().sum();
    (2.0 * at_most.min(at_least) / all).min(1.0)
}

fn approximate_p(n: usize, tie_term: f64, positive: f64) -> f64 {
    let n = n as f64;
    let mean = n * (n + 1.0) / 4.0;
    let variance = n * (n + 1.0) * (2.0 * n + 1.0) / 24.0 - tie_term / 48.0;
    let distance = ((positive - mean).abs() - 0.5).max(0.0);
    (2.0 * normal::upper_tail(distance / variance.sqrt())).min(1.0)
}

/// Holm's step-down correction (Scandinavian Journal of Statistics 6, 1979): the p-values of one
/// family, adjusted so that 5 % bounds the chance of any false alarm among them. Input order is
/// kept; an absent p-value stays absent and does not count as a test.
pub fn holm(family: &[Option<f64>]) -> Vec<Option<f64>> {
    let mut present: Vec<(usize, f64)> =
        family.iter().enumerate().filter_map(|(place, p)| p.map(|p| (place, p))).collect();
    present.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut adjusted = vec![None; family.len()];
    let mut floor: f64 = 0.0;
    for (done, &(place, p)) in present.iter().enumerate() {
        floor = floor.max(p * (present.len() - done) as f64).min(1.0);
        adjusted[place] = Some(floor);
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(effects: &[f64], expected: f64) {
        let found = signed_rank_p(effects);
        assert!((found / expected - 1.0).abs() < 1e-12, "{found} {expected}");
    }

    // scipy 1.17.1: stats.wilcoxon(method="exact").
    #[test]
    fn exact_p_matches_scipy_without_ties() {
        check(
            &[0.031, 0.044, -0.012, 0.058, 0.027, 0.049, 0.003, 0.071, 0.036, 0.022],
            0.005_859_375,
        );
        check(
            &[0.12, -0.40, 0.33, 0.05, 0.91, -0.07, 0.28, 0.64, 0.19, 1.75, 0.02],
            0.053_710_937_5,
        );
        check(&[2.5, -1.0, 0.5, 4.0, 1.5], 0.1875);
    }

    // scipy 1.17.1: stats.wilcoxon(method=PermutationMethod()), all sign patterns, zeros removed.
    #[test]
    fn exact_p_matches_scipy_with_ties_and_zeros() {
        check(&[1.0, 1.0, -1.0, 2.0, 2.0, 3.0, -2.0, 4.0, 0.0, 5.0], 0.082_031_25);
    }

    // scipy 1.17.1: stats.wilcoxon(zero_method="wilcox", correction=True, method="approx").
    #[test]
    fn approximate_p_matches_scipy_with_ties_and_zeros() {
        let quarters: Vec<f64> = (0..60).map(|i| f64::from(i * 37 % 101 - 38) / 4.0).collect();
        check(&quarters, 0.007_206_677_748_934_053_5);
        let coarse: Vec<f64> =
            (0..70).map(|i| f64::from((i * 37 % 101 - 50i32).div_euclid(4))).collect();
        check(&coarse, 0.689_073_766_860_990_5);
    }

    #[test]
    fn effects_that_are_all_zero_give_p_one() {
        assert_eq!(signed_rank_p(&[0.0; 9]), 1.0);
        assert_eq!(signed_rank_p(&[]), 1.0);
    }

    // statsmodels 0.15.0: multipletests(method="holm").
    #[test]
    fn holm_matches_statsmodels_and_skips_absent_tests() {
        let family = [Some(0.01), Some(0.04), None, Some(0.03), Some(0.005), Some(0.6)];
        let expected = [Some(0.04), Some(0.09), None, Some(0.09), Some(0.025), Some(0.6)];
        for (found, expected) in holm(&family).into_iter().zip(expected) {
            match (found, expected) {
                (Some(found), Some(expected)) => assert!((found - expected).abs() < 1e-12),
                (found, expected) => assert_eq!(found, expected),
            }
        }
    }

    proptest! {
        #[test]
        fn p_is_a_probability_and_ignores_which_side_is_called_base(
            effects in prop::collection::vec(-3i32..4, 0..80),
        ) {
            let effects: Vec<f64> = effects.into_iter().map(f64::from).collect();
            let mirrored: Vec<f64> = effects.iter().map(|effect| -effect).collect();
            let p = signed_rank_p(&effects);
            prop_assert!(p > 0.0 && p <= 1.0);
            prop_assert!((p - signed_rank_p(&mirrored)).abs() < 1e-12);
        }

        #[test]
        fn holm_never_lowers_a_p_value(family in prop::collection::vec(0.0f64..=1.0, 0..12)) {
            let family: Vec<_> = family.into_iter().map(Some).collect();
            for (raw, adjusted) in family.iter().zip(holm(&family)) {
                prop_assert!(*raw <= adjusted && adjusted <= Some(1.0));
            }
        }
    }
}
