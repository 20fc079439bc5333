//! A kernel half's own headers, compiled for this machine and run as a program: what Rust and the loaded program are
//! held against, byte for byte.
//!
//! A referee is a C file beside the test that uses it. It reads its questions from standard input and writes its
//! answers to standard output, both as the test that wrote it lays them out.

use crate::{root, skip};
use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A sanitizer finds reads beyond a frame; not every compiler has one.
const SANITIZERS: [&[&str]; 2] =
    [&["-fsanitize=address,undefined", "-fno-sanitize-recover=all"], &[]];
/// Headers for eBPF have parameters and pragmas that mean nothing here.
const WARNINGS: [&str; 5] =
    ["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-Wno-unknown-pragmas"];

/// A compiled referee.
#[derive(Debug)]
pub struct Referee(PathBuf);

impl Referee {
    /// Compiles the C file `source`, which includes what lies in `bpf/include` and in `headers`; both are named from
    /// the tree's root. The program lies in `folder`, which is the test's `CARGO_TARGET_TMPDIR`: compile it once in a
    /// process.
    /// Returns `None`, and reports a skip, where there is no C compiler.
    ///
    /// # Panics
    /// With what the compiler says of a source that it refuses.
    pub fn compile(folder: &str, source: &str, headers: &str) -> Option<Referee> {
        if Command::new("cc").arg("--version").output().is_err() {
            skip("there is no C compiler `cc`");
            return None;
        }
        let name = source.trim_end_matches(".c").replace('/', "-");
        let binary = Path::new(folder).join(name);
        let mut printed = String::new();
        for sanitizers in SANITIZERS {
            let compiled = Command::new("cc")
                .args(["-O1", "-g"])
                .args(WARNINGS)
                .args(sanitizers)
                .arg("-I")
                .arg(root().join("bpf/include"))
                .arg("-I")
                .arg(root().join(headers))
                .arg(root().join(source))
                .arg("-o")
                .arg(&binary)
                .output()
                .expect("cc was there a moment ago");
            if compiled.status.success() {
                return Some(Referee(binary));
            }
            printed = String::from_utf8_lossy(&compiled.stderr).into_owned();
        }
        panic!("{printed}")
    }

    /// What it answers to `input`.
    ///
    /// # Panics
    /// When it fails, as for a sanitizer's finding; its words are on the error stream.
    pub fn run(&self, arguments: &[&str], input: Vec<u8>) -> Vec<u8> {
        let mut child = Command::new(&self.0)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the referee was just compiled");
        let mut stdin = child.stdin.take().expect("piped");
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let output = child.wait_with_output().expect("the referee ends");
        assert!(output.status.success(), "the referee failed; its words are above");
        writer.join().expect("no panic").expect("the referee reads all");
        output.stdout
    }
}
