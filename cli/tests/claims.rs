//! Claims, from a scenario to the page of them: what is wrong is refused with its line, what was raced has its row, and
//! the page is the same whenever it is made. Never how fast anything is.

#![expect(clippy::print_stdout, reason = "a skipped test says why")]

mod shipped;
mod turn;

use laneway_lab::result::ClaimStatus;
use std::process::{Command, Output};
use turn::Turn;

fn report(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_laneway"));
    command.arg("report").args(arguments).output().expect("the program starts")
}

fn utf8(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_race_answers_every_sentence_of_its_report_and_a_page_is_made_of_the_answers() {
    let Some(turn) = Turn::new("claims") else { return };
    let mut command = shipped::race(&turn.folder, "features", &[]);
    command.args(["--lane", "packet", "--lane", "xdp", "--load", "2000"]);
    let output =
        command.args(["--generations", "4", "--rounds", "1", "--segment-ms", "100"]).output();
    let output = output.expect("the program starts");
    assert!(output.status.code().is_some_and(|code| code != 2), "{output:?}");
    let printed = utf8(&output.stderr);
    let first = printed.lines().next().unwrap_or_default();
    assert!(
        first.contains(": takes about ") && first.contains("3 arms, the base twice"),
        "{printed}"
    );
    // Four generations in a moment: one line, where none can be rewritten.
    assert_eq!(printed.matches("verdicts decided").count(), 1, "{printed}");
    assert!(!printed.contains('\r') && !printed.contains('\u{1b}'), "{printed}");

    let result = turn.result("");
    let status = |part: &str| {
        let claim = result.claims.iter().find(|claim| claim.says.contains(part));
        claim.unwrap_or_else(|| panic!("no claim says {part}")).status
    };
    assert_eq!(status("119,937 packets"), ClaimStatus::Confirmed);
    assert_eq!(status("822 times"), ClaimStatus::Unanswered, "100,000/s was not offered");
    assert_ne!(status("rate control"), ClaimStatus::Confirmed, "no packet was counted twice");
    assert_ne!(status("0.01 % of CPU"), ClaimStatus::Confirmed);

    let folder = turn.folder.display().to_string();
    let page = report(&["--claims", &folder]);
    assert!(page.status.success(), "{page:?}");
    let text = utf8(&page.stdout);
    assert_eq!(text.lines().filter(|line| line.starts_with("| \"")).count(), result.claims.len());
    for part in [
        "119\\_937 / 59\\_944 = 2.0008",
        "100000/s was not offered in this race",
        "Source: eBPF-Test",
        "--lane packet --lane xdp --load 2000",
        "4 rounds in 4 generations of fresh processes",
        "Placement: ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let file = turn.folder.join("result.json").display().to_string();
    assert_eq!(page.stdout, report(&["--claims", &file]).stdout, "the same bytes from the file");
    let twice = report(&["--claims", &folder, &file]);
    assert_eq!(utf8(&twice.stdout).matches("\n## ").count(), 2);
    let json: serde_json::Value =
        serde_json::from_slice(&report(&["--claims", "--json", &folder]).stdout).expect("JSON");
    assert_eq!(json[0]["claims"].as_array().map(Vec::len), Some(result.claims.len()));

    // The file twice is one race twice: every question has one row.
    let page = utf8(&report(&["--figures", &folder, &file]).stdout);
    assert_eq!(page.matches("| asked | measured").count(), 1, "{page}");
    assert!(page.contains("--lane packet --lane xdp --load 2000"), "{page}");
    let figures: serde_json::Value =
        serde_json::from_slice(&report(&["--figures", "--json", &folder]).stdout).expect("JSON");
    let figures = figures.as_array().expect("a list");
    assert!(!figures.is_empty());
    assert_eq!(page.matches("UTC |").count(), figures.len(), "{page}");
    assert_eq!(report(&["--figures", "--claims", &folder]).status.code(), Some(2));

    let mut silent = result;
    silent.claims.clear();
    std::fs::write(&file, serde_json::to_string(&silent).expect("plain")).expect("writable");
    let refused = report(&["--claims", &file]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(utf8(&refused.stderr).contains("was asked a claim"), "{refused:?}");
}

#[test]
fn a_claim_that_cannot_be_is_refused_with_its_line_before_anything_starts() {
    let folder =
        std::env::temp_dir().join(format!("laneway-refused-claims-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
    let wrong = [
        (
            "arithmetic = { figure = \"119_937 / 59_944\"",
            "arithmetic = { figure = \"119_937 / \"",
            "a number is missing",
        ),
        (
            "load_pps = 2_000, at_least = 3_900",
            "load_pps = 2_500, at_least = 3_900",
            "a load of a claim is 2500",
        ),
        (
            "over = \"packet --drop\", load_pps = 100_000, at_most = 0.00122",
            "over = \"pocket\", load_pps = 100_000, at_most = 0.00122",
            "an arm of a claim is pocket",
        ),
    ];
    for (theirs, ours, part) in wrong {
        let mut command = shipped::race(&folder, "features", &[(theirs, ours)]);
        let output = command.output().expect("the program starts");
        let printed = utf8(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{printed}");
        let text = std::fs::read_to_string(folder.join("scenario.toml")).expect("it was written");
        let change = text.lines().position(|line| line.contains(ours)).expect("it is there");
        let lines: Vec<&str> = text.lines().collect();
        let begin =
            lines[..change].iter().rposition(|line| *line == "[[claim]]").expect("its head");
        assert!(
            printed.contains(part) && printed.contains(&format!("line {}", begin + 1)),
            "{printed}"
        );
    }
    let missing = report(&["--claims", "/no/such/race"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(utf8(&missing.stderr).contains("give the folder of a race"), "{missing:?}");
    // Left-overs in the temporary folder are harmless.
    let _ = std::fs::remove_dir_all(&folder);
}
