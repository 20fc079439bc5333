//! The wire of one arm: where its frames come from, where they go to, and what got lost on the way.
//!
//! ```text
//!   cables          generator ── gen0 ═══ sut0 ── arm ── sut1 ═══ gen1 ── far end
//!   taps            generator ── tap0 ─(queue)─ arm ── tap1 ── far end
//!   shared memory   generator ── memif0 ─(ring)─ arm ── memif1 ─(ring)─ the same process as far end
//!   replies: one of the first two, and the far end is where the generator is; a client's sockets likewise
//! ```
//!
//! Cables are the bench's and stay. TAP devices are made by the arm itself (as DPDK's net_tap does), lie in the
//! arm's namespace and go with it, so generator and far end are put there for each trial anew. A tap's
//! wire is the descriptor that the arm reads and writes: no NAPI thread, a queue instead of a ring, and
//! what it refuses is counted as `tx_dropped` of the interface.
//!
//! Shared memory (as DPDK's net_memif) is reached by a process only, so one of the lab's, the generator's,
//! has the other end of both ports. The arm is the server of both, under the lane's own abstract name,
//! which belongs to the arm's namespace: there is no file to remove, and the memory goes with the two
//! processes.

use crate::addresses::ECHO;
use crate::arrivals::Arrivals;
use crate::bench::FarEndCounts;
use crate::bench::{Bench, WireLosses};
use crate::child_process::ChildProcess;
use crate::error::RaceError;
use crate::plan::{Order, Reply, WayIn};
use crate::replies::Replies;
use crate::result::VETH_RING;
use crate::segment::SegmentPlan;
use laneway_kinds::{AppFacts, Counted, Wiring};
use laneway_netns::{Namespace, interface_counters, interface_state};
use std::time::Duration;

/// The two interfaces that an arm on TAP devices makes.
const TAPS: [&str; 2] = ["tap0", "tap1"];
/// The names of two ports of shared memory, which exist nowhere else.
const MEMIFS: [&str; 2] = ["memif0", "memif1"];
/// Why an app whose packets are counted as it is handed them has no TAP device.
pub(crate) const NO_CABLE: &str =
    "no cable leads to a TAP device: use it with an app that forwards or answers";
/// The way in that needs no lane, in scenarios.
const LIVE: &str = "live";

/// The arm's interfaces, one per port.
pub(crate) fn interfaces(wiring: &Wiring, bench: &Bench, ports: usize) -> Vec<String> {
    let names = match wiring {
        Wiring::Cables => return bench.sut_interfaces(),
        Wiring::Taps => TAPS,
        Wiring::SharedMemory { .. } => MEMIFS,
    };
    names[..ports].iter().map(|&name| name.to_owned()).collect()
}

/// Why an arm of this app cannot have a lane with such ports; `None` if it can.
pub(crate) fn objection(wiring: &Wiring, app: &AppFacts) -> Option<&'static str> {
    match (wiring, app.race.counted) {
        (Wiring::Cables, _) | (_, Counted::Forwarded) => None,
        (Wiring::Taps, Counted::Replies | Counted::Answered) => None,
        (_, Counted::Copies) => {
            Some("copies come out of cables: race it on a lane whose ports are interfaces")
        }
        (Wiring::Taps, _) => Some(NO_CABLE),
        (Wiring::SharedMemory { .. }, _) => Some(
            "no process is at the other end of shared memory: race it with an app that forwards",
        ),
    }
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
    /// Of a server on taps: the client's sockets behind the same tap.
    Asked,
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
        wiring: Wiring,
        app: &AppFacts,
    ) -> Result<Wire<'a>, RaceError> {
        let (namespace, _) = bench.sut();
        let far_end = match (wiring, app.race.counted) {
            (Wiring::Cables, _) => FarEnd::Cables,
            (Wiring::Taps, Counted::Replies) => {
                bench.lead_to(ECHO, namespace, TAPS[0])?;
                FarEnd::Replied(Replies::attach(namespace, TAPS[0], bench.timetable())?)
            }
            (Wiring::Taps, Counted::Answered) => {
                bench.lead_to(ECHO, namespace, TAPS[0])?;
                FarEnd::Asked
            }
            (Wiring::Taps, _) => FarEnd::Forwarded(Arrivals::attach(
                namespace,
                TAPS[1],
                bench.number_at(),
                bench.timetable(),
            )?),
            (Wiring::SharedMemory { other_ends }, _) => FarEnd::Generator(other_ends),
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
            FarEnd::Forwarded(_) | FarEnd::Replied(_) | FarEnd::Asked => TAPS[0],
        };
        if self.bench.is_asked() {
            return Ok(WayIn::Sockets);
        }
        if way != LIVE {
            return Ok(WayIn::Lane { lane: way.to_owned(), interface: interface.to_owned() });
        }
        let ifindex = self.namespace().enter(|| interface_state(interface))??.ifindex;
        Ok(WayIn::Live { ifindex, to_tap: self.is_tap() })
    }

    /// The place of frames that found no room in front of the arm.
    pub(crate) fn ring(&self) -> &'static str {
        match self.far_end {
            FarEnd::Cables => VETH_RING,
            FarEnd::Forwarded(_) | FarEnd::Replied(_) | FarEnd::Asked => "tap queue full",
            FarEnd::Generator(_) => "memif ring full",
        }
    }

    /// Whether the arm's ports are TAP devices.
    pub(crate) fn is_tap(&self) -> bool {
        matches!(self.far_end, FarEnd::Forwarded(_) | FarEnd::Replied(_) | FarEnd::Asked)
    }

    /// Announces the segment to the far end. A generator that is the far end receives its plan anyway.
    pub(crate) fn expect(&self, plan: &SegmentPlan) -> Result<(), RaceError> {
        match &self.far_end {
            FarEnd::Cables => self.bench.expect(plan),
            FarEnd::Forwarded(arrivals) => Ok(arrivals.expect(plan)?),
            FarEnd::Replied(replies) => Ok(replies.expect(plan)?),
            FarEnd::Generator(_) | FarEnd::Asked => Ok(()),
        }
    }

    /// What arrived so far, and what the wire lost so far; a `generator` that is the far end is asked, for at most
    /// `patience`.
    ///
    /// Nothing is lost between a tap and its far end: a program takes each frame over within the system call that
    /// writes it.
    pub(crate) fn look(
        &self,
        generator: &mut ChildProcess,
        patience: Duration,
    ) -> Result<(FarEndCounts, WireLosses), RaceError> {
        let far_end = match &self.far_end {
            FarEnd::Cables => return Ok((self.bench.far_end_counts()?, self.bench.losses()?)),
            FarEnd::Forwarded(arrivals) => {
                let (arrived, trips) = arrivals.read()?;
                FarEndCounts {
                    arrived: Some(arrived),
                    trips: Some(trips),
                    ..FarEndCounts::default()
                }
            }
            FarEnd::Asked => FarEndCounts::default(),
            FarEnd::Replied(replies) => {
                FarEndCounts { replied: Some(replies.read()?), ..FarEndCounts::default() }
            }
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
                let (arrived, trips) = (Some(seen.arrived), Some(seen.trips));
                return Ok((FarEndCounts { arrived, trips, ..FarEndCounts::default() }, losses));
            }
        };
        let counters = self.bench.sut().0.enter(|| interface_counters(TAPS[0]))??;
        Ok((far_end, WireLosses { ring_full: counters.tx_dropped, ..WireLosses::default() }))
    }
}
