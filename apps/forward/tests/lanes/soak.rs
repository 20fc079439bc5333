//! Rules come and go without a pause while numbered frames cross: none is duplicated, none overtakes
//! another one of its flow, and none is lost but those that a rule dropped and counted.
//!
//! `cargo test --release -p laneway-forward --test lanes -- --ignored soak --nocapture` runs for
//! `LANEWAY_SOAK_SECONDS` (default 600), shared out over the lanes; a short one runs with all other tests.
//!
//! Frames cross in windows that a veth queue holds, so nothing but the app can lose one. The last frame of
//! a window belongs to a flow that no rule looks at: when it has arrived, all before it have arrived or
//! never will, however busy the machine is.

use crate::cables::{FarEnds, NEAR, World, on_frames, on_xdp};
use laneway_afxdp::AfXdp;
use laneway_core::LaneSpec;
use laneway_engine::Control;
use laneway_forward::{Answer, Config, Console, Fate, Forward, LiveStats, RuleSet, Stats};
use laneway_packet::{OpenOptions, PacketLane};
use laneway_testkit::UdpFrame;
use std::{
    env,
    sync::atomic::{AtomicBool, Ordering},
    sync::mpsc::Sender,
    thread,
    time::{Duration, Instant},
};

const LANES: [&str; 3] = ["packet", "afxdp", "xdp"];
const SECONDS_DEFAULT: u64 = 600;
const SECONDS_SHORT: u64 = 5;
/// Flows that rules look at; one more closes the windows.
const FLOWS: usize = 8;
/// UDP port of the first of them.
const PORT_FIRST: u16 = 5000;
/// Frames of a window, its last one included.
const WINDOW: usize = 48;
/// Rules of a port at a time, well below what the kernel half takes.
const RULES_MAX: usize = 12;
/// Stands in front of flow and number at the end of each frame.
const MAGIC: [u8; 4] = *b"soak";

/// The same numbers in every run.
struct Draw(u64);

impl Draw {
    /// SplitMix64.
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) % limit as u64) as usize
    }
}

fn frame(flow: usize, number: u64) -> Vec<u8> {
    let destination_port = PORT_FIRST + flow as u16;
    let mut frame = UdpFrame { destination_port, bytes: 96, ..UdpFrame::default() }.build();
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
    sent: [u64; FLOWS + 1],
    /// One more than the number that arrived last.
    next: [u64; FLOWS + 1],
    arrived: u64,
}

impl Way {
    /// One window of frames, in any order of flows, and then the frame that closes it.
    fn window(&mut self, draw: &mut Draw) -> Vec<Vec<u8>> {
        (1..=WINDOW)
            .map(|i| {
                let flow = if i == WINDOW { FLOWS } else { draw.below(FLOWS) };
                self.sent[flow] += 1;
                frame(flow, self.sent[flow] - 1)
            })
            .collect()
    }

    /// Ticks a frame off; true for the one that closes the window under way.
    fn arrive(&mut self, flow: usize, number: u64) -> bool {
        assert!(number < self.sent[flow], "flow {flow}: number {number} was never sent");
        let next = self.next[flow];
        assert!(
            number >= next,
            "flow {flow}: number {number} again, or behind the one before {next}"
        );
        self.next[flow] = number + 1;
        self.arrived += 1;
        flow == FLOWS && number + 1 == self.sent[FLOWS]
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
    let mut draw = Draw(seconds);
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
            assert!(closed, "the frame that closes window {windows} is lost");
            windows += 1;
        }
    }
    let sent = ways.iter().map(|way| way.sent.iter().sum::<u64>()).sum();
    Crossed { sent, arrived: ways.iter().map(|way| way.arrived).sum(), windows }
}

/// Creates and destroys rules until told to stop; how often.
fn churn(console: &Console, stop: &AtomicBool) -> u64 {
    let (mut draw, mut rules, mut changes) = (Draw(7), [Vec::new(), Vec::new()], 0);
    // Relaxed: only tells to stop.
    while !stop.load(Ordering::Relaxed) {
        let port = draw.below(2);
        let of_port: &mut Vec<u32> = &mut rules[port];
        let kind = draw.below(16);
        let line = if kind == 0 {
            of_port.clear();
            format!("flow flush {port}")
        } else if of_port.len() >= RULES_MAX || (kind < 8 && !of_port.is_empty()) {
            let id = of_port.swap_remove(draw.below(of_port.len()));
            format!("flow destroy {port} rule {id}")
        } else {
            create(port, PORT_FIRST + draw.below(FLOWS) as u16, kind)
        };
        let said = match console.answer(&line) {
            Answer::Done(said) => said,
            other => panic!("{line}: {other:?}"),
        };
        assert!(!said.contains("not in force"), "{line}: {said}");
        let id = said.strip_prefix("Flow rule #").and_then(|said| said.split_once(" created"));
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
    let pattern = format!("eth / ipv4 / udp dst is {udp_port}");
    format!(
        "flow create {port} priority {kind} ingress pattern {pattern} / end actions {actions} / end"
    )
}

/// The app under the console's rules on one of [`LANES`], until told to stop.
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

/// Tells the other thread to stop, however this one ends.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn soak(lane: &str, seconds: u64) {
    let Some(world) = World::new() else { return };
    let bounds = Config::default().bounds();
    let set = match lane {
        "xdp" => RuleSet::for_kernel(bounds),
        _ => RuleSet::for_user(bounds),
    };
    let console = Console::new(set, LiveStats::default());
    // Of a flow that the churn creates rules for as well: some frames are dropped from the first one on.
    let first = create(0, PORT_FIRST, 0);
    assert!(matches!(console.answer(&first), Answer::Done(_)), "{first}");
    let stop = AtomicBool::new(false);
    let (stats, crossed, changes) = thread::scope(|scope| {
        let churned = scope.spawn(|| churn(&console, &stop));
        let stops = Stops(&stop);
        let (stats, crossed) = world.run(
            |control, ready| forward(lane, &console, control, &ready),
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
        "soak on {lane}: {sent} frames in {windows} windows, {arrived} arrived, {dropped} dropped by \
         rules, {changes} changes of rules"
    );
    assert!(windows > 2 && changes > 10, "{lane}: {windows} windows, {changes} changes");
    assert_eq!(arrived + dropped, sent, "{lane}: lost without a name");
    assert!(dropped > 0, "{lane}: no rule dropped anything");
    let known = stats.frames(Fate::Forwarded) + dropped;
    assert_eq!(known, stats.total(), "{lane}: another fate: {stats:?}");
}

/// The lanes one after the other, each for its share.
fn soak_all(seconds: u64) {
    let share = (seconds / LANES.len() as u64).max(1);
    LANES.iter().for_each(|lane| soak(lane, share));
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
