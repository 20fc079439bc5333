//! A snapshot: all that the records so far have made, so that a start need not do them again.
//!
//! The worker walks what it stores in steps that it chooses, between its turns, and gives each thing as an entry; the
//! writer writes. Nothing forks and nothing stands still, so entries are captured at different records. Each says at
//! which ([`Restored::Entry`](crate::Restored::Entry)): its content has the effect of all records up to there and of
//! none behind it. A store that captures a thing before it changes it for the first time gives the sequence number that
//! the snapshot is from, for all of them, and its log is then simply done again from there on. One that
//! captures as it walks leaves out, for each thing, the records up to its own number.
//!
//! A snapshot is put in place when every record up to the last such number is durable. So the log always reaches what
//! any entry knows. The first record behind the number that it is from begins a segment, so that all segments before
//! that go, and none of them stays for the few records at its end.

use crate::error::JournalError;
use crate::format::{RECORD_BYTES_MAX, Sequence, item_bytes, push_item, push_mark};
use crate::shared::{Shared, clear};
use std::mem;
use std::sync::Arc;

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

/// Why a snapshot does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotRefused {
    /// The writer is behind: try again in a later turn.
    #[error("the writer is behind with the snapshot; go on in a later turn")]
    NoRoom,
    /// Another one is being made.
    #[error("a snapshot is being made already; wait until it is in place")]
    Running,
    /// It has failed, or writes have ended.
    #[error("the snapshot has failed; see its state, then begin another")]
    Ended,
    /// An entry that no journal takes.
    #[error("an entry of {bytes} bytes is too long; at most {RECORD_BYTES_MAX} are taken")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
}

/// What is handed to the writer.
#[derive(Debug, Default)]
pub(crate) struct SnapshotMail {
    begin: Option<u64>,
    chunk: Vec<u8>,
    finish: Option<Finish>,
    is_given_up: bool,
    state: SnapshotState,
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

/// A snapshot that is being made. Dropped before [`finish_snapshot`](crate::Journal::finish_snapshot), it is given up.
#[derive(Debug)]
pub struct SnapshotWriter {
    shared: Arc<Shared>,
    from: u64,
    through: u64,
    entries: u64,
    filling: Vec<u8>,
    chunk_bytes: usize,
    is_finished: bool,
}

impl SnapshotWriter {
    pub(crate) fn begin(
        shared: Arc<Shared>,
        from: u64,
        chunk_bytes: usize,
    ) -> Result<SnapshotWriter, SnapshotRefused> {
        let mut mail = shared.mail();
        // The writer still has a snapshot that was given up, until its next turn.
        if mail.snapshot.state == SnapshotState::Writing || mail.snapshot.is_given_up {
            return Err(SnapshotRefused::Running);
        }
        mail.snapshot.begin = Some(from);
        mail.snapshot.state = SnapshotState::Writing;
        shared.wake(mail);
        Ok(SnapshotWriter {
            shared,
            from,
            through: from,
            entries: 0,
            filling: Vec::new(),
            chunk_bytes,
            is_finished: false,
        })
    }

    /// The sequence number that it is from.
    pub fn from(&self) -> Sequence {
        Sequence(self.from)
    }

    /// The last record that any entry was captured at.
    pub fn through(&self) -> Sequence {
        Sequence(self.through)
    }

    /// Takes an entry whose content has the effect of all records up to `captured`, and of none behind it.
    ///
    /// # Errors
    /// The entry is not taken, and why.
    ///
    /// # Panics
    /// It was captured before the snapshot began.
    pub fn entry(&mut self, captured: Sequence, bytes: &[u8]) -> Result<(), SnapshotRefused> {
        assert!(captured.0 >= self.from, "captured before the snapshot began");
        if bytes.len() > RECORD_BYTES_MAX {
            return Err(SnapshotRefused::TooLong { bytes: bytes.len() });
        }
        let is_full = self.filling.len() + item_bytes(bytes.len()) > self.chunk_bytes;
        if is_full && !self.filling.is_empty() {
            self.hand_over()?;
        }
        push_item(&mut self.filling, captured.0, bytes);
        self.through = self.through.max(captured.0);
        self.entries += 1;
        Ok(())
    }

    /// Hands over what was given so far, which [`entry`](Self::entry) does by itself for a full chunk.
    ///
    /// # Errors
    /// The writer is behind, or the snapshot has ended.
    pub fn hand_over(&mut self) -> Result<(), SnapshotRefused> {
        let mut mail = self.shared.mail();
        if mail.snapshot.state != SnapshotState::Writing {
            return Err(SnapshotRefused::Ended);
        }
        if !mail.snapshot.chunk.is_empty() {
            return Err(SnapshotRefused::NoRoom);
        }
        mem::swap(&mut mail.snapshot.chunk, &mut self.filling);
        self.shared.wake(mail);
        clear(&mut self.filling);
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<(), SnapshotRefused> {
        self.is_finished = true;
        let mut rest = mem::take(&mut self.filling);
        push_mark(&mut rest, self.from, &[self.entries, self.through]);
        let mut mail = self.shared.mail();
        if mail.snapshot.state != SnapshotState::Writing {
            return Err(SnapshotRefused::Ended);
        }
        let (through, entries) = (self.through, self.entries);
        mail.snapshot.finish = Some(Finish { rest, through, entries });
        self.shared.wake(mail);
        Ok(())
    }
}

impl Drop for SnapshotWriter {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        let mut mail = self.shared.mail();
        if mail.snapshot.state == SnapshotState::Writing {
            mail.snapshot.end(SnapshotState::None);
            mail.snapshot.is_given_up = true;
            self.shared.wake(mail);
        }
    }
}
