//! That a receiver merges what the generator sends, and that nothing is lost or doubled by it.

use super::LiveGenerator;
use crate::addresses::{GENERATOR, SUT, SUT_MAC};
use crate::fanout::{Fanout, FanoutPlan};
use crate::permitted::permitted;
use crate::segment::SegmentPlan;
use crate::timetable::Times;
use crate::traffic::{Payload, Payloads, Replayable, TrafficPlan, numbered, split_number};
use laneway_core::{
    App, Clock, Counters, Datagram, DatagramApp, DatagramLane, DatagramOut, DatagramPorts, Lane,
    Membership, PortId, PortPlan, Turn,
};
use laneway_engine::MonotonicClock;
use laneway_netns::{Side, Topology, TopologyOptions, can_create, interface_state};
use laneway_socket::UdpLane;
use laneway_testkit::skip;
use std::time::{Duration, Instant};

const SEGMENT: u8 = 9;
const FRAMES: u32 = 4_000;
const BURST: u32 = 20;
const PATIENCE: Duration = Duration::from_secs(10);

/// Takes every train apart.
#[derive(Default)]
struct Apart {
    /// How often each number was received.
    arrived: Vec<u32>,
    longest_train: usize,
    counters: Counters,
}

impl App for Apart {
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl DatagramApp for Apart {
    fn on_datagrams<O: DatagramOut>(&mut self, batch: &[Datagram<'_>], _: Turn, _: &mut O) {
        for train in batch {
            let datagrams = train.payload.chunks(train.segment_bytes.max(1));
            self.longest_train = self.longest_train.max(datagrams.len());
            for payload in datagrams {
                let Some(Payload::Number(number)) = numbered(payload) else { continue };
                let (segment, number) = split_number(number);
                assert_eq!(segment, SEGMENT);
                self.arrived[number as usize] += 1;
            }
        }
    }
}

fn udp(payloads: Payloads) -> TrafficPlan {
    TrafficPlan::Udp { payloads, source: GENERATOR, destination: SUT }
}

/// Has the segment sent; `false` where that cannot be done here.
fn send(near: &Side, plan: &TrafficPlan) -> bool {
    let traffic = Replayable::prepare(plan, &Times::Steady).unwrap();
    let send = || {
        let ifindex = interface_state(near.interface).unwrap().ifindex;
        let Some(mut live) = permitted(LiveGenerator::new(&traffic, ifindex, SUT_MAC, false))
        else {
            return false;
        };
        let t0_ns = MonotonicClock.now_ns() + 1_000_000;
        let (frames, interval_ns, burst) = (FRAMES, 200_000, BURST);
        live.send(&SegmentPlan { segment: SEGMENT, t0_ns, frames, interval_ns, burst, entry: 0 })
            .unwrap();
        true
    };
    near.namespace.enter(send).unwrap()
}

/// What comes of frames of this traffic at a socket that takes trains, and how many datagrams its lane counted;
/// `None` where that cannot be tried.
fn received(plan: &TrafficPlan) -> Option<(Apart, u64)> {
    can_create().map_err(skip).ok()?;
    let topology = Topology::create(&TopologyOptions::new("merged")).unwrap();
    let receive = || {
        let spec = "socket:gro,batch=64,rcvbuf=8m".parse().unwrap();
        let mut lane = UdpLane::open(&spec, &[SUT.into()]).unwrap();
        let groups = plan.fanout().map(|plan| plan.fanout.groups().collect::<Vec<_>>());
        let ports = groups.unwrap_or_default().into_iter().map(|group| {
            let interface = Some(topology.sut.interface.to_owned());
            let membership = Membership { group: (*group.ip()).into(), interface, source: None };
            let plan = PortPlan { memberships: vec![membership], ..PortPlan::at(group.into()) };
            lane.open_port(&plan).unwrap()
        });
        let ports: Vec<PortId> = [PortId(0)].into_iter().chain(ports).collect();
        let mut apart = Apart { arrived: vec![0; FRAMES as usize], ..Apart::default() };
        let began = Instant::now();
        if !send(&topology.generator, plan) {
            return None;
        }
        while apart.arrived.contains(&0) && began.elapsed() < PATIENCE {
            lane.serve(&mut apart, &MonotonicClock).unwrap();
        }
        let frames = ports.iter().map(|&port| lane.counters(port).rx_frames);
        Some((apart, frames.sum()))
    };
    topology.sut.namespace.enter(receive).unwrap()
}

#[test]
fn frames_of_a_flow_are_merged_and_each_number_comes_once() {
    let Some((apart, received)) = received(&udp(Payloads::Fixed(200))) else { return };
    assert!(apart.arrived.iter().all(|&times| times == 1), "{:?}", &apart.arrived[..100]);
    assert_eq!(received, u64::from(FRAMES));
    assert!(apart.longest_train > 1, "nothing was merged");
}

#[test]
fn frames_of_a_mix_come_once_each_at_their_own_length() {
    let Some((apart, received)) = received(&udp(Payloads::Imix)) else { return };
    assert!(apart.arrived.iter().all(|&times| times == 1), "{:?}", &apart.arrived[..100]);
    assert_eq!(received, u64::from(FRAMES));
}

#[test]
fn bursts_to_groups_are_merged_group_by_group() {
    let fanout =
        Fanout { groups: 3, outputs: 1, cables: 1, limit_mbit: None, far_end: Default::default() };
    let plan = FanoutPlan { fanout, payload_bytes: 1_316, run: BURST, source: GENERATOR };
    let Some((apart, received)) = received(&TrafficPlan::Fanout(plan)) else { return };
    assert!(apart.arrived.iter().all(|&times| times == 1), "{:?}", &apart.arrived[..100]);
    assert_eq!(received, u64::from(FRAMES));
    assert!(apart.longest_train > 1, "nothing was merged");
}
