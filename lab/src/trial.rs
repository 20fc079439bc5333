//! One trial: a fresh arm and a fresh generator, which stay alive for a generation of the race, and what was
//! measured of the arm meanwhile.
//!
//! ```text
//!   parked ─▶ unpark ─▶ before ─▶ [ meter ── t0 ── frames on schedule ── last ── drain ── meter ] ─▶ after ─▶ park
//!                       counters   └───────────────── window ─────────────────────────────────┘      counters
//! ```
//!
//! Other arms of the race are alive at the same time, each on its own cables, and parked: one arm at a time is offered
//! a load, so what runs within a window runs for that arm, or for programs that are no part of the race, whose time is
//! not booked.
//!
//! A trial that is traced ([`TrialPlan::trace`]) is one of its own, behind the last generation: a fresh arm, one load,
//! offered once. So no process that is measured ever had a recorder, and nothing of its figures is compared.
//!
//! A trial of an app whose replies are counted has more: a search for the highest rate that comes through, in short
//! segments of the same kind, and the machine's own `ping`, with nothing else sent and beside a load.
//!
//! Counters are read outside of windows, and the load beside `ping` is not measured.

mod ledger;
mod walk;
mod window;

use crate::bench::Bench;
use crate::error::RaceError;
use crate::meter::Usage;
use crate::ping::PingTrial;
use crate::plan::{TraceEnd, TracePlan};
use crate::result::{Cpu, Disturber, GeneratorReport, Ledger, Resent, Segment};
use crate::round_trips::RoundTrips;
use crate::scenario::{CapacityPlan, PingPlan};
use crate::segment::{Plant, SegmentSeen};
use crate::tables::Tables;
use crate::traffic::{Sending, TrafficPlan};
use laneway_core::{CapsReport, DropReason};
use laneway_kinds::{AppFacts, Counted, Peer};
use laneway_stats::Latency;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use walk::{Offered, Walk, ping_order};
pub(crate) use walk::{schedule, start_arm};
use window::Ending;

/// From the order to the first frame: the sink hears of a segment at its next tick, 10 ms away at
/// most, and says so.
pub(crate) const LEAD_NS: u64 = 30_000_000;
/// The window opens this long before the first frame.
const OPEN_NS: u64 = 2_000_000;
/// From the last frame to the end of the window, unless more is queued: what is, is still handled in it.
const DRAIN: Duration = Duration::from_millis(15);
/// The end of the drain, in which an arm that does not poll shows whether it still has something to do.
const IDLE_LOOK: Duration = Duration::from_millis(3);
/// From the start of a generator to the first counters.
const BEGIN: Duration = Duration::from_millis(30);
/// Between two looks at an arm that is settling.
const SETTLE_STEP: Duration = Duration::from_millis(10);
/// Times pings are sent again because they were disturbed.
const PING_RETRIES_MAX: usize = 3;
/// Looks at an arm that does not settle.
const SETTLE_STEPS_MAX: usize = 200;
/// Times that an arm which has settled is looked at again because frames are missing: the thread that delivers
/// them may have lost its CPU on the way, and get it back behind others.
const MISSING_LOOKS_MAX: usize = 12;
/// What is added to a segment's own length before a silent child is given up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// What an AF_XDP socket counts when a redirect into it fails.
const REDIRECT_LOSSES: [DropReason; 3] =
    [DropReason::RxQueueFull, DropReason::RxNoFrame, DropReason::RxError];
/// Asked for to see how fast a generator can be, and for how long at that rate.
const TOP_PPS: u64 = 20_000_000;
/// Of how many short closed loops the fastest is what an arm answers: another program beside one only slows it down.
const CLOSED_TRIES: usize = 5;
const TOP_LENGTH: Duration = Duration::from_millis(50);
/// By how many the replacements of an arm that were in vain may exceed those that were of use, before another one:
/// what a generator can never keep is not offered twice each time.
const IN_VAIN_MAX: u32 = 1;
/// How long a closed loop of so many requests may take.
const COUNTED_MAX: Duration = Duration::from_secs(600);
/// How long a rate is offered to see whether it is kept.
const KEPT_LENGTH: Duration = Duration::from_millis(300);
/// The next lower rate tried: this share of one that was not kept.
pub(crate) const KEPT_SHARE: f64 = 0.85;
/// Rates offered in search of it.
const KEPT_RATES_MAX: usize = 8;
/// Times that each is offered: what disturbed it may be gone the next time.
const KEPT_TRIES: usize = 4;
/// How much longer than real pings should take the load beside them lasts: so much times, and so much
/// more. Beside a generator that spins they are late.
const PING_LOAD_STRETCH: f64 = 1.3;
const PING_LOAD_MORE: Duration = Duration::from_millis(500);
/// Frames that the kernel hands to a device at once when a program redirects them
/// (`DEV_MAP_BULK_SIZE`).
const BULK_FRAMES_MAX: u64 = 16;
/// The place of those that went with the one that found no room.
const REST_OF_BULK: &str = "tap queue full: rest of the bulk";
/// Datagrams that the kernel merges into one at most (`UDP_GRO_CNT_MAX`).
const TRAIN_DATAGRAMS_MAX: u64 = 64;
/// The place of those that went with the one that found no room in the socket's queue.
const REST_OF_TRAIN: &str = "rx_queue_full: rest of the train";
/// The place of fragments that DPDK's af_packet device does not see one by one.
const JOINED: &str = "fragments joined by the device's fan-out";
/// The place of what a peer lost without a counter.
const UNCOUNTED: &str = "peer: lost without a counter";
/// The place of what the arm sent back, but not as it had come.
const CHANGED: &str = "returned changed";
/// The places of what found no room behind the arm: in the ring of the far end, or in the interface's queue.
const RETURN_RING: &str = "return ring full";
const RETURN_QUEUE: &str = "queue of the interface full";
/// How far the meter's parts may be from the whole.
const CLOSURE_ERROR_MAX: f64 = 0.03;
/// How much softirq and interrupt time of unknown cause may stand beside arm and generator, as a share of theirs;
/// 0.4 % is usual beside a compile job.
const UNATTRIBUTED_MAX: f64 = 0.05;
/// How much of a window the hypervisor may take one CPU away. It is known in ticks, of 10 ms nearly everywhere, so
/// that a smaller share of a short window cannot be distinguished from none.
const STEAL_MAX: f64 = 0.25;
/// Foreign programs named when they disturb.
const NAMED_MAX: usize = 3;
/// Echo requests are sent one by one up to this rate, and in bursts at it beyond: a round trip is to
/// be that of a request, not of the burst it is in.
const ECHO_BURSTS_PER_S_MAX: u64 = 50_000;

/// What a trial is to do.
pub(crate) struct TrialPlan<'a> {
    /// Index of the arm.
    pub(crate) arm: usize,
    /// Its name.
    pub(crate) name: &'a str,
    /// The apps and lanes that may be named.
    pub(crate) tables: &'a dyn Tables,
    /// What it does.
    pub(crate) app: AppFacts,
    /// The arguments of the app, besides those that state where it is.
    pub(crate) arguments: &'a [String],
    /// The foreign program, if it is one.
    pub(crate) peer: Option<Peer>,
    /// False of a program that receives and does not say how much.
    pub(crate) counts: bool,
    /// No output of it is limited, whatever the fan-out says.
    pub(crate) is_unlimited: bool,
    /// What a client asks, it asks by datagrams.
    pub(crate) is_by_datagrams: bool,
    /// Its lane spec.
    pub(crate) lane: &'a str,
    /// Its planted fault.
    pub(crate) plant: Plant,
    /// The generation it belongs to.
    pub(crate) generation: usize,
    /// What is sent, and when.
    pub(crate) sending: &'a Sending,
    /// How frames enter the wire.
    pub(crate) way: &'a str,
    /// Frames per burst.
    pub(crate) burst: u32,
    /// Offered loads.
    pub(crate) loads_pps: &'a [u64],
    /// The last of them is no schedule: as many frames, as fast as the generator can.
    pub(crate) topspeed: bool,
    /// The last of them is a closed loop of a client's.
    pub(crate) closed_loop: bool,
    /// In its place the last loads are those that end when so many requests were due.
    pub(crate) closed_requests: &'a [u64],
    /// The one of them at which the arm has a rate of its own, and that rate.
    pub(crate) own_load: Option<(usize, u64)>,
    /// Length of a segment.
    pub(crate) segment: Duration,
    /// Largest p99 of the generator's lateness.
    pub(crate) late_p99_ns_max: u64,
    /// Share of one CPU that everything but arm, generator and kernel may take.
    pub(crate) others_max: f64,
    /// Trace the worker. With a folder for it nothing of the trial is a measurement, and no load is offered again.
    pub(crate) trace: Option<TracePlan>,
    /// Set when the trial is interrupted.
    pub(crate) interrupted: &'a AtomicBool,
}

impl TrialPlan<'_> {
    /// Where a load ends when so many requests were due: their number.
    fn requests(&self, load: usize) -> Option<NonZeroU32> {
        let requests = self.closed_requests.iter().rev().nth(self.loads_pps.len() - load - 1)?;
        NonZeroU32::new(u32::try_from(*requests).unwrap_or(u32::MAX))
    }

    /// Whether a segment at this load that cannot be used may be offered once more. How long one of so many requests
    /// takes is the arm's doing, and so is that they were not due.
    fn may_repeat(&self, load: usize) -> bool {
        let is_recorded = self.trace.as_ref().is_some_and(|trace| trace.folder.is_some());
        !is_recorded && self.requests(load).is_none()
    }

    /// What is sent to this arm.
    fn traffic(&self) -> TrafficPlan {
        match self.sending.traffic.clone() {
            TrafficPlan::Tcp(client) if self.is_by_datagrams => {
                TrafficPlan::Tcp(client.by_datagrams())
            }
            traffic => traffic,
        }
    }
}

/// A trial's outcome; one file each.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Trial {
    /// Index of the arm.
    pub index: usize,
    /// Name of the arm.
    pub arm: String,
    /// The generation it belongs to, from 0.
    pub generation: usize,
    /// Asked for and obtained by the arm.
    pub caps: CapsReport,
    /// What the generator obtained.
    pub generator_caps: CapsReport,
    /// Every segment, in order.
    pub segments: Vec<Segment>,
    /// Latencies of all segments of a load but those of warm-up, by load: wire to app.
    pub wire_to_app: Vec<Latency>,
    /// The same: app only.
    pub app_only: Vec<Latency>,
    /// Samples and checksum of the features of each segment.
    pub checksums: Vec<(u64, u64)>,
    /// The same: round trips, of an app whose replies are counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub round_trips: Vec<RoundTrips>,
    /// The same: from due to arrival at the far end of the second port.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub due_to_arrival: Vec<RoundTrips>,
    /// The search for the highest rate that comes through, if one was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
    /// The same for the highest that nothing of was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zero_loss: Option<Capacity>,
    /// The real pings, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ping: Option<PingTrial>,
    /// The same while requests of ours were offered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ping_loaded: Option<PingTrial>,
    /// Pings that were sent again because the first time was disturbed, each with the reason.
    pub again: Vec<String>,
    /// Of an arm that was traced: what became of the trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traced: Option<TraceEnd>,
    /// Latencies that belong to no load's yet: which rounds were warm-up is known when the generation is over.
    #[serde(skip)]
    pub(crate) unmerged: Vec<Unmerged>,
}

/// The latencies of one segment that can be used.
#[derive(Clone, Debug)]
pub(crate) struct Unmerged {
    load: usize,
    round: usize,
    wire_to_app: Latency,
    app_only: Latency,
    /// Round trips, or ways from due to arrival: an app has one or the other.
    trips: Option<RoundTrips>,
}

/// A search for the highest rate that comes through.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    /// The highest rate whose loss was within the limit, requests per second; absent if the lowest
    /// asked for was beyond it.
    pub pps: Option<u64>,
    /// The lowest rate whose loss was not; absent if there was none.
    pub beyond_pps: Option<u64>,
    /// True if the generator was what could not keep up with the lowest rate that failed.
    pub is_generator_limited: bool,
    /// True if not even the lowest rate got through, and something disturbed it whenever it was offered. Absent in
    /// results before 2026-11-28.
    #[serde(default, skip_serializing_if = "crate::scenario::is_false")]
    pub is_disturbed: bool,
    /// Every trial of a rate, in order.
    pub steps: Vec<CapacityStep>,
}

/// A search for the highest rate that comes through.
#[derive(Clone, Copy)]
struct Search {
    /// Between these.
    pps: [u64; 2],
    /// The loss up to which a rate comes through, a share.
    loss_max: f64,
    /// Rates asked.
    steps: u32,
    /// How long a trial is.
    length: Duration,
    /// Trials of a rate, all of which must come through.
    trials: u32,
}

/// One trial of a rate of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapacityStep {
    /// Requests per second asked for.
    pub pps: u64,
    /// Requests without a reply, as a share.
    pub loss_share: f64,
    /// Whether that is within the limit, and the generator kept the rate.
    pub passed: bool,
    /// Where every request went.
    pub ledger: Ledger,
}

impl Trial {
    /// Of an arm, with nothing in it.
    #[cfg(test)]
    pub(crate) fn empty(arm: usize, generation: usize) -> Trial {
        Trial {
            index: arm,
            arm: format!("arm {arm}"),
            generation,
            caps: CapsReport::default(),
            generator_caps: CapsReport::default(),
            segments: Vec::new(),
            wire_to_app: Vec::new(),
            app_only: Vec::new(),
            checksums: Vec::new(),
            round_trips: Vec::new(),
            due_to_arrival: Vec::new(),
            capacity: None,
            zero_loss: None,
            ping: None,
            ping_loaded: None,
            again: Vec::new(),
            traced: None,
            unmerged: Vec::new(),
        }
    }

    fn begun(plan: &TrialPlan<'_>, walk: &Walk<'_>) -> Trial {
        let loads = plan.loads_pps.len();
        let replies = matches!(plan.app.race.counted, Counted::Replies | Counted::Answered);
        let goes_across = plan.app.race.counted.comes_out() && plan.app.race.ports > 1;
        Trial {
            index: plan.arm,
            arm: plan.name.to_owned(),
            generation: plan.generation,
            caps: walk.arm.ready.caps.clone(),
            generator_caps: walk.generator.ready.caps.clone(),
            segments: Vec::new(),
            wire_to_app: vec![Latency::default(); loads],
            app_only: vec![Latency::default(); loads],
            checksums: Vec::new(),
            round_trips: vec![RoundTrips::default(); if replies { loads } else { 0 }],
            due_to_arrival: vec![RoundTrips::default(); if goes_across { loads } else { 0 }],
            capacity: None,
            zero_loss: None,
            ping: None,
            ping_loaded: None,
            again: Vec::new(),
            traced: None,
            unmerged: Vec::new(),
        }
    }

    fn add(&mut self, offered: Offered) {
        let Offered { segment, seen, trips } = offered;
        self.checksums.push((seen.samples, seen.checksum));
        // What another program delayed is no latency of the arm's.
        if segment.invalid.is_empty() && segment.disturbed.is_none() {
            let SegmentSeen { wire_to_app, app_only, .. } = seen;
            let (load, round) = (segment.load, segment.round);
            self.unmerged.push(Unmerged { load, round, wire_to_app, app_only, trips });
        }
        self.segments.push(segment);
    }

    /// Its generation is over, and the rounds before this one were warm-up, which is in no latency.
    pub(crate) fn settle(&mut self, warm: usize) {
        self.segments.iter_mut().filter(|s| s.round < warm).for_each(|s| s.warm_up = true);
        for it in std::mem::take(&mut self.unmerged).into_iter().filter(|it| it.round >= warm) {
            self.wire_to_app[it.load].merge(&it.wire_to_app);
            self.app_only[it.load].merge(&it.app_only);
            let all = [&mut self.round_trips, &mut self.due_to_arrival];
            if let (Some(all), Some(trips)) =
                (all.into_iter().find_map(|all| all.get_mut(it.load)), it.trips)
            {
                all.merge(&trips);
            }
        }
    }
}

/// An arm that is alive and parked, its generator beside it, and what was measured of it so far.
pub(crate) struct Alive<'a> {
    walk: Walk<'a>,
    trial: Trial,
    /// Segments that were replaced by one of use, and in vain.
    replaced: [u32; 2],
}

impl<'a> Alive<'a> {
    /// Starts both.
    ///
    /// # Errors
    /// When one does not start.
    pub(crate) fn start(bench: &'a Bench, plan: TrialPlan<'a>) -> Result<Alive<'a>, RaceError> {
        let walk = Walk::begin(bench, plan)?;
        let trial = Trial::begun(&walk.plan, &walk);
        walk.park(true)?;
        Ok(Alive { walk, trial, replaced: [0; 2] })
    }

    /// Its turn: one segment of the load with this index, as part of `round`; of two, the first was
    /// [replaced](Segment::replaced).
    ///
    /// # Errors
    /// When a child failed, or the race was interrupted.
    pub(crate) fn turn(&mut self, load: usize, round: usize) -> Result<&[Segment], RaceError> {
        let first = self.trial.segments.len();
        let is_of_use = self.offer(load, round)?.invalid.is_empty();
        let [kept, in_vain] = self.replaced;
        if !is_of_use && in_vain <= kept + IN_VAIN_MAX && self.walk.plan.may_repeat(load) {
            self.trial.segments[first].replaced = true;
            let is_of_use = self.offer(load, round)?.invalid.is_empty();
            self.replaced[usize::from(!is_of_use)] += 1;
        }
        Ok(&self.trial.segments[first..])
    }

    fn offer(&mut self, load: usize, round: usize) -> Result<&Segment, RaceError> {
        let Walk { plan, .. } = &self.walk;
        let own_pps = plan.own_load.filter(|(own, _)| *own == load).map(|(_, pps)| pps);
        let (pps, length) = (own_pps.unwrap_or(plan.loads_pps[load]), plan.segment);
        let is_last = plan.loads_pps.len() - load == 1;
        let requests = plan.requests(load);
        let is_topspeed = plan.topspeed && is_last;
        let is_closed = plan.closed_loop && is_last || requests.is_some();
        self.walk.round = u32::try_from(round).unwrap_or(u32::MAX);
        let mut offered = self.unparked(|walk| match (is_topspeed, is_closed) {
            (true, _) => walk.pour(pps, length),
            (_, true) => walk.converse(requests.map_or(length, |_| COUNTED_MAX), requests),
            _ => walk.offer(pps, length),
        })?;
        (offered.segment.load, offered.segment.round) = (load, round);
        self.trial.add(offered);
        Ok(self.trial.segments.last().expect("it was just added"))
    }

    /// Its turn at what is measured once in a generation, of an app whose replies are counted.
    ///
    /// # Errors
    /// As for a [`turn`](Self::turn).
    pub(crate) fn ping(&mut self, echo: &PingPlan) -> Result<(), RaceError> {
        let trial = &mut self.trial;
        let walk = &mut self.walk;
        walk.park(false)?;
        if echo.capacity_steps > 0 {
            trial.capacity = Some(walk.search(Search {
                pps: echo.capacity_pps,
                loss_max: echo.loss_max,
                steps: echo.capacity_steps,
                length: Duration::from_millis(echo.capacity_ms),
                trials: 1,
            })?);
        }
        if let Some(order) = ping_order(&walk.plan, echo) {
            walk.is_wanted()?;
            trial.ping = Some(walk.ping(order, &mut trial.again)?);
            for attempt in 0..=PING_RETRIES_MAX {
                if echo.ping_load_pps == 0 || trial.ping_loaded.is_some() {
                    break;
                }
                let pps = echo.ping_load_pps;
                match walk.ping_beside(order, pps)? {
                    Some(pinged) if pinged.is_cut && attempt < PING_RETRIES_MAX => {
                        let why = "it ended without a reply to the last one";
                        trial.again.push(format!("ping beside {pps}/s: {why}"));
                    }
                    Some(pinged) => trial.ping_loaded = Some(pinged),
                    None => {
                        trial.again.push(format!("ping beside {pps}/s: it outlasted the load"));
                    }
                }
            }
        }
        walk.park(true)
    }

    /// Its turn at the search for its capacity, and for the rate that nothing of is lost, which is no higher.
    ///
    /// # Errors
    /// As for a [`turn`](Self::turn).
    pub(crate) fn search(&mut self, plan: &CapacityPlan) -> Result<(), RaceError> {
        // It is unknown which rates pass an arm that does not report what it received.
        if !self.walk.plan.counts {
            return Ok(());
        }
        let search = Search {
            pps: plan.pps,
            loss_max: plan.loss_max,
            steps: plan.steps,
            length: Duration::from_millis(plan.ms),
            trials: plan.trials,
        };
        let [capacity, zero_loss] = self.unparked(|walk| {
            let capacity = walk.search(search)?;
            let [low, high] = search.pps;
            let zero_loss = match capacity.pps {
                // What is lost of the lowest rate is not nothing.
                None => Capacity { beyond_pps: Some(low), ..Capacity::default() },
                Some(pps) => {
                    let pps = [low, pps.clamp(low, high)];
                    let found = walk.search(Search { pps, loss_max: 0.0, ..search })?;
                    // What was not carried with a loss is not without.
                    Capacity { beyond_pps: found.beyond_pps.or(capacity.beyond_pps), ..found }
                }
            };
            Ok([capacity, zero_loss])
        })?;
        (self.trial.capacity, self.trial.zero_loss) = (Some(capacity), Some(zero_loss));
        Ok(())
    }

    /// Ends both; what was measured, [to be settled](Trial::settle).
    ///
    /// # Errors
    /// When one failed meanwhile.
    pub(crate) fn end(self) -> Result<Trial, RaceError> {
        let Alive { walk, mut trial, .. } = self;
        trial.traced = walk.end()?;
        Ok(trial)
    }

    fn unparked<T>(
        &mut self,
        act: impl FnOnce(&mut Walk<'a>) -> Result<T, RaceError>,
    ) -> Result<T, RaceError> {
        self.walk.park(false)?;
        let done = act(&mut self.walk)?;
        self.walk.park(true)?;
        Ok(done)
    }
}

/// A trial by itself: every load once.
///
/// # Errors
/// As for a [`turn`](Alive::turn).
pub(crate) fn once(bench: &Bench, plan: TrialPlan<'_>) -> Result<Trial, RaceError> {
    let loads = plan.loads_pps.len();
    let mut alive = Alive::start(bench, plan)?;
    for load in 0..loads {
        alive.turn(load, 0)?;
    }
    let mut trial = alive.end()?;
    trial.settle(0);
    Ok(trial)
}

/// The highest rate that the generator keeps against the arm of `plan`, as far as can be found out in a
/// few short segments, [`KEPT_TRIES`] per rate, but at most `pps_max`; without one, it begins at its top speed. `None`
/// if it keeps none that is worth the name. What becomes of the frames is of no interest here.
///
/// # Errors
/// As for a trial.
pub(crate) fn rate_kept(
    bench: &Bench,
    plan: TrialPlan<'_>,
    pps_max: Option<u64>,
) -> Result<Option<u64>, RaceError> {
    let late_p99_ns_max = plan.late_p99_ns_max;
    let mut walk = Walk::begin(bench, plan)?;
    let mut pps = match pps_max {
        Some(pps) => pps,
        None => {
            let sent = walk.offer(TOP_PPS, TOP_LENGTH)?.segment.generator;
            (sent.achieved_pps * KEPT_SHARE) as u64
        }
    };
    let mut kept = None;
    // What disturbed a rate may be gone the next time.
    for attempt in 0..KEPT_RATES_MAX * KEPT_TRIES {
        let sent = walk.offer(pps, KEPT_LENGTH)?.segment.generator;
        if lateness(&sent, late_p99_ns_max).is_empty() {
            kept = Some(pps);
            break;
        }
        if (attempt + 1) % KEPT_TRIES == 0 {
            pps = (pps as f64 * KEPT_SHARE) as u64;
        }
    }
    walk.end()?;
    Ok(kept)
}

/// The rate at which the generator sends to the arm of `plan` when it need not keep any, frames per second.
///
/// # Errors
/// As for a trial.
pub(crate) fn top_rate(bench: &Bench, plan: TrialPlan<'_>) -> Result<u64, RaceError> {
    let mut walk = Walk::begin(bench, plan)?;
    let sent = walk.offer(TOP_PPS, TOP_LENGTH)?.segment.generator;
    walk.end()?;
    Ok(sent.achieved_pps as u64)
}

/// How many requests the arm of `plan` answers in a closed loop, per second: the most of [`CLOSED_TRIES`] short ones.
///
/// # Errors
/// As for a trial.
pub(crate) fn closed_rate(bench: &Bench, plan: TrialPlan<'_>) -> Result<u64, RaceError> {
    let mut walk = Walk::begin(bench, plan)?;
    let mut most = 0.0_f64;
    for _ in 0..CLOSED_TRIES {
        most = most.max(walk.converse(TOP_LENGTH, None)?.segment.records_per_s);
    }
    walk.end()?;
    Ok(most as u64)
}

/// Records per second over the `scheduled_ns` of its schedule, over as long as sending took, or over as long as records
/// arrived: whichever is most. Of a peer that only counts it is unknown when its records arrived, and at top speed
/// there is no schedule; then what still lay in its queue when the last frame was sent makes it look that much faster.
fn rate(scheduled_ns: u64, sent: &GeneratorReport, seen: &SegmentSeen, delivered: u64) -> f64 {
    let sending_ns = (sent.sent as f64 * 1e9 / sent.achieved_pps.max(1.0)) as u64;
    let taken_ns = seen.last_ns.saturating_sub(seen.first_ns);
    delivered as f64 * 1e9 / scheduled_ns.max(sending_ns).max(taken_ns).max(1) as f64
}

fn cpu(usage: &Usage, arm: usize, end: Ending, spun_ns: Option<u64>, records: u64) -> Cpu {
    let own_ns = usage.own_ns(arm);
    let method = usage.method();
    Cpu {
        own_ns,
        spun_ns,
        ns_per_record: (records > 0).then(|| own_ns as f64 / records as f64),
        generator_side_ns: usage.generator_side_ns(arm),
        unattributed_ns: usage.unattributed_ns(arm),
        beside_ns: Some(usage.beside_ns(arm)),
        foreign_ns: usage.foreign_ns(),
        foreigners: usage.foreigners(),
        contexts_ns: usage.contexts_ns(arm),
        metering_ns: usage.metering_ns(arm),
        closure: usage.closure(),
        method: match end.note() {
            Some(note) => format!("{method}; {note}"),
            None => method,
        },
    }
}

/// Whether a generator sent what it was asked to.
fn keeps_up(asked_pps: f64, achieved_pps: f64) -> bool {
    achieved_pps >= asked_pps * 0.99
}

/// How a generator missed its schedule; empty if it kept it.
pub(crate) fn lateness(sent: &GeneratorReport, late_p99_ns_max: u64) -> Vec<String> {
    let mut doubts = Vec::new();
    let &GeneratorReport { asked_pps, achieved_pps, late_p99_ns, early, .. } = sent;
    if !keeps_up(asked_pps, achieved_pps) {
        doubts.push(format!(
            "the generator sent {achieved_pps:.0} of {asked_pps:.0} frames/s asked for"
        ));
    }
    if late_p99_ns > late_p99_ns_max {
        doubts.push(format!(
            "the generator was late: p99 {} us, allowed are {} us",
            late_p99_ns / 1000,
            late_p99_ns_max / 1000
        ));
    }
    if early > 0 {
        doubts.push(format!("the generator sent {early} frames before they were due"));
    }
    doubts
}

/// Why the CPU time of a segment cannot be used. What the arm did is no reason, except that its ledger is judged by
/// the race.
fn unclear(usage: &Usage, arm: usize) -> Vec<String> {
    let mut doubts = Vec::new();
    let known_ns = usage.own_ns(arm) + usage.generator_side_ns(arm);
    let unattributed = usage.unattributed_ns(arm) as f64 / known_ns.max(1) as f64;
    if unattributed > UNATTRIBUTED_MAX {
        doubts.push(format!(
            "softirqs and interrupts of unknown cause took {:.1} % of the time of arm and generator",
            unattributed * 100.0
        ));
    }
    let unplaced = usage.unplaced(arm);
    if unplaced > 0 {
        doubts.push(format!(
            "the CPU meter had no room for {unplaced} processes of arm and generator, whose time it does not book as theirs"
        ));
    }
    if (usage.closure() - 1.0).abs() > CLOSURE_ERROR_MAX {
        doubts.push(format!(
            "the CPU meter booked {:.1} % of the time there was",
            usage.closure() * 100.0
        ));
    }
    doubts
}

/// Why rate, loss and latency of a segment cannot be used: what other programs, other arms, or a hypervisor took of the
/// CPUs beyond their limits. CPU time can: of other programs' and arms' none is in it. What a hypervisor took while an
/// arm ran is, and adds to that of each arm in proportion to the time that it ran, so ratios are right on average and
/// scatter more.
fn disturbed(usage: &Usage, arm: usize, others_max: f64) -> Option<(Disturber, String)> {
    let percent = |ns: u64| ns as f64 * 100.0 / usage.window_ns.max(1) as f64;
    if percent(usage.foreign_ns()) > others_max * 100.0 {
        let names = usage.foreigners().into_iter().take(NAMED_MAX);
        let names: Vec<_> =
            names.map(|(name, ns)| format!("{name} {:.0} %", percent(ns))).collect();
        let used = percent(usage.foreign_ns());
        let why = format!("other programs used {used:.0} % of a CPU ({})", names.join(", "));
        return Some((Disturber::Programs, why));
    }
    if percent(usage.of_others(arm)) > others_max * 100.0 {
        let used = percent(usage.of_others(arm));
        let why =
            format!("other arms of the race used {used:.0} % of a CPU, though they are parked");
        return Some((Disturber::Arms, why));
    }
    // What ran is booked, with what was taken from it; a rate was not kept meanwhile, and a latency is the hypervisor's.
    let stolen = |(_, ns): &(&usize, &u64)| **ns as f64 > usage.window_ns as f64 * STEAL_MAX;
    let (cpu, ns) = usage.steal_ns.iter().find(stolen)?;
    let why = format!("the hypervisor took CPU {cpu} away for {} ms", ns / 1_000_000);
    Some((Disturber::Hypervisor, why))
}

/// Why rate and latency of a segment cannot be used in which the cable dropped packets of a client's: how long TCP waits
/// before it sends them again is no arm's doing. What finds no room in the arm's own device is.
fn lost_on_the_cable(segment: &Segment) -> Option<(Disturber, String)> {
    let Resent { packets, .. } = segment.resent.as_ref().filter(|it| it.is_of_cable())?;
    let why = format!(
        "{packets} packets found no room in the rings of the cable, and TCP sent them again later (Linux before 6.16 \
         does not hold their sender back)"
    );
    Some((Disturber::Cable, why))
}

#[cfg(test)]
mod tests;
