//! Sorted sets: a few packed members in order, or a tree in order with a directory by member.

use super::chance::KeyHasher;
use super::directory::Directory;
use super::memory::{Pieces, allocated};
use super::packed::Packed;
use super::tree::{Scored, Tree, order};
use std::ops::Range;

/// More members than this, or longer ones, are kept in a tree (Redis's zset-max-listpack-entries and -value).
const PACKED_MEMBERS_MAX: usize = 128;
const PACKED_BYTES_MAX: usize = 64;
/// Two buckets, the tree's entry and the counters before shared bytes, per member.
const MEMBER_BYTES: usize = 88;
const SCORE_BYTES: usize = size_of::<f64>();

/// Members with their scores.
pub(crate) type Items = Vec<(Box<[u8]>, f64)>;

#[derive(Clone, Debug)]
pub(crate) struct Sorted {
    members: Members,
    hasher: KeyHasher,
}

#[derive(Clone, Debug)]
enum Members {
    /// In order; a score, then the member.
    Packed(Packed),
    Tree {
        by_member: Box<Directory<Scored>>,
        in_order: Tree,
        bytes: usize,
    },
}

impl Sorted {
    pub(crate) fn new(hasher: &KeyHasher) -> Sorted {
        Sorted { members: Members::Packed(Packed::default()), hasher: hasher.clone() }
    }

    /// These members, each of which is there once.
    pub(crate) fn of(hasher: &KeyHasher, items: &Items) -> Sorted {
        let mut sorted = Sorted::new(hasher);
        let is_long = |(member, _): &(Box<[u8]>, f64)| member.len() > PACKED_BYTES_MAX;
        if items.len() > PACKED_MEMBERS_MAX || items.iter().any(is_long) {
            // Not when it has grown: a small one would lose negative zeros until then, which Redis's does not.
            sorted.use_tree();
        }
        for (member, score) in items {
            sorted.set(member, *score);
        }
        sorted
    }

    pub(crate) fn len(&self) -> usize {
        match &self.members {
            Members::Packed(packed) => packed.len(),
            Members::Tree { by_member, .. } => by_member.len(),
        }
    }

    pub(crate) fn encoding(&self) -> &'static str {
        match &self.members {
            Members::Packed(_) => "listpack",
            Members::Tree { .. } => "skiplist",
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match &self.members {
            Members::Packed(packed) => allocated(packed.size()),
            Members::Tree { bytes, .. } => *bytes,
        }
    }

    pub(crate) fn score(&self, member: &[u8]) -> Option<f64> {
        match &self.members {
            Members::Packed(packed) => {
                packed.iter().map(parts).find(|found| found.1 == member).map(|found| found.0)
            }
            Members::Tree { by_member, .. } => {
                by_member.find(by_member.hash(member), member).map(|found| found.score)
            }
        }
    }

    /// Gives a member a score, which is no NaN; what it had before.
    pub(crate) fn set(&mut self, member: &[u8], score: f64) -> Option<f64> {
        let before = self.score(member);
        if before == Some(score) {
            return before;
        }
        let is_full = before.is_none() && self.len() >= PACKED_MEMBERS_MAX;
        if is_full || member.len() > PACKED_BYTES_MAX {
            self.use_tree();
        }
        if before.is_some() {
            self.remove(member);
        }
        let at = match &self.members {
            Members::Packed(_) => self.rank_of(member, score),
            Members::Tree { .. } => 0,
        };
        match &mut self.members {
            Members::Packed(packed) => {
                // A small one keeps no negative zero, as in Redis; a sum with zero is rid of it.
                let score = score + 0.0;
                packed.insert(at, [&score.to_le_bytes(), member]);
            }
            Members::Tree { by_member, in_order, bytes } => {
                let entry = Scored { score, member: member.into() };
                by_member.insert(by_member.hash(member), entry.clone());
                in_order.insert(entry);
                *bytes += allocated(member.len()) + MEMBER_BYTES;
            }
        }
        before
    }

    /// Removes a member; the score it had.
    pub(crate) fn remove(&mut self, member: &[u8]) -> Option<f64> {
        match &mut self.members {
            Members::Packed(packed) => {
                let at = packed.iter().position(|entry| parts(entry).1 == member)?;
                let score = packed.get(at).map(|entry| parts(entry).0);
                packed.remove(at, 1);
                score
            }
            Members::Tree { by_member, in_order, bytes } => {
                let entry = by_member.remove(by_member.hash(member), member)?;
                in_order.remove(&entry);
                *bytes -= allocated(member.len()) + MEMBER_BYTES;
                Some(entry.score)
            }
        }
    }

    /// How many stand before this member with this score.
    pub(crate) fn rank_of(&self, member: &[u8], score: f64) -> usize {
        self.partition(|other, name| order((other, name), (score, member)).is_lt())
    }

    /// How many members `is_before` holds for: those at the start.
    pub(crate) fn partition(&self, is_before: impl Fn(f64, &[u8]) -> bool) -> usize {
        match &self.members {
            Members::Packed(packed) => packed
                .iter()
                .map(parts)
                .take_while(|(score, member)| is_before(*score, member))
                .count(),
            Members::Tree { in_order, .. } => in_order.partition(is_before),
        }
    }

    /// Shows the members of these ranks in order, or from the last to the first.
    pub(crate) fn visit(
        &self,
        ranks: Range<usize>,
        reverse: bool,
        mut show: impl FnMut(&[u8], f64),
    ) {
        match &self.members {
            Members::Packed(packed) => {
                let entries = packed.iter().map(parts);
                let (from, count) = (ranks.start, ranks.len());
                match reverse {
                    false => entries.skip(from).take(count).for_each(|(s, m)| show(m, s)),
                    true => {
                        let skipped = packed.len() - ranks.end;
                        entries.rev().skip(skipped).take(count).for_each(|(s, m)| show(m, s));
                    }
                }
            }
            Members::Tree { in_order, .. } => {
                in_order.visit(ranks, reverse, &mut |entry| show(&entry.member, entry.score));
            }
        }
    }

    /// The members of these ranks with their scores.
    pub(crate) fn items(&self, ranks: Range<usize>, reverse: bool) -> Items {
        let mut items = Vec::with_capacity(ranks.len());
        self.visit(ranks, reverse, |member, score| items.push((member.into(), score)));
        items
    }

    /// Shows members from a cursor on, at least `count` of a large set; the next cursor.
    pub(crate) fn scan(&self, from: u64, count: usize, mut show: impl FnMut(&[u8], f64)) -> u64 {
        match &self.members {
            Members::Packed(_) => {
                self.visit(0..self.len(), false, show);
                0
            }
            Members::Tree { by_member, .. } => {
                by_member.scan(from, count, |entry| show(&entry.member, entry.score))
            }
        }
    }

    /// Keeps the members in a tree from now on.
    pub(crate) fn use_tree(&mut self) {
        let Members::Packed(packed) = &self.members else { return };
        let mut by_member = Box::new(Directory::new(self.hasher.clone()));
        let (mut in_order, mut bytes) = (Tree::new(), 0);
        for (score, member) in packed.iter().map(parts) {
            let entry = Scored { score, member: member.into() };
            by_member.insert(by_member.hash(member), entry.clone());
            in_order.insert(entry);
            bytes += allocated(member.len()) + MEMBER_BYTES;
        }
        self.members = Members::Tree { by_member, in_order, bytes };
    }
}

impl Pieces for Sorted {
    fn free_piece(&mut self) -> bool {
        match &mut self.members {
            Members::Packed(_) => false,
            Members::Tree { by_member, in_order, .. } => {
                by_member.free_piece() || in_order.free_piece()
            }
        }
    }
}

/// Score and member of a packed entry.
fn parts(entry: &[u8]) -> (f64, &[u8]) {
    let (score, member) = entry.split_first_chunk::<SCORE_BYTES>().expect("a score comes first");
    (f64::from_le_bytes(*score), member)
}
