//! What was deleted and is too large to free at once: freed in pieces, some at every call of
//! [`Store::expire_some`](super::Store::expire_some).
//!
//! A piece is at most what one segment of a directory, one leaf of a tree or one chunk of a list holds. Memory is
//! counted as free at once. A database's own entries are freed by segments, whatever their values hold.

use super::entries::Entries;
use super::entry::{Entry, Value};
use super::memory::Pieces;
use std::collections::VecDeque;

/// No more wait to be freed: the oldest is freed whole.
const WAITING_MAX: usize = 1024;
/// A collection of no more entries is freed at once.
const SMALL_MAX: usize = 512;

/// What waits to be freed.
#[derive(Debug, Default)]
pub(super) struct Dropped {
    waiting: VecDeque<Waiting>,
    /// Numbers of spilled values of databases that were flushed: nothing names them any more.
    pub(super) released: Vec<u64>,
}

#[derive(Debug)]
enum Waiting {
    Value(Value),
    Entries(Entries),
}

impl Dropped {
    /// Takes an entry that was deleted.
    pub(super) fn entry(&mut self, entry: Entry) {
        let Entry::Big(object) = entry else { return };
        let len = match &object.value {
            Value::Text(_) => 0,
            Value::List(list) => list.len(),
            Value::Set(set) => set.len(),
            Value::Hash(hash) => hash.len(),
            Value::Sorted(sorted) => sorted.len(),
        };
        if len > SMALL_MAX {
            self.push(Waiting::Value(object.value));
        }
    }

    /// Takes the entries of a database that was flushed.
    pub(super) fn entries(&mut self, mut entries: Entries) {
        if entries.len() > SMALL_MAX {
            return self.push(Waiting::Entries(entries));
        }
        while entries.free_piece(&mut self.released) {}
    }

    /// Frees up to `pieces`.
    pub(super) fn free(&mut self, pieces: usize) {
        for _ in 0..pieces {
            let is_left = match self.waiting.front_mut() {
                None => return,
                Some(Waiting::Value(value)) => value.free_piece(),
                Some(Waiting::Entries(entries)) => entries.free_piece(&mut self.released),
            };
            if !is_left {
                self.waiting.pop_front();
            }
        }
    }

    /// True if nothing waits.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn push(&mut self, waiting: Waiting) {
        if self.waiting.len() == WAITING_MAX
            && let Some(Waiting::Entries(mut entries)) = self.waiting.pop_front()
        {
            while entries.free_piece(&mut self.released) {}
        }
        self.waiting.push_back(waiting);
    }
}

impl Pieces for Value {
    fn free_piece(&mut self) -> bool {
        match self {
            Value::Text(_) => false,
            Value::List(list) => list.free_piece(),
            Value::Set(set) => set.free_piece(),
            Value::Hash(hash) => hash.free_piece(),
            Value::Sorted(sorted) => sorted.free_piece(),
        }
    }
}
