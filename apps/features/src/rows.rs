//! Rows before they are columns: plain copies of records and flows, gathered to a batch.

use crate::{
    columns::{self, FlowRow, PacketRow, Profile, Table},
    config::{Config, Level},
};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use laneway_flow::{EndedFlow, Record};

/// Packet rows per batch.
pub(crate) const PACKET_ROWS: usize = 8192;
/// Flow rows per batch; they are ten times as wide.
pub(crate) const FLOW_ROWS: usize = 2048;

/// The table of a level, whichever it is.
pub enum Tables {
    /// A row per packet.
    Packets(Table<PacketRow>),
    /// A row per flow.
    Flows(Table<FlowRow>),
}

impl Tables {
    /// The table for a configuration; `offset_ns` turns record time into Unix time.
    pub fn new(config: &Config, profile: Profile, offset_ns: i64) -> Tables {
        match config.level {
            Level::Packet => Tables::Packets(columns::packets(offset_ns)),
            Level::Flow => Tables::Flows(columns::flows(profile, offset_ns, config.first_packets)),
        }
    }

    /// What a row is.
    pub fn level(&self) -> Level {
        match self {
            Tables::Packets(_) => Level::Packet,
            Tables::Flows(_) => Level::Flow,
        }
    }

    /// Its schema.
    pub fn schema(&self) -> &SchemaRef {
        match self {
            Tables::Packets(table) => table.schema(),
            Tables::Flows(table) => table.schema(),
        }
    }
}

/// Rows waiting to become a batch.
#[derive(Default)]
pub(crate) struct Rows {
    source: u16,
    packets: Vec<PacketRow>,
    flows: Vec<FlowRow>,
}

impl Rows {
    /// None yet, of this source.
    pub(crate) fn of(source: u16) -> Rows {
        Rows { source, ..Rows::default() }
    }

    /// None yet, with room for a whole batch of this level: filling it allocates nothing.
    pub(crate) fn with_room(level: Level) -> Rows {
        let (packets, flows) = match level {
            Level::Packet => (PACKET_ROWS, 0),
            Level::Flow => (0, FLOW_ROWS),
        };
        Rows { source: 0, packets: Vec::with_capacity(packets), flows: Vec::with_capacity(flows) }
    }

    pub(crate) fn packet(&mut self, record: &Record) {
        self.packets.push(PacketRow { source: self.source, record: *record });
    }

    pub(crate) fn flow(&mut self, ended: &EndedFlow<'_>) {
        self.flows.push(FlowRow {
            source: self.source,
            key: *ended.key,
            flow: *ended.flow,
            first: ended.ppi.to_vec(),
        });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty() && self.flows.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.packets.len() >= PACKET_ROWS || self.flows.len() >= FLOW_ROWS
    }

    /// What has gathered, as a batch; `None` when there is nothing.
    pub(crate) fn take(&mut self, tables: &Tables) -> Option<RecordBatch> {
        let batch = match tables {
            Tables::Packets(table) if !self.packets.is_empty() => table.batch(&self.packets),
            Tables::Flows(table) if !self.flows.is_empty() => table.batch(&self.flows),
            _ => return None,
        };
        self.packets.clear();
        self.flows.clear();
        Some(batch)
    }
}
