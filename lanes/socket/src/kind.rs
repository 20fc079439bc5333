//! Lane `socket` as a row of the table of lanes: the kernel spreads datagrams and connections over sockets that
//! share an address.

use crate::{TcpLane, UdpLane};
use laneway_core::{ClockDomain, LaneError};
use laneway_kinds::{
    Capability, Keeps, LaneFacts, LaneKind, Mode, Needs, NoLane, Opening, Ports, Request, Shape,
    Shapes, Sharing,
};

/// The row.
#[derive(Debug)]
pub struct SocketKind;

const MODES: &[Mode] = &[
    Mode::new("socket", Shape::Datagrams, Needs::Nothing),
    Mode::new("socket:batch=64", Shape::Datagrams, Needs::Nothing),
    Mode::new("socket:gso,gro,batch=64", Shape::Datagrams, Needs::Nothing),
    Mode::new("socket:reuseport", Shape::Datagrams, Needs::Nothing),
    Mode::new("socket:busy_poll=20", Shape::Datagrams, Needs::Nothing),
];

impl LaneKind for SocketKind {
    const FACTS: LaneFacts = LaneFacts {
        name: "socket",
        about: "UDP, TCP and raw sockets",
        readme: include_str!("../README.md"),
        clock: ClockDomain::Monotonic,
        carries: Shapes::DATAGRAMS.and(Shapes::STREAMS),
        takes_stack: false,
        ports: Ports::Interfaces,
        named_ports: |_| Vec::new(),
        confirms_late: false,
        counts_refusals: false,
        passing_costs: None,
        sharing: |_| Sharing::Spread,
        modes: MODES,
        // Sockets and groups take no privilege, but what a knob asks for beyond the host's limits does.
        keeps: |spec| match spec.names_any(&["sndbuf", "rcvbuf", "busy_poll"]) {
            true => Keeps::Only { capabilities: &[Capability::NetAdmin], calls: &[] },
            false => Keeps::NOTHING,
        },
        why_not: Some((
            "its sockets show datagrams and streams, and this app wants frames",
            "use packet, uring or afxdp",
        )),
    };
    type Frames = NoLane;
    type Datagrams = UdpLane;
    type Streams = TcpLane;
    type Kernel = NoLane;
    type Shared = Request;

    fn share(opening: &Opening<'_>) -> Result<Request, LaneError> {
        // A raw socket that is given a value is of a protocol of its own; the lane reads it when it is opened.
        let is_raw = opening.spec.knobs().flag("raw") == Ok(true);
        if is_raw && opening.workers > 1 {
            return Err(Self::FACTS.refuse(
                "several workers",
                "every raw socket is shown every ping, so each worker would answer it",
                "leave --workers out, or use lane packet, afxdp or dpdk",
            ));
        }
        opening.to_sockets(&Self::FACTS)
    }

    fn datagrams(request: &Request, _worker: usize) -> Result<UdpLane, LaneError> {
        UdpLane::open(&request.spec, &request.listen)
    }

    fn streams(request: &Request, _worker: usize) -> Result<TcpLane, LaneError> {
        TcpLane::open(&request.spec, &request.listen)
    }
}
