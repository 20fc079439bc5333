//! Files of our own tracer, as events.
//!
//! The format and its damage are the business of `laneway-tracer`; here records become events of the vocabulary all readers
//! share. A file of one thread is a stream as it is. A file of many (the kernel's view) is in order per thread only: its
//! threads are merged as they are decoded. Threads are the same in all files if process and thread number are, so that
//! what the kernel tells falls between the calls it interrupted. Files stay where they are and are read in pieces.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use laneway_tracer::{
    Happening, Happenings, InOrder, NotATrace, PointId, Shape, Task, TraceFile, What,
};

use crate::about::{About, Clock, OpenError, ReadError};
use crate::block::{Block, Source, Who};
use crate::delivery::Delivery;
use crate::event::{Damage, Event, FunctionKey, Kind, Loss};
use crate::symbols::Symbols;

pub(crate) use laneway_tracer::EXTENSION;

/// True if `start`, the first bytes of a file, are those of ours.
pub(crate) fn is(start: &[u8]) -> bool {
    start.starts_with(b"LANEWAY\0")
}

/// Those of `paths` that can be read. With `only`, nothing else is in the trace, and the first error counts.
///
/// # Errors
/// [`OpenError`] if a file cannot be read.
pub(crate) fn open(
    paths: &[PathBuf],
    only: bool,
    about: &mut About,
) -> Result<Vec<PathBuf>, OpenError> {
    let mut found = Vec::new();
    for path in paths {
        let io = |source| OpenError::Io { path: path.clone(), source };
        let file = File::open(path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        // The header is at the beginning; what follows is looked at when it is read.
        let mut start = Vec::new();
        file.take(1 << 20).read_to_end(&mut start).map_err(io)?;
        let opened = TraceFile::open(&start).map(|trace| trace.header().clone());
        match opened {
            Ok(header) => {
                about.host.get_or_insert_with(|| header.host.clone());
                let mut fact = |name: &str, value: String| {
                    let pair = (name.to_owned(), value);
                    if !about.env.contains(&pair) {
                        about.env.push(pair);
                    }
                };
                fact("program", header.program.clone());
                if header.points.iter().any(|point| point.shape == Shape::Dropped) {
                    fact("counts_drops", "yes".to_owned());
                }
                if let Some(cost) = header.calibration {
                    fact("call_inside_ns", cost.inside_ns.to_string());
                    fact("call_whole_ns", cost.whole_ns.to_string());
                }
                let clock = Clock {
                    name: "ticks".into(),
                    frequency_hz: header.ticks_per_s,
                    origin_ns: header.unix_offset_ns,
                };
                if !about.clocks.contains(&clock) {
                    about.clocks.push(clock);
                }
                about.files.push((path.clone(), length));
                found.push(path.clone());
            }
            Err(error) => about.damages.push(Damage {
                place: path.display().to_string(),
                offset: 0,
                what: format!("left out: {error}"),
            }),
        }
    }
    match about.damages.last() {
        Some(damage) if only && found.is_empty() && !paths.is_empty() => {
            Err(OpenError::NotATrace { path: about.path.clone(), what: damage.what.clone() })
        }
        _ => Ok(found),
    }
}

/// A file, checked, and where it is.
pub(crate) type Indexed<'p, 'b> = (&'p Path, TraceFile<'b>);

/// All files, checked; what is damaged is reported.
///
/// # Errors
/// [`ReadError`] if a file cannot be opened.
pub(crate) fn index_files<'p>(
    paths: &'p [PathBuf],
    delivery: &mut Delivery<'_>,
) -> Result<Vec<Indexed<'p, 'static>>, ReadError> {
    let mut opened = Vec::with_capacity(paths.len());
    for path in paths {
        let file = File::open(path).map_err(|error| unreadable(path, error))?;
        opened.push((path.as_path(), TraceFile::open_file(file)));
    }
    Ok(index(opened, delivery))
}

/// Those that are traces; what is damaged is reported.
pub(crate) fn index<'p, 'b>(
    files: Vec<(&'p Path, Result<TraceFile<'b>, NotATrace>)>,
    delivery: &mut Delivery<'_>,
) -> Vec<Indexed<'p, 'b>> {
    let mut all = Vec::with_capacity(files.len());
    for (path, file) in files {
        let mut damage = |offset, what| {
            delivery.damage(Damage { place: path.display().to_string(), offset, what });
        };
        match file {
            Ok(file) => {
                for damaged in file.damage() {
                    damage(damaged.offset, damaged.what.clone());
                }
                delivery.damages_more(file.damage_more());
                all.push((path, file));
            }
            Err(error) => damage(0, format!("left out: {error}")),
        }
    }
    // Files of many threads come first: the name that a worker gives itself is read last and stays.
    all.sort_by_key(|(_, file)| std::cmp::Reverse(file.threads().len()));
    all
}

fn unreadable(path: &Path, source: io::Error) -> ReadError {
    ReadError::Io { path: path.into(), offset: 0, source }
}

/// The files as streams.
pub(crate) fn sources<'f>(
    files: &'f [Indexed<'f, 'f>],
    symbols: &mut Symbols,
) -> Vec<Box<dyn Source + 'f>> {
    let mut all: Vec<Box<dyn Source + 'f>> = Vec::new();
    for (path, file) in files {
        let mut keys = HashMap::new();
        for point in &file.header().points {
            let key = symbols.number_function(&point.name, "");
            keys.insert(point.id, (key, symbols.number_point(&point.name)));
        }
        // For points of no table.
        let other = (
            symbols.number_function("(unknown point)", ""),
            symbols.number_point("(unknown point)"),
        );
        let named = file.tasks().iter();
        let tasks = named.map(|task| (*task, symbols.number_function(&task.name(), "task")));
        let tasks = tasks.collect();
        let place = path.display().to_string();
        let words = Words { path, place, file, keys, tasks, other, announced: false };
        if file.threads().len() <= 1 {
            all.push(Box::new(Lines { words, happenings: file.happenings() }));
        } else {
            all.push(Box::new(Lines { words, happenings: file.in_order() }));
        }
    }
    all
}

/// One file on its way to be events.
struct Lines<'f, I> {
    words: Words<'f>,
    happenings: I,
}

/// What a file's numbers mean.
struct Words<'f> {
    path: &'f Path,
    place: String,
    file: &'f TraceFile<'f>,
    keys: HashMap<PointId, (FunctionKey, u32)>,
    tasks: HashMap<Task, FunctionKey>,
    other: (FunctionKey, u32),
    announced: bool,
}

/// Happenings that can be decoded on another thread.
trait Rows: Iterator<Item = Happening> + Send {
    /// Why they ended, if not because the file did.
    fn failed(&mut self) -> Option<io::Error>;
}

impl Rows for Happenings<'_> {
    fn failed(&mut self) -> Option<io::Error> {
        Happenings::failed(self)
    }
}

impl Rows for InOrder<'_> {
    fn failed(&mut self) -> Option<io::Error> {
        InOrder::failed(self)
    }
}

impl<I: Rows> Source for Lines<'_, I> {
    fn place(&self) -> &str {
        &self.words.place
    }

    fn fill(&mut self, block: &mut Block) -> Result<(), ReadError> {
        block.clear();
        self.words.announce(block);
        while !block.full() {
            let Some(happening) = self.happenings.next() else {
                if let Some(error) = self.happenings.failed() {
                    return Err(unreadable(self.words.path, error));
                }
                block.ended = true;
                break;
            };
            if !self.words.take(&happening, block) {
                break;
            }
        }
        Ok(())
    }
}

impl Words<'_> {
    fn announce(&mut self, block: &mut Block) {
        if std::mem::replace(&mut self.announced, true) {
            return;
        }
        for (number, thread) in (0_u32..).zip(self.file.threads()) {
            let tid = (thread.tid != 0).then_some(thread.tid);
            block.threads.push((
                number,
                Who { pid: thread.pid, tid, name: thread.name.clone(), of_host: false },
            ));
        }
    }

    fn task(&self, task: Task) -> FunctionKey {
        self.tasks.get(&task).copied().unwrap_or(self.other.0)
    }

    /// False if the block ends here, because events are missing.
    fn take(&self, happening: &Happening, block: &mut Block) -> bool {
        let &Happening { thread, cpu, time_ns, what } = happening;
        let queue = self.file.threads().get(usize::from(thread)).map_or(0, |thread| thread.queue);
        let key = |point: PointId| self.keys.get(&point).unwrap_or(&self.other).0;
        block.records += 1;
        let kind = match what {
            What::Enter(point) => {
                block.entries += 1;
                Kind::Enter(key(point))
            }
            What::Leave(point) => {
                block.exits += 1;
                Kind::Leave(key(point))
            }
            What::Receive { port, asked, got } => {
                Kind::Receive { port: port.into(), queue, asked, got }
            }
            What::EmptyRun { port, polls, lasted_ns } => {
                let lasted_ns = u32::try_from(lasted_ns).unwrap_or(u32::MAX);
                let queue = port.map(|port| (u16::from(port), queue));
                Kind::EmptyRun { queue, polls, lasted_ns }
            }
            What::Dropped { port, point, packets } => Kind::Dropped {
                port: if port == u8::MAX { u16::MAX } else { port.into() },
                packets: u32::try_from(packets).unwrap_or(u32::MAX),
                reason: key(point),
            },
            What::TookOver(task) => Kind::TookOver(self.task(task)),
            What::WokenBy(task) => Kind::WokenBy(self.task(task)),
            What::Returned(value) => Kind::Returned(value),
            What::Send { port, asked, sent } => {
                Kind::Send { port: port.into(), queue, asked, sent }
            }
            What::SwitchedOut { runnable } => Kind::SwitchedOut { runnable },
            What::SwitchedIn => Kind::SwitchedIn,
            What::InterruptIn(number) => Kind::InterruptIn(number),
            What::InterruptOut(number) => Kind::InterruptOut(number),
            What::SyscallIn(number) => Kind::SyscallIn(number),
            What::SyscallOut(number) => Kind::SyscallOut(number),
            What::Signal(number) => Kind::Signal(number),
            What::Instant { point, value } => {
                Kind::Point { point: self.keys.get(&point).unwrap_or(&self.other).1, value }
            }
            What::Lost { from_ns, records } => {
                let loss = Loss {
                    from_ns,
                    to_ns: time_ns,
                    events: Some(records),
                    place: self.place.clone(),
                };
                (block.loss, block.loss_of) = (Some(loss), Some(thread.into()));
                return false;
            }
        };
        block.push(thread.into(), cpu, Event { time_ns, kind });
        true
    }
}

#[cfg(test)]
mod tests {
    use laneway_tracer::{FileWriter, Header, Record, SyncPoint, ThreadInfo, points};

    use crate::testing::{Folder, read};
    use crate::{Kind, OpenError, Producer};

    fn thread(tid: u32, name: &str) -> ThreadInfo {
        ThreadInfo { pid: 1, tid, name: name.into(), cpu: None, queue: 3 }
    }

    /// A tick is a nanosecond, and Unix time is monotonic time plus 1000.
    fn file(folder: &Folder, name: &str, threads: &[(ThreadInfo, Vec<Record>)]) {
        let header = Header { unix_offset_ns: 1000, ..Header::of_this_program() };
        let path = folder.path().join(name);
        let mut file = FileWriter::create(&path, &header, 1 << 20).expect("a new file");
        for at in [0, 1_000_000] {
            let sync = SyncPoint { ticks: at, monotonic_ns: at, realtime_ns: at + 1000 };
            file.sync(sync).expect("room");
        }
        for (thread, records) in threads {
            let number = file.thread(thread).expect("room");
            file.records(number, Some(1), 0, records).expect("room");
        }
        file.finish(0).expect("room");
    }

    fn record(delta: u32, point: laneway_tracer::PointId, small: u16, value: u64) -> Record {
        Record { delta, point, small, value }
    }

    #[test]
    fn what_the_kernel_tells_falls_between_the_calls_of_its_thread() {
        let folder = Folder::new();
        let calls = vec![
            record(100, points::SERVE, 0, 0),
            record(300, points::SERVE, 1, 0),
            record(10, points::LOST, 0, 5),
            record(10, points::SEND, 2, 7 | 6 << 16),
        ];
        file(&folder, "worker-0.lwt", &[(thread(7, "worker-0"), calls)]);
        let switches = |delta| {
            vec![record(delta, points::SWITCHED_OUT, 1, 0), record(20, points::SWITCHED_IN, 0, 0)]
        };
        let threads = [(thread(7, "comm"), switches(200)), (thread(8, "other"), switches(150))];
        file(&folder, "kernel.lwt", &threads);
        let log = read(folder.path()).expect("a trace");
        assert_eq!(log.producer, Some(Producer::Laneway));
        assert!(log.read.damages.is_empty(), "{:?}", log.read.damages);
        let of = |tid: u32| {
            let number = log
                .threads
                .iter()
                .position(|thread| thread.tid == tid)
                .expect("a thread of the log");
            let mine = log.events.iter().filter(move |event| event.0 == number);
            mine.map(|event| (event.2.time_ns, event.2.kind)).collect::<Vec<_>>()
        };
        let worker = of(7);
        let times: Vec<u64> = worker.iter().map(|event| event.0).collect();
        assert_eq!(times, [1100, 1200, 1220, 1400, 1420]);
        assert!(matches!(worker[0].1, Kind::Enter(key) if log.names[&key] == "lane.serve"));
        assert_eq!(worker[1].1, Kind::SwitchedOut { runnable: true });
        assert_eq!(worker[4].1, Kind::Send { port: 2, queue: 3, asked: 7, sent: 6 });
        assert_eq!(of(8).len(), 2);
        assert!(log.threads.iter().any(|thread| thread.name == "worker-0"));
        let (loss, threads, _) = &log.losses[0];
        assert_eq!(
            (loss.from_ns, loss.to_ns, loss.events, threads.len()),
            (1400, 1410, Some(5), 1)
        );
    }

    #[test]
    fn a_cut_file_is_read_as_far_as_it_goes_and_other_bytes_are_refused() {
        let folder = Folder::new();
        let calls = (0..100).map(|_| record(10, points::SERVE, 0, 0)).collect();
        file(&folder, "worker-0.lwt", &[(thread(7, "worker-0"), calls)]);
        let path = folder.path().join("worker-0.lwt");
        let bytes = std::fs::read(&path).expect("written above");
        for length in (0..bytes.len()).step_by(7) {
            let cut = folder.write("cut.lwt", &bytes[..length]);
            match read(&cut) {
                Ok(log) => assert!(!log.read.damages.is_empty(), "cut at {length}"),
                Err(error) => assert!(matches!(error, OpenError::NotATrace { .. }), "{error}"),
            }
        }
        assert_eq!(read(&path).expect("a trace").events.len(), 100);
    }
}
