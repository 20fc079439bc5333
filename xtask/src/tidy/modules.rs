//! Source files that no `mod` reaches: the compiler never sees them, so nothing else reports them.
//!
//! Textual: follows `mod name;` and `#[path = "..."]` from each crate's roots. Conditional modules
//! count as reached.

use std::collections::BTreeSet;

use super::Violation;
use crate::source::identifiers;
use crate::tree::{Tree, is_below};
use crate::workspace::Member;

pub(super) fn check(tree: &Tree, members: &[Member]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for member in members {
        let sources = format!("{}/src", member.folder);
        let mut waiting = roots(tree, &member.folder);
        let mut reached = BTreeSet::new();
        while let Some(path) = waiting.pop() {
            if reached.insert(path.clone()) {
                waiting.extend(children(tree, &path, &member.folder));
            }
        }
        for path in tree.paths().filter(|path| is_below(path, &sources) && path.ends_with(".rs")) {
            if !reached.contains(path) {
                let what = "no `mod` reaches this file; name it in its parent, or delete it";
                violations.push(Violation::new(path, 1, "dead-file", what));
            }
        }
    }
    violations
}

/// Files that cargo compiles by itself: by convention, and those the manifest names by path.
fn roots(tree: &Tree, folder: &str) -> Vec<String> {
    let mut roots = vec![format!("{folder}/src/lib.rs"), format!("{folder}/src/main.rs")];
    let programs = format!("{folder}/src/bin");
    roots.extend(tree.paths().filter(|path| is_below(path, &programs)).map(str::to_owned));
    let manifest = tree.text(&format!("{folder}/Cargo.toml")).unwrap_or_default();
    roots.extend(
        manifest
            .lines()
            .filter(|line| line.trim_start().starts_with("path"))
            .filter_map(quoted)
            .map(|path| format!("{folder}/{path}")),
    );
    roots
}

fn children(tree: &Tree, path: &str, crate_folder: &str) -> Vec<String> {
    let Some(text) = tree.text(path) else { return Vec::new() };
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = file.trim_end_matches(".rs");
    let in_programs = path.strip_prefix(crate_folder).is_some_and(|p| p.starts_with("/src/bin/"));
    let home = match stem {
        "lib" | "main" | "mod" => folder.to_owned(),
        _ if in_programs => folder.to_owned(),
        _ => format!("{folder}/{stem}"),
    };
    let mut found = Vec::new();
    for (line, raw) in tree.lines(path).iter().zip(text.lines()) {
        if line.code.trim_start().starts_with("#[path") {
            found.extend(quoted(raw).map(|target| format!("{folder}/{target}")));
        }
        let words: Vec<&str> = identifiers(&line.code).collect();
        // A block of test modules declared inline keeps its files below its own name.
        for pair in words.windows(2).filter(|pair| pair[0] == "mod") {
            found.push(format!("{home}/{}.rs", pair[1]));
            found.push(format!("{home}/{}/mod.rs", pair[1]));
        }
    }
    found
}

fn quoted(line: &str) -> Option<&str> {
    line.split('"').nth(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::member_of;

    fn dead(files: &[(&str, &str)]) -> Vec<String> {
        let members = [member_of("a", "lanes/a", &[])];
        check(&Tree::of(files), &members).into_iter().map(|v| v.path).collect()
    }

    #[test]
    fn modules_are_followed_at_every_depth() {
        let files = [
            ("lanes/a/src/lib.rs", "mod ring;\npub mod port;\n"),
            ("lanes/a/src/ring.rs", "mod fill;\n"),
            ("lanes/a/src/ring/fill.rs", ""),
            ("lanes/a/src/port/mod.rs", "#[cfg(test)]\nmod tests;\n"),
            ("lanes/a/src/port/tests.rs", ""),
        ];
        assert!(dead(&files).is_empty());
    }

    #[test]
    fn a_file_that_no_module_names_is_dead() {
        let files = [
            ("lanes/a/src/lib.rs", "// mod old;\nmod ring;\n"),
            ("lanes/a/src/ring.rs", ""),
            ("lanes/a/src/old.rs", ""),
            ("lanes/a/src/fill.rs", ""),
        ];
        assert_eq!(dead(&files), ["lanes/a/src/fill.rs", "lanes/a/src/old.rs"]);
    }

    #[test]
    fn programs_and_named_paths_are_roots() {
        let files = [
            ("lanes/a/Cargo.toml", "[[bin]]\nname = \"a\"\npath = \"src/cli.rs\"\n"),
            ("lanes/a/src/cli.rs", ""),
            ("lanes/a/src/bin/tool.rs", ""),
            ("lanes/a/src/lib.rs", "#[path = \"sys/linux.rs\"]\nmod sys;\n"),
            ("lanes/a/src/sys/linux.rs", ""),
        ];
        assert!(dead(&files).is_empty());
    }
}
