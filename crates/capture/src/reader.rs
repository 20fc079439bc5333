//! Reads a capture from a file, a pipe or any `Read`, compressed or not.
//!
//! Every source (a plain file, gzip, zstd, a pipe, standard input) flows through one buffer. A file's kind is known by
//! its first bytes, never by its name.
//!
//! ```text
//!   source ──read──▶ buffer [.. records of the chunk ..|.. next ones ..]
//!                       │ next_chunk: the buffer goes with the chunk     │ what is behind it is copied
//!                       ▼                                                ▼
//!                     Chunk ──dropped──▶ spare buffers ──────────▶ the next buffer
//! ```
//!
//! What must always hold: records come in file order; an error comes after all complete records before it, once, and
//! then the reader has ended; memory stays below [`crate::format::BLOCK_BYTES_MAX`] for the buffer plus the
//! decompressor's window, with any file, and a buffer of that size for each chunk that is held.
//!
//! Files are read and not mapped: a mapped file counts as memory of the process as far as it was read, whatever its
//! size, and one that is shortened meanwhile ends the process with SIGBUS. What it does not do: follow a file that is
//! still growing; a read that finds its end is the end.

use crate::chunk::{CHUNK_BYTES_MAX, CHUNK_RECORDS_MAX, Chunk, SpareBuffers};
use crate::error::ReadError;
use crate::format::{
    BLOCK_BYTES_MAX, Interface, Parser, ReadCounts, Record, RecordRef, Step, end_of_file,
};
use flate2::bufread::MultiGzDecoder;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::mem;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Largest zstd window accepted, as a power of two: 128 MiB, what `zstd -d` accepts without `--long`. It bounds the
/// memory that a compressed file can ask for.
pub const ZSTD_WINDOW_LOG_MAX: u32 = 27;

pub(crate) const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
pub(crate) const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The buffer's first size; it grows only when one record or block needs more, up to [`BLOCK_BYTES_MAX`].
const BUFFER_BYTES: usize = 256 * 1024;

/// How far reading has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the file consumed; of a compressed file, compressed bytes.
    pub bytes_done: u64,
    /// Bytes of the file, where they are known (not for pipes).
    pub bytes_total: Option<u64>,
}

/// Reads the records of one capture in order. See the module for the promises.
///
/// ```no_run
/// let mut reader = laneway_capture::Reader::open("a.pcapng.zst")?;
/// while let Some(record) = reader.next_record()? {
///     println!("{} ns: {} bytes", record.ts_ns, record.wire_len);
/// }
/// # Ok::<(), laneway_capture::ReadError>(())
/// ```
#[derive(Debug)]
pub struct Reader {
    parser: Parser,
    stream: Stream,
    bytes_total: Option<u64>,
    ended: bool,
    /// An error met while filling a chunk that already held records: it comes with the next call.
    pending: Option<ReadError>,
}

/// True where `path`, as [`Reader::open`] reads it, can be opened again for another pass: a file, and no pipe, device
/// or standard input.
pub fn is_rereadable(path: &Path) -> bool {
    path != Path::new("-") && path.metadata().is_ok_and(|file| file.is_file())
}

/// True where there is something at `path` that can be read once alone.
pub fn is_read_once(path: &Path) -> bool {
    !is_rereadable(path) && (path == Path::new("-") || path.exists())
}

impl Reader {
    /// Opens `path`; `-` is standard input.
    ///
    /// # Errors
    /// [`ReadError::Open`] when the file cannot be opened, [`ReadError::Io`] when its first bytes cannot be read.
    /// Whether it is a capture is found out with the first record.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ReadError> {
        let path = path.as_ref();
        if path == Path::new("-") {
            return Self::from_read(io::stdin());
        }
        let failed = |source| ReadError::Open { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        let mut reader = Self::from_read(file)?;
        // Files in /proc and the like are regular, state length 0 and yet have content.
        reader.bytes_total = Some(metadata.len()).filter(|&bytes| metadata.is_file() && bytes > 0);
        Ok(reader)
    }

    /// Reads from any source, which its first bytes show to be plain, gzip or zstd.
    ///
    /// # Errors
    /// [`ReadError::Io`] when the first bytes cannot be read or the decompressor cannot be set up.
    pub fn from_read(mut read: impl Read + Send + 'static) -> Result<Self, ReadError> {
        let failed = |container, source| ReadError::Io { container, offset: 0, source, records: 0 };
        let mut magic = Vec::with_capacity(4);
        read.by_ref().take(4).read_to_end(&mut magic).map_err(|source| failed("file", source))?;
        let container = Container::of(&magic);
        let consumed = Arc::new(AtomicU64::new(0));
        let whole = Counted { inner: Cursor::new(magic).chain(read), bytes: Arc::clone(&consumed) };
        let buffered = BufReader::with_capacity(BUFFER_BYTES, whole);
        let source: Box<dyn Read + Send> = match container {
            Container::Plain => Box::new(buffered.into_inner()),
            Container::Gzip => Box::new(MultiGzDecoder::new(buffered)),
            Container::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(buffered)
                    .map_err(|source| failed(container.name(), source))?;
                decoder
                    .window_log_max(ZSTD_WINDOW_LOG_MAX)
                    .map_err(|source| failed(container.name(), source))?;
                Box::new(decoder)
            }
        };
        let stream = Stream {
            source,
            container,
            consumed,
            buffer: vec![0; BUFFER_BYTES],
            start: 0,
            end: 0,
            offset: 0,
            ended: false,
            is_held: false,
            spare: SpareBuffers::default(),
        };
        Ok(Self { parser: Parser::new(), stream, bytes_total: None, ended: false, pending: None })
    }

    /// The next record, borrowed until the next call; `None` at the end and after an error.
    ///
    /// # Errors
    /// When the capture is cut short, damaged, unreadable, or no capture at all; every complete record before that
    /// point was yielded.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        Ok(self.next_stamped()?.map(|(record, _)| record))
    }

    /// [`Reader::next_record`], and whether the capture has a time for it ([`RecordRef::has_time`]).
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn next_stamped(&mut self) -> Result<Option<(Record<'_>, bool)>, ReadError> {
        let Some(found) = self.find()? else {
            return Ok(None);
        };
        Ok(Some((found.record(&self.stream.buffer), found.has_time)))
    }

    /// The next records, at most `records_max` (and [`CHUNK_RECORDS_MAX`]), as a value that another thread can own;
    /// `None` at the end. A chunk ends early at [`CHUNK_BYTES_MAX`].
    ///
    /// # Errors
    /// As [`Reader::next_record`]; records met before the error come first, in a chunk of their own.
    pub fn next_chunk(&mut self, records_max: usize) -> Result<Option<Chunk>, ReadError> {
        let records_max = records_max.clamp(1, CHUNK_RECORDS_MAX);
        let first_record = self.parser.counts().records;
        let mut records = Vec::with_capacity(records_max);
        self.stream.compact();
        while records.len() < records_max && self.stream.start < CHUNK_BYTES_MAX {
            match self.find() {
                Ok(Some(found)) => {
                    records.push(found);
                    self.stream.is_held = true;
                }
                Ok(None) => break,
                Err(error) if records.is_empty() => return Err(error),
                Err(error) => {
                    self.pending = Some(error);
                    break;
                }
            }
        }
        if records.is_empty() {
            return Ok(None);
        }
        let bytes = self.stream.release();
        Ok(Some(Chunk::new(bytes, &self.stream.spare, records, first_record)))
    }

    /// Interfaces described so far, indexed by [`Record::interface`]. pcapng may add some with every block, and its
    /// packet counts usually come last.
    pub fn interfaces(&self) -> &[Interface] {
        self.parser.interfaces()
    }

    /// Counts so far, among them every oddity that was tolerated.
    pub fn counts(&self) -> ReadCounts {
        self.parser.counts()
    }

    /// `"pcap"` or `"pcapng"`, or `None` before the first record was asked for.
    pub fn format_name(&self) -> Option<&'static str> {
        self.parser.format_name()
    }

    /// How far reading has come.
    pub fn progress(&self) -> Progress {
        // Relaxed: a number for a person; the counter guards nothing.
        let bytes_done = self.stream.consumed.load(Ordering::Relaxed);
        Progress { bytes_done, bytes_total: self.bytes_total }
    }

    /// The next record's place in the stream's buffer.
    #[inline]
    fn find(&mut self) -> Result<Option<RecordRef>, ReadError> {
        if self.ended {
            return match self.pending.take() {
                Some(error) => Err(error),
                None => Ok(None),
            };
        }
        self.stream.find(&mut self.parser, &mut self.ended)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Container {
    Plain,
    Gzip,
    Zstd,
}

impl Container {
    fn of(first: &[u8]) -> Self {
        if first.starts_with(&GZIP_MAGIC) {
            Self::Gzip
        } else if first.starts_with(&ZSTD_MAGIC) {
            Self::Zstd
        } else {
            Self::Plain
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "file",
            Self::Gzip => "gzip stream",
            Self::Zstd => "zstd stream",
        }
    }
}

/// A source and the part of it that is in memory: `buffer[start..end]`, which is the parser's window.
struct Stream {
    source: Box<dyn Read + Send>,
    container: Container,
    consumed: Arc<AtomicU64>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset of `buffer[start]` in the capture.
    offset: u64,
    /// The source has reported its end.
    ended: bool,
    /// A chunk has records, in front of `start`, which must stay where they are until [`release`](Self::release).
    is_held: bool,
    spare: SpareBuffers,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("container", &self.container)
            .field("offset", &self.offset)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

impl Stream {
    /// The next record; `None` at the end, and where a chunk that has records is full: nothing is moved while it has
    /// them, so that blocks without a packet behind them must not pile up in its buffer.
    fn find(
        &mut self,
        parser: &mut Parser,
        ended: &mut bool,
    ) -> Result<Option<RecordRef>, ReadError> {
        loop {
            match parser.step(&self.buffer[self.start..self.end]) {
                Ok(Step::Record { mut record, advance }) => {
                    record.offset += self.start;
                    self.advance(advance);
                    return Ok(Some(record));
                }
                Ok(Step::Skip { advance }) => {
                    self.advance(advance);
                    if self.is_held && self.start >= CHUNK_BYTES_MAX {
                        return Ok(None);
                    }
                }
                Ok(Step::Need { bytes, what }) => {
                    if self.is_held && self.start + bytes > BLOCK_BYTES_MAX as usize {
                        return Ok(None);
                    }
                    if let Err(source) = self.fill(bytes) {
                        *ended = true;
                        return Err(ReadError::Io {
                            container: self.container.name(),
                            offset: self.offset + (self.end - self.start) as u64,
                            source,
                            records: parser.counts().records,
                        });
                    }
                    let window = &self.buffer[self.start..self.end];
                    if window.len() < bytes {
                        *ended = true;
                        return end_of_file(parser, window, self.offset, bytes, what)
                            .map(|()| None);
                    }
                }
                Err(reason) => {
                    *ended = true;
                    return Err(ReadError::of_format(parser.records(), self.offset, reason));
                }
            }
        }
    }

    fn advance(&mut self, bytes: usize) {
        self.start += bytes;
        self.offset += bytes as u64;
    }

    /// Moves the window to the beginning of the buffer.
    fn compact(&mut self) {
        if self.start == 0 {
            return;
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
    }

    /// Gives the buffer away, and goes on with the window in another one.
    fn release(&mut self) -> Vec<u8> {
        self.is_held = false;
        let mut next = self.spare.take();
        let window = &self.buffer[self.start..self.end];
        if next.len() < window.len().max(BUFFER_BYTES) {
            next.resize(window.len().next_power_of_two().max(BUFFER_BYTES), 0);
        }
        next[..window.len()].copy_from_slice(window);
        (self.start, self.end) = (0, window.len());
        mem::replace(&mut self.buffer, next)
    }

    /// Reads until the window holds `bytes` or the source ends. The buffer doubles only when it is full of bytes that
    /// really arrived, so a claimed length alone never costs memory.
    fn fill(&mut self, bytes: usize) -> io::Result<()> {
        debug_assert!(bytes <= BLOCK_BYTES_MAX as usize, "the parser promises the bound");
        while self.end - self.start < bytes && !self.ended {
            if self.end == self.buffer.len() {
                if self.start > 0 && !self.is_held {
                    self.compact();
                } else {
                    self.buffer.resize(self.buffer.len() * 2, 0);
                }
            }
            // No more at a time: what a chunk does not need is copied.
            let end = self.buffer.len().min(self.end + BUFFER_BYTES);
            match self.source.read(&mut self.buffer[self.end..end]) {
                Ok(0) => self.ended = true,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Counts what passes, for [`Reader::progress`].
struct Counted<R> {
    inner: R,
    bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        // Relaxed: see `Reader::progress`.
        self.bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Layout, LinkType, Writer};

    const MIB: u64 = 1 << 20;

    fn capture(records: usize) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), Layout::Pcapng, &[LinkType::Ethernet]).unwrap();
        let link = LinkType::Ethernet;
        for _ in 0..records {
            let record = Record { ts_ns: 1, interface: 0, link, wire_len: 60, data: &[7; 60] };
            writer.write(&record).unwrap();
        }
        writer.finish().unwrap()
    }

    /// A pcapng of 64 MiB of custom blocks, each of `block_bytes`, with `record` in front of them and behind them.
    fn padded(block_bytes: u64, record: &[u8]) -> Reader {
        let length = (block_bytes as u32).to_le_bytes();
        let start = [0x0bad_cafe_u32.to_le_bytes(), length].concat();
        let mut source: Box<dyn Read + Send> =
            Box::new(Cursor::new([&capture(0), record].concat()));
        for _ in 0..64 * MIB / block_bytes {
            let body = io::repeat(0).take(block_bytes - 12);
            let block = Cursor::new(start.clone()).chain(body).chain(Cursor::new(length));
            source = Box::new(source.chain(block));
        }
        Reader::from_read(source.chain(Cursor::new(record.to_vec()))).unwrap()
    }

    #[test]
    fn blocks_without_a_packet_do_not_pile_up_in_a_chunk() {
        let record = &capture(1)[capture(0).len()..];
        for block_bytes in [MIB, 4 * MIB, 16 * MIB] {
            for (record, chunks_due) in [(record, 2), (&record[..0], 0)] {
                let mut reader = padded(block_bytes, record);
                let mut chunks = 0;
                while let Some(chunk) = reader.next_chunk(10).unwrap() {
                    chunks += 1;
                    drop(chunk);
                    let held_bytes = reader.stream.spare.take().len();
                    assert!(held_bytes <= BLOCK_BYTES_MAX as usize, "{held_bytes}");
                }
                assert_eq!(chunks, chunks_due);
                let bytes = reader.stream.buffer.len();
                assert!(bytes <= BLOCK_BYTES_MAX as usize, "{bytes}");
                assert_eq!(reader.counts().blocks_skipped, 64 * MIB / block_bytes);
            }
        }
    }
}
