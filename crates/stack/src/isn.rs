//! Initial sequence numbers that cannot be guessed from outside (RFC 6528): a keyed hash of the four ends,
//! plus a clock of 4 us, so that a connection between the same ends starts beyond its predecessor.
//!
//! smoltcp takes no number, only a seed, and makes one from it with a multiplicative generator that
//! can be run backwards: [`seed_for`] gives the seed whose number is the wanted one. Should smoltcp
//! change its generator, numbers are still derived from the keyed hash, and a test of this crate that
//! looks at a SYN-ACK fails.

use crate::siphash::SipHasher;
use std::hash::{Hash, Hasher};

/// smoltcp's generator: state = state * MULTIPLIER + INCREMENT.
const MULTIPLIER: u64 = 0xbb2e_fcec_3c39_611d;
const INCREMENT: u64 = 0x7590_ef39;
/// The multiplier's inverse modulo 2^64.
const INVERSE: u64 = inverse(MULTIPLIER);
/// How far a state is shifted to give a number, when its top three bits are zero.
const SHIFT: u32 = 29;

const fn inverse(odd: u64) -> u64 {
    // Newton's iteration doubles the right bits: 3, 6, 12, 24, 48, 96.
    let mut inverse = odd;
    let mut i = 0;
    while i < 5 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)));
        i += 1;
    }
    inverse
}

/// The number for a connection between `ends` that begins now.
pub(crate) fn initial_sequence(secret: [u64; 2], ends: &impl Hash, now_ns: u64) -> u32 {
    let mut hasher = SipHasher::<2, 4>::new(secret);
    ends.hash(&mut hasher);
    (hasher.finish() as u32).wrapping_add((now_ns / 4000) as u32)
}

/// The seed of an interface whose first number is used up by its IPv4 identification (which must not
/// be zero) and whose second one is `sequence`.
pub(crate) fn seed_for(sequence: u32) -> u64 {
    let back = |state: u64| state.wrapping_sub(INCREMENT).wrapping_mul(INVERSE);
    let states = (0..1u64 << SHIFT).map(|low| back(u64::from(sequence) << SHIFT | low));
    let good = states.into_iter().find(|&first| identification(first) != 0);
    back(good.expect("one state in 65536 gives zero, and neighbouring states differ"))
}

/// The 16-bit number that smoltcp makes of a state.
fn identification(state: u64) -> u16 {
    let number = (state >> (29 - (state >> 61))) as u32;
    (number ^ number >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inverse_is_one() {
        assert_eq!(MULTIPLIER.wrapping_mul(INVERSE), 1);
    }

    #[test]
    fn the_seed_gives_the_wanted_number_second() {
        for sequence in [0, 1, 0x8000_0000, u32::MAX, 123_456_789] {
            let step = |state: u64| state.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
            let first = step(seed_for(sequence));
            assert_ne!(identification(first), 0);
            let second = step(first);
            assert_eq!(second >> 61, 0);
            assert_eq!((second >> SHIFT) as u32, sequence);
        }
    }

    #[test]
    fn numbers_advance_with_time_and_differ_between_ends_and_secrets() {
        let number = |secret, ends: u64, now| initial_sequence([secret, 0], &ends, now);
        assert_eq!(number(1, 1, 4000).wrapping_sub(number(1, 1, 0)), 1);
        assert_ne!(number(1, 1, 0), number(1, 2, 0));
        assert_ne!(number(1, 1, 0), number(2, 1, 0));
    }
}
