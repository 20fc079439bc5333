//! Traces at the limits: the whole range of the clock, calls nested without end, many threads.

use laneway_trace::{Analyzer, Name, Options, Report, Source, text};
use laneway_trace_read::{Consumer as _, Event, FunctionKey, Kind, Thread, ThreadId};

const OUTER: FunctionKey = FunctionKey(16);
const INNER: FunctionKey = FunctionKey(32);

/// The report of these threads' events, each in batches.
fn report(threads: &[Vec<Event>]) -> Report {
    let mut analyzer = Analyzer::new(Options::default());
    for (number, events) in (0..).zip(threads) {
        let thread = Thread { pid: 1, tid: 100 + number, name: format!("thread {number}") };
        analyzer.thread(ThreadId(number), &thread);
        for batch in events.chunks(1_000) {
            analyzer.events(ThreadId(number), None, batch);
        }
    }
    analyzer.finish(&Source::default(), &mut |key| Name {
        text: if key == OUTER { "outer".into() } else { format!("inner {}", key.0) },
        known: true,
    })
}

/// A call of `key` from `from_ns` to `to_ns`.
fn call(key: FunctionKey, from_ns: u64, to_ns: u64) -> [Event; 2] {
    [
        Event { time_ns: from_ns, kind: Kind::Enter(key) },
        Event { time_ns: to_ns, kind: Kind::Leave(key) },
    ]
}

#[test]
fn a_span_over_the_whole_clock_ends() {
    for (begin, end) in [(0, u64::MAX), (1, u64::MAX - 1), (u64::MAX - 40_000, u64::MAX)] {
        let mut events = vec![Event { time_ns: begin, kind: Kind::Enter(OUTER) }];
        for n in 0..2_000 {
            events.extend(call(INNER, begin + 10 * n, begin + 10 * n + 5));
        }
        events.extend(call(INNER, end, end));
        events.push(Event { time_ns: end, kind: Kind::Leave(OUTER) });
        let polls = [(begin, 0), (end - 9, 32), (end, 0)].map(|(time_ns, got)| Event {
            time_ns,
            kind: Kind::Receive { port: 0, queue: 0, asked: 32, got },
        });
        let report = report(&[events, polls.to_vec()]);
        let jumps = end - begin > 1 << 53;
        let span = report.analysis.coverage.span;
        assert!(if jumps { span.length_ns < 1 << 53 } else { span.length_ns == end - begin });
        let is_stated = |limit: &String| limit.contains("104 days");
        assert_eq!(report.analysis.coverage.limits.iter().any(is_stated), jumps);
        assert!(!text::analysis(&report.analysis).is_empty());
    }
}

#[test]
fn calls_nested_deeper_than_any_limit_end_where_they_began() {
    const DEPTH: u64 = 100_000;
    let mut events = Vec::new();
    let mut now = 1_000;
    let mut tell = |kind| {
        now += 10;
        events.push(Event { time_ns: now, kind });
    };
    for _ in 0..2 {
        tell(Kind::Enter(OUTER));
        (0..DEPTH).for_each(|_| tell(Kind::Enter(INNER)));
        // Exits of what was never entered do not go through the whole stack.
        (0..DEPTH).for_each(|_| tell(Kind::Leave(FunctionKey(48))));
        (0..DEPTH).for_each(|_| tell(Kind::Leave(INNER)));
        tell(Kind::Leave(OUTER));
    }
    let analysis = report(&[events]).analysis;
    let outer = analysis.functions.iter().find(|row| row.name == "outer").expect("called");
    assert_eq!((outer.calls, analysis.coverage.open), (2, 0));
    assert!(analysis.coverage.limits.iter().any(|limit| limit.contains("deeper than")));
}

#[test]
fn points_without_a_rule_are_counted_by_name() {
    let point = |time_ns, point| Event { time_ns, kind: Kind::Point { point, value: 0 } };
    let mut analyzer = Analyzer::new(Options::default());
    for tid in 0..2 {
        let thread = Thread { pid: 1, tid, name: "worker".into() };
        analyzer.thread(ThreadId(tid), &thread);
        let events: Vec<Event> = (0..5).map(|n| point(1_000 + 10 * n, (n % 2) as u32)).collect();
        analyzer.events(ThreadId(tid), None, &events);
    }
    let source = Source { points: vec!["app:step".into()], ..Source::default() };
    let report = analyzer.finish(&source, &mut |_| Name { text: String::new(), known: false });
    let rows = report.analysis.points.iter();
    let rows: Vec<_> =
        rows.map(|row| (row.name.as_str(), row.count, row.threads, row.last_ns)).collect();
    assert_eq!(rows, [("app:step", 6, 2, 40), ("point 1", 4, 2, 30)]);
    assert!(text::analysis(&report.analysis).contains("app:step"));
}

#[test]
fn samples_of_a_profiler_are_an_analysis() {
    let mut analyzer = Analyzer::new(Options::default());
    analyzer.thread(ThreadId(0), &Thread { pid: 1, tid: 1, name: "worker".into() });
    for n in 0..4 {
        analyzer.sample(ThreadId(0), Some(1), 1_000 + n, 10, &[INNER, OUTER]);
    }
    analyzer.sample(ThreadId(0), Some(1), 1_004, 10, &[OUTER]);
    let report = analyzer.finish(&Source::default(), &mut |key| Name {
        text: if key == OUTER { "outer".into() } else { "inner".into() },
        known: true,
    });
    let analysis = report.analysis;
    assert_eq!(analysis.coverage.events, 5);
    let time = |name: &str| {
        let row = analysis.functions.iter().find(|row| row.name == name).expect("sampled");
        (row.self_ns, row.total_ns)
    };
    assert_eq!((time("outer"), time("inner")), ((10, 50), (40, 40)));
}

#[test]
fn of_many_threads_the_busiest_is_first_wherever_it_appeared() {
    let mut threads: Vec<Vec<Event>> =
        (0..300).map(|n| call(INNER, 1_000 + n, 1_020 + n).to_vec()).collect();
    threads.push(call(OUTER, 1_000, 900_000).to_vec());
    let analysis = report(&threads).analysis;
    assert_eq!(analysis.threads.len(), 301);
    assert_eq!(analysis.threads[0].name, "thread 300");
    let outer = analysis.functions.iter().find(|row| row.name == "outer").expect("called");
    assert_eq!(outer.durations.max.expect("it was seen whole").thread, 0);
}
