//! What an app decides per frame: XDP's return codes plus fan-out.

/// One port of a lane. Those that it was opened with are numbered from 0 in the order they were given;
/// those that come later have numbers that none had before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u32);

impl PortId {
    /// The most ports that a lane may have at a time; one of frames has [`PortMask::PORTS_MAX`].
    pub const OPEN_MAX: usize = 1 << 14;

    /// The place, in a per-port array, of a port that its lane was opened with.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A set of ports of a lane of frames, one bit per [`PortId`]: so at most 32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortMask(pub u32);

impl PortMask {
    /// The most ports a lane of frames may have.
    pub const PORTS_MAX: usize = 32;

    /// Every port below `ports`, without `except` (the flooding set of a bridge).
    pub fn all_but(ports: usize, except: PortId) -> Self {
        let all = if ports >= Self::PORTS_MAX { u32::MAX } else { (1u32 << ports) - 1 };
        PortMask(all & !1u32.checked_shl(except.0).unwrap_or(0))
    }

    /// The ports of the set, lowest first.
    pub fn iter(self) -> impl Iterator<Item = PortId> {
        (0..32).filter(move |bit| self.0 & (1 << bit) != 0).map(PortId)
    }
}

/// What happens to a frame when its burst is settled.
///
/// `Drop` is the default of a received burst: an app that says nothing consumes what it saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// The app has consumed the frame; the lane may reuse its memory.
    #[default]
    Drop,
    /// Give it to the kernel's stack. Lanes that see a copy do nothing: the kernel has the original.
    Pass,
    /// Send it out of the port that received it (for a burst to be filled, of the port that lends it).
    Tx,
    /// Send it out of another port of the same lane.
    TxTo(PortId),
    /// Send the same bytes out of every port of the set.
    Fanout(PortMask),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flooding_set_leaves_out_the_ingress() {
        let set = PortMask::all_but(3, PortId(1));
        assert_eq!(set.iter().collect::<Vec<_>>(), [PortId(0), PortId(2)]);
        assert_eq!(PortMask::all_but(32, PortId(31)).0, u32::MAX >> 1);
    }

    #[test]
    fn a_verdict_stays_small() {
        assert_eq!(size_of::<Verdict>(), 8);
    }
}
