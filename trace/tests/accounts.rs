//! Accounts and causes against traces whose truth is written down beside them.

use laneway_trace::result::{Analysis, CauseKind, Confidence, Part};
use laneway_trace::{Analyzer, Name, Options, Source, text};
use laneway_trace_planted::{Benign, Fault, Planted};
use laneway_trace_read::{Consumer, Event, FunctionKey, Kind, Thread, ThreadId};

const NAMES: [&str; 13] = [
    "worker_loop",
    "poll_packets",
    "process_packet",
    "housekeeping",
    "hog",
    "lock-holder",
    "rx_queue_full",
    "tx_socket_full",
    "not_for_us",
    "other",
    "swapper/0",
    "rte_eth_rx_burst",
    "copy_out",
];

/// What the tracer of these scripts costs: next to nothing.
const COST: Option<(f64, f64)> = Some((10.0, 10.0));

fn key(name: &str) -> FunctionKey {
    let place = NAMES.iter().position(|known| *known == name).expect("a known name");
    FunctionKey(0x1000 + place as u64)
}

fn name(key: FunctionKey) -> Name {
    let text = NAMES.get((key.0 - 0x1000) as usize).map_or("?", |name| name);
    Name { text: text.to_owned(), known: true }
}

/// Events of one thread, written one behind the other.
struct Script {
    now: u64,
    events: Vec<Event>,
}

impl Script {
    fn new() -> Self {
        Self { now: 1_795_192_290_000_000_000, events: Vec::new() }
    }

    fn after(&mut self, ns: u64, kind: Kind) -> &mut Self {
        self.now += ns;
        self.events.push(Event { time_ns: self.now, kind });
        self
    }

    fn call(&mut self, function: &str, ns: u64) -> &mut Self {
        self.after(40, Kind::Enter(key(function))).after(ns, Kind::Leave(key(function)))
    }

    /// A round of a loop: it looks for a packet and has one in four rounds.
    fn round(&mut self, at: u64) -> &mut Self {
        self.call("poll_packets", 300);
        if at.is_multiple_of(4) {
            self.call("process_packet", 500);
        }
        self
    }
}

fn analyse(script: &Script, options: Options, counts_drops: bool) -> Analysis {
    let mut analyzer = Analyzer::new(Options { measured_cost_ns: COST, ..options });
    analyzer.thread(ThreadId(0), &Thread { pid: 1, tid: 1, name: "worker-0".to_owned() });
    for batch in script.events.chunks(1_000) {
        analyzer.events(ThreadId(0), Some(0), batch);
    }
    let source = Source { counts_drops, ..Source::default() };
    let analysis = analyzer.finish(&source, &mut name).analysis;
    adds_up(&analysis);
    analysis
}

fn adds_up(analysis: &Analysis) {
    for account in &analysis.accounts {
        let sum: u64 = account.parts.iter().map(|part| part.ns).sum();
        assert_eq!(sum, account.span_ns, "{account:#?}");
        let shares: f64 = account.parts.iter().map(|part| part.share).sum();
        assert!((shares - 1.0).abs() < 1e-9, "{shares}");
    }
}

/// A loop of so many rounds, with something else every so many.
fn looped(rounds: u64, every: u64, mut other: impl FnMut(&mut Script)) -> Script {
    let mut script = Script::new();
    script.after(10, Kind::Enter(key("worker_loop")));
    for at in 0..rounds {
        script.round(at);
        if at % every == every - 1 {
            other(&mut script);
        }
    }
    script.after(10, Kind::Leave(key("worker_loop")));
    script
}

/// Checks which cause is named first, and that its share is the planted one, within a tenth.
#[track_caller]
fn first(analysis: &Analysis, kind: CauseKind, detail: &str, planted_ns: u64) {
    let cause = analysis.causes.first().unwrap_or_else(|| panic!("{:#?}", analysis.accounts));
    assert_eq!((cause.cause, cause.detail.as_str()), (kind, detail), "{:#?}", analysis.causes);
    let truth = planted_ns as f64 / analysis.accounts[0].span_ns as f64;
    assert!((cause.share / truth - 1.0).abs() < 0.1, "{} for {truth}", cause.share);
    assert!(
        cause.low.is_some_and(|low| low <= truth) && cause.high.is_some_and(|high| high >= truth)
    );
}

fn syscall(number: libc::c_long) -> u32 {
    u32::try_from(number).expect("numbers are small")
}

#[test]
fn every_account_adds_up_and_healthy_traces_name_no_cause() {
    let faults = [
        Fault::Healthy,
        Fault::Period,
        Fault::Stall,
        Fault::Preemption,
        Fault::Loss,
        Fault::Overhead,
        Fault::Contention,
        Fault::Imbalance,
        Fault::Backlog,
    ];
    let benign = [
        Benign::FullBursts,
        Benign::Batches,
        Benign::OneByOne,
        Benign::IdleQueue,
        Benign::Housekeeping,
        Benign::Sleeping,
        Benign::Nothing,
    ];
    let analysis = |planted: &Planted| {
        let mut analyzer = Analyzer::new(Options::default());
        planted.feed(&mut analyzer);
        let found = analyzer.finish(&Source::default(), &mut |key| planted.name(key)).analysis;
        adds_up(&found);
        assert!(!found.accounts.is_empty());
        found
    };
    for seed in 0..3 {
        for fault in faults {
            analysis(&Planted::drawn(fault, seed));
        }
        for benign in benign {
            let found = analysis(&Planted::benign(benign, seed));
            let sure = found.causes.iter().find(|cause| cause.confidence == Confidence::High);
            assert_eq!(sure, None, "{benign:?} {seed}");
        }
    }
}

#[test]
fn who_preempts_is_named_with_its_share() {
    let script = looped(40_000, 4_000, |script| {
        script
            .after(50, Kind::SwitchedOut { runnable: true })
            .after(0, Kind::TookOver(key("hog")))
            .after(400_000, Kind::SwitchedIn);
    });
    let analysis = analyse(&script, Options::default(), false);
    first(&analysis, CauseKind::Preempted, "hog", 10 * 400_000);
    let advice = &analysis.advice[0];
    assert!(advice.text.contains("hog") && advice.because.contains("hog"), "{advice:?}");
    assert!(advice.expected.contains('%'), "{advice:?}");
}

/// A loop that sleeps in a system call ten times: `taker` has its CPU at first, and `before` when it is back there,
/// `queued_ns` after it was woken.
fn woken(taker: &str, before: Option<&str>, queued_ns: u64) -> Analysis {
    let poll = syscall(libc::SYS_ppoll);
    let script = looped(40_000, 4_000, |script| {
        script
            .after(50, Kind::SyscallIn(poll))
            .after(500, Kind::SwitchedOut { runnable: false })
            .after(0, Kind::TookOver(key(taker)))
            .after(10_000_000, Kind::WokenBy(key("other")));
        script.now += queued_ns;
        if let Some(before) = before {
            script.after(0, Kind::TookOver(key(before)));
        }
        script
            .after(0, Kind::SwitchedIn)
            .after(500, Kind::Returned(1))
            .after(0, Kind::SyscallOut(poll));
    });
    analyse(&script, Options::default(), false)
}

#[test]
fn a_thread_that_was_woken_waits_for_the_cpu_behind_whom_it_comes_after() {
    first(&woken("swapper/0", Some("hog"), 4_000_000), CauseKind::Preempted, "hog", 40_000_000);
    first(&woken("other", Some("hog"), 4_000_000), CauseKind::Preempted, "hog", 40_000_000);
    // Who had it is not known, or the CPU was idle longer than it takes to wake up: it could have run.
    for before in [None, Some("swapper/0")] {
        let late = woken("other", before, 4_000_000);
        first(&late, CauseKind::Preempted, "", 40_000_000);
        let waking = woken("other", before, 60_000);
        assert_eq!(waking.causes, [], "{before:?}");
        let parts = waking.accounts[0].parts.iter();
        let mut parts = parts.filter(|part| part.detail == "waking up");
        assert!(parts.any(|part| (part.part, part.ns) == (Part::Waiting, 600_000)), "{before:?}");
    }
}

/// A CPU that idles while a thread could run is no spare capacity: the thread is held back, by its quota perhaps.
#[test]
fn a_thread_that_could_run_while_its_cpu_idles_was_held_back() {
    let script = looped(40_000, 4_000, |script| {
        script
            .after(50, Kind::SwitchedOut { runnable: true })
            .after(0, Kind::TookOver(key("swapper/0")))
            .after(4_000_000, Kind::SwitchedIn);
    });
    first(&analyse(&script, Options::default(), false), CauseKind::Preempted, "", 40_000_000);
}

#[test]
fn a_lock_a_sleep_and_a_system_call_are_distinguished() {
    let futex = syscall(libc::SYS_futex);
    let blocked = |number: u32, woken: bool| {
        looped(40_000, 4_000, |script| {
            if number == futex {
                script.after(50, Kind::Receive { port: 0, queue: 0, asked: 32, got: 1 });
            }
            script
                .after(50, Kind::SyscallIn(number))
                .after(500, Kind::SwitchedOut { runnable: false })
                .after(0, Kind::TookOver(key("other")))
                .after(300_000, Kind::SwitchedIn)
                .after(500, Kind::Returned(0))
                .after(0, Kind::SyscallOut(number));
            if woken {
                let place = script.events.len() - 3;
                let at = script.events[place].time_ns;
                script
                    .events
                    .insert(place, Event { time_ns: at, kind: Kind::WokenBy(key("lock-holder")) });
            }
        })
    };
    let mut lock = analyse(&blocked(futex, true), Options::default(), false);
    // A worker that polls, by a function without a rule.
    lock.causes.retain(|cause| cause.cause != CauseKind::SlowFunction);
    first(&lock, CauseKind::Lock, "futex, woken by lock-holder", 10 * 301_000);
    let nap = syscall(libc::SYS_clock_nanosleep);
    let sleep = analyse(&blocked(nap, true), Options::default(), false);
    first(&sleep, CauseKind::Sleep, "clock_nanosleep", 10 * 301_000);
    let mut parts = sleep.accounts[0].parts.iter();
    let asleep = parts.find(|part| part.part == Part::Blocked).map(|part| part.detail.as_str());
    assert_eq!(asleep, Some("clock_nanosleep"), "its timer woke it, whatever that interrupted");
    let sync = analyse(&blocked(syscall(libc::SYS_fsync), false), Options::default(), false);
    first(&sync, CauseKind::SystemCall, "fsync", 10 * 301_000);
    let poll = analyse(&blocked(syscall(libc::SYS_ppoll), false), Options::default(), false);
    assert_eq!(poll.causes, [], "waiting for packets is no fault");
    assert!(poll.accounts[0].parts.iter().any(|part| part.part == Part::Waiting));
}

#[test]
fn a_worker_that_does_not_poll_waits_for_work_in_a_futex() {
    let futex = syscall(libc::SYS_futex);
    let mut script = Script::new();
    script.after(10, Kind::Enter(key("worker_loop")));
    for _ in 0..2_000 {
        script
            .after(500, Kind::SyscallIn(futex))
            .after(500, Kind::SwitchedOut { runnable: false })
            .after(0, Kind::TookOver(key("swapper/0")))
            .after(90_000, Kind::WokenBy(key("other")))
            .after(5_000, Kind::TookOver(key("swapper/0")))
            .after(0, Kind::SwitchedIn)
            .after(500, Kind::Returned(0))
            .after(0, Kind::SyscallOut(futex));
        for _ in 0..10 {
            script.call("process_packet", 500);
        }
    }
    script.after(10, Kind::Leave(key("worker_loop")));
    let analysis = analyse(&script, Options::default(), false);
    assert_eq!(analysis.causes, [], "{:#?}", analysis.accounts);
    let waits = analysis.accounts[0].parts.iter().filter(|part| part.part == Part::Blocked);
    assert!(waits.map(|part| part.share).sum::<f64>() > 0.8, "{:#?}", analysis.accounts);
    // Where packets are lost, it is not its load that is too much for it.
    let lossy = analyse(&script, Options { drops: Some(5_000), ..Options::default() }, false);
    let causes: Vec<CauseKind> = lossy.causes.iter().map(|cause| cause.cause).collect();
    assert_eq!(causes, [CauseKind::Loss], "{:#?}", lossy.causes);
}

#[test]
fn housekeeping_is_named_with_its_period() {
    // Without the kernel's events: the function does nothing else.
    let script = looped(120_000, 3_000, |script| {
        script.call("housekeeping", 250_000);
    });
    let analysis = analyse(&script, Options::default(), false);
    first(&analysis, CauseKind::Housekeeping, "housekeeping", 40 * 250_000);
    let period = analysis.causes[0].period_ns.expect("it has one") as f64;
    let truth = (script.now - 1_795_192_290_000_000_000) as f64 / 40.0;
    assert!((period / truth - 1.0).abs() < 0.01, "{period} {truth}");
}

#[test]
fn a_silence_that_anything_can_have_made_names_no_function() {
    let mut at = 0;
    let script = looped(40_000, 2_000, |script| {
        at += 1;
        // It hits whatever the loop is in.
        let function = if at % 4 == 0 { "process_packet" } else { "poll_packets" };
        script.call(function, 300_000);
    });
    let analysis = analyse(&script, Options::default(), false);
    assert_eq!(analysis.causes, []);
    let unknown = analysis.accounts[0].parts.iter().filter(|part| part.part == Part::Unknown);
    let unknown: f64 = unknown.map(|part| part.share).sum();
    let truth = 20.0 * 300_000.0 / analysis.accounts[0].span_ns as f64;
    assert!((unknown / truth - 1.0).abs() < 0.1, "{unknown} {truth}");
}

/// Findings B.1: one port floods, the other is idle, and the run counts what it loses.
fn two_ports(lost: u32) -> Script {
    let mut script = Script::new();
    for at in 0..3_000 {
        script.after(9_000, Kind::Receive { port: 0, queue: 0, asked: 64, got: 64 });
        script.after(300, Kind::EmptyRun { queue: Some((1, 0)), polls: 1, lasted_ns: 300 });
        if at % 500 == 499 {
            let reason = key("rx_queue_full");
            script.after(0, Kind::Dropped { port: 0, packets: lost / 6, reason });
        }
    }
    script
}

#[test]
fn overload_with_two_ports_is_reported_rightly() {
    let analysis = analyse(&two_ports(132_000), Options::default(), true);
    let causes: Vec<CauseKind> = analysis.causes.iter().map(|cause| cause.cause).collect();
    assert_eq!(causes, [CauseKind::Loss, CauseKind::Overload], "{:#?}", analysis.causes);
    let loss = &analysis.causes[0];
    assert_eq!((loss.detail.as_str(), loss.lost_packets), ("rx_queue_full", Some(132_000)));
    assert_eq!(analysis.causes[1].detail, "rate");
    let text = text::analysis(&analysis);
    assert!(text.contains("on port 0"), "{text}");
    for never in ["before the queue was empty again", "idle capacity", "in the worker", "Pin "] {
        assert!(!text.contains(never), "{never:?} in {text}");
    }
    // Without a counter the backlog alone says it.
    let mut quiet = two_ports(0);
    quiet.events.retain(|event| !matches!(event.kind, Kind::Dropped { .. }));
    let analysis = analyse(&quiet, Options::default(), false);
    assert_eq!(analysis.causes[0].cause, CauseKind::Overload, "{:#?}", analysis.causes);
    assert!(!analysis.losses.known);
    assert!(text::analysis(&analysis).contains("is unknown"));
    // A counter that stays at nothing says more than full polls do: whatever waits was taken in time.
    assert_eq!(analyse(&quiet, Options::default(), true).causes, []);
}

#[test]
fn a_loop_that_sleeps_while_there_is_nothing_waits_for_packets() {
    let nap = syscall(libc::SYS_clock_nanosleep);
    let mut script = Script::new();
    script.after(10, Kind::Enter(key("worker_loop")));
    for at in 0..4_000 {
        let waker = if at % 10 == 0 { "other" } else { "hog" };
        script
            .call("poll_packets", 300)
            .after(20, Kind::EmptyRun { queue: None, polls: 1, lasted_ns: 20 })
            .after(500, Kind::SyscallIn(nap))
            .after(2_000, Kind::SwitchedOut { runnable: false })
            .after(0, Kind::TookOver(key("swapper/0")))
            .after(60_000, Kind::WokenBy(key(waker)))
            // The idle CPU wakes up.
            .after(5_000, Kind::SwitchedIn)
            .after(2_000, Kind::Returned(0))
            .after(0, Kind::SyscallOut(nap));
    }
    script.after(10, Kind::Leave(key("worker_loop")));
    let analysis = analyse(&script, Options::default(), false);
    assert_eq!(analysis.causes, [], "{:#?}", analysis.accounts);
    let waiting = analysis.accounts[0].parts.iter().filter(|part| part.part == Part::Waiting);
    assert!(waiting.map(|part| part.share).sum::<f64>() > 0.95, "{:#?}", analysis.accounts);
}

#[test]
fn where_packets_are_taken_a_silence_has_no_cause_and_the_work_is_no_slow_function() {
    let mut script = Script::new();
    script.after(10, Kind::Enter(key("worker_loop")));
    for at in 0..20_000 {
        let silence = if at % 500 == 0 { 200_000 } else { 0 };
        script
            .after(40, Kind::Enter(key("rte_eth_rx_burst")))
            .call("copy_out", 900 + silence)
            .after(40, Kind::Leave(key("rte_eth_rx_burst")))
            .call("process_packet", 100);
    }
    script.after(10, Kind::Leave(key("worker_loop")));
    let analysis = analyse(&script, Options::default(), false);
    assert_eq!(analysis.causes, [], "{:#?}", analysis.accounts);
}

#[test]
fn losses_that_the_user_gives_are_reported_first() {
    let script = looped(40_000, 40_001, |_| {});
    assert_eq!(analyse(&script, Options::default(), true).causes, []);
    let options = Options { drops: Some(5_000), ..Options::default() };
    let analysis = analyse(&script, options, false);
    let first = &analysis.causes[0];
    assert_eq!((first.cause, first.lost_packets), (CauseKind::Loss, Some(5_000)));
}

#[test]
fn a_full_way_out_is_the_far_ends_and_a_frame_for_others_is_no_loss() {
    let mut script = looped(4_000, 4_001, |_| {});
    for (reason, packets) in [("tx_socket_full", 70), ("not_for_us", 9_000)] {
        script.after(0, Kind::Dropped { port: 1, packets, reason: key(reason) });
    }
    let analysis = analyse(&script, Options::default(), true);
    let causes: Vec<_> =
        analysis.causes.iter().map(|cause| (cause.cause, cause.lost_packets)).collect();
    assert_eq!(causes, [(CauseKind::FarEnd, Some(70))], "{:#?}", analysis.causes);
}

#[test]
fn what_the_kernel_alone_tells_of_a_thread_makes_no_worker() {
    let mut analyzer = Analyzer::new(Options { measured_cost_ns: COST, ..Options::default() });
    let script = looped(4_000, 4_001, |_| {});
    for (id, name) in [(0, "worker-0"), (1, "trace")] {
        analyzer.thread(ThreadId(id), &Thread { pid: 1, tid: 1 + id, name: name.to_owned() });
    }
    analyzer.events(ThreadId(0), Some(0), &script.events);
    let mut helper = Script::new();
    for _ in 0..500 {
        helper
            .after(20_000, Kind::SwitchedOut { runnable: false })
            .after(5_000_000, Kind::SwitchedIn);
    }
    analyzer.events(ThreadId(1), Some(0), &helper.events);
    let analysis = analyzer.finish(&Source::default(), &mut name).analysis;
    let workers: Vec<&str> =
        analysis.accounts.iter().map(|account| account.name.as_str()).collect();
    assert_eq!(workers, ["worker-0"]);
    assert_eq!(analysis.causes, []);
}
