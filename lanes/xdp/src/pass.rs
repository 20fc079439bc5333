//! The far end's companion: an XDP program that lets everything pass.

use crate::{CUTS_OFF, LANE};
use laneway_bpf::{Loaded, XdpLink, XdpMode};
use laneway_core::{KernelHalf, LaneError};
use laneway_linux::refuse_default_route;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pass.bpf.o"));

/// Keeps a pass-all XDP program attached to an interface, in native mode.
///
/// Needed at the far end of a veth pair whose near end transmits by XDP (`XDP_TX`, redirect): a
/// veth end without a program takes none of them, and the kernel drops them. Costs the far end its
/// conversion of socket buffers to XDP frames, so it belongs into the description of a topology.
/// Dropping it detaches.
#[derive(Debug)]
pub struct PassGuard {
    link: XdpLink,
}

impl PassGuard {
    /// Attaches to `interface` of the thread's network namespace.
    ///
    /// # Errors
    /// As for [`XdpLane::open`](crate::XdpLane::open); the interface of the default route is
    /// refused always.
    pub fn attach(interface: &str) -> Result<Self, LaneError> {
        let lane_error = |e: laneway_bpf::BpfError| e.in_lane(LANE);
        refuse_default_route(LANE, interface, CUTS_OFF, "choose another interface")?;
        let loaded = Loaded::load(&KernelHalf {
            name: "lw_pass",
            object: OBJECT,
            program: "pass",
            config: Vec::new(),
            entries: Vec::new(),
            map_sizes: Vec::new(),
            records: None,
            drops_map: None,
            seen_map: None,
        })
        .map_err(lane_error)?;
        // The link keeps the program; the object may go.
        let link = XdpLink::attach(loaded.program(), interface, XdpMode::Native);
        Ok(PassGuard { link: link.map_err(lane_error)? })
    }

    /// The kernel's number of the attached program.
    pub fn program_id(&self) -> u32 {
        self.link.program_id()
    }
}
