//! Reading a file of items, in memory of one chunk or of the longest item, whichever is more.
//!
//! What the bytes say is data: a length beyond the end of the file, a CRC that does not fit and bytes behind the last
//! item are answers, not errors.

use crate::files::OpenFile;
use crate::format::{
    ALIGN_BYTES, Checked, HEAD_BYTES, Head, HeadError, IS_CLOSED, ITEM_HEAD_BYTES, ItemHead, Kind,
    MARK_BYTES, is_whole, number_at,
};
use std::io;

/// Read at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// A file, and the part of it that is in memory.
pub(crate) struct Scan<'a> {
    file: &'a dyn OpenFile,
    file_bytes: u64,
    salt: u32,
    /// Where the next item begins.
    offset: u64,
    chunk: Vec<u8>,
    chunk_offset: u64,
}

/// What is at the place of the next item.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    Record {
        sequence: u64,
        content: &'a [u8],
    },
    Mark {
        sequence: u64,
        content: &'a [u8],
    },
    /// The end of the file, or zeros: nothing was written here, or what was is lost.
    Blank,
    /// Bytes that are no item.
    Bad,
}

/// What is behind the last whole item of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tail {
    /// Up to the last byte that is not zero.
    pub(crate) bytes: u64,
    /// The highest sequence number that a mark behind the last whole item says to be durable.
    pub(crate) durable: u64,
    /// There are marks at all, so that a whole batch was written behind what is missing.
    pub(crate) has_marks: bool,
}

impl<'a> Scan<'a> {
    /// Reads the head; the scan begins behind it.
    pub(crate) fn begin(
        file: &'a dyn OpenFile,
        kind: Kind,
    ) -> io::Result<Result<(Head, Scan<'a>), HeadError>> {
        let file_bytes = file.len()?;
        let mut scan =
            Scan { file, file_bytes, salt: 0, offset: 0, chunk: Vec::new(), chunk_offset: 0 };
        let head = Head::parse(kind, scan.bytes(0, HEAD_BYTES)?);
        Ok(head.map(|head| {
            (scan.salt, scan.offset) = (head.salt, HEAD_BYTES as u64);
            (head, scan)
        }))
    }

    /// Where the next item begins: behind all whole ones that were read.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    pub(crate) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// The next item; [`Item::Blank`] and [`Item::Bad`] are not passed.
    pub(crate) fn next(&mut self) -> io::Result<Item<'_>> {
        let (offset, left) = (self.offset, self.file_bytes - self.offset);
        let bytes = self.bytes(offset, ITEM_HEAD_BYTES)?;
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(Item::Blank);
        }
        let Some(head) = ItemHead::parse(bytes) else { return Ok(Item::Bad) };
        if head.item_bytes() as u64 > left {
            return Ok(Item::Bad);
        }
        if !self.is_whole(offset, head.item_bytes())? {
            return Ok(Item::Bad);
        }
        self.offset += head.item_bytes() as u64;
        let item = self.bytes(offset, head.item_bytes())?;
        if item.len() < head.item_bytes() {
            return Ok(Item::Bad);
        }
        let content = &item[ITEM_HEAD_BYTES..ITEM_HEAD_BYTES + head.length];
        let sequence = head.sequence;
        Ok(if head.is_mark {
            Item::Mark { sequence, content }
        } else {
            Item::Record { sequence, content }
        })
    }

    /// Checks a long item in pieces: a length that is damaged costs no memory.
    fn is_whole(&mut self, offset: u64, item_bytes: usize) -> io::Result<bool> {
        let (mut checked, mut done) = (Checked::new(self.salt), 0);
        while done < item_bytes {
            let wanted = CHUNK_BYTES.min(item_bytes - done);
            let piece = self.bytes(offset + done as u64, wanted)?;
            if piece.len() < wanted {
                return Ok(false);
            }
            checked.add(piece);
            done += wanted;
        }
        Ok(checked.is_whole())
    }

    /// Looks through all that is behind the last whole item for marks. They are short, so this is linear in the bytes.
    pub(crate) fn tail(&mut self, expected: u64) -> io::Result<Tail> {
        let (start, salt, mut tail) = (self.offset, self.salt, Tail::default());
        let mut offset = start;
        while offset < self.file_bytes {
            // One chunk at a time, and from the next one the first bytes of a mark that begins in this one.
            let bytes = self.bytes(offset, CHUNK_BYTES + MARK_BYTES)?;
            let is_last = bytes.len() <= CHUNK_BYTES;
            let begins = bytes.len().min(CHUNK_BYTES);
            if let Some(last) = bytes[..begins].iter().rposition(|byte| *byte != 0) {
                tail.bytes = offset + last as u64 + 1 - start;
                for at in (0..=last).step_by(ALIGN_BYTES) {
                    if let Some((sequence, durable)) = mark_at(&bytes[at..], salt)
                        && sequence > expected
                    {
                        tail.has_marks = true;
                        tail.durable = tail.durable.max(durable & !IS_CLOSED);
                    }
                }
            }
            if is_last {
                break;
            }
            offset += begins as u64;
        }
        Ok(tail)
    }

    /// What is at `offset`, `length` bytes or up to the end of the file.
    fn bytes(&mut self, offset: u64, length: usize) -> io::Result<&[u8]> {
        let is_there = offset >= self.chunk_offset
            && offset + length as u64 <= self.chunk_offset + self.chunk.len() as u64;
        if !is_there {
            let left =
                usize::try_from(self.file_bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
            self.chunk.clear();
            self.chunk.resize(length.max(CHUNK_BYTES).min(left), 0);
            self.chunk_offset = offset;
            let read = self.file.read_at(offset, &mut self.chunk)?;
            self.chunk.truncate(read);
        }
        let start = usize::try_from(offset - self.chunk_offset).expect("within the chunk");
        let end = (start + length).min(self.chunk.len());
        Ok(&self.chunk[start..end])
    }
}

/// The sequence number and the content of the mark that these bytes begin with.
fn mark_at(bytes: &[u8], salt: u32) -> Option<(u64, u64)> {
    let head = ItemHead::parse(bytes)?;
    if !head.is_mark || head.item_bytes() != MARK_BYTES {
        return None;
    }
    let mark = bytes.get(..MARK_BYTES)?;
    let durable = number_at(&mark[ITEM_HEAD_BYTES..], 0)?;
    is_whole(mark, salt).then_some((head.sequence, durable))
}
