//! Rules come and go without a pause while numbered frames cross: none is duplicated, none overtakes
//! another one of its flow, and none is lost but those that a rule dropped and counted.
//!
//! `cargo test --release -p laneway-forward --test lanes -- --ignored soak --nocapture` runs for
//! `LANEWAY_SOAK_SECONDS` (default 600), shared out over the lanes; a short one runs with all other tests.
//!
//! Frames cross in windows that a veth queue holds, so nothing but the app can lose one. The last frame of
//! every flow of a window has a type of service that no rule looks at: when these have arrived, all before
//! them have arrived or never will, however busy the machine is, and whichever of two workers had the flow.

use crate::cables::{FarEnds, NEAR, World, on_frames, on_xdp};
use laneway_afxdp::{AfXdp, Steering};
use laneway_control::{Answerer, LineAnswer};
use laneway_core::FrameLane;
use laneway_engine::{
    Control, MonotonicClock, RunReport, Worker, WorkerFailed, Workers, run_frames, usable_cpus,
};
use laneway_forward::{Config, Console, Fate, Forward, LiveStats, RuleSet, Stats};
use laneway_packet::{FanoutGroup, OpenOptions, PacketLane};
use laneway_spec::{IdlePolicy, LaneSpec};
use laneway_testkit::{Random, UdpFrame, skip};
use laneway_wire::{ETHERNET_BYTES, checksum};
use std::{
    env,
    sync::Mutex,
    sync::atomic::{AtomicBool, Ordering},
    sync::mpsc::Sender,
    thread,
    time::{Duration, Instant},
};

/// Lanes and workers.
const ARMS: [(&str, usize); 5] =
    [("packet", 1), ("afxdp", 1), ("xdp", 1), ("packet", 2), ("afxdp", 2)];
const SECONDS_DEFAULT: u64 = 600;
const SECONDS_SHORT: u64 = 5;
/// Flows that rules look at, each closed by a frame of its own per window.
const FLOWS: usize = 8;
/// UDP port of the first of them.
const PORT_FIRST: u16 = 5000;
/// Frames of a window, the last ones included.
const WINDOW: usize = 48;
/// Rules of a port at a time, well below what the kernel half takes.
const RULES_MAX: usize = 12;
/// Stands in front of flow and number at the end of each frame.
const MAGIC: [u8; 4] = *b"soak";

/// Type of service of the frames that close a flow's window; those that rules look at have 0. Nothing
/// that spreads flows looks at it.
const CLOSING: u8 = 4;

fn frame(flow: usize, number: u64, closes: bool) -> Vec<u8> {
    let destination_port = PORT_FIRST + flow as u16;
    let mut frame = UdpFrame { destination_port, bytes: 96, ..UdpFrame::default() }.build();
    let header = &mut frame[ETHERNET_BYTES..ETHERNET_BYTES + 20];
    header[1] = if closes { CLOSING } else { 0 };
    header[10..12].fill(0);
    let sum = checksum::of(header).to_be_bytes();
    header[10..12].copy_from_slice(&sum);
    let tail = frame.len() - 16;
    frame[tail..tail + 4].copy_from_slice(&MAGIC);
    frame[tail + 4..tail + 8].copy_from_slice(&(flow as u32).to_be_bytes());
    frame[tail + 8..].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Flow and number; `None` for what is not ours.
fn read(frame: &[u8]) -> Option<(usize, u64)> {
    let tail = frame.last_chunk::<16>()?;
    let (magic, rest) = tail.split_first_chunk::<4>()?;
    let (flow, number) = rest.split_first_chunk::<4>()?;
    let number = u64::from_be_bytes(number.try_into().ok()?);
    (*magic == MAGIC).then_some((u32::from_be_bytes(*flow) as usize, number))
}

/// Frames of one direction.
#[derive(Default)]
struct Way {
    sent: [u64; FLOWS],
    /// One more than the number that arrived last.
    next: [u64; FLOWS],
    arrived: u64,
}

impl Way {
    /// One window of frames, in any order of flows, and then the frames that close it.
    fn window(&mut self, draw: &mut Random) -> Vec<Vec<u8>> {
        (0..WINDOW)
            .map(|i| {
                let closes = i.checked_sub(WINDOW - FLOWS);
                let flow = closes.unwrap_or_else(|| draw.index(FLOWS));
                self.sent[flow] += 1;
                frame(flow, self.sent[flow] - 1, closes.is_some())
            })
            .collect()
    }

    /// Ticks a frame off; true for the last one of the window under way.
    fn arrive(&mut self, flow: usize, number: u64) -> bool {
        assert!(number < self.sent[flow], "flow {flow}: number {number} was never sent");
        let next = self.next[flow];
        assert!(
            number >= next,
            "flow {flow}: number {number} again, or behind the one before {next}"
        );
        self.next[flow] = number + 1;
        self.arrived += 1;
        self.next == self.sent
    }
}

/// What crossed.
struct Crossed {
    sent: u64,
    arrived: u64,
    windows: u64,
}

/// Sends windows both ways until the time is up.
fn cross(far: &mut FarEnds, seconds: u64) -> Crossed {
    let mut draw = Random::seeded(seconds);
    let mut ways = [Way::default(), Way::default()];
    let (started, mut windows) = (Instant::now(), 0);
    while started.elapsed() < Duration::from_secs(seconds) {
        for (from, way) in ways.iter_mut().enumerate() {
            let window = way.window(&mut draw);
            far.send(from as u8, &window);
            let closed = far.collect_until(|port, frame| {
                let Some((flow, number)) = read(frame) else { return false };
                assert_eq!(port, 1 - from, "flow {flow}: number {number} went the wrong way");
                way.arrive(flow, number)
            });
            assert!(closed, "a frame that closes window {windows} is lost");
            windows += 1;
        }
    }
    let sent = ways.iter().map(|way| way.sent.iter().sum::<u64>()).sum();
    Crossed { sent, arrived: ways.iter().map(|way| way.arrived).sum(), windows }
}

/// Creates and destroys rules until asked to stop; how often.
fn churn(console: &Console, stop: &AtomicBool) -> u64 {
    let (mut draw, mut rules, mut changes) = (Random::seeded(7), [Vec::new(), Vec::new()], 0);
    // Relaxed: only tells to stop.
    while !stop.load(Ordering::Relaxed) {
        let port = draw.index(2);
        let of_port: &mut Vec<u32> = &mut rules[port];
        let kind = draw.index(16);
        let line = if kind == 0 {
            of_port.clear();
            format!("flow flush {port}")
        } else if of_port.len() >= RULES_MAX || (kind < 8 && !of_port.is_empty()) {
            let id = of_port.swap_remove(draw.index(of_port.len()));
            format!("flow destroy {port} rule {id}")
        } else {
            create(port, PORT_FIRST + draw.index(FLOWS) as u16, kind)
        };
        let answer = match console.answer(&line) {
            LineAnswer::Done(answer) => answer,
            other => panic!("{line}: {other:?}"),
        };
        assert!(!answer.contains("not in force"), "{line}: {answer}");
        let id =
            answer.strip_prefix("Flow rule #").and_then(|answer| answer.split_once(" created"));
        of_port.extend(id.map(|(id, _)| id.parse::<u32>().expect("a number")));
        changes += 1;
    }
    changes
}

fn create(port: usize, udp_port: u16, kind: usize) -> String {
    let actions = match kind % 4 {
        0 => "drop / count",
        1 => "count / passthru",
        2 => "set_mac_src mac_addr 02:00:00:00:00:aa / passthru",
        _ => "queue index 0 / mark id 7",
    };
    let pattern = format!("eth / ipv4 tos is 0 / udp dst is {udp_port}");
    format!(
        "flow create {port} priority {kind} ingress pattern {pattern} / end actions {actions} / end"
    )
}

/// The app under the console's rules on one of the lanes of [`ARMS`], until asked to stop.
fn forward(lane: &str, console: &Console, control: &Control, ready: &Sender<()>) -> Stats {
    let config = Config::default();
    if lane == "xdp" {
        let feed = console.rules().kernel_feed();
        return on_xdp(&config, feed, control, ready);
    }
    let feed = console.rules().feed().expect("a set of user space");
    let app = Forward::new(config).expect("it can run").with_rules(feed);
    let spec: LaneSpec = lane.parse().expect("a spec");
    match lane {
        "afxdp" => on_frames(AfXdp::open(&spec, &NEAR, false), app, control, ready),
        _ => {
            let opened = PacketLane::open(&spec, &NEAR, OpenOptions::default());
            on_frames(opened, app, control, ready)
        }
    }
}

/// As [`forward`], by a worker on each of these CPUs; what became of the frames of all. Every one of
/// them must have had some.
fn forward_by(
    cpus: &[usize],
    lane: &str,
    console: &Console,
    control: &Control,
    ready: &Sender<()>,
) -> Stats {
    let workers = Workers::new(cpus, control.stop.clone()).unwrap_or_else(|e| panic!("{e}"));
    let first = Forward::new(Config::default()).expect("it can run");
    let all = Mutex::new(Vec::new());
    let done = |stats: Stats| all.lock().expect("no thread panics with it").push(stats);
    let work = Work { first: &first, console, ready };
    let run = match lane {
        "afxdp" => {
            let spec = "afxdp".parse().expect("a spec");
            let steering =
                Steering::attach(&spec, &NEAR, 2, false).unwrap_or_else(|e| panic!("{e}"));
            workers.run(&|worker| {
                let lane = AfXdp::open_steered(&steering, worker.id.0)?;
                work.on(worker, lane, done)
            })
        }
        _ => {
            let spec = "packet:fanout=hash".parse().expect("a spec");
            let group = FanoutGroup::unique();
            workers.run(&|worker| {
                let lane = PacketLane::open_in(group, &spec, &NEAR, OpenOptions::default())?;
                work.on(worker, lane, done)
            })
        }
    };
    run.unwrap_or_else(|e| panic!("{e}"));
    let all = all.into_inner().expect("no thread panics with it");
    assert!(all.iter().all(|stats| stats.total() > 0), "{lane}: a worker had nothing: {all:?}");
    let mut sum = Stats::default();
    all.iter().for_each(|stats| sum.add(stats));
    sum
}

/// What every worker is given.
#[derive(Clone, Copy)]
struct Work<'a> {
    first: &'a Forward,
    console: &'a Console,
    ready: &'a Sender<()>,
}

impl Work<'_> {
    fn on(
        &self,
        worker: &Worker<'_>,
        mut lane: impl FrameLane,
        done: impl Fn(Stats),
    ) -> Result<RunReport, WorkerFailed> {
        worker.all_open()?;
        let feed = self.console.rules().feed().expect("a set of user space");
        let mut app = self.first.beside().with_rules(feed);
        if worker.id.0 == 0 {
            self.ready.send(()).expect("the far side waits");
        }
        let control = &worker.control;
        let run = run_frames(&mut lane, &mut app, &MonotonicClock, IdlePolicy::Block, control);
        done(app.stats().clone());
        Ok(run?)
    }
}

/// Tells the other thread to stop, however this one ends.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn soak(lane: &str, workers: usize, seconds: u64) {
    let cpus: Vec<usize> = usable_cpus().unwrap_or_default().into_iter().take(workers).collect();
    if cpus.len() < workers {
        return skip(format!("{workers} workers need a CPU each, and here are {}", cpus.len()));
    }
    let Some(world) = World::with_queues(workers as u32) else { return };
    let bounds = Config::default().bounds();
    let set = match lane {
        "xdp" => RuleSet::for_kernel(bounds),
        _ => RuleSet::for_user(bounds),
    };
    let console = Console::new(set, LiveStats::default());
    // Of a flow that the churn creates rules for as well: some frames are dropped from the first one on.
    let first = create(0, PORT_FIRST, 0);
    assert!(matches!(console.answer(&first), LineAnswer::Done(_)), "{first}");
    let stop = AtomicBool::new(false);
    let (stats, crossed, changes) = thread::scope(|scope| {
        let churned = scope.spawn(|| churn(&console, &stop));
        let stops = Stops(&stop);
        let (stats, crossed) = world.run(
            |control, ready| match workers {
                1 => forward(lane, &console, control, &ready),
                _ => forward_by(&cpus, lane, &console, control, &ready),
            },
            |far| {
                let crossed = cross(far, seconds);
                // Before the run ends: a change needs a worker that takes it.
                drop(stops);
                crossed
            },
        );
        let churned = churned.join();
        (stats, crossed, churned.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let Crossed { sent, arrived, windows } = crossed;
    let dropped = stats.frames(Fate::RuleDrop);
    eprintln!(
        "soak on {lane} by {workers}: {sent} frames in {windows} windows, {arrived} arrived, {dropped} \
         dropped by rules, {changes} changes of rules"
    );
    assert!(windows > 2 && changes > 10, "{lane}: {windows} windows, {changes} changes");
    assert_eq!(arrived + dropped, sent, "{lane}: lost without a name");
    assert!(dropped > 0, "{lane}: no rule dropped anything");
    let known = stats.frames(Fate::Forwarded) + dropped;
    assert_eq!(known, stats.total(), "{lane}: another fate: {stats:?}");
}

/// The lanes one after the other, each for its share.
fn soak_all(seconds: u64) {
    let share = (seconds / ARMS.len() as u64).max(1);
    ARMS.iter().for_each(|(lane, workers)| soak(lane, *workers, share));
}

#[test]
fn soak_for_a_moment() {
    soak_all(SECONDS_SHORT);
}

#[test]
#[ignore = "runs for LANEWAY_SOAK_SECONDS, 600 by default"]
fn soak_for_as_long_as_asked() {
    let seconds = env::var("LANEWAY_SOAK_SECONDS").ok().map(|text| {
        text.parse().unwrap_or_else(|_| panic!("LANEWAY_SOAK_SECONDS={text} is no number"))
    });
    soak_all(seconds.unwrap_or(SECONDS_DEFAULT));
}
