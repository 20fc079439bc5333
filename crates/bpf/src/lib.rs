//! eBPF for lanes, apps and the lab: load an object, set its constants, attach it, read its maps
//! and rings, run it on given bytes.
//!
//! ```text
//!  KernelHalf ──Loaded::load──▶ program fd ──XdpLink::attach──▶ interface (until the link drops)
//!  (data)            │               └──────prog_run / live_frames──▶ verdict, bytes
//!                    ├── Maps   (visit, remove, put)
//!                    └── Rings  (one ring per CPU ──consume──▶ &[u8] per record)
//! ```
//!
//! Assumes a 64-bit Linux 6.1 or later with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON. What must
//! always hold: nothing is pinned, and every program is attached by a link whose only
//! reference is a file descriptor of this process, so that every way to end the process (kill -9
//! included) detaches it; a [`TcIngress`] before Linux 6.6 ends with its interface instead. Knows no app and no lane;
//! it performs no traffic of its own except in [`live_frames`].
//!
//! libbpf's messages go to the errors returned here instead of the standard error stream, for the
//! whole process, from the first load on.

mod error;
mod faults;
mod inner;
mod load;
mod mapping;
mod maps;
mod messages;
mod pass;
mod program;
mod ring;
mod rings;
mod run;
mod signals;
mod tc;
mod tracing;
mod xdp;

pub use error::BpfError;
pub use load::{ENTRIES_MAX, Loaded, possible_cpus};
pub use maps::{Maps, sum_per_cpu};
pub use pass::PassGuard;
pub use program::XdpProgram;
pub use rings::{Moderation, RING_BYTES_MAX, RING_BYTES_MIN, Rings};
pub use run::{
    LiveFrames, META_BYTES_MAX, RunInput, RunOutput, live_frames, prog_run, prog_run_train,
};
pub use tc::TcIngress;
pub use tracing::Tracing;
pub use xdp::{Attachment, XdpLink, XdpMode, attachment, wait_for_programs};
