//! Which hash tables can hold a match for an address: a trie over the prefixes that entries ask for.
//!
//! ```text
//!   first byte ─▶ page ─ second byte ─▶ cell ─ third byte ─▶ cell ─ ...
//!                                        │ items: table, prefix, lowest rank there
//!                                        └ in the order of these ranks
//! ```
//! An item stands for all entries of one table with one prefix. It lies in every cell that its prefix
//! covers if that is no longer than what leads to the cell, else in the one on its way; a cell with more
//! than [`DEEP_MAX`] items of the latter kind gets cells of its own below. So an address meets, in one to
//! three cells, the tables that have its very prefix and hardly another, the most promising first: the
//! search ends at the first item that cannot be better than what is found.
//!
//! Fields are 8 bytes: an IPv4 address in the upper half, or the first half of an IPv6 address, whose
//! longer prefixes count as 64 bits. What must always hold: a table with an entry for an address is met,
//! with a rank that is not above the entry's. Ranks of entries that are gone may stay until the last one
//! with the prefix has gone: that costs a futile probe. An item is added in at most
//! 2^(16 - [`BITS_MIN`]) cells, and never more than [`NODES_MAX`] times cells are made below another.

/// A set of tables, by their place in the group.
pub(crate) type Tuples = u128;

/// Shorter prefixes are not guided: they would lie in too many cells.
pub(crate) const BITS_MIN: u32 = 6;
/// Items of a cell that wait for a longer prefix, before they get cells of their own.
const DEEP_MAX: usize = 8;
/// Sets of 256 cells (8 KiB) below others; beyond that the lists grow.
const NODES_MAX: usize = 8192;
/// Bits that lead to the first cell.
const FIRST_BITS: u32 = 16;

#[derive(Clone, Debug, Default)]
pub(crate) struct Guide {
    /// Tables that are met here and need not be asked otherwise.
    pub(crate) tuples: Tuples,
    /// By first byte; empty while there is no item.
    pages: Vec<Option<Box<Cells>>>,
    nodes: usize,
}

/// By the next byte of the field.
type Cells = [Cell; 256];

#[derive(Clone, Debug, Default)]
struct Cell {
    /// By rank.
    items: Vec<Item>,
    below: Option<Box<Cells>>,
}

#[derive(Clone, Copy, Debug)]
struct Item {
    /// No entry has a lower rank.
    rank: u64,
    /// The prefix, zeros behind it.
    prefix: u64,
    /// Entries.
    count: u32,
    bits: u8,
    tuple: u8,
}

/// The prefix of an entry in a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefix {
    pub(crate) value: u64,
    /// [`BITS_MIN`] to 64.
    pub(crate) bits: u32,
}

fn no_cells() -> Box<Cells> {
    Box::new(std::array::from_fn(|_| Cell::default()))
}

/// The cells of a set that `depth` bits lead to, which a prefix lies in.
fn places(prefix: u64, bits: u32, depth: u32) -> std::ops::Range<usize> {
    let first = (prefix >> (64 - 8 - depth)) as usize & 0xff;
    // A longer prefix lies on the way of one.
    first..first + (1 << (depth + 8).saturating_sub(bits).min(8))
}

impl Item {
    #[inline]
    fn covers(&self, field: u64) -> bool {
        (field ^ self.prefix) >> (64 - u32::from(self.bits)) == 0
    }
}

/// Where the walk of one field begins.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Start<'a> {
    field: u64,
    cell: Option<&'a Cell>,
}

impl Start<'_> {
    /// The table that the walk is likely to meet first.
    #[inline]
    pub(crate) fn first(&self) -> Option<usize> {
        self.cell?.items.first().map(|item| usize::from(item.tuple))
    }

    /// Calls `probe` with the tables among `wanted` that have an entry for this field, the lowest ranks
    /// first; `best` is the rank that still counts, and `probe` gives the one that counts then.
    #[inline]
    pub(crate) fn walk(&self, wanted: Tuples, mut best: u64, mut probe: impl FnMut(usize) -> u64) {
        let Some(mut cell) = self.cell else { return };
        let mut rest = self.field << FIRST_BITS;
        loop {
            for item in &cell.items {
                if item.rank >= best {
                    break;
                }
                if item.covers(self.field) && wanted >> item.tuple & 1 == 1 {
                    best = probe(usize::from(item.tuple));
                }
            }
            let Some(below) = &cell.below else { return };
            cell = &below[(rest >> 56) as usize];
            rest <<= 8;
        }
    }
}

impl Guide {
    /// Where this field's walk begins. Only looks at pages, which are few.
    #[inline]
    pub(crate) fn start(&self, field: u64) -> Start<'_> {
        let page = self.pages.get((field >> 56) as usize).and_then(Option::as_ref);
        Start { field, cell: page.map(|page| &page[(field >> 48) as usize & 0xff]) }
    }

    /// Memory.
    pub(crate) fn bytes(&self) -> usize {
        let pages = self.pages.iter().flatten();
        self.pages.capacity() * size_of::<Option<Box<Cells>>>()
            + pages.map(|page| cells_bytes(page)).sum::<usize>()
    }

    /// Adds an entry of a table that is in [`tuples`](Self::tuples).
    pub(crate) fn insert(&mut self, tuple: usize, prefix: Prefix, rank: u64) {
        let Prefix { value, bits } = prefix;
        let item = Item { rank, prefix: value, count: 1, bits: bits as u8, tuple: tuple as u8 };
        if self.pages.is_empty() {
            self.pages.resize(256, None);
        }
        for first in places(value, bits, 0) {
            let page = self.pages[first].get_or_insert_with(no_cells);
            for second in second_places(value, bits) {
                page[second].add(item, FIRST_BITS, &mut self.nodes);
            }
        }
    }

    /// Takes an entry out; it must be there.
    pub(crate) fn remove(&mut self, tuple: usize, prefix: Prefix) {
        let Prefix { value, bits } = prefix;
        for first in places(value, bits, 0) {
            let Some(Some(page)) = self.pages.get_mut(first) else { continue };
            for second in second_places(value, bits) {
                page[second].remove(tuple as u8, prefix, FIRST_BITS, &mut self.nodes);
            }
        }
    }
}

/// All cells of a page, where the prefix ends with the page's byte or before.
fn second_places(prefix: u64, bits: u32) -> std::ops::Range<usize> {
    if bits <= 8 { 0..256 } else { places(prefix, bits, 8) }
}

fn cells_bytes(cells: &Cells) -> usize {
    let of_cell = |cell: &Cell| {
        cell.items.capacity() * size_of::<Item>()
            + cell.below.as_ref().map_or(0, |below| cells_bytes(below))
    };
    size_of::<Cells>() + cells.iter().map(of_cell).sum::<usize>()
}

impl Cell {
    fn add(&mut self, item: Item, depth: u32, nodes: &mut usize) {
        if u32::from(item.bits) > depth
            && let Some(below) = &mut self.below
        {
            for at in places(item.prefix, item.bits.into(), depth) {
                below[at].add(item, depth + 8, nodes);
            }
            return;
        }
        self.put(item);
        let is_deep = |item: &&Item| u32::from(item.bits) > depth;
        // Nothing is longer than 64 bits, so there is a byte to tell the deep ones apart.
        if *nodes < NODES_MAX && self.items.iter().filter(is_deep).count() > DEEP_MAX {
            *nodes += 1;
            let mut below = no_cells();
            for item in self.items.extract_if(.., |item| u32::from(item.bits) > depth) {
                for at in places(item.prefix, item.bits.into(), depth) {
                    below[at].add(item, depth + 8, nodes);
                }
            }
            self.below = Some(below);
        }
    }

    fn position(&self, tuple: u8, prefix: u64) -> Option<usize> {
        self.items.iter().position(|item| item.tuple == tuple && item.prefix == prefix)
    }

    /// Into the list, or to those of its kind that are there.
    fn put(&mut self, mut item: Item) {
        if let Some(at) = self.position(item.tuple, item.prefix) {
            let known = &mut self.items[at];
            known.count += item.count;
            if known.rank <= item.rank {
                return;
            }
            item.count = known.count;
            self.items.remove(at);
        }
        let at = self.items.partition_point(|other| other.rank < item.rank);
        self.items.insert(at, item);
    }

    fn remove(&mut self, tuple: u8, prefix: Prefix, depth: u32, nodes: &mut usize) {
        if prefix.bits > depth
            && let Some(below) = &mut self.below
        {
            for at in places(prefix.value, prefix.bits, depth) {
                below[at].remove(tuple, prefix, depth + 8, nodes);
            }
            if below.iter().all(Cell::is_empty) {
                self.below = None;
                *nodes -= 1;
            }
            return;
        }
        let Some(at) = self.position(tuple, prefix.value) else { return };
        self.items[at].count -= 1;
        if self.items[at].count == 0 {
            self.items.remove(at);
            if self.items.is_empty() {
                self.items = Vec::new();
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.items.is_empty() && self.below.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    #[derive(Clone, Debug)]
    struct Known {
        tuple: usize,
        prefix: Prefix,
        rank: u64,
    }

    /// The tables met for a field when no rule is found.
    fn met(guide: &Guide, field: u64) -> Vec<usize> {
        let mut tuples = Vec::new();
        guide.start(field).walk(Tuples::MAX, u64::MAX, |tuple| {
            tuples.push(tuple);
            u64::MAX
        });
        tuples
    }

    fn known() -> impl Strategy<Value = Known> {
        // Crowded addresses, so that cells are made below others, down to the last byte.
        let addresses = prop_oneof![
            any::<u64>(),
            (0u64..1 << 16).prop_map(|low| 0x0a01_0000_0000_0000 | low << 32),
            (0u64..64).prop_map(|low| 0x2001_0db8_0000_0000 | low),
        ];
        (addresses, BITS_MIN..=64, 1u64..1000).prop_map(|(address, bits, rank)| {
            let value = address & u64::MAX << (64 - bits);
            // One length, one table.
            Known { tuple: bits as usize, prefix: Prefix { value, bits }, rank }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
        #[test]
        fn exactly_the_tables_with_a_prefix_of_the_field_are_met(
            steps in vec((known(), 0u8..4, any::<u16>()), 1..300),
            fields in vec(any::<u64>(), 4),
        ) {
            let (mut guide, mut all): (Guide, Vec<Known>) = (Guide::default(), Vec::new());
            for (new, kind, which) in steps {
                if kind == 0 && !all.is_empty() {
                    let gone = all.swap_remove(usize::from(which) % all.len());
                    guide.remove(gone.tuple, gone.prefix);
                } else {
                    guide.insert(new.tuple, new.prefix, new.rank);
                    all.push(new);
                }
            }
            // The first and the last field of each prefix.
            let last = |bits| u64::MAX.checked_shr(bits).unwrap_or(0);
            let ends = all.iter().flat_map(|known| {
                [known.prefix.value, known.prefix.value | last(known.prefix.bits)]
            });
            for field in ends.chain(fields).collect::<Vec<_>>() {
                let mut expected: Vec<usize> = all
                    .iter()
                    .filter(|k| (k.prefix.value ^ field) >> (64 - k.prefix.bits) == 0)
                    .map(|known| known.tuple)
                    .collect();
                let mut found = met(&guide, field);
                found.sort_unstable();
                expected.sort_unstable();
                expected.dedup();
                prop_assert_eq!(found, expected, "{:x}", field);
            }
            for gone in all {
                guide.remove(gone.tuple, gone.prefix);
            }
            prop_assert_eq!(guide.nodes, 0);
            prop_assert!(guide.pages.iter().flatten().all(|page| page.iter().all(Cell::is_empty)));
        }
    }

    #[test]
    fn the_lowest_rank_is_met_first_and_ends_the_walk() {
        let mut guide = Guide::default();
        for (tuple, bits, rank) in [(0, 8, 30), (1, 16, 10), (2, 12, 20)] {
            guide.insert(tuple, Prefix { value: 0x0a00 << 48, bits }, rank);
        }
        assert_eq!(met(&guide, 0x0a00_0001 << 32), [1, 2, 0]);
        let mut asked = Vec::new();
        guide.start(0x0a00_0001 << 32).walk(Tuples::MAX, u64::MAX, |tuple| {
            asked.push(tuple);
            20
        });
        assert_eq!(asked, [1], "what is found has rank 20, and no other ranks before that");
    }
}
