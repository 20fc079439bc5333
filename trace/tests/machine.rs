//! The stack machine's rules, one each.

use laneway_trace::result::Analysis;
use laneway_trace::{Analyzer, Name, Options, Source};
use laneway_trace_read::{Consumer, Event, FunctionKey, Kind, Loss, Thread, ThreadId};

const ONE: ThreadId = ThreadId(0);

fn enter(time_ns: u64, function: u64) -> Event {
    Event { time_ns, kind: Kind::Enter(FunctionKey(function)) }
}

fn leave(time_ns: u64, function: u64) -> Event {
    Event { time_ns, kind: Kind::Leave(FunctionKey(function)) }
}

fn innermost(time_ns: u64) -> Event {
    Event { time_ns, kind: Kind::LeaveInnermost }
}

/// Pieces with a hole between each two.
fn analyse(pieces: &[&[Event]]) -> Analysis {
    let mut analyzer = Analyzer::new(Options::default());
    analyzer.thread(ONE, &Thread { pid: 1, tid: 1, name: "worker".to_owned() });
    for (at, piece) in pieces.iter().enumerate() {
        if at > 0 {
            let loss = Loss { from_ns: 0, to_ns: 0, events: None, place: "test".to_owned() };
            analyzer.lost(&loss, &[ONE]);
        }
        analyzer.events(ONE, None, piece);
    }
    let mut name = |key: FunctionKey| Name { text: format!("f{}", key.0), known: true };
    analyzer.finish(&Source::default(), &mut name).analysis
}

/// (calls, cut, total, self) of a function.
fn row(analysis: &Analysis, name: &str) -> (u64, u64, u64, u64) {
    let row = analysis.functions.iter().find(|row| row.name == name).expect("called");
    (row.calls, row.cut, row.total_ns, row.self_ns)
}

#[test]
fn time_goes_to_the_innermost_call() {
    let analysis = analyse(&[&[enter(10, 1), enter(20, 2), leave(50, 2), leave(100, 1)]]);
    assert_eq!(row(&analysis, "f1"), (1, 0, 90, 60));
    assert_eq!(row(&analysis, "f2"), (1, 0, 30, 30));
}

#[test]
fn an_exit_unwinds_to_the_call_it_names() {
    let events = [enter(10, 1), enter(20, 2), enter(30, 3), leave(100, 1)];
    let analysis = analyse(&[&events]);
    assert_eq!(row(&analysis, "f1"), (1, 0, 90, 10));
    assert_eq!(row(&analysis, "f2"), (0, 1, 80, 10));
    assert_eq!((analysis.coverage.cut, analysis.coverage.mismatched), (2, 1));
}

#[test]
fn an_exit_without_an_entry_is_counted_and_changes_nothing() {
    let analysis = analyse(&[&[enter(10, 1), leave(20, 7), leave(30, 1)]]);
    assert_eq!(row(&analysis, "f1"), (1, 0, 20, 20));
    assert_eq!(analysis.coverage.unmatched, 1);
}

#[test]
fn a_hole_cuts_what_is_open_and_its_time_belongs_to_no_function() {
    let analysis = analyse(&[
        &[enter(10, 1), enter(20, 2), leave(30, 2)],
        &[leave(900, 1), enter(910, 1), leave(920, 1)],
    ]);
    assert_eq!(row(&analysis, "f1"), (1, 1, 30, 20));
    assert_eq!(analysis.coverage.cut, 1);
    assert_eq!(analysis.coverage.unmatched, 1);
    let durations =
        &analysis.functions.iter().find(|row| row.name == "f1").expect("called").durations;
    assert_eq!((durations.n, durations.avg_ns), (1, Some(10.0)), "cut calls are in no average");
}

#[test]
fn anonymous_exits_are_not_believed_after_a_hole() {
    let whole = [enter(10, 1), enter(20, 2), innermost(30), innermost(40)];
    let analysis = analyse(&[&whole, &[innermost(900), enter(910, 1), innermost(920)]]);
    assert_eq!(row(&analysis, "f1"), (1, 0, 30, 20));
    assert_eq!(analysis.coverage.unsound, 3);
}

#[test]
fn what_a_signal_starts_is_not_the_interrupted_functions() {
    let signal = Event { time_ns: 30, kind: Kind::Signal(29) };
    let events = [
        enter(10, 1),
        signal,
        enter(40, 2),
        enter(50, 3),
        leave(60, 3),
        leave(80, 2),
        leave(100, 1),
    ];
    let analysis = analyse(&[&events]);
    assert_eq!(row(&analysis, "f1"), (1, 0, 50, 50), "90 less the 40 of the handler");
    assert_eq!(row(&analysis, "f2"), (1, 0, 40, 30));
    assert_eq!(analysis.coverage.asynchronous, ["f2"]);
}

#[test]
fn recursion_counts_once_in_the_total() {
    let analysis = analyse(&[&[enter(0, 1), enter(10, 1), leave(20, 1), leave(40, 1)]]);
    assert_eq!(row(&analysis, "f1"), (2, 0, 40, 40));
}

#[test]
fn a_clock_that_goes_back_is_counted_and_makes_no_negative_time() {
    let analysis = analyse(&[&[enter(100, 1), enter(90, 2), leave(80, 2), leave(120, 1)]]);
    assert_eq!(row(&analysis, "f1"), (1, 0, 20, 20));
    assert_eq!(analysis.coverage.clock_backwards, 2);
}

#[test]
fn time_off_the_cpu_is_counted_apart() {
    let off = Event { time_ns: 20, kind: Kind::SwitchedOut { runnable: true } };
    let on = Event { time_ns: 70, kind: Kind::SwitchedIn };
    let analysis = analyse(&[&[enter(10, 1), off, on, leave(100, 1)]]);
    assert_eq!(row(&analysis, "f1"), (1, 0, 90, 40));
    assert_eq!(analysis.threads[0].preempted_ns, 50);
}

#[test]
fn nothing_at_all_is_an_analysis_too() {
    let analysis = analyse(&[]);
    assert_eq!(analysis.coverage.events, 0);
    assert_eq!(analysis.findings.len(), 12);
}
