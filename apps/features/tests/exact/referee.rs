//! The kernel half's own headers, compiled for this machine and run as a program.

use crate::captures::Frame;
use laneway_flow::{RECORD_BYTES, Record, RecordMatch};
use laneway_testkit::{root, skip};
use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

/// A sanitizer finds reads beyond a frame; not every compiler has one.
const SANITIZERS: [&[&str]; 2] =
    [&["-fsanitize=address,undefined", "-fno-sanitize-recover=all"], &[]];

/// The compiled referee; `None`, and says so, without a C compiler.
pub(crate) fn referee() -> Option<&'static Referee> {
    static REFEREE: OnceLock<Option<Referee>> = OnceLock::new();
    REFEREE.get_or_init(compile).as_ref()
}

pub(crate) struct Referee(PathBuf);

fn compile() -> Option<Referee> {
    if Command::new("cc").arg("--version").output().is_err() {
        skip("there is no C compiler `cc`");
        return None;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join("referee-parse");
    let mut said = String::new();
    for sanitizers in SANITIZERS {
        let compiled = Command::new("cc")
            .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"])
            .args(sanitizers)
            .arg("-I")
            .arg(root().join("bpf/include"))
            .arg("-I")
            .arg(root().join("apps/features/bpf"))
            .arg(here.join("tests/exact/referee.c"))
            .arg("-o")
            .arg(&binary)
            .output()
            .expect("cc was there a moment ago");
        if compiled.status.success() {
            return Some(Referee(binary));
        }
        said = String::from_utf8_lossy(&compiled.stderr).into_owned();
    }
    panic!("{said}")
}

impl Referee {
    /// The records of frames numbered from 0.
    pub(crate) fn parse(&self, frames: &[Frame]) -> Vec<[u8; RECORD_BYTES]> {
        let mut input = Vec::new();
        for (number, frame) in frames.iter().enumerate() {
            input.extend(frame.ts_ns.to_ne_bytes());
            input.extend((number as u64).to_ne_bytes());
            input.extend(frame.wire_len.to_ne_bytes());
            input.extend((frame.bytes.len() as u32).to_ne_bytes());
            input.extend(&frame.bytes);
        }
        let output = self.run("parse", input);
        let (records, rest) = output.as_chunks::<RECORD_BYTES>();
        assert!(rest.is_empty());
        records.to_vec()
    }

    /// Which records a rule admits.
    pub(crate) fn admits(&self, rule: &RecordMatch, records: &[Record]) -> Vec<bool> {
        let mut input = rule.to_bytes().to_vec();
        records.iter().for_each(|r| input.extend(r.to_bytes()));
        self.run("filter", input).iter().map(|admits| *admits == 1).collect()
    }

    fn run(&self, what: &str, input: Vec<u8>) -> Vec<u8> {
        let mut child = Command::new(&self.0)
            .arg(what)
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
