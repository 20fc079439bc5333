//! App `relay`: datagrams of groups and hosts, copied to groups and hosts; rules that change while it runs.
//!
//! ```text
//!   file, command line ─▶ RuleFile ─ check ─▶ Book ── desk ──▶ Relay, one per worker (a datagram app)
//!   control socket ─────▶ console ────────────▶ ▲  ◀─ state ──┘
//! ```
//!
//! A rule is an input and its outputs ([`rule`]); a set of them has no input twice and no loop ([`check`]).
//! `command` has the options and the reports of `laneway run relay`; `verb` is `laneway relay`.
//!
//! What must always hold: every datagram that comes in is relayed or counted by why not, every copy is sent or
//! counted by why not, and every datagram meets one whole rule set.
//!
//! What it does not do: it speaks no IGMP and no ARP (the kernel's sockets or the stack below do), and changes
//! no byte of a payload.
#![forbid(unsafe_code)]

mod book;
mod check;
mod command;
mod console;
mod desk;
mod figures;
mod file;
mod handover;
pub mod kernel;
mod kind;
mod links;
mod live;
mod report;
mod rule;
mod sockets;
mod talks;
mod user;
mod verb;

pub use book::{Book, Changed};
pub use check::{OUTPUTS_MAX, Policy, RULES_MAX, RuleError, SOURCES_MAX, check};
pub use console::{Request, answer};
pub use file::RuleFile;
pub use handover::Asked;
pub use kind::{RelayKind, RelayRun};
pub use live::{DELAY_CLASSES, Delays, OutputState, RuleState, WorkerState};
pub use report::RelayReport;
pub use rule::{Family, Full, Input, Output, Rule, RuleId, TTL_GROUP, TTL_HOST};
pub use user::{Copies, Fates, Relay};
