//! The order of a sorted set: a B+ tree that counts, so that a rank, the entry at a rank and a bound all take the same
//! few steps from the root.
//!
//! ```text
//!  inner: [(least, count, ─▶ node) ...]      `least` is no more than anything below, and more than anything left of it
//!  leaf:  [(score, member) ...]
//! ```
//! The `least` of a node's first child is never read: what is less than all goes there.

use super::directory::Keyed;
use super::memory::Pieces;
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

const LEAF_MAX: usize = 64;
const INNER_MAX: usize = 32;

/// A member with its score. The tree and the directory of members share its bytes.
#[derive(Clone, Debug)]
pub(super) struct Scored {
    pub(super) score: f64,
    pub(super) member: Arc<[u8]>,
}

impl Keyed for Scored {
    fn key(&self) -> &[u8] {
        &self.member
    }
}

impl Scored {
    fn order(&self, other: &Scored) -> Ordering {
        order((self.score, &self.member), (other.score, &other.member))
    }
}

/// By score, then by member. No score is a NaN.
pub(super) fn order(one: (f64, &[u8]), other: (f64, &[u8])) -> Ordering {
    let by_score = one.0.partial_cmp(&other.0).unwrap_or(Ordering::Equal);
    by_score.then_with(|| one.1.cmp(other.1))
}

#[derive(Clone, Debug)]
pub(super) struct Tree {
    root: Node,
}

#[derive(Clone, Debug)]
enum Node {
    Leaf(Vec<Scored>),
    Inner(Vec<Child>),
}

#[derive(Clone, Debug)]
struct Child {
    least: Scored,
    len: usize,
    node: Node,
}

impl Tree {
    pub(super) fn new() -> Tree {
        Tree { root: Node::Leaf(Vec::new()) }
    }

    /// Adds an entry that is not there.
    pub(super) fn insert(&mut self, entry: Scored) {
        if let Some(right) = self.root.insert(entry) {
            let left = std::mem::replace(&mut self.root, Node::Inner(Vec::new()));
            self.root = Node::Inner(vec![Child::of(left), Child::of(right)]);
        }
    }

    /// Removes an entry; true if it was there.
    pub(super) fn remove(&mut self, entry: &Scored) -> bool {
        let removed = self.root.remove(entry);
        while let Node::Inner(children) = &mut self.root {
            match children.len() {
                0 => self.root = Node::Leaf(Vec::new()),
                1 => self.root = children.remove(0).node,
                _ => break,
            }
        }
        removed
    }

    /// How many entries `is_before` holds for: those at the start.
    pub(super) fn partition(&self, is_before: impl Fn(f64, &[u8]) -> bool) -> usize {
        let holds = |entry: &Scored| is_before(entry.score, &entry.member);
        let (mut node, mut passed) = (&self.root, 0);
        loop {
            match node {
                Node::Leaf(entries) => return passed + entries.partition_point(holds),
                Node::Inner(children) => {
                    let at = children[1..].partition_point(|child| holds(&child.least));
                    passed += children[..at].iter().map(|child| child.len).sum::<usize>();
                    node = &children[at].node;
                }
            }
        }
    }

    /// Shows the entries of these ranks in order, or from the last to the first.
    pub(super) fn visit(&self, ranks: Range<usize>, reverse: bool, show: &mut dyn FnMut(&Scored)) {
        self.root.visit(ranks, reverse, show);
    }
}

impl Pieces for Tree {
    /// Frees the last leaf of the root, or puts what is below its last node into the root.
    fn free_piece(&mut self) -> bool {
        match &mut self.root {
            Node::Leaf(entries) => return !std::mem::take(entries).is_empty(),
            Node::Inner(children) => match children.pop().map(|child| child.node) {
                Some(Node::Leaf(_)) => {}
                Some(Node::Inner(below)) => children.extend(below),
                None => self.root = Node::Leaf(Vec::new()),
            },
        }
        true
    }
}

impl Child {
    fn of(node: Node) -> Child {
        Child { least: node.least().clone(), len: node.len(), node }
    }
}

impl Node {
    fn len(&self) -> usize {
        match self {
            Node::Leaf(entries) => entries.len(),
            Node::Inner(children) => children.iter().map(|child| child.len).sum(),
        }
    }

    /// Of a node that is not empty.
    fn least(&self) -> &Scored {
        match self {
            Node::Leaf(entries) => &entries[0],
            Node::Inner(children) => &children[0].least,
        }
    }

    /// Adds an entry; what was cut off to the right, if it was full.
    fn insert(&mut self, entry: Scored) -> Option<Node> {
        match self {
            Node::Leaf(entries) => {
                let at = entries.partition_point(|other| other.order(&entry).is_lt());
                entries.insert(at, entry);
                let is_full = entries.len() > LEAF_MAX;
                is_full.then(|| Node::Leaf(entries.split_off(entries.len() / 2)))
            }
            Node::Inner(children) => {
                let at = below(children, &entry);
                let child = &mut children[at];
                child.len += 1;
                if let Some(right) = child.node.insert(entry) {
                    let right = Child::of(right);
                    child.len -= right.len;
                    children.insert(at + 1, right);
                }
                let is_full = children.len() > INNER_MAX;
                is_full.then(|| Node::Inner(children.split_off(children.len() / 2)))
            }
        }
    }

    fn remove(&mut self, entry: &Scored) -> bool {
        match self {
            Node::Leaf(entries) => {
                let found = entries.binary_search_by(|other| other.order(entry));
                found.map(|at| entries.remove(at)).is_ok()
            }
            Node::Inner(children) => {
                let at = below(children, entry);
                if !children[at].node.remove(entry) {
                    return false;
                }
                children[at].len -= 1;
                if children[at].len == 0 {
                    children.remove(at);
                } else if !merge(children, at) && at > 0 {
                    merge(children, at - 1);
                }
                true
            }
        }
    }

    fn visit(&self, ranks: Range<usize>, reverse: bool, show: &mut dyn FnMut(&Scored)) {
        match self {
            Node::Leaf(entries) => {
                let entries =
                    &entries[ranks.start.min(entries.len())..ranks.end.min(entries.len())];
                match reverse {
                    false => entries.iter().for_each(show),
                    true => entries.iter().rev().for_each(show),
                }
            }
            Node::Inner(children) => {
                let mut visit = |child: &Child, from: usize| {
                    let start = ranks.start.max(from) - from;
                    let end = ranks.end.min(from + child.len).saturating_sub(from);
                    if start < end {
                        child.node.visit(start..end, reverse, show);
                    }
                };
                if reverse {
                    let mut from = self.len();
                    for child in children.iter().rev() {
                        from -= child.len;
                        visit(child, from);
                    }
                } else {
                    let mut from = 0;
                    for child in children {
                        visit(child, from);
                        from += child.len;
                    }
                }
            }
        }
    }
}

/// Below which child an entry is, or would be.
fn below(children: &[Child], entry: &Scored) -> usize {
    children[1..].partition_point(|child| child.least.order(entry).is_le())
}

/// Takes the child at `at` and the next one together, if both are half empty.
fn merge(children: &mut Vec<Child>, at: usize) -> bool {
    let Some([left, right]) = children.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) else {
        return false;
    };
    match (&mut left.node, &mut right.node) {
        (Node::Leaf(one), Node::Leaf(other)) if one.len() + other.len() <= LEAF_MAX / 2 => {
            one.append(other);
        }
        (Node::Inner(one), Node::Inner(other)) if one.len() + other.len() <= INNER_MAX / 2 => {
            // It is no longer a first child, so its bound is read from now on.
            other[0].least = right.least.clone();
            one.append(other);
        }
        _ => return false,
    }
    left.len += right.len;
    children.remove(at + 1);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scored(score: u16) -> Scored {
        Scored { score: f64::from(score / 4), member: [score as u8 % 4].into() }
    }

    proptest! {
        #[test]
        fn the_tree_is_a_sorted_sequence(
            added in prop::collection::hash_set(0_u16..8_000, 0..3_000),
            removed in prop::collection::vec(0_u16..8_000, 0..6_000),
            again in prop::collection::hash_set(0_u16..8_000, 0..300),
        ) {
            let (mut tree, mut model) = (Tree::new(), std::collections::BTreeSet::new());
            let steps = added.iter().map(|one| (true, one)).chain(removed.iter().map(|one| (false, one)));
            for (adds, one) in steps.chain(again.iter().map(|one| (true, one))) {
                match adds {
                    true => if model.insert(*one) { tree.insert(scored(*one)) },
                    false => prop_assert_eq!(tree.remove(&scored(*one)), model.remove(one)),
                }
            }
            let model: Vec<u16> = model.into_iter().collect();
            prop_assert_eq!(tree.root.len(), model.len());
            let seen = |ranks: Range<usize>, reverse| {
                let mut seen = Vec::new();
                tree.visit(ranks, reverse, &mut |entry| seen.push(entry.score as u16 * 4 + u16::from(entry.member[0])));
                seen
            };
            prop_assert_eq!(&seen(0..model.len(), false), &model);
            for one in [0, 17, 4_000, 7_999] {
                let bound = scored(one);
                let rank = tree.partition(|score, member| order((score, member), (bound.score, &bound.member)).is_lt());
                prop_assert_eq!(rank, model.partition_point(|other| *other < one));
                let end = (rank + 50).min(model.len());
                prop_assert_eq!(&seen(rank..end, false), &model[rank..end]);
                let mut reversed = model[rank..end].to_vec();
                reversed.reverse();
                prop_assert_eq!(&seen(rank..end, true), &reversed);
            }
        }
    }
}
