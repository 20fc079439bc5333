//! Entries and values as bytes: those of a snapshot, and of a value store.
//!
//! An entry is: database, deadline + 1 or 0, form and kind (1 byte), key, value; numbers as in
//! [`packed`](super::packed), byte strings behind their length, scores as 8 bytes, low ones first. A value in a value
//! store is its form and kind, then the value.

use super::chance::KeyHasher;
use super::directory::Keyed;
use super::entry::{Entry, Form, Value};
use super::list::{End, List};
use super::packed::write_varint;
use super::value_kind::{FORM_RAW, FORM_TEXT, HASH, KIND, LARGE, LIST, SET, SORTED, TEXT};
use super::{hash::Hash, set::Set, sorted::Sorted};

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

/// Appends an entry whose value is in memory.
fn write(out: &mut Vec<u8>, database: usize, entry: &Entry) {
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

/// A value that is in memory as the value store has it: its kind, then as in a snapshot.
pub(super) fn stored_value(entry: &Entry) -> Vec<u8> {
    let mut out = vec![kind_of(entry)];
    write_value(&mut out, entry);
    out
}

/// The entry with the value that was stored for it; nothing if these are not its bytes.
pub(super) fn with_stored_value(entry: &Entry, value: &[u8], hasher: &KeyHasher) -> Option<Entry> {
    let (kind, bytes) = value.split_first()?;
    let mut reader = Reader::new(bytes);
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

/// Reads an entry, and the number of its database, which is below `databases`; nothing if it is damaged.
pub(super) fn read(
    reader: &mut Reader<'_>,
    databases: usize,
    hasher: &KeyHasher,
) -> Option<(usize, Entry)> {
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
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    /// How many bytes were read.
    pub(super) at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

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
