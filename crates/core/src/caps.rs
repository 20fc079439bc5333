//! Capabilities: what a lane was asked for and what it obtained.
//!
//! Silent fallback (native to generic XDP, zero copy to copy) is the commonest cause of "why is it
//! slow". So a capability that was asked for and not obtained fails the run, unless the spec allows
//! its absence by name: `afxdp:zero-copy,allow=zero-copy`.

use crate::LaneError;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, ops::Not};

macro_rules! caps {
    ($($(#[doc = $doc:literal])+ $variant:ident = $bit:literal $name:literal,)+) => {
        /// One capability of a lane.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[repr(u8)]
        pub enum Cap { $($(#[doc = $doc])+ #[serde(rename = $name)] $variant = $bit,)+ }

        impl Cap {
            /// Every capability.
            pub const ALL: &[Cap] = &[$(Cap::$variant),+];

            /// The name used in specs and results.
            pub fn name(self) -> &'static str {
                match self { $(Cap::$variant => $name),+ }
            }
        }
    };
}

caps! {
    /// The XDP program runs in the driver, before a socket buffer is made.
    NativeXdp = 0 "native-xdp",
    /// Frames are not copied between kernel and user memory.
    ZeroCopy = 1 "zero-copy",
    /// Frames longer than one buffer are received and sent.
    MultiBuffer = 2 "multi-buffer",
    /// The kernel says when it needs a wake-up call, so that busy rings cost no system call.
    NeedWakeup = 3 "need-wakeup",
    /// The worker drives the receive queue itself (preferred busy poll).
    BusyPoll = 4 "busy-poll",
    /// Receive time stamps come from the kernel or device, not from the lane.
    KernelTimestamps = 5 "kernel-timestamps",
    /// The lane can transmit.
    Transmit = 6 "transmit",
    /// Frames may go from port to port without a copy in user space.
    SharedMemory = 7 "shared-memory",
    /// One send call carries a train of datagrams, cut by the kernel or the device (UDP_SEGMENT).
    Gso = 8 "gso",
    /// Received datagrams of one sender arrive as a train (UDP_GRO).
    Gro = 9 "gro",
    /// Several workers share one address, the kernel spreads flows over them (SO_REUSEPORT).
    ReusePort = 10 "reuseport",
    /// The socket buffers are as large as asked for.
    SocketBuffers = 11 "socket-buffers",
    /// One request keeps receiving or accepting (io_uring multishot).
    Multishot = 12 "multishot",
    /// Sends read the user's memory in place (io_uring SEND_ZC).
    SendZeroCopy = 14 "send-zc",
    /// One request fills or empties several buffers (io_uring bundles).
    Bundle = 15 "bundle",
    /// Packet memory lies in huge pages.
    HugePages = 16 "hugepages",
    /// The device wakes a blocked worker.
    RxInterrupt = 17 "rx-interrupt",
    /// The device computes and checks checksums.
    ChecksumOffload = 18 "checksum-offload",
}

/// A set of capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Cap>", into = "Vec<Cap>")]
pub struct CapSet(u32);

impl CapSet {
    /// Adds `cap`.
    #[must_use]
    pub fn with(self, cap: Cap) -> Self {
        CapSet(self.0 | 1 << cap as u8)
    }

    /// Adds `cap` if `yes`.
    #[must_use]
    pub fn with_if(self, cap: Cap, yes: bool) -> Self {
        if yes { self.with(cap) } else { self }
    }

    /// True when `cap` is in the set.
    pub fn has(self, cap: Cap) -> bool {
        self.0 & (1 << cap as u8) != 0
    }

    /// The capabilities of this set that `other` lacks.
    #[must_use]
    pub fn minus(self, other: CapSet) -> Self {
        CapSet(self.0 & !other.0)
    }

    /// The capabilities in the set.
    pub fn iter(self) -> impl Iterator<Item = Cap> {
        Cap::ALL.iter().copied().filter(move |&cap| self.has(cap))
    }
}

impl From<Vec<Cap>> for CapSet {
    fn from(caps: Vec<Cap>) -> Self {
        caps.into_iter().fold(CapSet::default(), CapSet::with)
    }
}

impl From<CapSet> for Vec<Cap> {
    fn from(set: CapSet) -> Self {
        set.iter().collect()
    }
}

/// Memory that the kernel holds for a port without counting it for the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelMemory {
    /// Pinned memory, such as a UMEM: what of it VmLck has depends on the limits of the process.
    pub pinned_bytes: u64,
    /// Ring buffers of eBPF programs, on all CPUs together.
    pub bpf_bytes: u64,
    /// Receive queues and rings of sockets.
    pub socket_bytes: u64,
}

/// What one port was asked for and what it obtained; part of every result file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapsReport {
    /// What people call the port, where it was given a name; its number is of no use where ports come and go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Asked for by the spec (or by the lane's documented default).
    pub requested: CapSet,
    /// Obtained from the kernel or device.
    pub obtained: CapSet,
    /// Requested capabilities whose absence the spec allows by name.
    pub allowed_missing: CapSet,
    /// The receive queue that the port is bound to, or the first of several; none without queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<u32>,
    /// An XDP program redirects frames to the port; driver and socket both count a failed redirect.
    #[serde(default, skip_serializing_if = "<&bool as Not>::not")]
    pub by_redirect: bool,
    /// The port's socket has the kernel put fragments together before it sees them.
    #[serde(default, skip_serializing_if = "<&bool as Not>::not")]
    pub joins_fragments: bool,
    /// Memory outside of the process, as granted.
    #[serde(default)]
    pub kernel_memory: KernelMemory,
    /// Figures that were granted, as read back, to be printed: ring sizes, buffer bytes, fan-out.
    pub facts: BTreeMap<String, String>,
    /// What must be known before the port's figures are read: one sentence each, without a full stop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl CapsReport {
    /// Records a figure that was read back.
    pub fn fact(&mut self, name: &str, value: impl ToString) {
        self.facts.insert(name.to_owned(), value.to_string());
    }

    /// Requested capabilities that were not obtained, allowed or not.
    pub fn missing(&self) -> CapSet {
        self.requested.minus(self.obtained)
    }

    /// Refuses a port that did not obtain what was asked for, unless its absence was allowed. `needs`
    /// names what has a capability, where the lane knows: `Linux 6.10`.
    ///
    /// # Errors
    /// [`LaneError::CapMissing`] naming the first capability.
    pub fn admit(
        &self,
        lane: &str,
        needs: impl FnOnce(Cap) -> Option<&'static str>,
    ) -> Result<(), LaneError> {
        match self.missing().minus(self.allowed_missing).iter().next() {
            Some(cap) => {
                Err(LaneError::CapMissing { lane: lane.to_owned(), cap, needs: needs(cap) })
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_capability_is_refused_unless_allowed_by_name() {
        let mut report = CapsReport {
            requested: CapSet::default().with(Cap::ZeroCopy).with(Cap::NeedWakeup),
            obtained: CapSet::default().with(Cap::NeedWakeup),
            ..CapsReport::default()
        };
        let refusal = report.admit("afxdp", |_| None).unwrap_err().to_string();
        assert!(refusal.contains("zero-copy"), "{refusal}");
        let named = report.admit("afxdp", |_| Some("a device")).unwrap_err().to_string();
        assert!(named.contains("not obtained (it needs a device);"), "{named}");
        report.allowed_missing = CapSet::default().with(Cap::ZeroCopy);
        assert!(report.admit("afxdp", |_| None).is_ok());
        assert_eq!(report.missing().iter().collect::<Vec<_>>(), [Cap::ZeroCopy]);
    }
}
