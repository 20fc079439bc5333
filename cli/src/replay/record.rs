//! A replay written to a capture instead of a wire: every frame with the time at which it is due.
//!
//! The file has its name only when it is whole. pcapng ends with the interface's statistics: frames
//! that were to be written, and those that could not be.

use super::Replay;
use laneway_capture::{Layout, LinkType, PartialFile, Record, WriteError, Writer};
use laneway_core::{Counters, DropReason};
use laneway_engine::Stop;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A capture that is being written.
pub(crate) struct Recording {
    writer: Writer<PartialFile>,
    path: PathBuf,
}

impl Recording {
    /// Begins `path`: classic pcap if it ends so and pcapng otherwise.
    ///
    /// # Errors
    /// A sentence that names the capture.
    pub(crate) fn begin(path: &Path) -> Result<Recording, String> {
        let layout = match path.extension().is_some_and(|ending| ending == "pcap") {
            true => Layout::Pcap,
            false => Layout::Pcapng,
        };
        let writer = Writer::create(path, layout, &[LinkType::Ethernet]);
        let path = path.to_owned();
        writer.map_err(|error| named(&path, error)).map(|writer| Recording { writer, path })
    }

    /// The file that is there until the capture is whole, if it has a name of its own.
    pub(crate) fn partial_path(&self) -> Option<PathBuf> {
        self.writer.partial_path().map(Path::to_owned)
    }

    /// Writes all of `replay`, or as far as `stop` and a capture of `duration` go; gives what was written, as frames
    /// sent. Times begin at that of the first frame.
    ///
    /// # Errors
    /// A sentence that names the capture; nothing is left of it then.
    pub(crate) fn record(
        self,
        replay: &mut Replay,
        duration: Option<Duration>,
        stop: &Stop,
    ) -> Result<Counters, String> {
        let Recording { mut writer, path } = self;
        let named = |error| named(&path, error);
        let until_ns = duration.map_or(u64::MAX, |duration| duration.as_nanos() as u64);
        let mut recorded = Counters::default();
        let mut began_ns = None;
        // There is no clock here to have a deadline in.
        while !stop.is_due(0) {
            let Some(due_ns) = replay.next_due_ns() else {
                replay.done_at_ns = Some(replay.sent.last_ns);
                break;
            };
            if due_ns >= until_ns {
                break;
            }
            let frame = replay.source.current();
            let began_ns = began_ns.get_or_insert_with(|| frame.ts_ns.unwrap_or_default());
            let ts_ns = began_ns.saturating_add(due_ns);
            let written = writer.write(&Record {
                ts_ns,
                interface: 0,
                link: LinkType::Ethernet,
                wire_len: frame.bytes.len() as u32, // frames of captures are far below 4 GiB
                data: &frame.bytes,
            });
            match written {
                Ok(()) => {
                    recorded.tx_frames += 1;
                    recorded.tx_bytes += frame.bytes.len() as u64;
                    replay.gave(due_ns, ts_ns);
                }
                Err(WriteError::Length { .. }) => replay.left_out(DropReason::TxTooLong),
                // Classic pcap ends with the year 2106.
                Err(WriteError::Time { .. }) => replay.left_out(DropReason::TxRefused),
                Err(error) => return Err(named(error)),
            }
        }
        replay.count_left_out();
        let dropped = replay.counters.lost();
        writer.set_counts(0, recorded.tx_frames + dropped, dropped).map_err(named)?;
        writer.commit().map_err(named)?;
        Ok(recorded)
    }
}

fn named(path: &Path, error: WriteError) -> String {
    match error {
        WriteError::File { .. } => format!("{error}; name another place with --on"),
        _ => format!("{}: {error}; name another place with --on", path.display()),
    }
}
