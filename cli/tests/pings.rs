//! `laneway race ping`: app `echo` and the kernel's own stack answer the same pings. These tests ask
//! whether every request is accounted for and every probe tells, never how fast: a host that is busy
//! makes a race invalid and leaves its ledgers closed.

#![expect(clippy::print_stdout, reason = "a skipped test says why")]

mod turn;

use laneway_lab::{Trial, result::Rtt};
use std::path::Path;
use std::process::{Command, Output};
use turn::Turn;

/// Races a variant of the shipped scenario, shortened and less patient with a busy host.
fn race(folder: &Path, variant: &str, more: &[&str]) -> Output {
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/ping.toml");
    let mut text = std::fs::read_to_string(shipped).expect("it ships");
    for (theirs, ours) in [
        ("late_p99_us_max = 200", "late_p99_us_max = 10_000_000\nothers_max = 1_000.0"),
        ("pings = 250", "pings = 20"),
        ("ping_load_pps = 50_000", "ping_load_pps = 5_000"),
        ("capacity_steps = 10", "capacity_steps = 2"),
        ("capacity_ms = 100\n\n[[variant]]", "capacity_ms = 50\n\n[[variant]]"),
        ("capacity_pps = [50_000, 4_000_000]", "capacity_pps = [2_000, 50_000]"),
        ("loads_pps = [50_000], topspeed", "loads_pps = [500], topspeed"),
    ] {
        assert!(text.contains(theirs), "the scenario has no {theirs}");
        text = text.replacen(theirs, ours, 1);
    }
    let scenario = folder.join("scenario.toml");
    std::fs::write(&scenario, text).expect("writable");
    let mut command = Command::new(env!("CARGO_BIN_EXE_laneway"));
    command.arg("race").arg(&scenario).arg("--out").arg(folder).args(["--variant", variant]);
    command
        .args(["--generations", "3", "--rounds", "1", "--segment-ms", "100", "--verbose"])
        .args(more);
    command.output().expect("the program starts")
}

/// Races these arms of the variant `live`.
fn live(folder: &Path, lanes: &[&str]) -> Output {
    let lanes = lanes.iter().flat_map(|&lane| ["--lane", lane]);
    race(folder, "live", &lanes.chain(["--load", "2000,20000"]).collect::<Vec<_>>())
}

/// Figures that follow each other as they must.
fn rises(rtt: &Rtt) {
    let (min, max) = (rtt.summary.min_ns.expect("some"), rtt.summary.max_ns.expect("some"));
    let avg = rtt.avg_ns.expect("some");
    assert!(0 < min && min as f64 <= avg && avg <= max as f64, "{rtt:?}");
    assert!(rtt.mdev_ns.expect("some") >= 0.0, "{rtt:?}");
}

/// In each of so many trials: a ping beside a load is replied to, or a counter names where it was lost.
fn every_ping_is_accounted_for(trials: &Path, number: usize) {
    let files: Vec<_> = std::fs::read_dir(trials).expect("it is there").flatten().collect();
    assert_eq!(files.len(), number);
    for file in files {
        let text = std::fs::read_to_string(file.path()).expect("readable");
        let trial: Trial = serde_json::from_str(&text).expect("a trial");
        let Some(pinged) = trial.ping_loaded else { continue };
        let ledger = pinged.load.expect("a load was beside them").ledger;
        assert!(ledger.is_closed(), "{}: {ledger:?}", trial.arm);
        let lost = pinged.sent - pinged.replied;
        assert!(lost <= ledger.dropped(), "{}: {lost} pings lost; {ledger:?}", trial.arm);
    }
}

#[test]
fn every_request_is_replied_to_once_or_named_and_both_probes_tell() {
    let Some(turn) = Turn::new("pings") else { return };
    let output = live(&turn.folder, &["kernel", "xdp", "packet"]);
    assert!(output.status.code().is_some_and(|code| code != 2), "{output:?}");
    let result = turn.result("live");
    let names: Vec<&str> = result.arms.iter().map(|arm| arm.name.as_str()).collect();
    assert_eq!(names, ["kernel", "kernel again", "xdp --no-limits", "packet --no-limits"]);
    assert_eq!(result.arms[2].caps.facts["attach_mode"], "native");
    for segment in &result.segments {
        let (name, ledger) = (names[segment.arm], &segment.ledger);
        assert!(ledger.is_closed() && ledger.foreign == 0, "{name}: {ledger:?}");
        assert!(ledger.delivered > 0, "{name}: {ledger:?}");
        let rtt = segment.rtt.expect("it was measured");
        assert_eq!(rtt.summary.n, ledger.delivered, "{name}");
        rises(&rtt);
    }
    let open = |why: &&String| why.contains("ledger is open") || why.contains("replied to twice");
    assert_eq!(result.invalid.iter().find(open), None);

    let ping = result.ping.as_ref().expect("a race of pings has its section");
    assert_eq!(ping.capacities.len(), 4);
    assert!(ping.capacities.iter().all(|row| row.searches == result.generations));
    let metrics: Vec<&str> = result.findings.iter().map(|f| f.metric.as_str()).collect();
    assert!(metrics.contains(&"p50 rtt") && metrics.contains(&"capacity"), "{metrics:?}");
    let page =
        std::fs::read_to_string(turn.folder.join("live/report.html")).expect("it is written");
    let text = String::from_utf8(output.stdout).expect("text");
    for part in ["mdev", "p99.9", "native", "replies per CPU-second"] {
        assert!(page.contains(part), "the page lacks {part}");
        // A terminal breaks long heads.
        assert!(part.contains(' ') || text.contains(part), "the text lacks {part}: {text}");
    }
    if ping.program.is_none() {
        return println!("skipped: no ping in PATH, so no real pings were sent");
    }
    assert!(metrics.contains(&"ping p50") && metrics.contains(&"ping p50 under load"));
    assert!(page.contains("ping, idle") && page.contains("ping beside 5"));
    let all = 20 * result.generations as u64;
    assert_eq!((ping.pings.len(), ping.pings_loaded.len()), (4, 4));
    for row in ping.pings.iter().chain(&ping.pings_loaded) {
        assert_eq!(row.duplicates, 0, "{}", names[row.arm]);
        if row.replied > 0 {
            rises(&row.rtt);
        }
    }
    assert!(ping.pings.iter().all(|row| (row.sent, row.replied) == (all, all)), "{ping:?}");
    every_ping_is_accounted_for(&turn.folder.join("live/trials"), 4 * result.generations);
    // On a host that is busy ping outlasts the load beside it, and such pings are not shown.
    assert!(ping.pings_loaded.iter().all(|row| row.sent <= all && row.sent.is_multiple_of(20)));
}

#[test]
fn raw_sockets_and_taps_take_part_and_their_ledgers_close() {
    let Some(turn) = Turn::new("pings-others") else { return };
    let output = live(&turn.folder, &["kernel", "socket:raw,mute", "dpdk:net_tap"]);
    assert!(output.status.code().is_some_and(|code| code != 2), "{output:?}");
    let result = turn.result("live");
    let names: Vec<&str> = result.arms.iter().map(|arm| arm.name.as_str()).collect();
    assert_eq!(
        names[..3],
        ["kernel", "kernel again", "socket:raw --no-limits"],
        "{:?}",
        result.notes
    );
    if names.len() < 4 {
        let is_noted = |note: &&String| note.contains("skipped") && note.contains("dpdk:net_tap");
        println!("{}", result.notes.iter().find(is_noted).expect("a reason"));
    }
    assert_eq!(result.arms[2].caps.facts["kernel_answers"], "off while this runs");
    for segment in &result.segments {
        let (name, ledger) = (names[segment.arm], &segment.ledger);
        assert!(ledger.is_closed() && ledger.delivered > 0, "{name}: {ledger:?}");
        assert_eq!(ledger.duplicates, 0, "{name}: another host answered, too");
    }
    let ping = result.ping.expect("a race of pings has its section");
    for row in &ping.pings {
        assert_eq!((row.replied, row.duplicates), (row.sent, 0), "{}", names[row.arm]);
    }
    assert!(ping.pings_loaded.iter().all(|row| row.duplicates == 0));
    every_ping_is_accounted_for(&turn.folder.join("live/trials"), names.len() * result.generations);
}

#[test]
fn the_variant_of_sockets_pours_the_same_into_each_arm_and_judges_its_goal() {
    let Some(turn) = Turn::new("pings-socket") else { return };
    let output = race(&turn.folder, "socket", &[]);
    assert!(output.status.code().is_some_and(|code| code != 2), "{output:?}");
    let result = turn.result("socket");
    let names: Vec<&str> = result.arms.iter().map(|arm| arm.name.as_str()).collect();
    assert_eq!(names, ["kernel", "kernel again", "xdp --no-limits"]);
    assert!(result.traffic.generator.starts_with("packet"));
    let pps = result.saturating_pps.expect("top speed needs no search");
    assert!(result.topspeed && result.loads_pps == [500, pps], "{:?}", result.loads_pps);
    let goals: Vec<&str> = result.goals.iter().map(|goal| goal.goal.as_str()).collect();
    let want = "replies per CPU-second of xdp --no-limits at the saturating load: at least 1.8 times kernel";
    assert_eq!(goals, [want]);
    let of_load = |load: usize| result.segments.iter().filter(move |s| s.load == load);
    let offered: Vec<u64> = of_load(1).map(|s| s.ledger.offered).collect();
    assert!(offered.iter().all(|&frames| frames == offered[0]), "{offered:?}");
    assert!(of_load(0).all(|s| s.rtt.is_some()) && of_load(1).all(|s| s.rtt.is_none()));
    let is_latency = |metric: &str| metric.contains("rtt");
    assert!(result.findings.iter().all(|f| f.load == 0 || !is_latency(&f.metric)));
    let is_noted = |note: &String| note.contains("top speed is no schedule");
    assert!(result.notes.iter().any(is_noted), "{:?}", result.notes);
    let page = std::fs::read_to_string(turn.folder.join("socket/report.html")).expect("written");
    assert!(page.contains("top speed"));
    for segment in &result.segments {
        let (name, ledger) = (names[segment.arm], &segment.ledger);
        assert!(ledger.is_closed() && ledger.delivered > 0, "{name}: {ledger:?}");
    }
    let ping = result.ping.expect("a race of pings has its section");
    assert!(ping.pings.is_empty() && ping.capacities.is_empty());
}
