//! The lane keeps the contract, on a perfect link and on a slow one with little memory.

use laneway_core::{Clock, LaneError, PortId};
use laneway_sim::{Direction, Link, SimLane, SimWorld};
use laneway_spec::LaneSpec;
use laneway_testkit::{Disturbance, Overload, Properties, Rig};
use std::convert::Infallible;

struct SimRig {
    spec: &'static str,
    world: Option<SimWorld>,
}

impl SimRig {
    fn new(spec: &'static str) -> Result<SimRig, Infallible> {
        Ok(SimRig { spec, world: None })
    }

    fn world(&self) -> &SimWorld {
        self.world.as_ref().expect("the suite opens before it injects and collects")
    }
}

impl Rig for SimRig {
    type Lane = SimLane;

    fn properties(&self) -> Properties {
        Properties {
            spec: self.spec,
            transmits: true,
            ports_max: 4,
            live: true,
            inject_frames_max: 32,
            frame_bytes_max: 1514,
            small_pool: ("frames=64", 64),
            overload: Some(Overload { knobs: "queue=100", frames: 500 }),
            impossible: None,
        }
    }

    fn open(&mut self, spec: &LaneSpec, ports: usize) -> Result<SimLane, LaneError> {
        let (lane, world) = SimLane::open(spec, ports)?;
        self.world = Some(world);
        Ok(lane)
    }

    fn inject(&mut self, port: PortId, frames: &[Vec<u8>]) {
        frames.iter().for_each(|frame| self.world().inject(port, frame));
    }

    fn collect(&mut self, port: PortId, _expected: usize) -> Vec<Vec<u8>> {
        self.world().collect(port).into_iter().map(|arrival| arrival.bytes).collect()
    }

    fn clock(&self) -> Box<dyn Clock> {
        Box::new(self.world().clock())
    }

    fn disturb(&mut self, port: PortId, how: Disturbance) -> Result<String, String> {
        match how {
            Disturbance::Remove => Ok(self.world().unplug(port)),
            Disturbance::Mtu(mtu) => {
                let link = self.world().link(port, Direction::FromLane);
                self.world().set_link(port, Direction::FromLane, Link { mtu, ..link });
                Ok(String::new())
            }
            Disturbance::Down | Disturbance::Up => {
                Err("a simulated link is plugged in or not".to_owned())
            }
        }
    }
}

mod perfect {
    laneway_testkit::conformance!(|| super::SimRig::new("sim"));
}

mod slow {
    laneway_testkit::conformance!(|| super::SimRig::new("sim:delay_us=300,jitter_us=2000"));
}

mod gathering {
    laneway_testkit::conformance!(|| super::SimRig::new("sim:gather"));
}
