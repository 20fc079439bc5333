//! Captures to read: made here, or shared.

use laneway_pcap::{Layout, LinkType, Record, Writer};
use laneway_testkit::UdpFrame;
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes in front of the first record of a classic capture, and in front of each frame.
pub(crate) const HEADER_BYTES: usize = 24;
pub(crate) const RECORD_HEADER_BYTES: usize = 16;
/// Bytes of the frames of [`udp`].
pub(crate) const FRAME_BYTES: usize = 64;

/// A classic capture of `frames` UDP frames of 64 bytes, 1 ms apart, over 10 flows.
pub(crate) fn udp(frames: usize) -> Vec<u8> {
    let frames: Vec<Vec<u8>> = (0..frames)
        .map(|i| {
            let source_port = 4000 + (i % 10) as u16;
            UdpFrame { sequence: i as u64, source_port, ..UdpFrame::default() }.build()
        })
        .collect();
    capture(LinkType::Ethernet, &frames)
}

/// A classic capture of these frames.
pub(crate) fn capture(link: LinkType, frames: &[Vec<u8>]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), Layout::Pcap, &[link]).unwrap();
    for (i, frame) in frames.iter().enumerate() {
        let record = Record {
            ts_ns: 1_600_000_000_000_000_000 + i as u64 * 1_000_000,
            interface: 0,
            link,
            wire_len: frame.len() as u32,
            data: frame,
        };
        writer.write(&record).unwrap();
    }
    writer.finish().unwrap()
}

/// Every capture under `../shared/pcaps`, or the reason why there is none.
pub(crate) fn shared() -> Result<Vec<PathBuf>, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/pcaps");
    let mut found = Vec::new();
    gather(&folder, &mut found);
    found.sort();
    match found.is_empty() {
        true => Err(format!("no captures in {}", folder.display())),
        false => Ok(found),
    }
}

fn gather(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            gather(&path, found);
        } else if path.extension().is_some_and(|e| e == "pcap" || e == "pcapng") {
            found.push(path);
        }
    }
}
