//! Foreign programs: where they are, what they say.

use crate::RecordError;
use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Lines of a program's messages in an error; the last ones say what is wrong.
const PRINTED_LINES: usize = 6;

/// Where a program is, if it is in PATH, or in the folders of administrators, which are often not.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(program)).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Runs a command to its end; gives what it wrote.
///
/// # Errors
/// When it cannot be started, or ends with another code than 0.
pub(crate) fn run(command: &mut Command) -> Result<String, RecordError> {
    let shown = shown(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|source| RecordError::Command { command: shown.clone(), source })?;
    let printed = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    let printed = String::from_utf8_lossy(&printed);
    if output.status.success() {
        return Ok(printed.into_owned());
    }
    let status = output.status.to_string();
    Err(RecordError::Refused { command: shown, status, printed: last_lines(&printed) })
}

/// The end of what a program printed, on one line.
pub(crate) fn last_lines(printed: &str) -> String {
    let lines: Vec<&str> = printed.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(PRINTED_LINES)..].join("; ")
}

fn shown(command: &Command) -> String {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}
