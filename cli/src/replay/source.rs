//! The frames of captures, one after the other, pass after pass.
//!
//! A regular file is looked at before anything is opened, so that a name that is no capture ends the
//! run with nothing done; it is opened again when its turn comes. What cannot be opened twice (a pipe,
//! standard input) stays open from the start and has one pass, unless it was read into memory. Memory
//! is one frame, or at most [`PRELOAD_BYTES_MAX`].
//!
//! Reading a pipe blocks the caller that asks for the next frame.

use laneway_capture::{
    Capture, CaptureError, Chunk, ETHERNET_BYTES, ReadError, Reader, Record, ethernet,
    is_read_once, is_rereadable,
};
use laneway_core::DropReason;
use std::mem;
use std::path::{Path, PathBuf};

/// Bytes of all captures together that are taken into memory.
const PRELOAD_BYTES_MAX: usize = 1 << 30;

/// Where frames come from, and the one that is to be sent next.
pub(super) struct Source {
    captures: Vec<Origin>,
    /// The one that is read, or is next.
    turn: usize,
    reading: Option<Reading>,
    /// Passes begun before this one.
    pass: u64,
    passes: Option<u64>,
    /// A pass without frames is the last: the next would be no better.
    pass_has_frames: bool,
    begins: bool,
    current: Current,
}

/// A capture, named as it was given.
struct Origin {
    path: PathBuf,
    kind: Kind,
}

enum Kind {
    /// Begins as a capture does, and can be opened when its turn comes.
    File,
    /// Read to look at it; gone once its turn has begun.
    Begun(Option<Reading>),
    Loaded(Capture),
}

enum Reading {
    /// The first record, where it was read before its turn.
    File(Box<Reader>, Option<Chunk>),
    /// Which frame of a capture in memory is next.
    Loaded(usize),
}

/// The frame that is to be sent next, and what was left out on the way to it.
#[derive(Default)]
pub(super) struct Current {
    pub(super) bytes: Vec<u8>,
    scratch: Vec<u8>,
    /// The capture's time, where it has one for the frame.
    pub(super) ts_ns: Option<u64>,
    /// Records whose link layer cannot be read as Ethernet.
    link_type_unknown: u64,
    /// Records too short for an Ethernet header.
    malformed: u64,
    /// Frames of which the capture has only the beginning, which is sent.
    pub(super) cut: u64,
}

impl Source {
    /// Looks at every capture, or takes all into memory. `passes` of `None` never ends.
    ///
    /// # Errors
    /// A sentence that names the capture.
    pub(super) fn open(
        paths: &[PathBuf],
        passes: Option<u64>,
        preload: bool,
    ) -> Result<Source, String> {
        let mut room = PRELOAD_BYTES_MAX;
        let origin = |path: &PathBuf| {
            let kind = if preload { load(path, &mut room) } else { look(path, passes) };
            kind.map(|kind| Origin { path: path.clone(), kind })
        };
        Ok(Source {
            captures: paths.iter().map(origin).collect::<Result<_, _>>()?,
            turn: 0,
            reading: None,
            pass: 0,
            passes,
            pass_has_frames: false,
            begins: true,
            current: Current::default(),
        })
    }

    /// Moves to the next frame; false when there is none.
    ///
    /// # Errors
    /// A sentence that names the capture. The frames before the damage have been given.
    pub(super) fn advance(&mut self) -> Result<bool, String> {
        loop {
            let Source { captures, turn, reading, current, .. } = self;
            let is_frame = match reading {
                None => match self.open_next()? {
                    true => continue,
                    false => return Ok(false),
                },
                Some(Reading::File(reader, first)) => {
                    let first = first.take();
                    let first =
                        first.as_ref().and_then(|it| it.records().zip(it.have_time()).next());
                    let next = first.map_or_else(|| reader.next_stamped(), |first| Ok(Some(first)));
                    match next {
                        Ok(next) => next.map(|(record, timed)| current.take_in(&record, timed)),
                        Err(error) => return Err(named(&captures[*turn].path, &error)),
                    }
                }
                Some(Reading::Loaded(next)) => {
                    let Kind::Loaded(capture) = &captures[*turn].kind else {
                        unreachable!("only a capture in memory is read from there")
                    };
                    let at = capture.index().get(*next);
                    *next += 1;
                    at.map(|at| current.take_in(&at.record(capture.bytes()), at.has_time))
                }
            };
            match is_frame {
                None => {
                    self.reading = None;
                    self.turn += 1;
                }
                Some(true) => {
                    self.pass_has_frames = true;
                    return Ok(true);
                }
                Some(false) => (),
            }
        }
    }

    /// The frame that [`advance`](Self::advance) moved to, and what was left out so far.
    pub(super) fn current(&self) -> &Current {
        &self.current
    }

    /// Its bytes to edit.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.current.bytes
    }

    /// The pass that it belongs to, from 0.
    pub(super) fn pass(&self) -> u64 {
        self.pass
    }

    /// True, once, for the first frame of a capture in a pass.
    pub(super) fn begins(&mut self) -> bool {
        mem::take(&mut self.begins)
    }

    /// Opens what comes next; false when all passes are over.
    fn open_next(&mut self) -> Result<bool, String> {
        if self.turn == self.captures.len() {
            let is_last = self.passes.is_some_and(|passes| self.pass + 1 >= passes);
            if is_last || !mem::take(&mut self.pass_has_frames) {
                return Ok(false);
            }
            self.pass += 1;
            self.turn = 0;
        }
        self.begins = true;
        let Origin { path, kind } = &mut self.captures[self.turn];
        self.reading = match kind {
            Kind::Loaded(_) => Some(Reading::Loaded(0)),
            Kind::Begun(reading) => reading.take(),
            Kind::File => {
                let reader = Reader::open(&*path).map_err(|error| named(path, &error))?;
                Some(Reading::File(Box::new(reader), None))
            }
        };
        if self.reading.is_none() {
            self.turn += 1;
        }
        Ok(true)
    }
}

impl Current {
    /// Copies a record; false, and counted, when it is no frame that can be sent.
    fn take_in(&mut self, record: &Record<'_>, has_time: bool) -> bool {
        let Ok(frame) = ethernet(record, &mut self.scratch) else {
            self.link_type_unknown += 1;
            return false;
        };
        if frame.data.len() < ETHERNET_BYTES {
            self.malformed += 1;
            return false;
        }
        self.cut += u64::from(frame.data.len() < frame.wire_len as usize);
        self.bytes.clear();
        self.bytes.extend_from_slice(frame.data);
        self.ts_ns = has_time.then_some(frame.ts_ns);
        true
    }

    /// Records that are no frames that can be sent, by reason.
    pub(super) fn left_out(&self) -> [(DropReason, u64); 2] {
        [
            (DropReason::LinkTypeUnknown, self.link_type_unknown),
            (DropReason::Malformed, self.malformed),
        ]
    }
}

/// Makes sure that `path` is a capture.
fn look(path: &Path, passes: Option<u64>) -> Result<Kind, String> {
    if passes != Some(1) && is_read_once(path) {
        return Err(format!(
            "{}: it is no regular file, so it has one pass; add --preload, or leave out --loop",
            path.display()
        ));
    }
    let mut reader = Reader::open(path).map_err(|error| named(path, &error))?;
    match reader.next_chunk(1) {
        Err(error @ ReadError::NotUnderstood(_)) => Err(named(path, &error)),
        // Damage behind the beginning costs what lies behind it, not the file.
        _ if is_rereadable(path) => Ok(Kind::File),
        Ok(first) => Ok(Kind::Begun(Some(Reading::File(Box::new(reader), first)))),
        Err(error) => Err(named(path, &error)),
    }
}

fn load(path: &Path, room: &mut usize) -> Result<Kind, String> {
    let capture = Capture::load(path, *room).map_err(|error| match error {
        CaptureError::Read(error) => named(path, &error),
        _ => format!(
            "{}: --preload takes at most {PRELOAD_BYTES_MAX} bytes of all captures together into \
             memory; leave it out to read them while they are sent",
            path.display()
        ),
    })?;
    *room -= capture.bytes().len() + size_of_val(capture.index());
    Ok(Kind::Loaded(capture))
}

/// The error in one sentence with the file's name in it, once.
fn named(path: &Path, error: &ReadError) -> String {
    match error {
        ReadError::Open { .. } => format!("{error}; check the path, or use - for standard input"),
        _ => format!("{}: {error}", path.display()),
    }
}
