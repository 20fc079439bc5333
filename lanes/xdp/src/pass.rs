//! The far end's companion, where a lane may be.

use crate::{CUTS_OFF, LANE};
use laneway_core::LaneError;
use laneway_linux::refuse_default_route;

/// [`laneway_bpf::PassGuard`] at an interface that is not the machine's own.
#[derive(Debug)]
pub struct PassGuard(laneway_bpf::PassGuard);

impl PassGuard {
    /// Attaches to `interface` of the thread's network namespace.
    ///
    /// # Errors
    /// As for [`XdpLane::open`](crate::XdpLane::open); the interface of the default route is
    /// refused always.
    pub fn attach(interface: &str) -> Result<Self, LaneError> {
        refuse_default_route(LANE, interface, CUTS_OFF, "choose another interface")?;
        laneway_bpf::PassGuard::attach(interface).map(PassGuard).map_err(|e| e.in_lane(LANE))
    }

    /// The kernel's number of the attached program.
    pub fn program_id(&self) -> u32 {
        self.0.program_id()
    }
}
