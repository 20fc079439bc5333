//! What the XDP program matches by, as `bpf/forward.h` has it: a bank, and entries of one hash table.
//!
//! ```text
//!   bank ─▶ line: masks and values that are tried one after the other (few)
//!      └──▶ masks, the best rank first ─▶ entries[id of the mask, masked fields] ─▶ rank, effects
//! ```
//! A mask that many entries have is worth a lookup; the others are tried in the line. An entry moves from
//! the line to a mask when enough others with its mask are there, or when the line is full. A value
//! stands once under an id, so equal values of one mask need an id each.
//!
//! **A change is one step for a reader.** What the kernel has of an entry is never written again: an
//! entry is added or taken out. Each says since which version it is there, and a reader of a bank of an
//! earlier version does not see it; a bank names the rules that are no longer in force while the kernel
//! still has their entries. So a new rule is one entry and one bank, in a set of any size. Where more
//! than [`GONE_MAX`] rules leave masks that stay, those masks get a new id and their entries are added
//! anew.
//!
//! What must always hold: a value that the kernel has, or had when the owner last looked, is not used
//! again under its id before the owner says that it is [settled](Bank::settle). It talks to no kernel, which
//! is for [`crate::kernel`].

use crate::{
    compile::{Effects, Entry, RULES_MAX, RuleRefused},
    fields::{FIELDS_BYTES, WORDS, at},
};
use laneway_core::PortMask;
use std::collections::{HashMap, HashSet, hash_map};

/// Masks and values that the XDP program tries one after the other.
pub const KERNEL_LINE_MAX: usize = 64;
/// Masks whose values the XDP program looks up, over all ports and groups; each may cost a lookup.
pub const KERNEL_MASKS_MAX: usize = 128;
/// Masks and values that the XDP program has, after ranges became prefixes.
pub const KERNEL_ENTRIES_MAX: usize = RULES_MAX;
/// Values of the program's hash table: those of a set, and of the one that it replaces.
pub(crate) const TABLE_ENTRIES_MAX: u32 = 2 * KERNEL_ENTRIES_MAX as u32;
/// Entries that are worth a lookup rather than a place in the line each.
const MASK_ENTRIES_MIN: usize = 8;
/// Rules that a bank can name as no longer in force.
const GONE_MAX: usize = 64;
/// Bytes of `struct lw_rule`, `struct lw_tuple` and `struct lw_bank`.
const RULE_BYTES: usize = 248;
const TUPLE_BYTES: usize = 104;
const BANK_BYTES: usize = 24
    + GONE_MAX * 4
    + PortMask::PORTS_MAX
    + KERNEL_LINE_MAX * RULE_BYTES
    + KERNEL_MASKS_MAX * TUPLE_BYTES;
/// Bytes of `struct lw_effects`, `struct lw_key` and `struct lw_entry`.
const EFFECTS_BYTES: usize = 88;
const KEY_BYTES: usize = FIELDS_BYTES;
const ENTRY_BYTES: usize = 16 + EFFECTS_BYTES;
/// What the kernel takes for an entry: key, value and its own head, as it rounds.
const ENTRY_MEMORY_BYTES: usize = 256;
const _: () = assert!(ENTRY_MEMORY_BYTES > KEY_BYTES + ENTRY_BYTES);

/// A value under a mask: the masked fields, and in the last four bytes, where fields have nothing, the
/// mask's id (`struct lw_key`).
type Key = [u64; WORDS];

fn key(entry: &Entry, id: u32) -> Key {
    let mut key = entry.value;
    debug_assert_eq!(key[WORDS - 1].to_ne_bytes()[4..], [0; 4], "fields have nothing there");
    key[WORDS - 1] |= id_word(id);
    key
}

fn id_word(id: u32) -> u64 {
    let mut word = [0; 8];
    word[4..].copy_from_slice(&id.to_ne_bytes());
    u64::from_ne_bytes(word)
}

fn id_of(key: &Key) -> u32 {
    let [.., a, b, c, d] = key[WORDS - 1].to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d])
}

/// What is in the hash table, or will be with the next version.
#[derive(Clone, Debug)]
struct Stored {
    rank: u64,
    slot: u32,
    /// The version that it is in for the first time.
    since: u64,
    /// Its rule is gone; the kernel may still have it.
    is_leaving: bool,
    effects: Effects,
}

/// What is tried by itself.
#[derive(Clone, Debug)]
struct InLine {
    port: u8,
    group: u32,
    rank: u64,
    slot: u32,
    entry: Entry,
    effects: Effects,
}

/// A mask that is looked up.
#[derive(Clone, Debug)]
struct Mask {
    id: u32,
    port: u8,
    group: u32,
    mask: [u64; WORDS],
    /// No entry has a lower rank; may be lower than the lowest after a removal.
    best: u64,
    /// Entries of rules that are there.
    len: usize,
}

/// An entry of the hash table as the kernel takes it.
pub(crate) type RawEntry = (Vec<u8>, Vec<u8>);

/// What is written to the kernel, in this order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Change {
    /// Entries to be added first: the program does not see them yet.
    pub(crate) added: Vec<RawEntry>,
    /// The bank that they are in force with.
    pub(crate) bank: Vec<u8>,
    /// Keys to be taken out when nothing reads the bank before any more.
    pub(crate) removed: Vec<Vec<u8>>,
    /// The bank to be in force after that, if it is another one.
    pub(crate) settled: Option<Vec<u8>>,
}

/// A whole set, for a kernel that has nothing yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Whole {
    pub(crate) bank: Vec<u8>,
    pub(crate) entries: Vec<RawEntry>,
}

/// The rules of all ports as the kernel half has them, and will have them with the next version.
pub(crate) struct Bank {
    line: Vec<InLine>,
    masks: Vec<Mask>,
    entries: HashMap<Key, Stored>,
    /// Of the bank that was made last.
    version: u64,
    latest: Vec<u8>,
    next_id: u32,
    /// Keys that are new since then; some may have gone again.
    added: Vec<Key>,
    /// Keys that the kernel has, of rules that have gone since then.
    leaving: Vec<Key>,
    /// The same of the version before, until it is settled.
    going: Vec<Key>,
}

/// Where the entries of a new rule go.
struct Places {
    /// Entry, and place of its mask.
    looked_up: Vec<(usize, usize)>,
    /// What stands behind each other in the line, and what of the new rule would.
    crowd: Vec<InCrowd>,
    /// Places in the crowd that get a mask of their own.
    promoted: Vec<Vec<usize>>,
}

#[derive(Clone, Copy)]
enum InCrowd {
    InLine(usize),
    New(usize),
}

impl Bank {
    pub(crate) fn new() -> Bank {
        let mut bank = Bank {
            line: Vec::new(),
            masks: Vec::new(),
            entries: HashMap::new(),
            version: 0,
            latest: Vec::new(),
            next_id: 1,
            added: Vec::new(),
            leaving: Vec::new(),
            going: Vec::new(),
        };
        bank.latest = bank.bytes(&[]);
        bank
    }

    /// Masks that are looked up, and masks and values that are tried.
    pub(crate) fn shape(&self) -> (usize, usize) {
        (self.masks.len(), self.line.len())
    }

    /// Memory that the kernel has for it.
    pub(crate) fn memory_bytes(&self) -> usize {
        2 * BANK_BYTES + self.entries.len() * ENTRY_MEMORY_BYTES
    }

    /// Whether a rule's entries have room, and why not.
    pub(crate) fn check(&self, port: u8, group: u32, entries: &[Entry]) -> Result<(), RuleRefused> {
        self.places(port, group, entries).map(drop)
    }

    /// Adds a rule's entries; `place` is its rank and its slot in the counters.
    pub(crate) fn insert(
        &mut self,
        port: u8,
        group: u32,
        place: (u64, u32),
        entries: &[Entry],
        effects: Effects,
    ) -> Result<(), RuleRefused> {
        let Places { looked_up, crowd, promoted } = self.places(port, group, entries)?;
        let (rank, slot) = place;
        let new = |at: usize| InLine { port, group, rank, slot, entry: entries[at], effects };
        for (at, mask) in looked_up {
            self.store(mask, new(at));
        }
        if crowd.is_empty() {
            return Ok(());
        }
        let line = std::mem::take(&mut self.line);
        let mut crowd: Vec<Option<InLine>> = crowd
            .into_iter()
            .map(|who| match who {
                InCrowd::InLine(at) => Some(line[at].clone()),
                InCrowd::New(at) => Some(new(at)),
            })
            .collect();
        for together in promoted {
            let mut taken = together.into_iter().filter_map(|at| crowd[at].take());
            let Some(first) = taken.next() else { continue };
            let mask = self.make(&first);
            self.store(mask, first);
            taken.for_each(|other| self.store(mask, other));
        }
        self.line = crowd.into_iter().flatten().collect();
        self.line.sort_by_key(|one| (one.group, one.rank));
        Ok(())
    }

    /// Takes a rule's entries out; they must be in it.
    pub(crate) fn remove(&mut self, port: u8, group: u32, rank: u64, entries: &[Entry]) {
        for entry in entries {
            let in_line = |one: &InLine| one.rank == rank && one.entry == *entry;
            if let Some(at) = self.line.iter().position(in_line) {
                self.line.remove(at);
                continue;
            }
            let is_there = |mask: &Mask| {
                mask.is_of(port, group, &entry.mask)
                    && self
                        .entries
                        .get(&key(entry, mask.id))
                        .is_some_and(|stored| stored.rank == rank && !stored.is_leaving)
            };
            let Some(at) = self.masks.iter().position(is_there) else { continue };
            self.leave(key(entry, self.masks[at].id));
            self.masks[at].len -= 1;
            if self.masks[at].len == 0 {
                self.masks.remove(at);
            }
        }
    }

    /// Takes all rules of a port out.
    pub(crate) fn clear(&mut self, port: u8) {
        self.line.retain(|one| one.port != port);
        let ids: HashSet<u32> =
            self.masks.extract_if(.., |mask| mask.port == port).map(|mask| mask.id).collect();
        let gone = |(key, stored): (&Key, &Stored)| {
            (ids.contains(&id_of(key)) && !stored.is_leaving).then_some(*key)
        };
        let gone: Vec<Key> = self.entries.iter().filter_map(gone).collect();
        gone.into_iter().for_each(|key| self.leave(key));
    }

    /// Makes the next version, and returns what must be written to the kernel for it. The one before must be
    /// [settled](Self::settle).
    pub(crate) fn commit(&mut self) -> Change {
        self.version += 1;
        let stays: HashSet<u32> = self.masks.iter().map(|mask| mask.id).collect();
        // An entry whose mask is no longer in the bank is not found.
        let found = self.leaving.iter().filter(|key| stays.contains(&id_of(key)));
        let mut gone: Vec<(u32, u32)> =
            found.map(|key| (self.entries[key].slot, id_of(key))).collect();
        gone.sort_unstable();
        let mut slots: Vec<u32> = gone.iter().map(|(slot, _)| *slot).collect();
        slots.dedup();
        let mut removed = std::mem::take(&mut self.leaving);
        if slots.len() > GONE_MAX {
            self.move_to_new_ids(&gone.iter().map(|(_, id)| *id).collect(), &mut removed);
            slots.clear();
        }
        let added = std::mem::take(&mut self.added);
        let is_new = |stored: &Stored| stored.since == self.version && !stored.is_leaving;
        let added = added
            .iter()
            .filter_map(|key| self.entries.get_key_value(key))
            .filter(|(_, stored)| is_new(stored))
            .map(|(key, stored)| raw(key, stored))
            .collect();
        self.latest = self.bytes(&[]);
        let settled = (!slots.is_empty()).then(|| self.latest.clone());
        let bank = if slots.is_empty() { self.latest.clone() } else { self.bytes(&slots) };
        let change =
            Change { added, bank, removed: removed.iter().map(raw_key).collect(), settled };
        self.going = removed;
        change
    }

    /// The kernel has taken the version made last, and the program no longer sees the one before.
    pub(crate) fn settle(&mut self) {
        for key in std::mem::take(&mut self.going) {
            self.entries.remove(&key);
        }
    }

    /// The version made last, which must be settled.
    pub(crate) fn whole(&self) -> Whole {
        let there = self.entries.iter().filter(|(_, stored)| stored.since <= self.version);
        let entries = there.map(|(key, stored)| raw(key, stored)).collect();
        Whole { bank: self.latest.clone(), entries }
    }

    /// Where a rule's entries would go: to masks that are there and have the value free, else to the line;
    /// and which ones must leave that for a mask of their own.
    fn places(&self, port: u8, group: u32, entries: &[Entry]) -> Result<Places, RuleRefused> {
        let (mut looked_up, mut new) = (Vec::new(), Vec::new());
        for (at, entry) in entries.iter().enumerate() {
            let is_free = |mask: &Mask| {
                mask.is_of(port, group, &entry.mask)
                    && !self.entries.contains_key(&key(entry, mask.id))
            };
            match self.masks.iter().position(is_free) {
                Some(mask) => looked_up.push((at, mask)),
                None => new.push(InCrowd::New(at)),
            }
        }
        if new.is_empty() {
            return Ok(Places { looked_up, crowd: new, promoted: Vec::new() });
        }
        let mut crowd: Vec<InCrowd> = (0..self.line.len()).map(InCrowd::InLine).collect();
        crowd.append(&mut new);
        let layers = self.layers(port, group, entries, &crowd);
        let (mut left, mut masks, mut promoted) = (crowd.len(), self.masks.len(), Vec::new());
        for layer in layers {
            let is_worth_it = layer.len() >= MASK_ENTRIES_MIN || left > KERNEL_LINE_MAX;
            if is_worth_it && masks < KERNEL_MASKS_MAX {
                left -= layer.len();
                masks += 1;
                promoted.push(layer);
            }
        }
        if left > KERNEL_LINE_MAX {
            return Err(RuleRefused::FullInKernel { over: left - KERNEL_LINE_MAX });
        }
        Ok(Places { looked_up, crowd, promoted })
    }

    /// The entries of a crowd that could share a mask: of equal masks, whose values all differ; the largest first.
    fn layers(
        &self,
        port: u8,
        group: u32,
        entries: &[Entry],
        crowd: &[InCrowd],
    ) -> Vec<Vec<usize>> {
        let mut times = HashMap::new();
        let mut layers: HashMap<_, Vec<usize>> = HashMap::new();
        for (place, who) in crowd.iter().enumerate() {
            let (port, group, entry) = match *who {
                InCrowd::InLine(at) => {
                    let one = &self.line[at];
                    (one.port, one.group, &one.entry)
                }
                InCrowd::New(at) => (port, group, &entries[at]),
            };
            let times = times.entry((port, group, entry.mask, entry.value)).or_insert(0);
            layers.entry((port, group, entry.mask, *times)).or_default().push(place);
            *times += 1;
        }
        let mut layers: Vec<Vec<usize>> = layers.into_values().collect();
        // Of equal ones that with the earliest, so that a set is always laid out alike.
        layers.sort_unstable_by_key(|layer| (usize::MAX - layer.len(), layer[0]));
        layers
    }

    /// A mask for this entry; its place.
    fn make(&mut self, first: &InLine) -> usize {
        let id = self.new_id();
        let InLine { port, group, .. } = *first;
        self.masks.push(Mask { id, port, group, mask: first.entry.mask, best: u64::MAX, len: 0 });
        self.masks.len() - 1
    }

    /// An id that no mask has; that of one before, whose entries are gone, comes after all others.
    fn new_id(&mut self) -> u32 {
        loop {
            let id = self.next_id;
            self.next_id = self.next_id.wrapping_add(1);
            if self.masks.iter().all(|mask| mask.id != id) {
                return id;
            }
        }
    }

    /// Puts an entry under a mask that has its value free.
    fn store(&mut self, mask: usize, one: InLine) {
        let InLine { rank, slot, entry, effects, .. } = one;
        let mask = &mut self.masks[mask];
        mask.best = mask.best.min(rank);
        mask.len += 1;
        let (key, since) = (key(&entry, mask.id), self.version + 1);
        let stored = Stored { rank, slot, since, is_leaving: false, effects };
        let before = self.entries.insert(key, stored);
        debug_assert!(before.is_none(), "a value stands once under an id");
        self.added.push(key);
    }

    /// The rule of this entry is gone.
    fn leave(&mut self, key: Key) {
        let hash_map::Entry::Occupied(mut stored) = self.entries.entry(key) else { return };
        if stored.get().since > self.version {
            // It was added since the last version: the kernel never had it.
            stored.remove();
        } else {
            stored.get_mut().is_leaving = true;
            self.leaving.push(key);
        }
    }

    /// Gives these masks new ids and adds all their entries anew; the old ones are `removed`.
    fn move_to_new_ids(&mut self, ids: &HashSet<u32>, removed: &mut Vec<Key>) {
        let mut to = HashMap::new();
        for id in ids {
            to.insert(*id, self.new_id());
        }
        for mask in &mut self.masks {
            mask.id = to.get(&mask.id).copied().unwrap_or(mask.id);
        }
        let moves =
            |key: &Key, stored: &mut Stored| to.contains_key(&id_of(key)) && !stored.is_leaving;
        let moving: Vec<(Key, Stored)> = self.entries.extract_if(moves).collect();
        for (key, mut stored) in moving {
            let was_there = stored.since < self.version;
            stored.since = self.version;
            let id = id_of(&key);
            let mut new = key;
            new[WORDS - 1] ^= id_word(id) ^ id_word(to[&id]);
            self.entries.insert(new, stored);
            self.added.push(new);
            if was_there {
                removed.push(key);
            }
        }
    }

    /// `struct lw_bank`; rules with these slots are no longer in force.
    fn bytes(&self, gone: &[u32]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BANK_BYTES);
        bytes.extend(self.version.to_ne_bytes());
        for count in [self.line.len(), self.masks.len(), gone.len(), 0] {
            bytes.extend((count as u32).to_ne_bytes());
        }
        gone.iter().for_each(|slot| bytes.extend(slot.to_ne_bytes()));
        bytes.resize(24 + GONE_MAX * 4, 0);
        let mut masks: Vec<&Mask> = self.masks.iter().collect();
        masks.sort_unstable_by_key(|mask| (mask.port, mask.group, mask.best));
        for port in 0..PortMask::PORTS_MAX {
            bytes.push(masks.partition_point(|mask| usize::from(mask.port) < port) as u8);
        }
        for one in &self.line {
            push_words(&mut bytes, &one.entry.mask);
            push_words(&mut bytes, &one.entry.value);
            bytes.extend(one.rank.to_ne_bytes());
            push_effects(&mut bytes, &one.effects, one.slot);
            bytes.extend(one.group.to_ne_bytes());
            bytes.extend([one.port, 0, 0, 0]);
        }
        bytes.resize(BANK_BYTES - KERNEL_MASKS_MAX * TUPLE_BYTES, 0);
        for mask in masks {
            push_words(&mut bytes, &mask.mask);
            bytes.extend(mask.has());
            bytes.extend(mask.best.to_ne_bytes());
            bytes.extend(mask.group.to_ne_bytes());
            bytes.extend(mask.id.to_ne_bytes());
            bytes.extend([mask.port, 0, 0, 0, 0, 0, 0, 0]);
        }
        bytes.resize(BANK_BYTES, 0);
        bytes
    }
}

impl Mask {
    fn is_of(&self, port: u8, group: u32, mask: &[u64; WORDS]) -> bool {
        self.port == port && self.group == group && self.mask == *mask
    }

    /// The headers asked for, in the bytes of the last word: an entry asks for a header to be there or
    /// does not ask, so its mask is its value here.
    fn has(&self) -> [u8; 8] {
        const HAS_AT: usize = at::HAS % 8;
        let mask = self.mask[at::HAS / 8].to_ne_bytes();
        let mut has = [0; 8];
        has[HAS_AT..HAS_AT + 2].copy_from_slice(&mask[HAS_AT..HAS_AT + 2]);
        has
    }
}

fn push_words(bytes: &mut Vec<u8>, words: &[u64; WORDS]) {
    words.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
}

/// `struct lw_effects`.
fn push_effects(bytes: &mut Vec<u8>, e: &Effects, slot: u32) {
    for word in [e.flags, e.group, e.mark, slot] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.extend([e.port, e.queues_len, 0, 0]);
    bytes.extend(e.queues);
    bytes.extend(e.mac_src);
    bytes.extend(e.mac_dst);
    bytes.extend(e.tp_src);
    bytes.extend(e.tp_dst);
    bytes.extend(e.ip_src);
    bytes.extend(e.ip_dst);
    bytes.extend([0; 4]);
}

fn raw_key(key: &Key) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(KEY_BYTES);
    push_words(&mut bytes, key);
    bytes
}

/// `struct lw_key` and `struct lw_entry`.
fn raw(key: &Key, stored: &Stored) -> RawEntry {
    let mut value = Vec::with_capacity(ENTRY_BYTES);
    value.extend(stored.rank.to_ne_bytes());
    value.extend(stored.since.to_ne_bytes());
    push_effects(&mut value, &stored.effects, stored.slot);
    (raw_key(key), value)
}

#[cfg(test)]
mod tests;
