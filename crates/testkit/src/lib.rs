//! What the tests of several crates share: frames to send, files to read, headers of kernel halves run as programs, the
//! conformance suites of the lanes, and skips that say why.
//!
//! A lane proves that it keeps the contract of `laneway-core` by writing a [`Rig`] (how to open the
//! lane in a fresh world, how to send and receive at the far end) and one line:
//!
//! ```ignore
//! laneway_testkit::conformance!(|| MyRig::new("packet"));
//! ```
//!
//! Lanes that carry datagrams or streams do the same with the rigs and macros of [`service`].
//!
//! Assumes Linux (it reads `/proc/thread-self`). Never asserts a wall-clock time; every loop is
//! bounded by a named number of turns. Does not know any lane.
#![forbid(unsafe_code)]

mod certificates;
pub mod conformance;
mod files;
pub mod foreign;
mod frames;
pub mod hearing;
mod patience;
mod referee;
mod refusal;
mod seed;
pub mod service;
mod skip;
pub mod soak;

pub use certificates::{Authority, Issued};
pub use conformance::{Disturbance, Impossible, Overload, Properties, Rig};
pub use files::{CaptureFile, captures, foreign_captures, root, shipped_captures, trace_file};
pub use frames::{
    FRAME_BYTES_MIN, SOURCE_MAC, UdpFrame, is_ours, lend_and_send, receive_all, receive_shares,
    return_all, sequence, udp_frames, what_waits_is_refused_at_the_end,
};
/// The loop that runs an app on a lane, for a lane's benchmarks.
pub use laneway_engine as engine;
pub use laneway_random::Random;
pub use patience::Patience;
pub use referee::Referee;
pub use seed::seed;
pub use service::{DatagramProperties, DatagramRig, PeerId, PeerRead, StreamProperties, StreamRig};
pub use skip::{skip, young_enough};
