//! A TPACKET_V3 ring: blocks that the kernel fills one after the other and hands over when full or
//! when their time is up.
//!
//! ```text
//!   block:  │ descriptor │ header │ reserve │ frame │ header │ reserve │ frame │ ... │ unused │
//!                                 └── room of the 1st frame ──┘└─ room of the 2nd ...
//! ```
//!
//! A frame's room reaches over the header of the frame behind it, because the lane reads that
//! header before it lends the frame; so an app may grow a frame at both ends where it lies. The
//! kernel reads no header of a block that it gave away.
//!
//! What must always hold: a block is ours from the moment its status says so until we write the
//! status back, and we do that when none of its frames is in a burst. The kernel goes round
//! in order, so a burst that is kept for a whole round stops it at that block; what then arrives is
//! dropped and counted by the kernel (and the standstill as a freeze).

use crate::{config::RingSize, memory::Memory};
use laneway_linux::Repairs;
use std::{
    mem::offset_of,
    sync::atomic::{AtomicU32, Ordering},
};

/// Free bytes that the kernel leaves in front of each frame, beside its own header: headroom of the
/// contract and a VLAN tag, in a multiple of the 16 bytes that keep the network header aligned.
pub(crate) const RESERVE_BYTES: usize = 144;
const _: () = assert!(
    RESERVE_BYTES >= laneway_core::HEADROOM_BYTES_MIN + laneway_linux::TAG_BYTES
        && RESERVE_BYTES.is_multiple_of(16)
);

/// What a block starts with: `struct tpacket_block_desc`, as far as this lane reads it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Descriptor {
    version: u32,
    private_at: u32,
    status: u32,
    frames: u32,
    first_header_at: u32,
}
const _: () = assert!(
    offset_of!(Descriptor, status) == offset_of!(libc::tpacket_block_desc, hdr)
        && size_of::<Descriptor>() <= size_of::<libc::tpacket_block_desc>()
);

pub(crate) struct Ring {
    size: RingSize,
    /// The block that is read, or looked at next.
    block: usize,
    /// What is left of it; nothing when it is still the kernel's.
    left: Option<Left>,
    /// Per block: its frames in a burst, plus one while it is read.
    users: Vec<u32>,
}

/// The unread rest of a block.
#[derive(Clone, Copy)]
struct Left {
    frames: u32,
    /// Where the header of the next frame lies in the memory.
    at: usize,
    header: libc::tpacket3_hdr,
}

/// A frame of the ring, in bytes from the start of the memory.
pub(crate) struct RingFrame {
    pub(crate) block: u32,
    pub(crate) room_start: usize,
    pub(crate) start: usize,
    pub(crate) bytes: u32,
    pub(crate) room_end: usize,
    pub(crate) wire_bytes: u32,
    /// What the frame lacks.
    pub(crate) repairs: Repairs,
    /// CLOCK_REALTIME.
    pub(crate) real_ns: u64,
}

impl Ring {
    /// A ring whose blocks lie at the start of the memory.
    pub(crate) fn new(size: RingSize) -> Ring {
        Ring { size, block: 0, left: None, users: vec![0; size.blocks] }
    }

    /// What `setsockopt` wants to hear.
    pub(crate) fn request(size: RingSize) -> libc::tpacket_req3 {
        /// TPACKET_V3 packs frames tightly; the kernel only checks this figure.
        const FRAME_BYTES: usize = 2048;
        libc::tpacket_req3 {
            tp_block_size: size.block_bytes as u32,
            tp_block_nr: size.blocks as u32,
            tp_frame_size: FRAME_BYTES as u32,
            tp_frame_nr: (size.block_bytes / FRAME_BYTES * size.blocks) as u32,
            tp_retire_blk_tov: size.timeout_ms as u32,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        }
    }

    /// True when the next frame can be taken.
    pub(crate) fn is_ready(&self, memory: &Memory) -> bool {
        self.left.is_some() || self.is_ours(memory, self.block)
    }

    /// Takes the next frame; the caller returns its block by [`release`](Self::release) when it is
    /// settled.
    pub(crate) fn take(&mut self, memory: &Memory) -> Option<RingFrame> {
        let left = match self.left {
            Some(left) => left,
            None => self.open_block(memory)?,
        };
        let (block, at, header) = (self.block, left.at, left.header);
        let block_end = (block + 1) * self.size.block_bytes;
        let room_end = if left.frames > 1 {
            let next = at + header.tp_next_offset as usize;
            self.left = Some(Left {
                frames: left.frames - 1,
                at: next,
                // SAFETY: the block is ours and `next` is where the kernel says that a header is,
                // in no frame's room until the frame in front is handed out below.
                header: unsafe { header_at(memory, next) },
            });
            next + libc::TPACKET3_HDRLEN
        } else {
            block_end
        };
        self.users[block] += 1;
        if left.frames == 1 {
            self.left = None;
            self.block = (block + 1) % self.size.blocks;
            self.release(memory, block as u32);
        }
        let vlan = header.hv1;
        Some(RingFrame {
            block: block as u32,
            room_start: at + libc::TPACKET3_HDRLEN,
            start: at + usize::from(header.tp_mac),
            bytes: header.tp_snaplen,
            room_end,
            wire_bytes: header.tp_len,
            repairs: Repairs::from_kernel(
                header.tp_status,
                vlan.tp_vlan_tci as u16,
                vlan.tp_vlan_tpid,
            ),
            real_ns: u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec),
        })
    }

    /// A frame of `block` is settled. With the last one the block is the kernel's again.
    pub(crate) fn release(&mut self, memory: &Memory, block: u32) {
        let users = &mut self.users[block as usize];
        *users = users.checked_sub(1).expect("each frame is released once");
        if *users == 0 {
            // Release: all our reads and writes of the block come before the kernel sees this.
            self.status(memory, block as usize).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        }
    }

    /// Looks for a block with frames and begins to read it.
    fn open_block(&mut self, memory: &Memory) -> Option<Left> {
        // Bounded, although the kernel hands over no empty blocks (some versions did).
        for _ in 0..self.size.blocks {
            let block = self.block;
            if self.users[block] > 0 || !self.is_ours(memory, block) {
                return None;
            }
            let block_at = block * self.size.block_bytes;
            // SAFETY: the block is ours and starts with its descriptor, which is no frame's room;
            // at_typed checked bounds and alignment; any bytes are a descriptor.
            let descriptor = unsafe { memory.at_typed::<Descriptor>(block_at).read() };
            self.users[block] = 1;
            if descriptor.frames == 0 {
                self.block = (block + 1) % self.size.blocks;
                self.release(memory, block as u32);
                continue;
            }
            let at = block_at + descriptor.first_header_at as usize;
            // SAFETY: the block is ours and none of its frames is handed out yet.
            let first = unsafe { header_at(memory, at) };
            let left = Left { frames: descriptor.frames, at, header: first };
            self.left = Some(left);
            return Some(left);
        }
        None
    }

    fn is_ours(&self, memory: &Memory, block: usize) -> bool {
        // A block that frames still pin is old: its status has not changed since we read it.
        // Acquire: pairs with the kernel's barrier between filling the block and its status.
        let status = self.status(memory, block).load(Ordering::Acquire);
        self.users[block] == 0 && status & libc::TP_STATUS_USER != 0
    }

    fn status<'m>(&self, memory: &'m Memory, block: usize) -> &'m AtomicU32 {
        let status =
            memory.at_typed::<u32>(block * self.size.block_bytes + offset_of!(Descriptor, status));
        // SAFETY: in bounds, aligned, mapped as long as the memory lives, in no frame's room, and
        // both sides access it as one word.
        unsafe { AtomicU32::from_ptr(status) }
    }
}

/// Reads a frame's header.
///
/// # Safety
/// `at` is where the kernel put a header in a block that is ours, and no frame whose room covers it
/// is handed out.
unsafe fn header_at(memory: &Memory, at: usize) -> libc::tpacket3_hdr {
    // SAFETY: at_typed checked bounds and alignment; the caller promises that nothing writes there;
    // the header is made of integers.
    unsafe { memory.at_typed::<libc::tpacket3_hdr>(at).read() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{collections::VecDeque, os::fd::AsFd};

    const SIZE: RingSize = RingSize { block_bytes: 1 << 14, blocks: 3, timeout_ms: 1 };
    /// As the kernel puts them: the first header behind the descriptor, a frame behind the sender's
    /// address and the reserve.
    const FIRST_HEADER_AT: usize = 48;
    const FRAME_AT: usize = 226;
    /// What the kernel may do to a block that is its own.
    const KERNEL_BYTE: u8 = 0xff;

    /// The other side of the ring, in the kernel's order.
    struct Kernel<'m> {
        memory: &'m Memory,
        block: usize,
        frames: u8,
    }

    impl Kernel<'_> {
        fn write<T: Copy>(&self, at: usize, value: T) {
            // SAFETY: at_typed checks; blocks of the kernel are of no other owner.
            unsafe { self.memory.at_typed::<T>(at).write(value) };
        }

        /// True when the block that the kernel fills next is its own.
        fn has_room(&self, ring: &Ring) -> bool {
            ring.status(self.memory, self.block).load(Ordering::Acquire) == libc::TP_STATUS_KERNEL
        }

        /// Fills one block with frames of these lengths, each made of its own number.
        fn hand_over(&mut self, ring: &Ring, lengths: &[usize]) -> Vec<(u8, usize)> {
            let block_at = self.block * SIZE.block_bytes;
            fill(self.memory, block_at..block_at + SIZE.block_bytes, KERNEL_BYTE);
            let mut at = block_at + FIRST_HEADER_AT;
            let mut handed = Vec::new();
            for &length in lengths {
                let room = (FRAME_AT + length).next_multiple_of(16);
                // SAFETY: made of integers.
                let mut header: libc::tpacket3_hdr = unsafe { std::mem::zeroed() };
                header.tp_next_offset = room as u32;
                header.tp_mac = FRAME_AT as u16;
                (header.tp_snaplen, header.tp_len) = (length as u32, length as u32);
                self.write(at, header);
                fill(self.memory, at + FRAME_AT..at + FRAME_AT + length, self.frames);
                handed.push((self.frames, length));
                self.frames = (self.frames + 1) % KERNEL_BYTE;
                at += room;
            }
            let first_header_at = FIRST_HEADER_AT as u32;
            let (frames, status) = (lengths.len() as u32, libc::TP_STATUS_KERNEL);
            let descriptor =
                Descriptor { version: 1, private_at: 48, status, frames, first_header_at };
            self.write(block_at, descriptor);
            let status = ring.status(self.memory, self.block);
            status.store(libc::TP_STATUS_USER | libc::TP_STATUS_BLK_TMO, Ordering::Release);
            self.block = (self.block + 1) % SIZE.blocks;
            handed
        }
    }

    fn memory() -> Memory {
        let bytes = SIZE.block_bytes * SIZE.blocks;
        Memory::map(std::io::stdin().as_fd(), 0, bytes).expect("48 KiB of memory")
    }

    fn fill(memory: &Memory, range: std::ops::Range<usize>, byte: u8) {
        assert!(range.end <= SIZE.block_bytes * SIZE.blocks);
        // SAFETY: inside the memory; the caller's part of the ring.
        unsafe { memory.at(range.start).write_bytes(byte, range.len()) };
    }

    fn is_all(memory: &Memory, range: std::ops::Range<usize>, byte: u8) -> bool {
        // SAFETY: one byte inside the memory each time.
        range.into_iter().all(|at| unsafe { memory.at(at).read() } == byte)
    }

    #[derive(Clone, Debug)]
    enum Step {
        HandOver(Vec<usize>),
        Take,
        Release(prop::sample::Index),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            1 => prop::collection::vec(14usize..1600, 0..8).prop_map(Step::HandOver),
            4 => Just(Step::Take),
            3 => any::<prop::sample::Index>().prop_map(Step::Release),
        ]
    }

    proptest! {
        /// Every frame writes all over its room and finds it untouched at the end, whichever frame
        /// writes all over theirs.
        #[test]
        fn each_frame_comes_once_in_order_and_owns_its_room(
            steps in prop::collection::vec(step(), 1..200),
        ) {
            let memory = memory();
            let mut ring = Ring::new(SIZE);
            let mut kernel = Kernel { memory: &memory, block: 0, frames: 0 };
            let mut waiting = VecDeque::new();
            let mut borrowed = Vec::new();
            let give_back = |ring: &mut Ring, (number, frame): (u8, RingFrame)| {
                let intact = is_all(&memory, frame.room_start..frame.room_end, number);
                ring.release(&memory, frame.block);
                intact
            };
            for step in steps {
                match step {
                    Step::HandOver(lengths) if kernel.has_room(&ring) => {
                        waiting.extend(kernel.hand_over(&ring, &lengths));
                    }
                    Step::HandOver(_) => (),
                    Step::Take => match (ring.take(&memory), waiting.pop_front()) {
                        (Some(frame), Some((number, length))) => {
                            let end = frame.start + frame.bytes as usize;
                            prop_assert_eq!(frame.bytes as usize, length);
                            prop_assert!(frame.start >= frame.room_start + RESERVE_BYTES);
                            prop_assert!(end <= frame.room_end);
                            prop_assert!(is_all(&memory, frame.start..end, number));
                            fill(&memory, frame.room_start..frame.room_end, number);
                            borrowed.push((number, frame));
                        }
                        (None, None) => (),
                        (taken, expected) => {
                            prop_assert!(false, "{} but {expected:?}", taken.is_some());
                        }
                    },
                    Step::Release(which) if !borrowed.is_empty() => {
                        let frame = borrowed.swap_remove(which.index(borrowed.len()));
                        prop_assert!(give_back(&mut ring, frame));
                    }
                    Step::Release(_) => (),
                }
            }
            while ring.take(&memory).map(|frame| ring.release(&memory, frame.block)).is_some() {}
            for frame in borrowed {
                prop_assert!(give_back(&mut ring, frame));
            }
            for block in 0..SIZE.blocks {
                let status = ring.status(&memory, block).load(Ordering::Acquire);
                prop_assert_eq!(status, libc::TP_STATUS_KERNEL, "block {}", block);
            }
        }
    }

    #[test]
    fn a_block_returns_with_its_last_frame_in_any_order() {
        let memory = memory();
        let mut ring = Ring::new(SIZE);
        Kernel { memory: &memory, block: 0, frames: 0 }.hand_over(&ring, &[60, 60, 60]);
        let frames = [(); 3].map(|()| ring.take(&memory).expect("three frames"));
        let is_kernels =
            |ring: &Ring| ring.status(&memory, 0).load(Ordering::Acquire) == libc::TP_STATUS_KERNEL;
        for frame in [&frames[2], &frames[0]] {
            ring.release(&memory, frame.block);
            assert!(!is_kernels(&ring));
        }
        ring.release(&memory, frames[1].block);
        assert!(is_kernels(&ring));
    }

    #[test]
    fn blocks_without_frames_are_passed_over() {
        let memory = memory();
        let mut ring = Ring::new(SIZE);
        let mut kernel = Kernel { memory: &memory, block: 0, frames: 0 };
        kernel.hand_over(&ring, &[]);
        kernel.hand_over(&ring, &[60]);
        assert!(ring.is_ready(&memory));
        assert_eq!(ring.take(&memory).expect("the second block has one").block, 1);
    }
}
