//! What rules had that nothing needs any more, until it is closed or left.

use super::Live;
use laneway_core::{Membership, PortId};

/// The number of a seat, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SeatId(pub(super) u64);

/// What nothing needs any more, and what is still to be done about it.
pub(super) enum Leftover {
    /// A rule that has gone.
    Rule(Box<Live>),
    /// A port to be closed.
    Port(PortId),
    /// A membership to be ended, unless a rule wants it again.
    Membership(SeatId, Membership),
}
