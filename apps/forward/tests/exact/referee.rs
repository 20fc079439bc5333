//! The kernel half's own header, compiled for this machine and run as a program on what the half is
//! loaded with.

use crate::outcome::{Outcome, TOLD_BYTES};
use laneway_core::{KernelHalf, MapValue};
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
/// Bytes of `struct lw_bank`.
const BANK_BYTES: usize = 29496;

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
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join("referee-forward");
    let mut said = String::new();
    for sanitizers in SANITIZERS {
        let compiled = Command::new("cc")
            .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror"])
            .args(["-Wno-unused-parameter", "-Wno-unknown-pragmas"])
            .args(sanitizers)
            .arg("-I")
            .arg(root().join("bpf/include"))
            .arg("-I")
            .arg(here.join("bpf"))
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
    /// The outcomes of frames that arrive on port 0, and how many matches the rules had together.
    pub(crate) fn run(&self, half: &KernelHalf, frames: &[Vec<u8>]) -> (Vec<Outcome>, u64) {
        let mut input = half.config[0].bytes.clone();
        let of = |map: &'static str| {
            half.entries.iter().filter_map(move |(name, key, value)| match value {
                MapValue::Bytes(value) if *name == map => Some((name, key, value)),
                _ => None,
            })
        };
        match of("banks").next() {
            Some((_, _, bank)) => input.extend(bank),
            None => input.extend([0; BANK_BYTES]),
        }
        let routes = of("routes4").chain(of("routes6"));
        let others = ["hops", "neighbours", "entries"].map(|map| of(map).count());
        input.extend((routes.clone().count() as u32).to_ne_bytes());
        others.iter().for_each(|count| input.extend((*count as u32).to_ne_bytes()));
        for (map, key, hop) in routes {
            let mut address = [0; 16];
            address[..key.len() - 4].copy_from_slice(&key[4..]);
            input.extend(&key[..4]);
            input.extend([u8::from(*map == "routes4"), 0, 0, 0]);
            input.extend(address);
            input.extend(hop);
        }
        of("hops").for_each(|(_, _, hop)| input.extend(hop));
        of("neighbours").for_each(|(_, address, mac)| {
            input.extend(address);
            input.extend(mac);
        });
        of("entries").for_each(|(_, key, value)| {
            input.extend(key);
            input.extend(value);
        });
        for frame in frames {
            input.extend((frame.len() as u32).to_ne_bytes());
            input.extend(frame);
        }
        let output = self.run_on(input);
        let mut rest = &output[..];
        let mut outcomes = Vec::with_capacity(frames.len());
        for frame in frames {
            let (told, bytes) = rest.split_at(TOLD_BYTES);
            let (bytes, behind) = bytes.split_at(frame.len());
            outcomes.push(Outcome::read(told, bytes));
            rest = behind;
        }
        let matches = u64::from_ne_bytes(rest.try_into().expect("eight bytes behind the frames"));
        (outcomes, matches)
    }

    fn run_on(&self, input: Vec<u8>) -> Vec<u8> {
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
