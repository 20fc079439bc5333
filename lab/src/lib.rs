//! The lab: races between lanes whose verdicts a sceptic accepts.
//!
//! ```text
//!  Scenario (TOML) ──race::run──▶ a Bench for each arm: two namespaces, a cable; one CPU meter
//!                                   │ per generation: fresh arms and generators, all alive, talked to in
//!                                   │ lines of JSON (plan), each this very program again
//!                                   ▼
//!                                 segments: ledger, CPU by context, latency in two scopes
//!                                   │ analyse: paired by round, intervals, noise floor, goals
//!                                   ▼
//!                                 RaceResult ──report──▶ report.html, report.md, terminal
//! ```
//!
//! Assumes root. What must always hold: every frame offered is delivered or named, whatever was
//! made is removed when its value drops and when the process ends, no traffic leaves the
//! namespaces made here, and the report says nothing that the result does not hold.
//!
//! It knows no lane and no app by name but its own: a scenario names them, and the tables have them ([`Tables`]).
#![forbid(unsafe_code)]

mod addresses;
mod apps;
mod arrivals;
mod awake;
mod bench;
mod child;
mod child_process;
pub mod client;
mod command;
mod copies;
mod disk;
mod error;
mod fanout;
mod generate;
mod headroom;
mod host;
mod lane_target;
mod late;
mod leftovers;
mod meter;
pub mod multicast;
#[cfg(test)]
mod permitted;
mod ping;
mod plan;
mod program_end;
pub mod race;
mod refused;
mod replies;
pub mod report;
pub mod result;
mod returns;
mod round_trips;
pub mod scenario;
mod search;
mod segment;
mod tables;
mod tally;
mod testpmd;
mod timetable;
mod traffic;
mod trial;
pub mod wakeup;
pub mod why;
mod wire;
mod words;

pub use child::{ChildEnd, serve_arm, serve_generator};
pub use error::TrafficError;
pub use fanout::Fanout;
pub use ping::{PingLoad, PingTrial};
pub use plan::Shape;
pub use round_trips::RoundTrips;
pub use segment::Plant;
pub use tables::{Tables, TablesOf, arm_matches, arm_words};
pub use timetable::Spacing;
pub use trial::Trial;
