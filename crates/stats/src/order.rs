//! In which order the arms of a race run.
//!
//! A block runs every arm once. Blocks come in pairs: the first of a pair is shuffled by the
//! recorded seed, the second is its reverse (ABBA). Over a pair every arm then has the same mean
//! position, so a machine that warms up or slows down steadily costs every arm the same, and the
//! shuffle keeps any arm from owning a favourable neighbour.
//!
//! Must always hold: the order is a function of arms and seed alone, so that asking for more
//! blocks only appends (the stop rule extends a race without rewriting its past).

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::{ARMS_MAX, BLOCKS_MAX};
use laneway_random::Random;

/// The running order of a race and the seed that produced it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockOrder {
    seed: u64,
    blocks: Vec<Vec<usize>>,
}

/// Why no order was made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OrderError {
    /// No arm, or more than [`ARMS_MAX`].
    #[error("a race of {0} arms has no order; give 1 to {ARMS_MAX} arms")]
    Arms(usize),
    /// No block, or more than [`BLOCKS_MAX`].
    #[error("a race of {0} blocks has no order; give 1 to {BLOCKS_MAX} blocks")]
    Blocks(usize),
}

impl BlockOrder {
    /// Orders `arms` arms over `blocks` blocks. An odd number of blocks leaves the last pair
    /// without its reverse, so prefer an even one.
    pub fn new(arms: usize, blocks: usize, seed: u64) -> Result<Self, OrderError> {
        if !(1..=ARMS_MAX).contains(&arms) {
            return Err(OrderError::Arms(arms));
        }
        if !(1..=BLOCKS_MAX).contains(&blocks) {
            return Err(OrderError::Blocks(blocks));
        }
        let mut random = Random::seeded(seed);
        let mut order: Vec<Vec<usize>> = Vec::with_capacity(blocks + 1);
        while order.len() < blocks {
            let mut first: Vec<usize> = (0..arms).collect();
            random.shuffle(&mut first);
            let second = first.iter().rev().copied().collect();
            order.push(first);
            order.push(second);
        }
        order.truncate(blocks);
        Ok(Self { seed, blocks: order })
    }

    /// The seed that this order was drawn from.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The arms of one block, first to run first. Panics past the last block, as a slice would.
    pub fn block(&self, block: usize) -> &[usize] {
        &self.blocks[block]
    }

    /// All blocks, first to run first.
    pub fn blocks(&self) -> impl ExactSizeIterator<Item = &[usize]> {
        self.blocks.iter().map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_block_runs_every_arm_once(arms in 1usize..9, blocks in 1usize..30, seed: u64) {
            let order = BlockOrder::new(arms, blocks, seed).expect("inside the limits");
            prop_assert_eq!(order.blocks().len(), blocks);
            for block in order.blocks() {
                let mut sorted = block.to_vec();
                sorted.sort_unstable();
                prop_assert_eq!(sorted, (0..arms).collect::<Vec<_>>());
            }
        }

        #[test]
        fn second_block_of_a_pair_is_the_reverse_of_the_first(arms in 1usize..9, seed: u64) {
            let order = BlockOrder::new(arms, 12, seed).expect("inside the limits");
            for pair in order.blocks.chunks(2) {
                prop_assert!(pair[0].iter().eq(pair[1].iter().rev()));
            }
        }

        #[test]
        fn asking_for_more_blocks_only_appends(few in 1usize..20, more in 0usize..20, seed: u64) {
            let short = BlockOrder::new(4, few, seed).expect("inside the limits");
            let long = BlockOrder::new(4, few + more, seed).expect("inside the limits");
            prop_assert!(long.blocks().take(few).eq(short.blocks()));
        }
    }

    #[test]
    fn pairs_are_shuffled_afresh() {
        let order = BlockOrder::new(5, 20, 1).expect("inside the limits");
        let distinct: std::collections::BTreeSet<_> = order.blocks().collect();
        assert!(distinct.len() > 10, "{distinct:?}");
    }

    #[test]
    fn no_arms_or_too_many_blocks_is_refused_by_name() {
        assert_eq!(BlockOrder::new(0, 4, 1), Err(OrderError::Arms(0)));
        assert_eq!(BlockOrder::new(2, 10_001, 1), Err(OrderError::Blocks(10_001)));
        assert_eq!(
            OrderError::Blocks(0).to_string(),
            "a race of 0 blocks has no order; give 1 to 10000 blocks"
        );
    }
}
