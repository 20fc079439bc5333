//! The seam to the log: what the server asks of whatever makes writes durable.
//!
//! The commands of one turn are one record, as RESP, with a SELECT where the database changes; several, where one would
//! be longer than the log takes. Under `always` a reply that says what a record holds waits until that record is
//! durable, and the loop goes on: later replies of the same client queue behind it, and so does a read of a key whose
//! write has not been made durable, by any client. `everysec` and `no` answer at once.

use super::key::DataKey;
use laneway_resp::command;
use std::collections::{HashMap, VecDeque};
use std::fmt;

/// When records are made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    /// Before the replies that depend on them.
    Always,
    /// Within a second.
    EverySecond,
    /// When the system likes.
    No,
}

impl Fsync {
    /// As in `--appendfsync`.
    pub fn name(self) -> &'static str {
        match self {
            Fsync::Always => "always",
            Fsync::EverySecond => "everysec",
            Fsync::No => "no",
        }
    }
}

/// Why a log does not take a record, or a piece of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// There is no room now; the worker's bell rings when there is.
    Full,
    /// It takes no more: [`Log::failed`] says why.
    Ended,
}

/// How the last snapshot of a log fares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Snapshot {
    /// None was begun since the start, or it was given up.
    None,
    /// It is being made.
    Writing,
    /// A start begins with it.
    InPlace,
    /// It could not be written, and why; the log is as it was.
    Failed(String),
}

/// What a log takes on its disk, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogBytes {
    /// The snapshot that a start would begin with.
    pub snapshot: u64,
    /// The records behind it.
    pub records: u64,
}

impl LogBytes {
    /// Both.
    pub fn total(self) -> u64 {
        self.snapshot + self.records
    }
}

/// What a log has made durable so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Syncs {
    /// Syncs of the disk.
    pub count: u64,
    /// How long they took, microseconds.
    pub took_us: u64,
    /// The records in them.
    pub records: u64,
    /// The commands in those.
    pub commands: u64,
    /// The most commands in one.
    pub commands_max: u64,
    /// Syncs that were begun a little later, for the sake of more commands.
    pub held: u64,
}

/// What makes records durable. None of it waits, but for [`Log::close`].
pub trait Log: fmt::Debug {
    /// Takes a record behind those before it: its number, one more than the last.
    ///
    /// # Errors
    /// It is not taken, now or ever.
    fn append(&mut self, record: &[u8]) -> Result<u64, NotTaken>;

    /// What was appended is on its way. Called in every turn, also in one without a record: what the log could not
    /// hand on at the time goes then, and room for more may depend on that.
    fn commit(&mut self);

    /// From now on no record is refused for want of room: the worker ends, and cannot wait for it.
    fn take_all(&mut self);

    /// Takes no more, and returns when all that was taken is durable; [`Log::failed`] says if that could not be.
    fn close(&mut self);

    /// So many commands are in the record that is appended next.
    fn awaited(&mut self, _commands: u32) {}

    /// What was made durable so far, if the log counts it.
    fn syncs(&self) -> Syncs {
        Syncs::default()
    }

    /// The longest record that it takes, in bytes.
    fn record_bytes_max(&self) -> usize;

    /// The number of the last record that was taken.
    fn last(&self) -> u64;

    /// The number of the last record that is durable, with all before it.
    fn durable(&self) -> u64;

    /// Why it takes no more, if that is so; it stays so until a restart.
    fn failed(&self) -> Option<String>;

    /// When records are made durable.
    fn fsync(&self) -> Fsync;

    /// Begins a snapshot of what all records so far have made.
    ///
    /// # Errors
    /// It cannot begin in this turn, or none can.
    fn begin_snapshot(&mut self) -> Result<(), NotTaken>;

    /// Adds a piece to the snapshot. A start has the pieces again in their order.
    ///
    /// # Errors
    /// The piece is not taken: the worker's bell rings when there is room, or [`Log::snapshot`] says why there is none.
    fn give_piece(&mut self, piece: &[u8]) -> Result<(), NotTaken>;

    /// The snapshot has all its pieces: it is put in place, and then the records go that it stands for. The worker's
    /// bell rings.
    fn finish_snapshot(&mut self);

    /// Gives up a snapshot that is not finished, if there is one.
    fn give_up_snapshot(&mut self);

    /// How the last snapshot fares.
    fn snapshot(&self) -> Snapshot;

    /// What it takes on its disk.
    fn bytes(&self) -> LogBytes;
}

/// A log, or none, and what has not been made durable.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    log: Option<Box<dyn Log>>,
    /// The record of this turn, so far.
    record: Vec<u8>,
    /// Commands in it.
    commands: u32,
    /// The database that its last command is of.
    selected: Option<usize>,
    /// The number that it will have.
    next: u64,
    /// Records that the log had no room for, with their commands, behind those that it took.
    ended: VecDeque<(Vec<u8>, u32)>,
    /// Keys whose newest value is not durable, with their record. Under `always` alone.
    unfinished: HashMap<DataKey, u64>,
    /// The same in the order of their records.
    order: VecDeque<(u64, DataKey)>,
    /// Databases that were emptied, likewise: no key of theirs is there.
    emptied: HashMap<usize, u64>,
    waits: bool,
}

/// A SELECT in front of a command.
const SELECT_BYTES_MAX: usize = 64;

/// A record's memory that is kept for the next.
const RECORD_KEPT_BYTES_MAX: usize = 1 << 20;

impl Journal {
    pub(crate) fn new(log: Option<Box<dyn Log>>) -> Journal {
        let waits = log.as_ref().is_some_and(|log| log.fsync() == Fsync::Always);
        let next = log.as_ref().map_or(0, |log| log.last() + 1);
        Journal { log, next, waits, ..Journal::default() }
    }

    /// True under `always`.
    pub(crate) fn waits(&self) -> bool {
        self.waits
    }

    pub(crate) fn is_on(&self) -> bool {
        self.log.is_some()
    }

    /// True while writes must wait: the log had no room for a record.
    pub(crate) fn is_full(&self) -> bool {
        !self.ended.is_empty()
    }

    pub(crate) fn fsync(&self) -> Fsync {
        self.log.as_ref().map_or(Fsync::EverySecond, |log| log.fsync())
    }

    pub(crate) fn failed(&self) -> Option<String> {
        self.log.as_ref()?.failed()
    }

    pub(crate) fn durable(&self) -> u64 {
        self.log.as_ref().map_or(u64::MAX, |log| log.durable())
    }

    pub(crate) fn syncs(&self) -> Syncs {
        self.log.as_ref().map_or_else(Syncs::default, |log| log.syncs())
    }

    /// Records that are not durable.
    pub(crate) fn pending(&self) -> u64 {
        self.log.as_ref().map_or(0, |log| log.last().saturating_sub(log.durable()))
    }

    pub(crate) fn bytes(&self) -> LogBytes {
        self.log.as_ref().map_or_else(LogBytes::default, |log| log.bytes())
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.log.as_ref().map_or(Snapshot::None, |log| log.snapshot())
    }

    /// Begins a snapshot, if all that was done is in records.
    pub(crate) fn begin_snapshot(&mut self) -> Result<(), NotTaken> {
        if !self.record.is_empty() || self.is_full() {
            return Err(NotTaken::Full);
        }
        self.log.as_mut().map_or(Err(NotTaken::Ended), |log| log.begin_snapshot())
    }

    pub(crate) fn give_piece(&mut self, piece: &[u8]) -> Result<(), NotTaken> {
        self.log.as_mut().map_or(Err(NotTaken::Ended), |log| log.give_piece(piece))
    }

    pub(crate) fn finish_snapshot(&mut self) {
        self.log.iter_mut().for_each(|log| log.finish_snapshot());
    }

    pub(crate) fn give_up_snapshot(&mut self) {
        self.log.iter_mut().for_each(|log| log.give_up_snapshot());
    }

    /// The number of the record that what is done now belongs to.
    pub(crate) fn current(&self) -> u64 {
        self.next
    }

    /// Makes a record of what there is, if a command of so many bytes would make this one too long. False: it is longer
    /// than any record.
    pub(crate) fn make_room(&mut self, bytes: usize) -> bool {
        let Some(log) = &self.log else { return true };
        let max = log.record_bytes_max();
        if self.record.len() + bytes + SELECT_BYTES_MAX > max {
            self.commit();
        }
        bytes + SELECT_BYTES_MAX <= max
    }

    /// Adds a command to the record of this turn: to a new one, where this one would be too long. Room was made for a
    /// command as it was given, and some have more to log than that: SPOP the members, MGET the keys that were due.
    pub(crate) fn add(&mut self, database: usize, args: &[&[u8]]) {
        if self.log.is_none() {
            return;
        }
        self.make_room(logged_bytes(args.iter().map(|arg| arg.len())));
        if self.selected != Some(database) {
            self.selected = Some(database);
            command(&[b"SELECT", database.to_string().as_bytes()], &mut self.record);
        }
        command(args, &mut self.record);
        self.commands += 1;
    }

    /// The newest value of `key` belongs to the record of this turn.
    pub(crate) fn touched(&mut self, key: &DataKey) {
        if self.waits && self.unfinished.insert(key.clone(), self.next) != Some(self.next) {
            self.order.push_back((self.next, key.clone()));
        }
    }

    /// All keys of a database were deleted.
    pub(crate) fn emptied(&mut self, database: usize) {
        if self.waits {
            self.emptied.insert(database, self.next);
        }
    }

    /// The record that must be durable before the value of `key` may be sent.
    pub(crate) fn unfinished(&self, database: usize, key: &[u8]) -> Option<u64> {
        if self.unfinished.is_empty() && self.emptied.is_empty() {
            return None;
        }
        let of_key = self.unfinished.get(&(database, key.into()));
        of_key.into_iter().chain(self.emptied.get(&database)).copied().max()
    }

    /// The same of all keys.
    pub(crate) fn newest_unfinished(&self) -> Option<u64> {
        if !self.waits {
            return None;
        }
        if self.record.is_empty() {
            (self.next > 1).then(|| self.next - 1).filter(|&last| last > self.durable())
        } else {
            Some(self.next)
        }
    }

    /// The worker ends: all that was done is made durable, though there is no room, for it was answered.
    pub(crate) fn end(&mut self) {
        self.log.iter_mut().for_each(|log| log.take_all());
        self.commit();
        self.log.iter_mut().for_each(|log| log.close());
    }

    /// The turn ends: its record is on its way.
    pub(crate) fn commit(&mut self) {
        let durable = self.durable();
        while let Some((record, key)) = self.order.pop_front_if(|(record, _)| *record <= durable) {
            if self.unfinished.get(&key) == Some(&record) {
                self.unfinished.remove(&key);
            }
        }
        self.emptied.retain(|_, record| *record > durable);
        if !self.record.is_empty() {
            self.ended.push_back((std::mem::take(&mut self.record), self.commands));
            (self.commands, self.selected) = (0, None);
            self.next += 1;
        }
        let Some(log) = &mut self.log else { return };
        // What earlier turns have left there goes first: it may be what takes up the room.
        log.commit();
        while let Some((record, commands)) = self.ended.front() {
            log.awaited(*commands);
            let number = log.append(record);
            if number == Err(NotTaken::Full) {
                break;
            }
            // Behind the end no number is ever durable, and each waiting client gets an error.
            let wanted = self.next - self.ended.len() as u64;
            debug_assert!(number.is_err() || number == Ok(wanted), "numbered one by one");
            let taken = self.ended.pop_front().map(|(record, _)| record);
            // Its memory is the next one's.
            if let Some(mut taken) = taken.filter(|taken| taken.capacity() <= RECORD_KEPT_BYTES_MAX)
                && self.record.capacity() == 0
            {
                taken.clear();
                self.record = taken;
            }
        }
        log.commit();
    }
}

/// Bytes of a command in the log, at most.
pub(crate) fn logged_bytes(args: impl Iterator<Item = usize>) -> usize {
    // The type's byte, 20 digits and two line ends.
    const HEAD_BYTES_MAX: usize = 25;
    args.map(|len| len + HEAD_BYTES_MAX).sum::<usize>() + HEAD_BYTES_MAX
}
