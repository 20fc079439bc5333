//! Lane `pcap` as a row of the table of lanes: ports are files, and time is what their packets say.

use crate::PcapLane;
use laneway_core::{CapsReport, ClockDomain, KernelHalf, LaneError};
use laneway_kinds::{
    Keeps, LaneFacts, LaneKind, Mode, Needs, NoLane, Opening, Ports, Request, Shape, Shapes,
    Sharing,
};

/// The row.
#[derive(Debug)]
pub struct PcapKind;

const MODES: &[Mode] = &[Mode::new("pcap", Shape::Frames, Needs::Nothing)];

impl LaneKind for PcapKind {
    const FACTS: LaneFacts = LaneFacts {
        name: "pcap",
        about: "capture files: pcap and pcapng, gzip, zstd",
        readme: include_str!("../README.md"),
        clock: ClockDomain::Unix,
        carries: Shapes::FRAMES,
        takes_stack: false,
        ports: Ports::Files,
        named_ports: |_| Vec::new(),
        confirms_late: false,
        counts_refusals: false,
        passing_costs: None,
        sharing: |_| Sharing::Alone {
            why: "a capture is read in its order",
            hint: "leave --workers out; `laneway features CAPTURE --workers N` cuts it up",
        },
        modes: MODES,
        keeps: |_| Keeps::NOTHING,
        why_not: None,
    };
    type Frames = PcapLane;
    type Datagrams = NoLane;
    type Streams = NoLane;
    type Kernel = NoLane;
    type Shared = Request;

    fn share(opening: &Opening<'_>) -> Result<Request, LaneError> {
        Self::refuse_workers(opening)?;
        Ok(opening.to_request())
    }

    fn frames(request: &Request, _worker: usize) -> Result<PcapLane, LaneError> {
        PcapLane::open(&request.spec, &request.interfaces())
    }

    fn close(frames: PcapLane) -> Result<(), LaneError> {
        frames.finish()
    }

    /// It obtains nothing from a machine.
    fn probe(
        _mode: &Mode,
        _interface: &str,
        _half: fn() -> Option<KernelHalf>,
    ) -> Result<CapsReport, LaneError> {
        Ok(CapsReport::default())
    }
}
