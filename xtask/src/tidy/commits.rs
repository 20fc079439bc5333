//! Subjects of commits: `area: what is now true`, in the imperative, short enough for every log.
//!
//! Checked are commits behind [`SINCE`], where the rule begins, merges left out. The imperative is checked as far as a
//! machine can: a first word in the past or in `-ing` is none. Without git's history (a shallow clone, an
//! archive) nothing is checked.

use super::Violation;
use std::path::Path;
use std::process::Command;

/// The last commit that the rule did not bind.
const SINCE: &str = "a6fb1606606205d7a735e86c48aeb320c1c1dd82";
const SUBJECT_CHARACTERS_MAX: usize = 72;
/// Words in `-ed` and `-ing` that are imperatives all the same.
const IMPERATIVES: &[&str] = &["seed", "bring", "embed", "feed", "need", "ping", "shed", "speed"];

/// A commit, as `git log` names it.
#[derive(Debug)]
pub(crate) struct Commit {
    hash: String,
    subject: String,
}

/// The commits that the rule binds; none, with the reason, where git does not tell.
pub(crate) fn bound(root: &Path) -> Result<Vec<Commit>, String> {
    let output = Command::new("git")
        .args(["log", "--no-merges", "--format=%h %s", &format!("{SINCE}..HEAD")])
        .current_dir(root)
        .output()
        .map_err(|why| format!("git log did not start: {why}"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(why.lines().next().unwrap_or("git log failed").trim().to_owned());
    }
    let lines = String::from_utf8_lossy(&output.stdout);
    let commit = |line: &str| {
        let (hash, subject) = line.split_once(' ')?;
        Some(Commit { hash: hash.to_owned(), subject: subject.to_owned() })
    };
    Ok(lines.lines().filter_map(commit).collect())
}

pub(super) fn check(commits: &[Commit]) -> Vec<Violation> {
    let wrong = |commit: &Commit| {
        Some(Violation::new(&commit.hash, 1, "commit", problem(&commit.subject)?))
    };
    commits.iter().filter_map(wrong).collect()
}

fn problem(subject: &str) -> Option<String> {
    let length = subject.chars().count();
    if length > SUBJECT_CHARACTERS_MAX {
        return Some(format!(
            "the subject has {length} characters, at most {SUBJECT_CHARACTERS_MAX} fit a log; move the rest to the body"
        ));
    }
    let Some((_, what)) = subject.split_once(": ") else {
        return Some(format!("`{subject}` names no area; write `area: what is now true`"));
    };
    let first = what.split_whitespace().next().unwrap_or_default().to_lowercase();
    let is_other_mood =
        (first.ends_with("ed") || first.ends_with("ing")) && !IMPERATIVES.contains(&first.as_str());
    is_other_mood.then(|| {
        format!(
            "`{first}` is not an imperative; say what the commit does: `add`, `count`, `refuse`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_area_and_an_imperative_that_fit_are_a_subject() {
        for good in [
            "trace: know a switch before it is recorded",
            "lab, cli: ping on port 7",
            "resp: feed it bytes",
        ] {
            assert_eq!(problem(good), None);
        }
    }

    #[test]
    fn what_is_wrong_with_a_subject_is_reported() {
        for (subject, word) in [
            ("stack: added a test", "`added`"),
            ("stack: fixing the clock", "`fixing`"),
            ("Fix the clock", "no area"),
            (&format!("stack: {}", "x".repeat(72)), "79 characters"),
        ] {
            let why = problem(subject).unwrap_or_default();
            assert!(why.contains(word), "{subject}: {why}");
        }
    }
}
