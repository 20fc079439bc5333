//! `--trace DIR` of `laneway run`: a session of the tracer, a recorder per worker, what became of them.
//!
//! To be begun before a worker is pinned, so that the thread that writes the files is not pinned with it.

use laneway_page::text::grouped;
use laneway_terminal as terminal;
use laneway_terminal::Failure;
use laneway_tracer::{Session, SessionOptions, ThreadInfo, TraceSlot};
use std::path::Path;

/// The tracing of one run; of one that is not traced, nothing.
pub(super) struct RunTrace(Option<Session>);

impl RunTrace {
    /// Begins to trace into `folder`, if there is one.
    pub(super) fn begin(folder: Option<&Path>) -> Result<RunTrace, Failure> {
        let session = folder.map(|folder| Session::create(folder, SessionOptions::default()));
        session.transpose().map(RunTrace).map_err(Failure::input)
    }

    /// For the worker with this number.
    pub(super) fn slot(&self, worker: usize, cpu: Option<usize>) -> Result<TraceSlot, Failure> {
        let Some(session) = &self.0 else { return Ok(TraceSlot::empty()) };
        let thread = ThreadInfo {
            cpu: cpu.and_then(|cpu| u32::try_from(cpu).ok()),
            queue: u16::try_from(worker).unwrap_or(u16::MAX),
            ..ThreadInfo::current(format!("worker-{worker}"))
        };
        session.recorder(&thread).map(TraceSlot::holding).map_err(Failure::input)
    }

    /// For a worker on each of these CPUs.
    pub(super) fn slots(&self, cpus: &[usize]) -> Result<Vec<TraceSlot>, Failure> {
        cpus.iter().enumerate().map(|(worker, &cpu)| self.slot(worker, Some(cpu))).collect()
    }

    /// Ends the files, and says what is in them unless standard error carries JSON.
    pub(super) fn end(self, json: bool) -> Result<(), Failure> {
        let Some(session) = self.0 else { return Ok(()) };
        let folder = session.folder().display().to_string();
        let threads = session.finish().map_err(Failure::input)?;
        if json {
            return Ok(());
        }
        let (records, lost) =
            threads.iter().fold((0, 0), |(r, l), thread| (r + thread.records, l + thread.lost));
        let lost = match lost {
            0 => "none lost".to_owned(),
            lost => format!("{} lost, which the files tell", grouped(lost)),
        };
        terminal::note(&format!(
            "trace: {} records, {lost}; laneway trace analyze {folder}",
            grouped(records)
        ));
        Ok(())
    }
}
