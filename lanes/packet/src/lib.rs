//! Lane `packet`: AF_PACKET sockets, the way to receive frames that every Linux has.
//!
//! Three modes, one lane. `packet` makes one `recvmsg` call per frame and is the honest baseline;
//! `packet:mmsg=N` makes one `recvmmsg` call per N frames; `packet:ring` (also called
//! `packet:batch`) shows frames in place in a TPACKET_V3 ring and is the strong baseline.
//!
//! ```text
//!  copying:  socket queue ──recvmsg──▶ pool buffer ─▶ Burst ─▶ settle ─▶ pool (free again)
//!  ring:     kernel ─▶ block of the ring ─▶ Burst ─▶ settle ─▶ the block's last frame is settled:
//!                                                              the block is the kernel's again
//!  both:     settle or lend ─▶ Outbox ──sendmmsg──▶ the interface   (the kernel copies)
//! ```
//!
//! What must always hold: the lane never sees what it sent itself (PACKET_IGNORE_OUTGOING); it sees
//! frames of its own interface only (the socket has no protocol until it is bound); VLAN tags that
//! the kernel took off are put back; what the kernel dropped for want of room is counted.
//!
//! What it does not do: it takes no frame away from the kernel's own stack, switches no interface to
//! promiscuous mode, and does not complete checksums that a virtual device left to an offload.
//! `README.md` lists knobs and limits.

mod config;
mod group;
mod holder;
mod inbox;
mod kind;
mod lane;
mod memory;
mod outbox;
mod ring;
mod socket;
mod sys;

pub use group::FanoutGroup;
pub use kind::PacketKind;
pub use lane::{OpenOptions, PacketLane};
