//! Frames to send and to receive: Ethernet, IPv4, UDP, with a counter in the payload and valid checksums.
//!
//! Every frame carries [`SOURCE_MAC`], so that a test can tell its own frames from what else an
//! interface says (neighbour discovery, ARP). The payload is a mark, the counter, and a pattern
//! that depends on the counter, so that a byte that belongs to another frame is seen.

use crate::patience::Patience;
use laneway_core::{DropReason, FrameLane, PortId, Verdict};
use std::{net::Ipv4Addr, time::Duration};

/// The source address of every frame built here. Locally administered; no interface has it.
pub const SOURCE_MAC: [u8; 6] = [0x02, 0x4c, 0x57, 0x00, 0x00, 0x01];
/// The default destination: locally administered, owned by no interface, so that the far end's
/// stack stays silent.
const DESTINATION_MAC: [u8; 6] = [0x02, 0x4c, 0x57, 0x00, 0x00, 0x02];
/// Starts the payload of every frame.
const MARK: &[u8; 8] = b"laneway\0";
const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const PAYLOAD_AT: usize = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES;
/// The shortest frame that holds the headers, the mark and the counter.
pub const FRAME_BYTES_MIN: usize = PAYLOAD_AT + MARK.len() + 8;

/// A UDP frame to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpFrame {
    /// Ethernet destination.
    pub destination_mac: [u8; 6],
    /// IPv4 source.
    pub source: Ipv4Addr,
    /// IPv4 destination.
    pub destination: Ipv4Addr,
    /// UDP source port.
    pub source_port: u16,
    /// UDP destination port.
    pub destination_port: u16,
    /// The counter in the payload.
    pub sequence: u64,
    /// Length of the whole frame in bytes, without the frame check sequence.
    pub bytes: usize,
}

impl Default for UdpFrame {
    fn default() -> Self {
        UdpFrame {
            destination_mac: DESTINATION_MAC,
            source: Ipv4Addr::new(198, 18, 0, 1), // RFC 2544: reserved for benchmarks
            destination: Ipv4Addr::new(198, 18, 0, 2),
            source_port: 4000,
            destination_port: 4001,
            sequence: 0,
            bytes: 64,
        }
    }
}

impl UdpFrame {
    /// The bytes of the frame.
    ///
    /// # Panics
    /// If it is to be shorter than [`FRAME_BYTES_MIN`] or longer than an IPv4 packet can be.
    pub fn build(&self) -> Vec<u8> {
        assert!(self.bytes >= FRAME_BYTES_MIN, "a frame of {} bytes is too short", self.bytes);
        let ip_bytes = u16::try_from(self.bytes - ETHERNET_BYTES).expect("fits an IPv4 packet");
        let udp_bytes = ip_bytes - IPV4_BYTES as u16;
        let mut frame = Vec::with_capacity(self.bytes);
        frame.extend_from_slice(&self.destination_mac);
        frame.extend_from_slice(&SOURCE_MAC);
        frame.extend_from_slice(&0x0800u16.to_be_bytes());

        frame.extend_from_slice(&[0x45, 0]);
        frame.extend_from_slice(&ip_bytes.to_be_bytes());
        frame.extend_from_slice(&(self.sequence as u16).to_be_bytes());
        frame.extend_from_slice(&[0x40, 0, 64, 17, 0, 0]); // don't fragment, TTL 64, UDP
        frame.extend_from_slice(&self.source.octets());
        frame.extend_from_slice(&self.destination.octets());
        let checksum = !sum(0, &frame[ETHERNET_BYTES..]);
        frame[ETHERNET_BYTES + 10..ETHERNET_BYTES + 12].copy_from_slice(&checksum.to_be_bytes());

        frame.extend_from_slice(&self.source_port.to_be_bytes());
        frame.extend_from_slice(&self.destination_port.to_be_bytes());
        frame.extend_from_slice(&udp_bytes.to_be_bytes());
        frame.extend_from_slice(&[0, 0]);
        frame.extend_from_slice(MARK);
        frame.extend_from_slice(&self.sequence.to_be_bytes());
        for i in frame.len()..self.bytes {
            frame.push((i as u64 ^ self.sequence.wrapping_mul(31)) as u8);
        }
        // The pseudo header: both addresses, the protocol, the UDP length.
        let pseudo = sum(17 + u32::from(udp_bytes), &frame[ETHERNET_BYTES + 12..PAYLOAD_AT - 8]);
        let checksum = match !sum(u32::from(pseudo), &frame[PAYLOAD_AT - 8..]) {
            0 => 0xffff, // RFC 768: zero means "no checksum"
            checksum => checksum,
        };
        frame[PAYLOAD_AT - 2..PAYLOAD_AT].copy_from_slice(&checksum.to_be_bytes());
        frame
    }
}

/// `count` frames of `bytes` bytes each, counting from `first`.
pub fn udp_frames(first: u64, count: usize, bytes: usize) -> Vec<Vec<u8>> {
    (first..first + count as u64)
        .map(|sequence| UdpFrame { sequence, bytes, ..UdpFrame::default() }.build())
        .collect()
}

/// Borrows up to `lent` frames of `port`, makes the first of them copies of `frames`, and sends these with `verdict`;
/// how many were borrowed. Those without a copy go back.
///
/// # Panics
/// If the lane fails, or a frame is longer than a buffer.
pub fn lend_and_send(
    lane: &mut impl FrameLane,
    port: PortId,
    lent: usize,
    frames: &[Vec<u8>],
    verdict: Verdict,
) -> usize {
    let burst = lane.lend(port, lent).expect("the lane lends");
    let got = burst.len();
    for (i, bytes) in frames.iter().enumerate().take(got) {
        let mut frame = burst.frame_mut(i);
        assert!(frame.set_len(bytes.len()), "a buffer takes {} bytes", bytes.len());
        frame.bytes_mut().copy_from_slice(bytes);
        frame.set_verdict(verdict);
    }
    lane.settle(port).expect("the lane settles");
    got
}

/// Sends `frames` by `port` again and again until the lane lends none, since the queue behind it is full; then the run
/// ends. What waited is refused, no more and no less, and the buffers are back. `receive` takes so many frames at the
/// far end, and gives how many there were.
///
/// # Panics
/// If that is not so.
pub fn what_waits_is_refused_at_the_end(
    lane: &mut impl FrameLane,
    port: PortId,
    frames: &[Vec<u8>],
    receive: impl FnOnce(usize) -> usize,
) {
    /// Many times as many as fill any queue.
    const BURSTS_MAX: usize = 100_000_000;
    let before = lane.counters(port);
    let mut given = 0;
    let is_full = (0..BURSTS_MAX).any(|_| {
        let got = lend_and_send(lane, port, frames.len(), frames, Verdict::Tx);
        given += got as u64;
        got == 0
    });
    assert!(is_full, "no queue was full");
    assert_eq!(lane.counters(port).lost(), before.lost(), "what waits is no drop");
    lane.drop_unsent();
    let counted = lane.counters(port).since(&before);
    let refused = counted.drops(DropReason::TxRefused);
    assert_eq!((counted.tx_frames + refused, counted.lost()), (given, refused));
    assert!(refused > 0, "nothing waited");
    let sent = counted.tx_frames as usize;
    assert_eq!(receive(sent), sent);
    assert_ne!(lend_and_send(lane, port, 1, &[], Verdict::Drop), 0, "the buffers are back");
}

/// The counter of a frame built here and not cut before it; nothing for any other frame.
pub fn sequence(frame: &[u8]) -> Option<u64> {
    let payload = is_ours(frame).then(|| frame.get(PAYLOAD_AT..))??;
    let counter = payload.strip_prefix(MARK)?.first_chunk::<8>()?;
    Some(u64::from_be_bytes(*counter))
}

/// True for a frame sent from [`SOURCE_MAC`].
pub fn is_ours(frame: &[u8]) -> bool {
    frame.get(6..12) == Some(&SOURCE_MAC)
}

/// The ones' complement sum of `bytes` as big-endian words, added to `start`.
fn sum(start: u32, bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0)));
    let mut total = words.fold(start, |total, word| total + word);
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// The frames that `lane` receives on `port` until there are `expected` or patience ends, each with
/// its wire length and stamp.
pub fn receive_all(
    lane: &mut impl FrameLane,
    port: PortId,
    expected: usize,
) -> Vec<(Vec<u8>, u32, u64)> {
    receive_shares(std::slice::from_mut(lane), port, expected).remove(0)
}

/// Waits in vain of 20 ms: at least 30 s.
const RETURN_WAITS_MAX: usize = 1500;

/// Receives `expected` frames from a port, patiently, and sends each back by it.
///
/// # Panics
/// When the lane fails, or they do not arrive.
pub fn return_all(lane: &mut impl FrameLane, port: PortId, expected: usize) {
    let mut patience = Patience::new(RETURN_WAITS_MAX);
    let mut returned = 0;
    while returned < expected && !patience.is_over() {
        patience.wait(|| lane.wait(Duration::from_millis(20)).expect("the lane waits"));
        let burst = lane.receive(port).expect("the lane receives");
        if !burst.is_empty() {
            patience.note_arrival();
        }
        returned += burst.len();
        for i in 0..burst.len() {
            burst.set_verdict(i, Verdict::Tx);
        }
        lane.settle(port).expect("the lane settles");
    }
    assert_eq!(returned, expected, "frames received");
}

/// As [`receive_all`], for lanes that share the frames: what each receives until they have `expected`
/// together.
pub fn receive_shares<L: FrameLane>(
    lanes: &mut [L],
    port: PortId,
    expected: usize,
) -> Vec<Vec<(Vec<u8>, u32, u64)>> {
    /// Rounds in vain of 20 ms per lane: at least 30 s, because a busy machine delivers late.
    const EMPTY_MAX: usize = 1500;
    let mut shares: Vec<Vec<_>> = lanes.iter().map(|_| Vec::new()).collect();
    let mut patience: Vec<_> = lanes.iter().map(|_| Patience::new(usize::MAX)).collect();
    let mut empty = 0;
    while shares.iter().map(Vec::len).sum::<usize>() < expected && empty < EMPTY_MAX {
        let before = shares.iter().map(Vec::len).sum::<usize>();
        for ((lane, share), patience) in lanes.iter_mut().zip(&mut shares).zip(&mut patience) {
            let burst = lane.receive(port).expect("the lane receives");
            for i in 0..burst.len() {
                let frame = burst.frame(i);
                share.push((frame.bytes.to_vec(), frame.wire_len, frame.ts_ns));
            }
            if burst.is_empty() {
                let wait = Duration::from_millis(20);
                patience.wait(|| lane.wait(wait).expect("the lane waits"));
            } else {
                patience.note_arrival();
            }
            lane.settle(port).expect("the lane settles");
        }
        empty += usize::from(shares.iter().map(Vec::len).sum::<usize>() == before);
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_its_length_its_counter_and_valid_checksums() {
        for bytes in [FRAME_BYTES_MIN, 64, 65, 1514] {
            let frame =
                UdpFrame { sequence: 0x0102_0304_0506, bytes, ..Default::default() }.build();
            assert_eq!(frame.len(), bytes);
            assert_eq!(sequence(&frame), Some(0x0102_0304_0506));
            assert_eq!(sum(0, &frame[14..34]), 0xffff, "IPv4 header of {bytes}");
            let pseudo = sum(17 + (bytes - 34) as u32, &frame[26..34]);
            assert_eq!(sum(u32::from(pseudo), &frame[34..]), 0xffff, "UDP of {bytes}");
        }
    }

    #[test]
    fn foreign_and_cut_frames_have_no_counter() {
        let frame = UdpFrame::default().build();
        assert_eq!(sequence(&frame[..FRAME_BYTES_MIN - 1]), None);
        let mut foreign = frame;
        foreign[6] ^= 1;
        assert_eq!(sequence(&foreign), None);
        assert_eq!(sequence(&[]), None);
    }
}
