//! What can go wrong, one variant per cause a caller can act on.
//!
//! Each sentence carries the value that failed and what to try. Tools we run keep their command line and their own
//! words, because those are what a person needs at 3 a.m.

use std::io;
use std::path::PathBuf;

/// Why a namespace, a link or a setting could not be made or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The process may not make namespaces.
    #[error("cannot create a network namespace: {missing}; run as root")]
    Unprivileged {
        /// What is missing, as a phrase.
        missing: String,
    },
    /// A program this crate runs is not installed.
    #[error("cannot run `{program}`: not found in PATH; install the package {package}")]
    ToolMissing {
        /// The program's name.
        program: &'static str,
        /// The Debian package that carries it.
        package: &'static str,
    },
    /// A program this crate runs refused.
    #[error("`{command}` failed ({status}): {stderr}")]
    Tool {
        /// The whole command line.
        command: String,
        /// Exit status in words.
        status: String,
        /// What it printed on standard error, trimmed.
        stderr: String,
    },
    /// A system call on a path failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Path {
        /// What was tried, as a verb phrase.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A system call without a path failed.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried, as a verb phrase.
        action: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A name that the kernel cannot carry.
    #[error("bad {what} `{name}`: {rule}")]
    BadName {
        /// Which kind of name.
        what: &'static str,
        /// The name given.
        name: String,
        /// What a good one looks like.
        rule: &'static str,
    },
    /// A number outside its limit.
    #[error("{what} {value} is out of range: {min} to {max}")]
    OutOfRange {
        /// Which setting.
        what: &'static str,
        /// The value given.
        value: u64,
        /// Smallest allowed.
        min: u64,
        /// Largest allowed.
        max: u64,
    },
    /// Settings that exclude each other.
    #[error("{0}")]
    Conflict(&'static str),
    /// The link did not come up.
    #[error("interface {interface} is `{state}` after {waited_ms} ms, not `up`; is its peer up?")]
    NoCarrier {
        /// Which interface.
        interface: String,
        /// Its operstate.
        state: String,
        /// How long it was polled, milliseconds.
        waited_ms: u64,
    },
    /// A setting did not take.
    #[error(
        "{setting} of {interface} is `{got}` although `{asked}` was set; the driver does not allow it here"
    )]
    NotApplied {
        /// Which setting.
        setting: String,
        /// Of which interface (or thread).
        interface: String,
        /// The value set.
        asked: String,
        /// The value read back.
        got: String,
    },
    /// NAPI is not running, so it has no threads.
    #[error(
        "{interface} has no NAPI to run in a thread; bring it up, and turn GRO on or attach an XDP program first"
    )]
    NoNapi {
        /// Which interface.
        interface: String,
    },
    /// Threads were expected but not found.
    #[error(
        "found {found} NAPI threads for {interface}, expected {expected}, within {waited_ms} ms of turning them on"
    )]
    NapiThreads {
        /// Which interface.
        interface: String,
        /// How many belong to it for certain.
        found: usize,
        /// One per receive queue.
        expected: usize,
        /// How long they were awaited, milliseconds.
        waited_ms: u64,
    },
    /// Output of the kernel or a tool that this crate cannot read.
    #[error("cannot read the {what}: unexpected `{text}`")]
    Unreadable {
        /// What was being read.
        what: &'static str,
        /// The part that made no sense, shortened.
        text: String,
    },
}

impl Error {
    pub(crate) fn path(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Error {
        let path = path.into();
        move |source| Error::Path { action, path, source }
    }

    pub(crate) fn system<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> Error {
        move |source| Error::System { action, source: source.into() }
    }

    pub(crate) fn unreadable(what: &'static str, text: &str) -> Error {
        const SHOWN_CHARS_MAX: usize = 80;
        Error::Unreadable { what, text: text.trim().chars().take(SHOWN_CHARS_MAX).collect() }
    }
}
