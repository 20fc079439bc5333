//! The seam to the log: what the server asks of whatever makes writes durable.
//!
//! The commands of one turn are one record, as RESP, with a SELECT where the database changes. Under `always` a reply
//! that says what a record holds waits until that record is durable, and the loop goes on: later replies of the same
//! client queue behind it, and so does a read of a key whose write has not been made durable, whoever reads. `everysec` and `no` answer at
//! once.

use super::client::DataKey;
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

/// Why a log does not take a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// There is no room now; the worker's bell rings when there is.
    Full,
    /// It takes no more: [`Log::failed`] says why.
    Ended,
}

/// What makes records durable. None of it waits.
pub trait Log: fmt::Debug {
    /// Queues a record behind those before it: its number, one more than the last.
    ///
    /// # Errors
    /// It is not taken, now or ever.
    fn append(&mut self, record: &[u8]) -> Result<u64, NotTaken>;

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
}

/// A log, or none, and what has not been made durable.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    log: Option<Box<dyn Log>>,
    /// The record of this turn, so far.
    record: Vec<u8>,
    /// The database that its last command is of.
    selected: Option<usize>,
    /// The number that it will have.
    next: u64,
    /// Keys whose newest value is not durable, with their record. Under `always` alone.
    unfinished: HashMap<DataKey, u64>,
    /// The same in the order of their records.
    order: VecDeque<(u64, DataKey)>,
    /// Databases that were emptied, likewise: no key of theirs is there.
    emptied: HashMap<usize, u64>,
    waits: bool,
    /// The log had no room for the record: no further write is done until it has.
    is_full: bool,
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

    /// True while writes must wait for room.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
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

    /// Adds a command to the record of this turn.
    pub(crate) fn add(&mut self, database: usize, args: &[&[u8]]) {
        if self.log.is_none() {
            return;
        }
        if self.selected != Some(database) {
            self.selected = Some(database);
            command(&[b"SELECT", database.to_string().as_bytes()], &mut self.record);
        }
        command(args, &mut self.record);
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

    /// The record that must be durable before the value of `key` may be told.
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

    /// The turn ends: its record is on its way.
    pub(crate) fn commit(&mut self) {
        let durable = self.durable();
        while let Some((record, key)) = self.order.pop_front_if(|(record, _)| *record <= durable) {
            if self.unfinished.get(&key) == Some(&record) {
                self.unfinished.remove(&key);
            }
        }
        self.emptied.retain(|_, record| *record > durable);
        let Some(log) = self.log.as_mut().filter(|_| !self.record.is_empty()) else { return };
        let number = log.append(&self.record);
        self.is_full = number == Err(NotTaken::Full);
        if self.is_full {
            return;
        }
        // Behind the end no number is ever durable, and whoever waits for one is told so.
        debug_assert!(number.is_err() || number == Ok(self.next), "numbered one by one");
        self.next += 1;
        self.selected = None;
        self.record.clear();
        if self.record.capacity() > RECORD_KEPT_BYTES_MAX {
            self.record = Vec::new();
        }
    }
}
