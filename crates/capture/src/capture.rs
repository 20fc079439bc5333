//! A whole capture in memory, for replay: the bytes of every frame in one block, and an index of fixed-size entries.
//!
//! Assumes that the caller has a bound in mind and states it; the load stops there with a clear error instead of
//! filling the machine. A damaged capture fails to load: a replay must not silently be a shorter one. (A caller that
//! wants the records before the damage reads them with [`Reader`].)

use crate::error::ReadError;
use crate::format::{Record, RecordRef};
use crate::link::LinkType;
use crate::reader::Reader;
use std::path::Path;
use thiserror::Error;

/// A capture held in memory. Frames are in file order, which is not always time order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capture {
    bytes: Vec<u8>,
    index: Vec<RecordRef>,
}

/// Loading a capture failed; nothing of it is kept.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The file could not be read to its end.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The capture needs more memory than was allowed.
    #[error(
        "the capture needs more than the {bytes_max} bytes allowed for it in memory ({frames} frames fit); \
         raise the limit, or keep the first frames only with `editcap -r IN OUT 1-N`"
    )]
    TooLarge {
        /// The limit given.
        bytes_max: usize,
        /// Frames that fit.
        frames: usize,
    },
}

impl Capture {
    /// Loads `path`, using at most `bytes_max` bytes for frames and index together.
    ///
    /// # Errors
    /// [`CaptureError`].
    pub fn load(path: impl AsRef<Path>, bytes_max: usize) -> Result<Self, CaptureError> {
        Self::read(&mut Reader::open(path)?, bytes_max)
    }

    /// Loads what is left in `reader`, within the same bound.
    ///
    /// # Errors
    /// [`CaptureError`].
    pub fn read(reader: &mut Reader, bytes_max: usize) -> Result<Self, CaptureError> {
        let mut capture = Self::default();
        while let Some(record) = reader.next_record()? {
            let index_bytes = (capture.index.len() + 1) * size_of::<RecordRef>();
            if capture.bytes.len() + record.data.len() + index_bytes > bytes_max {
                return Err(CaptureError::TooLarge { bytes_max, frames: capture.index.len() });
            }
            capture.index.push(RecordRef {
                ts_ns: record.ts_ns,
                offset: capture.bytes.len(),
                len: record.data.len() as u32, // at most FRAME_BYTES_MAX
                wire_len: record.wire_len,
                interface: record.interface,
                link: record.link,
                has_time: true,
            });
            capture.bytes.extend_from_slice(record.data);
        }
        // Growth by doubling may have reserved twice the bound; the frames stay for as long as the replay runs.
        capture.bytes.shrink_to_fit();
        capture.index.shrink_to_fit();
        Ok(capture)
    }

    /// Every frame's captured bytes, back to back.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where each frame lies in [`Capture::bytes`].
    pub fn index(&self) -> &[RecordRef] {
        &self.index
    }

    /// The frames in file order.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = Record<'_>> {
        self.index.iter().map(|frame| frame.record(&self.bytes))
    }

    /// The link type that all frames share, or `None` when they differ or there are none.
    pub fn link(&self) -> Option<LinkType> {
        let first = self.index.first()?.link;
        self.index.iter().all(|frame| frame.link == first).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writer::{Layout, Writer};
    use std::io::Cursor;

    fn reader(frames: &[&[u8]]) -> Reader {
        let mut writer = Writer::new(Vec::new(), Layout::Pcap, &[LinkType::Ethernet]).unwrap();
        for (number, data) in frames.iter().enumerate() {
            writer
                .write(&Record {
                    ts_ns: number as u64,
                    interface: 0,
                    link: LinkType::Ethernet,
                    wire_len: data.len() as u32,
                    data,
                })
                .unwrap();
        }
        Reader::from_read(Cursor::new(writer.finish().unwrap())).unwrap()
    }

    #[test]
    fn holds_every_frame_in_file_order() {
        let capture = Capture::read(&mut reader(&[b"one", b"", b"three"]), 1_000).unwrap();
        let frames: Vec<_> = capture.frames().map(|frame| (frame.ts_ns, frame.data)).collect();
        assert_eq!(frames, [(0, &b"one"[..]), (1, b""), (2, b"three")]);
        assert_eq!(capture.bytes(), b"onethree");
        assert_eq!(capture.link(), Some(LinkType::Ethernet));
    }

    #[test]
    fn stops_at_its_bound() {
        let bound = 2 * (4 + size_of::<RecordRef>());
        assert!(Capture::read(&mut reader(&[b"abcd", b"abcd"]), bound).is_ok());
        match Capture::read(&mut reader(&[b"abcd", b"abcde"]), bound) {
            Err(CaptureError::TooLarge { bytes_max, frames: 1 }) => assert_eq!(bytes_max, bound),
            other => panic!("{other:?}"),
        }
    }
}
