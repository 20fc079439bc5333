//! Rules ready to be looked up: per port and group one hash table per mask (tuple space search).
//!
//! A frame's fields under a mask are one lookup, whatever the number of rules with that mask: real
//! rule sets have few masks (an exact address, some prefix lengths, a port or none). Which tables can
//! hold a match at all is known before: for a few bytes of addresses, ports and protocol a [`Sieve`]
//! keeps the set of tables that have an entry for the byte's value, and a frame asks only the tables
//! that are in all of its sets. So of 25 prefix lengths a frame meets two or three, not all.
//! Beyond [`MASKS_MAX`] masks in a group further ones are searched in a line, in the order of their
//! ranks; [`Table::shape`] tells how many those are. A table is read by workers and changed by its one
//! owner only; counters are elsewhere.
//!
//! What must always hold: the answer is that of a linear search over all entries by rank, which the
//! tests compare it with. Adding or removing an entry costs the same in a table of any size, but for
//! the rare doubling.

use crate::{
    compile::{Effects, Entry},
    decide::{Decision, Match, decide},
    fields::{Fields, WORDS, at},
};

/// Hash tables per group; each costs a lookup per frame.
pub const MASKS_MAX: usize = 128;

/// The rules of all ports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    ports: Vec<Groups>,
    /// By rule slot.
    effects: Vec<Effects>,
}

/// How a table looks up what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Masks and values.
    pub entries: usize,
    /// Hash tables.
    pub masks: usize,
    /// Entries that are searched in a line because their group has too many masks.
    pub in_line: usize,
}

#[derive(Clone, Debug, Default)]
struct Groups {
    /// By number; few, so they are found by looking.
    groups: Vec<Group>,
}

#[derive(Clone, Debug)]
struct Group {
    number: u32,
    tuples: Vec<Tuple>,
    /// One per byte of [`SIEVED`] that a mask has bits in, once there was such a mask.
    sieves: Vec<Sieve>,
    /// By rank.
    line: Vec<InLine>,
}

#[derive(Clone, Debug)]
struct InLine {
    entry: Entry,
    rank: u64,
    slot: u32,
}

/// A set of tables, by their place in [`Group::tuples`].
type Tuples = u128;

/// Bytes of the fields that tell tables apart: the leading ones of both addresses, and what stands for
/// the service.
const SIEVED: [usize; 10] = [
    at::SRC_IP + 12,
    at::SRC_IP + 13,
    at::SRC_IP + 14,
    at::DST_IP + 12,
    at::DST_IP + 13,
    at::DST_IP + 14,
    at::SRC_PORT + 1,
    at::DST_PORT + 1,
    at::PROTO,
    at::VLAN_TCI + 1,
];

/// So many tables are asked sooner than sieved.
const TUPLES_UNSIEVED: usize = 2;

/// For each value of one byte of the fields: the tables that may hold a match.
#[derive(Clone, Debug)]
struct Sieve {
    /// Which byte: an index of [`SIEVED`].
    which: usize,
    tuples: Box<[Tuples; 256]>,
}

impl Sieve {
    /// Puts a table into the sets of the values that are `value` under `mask`, or takes it out.
    fn set(&mut self, tuple: usize, mask: u8, value: u8, is_in: bool) {
        for (byte, tuples) in (0..=u8::MAX).zip(self.tuples.iter_mut()) {
            if byte & mask == value {
                *tuples = if is_in { *tuples | 1 << tuple } else { *tuples & !(1 << tuple) };
            }
        }
    }

    /// The table at `from` is at `to` now, where none was.
    fn rename(&mut self, from: usize, to: usize) {
        for tuples in self.tuples.iter_mut() {
            let is_in = *tuples >> from & 1;
            *tuples = *tuples & !(1 << from) & !(1 << to) | is_in << to;
        }
    }
}

/// All entries of one mask: open addressing, linear probing, at most half full.
#[derive(Clone, Debug)]
struct Tuple {
    mask: [u64; WORDS],
    /// The words in which the mask has bits: `words[..words_len]`.
    words: [u8; WORDS],
    words_len: usize,
    /// No entry has a lower rank; may be lower than the lowest after a removal.
    best: u64,
    len: usize,
    /// For each byte of [`SIEVED`] with bits in the mask: how many entries have each value there.
    counts: [Option<Box<[u32; 256]>>; SIEVED.len()],
    /// Power of two; rank 0 is a free place.
    places: Vec<Place>,
    /// `words_len` words per place.
    keys: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    rank: u64,
    slot: u32,
}

/// Places of a hash table to begin with.
const PLACES_MIN: usize = 4;

impl Table {
    pub(crate) fn new(ports: usize) -> Table {
        Table { ports: vec![Groups::default(); ports], effects: Vec::new() }
    }

    /// True when no frame of the port can match.
    #[inline]
    pub(crate) fn is_empty(&self, port: usize) -> bool {
        self.ports.get(port).is_none_or(|groups| groups.groups.is_empty())
    }

    /// Runs the rules of `port` on a frame's fields; `hit` is told the slot of each match.
    #[inline]
    pub(crate) fn decide(
        &self,
        port: usize,
        fields: &mut Fields,
        hit: impl FnMut(u32),
    ) -> Decision {
        let Some(groups) = self.ports.get(port) else { return Decision::default() };
        decide(fields, |group, fields, above| self.find(groups, group, fields, above), hit)
    }

    #[inline]
    fn find(&self, groups: &Groups, group: u32, fields: &Fields, above: u64) -> Option<Match<'_>> {
        let group = groups.groups.iter().find(|other| other.number == group)?;
        let mut best = Place { rank: u64::MAX, slot: 0 };
        let mut candidates = group.all();
        if group.tuples.len() > TUPLES_UNSIEVED {
            for sieve in &group.sieves {
                candidates &= sieve.tuples[usize::from(fields.u8(SIEVED[sieve.which]))];
            }
        }
        while candidates != 0 {
            let tuple = &group.tuples[candidates.trailing_zeros() as usize];
            candidates &= candidates - 1;
            if tuple.best < best.rank {
                tuple.find(fields, above, &mut best);
            }
        }
        for other in &group.line {
            if other.rank >= best.rank {
                break;
            }
            if other.rank > above && other.entry.matches(fields) {
                best = Place { rank: other.rank, slot: other.slot };
            }
        }
        let Place { rank, slot } = best;
        (rank != u64::MAX).then(|| Match { rank, slot, effects: &self.effects[slot as usize] })
    }

    /// Adds a rule's entries.
    pub(crate) fn insert(
        &mut self,
        port: usize,
        group: u32,
        place: (u64, u32),
        entries: &[Entry],
        effects: Effects,
    ) {
        let (rank, slot) = place;
        if self.effects.len() <= slot as usize {
            self.effects.resize(slot as usize + 1, Effects::default());
        }
        self.effects[slot as usize] = effects;
        let groups = &mut self.ports[port].groups;
        let at = groups.iter().position(|other| other.number == group).unwrap_or_else(|| {
            groups.push(Group {
                number: group,
                tuples: Vec::new(),
                sieves: Vec::new(),
                line: Vec::new(),
            });
            groups.len() - 1
        });
        for entry in entries {
            groups[at].insert(entry, Place { rank, slot });
        }
    }

    /// Takes a rule's entries out; they must be in it.
    pub(crate) fn remove(&mut self, port: usize, group: u32, rank: u64, entries: &[Entry]) {
        let groups = &mut self.ports[port].groups;
        if let Some(at) = groups.iter().position(|other| other.number == group) {
            entries.iter().for_each(|entry| groups[at].remove(entry, rank));
            if groups[at].tuples.is_empty() && groups[at].line.is_empty() {
                groups.swap_remove(at);
            }
        }
    }

    /// Takes all rules of a port out.
    pub(crate) fn clear(&mut self, port: usize) {
        self.ports[port].groups.clear();
    }

    /// How its entries are looked up.
    pub(crate) fn shape(&self) -> Shape {
        let mut shape = Shape::default();
        for group in self.ports.iter().flat_map(|port| &port.groups) {
            shape.masks += group.tuples.len();
            shape.in_line += group.line.len();
            shape.entries += group.tuples.iter().map(|tuple| tuple.len).sum::<usize>();
        }
        shape.entries += shape.in_line;
        shape
    }
}

impl Group {
    /// Every table.
    #[inline]
    fn all(&self) -> Tuples {
        // At most 128 tables.
        if self.tuples.is_empty() { 0 } else { Tuples::MAX >> (MASKS_MAX - self.tuples.len()) }
    }

    fn insert(&mut self, entry: &Entry, place: Place) {
        let known = self.tuples.iter().position(|tuple| tuple.mask == entry.mask);
        let at = match known {
            Some(at) => at,
            None if self.tuples.len() < MASKS_MAX => {
                self.begin(Tuple::new(entry.mask));
                self.tuples.len() - 1
            }
            None => {
                let at = self.line.partition_point(|other| other.rank < place.rank);
                let Place { rank, slot } = place;
                self.line.insert(at, InLine { entry: *entry, rank, slot });
                return;
            }
        };
        let tuple = &mut self.tuples[at];
        tuple.insert(&tuple.key(&entry.value), place);
        tuple.best = tuple.best.min(place.rank);
        for sieve in &mut self.sieves {
            let Some(counts) = &mut tuple.counts[sieve.which] else { continue };
            let (mask, value) = sieved(entry, sieve.which);
            counts[usize::from(value)] += 1;
            if counts[usize::from(value)] == 1 {
                sieve.set(at, mask, value, true);
            }
        }
    }

    /// Adds a table without entries.
    fn begin(&mut self, tuple: Tuple) {
        for which in 0..SIEVED.len() {
            let is_known = self.sieves.iter().any(|sieve| sieve.which == which);
            if tuple.counts[which].is_some() && !is_known {
                // The tables so far have no bits there: they may hold a match whatever it is.
                let tuples = Box::new([self.all(); 256]);
                self.sieves.push(Sieve { which, tuples });
            }
        }
        let at = self.tuples.len();
        for sieve in &mut self.sieves {
            let is_any = tuple.counts[sieve.which].is_none();
            sieve.set(at, 0, 0, is_any);
        }
        self.tuples.push(tuple);
    }

    fn remove(&mut self, entry: &Entry, rank: u64) {
        // An entry stands in the line although its mask has a table, if that was made later.
        let in_line =
            self.line.iter().position(|other| other.rank == rank && other.entry == *entry);
        if let Some(at) = in_line {
            self.line.remove(at);
            return;
        }
        let Some(at) = self.tuples.iter().position(|tuple| tuple.mask == entry.mask) else {
            return;
        };
        let tuple = &mut self.tuples[at];
        if !tuple.remove(&tuple.key(&entry.value), rank) {
            return;
        }
        for sieve in &mut self.sieves {
            let Some(counts) = &mut tuple.counts[sieve.which] else { continue };
            let (mask, value) = sieved(entry, sieve.which);
            counts[usize::from(value)] -= 1;
            if counts[usize::from(value)] == 0 {
                sieve.set(at, mask, value, false);
            }
        }
        if tuple.len == 0 {
            self.tuples.swap_remove(at);
            let last = self.tuples.len();
            for sieve in &mut self.sieves {
                // The last table stands where the empty one stood.
                sieve.set(at, 0, 0, false);
                if at != last {
                    sieve.rename(last, at);
                }
            }
        }
    }
}

/// Mask and value of an entry in a byte of [`SIEVED`].
fn sieved(entry: &Entry, which: usize) -> (u8, u8) {
    let at = SIEVED[which];
    let byte = |words: &[u64; WORDS]| words[at / 8].to_ne_bytes()[at % 8];
    (byte(&entry.mask), byte(&entry.value))
}

type Key = [u64; WORDS];

impl Tuple {
    fn new(mask: [u64; WORDS]) -> Tuple {
        let mut tuple = Tuple {
            mask,
            words: [0; WORDS],
            words_len: 0,
            best: u64::MAX,
            len: 0,
            counts: Default::default(),
            places: vec![Place::default(); PLACES_MIN],
            keys: Vec::new(),
        };
        for (i, _) in mask.iter().enumerate().filter(|(_, word)| **word != 0) {
            tuple.words[tuple.words_len] = i as u8;
            tuple.words_len += 1;
        }
        tuple.keys = vec![0; PLACES_MIN * tuple.words_len];
        let entry = Entry { mask, value: [0; WORDS] };
        for (which, counts) in tuple.counts.iter_mut().enumerate() {
            *counts = (sieved(&entry, which).0 != 0).then(|| Box::new([0; 256]));
        }
        tuple
    }

    /// The words of an entry's value that count, side by side.
    fn key(&self, value: &[u64; WORDS]) -> Key {
        let mut key = [0; WORDS];
        for (to, i) in key.iter_mut().zip(&self.words[..self.words_len]) {
            *to = value[usize::from(*i)];
        }
        key
    }

    #[inline]
    fn hash(key: &[u64]) -> u64 {
        let step = |hash: u64, word: &u64| {
            let mixed = u128::from(hash ^ word) * 0x9e37_79b9_7f4a_7c15;
            mixed as u64 ^ (mixed >> 64) as u64
        };
        key.iter().fold(0x243f_6a88_85a3_08d3, step)
    }

    fn stored(&self, at: usize) -> &[u64] {
        &self.keys[at * self.words_len..(at + 1) * self.words_len]
    }

    #[inline]
    fn find(&self, fields: &Fields, above: u64, best: &mut Place) {
        let mut key = [0; WORDS];
        for (to, i) in key.iter_mut().zip(&self.words[..self.words_len]) {
            *to = fields.word(usize::from(*i)) & self.mask[usize::from(*i)];
        }
        let key = &key[..self.words_len];
        let last = self.places.len() - 1;
        let mut at = Tuple::hash(key) as usize & last;
        // Half of the places are free, so this ends.
        while self.places[at].rank != 0 {
            let place = self.places[at];
            if place.rank < best.rank && place.rank > above && self.stored(at) == key {
                *best = place;
            }
            at = (at + 1) & last;
        }
    }

    fn insert(&mut self, key: &Key, place: Place) {
        if (self.len + 1) * 2 > self.places.len() {
            self.double();
        }
        self.put(&key[..self.words_len], place);
        self.len += 1;
    }

    fn put(&mut self, key: &[u64], place: Place) {
        let last = self.places.len() - 1;
        let mut at = Tuple::hash(key) as usize & last;
        while self.places[at].rank != 0 {
            at = (at + 1) & last;
        }
        self.places[at] = place;
        self.keys[at * key.len()..(at + 1) * key.len()].copy_from_slice(key);
    }

    fn double(&mut self) {
        let places = vec![Place::default(); self.places.len() * 2];
        let keys = vec![0; places.len() * self.words_len];
        let old_places = std::mem::replace(&mut self.places, places);
        let old_keys = std::mem::replace(&mut self.keys, keys);
        for (at, place) in old_places.iter().enumerate().filter(|(_, place)| place.rank != 0) {
            self.put(&old_keys[at * self.words_len..(at + 1) * self.words_len], *place);
        }
    }

    /// False when it is not there.
    fn remove(&mut self, key: &Key, rank: u64) -> bool {
        let key = &key[..self.words_len];
        let last = self.places.len() - 1;
        let mut free = Tuple::hash(key) as usize & last;
        loop {
            match self.places[free].rank {
                0 => return false,
                found if found == rank && self.stored(free) == key => break,
                _ => free = (free + 1) & last,
            }
        }
        self.len -= 1;
        // Close the gap: whoever stands behind it and may stand in it moves there.
        let mut at = free;
        loop {
            at = (at + 1) & last;
            if self.places[at].rank == 0 {
                break;
            }
            let home = Tuple::hash(self.stored(at)) as usize & last;
            if at.wrapping_sub(home) & last >= at.wrapping_sub(free) & last {
                self.places[free] = self.places[at];
                let words = self.words_len;
                self.keys.copy_within(at * words..(at + 1) * words, free * words);
                free = at;
            }
        }
        self.places[free] = Place::default();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::FIELDS_BYTES;
    use proptest::{collection::vec, prelude::*};

    #[derive(Clone, Debug)]
    struct Known {
        entry: Entry,
        rank: u64,
        slot: u32,
    }

    /// Entries over few masks and values, so that keys repeat and frames match.
    fn entry() -> impl Strategy<Value = Entry> {
        let masks = prop_oneof![
            (0usize..FIELDS_BYTES, 1usize..20).prop_map(|(from, bytes)| {
                let mut mask = [0u8; FIELDS_BYTES];
                mask[from..(from + bytes).min(FIELDS_BYTES)].fill(0xff);
                mask
            }),
            Just([0u8; FIELDS_BYTES]),
            // Prefixes, of which a byte counts in part.
            (0u32..=32).prop_map(|bits| {
                let mut mask = [0u8; FIELDS_BYTES];
                let prefix = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
                mask[at::DST_IP + 12..at::DST_IP + 16].copy_from_slice(&prefix.to_be_bytes());
                mask
            }),
        ];
        (masks, 0u8..3).prop_map(|(mask, value)| {
            let words = |byte: &dyn Fn(usize) -> u8| {
                let mut fields = Fields::default();
                (0..FIELDS_BYTES).for_each(|i| fields.set(i, &[byte(i)]));
                std::array::from_fn(|i| fields.word(i))
            };
            Entry { mask: words(&|i| mask[i]), value: words(&|i| value & mask[i]) }
        })
    }

    fn by_brute_force(known: &[Known], fields: &Fields, above: u64) -> Option<(u64, u32)> {
        let matching = known.iter().filter(|k| k.rank > above && k.entry.matches(fields));
        matching.map(|k| (k.rank, k.slot)).min()
    }

    fn found(table: &Table, fields: &Fields, above: u64) -> Option<(u64, u32)> {
        table.find(&table.ports[0], 0, fields, above).map(|m| (m.rank, m.slot))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        #[test]
        fn finds_what_a_linear_search_finds_through_additions_and_removals(
            steps in vec((entry(), 1u64..60, any::<bool>(), any::<u8>()), 1..250),
            frames in vec((0u8..3, 0usize..FIELDS_BYTES, 0u8..3), 8),
        ) {
            let (mut table, mut known): (Table, Vec<Known>) = (Table::new(1), Vec::new());
            for (i, (entry, rank, adds, which)) in steps.into_iter().enumerate() {
                if adds || known.is_empty() {
                    let (rank, slot) = (rank << 16 | i as u64, i as u32);
                    table.insert(0, 0, (rank, slot), &[entry], Effects::default());
                    known.push(Known { entry, rank, slot });
                } else {
                    let gone = known.swap_remove(usize::from(which) % known.len());
                    table.remove(0, 0, gone.rank, &[gone.entry]);
                }
                prop_assert_eq!(table.shape().entries, known.len());
            }
            for (byte, odd_at, odd) in frames {
                let mut fields = Fields::default();
                fields.set(0, &[byte; FIELDS_BYTES]);
                fields.set(odd_at, &[odd]);
                let mut above = 0;
                while let Some((rank, slot)) = by_brute_force(&known, &fields, above) {
                    prop_assert_eq!(found(&table, &fields, above), Some((rank, slot)));
                    above = rank;
                }
                prop_assert_eq!(found(&table, &fields, above), None);
            }
        }
    }

    #[test]
    fn more_masks_than_tables_are_searched_in_a_line_and_found_all_the_same() {
        let mut table = Table::new(1);
        let entry = |i: usize| {
            let (mut mask, mut value) = ([0u64; WORDS], [0u64; WORDS]);
            (mask[0], value[0]) = (i as u64 + 1, 0);
            mask[1] = u64::MAX;
            value[1] = i as u64;
            Entry { mask, value }
        };
        let count = MASKS_MAX + 30;
        for i in 0..count {
            table.insert(0, 0, (i as u64 + 1, i as u32), &[entry(i)], Effects::default());
        }
        let shape = table.shape();
        assert_eq!((shape.entries, shape.masks, shape.in_line), (count, MASKS_MAX, 30));
        for i in 0..count {
            let mut fields = Fields::default();
            fields.set(8, &(i as u64).to_ne_bytes());
            assert_eq!(found(&table, &fields, 0), Some((i as u64 + 1, i as u32)));
        }
        for i in 0..count {
            table.remove(0, 0, i as u64 + 1, &[entry(i)]);
        }
        assert!(table.is_empty(0));
    }
}
