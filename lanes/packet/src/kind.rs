//! Lane `packet` as a row of the table of lanes: several workers share an interface by a fan-out group.

use crate::{FanoutGroup, OpenOptions, PacketLane, holder::kernel_groups};
use laneway_core::{ClockDomain, LaneError};
use laneway_kinds::{
    Capability, GroupHolder, Keeps, LaneFacts, LaneKind, LinkAddresses, Mode, Needs, NoLane,
    Opening, Ports, Request, Shape, Shapes, Sharing, with_knob,
};
use laneway_linux::NeighbourTable;

/// The row.
#[derive(Debug)]
pub struct PacketKind;

/// What the workers of a run have in common.
pub struct PacketShared {
    request: Request,
    /// Of several workers; a single one is in the group of its process, if its spec asks for one.
    group: Option<FanoutGroup>,
}

/// The buffers of a stack's lane, unless the spec has its own: the longest that a kernel puts together of one flow are
/// 64 KiB of IP packet, an Ethernet header and tags. A ring's frames lie in its blocks.
const FRAME_OF_A_STACK: &str = "frame=65k";
/// And how many: all of the pool is resident from the start, and four bursts of such buffers are 17 MB.
const FRAMES_OF_A_STACK: &str = "frames=256";

const MODES: &[Mode] = &[
    Mode::new("packet", Shape::Frames, Needs::Interface),
    Mode::new("packet:mmsg=64", Shape::Frames, Needs::Interface),
    Mode::new("packet:ring", Shape::Frames, Needs::Interface),
    Mode::new("packet:fanout=hash", Shape::Frames, Needs::Interface),
];

impl LaneKind for PacketKind {
    const FACTS: LaneFacts = LaneFacts {
        name: "packet",
        about: "AF_PACKET sockets, on every interface",
        readme: include_str!("../README.md"),
        clock: ClockDomain::Monotonic,
        carries: Shapes::FRAMES,
        takes_stack: true,
        ports: Ports::Interfaces,
        named_ports: |_| Vec::new(),
        confirms_late: false,
        counts_refusals: true,
        passing_costs: None,
        sharing: |_| Sharing::Spread,
        modes: MODES,
        // A packet socket that has to be opened again.
        keeps: |_| Keeps::Only { capabilities: &[Capability::NetRaw], calls: &[] },
        why_not: None,
    };
    type Frames = PacketLane;
    type Datagrams = NoLane;
    type Streams = NoLane;
    type Kernel = NoLane;
    type Shared = PacketShared;

    fn share(opening: &Opening<'_>) -> Result<PacketShared, LaneError> {
        let mut request = opening.to_request();
        let knobs = opening.spec.knobs();
        let has_pool = !(knobs.flag("ring")? || knobs.flag("batch")?);
        if opening.for_stack && has_pool && knobs.text("frame")?.is_none() {
            request.spec = with_knob(&request.spec, FRAME_OF_A_STACK)?;
            if knobs.text("frames")?.is_none() {
                request.spec = with_knob(&request.spec, FRAMES_OF_A_STACK)?;
            }
        }
        if opening.workers == 1 {
            return Ok(PacketShared { request, group: None });
        }
        match opening.spec.knobs().text("fanout")? {
            None => request.spec = with_knob(&request.spec, "fanout=hash")?,
            Some("lb") if opening.keeps_flows => {
                return Err(Self::FACTS.refuse(
                    "several workers",
                    "fanout=lb gives the packets of one flow to different workers",
                    "use fanout=hash (features: or --level packet)",
                ));
            }
            Some(_) => {}
        }
        Ok(PacketShared { request, group: Some(FanoutGroup::unique()) })
    }

    fn frames(shared: &PacketShared, _worker: usize) -> Result<PacketLane, LaneError> {
        let PacketShared { request, group } = shared;
        let (interfaces, options) = (request.interfaces(), OpenOptions { force: request.force });
        match group {
            Some(group) => PacketLane::open_in(*group, &request.spec, &interfaces, options),
            None => PacketLane::open(&request.spec, &interfaces, options),
        }
    }

    fn group_holder(_shared: &Self::Shared) -> Option<Box<dyn GroupHolder>> {
        Some(kernel_groups())
    }

    fn link_addresses(_shared: &Self::Shared) -> Option<Box<dyn LinkAddresses>> {
        Some(Box::new(NeighbourTable::new(Self::FACTS.name)))
    }
}
