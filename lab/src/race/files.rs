//! The files of a race.
//!
//! Trials have one each as soon as they have ended, `trials/000.json` and so on; behind the last there is
//! `result.json`, and `report.html` and `report.md` are made from that, then or later. What must always hold: the files
//! of these names are of one race. What else is in the folder is left as it is.

use crate::error::RaceError;
use crate::result::RaceResult;
use crate::trial::Trial;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

const TRIALS: &str = "trials";
const RESULT: &str = "result.json";
const REPORTS: [&str; 2] = ["report.html", "report.md"];

/// Makes the folders of a race that is about to measure, without the files that an earlier one left there: it may have
/// had more trials, and this one may come to no result.
pub(super) fn begin(out: &Path) -> Result<(), RaceError> {
    let trials = out.join(TRIALS);
    fs::create_dir_all(&trials).map_err(write_error(&trials))?;
    for name in [RESULT].into_iter().chain(REPORTS) {
        remove(&out.join(name))?;
    }
    for entry in fs::read_dir(&trials).map_err(write_error(&trials))?.flatten() {
        if entry.file_name().to_str().is_some_and(is_of_trial) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Whether a trial has a file of this name: its number in three digits, or as many as it takes.
fn is_of_trial(name: &str) -> bool {
    let number = name.strip_suffix(".json").and_then(|number| number.parse().ok());
    number.is_some_and(|number| trial_name(number) == name)
}

fn trial_name(number: usize) -> String {
    format!("{number:03}.json")
}

/// Removes a file, if there is one. A folder of its name is none of ours.
fn remove(path: &Path) -> Result<(), RaceError> {
    if path.is_dir() {
        return Ok(());
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(write_error(path)(error)),
        _ => Ok(()),
    }
}

/// Writes the trials of a generation, the first of which has this number.
pub(super) fn write_trials(trials: &[Trial], first: usize, out: &Path) -> Result<(), RaceError> {
    for (trial, number) in trials.iter().zip(first..) {
        write_json(&out.join(TRIALS).join(trial_name(number)), trial)?;
    }
    Ok(())
}

pub(crate) fn write_error(path: &Path) -> impl Fn(std::io::Error) -> RaceError + '_ {
    |source| RaceError::Write { path: path.display().to_string(), source }
}

pub(crate) fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<(), RaceError> {
    let text = serde_json::to_string(value).expect("results are plain data");
    write_file(path, &text)
}

/// Writes the result and everything made from it.
pub(super) fn write_result(result: &RaceResult, out: &Path) -> Result<(), RaceError> {
    let text = serde_json::to_string_pretty(result).expect("results are plain data");
    write_file(&out.join(RESULT), &text)?;
    write_report(result, out)
}

/// Writes `report.html` and `report.md` of a result into `out`.
///
/// # Errors
/// [`RaceError::Write`].
pub fn write_report(result: &RaceResult, out: &Path) -> Result<(), RaceError> {
    let [html, markdown] = REPORTS.map(|name| out.join(name));
    write_file(&html, &crate::report::html(result))?;
    write_file(&markdown, &crate::report::markdown(result))
}

/// A file appears whole or not at all.
pub(super) fn write_file(path: &Path, text: &str) -> Result<(), RaceError> {
    let mut partial = PathBuf::from(path).into_os_string();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    fs::write(&partial, text).map_err(write_error(&partial))?;
    fs::rename(&partial, path).map_err(write_error(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report;

    /// A folder of its own, removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let id = std::process::id();
            Folder(std::env::temp_dir().join(format!("laneway-race-{name}-{id}")))
        }

        /// All that is in it, by its path there; folders left out.
        fn files(&self) -> Vec<String> {
            let mut found = Vec::new();
            let mut folders = vec![self.0.clone()];
            while let Some(folder) = folders.pop() {
                for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                    match path.is_dir() {
                        true => folders.push(path),
                        false => {
                            let name = path.strip_prefix(&self.0).unwrap();
                            found.push(name.display().to_string());
                        }
                    }
                }
            }
            found.sort();
            found
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// A race of so many trials, which comes to a result or not.
    fn race(out: &Path, trials: usize, ends: bool) {
        begin(out).unwrap();
        let trials: Vec<Trial> =
            (0..trials).map(|generation| Trial::empty(0, generation)).collect();
        write_trials(&trials, 0, out).unwrap();
        if ends {
            write_result(&report::example(), out).unwrap();
        }
    }

    #[test]
    fn what_an_earlier_race_left_is_gone_before_the_next_one_measures() {
        let folder = Folder::new("files");
        race(&folder.0, 1_001, true);
        assert_eq!(folder.files().len(), 1_004);
        race(&folder.0, 2, true);
        let whole =
            ["report.html", "report.md", "result.json", "trials/000.json", "trials/001.json"];
        assert_eq!(folder.files(), whole);
        // Something failed behind the first trial.
        race(&folder.0, 1, false);
        assert_eq!(folder.files(), ["trials/000.json"]);
    }

    #[test]
    fn what_no_race_writes_is_kept() {
        let folder = Folder::new("kept");
        let users = [
            "idle.json",
            "report.pdf",
            "result.json.old",
            "scenario.toml",
            "traces/tap.html",
            "trials/+01.json",
            "trials/0000.json",
            "trials/01.json",
            "trials/1.json",
            "trials/best.json",
            "trials/000.txt",
            "trials/000.json.gz",
            "trials/002.json/notes",
        ];
        for name in users {
            let path = folder.0.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "mine").unwrap();
        }
        let before = folder.files();
        begin(&folder.0).unwrap();
        assert_eq!(folder.files(), before);
        assert_eq!(before.len(), users.len());
    }
}
