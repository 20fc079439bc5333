//! Lane `uring` on real sockets: the conformance suites in each mode, and what they do not ask. Needs
//! root, for network namespaces; without it every test says so and is skipped.

mod busy;
#[path = "../../../packet/tests/veth/cables.rs"]
mod cables;
mod datagrams;
mod frames;
mod frames_world;
mod in_flight;
mod peers;
mod steady;
mod streams;
mod world;

#[global_allocator]
static ALLOCATOR: steady::Counting = steady::Counting;
