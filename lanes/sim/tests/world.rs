//! What the simulation promises: one seed, one outcome; a ledger that closes; time that moves only
//! when it must.

use laneway_core::{
    Clock, Counters, DropReason, FrameLane, Lane, LaneError, PortId, Verdict, Wake,
};
use laneway_sim::{Arrival, Direction, LinkCounters, SimLane, SimWorld};
use laneway_testkit::{sequence, udp_frames};
use proptest::prelude::*;
use std::time::Duration;

const PORT: PortId = PortId(0);

fn open(spec: &str, ports: usize) -> (SimLane, SimWorld) {
    SimLane::open(&spec.parse().expect("well formed"), ports).expect("a valid spec")
}

/// Bounces `frames` frames, one per 10 us; returns all that can be observed.
fn bounce(spec: &str, frames: usize) -> (Vec<Arrival>, Vec<u64>, Counters, [LinkCounters; 2]) {
    let (mut lane, world) = open(spec, 1);
    for (i, frame) in udp_frames(0, frames, 80).iter().enumerate() {
        world.inject_at(PORT, i as u64 * 10_000, frame);
    }
    world.finish();
    let mut stamps = Vec::new();
    while !lane.exhausted() {
        lane.wait(Duration::from_millis(10)).unwrap();
        let burst = lane.receive(PORT).unwrap();
        for i in 0..burst.len() {
            stamps.push(burst.frame(i).ts_ns);
            burst.set_verdict(i, Verdict::Tx);
        }
        lane.settle(PORT).unwrap();
    }
    world.advance_to(world.clock().now_ns() + 1_000_000_000);
    let arrived = world.collect(PORT);
    let links = [Direction::ToLane, Direction::FromLane].map(|d| world.link_counters(PORT, d));
    (arrived, stamps, lane.counters(PORT), links)
}

const ROUGH: &str = "loss=0.05,dup=0.05,reorder=0.1,delay_us=50,jitter_us=40";

#[test]
fn the_same_seed_gives_the_same_bytes_order_stamps_and_counters() {
    let spec = format!("sim:seed=7,{ROUGH}");
    let first = bounce(&spec, 500);
    assert_eq!(first, bounce(&spec, 500));
    assert!(first.2.lost() > 0 && first.3[0].duplicated > 0 && first.3[1].reordered > 0);
}

#[test]
fn another_seed_gives_another_outcome() {
    let with_seed = |seed| bounce(&format!("sim:seed={seed},{ROUGH}"), 500).0;
    assert_ne!(with_seed(7), with_seed(8));
}

#[test]
fn frames_are_stamped_with_their_arrival_and_delayed_each_way() {
    let (arrived, stamps, ..) = bounce("sim:delay_us=50", 3);
    assert_eq!(stamps, [50_000, 60_000, 70_000]);
    assert_eq!(arrived.iter().map(|a| a.at_ns).collect::<Vec<_>>(), [100_000, 110_000, 120_000]);
}

#[test]
fn waiting_moves_the_clock_to_the_next_arrival_and_no_further() {
    let (mut lane, world) = open("sim", 2);
    world.inject_at(PortId(1), 123_456, &udp_frames(0, 1, 64)[0]);
    assert_eq!(lane.wait(Duration::from_micros(100)).unwrap(), Wake::Timeout);
    assert_eq!(world.clock().now_ns(), 100_000);
    assert_eq!(lane.wait(Duration::from_secs(1)).unwrap(), Wake::Ready);
    assert_eq!(world.clock().now_ns(), 123_456);
    assert_eq!(lane.wait(Duration::from_secs(1)).unwrap(), Wake::Ready);
    assert_eq!(world.clock().now_ns(), 123_456);
}

#[test]
fn a_worker_that_only_polls_still_reaches_the_next_frame() {
    let (mut lane, world) = open("sim", 1);
    world.inject_at(PORT, 10 * laneway_sim::POLL_NS, &udp_frames(0, 1, 64)[0]);
    let polls = (0..).take_while(|_| lane.receive(PORT).unwrap().is_empty()).count();
    assert_eq!(polls, 10);
}

#[test]
fn the_lane_is_exhausted_when_the_far_end_is_done_and_all_is_received() {
    let (mut lane, world) = open("sim:delay_us=5", 1);
    world.inject(PORT, &udp_frames(0, 1, 64)[0]);
    assert!(!lane.exhausted());
    world.finish();
    assert!(!lane.exhausted());
    lane.wait(Duration::from_millis(1)).unwrap();
    assert!(!lane.exhausted());
    assert_eq!(lane.receive(PORT).unwrap().len(), 1);
    assert!(lane.exhausted());
}

#[test]
fn links_differ_per_port_and_direction() {
    let (mut lane, world) = open("sim", 2);
    let lossy = laneway_sim::Link { loss: 1.0, ..world.link(PORT, Direction::FromLane) };
    world.set_link(PORT, Direction::FromLane, lossy);
    for port in [PORT, PortId(1)] {
        world.inject(port, &udp_frames(0, 1, 64)[0]);
        let burst = lane.receive(port).unwrap();
        assert_eq!(sequence(burst.frame(0).bytes), Some(0));
        burst.set_verdict(0, Verdict::Tx);
        lane.settle(port).unwrap();
    }
    assert_eq!((world.collect(PORT).len(), world.collect(PortId(1)).len()), (0, 1));
    assert_eq!(lane.counters(PORT).tx_frames, 1);
    assert_eq!(world.link_counters(PORT, Direction::FromLane).lost, 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_ledger_of_every_link_closes(
        seed: u64, loss in 0.0..1.0f64, dup in 0.0..1.0f64, reorder in 0.0..1.0f64,
        delay_us in 0..200u32, jitter_us in 0..200u32, queue in 1..64usize, frames in 1..64usize,
    ) {
        let (arrived, stamps, counters, links) = bounce(
            &format!(
                "sim:seed={seed},loss={loss},dup={dup},reorder={reorder},delay_us={delay_us},\
                 jitter_us={jitter_us},queue={queue},frames={frames}"
            ),
            200,
        );
        for link in links {
            prop_assert_eq!(
                link.offered + link.duplicated,
                link.delivered + link.lost + link.queue_full + link.too_long + link.in_flight
            );
            prop_assert_eq!(link.in_flight, 0);
        }
        let [to_lane, from_lane] = links;
        prop_assert_eq!(to_lane.offered, 200);
        prop_assert_eq!(counters.rx_frames, to_lane.delivered);
        prop_assert_eq!(stamps.len() as u64, counters.rx_frames);
        prop_assert_eq!(200 + to_lane.duplicated, counters.rx_frames + to_lane.lost + to_lane.queue_full);
        prop_assert_eq!(from_lane.offered, counters.rx_frames);
        prop_assert_eq!(arrived.len() as u64, from_lane.delivered);
    }
}

#[test]
fn an_unplugged_port_gives_what_has_arrived_then_ends_and_counts_what_is_sent() {
    let (mut lane, world) = open("sim:burst=3", 2);
    udp_frames(0, 5, 80).iter().for_each(|frame| world.inject(PORT, frame));
    assert_eq!(world.unplug(PORT), "link0");
    let mut received = 0;
    let error = loop {
        assert_eq!(lane.wait(Duration::from_secs(9)).unwrap(), Wake::Ready);
        match lane.receive(PORT) {
            Ok(burst) => {
                received += burst.len();
                (0..burst.len()).for_each(|i| burst.set_verdict(i, Verdict::Tx));
            }
            Err(error) => break error,
        }
        lane.settle(PORT).unwrap();
    };
    assert!(matches!(&error, LaneError::Gone { name, .. } if name == "link0"), "{error}");
    let counters = lane.counters(PORT);
    assert_eq!((received, counters.tx_frames), (5, 0));
    assert_eq!(counters.drops(DropReason::TxRefused), 5);
    assert!(world.collect(PORT).is_empty());
    assert!(lane.receive(PortId(1)).is_ok(), "the other port is still plugged in");
}
