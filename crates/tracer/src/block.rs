//! The frame of the file: a head, then blocks, each with its length and two checksums.
//!
//! ```text
//!  head    "LANEWAY\0"  version u16  0 u16  0x01020304 u32                      16 bytes
//!  block   "LWTb"  kind u16  thread u16  payload bytes u32  cpu u32
//!          base ticks u64  payload sum u32  header sum u32                      32 bytes, then the payload
//! ```
//!
//! All numbers are little-endian, all payloads multiples of 8 bytes. A reader that meets damage
//! looks for the next block whose header sum fits: one bad sector costs one block, not the rest of the
//! file.

use crate::NotATrace;

/// Where a file begins.
pub(crate) const MAGIC: [u8; 8] = *b"LANEWAY\0";
/// The format that this program writes and reads.
pub(crate) const VERSION: u16 = 1;
const BYTE_ORDER: u32 = 0x0102_0304;
/// Bytes in front of the first block.
pub(crate) const HEAD_BYTES: usize = 16;

/// Where a block begins.
const BLOCK_MAGIC: [u8; 4] = *b"LWTb";
/// Bytes in front of a payload.
pub(crate) const BLOCK_HEADER_BYTES: usize = 32;
/// Payloads and thus blocks begin at multiples of this.
pub(crate) const ALIGN_BYTES: usize = 8;
/// The longest payload: 65,536 records.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// "On which CPU" of a block that does not know.
pub(crate) const CPU_UNKNOWN: u32 = u32::MAX;

/// What a payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum BlockKind {
    /// Text: the program that wrote this, by which clock, with which points. The first block, once.
    Header = 1,
    /// Text: a thread; its number is the block's.
    Thread = 2,
    /// Three words: the counter, CLOCK_MONOTONIC, CLOCK_REALTIME.
    Sync = 3,
    /// Records of one thread.
    Records = 4,
    /// Two words: records written, records lost. The last block, once.
    End = 5,
}

impl BlockKind {
    fn of(code: u16) -> Option<BlockKind> {
        use BlockKind::{End, Header, Records, Sync, Thread};
        [Header, Thread, Sync, Records, End].into_iter().find(|kind| *kind as u16 == code)
    }
}

/// What stands in front of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    pub(crate) kind: BlockKind,
    pub(crate) thread: u16,
    pub(crate) cpu: u32,
    /// The counter's value that the first record's delta counts from.
    pub(crate) base: u64,
    pub(crate) payload_bytes: usize,
    pub(crate) payload_sum: u32,
}

impl BlockHeader {
    pub(crate) fn bytes(&self) -> [u8; BLOCK_HEADER_BYTES] {
        let mut bytes = [0; BLOCK_HEADER_BYTES];
        bytes[..4].copy_from_slice(&BLOCK_MAGIC);
        bytes[4..6].copy_from_slice(&(self.kind as u16).to_le_bytes());
        bytes[6..8].copy_from_slice(&self.thread.to_le_bytes());
        bytes[8..12].copy_from_slice(&(self.payload_bytes as u32).to_le_bytes());
        bytes[12..16].copy_from_slice(&self.cpu.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.base.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.payload_sum.to_le_bytes());
        let sum = sum(&bytes[..28]);
        bytes[28..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The block header at the start of `bytes`, or what is wrong with it.
    pub(crate) fn parse(bytes: &[u8]) -> Result<BlockHeader, String> {
        let Some(bytes) = bytes.get(..BLOCK_HEADER_BYTES) else {
            return Err(format!("{} bytes, less than a block header", bytes.len()));
        };
        if bytes[..4] != BLOCK_MAGIC {
            return Err(format!("{:02x?} where a block should begin", &bytes[..4]));
        }
        if u32_at(bytes, 28) != sum(&bytes[..28]) {
            return Err("a block header with a wrong checksum".to_owned());
        }
        let code = u16_at(bytes, 4);
        let Some(kind) = BlockKind::of(code) else {
            return Err(format!("a block of unknown kind {code}"));
        };
        let payload_bytes = u32_at(bytes, 8) as usize;
        if payload_bytes > PAYLOAD_BYTES_MAX || !payload_bytes.is_multiple_of(ALIGN_BYTES) {
            return Err(format!("a block of impossible length {payload_bytes}"));
        }
        Ok(BlockHeader {
            kind,
            thread: u16_at(bytes, 6),
            cpu: u32_at(bytes, 12),
            base: u64_at(bytes, 16),
            payload_bytes,
            payload_sum: u32_at(bytes, 24),
        })
    }

    /// Where the next block with a good header begins, from `at` on.
    pub(crate) fn find(bytes: &[u8], at: usize) -> Option<usize> {
        let first = at.next_multiple_of(ALIGN_BYTES);
        (first..bytes.len()).step_by(ALIGN_BYTES).find(|&at| {
            let rest = &bytes[at..];
            rest.starts_with(&BLOCK_MAGIC) && BlockHeader::parse(rest).is_ok()
        })
    }
}

/// What a file begins with.
pub(crate) fn head() -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(&MAGIC);
    head[8..10].copy_from_slice(&VERSION.to_le_bytes());
    head[12..].copy_from_slice(&BYTE_ORDER.to_le_bytes());
    head
}

pub(crate) fn check_head(bytes: &[u8]) -> Result<(), NotATrace> {
    if !bytes.starts_with(&MAGIC[..bytes.len().min(MAGIC.len())]) {
        return Err(NotATrace::Magic);
    }
    if bytes.len() < HEAD_BYTES {
        return Err(NotATrace::Short { bytes: bytes.len(), head: HEAD_BYTES });
    }
    let mark = u32_at(bytes, 12);
    if mark != BYTE_ORDER {
        return Err(NotATrace::ByteOrder { mark });
    }
    let version = u16_at(bytes, 8);
    if version != VERSION {
        return Err(NotATrace::Version { version, known: VERSION });
    }
    Ok(())
}

/// A checksum against damage, not against intent: words are mixed by multiplication, a burst of flipped
/// bits anywhere changes it, and a gigabyte takes well under a second.
pub(crate) fn sum(bytes: &[u8]) -> u32 {
    const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut state = bytes.len() as u64 ^ MIX;
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        state = (state ^ u64_at(word, 0)).wrapping_mul(MIX).rotate_left(29);
    }
    for byte in words.remainder() {
        state = (state ^ u64::from(*byte)).wrapping_mul(MIX).rotate_left(29);
    }
    (state ^ state >> 32) as u32
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// The word at `at`; the caller has checked that it is there.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_head_is_read_and_each_part_of_it_is_checked() {
        assert_eq!(check_head(&head()), Ok(()));
        let broken = |at: usize, byte: u8| {
            let mut head = head();
            head[at] = byte;
            check_head(&head).unwrap_err()
        };
        assert_eq!(broken(0, b'X'), NotATrace::Magic);
        assert_eq!(broken(8, 9), NotATrace::Version { version: 9, known: VERSION });
        assert_eq!(broken(12, 1), NotATrace::ByteOrder { mark: 0x0102_0301 });
        assert_eq!(check_head(&head()[..9]), Err(NotATrace::Short { bytes: 9, head: 16 }));
        assert_eq!(check_head(b"\x1f\x8b"), Err(NotATrace::Magic));
    }

    proptest! {
        #[test]
        fn a_block_header_is_read_as_it_was_written_and_no_bit_may_flip(
            thread: u16, cpu: u32, base: u64, words in 0usize..1000, payload_sum: u32, bit in 0usize..256,
        ) {
            let payload_bytes = words * 8;
            let kind = BlockKind::Records;
            let header = BlockHeader { kind, thread, cpu, base, payload_bytes, payload_sum };
            let mut bytes = header.bytes();
            prop_assert_eq!(BlockHeader::parse(&bytes), Ok(header));
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(BlockHeader::parse(&bytes).is_err());
        }

        #[test]
        fn any_bytes_are_parsed_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = check_head(&bytes);
            let _ = BlockHeader::parse(&bytes);
            let _ = BlockHeader::find(&bytes, 3);
        }
    }
}
