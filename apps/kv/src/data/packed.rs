//! Packed entries: byte strings one behind the other in one allocation, passable from both ends.
//!
//! ```text
//!  entry: length (1 to 5 bytes, 7 bits each) | bytes | size of both before (1 to 5 bytes, readable backwards)
//! ```
//!
//! Everything but the ends takes a walk, so it is for small collections and for the chunks of long lists.

/// Byte strings in one allocation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packed {
    bytes: Vec<u8>,
    len: usize,
}

impl Packed {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes in use.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes that an entry of `len` bytes takes.
    pub(crate) fn entry_size(len: usize) -> usize {
        let head = varint_size(len);
        head + len + varint_size(head + len)
    }

    pub(crate) fn iter(&self) -> Iter<'_> {
        Iter { bytes: &self.bytes }
    }

    pub(crate) fn get(&self, index: usize) -> Option<&[u8]> {
        if index < self.len / 2 {
            self.iter().nth(index)
        } else {
            self.iter().nth_back(self.len.checked_sub(index + 1)?)
        }
    }

    /// Adds an entry that is these parts, one behind the other.
    pub(crate) fn push<const PARTS: usize>(&mut self, parts: [&[u8]; PARTS]) {
        let mut entry = std::mem::take(&mut self.bytes);
        write(&mut entry, parts);
        self.bytes = entry;
        self.len += 1;
    }

    /// Puts an entry before the one at `index`, or at the end.
    pub(crate) fn insert<const PARTS: usize>(&mut self, index: usize, parts: [&[u8]; PARTS]) {
        if index >= self.len {
            return self.push(parts);
        }
        let at = self.offset(index);
        let mut entry = Vec::with_capacity(parts.iter().map(|part| part.len()).sum::<usize>() + 10);
        write(&mut entry, parts);
        self.bytes.splice(at..at, entry);
        self.len += 1;
    }

    /// Puts another entry at `index`, which is there.
    pub(crate) fn replace<const PARTS: usize>(&mut self, index: usize, parts: [&[u8]; PARTS]) {
        let (from, to) = (self.offset(index), self.offset(index + 1));
        let mut entry = Vec::with_capacity(to - from);
        write(&mut entry, parts);
        self.bytes.splice(from..to, entry);
    }

    /// Removes `count` entries from `index` on, which are there.
    pub(crate) fn remove(&mut self, index: usize, count: usize) {
        let (from, to) = (self.offset(index), self.offset(index + count));
        self.bytes.drain(from..to);
        self.len -= count;
        if self.bytes.capacity() > 4 * self.bytes.len() + 64 {
            self.bytes.shrink_to(self.bytes.len() * 2);
        }
    }

    /// Cuts off the entries from `index` on.
    pub(crate) fn split_off(&mut self, index: usize) -> Packed {
        let bytes = self.bytes.split_off(self.offset(index));
        let len = self.len - index;
        self.len = index;
        self.bytes.shrink_to_fit();
        Packed { bytes, len }
    }

    /// Gives back memory that is not in use.
    pub(crate) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
    }

    /// Where the entry at `index` begins.
    fn offset(&self, index: usize) -> usize {
        let mut entries = self.iter();
        if index <= self.len / 2 {
            entries.by_ref().take(index).for_each(drop);
            self.bytes.len() - entries.bytes.len()
        } else {
            entries.by_ref().rev().take(self.len - index).for_each(drop);
            entries.bytes.len()
        }
    }
}

impl<'a> FromIterator<&'a [u8]> for Packed {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(entries: I) -> Packed {
        let mut packed = Packed::default();
        entries.into_iter().for_each(|entry| packed.push([entry]));
        packed
    }
}

/// The entries, from either end.
#[derive(Clone, Debug)]
pub(crate) struct Iter<'a> {
    bytes: &'a [u8],
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.bytes.is_empty() {
            return None;
        }
        let (len, head) = read_forward(self.bytes);
        let end = head + len;
        let entry = &self.bytes[head..end];
        self.bytes = &self.bytes[end + varint_size(end)..];
        Some(entry)
    }
}

impl<'a> DoubleEndedIterator for Iter<'a> {
    fn next_back(&mut self) -> Option<&'a [u8]> {
        if self.bytes.is_empty() {
            return None;
        }
        let (size, tail) = read_backward(self.bytes);
        let end = self.bytes.len() - tail;
        let entry = &self.bytes[end - size..end];
        let (len, head) = read_forward(entry);
        self.bytes = &self.bytes[..end - size];
        Some(&entry[head..head + len])
    }
}

fn write<const PARTS: usize>(bytes: &mut Vec<u8>, parts: [&[u8]; PARTS]) {
    let from = bytes.len();
    write_varint(bytes, parts.iter().map(|part| part.len()).sum());
    for part in parts {
        bytes.extend_from_slice(part);
    }
    let tail = bytes.len();
    write_varint(bytes, tail - from);
    // Backwards, its first byte comes last.
    bytes[tail..].reverse();
}

/// A length in as many bytes as it needs: 7 bits each, the low ones first; the highest bit says that more follow.
pub(crate) fn write_varint(bytes: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

pub(crate) fn varint_size(number: usize) -> usize {
    (usize::BITS - (number | 1).leading_zeros()).div_ceil(7) as usize
}

/// The length at the start of bytes that we wrote, and its own size.
pub(crate) fn read_forward(bytes: &[u8]) -> (usize, usize) {
    read(bytes.iter())
}

fn read_backward(bytes: &[u8]) -> (usize, usize) {
    read(bytes.iter().rev())
}

fn read<'a>(bytes: impl Iterator<Item = &'a u8>) -> (usize, usize) {
    let (mut number, mut size) = (0, 0);
    for byte in bytes {
        number |= usize::from(byte & 0x7f) << (7 * size);
        size += 1;
        if byte & 0x80 == 0 {
            break;
        }
    }
    (number, size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn packed_entries_are_a_sequence(steps in prop::collection::vec((0_u8..5, 0_usize..40, 0_usize..300), 0..60)) {
            let (mut packed, mut model) = (Packed::default(), Vec::<Vec<u8>>::new());
            for (kind, index, size) in steps {
                let entry = vec![size as u8; size];
                match kind {
                    0 => { packed.push([&entry]); model.push(entry); }
                    1 => {
                        let (one, other) = entry.split_at(size / 3);
                        packed.insert(index, [one, other]);
                        model.insert(index.min(model.len()), entry);
                    }
                    2 if index < model.len() => { packed.replace(index, [&entry]); model[index] = entry; }
                    3 if index < model.len() => {
                        let count = size.min(model.len() - index);
                        packed.remove(index, count);
                        model.drain(index..index + count);
                    }
                    4 if index <= model.len() => {
                        let rest = packed.split_off(index);
                        prop_assert!(rest.iter().eq(model.split_off(index).iter().map(Vec::as_slice)));
                    }
                    _ => {}
                }
                prop_assert_eq!(packed.len(), model.len());
                prop_assert!(packed.iter().eq(model.iter().map(Vec::as_slice)));
                prop_assert!(packed.iter().rev().eq(model.iter().rev().map(Vec::as_slice)));
                let size: usize = model.iter().map(|entry| Packed::entry_size(entry.len())).sum();
                prop_assert_eq!(packed.size(), size);
                prop_assert_eq!(packed.get(index), model.get(index).map(Vec::as_slice));
            }
        }
    }
}
