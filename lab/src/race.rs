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
//! itself in the same rounds), and on costs only where both arms deliver the load; a segment is left out only because
//! the generator was late, the meter did not close or, for rates and latencies, other programs took the CPU away, never
//! because of what the arm did; a ledger that does not close makes the run invalid.

mod analyse;
mod beside;
mod capacities;
mod clients;
mod collapse;
mod contest;
mod demands;
mod doubt;
mod drift;
mod ended;
mod entrants;
mod expected;
mod files;
mod limiter;
mod notes;
mod once;
mod pings;
mod searched;
mod traced;

use crate::awake::Awake;
use crate::bench::{Bench, Instruments};
use crate::command::Task;
pub use crate::error::RaceError;
use crate::error::ScenarioError;
use crate::fanout::Fanout;
use crate::headroom;
use crate::host::Look;
use crate::result::{
    Arm, Headroom, Machine, Outcome, Placement, RaceResult, SCHEMA, Segment, Traffic,
};
use crate::scenario::{Extent, Scenario};
use crate::tables::Tables;
use crate::timetable::{Spacing, Times, Timetable};
use crate::traffic::{Payloads, Replayable, Sending, TrafficPlan};
use crate::trial::{Trial, TrialPlan};
use crate::why::Explain;
use contest::{Contest, Measured, Saturating};
pub(crate) use entrants::Entrant;
use entrants::{entrants, entrants_names, extent_of, leave_out, left_out, load_names, pinging};
pub use expected::{Expected, expected};
pub use files::write_report;
use files::write_result;
pub(crate) use files::{write_error, write_json};
use laneway_kinds::{AppFacts, Counted};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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
    /// Where to write; created if missing. Result, reports and trials of an earlier race are removed before this one
    /// measures.
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
/// When there is no result. An invalid run is a result, too: see [`RaceResult::invalid`].
pub fn run(
    mut scenario: Scenario,
    options: &Options<'_>,
    mut show: impl FnMut(&Progress<'_>),
) -> Result<RaceResult, RaceError> {
    let app = checked(&mut scenario, options)?;
    let started = Instant::now();
    let look = Look::start();
    let sending = sending(&scenario, &app)?;
    let mut result = blank(&scenario, &app, options, &sending)?;
    let mut entrants = entrants(&scenario, options.length);
    let program = pinging(&mut scenario);
    let extent = extent_of(&scenario, options.length).clone();
    check_times(&scenario, &extent, &sending)?;
    let instruments = Instruments::attach(&sending, scenario.tso)?;
    let _awake = scenario.awake.then(Awake::request).transpose()?;
    let bench = || Bench::create(result.placement.clone(), &app, &sending, instruments.clone());
    let mut benches = vec![bench()?];
    let mut notes = left_out(&scenario, options.length);
    notes.extend(leave_out(&benches[0], &scenario, &extent, &sending, &mut entrants, options)?);
    while benches.len() < entrants.len() {
        benches.push(bench()?);
    }
    result.topology = serde_json::to_value(benches[0].describe()?).unwrap_or_default();
    let contest = |extent| Contest {
        benches: &benches,
        scenario: &scenario,
        extent,
        sending: &sending,
        entrants: &entrants,
        own_pps: &[],
        saturating_pps: None,
        options,
    };
    files::begin(options.out)?;
    let saturating = contest(&extent).saturating()?;
    result.headroom = contest(&extent).headroom()?;
    let own_pps = contest(&extent).own_rates()?;
    let (extent, saturating_pps) =
        found_loads(&extent, saturating, &mut result.headroom, &mut notes);

    let contest = Contest { own_pps: &own_pps, saturating_pps, ..contest(&extent) };
    let mut measured = contest.run(&app, &mut show)?;
    let loads = extent.loads_pps.len();
    result.summaries =
        analyse::summaries(&measured.segments, &measured.trials, entrants.len(), loads);
    let is_whole = !measured.is_interrupted && measured.ended.is_none();
    if let Some(explainer) = options.explain.filter(|_| is_whole) {
        let (summaries, generations) = (&result.summaries, measured.generations);
        let pass = traced::Pass { contest, summaries, generations };
        match pass.run(explainer, &mut show) {
            Err(RaceError::Interrupted) => measured.is_interrupted = true,
            traces => result.traces = traces?,
        }
    }
    let known = notes::Known {
        contest,
        app: &app,
        segments: &measured.segments,
        trials: &measured.trials,
        program: program.as_deref(),
        saturating_pps,
    };
    notes.extend(known.notes());
    result.seconds = started.elapsed().as_secs_f64();
    result.machine = look.finish(!scenario.awake);
    result.saturating_pps = saturating_pps;
    result.notes = notes;
    let result = concluded(result, measured, &contest, program);
    write_result(&result, options.out)?;
    Ok(result)
}

/// A result with what was measured, and what follows from it.
fn concluded(
    result: RaceResult,
    measured: Measured,
    contest: &Contest<'_>,
    program: Option<String>,
) -> RaceResult {
    let Contest { scenario, extent, entrants, own_pps, .. } = *contest;
    let Measured { segments, trials, rounds, generations, findings, once, is_interrupted, ended } =
        measured;
    let ping = pings::section(&trials, entrants.len(), generations, scenario, program);
    let capacity = capacities::section(&trials, entrants.len(), generations, scenario);
    let mut result = RaceResult {
        scenario: toml::to_string(scenario).unwrap_or_default(),
        generations,
        rounds,
        arms: arms(entrants, own_pps, &trials),
        loads_pps: extent.loads_pps.clone(),
        topspeed: extent.topspeed,
        closed_loop: extent.closed_loop,
        closed_requests: extent.closed_requests.clone(),
        own_share: extent.own_share,
        findings: findings.into_iter().chain(once).collect(),
        ping,
        capacity,
        too_few: analyse::too_few(&segments, &entrants_names(entrants), &load_names(extent)),
        invalid: faults(&segments, &trials, entrants, extent),
        segments,
        interrupted: is_interrupted,
        ended,
        ..result
    };
    judge(&mut result, &trials, scenario, extent);
    result
}

/// The app of a scenario that can be raced.
fn checked(scenario: &mut Scenario, options: &Options<'_>) -> Result<AppFacts, RaceError> {
    scenario.check(options.tables)?;
    let app = scenario.facts(options.tables)?;
    if Task::of(&app) != Task::Receive {
        // What it delivers is counted where it comes out.
        scenario.arms.iter_mut().for_each(|arm| arm.counts = true);
    }
    Ok(app)
}

/// A result with what is known before anything is measured.
fn blank(
    scenario: &Scenario,
    app: &AppFacts,
    options: &Options<'_>,
    sending: &Sending,
) -> Result<RaceResult, RaceError> {
    let started_unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(RaceResult {
        schema: SCHEMA.to_owned(),
        title: scenario.title.clone(),
        app: app.name.to_owned(),
        scenario: String::new(),
        command: options.command.clone(),
        version: options.version.clone(),
        started_unix_ns: started_unix.as_nanos() as u64,
        seconds: 0.0,
        machine: Machine::default(),
        topology: serde_json::Value::Null,
        placement: placement(scenario),
        traffic: describe_traffic(scenario, app, sending)?,
        seed: scenario.seed.to_string(),
        generations: 0,
        rounds: 0,
        arms: Vec::new(),
        loads_pps: Vec::new(),
        saturating_pps: None,
        topspeed: false,
        closed_loop: false,
        closed_requests: Vec::new(),
        own_share: None,
        segments: Vec::new(),
        summaries: Vec::new(),
        findings: Vec::new(),
        ping: None,
        capacity: None,
        traces: Vec::new(),
        drift: None,
        headroom: Vec::new(),
        client_shares: Vec::new(),
        goals: Vec::new(),
        claims_of: scenario.claims_of.clone(),
        claims: Vec::new(),
        too_few: Vec::new(),
        invalid: Vec::new(),
        notes: Vec::new(),
        interrupted: false,
        ended: None,
        outcome: Outcome::Done,
    })
}

/// The loads that are offered: those of the scenario, then the saturating one that was found, then its requests, which
/// have no rate and stand as their numbers. And which of them is the saturating one.
fn found_loads(
    asked: &Extent,
    saturating: Option<Result<Saturating, String>>,
    headroom: &mut Vec<Headroom>,
    notes: &mut Vec<String>,
) -> (Extent, Option<u64>) {
    let (mut extent, mut saturating_pps) = (asked.clone(), None);
    match saturating {
        Some(Ok(found)) => {
            saturating_pps = Some(found.pps);
            headroom.extend(found.headroom);
        }
        Some(Err(why)) => notes.push(why),
        None => {}
    }
    notes.extend(headroom::note(headroom));
    if extent.own_share.is_some() {
        // A name only: behind the loads that have a rate, and in front of the closed loops.
        let own = extent.loads_pps.last().map_or(1, |last| last + 1);
        extent.loads_pps.push(own);
        saturating_pps = saturating_pps.map(|pps| pps.max(own + 1));
    }
    extent.loads_pps.extend(saturating_pps);
    extent.loads_pps.extend(&extent.closed_requests);
    let last = saturating_pps.or_else(|| extent.closed_requests.last().copied());
    (extent, last)
}

/// The arms as the result has them.
fn arms(entrants: &[Entrant], own_pps: &[u64], trials: &[Trial]) -> Vec<Arm> {
    let caps = |arm: usize| trials.iter().rfind(|trial| trial.index == arm).map(|t| t.caps.clone());
    let arm = |(arm, entrant): (usize, &Entrant)| Arm {
        name: entrant.name.clone(),
        lane: entrant.lane.clone(),
        // A peer gets none of them: its mode is what it has instead.
        arguments: if entrant.peer.is_none() { entrant.arguments.clone() } else { Vec::new() },
        is_noise_floor: entrant.is_noise_floor,
        delivered_unknown: !entrant.counts,
        own_pps: own_pps.get(arm).copied(),
        note: entrant.note.clone(),
        caps: caps(arm).unwrap_or_default(),
    };
    entrants.iter().enumerate().map(arm).collect()
}

/// Everything that makes the run invalid: of segments, of pings, of searches.
fn faults(
    segments: &[Segment],
    trials: &[Trial],
    entrants: &[Entrant],
    extent: &Extent,
) -> Vec<String> {
    let (names, loads) = (entrants_names(entrants), load_names(extent));
    let mut faults = analyse::faults(segments, trials, &names, &loads);
    faults.extend(pings::faults(trials));
    faults.extend(capacities::faults(trials));
    faults
}

/// Adds what follows from all figures together: drift, refusals, goals, claims, and the outcome.
fn judge(result: &mut RaceResult, trials: &[Trial], scenario: &Scenario, extent: &Extent) {
    result.drift = drift::drift(&result.segments, result.rounds, scenario.matters);
    drift::report(result);
    if scenario.client.is_some() {
        result.client_shares = clients::shares(&result.segments, result.arms.len(), extent);
    }
    collapse::refuse(result);
    limiter::refuse(result);
    beside::refuse(result);
    ended::refuse(result);
    let sought = extent.saturate || extent.topspeed || extent.closed_loop;
    result.goals = demands::goals(result, trials, scenario, sought);
    result.claims = demands::claims(result, trials, scenario, sought);
    let unsaturated = analyse::unsaturated(result);
    result.notes.extend(unsaturated);
    result.outcome = analyse::outcome(result);
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

/// Which process runs where.
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
             takes nothing of the arm's CPU, and its time of arrival is not reported. "
        ),
        Some(cpu) => format!("What an arm sends is received by threads on CPU {cpu}. "),
    };
    let first = match scenario.napi_first {
        true => ", the thread before the worker (SCHED_FIFO), as a softirq would",
        false => "",
    };
    let awake = match scenario.awake {
        true => " No CPU sleeps, so lanes that block wake faster than on most machines.",
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
             stopped.{awake}"
        ),
        tso: scenario.tso,
        napi_first: scenario.napi_first,
    }
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
        is_by_datagrams: entrant.is_by_datagrams,
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
        own_load: None,
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

/// Whether every load, and every rate of a search, can be offered at the times of the capture.
fn check_times(
    scenario: &Scenario,
    extent: &Extent,
    sending: &Sending,
) -> Result<(), ScenarioError> {
    let loads = extent.loads_pps.iter().map(|&pps| (pps, extent.segment_ms));
    // What can be offered at a rate can at a higher one.
    let searched = scenario.capacity.iter().map(|plan| (plan.pps[0], plan.ms));
    for (pps, ms) in loads.chain(searched) {
        if let Some(hint) = sending.timetable.objection(pps, Duration::from_millis(ms)) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::EndedArm;
    use crate::scenario::CapacityPlan;
    use crate::tables::TablesOf;
    use laneway_registry::{Apps, Lanes};
    use laneway_stats::pairs::Doubt;

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
        let notes = left_out(&scenario, Length::Quick);
        assert_eq!(
            (notes.len(), left_out(&scenario, Length::Full).len()),
            (full.len() - quick.len(), 0)
        );
        for lane in ["dpdk:net_tap", "socket:raw", "xdp:generic"] {
            let name = format!("{lane} --no-limits");
            assert!(!quick.contains(&name) && full.contains(&name), "{name}");
            let is_of = |why: &String| why.contains(&format!("`{name}`")) && why.contains("--full");
            assert!(notes.iter().any(is_of), "{notes:?}");
        }
        scenario.race_these(&["kernel".into(), "dpdk:net_tap".into()]);
        assert_eq!(entrants(&scenario, Length::Quick).len(), 3, "by name it runs");
    }

    #[test]
    fn a_note_names_the_arm_with_a_process_at_its_other_ends() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/tap.toml");
        let mut scenario = Scenario::load(Path::new(file)).unwrap();
        scenario.check(&TABLES).unwrap();
        let note_of = |scenario: &Scenario| {
            notes::shared_memory_note(&TABLES, &entrants(scenario, Length::Quick))
        };
        let note = note_of(&scenario).expect("it is one of the arms");
        assert!(note.contains(": `dpdk:net_memif`. ") && note.contains("in mind"), "{note}");
        scenario.race_these(&["tap".into(), "packet".into()]);
        assert_eq!(note_of(&scenario), None);
    }

    #[test]
    fn what_interrupted_the_arms_takes_verdicts_back() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/features.toml");
        let mut scenario = Scenario::load(Path::new(file)).unwrap();
        (scenario.goals, scenario.claims) = (Vec::new(), Vec::new());
        let taken_back = |share: u64| {
            let mut result = crate::report::example();
            for cpu in result.segments.iter_mut().map(|segment| &mut segment.cpu) {
                cpu.beside_ns = Some(cpu.own_ns * share);
            }
            judge(&mut result, &[], &scenario, &scenario.quick);
            let of = |f: &&crate::result::Finding| {
                matches!(f.judgement.doubt, Some(Doubt::Unattributed { .. }))
            };
            result.findings.iter().filter(of).count()
        };
        assert_eq!(taken_back(0), 0);
        // Nine times its own time.
        assert!(taken_back(9) > 0);
    }

    #[test]
    fn costs_of_a_collapse_and_of_an_arm_that_ended_have_no_verdict_in_any_race() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/features.toml");
        let mut scenario = Scenario::load(Path::new(file)).unwrap();
        (scenario.goals, scenario.claims) = (Vec::new(), Vec::new());
        let doubts = |ended: Option<usize>| {
            let mut result = crate::report::example();
            let ended = ended.map(|arm| EndedArm {
                arm,
                generation: 4,
                seconds: 9.0,
                why: "it did".into(),
            });
            result.ended = ended;
            judge(&mut result, &[], &scenario, &scenario.quick);
            let of = |is_it: fn(&Doubt) -> bool| {
                let doubts = result.findings.iter().filter_map(|f| f.judgement.doubt);
                doubts.filter(is_it).count()
            };
            let collapsed = of(|doubt| matches!(doubt, Doubt::Collapsed { .. }));
            (collapsed, of(|doubt| *doubt == Doubt::Ended), result.outcome)
        };
        // The base of the example loses a part of its highest load: three costs of four arms.
        assert_eq!(doubts(None), (12, 0, Outcome::Done));
        // Five findings of one arm, at three loads.
        assert_eq!(doubts(Some(4)), (9, 15, Outcome::Inconclusive));
    }

    #[test]
    fn a_search_asks_no_rate_at_which_the_capture_takes_too_long() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/lanes.toml");
        let mut scenario = Scenario::load(Path::new(file)).unwrap();
        let end = |port| std::net::SocketAddrV4::new([10, 77, 0, 1].into(), port);
        let (source, destination) = (end(1), end(2));
        let sending = Sending {
            traffic: TrafficPlan::Udp { payloads: Payloads::Imix, source, destination },
            times: Times::Steady,
            // 4 frames, three quarters of whose time are a pause.
            timetable: Timetable::of_stamps(&[50, 51, 49, 54]).unwrap(),
        };
        let extent = Extent { loads_pps: vec![1_000], segment_ms: 100, ..scenario.quick.clone() };
        let mut check = |low: u64, ms: u64| {
            let (pps, loss_max, steps, trials) = ([low, 2_000], 0.0, 2, 1);
            scenario.capacity = Some(CapacityPlan { pps, loss_max, steps, ms, trials });
            check_times(&scenario, &extent, &sending).map_err(|error| error.to_string())
        };
        assert_eq!(check(100, 100), Ok(()));
        let pause = check(10, 1_000).unwrap_err();
        assert!(pause.contains("is 10; the longest pause"), "{pause}");
        let pass = check(30, 100).unwrap_err();
        assert!(pass.contains("133 ms") && pass.contains("of a search `ms`"), "{pass}");
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
