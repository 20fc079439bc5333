//! The first app does what the guide says, as a user runs it.

#![expect(clippy::print_stdout, reason = "a skipped test says why")]

use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::{fs, process};

const CAPTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/captures/tiny.pcap");

fn run(words: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_first-app")).args(words).output();
    let output = output.expect("the example was built");
    let printed = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(printed).expect("text"))
}

/// The figure of the line that begins with this name.
fn figure(printed: &str, name: &str) -> u64 {
    let line = printed.lines().find(|line| line.trim_start().starts_with(name));
    let line = line.unwrap_or_else(|| panic!("no line `{name}` in {printed}"));
    let digits: String = line.chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("no figure in `{line}`"))
}

#[test]
fn every_frame_of_a_capture_is_short_or_long() {
    let words = ["run", "sizes", "--lane", "pcap", "--on", CAPTURE, "--below", "100"];
    let (code, printed) = run(&words);
    assert_eq!(code, Some(0), "{printed}");
    let (seen, short, long) =
        (figure(&printed, "frames seen"), figure(&printed, "short"), figure(&printed, "long"));
    assert!(seen > 0 && seen == short + long, "{printed}");
    let (_, all) = run(&[&words[..7], &["100000"]].concat());
    assert_eq!((figure(&all, "short"), figure(&all, "long")), (seen, 0), "{all}");
}

#[test]
fn it_is_a_verb_beside_those_of_the_program_and_explains_itself() {
    let (code, printed) = run(&["run", "sizes", "--help"]);
    assert_eq!(code, Some(0));
    for word in ["--below", "--lane", "--workers", "--trace"] {
        assert!(printed.contains(word), "{printed}");
    }
    let (code, printed) = run(&["run", "sizes", "--lane", "socket", "--on", "lo"]);
    assert_eq!(code, Some(2));
    assert!(printed.contains("use packet, uring or afxdp"), "{printed}");
    let (_, printed) = run(&["run", "--help"]);
    assert!(printed.contains("sizes") && printed.contains("echo"), "{printed}");
}

/// A race of the example's own scenario in a folder of its own, removed at the end.
struct Race(PathBuf);

impl Race {
    fn new(name: &str) -> Race {
        let folder = std::env::temp_dir().join(format!("first-app-{name}-{}", process::id()));
        fs::create_dir_all(&folder).expect("a folder of our own");
        Race(folder)
    }

    /// Runs it with these changes to the scenario.
    fn run(&self, changes: &[(&str, &str)]) -> (Option<i32>, String) {
        // How punctual a busy host's generator is, is not asked here.
        let patient = "late_p99_us_max = 10_000_000\nothers_max = 1_000.0";
        let mut text = include_str!("../sizes.toml").replace("late_p99_us_max = 200", patient);
        for (theirs, ours) in changes {
            assert!(text.contains(theirs), "the scenario has no {theirs}");
            text = text.replace(theirs, ours);
        }
        let file = self.0.join("sizes.toml").display().to_string();
        fs::write(&file, text).expect("our folder");
        let out = self.0.display().to_string();
        let short =
            ["--load", "5000", "--generations", "4", "--rounds", "1", "--segment-ms", "100"];
        run(&[&["race", &file, "--out", &out][..], &short].concat())
    }
}

impl Drop for Race {
    fn drop(&mut self) {
        // Left-overs in the temporary folder are harmless.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

#[test]
fn it_is_raced_as_it_is_run_and_every_frame_is_accounted_for() {
    if let Err(why) = laneway_netns::can_create() {
        return println!("skipped: {why}");
    }
    let race = Race::new("race");
    let (code, printed) = race.run(&[]);
    assert!(code.is_some_and(|code| code != 2), "{printed}");
    let text = fs::read_to_string(race.0.join("result.json")).expect("the race wrote its result");
    let result: Value = serde_json::from_str(&text).expect("JSON");
    let (arms, summaries) = (list(&result["arms"]), list(&result["summaries"]));
    assert!(arms.len() >= 4 && summaries.len() == arms.len(), "{printed}");
    for arm in summaries {
        let count = |name| arm["ledger"][name].as_i64().expect("a number");
        assert!(count("delivered") > 0, "{arm}");
        let open = ["foreign", "unexplained", "duplicates"].map(count);
        assert_eq!(open, [0; 3], "{arm}");
    }
    let command = |name: &str| {
        let arm = arms.iter().find(|arm| arm["name"] == name).expect("it raced");
        arm["caps"]["facts"]["command"].as_str().expect("text")
    };
    assert_eq!(command("packet"), "first-app run sizes --lane packet --on sut0 --cpu 0");
    let wanted = "first-app run sizes --lane packet --on sut0 --cpu 0 --below 200";
    assert_eq!(command("packet --below 200"), wanted);
    assert!(race.0.join("report.html").exists());
}

#[test]
fn what_is_mistyped_in_a_scenario_is_reported_before_anything_is_started() {
    for (theirs, ours, parts) in [
        ("app = \"sizes\"", "app = \"size\"", &["did you mean `sizes`?"][..]),
        ("--below", "--belw", &["arm `packet --belw 200`", "similar argument exists: '--below'"]),
        ("\"200\"", "\"many\"", &["invalid value 'many'", "first-app run sizes --help"]),
        ("\"200\"]", "\"200\", \"--below\", \"3\"]", &["cannot be used multiple times"]),
        ("lane = \"packet:batch\"", "lane = \"pakcet\"", &["did you mean `packet`?"]),
        ("lane = \"packet:batch\"", "lane = \"pcap\"", &["its ports are files", "by a cable"]),
        ("payload_bytes = 64", "capture = \"x.pcap\"", &["give `payload_bytes`"]),
    ] {
        let race = Race::new("mistyped");
        let (code, printed) = race.run(&[(theirs, ours)]);
        assert_eq!(code, Some(2), "{ours}: {printed}");
        assert!(parts.iter().all(|part| printed.contains(part)), "{ours}: {printed}");
        assert_eq!(printed.lines().count(), 1, "{printed}");
        assert!(!race.0.join("trials").exists());
    }
    let (code, printed) = run(&["race", "sizes"]);
    assert_eq!(code, Some(2), "{printed}");
    assert!(
        printed.contains("it is an app, which a scenario names (app = \"sizes\")"),
        "{printed}"
    );
}
