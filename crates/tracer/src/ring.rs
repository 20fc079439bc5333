//! The ring between a worker and the drainer: one producer, one consumer, two words per record.
//!
//! ```text
//!   consumed (consumer's)          produced (producer's)
//!       │                              │
//!   ────┴──[record][record]...[record]─┴────────   a power of two of slots; positions only grow
//! ```
//!
//! Orders, each with its partner here:
//! * `produced` is stored with release after the slot was written: pairs with the consumer's acquire
//!   load before it reads the slot;
//! * `consumed` is stored with release after slots were read: pairs with the producer's acquire load
//!   before it writes them again.
//!
//! Slots are atomics with relaxed order, so no interleaving is undefined and no `unsafe` is needed; on the
//! machines we run on they are plain moves. The producer looks at `consumed` only when the ring seems full,
//! so an event touches no cache line that the consumer writes.
//!
//! A full ring refuses, and goes on refusing until a quarter of it is free: few long holes can be reported and
//! left out of statistics, many short ones cannot.
//!
//! What must always hold: `produced - consumed` is at most the number of slots. Does not wait.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

/// An atomic word: the CPU's, or the model checker's.
pub(crate) trait Word: Send + Sync {
    fn new(value: u64) -> Self;
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
}

impl Word for AtomicU64 {
    fn new(value: u64) -> Self {
        AtomicU64::new(value)
    }
    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }
    #[inline]
    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }
}

/// On cache lines of its own (prefetchers take two at a time).
#[repr(align(128))]
struct Alone<T>(T);

struct Shared<W> {
    slots: Box<[[W; 2]]>,
    produced: Alone<W>,
    consumed: Alone<W>,
    /// Records refused so far.
    lost: W,
    /// The producer is gone and will write no more.
    closed: AtomicBool,
}

/// Two ends of a new ring of `slots` records, a power of two.
pub(crate) fn ring<W: Word>(slots: usize) -> (Producer<W>, Consumer<W>) {
    assert!(slots.is_power_of_two(), "the session has checked the size");
    let shared = Arc::new(Shared {
        slots: (0..slots).map(|_| [W::new(0), W::new(0)]).collect(),
        produced: Alone(W::new(0)),
        consumed: Alone(W::new(0)),
        lost: W::new(0),
        closed: AtomicBool::new(false),
    });
    let producer = Producer {
        shared: Arc::clone(&shared),
        produced: 0,
        limit: slots as u64,
        refusing: false,
        lost: 0,
    };
    (producer, Consumer { shared, consumed: 0 })
}

/// The worker's end.
pub(crate) struct Producer<W: Word = AtomicU64> {
    shared: Arc<Shared<W>>,
    produced: u64,
    /// Up to where slots are known to be free.
    limit: u64,
    /// The ring was full and is not a quarter free again.
    refusing: bool,
    lost: u64,
}

impl<W: Word> Producer<W> {
    /// Writes one record; false if it was refused, and counted, because the ring is full.
    #[inline]
    pub(crate) fn push(&mut self, words: [u64; 2]) -> bool {
        if self.produced == self.limit && !self.make_room() {
            return self.refuse();
        }
        let mask = self.shared.slots.len() - 1;
        let slot = &self.shared.slots[self.produced as usize & mask];
        slot[0].store(words[0], Ordering::Relaxed);
        slot[1].store(words[1], Ordering::Relaxed);
        self.produced += 1;
        // Pairs with the acquire in `Consumer::take`.
        self.shared.produced.0.store(self.produced, Ordering::Release);
        true
    }

    /// Counts a record that its writer gave up.
    #[cold]
    pub(crate) fn refuse(&mut self) -> bool {
        self.lost += 1;
        // Relaxed: a count that is read after the end of the producer, or as a hint.
        self.shared.lost.store(self.lost, Ordering::Relaxed);
        false
    }

    /// Looks again how far the consumer is.
    #[cold]
    fn make_room(&mut self) -> bool {
        // Pairs with the release in `Consumer::take`.
        let consumed = self.shared.consumed.0.load(Ordering::Acquire);
        let slots = self.shared.slots.len() as u64;
        let free = slots - (self.produced - consumed);
        let wanted = if self.refusing { (slots / 4).max(1) } else { 1 };
        self.refusing = free < wanted;
        if !self.refusing {
            self.limit = consumed + slots;
        }
        !self.refusing
    }

    /// Records refused so far.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }
}

impl<W: Word> Drop for Producer<W> {
    fn drop(&mut self) {
        // Pairs with the acquire in `Consumer::is_closed`: a reader that sees it sees every record and the count.
        self.shared.closed.store(true, Ordering::Release);
    }
}

/// The drainer's end.
pub(crate) struct Consumer<W: Word = AtomicU64> {
    shared: Arc<Shared<W>>,
    consumed: u64,
}

impl<W: Word> Consumer<W> {
    /// Shows at most `max` records that are there now, in order; gives how many.
    pub(crate) fn take(&mut self, max: usize, mut each: impl FnMut([u64; 2])) -> usize {
        // Pairs with the release in `Producer::push`.
        let produced = self.shared.produced.0.load(Ordering::Acquire);
        let until = produced.min(self.consumed.saturating_add(max as u64));
        let mask = self.shared.slots.len() - 1;
        let taken = until - self.consumed;
        while self.consumed != until {
            let slot = &self.shared.slots[self.consumed as usize & mask];
            each([slot[0].load(Ordering::Relaxed), slot[1].load(Ordering::Relaxed)]);
            self.consumed += 1;
        }
        if taken > 0 {
            // Pairs with the acquire in `Producer::make_room`.
            self.shared.consumed.0.store(self.consumed, Ordering::Release);
        }
        taken as usize
    }

    /// The producer is gone: what is there now is all.
    pub(crate) fn is_closed(&self) -> bool {
        // Pairs with the release in the producer's drop.
        self.shared.closed.load(Ordering::Acquire)
    }

    /// Records refused so far; exact once the producer is gone.
    pub(crate) fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn take(consumer: &mut Consumer<AtomicU64>, max: usize) -> Vec<u64> {
        let mut seen = Vec::new();
        consumer.take(max, |words| {
            assert_eq!(words[1], !words[0], "two words of one record");
            seen.push(words[0]);
        });
        seen
    }

    #[test]
    fn a_full_ring_refuses_counts_and_waits_for_a_quarter() {
        let (mut producer, mut consumer) = ring::<AtomicU64>(8);
        let pushed: Vec<bool> = (0..10).map(|n| producer.push([n, !n])).collect();
        assert_eq!(pushed.iter().filter(|&&kept| kept).count(), 8);
        assert_eq!(take(&mut consumer, 1), [0]);
        assert!(!producer.push([10, !10]), "one free slot is less than a quarter");
        assert_eq!(take(&mut consumer, 1), [1]);
        assert!(producer.push([11, !11]));
        assert_eq!((producer.lost(), consumer.lost()), (3, 3));
        assert_eq!(take(&mut consumer, 100), [2, 3, 4, 5, 6, 7, 11]);
    }

    #[test]
    fn the_end_of_the_producer_is_seen_after_its_last_record() {
        let (mut producer, mut consumer) = ring::<AtomicU64>(2);
        producer.push([1, !1]);
        assert!(!consumer.is_closed());
        drop(producer);
        assert!(consumer.is_closed());
        assert_eq!(take(&mut consumer, 9), [1]);
    }

    proptest! {
        /// Across many wraps: what was accepted comes out once and in order, what was refused is counted.
        #[test]
        fn what_was_accepted_comes_out_once_and_in_order(
            steps in prop::collection::vec((0u64..40, 0usize..40), 1..60),
        ) {
            let (mut producer, mut consumer) = ring::<AtomicU64>(16);
            let (mut next, mut accepted, mut seen) = (0u64, Vec::new(), Vec::new());
            for (pushes, takes) in steps {
                for _ in 0..pushes {
                    if producer.push([next, !next]) {
                        accepted.push(next);
                    }
                    next += 1;
                }
                seen.extend(take(&mut consumer, takes));
            }
            seen.extend(take(&mut consumer, usize::MAX));
            prop_assert_eq!(accepted.len() as u64 + consumer.lost(), next);
            prop_assert_eq!(accepted, seen);
        }
    }
}

/// The orders above, checked by loom over all interleavings: a record read before it was written, or
/// overwritten before it was read, shows as a wrong word.
#[cfg(test)]
mod model {
    use super::*;
    use loom::thread;
    use std::sync::atomic::AtomicUsize;

    impl Word for loom::sync::atomic::AtomicU64 {
        fn new(value: u64) -> Self {
            Self::new(value)
        }
        fn load(&self, order: Ordering) -> u64 {
            self.load(order)
        }
        fn store(&self, value: u64, order: Ordering) {
            self.store(value, order);
        }
    }

    #[test]
    fn records_arrive_whole_once_and_in_order() {
        let tried = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&tried);
        loom::model(move || {
            count.fetch_add(1, Ordering::Relaxed);
            let (mut producer, mut consumer) = ring::<loom::sync::atomic::AtomicU64>(2);
            let worker = thread::spawn(move || {
                let kept = (1..=4u64).filter(|&n| producer.push([n, !n])).count();
                (kept, producer)
            });
            let mut seen = Vec::new();
            let mut take = |words: [u64; 2]| {
                assert_eq!(words[1], !words[0], "torn");
                seen.push(words[0]);
            };
            consumer.take(1, &mut take);
            consumer.take(2, &mut take);
            let (kept, producer) = worker.join().unwrap();
            consumer.take(9, &mut take);
            assert_eq!(kept, seen.len());
            assert_eq!(kept as u64 + producer.lost(), 4);
            assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "{seen:?}");
        });
        let tried = tried.load(Ordering::Relaxed);
        assert!(tried > 20, "only {tried} interleavings: the model checks nothing");
    }
}
