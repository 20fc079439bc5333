//! A capture as one port's input: recognized when it is opened, read `loop=` times, its failures in the
//! lane's words.
//!
//! What must always hold: records come in file order; an error comes after all complete records before it. Time goes
//! on from pass to pass: each further one starts [`LOOP_GAP_NS`] after the latest record so far and keeps its own
//! distances, so that a flow table sees more traffic, not the past. A record without a time has the latest one before
//! it, as a frame has no place for none.

use crate::NAME;
use laneway_capture::{Chunk, ReadError, Reader, Record, is_read_once};
use laneway_core::LaneError;
use std::collections::BTreeSet;
use std::io;
use std::mem;
use std::path::{Path, PathBuf};

/// Time between the latest record of one pass over a capture and the earliest of the next.
pub const LOOP_GAP_NS: u64 = 1_000_000;

/// Link types that are named; a capture may have tens of thousands.
const LINK_TYPES_MAX: usize = 16;

pub(crate) struct Input {
    path: PathBuf,
    reader: Reader,
    /// The first record, read ahead.
    first: Option<Chunk>,
    passes_left: usize,
    stamps: Stamps,
}

impl Input {
    /// Opens `path` and reads its first record.
    pub(crate) fn open(path: &Path, passes: usize) -> Result<Input, LaneError> {
        if passes > 1 && is_read_once(path) {
            return Err(LaneError::Refused {
                lane: NAME.to_owned(),
                name: path.display().to_string(),
                why: format!("it is no regular file, so it cannot be read {passes} times"),
                hint: "save it to a file first, or leave out loop=".to_owned(),
            });
        }
        let mut reader = Reader::open(path).map_err(|error| failure(path, error))?;
        let first = reader.next_chunk(1).map_err(|error| failure(path, error))?;
        let path = path.to_owned();
        Ok(Input { path, reader, first, passes_left: passes - 1, stamps: Stamps::default() })
    }

    /// `"pcap"` or `"pcapng"`.
    pub(crate) fn format_name(&self) -> &'static str {
        self.reader.format_name().expect("the first record was asked for")
    }

    /// The link types of the interfaces described so far, each once; those beyond [`LINK_TYPES_MAX`] as a number.
    pub(crate) fn links(&self) -> String {
        let mut met = BTreeSet::new();
        let mut names: Vec<String> = Vec::new();
        for interface in self.reader.interfaces() {
            if met.insert(interface.link.number()) && names.len() < LINK_TYPES_MAX {
                names.push(format!("{:?}", interface.link));
            }
        }
        if met.len() > names.len() {
            names.push(format!("and {} more", met.len() - names.len()));
        }
        names.join(" ")
    }

    /// Packets that the capturing program reports as missed, where it reports them.
    pub(crate) fn dropped(&self) -> Option<u64> {
        self.reader
            .interfaces()
            .iter()
            .filter_map(|interface| interface.dropped)
            .reduce(u64::saturating_add)
    }

    /// Shows the next record, or returns false at the end of the last pass.
    #[inline]
    pub(crate) fn read(&mut self, show: impl FnOnce(Record<'_>)) -> Result<bool, LaneError> {
        if let Some(first) = self.first.take() {
            let record = first.records().zip(first.have_time()).next();
            let (record, has_time) = record.expect("a chunk is never empty");
            show(self.stamps.place(record, has_time));
            return Ok(true);
        }
        loop {
            let next = self.reader.next_stamped().map_err(|error| failure(&self.path, error))?;
            if let Some((record, has_time)) = next {
                show(self.stamps.place(record, has_time));
                return Ok(true);
            }
            if !self.rewind()? {
                return Ok(false);
            }
        }
    }

    /// Starts the next pass, if there is one to come and the last one showed anything.
    #[cold]
    fn rewind(&mut self) -> Result<bool, LaneError> {
        if self.passes_left == 0 || !self.stamps.next_pass() {
            return Ok(false);
        }
        self.passes_left -= 1;
        self.reader = Reader::open(&self.path).map_err(|error| failure(&self.path, error))?;
        Ok(true)
    }
}

/// Where the records of a pass lie in time.
#[derive(Default)]
struct Stamps {
    /// Added to every time of this pass.
    shift_ns: u64,
    /// The latest time that was shown, of all passes.
    latest_ns: u64,
    /// The earliest time of this pass as its file has it.
    earliest_ns: Option<u64>,
    /// This pass had a record.
    has_shown: bool,
}

impl Stamps {
    #[inline]
    fn place<'a>(&mut self, record: Record<'a>, has_time: bool) -> Record<'a> {
        self.has_shown = true;
        if !has_time {
            return Record { ts_ns: self.latest_ns, ..record };
        }
        let ts_ns = record.ts_ns.saturating_add(self.shift_ns);
        self.latest_ns = self.latest_ns.max(ts_ns);
        let earliest_ns = self.earliest_ns.unwrap_or(record.ts_ns);
        self.earliest_ns = Some(earliest_ns.min(record.ts_ns));
        Record { ts_ns, ..record }
    }

    /// False when the pass had no record.
    fn next_pass(&mut self) -> bool {
        if let Some(earliest_ns) = self.earliest_ns.take() {
            self.shift_ns = self.latest_ns.saturating_add(LOOP_GAP_NS) - earliest_ns;
        }
        mem::take(&mut self.has_shown)
    }
}

/// What the lane says about a capture that cannot be read, or not any further.
#[cold]
fn failure(path: &Path, error: ReadError) -> LaneError {
    let (lane, name) = (NAME.to_owned(), path.display().to_string());
    match error {
        ReadError::Open { source, .. } => match source.kind() {
            io::ErrorKind::NotFound => LaneError::NotFound {
                lane,
                what: "capture file",
                name,
                hint: "check the path; `-` reads standard input".to_owned(),
            },
            io::ErrorKind::PermissionDenied => LaneError::NotPermitted {
                lane,
                doing: format!("read `{name}`"),
                hint: "the file's owner decides who may: see `ls -l`".to_owned(),
            },
            _ => LaneError::Input { lane, name, why: format!("it cannot be opened: {source}") },
        },
        other => LaneError::Input { lane, name, why: other.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_capture::LinkType;

    fn record(ts_ns: u64) -> Record<'static> {
        Record { ts_ns, interface: 0, link: LinkType::Raw, wire_len: 0, data: &[] }
    }

    #[test]
    fn the_next_pass_follows_the_latest_record_and_keeps_its_distances() {
        let mut stamps = Stamps::default();
        let mut pass = |times: &[u64]| {
            let placed: Vec<u64> =
                times.iter().map(|&ts_ns| stamps.place(record(ts_ns), true).ts_ns).collect();
            assert!(stamps.next_pass());
            placed
        };
        // Out of order on purpose: the earliest record need not come first.
        assert_eq!(pass(&[110, 100, 150, 120]), [110, 100, 150, 120]);
        let start = 150 + LOOP_GAP_NS;
        assert_eq!(pass(&[110, 100, 150]), [start + 10, start, start + 50]);
        assert_eq!(pass(&[100]), [start + 50 + LOOP_GAP_NS]);
        assert!(!stamps.next_pass(), "a pass without records is the last");
    }

    #[test]
    fn a_record_without_a_time_has_the_latest_and_moves_no_pass() {
        let mut stamps = Stamps::default();
        let mut pass = || {
            let records = [(0, false), (100, true), (0, false), (u64::MAX, false), (90, true)];
            let placed =
                records.map(|(ts_ns, has_time)| stamps.place(record(ts_ns), has_time).ts_ns);
            assert!(stamps.next_pass());
            placed
        };
        assert_eq!(pass(), [0, 100, 100, 100, 90]);
        let start = 100 + LOOP_GAP_NS;
        assert_eq!(pass(), [100, start + 10, start + 10, start + 10, start]);
        let mut timeless = Stamps::default();
        timeless.place(record(0), false);
        assert!(timeless.next_pass(), "it had a record");
    }

    #[test]
    fn time_stops_at_the_end_of_its_range() {
        let mut stamps = Stamps::default();
        stamps.place(record(0), true);
        stamps.place(record(u64::MAX), true);
        assert!(stamps.next_pass());
        assert_eq!(stamps.place(record(5), true).ts_ns, u64::MAX);
    }
}
