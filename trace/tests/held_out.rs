//! Detectors against traces that they were not made on: each is drawn by chance, with another program, CPU, load and
//! size of the fault (specification 6.8). The seeds are none that a threshold was chosen by.
//!
//! `LANEWAY_HELD_OUT_FROM` and `LANEWAY_HELD_OUT_TRACES` choose others and more of them.

mod scoring;

use laneway_trace::planted::{Fault, Planted};

/// First seed.
const FROM: u64 = 40_000;
/// Traces per fault.
const TRACES: u64 = 40;

fn score(fault: Fault, expected: &[&str], follows: &[&str]) {
    let number = |name: &str, usual: u64| -> u64 {
        let told = std::env::var(name).ok();
        told.map_or(usual, |told| told.parse().expect("a whole number"))
    };
    let from = number("LANEWAY_HELD_OUT_FROM", FROM);
    let traces = number("LANEWAY_HELD_OUT_TRACES", TRACES);
    let plant = |seed| Planted::drawn(fault, seed);
    scoring::score(fault, from..from + traces, plant, expected, follows);
}

#[test]
fn a_healthy_loop_raises_no_alarm() {
    score(Fault::Healthy, &[], &[]);
}

#[test]
fn a_period_is_found() {
    score(Fault::Period, &["D4"], &["D3"]);
}

#[test]
fn depletion_is_found() {
    // Empty polls beside failed allocations are polls where the packets are not.
    score(Fault::Depletion, &["D6"], &["D1"]);
}

#[test]
fn a_costly_refill_cycle_is_found() {
    score(Fault::Cycle, &["D6"], &["D3", "D4", "D11"]);
}

#[test]
fn stalls_are_found() {
    score(Fault::Stall, &["D7"], &[]);
}

#[test]
fn stalls_by_preemption_are_found() {
    score(Fault::Preemption, &["D7"], &[]);
}

#[test]
fn loss_is_told() {
    score(Fault::Loss, &["D12"], &[]);
}

#[test]
fn a_costly_tracer_is_told() {
    score(Fault::Overhead, &["D12"], &[]);
}

#[test]
fn a_slow_cpu_is_common_to_all_functions() {
    score(Fault::Contention, &["D5"], &["D3", "D4"]);
}

#[test]
fn imbalance_is_found() {
    score(Fault::Imbalance, &["D9"], &[]);
}

#[test]
fn backpressure_is_found() {
    score(Fault::Backpressure, &["D10"], &["D1"]);
}
