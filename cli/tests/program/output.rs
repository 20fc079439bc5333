//! Runs the binary and keeps what it printed.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The binary under test.
pub(crate) const LANEWAY: &str = env!("CARGO_BIN_EXE_laneway");

/// How a run ended and what it printed.
#[derive(Debug)]
pub(crate) struct RunOutput {
    pub(crate) code: Option<i32>,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl RunOutput {
    pub(crate) fn of(output: Output) -> RunOutput {
        let err = String::from_utf8(output.stderr).unwrap();
        RunOutput { code: output.status.code(), out: output.stdout, err }
    }

    /// The run ended well.
    #[track_caller]
    pub(crate) fn done(self) -> RunOutput {
        assert_eq!(self.code, Some(0), "{}", self.err);
        self
    }

    /// The run ended with `code` and one sentence on standard error that says each of `parts`.
    #[track_caller]
    pub(crate) fn refused(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{}", self.err);
        let sentence = self.err.trim_end();
        assert_eq!(sentence.lines().count(), 1, "not one sentence: {sentence}");
        assert!(sentence.starts_with("laneway: "), "{sentence}");
        for part in parts {
            assert!(sentence.contains(part), "`{part}` is missing in: {sentence}");
        }
    }

    /// Standard output as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.out).unwrap_or_else(|e| panic!("{e}: {}", self.err))
    }

    /// Lines of standard output.
    pub(crate) fn lines(&self) -> Vec<String> {
        String::from_utf8(self.out.clone()).unwrap().lines().map(str::to_owned).collect()
    }
}

/// A command for the binary that reads nothing.
pub(crate) fn command<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(LANEWAY);
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs the binary to its end.
pub(crate) fn laneway<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> RunOutput {
    RunOutput::of(command(arguments).output().unwrap())
}

/// The words of a command line without quotes.
pub(crate) fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// A folder that any user may write to, removed with all it holds when dropped.
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    pub(crate) fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("laneway-cli-{}-{n}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Folder { path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A file in it, as an argument.
    pub(crate) fn file(&self, name: &str) -> String {
        self.path.join(name).to_str().unwrap().to_owned()
    }

    /// What it holds, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.path).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A test that failed has reported why already.
        let _ = fs::remove_dir_all(&self.path);
    }
}
