//! A race: the arms of a scenario, all alive at once and offered a load one after the other, and what they say.
//!
//! ```text
//!  scenario ─▶ a bench for each arm ─▶ generation: every arm as a fresh process, on a cable drawn anew
//!                                        └─ rounds: at every load one short segment for every arm, in shuffled and
//!                                           then reversed order, until the generation's share of the time is over
//!                                    ─▶ generation ... until every verdict is decided, or the time is over
//!  segments ─▶ ledgers, comparisons with the base, verdicts, goals ─▶ RaceResult
//! ```
//!
//! What must always hold: verdicts come from intervals and are judged against the noise floor (the base raced against
//! itself in the same rounds); a segment is left out only because the generator was late, the meter did not close or,
//! for rates and latencies, other programs took the CPU away, never because of what the arm did; a ledger that does
//! not close makes the run invalid.

mod analyse;
mod capacities;
mod clients;
mod contest;
mod demands;
mod doubt;
mod drift;
mod expected;
mod pings;
mod traced;

use crate::bench::{Bench, Instruments};
use crate::command::Task;
use crate::copies;
use crate::fanout::{Fanout, FarEnd};
use crate::headroom;
use crate::host::Look;
use crate::ping;
use crate::plan::Plant;
use crate::result::{Arm, Outcome, Placement, RaceResult, SCHEMA, Segment, Traffic};
use crate::scenario::{ArmPlan, Extent, OTHERS_MAX, Scenario, ScenarioError};
use crate::tables::{Tables, wiring};
use crate::timetable::{Spacing, Times, Timetable};
use crate::traffic::{Payloads, Replayable, Sending, TrafficError, TrafficPlan};
use crate::trial::{self, Trial, TrialPlan};
use crate::why::Explain;
use contest::{Contest, Measured};
pub use expected::{Expected, expected};
use laneway_core::LaneError;
use laneway_kinds::{AppFacts, Counted, Peer, Wiring};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Why a race did not come to a result.
#[derive(Debug, thiserror::Error)]
pub enum RaceError {
    /// The scenario cannot be run.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The traffic cannot be replayed.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// The namespaces or the cable cannot be made.
    #[error(transparent)]
    Bench(#[from] laneway_netns::Error),
    /// The CPU meter cannot be attached.
    #[error("the CPU meter: {0}")]
    Meter(#[from] laneway_bpf::BpfError),
    /// The CPU meter cannot be read.
    #[error("the CPU meter: {0}")]
    Read(#[from] LaneError),
    /// A child failed.
    #[error("{what}: {why}")]
    Child {
        /// Which.
        what: String,
        /// In its own words.
        why: String,
    },
    /// Nobody wants the result any more.
    #[error("the race was interrupted; nothing was left behind and no result was written")]
    Interrupted,
    /// The result cannot be written.
    #[error("cannot write {path}: {source}; give another folder with --out")]
    Write {
        /// Where to.
        path: String,
        /// Why.
        source: std::io::Error,
    },
}

/// How long to race.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// The scenario's short version.
    Quick,
    /// Its long version.
    Full,
}

/// What a caller may decide beyond the scenario.
pub struct Options<'a> {
    /// The apps and lanes that a scenario may name.
    pub tables: &'a dyn Tables,
    /// Which version.
    pub length: Length,
    /// Where to write; created if missing.
    pub out: &'a Path,
    /// The command line, for the result.
    pub command: Vec<String>,
    /// Version of the program, with its commit where known.
    pub version: String,
    /// Behind the last generation, trace every arm of ours once and have it explained by this.
    pub explain: Option<&'a dyn Explain>,
    /// Set when the race is to end early.
    pub interrupted: &'a AtomicBool,
}

/// How far a race is; shown after each generation.
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    /// Generations so far, and how many there are at most.
    pub generations: [usize; 2],
    /// Rounds so far.
    pub rounds: usize,
    /// How long it has been measured, and how long it will be at most, or about, where rounds are counted.
    pub time: [Duration; 2],
    /// Verdicts that are not decided, and all of them.
    pub undecided: [usize; 2],
    /// The trials that have just ended.
    pub trials: &'a [Trial],
    /// True if they were traced, behind the last generation: they are no part of what was measured.
    pub is_traced: bool,
}

/// Runs `scenario` and writes `result.json`, `report.html`, `report.md` and `trials/*.json`.
///
/// # Errors
/// When no result came about. An invalid run is a result, too: see [`RaceResult::invalid`].
pub fn run(
    mut scenario: Scenario,
    options: &Options<'_>,
    mut show: impl FnMut(&Progress<'_>),
) -> Result<RaceResult, RaceError> {
    scenario.check(options.tables)?;
    let app = scenario.facts(options.tables)?;
    if Task::of(&app) != Task::Receive {
        // What it delivers is counted where it comes out.
        scenario.arms.iter_mut().for_each(|arm| arm.counts = true);
    }
    let started = Instant::now();
    let started_unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let look = Look::start();
    let sending = sending(&scenario, &app)?;
    let traffic = describe_traffic(&scenario, &app, &sending)?;
    let trials_folder = options.out.join("trials");
    std::fs::create_dir_all(&trials_folder).map_err(write_error(&trials_folder))?;

    let mut entrants = entrants(&scenario, options.length);
    let placement = placement(&scenario);
    let program = pinging(&mut scenario);
    let extent = extent_of(&scenario, options.length).clone();
    check_times(&extent, &sending)?;
    let instruments = Instruments::attach(&sending)?;
    let bench = || Bench::create(placement.clone(), &app, &sending, instruments.clone());
    let mut benches = vec![bench()?];
    let mut notes = left_out(&scenario, options.length);
    notes.extend(leave_out(&benches[0], &scenario, &extent, &sending, &mut entrants, options)?);
    while benches.len() < entrants.len() {
        benches.push(bench()?);
    }
    let topology = serde_json::to_value(benches[0].describe()?).unwrap_or_default();
    let contest = |extent| Contest {
        benches: &benches,
        scenario: &scenario,
        extent,
        sending: &sending,
        entrants: &entrants,
        options,
    };
    let saturating = contest(&extent).saturating()?;
    let mut headroom = contest(&extent).headroom()?;
    let mut saturating_pps = None;
    match saturating {
        Some(Ok(found)) => {
            saturating_pps = Some(found.pps);
            headroom.extend(found.headroom);
        }
        Some(Err(why)) => notes.push(why),
        None => {}
    }
    notes.extend(headroom::note(&headroom));
    let mut all_loads = extent.clone();
    all_loads.loads_pps.extend(saturating_pps);
    // They have no rate, and stand behind the others as their numbers.
    all_loads.loads_pps.extend(&extent.closed_requests);
    saturating_pps = saturating_pps.or_else(|| extent.closed_requests.last().copied());
    let extent = all_loads;

    let Measured { segments, trials, rounds, generations, mut findings } =
        contest(&extent).run(&app, &mut show)?;
    let loads = extent.loads_pps.len();
    let summaries = analyse::summaries(&segments, &trials, entrants.len(), loads);
    let mut traces = Vec::new();
    if let Some(explainer) = options.explain {
        let pass = traced::Pass {
            bench: &benches[0],
            scenario: &scenario,
            extent: &extent,
            sending: &sending,
            entrants: &entrants,
            options,
            summaries: &summaries,
            generations,
        };
        traces = pass.run(explainer, &mut show)?;
    }
    drop(benches);

    if app.race.counted == Counted::Replies {
        notes.extend(pings::notes(&scenario, program.as_deref()));
    }
    if scenario.others_max > OTHERS_MAX {
        notes.push(format!(
            "this scenario lets other programs use {:.0} % of a CPU, more than the usual {:.0} %: \
             its rates and latencies may be theirs",
            scenario.others_max * 100.0,
            OTHERS_MAX * 100.0
        ));
    }
    notes.extend(analyse::left_out(&segments));
    notes.extend(analyse::silent(&segments, &entrants_names(&entrants)));
    let wired = |entrant: &Entrant| wiring(options.tables, entrant.peer, &entrant.lane);
    let is_shared = |entrant: &Entrant| matches!(wired(entrant), Wiring::SharedMemory { .. });
    if app.race.counted.comes_out() && !entrants.iter().all(is_shared) {
        let by = match scenario.generator_napi_cpu {
            Some(_) => "threads of that side",
            None => "the softirq of whoever sends",
        };
        let fanout = sending.traffic.fanout().map(|plan| plan.fanout);
        let program = fanout.map_or("an XDP program", |fanout| fanout.far_end.program());
        notes.push(format!(
            "delivered is what came back to the generator's side, counted and dropped there by {program} in {by}"
        ));
        if fanout.is_some_and(|fanout| fanout.far_end == FarEnd::Trains) {
            notes.push(copies::trains_note(&segments, &entrants_names(&entrants)));
        }
    }
    if let Some(client) = sending.traffic.client() {
        notes.extend(clients::notes(client, &segments, &entrants_names(&entrants), &extent));
    }
    if extent.topspeed {
        notes.push(topspeed_note(&segments, &entrants, loads - 1));
    } else if let Some(pps) = saturating_pps.filter(|_| !extent.closed_loop) {
        notes.push(format!(
            "{pps}/s is the saturating load: at most {:.0} % of the highest that the generator was seen to keep \
             against every arm before the first generation, and one that it has headroom at, rounded down, the same \
             for all. It is no \
             sustainable rate, and latency at it is that of full queues",
            100.0 * trial::KEPT_SHARE
        ));
    }
    notes.extend(traced::measured_notes(&trials, &entrants));
    if entrants.iter().any(|entrant| wired(entrant) == Wiring::Taps) {
        notes.push(taps_note(&app));
    }
    notes.extend(shared_memory_note(options.tables, &entrants));
    notes.extend(uncounted_note(&entrants));
    let caps = |arm: usize| trials.iter().rfind(|trial| trial.index == arm).map(|t| t.caps.clone());
    let arms = entrants
        .iter()
        .enumerate()
        .map(|(arm, entrant)| Arm {
            name: entrant.name.clone(),
            lane: entrant.lane.clone(),
            // A peer gets none of them: its mode is what it has instead.
            arguments: if entrant.peer.is_none() { entrant.arguments.clone() } else { Vec::new() },
            is_noise_floor: entrant.is_noise_floor,
            delivered_unknown: !entrant.counts,
            note: entrant.note.clone(),
            caps: caps(arm).unwrap_or_default(),
        })
        .collect();
    let (ping, mut ping_findings) =
        pings::section(&trials, entrants.len(), loads, generations, &scenario, program);
    findings.append(&mut ping_findings);
    let (capacity, mut capacity_findings) =
        capacities::section(&trials, entrants.len(), loads, generations, &scenario);
    findings.append(&mut capacity_findings);
    let invalid =
        analyse::faults(&segments, &trials, &entrants_names(&entrants), &load_names(&extent));
    let too_few = analyse::too_few(&segments, &entrants_names(&entrants), &load_names(&extent));
    let mut result = RaceResult {
        schema: SCHEMA.to_owned(),
        title: scenario.title.clone(),
        app: app.name.to_owned(),
        scenario: toml::to_string(&scenario).unwrap_or_default(),
        command: options.command.clone(),
        version: options.version.clone(),
        started_unix_ns: started_unix.as_nanos() as u64,
        seconds: started.elapsed().as_secs_f64(),
        machine: look.finish(),
        topology,
        placement,
        traffic,
        seed: scenario.seed.to_string(),
        generations,
        rounds,
        arms,
        loads_pps: extent.loads_pps.clone(),
        saturating_pps,
        topspeed: extent.topspeed,
        closed_loop: extent.closed_loop,
        closed_requests: extent.closed_requests.clone(),
        summaries,
        findings,
        ping,
        capacity,
        traces,
        drift: None,
        headroom,
        goals: Vec::new(),
        claims_of: scenario.claims_of.clone(),
        claims: Vec::new(),
        too_few,
        invalid,
        notes,
        outcome: Outcome::Done,
        segments,
    };
    result.drift = drift::drift(&result.segments, result.rounds, scenario.matters);
    drift::tell(&mut result);
    analyse::refuse_capacities(&mut result);
    let sought = extent.saturate || extent.topspeed || extent.closed_loop;
    result.goals = demands::goals(&result, &trials, &scenario, sought);
    result.claims = demands::claims(&result, &trials, &scenario, sought);
    result.notes.extend(analyse::unsaturated(&result));
    result.outcome = analyse::outcome(&result);
    write_result(&result, options.out)?;
    Ok(result)
}

/// What a reader must know of the load that is no schedule.
fn topspeed_note(segments: &[Segment], entrants: &[Entrant], load: usize) -> String {
    let sent = entrants.iter().enumerate().filter_map(|(arm, entrant)| {
        let of_arm = segments.iter().filter(|s| s.arm == arm && s.load == load);
        let rates: Vec<f64> = of_arm.map(|s| s.generator.achieved_pps).collect();
        let [median, ..] = analyse::spread(&rates)?;
        Some(format!("{} {:.0}", entrant.name, median / 1e3))
    });
    format!(
        "top speed is no schedule: every arm was sent the same number of frames, as fast as the generator \
         could beside it, so it has no latency, and a rate there is what the arm took while the generator \
         did what it could; sent, median, thousand/s: {}",
        sent.collect::<Vec<_>>().join(", ")
    )
}

/// What a reader must know of arms on TAP devices.
fn taps_note(app: &AppFacts) -> String {
    let written = match app.race.counted {
        Counted::Answered => {
            "What the arm writes goes to the client's sockets within the system call that writes it"
        }
        _ => {
            "What the queue refuses is the device's tx_dropped, here `tap queue full`. What the arm writes to the \
             other device is counted and dropped within the system call that writes it"
        }
    };
    format!(
        "an arm on TAP devices has no NAPI thread: the generator's CPU puts each frame into the queue of the device, \
         and the arm reads it from there by a system call. {written}"
    )
}

/// What a reader must know of arms on shared memory; `None` where there are none.
fn shared_memory_note(tables: &dyn Tables, entrants: &[Entrant]) -> Option<String> {
    let is_one = |entrant: &&Entrant| {
        matches!(wiring(tables, entrant.peer, &entrant.lane), Wiring::SharedMemory { .. })
    };
    let names = entrants.iter().filter(is_one).map(|entrant| format!("`{}`", entrant.name));
    let names = names.collect::<Vec<_>>().join(", ");
    (!names.is_empty()).then(|| {
        format!(
            "on shared memory, which nothing of the kernel's reaches: {names}. Generator and far end \
             are there one process of the lab that polls both ends on the generator's CPU: it copies \
             each frame into the ring in front of the arm (what that refuses is `memif ring full`), \
             takes out what the arm sent on, counts and drops it, without an XDP program. So of a driver, \
             a softirq and the counting, which are in every other arm's CPU time, it has nothing, it \
             is offered what a process can make, and what arrives has arrived in that process's hands: compare its \
             rate, its CPU time and its latency with that in mind"
        )
    })
}

/// What a reader must know of arms that do not say what they received; `None` where there are none.
fn uncounted_note(entrants: &[Entrant]) -> Option<String> {
    let silent = entrants.iter().filter(|entrant| !entrant.counts);
    let names: Vec<String> = silent.map(|entrant| format!("`{}`", entrant.name)).collect();
    (!names.is_empty()).then(|| {
        format!(
            "delivered is unknown of {}: nothing of it says what it received. Its CPU time is per offered packet, \
             received or not, where that of others is per delivered record, so one that loses packets looks cheaper; \
             it has no rate, no loss and no capacity",
            names.join(", ")
        )
    })
}

/// A child that ended with us is no failure of its own.
fn interrupted(options: &Options<'_>, error: RaceError) -> RaceError {
    match options.interrupted.load(Ordering::Relaxed) {
        true => RaceError::Interrupted,
        false => error,
    }
}

/// To two digits: what is beyond them differs from search to search.
fn round_down(pps: u64) -> u64 {
    let step = 10u64.pow(pps.max(1).ilog10().saturating_sub(1));
    pps / step * step
}

/// Who runs where.
pub(crate) fn placement(scenario: &Scenario) -> Placement {
    let Scenario { arm_cpu, generator_cpu, generator_napi_cpu, .. } = *scenario;
    let who = match scenario.client {
        Some(_) if scenario.tso => "the client has",
        Some(_) => "the client and the threaded NAPI of its interface share",
        None => "the generator has",
    };
    let far_end = match generator_napi_cpu {
        None if scenario.tso => format!(
            "TCP segments of up to 64 KiB leave the arm uncut (TSO), for which a cable has no threads: they are received in \
             softirqs that are sent to CPU {generator_cpu} (RPS). "
        ),
        None if scenario.client.is_some() => String::new(),
        None => "What an arm sends is received in a softirq on the arm's CPU. ".to_owned(),
        Some(cpu) if cpu == generator_cpu => format!(
            "What an arm sends is received by threads on the generator's CPU {cpu}, between two of its bursts: it \
             takes nothing of the arm's CPU, and nothing is said of when it came. "
        ),
        Some(cpu) => format!("What an arm sends is received by threads on CPU {cpu}. "),
    };
    let first = match scenario.napi_first {
        true => ", the thread before the worker (SCHED_FIFO), as a softirq would",
        false => "",
    };
    Placement {
        arm_cpu,
        napi_cpu: arm_cpu,
        generator_cpu,
        far_napi_cpu: generator_napi_cpu,
        sentence: format!(
            "The arm's worker and the threaded NAPI of its interface share CPU {arm_cpu}{first}; {who} CPU {generator_cpu}, above \
             every other program in priority where the system lets it. {far_end}Arms that are not offered a load are \
             stopped."
        ),
        tso: scenario.tso,
        napi_first: scenario.napi_first,
    }
}

fn extent_of(scenario: &Scenario, length: Length) -> &Extent {
    match length {
        Length::Quick => &scenario.quick,
        Length::Full => &scenario.full,
    }
}

/// The version of the real ping, where one is to run; where there is none, none is to run.
fn pinging(scenario: &mut Scenario) -> Option<String> {
    let echo = scenario.ping.as_mut().filter(|echo| echo.pings > 0)?;
    let version = ping::version();
    if version.is_none() {
        echo.pings = 0;
    }
    version
}

/// The arms that the scenario itself keeps for the long version, a sentence each.
fn left_out(scenario: &Scenario, length: Length) -> Vec<String> {
    let arms = scenario.arms.iter().filter(|arm| !runs(arm, length));
    let why = "it runs in the long version only (--full), or by name (--lane)";
    arms.map(|arm| format!("skipped: arm `{}`: {why}", arm.name)).collect()
}

/// Whether the scenario lets an arm take part.
fn runs(arm: &ArmPlan, length: Length) -> bool {
    length == Length::Full || !arm.full_only
}

/// Takes out the optional arms that do not start, and gives a sentence for each.
fn leave_out(
    bench: &Bench,
    scenario: &Scenario,
    extent: &Extent,
    sending: &Sending,
    entrants: &mut Vec<Entrant>,
    options: &Options<'_>,
) -> Result<Vec<String>, RaceError> {
    let mut skipped = Vec::new();
    let mut running = Vec::new();
    for entrant in entrants.drain(..) {
        if options.interrupted.load(Ordering::Relaxed) {
            return Err(RaceError::Interrupted);
        }
        if entrant.optional {
            // Of a lane that no wire can be laid to, the arm would open something else.
            if entrant.peer.is_none()
                && let Err(why) = options.tables.lane(&entrant.lane)
            {
                skipped.push(format!("skipped: arm `{}`: {why}", entrant.name));
                continue;
            }
            let plan = trial_plan(scenario, extent, sending, &entrant, [0, 0], options);
            if let Err(error) = trial::start_arm(bench, &plan) {
                skipped.push(format!("skipped: {error}"));
                continue;
            }
        }
        running.push(entrant);
    }
    *entrants = running;
    Ok(skipped)
}

/// An arm as it starts.
pub(crate) struct Entrant {
    name: String,
    lane: String,
    peer: Option<Peer>,
    counts: bool,
    optional: bool,
    note: String,
    plant: Plant,
    arguments: Vec<String>,
    is_traced: bool,
    is_alone: bool,
    is_unlimited: bool,
    is_noise_floor: bool,
}

/// The scenario's arms with the base's twin in second place.
fn entrants(scenario: &Scenario, length: Length) -> Vec<Entrant> {
    let mut entrants: Vec<Entrant> = scenario
        .arms
        .iter()
        .filter(|arm| runs(arm, length))
        .map(|arm| Entrant {
            name: arm.name.clone(),
            lane: arm.what().to_owned(),
            peer: arm.program(),
            counts: arm.counts,
            optional: arm.optional,
            note: arm.note.clone(),
            plant: arm.plant,
            arguments: scenario.arguments_of(arm).to_vec(),
            is_traced: arm.trace,
            is_alone: arm.alone,
            is_unlimited: arm.unlimited,
            is_noise_floor: false,
        })
        .collect();
    let base = &entrants[0];
    let twin = Entrant {
        name: format!("{} again", base.name),
        lane: base.lane.clone(),
        peer: base.peer,
        counts: base.counts,
        optional: false,
        note: "the base once more: what differs here is noise".to_owned(),
        plant: base.plant,
        arguments: base.arguments.clone(),
        is_traced: base.is_traced,
        is_alone: false,
        is_unlimited: base.is_unlimited,
        is_noise_floor: true,
    };
    entrants.insert(1, twin);
    entrants
}

fn entrants_names(entrants: &[Entrant]) -> Vec<String> {
    entrants.iter().map(|entrant| entrant.name.clone()).collect()
}

/// Its loads, as in `at 5000/s`.
fn load_names(extent: &Extent) -> Vec<String> {
    let mut names: Vec<String> = extent.loads_pps.iter().map(|pps| format!("{pps}/s")).collect();
    let without_rate = match (extent.topspeed, extent.closed_loop) {
        (true, _) => Some("top speed"),
        (_, true) => Some("closed loop"),
        _ => None,
    };
    if let (Some(last), Some(name)) = (names.last_mut(), without_rate) {
        *last = name.to_owned();
    }
    let counted = names.iter_mut().rev().zip(extent.closed_requests.iter().rev());
    counted.for_each(|(name, requests)| *name = format!("closed loop of {requests} requests"));
    names
}

fn trial_plan<'a>(
    scenario: &'a Scenario,
    extent: &'a Extent,
    sending: &'a Sending,
    entrant: &'a Entrant,
    [arm, generation]: [usize; 2],
    options: &'a Options<'_>,
) -> TrialPlan<'a> {
    let app = scenario.facts(options.tables).expect("the scenario was checked");
    TrialPlan {
        arm,
        name: &entrant.name,
        tables: options.tables,
        app,
        arguments: &entrant.arguments,
        peer: entrant.peer,
        counts: entrant.counts,
        is_unlimited: entrant.is_unlimited,
        lane: &entrant.lane,
        plant: entrant.plant,
        generation,
        sending,
        way: &scenario.generator,
        burst: scenario.burst,
        loads_pps: &extent.loads_pps,
        topspeed: extent.topspeed,
        closed_loop: extent.closed_loop,
        closed_requests: &extent.closed_requests,
        segment: Duration::from_millis(extent.segment_ms),
        late_p99_ns_max: scenario.late_p99_us_max * 1000,
        others_max: scenario.others_max,
        trace: entrant.is_traced.then(traced::measured),
        interrupted: options.interrupted,
    }
}

/// What is sent, and when.
///
/// # Errors
/// A capture that cannot be read, or has no times where its times are wanted.
pub(crate) fn sending(scenario: &Scenario, app: &AppFacts) -> Result<Sending, RaceError> {
    let traffic = scenario.traffic(app)?;
    let times = scenario.times(&traffic);
    let timetable = Timetable::of(&times)?;
    Ok(Sending { traffic, times, timetable })
}

/// Whether every load can be offered at the times of the capture.
fn check_times(extent: &Extent, sending: &Sending) -> Result<(), ScenarioError> {
    let length = Duration::from_millis(extent.segment_ms);
    for &pps in &extent.loads_pps {
        if let Some(hint) = sending.timetable.objection(pps, length) {
            let what = "a load with `arrivals = \"capture\"`".to_owned();
            return Err(ScenarioError::Value { what, value: pps.to_string(), hint });
        }
    }
    Ok(())
}

fn describe_traffic(
    scenario: &Scenario,
    app: &AppFacts,
    sending: &Sending,
) -> Result<Traffic, RaceError> {
    let replayable = Replayable::prepare(&sending.traffic, &Times::Steady)?;
    let (capture, bytes, flows) = match &sending.traffic {
        TrafficPlan::Capture { path, .. } => {
            let capture = path.display().to_string();
            let bytes = std::fs::read(path)
                .map_err(|source| ScenarioError::Read { path: capture.clone(), source })?;
            (capture, bytes, "each pass over the capture has new addresses")
        }
        TrafficPlan::Udp { payloads, source, destination } => {
            let payloads = match payloads {
                Payloads::Fixed(bytes) => format!("{bytes} bytes payload"),
                Payloads::Imix => {
                    "frames of 64, 594 and 1518 bytes, 7:4:1 (IMIX; with their check sequence)"
                        .to_owned()
                }
            };
            let capture = format!("none: UDP from {source} to {destination}, {payloads}");
            (capture, replayable.templates[0].frame.clone(), "one flow")
        }
        TrafficPlan::Ping { payload_bytes, source, destination } => {
            let capture = format!(
                "none: ICMP echo requests from {source} to {destination}, {payload_bytes} bytes data"
            );
            (capture, replayable.templates[0].frame.clone(), "one source")
        }
        TrafficPlan::Fanout(plan) => {
            let Fanout { groups, outputs, cables, limit_mbit, far_end } = plan.fanout;
            let limit =
                limit_mbit.map(|mbit| format!(", the first limited to {mbit} Mbit/s (tbf)"));
            let capture = format!(
                "none: UDP from {} to {groups} groups from {} on, {} bytes payload, each datagram to come out at \
                 {outputs} outputs of {cables} cables{}; {}",
                plan.source,
                plan.fanout.first_group(),
                plan.payload_bytes,
                limit.unwrap_or_default(),
                far_end.sentence()
            );
            (capture, replayable.templates[0].frame.clone(), "a group for each burst in turn")
        }
        TrafficPlan::Tcp(client) => return Ok(clients::describe(client, scenario)),
    };
    let bursts = match app.race.counted {
        Counted::Replies => {
            format!("one by one up to 50,000/s, in bursts of up to {} beyond", scenario.burst)
        }
        _ if scenario.burst == 1 => "one by one".to_owned(),
        _ => format!("in bursts of {}", scenario.burst),
    };
    let spaced = match scenario.arrivals {
        Spacing::Steady => "constant rate",
        Spacing::Poisson => "exponential gaps (a Poisson process, seeded),",
        Spacing::Capture => "the capture's own time stamps, scaled to the mean rate,",
    };
    let sha256: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
    Ok(Traffic {
        capture,
        sha256,
        frames: replayable.frames,
        replayed: replayable.templates.len(),
        mean_frame_bytes: replayable.mean_frame_bytes,
        generator: scenario.generator.clone(),
        spacing: scenario.arrivals,
        schedule: format!("open loop, {spaced} {bursts}; {flows}"),
    })
}

pub(crate) fn write_error(path: &Path) -> impl Fn(std::io::Error) -> RaceError + '_ {
    |source| RaceError::Write { path: path.display().to_string(), source }
}

pub(crate) fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<(), RaceError> {
    let text = serde_json::to_string(value).expect("results are plain data");
    write_file(path, &text)
}

/// Writes the result and everything made from it.
fn write_result(result: &RaceResult, out: &Path) -> Result<(), RaceError> {
    let text = serde_json::to_string_pretty(result).expect("results are plain data");
    write_file(&out.join("result.json"), &text)?;
    write_report(result, out)
}

/// Writes `report.html` and `report.md` of a result into `out`.
///
/// # Errors
/// [`RaceError::Write`].
pub fn write_report(result: &RaceResult, out: &Path) -> Result<(), RaceError> {
    write_file(&out.join("report.html"), &crate::report::html(result))?;
    write_file(&out.join("report.md"), &crate::report::markdown(result))
}

/// A file appears whole or not at all.
fn write_file(path: &Path, text: &str) -> Result<(), RaceError> {
    let mut partial = PathBuf::from(path).into_os_string();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    std::fs::write(&partial, text).map_err(write_error(&partial))?;
    std::fs::rename(&partial, path).map_err(write_error(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::TablesOf;
    use laneway_registry::{Apps, Lanes};

    const TABLES: TablesOf<Apps, Lanes> = TablesOf::new();

    #[test]
    fn an_arm_of_the_long_version_is_left_out_of_the_short_one_with_its_reason() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/ping.toml");
        let mut scenario = Scenario::load(Path::new(file)).unwrap();
        scenario.check(&TABLES).unwrap();
        let names = |length| entrants_names(&entrants(&scenario, length));
        let (quick, full) = (names(Length::Quick), names(Length::Full));
        assert_eq!(quick[..2], ["kernel", "kernel again"]);
        assert!(quick.iter().all(|name| full.contains(name)));
        let told = left_out(&scenario, Length::Quick);
        assert_eq!(
            (told.len(), left_out(&scenario, Length::Full).len()),
            (full.len() - quick.len(), 0)
        );
        for lane in ["dpdk:net_tap", "socket:raw", "xdp:generic"] {
            let name = format!("{lane} --no-limits");
            assert!(!quick.contains(&name) && full.contains(&name), "{name}");
            let is_of = |why: &String| why.contains(&format!("`{name}`")) && why.contains("--full");
            assert!(told.iter().any(is_of), "{told:?}");
        }
        scenario.race_these(&["kernel".into(), "dpdk:net_tap".into()]);
        assert_eq!(entrants(&scenario, Length::Quick).len(), 3, "by name it runs");
    }

    #[test]
    fn a_reader_is_told_which_arm_has_a_process_at_its_other_ends() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/tap.toml");
        let mut scenario = Scenario::load(Path::new(file)).unwrap();
        scenario.check(&TABLES).unwrap();
        let told =
            |scenario: &Scenario| shared_memory_note(&TABLES, &entrants(scenario, Length::Quick));
        let note = told(&scenario).expect("it is one of the arms");
        assert!(note.contains(": `dpdk:net_memif`. ") && note.contains("in mind"), "{note}");
        scenario.race_these(&["tap".into(), "packet".into()]);
        assert_eq!(told(&scenario), None);
    }

    #[test]
    fn a_rate_is_rounded_down_to_two_digits() {
        for (pps, rounded) in
            [(0, 0), (7, 7), (99, 99), (2_388_123, 2_300_000), (1_000_000, 1_000_000)]
        {
            assert_eq!(round_down(pps), rounded);
        }
    }
}
