//! Detectors against traces that they were not made on: each is drawn by chance, with another program, CPU, load and
//! size of the fault. The seeds are none that a threshold was chosen by.
//!
//! `LANEWAY_HELD_OUT_FROM` and `LANEWAY_HELD_OUT_TRACES` choose others and more of them.

#[macro_use]
mod scoring;

use laneway_trace_planted::Planted;
use scoring::{Made, Situation};

/// First seed.
const FROM: u64 = 7_300_000;
/// Traces per situation.
const TRACES: u64 = 40;

fn score(situation: &Situation) {
    let number = |name: &str, usual: u64| -> u64 {
        let value = std::env::var(name).ok();
        value.map_or(usual, |value| value.parse().expect("a whole number"))
    };
    let from = number("LANEWAY_HELD_OUT_FROM", FROM);
    let traces = number("LANEWAY_HELD_OUT_TRACES", TRACES);
    scoring::score(situation, true, from..from + traces, |seed| match situation.made {
        Made::With(fault) => Planted::drawn(fault, seed),
        Made::Though(benign) => Planted::benign(benign, seed),
    });
}

score_all!(score);
