//! One entry of a database: a key with its value, its time to live and when it was last used.
//!
//! ```text
//!  Small: flags (1) | last use (4) | key length (1) | [deadline (8)] | key | value         one allocation
//!  Big:   the same as fields, and a value of any type
//!  spilled: as Small, with a number (8) and a kind (1) in the place of the value, which is in a value store
//! ```
//!
//! All are 16 bytes in their table. Most entries of a cache are small strings; they pay for one allocation and
//! for a deadline only if they have one.

use super::directory::Keyed;
use super::memory::allocated;
use super::{hash::Hash, list::List, numbers, set::Set, sorted::Sorted, value_kind};

#[derive(Clone, Debug)]
pub(crate) enum Entry {
    Small(Box<[u8]>),
    Big(Box<Object>),
}

// What every key pays, and every small collection.
const _: () = assert!(size_of::<Entry>() == 16 && size_of::<Object>() <= 104);

#[derive(Clone, Debug)]
pub(crate) struct Object {
    key: Box<[u8]>,
    deadline_ms: Option<u64>,
    last_use: u32,
    form: Form,
    pub(crate) value: Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(Vec<u8>),
    List(List),
    Set(Set),
    Hash(Hash),
    Sorted(Sorted),
}

/// How Redis would keep a string, for OBJECT ENCODING: by how it was made, not only by what it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Form {
    /// Set as a whole: a number if it reads as one.
    #[default]
    Whole,
    /// Computed as text: never a number.
    Text,
    /// Changed in place: room to grow.
    Raw,
}

const HAS_DEADLINE: u8 = 1;
const FORM_TEXT: u8 = 2;
const FORM_RAW: u8 = 4;
const IS_SPILLED: u8 = 8;
/// What stands in the place of a spilled value.
const SPILLED_BYTES: usize = 9;
const LAST_USE: std::ops::Range<usize> = 1..5;
const KEY_LEN: usize = 5;
const HEAD: usize = 6;
/// Strings up to this length stand with their key in one allocation.
const SMALL_VALUE_BYTES_MAX: usize = 1024;
/// Redis keeps shorter ones in one allocation with their header.
const EMBEDDED_BYTES_MAX: usize = 44;
/// What a table's bucket costs per entry, as full as tables are on average.
const BUCKET_BYTES: usize = 27;
/// A deadline stands in the ordered index of deadlines too.
const DEADLINE_BYTES: usize = 24;

impl Keyed for Entry {
    fn key(&self) -> &[u8] {
        match self {
            Entry::Small(bytes) => {
                let from = HEAD + deadline_size(bytes);
                &bytes[from..from + usize::from(bytes[KEY_LEN])]
            }
            Entry::Big(object) => &object.key,
        }
    }
}

impl Entry {
    pub(crate) fn text(key: &[u8], value: &[u8], form: Form, deadline_ms: Option<u64>) -> Entry {
        let Ok(key_len) = u8::try_from(key.len()) else {
            return Entry::object(key, Value::Text(value.to_vec()), form, deadline_ms);
        };
        if value.len() > SMALL_VALUE_BYTES_MAX {
            return Entry::object(key, Value::Text(value.to_vec()), form, deadline_ms);
        }
        let form = match form {
            Form::Whole => 0,
            Form::Text => FORM_TEXT,
            Form::Raw => FORM_RAW,
        };
        Entry::Small(small(form, key_len, key, deadline_ms, value))
    }

    /// The same of a value that is handed over: a long one is not copied.
    pub(crate) fn of_text(
        key: &[u8],
        value: Vec<u8>,
        form: Form,
        deadline_ms: Option<u64>,
    ) -> Entry {
        match value.len() > SMALL_VALUE_BYTES_MAX {
            true => Entry::object(key, Value::Text(value), form, deadline_ms),
            false => Entry::text(key, &value, form, deadline_ms),
        }
    }

    /// The entry without its value, which is of this kind and stored elsewhere under this number; nothing if its key is
    /// too long for that.
    pub(crate) fn spilled(&self, number: u64, kind: u8) -> Option<Entry> {
        let key = self.key();
        let key_len = u8::try_from(key.len()).ok()?;
        let mut tail = [kind; SPILLED_BYTES];
        tail[..8].copy_from_slice(&number.to_le_bytes());
        let mut entry = Entry::Small(small(IS_SPILLED, key_len, key, self.deadline_ms(), &tail));
        entry.set_last_use(self.last_use());
        Some(entry)
    }

    /// Bytes that the entry would take without its value.
    pub(crate) fn spilled_bytes(&self) -> usize {
        let deadline = if self.deadline_ms().is_some() { DEADLINE_BYTES + 8 } else { 0 };
        BUCKET_BYTES + deadline + allocated(HEAD + self.key().len() + SPILLED_BYTES)
    }

    /// Where its value is stored, if that is not here: the number, and the kind of the value.
    pub(crate) fn stored(&self) -> Option<(u64, u8)> {
        let Entry::Small(bytes) = self else { return None };
        if bytes[0] & IS_SPILLED == 0 {
            return None;
        }
        let (number, kind) = self.tail()?.split_first_chunk()?;
        Some((u64::from_le_bytes(*number), *kind.first()?))
    }

    /// What stands behind the key of a small entry.
    fn tail(&self) -> Option<&[u8]> {
        match self {
            Entry::Small(bytes) => {
                Some(&bytes[HEAD + deadline_size(bytes) + usize::from(bytes[KEY_LEN])..])
            }
            Entry::Big(_) => None,
        }
    }

    /// Of any type; a string, only if it is too long for a small entry.
    pub(crate) fn object(key: &[u8], value: Value, form: Form, deadline_ms: Option<u64>) -> Entry {
        let key = key.into();
        Entry::Big(Box::new(Object { key, deadline_ms, last_use: 0, form, value }))
    }

    /// The same under another key.
    /// Its value must be here.
    pub(crate) fn renamed(self, key: &[u8]) -> Entry {
        let (form, deadline, last_use) = (self.form(), self.deadline_ms(), self.last_use());
        let mut entry = match self {
            Entry::Small(_) => {
                let text = self.as_text().expect("a value is in memory before it gets another key");
                Entry::text(key, text, form, deadline)
            }
            Entry::Big(object) => Entry::object(key, object.value, form, deadline),
        };
        entry.set_last_use(last_use);
        entry
    }

    pub(crate) fn as_text(&self) -> Option<&[u8]> {
        match self {
            Entry::Small(bytes) => self.tail().filter(|_| bytes[0] & IS_SPILLED == 0),
            Entry::Big(object) => match &object.value {
                Value::Text(text) => Some(text),
                _ => None,
            },
        }
    }

    /// Any value but a small string.
    pub(crate) fn value(&self) -> Option<&Value> {
        match self {
            Entry::Small(_) => None,
            Entry::Big(object) => Some(&object.value),
        }
    }

    /// Puts another value of the same length in the place of the one there, if it can.
    pub(crate) fn overwrite(&mut self, value: &[u8]) -> bool {
        match self {
            Entry::Small(bytes) if bytes[0] == 0 => {
                let from = HEAD + usize::from(bytes[KEY_LEN]);
                let fits = bytes.len() - from == value.len();
                if fits {
                    bytes[from..].copy_from_slice(value);
                }
                fits
            }
            _ => false,
        }
    }

    pub(crate) fn form(&self) -> Form {
        match self {
            Entry::Small(bytes) if bytes[0] & FORM_RAW != 0 => Form::Raw,
            Entry::Small(bytes) if bytes[0] & FORM_TEXT != 0 => Form::Text,
            Entry::Small(_) => Form::Whole,
            Entry::Big(object) => object.form,
        }
    }

    pub(crate) fn deadline_ms(&self) -> Option<u64> {
        match self {
            Entry::Small(bytes) => {
                let deadline = bytes[HEAD..].first_chunk();
                deadline.filter(|_| deadline_size(bytes) > 0).map(|ms| u64::from_le_bytes(*ms))
            }
            Entry::Big(object) => object.deadline_ms,
        }
    }

    pub(crate) fn set_deadline_ms(&mut self, deadline_ms: Option<u64>) {
        match self {
            Entry::Small(bytes) => {
                let (flags, key_len) = (bytes[0] & !HAS_DEADLINE, bytes[KEY_LEN]);
                let last_use = self.last_use();
                let tail = self.tail().unwrap_or(&[]);
                *self = Entry::Small(small(flags, key_len, self.key(), deadline_ms, tail));
                self.set_last_use(last_use);
            }
            Entry::Big(object) => object.deadline_ms = deadline_ms,
        }
    }

    /// When it was last used, and how often, as the eviction policy counts it.
    pub(crate) fn last_use(&self) -> u32 {
        match self {
            Entry::Small(bytes) => {
                let [a, b, c, d] = *bytes[LAST_USE].first_chunk().expect("LAST_USE is four bytes");
                u32::from_le_bytes([a, b, c, d])
            }
            Entry::Big(object) => object.last_use,
        }
    }

    pub(crate) fn set_last_use(&mut self, last_use: u32) {
        match self {
            Entry::Small(bytes) => bytes[LAST_USE].copy_from_slice(&last_use.to_le_bytes()),
            Entry::Big(object) => object.last_use = last_use,
        }
    }

    /// Bytes it takes, as an allocator rounds them.
    pub(crate) fn bytes(&self) -> usize {
        let deadline = if self.deadline_ms().is_some() { DEADLINE_BYTES } else { 0 };
        let own = match self {
            Entry::Small(bytes) => allocated(bytes.len()),
            Entry::Big(object) => {
                allocated(size_of::<Object>()) + allocated(object.key.len()) + object.value.bytes()
            }
        };
        BUCKET_BYTES + deadline + own
    }

    /// What TYPE says.
    pub(crate) fn kind(&self) -> &'static str {
        if let Some((_, kind)) = self.stored() {
            return value_kind::name(kind);
        }
        match self.value() {
            None | Some(Value::Text(_)) => "string",
            Some(Value::List(_)) => "list",
            Some(Value::Set(_)) => "set",
            Some(Value::Hash(_)) => "hash",
            Some(Value::Sorted(_)) => "zset",
        }
    }

    /// What OBJECT ENCODING says: what Redis 7.0 would keep it as.
    pub(crate) fn encoding(&self) -> &'static str {
        match self.value() {
            Some(Value::List(_)) => "quicklist",
            Some(Value::Set(set)) => set.encoding(),
            Some(Value::Hash(hash)) => hash.encoding(),
            Some(Value::Sorted(sorted)) => sorted.encoding(),
            None | Some(Value::Text(_)) => {
                let text = self.as_text().unwrap_or(&[]);
                match self.form() {
                    Form::Raw => "raw",
                    Form::Whole if numbers::integer(text).is_some() => "int",
                    _ if text.len() <= EMBEDDED_BYTES_MAX => "embstr",
                    _ => "raw",
                }
            }
        }
    }
}

impl Value {
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Value::Text(text) => allocated(text.capacity()),
            Value::List(list) => list.bytes(),
            Value::Set(set) => set.bytes(),
            Value::Hash(hash) => hash.bytes(),
            Value::Sorted(sorted) => sorted.bytes(),
        }
    }
}

/// The bytes of a small entry, never used.
fn small(flags: u8, key_len: u8, key: &[u8], deadline_ms: Option<u64>, tail: &[u8]) -> Box<[u8]> {
    let deadline = deadline_ms.map(u64::to_le_bytes);
    let deadline = deadline.as_ref().map_or(&[][..], |bytes| bytes);
    let mut bytes = Vec::with_capacity(HEAD + deadline.len() + key.len() + tail.len());
    bytes.push(flags | if deadline.is_empty() { 0 } else { HAS_DEADLINE });
    bytes.extend_from_slice(&[0; 4]);
    bytes.push(key_len);
    bytes.extend_from_slice(deadline);
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(tail);
    bytes.into_boxed_slice()
}

fn deadline_size(small: &[u8]) -> usize {
    if small[0] & HAS_DEADLINE == 0 { 0 } else { size_of::<u64>() }
}

/// A type that keeps other values, and how to find it in a [`Value`].
pub(crate) trait Collection: Sized {
    /// An empty one.
    fn empty(hasher: &super::chance::KeyHasher) -> Self;
    fn of(value: &Value) -> Option<&Self>;
    fn of_mut(value: &mut Value) -> Option<&mut Self>;
    fn wrap(self) -> Value;
    fn len(&self) -> usize;
}

macro_rules! collection {
    ($type:ident, $new:expr) => {
        impl Collection for $type {
            fn empty(hasher: &super::chance::KeyHasher) -> $type {
                let new: fn(&super::chance::KeyHasher) -> $type = $new;
                new(hasher)
            }
            fn of(value: &Value) -> Option<&$type> {
                match value {
                    Value::$type(value) => Some(value),
                    _ => None,
                }
            }
            fn of_mut(value: &mut Value) -> Option<&mut $type> {
                match value {
                    Value::$type(value) => Some(value),
                    _ => None,
                }
            }
            fn wrap(self) -> Value {
                Value::$type(self)
            }
            fn len(&self) -> usize {
                $type::len(self)
            }
        }
    };
}

collection!(List, |_| List::default());
collection!(Set, Set::new);
collection!(Hash, Hash::new);
collection!(Sorted, Sorted::new);
