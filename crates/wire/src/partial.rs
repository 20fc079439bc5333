//! A checksum that its sender left to a device: Linux's CHECKSUM_PARTIAL, of which a packet socket hears as
//! TP_STATUS_CSUMNOTREADY. The field holds the sum of the pseudo-header, folded and not inverted, to which the device
//! was to add the rest. A virtual device never does.

use crate::{Extensions, IPV6_BYTES, Ipv4, Ipv6, Layer2, be16, checksum, ether_type, protocol};
use core::ops::Range;

/// Where the checksum lies in a TCP and in a UDP header.
const TCP_CHECKSUM_AT: usize = 16;
const UDP_CHECKSUM_AT: usize = 6;

/// A whole packet's layer 4, in bytes from the start of its frame.
struct Layer4 {
    protocol: u8,
    /// Both addresses of the IP header.
    addresses: Range<usize>,
    /// Header and payload, without the frame's padding.
    bytes: Range<usize>,
}

impl Layer4 {
    /// That of an unfragmented packet that states its length.
    fn find(frame: &[u8]) -> Option<Layer4> {
        let Layer2 { ether_type, layer3_at: at, .. } = Layer2::parse(frame).ok()?;
        let packet = frame.get(at..)?;
        match ether_type {
            ether_type::IPV4 => {
                let ip = Ipv4::parse(packet).ok().filter(|ip| !ip.is_fragment())?;
                Some(Layer4 {
                    protocol: ip.protocol,
                    addresses: at + 12..at + 20,
                    bytes: at + ip.header_bytes..at + usize::from(ip.total_bytes),
                })
            }
            ether_type::IPV6 => {
                let ip = Ipv6::parse(packet).ok()?;
                let payload_bytes = usize::from(ip.payload_bytes);
                let behind = packet.get(IPV6_BYTES..)?;
                let mut headers = Extensions::new(ip.next_header, behind, payload_bytes);
                while let Some(header) = headers.step() {
                    if header.ok()?.fragment.is_some() {
                        return None;
                    }
                }
                let end = at + IPV6_BYTES + payload_bytes;
                Some(Layer4 {
                    protocol: headers.next_header(),
                    addresses: at + 8..at + 40,
                    bytes: end - headers.available()..end,
                })
            }
            _ => None,
        }
    }
}

/// A checksum of TCP or UDP that its sender left to a device.
///
/// Found in the first bytes of a frame, which may go on in further buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// Where the field is, in bytes from the start of the frame.
    field: usize,
    /// What it is the checksum of, beside the pseudo-header.
    bytes: Range<usize>,
}

impl Unfinished {
    /// By the headers in `head`; `None` where no checksum is left to a device.
    pub fn find(head: &[u8]) -> Option<Unfinished> {
        let Layer4 { protocol, addresses, bytes } = Layer4::find(head)?;
        let at = match protocol {
            protocol::TCP => TCP_CHECKSUM_AT,
            protocol::UDP => UDP_CHECKSUM_AT,
            _ => return None,
        };
        let addresses = head.get(addresses)?;
        let pseudo = checksum::sum(addresses) + u64::from(protocol) + bytes.len() as u64;
        let field = bytes.start + at;
        if field + 2 > bytes.end || field + 2 > head.len() {
            return None;
        }
        (be16(head, field) == checksum::fold(pseudo)).then_some(Unfinished { field, bytes })
    }

    /// What belongs in the field, by all bytes of the frame: `pieces`, one behind the other. `None` where they end
    /// before the packet does.
    pub fn checksum<'a>(&self, pieces: impl IntoIterator<Item = &'a [u8]>) -> Option<u16> {
        // The field stands for the pseudo-header and is summed with the rest.
        let (mut sum, mut at) = (0, 0);
        for piece in pieces {
            let within = self.bytes.start.saturating_sub(at)..self.bytes.end.saturating_sub(at);
            let within = within.start.min(piece.len())..within.end.min(piece.len());
            let is_odd = (at + within.start).wrapping_sub(self.bytes.start) % 2 == 1;
            let part = checksum::fold(checksum::sum(&piece[within]));
            // Behind an odd number of bytes, each is the other half of its word (RFC 1071, 2).
            sum += u64::from(if is_odd { part.swap_bytes() } else { part });
            at += piece.len();
        }
        // A sum of 0 would say that UDP has none (RFC 768); for TCP 0xffff is the same number.
        match !checksum::fold(sum) {
            _ if at < self.bytes.end => None,
            0 => Some(0xffff),
            sum => Some(sum),
        }
    }

    /// Writes `checksum` into the field of the frame that begins with `head`.
    pub fn write(&self, head: &mut [u8], checksum: u16) {
        head[self.field..self.field + 2].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Finishes the checksum of TCP or UDP in a whole frame whose sender left it to a device, and returns true; the packet
/// is over IPv4 or IPv6, behind at most [`VLAN_TAGS_MAX`](crate::VLAN_TAGS_MAX) tags.
///
/// Only a field that holds the sum of the pseudo-header, and nothing else, is finished. So a frame stays as it is, and
/// false is returned, where the checksum that is left to a device is one inside a tunnel, whose position no packet
/// socket learns, and where it is whole.
///
/// ```
/// use laneway_wire::{checksum, finish_checksum};
///
/// let mut frame = [0; 44];
/// frame[12..14].copy_from_slice(&[8, 0]);
/// frame[14..34].copy_from_slice(&[0x45, 0, 0, 30, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
/// frame[34..].copy_from_slice(&[0, 53, 0, 54, 0, 10, 0, 0, 0xab, 0xcd]);
/// let pseudo = checksum::fold(checksum::sum(&frame[26..34]) + 17 + 10);
/// frame[40..42].copy_from_slice(&pseudo.to_be_bytes());
///
/// assert!(finish_checksum(&mut frame));
/// let pseudo = checksum::sum(&frame[26..34]) + 17 + 10;
/// assert_eq!(checksum::fold(pseudo + checksum::sum(&frame[34..])), 0xffff);
/// assert!(!finish_checksum(&mut frame));
/// ```
pub fn finish_checksum(frame: &mut [u8]) -> bool {
    let Some(left) = Unfinished::find(frame) else { return false };
    let Some(checksum) = left.checksum([&*frame]) else { return false };
    left.write(frame, checksum);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// What a frame's addresses, protocol, length and layer 4 sum up to: 0xffff where the checksum is right.
    fn total(frame: &[u8]) -> u16 {
        let Layer4 { protocol, addresses, bytes } = Layer4::find(frame).unwrap();
        let pseudo = checksum::sum(&frame[addresses]) + u64::from(protocol) + bytes.len() as u64;
        checksum::fold(pseudo + checksum::sum(&frame[bytes]))
    }

    /// A frame with `tags` tags, options or extension headers of `more` times 8 bytes, whose checksum is left to a
    /// device.
    fn unfinished(v6: bool, tcp: bool, tags: usize, more: usize, payload: &[u8]) -> Vec<u8> {
        let mut frame = [2; 12].to_vec();
        for _ in 0..tags {
            frame.extend([0x81, 0, 0, 5]);
        }
        let (number, header_bytes, at) = if tcp { (6, 20, 16) } else { (17, 8, 6) };
        let bytes = header_bytes + payload.len();
        if v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(((more * 8 + bytes) as u16).to_be_bytes());
            frame.extend([if more > 0 { 60 } else { number }, 64]);
            frame.extend((1..33).collect::<Vec<u8>>());
            for left in (0..more).rev() {
                frame.extend([if left > 0 { 60 } else { number }, 0, 1, 4, 0, 0, 0, 0]);
            }
        } else {
            let header = 20 + more * 8;
            frame.extend([8, 0, 0x40 | (header / 4) as u8, 0]);
            frame.extend(((header + bytes) as u16).to_be_bytes());
            frame.extend([0, 0, 0x40, 0, 64, number, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            frame.resize(frame.len() + more * 8, 1);
        }
        let start = frame.len();
        frame.resize(start + header_bytes, 7);
        frame.extend(payload);
        let found = Layer4::find(&frame).unwrap();
        let pseudo = checksum::sum(&frame[found.addresses]) + u64::from(number) + bytes as u64;
        let field = checksum::fold(pseudo).to_be_bytes();
        frame[start + at..start + at + 2].copy_from_slice(&field);
        frame
    }

    #[test]
    fn a_fragment_and_a_checksum_that_is_whole_stay_as_they_are() {
        let mut fragment = unfinished(false, false, 0, 0, b"part");
        fragment[20] = 0x20;
        let before = fragment.clone();
        assert!(!finish_checksum(&mut fragment) && fragment == before);
        let mut whole = unfinished(false, true, 0, 0, b"whole");
        whole[50] ^= 1;
        let before = whole.clone();
        assert!(!finish_checksum(&mut whole) && whole == before);
    }

    #[test]
    fn a_sum_of_nothing_is_written_as_its_other_form() {
        let frame = unfinished(false, false, 0, 0, &[0, 0]);
        let at = frame.len() - 2;
        for number in 0..=u16::MAX {
            let mut frame = frame.clone();
            frame[at..].copy_from_slice(&number.to_be_bytes());
            assert!(finish_checksum(&mut frame));
            assert_ne!(frame[40..42], [0, 0], "{number} says that there is none");
        }
    }

    proptest! {
        #[test]
        fn what_was_left_to_a_device_is_right_afterwards(
            v6: bool, tcp: bool, tags in 0..3usize, more in 0..4usize, padding in 0..20usize,
            payload in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut frame = unfinished(v6, tcp, tags, more, &payload);
            let end = frame.len();
            frame.resize(end + padding, 0xaa);
            let before = frame.clone();
            prop_assert!(finish_checksum(&mut frame));
            prop_assert_eq!(total(&frame), 0xffff);
            let changed = frame.iter().zip(&before).filter(|(now, then)| now != then).count();
            prop_assert!(changed <= 2 && frame[end..] == before[end..]);
            // What is right is the sum of a pseudo-header once in 65,536 times.
            prop_assert!(!finish_checksum(&mut frame) || total(&frame) == 0xffff);
        }

        #[test]
        fn a_frame_in_pieces_has_the_checksum_of_the_whole(
            v6: bool, tcp: bool, payload in proptest::collection::vec(any::<u8>(), 0..200),
            padding in 0..20usize, cuts in proptest::collection::vec(0..200usize, 0..4),
        ) {
            let mut frame = unfinished(v6, tcp, 0, 0, &payload);
            let end = frame.len();
            frame.resize(end + padding, 0xaa);
            let headers = end - payload.len();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| (headers + cut).min(frame.len())).collect();
            cuts.extend([0, frame.len()]);
            cuts.sort_unstable();
            let left = Unfinished::find(&frame[..cuts[1]]).unwrap();
            let checksum = left.checksum(cuts.windows(2).map(|cut| &frame[cut[0]..cut[1]]));
            prop_assert_eq!(left.checksum([&frame[..end - 1]]), None, "it was cut");
            left.write(&mut frame, checksum.unwrap());
            prop_assert_eq!(total(&frame), 0xffff);
        }

        #[test]
        fn no_bytes_panic_it(bytes in proptest::collection::vec(any::<u8>(), 0..120), v6: bool) {
            let mut bytes = bytes;
            let head: &[u8] = if v6 { &[0x86, 0xdd, 0x60] } else { &[8, 0, 0x45] };
            if bytes.len() > 15 {
                bytes[12..15].copy_from_slice(head);
            }
            finish_checksum(&mut bytes);
        }
    }
}
