//! Structs of the lab's programs in the kernel, as words: all of their fields are `u64`.

use laneway_bpf::Loaded;
use laneway_core::{KernelMaps, LaneError};

/// As a program reads them.
pub(crate) fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// The first `count` words of a map with one entry.
///
/// # Errors
/// When the kernel refuses the look-up.
pub(crate) fn words_of(loaded: &Loaded, map: &str, count: usize) -> Result<Vec<u64>, LaneError> {
    let mut words = vec![0; count];
    loaded.maps().visit(map, &mut |_, bytes| {
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_ne_bytes(bytes.try_into().expect("chunks of 8"));
        }
    })?;
    Ok(words)
}
