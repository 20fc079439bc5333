//! What is sent: captures written for the run, which `laneway gen pcap` replays.
//!
//! A classic capture of microseconds. Frames are UDP over IPv4 to a hardware address that the far side does not have,
//! so that its own stack answers nothing, or pings to an address that an echo answers for. A frame's flow is its number
//! modulo the flows; `heavy` of every hundred belong to flow 0.

use std::fs;
use std::path::Path;

use laneway_netns::Mac;

use crate::world::{NotMade, mac};

/// Shortest frame: Ethernet, IPv4 and UDP headers with some bytes behind.
pub(crate) const FRAME_BYTES_MIN: u64 = 60;
/// Most frames of a capture: 1514 bytes of each are below 400 MB.
const FRAMES_MAX: u64 = 250_000;
/// An address that no interface on a cable has.
const UNOWNED_MAC: Mac = Mac([0x02, 0x4c, 0x57, 0x99, 0x99, 0x99]);
/// Where an echo answers on the first cable.
pub(crate) const ECHO_ADDRESS: &str = "10.77.0.9";

/// What frames look like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frames {
    /// Bytes of each.
    pub(crate) bytes: u64,
    /// Flows that they belong to.
    pub(crate) flows: u64,
    /// Of a hundred, those of flow 0 beside its share.
    pub(crate) heavy: u64,
    /// Pings for [`ECHO_ADDRESS`] instead.
    pub(crate) pings: bool,
}

/// When they are sent.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pace {
    /// Evenly, per second.
    Rate(u64),
    /// As fast as it goes.
    TopSpeed,
    /// So many at once, a train in so many microseconds.
    Trains {
        /// Frames of a train.
        frames: u64,
        /// From one to the next, us.
        period_us: u64,
    },
}

/// Writes the capture for `ms` of traffic; the words to give to `gen pcap` with it.
///
/// # Errors
/// What the file system says, or a plan of too many frames.
pub(crate) fn write(
    file: &Path,
    frames: Frames,
    pace: Pace,
    ms: u64,
) -> Result<Vec<String>, NotMade> {
    // Replayed over and over: enough frames that every flow is there.
    let replayed = frames.flows.max(100) * 20;
    let (count, words) = match pace {
        Pace::Rate(pps) => (replayed, format!("--loop 0 --pps {pps}")),
        Pace::TopSpeed => (replayed, "--loop 0 --topspeed".to_owned()),
        Pace::Trains { frames, period_us } => {
            (frames * (ms * 1_000 / period_us).max(1), "--loop 1".to_owned())
        }
    };
    if count > FRAMES_MAX {
        return Err(NotMade::Failed(format!("{count} frames in a capture, at most {FRAMES_MAX}")));
    }
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        bytes.extend(word.to_le_bytes());
    }
    for number in 0..count {
        let at_us = match pace {
            Pace::Rate(_) | Pace::TopSpeed => number,
            Pace::Trains { frames, period_us } => number / frames * period_us,
        };
        let flow = if number % 100 < frames.heavy { 0 } else { number % frames.flows };
        let frame = if frames.pings { ping(number) } else { datagram(flow, frames.bytes) };
        let length = frame.len() as u64;
        for word in [at_us / 1_000_000, at_us % 1_000_000, length, length] {
            bytes.extend((word as u32).to_le_bytes());
        }
        bytes.extend(frame);
    }
    fs::write(file, bytes)
        .map_err(|error| NotMade::Failed(format!("cannot write {}: {error}", file.display())))?;
    Ok(words.split(' ').map(str::to_owned).collect())
}

fn datagram(flow: u64, bytes: u64) -> Vec<u8> {
    let payload = bytes.max(FRAME_BYTES_MIN) as usize - 42;
    let mut frame = ip_frame(UNOWNED_MAC, 17, [10, 77, 0, 99], 8 + payload);
    let port = 10_000 + (flow % 50_000) as u16;
    frame.extend(port.to_be_bytes());
    frame.extend(7_007_u16.to_be_bytes());
    frame.extend((8 + payload as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.resize(frame.len() + payload, 0x5a);
    frame
}

fn ping(number: u64) -> Vec<u8> {
    let mut frame = ip_frame(mac(0, 2), 1, [10, 77, 0, 9], 8 + 32);
    let mut icmp = vec![8, 0, 0, 0, 0x4c, 0x57];
    icmp.extend((number as u16).to_be_bytes());
    icmp.resize(8 + 32, 0x5a);
    let sum = checksum(&icmp);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    frame.extend(icmp);
    frame
}

fn ip_frame(to: Mac, protocol: u8, destination: [u8; 4], length: usize) -> Vec<u8> {
    let mut frame = [to.0, mac(0, 1).0].concat();
    frame.extend([0x08, 0x00]);
    let mut header = vec![0x45, 0];
    header.extend((20 + length as u16).to_be_bytes());
    header.extend([0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 77, 0, 1]);
    header.extend(destination);
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(header);
    frame
}

/// RFC 1071, of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 =
        bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_with_its_checksum_sums_to_nothing() {
        let frame = datagram(3, 200);
        assert_eq!((frame.len(), checksum(&frame[14..34])), (200, 0));
        let frame = ping(9);
        assert_eq!((checksum(&frame[14..34]), checksum(&frame[34..])), (0, 0));
    }

    #[test]
    fn flow_0_has_its_share_and_trains_are_at_once() {
        let file =
            std::env::temp_dir().join(format!("laneway-gallery-{}.pcap", std::process::id()));
        let frames = Frames { bytes: 60, flows: 4, heavy: 90, pings: false };
        let pace = Pace::Trains { frames: 50, period_us: 1_000_000 };
        write(&file, frames, pace, 2_000).expect("the temporary folder is writable");
        let bytes = fs::read(&file).expect("it was written");
        fs::remove_file(&file).expect("it is ours");
        let records: Vec<&[u8]> = bytes[24..].chunks(76).collect();
        assert_eq!(records.len(), 100);
        let heavy = records.iter().filter(|r| r[16 + 34..16 + 36] == 10_000_u16.to_be_bytes());
        assert!(heavy.count() > 90);
        let seconds = |record: &[u8]| record[0];
        assert_eq!((seconds(records[49]), seconds(records[50])), (0, 1));
    }
}
