//! The one seeded generator of the tree: SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
//! generators", OOPSLA 2014; reference code in the public domain at prng.di.unimi.it).
//!
//! Simulations, resampling, samples of a store, traffic and tests draw from it. It is written out here because a
//! recorded seed must give the same numbers for as long as result files live, whatever a dependency decides about its
//! default generator. Equal seeds give equal numbers on every machine. Not for secrets: the state follows from one
//! draw.
#![forbid(unsafe_code)]

/// Successive states differ by this: the golden section of 2^64, odd, so that every state occurs once.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
/// Keeps the streams of one seed apart; any odd number without a pattern does.
const STREAM: u64 = 0xd1b5_4a32_d192_ed03;

/// A stream of numbers that its seed determines.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The stream of `seed`; every number is a good seed.
    pub const fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// One of many streams of one seed, each of which goes its own way.
    pub const fn stream(seed: u64, number: u64) -> Self {
        Self(mixed(seed.wrapping_add(STEP)) ^ number.wrapping_mul(STREAM))
    }

    /// The next number, uniform over all of 64 bits.
    pub const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mixed(self.0)
    }

    /// A number of `0..limit`; 0 if that is empty. The bias is below `limit` / 2^64.
    pub const fn below(&mut self, limit: u64) -> u64 {
        ((self.draw() as u128 * limit as u128) >> 64) as u64
    }

    /// A place in a list of `len`; 0 if that is empty.
    pub const fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Uniform in 0 to 1, without 1; 53 bits.
    pub fn unit(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in `low` to `high`.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// True with `probability`; 0 is never, 1 is always.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Standard normal (Box and Muller; the second value is not kept, so that a draw is a draw).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// True half of the time.
    pub const fn is_heads(&mut self) -> bool {
        self.draw() >> 63 == 1
    }

    /// One of them, each as likely as another; there is at least one.
    pub fn one_of<'a, T: ?Sized>(&mut self, them: &[&'a T]) -> &'a T {
        them[self.index(them.len())]
    }

    /// Every order of `values` is as likely as any other (Fisher and Yates).
    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for last in (1..values.len()).rev() {
            values.swap(last, self.index(last + 1));
        }
    }
}

/// Mixes 64 bits so that each depends on all; one to one.
pub const fn mixed(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_published_sequence() {
        let mut random = Random::seeded(1_234_567);
        let first = [random.draw(), random.draw(), random.draw(), random.draw()];
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
        ];
        assert_eq!(first, published);
    }

    #[test]
    fn certain_chances_are_certain_and_empty_ranges_give_0() {
        let mut random = Random::stream(1, 2);
        assert!((0..1000).all(|_| random.chance(1.0)));
        assert!((0..1000).all(|_| !random.chance(0.0)));
        assert_eq!((random.below(0), random.index(0), random.below(1)), (0, 0, 0));
    }

    #[test]
    fn draws_reach_every_outcome_about_equally() {
        let (mut random, mut seen) = (Random::seeded(3), [0u32; 7]);
        for _ in 0..70_000 {
            seen[random.index(7)] += 1;
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

    #[test]
    fn a_shuffle_keeps_what_it_has_and_every_place_gets_each() {
        let (mut random, mut first) = (Random::seeded(8), [0u32; 4]);
        for _ in 0..4_000 {
            let mut values = [0, 1, 2, 3];
            random.shuffle(&mut values);
            first[values[0]] += 1;
            values.sort_unstable();
            assert_eq!(values, [0, 1, 2, 3]);
        }
        assert!(first.iter().all(|&count| count.abs_diff(1_000) < 140), "{first:?}");
    }

    #[test]
    fn streams_of_one_seed_and_those_of_neighbours_differ() {
        let first = |seed, number| Random::stream(seed, number).draw();
        assert_ne!(first(1, 0), first(1, 1));
        assert_ne!(first(1, 0), first(2, 0));
    }
}
