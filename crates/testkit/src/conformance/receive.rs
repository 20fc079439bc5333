//! Receiving: unchanged, in order, bounded, never blocking.

use super::{
    Rig,
    bench::{Bench, WAITS_MAX, assert_same_frames, ok},
};
use crate::{UdpFrame, hearing, skip, udp_frames};
use laneway_core::{FrameLane, Lane, PortId, Wake};
use std::time::Duration;

const PORT: PortId = PortId(0);

/// Frames of many lengths come in with the bytes, the order and the wire length they were sent
/// with.
pub fn frames_arrive_unchanged_and_in_order<R: Rig>(rig: &mut R) {
    let longest = rig.properties().frame_bytes_max;
    let lengths = [60, 64, 65, 127, 128, 577, 1024, longest - 1, longest];
    let sent: Vec<Vec<u8>> = (0..45)
        .map(|i| {
            let bytes = lengths[i % lengths.len()];
            UdpFrame { sequence: i as u64, bytes, ..UdpFrame::default() }.build()
        })
        .collect();
    let mut bench = Bench::open(rig, "", 1, &sent);
    let mut received = Vec::new();
    bench.pump(PORT, &sent, |burst, i, _| {
        let frame = burst.frame(i);
        assert_eq!(frame.wire_len as usize, frame.bytes.len(), "wire length of an uncut frame");
        received.push(frame.bytes.to_vec());
    });
    assert_same_frames(&received, &sent);
}

/// `burst=8` bounds what receive and lend hand out.
pub fn a_burst_never_exceeds_its_knob<R: Rig>(rig: &mut R) {
    let sent = udp_frames(0, 40, 64);
    let mut bench = Bench::open(rig, "burst=8", 1, &sent);
    let arrived = bench.pump(PORT, &sent, |burst, _, _| {
        assert!(burst.len() <= 8, "a burst of {} frames", burst.len());
    });
    assert_eq!(arrived, sent.len());
    let borrowed = ok(bench.lane.lend(PORT, 100)).len();
    assert!(borrowed <= 8, "{borrowed} frames borrowed");
    ok(bench.lane.settle(PORT));
}

/// Without traffic a receive gives an empty burst, and the thread does not sleep in it: a thousand
/// of them make next to no voluntary context switches.
pub fn an_empty_receive_returns_at_once<R: Rig>(rig: &mut R) {
    const RECEIVES: u64 = 1000;
    let mut bench = Bench::open(rig, "", 1, &[]);
    let before = voluntary_switches();
    for _ in 0..RECEIVES {
        let burst = ok(bench.lane.receive(PORT));
        assert!((0..burst.len()).all(|i| crate::sequence(burst.frame(i).bytes).is_none()));
        ok(bench.lane.settle(PORT));
    }
    let switches = voluntary_switches() - before;
    assert!(switches < RECEIVES / 10, "{RECEIVES} empty receives slept {switches} times");
}

/// How often this thread gave up its core on its own accord.
fn voluntary_switches() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("Linux has /proc");
    let line = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|n| n.trim().parse().ok()).expect("every kernel counts context switches")
}

/// A wait without traffic comes to its end and says so; a wait with traffic says that it is there,
/// and takes nothing away.
pub fn wait_is_ready_with_traffic_and_times_out_without<R: Rig>(rig: &mut R) {
    /// Early wake-ups are allowed, but not for ever.
    const ATTEMPTS: usize = 50;
    if !rig.properties().live {
        return skip("the lane reads a file: there is no time without traffic");
    }
    let mut bench = Bench::open(rig, "", 1, &[]);
    let mut wakes = (0..ATTEMPTS).map(|_| {
        ok(bench.lane.receive(PORT));
        ok(bench.lane.settle(PORT));
        ok(bench.lane.wait(Duration::from_millis(2)))
    });
    assert!(wakes.any(|wake| wake == Wake::Timeout), "no wait without traffic times out");
    let sent = udp_frames(0, 3, 64);
    bench.rig.inject(PORT, &sent);
    let ready =
        (0..WAITS_MAX).any(|_| ok(bench.lane.wait(Duration::from_millis(50))) == Wake::Ready);
    assert!(ready, "no wait with traffic is ready");
    assert_eq!(bench.receive_some(PORT, sent.len(), &mut |_, _, _| ()), sent.len());
}

/// A bell rung before a wait ends it.
pub fn a_bell_rung_before_a_wait_ends_it<R: Rig>(rig: &mut R) {
    let mut bench = Bench::open(rig, "", 1, &[]);
    hearing::before(&mut bench.lane, &mut take_nothing);
}

/// A bell rung by another thread during a wait ends it.
pub fn a_bell_rung_during_a_wait_ends_it<R: Rig>(rig: &mut R) {
    let mut bench = Bench::open(rig, "", 1, &[]);
    hearing::during(&mut bench.lane, &mut take_nothing);
}

/// A turn without traffic of ours.
fn take_nothing<L: FrameLane>(lane: &mut L) {
    ok(lane.receive(PORT));
    ok(lane.settle(PORT));
}
