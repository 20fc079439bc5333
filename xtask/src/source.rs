//! Splits source text of the C family (Rust, C, JavaScript) into code, comments and the contents of
//! strings, line by line.
//!
//! Knows comments, strings, raw strings, characters and lifetimes; nothing else of any grammar. The
//! contents of strings are neither code nor comment, so a rule may quote the very word it bans.
//! Columns are kept. Never fails: on broken source the split is merely wrong, and the compiler says more.

/// One line, three times: with everything but code blanked out, everything but comments, and
/// everything but what strings hold.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) code: String,
    pub(crate) comment: String,
    pub(crate) text: String,
}

enum State {
    Code,
    LineComment,
    BlockComment { depth: usize },
    Text,
    RawText { hashes: usize },
}

pub(crate) fn split(source: &str) -> Vec<Line> {
    source_lines(&source.chars().collect::<Vec<_>>())
}

fn source_lines(chars: &[char]) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut line = Line::default();
    let mut state = State::Code;
    let mut at = 0;
    while at < chars.len() {
        let here = chars[at];
        if here == '\n' {
            if matches!(state, State::LineComment) {
                state = State::Code;
            }
            lines.push(std::mem::take(&mut line));
            at += 1;
            continue;
        }
        let next = chars.get(at + 1).copied();
        // How many characters this step takes, and which side shows them.
        let (taken, side) = match state {
            State::Code => match (here, next) {
                ('/', Some('/')) => {
                    state = State::LineComment;
                    (2, Side::Comment)
                }
                ('/', Some('*')) => {
                    state = State::BlockComment { depth: 1 };
                    (2, Side::Comment)
                }
                ('"', _) => {
                    state = State::Text;
                    (1, Side::Code)
                }
                ('r', _) if starts_word(chars, at) => match raw_text(&chars[at..]) {
                    Some(hashes) => {
                        state = State::RawText { hashes };
                        (hashes + 2, Side::Code)
                    }
                    None => (1, Side::Code),
                },
                ('\'', _) => (character(&chars[at..]), Side::Neither),
                _ => (1, Side::Code),
            },
            State::LineComment => (1, Side::Comment),
            State::BlockComment { depth } => match (here, next) {
                ('*', Some('/')) => {
                    state = match depth {
                        1 => State::Code,
                        _ => State::BlockComment { depth: depth - 1 },
                    };
                    (2, Side::Comment)
                }
                ('/', Some('*')) => {
                    state = State::BlockComment { depth: depth + 1 };
                    (2, Side::Comment)
                }
                _ => (1, Side::Comment),
            },
            State::Text => match (here, next) {
                ('"', _) => {
                    state = State::Code;
                    (1, Side::Code)
                }
                // An escaped line end stays a line end for the count of lines.
                ('\\', Some('\n')) => (1, Side::Neither),
                // `\n` is no word of the text; a name that an escape stands in front of begins one.
                ('\\', Some(_)) => (2, Side::Neither),
                _ => (1, Side::Text),
            },
            State::RawText { hashes } => {
                let closing = chars[at + 1..].iter().take_while(|&&c| c == '#').take(hashes);
                if here == '"' && closing.count() == hashes {
                    state = State::Code;
                    (hashes + 1, Side::Code)
                } else {
                    (1, Side::Text)
                }
            }
        };
        for &shown in &chars[at..at + taken] {
            line.code.push(if side == Side::Code { shown } else { ' ' });
            line.comment.push(if side == Side::Comment { shown } else { ' ' });
            line.text.push(if side == Side::Text { shown } else { ' ' });
        }
        at += taken;
    }
    if !line.code.is_empty() {
        lines.push(line);
    }
    lines
}

#[derive(PartialEq, Eq)]
enum Side {
    Code,
    Comment,
    Text,
    Neither,
}

/// Whether an `r` at `at` can begin a raw string: alone, or after the `b` or `c` of its prefix.
fn starts_word(chars: &[char], at: usize) -> bool {
    let in_word = |back: usize| {
        at.checked_sub(back).is_some_and(|i| chars[i].is_alphanumeric() || chars[i] == '_')
    };
    !in_word(1) || (matches!(chars[at - 1], 'b' | 'c') && !in_word(2))
}

/// The number of `#` if `chars` begins a raw string, `r#"` for example.
fn raw_text(chars: &[char]) -> Option<usize> {
    let hashes = chars[1..].iter().take_while(|&&c| c == '#').count();
    (chars.get(1 + hashes) == Some(&'"')).then_some(hashes)
}

/// The length of the character literal that begins here, or 1 where it is a lifetime.
fn character(chars: &[char]) -> usize {
    match chars {
        ['\'', '\\', _, rest @ ..] => {
            let to_quote = rest.iter().take_while(|&&c| c != '\'' && c != '\n').count();
            (3 + to_quote + usize::from(rest.get(to_quote) == Some(&'\''))).min(chars.len())
        }
        ['\'', c, '\'', ..] if *c != '\n' => 3,
        _ => 1,
    }
}

/// The identifiers and keywords of a line.
pub(crate) fn identifiers(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(source: &str) -> Vec<String> {
        split(source).into_iter().map(|line| line.code.trim_end().to_owned()).collect()
    }

    #[test]
    fn comments_and_strings_are_not_code() {
        assert_eq!(code("let a = \"x // y\"; // z"), ["let a = \"      \";"]);
        assert_eq!(split("a; // why").pop().expect("one line").comment.trim(), "// why");
    }

    #[test]
    fn what_strings_hold_is_apart() {
        let texts = |source: &str| -> Vec<String> {
            split(source).into_iter().map(|line| line.text.trim().to_owned()).collect()
        };
        assert_eq!(texts("f(\"a b\\nc\"); // \"d\"\n\"e\\\n g\""), ["a b  c", "e", "g"]);
        assert_eq!(texts("f(r#\"a \" b\"#, 'c')"), ["a \" b"]);
    }

    #[test]
    fn block_comments_nest_and_span_lines() {
        assert_eq!(code("a /* b /* c */\nd */ e"), ["a", "     e"]);
    }

    #[test]
    fn raw_strings_end_at_their_own_hashes() {
        assert_eq!(code("f(r#\"a \" b\"#, c)"), ["f(r#\"     \"#, c)"]);
        assert_eq!(code("var\"s\""), ["var\" \""]);
    }

    #[test]
    fn a_quote_character_opens_no_string() {
        assert_eq!(code("f('\"', '\\'', b)"), ["f(   ,     , b)"]);
        assert_eq!(code("fn f<'a>(x: &'a str)"), ["fn f< a>(x: & a str)"]);
    }

    #[test]
    fn broken_source_is_split_without_a_panic() {
        for source in ["'", "'\\", "\"", "\"\\", "r#", "r", "/*", "/", "b'\\x", "r#\"a", "\\\n"] {
            split(source);
        }
    }

    #[test]
    fn lines_keep_their_numbers_across_escaped_line_ends() {
        assert_eq!(split("\"a\\\nb\"\nc").len(), 3);
    }
}
