//! The gallery's short form: a few cheap kinds of real situations, once each, with parameters drawn anew at each run.
//!
//! It holds what must hold on any machine: recordings are made, their truth is well formed and written before the
//! analysis, which runs. What the analysis says is shown; `make gallery` judges it, on a quiet machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::time::{SystemTime, UNIX_EPOCH};

use laneway_testkit::skip;
use laneway_trace_gallery::{KINDS, NotMade, Outcome, World, run};

/// Repeats the draws of a run that printed it.
const SEED: &str = "LANEWAY_GALLERY_SEED";

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn seed() -> u64 {
    let asked = std::env::var(SEED).ok().map(|text| text.parse().expect("a seed is a number"));
    asked.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
        now.as_secs() % 1_000_000
    })
}

#[test]
#[allow(clippy::print_stdout, reason = "what a judge saw is of use where the test fails")]
fn the_cheap_kinds_of_the_gallery_are_made_and_analysed() {
    let folder =
        Folder(std::env::temp_dir().join(format!("laneway-gallery-test-{}", process::id())));
    fs::create_dir(&folder.0).expect("the temporary folder is writable");
    let laneway = Path::new(env!("CARGO_BIN_EXE_laneway"));
    let world = World::new(laneway, &folder.0, &folder.0, true).keeping();
    let seed = seed();
    println!("{SEED}={seed}");
    for kind in KINDS.iter().filter(|kind| kind.quick) {
        let name = kind.name;
        match run(&world, kind, seed) {
            Outcome::NotMade(NotMade::Skipped(why)) => skip(format!("{name}: {why}")),
            // On a machine that does much else even a light load loses frames.
            Outcome::NotMade(NotMade::Missed(why)) => {
                skip(format!("{name} {seed}: no case: {why}"))
            }
            Outcome::NotMade(NotMade::Failed(why)) => panic!("{name}, seed {seed}: {why}"),
            Outcome::NoCauses(sentence) => {
                println!("{name} {seed}: {sentence}");
                assert_truth(&folder.0.join(name), seed);
            }
            Outcome::Judged(verdict) => {
                println!("{name} {seed}: {}", verdict.words);
                assert_eq!(verdict.unclosed, None, "{name}, seed {seed}");
                assert_truth(&folder.0.join(name), seed);
            }
        }
    }
}

/// The truth lies beside the recording, older than the analysis of it.
#[track_caller]
fn assert_truth(folder: &Path, seed: u64) {
    let text = fs::read(folder.join("truth.json")).expect("a recording has a truth");
    let truth: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!(truth["seed"], seed);
    assert!(truth["known_from"].as_array().is_some_and(|from| !from.is_empty()), "{truth}");
    let written = |file: &str| {
        let metadata = fs::metadata(folder.join(file)).expect("it was written");
        metadata.modified().expect("files have times")
    };
    assert!(written("truth.json") <= written("analysis.json"));
}
