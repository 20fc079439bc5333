//! Lane `uring` on real sockets: the conformance suites in each mode, and what they do not ask. Needs
//! root, for network namespaces; without it every test says so and is skipped.

mod busy;
#[path = "../../../packet/tests/veth/cables.rs"]
mod cables;
mod closed;
mod datagrams;
mod frames;
mod frames_world;
#[path = "../../../socket/tests/socket/full.rs"]
mod full;
#[path = "../../../socket/tests/socket/groups.rs"]
mod groups;
#[path = "../../../socket/tests/socket/handover.rs"]
mod handover;
mod in_flight;
mod peers;
mod steady;
mod streams;
mod world;

#[global_allocator]
static ALLOCATOR: steady::Counting = steady::Counting;

/// The lane of the tests that lanes of kernel sockets share.
mod kernel_lane {
    pub(crate) use crate::cables::Inside;
    use laneway_core::LaneError;
    use std::net::SocketAddr;

    pub(crate) type Lane = laneway_uring::UringUdp;

    pub(crate) fn open(listen: &[SocketAddr]) -> Result<Lane, LaneError> {
        Lane::open(&"uring:gro".parse()?, listen)
    }
}
