//! The text of an analysis and of a difference, against reviewed files.

use laneway_trace::planted::{Fault, Planted};
use laneway_trace::{Analyzer, Options, Report, Source, diff, text};
use laneway_trace_read::Producer;

fn report(fault: Fault, seed: u64, input: &str) -> Report {
    let planted = Planted::new(fault, seed, 3_000);
    let mut analyzer = Analyzer::new(Options::default());
    planted.feed(&mut analyzer);
    let source = Source {
        producers: vec![Producer::Laneway],
        inputs: vec![input.to_owned()],
        ..Source::default()
    };
    analyzer.finish(&source, &mut |key| planted.name(key))
}

fn check(text: &str, golden: &str) {
    let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    assert!(widest <= text::COLUMNS, "{widest} columns");
    if text.trim_end() != golden.trim_end() {
        let changed = text.lines().zip(golden.lines()).find(|(found, expected)| found != expected);
        panic!("{changed:#?}\nthe whole text:\n{text}");
    }
}

#[test]
fn an_analysis_reads_as_reviewed() {
    let report = report(Fault::Preemption, 1, "planted");
    check(&text::analysis(&report.analysis), include_str!("golden/preemption.txt"));
}

#[test]
fn a_difference_reads_as_reviewed() {
    let difference =
        diff(&report(Fault::Healthy, 1, "before"), &report(Fault::Contention, 2, "after"));
    check(&text::difference(&difference), include_str!("golden/difference.txt"));
}

#[test]
fn traces_of_the_same_program_do_not_differ() {
    let mut alarms = 0;
    for seed in 0..20 {
        let (one, two) =
            (report(Fault::Healthy, seed, "one"), report(Fault::Healthy, seed + 100, "two"));
        let difference = diff(&one, &two);
        let rows = difference.layers.iter().chain(&difference.functions);
        alarms += u32::from(
            rows.into_iter().any(|row| row.verdict == "worse" || row.verdict == "better"),
        );
    }
    assert!(alarms <= 1, "{alarms} of 20");
}

#[test]
fn a_trace_does_not_differ_from_itself() {
    let one = report(Fault::Healthy, 3, "one");
    let difference = diff(&one, &one);
    let rows = difference.rates.iter().chain(&difference.layers).chain(&difference.functions);
    for row in rows {
        assert!(matches!(row.verdict.as_str(), "same" | "inconclusive"), "{row:?}");
        assert!(row.ratio.is_none_or(|ratio| (ratio - 1.0).abs() < 1e-9), "{row:?}");
    }
}
