//! The lane keeps the contract in each of its modes, over veth.

use crate::{
    cables::{NEAR, PORTS_MAX, give_up_capabilities},
    world::World,
};
use laneway_core::{LaneError, PortId};
use laneway_packet::{OpenOptions, PacketLane};
use laneway_spec::LaneSpec;
use laneway_testkit::{Disturbance, Overload, Properties, Rig, conformance, skip};

struct VethRig {
    spec: &'static str,
    small_pool: (&'static str, usize),
    overload_knobs: &'static str,
    world: World,
}

impl VethRig {
    fn copying(spec: &'static str) -> Result<VethRig, String> {
        let (small_pool, overload_knobs) = (("frames=64", 64), "rcvbuf=16k");
        World::new().map(|world| VethRig { spec, small_pool, overload_knobs, world })
    }

    fn ring(spec: &'static str) -> Result<VethRig, String> {
        let (small_pool, overload_knobs) = (("frames=64", 64), "block=16k,blocks=4");
        World::new().map(|world| VethRig { spec, small_pool, overload_knobs, world })
    }
}

impl Rig for VethRig {
    type Lane = PacketLane;

    fn properties(&self) -> Properties {
        Properties {
            spec: self.spec,
            transmits: true,
            ports_max: PORTS_MAX,
            live: true,
            inject_frames_max: 32,
            frame_bytes_max: 1514,
            small_pool: self.small_pool,
            overload: Some(Overload { knobs: self.overload_knobs, frames: 5000 }),
            impossible: None,
        }
    }

    fn open(&mut self, spec: &LaneSpec, ports: usize) -> Result<PacketLane, LaneError> {
        self.world.open(spec, ports)
    }

    fn inject(&mut self, port: PortId, frames: &[Vec<u8>]) {
        self.world.far_ends[port.index()].send(frames);
    }

    fn collect(&mut self, port: PortId, expected: usize) -> Vec<Vec<u8>> {
        self.world.far_ends[port.index()].collect(expected)
    }

    fn disturb(&mut self, port: PortId, how: Disturbance) -> Result<String, String> {
        self.world.disturb(port, how);
        Ok(NEAR[port.index()].to_owned())
    }

    fn open_unprivileged(&mut self, spec: &LaneSpec) -> Result<Option<LaneError>, String> {
        let near = &self.world.near;
        let open = || {
            give_up_capabilities();
            PacketLane::open(spec, &NEAR[..1], OpenOptions::default()).err()
        };
        Ok(near.enter(open).expect("the near namespace is there"))
    }
}

mod single {
    laneway_testkit::conformance!(|| super::VethRig::copying("packet"));
}

mod mmsg {
    laneway_testkit::conformance!(|| super::VethRig::copying("packet:mmsg=32"));
}

mod batch {
    laneway_testkit::conformance!(|| super::VethRig::ring("packet:batch"));
}

mod fanned_out {
    laneway_testkit::conformance!(|| super::VethRig::ring("packet:ring,fanout=hash"));
}

#[test]
fn a_generator_may_pass_the_queueing_discipline_by() {
    match VethRig::copying("packet:qdisc_bypass") {
        Ok(mut rig) => {
            conformance::borrowed_frames_are_sent_when_their_verdict_says_so(&mut rig);
            conformance::a_frame_longer_than_the_link_is_counted(&mut rig);
        }
        Err(reason) => skip(reason),
    }
}
