//! The gaps of a Poisson process, for traffic that arrives at random.

use laneway_random::Random;

/// So many gaps of a Poisson process, one after the other: exponentially distributed, with a mean of exactly 1 over all
/// of them, in units of that mean. Equal seeds give equal gaps.
pub fn exponential_gaps(seed: u64, gaps: usize) -> Vec<f64> {
    let mut random = Random::seeded(seed);
    let drawn: Vec<f64> = (0..gaps).map(|_| -(1.0 - random.unit()).ln()).collect();
    let mean = drawn.iter().sum::<f64>() / gaps.max(1) as f64;
    drawn.into_iter().map(|gap| gap / mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest distance between the distribution of `values` and that of a Poisson process's gaps (Kolmogorov and
    /// Smirnov).
    fn distance_from_exponential(mut values: Vec<f64>) -> f64 {
        values.sort_by(f64::total_cmp);
        let n = values.len() as f64;
        let distances = values.iter().enumerate().map(|(i, gap)| {
            let expected = 1.0 - (-gap).exp();
            (expected - i as f64 / n).max((i + 1) as f64 / n - expected)
        });
        distances.fold(0.0, f64::max)
    }

    #[test]
    fn gaps_are_exponential_independent_and_have_their_mean() {
        // Of 16,384 a distance of 1.63 / sqrt(n) is exceeded by chance once in a hundred.
        let (n, limit) = (16_384, 1.63 / 128.0);
        for seed in 0..20 {
            let gaps = exponential_gaps(seed, n);
            assert!((gaps.iter().sum::<f64>() / n as f64 - 1.0).abs() < 1e-9);
            let neighbours = gaps.windows(2).map(|pair| (pair[0] - 1.0) * (pair[1] - 1.0));
            assert!((neighbours.sum::<f64>() / n as f64).abs() < 4.0 / 128.0, "seed {seed}");
            assert!(distance_from_exponential(gaps) < limit, "seed {seed}");
        }
        let uniform: Vec<f64> = (0..n).map(|i| 2.0 * i as f64 / n as f64).collect();
        assert!(distance_from_exponential(uniform) > limit);
        assert_ne!(exponential_gaps(1, 9), exponential_gaps(2, 9));
        assert!(exponential_gaps(1, 0).is_empty());
    }
}
