//! Runs a target without a fuzzer: on the files given, then on seeded changes of them. Compiles on stable Rust.
//!
//! `replay TARGET [--changed COUNT] [--seed SEED] [FILE|FOLDER]...`
#![forbid(unsafe_code)]

use laneway_fuzz::{Mutator, TARGETS, Target, samples};
use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, panic};

struct Job {
    target: Target,
    samples: Vec<Vec<u8>>,
    changed: u64,
    seed: u64,
}

fn main() -> ExitCode {
    match job(env::args().skip(1)) {
        Ok(job) => run(&job),
        Err(why) => {
            let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
            eprintln!("replay: {why}");
            eprintln!(
                "use: replay {} [--changed COUNT] [--seed SEED] [FILE|FOLDER]...",
                names.join("|")
            );
            ExitCode::from(2)
        }
    }
}

fn job(mut args: impl Iterator<Item = String>) -> Result<Job, String> {
    let name = args.next().ok_or("which target?")?;
    let target =
        TARGETS.iter().find(|t| t.name == name).ok_or(format!("there is no target `{name}`"))?;
    let mut job = Job { target: *target, samples: Vec::new(), changed: 0, seed: 1 };
    while let Some(arg) = args.next() {
        let mut number = || {
            let text = args.next().unwrap_or_default();
            text.parse::<u64>().map_err(|_| format!("{arg} {text}: a whole number was expected"))
        };
        match arg.as_str() {
            "--changed" => job.changed = number()?,
            "--seed" => job.seed = number()?,
            path => {
                let found = samples(Path::new(path)).map_err(|error| format!("{path}: {error}"))?;
                job.samples.extend(found);
            }
        }
    }
    Ok(job)
}

/// The input that breaks a target is kept beside the caller, as libFuzzer does.
fn run(job: &Job) -> ExitCode {
    let mut mutator = Mutator::new(job.seed);
    let changed = (0..job.changed).map(|_| mutator.input(&job.samples));
    let mut runs = 0u64;
    for input in job.samples.iter().cloned().chain(changed) {
        if panic::catch_unwind(|| (job.target.run)(&input)).is_err() {
            let name = format!("crash-{}-{}-{runs}", job.target.name, job.seed);
            match fs::write(&name, &input) {
                Ok(()) => eprintln!("replay: input {runs} breaks {}: {name}", job.target.name),
                Err(error) => eprintln!("replay: input {runs} breaks it; {name}: {error}"),
            }
            return ExitCode::FAILURE;
        }
        runs += 1;
    }
    eprintln!("replay: {}: {runs} inputs, no find", job.target.name);
    ExitCode::SUCCESS
}
