//! Leftovers of work in progress: marks, stubs, silenced warnings, code put to sleep in comments.

use super::{Violation, numbered};
use crate::source::identifiers;
use crate::tree::{Tree, kind};

/// Words that mark unfinished work, as whole words in comments.
const MARKS: &[&str] = &["TODO", "FIXME", "XXX", "HACK"];

/// Code that stands for code that is missing, or silences what would show it.
const STUBS: &[(&str, &str)] = &[
    ("todo!(", "write it, or return an error that says what is not supported"),
    ("unimplemented!(", "write it, or return an error that says what is not supported"),
    ("allow(dead_code", "delete the dead code"),
    ("#[ignore]", "say why: `#[ignore = \"reason and how to run it\"]`"),
];

/// Kinds of file whose comments begin with `#`.
const HASH_COMMENT_KINDS: &[&str] = &["py", "pyi", "toml", "sh", "Makefile", "run"];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in tree.texts() {
        let kind = kind(path);
        if matches!(kind, "rs" | "c" | "h" | "js") {
            for (number, line) in numbered(tree.lines(path).iter()) {
                let found = mark(&line.comment)
                    .or_else(|| (kind == "rs").then(|| stub(&line.code)).flatten())
                    .or_else(|| sleeping_code(&line.comment));
                violations.extend(found.map(|what| Violation::new(path, number, "leftover", what)));
            }
        } else if HASH_COMMENT_KINDS.contains(&kind) {
            for (number, line) in numbered(text.lines()) {
                let comment = line.split_once('#').map_or("", |(_, comment)| comment);
                let found = mark(comment);
                violations.extend(found.map(|what| Violation::new(path, number, "leftover", what)));
            }
        }
    }
    violations
}

fn mark(comment: &str) -> Option<String> {
    let word = identifiers(comment).find(|word| MARKS.contains(word))?;
    Some(format!("`{word}`; do it now, or file an issue and delete the mark"))
}

fn stub(code: &str) -> Option<String> {
    let (stub, advice) = STUBS.iter().find(|(stub, _)| code.contains(stub))?;
    Some(format!("`{stub}`; {advice}"))
}

/// A plain `//` comment that reads as a statement. Documentation may show code; this may not.
fn sleeping_code(comment: &str) -> Option<String> {
    let body = comment.trim().strip_prefix("//")?;
    if body.starts_with(['/', '!']) {
        return None;
    }
    let body = body.trim();
    let begins = |words: &[&str]| words.iter().any(|word| body.starts_with(word));
    let statement = body.ends_with(';')
        && ((begins(&["let ", "return "]) && body.contains(['=', '(']))
            || begins(&["use crate::", "use super::", "use std::", "pub use ", "self.", "assert"]));
    let block =
        body.ends_with('{') && begins(&["if ", "for ", "while ", "match ", "fn ", "pub ", "impl "]);
    (statement || block).then(|| "code in a comment; delete it, git remembers".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [usize; 0] = [];

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Tree::of(&[(path, text)])).iter().map(|v| v.line).collect()
    }

    #[test]
    fn marks_count_in_comments_only() {
        assert_eq!(lines("a.rs", "// TODO later\nlet a = \"TODO\";\n/* FIXME */\n"), [1, 3]);
        assert_eq!(lines("a.py", "x = 'TODO'\ny = 1  # XXX\n"), [2]);
        assert_eq!(lines("a.sh", "mktemp out.XXXXXX # six X at the end\n"), NONE);
    }

    #[test]
    fn stubs_count_in_code_only() {
        assert_eq!(lines("a.rs", "fn a() { todo!() }\n// never todo!()\n"), [1]);
        assert_eq!(lines("a.rs", "#[allow(dead_code)]\nfn a() {}\n#[ignore]\n"), [1, 3]);
        assert_eq!(lines("a.rs", "#[ignore = \"takes an hour\"]\n"), NONE);
    }

    #[test]
    fn sleeping_code_is_distinguished_from_prose() {
        assert_eq!(
            lines("a.rs", "// let a = b();\n// if full {\n//     self.drop();\n"),
            [1, 2, 3]
        );
        let prose =
            "// if the ring is full, drop;\n// let it be;\n// for each frame\n/// let a = 1;\n";
        assert_eq!(lines("a.rs", prose), NONE);
    }
}
