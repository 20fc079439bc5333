//! A lane or an app is named in its own folder and in one row of a table: no product code elsewhere uses its crate.
//!
//! Product code is what stands under `src/` in front of a file's first `#[cfg(test)]`. Names are those of the folders,
//! so a new lane is held to it from its first day.

use super::{Violation, numbered};
use crate::source::{identifiers, split};
use crate::tree::{Tree, kind};
use std::collections::BTreeSet;

/// Where rows are: the tables, and what is compiled beside them.
const TABLES: &[&str] = &["registry/", "xtask/", "fuzz/", "examples/"];

/// Who may use a crate all the same, and why.
const EXCEPTIONS: &[(&str, &[&str], &str)] = &[
    (
        "features",
        &["cli/src/arms.rs", "cli/src/lib.rs", "lab/src/"],
        "its race is not a column yet, and its row of verbs is in cli",
    ),
    ("echo", &["cli/src/", "lab/src/"], "its race is not a column yet"),
    ("forward", &["cli/src/arms.rs", "cli/src/lib.rs", "lab/src/"], "its race is not a column yet"),
];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let folders: BTreeSet<(&str, &str)> = tree
        .texts()
        .filter_map(|(path, _)| {
            let (kind, rest) = path.split_once('/')?;
            let (name, file) = rest.split_once('/')?;
            (matches!(kind, "lanes" | "apps") && file == "Cargo.toml").then_some((kind, name))
        })
        .collect();
    let mut violations = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| is_product(path)) {
        for (number, line) in numbered(split(text).into_iter()) {
            if line.code.contains("#[cfg(test)]") {
                break;
            }
            let named = identifiers(&line.code).find_map(|word| {
                let name = word.strip_prefix("laneway_")?;
                folders.iter().find(|(folder, of)| *of == name && is_foreign(path, folder, of))
            });
            violations.extend(named.map(|(folder, name)| {
                let what = format!(
                    "`laneway_{name}` outside {folder}/{name} and the table; make what is asked of it a \
                     column of `crates/kinds`"
                );
                Violation::new(path, number, "row", what)
            }));
        }
    }
    violations
}

fn is_product(path: &str) -> bool {
    kind(path) == "rs"
        && path.contains("src/")
        && !path.contains("/tests/")
        && !path.ends_with("/tests.rs")
        && !TABLES.iter().any(|table| path.starts_with(table))
}

/// True unless the path lies in the folder itself or may use it all the same.
fn is_foreign(path: &str, folder: &str, name: &str) -> bool {
    let own = format!("{folder}/{name}/");
    let excepted = EXCEPTIONS
        .iter()
        .any(|(of, paths, _)| *of == name && paths.iter().any(|allowed| path.starts_with(allowed)));
    !path.starts_with(&own) && !excepted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let tree = Tree::of(&[
            ("lanes/packet/Cargo.toml", ""),
            ("lanes/pcap/Cargo.toml", ""),
            ("apps/echo/Cargo.toml", ""),
            (path, text),
        ]);
        check(&tree).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn a_lane_is_named_in_its_folder_and_the_table_alone() {
        let text = "use laneway_packet::PacketLane;\n\nuse laneway_core::Lane;\n";
        assert_eq!(lines("cli/src/verbs/run.rs", text), [1]);
        assert_eq!(lines("crates/stack/src/lib.rs", text), [1]);
        for own in ["lanes/packet/src/lib.rs", "registry/src/lanes.rs", "cli/tests/gen.rs"] {
            assert!(lines(own, text).is_empty(), "{own}");
        }
    }

    #[test]
    fn tests_inside_a_file_may_run_in_a_world_and_exceptions_have_reasons() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    use laneway_packet::PacketLane;\n}\n";
        assert!(lines("crates/engine/src/run.rs", text).is_empty());
        assert!(lines("lab/src/plan.rs", "use laneway_echo::Config;\n").is_empty());
        assert_eq!(lines("lab/src/traffic.rs", "use laneway_pcap::PcapLane;\n"), [1]);
        assert_eq!(lines("crates/flow/src/key.rs", "use laneway_echo::Echo;\n"), [1]);
        assert!(EXCEPTIONS.iter().all(|(.., why)| !why.is_empty()));
    }
}
