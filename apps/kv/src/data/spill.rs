//! The values that memory has no room for: the value store that has them, and what it is asked.
//! [`spilling`](super::spilling) is what a [`Store`](super::Store) does with it.

use super::directory::Keyed;
use super::encoding::Owed;
use super::entry::Entry;
use std::collections::HashMap;
use std::fmt;

/// Where values are that memory has no room for, by numbers that are given once. None of it waits, but
/// [`wait`](ValueStore::wait).
pub trait ValueStore: fmt::Debug {
    /// True if it takes a value now; the worker's bell rings when it does so again.
    fn has_room(&self) -> bool;

    /// Takes a value. It can be asked for at once.
    fn put(&mut self, number: u64, value: Vec<u8>);

    /// Forgets a value, which is given again to commands that have asked for it before.
    fn forget(&mut self, number: u64);

    /// Asks for a value. The worker's bell rings when there is an answer.
    fn ask(&mut self, number: u64);

    /// The answers there are: each number that was asked for, with its value or why there is none.
    fn answers(&mut self) -> Vec<(u64, Result<Vec<u8>, String>)>;

    /// Waits until there is an answer, or room.
    fn wait(&mut self);

    /// Why it takes no more values, if that is so; it stays so until a restart. What it has can still be asked for.
    fn failed(&self) -> Option<String>;

    /// Bytes that it takes on its disk.
    fn disk_bytes(&self) -> u64;
}

/// What INFO says of spilled values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpillCounts {
    /// Values that are in the value store alone.
    pub values: usize,
    /// Values that were written there since the start.
    pub written: u64,
    /// Values that were spilled without being written: they had not changed since they were fetched.
    pub unwritten: u64,
    /// Values that were fetched.
    pub fetched: u64,
    /// Commands that had to wait for a value in their turn, which stops the worker.
    pub waited: u64,
    /// Bytes that the value store takes on its disk.
    pub disk_bytes: u64,
}

/// The result of spilling one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spilling {
    /// It is in the value store.
    Done,
    /// The value store has no room now.
    Behind,
    /// There is none to spill, or no value store to spill it to.
    Nothing,
}

/// A value store, and what it is asked.
#[derive(Debug)]
pub(super) struct Spill {
    pub(super) values: Box<dyn ValueStore>,
    /// The number that the next value has.
    pub(super) next: u64,
    /// What commands wait for: the database and the hash of the key when it was asked for.
    pub(super) asked: HashMap<u64, (usize, u64)>,
    /// What a snapshot waits for.
    pub(super) owed: HashMap<u64, Owed>,
    /// Entries that a snapshot has waited for.
    pub(super) arrived: Vec<u8>,
    /// Why one of them cannot be written.
    pub(super) owed_failed: Option<String>,
    pub(super) counts: SpillCounts,
}

impl Spill {
    /// Nothing is spilled yet, and the value store is empty.
    pub(super) fn new(values: Box<dyn ValueStore>) -> Spill {
        Spill {
            values,
            next: 1,
            asked: HashMap::new(),
            owed: HashMap::new(),
            arrived: Vec::new(),
            owed_failed: None,
            counts: SpillCounts::default(),
        }
    }

    /// Asks for the values that a snapshot needs.
    pub(super) fn ask_owed(&mut self, owed: Vec<Owed>) {
        for owed in owed {
            self.ask(owed.number);
            self.owed.insert(owed.number, owed);
        }
    }

    /// Asks for a value, once.
    pub(super) fn ask(&mut self, number: u64) {
        if !self.asked.contains_key(&number) && !self.owed.contains_key(&number) {
            self.values.ask(number);
        }
    }

    /// True while a snapshot waits for something, or has not taken it.
    pub(super) fn is_owed(&self) -> bool {
        !self.owed.is_empty() || !self.arrived.is_empty()
    }
}

/// True if it is worth while to spill an entry's value.
pub(super) fn is_worth_spilling(entry: &Entry) -> bool {
    entry.key().len() <= usize::from(u8::MAX) && entry.bytes() > entry.spilled_bytes()
}
