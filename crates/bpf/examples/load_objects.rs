//! Loads every eBPF object of the folders named, as it was compiled, and says what the running kernel's
//! verifier answers: `cargo run -p laneway-bpf --example load_objects -- FOLDER...`
//!
//! The folders are those of build scripts. Constants are those of the object, so what a configuration
//! switches on is not verified here: the tests of each app load theirs. Nothing is attached. Exit code 1
//! if one is refused. `test_refused` must be.
#![allow(clippy::print_stdout, reason = "the answer is what this program is for")]

use libbpf_rs::ObjectBuilder;
use std::{collections::BTreeMap, env, fs, path::PathBuf, process::ExitCode};

/// The one object whose refusal is what is wanted.
const MUST_BE_REFUSED: &str = "test_refused.bpf.o";

fn main() -> ExitCode {
    let mut objects: BTreeMap<String, PathBuf> = BTreeMap::new();
    for folder in env::args_os().skip(1) {
        let files = fs::read_dir(&folder).map(|files| files.flatten().collect());
        for file in files.unwrap_or_else(|_| Vec::new()) {
            let name = file.file_name().to_string_lossy().into_owned();
            if name.ends_with(".bpf.o") {
                objects.insert(name, file.path());
            }
        }
    }
    let mut unfit = usize::from(objects.is_empty());
    for (name, path) in &objects {
        let loaded = ObjectBuilder::default().open_file(path).and_then(|object| object.load());
        let programs =
            loaded.as_ref().map(|object| object.progs().count()).map_err(|e| e.to_string());
        match &programs {
            Ok(programs) => println!("{name}: loaded, {programs} programs"),
            Err(why) => println!("{name}: refused: {why}"),
        }
        unfit += usize::from(programs.is_ok() == (name == MUST_BE_REFUSED));
    }
    println!("{} objects, {unfit} with another answer than wanted", objects.len());
    if unfit == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
