//! Comments stay inside a width that two files side by side still show.
//!
//! The formatter leaves comments alone, so nothing else holds them. A line that cannot be broken
//! (an address, a row of a table) passes.

use super::{Violation, numbered};
use crate::tree::{Tree, kind};

/// The widest line that holds a comment, columns.
const COMMENT_COLUMNS_MAX: usize = 120;
/// Where wider comments are left, and how many lines at most: rows only fall.
const LEFT: &[(&str, usize)] = &[
    ("crates/journal/src/writer.rs", 2),
    ("lab/src/copies.rs", 4),
    ("lab/src/trial", 8),
    ("lanes/socket/src/sys.rs", 1),
    ("trace/", 80),
];
/// A tab of C counts so many columns.
const TAB_COLUMNS: usize = 8;

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    judge(tree, LEFT)
}

fn judge(tree: &Tree, left: &[(&str, usize)]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in
        tree.texts().filter(|(path, _)| matches!(kind(path), "rs" | "c" | "h" | "js"))
    {
        for (number, (line, shown)) in numbered(tree.lines(path).iter().zip(text.split('\n'))) {
            let columns = columns(shown);
            if columns > COMMENT_COLUMNS_MAX && can_be_broken(&line.comment) {
                let what =
                    format!("a comment of {columns} columns; break it at {COMMENT_COLUMNS_MAX}");
                violations.push(Violation::new(path, number, "comment-width", what));
            }
        }
    }
    for (folder, at_most) in left {
        let count = violations.iter().filter(|it| it.path.starts_with(folder)).count();
        if count <= *at_most {
            violations.retain(|violation| !violation.path.starts_with(folder));
        }
        if count == 0 {
            let what = format!("no wide comment is left in {folder}; delete its row of LEFT");
            violations.push(Violation::new("xtask/src/tidy/widths.rs", 1, "comment-width", what));
        }
    }
    violations
}

fn columns(line: &str) -> usize {
    line.chars().map(|c| if c == '\t' { TAB_COLUMNS } else { 1 }).sum()
}

/// Whether a comment has more than one word behind its marks, and is no row of a table.
fn can_be_broken(comment: &str) -> bool {
    let body = comment.trim().trim_start_matches(['/', '!', '*']);
    body.split_whitespace().count() > 1 && !body.trim_start().starts_with('|')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        judge(&Tree::of(&[(path, text)]), &[]).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn a_comment_ends_at_the_width_and_code_is_the_formatters() {
        let filled = |columns: usize| format!("// {}", "ab ".repeat(50).split_at(columns - 3).0);
        assert_eq!(lines("a.rs", &format!("{}\n", filled(120))), [0; 0]);
        assert_eq!(lines("a.rs", &format!("\n{}\n", filled(121))), [2]);
        assert_eq!(lines("a.h", &format!("\t/* {} */\n", "ab ".repeat(36))), [1], "tabs are wide");
        assert_eq!(lines("a.rs", &format!("let a = \"{}\";\n", "ab ".repeat(50))), [0; 0]);
        assert_eq!(lines("a.rs", &format!("/// {}\n", "x".repeat(150))), [0; 0], "one word");
        assert_eq!(lines("a.md", &filled(150)), [0; 0], "Markdown is no source");
    }

    #[test]
    fn what_is_left_in_a_folder_may_stay_and_only_falls() {
        let wide = format!("// {}\n", "ab ".repeat(50));
        let found = |text: &str, left: usize| {
            judge(&Tree::of(&[("old/a.rs", text)]), &[("old/", left)]).len()
        };
        assert_eq!((found(&wide, 1), found(&wide.repeat(2), 1)), (0, 2));
        assert_eq!(found("// ab\n", 1), 1, "the row has to go");
    }
}
