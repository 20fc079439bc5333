//! What a folder holds: the newest snapshot that is whole, and the log behind it.
//!
//! ```text
//!   snapshots   ── newest whole one ──▶ entries ──┐
//!   segments    ── those behind it  ──▶ records ──┴▶ restore ──▶ the store as it was
//!                                └ the last one: the torn end is cut off, the rest is written again
//! ```
//!
//! What must always hold: nothing is handed to the caller but what was written, in its order and without a gap;
//! nothing that is known to have been durable is missing without a refusal. Only the last segment may have a torn end,
//! because a file is synced before the next is begun. A mark behind the bad place makes it damage instead: one that
//! says that the missing record was durable, or any mark of the same start of the machine, whose memory loses nothing
//! of what a process wrote. A batch that was not synced has no mark behind it, so a byte that changes there is a torn
//! end, too.
//!
//! The last segment of a journal that was not closed is written again, in place, and synced: where a sync had failed,
//! the kernel may show bytes that are not on the disk and that it holds for clean.

use crate::error::OpenError;
use crate::files::{Files, OpenFile};
use crate::format::{Head, HeadError, IS_CLOSED, Kind, Sequence, Shard, number_at};
use crate::scan::{Item, Scan};
use crate::segment::UNFINISHED_SUFFIX;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Written again at a time.
const REWRITE_BYTES: usize = 1 << 20;

/// What a start is handed, in this order: the entries of the snapshot, then the records behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restored<'a> {
    /// An entry of the snapshot.
    Entry {
        /// The last record whose effect on it is contained: those up to here must not be done again to it.
        captured: Sequence,
        /// As it was given to the snapshot.
        bytes: &'a [u8],
    },
    /// A record of the log, behind the sequence number that the snapshot is from.
    Record {
        /// Its number.
        sequence: Sequence,
        /// As it was appended.
        bytes: &'a [u8],
    },
}

/// What a start found; its text is for the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The sequence number that the snapshot is from.
    pub snapshot: Option<Sequence>,
    /// Its entries.
    pub entries: u64,
    /// The segments that were read.
    pub segments: u64,
    /// The records that were handed over.
    pub records: u64,
    /// Their bytes.
    pub record_bytes: u64,
    /// The last record of the log.
    pub last: Sequence,
    /// What was cut off.
    pub torn: Option<Torn>,
    /// The newest snapshot, where it is damaged and the segments to do without it are all there; and what is wrong.
    pub damaged_snapshot: Option<(PathBuf, String)>,
    /// The journal was closed before, or is new: nothing was lost.
    pub was_closed: bool,
}

/// The end of a log that was being written when the machine or the process stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Torn {
    /// The first record that is not whole.
    pub from: Sequence,
    /// How many bytes were cut off.
    pub bytes: u64,
}

impl fmt::Display for Recovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.last == Sequence(0) && self.torn.is_none() {
            return write!(f, "the journal is empty");
        }
        write!(f, "restored ")?;
        if let Some(from) = self.snapshot {
            write!(f, "{} entries of the snapshot from sequence number {from} and ", self.entries)?;
        }
        let Recovered { records, record_bytes, segments, last, .. } = self;
        let of = if *segments == 1 { "segment" } else { "segments" };
        write!(f, "{records} records ({record_bytes} bytes) of {segments} {of}, up to {last}")?;
        if let Some((file, why)) = &self.damaged_snapshot {
            write!(f, "; the snapshot {} is damaged ({why}) and was left out", file.display())?;
        }
        match self.torn {
            Some(torn) => write!(
                f,
                "; the journal was not closed: {} bytes from sequence number {} on were torn and are cut off",
                torn.bytes, torn.from
            ),
            None if !self.was_closed => write!(f, "; the journal was not closed, its end is whole"),
            None => Ok(()),
        }
    }
}

/// A segment that is no longer written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Earlier {
    pub(crate) first: u64,
    pub(crate) bytes: u64,
}

/// What the writer goes on from.
pub(crate) struct Past {
    pub(crate) last: u64,
    pub(crate) earlier: VecDeque<Earlier>,
    /// What each snapshot is from.
    pub(crate) snapshots: Vec<u64>,
    /// The bytes of the one that the start began with.
    pub(crate) snapshot_bytes: u64,
}

/// Reads the folder and hands over what it holds.
pub(crate) fn recover(
    files: &dyn Files,
    folder: &Path,
    shard: Shard,
    restore: &mut dyn FnMut(Restored<'_>) -> Result<(), String>,
) -> Result<(Recovered, Past), OpenError> {
    let recovered = Recovered { was_closed: true, ..Recovered::default() };
    Recovery { files, folder, shard, restore, recovered, expected: 1, base: 0, durable: 0 }.run()
}

struct Recovery<'a> {
    files: &'a dyn Files,
    folder: &'a Path,
    shard: Shard,
    restore: &'a mut dyn FnMut(Restored<'_>) -> Result<(), String>,
    recovered: Recovered,
    /// The next record.
    expected: u64,
    /// What the snapshot is from: records up to here are not handed over.
    base: u64,
    /// What is known to have been durable.
    durable: u64,
}

/// A snapshot that is whole.
struct Whole {
    from: u64,
    /// The last record that any of its entries was captured at.
    through: u64,
    entries: u64,
    bytes: u64,
}

/// Where a segment ends.
struct End {
    offset: u64,
    is_closed: bool,
}

impl Recovery<'_> {
    fn run(mut self) -> Result<(Recovered, Past), OpenError> {
        // Of the last process, one sync of them may have failed. What is removed below relies on names that stay.
        self.files.sync_names().map_err(|error| self.io("sync", "", error))?;
        let names = self.files.list().map_err(|error| self.io("list", "", error))?;
        let of = |kind: Kind| {
            let mut numbers: Vec<u64> =
                names.iter().filter_map(|name| kind.parse_name(name)).collect();
            numbers.sort_unstable();
            numbers
        };
        let (segments, snapshots) = (of(Kind::Log), of(Kind::Snapshot));
        let whole = self.choose(&snapshots)?;
        if let Some(whole) = &whole {
            self.base = whole.from;
            self.durable = self.durable.max(whole.through);
        }
        // The last segment that begins early enough; those before it are not needed.
        let needed = segments.partition_point(|first| *first <= self.base.saturating_add(1));
        let needed = match (needed.checked_sub(1), segments.first()) {
            (Some(needed), _) => &segments[needed..],
            (None, None) if snapshots.is_empty() => &segments[..],
            (None, first) => return Err(self.gap(whole.as_ref(), first.copied())),
        };
        if let Some(whole) = &whole {
            self.restore_snapshot(whole)?;
        }
        let earlier = self.replay(needed, whole.as_ref())?;
        self.remove_leftovers(&names, needed, whole.as_ref());
        let kept = whole.as_ref().map_or(0, |whole| whole.from);
        let snapshots = snapshots.into_iter().filter(|from| *from >= kept).collect();
        let last = self.expected - 1;
        self.recovered.last = Sequence(last);
        let snapshot_bytes = whole.map_or(0, |whole| whole.bytes);
        Ok((self.recovered, Past { last, earlier, snapshots, snapshot_bytes }))
    }

    /// The newest snapshot that is whole. Reads it to the end: no entry of a damaged one is handed over.
    fn choose(&mut self, snapshots: &[u64]) -> Result<Option<Whole>, OpenError> {
        for from in snapshots.iter().rev() {
            match self.read_snapshot(*from, |_, _| Ok(()))? {
                Ok(whole) => return Ok(Some(whole)),
                Err(why) => {
                    let file = self.path(&Kind::Snapshot.name(*from));
                    // The log must reach what it held.
                    self.durable = self.durable.max(*from);
                    self.recovered.damaged_snapshot.get_or_insert((file, why));
                }
            }
        }
        Ok(None)
    }

    fn restore_snapshot(&mut self, whole: &Whole) -> Result<(), OpenError> {
        let file = self.path(&Kind::Snapshot.name(whole.from));
        let read = self.read_snapshot(whole.from, |recovery, entry| {
            let Restored::Entry { captured, .. } = entry else { return Ok(()) };
            (recovery.restore)(entry).map_err(|why| OpenError::Rejected { sequence: captured, why })
        })?;
        read.map_err(|why| OpenError::Snapshot { file, why, missing: Sequence(1) })?;
        self.recovered.snapshot = Some(Sequence(whole.from));
        self.recovered.entries = whole.entries;
        Ok(())
    }

    /// Reads a snapshot from end to end; what is wrong with one that is damaged is the inner error.
    fn read_snapshot(
        &mut self,
        from: u64,
        mut with: impl FnMut(&mut Self, Restored<'_>) -> Result<(), OpenError>,
    ) -> Result<Result<Whole, String>, OpenError> {
        let name = Kind::Snapshot.name(from);
        let file = self.files.open(&name).map_err(|error| self.io("open", &name, error))?;
        let Some((head, mut scan)) = self.begin(&*file, Kind::Snapshot, &name)? else {
            return Ok(Err("its head is not whole".to_owned()));
        };
        if head.first != from {
            return Ok(Err(format!("it was made from sequence number {}", head.first)));
        }
        let mut whole = Whole { from, through: from, entries: 0, bytes: scan.file_bytes() };
        loop {
            let offset = scan.offset();
            let damaged = |what: &str| Ok(Err(format!("at byte {offset}: {what}")));
            match scan.next().map_err(|error| self.io("read", &name, error))? {
                Item::Record { sequence, content } => {
                    if sequence < from {
                        return damaged("an entry was captured before the snapshot began");
                    }
                    whole.entries += 1;
                    whole.through = whole.through.max(sequence);
                    let captured = Sequence(sequence);
                    with(self, Restored::Entry { captured, bytes: content })?;
                }
                Item::Mark { sequence, content } => {
                    let counted = (number_at(content, 0), number_at(content, 1));
                    if sequence != from || counted != (Some(whole.entries), Some(whole.through)) {
                        return damaged("its end does not fit its entries");
                    }
                    if scan.offset() != scan.file_bytes() {
                        return damaged("there are bytes behind its end");
                    }
                    return Ok(Ok(whole));
                }
                Item::Blank => return damaged("it ends without its end"),
                Item::Bad => return damaged("no whole entry is there"),
            }
        }
    }

    /// Hands over what these segments hold, and mends the end of the last one.
    fn replay(
        &mut self,
        segments: &[u64],
        whole: Option<&Whole>,
    ) -> Result<VecDeque<Earlier>, OpenError> {
        let mut earlier = VecDeque::with_capacity(segments.len());
        for (index, first) in segments.iter().enumerate() {
            if index == 0 {
                self.expected = *first;
            }
            self.check_joint(*first)?;
            let is_last = index + 1 == segments.len();
            let end = self.replay_segment(*first, is_last)?;
            self.recovered.segments += 1;
            if self.expected > *first {
                earlier.push_back(Earlier { first: *first, bytes: end.offset });
            }
            if is_last {
                self.recovered.was_closed = end.is_closed;
                self.check_end(whole)?;
                self.mend(*first, &end)?;
            }
        }
        if segments.is_empty() {
            self.check_end(whole)?;
        }
        Ok(earlier)
    }

    /// A segment begins where the one before it ends.
    fn check_joint(&self, first: u64) -> Result<(), OpenError> {
        let name = Kind::Log.name(first);
        if first > self.expected {
            let (first, last) = (Sequence(self.expected), Sequence(first - 1));
            return Err(OpenError::Hole { file: self.path(&name), first, last });
        }
        if first < self.expected {
            return Err(self.damaged(&name, 0, "it begins before the segment before it ends"));
        }
        Ok(())
    }

    fn replay_segment(&mut self, first: u64, is_last: bool) -> Result<End, OpenError> {
        let name = Kind::Log.name(first);
        let file = self.files.open(&name).map_err(|error| self.io("open", &name, error))?;
        let Some((head, mut scan)) = self.begin(&*file, Kind::Log, &name)? else {
            return Err(self.damaged(&name, 0, "its head is not whole"));
        };
        if head.first != first {
            return Err(self.damaged(&name, 0, "it was written under another name"));
        }
        // It was made when all before it was durable.
        self.durable = self.durable.max(first - 1);
        let mut is_closed = false;
        loop {
            let offset = scan.offset();
            match scan.next().map_err(|error| self.io("read", &name, error))? {
                Item::Record { sequence, content } => {
                    is_closed = false;
                    self.restore_record(&name, offset, sequence, content)?;
                }
                Item::Mark { sequence, content } => {
                    let number = number_at(content, 0).unwrap_or(u64::MAX);
                    let durable = number & !IS_CLOSED;
                    if sequence != self.expected || durable >= self.expected {
                        return Err(self.damaged(&name, offset, "a mark of another place"));
                    }
                    is_closed = number & IS_CLOSED != 0;
                    self.durable = self.durable.max(durable);
                }
                Item::Blank | Item::Bad => break,
            }
        }
        let offset = scan.offset();
        let tail = scan.tail(self.expected).map_err(|error| self.io("read", &name, error))?;
        if tail.bytes > 0 {
            let is_of_this_boot = head.boot != 0 && head.boot == self.files.boot();
            let was_durable = self.durable.max(tail.durable) >= self.expected || is_closed;
            if !is_last || was_durable || (is_of_this_boot && tail.has_marks) {
                return Err(self.damaged(&name, offset, "there are bytes, and no whole record"));
            }
            self.recovered.torn = Some(Torn { from: Sequence(self.expected), bytes: tail.bytes });
        }
        Ok(End { offset, is_closed })
    }

    fn restore_record(
        &mut self,
        name: &str,
        offset: u64,
        sequence: u64,
        bytes: &[u8],
    ) -> Result<(), OpenError> {
        if sequence > self.expected {
            let (first, last) = (Sequence(self.expected), Sequence(sequence - 1));
            return Err(OpenError::Hole { file: self.path(name), first, last });
        }
        if sequence < self.expected {
            return Err(self.damaged(name, offset, "a record comes twice"));
        }
        if sequence > self.base {
            let sequence = Sequence(sequence);
            (self.restore)(Restored::Record { sequence, bytes })
                .map_err(|why| OpenError::Rejected { sequence, why })?;
            self.recovered.records += 1;
            self.recovered.record_bytes += bytes.len() as u64;
        }
        self.expected += 1;
        Ok(())
    }

    /// The log must reach what was durable.
    fn check_end(&self, whole: Option<&Whole>) -> Result<(), OpenError> {
        if self.durable < self.expected {
            return Ok(());
        }
        let file = match (whole, &self.recovered.damaged_snapshot) {
            (Some(whole), _) => self.path(&Kind::Snapshot.name(whole.from)),
            (None, Some((file, _))) => file.clone(),
            (None, None) => self.folder.to_owned(),
        };
        let (end, through) = (Sequence(self.expected - 1), Sequence(self.durable));
        Err(OpenError::Short { file, end, through })
    }

    /// Cuts off what is behind the last record and makes durable what is before, unless a close did that.
    fn mend(&self, first: u64, end: &End) -> Result<(), OpenError> {
        if end.is_closed {
            return Ok(());
        }
        let name = Kind::Log.name(first);
        let mend = || {
            let mut file = self.files.open(&name)?;
            file.truncate(end.offset)?;
            rewrite(&mut *file, end.offset)?;
            file.sync()
        };
        mend().map_err(|error| self.io("mend", &name, error))
    }

    /// Removes what was begun and not finished, and what the snapshot stands for. What cannot be removed is tried
    /// again by the next start.
    fn remove_leftovers(&self, names: &[String], needed: &[u64], whole: Option<&Whole>) {
        let first = needed.first().copied().unwrap_or(0);
        let from = whole.map_or(0, |whole| whole.from);
        let is_left = |name: &&String| {
            name.ends_with(UNFINISHED_SUFFIX)
                || Kind::Log.parse_name(name).is_some_and(|number| number < first)
                || Kind::Snapshot.parse_name(name).is_some_and(|number| number < from)
        };
        for name in names.iter().filter(is_left) {
            let _ = self.files.remove(name);
        }
    }

    /// The head of a file and what is behind it; `None` where the head is damaged.
    fn begin<'f>(
        &self,
        file: &'f dyn OpenFile,
        kind: Kind,
        name: &str,
    ) -> Result<Option<(Head, Scan<'f>)>, OpenError> {
        let begun = Scan::begin(file, kind).map_err(|error| self.io("read", name, error))?;
        match begun {
            Ok((head, _)) if head.shard != self.shard => Err(OpenError::Shard {
                file: self.path(name),
                found: head.shard,
                asked: self.shard,
            }),
            Ok(begun) => Ok(Some(begun)),
            Err(HeadError::Damaged) => Ok(None),
            Err(HeadError::Version(found)) => {
                Err(OpenError::Version { file: self.path(name), found })
            }
        }
    }

    /// No segment begins where the log has to.
    fn gap(&self, whole: Option<&Whole>, first: Option<u64>) -> OpenError {
        let missing = Sequence(self.base + 1);
        match (&self.recovered.damaged_snapshot, whole, first) {
            (Some((file, why)), ..) => {
                OpenError::Snapshot { file: file.clone(), why: why.clone(), missing }
            }
            (None, _, Some(first)) => OpenError::Hole {
                file: self.path(&Kind::Log.name(first)),
                first: missing,
                last: Sequence(first - 1),
            },
            (None, ..) => OpenError::Short {
                file: self.path(&Kind::Snapshot.name(self.base)),
                end: Sequence(0),
                through: Sequence(self.durable),
            },
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn damaged(&self, name: &str, offset: u64, why: &'static str) -> OpenError {
        OpenError::Damaged { file: self.path(name), offset, sequence: Sequence(self.expected), why }
    }

    fn io(&self, doing: &'static str, name: &str, error: io::Error) -> OpenError {
        OpenError::Io { doing, file: self.path(name), error }
    }
}

/// Writes the first `bytes` of a file again, as they are.
fn rewrite(file: &mut dyn OpenFile, bytes: u64) -> io::Result<()> {
    let chunk_bytes = usize::try_from(bytes).map_or(REWRITE_BYTES, |b| b.min(REWRITE_BYTES));
    let mut chunk = vec![0; chunk_bytes];
    let mut offset = 0;
    while offset < bytes {
        let left = usize::try_from(bytes - offset).unwrap_or(usize::MAX);
        let wanted = left.min(chunk_bytes);
        let read = file.read_at(offset, &mut chunk[..wanted])?;
        if read < wanted {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        file.write_at(offset, &chunk[..read])?;
        offset += read as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_one_sentence() {
        let recovered = Recovered {
            snapshot: Some(Sequence(40)),
            entries: 12,
            segments: 2,
            records: 300,
            record_bytes: 9000,
            last: Sequence(340),
            torn: Some(Torn { from: Sequence(341), bytes: 57 }),
            damaged_snapshot: None,
            was_closed: false,
        };
        assert_eq!(
            recovered.to_string(),
            "restored 12 entries of the snapshot from sequence number 40 and 300 records (9000 bytes) of 2 segments, \
             up to 340; the journal was not closed: 57 bytes from sequence number 341 on were torn and are cut off"
        );
        let new = Recovered { was_closed: true, ..Recovered::default() };
        assert_eq!(new.to_string(), "the journal is empty");
    }
}
