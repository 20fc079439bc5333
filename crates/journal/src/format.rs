//! The bytes of a journal's files: a head per file, then items.
//!
//! ```text
//!   head, 64 bytes   magic 8 | version 4 | shard 4 | shards 4 | salt 4 | first 8 | boot 8 | zeros 20 | CRC 4
//!   item             CRC 4 | length 4 | sequence 8 | bytes | zeros to a multiple of 8
//! ```
//!
//! An item is a record of the log or an entry of a snapshot. Its CRC (CRC32C) covers all that follows it, the zeros
//! at its end included, and begins with the salt of its file: what was written for another file, or was put into a
//! record by a client that wants it to be read as one, is no item here. An item whose length has the highest bit is
//! a mark of the journal's own: in a log it says up to which sequence number everything was durable when it was
//! written, in a snapshot it is the end.
//!
//! Numbers are little-endian. Pure: no I/O, and any bytes are read without a panic.

use std::fmt;

/// The version that this program writes, and the only one it reads.
pub(crate) const VERSION: u32 = 1;
pub(crate) const HEAD_BYTES: usize = 64;
pub(crate) const ITEM_HEAD_BYTES: usize = 16;
/// Items begin at multiples of this, so that one can be searched for behind damage.
pub(crate) const ALIGN_BYTES: usize = 8;
/// A mark of a log: an item of one number.
pub(crate) const MARK_BYTES: usize = ITEM_HEAD_BYTES + 8;
/// In the number of a mark: everything before it is durable and nothing follows, because the journal was closed.
pub(crate) const IS_CLOSED: u64 = 1 << 63;
/// The longest record or entry, in bytes.
pub const RECORD_BYTES_MAX: usize = 1 << 30;

/// No journal gets so far; what says so is damaged.
const SEQUENCE_END: u64 = 1 << 62;
const IS_MARK: u32 = 1 << 31;
const CRC_BYTES: usize = 4;

/// The number of a record: the first is 1, each is one more than the one before. 0 is before all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which of how many shards a journal belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 0.
    pub number: u32,
    /// How many there are.
    pub count: u32,
}

impl Default for Shard {
    fn default() -> Self {
        Shard { number: 0, count: 1 }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {} of {}", self.number, self.count)
    }
}

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Log,
    Snapshot,
}

impl Kind {
    const fn magic(self) -> &'static [u8; 8] {
        match self {
            Kind::Log => b"lanewayJ",
            Kind::Snapshot => b"lanewayS",
        }
    }

    const fn suffix(self) -> &'static str {
        match self {
            Kind::Log => ".log",
            Kind::Snapshot => ".snapshot",
        }
    }

    /// Of a log, the sequence number that its first record has; of a snapshot, the last that it covers.
    pub(crate) fn name(self, sequence: u64) -> String {
        format!("{sequence:020}{}", self.suffix())
    }

    pub(crate) fn parse_name(self, name: &str) -> Option<u64> {
        let digits = name.strip_suffix(self.suffix())?;
        let is_ours = digits.len() == 20 && digits.bytes().all(|digit| digit.is_ascii_digit());
        is_ours.then(|| digits.parse().ok()).flatten()
    }
}

/// How a file begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    pub(crate) shard: Shard,
    pub(crate) salt: u32,
    /// As in the name of the file.
    pub(crate) first: u64,
    /// Which start of the machine it was written in; 0 where that is not known.
    pub(crate) boot: u64,
}

/// Why bytes are no head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadError {
    Damaged,
    Version(u32),
}

impl Head {
    pub(crate) fn emit(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(self.kind.magic());
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.shard.number.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.shard.count.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.salt.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.first.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.boot.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..HEAD_BYTES - CRC_BYTES]);
        bytes[HEAD_BYTES - CRC_BYTES..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn parse(kind: Kind, bytes: &[u8]) -> Result<Head, HeadError> {
        let bytes: &[u8; HEAD_BYTES] = bytes.first_chunk().ok_or(HeadError::Damaged)?;
        if !bytes.starts_with(kind.magic()) {
            return Err(HeadError::Damaged);
        }
        // Another version may have its CRC elsewhere.
        let version = u32_at(bytes, 8);
        if version != VERSION {
            return Err(HeadError::Version(version));
        }
        let covered = &bytes[..HEAD_BYTES - CRC_BYTES];
        if crc32c::crc32c(covered) != u32_at(bytes, HEAD_BYTES - CRC_BYTES) {
            return Err(HeadError::Damaged);
        }
        let first = u64_at(bytes, 24);
        if first >= SEQUENCE_END || (kind == Kind::Log && first == 0) {
            return Err(HeadError::Damaged);
        }
        Ok(Head {
            kind,
            shard: Shard { number: u32_at(bytes, 12), count: u32_at(bytes, 16) },
            salt: u32_at(bytes, 20),
            first,
            boot: u64_at(bytes, 32),
        })
    }
}

/// The first bytes of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ItemHead {
    pub(crate) is_mark: bool,
    /// Of its content.
    pub(crate) length: usize,
    pub(crate) sequence: u64,
}

impl ItemHead {
    pub(crate) fn parse(bytes: &[u8]) -> Option<ItemHead> {
        let bytes: &[u8; ITEM_HEAD_BYTES] = bytes.first_chunk()?;
        let length = u32_at(bytes, 4);
        Some(ItemHead {
            is_mark: length & IS_MARK != 0,
            length: (length & !IS_MARK) as usize,
            sequence: u64_at(bytes, 8),
        })
    }

    /// With its head and the zeros at its end.
    pub(crate) fn item_bytes(&self) -> usize {
        item_bytes(self.length)
    }
}

/// The bytes that an item takes in a file.
pub(crate) const fn item_bytes(length: usize) -> usize {
    ITEM_HEAD_BYTES + length.next_multiple_of(ALIGN_BYTES)
}

/// Appends an item whose CRC is still to be set by [`seal`].
#[inline]
pub(crate) fn push_item(buffer: &mut Vec<u8>, sequence: u64, content: &[u8]) {
    let length = u32::try_from(content.len()).expect("its writer refuses what is too long");
    debug_assert!(length & IS_MARK == 0, "its writer refuses what is too long");
    push(buffer, length, sequence, content);
}

/// Appends a mark whose CRC is still to be set by [`seal`].
pub(crate) fn push_mark(buffer: &mut Vec<u8>, sequence: u64, numbers: &[u64]) {
    let start = buffer.len() + ITEM_HEAD_BYTES;
    push(buffer, IS_MARK | (8 * numbers.len()) as u32, sequence, &[]);
    buffer.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    debug_assert_eq!(buffer.len(), start + 8 * numbers.len());
}

#[inline]
fn push(buffer: &mut Vec<u8>, length: u32, sequence: u64, content: &[u8]) {
    let mut head = [0; ITEM_HEAD_BYTES];
    head[4..8].copy_from_slice(&length.to_le_bytes());
    head[8..].copy_from_slice(&sequence.to_le_bytes());
    buffer.extend_from_slice(&head);
    buffer.extend_from_slice(content);
    let zeros = content.len().next_multiple_of(ALIGN_BYTES) - content.len();
    buffer.extend_from_slice(&[0; ALIGN_BYTES][..zeros]);
}

/// Sets the CRC of a whole item.
pub(crate) fn seal(item: &mut [u8], salt: u32) {
    let crc = crc32c::crc32c_append(salt, &item[CRC_BYTES..]);
    item[..CRC_BYTES].copy_from_slice(&crc.to_le_bytes());
}

/// Whether a whole item is what was written.
pub(crate) fn is_whole(item: &[u8], salt: u32) -> bool {
    let mut checked = Checked::new(salt);
    checked.add(item);
    checked.is_whole()
}

/// The check of an item that comes in pieces, of which the first has the CRC.
pub(crate) struct Checked {
    stored: Option<u32>,
    crc: u32,
}

impl Checked {
    pub(crate) fn new(salt: u32) -> Checked {
        Checked { stored: None, crc: salt }
    }

    pub(crate) fn add(&mut self, piece: &[u8]) {
        let covered = match (self.stored, piece.split_first_chunk()) {
            (Some(_), _) => piece,
            (None, Some((stored, covered))) => {
                self.stored = Some(u32::from_le_bytes(*stored));
                covered
            }
            // Shorter than a CRC: no item.
            (None, None) => return,
        };
        self.crc = crc32c::crc32c_append(self.crc, covered);
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.stored == Some(self.crc)
    }
}

/// Calls `with` for each of the whole items that these bytes are, which this program has put together.
pub(crate) fn each_item(mut items: &mut [u8], mut with: impl FnMut(&mut [u8])) {
    while let Some(head) = ItemHead::parse(items) {
        let (item, rest) = items.split_at_mut(head.item_bytes());
        with(item);
        items = rest;
    }
}

/// The number at `index` of a mark's content.
pub(crate) fn number_at(content: &[u8], index: usize) -> Option<u64> {
    content.get(8 * index..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Head = Head {
        kind: Kind::Log,
        shard: Shard { number: 1, count: 3 },
        salt: 0x1234_5678,
        first: 77,
        boot: 9,
    };

    #[test]
    fn a_head_is_read_as_written_and_no_flipped_bit_is_missed() {
        let bytes = HEAD.emit();
        assert_eq!(Head::parse(Kind::Log, &bytes), Ok(HEAD));
        assert_eq!(Head::parse(Kind::Snapshot, &bytes), Err(HeadError::Damaged));
        assert_eq!(Head::parse(Kind::Log, &bytes[..63]), Err(HeadError::Damaged));
        for bit in 0..HEAD_BYTES * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Head::parse(Kind::Log, &bytes).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_number_that_no_journal_reaches_is_damage() {
        for (kind, first, is_read) in [
            (Kind::Log, 0, false),
            (Kind::Log, 1, true),
            (Kind::Snapshot, 0, true),
            (Kind::Snapshot, SEQUENCE_END - 1, true),
            (Kind::Snapshot, SEQUENCE_END, false),
        ] {
            let head = Head { kind, first, ..HEAD };
            assert_eq!(Head::parse(kind, &head.emit()).is_ok(), is_read, "{kind:?} {first}");
        }
    }

    #[test]
    fn another_version_is_distinguished_from_damage() {
        let mut bytes = HEAD.emit();
        bytes[8] = 2;
        assert_eq!(Head::parse(Kind::Log, &bytes), Err(HeadError::Version(2)));
    }

    #[test]
    fn an_item_is_whole_with_the_salt_of_its_file_alone() {
        for length in 0..=17 {
            let mut item = Vec::new();
            push_item(&mut item, 5, &vec![7; length]);
            seal(&mut item, 3);
            let head = ItemHead::parse(&item).expect("long enough");
            assert_eq!((head.is_mark, head.length, head.sequence), (false, length, 5));
            assert_eq!(item.len(), head.item_bytes());
            assert!(is_whole(&item, 3) && !is_whole(&item, 4));
            for bit in 0..item.len() * 8 {
                item[bit / 8] ^= 1 << (bit % 8);
                assert!(!is_whole(&item, 3), "bit {bit} of a record of {length}");
                item[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn a_mark_carries_its_numbers() {
        let mut mark = Vec::new();
        push_mark(&mut mark, 9, &[8, 7]);
        assert_eq!(mark.len(), ITEM_HEAD_BYTES + 16);
        let head = ItemHead::parse(&mark).expect("long enough");
        assert!(head.is_mark && head.length == 16 && head.sequence == 9);
        let content = &mark[ITEM_HEAD_BYTES..];
        assert_eq!((number_at(content, 0), number_at(content, 1)), (Some(8), Some(7)));
        assert_eq!(number_at(content, 2), None);
    }

    #[test]
    fn names_sort_as_their_numbers_and_others_are_not_ours() {
        assert_eq!(Kind::Log.name(12), "00000000000000000012.log");
        assert_eq!(Kind::Log.parse_name(&Kind::Log.name(u64::MAX)), Some(u64::MAX));
        for name in ["12.log", "0000000000000000001x.log", "lock", "99999999999999999999.log", ""] {
            assert_eq!(Kind::Log.parse_name(name), None, "{name}");
        }
        assert_eq!(Kind::Snapshot.parse_name(&Kind::Log.name(1)), None);
    }
}
