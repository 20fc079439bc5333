//! Recording what others do: the kernel's part of a program's time, LTTng of an instrumented program,
//! DPDK's own trace.
//!
//! ```text
//!  record ─▶ command (as given, or with --trace, LD_PRELOAD, EAL arguments)
//!     ├─ kernel join: eBPF on tracepoints ─▶ rings ─▶ OUT/kernel.lwt
//!     ├─ LTTng: session of its own ──────────────────▶ OUT/lttng/
//!     ├─ DPDK: --trace ──────────────────────────────▶ OUT/rte-*/
//!     └─ laneway run: --trace ───────────────────────▶ OUT/worker-*.lwt
//! ```
//!
//! [`record`] runs one command to its end and leaves a folder that `laneway trace analyze` reads. All of it is
//! on CLOCK_MONOTONIC or on a counter tied to it, so traces of one folder join on one axis.
//!
//! What must always hold: whatever is set up (eBPF programs, an LTTng session, its daemon, folders) is taken down on
//! every way out of [`record`], and what could not be recorded is counted. What it does not do: it
//! judges nothing, prints nothing, and traces no process that the command did not start.
#![forbid(unsafe_code)]

mod command;
mod dpdk;
mod error;
mod kernel;
mod lttng;
mod program;
mod recording;

pub use command::{Ended, Urgency};
pub use dpdk::{BUFFER_MEGABYTES, with_dpdk_trace};
pub use error::RecordError;
pub use kernel::{Follow, KernelJoin, KernelSummary, RING_BYTES};
pub use lttng::{CHANNEL, Full, LttngOptions, LttngSession, LttngSummary, Profile};
pub use recording::{Plan, Recorded, With, record, with_laneway_trace};
