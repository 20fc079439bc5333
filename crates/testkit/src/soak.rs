//! What `make soak` asks of a long test by the environment: how long it runs, on which lane, and what it draws again.

use std::env;
use std::hash::{BuildHasher, RandomState};

const SECONDS_DEFAULT: u64 = 600;

/// The seed in LANEWAY_SOAK_SEED, or one below 2^32 that is drawn anew.
///
/// # Panics
/// If it is no number.
pub fn seed() -> u64 {
    number("LANEWAY_SOAK_SEED").unwrap_or_else(|| RandomState::new().hash_one("a soak") >> 32)
}

/// The seconds in LANEWAY_SOAK_SECONDS, or 600.
///
/// # Panics
/// If they are no number.
pub fn seconds() -> u64 {
    number("LANEWAY_SOAK_SECONDS").unwrap_or(SECONDS_DEFAULT)
}

/// The lane spec in LANEWAY_SOAK_LANE, or this one.
pub fn lane(otherwise: &str) -> String {
    env::var("LANEWAY_SOAK_LANE").unwrap_or_else(|_| otherwise.to_owned())
}

/// The workers in LANEWAY_SOAK_WORKERS, or one.
///
/// # Panics
/// If they are no number.
pub fn workers() -> u64 {
    number("LANEWAY_SOAK_WORKERS").unwrap_or(1)
}

/// An empty one is none: make passes on what it was not given.
fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}
