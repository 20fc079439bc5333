//! Batches of chunks, made into parts of an output by several threads.
//!
//! ```text
//!   every thread   Work::next ─▶ Work::batch ─▶ Assembly::add ──▶ in order ─▶ gathered to a part ─┐
//!                       ┌──────────────── jobs: slices of a part ◀────────────────────────────────┘
//!                       └─▶ PartEncoder::encode ──▶ the calling thread: Output::append, in order
//! ```
//!
//! A thread that has a choice encodes before it takes another chunk, so that what is gathered leaves as
//! soon as it can. What must always hold: rows reach the output in the order of their chunks; chunks
//! that are taken and not yet in order, and jobs that are not yet written, are bounded
//! ([`Bounds`]): no further chunk is taken beyond it.

use crate::{
    encode::{Part, PartEncoder, Slice},
    output::{Output, OutputError},
};
use arrow_array::RecordBatch;
use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, mpsc},
    thread,
};

/// What one thread does with chunks.
pub(crate) trait Work: Send {
    /// A chunk.
    type Item;
    /// The next chunk and its number, counted from 0 without gaps over all threads; `None` when there
    /// is none any more.
    fn next(&mut self) -> Option<(u64, Self::Item)>;
    /// Its rows.
    fn batch(&mut self, number: u64, item: Self::Item) -> Option<RecordBatch>;
}

/// How far the threads may run ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Chunks that are taken and not yet in order.
    pub(crate) chunks: u64,
    /// Jobs that are not yet written.
    pub(crate) jobs: u64,
}

/// Rows of one output on their way into parts.
pub(crate) struct Assembly {
    encoder: PartEncoder,
    slices: usize,
    bounds: Bounds,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Chunks taken, and chunks in order, of the source that is being read.
    taken: u64,
    next: u64,
    early: BTreeMap<u64, Option<RecordBatch>>,
    /// Rows that are no part yet.
    gathering: Vec<RecordBatch>,
    rows: usize,
    jobs: VecDeque<Job>,
    cut: u64,
    written: u64,
    has_failed: bool,
}

/// A slice of a part, to be encoded.
struct Job {
    number: u64,
    batches: Arc<Vec<RecordBatch>>,
    slice: Slice,
}

/// An encoded job: its number, its rows where it is the first slice, and its outcome.
type Encoded = (u64, u64, Result<Part, String>);

enum Task {
    Encode(Job),
    Take,
    End,
}

impl Assembly {
    /// For the parts of `output`, by as many threads. `chunks_max` bounds the chunks in flight.
    pub(crate) fn new(output: &Output, workers: usize, chunks_max: u64) -> Assembly {
        let encoder = output.part_encoder();
        let slices = encoder.slices(workers);
        // Two parts: one is encoded while the next one is gathered.
        let jobs = match encoder.part_rows() {
            Some(_) => 2 * slices as u64,
            None => chunks_max,
        };
        let (state, changed) = Default::default();
        Assembly { encoder, slices, bounds: Bounds { chunks: chunks_max, jobs }, state, changed }
    }

    /// Chunks are counted from 0 again: those of the next source.
    pub(crate) fn begin(&self) {
        let mut state = self.locked();
        (state.taken, state.next) = (0, 0);
    }

    /// Runs `works`, each on a thread of its own, until none has more to do, while the calling thread
    /// writes what they encode. If the output fails, `stop` is called, and works are asked for chunks
    /// until they have none, which is to happen soon.
    pub(crate) fn run<W: Work>(
        &self,
        works: Vec<W>,
        output: &mut Output,
        stop: impl FnOnce(),
    ) -> (Vec<W>, Result<(), OutputError>) {
        let (encoded, received) = mpsc::sync_channel(works.len());
        thread::scope(|scope| {
            let spawn = |mut work: W| {
                let encoded = encoded.clone();
                scope.spawn(move || {
                    self.work(&mut work, &encoded);
                    work
                })
            };
            let threads: Vec<_> = works.into_iter().map(spawn).collect();
            drop(encoded);
            let written = self.write_in_order(&received, output);
            if written.is_err() {
                stop();
                self.locked().has_failed = true;
                self.changed.notify_all();
            }
            // Let threads that wait for a place in the channel go on to see it.
            received.iter().for_each(drop);
            let joined = threads.into_iter().map(|t| t.join().expect("a worker does not panic"));
            (joined.collect(), written)
        })
    }

    /// The rows that are left become a last part, for [`run`](Self::run) to encode.
    pub(crate) fn finish(&self) {
        self.cut(&mut self.locked());
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no worker panicked")
    }

    fn work<W: Work>(&self, work: &mut W, encoded: &mpsc::SyncSender<Encoded>) {
        loop {
            match self.task() {
                Task::Encode(job) => self.encode(job, encoded),
                Task::Take => match work.next() {
                    Some((number, item)) => self.add(number, work.batch(number, item)),
                    None => break,
                },
                Task::End => {
                    // The maker of chunks must not wait for a taker.
                    while work.next().is_some() {}
                    break;
                }
            }
        }
        loop {
            let job = self.locked().jobs.pop_front();
            let Some(job) = job else { break };
            self.encode(job, encoded);
        }
    }

    fn task(&self) -> Task {
        let has_to_wait = |state: &mut State| {
            let is_far_ahead = state.taken - state.next >= self.bounds.chunks
                || state.cut - state.written >= self.bounds.jobs;
            state.jobs.is_empty() && is_far_ahead && !state.has_failed
        };
        let state = self.locked();
        let mut state = self.changed.wait_while(state, has_to_wait).expect("no worker panicked");
        if state.has_failed {
            return Task::End;
        }
        match state.jobs.pop_front() {
            Some(job) => Task::Encode(job),
            None => {
                state.taken += 1;
                Task::Take
            }
        }
    }

    fn encode(&self, job: Job, encoded: &mpsc::SyncSender<Encoded>) {
        let Job { number, batches, slice } = job;
        let rows = batches.iter().map(|batch| batch.num_rows() as u64).sum();
        let rows = if slice.index == 0 { rows } else { 0 };
        // The receiver outlives the threads.
        let _ = encoded.send((number, rows, self.encoder.encode(&batches, slice)));
    }

    /// Puts the rows of a chunk in order, and cuts parts off them.
    fn add(&self, number: u64, batch: Option<RecordBatch>) {
        let state = &mut *self.locked();
        state.early.insert(number, batch);
        while let Some(batch) = state.early.remove(&state.next) {
            state.next += 1;
            if let Some(batch) = batch {
                self.gather(state, batch);
            }
        }
        self.changed.notify_all();
    }

    fn gather(&self, state: &mut State, mut batch: RecordBatch) {
        let part_rows = self.encoder.part_rows();
        while batch.num_rows() > 0 {
            let room = part_rows.map_or(usize::MAX, |part_rows| part_rows - state.rows);
            let rows = batch.num_rows().min(room);
            state.gathering.push(batch.slice(0, rows));
            state.rows += rows;
            batch = batch.slice(rows, batch.num_rows() - rows);
            if part_rows.is_none_or(|part_rows| state.rows == part_rows) {
                self.cut(state);
            }
        }
    }

    fn cut(&self, state: &mut State) {
        let batches = Arc::new(mem::take(&mut state.gathering));
        if mem::take(&mut state.rows) == 0 {
            return;
        }
        for index in 0..self.slices {
            let slice = Slice { index, of: self.slices };
            state.jobs.push_back(Job { number: state.cut, batches: batches.clone(), slice });
            state.cut += 1;
        }
    }

    /// Writes encoded jobs in their order, holding back what comes early.
    fn write_in_order(
        &self,
        received: &mpsc::Receiver<Encoded>,
        output: &mut Output,
    ) -> Result<(), OutputError> {
        let mut early = BTreeMap::new();
        let mut next = self.locked().written;
        for (number, rows, part) in received {
            early.insert(number, (rows, part));
            while let Some((rows, part)) = early.remove(&next) {
                let part = part.map_err(|why| output.failure(why))?;
                output.append(part, rows)?;
                next += 1;
                self.locked().written = next;
                self.changed.notify_all();
            }
        }
        Ok(())
    }
}
