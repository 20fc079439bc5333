//! Races of fan-out: one datagram in, a copy at each of several outputs. These tests ask whether every copy is
//! accounted for and what is reported of a program that sends wrong ones, never how fast it is.

#![expect(clippy::print_stdout, reason = "a skipped test says why")]

mod shipped;
mod turn;

use laneway_lab::result::{Outcome, RaceResult};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use turn::Turn;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guide/any-program");
/// Where a datagram is lost with all of its copies.
const IN_FRONT: [&str; 3] = ["generator", "veth", "rx_queue_full"];
/// The arguments of the relay of the guide.
const ARGUMENTS: &str = "{in} {groups} {port} {outputs}";

fn has(program: &str, argument: &str) -> bool {
    let is_there = Command::new(program).arg(argument).output().is_ok();
    if !is_there {
        println!("skipped: no {program} in PATH");
    }
    is_there
}

/// Races what `changes` make of the shipped scenario, on these lanes or arms and one more.
fn race(turn: &Turn, changes: &[(&str, &str)], variant: &str, arms: &[&str]) -> Output {
    let mut command = shipped::race(&turn.folder, "fanout", changes);
    command.args(["--variant", variant]);
    if !arms.contains(&"--load") {
        command.args(["--load", "500"]);
    }
    command.args(["--generations", "2", "--rounds", "2", "--segment-ms", "100"]);
    command.args(arms).output().expect("the program starts")
}

/// Every copy of every arm has one fate, and of the copies some arrived.
fn closes(result: &RaceResult, outputs: u64) {
    for segment in &result.segments {
        let (name, ledger) = (&result.arms[segment.arm].name, &segment.ledger);
        assert!(ledger.is_closed() && ledger.foreign == 0, "{name}: {ledger:?}");
        assert!(ledger.delivered > 0 && ledger.wrong.is_empty(), "{name}: {ledger:?}");
        assert!(ledger.offered.is_multiple_of(outputs), "{name}: {ledger:?}");
        assert!(segment.due_to_arrival.is_some(), "{name}");
    }
}

#[test]
fn frames_are_copied_to_every_interface_and_each_copy_is_accounted_for() {
    let Some(turn) = Turn::new("fanout-frames") else { return };
    let mut arms = vec!["--lane", "packet"];
    if has("smcrouted", "-v") {
        arms.extend(["--lane", "smcroute"]);
    }
    let output = race(&turn, &[], "cables-8", &arms);
    assert!(output.status.code().is_some_and(|code| code != 2), "{output:?}");
    let result = turn.result("cables-8");
    closes(&result, 8);
    assert!(result.invalid.is_empty(), "{:?}", result.invalid);
    assert!(result.traffic.capture.contains("8 outputs of 8 cables"), "{:?}", result.traffic);
}

#[test]
fn a_python_relay_copies_to_ports_of_two_cables_and_closes_its_ledger() {
    let Some(turn) = Turn::new("fanout-ports") else { return };
    if !has("python3", "--version") {
        return;
    }
    let relay = format!("python3 {EXAMPLES}/relay.py {ARGUMENTS}");
    // The lab's own arm copies to interfaces; here the program is the base, too.
    let changes = [
        ("{ groups = 1, outputs = 1 }", "{ groups = 25, outputs = 5, cables = 2 }"),
        ("lane = \"packet\"\n", &format!("name = \"relay\"\ncommand = \"{relay}\"\n")),
        ("arms = [\"packet\", \"socat\"]", "arms = [\"relay\"]"),
        ("arms = [\"packet\", \"smcroute\"]", "arms = [\"relay\"]"),
    ];
    let output = race(&turn, &changes, "one", &[]);
    assert!(output.status.code().is_some_and(|code| code != 2), "{output:?}");
    let result = turn.result("one");
    closes(&result, 5);
    assert!(result.invalid.is_empty(), "{:?}", result.invalid);
    let ready = &result.arms[0].caps.facts["ready"];
    assert!(ready.contains("UDP 239.77.0."), "{ready}");
}

#[test]
fn a_slow_output_loses_copies_by_name_and_the_others_none() {
    let Some(turn) = Turn::new("fanout-slow") else { return };
    let changes = [("outputs = 8, cables = 8 }", "outputs = 8, cables = 8, limit_mbit = 10 }")];
    let output = race(&turn, &changes, "cables-8", &["--lane", "packet", "--load", "4000"]);
    assert!(output.status.code().is_some_and(|code| code != 2), "{output:?}");
    let result = turn.result("cables-8");
    closes(&result, 8);
    for ledger in result.segments.iter().map(|segment| &segment.ledger) {
        let most = ledger.by_cable.iter().max().expect("there are eight");
        assert!(ledger.by_cable[0] < *most, "{ledger:?}");
        let lost = ledger.drops.values().sum::<u64>();
        assert!(lost >= most - ledger.by_cable[0], "{ledger:?}");
    }
}

#[test]
fn a_slow_output_of_our_relay_costs_the_others_nothing() {
    let Some(turn) = Turn::new("relay-slow") else { return };
    let lanes = ["socket:batch=64,gso,gro", "socket:batch=64,gso,gro, unlimited", "uring:gso,gro"];
    let lanes = lanes.map(|lane| ["--lane", lane]).concat();
    let mut command = shipped::race(&turn.folder, "relay", &[]);
    command.args(["--variant", "slow-8", "--load", "4000"]);
    command.args(["--generations", "2", "--rounds", "2", "--segment-ms", "100"]);
    let output = command.args(lanes).output().expect("the program starts");
    assert!(output.status.code().is_some_and(|code| code != 2), "{output:?}");
    let result = turn.result("slow-8");
    closes(&result, 8);
    for segment in &result.segments {
        let (name, ledger) = (&result.arms[segment.arm].name, &segment.ledger);
        let (limited, others) = ledger.by_cable.split_first().expect("there are eight");
        let least = others.iter().min().expect("there are seven");
        assert_eq!(*limited * 2 > *least, name.contains("unlimited"), "{name}: {ledger:?}");
        // A busy host may lose datagrams in front of the relay, each with all of its copies.
        let is_in_front = |place: &str| IN_FRONT.iter().any(|start| place.starts_with(start));
        let lost = ledger.drops.iter().filter(|(place, _)| is_in_front(place));
        let lost: u64 = lost.map(|(_, copies)| copies / 8).sum();
        assert_eq!(others.iter().sum::<u64>(), (ledger.packets() - lost) * 7, "{name}: {ledger:?}");
    }
}

#[test]
fn what_our_relay_adds_to_the_kernels_way_is_reported_for_every_output() {
    let Some(turn) = Turn::new("relay-latency") else { return };
    if !has("smcrouted", "-v") {
        return;
    }
    let mut command = shipped::race(&turn.folder, "relay", &[]);
    command.args(["--variant", "latency-8"]);
    command.args(["--generations", "3", "--rounds", "2", "--segment-ms", "100"]);
    let output = command.output().expect("the program starts");
    assert!(output.status.code().is_some_and(|code| code != 2), "{output:?}");
    let result = turn.result("latency-8");
    closes(&result, 8);
    assert!(result.invalid.is_empty(), "{:?}", result.invalid);
    // One datagram in eight is timed, at each of its outputs.
    for segment in &result.segments {
        let (times, ledger) = (segment.due_to_arrival.expect("it has one"), &segment.ledger);
        // Those that were lost may all be timed ones, or none.
        let (timed, lost) = (ledger.offered.div_ceil(8), ledger.offered - ledger.delivered);
        let seen = timed.saturating_sub(8 + lost)..=(timed + 8).min(ledger.delivered);
        assert!(seen.contains(&times.summary.n), "{times:?}, {ledger:?}");
        assert!(times.summary.n * 16 >= ledger.delivered, "{times:?}, {ledger:?}");
    }
    let asked = result.goals.iter().map(|goal| goal.goal.as_str()).collect::<Vec<_>>();
    let limit = "at 10000/s: at most 100000 ns above smcroute";
    for arm in ["socket:batch=64,gso,gro", "uring:depth=1024,gso,gro"] {
        let asks = format!("p99 due to arrival of {arm} {limit}");
        assert!(asked.contains(&asks.as_str()), "{asked:?}");
    }
}

#[test]
fn our_relay_copies_to_ports_by_rules_and_closes_its_ledger() {
    let Some(turn) = Turn::new("relay-ports") else { return };
    for (variant, outputs, lanes) in [
        ("groups-50", 8, &["--lane", "socket", "--lane", "socket:batch=64,gso,gro"][..]),
        ("trains-1", 1, &["--lane", "socket"]),
        ("trains-8-frames", 8, &["--lane", "socket", "--lane", "socket:batch=64,gso,gro"]),
    ] {
        let mut command = shipped::race(&turn.folder, "relay", &[("saturate = true\n", "")]);
        command.args(["--variant", variant, "--load", "200"]);
        command.args(["--generations", "2", "--rounds", "2", "--segment-ms", "100"]);
        let output = command.args(lanes).output().expect("the program starts");
        assert!(output.status.code().is_some_and(|code| code != 2), "{output:?}");
        let result = turn.result(variant);
        closes(&result, outputs);
        assert!(result.invalid.is_empty(), "{:?}", result.invalid);
        assert_eq!(result.app, "relay");
        // A lane that sends trains is seen to, unless each copy leaves as a frame of its own.
        for (number, arm) in result.arms.iter().enumerate() {
            let of_arm = result.segments.iter().filter(|segment| segment.arm == number);
            let trains: u64 = of_arm.map(|segment| segment.ledger.trains).sum();
            let sends_trains = arm.name.contains("gso") && !variant.ends_with("-frames");
            assert_eq!(trains > 0, sends_trains, "{variant}, {}", arm.name);
        }
    }
}

#[test]
fn a_relay_of_two_threads_copies_every_datagram_once() {
    let Some(turn) = Turn::new("relay-threads") else { return };
    // Built with the lab's tests, and not with these.
    let program = Path::new(env!("CARGO_BIN_EXE_laneway")).with_file_name("examples");
    let program = program.join("two_threads");
    if !program.exists() {
        let path = program.display();
        return println!("skipped: no {path}; cargo build -p laneway-lab --example two_threads");
    }
    let arm = format!("{} {ARGUMENTS} {{cpu}}", program.display());
    let mut command = shipped::race(&turn.folder, "relay", &[("saturate = true\n", "")]);
    command.args(["--variant", "groups-50", "--load", "200", "--lane", "socket", "--arm", &arm]);
    command.args(["--generations", "2", "--rounds", "2", "--segment-ms", "100"]);
    let output = command.output().expect("the program starts");
    assert!(output.status.code().is_some_and(|code| code != 2), "{output:?}");
    let result = turn.result("groups-50");
    closes(&result, 8);
    assert!(result.invalid.is_empty(), "{:?}", result.invalid);
    let of_threads = result.segments.iter().filter(|s| s.arm + 1 == result.arms.len());
    assert!(of_threads.into_iter().all(|segment| segment.ledger.reordered == 0));
    // The shipped arm is this program where it is in PATH, and is left out by name where it is not.
    let folder = program.parent().expect("it lies in one").display();
    let path = std::env::var("PATH").unwrap_or_default();
    for (path, runs) in [(format!("{folder}:{path}"), true), (path, false)] {
        let mut command = shipped::race(&turn.folder, "relay", &[("steps = 10", "steps = 2")]);
        command.args(["--variant", "report", "--load", "200"]);
        command.args(["--generations", "2", "--rounds", "2"]);
        command.args(["--segment-ms", "100", "--lane", "socket", "--lane", "two threads"]);
        let output = command.env("PATH", path).output().expect("the program starts");
        assert!(output.status.code().is_some_and(|code| code != 2), "{output:?}");
        let result = turn.result("report");
        closes(&result, 1);
        let is_there = result.arms.iter().any(|arm| arm.name == "two threads");
        assert_eq!(is_there, runs, "{:?}", result.notes);
        let is_noted = |note: &String| note.contains("skipped") && note.contains("two_threads");
        assert_eq!(result.notes.iter().any(is_noted), !runs, "{:?}", result.notes);
    }
}

#[test]
fn what_a_relay_sends_twice_or_to_no_receiver_makes_a_race_invalid() {
    let Some(turn) = Turn::new("fanout-wrong") else { return };
    if !has("python3", "--version") {
        return;
    }
    let right = fs::read_to_string(format!("{EXAMPLES}/relay.py")).expect("it ships");
    let sends = "sends.sendto(data, (ready.data, out))";
    let wrong = right.replace(
        sends,
        &format!("{sends}\n                {sends}\n                sends.sendto(data, (ready.data, out + 90))"),
    );
    assert_ne!(right, wrong);
    let script = turn.folder.join("twice.py");
    fs::write(&script, wrong).expect("writable");
    let relay = format!("python3 {} {ARGUMENTS}", script.display());
    let output = race(&turn, &[], "one", &["--lane", "packet", "--arm", &relay]);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let result = turn.result("one");
    assert_eq!(result.outcome, Outcome::Invalid);
    for part in ["were delivered twice", "copies sent where no output is"] {
        assert!(result.invalid.iter().any(|why| why.contains(part)), "{:?}", result.invalid);
    }
    let honest = result.segments.iter().filter(|segment| segment.arm == 0);
    assert!(honest.into_iter().all(|segment| segment.ledger.wrong.is_empty()));
}

#[test]
fn socat_relays_a_group_to_one_output() {
    let Some(turn) = Turn::new("fanout-socat") else { return };
    if !has("socat", "-V") {
        return;
    }
    let output = race(&turn, &[], "one", &["--lane", "packet", "--lane", "socat"]);
    assert!(output.status.code().is_some_and(|code| code != 2), "{output:?}");
    let result = turn.result("one");
    closes(&result, 1);
    assert!(result.invalid.is_empty(), "{:?}", result.invalid);
    assert!(result.arms.iter().any(|arm| arm.name == "socat"), "{:?}", result.notes);
}
