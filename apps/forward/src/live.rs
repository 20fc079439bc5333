//! What became of the frames so far, for clients that ask while it runs.
//!
//! Each worker has a slot that it alone writes, at its ticks and without waiting; a reader adds the
//! slots up. So the answer is up to a tick old (100 ms on lane `xdp`, where the kernel's counters are
//! read that often), and asking costs a worker nothing.

use crate::fate::Stats;
use std::sync::{Arc, Mutex, PoisonError};

/// The slots of all workers of a run.
#[derive(Clone, Debug, Default)]
pub struct LiveStats(Arc<Mutex<Vec<StatsSlot>>>);

/// Where one worker says what became of its frames.
#[derive(Clone, Debug, Default)]
pub struct StatsSlot(Arc<Mutex<Stats>>);

impl LiveStats {
    /// A slot for one more worker. What it says stays when the worker has ended.
    pub fn slot(&self) -> StatsSlot {
        let slot = StatsSlot::default();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(slot.clone());
        slot
    }

    /// What all workers have published last, together.
    pub fn sum(&self) -> Stats {
        let mut sum = Stats::default();
        for slot in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            sum.add(&slot.0.lock().unwrap_or_else(PoisonError::into_inner));
        }
        sum
    }
}

impl StatsSlot {
    /// Publishes it, unless a client is reading just now: the next tick comes soon.
    pub(crate) fn publish(&self, stats: &Stats) {
        if let Ok(mut shown) = self.0.try_lock() {
            shown.clone_from(stats);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fate;

    #[test]
    fn workers_are_added_up_and_each_says_its_latest() {
        let live = LiveStats::default();
        let (first, second) = (live.slot(), live.slot());
        let mut stats = Stats::default();
        stats.count(Fate::Forwarded);
        first.publish(&stats);
        stats.count(Fate::Forwarded);
        stats.queue_frames[3] = 5;
        first.publish(&stats);
        second.publish(&stats);
        let sum = live.sum();
        assert_eq!((sum.frames(Fate::Forwarded), sum.queue_frames[3]), (4, 10));
    }
}
