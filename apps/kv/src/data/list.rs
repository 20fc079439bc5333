//! Lists: chunks of packed entries. Both ends in constant time; an index in a walk over chunks, then over one.

use super::memory::{Pieces, allocated};
use super::packed::Packed;
use std::collections::VecDeque;
use std::ops::Range;

/// A chunk takes no further entry beyond so many bytes; a longer entry has one of its own.
const CHUNK_BYTES_MAX: usize = 4096;

#[derive(Clone, Debug, Default)]
pub(crate) struct List {
    /// None is empty.
    chunks: VecDeque<Packed>,
    len: usize,
    /// Of all chunks.
    size: usize,
}

/// Which end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Left,
    Right,
}

impl List {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn bytes(&self) -> usize {
        let heads = self.chunks.len() * (size_of::<Packed>() + 16);
        allocated(self.size) + heads
    }

    pub(crate) fn push(&mut self, end: End, value: &[u8]) {
        let size = Packed::entry_size(value.len());
        let has_room = |chunk: &Packed| chunk.size() + size <= CHUNK_BYTES_MAX;
        match end {
            End::Left => {
                if !self.chunks.front().is_some_and(has_room) {
                    self.chunks.push_front(Packed::default());
                }
                self.chunks.front_mut().expect("there is one").insert(0, [value]);
            }
            End::Right => {
                if !self.chunks.back().is_some_and(has_room) {
                    // What is behind it now will not grow.
                    if let Some(full) = self.chunks.back_mut() {
                        full.shrink();
                    }
                    self.chunks.push_back(Packed::default());
                }
                self.chunks.back_mut().expect("there is one").push([value]);
            }
        }
        self.len += 1;
        self.size += size;
    }

    pub(crate) fn pop(&mut self, end: End) -> Option<Box<[u8]>> {
        let index = match end {
            End::Left => 0,
            End::Right => self.len.checked_sub(1)?,
        };
        let value = self.get(index)?.into();
        self.remove(index..index + 1);
        Some(value)
    }

    pub(crate) fn get(&self, index: usize) -> Option<&[u8]> {
        let (chunk, at) = self.locate(index)?;
        self.chunks[chunk].get(at)
    }

    /// Puts another value at `index`; false if there is none.
    pub(crate) fn set(&mut self, index: usize, value: &[u8]) -> bool {
        let Some((chunk, at)) = self.locate(index) else { return false };
        let before = self.chunks[chunk].size();
        self.chunks[chunk].replace(at, [value]);
        self.size = self.size - before + self.chunks[chunk].size();
        self.divide(chunk);
        true
    }

    /// Puts a value before the one at `index`, or at the end.
    pub(crate) fn insert(&mut self, index: usize, value: &[u8]) {
        let Some((chunk, at)) = self.locate(index) else { return self.push(End::Right, value) };
        self.chunks[chunk].insert(at, [value]);
        self.len += 1;
        self.size += Packed::entry_size(value.len());
        self.divide(chunk);
    }

    /// Removes the entries of this range, which is in the list.
    pub(crate) fn remove(&mut self, range: Range<usize>) {
        let Some((first, mut at)) = self.locate(range.start) else { return };
        let mut count = range.len();
        // Chunks that lose all they have stand side by side, and go at once.
        let (mut kept_before, mut emptied) = (first, 0);
        for entries in self.chunks.range_mut(first..) {
            if count == 0 {
                break;
            }
            let before = entries.size();
            let removed = count.min(entries.len() - at);
            if removed == entries.len() {
                self.size -= before;
                emptied += 1;
            } else {
                entries.remove(at, removed);
                self.size = self.size - before + entries.size();
                kept_before += usize::from(emptied == 0 && count > removed);
            }
            self.len -= removed;
            count -= removed;
            at = 0;
        }
        self.chunks.drain(kept_before..kept_before + emptied);
    }

    /// Removes up to `max` entries equal to `value`, from the left or the right; how many.
    pub(crate) fn remove_equal(&mut self, value: &[u8], from: End, max: usize) -> usize {
        let mut removed = 0;
        let chunks: Box<dyn Iterator<Item = &mut Packed>> = match from {
            End::Left => Box::new(self.chunks.iter_mut()),
            End::Right => Box::new(self.chunks.iter_mut().rev()),
        };
        for chunk in chunks {
            let equal = chunk.iter().filter(|entry| *entry == value).count();
            let taken = equal.min(max - removed);
            if taken == 0 {
                continue;
            }
            // Of the equal ones of this chunk, those from the left or those from the right go.
            let gone = match from {
                End::Left => 0..taken,
                End::Right => equal - taken..equal,
            };
            let mut seen = 0;
            let kept = chunk.iter().filter(|entry| {
                let is_equal = *entry == value;
                seen += usize::from(is_equal);
                !(is_equal && gone.contains(&(seen - 1)))
            });
            *chunk = kept.collect();
            removed += taken;
        }
        self.chunks.retain(|chunk| !chunk.is_empty());
        self.len -= removed;
        self.size -= removed * Packed::entry_size(value.len());
        removed
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.chunks.iter().flat_map(Packed::iter)
    }

    /// The entries from `index` on.
    pub(crate) fn iter_from(&self, index: usize) -> impl Iterator<Item = &[u8]> {
        let (chunk, at) = self.locate(index).unwrap_or((self.chunks.len(), 0));
        self.chunks.range(chunk..).flat_map(Packed::iter).skip(at)
    }

    /// Which chunk holds an entry, and where in it, from the nearer end.
    fn locate(&self, index: usize) -> Option<(usize, usize)> {
        if index >= self.len {
            return None;
        }
        if index < self.len / 2 {
            let mut before = 0;
            for (chunk, entries) in self.chunks.iter().enumerate() {
                if index < before + entries.len() {
                    return Some((chunk, index - before));
                }
                before += entries.len();
            }
        } else {
            let mut from = self.len;
            for (chunk, entries) in self.chunks.iter().enumerate().rev() {
                from -= entries.len();
                if index >= from {
                    return Some((chunk, index - from));
                }
            }
        }
        None
    }

    /// Cuts a chunk that has grown too long in two.
    fn divide(&mut self, chunk: usize) {
        let entries = &mut self.chunks[chunk];
        if entries.size() > CHUNK_BYTES_MAX && entries.len() > 1 {
            let half = entries.split_off(entries.len() / 2);
            self.chunks.insert(chunk + 1, half);
        }
    }
}

impl Pieces for List {
    fn free_piece(&mut self) -> bool {
        self.chunks.pop_back().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// To walk to each chunk of them from an end would take hours.
    #[test]
    fn a_million_chunks_go_at_once() {
        let chunk: Packed = [&b"v"[..]].into_iter().collect();
        let (len, size) = (1_000_000, 1_000_000 * chunk.size());
        let mut list = List { chunks: vec![chunk; len].into(), len, size };
        list.remove(600_000..len);
        list.remove(1..500_000);
        assert_eq!((list.len(), list.chunks.len()), (100_001, 100_001));
        list.remove(0..100_001);
        assert_eq!((list.len(), list.chunks.len(), list.size), (0, 0, 0));
    }

    proptest! {
        #[test]
        fn lists_are_sequences(steps in prop::collection::vec((0_u8..6, any::<prop::sample::Index>(), 0_usize..2000), 0..80)) {
            let (mut list, mut model) = (List::default(), VecDeque::<Vec<u8>>::new());
            for (kind, index, size) in steps {
                let value = vec![(size % 3) as u8; size];
                let at = index.index(model.len() + 1);
                match kind {
                    0 => { list.push(End::Left, &value); model.push_front(value); }
                    1 => { list.push(End::Right, &value); model.push_back(value); }
                    2 => { list.insert(at, &value); model.insert(at, value); }
                    3 if at < model.len() => { prop_assert!(list.set(at, &value)); model[at] = value; }
                    4 => {
                        let end = (at + size % 9).min(model.len());
                        list.remove(at..end);
                        model.drain(at..end);
                    }
                    _ => {
                        let (end, popped) = match size % 2 {
                            0 => (End::Left, model.pop_front()),
                            _ => (End::Right, model.pop_back()),
                        };
                        prop_assert_eq!(list.pop(end).map(Vec::from), popped);
                    }
                }
                prop_assert_eq!(list.len(), model.len());
                prop_assert!(list.iter().eq(model.iter().map(Vec::as_slice)));
                prop_assert!(list.iter_from(at).eq(model.iter().skip(at).map(Vec::as_slice)));
                prop_assert_eq!(list.size, list.chunks.iter().map(Packed::size).sum::<usize>());
                prop_assert!(list.chunks.iter().all(|chunk| !chunk.is_empty()));
            }
        }

        #[test]
        fn equal_entries_go_from_the_asked_end(values in prop::collection::vec(0_u8..3, 0..4000), max in 1_usize..3000, left: bool) {
            let (mut list, mut model) = (List::default(), values.clone());
            values.iter().for_each(|value| list.push(End::Right, &[*value; 9]));
            let equal: Vec<usize> = (0..model.len()).filter(|at| model[*at] == 1).collect();
            let taken = equal.len().min(max);
            let gone = if left { &equal[..taken] } else { &equal[equal.len() - taken..] };
            gone.iter().rev().for_each(|at| { model.remove(*at); });
            let end = if left { End::Left } else { End::Right };
            prop_assert_eq!(list.remove_equal(&[1; 9], end, max), taken);
            prop_assert!(list.iter().eq(model.iter().map(|value| [*value; 9]).collect::<Vec<_>>().iter().map(|value| &value[..])));
            prop_assert_eq!(list.len(), model.len());
            prop_assert_eq!(list.size, list.chunks.iter().map(Packed::size).sum::<usize>());
        }
    }
}
