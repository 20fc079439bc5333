//! Why reading stopped: one error for every way in, always with the place and the number of records already read.

use crate::format::error::FormatError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Reading a capture failed. Records yielded before the error are whole and correct.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file could not be opened or inspected.
    #[error("cannot open capture {}: {source}", path.display())]
    Open {
        /// The file asked for.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is no capture that this crate understands; nothing was read.
    #[error(transparent)]
    NotUnderstood(FormatError),
    /// The file ends in the middle of something.
    #[error(
        "the capture is cut short at byte {offset}: {what} needs {needed} bytes, {have} are left; \
         the {records} complete records before it were read"
    )]
    Truncated {
        /// Where the incomplete part starts, in bytes of the (decompressed) capture.
        offset: u64,
        /// What was expected there.
        what: &'static str,
        /// Bytes that it needs.
        needed: u64,
        /// Bytes that are there.
        have: u64,
        /// Complete records before it.
        records: u64,
    },
    /// The file breaks its own format.
    #[error(
        "the capture is damaged at byte {offset}: {reason}; the {records} complete records before it were read"
    )]
    Malformed {
        /// Where the offending part starts, in bytes of the (decompressed) capture.
        offset: u64,
        /// What is wrong with it.
        reason: FormatError,
        /// Complete records before it.
        records: u64,
    },
    /// The file, or its compressed stream, could not be read further.
    #[error(
        "reading the {container} stopped behind byte {offset} of the capture: {source}; \
         the {records} complete records before it were read"
    )]
    Io {
        /// `"file"`, `"gzip stream"` or `"zstd stream"`.
        container: &'static str,
        /// Bytes of the (decompressed) capture that arrived.
        offset: u64,
        /// What the system or the decompressor reported.
        source: io::Error,
        /// Complete records before it.
        records: u64,
    },
}

impl ReadError {
    #[cold]
    /// `records` were yielded before it; `None` where not even the head of the file was understood.
    pub(crate) fn of_format(records: Option<u64>, offset: u64, reason: FormatError) -> Self {
        match records {
            Some(records) => Self::Malformed { offset, reason, records },
            None => Self::NotUnderstood(reason),
        }
    }

    /// Complete records that were yielded before this error.
    pub fn records(&self) -> u64 {
        match self {
            Self::Open { .. } | Self::NotUnderstood(_) => 0,
            Self::Truncated { records, .. }
            | Self::Malformed { records, .. }
            | Self::Io { records, .. } => *records,
        }
    }
}
