//! Detectors and advice against traces whose truth is known, over many seeds.

#[macro_use]
mod scoring;

use laneway_trace::Options;
use laneway_trace::result::{Analysis, State};
use laneway_trace_planted::{Fault, Planted};
use scoring::{Made, Situation, analyse};

const SEEDS: u64 = 20;
const POLLS: u32 = 6_000;

fn state(analysis: &Analysis, id: &str) -> State {
    analysis.findings.iter().find(|finding| finding.id == id).expect("all twelve").state
}

fn advised(analysis: &Analysis, rule: &str) -> bool {
    analysis.advice.iter().any(|advice| advice.rule == rule)
}

fn score(situation: &Situation) {
    // One situation per fault, where `held_out.rs` draws; what is benign is drawn here too.
    scoring::score(situation, false, 0..SEEDS, |seed| match situation.made {
        Made::With(fault) => Planted::new(fault, seed, POLLS),
        Made::Though(benign) => Planted::benign(benign, seed),
    });
}

score_all!(score);

#[test]
fn a_period_is_named() {
    for seed in 0..8 {
        let planted = Planted::new(Fault::Period, seed, POLLS);
        let analysis = analyse(&planted, Options::default());
        let finding = analysis.findings.iter().find(|finding| finding.id == "D4").expect("D4");
        let Some(value) = finding.value else { continue };
        let truth = planted.period_ns as f64 / 1e6;
        assert!((value / truth - 1.0).abs() < 0.1, "seed {seed}: {value} ms, planted {truth} ms");
    }
}

#[test]
fn stalls_without_a_kernel_join_are_unattributed() {
    let analysis = analyse(&Planted::new(Fault::Stall, 1, POLLS), Options::default());
    assert!(analysis.worst[0].cause == "unattributed", "{:?}", analysis.worst[0]);
    assert!(!advised(&analysis, "give the thread its CPU"));
    assert!(advised(&analysis, "record the kernel's side"));
}

#[test]
fn stalls_by_preemption_are_attributed() {
    let analysis = analyse(&Planted::new(Fault::Preemption, 1, POLLS), Options::default());
    assert!(analysis.worst[0].cause == "preempted", "{:?}", analysis.worst[0]);
    assert!(advised(&analysis, "give the thread its CPU"));
}

#[test]
fn loss_withholds_maxima_stalls_and_periods() {
    let planted = Planted::new(Fault::Loss, 3, POLLS);
    let analysis = analyse(&planted, Options::default());
    assert_eq!(analysis.coverage.cut, planted.cut, "every call that a hole cut is counted");
    assert_eq!(analysis.coverage.losses, 20);
    assert_eq!(analysis.coverage.discarded, 800);
    assert_eq!(state(&analysis, "D4"), State::Withheld);
    assert_eq!(state(&analysis, "D7"), State::Withheld);
    assert!(analysis.worst.is_empty());
    assert!(analysis.functions.iter().all(|row| row.durations.max.is_none()));
}

#[test]
fn dominated_functions_are_not_ranked() {
    let analysis = analyse(&Planted::new(Fault::Overhead, 2, POLLS), Options::default());
    let helper = analysis.functions.iter().find(|row| row.name == "get_start_cycles");
    assert!(helper.expect("called").dominated);
    let first = analysis.functions.iter().position(|row| row.dominated).expect("some");
    assert!(analysis.functions[first..].iter().all(|row| row.dominated), "unranked come last");
    assert!(advised(&analysis, "trace less"));
}

#[test]
fn a_slow_cpu_is_to_blame_and_not_the_pool() {
    let analysis = analyse(&Planted::new(Fault::Contention, 1, POLLS), Options::default());
    assert!(!advised(&analysis, "raise the mempool cache"));
    assert!(advised(&analysis, "give the thread its CPU"));
}

#[test]
fn the_mempool_cache_is_blamed_only_with_proof() {
    let analysis = analyse(&Planted::new(Fault::Depletion, 1, POLLS), Options::default());
    assert!(advised(&analysis, "raise the mempool cache"));
    assert!(advised(&analysis, "enlarge the mempool"));
    for fault in [Fault::Healthy, Fault::Stall, Fault::Contention, Fault::Overhead, Fault::Period] {
        let analysis = analyse(&Planted::new(fault, 1, POLLS), Options::default());
        assert!(!advised(&analysis, "raise the mempool cache"), "{fault:?}");
        let silent = analysis.silent.iter().any(|silent| silent.rule == "raise the mempool cache");
        assert!(silent, "{fault:?}: it says why not");
    }
}

/// The founding report blamed the mempool. Its figures: 48.7 k calls, 491 productive, 3.1 k packets, 99 % empty.
#[test]
fn on_the_founding_report_the_mempool_is_not_blamed_and_the_page_says_why() {
    let planted = Planted::founding_report(1);
    let analysis = analyse(&planted, Options::default());
    let poll = &analysis.polls[0];
    assert_eq!((poll.polls, poll.polls - poll.empty), (48_727, 491));
    assert!((3_000..3_200).contains(&poll.packets), "{}", poll.packets);
    let productive = poll.packets_per_productive.expect("some were");
    assert!((6.2..6.4).contains(&productive), "{productive}");

    assert!(!advised(&analysis, "raise the mempool cache"));
    let silent = analysis.silent.iter().find(|silent| silent.rule == "raise the mempool cache");
    let why = &silent.expect("considered").why;
    for reason in
        ["Failed allocations are not in this trace", "exclude helpers", "add a kernel trace"]
    {
        assert!(why.contains(reason), "{reason:?} in {why}");
    }
    assert!(!why.contains("af_packet"), "the trace shows no other lane: {why}");
    assert_ne!(state(&analysis, "D1"), State::Fired, "empty polls without loss are idle capacity");
    assert_ne!(state(&analysis, "D11"), State::Fired, "allocation is mostly the tracer");
    assert_eq!(state(&analysis, "D12"), State::Fired, "the tracer dominates");
    let alloc =
        analysis.functions.iter().find(|row| row.name == "rte_mempool_get").expect("called");
    assert!(alloc.dominated);
}

#[test]
fn a_rate_without_instrumentation_gives_the_slow_down() {
    let planted = Planted::new(Fault::Healthy, 1, POLLS);
    let plain = analyse(&planted, Options::default());
    let rate = plain.packets.per_second.expect("known");
    let options = Options { control_per_second: Some(3.0 * rate), ..Options::default() };
    let control = analyse(&planted, options).control.expect("given");
    assert!((control.slow_down.expect("both rates") - 3.0).abs() < 1e-9);
}

#[test]
fn drops_elsewhere_turn_idle_polls_into_a_finding() {
    let planted = Planted::new(Fault::Healthy, 1, POLLS);
    assert_eq!(state(&analyse(&planted, Options::default()), "D1"), State::Silent);
    let options = Options { drops: Some(1_000), ..Options::default() };
    assert_eq!(state(&analyse(&planted, options), "D1"), State::Fired);
}
