//! Holding: bounded, intact, returned, and nothing leaks.

use super::{
    Rig,
    bench::{Bench, assert_same_frames, knobs, ok},
};
use crate::{skip, udp_frames};
use laneway_core::{FrameLane, HoldError, PortId, Verdict};

const PORT: PortId = PortId(0);
/// The bound that these behaviours ask for.
const HOLDS: usize = 4;

/// With `hold=4` the fifth hold is refused, and the refused frame is still there to look at.
pub fn holds_are_bounded<R: Rig>(rig: &mut R) {
    let sent = udp_frames(0, 16, 64);
    let mut bench = Bench::open(rig, "hold=4", 1, &sent);
    let mut held = Vec::new();
    let mut refused = 0;
    bench.pump(PORT, &sent, |burst, i, sequence| match burst.hold(i) {
        Ok(frame) => held.push(frame),
        Err(HoldError::Limit { max }) => {
            assert_eq!(max, HOLDS);
            assert_eq!(burst.frame(i).bytes, sent[sequence as usize]);
            refused += 1;
        }
        Err(e) => panic!("{e}"),
    });
    assert_eq!((held.len(), refused), (HOLDS, sent.len() - HOLDS));
}

/// Held bytes belong to the app: ten times as many further frames do not touch them.
pub fn held_bytes_stay_intact_while_traffic_flows<R: Rig>(rig: &mut R) {
    let (small, buffers) = rig.properties().small_pool;
    let sent = udp_frames(0, 10 * buffers.max(HOLDS), 200);
    let mut bench = Bench::open(rig, &knobs(small, "hold=4"), 1, &sent);
    let mut held = Vec::new();
    let arrived = bench.pump(PORT, &sent, |burst, i, _| {
        if held.len() < HOLDS {
            held.push(burst.hold(i).expect("within the bound"));
        }
    });
    assert_eq!(arrived, sent.len());
    let bytes: Vec<_> = held.iter().map(|frame| frame.bytes().to_vec()).collect();
    assert_same_frames(&bytes, &sent[..HOLDS]);
}

/// `release(Tx)` sends the held bytes, as edited; dropping the handle sends nothing.
pub fn a_released_frame_leaves<R: Rig>(rig: &mut R) {
    if !rig.properties().transmits {
        return skip("the lane cannot transmit");
    }
    let sent = udp_frames(0, 16, 64);
    let mut bench = Bench::open(rig, "hold=4", 1, &sent);
    let mut held = Vec::new();
    bench.pump(PORT, &sent, |burst, i, _| held.extend(burst.hold(i).ok()));
    assert_eq!(held.len(), HOLDS);
    bench.assert_silent(PORT);
    let mut released = Vec::new();
    for (i, mut frame) in held.into_iter().enumerate() {
        frame.bytes_mut()[63] = 0xee;
        if i % 2 == 0 {
            released.push(frame.bytes().to_vec());
            frame.release(Verdict::Tx);
        }
    }
    ok(bench.lane.settle(PORT));
    assert_same_frames(&bench.collect(PORT, released.len()), &released);
    bench.assert_silent(PORT);
}

/// A handle keeps its memory mapped when the lane is gone.
pub fn held_bytes_outlive_the_lane<R: Rig>(rig: &mut R) {
    let sent = udp_frames(0, 1, 333);
    let mut bench = Bench::open(rig, "hold=4", 1, &sent);
    let mut held = Vec::new();
    bench.pump(PORT, &sent, |burst, i, _| held.extend(burst.hold(i).ok()));
    drop(bench.lane);
    let bytes: Vec<_> = held.iter().map(|frame| frame.bytes().to_vec()).collect();
    assert_same_frames(&bytes, &sent);
}

/// Many times as many frames as there are buffers, with every kind of verdict and with holds
/// that are dropped and released late: all still arrive and all that should leave, leaves.
pub fn no_buffer_leaks<R: Rig>(rig: &mut R) {
    /// A few holds settle per chunk: enough chunks that each buffer is held at least once.
    const POOLS: usize = 40;
    let is = rig.properties();
    let (small, buffers) = is.small_pool;
    let sent = udp_frames(0, POOLS * buffers, 100);
    let mut bench = Bench::open(rig, &knobs(small, "hold=4"), 1, &sent);
    let mut held = Vec::new();
    let mut left = 0;
    for chunk in sent.chunks(bench.step()) {
        let mut leaving = 0;
        let arrived = bench.pump(PORT, chunk, |burst, i, sequence| match sequence % 5 {
            0 if is.transmits => {
                burst.set_verdict(i, Verdict::Tx);
                leaving += 1;
            }
            1 => burst.set_verdict(i, Verdict::Pass),
            2 => {
                // Full: give the oldest two back, one each way. They settle with this burst.
                if held.len() == HOLDS {
                    drop(held.remove(0));
                    let oldest: laneway_core::Held = held.remove(0);
                    if is.transmits {
                        oldest.release(Verdict::Tx);
                        leaving += 1;
                    }
                }
                held.extend(burst.hold(i).ok());
            }
            _ => (),
        });
        assert_eq!(arrived, chunk.len(), "frames stopped arriving: buffers leak");
        ok(bench.lane.settle(PORT));
        assert_eq!(bench.collect(PORT, leaving).len(), leaving, "frames stopped leaving");
        left += leaving as u64;
    }
    assert_eq!(bench.lane.counters(PORT).tx_frames, left);
    assert_eq!(bench.lane.counters(PORT).lost(), 0);
}
