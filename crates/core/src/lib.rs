//! The contract between lanes and applications.
//!
//! A **lane** moves frames between a wire and an app; an **app** looks at a borrowed [`Burst`] and
//! leaves a [`Verdict`] on every frame; the engine joins the two. Nothing here reads a clock, knows any
//! lane or app by name, or performs I/O, but for the event behind a [`Bell`].
//!
//! ```text
//!            receive / lend                 on_burst / fill
//!   lane  ───────────────────▶  Burst  ───────────────────▶  app
//!    ▲    owns the memory     (borrowed)  reads, edits,        │
//!    └──────────────── settle ◀────────── sets verdicts ───────┘
//! ```
//!
//! What must always hold:
//! * Memory belongs to the lane. An app borrows it for one call; what it wants longer it copies.
//! * Every frame that a lane hands out is settled by exactly one verdict; every frame that does not
//!   arrive is counted under exactly one [`DropReason`].
//! * Per packet there is no allocation, no lock, no log, no reference count.
//! * What a lane was asked for and what it obtained are both reported ([`CapsReport`]).
//!
//! An app, and the memory of a lane that copies its frames, without a line of `unsafe`:
//!
//! ```
//! use laneway_core::{App, Burst, Counters, FrameApp, FramePool, PortId, Turn, Verdict};
//!
//! /// Sends every frame back to its sender.
//! #[derive(Default)]
//! struct Mirror(Counters);
//!
//! impl App for Mirror {
//!     fn counters(&self) -> &Counters {
//!         &self.0
//!     }
//! }
//!
//! impl FrameApp for Mirror {
//!     fn on_burst(&mut self, _port: PortId, burst: &mut Burst, _turn: Turn) {
//!         for i in 0..burst.len() {
//!             let mut frame = burst.frame_mut(i);
//!             if let Some(addresses) = frame.bytes_mut().first_chunk_mut::<12>() {
//!                 addresses.rotate_left(6);
//!                 frame.set_verdict(Verdict::Tx);
//!             }
//!         }
//!     }
//! }
//!
//! // 8 buffers for frames of at most 1514 bytes, shown in bursts of 4.
//! let mut pool = FramePool::new(8, 1514, 4);
//! let received = [[1; 6], [2; 6], [8, 0, 0, 0, 0, 0]].concat();
//! let mut frame = pool.push(received.len(), received.len() as u32, 0).expect("a buffer is free");
//! frame.bytes_mut().copy_from_slice(&received);
//! Mirror::default().on_burst(PortId(0), pool.burst_mut(), Turn::default());
//! let mut sent = Vec::new();
//! pool.settle(|_verdict, frame| sent.extend_from_slice(frame.bytes));
//! assert_eq!((&sent[..6], pool.space()), (&[2; 6][..], 4));
//! ```

mod app;
mod bell;
mod caps;
mod counters;
mod datagram;
mod error;
mod frame;
mod gather;
mod kernel;
mod lane;
mod port;
mod stream;
mod verdict;

pub use app::{App, Fill, FrameApp, Turn};
pub use bell::Bell;
pub use caps::{Cap, CapSet, CapsReport, KernelMemory};
pub use counters::{Counters, DropReason};
pub use datagram::{Datagram, DatagramApp, DatagramLane, DatagramOut, Payload, PayloadKey};
pub use error::LaneError;
pub use frame::{
    BURST_FRAMES_DEFAULT, BURST_FRAMES_MAX, Burst, Frame, FrameMut, FramePool, FrameSpan,
    HEADROOM_BYTES_MIN, Region, TAILS_MAX,
};
pub use gather::{GATHERED_MAX, Gathered, HEAD_BYTES_MAX};
pub use kernel::{
    ConfigValue, KernelApp, KernelHalf, KernelLane, KernelMaps, MapValue, RecordStream,
};
pub use lane::{Clock, ClockDomain, FrameLane, Lane, Wake};
pub use port::{DatagramPorts, Membership, PortPlan, RCVBUF_BYTES_DEFAULT, WhenFull};
pub use stream::{Close, ConnId, Opened, StreamApp, StreamLane, StreamOut};
pub use verdict::{PortId, PortMask, Verdict};
