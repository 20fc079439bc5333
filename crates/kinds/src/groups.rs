//! What the kernel does for a stack in user space on an interface that is its own as well: it tells the network of
//! groups, and knows neighbours.

use laneway_core::{LaneError, Membership};
use laneway_linux::{Holders, NeighbourTable, SocketOptions};
use std::net::IpAddr;

/// Makes the kernel a member of groups on behalf of a stack in user space: it then tells routers and switches of
/// them (IGMP, MLD), answers their questions, and has the interface let the groups' frames in. Every membership names
/// its interface, and ends with the holder.
pub trait GroupHolder {
    /// Becomes a member; no membership is asked for twice.
    ///
    /// # Errors
    /// What the kernel says.
    fn join(&mut self, membership: &Membership) -> Result<(), LaneError>;

    /// Is a member no longer.
    ///
    /// # Errors
    /// What the kernel says.
    fn leave(&mut self, membership: &Membership) -> Result<(), LaneError>;
}

impl<S: SocketOptions> GroupHolder for Holders<S> {
    fn join(&mut self, membership: &Membership) -> Result<(), LaneError> {
        Holders::join(self, membership)
    }

    fn leave(&mut self, membership: &Membership) -> Result<(), LaneError> {
        Holders::leave(self, membership)
    }
}

/// Link addresses that are known elsewhere, as by the kernel.
pub trait LinkAddresses {
    /// The link address of a neighbour on an interface, and whether it was confirmed.
    fn find(&mut self, interface: &str, address: IpAddr) -> Option<([u8; 6], bool)>;
}

impl LinkAddresses for NeighbourTable {
    fn find(&mut self, interface: &str, address: IpAddr) -> Option<([u8; 6], bool)> {
        NeighbourTable::find(self, interface, address)
    }
}
