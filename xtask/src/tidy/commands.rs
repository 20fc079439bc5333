//! Every command that README.md tells a reader to type exists.
//!
//! Checks lines of ```` ```sh ```` blocks that begin with `laneway`, `make` or `cargo` (after `$`,
//! `sudo` and settings such as `PCAP=x`): targets against the Makefile, `-p` names against the
//! members, verbs against what the built `laneway --help` lists. Runs none of them.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::{Violation, prose};
use crate::tree::Tree;
use crate::workspace::Member;

/// Cargo's own verbs that a README may name, and our alias.
const CARGO_VERBS: &[&str] =
    &["bench", "build", "clippy", "deny", "doc", "fmt", "fuzz", "install", "run", "test", "xtask"];

/// The chores of this program.
const CHORES: &[&str] = &["help", "install", "list", "testable", "tidy"];

pub(super) fn check(
    tree: &Tree,
    members: &[Member],
    laneway_verbs: Option<&BTreeSet<String>>,
) -> Vec<Violation> {
    let targets = make_targets(tree.text("Makefile").unwrap_or_default());
    let mut violations = Vec::new();
    let readme = tree.text("README.md").unwrap_or_default();
    for line in prose::lines(readme).iter().filter(|line| line.fence == Some("sh")) {
        let command = line.text.split(" #").next().unwrap_or_default();
        let words: Vec<&str> = command
            .split_whitespace()
            .skip_while(|word| matches!(*word, "$" | "sudo") || word.contains('='))
            .collect();
        let what = match words.as_slice() {
            ["make", words @ ..] => unknown_target(words, &targets),
            ["cargo", words @ ..] => unknown_cargo(words, members),
            [program, verb, ..] if program.rsplit('/').next() == Some("laneway") => laneway_verbs
                .filter(|known| !verb.starts_with('-') && !known.contains(*verb))
                .map(|_| format!("`laneway {verb}`: `laneway --help` lists no such verb")),
            _ => None,
        };
        violations.extend(what.map(|what| {
            let what = format!("{what}; correct the README or make the command exist");
            Violation::new("README.md", line.number, "command", what)
        }));
    }
    violations
}

fn unknown_target(words: &[&str], targets: &BTreeSet<&str>) -> Option<String> {
    let mut named = words.iter().filter(|word| !word.starts_with('-') && !word.contains('='));
    let target = named.find(|word| !targets.contains(**word))?;
    Some(format!("`make {target}`: the Makefile has no such target"))
}

fn unknown_cargo(words: &[&str], members: &[Member]) -> Option<String> {
    let verb = words.first()?;
    if !CARGO_VERBS.contains(verb) {
        return Some(format!("`cargo {verb}`: no cargo verb that this repository uses"));
    }
    if *verb == "xtask" {
        let chore = words.get(1).copied().unwrap_or("help");
        return (!CHORES.contains(&chore)).then(|| format!("`cargo xtask {chore}`: no such chore"));
    }
    let package = words.windows(2).find(|pair| matches!(pair[0], "-p" | "--package"))?[1];
    let known = members.iter().any(|member| member.name == package);
    (!known).then(|| format!("`-p {package}`: no such crate in the workspace"))
}

fn make_targets(makefile: &str) -> BTreeSet<&str> {
    let names = makefile.lines().filter_map(|line| {
        let (names, rest) = line.split_once(':')?;
        let is_rule = !rest.starts_with('=') && !names.starts_with(['\t', '#', '.', ' ']);
        is_rule.then_some(names)
    });
    names.flat_map(str::split_whitespace).collect()
}

/// The verbs that the newest built `laneway` lists, or why they cannot be known.
pub(crate) fn laneway_verbs(target_directory: &Path) -> Result<BTreeSet<String>, String> {
    let newest = ["release", "debug"]
        .iter()
        .map(|profile| target_directory.join(profile).join("laneway"))
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .max();
    let Some((_, binary)) = newest else {
        return Err(format!(
            "no laneway in {}; build it first: cargo build -p laneway-cli",
            target_directory.display()
        ));
    };
    let output = Command::new(&binary)
        .arg("--help")
        .output()
        .map_err(|e| format!("{} --help did not start: {e}", binary.display()))?;
    let verbs = listed_verbs(&String::from_utf8_lossy(&output.stdout));
    if verbs.is_empty() {
        return Err(format!("{} --help lists no commands", binary.display()));
    }
    Ok(verbs)
}

/// The first words of the indented lines below `Commands:`.
fn listed_verbs(help: &str) -> BTreeSet<String> {
    let below = help.lines().skip_while(|line| line.trim() != "Commands:").skip(1);
    let entries = below.take_while(|line| line.starts_with(' ') || line.is_empty());
    let indent = |line: &str| line.len() - line.trim_start().len();
    let entries: Vec<&str> = entries.filter(|line| !line.is_empty()).collect();
    let margin = entries.iter().map(|line| indent(line)).min().unwrap_or(0);
    // A deeper line continues the description above it.
    let names = entries.iter().filter(|line| indent(line) == margin);
    names.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::member_of;

    fn found(line: &str) -> Vec<String> {
        let readme = format!("`make no`\n```sh\n{line}\n```\n```text\nmake no\n```\n");
        let makefile = ".PHONY: race\nOUT := x\nrace test: build ## r\n\ttool: x\nbuild:\n";
        let tree = Tree::of(&[("README.md", &readme), ("Makefile", makefile)]);
        let verbs = BTreeSet::from(["race".to_owned(), "features".to_owned()]);
        let members = [member_of("laneway-cli", "cli", &[])];
        check(&tree, &members, Some(&verbs)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn commands_that_exist_are_silent() {
        for line in [
            "make race PCAP=a.pcap   # two minutes",
            "$ sudo make -j2 test build",
            "cargo xtask tidy",
            "cargo test -p laneway-cli",
            "sudo target/release/laneway race features --quick",
            "laneway --version",
            "ls",
        ] {
            assert_eq!(found(line), Vec::<String>::new(), "{line}");
        }
    }

    #[test]
    fn commands_that_do_not_exist_are_named() {
        for line in [
            "make tool",
            "make OUT",
            "cargo xtask polish",
            "cargo nextest run",
            "cargo run -p laneway",
            "laneway fly",
            "PCAP=a sudo laneway fly",
        ] {
            let found = found(line);
            assert_eq!(found.len(), 1, "{line}: {found:?}");
            assert!(found[0].starts_with("README.md:3: command: "), "{found:?}");
        }
    }

    #[test]
    fn verbs_are_read_from_the_help_of_the_binary() {
        let help = "Usage: laneway\n\nCommands:\n  race      Run arms\n            against each other\n  \
                    features  Extract\n\nOptions:\n  -h, --help\n";
        assert_eq!(listed_verbs(help), BTreeSet::from(["race".into(), "features".into()]));
    }

    #[test]
    fn without_a_binary_the_reason_is_reported() {
        let reason = laneway_verbs(Path::new("/nonexistent")).expect_err("nothing is built there");
        assert!(reason.contains("cargo build"), "{reason}");
    }
}
