//! Seeded changes to samples, for where no fuzzer is: not guided by coverage, but the same on every machine.

use std::io;
use std::path::Path;
use std::{fs, iter};

/// Bytes that a mutated sample may have.
const SAMPLE_BYTES_MAX: usize = 64 * 1024;
/// Changes made to one sample, at most.
const CHANGES_MAX: u64 = 8;
/// Values at which length fields go wrong.
const EDGES: [u32; 8] = [0, 1, 0x7f, 0xff, 0xffff, 0x7fff_ffff, 0x8000_0000, u32::MAX];

/// Makes new inputs out of samples.
pub struct Mutator {
    state: u64,
}

impl Mutator {
    /// The inputs depend on the seed and the samples only.
    pub fn new(seed: u64) -> Mutator {
        Mutator { state: seed }
    }

    /// SplitMix64 (Steele, Lea, Flood 2014).
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// One of `samples`, changed in a few places; random bytes if there are no samples.
    pub fn input(&mut self, samples: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = match samples.len() {
            0 => iter::repeat_with(|| self.next() as u8).take(64).collect(),
            count => samples[self.below(count)].clone(),
        };
        bytes.truncate(SAMPLE_BYTES_MAX);
        for _ in 0..=self.next() % CHANGES_MAX {
            self.change(&mut bytes, samples);
        }
        bytes.truncate(SAMPLE_BYTES_MAX);
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, samples: &[Vec<u8>]) {
        let at = self.below(bytes.len() + 1);
        let here = bytes.get_mut(at);
        match (self.next() % 8, here) {
            (0, Some(byte)) => *byte ^= 1 << self.below(8),
            (1, Some(byte)) => *byte = self.next() as u8,
            (2, _) => bytes.truncate(at),
            (3, _) => {
                let run = self.below(16).min(bytes.len() - at);
                bytes.drain(at..at + run);
            }
            (4, _) => bytes.insert(at, self.next() as u8),
            (5, _) => {
                let edge = EDGES[self.below(EDGES.len())];
                let value = if self.next().is_multiple_of(2) {
                    edge.to_le_bytes()
                } else {
                    edge.to_be_bytes()
                };
                let width = (1 << self.below(3)).min(bytes.len() - at);
                bytes[at..at + width].copy_from_slice(&value[..width]);
            }
            (6, _) if !samples.is_empty() => {
                let other = &samples[self.below(samples.len())];
                let from = self.below(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => {
                let run = self.below(32).min(bytes.len() - at);
                bytes.extend_from_within(at..at + run);
            }
        }
    }
}

/// The content of `path`: a file, or all files directly in a folder, in the order of their names.
///
/// # Errors
/// What the system says.
pub fn samples(path: &Path) -> io::Result<Vec<Vec<u8>>> {
    if !path.is_dir() {
        return Ok(vec![fs::read(path)?]);
    }
    let entries = fs::read_dir(path)?.collect::<io::Result<Vec<_>>>()?;
    let mut files: Vec<_> = entries.into_iter().map(|e| e.path()).filter(|p| p.is_file()).collect();
    files.sort();
    files.iter().map(fs::read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_inputs() {
        let samples = [b"one".to_vec(), b"another".to_vec(), Vec::new()];
        let inputs = |seed| {
            let mut mutator = Mutator::new(seed);
            (0..200).map(|_| mutator.input(&samples)).collect::<Vec<_>>()
        };
        assert_eq!(inputs(1), inputs(1));
        assert_ne!(inputs(1), inputs(2));
        assert!(inputs(3).iter().any(|input| input.len() > 7));
    }
}
