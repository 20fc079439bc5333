//! Repository chores, called by the Makefile and `.ci/run`: `cargo xtask <verb>`.
//!
//! Assumes a checkout of this repository with `cargo` and `git` on the path, and nothing else: this
//! crate must build on a machine where clang and libelf are still missing, because `install` is
//! what brings them. It changes nothing in the repository. It does not build, test or race: those
//! verbs are the Makefile's.
//!
//! Exit codes: 0 done, 1 the tree breaks a rule of the house, 2 bad usage or something is missing.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "what a chore prints is its result")]

mod install;
mod source;
mod tidy;
mod tree;
mod workspace;

use std::fmt;
use std::process::ExitCode;

const HELP: &str = "\
Repository chores of Laneway.

cargo xtask tidy              check the rules of the house; exit 1 if one is broken
cargo xtask install [GROUP]   install the Debian packages that GROUP needs, as root
cargo xtask list [GROUP]      print those packages and what each is for
cargo xtask testable          print the cargo arguments for what this machine can build

GROUP is --build (the default), --race (and what building needs), --test (and what racing needs) or --vm (all).

Example: cargo xtask install --test
";

/// A chore that could not be done: what happened, with which value, and what to try.
#[derive(Debug)]
pub(crate) struct Trouble(pub(crate) String);

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Trouble {}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        ["tidy"] => run_tidy(),
        ["install", flags @ ..] => install::groups(flags).and_then(|groups| {
            install::install(&groups)?;
            Ok(ExitCode::SUCCESS)
        }),
        ["list", flags @ ..] => install::groups(flags).map(|groups| {
            print!("{}", install::table(&groups));
            ExitCode::SUCCESS
        }),
        ["testable"] => run_testable(),
        [verb, ..] => {
            Err(Trouble(format!("no chore `{verb}` with these arguments; try `cargo xtask help`")))
        }
    };
    outcome.unwrap_or_else(|trouble| {
        eprintln!("xtask: {trouble}");
        ExitCode::from(2)
    })
}

fn run_tidy() -> Result<ExitCode, Trouble> {
    let workspace = workspace::Workspace::load()?;
    let tree = tree::Tree::load(&workspace.root)?;
    let verbs = tidy::commands::laneway_verbs(&workspace.target_directory);
    if let Err(reason) = &verbs {
        println!("tidy: skipped: `laneway` commands in README.md: {reason}");
    }
    let commits = tidy::commits::bound(&workspace.root).unwrap_or_else(|reason| {
        println!("tidy: skipped: subjects of commits: {reason}");
        Vec::new()
    });
    let violations = tidy::check(&tree, &workspace.members, verbs.ok().as_ref(), &commits);
    for violation in &violations {
        println!("{violation}");
    }
    println!(
        "tidy: {} files, {} crates, {} violations",
        tree.paths().count(),
        workspace.members.len(),
        violations.len()
    );
    Ok(if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn run_testable() -> Result<ExitCode, Trouble> {
    let missing = install::missing(&[install::Group::Build]);
    let members = workspace::Workspace::load()?.members;
    let (testable, left_out) = match missing {
        // A machine without dpkg may well have the tools: let the build itself find out.
        None => (members.iter().map(|m| m.name.as_str()).collect(), Vec::new()),
        Some(missing) if missing.is_empty() => {
            (members.iter().map(|m| m.name.as_str()).collect(), Vec::new())
        }
        Some(_) => workspace::split_by_need(&members, install::NEED_BUILD_PACKAGES),
    };
    if left_out.is_empty() {
        println!("--workspace");
    } else {
        eprintln!(
            "xtask: skipped: {} (they need the packages named by `cargo xtask list --build`)",
            left_out.join(", ")
        );
        let arguments: Vec<String> = testable.iter().map(|name| format!("-p {name}")).collect();
        println!("{}", arguments.join(" "));
    }
    Ok(ExitCode::SUCCESS)
}
