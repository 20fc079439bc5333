//! Making and filling the files of a journal: a segment of the log that is written to, and a snapshot on its way.
//!
//! Both get their names when they are whole: written under another name, synced, renamed, the folder synced. So a
//! file with a name of ours was begun by this program and has its head, however the machine stopped.

use crate::error::JournalError;
use crate::files::{Files, OpenFile};
use crate::format::{HEAD_BYTES, Head, Kind, Shard, each_item, seal};
use std::io;

/// Files that are being made; what is left of one is removed when the journal is opened.
pub(crate) const UNFINISHED_SUFFIX: &str = ".unfinished";
const SEGMENT_UNFINISHED: &str = "segment.unfinished";
const SNAPSHOT_UNFINISHED: &str = "snapshot.unfinished";
/// Where every batch is synced, zeros are written so far ahead of the records. Space that was only taken is not
/// initialized: the first write there changes the file's extents, and an fdatasync behind it waits for the file
/// system's own journal (ext4, XFS). Behind zeros it waits for the bytes alone; of many syncs one pays for all.
const ZEROS: &[u8] = &[0; 256 << 10];
/// A snapshot is synced so often while it is written, so that no sync of it keeps the log waiting for long, nor a
/// worker on the same CPU: a kernel that is not preempted writes all of it back at once.
const SNAPSHOT_SYNC_BYTES: u64 = 512 << 10;

/// What went wrong at which file.
pub(crate) type Failed = JournalError;

fn failed(doing: &'static str, name: &str) -> impl FnOnce(io::Error) -> Failed {
    move |error| JournalError::new(doing, name, &error)
}

/// The segment that is written to.
pub(crate) struct Segment {
    file: Box<dyn OpenFile>,
    name: String,
    /// The sequence number of its first record.
    pub(crate) first: u64,
    pub(crate) salt: u32,
    /// Where the next item goes.
    pub(crate) offset: u64,
    bytes: u64,
    /// Up to here there are records or written zeros; `None` where it is not worth their price.
    zeroed: Option<u64>,
}

impl Segment {
    /// A new one, whose first record is `first` and which has room for an item of `item_bytes` at least. If it
    /// `is_synced_often`, a sync of it costs little, and a write twice the bytes.
    pub(crate) fn create(
        files: &dyn Files,
        shard: Shard,
        first: u64,
        segment_bytes: u64,
        item_bytes: u64,
        is_synced_often: bool,
    ) -> Result<Segment, Failed> {
        let (name, salt) = (Kind::Log.name(first), files.random() as u32);
        let head = Head { kind: Kind::Log, shard, salt, first, boot: files.boot() };
        let bytes = segment_bytes.max(HEAD_BYTES as u64 + item_bytes);
        let make = || {
            let mut file = files.create(SEGMENT_UNFINISHED)?;
            file.allocate(bytes)?;
            file.write_at(0, &head.emit())?;
            file.sync()?;
            files.rename(SEGMENT_UNFINISHED, &name)?;
            files.sync_names()?;
            Ok(file)
        };
        let file = make().map_err(failed("make the segment", &name))?;
        let offset = HEAD_BYTES as u64;
        let zeroed = is_synced_often.then_some(offset);
        Ok(Segment { file, name, first, salt, offset, bytes, zeroed })
    }

    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        bytes <= self.bytes - self.offset
    }

    /// Writes sealed items, which fit.
    pub(crate) fn write(&mut self, items: &[u8]) -> Result<(), Failed> {
        let end = self.offset + items.len() as u64;
        if let Some(zeroed) = self.zeroed
            && zeroed < end
        {
            // Up to a multiple of its length, so that no page is written in two parts.
            let ahead = ZEROS.len() as u64;
            let to = ((end / ahead + 1) * ahead).min(self.bytes);
            let zeros = &ZEROS[..to.saturating_sub(end) as usize];
            if !zeros.is_empty() {
                self.file.write_at(end, zeros).map_err(failed("write ahead in", &self.name))?;
            }
            self.zeroed = Some(to);
        }
        self.file.write_at(self.offset, items).map_err(failed("write", &self.name))?;
        self.offset = end;
        Ok(())
    }

    pub(crate) fn sync(&mut self) -> Result<(), Failed> {
        self.file.sync().map_err(failed("sync", &self.name))
    }

    /// Gives back the space that was not needed: nothing more is written to it. Durable with the next sync.
    pub(crate) fn trim(&mut self) -> Result<(), Failed> {
        self.file.truncate(self.offset).map_err(failed("trim", &self.name))
    }
}

/// A snapshot on its way.
pub(crate) struct SnapshotFile {
    file: Box<dyn OpenFile>,
    pub(crate) from: u64,
    salt: u32,
    /// Where the next item goes.
    pub(crate) offset: u64,
    unsynced_bytes: u64,
}

impl SnapshotFile {
    pub(crate) fn create(files: &dyn Files, shard: Shard, from: u64) -> Result<Self, Failed> {
        let salt = files.random() as u32;
        let head = Head { kind: Kind::Snapshot, shard, salt, first: from, boot: files.boot() };
        let make = || {
            let mut file = files.create(SNAPSHOT_UNFINISHED)?;
            file.write_at(0, &head.emit())?;
            Ok(file)
        };
        let file = make().map_err(failed("make", SNAPSHOT_UNFINISHED))?;
        Ok(SnapshotFile { file, from, salt, offset: HEAD_BYTES as u64, unsynced_bytes: 0 })
    }

    /// Seals and writes whole items.
    pub(crate) fn write(&mut self, items: &mut [u8]) -> Result<(), Failed> {
        let salt = self.salt;
        each_item(items, |item| seal(item, salt));
        let mut write = || {
            self.file.write_at(self.offset, items)?;
            self.offset += items.len() as u64;
            self.unsynced_bytes += items.len() as u64;
            if self.unsynced_bytes >= SNAPSHOT_SYNC_BYTES {
                self.unsynced_bytes = 0;
                self.file.sync()?;
            }
            Ok(())
        };
        write().map_err(failed("write", SNAPSHOT_UNFINISHED))
    }

    /// All items are written: it gets its name, and is what the next start begins with.
    pub(crate) fn place(mut self, files: &dyn Files) -> Result<(), Failed> {
        let name = Kind::Snapshot.name(self.from);
        let mut place = || {
            self.file.sync()?;
            files.rename(SNAPSHOT_UNFINISHED, &name)?;
            files.sync_names()
        };
        place().map_err(failed("put in place", &name))
    }

    /// Nothing is left of it; what cannot be removed now is removed by the next start.
    pub(crate) fn abandon(self, files: &dyn Files) {
        drop(self.file);
        let _ = files.remove(SNAPSHOT_UNFINISHED);
    }
}
