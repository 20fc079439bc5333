//! What every crate's manifest and root file must say, and where `unsafe` may be written.

use super::{Violation, numbered};
use crate::source::identifiers;
use crate::tree::{Tree, is_below, kind};
use crate::workspace::Member;

/// The only places where `unsafe` may be written; all other crates forbid it at their root.
const UNSAFE_FENCE: &[&str] = &["lanes", "crates/bpf", "crates/core/src/frame.rs", "python"];

/// The roots of a crate, where the attribute stands.
const ROOTS: &[&str] = &["src/lib.rs", "src/main.rs"];

const FORBID: &str = "#![forbid(unsafe_code)]";

pub(super) fn check(tree: &Tree, members: &[Member]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for member in members {
        check_manifest(tree, member, &mut violations);
        check_roots(tree, member, &mut violations);
    }
    for path in tree.paths().filter(|path| kind(path) == "rs") {
        if UNSAFE_FENCE.iter().any(|place| path == *place || is_below(path, place)) {
            continue;
        }
        for (number, line) in numbered(tree.lines(path).iter()) {
            if identifiers(&line.code).any(|word| word == "unsafe") {
                violations.push(Violation::new(
                    path,
                    number,
                    "unsafe",
                    format!(
                        "`unsafe` outside {}; move the operation into one of them \
                         behind a safe function",
                        UNSAFE_FENCE.join(", ")
                    ),
                ));
            }
        }
    }
    violations
}

fn check_manifest(tree: &Tree, member: &Member, violations: &mut Vec<Violation>) {
    let path = format!("{}/Cargo.toml", member.folder);
    let text = tree.text(&path).unwrap_or_default();
    if value(text, "lints", "workspace") != Some("true") {
        let what = "the crate sets its own lints; add `[lints]` with `workspace = true`";
        violations.push(Violation::new(&path, 1, "manifest", what));
    }
    let described =
        value(text, "package", "description").is_some_and(|d| !d.trim_matches('"').is_empty());
    if !described {
        let what = "no description; add one sentence that a stranger understands";
        violations.push(Violation::new(&path, 1, "manifest", what));
    }
}

fn check_roots(tree: &Tree, member: &Member, violations: &mut Vec<Violation>) {
    let fenced = |place: &&str| {
        member.folder == *place
            || is_below(&member.folder, place)
            || is_below(place, &member.folder)
    };
    if UNSAFE_FENCE.iter().any(fenced) {
        return;
    }
    for root in ROOTS.iter().map(|root| format!("{}/{root}", member.folder)) {
        if !tree.has_file(&root) {
            continue;
        }
        if !tree.lines(&root).iter().any(|line| line.code.trim() == FORBID) {
            let what = format!("the crate does not rule out unsafe code; add `{FORBID}`");
            violations.push(Violation::new(&root, 1, "unsafe", what));
        }
    }
}

/// The text after `key =` in `[section]` of a manifest; enough TOML for the keys asked for here.
fn value<'a>(manifest: &'a str, section: &str, key: &str) -> Option<&'a str> {
    let mut current = "";
    for line in manifest.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            current = name;
        } else if current == section
            && let Some((name, value)) = line.split_once('=')
            && name.trim() == key
        {
            return Some(value.trim());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::member_of;

    const MANIFEST: &str = "[package]\ndescription = \"D.\"\n[lints]\nworkspace = true\n";

    fn rules(folder: &str, files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<(String, &str)> =
            files.iter().map(|(path, text)| (format!("{folder}/{path}"), *text)).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), *t)).collect();
        let members = [member_of("a", folder, &[])];
        check(&Tree::of(&files), &members).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_crate_in_order_is_silent() {
        let root = "//! Why.\n#![forbid(unsafe_code)]\n// unsafe in a comment, \nconst A: &str = \"unsafe\";\n";
        assert!(rules("crates/flow", &[("Cargo.toml", MANIFEST), ("src/lib.rs", root)]).is_empty());
    }

    #[test]
    fn lints_and_description_are_demanded() {
        let bare = "[package]\nname = \"a\"\n[dependencies]\nworkspace = true\n";
        assert_eq!(rules("lanes/a", &[("Cargo.toml", bare)]).len(), 2);
    }

    #[test]
    fn outside_the_fence_the_root_forbids_unsafe() {
        let found = rules("apps/a", &[("Cargo.toml", MANIFEST), ("src/lib.rs", "//! Why.\n")]);
        assert!(found[0].starts_with("apps/a/src/lib.rs:1: unsafe:"), "{found:?}");
        assert!(rules("lanes/a", &[("Cargo.toml", MANIFEST), ("src/lib.rs", "")]).is_empty());
    }

    #[test]
    fn in_core_only_the_frame_may_be_unsafe() {
        let code = "fn f() { unsafe { g() } }\n";
        let manifest = ("Cargo.toml", MANIFEST);
        assert!(rules("crates/core", &[manifest, ("src/frame.rs", code)]).is_empty());
        assert_eq!(rules("crates/core", &[manifest, ("src/burst.rs", code)]).len(), 1);
        assert_eq!(rules("crates/core", &[manifest, ("tests/frame.rs", code)]).len(), 1);
    }
}
