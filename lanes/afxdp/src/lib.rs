//! Lane `afxdp`: AF_XDP sockets on our own rings and UMEM, over raw system calls.
//!
//! ```text
//!   lane    the lane itself: opens ports, kicks the kernel, waits, counts
//!   plane   all movement of frames, no system call      config     the knobs
//!   umem    memory, free list                           interface  what the kernel says of one
//!   ring    one ring shared with the kernel             program    the XDP program of an interface
//!   socket  one bound socket                            steering   programs that workers share
//!                                                       sys        the system calls
//! ```
//!
//! [`AfXdp`] is a [`FrameLane`](laneway_core::FrameLane): one UMEM, and per interface one socket on
//! one queue. Several workers on one interface share its program by a [`Steering`]. Assumes Linux 5.18 or later (6.6
//! for multi-buffer) and the privileges named in the README. What must always hold: every frame of the UMEM is in
//! exactly one place ([`AfXdp::census`]); nothing stays attached when the lane is dropped or the process ends. What it
//! does not do: look into frames (but for a VLAN tag of a frame just longer than the MTU), or start threads.
//! `README.md` lists knobs, costs and limits.

mod config;
mod holder;
mod interface;
mod kind;
mod lane;
mod plane;
mod program;
mod ring;
mod socket;
mod steering;
mod sys;
mod umem;

pub use kind::AfXdpKind;
pub use lane::AfXdp;
pub use plane::Census;
pub use steering::Steering;
