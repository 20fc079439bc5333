//! The contract between lanes and applications.
//!
//! A **lane** moves frames between a wire and an app; an **app** looks at a borrowed [`Burst`] and
//! leaves a [`Verdict`] on every frame; the engine joins the two. Nothing here performs I/O, reads
//! a clock, or knows any lane or app by name.
//!
//! ```text
//!            receive / lend                 on_burst / fill
//!   lane  ───────────────────▶  Burst  ───────────────────▶  app
//!    ▲    owns the memory       (lent)    reads, edits,        │
//!    └──────────────── settle ◀────────── sets verdicts ───────┘
//! ```
//!
//! What must always hold:
//! * Memory belongs to the lane. An app borrows it for one call; what it wants longer it copies.
//! * Every frame that a lane hands out is settled by exactly one verdict; every frame that does not
//!   arrive is counted under exactly one [`DropReason`].
//! * Per packet there is no allocation, no lock, no log, no reference count.
//! * What a lane was asked for and what it obtained are both reported ([`CapsReport`]).

mod app;
mod caps;
mod clock;
mod counters;
mod datagram;
mod error;
mod frame;
mod idle;
mod kernel;
mod lane;
mod spec;
mod stream;
mod verdict;

pub use app::{App, Fill, FrameApp, Turn};
pub use caps::{Cap, CapSet, CapsReport};
pub use clock::{Clock, ClockDomain};
pub use counters::{Counters, DropReason};
pub use datagram::{Datagram, DatagramApp, DatagramLane, DatagramOut};
pub use error::LaneError;
pub use frame::{
    BURST_FRAMES_DEFAULT, BURST_FRAMES_MAX, Burst, Frame, FrameMut, FramePool, FrameSpan,
    HEADROOM_BYTES_MIN, Region, TAILS_MAX,
};
pub use idle::IdlePolicy;
pub use kernel::{ConfigValue, KernelApp, KernelHalf, KernelLane, KernelMaps, RecordStream};
pub use lane::{FrameLane, Lane, Wake};
pub use spec::{Knobs, LaneSpec, SpecError, nearest};
pub use stream::{Close, ConnId, StreamApp, StreamLane, StreamOut};
pub use verdict::{PortId, PortMask, Verdict};
