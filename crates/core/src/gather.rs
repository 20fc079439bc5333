//! Frames that are put together on their way out: a head that the app writes, and behind it a part of a
//! frame of the burst, which the lane reads where it lies.
//!
//! ```text
//!   burst:      frame 0 │ headers │ payload │      (its own verdict: sent in place, dropped, ...)
//!                                 └────┬────┘
//!   gathered:   head A ────────────────┤        port 1
//!               head B ────────────────┘        port 2
//! ```
//!
//! For apps that send one payload to many, each with headers of its own: no byte of the payload is copied in
//! user space. Only lanes whose device or system call takes a frame in pieces offer it ([`Burst::gather`]). What
//! must always hold: a part lies in its frame's room, and neither part nor head changes until the burst is settled.
//!
//! [`Burst::gather`]: crate::Burst::gather

use crate::{HEADROOM_BYTES_MIN, PortId};

/// The longest head, in bytes: as much as a received frame may grow by.
pub const HEAD_BYTES_MAX: usize = HEADROOM_BYTES_MIN;
/// Frames that may be gathered from one burst: 64 datagrams to 1,024 outputs.
pub const GATHERED_MAX: usize = 1 << 16;

/// A frame that is to be put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gathered {
    /// The port that it leaves by.
    pub egress: PortId,
    /// The frame of the burst that has the part, counted from 0.
    pub frame: u32,
    /// The part's first byte, counted from the start of the region.
    pub start: usize,
    /// Bytes of the part.
    pub bytes: u32,
    head_at: u32,
    head_bytes: u32,
}

impl Gathered {
    /// Bytes of head and part together.
    pub fn total_bytes(&self) -> usize {
        self.head_bytes as usize + self.bytes as usize
    }
}

/// What is gathered from one burst.
#[derive(Debug, Default)]
pub(crate) struct Gathers {
    /// Nothing where the lane gathers no frames.
    max: usize,
    list: Vec<Gathered>,
    heads: Vec<u8>,
}

impl Gathers {
    pub(crate) fn offer(&mut self, max: usize) {
        self.max = max;
    }

    pub(crate) fn space(&self) -> usize {
        self.max - self.list.len()
    }

    pub(crate) fn list(&self) -> &[Gathered] {
        &self.list
    }

    pub(crate) fn head(&self, gathered: &Gathered) -> &[u8] {
        let Gathered { head_at, head_bytes, .. } = *gathered;
        &self.heads[head_at as usize..][..head_bytes as usize]
    }

    /// Adds a frame whose part was found to lie in its frame; gives its head, zeroed.
    pub(crate) fn add(
        &mut self,
        egress: PortId,
        frame: u32,
        (start, bytes): (usize, u32),
        head_bytes: usize,
    ) -> Option<&mut [u8]> {
        if self.space() == 0 || head_bytes > HEAD_BYTES_MAX {
            return None;
        }
        let head_at = self.heads.len();
        self.heads.resize(head_at + head_bytes, 0);
        self.list.push(Gathered {
            egress,
            frame,
            start,
            bytes,
            // At most GATHERED_MAX heads of HEAD_BYTES_MAX bytes.
            head_at: head_at as u32,
            head_bytes: head_bytes as u32,
        });
        Some(&mut self.heads[head_at..])
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        if !self.list.is_empty() {
            self.list.clear();
            self.heads.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Burst, FramePool, PortId, Verdict};

    const OUT: PortId = PortId(1);

    /// A pool that shows one frame of these bytes.
    fn pool_of(bytes: &[u8]) -> FramePool {
        let mut pool = FramePool::new(2, 100, 2).gathering(2);
        let mut frame = pool.push(bytes.len(), bytes.len() as u32, 0).expect("a free buffer");
        frame.bytes_mut().copy_from_slice(bytes);
        pool
    }

    fn add(burst: &mut Burst, part: std::ops::Range<usize>, head: &[u8]) -> bool {
        let Some(room) = burst.gather(0, part, OUT, head.len()) else { return false };
        room.copy_from_slice(head);
        true
    }

    /// What leaves in place and what is gathered when the pool is settled.
    fn left(pool: &mut FramePool) -> [Vec<Vec<u8>>; 2] {
        let [mut frames, mut gathered] = [Vec::new(), Vec::new()];
        pool.settle_gathered(
            |verdict, frame| {
                assert_eq!(verdict, Verdict::Tx);
                frames.push(frame.bytes.to_vec());
            },
            |egress, head, part| {
                assert_eq!(egress, OUT);
                gathered.push([head, part].concat());
            },
        );
        [frames, gathered]
    }

    #[test]
    fn a_part_leaves_behind_its_head_wherever_the_ends_of_its_frame_move() {
        let mut pool = pool_of(b"headpayload");
        let burst = pool.burst_mut();
        assert!(burst.is_consumed());
        assert!(add(burst, 4..11, b"H:") && add(burst, 4..7, b""));
        assert!(!burst.is_consumed() && burst.gather_space() == 0);
        assert!(!add(burst, 4..11, b"x"), "as many as the lane offers");
        let mut frame = burst.frame_mut(0);
        assert!(frame.shrink_front(4) && frame.grow_front(2));
        frame.set_verdict(Verdict::Tx);
        let [frames, gathered] = left(&mut pool);
        assert_eq!(frames, [b"adpayload"]);
        assert_eq!(gathered, [&b"H:payload"[..], b"pay"]);
        assert_eq!((pool.space(), pool.burst_mut().gather_space()), (2, 2));
        assert!(left(&mut pool).iter().all(Vec::is_empty), "once");
    }

    #[test]
    fn a_lane_that_offers_nothing_gathers_nothing() {
        let mut pool = FramePool::new(1, 100, 1);
        pool.push(9, 9, 0).expect("a free buffer");
        assert!(!add(pool.burst_mut(), 0..9, b"head") && pool.burst_mut().gather_space() == 0);
        let mut pool = pool_of(b"payload");
        assert!(!add(pool.burst_mut(), 0..7, &[0; super::HEAD_BYTES_MAX + 1]), "a long head");
    }

    #[test]
    #[should_panic(expected = "part 4..8 of a frame of 7 bytes")]
    fn a_part_beyond_its_frame_is_refused() {
        add(pool_of(b"payload").burst_mut(), 4..8, b"head");
    }
}
