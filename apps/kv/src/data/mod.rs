//! The data: databases of keys, their values, and the commands on them. No client, no I/O, no clock of its own.
//!
//! ```text
//!  commands ─▶ keyspace (one database at one time: due keys, effects) ─▶ store ─▶ database ─▶ entries ─▶ directory
//!                                                                          │           └─▶ deadlines, bytes, snapshot
//!                                                                          └─▶ spill ─▶ a value store
//! ```
//!
//! Time and the seed of chance are given. The log of a command does the same whenever it is done again at time 0, at
//! which nothing is due: deadlines are times of the calendar there, and what became due is deleted by a command of its
//! own.

mod chance;
mod commands;
mod database;
mod directory;
mod dropped;
mod encoding;
mod entries;
mod entry;
mod extended;
mod glob;
mod hash;
mod hexadecimal;
mod keyspace;
mod list;
mod memory;
mod numbers;
mod packed;
mod set;
mod snapshot;
mod sorted;
mod spill;
mod spilling;
pub(crate) mod store;
mod tree;
mod value_kind;

#[cfg(test)]
mod tests;

pub use commands::COMMANDS;
pub use glob::matches as glob_matches;
pub(crate) use keyspace::{Refusal, database_number};
pub use snapshot::{Damaged, SnapshotStep};
pub use spill::{SpillCounts, Spilling, ValueStore};
pub use store::{DATABASES, DatabaseCounts, Eviction, Settings, Store, StoreCounts};
