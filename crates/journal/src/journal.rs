//! The worker's side of a journal.

use crate::error::{JournalError, OpenError, Refused, is_full};
use crate::files::{Files, Folder};
use crate::format::{RECORD_BYTES_MAX, Sequence, item_bytes};
use crate::options::{LOSS_MAX, Options, Policy};
use crate::recover::{Recovered, Restored, recover};
use crate::shared::{Batch, Figures, Shared};
use crate::snapshot::{SnapshotRefused, SnapshotWriter};
use crate::snapshot_mail::SnapshotState;
use crate::writer::Writer;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// The memory that a batch begins with.
const FILLING_BYTES: usize = 64 << 10;

/// A journal that is written to, by one worker.
///
/// Dropping it is a close: all that was appended is written and made durable first.
#[derive(Debug)]
pub struct Journal {
    shared: Arc<Shared>,
    /// What was appended and not handed over.
    filling: Batch,
    /// The last record that was appended.
    last: u64,
    /// The last record that was committed.
    committed: u64,
    /// All bytes of all records that were appended.
    appended_bytes: u64,
    /// What may be lost is as much as may be: see [`LOSS_MAX`].
    is_late: bool,
    /// Whether that is so is not known for this turn.
    is_unasked: bool,
    /// What is appended is taken, however much waits: there is no later.
    is_ending: bool,
    /// No record is taken any more.
    is_over: bool,
    options: Options,
    /// `None` where the writer is run by hand.
    thread: Option<JoinHandle<()>>,
}

impl Journal {
    /// Opens the journal in `folder`, which is made when it is not there, and hands over what it holds: first the
    /// entries of the snapshot, then the records behind it, in their order. What `restore` refuses ends the start.
    ///
    /// Where this fails behind the first call of `restore`, what it was handed is not to be used.
    ///
    /// # Errors
    /// What is in the way, or damaged, and what to try. Nothing was changed then.
    pub fn open(
        folder: &Path,
        options: Options,
        restore: impl FnMut(Restored<'_>) -> Result<(), String>,
    ) -> Result<(Journal, Recovered), OpenError> {
        let files = Folder::open(folder)
            .map_err(|error| OpenError::Folder { folder: folder.to_owned(), error })?;
        let (mut journal, writer, recovered) =
            Journal::open_by_hand(Box::new(files), folder, options, restore)?;
        let name = format!("journal-{}", journal.options.shard.number);
        let thread = Builder::new().name(name).spawn(|| writer.run());
        journal.thread = Some(thread.map_err(OpenError::Thread)?);
        Ok((journal, recovered))
    }

    /// Like [`open`](Self::open), on any files, and with a writer that does what it has to when its caller says so: for
    /// simulations. `folder` is for messages.
    ///
    /// # Errors
    /// As of [`open`](Self::open).
    pub fn open_by_hand(
        files: Box<dyn Files>,
        folder: &Path,
        options: Options,
        mut restore: impl FnMut(Restored<'_>) -> Result<(), String>,
    ) -> Result<(Journal, Writer, Recovered), OpenError> {
        if let Some(complaint) = options.complaint() {
            return Err(OpenError::Options(complaint));
        }
        let bytes = options.segment_bytes;
        let unusable = |error: io::Error| {
            let folder = folder.to_owned();
            match is_full(error.kind()) {
                true => OpenError::Full { folder, bytes },
                false => OpenError::Folder { folder, error },
            }
        };
        let lock = files.lock().map_err(unusable)?;
        let lock = lock.ok_or_else(|| OpenError::InUse { folder: folder.to_owned() })?;
        let (recovered, past) = recover(&*files, folder, options.shard, &mut restore)?;
        let last = past.last;
        let shared = Arc::new(Shared::new(last, options.bell.clone(), lock));
        let writer = Writer::begin(files, folder, Arc::clone(&shared), options.clone(), past);
        let writer = writer.map_err(|error| unusable(io::Error::new(error.kind, error.error)))?;
        let bytes = Vec::with_capacity(FILLING_BYTES.min(options.waiting_bytes_max));
        let journal = Journal {
            shared,
            filling: Batch { bytes, ..Batch::default() },
            last,
            committed: last,
            appended_bytes: 0,
            is_late: false,
            is_unasked: true,
            is_ending: false,
            is_over: false,
            options,
            thread: None,
        };
        Ok((journal, writer, recovered))
    }

    /// Takes a record for the next [`commit`](Self::commit) and says its number. Copies it into memory and does
    /// nothing else.
    ///
    /// # Errors
    /// The record is not taken, and why. Behind [`Refused::NoRoom`] the bell rings when there is room; what was
    /// appended before must be committed for that.
    #[inline]
    pub fn append(&mut self, record: &[u8]) -> Result<Sequence, Refused> {
        let bytes = item_bytes(record.len());
        if record.len() > self.record_bytes_max() {
            let max = self.record_bytes_max();
            return Err(Refused::TooLong { bytes: record.len(), max });
        }
        if self.shared.failure().is_some() || self.is_over {
            return Err(Refused::Failed);
        }
        if !self.has_room(record.len()) {
            return Err(Refused::NoRoom);
        }
        self.last += 1;
        self.filling.push(self.last, record);
        self.appended_bytes += bytes as u64;
        Ok(Sequence(self.last))
    }

    /// The longest record that these options take, in bytes.
    #[inline]
    pub fn record_bytes_max(&self) -> usize {
        let head = item_bytes(0);
        RECORD_BYTES_MAX.min(self.options.waiting_bytes_max.saturating_sub(head) & !7)
    }

    /// Whether a record of so many bytes would be taken now; the bell rings later if not.
    #[inline]
    pub fn has_room(&mut self, record_bytes: usize) -> bool {
        if self.is_ending {
            return true;
        }
        // Once per turn, whatever an earlier one has left here, and again while there is no room.
        if self.committed <= self.durable().0 {
            self.is_late = false;
        } else if self.is_unasked || self.is_late {
            self.is_late = self.loses_too_much();
            self.is_unasked = false;
        }
        let bytes = item_bytes(record_bytes);
        if self.has_bytes(bytes) && !self.is_late {
            return true;
        }
        self.is_unasked = true;
        self.shared.want_room();
        self.has_bytes(bytes) && !self.is_late
    }

    /// From now on no record is refused for want of room: the caller ends, and cannot wait for the bell. A close writes
    /// what is appended then as all before it.
    pub fn take_all(&mut self) {
        self.is_ending = true;
    }

    #[inline]
    fn has_bytes(&self, bytes: usize) -> bool {
        self.waiting_bytes() + bytes <= self.options.waiting_bytes_max
    }

    /// The bytes of records that were appended and not written.
    #[inline]
    pub fn waiting_bytes(&self) -> usize {
        usize::try_from(self.appended_bytes - self.shared.written_bytes()).unwrap_or(usize::MAX)
    }

    fn loses_too_much(&self) -> bool {
        if self.options.policy != Policy::EverySecond {
            return false;
        }
        let since = self.shared.unsynced_since_ns().or(self.filling.since_ns);
        let now_ns = self.options.clock.now_ns();
        since.is_some_and(|since| now_ns.saturating_sub(since) > LOSS_MAX.as_nanos() as u64)
    }

    /// So many commands are in what is appended and not committed: those whose replies wait for it. The next sync may
    /// be begun a little later for the sake of more, see [`Policy::Always`].
    #[inline]
    pub fn awaited(&mut self, commands: u32) {
        self.filling.commands += u64::from(commands);
    }

    /// Hands what was appended to the writer: at the end of every turn, also of one that has appended nothing. While
    /// the writer is busy, the bytes of further turns collect for its next write; a turn too long to be copied behind
    /// them stays here, and the bell says when the next call can hand it over.
    #[inline]
    pub fn commit(&mut self) {
        self.is_unasked = true;
        if !self.filling.is_empty() {
            self.hand_over(false);
        }
    }

    fn hand_over(&mut self, is_forced: bool) {
        self.committed = self.last;
        if self.shared.failure().is_some() {
            self.filling.clear();
            return;
        }
        self.shared.hand_over(&mut self.filling, self.options.clock.now_ns(), is_forced);
    }

    /// The last record that was appended.
    pub fn last(&self) -> Sequence {
        Sequence(self.last)
    }

    /// The last record that the kernel has: a kill of this process does not lose it, a cut of the power may.
    #[inline]
    pub fn written(&self) -> Sequence {
        Sequence(self.shared.written())
    }

    /// The last record that nothing loses any more.
    #[inline]
    pub fn durable(&self) -> Sequence {
        Sequence(self.shared.durable())
    }

    /// Why no write is taken any more. It stays so until the journal is opened again.
    pub fn failed(&self) -> Option<&JournalError> {
        self.shared.failure()
    }

    /// What it was asked for.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// What it has done.
    pub fn figures(&self) -> Figures {
        self.shared.tallies.figures()
    }

    /// Begins a snapshot from the last record that was appended: when it is in place, a start begins with its entries
    /// and goes on with the records behind that.
    ///
    /// # Errors
    /// One is being made already, or writes have ended.
    pub fn begin_snapshot(&mut self) -> Result<SnapshotWriter, SnapshotRefused> {
        if self.shared.failure().is_some() {
            return Err(SnapshotRefused::Ended);
        }
        let chunk_bytes = self.options.snapshot_chunk_bytes;
        SnapshotWriter::begin(Arc::clone(&self.shared), self.last, chunk_bytes)
    }

    /// All entries are there. The writer puts the snapshot in place as soon as every record up to the last that an
    /// entry was captured at is durable, and then removes the segments that it stands for; the bell rings.
    ///
    /// # Errors
    /// The snapshot has ended before, see [`snapshot`](Self::snapshot).
    ///
    /// # Panics
    /// An entry was captured at a record that was never appended.
    pub fn finish_snapshot(&mut self, snapshot: SnapshotWriter) -> Result<(), SnapshotRefused> {
        assert!(snapshot.through() <= self.last(), "captured at a record that is not there");
        self.commit();
        snapshot.finish()
    }

    /// How the last snapshot fares.
    pub fn snapshot(&self) -> SnapshotState {
        self.shared.mail().snapshot.state().clone()
    }

    /// Writes all that was appended, makes it durable, and says whether that worked.
    ///
    /// # Errors
    /// Why writes have ended; what was durable stays.
    pub fn close(mut self) -> Result<(), JournalError> {
        self.end();
        self.shared.failure().map_or(Ok(()), |failure| Err(failure.clone()))
    }

    /// Does what [`close`](Self::close) does, and keeps the folder: it is another journal's when this value is gone.
    /// [`failed`](Self::failed) says whether it worked.
    pub fn end(&mut self) {
        self.is_over = true;
        if !self.filling.is_empty() {
            self.hand_over(true);
        }
        let mut mail = self.shared.mail();
        mail.is_closing = true;
        self.shared.wake(mail);
        if let Some(thread) = self.thread.take() {
            // A panic of the writer is a failure, which `failed` reports.
            let _ = thread.join();
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Disk;
    use std::collections::BTreeSet;

    #[test]
    fn three_buffers_go_round_so_that_no_turn_allocates() {
        let disk = Disk::new(1);
        let options = Options { policy: Policy::No, clock: disk.clock(), ..Options::default() };
        let files = Box::new(disk);
        let (mut journal, mut writer, _) =
            Journal::open_by_hand(files, Path::new("data"), options, |_| Ok(()))
                .expect("nothing fails");
        let mut buffers = BTreeSet::new();
        for turn in 0..100 {
            for _ in 0..20 {
                journal.append(&[7; 100]).expect("there is room");
            }
            if turn > 10 {
                buffers.insert((journal.filling.bytes.as_ptr(), journal.filling.bytes.capacity()));
            }
            journal.commit();
            writer.turn();
        }
        assert!(buffers.len() <= 3, "{} buffers", buffers.len());
    }
}
