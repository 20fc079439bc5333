//! What every lane asks of Linux beside moving frames: which interface a name means, whether the machine's
//! default route leaves by it, what time it is on the kernel's clocks, and which VLAN tag it took off a frame.
//!
//! Everything is about the network namespace of the calling thread. Nothing here changes the host, and nothing is on
//! the path of a frame but [`Tag::put_back`].
#![forbid(unsafe_code)]

mod clock;
mod interface;
mod route;
mod stall;
mod vlan;

pub use clock::{WallClock, monotonic_ns, unix_ns, unix_offset_ns};
pub use interface::{
    ETHERNET_BYTES, Facts, Interface, NAME_BYTES_MAX, ProgramId, Undo, XdpPlace, is_name,
};
pub use route::refuse_default_route;
pub use stall::Stall;
pub use vlan::{TAG_BYTES, Tag};
