//! What the lane sends: one capture file for all its ports, each an interface of its own.
//!
//! The file is `<name>.partial` until the lane is closed. After each settle that sent something its bytes are the
//! kernel's, so a reader of the partial file sees whole records only. A frame that does not fit is counted; a file that
//! cannot be written any further ends the lane, and nothing of it is left.

use crate::NAME;
use laneway_capture::format::FRAME_BYTES_MAX;
use laneway_capture::{Layout, LinkType, PartialFile, Record, WriteError, Writer};
use laneway_core::{Frame, LaneError, PortId};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What became of a frame.
pub(crate) enum Entry {
    Sent,
    TooLong,
    Refused,
}

pub(crate) struct Output {
    path: PathBuf,
    /// Gone after a failure.
    writer: Option<Writer<PartialFile>>,
    frame_bytes_max: usize,
    /// Something was written since the last flush.
    unflushed: bool,
    failed: Option<LaneError>,
}

impl Output {
    /// Starts the capture at `path`: pcapng, or classic pcap if the name ends in `.pcap`. `inputs` are the captures
    /// that it must not replace, one per port.
    pub(crate) fn create(
        path: &Path,
        inputs: &[&Path],
        frame_bytes_max: usize,
    ) -> Result<Output, LaneError> {
        let refused = |why: String, hint: &str| LaneError::Refused {
            lane: NAME.to_owned(),
            name: path.display().to_string(),
            why,
            hint: hint.to_owned(),
        };
        if let Some(input) = inputs.iter().find(|input| is_same_file(path, input)) {
            let why = format!("it is the capture to read ({})", input.display());
            return Err(refused(why, "name another file with out="));
        }
        let layout = match path.extension().is_some_and(|ending| ending == "pcap") {
            true => Layout::Pcap,
            false => Layout::Pcapng,
        };
        if layout == Layout::Pcap && inputs.len() > 1 {
            let why = format!("classic pcap cannot tell {} ports apart", inputs.len());
            return Err(refused(why, "let the name end in .pcapng"));
        }
        let links = vec![LinkType::Ethernet; inputs.len()];
        let writer = Writer::create(path, layout, &links).map_err(|error| failure(path, error))?;
        Ok(Output {
            path: path.to_owned(),
            writer: Some(writer),
            frame_bytes_max: frame_bytes_max.min(FRAME_BYTES_MAX as usize),
            unflushed: false,
            failed: None,
        })
    }

    /// Appends a frame that leaves by `port`, with the time that it carries.
    pub(crate) fn send(&mut self, port: PortId, frame: Frame<'_>) -> Entry {
        let Some(writer) = &mut self.writer else { return Entry::Refused };
        if frame.bytes.len() > self.frame_bytes_max {
            return Entry::TooLong;
        }
        let record = Record {
            ts_ns: frame.ts_ns,
            interface: port.0,
            link: LinkType::Ethernet,
            wire_len: frame.wire_len.max(frame.bytes.len() as u32),
            data: frame.bytes,
        };
        match writer.write(&record) {
            Ok(()) => {
                self.unflushed = true;
                Entry::Sent
            }
            // Classic pcap ends with the year 2106. The capture itself is sound.
            Err(WriteError::Time { .. }) => Entry::Refused,
            Err(error) => {
                self.fail(error);
                Entry::Refused
            }
        }
    }

    /// Gives to the kernel what was appended, and says so if anything failed since the last call.
    pub(crate) fn flush(&mut self) -> Result<(), LaneError> {
        if std::mem::take(&mut self.unflushed)
            && let Some(writer) = &mut self.writer
            && let Err(error) = writer.flush()
        {
            self.fail(error);
        }
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Completes the capture and gives it its name.
    pub(crate) fn finish(mut self) -> Result<(), LaneError> {
        if let Some(writer) = self.writer.take() {
            writer.commit().map_err(|error| failure(&self.path, error))?;
        }
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Gives the capture up; its partial file is removed.
    #[cold]
    fn fail(&mut self, error: WriteError) {
        self.failed = Some(failure(&self.path, error));
        self.writer = None;
    }
}

impl Drop for Output {
    /// A lane that is dropped has come to its end; one that is dropped by a panic has not.
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take()
            && !std::thread::panicking()
        {
            // A caller that wants to know calls `PcapLane::finish`.
            writer.commit().ok();
        }
    }
}

/// True if both names lead to one file, through whatever links.
fn is_same_file(a: &Path, b: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    identity(a).is_some() && identity(a) == identity(b)
}

#[cold]
fn failure(path: &Path, error: WriteError) -> LaneError {
    let (lane, name) = (NAME.to_owned(), path.display().to_string());
    let source = match error {
        WriteError::File { source, .. } | WriteError::Io(source) => source,
        // The frame was refused, not the file; `send` has sorted those out.
        other => io::Error::other(other),
    };
    match source.kind() {
        io::ErrorKind::NotFound => LaneError::NotFound {
            lane,
            what: "folder for the capture",
            name,
            hint: "make it first, or name another place with out=".to_owned(),
        },
        io::ErrorKind::PermissionDenied => LaneError::NotPermitted {
            lane,
            doing: format!("write `{name}`"),
            hint: "name another place with out=".to_owned(),
        },
        _ => LaneError::Os {
            lane,
            doing: format!("writing capture `{name}`"),
            source,
            hint: "name another place with out=".to_owned(),
        },
    }
}
