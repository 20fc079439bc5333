//! The tables of lanes and apps, and the one runner that joins the two.
//!
//! ```text
//!   Lanes: a plain table ──name──▶ LaneKind ─┐
//!                                            ├─▶ run: share, open per worker, build, engine, conclude
//!   AppKind, with its configuration ─────────┘        frames, datagrams, streams, kernel; with or without a stack
//! ```
//!
//! The only place that knows every lane. A lane spec chooses a lane once, at start-up; from there everything is
//! compiled per lane and app, so nothing is looked up per frame. The verbs and the lab's arms open lanes here and
//! nowhere else, so what is measured is what users run.
//!
//! Assumes that the calling thread is in the interfaces' network namespace. It prints nothing, catches no signal, and
//! starts no thread but those of several workers.
#![forbid(unsafe_code)]

mod apps;
mod lanes;
mod run;
mod table;

pub use apps::{AppTable, AppVisitor, AppWalker, Apps, apps};
pub use lanes::{Lanes, USUAL_LANE};
pub use run::{Crew, Order, Ran, WorkerRan, run, run_source};
pub use table::{LaneTable, LaneVisitor, facts_of, lanes, probe};
