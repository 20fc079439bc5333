//! Capture files as sources of offline extraction.
//!
//! A regular file is looked at before anything is made, so that a name that is no capture ends the
//! run with nothing left behind; it is opened again when its turn comes, because a thousand files
//! at a time are more than a process may have open. What cannot be opened twice (a pipe, standard
//! input) stays open from the start.

use crate::offline::{CHUNK_FRAMES, Chunk, OfflineFrame, Source};
use laneway_capture::LinkType;
use laneway_capture::{ReadError, Reader, ethernet, is_rereadable};
use std::collections::BTreeMap;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Link types that are counted each in [`UnreadLinks`]; frames of further ones are counted in the ledger only.
const LINK_TYPES_MAX: usize = 16;

/// Frames that could not be read as Ethernet, by link type. Clones share the counts.
#[derive(Clone, Default)]
pub(crate) struct UnreadLinks(Arc<Mutex<BTreeMap<u32, u64>>>);

impl UnreadLinks {
    /// The link types for a person, each with its frames.
    pub(crate) fn described(&self) -> Vec<(String, u64)> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let described = |(&number, &frames)| (LinkType::from_number(number).described(), frames);
        counts.iter().map(described).collect()
    }

    fn add(&self, frames: &BTreeMap<u32, u64>) {
        if frames.is_empty() {
            return;
        }
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (&number, frames) in frames {
            if counts.len() < LINK_TYPES_MAX || counts.contains_key(&number) {
                *counts.entry(number).or_default() += frames;
            }
        }
    }
}

/// One capture, read chunk by chunk.
pub(crate) struct CaptureSource {
    path: PathBuf,
    unread: UnreadLinks,
    state: State,
}

enum State {
    /// A file that begins as a capture does.
    Checked,
    /// The first record was read to look at it, and is still to be handed over.
    Begun(Box<Reader>, Option<laneway_capture::Chunk>),
    Open(Box<Reader>),
    Ended,
}

impl CaptureSource {
    /// A source for `path`; `-` is standard input. What cannot be read as Ethernet is added to `unread`.
    ///
    /// # Errors
    /// When it does not exist, cannot be read, or does not begin as a capture does.
    pub(crate) fn open(path: &Path, unread: &UnreadLinks) -> Result<CaptureSource, ReadError> {
        let mut reader = Reader::open(path)?;
        let state = match reader.next_chunk(1) {
            Err(error @ ReadError::NotUnderstood(_)) => return Err(error),
            // Damage behind the beginning costs what lies behind it, not the file.
            _ if is_rereadable(path) => State::Checked,
            Ok(first) => State::Begun(Box::new(reader), first),
            Err(error) => return Err(error),
        };
        Ok(CaptureSource { path: path.to_owned(), unread: unread.clone(), state })
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
            return Ok(first.map(|chunk| CaptureChunk(chunk, self.unread.clone())));
        }
        let State::Open(reader) = &mut self.state else { return Ok(None) };
        match reader.next_chunk(CHUNK_FRAMES) {
            Ok(chunk) => Ok(chunk.map(|chunk| CaptureChunk(chunk, self.unread.clone()))),
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
pub(crate) struct CaptureChunk(laneway_capture::Chunk, UnreadLinks);

impl Chunk for CaptureChunk {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn each(&self, show: &mut dyn FnMut(OfflineFrame<'_>)) {
        let mut scratch = Vec::new();
        let mut unread = BTreeMap::new();
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
                Err(_) => {
                    *unread.entry(record.link.number()).or_default() += 1;
                    OfflineFrame { ts_ns, wire_len, link_extra: 0, bytes: None }
                }
            });
        }
        self.1.add(&unread);
    }
}
