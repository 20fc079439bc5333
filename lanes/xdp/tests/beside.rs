//! Programs that another process has loaded, found by number and by where they are pinned. Needs root;
//! says so and passes otherwise.

#[path = "../../../crates/bpf/tests/support/mod.rs"]
#[expect(dead_code, reason = "shared with tests that use more of it")]
mod support;

use laneway_bpf::{BpfError, Loaded};
use laneway_testkit::skip;
use laneway_xdp::{check, find_program};
use std::{fs, path::PathBuf, process::Command, thread, time::Duration};

const COUNT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/test_count.bpf.o"));

/// Naps of 10 ms until a program is gone that nothing holds.
const NAPS_MAX: usize = 3000;

/// A loaded program; nothing, and says so, without root.
fn loaded() -> Option<Loaded> {
    match Loaded::load(&support::half(COUNT, 1 << 16, Vec::new())) {
        Ok(loaded) => Some(loaded),
        Err(e @ BpfError::NotPermitted { .. }) => {
            skip(e);
            None
        }
        Err(e) => panic!("{e}"),
    }
}

/// A pin that is removed with this.
struct Pin(PathBuf);

impl Pin {
    fn new(kind: &str, id: u32) -> Option<Pin> {
        let path = format!("/sys/fs/bpf/laneway-test-{kind}-{}", std::process::id());
        let output =
            Command::new("bpftool").args([kind, "pin", "id", &id.to_string(), &path]).output();
        match output {
            Ok(output) if output.status.success() => Some(Pin(path.into())),
            Ok(output) => {
                skip(format!("bpftool: {}", String::from_utf8_lossy(&output.stderr).trim()));
                None
            }
            Err(error) => {
                skip(format!("bpftool: {error}"));
                None
            }
        }
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("made here")
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        // A failed test has reported why already.
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn a_program_is_found_by_its_number_and_by_its_pin() {
    let Some(loaded) = loaded() else { return };
    let id = loaded.program_id().unwrap();
    let by_number = find_program(&id.to_string()).unwrap();
    assert_eq!((by_number.id(), by_number.name()), (id, "count"));
    let Some(pin) = Pin::new("prog", id) else { return };
    let by_pin = find_program(pin.path()).unwrap();
    assert_eq!(by_pin.to_string(), by_number.to_string());
    // It stays as long as a process holds it.
    drop((loaded, pin, by_number));
    assert_eq!(find_program(&id.to_string()).unwrap().id(), id);
}

#[test]
fn what_is_no_program_is_distinguished() {
    let Some(loaded) = loaded() else { return };
    let gone = loaded.program_id().unwrap();
    drop(loaded);
    // Another test's child process has a copy of every descriptor between its fork and its exec.
    let is_gone = (0..NAPS_MAX).any(|_| {
        let is_gone = find_program(&gone.to_string()).is_err();
        if !is_gone {
            thread::sleep(Duration::from_millis(10));
        }
        is_gone
    });
    assert!(is_gone, "program {gone} stays");
    for (text, want) in [
        (gone.to_string(), "no BPF program of this number"),
        ("count".to_owned(), "neither the number"),
        ("/sys/fs/bpf/laneway-gone".to_owned(), "nothing is pinned there"),
        ("/dev/null".to_owned(), "no pinned BPF program"),
    ] {
        let sentence = find_program(&text).expect_err(want).to_string();
        assert!(sentence.starts_with(&format!("xdp: {text}: ")), "{sentence}");
        assert!(sentence.contains(want) && sentence.contains("bpftool prog"), "{sentence}");
    }
}

#[test]
fn a_half_that_the_kernel_takes_is_let_go_again() {
    if loaded().is_none() {
        return;
    }
    let mut half = support::half(COUNT, 1 << 16, Vec::new());
    check(&half).unwrap();
    half.program = "nothing";
    assert!(check(&half).unwrap_err().to_string().contains("no program `nothing`"));
}
