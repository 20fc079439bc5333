//! Two libbpf in one process: ours, inside the program, and the one that DPDK's net_af_xdp brings.

use crate::world::{NEAR, World, spec};
use laneway_bpf::{Loaded, XdpLink, XdpMode, attachment};
use laneway_core::{FrameLane, KernelHalf, Lane, PortId, Verdict};
use laneway_dpdk::DpdkLane;
use laneway_testkit::{skip, udp_frames};
use std::time::Duration;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/count.bpf.o"));
const PORT: PortId = PortId(0);
/// Turns of 10 ms in vain after which frames count as lost.
const TURNS_MAX: usize = 3000;

/// Both programs see their frames, whichever was first, and each goes without the other.
#[test]
fn our_libbpf_and_that_of_net_af_xdp_work_side_by_side() {
    let Ok(mut world) = World::cables(2).map_err(skip) else { return };
    let mut lane = world.open(&spec("dpdk:net_af_xdp,no-huge"), 2).expect("opens");
    drop(lane);
    lane = DpdkLane::open(&spec("dpdk:net_af_xdp,no-huge"), &NEAR[..1], false).expect("opens");
    let ours =
        Loaded::load(&KernelHalf::new("count", OBJECT, "lw_count")).expect("our libbpf loads");
    let link = XdpLink::attach(ours.program(), NEAR[1], XdpMode::Native).expect("it attaches");

    let sent = udp_frames(0, 32, 100);
    for round in 1..=4u64 {
        world.inject(0, &sent);
        world.inject(1, &sent);
        let mut arrived = 0;
        for _ in 0..TURNS_MAX {
            lane.wait(Duration::from_millis(10)).expect("the lane waits");
            let burst = lane.receive(PORT).expect("the lane receives");
            arrived += burst.len();
            (0..burst.len()).for_each(|i| burst.set_verdict(i, Verdict::Tx));
            lane.settle(PORT).expect("the lane settles");
            if arrived >= sent.len() {
                break;
            }
        }
        assert_eq!(world.receive(0, sent.len()), sent, "through DPDK's program and back");
        let seen = || ours.maps().per_cpu_sums("seen").expect("the map is there")[0];
        let all = round * sent.len() as u64;
        for _ in 0..TURNS_MAX {
            if seen() >= all {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(seen(), all, "through ours");
    }
    drop(lane);
    assert_eq!(attachment(NEAR[0]).expect("it is there"), Default::default(), "DPDK's is gone");
    assert!(link.is_attached().expect("it is there"), "ours is not");
}
