//! The seed of a test that draws anew at each run.

use std::hash::{BuildHasher, RandomState};

/// Draws again what a run that failed has drawn.
const VARIABLE: &str = "LANEWAY_SEED";

/// A seed of its own for every run, or the one that `LANEWAY_SEED` names. Prints it, and how to draw the same again.
///
/// # Panics
///
/// If the variable holds something else than a number.
#[expect(clippy::print_stdout, reason = "shown where the test fails")]
pub fn seed() -> u64 {
    let seed = match std::env::var(VARIABLE) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{VARIABLE}={text} is no number")),
        Err(_) => RandomState::new().hash_one(0),
    };
    println!("{VARIABLE}={seed} draws the same again");
    seed
}
