//! Instruction counts of the hot paths, against a committed baseline.
//!
//! ```text
//!   laneway-bench check ─▶ valgrind: laneway-bench run CASE n ─┐ the difference, divided by the units of work
//!                     └──▶ valgrind: laneway-bench run CASE 3n ┘ between them, beside `baseline.toml`
//! ```
//!
//! This machine class has no hardware counters, and times on two shared CPUs differ by tens of per cent from minute
//! to minute. Instructions as valgrind counts them do not: what a commit adds to a hot path is seen at once.
//! Preparation and the first touch of memory are in both runs and cancel out.
//!
//! What it does not say: how long anything takes. Cache misses, system calls and the kernel are not in it; races are
//! for that.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it is a program")]

mod cases;
mod compare;
mod count;
mod ctf;
#[path = "../../crates/stack/examples/requests/far_ends.rs"]
mod far_ends;
mod relay;

use cases::CASES;
use std::env;
use std::path::Path;
use std::process::ExitCode;

const HELP: &str = "\
Instruction counts of the hot paths.

laneway-bench list               the cases, and what is counted in each
laneway-bench run CASE TIMES     does the work of a case so many times; what `check` has valgrind count
laneway-bench check [CASE...]    counts each case and compares it with the baseline; exit 1 if one grew too much
laneway-bench update             counts each case and writes the baseline
";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["list"] => {
            for case in CASES {
                println!("{:<14} per {:<10} {}", case.name, case.unit, case.about);
            }
            Ok(true)
        }
        ["run", name, times] => run(name, times),
        ["check", names @ ..] => compare::check(&baseline(), names),
        ["update"] => compare::update(&baseline()),
        _ => {
            print!("{HELP}");
            return ExitCode::from(if words.is_empty() { 0 } else { 2 });
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(why) => {
            eprintln!("laneway-bench: {why}");
            ExitCode::from(2)
        }
    }
}

fn baseline() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("baseline.toml")
}

fn run(name: &str, times: &str) -> Result<bool, String> {
    let case = cases::find(name)?;
    let times: u64 = times.parse().map_err(|_| format!("`{times}` is not a number of times"))?;
    let mut work = (case.prepare)();
    for _ in 0..times {
        work();
    }
    Ok(true)
}
