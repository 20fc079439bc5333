//! The consumer's side of the kernel's BPF ring buffer, over any memory that can play the ring.
//!
//! ```text
//!  position (ours)            produced (kernel's)
//!     │                          │
//!  ───┴──[hdr|record][hdr|record]┴───────────  a power of two of bytes, mapped twice in a row, so
//!        busy? len        discard?             that a record never wraps
//! ```
//!
//! A header is 8 bytes, its first `u32` the record's length with a busy and a discard bit; records
//! start at multiples of 8. Orders, each with its partner in `kernel/bpf/ringbuf.c`:
//! * `produced` is loaded with acquire: pairs with the kernel's `smp_store_release` of
//!   `producer_pos` after it wrote a busy header;
//! * a header is loaded with acquire: pairs with the `xchg` of the header in commit, after the
//!   program wrote the record;
//! * our position is stored with release: pairs with the kernel's `smp_load_acquire` of
//!   `consumer_pos` before it reuses the space, so our reads of the record come first.
//!
//! What must always hold: positions only grow, and space is given back only after `each` returned.
//! Does not wait, does not wake.

use std::sync::atomic::Ordering;

/// How `produced` and headers are loaded, by the mapped ring and by the loom model alike.
pub(crate) const LOOK: Ordering = Ordering::Acquire;
/// How our position is stored.
pub(crate) const GIVE_BACK: Ordering = Ordering::Release;

const BUSY: u32 = 1 << 31;
const DISCARD: u32 = 1 << 30;
const HEADER_BYTES: usize = 8;

/// Records after which the space so far is given back. Giving back dirties a cache line that the
/// producer reads, so not after each record; waiting for the end of a full ring would starve it.
const GIVE_BACK_RECORDS: usize = 64;

/// The memory of one ring.
pub(crate) trait RingMemory {
    /// Bytes of the data area: a power of two.
    fn data_bytes(&self) -> usize;
    /// The kernel's position, loaded with [`LOOK`].
    fn produced(&self) -> usize;
    /// Publishes our position with [`GIVE_BACK`].
    fn give_back(&self, position: usize);
    /// The header word at `at` (below `data_bytes`, a multiple of 8), loaded with [`LOOK`].
    fn header(&self, at: usize) -> u32;
    /// Shows `len` bytes from `at` on; they may lie in the second mapping.
    fn look<R>(&self, at: usize, len: usize, look: impl FnOnce(&[u8]) -> R) -> R;
}

/// The one consumer of a ring.
pub(crate) struct Consumer<M> {
    memory: M,
    position: usize,
}

impl<M: RingMemory> Consumer<M> {
    /// Starts at `position`, where the last consumer of the ring (if any) stopped.
    pub(crate) fn new(memory: M, position: usize) -> Self {
        Consumer { memory, position }
    }

    /// True when there is a record, even one that is still being written.
    pub(crate) fn has_any(&self) -> bool {
        self.memory.produced() != self.position
    }

    /// True when there is something that [`consume`](Self::consume) would take now.
    pub(crate) fn has_finished(&self) -> bool {
        let at = self.position & (self.memory.data_bytes() - 1);
        self.has_any() && self.memory.header(at) & BUSY == 0
    }

    /// Bytes of records that are there and not consumed, their headers included.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.memory.produced().wrapping_sub(self.position)
    }

    /// Bytes of the ring's data area.
    pub(crate) fn ring_bytes(&self) -> usize {
        self.memory.data_bytes()
    }

    /// Shows every finished record that is there now, in order, up to the first unfinished one.
    /// Returns how many were shown.
    #[inline]
    pub(crate) fn consume(&mut self, each: &mut impl FnMut(&[u8])) -> usize {
        let mask = self.memory.data_bytes() - 1;
        let produced = self.memory.produced();
        let (mut shown, mut kept) = (0, 0);
        while self.position != produced {
            let at = self.position & mask;
            let header = self.memory.header(at);
            if header & BUSY != 0 {
                break;
            }
            let len = (header & !(BUSY | DISCARD)) as usize;
            if header & DISCARD == 0 {
                self.memory.look(at + HEADER_BYTES, len, &mut *each);
                shown += 1;
            }
            self.position = self.position.wrapping_add(slot_bytes(len));
            kept += 1;
            if kept == GIVE_BACK_RECORDS {
                self.memory.give_back(self.position);
                kept = 0;
            }
        }
        if kept > 0 {
            self.memory.give_back(self.position);
        }
        shown
    }
}

/// Ring bytes that a record of `len` bytes takes, header included.
pub(crate) fn slot_bytes(len: usize) -> usize {
    (len + HEADER_BYTES).next_multiple_of(8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::{Cell, RefCell};

    /// A ring in ordinary memory with the kernel's side as methods. One thread, so plain cells.
    struct Plain {
        data: RefCell<Vec<u8>>,
        produced: Cell<usize>,
        consumed: Cell<usize>,
        /// How often space was given back.
        returns: Cell<usize>,
    }

    impl Plain {
        fn new(bytes: usize, position: usize) -> Self {
            Plain {
                data: RefCell::new(vec![0xee; bytes]),
                produced: Cell::new(position),
                consumed: Cell::new(position),
                returns: Cell::new(0),
            }
        }

        fn write(&self, position: usize, bytes: &[u8]) {
            let mut data = self.data.borrow_mut();
            let mask = data.len() - 1;
            for (i, byte) in bytes.iter().enumerate() {
                data[position.wrapping_add(i) & mask] = *byte;
            }
        }

        /// Takes space as `bpf_ringbuf_reserve` does; `None` when the ring is full.
        fn reserve(&self, len: usize) -> Option<usize> {
            let at = self.produced.get();
            let end = at.wrapping_add(slot_bytes(len));
            if end.wrapping_sub(self.consumed.get()) > self.data_bytes() {
                return None;
            }
            self.write(at, &(len as u32 | BUSY).to_ne_bytes());
            self.produced.set(end);
            Some(at)
        }

        fn submit(&self, at: usize, record: &[u8]) {
            self.write(at.wrapping_add(HEADER_BYTES), record);
            self.write(at, &(record.len() as u32).to_ne_bytes());
        }

        fn discard(&self, at: usize, len: usize) {
            self.write(at, &(len as u32 | DISCARD).to_ne_bytes());
        }
    }

    impl RingMemory for &Plain {
        fn data_bytes(&self) -> usize {
            self.data.borrow().len()
        }
        fn produced(&self) -> usize {
            self.produced.get()
        }
        fn give_back(&self, position: usize) {
            self.consumed.set(position);
            self.returns.set(self.returns.get() + 1);
        }
        fn header(&self, at: usize) -> u32 {
            let data = self.data.borrow();
            u32::from_ne_bytes(data[at..at + 4].try_into().expect("four bytes"))
        }
        fn look<R>(&self, at: usize, len: usize, look: impl FnOnce(&[u8]) -> R) -> R {
            let data = self.data.borrow();
            let twice: Vec<u8> = data.iter().chain(data.iter()).copied().collect();
            look(&twice[at..at + len])
        }
    }

    fn take(consumer: &mut Consumer<&Plain>) -> Vec<Vec<u8>> {
        let mut records = Vec::new();
        consumer.consume(&mut |r: &[u8]| records.push(r.to_vec()));
        records
    }

    #[test]
    fn stops_at_the_first_unfinished_record_and_goes_on_later() {
        let ring = Plain::new(256, 0);
        let mut consumer = Consumer::new(&ring, 0);
        let (a, b, c) = (ring.reserve(5), ring.reserve(3), ring.reserve(4));
        ring.submit(a.unwrap(), b"first");
        ring.submit(c.unwrap(), b"last");
        assert_eq!(take(&mut consumer), [b"first"]);
        assert!(consumer.has_any(), "an unfinished record counts");
        assert!(!consumer.has_finished(), "what stands behind it cannot be taken");
        ring.submit(b.unwrap(), b"mid");
        assert_eq!(take(&mut consumer), [&b"mid"[..], b"last"]);
        assert!(!consumer.has_any() && !consumer.has_finished());
        assert_eq!(ring.consumed.get(), ring.produced.get());
    }

    #[test]
    fn discarded_records_are_skipped_and_their_space_returns() {
        let ring = Plain::new(64, 0);
        let mut consumer = Consumer::new(&ring, 0);
        ring.discard(ring.reserve(24).unwrap(), 24);
        ring.submit(ring.reserve(1).unwrap(), b"x");
        assert!(consumer.has_finished(), "a discarded record can be taken");
        assert_eq!(take(&mut consumer), [b"x"]);
        assert_eq!(ring.consumed.get(), 32 + 16);
    }

    #[test]
    fn space_returns_every_few_records_and_at_the_end() {
        let ring = Plain::new(4096, 0);
        for _ in 0..GIVE_BACK_RECORDS * 2 + 1 {
            ring.submit(ring.reserve(8).unwrap(), b"8 bytes!");
        }
        assert_eq!(take(&mut Consumer::new(&ring, 0)).len(), GIVE_BACK_RECORDS * 2 + 1);
        assert_eq!(ring.returns.get(), 3);
    }

    #[test]
    fn an_empty_ring_gives_nothing_back() {
        let ring = Plain::new(64, 0);
        assert!(take(&mut Consumer::new(&ring, 0)).is_empty());
        assert_eq!(ring.returns.get(), 0);
    }

    proptest! {
        /// Any mix of lengths, discards and consumption, across the wrap of the ring and of the
        /// position itself: what was submitted comes out, once, in order.
        #[test]
        fn everything_submitted_comes_out_in_order(
            steps in prop::collection::vec((1usize..40, 0u8..4), 1..200),
            start in prop::sample::select(vec![0usize, 48, usize::MAX - 63]),
        ) {
            let ring = Plain::new(256, start);
            let mut consumer = Consumer::new(&ring, start);
            let (mut sent, mut seen) = (Vec::new(), Vec::new());
            for (i, (len, kind)) in steps.into_iter().enumerate() {
                match (kind, (kind > 0).then(|| ring.reserve(len)).flatten()) {
                    (1, Some(at)) => ring.discard(at, len),
                    (_, Some(at)) => {
                        let record = vec![i as u8; len];
                        ring.submit(at, &record);
                        sent.push(record);
                    }
                    (_, None) => seen.extend(take(&mut consumer)),
                }
            }
            seen.extend(take(&mut consumer));
            prop_assert_eq!(sent, seen);
        }
    }
}

/// The orders above, checked by loom over all interleavings: loom reports a record that is read
/// while it is written, or overwritten while it is read.
#[cfg(test)]
mod model {
    use super::*;
    use loom::{
        cell::UnsafeCell,
        sync::{
            Arc,
            atomic::{AtomicU32, AtomicUsize},
        },
        thread,
    };

    /// Two slots of one 8-byte record each.
    const SLOTS: usize = 2;
    const SLOT_BYTES: usize = 16;
    const RECORDS: u8 = 3;

    struct Shared {
        headers: [AtomicU32; SLOTS],
        records: [UnsafeCell<[u8; 8]>; SLOTS],
        produced: AtomicUsize,
        consumed: AtomicUsize,
    }

    impl RingMemory for Arc<Shared> {
        fn data_bytes(&self) -> usize {
            SLOTS * SLOT_BYTES
        }
        fn produced(&self) -> usize {
            self.produced.load(LOOK)
        }
        fn give_back(&self, position: usize) {
            self.consumed.store(position, GIVE_BACK);
        }
        fn header(&self, at: usize) -> u32 {
            self.headers[at / SLOT_BYTES].load(LOOK)
        }
        fn look<R>(&self, at: usize, len: usize, look: impl FnOnce(&[u8]) -> R) -> R {
            self.records[at / SLOT_BYTES].with(|record| {
                // SAFETY: loom checks that no thread writes while this closure runs.
                let record = unsafe { &*record };
                look(&record[..len])
            })
        }
    }

    /// The kernel's side: reserve, let the program write, commit. Its position is passed in and
    /// not loaded from `produced`: loom remembers one last access per atomic, so a load by the
    /// producer would hide the consumer's from it, and it would try a single interleaving.
    fn produce(ring: &Shared, position: &mut usize, n: u8) -> bool {
        let at = *position;
        let consumed = ring.consumed.load(Ordering::Acquire);
        if at + SLOT_BYTES - consumed > SLOTS * SLOT_BYTES {
            return false;
        }
        let slot = at / SLOT_BYTES % SLOTS;
        ring.headers[slot].store(8 | BUSY, Ordering::Relaxed);
        *position = at + SLOT_BYTES;
        ring.produced.store(*position, Ordering::Release);
        ring.records[slot].with_mut(|record| {
            // SAFETY: loom checks that no thread reads while this closure runs.
            unsafe { *record = [n; 8] };
        });
        ring.headers[slot].swap(8, Ordering::AcqRel);
        true
    }

    #[test]
    fn records_arrive_whole_once_and_in_order() {
        let tried = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = std::sync::Arc::clone(&tried);
        loom::model(move || {
            count.fetch_add(1, Ordering::Relaxed);
            let ring = Arc::new(Shared {
                headers: std::array::from_fn(|_| AtomicU32::new(0)),
                records: std::array::from_fn(|_| UnsafeCell::new([0; 8])),
                produced: AtomicUsize::new(0),
                consumed: AtomicUsize::new(0),
            });
            let producer = {
                let ring = Arc::clone(&ring);
                thread::spawn(move || {
                    let mut position = 0;
                    (1..=RECORDS).filter(|&n| produce(&ring, &mut position, n)).count()
                })
            };
            let mut seen = Vec::new();
            let mut consumer = Consumer::new(Arc::clone(&ring), 0);
            let mut take = |record: &[u8]| {
                assert!(record.iter().all(|b| *b == record[0]), "torn: {record:?}");
                seen.push(record[0]);
            };
            consumer.consume(&mut take);
            consumer.consume(&mut take);
            let produced = producer.join().unwrap();
            consumer.consume(&mut take);
            assert_eq!(seen.len(), produced);
            assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "{seen:?}");
        });
        let tried = tried.load(Ordering::Relaxed);
        assert!(tried > 100, "only {tried} interleavings: the model checks nothing");
    }
}
