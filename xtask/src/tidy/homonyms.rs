//! No type name for different things: a word of the glossary names one type, and no name is worn by many.
//!
//! Textual: what `struct`, `enum`, `trait` and `union` declare in product code. A word of [`GLOSSARY`] may name a type
//! in the folders of its row alone. Any other name may stand [`SAME_NAME_MAX`] times in the tree; those that stand more
//! often have a ceiling in [`OFTEN`], which only falls.

use super::Violation;
use super::product::products;
use crate::source::identifiers;
use crate::tree::Tree;
use std::collections::BTreeMap;

/// So many types of the tree may have the same name.
const SAME_NAME_MAX: usize = 5;
/// A ceiling may be so far above the count, so that two branches can land.
const SLACK: usize = 2;

/// Words of the glossary (ARCHITECTURE.md) and the folders whose type of this name is that word.
const GLOSSARY: Glossary = &[
    ("App", &["crates/core/"]),
    ("Arm", &["lab/src/"]),
    ("Burst", &["crates/core/"]),
    ("Frame", &["crates/core/"]),
    ("Lane", &["crates/core/"]),
    // Every one balances what was offered.
    ("Ledger", &["lab/src/", "apps/features/", "trace/src/"]),
    ("Place", &["crates/kinds/src/app.rs"]),
    ("Port", &["lanes/", "crates/stack/", "examples/"]),
    ("Scenario", &["lab/src/"]),
    // Of an app on a frame, and of a race on a comparison.
    ("Verdict", &["crates/core/", "lab/stats/", "crates/stats/"]),
    ("Worker", &["crates/engine/"]),
];

/// Names that more types have: each a word whose meaning its module gives, and no more of them than this.
const OFTEN: &[(&str, usize)] = &[
    ("Answer", 7),
    ("Change", 8),
    ("Clock", 7),
    ("Config", 8),
    ("Entry", 10),
    ("Exit", 7),
    ("Fate", 7),
    ("Holder", 7),
    ("Kind", 15),
    ("Line", 7),
    ("Member", 7),
    ("Options", 8),
    ("Order", 7),
    ("Out", 7),
    ("Output", 8),
    ("Part", 10),
    ("Plan", 8),
    ("Record", 7),
    ("Row", 8),
    ("Rule", 7),
    ("Shape", 9),
    ("Shared", 15),
    ("Source", 9),
    ("State", 16),
    ("Step", 7),
    ("Table", 9),
];

/// Words, and the folders where each is at home.
type Glossary = &'static [(&'static str, &'static [&'static str])];
/// A type: the file and line of its declaration.
type Declared<'a> = (&'a str, usize);

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    judge(tree, GLOSSARY, OFTEN)
}

fn judge(tree: &Tree, glossary: Glossary, often: &[(&str, usize)]) -> Vec<Violation> {
    let mut types: BTreeMap<String, Vec<Declared<'_>>> = BTreeMap::new();
    for (path, product) in products(tree) {
        for (number, line, _) in &product.lines {
            if let Some(name) = declared(&line.code) {
                types.entry(name.to_owned()).or_default().push((path, *number));
            }
        }
    }
    let mut violations = Vec::new();
    for (name, places) in &types {
        if let Some((_, homes)) = glossary.iter().find(|(word, _)| word == name) {
            let is_home = |path: &str| homes.iter().any(|home| path.starts_with(home));
            let elsewhere = places.iter().filter(|(path, _)| !is_home(path));
            violations.extend(elsewhere.map(|(path, number)| {
                let what = format!(
                    "type `{name}` is a word of the glossary and means something else here; name what it is"
                );
                Violation::new(path, *number, "homonym", what)
            }));
            continue;
        }
        let ceiling = often.iter().find(|(often, _)| often == name).map(|(_, ceiling)| *ceiling);
        let (count, max) = (places.len(), ceiling.unwrap_or(SAME_NAME_MAX));
        if count > max {
            violations.extend(places.iter().map(|(path, number)| {
                let what = format!(
                    "{count} types are called `{name}`, at most {max}; name what this one is"
                );
                Violation::new(path, *number, "homonym", what)
            }));
        }
    }
    for (name, ceiling) in often {
        let count = types.get(*name).map_or(0, Vec::len);
        if count + SLACK < *ceiling {
            let what = format!(
                "{count} types are called `{name}`; lower the ceiling of {ceiling} or delete the row"
            );
            violations.push(Violation::new("xtask/src/tidy/homonyms.rs", 1, "homonym", what));
        }
    }
    violations
}

/// The name of the type that a line declares, at any depth but inside a function's one-liner.
fn declared(code: &str) -> Option<&str> {
    let mut words = identifiers(code.trim_start())
        .skip_while(|word| matches!(*word, "pub" | "crate" | "super" | "in"));
    matches!(words.next()?, "struct" | "enum" | "trait" | "union").then(|| words.next()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations(files: &[(&str, &str)]) -> Vec<String> {
        let often = &[("State", 2 + SLACK)];
        let found = judge(&Tree::of(files), &[("Lane", &["crates/core/"])], often);
        found
            .into_iter()
            .map(|violation| format!("{}:{}", violation.path, violation.line))
            .collect()
    }

    const STATES: (&str, &str) = ("lab/src/s.rs", "struct State;\nmod a {\n    enum State {}\n}\n");

    #[test]
    fn a_word_of_the_glossary_names_its_own_type_alone() {
        let core = ("crates/core/src/lane.rs", "pub trait Lane {}\n");
        assert_eq!(violations(&[core, STATES]), [""; 0]);
        assert_eq!(
            violations(&[
                core,
                STATES,
                ("trace/src/m.rs", "// struct Lane\npub(crate) struct Lane {\n")
            ]),
            ["trace/src/m.rs:2"]
        );
        assert_eq!(
            violations(&[STATES, ("lab/tests/m.rs", "struct Lane;\n")]),
            [""; 0],
            "tests are no product"
        );
    }

    #[test]
    fn a_name_is_worn_so_often_and_a_ceiling_only_falls() {
        let worn = "struct Sent;\n".repeat(SAME_NAME_MAX);
        assert_eq!(violations(&[STATES, ("lab/src/a.rs", &worn)]), [""; 0]);
        let again = ("lab/src/b.rs", "enum Sent {}\n");
        let more = violations(&[STATES, ("lab/src/a.rs", &worn), again]);
        assert_eq!(more.len(), SAME_NAME_MAX + 1, "{more:?}");
        let states = "struct State;\n".repeat(3 + SLACK);
        assert_eq!(violations(&[("lab/src/s.rs", &states)]).len(), 3 + SLACK);
        let lower = "xtask/src/tidy/homonyms.rs:1";
        assert_eq!(violations(&[("lab/src/s.rs", "struct State;\n")]), [lower]);
    }

    #[test]
    fn a_module_that_only_tests_have_declares_nothing() {
        let files = [
            ("lab/src/lib.rs", "#[cfg(test)]\nmod made;\n"),
            ("lab/src/made.rs", "struct Lane;\n"),
        ];
        assert_eq!(violations(&[STATES, files[0], files[1]]), [""; 0]);
    }
}
