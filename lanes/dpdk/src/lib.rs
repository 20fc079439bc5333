//! Lane `dpdk`: ports of the Data Plane Development Kit, loaded at run time.
//!
//! ```text
//!   lane       receive, lend, settle, wait             device     what is known of each driver
//!   port       one device: added, started, removed     config     the knobs
//!   pool       the mbufs of a lane                     interface  what the kernel says of one
//!   eal        DPDK's own start, once per process      wake       how a blocked worker wakes
//!   shim       the C functions, loaded from memory     hugepages  a reservation that goes back
//!   flow_rules what ports match and do themselves      borrowed   interfaces that go back as they were
//!   guard      a child that acts when we are gone      listener   sockets that a driver forgets
//! ```
//!
//! DPDK's fast path is inline C, so `shim/laneway_dpdk.c` wraps it, one call per burst. Where DPDK
//! was present at build time the compiled shim is carried inside the program and loaded when the
//! first port opens: the program builds, starts and says what is missing on machines without DPDK.
//!
//! [`DpdkLane`] is a [`FrameLane`](laneway_core::FrameLane): one pool of mbufs, one device per port.
//! Assumes Linux, DPDK 22.11 or later, and that the worker stays on the thread and in the network
//! namespace that opened the lane. What must always hold: frames lie in mbufs of the lane's own pool,
//! each in one piece with full headroom; devices and huge pages are gone when the lane is.
//! [`DpdkPorts`] opens the devices once for several workers, each with queues of its own.
//! What it does not do: bind PCI devices to drivers, or hand frames back to the kernel's stack. `README.md` lists
//! knobs, costs and limits.

mod asked;
mod borrowed;
mod config;
mod device;
mod eal;
mod flow_rules;
mod guard;
mod hugepages;
mod kind;
mod lane;
mod listener;
mod pool;
mod port;
mod shim;
mod wake;

pub use flow_rules::FlowRules;
pub use kind::DpdkKind;
pub use lane::{DpdkLane, DpdkPorts};
pub use port::QueueCounts;
