//! The kernel half's own header, compiled for this machine and run as a program.

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
/// Bytes of `struct lw_relay_datagram`.
const DATAGRAM_BYTES: usize = 48;

/// The compiled referee; `None`, and says so, without a C compiler.
pub(crate) fn referee() -> Option<&'static Referee> {
    static REFEREE: OnceLock<Option<Referee>> = OnceLock::new();
    REFEREE.get_or_init(compile).as_ref()
}

pub(crate) struct Referee(PathBuf);

/// What the header makes of a frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) fate: u8,
    /// `struct lw_relay_datagram`; of a frame that is not sent it says nothing.
    pub(crate) datagram: Vec<u8>,
    /// Bytes of payload that the output counts.
    pub(crate) payload: i32,
    pub(crate) marked: Vec<u8>,
    pub(crate) sent: Vec<u8>,
}

fn compile() -> Option<Referee> {
    if Command::new("cc").arg("--version").output().is_err() {
        skip("there is no C compiler `cc`");
        return None;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join("referee-relay");
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
            .arg(here.join("tests/kernel/referee.c"))
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
    /// What becomes of frames, each by itself, that come in by `ifindex` and go to one output, given as the
    /// map has it.
    pub(crate) fn run(
        &self,
        [ttl_min, ifindex, slot]: [u32; 3],
        output: &[u8],
        frames: &[Vec<u8>],
    ) -> Vec<Seen> {
        let mut input = [ttl_min, ifindex, slot].map(u32::to_ne_bytes).concat();
        input.extend(output);
        for frame in frames {
            input.extend((frame.len() as u32).to_ne_bytes());
            input.extend(frame);
        }
        let output = self.run_on(input);
        let mut rest = &output[..];
        let mut take = |bytes: usize| {
            let (taken, behind) = rest.split_at(bytes);
            rest = behind;
            taken.to_vec()
        };
        let seen = frames.iter().map(|frame| Seen {
            fate: take(1)[0],
            datagram: take(DATAGRAM_BYTES),
            payload: i32::from_ne_bytes(take(4).try_into().expect("four bytes")),
            marked: take(frame.len()),
            sent: take(frame.len()),
        });
        seen.collect()
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
