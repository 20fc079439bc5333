//! What the tests of all exports are given: a small made-up trace (two threads of one number, hostile names, a hole,
//! polls) and a made-up analysis with a bit of everything.

use crate::moments::Mark;
use crate::names::Names;
use laneway_trace::result::{
    Account, AccountPart, Advice, Analysis, Calibration, CalibrationSource, Cause, CauseKind,
    Confidence, ContextRow, Control, CoreRow, Course, Coverage, DamageRow, Durations, Finding,
    FunctionRow, HoleRow, InWorker, Layer, LayerRow, Longest, LossRow, Losses, Mark as ResultMark,
    Packets, Part, PointRow, PollRow, PoolRow, SCHEMA, SendRow, SilentAdvice, Span, State,
    ThreadRow, TimeBucket, TimeLine, What, Window, WindowEvent, Withheld, WorstCall,
};
use laneway_trace_read::{Consumer, Event, FunctionKey, Kind, Loss, PoolAction, Thread, ThreadId};

pub(crate) const ORIGIN_NS: u64 = 1_795_247_726_000_000_000;
pub(crate) const HOSTILE_NAME: &str = "</script><b>\"x\"&'\\\u{202e}\n";

/// Names as an enemy would choose them.
pub(crate) struct Hostile;

impl Names for Hostile {
    fn function(&self, key: FunctionKey) -> String {
        match key.0 {
            2 => HOSTILE_NAME.to_owned(),
            key => format!("f{key}"),
        }
    }
}

fn at(ns: u64, kind: Kind) -> Event {
    Event { time_ns: ORIGIN_NS + ns, kind }
}

/// Tells the trace to `consumer`.
pub(crate) fn trace(consumer: &mut dyn Consumer) {
    let (a, b) = (ThreadId(0), ThreadId(1));
    let thread = |name: &str| Thread { pid: 40, tid: 41, name: name.to_owned() };
    let enter = |ns, key| at(ns, Kind::Enter(FunctionKey(key)));
    let leave = |ns, key| at(ns, Kind::Leave(FunctionKey(key)));
    consumer.thread(a, &thread("worker"));
    consumer.thread(b, &thread("worker"));
    let poll = |ns, got| at(ns, Kind::Receive { port: 0, queue: 1, asked: 32, got });
    consumer.events(
        a,
        Some(1),
        &[
            enter(0, 1),
            enter(250, 2),
            leave(1_750, 2),
            poll(1_800, 0),
            poll(1_900, 3),
            at(1_950, Kind::Pool { action: PoolAction::Get, pool: 0, buffers: 3 }),
            at(1_960, Kind::Pool { action: PoolAction::Failed, pool: 0, buffers: 1 }),
            leave(2_000, 1),
            enter(2_000, 1),
            enter(2_000, 3),
        ],
    );
    consumer.events(b, None, &[enter(10, 1), at(20, Kind::Signal(29)), leave(2_000_020, 1)]);
    let loss = Loss {
        from_ns: ORIGIN_NS + 2_500,
        to_ns: ORIGIN_NS + 3_000,
        events: Some(7),
        place: "channel0_0".to_owned(),
    };
    consumer.lost(&loss, &[a]);
    consumer.events(a, Some(1), &[enter(3_100, 2), leave(3_101, 2)]);
}

/// What detectors would mark in it.
pub(crate) fn marks() -> Vec<Mark> {
    let mark = |ns, thread, title: &str| Mark {
        time_ns: ORIGIN_NS + ns,
        thread,
        title: title.to_owned(),
        detail: format!("{HOSTILE_NAME} at {ns}"),
    };
    vec![mark(1_000, Some(ThreadId(0)), "D7 stall"), mark(2_500, None, "D12 trace health")]
}

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

fn durations(n: u64, avg_ns: u64) -> Durations {
    Durations {
        n,
        min_ns: Some(avg_ns / 3),
        avg_ns: Some(avg_ns as f64),
        sd_ns: Some(avg_ns as f64 * 0.4),
        p50_ns: Some(avg_ns * 9 / 10),
        p90_ns: Some(avg_ns * 2),
        p99_ns: Some(avg_ns * 5),
        p999_ns: None,
        max: Some(Longest { duration_ns: avg_ns * 400, at_ns: 300 * MS, thread: 0, context: 2 }),
    }
}

/// A context with this self time; totals and the rest follow from it or are empty.
pub(crate) fn context(
    parent: Option<u32>,
    function: u32,
    calls: u64,
    self_ns: u64,
    self_corrected_ns: f64,
) -> ContextRow {
    ContextRow {
        parent,
        function,
        calls,
        cut: 0,
        total_ns: self_ns,
        self_ns,
        total_corrected_ns: self_corrected_ns,
        self_corrected_ns,
        idle_ns: self_ns / 2,
        durations: durations(calls, self_ns / calls.max(1)),
    }
}

fn function(name: &str, layer: Layer, calls: u64, self_ns: u64) -> FunctionRow {
    FunctionRow {
        name: name.to_owned(),
        layer,
        calls,
        cut: 1,
        calls_per_packet: Some(calls as f64 / 3_100.0),
        total_ns: self_ns * 2,
        self_ns,
        total_corrected_ns: self_ns as f64 * 1.4,
        self_corrected_ns: self_ns as f64 * 0.7,
        share: self_ns as f64 / 1e9,
        share_corrected: self_ns as f64 / 1.1e9,
        dominated: layer == Layer::Tracer,
        asynchronous: name == "tap_trigger_cb",
        durations: durations(calls, self_ns / calls.max(1)),
        histogram: vec![[255, 10], [511, calls / 2], [1_023, calls / 3], [40_000, 2]],
    }
}

fn finding(id: &str, title: &str, state: State, value: Option<f64>) -> Finding {
    let mark = ResultMark {
        at_ns: 300 * MS,
        length_ns: 20 * MS,
        thread: Some(0),
        label: format!("{title} here"),
    };
    let found = state == State::Fired;
    Finding {
        id: id.to_owned(),
        title: title.to_owned(),
        state,
        value,
        unit: "share".to_owned(),
        low: value.map(|value| value * 0.98),
        high: value.map(|value| value * 1.01),
        span: found.then(|| mark.clone()),
        confidence: Confidence::High,
        sentence: format!("What {title} amounts to, with {HOSTILE_NAME} in it."),
        figures: vec![["ns per empty poll".to_owned(), "5,700 ns".to_owned()]],
        marks: if found { vec![mark] } else { Vec::new() },
    }
}

fn cause() -> Cause {
    Cause {
        cause: CauseKind::Preempted,
        detail: HOSTILE_NAME.to_owned(),
        thread: Some(0),
        share: 0.21,
        lost_packets: Some(1_234),
        period_ns: Some(20_000_000),
        period_half_ns: None,
        low: Some(0.2),
        high: Some(0.22),
        confidence: Confidence::High,
        sentence: "Another program runs on the worker's CPU.".to_owned(),
    }
}

fn account() -> Account {
    let part = |part, detail: &str, ns: u64| AccountPart {
        part,
        detail: detail.to_owned(),
        ns,
        share: ns as f64 / 1e9,
        uncertainty_ns: 1_000_000,
    };
    Account {
        thread: 0,
        name: "dpdk-worker1".to_owned(),
        span_ns: 1_000_000_000,
        packets: 12_345,
        parts: vec![
            part(Part::Work, "driver", 410_000_000),
            part(Part::EmptyPolls, "port 0 queue 0", 290_000_000),
            part(Part::Preempted, HOSTILE_NAME, 210_000_000),
            part(Part::Tracer, "", 80_000_000),
            part(Part::Unknown, "", 10_000_000),
        ],
    }
}

/// An analysis with a bit of everything, made up: nothing in it was measured.
pub(crate) fn analysis() -> Analysis {
    let names = [
        ("main", Layer::Application),
        ("io_forward", Layer::Application),
        ("rx_burst", Layer::Driver),
        (HOSTILE_NAME, Layer::Mempool),
        ("rte_ethdev_trace_rx_burst_empty", Layer::Tracer),
        ("tap_trigger_cb", Layer::Kernel),
    ];
    let self_ns = [2 * MS, 40 * MS, 330 * MS, 216 * MS, 275 * MS, 9 * MS];
    let functions: Vec<FunctionRow> = names
        .iter()
        .zip(self_ns)
        .enumerate()
        .map(|(at, (&(name, layer), self_ns))| function(name, layer, 48_700 + at as u64, self_ns))
        .collect();
    let contexts = [None, Some(0), Some(1), Some(2), Some(2), Some(3)]
        .into_iter()
        .zip(&functions)
        .enumerate()
        .map(|(at, (parent, row))| {
            context(parent, at as u32, row.calls, row.self_ns, row.self_corrected_ns)
        })
        .collect();
    let layers = Layer::ALL
        .iter()
        .map(|&layer| {
            let rows = functions.iter().filter(|row| row.layer == layer);
            let self_ns: u64 = rows.map(|row| row.self_ns).sum();
            LayerRow {
                layer,
                self_ns,
                corrected_ns: self_ns as f64 * 0.7,
                share: self_ns as f64 / 872e6,
                share_corrected: self_ns as f64 / 872e6,
                ns_per_packet: (self_ns > 0).then(|| self_ns as f64 / 3_100.0),
            }
        })
        .collect();
    let bucket = |at: u64| {
        let busy = (at % 50) as f32 / 50.0;
        TimeBucket {
            shares: vec![0.05, 0.0, busy * 0.6, busy * 0.2, 0.0, 0.1, 0.8 * (1.0 - busy), 0.0, 0.0],
            top: vec![[2, 600 * US], [3, 200 * US]],
            events: 4_000 + at as u32,
            packets: (at % 7) as u32,
        }
    };
    let time_line = |thread, buckets| TimeLine {
        thread,
        start_ns: 0,
        width_ns: 1_200 * MS / buckets,
        buckets: (0..buckets).map(bucket).collect(),
    };
    let thread = |name: &str, tid| ThreadRow {
        pid: 40,
        tid,
        name: name.to_owned(),
        cpus: vec![1],
        events: 1_700_000,
        first_ns: 0,
        last_ns: 1_200 * MS,
        traced_ns: 1_190 * MS,
        idle_ns: 800 * MS,
        preempted_ns: 0,
        waiting_ns: 0,
        interrupt_ns: 0,
        syscall_ns: 0,
        packets: 3_100,
        in_worker: Some(InWorker { packets: 3_000, p50_ns: Some(1_200), p99_ns: None }),
    };
    let at = |us: u64, what, function| WindowEvent {
        at_ns: 300 * MS + us * US,
        what,
        function,
        value: 0,
    };
    let events = vec![
        at(0, What::Enter, Some(2)),
        at(20, What::Enter, Some(3)),
        at(21_000, What::Leave, Some(3)),
        at(21_050, What::Leave, Some(2)),
    ];
    Analysis {
        schema: SCHEMA.to_owned(),
        coverage: Coverage {
            producers: vec!["lttng".to_owned()],
            inputs: vec!["/tmp/trace <one>".to_owned()],
            span: Span { start_ns: ORIGIN_NS, length_ns: 1_200 * MS },
            recorded: [0, 1_200 * MS],
            events: 1_751_353,
            entries: 875_676,
            exits: 875_677,
            points: 0,
            kernel_events: 0,
            discarded: 12,
            losses: 1,
            losses_uncounted: 0,
            holes: vec![HoleRow {
                at_ns: 600_000_000,
                length_ns: 50_000_000,
                events: Some(1_234),
                thread: Some(0),
            }],
            calls: 875_600,
            cut: 76,
            cut_share: 8.7e-5,
            open: 3,
            unmatched: 4,
            mismatched: 2,
            unsound: 0,
            clock_backwards: 0,
            unresolved: 1,
            asynchronous: vec!["tap_trigger_cb".to_owned()],
            threads: 2,
            damages: vec![DamageRow {
                place: "channel0_1".to_owned(),
                offset: 4_096,
                what: "an event of unknown number 77; the rest of the packet is left out"
                    .to_owned(),
            }],
            damages_total: 1,
            limits: Vec::new(),
            withheld: vec![Withheld {
                what: "causes of stalls".to_owned(),
                why: "the trace has no kernel events".to_owned(),
            }],
        },
        causes: vec![cause()],
        accounts: vec![account()],
        losses: Losses {
            known: true,
            rows: vec![LossRow {
                thread: Some(0),
                port: Some(0),
                reason: "socket buffer".to_owned(),
                packets: 1_234,
            }],
        },
        calibration: Calibration {
            source: CalibrationSource::Estimated,
            inside_ns: 187.0,
            outside_ns: 0.0,
            uncertainty_ns: 20.0,
            overhead_share: 0.31,
        },
        threads: vec![thread("dpdk-worker1", 41), thread(HOSTILE_NAME, 42)],
        functions,
        contexts,
        layers,
        packets: Packets {
            received: Some(3_100),
            sent: None,
            source: "counted by the calls of the driver".to_owned(),
            per_second: Some(310.0),
        },
        polls: vec![PollRow {
            thread: 0,
            port: Some(0),
            queue: Some(0),
            polls: 48_700,
            empty: 48_209,
            packets: 3_100,
            full: 3,
            empty_ns: 805 * MS,
            productive_ns: 339 * MS,
            packets_per_productive: Some(6.3),
            packets_sd: Some(4.1),
            sizes: vec![[0, 48_209], [1, 120], [4, 200], [8, 168], [32, 3]],
        }],
        sends: vec![SendRow {
            thread: 0,
            port: 1,
            queue: 0,
            calls: 491,
            asked: 3_100,
            sent: 3_099,
            short: 1,
            first_short_ns: Some(700 * MS),
        }],
        points: vec![PointRow {
            name: "app:request_done".into(),
            count: 310,
            threads: 1,
            first_ns: 2 * MS,
            last_ns: 900 * MS,
        }],
        pools: vec![PoolRow {
            pool: 0,
            taken: 3_100,
            given: 3_000,
            in_use_max: Some(140),
            refills: 12,
            refill_buffers: Some(250),
            refill_interval: Some(249.0),
            drains: 11,
            failures: 0,
            first_failure_ns: None,
            in_use: (0..100).map(|at| [at * 12_000_000, 60 + at % 9]).collect(),
        }],
        findings: vec![
            finding("D1", "empty polls", State::Fired, Some(0.99)),
            finding("D3", "two modes", State::Silent, Some(0.4)),
            finding("D4", "period", State::Withheld, None),
            finding("D8", "crossings", State::NotMeasurable, None),
        ],
        advice: vec![Advice {
            rule: "exclude-helpers".to_owned(),
            text: "Exclude the tracer's helpers".to_owned(),
            because: "D12: 31 % of call time is the tracer's".to_owned(),
            expected: "fewer events".to_owned(),
            confirm: "laneway race scenarios/tap.toml".to_owned(),
        }],
        silent: vec![SilentAdvice {
            rule: "raise-mempool-cache".to_owned(),
            text: "Raise the mempool cache".to_owned(),
            why: "no refill was seen and nothing failed".to_owned(),
        }],
        exclude: vec!["rte_ethdev_trace_rx_burst_empty".to_owned()],
        control: Some(Control { per_second: 20_000.0, slow_down: Some(64.5) }),
        cores: vec![CoreRow {
            cpu: Some(1),
            used_ns: 1_190 * MS,
            share: 0.99,
            idle_ns: 800 * MS,
            threads: vec![[0, 1_190 * MS]],
        }],
        courses: vec![Course {
            thread: 0,
            start_ns: 0,
            bucket_ns: 6 * MS,
            buckets: (0..200).map(|at| vec![[2 + at / 50 % 2, 4 * MS], [1, MS]]).collect(),
        }],
        time_lines: vec![time_line(0, 400), time_line(1, 100)],
        worst: vec![WorstCall {
            thread: 0,
            function: 3,
            context: 3,
            at_ns: 300 * MS + 20 * US,
            duration_ns: 20_980 * US,
            stack: vec![0, 1, 2, 3],
            cause: "unattributed".to_owned(),
            window: Some(0),
        }],
        windows: vec![Window { thread: 0, stack: vec![0, 1], events }],
    }
}
