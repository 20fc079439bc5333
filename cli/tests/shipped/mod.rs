//! Races of the shipped scenarios, changed for tests.

use std::fs;
use std::path::Path;
use std::process::Command;

/// A race of the shipped scenario `name`, less patient with a busy host and with these changes, in
/// `folder`; what its children leave behind is there as well, to be distinguished from what others do.
pub(crate) fn race(folder: &Path, name: &str, changes: &[(&str, &str)]) -> Command {
    let scenarios = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios");
    let mut text = fs::read_to_string(format!("{scenarios}/{name}.toml")).expect("it ships");
    let captures = format!("{scenarios}/captures/");
    let usual = [("late_p99_us_max = 200", "late_p99_us_max = 10_000_000\nothers_max = 1_000.0")];
    for (theirs, ours) in usual.iter().chain(changes) {
        assert!(text.contains(theirs), "the scenario has no {theirs}");
        text = text.replace(theirs, ours);
    }
    let scenario = folder.join("scenario.toml");
    fs::write(&scenario, text.replace("captures/", &captures)).expect("writable");
    let mut command = Command::new(env!("CARGO_BIN_EXE_laneway"));
    command.arg("race").arg(&scenario).arg("--out").arg(folder).env("TMPDIR", folder);
    command
}
