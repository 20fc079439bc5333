//! Capture files, read and written by our own code; the words in which lane `pcap`, app `features`, the lab and
//! `laneway gen` speak of them.
//!
//! For offline extraction (one pass over a file of any size, on one core or many), for recording, and for the lab,
//! which replays a capture held in memory. Understood: classic pcap (micro- and nanosecond, both byte orders) and
//! pcapng (both byte orders, several sections, every timestamp resolution), each plain or inside gzip or zstd.
//!
//! ```text
//!                                            ┌─> Record (borrowed)   one thread
//!  file ──plain/gzip/zstd──> buffer ─> Parser ┤
//!                           (bounded)        └─> Chunk  (owned)      sent to another thread
//! ```
//!
//! Where frames must be Ethernet, [`ethernet()`] says what a record is as such.
//!
//! What must always hold: no input makes this crate panic, loop for ever, or allocate by a length that a file merely
//! claims; a damaged file yields every complete record before it yields its error; a plain file and its compressed
//! copies yield the same records. [`format`](mod@format) holds the limits.
//!
//! What it does not do: dissect frames (that is `laneway-wire`), merge or sort captures, resolve names, decrypt.
#![forbid(unsafe_code)]

mod capture;
mod chunk;
mod error;
mod ethernet;
pub mod format;
pub mod link;
mod partial;
mod reader;
mod writer;

pub use capture::{Capture, CaptureError};
pub use chunk::{CHUNK_BYTES_MAX, CHUNK_RECORDS_MAX, Chunk};
pub use error::ReadError;
pub use ethernet::{ETHERNET_BYTES, Parts, ethernet};
pub use format::{FormatError, Interface, ReadCounts, Record, RecordRef};
pub use link::{LinkType, Unsupported, network};
pub use partial::{PartialFile, PartialName};
pub use reader::{Progress, Reader, ZSTD_WINDOW_LOG_MAX, is_read_once, is_rereadable};
pub use writer::{Layout, WriteError, Writer};

/// Reads `data` in every way this crate can and asserts that the ways agree: the entry point of the fuzz target.
///
/// # Panics
/// When the slice parser and the buffered reader disagree, or a record breaks its promises; never otherwise.
#[doc(hidden)]
pub fn fuzz_reader(data: &[u8]) {
    let mut sliced = format::Records::new(data);
    let mut streamed = Reader::from_read(std::io::Cursor::new(data.to_vec()))
        .expect("reading the magic from memory does not fail");
    let compressed = data.starts_with(&reader::GZIP_MAGIC) || data.starts_with(&reader::ZSTD_MAGIC);
    let mut scratch = Vec::new();
    loop {
        // The slice parser does not decompress, so there the streamed reader runs alone.
        let left = if compressed { Ok(None) } else { sliced.next_record() };
        let right = streamed.next_record();
        if let Ok(Some(record)) = &right {
            assert!(
                record.data.len() as u64 <= u64::from(record.wire_len),
                "wire_len covers the data"
            );
            assert!(record.data.len() as u64 <= u64::from(format::FRAME_BYTES_MAX));
            // Any answer is right; arriving here without a panic is the test.
            network(record.link, record.data).ok();
            if let Ok(frame) = ethernet(record, &mut scratch) {
                assert!(frame.data.len() as u64 <= u64::from(frame.wire_len));
                assert_eq!((frame.link, frame.ts_ns), (LinkType::Ethernet, record.ts_ns));
            }
        }
        if !compressed {
            match (&left, &right) {
                (Ok(a), Ok(b)) => assert_eq!(a, b, "slice and stream agree"),
                (Err(a), Err(b)) => {
                    assert_eq!(a.to_string(), b.to_string(), "slice and stream agree")
                }
                (a, b) => panic!("slice and stream disagree: {a:?} against {b:?}"),
            }
        }
        if !matches!(right, Ok(Some(_))) {
            break;
        }
    }
}
