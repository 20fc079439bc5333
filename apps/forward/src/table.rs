//! Rules ready to be looked up: per port and group one hash table per mask (tuple space search), and a
//! guide to those of them that can hold a match.
//!
//! A frame's fields under a mask are one lookup in a [`Tuple`], for any number of rules with that
//! mask. Which tables are worth it is known before: for a few bytes that stand for headers and service
//! a [`Sieve`] keeps the set of tables that have an entry for the byte's value, and a [`Guide`] per
//! address knows the tables with the very prefix that the frame's address has, the lowest rank first. So
//! of 25 prefix lengths a frame meets one or two, not all, and it stops at the first that decides.
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
    fields::{Fields, WORDS, at, has},
    guide::{BITS_MIN, Guide, Prefix, Start, Tuples},
    tuple::{Found, Tuple},
};
use std::{collections::HashMap, hint::black_box};

/// Hash tables per group; each may cost a lookup per frame.
pub const MASKS_MAX: usize = 128;

/// Frames that are looked up side by side: enough to wait for memory together, few enough to stay at hand.
pub(crate) const SIDE_BY_SIDE: usize = 32;

/// A group with fewer entries is at hand anyway. In tests small, so that they see both ways.
const ENTRIES_SIDE_BY_SIDE: usize = if cfg!(test) { 16 } else { 256 };

/// The rules of all ports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    ports: Vec<Groups>,
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
    /// Memory of one of the two tables, but for what the rules do (about 100 bytes per kind).
    pub bytes: usize,
}

#[derive(Clone, Debug, Default)]
struct Groups {
    /// By number; few, so they are found by looking.
    groups: Vec<Group>,
    effects: Interned,
}

/// What rules do, each kind once: most rules of a set do the same, and what they do is at hand then.
#[derive(Clone, Debug, Default)]
struct Interned {
    /// By number.
    effects: Vec<Effects>,
    /// Number and rules of each kind in use.
    known: HashMap<Effects, (u32, u32)>,
    free: Vec<u32>,
}

impl Interned {
    /// The number of what one more rule does.
    fn take(&mut self, effects: Effects) -> u32 {
        let Interned { effects: all, known, free } = self;
        let (number, rules) = known.entry(effects).or_insert_with(|| {
            let number = free.pop().unwrap_or_else(|| {
                all.push(effects);
                all.len() as u32 - 1
            });
            all[number as usize] = effects;
            (number, 0)
        });
        *rules += 1;
        *number
    }

    /// A rule that did this is gone.
    fn give(&mut self, number: u32) {
        let effects = self.effects[number as usize];
        if let Some((_, rules)) = self.known.get_mut(&effects) {
            *rules -= 1;
            if *rules == 0 {
                self.known.remove(&effects);
                self.free.push(number);
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Group {
    number: u32,
    /// A table keeps its place as long as it has entries.
    tuples: Vec<Option<Tuple>>,
    /// The places that are taken.
    there: Tuples,
    /// One per byte of [`SIEVED`] that a mask has bits in, once there was such a mask.
    sieves: Vec<Sieve>,
    /// By [`Address`].
    guides: [Guide; ADDRESSES.len()],
    /// The guide for IPv6 packets, and that for all other frames: the one with more tables.
    guide_v6: usize,
    guide_v4: usize,
    /// By rank.
    line: Vec<InLine>,
    /// Over all of these.
    entries: usize,
}

#[derive(Clone, Debug)]
struct InLine {
    entry: Entry,
    found: Found,
}

/// Bytes of the fields that tell tables apart: what stands for the headers and the service.
const SIEVED: [usize; 6] =
    [at::HAS + 1, at::PROTO, at::SRC_PORT + 1, at::DST_PORT + 1, at::VLAN_TCI + 1, at::ETH_DST + 5];

/// A field that a [`Guide`] is for.
#[derive(Clone, Copy)]
struct Address {
    at: usize,
    is_v6: bool,
}

/// Of each family the destination first: it is preferred where both guide as many tables.
const ADDRESSES: [Address; 4] = [
    Address { at: at::DST_IP, is_v6: false },
    Address { at: at::SRC_IP, is_v6: false },
    Address { at: at::DST_IP, is_v6: true },
    Address { at: at::SRC_IP, is_v6: true },
];

/// So many tables are asked sooner than sieved or guided to.
const TUPLES_ASKED: u32 = 2;

impl Address {
    /// The field's first 8 bytes as a number; an IPv4 address in the upper half.
    #[inline]
    fn of(self, fields: &Fields) -> u64 {
        self.number(fields.word(self.at / 8), fields.word(self.at / 8 + 1))
    }

    #[inline]
    fn number(self, first: u64, second: u64) -> u64 {
        match self.is_v6 {
            true => u64::from_be(first),
            false => u64::from_be(second) << 32,
        }
    }

    /// The prefix that all frames that match the entry have here; `None` where it is none worth a guide.
    fn prefix(self, entry: &Entry) -> Option<Prefix> {
        let word = self.at / 8;
        let mask = self.number(entry.mask[word], entry.mask[word + 1]);
        // What asks for more than the lower four bytes is about IPv6.
        let upper = entry.mask[word] != 0 || u64::from_be(entry.mask[word + 1]) >> 32 != 0;
        let bits = mask.leading_ones();
        let value = self.number(entry.value[word], entry.value[word + 1]);
        let is_ours = upper == self.is_v6 && bits >= BITS_MIN;
        is_ours.then(|| Prefix { value: value & u64::MAX << (64 - bits), bits })
    }
}

/// Which tables a frame asks.
#[derive(Clone, Copy, Debug, Default)]
struct Begun<'a> {
    /// Those that the guide leads to.
    guided: Tuples,
    start: Start<'a>,
    /// The others.
    wanted: Tuples,
}

impl Begun<'_> {
    /// The place of the table that is likely to be asked first; [`MASKS_MAX`] for none.
    #[inline]
    fn first(&self) -> usize {
        match self.start.first() {
            Some(table) if self.guided != 0 => table,
            _ => self.wanted.trailing_zeros() as usize,
        }
    }
}

/// For each value of one byte of the fields: the tables that may hold a match.
#[derive(Clone, Debug)]
struct Sieve {
    /// Which byte of the fields.
    at: usize,
    tuples: Box<[Tuples; 256]>,
    /// By table: how many of its entries have each value here. Nothing where the mask has no bits here,
    /// so that the table may hold a match whatever the value is.
    counts: Vec<Option<Box<[u32; 256]>>>,
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

    /// Mask and value of an entry here.
    fn of(&self, entry: &Entry) -> (u8, u8) {
        (byte(&entry.mask, self.at), byte(&entry.value, self.at))
    }

    /// A table without entries takes a place.
    fn begin(&mut self, tuple: usize, mask: u8) {
        if self.counts.len() <= tuple {
            self.counts.resize(tuple + 1, None);
        }
        self.counts[tuple] = (mask != 0).then(|| Box::new([0; 256]));
        self.set(tuple, 0, 0, mask == 0);
    }

    fn add(&mut self, tuple: usize, entry: &Entry) {
        let (mask, value) = self.of(entry);
        let Some(counts) = &mut self.counts[tuple] else { return };
        counts[usize::from(value)] += 1;
        if counts[usize::from(value)] == 1 {
            self.set(tuple, mask, value, true);
        }
    }

    fn remove(&mut self, tuple: usize, entry: &Entry) {
        let (mask, value) = self.of(entry);
        let Some(counts) = &mut self.counts[tuple] else { return };
        counts[usize::from(value)] -= 1;
        if counts[usize::from(value)] == 0 {
            self.set(tuple, mask, value, false);
        }
    }
}

fn byte(words: &[u64; WORDS], at: usize) -> u8 {
    words[at / 8].to_ne_bytes()[at % 8]
}

impl Table {
    pub(crate) fn new(ports: usize) -> Table {
        Table { ports: vec![Groups::default(); ports] }
    }

    /// True when no frame of the port can match.
    #[inline]
    pub(crate) fn is_empty(&self, port: usize) -> bool {
        self.ports.get(port).is_none_or(|groups| groups.groups.is_empty())
    }

    /// The first match of each of some frames in group 0 of `port`, for [`decide`](Self::decide). Every
    /// step is done for [`SIDE_BY_SIDE`] frames before the next one, so that they wait for memory together.
    #[inline]
    pub(crate) fn find_first<'a>(
        &self,
        port: usize,
        fields: impl Fn(usize) -> &'a Fields,
        found: &mut [Found],
    ) {
        found.fill(Found::NONE);
        let group = self.ports.get(port).and_then(|groups| groups.group(0));
        let Some(group) = group else { return };
        if found.len() == 1 || group.entries < ENTRIES_SIDE_BY_SIDE {
            for (i, found) in found.iter_mut().enumerate() {
                *found = group.find(&group.begin(fields(i)), fields(i), 0);
            }
            return;
        }
        for (part, found) in found.chunks_mut(SIDE_BY_SIDE).enumerate() {
            let fields = |i: usize| fields(part * SIDE_BY_SIDE + i);
            let mut starts = [Begun::default(); SIDE_BY_SIDE];
            for (i, start) in starts[..found.len()].iter_mut().enumerate() {
                *start = group.begin(fields(i));
            }
            let mut tables = [MASKS_MAX; SIDE_BY_SIDE];
            for (table, start) in tables.iter_mut().zip(&starts[..found.len()]) {
                *table = start.first();
            }
            let mut records = [0; SIDE_BY_SIDE];
            let tuple = |table: usize| group.tuples.get(table).and_then(Option::as_ref);
            for (i, (table, record)) in tables[..found.len()].iter().zip(&mut records).enumerate() {
                *record = tuple(*table).map_or(0, |tuple| tuple.likely(fields(i)));
            }
            let touch = |(table, record): (&usize, &usize)| {
                tuple(*table).map_or(0, |tuple| tuple.touch(*record))
            };
            let touched = tables.iter().zip(&records).map(touch).fold(0, |all, one| all ^ one);
            // Nothing is done with it: it is in the cache now.
            black_box(touched);
            for ((i, found), start) in found.iter_mut().enumerate().zip(&starts) {
                *found = group.find(start, fields(i), 0);
            }
        }
    }

    /// Runs the rules of `port` on a frame's fields, whose first match is `first`; `hit` is called with
    /// the slot of each match.
    #[inline]
    pub(crate) fn decide(
        &self,
        port: usize,
        first: Found,
        fields: &mut Fields,
        hit: impl FnMut(u32),
    ) -> Decision {
        let Some(groups) = self.ports.get(port) else { return Decision::default() };
        let first = groups.matched(first);
        decide(fields, first, |group, fields, above| groups.find(group, fields, above), hit)
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
        let Groups { groups, effects: interned } = &mut self.ports[port];
        let found = Found::new(rank, slot, interned.take(effects));
        let at = groups.iter().position(|other| other.number == group).unwrap_or_else(|| {
            groups.push(Group { number: group, ..Group::default() });
            groups.len() - 1
        });
        for entry in entries {
            groups[at].insert(entry, found);
        }
    }

    /// Takes a rule's entries out; they must be in it.
    pub(crate) fn remove(&mut self, port: usize, group: u32, rank: u64, entries: &[Entry]) {
        let Groups { groups, effects } = &mut self.ports[port];
        let Some(at) = groups.iter().position(|other| other.number == group) else { return };
        let mut gone = None;
        for entry in entries {
            let one = groups[at].remove(entry, rank);
            groups[at].entries -= usize::from(one.is_some());
            gone = one.or(gone);
        }
        if let Some(gone) = gone {
            effects.give(gone.effect());
        }
        if groups[at].there == 0 && groups[at].line.is_empty() {
            groups.swap_remove(at);
        }
    }

    /// Takes all rules of a port out.
    pub(crate) fn clear(&mut self, port: usize) {
        self.ports[port] = Groups::default();
    }

    /// How its entries are looked up.
    pub(crate) fn shape(&self) -> Shape {
        let mut shape = Shape::default();
        for group in self.ports.iter().flat_map(|port| &port.groups) {
            shape.masks += group.tuples.iter().flatten().count();
            shape.in_line += group.line.len();
            shape.entries += group.entries;
            shape.bytes += group.bytes();
        }
        shape
    }
}

impl Groups {
    fn group(&self, number: u32) -> Option<&Group> {
        self.groups.iter().find(|group| group.number == number)
    }

    #[inline]
    fn find(&self, group: u32, fields: &Fields, above: u64) -> Option<Match<'_>> {
        let group = self.group(group)?;
        self.matched(group.find(&group.begin(fields), fields, above))
    }

    #[inline]
    fn matched(&self, found: Found) -> Option<Match<'_>> {
        (found != Found::NONE).then(|| Match {
            rank: found.rank,
            slot: found.slot(),
            effects: &self.effects.effects[found.effect() as usize],
        })
    }
}

impl Group {
    /// What is known of a frame before any table is asked.
    #[inline]
    fn begin(&self, fields: &Fields) -> Begun<'_> {
        let mut wanted = self.there;
        if wanted.count_ones() > TUPLES_ASKED {
            for sieve in &self.sieves {
                wanted &= sieve.tuples[usize::from(fields.u8(sieve.at))];
            }
        }
        if wanted.count_ones() <= TUPLES_ASKED {
            return Begun { wanted, ..Begun::default() };
        }
        let which = if fields.has(has::IPV6) { self.guide_v6 } else { self.guide_v4 };
        let guide = &self.guides[which];
        Begun {
            guided: wanted & guide.tuples,
            wanted: wanted & !guide.tuples,
            start: guide.start(ADDRESSES[which].of(fields)),
        }
    }

    #[inline]
    fn find(&self, begun: &Begun<'_>, fields: &Fields, above: u64) -> Found {
        let mut best = Found::NONE;
        if begun.guided != 0 {
            begun.start.walk(begun.guided, best.rank, |tuple| {
                self.ask(tuple, fields, above, &mut best);
                best.rank
            });
        }
        let mut wanted = begun.wanted;
        while wanted != 0 {
            self.ask(wanted.trailing_zeros() as usize, fields, above, &mut best);
            wanted &= wanted - 1;
        }
        for other in &self.line {
            if other.found.rank >= best.rank {
                break;
            }
            if other.found.rank > above && other.entry.matches(fields) {
                best = other.found;
            }
        }
        best
    }

    #[inline]
    fn ask(&self, tuple: usize, fields: &Fields, above: u64, best: &mut Found) {
        if let Some(Some(tuple)) = self.tuples.get(tuple)
            && tuple.best < best.rank
        {
            tuple.find(fields, above, best);
        }
    }

    /// Memory.
    fn bytes(&self) -> usize {
        let counts =
            |sieve: &Sieve| sieve.counts.iter().flatten().count() * size_of::<[u32; 256]>();
        size_of::<Group>()
            + self.tuples.iter().flatten().map(Tuple::bytes).sum::<usize>()
            + self.guides.iter().map(Guide::bytes).sum::<usize>()
            + self.sieves.iter().map(|s| size_of::<[Tuples; 256]>() + counts(s)).sum::<usize>()
            + self.line.capacity() * size_of::<InLine>()
    }

    /// Where the table of this mask is.
    fn position(&self, mask: &[u64; WORDS]) -> Option<usize> {
        self.tuples.iter().position(|tuple| tuple.as_ref().is_some_and(|t| t.mask == *mask))
    }

    fn insert(&mut self, entry: &Entry, found: Found) {
        self.entries += 1;
        let known = self.position(&entry.mask).or_else(|| self.make(entry));
        let Some(at) = known else {
            let at = self.line.partition_point(|other| other.found.rank < found.rank);
            self.line.insert(at, InLine { entry: *entry, found });
            return;
        };
        if let Some(tuple) = &mut self.tuples[at] {
            tuple.insert(entry, found);
        }
        self.sieves.iter_mut().for_each(|sieve| sieve.add(at, entry));
        for (guide, address) in self.guides.iter_mut().zip(ADDRESSES) {
            if let Some(prefix) = address.prefix(entry) {
                guide.insert(at, prefix, found.rank);
            }
        }
    }

    /// Makes a table for the mask of this entry, and gives its place; `None` when there are enough.
    fn make(&mut self, entry: &Entry) -> Option<usize> {
        let at = (!self.there).trailing_zeros() as usize;
        if at >= MASKS_MAX {
            return None;
        }
        for byte_at in SIEVED {
            let is_known = self.sieves.iter().any(|sieve| sieve.at == byte_at);
            if byte(&entry.mask, byte_at) != 0 && !is_known {
                // The tables so far have no bits there: they may hold a match whatever it is.
                let tuples = Box::new([self.there; 256]);
                self.sieves.push(Sieve {
                    at: byte_at,
                    tuples,
                    counts: vec![None; self.tuples.len()],
                });
            }
        }
        for sieve in &mut self.sieves {
            sieve.begin(at, byte(&entry.mask, sieve.at));
        }
        if self.tuples.len() <= at {
            self.tuples.push(None);
        }
        self.tuples[at] = Some(Tuple::new(entry.mask));
        self.there |= 1 << at;
        for (guide, address) in self.guides.iter_mut().zip(ADDRESSES) {
            guide.tuples |= Tuples::from(address.prefix(entry).is_some()) << at;
        }
        self.choose();
        Some(at)
    }

    /// Chooses the guides with the most tables.
    fn choose(&mut self) {
        let tables = |which: usize| self.guides[which].tuples.count_ones();
        let better = |first: usize, second: usize| {
            if tables(second) > tables(first) { second } else { first }
        };
        (self.guide_v4, self.guide_v6) = (better(0, 1), better(2, 3));
    }

    fn remove(&mut self, entry: &Entry, rank: u64) -> Option<Found> {
        // An entry stands in the line although its mask has a table, if that was made later.
        let in_line =
            self.line.iter().position(|other| other.found.rank == rank && other.entry == *entry);
        if let Some(at) = in_line {
            return Some(self.line.remove(at).found);
        }
        let at = self.position(&entry.mask)?;
        let tuple = self.tuples[at].as_mut()?;
        let gone = tuple.remove(entry, rank)?;
        let is_empty = tuple.len == 0;
        self.sieves.iter_mut().for_each(|sieve| sieve.remove(at, entry));
        for (guide, address) in self.guides.iter_mut().zip(ADDRESSES) {
            if let Some(prefix) = address.prefix(entry) {
                guide.remove(at, prefix);
            }
        }
        if is_empty {
            self.tuples[at] = None;
            self.there &= !(1 << at);
            for sieve in &mut self.sieves {
                sieve.set(at, 0, 0, false);
                sieve.counts[at] = None;
            }
            self.guides.iter_mut().for_each(|guide| guide.tuples &= !(1 << at));
            self.choose();
        }
        Some(gone)
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

    /// By itself, and side by side with others.
    fn found(table: &Table, fields: &Fields, above: u64) -> Option<(u64, u32)> {
        if above == 0 {
            let others = [Fields::default(), *fields];
            let mut found = [Found::NONE; SIDE_BY_SIDE + 5];
            table.find_first(0, |i| &others[i % 2], &mut found);
            let alone = |i: usize| table.ports[0].find(0, &others[i % 2], 0).map(|m| m.rank);
            let beside = |i: usize| table.ports[0].matched(found[i]).map(|m| m.rank);
            assert!((0..found.len()).all(|i| alone(i) == beside(i)));
        }
        table.ports[0].find(0, fields, above).map(|m| (m.rank, m.slot))
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

    /// As rules have them: prefixes of source and destination of either family, a service or none.
    fn as_rules_ask() -> impl Strategy<Value = [u8; FIELDS_BYTES * 2]> {
        let address = |at: usize| {
            let four = (0u32..=32, any::<u32>()).prop_map(move |(bits, low)| {
                // Crowded, so that many share a prefix: 10.1.x.y and a few others.
                let address =
                    if low % 4 == 0 { low & 0x0303_0303 } else { 0x0a01_0000 | low >> 16 };
                (at + 12, bits, u128::from(address) << 96)
            });
            let six = (0u32..=128, any::<u8>()).prop_map(move |(bits, low)| {
                (at, bits, 0x2001_0db8 << 96 | u128::from(low & 7) << 64 | u128::from(low))
            });
            prop_oneof![3 => four, 1 => six]
        };
        let service = prop_oneof![Just(None), (0u16..4).prop_map(Some)];
        (address(at::SRC_IP), address(at::DST_IP), service).prop_map(
            |(source, destination, port)| {
                let (mut mask, mut value) = ([0u8; FIELDS_BYTES], [0u8; FIELDS_BYTES]);
                for (at, bits, address) in [source, destination] {
                    let prefix = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
                    let bytes = 16 - at % 16;
                    mask[at..at + bytes].copy_from_slice(&prefix.to_be_bytes()[..bytes]);
                    value[at..at + bytes]
                        .copy_from_slice(&(address & prefix).to_be_bytes()[..bytes]);
                }
                if let Some(port) = port {
                    mask[at::DST_PORT..at::DST_PORT + 2].fill(0xff);
                    value[at::DST_PORT..at::DST_PORT + 2].copy_from_slice(&port.to_be_bytes());
                }
                let mut both = [0; FIELDS_BYTES * 2];
                both[..FIELDS_BYTES].copy_from_slice(&mask);
                both[FIELDS_BYTES..].copy_from_slice(&value);
                both
            },
        )
    }

    fn fields_of(bytes: &[u8]) -> Fields {
        let mut fields = Fields::default();
        fields.set(0, bytes);
        fields
    }

    fn entry_of(bytes: &[u8]) -> Entry {
        let words = |bytes| std::array::from_fn(|i| fields_of(bytes).word(i));
        Entry { mask: words(&bytes[..FIELDS_BYTES]), value: words(&bytes[FIELDS_BYTES..]) }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
        #[test]
        fn prefixes_of_both_addresses_are_found_as_by_a_linear_search(
            asked in vec((as_rules_ask(), 1u64..4, 0u8..4), 50..400),
            odd in vec((any::<u16>(), 0u8..255, any::<bool>()), 200),
        ) {
            let (mut table, mut known): (Table, Vec<Known>) = (Table::new(1), Vec::new());
            let mut frames = Vec::new();
            for (i, (bytes, priority, kind)) in asked.iter().enumerate() {
                let (rank, slot) = ((priority << 40) | (i as u64 + 1), i as u32);
                let entry = entry_of(bytes);
                table.insert(0, 0, (rank, slot), &[entry], Effects::default());
                known.push(Known { entry, rank, slot });
                frames.push(bytes[FIELDS_BYTES..].to_vec());
                if *kind == 0 {
                    let gone = known.swap_remove(i * 7919 % known.len());
                    table.remove(0, 0, gone.rank, &[gone.entry]);
                }
            }
            for (which, low, is_v6) in odd {
                let mut frame = frames[usize::from(which) % frames.len()].clone();
                frame[at::SRC_IP + 15] ^= low & 3;
                frame[at::DST_IP + 14] ^= low & 1;
                frame[at::DST_IP + 15] ^= low >> 4;
                frame[at::HAS + 1] = if is_v6 { has::IPV6 } else { has::IPV4 } as u8;
                let fields = fields_of(&frame);
                let mut above = 0;
                while let Some((rank, slot)) = by_brute_force(&known, &fields, above) {
                    prop_assert_eq!(found(&table, &fields, above), Some((rank, slot)));
                    above = rank;
                }
                prop_assert_eq!(found(&table, &fields, above), None);
            }
            for gone in known {
                table.remove(0, 0, gone.rank, &[gone.entry]);
            }
            prop_assert!(table.is_empty(0) && table.ports[0].effects.known.is_empty());
        }
    }

    #[test]
    fn what_rules_do_is_kept_once_and_as_long_as_a_rule_does_it() {
        let mut table = Table::new(1);
        let entry = |i: u64| Entry {
            mask: std::array::from_fn(|w| if w == 0 { u64::MAX } else { 0 }),
            value: std::array::from_fn(|w| if w == 0 { i } else { 0 }),
        };
        let marks = |mark| Effects { mark, ..Effects::default() };
        for i in 0..100u64 {
            table.insert(0, 0, (i + 1, i as u32), &[entry(i)], marks(i as u32 % 2));
        }
        assert_eq!(table.ports[0].effects.effects.len(), 2);
        for i in (1..100u64).step_by(2) {
            table.remove(0, 0, i + 1, &[entry(i)]);
        }
        table.insert(0, 0, (200, 1), &[entry(1)], marks(7));
        assert_eq!(table.ports[0].effects.effects.len(), 2, "the place of the one that is gone");
        let fields = fields_of(&[&1u64.to_ne_bytes()[..], &[0; FIELDS_BYTES - 8]].concat());
        let found = table.ports[0].find(0, &fields, 0).map(|found| found.effects.mark);
        assert_eq!(found, Some(7));
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
