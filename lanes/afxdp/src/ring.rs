//! One single-producer single-consumer ring, as AF_XDP defines it: two free-running 32-bit indices
//! and a power of two of slots, shared with the kernel.
//!
//! Assumes that the other side keeps the same protocol and that nothing else uses our side. What
//! must always hold: the producer writes only slots from `producer` up to `consumer + entries`, the
//! consumer reads only slots from `consumer` up to `producer`; a slot changes hands when an index is
//! *stored with release* by one side and *loaded with acquire* by the other:
//!
//! ```text
//!   fill, tx:        we write slot, store producer (release)  ──▶  kernel loads producer (acquire), reads
//!                    we load consumer (acquire)               ◀──  kernel stores consumer (release)
//!   completion, rx:  kernel writes slot, stores producer      ──▶  we load producer (acquire), read slot
//!                    kernel loads consumer (acquire)          ◀──  we store consumer (release)
//! ```
//!
//! Each side works on private copies of the indices and touches the shared ones once per burst. The exception is
//! [`Producer::push_front`], for a kernel that reads the ring only during calls of this thread. The
//! memory is a trait so that the same protocol code runs on the kernel's mapping, on the heap under
//! Miri, and on loom's model of memory. What it does not do: system calls, and knowing what slots mean.

use std::{
    any::Any,
    marker::PhantomData,
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering, fence},
};

/// In a ring's flags: the kernel sleeps and wants a system call (`XDP_RING_NEED_WAKEUP`).
const RING_NEED_WAKEUP: u32 = 1;

/// Where a ring's indices and slots are. Indices run freely and wrap at 2^32; slots are addressed by
/// index and the memory masks it.
pub(crate) trait RingMemory<T> {
    /// Slots; a power of two.
    fn entries(&self) -> u32;
    /// The producer's index, acquired: pairs with the release in `store_producer` of the other side.
    fn load_producer(&self) -> u32;
    /// Publishes what was written before, by release.
    fn store_producer(&self, index: u32);
    /// The consumer's index, acquired: pairs with the release in `store_consumer` of the other side.
    fn load_consumer(&self) -> u32;
    /// Gives back what was read before, by release.
    fn store_consumer(&self, index: u32);
    /// The ring's flags, read after everything that this side stored is visible to the other.
    ///
    /// The kernel raises a flag and then looks at the producer index once more; we store the index
    /// and then look at the flag. Without a full fence in between both could read the old value.
    fn flags_after_stores(&self) -> u32;
    /// Reads the slot of `index`.
    ///
    /// # Safety
    /// The slot belongs to the caller's side by the protocol above.
    unsafe fn read(&self, index: u32) -> T;
    /// Writes the slot of `index`.
    ///
    /// # Safety
    /// As for [`read`](Self::read).
    unsafe fn write(&self, index: u32, value: T);
}

/// A ring in ordinary or mapped memory.
pub(crate) struct SharedMemory<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    slots: NonNull<T>,
    entries: u32,
    _owner: Box<dyn Any>,
    _slots: PhantomData<T>,
}

impl<T: Copy> SharedMemory<T> {
    /// A ring over memory that `owner` keeps alive.
    ///
    /// # Safety
    /// Until `owner` is dropped: the three index pointers are valid, aligned atomics, `slots` points
    /// to `entries` aligned, initialised `T` for which every bit pattern is valid, and besides this
    /// value exactly one other side, keeping the module's protocol, uses them.
    pub(crate) unsafe fn new(
        [producer, consumer, flags]: [NonNull<AtomicU32>; 3],
        slots: NonNull<T>,
        entries: u32,
        owner: Box<dyn Any>,
    ) -> Self {
        assert!(entries.is_power_of_two(), "a ring of {entries} entries");
        SharedMemory {
            producer,
            consumer,
            flags,
            slots,
            entries,
            _owner: owner,
            _slots: PhantomData,
        }
    }

    fn atomic(&self, index: NonNull<AtomicU32>) -> &AtomicU32 {
        // SAFETY: `new`'s caller promised a valid, aligned atomic for as long as `_owner`, which
        // lives as long as `self`.
        unsafe { index.as_ref() }
    }

    fn slot(&self, index: u32) -> *mut T {
        let at = (index & (self.entries - 1)) as usize;
        // SAFETY: the mask keeps `at` below `entries`, which `new`'s caller promised are there.
        unsafe { self.slots.as_ptr().add(at) }
    }
}

impl<T: Copy> RingMemory<T> for SharedMemory<T> {
    fn entries(&self) -> u32 {
        self.entries
    }

    #[inline]
    fn load_producer(&self) -> u32 {
        self.atomic(self.producer).load(Ordering::Acquire)
    }

    #[inline]
    fn store_producer(&self, index: u32) {
        self.atomic(self.producer).store(index, Ordering::Release);
    }

    #[inline]
    fn load_consumer(&self) -> u32 {
        self.atomic(self.consumer).load(Ordering::Acquire)
    }

    #[inline]
    fn store_consumer(&self, index: u32) {
        self.atomic(self.consumer).store(index, Ordering::Release);
    }

    #[inline]
    fn flags_after_stores(&self) -> u32 {
        // Pairs with the kernel's barrier between raising the flag and its second look.
        fence(Ordering::SeqCst);
        self.atomic(self.flags).load(Ordering::Relaxed)
    }

    #[inline]
    unsafe fn read(&self, index: u32) -> T {
        // SAFETY: `slot` is in bounds; the caller owns it by the protocol, so nothing writes it now.
        unsafe { self.slot(index).read() }
    }

    #[inline]
    unsafe fn write(&self, index: u32, value: T) {
        // SAFETY: `slot` is in bounds; the caller owns it by the protocol, so nothing else uses it.
        unsafe { self.slot(index).write(value) }
    }
}

/// Our side of the fill and transmit rings.
pub(crate) struct Producer<T, M: RingMemory<T> = SharedMemory<T>> {
    memory: M,
    /// The next slot to write; what lies before is written, not all of it published.
    next: u32,
    /// The last published value of `next`.
    published: u32,
    /// A lower bound of the consumer's index; ahead of the shared one after [`took_unshown`](Self::took_unshown).
    consumed: u32,
    _slots: PhantomData<T>,
}

impl<T: Copy, M: RingMemory<T>> Producer<T, M> {
    /// The producing side of `memory`, from where its indices stand.
    pub(crate) fn new(memory: M) -> Self {
        let (next, consumed) = (memory.load_producer(), memory.load_consumer());
        Producer { memory, next, published: next, consumed, _slots: PhantomData }
    }

    /// Slots that may be pushed now, reading the shared index only if `want` seem not to be there.
    #[inline]
    pub(crate) fn space(&mut self, want: u32) -> u32 {
        let entries = self.memory.entries();
        if entries - self.next.wrapping_sub(self.consumed) < want {
            self.look();
        }
        entries - self.next.wrapping_sub(self.consumed)
    }

    /// Writes one slot, unseen by the other side until [`publish`](Self::publish); false when full.
    #[inline]
    #[must_use]
    pub(crate) fn push(&mut self, value: T) -> bool {
        if self.space(1) == 0 {
            return false;
        }
        // SAFETY: space() > 0 means next < consumed + entries with `consumed` acquired from the
        // consumer, so it has let go of this slot, and it was not published since.
        unsafe { self.memory.write(self.next, value) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Lets the other side see what was pushed.
    #[inline]
    pub(crate) fn publish(&mut self) {
        if self.published != self.next {
            self.memory.store_producer(self.next);
            self.published = self.next;
        }
    }

    /// Takes note of the index that the other side shows, unless it is known to be further already.
    fn look(&mut self) {
        let shown = self.memory.load_consumer();
        if shown.wrapping_sub(self.consumed) <= self.memory.entries() {
            self.consumed = shown;
        }
    }

    /// The other side has taken `slots` more of the published ones than its index shows.
    pub(crate) fn took_unshown(&mut self, slots: u32) {
        let taken = slots.min(self.waiting());
        self.consumed = self.consumed.wrapping_add(taken);
    }

    /// Writes one slot in front of those that the other side has not taken, which move back by one; false when full.
    ///
    /// # Safety
    /// The other side reads no slot during this call, and what is known of its place is exact.
    #[must_use]
    pub(crate) unsafe fn push_front(&mut self, value: T) -> bool {
        self.look();
        if self.space(1) == 0 {
            return false;
        }
        let mut index = self.next;
        while index != self.consumed {
            let before = index.wrapping_sub(1);
            // SAFETY: consumed <= before < next, so it was written, and only this side writes.
            let moved = unsafe { self.memory.read(before) };
            // SAFETY: `index` is free (it is `next`, and there is space) or was moved on already, and the other side
            // reads none now, as the caller promises.
            unsafe { self.memory.write(index, moved) };
            index = before;
        }
        // SAFETY: as above.
        unsafe { self.memory.write(index, value) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Published slots that the other side has not taken yet.
    pub(crate) fn waiting(&mut self) -> u32 {
        self.look();
        self.published.wrapping_sub(self.consumed)
    }

    /// The value of the published slot `i` that the other side has not taken yet, oldest first. For
    /// accounting of what it will not take.
    pub(crate) fn left(&mut self, i: u32) -> Option<T> {
        if i >= self.waiting() {
            return None;
        }
        // SAFETY: only this side writes slots, and the other side only reads them.
        Some(unsafe { self.memory.read(self.consumed.wrapping_add(i)) })
    }

    /// The value `back` slots before the consumer's index (1 is the slot taken last), as long as it
    /// has not been overwritten. For accounting of what the other side reports about it.
    pub(crate) fn taken(&mut self, back: u32) -> Option<T> {
        self.look();
        let index = self.consumed.wrapping_sub(back);
        if back == 0 || self.next.wrapping_sub(index) > self.memory.entries() {
            return None;
        }
        // SAFETY: only this side writes slots, and the other side only reads them.
        Some(unsafe { self.memory.read(index) })
    }

    /// True when the kernel asks for a system call after [`publish`](Self::publish).
    #[inline]
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.memory.flags_after_stores() & RING_NEED_WAKEUP != 0
    }
}

/// Our side of the receive and completion rings.
pub(crate) struct Consumer<T, M: RingMemory<T> = SharedMemory<T>> {
    memory: M,
    /// The next slot to read.
    next: u32,
    /// The last released value of `next`.
    released: u32,
    /// The producer's index as last seen.
    produced: u32,
    _slots: PhantomData<T>,
}

impl<T: Copy, M: RingMemory<T>> Consumer<T, M> {
    /// The consuming side of `memory`, from where its indices stand.
    pub(crate) fn new(memory: M) -> Self {
        let next = memory.load_consumer();
        Consumer { memory, next, released: next, produced: next, _slots: PhantomData }
    }

    /// Looks at the shared index and returns how many slots may be read. Only this makes slots
    /// readable, so that a burst ends somewhere and its time stamp covers all of it.
    #[inline]
    pub(crate) fn refresh(&mut self) -> u32 {
        self.produced = self.memory.load_producer();
        self.produced.wrapping_sub(self.next)
    }

    /// The value `ahead` slots after the next one, without taking it.
    #[inline]
    pub(crate) fn peek(&self, ahead: u32) -> Option<T> {
        if self.produced.wrapping_sub(self.next) <= ahead {
            return None;
        }
        // SAFETY: next + ahead < produced, acquired from the producer, so the slot is written; it
        // is not given back before `release`.
        Some(unsafe { self.memory.read(self.next.wrapping_add(ahead)) })
    }

    /// Takes the next value; its slot stays ours until [`release`](Self::release).
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        let value = self.peek(0)?;
        self.next = self.next.wrapping_add(1);
        Some(value)
    }

    /// Gives the slots of everything taken back to the other side.
    #[inline]
    pub(crate) fn release(&mut self) {
        if self.released != self.next {
            self.memory.store_consumer(self.next);
            self.released = self.next;
        }
    }
}

#[cfg(test)]
pub(crate) mod heap {
    //! A ring on the heap, for tests that play the kernel.
    use super::*;
    use std::{cell::UnsafeCell, rc::Rc};

    struct HeapRing<T> {
        indices: [AtomicU32; 3],
        slots: UnsafeCell<Vec<T>>,
    }

    /// The two sides of a fresh ring whose indices start at `start`.
    pub(crate) fn ring<T: Copy + Default + 'static>(
        entries: u32,
        start: u32,
    ) -> (Producer<T>, Consumer<T>) {
        let ring = Rc::new(HeapRing {
            indices: [AtomicU32::new(start), AtomicU32::new(start), AtomicU32::new(0)],
            slots: UnsafeCell::new(vec![T::default(); entries as usize]),
        });
        let side = || {
            // SAFETY: no reference to the vector exists besides this short one.
            let slots = unsafe { &mut *ring.slots.get() }.as_mut_ptr();
            let indices = ring.indices.each_ref().map(NonNull::from);
            let slots = NonNull::new(slots).expect("a vector with entries has an address");
            // SAFETY: the Rc keeps both alive; exactly two sides are made, one of each kind.
            unsafe { SharedMemory::new(indices, slots, entries, Box::new(ring.clone())) }
        };
        (Producer::new(side()), Consumer::new(side()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pushed_is_seen_only_when_published_and_looked_for() {
        let (mut producer, mut consumer) = heap::ring::<u64>(4, 0);
        assert!(producer.push(7));
        assert_eq!((consumer.refresh(), consumer.pop()), (0, None));
        producer.publish();
        assert_eq!(consumer.pop(), None);
        assert_eq!((consumer.refresh(), consumer.pop()), (1, Some(7)));
    }

    #[test]
    fn a_full_ring_refuses_until_the_consumer_releases() {
        let (mut producer, mut consumer) = heap::ring::<u64>(2, 0);
        assert!(producer.push(1) && producer.push(2) && !producer.push(3));
        producer.publish();
        assert_eq!((consumer.refresh(), consumer.pop()), (2, Some(1)));
        assert!(!producer.push(3));
        consumer.release();
        assert!(producer.push(3) && !producer.push(4));
    }

    #[test]
    fn indices_wrap_past_the_end_of_32_bits() {
        let (mut producer, mut consumer) = heap::ring::<u64>(4, u32::MAX - 1);
        for round in 0..8u64 {
            for i in 0..3 {
                assert!(producer.push(round * 3 + i));
            }
            producer.publish();
            assert_eq!((producer.waiting(), consumer.refresh()), (3, 3));
            for i in 0..3 {
                assert_eq!(consumer.pop(), Some(round * 3 + i));
            }
            assert_eq!(consumer.pop(), None);
            consumer.release();
        }
    }

    #[test]
    fn peeking_takes_nothing() {
        let (mut producer, mut consumer) = heap::ring::<u64>(4, 0);
        assert!(producer.push(1) && producer.push(2));
        producer.publish();
        consumer.refresh();
        assert_eq!((consumer.peek(1), consumer.peek(2)), (Some(2), None));
        assert_eq!(consumer.pop(), Some(1));
    }

    #[test]
    fn the_slot_taken_last_can_be_looked_up() {
        let (mut producer, mut consumer) = heap::ring::<u64>(4, 0);
        assert!(producer.push(10) && producer.push(11));
        producer.publish();
        consumer.refresh();
        assert_eq!((consumer.pop(), consumer.pop()), (Some(10), Some(11)));
        consumer.release();
        assert_eq!((producer.taken(1), producer.taken(2)), (Some(11), Some(10)));
        for value in 12..16 {
            assert!(producer.push(value));
        }
        assert_eq!(producer.taken(1), None, "overwritten");
    }

    mod properties {
        use super::super::heap;
        use proptest::prelude::*;
        use std::collections::VecDeque;

        #[derive(Clone, Copy, Debug)]
        enum Step {
            Push,
            Publish,
            Refresh,
            Pop,
            Release,
        }

        fn step() -> impl Strategy<Value = Step> {
            prop_oneof![
                3 => Just(Step::Push),
                1 => Just(Step::Publish),
                1 => Just(Step::Refresh),
                3 => Just(Step::Pop),
                1 => Just(Step::Release),
            ]
        }

        proptest! {
            #![proptest_config(ProptestConfig {
                cases: if cfg!(miri) { 4 } else { 512 },
                failure_persistence: None,
                ..ProptestConfig::default()
            })]

            /// Both sides against a queue: what was published arrives once and in order, a push is
            /// refused exactly when every slot is in use, wherever the indices stand.
            #[test]
            fn a_ring_is_a_bounded_queue_of_what_was_published(
                entries in (0..4u32).prop_map(|shift| 1 << shift),
                start in prop_oneof![any::<u32>(), u32::MAX - 8..=u32::MAX],
                steps in prop::collection::vec(step(), 1..if cfg!(miri) { 50 } else { 300 }),
            ) {
                let (mut producer, mut consumer) = heap::ring::<u64>(entries, start);
                // Where a value goes next, from push to release.
                let mut unpublished = VecDeque::new();
                let mut published = VecDeque::new();
                let mut seen = VecDeque::new();
                let (mut unreleased, mut pushed) = (0, 0u64);
                for step in steps {
                    match step {
                        Step::Push => {
                            let used = unpublished.len() + published.len() + seen.len() + unreleased;
                            let free = entries - used as u32;
                            prop_assert_eq!(producer.space(entries), free);
                            prop_assert_eq!(producer.push(pushed), free > 0);
                            if free > 0 {
                                unpublished.push_back(pushed);
                                pushed += 1;
                            }
                        }
                        Step::Publish => {
                            producer.publish();
                            published.append(&mut unpublished);
                        }
                        Step::Refresh => {
                            seen.append(&mut published);
                            prop_assert_eq!(consumer.refresh(), seen.len() as u32);
                        }
                        Step::Pop => {
                            let last = seen.len().saturating_sub(1) as u32;
                            prop_assert_eq!(consumer.peek(last), seen.back().copied());
                            let expected = seen.pop_front();
                            prop_assert_eq!(consumer.pop(), expected);
                            unreleased += usize::from(expected.is_some());
                        }
                        Step::Release => {
                            consumer.release();
                            unreleased = 0;
                        }
                    }
                    let not_taken = (published.len() + seen.len() + unreleased) as u32;
                    prop_assert_eq!(producer.waiting(), not_taken);
                }
            }
        }
    }

    /// The protocol under loom: every interleaving of two threads with C11 ordering. Slots are loom
    /// cells, so that a read that overlaps a write fails the model.
    #[cfg(not(miri))]
    mod model {
        use super::super::{Consumer, Producer, RING_NEED_WAKEUP, RingMemory};
        use loom::{
            cell::UnsafeCell,
            sync::{
                Arc,
                atomic::{AtomicU32, fence},
            },
            thread,
        };
        use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

        const ENTRIES: u32 = 2;

        struct LoomRing {
            producer: AtomicU32,
            consumer: AtomicU32,
            flags: AtomicU32,
            slots: [UnsafeCell<u64>; ENTRIES as usize],
        }

        /// An empty ring that is about to wrap.
        fn ring() -> Arc<LoomRing> {
            Arc::new(LoomRing {
                producer: AtomicU32::new(u32::MAX),
                consumer: AtomicU32::new(u32::MAX),
                flags: AtomicU32::new(0),
                slots: [UnsafeCell::new(0), UnsafeCell::new(0)],
            })
        }

        impl LoomRing {
            fn slot(&self, index: u32) -> &UnsafeCell<u64> {
                &self.slots[(index % ENTRIES) as usize]
            }
        }

        impl RingMemory<u64> for Arc<LoomRing> {
            fn entries(&self) -> u32 {
                ENTRIES
            }
            fn load_producer(&self) -> u32 {
                self.producer.load(Acquire)
            }
            fn store_producer(&self, index: u32) {
                self.producer.store(index, Release);
            }
            fn load_consumer(&self) -> u32 {
                self.consumer.load(Acquire)
            }
            fn store_consumer(&self, index: u32) {
                self.consumer.store(index, Release);
            }
            fn flags_after_stores(&self) -> u32 {
                fence(SeqCst);
                self.flags.load(Relaxed)
            }
            unsafe fn read(&self, index: u32) -> u64 {
                // SAFETY: loom checks that no write overlaps; that is the point of the model.
                self.slot(index).with(|slot| unsafe { *slot })
            }
            unsafe fn write(&self, index: u32, value: u64) {
                // SAFETY: as above.
                self.slot(index).with_mut(|slot| unsafe { *slot = value });
            }
        }

        #[test]
        fn every_interleaving_delivers_every_value_once_and_in_order() {
            const VALUES: u64 = 3;
            loom::model(|| {
                let ring = ring();
                let mut producer = Producer::new(ring.clone());
                let mut consumer = Consumer::new(ring);
                let sender = thread::spawn(move || {
                    for value in 1..=VALUES {
                        while !producer.push(value) {
                            thread::yield_now();
                        }
                        producer.publish();
                    }
                });
                for value in 1..=VALUES {
                    while consumer.refresh() == 0 {
                        thread::yield_now();
                    }
                    assert_eq!(consumer.pop(), Some(value));
                    consumer.release();
                }
                sender.join().expect("the sender does not panic");
                assert_eq!(consumer.refresh(), 0);
            });
        }

        #[test]
        fn no_interleaving_lets_the_kernel_sleep_over_a_published_slot() {
            loom::model(|| {
                let ring = ring();
                let mut producer = Producer::new(ring.clone());
                let mut consumer = Consumer::new(ring.clone());
                let kernel = thread::spawn(move || {
                    ring.flags.store(RING_NEED_WAKEUP, Relaxed);
                    fence(SeqCst);
                    consumer.refresh() > 0
                });
                assert!(producer.push(1));
                producer.publish();
                let wakes = producer.needs_wakeup();
                let saw = kernel.join().expect("the kernel does not panic");
                assert!(saw || wakes, "the slot would lie there until the next burst");
            });
        }
    }
}
