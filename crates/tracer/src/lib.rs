//! Our own tracer: 16-byte records of what a worker does, in a ring per thread, and the file they
//! are written to.
//!
//! ```text
//!  worker ──Recorder──▶ ring (bounded, one producer) ──drainer thread──▶ DIR/worker-0.lwt
//!                        full: drop and count                    header, threads, syncs, records, end
//!                                                                        │
//!                          analysis ◀──Happening (Unix ns)── TraceFile ◀─┘
//! ```
//!
//! A [`Session`] is one run's folder of files; a [`Recorder`] is the end that a worker holds. Writing
//! an event takes no lock, no allocation and no system call: it reads the CPU's counter and stores two
//! words. Receive calls that find nothing are not written but counted, and written as one record when
//! something happens again, so an idle worker writes next to nothing. A full ring never blocks: the
//! record is dropped and counted, and the hole is recorded at its place.
//!
//! [`TraceFile`] reads a file back, as far as it goes, and gives what happened in nanoseconds since the
//! Unix epoch. Other programs that have events (the kernel's, say) write the same format through
//! [`FileWriter`].
//!
//! What this crate does not do: it decides nothing about what events mean, and it hooks nothing: the caller that
//! has something to tell holds a [`Recorder`]. The format is in `README.md`.
#![forbid(unsafe_code)]

mod block;
mod calibrate;
mod error;
mod header;
mod in_order;
mod index;
mod point;
mod read;
mod record;
mod recorder;
mod ring;
mod session;
mod slot;
mod store;
mod ticks;
mod write;

pub use calibrate::{Calibration, calibrate};
pub use error::{NotATrace, TraceError};
pub use header::{Header, ThreadInfo};
pub use in_order::InOrder;
pub use index::DAMAGE_MAX;
pub use point::{Point, PointId, Shape, points};
pub use read::{Damaged, Happening, Happenings, Task, TraceFile, What};
pub use record::{LASTED_TICKS_MAX, Record};
pub use recorder::Recorder;
pub use session::{
    FILE_BYTES_MAX, RING_RECORDS, RING_RECORDS_MAX, RING_RECORDS_MIN, Session, SessionOptions,
    THREADS_MAX, ThreadSummary,
};
pub use slot::TraceSlot;
pub use ticks::{SyncPoint, Ticks};
pub use write::FileWriter;

/// What a file of this format is called: `worker-0.lwt`.
pub const EXTENSION: &str = "lwt";
