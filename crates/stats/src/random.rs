//! The crate's only source of randomness: xoshiro256** seeded through SplitMix64 ([`laneway_random`]).
//!
//! Both are by Blackman and Vigna ("Scrambled Linear Pseudorandom Number Generators", ACM TOMS
//! 47:4, 2021; reference code in the public domain at prng.di.unimi.it). They are written out
//! here because a recorded seed must give the same order and the same interval for as long as
//! result files live, whatever a dependency decides about its default generator.
//! Not for secrets.

/// A seeded generator; equal seeds give equal streams on every machine.
pub(crate) struct Random {
    state: [u64; 4],
}

impl Random {
    pub(crate) fn seeded(seed: u64) -> Self {
        let mut words = laneway_random::Random::seeded(seed);
        Self { state: std::array::from_fn(|_| words.draw()) }
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let out = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// Uniform in `0..bound`, without modulo bias (Lemire, "Fast random integer generation in an
    /// interval", 2019). `bound` is above zero.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "a draw needs at least one outcome");
        let bound = bound as u64;
        loop {
            let wide = u128::from(self.next_u64()) * u128::from(bound);
            let (high, low) = ((wide >> 64) as u64, wide as u64);
            // The remainder costs a division, so it is only computed where it could matter.
            if low >= bound || low >= bound.wrapping_neg() % bound {
                return high as usize;
            }
        }
    }

    /// Uniform in the open interval (0, 1), 53 bits.
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.next_u64() >> 11) as f64 + 0.5) * (1.0 / (1u64 << 53) as f64)
    }

    /// Standard normal (Box-Muller; the second value is thrown away to keep the stream simple).
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.unit().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Fisher-Yates, in place.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// So many gaps of a Poisson process, one after the other: exponentially distributed, with a mean of exactly 1 over all
/// of them, in units of that mean. Equal seeds give equal gaps.
pub fn exponential_gaps(seed: u64, gaps: usize) -> Vec<f64> {
    let mut random = Random::seeded(seed);
    let drawn: Vec<f64> = (0..gaps).map(|_| -random.unit().ln()).collect();
    let mean = drawn.iter().sum::<f64>() / gaps.max(1) as f64;
    drawn.into_iter().map(|gap| gap / mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Both vectors come from an independent Python transcription of the published algorithms.
    #[test]
    fn splitmix64_matches_the_published_sequence() {
        assert_eq!(
            Random::seeded(1_234_567).state,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431
            ]
        );
    }

    #[test]
    fn xoshiro256_starstar_matches_the_published_sequence() {
        let mut random = Random { state: [1, 2, 3, 4] };
        let drawn: [u64; 6] = std::array::from_fn(|_| random.next_u64());
        assert_eq!(
            drawn,
            [
                11_520,
                0,
                1_509_978_240,
                1_215_971_899_390_074_240,
                1_216_172_134_540_287_360,
                607_988_272_756_665_600
            ]
        );
    }

    #[test]
    fn bounded_draws_reach_every_outcome_about_equally() {
        let mut random = Random::seeded(3);
        let mut seen = [0u32; 7];
        for _ in 0..70_000 {
            seen[random.below(7)] += 1;
        }
        // Five standard deviations of a binomial(70000, 1/7) are 463.
        assert!(seen.iter().all(|&count| count.abs_diff(10_000) < 463), "{seen:?}");
    }

    #[test]
    fn normal_draws_have_mean_zero_and_unit_spread() {
        let mut random = Random::seeded(5);
        let drawn: Vec<f64> = (0..100_000).map(|_| random.normal()).collect();
        let mean = drawn.iter().sum::<f64>() / 1e5;
        let variance = drawn.iter().map(|x| x * x).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.016 && (variance - 1.0).abs() < 0.023, "{mean} {variance}");
    }

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
