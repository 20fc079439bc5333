//! The gallery: real situations with a known cause, recorded by running them, which put the trace half's judgement on
//! trial.
//!
//! It is the judge of `laneway trace analyze`, so it knows nothing of how that judges: it runs the built program, as a
//! user does, and reads the JSON that a user would. For each run it draws parameters from a seed ([`Draw`]), makes the
//! situation ([`KINDS`]), writes down what is true of it by instruments that are no part of the trace half ([`Truth`]),
//! and only then has the recording analysed and compares ([`judge`]).
//!
//! Assumes root, `ip`, `tc` and `ethtool` for our own worker, a C compiler and LTTng for the instrumented program, DPDK
//! for its lanes; a kind that lacks something is skipped with the reason. What it makes goes with it. It asserts no
//! times of a clock, but it measures: figures are for a machine that does nothing else.
#![forbid(unsafe_code)]

mod draw;
pub mod judge;
mod kinds;
mod ours;
mod theirs;
mod traffic;
mod trial;
pub mod truth;
mod watch;
mod world;

pub use draw::Draw;
pub use kinds::{KINDS, Kind, Made};
pub use trial::{HEAD, Outcome, Row, Table, run};
pub use truth::Truth;
pub use world::{NotMade, World};
