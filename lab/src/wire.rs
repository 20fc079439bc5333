//! The wire of one arm: where its frames come from, where they go to, and what got lost on the way.
//!
//! ```text
//!   cables   generator ── gen0 ═══ sut0 ── arm ── sut1 ═══ gen1 ── far end
//!   taps     generator ── tap0 ─(queue)─ arm ── tap1 ── far end
//!   app echo: one of either, and the far end is where the generator is
//! ```
//!
//! Cables are the bench's and stay. TAP devices are made by the arm itself (DPDK's net_tap), lie in the
//! arm's namespace and go with it, so generator and far end are put there for each trial anew. A tap's
//! wire is the descriptor that the arm reads and writes: no NAPI thread, a queue instead of a ring, and
//! what it refuses is counted as `tx_dropped` of the interface.

use crate::arrivals::{Arrivals, Arrived};
use crate::bench::{Bench, ECHO, WireLosses};
use crate::plan::{App, Peer, SegmentPlan};
use crate::race::RaceError;
use crate::replies::{Replied, Replies};
use crate::returns::Returned;
use crate::testpmd;
use laneway_netns::{Namespace, interface_counters, interface_state};

/// The two interfaces that an arm on TAP devices makes.
pub(crate) const TAPS: [&str; 2] = ["tap0", "tap1"];

/// What an arm's ports are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Ends of the bench's cables.
    Cables,
    /// TAP devices that it makes itself.
    Taps,
}

impl Kind {
    /// Of the arm with this lane spec, or of this peer on this device.
    pub(crate) fn of(peer: Option<Peer>, lane: &str) -> Kind {
        let (name, knobs) = lane.split_once(':').unwrap_or((lane, ""));
        let is_tap = match peer {
            None => name == "dpdk" && knobs.split(',').any(|knob| knob == testpmd::TAP),
            Some(Peer::Testpmd) => name == testpmd::TAP,
            Some(Peer::Stack | Peer::Bridge | Peer::XdpBench) => false,
        };
        if is_tap { Kind::Taps } else { Kind::Cables }
    }
}

/// What came out at the far end; each is `None` where nobody looks for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Came {
    /// Frames that came back, by segment, since the bench was made.
    pub(crate) returned: Option<Returned>,
    /// Echo replies of the segment under way.
    pub(crate) replied: Option<Replied>,
    /// Forwarded frames of the segment under way.
    pub(crate) arrived: Option<Arrived>,
}

/// The wire of an arm that is set up.
pub(crate) struct Wire<'a> {
    bench: &'a Bench,
    taps: Option<FarEnd>,
}

/// The far end of taps.
enum FarEnd {
    /// Of a forwarder: the second tap.
    Forwarded(Arrivals),
    /// Of a responder: the tap that its requests went to.
    Replied(Replies),
}

impl<'a> Wire<'a> {
    /// Lays it to an arm of this kind.
    ///
    /// # Errors
    /// When the far end's program cannot be attached.
    pub(crate) fn lay(bench: &'a Bench, kind: Kind, app: App) -> Result<Wire<'a>, RaceError> {
        let (namespace, _) = bench.sut();
        let taps = match (kind, app) {
            (Kind::Cables, _) => None,
            (Kind::Taps, App::Echo) => {
                bench.lead_to(ECHO, namespace, TAPS[0])?;
                Some(FarEnd::Replied(Replies::attach(namespace, TAPS[0])?))
            }
            (Kind::Taps, _) => {
                let arrivals = Arrivals::attach(namespace, TAPS[1], bench.number_at())?;
                Some(FarEnd::Forwarded(arrivals))
            }
        };
        Ok(Wire { bench, taps })
    }

    /// Where the generator sits: namespace, interface, and its index.
    pub(crate) fn way_in(&self) -> Result<(&'a Namespace, &'static str, u32), RaceError> {
        let (namespace, interface) = match self.taps {
            None => self.bench.generator(),
            Some(_) => (self.bench.sut().0, TAPS[0]),
        };
        let state = namespace.enter(|| interface_state(interface))??;
        Ok((namespace, interface, state.ifindex))
    }

    /// The place of frames that found no room in front of the arm.
    pub(crate) fn ring(&self) -> &'static str {
        if self.taps.is_some() { "tap queue full" } else { "veth ring full" }
    }

    /// Whether the arm's ports are TAP devices.
    pub(crate) fn is_tap(&self) -> bool {
        self.taps.is_some()
    }

    /// Tells the far end what is coming.
    pub(crate) fn expect(&self, plan: &SegmentPlan) -> Result<(), RaceError> {
        match &self.taps {
            None => self.bench.expect(plan),
            Some(FarEnd::Forwarded(arrivals)) => Ok(arrivals.expect(plan)?),
            Some(FarEnd::Replied(replies)) => Ok(replies.expect(plan)?),
        }
    }

    /// What came so far.
    pub(crate) fn came(&self) -> Result<Came, RaceError> {
        match &self.taps {
            None => self.bench.came(),
            Some(FarEnd::Forwarded(arrivals)) => {
                Ok(Came { arrived: Some(arrivals.read()?), ..Came::default() })
            }
            Some(FarEnd::Replied(replies)) => {
                Ok(Came { replied: Some(replies.read()?), ..Came::default() })
            }
        }
    }

    /// What the wire lost so far. Nothing is lost between a tap and its far end: a program takes each
    /// frame over within the system call that writes it.
    pub(crate) fn losses(&self) -> Result<WireLosses, RaceError> {
        if self.taps.is_none() {
            return self.bench.losses();
        }
        let counters = self.bench.sut().0.enter(|| interface_counters(TAPS[0]))??;
        Ok(WireLosses { ring_full: counters.tx_dropped, ..WireLosses::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taps_are_known_by_the_device_whoever_opens_it() {
        for (peer, lane, kind) in [
            (None, "dpdk:net_tap", Kind::Taps),
            (None, "dpdk:burst=256,net_tap", Kind::Taps),
            (None, "dpdk:net_af_xdp", Kind::Cables),
            (None, "packet", Kind::Cables),
            (Some(Peer::Testpmd), "net_tap:burst=32", Kind::Taps),
            (Some(Peer::Testpmd), "net_af_xdp", Kind::Cables),
            (Some(Peer::Bridge), "net_tap", Kind::Cables),
        ] {
            assert_eq!(Kind::of(peer, lane), kind, "{lane}");
        }
    }
}
