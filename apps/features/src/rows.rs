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
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

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

/// An output that the sinks of several workers write to, whole batches at a time. Clones share it.
#[derive(Clone)]
pub struct SharedOutput(Arc<Shared>);

struct Shared {
    /// Locked once per batch, never per row.
    writing: Mutex<Writing>,
    /// Tells every sink, so that a worker without rows ends, too.
    has_failed: AtomicBool,
}

struct Writing {
    output: Output,
    failed: Option<OutputError>,
}

impl SharedOutput {
    /// Makes `output` one that can be shared.
    pub fn new(output: Output) -> SharedOutput {
        let writing = Mutex::new(Writing { output, failed: None });
        SharedOutput(Arc::new(Shared { writing, has_failed: AtomicBool::new(false) }))
    }

    fn write(&self, batch: &RecordBatch) {
        // A batch that a panic cut short ends with the run: the panic goes on in the caller.
        let mut writing = self.0.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if writing.failed.is_none()
            && let Err(error) = writing.output.write(batch)
        {
            writing.failed = Some(error);
            // Relaxed, here and below: the flag carries no data, only itself.
            self.0.has_failed.store(true, Ordering::Relaxed);
        }
    }

    fn has_failed(&self) -> bool {
        self.0.has_failed.load(Ordering::Relaxed)
    }

    /// The output back, ready to be finished, when the sinks on it are.
    ///
    /// # Errors
    /// The first error of writing.
    ///
    /// # Panics
    /// If a sink on this output is still there: its rows would be missing.
    pub fn into_output(self) -> Result<Output, OutputError> {
        let shared = Arc::into_inner(self.0).expect("every sink was closed before the output");
        let writing = shared.writing.into_inner().unwrap_or_else(PoisonError::into_inner);
        match writing.failed {
            None => Ok(writing.output),
            Some(error) => Err(error),
        }
    }
}

/// A sink that writes to an output.
pub struct RowSink {
    tables: Tables,
    output: SharedOutput,
    rows: Rows,
    written_ns: u64,
}

impl RowSink {
    /// Rows of `tables` to `output`, which is this sink's own.
    pub fn new(tables: Tables, output: Output) -> RowSink {
        RowSink::on(tables, &SharedOutput::new(output))
    }

    /// Rows of `tables` to an output that other sinks write to as well.
    pub fn on(tables: Tables, output: &SharedOutput) -> RowSink {
        RowSink { tables, output: output.clone(), rows: Rows::default(), written_ns: 0 }
    }

    fn write(&mut self) {
        if let Some(batch) = self.rows.take(&self.tables) {
            self.output.write(&batch);
        }
    }

    /// Writes what is left. What failed, the shared output tells.
    pub fn close(mut self) {
        self.write();
    }

    /// Writes what is left; the output is then ready to be finished. Of a sink that has its output
    /// for itself.
    ///
    /// # Errors
    /// The first error of writing.
    ///
    /// # Panics
    /// If other sinks are on the same output.
    pub fn into_output(mut self) -> Result<Output, OutputError> {
        self.write();
        self.output.into_output()
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
        self.output.has_failed()
    }
}
