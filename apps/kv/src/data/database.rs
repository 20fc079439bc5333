//! One numbered database: its entries, and the deadlines of those that have one, soonest first.
//!
//! Every change goes through [`Database::insert`], [`Database::remove`] or [`Database::change`], which keep the
//! deadlines and the count of bytes, and show a running snapshot what is about to change.

use super::chance::KeyHasher;
use super::directory::{Keyed, PLACE_END, place};
use super::encoding::{self, Owed};
use super::entries::Entries;
use super::entry::Entry;
use std::collections::{BTreeSet, HashSet};

#[derive(Debug)]
pub(super) struct Database {
    pub(super) entries: Entries,
    /// By time, then by the key's hash.
    deadlines: BTreeSet<(u64, u64)>,
    /// What all entries take.
    bytes: usize,
    /// Where a snapshot is in it.
    pub(super) walk: Option<Walk>,
}

/// How far a snapshot of a database is.
#[derive(Debug)]
pub(super) struct Walk {
    /// Its number when the snapshot began.
    pub(super) number: usize,
    /// Entries before this place are written.
    pub(super) place: u64,
    /// Hashes behind it that were written early, since their entries were about to change.
    pub(super) early: HashSet<u64>,
    /// Entries written early that the next step takes.
    pub(super) waiting: Vec<u8>,
    /// Entries whose values the value store must be asked for.
    pub(super) owed: Vec<Owed>,
}

impl Walk {
    /// True if it has reached the end.
    pub(super) fn is_done(&self) -> bool {
        self.place >= PLACE_END
    }
}

impl Database {
    pub(super) fn new(hasher: KeyHasher) -> Database {
        let entries = Entries::new(hasher);
        Database { entries, deadlines: BTreeSet::new(), bytes: 0, walk: None }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.entries.copies_bytes()
    }

    /// How many entries have a deadline.
    pub(super) fn deadlines(&self) -> usize {
        self.deadlines.len()
    }

    /// The key whose deadline is the soonest, with its hash.
    pub(super) fn soonest(&self) -> Option<(u64, &[u8])> {
        let (deadline_ms, hash) = self.deadlines.first()?;
        let mut entries = self.entries.with_hash(*hash);
        let entry = entries.find(|entry| entry.deadline_ms() == Some(*deadline_ms))?;
        Some((*hash, entry.key()))
    }

    /// The soonest deadline.
    pub(super) fn soonest_ms(&self) -> Option<u64> {
        self.deadlines.first().map(|(deadline_ms, _)| *deadline_ms)
    }

    /// Puts an entry in the place of the one with its key, or adds it. True if it is new.
    pub(super) fn insert(&mut self, hash: u64, entry: Entry) -> bool {
        self.before_change(hash);
        self.bytes += entry.bytes();
        if let Some(deadline_ms) = entry.deadline_ms() {
            self.deadlines.insert((deadline_ms, hash));
        }
        let after = entry.deadline_ms();
        let Some(before) = self.entries.put(hash, entry) else { return true };
        self.bytes -= before.bytes();
        if before.deadline_ms() != after {
            self.forget_deadline(hash, before.deadline_ms());
        }
        false
    }

    pub(super) fn remove(&mut self, hash: u64, key: &[u8]) -> Option<Entry> {
        self.before_change(hash);
        let entry = self.entries.remove(hash, key)?;
        self.bytes -= entry.bytes();
        self.forget_deadline(hash, entry.deadline_ms());
        Some(entry)
    }

    /// Changes an entry in place: its value or its deadline, not its key.
    pub(super) fn change<R>(
        &mut self,
        hash: u64,
        key: &[u8],
        change: impl FnOnce(&mut Entry) -> R,
    ) -> Option<R> {
        self.before_change(hash);
        self.entries.changes(hash);
        let entry = self.entries.find_mut(hash, key)?;
        let (bytes, before) = (entry.bytes(), entry.deadline_ms());
        let result = change(entry);
        let after = entry.deadline_ms();
        self.bytes = self.bytes - bytes + entry.bytes();
        if before != after {
            if let Some(deadline_ms) = after {
                self.deadlines.insert((deadline_ms, hash));
            }
            self.forget_deadline(hash, before);
        }
        Some(result)
    }

    /// Overwrites a small string by one of the same length, if that is all there is to do; true if it did.
    pub(super) fn overwrite(&mut self, hash: u64, key: &[u8], value: &[u8], last_use: u32) -> bool {
        if self.walk.is_some() {
            return false;
        }
        let entry = self.entries.find_mut(hash, key);
        let is_done = entry.is_some_and(|entry| {
            entry.overwrite(value) && {
                entry.set_last_use(last_use);
                true
            }
        });
        if is_done {
            self.entries.changes(hash);
        }
        is_done
    }

    /// Puts an entry without its value in the place of the one with it. Nothing has changed by that, for a snapshot
    /// neither.
    pub(super) fn spill(&mut self, hash: u64, spilled: Entry) {
        let bytes = spilled.bytes();
        if let Some(before) = self.entries.spill(hash, spilled) {
            self.bytes = self.bytes + bytes - before.bytes();
        }
    }

    /// Puts an entry with its value in the place of the one without.
    pub(super) fn fetched(&mut self, hash: u64, entry: Entry) {
        let bytes = entry.bytes();
        if let Some(before) = self.entries.fetched(hash, entry) {
            self.bytes = self.bytes + bytes - before.bytes();
        }
    }

    fn forget_deadline(&mut self, hash: u64, deadline_ms: Option<u64>) {
        if let Some(deadline_ms) = deadline_ms {
            self.deadlines.remove(&(deadline_ms, hash));
        }
    }

    /// A snapshot is of the moment when it began: what it has not reached yet is written before it changes, once.
    fn before_change(&mut self, hash: u64) {
        let Some(walk) = &mut self.walk else { return };
        if place(hash) >= walk.place && walk.early.insert(hash) {
            for entry in self.entries.with_hash(hash) {
                encoding::show(walk.number, entry, &mut walk.waiting, &mut walk.owed);
            }
        }
    }
}
