//! Lane `uring`: the kernel's sockets through io_uring, in all three shapes.
//!
//! [`UringUdp`] carries datagrams, [`UringTcp`] byte streams, [`UringFrames`] Ethernet frames (of
//! AF_PACKET sockets). Each worker has one ring, made for one thread (SINGLE_ISSUER, DEFER_TASKRUN);
//! one multishot request per socket receives into buffers that the kernel
//! picks from a ring of provided ones, armed or, where the worker comes round anyway, looking; what an
//! app sends in a turn leaves with one call.
//!
//! ```text
//!   provided buffers ──▶ kernel ──▶ completions ──▶ app, in place ──▶ buffers given back
//!   app ──▶ send slots / queues ──▶ requests ──▶ one io_uring_enter per turn
//! ```
//!
//! What must always hold: **no request outlives the memory it names**, also when a lane is dropped
//! with requests in flight. The proof is in `ring.rs`, and rests on all such memory being owned by
//! the ring as well as by the lane. Running out of provided buffers ends a multishot request; it is
//! armed again as soon as one is free, what waits in the socket is not lost, and the report counts it
//! (`rearms`).
//!
//! What it does not do: fall back to plain sockets where io_uring is disabled (the error says what to
//! change), poll with a kernel thread (SQPOLL), or receive without a copy.
//! `README.md` lists knobs and limits.

mod address;
mod arrival;
mod buffers;
mod config;
mod conn;
mod ear;
mod frames;
mod grant;
mod kind;
mod memory;
mod oldest;
mod receiving;
mod ring;
mod socket;
mod sys;
mod tcp;
mod token;
mod trains;
mod udp;

pub use frames::{OpenOptions, UringFrames};
pub use kind::UringKind;
pub use tcp::UringTcp;
pub use udp::UringUdp;
