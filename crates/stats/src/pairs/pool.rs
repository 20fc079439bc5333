//! From pairs to one figure: a robust centre per generation, random effects over generations.
//!
//! A generation's centre is Hodges and Lehmann's ("Estimates of Location Based on Rank Tests",
//! Annals of Mathematical Statistics 34, 1963): the median of the means of all pairs of values. It
//! shrugs off 29 % of wild values and loses 5 % against the mean where there are none.
//!
//! Fresh processes differ by their memory layout, whatever they run; the centres scatter by that
//! and by the pairs' noise. The variance between generations is Paule and Mandel's ("Consensus
//! Values and Weighting Factors", Journal of Research NBS 87, 1982), never below 0; a generation
//! weighs by the inverse of its variance, so by its pairs where these scatter most and equally where
//! the generations do.
//!
//! The standard error is Hartung and Knapp's ("On Tests of the Overall Treatment Effect in
//! Meta-Analysis with Normally Distributed Responses", Statistics in Medicine 20, 2001), with
//! generations - 1 degrees of freedom. It is made from the scatter of the centres alone: noise that
//! remembers inside a generation cannot make it too small, and weights that are wrong by a factor
//! do not change it.

use std::collections::BTreeMap;

/// Makes a median absolute deviation the standard deviation of a normal sample.
const MAD_TO_SD: f64 = 1.482_602_218_505_602;

/// All generations together, on the additive scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pooled {
    pub(super) estimate: f64,
    /// `None` for a single generation.
    pub(super) error: Option<f64>,
    pub(super) generations: usize,
    /// Standard deviation of a pair inside its generation; `None` if no generation has two pairs.
    pub(super) within: Option<f64>,
    /// Standard deviation between generations; `None` for a single one.
    pub(super) between: Option<f64>,
}

/// Pools the effects of each generation; `None` without any.
pub(super) fn pool(effects: &BTreeMap<usize, Vec<f64>>) -> Option<Pooled> {
    let centres: Vec<(f64, usize)> =
        effects.values().map(|values| (hodges_lehmann(values), values.len())).collect();
    let generations = centres.len();
    if generations < 2 {
        let &(estimate, _) = centres.first()?;
        let within = within(effects, &centres);
        return Some(Pooled { estimate, error: None, generations, within, between: None });
    }
    let within = within(effects, &centres);
    let noise = within.unwrap_or(0.0).powi(2);
    let between = between(&centres, noise);
    let weights = weights(&centres, noise, between);
    let (estimate, scatter) = scatter(&centres, &weights);
    let total: f64 = weights.iter().sum();
    let error = (scatter / ((generations - 1) as f64 * total)).sqrt();
    let between = Some(between.sqrt());
    Some(Pooled { estimate, error: Some(error), generations, within, between })
}

/// The median of the means of all pairs of values, each with itself too. `values` is not empty.
fn hodges_lehmann(values: &[f64]) -> f64 {
    let mut means = Vec::with_capacity(values.len() * (values.len() + 1) / 2);
    for (place, &value) in values.iter().enumerate() {
        means.extend(values[place..].iter().map(|&other| 0.5 * value + 0.5 * other));
    }
    median(&mut means)
}

/// The middle of values in any order, which are moved about. `values` is not empty.
fn median(values: &mut [f64]) -> f64 {
    let middle = values.len() / 2;
    let even = values.len().is_multiple_of(2);
    let (below, &mut upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    if !even {
        return upper;
    }
    let lower = below.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    0.5 * lower + 0.5 * upper
}

/// The standard deviation of a pair around its generation's centre, by the median deviation.
fn within(effects: &BTreeMap<usize, Vec<f64>>, centres: &[(f64, usize)]) -> Option<f64> {
    let mut deviations: Vec<f64> = Vec::new();
    for (values, &(centre, pairs)) in effects.values().zip(centres).filter(|(v, _)| v.len() > 1) {
        // The centre follows its own values: few of them look too close to it.
        let few = (pairs as f64 / (pairs - 1) as f64).sqrt();
        deviations.extend(values.iter().map(|value| few * (value - centre).abs()));
    }
    (!deviations.is_empty()).then(|| MAD_TO_SD * median(&mut deviations))
}

/// Variance between generations: the one with which the centres scatter as they should, or 0 if
/// the pairs' noise alone explains more.
fn between(centres: &[(f64, usize)], noise: f64) -> f64 {
    let freedom = (centres.len() - 1) as f64;
    let excess = |between: f64| {
        let weights: Vec<f64> = inverse_variances(centres, noise, between).collect();
        scatter(centres, &weights).1 - freedom
    };
    let ends = centres.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &(at, _)| {
        (low.min(at), high.max(at))
    });
    let range = (ends.1 - ends.0).powi(2);
    if range <= 0.0 || (noise > 0.0 && excess(0.0) <= 0.0) {
        return 0.0;
    }
    // With this variance the centres scatter by less than 1 in all.
    let (mut low, mut high) = (0.0, range * centres.len() as f64);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if excess(middle) > 0.0 { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

fn inverse_variances(
    centres: &[(f64, usize)],
    noise: f64,
    between: f64,
) -> impl Iterator<Item = f64> {
    centres.iter().map(move |&(_, pairs)| 1.0 / (between + noise / pairs as f64))
}

/// Weights of the generations, the largest being 1: only their ratios matter, and noise of 0 has
/// no inverse.
fn weights(centres: &[(f64, usize)], noise: f64, between: f64) -> Vec<f64> {
    if between + noise <= f64::MIN_POSITIVE {
        return vec![1.0; centres.len()];
    }
    let weights: Vec<f64> = inverse_variances(centres, noise, between).collect();
    let largest = weights.iter().copied().fold(0.0, f64::max);
    weights.into_iter().map(|weight| weight / largest).collect()
}

/// Weighted mean of the centres, and their weighted sum of squares around it.
fn scatter(centres: &[(f64, usize)], weights: &[f64]) -> (f64, f64) {
    let total: f64 = weights.iter().sum();
    let mean: f64 = centres.iter().zip(weights).map(|(&(at, _), w)| at * (w / total)).sum();
    let squares = centres.iter().zip(weights).map(|(&(at, _), w)| w * (at - mean).powi(2)).sum();
    (mean, squares)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pooled(generations: &[&[f64]]) -> Pooled {
        let effects = generations.iter().map(|values| values.to_vec()).enumerate().collect();
        pool(&effects).expect("some values")
    }

    #[test]
    fn hodges_lehmann_is_the_median_of_means() {
        // Means of 0, 1, 5: 0, 0.5, 2.5, 1, 3, 5.
        assert!((hodges_lehmann(&[5.0, 0.0, 1.0]) - 1.75).abs() < 1e-12);
        assert_eq!(hodges_lehmann(&[3.0]), 3.0);
        let wild = hodges_lehmann(&[1.0, 1.1, 0.9, 1.0, 1.05, 0.95, 900.0]);
        assert!((wild - 1.0).abs() < 0.06, "{wild}");
    }

    #[test]
    fn equal_generations_give_students_interval_of_their_centres() {
        // Centres 1, 2, 3, 4 with two pairs each: standard error = sd / sqrt(4) = 0.6455.
        let found = pooled(&[&[0.9, 1.1], &[1.9, 2.1], &[2.9, 3.1], &[3.9, 4.1]]);
        assert!((found.estimate - 2.5).abs() < 1e-12);
        assert!((found.error.expect("four") - (5.0f64 / 12.0).sqrt()).abs() < 1e-9, "{found:?}");
        let between = found.between.expect("four");
        assert!((between - 1.29).abs() < 0.02, "{found:?}");
    }

    #[test]
    fn generations_count_by_their_pairs_where_pairs_scatter_most() {
        // Nothing between generations: ten pairs around 0.1 against two around -0.4.
        let many = [1.1, -0.9, 0.6, -0.4, 2.1, -1.9, 1.6, -1.4, 0.1, 0.1];
        let found = pooled(&[&many, &[0.6, -1.4]]);
        assert_eq!(found.between, Some(0.0));
        assert!((found.estimate - (10.0 * 0.1 - 2.0 * 0.4) / 12.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn generations_count_alike_where_they_scatter_most() {
        let calm = [0.0; 10].map(|zero: f64| zero);
        let found = pooled(&[&calm, &[1.0, 1.0], &[0.5, 0.5]]);
        assert!((found.estimate - 0.5).abs() < 1e-9, "{found:?}");
        assert_eq!(found.within, Some(0.0));
    }

    #[test]
    fn one_generation_has_no_error_and_equal_values_none_to_speak_of() {
        let one = pooled(&[&[1.0, 2.0]]);
        assert_eq!((one.error, one.between), (None, None));
        let equal = pooled(&[&[0.1, 0.1], &[0.1], &[0.1, 0.1, 0.1]]);
        assert!((equal.estimate - 0.1).abs() < 1e-12 && equal.error.expect("three") < 1e-12);
    }
}
