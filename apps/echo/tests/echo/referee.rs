//! The kernel half's own headers, compiled for this machine and run as a program.

use crate::{Outcome, Sent};
use laneway_echo::{Config, Fate, half};
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
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join("referee-echo");
    let mut said = String::new();
    for sanitizers in SANITIZERS {
        let compiled = Command::new("cc")
            .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"])
            .args(sanitizers)
            .arg("-I")
            .arg(root().join("bpf/include"))
            .arg("-I")
            .arg(here.join("bpf"))
            .arg(here.join("tests/echo/referee.c"))
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
    /// What becomes of the frames.
    pub(crate) fn run(&self, config: &Config, frames: &[Sent]) -> Vec<Outcome> {
        let half = half(config).unwrap_or_else(|e| panic!("{e}"));
        let constants = ["lw_config", "lw_per_source", "lw_global"].map(|name| {
            let found = half.config.iter().find(|value| value.name == name);
            found.expect("the half sets it").bytes.clone()
        });
        let mut input = constants.concat();
        let owned = half.entries.iter().filter(|(map, ..)| *map == "owned");
        let owned: Vec<u8> = owned.flat_map(|(_, key, _)| key.clone()).collect();
        input.extend((owned.len() as u32 / 16).to_ne_bytes());
        input.extend(owned);
        for sent in frames {
            input.extend(sent.at_ns.to_ne_bytes());
            input.extend((sent.bytes.len() as u32).to_ne_bytes());
            input.extend(&sent.bytes);
        }
        let output = self.spawn(input);
        let mut rest = &output[..];
        let outcomes = frames.iter().map(|sent| {
            let (outcome, more) = rest.split_at(1 + sent.bytes.len());
            rest = more;
            Outcome { fate: Fate::ALL[usize::from(outcome[0])], bytes: outcome[1..].to_vec() }
        });
        let outcomes = outcomes.collect();
        assert!(rest.is_empty());
        outcomes
    }

    fn spawn(&self, input: Vec<u8>) -> Vec<u8> {
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
        output.stdout
    }
}
