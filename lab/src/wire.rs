//! The wire of one arm: where its frames come from, where they go to, and what got lost on the way.
//!
//! ```text
//!   cables          generator ── gen0 ═══ sut0 ── arm ── sut1 ═══ gen1 ── far end
//!   taps            generator ── tap0 ─(queue)─ arm ── tap1 ── far end
//!   shared memory   generator ── memif0 ─(ring)─ arm ── memif1 ─(ring)─ the same process as far end
//!   app echo: one of the first two, and the far end is where the generator is
//! ```
//!
//! Cables are the bench's and stay. TAP devices are made by the arm itself (DPDK's net_tap), lie in the
//! arm's namespace and go with it, so generator and far end are put there for each trial anew. A tap's
//! wire is the descriptor that the arm reads and writes: no NAPI thread, a queue instead of a ring, and
//! what it refuses is counted as `tx_dropped` of the interface.
//!
//! Shared memory (DPDK's net_memif) is reached by a process only, so one of the lab's, the generator's,
//! has the other end of both ports. The arm is the server of both, under the lane's own abstract name,
//! which belongs to the arm's namespace: there is no file to remove, and the memory goes with the two
//! processes.

use crate::arrivals::{Arrivals, Arrived};
use crate::bench::{Bench, ECHO, WireLosses};
use crate::plan::{App, Order, Peer, Reply, SegmentPlan, WayIn};
use crate::race::RaceError;
use crate::replies::{Replied, Replies};
use crate::returns::Returned;
use crate::testpmd;
use crate::worker::Worker;
use laneway_netns::{Namespace, interface_counters, interface_state};
use std::time::Duration;

/// The two interfaces that an arm on TAP devices makes.
const TAPS: [&str; 2] = ["tap0", "tap1"];
/// DPDK's device for shared memory.
const MEMIF: &str = "net_memif";
/// The names of its two ports, which exist nowhere else.
const MEMIFS: [&str; 2] = ["memif0", "memif1"];
/// The role of the arm, which is there first, and that of its far end.
const ARM_ROLE: &str = "role=server";
const FAR_END_ROLE: &str = "role=client";
/// The way in that needs no lane, in scenarios.
const LIVE: &str = "live";

/// What an arm's ports are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Ends of the bench's cables.
    Cables,
    /// TAP devices that it makes itself.
    Taps,
    /// Shared memory with another process.
    SharedMemory,
}

impl Kind {
    /// Of the arm with this lane spec, or of this peer on this device.
    pub(crate) fn of(peer: Option<Peer>, lane: &str) -> Kind {
        let (name, knobs) = lane.split_once(':').unwrap_or((lane, ""));
        let is_ours_on = |device| {
            peer.is_none() && name == "dpdk" && knobs.split(',').any(|knob| knob == device)
        };
        if is_ours_on(MEMIF) {
            return Kind::SharedMemory;
        }
        match peer {
            None if is_ours_on(testpmd::TAP) => Kind::Taps,
            Some(Peer::Testpmd) if name == testpmd::TAP => Kind::Taps,
            _ => Kind::Cables,
        }
    }

    /// Why an arm of `app` cannot have this lane, which is of this kind; `None` if it can.
    pub(crate) fn objection(self, app: App, lane: &str) -> Option<String> {
        if self != Kind::SharedMemory {
            return None;
        }
        if app != App::Forward {
            let why = "nobody is at the other end of shared memory: race it with app `forward`";
            return Some(why.to_owned());
        }
        let has_role = lane.split([':', ',']).any(|knob| knob == ARM_ROLE);
        (!has_role).then(|| {
            format!("the arm is there first, and its far end comes to it: add `,{ARM_ROLE}`")
        })
    }

    /// The arm's interfaces, one per port.
    pub(crate) fn interfaces(self, bench: &Bench, app: App) -> Vec<String> {
        let names = match self {
            Kind::Cables => return bench.sut_interfaces(),
            Kind::Taps => TAPS,
            Kind::SharedMemory => MEMIFS,
        };
        names[..app.cables()].iter().map(|&name| name.to_owned()).collect()
    }
}

/// The lane at the other ends of an arm's shared memory: the arm's with the other role, so that both agree
/// on everything else, and polling, because it is to be in nobody's way.
fn other_ends(lane: &str) -> String {
    let kept = lane.split(',').filter(|knob| *knob != ARM_ROLE && !knob.starts_with("idle="));
    kept.chain([FAR_END_ROLE, "idle=spin"]).collect::<Vec<_>>().join(",")
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
    far_end: FarEnd,
}

/// Where what the arm sends comes out.
enum FarEnd {
    /// The other end of the bench's cables.
    Cables,
    /// Of a forwarder on taps: the second tap.
    Forwarded(Arrivals),
    /// Of a responder on taps: the tap that its requests went to.
    Replied(Replies),
    /// Of a forwarder on shared memory: the generator's process, on a lane of this spec.
    Generator(String),
}

impl<'a> Wire<'a> {
    /// Lays it to an arm on this lane.
    ///
    /// # Errors
    /// When the far end's program cannot be attached.
    pub(crate) fn lay(
        bench: &'a Bench,
        peer: Option<Peer>,
        lane: &str,
        app: App,
    ) -> Result<Wire<'a>, RaceError> {
        let (namespace, _) = bench.sut();
        let far_end = match (Kind::of(peer, lane), app) {
            (Kind::Cables, _) => FarEnd::Cables,
            (Kind::Taps, App::Echo) => {
                bench.lead_to(ECHO, namespace, TAPS[0])?;
                FarEnd::Replied(Replies::attach(namespace, TAPS[0])?)
            }
            (Kind::Taps, _) => {
                FarEnd::Forwarded(Arrivals::attach(namespace, TAPS[1], bench.number_at())?)
            }
            (Kind::SharedMemory, _) => FarEnd::Generator(other_ends(lane)),
        };
        Ok(Wire { bench, far_end })
    }

    /// Where the generator sits.
    pub(crate) fn namespace(&self) -> &'a Namespace {
        match self.far_end {
            FarEnd::Cables => self.bench.generator().0,
            _ => self.bench.sut().0,
        }
    }

    /// How its frames enter, if they are to do so in this way: [`LIVE`] or the spec of a lane.
    ///
    /// # Errors
    /// When the interface is gone.
    pub(crate) fn way_in(&self, way: &str) -> Result<WayIn, RaceError> {
        let interface = match &self.far_end {
            // Whatever the way: only this one leads there.
            FarEnd::Generator(lane) => {
                let (lane, ports) = (lane.clone(), MEMIFS.map(str::to_owned));
                return Ok(WayIn::BothEnds { lane, ports });
            }
            FarEnd::Cables => self.bench.generator().1,
            FarEnd::Forwarded(_) | FarEnd::Replied(_) => TAPS[0],
        };
        if way != LIVE {
            return Ok(WayIn::Lane { lane: way.to_owned(), interface: interface.to_owned() });
        }
        let ifindex = self.namespace().enter(|| interface_state(interface))??.ifindex;
        Ok(WayIn::Live { ifindex, to_tap: self.is_tap() })
    }

    /// The place of frames that found no room in front of the arm.
    pub(crate) fn ring(&self) -> &'static str {
        match self.far_end {
            FarEnd::Cables => "veth ring full",
            FarEnd::Forwarded(_) | FarEnd::Replied(_) => "tap queue full",
            FarEnd::Generator(_) => "memif ring full",
        }
    }

    /// Whether the arm's ports are TAP devices.
    pub(crate) fn is_tap(&self) -> bool {
        matches!(self.far_end, FarEnd::Forwarded(_) | FarEnd::Replied(_))
    }

    /// Tells the far end what is coming. A generator that is one is told anyway.
    pub(crate) fn expect(&self, plan: &SegmentPlan) -> Result<(), RaceError> {
        match &self.far_end {
            FarEnd::Cables => self.bench.expect(plan),
            FarEnd::Forwarded(arrivals) => Ok(arrivals.expect(plan)?),
            FarEnd::Replied(replies) => Ok(replies.expect(plan)?),
            FarEnd::Generator(_) => Ok(()),
        }
    }

    /// What came so far, and what the wire lost so far; a `generator` that is the far end is asked, for at most
    /// `patience`.
    ///
    /// Nothing is lost between a tap and its far end: a program takes each frame over within the system call that
    /// writes it.
    pub(crate) fn look(
        &self,
        generator: &mut Worker,
        patience: Duration,
    ) -> Result<(Came, WireLosses), RaceError> {
        let came = match &self.far_end {
            FarEnd::Cables => return Ok((self.bench.came()?, self.bench.losses()?)),
            FarEnd::Forwarded(arrivals) => {
                Came { arrived: Some(arrivals.read()?), ..Came::default() }
            }
            FarEnd::Replied(replies) => Came { replied: Some(replies.read()?), ..Came::default() },
            FarEnd::Generator(_) => {
                generator.order(&Order::Report)?;
                let Reply::FarEnd(seen) = generator.reply(patience)? else {
                    return Err(generator.failed("it answered out of turn"));
                };
                let losses = WireLosses {
                    ring_full: seen.ring_full,
                    return_receive: seen.receive,
                    ..WireLosses::default()
                };
                return Ok((Came { arrived: Some(seen.arrived), ..Came::default() }, losses));
            }
        };
        let counters = self.bench.sut().0.enter(|| interface_counters(TAPS[0]))??;
        Ok((came, WireLosses { ring_full: counters.tx_dropped, ..WireLosses::default() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wire_is_known_by_the_device_whoever_opens_it() {
        for (peer, lane, kind) in [
            (None, "dpdk:net_tap", Kind::Taps),
            (None, "dpdk:burst=256,net_tap", Kind::Taps),
            (None, "dpdk:net_memif,role=server", Kind::SharedMemory),
            (None, "dpdk:burst=256,net_memif", Kind::SharedMemory),
            (None, "dpdk:net_af_xdp", Kind::Cables),
            (None, "packet", Kind::Cables),
            (Some(Peer::Testpmd), "net_tap:burst=32", Kind::Taps),
            (Some(Peer::Testpmd), "net_af_xdp", Kind::Cables),
            (Some(Peer::Bridge), "net_tap", Kind::Cables),
        ] {
            assert_eq!(Kind::of(peer, lane), kind, "{lane}");
        }
    }

    #[test]
    fn an_arm_on_shared_memory_is_a_forwarder_and_the_server() {
        let objection = |app, lane: &str| Kind::of(None, lane).objection(app, lane);
        assert_eq!(objection(App::Forward, "dpdk:net_memif,role=server,burst=32"), None);
        assert_eq!(objection(App::Count, "dpdk:net_tap"), None);
        let why = objection(App::Count, "dpdk:net_memif,role=server").expect("nobody is there");
        assert!(why.contains("app `forward`"), "{why}");
        let why = objection(App::Forward, "dpdk:net_memif").expect("nobody is there to come to");
        assert!(why.contains("add `,role=server`"), "{why}");
    }

    #[test]
    fn the_other_ends_of_shared_memory_agree_on_everything_but_the_role_and_poll() {
        for (arm, other) in [
            ("dpdk:net_memif,role=server", "dpdk:net_memif,role=client,idle=spin"),
            (
                "dpdk:net_memif,rxd=512,idle=block,role=server,socket=@a,id=7",
                "dpdk:net_memif,rxd=512,socket=@a,id=7,role=client,idle=spin",
            ),
        ] {
            assert_eq!(other_ends(arm), other);
        }
    }
}
