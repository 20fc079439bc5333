//! All entries of one mask: a hash table from the masked fields to the entries that match them.
//!
//! One record per value, with rank, slot and effects of its first entry beside the value; further entries
//! with the same value wait in a chain, in their order. In front of the records stand tags of 16 bits, so
//! that fields that match nothing touch no record, and fields that match touch one. Open addressing, linear
//! probing, at most half full; doubles when it would be fuller and never shrinks. Assumes that ranks are above 0 and
//! that a rank stands once at a value. It judges no frame: whether a value under a mask is a match is all it knows.

use crate::{
    compile::Entry,
    fields::{Fields, WORDS},
};

/// Numbers that a slot and an effect may have; see [`Found`].
pub(crate) const SLOTS_MAX: usize = 1 << NUMBER_BITS;
const NUMBER_BITS: u32 = 20;
const NUMBER_MASK: u64 = (1 << NUMBER_BITS) - 1;
/// Values to begin with.
const RECORDS_MIN: usize = 4;
/// Words of a record in front of the value: those of [`Found`].
const HEAD_WORDS: usize = 2;

/// The entry that matches, packed: rank; slot, effect and one more than the number of the chain, 0 for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) rank: u64,
    rest: u64,
}

impl Found {
    /// No match: it ranks behind every entry.
    pub(crate) const NONE: Found = Found { rank: u64::MAX, rest: 0 };

    pub(crate) fn new(rank: u64, slot: u32, effect: u32) -> Found {
        debug_assert!(rank > 0 && (slot as usize) < SLOTS_MAX && (effect as usize) < SLOTS_MAX);
        Found { rank, rest: u64::from(slot) | u64::from(effect) << NUMBER_BITS }
    }

    #[inline]
    pub(crate) fn slot(self) -> u32 {
        (self.rest & NUMBER_MASK) as u32
    }

    #[inline]
    pub(crate) fn effect(self) -> u32 {
        (self.rest >> NUMBER_BITS & NUMBER_MASK) as u32
    }

    fn chain(self) -> Option<usize> {
        ((self.rest >> (2 * NUMBER_BITS)) as usize).checked_sub(1)
    }

    fn with_chain(self, chain: Option<usize>) -> Found {
        let chain = chain.map_or(0, |chain| chain as u64 + 1);
        let rest = self.rest & ((1 << (2 * NUMBER_BITS)) - 1) | chain << (2 * NUMBER_BITS);
        Found { rest, ..self }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Tuple {
    pub(crate) mask: [u64; WORDS],
    /// The words in which the mask has bits: `words[..words_len]`.
    words: [u8; WORDS],
    words_len: usize,
    /// No entry has a lower rank; may be lower than the lowest after a removal.
    pub(crate) best: u64,
    /// Entries.
    pub(crate) len: usize,
    /// Values.
    values: usize,
    /// Of each record, from the hash of its value; 0 where it is free.
    tags: Vec<u16>,
    /// A power of two of records, `HEAD_WORDS + words_len` words each.
    records: Vec<u64>,
    /// One less than the number of records.
    last: usize,
    /// Entries of a value behind its first one, by rank; empty while nothing has it.
    chains: Vec<Vec<Found>>,
    free_chains: Vec<usize>,
}

/// The words of a value that count, side by side: the first `words_len`.
type Key = [u64; WORDS];

/// Odd numbers without a pattern (of SHA-512's round constants); one per word, so that equal words at
/// different places differ.
const SALTS: [u64; WORDS] = [
    0x428a_2f98_d728_ae23,
    0x7137_4491_23ef_65cd,
    0xb5c0_fbcf_ec4d_3b2f,
    0xe9b5_dba5_8189_dbbd,
    0x3956_c25b_f348_b539,
    0x59f1_11f1_b605_d019,
    0x923f_82a4_af19_4f9b,
    0xab1c_5ed5_da6d_8119,
    0xd807_aa98_a303_0243,
];

impl Tuple {
    pub(crate) fn new(mask: [u64; WORDS]) -> Tuple {
        let (mut words, mut words_len) = ([0; WORDS], 0);
        for (i, _) in mask.iter().enumerate().filter(|(_, word)| **word != 0) {
            words[words_len] = i as u8;
            words_len += 1;
        }
        Tuple {
            mask,
            words,
            words_len,
            best: u64::MAX,
            len: 0,
            values: 0,
            tags: vec![0; RECORDS_MIN],
            records: vec![0; RECORDS_MIN * (HEAD_WORDS + words_len)],
            last: RECORDS_MIN - 1,
            chains: Vec::new(),
            free_chains: Vec::new(),
        }
    }

    /// Memory.
    pub(crate) fn bytes(&self) -> usize {
        let chained: usize = self.chains.iter().map(Vec::capacity).sum();
        size_of::<Tuple>()
            + self.tags.capacity() * size_of::<u16>()
            + self.records.capacity() * size_of::<u64>()
            + self.chains.capacity() * size_of::<Vec<Found>>()
            + chained * size_of::<Found>()
    }

    fn key(&self, value: &[u64; WORDS]) -> Key {
        let mut key = [0; WORDS];
        for (to, i) in key.iter_mut().zip(&self.words[..self.words_len]) {
            *to = value[usize::from(*i)];
        }
        key
    }

    /// Where a value's record would be, and its tag. The words do not wait for each other.
    #[inline]
    fn home(&self, key: &[u64]) -> (usize, u16) {
        let mix = |(word, salt): (&u64, &u64)| {
            let mixed = u128::from(word ^ salt) * 0x9e37_79b9_7f4a_7c15;
            mixed as u64 ^ (mixed >> 64) as u64
        };
        let sum = key.iter().zip(&SALTS).map(mix).fold(0, u64::wrapping_add);
        ((sum ^ sum >> 32) as usize & self.last, (sum >> 48) as u16 | 1)
    }

    #[inline]
    fn words_per_record(&self) -> usize {
        HEAD_WORDS + self.words_len
    }

    #[inline]
    fn record(&self, at: usize) -> &[u64] {
        let words = self.words_per_record();
        &self.records[at * words..(at + 1) * words]
    }

    fn found(&self, at: usize) -> Found {
        let record = self.record(at);
        Found { rank: record[0], rest: record[1] }
    }

    fn set(&mut self, at: usize, found: Found) {
        let words = self.words_per_record();
        self.records[at * words] = found.rank;
        self.records[at * words + 1] = found.rest;
    }

    /// The record of the value, or else the free one where it would be.
    #[inline]
    fn place(&self, key: &[u64]) -> Result<usize, usize> {
        let (mut at, tag) = self.home(key);
        loop {
            let found = self.tags[at];
            if found == 0 {
                // Half of the records are free, so this ends.
                return Err(at);
            }
            if found == tag {
                let value = &self.record(at)[HEAD_WORDS..];
                if value.iter().zip(key).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0 {
                    return Ok(at);
                }
            }
            at = (at + 1) & self.last;
        }
    }

    #[inline]
    fn key_of(&self, fields: &Fields) -> Key {
        let mut key = [0; WORDS];
        for (to, i) in key.iter_mut().zip(&self.words[..self.words_len]) {
            *to = fields.word(usize::from(*i)) & self.mask[usize::from(*i)];
        }
        key
    }

    /// The record that is likely to be a frame's, to be touched: looked at without waiting for it.
    #[inline]
    pub(crate) fn likely(&self, fields: &Fields) -> usize {
        let key = self.key_of(fields);
        let (at, tag) = self.home(&key[..self.words_len]);
        if self.tags[at] == tag { at } else { 0 }
    }

    /// Something of the record at this place.
    #[inline]
    pub(crate) fn touch(&self, at: usize) -> u64 {
        let record = self.record(at);
        // A record may lie across two cache lines.
        record[0] ^ record[record.len() - 1]
    }

    /// Puts into `best` the entry that is first above rank `above` among those that match, if before `best`.
    #[inline]
    pub(crate) fn find(&self, fields: &Fields, above: u64, best: &mut Found) {
        let key = self.key_of(fields);
        let Ok(at) = self.place(&key[..self.words_len]) else { return };
        let first = self.found(at);
        if first.rank > above {
            if first.rank < best.rank {
                *best = first;
            }
        } else if let Some(chain) = first.chain() {
            let behind = &self.chains[chain];
            let next = behind.get(behind.partition_point(|other| other.rank <= above));
            if let Some(next) = next.filter(|next| next.rank < best.rank) {
                *best = *next;
            }
        }
    }

    pub(crate) fn insert(&mut self, entry: &Entry, new: Found) {
        if (self.values + 1) * 2 > self.last + 1 {
            self.double();
        }
        let key = self.key(&entry.value);
        let key = &key[..self.words_len];
        self.len += 1;
        self.best = self.best.min(new.rank);
        let at = match self.place(key) {
            Ok(at) => at,
            Err(free) => {
                self.values += 1;
                self.tags[free] = self.home(key).1;
                self.set(free, new);
                let from = free * self.words_per_record() + HEAD_WORDS;
                self.records[from..from + key.len()].copy_from_slice(key);
                return;
            }
        };
        let first = self.found(at);
        let chain = first.chain().unwrap_or_else(|| {
            self.free_chains.pop().unwrap_or_else(|| {
                self.chains.push(Vec::new());
                self.chains.len() - 1
            })
        });
        let (first, later) = if new.rank < first.rank { (new, first) } else { (first, new) };
        let later = later.with_chain(None);
        let behind = &mut self.chains[chain];
        behind.insert(behind.partition_point(|other| other.rank < later.rank), later);
        self.set(at, first.with_chain(Some(chain)));
    }

    /// The entry it was; `None` when it is not there.
    pub(crate) fn remove(&mut self, entry: &Entry, rank: u64) -> Option<Found> {
        let key = self.key(&entry.value);
        let at = self.place(&key[..self.words_len]).ok()?;
        let first = self.found(at);
        let gone = match first.chain() {
            None if first.rank == rank => {
                self.free(at);
                self.values -= 1;
                first
            }
            None => return None,
            Some(chain) => {
                let behind = &mut self.chains[chain];
                let gone = if first.rank == rank {
                    first
                } else {
                    let found = behind.binary_search_by_key(&rank, |other| other.rank).ok()?;
                    behind.remove(found)
                };
                let first = if first.rank == rank { behind.remove(0) } else { first };
                let is_empty = behind.is_empty();
                if is_empty {
                    *behind = Vec::new();
                    self.free_chains.push(chain);
                }
                self.set(at, first.with_chain((!is_empty).then_some(chain)));
                gone
            }
        };
        self.len -= 1;
        Some(gone)
    }

    /// Empties a record and closes the gap: a record behind it that may stand in it moves there.
    fn free(&mut self, mut free: usize) {
        let (words, last) = (self.words_per_record(), self.last);
        let mut at = free;
        loop {
            at = (at + 1) & last;
            if self.tags[at] == 0 {
                break;
            }
            let (home, tag) = self.home(&self.record(at)[HEAD_WORDS..]);
            if at.wrapping_sub(home) & last >= at.wrapping_sub(free) & last {
                self.records.copy_within(at * words..(at + 1) * words, free * words);
                self.tags[free] = tag;
                free = at;
            }
        }
        self.tags[free] = 0;
    }

    fn double(&mut self) {
        let (words, records) = (self.words_per_record(), self.tags.len() * 2);
        let old_tags = std::mem::replace(&mut self.tags, vec![0; records]);
        let old = std::mem::replace(&mut self.records, vec![0; records * words]);
        self.last = records - 1;
        let there = old.chunks_exact(words).zip(old_tags).filter(|(_, tag)| *tag != 0);
        for (record, tag) in there {
            // Every value stands once, so none is found.
            let (Ok(at) | Err(at)) = self.place(&record[HEAD_WORDS..]);
            self.tags[at] = tag;
            self.records[at * words..(at + 1) * words].copy_from_slice(record);
        }
    }
}
