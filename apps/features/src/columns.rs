//! Rows -> Arrow columns. One list of columns per level is the schema, its documentation and the
//! code that fills it.
//!
//! Types are chosen for what reads them: counters are int64 because Spark has no unsigned 64-bit
//! type, addresses are 16 bytes (IPv4 as ::ffff:a.b.c.d) which ClickHouse maps to its IPv6 type.
//! What is undefined is null, never a stand-in number.

mod flows;
mod kit;
mod packets;

use crate::config::Level;
pub(crate) use flows::flows;
pub use kit::Table;
use laneway_flow::{Flow, FlowKey, PpiPacket, Record, TCP_FLAG_COUNT};
pub(crate) use packets::packets;

/// Which columns a table has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Integers only: what both placements compute exactly.
    #[default]
    Core,
    /// `core` plus the derived floats: means, deviations, rates, ratios.
    Full,
}

impl Profile {
    /// The names a user may give.
    pub const NAMES: [&str; 2] = ["core", "full"];

    /// The profile of a name.
    pub fn from_name(name: &str) -> Option<Profile> {
        match name {
            "core" => Some(Profile::Core),
            "full" => Some(Profile::Full),
            _ => None,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Core => "core",
            Profile::Full => "full",
        }
    }
}

/// A packet row: the record, and which of the run's sources it is from.
#[derive(Clone, Copy, Debug)]
pub struct PacketRow {
    /// Index of the source file or interface.
    pub source: u16,
    /// The record.
    pub record: Record,
}

/// A flow row.
#[derive(Clone, Debug)]
pub struct FlowRow {
    /// Index of the source file or interface.
    pub source: u16,
    /// Its key.
    pub key: FlowKey,
    /// Its accumulators.
    pub flow: Flow,
    /// Its first packets, where they are kept.
    pub first: Vec<PpiPacket>,
}

/// The names of the nine flags, in bit order.
const FLAG_NAMES: [&str; TCP_FLAG_COUNT] =
    ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ae"];

/// The name of a level in file metadata.
pub(crate) fn level_name(level: Level) -> &'static str {
    match level {
        Level::Packet => "packet",
        Level::Flow => "flow",
    }
}
