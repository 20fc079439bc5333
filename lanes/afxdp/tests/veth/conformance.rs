//! The conformance suite of the frame lanes, over veth cables between two namespaces.

use crate::{
    cables::{NEAR, give_up_capabilities},
    world::World,
};
use laneway_afxdp::AfXdp;
use laneway_core::{Cap, LaneError, PortId};
use laneway_spec::LaneSpec;
use laneway_testkit::{Disturbance, Impossible, Overload, Properties, Rig, young_enough};

struct VethRig {
    spec: &'static str,
    world: World,
}

impl VethRig {
    fn new(spec: &'static str) -> Result<VethRig, String> {
        Ok(VethRig { spec, world: World::new(3, 1500, 1)? })
    }

    /// Likewise of a mode that older kernels have not.
    fn of_younger_kernels(spec: &'static str) -> Result<VethRig, String> {
        let mut rig = VethRig::new(spec)?;
        young_enough(&rig.open(&spec.parse().expect("well formed"), 1))?;
        Ok(rig)
    }
}

impl Rig for VethRig {
    type Lane = AfXdp;

    fn properties(&self) -> Properties {
        Properties {
            spec: self.spec,
            transmits: true,
            ports_max: 3,
            live: true,
            inject_frames_max: 64,
            frame_bytes_max: 1514,
            small_pool: ("frames=512,fill=64,rx=64,tx=64", 512),
            overload: Some(Overload { knobs: "rx=64,fill=64", frames: 2000 }),
            // With generic the knobs contradict each other, which is another refusal.
            impossible: (!self.spec.contains("generic"))
                .then_some(Impossible { knobs: "zero-copy", cap: Cap::ZeroCopy }),
        }
    }

    fn open(&mut self, spec: &LaneSpec, ports: usize) -> Result<AfXdp, LaneError> {
        self.world.refresh();
        AfXdp::open(spec, &NEAR[..ports], false)
    }

    fn inject(&mut self, port: PortId, frames: &[Vec<u8>]) {
        self.world.inject(port.index(), frames);
    }

    fn collect(&mut self, port: PortId, expected: usize) -> Vec<Vec<u8>> {
        self.world.far_ends[port.index()].collect(expected)
    }

    fn disturb(&mut self, port: PortId, how: Disturbance) -> Result<String, String> {
        self.world.disturb(port, how);
        Ok(NEAR[port.index()].to_owned())
    }

    fn open_unprivileged(&mut self, spec: &LaneSpec) -> Result<Option<LaneError>, String> {
        // Capabilities belong to the thread: this one gives its own up and ends.
        let refusal = std::thread::scope(|scope| {
            let opening = scope.spawn(|| {
                give_up_capabilities();
                AfXdp::open(spec, &NEAR[..1], false).err()
            });
            opening.join()
        });
        let attached = laneway_bpf::attachment(NEAR[0]).expect("near0 is there");
        assert_eq!(attached, Default::default(), "nothing stays attached");
        Ok(refusal.expect("opening does not panic"))
    }
}

/// As opened by default: native program, copy mode, need_wakeup.
mod native {
    laneway_testkit::conformance!(|| super::VethRig::new("afxdp"));
}

/// The program in the core, where it meets the frames that it passed itself once more.
mod generic {
    laneway_testkit::conformance!(|| super::VethRig::new("afxdp:generic"));
}

/// The other way through most branches: multi-buffer, busy polling, no need_wakeup, larger frames.
mod multi_buffer {
    laneway_testkit::conformance!(|| super::VethRig::of_younger_kernels(
        "afxdp:sg,busy_poll=20,need_wakeup=off,frame=4096"
    ));
}
