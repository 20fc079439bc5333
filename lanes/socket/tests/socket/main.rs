//! Lane `socket` against far ends of the test's own, which share no code with it: the conformance
//! suites in each mode, what the suites do not ask, and programs of third parties.
//!
//! Most worlds are the loopback addresses; those that need more are namespaces, which need root.
//! Without it those tests say so and are skipped.

mod behaviour;
mod datagrams;
mod full;
mod groups;
mod handover;
mod peers;
mod pings;
mod place;
mod raw;
mod streams;

/// The lane of the tests that lanes of kernel sockets share.
mod kernel_lane {
    pub(crate) use crate::place::Inside;
    use laneway_core::LaneError;
    use std::net::SocketAddr;

    pub(crate) type Lane = laneway_socket::UdpLane;

    pub(crate) fn open(listen: &[SocketAddr]) -> Result<Lane, LaneError> {
        Lane::open(&"socket:batch=32,gro".parse()?, listen)
    }
}
