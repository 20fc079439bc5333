//! Where bytes are read from at any position: a file, or memory.
//!
//! Readers of streams read through windows and never map a file. Memory serves traces that are in no file: those of
//! tests and of the fuzzer.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// Bytes that can be read at any position.
#[derive(Debug)]
pub(crate) enum Input {
    File(File),
    Memory(Vec<u8>),
}

impl Input {
    /// As [`std::os::unix::fs::FileExt::read_at`]: 0 at the end and beyond.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Self::File(file) => file.read_at(buffer, offset),
            Self::Memory(bytes) => {
                let from = usize::try_from(offset).map_or(bytes.len(), |at| at.min(bytes.len()));
                let length = buffer.len().min(bytes.len() - from);
                buffer[..length].copy_from_slice(&bytes[from..from + length]);
                Ok(length)
            }
        }
    }
}
