//! What the kernel drops of the frames that a half sends (`XDP_TX`, redirect).
//!
//! The driver takes such frames in bulks, after the program has returned, so neither the half nor its maps
//! see that one is not taken: the far end's ring is full, the far end of a veth has no XDP program, the
//! frame is longer than the MTU of where it is to leave. The kernel tells tracepoints
//! (`bpf/behind.bpf.c`), and this counts them for the lane's interfaces.
//!
//! Assumes that the calling thread is in the network namespace of the interfaces. What must always hold: a
//! frame is counted once, and frames of other interfaces never. What it does not count: what the far end
//! drops after it has taken the frame, and a drop by a driver that tells no tracepoint.

use laneway_bpf::{BpfError, Tracing};
use laneway_core::{ConfigValue, Counters, DropReason, PortMask};
use std::{fs, os::unix::fs::MetadataExt};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/behind.bpf.o"));
/// `LW_BEHIND_PORTS_MAX` of `bpf/behind.bpf.c`.
const PORTS_MAX: usize = PortMask::PORTS_MAX;
/// Its inode is the namespace's number (`ns_common.inum`).
const NAMESPACE: &str = "/proc/thread-self/ns/net";

/// The counting programs, attached until this is dropped.
pub(crate) struct Behind(Tracing);

impl Behind {
    /// Counts from now on for the interfaces of these numbers.
    ///
    /// # Errors
    /// [`BpfError::Os`] without /proc or where the kernel lacks one of the tracepoints; what else the
    /// kernel refuses.
    pub(crate) fn attach(ifindexes: &[u32]) -> Result<Behind, BpfError> {
        let namespace = fs::metadata(NAMESPACE)
            .map_err(|source| BpfError::Os { doing: format!("read {NAMESPACE}"), source })?;
        let mut list = [0u32; PORTS_MAX];
        for (to, ifindex) in list.iter_mut().zip(ifindexes) {
            *to = *ifindex;
        }
        let config = [
            ConfigValue {
                name: "lw_ifindexes",
                bytes: list.iter().flat_map(|ifindex| ifindex.to_ne_bytes()).collect(),
            },
            // The kernel's numbers of namespaces have 32 bits.
            ConfigValue {
                name: "lw_namespace",
                bytes: (namespace.ino() as u32).to_ne_bytes().to_vec(),
            },
        ];
        Tracing::attach("lw_behind", OBJECT, &config).map(Behind)
    }

    /// Adds what was dropped until now.
    pub(crate) fn add_to(&self, counters: &mut Counters) {
        // An array of one entry: should a read fail, nothing is claimed.
        let sums = self.0.maps().per_cpu_sums("behind").unwrap_or_default();
        let [refused, too_long] = sums.try_into().unwrap_or_default();
        counters.drop_many(DropReason::TxRefused, refused);
        counters.drop_many(DropReason::TxTooLong, too_long);
    }
}
