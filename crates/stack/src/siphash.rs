//! SipHash, the keyed hash behind everything that strangers may choose: the table of connections,
//! the caps per source and the initial sequence numbers.
//!
//! Aumasson and Bernstein 2012. `SipHasher<1, 3>` is what the standard library uses for its maps;
//! `SipHasher<2, 4>` is the conservative form that RFC 6528 asks for. The standard library's own
//! cannot be given a key, and a simulation must be repeatable.

use std::hash::{BuildHasher, Hasher};

/// A keyed hash of 64-bit words; `C` and `D` are its rounds per word and at the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SipHasher<const C: usize, const D: usize> {
    state: [u64; 4],
    bytes: u8,
}

impl<const C: usize, const D: usize> SipHasher<C, D> {
    pub(crate) fn new(key: [u64; 2]) -> Self {
        let state = [
            key[0] ^ 0x736f_6d65_7073_6575,
            key[1] ^ 0x646f_7261_6e64_6f6d,
            key[0] ^ 0x6c79_6765_6e65_7261,
            key[1] ^ 0x7465_6462_7974_6573,
        ];
        SipHasher { state, bytes: 0 }
    }

    fn compress(&mut self, word: u64) {
        self.state[3] ^= word;
        (0..C).for_each(|_| round(&mut self.state));
        self.state[0] ^= word;
    }
}

impl<const C: usize, const D: usize> Hasher for SipHasher<C, D> {
    /// Words of eight bytes, the last one filled up with zeros: the length of what is hashed here is
    /// fixed, so that this is no ambiguity.
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.compress(word);
        self.bytes = self.bytes.wrapping_add(8);
    }

    #[inline]
    fn finish(&self) -> u64 {
        let mut end = *self;
        end.compress(u64::from(self.bytes) << 56);
        end.state[2] ^= 0xff;
        (0..D).for_each(|_| round(&mut end.state));
        end.state.iter().fold(0, |hash, word| hash ^ word)
    }
}

#[inline]
fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[1]);
    v[0] = v[0].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].rotate_left(32);
}

/// Makes the hashers of a map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keyed(pub(crate) [u64; 2]);

impl BuildHasher for Keyed {
    type Hasher = SipHasher<1, 3>;

    fn build_hasher(&self) -> Self::Hasher {
        SipHasher::new(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_published_values_for_whole_words() {
        // vectors_sip64 of the reference implementation, key 00..0f, message 00.. of 0 and 8 bytes.
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        let mut hasher = SipHasher::<2, 4>::new(key);
        assert_eq!(hasher.finish(), 0x726f_db47_dd0e_0e31);
        hasher.write(&[0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(hasher.finish(), 0x93f5_f579_9a93_2462);
    }
}
