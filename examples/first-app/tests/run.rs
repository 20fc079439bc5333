//! The first app does what the guide says, as a user runs it.

use std::process::Command;

const CAPTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/captures/tiny.pcap");

fn run(words: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_first-app")).args(words).output();
    let output = output.expect("the example was built");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).expect("text"))
}

/// The figure of the line that begins with this name.
fn figure(said: &str, name: &str) -> u64 {
    let line = said.lines().find(|line| line.trim_start().starts_with(name));
    let line = line.unwrap_or_else(|| panic!("no line `{name}` in {said}"));
    let digits: String = line.chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("no figure in `{line}`"))
}

#[test]
fn every_frame_of_a_capture_is_short_or_long() {
    let words = ["run", "sizes", "--lane", "pcap", "--on", CAPTURE, "--below", "100"];
    let (code, said) = run(&words);
    assert_eq!(code, Some(0), "{said}");
    let (seen, short, long) =
        (figure(&said, "frames seen"), figure(&said, "short"), figure(&said, "long"));
    assert!(seen > 0 && seen == short + long, "{said}");
    let (_, all) = run(&[&words[..7], &["100000"]].concat());
    assert_eq!((figure(&all, "short"), figure(&all, "long")), (seen, 0), "{all}");
}

#[test]
fn it_is_a_verb_beside_those_of_the_program_and_explains_itself() {
    let (code, said) = run(&["run", "sizes", "--help"]);
    assert_eq!(code, Some(0));
    for word in ["--below", "--lane", "--workers", "--trace"] {
        assert!(said.contains(word), "{said}");
    }
    let (code, said) = run(&["run", "sizes", "--lane", "socket", "--on", "lo"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("use packet, uring or afxdp"), "{said}");
    let (_, said) = run(&["run", "--help"]);
    assert!(said.contains("sizes") && said.contains("echo"), "{said}");
}

#[test]
fn its_scenario_can_be_raced() {
    // The scenario, its app and the arguments of its arms are checked before a variant is looked for.
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/race.toml");
    let (code, said) = run(&["race", scenario, "--variant", "other"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("a variant is other"), "{said}");
}
