//! The first lane carries frames of an app of this build, as a user runs it.

#![expect(clippy::print_stdout, reason = "a skipped test says why")]

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{fs, process};

const OURS: [u8; 6] = [2, 0, 0, 0, 0, 9];
const THEIRS: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Who has 192.0.2.9? Tell 192.0.2.1.
fn question() -> Vec<u8> {
    let mut frame = [&[0xff; 6][..], &THEIRS, &[0x08, 0x06]].concat();
    frame.extend([0, 1, 0x08, 0, 6, 4, 0, 1]);
    frame.extend([&THEIRS[..], &[192, 0, 2, 1], &[0; 6], &[192, 0, 2, 9]].concat());
    frame
}

#[test]
fn echo_answers_over_a_unix_socket_and_the_socket_is_removed() {
    let folder = std::env::temp_dir().join(format!("first-lane-{}", process::id()));
    fs::create_dir_all(&folder).expect("a folder of our own");
    let (near, far) = (folder.join("near"), folder.join("far"));
    let wire = UnixDatagram::bind(&far).expect("a free path");
    wire.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket takes a time limit");
    let mut child = Command::new(env!("CARGO_BIN_EXE_first-lane"))
        .args(["run", "echo", "--address", "192.0.2.9", "--mac", "02:00:00:00:00:09"])
        .args(["--duration", "3s", "--lane", &format!("unix:peer={}", far.display()), "--on"])
        .arg(&near)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the example was built");
    let mut errors = BufReader::new(child.stderr.take().expect("piped")).lines();
    let begun = errors.by_ref().map_while(Result::ok).any(|line| line.contains("answering pings"));
    assert!(begun, "it never began");
    wire.send_to(&question(), &near).expect("the lane listens");
    let mut answer = [0; 2048];
    let bytes = wire.recv(&mut answer).expect("an answer within a minute");
    let answer = &answer[..bytes];
    assert_eq!((&answer[..6], &answer[6..12]), (&THEIRS[..], &OURS[..]));
    assert_eq!(&answer[20..22], [0, 2], "an ARP reply");
    let rest: Vec<String> = errors.map_while(Result::ok).collect();
    assert!(child.wait().expect("our child").success(), "{rest:?}");
    assert!(rest.iter().any(|line| line.contains("answered")), "{rest:?}");
    assert!(!near.exists(), "the socket's file is removed");
    fs::remove_dir_all(&folder).expect("our folder");
}

#[test]
fn a_knob_that_it_does_not_have_is_answered_with_the_nearest() {
    let output = Command::new(env!("CARGO_BIN_EXE_first-lane"))
        .args(["run", "echo", "--lane", "unix:peeer=/tmp/x", "--on", "/tmp/first-lane-near"])
        .args(["--address", "192.0.2.9", "--mac", "02:00:00:00:00:09"])
        .output()
        .expect("the example was built");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert!(printed.contains("did you mean `peer`?"), "{printed}");
}

/// What the program says of a race of app `count` on these arms (TOML), with its exit code.
fn race(name: &str, arms: &str) -> (Option<i32>, String) {
    let folder = std::env::temp_dir().join(format!("first-lane-{name}-{}", process::id()));
    fs::create_dir_all(&folder).expect("a folder of our own");
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/lanes.toml");
    let text = fs::read_to_string(shipped).expect("it ships");
    let head = text.split("[[arm]]").next().expect("text before the first arm");
    // How punctual a busy host's generator is, is not asked here.
    let head =
        head.replace("late_p99_us_max = 200", "late_p99_us_max = 10_000_000\nothers_max = 1_000.0");
    fs::write(folder.join("race.toml"), format!("{head}\n{arms}")).expect("our folder");
    let output = Command::new(env!("CARGO_BIN_EXE_first-lane"))
        .args(["race", "race.toml", "--out", "out", "--variant", "count-64", "--load", "5000"])
        .args(["--generations", "4", "--rounds", "1", "--verbose", "--segment-ms", "100"])
        .current_dir(&folder)
        .output()
        .expect("the example was built");
    fs::remove_dir_all(&folder).expect("our folder");
    let printed = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&printed).into_owned())
}

const WHY_NOT: &str = "its ports are paths, and what a race sends comes by a cable";

#[test]
fn a_race_refuses_it_because_no_cable_leads_to_a_path() {
    let (code, printed) = race("refused", "[[arm]]\nlane = \"unix\"\n");
    assert_eq!(code, Some(2), "{printed}");
    assert!(printed.contains("lane of arm `unix`") && printed.contains(WHY_NOT), "{printed}");
    let (code, printed) = race("mistyped", "[[arm]]\nlane = \"unxi\"\n");
    assert_eq!(code, Some(2), "{printed}");
    assert!(printed.contains("did you mean `unix`?"), "{printed}");
}

#[test]
fn a_race_leaves_it_out_with_the_reason_where_it_is_optional_and_runs_the_rest() {
    let arms = "[[arm]]\nlane = \"packet\"\n[[arm]]\nlane = \"unix\"\noptional = true\n";
    let (code, printed) = race("optional", arms);
    if code == Some(2) {
        let why = printed.lines().last().unwrap_or_default();
        assert!(why.contains("cannot create a network namespace"), "{printed}");
        return println!("skipped: {why}");
    }
    let text = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("skipped: arm `unix`") && text.contains(WHY_NOT), "{printed}");
    assert!(text.contains("closed") && !text.contains("unexplained"), "{printed}");
}
