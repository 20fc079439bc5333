//! Keyed hashes and chance. Both start from a seed: the same seed gives the same hashes and the same draws.

use ahash::RandomState;

/// Hashes of keys that a client cannot foresee: who could, could choose keys that all fall into one table.
#[derive(Clone, Debug)]
pub(crate) struct KeyHasher(RandomState);

impl KeyHasher {
    /// A hasher of its own for every seed.
    pub(crate) fn new(chance: &mut Chance) -> KeyHasher {
        let mut seed = || chance.draw();
        KeyHasher(RandomState::with_seeds(seed(), seed(), seed(), seed()))
    }

    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.0.hash_one(key)
    }
}

/// Draws by SplitMix64: for samples and random members, never for secrets.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of `0..end`; 0 if that is empty.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.draw()) * end as u128) >> 64) as usize
    }
}
