//! What the kernel drops of the frames that a half sends (`XDP_TX`, redirect).
//!
//! The driver takes such frames in bulks, after the program has returned, so neither the half nor its maps
//! see that one is not taken: the far end's ring is full, the far end of a veth has no XDP program, the
//! frame is longer than the MTU of where it is to leave. The kernel tells tracepoints
//! (`bpf/behind.bpf.c`), and this counts them for the lane's interfaces.
//!
//! A driver that takes less than it was given has no room (`tx_interface_full`); one that takes nothing and says why
//! refuses (`tx_refused`).
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

/// Words of `struct lw_behind`.
const WORDS: usize = 3;

/// The counting programs, attached until this is dropped.
pub(crate) struct Behind {
    programs: Tracing,
    ifindexes: Vec<u32>,
}

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
        let programs = Tracing::attach("lw_behind", OBJECT, &config)?;
        Ok(Behind { programs, ifindexes: ifindexes.to_vec() })
    }

    /// Adds what was dropped until now, wherever it was to leave.
    pub(crate) fn add_to(&self, counters: &mut Counters) {
        self.entries().iter().for_each(|entry| add(entry, counters));
    }

    /// What was dropped until now that was to leave by the interface of this number.
    pub(crate) fn of(&self, ifindex: u32) -> Counters {
        let mut counters = Counters::default();
        let at = self.ifindexes.iter().position(|of_port| *of_port == ifindex);
        if let Some(entry) = at.and_then(|at| self.entries().get(at).copied()) {
            add(&entry, &mut counters);
        }
        counters
    }

    /// By port. Should a read fail, nothing is claimed.
    fn entries(&self) -> Vec<[u64; WORDS]> {
        let sums = self.programs.maps().per_cpu_sums("behind").unwrap_or_default();
        sums.as_chunks().0.to_vec()
    }
}

fn add(&[refused, too_long, full]: &[u64; WORDS], counters: &mut Counters) {
    counters.drop_many(DropReason::TxRefused, refused);
    counters.drop_many(DropReason::TxTooLong, too_long);
    counters.drop_many(DropReason::TxInterfaceFull, full);
}
