//! Several workers on one interface, over fan-out.

use crate::world::World;
use laneway_core::LaneError;
use laneway_packet::{FanoutGroup, PacketLane};
use laneway_spec::LaneSpec;
use laneway_testkit::{
    conformance::{WorkersRig, flows_stay_with_one_worker},
    skip,
};

struct FanoutRig {
    world: World,
    spec: LaneSpec,
    group: FanoutGroup,
}

impl WorkersRig for FanoutRig {
    type Lane = PacketLane;

    fn open(&self, _worker: usize) -> Result<PacketLane, LaneError> {
        self.world.open_worker(self.group, &self.spec)
    }

    fn inject(&self, frames: &[Vec<u8>]) {
        self.world.far_ends[0].send(frames);
    }
}

fn flows_stay_together(spec: &str) {
    match World::new() {
        Ok(world) => {
            let (spec, group) = (spec.parse().expect("well formed"), FanoutGroup::unique());
            flows_stay_with_one_worker(&FanoutRig { world, spec, group });
        }
        Err(reason) => skip(reason),
    }
}

#[test]
fn workers_that_receive_one_by_one_share_an_interface() {
    flows_stay_together("packet:fanout=hash");
}

#[test]
fn workers_that_receive_many_at_a_time_share_an_interface() {
    flows_stay_together("packet:mmsg=32,fanout=hash");
}

#[test]
fn workers_with_rings_share_an_interface() {
    flows_stay_together("packet:ring,fanout=hash");
}
