//! The plane against a kernel played by the test: it owns the other sides of all rings, gives no
//! frame back twice, and complains when it is given a frame that it already has.

use super::*;
use crate::{ring::heap, umem};
use laneway_core::PortMask;
use proptest::prelude::*;
use std::collections::HashSet;

const FRAME_BYTES: usize = 512;
const PORTS: usize = 3;
const LIMITS: PortLimits = PortLimits { burst_frames: 4, fill_frames: 8, mtu_bytes: 200 };

/// The kernel's sides of one port's rings, and the frames inside it.
struct KernelPort {
    fill: Consumer<u64>,
    completion: Producer<u64>,
    rx: Producer<XdpDesc>,
    tx: Consumer<XdpDesc>,
    empty: Vec<u64>,
    sent: Vec<u64>,
}

/// A plane and the kernel around it.
struct World {
    plane: Plane,
    kernel: Vec<KernelPort>,
    kernel_has: HashSet<u32>,
    frames: usize,
}

impl World {
    fn new(frames_per_port: u32, limits: PortLimits) -> World {
        let frames = frames_per_port * PORTS as u32;
        let mut plane = Plane::new(umem::heap::umem(FRAME_BYTES, frames));
        let kernel = (0..PORTS)
            .map(|_| {
                let (fill, kernel_fill) = heap::ring(limits.fill_frames, u32::MAX - 3);
                let (kernel_completion, completion) = heap::ring(limits.fill_frames, u32::MAX - 3);
                let (kernel_rx, rx) = heap::ring(limits.fill_frames, u32::MAX - 3);
                let (tx, kernel_tx) = heap::ring(limits.fill_frames, u32::MAX - 3);
                plane.add_port(Rings { fill, completion, rx, tx }, limits);
                KernelPort {
                    fill: kernel_fill,
                    completion: kernel_completion,
                    rx: kernel_rx,
                    tx: kernel_tx,
                    empty: Vec::new(),
                    sent: Vec::new(),
                }
            })
            .collect();
        World { plane, kernel, kernel_has: HashSet::new(), frames: frames as usize }
    }

    /// The kernel takes what is in the fill ring.
    fn take_fill(&mut self, port: usize) {
        let kernel = &mut self.kernel[port];
        kernel.fill.refresh();
        while let Some(addr) = kernel.fill.pop() {
            assert!(self.kernel_has.insert(self.plane.umem.frame_of(addr)), "given twice");
            kernel.empty.push(addr);
        }
        kernel.fill.release();
    }

    /// The kernel receives a frame in `parts` buffers of `len` bytes, each filled with `fill`; false
    /// without enough buffers or ring space.
    fn kernel_receives(&mut self, port: usize, parts: u32, len: u32, fill: u8) -> bool {
        self.take_fill(port);
        let kernel = &mut self.kernel[port];
        if kernel.empty.len() < parts as usize || kernel.rx.space(parts) < parts {
            return false;
        }
        for part in 1..=parts {
            let frame = self.plane.umem.frame_of(kernel.empty.pop().expect("counted above"));
            assert!(self.kernel_has.remove(&frame));
            let addr = self.plane.umem.start_of(frame) + umem::HEADROOM_BYTES;
            for i in 0..len as usize {
                // SAFETY: inside the frame, which the kernel (this test) owns.
                let at = unsafe { self.plane.umem.base().add(addr + i) };
                // SAFETY: as above.
                unsafe { at.write(fill) };
            }
            let options = if part < parts { XDP_PKT_CONTD } else { 0 };
            assert!(kernel.rx.push(XdpDesc { addr: addr as u64, len, options }));
        }
        kernel.rx.publish();
        true
    }

    /// The kernel takes up to `count` descriptors to transmit.
    fn kernel_transmits(&mut self, port: usize, count: usize) -> Vec<XdpDesc> {
        let kernel = &mut self.kernel[port];
        kernel.tx.refresh();
        let descs: Vec<XdpDesc> = iter::from_fn(|| kernel.tx.pop()).take(count).collect();
        kernel.tx.release();
        for desc in &descs {
            assert!(desc.len > 0, "an empty descriptor would never complete");
            assert!(self.kernel_has.insert(self.plane.umem.frame_of(desc.addr)), "sent twice");
            kernel.sent.push(desc.addr);
        }
        descs
    }

    /// One call of the kernel in copy mode, as Linux transmits since 6.17: it sends `sent` descriptors, whole frames;
    /// then the driver drops the next frame, if there is one, which is given back at once. Its place in the ring is
    /// shown when something was sent, or never unless `shows`. Returns what was sent.
    fn kernel_calls(&mut self, port: usize, sent: usize, shows: bool) -> Vec<XdpDesc> {
        let waiting = self.plane.ports[port].rings.tx.waiting();
        let kernel = &mut self.kernel[port];
        if shows && kernel.tx.peek(0).is_none() {
            kernel.tx.release();
        }
        kernel.tx.refresh();
        let descs: Vec<XdpDesc> = iter::from_fn(|| kernel.tx.pop()).take(sent).collect();
        for desc in &descs {
            assert!(self.kernel_has.insert(self.plane.umem.frame_of(desc.addr)), "sent twice");
            kernel.sent.push(desc.addr);
        }
        let mut drops = false;
        while let Some(desc) = kernel.tx.pop() {
            drops = true;
            assert!(!self.kernel_has.contains(&self.plane.umem.frame_of(desc.addr)), "sent twice");
            assert!(kernel.completion.push(desc.addr));
            if desc.options & XDP_PKT_CONTD == 0 {
                break;
            }
        }
        kernel.completion.publish();
        if shows && !descs.is_empty() {
            kernel.tx.release();
        }
        if drops {
            // SAFETY: the kernel is this test, on this thread.
            unsafe { self.plane.driver_dropped(port, waiting, shows, true) };
            self.plane.publish();
        }
        self.check();
        descs
    }

    /// The kernel completes up to `count` sent frames, the newest first: order is not promised.
    fn kernel_completes(&mut self, port: usize, count: usize) {
        let kernel = &mut self.kernel[port];
        for _ in 0..count {
            if kernel.completion.space(1) == 0 {
                break;
            }
            let Some(addr) = kernel.sent.pop() else { break };
            assert!(self.kernel_has.remove(&self.plane.umem.frame_of(addr)));
            assert!(kernel.completion.push(addr));
        }
        kernel.completion.publish();
    }

    /// One engine turn: receive, the same verdict for all, settle.
    fn turn(&mut self, port: usize, verdict: Verdict) {
        self.plane.receive(port, || 5);
        self.decide(port, verdict);
    }

    fn decide(&mut self, port: usize, verdict: Verdict) {
        let burst = &mut self.plane.ports[port].burst;
        for i in 0..burst.len() {
            burst.set_verdict(i, verdict);
        }
        self.settle(port);
    }

    fn settle(&mut self, port: usize) {
        self.plane.settle(port, &mut |frame| frame.len() >= 60);
        for port in 0..PORTS {
            self.plane.take_unsent(port);
        }
        self.check();
    }

    fn check(&self) {
        let census = self.plane.census();
        assert_eq!(census.total(), self.frames, "{census:?}");
    }

    fn counters(&self, port: usize) -> &Counters {
        &self.plane.ports[port].counters
    }
}

fn world() -> World {
    World::new(16, LIMITS)
}

#[test]
fn a_received_frame_has_its_bytes_and_its_headroom() {
    let mut w = world();
    assert!(w.kernel_receives(0, 1, 60, 7));
    w.plane.receive(0, || 42);
    let burst = &mut w.plane.ports[0].burst;
    assert_eq!((burst.len(), burst.frame(0).bytes, burst.frame(0).ts_ns), (1, &[7; 60][..], 42));
    assert!(burst.frame_mut(0).headroom() >= laneway_core::HEADROOM_BYTES_MIN);
    w.settle(0);
    assert_eq!((w.counters(0).rx_frames, w.counters(0).rx_bytes), (1, 60));
}

#[test]
fn frames_wait_for_fill_slots_that_the_kernel_has_not_let_go_of_yet() {
    let mut w = world();
    let kernel = &mut w.kernel[0];
    kernel.fill.refresh();
    kernel.empty.extend(iter::from_fn(|| kernel.fill.pop()));
    // It hands a frame over, and is interrupted before it says what it took.
    let addr = kernel.empty.pop().expect("the ring was full") + umem::HEADROOM_BYTES as u64;
    assert!(kernel.rx.push(XdpDesc { addr, len: 60, options: 0 }));
    kernel.rx.publish();
    w.turn(0, Verdict::Drop);
    let all = PORTS * LIMITS.fill_frames as usize;
    assert_eq!((w.counters(0).rx_frames, w.plane.census().receiving), (1, all - 1));
    w.kernel[0].fill.release();
    w.turn(0, Verdict::Drop);
    assert_eq!(w.plane.census().receiving, all);
}

#[test]
fn a_frame_that_arrives_after_the_stamp_waits_for_the_next_burst() {
    let mut w = world();
    w.kernel_receives(0, 1, 60, 1);
    let World { plane, kernel, kernel_has, .. } = &mut w;
    plane.receive(0, || {
        let addr = kernel[0].empty.pop().expect("the kernel has more than one frame");
        kernel_has.remove(&((addr as usize / FRAME_BYTES) as u32));
        assert!(kernel[0].rx.push(XdpDesc { addr: addr + 256, len: 60, options: 0 }));
        kernel[0].rx.publish();
        7
    });
    w.decide(0, Verdict::Drop);
    assert_eq!(w.counters(0).rx_frames, 1);
    w.turn(0, Verdict::Drop);
    assert_eq!(w.counters(0).rx_frames, 2);
}

#[test]
fn a_frame_leaves_another_port_without_a_copy() {
    let mut w = world();
    w.kernel_receives(0, 1, 60, 7);
    w.plane.receive(0, || 0);
    let frame = w.plane.ports[0].burst.numbers()[0];
    w.decide(0, Verdict::Fanout(PortMask(0b010)));
    let sent = w.kernel_transmits(1, 9);
    assert_eq!(sent.iter().map(|d| w.plane.umem.frame_of(d.addr)).collect::<Vec<_>>(), [frame]);
    assert_eq!((w.counters(1).copies, w.counters(1).tx_frames), (0, 1));
}

#[test]
fn a_fan_out_copies_for_every_port_but_the_last() {
    let mut w = world();
    w.kernel_receives(0, 1, 60, 7);
    w.turn(0, Verdict::Fanout(PortMask(0b1000_0111)));
    for port in 0..PORTS {
        let sent = w.kernel_transmits(port, 9);
        assert_eq!(sent.len(), 1);
        let mut bytes = Vec::new();
        w.plane.umem.read(&w.plane.umem.span(sent[0].addr as usize, sent[0].len, 0), &mut bytes);
        assert_eq!(bytes, [7; 60]);
    }
    let copies: u64 = (0..PORTS).map(|port| w.counters(port).copies).sum();
    // The last port of the mask does not exist, so all three are copies.
    assert_eq!((copies, w.counters(0).drops(DropReason::TxNoPort)), (3, 1));
}

#[test]
fn frames_are_reused_only_after_their_completion() {
    let mut w = World::new(8 + 4, LIMITS);
    for round in 0..20 {
        assert!(w.kernel_receives(2, 1, 60, round));
        w.turn(2, Verdict::Tx);
        assert_eq!(w.kernel_transmits(2, 1).len(), 1);
        w.kernel_completes(2, 1);
    }
    assert_eq!(w.counters(2).tx_frames, 20);
}

#[test]
fn a_port_that_only_transmits_gets_its_frames_back() {
    let mut w = World::new(12, LIMITS);
    for round in 0..20 {
        assert!(w.kernel_receives(0, 1, 60, round));
        w.turn(0, Verdict::TxTo(PortId(1)));
        assert_eq!(w.kernel_transmits(1, 1).len(), 1);
        w.kernel_completes(1, 1);
    }
    assert_eq!(w.plane.census().transmitting, 1);
}

#[test]
fn a_full_transmit_ring_counts_and_returns_the_frame() {
    let mut w = World::new(40, LIMITS);
    for _ in 0..3 {
        for _ in 0..4 {
            w.kernel_receives(0, 1, 60, 1);
        }
        w.turn(0, Verdict::TxTo(PortId(1)));
    }
    assert_eq!((w.counters(1).tx_frames, w.counters(1).drops(DropReason::TxRefused)), (8, 4));
}

#[test]
fn a_frame_beyond_the_mtu_is_counted_and_a_tag_is_free() {
    let mut w = world();
    w.kernel_receives(0, 1, 215, 1);
    w.turn(0, Verdict::Tx);
    assert_eq!(w.counters(0).drops(DropReason::TxTooLong), 1);
    for (len, sent) in [(218, 1), (219, 0)] {
        w.kernel_receives(0, 1, len, 1);
        w.plane.receive(0, || 0);
        w.plane.ports[0].burst.frame_mut(0).bytes_mut()[12..14].copy_from_slice(&[0x81, 0]);
        w.decide(0, Verdict::Tx);
        assert_eq!(w.kernel_transmits(0, 9).len(), sent, "{len} bytes");
    }
}

#[test]
fn an_empty_frame_is_refused_not_sent() {
    let mut w = world();
    w.plane.lend(0, 1);
    w.decide(0, Verdict::Tx);
    assert_eq!(w.counters(0).drops(DropReason::TxRefused), 1);
}

#[test]
fn passing_counts_what_the_kernel_took_and_what_it_refused() {
    let mut w = world();
    w.kernel_receives(0, 1, 60, 1);
    w.kernel_receives(0, 1, 59, 1);
    w.turn(0, Verdict::Pass);
    assert_eq!((w.counters(0).passed, w.counters(0).drops(DropReason::PassRefused)), (1, 1));
}

#[test]
fn a_frame_of_several_buffers_arrives_and_leaves_as_one() {
    let mut w = world();
    assert!(w.kernel_receives(0, 3, 60, 9));
    w.plane.receive(0, || 0);
    let burst = &w.plane.ports[0].burst;
    assert_eq!((burst.len(), burst.frame(0).wire_len, burst.tails(0).count()), (1, 180, 2));
    w.decide(0, Verdict::TxTo(PortId(2)));
    let continues: Vec<u32> = w.kernel_transmits(2, 9).iter().map(|d| d.options).collect();
    assert_eq!(continues, [XDP_PKT_CONTD, XDP_PKT_CONTD, 0]);
    assert_eq!((w.counters(0).rx_frames, w.counters(2).tx_bytes), (1, 180));
}

#[test]
fn a_frame_whose_end_is_missing_waits_for_the_next_burst() {
    let mut w = world();
    w.take_fill(0);
    let addr = w.kernel[0].empty.pop().unwrap();
    w.kernel_has.remove(&w.plane.umem.frame_of(addr));
    let desc = XdpDesc { addr: addr + 256, len: 60, options: XDP_PKT_CONTD };
    assert!(w.kernel[0].rx.push(desc));
    w.kernel[0].rx.publish();
    w.plane.receive(0, || 0);
    assert!(w.plane.ports[0].burst.is_empty());
    assert!(w.kernel_receives(0, 1, 60, 1));
    w.plane.receive(0, || 0);
    assert_eq!(w.plane.ports[0].burst.frame(0).wire_len, 120);
    w.settle(0);
}

#[test]
fn a_frame_of_more_buffers_than_the_kernel_sends_is_counted() {
    let limits = PortLimits { fill_frames: 32, mtu_bytes: 9000, ..LIMITS };
    for (parts, sent) in [(TX_PARTS_MAX, TX_PARTS_MAX), (TX_PARTS_MAX + 1, 0)] {
        let mut w = World::new(64, limits);
        assert!(w.kernel_receives(0, parts, 60, 1));
        w.turn(0, Verdict::Tx);
        assert_eq!(w.kernel_transmits(0, 99).len(), sent as usize);
        assert_eq!(w.counters(0).drops(DropReason::TxTooLong), u64::from(sent == 0));
    }
}

/// A kernel that shows its place in the ring after a call that sent something: [`World::kernel_calls`].
const SHOWS: bool = true;

#[test]
fn a_send_that_the_driver_drops_is_taken_back_from_the_counters() {
    // As the first of a call, whose place is not shown, and behind one that was sent.
    for sent in [0, 1] {
        let mut w = world();
        w.kernel_receives(0, 1, 70, 1);
        w.kernel_receives(0, 2, 60, 1);
        w.kernel_receives(0, 1, 80, 1);
        w.turn(0, Verdict::Tx);
        w.kernel_calls(0, sent, SHOWS);
        let (frames, bytes) = [(2, 200), (2, 150)][sent];
        let c = w.counters(0);
        assert_eq!((c.tx_frames, c.tx_bytes, c.drops(DropReason::TxRefused)), (frames, bytes, 1));
        w.kernel_calls(0, 0, SHOWS);
        let c = w.counters(0);
        assert_eq!((c.tx_frames, c.drops(DropReason::TxRefused)), (1, 2), "once each");
    }
}

#[test]
fn a_kernel_that_does_not_show_its_place_still_has_its_drops_counted() {
    let mut w = world();
    w.plane.lend(0, 3);
    for i in 0..3 {
        assert!(w.plane.ports[0].burst.frame_mut(i).set_len(60));
    }
    w.decide(0, Verdict::Tx);
    w.kernel_calls(0, 1, !SHOWS);
    w.kernel_calls(0, 0, !SHOWS);
    let c = w.counters(0);
    assert_eq!(
        (c.tx_frames, c.tx_bytes, c.tx_retries),
        (1, 60, 0),
        "which ones they were is not known"
    );
    assert_eq!(c.drops(DropReason::TxRefused), 2);
}

/// A frame of a source that the driver dropped was given up; then it was sent again behind the others.
#[test]
fn a_borrowed_frame_that_the_driver_dropped_leaves_in_its_place() {
    let mut w = world();
    w.plane.lend(0, 2);
    for i in 0..2 {
        assert!(w.plane.ports[0].burst.frame_mut(i).set_len(60 + i));
    }
    w.decide(0, Verdict::Tx);
    w.kernel_calls(0, 0, SHOWS);
    w.kernel_calls(0, 0, SHOWS);
    w.check();
    w.turn(0, Verdict::Drop);
    let sent = w.kernel_transmits(0, 9);
    assert_eq!(sent.iter().map(|desc| desc.len).collect::<Vec<_>>(), [60, 61]);
    w.kernel_completes(0, 2);
    w.turn(0, Verdict::Drop);
    let c = w.counters(0);
    assert_eq!((c.tx_frames, c.tx_bytes, c.tx_retries, c.lost()), (2, 121, 2, 0));
    // One that was received is not kept.
    w.kernel_receives(0, 1, 60, 1);
    w.turn(0, Verdict::Tx);
    w.kernel_calls(0, 0, SHOWS);
    assert_eq!(w.counters(0).drops(DropReason::TxRefused), 1);
    // Nor is one kept beyond the end.
    w.plane.lend(0, 1);
    assert!(w.plane.ports[0].burst.frame_mut(0).set_len(60));
    w.decide(0, Verdict::Tx);
    w.kernel_calls(0, 0, SHOWS);
    assert_eq!(w.counters(0).drops(DropReason::TxRefused), 1);
    w.plane.close(0);
    assert_eq!(w.counters(0).drops(DropReason::TxRefused), 2);
}

/// Should a kernel give the frame back later, it is not lost either.
#[test]
fn a_borrowed_frame_that_is_not_back_yet_is_waited_for() {
    let mut w = world();
    w.plane.lend(0, 1);
    assert!(w.plane.ports[0].burst.frame_mut(0).set_len(60));
    w.decide(0, Verdict::Tx);
    let waiting = w.plane.ports[0].rings.tx.waiting();
    assert_eq!(w.kernel_transmits(0, 1).len(), 1);
    // SAFETY: the kernel is this test.
    unsafe { w.plane.driver_dropped(0, waiting, SHOWS, true) };
    assert_eq!(w.plane.ports[0].to_send_again(), (1, 60));
    assert_eq!((w.counters(0).tx_frames, w.counters(0).lost()), (1, 0), "no drop yet");
    w.plane.lend(0, 1);
    assert!(w.plane.ports[0].burst.is_empty(), "it goes first");
    w.kernel_completes(0, 1);
    w.turn(0, Verdict::Drop);
    assert_eq!(w.kernel_transmits(0, 1).len(), 1);
}

#[test]
fn a_borrowed_frame_that_is_not_back_at_the_end_is_refused_and_not_sent_again() {
    let mut w = world();
    w.plane.lend(0, 1);
    assert!(w.plane.ports[0].burst.frame_mut(0).set_len(60));
    w.decide(0, Verdict::Tx);
    let waiting = w.plane.ports[0].rings.tx.waiting();
    assert_eq!(w.kernel_transmits(0, 1).len(), 1);
    // SAFETY: the kernel is this test.
    unsafe { w.plane.driver_dropped(0, waiting, SHOWS, true) };
    w.plane.drop_unsent();
    w.plane.drop_unsent();
    let c = w.counters(0);
    assert_eq!((c.tx_frames, c.tx_bytes, c.drops(DropReason::TxRefused)), (0, 0, 1));
    w.kernel_completes(0, 1);
    w.turn(0, Verdict::Drop);
    assert_eq!(w.kernel_transmits(0, 1).len(), 0);
    w.check();
}

#[test]
fn what_the_kernel_did_not_take_before_the_end_is_refused_not_sent() {
    let mut w = world();
    w.kernel_receives(0, 1, 60, 1);
    w.kernel_receives(0, 2, 70, 1);
    w.kernel_receives(0, 1, 80, 1);
    w.turn(0, Verdict::Tx);
    assert_eq!(w.kernel_transmits(0, 1).len(), 1);
    w.plane.close(0);
    w.plane.close(0);
    let c = w.counters(0);
    assert_eq!((c.tx_frames, c.tx_bytes, c.drops(DropReason::TxRefused)), (1, 60, 2));
    // Afterwards nothing enters the ring, and frames from elsewhere are counted here.
    w.kernel_receives(1, 1, 60, 1);
    w.turn(1, Verdict::TxTo(PortId(0)));
    assert_eq!(w.counters(0).drops(DropReason::TxRefused), 3);
    assert_eq!(w.kernel_transmits(0, 9).len(), 3);
}

#[test]
fn a_changed_mtu_decides_about_the_next_frame() {
    let mut w = world();
    for (mtu, too_long) in [(40, 1), (100, 1), (59, 2)] {
        w.plane.set_mtu(0, mtu);
        w.kernel_receives(0, 1, 74, 1);
        w.turn(0, Verdict::Tx);
        w.kernel_transmits(0, 9);
        assert_eq!(w.counters(0).drops(DropReason::TxTooLong), too_long, "MTU {mtu}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    KernelReceives { port: usize, parts: u32, len: u32 },
    KernelTransmits { port: usize, count: usize },
    KernelCompletes { port: usize, count: usize },
    Turn { port: usize, verdict: Verdict },
    Source { port: usize, count: usize, len: usize, verdict: Verdict },
}

fn verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        Just(Verdict::Drop),
        Just(Verdict::Pass),
        Just(Verdict::Tx),
        (0..PORTS as u8 + 1).prop_map(|port| Verdict::TxTo(PortId(port.into()))),
        (0..16u32).prop_map(|mask| Verdict::Fanout(PortMask(mask))),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let port = 0..PORTS;
    prop_oneof![
        3 => (port.clone(), 1..4u32, prop_oneof![Just(60u32), 0..256u32])
            .prop_map(|(port, parts, len)| Step::KernelReceives { port, parts, len: len.max(1) }),
        1 => (port.clone(), 0..9usize)
            .prop_map(|(port, count)| Step::KernelTransmits { port, count }),
        1 => (port.clone(), 0..9usize)
            .prop_map(|(port, count)| Step::KernelCompletes { port, count }),
        2 => (port.clone(), verdict()).prop_map(|(port, verdict)| Step::Turn { port, verdict }),
        1 => (port, 0..6usize, 0..256usize, verdict()).prop_map(|(port, count, len, verdict)| {
            Step::Source { port, count, len, verdict }
        }),
    ]
}

fn config() -> ProptestConfig {
    // Miri runs some hundred times slower.
    let cases = if cfg!(miri) { 2 } else { 512 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    /// Whatever the app, the engine and the kernel do, no frame is lost and none is in two places;
    /// when all holders have given back what they have, all are free or with the kernel to receive.
    #[test]
    fn no_frame_is_lost_or_doubled(
        frames_per_port in 12..24u32,
        steps in prop::collection::vec(step(), 1..if cfg!(miri) { 25 } else { 200 }),
    ) {
        let mut w = World::new(frames_per_port, LIMITS);
        for (i, step) in steps.into_iter().enumerate() {
            match step {
                Step::KernelReceives { port, parts, len } => {
                    w.kernel_receives(port, parts, len, i as u8);
                }
                Step::KernelTransmits { port, count } => {
                    w.kernel_transmits(port, count);
                }
                Step::KernelCompletes { port, count } => w.kernel_completes(port, count),
                Step::Turn { port, verdict } => w.turn(port, verdict),
                Step::Source { port, count, len, verdict } => {
                    w.plane.lend(port, count);
                    let burst = &mut w.plane.ports[port].burst;
                    for i in 0..burst.len() {
                        prop_assert!(burst.frame_mut(i).set_len(len));
                    }
                    w.decide(port, verdict);
                }
            }
            w.check();
        }
        for _ in 0..4 {
            for port in 0..PORTS {
                w.turn(port, Verdict::Drop);
                w.kernel_transmits(port, usize::MAX);
                w.kernel_completes(port, usize::MAX);
                w.turn(port, Verdict::Drop);
            }
        }
        let census = w.plane.census();
        prop_assert_eq!((census.burst, census.transmitting), (0, 0));
        prop_assert_eq!(census.receiving, PORTS * LIMITS.fill_frames as usize);
    }

    /// Whatever the driver drops, the frames of a source leave once, in order.
    #[test]
    fn what_a_driver_drops_of_a_source_leaves_in_its_place(
        steps in prop::collection::vec((0..6usize, 0..4usize, any::<bool>()), 1..100),
    ) {
        let mut w = world();
        let (mut given, mut sent) = (Vec::new(), Vec::new());
        for (frames, calls_send, completes) in steps {
            w.plane.lend(0, frames);
            let burst = &mut w.plane.ports[0].burst;
            for i in 0..burst.len() {
                let len = 60 + given.len() % 100;
                prop_assert!(burst.frame_mut(i).set_len(len));
                given.push(len as u32);
            }
            w.decide(0, Verdict::Tx);
            sent.extend(w.kernel_calls(0, calls_send, SHOWS).iter().map(|desc| desc.len));
            if completes {
                w.kernel_completes(0, usize::MAX);
            }
        }
        w.kernel_completes(0, usize::MAX);
        w.turn(0, Verdict::Drop);
        sent.extend(w.kernel_transmits(0, usize::MAX).iter().map(|desc| desc.len));
        prop_assert_eq!(&sent, &given);
        let c = w.counters(0);
        prop_assert_eq!((c.tx_frames, c.lost()), (given.len() as u64, 0));
    }
}
