//! CTF 1.8 and CTF 2, as LTTng-UST, LTTng-modules, rte_trace, barectf and babeltrace2 write them.
//!
//! A trace is a directory with a file `metadata` and one file per stream. What is opened may contain several (LTTng
//! writes one per word size, or one per process); they are read as one, in the order of their clocks.
//!
//! The way of an event: `metadata` (1.8) or `second` (2) -> [`types`] -> [`layout`] and [`plan`], once; then packet by
//! packet [`stream`] -> blocks -> `merge` -> consumer.

mod layout;
mod lexer;
mod metadata;
mod plan;
mod render;
mod second;
mod stream;
mod syscalls;
mod types;

#[cfg(test)]
pub(crate) mod tests;

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use self::syscalls::number as syscall_number;

use self::lexer::{METADATA_BYTES_MAX, Misread};
use self::plan::{Plan, Scale};
use self::render::Render;
use self::stream::{RecordHead, Stream};
use self::types::Metadata;
use crate::about::{About, Clock, OpenError, ReadError, Record};
use crate::block::{Block, Source};
use crate::event::{Damage, Producer};
use crate::input::Input;
use crate::symbols::Symbols;

/// Most stream files read as one.
const STREAMS_MAX: usize = 1024;

/// CTF traces that are read as one.
#[derive(Debug)]
pub(crate) struct Session {
    traces: Vec<CtfTrace>,
}

#[derive(Debug)]
struct CtfTrace {
    plan: Arc<Plan>,
    files: Vec<PathBuf>,
}

/// Opens the CTF traces in `directories`, found below `path`; `None` if there are none.
///
/// # Errors
/// [`OpenError`] if there are some and none can be understood.
pub(crate) fn open(
    path: &Path,
    directories: &[PathBuf],
    symbols: &mut Symbols,
) -> Result<Option<(Session, About)>, OpenError> {
    let mut session = Session { traces: Vec::new() };
    let mut about = About::new(path, Producer::Lttng);
    let mut failed = None;
    for directory in directories {
        match open_one(directory, symbols, &mut about) {
            Ok(trace) => session.traces.push(trace),
            Err(error) => {
                about.damages.push(Damage {
                    place: directory.display().to_string(),
                    offset: 0,
                    what: format!("left out: {error}"),
                });
                failed = Some(error);
            }
        }
    }
    if session.traces.is_empty() {
        return failed.map_or(Ok(None), Err);
    }
    if about.files.len() > STREAMS_MAX {
        let what = format!("{} stream files", about.files.len());
        return Err(OpenError::TooMuch { path: path.into(), what, max: STREAMS_MAX as u64 });
    }
    Ok(Some((session, about)))
}

fn open_one(
    directory: &Path,
    symbols: &mut Symbols,
    about: &mut About,
) -> Result<CtfTrace, OpenError> {
    let path = directory.join("metadata");
    let io = |source| OpenError::Io { path: path.clone(), source };
    let mut bytes = Vec::new();
    let file = File::open(&path).map_err(io)?;
    file.take(METADATA_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > METADATA_BYTES_MAX {
        let what = "bytes of metadata".into();
        return Err(OpenError::TooMuch { path, what, max: METADATA_BYTES_MAX });
    }
    let plan = understand(&path, &bytes, symbols, about)?;
    let mut files = Vec::new();
    let io = |source| OpenError::Io { path: directory.into(), source };
    for entry in fs::read_dir(directory).map_err(io)? {
        let entry = entry.map_err(io)?;
        let name = entry.file_name();
        let about = entry.metadata().map_err(io)?;
        let hidden = name.to_string_lossy().starts_with('.');
        if about.is_file() && name != "metadata" && !hidden && about.len() > 0 {
            files.push((entry.path(), about.len()));
        }
    }
    files.sort();
    about.files.extend(files.iter().cloned());
    let files = files.into_iter().map(|(path, _)| path).collect();
    Ok(CtfTrace { plan, files })
}

/// What the bytes of a metadata file say, ready for reading.
fn understand(
    path: &Path,
    bytes: &[u8],
    symbols: &mut Symbols,
    about: &mut About,
) -> Result<Arc<Plan>, OpenError> {
    let wrong = |Misread { place, what }: Misread| OpenError::Metadata {
        path: path.into(),
        line: place.line,
        offset: place.offset,
        what,
    };
    let text = lexer::text(bytes).map_err(wrong)?;
    let misread = |error: Misread| wrong(Misread { place: text.in_file(error.place), ..error });
    let second = second::is(&text.plain);
    let parsed = if second { second::parse(&text.plain) } else { metadata::parse(&text.plain) };
    let mut metadata = parsed.map_err(misread)?;
    if metadata.big_endian.is_none() {
        let what = "no `byte_order` in the block `trace`: the bytes cannot be read".into();
        return Err(misread(Misread { place: metadata.place, what }));
    }
    let plan = Plan::new(&metadata, symbols).map_err(misread)?;
    metadata.unknown.iter_mut().for_each(|unknown| unknown.place = text.in_file(unknown.place));
    describe(&metadata, path, about);
    Ok(Arc::new(plan))
}

/// A trace that is in no file: its metadata, and its streams by their number.
///
/// # Errors
/// [`OpenError`] if the metadata cannot be understood.
pub(crate) fn in_memory(
    metadata: &[u8],
    streams: Vec<Vec<u8>>,
    symbols: &mut Symbols,
) -> Result<InMemory, OpenError> {
    let path = Path::new("metadata");
    let mut about = About::new(path, Producer::Lttng);
    let plan = understand(path, metadata, symbols, &mut about)?;
    Ok(InMemory { plan, streams })
}

/// See [`in_memory`].
#[derive(Debug)]
pub(crate) struct InMemory {
    plan: Arc<Plan>,
    streams: Vec<Vec<u8>>,
}

impl InMemory {
    fn streams(&self) -> Result<Vec<Stream>, ReadError> {
        let stream = |(number, bytes): (usize, &Vec<u8>)| {
            let path = PathBuf::from(format!("stream {number}"));
            let length = bytes.len() as u64;
            Stream::new(Arc::clone(&self.plan), Input::Memory(bytes.clone()), path, length)
        };
        let mut streams: Vec<Stream> = self.streams.iter().enumerate().map(stream).collect();
        align_clocks(&mut streams)?;
        Ok(streams)
    }

    /// As [`Session::sources`].
    pub(crate) fn sources(&self) -> Result<Vec<Box<dyn Source>>, ReadError> {
        let boxed = |stream| Box::new(stream) as Box<dyn Source>;
        Ok(self.streams()?.into_iter().map(boxed).collect())
    }

    /// As [`Session::records`].
    pub(crate) fn records(&self, each: &mut dyn FnMut(&Record<'_>)) -> Result<(), ReadError> {
        show(self.streams()?, each)
    }
}

/// A clock of 48 bits may wrap between the first events of two threads.
fn align_clocks(streams: &mut [Stream]) -> Result<(), ReadError> {
    let mut first = Vec::with_capacity(streams.len());
    for stream in streams.iter_mut() {
        first.push(stream.first_ticks_48()?);
    }
    let latest = first.iter().flatten().max().copied().unwrap_or(0);
    for (stream, first) in streams.iter_mut().zip(first) {
        if first.is_some_and(|first| latest - first > 1 << 47) {
            stream.begin_at_ticks(1 << 48);
        }
    }
    Ok(())
}

/// Shows every record of `streams` in the order of time.
fn show(streams: Vec<Stream>, each: &mut dyn FnMut(&Record<'_>)) -> Result<(), ReadError> {
    let mut open = Vec::new();
    for mut stream in streams {
        let mut block = Block::default();
        let mut render = Render::default();
        let head = stream.record(&mut block, &mut render)?;
        open.push((stream, block, render, head));
    }
    loop {
        let time = |head: &Option<RecordHead>| head.as_ref().map(|head| head.time_ns);
        let next =
            open.iter_mut().filter(|(.., head)| head.is_some()).min_by_key(|(.., head)| time(head));
        let Some((stream, block, render, head)) = next else { return Ok(()) };
        if let Some(RecordHead { time_ns, name, cpu }) = head {
            each(&Record { time_ns: *time_ns, name, cpu: *cpu, fields: render.drawn() });
        }
        *head = stream.record(block, render)?;
    }
}

/// What the metadata says about the trace.
fn describe(metadata: &Metadata, path: &Path, about: &mut About) {
    let value = |name: &str| {
        metadata.env.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    };
    match value("tracer_name") {
        Some("dpdk") => {
            about.producer = Producer::Dpdk;
            about.note(
                "rte_trace keeps the newest events of each thread and does not tell how many it overwrote: \
                 a thread whose first event is late may have lost events before it",
            );
            about.note("the CPU of an event is the number of its lcore");
        }
        Some(name) if name.starts_with("lttng") => {}
        other => about.note(&format!(
            "written by {}, whose events this reader knows by name only",
            other.unwrap_or("a tracer that does not give its name")
        )),
    }
    if let Some(host) = value("hostname") {
        about.host = Some(host.into());
    }
    for pair in &metadata.env {
        if !about.env.contains(pair) {
            about.env.push(pair.clone());
        }
    }
    for clock in &metadata.clocks {
        let scale = Scale::new(clock.frequency_hz, clock.offset_s, clock.offset_ticks);
        let clock = Clock {
            name: clock.name.clone(),
            frequency_hz: clock.frequency_hz,
            origin_ns: scale.origin_ns(),
        };
        if !about.clocks.contains(&clock) {
            about.clocks.push(clock);
        }
    }
    about.leaves_are_anonymous |=
        metadata.events.iter().any(|event| event.name == "lttng_ust_cyg_profile_fast:func_exit");
    let no_thread = |stream: &types::StreamClass| stream.event_context.is_none();
    if value("domain") == Some("kernel") {
        about.note(
            "kernel trace: events belong to the thread that the last switch put on their CPU; those before the first \
             switch of a CPU or behind lost events, and those of its idle task, are left out",
        );
        about.note("kernel trace: threads are known by their number alone, and joined by it with those of other traces");
    } else if about.producer == Producer::Lttng && metadata.streams.iter().any(no_thread) {
        about.note(
            "events do not tell their thread: each CPU is shown as one thread, and stacks mix; record with \
             `lttng add-context --userspace --type=vpid --type=vtid --type=procname`",
        );
    }
    about.damages.extend(metadata.unknown.iter().take(100).map(|unknown| Damage {
        place: format!("{}, line {}", path.display(), unknown.place.line),
        offset: unknown.place.offset,
        what: unknown.what.clone(),
    }));
}

impl Session {
    fn streams(&self) -> Result<Vec<Stream>, ReadError> {
        let mut all = Vec::new();
        for trace in &self.traces {
            let mut streams = Vec::with_capacity(trace.files.len());
            for path in &trace.files {
                let io = |source| ReadError::Io { path: path.clone(), offset: 0, source };
                let file = File::open(path).map_err(io)?;
                let length = file.metadata().map_err(io)?.len();
                let file = Input::File(file);
                streams.push(Stream::new(Arc::clone(&trace.plan), file, path.clone(), length));
            }
            align_clocks(&mut streams)?;
            all.extend(streams);
        }
        Ok(all)
    }

    /// All streams, to be read.
    ///
    /// # Errors
    /// [`ReadError`] if the file system fails.
    pub(crate) fn sources(&self) -> Result<Vec<Box<dyn Source>>, ReadError> {
        let boxed = |stream| Box::new(stream) as Box<dyn Source>;
        Ok(self.streams()?.into_iter().map(boxed).collect())
    }

    /// Shows every record with all its fields, in the order of time.
    ///
    /// # Errors
    /// [`ReadError`] if the file system fails.
    pub(crate) fn records(&self, each: &mut dyn FnMut(&Record<'_>)) -> Result<(), ReadError> {
        show(self.streams()?, each)
    }
}
