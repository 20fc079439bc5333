//! Capture files as sources of offline extraction: lane `pcap`'s reader behind app `features`' trait.
//!
//! A regular file is looked at before anything is made, so that a name that is no capture ends the
//! run with nothing left behind; it is opened again when its turn comes, because a thousand files
//! at a time are more than a process may have open. What cannot be opened twice (a pipe, standard
//! input) stays open from the start.

use laneway_features::offline::{CHUNK_FRAMES, Chunk, OfflineFrame, Source};
use laneway_pcap::{ReadError, Reader, ethernet};
use std::path::{Path, PathBuf};
use std::{fs, mem};

/// One capture, read chunk by chunk.
pub(crate) struct CaptureSource {
    path: PathBuf,
    state: State,
}

enum State {
    /// A file that begins as a capture does.
    Checked,
    /// The first record was read to look at it, and is still to be handed over.
    Begun(Box<Reader>, Option<laneway_pcap::Chunk>),
    Open(Box<Reader>),
    Ended,
}

impl CaptureSource {
    /// A source for `path`; `-` is standard input.
    ///
    /// # Errors
    /// When it does not exist, cannot be read, or does not begin as a capture does.
    pub(crate) fn open(path: &Path) -> Result<CaptureSource, ReadError> {
        let is_file = path != Path::new("-") && fs::metadata(path).is_ok_and(|m| m.is_file());
        let mut reader = Reader::open(path)?;
        let state = match reader.next_chunk(1) {
            Err(error @ ReadError::NotUnderstood(_)) => return Err(error),
            // Damage behind the beginning costs what lies behind it, not the file.
            _ if is_file => State::Checked,
            Ok(first) => State::Begun(Box::new(reader), first),
            Err(error) => return Err(error),
        };
        Ok(CaptureSource { path: path.to_owned(), state })
    }

    /// The file, as it was named.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn fail(&mut self, error: &ReadError) -> String {
        self.state = State::Ended;
        match error {
            ReadError::Open { .. } => error.to_string(),
            _ => format!("{}: {error}", self.path.display()),
        }
    }
}

impl Source for CaptureSource {
    type Chunk = CaptureChunk;

    fn next_chunk(&mut self) -> Result<Option<CaptureChunk>, String> {
        if let State::Checked = self.state {
            match Reader::open(&self.path) {
                Ok(reader) => self.state = State::Open(Box::new(reader)),
                Err(error) => return Err(self.fail(&error)),
            }
        }
        if let State::Begun(..) = self.state
            && let State::Begun(reader, first) = mem::replace(&mut self.state, State::Ended)
        {
            self.state = State::Open(reader);
            return Ok(first.map(CaptureChunk));
        }
        let State::Open(reader) = &mut self.state else { return Ok(None) };
        match reader.next_chunk(CHUNK_FRAMES) {
            Ok(chunk) => Ok(chunk.map(CaptureChunk)),
            Err(error) => Err(self.fail(&error)),
        }
    }

    fn progress(&self) -> (u64, Option<u64>) {
        match &self.state {
            State::Begun(reader, _) | State::Open(reader) => {
                let progress = reader.progress();
                (progress.bytes_done, progress.bytes_total)
            }
            State::Checked | State::Ended => (0, None),
        }
    }
}

/// Consecutive records of a capture.
pub(crate) struct CaptureChunk(laneway_pcap::Chunk);

impl Chunk for CaptureChunk {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn each(&self, show: &mut dyn FnMut(OfflineFrame<'_>)) {
        let mut scratch = Vec::new();
        for (record, has_time) in self.0.records().zip(self.0.have_time()) {
            let ts_ns = has_time.then_some(record.ts_ns);
            let (wire_len, captured) = (record.wire_len, record.data.len());
            show(match ethernet(&record, &mut scratch) {
                Ok(frame) => OfflineFrame {
                    ts_ns,
                    wire_len: frame.wire_len,
                    // Each is at most some hundred thousand bytes.
                    link_extra: captured as i32 - frame.data.len() as i32,
                    bytes: Some(frame.data),
                },
                Err(_) => OfflineFrame { ts_ns, wire_len, link_extra: 0, bytes: None },
            });
        }
    }
}
