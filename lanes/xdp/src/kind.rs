//! Lane `xdp` as a row of the table of lanes: one program serves every CPU that receives.

use crate::{LANE, Options, XdpLane, holder::kernel_groups};
use laneway_core::{ClockDomain, KernelHalf, LaneError};
use laneway_kinds::{
    Calls, Capability, GroupHolder, Keeps, LaneFacts, LaneKind, LinkAddresses, Mode, Needs, NoLane,
    Opening, Ports, Request, Shape, Shapes, Sharing,
};
use laneway_linux::NeighbourTable;

/// The row.
#[derive(Debug)]
pub struct XdpKind;

const MODES: &[Mode] = &[
    Mode::new("xdp", Shape::Kernel, Needs::Interface),
    Mode::new("xdp:generic", Shape::Kernel, Needs::Interface),
];

impl LaneKind for XdpKind {
    const FACTS: LaneFacts = LaneFacts {
        name: LANE,
        about: "the app's decision at the XDP hook",
        readme: include_str!("../README.md"),
        clock: ClockDomain::Monotonic,
        carries: Shapes::KERNEL,
        takes_stack: false,
        ports: Ports::Interfaces,
        named_ports: |_| Vec::new(),
        confirms_late: false,
        counts_refusals: false,
        passing_costs: None,
        sharing: |_| Sharing::Alone {
            why: "its program runs on every CPU that receives, and one reader takes what it emits",
            hint: "leave --workers out; xdp:cpus=0-1 runs a program that only reads on the CPU of each flow",
        },
        modes: MODES,
        // Tables that are filled beside those in force, with entries that name interfaces.
        keeps: |_| Keeps::Only {
            capabilities: &[Capability::NetAdmin, Capability::Bpf],
            calls: &[Calls::Bpf],
        },
        why_not: None,
    };
    type Frames = NoLane;
    type Datagrams = NoLane;
    type Streams = NoLane;
    type Kernel = XdpLane;
    type Shared = Request;

    fn share(opening: &Opening<'_>) -> Result<Request, LaneError> {
        Self::refuse_workers(opening)?;
        Ok(opening.to_request())
    }

    fn kernel(request: &Request, half: KernelHalf) -> Result<XdpLane, LaneError> {
        let Request { force, never_transmits, outlives_interfaces, .. } = *request;
        let options = Options { force, never_transmits, outlives_interfaces };
        XdpLane::open(&request.spec, &request.interfaces(), half, options)
    }

    fn check(half: &KernelHalf) -> Result<(), LaneError> {
        crate::check(half)
    }

    fn group_holder(_request: &Request) -> Option<Box<dyn GroupHolder>> {
        Some(kernel_groups())
    }

    fn link_addresses(_request: &Request) -> Option<Box<dyn LinkAddresses>> {
        Some(Box::new(NeighbourTable::new(LANE)))
    }
}
