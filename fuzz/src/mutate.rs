//! Seeded changes to samples, for where no fuzzer is: not guided by coverage, but the same on every machine.

use laneway_random::Random;
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
    random: Random,
}

impl Mutator {
    /// The inputs depend on the seed and the samples only.
    pub fn new(seed: u64) -> Mutator {
        Mutator { random: Random::seeded(seed) }
    }

    /// One of `samples`, changed in a few places; random bytes if there are no samples.
    pub fn input(&mut self, samples: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = match samples.len() {
            0 => iter::repeat_with(|| self.random.draw() as u8).take(64).collect(),
            count => samples[self.random.index(count)].clone(),
        };
        bytes.truncate(SAMPLE_BYTES_MAX);
        for _ in 0..=self.random.draw() % CHANGES_MAX {
            self.change(&mut bytes, samples);
        }
        bytes.truncate(SAMPLE_BYTES_MAX);
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, samples: &[Vec<u8>]) {
        let at = self.random.index(bytes.len() + 1);
        let here = bytes.get_mut(at);
        match (self.random.draw() % 8, here) {
            (0, Some(byte)) => *byte ^= 1 << self.random.index(8),
            (1, Some(byte)) => *byte = self.random.draw() as u8,
            (2, _) => bytes.truncate(at),
            (3, _) => {
                let run = self.random.index(16).min(bytes.len() - at);
                bytes.drain(at..at + run);
            }
            (4, _) => bytes.insert(at, self.random.draw() as u8),
            (5, _) => {
                let edge = EDGES[self.random.index(EDGES.len())];
                let value = if self.random.draw().is_multiple_of(2) {
                    edge.to_le_bytes()
                } else {
                    edge.to_be_bytes()
                };
                let width = (1 << self.random.index(3)).min(bytes.len() - at);
                bytes[at..at + width].copy_from_slice(&value[..width]);
            }
            (6, _) if !samples.is_empty() => {
                let other = &samples[self.random.index(samples.len())];
                let from = self.random.index(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => {
                let run = self.random.index(32).min(bytes.len() - at);
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
