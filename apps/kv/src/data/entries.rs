//! The entries of a database: those whose values are in memory, and those whose values were spilled, which are in a
//! value store. A key is in one of the two; to every look-up both are one directory.
//!
//! ```text
//!   memory: key, deadline, use, value ◀── fetch ── spill ──▶ spilled: key, deadline, use, number
//!       │                                                             └─▶ value store: number ─▶ value
//!       ╰─ copies: of a value that was fetched and not changed since, the number that it still has there
//! ```
//!
//! Two directories rather than one, so that a draw of a value to spill is a draw of one in memory, however few these
//! are. The order of both is that of their hashes, so an entry that goes from one to the other keeps its place in every
//! walk.
//!
//! What must always hold: a number is of one entry or copy. Where that is replaced, removed or changed, the number is
//! released, once.

use super::chance::KeyHasher;
use super::directory::{Directory, Keyed, Shown, scan_all, walk_all};
use super::entry::Entry;
use super::memory::Pieces;
use laneway_random::Random;
use std::collections::HashMap;

/// What a copy takes: two numbers in a table that is half full.
const COPY_BYTES: usize = 34;

#[derive(Debug)]
pub(crate) struct Entries {
    memory: Directory<Entry>,
    spilled: Directory<Entry>,
    /// By the hash of the key.
    copies: HashMap<u64, u64>,
    /// Numbers that nothing names any more, for the value store to forget.
    pub(super) released: Vec<u64>,
}

impl Entries {
    pub(super) fn new(hasher: KeyHasher) -> Entries {
        let (memory, spilled) = (Directory::new(hasher.clone()), Directory::new(hasher));
        Entries { memory, spilled, copies: HashMap::new(), released: Vec::new() }
    }

    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.memory.hash(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.memory.len() + self.spilled.len()
    }

    /// How many values are in memory.
    pub(super) fn in_memory(&self) -> usize {
        self.memory.len()
    }

    /// How many are not.
    pub(super) fn spilled(&self) -> usize {
        self.spilled.len()
    }

    /// Bytes that the copies take.
    pub(super) fn copies_bytes(&self) -> usize {
        self.copies.len() * COPY_BYTES
    }

    pub(crate) fn find(&self, hash: u64, key: &[u8]) -> Option<&Entry> {
        let found = self.memory.find(hash, key);
        if found.is_some() || self.spilled.is_empty() {
            return found;
        }
        self.spilled.find(hash, key)
    }

    pub(super) fn find_mut(&mut self, hash: u64, key: &[u8]) -> Option<&mut Entry> {
        if !self.spilled.is_empty() && self.memory.find(hash, key).is_none() {
            return self.spilled.find_mut(hash, key);
        }
        self.memory.find_mut(hash, key)
    }

    /// Every entry whose key has this hash: one, but for chance.
    pub(super) fn with_hash(&self, hash: u64) -> impl Iterator<Item = &Entry> {
        self.memory.with_hash(hash).chain(self.spilled.with_hash(hash))
    }

    /// Puts an entry whose value is in memory in the place of the one with its key, which is handed back, or adds it.
    pub(super) fn put(&mut self, hash: u64, entry: Entry) -> Option<Entry> {
        self.changes(hash);
        if let Some(there) = self.memory.find_mut(hash, entry.key()) {
            return Some(std::mem::replace(there, entry));
        }
        let before = self.take_spilled(hash, entry.key());
        self.memory.insert(hash, entry);
        before
    }

    pub(super) fn remove(&mut self, hash: u64, key: &[u8]) -> Option<Entry> {
        self.changes(hash);
        self.memory.remove(hash, key).or_else(|| self.take_spilled(hash, key))
    }

    /// A value with this hash is about to be another: its copy is of no use.
    pub(super) fn changes(&mut self, hash: u64) {
        if !self.copies.is_empty() {
            self.released.extend(self.copies.remove(&hash));
        }
    }

    /// Takes out an entry whose value was spilled and will not be asked for.
    fn take_spilled(&mut self, hash: u64, key: &[u8]) -> Option<Entry> {
        if self.spilled.is_empty() {
            return None;
        }
        let entry = self.spilled.remove(hash, key)?;
        self.released.extend(entry.stored().map(|(number, _)| number));
        Some(entry)
    }

    /// The number of a value in memory that the value store has as well.
    pub(super) fn copy(&self, hash: u64) -> Option<u64> {
        // Two keys of one hash have one place for a copy, which may be of either.
        let number = *self.copies.get(&hash)?;
        (self.with_hash(hash).count() == 1).then_some(number)
    }

    /// Puts an entry without its value in the place of the one with it, which is handed back.
    pub(super) fn spill(&mut self, hash: u64, spilled: Entry) -> Option<Entry> {
        let entry = self.memory.remove(hash, spilled.key())?;
        let number = spilled.stored().map(|(number, _)| number);
        let copy = self.copies.remove(&hash);
        self.released.extend(copy.filter(|copy| number != Some(*copy)));
        self.spilled.insert(hash, spilled);
        Some(entry)
    }

    /// The entry whose value has this number.
    pub(super) fn find_spilled(&self, hash: u64, number: u64) -> Option<&Entry> {
        let is_meant = |entry: &&Entry| entry.stored().is_some_and(|(of, _)| of == number);
        self.spilled.with_hash(hash).find(is_meant)
    }

    /// Puts an entry with its value in the place of the one without, which is handed back; the value store keeps the
    /// value.
    pub(super) fn fetched(&mut self, hash: u64, entry: Entry) -> Option<Entry> {
        let before = self.spilled.remove(hash, entry.key())?;
        if let Some((number, _)) = before.stored() {
            self.released.extend(self.copies.insert(hash, number));
        }
        self.memory.insert(hash, entry);
        Some(before)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.memory.iter().chain(self.spilled.iter())
    }

    /// Shows entries in the order of their places, from `from` on, until at least `count` were shown; the place to
    /// go on at, or 0 at the end.
    pub(crate) fn scan(&self, from: u64, count: usize, show: impl FnMut(&Entry)) -> u64 {
        scan_all(&[&self.memory, &self.spilled], from, count, show)
    }

    /// Shows entries in the order of their places, from `from` on, with their hashes, until `show` returns
    /// `Shown::Enough` for one: those with its place are shown as well. Returns the place to go on at.
    pub(super) fn walk(&self, from: u64, show: impl FnMut(u64, &Entry) -> Shown) -> u64 {
        walk_all(&[&self.memory, &self.spilled], from, show)
    }

    /// An entry by chance.
    pub(crate) fn random(&self, chance: &mut Random) -> Option<&Entry> {
        match self.spilled.is_empty() || chance.index(self.len()) < self.memory.len() {
            true => self.memory.random(chance),
            false => self.spilled.random(chance),
        }
    }

    /// An entry by chance whose value is in memory.
    pub(super) fn random_in_memory(&self, chance: &mut Random) -> Option<&Entry> {
        self.memory.random(chance)
    }

    /// Frees a piece; false if nothing is left. The numbers of what was spilled are added to `released`.
    pub(super) fn free_piece(&mut self, released: &mut Vec<u64>) -> bool {
        if self.memory.free_piece() {
            return true;
        }
        released.append(&mut self.released);
        released.extend(std::mem::take(&mut self.copies).into_values());
        match self.spilled.pop_segment() {
            Some(entries) => {
                released
                    .extend(entries.filter_map(|entry| entry.stored()).map(|(number, _)| number));
                true
            }
            None => false,
        }
    }
}
