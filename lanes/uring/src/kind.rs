//! Lane `uring` as a row of the table of lanes: sockets of every kind, by one ring per worker.

use crate::{OpenOptions, UringFrames, UringTcp, UringUdp};
use laneway_core::{ClockDomain, LaneError};
use laneway_kinds::{
    Calls, Capability, Keeps, LaneFacts, LaneKind, Mode, Needs, NoLane, Opening, Ports, Request,
    Shape, Shapes, Sharing,
};

/// The row.
#[derive(Debug)]
pub struct UringKind;

const MODES: &[Mode] = &[
    Mode::new("uring", Shape::Datagrams, Needs::Nothing),
    Mode::new("uring:gso,gro", Shape::Datagrams, Needs::Nothing),
    Mode::new("uring:send_zc=4096", Shape::Datagrams, Needs::Nothing),
    // Streams have this knob alone.
    Mode::new("uring:bundle", Shape::Streams, Needs::Nothing),
    Mode::new("uring:napi=20", Shape::Datagrams, Needs::Nothing),
];

impl LaneKind for UringKind {
    const FACTS: LaneFacts = LaneFacts {
        name: "uring",
        about: "sockets through io_uring, packet sockets too",
        readme: include_str!("../README.md"),
        clock: ClockDomain::Monotonic,
        carries: Shapes::FRAMES.and(Shapes::DATAGRAMS).and(Shapes::STREAMS),
        takes_stack: false,
        ports: Ports::Interfaces,
        named_ports: |_| Vec::new(),
        confirms_late: true,
        counts_refusals: false,
        passing_costs: None,
        sharing: |shape| match shape {
            Shape::Frames | Shape::Kernel => Sharing::Alone {
                why: "its packet sockets have no fan-out, so every worker would see every frame",
                hint: "use packet:fanout=hash or afxdp",
            },
            Shape::Datagrams | Shape::Streams => Sharing::Spread,
        },
        modes: MODES,
        // Sockets and groups take no privilege, but buffers beyond the host's limits do.
        keeps: |spec| match spec.names_any(&["sndbuf", "rcvbuf"]) {
            true => Keeps::Only { capabilities: &[Capability::NetAdmin], calls: &[Calls::IoUring] },
            false => Keeps::Only { capabilities: &[], calls: &[Calls::IoUring] },
        },
        why_not: None,
    };
    type Frames = UringFrames;
    type Datagrams = UringUdp;
    type Streams = UringTcp;
    type Kernel = NoLane;
    type Shared = Request;

    fn share(opening: &Opening<'_>) -> Result<Request, LaneError> {
        Self::refuse_workers(opening)?;
        match opening.shape {
            Shape::Frames | Shape::Kernel => Ok(opening.to_request()),
            Shape::Datagrams | Shape::Streams => opening.to_sockets(&Self::FACTS),
        }
    }

    fn frames(request: &Request, _worker: usize) -> Result<UringFrames, LaneError> {
        let options = OpenOptions { force: request.force };
        UringFrames::open(&request.spec, &request.interfaces(), options)
    }

    fn datagrams(request: &Request, _worker: usize) -> Result<UringUdp, LaneError> {
        UringUdp::open(&request.spec, &request.listen)
    }

    fn streams(request: &Request, _worker: usize) -> Result<UringTcp, LaneError> {
        UringTcp::open(&request.spec, &request.listen)
    }
}
