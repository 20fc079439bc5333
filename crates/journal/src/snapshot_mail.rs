//! The part of the mail that a snapshot has: what the worker hands to the writer, and how the writer fares with it.

use crate::error::JournalError;
use crate::format::Sequence;
use std::mem;

/// How the last snapshot fares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SnapshotState {
    /// None was begun since the start, or the last one was given up.
    #[default]
    None,
    /// It is being made.
    Writing,
    /// A start begins with it.
    InPlace {
        /// The sequence number that it is from.
        from: Sequence,
        /// How many entries it has.
        entries: u64,
    },
    /// It could not be written. The log goes on, and reaches as far back as before.
    Failed(JournalError),
}

/// What is handed to the writer.
#[derive(Debug, Default)]
pub(crate) struct SnapshotMail {
    pub(crate) begin: Option<u64>,
    pub(crate) chunk: Vec<u8>,
    pub(crate) finish: Option<Finish>,
    pub(crate) is_given_up: bool,
    pub(crate) state: SnapshotState,
}

/// The last of a snapshot.
#[derive(Debug)]
pub(crate) struct Finish {
    /// Entries behind the chunk, and the end.
    pub(crate) rest: Vec<u8>,
    pub(crate) through: u64,
    pub(crate) entries: u64,
}

/// What the writer has to do for a snapshot, in this order.
#[derive(Debug, Default)]
pub(crate) struct Job {
    pub(crate) is_given_up: bool,
    pub(crate) begin: Option<u64>,
    pub(crate) chunk: Vec<u8>,
    pub(crate) finish: Option<Finish>,
}

impl SnapshotMail {
    /// Nothing can be done while the log is written up to `written`.
    pub(crate) fn is_idle(&self, written: u64) -> bool {
        let waits = self.finish.as_ref().is_none_or(|finish| finish.through > written);
        self.begin.is_none() && self.chunk.is_empty() && !self.is_given_up && waits
    }

    pub(crate) fn state(&self) -> &SnapshotState {
        &self.state
    }

    /// Takes what can be done once the log is written up to `written`. The buffer of `job` must be empty.
    pub(crate) fn take(&mut self, job: &mut Job, written: u64) {
        job.is_given_up = mem::take(&mut self.is_given_up);
        job.begin = self.begin.take();
        mem::swap(&mut job.chunk, &mut self.chunk);
        job.finish = self.finish.take_if(|finish| finish.through <= written);
    }

    /// It is no longer made.
    pub(crate) fn end(&mut self, state: SnapshotState) {
        *self = SnapshotMail { state, ..SnapshotMail::default() };
    }
}
