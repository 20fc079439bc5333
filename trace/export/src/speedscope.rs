//! Speedscope's evented JSON: one file per thread, further files where one would grow beyond what its page can hold.
//!
//! Frames are shared by all events of a file and written once, at its end; the order of keys in JSON means nothing, so
//! a file is written in one pass. Where a file ends, open calls are closed in it and opened again in the next.

#[cfg(test)]
mod format;

use crate::names::{Interned, Names};
use crate::nest::{CallFrame, Calls, Ended, LeftOut};
use crate::output::{ExportError, Output, Written};
use laneway_trace_read::{Kind, Loss, Thread, ThreadId};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Bytes of one file: the page of speedscope dies at a few times as many.
pub const SPEEDSCOPE_BYTES_MAX: u64 = 48_000_000;
/// Threads of one export; each has a file open.
pub const SPEEDSCOPE_THREADS_MAX: usize = 64;
/// Files per thread; what would come after is left out.
pub const SPEEDSCOPE_FILES_MAX: u64 = 64;
/// As the format recommends: name@version.
const EXPORTER: &str = concat!("laneway@", env!("CARGO_PKG_VERSION"));
/// Room kept for closing a file: open calls, names, totals.
const CLOSING_SHARE: u64 = 8;

/// Which file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// Name of the thread, as the producer knows it: not fit for a file name.
    pub name: &'a str,
    /// Number of the thread in the trace.
    pub thread: ThreadId,
    /// Number of the file of this thread, from 1.
    pub part: u64,
}

/// Where files are kept.
pub trait Files {
    /// A file being written.
    type To: Write;

    /// Begins a file.
    ///
    /// # Errors
    /// Why there is none.
    fn open(&mut self, part: &Part<'_>) -> io::Result<Self::To>;

    /// Takes back a file that is complete.
    ///
    /// # Errors
    /// Why it cannot be kept.
    fn close(&mut self, to: Self::To) -> io::Result<()>;
}

/// Writes speedscope files.
pub struct Speedscope<'n, F: Files> {
    kept: F,
    names: &'n dyn Names,
    bytes_max: u64,
    threads: BTreeMap<ThreadId, File<F::To>>,
    /// Threads beyond the limit.
    too_many: usize,
    calls: u64,
    bytes: u64,
    files: u64,
    error: Option<io::Error>,
}

struct File<W> {
    thread: String,
    part: u64,
    out: Option<Output<W>>,
    frames: Interned,
    frame_names: Vec<String>,
    open: Vec<CallFrame>,
    start_ns: u64,
    last_ns: u64,
    is_first: bool,
}

impl<'n, F: Files> Speedscope<'n, F> {
    /// Writes what it receives to files of `kept`.
    pub fn new(kept: F, names: &'n dyn Names) -> Self {
        Speedscope {
            kept,
            names,
            bytes_max: SPEEDSCOPE_BYTES_MAX,
            threads: BTreeMap::new(),
            too_many: 0,
            calls: 0,
            bytes: 0,
            files: 0,
            error: None,
        }
    }

    /// Makes files of at most `bytes_max` bytes in place of [`SPEEDSCOPE_BYTES_MAX`].
    #[must_use]
    pub fn with_bytes_max(mut self, bytes_max: u64) -> Self {
        self.bytes_max = bytes_max;
        self
    }

    /// Ends all files.
    ///
    /// # Errors
    /// The first thing that could not be written, or more threads than [`SPEEDSCOPE_THREADS_MAX`].
    pub fn finish(mut self, left_out: LeftOut) -> Result<Written, ExportError> {
        for file in self.threads.values_mut() {
            match file.end(&left_out.words(), &mut self.kept) {
                Ok(bytes) => self.bytes += bytes,
                Err(error) => {
                    self.error.get_or_insert(error);
                }
            }
        }
        if let Some(error) = self.error {
            return Err(error.into());
        }
        if self.too_many > 0 {
            return Err(ExportError::TooManyThreads {
                threads: self.threads.len() + self.too_many,
                max: SPEEDSCOPE_THREADS_MAX,
                format: "speedscope",
            });
        }
        Ok(Written { calls: self.calls, bytes: self.bytes, files: self.files, left_out })
    }

    /// Makes sure that a file with room is open for the thread.
    fn file(&mut self, id: ThreadId, time_ns: u64) -> Option<&mut File<F::To>> {
        let Speedscope { kept, names, bytes_max, threads, bytes, files, error, .. } = self;
        let file = threads.get_mut(&id)?;
        let room = *bytes_max - *bytes_max / CLOSING_SHARE;
        if file.out.as_ref().is_some_and(|out| out.bytes() >= room)
            && file.part < SPEEDSCOPE_FILES_MAX
        {
            match file.end("what follows is in the next file", kept) {
                Ok(ended) => *bytes += ended,
                Err(why) => *error = Some(why),
            }
        }
        if file.out.is_none() && error.is_none() {
            file.part += 1;
            let part = Part { name: &file.thread, thread: id, part: file.part };
            match kept.open(&part) {
                Ok(to) => {
                    *files += 1;
                    file.begin(Output::new(to), *names, time_ns);
                }
                Err(why) => *error = Some(why),
            }
        }
        Some(file)
    }
}

impl<W: Write> File<W> {
    fn begin(&mut self, mut out: Output<W>, names: &dyn Names, time_ns: u64) {
        out.put(b"{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"profiles\":[{\"type\":\"evented\",\"unit\":\"nanoseconds\",\"startValue\":0,\"events\":[");
        self.out = Some(out);
        (self.frames, self.frame_names) = (Interned::default(), Vec::new());
        (self.start_ns, self.last_ns, self.is_first) = (time_ns, time_ns, true);
        for at in 0..self.open.len() {
            self.event('O', time_ns, self.open[at], names);
        }
    }

    fn event(&mut self, kind: char, time_ns: u64, frame: CallFrame, names: &dyn Names) {
        let (number, fresh) = self.frames.number(names, frame);
        self.frame_names.extend(fresh);
        let Some(out) = &mut self.out else { return };
        let comma = if self.is_first { "" } else { "," };
        let at_ns = time_ns.saturating_sub(self.start_ns);
        out.put(
            format!("{comma}{{\"type\":\"{kind}\",\"at\":{at_ns},\"frame\":{number}}}").as_bytes(),
        );
        (self.is_first, self.last_ns) = (false, time_ns);
    }

    /// Closes what is open, in this file only, and ends it.
    fn end(&mut self, about: &str, kept: &mut impl Files<To = W>) -> io::Result<u64> {
        for at in (0..self.open.len()).rev() {
            let frame = self.open[at];
            // The frame was opened in this file, so its name is known.
            self.event('C', self.last_ns, frame, &Known);
        }
        let Some(mut out) = self.out.take() else { return Ok(0) };
        let frames: Vec<_> = self.frame_names.iter().map(|name| json!({ "name": name })).collect();
        let name = match self.part {
            1 => self.thread.clone(),
            part => format!("{} (part {part})", self.thread),
        };
        let exporter = match about {
            "" => EXPORTER.to_owned(),
            about => format!("{EXPORTER}; not here: {about}"),
        };
        let tail = format!(
            "],\"endValue\":{},\"name\":{}}}],\"shared\":{{\"frames\":{}}},\"exporter\":{},\"name\":{},\"activeProfileIndex\":0}}\n",
            self.last_ns - self.start_ns,
            json!(name),
            json!(frames),
            json!(exporter),
            json!(name),
        );
        out.put(tail.as_bytes());
        let (to, bytes) = out.finish()?;
        kept.close(to)?;
        Ok(bytes)
    }
}

/// Names for frames that have their number already.
struct Known;

impl Names for Known {
    fn function(&self, key: laneway_trace_read::FunctionKey) -> String {
        format!("{:#x}", key.0)
    }
}

impl<F: Files> Calls for Speedscope<'_, F> {
    fn thread(&mut self, id: ThreadId, thread: &Thread) {
        if self.threads.len() == SPEEDSCOPE_THREADS_MAX {
            self.too_many += 1;
            return;
        }
        let name = if thread.name.is_empty() { "thread" } else { &thread.name };
        let file = File {
            thread: format!("{name} {}", thread.tid),
            part: 0,
            out: None,
            frames: Interned::default(),
            frame_names: Vec::new(),
            open: Vec::new(),
            start_ns: 0,
            last_ns: 0,
            is_first: true,
        };
        self.threads.insert(id, file);
    }

    fn begin(&mut self, thread: ThreadId, time_ns: u64, frame: CallFrame) {
        let names = self.names;
        let Some(file) = self.file(thread, time_ns) else { return };
        file.event('O', time_ns, frame, names);
        file.open.push(frame);
        self.calls += 1;
    }

    fn end(&mut self, thread: ThreadId, ended: &Ended) {
        let names = self.names;
        let Some(file) = self.file(thread, ended.ended_ns) else { return };
        file.event('C', ended.ended_ns, ended.frame, names);
        file.open.pop();
    }

    fn moment(&mut self, _: ThreadId, _: u64, _: &Kind) {}

    fn lost(&mut self, _: ThreadId, _: u64, _: &Loss) {}

    fn is_full(&self) -> bool {
        let all_files = |file: &File<F::To>| {
            file.part >= SPEEDSCOPE_FILES_MAX
                && file.out.as_ref().is_some_and(|out| out.bytes() >= self.bytes_max / 2)
        };
        self.error.is_some() || self.threads.values().any(all_files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use crate::nest::{Nest, Selection};
    use laneway_trace_read::{Consumer, Event, FunctionKey};
    use serde_json::Value;
    use std::cell::RefCell;
    use std::rc::Rc;

    /// Keeps files in memory; those that were closed.
    #[derive(Default)]
    struct Memory(Rc<RefCell<Vec<Vec<u8>>>>);

    impl Files for Memory {
        type To = Vec<u8>;
        fn open(&mut self, _: &Part<'_>) -> io::Result<Vec<u8>> {
            Ok(Vec::new())
        }
        fn close(&mut self, to: Vec<u8>) -> io::Result<()> {
            self.0.borrow_mut().push(to);
            Ok(())
        }
    }

    fn exported(bytes_max: u64, tell: impl Fn(&mut dyn Consumer)) -> (Vec<Value>, Written) {
        let files = Rc::default();
        let memory = Memory(Rc::clone(&files));
        let speedscope = Speedscope::new(memory, &example::Hostile).with_bytes_max(bytes_max);
        let mut nest = Nest::new(speedscope, Selection::default());
        tell(&mut nest);
        let (speedscope, left_out) = nest.finish();
        let written = speedscope.finish(left_out).unwrap();
        let files = files.borrow();
        assert_eq!(written.bytes, files.iter().map(|file| file.len() as u64).sum::<u64>());
        assert_eq!(written.files, files.len() as u64);
        assert!(files.iter().all(|file| file.len() as u64 <= bytes_max));
        (files.iter().map(|file| serde_json::from_slice(file).expect("JSON")).collect(), written)
    }

    /// The file is one of speedscope's, and ends with its last event; says how many calls are opened in it.
    fn check(file: &Value) -> usize {
        assert_eq!(format::check(file), Ok(()));
        let profile = &file["profiles"][0];
        let events = profile["events"].as_array().unwrap();
        let end = events.last().map(|last| &last["at"]);
        assert_eq!(profile["endValue"].as_u64(), end.map_or(Some(0), Value::as_u64));
        events.iter().filter(|event| event["type"] == "O").count()
    }

    #[test]
    fn a_file_that_breaks_the_format_is_reported() {
        let (files, _) = exported(SPEEDSCOPE_BYTES_MAX, |consumer| example::trace(consumer));
        let broken: [(&str, Value, &str); 12] = [
            ("/$schema", json!("https://example.org"), "$schema is"),
            ("/shared", json!({}), "shared has no frames"),
            ("/shared/frames/0", json!({ "name": 1 }), "frame.name is no string"),
            ("/shared/frames", json!([]), "frame 0 of 0"),
            ("/profiles", json!([]), "there is no profile"),
            ("/profiles/0/type", json!("sampled"), "profile.type is"),
            ("/profiles/0/unit", json!("ns"), "profile.unit is"),
            ("/profiles/0/startValue", json!(1u64 << 60), "startValue is"),
            ("/profiles/0/endValue", json!(1), "the end is 1"),
            ("/profiles/0/events/0/type", json!("C"), "is closed while"),
            ("/profiles/0/events/0/at", json!(-1), "event.at is"),
            ("/activeProfileIndex", json!(1), "activeProfileIndex is 1 of 1"),
        ];
        for (place, value, reason) in broken {
            let mut file = files[0].clone();
            *file.pointer_mut(place).expect("it is there") = value;
            let error = format::check(&file).expect_err(place);
            assert!(error.contains(reason), "{place}: {error}");
        }
        let mut file = files[0].clone();
        file["version"] = json!("0.1");
        let error = format::check(&file).expect_err("no such key");
        assert!(error.contains("file has version"), "{error}");
    }

    #[test]
    fn each_thread_is_a_file_with_each_name_once() {
        let (files, written) = exported(SPEEDSCOPE_BYTES_MAX, |consumer| example::trace(consumer));
        assert_eq!((files.len(), written.files), (2, 2));
        assert_eq!(files.iter().map(check).sum::<usize>() as u64, written.calls);
        let frames = files[0]["shared"]["frames"].as_array().unwrap();
        assert_eq!(frames.len(), 3);
        assert!(frames.iter().any(|frame| frame["name"] == example::HOSTILE_NAME));
    }

    #[test]
    fn a_long_thread_becomes_several_files_that_each_nest() {
        let (files, written) = exported(4_000, |consumer| {
            let thread = Thread { pid: 1, tid: 1, name: "w".to_owned() };
            consumer.thread(ThreadId(0), &thread);
            let at = |time_ns, kind| Event { time_ns, kind };
            let mut events = vec![at(1_000, Kind::Enter(FunctionKey(9)))];
            for call in 0..300 {
                events.push(at(1_001 + 10 * call, Kind::Enter(FunctionKey(1))));
                events.push(at(1_003 + 10 * call, Kind::Leave(FunctionKey(1))));
            }
            events.push(at(9_000, Kind::Leave(FunctionKey(9))));
            consumer.events(ThreadId(0), None, &events);
        });
        assert!(files.len() > 3, "{}", files.len());
        let opened: usize = files.iter().map(check).sum();
        assert_eq!(written.calls, 301);
        // The outer call is opened again in each file.
        assert!(opened >= 300 + files.len(), "{opened}");
        assert!(
            files.iter().all(|file| file["exporter"].as_str().unwrap().starts_with("laneway@"))
        );
    }
}
