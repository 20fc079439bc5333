//! Programs and libraries of others that no package of the system brings: obtained once, and kept in the target
//! directory.

use std::{
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// The folder `kept` with what `make` puts there, which happens once: half made, it has another name.
///
/// # Errors
/// What `make` says.
pub fn obtained(
    kept: PathBuf,
    make: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    if kept.is_dir() {
        return Ok(kept);
    }
    let made = kept.with_extension(format!("{}.partial", std::process::id()));
    let result =
        fs::create_dir_all(&made).map_err(|why| why.to_string()).and_then(|()| make(&made));
    // Another run may have put one there meanwhile: then ours goes.
    if result.is_err() || fs::rename(&made, &kept).is_err() {
        let _ = fs::remove_dir_all(&made);
    }
    result.map(|()| kept)
}

/// A Python that has `package`, such as `redis==8.1.0`, in an environment of its own below `folder`, which is the
/// test's `CARGO_TARGET_TMPDIR`.
///
/// # Errors
/// Why there is none: no Python, or no way to the package.
pub fn python_with(folder: &str, package: &str) -> Result<PathBuf, String> {
    let kept = Path::new(folder).join(package.replace("==", "-"));
    let environment = obtained(kept, |made| {
        ran(Command::new("python3").args(["-m", "venv"]).arg(made)).map_err(|why| {
            format!("no Python environment for {package}: {why}; try apt-get install python3-venv")
        })?;
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        let pip = pip.into_iter().chain([
            "--only-binary",
            ":all:",
            "--retries",
            "1",
            "--timeout",
            "20",
            package,
        ]);
        ran(Command::new(made.join("bin/python")).args(pip))
            .map_err(|why| format!("{package} cannot be installed: {why}"))
    });
    environment.map(|environment| environment.join("bin/python"))
}

/// Runs it to its end.
///
/// # Errors
/// The last line of what it printed, if it failed, and the program's name.
pub fn ran(command: &mut Command) -> Result<(), String> {
    let name = |program: &OsStr| program.to_string_lossy().into_owned();
    let why = why_failed(command.output());
    why.map_or(Ok(()), |why| Err(format!("{}: {why}", name(command.get_program()))))
}

fn why_failed(run: io::Result<Output>) -> Option<String> {
    let output = match run {
        Ok(output) => output,
        Err(why) => return Some(why.to_string()),
    };
    if output.status.success() {
        return None;
    }
    let printed =
        [output.stderr, output.stdout].into_iter().find_map(|printed| last_line(&printed));
    Some(printed.unwrap_or_else(|| output.status.to_string()))
}

/// The last line that is not empty.
#[must_use]
pub fn last_line(printed: &[u8]) -> Option<String> {
    let printed = String::from_utf8_lossy(printed);
    let line = printed.lines().rev().find(|line| !line.trim().is_empty())?;
    Some(line.trim().to_owned())
}
