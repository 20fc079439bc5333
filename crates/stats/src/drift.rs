//! Whether values in time order rise or fall, and by how much: the test of Mann and Kendall, and the slope of Theil and
//! Sen.
//!
//! Both look at pairs of values only (which of the two is larger, and how steep the way between them), so neither one
//! wild value nor the shape of the spread decides; Mann, "Nonparametric Tests Against Trend" (Econometrica 13:3, 1945),
//! Sen, "Estimates of the Regression Coefficient Based on Kendall's Tau" (JASA 63:324, 1968). They assume that values
//! are independent beside the trend: give means of stretches that are long against what neighbours share.

use crate::normal::upper_tail;
use crate::quantile;
use serde::{Deserialize, Serialize};

/// Fewest values for the normal distribution of the test's sum to hold.
const VALUES_MIN: usize = 8;

/// A trend in positive values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// Values.
    pub n: usize,
    /// From the first to the last along the slope, as a share: 0.05 is 5 % more at the end.
    pub change: f64,
    /// How often chance alone gives as clear a trend, either way (Mann-Kendall, two-sided).
    pub p: f64,
}

impl Drift {
    /// Of `values` in time order; `None` of fewer than 8, or where one is not above 0 or not finite.
    pub fn of(values: &[f64]) -> Option<Drift> {
        let n = values.len();
        let is_sound = values.iter().all(|value| value.is_finite() && *value > 0.0);
        if n < VALUES_MIN || !is_sound {
            return None;
        }
        let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
        let mut slopes = Vec::with_capacity(n * (n - 1) / 2);
        let mut sum = 0.0;
        for (late, log) in logs.iter().enumerate() {
            for (early, before) in logs[..late].iter().enumerate() {
                slopes.push((log - before) / (late - early) as f64);
                sum += (log - before).partial_cmp(&0.0).map_or(0.0, |order| f64::from(order as i8));
            }
        }
        let slope = quantile(&slopes, 0.5).ok()?;
        let spread = variance(&logs).sqrt();
        // The sum moves in steps of two: half a step towards none makes the normal distribution fit.
        let score = if spread > 0.0 { (f64::abs(sum) - 1.0).max(0.0) / spread } else { 0.0 };
        let change = (slope * (n - 1) as f64).exp_m1();
        Some(Drift { n, change, p: (2.0 * upper_tail(score)).min(1.0) })
    }
}

/// Of the sum of the signs of all pairs, were there no trend; equal values count less.
fn variance(values: &[f64]) -> f64 {
    let part = |n: f64| n * (n - 1.0) * (2.0 * n + 5.0);
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let ties = sorted.chunk_by(|a, b| a == b).map(|tied| part(tied.len() as f64));
    (part(values.len() as f64) - ties.sum::<f64>()) / 18.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_random::Random;

    fn drifting(n: usize, change: f64, noise: f64, seed: u64) -> Vec<f64> {
        let mut random = Random::seeded(seed);
        let along = |i: usize| (1.0f64 + change).ln() * i as f64 / (n - 1) as f64;
        (0..n).map(|i| 300.0 * (along(i) + noise * random.normal()).exp()).collect()
    }

    #[test]
    fn a_steady_rise_is_found_with_its_size() {
        let found = Drift::of(&drifting(20, 0.10, 0.0, 1)).unwrap();
        assert!((found.change - 0.10).abs() < 1e-9 && found.p < 1e-6, "{found:?}");
        let falls = Drift::of(&drifting(20, -0.10, 0.01, 1)).unwrap();
        assert!((falls.change + 0.10).abs() < 0.02 && falls.p < 1e-4, "{falls:?}");
        let mut wild = drifting(20, 0.10, 0.005, 2);
        wild[3] *= 40.0;
        let found = Drift::of(&wild).unwrap();
        assert!((found.change - 0.10).abs() < 0.03 && found.p < 0.01, "{found:?}");
    }

    #[test]
    fn noise_alone_is_called_a_trend_no_oftener_than_it_may_be() {
        for n in [8, 12, 30] {
            let calls = (0..2_000)
                .filter(|&seed| Drift::of(&drifting(n, 0.0, 0.05, seed)).unwrap().p < 0.05);
            // Five standard deviations above 100 of 2,000.
            assert!(calls.count() < 149, "{n} values");
        }
    }

    #[test]
    fn what_is_tied_short_or_broken_has_no_trend() {
        let equal = Drift::of(&[7.0; 9]).unwrap();
        assert_eq!((equal.change, equal.p), (0.0, 1.0));
        assert_eq!(Drift::of(&drifting(7, 0.5, 0.0, 1)), None);
        assert_eq!(Drift::of(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.0, 8.0]), None);
        // By hand: of 28 pairs 25 rise, 2 fall, 1 is tied; (23 - 1) / sqrt((1176 - 18) / 18) = 2.743.
        let values = [1.0, 3.0, 2.0, 4.0, 4.0, 6.0, 5.0, 8.0];
        let found = Drift::of(&values).unwrap();
        assert!((variance(&values.map(f64::ln)) - 64.333).abs() < 1e-3);
        assert!((0.0060..0.0062).contains(&found.p), "{found:?}");
    }
}
