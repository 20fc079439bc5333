//! A batch of records that can be sent to another thread.
//!
//! ```text
//! reader (one thread) ──next_chunk──> Chunk { shared map | own bytes, record places } ──send──> worker
//! ```
//!
//! A chunk keeps its bytes alive by itself: the map is shared by reference count (once per chunk, never per record),
//! and the bytes of a compressed capture are copied once, out of the decompressor's buffer. Chunks carry the number of
//! their first record, so that workers' results can be put back in order.

use crate::format::{Record, RecordRef};
use memmap2::Mmap;
use std::fmt;
use std::sync::Arc;

/// Captured bytes after which a chunk of copied records is full. It may exceed this by one record.
pub const CHUNK_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Records one chunk can hold.
pub const CHUNK_RECORDS_MAX: usize = 1 << 20;

/// Consecutive records of one capture. `Send`, and independent of the reader it came from.
pub struct Chunk {
    bytes: ChunkBytes,
    records: Vec<RecordRef>,
    first_record: u64,
}

pub(crate) enum ChunkBytes {
    Map(Arc<Mmap>),
    Copy(Vec<u8>),
}

impl Chunk {
    pub(crate) fn new(bytes: ChunkBytes, records: Vec<RecordRef>, first_record: u64) -> Self {
        Self { bytes, records, first_record }
    }

    /// Number of the first record in the capture, from 0.
    pub fn first_record(&self) -> u64 {
        self.first_record
    }

    /// Number of records; never 0.
    #[expect(clippy::len_without_is_empty, reason = "a chunk is never empty")]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Which of the records have a time, in file order (see [`RecordRef::has_time`]).
    pub fn have_time(&self) -> impl ExactSizeIterator<Item = bool> {
        self.records.iter().map(|place| place.has_time)
    }

    /// The records in file order.
    pub fn records(&self) -> impl ExactSizeIterator<Item = Record<'_>> {
        let bytes: &[u8] = match &self.bytes {
            ChunkBytes::Map(map) => map,
            ChunkBytes::Copy(bytes) => bytes,
        };
        self.records.iter().map(move |place| place.record(bytes))
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunk")
            .field("first_record", &self.first_record)
            .field("records", &self.records.len())
            .finish_non_exhaustive()
    }
}
