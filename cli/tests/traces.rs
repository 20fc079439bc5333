//! `laneway race --trace`: arms traced behind the last block and explained. These tests ask whether what is
//! measured is the same with and without, whether every arm is explained or says why not, and what is left behind;
//! never how fast anything was.

#![expect(clippy::print_stdout, reason = "a skipped test says why")]

mod shipped;
mod turn;

use laneway_lab::result::RaceResult;
use laneway_lab::why::{Explanation, TracedArm};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;
use turn::Turn;

const LANEWAY: &str = env!("CARGO_BIN_EXE_laneway");
/// Looks at a race or at what it left, and how long between two; a look finds what it waits for or comes to an end.
const LOOKS_MAX: usize = 12_000;
const LOOK: Duration = Duration::from_millis(5);

/// The shipped scenario `name`, less patient with a busy host and with these changes, as a command.
fn race(folder: &Path, name: &str, changes: &[(&str, &str)], arguments: &[&str]) -> Command {
    let mut command = shipped::race(folder, name, changes);
    command.args(["--generations", "3", "--rounds", "1"]).args(arguments);
    command
}

fn forward(folder: &Path, arguments: &[&str]) -> Command {
    let lanes = ["--variant", "live", "--lane", "bridge", "--lane", "packet", "--lane", "xdp"];
    let mut command = race(folder, "forward", &[], &lanes);
    command.args(["--load", "5000,20000", "--segment-ms", "200"]).args(arguments);
    command
}

fn done(output: &Output) {
    assert!(output.status.code().is_some_and(|code| code != 2), "{output:?}");
}

fn traced<'a>(result: &'a RaceResult, arm: &str) -> &'a TracedArm {
    let name = |traced: &&TracedArm| result.arms[traced.arm].name == arm;
    result.traces.iter().find(name).expect("every arm is reported")
}

/// A worker that took part is explained, and the figures add up.
fn explains(result: &RaceResult, arm: &str) -> Explanation {
    let traced = traced(result, arm);
    let explanation = traced.explanation.clone();
    let explanation = explanation.unwrap_or_else(|| panic!("{arm} has none: {traced:?}"));
    let shares = &explanation.shares;
    let whole = shares.application + shares.lane + shares.waiting + shares.empty_polls;
    let whole = whole + shares.tracer + shares.other;
    assert!((whole - 1.0).abs() < 0.02, "{whole}: {explanation:?}");
    assert!(
        explanation.frames.is_some_and(|frames| frames > 0)
            && explanation.polls > explanation.empty_polls
    );
    assert!(explanation.stages.iter().any(|stage| stage.is_app), "{explanation:?}");
    assert!(explanation.stages.iter().all(|stage| stage.ns_per_frame > 0.0), "{explanation:?}");
    assert_eq!(
        explanation.fired.len() + explanation.silent.iter().sum::<usize>(),
        12,
        "{explanation:?}"
    );
    assert!(explanation.advice.iter().all(|advice| !advice.confirm.is_empty()));
    assert_eq!(traced.load, result.loads_pps.len() - 1);
    let cost = traced.cost.as_ref().expect("it was offered a load");
    assert!(cost.traced_records_per_s > 0.0 && cost.records_per_s.is_some(), "{cost:?}");
    explanation
}

/// What a race was to measure, and in which order.
fn plan(result: &RaceResult) -> Vec<(usize, usize, usize, usize, u64, String)> {
    // How many are offered once more is by chance.
    let segments = result.segments.iter().filter(|s| !s.replaced).enumerate();
    let plan = segments.map(|(order, s)| {
        let asked = format!("{:?}", s.generator.asked_pps);
        (order, s.round, s.arm, s.load, s.ledger.offered, asked)
    });
    plan.collect()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn every_arm_is_explained_or_says_why_and_what_is_measured_is_the_same_without() {
    let Some(turn) = Turn::new("traces") else { return };
    let out = turn.folder.join("live");
    let plain = forward(&turn.folder, &[]).output().expect("the program starts");
    done(&plain);
    let without = turn.result("live");
    let trials = names(&out.join("trials"));
    assert!(without.traces.is_empty() && !out.join("traces").exists());

    let output =
        forward(&turn.folder, &["--trace", "--verbose"]).output().expect("the program starts");
    done(&output);
    let result = turn.result("live");
    assert_eq!(plan(&result), plan(&without));
    assert_eq!((&result.scenario, result.generations), (&without.scenario, without.generations));
    assert_eq!(names(&out.join("trials")), trials);
    for trial in &trials {
        let text = fs::read_to_string(out.join("trials").join(trial)).expect("it is there");
        assert!(!text.contains("\"traced\""), "{trial} was measured with a tracer");
    }

    // The base once more is not traced once more.
    assert_eq!(result.traces.len(), result.arms.len() - 1);
    let why = |arm: &str| traced(&result, arm).untraced_reason.clone().expect("it has no worker");
    assert!(why("bridge").contains("the kernel's bridge"), "{}", why("bridge"));
    assert!(why("xdp").contains("XDP program"), "{}", why("xdp"));
    assert_eq!(names(&out.join("traces")), ["packet", "packet.html"]);
    let explanation = explains(&result, "packet");
    let page = fs::read_to_string(out.join("traces/packet.html")).expect("it is written");
    assert!(page.ends_with("</html>\n"));

    // A user who looks at the folder by hand reads the same.
    let folder = out.join(traced(&result, "packet").folder.as_ref().expect("it has one"));
    let analyze = Command::new(LANEWAY).args(["trace", "analyze", "--json"]).arg(&folder).output();
    let analyze = analyze.expect("the program starts");
    let analysis: serde_json::Value = serde_json::from_slice(&analyze.stdout).expect("JSON");
    assert_eq!(analysis["coverage"]["events"], explanation.events);
    assert_eq!(analysis["packets"]["received"], explanation.frames.unwrap_or(0));
    // Of one segment, and no more of it than there was.
    assert!(explanation.span_ns < 500_000_000, "{explanation:?}");
    assert!(explanation.frames.is_some_and(|frames| frames <= 10_000), "{explanation:?}");

    let text = String::from_utf8(output.stdout).expect("text");
    let report = fs::read_to_string(out.join("report.html")).expect("it is written");
    for part in ["Why", "no verdict", "Not traced"] {
        assert!(text.contains(part) && report.contains(part), "{part}: {text}");
    }
    assert!(report.contains("href=\"traces/packet.html\""));
    let again = Command::new(LANEWAY).arg("report").arg(&out).output().expect("it starts");
    assert_eq!(String::from_utf8_lossy(&again.stdout), text);
}

#[test]
fn the_report_on_taps_is_explained_beside_its_peer() {
    let Some(turn) = Turn::new("traces-tap") else { return };
    let lanes = ["--lane", "tap", "--lane", "testpmd", "--lane", "cache=0", "--trace"];
    let mut command = race(&turn.folder, "tap", &[], &lanes);
    let output = command.args(["--load", "672,20000", "--segment-ms", "100"]).output();
    let output = output.expect("the program starts");
    let printed = String::from_utf8_lossy(&output.stderr);
    let is_missing = ["DPDK", "/dev/net/tun"].iter().any(|word| printed.contains(word));
    if output.status.code() == Some(2) && is_missing {
        return println!("skipped: {}", printed.trim());
    }
    done(&output);
    let result = turn.result("");
    for arm in ["tap", "cache=0"] {
        let explanation = explains(&result, arm);
        assert!(
            explanation.empty_polls > 0 && explanation.shares.waiting == 0.0,
            "it polls: {explanation:?}"
        );
    }
    match result.notes.iter().find(|note| note.contains("skipped: arm `testpmd`")) {
        Some(why) => println!("{why}"),
        None => {
            let why = traced(&result, "testpmd")
                .untraced_reason
                .clone()
                .expect("it is no worker of ours");
            assert!(why.contains("foreign program"), "{why}");
        }
    }
    assert_eq!(names(&turn.folder.join("traces")), ["cache=0", "cache=0.html", "tap", "tap.html"]);
}

#[test]
fn datagrams_and_records_are_explained_as_frames_are() {
    let Some(turn) = Turn::new("traces-others") else { return };
    for (name, lane, arm, variant) in [
        ("features", "packet:ring", "packet:ring --drop", None),
        ("lanes", "socket", "socket", Some("count-64")),
    ] {
        let mut arguments =
            vec!["--lane", lane, "--load", "5000", "--segment-ms", "200", "--trace"];
        arguments.extend(variant.iter().flat_map(|variant| ["--variant", variant]));
        let output = race(&turn.folder, name, &[], &arguments).output();
        done(&output.expect("the program starts"));
        explains(&turn.result(variant.unwrap_or("")), arm);
    }
}

/// Here and nowhere else an arm is traced while it is measured.
#[test]
fn what_the_tracer_costs_is_raced_as_an_arm_that_says_so() {
    let Some(turn) = Turn::new("traces-cost") else { return };
    let short = ["--load", "20000", "--segment-ms", "100"];
    let changes = [
        ("name = \"dpdk:net_tap\"", "name = \"plain\""),
        ("name = \"dpdk:net_tap, traced\"", "name = \"traced\""),
        ("arm = \"dpdk:net_tap, traced\"", "arm = \"traced\"\nload_pps = 20_000"),
        ("over = \"dpdk:net_tap\"", "over = \"plain\""),
        ("dpdk:net_tap,idle=spin,burst=32", "packet"),
    ];
    let mut command = race(&turn.folder, "tracer", &changes, &short);
    command.args(["--lane", "plain", "--lane", "traced", "--trace"]);
    done(&command.output().expect("the program starts"));
    let result = turn.result("");
    let fact = |arm: usize| result.arms[arm].caps.facts.get("tracer");
    assert_eq!([fact(0), fact(1)], [None, None], "{:?}", result.arms);
    assert!(fact(2).is_some_and(|fact| fact.contains("while it is measured")));
    let note = result.notes.iter().find(|note| note.contains("`traced` was traced while"));
    let note = note.expect("a note says so");
    let trials = format!(" in {} trials, 0 that found no room", result.generations);
    assert!(note.contains(&trials) && !note.contains(": 0 "), "{note}");
    for segment in &result.segments {
        assert!(segment.ledger.is_closed() && segment.ledger.delivered > 0, "{segment:?}");
    }
    let goals: Vec<&str> = result.goals.iter().map(|goal| goal.goal.as_str()).collect();
    assert_eq!(goals.len(), 2, "{goals:?}");
    assert!(
        goals.iter().all(|goal| goal.contains("traced") && goal.contains("plain")),
        "{goals:?}"
    );
    // Nothing of those traces is kept; those that explain are.
    let kept = names(&turn.folder);
    assert!(!kept.iter().any(|name| name.starts_with("laneway-traced")), "{kept:?}");
    let traces = ["plain", "plain.html", "traced", "traced.html"];
    assert_eq!(names(&turn.folder.join("traces")), traces);
    let page = fs::read_to_string(turn.folder.join("report.html")).expect("it is written");
    assert!(page.contains("but those that are to show what tracing costs: traced"));
}

/// A race under way, ended whatever becomes of the test.
struct Running(Child);

impl Running {
    /// Begins, and waits until it traces the arm `packet`.
    fn tracing(folder: &Path) -> Running {
        let mut command = forward(folder, &["--trace"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut running = Running(child.expect("the program starts"));
        let partial = folder.join("live/traces/packet.partial");
        let is_there = wait_until(|| partial.exists() || running.has_ended());
        assert!(is_there && !running.has_ended(), "it never traced");
        running
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it runs");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both can only fail if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_until(mut is_so: impl FnMut() -> bool) -> bool {
    (0..LOOKS_MAX).any(|_| {
        let so = is_so();
        if !so {
            thread::sleep(LOOK);
        }
        so
    })
}

/// Processes that were started under this folder as temporary one.
fn processes(folder: &Path) -> Vec<PathBuf> {
    let mine = format!("TMPDIR={}", folder.display());
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_mine = |path: &PathBuf| {
        let environment = fs::read(path.join("environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable == mine.as_bytes())
    };
    all.map(|entry| entry.path()).filter(is_mine).collect()
}

#[test]
fn a_race_that_is_ended_while_it_traces_leaves_no_half_trace_and_no_process() {
    let Some(turn) = Turn::new("traces-ended") else { return };
    let traces = turn.folder.join("live/traces");
    let mut running = Running::tracing(&turn.folder);
    running.signal(Signal::INT);
    let status = running.0.wait().expect("it ends");
    assert_eq!(status.code(), Some(3), "interrupted");
    assert!(names(&traces).is_empty(), "{:?}", names(&traces));
    assert!(processes(&turn.folder).is_empty());
    // What was measured before is judged.
    let result = turn.result("live");
    assert!(result.interrupted && result.traces.is_empty(), "{:?}", result.traces);

    // Killed, it can clean up nothing itself: its children end, the next race takes the rest away.
    let mut running = Running::tracing(&turn.folder);
    running.signal(Signal::KILL);
    running.0.wait().expect("it ends");
    assert!(wait_until(|| processes(&turn.folder).is_empty()), "{:?}", processes(&turn.folder));
    done(&forward(&turn.folder, &["--trace"]).output().expect("the program starts"));
    assert_eq!(names(&traces), ["packet", "packet.html"]);
    explains(&turn.result("live"), "packet");
}
