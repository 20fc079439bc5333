//! Writes captures: classic pcap or pcapng, little endian, with nanosecond times.
//!
//! [`Writer`] encodes to any `Write`. [`Writer::create`] writes to `<name>.partial` and renames on
//! [`Writer::commit`], so a file under its final name is always complete; dropped without commit, the partial file is
//! removed. What must always hold: every written record can be read back as the same records by this crate, and is
//! accepted by libpcap. What it does not do: compress, split by size, or call `fsync`.

use crate::format::{FRAME_BYTES_MAX, INTERFACES_MAX, Record};
use crate::link::LinkType;
use crate::partial::PartialFile;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use thiserror::Error;

const USER_APPLICATION: &[u8] = b"laneway";

/// The file format to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Classic pcap: one interface, times up to the year 2106, no loss counts.
    Pcap,
    /// pcapng: any number of interfaces, all times, loss counts per interface.
    Pcapng,
}

/// Writing a capture failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The file could not be created, written or renamed.
    #[error("cannot write capture {}: {source}", path.display())]
    File {
        /// The file concerned.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The sink given by the caller failed.
    #[error("cannot write capture: {0}")]
    Io(#[from] io::Error),
    /// The layout cannot hold this many interfaces.
    #[error(
        "{layout:?} cannot describe {count} interfaces; pcap has exactly 1, pcapng 1 to {INTERFACES_MAX}"
    )]
    InterfaceCount {
        /// The layout asked for.
        layout: Layout,
        /// Interfaces given.
        count: usize,
    },
    /// The layout's field is too small for the link type's number.
    #[error("{layout:?} cannot store link type {number}")]
    LinkType {
        /// The layout asked for.
        layout: Layout,
        /// LINKTYPE number.
        number: u32,
    },
    /// An interface was named that the capture was not given.
    #[error("interface {interface} was named, but this capture was given {known}")]
    UnknownInterface {
        /// The interface named.
        interface: u32,
        /// Interfaces given.
        known: usize,
    },
    /// A record's link type is not that of its interface.
    #[error(
        "a record of interface {interface} has link type {link:?}, the interface has {expected:?}"
    )]
    LinkMismatch {
        /// The interface named.
        interface: u32,
        /// The record's link type.
        link: LinkType,
        /// The interface's link type.
        expected: LinkType,
    },
    /// The record is longer than any reader accepts, or longer than it says it was on the wire.
    #[error(
        "a record with {len} captured bytes of {wire_len} cannot be written; the limit is {FRAME_BYTES_MAX}"
    )]
    Length {
        /// Captured bytes.
        len: usize,
        /// Bytes on the wire.
        wire_len: u32,
    },
    /// Classic pcap stores seconds in 32 bits.
    #[error("time {ts_ns} ns is beyond what pcap can store (year 2106); write pcapng")]
    Time {
        /// The record's time.
        ts_ns: u64,
    },
}

/// Encodes records to `W`. Nothing is complete before [`Writer::finish`] or [`Writer::commit`].
#[derive(Debug)]
pub struct Writer<W: Write> {
    sink: W,
    layout: Layout,
    interfaces: Vec<Tracked>,
    /// One block's bytes, reused: a block goes to the sink in one call.
    scratch: Vec<u8>,
}

#[derive(Debug)]
struct Tracked {
    link: LinkType,
    latest_ns: u64,
    /// Received and dropped packets.
    counts: Option<(u64, u64)>,
}

impl<W: Write> Writer<W> {
    /// Starts a capture in `sink`; records will name the interfaces by their index in `links`.
    ///
    /// # Errors
    /// When the layout cannot hold these interfaces, or the sink fails.
    pub fn new(sink: W, layout: Layout, links: &[LinkType]) -> Result<Self, WriteError> {
        let interfaces_max = match layout {
            Layout::Pcap => 1,
            Layout::Pcapng => INTERFACES_MAX,
        };
        if links.is_empty() || links.len() > interfaces_max {
            return Err(WriteError::InterfaceCount { layout, count: links.len() });
        }
        let number_max = match layout {
            Layout::Pcap => 0x03ff_ffff, // the bits above hold the FCS length
            Layout::Pcapng => u32::from(u16::MAX),
        };
        if let Some(link) = links.iter().find(|link| link.number() > number_max) {
            return Err(WriteError::LinkType { layout, number: link.number() });
        }
        let interfaces =
            links.iter().map(|&link| Tracked { link, latest_ns: 0, counts: None }).collect();
        let mut writer = Self { sink, layout, interfaces, scratch: Vec::new() };
        writer.write_headers(links)?;
        Ok(writer)
    }

    /// Appends one record.
    ///
    /// # Errors
    /// When the record does not fit the capture (nothing of it is written then), or the sink fails.
    pub fn write(&mut self, record: &Record<'_>) -> Result<(), WriteError> {
        let Record { ts_ns, interface, link, wire_len, data } = *record;
        let len = data.len();
        if len > FRAME_BYTES_MAX as usize || len > wire_len as usize {
            return Err(WriteError::Length { len, wire_len });
        }
        let known = self.interfaces.len();
        let tracked = self
            .interfaces
            .get_mut(interface as usize)
            .ok_or(WriteError::UnknownInterface { interface, known })?;
        if tracked.link != link {
            return Err(WriteError::LinkMismatch { interface, link, expected: tracked.link });
        }
        self.scratch.clear();
        match self.layout {
            Layout::Pcap => {
                let seconds =
                    u32::try_from(ts_ns / 1_000_000_000).map_err(|_| WriteError::Time { ts_ns })?;
                let nanos = (ts_ns % 1_000_000_000) as u32;
                for field in [seconds, nanos, len as u32, wire_len] {
                    self.scratch.extend(field.to_le_bytes());
                }
                self.scratch.extend(data);
            }
            Layout::Pcapng => {
                tracked.latest_ns = tracked.latest_ns.max(ts_ns);
                block(&mut self.scratch, 6, |body| {
                    for field in
                        [interface, (ts_ns >> 32) as u32, ts_ns as u32, len as u32, wire_len]
                    {
                        body.extend(field.to_le_bytes());
                    }
                    body.extend(data);
                });
            }
        }
        self.sink.write_all(&self.scratch)?;
        Ok(())
    }

    /// Hands on what the sink still buffers: the records so far are then where the sink's own bytes go, for a file
    /// under `<path>.partial`.
    ///
    /// # Errors
    /// When the sink fails.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        self.sink.flush()?;
        Ok(())
    }

    /// Notes how many packets an interface received and dropped over the whole capture; written at the end. Only pcapng
    /// has a place for them: in classic pcap they are not stored.
    ///
    /// # Errors
    /// When the capture has no such interface.
    pub fn set_counts(
        &mut self,
        interface: u32,
        received: u64,
        dropped: u64,
    ) -> Result<(), WriteError> {
        let known = self.interfaces.len();
        let tracked = self
            .interfaces
            .get_mut(interface as usize)
            .ok_or(WriteError::UnknownInterface { interface, known })?;
        tracked.counts = Some((received, dropped));
        Ok(())
    }

    /// Writes what belongs at the end, flushes, and gives the sink back.
    ///
    /// # Errors
    /// When the sink fails.
    pub fn finish(mut self) -> Result<W, WriteError> {
        if self.layout == Layout::Pcapng {
            self.scratch.clear();
            for (id, tracked) in self.interfaces.iter().enumerate() {
                let Some((received, dropped)) = tracked.counts else { continue };
                block(&mut self.scratch, 5, |body| {
                    body.extend((id as u32).to_le_bytes()); // below INTERFACES_MAX
                    body.extend(((tracked.latest_ns >> 32) as u32).to_le_bytes());
                    body.extend((tracked.latest_ns as u32).to_le_bytes());
                    option(body, 4, &received.to_le_bytes());
                    option(body, 5, &dropped.to_le_bytes());
                    option(body, 0, &[]);
                });
            }
            self.sink.write_all(&self.scratch)?;
        }
        self.sink.flush()?;
        Ok(self.sink)
    }

    fn write_headers(&mut self, links: &[LinkType]) -> Result<(), WriteError> {
        let out = &mut self.scratch;
        match self.layout {
            Layout::Pcap => {
                out.extend(0xa1b2_3c4du32.to_le_bytes());
                out.extend(2u16.to_le_bytes());
                out.extend(4u16.to_le_bytes());
                for field in [0, 0, FRAME_BYTES_MAX, links[0].number()] {
                    out.extend(field.to_le_bytes());
                }
            }
            Layout::Pcapng => {
                block(out, 0x0a0d_0d0a, |body| {
                    body.extend(0x1a2b_3c4du32.to_le_bytes());
                    body.extend(1u16.to_le_bytes());
                    body.extend(0u16.to_le_bytes());
                    body.extend(u64::MAX.to_le_bytes()); // section length: not stated
                    option(body, 4, USER_APPLICATION);
                    option(body, 0, &[]);
                });
                for link in links {
                    block(out, 1, |body| {
                        body.extend((link.number() as u16).to_le_bytes()); // checked in `new`
                        body.extend(0u16.to_le_bytes());
                        body.extend(FRAME_BYTES_MAX.to_le_bytes());
                        option(body, 9, &[9]); // if_tsresol: 10^-9 s
                        option(body, 0, &[]);
                    });
                }
            }
        }
        self.sink.write_all(out)?;
        Ok(())
    }
}

/// Appends a block of `kind` around what `fill` appends, padded to four bytes, with both copies of its length.
fn block(out: &mut Vec<u8>, kind: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend(kind.to_le_bytes());
    out.extend([0; 4]);
    fill(out);
    pad(out, start);
    // At most FRAME_BYTES_MAX plus a few headers.
    let total = ((out.len() - start + 4) as u32).to_le_bytes();
    out[start + 4..start + 8].copy_from_slice(&total);
    out.extend(total);
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let start = out.len();
    out.extend(code.to_le_bytes());
    out.extend((value.len() as u16).to_le_bytes()); // values here are a few bytes
    out.extend(value);
    pad(out, start);
}

fn pad(out: &mut Vec<u8>, start: usize) {
    let padded = start + (out.len() - start).next_multiple_of(4);
    out.resize(padded, 0);
}

impl Writer<PartialFile> {
    /// Starts a capture file at `path`, under `<path>.partial` until [`Writer::commit`], as [`PartialFile::create`].
    ///
    /// # Errors
    /// When the file cannot be created or written, or as [`Writer::new`].
    pub fn create(
        path: impl AsRef<Path>,
        layout: Layout,
        links: &[LinkType],
    ) -> Result<Self, WriteError> {
        let path = path.as_ref();
        let file = PartialFile::create(path);
        let file = file.map_err(|source| WriteError::File { path: path.to_owned(), source })?;
        Self::new(file, layout, links)
    }

    /// The name that the file has until then, if it has one of its own.
    pub fn partial_path(&self) -> Option<&Path> {
        self.sink.partial_path()
    }

    /// Finishes the capture and gives the file its final name.
    ///
    /// # Errors
    /// When writing or renaming fails; no file is left then.
    pub fn commit(self) -> Result<(), WriteError> {
        let file = self.finish()?;
        let path = file.path().to_owned();
        file.commit().map_err(|source| WriteError::File { path, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(ts_ns: u64, data: &[u8]) -> Record<'_> {
        let wire_len = data.len() as u32;
        Record { ts_ns, interface: 0, link: LinkType::Ethernet, wire_len, data }
    }

    #[test]
    fn a_record_that_does_not_fit_is_refused_and_leaves_no_trace() {
        let mut writer = Writer::new(Vec::new(), Layout::Pcap, &[LinkType::Ethernet]).unwrap();
        let beyond_2106 = (u64::from(u32::MAX) + 1) * 1_000_000_000;
        assert!(matches!(writer.write(&record(beyond_2106, b"")), Err(WriteError::Time { .. })));
        let long = vec![0; FRAME_BYTES_MAX as usize + 1];
        assert!(matches!(writer.write(&record(0, &long)), Err(WriteError::Length { .. })));
        let shrunk = Record { wire_len: 1, ..record(0, b"ab") };
        assert!(matches!(writer.write(&shrunk), Err(WriteError::Length { .. })));
        let stranger = Record { interface: 1, ..record(0, b"") };
        assert!(matches!(writer.write(&stranger), Err(WriteError::UnknownInterface { .. })));
        let other = Record { link: LinkType::Raw, ..record(0, b"") };
        assert!(matches!(writer.write(&other), Err(WriteError::LinkMismatch { .. })));
        assert_eq!(writer.finish().unwrap().len(), 24, "only the file header");
    }

    #[test]
    fn interfaces_that_the_layout_cannot_hold_are_refused() {
        let two = [LinkType::Ethernet, LinkType::Raw];
        assert!(Writer::new(Vec::new(), Layout::Pcap, &two).is_err());
        assert!(Writer::new(Vec::new(), Layout::Pcapng, &two).is_ok());
        assert!(Writer::new(Vec::new(), Layout::Pcapng, &[]).is_err());
        assert!(Writer::new(Vec::new(), Layout::Pcapng, &[LinkType::Other(65_536)]).is_err());
    }
}
