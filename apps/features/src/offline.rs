//! Whole captures on all cores: the same parser, admission and flow table as on any lane, without a
//! lane between the file and them.
//!
//! ```text
//!   source (one at a time, chunk by chunk)
//!      │ chunk i                        every worker does all of this for the chunk it took
//!      ├─▶ parse, admit ──▶ records ─▶ packet batch i ──────────────────▶ in order ─▶ parts
//!      │                       │                                                       │
//!      │                       └─▶ shard 0 ─▶ shard 1 ─▶ ...  (in chunk order,         │ encoded by
//!      └─ next chunk                     └─▶ ended flows ─▶ batch ─▶ in order          ▼ every worker
//!                                             each shard has its table)             writer
//! ```
//!
//! Packet rows come out in the order of the capture. A flow belongs to one shard by the hash of its
//! key and sees its packets in order; every shard ends flows by the clock of the whole capture, which
//! passes from chunk to chunk in their order and gives each record its moment. So a flow's row does
//! not depend on how many workers there are, only the order of flow rows does. Two
//! things do depend on it: which flow is evicted when the table is full (each shard has its share),
//! and how far ahead of the writer chunks are read (bounded by [`BATCHES_WAITING`], and by two row groups
//! of a Parquet file).
//!
//! Each source has its own frame numbers, and its own flows unless `Config::join` says that the sources
//! are parts of one capture.

use crate::{
    admit::Admission,
    assembly::{Assembly, Work},
    columns::Profile,
    config::{Config, Level},
    output::{Output, OutputError},
    parse::{Stamp, parse},
    rows::{Rows, Tables},
    user::table,
};
use arrow_array::RecordBatch;
use laneway_core::{Counters, DropReason};
use laneway_flow::{Disorder, EndedFlow, FlowKey, FlowTable, Has, Moment, PacketClock, Record};
use std::{
    collections::BTreeMap,
    mem,
    sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
};

/// Frames per chunk that a source is asked for.
pub const CHUNK_FRAMES: usize = 4096;
/// Chunks that may be taken and not yet be in order, per worker: the bound on memory when one worker
/// holds up the others. Where a chunk's rows are a part of the file, also the bound when the disk is slow.
pub const BATCHES_WAITING: usize = 4;

/// A frame of a capture, as Ethernet.
#[derive(Clone, Copy, Debug)]
pub struct OfflineFrame<'a> {
    /// Unix time, ns; `None` where the capture has no time for the frame, or one before 1970 or after
    /// 2554.
    pub ts_ns: Option<u64>,
    /// Bytes on the wire, as Ethernet.
    pub wire_len: u32,
    /// How many bytes longer the frame is as its own link has it: less than 0 where an Ethernet header
    /// was put in place of a shorter one. Rows state the link's lengths.
    pub link_extra: i32,
    /// Captured bytes from the Ethernet header on; `None` if the link layer cannot be read as
    /// Ethernet.
    pub bytes: Option<&'a [u8]>,
}

/// Frames that can be handed to a worker.
pub trait Chunk: Send {
    /// How many.
    fn len(&self) -> usize;
    /// True without frames.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Shows each, in order.
    fn each(&self, show: &mut dyn FnMut(OfflineFrame<'_>));
}

/// A capture, read chunk by chunk.
pub trait Source: Send {
    /// The chunks' type.
    type Chunk: Chunk;
    /// The next frames, `None` at the end. An error comes once, after all frames before it.
    ///
    /// # Errors
    /// One sentence about what cannot be read further.
    fn next_chunk(&mut self) -> Result<Option<Self::Chunk>, String>;
    /// Bytes read so far and in total, where known.
    fn progress(&self) -> (u64, Option<u64>);
}

/// What a run did.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Frames and bytes read, and those left out by reason.
    pub counters: Counters,
    /// Frames by parse status, in the order of its codes.
    pub by_status: Vec<u64>,
    /// Frames that belong to no flow.
    pub unflowed: u64,
    /// Flows that were ended because the table was full.
    pub evicted: u64,
    /// How the stamps were ordered; of flow rows only.
    pub disorder: Disorder,
    /// Rows written.
    pub rows: u64,
    /// Sources that could not be read to the end, with the reason.
    pub damaged: Vec<String>,
    /// True if the run was asked to stop before the end.
    pub interrupted: bool,
}

/// Shared between the run and the thread that shows its progress or stops it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Frames read.
    pub frames: AtomicU64,
    /// Bytes read of the current source.
    pub bytes: AtomicU64,
    /// Bytes of the current source; 0 if unknown.
    pub bytes_total: AtomicU64,
    /// Set to end the run early; what was read is finished properly.
    pub stop: AtomicBool,
}

struct Feed<S> {
    source: S,
    next: u64,
    frames: u64,
    error: Option<String>,
}

/// A value that passes from chunk to chunk, in the order of their numbers.
struct InTurn<T> {
    state: Mutex<(u64, T)>,
    passed: Condvar,
}

impl<T> InTurn<T> {
    fn new(value: T) -> InTurn<T> {
        InTurn { state: Mutex::new((0, value)), passed: Condvar::new() }
    }

    /// Waits until it is chunk `number`'s turn, lends the value, and passes it on.
    fn with<R>(&self, number: u64, work: impl FnOnce(&mut T) -> R) -> R {
        let state = self.state.lock().expect("no worker panicked");
        let not_yet = |state: &mut (u64, T)| state.0 != number;
        let mut state = self.passed.wait_while(state, not_yet).expect("no worker panicked");
        let result = work(&mut state.1);
        state.0 += 1;
        drop(state);
        self.passed.notify_all();
        result
    }

    fn into_inner(self) -> T {
        self.state.into_inner().expect("no worker panicked").1
    }
}

/// The records of a chunk that belong to one shard, each with its moment.
#[derive(Default)]
struct Part {
    records: Vec<Record>,
    moments: Vec<Moment>,
}

/// The flows of a capture: a table for each part of the keys, and the one clock that ends them.
struct CaptureFlows {
    shards: Vec<FlowTable>,
    clock: PacketClock,
}

impl CaptureFlows {
    fn new(config: &Config, workers: usize) -> CaptureFlows {
        let shard = shard_config(config, workers);
        let shards = match config.level {
            Level::Packet => 0,
            Level::Flow => workers,
        };
        let table = |_| table(&shard).expect("the configuration was checked");
        CaptureFlows { shards: (0..shards).map(table).collect(), clock: PacketClock::default() }
    }
}

/// Extracts `sources`, one after the other, into `output`, with `workers` threads.
///
/// # Errors
/// When the output fails. A source that cannot be read further is no error: its rows so far are
/// kept and it is named in the summary.
pub fn run<S: Source>(
    config: &Config,
    profile: Profile,
    sources: impl IntoIterator<Item = S>,
    mut output: Output,
    workers: usize,
    progress: &Progress,
    losses: impl FnOnce(&Summary) -> BTreeMap<String, u64>,
) -> Result<Summary, OutputError> {
    let tables = Tables::new(config, profile, 0);
    let workers = workers.max(1);
    // Of the sources so far, where flows go on from one to the next.
    let mut joined: Option<(u16, CaptureFlows)> = None;
    let mut summary =
        Summary { by_status: vec![0; laneway_flow::Status::COUNT], ..Summary::default() };
    let assembly = Assembly::new(&output, workers, (workers * BATCHES_WAITING) as u64);
    let run = Run { config, tables: &tables, assembly: &assembly, workers, progress };
    for (index, source) in sources.into_iter().enumerate() {
        let feed = Mutex::new(Feed { source, next: 0, frames: 0, error: None });
        let index = index as u16;
        let flows = joined.take().map(|(_, flows)| flows);
        let flows = flows.unwrap_or_else(|| CaptureFlows::new(config, workers));
        let flows = run.source(index, &feed, flows, &mut output, &mut summary)?;
        if config.join {
            joined = Some((index, flows));
        } else {
            run.flows_left(index, flows, &mut output, &mut summary)?;
        }
        let feed = feed.into_inner().expect("no worker panicked");
        summary.damaged.extend(feed.error);
        if progress.stop.load(Ordering::Relaxed) {
            summary.interrupted = true;
            break;
        }
    }
    if let Some((index, flows)) = joined {
        run.flows_left(index, flows, &mut output, &mut summary)?;
    }
    assembly.finish();
    let nothing_more = (0..workers).map(|_| NothingMore).collect();
    assembly.run(nothing_more, &mut output, || {}).1?;
    if config.level == Level::Flow {
        let Disorder { late, strays, steps, untimed } = summary.disorder;
        for (name, n) in
            [("late", late), ("strays", strays), ("steps", steps), ("untimed", untimed)]
        {
            output.fact(&format!("disorder.{name}"), n);
        }
    }
    summary.rows = output.rows();
    let interrupted = summary.interrupted.then(|| "interrupted before the end".to_owned());
    let missing: Vec<String> = summary.damaged.iter().cloned().chain(interrupted).collect();
    if !missing.is_empty() {
        output.mark_incomplete(missing.join("; "));
    }
    output.finish(&losses(&summary))?;
    Ok(summary)
}

/// A run, and what its threads share.
struct Run<'a> {
    config: &'a Config,
    tables: &'a Tables,
    assembly: &'a Assembly,
    workers: usize,
    progress: &'a Progress,
}

impl Run<'_> {
    fn source<S: Source>(
        &self,
        index: u16,
        feed: &Mutex<Feed<S>>,
        flows: CaptureFlows,
        output: &mut Output,
        summary: &mut Summary,
    ) -> Result<CaptureFlows, OutputError> {
        let &Run { config, tables, assembly, workers, progress } = self;
        let shards: Vec<InTurn<FlowTable>> = flows.shards.into_iter().map(InTurn::new).collect();
        let clock = InTurn::new(flows.clock);
        // A rate limit is a schedule over all frames, so its state passes from chunk to chunk too.
        let admission = InTurn::new(Admission::new(config));
        let extracts = (0..workers).map(|_| Extract {
            config,
            tables,
            feed,
            shards: &shards,
            clock: &clock,
            admission: &admission,
            progress,
            counters: Counters::default(),
            by_status: vec![0; laneway_flow::Status::COUNT],
            records: Vec::with_capacity(CHUNK_FRAMES),
            rows: Rows::of(index),
        });
        assembly.begin();
        let stop = || progress.stop.store(true, Ordering::Relaxed);
        let (done, written) = assembly.run(extracts.collect(), output, stop);
        for done in done {
            summary.counters.merge(&done.counters);
            for (sum, n) in summary.by_status.iter_mut().zip(done.by_status) {
                *sum += n;
            }
        }
        written?;
        let shards = shards.into_iter().map(InTurn::into_inner).collect();
        Ok(CaptureFlows { shards, clock: clock.into_inner() })
    }

    /// The flows that are still there at the end of a capture, in the order of the shards, as seen in
    /// source `index`. One thread takes them out of their tables, the workers do the rest.
    fn flows_left(
        &self,
        index: u16,
        flows: CaptureFlows,
        output: &mut Output,
        summary: &mut Summary,
    ) -> Result<(), OutputError> {
        summary.disorder.merge(flows.clock.disorder());
        if flows.shards.is_empty() {
            return Ok(());
        }
        let (full, received) = mpsc::sync_channel(self.workers);
        let received = Mutex::new(received);
        thread::scope(|scope| {
            let ending = scope.spawn(move || end_flows(index, flows, &full));
            let columns = (0..self.workers)
                .map(|_| Columns { tables: self.tables, received: &received })
                .collect();
            self.assembly.begin();
            let (_, written) = self.assembly.run(columns, output, || {});
            let (unflowed, evicted) = ending.join().expect("it does not panic");
            summary.unflowed += unflowed;
            summary.evicted += evicted;
            written
        })
    }
}

/// Ends every flow, sends their rows, and counts the frames of no flow and the flows that
/// a full table had ended.
fn end_flows(index: u16, flows: CaptureFlows, full: &mpsc::SyncSender<(u64, Rows)>) -> (u64, u64) {
    let (mut unflowed, mut evicted, mut number) = (0, 0, 0);
    let mut rows = Rows::of(index);
    let mut send = |rows: &mut Rows| {
        // The workers take all there is, whatever becomes of the output.
        let _ = full.send((number, mem::replace(rows, Rows::of(index))));
        number += 1;
    };
    for mut table in flows.shards {
        let mut sink = |ended: EndedFlow<'_>| {
            rows.flow(&ended);
            if rows.is_full() {
                send(&mut rows);
            }
        };
        table.advance_floor(flows.clock.floor_ns(), &mut sink);
        table.flush(&mut sink);
        unflowed += table.counters().unflowed_total();
        evicted += table.counters().ended(laneway_flow::EndReason::Resources);
    }
    send(&mut rows);
    (unflowed, evicted)
}

/// Makes columns of flows that have ended.
struct Columns<'a> {
    tables: &'a Tables,
    received: &'a Mutex<mpsc::Receiver<(u64, Rows)>>,
}

impl Work for Columns<'_> {
    type Item = Rows;

    fn next(&mut self) -> Option<(u64, Rows)> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
    }

    fn batch(&mut self, _number: u64, mut rows: Rows) -> Option<RecordBatch> {
        rows.take(self.tables)
    }
}

/// For a thread that only encodes.
struct NothingMore;

impl Work for NothingMore {
    type Item = ();

    fn next(&mut self) -> Option<(u64, ())> {
        None
    }

    fn batch(&mut self, _number: u64, (): ()) -> Option<RecordBatch> {
        None
    }
}

/// The capacity is shared out, so that the bound holds for all shards together.
fn shard_config(config: &Config, workers: usize) -> Config {
    Config { flows_max: config.flows_max_or_default().div_ceil(workers), ..config.clone() }
}

/// Chunks of frames to rows.
struct Extract<'a, S> {
    config: &'a Config,
    tables: &'a Tables,
    feed: &'a Mutex<Feed<S>>,
    shards: &'a [InTurn<FlowTable>],
    clock: &'a InTurn<PacketClock>,
    admission: &'a InTurn<Admission>,
    progress: &'a Progress,
    counters: Counters,
    by_status: Vec<u64>,
    records: Vec<Record>,
    rows: Rows,
}

impl<S: Source> Work for Extract<'_, S> {
    /// A chunk and the number of its first frame.
    type Item = (u64, S::Chunk);

    fn next(&mut self) -> Option<(u64, (u64, S::Chunk))> {
        let mut feed = self.feed.lock().expect("no worker panicked");
        if self.progress.stop.load(Ordering::Relaxed) || feed.error.is_some() {
            return None;
        }
        match feed.source.next_chunk() {
            Ok(None) => None,
            Ok(Some(chunk)) => {
                let (bytes, total) = feed.source.progress();
                self.progress.bytes.store(bytes, Ordering::Relaxed);
                self.progress.bytes_total.store(total.unwrap_or(0), Ordering::Relaxed);
                let frames = chunk.len() as u64;
                self.progress.frames.fetch_add(frames, Ordering::Relaxed);
                let taken = (feed.next, (feed.frames, chunk));
                feed.next += 1;
                feed.frames += frames;
                Some(taken)
            }
            Err(why) => {
                feed.error = Some(why);
                None
            }
        }
    }

    fn batch(&mut self, number: u64, (first_frame, chunk): Self::Item) -> Option<RecordBatch> {
        self.extract(&chunk, number, first_frame);
        drop(chunk);
        match self.config.level {
            Level::Packet => self.records.iter().for_each(|record| self.rows.packet(record)),
            Level::Flow => self.add_to_flows(number),
        }
        self.rows.take(self.tables)
    }
}

impl<S: Source> Extract<'_, S> {
    fn extract(&mut self, chunk: &S::Chunk, number: u64, first_frame: u64) {
        let (records, counters) = (&mut self.records, &mut self.counters);
        records.clear();
        let mut seq_no = first_frame;
        let sample = u64::from(self.config.sample.max(1));
        chunk.each(&mut |frame| {
            let this = seq_no;
            seq_no += 1;
            let Some(bytes) = frame.bytes else {
                counters.drop_one(DropReason::LinkTypeUnknown);
                return;
            };
            if sample > 1 && !this.is_multiple_of(sample) {
                counters.drop_one(DropReason::Sampled);
                return;
            }
            let stamp = Stamp {
                ts_ns: frame.ts_ns.unwrap_or(0),
                seq_no: this,
                wire_len: frame.wire_len,
                ..Stamp::default()
            };
            let mut record = parse(bytes, stamp);
            if frame.ts_ns.is_none() {
                record.has.insert(Has::NO_TIME);
            }
            record.frame_len = record.frame_len.saturating_add_signed(frame.link_extra);
            record.cap_len = record.cap_len.saturating_add_signed(frame.link_extra);
            records.push(record);
        });
        if self.config.filter.is_some() || self.config.rate_max > 0 {
            self.admission.with(number, |admission| {
                records.retain(|record| match admission.admits(record) {
                    Ok(()) => true,
                    Err(reason) => {
                        counters.drop_one(reason);
                        false
                    }
                });
            });
        }
        for record in records.iter() {
            self.by_status[record.status as usize] += 1;
            counters.rx_bytes += u64::from(record.cap_len);
        }
        counters.rx_frames += records.len() as u64;
    }

    fn add_to_flows(&mut self, number: u64) {
        let (records, rows) = (&self.records, &mut self.rows);
        let sink = &mut |ended: EndedFlow<'_>| rows.flow(&ended);
        let moments: Vec<Moment> =
            self.clock.with(number, |clock| records.iter().map(|r| clock.tick(r)).collect());
        if let [shard] = self.shards {
            return shard.with(number, |table| table.add_batch_at(records, &moments, sink));
        }
        let mut parts: Vec<Part> = Vec::new();
        parts.resize_with(self.shards.len(), Part::default);
        for (record, moment) in records.iter().zip(&moments) {
            let part = &mut parts[shard_of(record, self.shards.len())];
            part.records.push(*record);
            part.moments.push(*moment);
        }
        for (shard, part) in self.shards.iter().zip(&parts) {
            shard.with(number, |table| table.add_batch_at(&part.records, &part.moments, sink));
        }
    }
}

fn shard_of(record: &Record, shards: usize) -> usize {
    // The high bits: the table's index uses the low ones of another seed. This one is known, so that
    // rows come in the same order every time; a capture made to fill one shard runs as on one core.
    ((FlowKey::of(record).0.hash(0) >> 32) % shards as u64) as usize
}
