//! Other IP addresses in a frame that is sent again, under checksums that stay as they are.
//!
//! Shifting adds k to one 16-bit word of an address and takes it from the next, in ones' complement, so that the sum
//! over the address, and with it every checksum that covers it, stays what it was: right if it was right.

use crate::{Layer2, Malformed, ether_type};

/// Passes after which addresses come again: k = 0 and k = 65,535 would be the same.
const SHIFTS: u64 = 65_533;
/// Bytes of an address that are shifted.
const SHIFTED_BYTES: usize = 4;

/// Where a frame has the bytes of its addresses that are shifted: an IPv4 address, or bytes 4 to 7 of an IPv6 address
/// (the subnet, so that interface identifiers stay what they are). Offsets count from the start of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShiftedAddresses {
    /// Of the source address.
    pub source_at: u16,
    /// Of the destination address.
    pub destination_at: u16,
}

impl ShiftedAddresses {
    /// Finds them behind up to two VLAN tags; `None` in a frame without IP, or that ends before them.
    pub fn find(frame: &[u8]) -> Option<ShiftedAddresses> {
        let Layer2 { ether_type, layer3_at, .. } = Layer2::parse(frame).ok()?;
        let (source, destination) = match ether_type {
            ether_type::IPV4 => (12, 16),
            ether_type::IPV6 => (8 + 4, 24 + 4),
            _ => return None,
        };
        // Layer 3 begins at most 22 bytes behind the start: nothing is cut off.
        let at = |offset: usize| (layer3_at + offset) as u16;
        let fits = layer3_at + destination + SHIFTED_BYTES <= frame.len();
        fits.then(|| ShiftedAddresses { source_at: at(source), destination_at: at(destination) })
    }

    /// Shifts both addresses of `frame` for pass `pass` over the frames; the first pass, 0, leaves them alone. No two
    /// passes of 65,533 that follow one another give the same addresses.
    ///
    /// # Errors
    /// [`Malformed::Truncated`] for a frame that ends before the addresses; the source may be shifted then.
    pub fn shift(self, frame: &mut [u8], pass: u64) -> Result<(), Malformed> {
        if pass == 0 {
            return Ok(());
        }
        let k = (pass % SHIFTS) as u32 + 1;
        for at in [self.source_at, self.destination_at] {
            let address = frame.get_mut(usize::from(at)..).unwrap_or_default();
            shift_words(address.first_chunk_mut().ok_or(Malformed::Truncated)?, k);
        }
        Ok(())
    }
}

fn shift_words([a0, a1, b0, b1]: &mut [u8; SHIFTED_BYTES], k: u32) {
    let fold = |sum: u32| ((sum & 0xffff) + (sum >> 16)) as u16;
    [*a0, *a1] = fold(u32::from(u16::from_be_bytes([*a0, *a1])) + k).to_be_bytes();
    [*b0, *b1] = fold(u32::from(u16::from_be_bytes([*b0, *b1])) + (!k & 0xffff)).to_be_bytes();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ETHERNET_BYTES, Ipv4, checksum};
    use std::collections::HashSet;
    use std::vec;
    use std::vec::Vec;

    fn udp_frame() -> Vec<u8> {
        let mut frame = vec![0xff; 12];
        frame.extend([0x08, 0x00, 0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0]);
        frame.extend([10, 0, 0, 1, 192, 0, 2, 250, 0x12, 0x34, 0, 53, 0, 8, 0, 0]);
        assert!(Ipv4::seal(&mut frame[ETHERNET_BYTES..]));
        frame
    }

    #[test]
    fn every_pass_has_its_own_addresses_and_the_sum_stays() {
        let frame = udp_frame();
        let header = ETHERNET_BYTES..ETHERNET_BYTES + 20;
        let at = ShiftedAddresses::find(&frame).unwrap();
        let mut seen = HashSet::new();
        for pass in (0..2_000).chain(65_000..SHIFTS) {
            let mut shifted = frame.clone();
            at.shift(&mut shifted, pass).unwrap();
            assert_eq!(checksum::of(&shifted[header.clone()]), 0, "pass {pass}");
            assert_eq!((&shifted[..26], &shifted[34..]), (&frame[..26], &frame[34..]));
            assert_eq!(shifted == frame, pass == 0);
            assert!(seen.insert(shifted[26..34].to_vec()), "pass {pass} comes again");
        }
    }

    #[test]
    fn tagged_and_ipv6_frames_have_their_addresses_found_and_others_have_none() {
        let places = |frame: &[u8]| {
            ShiftedAddresses::find(frame).map(|at| (at.source_at, at.destination_at))
        };
        let mut tagged = udp_frame();
        assert_eq!(places(&tagged), Some((26, 30)));
        tagged.splice(12..12, [0x88, 0xa8, 0, 1, 0x81, 0, 0, 2]);
        assert_eq!(places(&tagged), Some((34, 38)));
        let mut six = vec![0; 54];
        six[12..14].copy_from_slice(&ether_type::IPV6.to_be_bytes());
        assert_eq!(places(&six), Some((26, 42)));
        six.truncate(45);
        for other in [six, vec![0; 60], vec![0; 3]] {
            assert_eq!(places(&other), None);
        }
    }

    #[test]
    fn a_shorter_frame_than_was_looked_at_is_refused() {
        let at = ShiftedAddresses::find(&udp_frame()).unwrap();
        assert_eq!(at.shift(&mut [0; 33], 1), Err(Malformed::Truncated));
        assert_eq!(at.shift(&mut [], 1), Err(Malformed::Truncated));
    }
}
