//! Network namespaces and veth pairs that remove themselves, and every setting read back.
//!
//! The lab and the lane tests need a wire they may flood without touching the machine's own interfaces. This crate
//! builds it: a [`Namespace`] is a network namespace without a name, a [`VethPair`] a cable between two of them, and a
//! [`Topology`] a generator and a system under test (`gen0` and `sut0`) joined by one pair, with a [`TopologyRecord`]
//! for the result file.
//!
//! It assumes root (or CAP_SYS_ADMIN with CAP_NET_ADMIN) and the programs `ip` (package iproute2) and `ethtool`;
//! [`can_create`] says what is missing. Two things always hold: nothing outlives its owner, however that ends, SIGKILL
//! included (a namespace is a descriptor, and nothing is mounted where others see it), and what a record states
//! was read from the kernel after it was set, never copied from the request.
//!
//! Functions that take an interface name act in the network namespace of the calling thread: wrap them in
//! [`Namespace::enter`] for a namespace, call them plainly for the machine's own interfaces.
//!
//! It sends no traffic, attaches no program, ends no process, and handles no signal.
#![forbid(unsafe_code)]

mod error;
mod interface;
mod namespace;
mod napi;
mod netdev;
mod tool;
mod topology;
mod veth;

pub use error::Error;
pub use interface::{
    InterfaceCounters, InterfaceState, Neighbour, Offloads, driver_counters, interface_counters,
    interface_state, read_offloads, set_offloads, wait_for_carrier,
};
pub use laneway_linux::{AddressError, Cidr, Mac};
pub use namespace::{Namespace, WeakNamespace, can_create, memory_folder};
pub use napi::{NapiProof, NapiThread, napi_threads, set_threaded};
pub use topology::{Side, SideRecord, Topology, TopologyOptions, TopologyRecord};
pub use veth::{VethEnd, VethOptions, VethPair};
