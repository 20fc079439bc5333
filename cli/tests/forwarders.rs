//! `laneway race tap` and `laneway race forward`: the forwarder on TAP devices and on cables, against
//! other people's. These tests ask whether every frame is accounted for and every arm says what it is,
//! never how fast: a host that is busy makes a race invalid and leaves its ledgers closed.

#![expect(clippy::print_stdout, reason = "a skipped test says why")]

mod shipped;
mod turn;

use laneway_lab::Spacing;
use laneway_lab::result::{ClaimStatus, Headroom, RaceResult};
use std::process::Output;
use turn::Turn;

/// A race in its folder.
struct Race(Turn);

impl Race {
    /// `None` where races cannot be run; the reason is printed.
    fn new(name: &str) -> Option<Race> {
        Turn::new(name).map(Race)
    }

    /// Runs the shipped scenario `name`, less patient with a busy host and with these changes, on
    /// `lanes`.
    fn run(
        &self,
        name: &str,
        changes: &[(&str, &str)],
        lanes: &[&str],
        arguments: &[&str],
    ) -> Output {
        let mut command = shipped::race(&self.0.folder, name, changes);
        lanes.iter().for_each(|lane| {
            command.args(["--lane", lane]);
        });
        let short = ["--generations", "3", "--rounds", "1", "--segment-ms", "100"];
        command.args(short).args(arguments).output().expect("the program starts")
    }

    fn result(&self, variant: &str) -> RaceResult {
        self.0.result(variant)
    }

    /// The reason why no TAP device of DPDK's can be raced here.
    fn no_tap(output: &Output) -> Option<String> {
        let printed = String::from_utf8_lossy(&output.stderr);
        let missing = ["DPDK", "/dev/net/tun"].iter().any(|word| printed.contains(word));
        (output.status.code() == Some(2) && missing).then(|| printed.trim().to_owned())
    }
}

/// Every frame of every arm is named once, and something arrived.
fn closes(result: &RaceResult) {
    for segment in &result.segments {
        let (name, ledger) = (&result.arms[segment.arm].name, &segment.ledger);
        assert!(ledger.is_closed() && ledger.foreign == 0, "{name}: {ledger:?}");
        assert!(ledger.delivered > 0, "{name}: {ledger:?}");
        assert!(segment.wire_to_app.is_none(), "nothing is known of a forwarder's inside");
    }
}

fn fact<'a>(result: &'a RaceResult, arm: &str, name: &str) -> &'a str {
    let arm = result.arms.iter().find(|other| other.name == arm).expect("it raced");
    arm.caps.facts.get(name).map_or("", String::as_str)
}

#[test]
fn the_report_on_taps_is_raced_with_its_rule_its_peer_and_its_claims() {
    let Some(race) = Race::new("tap") else { return };
    let lanes = ["tap", "testpmd", "no rule", "packet", "xdp", "dpdk:net_memif"];
    let output = race.run("tap", &[], &lanes, &["--load", "672,20000"]);
    if let Some(why) = Race::no_tap(&output) {
        return println!("skipped: {why}");
    }
    assert!(output.status.code().is_some_and(|code| code != 2), "{output:?}");
    let result = race.result("");
    closes(&result);
    assert_eq!((result.app.as_str(), result.arms[1].is_noise_floor), ("forward", true));
    assert_eq!(result.traffic.replayed, 110, "{:?}", result.traffic);
    // Where the rule is executed.
    assert!(fact(&result, "tap", "rules").starts_with("1, executed in: user"), "{:?}", result.arms);
    assert!(
        fact(&result, "xdp", "rules").starts_with("1, executed in: kernel"),
        "{:?}",
        result.arms
    );
    assert_eq!(fact(&result, "no rule", "rules"), "none");
    let is_noted = |part: &str| result.notes.iter().any(|note| note.contains(part));
    assert!(is_noted("`dpdk:net_memif`") && is_noted("tap queue full"), "{:?}", result.notes);
    match result.notes.iter().find(|note| note.contains("skipped: arm `testpmd`")) {
        Some(why) => println!("{why}"),
        None => assert_eq!(fact(&result, "testpmd", "forward_mode"), "io"),
    }
    // Those at a load that was offered, on arms that ran, have an answer; the others have the reason.
    let of = |wanted: &[ClaimStatus]| -> Vec<&str> {
        let claims = result.claims.iter().filter(|claim| wanted.contains(&claim.status));
        claims.map(|claim| claim.says.as_str()).collect()
    };
    let sentence = "the mempool cannot sustain the incoming rate";
    assert_eq!(
        of(&[ClaimStatus::Refuted, ClaimStatus::Inconclusive]),
        [sentence],
        "{:?}",
        result.claims
    );
    assert_eq!(of(&[ClaimStatus::Confirmed]), [""; 0], "{:?}", result.claims);
    assert_eq!(of(&[ClaimStatus::ForTrace]).len(), 6, "{:?}", result.claims);
    let page = std::fs::read_to_string(race.0.folder.join("report.html")).expect("it is written");
    assert!(page.contains("Claims") && page.contains("executed in: user"));
}

/// At a load beyond what one system call per frame can take.
#[test]
fn what_a_taps_queue_refuses_is_named_once() {
    let Some(race) = Race::new("tap-full") else { return };
    let output = race.run("tap", &[], &["tap", "testpmd"], &["--load", "2000000"]);
    refused_at(&race, &output, "tap queue full");
}

/// Every arm's ledger closes, and names frames that this place had no room for.
fn refused_at(race: &Race, output: &Output, place: &str) {
    if let Some(why) = Race::no_tap(output) {
        return println!("skipped: {why}");
    }
    assert!(output.status.code().is_some_and(|code| code != 2), "{output:?}");
    let result = race.result("");
    closes(&result);
    for arm in &result.summaries {
        let refused = arm.ledger.drops.get(place).copied().unwrap_or(0);
        assert!(refused > 0, "{}: no overload: {:?}", result.arms[arm.arm].name, arm.ledger);
    }
}

/// That device has fragments put together, and the capture holds four. Beyond what it can take, a fragment's rest is
/// often lost, and the next load brings the same addresses and identifications again.
#[test]
fn fragments_whose_rest_was_lost_are_not_joined_to_those_of_the_next_load() {
    let Some(race) = Race::new("fragments") else { return };
    let loads = ["--load", "700000,1000000,1500000,2000000"];
    let output = race.run("tap", &[], &["dpdk:net_af_packet"], &loads);
    refused_at(&race, &output, "fragments joined by the device's fan-out");
}

/// Nothing of the kernel's reaches shared memory: generator and far end are one process of the lab.
#[test]
fn frames_cross_shared_memory_once_and_the_report_says_what_is_at_its_other_ends() {
    let Some(race) = Race::new("memif") else { return };
    let output = race.run("tap", &[], &["dpdk:net_memif"], &["--load", "672,5000"]);
    if let Some(why) = Race::no_tap(&output) {
        return println!("skipped: {why}");
    }
    assert!(output.status.code().is_some_and(|code| code != 2), "{output:?}");
    let result = race.result("");
    closes(&result);
    for arm in &result.summaries {
        let ledger = &arm.ledger;
        // A segment is no more than a ring holds, so none fills, on however slow a host.
        assert_eq!((ledger.delivered, ledger.duplicates), (ledger.offered, 0), "{ledger:?}");
    }
    assert_eq!(fact(&result, "dpdk:net_memif", "driver"), "net_memif");
    assert!(fact(&result, "dpdk:net_memif", "rules").starts_with("1, executed in: user"));
    let note = result.notes.iter().find(|note| note.contains("`dpdk:net_memif`"));
    let note = note.expect("a reader must know");
    assert!(note.contains("one process of the lab") && note.contains("in mind"), "{note}");
    let page = std::fs::read_to_string(race.0.folder.join("report.html")).expect("it is written");
    assert!(page.contains("one process of the lab"));
}

/// Bursts of 32 into a ring of 16.
#[test]
fn what_the_ring_of_shared_memory_refuses_is_named_once() {
    let Some(race) = Race::new("memif-full") else { return };
    let small = [("net_memif,role=server", "net_memif,role=server,rxd=16")];
    let output = race.run("tap", &small, &["dpdk:net_memif"], &["--load", "20000"]);
    refused_at(&race, &output, "memif ring full");
}

#[test]
fn frames_of_the_kernel_and_of_a_socket_cross_every_forwarder_once() {
    let Some(race) = Race::new("forward") else { return };
    let lanes = ["bridge", "xdp", "xdp-bench", "afxdp", "packet", "dpdk:net_tap"];
    let output = race.run("forward", &[], &lanes, &["--load", "5000"]);
    assert!(output.status.code().is_some_and(|code| code != 2), "{output:?}");
    for (variant, generator) in [("live", "live"), ("packet", "packet")] {
        let result = race.result(variant);
        closes(&result);
        // It is one flow; of a capture, the kernel's GRO lets some flows overtake others.
        let reordered: u64 = result.summaries.iter().map(|s| s.ledger.reordered).sum();
        assert_eq!(reordered, 0);
        assert_eq!(result.traffic.generator, generator);
        assert_eq!(result.traffic.mean_frame_bytes, 60.0);
        assert_eq!(fact(&result, "bridge", "program"), "none: the kernel's bridge");
        assert_eq!(fact(&result, "xdp", "rules"), "none");
        for why in result.notes.iter().filter(|note| note.starts_with("skipped: ")) {
            println!("{why}");
        }
    }
}

#[test]
fn the_saturating_load_is_found_and_offered_to_all_alike() {
    let Some(race) = Race::new("saturate") else { return };
    // Without a load of the command line's own, which would be the only one.
    let loads = [("loads_pps = [100_000]", "loads_pps = [5_000]")];
    let output = race.run("forward", &loads, &["bridge", "packet"], &["--variant", "live"]);
    assert!(output.status.code().is_some_and(|code| code != 2), "{output:?}");
    let result = race.result("live");
    closes(&result);
    let Some(pps) = result.saturating_pps else {
        let why = result.notes.iter().find(|note| note.starts_with("no saturating load"));
        return println!("skipped: {}", why.expect("it is reported"));
    };
    assert_eq!(result.loads_pps, [5_000, pps]);
    let counted = result.segments.iter().filter(|s| !s.replaced);
    let asked: Vec<f64> = counted.map(|s| s.generator.asked_pps).collect();
    let high = asked.iter().filter(|&&asked| asked > 5_500.0);
    assert_eq!(high.count(), result.arms.len() * result.generations);
    assert!(result.notes.iter().any(|note| note.contains("is the saturating load")));
    let headroom = result.headroom.iter().find(|kept| kept.load_pps == pps);
    assert!(headroom.is_some_and(Headroom::is_kept), "{:?}", result.headroom);
}

/// Sizes, times and the far end's clock, from the scenario to the result.
#[test]
fn mixed_sizes_at_random_times_come_out_once_each_and_with_their_latency() {
    let Some(race) = Race::new("mix") else { return };
    let changes = [
        ("payload_bytes = 18", "sizes = \"imix\"\narrivals = \"poisson\""),
        ("burst = 64", "burst = 1"),
    ];
    let arguments = ["--variant", "live", "--load", "5000"];
    let output = race.run("forward", &changes, &["packet", "xdp"], &arguments);
    assert!(output.status.code().is_some_and(|code| code != 2), "{output:?}");
    let result = race.result("live");
    closes(&result);
    assert_eq!((result.traffic.replayed, result.traffic.spacing), (12, Spacing::Poisson));
    for segment in &result.segments {
        let took = segment.due_to_arrival.expect("there is a far end").summary;
        assert!(took.n > 0 && took.n <= segment.ledger.delivered, "{took:?}");
        // No way is shorter than nothing, or begins before the frame is due.
        assert!(took.min_ns > Some(0) && took.min_ns <= took.max_ns, "{took:?}");
    }
}

#[test]
fn a_scenario_that_cannot_be_is_refused_before_anything_is_started() {
    let Some(race) = Race::new("broken") else { return };
    for (theirs, ours, part) in [
        ("udp / end actions", "udq / end actions", "did you mean"),
        ("\"--rule\",", "\"--mode\", \"l2\", \"--rule\",", "do not send every frame on"),
        ("app = \"forward\"", "app = \"features\"", "unexpected argument '--rule'"),
        ("over = \"tap\", at_least", "over = \"tab\", at_least", "an arm of a claim is tab"),
        ("net_tap:rxq=2", "net_tap:rxq=200", "rxq= of dpdk-testpmd is 1 to 16"),
        ("saturate = true", "saturate = false", "the load of a "),
    ] {
        let output = race.run("tap", &[(theirs, ours)], &[], &[]);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{ours}: {printed}");
        assert!(printed.contains(part), "{ours}: {printed}");
        assert!(!race.0.folder.join("trials").exists());
    }
}
