//! Other IP addresses in every pass over a capture.
//!
//! Shifting adds k to one 16-bit word of an address and takes it from the next, in ones' complement,
//! so that the sum over the address, and with it every checksum that covers it, stays what it was:
//! right if it was right. A frame without IP in at most two VLAN tags stays as it is.

use laneway_wire::{ETHERNET_BYTES, Ethernet, VLAN_BYTES, ether_type, is_vlan_type};

/// Passes after which addresses come again: k = 0 and k = 65,535 would be the same.
const SHIFTS: u64 = 65_533;

/// Shifts both addresses of `frame` for pass `pass`; the first one, 0, is left alone.
pub(super) fn shift(frame: &mut [u8], pass: u64) {
    if pass == 0 {
        return;
    }
    let Some((source, destination)) = places(frame) else { return };
    let k = (pass % SHIFTS) as u32 + 1;
    for at in [source, destination] {
        if let Some(words) = frame.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>()) {
            shift_words(words, k);
        }
    }
}

/// Where the 4 bytes of either address are that are shifted: an IPv4 address, or bytes 4 to 7 of an
/// IPv6 address (the subnet, so that interface identifiers stay what they are).
fn places(frame: &[u8]) -> Option<(usize, usize)> {
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
    (destination + 4 <= frame.len()).then_some((source, destination))
}

fn shift_words([a0, a1, b0, b1]: &mut [u8; 4], k: u32) {
    let fold = |sum: u32| ((sum & 0xffff) + (sum >> 16)) as u16;
    [*a0, *a1] = fold(u32::from(u16::from_be_bytes([*a0, *a1])) + k).to_be_bytes();
    [*b0, *b1] = fold(u32::from(u16::from_be_bytes([*b0, *b1])) + (!k & 0xffff)).to_be_bytes();
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_testkit::UdpFrame;
    use laneway_wire::checksum;
    use std::collections::HashSet;

    #[test]
    fn every_pass_has_its_own_addresses_and_the_sum_stays() {
        let frame = UdpFrame::default().build();
        let header = ETHERNET_BYTES..ETHERNET_BYTES + 20;
        assert_eq!(checksum::of(&frame[header.clone()]), 0, "it is right to begin with");
        let mut seen = HashSet::new();
        for pass in (0..2_000).chain(65_000..SHIFTS) {
            let mut shifted = frame.clone();
            shift(&mut shifted, pass);
            assert_eq!(checksum::of(&shifted[header.clone()]), 0, "pass {pass}");
            assert_eq!((&shifted[..26], &shifted[34..]), (&frame[..26], &frame[34..]));
            assert_eq!(shifted == frame, pass == 0);
            assert!(seen.insert(shifted[26..34].to_vec()), "pass {pass} comes again");
        }
    }

    #[test]
    fn tagged_and_ipv6_frames_have_their_addresses_found_and_others_stay() {
        let inner = UdpFrame::default().build();
        let mut tagged = inner[..12].to_vec();
        tagged.extend([0x88, 0xa8, 0, 1, 0x81, 0, 0, 2]);
        tagged.extend(&inner[12..]);
        assert_eq!(places(&tagged), Some((34, 38)));
        let mut v6 = vec![0; 54];
        v6[12..14].copy_from_slice(&ether_type::IPV6.to_be_bytes());
        assert_eq!(places(&v6), Some((26, 42)));
        v6.truncate(45);
        for mut other in [v6, vec![0; 60], vec![0; 3]] {
            let before = other.clone();
            shift(&mut other, 7);
            assert_eq!(other, before);
        }
    }
}
