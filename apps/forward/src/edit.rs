//! Writing changed fields back into the frame, with the checksums that cover them (RFC 1624).
//!
//! Assumes that the fields were read from these bytes. A checksum is followed, never recomputed: one
//! that was wrong stays wrong by as much. UDP without a checksum stays without; one that becomes zero
//! is written as its other form, 0xffff (RFC 768).

use crate::fields::{Fields, Parsed, at, has};

/// Ones' complement sum of what changed.
#[derive(Clone, Copy, Default)]
struct Change(u64);

impl Change {
    /// Adds the 16-bit words in which `new` differs from `old`; both of even length.
    fn add(&mut self, old: &[u8], new: &[u8]) {
        for (old, new) in old.chunks_exact(2).zip(new.chunks_exact(2)) {
            if old != new {
                let (old, new) =
                    (u16::from_be_bytes([old[0], old[1]]), u16::from_be_bytes([new[0], new[1]]));
                self.0 += u64::from(!old) + u64::from(new);
            }
        }
    }

    /// Follows the change at `at`, if there is any.
    fn follow(self, bytes: &mut [u8], at: usize) {
        if self.0 == 0 {
            return;
        }
        let Some(&[a, b]) = bytes.get(at..at + 2) else { return };
        let checksum = u16::from_be_bytes([a, b]);
        let new = !laneway_wire::checksum::fold(u64::from(!checksum) + self.0);
        bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
    }
}

/// Makes the frame agree with `now` where `before` differs from it.
pub(crate) fn write_back(bytes: &mut [u8], before: &Parsed, now: &Fields) {
    let was = before.fields;
    if was == *now {
        return;
    }
    let mut put = |at: usize, value: &[u8]| {
        if let Some(place) = bytes.get_mut(at..at + value.len()) {
            place.copy_from_slice(value);
        }
    };
    put(0, now.bytes(at::ETH_DST, 6));
    put(6, now.bytes(at::ETH_SRC, 6));
    let (l3, l4) = (before.l3, before.l4);
    let (is_v4, is_v6) = (was.has(has::IPV4), was.has(has::IPV6));
    if is_v4 {
        put(l3 + 8, &[now.u8(at::TTL)]);
        put(l3 + 12, now.bytes(at::SRC_IP + 12, 4));
        put(l3 + 16, now.bytes(at::DST_IP + 12, 4));
    } else if is_v6 {
        put(l3 + 7, &[now.u8(at::TTL)]);
        put(l3 + 8, now.bytes(at::SRC_IP, 16));
        put(l3 + 24, now.bytes(at::DST_IP, 16));
    } else {
        return;
    }
    let has_ports = was.has(has::TCP | has::UDP);
    if has_ports {
        put(l4, now.bytes(at::SRC_PORT, 4));
    }

    // Both addresses stand side by side, and so do both ports.
    let mut addresses = Change::default();
    addresses.add(was.bytes(at::SRC_IP, 32), now.bytes(at::SRC_IP, 32));
    if is_v4 {
        let mut header = addresses;
        let word = |fields: &Fields| [fields.u8(at::TTL), fields.u8(at::PROTO)];
        header.add(&word(&was), &word(now));
        header.follow(bytes, l3 + 10);
    }
    let mut l4_change = addresses;
    if has_ports {
        l4_change.add(was.bytes(at::SRC_PORT, 4), now.bytes(at::SRC_PORT, 4));
    }
    if was.has(has::TCP) {
        l4_change.follow(bytes, l4 + 16);
    } else if was.has(has::ICMP6) {
        l4_change.follow(bytes, l4 + 2);
    } else if was.has(has::UDP) && bytes.get(l4 + 6..l4 + 8) != Some(&[0, 0]) {
        l4_change.follow(bytes, l4 + 6);
        if let Some(checksum) = bytes.get_mut(l4 + 6..l4 + 8)
            && *checksum == [0, 0]
        {
            checksum.fill(0xff);
        }
    }
}

/// True if the IPv4 header, options included, sums up.
pub(crate) fn ipv4_checksum_fits(bytes: &[u8], parsed: &Parsed) -> bool {
    // With has::IPV4, l4 is the end of the header and lies within the bytes.
    bytes.get(parsed.l3..parsed.l4).is_some_and(|header| laneway_wire::checksum::of(header) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_testkit::UdpFrame;
    use laneway_wire::checksum;
    use proptest::prelude::*;

    /// The sums over the IPv4 header and over UDP with its pseudo header, inverted: 0 if right.
    fn sums(frame: &[u8]) -> (u16, u16) {
        let udp = &frame[34..];
        let pseudo = checksum::sum(&frame[26..34]) + 17 + udp.len() as u64;
        (checksum::of(&frame[14..34]), !checksum::fold(pseudo + checksum::sum(udp)))
    }

    proptest! {
        #[test]
        fn checksums_stay_right_whatever_changes(
            sequence: u64, source: [u8; 4], destination: [u8; 4], ports: [u8; 4], ttl in 1u8..
        ) {
            let mut frame = UdpFrame { sequence, bytes: 80, ..UdpFrame::default() }.build();
            let before = Parsed::of(&frame);
            let mut now = before.fields;
            now.set(at::SRC_IP + 12, &source);
            now.set(at::DST_IP + 12, &destination);
            now.set(at::SRC_PORT, &ports);
            now.set(at::TTL, &[ttl]);
            write_back(&mut frame, &before, &now);
            prop_assert_eq!(sums(&frame), (0, 0));
            prop_assert_eq!(Parsed::of(&frame).fields, now);
        }
    }

    #[test]
    fn following_every_change_of_a_word_equals_recomputing() {
        // All 65,536 values of the word that holds time to live and protocol.
        let mut frame = UdpFrame::default().build();
        frame.truncate(34);
        for word in 0..=u16::MAX {
            let mut header = frame[14..34].to_vec();
            header[8..10].copy_from_slice(&word.to_be_bytes());
            header[10..12].fill(0);
            let right = checksum::of(&header);
            let mut change = Change::default();
            change.add(&frame[22..24], &word.to_be_bytes());
            let mut followed = frame[24..26].to_vec();
            change.follow(&mut followed, 0);
            assert_eq!(followed, right.to_be_bytes(), "{word:#06x}");
        }
    }

    #[test]
    fn a_checksum_of_udp_that_becomes_zero_is_written_in_its_other_form() {
        let original = UdpFrame::default().build();
        let before = Parsed::of(&original);
        let mut others = 0;
        for port in 0..=u16::MAX {
            let (mut frame, mut now) = (original.clone(), before.fields);
            now.set(at::SRC_PORT, &port.to_be_bytes());
            write_back(&mut frame, &before, &now);
            assert_ne!(frame[40..42], [0, 0], "port {port}");
            others += usize::from(frame[40..42] == [0xff, 0xff]);
        }
        assert!(others > 0);
    }

    #[test]
    fn udp_without_a_checksum_stays_without() {
        let mut frame = UdpFrame::default().build();
        frame[40..42].fill(0);
        let before = Parsed::of(&frame);
        let mut now = before.fields;
        now.set(at::SRC_PORT, &[1, 2]);
        write_back(&mut frame, &before, &now);
        assert_eq!((&frame[34..36], &frame[40..42]), (&[1, 2][..], &[0, 0][..]));
    }
}
