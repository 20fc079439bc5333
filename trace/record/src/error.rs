//! Why a recording could not be made, as sentences.

use laneway_bpf::BpfError;
use laneway_core::LaneError;
use laneway_tracer::TraceError;
use std::{io, path::PathBuf};

/// A recording could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A foreign program is not installed.
    #[error("`{program}` is not installed; apt-get install {package}")]
    Missing {
        /// The program or library.
        program: &'static str,
        /// Debian's package.
        package: &'static str,
    },
    /// A foreign program failed.
    #[error("`{command}` failed ({status}): {printed}")]
    Refused {
        /// What was run.
        command: String,
        /// How it ended.
        status: String,
        /// The end of its output.
        printed: String,
    },
    /// A foreign program did not get ready.
    #[error("`{program}` is not ready after {seconds} s: {printed}")]
    NotReady {
        /// Which.
        program: &'static str,
        /// How long it was waited for.
        seconds: u64,
        /// Its output.
        printed: String,
    },
    /// The command could not be started.
    #[error(
        "cannot run `{command}`: {source}; name an executable, with its path if it is not in PATH"
    )]
    Command {
        /// What should run.
        command: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// There is nothing to run.
    #[error("no command was given; write it behind `--`")]
    NoCommand,
    /// The plain way is for our own program.
    #[error(
        "`{command}` is not `laneway run`, so it cannot trace itself; add --lttng (instrumented with \
         -finstrument-functions), --dpdk PATTERN, or --kernel"
    )]
    NotOurs {
        /// What should run.
        command: String,
    },
    /// The output folder has something in it: two recordings would be read as one.
    #[error("`{}` is not empty; name another folder, or remove it", path.display())]
    Taken {
        /// The folder.
        path: PathBuf,
    },
    /// A folder or file could not be made or read.
    #[error("cannot {doing} `{}`: {source}", path.display())]
    File {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A thread could not be started.
    #[error("cannot start a thread: {0}; raise `ulimit -u`")]
    Thread(io::Error),
    /// The kernel join could not be attached.
    #[error("the kernel join: {0}")]
    Kernel(#[from] BpfError),
    /// The kernel join's maps could not be read.
    #[error("the kernel join: {0}")]
    Maps(#[from] LaneError),
    /// A trace could not be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
}
