//! The data: databases of keys, their values, and the commands on them. No client, no I/O, no clock of its own.

/// All databases of one shard.
#[derive(Debug, Default)]
pub struct Store {}
