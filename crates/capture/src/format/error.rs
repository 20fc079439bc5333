//! Why the bytes of a file are refused.

use super::{BLOCK_BYTES_MAX, FRAME_BYTES_MAX, INTERFACES_MAX, first_bytes};
use thiserror::Error;

/// Why bytes are not a capture, or not any more.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum FormatError {
    /// No known magic.
    #[error(
        "not a capture file: it starts with {}; understood are pcap (a1b2c3d4, a1b23c4d, either byte order) and \
         pcapng (0a0d0d0a), plain or inside one layer of gzip or zstd", first_bytes(.first)
    )]
    NotACapture {
        /// The bytes where the magic should be: four, or fewer in a shorter file.
        first: Vec<u8>,
    },
    /// A relative of pcap with another record layout.
    #[error(
        "{name} (magic {magic:08x}) is a pcap variant that is not understood; convert it with `editcap -F nsecpcap IN OUT`"
    )]
    Variant {
        /// The variant's usual name.
        name: &'static str,
        /// Its magic number.
        magic: u32,
    },
    /// A classic pcap of a version other than 2.x.
    #[error(
        "pcap version {major}.{minor} is not understood, only 2.x; convert it with `editcap -F nsecpcap IN OUT`"
    )]
    PcapVersion {
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
    },
    /// A pcapng section of a major version other than 1.
    #[error("pcapng version {major}.{minor} is not understood, only 1.x")]
    PcapngVersion {
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
    },
    /// A section header block without a byte-order magic.
    #[error(
        "pcapng section header with byte-order magic {0:08x}; 1a2b3c4d in either byte order was expected"
    )]
    ByteOrderMagic(u32),
    /// A record longer than any capture writes.
    #[error(
        "a record claims {claimed} captured bytes, the limit is {FRAME_BYTES_MAX}; the file is damaged here"
    )]
    FrameTooLong {
        /// The length claimed.
        claimed: u32,
    },
    /// A block length that no block can have.
    #[error(
        "a pcapng block of type {kind:#010x} claims {claimed} bytes; at least {min}, at most {BLOCK_BYTES_MAX} and a \
         multiple of 4 were expected; the file is damaged here"
    )]
    BlockLength {
        /// Block type.
        kind: u32,
        /// The length claimed.
        claimed: u32,
        /// The least a block of this type needs.
        min: u32,
    },
    /// The two copies of a block's length differ.
    #[error(
        "a pcapng block of type {kind:#010x} is {head} bytes by its head and {tail} by its tail; the file is damaged here"
    )]
    BlockTail {
        /// Block type.
        kind: u32,
        /// Length at the head.
        head: u32,
        /// Length at the tail.
        tail: u32,
    },
    /// A packet block too short for the bytes it claims to hold.
    #[error(
        "a pcapng block of type {kind:#010x} claims {claimed} captured bytes but has room for {room}"
    )]
    BlockRoom {
        /// Block type.
        kind: u32,
        /// Captured bytes claimed.
        claimed: u32,
        /// Bytes the block has for them.
        room: u32,
    },
    /// A packet of an interface that its section did not describe.
    #[error("a packet names interface {id}, but its section has described {known}")]
    UnknownInterface {
        /// The interface named.
        id: u32,
        /// Interfaces the section has described so far.
        known: u32,
    },
    /// More interfaces than [`INTERFACES_MAX`].
    #[error(
        "the file describes more than {INTERFACES_MAX} interfaces; split it into several files"
    )]
    TooManyInterfaces,
    /// An option of an interface that ends outside its block or has the wrong length.
    #[error("option {code} of a pcapng interface has length {len}, which is not possible here")]
    OptionLength {
        /// Option code.
        code: u16,
        /// Length claimed.
        len: u16,
    },
}
