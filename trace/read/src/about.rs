//! What is known of a trace and of a reading: its producer, by which clock, what was read, and why it could not be.
//! Below every reader.

use std::path::{Path, PathBuf};

use crate::event::{Damage, Producer, Thread};

/// Most damages that are reported one by one; the rest are counted in [`Read::damages_more`].
pub const DAMAGES_MAX: usize = 1_000;

/// What a trace says about itself before its events are read.
#[derive(Clone, Debug)]
pub struct About {
    /// As it was given.
    pub path: PathBuf,
    /// Its producer.
    pub producer: Producer,
    /// Name of the machine it was recorded on, where known.
    pub host: Option<String>,
    /// Further facts of the producer, in its own words: `tracer_name`, `dpdk_version`; of our own tracer `program`, and
    /// `call_inside_ns` and `call_whole_ns` if it measured what recording a call costs.
    pub env: Vec<(String, String)>,
    /// Clocks, usually one.
    pub clocks: Vec<Clock>,
    /// Files with events and their sizes in bytes.
    pub files: Vec<(PathBuf, u64)>,
    /// Exits are reported as `LeaveInnermost`, or not at all: stacks are sound only without loss.
    pub leaves_are_anonymous: bool,
    /// What a reader of figures must know of this producer, whole sentences.
    pub notes: Vec<String>,
    /// What could not be understood while opening.
    pub damages: Vec<Damage>,
}

impl About {
    pub(crate) fn new(path: &Path, producer: Producer) -> Self {
        Self {
            path: path.into(),
            producer,
            host: None,
            env: Vec::new(),
            clocks: Vec::new(),
            files: Vec::new(),
            leaves_are_anonymous: false,
            notes: Vec::new(),
            damages: Vec::new(),
        }
    }

    pub(crate) fn note(&mut self, note: &str) {
        if !self.notes.iter().any(|known| known == note) {
            self.notes.push(note.into());
        }
    }
}

/// A clock of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clock {
    /// As the producer calls it: `monotonic`, `dpdk`.
    pub name: String,
    /// Ticks in a second.
    pub frequency_hz: u64,
    /// Moment of its tick 0, ns since the Unix epoch; 0 where the producer does not tell.
    pub origin_ns: i64,
}

/// What was read.
#[derive(Clone, Debug, Default)]
pub struct Read {
    /// Records in the trace, also those that only tell about the process (statedump) and give no event.
    pub records: u64,
    /// ... of these, those that only tell.
    pub describing: u64,
    /// Events passed to the consumer.
    pub events: u64,
    /// ... of these, functions entered.
    pub entries: u64,
    /// ... and left.
    pub exits: u64,
    /// Samples passed to the consumer (`perf script`).
    pub samples: u64,
    /// Events that the producer counted as not recorded.
    pub discarded: u64,
    /// Holes reported to the consumer, counted or not.
    pub losses: u64,
    /// Time of the first event, ns since the epoch; 0 without events.
    pub from_ns: u64,
    /// Time of the last event.
    pub to_ns: u64,
    /// Threads by their number.
    pub threads: Vec<Thread>,
    /// What could not be read, at most [`DAMAGES_MAX`].
    pub damages: Vec<Damage>,
    /// Damages beyond that.
    pub damages_more: u64,
}

/// A record of a trace as it was written.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Nanoseconds since the Unix epoch.
    pub time_ns: u64,
    /// Name of the event.
    pub name: &'a str,
    /// Where it was recorded, if known.
    pub cpu: Option<u32>,
    /// Contexts and fields as babeltrace2 prints them: `{ cpu_id = 1 }, { vpid = 7 }, { addr = 0x5F }`.
    pub fields: &'a str,
}

/// Why a path could not be opened as a trace.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file system returned an error.
    #[error("cannot read {path}: {source}")]
    Io {
        /// File or directory.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
    /// Nothing there looks like a trace.
    #[error(
        "{path} is not a trace: {what}; give a directory with CTF traces (a file `metadata` and streams), \
         a file of `laneway trace record`, Chrome JSON, `uftrace dump` or `perf script` text"
    )]
    NotATrace {
        /// As it was given.
        path: PathBuf,
        /// What was found instead.
        what: String,
    },
    /// The metadata cannot be understood.
    #[error("{path}, line {line}, byte {offset}: {what}")]
    Metadata {
        /// The metadata file.
        path: PathBuf,
        /// Line of the text, from 1.
        line: u32,
        /// Offset in the text, bytes.
        offset: u64,
        /// What was found, and what was expected.
        what: String,
    },
    /// More than a limit of this reader allows.
    #[error("{path}: {what}; at most {max} are read, open a part of it")]
    TooMuch {
        /// File or directory.
        path: PathBuf,
        /// What there is too much of, with its number.
        what: String,
        /// The limit.
        max: u64,
    },
}

/// Why reading stopped. Damaged input is no reason: it is reported as [`Damage`] and read as far as it goes.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file system returned an error in the middle of reading.
    #[error("cannot read {path} at byte {offset}: {source}; events before it were delivered")]
    Io {
        /// File.
        path: PathBuf,
        /// Where in it, bytes.
        offset: u64,
        /// The error.
        source: std::io::Error,
    },
}

/// The beginning of a text that a message quotes.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(60).collect()
}
