//! The rules of the house that a machine can check, over the tree and the crates' edges.
//!
//! Each rule is a module with its table at the top: change the table, not the code. A violation
//! says what is wrong and what to do. Rules prefer silence to a false alarm; they replace no
//! reviewer.

mod arrows;
mod circles;
mod cited;
pub(crate) mod commands;
pub(crate) mod commits;
mod crates;
mod files;
mod homonyms;
mod links;
mod marks;
mod modules;
mod plain;
mod product;
mod prose;
mod rows;
mod vocabulary;
mod widths;

use std::collections::BTreeSet;
use std::fmt;

use crate::tree::Tree;
use crate::workspace::Member;

/// One broken rule, at one place.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    path: String,
    /// From 1; 1 also stands for the file as a whole.
    line: usize,
    rule: &'static str,
    /// What is wrong, and what to do.
    what: String,
}

impl Violation {
    fn new(path: &str, line: usize, rule: &'static str, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, rule, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.what)
    }
}

/// Every violation in the tree, by path and line.
///
/// `laneway_verbs` are the subcommands of a built binary; without them the README's `laneway` lines
/// are not checked. `commits` are those whose subjects are held to the rule.
pub(crate) fn check(
    tree: &Tree,
    members: &[Member],
    laneway_verbs: Option<&BTreeSet<String>>,
    commits: &[commits::Commit],
) -> Vec<Violation> {
    let mut violations = Vec::new();
    violations.extend(arrows::check(tree, members));
    violations.extend(circles::check(tree, members));
    violations.extend(cited::check(tree));
    violations.extend(commits::check(commits));
    violations.extend(crates::check(tree, members));
    violations.extend(files::check(tree));
    violations.extend(homonyms::check(tree));
    violations.extend(links::check(tree));
    violations.extend(commands::check(tree, members, laneway_verbs));
    violations.extend(marks::check(tree));
    violations.extend(modules::check(tree, members));
    violations.extend(plain::check(tree));
    violations.extend(rows::check(tree));
    violations.extend(vocabulary::check(tree));
    violations.extend(widths::check(tree));
    violations.sort();
    violations.dedup();
    violations
}

/// Numbered from 1, as editors do.
fn numbered<T>(lines: impl Iterator<Item = T>) -> impl Iterator<Item = (usize, T)> {
    lines.enumerate().map(|(index, line)| (index + 1, line))
}
