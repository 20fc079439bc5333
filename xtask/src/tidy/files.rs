//! What every file must look like, and which files must exist.

use super::{Violation, numbered};
use crate::tree::{Tree, kind};

/// Documents a stranger looks for at the root.
const ROOT_DOCUMENTS: &[(&str, &str)] = &[
    ("README.md", "what this is and the first two commands"),
    ("ARCHITECTURE.md", "one picture, the words, the invariants, where a line goes"),
    ("CONTRIBUTING.md", "verbs, style, order of proof"),
    ("CHANGELOG.md", "what changed for a user"),
    ("SECURITY.md", "privileges, hostile input, how to report"),
    ("LICENSE-MIT", "the licence text that Cargo.toml names"),
    ("LICENSE-APACHE", "the licence text that Cargo.toml names"),
];

/// Folders whose every subfolder (`x/*`) or which themselves say in a README what they are.
const README_FOLDERS: &[&str] = &["lanes/*", "apps/*", "lab"];

/// Pages of figures, and the heading that each has in front of its notebook. Reports of races and pages made by a verb
/// are figures alone.
const MEASUREMENTS: &str = "docs/measurements/";
const FIGURES: &str = "## What holds today";
const MADE_BY_A_VERB: &[&str] =
    &["README.md", "founding-reports.md", "race-live.md", "race-socket.md"];

/// Kinds of file that are read as ASCII; prose may use more.
const ASCII_KINDS: &[&str] = &["c", "h", "py", "pyi", "toml", "sh", "js", "css", "Makefile", "run"];

/// Kinds that must not hold a tab.
const SPACES_KINDS: &[&str] = &["rs", "py", "toml", "md"];

/// The SPDX line stands within the first lines of a kernel-side program.
const SPDX_LINES_MAX: usize = 3;

/// Texts kept byte for byte as their authors wrote them.
const VERBATIM: &[&str] = &["LICENSE-APACHE", "LICENSE-MIT"];
/// Input of readers, as its writers write it.
const SEEDS: &str = "fuzz/seeds/";

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    let is_ours = |path: &str| !VERBATIM.contains(&path) && !path.starts_with(SEEDS);
    for (path, text) in tree.texts().filter(|(path, _)| is_ours(path)) {
        check_text(path, text, &mut violations);
    }
    for (path, text) in tree.texts().filter(|(path, _)| kind(path) == "md") {
        let page = path.strip_prefix(MEASUREMENTS).filter(|page| !MADE_BY_A_VERB.contains(page));
        if page.is_some() && !text.lines().any(|line| line == FIGURES) {
            let what = format!(
                "no `{FIGURES}`: put the table of the figures that hold in front of the notebook"
            );
            violations.push(Violation::new(path, 1, "document", what));
        }
    }
    for (path, purpose) in ROOT_DOCUMENTS {
        if !tree.has_file(path) {
            let what = format!("missing; write it: {purpose}");
            violations.push(Violation::new(path, 1, "document", what));
        }
    }
    for folder in readme_folders(tree) {
        let path = format!("{folder}/README.md");
        if !tree.has_file(&path) {
            let what = "missing; say what the folder is for, its knobs, privileges and limits";
            violations.push(Violation::new(&path, 1, "document", what));
        }
    }
    violations
}

fn check_text(path: &str, text: &str, violations: &mut Vec<Violation>) {
    let kind = kind(path);
    let mut add =
        |line, rule, what: String| violations.push(Violation::new(path, line, rule, what));
    for (number, line) in numbered(text.split('\n')) {
        if line.ends_with([' ', '\t', '\r']) {
            add(number, "whitespace", "white space at the end of the line; delete it".into());
        }
        if SPACES_KINDS.contains(&kind) && line.contains('\t') {
            add(number, "tab", "a tab; write spaces (cargo fmt does, in code)".into());
        }
        if ASCII_KINDS.contains(&kind)
            && let Some(odd) = line.chars().find(|c| !c.is_ascii())
        {
            let what = format!(
                "`{}` is not ASCII; write it in ASCII or as an escape",
                odd.escape_unicode()
            );
            add(number, "ascii", what);
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        add(text.lines().count(), "final-newline", "the last line does not end; end it".into());
    }
    if is_kernel_side(path)
        && !text.lines().take(SPDX_LINES_MAX).any(|line| line.contains("SPDX-License-Identifier:"))
    {
        let what = "a kernel-side program without its licence; begin with \
                    `// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)`";
        add(1, "spdx", what.into());
    }
}

/// A program of the kernel side, or a header beside one.
fn is_kernel_side(path: &str) -> bool {
    path.ends_with(".bpf.c") || (kind(path) == "h" && path.split('/').any(|folder| folder == "bpf"))
}

fn readme_folders(tree: &Tree) -> Vec<String> {
    let mut folders = Vec::new();
    for pattern in README_FOLDERS {
        let Some(parent) = pattern.strip_suffix("/*") else {
            folders.extend(tree.has_folder(pattern).then(|| pattern.to_string()));
            continue;
        };
        for path in tree.paths() {
            let Some(rest) = path.strip_prefix(parent).and_then(|rest| rest.strip_prefix('/'))
            else {
                continue;
            };
            if let Some((name, _)) = rest.split_once('/') {
                folders.push(format!("{parent}/{name}"));
            }
        }
    }
    folders.sort();
    folders.dedup();
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<(usize, &'static str)> {
        let mut violations = Vec::new();
        check_text(path, text, &mut violations);
        violations.iter().map(|v| (v.line, v.rule)).collect()
    }

    #[test]
    fn blank_ends_tabs_and_missing_ends_are_found() {
        assert_eq!(rules("a.rs", "fn a() {}\n"), []);
        assert_eq!(rules("a.rs", "a \n\tb"), [(1, "whitespace"), (2, "tab"), (2, "final-newline")]);
        assert_eq!(rules("a.c", "\tb\n"), [], "the kernel's style indents C by tabs");
    }

    #[test]
    fn prose_may_leave_ascii_and_source_may_not() {
        assert_eq!(rules("a.md", "\u{2192}\n"), []);
        assert_eq!(rules("a.h", "// \u{2192}\n"), [(1, "ascii")]);
    }

    #[test]
    fn a_kernel_side_program_names_its_licence() {
        assert_eq!(rules("a.bpf.c", "int x;\n"), [(1, "spdx")]);
        assert_eq!(rules("a.bpf.c", "// SPDX-License-Identifier: GPL-2.0-only\n"), []);
        assert_eq!(rules("apps/a/bpf/record.h", "int x;\n"), [(1, "spdx")]);
        assert_eq!(rules("lanes/a/src/shim.h", "int x;\n"), []);
    }

    #[test]
    fn a_page_of_measurements_begins_with_the_figures_that_hold() {
        let missing = |path: &str, text: &str| {
            let found = check(&Tree::of(&[(path, text)]));
            found.iter().filter(|violation| violation.what.contains(FIGURES)).count()
        };
        assert_eq!(missing("docs/measurements/lanes.md", "# A\n## B\n"), 1);
        assert_eq!(missing("docs/measurements/lanes.md", "# A\n\n## What holds today\n"), 0);
        assert_eq!(missing("docs/measurements/race-live.md", "## A\n"), 0);
        assert_eq!(missing("docs/guide/lanes.md", "# A\n"), 0);
    }

    #[test]
    fn documents_and_readmes_are_demanded() {
        let tree =
            Tree::of(&[("lanes/sim/src/lib.rs", "//! A.\n"), ("lanes/sim/README.md", "a\n")]);
        let missing: Vec<String> = check(&tree).into_iter().map(|v| v.path).collect();
        assert_eq!(missing.len(), ROOT_DOCUMENTS.len());
        let tree =
            Tree::of(&[("apps/echo/src/lib.rs", "//! A.\n"), ("lab/src/lib.rs", "//! A.\n")]);
        let missing: Vec<String> = check(&tree).into_iter().map(|v| v.path).collect();
        assert!(missing.contains(&"apps/echo/README.md".to_owned()));
        assert!(missing.contains(&"lab/README.md".to_owned()));
    }
}
