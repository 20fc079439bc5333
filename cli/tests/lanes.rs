//! `laneway race lanes`: the same two small apps on every lane. These tests ask whether every frame
//! is accounted for, never how fast: a host that is busy makes a race invalid and leaves its ledgers
//! closed.

#![expect(clippy::print_stdout, reason = "a skipped test says why")]

mod turn;

use laneway_lab::result::RaceResult;
use laneway_lab::wakeup::IdleResult;
use std::process::{Command, Output};
use turn::Turn;

/// A race in its folder.
struct Race(Turn);

impl Race {
    /// `None` where races cannot be run; the reason is printed.
    fn new(name: &str) -> Option<Race> {
        Turn::new(name).map(Race)
    }

    /// Runs the shipped scenario, less patient with a busy host, with `arms` (TOML) in place of its
    /// own if given, these lanes if any, and further arguments.
    fn run_with(&self, arms: Option<&str>, lanes: &[&str], arguments: &[&str]) -> Output {
        let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/lanes.toml");
        let text = std::fs::read_to_string(shipped).expect("it ships");
        let (head, own) = text.split_at(text.find("[[arm]]").expect("it has arms"));
        // A busy host is offered no load again because of its generator, and makes no idle window
        // quiet by waiting.
        let patient = "late_p99_us_max = 10_000_000\nothers_max = 1_000.0";
        let head = head.replace("late_p99_us_max = 200", patient);
        let scenario = self.0.folder.join("scenario.toml");
        std::fs::write(&scenario, head + arms.unwrap_or(own)).expect("writable");
        let mut command = Command::new(env!("CARGO_BIN_EXE_laneway"));
        command.arg("race").arg(&scenario).arg("--out").arg(&self.0.folder);
        // So that what its children leave behind can be distinguished from what others do.
        command.env("TMPDIR", &self.0.folder);
        lanes.iter().for_each(|lane| {
            command.args(["--lane", lane]);
        });
        command.args(arguments).output().expect("the program starts")
    }

    fn run(&self, lanes: &[&str], arguments: &[&str]) -> Output {
        self.run_with(None, lanes, arguments)
    }

    fn result(&self, variant: &str) -> RaceResult {
        self.0.result(variant)
    }

    /// Races `lanes` in `variant`, shortly, at a load that all can bear.
    fn race(&self, variant: &str, lanes: &[&str]) -> RaceResult {
        let short =
            ["--load", "5000", "--generations", "3", "--rounds", "1", "--segment-ms", "100"];
        let output = self.run(lanes, &[&["--variant", variant][..], &short].concat());
        assert!(output.status.code().is_some_and(|code| code != 2), "{output:?}");
        self.result(variant)
    }
}

/// Every frame of every arm is named once, and something arrived.
fn closes(result: &RaceResult) {
    for segment in &result.segments {
        let (name, ledger) = (&result.arms[segment.arm].name, &segment.ledger);
        assert!(ledger.is_closed(), "{name}: {ledger:?}");
        assert!(ledger.delivered > 0, "{name}: {ledger:?}");
    }
    let disagrees = |why: &&String| why.contains("not the same features");
    assert_eq!(result.invalid.iter().find(disagrees), None);
}

#[test]
fn an_arm_that_is_to_be_alone_has_the_rounds_of_its_generation_when_all_others_have_ended() {
    let Some(race) = Race::new("alone") else { return };
    let arms = "[[arm]]\nlane = \"packet\"\n[[arm]]\nlane = \"packet\"\nalone = true\n";
    let short = ["--load", "5000", "--generations", "3", "--rounds", "2", "--segment-ms", "100"];
    let output = race.run_with(Some(arms), &[], &[&["--variant", "count-64"][..], &short].concat());
    assert!(output.status.code().is_some_and(|code| code != 2), "{output:?}");
    let result = race.result("count-64");
    let names: Vec<&str> = result.arms.iter().map(|arm| arm.name.as_str()).collect();
    assert_eq!(names, ["packet", "packet again", "packet, alone"]);
    assert_eq!((result.generations, result.rounds), (3, 6));
    for generation in 0..3 {
        let of = |is_alone: bool| {
            let of = result.segments.iter().filter(move |s| s.generation == generation);
            of.filter(move |s| (s.arm == 2) == is_alone)
        };
        let last = of(false).map(|s| s.order).max().expect("they raced");
        assert!(of(true).all(|s| s.order > last), "the others had ended");
        let rounds: Vec<usize> = of(true).filter(|s| !s.replaced).map(|s| s.round).collect();
        assert_eq!(rounds, [2 * generation, 2 * generation + 1], "paired with theirs");
    }
    let is_cost = |f: &&laneway_lab::result::Finding| f.arm == 2 && f.metric == "CPU per record";
    let cost = result.findings.iter().find(is_cost).expect("it was compared");
    assert_eq!(cost.comparison.offered(), 6 - warm_rounds(&result));
}

/// Rounds that were warm-up, of the base.
fn warm_rounds(result: &RaceResult) -> usize {
    result.segments.iter().filter(|s| s.arm == 0 && s.warm_up && !s.replaced).count()
}

#[test]
fn counted_frames_close_the_ledger_and_what_cannot_be_opened_is_left_out_with_its_reason() {
    let Some(race) = Race::new("count") else { return };
    let arms = "[[arm]]\nlane = \"packet\"\n[[arm]]\nlane = \"packet:batch\"\n\
                [[arm]]\nlane = \"afxdp\"\n[[arm]]\nlane = \"pigeon\"\noptional = true\n";
    let short = [
        "--variant",
        "count-64",
        "--load",
        "5000",
        "--generations",
        "3",
        "--rounds",
        "1",
        "--segment-ms",
        "100",
    ];
    let output = race.run_with(Some(arms), &[], &short);
    assert!(output.status.code().is_some_and(|code| code != 2), "{output:?}");
    let result = race.result("count-64");
    assert_eq!((result.app.as_str(), result.arms.len()), ("count", 4), "the base has a twin");
    closes(&result);
    let is_noted =
        |note: &String| note.starts_with("skipped: ") && note.contains("no lane `pigeon`");
    assert!(result.notes.iter().any(is_noted), "{:?}", result.notes);
}

#[test]
fn what_bounces_is_counted_at_the_far_end() {
    let Some(race) = Race::new("bounce") else { return };
    let result = race.race("bounce-1316", &["packet", "afxdp"]);
    closes(&result);
    assert_eq!(result.traffic.mean_frame_bytes, 1316.0 + 42.0);
}

/// At a load beyond what one system call per frame can take.
#[test]
fn what_goes_across_comes_out_of_the_other_port_and_what_overload_loses_has_a_name() {
    let Some(race) = Race::new("across") else { return };
    let load = ["--load", "1000000", "--generations", "3", "--rounds", "1", "--segment-ms", "100"];
    race.run(&["packet", "afxdp"], &[&["--variant", "across-64"][..], &load].concat());
    let result = race.result("across-64");
    closes(&result);
    let packet = result.segments.iter().filter(|segment| segment.arm == 0);
    assert!(packet.map(|s| s.ledger.dropped()).sum::<u64>() > 0, "no overload");
}

#[test]
fn a_peer_is_started_counted_and_ended() {
    let Some(race) = Race::new("peer") else { return };
    // Counted by its own statistics, and by what comes back out of its other port.
    for variant in ["count-64", "across-64"] {
        let result = race.race(variant, &["packet", "testpmd:net_af_packet"]);
        if let Some(why) = result.notes.iter().find(|note| note.starts_with("skipped: ")) {
            assert!(result.arms.len() == 2, "the others race: {why}");
            println!("{why}");
            return;
        }
        closes(&result);
        let peer = result.arms.last().expect("it raced");
        assert_eq!(peer.caps.facts["program"], "dpdk-testpmd");
    }
    let processes = std::fs::read_dir("/proc").expect("there is /proc").flatten();
    let mine = format!("RUNTIME_DIRECTORY={}", race.0.folder.display());
    let is_mine = |entry: &std::fs::DirEntry| {
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(&mine)
    };
    let left = processes.filter(is_mine).count();
    assert_eq!(left, 0);
}

#[test]
fn every_wake_up_probe_is_seen() {
    let Some(race) = Race::new("wakeup") else { return };
    let output = race.run(&["packet:idle=block"], &["--wakeup", "--time", "2"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = std::fs::read_to_string(race.0.folder.join("idle.json")).expect("it is written");
    let result: IdleResult = serde_json::from_str(&text).expect("a result");
    assert_eq!(result.rows.len(), 1);
    for row in &result.rows {
        assert_eq!(row.latencies_ns.len(), row.probes, "{} idle={}", row.arm, row.policy);
        assert!(row.probes > 0 && row.latencies_ns[0] > 0);
    }
}
