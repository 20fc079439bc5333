//! Parameters drawn from a seed, each kept by name.
//!
//! SplitMix64, salted with the kind's name: kinds draw independently of each other and of their order, and a kind with a
//! run's seed draws the same again.

use std::collections::BTreeMap;

use laneway_random::Random;

/// The parameters of one run.
#[derive(Debug)]
pub struct Draw {
    random: Random,
    seed: u64,
    drawn: BTreeMap<String, f64>,
}

impl Draw {
    /// The draws of the kind `name` in the run `seed`.
    #[must_use]
    pub fn new(name: &str, seed: u64) -> Draw {
        // FNV-1a spreads the name; the mixing of SplitMix64 does the rest.
        let salt = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Draw {
            random: Random::seeded(salt ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            seed,
            drawn: BTreeMap::new(),
        }
    }

    /// The run's seed.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// A whole number from `low` to `high`, both included, each magnitude as likely as the other: between 100 and
    /// 10,000 half of the draws are below 1,000.
    pub fn number(&mut self, name: &str, low: u64, high: u64) -> u64 {
        assert!(0 < low && low <= high, "{name}: {low} to {high} is no range");
        let (from, to) = ((low as f64).ln(), (high as f64).ln());
        let value = (from + (to - from) * self.random.unit()).exp().round() as u64;
        self.keep(name, value.clamp(low, high))
    }

    /// A share from `low` to `high`.
    pub fn share(&mut self, name: &str, low: f64, high: f64) -> f64 {
        let value = low + (high - low) * self.random.unit();
        self.drawn.insert(name.to_owned(), value);
        value
    }

    /// One of `values`; its place in the list is kept.
    pub fn pick<T: Copy>(&mut self, name: &str, values: &[T]) -> T {
        let place = ((self.random.unit() * values.len() as f64) as usize).min(values.len() - 1);
        self.keep(name, place as u64);
        values[place]
    }

    /// Keeps a value that follows from what was drawn.
    pub fn keep(&mut self, name: &str, value: u64) -> u64 {
        self.drawn.insert(name.to_owned(), value as f64);
        value
    }

    /// What was drawn, by name.
    #[must_use]
    pub fn drawn(&self) -> &BTreeMap<String, f64> {
        &self.drawn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_draws_and_another_kind_has_others() {
        let draws = |name: &str, seed| {
            let mut draw = Draw::new(name, seed);
            (0..50).map(|_| draw.number("rate", 100, 1_000_000)).collect::<Vec<_>>()
        };
        assert_eq!(draws("a", 7), draws("a", 7));
        assert_ne!(draws("a", 7), draws("a", 8));
        assert_ne!(draws("a", 7), draws("b", 7));
    }

    #[test]
    fn draws_stay_in_their_range_and_reach_all_of_it() {
        let mut draw = Draw::new("a", 1);
        let numbers: Vec<u64> = (0..2_000).map(|_| draw.number("n", 1, 4)).collect();
        assert!((1..=4).all(|n| numbers.contains(&n)) && numbers.iter().all(|n| *n <= 4));
        assert!((0..2_000).all(|_| (0.2..0.9).contains(&draw.share("s", 0.2, 0.9))));
        let picks: Vec<char> = (0..200).map(|_| draw.pick("p", &['x', 'y'])).collect();
        assert!(picks.contains(&'x') && picks.contains(&'y'));
        assert_eq!(draw.drawn().len(), 3);
    }
}
