//! The worker: one lane, one app, one core, joined in a loop.
//!
//! [`run_frames`] carries frames between a [`FrameLane`](laneway_core::FrameLane) and a
//! [`FrameApp`](laneway_core::FrameApp); [`run_datagrams`] and [`run_streams`] do so for the other
//! two app shapes; [`run_kernel`] feeds a [`KernelApp`](laneway_core::KernelApp) with what its
//! kernel half emits; [`run_split`] serves streams and datagrams of one app, behind its kernel half
//! if it has one. Each is compiled once per lane and app, runs to completion on the calling
//! thread, and gives a [`RunReport`] at every end. A [`Stop`] ends a run from outside, a [`Watch`] looks at it
//! meanwhile, a [`TraceSlot`] may hold a recorder for it; all come in a [`Control`]. [`Workers`] runs several of them
//! at once, one thread and one CPU each.
//!
//! The engine owns the only real clocks ([`MonotonicClock`], [`UnixClock`]); lanes and apps get
//! the time as a value. It opens no lane, catches no signal and prints nothing: those are the
//! caller's. It starts no thread but those of [`Workers`].
//!
//! What must always hold:
//! * A worker sees a request to stop within [`BLOCK_NS_MAX`] plus the turn it is in.
//! * An app ticks at least every [`TICK_NS`] plus one turn, with or without traffic, and when it is due.
//! * A bell that rings ends a wait, or is heard in the next turn: the app is called behind every ring.
//! * However a run ends, the app's `on_stop` is called once and the counters are kept.
//! * The loop allocates nothing and locks nothing.
#![forbid(unsafe_code)]

mod clock;
mod frames;
mod idle;
mod kernel;
mod ports;
mod probe;
mod run;
mod service;
mod split;
mod stop;
mod watch;
mod workers;

pub use clock::{MonotonicClock, UnixClock};
pub use frames::run_frames;
pub use idle::{BLOCK_NS_MAX, WAKE_NS};
pub use kernel::{DRAIN_TURNS_MAX, run_kernel};
pub use laneway_kinds::{Ended, PortReport, RunFailed, RunReport};
pub use laneway_linux::{pin_to_cpu, starting_on, usable_cpus};
pub use service::{run_datagrams, run_streams};
pub use split::{HalfInFront, Split, run_split};
pub use stop::Stop;
pub use watch::Watch;
pub use workers::{
    WORKERS_MAX, Work, Worker, WorkerFailed, WorkerId, WorkerReport, Workers, WorkersFailed,
    WorkersReport,
};

use laneway_core::Bell;
use laneway_tracer::TraceSlot;

/// What the outside world may do to a worker.
#[derive(Clone, Debug, Default)]
pub struct Control {
    /// End it.
    pub stop: Stop,
    /// Look at it.
    pub watch: Watch,
    /// Trace it: the run takes the recorder that waits here, if one does.
    pub trace: TraceSlot,
    /// Call its app, at once. Each worker needs one of its own.
    pub bell: Option<Bell>,
}

impl From<Stop> for Control {
    fn from(stop: Stop) -> Control {
        Control { stop, ..Control::default() }
    }
}

/// How often an app ticks.
pub const TICK_NS: u64 = 10_000_000;
