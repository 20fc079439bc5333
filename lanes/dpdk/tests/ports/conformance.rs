//! The lane keeps the contract with each driver that has a far end.

use crate::world::{Alone, NEAR, World};
use laneway_core::{Cap, LaneError, PortId};
use laneway_dpdk::DpdkLane;
use laneway_spec::LaneSpec;
use laneway_testkit::{Disturbance, Impossible, Overload, Properties, Rig};
use std::{fs, path::PathBuf};

/// Drivers without hardware compute no checksums, but for net_tap.
const NO_CHECKSUMS: Impossible = Impossible { knobs: "csum", cap: Cap::ChecksumOffload };

/// A driver over interfaces of the kernel.
struct InterfaceRig {
    spec: &'static str,
    small_pool: (&'static str, usize),
    overload: Option<Overload>,
    impossible: Option<Impossible>,
    /// Why an interface that goes down would be asked too much.
    silent_when_down: Option<&'static str>,
    world: World,
}

impl InterfaceRig {
    fn af_packet(spec: &'static str) -> Result<InterfaceRig, String> {
        Ok(InterfaceRig {
            spec,
            small_pool: ("mempool=256,cache=0", 256),
            overload: Some(Overload { knobs: "rxd=64", frames: 2000 }),
            impossible: Some(NO_CHECKSUMS),
            silent_when_down: None,
            world: World::cables(3)?,
        })
    }

    fn af_xdp(spec: &'static str) -> Result<InterfaceRig, String> {
        Ok(InterfaceRig {
            spec,
            // The driver alone fills 2048 into its ring.
            small_pool: ("mempool=4400,cache=0", 4400),
            overload: Some(Overload { knobs: "", frames: 5000 }),
            impossible: Some(NO_CHECKSUMS),
            silent_when_down: Some("net_af_xdp takes frames for an interface that is down as sent"),
            world: World::cables(3)?,
        })
    }

    fn tap(spec: &'static str) -> Result<InterfaceRig, String> {
        Ok(InterfaceRig {
            spec,
            small_pool: ("mempool=256,rxd=32,cache=0", 256),
            overload: Some(Overload { knobs: "", frames: 5000 }),
            impossible: None,
            silent_when_down: Some("a tap that goes down ends its lane, and goes with it"),
            world: World::taps()?,
        })
    }
}

impl Rig for InterfaceRig {
    type Lane = DpdkLane;

    fn properties(&self) -> Properties {
        Properties {
            spec: self.spec,
            transmits: true,
            ports_max: 3,
            live: true,
            inject_frames_max: 32,
            frame_bytes_max: 1514,
            small_pool: self.small_pool,
            overload: self.overload,
            impossible: self.impossible,
        }
    }

    fn open(&mut self, spec: &LaneSpec, ports: usize) -> Result<DpdkLane, LaneError> {
        self.world.open(spec, ports)
    }

    fn inject(&mut self, port: PortId, frames: &[Vec<u8>]) {
        self.world.inject(port.index(), frames);
    }

    fn collect(&mut self, port: PortId, expected: usize) -> Vec<Vec<u8>> {
        self.world.collect(port.index(), expected)
    }

    fn disturb(&mut self, port: PortId, how: Disturbance) -> Result<String, String> {
        match self.silent_when_down {
            Some(reason) if how == Disturbance::Down => Err(reason.to_owned()),
            _ => {
                self.world.disturb(port.index(), how);
                Ok(NEAR[port.index()].to_owned())
            }
        }
    }

    fn open_unprivileged(&mut self, spec: &LaneSpec) -> Result<Option<LaneError>, String> {
        Ok(self.world.open_unprivileged(spec))
    }
}

mod af_packet {
    laneway_testkit::conformance!(|| super::InterfaceRig::af_packet("dpdk:net_af_packet,no-huge"));
}

mod af_xdp {
    laneway_testkit::conformance!(|| super::InterfaceRig::af_xdp("dpdk:net_af_xdp,no-huge"));
}

mod tap {
    laneway_testkit::conformance!(|| super::InterfaceRig::tap("dpdk:net_tap,no-huge"));
}

/// Capture files, written anew for each behaviour.
struct PcapRig {
    file: PathBuf,
    _alone: Alone,
}

impl PcapRig {
    fn new() -> Result<PcapRig, String> {
        let alone = Alone::new()?;
        let file = std::env::temp_dir().join(format!("laneway-dpdk-{}.pcap", std::process::id()));
        Ok(PcapRig { file, _alone: alone })
    }
}

impl Drop for PcapRig {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}

impl Rig for PcapRig {
    type Lane = DpdkLane;

    fn properties(&self) -> Properties {
        Properties {
            spec: "dpdk:net_pcap,no-huge",
            transmits: false,
            ports_max: 1,
            live: false,
            inject_frames_max: usize::MAX,
            frame_bytes_max: 1514,
            small_pool: ("mempool=256,cache=0", 256),
            overload: None,
            impossible: None,
        }
    }

    fn open(&mut self, spec: &LaneSpec, ports: usize) -> Result<DpdkLane, LaneError> {
        self.open_with(spec, ports, &[])
    }

    fn inject(&mut self, _port: PortId, _frames: &[Vec<u8>]) {
        unreachable!("the rig is not live");
    }

    fn collect(&mut self, _port: PortId, _expected: usize) -> Vec<Vec<u8>> {
        Vec::new()
    }

    fn open_with(
        &mut self,
        spec: &LaneSpec,
        ports: usize,
        frames: &[Vec<u8>],
    ) -> Result<DpdkLane, LaneError> {
        fs::write(&self.file, capture(frames)).expect("the temporary folder is writable");
        let name = self.file.to_str().expect("a plain path");
        DpdkLane::open(spec, &vec![name; ports], false)
    }
}

/// A capture file of these frames.
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 1] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    for (i, frame) in frames.iter().enumerate() {
        for word in [i as u32, 0, frame.len() as u32, frame.len() as u32] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(frame);
    }
    file
}

mod pcap {
    laneway_testkit::conformance!(super::PcapRig::new);
}
