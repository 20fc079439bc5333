//! Keyed hashes. They start from a seed: the same seed gives the same hashes.

use ahash::RandomState;
use laneway_random::Random;
use std::sync::Arc;

/// Hashes of keys that a client cannot foresee: one that could, could choose keys that all fall into one table. Shared,
/// for every collection has one.
#[derive(Clone, Debug)]
pub(crate) struct KeyHasher(Arc<RandomState>);

impl KeyHasher {
    /// A hasher of its own for every seed.
    pub(crate) fn new(chance: &mut Random) -> KeyHasher {
        let mut seed = || chance.draw();
        KeyHasher(Arc::new(RandomState::with_seeds(seed(), seed(), seed(), seed())))
    }

    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.0.hash_one(key)
    }
}
