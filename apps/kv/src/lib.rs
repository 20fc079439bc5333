//! App kv: a key-value store that speaks Redis's protocol.
//!
//! ```text
//!  bytes ─▶ resp ─▶ serve (clients, rights, transactions, messages) ─▶ command ─▶ data ─▶ reply
//!                                                                         └──▶ effects: what to log, what changed
//! ```
#![forbid(unsafe_code)]

mod command;
pub mod data;
pub mod serve;

pub use command::{Call, Command, Effects, Flags, Keys, Logged, Outcome, Run};
