//! The Internet checksum: computing it (RFC 1071) and following an edit (RFC 1624).

/// Ones' complement sum of `bytes`, not yet folded or inverted; an odd last byte counts as the high
/// half of a word. Sums of parts of even length may be added.
pub fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(4);
    let tail = words.remainder();
    let mut sum = 0u64;
    for word in words {
        if let &[a, b, c, d] = word {
            sum += u64::from(u32::from_be_bytes([a, b, c, d]));
        }
    }
    let mut last = [0u8; 4];
    last[..tail.len()].copy_from_slice(tail);
    sum + u64::from(u32::from_be_bytes(last))
}

/// Folds a sum to 16 bits, carries added at the end.
pub fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The checksum of `bytes`; 0 over bytes that contain a correct one.
pub fn of(bytes: &[u8]) -> u16 {
    !fold(sum(bytes))
}

/// The checksum after the 16-bit word `old` was replaced by `new` (RFC 1624, equation 3). Exact for
/// every value; the shorter `+` form of RFC 1141 goes wrong at 0xffff.
pub fn replace(checksum: u16, old: u16, new: u16) -> u16 {
    !fold(u64::from(!checksum) + u64::from(!old) + u64::from(new))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_rfc_1071() {
        assert_eq!(fold(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7])), 0xddf2);
    }

    proptest! {
        #[test]
        fn an_edit_followed_equals_an_edit_recomputed(
            mut words in proptest::collection::vec(any::<u16>(), 2..32), at in any::<usize>(), new in any::<u16>()
        ) {
            let at = at % words.len();
            // All-zero data has two checksums; real headers are never all zero.
            prop_assume!(words.iter().enumerate().any(|(i, &w)| i != at && w != 0));
            let bytes = |w: &[u16]| w.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<u8>>();
            let before = of(&bytes(&words));
            let old = core::mem::replace(&mut words[at], new);
            prop_assert_eq!(replace(before, old, new), of(&bytes(&words)));
        }
    }

    extern crate std;
    use std::vec::Vec;
}
