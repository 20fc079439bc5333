//! The text of an analysis and of a difference, against reviewed files.

use laneway_trace::{Analyzer, Options, Report, Source, diff, text};
use laneway_trace_planted::{Fault, Planted};
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
        diff(&[report(Fault::Healthy, 1, "before")], &[report(Fault::Contention, 2, "after")]);
    check(
        &text::difference(&difference, text::Style::default()),
        include_str!("golden/difference.txt"),
    );
}
