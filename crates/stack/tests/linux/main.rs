//! The stack against the kernel's: the conformance suites and real programs, over a veth cable
//! between two namespaces. Needs root; what is missing is printed, and the test skipped.
#![forbid(unsafe_code)]

#[path = "../apps/mod.rs"]
mod apps;
mod checksums;
mod conformance;
mod fanout;
mod groups;
mod neighbours;
mod peers;
mod world;
