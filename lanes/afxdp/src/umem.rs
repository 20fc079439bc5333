//! The UMEM: one memory of equal frames shared by all ports of the lane, and the frames that are free.
//!
//! Assumes a frame size that is a power of two. What must always hold: every frame is in exactly one
//! place - free list, with the kernel to receive into, burst, with the kernel to transmit - and
//! the code that takes it from one place puts it into another. The free list checks in debug builds that
//! no frame is returned twice. What it does not do: it knows no ring and makes no system call.

use laneway_core::{FrameSpan, Region};
use std::{any::Any, ptr::NonNull, rc::Rc};

/// Where frames begin in their buffer, in bytes: what the kernel leaves free in front of every frame
/// it receives (`XDP_PACKET_HEADROOM`, in copy mode as well), and so what frames from `lend` have too.
pub(crate) const HEADROOM_BYTES: usize = 256;

/// The memory and its division into frames.
pub(crate) struct Umem {
    region: Rc<Region>,
    base: NonNull<u8>,
    frame_shift: u32,
    frames: u32,
}

impl Umem {
    /// `frames` frames of `frame_bytes` over memory that `owner` keeps mapped.
    ///
    /// # Safety
    /// As for [`Region::mapped`], with `frames * frame_bytes` bytes.
    pub(crate) unsafe fn new(
        base: NonNull<u8>,
        frame_bytes: usize,
        frames: u32,
        owner: Box<dyn Any>,
    ) -> Umem {
        assert!(frame_bytes.is_power_of_two() && frame_bytes > HEADROOM_BYTES);
        // SAFETY: the caller's promise, passed on.
        let region = unsafe { Region::mapped(base, frame_bytes * frames as usize, owner) };
        Umem { region, base, frame_shift: frame_bytes.trailing_zeros(), frames }
    }

    /// The memory that bursts keep alive.
    pub(crate) fn region(&self) -> &Rc<Region> {
        &self.region
    }

    /// The address of the first frame.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes per frame, headroom included.
    pub(crate) fn frame_bytes(&self) -> usize {
        1 << self.frame_shift
    }

    /// How many frames there are.
    pub(crate) fn frames(&self) -> u32 {
        self.frames
    }

    /// The frame that an address of the kernel lies in.
    #[inline]
    pub(crate) fn frame_of(&self, addr: u64) -> u32 {
        (addr >> self.frame_shift) as u32
    }

    /// Where a frame's buffer begins.
    #[inline]
    pub(crate) fn start_of(&self, frame: u32) -> usize {
        (frame as usize) << self.frame_shift
    }

    /// A span in the frame that `start` lies in.
    #[inline]
    pub(crate) fn span(&self, start: usize, len: u32, ts_ns: u64) -> FrameSpan {
        let headroom = start & (self.frame_bytes() - 1);
        let len_max = (self.frame_bytes() - headroom) as u32;
        FrameSpan { start, ts_ns, len, wire_len: len, headroom: headroom as u32, len_max }
    }

    /// A free frame by number and span, of length 0, with headroom.
    #[inline]
    pub(crate) fn empty(&self, frame: u32) -> (u32, FrameSpan) {
        (frame, self.span(self.start_of(frame) + HEADROOM_BYTES, 0, 0))
    }

    /// Replaces `into` by a span's bytes. The caller owns the span's frame.
    pub(crate) fn read(&self, span: &FrameSpan, into: &mut Vec<u8>) {
        let bytes = span.len as usize;
        into.clear();
        into.resize(bytes, 0);
        // SAFETY: `bytes_of` checked that the span lies inside the mapping, `into` has just been
        // given that length and is no part of it, and nothing writes a frame that the caller owns.
        unsafe { self.bytes_of(span).copy_to_nonoverlapping(into.as_mut_ptr(), bytes) };
    }

    /// Two bytes of a span as a number in network order. The caller owns the span's frame.
    pub(crate) fn be16(&self, span: &FrameSpan, offset: usize) -> u16 {
        assert!(offset + 2 <= span.len as usize, "offset {offset} of {} bytes", span.len);
        // SAFETY: inside the span, just checked, which `bytes_of` checked to be inside the mapping.
        let at = unsafe { self.bytes_of(span).add(offset) };
        // SAFETY: two bytes inside the span; any alignment, any value; nothing writes them now.
        u16::from_be(unsafe { at.cast::<u16>().read_unaligned() })
    }

    fn bytes_of(&self, span: &FrameSpan) -> *const u8 {
        assert!(span.start + span.len as usize <= self.region.bytes(), "span outside the UMEM");
        // SAFETY: just checked to be inside the mapping, which `region` keeps alive.
        unsafe { self.base.as_ptr().add(span.start) }
    }

    /// Copies a span's bytes into the buffer of `frame`, at the same place within it.
    pub(crate) fn copy(&self, from: &FrameSpan, frame: u32) -> FrameSpan {
        let own = self.frame_of(from.start as u64);
        assert!(own != frame && frame < self.frames, "copy of frame {own}");
        let copy = FrameSpan { start: self.start_of(frame) + from.headroom as usize, ..*from };
        let source = self.bytes_of(from);
        let target = self.bytes_of(&copy).cast_mut();
        // SAFETY: both spans lie inside the mapping (`bytes_of`) and in different frames, so they
        // do not overlap; the caller owns both frames, and no Rust reference to them exists now:
        // the app's borrow of the burst has ended.
        unsafe { source.copy_to_nonoverlapping(target, from.len as usize) };
        copy
    }
}

/// Frames that nothing uses. Taken last in, first out: those are still in the cache.
pub(crate) struct FreeList {
    frames: Vec<u32>,
    #[cfg(debug_assertions)]
    is_free: Vec<bool>,
}

impl FreeList {
    /// All `frames` frames.
    pub(crate) fn full(frames: u32) -> FreeList {
        FreeList {
            frames: (0..frames).rev().collect(),
            #[cfg(debug_assertions)]
            is_free: vec![true; frames as usize],
        }
    }

    /// How many are free.
    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Takes a frame.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<u32> {
        let frame = self.frames.pop()?;
        #[cfg(debug_assertions)]
        {
            self.is_free[frame as usize] = false;
        }
        Some(frame)
    }

    /// Returns a frame. Never grows beyond the capacity it was made with.
    #[inline]
    pub(crate) fn put(&mut self, frame: u32) {
        #[cfg(debug_assertions)]
        {
            let was_free = std::mem::replace(&mut self.is_free[frame as usize], true);
            assert!(!was_free, "frame {frame} was returned twice");
        }
        self.frames.push(frame);
    }
}

#[cfg(test)]
pub(crate) mod heap {
    //! A UMEM on the heap, for tests without a kernel.
    use super::*;
    use std::cell::UnsafeCell;

    struct Memory(Vec<UnsafeCell<u8>>);

    /// `frames` frames of `frame_bytes`, zeroed.
    pub(crate) fn umem(frame_bytes: usize, frames: u32) -> Umem {
        let bytes = frame_bytes * frames as usize;
        let memory = Memory((0..bytes).map(|_| UnsafeCell::new(0)).collect());
        let base = NonNull::from(&memory.0[..]).cast();
        // SAFETY: the cells allow writes through shared pointers, do not move when the vector does,
        // and no reference to a byte is ever made.
        unsafe { Umem::new(base, frame_bytes, frames, Box::new(memory)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_free_list_hands_out_every_frame_once() {
        let mut free = FreeList::full(4);
        let mut taken: Vec<u32> = std::iter::from_fn(|| free.take()).collect();
        taken.sort_unstable();
        assert_eq!(taken, [0, 1, 2, 3]);
        free.put(2);
        assert_eq!((free.len(), free.take(), free.take()), (1, Some(2), None));
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "frame 1 was returned twice")]
    fn a_frame_returned_twice_is_our_bug() {
        let mut free = FreeList::full(2);
        free.take();
        free.put(1);
    }

    #[test]
    fn an_address_anywhere_in_a_buffer_names_its_frame() {
        let umem = heap::umem(2048, 3);
        for (addr, frame) in [(0, 0), (2047, 0), (2048, 1), (4096 + 256, 2)] {
            assert_eq!(umem.frame_of(addr), frame);
        }
        let span = umem.span(2048 + 256, 60, 9);
        assert_eq!((span.headroom, span.len_max), (256, 2048 - 256));
    }

    #[test]
    fn a_copy_lies_at_the_same_place_of_its_own_frame() {
        let umem = heap::umem(2048, 2);
        let copy = umem.copy(&umem.span(300, 4, 7), 1);
        assert_eq!((copy.start, copy.len, copy.ts_ns), (2048 + 300, 4, 7));
    }
}
