//! App echo: answers pings before the stack does, and echoes datagrams and streams (RFC 862).
//!
//! ```text
//!  frame ─▶ sort ──▶ not a question to us ──────────────▶ pass, unmodified
//!             │ └──▶ a question that must not be answered ─▶ named drop
//!             ▼
//!          question ─▶ rate limits ─▶ answered in its own frame ─▶ transmit
//! ```
//!
//! [`Echo`] is the app over frames: ICMP and ICMPv6 echo requests, ARP requests and neighbour
//! solicitations for the addresses of its [`Config`]. [`KernelEcho`] is the same app as an XDP program
//! (`bpf/`), and [`IcmpEcho`] over raw sockets, which show the messages alone. [`UdpEcho`] and [`TcpEcho`] are the echo
//! service over the other two app shapes.
//!
//! What must always hold:
//! * Every frame has exactly one [`Fate`], the table of which is the specification of this app. Rust,
//!   the C headers on the host, and the loaded program agree on it and on every byte.
//! * A passed or dropped frame is unchanged. An answer is exactly as long as its question, so that
//!   echo amplifies no forged request.
//! * Only echo requests to an address of ours are ever dropped, and neighbour solicitations for one
//!   whose checksum or length is wrong. All else is another program's to judge.
//!
//! What it does not do: it routes nothing (an answer goes back to the source MAC address of its
//! question), puts no fragments together, reads no clock, and opens nothing.
#![forbid(unsafe_code)]

mod answer;
mod command;
mod config;
mod fate;
mod icmp;
mod kernel;
mod kind;
mod limit;
mod own;
mod schedule;
mod sort;
mod tcp;
mod udp;
mod user;

pub use config::{
    ADDRESSES_MAX, Config, ConfigError, Limits, SOURCES_DEFAULT, SOURCES_MAX, TTL_DEFAULT,
};
pub use fate::{Class, Fate, Fates};
pub use icmp::IcmpEcho;
pub use kernel::{KernelEcho, OBJECT, OBJECT_LINEAR, half};
pub use kind::{EchoKind, EchoRun};
pub use schedule::{PER_SECOND_MAX, Rate};
pub use tcp::TcpEcho;
pub use udp::{UdpEcho, UdpEchoConfig, UdpFates};
pub use user::Echo;
