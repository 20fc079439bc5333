//! A trace as a person names it: a path.
//!
//! [`Trace::open`] finds out the producer of what lies there and reads what tells about it (layouts, clocks, files);
//! [`Trace::read`] passes the events to a [`Consumer`]; [`Trace::symbols`] then names what the events carry as numbers.
//! Opening reads little; reading streams in bounded memory and decodes ahead on other cores; a trace can be read again.

use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};

use crate::about::{About, Clock, OpenError, Read, ReadError, Record, shortened};
use crate::block::Source;
use crate::delivery::Delivery;
use crate::event::{Consumer, Producer};
use crate::pairs::CallPair;
use crate::symbols::Symbols;
use crate::{chrome, ctf, merge, own, perf, uftrace};

/// Bytes by which a file is recognised.
const START_BYTES: u64 = 4096;

/// A trace that was recognised and can be read.
#[derive(Debug)]
pub struct Trace {
    about: About,
    input: Input,
    symbols: Symbols,
}

/// What reads it.
#[derive(Debug)]
enum Input {
    /// CTF traces and files of our own tracer, on one axis of time.
    Streams {
        ctf: Option<ctf::Session>,
        own: Vec<PathBuf>,
    },
    Chrome,
    Uftrace,
    Perf,
}

/// The file by which a directory is one of CTF.
const METADATA: &str = "metadata";
/// Deepest directory below the one that was given.
const DEPTH_MAX: u32 = 12;
/// Most files and directories looked at.
const ENTRIES_MAX: u64 = 100_000;

/// What lies in a directory and below.
#[derive(Default)]
struct Found {
    /// Directories with a file `metadata`.
    ctf: Vec<PathBuf>,
    /// Files of our own tracer.
    own: Vec<PathBuf>,
    entries: u64,
}

impl Found {
    fn look(&mut self, path: &Path, depth: u32) -> Result<(), OpenError> {
        if path.join(METADATA).is_file() {
            self.ctf.push(path.to_path_buf());
            return Ok(());
        }
        if depth == DEPTH_MAX {
            return Ok(());
        }
        let io = |source| OpenError::Io { path: path.into(), source };
        let entries: Result<Vec<_>, _> = std::fs::read_dir(path).map_err(io)?.collect();
        let mut entries = entries.map_err(io)?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        self.entries += entries.len() as u64;
        if self.entries > ENTRIES_MAX {
            let what = "files and directories in it and below".into();
            return Err(OpenError::TooMuch { path: path.into(), what, max: ENTRIES_MAX });
        }
        for entry in entries {
            // Links are not followed: they may lead round in a circle.
            let kind = entry.file_type().map_err(io)?;
            if kind.is_dir() {
                self.look(&entry.path(), depth + 1)?;
            } else if kind.is_file() && is_own(&entry.path()) {
                self.own.push(entry.path());
            }
        }
        Ok(())
    }
}

fn is_own(file: &Path) -> bool {
    file.extension().is_some_and(|end| end == own::EXTENSION)
}

/// True for a file that is read as part of a directory which holds it, at any depth, when that is opened as a trace.
pub fn is_part(file: &Path) -> bool {
    is_own(file) || file.parent().is_some_and(|folder| folder.join(METADATA).is_file())
}

/// A text that is read from its beginning to its end.
fn open(path: &Path) -> Result<BufReader<File>, ReadError> {
    let io = |source| ReadError::Io { path: path.into(), offset: 0, source };
    Ok(BufReader::new(File::open(path).map_err(io)?))
}

impl Trace {
    /// Recognises and opens what lies at `path`: a directory that contains CTF traces at any depth, or a file of one of
    /// the other producers.
    ///
    /// # Errors
    /// [`OpenError`] if nothing there is a trace, or its metadata cannot be understood.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_with(path, &[])
    }

    /// As [`open`](Self::open); two events of CTF that are one of these `calls` are read as a call.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(path: impl AsRef<Path>, calls: &[CallPair]) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let mut symbols = Symbols::default();
        symbols.calls = calls.to_vec();
        let io = |source| OpenError::Io { path: path.into(), source };
        let kind = std::fs::metadata(path).map_err(io)?;
        if kind.is_dir() {
            let mut found = Found::default();
            found.look(path, 0)?;
            let ctf = ctf::open(path, &found.ctf, &mut symbols)?;
            let (session, mut about) = match ctf {
                Some((session, about)) => (Some(session), about),
                None => (None, About::new(path, Producer::Laneway)),
            };
            let own = own::open(&found.own, session.is_none(), &mut about)?;
            if session.is_some() || !own.is_empty() {
                return Ok(Self { about, input: Input::Streams { ctf: session, own }, symbols });
            }
            let what = if path.join("task.txt").is_file() && path.join("info").is_file() {
                "it is data of uftrace; write `uftrace dump -d DIR > dump.txt` and give that file"
                    .into()
            } else {
                "no file `metadata` lies in it or below".into()
            };
            return Err(OpenError::NotATrace { path: path.into(), what });
        }
        if path.file_name().is_some_and(|name| name == METADATA)
            && let Some(folder) = path.parent()
        {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            return Self::open_with(folder, calls);
        }
        let mut start = Vec::new();
        let file = File::open(path).map_err(io)?;
        file.take(START_BYTES).read_to_end(&mut start).map_err(io)?;
        if own::is(&start) {
            let mut about = About::new(path, Producer::Laneway);
            let own = own::open(&[path.to_path_buf()], true, &mut about)?;
            return Ok(Self { about, input: Input::Streams { ctf: None, own }, symbols });
        }
        let (producer, input) = if chrome::is(&start) {
            (Producer::Chrome, Input::Chrome)
        } else if uftrace::is(&start) {
            (Producer::Uftrace, Input::Uftrace)
        } else if perf::is(&start) {
            (Producer::Perf, Input::Perf)
        } else {
            let shown = shortened(&String::from_utf8_lossy(&start));
            let what = format!("it begins with {shown:?}, which no producer writes");
            return Err(OpenError::NotATrace { path: path.into(), what });
        };
        let mut about = About::new(path, producer);
        about.files.push((path.into(), kind.len()));
        about.note("times count from a moment that this format does not tell, not from 1970");
        if producer == Producer::Perf {
            about.note("samples of stacks: no calls, no durations");
        }
        about.clocks.push(Clock {
            name: if producer == Producer::Chrome { "unknown" } else { "monotonic" }.into(),
            frequency_hz: 1_000_000_000,
            origin_ns: 0,
        });
        Ok(Self { about, input, symbols })
    }

    /// What the trace says about itself.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Passes all events to `consumer`: per thread in time order, in batches of up to some thousand; decoding goes on
    /// on other cores meanwhile, a few batches ahead. The consumer is called on this thread only. May be called again.
    ///
    /// # Errors
    /// [`ReadError`] if the file system fails. Damaged input is reported in [`Read::damages`] instead.
    pub fn read(&mut self, consumer: &mut dyn Consumer) -> Result<Read, ReadError> {
        let path = &self.about.path;
        let mut delivery = Delivery::new(consumer);
        match &self.input {
            Input::Streams { ctf, own } => {
                let files = own::index_files(own, &mut delivery)?;
                let mut sources: Vec<Box<dyn Source + '_>> = Vec::new();
                if let Some(session) = ctf {
                    sources.extend(session.sources()?);
                }
                sources.extend(own::sources(&files, &mut self.symbols));
                merge::read(sources, &mut delivery, &mut self.symbols)?;
            }
            Input::Chrome => chrome::read(open(path)?, path, &mut delivery, &mut self.symbols)?,
            Input::Uftrace => uftrace::read(open(path)?, path, &mut delivery, &mut self.symbols)?,
            Input::Perf => perf::read(open(path)?, path, &mut delivery, &mut self.symbols)?,
        }
        Ok(delivery.finish())
    }

    /// Shows every record with all its fields, in the order of time, slowly: for a reader who looks closely, and for
    /// comparing with another reader. Only traces in CTF have records; for others nothing is shown.
    ///
    /// # Errors
    /// [`ReadError`] if the file system fails.
    pub fn records(&self, each: &mut dyn FnMut(&Record<'_>)) -> Result<(), ReadError> {
        match &self.input {
            Input::Streams { ctf: Some(session), .. } => session.records(each),
            Input::Streams { ctf: None, .. } | Input::Chrome | Input::Uftrace | Input::Perf => {
                Ok(())
            }
        }
    }

    /// Names of functions, points and pools; complete after [`Trace::read`].
    pub fn symbols(&self) -> &Symbols {
        &self.symbols
    }

    /// ... to add a listing of symbols to.
    pub fn symbols_mut(&mut self) -> &mut Symbols {
        &mut self.symbols
    }
}
