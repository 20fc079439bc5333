//! `laneway race ping`: app `echo` and the kernel's own stack answer the same pings. These tests ask
//! whether every request is accounted for and every probe tells, never how fast: a host that is busy
//! makes a race invalid and leaves its ledgers closed.

#![expect(clippy::print_stdout, reason = "a skipped test says why")]

use laneway_lab::result::{RaceResult, Rtt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    /// `None` where races cannot be run; the reason is printed.
    fn new(name: &str) -> Option<Folder> {
        if let Err(why) = laneway_netns::can_create() {
            println!("skipped: {why}");
            return None;
        }
        let path = std::env::temp_dir().join(format!("laneway-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the temporary folder is writable");
        Some(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Left-overs in the temporary folder are harmless.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Races the shipped scenario, shortened and less patient with a busy host.
fn race(folder: &Path, lanes: &[&str]) -> Output {
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/ping.toml");
    let mut text = std::fs::read_to_string(shipped).expect("it ships");
    for (theirs, ours) in [
        ("idle_ms = 300", "idle_ms = 50"),
        ("late_p99_us_max = 200", "late_p99_us_max = 10_000_000\nothers_max = 1_000.0"),
        ("pings = 500", "pings = 20"),
        ("capacity_steps = 9", "capacity_steps = 2"),
        ("capacity_ms = 150", "capacity_ms = 50"),
        ("capacity_pps = [20_000, 4_000_000]", "capacity_pps = [2_000, 50_000]"),
    ] {
        assert!(text.contains(theirs), "the scenario has no {theirs}");
        text = text.replace(theirs, ours);
    }
    let scenario = folder.join("scenario.toml");
    std::fs::write(&scenario, text).expect("writable");
    let mut command = Command::new(env!("CARGO_BIN_EXE_laneway"));
    command.arg("race").arg(&scenario).arg("--out").arg(folder);
    lanes.iter().for_each(|lane| {
        command.args(["--lane", lane]);
    });
    let short = ["--load", "2000,20000", "--blocks", "4", "--segment-ms", "100"];
    command.args(short).output().expect("the program starts")
}

fn result(folder: &Path) -> RaceResult {
    let text = std::fs::read_to_string(folder.join("result.json")).expect("it is written");
    serde_json::from_str(&text).expect("a result")
}

/// Figures that follow each other as they must.
fn rises(rtt: &Rtt) {
    let (min, max) = (rtt.summary.min_ns.expect("some"), rtt.summary.max_ns.expect("some"));
    let avg = rtt.avg_ns.expect("some");
    assert!(0 < min && min as f64 <= avg && avg <= max as f64, "{rtt:?}");
    assert!(rtt.mdev_ns.expect("some") >= 0.0, "{rtt:?}");
}

#[test]
fn every_request_is_replied_to_once_or_named_and_both_probes_tell() {
    let Some(folder) = Folder::new("pings") else { return };
    let output = race(&folder.0, &["kernel", "xdp", "packet"]);
    assert!(output.status.code().is_some_and(|code| code != 2), "{output:?}");
    let result = result(&folder.0);
    let names: Vec<&str> = result.arms.iter().map(|arm| arm.name.as_str()).collect();
    assert_eq!(names, ["kernel", "kernel again", "xdp", "packet"]);
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
    assert!(ping.capacities.iter().all(|row| row.searches == result.blocks));
    let metrics: Vec<&str> = result.findings.iter().map(|f| f.metric.as_str()).collect();
    assert!(metrics.contains(&"p50 rtt") && metrics.contains(&"capacity"), "{metrics:?}");
    let page = std::fs::read_to_string(folder.0.join("report.html")).expect("it is written");
    assert!(page.contains("mdev") && page.contains("native"));
    match &ping.program {
        None => println!("skipped: no ping in PATH, so no real pings were sent"),
        Some(_) => {
            assert_eq!(ping.pings.len(), 4);
            for row in &ping.pings {
                let sent = 20 * result.blocks as u64;
                let seen = (row.sent, row.replied, row.duplicates);
                assert_eq!(seen, (sent, sent, 0), "{}", names[row.arm]);
                rises(&row.rtt);
            }
        }
    }
}

#[test]
fn an_arm_that_the_scenario_leaves_out_is_named_with_its_reason() {
    let Some(folder) = Folder::new("pings-left-out") else { return };
    let output = race(&folder.0, &["kernel", "dpdk:net_tap"]);
    assert!(output.status.code().is_some_and(|code| code != 2), "{output:?}");
    let result = result(&folder.0);
    assert_eq!(result.arms.len(), 2, "the base and its twin");
    let told = |note: &String| note.contains("`dpdk:net_tap`") && note.contains("no cable leads");
    assert!(result.notes.iter().any(told), "{:?}", result.notes);
}
