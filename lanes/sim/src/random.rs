//! The simulation's only source of chance: SplitMix64 (Steele, Lea, Flood 2014). Not for secrets.

/// A stream of numbers that its seed determines.
pub(crate) struct Random(u64);

impl Random {
    /// A stream of its own for each `stream` of one seed.
    pub(crate) fn new(seed: u64, stream: u64) -> Random {
        let mut root = Random(seed);
        let base = root.next();
        Random(base ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// True with `probability`; 0 is never, 1 is always.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        ((self.next() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    /// A number in `0..=max`. The modulo bias is below one in 2^40 for every span used here.
    pub(crate) fn up_to(&mut self, max: u64) -> u64 {
        self.next() % max.saturating_add(1).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_published_sequence() {
        let mut random = Random(1234567);
        let first = [random.next(), random.next(), random.next()];
        assert_eq!(first, [6457827717110365317, 3203168211198807973, 9817491932198370423]);
    }

    #[test]
    fn certain_chances_are_certain() {
        let mut random = Random::new(1, 2);
        assert!((0..1000).all(|_| random.chance(1.0)));
        assert!((0..1000).all(|_| !random.chance(0.0)));
        assert!((0..1000).all(|_| random.up_to(0) == 0));
    }
}
