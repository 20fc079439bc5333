//! Lane `sim`: simulated links on a virtual clock, all from one seed.
//!
//! [`SimLane::open`] gives a lane and a [`SimWorld`]: the far ends of all its ports and the clock.
//! Each port has one link, a wire per direction, with loss, delay, jitter, reordering, duplicates,
//! an MTU and a queue limit. The same spec and the same calls give the same bytes, order, stamps
//! and counters on every machine.
//!
//! ```text
//!   inject ─▶ script ─▶ wire (ToLane) ─▶ receive ─▶ Burst ─▶ settle ─▶ wire (FromLane) ─▶ collect
//!             future    loss, delay, ...   copy into       copy out       loss, delay, ...
//!             frames    in flight          the port's pool                in flight
//! ```
//!
//! Assumes one thread. Time moves only when the lane waits, when a receive finds nothing
//! ([`POLL_NS`]), or when the world is advanced. Performs no I/O and reads no clock. It does
//! not model bandwidth, and the copies between wire and pool are the wire's, not counted ones.

#![forbid(unsafe_code)]

mod kind;
mod knobs;
mod lane;
mod link;
mod world;

pub use kind::SimKind;
pub use lane::{POLL_NS, SimLane};
pub use link::{Link, LinkCounters};
pub use world::{Arrival, Direction, FAR_FRAMES_MAX, SimClock, SimWorld};
