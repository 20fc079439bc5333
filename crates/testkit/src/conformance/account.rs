//! Counting: what was seen, what left, and what was lost under which name.

use super::{Rig, bench::Bench};
use crate::{skip, udp_frames};
use laneway_core::{Lane, PortId, Verdict};

const PORT: PortId = PortId(0);
/// Turns, most of them with a wait, in which nothing more may come.
const QUIET_TURNS: usize = 10;

/// Counters equal what receive handed over and what the far end collected, in frames and bytes.
pub fn counters_match_what_was_seen<R: Rig>(rig: &mut R) {
    let transmits = rig.properties().transmits;
    let mut sent = udp_frames(0, 20, 64);
    sent.extend(udp_frames(20, 20, 700));
    let mut bench = Bench::open(rig, "", 1, &sent);
    let arrived = bench.pump(PORT, &sent, |burst, i, sequence| {
        if transmits && sequence % 2 == 0 {
            burst.set_verdict(i, Verdict::Tx);
        }
    });
    assert_eq!(arrived, sent.len());
    let left = if transmits { bench.collect(PORT, 20) } else { Vec::new() };
    let counters = bench.lane.counters(PORT);
    assert_eq!(counters.rx_frames, bench.handed_frames, "rx_frames");
    assert_eq!(counters.rx_bytes, bench.handed_bytes, "rx_bytes");
    assert_eq!(counters.tx_frames, left.len() as u64, "tx_frames");
    assert_eq!(counters.tx_bytes, left.iter().map(|f| f.len() as u64).sum::<u64>(), "tx_bytes");
    assert_eq!(counters.lost(), 0, "{counters:?}");
}

/// More frames than the lane can queue: each is received or lost under a name, and the lane goes
/// on.
pub fn the_ledger_closes_when_the_lane_is_overrun<R: Rig>(rig: &mut R) {
    let is = rig.properties();
    let Some(overload) = is.overload.filter(|_| is.live) else {
        return skip("the lane's own queues cannot be overrun here");
    };
    let mut bench = Bench::open(rig, overload.knobs, 1, &[]);
    bench.rig.inject(PORT, &udp_frames(0, overload.frames, 64));
    let offered = overload.frames as u64;
    let accounted = |lane: &mut R::Lane, more: u64| more + lane.counters(PORT).lost();
    let mut received = bench.receive_until(PORT, &mut |_, _, _| (), |lane, arrived| {
        accounted(lane, arrived as u64) >= offered
    }) as u64;
    // Every frame has its place: none may turn up in a second one.
    let mut quiet_turns = 0;
    received += bench.receive_until(PORT, &mut |_, _, _| (), |_, _| {
        quiet_turns += 1;
        quiet_turns > QUIET_TURNS
    }) as u64;
    let counters = bench.lane.counters(PORT);
    assert!(counters.lost() > 0, "{} frames did not overrun the lane", overload.frames);
    assert_eq!(received + counters.lost(), offered, "{counters:?}");
    let later = udp_frames(overload.frames as u64, 5, 64);
    assert_eq!(bench.pump(PORT, &later, |_, _, _| ()), later.len(), "the lane goes on");
}
