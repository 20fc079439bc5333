//! The kernel half's header, compiled for this machine and run as a program.

use crate::frames::Question;
use laneway_testkit::{root, skip};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A sanitizer finds reads beyond a frame; not every compiler has one.
const SANITIZERS: [&[&str]; 2] =
    [&["-fsanitize=address,undefined", "-fno-sanitize-recover=all"], &[]];

pub(crate) struct Referee(PathBuf);

/// None, and says so, without a C compiler.
pub(crate) fn compiled() -> Option<Referee> {
    if Command::new("cc").arg("--version").output().is_err() {
        skip("there is no C compiler `cc`");
        return None;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join("referee-kv");
    let mut said = String::new();
    for sanitizers in SANITIZERS {
        let compiled = Command::new("cc")
            .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"])
            .args(sanitizers)
            .arg("-I")
            .arg(root().join("bpf/include"))
            .arg("-I")
            .arg(here.join("bpf"))
            .arg(here.join("tests/get/referee.c"))
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
    /// Fate and bytes of each frame, with the maps in this state.
    pub(crate) fn run(&self, state: &[u8], questions: &[Question]) -> Vec<(u8, Vec<u8>)> {
        let mut input = state.to_vec();
        for Question { frame, .. } in questions {
            input.extend((frame.len() as u32).to_ne_bytes());
            input.extend(frame);
        }
        let mut child = Command::new(&self.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the referee was just compiled");
        let mut stdin = child.stdin.take().expect("piped");
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let output = child.wait_with_output().expect("the referee ends");
        assert!(output.status.success(), "the referee failed; its words are above");
        writer.join().expect("no panic").expect("the referee reads all");
        let mut rest = &output.stdout[..];
        let judged = questions.iter().map(|_| {
            let (head, more) = rest.split_first_chunk::<5>().expect("fate and length");
            let bytes = u32::from_ne_bytes([head[1], head[2], head[3], head[4]]) as usize;
            let (frame, more) = more.split_at(bytes);
            rest = more;
            (head[0], frame.to_vec())
        });
        let judged = judged.collect();
        assert!(rest.is_empty());
        judged
    }
}
