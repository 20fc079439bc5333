//! App kv: a key-value store that speaks Redis's protocol.
//!
//! ```text
//!  bytes ─▶ resp ─▶ serve (clients, rights, transactions, messages) ─▶ command ─▶ data ─▶ reply
//!                                                                         └──▶ effects: what to log, what changed
//! ```
#![forbid(unsafe_code)]

mod arguments;
mod command;
mod data;
mod effects;
mod event;
mod file_log;
mod get;
mod kind;
mod lsm;
mod serve;
mod tls;
mod upstream;

pub use arguments::KvArguments;
pub use command::{Call, Command, Flags, Keys, Outcome, Run};
pub use data::{
    COMMANDS as DATA_COMMANDS, DATABASES, Damaged, DatabaseCounts, Eviction, Settings,
    SnapshotStep, SpillCounts, Spilling, Store, StoreCounts, ValueStore, glob_matches,
};
pub use effects::{Effects, Logged};
pub use event::{Event, Events, KeyEvent};
pub use get::{Allowed, cache::CacheSetup};
pub use kind::{KvKind, KvReport, KvRun, Udp};
pub use lsm::LsmValues;
pub use serve::{
    ClientsMemory, Config, Exchange, Fsync, Kv, Log, LogBytes, NotTaken, OutputLimit, Seat, Setup,
    Snapshot, Syncs,
};
pub use tls::{TlsArguments, TlsRun};
pub use upstream::{Address, Login, Named, UpstreamSettings};
