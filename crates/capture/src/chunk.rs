//! A batch of records that can be sent to another thread.
//!
//! ```text
//! reader (one thread) ──next_chunk──> Chunk { bytes, record places } ──send──> worker
//!      ▲                                                                          │ drop
//!      └───────────────────────── spare buffers ◀────────────────────────────────┘
//! ```
//!
//! A chunk keeps its bytes alive by itself: it has the buffer that the reader read them into, and gives it back when it
//! is dropped. Chunks carry the number of their first record, so that workers' results can be put back in order.

use crate::format::{Record, RecordRef};
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a capture after which a chunk is full. It may exceed this by one record.
pub const CHUNK_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Records one chunk can hold.
pub const CHUNK_RECORDS_MAX: usize = 1 << 20;

/// Consecutive records of one capture. `Send`, and independent of the reader that made it.
pub struct Chunk {
    bytes: Vec<u8>,
    spare: SpareBuffers,
    records: Vec<RecordRef>,
    first_record: u64,
}

/// Buffers that chunks have given back. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct SpareBuffers(Arc<Mutex<Vec<Vec<u8>>>>);

/// Buffers that are kept although no chunk uses them; more are freed.
const SPARE_BUFFERS_MAX: usize = 64;

impl SpareBuffers {
    /// A buffer of whatever length, zeros or what was read before; an empty one if there is none.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let mut spare = self.spare.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE_BUFFERS_MAX {
            spare.push(mem::take(&mut self.bytes));
        }
    }
}

impl Chunk {
    pub(crate) fn new(
        bytes: Vec<u8>,
        spare: &SpareBuffers,
        records: Vec<RecordRef>,
        first_record: u64,
    ) -> Self {
        Self { bytes, spare: spare.clone(), records, first_record }
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
        self.records.iter().map(|place| place.record(&self.bytes))
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
