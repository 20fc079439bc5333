//! Why a journal cannot be opened, written or given a snapshot: one sentence each, with the value and what to try.

use crate::format::{Sequence, Shard, VERSION};
use std::io;
use std::path::{Path, PathBuf};

/// Why there is no journal.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The options cannot be met by any folder.
    #[error("cannot open a journal: {0}")]
    Options(String),
    /// The folder cannot be used.
    #[error(
        "cannot use the data folder {}: {error}; name a folder that this user may write to",
        folder.display()
    )]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What the system reported.
        error: io::Error,
    },
    /// There is no room for a segment.
    #[error(
        "the data folder {} is full: a segment takes {bytes} bytes; free that much, or make segments shorter",
        folder.display()
    )]
    Full {
        /// The folder.
        folder: PathBuf,
        /// What a segment takes.
        bytes: u64,
    },
    /// Another process has it.
    #[error(
        "the data folder {} is in use by another server; stop that one, or name another folder",
        folder.display()
    )]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// A file of another version.
    #[error(
        "{} is of version {found}, and this program reads version {VERSION} only; start the program that wrote it",
        file.display()
    )]
    Version {
        /// The file.
        file: PathBuf,
        /// Its version.
        found: u32,
    },
    /// A file of another shard, or of another number of shards.
    #[error(
        "{} belongs to {found}, and {asked} was asked for; start with as many workers as wrote it",
        file.display()
    )]
    Shard {
        /// The file.
        file: PathBuf,
        /// Whose it is.
        found: Shard,
        /// What was asked for.
        asked: Shard,
    },
    /// Bytes that were durable have changed.
    #[error(
        "{} is damaged at byte {offset}, where sequence number {sequence} should be: {why}; restore the folder from a \
         copy",
        file.display()
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Where in it.
        offset: u64,
        /// The record that is missing first.
        sequence: Sequence,
        /// What is wrong there.
        why: &'static str,
    },
    /// Records are missing between two that are there.
    #[error(
        "sequence numbers {first} to {last} are missing before {}; put back the segments that hold them, or restore \
         the folder from a copy",
        file.display()
    )]
    Hole {
        /// What begins behind the hole.
        file: PathBuf,
        /// The first that is missing.
        first: Sequence,
        /// The last that is missing.
        last: Sequence,
    },
    /// The newest snapshot is damaged, and the log does not reach back far enough to do without it.
    #[error(
        "the snapshot {} is damaged ({why}), and no segment holds sequence number {missing} to rebuild what it held; \
         restore the folder from a copy",
        file.display()
    )]
    Snapshot {
        /// The snapshot.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
        /// The first record that would be needed.
        missing: Sequence,
    },
    /// The log ends before a snapshot that was made from it.
    #[error(
        "the log ends with sequence number {end}, and {} holds what {through} did; put back the segments behind \
         {end}, or restore the folder from a copy",
        file.display()
    )]
    Short {
        /// The snapshot.
        file: PathBuf,
        /// The last record of the log.
        end: Sequence,
        /// The last record that the snapshot knows.
        through: Sequence,
    },
    /// The caller could not take what was read.
    #[error(
        "sequence number {sequence} cannot be restored: {why}; start the program that wrote it"
    )]
    Rejected {
        /// Which record, or the record that an entry was captured at.
        sequence: Sequence,
        /// What the caller reported.
        why: String,
    },
    /// A file could not be read or written.
    #[error("cannot {doing} {}: {error}; look at the device and its mount", file.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The file.
        file: PathBuf,
        /// What the system reported.
        error: io::Error,
    },
    /// There is no thread for the writer.
    #[error("cannot start the journal's writer: {0}; raise `ulimit -u`")]
    Thread(io::Error),
}

/// Why writes have ended. They are not tried again: after a failed sync it is not known what is durable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot {doing} {file}: {error}; no write is taken any more, what was durable stays: look at the device, then \
     start again"
)]
pub struct JournalError {
    pub(crate) doing: &'static str,
    pub(crate) file: String,
    pub(crate) error: String,
    /// The kind of it: a full disk is not a broken one.
    pub(crate) kind: io::ErrorKind,
}

impl JournalError {
    pub(crate) fn new(doing: &'static str, file: &str, error: &io::Error) -> JournalError {
        JournalError { doing, file: file.to_owned(), error: error.to_string(), kind: error.kind() }
    }

    /// With the folder that the file is in.
    pub(crate) fn below(mut self, folder: &Path) -> JournalError {
        self.file = folder.join(&self.file).display().to_string();
        self
    }

    /// What could not be done, at which file, and what the system reported: without what follows from it for a journal,
    /// because a snapshot that fails ends no writes.
    pub fn what(&self) -> String {
        format!("cannot {} {}: {}", self.doing, self.file, self.error)
    }

    /// Whether the disk is full rather than broken.
    pub fn is_full(&self) -> bool {
        is_full(self.kind)
    }
}

/// Whether there is no room: on the disk, or within the user's quota.
pub(crate) fn is_full(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Why a record is not taken. The journal is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The writer is behind: the bell rings when there is room.
    #[error("the journal has no room: its writer is behind; wait for the bell")]
    NoRoom,
    /// No journal with these options ever takes it.
    #[error("a record of {bytes} bytes is too long; at most {max} are taken")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The longest.
        max: usize,
    },
    /// Writes have ended: one failed, see [`failed`](crate::Journal::failed), or the journal was ended.
    #[error("the journal takes no write any more, because one failed or it was closed")]
    Failed,
}
