//! What every lane asks of Linux beside moving frames: which interface a name means and when that changes, whether
//! the machine's default route leaves by it, which Linux it is, what time it is on the kernel's clocks, which CPUs a
//! thread may use, and what a frame of a packet socket lacks of one on a wire. And the one way to change a setting of
//! the host: [`HostSettings`] records the change first, so that a later run undoes it.
//!
//! Everything is about the calling thread and its network namespace. On the path of a frame is nothing but
//! [`Repairs::make`], and, where a port's plan keeps what a full output refuses, a [`Backlog`].
#![forbid(unsafe_code)]

mod address;
mod backlog;
mod chosen;
mod clock;
mod cpu;
mod files;
mod groups;
mod holders;
mod interface;
mod links;
mod neighbour;
mod packet_info;
mod plan;
mod process;
mod release;
mod repairs;
mod reserve;
mod route;
mod settings;
mod stall;
mod vlan;

pub use address::{AddressError, Cidr, Mac};
pub use backlog::{Backlog, Delayed};
pub use chosen::chosen_interface;
pub use clock::{WallClock, monotonic_ns, unix_ns, unix_offset_ns};
pub use cpu::{pin_to_cpu, starting_on, usable_cpus};
pub use files::{connections_max, open_files_max};
pub use groups::Groups;
pub use holders::Holders;
pub use interface::{
    BUFFER_BYTES_MAX, ETHERNET_BYTES, Facts, Interface, NAME_BYTES_MAX, ProgramId, Undo, XdpPlace,
    is_name, sysfs,
};
pub use links::{Link, LinkWatch, Links};
pub use neighbour::NeighbourTable;
pub use packet_info::Ipv4Info;
pub use plan::{
    SocketOptions, apply_plan, hears_errors, is_icmp_error, is_late_error, is_of_one_host,
};
pub use process::{NoProcess, Process, Usage};
pub use release::{is_older_than, release};
pub use repairs::{Repairs, finish_checksums, reason_not_to_send};
pub use reserve::Reserve;
pub use route::refuse_default_route;
pub use settings::{Change, GivenBack, HostSettings};
pub use stall::Stall;
pub use vlan::{TAG_BYTES, Tag};
