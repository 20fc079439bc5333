//! Rows on their way to an output: a sink that gathers records or flows and writes them in batches.

use crate::{
    columns::{self, FlowRow, PacketRow, Profile, Table},
    config::{Config, Level},
    output::{Output, OutputError},
    sink::Sink,
};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use laneway_flow::{EndedFlow, Record};

/// Packet rows per batch.
pub(crate) const PACKET_ROWS: usize = 8192;
/// Flow rows per batch; they are ten times as wide.
const FLOW_ROWS: usize = 2048;

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

/// How long rows may wait for a batch to fill on a live lane, ns.
const LINGER_NS: u64 = 200_000_000;

/// A sink that writes to an output.
pub struct RowSink {
    tables: Tables,
    output: Output,
    rows: Rows,
    written_ns: u64,
    failed: Option<OutputError>,
}

impl RowSink {
    /// Rows of `tables` to `output`.
    pub fn new(tables: Tables, output: Output) -> RowSink {
        RowSink { tables, output, rows: Rows::default(), written_ns: 0, failed: None }
    }

    fn write(&mut self) {
        if let (Some(batch), None) = (self.rows.take(&self.tables), &self.failed) {
            self.failed = self.output.write(&batch).err();
        }
    }

    /// Writes what is left; the output is then ready to be finished.
    ///
    /// # Errors
    /// The first error of writing.
    pub fn into_output(mut self) -> Result<Output, OutputError> {
        self.write();
        match self.failed {
            None => Ok(self.output),
            Some(error) => Err(error),
        }
    }
}

impl Sink for RowSink {
    fn packet(&mut self, record: &Record) {
        self.rows.packet(record);
        if self.rows.is_full() {
            self.write();
        }
    }

    fn flow(&mut self, ended: &EndedFlow<'_>) {
        self.rows.flow(ended);
        if self.rows.is_full() {
            self.write();
        }
    }

    fn tick(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.written_ns) >= LINGER_NS {
            self.written_ns = now_ns;
            self.write();
        }
    }

    fn is_done(&self) -> bool {
        self.failed.is_some()
    }
}
