//! Buffers: none leaks.

use super::{
    Rig,
    bench::{Bench, ok},
};
use crate::udp_frames;
use laneway_core::{FrameLane, Lane, PortId, Verdict};

const PORT: PortId = PortId(0);

/// Many times as many frames as there are buffers, with every kind of verdict: all still arrive and
/// all that should leave, leaves.
pub fn no_buffer_leaks<R: Rig>(rig: &mut R) {
    const POOLS: usize = 40;
    let is = rig.properties();
    let (small, buffers) = is.small_pool;
    let sent = udp_frames(0, POOLS * buffers, 100);
    let mut bench = Bench::open(rig, small, 1, &sent);
    let mut left = 0;
    for chunk in sent.chunks(bench.step()) {
        let mut leaving = 0;
        let arrived = bench.pump(PORT, chunk, |burst, i, sequence| match sequence % 3 {
            0 if is.transmits => {
                burst.set_verdict(i, Verdict::Tx);
                leaving += 1;
            }
            1 => burst.set_verdict(i, Verdict::Pass),
            _ if is.transmits && burst.gather_space() > 0 => {
                // A frame that only a part of is sent returns as well.
                let bytes = burst.frame(i).bytes.to_vec();
                let head = burst.gather(i, 20..bytes.len(), PORT, 20).expect("there is space");
                head.copy_from_slice(&bytes[..20]);
                leaving += 1;
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
