//! What rules cost per frame where they are executed: in the XDP program, and by the worker of a DPDK lane.
//!
//! Question: what do 10, 1,000 and 100,000 rules add to a frame in each place, and where does a place end?
//! (What a match alone costs in user space, [`rules_cost`](../rules_cost/index.html) tells.)
//!
//! **XDP**: the loaded program by BPF_PROG_TEST_RUN, which says the mean time of its runs; no driver and no
//! lane are in it. The program tries rules one after the other, so what counts is how many come before
//! the one that matches: the frame of `last` matches the last rule, that of `none` no rule. As many sets
//! as fit are measured, the fullest possible included, and what a larger one is answered is printed.
//!
//! **DPDK**: frames go round a net_ring port, in mode io, with rules that count and drop nothing; a
//! frame costs receiving, matching and sending. Half of the frames match. Every round measures every set
//! once. `cargo run --release -p laneway-forward --example rules_places`, as root; `LANEWAY_ROUNDS` (default
//! 21) says how many rounds. What cannot be measured here is skipped with its reason.

use laneway_bpf::{Loaded, RunInput, prog_run};
use laneway_core::{FrameApp, FrameLane, KernelApp, PortId, Turn, Verdict};
use laneway_dpdk::DpdkLane;
use laneway_forward::{Commit, Config, Forward, KERNEL_RULES_MAX, KernelForward, RuleSet};
use laneway_testkit::UdpFrame;
use std::{env, time::Instant};

/// Beside the fullest set of the kernel half; the last two do not fit there.
const SIZES: [usize; 4] = [0, 10, 1_000, 100_000];
const ROUNDS_DEFAULT: usize = 21;
/// Runs of the program per round: the kernel says the mean of whole nanoseconds.
const RUNS: u32 = 20_000;
/// Frames that go round, fewer than a ring holds.
const FRAMES: usize = 512;
/// Frames of a round on the ring.
const FRAMES_PER_ROUND: u64 = 100_000;

/// The addresses of rule `i`, all different.
fn destination(i: usize) -> [u8; 4] {
    let [_, b, c, d] = ((i as u32).wrapping_mul(0x9e37_79b1) >> 8).to_be_bytes();
    [10, b, c, d]
}

fn rule(i: usize) -> String {
    let [a, b, c, d] = destination(i);
    format!(
        "flow create 0 ingress pattern eth / ipv4 dst is {a}.{b}.{c}.{d} / udp / end actions count / end"
    )
}

fn rules(count: usize) -> String {
    (0..count).map(|i| rule(i) + "\n").collect()
}

fn frame_to(destination: [u8; 4]) -> Vec<u8> {
    let mut frame = UdpFrame::default().build();
    frame[30..34].copy_from_slice(&destination);
    frame
}

/// Lower quartile, median, upper quartile.
fn quartiles(values: &mut [f64]) -> [f64; 3] {
    values.sort_unstable_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

#[expect(clippy::print_stdout, reason = "an example that tells what it measured")]
fn say(place: &str, count: usize, what: &str, ns: &mut [f64]) {
    let [low, median, high] = quartiles(ns);
    println!(
        "{place:<6} {count:>6} rules, {what:<17} {median:8.1} ns per frame, quartiles {low:.1} to {high:.1}"
    );
}

#[expect(clippy::print_stdout, reason = "an example that tells what it measured")]
fn skip(place: &str, why: impl std::fmt::Display) {
    println!("{place:<6} skipped: {why}");
}

/// A program with its set, and what its runs took with the frame of the last rule and with a stranger's.
struct InKernel {
    count: usize,
    loaded: Loaded,
    last_ns: Vec<f64>,
    none_ns: Vec<f64>,
}

fn in_kernel(rounds: usize) {
    let mut cases = Vec::new();
    for count in [SIZES[0], SIZES[1], KERNEL_RULES_MAX, SIZES[2], SIZES[3]] {
        let config = Config::default();
        let mut set = RuleSet::for_kernel(config.bounds());
        if let Err(why) = set.load(&rules(count)) {
            skip("xdp", format!("{count} rules do not fit: {why}"));
            continue;
        }
        assert_eq!(set.commit(), Commit::Done, "nobody reads it yet");
        let feed = set.kernel_feed();
        let app = KernelForward::new(&config, &[1, 1], feed).expect("it can run");
        match Loaded::load(&app.half()) {
            Ok(loaded) => {
                cases.push(InKernel { count, loaded, last_ns: Vec::new(), none_ns: Vec::new() });
            }
            Err(why) => return skip("xdp", why),
        }
    }
    let stranger = frame_to([192, 0, 2, 1]);
    for _ in 0..rounds {
        for case in &mut cases {
            let last = frame_to(destination(case.count.saturating_sub(1)));
            for (frame, told) in [(&last, &mut case.last_ns), (&stranger, &mut case.none_ns)] {
                let input = RunInput { frame, repeat: RUNS, ..RunInput::default() };
                match prog_run(case.loaded.program(), input) {
                    Ok(output) => told.push(f64::from(output.mean_ns)),
                    Err(why) => return skip("xdp", why),
                }
            }
        }
    }
    for InKernel { count, last_ns, none_ns, .. } in &mut cases {
        say("xdp", *count, "the last matches", last_ns);
        say("xdp", *count, "none matches", none_ns);
    }
}

struct OnRing {
    count: usize,
    app: Forward,
    _set: RuleSet,
    frames: Vec<Vec<u8>>,
    ns: Vec<f64>,
}

impl OnRing {
    fn new(count: usize) -> OnRing {
        let config = Config { ports: 1, ..Config::default() };
        let mut set = RuleSet::for_user(config.bounds());
        set.load(&rules(count)).expect("rules");
        assert_eq!(set.commit(), Commit::Done, "nobody reads it yet");
        let feed = set.feed().expect("a set of user space");
        let app = Forward::new(config).expect("it can run").with_rules(feed);
        let frames = (0..FRAMES)
            .map(|i| match i % 2 {
                // Of the whole set, in no order.
                0 if count > 0 => frame_to(destination(i * 7919 % count)),
                _ => frame_to([192, 0, 2, i as u8]),
            })
            .collect();
        OnRing { count, app, _set: set, frames, ns: Vec::new() }
    }
}

fn on_ring(rounds: usize) {
    let spec = "dpdk:net_ring,no-huge".parse().expect("a spec");
    let mut lane = match DpdkLane::open(&spec, &["r0"], false) {
        Ok(lane) => lane,
        Err(why) => return skip("dpdk", why),
    };
    let mut cases: Vec<OnRing> = SIZES.map(OnRing::new).into();
    for _ in 0..rounds {
        for OnRing { app, frames, ns, .. } in &mut cases {
            ns.push(go_round(&mut lane, PortId(0), app, frames));
        }
    }
    for case in &mut cases {
        say("dpdk", case.count, "half of them match", &mut case.ns);
    }
}

/// Sends the frames round until enough have been forwarded, and takes them out again; nanoseconds per frame.
fn go_round(lane: &mut DpdkLane, port: PortId, app: &mut Forward, frames: &[Vec<u8>]) -> f64 {
    let cannot = "net_ring sends and receives";
    let mut left = frames;
    while !left.is_empty() {
        let burst = lane.lend(port, left.len()).expect(cannot);
        let sent = burst.len().min(left.len());
        for (i, bytes) in left[..sent].iter().enumerate() {
            let mut frame = burst.frame_mut(i);
            assert!(frame.set_len(bytes.len()));
            frame.bytes_mut().copy_from_slice(bytes);
            frame.set_verdict(Verdict::Tx);
        }
        left = &left[sent..];
        lane.settle(port).expect(cannot);
    }
    let (started, mut seen) = (Instant::now(), 0);
    while seen < FRAMES_PER_ROUND {
        let burst = lane.receive(port).expect(cannot);
        seen += burst.len() as u64;
        app.on_burst(port, burst, Turn::default());
        lane.settle(port).expect(cannot);
    }
    let ns = started.elapsed().as_nanos() as f64 / seen as f64;
    // Everything is in the ring between two calls; an empty burst says that nothing is left.
    loop {
        let burst = lane.receive(port).expect(cannot);
        if burst.is_empty() {
            break;
        }
        (0..burst.len()).for_each(|i| burst.set_verdict(i, Verdict::Drop));
        lane.settle(port).expect(cannot);
    }
    ns
}

fn main() {
    let rounds = env::var("LANEWAY_ROUNDS").ok().and_then(|text| text.parse().ok());
    let rounds: usize = rounds.unwrap_or(ROUNDS_DEFAULT).max(1);
    in_kernel(rounds);
    on_ring(rounds);
}
