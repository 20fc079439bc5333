//! Detectors scored over many planted traces: hits, and alarms where nothing is.

use laneway_trace::planted::{Fault, Planted};
use laneway_trace::result::{Analysis, State};
use laneway_trace::{Analyzer, Options, Source};

/// What the detectors make of a planted trace.
pub(crate) fn analyse(planted: &Planted, options: Options) -> Analysis {
    let mut analyzer = Analyzer::new(options);
    planted.feed(&mut analyzer);
    analyzer.finish(&Source::default(), &mut |key| planted.name(key)).analysis
}

/// Over all of `seeds`: `expected` fires in at least 95 %, nothing but `expected` and `follows` in more than 5 %, of
/// all detectors together.
///
/// `follows` are detectors that may rightly fire as well, because the fault does that too.
#[allow(clippy::print_stdout, reason = "cargo shows the score where a test is asked for it")]
pub(crate) fn score(
    fault: Fault,
    seeds: std::ops::Range<u64>,
    plant: impl Fn(u64) -> Planted,
    expected: &[&str],
    follows: &[&str],
) {
    let traces = seeds.end - seeds.start;
    let (mut hits, mut missed, mut alarms) = (0, Vec::new(), Vec::new());
    for seed in seeds {
        let analysis = analyse(&plant(seed), Options::default());
        let is = |state: State| analysis.findings.iter().filter(move |f| f.state == state);
        let hit = expected.iter().all(|id| is(State::Fired).any(|finding| finding.id == *id));
        hits += u64::from(hit);
        let told = |findings: Vec<&laneway_trace::result::Finding>| -> Vec<String> {
            findings.iter().map(|f| format!("seed {seed}: {} {}", f.id, f.sentence)).collect()
        };
        if !hit {
            let asked = analysis.findings.iter().filter(|f| expected.contains(&f.id.as_str()));
            missed.extend(told(asked.collect()));
        }
        let wrong = is(State::Fired)
            .filter(|finding| !expected.contains(&finding.id.as_str()))
            .filter(|finding| !follows.contains(&finding.id.as_str()));
        let wrong = told(wrong.collect());
        if !wrong.is_empty() {
            alarms.push(wrong);
        }
    }
    let figures = format!("{fault:?}: {hits} hits, {} false alarms of {traces}", alarms.len());
    println!("{figures}; missed: {missed:#?}, alarms: {alarms:#?}");
    assert!(hits * 100 >= traces * 95, "{figures}");
    assert!(alarms.len() as u64 * 100 <= traces * 5, "{figures}");
}
