//! Writes one file.
//!
//! What must always hold: blocks are written whole and in order, so that a file whose writer was killed is
//! readable up to its last block; a file that was not finished has no end block, and a reader says so.
//! A file that was never there is created; one that is there is never touched.

use crate::{
    Header, Record, SyncPoint, ThreadInfo, TraceError,
    block::{
        self, ALIGN_BYTES, BLOCK_HEADER_BYTES, BlockHeader, BlockKind, CPU_UNKNOWN, HEAD_BYTES,
        PAYLOAD_BYTES_MAX,
    },
    record::RECORD_BYTES,
};
use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

/// Threads of one file: their numbers are 16 bits.
const FILE_THREADS_MAX: usize = 1 << 16;

/// A file being written.
pub struct FileWriter {
    path: PathBuf,
    out: BufWriter<File>,
    threads: usize,
    records: u64,
    bytes: u64,
    bytes_max: u64,
    payload: Vec<u8>,
}

impl FileWriter {
    /// Creates `path` and writes its header. Records beyond `bytes_max` bytes are refused.
    ///
    /// # Errors
    /// When it exists already, or cannot be written.
    pub fn create(path: &Path, header: &Header, bytes_max: u64) -> Result<FileWriter, TraceError> {
        let file = File::create_new(path).map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => TraceError::Taken { path: path.to_owned() },
            _ => TraceError::File {
                doing: "create",
                path: path.to_owned(),
                source,
                hint: "name a folder that can be written",
            },
        })?;
        let mut writer = FileWriter {
            path: path.to_owned(),
            out: BufWriter::with_capacity(PAYLOAD_BYTES_MAX, file),
            threads: 0,
            records: 0,
            bytes: HEAD_BYTES as u64,
            bytes_max,
            payload: Vec::new(),
        };
        let head = writer.out.write_all(&block::head());
        writer.check(head)?;
        writer.payload = header.text().into_bytes();
        writer.block(BlockKind::Header, 0, CPU_UNKNOWN, 0)?;
        Ok(writer)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Announces a thread; gives its number in this file.
    ///
    /// # Errors
    /// When there are too many, or the file cannot be written.
    pub fn thread(&mut self, thread: &ThreadInfo) -> Result<u16, TraceError> {
        let Ok(number) = u16::try_from(self.threads) else {
            return Err(TraceError::Threads { max: FILE_THREADS_MAX });
        };
        self.payload = thread.text().into_bytes();
        self.block(BlockKind::Thread, number, CPU_UNKNOWN, 0)?;
        self.threads += 1;
        Ok(number)
    }

    /// Says what the counter and the clocks were at one moment.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn sync(&mut self, sync: SyncPoint) -> Result<(), TraceError> {
        self.payload.clear();
        for word in [sync.ticks, sync.monotonic_ns, sync.realtime_ns] {
            self.payload.extend_from_slice(&word.to_le_bytes());
        }
        self.block(BlockKind::Sync, 0, CPU_UNKNOWN, 0)
    }

    /// Writes records of one thread, the first one's delta counting from `base` ticks; `cpu` is where
    /// they were recorded. False, and nothing is written, if the file has reached its limit.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn records(
        &mut self,
        thread: u16,
        cpu: Option<u32>,
        mut base: u64,
        records: &[Record],
    ) -> Result<bool, TraceError> {
        let parts = records.chunks(PAYLOAD_BYTES_MAX / RECORD_BYTES);
        // All or nothing: a caller counts records that were refused as lost.
        let bytes = parts.len() * BLOCK_HEADER_BYTES + records.len() * RECORD_BYTES;
        if self.bytes + bytes as u64 > self.bytes_max {
            return Ok(false);
        }
        for part in parts {
            self.payload.clear();
            self.payload.extend(part.iter().flat_map(|record| record.bytes()));
            self.block(BlockKind::Records, thread, cpu.unwrap_or(CPU_UNKNOWN), base)?;
            self.records += part.len() as u64;
            base = part.iter().fold(base, |at, record| after(at, *record));
        }
        Ok(true)
    }

    /// Writes the end block: nothing more will come, and `lost` records are missing altogether. Gives how
    /// many there are.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(mut self, lost: u64) -> Result<u64, TraceError> {
        self.payload.clear();
        self.payload.extend_from_slice(&self.records.to_le_bytes());
        self.payload.extend_from_slice(&lost.to_le_bytes());
        self.block(BlockKind::End, 0, CPU_UNKNOWN, 0)?;
        let flushed = self.out.flush();
        self.check(flushed)?;
        Ok(self.records)
    }

    /// Writes what is in `payload`.
    fn block(
        &mut self,
        kind: BlockKind,
        thread: u16,
        cpu: u32,
        base: u64,
    ) -> Result<(), TraceError> {
        // A header that names too much is cut, not refused: the rest of it is still true.
        self.payload.truncate(PAYLOAD_BYTES_MAX);
        self.payload.resize(self.payload.len().next_multiple_of(ALIGN_BYTES), 0);
        let payload_bytes = self.payload.len();
        let payload_sum = block::sum(&self.payload);
        let header = BlockHeader { kind, thread, cpu, base, payload_bytes, payload_sum };
        let written =
            self.out.write_all(&header.bytes()).and_then(|()| self.out.write_all(&self.payload));
        self.check(written)?;
        self.bytes += (BLOCK_HEADER_BYTES + payload_bytes) as u64;
        Ok(())
    }

    fn check(&self, written: io::Result<()>) -> Result<(), TraceError> {
        written.map_err(|source| TraceError::File {
            doing: "write",
            path: self.path.clone(),
            source,
            hint: "make room, or name a folder on another disk",
        })
    }
}

/// The time of `record` if the one before it was at `at`.
#[inline]
pub(crate) fn after(at: u64, record: Record) -> u64 {
    if record.point == crate::points::TIME {
        return record.value;
    }
    at.saturating_add(u64::from(record.delta))
}
