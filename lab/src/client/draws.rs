//! What a client draws, request by request.

use laneway_random::Random;

/// Bytes that contents are cut from, beyond the longest request; a power of two.
pub(super) const POOL_BYTES: usize = 1 << 16;

/// What a client draws, request by request.
#[derive(Clone, Debug)]
pub(super) struct Draws(Random);

impl Draws {
    pub(super) const fn seeded(seed: u64) -> Draws {
        Draws(Random::seeded(seed))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0.draw()
    }

    /// The place and the length of the next piece of the pool, between these two lengths.
    pub(super) fn piece(&mut self, [least, most]: [u32; 2]) -> (usize, usize) {
        let draw = self.next();
        // The high half is scaled to the range (Lemire, 2019): what is uneven by that is below 2^-16.
        let span = u64::from(most - least) + 1;
        let length = u64::from(least) + (((draw >> 32) * span) >> 32);
        (draw as usize % POOL_BYTES, length as usize)
    }

    /// A number from 0 to below 1.
    pub(super) fn share(&mut self) -> f64 {
        self.0.unit()
    }
}
