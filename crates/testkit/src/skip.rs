//! Skips that say why: a test that cannot run here must not look like one that passed.

use std::io::Write;

/// Prints `skipped: <reason> (<test>)` past the capture of the test harness, so that the line is
/// seen without `--nocapture`. The caller then returns.
pub fn skip(reason: impl std::fmt::Display) {
    let thread = std::thread::current();
    let line = format!("skipped: {reason} ({})\n", thread.name().unwrap_or("unnamed thread"));
    // Losing the line to a closed stderr is no reason to fail the test.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
