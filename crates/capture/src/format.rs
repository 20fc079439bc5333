//! The capture formats themselves: bytes in, records out, no I/O.
//!
//! [`Parser`] is a state machine over byte slices. Its caller holds a window of the file, asks for one [`Step`], and
//! advances by what the step says or brings more bytes; so the same code reads a file in memory, a pipe and a
//! decompressor. [`Records`] is that loop for a file that is one slice.
//!
//! What must always hold:
//! - every step either advances by at least eight bytes, or asks for more bytes than it was shown, or ends the file;
//! - a step asks for at most [`BLOCK_BYTES_MAX`] bytes, with any claim of the file;
//! - `wire_len` is at least the number of captured bytes, which is at most [`FRAME_BYTES_MAX`];
//! - the only memory that grows is the interface list, up to [`INTERFACES_MAX`].
//!
//! Time: records carry nanoseconds since 1970 in 64 bits (to the year 2554). A pcapng time outside that range is set to
//! the nearest end and counted. Classic pcap seconds are unsigned (to the year 2106), as in libpcap. A fraction of a
//! second that is too large (1,000,000 us and more) carries into the seconds and is counted: tcpdump 4.99 and tshark
//! 4.0 print the two fields side by side without judging them (`369.1000000`), and seconds plus fraction is the time
//! they show. A pcapng simple packet block has no time: 0, counted.
//!
//! Bytes: a record longer than its file's stated snaplen keeps them all, as in Wireshark (libpcap cuts it). A frame
//! check sequence is no part of a record, where the file says that there is one: neither of its bytes nor its lengths.

pub(crate) mod error;
mod pcap;
mod pcapng;

use crate::error::ReadError;
use crate::link::LinkType;
pub use error::FormatError;

/// Captured bytes one record may claim: libpcap's `MAXIMUM_SNAPLEN` and Wireshark's `WTAP_MAX_PACKET_SIZE_STANDARD`,
/// beyond which both call the file damaged. (They allow more for D-Bus and USB, which are not packets here.)
pub const FRAME_BYTES_MAX: u32 = 262_144;

/// Bytes one pcapng block may claim: Wireshark's `MAX_BLOCK_SIZE` and libpcap's `INITIAL_MAX_BLOCKSIZE`.
pub const BLOCK_BYTES_MAX: u32 = 16 * 1024 * 1024;

/// Interfaces one file may describe, over all its sections: as many as the obsolete packet block can number.
pub const INTERFACES_MAX: usize = 65_536;

/// One packet of a capture, borrowed from wherever its file's bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Capture time, nanoseconds since 1970-01-01 UTC. Source: the file; its clock is whatever the capturer used.
    pub ts_ns: u64,
    /// Index into the reader's interfaces: counted over the whole file, not per section. Always 0 in classic pcap.
    pub interface: u32,
    /// What `data` starts with.
    pub link: LinkType,
    /// Bytes the packet had on the wire, without frame check sequence; never less than `data.len()`.
    pub wire_len: u32,
    /// The captured bytes, without frame check sequence where the file says that there is one.
    pub data: &'a [u8],
}

/// A record by place instead of by borrow: where its bytes lie in a buffer that the caller holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRef {
    /// Nanoseconds since 1970-01-01 UTC, as in [`Record`].
    pub ts_ns: u64,
    /// Offset of the captured bytes in their buffer.
    pub offset: usize,
    /// Captured bytes.
    pub len: u32,
    /// Bytes on the wire, as in [`Record`].
    pub wire_len: u32,
    /// Interface index, as in [`Record`].
    pub interface: u32,
    /// Link type, as in [`Record`].
    pub link: LinkType,
    /// False where the file has no time for the record, or one outside 1970..2554; `ts_ns` is then 0, or the nearest
    /// end.
    pub has_time: bool,
}

impl RecordRef {
    /// Without the frame check sequence at its end, of which any part may be captured.
    #[inline]
    fn without_fcs(self, fcs_bytes: Option<u8>) -> RecordRef {
        let wire_len = self.wire_len.saturating_sub(fcs_bytes.unwrap_or(0).into());
        RecordRef { wire_len, len: self.len.min(wire_len), ..self }
    }

    /// The record, with its bytes borrowed from `buffer`.
    ///
    /// # Panics
    /// If `buffer` is not the one this reference was made for and ends before the record does.
    #[inline]
    pub fn record<'a>(&self, buffer: &'a [u8]) -> Record<'a> {
        Record {
            ts_ns: self.ts_ns,
            interface: self.interface,
            link: self.link,
            wire_len: self.wire_len,
            data: &buffer[self.offset..self.offset + self.len as usize],
        }
    }
}

/// What a file says about one of its interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Link type of its records.
    pub link: LinkType,
    /// Bytes kept per packet, as stated; 0 means no limit was stated.
    pub snaplen: u32,
    /// Section of the file it belongs to, from 0. Always 0 in classic pcap.
    pub section: u32,
    /// Bytes of frame check sequence behind each packet, where the file says so. Records are without them.
    pub fcs_bytes: Option<u8>,
    /// Packets received, from the latest interface statistics block (pcapng).
    pub received: Option<u64>,
    /// Packets dropped by the capturing interface, from the latest interface statistics block (pcapng).
    pub dropped: Option<u64>,
    clock: pcapng::Clock,
}

/// Counts kept while reading; nothing unusual passes without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// Records yielded.
    pub records: u64,
    /// pcapng blocks that hold no packet and no interface: names, secrets, journals, custom blocks.
    pub blocks_skipped: u64,
    /// Times outside 1970..2554, set to the nearest end.
    pub timestamps_saturated: u64,
    /// Fractions of a second that were one second or more, carried into the seconds.
    pub fractions_carried: u64,
    /// Records without a time (pcapng simple packet blocks), given time 0.
    pub times_missing: u64,
    /// Records whose stated length was below their captured length; `wire_len` was raised to the latter.
    pub lengths_raised: u64,
}

fn first_bytes(first: &[u8]) -> String {
    if first.is_empty() {
        return "nothing (it is empty)".to_owned();
    }
    first.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A record; its offset counts from the start of the window. Advance the window by `advance`.
    Record {
        /// The record found.
        record: RecordRef,
        /// Bytes to advance by.
        advance: usize,
    },
    /// Nothing for the caller in these bytes (a header, a block without a packet). Advance and step again.
    Skip {
        /// Bytes to advance by.
        advance: usize,
    },
    /// The window must hold at least this many bytes. At the end of the file this means: cut short, unless the window
    /// is empty.
    Need {
        /// Bytes the window must hold, more than it does.
        bytes: usize,
        /// What was to be read, for the error message.
        what: &'static str,
    },
}

/// Reads a capture of either format, one step at a time. See the module for the promises.
#[derive(Debug, Default)]
pub struct Parser {
    state: State,
    interfaces: Vec<Interface>,
    counts: ReadCounts,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Start,
    Pcap(pcap::Pcap),
    Pcapng(pcapng::Pcapng),
}

impl Parser {
    /// A parser before the first byte of a file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks at `window`, the bytes from the current position on.
    ///
    /// # Errors
    /// When the bytes cannot be a capture. Stepping on after an error is allowed and meaningless.
    #[inline]
    pub fn step(&mut self, window: &[u8]) -> Result<Step, FormatError> {
        match &mut self.state {
            State::Pcap(pcap) => pcap.step(window, &mut self.counts),
            State::Pcapng(pcapng) => pcapng.step(window, &mut self.interfaces, &mut self.counts),
            State::Start => self.start(window),
        }
    }

    /// Records so far; `None` before the head of the file was understood.
    pub(crate) fn records(&self) -> Option<u64> {
        self.started().then_some(self.counts.records)
    }

    /// Whether the file's magic has been seen and accepted.
    pub fn started(&self) -> bool {
        !matches!(self.state, State::Start)
    }

    /// Interfaces described so far, indexed by [`Record::interface`].
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Counts so far.
    pub fn counts(&self) -> ReadCounts {
        self.counts
    }

    /// `"pcap"` or `"pcapng"`, or `None` before the magic was seen.
    pub fn format_name(&self) -> Option<&'static str> {
        match self.state {
            State::Start => None,
            State::Pcap(_) => Some("pcap"),
            State::Pcapng(_) => Some("pcapng"),
        }
    }

    #[cold]
    fn start(&mut self, window: &[u8]) -> Result<Step, FormatError> {
        let Some(magic) = window.first_chunk::<MAGIC_BYTES>() else {
            return Ok(Step::Need { bytes: MAGIC_BYTES, what: "the magic number" });
        };
        if *magic == pcapng::SECTION_MAGIC {
            self.state = State::Pcapng(pcapng::Pcapng::default());
            return self.step(window);
        }
        pcap::refuse_variants(*magic)?;
        let Some(order) = pcap::order_of(*magic) else {
            return Err(not_a_capture(window));
        };
        let Some(header) = window.first_chunk::<{ pcap::FILE_HEADER_BYTES }>() else {
            return Ok(Step::Need { bytes: pcap::FILE_HEADER_BYTES, what: "the pcap file header" });
        };
        let (pcap, interface) = pcap::Pcap::from_header(header, order)?;
        self.interfaces.push(interface);
        self.state = State::Pcap(pcap);
        Ok(Step::Skip { advance: pcap::FILE_HEADER_BYTES })
    }
}

/// What tells the formats apart.
const MAGIC_BYTES: usize = 4;

fn not_a_capture(window: &[u8]) -> FormatError {
    FormatError::NotACapture { first: window[..window.len().min(MAGIC_BYTES)].to_vec() }
}

/// The records of a file that is one slice.
#[derive(Debug)]
pub struct Records<'a> {
    file: &'a [u8],
    at: usize,
    parser: Parser,
    ended: bool,
}

impl<'a> Records<'a> {
    /// Reads `file` from its first byte; nothing is checked before the first record is asked for.
    pub fn new(file: &'a [u8]) -> Self {
        Self { file, at: 0, parser: Parser::new(), ended: false }
    }

    /// The next record; `None` at the end of the file and after an error.
    ///
    /// # Errors
    /// When the file is cut short, damaged, or no capture at all; all complete records before that were yielded.
    pub fn next_record(&mut self) -> Result<Option<Record<'a>>, ReadError> {
        let found = next_in_slice(&mut self.parser, self.file, &mut self.at, &mut self.ended)?;
        Ok(found.map(|found| found.record(self.file)))
    }

    /// The parser, for interfaces and counts.
    pub fn parser(&self) -> &Parser {
        &self.parser
    }
}

/// The one loop over a file in memory.
#[inline]
pub(crate) fn next_in_slice(
    parser: &mut Parser,
    file: &[u8],
    at: &mut usize,
    ended: &mut bool,
) -> Result<Option<RecordRef>, ReadError> {
    if *ended {
        return Ok(None);
    }
    loop {
        let window = &file[*at..];
        match parser.step(window) {
            Ok(Step::Record { mut record, advance }) => {
                record.offset += *at;
                *at += advance;
                return Ok(Some(record));
            }
            Ok(Step::Skip { advance }) => *at += advance,
            Ok(Step::Need { bytes, what }) => {
                *ended = true;
                return end_of_file(parser, window, *at as u64, bytes, what).map(|()| None);
            }
            Err(reason) => {
                *ended = true;
                return Err(ReadError::of_format(parser.records(), *at as u64, reason));
            }
        }
    }
}

/// Judges the end of a file, met when a step asked for `bytes` and only `window` was left.
#[cold]
pub(crate) fn end_of_file(
    parser: &Parser,
    window: &[u8],
    offset: u64,
    bytes: usize,
    what: &'static str,
) -> Result<(), ReadError> {
    if !parser.started() && window.len() < MAGIC_BYTES {
        return Err(ReadError::NotUnderstood(not_a_capture(window)));
    }
    if window.is_empty() && parser.started() {
        return Ok(());
    }
    Err(ReadError::Truncated {
        offset,
        what,
        needed: bytes as u64,
        have: window.len() as u64,
        records: parser.counts.records,
    })
}

/// Byte order of a file's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Order {
    #[default]
    Little,
    Big,
}

impl Order {
    #[inline]
    fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    #[inline]
    fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    #[inline]
    fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Self::Little => u64::from_le_bytes(bytes),
            Self::Big => u64::from_be_bytes(bytes),
        }
    }

    /// The four bytes at `at`, which must lie inside `bytes`: callers pass fixed-size headers and constant offsets.
    #[inline]
    fn u32_at<const N: usize>(self, bytes: &[u8; N], at: usize) -> u32 {
        self.u32([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    }

    #[inline]
    fn u16_at<const N: usize>(self, bytes: &[u8; N], at: usize) -> u16 {
        self.u16([bytes[at], bytes[at + 1]])
    }
}
