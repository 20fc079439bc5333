//! Frames in a lane's memory: who owns the bytes, who may touch them, and how they come back.
//!
//! ```text
//!   Region (one mapping: UMEM, ring, heap)     kept alive by Rc: by the lane, its bursts, each Held
//!     │  the lane pushes slots it exclusively owns
//!     ▼
//!   Burst ── frame(i) / frame_mut(i) ──▶ app borrows bytes for one call
//!     │   ── hold(i) ──▶ Held ── drop / release ──▶ HoldPool ── take_returned ──▶ lane
//!     └── settle: the lane reads slot(i) + verdict(i) and takes every frame back
//! ```
//!
//! This is the only file of the crate with `unsafe`. All of it rests on one promise, made by a lane
//! when it calls [`Burst::push`]: *the bytes of this slot are mine alone until I settle it.* Bounds
//! against the region are checked here, so a lane cannot break them by mistake.
//!
//! A frame of several buffers (AF_XDP multi-buffer) is one slot plus *tails*; the slot holds the
//! first bytes, where headers are.

use crate::Verdict;
use std::{
    any::Any,
    cell::{Cell, RefCell},
    ptr::NonNull,
    rc::Rc,
};

/// Frames per burst unless a knob says otherwise: NAPI's and AF_XDP's own unit.
pub const BURST_FRAMES_DEFAULT: usize = 64;
/// The largest burst a knob may ask for.
pub const BURST_FRAMES_MAX: usize = 1024;
/// Free bytes in front of a received frame: room for an IPv6 + UDP + VXLAN header.
pub const HEADROOM_BYTES_MIN: usize = 128;
/// Tail buffers that the frames of one burst may have together. A frame has at most 17
/// (MAX_SKB_FRAGS); a lane stops filling a burst before the tails run out.
pub const TAILS_MAX: usize = 256;

/// A stretch of memory that frames live in. Unmapped when the lane and every [`Held`] are gone.
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
        // SAFETY: every caller passes a `start` that Burst::push checked against `bytes`, so the
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

/// A reusable batch of frames lent to an app. Structure of arrays: an app that only sets verdicts
/// touches only verdicts.
pub struct Burst {
    region: Rc<Region>,
    pool: Rc<HoldPool>,
    capacity: usize,
    frame: Vec<u32>,
    room: Vec<(usize, usize)>,
    start: Vec<usize>,
    len: Vec<u32>,
    wire_len: Vec<u32>,
    ts_ns: Vec<u64>,
    verdict: Vec<Verdict>,
    /// Per frame: its tails are `tails[first..first + count]`.
    tail_span: Vec<(u16, u16)>,
    tails: Vec<Slot>,
}

impl Burst {
    /// An empty burst over `region` for at most `frames` frames.
    pub fn new(region: Rc<Region>, pool: Rc<HoldPool>, frames: usize) -> Burst {
        assert!((1..=BURST_FRAMES_MAX).contains(&frames), "burst of {frames} frames");
        Burst {
            region,
            pool,
            capacity: frames,
            frame: Vec::with_capacity(frames),
            room: Vec::with_capacity(frames),
            start: Vec::with_capacity(frames),
            len: Vec::with_capacity(frames),
            wire_len: Vec::with_capacity(frames),
            ts_ns: Vec::with_capacity(frames),
            verdict: Vec::with_capacity(frames),
            tail_span: Vec::with_capacity(frames),
            tails: Vec::with_capacity(TAILS_MAX),
        }
    }

    /// Frames in the burst.
    pub fn len(&self) -> usize {
        self.frame.len()
    }

    /// True when there is nothing to look at.
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
        let ptr = self.region.at(self.start[i]);
        // SAFETY: push checked start + len against the region; the lane promised that nobody else
        // writes the slot; `&self` keeps FrameMut and hold (both `&mut self`) away. After hold the
        // slot has length 0.
        let bytes = unsafe { std::slice::from_raw_parts(ptr, self.len[i] as usize) };
        Frame { bytes, wire_len: self.wire_len[i], ts_ns: self.ts_ns[i] }
    }

    /// The bytes of the further buffers of frame `i`, in order; empty for an ordinary frame.
    pub fn tails(&self, i: usize) -> impl Iterator<Item = &[u8]> {
        let (first, count) = self.tail_span[i];
        let span = usize::from(first)..usize::from(first) + usize::from(count);
        self.tails[span].iter().map(|tail| {
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
    pub fn verdict(&self, i: usize) -> Verdict {
        self.verdict[i]
    }

    /// Decides what happens to frame `i`. A held frame keeps its verdict: it is no longer here.
    pub fn set_verdict(&mut self, i: usize, verdict: Verdict) {
        if self.verdict[i] != Verdict::Hold && verdict != Verdict::Hold {
            self.verdict[i] = verdict;
        }
    }

    /// Takes frame `i` out of the burst for longer than this call.
    ///
    /// # Errors
    /// When the lane's hold bound is reached, the frame has tails, or it is already held. The frame
    /// then stays in the burst.
    pub fn hold(&mut self, i: usize) -> Result<Held, HoldError> {
        if self.verdict[i] == Verdict::Hold {
            return Err(HoldError::AlreadyHeld);
        }
        if self.tail_span[i].1 > 0 {
            return Err(HoldError::MultiBuffer { tails: self.tail_span[i].1 });
        }
        self.pool.take()?;
        let slot = self.slot(i);
        self.verdict[i] = Verdict::Hold;
        // From here on the bytes belong to the handle: leave nothing to look at in the burst.
        self.len[i] = 0;
        self.room[i] = (self.start[i], self.start[i]);
        Ok(Held { region: self.region.clone(), pool: self.pool.clone(), slot, settled: false })
    }

    /// Lane: forgets all frames. The lane has settled them, or never exposed them.
    pub fn clear(&mut self) {
        self.frame.clear();
        self.room.clear();
        self.start.clear();
        self.len.clear();
        self.wire_len.clear();
        self.ts_ns.clear();
        self.verdict.clear();
        self.tail_span.clear();
        self.tails.clear();
    }

    /// Lane: adds a frame, with verdict [`Verdict::Drop`].
    ///
    /// # Panics
    /// If the burst is full or the slot does not lie inside the region.
    ///
    /// # Safety
    /// Until the lane settles this slot (or gets it back from its [`HoldPool`]), nobody else - no
    /// other slot, no kernel ring, no other thread - may read or write
    /// `room_start..room_end` of the region.
    #[inline]
    pub unsafe fn push(&mut self, slot: Slot) {
        assert!(self.len() < self.capacity, "burst is full");
        self.check(&slot);
        self.frame.push(slot.frame);
        self.room.push((slot.room_start, slot.room_end));
        self.start.push(slot.start);
        self.len.push(slot.len);
        self.wire_len.push(slot.wire_len);
        self.ts_ns.push(slot.ts_ns);
        self.verdict.push(Verdict::Drop);
        self.tail_span.push((self.tails.len() as u16, 0));
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
        self.check(&slot);
        self.tail_span.last_mut().expect("a frame was pushed before its tail").1 += 1;
        self.tails.push(slot);
    }

    #[inline]
    fn check(&self, slot: &Slot) {
        let end = slot.start + slot.len as usize;
        assert!(
            slot.room_start <= slot.start
                && end <= slot.room_end
                && slot.room_end <= self.region.bytes,
            "slot outside its region: {slot:?}"
        );
    }

    /// Lane: where frame `i` lies now (an app may have moved its ends), to settle it.
    #[inline]
    pub fn slot(&self, i: usize) -> Slot {
        Slot {
            frame: self.frame[i],
            room_start: self.room[i].0,
            start: self.start[i],
            len: self.len[i],
            room_end: self.room[i].1,
            wire_len: self.wire_len[i],
            ts_ns: self.ts_ns[i],
        }
    }

    /// Lane: the tail buffers of frame `i`.
    pub fn tail_slots(&self, i: usize) -> &[Slot] {
        let (first, count) = self.tail_span[i];
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
    /// The bytes to read.
    pub fn bytes(&self) -> &[u8] {
        self.burst.frame(self.i).bytes
    }

    /// The bytes to edit.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let ptr = self.burst.region.at(self.burst.start[self.i]);
        // SAFETY: bounds were checked by push and are kept by grow_front/set_len below; `&mut
        // self` borrows the whole burst, so this is the only view of any of its frames.
        unsafe { std::slice::from_raw_parts_mut(ptr, self.burst.len[self.i] as usize) }
    }

    /// Free bytes in front of the frame.
    pub fn headroom(&self) -> usize {
        self.burst.start[self.i] - self.burst.room[self.i].0
    }

    /// The longest the frame can become without moving its start.
    pub fn len_max(&self) -> usize {
        self.burst.room[self.i].1 - self.burst.start[self.i]
    }

    /// Moves the start `bytes` towards the front; false (and nothing changed) without the room.
    #[must_use]
    pub fn grow_front(&mut self, bytes: usize) -> bool {
        if bytes > self.headroom() {
            return false;
        }
        self.burst.start[self.i] -= bytes;
        self.burst.len[self.i] += bytes as u32;
        self.burst.wire_len[self.i] += bytes as u32;
        true
    }

    /// Moves the start `bytes` towards the back; false (and nothing changed) if the frame is
    /// shorter.
    #[must_use]
    pub fn shrink_front(&mut self, bytes: usize) -> bool {
        if bytes > self.burst.len[self.i] as usize {
            return false;
        }
        self.burst.start[self.i] += bytes;
        self.burst.len[self.i] -= bytes as u32;
        self.burst.wire_len[self.i] = self.burst.wire_len[self.i].saturating_sub(bytes as u32);
        true
    }

    /// Sets the length, cutting or uncovering bytes at the end; false (and nothing changed) beyond
    /// [`FrameMut::len_max`]. The wire length follows.
    #[must_use]
    pub fn set_len(&mut self, bytes: usize) -> bool {
        if bytes > self.len_max() {
            return false;
        }
        self.burst.len[self.i] = bytes as u32;
        self.burst.wire_len[self.i] = bytes as u32;
        true
    }

    /// Decides what happens to the frame.
    pub fn set_verdict(&mut self, verdict: Verdict) {
        self.burst.set_verdict(self.i, verdict);
    }
}

/// Why a frame could not be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HoldError {
    /// Back-pressure: the app already holds as many as it may.
    #[error("{max} frames are held already; release some, or raise the lane's hold= knob")]
    Limit {
        /// The bound.
        max: usize,
    },
    /// Frames of several buffers cannot be held.
    #[error("a frame with {tails} further buffers cannot be held; copy what is needed")]
    MultiBuffer {
        /// How many buffers follow the first.
        tails: u16,
    },
    /// The frame is no longer in the burst.
    #[error("the frame is held already")]
    AlreadyHeld,
}

/// A frame that an app keeps beyond the call that lent it. Affine: no `Clone`; dropping it gives
/// the frame back to its lane, [`Held::release`] gives it back with a verdict.
pub struct Held {
    region: Rc<Region>,
    pool: Rc<HoldPool>,
    slot: Slot,
    settled: bool,
}

impl Held {
    /// The bytes to read.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: Burst::hold moved the slot here, so this handle alone refers to it; the lane gets
        // it back only through the pool; `region` keeps the memory mapped.
        unsafe {
            std::slice::from_raw_parts(self.region.at(self.slot.start), self.slot.len as usize)
        }
    }

    /// The bytes to edit.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let ptr = self.region.at(self.slot.start);
        // SAFETY: as in `bytes`; `&mut self` makes the view unique.
        unsafe { std::slice::from_raw_parts_mut(ptr, self.slot.len as usize) }
    }

    /// When it was received, in the lane's clock domain.
    pub fn ts_ns(&self) -> u64 {
        self.slot.ts_ns
    }

    /// Gives the frame back to be settled by `verdict` when the lane next settles.
    pub fn release(mut self, verdict: Verdict) {
        self.settle(verdict);
    }

    fn settle(&mut self, verdict: Verdict) {
        if !std::mem::replace(&mut self.settled, true) {
            self.pool.give_back(Returned { slot: self.slot, verdict });
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.settle(Verdict::Drop);
    }
}

/// A frame on its way back to the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returned {
    /// Where it lies.
    pub slot: Slot,
    /// What to do with it; never [`Verdict::Hold`].
    pub verdict: Verdict,
}

/// The bound on held frames of one port, and the way back.
pub struct HoldPool {
    max: usize,
    out: Cell<usize>,
    returned: RefCell<Vec<Returned>>,
}

impl HoldPool {
    /// A pool that lets at most `max` frames be away at a time.
    pub fn new(max: usize) -> Rc<HoldPool> {
        let returned = RefCell::new(Vec::with_capacity(max));
        Rc::new(HoldPool { max, out: Cell::new(0), returned })
    }

    /// Frames away now: held by the app, or returned and not yet taken by the lane.
    pub fn held(&self) -> usize {
        self.out.get()
    }

    /// Lane: takes the frames that came back since the last call. Cheap when there are none.
    pub fn take_returned(&self, mut each: impl FnMut(Returned)) {
        if self.out.get() == 0 {
            return;
        }
        for returned in self.returned.borrow_mut().drain(..) {
            self.out.set(self.out.get() - 1);
            each(returned);
        }
    }

    fn take(&self) -> Result<(), HoldError> {
        if self.out.get() >= self.max {
            return Err(HoldError::Limit { max: self.max });
        }
        self.out.set(self.out.get() + 1);
        Ok(())
    }

    fn give_back(&self, returned: Returned) {
        let verdict =
            if returned.verdict == Verdict::Hold { Verdict::Drop } else { returned.verdict };
        self.returned.borrow_mut().push(Returned { verdict, ..returned });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A burst of `n` frames of 64 bytes in buffers of 256, headroom 128; frame i is filled with i.
    fn burst(n: usize, holds: usize) -> Burst {
        let region = Region::heap(256 * n);
        let mut burst = Burst::new(region, HoldPool::new(holds), n);
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

    #[test]
    fn edits_stay_inside_their_frame() {
        let mut b = burst(3, 0);
        let mut f = b.frame_mut(1);
        assert!(f.grow_front(128) && !f.grow_front(1));
        assert!(f.set_len(256) && !f.set_len(257));
        f.bytes_mut().fill(0xff);
        assert!(b.frame(0).bytes.iter().all(|&x| x == 0));
        assert!(b.frame(2).bytes.iter().all(|&x| x == 2));
        assert_eq!(b.frame(1).wire_len, 256);
    }

    #[test]
    fn a_held_frame_leaves_the_burst_and_returns_once() {
        let mut b = burst(2, 1);
        let pool = b.pool.clone();
        let mut held = b.hold(0).unwrap();
        assert_eq!(b.verdict(0), Verdict::Hold);
        assert!(b.frame(0).bytes.is_empty() && !b.frame_mut(0).grow_front(1));
        assert!(matches!(b.hold(0), Err(HoldError::AlreadyHeld)));
        assert!(matches!(b.hold(1), Err(HoldError::Limit { max: 1 })));
        b.set_verdict(0, Verdict::Tx);
        assert_eq!(b.verdict(0), Verdict::Hold);
        held.bytes_mut()[0] = 9;
        assert_eq!(held.bytes()[..2], [9, 0]);
        held.release(Verdict::TxTo(crate::PortId(3)));
        let mut back = Vec::new();
        pool.take_returned(|r| back.push(r));
        assert_eq!(back.len(), 1);
        assert_eq!((back[0].slot.frame, back[0].slot.len), (0, 64));
        assert_eq!(back[0].verdict, Verdict::TxTo(crate::PortId(3)));
        assert_eq!(pool.held(), 0);
    }

    #[test]
    fn dropping_a_handle_returns_the_frame_as_dropped() {
        let mut b = burst(1, 1);
        drop(b.hold(0).unwrap());
        let mut verdicts = Vec::new();
        b.pool.take_returned(|r| verdicts.push(r.verdict));
        assert_eq!(verdicts, [Verdict::Drop]);
    }

    #[test]
    fn memory_outlives_the_lane_while_a_frame_is_held() {
        let held = {
            let mut b = burst(1, 1);
            b.hold(0).unwrap()
        };
        assert_eq!(held.bytes().len(), 64);
    }

    #[test]
    fn tails_follow_their_frame() {
        let mut b = burst(1, 1);
        let tail = Slot { room_start: 0, start: 0, len: 16, room_end: 16, ..Slot::default() };
        // SAFETY: bytes 0..16 are headroom of frame 0, which this test does not use.
        unsafe { b.push_tail(tail) };
        assert_eq!(b.tails(0).map(<[u8]>::len).collect::<Vec<_>>(), [16]);
        assert!(matches!(b.hold(0), Err(HoldError::MultiBuffer { tails: 1 })));
    }

    #[test]
    #[should_panic(expected = "slot outside its region")]
    fn a_slot_beyond_the_region_is_refused() {
        let mut b = Burst::new(Region::heap(64), HoldPool::new(0), 1);
        let slot = Slot { len: 65, room_end: 65, ..Slot::default() };
        // SAFETY: nothing else refers to the region; push must refuse the slot anyway.
        unsafe { b.push(slot) };
    }
}
