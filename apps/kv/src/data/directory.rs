//! A directory: entries by key, in many small hash tables, each of which holds the keys of one prefix of the hash.
//!
//! ```text
//!  hash:  prefix (depth bits) | rest         prefixes[prefix] ─▶ segments[i] ─▶ hash table of at most 224 entries
//! ```
//!
//! One big table would rehash a million keys within one insert. Here a segment that is full splits in two by its next
//! bit, and no insert moves more than one segment. The prefixes double when a segment of full depth splits: 4 bytes
//! each, copied. Entries have an order that no split changes, that of their hashes: a walk that goes on at a
//! [place](place) sees every entry that was there all the time.

use super::chance::KeyHasher;
use super::memory::Pieces;
use hashbrown::HashTable;
use laneway_random::Random;

/// An entry that is found by its key.
pub(crate) trait Keyed {
    fn key(&self) -> &[u8];
}

/// What of a hash is a place in the order of a walk. Cursors have 48 bits, so that clients whose numbers are
/// floating-point keep them whole.
pub(crate) fn place(hash: u64) -> u64 {
    hash >> PLACE_SHIFT
}

/// Behind the last place.
pub(crate) const PLACE_END: u64 = 1 << (64 - PLACE_SHIFT);
const PLACE_SHIFT: u32 = 16;

/// Whether a walk goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    More,
    Enough,
}

/// A segment splits beyond so many entries: what 256 buckets hold at seven eighths.
const SEGMENT_ENTRIES_MAX: usize = 224;
/// Two neighbours that hold no more than this become one.
const MERGED_ENTRIES_MAX: usize = 56;
/// Beyond so many bits segments grow instead of splitting.
const DEPTH_MAX: u32 = 28;
/// Draws of a bucket or a segment before the rest is searched in order.
const DRAWS_MAX: usize = 64;

#[derive(Clone, Debug)]
pub(crate) struct Directory<T> {
    hasher: KeyHasher,
    /// Which segment holds a prefix of `depth` bits.
    prefixes: Vec<u32>,
    depth: u32,
    segments: Vec<Segment<T>>,
    len: usize,
}

#[derive(Clone, Debug)]
struct Segment<T> {
    entries: HashTable<T>,
    /// How many bits of the hash all its entries share.
    depth: u32,
    /// The least hash it may hold.
    first: u64,
}

impl<T: Keyed> Directory<T> {
    pub(crate) fn new(hasher: KeyHasher) -> Directory<T> {
        let segment = Segment { entries: HashTable::new(), depth: 0, first: 0 };
        Directory { hasher, prefixes: vec![0], depth: 0, segments: vec![segment], len: 0 }
    }

    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn find(&self, hash: u64, key: &[u8]) -> Option<&T> {
        self.segments[self.segment(hash)].entries.find(spread(hash), |entry| entry.key() == key)
    }

    pub(crate) fn find_mut(&mut self, hash: u64, key: &[u8]) -> Option<&mut T> {
        let segment = self.segment(hash);
        self.segments[segment].entries.find_mut(spread(hash), |entry| entry.key() == key)
    }

    /// Every entry whose key has this hash: one, but for chance.
    pub(crate) fn with_hash(&self, hash: u64) -> impl Iterator<Item = &T> {
        let entries = self.segments[self.segment(hash)].entries.iter_hash(spread(hash));
        entries.filter(move |entry| self.hasher.hash(entry.key()) == hash)
    }

    /// Adds an entry whose key is not there.
    pub(crate) fn insert(&mut self, hash: u64, entry: T) {
        let mut segment = self.segment(hash);
        if self.segments[segment].entries.len() >= SEGMENT_ENTRIES_MAX && self.split(segment) {
            segment = self.segment(hash);
        }
        let hasher = &self.hasher;
        let rehash = |entry: &T| spread(hasher.hash(entry.key()));
        self.segments[segment].entries.insert_unique(spread(hash), entry, rehash);
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, hash: u64, key: &[u8]) -> Option<T> {
        let segment = self.segment(hash);
        let entries = &mut self.segments[segment].entries;
        let found = entries.find_entry(spread(hash), |entry| entry.key() == key).ok()?;
        let (entry, _) = found.remove();
        self.len -= 1;
        if self.segments[segment].entries.len() < MERGED_ENTRIES_MAX / 4 {
            self.merge(segment);
        }
        Some(entry)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.segments.iter().flat_map(|segment| segment.entries.iter())
    }

    /// Shows entries in the order of their places, from `from` on, until at least `count` were shown; the place to
    /// go on at, or 0 at the end.
    pub(crate) fn scan(&self, from: u64, count: usize, show: impl FnMut(&T)) -> u64 {
        scan_all(&[self], from, count, show)
    }

    /// An entry by chance, each as likely as the others as far as hashes are even.
    pub(crate) fn random(&self, chance: &mut Random) -> Option<&T> {
        if self.len == 0 {
            return None;
        }
        for _ in 0..DRAWS_MAX {
            let segment = self.prefixes[chance.index(self.prefixes.len())] as usize;
            let entries = &self.segments[segment].entries;
            for _ in 0..DRAWS_MAX.min(entries.len() * DRAWS_MAX) {
                if let Some(entry) = entries.get_bucket(chance.index(entries.num_buckets())) {
                    return Some(entry);
                }
            }
        }
        let from = chance.index(self.segments.len());
        let (before, behind) = self.segments.split_at(from);
        behind.iter().chain(before).find_map(|segment| segment.entries.iter().next())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes out the entries of one segment, whatever their places; nothing if none is left. What is left is no map any
    /// more, and can only be taken out as well.
    pub(crate) fn pop_segment(&mut self) -> Option<impl Iterator<Item = T> + use<T>> {
        Some(self.segments.pop()?.entries.into_iter())
    }

    fn segment(&self, hash: u64) -> usize {
        self.prefixes[self.prefix(hash)] as usize
    }

    fn prefix(&self, hash: u64) -> usize {
        // A shift by all 64 bits is none.
        hash.checked_shr(64 - self.depth).unwrap_or(0) as usize
    }

    /// The prefixes of a segment.
    fn prefixes_of(&self, segment: usize) -> std::ops::Range<usize> {
        let Segment { depth, first, .. } = self.segments[segment];
        let from = self.prefix(first);
        from..from + (1 << (self.depth - depth))
    }

    /// Splits a segment in two; false if it is as deep as any may be.
    fn split(&mut self, segment: usize) -> bool {
        let depth = self.segments[segment].depth;
        if depth == DEPTH_MAX {
            return false;
        }
        if depth == self.depth {
            self.prefixes = self.prefixes.iter().flat_map(|index| [*index, *index]).collect();
            self.depth += 1;
        }
        let Segment { entries, first, .. } = &mut self.segments[segment];
        let (first, entries) = (*first, std::mem::take(entries));
        let bit = 1 << (63 - depth);
        let half = entries.len() / 2;
        let (mut low, mut high) = (HashTable::with_capacity(half), HashTable::with_capacity(half));
        let hasher = &self.hasher;
        let rehash = |entry: &T| spread(hasher.hash(entry.key()));
        for entry in entries {
            let hash = hasher.hash(entry.key());
            let into = if hash & bit == 0 { &mut low } else { &mut high };
            into.insert_unique(spread(hash), entry, rehash);
        }
        self.segments[segment] = Segment { entries: low, depth: depth + 1, first };
        let added = self.segments.len();
        self.segments.push(Segment { entries: high, depth: depth + 1, first: first | bit });
        let prefixes = self.prefixes_of(added);
        self.prefixes[prefixes].fill(added as u32);
        true
    }

    /// Takes a segment and its neighbour together, if both are as deep and nearly empty.
    fn merge(&mut self, segment: usize) {
        let Segment { depth, first, ref entries } = self.segments[segment];
        if depth == 0 {
            return;
        }
        let bit = 1 << (64 - depth);
        let other = self.segment(first ^ bit);
        let both = entries.len() + self.segments[other].entries.len();
        if self.segments[other].depth != depth || both > MERGED_ENTRIES_MAX {
            return;
        }
        let hasher = &self.hasher;
        let rehash = |entry: &T| spread(hasher.hash(entry.key()));
        let mut merged = HashTable::with_capacity(both);
        for from in [segment, other] {
            for entry in std::mem::take(&mut self.segments[from].entries) {
                merged.insert_unique(rehash(&entry), entry, rehash);
            }
        }
        self.segments[segment] = Segment { entries: merged, depth: depth - 1, first: first & !bit };
        let prefixes = self.prefixes_of(segment);
        self.prefixes[prefixes].fill(segment as u32);
        self.segments.swap_remove(other);
        if other < self.segments.len() {
            let prefixes = self.prefixes_of(other);
            self.prefixes[prefixes].fill(other as u32);
        }
        if self.segments.len() == 1 {
            (self.prefixes, self.depth) = (vec![0], 0);
        }
    }
}

/// The entries of several directories by one hasher, from a place on, as far as one segment of each reaches: in the
/// order of their hashes. And the place behind them.
fn reach<'a, T: Keyed>(directories: &[&'a Directory<T>], from: u64) -> (Vec<(u64, &'a T)>, u64) {
    let segments = directories.iter().map(|one| &one.segments[one.segment(from << PLACE_SHIFT)]);
    let end = segments.clone().map(Segment::end).min().unwrap_or(PLACE_END);
    let hashed = segments.zip(directories).flat_map(|(segment, directory)| {
        segment.entries.iter().map(|entry| (directory.hasher.hash(entry.key()), entry))
    });
    let mut found: Vec<(u64, &T)> =
        hashed.filter(|(hash, _)| (from..end).contains(&place(*hash))).collect();
    found.sort_unstable_by_key(|(hash, _)| *hash);
    (found, end)
}

/// [`Directory::scan`] of several directories at once, which have one hasher.
pub(crate) fn scan_all<T: Keyed>(
    directories: &[&Directory<T>],
    mut from: u64,
    count: usize,
    mut show: impl FnMut(&T),
) -> u64 {
    let mut shown = 0;
    while from < PLACE_END && shown < count {
        from = walk_all(directories, from, |_, entry| {
            show(entry);
            shown += 1;
            if shown >= count { Shown::Enough } else { Shown::More }
        });
    }
    if from < PLACE_END { from } else { 0 }
}

/// Shows the entries that one segment of each of these directories reaches to, in the order of their places, from
/// `from` on, with their hashes, until `show` returns `Shown::Enough` for one: those with its place are shown as well.
/// Returns the place to go on at.
pub(crate) fn walk_all<T: Keyed>(
    directories: &[&Directory<T>],
    from: u64,
    mut show: impl FnMut(u64, &T) -> Shown,
) -> u64 {
    let (found, end) = reach(directories, from);
    let mut is_enough = false;
    for (index, (hash, entry)) in found.iter().enumerate() {
        is_enough |= show(*hash, entry) == Shown::Enough;
        let next = found.get(index + 1).map(|(next, _)| place(*next));
        if is_enough && next.is_some_and(|next| next != place(*hash)) {
            return place(*hash) + 1;
        }
    }
    end
}

impl<T> Pieces for Directory<T> {
    fn free_piece(&mut self) -> bool {
        self.segments.pop().is_some()
    }
}

impl<T> Segment<T> {
    /// The place behind it.
    fn end(&self) -> u64 {
        place(self.first) + (PLACE_END >> self.depth)
    }
}

/// The hash as the tables see it. They take their tag from the highest bits, which all entries of a segment share.
fn spread(hash: u64) -> u64 {
    hash ^ (hash << 32)
}
