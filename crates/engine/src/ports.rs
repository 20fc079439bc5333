//! The ports of a lane as they are now.

use laneway_core::{Lane, PortId};

/// The ports that a lane has now.
pub(crate) fn ports(lane: &dyn Lane) -> Vec<PortId> {
    (0..lane.ports()).map(|at| lane.port(at)).collect()
}
