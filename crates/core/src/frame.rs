//! Frames in a lane's memory: who owns the bytes, who may touch them, and how they come back.
//!
//! ```text
//!   Region (one mapping: UMEM, ring, heap)     kept alive by Rc: by the lane and its bursts
//!     │  the lane pushes slots it exclusively owns
//!     ▼
//!   Burst ── frame(i) / frame_mut(i) ──▶ app borrows bytes for one call
//!     └── settle: the lane reads slot(i) + verdict(i) and takes every frame back
//! ```
//!
//! This is the only file of the crate with `unsafe`. All of it rests on one promise, made by a lane
//! when it calls [`Burst::push`] or [`Burst::extend`]: *the bytes of this slot are mine alone until I
//! settle it.* Bounds against the region are checked here, so a lane cannot break them by mistake.
//!
//! What a frame costs here was measured (`examples/contract_cost.rs` of lane `dpdk`): the memory of a
//! burst is laid out once, a received burst is written in one pass, and what only some frames have
//! (tails) is written only for those.
//!
//! A frame of several buffers (AF_XDP multi-buffer) is one slot plus *tails*; the slot holds the
//! first bytes, where headers are.

use crate::Verdict;
use std::{any::Any, ptr::NonNull, rc::Rc};

/// Frames per burst unless a knob says otherwise: NAPI's and AF_XDP's own unit.
pub const BURST_FRAMES_DEFAULT: usize = 64;
/// The largest burst a knob may ask for.
pub const BURST_FRAMES_MAX: usize = 1024;
/// Free bytes in front of a received frame: room for an IPv6 + UDP + VXLAN header.
pub const HEADROOM_BYTES_MIN: usize = 128;
/// Tail buffers that the frames of one burst may have together. A frame has at most 17
/// (MAX_SKB_FRAGS); a lane stops filling a burst before the tails run out.
pub const TAILS_MAX: usize = 256;

/// A stretch of memory that frames live in. Unmapped when the lane and its bursts are gone.
pub struct Region {
    base: NonNull<u8>,
    bytes: usize,
    _owner: Box<dyn Any>,
}

impl Region {
    /// Zeroed heap memory, for lanes that copy frames out of the kernel or a file.
    pub fn heap(bytes: usize) -> Rc<Region> {
        let mut owner = vec![0u8; bytes].into_boxed_slice();
        let base = NonNull::from(&mut owner[..]).cast();
        // Kept as a raw pointer: a Box that is moved would assert that nobody else points into it.
        let owner = HeapOwner(Box::into_raw(owner));
        Rc::new(Region { base, bytes, _owner: Box::new(owner) })
    }

    /// Memory that the lane mapped itself; `owner` unmaps it when dropped.
    ///
    /// # Safety
    /// `base..base + bytes` must stay mapped, readable and writable until `owner` is dropped, and
    /// no Rust reference to it may exist outside this module.
    pub unsafe fn mapped(base: NonNull<u8>, bytes: usize, owner: Box<dyn Any>) -> Rc<Region> {
        Rc::new(Region { base, bytes, _owner: owner })
    }

    /// Length of the region in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn at(&self, start: usize) -> *mut u8 {
        debug_assert!(start <= self.bytes);
        // SAFETY: every caller passes a `start` that Slot::lies_in checked against `bytes`, so the
        // result stays inside (or one past) the mapping that `_owner` keeps alive.
        unsafe { self.base.as_ptr().add(start) }
    }
}

struct HeapOwner(*mut [u8]);

impl Drop for HeapOwner {
    fn drop(&mut self) {
        // SAFETY: the pointer came from Box::into_raw in Region::heap and is freed only here.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// Where one frame lies in its region, as the lane knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// The lane's own number for the buffer; it comes back unchanged at settle.
    pub frame: u32,
    /// First usable byte of the buffer: how far the frame may grow towards the front.
    pub room_start: usize,
    /// First byte of the frame.
    pub start: usize,
    /// Bytes of the frame in this buffer (the captured bytes, without tails).
    pub len: u32,
    /// One past the last usable byte of the buffer.
    pub room_end: usize,
    /// Bytes of the frame on the wire; more than `len` where a capture was cut, or with tails.
    pub wire_len: u32,
    /// When the frame was received, in the lane's clock domain.
    pub ts_ns: u64,
}

impl Slot {
    /// True when the frame lies in its room, and the room in a region of `bytes` bytes and within
    /// what a [`Place`] can say.
    #[inline]
    fn lies_in(&self, bytes: usize) -> bool {
        self.room_start <= self.start
            && self.start <= self.room_end
            && self.len as usize <= self.room_end - self.start
            && self.room_end <= bytes
            && self.room_end - self.room_start <= u32::MAX as usize
    }
}

/// Where a frame lies, as a burst keeps it: half a cache line, without the lane's number. For lanes
/// that describe a whole burst at once ([`Burst::extend`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// First byte of the frame.
    pub start: usize,
    /// When the frame was received, in the lane's clock domain.
    pub ts_ns: u64,
    /// Bytes of the frame in this buffer.
    pub len: u32,
    /// Bytes of the frame on the wire.
    pub wire_len: u32,
    /// Usable bytes in front of the frame.
    pub headroom: u32,
    /// From the first byte of the frame to the end of the usable bytes.
    pub len_max: u32,
}

impl Place {
    /// Of a slot that [`Slot::lies_in`] a region, which says that both differences are there and fit.
    #[inline]
    fn of(slot: &Slot) -> Place {
        Place {
            start: slot.start,
            ts_ns: slot.ts_ns,
            len: slot.len,
            wire_len: slot.wire_len,
            headroom: (slot.start - slot.room_start) as u32,
            len_max: (slot.room_end - slot.start) as u32,
        }
    }

    #[inline]
    fn slot(&self, frame: u32) -> Slot {
        Slot {
            frame,
            room_start: self.start - self.headroom as usize,
            start: self.start,
            len: self.len,
            room_end: self.start + self.len_max as usize,
            wire_len: self.wire_len,
            ts_ns: self.ts_ns,
        }
    }

    /// As [`Slot::lies_in`]. Without a branch: a burst is checked as a whole.
    #[inline]
    fn lies_in(&self, bytes: usize) -> bool {
        // As 64-bit sums of 32-bit numbers, which cannot overflow.
        let room_bytes = self.headroom as usize + self.len_max as usize;
        (self.headroom as usize <= self.start)
            & (self.len <= self.len_max)
            & (self.start.saturating_add(self.len_max as usize) <= bytes)
            // Ends may move anywhere in the room, and their distance is to fit then, too.
            & (room_bytes <= u32::MAX as usize)
    }
}

/// Where the tails of a frame are: `tails[first..first + count]`.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    first: u16,
    count: u16,
}

/// A reusable batch of frames lent to an app. Structure of arrays: an app that only sets verdicts
/// touches only verdicts, and a lane that only frees reads only numbers.
pub struct Burst {
    region: Rc<Region>,
    capacity: usize,
    // As long as the burst, all three; within the capacity that each was made with.
    frame: Vec<u32>,
    place: Vec<Place>,
    verdict: Vec<Verdict>,
    /// Nobody has decided anything but [`Verdict::Drop`].
    is_consumed: bool,
    /// By frame; as long as the capacity, and empty where a frame has no tails.
    tail_span: Box<[Span]>,
    tails: Vec<Slot>,
}

impl Burst {
    /// An empty burst over `region` for at most `frames` frames.
    pub fn new(region: Rc<Region>, frames: usize) -> Burst {
        assert!((1..=BURST_FRAMES_MAX).contains(&frames), "burst of {frames} frames");
        Burst {
            region,
            capacity: frames,
            frame: Vec::with_capacity(frames),
            place: Vec::with_capacity(frames),
            verdict: Vec::with_capacity(frames),
            is_consumed: true,
            tail_span: vec![Span::default(); frames].into_boxed_slice(),
            tails: Vec::with_capacity(TAILS_MAX),
        }
    }

    /// Frames in the burst.
    #[inline]
    pub fn len(&self) -> usize {
        self.frame.len()
    }

    /// True when there is nothing to look at.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.frame.is_empty()
    }

    /// Frames the burst can carry.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Frames that may still be pushed.
    pub fn space(&self) -> usize {
        self.capacity - self.len()
    }

    /// Tail buffers that may still be pushed.
    pub fn tail_space(&self) -> usize {
        TAILS_MAX - self.tails.len()
    }

    /// The bytes of frame `i` and what is known about it.
    #[inline]
    pub fn frame(&self, i: usize) -> Frame<'_> {
        let place = &self.place[i];
        let ptr = self.region.at(place.start);
        // SAFETY: extend checked start + len against the region; the lane promised that nobody else
        // writes the slot; `&self` keeps FrameMut (`&mut self`) away.
        let bytes = unsafe { std::slice::from_raw_parts(ptr, place.len as usize) };
        Frame { bytes, wire_len: place.wire_len, ts_ns: place.ts_ns }
    }

    /// The bytes of the further buffers of frame `i`, in order; empty for an ordinary frame.
    pub fn tails(&self, i: usize) -> impl Iterator<Item = &[u8]> {
        self.tail_slots(i).iter().map(|tail| {
            // SAFETY: push_tail checked the bounds; the lane promised exclusive ownership; `&self`
            // keeps every mutable view away.
            unsafe { std::slice::from_raw_parts(self.region.at(tail.start), tail.len as usize) }
        })
    }

    /// Frame `i` for editing in place.
    #[inline]
    pub fn frame_mut(&mut self, i: usize) -> FrameMut<'_> {
        FrameMut { burst: self, i }
    }

    /// The verdict on frame `i` so far.
    #[inline]
    pub fn verdict(&self, i: usize) -> Verdict {
        self.verdict[i]
    }

    /// True only if every verdict is [`Verdict::Drop`]: nothing goes on. Known without a look at
    /// them; a frame that was to go on and then was not leaves it false.
    #[inline]
    pub fn is_consumed(&self) -> bool {
        self.is_consumed
    }

    /// Decides what happens to frame `i`.
    #[inline]
    pub fn set_verdict(&mut self, i: usize, verdict: Verdict) {
        self.verdict[i] = verdict;
        self.is_consumed &= verdict == Verdict::Drop;
    }

    /// Lane: forgets all frames. The lane has settled them, or never exposed them.
    #[inline]
    pub fn clear(&mut self) {
        if !self.tails.is_empty() {
            self.tail_span[..self.frame.len()].fill(Span::default());
            self.tails.clear();
        }
        self.frame.clear();
        self.place.clear();
        self.verdict.clear();
        self.is_consumed = true;
    }

    /// Lane: adds a frame, with verdict [`Verdict::Drop`].
    ///
    /// # Panics
    /// If the burst is full or the slot does not lie inside the region.
    ///
    /// # Safety
    /// Until the lane settles this slot, nobody else - no other slot, no kernel ring, no other
    /// thread - may read or write `room_start..room_end` of the region.
    #[inline]
    pub unsafe fn push(&mut self, slot: Slot) {
        assert!(self.len() < self.capacity, "burst is full");
        assert!(slot.lies_in(self.region.bytes), "slot outside its region: {slot:?}");
        self.frame.push(slot.frame);
        self.place.push(Place::of(&slot));
        self.verdict.push(Verdict::Drop);
    }

    /// Lane: adds frames, by number and place, each with verdict [`Verdict::Drop`]: cheaper than one
    /// by one.
    ///
    /// # Panics
    /// If there are more than [`Burst::space`], or one does not lie inside the region; the burst is
    /// then as it was.
    ///
    /// # Safety
    /// As for [`Burst::push`], for the room of each frame.
    #[inline]
    pub unsafe fn extend(&mut self, frames: impl IntoIterator<Item = (u32, Place)>) {
        let (from, space, region_bytes) = (self.len(), self.space(), self.region.bytes);
        let mut frames = frames.into_iter();
        // Both have at least the burst's capacity, so each has `space` to spare.
        let numbers = &mut self.frame.spare_capacity_mut()[..space];
        let places = &mut self.place.spare_capacity_mut()[..space];
        let (mut count, mut fit) = (0, true);
        for ((to_number, to_place), (number, place)) in
            numbers.iter_mut().zip(places).zip(&mut frames)
        {
            fit &= place.lies_in(region_bytes);
            to_number.write(number);
            to_place.write(place);
            count += 1;
        }
        assert!(fit, "slot outside its region of {region_bytes} bytes");
        // Asked only when there is no space left: else what is there has come to its end.
        assert!(count < space || frames.next().is_none(), "burst is full");
        // SAFETY: the loop has written the first `count` of the spare elements, which are Copy.
        unsafe { self.frame.set_len(from + count) };
        // SAFETY: as above.
        unsafe { self.place.set_len(from + count) };
        self.verdict.resize(from + count, Verdict::Drop);
    }

    /// Lane: adds a further buffer to the frame pushed last.
    ///
    /// # Panics
    /// If there is no frame, no tail space, or the slot does not lie inside the region.
    ///
    /// # Safety
    /// As for [`Burst::push`].
    pub unsafe fn push_tail(&mut self, slot: Slot) {
        assert!(self.tails.len() < TAILS_MAX, "no tail space");
        assert!(slot.lies_in(self.region.bytes), "slot outside its region: {slot:?}");
        let last = self.len().checked_sub(1).expect("a frame was pushed before its tail");
        let span = &mut self.tail_span[last];
        if span.count == 0 {
            span.first = self.tails.len() as u16;
        }
        span.count += 1;
        self.tails.push(slot);
    }

    /// Lane: its own numbers of the frames, in their order.
    #[inline]
    pub fn frame_numbers(&self) -> &[u32] {
        &self.frame
    }

    /// Lane: where frame `i` lies now (an app may have moved its ends), to settle it.
    #[inline]
    pub fn slot(&self, i: usize) -> Slot {
        self.place[i].slot(self.frame[i])
    }

    /// Lane: the tail buffers of frame `i`.
    #[inline]
    pub fn tail_slots(&self, i: usize) -> &[Slot] {
        assert!(i < self.len(), "frame {i} of {}", self.len());
        let Span { first, count } = self.tail_span[i];
        &self.tails[usize::from(first)..usize::from(first) + usize::from(count)]
    }
}

/// A frame to read.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The captured bytes from the Ethernet header on (of the first buffer, see [`Burst::tails`]).
    pub bytes: &'a [u8],
    /// Length on the wire in bytes, without the frame check sequence.
    pub wire_len: u32,
    /// When it was received, in the lane's clock domain.
    pub ts_ns: u64,
}

/// A frame to edit in place. Its ends can move within the buffer's room.
pub struct FrameMut<'a> {
    burst: &'a mut Burst,
    i: usize,
}

impl FrameMut<'_> {
    fn place(&self) -> &Place {
        &self.burst.place[self.i]
    }

    fn place_mut(&mut self) -> &mut Place {
        &mut self.burst.place[self.i]
    }

    /// The bytes to read.
    pub fn bytes(&self) -> &[u8] {
        self.burst.frame(self.i).bytes
    }

    /// The bytes to edit.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let Place { start, len, .. } = *self.place();
        let ptr = self.burst.region.at(start);
        // SAFETY: bounds were checked by extend and are kept by grow_front/set_len below; `&mut
        // self` borrows the whole burst, so this is the only view of any of its frames.
        unsafe { std::slice::from_raw_parts_mut(ptr, len as usize) }
    }

    /// Free bytes in front of the frame.
    pub fn headroom(&self) -> usize {
        self.place().headroom as usize
    }

    /// The longest the frame can become without moving its start.
    pub fn len_max(&self) -> usize {
        self.place().len_max as usize
    }

    /// Moves the start `bytes` towards the front; false (and nothing changed) without the room.
    #[must_use]
    pub fn grow_front(&mut self, bytes: usize) -> bool {
        if bytes > self.headroom() {
            return false;
        }
        let place = self.place_mut();
        let by = bytes as u32;
        place.start -= bytes;
        place.headroom -= by;
        place.len_max += by;
        place.len += by;
        place.wire_len = place.wire_len.saturating_add(by);
        true
    }

    /// Moves the start `bytes` towards the back; false (and nothing changed) if the frame is
    /// shorter.
    #[must_use]
    pub fn shrink_front(&mut self, bytes: usize) -> bool {
        let place = self.place_mut();
        if bytes > place.len as usize {
            return false;
        }
        let by = bytes as u32;
        place.start += bytes;
        place.headroom += by;
        place.len_max -= by;
        place.len -= by;
        place.wire_len = place.wire_len.saturating_sub(by);
        true
    }

    /// Sets the length, cutting or uncovering bytes at the end; false (and nothing changed) beyond
    /// [`FrameMut::len_max`]. The wire length follows.
    #[must_use]
    pub fn set_len(&mut self, bytes: usize) -> bool {
        let place = self.place_mut();
        if bytes > place.len_max as usize {
            return false;
        }
        (place.len, place.wire_len) = (bytes as u32, bytes as u32);
        true
    }

    /// Decides what happens to the frame.
    pub fn set_verdict(&mut self, verdict: Verdict) {
        self.burst.set_verdict(self.i, verdict);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A burst of `n` frames of 64 bytes in buffers of 256, headroom 128; frame i is filled with i.
    fn burst(n: usize) -> Burst {
        let region = Region::heap(256 * n);
        let mut burst = Burst::new(region, n);
        for i in 0..n {
            let room = i * 256;
            let slot = Slot {
                frame: i as u32,
                room_start: room,
                start: room + 128,
                len: 64,
                room_end: room + 256,
                wire_len: 64,
                ts_ns: i as u64,
            };
            // SAFETY: slots do not overlap and nothing else refers to the region.
            unsafe { burst.push(slot) };
            burst.frame_mut(i).bytes_mut().fill(i as u8);
        }
        burst
    }

    /// No bytes, at the start of the region.
    const EMPTY: Place = Place { start: 0, ts_ns: 0, len: 0, wire_len: 0, headroom: 0, len_max: 0 };

    #[test]
    fn a_burst_is_consumed_until_something_is_to_go_on() {
        let mut b = burst(2);
        assert!(b.is_consumed());
        b.set_verdict(1, Verdict::Drop);
        assert!(b.is_consumed());
        b.set_verdict(1, Verdict::Tx);
        assert!(!b.is_consumed());
        b.clear();
        assert!(b.is_consumed());
    }

    #[test]
    fn edits_stay_inside_their_frame() {
        let mut b = burst(3);
        let mut f = b.frame_mut(1);
        assert!(f.grow_front(128) && !f.grow_front(1));
        assert!(f.set_len(256) && !f.set_len(257));
        f.bytes_mut().fill(0xff);
        assert!(b.frame(0).bytes.iter().all(|&x| x == 0));
        assert!(b.frame(2).bytes.iter().all(|&x| x == 2));
        assert_eq!(b.frame(1).wire_len, 256);
    }

    #[test]
    fn tails_follow_their_frame() {
        let mut b = burst(1);
        let tail = Slot { room_start: 0, start: 0, len: 16, room_end: 16, ..Slot::default() };
        // SAFETY: bytes 0..16 are headroom of frame 0, which this test does not use.
        unsafe { b.push_tail(tail) };
        assert_eq!(b.tails(0).map(<[u8]>::len).collect::<Vec<_>>(), [16]);
    }

    #[test]
    #[should_panic(expected = "slot outside its region")]
    fn a_slot_beyond_the_region_is_refused() {
        let mut b = Burst::new(Region::heap(64), 1);
        let slot = Slot { len: 65, room_end: 65, ..Slot::default() };
        // SAFETY: nothing else refers to the region; push must refuse the slot anyway.
        unsafe { b.push(slot) };
    }

    #[test]
    fn a_slot_that_contradicts_itself_lies_in_no_region() {
        let good = Slot { room_start: 8, start: 16, len: 4, room_end: 32, ..Slot::default() };
        assert!(good.lies_in(32) && !good.lies_in(31));
        for bad in [
            Slot { start: 7, ..good },
            Slot { start: 33, len: 0, ..good },
            Slot { len: 17, ..good },
            Slot { len: u32::MAX, ..good },
            Slot { room_start: usize::MAX, ..good },
            Slot { start: usize::MAX, ..good },
            Slot { room_end: usize::MAX, ..good },
        ] {
            assert!(!bad.lies_in(32), "{bad:?}");
        }
        let place = Place::of(&good);
        assert!(place.lies_in(32) && !place.lies_in(31));
        for bad in [
            Place { headroom: 17, ..place },
            Place { len: 17, ..place },
            Place { len: u32::MAX, len_max: u32::MAX, ..place },
            Place { start: usize::MAX, ..place },
        ] {
            assert!(!bad.lies_in(32), "{bad:?}");
        }
        // What a place cannot say, wherever its ends move.
        let wide = Place { start: 1 << 33, headroom: 1 << 31, len_max: 1 << 31, ..place };
        assert!(!wide.lies_in(1 << 40) && Place { headroom: 1, ..wide }.lies_in(1 << 40));
        let vast = Slot { room_start: 0, room_end: 1 << 33, ..good };
        assert!(!vast.lies_in(1 << 34));
    }

    #[test]
    fn a_slot_comes_back_as_it_was_pushed() {
        let region = Region::heap(256);
        let mut b = Burst::new(region, 2);
        let slot = Slot {
            frame: 7,
            room_start: 16,
            start: 64,
            len: 60,
            room_end: 200,
            wire_len: 1500,
            ts_ns: 9,
        };
        // SAFETY: nothing else refers to the region, and the test reads no bytes.
        unsafe { b.push(slot) };
        // SAFETY: as above.
        unsafe { b.extend([(8, Place::of(&slot))]) };
        assert_eq!((b.slot(0), b.slot(1)), (slot, Slot { frame: 8, ..slot }));
        assert_eq!((b.frame_numbers(), &b.verdict[..]), (&[7, 8][..], &[Verdict::Drop; 2][..]));
        assert_eq!(b.frame(0).wire_len, 1500);
    }

    #[test]
    #[should_panic(expected = "burst is full")]
    fn more_slots_than_a_burst_carries_are_refused() {
        let mut b = Burst::new(Region::heap(64), 2);
        // SAFETY: nothing else refers to the region; extend must refuse the slots anyway.
        unsafe { b.extend([(0, EMPTY); 3]) };
    }

    #[test]
    fn a_refused_burst_leaves_nothing_behind() {
        let mut b = Burst::new(Region::heap(64), 4);
        let outside = Place { len: 65, len_max: 65, ..EMPTY };
        let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // SAFETY: nothing else refers to the region; extend must refuse the slots anyway.
            unsafe { b.extend([(0, EMPTY), (1, outside)]) };
        }));
        assert!(refused.is_err() && b.is_empty() && b.verdict.is_empty());
    }

    #[test]
    fn the_tails_of_a_burst_are_not_those_of_the_next() {
        let mut b = burst(2);
        let tail = Slot { room_start: 0, start: 0, len: 16, room_end: 16, ..Slot::default() };
        // SAFETY: bytes 0..16 are headroom of frame 0, which this test does not use.
        unsafe { b.push_tail(tail) };
        assert_eq!((b.tail_slots(0).len(), b.tail_slots(1).len()), (0, 1));
        b.clear();
        // SAFETY: the burst was cleared, so nothing else refers to the region.
        unsafe { b.extend([(0, EMPTY), (1, EMPTY)]) };
        assert!(b.tail_slots(0).is_empty() && b.tail_slots(1).is_empty());
        assert_eq!(b.tail_space(), TAILS_MAX);
    }
}
