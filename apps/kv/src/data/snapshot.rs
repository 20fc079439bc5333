//! Snapshots without a fork: a walk through all entries in bounded steps, while commands go on.
//!
//! A snapshot holds the data of the moment when it began, exactly: an entry that the walk has not reached yet is
//! written before it changes, and a database that is flushed or swapped is walked where it went. So a snapshot and the
//! log from that moment on are the data, and no command must be one that can be done twice. The other way, to write
//! each entry as the walk meets it, would need every command to be: RENAME, LMOVE or SMOVE of a key on either side of
//! the walk is not. The price is memory for 8 bytes per key that is first written during a snapshot, and for those
//! entries until the next step.
//!
//! A value that was spilled is asked of the value store, at the latest before that is to forget it, and its entry
//! written when the answer is there. The order of entries means nothing.
//!
//! [`encoding`](super::encoding) says what an entry looks like.

use super::database::{Database, Walk};
use super::directory::{Keyed, PLACE_END, Shown};
use super::encoding::{Owed, Reader, read, show};
use super::spill::Spill;
use super::store::Store;
use std::collections::HashSet;

/// Where a snapshot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotStep {
    /// It goes on.
    More,
    /// Every entry is written.
    Done,
}

/// An entry of a snapshot that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// How many bytes of it could be read.
    pub at: usize,
}

impl std::fmt::Display for Damaged {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "the entry of the snapshot cannot be read from its byte {} on", self.at)
    }
}

impl std::error::Error for Damaged {}

/// Spilled values that are asked for at a time, but for those of entries that change.
const OWED_MAX: usize = 256;
impl Store {
    /// Begins a snapshot of all databases as they are now; one that is under way is given up.
    pub fn snapshot_begin(&mut self) {
        self.snapshot_end();
        for (number, database) in self.databases.iter_mut().enumerate() {
            if database.entries.len() > 0 {
                let (early, waiting, owed) = (HashSet::new(), Vec::new(), Vec::new());
                database.walk = Some(Walk { number, place: 0, early, waiting, owed });
            }
        }
    }

    /// Appends entries to `out`, each readable by [`Store::load_entry`]: those that were about to change since the last
    /// step, then about `keys` more, and none behind so many `bytes` of them. A single large value is written whole.
    pub fn snapshot_step(&mut self, keys: usize, bytes: usize, out: &mut Vec<u8>) -> SnapshotStep {
        self.ask_and_release();
        let owed = self.spill.as_mut().map_or(0, |spill| {
            out.append(&mut spill.arrived);
            spill.owed.len()
        });
        let values = OWED_MAX.saturating_sub(owed);
        let mut left = Left { keys: keys.max(1), bytes: bytes.max(1), values };
        for database in self.flushed.iter_mut().chain(&mut self.databases) {
            if let Some(walk) = &mut database.walk {
                out.append(&mut walk.waiting);
            }
        }
        let mut done = true;
        while let Some(mut database) = self.flushed.pop() {
            done = step(&mut database, &mut left, out);
            if !done {
                self.flushed.push(database);
                break;
            }
            if let (Some(walk), Some(spill)) = (database.walk.take(), &mut self.spill) {
                spill.ask_owed(walk.owed);
            }
            self.dropped.entries(database.entries);
        }
        for database in &mut self.databases {
            done = done && step(database, &mut left, out);
        }
        self.ask_and_release();
        let is_owed = self.spill.as_ref().is_some_and(|spill| spill.is_owed());
        if done && !is_owed { SnapshotStep::Done } else { SnapshotStep::More }
    }

    /// True while a snapshot can only go on when the value store has answered.
    pub fn snapshot_waits(&self) -> bool {
        let is_answered = |spill: &Spill| spill.arrived.is_empty() && spill.owed.len() >= OWED_MAX;
        let is_walked = || {
            self.flushed.is_empty()
                && self.databases.iter().all(|one| one.walk.as_ref().is_none_or(Walk::is_done))
        };
        self.spill.as_ref().is_some_and(|spill| {
            is_answered(spill) || !spill.owed.is_empty() && spill.arrived.is_empty() && is_walked()
        })
    }

    /// Why a snapshot lacks a value, if it does.
    pub fn snapshot_failed(&self) -> Option<String> {
        self.spill.as_ref()?.owed_failed.clone()
    }

    /// Bytes of entries that were about to change and that the next step appends.
    pub fn snapshot_copied_bytes(&self) -> usize {
        let walks = self.flushed.iter().chain(&self.databases).filter_map(|one| one.walk.as_ref());
        let copied: usize =
            walks.map(|walk| walk.waiting.len() + walk.owed.len() * size_of::<Owed>()).sum();
        let asked = |spill: &Spill| spill.arrived.len() + spill.owed.len() * size_of::<Owed>();
        copied + self.spill.as_ref().map_or(0, asked)
    }

    /// Gives up a snapshot that is under way.
    pub fn snapshot_end(&mut self) {
        for database in self.flushed.drain(..) {
            self.dropped.entries(database.entries);
        }
        self.databases.iter_mut().for_each(|database| database.walk = None);
        if let Some(spill) = &mut self.spill {
            spill.owed.clear();
            (spill.arrived, spill.owed_failed) = (Vec::new(), None);
        }
    }

    /// Adds the entry that begins `bytes`; how many bytes it is.
    pub fn load_entry(&mut self, bytes: &[u8]) -> Result<usize, Damaged> {
        let mut reader = Reader::new(bytes);
        let loaded = read(&mut reader, self.databases.len(), &self.hasher);
        let (number, entry) = loaded.ok_or(Damaged { at: reader.at })?;
        let database = &mut self.databases[number];
        let hash = database.entries.hash(entry.key());
        database.insert(hash, entry);
        Ok(reader.at)
    }
}

/// What a step may still do.
struct Left {
    /// Looks at an entry, or at a part of the directory that has none.
    keys: usize,
    bytes: usize,
    /// Asks for spilled values.
    values: usize,
}

impl Left {
    fn is_nothing(&self) -> bool {
        self.keys == 0 || self.bytes == 0 || self.values == 0
    }
}

/// Walks on through a database; true at its end.
fn step(database: &mut Database, left: &mut Left, out: &mut Vec<u8>) -> bool {
    let Some(walk) = &mut database.walk else { return true };
    while !left.is_nothing() && walk.place < PLACE_END {
        let mut is_empty = true;
        let Walk { number, place, early, owed, .. } = walk;
        *place = database.entries.walk(*place, |hash, entry| {
            let (before, owed_before) = (out.len(), owed.len());
            if !early.contains(&hash) {
                show(*number, entry, out, owed);
            }
            left.values = left.values.saturating_sub(owed.len() - owed_before);
            is_empty = false;
            left.keys = left.keys.saturating_sub(1);
            left.bytes = left.bytes.saturating_sub(out.len() - before);
            if left.is_nothing() { Shown::Enough } else { Shown::More }
        });
        left.keys = left.keys.saturating_sub(usize::from(is_empty));
    }
    // One whose values are still to be asked for is done with the next step.
    let done = walk.is_done();
    if done && walk.owed.is_empty() {
        database.walk = None;
    }
    done
}
