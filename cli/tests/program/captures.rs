//! Captures to read, made here.

use laneway_capture::{Layout, LinkType, Record, Writer};
use laneway_testkit::UdpFrame;

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
