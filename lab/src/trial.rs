//! One trial: a fresh arm and a fresh generator walk an idle control and then every load.
//!
//! ```text
//!  before ─▶ [ meter ── t0 ── frames on schedule ── last ── drain ── meter ] ─▶ settle ─▶ after
//!  counters   └───────────────── window ─────────────────────────────────┘      counters
//! ```
//!
//! Nothing but arm, generator and kernel runs within a window: counters are read outside of it.

use crate::bench::{Bench, DESTINATION, WireLosses};
use crate::meter::{Class, Reading, Usage};
use crate::plan::{
    ArmReport, ArmSetup, GeneratorSetup, Order, Plant, Reply, SegmentPlan, SegmentSeen,
};
use crate::race::RaceError;
use crate::result::{Cpu, GeneratorReport, Ledger, Segment};
use crate::worker::Worker;
use laneway_core::{Cap, CapsReport, Clock, Counters, DropReason};
use laneway_engine::MonotonicClock;
use laneway_stats::Latency;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// From the order to the first frame: the sink hears of a segment at its next tick, 10 ms away at
/// most.
const LEAD_NS: u64 = 60_000_000;
/// The window opens this long before the first frame.
const OPEN_NS: u64 = 8_000_000;
/// From the last frame to the end of the window: what is queued is still handled in it.
const DRAIN: Duration = Duration::from_millis(50);
/// Between two looks at an arm that is settling.
const SETTLE_STEP: Duration = Duration::from_millis(15);
/// Windows of the idle control, and the most of them while other programs run.
const IDLE_WINDOWS: u32 = 3;
const IDLE_WINDOWS_MAX: u32 = 30;
/// Times a load is offered again because it was disturbed.
const RETRIES_MAX: usize = 3;
/// Looks at an arm that does not settle.
const SETTLE_STEPS_MAX: usize = 200;
/// What is added to a segment's own length before a silent child is given up.
const PATIENCE: Duration = Duration::from_secs(20);
/// What an AF_XDP socket counts when a redirect into it fails.
const REDIRECT_LOSSES: [DropReason; 3] =
    [DropReason::RxQueueFull, DropReason::RxNoFrame, DropReason::RxError];
/// Share of one CPU that everything but arm, generator and kernel may take.
const OTHERS_MAX: f64 = 0.1;
/// How far the meter's parts may be from the whole.
const CLOSURE_ERROR_MAX: f64 = 0.03;

/// What a trial is to do.
pub(crate) struct TrialPlan<'a> {
    /// Index of the arm.
    pub(crate) arm: usize,
    /// Its name.
    pub(crate) name: &'a str,
    /// Its lane spec.
    pub(crate) lane: &'a str,
    /// Its planted fault.
    pub(crate) plant: Plant,
    /// The block it belongs to.
    pub(crate) block: usize,
    /// The capture replayed.
    pub(crate) capture: &'a Path,
    /// How frames enter the wire.
    pub(crate) way: &'a str,
    /// Frames per burst.
    pub(crate) burst: u32,
    /// Offered loads.
    pub(crate) loads_pps: &'a [u64],
    /// Length of a segment.
    pub(crate) segment: Duration,
    /// Length of the idle control.
    pub(crate) idle: Duration,
    /// Largest p99 of the generator's lateness.
    pub(crate) late_p99_ns_max: u64,
    /// Set when nobody wants the trial any more.
    pub(crate) interrupted: &'a AtomicBool,
}

/// A trial's outcome; one file each.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Trial {
    /// Name of the arm.
    pub arm: String,
    /// Asked for and obtained by the arm.
    pub caps: CapsReport,
    /// What the generator obtained.
    pub generator_caps: CapsReport,
    /// One per load, in order.
    pub segments: Vec<Segment>,
    /// Latencies behind each segment: wire to app.
    pub wire_to_app: Vec<Latency>,
    /// Latencies behind each segment: app only.
    pub app_only: Vec<Latency>,
    /// Samples and checksum of the features of each segment.
    pub checksums: Vec<(u64, u64)>,
    /// Loads that were offered again because the first time was disturbed, each with the reason.
    pub again: Vec<String>,
}

/// Runs it.
pub(crate) fn run(bench: &Bench, plan: &TrialPlan<'_>) -> Result<Trial, RaceError> {
    let placement = bench.placement();
    let (namespace, interface) = bench.sut();
    let mut arm = Worker::start(
        format!("arm `{}`", plan.name),
        "arm",
        namespace,
        &ArmSetup {
            lane: plan.lane.to_owned(),
            interface: interface.to_owned(),
            cpu: placement.arm_cpu,
            plant: plan.plant,
        },
    )?;
    bench.meter().classify(arm.pid(), Class::Arm)?;
    bench.claim_napi_threads()?;

    let (namespace, interface) = bench.generator();
    let mut generator = Worker::start(
        "generator".to_owned(),
        "generate",
        namespace,
        &GeneratorSetup {
            capture: plan.capture.to_owned(),
            way: plan.way.to_owned(),
            interface: interface.to_owned(),
            ifindex: bench.describe()?.generator.state.ifindex,
            destination: DESTINATION,
            cpu: placement.generator_cpu,
        },
    )?;
    bench.meter().classify(generator.pid(), Class::Generator)?;

    thread::sleep(DRAIN);
    let idle = idle_control(bench, plan.idle)?;

    let mut trial = Trial {
        arm: plan.name.to_owned(),
        caps: arm.ready.caps.clone(),
        generator_caps: generator.ready.caps.clone(),
        segments: Vec::new(),
        wire_to_app: Vec::new(),
        app_only: Vec::new(),
        checksums: Vec::new(),
        again: Vec::new(),
    };
    let mut number = 0;
    let mut before = State::read(bench, &mut arm)?;
    for load in 0..plan.loads_pps.len() {
        for attempt in 0..=RETRIES_MAX {
            if plan.interrupted.load(Ordering::Relaxed) {
                return Err(RaceError::Interrupted);
            }
            number += 1;
            let schedule = schedule(plan, load, number);
            let (sent, usage) = send(bench, &mut arm, &mut generator, &schedule)?;
            let after = State::settled(bench, &mut arm)?;
            let seen = after.arm.segments.last().cloned().unwrap_or_default();
            let mut segment = Segment {
                arm: plan.arm,
                block: plan.block,
                order: 0,
                load,
                window_ns: usage.window_ns,
                ledger: ledger(&schedule, &sent, &before, &after, &seen, &arm.ready.caps),
                records_per_s: rate(&schedule, &seen),
                cpu: cpu(&usage, &idle, seen.delivered),
                generator: GeneratorReport { cpu_ns: usage.generator_ns(), ..sent },
                wire_to_app: Some(seen.wire_to_app.summary()),
                app_only: Some(seen.app_only.summary()),
                memory: after.arm.memory.clone(),
                invalid: Vec::new(),
            };
            segment.invalid = doubts(&segment, &idle, plan.late_p99_ns_max);
            before = after;
            if let (Some(why), true) = (segment.invalid.first(), attempt < RETRIES_MAX) {
                trial.again.push(format!("{}/s: {why}", plan.loads_pps[load]));
                continue;
            }
            trial.segments.push(segment);
            trial.checksums.push((seen.samples, seen.checksum));
            trial.wire_to_app.push(seen.wire_to_app);
            trial.app_only.push(seen.app_only);
            break;
        }
    }
    // Both end when they are dropped; told first, they do so side by side.
    generator.order(&Order::Stop)?;
    arm.order(&Order::Stop)?;
    Ok(trial)
}

/// The quietest of a few windows without traffic, and of more while other programs run: what
/// disturbs a window is not the arm.
fn idle_control(bench: &Bench, length: Duration) -> Result<Usage, RaceError> {
    let mut quietest: Option<Usage> = None;
    for window in 0..IDLE_WINDOWS_MAX {
        let start = bench.meter().read()?;
        thread::sleep(length / IDLE_WINDOWS);
        let usage = bench.meter().read()?.since(&start);
        if quietest.as_ref().is_none_or(|least| usage.busy_ns() < least.busy_ns()) {
            quietest = Some(usage);
        }
        let is_quiet = |usage: &Usage| others(&usage.contexts_ns(), usage.window_ns) <= OTHERS_MAX;
        if window + 1 >= IDLE_WINDOWS && quietest.as_ref().is_some_and(is_quiet) {
            break;
        }
    }
    Ok(quietest.unwrap_or_default())
}

/// Time of everything but arm, generator, receive stack and interrupts, as a share of one CPU.
fn others(contexts_ns: &BTreeMap<String, u64>, window_ns: u64) -> f64 {
    contexts_ns.get("other tasks").copied().unwrap_or(0) as f64 / window_ns.max(1) as f64
}

fn schedule(plan: &TrialPlan<'_>, load: usize, segment: u8) -> SegmentPlan {
    let pps = plan.loads_pps[load].max(1);
    let burst = u64::from(plan.burst.max(1));
    let interval_ns = (burst * 1_000_000_000 / pps).max(1);
    let bursts = (plan.segment.as_nanos() as u64 / interval_ns).max(1);
    SegmentPlan {
        segment,
        t0_ns: 0,
        frames: u32::try_from(bursts * burst).unwrap_or(u32::MAX),
        interval_ns,
        burst: plan.burst.max(1),
    }
}

/// Has one segment sent, and meters its window.
fn send(
    bench: &Bench,
    arm: &mut Worker,
    generator: &mut Worker,
    schedule: &SegmentPlan,
) -> Result<(GeneratorReport, Usage), RaceError> {
    let schedule = SegmentPlan { t0_ns: MonotonicClock.now_ns() + LEAD_NS, ..*schedule };
    arm.order(&Order::Segment(schedule))?;
    generator.order(&Order::Segment(schedule))?;
    let open_ns = schedule.t0_ns - OPEN_NS;
    thread::sleep(Duration::from_nanos(open_ns.saturating_sub(MonotonicClock.now_ns())));
    let start: Reading = bench.meter().read()?;
    let length = Duration::from_nanos(schedule.end_ns() - schedule.t0_ns);
    let Reply::Sent(sent) = generator.reply(length * 4 + PATIENCE)? else {
        return Err(generator.failed("it answered out of turn"));
    };
    thread::sleep(DRAIN);
    let usage = bench.meter().read()?.since(&start);
    Ok((sent, usage))
}

/// Everything cumulative, read outside of windows.
struct State {
    wire: WireLosses,
    arm: ArmReport,
}

impl State {
    fn read(bench: &Bench, arm: &mut Worker) -> Result<State, RaceError> {
        arm.order(&Order::Report)?;
        let report = match arm.reply(PATIENCE)? {
            Reply::Report(report) => *report,
            _ => return Err(arm.failed("it answered out of turn")),
        };
        Ok(State { wire: bench.losses()?, arm: report })
    }

    /// Waits until the arm has handled all that will ever come.
    fn settled(bench: &Bench, arm: &mut Worker) -> Result<State, RaceError> {
        let mut last = State::read(bench, arm)?;
        for _ in 0..SETTLE_STEPS_MAX {
            thread::sleep(SETTLE_STEP);
            let now = State::read(bench, arm)?;
            if now.progress() == last.progress() {
                return Ok(now);
            }
            last = now;
        }
        // A frame still on its way shows as unexplained.
        Ok(last)
    }

    fn progress(&self) -> (u64, u64, u64) {
        let delivered = self.arm.segments.iter().map(|s| s.delivered + s.duplicates).sum();
        (delivered, self.arm.lane.rx_frames, self.arm.lane.lost() + self.arm.app.lost())
    }
}

fn ledger(
    schedule: &SegmentPlan,
    sent: &GeneratorReport,
    before: &State,
    after: &State,
    seen: &SegmentSeen,
    caps: &CapsReport,
) -> Ledger {
    let offered = u64::from(schedule.frames);
    let strays = after.arm.foreign - before.arm.foreign;
    let mut ledger = Ledger {
        offered,
        delivered: seen.delivered,
        duplicates: seen.duplicates,
        reordered: seen.reordered,
        foreign: seen.foreign + strays,
        ..Ledger::default()
    };
    let mut name = |place: &str, n: u64| {
        if n > 0 {
            *ledger.drops.entry(place.to_owned()).or_insert(0) += n;
        }
    };
    name("generator: not sent", offered.saturating_sub(sent.sent + sent.refused));
    name("generator: refused", sent.refused);
    name("veth ring full", after.wire.ring_full - before.wire.ring_full);
    // A frame that an XDP program cannot redirect into a socket is counted by the driver and by the
    // socket, which knows the reason.
    let by_socket = |state: &State| match caps.obtained.has(Cap::NativeXdp) {
        true => REDIRECT_LOSSES.iter().map(|&reason| state.arm.lane.drops(reason)).sum::<u64>(),
        false => 0,
    };
    let receive = after.wire.receive - before.wire.receive;
    name("veth receive", receive.saturating_sub(by_socket(after) - by_socket(before)));
    let mut counted = |before: &Counters, after: &Counters| {
        for (reason, n) in after.nonzero_drops() {
            name(reason.name(), n.saturating_sub(before.drops(reason)));
        }
    };
    counted(&before.arm.lane, &after.arm.lane);
    counted(&before.arm.app, &after.arm.app);
    ledger.balance();
    ledger
}

/// Records per second over the schedule, or over as long as it took if that is more.
fn rate(schedule: &SegmentPlan, seen: &SegmentSeen) -> f64 {
    let scheduled_ns = schedule.end_ns() - schedule.t0_ns + schedule.interval_ns;
    let taken_ns = seen.last_ns.saturating_sub(seen.first_ns);
    seen.delivered as f64 * 1e9 / scheduled_ns.max(taken_ns) as f64
}

fn cpu(usage: &Usage, idle: &Usage, delivered: u64) -> Cpu {
    let scale = usage.window_ns as f64 / idle.window_ns.max(1) as f64;
    let idle_control_ns = (idle.busy_ns() as f64 * scale) as u64;
    let own_ns = usage.busy_ns() as f64 - idle_control_ns as f64;
    Cpu {
        busy_ns: usage.busy_ns(),
        idle_control_ns,
        ns_per_record: (delivered > 0).then(|| own_ns / delivered as f64),
        contexts_ns: usage.contexts_ns(),
        closure: usage.closure(),
        method: format!(
            "tracepoints sched_switch, softirq and irq entry and exit; {} events booked in this \
             window, their cost is inside these figures",
            usage.events
        ),
    }
}

/// Why a segment cannot be used. What the arm did is no reason, except that its ledger is judged
/// by the race.
fn doubts(segment: &Segment, idle: &Usage, late_p99_ns_max: u64) -> Vec<String> {
    let mut doubts = Vec::new();
    let GeneratorReport { asked_pps, achieved_pps, late_p99_ns, .. } = segment.generator;
    if achieved_pps < asked_pps * 0.99 {
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
    for (share, when) in [
        (others(&segment.cpu.contexts_ns, segment.window_ns), "while frames were sent"),
        (others(&idle.contexts_ns(), idle.window_ns), "during the idle control"),
    ] {
        if share > OTHERS_MAX {
            doubts.push(format!(
                "other programs used {:.0} % of a CPU {when}; stop them and race again",
                share * 100.0
            ));
        }
    }
    if (segment.cpu.closure - 1.0).abs() > CLOSURE_ERROR_MAX {
        doubts.push(format!(
            "the CPU meter booked {:.1} % of the time there was",
            segment.cpu.closure * 100.0
        ));
    }
    doubts
}
