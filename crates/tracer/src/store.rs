//! Where the bytes of a file are: in memory, or still in the file. And the way from block to block through either.
//!
//! A file is read through windows and never mapped: a map of a file that shrinks is a fault. What must hold: memory is the
//! room of the window; a file that grew is read as long as it was, and one that shrank is an error of reading.

use crate::block::{
    self, ALIGN_BYTES, BLOCK_HEADER_BYTES, BlockHeader, BlockKind, PAYLOAD_BYTES_MAX,
};
use std::{fs::File, io, os::unix::fs::FileExt as _};

/// Room of a window in which any block lies whole, with the header of the next one.
pub(crate) const WALK_BYTES: usize = PAYLOAD_BYTES_MAX + 2 * BLOCK_HEADER_BYTES;
/// Bytes that are searched at a time for the next block behind damage.
const SEARCH_BYTES: usize = 64 << 10;

/// The bytes of a file.
#[derive(Debug)]
pub(crate) enum Store<'a> {
    Memory(&'a [u8]),
    File {
        file: File,
        /// How long it was when it was opened.
        bytes: u64,
    },
}

impl Store<'_> {
    /// How many there are.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Store::Memory(bytes) => bytes.len() as u64,
            Store::File { bytes, .. } => *bytes,
        }
    }
}

/// A part of a file, held in memory.
#[derive(Debug)]
pub(crate) struct Window {
    bytes: Vec<u8>,
    from: u64,
    room: usize,
}

impl Window {
    /// Of so many bytes, which are taken when the first are read.
    pub(crate) fn new(room: usize) -> Window {
        Window { bytes: Vec::new(), from: 0, room }
    }

    /// `wanted` bytes at `offset`, at most the window's room; fewer where the file ends.
    pub(crate) fn get<'w>(
        &'w mut self,
        store: &'w Store<'_>,
        offset: u64,
        wanted: usize,
    ) -> io::Result<&'w [u8]> {
        let left = usize::try_from(store.bytes().saturating_sub(offset)).unwrap_or(usize::MAX);
        let wanted = wanted.min(self.room).min(left);
        let (file, at) = match store {
            Store::Memory(bytes) => {
                let at = usize::try_from(offset).map_or(bytes.len(), |at| at.min(bytes.len()));
                return Ok(&bytes[at..at + wanted]);
            }
            Store::File { file, .. } => (file, offset.wrapping_sub(self.from)),
        };
        let held = usize::try_from(at).ok().filter(|at| {
            offset >= self.from && at.checked_add(wanted).is_some_and(|to| to <= self.bytes.len())
        });
        let at = match held {
            Some(at) => at,
            None => {
                self.bytes.resize(self.room.min(left), 0);
                self.from = offset;
                if let Err(error) = file.read_exact_at(&mut self.bytes, offset) {
                    self.bytes.clear();
                    return Err(error);
                }
                0
            }
        };
        Ok(&self.bytes[at..at + wanted])
    }

    /// The payload of the block at `offset`, or what is wrong with it.
    pub(crate) fn payload<'w>(
        &'w mut self,
        store: &'w Store<'_>,
        offset: u64,
        header: &BlockHeader,
    ) -> io::Result<Result<&'w [u8], String>> {
        let wanted = header.payload_bytes;
        let payload = self.get(store, offset + BLOCK_HEADER_BYTES as u64, wanted)?;
        Ok(if payload.len() < wanted {
            let there = payload.len();
            Err(format!("the file is cut: {there} of {wanted} bytes of a block are there"))
        } else if block::sum(payload) != header.payload_sum {
            let kind = header.kind;
            Err(format!("a {kind:?} block of {wanted} bytes with a wrong checksum, left out"))
        } else {
            Ok(payload)
        })
    }
}

/// What lies next in a file.
#[derive(Debug)]
pub(crate) enum Found<'w> {
    /// A block whose sums are right.
    Block { offset: u64, header: BlockHeader, payload: &'w [u8] },
    /// Something else, and what is left out because of it.
    Damage { offset: u64, what: String },
    /// Nothing: the file system failed, and this is the end.
    Failed { offset: u64, error: io::Error },
}

/// The blocks of a file, one after the other.
#[derive(Debug)]
pub(crate) struct Walk {
    at: u64,
    window: Window,
}

impl Walk {
    /// From the block at `first` on.
    pub(crate) fn new(first: u64, window: Window) -> Walk {
        Walk { at: first, window }
    }

    pub(crate) fn next<'w>(&'w mut self, store: &'w Store<'_>) -> Option<Found<'w>> {
        let offset = self.at;
        if offset >= store.bytes() {
            return None;
        }
        match self.look(store, offset) {
            Ok(Ok(header)) => {
                self.at = offset + (BLOCK_HEADER_BYTES + header.payload_bytes) as u64;
                Some(match self.window.payload(store, offset, &header) {
                    Ok(Ok(payload)) => Found::Block { offset, header, payload },
                    Ok(Err(what)) => Found::Damage { offset, what },
                    Err(error) => {
                        self.at = u64::MAX;
                        Found::Failed { offset, error }
                    }
                })
            }
            Ok(Err(what)) => Some(Found::Damage { offset, what }),
            Err(error) => {
                self.at = u64::MAX;
                Some(Found::Failed { offset, error })
            }
        }
    }

    /// The header at `offset`; without one, the next block that has one is gone to.
    fn look(&mut self, store: &Store<'_>, offset: u64) -> io::Result<Result<BlockHeader, String>> {
        let what = match BlockHeader::parse(self.window.get(store, offset, BLOCK_HEADER_BYTES)?) {
            Ok(header) => return Ok(Ok(header)),
            Err(what) => what,
        };
        let mut at = (offset + ALIGN_BYTES as u64).next_multiple_of(ALIGN_BYTES as u64);
        self.at = loop {
            let bytes = self.window.get(store, at, SEARCH_BYTES)?;
            if let Some(next) = BlockHeader::find(bytes, 0) {
                break at + next as u64;
            }
            let Some(searched) = bytes.len().checked_sub(BLOCK_HEADER_BYTES) else {
                break store.bytes();
            };
            at += (searched / ALIGN_BYTES * ALIGN_BYTES + ALIGN_BYTES) as u64;
        };
        Ok(Err(format!("{what}; {} bytes are left out", self.at - offset)))
    }
}

/// Offsets of blocks, ascending: each as its distance from the one before, in units of [`ALIGN_BYTES`], seven bits a byte.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    bytes: Vec<u8>,
    last: u64,
}

impl Places {
    pub(crate) fn push(&mut self, offset: u64) {
        let mut left = (offset - self.last) / ALIGN_BYTES as u64;
        self.last = offset;
        while left >= 0x80 {
            self.bytes.push(left as u8 | 0x80);
            left >>= 7;
        }
        self.bytes.push(left as u8);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn iter(&self) -> PlacesIter<'_> {
        PlacesIter { bytes: self.bytes.iter(), offset: 0 }
    }
}

/// See [`Places`].
#[derive(Clone, Debug)]
pub(crate) struct PlacesIter<'p> {
    bytes: std::slice::Iter<'p, u8>,
    offset: u64,
}

impl Iterator for PlacesIter<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let (mut distance, mut shift) = (0, 0);
        loop {
            let byte = *self.bytes.next()?;
            distance |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                self.offset += distance * ALIGN_BYTES as u64;
                return Some(self.offset);
            }
        }
    }
}

/// The records of one thread, read in pieces: many threads are read at a time.
#[derive(Debug)]
pub(crate) struct Pieces<'p> {
    places: PlacesIter<'p>,
    window: Window,
    /// What is left of the payload of the block it is in.
    at: u64,
    left: usize,
}

/// The next records of a thread.
#[derive(Debug)]
pub(crate) struct Piece<'w> {
    /// The header of the block that begins with these records.
    pub(crate) begins: Option<BlockHeader>,
    pub(crate) bytes: &'w [u8],
}

impl<'p> Pieces<'p> {
    pub(crate) fn new(places: &'p Places, room: usize) -> Pieces<'p> {
        Pieces { places: places.iter(), window: Window::new(room), at: 0, left: 0 }
    }

    /// At most `most` bytes of records, a multiple of what a record has; `None` at the end.
    ///
    /// # Errors
    /// When the file cannot be read, or is another one than when it was indexed.
    pub(crate) fn next<'w>(
        &'w mut self,
        store: &'w Store<'_>,
        most: usize,
    ) -> io::Result<Option<Piece<'w>>> {
        let changed = || io::Error::new(io::ErrorKind::InvalidData, "it changed while it was read");
        let mut begins = None;
        while self.left == 0 {
            let Some(offset) = self.places.next() else { return Ok(None) };
            let header = self.window.get(store, offset, BLOCK_HEADER_BYTES)?;
            let header = BlockHeader::parse(header).map_err(|_| changed())?;
            if header.kind != BlockKind::Records {
                return Err(changed());
            }
            (self.at, self.left) = (offset + BLOCK_HEADER_BYTES as u64, header.payload_bytes);
            begins = Some(header);
        }
        let wanted = self.left.min(most);
        let bytes = self.window.get(store, self.at, wanted)?;
        if bytes.len() < wanted {
            return Err(changed());
        }
        self.at += wanted as u64;
        self.left -= wanted;
        Ok(Some(Piece { begins, bytes }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn places_are_given_back(mut offsets in prop::collection::btree_set(0u64..1 << 50, 0..200)) {
            offsets = offsets.into_iter().map(|offset| offset / 8 * 8).collect();
            let mut places = Places::default();
            offsets.iter().for_each(|&offset| places.push(offset));
            prop_assert_eq!(places.iter().collect::<Vec<_>>(), Vec::from_iter(offsets));
        }

        #[test]
        fn a_window_gives_what_memory_gives(
            bytes in prop::collection::vec(any::<u8>(), 0..3_000),
            room in 16usize..1_000,
            looks in prop::collection::vec((0u64..3_500, 0usize..1_200), 1..40),
        ) {
            let path = std::env::temp_dir().join(format!("laneway-window-{}", std::process::id()));
            std::fs::write(&path, &bytes).unwrap();
            let file = File::open(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            let file = Store::File { file, bytes: bytes.len() as u64 };
            let memory = Store::Memory(&bytes);
            let (mut of_file, mut of_memory) = (Window::new(room), Window::new(room));
            for (offset, wanted) in looks {
                let found = of_file.get(&file, offset, wanted).unwrap();
                prop_assert_eq!(found, of_memory.get(&memory, offset, wanted).unwrap());
            }
        }
    }
}
