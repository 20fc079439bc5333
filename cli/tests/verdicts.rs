//! A race is believed only as far as it can be seen to find what was planted in it: a slow-down, a
//! double count, a generator that cannot keep up; and nothing where nothing was planted.
//!
//! Races need a quiet host and each other's absence, so these tests take turns. One that the host
//! disturbed says so and is skipped: a busy machine is no fault of the code.

#![expect(clippy::print_stdout, reason = "a skipped test says why")]

mod turn;

use laneway_lab::result::{Outcome, RaceResult};
use laneway_stats::Verdict;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use turn::Turn;

/// A race in its folder.
struct Race(Turn);

impl Race {
    /// `None` where races cannot be run; the reason is printed.
    fn new(name: &str) -> Option<Race> {
        Turn::new(name).map(Race)
    }

    /// Runs a race of `arms` (TOML) with these further arguments.
    fn run(&self, arms: &str, arguments: &[&str]) -> Output {
        self.run_with(&[], arms, arguments)
    }

    /// As [`run`](Self::run), with these changes to the shipped scenario.
    fn run_with(&self, changes: &[(&str, &str)], arms: &str, arguments: &[&str]) -> Output {
        let shipped = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
        let text = std::fs::read_to_string(shipped.join("features.toml")).expect("it ships");
        let captures = shipped.join("captures").display().to_string();
        let head = text.split("[[arm]]").next().expect("text before the first arm");
        let mut head = head.replace("captures/", &format!("{captures}/"));
        for (theirs, ours) in changes {
            assert!(head.contains(theirs), "the scenario has no {theirs}");
            head = head.replace(theirs, ours);
        }
        let scenario = self.0.folder.join("scenario.toml");
        std::fs::write(&scenario, format!("{head}\n{arms}")).expect("writable");
        Command::new(env!("CARGO_BIN_EXE_laneway"))
            .arg("race")
            .arg(&scenario)
            .arg("--out")
            .arg(self.0.folder.join("out"))
            .args(arguments)
            .output()
            .expect("the program starts")
    }

    fn result(&self) -> RaceResult {
        self.0.result("out")
    }
}

/// Less patient with a busy host, for races whose outcome is no matter of what else it does.
const HURRIED: [(&str, &str); 1] =
    [("late_p99_us_max = 200", "late_p99_us_max = 10_000_000\nothers_max = 1_000.0")];

const HONEST: &str = "[[arm]]\nlane = \"packet\"\n";

#[test]
fn a_planted_slow_down_is_worse_and_the_same_lane_twice_is_not() {
    let Some(race) = Race::new("slow") else { return };
    // Of the worker's own time, which is about 60 % of what a record costs on this lane.
    let slow = "[[arm]]\nname = \"slow\"\nlane = \"packet\"\nplant = { slow = { share = 0.35 } }\n";
    let load = ["--load", "50000", "--generations", "6", "--rounds", "4"];
    let output = race.run(&format!("{HONEST}{slow}"), &load);
    let result = race.result();
    if result.outcome == Outcome::Invalid {
        println!("skipped: the host disturbed the race: {:?}", result.invalid);
        return;
    }
    assert!(matches!(output.status.code(), Some(0 | 3)), "{output:?}");
    let cost = |name: &str| {
        let arm = result.arms.iter().position(|arm| arm.name == name).expect("it raced");
        let is_it =
            |f: &&laneway_lab::result::Finding| f.arm == arm && f.metric == "CPU per record";
        result.findings.iter().find(is_it).expect("it was compared")
    };
    let (slow, twin) = (cost("slow"), cost("packet --drop again"));
    println!("slow: {:?} times, {}", slow.comparison.estimate, slow.judgement.verdict);
    println!("twin: {:?} times, {}", twin.comparison.estimate, twin.judgement.verdict);
    if slow.judgement.verdict == Verdict::Inconclusive {
        // Honest, and of no use here: an interval this wide says nothing of the planted share.
        println!("skipped: the host is too noisy for a verdict: {:?}", slow.judgement.doubt);
        return;
    }
    assert_eq!(slow.judgement.verdict, Verdict::Worse);
    assert!(matches!(twin.judgement.verdict, Verdict::Same | Verdict::Inconclusive));
}

#[test]
fn frames_delivered_twice_make_the_run_invalid() {
    let Some(race) = Race::new("twice") else { return };
    let twice = "[[arm]]\nname = \"twice\"\nlane = \"packet\"\nplant = { count-twice = { every = 1000 } }\n";
    let load = ["--load", "20000", "--generations", "3", "--rounds", "1", "--segment-ms", "200"];
    let output = race.run_with(&HURRIED, &format!("{HONEST}{twice}"), &load);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stdout).replace('\n', " ");
    assert!(printed.contains("delivered twice"), "{printed}");
    let result = race.result();
    assert!(result.invalid.iter().any(|why| why.contains("twice") && why.contains("delivered")));
}

#[test]
fn a_generator_that_lags_gives_no_verdict_and_no_invalid_race() {
    let Some(race) = Race::new("late") else { return };
    // Far beyond what a socket sends here.
    let load = ["--load", "2000000", "--generator", "packet"];
    let short = ["--generations", "3", "--rounds", "3", "--segment-ms", "20"];
    let output = race.run(HONEST, &[&load[..], &short].concat());
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let result = race.result();
    assert!(result.invalid.is_empty(), "{:?}", result.invalid);
    // Two of three turns of an arm are offered once more; by then it is known to be in vain.
    let replaced = result.segments.iter().filter(|segment| segment.replaced);
    let generations = result.arms.len() * result.generations;
    assert_eq!([replaced.count(), result.segments.len()], [2 * generations, 5 * generations]);
    let is_noted = |note: &String| note.contains("offered once more in the same round");
    assert!(result.notes.iter().any(is_noted), "{:?}", result.notes);
    assert!(result.too_few.iter().any(|why| why.contains("the generator")), "{:?}", result.too_few);
    // What it does not keep into a sink either is the generator's limit, and is reported as such.
    assert!(!result.headroom[0].is_kept(), "{:?}", result.headroom);
    let is_noted = |note: &String| note.contains("no headroom at 2000000/s");
    assert!(result.notes.iter().any(is_noted), "{:?}", result.notes);
}

/// Every lane delivers every frame at a load that all can bear, and all agree on the features.
#[test]
fn the_arms_of_the_shipped_scenario_close_their_ledgers() {
    let Some(race) = Race::new("arms") else { return };
    let arms = ["packet", "packet:batch", "afxdp", "xdp"];
    let arms = arms.map(|lane| format!("[[arm]]\nlane = \"{lane}\"\n")).concat();
    let load = ["--load", "5000", "--generations", "3", "--rounds", "1", "--segment-ms", "200"];
    let output = race.run_with(&HURRIED, &arms, &load);
    assert!(output.status.code().is_some_and(|code| code != 2), "{output:?}");
    let result = race.result();
    for segment in &result.segments {
        let (name, ledger) = (&result.arms[segment.arm].name, &segment.ledger);
        assert!(ledger.is_closed(), "{name}: {ledger:?}");
        assert!(ledger.delivered > 0, "{name}: {ledger:?}");
    }
    let disagrees = |why: &&String| why.contains("not the same features");
    assert_eq!(result.invalid.iter().find(disagrees), None);
}

/// With ten minutes to go, it is ended by the signal alone.
#[test]
fn a_race_that_is_interrupted_behind_three_generations_judges_what_they_measured() {
    let Some(race) = Race::new("interrupted-late") else { return };
    let scenario = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../scenarios/features.toml");
    let child = Command::new(env!("CARGO_BIN_EXE_laneway"))
        .args(["race", &scenario.display().to_string(), "--lane", "packet", "--load", "10000"])
        .args(["--time", "600", "--generations", "300", "--segment-ms", "20", "--out"])
        .arg(race.0.folder.join("out"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let pid = rustix::process::Pid::from_child(&child);
    // Of each generation there is a file for each of the two arms.
    let written =
        || std::fs::read_dir(race.0.folder.join("out/trials")).into_iter().flatten().count();
    let mut waited = 0;
    while written() < 6 && waited < 1200 {
        std::thread::sleep(std::time::Duration::from_millis(50));
        waited += 1;
    }
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    let screen = String::from_utf8_lossy(&output.stdout);
    let result = race.result();
    assert!(result.interrupted && result.generations >= 3, "{screen}");
    assert!(result.segments.iter().all(|segment| segment.generation < result.generations));
    if result.outcome == Outcome::Invalid {
        println!("skipped: the host disturbed the race: {:?}", result.invalid);
        return;
    }
    assert_eq!(output.status.code(), Some(3), "{screen}");
    assert!(screen.contains("Interrupted: what "), "{screen}");
}

#[test]
fn an_interrupted_race_leaves_nothing_behind() {
    let Some(race) = Race::new("interrupted") else { return };
    let scenario = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../scenarios/features.toml");
    let child = Command::new(env!("CARGO_BIN_EXE_laneway"))
        .args(["race", &scenario.display().to_string(), "--load", "10000", "--out"])
        .arg(race.0.folder.join("out"))
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let pid = rustix::process::Pid::from_child(&child);
    let parent = child.id().to_string();
    // Field 4 of the line is the parent; the name before it may hold blanks.
    let is_child = |stat: &str| {
        let fields = stat.rsplit_once(')').map(|(_, fields)| fields.split_whitespace());
        fields.and_then(|mut fields| fields.nth(1)) == Some(&parent)
    };
    let arms = || -> Vec<PathBuf> {
        let processes = std::fs::read_dir("/proc").expect("lists").flatten();
        let text = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        let is_arm = |path: &PathBuf| {
            text(path.join("cmdline")).split('\0').nth(1) == Some("arm")
                && is_child(&text(path.join("stat")))
        };
        processes.map(|entry| entry.path()).filter(is_arm).collect()
    };
    // The first arm appears within the time it takes to start, which is long on a busy machine.
    let mut waited = 0;
    while arms().is_empty() && waited < 1200 {
        std::thread::sleep(std::time::Duration::from_millis(50));
        waited += 1;
    }
    let started = arms();
    assert_eq!(started.len(), 1, "the race has an arm");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stderr);
    let early = "of the 3 generations that a verdict takes";
    assert!(printed.contains(early), "{printed}");
    assert!(!started[0].exists(), "the arm is left");
    assert!(!race.0.folder.join("out/result.json").exists());
}
