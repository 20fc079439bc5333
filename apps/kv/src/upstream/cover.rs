//! What of the cluster's data may be kept here, and read: the rules of [`super`], without I/O and without a clock.

use super::Report;
use std::collections::{HashMap, HashSet};

/// Slots in all.
const SLOTS: usize = 16_384;
/// The owner of a slot of which none is known.
const NO_OWNER: u16 = u16::MAX;

type Key = Box<[u8]>;

/// What the worker knows of the keys that it keeps, by their slots.
#[derive(Debug)]
pub(crate) struct Cover {
    bound_us: u64,
    owners: Vec<u16>,
    /// By node: when the last beat was sent that was answered; none since its connection was lost.
    confirmed_us: Vec<Option<u64>>,
    /// The keys whose values are in the store, by slot.
    kept: Vec<HashSet<Key>>,
    /// Fills on their way that may be stored.
    tickets: HashMap<Key, (u16, Vec<u64>)>,
    /// Writes on their way.
    writes: HashMap<Key, usize>,
}

impl Cover {
    /// Nothing is kept, and no owner is known; values are read whose node was heard within the bound.
    pub(crate) fn new(bound_us: u64) -> Cover {
        Cover {
            bound_us,
            owners: vec![NO_OWNER; SLOTS],
            confirmed_us: Vec::new(),
            kept: vec![HashSet::new(); SLOTS],
            tickets: HashMap::new(),
            writes: HashMap::new(),
        }
    }

    /// Keys whose values are kept.
    pub(crate) fn kept(&self) -> usize {
        self.kept.iter().map(HashSet::len).sum()
    }

    /// True if the value that is kept of a key may be read now.
    pub(crate) fn may_read(&self, slot: u16, key: &[u8], now_us: u64) -> bool {
        self.kept[usize::from(slot)].contains(key) && self.is_confirmed(slot, now_us)
    }

    fn is_confirmed(&self, slot: u16, now_us: u64) -> bool {
        let node = self.owners[usize::from(slot)];
        let sent_us = self.confirmed_us.get(usize::from(node)).copied().flatten();
        sent_us.is_some_and(|sent_us| now_us.saturating_sub(sent_us) <= self.bound_us)
    }

    /// A fill is about to be sent.
    pub(crate) fn begin_fill(&mut self, slot: u16, key: &[u8], id: u64) {
        if !self.writes.contains_key(key) {
            let (_, ids) = self.tickets.entry(key.into()).or_insert((slot, Vec::new()));
            ids.push(id);
        }
    }

    /// A fill's answer is here; true if it may be stored.
    pub(crate) fn end_fill(&mut self, key: &[u8], id: u64) -> bool {
        let Some((_, ids)) = self.tickets.get_mut(key) else { return false };
        let Some(at) = ids.iter().position(|&other| other == id) else { return false };
        ids.swap_remove(at);
        if ids.is_empty() {
            self.tickets.remove(key);
        }
        true
    }

    /// The value of a key is in the store.
    pub(crate) fn keep(&mut self, slot: u16, key: &[u8]) {
        self.kept[usize::from(slot)].insert(key.into());
    }

    /// The value of a key is in the store no longer; true if it was. Fills on their way are not concerned.
    pub(crate) fn forget(&mut self, slot: u16, key: &[u8]) -> bool {
        self.kept[usize::from(slot)].remove(key)
    }

    /// A write to a key is about to be sent; true if its value is to be taken out of the store.
    pub(crate) fn begin_write(&mut self, slot: u16, key: &[u8]) -> bool {
        *self.writes.entry(key.into()).or_default() += 1;
        self.spoil(slot, key)
    }

    /// A write's answer is here, or none will be.
    pub(crate) fn end_write(&mut self, key: &[u8]) {
        let Some(count) = self.writes.get_mut(key) else { return };
        *count -= 1;
        if *count == 0 {
            self.writes.remove(key);
        }
    }

    fn spoil(&mut self, slot: u16, key: &[u8]) -> bool {
        self.tickets.remove(key);
        self.forget(slot, key)
    }

    /// What a report does to what is kept: the keys to be taken out of the store.
    pub(crate) fn apply(&mut self, report: &Report, slot_of: impl Fn(&[u8]) -> u16) -> Vec<Key> {
        match report {
            Report::Answer { .. } => Vec::new(),
            Report::Invalid(keys) => {
                keys.iter().filter(|key| self.spoil(slot_of(key), key)).cloned().collect()
            }
            Report::Lost { node } => {
                if let Some(sent_us) = self.confirmed_us.get_mut(usize::from(*node)) {
                    *sent_us = None;
                }
                let slots = 0..SLOTS as u16;
                self.clear(slots.filter(|&slot| self.owners[usize::from(slot)] == *node).collect())
            }
            Report::Owner { first, last, node } => {
                let slots: Vec<u16> = (*first..=*last).collect();
                slots.iter().for_each(|&slot| self.owners[usize::from(slot)] = *node);
                self.clear(slots)
            }
            Report::Confirmed { node, sent_us } => {
                let at = usize::from(*node);
                if self.confirmed_us.len() <= at {
                    self.confirmed_us.resize(at + 1, None);
                }
                self.confirmed_us[at] = Some(*sent_us);
                Vec::new()
            }
        }
    }

    fn clear(&mut self, slots: Vec<u16>) -> Vec<Key> {
        let mut is_in = vec![false; SLOTS];
        let mut keys = Vec::new();
        for slot in slots {
            is_in[usize::from(slot)] = true;
            keys.extend(self.kept[usize::from(slot)].drain());
        }
        self.tickets.retain(|_, (slot, _)| !is_in[usize::from(*slot)]);
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_node() -> Cover {
        let mut cover = Cover::new(100);
        cover.apply(&Report::Owner { first: 0, last: 16_383, node: 0 }, |_| 7);
        cover.apply(&Report::Confirmed { node: 0, sent_us: 0 }, |_| 7);
        cover
    }

    #[test]
    fn a_reply_from_before_an_invalidation_is_not_stored_behind_it() {
        let mut cover = one_node();
        cover.begin_fill(7, b"k", 1);
        cover.apply(&Report::Invalid(vec![b"k"[..].into()]), |_| 7);
        cover.begin_fill(7, b"k", 2);
        assert!(!cover.end_fill(b"k", 1) && cover.end_fill(b"k", 2));
    }

    #[test]
    fn no_fill_is_stored_that_meets_a_write() {
        let mut cover = one_node();
        cover.begin_fill(7, b"k", 1);
        assert!(!cover.begin_write(7, b"k"));
        cover.begin_fill(7, b"k", 2);
        cover.end_write(b"k");
        assert!(!cover.end_fill(b"k", 1) && !cover.end_fill(b"k", 2));
        cover.begin_fill(7, b"k", 3);
        assert!(cover.end_fill(b"k", 3));
    }

    #[test]
    fn what_was_not_confirmed_within_the_bound_is_not_read() {
        let mut cover = one_node();
        cover.keep(7, b"k");
        assert!(cover.may_read(7, b"k", 100) && !cover.may_read(7, b"k", 101));
        cover.apply(&Report::Confirmed { node: 0, sent_us: 50 }, |_| 7);
        assert!(cover.may_read(7, b"k", 150));
    }

    #[test]
    fn a_lost_connection_and_a_new_owner_take_what_they_covered_and_no_more() {
        let mut cover = one_node();
        cover.apply(&Report::Owner { first: 8, last: 8, node: 1 }, |_| 7);
        cover.apply(&Report::Confirmed { node: 1, sent_us: 0 }, |_| 7);
        cover.keep(7, b"a");
        cover.keep(8, b"b");
        cover.begin_fill(7, b"c", 1);
        assert_eq!(cover.apply(&Report::Lost { node: 0 }, |_| 7), [b"a"[..].into()]);
        assert!(!cover.end_fill(b"c", 1) && cover.may_read(8, b"b", 0));
        let owner = Report::Owner { first: 8, last: 9, node: 0 };
        assert_eq!(cover.apply(&owner, |_| 7), [b"b"[..].into()]);
        assert_eq!(cover.kept(), 0);
    }
}
