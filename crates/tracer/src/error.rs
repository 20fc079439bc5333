//! Why a trace could not be written or read, as sentences.

use std::{io, path::PathBuf};

/// A trace could not be written.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A file or folder could not be made or written.
    #[error("cannot {doing} `{}`: {source}; {hint}", path.display())]
    File {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
        /// What to try.
        hint: &'static str,
    },
    /// The folder holds a trace already: two runs in one folder would be read as one.
    #[error("`{}` is there already; name another folder, or remove it", path.display())]
    Taken {
        /// The file in the way.
        path: PathBuf,
    },
    /// A limit that was asked for cannot be.
    #[error("a ring of {asked} records cannot be; use a power of two from {min} to {max}")]
    Ring {
        /// What was asked for.
        asked: usize,
        /// The smallest.
        min: usize,
        /// The largest.
        max: usize,
    },
    /// More threads than one session keeps.
    #[error("a session traces at most {max} threads, and this would be one more")]
    Threads {
        /// The limit.
        max: usize,
    },
    /// The drainer thread could not be started.
    #[error("cannot start the thread that writes the trace: {source}; raise `ulimit -u`")]
    Drainer {
        /// The kernel's answer.
        source: io::Error,
    },
}

/// These bytes are no trace of ours, or one that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotATrace {
    /// Other bytes at the start.
    #[error("no trace of laneway: it does not begin with `LANEWAY`")]
    Magic,
    /// Too short to say what it is.
    #[error("no trace of laneway: {bytes} bytes, and its head alone has {head}")]
    Short {
        /// How many there are.
        bytes: usize,
        /// How many a head has.
        head: usize,
    },
    /// A version that this program does not know.
    #[error(
        "a trace of version {version}, and this program reads {known}; use the one that wrote it"
    )]
    Version {
        /// What the file says.
        version: u16,
        /// What is read.
        known: u16,
    },
    /// Written in another byte order, or damaged in the first bytes.
    #[error(
        "byte order mark {mark:#010x} at offset 12, expected 0x01020304: damaged, or not written by laneway"
    )]
    ByteOrder {
        /// What the file says.
        mark: u32,
    },
    /// The block that names points and clocks is missing or damaged, so records mean nothing.
    #[error("its header block at offset {offset} is unreadable: {why}")]
    Header {
        /// Where it should be.
        offset: usize,
        /// What is wrong with it.
        why: String,
    },
    /// The file system failed before it was known what this is.
    #[error("it cannot be read: {why}")]
    Unreadable {
        /// The kernel's answer.
        why: String,
    },
}

impl NotATrace {
    pub(crate) fn unreadable(error: &io::Error) -> NotATrace {
        NotATrace::Unreadable { why: error.to_string() }
    }
}
