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
//! An entry is: database, deadline + 1 or 0, form and kind (1 byte), key, value; numbers as in
//! [`packed`](super::packed), byte strings behind their length, scores as 8 bytes, low ones first.

use super::chance::KeyHasher;
use super::database::{Database, Walk};
use super::directory::{Keyed, PLACE_END, Shown};
use super::entry::{Entry, Form, Value};
use super::list::{End, List};
use super::packed::write_varint;
use super::spill::Spill;
use super::store::Store;
use super::{hash::Hash, set::Set, sorted::Sorted};
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

const TEXT: u8 = 0;
const LIST: u8 = 1;
const SET: u8 = 2;
const HASH: u8 = 3;
const SORTED: u8 = 4;
const KIND: u8 = 0x0f;
/// Spilled values that are asked for at a time, but for those of entries that change.
const OWED_MAX: usize = 256;
const FORM_TEXT: u8 = 0x10;
const FORM_RAW: u8 = 0x20;
/// The value had outgrown the form for small ones, and stays so.
const LARGE: u8 = 0x40;

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
        let mut reader = Reader { bytes, at: 0 };
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

/// An entry whose value is with the value store.
#[derive(Debug)]
pub(super) struct Owed {
    pub(super) number: u64,
    /// Of the entry, as it is written in front of the kind.
    head: Vec<u8>,
    key: Box<[u8]>,
}

impl Owed {
    /// Appends the entry, by its value as [`stored_value`] made it.
    pub(super) fn write(&self, value: &[u8], out: &mut Vec<u8>) {
        let Some((kind, value)) = value.split_first() else { return };
        out.extend_from_slice(&self.head);
        out.push(*kind);
        write_bytes(out, &self.key);
        out.extend_from_slice(value);
    }
}

/// Writes an entry, or notes that its value must be asked for.
pub(super) fn show(database: usize, entry: &Entry, out: &mut Vec<u8>, owed: &mut Vec<Owed>) {
    match entry.stored() {
        None => write(out, database, entry),
        Some((number, _)) => {
            let mut head = Vec::new();
            write_head(&mut head, database, entry.deadline_ms());
            owed.push(Owed { number, head, key: entry.key().into() });
        }
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

impl Walk {
    fn is_done(&self) -> bool {
        self.place >= PLACE_END
    }
}

/// Appends an entry whose value is in memory.
pub(super) fn write(out: &mut Vec<u8>, database: usize, entry: &Entry) {
    write_head(out, database, entry.deadline_ms());
    out.push(kind_of(entry));
    write_bytes(out, entry.key());
    write_value(out, entry);
}

fn write_head(out: &mut Vec<u8>, database: usize, deadline_ms: Option<u64>) {
    write_varint(out, database);
    write_varint(out, deadline_ms.map_or(0, |ms| ms.saturating_add(1) as usize));
}

/// Form and kind of an entry's value, which is in memory.
pub(super) fn kind_of(entry: &Entry) -> u8 {
    let form = match entry.form() {
        Form::Whole => 0,
        Form::Text => FORM_TEXT,
        Form::Raw => FORM_RAW,
    };
    let large = |is_large| if is_large { LARGE } else { 0 };
    let kind = match entry.value() {
        None | Some(Value::Text(_)) => TEXT,
        Some(Value::List(_)) => LIST,
        Some(Value::Set(set)) => SET | large(set.encoding() != "intset"),
        Some(Value::Hash(hash)) => HASH | large(hash.encoding() != "listpack"),
        Some(Value::Sorted(sorted)) => SORTED | large(sorted.encoding() != "listpack"),
    };
    form | kind
}

/// What TYPE says of such a kind.
pub(super) fn kind_name(kind: u8) -> &'static str {
    match kind & KIND {
        LIST => "list",
        SET => "set",
        HASH => "hash",
        SORTED => "zset",
        _ => "string",
    }
}

/// A value that is in memory as the value store has it: its kind, then as in a snapshot.
pub(super) fn stored_value(entry: &Entry) -> Vec<u8> {
    let mut out = vec![kind_of(entry)];
    write_value(&mut out, entry);
    out
}

/// The entry with the value that was stored for it; nothing if these are not its bytes.
pub(super) fn with_stored_value(entry: &Entry, value: &[u8], hasher: &KeyHasher) -> Option<Entry> {
    let (kind, bytes) = value.split_first()?;
    let mut reader = Reader { bytes, at: 0 };
    let mut read = read_value(&mut reader, *kind, entry.key(), entry.deadline_ms(), hasher)?;
    read.set_last_use(entry.last_use());
    (reader.at == bytes.len()).then_some(read)
}

fn write_value(out: &mut Vec<u8>, entry: &Entry) {
    match entry.value() {
        None | Some(Value::Text(_)) => write_bytes(out, entry.as_text().unwrap_or(&[])),
        Some(Value::List(list)) => {
            write_varint(out, list.len());
            list.iter().for_each(|value| write_bytes(out, value));
        }
        Some(Value::Set(set)) => {
            write_varint(out, set.len());
            set.each(|member| {
                write_bytes(out, member);
                true
            });
        }
        Some(Value::Hash(hash)) => {
            write_varint(out, hash.len());
            hash.each(|field, value| {
                write_bytes(out, field);
                write_bytes(out, value);
            });
        }
        Some(Value::Sorted(sorted)) => {
            write_varint(out, sorted.len());
            sorted.visit(0..sorted.len(), false, |member, score| {
                write_bytes(out, member);
                out.extend_from_slice(&score.to_le_bytes());
            });
        }
    }
}

fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    write_varint(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn read(reader: &mut Reader<'_>, databases: usize, hasher: &KeyHasher) -> Option<(usize, Entry)> {
    let database = reader.number().filter(|number| *number < databases)?;
    let deadline_ms = reader.number()?.checked_sub(1).map(|ms| ms as u64);
    let kind = reader.byte()?;
    let key = reader.bytes()?;
    Some((database, read_value(reader, kind, key, deadline_ms, hasher)?))
}

/// Reads a value of this kind.
fn read_value(
    reader: &mut Reader<'_>,
    kind: u8,
    key: &[u8],
    deadline_ms: Option<u64>,
    hasher: &KeyHasher,
) -> Option<Entry> {
    let form = match kind & (FORM_TEXT | FORM_RAW) {
        0 => Form::Whole,
        FORM_TEXT => Form::Text,
        _ => Form::Raw,
    };
    let is_large = kind & LARGE != 0;
    let value = match kind & KIND {
        TEXT => return Some(Entry::text(key, reader.bytes()?, form, deadline_ms)),
        LIST => {
            let mut list = List::default();
            for _ in 0..reader.number()? {
                list.push(End::Right, reader.bytes()?);
            }
            Value::List(list)
        }
        SET => {
            let mut set = Set::new(hasher);
            if is_large {
                set.use_members();
            }
            for _ in 0..reader.number()? {
                set.insert(reader.bytes()?);
            }
            Value::Set(set)
        }
        HASH => {
            let mut hash = Hash::new(hasher);
            if is_large {
                hash.use_directory();
            }
            for _ in 0..reader.number()? {
                hash.set(reader.bytes()?, reader.bytes()?);
            }
            Value::Hash(hash)
        }
        SORTED => {
            let mut sorted = Sorted::new(hasher);
            if is_large {
                sorted.use_tree();
            }
            for _ in 0..reader.number()? {
                let member = reader.bytes()?;
                sorted.set(member, reader.score()?);
            }
            Value::Sorted(sorted)
        }
        _ => return None,
    };
    let is_empty = match &value {
        Value::List(list) => list.len() == 0,
        Value::Set(set) => set.len() == 0,
        Value::Hash(hash) => hash.len() == 0,
        Value::Sorted(sorted) => sorted.len() == 0,
        Value::Text(_) => false,
    };
    (!is_empty).then(|| Entry::object(key, value, form, deadline_ms))
}

/// Reads bytes that may be damaged.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn number(&mut self) -> Option<usize> {
        let mut number = 0;
        for shift in (0..usize::BITS).step_by(7) {
            let byte = self.byte()?;
            number |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.number()?;
        let bytes = self.bytes[self.at..].get(..len)?;
        self.at += len;
        Some(bytes)
    }

    fn score(&mut self) -> Option<f64> {
        let score = self.bytes[self.at..].first_chunk()?;
        self.at += score.len();
        Some(f64::from_le_bytes(*score)).filter(|score| !score.is_nan())
    }
}
