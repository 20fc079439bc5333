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

use crate::format::{RECORD_BYTES_MAX, Sequence, item_bytes, push_item, push_mark};
use crate::shared::{Shared, clear};
use crate::snapshot_mail::{Finish, SnapshotState};
use std::mem;
use std::sync::Arc;

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
