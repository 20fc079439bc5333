//! Skips that say why: a test that cannot run here must not look like one that passed.

use laneway_core::LaneError;
use std::io::Write;

/// Prints `skipped: <reason> (<test>)` past the capture of the test harness, so that the line is
/// seen without `--nocapture`. The caller then returns.
pub fn skip(reason: impl std::fmt::Display) {
    let thread = std::thread::current();
    let line = format!("skipped: {reason} ({})\n", thread.name().unwrap_or("unnamed thread"));
    // Losing the line to a closed stderr is no reason to fail the test.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Whether the kernel is too old for what a lane was asked for: an error is the reason to skip a test. What else may
/// have kept the lane from opening is for the test to find.
pub fn young_enough<T>(opened: &Result<T, LaneError>) -> Result<(), String> {
    match opened {
        Err(missing @ LaneError::CapMissing { needs: Some(_), .. }) => Err(missing.to_string()),
        _ => Ok(()),
    }
}
