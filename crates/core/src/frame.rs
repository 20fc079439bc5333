//! Frames in a lane's memory: which side owns the bytes, which may touch them, and how they come back.
//!
//! ```text
//!   Region (one mapping: UMEM, ring, heap)     kept alive by Rc: by the lane and its bursts
//!     │  the lane adds frames it exclusively owns
//!     ▼
//!   Burst ── frame(i) / frame_mut(i) ──▶ app borrows bytes for one call
//!     └── settle: the lane reads span(i) + verdict(i) and takes every frame back
//! ```
//!
//! This is the only file of the crate with `unsafe`. All of it rests on one promise, made by a lane
//! when it calls [`Burst::extend`]: *the rooms of these frames are mine alone until I settle them.*
//! Bounds against the region are checked here, so a lane cannot break them by mistake.
//!
//! A burst's memory is laid out once, its frames are written in one pass, its tails only where there
//! are any: `lanes/dpdk/examples/contract_cost.rs` of lane `dpdk` measures that.
//!
//! A frame of several buffers (AF_XDP multi-buffer) is one span plus *tails*; the span covers the
//! first bytes, where headers are. A lane that copies its frames needs no promise: see [`FramePool`].
//! Frames that leave with new heads in front of parts of received ones are in `gather`.

use crate::{
    PortId, Verdict,
    gather::{GATHERED_MAX, Gathered, Gathers},
};
use std::{any::Any, ops::Range, ptr::NonNull, rc::Rc};

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
        // Kept as a raw pointer: a Box that is moved would assert that nothing else points into it.
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
        // SAFETY: every caller passes a `start` that FrameSpan::lies_in checked against `bytes`, so the
        // result stays inside (or one past) the mapping that `_owner` keeps alive.
        unsafe { self.base.as_ptr().add(start) }
    }
}

struct HeapOwner(*mut [u8]);

impl Drop for HeapOwner {
    fn drop(&mut self) {
        // SAFETY: the pointer is from Box::into_raw in Region::heap and is freed only here.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// Where a frame lies in its region: half a cache line. The lane's number for it stands beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameSpan {
    /// First byte of the frame.
    pub start: usize,
    /// When the frame was received, in the lane's clock domain.
    pub ts_ns: u64,
    /// Bytes of the frame in this buffer (the captured bytes, without tails).
    pub len: u32,
    /// Bytes of the frame on the wire; more than `len` where a capture was cut, or with tails.
    pub wire_len: u32,
    /// Usable bytes in front of the frame: how far it may grow towards the front.
    pub headroom: u32,
    /// From the first byte of the frame to the end of the usable bytes.
    pub len_max: u32,
}

impl FrameSpan {
    /// The frame lies in its room, the room in a region of `bytes` bytes.
    #[inline]
    fn lies_in(&self, bytes: usize) -> bool {
        self.excess(bytes) >= 0
    }

    /// Negative if the frame leaves its room, or the room a region of `bytes` bytes, at most `isize::MAX`.
    /// The sign is that of any of five differences, so the signs of a burst are joined without a branch or
    /// a flag per bound, and looked at once.
    #[inline]
    fn excess(&self, bytes: usize) -> i64 {
        let (headroom, len_max) = (i64::from(self.headroom), i64::from(self.len_max));
        // A start or an end beyond i64 is negative itself, with any differences.
        let start = self.start as i64;
        let end = start.wrapping_add(len_max);
        let behind = (bytes as i64).wrapping_sub(end);
        let ahead = start.wrapping_sub(headroom);
        let grown = len_max - i64::from(self.len);
        // Ends may move anywhere in the room, and their distance is to fit a length then, too.
        let width = i64::from(u32::MAX) - (headroom + len_max);
        start | end | behind | ahead | grown | width
    }
}

/// Where the tails of a frame are: `tails[first..first + count]`.
#[derive(Clone, Copy, Debug, Default)]
struct TailRange {
    first: u16,
    count: u16,
}

/// A reusable batch of frames that an app borrows for one call. Structure of arrays: an app that only sets verdicts
/// touches only verdicts, and a lane that only frees reads only numbers.
pub struct Burst {
    region: Rc<Region>,
    capacity: usize,
    // As long as the burst, both; within the capacity that each was made with.
    frame: Vec<u32>,
    span: Vec<FrameSpan>,
    /// By frame; as long as the capacity, and [`Verdict::Drop`] where there is no frame: what only some bursts
    /// decide is written for those only.
    verdict: Box<[Verdict]>,
    /// No verdict but [`Verdict::Drop`] was set.
    is_consumed: bool,
    /// By frame; as long as the capacity, and empty where a frame has no tails.
    tail_range: Box<[TailRange]>,
    tails: Vec<(u32, FrameSpan)>,
    gathers: Gathers,
}

impl Burst {
    /// An empty burst over `region` for at most `frames` frames.
    pub fn new(region: Rc<Region>, frames: usize) -> Burst {
        assert!((1..=BURST_FRAMES_MAX).contains(&frames), "burst of {frames} frames");
        Burst {
            region,
            capacity: frames,
            frame: Vec::with_capacity(frames),
            span: Vec::with_capacity(frames),
            verdict: vec![Verdict::Drop; frames].into_boxed_slice(),
            is_consumed: true,
            tail_range: vec![TailRange::default(); frames].into_boxed_slice(),
            tails: Vec::with_capacity(TAILS_MAX),
            gathers: Gathers::default(),
        }
    }

    /// Lane: this burst offers to [`gather`](Self::gather) up to `frames` frames, at most [`GATHERED_MAX`].
    #[must_use]
    pub fn gathering(mut self, frames: usize) -> Burst {
        self.gathers.offer(frames.min(GATHERED_MAX));
        self
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
        let span = &self.span[i];
        let ptr = self.region.at(span.start);
        // SAFETY: extend checked start + len against the region; the lane promised that nothing else
        // writes the frame; `&self` keeps FrameMut (`&mut self`) away.
        let bytes = unsafe { std::slice::from_raw_parts(ptr, span.len as usize) };
        Frame { bytes, wire_len: span.wire_len, ts_ns: span.ts_ns }
    }

    /// The bytes of the further buffers of frame `i`, in order; empty for an ordinary frame.
    pub fn tails(&self, i: usize) -> impl Iterator<Item = &[u8]> {
        self.tail_spans(i).iter().map(|(_, tail)| {
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
        self.verdict[..self.frame.len()][i]
    }

    /// True only if every verdict is [`Verdict::Drop`] and nothing is gathered: nothing goes on. Known without a
    /// look at them; a frame that was to go on and then was not leaves it false.
    #[inline]
    pub fn is_consumed(&self) -> bool {
        self.is_consumed
    }

    /// Decides what happens to frame `i`.
    #[inline]
    pub fn set_verdict(&mut self, i: usize, verdict: Verdict) {
        self.verdict[..self.frame.len()][i] = verdict;
        self.is_consumed &= verdict == Verdict::Drop;
    }

    /// How many frames may still be [gathered](Self::gather); 0 on a lane that sends no frame in pieces.
    #[inline]
    pub fn gather_space(&self) -> usize {
        self.gathers.space()
    }

    /// Sends one more frame by `egress` when the burst is settled: a head of `head_bytes` bytes, to be written
    /// now, and behind it the bytes `part` of frame `i` as it is now. The lane reads the part when it sends, so
    /// it is not edited until then; the verdict of frame `i` decides about that frame as ever. Gathered frames leave
    /// behind those that verdicts send, in their order per port. Nothing is sent, and nothing returned, without
    /// [`gather_space`](Self::gather_space) or with a head beyond [`HEAD_BYTES_MAX`](crate::HEAD_BYTES_MAX).
    ///
    /// # Panics
    /// If the frame has no such part (its further buffers are none of it).
    #[inline]
    pub fn gather(
        &mut self,
        i: usize,
        part: Range<usize>,
        egress: PortId,
        head_bytes: usize,
    ) -> Option<&mut [u8]> {
        let FrameSpan { start, len, .. } = self.span[i];
        assert!(
            part.start <= part.end && part.end <= len as usize,
            "part {part:?} of a frame of {len} bytes"
        );
        let lies = (start + part.start, part.len() as u32);
        let head = self.gathers.add(egress, i as u32, lies, head_bytes)?;
        self.is_consumed = false;
        Some(head)
    }

    /// Lane: what is to be put together, in order.
    #[inline]
    pub fn gathered(&self) -> &[Gathered] {
        self.gathers.list()
    }

    /// Lane: the head of one of those.
    #[inline]
    pub fn head(&self, gathered: &Gathered) -> &[u8] {
        self.gathers.head(gathered)
    }

    /// Lane: the part of one of those.
    pub fn part(&self, gathered: &Gathered) -> &[u8] {
        let span = &self.span[gathered.frame as usize];
        let (room, bytes) = (span.start - span.headroom as usize, gathered.bytes as usize);
        assert!(
            room <= gathered.start && gathered.start + bytes <= span.start + span.len_max as usize,
            "a part of another burst"
        );
        // SAFETY: it lies in the room of a frame of this burst, as just checked, and so in the region; nothing
        // else writes that room until the frame is settled; `&self` keeps FrameMut (`&mut self`) away.
        unsafe { std::slice::from_raw_parts(self.region.at(gathered.start), bytes) }
    }

    /// Lane: forgets all frames. The lane has settled them, or never exposed them.
    #[inline]
    pub fn clear(&mut self) {
        self.gathers.clear();
        if !self.tails.is_empty() {
            self.tail_range[..self.frame.len()].fill(TailRange::default());
            self.tails.clear();
        }
        if !self.is_consumed {
            self.verdict[..self.frame.len()].fill(Verdict::Drop);
            self.is_consumed = true;
        }
        self.frame.clear();
        self.span.clear();
    }

    /// Lane: adds frames, by number and span, each with verdict [`Verdict::Drop`]. The one way in: a
    /// burst is written in one pass, however many frames the lane has at a time.
    ///
    /// # Panics
    /// If there are more than [`Burst::space`], or one lies outside the region. None is added then.
    ///
    /// # Safety
    /// Until the lane settles a frame, nothing else (no other frame, no kernel ring, no other thread)
    /// may read or write its room, from `headroom` bytes in front of `start` to `len_max` behind it.
    #[inline]
    pub unsafe fn extend(&mut self, frames: impl IntoIterator<Item = (u32, FrameSpan)>) {
        let (from, space, region_bytes) = (self.len(), self.space(), self.region.bytes);
        let mut frames = frames.into_iter();
        // Both have at least the burst's capacity, so each has `space` to spare.
        let numbers = &mut self.frame.spare_capacity_mut()[..space];
        let spans = &mut self.span.spare_capacity_mut()[..space];
        let (mut count, mut excess) = (0, 0);
        for ((to_number, to_span), (number, span)) in numbers.iter_mut().zip(spans).zip(&mut frames)
        {
            excess |= span.excess(region_bytes);
            to_number.write(number);
            to_span.write(span);
            count += 1;
        }
        assert!(excess >= 0, "frame outside its region of {region_bytes} bytes");
        // Asked only when there is no space left: else what is there has come to its end.
        assert!(count < space || frames.next().is_none(), "burst is full");
        // SAFETY: the loop has written the first `count` of the spare elements, which are Copy.
        unsafe { self.frame.set_len(from + count) };
        // SAFETY: as above.
        unsafe { self.span.set_len(from + count) };
    }

    /// Lane: adds a further buffer to the frame added last.
    ///
    /// # Panics
    /// If there is no frame, no tail space, or the buffer does not lie inside the region.
    ///
    /// # Safety
    /// As for [`Burst::extend`].
    pub unsafe fn push_tail(&mut self, number: u32, span: FrameSpan) {
        assert!(self.tails.len() < TAILS_MAX, "no tail space");
        assert!(span.lies_in(self.region.bytes), "frame outside its region: {span:?}");
        let last = self.len().checked_sub(1).expect("a frame was added before its tail");
        let tails = &mut self.tail_range[last];
        if tails.count == 0 {
            tails.first = self.tails.len() as u16;
        }
        tails.count += 1;
        self.tails.push((number, span));
    }

    /// Lane: its own numbers of the frames, in their order.
    #[inline]
    pub fn numbers(&self) -> &[u32] {
        &self.frame
    }

    /// Lane: where frame `i` lies now (an app may have moved its ends), to settle it.
    #[inline]
    pub fn span(&self, i: usize) -> FrameSpan {
        self.span[i]
    }

    /// Lane: numbers and spans of the further buffers of frame `i`.
    #[inline]
    pub fn tail_spans(&self, i: usize) -> &[(u32, FrameSpan)] {
        assert!(i < self.len(), "frame {i} of {}", self.len());
        let TailRange { first, count } = self.tail_range[i];
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
    fn span_mut(&mut self) -> &mut FrameSpan {
        &mut self.burst.span[self.i]
    }

    /// The bytes to read.
    pub fn bytes(&self) -> &[u8] {
        self.burst.frame(self.i).bytes
    }

    /// The bytes to edit.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let FrameSpan { start, len, .. } = self.burst.span[self.i];
        let ptr = self.burst.region.at(start);
        // SAFETY: bounds were checked by extend and are kept by grow_front/set_len below; `&mut
        // self` borrows the whole burst, so this is the only view of any of its frames.
        unsafe { std::slice::from_raw_parts_mut(ptr, len as usize) }
    }

    /// Free bytes in front of the frame.
    pub fn headroom(&self) -> usize {
        self.burst.span[self.i].headroom as usize
    }

    /// Moves the start `bytes` towards the front; false (and nothing changed) without the room.
    #[must_use]
    pub fn grow_front(&mut self, bytes: usize) -> bool {
        if bytes > self.headroom() {
            return false;
        }
        let span = self.span_mut();
        let by = bytes as u32;
        span.start -= bytes;
        span.headroom -= by;
        span.len_max += by;
        span.len += by;
        span.wire_len = span.wire_len.saturating_add(by);
        true
    }

    /// Moves the start `bytes` towards the back; false (and nothing changed) in a shorter frame.
    #[must_use]
    pub fn shrink_front(&mut self, bytes: usize) -> bool {
        let span = self.span_mut();
        if bytes > span.len as usize {
            return false;
        }
        let by = bytes as u32;
        span.start += bytes;
        span.headroom += by;
        span.len_max -= by;
        span.len -= by;
        span.wire_len = span.wire_len.saturating_sub(by);
        true
    }

    /// Sets length and wire length, at the end of the frame; false (and nothing changed) without room.
    #[must_use]
    pub fn set_len(&mut self, bytes: usize) -> bool {
        let span = self.span_mut();
        if bytes > span.len_max as usize {
            return false;
        }
        (span.len, span.wire_len) = (bytes as u32, bytes as u32);
        true
    }

    /// Decides what happens to the frame.
    pub fn set_verdict(&mut self, verdict: Verdict) {
        self.burst.set_verdict(self.i, verdict);
    }
}

/// Buffers on the heap and the burst that shows them: all that a lane needs that copies its frames,
/// without a line of `unsafe`. The crate's own example shows one at work.
pub struct FramePool {
    burst: Burst,
    /// Buffers that are not in the burst. Last in, first out: the same few stay in the cache.
    free: Vec<u32>,
    buffer_bytes: usize,
}

impl FramePool {
    /// Room behind the longest frame, so that an app can make one too long.
    const TAILROOM_BYTES: usize = 128;
    /// Buffers start at a cache line.
    const ALIGN_BYTES: usize = 64;

    /// `frames` buffers for frames of at most `frame_bytes` bytes, each with [`HEADROOM_BYTES_MIN`]
    /// in front, shown in bursts of at most `burst` frames. Pages that no frame reached take no memory.
    pub fn new(frames: usize, frame_bytes: usize, burst: usize) -> FramePool {
        let buffer_bytes = (HEADROOM_BYTES_MIN + frame_bytes + Self::TAILROOM_BYTES)
            .next_multiple_of(Self::ALIGN_BYTES);
        FramePool {
            burst: Burst::new(Region::heap(frames * buffer_bytes), burst),
            free: (0..frames as u32).rev().collect(),
            buffer_bytes,
        }
    }

    /// Its bursts offer to gather up to `frames` frames ([`Burst::gather`]). To be settled by
    /// [`settle_gathered`](Self::settle_gathered).
    #[must_use]
    pub fn gathering(mut self, frames: usize) -> FramePool {
        self.burst = self.burst.gathering(frames);
        self
    }

    /// Bytes of one buffer.
    pub fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// Frames that may be pushed now.
    pub fn space(&self) -> usize {
        self.burst.space().min(self.free.len())
    }

    /// What the lane lends.
    pub fn burst_mut(&mut self) -> &mut Burst {
        &mut self.burst
    }

    /// Adds a frame of `len` bytes to be filled, of `wire_len` on the wire; its bytes are those of
    /// an earlier frame. Nothing without [`space`](Self::space), or if no buffer is so long.
    #[inline]
    pub fn push(&mut self, len: usize, wire_len: u32, ts_ns: u64) -> Option<FrameMut<'_>> {
        let len_max = self.buffer_bytes - HEADROOM_BYTES_MIN;
        if self.burst.space() == 0 || len > len_max {
            return None;
        }
        let number = self.free.pop()?;
        let span = FrameSpan {
            start: number as usize * self.buffer_bytes + HEADROOM_BYTES_MIN,
            ts_ns,
            len: len as u32,
            wire_len,
            headroom: HEADROOM_BYTES_MIN as u32,
            len_max: len_max as u32,
        };
        // SAFETY: the region is known to its burst alone, and every view of a frame borrows the burst.
        // No other frame of it has this buffer: the number was on the free list.
        unsafe { self.burst.extend([(number, span)]) };
        let i = self.burst.len() - 1;
        Some(self.burst.frame_mut(i))
    }

    /// Shows every frame of the burst with its verdict, then takes all back.
    #[inline]
    pub fn settle(&mut self, each: impl FnMut(Verdict, Frame<'_>)) {
        self.settle_gathered(each, |_, _, _| ());
    }

    /// As [`settle`](Self::settle), and shows behind them what was gathered: egress, head and part.
    #[inline]
    pub fn settle_gathered(
        &mut self,
        mut each: impl FnMut(Verdict, Frame<'_>),
        mut gathered: impl FnMut(PortId, &[u8], &[u8]),
    ) {
        for i in 0..self.burst.len() {
            each(self.burst.verdict(i), self.burst.frame(i));
        }
        for one in self.burst.gathered() {
            gathered(one.egress, self.burst.head(one), self.burst.part(one));
        }
        self.free.extend_from_slice(&self.burst.frame);
        self.burst.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A burst of `n` frames of 64 bytes in buffers of 256, headroom 128; frame i is filled with i.
    fn burst(n: usize) -> Burst {
        let region = Region::heap(256 * n);
        let mut burst = Burst::new(region, n);
        for i in 0..n {
            let span = FrameSpan {
                start: i * 256 + 128,
                ts_ns: i as u64,
                len: 64,
                wire_len: 64,
                headroom: 128,
                len_max: 128,
            };
            // SAFETY: frames do not overlap and nothing else refers to the region.
            unsafe { burst.extend([(i as u32, span)]) };
            burst.frame_mut(i).bytes_mut().fill(i as u8);
        }
        burst
    }

    /// No bytes, at the start of the region.
    const EMPTY: FrameSpan =
        FrameSpan { start: 0, ts_ns: 0, len: 0, wire_len: 0, headroom: 0, len_max: 0 };

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
        let tail = FrameSpan { len: 16, len_max: 16, ..EMPTY };
        // SAFETY: bytes 0..16 are headroom of frame 0, which this test does not use.
        unsafe { b.push_tail(0, tail) };
        assert_eq!(b.tails(0).map(<[u8]>::len).collect::<Vec<_>>(), [16]);
    }

    #[test]
    #[should_panic(expected = "frame outside its region")]
    fn a_frame_beyond_the_region_is_refused() {
        let mut b = Burst::new(Region::heap(64), 1);
        // SAFETY: nothing else refers to the region; extend must refuse the frame anyway.
        unsafe { b.extend([(0, FrameSpan { len: 65, len_max: 65, ..EMPTY })]) };
    }

    #[test]
    fn a_span_that_contradicts_itself_lies_in_no_region() {
        let good = FrameSpan { start: 16, len: 4, headroom: 8, len_max: 16, ..EMPTY };
        assert!(good.lies_in(32) && !good.lies_in(31));
        for bad in [
            FrameSpan { headroom: 17, ..good },
            FrameSpan { len: 17, ..good },
            FrameSpan { len: u32::MAX, len_max: u32::MAX, ..good },
            FrameSpan { start: usize::MAX, ..good },
        ] {
            assert!(!bad.lies_in(32), "{bad:?}");
        }
        // What a span cannot say, wherever its ends move.
        let wide = FrameSpan { start: 1 << 33, headroom: 1 << 31, len_max: 1 << 31, ..good };
        assert!(!wide.lies_in(1 << 40) && FrameSpan { headroom: 1, ..wide }.lies_in(1 << 40));
    }

    proptest! {
        /// The joined signs against the five bounds as one would write them, at every edge of the numbers.
        #[test]
        fn a_span_lies_in_a_region_as_wide_numbers_say(
            start in prop_oneof![0..64usize, (u32::MAX as usize - 9)..(u32::MAX as usize + 99),
                (isize::MAX as usize - 99)..(isize::MAX as usize + 99), any::<usize>()],
            numbers in prop::array::uniform3(prop_oneof![0..48u32, (u32::MAX - 48)..=u32::MAX]),
            bytes in prop_oneof![0..128usize, (u32::MAX as usize)..(u32::MAX as usize * 3),
                (isize::MAX as usize - 99)..=(isize::MAX as usize)],
        ) {
            let [len, headroom, len_max] = numbers;
            let span = FrameSpan { start, len, headroom, len_max, ..EMPTY };
            let (from, ahead, room) = (start as i128, i128::from(headroom), i128::from(len_max));
            let lies = ahead <= from && len <= len_max && from + room <= bytes as i128
                && ahead + room <= i128::from(u32::MAX);
            prop_assert_eq!(span.lies_in(bytes), lies, "{:?} in {}", span, bytes);
        }
    }

    #[test]
    fn a_frame_comes_back_as_it_was_added() {
        let mut b = Burst::new(Region::heap(256), 2);
        let span =
            FrameSpan { start: 64, ts_ns: 9, len: 60, wire_len: 1500, headroom: 48, len_max: 136 };
        // SAFETY: nothing else refers to the region, and the test reads no bytes.
        unsafe { b.extend([(7, span), (8, span)]) };
        assert_eq!((b.span(0), b.span(1)), (span, span));
        assert_eq!((b.numbers(), &b.verdict[..]), (&[7, 8][..], &[Verdict::Drop; 2][..]));
        b.set_verdict(1, Verdict::Tx);
        b.clear();
        // SAFETY: as above.
        unsafe { b.extend([(9, span), (9, span)]) };
        assert_eq!([b.verdict(0), b.verdict(1)], [Verdict::Drop; 2]);
        assert_eq!(b.frame(0).wire_len, 1500);
    }

    #[test]
    fn a_pool_lends_every_buffer_once_and_has_it_again_when_settled() {
        let mut pool = FramePool::new(3, 100, 2);
        for round in 0..5u8 {
            assert_eq!(pool.space(), 2);
            for _ in 0..2 {
                let mut frame = pool.push(100, 100, 7).expect("there is space");
                assert!(frame.headroom() >= HEADROOM_BYTES_MIN);
                assert!(frame.set_len(101) && frame.set_len(100), "room behind the longest");
                frame.bytes_mut().fill(round);
            }
            assert!(pool.push(1, 1, 7).is_none(), "the burst is full");
            let numbers = pool.burst_mut().numbers();
            assert_ne!(numbers[0], numbers[1]);
            pool.settle(|verdict, frame| {
                assert_eq!((verdict, frame.bytes), (Verdict::Drop, &[round; 100][..]));
            });
        }
        let too_long = pool.buffer_bytes() - HEADROOM_BYTES_MIN + 1;
        assert!(pool.push(too_long, 0, 0).is_none() && pool.space() == 2);
    }

    #[test]
    #[should_panic(expected = "burst is full")]
    fn more_frames_than_a_burst_carries_are_refused() {
        let mut b = Burst::new(Region::heap(64), 2);
        // SAFETY: nothing else refers to the region; extend must refuse the frames anyway.
        unsafe { b.extend([(0, EMPTY); 3]) };
    }

    #[test]
    fn a_refused_burst_leaves_nothing_behind() {
        let mut b = Burst::new(Region::heap(64), 4);
        let outside = FrameSpan { len: 65, len_max: 65, ..EMPTY };
        let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // SAFETY: nothing else refers to the region; extend must refuse the frames anyway.
            unsafe { b.extend([(0, EMPTY), (1, outside)]) };
        }));
        assert!(refused.is_err() && b.is_empty());
    }

    #[test]
    fn the_tails_of_a_burst_are_not_those_of_the_next() {
        let mut b = burst(2);
        let tail = FrameSpan { len: 16, len_max: 16, ..EMPTY };
        // SAFETY: bytes 0..16 are headroom of frame 0, which this test does not use.
        unsafe { b.push_tail(0, tail) };
        assert_eq!((b.tail_spans(0).len(), b.tail_spans(1).len()), (0, 1));
        b.clear();
        // SAFETY: the burst was cleared, so nothing else refers to the region.
        unsafe { b.extend([(0, EMPTY), (1, EMPTY)]) };
        assert!(b.tail_spans(0).is_empty() && b.tail_spans(1).is_empty());
        assert_eq!(b.tail_space(), TAILS_MAX);
    }
}
