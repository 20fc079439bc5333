//! SYN cookies (RFC 4987, 3.6): the initial sequence number of a SYN-ACK that carries all that a
//! connection needs, so that nothing is kept until its acknowledgement brings the number back.
//!
//! Linux's scheme (`net/ipv4/syncookies.c`), with SipHash and eight segment sizes:
//!
//! ```text
//!   number = H(ends) + (minute << 24) + ((H(ends, peer's number, minute) + index of the MSS) mod 2^24)
//! ```
//!
//! The second hash is the proof: a sender that has not seen the SYN-ACK guesses one number in 2^28. The first
//! one hides the minute, and with the minute on top a later connection between the same ends starts
//! beyond its predecessor. A number is believed for [`LIFETIME_NS`] at most and for a minute at least.
//!
//! What it does not do: it remembers no number that was returned. A peer that sends its acknowledgement
//! again, within the lifetime and after its connection has ended, opens another one.

use crate::{ends::Ends, siphash::SipHasher};
use std::hash::{Hash, Hasher};

/// How long a number may take to come back.
pub(crate) const LIFETIME_NS: u64 = MINUTES_MAX as u64 * MINUTE_NS;
/// Minutes in which a number is believed: the one it was made in, and the next.
const MINUTES_MAX: u32 = 2;
const MINUTE_NS: u64 = 60_000_000_000;
/// Bits below the minute.
const PROOF_BITS: u32 = 24;
const PROOF_MASK: u32 = (1 << PROOF_BITS) - 1;

/// The segment sizes that a number can carry, in bytes; a peer's is rounded down to one of them. The
/// smallest that smoltcp takes; those of a peer that states none (IPv4); of IPv6's smallest MTU; of
/// tunnels; of Ethernet below PPPoE and IPv6, and IPv4; of jumbo frames.
const MSS_BYTES: [u16; 8] = [48, 536, 1220, 1300, 1400, 1440, 1460, 8940];

/// The number of a SYN-ACK that answers a SYN with the number `peer_sequence` and this MSS.
pub(crate) fn make(
    secret: [u64; 2],
    ends: &Ends,
    peer_sequence: u32,
    mss_bytes: u16,
    now_ns: u64,
) -> u32 {
    let index = MSS_BYTES.iter().rposition(|&bytes| bytes <= mss_bytes).unwrap_or(0);
    let minute = minute_of(now_ns);
    let proof = proof(secret, ends, peer_sequence, minute).wrapping_add(index as u32) & PROOF_MASK;
    cover(secret, ends).wrapping_add(minute << PROOF_BITS).wrapping_add(proof)
}

/// The MSS in `cookie`; nothing if it is forged, too old, or another peer's.
pub(crate) fn check(
    secret: [u64; 2],
    ends: &Ends,
    peer_sequence: u32,
    cookie: u32,
    now_ns: u64,
) -> Option<u16> {
    let bare = cookie.wrapping_sub(cover(secret, ends));
    let now = minute_of(now_ns);
    // Only the lowest bits of the minute fit in the number.
    let age = now.wrapping_sub(bare >> PROOF_BITS) & (u32::MAX >> PROOF_BITS);
    if age >= MINUTES_MAX {
        return None;
    }
    let proof = proof(secret, ends, peer_sequence, now.wrapping_sub(age));
    let index = bare.wrapping_sub(proof) & PROOF_MASK;
    MSS_BYTES.get(index as usize).copied()
}

fn minute_of(now_ns: u64) -> u32 {
    (now_ns / MINUTE_NS) as u32
}

/// What the words of a hash are for: with the same secret, no two uses hash the same words.
const COVER: u64 = 1;
const PROOF: u64 = 2;

fn cover(secret: [u64; 2], ends: &Ends) -> u32 {
    let mut hasher = SipHasher::<2, 4>::new(secret);
    ends.hash(&mut hasher);
    hasher.write_u64(COVER);
    hasher.finish() as u32
}

fn proof(secret: [u64; 2], ends: &Ends, peer_sequence: u32, minute: u32) -> u32 {
    let mut hasher = SipHasher::<2, 4>::new(secret);
    ends.hash(&mut hasher);
    hasher.write_u64(PROOF);
    hasher.write_u64(u64::from(peer_sequence) << 32 | u64::from(minute));
    hasher.finish() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, SocketAddr};

    const SECRET: [u64; 2] = [3, 4];

    fn ends(local_port: u16, remote: u32, remote_port: u16) -> Ends {
        Ends {
            local: SocketAddr::new(Ipv4Addr::new(10, 0, 0, 1).into(), local_port),
            remote: SocketAddr::new(Ipv4Addr::from_bits(remote).into(), remote_port),
        }
    }

    proptest! {
        #[test]
        fn a_number_comes_back_with_its_mss_for_a_minute_at_least_and_two_at_most(
            remote: u32, ports: [u16; 2], sequence: u32, mss_bytes: u16, now_ns in 0u64..1 << 60,
            later_ns in 0u64..4 * MINUTE_NS
        ) {
            let ends = ends(ports[0], remote, ports[1]);
            let cookie = make(SECRET, &ends, sequence, mss_bytes, now_ns);
            let got = check(SECRET, &ends, sequence, cookie, now_ns + later_ns);
            if later_ns <= MINUTE_NS {
                prop_assert!(got.is_some());
            }
            if later_ns >= LIFETIME_NS {
                prop_assert_eq!(got, None);
            }
            if let Some(got) = got {
                prop_assert!(got <= mss_bytes.max(MSS_BYTES[0]));
                let next = MSS_BYTES.iter().find(|&&bytes| bytes > got);
                prop_assert!(next.is_none_or(|&next| next > mss_bytes));
            }
        }

        #[test]
        fn a_number_is_worth_nothing_to_others(
            remote: u32, port: u16, sequence: u32, other: u32, now_ns in 0u64..1 << 60
        ) {
            let own = ends(7, remote, port);
            let cookie = make(SECRET, &own, sequence, 1460, now_ns);
            let check = |secret, ends, sequence, cookie| check(secret, &ends, sequence, cookie, now_ns);
            prop_assert_eq!(check(SECRET, own, sequence, cookie), Some(1460));
            let other = other.max(1);
            for foreign in [
                check([4, 3], own, sequence, cookie),
                check(SECRET, ends(7, remote ^ other, port), sequence, cookie),
                check(SECRET, ends(7, remote, port ^ 1), sequence, cookie),
                check(SECRET, ends(8, remote, port), sequence, cookie),
                check(SECRET, own, sequence ^ other, cookie),
                check(SECRET, own, sequence, cookie ^ (1 << 23)),
            ] {
                prop_assert_eq!(foreign, None);
            }
        }
    }

    #[test]
    fn guesses_are_believed_about_once_in_2_to_the_28() {
        let ends = ends(7, 9, 9);
        let guess = |i: u32| check(SECRET, &ends, 5, i.wrapping_mul(0x9e37_79b9), 1 << 50);
        let believed = (0..1 << 20).filter(|&i| guess(i).is_some()).count();
        assert!(believed <= 1, "{believed} of 2^20");
    }

    #[test]
    fn a_later_number_lies_beyond_the_one_before() {
        let ends = ends(7, 9, 9);
        let number = |minute: u64| make(SECRET, &ends, 5, 1460, minute * MINUTE_NS);
        for minute in 0..300 {
            // The proof moves the number by less than two minutes' worth.
            let step = number(minute + 2).wrapping_sub(number(minute));
            assert!((1 << PROOF_BITS..3 << PROOF_BITS).contains(&step), "minute {minute}");
        }
    }
}
