//! One word per idea: synonyms that are not ours, with the word to use instead.
//!
//! Reads Rust only, where names are ours to choose. `SCREAMING_CASE` names mirror the kernel's and
//! stay as they are; so do names inside strings, which are other people's data.

use super::{Violation, numbered};
use crate::source::identifiers;
use crate::tree::{Tree, is_below, kind};

/// A word that is not ours.
struct Foreign {
    /// As a part of an identifier, in lower case.
    word: &'static str,
    say: &'static str,
    /// Folders where the word is at home.
    at_home: &'static [&'static str],
    in_comments: bool,
}

const FOREIGN: &[Foreign] = &[
    Foreign { word: "mbuf", say: "frame", at_home: &["lanes/dpdk"], in_comments: true },
    Foreign { word: "lcore", say: "worker", at_home: &["lanes/dpdk"], in_comments: true },
    Foreign {
        word: "skb",
        say: "frame (or `generic` for the XDP mode)",
        at_home: &["lanes", "crates/bpf"],
        in_comments: false,
    },
    Foreign {
        word: "pkt",
        say: "frame (a buffer) or packet (what it carries)",
        at_home: &[],
        in_comments: false,
    },
    // The flow accumulators mirror `struct lw_flow`, whose names are those of the field's schemas.
    Foreign {
        word: "pkts",
        say: "frames or packets",
        at_home: &["crates/flow", "apps/features"],
        in_comments: false,
    },
    Foreign { word: "dgram", say: "datagram", at_home: &[], in_comments: false },
    Foreign { word: "backend", say: "lane", at_home: &[], in_comments: false },
    Foreign { word: "contender", say: "arm", at_home: &[], in_comments: true },
    Foreign { word: "whitelist", say: "allow list", at_home: &[], in_comments: true },
    Foreign { word: "blacklist", say: "deny list", at_home: &[], in_comments: true },
];

/// Names that say nothing about what a module holds.
const JUNK_DRAWERS: &[&str] = &["utils", "util", "helpers", "helper", "common", "misc", "stuff"];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for path in tree.paths().filter(|path| kind(path) == "rs") {
        let parts = path.trim_end_matches(".rs").split('/');
        if let Some(drawer) = parts.into_iter().find(|part| JUNK_DRAWERS.contains(part)) {
            let what = format!("`{drawer}` names no idea; name the module after what it holds");
            violations.push(Violation::new(path, 1, "vocabulary", what));
        }
        let foreign: Vec<&Foreign> = FOREIGN
            .iter()
            .filter(|f| !f.at_home.iter().any(|folder| is_below(path, folder)))
            .collect();
        for (number, line) in numbered(tree.lines(path).iter()) {
            for found in &foreign {
                if uses(&line.code, found.word)
                    || (found.in_comments && uses(&line.comment, found.word))
                {
                    let what = format!("`{}`; say {}", found.word, found.say);
                    violations.push(Violation::new(path, number, "vocabulary", what));
                }
            }
        }
    }
    violations
}

fn uses(line: &str, word: &str) -> bool {
    identifiers(line)
        .filter(|name| name.chars().any(|c| c.is_lowercase()))
        .any(|name| parts(name).any(|part| part.eq_ignore_ascii_case(word)))
}

/// The words of an identifier: `rx_pktRing2` is `rx`, `pkt`, `Ring2`.
fn parts(name: &str) -> impl Iterator<Item = &str> {
    let mut starts = vec![0];
    let bytes = name.as_bytes();
    for at in 1..bytes.len() {
        if bytes[at - 1] == b'_'
            || (bytes[at].is_ascii_uppercase() && bytes[at - 1].is_ascii_lowercase())
        {
            starts.push(at);
        }
    }
    starts.push(bytes.len());
    let ranges: Vec<(usize, usize)> = starts.windows(2).map(|pair| (pair[0], pair[1])).collect();
    ranges
        .into_iter()
        .filter_map(|(from, to)| name.get(from..to))
        .map(|part| part.trim_matches('_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [usize; 0] = [];

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Tree::of(&[(path, text)])).iter().map(|v| v.line).collect()
    }

    #[test]
    fn foreign_words_are_found_inside_identifiers() {
        assert_eq!(
            lines("apps/a/src/lib.rs", "let rx_pkt = 1;\nstruct PktRing;\nlet packet = 1;\n"),
            [1, 2]
        );
    }

    #[test]
    fn kernel_constants_and_strings_keep_their_names() {
        assert_eq!(
            lines("lab/src/lib.rs", "let a = XDP_PKT_CONTD;\nlet b = \"tot_fwd_pkts\";\n"),
            NONE
        );
    }

    #[test]
    fn a_word_is_welcome_at_home() {
        assert_eq!(lines("lanes/dpdk/src/lib.rs", "struct Mbuf; // an mbuf\n"), NONE);
        assert_eq!(lines("lanes/sim/src/lib.rs", "// like an mbuf\nlet x = 1; // an skb\n"), [1]);
    }

    #[test]
    fn junk_drawers_are_refused_as_files_and_folders() {
        assert_eq!(lines("cli/src/utils.rs", "").len(), 1);
        assert_eq!(lines("cli/tests/common/mod.rs", "").len(), 1);
        assert_eq!(lines("cli/src/common_mode.rs", "").len(), 0);
    }
}
