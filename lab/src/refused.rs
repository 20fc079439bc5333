//! How many datagrams were in the packets that the rings of far ends refused: `bpf/refused.bpf.c`, which hears of every
//! packet that the kernel frees unused. veth counts packets (`tx_dropped`), and a train of datagrams is one.
//!
//! One for all benches of a race: an interface is known by its network namespace and its number there. It costs a look
//! at the reason for each packet that the far end drops, a train or a frame of its own alike.

use crate::error::RaceError;
use laneway_bpf::Tracing;
use laneway_core::{KernelMaps, LaneError};

/// The compiled program.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/refused.bpf.o"));

/// The attached program.
pub(crate) struct Refused {
    tracing: Tracing,
}

impl Refused {
    /// Attaches it; it watches no interface yet.
    ///
    /// # Errors
    /// Missing privilege (CAP_BPF, CAP_PERFMON) or kernel support (BTF).
    pub(crate) fn attach() -> Result<Refused, RaceError> {
        Ok(Refused { tracing: Tracing::attach("refused", OBJECT, &[])? })
    }

    /// Watches an interface, known as the meter knows it: by the inode of its network namespace, and its number there.
    ///
    /// # Errors
    /// When the kernel refuses the map update: there is room for 256, and none is forgotten.
    pub(crate) fn watch(&self, key: (u32, u32)) -> Result<(), LaneError> {
        self.tracing.maps().put("refused", &bytes(key), &[0; 16])
    }

    /// Datagrams beyond the first of each packet that this interface's ring refused since it is watched.
    ///
    /// # Errors
    /// When the kernel refuses the look-up.
    pub(crate) fn behind_the_first(&self, key: (u32, u32)) -> Result<u64, LaneError> {
        let wanted = bytes(key);
        let mut rest = 0;
        self.tracing.maps().visit("refused", &mut |key, value| {
            let word = |at: usize| {
                let bytes = value.get(at * 8..at * 8 + 8).and_then(|bytes| bytes.try_into().ok());
                bytes.map_or(0, u64::from_ne_bytes)
            };
            if key == wanted {
                rest = word(1) - word(0).min(word(1));
            }
        })?;
        Ok(rest)
    }
}

/// An interface as the program knows it.
fn bytes((netns_inode, ifindex): (u32, u32)) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&netns_inode.to_ne_bytes());
    bytes[4..].copy_from_slice(&ifindex.to_ne_bytes());
    bytes
}
