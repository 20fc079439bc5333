//! Lane `afxdp` as a row of the table of lanes: each of several workers has a receive queue and one socket map for all.

use crate::{AfXdp, Steering, holder::kernel_groups};
use laneway_core::{ClockDomain, LaneError};
use laneway_kinds::{
    Calls, Capability, GroupHolder, Keeps, LaneFacts, LaneKind, LinkAddresses, Mode, Needs, NoLane,
    Opening, Ports, Request, Shape, Shapes, Sharing,
};
use laneway_linux::NeighbourTable;

/// The row.
#[derive(Debug)]
pub struct AfXdpKind;

/// What the workers of a run have in common.
pub enum AfXdpShared {
    /// One worker, on the queue that its spec names.
    Alone(Request),
    /// Several, on one queue each, steered by one program per interface.
    Steered {
        /// The programs.
        steering: Steering,
        /// The app sends nothing.
        never_transmits: bool,
    },
}

const MODES: &[Mode] = &[
    Mode::new("afxdp", Shape::Frames, Needs::Interface),
    Mode::new("afxdp:generic", Shape::Frames, Needs::Interface),
    Mode::new("afxdp:sg", Shape::Frames, Needs::Interface),
    Mode::new("afxdp:busy_poll=20", Shape::Frames, Needs::Interface),
    Mode::new("afxdp:hugepages", Shape::Frames, Needs::Interface),
    Mode::new("afxdp:zero-copy", Shape::Frames, Needs::Interface),
];

impl LaneKind for AfXdpKind {
    const FACTS: LaneFacts = LaneFacts {
        name: "afxdp",
        about: "AF_XDP sockets: rings shared with the kernel",
        readme: include_str!("../README.md"),
        clock: ClockDomain::Monotonic,
        carries: Shapes::FRAMES,
        takes_stack: true,
        ports: Ports::Interfaces,
        named_ports: |_| Vec::new(),
        confirms_late: false,
        counts_refusals: false,
        passing_costs: Some("one BPF_PROG_RUN system call per frame"),
        sharing: |_| Sharing::Spread,
        modes: MODES,
        // A socket and a program of an interface that comes back.
        keeps: |_| Keeps::Only {
            capabilities: &[Capability::NetAdmin, Capability::NetRaw, Capability::Bpf],
            calls: &[Calls::Bpf],
        },
        why_not: None,
    };
    type Frames = AfXdp;
    type Datagrams = NoLane;
    type Streams = NoLane;
    type Kernel = NoLane;
    type Shared = AfXdpShared;

    fn share(opening: &Opening<'_>) -> Result<AfXdpShared, LaneError> {
        if opening.for_stack && opening.spec.knobs().flag("sg")? {
            return Err(Self::FACTS.refuse(
                "sg",
                "our stack reads packets in one buffer, and would see none of a longer one",
                "leave sg out; frame=4096 takes longer frames than the default",
            ));
        }
        if opening.workers == 1 {
            return Ok(AfXdpShared::Alone(opening.to_request()));
        }
        let steering =
            Steering::attach(opening.spec, opening.interfaces, opening.workers, opening.force)?;
        Ok(AfXdpShared::Steered { steering, never_transmits: opening.never_transmits })
    }

    fn frames(shared: &AfXdpShared, worker: usize) -> Result<AfXdp, LaneError> {
        let (lane, never_transmits) = match shared {
            AfXdpShared::Alone(request) => {
                let Request { spec, force, never_transmits, .. } = request;
                (AfXdp::open(spec, &request.interfaces(), *force)?, *never_transmits)
            }
            AfXdpShared::Steered { steering, never_transmits } => {
                (AfXdp::open_steered(steering, worker)?, *never_transmits)
            }
        };
        // What is only read may be as it is.
        Ok(if never_transmits { lane } else { lane.finishing_checksums() })
    }

    fn group_holder(_shared: &Self::Shared) -> Option<Box<dyn GroupHolder>> {
        Some(kernel_groups())
    }

    fn link_addresses(_shared: &Self::Shared) -> Option<Box<dyn LinkAddresses>> {
        Some(Box::new(NeighbourTable::new(Self::FACTS.name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_several_buffers_are_refused_below_a_stack_before_anything_opens() {
        let spec = "afxdp:sg".parse().expect("a spec");
        let opening =
            Opening { for_stack: true, ..Opening::on(&spec, Shape::Frames, &["lw-not-there"]) };
        let error = AfXdpKind::share(&opening).err().expect("a refusal").to_string();
        assert!(error.contains("`sg`") && error.contains("frame=4096"), "{error}");
    }
}
