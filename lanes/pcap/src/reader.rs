//! Reads a capture from a file, a pipe or any `Read`, whatever it is compressed with.
//!
//! A plain regular file is mapped: records borrow from the map, nothing is copied. Everything else (gzip, zstd, pipes,
//! standard input, special files) flows through one buffer of bounded size. What a file is, is told by its first bytes,
//! never by its name.
//!
//! What must always hold: records come in file order; an error comes after all complete records before it, once, and
//! then the reader has ended; memory stays below [`crate::format::BLOCK_BYTES_MAX`] for the buffer plus the
//! decompressor's window, whatever the file says.
//!
//! What it does not do: follow a file that is still growing. The map covers the file as it was when opened. A file that
//! another program may *shorten* meanwhile must be read with [`Reader::open_buffered`]: touching a mapped page that no
//! longer exists ends the process with SIGBUS, which no check beforehand can rule out.

use crate::chunk::{CHUNK_BYTES_MAX, CHUNK_RECORDS_MAX, Chunk, ChunkBytes};
use crate::error::ReadError;
use crate::format::{
    BLOCK_BYTES_MAX, Interface, Parser, ReadCounts, Record, RecordRef, Step, end_of_file,
    next_in_slice,
};
use flate2::bufread::MultiGzDecoder;
use memmap2::{Advice, Mmap};
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::os::unix::fs::FileExt;
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
/// let mut reader = laneway_pcap::Reader::open("a.pcapng.zst")?;
/// while let Some(record) = reader.next_record()? {
///     println!("{} ns: {} bytes", record.ts_ns, record.wire_len);
/// }
/// # Ok::<(), laneway_pcap::ReadError>(())
/// ```
#[derive(Debug)]
pub struct Reader {
    parser: Parser,
    source: Source,
    bytes_total: Option<u64>,
    ended: bool,
    /// An error met while filling a chunk that already held records: it comes with the next call.
    pending: Option<ReadError>,
}

#[derive(Debug)]
enum Source {
    Map { map: Arc<Mmap>, at: usize },
    Stream(Stream),
}

impl Reader {
    /// Opens `path`; `-` is standard input. A plain regular file is mapped (see the module on files being shortened).
    ///
    /// # Errors
    /// [`ReadError::Open`] when the file cannot be opened or mapped, [`ReadError::Io`] when its first bytes cannot be
    /// read. Whether it is a capture is found out with the first record.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ReadError> {
        Self::open_how(path.as_ref(), true)
    }

    /// Opens `path` without mapping it: for files that another program may shorten while they are read.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn open_buffered(path: impl AsRef<Path>) -> Result<Self, ReadError> {
        Self::open_how(path.as_ref(), false)
    }

    fn open_how(path: &Path, may_map: bool) -> Result<Self, ReadError> {
        if path == Path::new("-") {
            return Self::from_read(io::stdin());
        }
        let failed = |source| ReadError::Open { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        // Files in /proc and the like are regular, state length 0 and yet have content: read those as streams.
        if !metadata.is_file() || metadata.len() == 0 {
            return Self::from_read(file);
        }
        let mut magic = [0; 4];
        let magic_len = file.read_at(&mut magic, 0).map_err(failed)?;
        if !may_map || Container::of(&magic[..magic_len]) != Container::Plain {
            let mut reader = Self::from_read(file)?;
            reader.bytes_total = Some(metadata.len());
            return Ok(reader);
        }
        // SAFETY: `Mmap::map` requires that the file is not modified while mapped, which no program can promise about
        // another one. What is relied on instead: the map is private to reading, each byte is plain data of which every
        // value is valid, every length read from it is checked against the map's own length (fixed here) before use,
        // and a length is loaded once per step and not again after its check. A writer that changes bytes meanwhile
        // changes what is read, and one that shortens the file raises SIGBUS, which the module documents together
        // with the way around it.
        let map = unsafe { Mmap::map(&file) }.map_err(failed)?;
        // A hint for read-ahead only; a kernel that refuses it changes nothing but the speed.
        map.advise(Advice::Sequential).ok();
        let bytes_total = Some(map.len() as u64);
        let source = Source::Map { map: Arc::new(map), at: 0 };
        Ok(Self { parser: Parser::new(), source, bytes_total, ended: false, pending: None })
    }

    /// Reads from any source, told by its first bytes to be plain, gzip or zstd.
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
        };
        Ok(Self {
            parser: Parser::new(),
            source: Source::Stream(stream),
            bytes_total: None,
            ended: false,
            pending: None,
        })
    }

    /// The next record, borrowed until the next call; `None` at the end and after an error.
    ///
    /// # Errors
    /// When the capture is cut short, damaged, unreadable, or no capture at all; every complete record before that
    /// point was yielded.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        let Some(found) = self.find()? else {
            return Ok(None);
        };
        Ok(Some(found.record(match &self.source {
            Source::Map { map, .. } => map,
            Source::Stream(stream) => &stream.buffer,
        })))
    }

    /// The next records, at most `records_max` (and [`CHUNK_RECORDS_MAX`]), as a value that another thread can own;
    /// `None` at the end. A mapped file is shared, not copied; otherwise the chunk owns a copy of its records' bytes and
    /// ends early at [`CHUNK_BYTES_MAX`].
    ///
    /// # Errors
    /// As [`Reader::next_record`]; records met before the error come first, in a chunk of their own.
    pub fn next_chunk(&mut self, records_max: usize) -> Result<Option<Chunk>, ReadError> {
        let records_max = records_max.clamp(1, CHUNK_RECORDS_MAX);
        let first_record = self.parser.counts().records;
        let mut records = Vec::with_capacity(records_max);
        let mut copied = Vec::new();
        while records.len() < records_max && copied.len() < CHUNK_BYTES_MAX {
            match self.find() {
                Ok(Some(mut found)) => {
                    if let Source::Stream(stream) = &self.source {
                        let data = found.record(&stream.buffer).data;
                        found.offset = copied.len();
                        copied.extend_from_slice(data);
                    }
                    records.push(found);
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
        let bytes = match &self.source {
            Source::Map { map, .. } => ChunkBytes::Map(Arc::clone(map)),
            Source::Stream(_) => ChunkBytes::Copy(copied),
        };
        Ok(Some(Chunk::new(bytes, records, first_record)))
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
        let bytes_done = match &self.source {
            Source::Map { at, .. } => *at as u64,
            // Relaxed: a number for a person; the counter guards nothing.
            Source::Stream(stream) => stream.consumed.load(Ordering::Relaxed),
        };
        Progress { bytes_done, bytes_total: self.bytes_total }
    }

    /// The next record's place, in the map or in the stream's buffer.
    #[inline]
    fn find(&mut self) -> Result<Option<RecordRef>, ReadError> {
        if self.ended {
            return match self.pending.take() {
                Some(error) => Err(error),
                None => Ok(None),
            };
        }
        match &mut self.source {
            Source::Map { map, at } => next_in_slice(&mut self.parser, map, at, &mut self.ended),
            Source::Stream(stream) => stream.find(&mut self.parser, &mut self.ended),
        }
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
    /// The source has said that it is at its end.
    ended: bool,
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
                Ok(Step::Skip { advance }) => self.advance(advance),
                Ok(Step::Need { bytes, what }) => {
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
                    return Err(ReadError::of_format(parser, self.offset, reason));
                }
            }
        }
    }

    fn advance(&mut self, bytes: usize) {
        self.start += bytes;
        self.offset += bytes as u64;
    }

    /// Reads until the window holds `bytes` or the source ends. The buffer doubles only when it is full of bytes that
    /// really arrived, so a claimed length alone never costs memory.
    fn fill(&mut self, bytes: usize) -> io::Result<()> {
        debug_assert!(bytes <= BLOCK_BYTES_MAX as usize, "the parser promises the bound");
        while self.end - self.start < bytes && !self.ended {
            if self.end == self.buffer.len() {
                if self.start > 0 {
                    self.buffer.copy_within(self.start..self.end, 0);
                    self.end -= self.start;
                    self.start = 0;
                } else {
                    self.buffer.resize(self.buffer.len() * 2, 0);
                }
            }
            match self.source.read(&mut self.buffer[self.end..]) {
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
