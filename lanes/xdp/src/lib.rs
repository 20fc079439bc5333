//! Lane `xdp`: runs any kernel half at the XDP hook and hands its records to user space.
//!
//! ```text
//!  wire ─▶ driver ─▶ program of the half ─▶ drop, pass, transmit
//!                        │ record (ring per CPU)     │ counters, accumulators (maps)
//!                        ▼                           ▼
//!                   XdpLane::receive            XdpLane::maps, counters
//! ```
//!
//! Assumes that the thread that opens the lane is in the interfaces' network namespace and may
//! load programs (see README.md). What must always hold: the program runs in the mode that the
//! report says, it is attached by links alone and so detached on every exit, and the interface of
//! the default route is never touched unless forced. Knows no app: the half is data.

mod behind;
mod beside;
mod holder;
mod kind;
mod lane;
mod pass;
mod spread;

/// Why an interface that carries the default route is left alone.
const CUTS_OFF: &str = "an XDP program can cut this machine off";

pub use beside::{check, find_program};
pub use kind::XdpKind;
pub use lane::{Options, XdpLane};
pub use laneway_bpf::XdpProgram;
pub use pass::PassGuard;

/// The lane's name in specs, results and errors.
const LANE: &str = "xdp";
