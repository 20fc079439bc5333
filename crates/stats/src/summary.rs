//! What a sample looks like: median, extremes, spread.
//!
//! Robust figures only: a race has a handful of blocks and now and then a stall, which a mean and
//! a standard deviation would report as the typical case. Nothing is dropped.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::VALUE_MAX;

/// Five figures of a sample, in the sample's own unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Values in the sample.
    pub n: usize,
    /// Middle value (mean of the two middle ones for an even count).
    pub median: f64,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// Median absolute deviation from the median, unscaled (not multiplied by 1.4826).
    pub mad: f64,
}

/// Why a sample has no summary.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum SampleError {
    /// There is nothing to summarise.
    #[error("the sample is empty; give at least one value")]
    Empty,
    /// A value is NaN, infinite or beyond [`VALUE_MAX`].
    #[error("value {index} of the sample is {value}; give finite values up to {VALUE_MAX:e}")]
    OutOfRange {
        /// Its place in the sample, from 0.
        index: usize,
        /// The value found.
        value: f64,
    },
    /// The asked quantile is not a share.
    #[error("quantile {0} does not exist; ask for 0 to 1")]
    Quantile(f64),
}

impl Summary {
    /// Summarises a sample in any order.
    pub fn of(sample: &[f64]) -> Result<Self, SampleError> {
        let sorted = sorted(sample)?;
        let median = median_of_sorted(&sorted);
        let mut distances: Vec<f64> = sorted.iter().map(|value| (value - median).abs()).collect();
        distances.sort_unstable_by(f64::total_cmp);
        Ok(Self {
            n: sorted.len(),
            median,
            min: sorted[0],
            max: sorted[sorted.len() - 1],
            mad: median_of_sorted(&distances),
        })
    }
}

/// The quantile `q` (0 to 1) of a sample in any order, by type 7 of Hyndman and Fan ("Sample
/// Quantiles in Statistical Packages", 1996): linear between order statistics at (n - 1) q, the
/// default of R, NumPy and this crate.
pub fn quantile(sample: &[f64], q: f64) -> Result<f64, SampleError> {
    if !(0.0..=1.0).contains(&q) {
        return Err(SampleError::Quantile(q));
    }
    Ok(quantile_of_sorted(&sorted(sample)?, q))
}

/// Type 7 quantile of a non-empty ascending sample; `q` lies in 0 to 1.
pub(crate) fn quantile_of_sorted(sorted: &[f64], q: f64) -> f64 {
    let place = (sorted.len() - 1) as f64 * q;
    let below = place.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    let between = sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64);
    // Rounding may step over the upper neighbour by one unit in the last place.
    between.min(sorted[above])
}

/// Median of a non-empty ascending sample.
pub(crate) fn median_of_sorted(sorted: &[f64]) -> f64 {
    let n = sorted.len();
    0.5 * (sorted[(n - 1) / 2] + sorted[n / 2])
}

fn sorted(sample: &[f64]) -> Result<Vec<f64>, SampleError> {
    if sample.is_empty() {
        return Err(SampleError::Empty);
    }
    if let Some((index, &value)) =
        sample.iter().enumerate().find(|(_, value)| value.is_nan() || value.abs() > VALUE_MAX)
    {
        return Err(SampleError::OutOfRange { index, value });
    }
    let mut sorted = sample.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    Ok(sorted)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SAMPLE: [f64; 11] = [0.12, -0.40, 0.33, 0.05, 0.91, -0.07, 0.28, 0.64, 0.19, 1.75, 0.02];

    // numpy 2.4.6 quantile(method="linear"), equal to scipy 1.17.1 mquantiles(alphap=1, betap=1).
    #[test]
    fn quantile_matches_numpy_and_scipy() {
        for (q, expected) in [
            (0.0, -0.4),
            (0.025, -0.3175),
            (0.1, -0.07),
            (0.5, 0.19),
            (0.9, 0.91),
            (0.975, 1.54),
            (1.0, 1.75),
        ] {
            let found = quantile(&SAMPLE, q).expect("finite sample");
            assert!((found - expected).abs() < 1e-12, "{q}: {found} {expected}");
        }
    }

    // scipy 1.17.1: stats.median_abs_deviation gives 0.17.
    #[test]
    fn summary_matches_scipy() {
        let found = Summary::of(&SAMPLE).expect("finite sample");
        assert!((found.mad - 0.17).abs() < 1e-12);
        assert_eq!((found.n, found.median, found.min, found.max), (11, 0.19, -0.4, 1.75));
    }

    #[test]
    fn absent_or_broken_values_are_refused_by_name() {
        assert_eq!(Summary::of(&[]), Err(SampleError::Empty));
        assert!(matches!(
            Summary::of(&[1.0, f64::NAN]),
            Err(SampleError::OutOfRange { index: 1, .. })
        ));
        assert!(matches!(
            quantile(&[f64::INFINITY], 0.5),
            Err(SampleError::OutOfRange { index: 0, .. })
        ));
        assert_eq!(quantile(&[1.0], 1.5), Err(SampleError::Quantile(1.5)));
    }

    proptest! {
        #[test]
        fn quantiles_rise_and_stay_between_the_extremes(
            sample in prop::collection::vec(-1e18f64..1e18, 1..40), q in 0.0f64..1.0,
        ) {
            let summary = Summary::of(&sample).expect("finite sample");
            let lower = quantile(&sample, q * 0.5).expect("finite sample");
            let upper = quantile(&sample, q).expect("finite sample");
            prop_assert!(summary.min <= lower && lower <= upper && upper <= summary.max);
            prop_assert!(summary.mad >= 0.0 && summary.mad.is_finite());
        }
    }
}
