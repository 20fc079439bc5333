//! The capabilities of a thread: effective, permitted, inheritable, ambient, and the set that bounds them.

use crate::ConfineError;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

/// A privilege that something of ours may need while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Capability {
    /// Binds to ports below `net.ipv4.ip_unprivileged_port_start`.
    NetBindService,
    /// Attaches programs, makes maps of devices, sets priorities above 6 and buffers beyond the host's limit.
    NetAdmin,
    /// Opens packet sockets.
    NetRaw,
    /// Makes maps and loads programs.
    Bpf,
}

impl Capability {
    /// As the manual calls it.
    pub fn name(self) -> &'static str {
        match self {
            Capability::NetBindService => "CAP_NET_BIND_SERVICE",
            Capability::NetAdmin => "CAP_NET_ADMIN",
            Capability::NetRaw => "CAP_NET_RAW",
            Capability::Bpf => "CAP_BPF",
        }
    }

    fn set(self) -> CapabilitySet {
        match self {
            Capability::NetBindService => CapabilitySet::NET_BIND_SERVICE,
            Capability::NetAdmin => CapabilitySet::NET_ADMIN,
            Capability::NetRaw => CapabilitySet::NET_RAW,
            Capability::Bpf => CapabilitySet::BPF,
        }
    }
}

const HINT: &str = "keep all of them, or start with fewer";

/// Keeps of the calling thread's capabilities no others than these.
pub(crate) fn keep(kept: &[Capability]) -> Result<(), ConfineError> {
    let kept = kept.iter().fold(CapabilitySet::empty(), |all, one| all | one.set());
    let failed = |doing| move |error| ConfineError::new(doing, error, HINT);
    let now = capabilities(None).map_err(failed("read the capabilities of a thread"))?;
    // Without SETPCAP the bound stays: what is not permitted is out of reach all the same, since no program that
    // is executed gains any.
    if now.effective.contains(CapabilitySet::SETPCAP) {
        for one in (CapabilitySet::all() - kept).iter() {
            // A kernel that does not know it has none of it.
            if capability_is_in_bounding_set(one).unwrap_or(false) {
                remove_capability_from_bounding_set(one)
                    .map_err(failed("lower the bound of the capabilities"))?;
            }
        }
    }
    clear_ambient_capability_set().map_err(failed("clear the ambient capabilities"))?;
    let kept = kept & now.permitted;
    let sets =
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).map_err(failed("give up capabilities"))?;
    set_no_new_privs(true).map_err(failed("forbid new privileges"))
}
