//! Provided buffers: memory that the kernel picks from when something arrives.
//!
//! ```text
//!   kernel's ──receive──▶ in use: take ──▶ shown to the app ──▶ give ──▶ spare ──▶ publish ──▶ kernel's
//! ```
//!
//! What must always hold: a buffer is the kernel's, in use, or spare, one of the three. It is in use from the
//! completion that names it until `give`; it is the kernel's when `publish` has written its descriptor
//! and moved the tail. Which of the three it is is recorded here, so that a completion that names a
//! buffer that the kernel does not have is refused and no buffer is given back twice.
//!
//! The kernel takes descriptors in the order of the ring, so a bundle that begins with one buffer
//! goes on with those that were published after it. That order is also why the kernel has no more than
//! `offered_max` at a time: with all of them in its ring, a lane of 8 MiB receives into memory that no
//! cache has seen for 8 MiB, however little arrives. Of the spare ones those go first that were used
//! last. A receive that ends for want of buffers doubles the bound.

use crate::{memory::Memory, ring::Ring, sys::failed};
use io_uring::types::BufRingEntry;
use laneway_core::LaneError;
use std::{
    rc::Rc,
    sync::atomic::{AtomicU16, Ordering},
};

/// Buffers that the kernel has at least, if there are as many.
const OFFERED_MIN: u16 = 16;

/// How buffers lie in their memory: buffer `i` begins at `i * stride_bytes`, and the kernel writes
/// `bytes` from `lead_bytes` on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) stride_bytes: usize,
    pub(crate) lead_bytes: usize,
    pub(crate) bytes: usize,
}

/// The buffers of one group.
pub(crate) struct Buffers {
    descriptors: Rc<Memory>,
    memory: Rc<Memory>,
    layout: Layout,
    count: u16,
    /// Descriptors written.
    tail: u16,
    /// The most that the kernel has at a time.
    offered_max: u16,
    /// How many it has.
    offered: u16,
    /// Given back and not offered, the one that was used last at the end.
    spare: Vec<u16>,
    /// Which buffer each place of the ring was last given.
    placed: Box<[u16]>,
    holder: Box<[Holder]>,
}

/// Of `count` buffers, all of them and how many the kernel has at first: an eighth, and enough for a
/// burst.
pub(crate) fn offered(count: u16) -> (u16, u16) {
    (count, (count / 8).max(OFFERED_MIN).min(count))
}

/// The holder of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// The kernel, at this place of the ring.
    Kernel(u16),
    /// The app, or a message that is being sent.
    Lane,
    /// No holder, until it is offered.
    Spare,
}

impl Buffers {
    /// Registers `count` buffers (a power of two) of `memory` as `group` and offers the kernel the first
    /// `offered_max` of them.
    ///
    /// # Safety
    /// From here on buffers `0..count` of `memory`, as laid out, are used only by code that was given
    /// them by [`take`](Self::take).
    pub(crate) unsafe fn register(
        ring: &mut Ring,
        memory: &Rc<Memory>,
        layout: Layout,
        (count, offered_max): (u16, u16),
        group: u16,
    ) -> Result<Buffers, LaneError> {
        assert!(count.is_power_of_two(), "{count} buffers");
        assert!((1..=count).contains(&offered_max), "{offered_max} of {count} buffers");
        assert!(layout.lead_bytes + layout.bytes <= layout.stride_bytes, "{layout:?}");
        assert!(usize::from(count) * layout.stride_bytes <= memory.bytes(), "{layout:?}");
        let hint = "lower buffers= or buffer=, or free memory";
        let bytes = usize::from(count) * size_of::<BufRingEntry>();
        let descriptors = Memory::map(bytes).map_err(failed("map provided-buffer ring", hint))?;
        let descriptors = Rc::new(descriptors);
        ring.keep(&descriptors);
        ring.keep(memory);
        // SAFETY: kept just above; page-aligned as every mapping.
        unsafe { ring.provide(descriptors.at(0) as u64, count, group) }
            .map_err(failed(format!("register {count} provided buffers"), hint))?;
        let mut buffers = Buffers {
            descriptors,
            memory: memory.clone(),
            layout,
            count,
            tail: 0,
            offered_max,
            offered: 0,
            spare: (0..count).rev().collect(),
            placed: vec![0; usize::from(count)].into_boxed_slice(),
            holder: vec![Holder::Spare; usize::from(count)].into_boxed_slice(),
        };
        buffers.publish();
        Ok(buffers)
    }

    /// Buffers that the app looks at, or that messages are sent from.
    pub(crate) fn in_use(&self) -> usize {
        usize::from(self.count - self.offered) - self.spare.len()
    }

    /// True when the kernel has something to receive into.
    pub(crate) fn has_any(&self) -> bool {
        self.offered > 0
    }

    /// A receive ended for want of buffers: from now on the kernel has twice as many at a time.
    pub(crate) fn ran_out(&mut self) {
        self.offered_max = self.offered_max.saturating_mul(2).min(self.count);
        self.publish();
    }

    /// Takes over a buffer that a completion named; nothing if the kernel did not have it.
    pub(crate) fn take(&mut self, buffer: u16) -> Option<u16> {
        let holder = self.holder.get_mut(usize::from(buffer))?;
        if !matches!(holder, Holder::Kernel(_)) {
            return None;
        }
        *holder = Holder::Lane;
        self.offered -= 1;
        Some(buffer)
    }

    /// Takes over the buffers of a bundle of `bytes` that begins with `first`, and shows each with
    /// its length. False when the kernel did not have them all.
    pub(crate) fn take_bundle(
        &mut self,
        first: u16,
        bytes: usize,
        mut each: impl FnMut(u16, usize),
    ) -> bool {
        let Some(&Holder::Kernel(mut place)) = self.holder.get(usize::from(first)) else {
            return false;
        };
        let mut rest = bytes;
        loop {
            let buffer = self.placed[usize::from(place & (self.count - 1))];
            if self.take(buffer).is_none() {
                return false;
            }
            let here = rest.min(self.layout.bytes);
            each(buffer, here);
            rest -= here;
            if rest == 0 {
                return true;
            }
            place = place.wrapping_add(1);
        }
    }

    /// Where the kernel wrote into `buffer`.
    pub(crate) fn start(&self, buffer: u16) -> usize {
        usize::from(buffer) * self.layout.stride_bytes + self.layout.lead_bytes
    }

    /// Longest that one buffer takes.
    pub(crate) fn bytes_max(&self) -> usize {
        self.layout.bytes
    }

    /// Takes back a buffer that is in use. The kernel may have it after the next `publish`.
    ///
    /// # Panics
    /// If the buffer is not in use.
    pub(crate) fn give(&mut self, buffer: u16) {
        let holder = &mut self.holder[usize::from(buffer)];
        assert!(*holder == Holder::Lane, "buffer {buffer} was given back twice");
        *holder = Holder::Spare;
        self.spare.push(buffer);
    }

    /// Writes the descriptor of a spare buffer.
    fn offer(&mut self, buffer: u16) {
        let place = self.tail;
        let at = place & (self.count - 1);
        self.holder[usize::from(buffer)] = Holder::Kernel(place);
        self.placed[usize::from(at)] = buffer;
        let start = self.memory.at(self.start(buffer)) as u64;
        let offset = usize::from(at) * size_of::<BufRingEntry>();
        let descriptor = self.descriptors.at_typed::<BufRingEntry>(offset);
        // SAFETY: this place of the ring is free, because the ring has as many places as there are
        // buffers and this buffer was not in it; so the kernel does not look at it before the tail moves.
        // (The tail, which the kernel does read, shares the first entry but is none of these fields.)
        let descriptor = unsafe { &mut *descriptor };
        descriptor.set_addr(start);
        descriptor.set_len(self.layout.bytes as u32);
        descriptor.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
        self.offered += 1;
    }

    /// Offers the kernel spare buffers, up to the bound.
    pub(crate) fn publish(&mut self) {
        while self.offered < self.offered_max {
            let Some(buffer) = self.spare.pop() else { break };
            self.offer(buffer);
        }
        let first = self.descriptors.at_typed::<BufRingEntry>(0).cast_const();
        // SAFETY: the first entry of the registered ring, initialised (zeroed at birth).
        let tail = unsafe { BufRingEntry::tail(first) };
        // SAFETY: two aligned bytes inside the mapping, which we and the kernel access atomically.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        // Pairs with the kernel's acquire of the tail: it sees the descriptors written before.
        tail.store(self.tail, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LAYOUT: Layout = Layout { stride_bytes: 64, lead_bytes: 16, bytes: 48 };

    /// Buffers of a ring without requests: this test plays the kernel.
    fn buffers(ring: &mut Ring, count: u16, offered_max: u16) -> Buffers {
        let memory = Memory::map(usize::from(count) * LAYOUT.stride_bytes).expect("memory");
        // SAFETY: the memory is this function's own.
        unsafe { Buffers::register(ring, &Rc::new(memory), LAYOUT, (count, offered_max), 0) }
            .expect("registers")
    }

    #[test]
    fn a_buffer_that_the_kernel_does_not_have_is_refused() {
        let Ok(mut ring) = Ring::open(2).map_err(laneway_testkit::skip) else { return };
        let mut buffers = buffers(&mut ring, 4, 4);
        assert_eq!(buffers.take(3), Some(3));
        assert_eq!((buffers.take(3), buffers.take(4)), (None, None));
        assert_eq!(buffers.in_use(), 1);
        buffers.give(3);
        assert_eq!((buffers.take(3), buffers.in_use()), (None, 0), "spare");
        buffers.publish();
        assert_eq!((buffers.take(3), buffers.in_use()), (Some(3), 1));
    }

    #[test]
    #[should_panic(expected = "given back twice")]
    fn a_buffer_cannot_be_given_twice() {
        let Ok(mut ring) = Ring::open(2).map_err(laneway_testkit::skip) else {
            panic!("given back twice (skipped)");
        };
        buffers(&mut ring, 4, 4).give(0);
    }

    #[test]
    fn the_last_buffer_taken_leaves_the_kernel_none() {
        let Ok(mut ring) = Ring::open(2).map_err(laneway_testkit::skip) else { return };
        let mut buffers = buffers(&mut ring, 2, 2);
        assert!(buffers.take(0).is_some() && buffers.has_any());
        assert!(buffers.take(1).is_some() && !buffers.has_any());
    }

    #[test]
    fn what_was_used_last_is_offered_first_until_the_kernel_runs_out() {
        let Ok(mut ring) = Ring::open(2).map_err(laneway_testkit::skip) else { return };
        let mut buffers = buffers(&mut ring, 8, 2);
        for _ in 0..3 {
            assert_eq!((buffers.take(0), buffers.take(2)), (Some(0), None), "two are offered");
            buffers.give(0);
            buffers.publish();
        }
        assert_eq!(
            (buffers.take(1), buffers.take(0), buffers.has_any()),
            (Some(1), Some(0), false)
        );
        buffers.ran_out();
        assert_eq!((buffers.take(2), buffers.take(5), buffers.take(6)), (Some(2), Some(5), None));
        for buffer in [0, 1, 2, 5] {
            buffers.give(buffer);
        }
        (0..9).for_each(|_| buffers.ran_out());
        assert_eq!(buffers.in_use(), 0);
        assert!((0..8).all(|buffer| buffers.take(buffer).is_some()), "all of them, and no more");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Bundles follow the order in which buffers were given, whatever that is.
        #[test]
        fn a_bundle_goes_on_in_the_order_of_giving(lengths in prop::collection::vec(1usize..=48 * 8, 1..40)) {
            let Ok(mut ring) = Ring::open(2).map_err(laneway_testkit::skip) else { return Ok(()) };
            let mut buffers = buffers(&mut ring, 8, 8);
            let mut order: std::collections::VecDeque<u16> = (0..8).collect();
            for (i, bytes) in lengths.into_iter().enumerate() {
                let mut taken = Vec::new();
                prop_assert!(buffers.take_bundle(order[0], bytes, |buffer, here| taken.push((buffer, here))));
                prop_assert_eq!(taken.iter().map(|t| t.1).sum::<usize>(), bytes);
                prop_assert_eq!(taken.len(), bytes.div_ceil(48));
                for (buffer, _) in &taken {
                    prop_assert_eq!(order.pop_front(), Some(*buffer));
                }
                let turn = i % taken.len();
                taken.rotate_left(turn);
                for (buffer, _) in taken {
                    buffers.give(buffer);
                    buffers.publish();
                    order.push_back(buffer);
                }
                prop_assert_eq!(buffers.in_use(), 0);
            }
        }
    }
}
