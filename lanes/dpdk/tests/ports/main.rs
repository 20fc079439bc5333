//! Lane `dpdk` on virtual devices: the conformance suite for each driver that has a far end, and what
//! the suite does not ask. Needs root and DPDK; without them every test says so and is skipped.

mod beside;
mod conformance;
mod drivers;
mod flow_rules;
mod flower;
mod memif;
mod process;
mod workers;
mod world;
