//! All movement of frames between the free list, the rings, and bursts, without a single system call.
//!
//! ```text
//!                 refill                     kernel receives               receive
//!   free list ─────────────▶ fill ring ───────────────────────▶ rx ring ─────────────▶ burst
//!    ▲  ▲                                                                                │
//!    │  └────────────────── settle: Drop, Pass, refused ─────────────────────────────────┤
//!    │                                                                                   ▼ settle: Tx, TxTo,
//!    └──── reap ──── completion ring ◀── kernel transmits ◀── tx ring of any port ◀──────┘ Fanout
//! ```
//!
//! Ports are interfaces (each with its own four rings); the memory is one, so a frame received on
//! one port leaves by another without being moved. Assumes that the rings' other side returns every
//! frame it was given, once. What must always hold: [`Plane::census`] adds up to the number of
//! frames. Keeping system calls out lets the tests play the kernel and check just that.

use crate::{
    ring::{Consumer, Producer},
    sys::{XDP_PKT_CONTD, XdpDesc},
    umem::{FreeList, Umem},
};
use laneway_core::{Burst, Counters, DropReason, FrameSpan, PortId, Verdict};
use std::iter;

/// Bytes of an Ethernet header: the shortest frame the kernel could make sense of.
const ETHERNET_BYTES: u32 = 14;
/// Bytes of one VLAN tag, which a link carries on top of its MTU.
const VLAN_TAG_BYTES: u32 = 4;
/// Buffers that one sent frame may have: what every driver takes in copy mode (MAX_SKB_FRAGS; those
/// that keep the first buffer apart take one more). The kernel accepts a frame of more, then drops
/// it and counts every buffer as invalid, so that it would be sent and lost many times in a ledger.
const TX_PARTS_MAX: u32 = 17;

/// The rings of one port; the kernel holds the other sides.
pub(crate) struct Rings {
    /// Addresses of frames to receive into.
    pub(crate) fill: Producer<u64>,
    /// Addresses of frames that were sent.
    pub(crate) completion: Consumer<u64>,
    /// Received frames.
    pub(crate) rx: Consumer<XdpDesc>,
    /// Frames to send.
    pub(crate) tx: Producer<XdpDesc>,
}

/// What a port is opened with. Only the MTU changes later on.
#[derive(Clone, Copy)]
pub(crate) struct PortLimits {
    /// Frames per burst.
    pub(crate) burst_frames: usize,
    /// Frames that the kernel may have to receive into: the entries of the fill ring.
    pub(crate) fill_frames: u32,
    /// The interface's MTU in bytes, without the Ethernet header.
    pub(crate) mtu_bytes: u32,
}

/// One port: rings, the burst that the app borrows, and counters.
pub(crate) struct PlanePort {
    pub(crate) rings: Rings,
    pub(crate) burst: Burst,
    pub(crate) counters: Counters,
    limits: PortLimits,
    /// Frames with the kernel to receive into: in the fill ring, inside, or in the receive ring.
    receiving: u32,
    /// Frames with the kernel to transmit: in the transmit ring, inside, or in the completion ring.
    transmitting: u32,
    /// Something was pushed to the transmit ring since the last publish.
    has_unsent: bool,
    /// Nothing is sent here any more.
    closed: bool,
    /// Frames from `lend` that the driver dropped, until the kernel gives them back: then they are sent
    /// again. `lend` provides none meanwhile.
    dropped: Vec<XdpDesc>,
}

impl PlanePort {
    /// Counted as sent, and not sent yet: frames and bytes.
    pub(crate) fn to_send_again(&self) -> (u64, u64) {
        let bytes = self.dropped.iter().map(|desc| u64::from(desc.len)).sum();
        (self.dropped.len() as u64, bytes)
    }
}

/// Where the frames are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// In the free list.
    pub free: usize,
    /// With the kernel to receive into, or received and not yet taken.
    pub receiving: usize,
    /// In bursts.
    pub burst: usize,
    /// With the kernel to transmit, or sent and not yet reaped.
    pub transmitting: usize,
}

impl Census {
    /// All of them; must equal the number of frames of the UMEM.
    pub fn total(&self) -> usize {
        self.free + self.receiving + self.burst + self.transmitting
    }
}

/// The frames and ports of one lane.
pub(crate) struct Plane {
    pub(crate) umem: Umem,
    pub(crate) ports: Vec<PlanePort>,
    free: FreeList,
    /// Of each frame that left the free list, whether `lend` provided it.
    borrowed: Box<[bool]>,
    /// Where a frame to be passed is copied, so that nothing borrows the UMEM during the call.
    passing: Vec<u8>,
}

/// Hands a frame to the kernel's stack; false when the kernel refused.
pub(crate) type PassFrame<'a> = &'a mut dyn FnMut(&[u8]) -> bool;

impl Plane {
    /// A plane with all frames free.
    pub(crate) fn new(umem: Umem) -> Plane {
        let free = FreeList::full(umem.frames());
        let passing = Vec::with_capacity(umem.frame_bytes());
        let borrowed = vec![false; umem.frames() as usize].into_boxed_slice();
        Plane { umem, ports: Vec::new(), free, borrowed, passing }
    }

    /// Adds a port over fresh rings and gives the kernel frames to receive into.
    pub(crate) fn add_port(&mut self, rings: Rings, limits: PortLimits) {
        let burst = Burst::new(self.umem.region().clone(), limits.burst_frames);
        self.ports.push(PlanePort {
            rings,
            burst,
            counters: Counters::default(),
            limits,
            receiving: 0,
            transmitting: 0,
            has_unsent: false,
            closed: false,
            dropped: Vec::new(),
        });
        self.refill(self.ports.len() - 1);
    }

    /// Where every frame is now.
    pub(crate) fn census(&self) -> Census {
        let mut census = Census { free: self.free.len(), ..Census::default() };
        for port in &self.ports {
            census.receiving += port.receiving as usize;
            census.transmitting += port.transmitting as usize;
            for i in 0..port.burst.len() {
                census.burst += 1 + port.burst.tail_spans(i).len();
            }
        }
        census
    }

    /// True when frames wait in the receive ring of `port`.
    #[inline]
    pub(crate) fn is_ready(&mut self, port: usize) -> bool {
        self.ports[port].rings.rx.refresh() > 0
    }

    /// Moves what was received into the (empty) burst of `port`, all stamped by one call of `now_ns`
    /// made when all of it was there: no frame is stamped before it arrived.
    pub(crate) fn receive(&mut self, port: usize, now_ns: impl FnOnce() -> u64) {
        self.reap();
        let Plane { umem, ports, free, .. } = self;
        let PlanePort { rings, burst, counters, receiving, .. } = &mut ports[port];
        if rings.rx.refresh() == 0 {
            counters.polls_empty += 1;
        } else {
            let ts_ns = now_ns();
            while burst.space() > 0 {
                let frames = iter::from_fn(|| {
                    let desc = rings.rx.peek(0)?;
                    if desc.options & XDP_PKT_CONTD != 0 {
                        return None;
                    }
                    rings.rx.pop();
                    *receiving -= 1;
                    counters.rx_frames += 1;
                    counters.rx_bytes += u64::from(desc.len);
                    let span = umem.span(desc.addr as usize, desc.len, ts_ns);
                    Some((umem.frame_of(desc.addr), span))
                });
                // SAFETY: the kernel gave the frames up by publishing their descriptors (acquired in
                // `peek`) and does not use them again before they are back in a ring.
                unsafe { burst.extend(frames.take(burst.space())) };
                // What is left is a frame of several descriptors.
                if burst.space() == 0
                    || rings.rx.peek(0).is_none()
                    || !receive_chain(umem, rings, burst, counters, receiving, free, ts_ns)
                {
                    break;
                }
            }
            rings.rx.release();
        }
        self.refill(port);
    }

    /// Puts up to `frames` free frames into the (empty) burst of `port`, no more than its transmit ring has
    /// room for: a source waits for that rather than lose what it fills.
    pub(crate) fn lend(&mut self, port: usize, frames: usize) {
        self.reap();
        let Plane { umem, ports, free, borrowed, .. } = self;
        let PlanePort { rings, burst, dropped, .. } = &mut ports[port];
        if !dropped.is_empty() {
            return;
        }
        let frames = frames.min(burst.space());
        let frames = frames.min(rings.tx.space(frames as u32) as usize);
        let empty = iter::from_fn(|| {
            let number = free.take()?;
            borrowed[number as usize] = true;
            Some((number, umem.empty(number).1))
        });
        // SAFETY: the frames were free: nothing else refers to them, and they leave the free list here.
        unsafe { burst.extend(empty.take(frames)) };
    }

    /// Acts on the verdicts of the burst of `port`, then empties it. Transmissions are published, not yet announced to
    /// the kernel: see [`take_unsent`](Self::take_unsent).
    pub(crate) fn settle(&mut self, port: usize, pass: PassFrame<'_>) {
        self.reap();
        for i in 0..self.ports[port].burst.len() {
            let frame = BurstFrame { port, i, span: self.ports[port].burst.span(i) };
            match self.ports[port].burst.verdict(i) {
                Verdict::Drop => self.release(&frame),
                verdict => self.settle_frame(&frame, verdict, pass),
            }
        }
        self.ports[port].burst.clear();
        self.publish();
        self.refill(port);
    }

    /// Shows the kernel what was pushed to the transmit rings. True when there was something.
    pub(crate) fn publish(&mut self) -> bool {
        let mut is_unsent = false;
        for port in self.ports.iter_mut().filter(|port| port.has_unsent) {
            port.rings.tx.publish();
            is_unsent = true;
        }
        is_unsent
    }

    /// True once per port after frames were published to its transmit ring.
    pub(crate) fn take_unsent(&mut self, port: usize) -> bool {
        std::mem::take(&mut self.ports[port].has_unsent)
    }

    /// The interface of `port` has this MTU now.
    pub(crate) fn set_mtu(&mut self, port: usize, mtu_bytes: u32) {
        self.ports[port].limits.mtu_bytes = mtu_bytes;
    }

    /// Nothing leaves by `port` any more: what the kernel has not taken off the transmit ring is
    /// counted as refused instead of sent, and so is every frame that is to leave from now on. The frames
    /// stay where they are: the kernel may still read them.
    pub(crate) fn close(&mut self, port: usize) {
        let PlanePort { rings, counters, closed, dropped, .. } = &mut self.ports[port];
        if std::mem::replace(closed, true) {
            return;
        }
        let (mut frames, mut bytes) = (0, 0);
        for i in 0.. {
            let Some(desc) = rings.tx.left(i) else { break };
            bytes += u64::from(desc.len);
            frames += u64::from(desc.options & XDP_PKT_CONTD == 0);
        }
        for desc in dropped.drain(..) {
            bytes += u64::from(desc.len);
            frames += 1;
        }
        take_back(counters, frames, bytes);
    }

    /// Counts what is to be sent again as refused: it will not be.
    pub(crate) fn drop_unsent(&mut self) {
        for port in &mut self.ports {
            let (frames, bytes) = port.to_send_again();
            port.dropped.clear();
            take_back(&mut port.counters, frames, bytes);
        }
    }

    /// In a call that began with `waiting` descriptors in the transmit ring of `port`, the driver dropped the frame
    /// that the kernel took last. One that `lend` provided is sent again, ahead of those behind it, if `keeps`; any
    /// other is counted as refused. A kernel that does not show after each call how far it got (`shows`) leaves
    /// unknown which frame it was: then none is kept.
    ///
    /// # Safety
    /// The kernel reads the transmit ring only during calls of this thread: copy mode.
    pub(crate) unsafe fn driver_dropped(
        &mut self,
        port: usize,
        waiting: u32,
        shows: bool,
        keeps: bool,
    ) {
        let Plane { umem, ports, borrowed, .. } = self;
        let PlanePort { rings: Rings { tx, .. }, counters, dropped, .. } = &mut ports[port];
        if !shows {
            let bytes = tx.left(0).or_else(|| tx.taken(1)).map_or(0, |desc| desc.len);
            return take_back(counters, 1, u64::from(bytes));
        }
        if tx.waiting() == waiting {
            // The index is shown only when a frame was sent: it was the first.
            let is_more =
                |i: &u32| tx.left(*i).is_some_and(|desc| desc.options & XDP_PKT_CONTD != 0);
            let parts = 1 + (0..waiting).take_while(is_more).count() as u32;
            tx.took_unshown(parts);
        }
        let Some(last) = tx.taken(1) else { return };
        if keeps && borrowed[umem.frame_of(last.addr) as usize] {
            counters.tx_retries += 1;
            dropped.push(last);
            // The kernel copies what it sends, and has freed the copy: the frame is back already.
            return self.reap();
        }
        let mut bytes = u64::from(last.len);
        for back in 2.. {
            match tx.taken(back) {
                Some(desc) if desc.options & XDP_PKT_CONTD != 0 => bytes += u64::from(desc.len),
                _ => break,
            }
        }
        take_back(counters, 1, bytes);
    }

    fn settle_frame(&mut self, frame: &BurstFrame, verdict: Verdict, pass: PassFrame<'_>) {
        match verdict {
            Verdict::Drop => self.release(frame),
            Verdict::Tx => self.transmit(frame, frame.port),
            Verdict::TxTo(PortId(egress)) => self.transmit(frame, egress as usize),
            Verdict::Pass => {
                let one_buffer = self.tails(frame).is_empty() && frame.span.len >= ETHERNET_BYTES;
                self.umem.read(&frame.span, &mut self.passing);
                let counters = &mut self.ports[frame.port].counters;
                if one_buffer && pass(&self.passing) {
                    counters.passed += 1;
                    counters.copies += 1;
                } else {
                    counters.drop_one(DropReason::PassRefused);
                }
                self.release(frame);
            }
            Verdict::Fanout(mask) => {
                // The last port gets the frame itself, so that a fan-out to one port copies nothing.
                let mut egresses = mask.iter().peekable();
                if egresses.peek().is_none() {
                    self.release(frame);
                }
                while let Some(egress) = egresses.next() {
                    if egresses.peek().is_some() {
                        self.transmit_copy(frame, egress.index());
                    } else {
                        self.transmit(frame, egress.index());
                    }
                }
            }
        }
    }

    /// Sends a frame by `egress`, or counts why not and frees it.
    fn transmit(&mut self, frame: &BurstFrame, egress: usize) {
        if !self.admit(frame, egress) {
            return self.release(frame);
        }
        let tails = self.tails(frame).len();
        self.push(egress, &frame.span, tails > 0);
        for k in 0..tails {
            let (_, tail) = self.tails(frame)[k];
            self.push(egress, &tail, k + 1 < tails);
        }
        self.count_sent(frame, egress);
    }

    /// Sends a copy of a frame by `egress`, or counts why not. The frame stays where it is.
    fn transmit_copy(&mut self, frame: &BurstFrame, egress: usize) {
        if !self.admit(frame, egress) {
            return;
        }
        let tails = self.tails(frame).len();
        if self.free.len() < 1 + tails {
            return self.ports[egress].counters.drop_one(DropReason::TxRefused);
        }
        for k in 0..=tails {
            let part = if k == 0 { frame.span } else { self.tails(frame)[k - 1].1 };
            let target = self.free.take().expect("enough frames are free: just checked");
            self.borrowed[target as usize] = false;
            let copy = self.umem.copy(&part, target);
            self.push(egress, &copy, k < tails);
        }
        self.ports[egress].counters.copies += 1;
        self.count_sent(frame, egress);
    }

    /// True when `egress` can take the frame now; counts the reason when it cannot.
    fn admit(&mut self, frame: &BurstFrame, egress: usize) -> bool {
        let bytes = self.bytes(frame);
        let parts = 1 + self.tails(frame).len() as u32;
        let has_empty_part = frame.span.len < ETHERNET_BYTES
            || self.tails(frame).iter().any(|(_, tail)| tail.len == 0);
        let Some(to) = self.ports.get_mut(egress) else {
            self.ports[frame.port].counters.drop_one(DropReason::TxNoPort);
            return false;
        };
        let mut bytes_max = to.limits.mtu_bytes + ETHERNET_BYTES;
        if bytes > bytes_max && is_tagged(&self.umem, &frame.span) {
            bytes_max += VLAN_TAG_BYTES;
        }
        // An empty descriptor is invalid to the kernel, which would drop it without ever completing
        // its frame.
        let reason = if bytes > bytes_max || parts > TX_PARTS_MAX {
            DropReason::TxTooLong
        } else if has_empty_part || to.closed || to.rings.tx.space(parts) < parts {
            DropReason::TxRefused
        } else {
            return true;
        };
        to.counters.drop_one(reason);
        false
    }

    fn push(&mut self, egress: usize, span: &FrameSpan, continues: bool) {
        let to = &mut self.ports[egress];
        let options = if continues { XDP_PKT_CONTD } else { 0 };
        let desc = XdpDesc { addr: span.start as u64, len: span.len, options };
        let pushed = to.rings.tx.push(desc);
        debug_assert!(pushed, "admit saw space for every part");
        to.transmitting += 1;
        to.has_unsent = true;
    }

    fn count_sent(&mut self, frame: &BurstFrame, egress: usize) {
        let bytes = u64::from(self.bytes(frame));
        let counters = &mut self.ports[egress].counters;
        counters.tx_frames += 1;
        counters.tx_bytes += bytes;
    }

    /// Frees a frame and its tails.
    fn release(&mut self, frame: &BurstFrame) {
        let burst = &self.ports[frame.port].burst;
        self.free.put(burst.numbers()[frame.i]);
        for (tail, _) in burst.tail_spans(frame.i) {
            self.free.put(*tail);
        }
    }

    fn tails(&self, frame: &BurstFrame) -> &[(u32, FrameSpan)] {
        self.ports[frame.port].burst.tail_spans(frame.i)
    }

    fn bytes(&self, frame: &BurstFrame) -> u32 {
        frame.span.len + self.tails(frame).iter().map(|(_, tail)| tail.len).sum::<u32>()
    }

    /// Takes back frames that the kernel has sent, of every port: one that only transmits is never
    /// received on, and its frames are missing elsewhere. Those to be sent again go first in the transmit ring.
    pub(crate) fn reap(&mut self) {
        let Plane { umem, ports, free, .. } = self;
        for PlanePort { rings, counters, transmitting, has_unsent, dropped, .. } in ports {
            if *transmitting == 0 {
                continue;
            }
            rings.completion.refresh();
            while let Some(addr) = rings.completion.pop() {
                if !dropped.is_empty()
                    && let Some(at) = dropped.iter().position(|desc| desc.addr == addr)
                {
                    let desc = dropped.swap_remove(at);
                    // SAFETY: only `driver_dropped` fills the list. Its caller promised that the kernel reads the ring
                    // during calls alone, and none is made here; it leaves the place exact.
                    if unsafe { rings.tx.push_front(desc) } {
                        *has_unsent = true;
                        continue;
                    }
                    take_back(counters, 1, u64::from(desc.len));
                }
                free.put(umem.frame_of(addr));
                *transmitting -= 1;
            }
            rings.completion.release();
        }
    }

    /// Gives the kernel free frames until it has as many as its fill ring has entries. So many are
    /// never in the ring at once, so the kernel's index is rarely read; but the kernel hands over what
    /// it has received before it says which fill slots it took, and may lose its CPU in between. What
    /// finds no slot then is given later.
    fn refill(&mut self, port: usize) {
        let Plane { umem, ports, free, borrowed, .. } = self;
        let PlanePort { rings, receiving, limits, .. } = &mut ports[port];
        while *receiving < limits.fill_frames && rings.fill.space(1) > 0 {
            let Some(frame) = free.take() else { break };
            borrowed[frame as usize] = false;
            let pushed = rings.fill.push(umem.start_of(frame) as u64);
            debug_assert!(pushed, "there was space");
            *receiving += 1;
        }
        rings.fill.publish();
    }
}

/// Frames that were counted as sent were not.
fn take_back(counters: &mut Counters, frames: u64, bytes: u64) {
    counters.tx_frames = counters.tx_frames.saturating_sub(frames);
    counters.tx_bytes = counters.tx_bytes.saturating_sub(bytes);
    counters.drop_many(DropReason::TxRefused, frames);
}

/// A frame of a burst being settled; its tails are in the burst.
struct BurstFrame {
    port: usize,
    i: usize,
    span: FrameSpan,
}

/// Receives one frame of several descriptors; false when it has to wait for the next burst: its end
/// is not there yet, or the burst has too little tail space left.
fn receive_chain(
    umem: &Umem,
    rings: &mut Rings,
    burst: &mut Burst,
    counters: &mut Counters,
    receiving: &mut u32,
    free: &mut FreeList,
    ts_ns: u64,
) -> bool {
    let (mut parts, mut bytes) = (0, 0);
    loop {
        let Some(desc) = rings.rx.peek(parts) else { return false };
        parts += 1;
        bytes += desc.len;
        if desc.options & XDP_PKT_CONTD == 0 {
            break;
        }
    }
    let fits = (parts - 1) as usize <= burst.tail_space();
    if !fits && !burst.is_empty() {
        return false;
    }
    for part in 0..parts {
        let desc = rings.rx.pop().expect("peeked above");
        *receiving -= 1;
        let number = umem.frame_of(desc.addr);
        let span = umem.span(desc.addr as usize, desc.len, ts_ns);
        if !fits {
            free.put(number);
        } else if part == 0 {
            // SAFETY: as in `receive`: the kernel gave this frame up.
            unsafe { burst.extend([(number, FrameSpan { wire_len: bytes, ..span })]) };
        } else {
            // SAFETY: likewise.
            unsafe { burst.push_tail(number, span) };
        }
    }
    if fits {
        counters.rx_frames += 1;
        counters.rx_bytes += u64::from(bytes);
    } else {
        counters.drop_one(DropReason::RxTooLong);
    }
    true
}

/// True for a frame with a VLAN tag, which may be longer than the MTU by the tag.
fn is_tagged(umem: &Umem, span: &FrameSpan) -> bool {
    span.len >= ETHERNET_BYTES && matches!(umem.be16(span, 12), 0x8100 | 0x88a8)
}

#[cfg(test)]
mod tests;
