//! Where an export is written: counts bytes and keeps the first error.
//!
//! Events arrive through a trait that cannot fail, so an error waits here until the end; after it nothing more is
//! written.

use crate::nest::LeftOut;
use std::io::{self, Write};

/// Why an export could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The output took no more.
    #[error("the export cannot be written: {0}; free some room or name another place")]
    Write(#[from] io::Error),
    /// There is more than one file of this format can hold.
    #[error(
        "{threads} threads are more than the {max} that one {format} export holds; choose one with --thread"
    )]
    TooManyThreads {
        /// How many the trace has.
        threads: usize,
        /// How many there may be.
        max: usize,
        /// Name of the format.
        format: &'static str,
    },
    /// A table could not be encoded.
    #[error("the {table} table cannot be encoded: {why}; export it as csv")]
    Table {
        /// Which.
        table: &'static str,
        /// What the encoder reported.
        why: String,
    },
}

/// The result of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Written {
    /// Calls that are in it.
    pub calls: u64,
    /// Bytes of all its files.
    pub bytes: u64,
    /// Files.
    pub files: u64,
    /// What is not in it.
    pub left_out: LeftOut,
}

/// Counts what goes through, and keeps the first error.
pub(crate) struct Output<W> {
    to: W,
    bytes: u64,
    error: Option<io::Error>,
}

impl<W: Write> Output<W> {
    pub(crate) fn new(to: W) -> Self {
        Output { to, bytes: 0, error: None }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.error.is_some()
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        if self.error.is_none() {
            match self.to.write_all(bytes) {
                Ok(()) => self.bytes += bytes.len() as u64,
                Err(error) => self.error = Some(error),
            }
        }
    }

    /// Flushes, and gives back what was written to and how much, or the first error.
    pub(crate) fn finish(mut self) -> Result<(W, u64), io::Error> {
        match self.error.take() {
            Some(error) => Err(error),
            None => self.to.flush().map(|()| (self.to, self.bytes)),
        }
    }
}
