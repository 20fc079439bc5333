//! What the generator sends: a capture, made ready to be replayed as many flows.
//!
//! A frame of the capture becomes a [`Template`]: its bytes, and where in them a pass over the
//! capture may shift the addresses so that the pass makes new flows. The number of a frame travels
//! in its source MAC, which no feature reads, so the sink can account for every single frame
//! without the traffic being touched where it matters.
//!
//! Shifting adds k to one 16-bit word of an address and takes it from the next, in ones'
//! complement, so every checksum that covers the address stays right. `bpf/generate.bpf.c` does the
//! same in the kernel; a test here compares the two on the shipped capture.

use laneway_pcap::{Capture, CaptureError, LinkType};
use laneway_wire::{ETHERNET_BYTES, Ethernet, VLAN_BYTES, ether_type, is_vlan_type};
use std::path::Path;

/// The longest frame replayed: MTU 1500, Ethernet header, two VLAN tags.
pub(crate) const FRAME_BYTES_MAX: usize = 1522;
/// The largest capture taken into memory.
pub(crate) const CAPTURE_BYTES_MAX: usize = 1 << 30;
/// The most templates; as many entries has the kernel's map.
pub(crate) const TEMPLATES_MAX: usize = 1 << 20;
/// Where addresses may lie: the kernel program checks no further.
const ADDRESS_OFFSET_MAX: usize = 124;

/// A frame ready to be replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    /// The frame from the Ethernet header on.
    pub frame: Vec<u8>,
    /// Offsets of the 4 bytes of source and destination address that a pass shifts; `None` for what
    /// is not IP.
    pub addresses: Option<(u16, u16)>,
}

/// A capture made ready.
#[derive(Clone, Debug)]
pub(crate) struct Replayable {
    /// The frames that can be replayed, in order.
    pub templates: Vec<Template>,
    /// Frames in the capture.
    pub frames: usize,
    /// Mean length of a template, bytes.
    pub mean_frame_bytes: f64,
}

/// Why a capture cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// It cannot be read.
    #[error("{path}: {source}; give another capture with --pcap")]
    Capture {
        /// The file.
        path: String,
        /// Why.
        source: CaptureError,
    },
    /// Nothing in it fits the wire.
    #[error(
        "{path}: none of its {frames} frames can be replayed (Ethernet, captured whole, 14 to \
         {FRAME_BYTES_MAX} bytes); give another capture with --pcap"
    )]
    Nothing {
        /// The file.
        path: String,
        /// Frames in it.
        frames: usize,
    },
    /// More frames than the generator's map holds.
    #[error(
        "{path}: {frames} frames, at most {TEMPLATES_MAX} are replayed; cut it with `editcap -r`"
    )]
    TooMany {
        /// The file.
        path: String,
        /// Frames that fit the wire.
        frames: usize,
    },
}

impl Replayable {
    /// Reads a capture and keeps the frames that fit the wire: Ethernet, captured whole, no longer
    /// than [`FRAME_BYTES_MAX`].
    ///
    /// # Errors
    /// An unreadable capture, or one without a frame that fits.
    pub(crate) fn load(path: &Path) -> Result<Replayable, TrafficError> {
        let name = || path.display().to_string();
        let capture = Capture::load(path, CAPTURE_BYTES_MAX)
            .map_err(|source| TrafficError::Capture { path: name(), source })?;
        let frames = capture.frames().len();
        let templates: Vec<Template> = capture
            .frames()
            .filter(|r| r.link == LinkType::Ethernet && r.wire_len as usize == r.data.len())
            .filter(|r| (ETHERNET_BYTES..=FRAME_BYTES_MAX).contains(&r.data.len()))
            .map(|r| Template::new(r.data))
            .collect();
        if templates.is_empty() {
            return Err(TrafficError::Nothing { path: name(), frames });
        }
        if templates.len() > TEMPLATES_MAX {
            return Err(TrafficError::TooMany { path: name(), frames: templates.len() });
        }
        let bytes: usize = templates.iter().map(|t| t.frame.len()).sum();
        let mean_frame_bytes = bytes as f64 / templates.len() as f64;
        Ok(Replayable { templates, frames, mean_frame_bytes })
    }
}

impl Template {
    /// Looks for the addresses of `frame`.
    pub(crate) fn new(frame: &[u8]) -> Template {
        Template { frame: frame.to_vec(), addresses: addresses(frame) }
    }

    /// Writes frame `number` of `segment`, sent to `destination` in pass `pass`, and returns its
    /// length. `to` must hold the frame.
    pub(crate) fn write(
        &self,
        to: &mut [u8],
        destination: [u8; 6],
        segment: u8,
        number: u32,
        pass: u64,
    ) -> usize {
        let to = &mut to[..self.frame.len()];
        to.copy_from_slice(&self.frame);
        to[..6].copy_from_slice(&destination);
        to[6] = 0x02;
        to[7] = segment;
        to[8..12].copy_from_slice(&number.to_be_bytes());
        if let (Some((source, destination)), true) = (self.addresses, pass > 0) {
            let k = (pass % 65_533) as u32 + 1;
            shift_address(&mut to[usize::from(source)..], k);
            shift_address(&mut to[usize::from(destination)..], k);
        }
        self.frame.len()
    }
}

/// The offsets of the address bytes to shift: an IPv4 address, or bytes 4..8 of an IPv6 address
/// (the subnet, so that interface identifiers stay what they are).
fn addresses(frame: &[u8]) -> Option<(u16, u16)> {
    let mut kind = Ethernet::parse(frame).ok()?.ether_type;
    let mut at = ETHERNET_BYTES;
    for _ in 0..2 {
        if is_vlan_type(kind) {
            let tag = frame.get(at + 2..at + VLAN_BYTES)?;
            kind = u16::from_be_bytes([tag[0], tag[1]]);
            at += VLAN_BYTES;
        }
    }
    let (source, destination) = match kind {
        ether_type::IPV4 => (at + 12, at + 16),
        ether_type::IPV6 => (at + 8 + 4, at + 24 + 4),
        _ => return None,
    };
    let fits = destination + 4 <= frame.len() && destination <= ADDRESS_OFFSET_MAX;
    fits.then_some((source as u16, destination as u16))
}

fn shift_address(bytes: &mut [u8], k: u32) {
    let Some([a0, a1, b0, b1]) = bytes.first_chunk_mut::<4>() else { return };
    let fold = |x: u32| ((x & 0xffff) + (x >> 16)) as u16;
    [*a0, *a1] = fold(u32::from(u16::from_be_bytes([*a0, *a1])) + k).to_be_bytes();
    [*b0, *b1] = fold(u32::from(u16::from_be_bytes([*b0, *b1])) + (!k & 0xffff)).to_be_bytes();
}

/// Segment and number of a frame that a generator sent, from its source MAC as a record's sequence
/// number carries it: segment in bits 32..40, number below.
pub(crate) fn split_number(seq_no: u64) -> (u8, u32) {
    ((seq_no >> 32) as u8, seq_no as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_wire::checksum;

    fn ipv4_udp() -> Vec<u8> {
        let mut frame = vec![0xff; 12];
        frame.extend([0x08, 0x00, 0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0]);
        frame.extend([10, 0, 0, 1, 192, 0, 2, 250, 0x12, 0x34, 0, 53, 0, 8, 0, 0]);
        assert!(laneway_wire::Ipv4::seal(&mut frame[14..]));
        frame
    }

    #[test]
    fn a_pass_makes_new_addresses_and_keeps_the_checksum_right() {
        let template = Template::new(&ipv4_udp());
        assert_eq!(template.addresses, Some((26, 30)));
        let mut seen = std::collections::HashSet::new();
        for pass in [0, 1, 2, 255, 256, 65_532, 65_533] {
            let mut out = [0; 64];
            let len = template.write(&mut out, [2, 0, 0, 0, 0, 9], 3, 7, pass);
            assert_eq!(checksum::of(&out[14..34]), 0, "pass {pass}");
            assert_eq!(out[6..12], [2, 3, 0, 0, 0, 7]);
            assert_eq!(len, 42);
            seen.insert(out[26..34].to_vec());
        }
        // Pass 65,533 shifts by 1 like pass 0 would by none plus one: only it repeats pass 65,533 % 65,533 + 1.
        assert_eq!(seen.len(), 7);
    }

    #[test]
    fn tagged_and_ipv6_frames_have_their_addresses_found() {
        let mut tagged = ipv4_udp();
        tagged.splice(12..12, [0x81, 0x00, 0, 5]);
        assert_eq!(Template::new(&tagged).addresses, Some((30, 34)));
        let mut six = vec![0; 14 + 40];
        six[12..14].copy_from_slice(&[0x86, 0xdd]);
        assert_eq!(Template::new(&six).addresses, Some((26, 42)));
        assert_eq!(Template::new(&[0; 14]).addresses, None);
        assert_eq!(Template::new(&six[..40]).addresses, None);
    }
}
