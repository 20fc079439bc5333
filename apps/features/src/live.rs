//! The rows of a live run: one output, a thread that writes it, and a sink for each worker, up to a count.
//!
//! ```text
//!   begin ─▶ output, its writer ◀══ sink of worker 0, 1, ...  ─▶ finish: the output has its end and its name
//! ```
//!
//! The output is made before a lane is opened: a program is attached to an interface only when its rows have a place
//! to go. The rows of all workers go through a queue to one thread that writes them: no worker waits for a disk. On
//! a capture, which can wait, a worker does rather than lose rows.
//!
//! What must always hold: [`RowSinks::begin`] comes before the first sink is opened, [`RowSinks::finish`] after the
//! last one is closed. A run that never got a lane leaves no file.

use crate::{Config, Ledger, Queue, RowSink, RowWriter, Sink, Sinks, WhenFull, plan::OutputPlan};
use laneway_core::ClockDomain;
use laneway_flow::{EndedFlow, Record};
use laneway_kinds::{Ended, Failure, Finished, On, Ports, Session};
use laneway_linux::{starting_on, unix_offset_ns, usable_cpus};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where the rows of all workers go.
pub struct RowSinks {
    output: OutputPlan,
    count: Count,
    /// Where the writer's thread is kept; anywhere that no worker is, if not given.
    writer_cpu: Option<usize>,
    /// Whether a loss is a goal missed.
    is_strict: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// From [`RowSinks::begin`] to [`RowSinks::finish`].
    writer: Option<RowWriter>,
    partial: Option<PathBuf>,
    /// Of an output that is finished.
    rows: u64,
}

impl RowSinks {
    pub(crate) fn new(
        output: OutputPlan,
        rows_max: Option<u64>,
        writer_cpu: Option<usize>,
        is_strict: bool,
    ) -> RowSinks {
        let (count, state) = (Count::new(rows_max), Mutex::default());
        RowSinks { output, count, writer_cpu, is_strict, state }
    }

    /// Opens the output and starts the thread that writes it.
    ///
    /// # Errors
    /// When the output cannot be made, or the thread not be where it is asked for.
    pub fn begin(&self, config: &Config, on: On<'_>, session: &Session<'_>) -> Result<(), Failure> {
        let (offset_ns, when_full) = match on.lane.clock {
            ClockDomain::Monotonic => (unix_offset_ns(), WhenFull::Lose),
            ClockDomain::Unix | ClockDomain::Virtual => (0, WhenFull::Wait),
        };
        if self.output.is_none() {
            return Ok(());
        }
        let (tables, output) = self.output.open(config, offset_ns)?;
        let partial = output.partial_path().map(Path::to_owned);
        let queue = Queue::new(config, on.workers, when_full);
        let cpus = writer_cpus(self.writer_cpu, session.worker_cpus)?;
        let writer = starting_on(&cpus, || RowWriter::start(tables, output, queue))??;
        *self.state() = State { writer: Some(writer), partial, rows: 0 };
        Ok(())
    }

    /// The name of the output until it is finished, if it is a file.
    pub fn partial_path(&self) -> Option<PathBuf> {
        self.state().partial.clone()
    }

    /// Every sink is closed: completes the output, which says what was lost and why there is no more. Without
    /// anything that went, no lane was opened, and no file is left.
    ///
    /// # Errors
    /// When it could not be written.
    pub fn finish(
        &self,
        on: On<'_>,
        finished: Option<Finished<'_, Ledger>>,
    ) -> Result<(), Failure> {
        let writer = self.state().writer.take();
        let (Some(writer), Some(Finished { lane, report, failure })) = (writer, finished) else {
            return Ok(());
        };
        let mut output = writer.into_output()?;
        if let Some(error) = failure {
            output.mark_incomplete(error.to_string());
        } else if on.lane.ports == Ports::Files && lane.ended == Ended::Stopped {
            // An interface has no end, a capture has.
            output.mark_incomplete("interrupted before the end");
        }
        let rows = output.finish(&report.losses())?;
        self.state().rows = rows;
        Ok(())
    }

    /// Rows of the output that is finished.
    pub fn rows(&self) -> u64 {
        self.state().rows
    }

    /// Rows that were made although enough were there.
    pub fn rows_beyond_count(&self) -> u64 {
        self.count.beyond()
    }

    /// True when there are as many rows as were wanted.
    pub(crate) fn are_enough(&self) -> bool {
        self.count.is_reached()
    }

    pub(crate) fn is_strict(&self) -> bool {
        self.is_strict
    }

    pub(crate) fn output(&self) -> &OutputPlan {
        &self.output
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sinks for RowSinks {
    type Sink = LimitedRows;

    fn open(&self, _worker: usize) -> LimitedRows {
        let state = self.state();
        assert!(state.writer.is_some() || self.output.is_none(), "a run begins before its workers");
        LimitedRows { rows: state.writer.as_ref().map(RowWriter::sink), count: self.count.clone() }
    }
}

/// Where the writer may run: the CPU asked for, or every CPU that no worker is kept on, if one is left.
fn writer_cpus(asked: Option<usize>, workers: &[usize]) -> Result<Vec<usize>, Failure> {
    if let Some(cpu) = asked {
        return Ok(vec![cpu]);
    }
    let usable = usable_cpus()?;
    let left: Vec<usize> = usable.iter().copied().filter(|cpu| !workers.contains(cpu)).collect();
    Ok(if left.is_empty() { usable } else { left })
}

/// How many rows are wanted, over all workers. Without a limit nothing is shared per row.
#[derive(Clone)]
struct Count(Option<Arc<Wanted>>);

struct Wanted {
    rows: u64,
    offered: AtomicU64,
}

impl Count {
    fn new(rows: Option<u64>) -> Count {
        Count(rows.map(|rows| Arc::new(Wanted { rows, offered: AtomicU64::new(0) })))
    }

    /// True when one more row is wanted; what comes behind the last one is counted.
    #[inline]
    fn admits(&self) -> bool {
        // Relaxed, here and below: only the number counts.
        let offer = |wanted: &Arc<Wanted>| wanted.offered.fetch_add(1, Ordering::Relaxed);
        self.0.as_ref().is_none_or(|wanted| offer(wanted) < wanted.rows)
    }

    fn is_reached(&self) -> bool {
        self.0.as_ref().is_some_and(|w| w.offered.load(Ordering::Relaxed) >= w.rows)
    }

    /// Rows that were made although enough were there.
    fn beyond(&self) -> u64 {
        let beyond = |w: &Arc<Wanted>| w.offered.load(Ordering::Relaxed).saturating_sub(w.rows);
        self.0.as_ref().map_or(0, beyond)
    }
}

/// The rows of one worker, up to the count of all.
pub struct LimitedRows {
    /// None: rows go nowhere.
    rows: Option<RowSink>,
    count: Count,
}

impl LimitedRows {
    /// True when a row would be taken now.
    #[inline]
    fn has_room(&mut self) -> bool {
        self.rows.as_mut().is_none_or(RowSink::has_room)
    }
}

impl Sink for LimitedRows {
    // A row for which there is no room does not count as one of those that were wanted.
    #[inline]
    fn packet(&mut self, record: &Record) {
        let (has_room, count) = (self.has_room(), &self.count);
        match &mut self.rows {
            Some(rows) if !has_room => rows.lose_packet(),
            Some(rows) if count.admits() => rows.packet(record),
            Some(_) => {}
            None => {
                count.admits();
            }
        }
    }

    fn flow(&mut self, ended: &EndedFlow<'_>) {
        let (has_room, count) = (self.has_room(), &self.count);
        match &mut self.rows {
            Some(rows) if !has_room => rows.lose_flow(ended),
            Some(rows) if count.admits() => rows.flow(ended),
            Some(_) => {}
            None => {
                count.admits();
            }
        }
    }

    fn tick(&mut self, now_ns: u64) {
        if let Some(rows) = &mut self.rows {
            rows.tick(now_ns);
        }
    }

    fn take_time(&mut self) {
        if let Some(rows) = &mut self.rows {
            rows.take_time();
        }
    }

    fn close(self) {
        if let Some(rows) = self.rows {
            rows.close();
        }
    }

    fn lost_frames(&self) -> u64 {
        self.rows.as_ref().map_or(0, Sink::lost_frames)
    }

    fn is_done(&self) -> bool {
        self.count.is_reached() || self.rows.as_ref().is_some_and(Sink::is_done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_one_for_all_workers_and_exact() {
        let count = Count::new(Some(100));
        let admitted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let (count, admitted) = (count.clone(), &admitted);
                scope.spawn(move || {
                    let rows = (0..60).filter(|_| count.admits()).count();
                    admitted.fetch_add(rows as u64, Ordering::Relaxed);
                });
            }
        });
        assert_eq!((admitted.into_inner(), count.beyond()), (100, 80));
        assert!(count.is_reached() && !Count::new(None).is_reached());
    }
}
