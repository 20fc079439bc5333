//! The price of waiting: what an idle lane costs, and how late it sees the first packet.
//!
//! ```text
//!   per arm and idle policy, a fresh process:
//!     settle ─▶ [ meter ── nothing is sent ── meter ] ─▶ probes, one every 10 to 30 ms ─▶ report
//! ```
//!
//! A probe is a UDP datagram that carries the time it was sent; its latency ends when the app has it
//! in its hands (engine's time of the burst, same clock, same machine). Probes keep their schedule
//! delivered or not the last one. Assumes an app of the lab's own; sends through a socket of the
//! generator's namespace, so the sender's own system call (some 2 us) is inside.

use crate::addresses::{GENERATOR, SUT};
use crate::apps::{Count, LabApp};
use crate::bench::{Bench, Instruments};
use crate::child_process::ChildProcess;
use crate::error::RaceError;
use crate::host::Look;
use crate::plan::{Order, Reply, Shape};
use crate::race::{Options, placement, sending, write_json};
use crate::result::Machine;
use crate::scenario::{ArmPlan, Scenario};
use crate::segment::Plant;
use crate::traffic::{Sending, probe};
use crate::trial::{self, TrialPlan};
use laneway_core::Clock;
use laneway_engine::{MonotonicClock, pin_to_cpu};
use laneway_spec::IdlePolicy;
use laneway_stats::{Latency, LatencySummary};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Version of the schema of `idle.json`.
pub const SCHEMA: &str = "laneway-idle/1";
/// Probes per arm and policy: in the short version and in the long one.
const PROBES: [usize; 2] = [250, 2_000];
/// Windows without traffic: in the short version and in the long one.
const IDLE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];
/// The same at least, however little time there is.
const PROBES_MIN: usize = 20;
const IDLE_MIN: Duration = Duration::from_millis(200);
/// Of the time of an arm and policy, the part that goes into the window.
const IDLE_PART: u32 = 5;
/// Between two probes: this, give or take half of it.
const INTERVAL_NS: u64 = 20_000_000;
/// From the start of an arm to the first window, and from the last probe to the report.
const SETTLE: Duration = Duration::from_millis(100);
/// Its number: there is one at a time.
const ARM: usize = 0;
/// How long an arm may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// What was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IdleResult {
    /// [`SCHEMA`].
    pub schema: String,
    /// The scenario's title.
    pub title: String,
    /// The command line.
    pub command: Vec<String>,
    /// Version of laneway.
    pub version: String,
    /// The machine, as found.
    pub machine: Machine,
    /// One per arm and policy.
    pub rows: Vec<IdleRow>,
    /// Arms that this machine cannot open, each with its reason.
    pub skipped: Vec<String>,
}

/// One arm under one idle policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IdleRow {
    /// Name of the arm.
    pub arm: String,
    /// The lane spec that ran; of a peer, its device.
    pub lane: String,
    /// The idle policy; of a peer, `its own`.
    pub policy: String,
    /// CPU time of the arm's own tasks and of its receive stack while nothing was sent, as a share of
    /// one CPU.
    pub idle_share: f64,
    /// Length of that window, ns.
    pub window_ns: u64,
    /// Probes sent.
    pub probes: usize,
    /// Latencies of those that the app saw, ns, ascending; empty for a peer, which does not tell.
    pub latencies_ns: Vec<u64>,
}

impl IdleRow {
    /// The figures of these latencies: a percentile only where they are enough for it.
    pub fn latency(&self) -> LatencySummary {
        let mut latency = Latency::new();
        self.latencies_ns.iter().for_each(|&ns| latency.record(ns));
        latency.summary()
    }
}

/// Runs every arm of `scenario` under every idle policy and writes `idle.json`. An arm whose spec
/// names a policy keeps it. All of it takes `time`, if one is given, as nearly as a policy's fewest probes allow.
///
/// # Errors
/// When there is no result. Optional arms that do not start are left out with their reason.
pub fn run(
    mut scenario: Scenario,
    options: &Options<'_>,
    time: Option<Duration>,
    mut show: impl FnMut(&IdleRow),
) -> Result<IdleResult, RaceError> {
    // Every arm counts: what is measured here is waiting, and one cable is enough for it.
    scenario.app = Count::FACTS.name.to_owned();
    scenario.ping = None;
    scenario.arguments.clear();
    scenario.arms.iter_mut().for_each(|arm| arm.arguments = None);
    let mut skipped = leave_out_commands(&mut scenario);
    scenario.check(options.tables)?;
    let app = &Count::FACTS;
    std::fs::create_dir_all(options.out).map_err(crate::race::write_error(options.out))?;
    let look = Look::start();
    let sending = sending(&scenario, app)?;
    let bench = Bench::create(
        placement(&scenario),
        app,
        &sending,
        Instruments::attach(&sending, scenario.tso)?,
    )?;
    let version = usize::from(options.length == crate::race::Length::Full);
    let policies: usize = scenario.arms.iter().map(|arm| specs(arm).len()).sum();
    let extent = match time {
        Some(time) => extent_within(time / policies.max(1) as u32),
        None => (IDLE[version], PROBES[version]),
    };
    let mut rows = Vec::new();
    for arm in &scenario.arms {
        for (policy, lane) in specs(arm) {
            let plan = plan(&scenario, arm, &lane, &sending, options);
            let arm_process = match trial::start_arm(&bench, &plan) {
                Ok(arm_process) => arm_process,
                Err(error) if arm.optional => {
                    skipped.push(format!("skipped: {error}"));
                    break;
                }
                Err(error) => return Err(error),
            };
            let mut row = IdleRow {
                arm: arm.name.clone(),
                lane: lane.clone(),
                policy,
                idle_share: 0.0,
                window_ns: 0,
                probes: 0,
                latencies_ns: Vec::new(),
            };
            measure(&bench, arm_process, arm, &mut row, extent, options.interrupted)?;
            show(&row);
            rows.push(row);
        }
    }
    drop(bench);
    let result = IdleResult {
        schema: SCHEMA.to_owned(),
        title: scenario.title,
        command: options.command.clone(),
        version: options.version.clone(),
        machine: look.finish(false),
        rows,
        skipped,
    };
    write_json(&options.out.join("idle.json"), &result)?;
    Ok(result)
}

/// The window and the probes of an arm and policy that have so much time.
fn extent_within(time: Duration) -> (Duration, usize) {
    let time = time.saturating_sub(SETTLE * 2);
    let idle = (time / IDLE_PART).max(IDLE_MIN);
    let probes = time.saturating_sub(idle).as_nanos() / u128::from(INTERVAL_NS);
    (idle, usize::try_from(probes).unwrap_or(usize::MAX).max(PROBES_MIN))
}

/// Takes out the arms that are programs with command lines, and gives a sentence for each.
fn leave_out_commands(scenario: &mut Scenario) -> Vec<String> {
    let is_command = |arm: &ArmPlan| arm.command.is_some();
    let commands = scenario.arms.iter().filter(|arm| is_command(arm));
    let why = "when a foreign program sees a packet is not known";
    let notes = commands.map(|arm| format!("skipped: arm `{}`: {why}", arm.name)).collect();
    scenario.arms.retain(|arm| !is_command(arm));
    notes
}

/// The policies that an arm runs under, each with the lane spec that says so.
fn specs(arm: &ArmPlan) -> Vec<(String, String)> {
    if arm.peer.is_some() {
        return vec![("its own".to_owned(), arm.lane.clone())];
    }
    let knobs = arm.lane.split_once(':').map_or("", |(_, knobs)| knobs);
    if let Some(policy) = knobs.split(',').find_map(|knob| knob.strip_prefix("idle=")) {
        return vec![(policy.to_owned(), arm.lane.clone())];
    }
    let mark = if knobs.is_empty() { ':' } else { ',' };
    let adaptive: IdlePolicy = "adaptive".parse().expect("one of the policies");
    [IdlePolicy::Spin, adaptive, IdlePolicy::Block]
        .map(|policy| (policy.to_string(), format!("{}{mark}idle={policy}", arm.lane)))
        .into()
}

fn plan<'a>(
    scenario: &'a Scenario,
    arm: &'a ArmPlan,
    lane: &'a str,
    sending: &'a Sending,
    options: &'a Options<'_>,
) -> TrialPlan<'a> {
    TrialPlan {
        arm: ARM,
        name: &arm.name,
        tables: options.tables,
        app: Count::FACTS,
        arguments: &[],
        peer: arm.peer,
        counts: arm.counts,
        is_unlimited: arm.unlimited,
        is_by_datagrams: false,
        lane,
        plant: Plant::None,
        generation: 0,
        sending,
        way: &scenario.generator,
        burst: 1,
        loads_pps: &[],
        topspeed: false,
        closed_loop: false,
        closed_requests: &[],
        own_load: None,
        segment: Duration::ZERO,
        late_p99_ns_max: 0,
        others_max: scenario.others_max,
        trace: None,
        interrupted: options.interrupted,
    }
}

/// Watches the arm do nothing, and then wakes it again and again.
fn measure(
    bench: &Bench,
    mut arm_process: ChildProcess,
    arm: &ArmPlan,
    row: &mut IdleRow,
    (idle, probes): (Duration, usize),
    interrupted: &AtomicBool,
) -> Result<(), RaceError> {
    thread::sleep(SETTLE);
    let start = bench.meter().read()?;
    thread::sleep(idle);
    let usage = bench.meter().read()?.since(&start);
    row.window_ns = usage.window_ns;
    row.idle_share = usage.own_ns(ARM) as f64 / usage.window_ns.max(1) as f64;
    if arm.peer.is_none() {
        // The kernel must not answer a frame of which its stack sees a copy: its answer
        // ("port unreachable") would be work on the arm's CPU.
        let (namespace, _) = bench.sut();
        let _quiet = match arm_process.ready.shape {
            Shape::Frames => namespace.enter(|| UdpSocket::bind(SUT))?.ok(),
            Shape::Datagrams => None,
        };
        row.probes = wake(bench, probes, interrupted)?;
        thread::sleep(SETTLE);
        arm_process.order(&Order::Report)?;
        let Reply::Report(report) = arm_process.reply(PATIENCE)? else {
            return Err(arm_process.failed("it answered out of turn"));
        };
        row.latencies_ns = report.wakeups_ns;
        row.latencies_ns.sort_unstable();
    }
    arm_process.order(&Order::Stop)
}

/// Sends probes on their schedule from the generator's CPU, and gives how many left.
fn wake(bench: &Bench, probes: usize, interrupted: &AtomicBool) -> Result<usize, RaceError> {
    let (namespace, _) = bench.generator();
    let cpu = bench.placement().generator_cpu;
    namespace.enter(|| {
        let failed = |why: String| RaceError::Child { what: "the prober".to_owned(), why };
        pin_to_cpu(cpu)?;
        let socket = UdpSocket::bind(GENERATOR).map_err(|e| failed(e.to_string()))?;
        let mut due_ns = MonotonicClock.now_ns();
        let mut sent = 0;
        for number in 0..probes as u64 {
            if interrupted.load(Ordering::Relaxed) {
                return Err(RaceError::Interrupted);
            }
            due_ns += interval_ns(number);
            let now_ns = MonotonicClock.now_ns();
            thread::sleep(Duration::from_nanos(due_ns.saturating_sub(now_ns)));
            let payload = probe(MonotonicClock.now_ns());
            // An answer to the last probe shows as an error of this one; it is sent all the same.
            sent += usize::from(socket.send_to(&payload, SUT).is_ok());
        }
        Ok(sent)
    })?
}

/// Time before probe `number`: jittered, so that no timer of the kernel keeps step with it, and the
/// same in every run.
fn interval_ns(number: u64) -> u64 {
    // The golden ratio spreads successive numbers evenly.
    let share = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    INTERVAL_NS / 2 + INTERVAL_NS * share / (1 << 24)
}

/// The result as a table for a terminal.
pub fn text(result: &IdleResult) -> String {
    let mut out = format!("{}: idle lanes, and the first packet after a pause\n\n", result.title);
    let width = result.rows.iter().map(|row| row.arm.chars().count()).max().unwrap_or(0).max(3);
    let micros =
        |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.1}", ns as f64 / 1e3));
    let mut line = |cells: [&str; 8]| {
        let [arm, policy, idle, p50, p99, max, seen, probes] = cells;
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "  {arm:<width$}  {policy:<12}  {idle:>10}  {p50:>9}  {p99:>9}  {max:>9}  {seen:>5}  \
             {probes:>6}"
        );
    };
    line(["arm", "idle policy", "CPU idle", "p50", "p99", "longest", "seen", "probes"]);
    line(["", "", "% of one", "us", "us", "us", "", ""]);
    for row in &result.rows {
        let latency = row.latency();
        line([
            &row.arm,
            &row.policy,
            &format!("{:.2}", row.idle_share * 100.0),
            &micros(latency.p50_ns),
            &micros(latency.p99_ns),
            &micros(latency.max_ns),
            &row.latencies_ns.len().to_string(),
            &row.probes.to_string(),
        ]);
    }
    out.push_str(
        "\n  CPU idle: the arm and the threads of its receive stack while nothing is sent. Latency: from\n  \
         the send call to the app, one probe every 10 to 30 ms; p50 of 100 that were seen or more, p99 of\n  \
         5,000 (--time gives them).\n",
    );
    for why in result.skipped.iter().chain(&result.machine.findings) {
        let _ = writeln!(out, "- {why}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(lane: &str) -> ArmPlan {
        toml::from_str(&format!("lane = \"{lane}\"")).unwrap()
    }

    #[test]
    fn a_policy_has_the_probes_that_its_time_allows() {
        // A minute for two lanes under three policies each.
        let (idle, probes) = extent_within(Duration::from_secs(10));
        assert_eq!((idle, probes), (Duration::from_millis(1_960), 392));
        for short in [0, 1, 250, 500] {
            let (idle, probes) = extent_within(Duration::from_millis(short));
            assert_eq!((idle, probes), (IDLE_MIN, PROBES_MIN), "{short} ms");
        }
    }

    #[test]
    fn a_spec_gets_every_policy_unless_it_names_one() {
        let lanes = |lane: &str| specs(&arm(lane)).into_iter().map(|(_, l)| l).collect::<Vec<_>>();
        assert_eq!(
            lanes("packet"),
            ["packet:idle=spin", "packet:idle=adaptive:50", "packet:idle=block"]
        );
        assert_eq!(lanes("afxdp:copy")[2], "afxdp:copy,idle=block");
        assert_eq!(lanes("afxdp:idle=block"), ["afxdp:idle=block"]);
    }

    #[test]
    fn programs_are_left_out_with_the_reason() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/udp-echo.toml");
        let mut scenario = Scenario::load(std::path::Path::new(file)).unwrap();
        let lanes = scenario.arms.clone();
        scenario.race_also(&["./my-server {port}".into()]);
        let notes = leave_out_commands(&mut scenario);
        assert!(notes[0].contains("arm `my-server`") && notes.len() == 1, "{notes:?}");
        assert_eq!(scenario.arms.len(), lanes.len());
    }

    #[test]
    fn probes_are_20_ms_apart_on_average_and_never_in_step() {
        let all: Vec<u64> = (0..1_000).map(interval_ns).collect();
        assert!(all.iter().all(|ns| (10_000_000..=30_000_000).contains(ns)));
        assert!((all.iter().sum::<u64>() / 1_000).abs_diff(INTERVAL_NS) < INTERVAL_NS / 100);
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn a_percentile_of_too_few_probes_is_a_dash() {
        let row = |probes: usize| IdleRow {
            arm: "packet".to_owned(),
            lane: String::new(),
            policy: "block".to_owned(),
            idle_share: 0.0,
            window_ns: 1,
            probes: 5_000,
            latencies_ns: vec![125_000; probes],
        };
        let figures = |probes: usize| {
            let latency = row(probes).latency();
            [latency.p50_ns, latency.p99_ns, latency.max_ns].map(|ns| ns.is_some())
        };
        assert_eq!(figures(0), [false, false, false]);
        assert_eq!(figures(99), [false, false, true]);
        assert_eq!(figures(250), [true, false, true]);
        assert_eq!(figures(5_000), [true, true, true]);
        let result = IdleResult {
            schema: SCHEMA.to_owned(),
            title: "lanes".to_owned(),
            command: Vec::new(),
            version: String::new(),
            machine: Machine::default(),
            rows: vec![row(250)],
            skipped: Vec::new(),
        };
        let text = text(&result);
        let line = text.lines().find(|line| line.contains("block")).expect("its row");
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(cells[2..], ["0.00", "125.0", "-", "125.0", "250", "5000"]);
    }
}
