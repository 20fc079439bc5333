//! How much of what can be tried is tried: by a run of `make test` a part that is drawn anew, by `make soak
//! APP=journal` all of it.

use laneway_random::Random;
use std::env;
use std::time::{SystemTime, UNIX_EPOCH};

/// Set: all of it.
const ALL: &str = "LANEWAY_JOURNAL_ALL";
/// Draws what a run that failed has drawn.
const SEED: &str = "LANEWAY_JOURNAL_SEED";

/// `all`, or the part of it.
pub(crate) fn of(all: u64, part: u64) -> u64 {
    if env::var_os(ALL).is_some() { all } else { part }
}

/// What a test draws from; printed, so that a failure can be repeated.
#[expect(clippy::print_stdout, reason = "shown where the test fails")]
pub(crate) fn seed() -> u64 {
    let asked = env::var(SEED).ok().filter(|text| !text.is_empty());
    let seed = match asked {
        Some(text) => text.parse().unwrap_or_else(|_| panic!("{SEED}={text} is no number")),
        None => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Random::seeded(now.as_nanos() as u64).draw() >> 32
        }
    };
    println!("{SEED}={seed} draws the same again");
    seed
}
