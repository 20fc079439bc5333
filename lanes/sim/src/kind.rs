//! Lane `sim` as a row of the table of lanes: its links have traffic only where a test puts some.

use crate::SimLane;
use laneway_core::{CapsReport, ClockDomain, KernelHalf, Lane, LaneError, PortId};
use laneway_kinds::{
    Keeps, LaneFacts, LaneKind, Mode, Needs, NoLane, Opening, Ports, Request, Shape, Shapes,
    Sharing,
};
use laneway_spec::LaneSpec;

/// The row.
#[derive(Debug)]
pub struct SimKind;

const MODES: &[Mode] = &[Mode::new("sim", Shape::Frames, Needs::Nothing)];
const NO_TRAFFIC: &str = "a simulated link has no traffic unless a test puts it there";
const RECORDED: &str = "use lane pcap to run on recorded traffic";

impl LaneKind for SimKind {
    const FACTS: LaneFacts = LaneFacts {
        name: "sim",
        about: "seeded links on a virtual clock, for tests",
        readme: include_str!("../README.md"),
        clock: ClockDomain::Virtual,
        // A run has no far end, so none of what it can carry is to be had by name.
        carries: Shapes::NONE,
        takes_stack: false,
        ports: Ports::Simulated,
        named_ports: |_| Vec::new(),
        confirms_late: false,
        counts_refusals: false,
        passing_costs: None,
        sharing: |_| Sharing::Alone { why: NO_TRAFFIC, hint: RECORDED },
        modes: MODES,
        keeps: |_| Keeps::NOTHING,
        why_not: Some((NO_TRAFFIC, RECORDED)),
    };
    type Frames = NoLane;
    type Datagrams = NoLane;
    type Streams = NoLane;
    type Kernel = NoLane;
    type Shared = Request;

    fn share(opening: &Opening<'_>) -> Result<Request, LaneError> {
        Self::refuse_workers(opening)?;
        Ok(opening.to_request())
    }

    fn probe(
        mode: &Mode,
        _interface: &str,
        _half: fn() -> Option<KernelHalf>,
    ) -> Result<CapsReport, LaneError> {
        let spec: LaneSpec = mode.spec.parse()?;
        Ok(SimLane::open(&spec, 1)?.0.caps(PortId(0)).clone())
    }
}
