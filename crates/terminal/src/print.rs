//! Standard output and standard error.
//!
//! Standard output carries what was asked for (rows, JSON, help, a completion script) and nothing
//! else; notes and errors go to standard error. Writing past a reader that is gone is the quiet end
//! of the program; a standard error without a reader changes nothing.

use crate::Failure;
use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

/// Writes `text` to standard output.
///
/// # Errors
/// [`Failure::ReaderGone`] when its reader has gone; a sentence when it cannot be written.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::ReaderGone,
            _ => Failure::input(format!(
                "cannot write to standard output: {error}; redirect it to a place with room"
            )),
        }
    })
}

/// Writes `value` as JSON: to standard output, or past the rows there to standard error.
///
/// # Errors
/// As [`print`].
pub fn print_json(value: &serde_json::Value, stdout_has_rows: bool) -> Result<(), Failure> {
    if stdout_has_rows {
        note(&value.to_string());
        return Ok(());
    }
    print(&format!("{value:#}\n"))
}

/// A path as JSON has it, which is Unicode: what is none in its name is replaced.
pub fn path_json(path: &Path) -> serde_json::Value {
    serde_json::Value::String(path.to_string_lossy().into_owned())
}

/// A line (or several) for a person, on standard error. Names in it may be anyone's: what would move a terminal's
/// cursor or change its colours is shown as an escape.
pub fn note(text: &str) {
    // No reader is left.
    let _ = writeln!(io::stderr().lock(), "{}", without_controls(text));
}

/// The text with its control characters, but for ends of lines and tabs, as escapes.
fn without_controls(text: &str) -> Cow<'_, str> {
    let is_harmless = |c: char| !c.is_control() || c == '\n' || c == '\t';
    if text.chars().all(is_harmless) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_harmless(c) { shown.push(c) } else { shown.extend(c.escape_default()) }
    }
    Cow::Owned(shown)
}

/// Shows `line` in place of what was shown last; an empty one clears it.
pub fn show_progress(line: &str) {
    let _ = write!(io::stderr().lock(), "\r\x1b[K{line}");
}

/// True when a person sees standard output.
pub fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// True when a person sees standard error.
pub fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_moves_the_cursor_of_a_terminal() {
        assert_eq!(without_controls("a\tb\nc \u{e9}"), "a\tb\nc \u{e9}");
        assert_eq!(without_controls("\u{1b}[31mred\0\r"), "\\u{1b}[31mred\\u{0}\\r");
        assert_eq!(without_controls("\u{9b}1m"), "\\u{9b}1m");
    }
}
