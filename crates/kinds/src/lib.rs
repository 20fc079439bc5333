//! What lanes and apps say of themselves, so that a table of each is enough to open, share, run and describe any.
//!
//! ```text
//!   lanes/NAME/src/kind.rs   impl LaneKind for NameKind { FACTS, share, frames, ... }  ─┐ one row each
//!   apps/NAME/src/kind.rs    impl AppKind  for NameKind { FACTS, shape, frames, ... }  ─┤
//!                                                                                       ▼
//!                         registry/  two plain tables and one runner ─▶ run, race, lanes, gen
//! ```
//!
//! A lane has up to four [`Shape`]s, an app likewise; what both have runs. A worker's part of a lane is opened in two
//! steps: [`LaneKind::share`] opens once what all workers of a run have in common (a fan-out group, a steering
//! program, DPDK's ports), on the caller's thread; [`LaneKind::frames`] and its siblings open the part of one
//! worker, on that worker's thread. One worker is the same as several.
//!
//! What must always hold: a lane or an app is named in its own folder and in one row of a table, nowhere else.
//! All that another crate must know of it is a column: a fact ([`LaneFacts`], [`AppFacts`]) or a function of its kind.
//! What this crate does not do: it opens nothing, runs nothing and knows neither a lane nor an app.
#![forbid(unsafe_code)]

mod absent;
mod app;
mod command;
mod facts;
mod groups;
mod lane;
mod own;
mod places;
mod race;
mod report;
mod simple;

pub use absent::{NoApp, NoLane};
pub use app::{
    AppFacts, AppKind, Asks, Conclude, KernelOffer, Own, Place, Report, Service, has_no_shape,
};
pub use command::{
    Account, AppCommand, AppVerb, Confines, Finished, Line, On, Privileges, ReferenceTable,
    Session, WorkerHeadings, WorkerLine,
};
pub use facts::{Keeps, LaneFacts, Mode, Needs, Ports, Shape, Shapes, Sharing, Wiring};
pub use groups::{GroupHolder, LinkAddresses};
pub use lane::{LaneKind, Opening, Request, with_knob};
pub use laneway_confine::{Calls, Capability, ConfineError, Confinement, Forbidden};
pub use laneway_doctor::Ask;
pub use laneway_metrics::Page;
pub use laneway_terminal::{Exit, Failure};
pub use own::link_address;
pub use places::{Places, place_of};
pub use race::{
    ArmPlace, CABLE_BITS, Counted, Fanout, FanoutOutput, Metric, Peer, Protocol, RaceFacts,
    Traffic, Watched, WatchedRun, WatchedWorker, Witness, mix,
};
pub use report::{Ended, PortReport, RunFailed, RunReport};
pub use simple::{FateReport, Simple, SimpleApp, SimpleWorker};
