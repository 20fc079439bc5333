//! The far end's companion: an XDP program that lets everything pass.

use crate::{BpfError, Loaded, XdpLink, XdpMode};
use laneway_core::KernelHalf;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pass.bpf.o"));

/// Keeps a pass-all XDP program attached to an interface, in native mode.
///
/// Needed at the far end of a veth pair whose near end transmits by XDP (`XDP_TX`, redirect): a
/// veth end without a program takes none of them, and the kernel drops them; where GRO is on at that end, it leaves
/// those of `XDP_TX` in a queue that nothing wakes (`veth_xdp_flush`). Costs the far end its
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
    /// What the kernel refuses: there is a program already, or the driver has no XDP of its own.
    pub fn attach(interface: &str) -> Result<Self, BpfError> {
        let loaded = Loaded::load(&KernelHalf::new("lw_pass", OBJECT, "pass"))?;
        // The link keeps the program; the object may go.
        Ok(PassGuard { link: XdpLink::attach(loaded.program(), interface, XdpMode::Native)? })
    }

    /// The kernel's number of the attached program.
    pub fn program_id(&self) -> u32 {
        self.link.program_id()
    }
}
