//! Files of the tree that a comment or a document names by path are there.
//!
//! Read are words that begin with a folder of the root and end in `.md`, `.rs`, `.sh`, `.toml` or `.py`, in comments
//! and in prose: links have a rule of their own. A path with a placeholder (`lanes/NAME/src/kind.rs`) names no file.
//! What a program writes (`out/`, `target/`) is no file of the tree.

use super::{Violation, numbered, prose};
use crate::tree::{Tree, kind};
use std::collections::BTreeSet;

/// Kinds of file that are named as references. Headers of the kernel and of libraries end in `.h`.
const CITED_KINDS: &[&str] = &["md", "rs", "sh", "toml", "py"];
/// Histories name what was.
const HISTORIES: &[&str] = &["CHANGELOG.md", "docs/measurements/"];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let roots: BTreeSet<&str> =
        tree.paths().filter_map(|path| path.split_once('/').map(|(root, _)| root)).collect();
    let mut violations = Vec::new();
    for (path, text) in tree.texts() {
        if HISTORIES.iter().any(|history| path.starts_with(history))
            || path.starts_with("fuzz/seeds/")
        {
            continue;
        }
        for (number, line) in prose_of(tree, path, text) {
            for cited in words(&line).filter(|word| is_path(word, &roots)) {
                let is_there = tree.has_file(cited) || is_of_folder(tree, path, cited);
                let what =
                    || format!("`{cited}` is not there; correct the path, or write the file");
                violations
                    .extend((!is_there).then(|| Violation::new(path, number, "cited", what())));
            }
        }
    }
    violations
}

/// Comments, or the prose of a document.
fn prose_of(tree: &Tree, path: &str, text: &str) -> Vec<(usize, String)> {
    match kind(path) {
        "md" => {
            let lines = prose::lines(text).into_iter().filter(|line| line.fence.is_none());
            lines.map(|line| (line.number, line.text.to_owned())).collect()
        }
        "rs" | "c" | "h" | "js" => numbered(tree.lines(path).iter())
            .map(|(number, line)| (number, line.comment.clone()))
            .collect(),
        _ => Vec::new(),
    }
}

/// What a path may be made of.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    line.split(move |c| !is_part(c)).map(|word| word.trim_end_matches('.'))
}

fn is_path(word: &str, roots: &BTreeSet<&str>) -> bool {
    let Some((root, rest)) = word.split_once('/') else { return false };
    let is_placeholder = |part: &str| {
        let stem = part.split('.').next().unwrap_or(part);
        stem.len() > 1
            && stem.chars().all(|c| c.is_ascii_uppercase())
            && stem != "README"
            && stem != "SUMMARY"
    };
    roots.contains(root)
        && CITED_KINDS
            .iter()
            .any(|kind| rest.strip_suffix(kind).is_some_and(|stem| stem.ends_with('.')))
        && !rest.split('/').any(is_placeholder)
}

/// Whether the path is seen from a folder around the file that names it: `bpf/record.h` in `apps/features`.
fn is_of_folder(tree: &Tree, path: &str, cited: &str) -> bool {
    let folders = path.match_indices('/').map(|(at, _)| &path[..at]);
    folders.into_iter().any(|folder| tree.has_file(&format!("{folder}/{cited}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cited(path: &str, text: &str) -> Vec<usize> {
        let tree = Tree::of(&[
            (path, text),
            ("docs/guide/README.md", ""),
            ("lanes/sim/src/kind.rs", ""),
            ("lab/docs/far.md", ""),
        ]);
        check(&tree).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn files_that_are_there_are_cited_in_peace() {
        for line in [
            "see docs/guide/README.md.",
            "(`lanes/sim/src/kind.rs`)",
            "lanes/NAME/src/kind.rs",
            "out/report.md and linux/if_link.h",
            "docs/far.md, from the folder around it",
            "docs/guide",
        ] {
            assert_eq!(cited("lab/src/a.rs", &format!("// {line}\n")), [0; 0], "{line}");
        }
    }

    #[test]
    fn files_that_are_not_are_named_with_the_line() {
        assert_eq!(cited("lab/src/a.rs", "let a = \"docs/b.md\";\n/// docs/b.md\n"), [2]);
        assert_eq!(
            cited("ARCHITECTURE.md", "a\n`lanes/sim/src/gone.rs`\n```\ndocs/c.md\n```\n"),
            [2]
        );
        assert_eq!(cited("CHANGELOG.md", "docs/gone.md\n"), [0; 0], "a history names what was");
    }
}
