//! Standard output and standard error.
//!
//! Standard output carries what was asked for (rows, JSON, help, a completion script) and nothing
//! else; notes and errors go to standard error. Writing past a reader that is gone is the quiet end
//! of the program; a standard error without a reader changes nothing.

use crate::Failure;
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

/// A line (or several) for a person, on standard error.
pub fn note(text: &str) {
    // No reader is left.
    let _ = writeln!(io::stderr().lock(), "{text}");
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
