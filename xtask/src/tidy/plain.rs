//! Plain words in what a user reads: messages, help texts, READMEs and the guide; and, of some, in comments and names.
//!
//! A sentence is about a noun of the glossary and uses the verbs of the field. The words of
//! [`WORDS`] stand where such a noun or verb should. Each has a ceiling over the whole tree, which
//! only falls: what is above it is a violation at every place, and what is below it asks for a
//! lower one.

use super::{Violation, prose};
use crate::source::identifiers;
use crate::tree::{Tree, kind};

use super::product::{Product, products};

/// A word, how often users may still read it, and what to write.
struct Word {
    word: &'static str,
    ceiling: usize,
    /// True where no comment of product code may have it either, nor a name as one of its words.
    is_nowhere: bool,
    say: &'static str,
}

/// A word with a ceiling where users read it.
const fn word(word: &'static str, ceiling: usize, say: &'static str) -> Word {
    Word { word, ceiling, is_nowhere: false, say }
}

/// The same of a word that comments and names do without.
const fn nowhere(word: &'static str, ceiling: usize, say: &'static str) -> Word {
    Word { word, ceiling, is_nowhere: true, say }
}

const WORDS: &[Word] = &[
    nowhere("anybody", 0, "any host, any process, any user: the noun"),
    nowhere("came", 0, "received, arrived, or was read"),
    word("everybody", 0, "all hosts, all clients, all readers: the noun"),
    nowhere("lent", 0, "borrowed, shared, or handed over"),
    nowhere("nobody", 0, "no arm, no program, no reader: the noun"),
    nowhere("said", 0, "reported, printed, stated, or sent"),
    nowhere("told", 0, "reported, configured, set, or given"),
    word("somebody", 0, "another process, a user, a host: the noun"),
    word("whatever", 0, "any, every, all: with the noun"),
    nowhere("whoever", 0, "the program, the user, the process: the noun"),
];

/// Words that only names do without: a function says what it does.
const NAMES: &[(&str, &str)] =
    &[("tell", "report, write, send, print, reply, or what else is done")];

/// A ceiling may be so far above the count, so that several branches can land.
const SLACK: usize = 12;

/// Documents for users.
const DOCUMENTS: &[&str] = &["README.md", "SECURITY.md", "CONTRIBUTING.md"];
const FOLDERS_OF_DOCUMENTS: &[&str] = &["docs/guide/"];

/// One use of a word: its index in [`WORDS`], the file and the line.
type Use<'a> = (usize, &'a str, usize);

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    judge(tree, WORDS)
}

fn judge(tree: &Tree, words: &[Word]) -> Vec<Violation> {
    let documents = tree.texts().filter(|(path, _)| is_document(path)).flat_map(|(path, text)| {
        let lines = prose::lines(text).into_iter();
        lines.map(move |line| (path, line.number, line.text.to_owned()))
    });
    let products = products(tree);
    let code = products.iter().filter(|(path, _)| !is_of_tests(path));
    let code = code.flat_map(|(path, product)| {
        read_by_users(path, product).into_iter().map(move |(number, text)| (*path, number, text))
    });
    let mut uses: Vec<Use<'_>> = Vec::new();
    for (path, number, text) in documents.chain(code) {
        uses.extend(of_line(words, &text).map(|word| (word, path, number)));
    }
    let mut violations = in_comments(words, &products);
    violations.extend(in_names(words, &products));
    for (index, word) in words.iter().enumerate() {
        let uses: Vec<&Use<'_>> = uses.iter().filter(|(found, ..)| *found == index).collect();
        let (count, ceiling) = (uses.len(), word.ceiling);
        if count > ceiling {
            violations.extend(uses.iter().map(|(_, path, number)| {
                let what = format!(
                    "`{}`, where a user reads it; say {} ({count} in the tree, at most {ceiling})",
                    word.word, word.say
                );
                Violation::new(path, *number, "plain-words", what)
            }));
        } else if count + SLACK < ceiling {
            let what =
                format!("`{}` stands {count} times; lower its ceiling of {ceiling}", word.word);
            violations.push(Violation::new("xtask/src/tidy/plain.rs", 1, "plain-words", what));
        }
    }
    violations
}

/// Every use of a word that comments do without.
fn in_comments(words: &[Word], products: &[(&str, Product<'_>)]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, product) in products.iter().filter(|(path, _)| !is_of_tests(path)) {
        for (number, line, _) in &product.lines {
            let uses = of_line(words, &line.comment).map(|index| &words[index]);
            violations.extend(uses.filter(|word| word.is_nowhere).map(|word| {
                let what = format!("`{}` in a comment; write {}", word.word, word.say);
                Violation::new(path, *number, "plain-words", what)
            }));
        }
    }
    violations
}

/// Every name with a word that names do without.
fn in_names(words: &[Word], products: &[(&str, Product<'_>)]) -> Vec<Violation> {
    let nowhere = words.iter().filter(|word| word.is_nowhere).map(|word| (word.word, word.say));
    let banned: Vec<(&str, &str)> = nowhere.chain(NAMES.iter().copied()).collect();
    let mut violations = Vec::new();
    for (path, product) in products.iter().filter(|(path, _)| !is_of_tests(path)) {
        for (number, line, _) in &product.lines {
            for name in identifiers(&line.code) {
                let parts = parts(name);
                let found = banned.iter().filter(|(word, _)| parts.iter().any(|part| part == word));
                violations.extend(found.map(|(word, say)| {
                    let what = format!("`{word}` in the name `{name}`; say {say}");
                    Violation::new(path, *number, "plain-words", what)
                }));
            }
        }
    }
    violations
}

/// The words of a name, in small letters: `what_came` and `WhatCame` have two.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut was_small = false;
    for letter in name.chars() {
        let begins = letter == '_' || (letter.is_uppercase() && was_small);
        if begins {
            parts.push(String::new());
        }
        if letter != '_'
            && let Some(part) = parts.last_mut()
        {
            part.extend(letter.to_lowercase());
        }
        was_small = letter.is_lowercase() || letter.is_numeric();
    }
    parts
}

fn of_line(words: &[Word], text: &str) -> impl Iterator<Item = usize> {
    identifiers(text)
        .filter_map(|found| words.iter().position(|word| found.eq_ignore_ascii_case(word.word)))
}

/// Whether users read the document.
fn is_document(path: &str) -> bool {
    kind(path) == "md"
        && (DOCUMENTS.contains(&path)
            || path.ends_with("/README.md")
            || FOLDERS_OF_DOCUMENTS.iter().any(|folder| path.starts_with(folder)))
}

/// Code whose messages only developers read.
fn is_of_tests(path: &str) -> bool {
    ["xtask/", "crates/testkit/", "fuzz/"].iter().any(|folder| path.starts_with(folder))
}

/// The lines of product code that users read, by number: strings, and help texts, which are comments of arguments.
fn read_by_users(path: &str, product: &Product<'_>) -> Vec<(usize, String)> {
    let is_arguments = path.ends_with("/arguments.rs") || path.contains("/arguments/");
    let mut lines = Vec::new();
    for (number, line, _) in &product.lines {
        if is_arguments && line.comment.trim_start().starts_with("/// ") {
            lines.push((*number, line.comment.clone()));
        }
        lines.push((*number, without_values(&line.text)));
    }
    lines
}

/// A format string without what stands in braces: names of values, which no user reads.
fn without_values(text: &str) -> String {
    let mut shown = String::new();
    for part in text.split('{') {
        // The first part has no brace in front of it, and any other is cut up to its end.
        shown += part.split_once('}').map_or(part, |(_, behind)| behind);
        shown.push(' ');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: [Word; 1] = [word("told", 1 + SLACK, "reported")];

    fn places(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        let found = judge(&Tree::of(files), &TOLD);
        found.into_iter().map(|violation| (violation.path, violation.line)).collect()
    }

    #[test]
    fn strings_help_texts_and_documents_are_read_and_names_are_not() {
        let code =
            "fn told() {} // told\nconst A: &str = \"it was Told\";\nconst B: &str = \"{told}\";\n";
        let help = "/// What it is told\n// told\nstruct A;\n";
        let many = "told\n".repeat(SLACK);
        assert_eq!(
            places(&[
                ("lab/src/a.rs", code),
                ("cli/src/arguments.rs", help),
                ("docs/guide/a.md", &many),
                ("docs/measurements/a.md", "told\n"),
                ("lab/tests/a.rs", code),
            ])
            .into_iter()
            .filter(|(path, _)| !path.starts_with("docs/guide/"))
            .collect::<Vec<_>>(),
            [("lab/src/a.rs".to_owned(), 2), ("cli/src/arguments.rs".to_owned(), 1)]
                .into_iter()
                .rev()
                .collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_ceiling_holds_and_only_falls() {
        let so_many = |n: usize| places(&[("README.md", &"told\n".repeat(n))]);
        assert_eq!(so_many(1 + SLACK), []);
        assert_eq!(so_many(1), []);
        assert_eq!(so_many(2 + SLACK).len(), 2 + SLACK);
        assert_eq!(so_many(0), [("xtask/src/tidy/plain.rs".to_owned(), 1)]);
    }

    #[test]
    fn of_some_words_product_comments_are_free() {
        let words = [Word { is_nowhere: true, ..word("told", 0, "reported") }];
        let files =
            [("lab/src/a.rs", "// told\nfn a() {}\n"), ("lab/tests/a.rs", "// told\nfn a() {}\n")];
        let found = judge(&Tree::of(&files), &words);
        let places: Vec<_> = found.iter().map(|it| (it.path.as_str(), it.line)).collect();
        assert_eq!(places, [("lab/src/a.rs", 1)]);
    }

    #[test]
    fn of_some_words_product_names_are_free() {
        let words = [nowhere("told", 0, "reported")];
        let code = "fn was_told() {}\nstruct WasTold;\nfn tell() {}\nfn retold(untold: u8, satellite: u8) {}\n";
        let files = [("lab/src/a.rs", code), ("lab/tests/a.rs", code), ("xtask/src/a.rs", code)];
        let found = judge(&Tree::of(&files), &words);
        let places: Vec<_> = found.iter().map(|it| (it.path.as_str(), it.line)).collect();
        assert_eq!(places, [("lab/src/a.rs", 1), ("lab/src/a.rs", 2), ("lab/src/a.rs", 3)]);
    }
}
