//! Detectors scored over many planted traces: hits, and alarms where nothing is. One table of situations for all tests.

use laneway_trace::result::{Analysis, State};
use laneway_trace::{Analyzer, Options, Source};
use laneway_trace_planted::Planted;
pub(crate) use laneway_trace_planted::{Benign, Fault};

/// What a trace is made with.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Made {
    With(Fault),
    Though(Benign),
}

/// A situation, and what the detectors have to make of it.
#[derive(Debug)]
pub(crate) struct Situation {
    pub(crate) made: Made,
    /// These fire.
    pub(crate) expected: &'static [&'static str],
    /// These may fire as well, and rightly, because the fault does that too.
    pub(crate) follows: &'static [&'static str],
    /// So may these where all else is drawn by chance.
    pub(crate) follows_by_chance: &'static [&'static str],
}

/// A test for each situation, which gives it to `$score`.
macro_rules! score_all {
    (@optional) => { &[] };
    (@optional $some:expr) => { &$some };
    ($score:ident) => {
        score_all! { $score:
            a_healthy_loop_raises_no_alarm: With(Fault::Healthy), [], [];
            // Two speeds of one function are two modes too.
            a_period_is_found: With(Fault::Period), ["D4"], ["D3"];
            // Empty polls beside failed allocations are polls where the packets are not.
            depletion_is_found: With(Fault::Depletion), ["D6"], [], ["D1"];
            a_costly_refill_cycle_is_found: With(Fault::Cycle), ["D6"], ["D3", "D4", "D11"];
            stalls_are_found: With(Fault::Stall), ["D7"], [];
            stalls_by_preemption_are_found: With(Fault::Preemption), ["D7"], [];
            loss_is_reported: With(Fault::Loss), ["D12"], [];
            a_costly_tracer_is_reported: With(Fault::Overhead), ["D12"], [];
            // Everything has two speeds then.
            a_slow_cpu_is_common_to_all_functions: With(Fault::Contention), ["D5"], ["D3", "D4"];
            imbalance_is_found: With(Fault::Imbalance), ["D9"], [];
            backpressure_is_found: With(Fault::Backpressure), ["D10"], ["D1"];
            // Between two floods it may be idle for most of the time.
            a_worker_that_falls_behind_is_found: With(Fault::Backlog), ["D9"], ["D1"];
            idling_beside_a_backlog_is_found: With(Fault::Misplaced), ["D1", "D9"], [];
            full_bursts_alone_are_no_queue: Though(Benign::FullBursts), [], [];
            batches_that_are_served_are_no_queue: Though(Benign::Batches), [], [];
            one_packet_a_call_is_no_full_burst: Though(Benign::OneByOne), [], [];
            few_or_many_packets_a_call_are_no_fault: Though(Benign::OtherSizes), [], [];
            a_ring_full_at_the_start_is_no_queue: Though(Benign::FullRing), [], [];
            a_queue_without_flows_is_no_imbalance: Though(Benign::IdleQueue), [], [];
            a_slow_start_is_no_stall: Though(Benign::SlowStart), [], [];
            cold_caches_are_no_fault: Though(Benign::WarmUp), [], [];
            housekeeping_is_no_fault: Though(Benign::Housekeeping), [], [];
            cheap_fills_are_no_fault: Though(Benign::CheapFills), [], [];
            // Where little comes, a wake-up per packet is a crossing per packet.
            sleeping_is_no_stall: Though(Benign::Sleeping), [], ["D8"];
            silence_on_the_line_is_no_fault: Though(Benign::Nothing), [], [];
        }
    };
    ($score:ident: $($name:ident: $how:ident($kind:ident::$what:ident), $expected:expr, $follows:expr $(, $by_chance:expr)?;)+) => {
        $(
            #[test]
            fn $name() {
                $score(&scoring::Situation {
                    made: scoring::Made::$how(scoring::$kind::$what),
                    expected: &$expected,
                    follows: &$follows,
                    follows_by_chance: score_all!(@optional $($by_chance)?),
                });
            }
        )+
    };
}

/// What the detectors make of a planted trace.
pub(crate) fn analyse(planted: &Planted, options: Options) -> Analysis {
    let mut analyzer = Analyzer::new(options);
    planted.feed(&mut analyzer);
    analyzer.finish(&Source::default(), &mut |key| planted.name(key)).analysis
}

/// Over all of `seeds`: what is expected fires in at least 95 %, nothing but that and what may follow in more than 5 %,
/// of all detectors together.
#[allow(clippy::print_stdout, reason = "cargo shows the score where a test is asked for it")]
pub(crate) fn score(
    situation: &Situation,
    by_chance: bool,
    seeds: std::ops::Range<u64>,
    plant: impl Fn(u64) -> Planted,
) {
    let Situation { made, expected, follows, follows_by_chance } = situation;
    let may_follow =
        |id: &str| follows.contains(&id) || by_chance && follows_by_chance.contains(&id);
    let traces = seeds.end - seeds.start;
    let (mut hits, mut missed, mut alarms) = (0, Vec::new(), Vec::new());
    for seed in seeds {
        let analysis = analyse(&plant(seed), Options::default());
        let is = |state: State| analysis.findings.iter().filter(move |f| f.state == state);
        let hit = expected.iter().all(|id| is(State::Fired).any(|finding| finding.id == *id));
        hits += u64::from(hit);
        let names = |findings: Vec<&laneway_trace::result::Finding>| -> Vec<String> {
            findings.iter().map(|f| format!("seed {seed}: {} {}", f.id, f.sentence)).collect()
        };
        if !hit {
            let asked = analysis.findings.iter().filter(|f| expected.contains(&f.id.as_str()));
            missed.extend(names(asked.collect()));
        }
        let wrong = is(State::Fired)
            .filter(|finding| !expected.contains(&finding.id.as_str()))
            .filter(|finding| !may_follow(&finding.id));
        let wrong = names(wrong.collect());
        if !wrong.is_empty() {
            alarms.push(wrong);
        }
    }
    let figures = format!("{made:?}: {hits} hits, {} false alarms of {traces}", alarms.len());
    println!("{figures}; missed: {missed:#?}, alarms: {alarms:#?}");
    assert!(hits * 100 >= traces * 95, "{figures}");
    assert!(alarms.len() as u64 * 100 <= traces * 5, "{figures}");
}
