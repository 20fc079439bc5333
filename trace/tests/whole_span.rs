//! What is reported of the whole span: the part in which the program records its own events, CPUs, packets in a worker,
//! the course of calls.

use laneway_trace::result::{Analysis, InWorker};
use laneway_trace::{Analyzer, Name, Options, Source, text};
use laneway_trace_read::{Consumer as _, Event, FunctionKey, Kind, Thread, ThreadId};

const MS: u64 = 1_000_000;
const START_NS: u64 = 1_795_000_000_000_000_000;
const OUTER: FunctionKey = FunctionKey(16);
const FIRST: FunctionKey = FunctionKey(32);
const SECOND: FunctionKey = FunctionKey(48);

/// Events of the thread on one CPU, with the time since the start of the trace, ns.
type Batch = (Option<u32>, Vec<(u64, Kind)>);

/// The analysis of one thread's events.
fn analysis(batches: &[Batch]) -> Analysis {
    let mut analyzer = Analyzer::new(Options::default());
    let worker = Thread { pid: 1, tid: 7, name: "worker".into() };
    analyzer.thread(ThreadId(0), &worker);
    for (cpu, events) in batches {
        let at = |&(since_ns, kind): &(u64, Kind)| Event { time_ns: START_NS + since_ns, kind };
        analyzer.events(ThreadId(0), *cpu, &events.iter().map(at).collect::<Vec<_>>());
    }
    let mut name = |key| Name {
        text: match key {
            OUTER => "outer".into(),
            FIRST => "first".into(),
            _ => "second".into(),
        },
        known: true,
    };
    analyzer.finish(&Source::default(), &mut name).analysis
}

fn receive(got: u16) -> Kind {
    Kind::Receive { port: 0, queue: 0, asked: 32, got }
}

fn send(sent: u16) -> Kind {
    Kind::Send { port: 1, queue: 0, asked: sent, sent }
}

#[test]
fn rates_are_of_the_part_in_which_the_program_tells_of_itself() {
    // The kernel's view begins a second before the first poll.
    let mut events =
        vec![(0, Kind::SwitchedIn), (MS, Kind::SyscallIn(59)), (2 * MS, Kind::SyscallOut(59))];
    events.extend((0..=100).map(|n| (1_000 * MS + n * MS, receive(10))));
    let found = analysis(&[(Some(1), events)]);
    assert_eq!(found.coverage.span.length_ns, 1_100 * MS);
    assert_eq!(found.coverage.recorded, [1_000 * MS, 100 * MS]);
    let rate = found.packets.per_second.expect("polls tell packets");
    assert!((rate - 10_100.0).abs() < 1.0, "{rate}");
    assert!(text::analysis(&found).contains("tells of itself from 1.000000 s"));
}

#[test]
fn a_packet_is_in_the_worker_from_its_poll_to_the_next_send() {
    let mut events = Vec::new();
    for n in 0..2_000 {
        let at = 100_000 * n;
        // One round of fifty takes ten times as long.
        let stay_ns = if n % 50 == 0 { 10_000 } else { 1_000 };
        events.extend([(at, receive(4)), (at + stay_ns, send(4)), (at + 20_000, receive(0))]);
        // What was found by a poll behind which another one follows is not known.
        events.extend([
            (at + 30_000, receive(32)),
            (at + 40_000, receive(0)),
            (at + 50_000, send(1)),
        ]);
    }
    let found = analysis(&[(None, events)]);
    let InWorker { packets, p50_ns, p99_ns } = found.threads[0].in_worker.expect("points tell");
    let near = |found: Option<u64>, expected: u64| {
        found.is_some_and(|ns| ns.abs_diff(expected) * 100 <= 4 * expected)
    };
    assert_eq!(packets, 8_000);
    assert!(near(p50_ns, 1_000) && near(p99_ns, 10_000), "{p50_ns:?} {p99_ns:?}");
    assert!(text::analysis(&found).contains("A PACKET IN A WORKER"));
}

#[test]
fn a_cpu_is_used_while_a_thread_is_on_it() {
    let out = Kind::SwitchedOut { runnable: true };
    let first = vec![
        (0, Kind::SwitchedIn),
        (MS, Kind::SyscallIn(1)),
        (MS, Kind::SyscallOut(1)),
        (2 * MS, out),
    ];
    let second = vec![(5 * MS, Kind::SwitchedIn), (6 * MS, out)];
    // Of events without a CPU the last one counts.
    let third = vec![(8 * MS, Kind::SwitchedIn), (10 * MS, Kind::Signal(9))];
    let found = analysis(&[(Some(2), first), (Some(3), second), (None, third)]);
    let cores: Vec<_> = found.cores.iter().map(|row| (row.cpu, row.used_ns)).collect();
    assert_eq!(cores, [(Some(2), 2 * MS), (Some(3), 3 * MS)]);
    assert!((found.cores[1].share - 0.3).abs() < 1e-9);
    assert_eq!(found.cores[0].threads, [[0, 2 * MS]]);
    assert!(text::analysis(&found).contains("CPU 3"));
}

#[test]
fn the_course_tells_what_was_called_when() {
    let mut events = vec![(0, Kind::Enter(OUTER))];
    for n in 0..20_000 {
        let (at, key) = (10_000 * n, if n < 10_000 { FIRST } else { SECOND });
        events.extend([(at + 1_000, Kind::Enter(key)), (at + 9_000, Kind::Leave(key))]);
    }
    events.push((200 * MS, Kind::Leave(OUTER)));
    let found = analysis(&[(Some(1), events)]);
    let course = &found.courses[0];
    let mut names = course.buckets.iter().map(|cells| {
        let [context, ns] = cells[0];
        assert!(ns * 10 >= 7 * course.bucket_ns || cells.len() > 2, "{ns} of {}", course.bucket_ns);
        let function = found.contexts[context as usize].function;
        found.functions[function as usize].name.as_str()
    });
    let buckets = course.buckets.len();
    assert!(buckets >= 256, "{buckets}");
    let first = names.by_ref().take(buckets / 2 - 1).filter(|&name| name == "first").count();
    assert_eq!(first, buckets / 2 - 1);
    assert!(names.skip(2).take(buckets / 2 - 4).all(|name| name == "second"));
    let whole: u64 = course.buckets.iter().flatten().map(|cell| cell[1]).sum();
    assert_eq!(whole, 200 * MS);
}
