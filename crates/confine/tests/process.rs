//! A confined process as the kernel shows it, and what it can do no more.
//!
//! There is no way back for a thread, so each test is a process of its own: this program again, with the name of
//! what it is to do in its environment.
#![forbid(unsafe_code)]

use laneway_confine::{Calls, Capability, Confinement, Forbidden};
use laneway_testkit::skip;
use std::env;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::sync::Arc;
use std::thread;

const WHAT: &str = "LANEWAY_CONFINED_TEST";
/// Written where all of it held.
const HELD: &str = "it all held";

/// The kernel's own words about the calling thread.
fn status(member: &str) -> String {
    let text = fs::read_to_string("/proc/thread-self/status").expect("a file of the kernel's");
    let line = text.lines().find_map(|line| line.strip_prefix(member)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {member}")).trim().to_owned()
}

fn set(member: &str) -> u64 {
    u64::from_str_radix(&status(member), 16).expect("a set is hexadecimal")
}

fn confinement(kept: &[Capability], forbidden: Forbidden) -> Confinement {
    Confinement::new(kept, &[Calls::IoUring], forbidden).expect("this processor has a filter")
}

fn has_no_more_than(kept: u64) {
    for member in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
        assert_eq!(set(member) & !kept, 0, "{member}");
    }
    assert_eq!((status("NoNewPrivs"), status("Seccomp")), ("1".to_owned(), "2".to_owned()));
}

fn cannot_execute() {
    let error = Command::new("true").status().expect_err("a program was executed");
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
}

/// What the child does, by name.
fn child(what: &str) {
    match what {
        "sets" => {
            let bound = set("CapBnd");
            let could_lower_it = set("CapEff") & 1 << 8 != 0;
            confinement(&[Capability::NetRaw], Forbidden::Fail).enter().unwrap();
            has_no_more_than(1 << 13);
            let wanted = if could_lower_it { bound & 1 << 13 } else { bound };
            assert_eq!(set("CapBnd"), wanted);
            // Those that it starts have no more, and can work.
            let of_child = thread::spawn(|| {
                has_no_more_than(1 << 13);
                cannot_execute();
                fs::read_to_string("/proc/self/stat").unwrap().len()
            });
            assert!(of_child.join().unwrap() > 0);
            cannot_execute();
        }
        "beside" => {
            let confinement = Arc::new(confinement(&[], Forbidden::Fail));
            let started = confinement.beside(|| thread::spawn(|| has_no_more_than(0)));
            started.unwrap().join().unwrap();
            assert_eq!(status("Seccomp"), "0", "the calling thread is as it was");
            Command::new("true").status().expect("it may");
            // Twice is not more than once.
            confinement.enter().unwrap();
            let again = thread::spawn(move || confinement.beside(|| ()));
            assert!(again.join().unwrap().is_err(), "a filter cannot be added from inside");
        }
        "log" => {
            confinement(&[], Forbidden::Log).enter().unwrap();
            Command::new("true").status().expect("it is logged and made");
        }
        "kill" => {
            confinement(&[], Forbidden::Kill).enter().unwrap();
            // A thread is one all the same.
            thread::spawn(|| ()).join().unwrap();
            let _ = Command::new("true").status();
            unreachable!("the kernel has ended it");
        }
        other => panic!("no test `{other}`"),
    }
    eprintln!("{HELD}");
}

#[test]
fn confined() {
    if let Ok(what) = env::var(WHAT) {
        child(&what);
    }
}

fn again(what: &str) -> Output {
    let program = env::current_exe().expect("it runs");
    let mut command = Command::new(program);
    command.args(["--exact", "confined", "--nocapture"]).env(WHAT, what);
    command.output().expect("it runs again")
}

fn holds(what: &str) {
    let output = again(what);
    let printed = String::from_utf8_lossy(&output.stdout);
    let why = String::from_utf8_lossy(&output.stderr);
    if why.contains("CONFIG_SECCOMP_FILTER") {
        return skip(why);
    }
    assert!(output.status.success() && why.contains(HELD), "{printed}{why}");
}

#[test]
fn a_thread_keeps_what_it_was_left_and_so_do_those_that_it_starts() {
    holds("sets");
}

#[test]
fn helpers_are_confined_from_their_beginning_and_who_starts_them_is_not() {
    holds("beside");
}

#[test]
fn a_forbidden_call_is_made_where_it_is_to_be_logged_only() {
    holds("log");
}

#[test]
fn a_forbidden_call_ends_the_process_where_it_is_to() {
    let output = again("kill");
    let why = String::from_utf8_lossy(&output.stderr);
    if why.contains("CONFIG_SECCOMP_FILTER") {
        return skip(why);
    }
    // SIGSYS
    assert_eq!(output.status.signal(), Some(31), "{why}");
}
