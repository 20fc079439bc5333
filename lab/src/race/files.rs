//! The files of a race.

use crate::error::RaceError;
use crate::result::RaceResult;
use std::path::{Path, PathBuf};

pub(crate) fn write_error(path: &Path) -> impl Fn(std::io::Error) -> RaceError + '_ {
    |source| RaceError::Write { path: path.display().to_string(), source }
}

pub(crate) fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<(), RaceError> {
    let text = serde_json::to_string(value).expect("results are plain data");
    write_file(path, &text)
}

/// Writes the result and everything made from it.
pub(super) fn write_result(result: &RaceResult, out: &Path) -> Result<(), RaceError> {
    let text = serde_json::to_string_pretty(result).expect("results are plain data");
    write_file(&out.join("result.json"), &text)?;
    write_report(result, out)
}

/// Writes `report.html` and `report.md` of a result into `out`.
///
/// # Errors
/// [`RaceError::Write`].
pub fn write_report(result: &RaceResult, out: &Path) -> Result<(), RaceError> {
    write_file(&out.join("report.html"), &crate::report::html(result))?;
    write_file(&out.join("report.md"), &crate::report::markdown(result))
}

/// A file appears whole or not at all.
pub(super) fn write_file(path: &Path, text: &str) -> Result<(), RaceError> {
    let mut partial = PathBuf::from(path).into_os_string();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    std::fs::write(&partial, text).map_err(write_error(&partial))?;
    std::fs::rename(&partial, path).map_err(write_error(path))
}
