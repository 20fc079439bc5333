//! Hashes: a few packed pairs, or a directory of them. A pair is one byte string: field length, field, value.

use super::chance::KeyHasher;
use super::directory::{Directory, Keyed};
use super::memory::{Pieces, allocated};
use super::packed::{Packed, read_forward, write_varint};
use super::set::MEMBER_BYTES;
use laneway_random::Random;

/// More pairs than this, or longer fields or values, are kept in a directory (Redis's hash-max-listpack-entries and
/// -value). So a walk is over some 64 KiB at most.
const PACKED_PAIRS_MAX: usize = 512;
const PACKED_BYTES_MAX: usize = 64;

#[derive(Clone, Debug)]
pub(crate) struct Hash {
    pairs: Pairs,
    hasher: KeyHasher,
}

#[derive(Clone, Debug)]
enum Pairs {
    Packed(Packed),
    Directory { pairs: Box<Directory<Pair>>, bytes: usize },
}

#[derive(Clone, Debug)]
struct Pair(Box<[u8]>);

impl Pair {
    fn new(field: &[u8], value: &[u8]) -> Pair {
        let mut bytes = Vec::with_capacity(field.len() + value.len() + 2);
        write_varint(&mut bytes, field.len());
        bytes.extend_from_slice(field);
        bytes.extend_from_slice(value);
        Pair(bytes.into_boxed_slice())
    }

    fn bytes(&self) -> usize {
        allocated(self.0.len()) + MEMBER_BYTES
    }
}

impl Keyed for Pair {
    fn key(&self) -> &[u8] {
        parts(&self.0).0
    }
}

/// Field and value of a pair.
fn parts(pair: &[u8]) -> (&[u8], &[u8]) {
    let (len, head) = read_forward(pair);
    pair[head..].split_at(len)
}

impl Hash {
    pub(crate) fn new(hasher: &KeyHasher) -> Hash {
        Hash { pairs: Pairs::Packed(Packed::default()), hasher: hasher.clone() }
    }

    pub(crate) fn len(&self) -> usize {
        match &self.pairs {
            Pairs::Packed(packed) => packed.len(),
            Pairs::Directory { pairs, .. } => pairs.len(),
        }
    }

    pub(crate) fn encoding(&self) -> &'static str {
        match &self.pairs {
            Pairs::Packed(_) => "listpack",
            Pairs::Directory { .. } => "hashtable",
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match &self.pairs {
            Pairs::Packed(packed) => allocated(packed.size()),
            Pairs::Directory { bytes, .. } => *bytes,
        }
    }

    pub(crate) fn get(&self, field: &[u8]) -> Option<&[u8]> {
        match &self.pairs {
            Pairs::Packed(packed) => {
                packed.iter().map(parts).find(|pair| pair.0 == field).map(|pair| pair.1)
            }
            Pairs::Directory { pairs, .. } => {
                pairs.find(pairs.hash(field), field).map(|pair| parts(&pair.0).1)
            }
        }
    }

    /// Sets a field; true if it was not there.
    pub(crate) fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        let is_long = field.len().max(value.len()) > PACKED_BYTES_MAX;
        match &mut self.pairs {
            Pairs::Packed(packed) if !is_long => {
                let at = packed.iter().position(|pair| parts(pair).0 == field);
                let mut head = Vec::with_capacity(2);
                write_varint(&mut head, field.len());
                match at {
                    Some(at) => packed.replace(at, [&head, field, value]),
                    None => packed.push([&head, field, value]),
                }
                if packed.len() > PACKED_PAIRS_MAX {
                    self.use_directory();
                }
                at.is_none()
            }
            Pairs::Packed(_) => {
                self.use_directory();
                self.set(field, value)
            }
            Pairs::Directory { pairs, bytes } => {
                let (hash, pair) = (pairs.hash(field), Pair::new(field, value));
                *bytes += pair.bytes();
                match pairs.find_mut(hash, field) {
                    Some(there) => {
                        *bytes -= there.bytes();
                        *there = pair;
                        false
                    }
                    None => {
                        pairs.insert(hash, pair);
                        true
                    }
                }
            }
        }
    }

    /// Removes a field; true if it was there.
    pub(crate) fn remove(&mut self, field: &[u8]) -> bool {
        match &mut self.pairs {
            Pairs::Packed(packed) => {
                let at = packed.iter().position(|pair| parts(pair).0 == field);
                at.map(|at| packed.remove(at, 1)).is_some()
            }
            Pairs::Directory { pairs, bytes } => {
                let removed = pairs.remove(pairs.hash(field), field);
                *bytes -= removed.as_ref().map_or(0, Pair::bytes);
                removed.is_some()
            }
        }
    }

    /// Shows every field and its value.
    pub(crate) fn each(&self, mut show: impl FnMut(&[u8], &[u8])) {
        let mut pair = |pair: &[u8]| {
            let (field, value) = parts(pair);
            show(field, value);
        };
        match &self.pairs {
            Pairs::Packed(packed) => packed.iter().for_each(pair),
            Pairs::Directory { pairs, .. } => pairs.iter().for_each(|found| pair(&found.0[..])),
        }
    }

    /// Shows pairs from a cursor on, at least `count` of a large hash; the next cursor.
    pub(crate) fn scan(&self, from: u64, count: usize, mut show: impl FnMut(&[u8], &[u8])) -> u64 {
        match &self.pairs {
            Pairs::Packed(_) => {
                self.each(show);
                0
            }
            Pairs::Directory { pairs, .. } => pairs.scan(from, count, |pair| {
                let (field, value) = parts(&pair.0);
                show(field, value);
            }),
        }
    }

    /// A field and its value by chance.
    pub(crate) fn random(&self, chance: &mut Random) -> Option<(&[u8], &[u8])> {
        match &self.pairs {
            Pairs::Packed(packed) => packed.get(chance.index(packed.len())).map(parts),
            Pairs::Directory { pairs, .. } => pairs.random(chance).map(|pair| parts(&pair.0)),
        }
    }

    /// All pairs, where they are packed and each draw of one would be a walk.
    pub(crate) fn packed(&self) -> Option<Vec<(&[u8], &[u8])>> {
        match &self.pairs {
            Pairs::Packed(packed) => Some(packed.iter().map(parts).collect()),
            Pairs::Directory { .. } => None,
        }
    }

    /// Keeps the pairs in a directory from now on.
    pub(crate) fn use_directory(&mut self) {
        let mut pairs = Box::new(Directory::new(self.hasher.clone()));
        let mut bytes = 0;
        self.each(|field, value| {
            let pair = Pair::new(field, value);
            bytes += pair.bytes();
            pairs.insert(pairs.hash(field), pair);
        });
        self.pairs = Pairs::Directory { pairs, bytes };
    }

    /// True if a field or value of this length makes it a directory.
    pub(crate) fn is_long(bytes: &[u8]) -> bool {
        bytes.len() > PACKED_BYTES_MAX
    }
}

impl Pieces for Hash {
    fn free_piece(&mut self) -> bool {
        match &mut self.pairs {
            Pairs::Directory { pairs, .. } => pairs.free_piece(),
            _ => false,
        }
    }
}
