//! One trial: a fresh arm and a fresh generator, which stay alive for a generation of the race, and what was
//! measured of the arm meanwhile.
//!
//! ```text
//!   parked ─▶ unpark ─▶ before ─▶ [ meter ── t0 ── frames on schedule ── last ── drain ── meter ] ─▶ after ─▶ park
//!                       counters   └───────────────── window ─────────────────────────────────┘      counters
//! ```
//!
//! Other arms of the race are alive at the same time, each on its own cables, and parked: one arm at a time is offered a
//! load, so what runs within a window runs for that arm, or for programs that are no part of the race, whose time is
//! not booked.
//!
//! A trial that is traced ([`TrialPlan::trace`]) is one of its own, behind the last generation: a fresh arm, one load,
//! offered once. So no process that is measured ever had a recorder, and nothing of its figures is compared.
//!
//! A trial of an app whose replies are counted has more: a search for the highest rate that comes through, in short
//! segments of the same kind, and the machine's own `ping`, with nothing else sent and beside a load.
//!
//! Counters are read outside of windows, and the load beside `ping` is not measured.

use crate::arrivals::Arrived;
use crate::bench::{Bench, DESTINATION, ECHO, FAR_END, SUT_MAC, WireLosses};
use crate::client::{Asked, Asking};
use crate::copies::Copied;
use crate::meter::{Owner, Reading, Usage};
use crate::ping::{self, PingLoad, PingOrder, PingTrial};
use crate::plan::{
    ArmReport, ArmSetup, GeneratorSetup, Order, Plant, Reply, SegmentPlan, SegmentSeen, Shape,
    TraceEnd, TracePlan, WayIn,
};
use crate::race::RaceError;
use crate::replies::Replied;
use crate::result::{Cpu, GeneratorReport, Ledger, Segment};
use crate::round_trips::RoundTrips;
use crate::scenario::{CapacityPlan, PingPlan};
use crate::search::bisect;
use crate::tables::{Tables, wiring};
use crate::traffic::{Sending, TrafficPlan};
use crate::wire::{self, Came, Wire};
use crate::worker::Worker;
use laneway_core::{Cap, CapsReport, Clock, Counters, DropReason};
use laneway_engine::{MonotonicClock, pin_to_cpu};
use laneway_kinds::{AppFacts, Counted, Peer};
use laneway_stats::Latency;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// From the order to the first frame: the sink hears of a segment at its next tick, 10 ms away at
/// most, and says so.
pub(crate) const LEAD_NS: u64 = 30_000_000;
/// The window opens this long before the first frame.
const OPEN_NS: u64 = 2_000_000;
/// From the last frame to the end of the window: what is queued is still handled in it.
const DRAIN: Duration = Duration::from_millis(15);
/// The end of the drain, in which an arm that has nothing to do any more shows whether it polls.
const IDLE_LOOK: Duration = Duration::from_millis(3);
/// From the start of a generator to the first counters.
const BEGIN: Duration = Duration::from_millis(30);
/// Between two looks at an arm that is settling.
const SETTLE_STEP: Duration = Duration::from_millis(10);
/// Times pings are sent again because they were disturbed.
const PING_RETRIES_MAX: usize = 3;
/// Looks at an arm that does not settle.
const SETTLE_STEPS_MAX: usize = 200;
/// Times that an arm which has settled is looked at again because frames are missing: whoever delivers
/// them may have lost its CPU on the way, and get it back behind others.
const MISSING_LOOKS_MAX: usize = 12;
/// What is added to a segment's own length before a silent child is given up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// What an AF_XDP socket counts when a redirect into it fails.
const REDIRECT_LOSSES: [DropReason; 3] =
    [DropReason::RxQueueFull, DropReason::RxNoFrame, DropReason::RxError];
/// An arm that uses more than this share of a CPU while nothing is sent is polling.
const POLLING_MIN: f64 = 0.5;
/// Asked for to see how fast a generator can be, and for how long at that rate.
const TOP_PPS: u64 = 20_000_000;
const TOP_LENGTH: Duration = Duration::from_millis(50);
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
const NOT_TOLD: &str = "peer: lost without a counter";
/// The place of what the arm sent back, but not as it had come.
const CHANGED: &str = "came back changed";
/// The places of what found no room behind the arm: in the ring of the far end, or in the interface's queue.
const RETURN_RING: &str = "return ring full";
const RETURN_QUEUE: &str = "queue of the interface full";
/// How far the meter's parts may be from the whole.
const CLOSURE_ERROR_MAX: f64 = 0.03;
/// How much softirq and interrupt time of unknown cause may stand beside arm and generator, as a share of theirs;
/// 0.4 % is usual beside a compile job.
const UNATTRIBUTED_MAX: f64 = 0.05;
/// How much of a window the hypervisor may take one CPU away. It is known in ticks, of 10 ms nearly everywhere, so
/// that a smaller share of a short window cannot be told from none.
const STEAL_MAX: f64 = 0.25;
/// Foreign programs named when they disturb.
const NAMED_MAX: usize = 3;
/// Echo requests are sent one by one up to this rate, and in bursts at it beyond: a round trip is to
/// be that of a request, not of the burst it came in.
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
    /// What the app is told beyond where it is.
    pub(crate) arguments: &'a [String],
    /// Somebody else's program, if it is one.
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
    /// Length of a segment.
    pub(crate) segment: Duration,
    /// Largest p99 of the generator's lateness.
    pub(crate) late_p99_ns_max: u64,
    /// Share of one CPU that everything but arm, generator and kernel may take.
    pub(crate) others_max: f64,
    /// Trace the worker. With a folder for it nothing of the trial is a measurement, and no load is offered again.
    pub(crate) trace: Option<TracePlan>,
    /// Set when nobody wants the trial any more.
    pub(crate) interrupted: &'a AtomicBool,
}

impl TrialPlan<'_> {
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
    /// Latencies of all segments of a load, by load: wire to app.
    pub wire_to_app: Vec<Latency>,
    /// Latencies of all segments of a load, by load: app only.
    pub app_only: Vec<Latency>,
    /// Samples and checksum of the features of each segment.
    pub checksums: Vec<(u64, u64)>,
    /// Round trips of all segments of a load, by load, of an app whose replies are counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub round_trips: Vec<RoundTrips>,
    /// From due to arrival at the far end of the second port, of all segments of a load, by load.
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
        }
    }

    fn add(&mut self, offered: Offered) {
        let Offered { segment, seen, trips } = offered;
        // What another program delayed is no latency of the arm's.
        if segment.invalid.is_empty() && segment.disturbed.is_none() {
            self.wire_to_app[segment.load].merge(&seen.wire_to_app);
            self.app_only[segment.load].merge(&seen.app_only);
            // Its app has one or the other.
            let all = [&mut self.round_trips, &mut self.due_to_arrival];
            if let (Some(all), Some(trips)) =
                (all.into_iter().find_map(|all| all.get_mut(segment.load)), trips)
            {
                all.merge(&trips);
            }
        }
        self.checksums.push((seen.samples, seen.checksum));
        self.segments.push(segment);
    }
}

/// An arm that is alive and parked, its generator beside it, and what was measured of it so far.
pub(crate) struct Alive<'a> {
    walk: Walk<'a>,
    trial: Trial,
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
        Ok(Alive { walk, trial })
    }

    /// Its turn: one segment of the load with this index, as part of `round`.
    ///
    /// # Errors
    /// When a child failed, or nobody wants the race any more.
    pub(crate) fn turn(&mut self, load: usize, round: usize) -> Result<&Segment, RaceError> {
        let Walk { plan, .. } = &self.walk;
        let (pps, length) = (plan.loads_pps[load], plan.segment);
        let from_last = plan.loads_pps.len() - load;
        let is_last = from_last == 1;
        let requests = plan.closed_requests.iter().rev().nth(from_last - 1);
        let requests =
            requests.and_then(|&n| NonZeroU32::new(u32::try_from(n).unwrap_or(u32::MAX)));
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
        // Of one that does not say what it received nobody knows what came through.
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

    /// Ends both; what was measured.
    ///
    /// # Errors
    /// When one failed meanwhile.
    pub(crate) fn end(self) -> Result<Trial, RaceError> {
        let Alive { walk, mut trial } = self;
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
    alive.end()
}

/// The highest rate that the generator keeps against the arm of `plan`, as far as can be found out in a
/// few short segments, [`KEPT_TRIES`] per rate, but at most `pps_max`; without one, it begins at its top speed. `None` if it keeps
/// none that is worth the name. What becomes of the frames is of no interest here.
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

/// How many requests the arm of `plan` answers in a closed loop, per second.
///
/// # Errors
/// As for a trial.
pub(crate) fn closed_rate(bench: &Bench, plan: TrialPlan<'_>) -> Result<u64, RaceError> {
    let mut walk = Walk::begin(bench, plan)?;
    let segment = walk.converse(TOP_LENGTH, None)?.segment;
    walk.end()?;
    Ok(segment.records_per_s as u64)
}

/// The pings of a trial; `None` where none are wanted.
fn ping_order(plan: &TrialPlan<'_>, echo: &PingPlan) -> Option<PingOrder> {
    let TrafficPlan::Ping { payload_bytes, .. } = plan.sending.traffic else { return None };
    (echo.pings > 0).then_some(PingOrder {
        destination: ECHO,
        pings: echo.pings,
        interval_us: echo.ping_interval_us,
        payload_bytes,
    })
}

/// A trial under way: its two children, and what was known before the next segment.
struct Walk<'a> {
    bench: &'a Bench,
    plan: TrialPlan<'a>,
    /// Declared before the arm: the far end of taps detaches before they go.
    wire: Wire<'a>,
    arm: Worker,
    generator: Worker,
    way: WayIn,
    before: State,
    /// What a poll that finds nothing costs the arm, ns; `None` of one that waits, or does not say.
    empty_poll_ns: Option<f64>,
    /// Segments so far.
    segments: u8,
    /// The round it is in: base and arm of a pair are sent the same at the same times.
    round: u32,
}

/// What a segment's window was like.
struct Metered {
    sent: GeneratorReport,
    /// What is booked: up to the end of the drain, or of an arm that polls, to the end of the schedule.
    usage: Usage,
    polls: bool,
    /// The arm's report when it had heard of the segment, and when that was.
    heard: (ArmReport, u64),
    /// Of a client: what it has to say.
    asked: Option<Asked>,
}

/// When what is sent is due.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// At times of its own.
    Open,
    /// When what a client asked before was answered; until so many were due, if so.
    Closed(Option<NonZeroU32>),
}

/// One segment, offered.
struct Offered {
    segment: Segment,
    seen: SegmentSeen,
    /// Round trips, or ways from due to arrival.
    trips: Option<RoundTrips>,
}

impl<'a> Walk<'a> {
    /// Starts arm and generator.
    fn begin(bench: &'a Bench, plan: TrialPlan<'a>) -> Result<Walk<'a>, RaceError> {
        let mut arm = start_arm(bench, &plan)?;
        let wire = Wire::lay(bench, wiring(plan.tables, plan.peer, plan.lane), &plan.app)?;
        let way = wire.way_in(plan.way)?;
        let who = match plan.sending.traffic.client() {
            Some(_) => format!("the client of arm `{}`", plan.name),
            None => "generator".to_owned(),
        };
        let mut generator = Worker::start(
            who,
            "generate",
            wire.namespace(),
            &GeneratorSetup {
                traffic: plan.traffic(),
                times: plan.sending.times.clone(),
                way: way.clone(),
                // A lane of datagrams is reached through the stack, and so is whoever answers pings;
                // of other frames, the stack is to have none.
                destination: match (arm.ready.shape, plan.app.race.counted) {
                    (Shape::Frames, Counted::Replies) | (Shape::Datagrams, _) => SUT_MAC,
                    (Shape::Frames, _) => DESTINATION,
                },
                cpu: bench.placement().generator_cpu,
            },
        )?;
        bench.meter().classify(generator.pid(), Owner::Generator(plan.arm))?;
        switch_once(bench.placement().generator_cpu)?;
        let empty_poll_ns = empty_poll_ns(bench, plan.arm, &mut arm)?;
        let before = State::read(&wire, &mut arm, &mut generator)?;
        Ok(Walk {
            bench,
            plan,
            wire,
            arm,
            generator,
            way,
            before,
            empty_poll_ns,
            segments: 0,
            round: 0,
        })
    }

    /// Both children end when they are dropped; told first, they do so side by side. An arm that is traced says
    /// when its trace is complete.
    fn end(mut self) -> Result<Option<TraceEnd>, RaceError> {
        self.park(false)?;
        self.generator.order(&Order::Stop)?;
        self.arm.order(&Order::Stop)?;
        self.bench.meter().disown(self.plan.arm)?;
        if self.plan.trace.is_none() {
            return Ok(None);
        }
        match self.arm.reply(PATIENCE)? {
            Reply::Traced(end) => Ok(Some(end)),
            _ => Err(self.arm.failed("it answered out of turn")),
        }
    }

    /// Parks both sides, or has them go on. Generators poll, too: that of a memif stands at the far end of shared
    /// memory, and one that is not parked takes its CPU from the generators of all other arms.
    fn park(&self, is_parked: bool) -> Result<(), RaceError> {
        self.arm.park(is_parked)?;
        self.generator.park(is_parked)
    }

    fn is_wanted(&self) -> Result<(), RaceError> {
        match self.plan.interrupted.load(Ordering::Relaxed) {
            true => Err(RaceError::Interrupted),
            false => Ok(()),
        }
    }

    /// Makes ready for the next segment.
    fn next_schedule(&mut self, pps: u64, length: Duration) -> Result<SegmentPlan, RaceError> {
        self.is_wanted()?;
        self.bench.forget_fragments()?;
        // Of hundreds, tried again and again, none has the number 0, which is nobody's.
        self.segments = self.segments.checked_add(1).unwrap_or(1);
        let plan = schedule(&self.plan, pps, length, self.segments);
        Ok(SegmentPlan { entry: self.round, ..plan })
    }

    /// Offers `pps` for `length`, and waits until all that will ever come has.
    fn offer(&mut self, pps: u64, length: Duration) -> Result<Offered, RaceError> {
        let schedule = self.next_schedule(pps, length)?;
        let metered = self.send(&schedule)?;
        self.account(&schedule, metered, None)
    }

    /// Has the client ask in a closed loop for `length`, or until so many `requests` were due.
    fn converse(
        &mut self,
        length: Duration,
        requests: Option<NonZeroU32>,
    ) -> Result<Offered, RaceError> {
        let clock = SegmentPlan {
            frames: (length.as_millis() as u32).max(1),
            interval_ns: 1_000_000,
            burst: 1,
            ..self.next_schedule(1, length)?
        };
        let metered = self.send_at(&clock, Pace::Closed(requests))?;
        let mut offered = self.account(&clock, metered, None)?;
        let due = offered.segment.ledger.offered;
        if let Some(requests) = requests.filter(|n| due < u64::from(n.get())) {
            offered.segment.invalid.push(format!(
                "{due} of {requests} requests were due: nothing more was answered, or it took more than {} s",
                length.as_secs()
            ));
        }
        Ok(offered)
    }

    /// Offers as many frames as `pps` for `length` are, all due at once.
    fn pour(&mut self, pps: u64, length: Duration) -> Result<Offered, RaceError> {
        let schedule = SegmentPlan { interval_ns: 0, ..self.next_schedule(pps, length)? };
        let mut metered = self.send(&schedule)?;
        metered.sent.asked_pps = pps as f64;
        self.account(&schedule, metered, None)
    }

    /// Real pings with nothing else sent; all of them `again` where `ping` did not wait for the last one. An arm
    /// that loses it each time shows it.
    fn ping(&self, order: PingOrder, again: &mut Vec<String>) -> Result<PingTrial, RaceError> {
        let cpu = self.bench.placement().generator_cpu;
        let mut trial = ping::run(self.wire.namespace(), cpu, order)?;
        for _ in 0..PING_RETRIES_MAX {
            if !trial.is_cut {
                break;
            }
            let (replied, sent) = (trial.replied, trial.sent);
            again.push(format!(
                "ping: it ended without a reply to the last one, {replied} of {sent}"
            ));
            trial = ping::run(self.wire.namespace(), cpu, order)?;
        }
        Ok(trial)
    }

    /// Real pings while `pps` requests of ours are offered; `None` if they outlasted the load.
    fn ping_beside(&mut self, order: PingOrder, pps: u64) -> Result<Option<PingTrial>, RaceError> {
        let pinging = Duration::from_micros(u64::from(order.pings) * u64::from(order.interval_us));
        let length = pinging.mul_f64(PING_LOAD_STRETCH) + PING_LOAD_MORE;
        let schedule = self.next_schedule(pps, length)?;
        let namespace = self.wire.namespace();
        let cpu = self.bench.placement().generator_cpu;
        let (sent, pinged) = thread::scope(|scope| {
            let ping = scope.spawn(move || {
                thread::sleep(Duration::from_nanos(LEAD_NS) + DRAIN);
                (ping::run(namespace, cpu, order), Instant::now())
            });
            let sent = self.send(&schedule).map(|sent| (sent, Instant::now()));
            (sent, ping.join().expect("it does not panic"))
        });
        let (metered, heard) = sent?;
        let (pinged, ended) = pinged;
        let pinged = pinged?;
        let Offered { segment, .. } = self.account(&schedule, metered, Some(&pinged))?;
        // The load's end was heard of after its drain.
        let is_covered = ended + DRAIN <= heard;
        let load = Some(PingLoad { pps, ledger: segment.ledger });
        Ok(is_covered.then_some(PingTrial { load, ..pinged }))
    }

    /// What came of a segment that was sent, and of the real pings `beside` it, when all that will ever
    /// come has.
    fn account(
        &mut self,
        schedule: &SegmentPlan,
        metered: Metered,
        beside: Option<&PingTrial>,
    ) -> Result<Offered, RaceError> {
        let Metered { sent, usage, polls, heard, asked } = metered;
        let mut looks = 0;
        let (after, mut seen, ledger) = loop {
            // A client has seen to it that every request has an end.
            if let Some(asked) = &asked {
                let after = State::read(&self.wire, &mut self.arm, &mut self.generator)?;
                break (after, seen_by_replies(self.segments, &asked.replied()), asked.ledger());
            }
            let cpus = [self.bench.placement().arm_cpu, self.bench.placement().generator_cpu];
            // What is all there at once needs no second look.
            let after = match looks {
                0 => State::read(&self.wire, &mut self.arm, &mut self.generator)?,
                _ => State::settled(&self.wire, &mut self.arm, &mut self.generator, cpus)?,
            };
            let Came { replied, arrived, copied, .. } = &after.came;
            let seen = match (replied, arrived, copied) {
                (Some(replied), ..) => seen_by_replies(self.segments, replied),
                (_, Some(arrived), _) => seen_by_arrivals(self.segments, arrived),
                (.., Some(copied)) => seen_by_copies(self.segments, copied),
                (None, None, None) => after.arm.segment.clone().unwrap_or_default(),
            };
            let ledger = self.ledger(schedule, &sent, &after, &seen, beside);
            looks += 1;
            let is_whole = ledger.is_closed() && ledger.dropped() == 0;
            let is_missing = ledger.unexplained > 0 || ledger.drops.contains_key(NOT_TOLD);
            if is_whole || (looks > 1 && !is_missing) || looks > MISSING_LOOKS_MAX {
                break (after, seen, ledger);
            }
        };
        let spun_ns = self.spun_ns(&usage, &heard, &after.arm).filter(|_| polls);
        let plan = &self.plan;
        // What had no time of its own was not late.
        let has_latency = !schedule.is_topspeed();
        if !has_latency {
            (seen.wire_to_app, seen.app_only) = Default::default();
        }
        let is_seen = plan.app.race.counted.by_witness() && has_latency;
        let is_timed = has_latency && !self.bench.placement().waits_for_generator();
        let answered = asked.as_ref().map(Asked::replied).filter(|_| has_latency);
        let replied = after.came.replied.as_ref().map(|replied| &replied.round_trips);
        let [round_trips, ways] =
            [replied, after.came.trips.as_ref()].map(|trips| trips.filter(|_| is_timed).cloned());
        let round_trips = answered.map(|replied| replied.round_trips).or(round_trips);
        let mut segment = Segment {
            arm: plan.arm,
            generation: plan.generation,
            round: 0,
            order: 0,
            warm_up: false,
            load: 0,
            window_ns: usage.window_ns,
            records_per_s: match &asked {
                Some(asked) => asked.per_second(),
                None => {
                    rate(plan.sending.timetable.length_ns(schedule), &sent, &seen, ledger.delivered)
                }
            },
            cpu: cpu(&usage, plan.arm, polls, spun_ns, ledger.paid_for()),
            ledger,
            generator: GeneratorReport { cpu_ns: usage.generator_task_ns(plan.arm), ..sent },
            wire_to_app: is_seen.then(|| seen.wire_to_app.summary()),
            app_only: is_seen.then(|| seen.app_only.summary()),
            rtt: round_trips.as_ref().map(RoundTrips::figures),
            due_to_arrival: ways.as_ref().map(RoundTrips::figures),
            connections: asked.as_ref().map(|asked| asked.connections),
            memory: after.arm.memory.clone(),
            invalid: Vec::new(),
            disturbed: None,
        };
        let late = match has_latency {
            true => lateness(&segment.generator, plan.late_p99_ns_max),
            false => Vec::new(),
        };
        segment.invalid = late;
        segment.invalid.extend(unclear(&usage, plan.arm));
        segment.disturbed = disturbed(&usage, plan.others_max);
        self.before = after;
        Ok(Offered { segment, seen, trips: round_trips.or(ways) })
    }

    /// What the arm spent of its window on polls that found nothing: by their number, and by what one costs where
    /// nothing comes. `None` where that is not known.
    fn spun_ns(
        &self,
        window: &Usage,
        (heard, heard_ns): &(ArmReport, u64),
        after: &ArmReport,
    ) -> Option<u64> {
        let empty = after.lane.polls_empty.saturating_sub(heard.lane.polls_empty);
        let outside_ns =
            MonotonicClock.now_ns().saturating_sub(*heard_ns).saturating_sub(window.window_ns);
        let spun_ns = self.empty_poll_ns? * empty as f64 - outside_ns as f64;
        Some((spun_ns.max(0.0) as u64).min(window.own_ns(self.plan.arm)))
    }

    /// Searches for the highest rate that comes through.
    fn search(&mut self, search: Search) -> Result<Capacity, RaceError> {
        let Search { loss_max, length, .. } = search;
        let mut capacity = Capacity::default();
        let mut limited_pps = None;
        let bounds = bisect(search.pps, search.steps, |pps| {
            for _ in 0..search.trials {
                let mut segment = self.offer(pps, length)?.segment;
                let is_disturbed = !segment.invalid.is_empty() || segment.disturbed.is_some();
                if is_disturbed && segment.ledger.loss_share() > loss_max {
                    // Lost while something disturbed it: that is asked once more.
                    segment = self.offer(pps, length)?.segment;
                }
                let GeneratorReport { asked_pps, achieved_pps, .. } = segment.generator;
                let keeps_up = keeps_up(asked_pps, achieved_pps);
                let loss_share = segment.ledger.loss_share();
                let passed = loss_share <= loss_max && keeps_up;
                if !keeps_up && loss_share <= loss_max {
                    limited_pps = Some(pps);
                }
                let ledger = segment.ledger;
                capacity.steps.push(CapacityStep { pps, loss_share, passed, ledger });
                if !passed {
                    return Ok::<_, RaceError>(false);
                }
            }
            Ok(true)
        })?;
        (capacity.pps, capacity.beyond_pps) = (bounds.passed, bounds.failed);
        capacity.is_generator_limited = limited_pps.is_some() && limited_pps == bounds.failed;
        Ok(capacity)
    }
}

/// What came back, as an arm's own sink would say it.
fn seen_by_replies(segment: u8, replied: &Replied) -> SegmentSeen {
    SegmentSeen {
        segment,
        delivered: replied.distinct,
        duplicates: replied.duplicates,
        reordered: replied.reordered,
        foreign: replied.foreign,
        first_ns: replied.first_ns,
        last_ns: replied.last_ns,
        ..SegmentSeen::default()
    }
}

/// The same of what was forwarded.
fn seen_by_arrivals(segment: u8, arrived: &Arrived) -> SegmentSeen {
    SegmentSeen {
        segment,
        delivered: arrived.distinct,
        duplicates: arrived.duplicates,
        reordered: arrived.reordered,
        foreign: arrived.foreign,
        first_ns: arrived.first_ns,
        last_ns: arrived.last_ns,
        ..SegmentSeen::default()
    }
}

/// The same of copies, of all outputs together.
fn seen_by_copies(segment: u8, copied: &Copied) -> SegmentSeen {
    SegmentSeen {
        segment,
        delivered: copied.distinct,
        duplicates: copied.duplicates,
        reordered: copied.reordered,
        foreign: copied.foreign,
        first_ns: copied.first_ns,
        last_ns: copied.last_ns,
        ..SegmentSeen::default()
    }
}

/// Starts the arm of `plan` and books its time and that of its receive stack.
pub(crate) fn start_arm(bench: &Bench, plan: &TrialPlan<'_>) -> Result<Worker, RaceError> {
    let (namespace, _) = bench.sut();
    let limit_mbit = plan.sending.traffic.fanout().and_then(|plan| plan.fanout.limit_mbit);
    bench.limit(limit_mbit.filter(|_| !plan.is_unlimited))?;
    let arm = Worker::start(
        format!("arm `{}`", plan.name),
        "arm",
        namespace,
        &ArmSetup {
            app: plan.app.name.to_owned(),
            arguments: plan.arguments.to_vec(),
            peer: plan.peer,
            counts: plan.counts,
            mode: plan.tables.testpmd_mode(plan.app.name, plan.arguments).map(str::to_owned),
            lane: plan.lane.to_owned(),
            payload_bytes: plan.sending.traffic.payload_bytes(),
            client: plan.traffic().client().cloned(),
            fanout: plan.sending.traffic.fanout().copied(),
            interfaces: wire::interfaces(
                &wiring(plan.tables, plan.peer, plan.lane),
                bench,
                plan.app.race.ports,
            ),
            addresses: bench.sut_addresses(),
            onward: FAR_END,
            times: plan.sending.times.clone(),
            cpu: bench.placement().arm_cpu,
            plant: plan.plant,
            trace: plan.trace.clone(),
        },
    )?;
    for &pid in [arm.pid()].iter().chain(&arm.ready.processes) {
        bench.meter().classify(pid, Owner::Arm(plan.arm))?;
    }
    bench.claim_napi_threads(plan.arm)?;
    switch_once(bench.placement().arm_cpu)?;
    Ok(arm)
}

/// Takes a turn on `cpu`. The meter books a task as what it is from its next switch on, and one
/// that polls has none of its own accord.
fn switch_once(cpu: usize) -> Result<(), RaceError> {
    let turn = thread::spawn(move || pin_to_cpu(cpu));
    Ok(turn.join().expect("pinning does not panic")?)
}

/// What a poll that finds nothing costs the arm, ns: by their number while nothing is sent. `None` of one that waits.
fn empty_poll_ns(
    bench: &Bench,
    arm_index: usize,
    arm: &mut Worker,
) -> Result<Option<f64>, RaceError> {
    let before = report(arm)?;
    let start = bench.meter().read()?;
    thread::sleep(BEGIN);
    let idle = bench.meter().read()?.since(&start);
    // Both reports are within a tick of the readings, and so is what is made of them.
    let empty = report(arm)?.lane.polls_empty.saturating_sub(before.lane.polls_empty);
    let polls = idle.own_ns(arm_index) as f64 > idle.window_ns as f64 * POLLING_MIN;
    Ok((polls && empty > 0).then(|| idle.own_ns(arm_index) as f64 / empty as f64))
}

/// The segment that offers `pps` for `length`, without its time.
pub(crate) fn schedule(
    plan: &TrialPlan<'_>,
    pps: u64,
    length: Duration,
    segment: u8,
) -> SegmentPlan {
    let pps = pps.max(1);
    let most = u64::from(plan.burst.max(1));
    let burst = match plan.app.race.counted {
        Counted::Replies | Counted::Answered => pps.div_ceil(ECHO_BURSTS_PER_S_MAX).min(most),
        _ => most,
    };
    let interval_ns = (burst * 1_000_000_000 / pps).max(1);
    let bursts = (length.as_nanos() as u64 / interval_ns).max(1);
    SegmentPlan {
        segment,
        t0_ns: 0,
        frames: u32::try_from(plan.sending.timetable.frames(bursts * burst)).unwrap_or(u32::MAX),
        interval_ns,
        burst: u32::try_from(burst).unwrap_or(u32::MAX),
        entry: 0,
    }
}

/// What the arm says of itself, when it has heard all that it was told before.
fn report(arm: &mut Worker) -> Result<ArmReport, RaceError> {
    arm.order(&Order::Report)?;
    match arm.reply(PATIENCE)? {
        Reply::Report(report) => Ok(*report),
        _ => Err(arm.failed("it answered out of turn")),
    }
}

/// Everything cumulative, read outside of windows.
struct State {
    wire: WireLosses,
    arm: ArmReport,
    came: Came,
}

impl State {
    fn read(wire: &Wire<'_>, arm: &mut Worker, generator: &mut Worker) -> Result<State, RaceError> {
        let report = report(arm)?;
        let (came, wire) = wire.look(generator, PATIENCE)?;
        Ok(State { wire, arm: report, came })
    }

    /// Waits until the arm has handled all that will ever come. Nothing gets on while a hypervisor has taken
    /// one of `cpus` away, so each has had a turn between two looks.
    fn settled(
        wire: &Wire<'_>,
        arm: &mut Worker,
        generator: &mut Worker,
        cpus: [usize; 2],
    ) -> Result<State, RaceError> {
        let mut last = State::read(wire, arm, generator)?;
        for _ in 0..SETTLE_STEPS_MAX {
            thread::sleep(SETTLE_STEP);
            cpus.into_iter().try_for_each(switch_once)?;
            let now = State::read(wire, arm, generator)?;
            if now.progress() == last.progress() {
                return Ok(now);
            }
            last = now;
        }
        // A frame still on its way shows as unexplained.
        Ok(last)
    }

    fn progress(&self) -> [u64; 4] {
        let Came { returned, replied, arrived, copied, .. } = &self.came;
        let returned: u64 = returned.iter().flatten().sum();
        let replied = replied.iter().map(|r| r.distinct + r.duplicates + r.foreign);
        let arrived = arrived.iter().map(|a| a.distinct + a.duplicates + a.foreign);
        let copied = copied.iter().map(Copied::seen);
        let returned = returned + replied.chain(arrived).chain(copied).sum::<u64>();
        let lost = self.arm.lane.lost() + self.arm.app.lost();
        [self.arm.records, returned, self.arm.lane.rx_frames, lost]
    }

    /// Frames that came back otherwise than they were sent, so far.
    fn changed(&self) -> u64 {
        let returned = self.came.returned.iter().flatten();
        returned.copied().nth(crate::returns::CHANGED).unwrap_or(0)
    }

    /// Frames of `segment` that came back; `None` where none are to.
    fn returned(&self, segment: u8) -> Option<u64> {
        let returned = self.came.returned.as_ref()?;
        Some(returned.get(usize::from(segment)).copied().unwrap_or(0))
    }
}

impl Walk<'_> {
    /// Has one segment sent, and meters its window.
    fn send(&mut self, schedule: &SegmentPlan) -> Result<Metered, RaceError> {
        self.send_at(schedule, Pace::Open)
    }

    fn send_at(&mut self, schedule: &SegmentPlan, pace: Pace) -> Result<Metered, RaceError> {
        let Walk { bench, plan, wire, arm, generator, .. } = self;
        let schedule = SegmentPlan { t0_ns: MonotonicClock.now_ns() + LEAD_NS, ..*schedule };
        wire.expect(&schedule)?;
        arm.order(&Order::Segment(schedule))?;
        // A frame that came before its segment was heard of would be nobody's. Where that took longer than
        // the lead the generator is late, and says so.
        let heard = (report(arm)?, MonotonicClock.now_ns());
        generator.order(&match plan.sending.traffic.client() {
            Some(_) => Order::Ask(match pace {
                Pace::Open => Asking { schedule, is_closed: false, requests: None },
                Pace::Closed(requests) => Asking { schedule, is_closed: true, requests },
            }),
            None => Order::Segment(schedule),
        })?;
        let open_ns = schedule.t0_ns - OPEN_NS;
        thread::sleep(Duration::from_nanos(open_ns.saturating_sub(MonotonicClock.now_ns())));
        let start: Reading = bench.meter().read()?;
        let length = Duration::from_nanos(plan.sending.timetable.length_ns(&schedule));
        let waits_ms = plan.sending.traffic.client().map_or(0, |client| client.timeout_ms);
        let patience = PATIENCE + Duration::from_millis(waits_ms.into());
        let (sent, mut asked) = match generator.reply(length * 4 + patience)? {
            Reply::Sent(sent) => (sent, None),
            Reply::Asked(asked) => (asked.generator.clone(), Some(*asked)),
            _ => return Err(generator.failed("it answered out of turn")),
        };
        let end = bench.meter().read()?;
        thread::sleep(DRAIN - IDLE_LOOK);
        let drained = bench.meter().read()?;
        thread::sleep(IDLE_LOOK);
        let close = bench.meter().read()?;
        let idle = close.since(&drained);
        let polls = idle.own_ns(plan.arm) as f64 > idle.window_ns as f64 * POLLING_MIN;
        // Polling goes on for ever: of that behind the last frame nothing is a record's.
        let usage = if polls { end.since(&start) } else { close.since(&start) };
        if let Some(asked) = &mut asked {
            // The arm takes part in it, so this is before it is parked; and behind the window, since it is no request's.
            generator.order(&Order::Report)?;
            let Reply::Reopened(found) = generator.reply(patience)? else {
                return Err(generator.failed("it answered out of turn"));
            };
            asked.found(found);
        }
        Ok(Metered { sent, usage, polls, heard, asked })
    }

    /// Where every frame of a segment and every ping `beside` it went, by what was counted since
    /// `before`. The counters know no difference: a queue that was full when a ping came counts it, too.
    fn ledger(
        &self,
        schedule: &SegmentPlan,
        sent: &GeneratorReport,
        after: &State,
        seen: &SegmentSeen,
        beside: Option<&PingTrial>,
    ) -> Ledger {
        let Walk { plan, before, wire, way, .. } = self;
        let caps = &self.arm.ready.caps;
        // What is lost in front of the arm is lost to every output.
        let copies = plan.sending.traffic.copies();
        let planned = u64::from(schedule.frames);
        let strays = after.arm.foreign - before.arm.foreign;
        // What came late of an earlier segment, whose ledger was closed without it.
        let late = (after.arm.records - before.arm.records).saturating_sub(match plan.peer {
            None if plan.app.race.counted.by_witness() => seen.records(),
            _ => u64::MAX,
        });
        let wrong = after.came.copied.iter().flat_map(|copied| &copied.wrong);
        let mut ledger = Ledger {
            offered: planned * copies,
            copies: plan.sending.traffic.fanout().map(|_| copies),
            by_cable: after
                .came
                .copied
                .as_ref()
                .map_or_else(Vec::new, |copied| copied.by_cable.clone()),
            wrong: wrong.map(|(what, n)| ((*what).to_owned(), *n)).collect(),
            delivered: match (before.returned(schedule.segment), after.returned(schedule.segment)) {
                // The counter is the bench's: other trials had segments of this number, too.
                (Some(before), Some(after)) => after - before,
                _ => seen.delivered,
            },
            duplicates: seen.duplicates,
            reordered: seen.reordered,
            foreign: seen.foreign + strays + late,
            ..Ledger::default()
        };
        if let Some(pinged) = beside {
            ledger.offered += pinged.sent;
            ledger.delivered += pinged.replied;
        }
        let mut name = |place: &str, n: u64| {
            if n > 0 {
                *ledger.drops.entry(place.to_owned()).or_insert(0) += n;
            }
        };
        let not_sent = planned.saturating_sub(sent.sent + sent.refused);
        name("generator: not sent", not_sent * copies);
        let ring_full = after.wire.ring_full - before.wire.ring_full;
        // A lane may be told of each frame that the ring refused (ENOBUFS), and counts
        // it, too, or offers it again: sendmmsg tells only of a refusal of the first. So what the lane
        // gave up is lost, and the ring's own count may be higher. Live frames and AF_XDP are told
        // nothing.
        let (by_ring, by_generator) = match way {
            WayIn::Lane { lane, .. } if is_told(plan.tables, lane) => {
                let lost = ring_full.min(sent.refused);
                (lost, sent.refused - lost)
            }
            _ => (ring_full, sent.refused),
        };
        name("generator: refused", by_generator * copies);
        name(wire.ring(), by_ring * copies);
        // A frame that an XDP program cannot redirect into a socket is counted by the driver and by
        // the socket, which knows the reason.
        let redirects = caps.obtained.has(Cap::NativeXdp) || caps.by_redirect;
        let by_socket = |state: &State| match redirects {
            true => REDIRECT_LOSSES.iter().map(|&reason| state.arm.lane.drops(reason)).sum::<u64>(),
            false => 0,
        };
        let receive = after.wire.receive - before.wire.receive;
        let by_peer = plan.peer.is_some();
        let by_socket = if by_peer { 0 } else { by_socket(after) - by_socket(before) };
        name("veth receive", receive.saturating_sub(by_socket) * copies);
        let mut counted =
            |before: &Counters, after: &Counters, ours: &dyn Fn(DropReason) -> u64| {
                for (reason, n) in after.nonzero_drops() {
                    let n = n.saturating_sub(before.drops(reason));
                    let each = if is_of_a_copy(reason) { 1 } else { copies };
                    name(reason.name(), n.saturating_sub(ours(reason)) * each);
                }
            };
        if !by_peer {
            // What the lane says of a tap's queue is the interface's counter, named above already.
            let is_the_rings = |reason| reason == DropReason::RxQueueFull && wire.is_tap();
            let ours = |reason| if is_the_rings(reason) { ring_full } else { 0 };
            counted(&before.arm.lane, &after.arm.lane, &ours);
            counted(&before.arm.app, &after.arm.app, &|_| 0);
        }
        let merged_losses = after.arm.lane.drops(DropReason::RxQueueFull)
            - before.arm.lane.drops(DropReason::RxQueueFull);
        if caps.joins_fragments {
            name(JOINED, (after.wire.joined - before.wire.joined) * copies);
        }
        name("far end receive", after.wire.return_receive - before.wire.return_receive);
        ledger.balance();
        if !by_peer && caps.obtained.has(Cap::Gro) {
            train_losses(&mut ledger, merged_losses * copies);
        }
        changed_on_the_way(&mut ledger, after.changed().saturating_sub(before.changed()));
        let ring_full_behind = after.wire.return_ring_full - before.wire.return_ring_full;
        return_losses(&mut ledger, RETURN_RING, ring_full_behind);
        let queue_full = after.wire.return_queue_full - before.wire.return_queue_full;
        return_losses(&mut ledger, RETURN_QUEUE, queue_full);
        if let WayIn::Live { to_tap: true, .. } = way {
            let received = after.arm.lane.rx_frames - before.arm.lane.rx_frames;
            bulk_losses(&mut ledger, ring_full, sent.sent.saturating_sub(received + ring_full));
        }
        if !plan.counts {
            nobody_knows(&mut ledger);
        } else if by_peer {
            peer_losses(&mut ledger, &before.arm.lane, &after.arm.lane);
        }
        if beside.is_some() {
            refused_pings(&mut ledger, wire.ring());
        }
        ledger
    }
}

/// Whether what is counted under this reason is one copy on its way out, and not a datagram that all copies would have
/// been made of.
fn is_of_a_copy(reason: DropReason) -> bool {
    use DropReason as Of;
    match reason {
        Of::TxRefused
        | Of::TxTooLong
        | Of::TxNoPort
        | Of::TxSocketFull
        | Of::TxInterfaceFull
        | Of::NoNeighbour
        | Of::NoRoute
        | Of::TtlExpired
        | Of::Sampled
        | Of::RateLimited
        | Of::SinkFull => true,
        Of::RxQueueFull
        | Of::RxNoFrame
        | Of::RxError
        | Of::RxTooLong
        | Of::RecordRingFull
        | Of::LinkLoss
        | Of::LinkQueueFull
        | Of::Filtered
        | Of::FlowTableFull
        | Of::LinkTypeUnknown
        | Of::Malformed
        | Of::BadChecksum
        | Of::NotForUs
        | Of::NoListener
        | Of::Fragment
        | Of::ConnTableFull => false,
    }
}

/// Whether the lane that sends is told of each frame that the ring refused.
fn is_told(tables: &dyn Tables, lane: &str) -> bool {
    tables.lane(lane).is_ok_and(|(facts, _)| facts.told_of_refusals)
}

/// Names the rest of the bulks that a tap's queue refused. Live frames come to it in bulks of up to
/// [`BULK_FRAMES_MAX`]; at the first that finds no room the device counts one (`tx_dropped`) and the
/// kernel frees the rest of the bulk, which no interface counts. So named is what is missing, if it
/// did not get as far as the arm (`in_front`, by the arm's own receive counter), and no more than the
/// refused bulks can have held: a frame lost elsewhere stays unexplained.
fn bulk_losses(ledger: &mut Ledger, refused_bulks: u64, in_front: u64) {
    let missing = u64::try_from(ledger.unexplained).unwrap_or(0);
    let n = missing.min(in_front).min(refused_bulks * (BULK_FRAMES_MAX - 1));
    if n > 0 {
        ledger.drops.insert(REST_OF_BULK.to_owned(), n);
        ledger.balance();
    }
}

/// Names the rest of the trains that a socket's full queue refused. Of datagrams that GRO merged, up to
/// [`TRAIN_DATAGRAMS_MAX`], the kernel counts one (`sk_drops`) for all. So named is what is missing, and no more than the
/// refused trains can have held: a datagram lost elsewhere stays unexplained.
fn train_losses(ledger: &mut Ledger, refused_trains: u64) {
    let missing = u64::try_from(ledger.unexplained).unwrap_or(0);
    let n = missing.min(refused_trains * (TRAIN_DATAGRAMS_MAX - 1));
    if n > 0 {
        ledger.drops.insert(REST_OF_TRAIN.to_owned(), n);
        ledger.balance();
    }
}

/// Names what is missing behind somebody else's program. It counts what it likes, some of it once more
/// than the kernel did: so its counters name what no counter of the kernel does, and nothing beyond it.
fn peer_losses(ledger: &mut Ledger, before: &Counters, after: &Counters) {
    for (reason, n) in after.nonzero_drops() {
        let missing = u64::try_from(ledger.unexplained).unwrap_or(0);
        let n = n.saturating_sub(before.drops(reason)).min(missing);
        if n > 0 {
            ledger.drops.insert(format!("peer: {}", reason.name()), n);
            ledger.balance();
        }
    }
    if ledger.unexplained > 0 {
        ledger.drops.insert(NOT_TOLD.to_owned(), ledger.unexplained as u64);
        ledger.balance();
    }
}

/// Of a program that does not say what it received, what no counter of the kernel names may have been received or lost.
fn nobody_knows(ledger: &mut Ledger) {
    ledger.unknown = Some(u64::try_from(ledger.unexplained).unwrap_or(0));
    ledger.balance();
}

/// Takes off what a full ring counted of pings that were no requests: `ping` is told that one was refused
/// (ENOBUFS), tries again, and counts what left. How often, it does not say, so these are the frames that the
/// ring claims beyond what is missing.
fn refused_pings(ledger: &mut Ledger, ring: &str) {
    let beyond = u64::try_from(-ledger.unexplained).unwrap_or(0);
    if let Some(refused) = ledger.drops.get_mut(ring) {
        *refused -= beyond.min(*refused);
        ledger.drops.retain(|_, n| *n > 0);
        ledger.balance();
    }
}

/// Names what came back otherwise than it was sent, as far as it is missing: a program may send more.
fn changed_on_the_way(ledger: &mut Ledger, changed: u64) {
    let n = changed.min(u64::try_from(ledger.unexplained).unwrap_or(0));
    if n > 0 {
        ledger.drops.insert(CHANGED.to_owned(), n);
        ledger.balance();
    }
}

/// Names the frames that a full ring, or the queue in front of it, on the way back refused. Some lanes are told of such a refusal
/// and count it, too; the frames that both have counted are those that both together claim beyond
/// what is missing.
fn return_losses(ledger: &mut Ledger, place: &str, ring_full: u64) {
    let refused = [DropReason::TxRefused, DropReason::TxInterfaceFull];
    let by_lane = refused.iter().filter_map(|reason| ledger.drops.get(reason.name())).sum();
    let beyond = ring_full as i64 - ledger.unexplained;
    let by_both = beyond.clamp(0, ring_full.min(by_lane) as i64) as u64;
    if ring_full > by_both {
        ledger.drops.insert(place.to_owned(), ring_full - by_both);
    }
    ledger.balance();
}

/// Records per second over the `scheduled_ns` of its schedule, over as long as sending took, or over as long as records came:
/// whichever is most. Of a peer that only counts nobody knows when its records came, and at top speed there is
/// no schedule; then what still lay in its queue when the last frame was sent makes it look that much faster.
fn rate(scheduled_ns: u64, sent: &GeneratorReport, seen: &SegmentSeen, delivered: u64) -> f64 {
    let sending_ns = (sent.sent as f64 * 1e9 / sent.achieved_pps.max(1.0)) as u64;
    let taken_ns = seen.last_ns.saturating_sub(seen.first_ns);
    delivered as f64 * 1e9 / scheduled_ns.max(sending_ns).max(taken_ns).max(1) as f64
}

fn cpu(usage: &Usage, arm: usize, polls: bool, spun_ns: Option<u64>, records: u64) -> Cpu {
    let own_ns = usage.own_ns(arm);
    let method = usage.method();
    Cpu {
        own_ns,
        spun_ns,
        ns_per_record: (records > 0).then(|| own_ns as f64 / records as f64),
        generator_side_ns: usage.generator_side_ns(arm),
        unattributed_ns: usage.unattributed_ns(arm),
        foreign_ns: usage.foreign_ns(),
        foreigners: usage.foreigners(),
        contexts_ns: usage.contexts_ns(arm),
        closure: usage.closure(),
        method: match polls {
            true => format!("{method}; the arm polls, and its window ends with the schedule"),
            false => method,
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
    let &GeneratorReport { asked_pps, achieved_pps, late_p99_ns, .. } = sent;
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
    if (usage.closure() - 1.0).abs() > CLOSURE_ERROR_MAX {
        doubts.push(format!(
            "the CPU meter booked {:.1} % of the time there was",
            usage.closure() * 100.0
        ));
    }
    doubts
}

/// Why rate, loss and latency of a segment cannot be used: what other programs, or a hypervisor, took of the CPUs
/// beyond their limits. CPU time can, since none of that is in it.
fn disturbed(usage: &Usage, others_max: f64) -> Option<String> {
    let percent = |ns: u64| ns as f64 * 100.0 / usage.window_ns.max(1) as f64;
    if percent(usage.foreign_ns()) > others_max * 100.0 {
        let names = usage.foreigners().into_iter().take(NAMED_MAX);
        let names: Vec<_> =
            names.map(|(name, ns)| format!("{name} {:.0} %", percent(ns))).collect();
        return Some(format!(
            "other programs used {:.0} % of a CPU ({})",
            percent(usage.foreign_ns()),
            names.join(", ")
        ));
    }
    // What ran once the CPU was back is booked; a rate was not kept meanwhile, and a latency is the hypervisor's.
    let stolen = |(_, ns): &(&usize, &u64)| **ns as f64 > usage.window_ns as f64 * STEAL_MAX;
    let (cpu, ns) = usage.steal_ns.iter().find(stolen)?;
    Some(format!("the hypervisor took CPU {cpu} away for {} ms", ns / 1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(offered: u64, delivered: u64, refused: u64) -> Ledger {
        let mut ledger = Ledger { offered, delivered, ..Ledger::default() };
        if refused > 0 {
            ledger.drops.insert(DropReason::TxRefused.name().to_owned(), refused);
        }
        ledger.balance();
        ledger
    }

    #[test]
    fn a_refusal_that_ring_and_lane_both_counted_is_named_once() {
        // The lane was told of all 10.
        let mut told = ledger(100, 90, 10);
        return_losses(&mut told, RETURN_RING, 10);
        assert_eq!((told.unexplained, told.dropped()), (0, 10));
        // The lane refused 4 itself; the ring refused 10 more and told nobody.
        let mut untold = ledger(100, 86, 4);
        return_losses(&mut untold, RETURN_RING, 10);
        assert_eq!((untold.unexplained, untold.drops["return ring full"]), (0, 10));
    }

    #[test]
    fn the_rest_of_a_refused_bulk_is_named_within_three_bounds() {
        let lost = |counted: u64, missing: u64| {
            let mut ledger = ledger(1_000, 1_000 - counted - missing, 0);
            ledger.drops.insert("tap queue full".to_owned(), counted);
            ledger.balance();
            ledger
        };
        let mut whole = lost(10, 120);
        bulk_losses(&mut whole, 10, 120);
        assert_eq!((whole.unexplained, whole.drops[REST_OF_BULK]), (0, 120));
        let mut beyond_the_bulks = lost(2, 31);
        bulk_losses(&mut beyond_the_bulks, 2, 31);
        assert_eq!(beyond_the_bulks.unexplained, 1);
        let mut behind_the_arm = lost(10, 20);
        bulk_losses(&mut behind_the_arm, 10, 15);
        assert_eq!(behind_the_arm.unexplained, 5);
        let mut nothing_refused = lost(0, 3);
        bulk_losses(&mut nothing_refused, 0, 3);
        assert_eq!(nothing_refused.unexplained, 3);
    }

    #[test]
    fn a_cpu_that_the_hypervisor_took_away_costs_the_segment_its_rate() {
        let stolen = |ms: u64| {
            let steal_ns = [(0, 0), (1, ms * 1_000_000)].into();
            let mut usage = Usage::default();
            (usage.window_ns, usage.cpus, usage.steal_ns) = (100_000_000, 2, steal_ns);
            disturbed(&usage, 0.1)
        };
        assert_eq!(stolen(20), None);
        let why = stolen(30).expect("30 % of the window");
        assert_eq!(why, "the hypervisor took CPU 1 away for 30 ms");
    }

    #[test]
    fn the_rest_of_a_refused_train_is_named_and_nothing_beyond_it() {
        let lost = |counted: u64, missing: u64| {
            let mut ledger = ledger(1_000, 1_000 - counted - missing, 0);
            ledger.drops.insert(DropReason::RxQueueFull.name().to_owned(), counted);
            ledger.balance();
            train_losses(&mut ledger, counted);
            (ledger.unexplained, ledger.dropped())
        };
        assert_eq!((lost(3, 60), lost(1, 63), lost(5, 0)), ((0, 63), (0, 64), (0, 5)));
        assert_eq!((lost(1, 64), lost(0, 7)), ((1, 64), (7, 0)));
    }

    #[test]
    fn a_peer_that_only_counts_has_a_rate_at_top_speed() {
        let sent =
            GeneratorReport { sent: 1_000_000, achieved_pps: 2e6, ..GeneratorReport::default() };
        let silent = SegmentSeen::default();
        assert_eq!(rate(0, &sent, &silent, 800_000), 1.6e6);
        // Who tells when its records came has taken as long as they came.
        let timed = SegmentSeen { first_ns: 7, last_ns: 800_000_007, ..silent };
        assert_eq!(rate(0, &sent, &timed, 800_000), 1e6);
        // By a schedule, what is handled in time has the schedule's rate.
        assert_eq!(rate(1_000_000_000, &sent, &SegmentSeen::default(), 1_000_000), 1e6);
    }

    #[test]
    fn a_ping_that_was_refused_and_tried_again_is_no_loss() {
        let with_ring = |offered, delivered, counted| {
            let mut ledger = ledger(offered, delivered, 0);
            ledger.drops.insert("veth ring full".to_owned(), counted);
            ledger.balance();
            refused_pings(&mut ledger, "veth ring full");
            (ledger.unexplained, ledger.dropped())
        };
        assert_eq!(with_ring(100, 80, 37), (0, 20));
        assert_eq!(with_ring(100, 100, 5), (0, 0));
        // What is lost without a name stays so, and what came twice beyond the ring's count.
        assert_eq!(with_ring(100, 80, 15), (5, 15));
        assert_eq!(with_ring(100, 110, 4), (-10, 0));
    }

    #[test]
    fn a_peers_counters_name_what_is_missing_and_nothing_beyond_it() {
        let mut after = Counters::default();
        after.set_drops(DropReason::RxQueueFull, 15);
        let mut counted_twice = ledger(100, 90, 0);
        counted_twice.drops.insert("veth receive".to_owned(), 8);
        counted_twice.balance();
        peer_losses(&mut counted_twice, &Counters::default(), &after);
        assert_eq!((counted_twice.unexplained, counted_twice.drops["peer: rx_queue_full"]), (0, 2));
        let mut untold = ledger(100, 80, 0);
        peer_losses(&mut untold, &Counters::default(), &after);
        assert_eq!((untold.unexplained, untold.drops[NOT_TOLD]), (0, 5));
        // A frame that came out twice is not explained away.
        let mut twice = ledger(100, 105, 0);
        peer_losses(&mut twice, &Counters::default(), &after);
        assert_eq!((twice.unexplained, twice.dropped()), (-5, 0));
    }

    #[test]
    fn what_a_program_does_not_tell_is_unknown_and_paid_for_as_offered() {
        let mut silent = ledger(100, 0, 30);
        nobody_knows(&mut silent);
        assert_eq!((silent.unknown, silent.unexplained, silent.dropped()), (Some(70), 0, 30));
        assert_eq!((silent.paid_for(), silent.delivers()), (100, false));
        // What is counted twice is not hidden by it.
        let mut twice = ledger(100, 0, 130);
        nobody_knows(&mut twice);
        assert_eq!((twice.unknown, twice.unexplained), (Some(0), -30));
    }

    #[test]
    fn what_came_back_changed_is_named_as_far_as_it_is_missing() {
        let mut lost = ledger(100, 70, 0);
        changed_on_the_way(&mut lost, 20);
        assert_eq!((lost.unexplained, lost.drops[CHANGED]), (10, 20));
        let mut more = ledger(100, 90, 0);
        changed_on_the_way(&mut more, 25);
        assert_eq!((more.unexplained, more.dropped()), (0, 10));
    }

    #[test]
    fn neither_a_loss_nor_a_count_too_many_is_explained_away() {
        let mut lost = ledger(100, 80, 0);
        return_losses(&mut lost, RETURN_RING, 10);
        assert_eq!(lost.unexplained, 10);
        let mut twice = ledger(100, 95, 0);
        return_losses(&mut twice, RETURN_RING, 10);
        assert_eq!(twice.unexplained, -5);
    }
}
