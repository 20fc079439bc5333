//! Links in Markdown that lead nowhere: missing files, and missing headings in files that exist.
//!
//! Addresses with a scheme are not followed: tidy works without a network.

use super::Violation;
use super::prose;
use crate::tree::{Tree, kind};

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| kind(path) == "md") {
        for line in prose::lines(text).iter().filter(|line| line.fence.is_none()) {
            for target in targets(line.text) {
                if let Some(what) = complaint(tree, path, &target) {
                    violations.push(Violation::new(path, line.number, "dead-link", what));
                }
            }
        }
    }
    violations
}

fn complaint(tree: &Tree, from: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let Some(file) = resolve(from, file) else {
        return Some(format!("`{target}` leads out of the repository; a clone does not have it"));
    };
    if !tree.has_file(&file) && !tree.has_folder(&file) {
        return Some(format!("`{target}`: no `{file}`; correct the link or write the file"));
    }
    let text = tree.text(&file).filter(|_| kind(&file) == "md" && !heading.is_empty())?;
    let known = prose::lines(text)
        .iter()
        .filter(|line| line.fence.is_none() && line.text.starts_with('#'))
        .any(|line| anchor(line.text.trim_start_matches('#')) == heading);
    (!known).then(|| format!("`{target}`: `{file}` has no heading `#{heading}`; correct the link"))
}

/// What stands in `[text](target)` and `[name]: target`; code between backticks is no link.
fn targets(line: &str) -> Vec<String> {
    let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
    let mut targets: Vec<String> = prose
        .match_indices("](")
        .filter_map(|(at, _)| prose[at + 2..].split([')', ' ']).next())
        .map(|target| target.trim_matches(['<', '>']).to_owned())
        .collect();
    if let Some((_, target)) = prose.split_once("]: ").filter(|_| prose.starts_with('[')) {
        targets.extend(target.split_whitespace().next().map(str::to_owned));
    }
    targets.retain(|target| !target.is_empty());
    targets
}

/// `target` as seen from the file `from`; `None` above the root.
fn resolve(from: &str, target: &str) -> Option<String> {
    if target.is_empty() {
        return Some(from.to_owned());
    }
    let mut parts: Vec<&str> = match target.strip_prefix('/') {
        Some(_) => Vec::new(),
        None => from.rsplit_once('/').map_or(Vec::new(), |(folder, _)| folder.split('/').collect()),
    };
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// The anchor that code hosts give a heading.
fn anchor(heading: &str) -> String {
    let heading = heading.trim().to_lowercase();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(line: &str) -> usize {
        let tree = Tree::of(&[
            ("docs/guide.md", line),
            ("docs/lanes.md", "# The lanes, all\n```sh\n# not a heading\n```\n"),
            ("lanes/sim/README.md", "a\n"),
        ]);
        check(&tree).len()
    }

    #[test]
    fn links_to_files_folders_and_headings_live() {
        for line in [
            "[a](lanes.md) and [b](../lanes/sim) ![c](../lanes/sim/README.md)",
            "[a](lanes.md#the-lanes-all)",
            "[a](https://example.org/x) [b](mailto:a@example.org)",
            "`[a](gone.md)`",
            "[a]: lanes.md",
            "# Here\n[a](#here)",
        ] {
            assert_eq!(dead(line), 0, "{line}");
        }
    }

    #[test]
    fn links_to_nothing_are_dead() {
        for line in [
            "[a](gone.md)",
            "[a](../../docs/lanes.md)",
            "[a](lanes.md#not-a-heading)",
            "[a](#here)",
            "[a]: gone.md",
        ] {
            assert_eq!(dead(line), 1, "{line}");
        }
    }
}
