//! Lane `dpdk` as a row of the table of lanes: ports are opened once, each worker has a queue of each.

use crate::{DpdkLane, DpdkPorts, FlowRules};
use laneway_core::{CapsReport, ClockDomain, KernelHalf, Lane, LaneError, PortId};
use laneway_flow::Offload;
use laneway_kinds::{
    LaneFacts, LaneKind, Mode, Needs, NoLane, Opening, Ports, Shape, Shapes, Sharing,
};

/// The row.
#[derive(Debug)]
pub struct DpdkKind;

/// The interface that a driver creates for a mode that is tried, or the name of a port that is none.
const OWN_INTERFACE: &str = "lwprobe0";

const MODES: &[Mode] = &[
    Mode::new("dpdk:net_af_packet", Shape::Frames, Needs::Interface),
    Mode::new("dpdk:net_af_xdp", Shape::Frames, Needs::Interface),
    Mode::new("dpdk:net_tap", Shape::Frames, Needs::OwnInterface),
    Mode::new("dpdk:net_memif,role=server", Shape::Frames, Needs::Name),
    Mode::new("dpdk:net_pcap", Shape::Frames, Needs::Interface),
    Mode::new("dpdk:net_ring", Shape::Frames, Needs::Name),
    Mode::new("dpdk:net_null", Shape::Frames, Needs::Name),
    Mode::new("dpdk:net_null,hugepages", Shape::Frames, Needs::Name),
];

impl LaneKind for DpdkKind {
    const FACTS: LaneFacts = LaneFacts {
        name: "dpdk",
        about: "DPDK's ports, loaded at run time",
        clock: ClockDomain::Monotonic,
        carries: Shapes::FRAMES,
        takes_stack: true,
        ports: Ports::Devices,
        confirms_late: false,
        passing_costs: None,
        sharing: |_| Sharing::Spread,
        modes: MODES,
        why_not: None,
    };
    type Frames = DpdkLane;
    type Datagrams = NoLane;
    type Streams = NoLane;
    type Kernel = NoLane;
    type Shared = DpdkPorts;

    fn share(opening: &Opening<'_>) -> Result<DpdkPorts, LaneError> {
        DpdkPorts::open(opening.spec, opening.interfaces, opening.force, opening.workers)
    }

    fn frames(ports: &DpdkPorts, worker: usize) -> Result<DpdkLane, LaneError> {
        DpdkLane::open_shared(ports, worker)
    }

    fn offload(ports: &DpdkPorts) -> Option<Box<dyn Offload>> {
        Some(Box::new(FlowRules::new(ports)))
    }

    fn probe(
        mode: &Mode,
        interface: &str,
        _half: fn() -> Option<KernelHalf>,
    ) -> Result<CapsReport, LaneError> {
        let spec = mode.spec.parse()?;
        let name = if mode.needs == Needs::Interface { interface } else { OWN_INTERFACE };
        let ports = Self::share(&Opening::on(&spec, Shape::Frames, &[name]))?;
        Ok(Self::frames(&ports, 0)?.caps(PortId(0)).clone())
    }
}
