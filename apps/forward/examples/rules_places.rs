//! What rules cost per frame where they are executed: in the XDP program, and by the worker of a DPDK lane.
//!
//! Question: what do 10, 1,000 and 100,000 rules add to a frame in each place, and where does a place end?
//! (What a match alone costs in user space, [`rules_cost`](../rules_cost/index.html) tells.)
//!
//! **XDP**: the loaded program by BPF_PROG_TEST_RUN, which says the mean time of its runs; no driver and no
//! lane are in it. What counts there is not how many rules there are but how many masks: the sets have
//! rules of one mask (exact addresses), or of 17 (prefixes, which overlap, the longer ones first). The
//! frame of `last` matches the last rule, that of `none` no rule. Then, how long one more rule takes in
//! each set and how long taking it out: from the command until the new set is in force, and until the
//! next change can be made, which is when no CPU executes what was before (grace periods of the kernel).
//! The lane does the kernel's part at its next tick; the time until then is in neither.
//!
//! **DPDK**: frames go round a net_ring port, in mode io, with rules that count and drop nothing; a
//! frame costs receiving, matching and sending. Half of the frames match. Every round measures every set
//! once. `cargo run --release -p laneway-forward --example rules_places`, as root; `LANEWAY_ROUNDS` (default
//! 21) says how many rounds. What cannot be measured here is skipped with its reason.

use laneway_bpf::{Loaded, RunInput, prog_run};
use laneway_core::{
    FrameApp, FrameLane, KernelApp, KernelMaps, LaneError, MapValue, PortId, Turn, Verdict,
};
use laneway_dpdk::DpdkLane;
use laneway_forward::{Commit, Config, Forward, KernelForward, RuleSet};
use laneway_testkit::UdpFrame;
use std::{cell::Cell, env, time::Instant};

/// Rules; in the kernel also [`IN_LINE`].
const SIZES: [usize; 4] = [0, 10, 1_000, 100_000];
/// So few of one mask are tried one after the other in the kernel, with one more, too.
const IN_LINE: usize = 6;
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

/// Prefix lengths of the rules that are no exact ones, from 32 down.
const LENGTHS: usize = 17;

/// Those with the same upper half are prefixes of each other.
fn prefix_destination(i: usize) -> [u8; 4] {
    let [a, b] = ((i / LENGTHS) as u16).wrapping_mul(0x9e37).to_be_bytes();
    let [_, _, c, d] = ((i as u32).wrapping_mul(0x9e37_79b1) >> 8).to_be_bytes();
    [a, b, c, d]
}

fn prefix_rules(count: usize) -> String {
    let rule = |i: usize| {
        let ([a, b, c, d], bits) = (prefix_destination(i), 32 - i % LENGTHS);
        format!(
            "flow create 0 ingress pattern eth / ipv4 dst spec {a}.{b}.{c}.{d} dst prefix {bits} / udp / \
             end actions count / end\n"
        )
    };
    (0..count).map(rule).collect()
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
        "{place:<6} {count:>6} rules, {what:<20} {median:8.1} ns per frame, quartiles {low:.1} to {high:.1}"
    );
}

#[expect(clippy::print_stdout, reason = "an example that tells what it measured")]
fn skip(place: &str, why: impl std::fmt::Display) {
    println!("{place:<6} skipped: {why}");
}

#[expect(clippy::print_stdout, reason = "an example that tells what it measured")]
fn say_change(count: usize, what: &str, [in_force_ns, done_ns]: &mut [Vec<f64>; 2]) {
    let [low, median, high] = quartiles(in_force_ns).map(|ns| ns / 1e3);
    let done = quartiles(done_ns)[1] / 1e3;
    println!(
        "xdp    {count:>6} rules, {what:<20} {median:8.1} us until in force, quartiles {low:.1} to {high:.1}; \
         {done:.1} us until the next"
    );
}

/// The maps of a program, and when the first bank was put in force.
struct Watched<'a> {
    maps: &'a dyn KernelMaps,
    in_force: Cell<Option<Instant>>,
}

impl KernelMaps for Watched<'_> {
    fn visit(&self, map: &str, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), LaneError> {
        self.maps.visit(map, each)
    }

    fn remove(&self, map: &str, key: &[u8]) -> Result<(), LaneError> {
        self.maps.remove(map, key)
    }

    fn put(&self, map: &str, key: &[u8], value: &[u8]) -> Result<(), LaneError> {
        let done = self.maps.put(map, key, value);
        if map == "active" && self.in_force.get().is_none() {
            self.in_force.set(Some(Instant::now()));
        }
        done
    }

    fn set(&self, map: &str, key: &[u8], value: &MapValue) -> Result<(), LaneError> {
        self.maps.set(map, key, value)
    }
}

/// A program with its set, and what its runs took with the frame of the last rule and with a stranger's.
struct InKernel {
    count: usize,
    what: &'static str,
    last: Vec<u8>,
    set: RuleSet,
    app: KernelForward,
    loaded: Loaded,
    last_ns: Vec<f64>,
    none_ns: Vec<f64>,
    /// Of adding a rule and of taking it out: until that is in force, until the next change can be made.
    changes: [[Vec<f64>; 2]; 2],
}

impl InKernel {
    fn new(count: usize, is_exact: bool) -> Result<InKernel, String> {
        let config = Config::default();
        let mut set = RuleSet::for_kernel(config.bounds());
        let (text, last) = match is_exact {
            true => (rules(count), destination(count.saturating_sub(1))),
            false => (prefix_rules(count), prefix_destination(count.saturating_sub(1))),
        };
        set.load(&text).map_err(|why| format!("{count} rules do not fit: {why}"))?;
        assert_eq!(set.commit(), Commit::Done, "no worker reads it yet");
        let feed = set.kernel_feed();
        let app = KernelForward::new(&config, &[1, 1], feed).expect("it can run");
        let loaded = Loaded::load(&app.half()).map_err(|why| why.to_string())?;
        Ok(InKernel {
            count,
            what: if is_exact { "one mask" } else { "17 masks" },
            last: frame_to(last),
            set,
            app,
            loaded,
            last_ns: Vec::new(),
            none_ns: Vec::new(),
            changes: Default::default(),
        })
    }

    /// Adds a rule and takes it out again.
    fn change(&mut self) {
        let id = self.set.rules(0).map(|(id, ..)| id).max().map_or(0, |id| id + 1);
        for (line, place) in [(rule(self.count + 1), 0), (format!("flow destroy 0 rule {id}"), 1)] {
            let [in_force_ns, done_ns] = &mut self.changes[place];
            let maps = Watched { maps: self.loaded.maps(), in_force: Cell::default() };
            let started = Instant::now();
            self.set.run(&line).expect("there is room");
            assert_eq!(self.set.commit(), Commit::Done, "the kernel has all");
            // Always at the same time, so that the counters are not read besides.
            self.app.on_tick(&maps, Turn::default());
            done_ns.push(started.elapsed().as_nanos() as f64);
            assert!(self.app.failure().is_none(), "{:?}", self.app.failure());
            let in_force = maps.in_force.get().expect("a bank was written");
            in_force_ns.push(in_force.duration_since(started).as_nanos() as f64);
        }
    }
}

fn in_kernel(rounds: usize) {
    let mut cases = Vec::new();
    let exact = [SIZES[0], IN_LINE, SIZES[1], SIZES[2], SIZES[3]].map(|count| (count, true));
    for (count, is_exact) in exact.into_iter().chain([(SIZES[2], false), (SIZES[3], false)]) {
        match InKernel::new(count, is_exact) {
            Ok(case) => cases.push(case),
            Err(why) => return skip("xdp", why),
        }
    }
    let stranger = frame_to([192, 0, 2, 1]);
    for _ in 0..rounds {
        for case in &mut cases {
            for (frame, times) in [(&case.last, &mut case.last_ns), (&stranger, &mut case.none_ns)]
            {
                let input = RunInput { frame, repeat: RUNS, ..RunInput::default() };
                match prog_run(case.loaded.program(), input) {
                    Ok(output) => times.push(f64::from(output.mean_ns)),
                    Err(why) => return skip("xdp", why),
                }
            }
            case.change();
        }
    }
    for InKernel { count, what, last_ns, none_ns, changes: [added, removed], .. } in &mut cases {
        say("xdp", *count, &format!("{what}, the last"), last_ns);
        say("xdp", *count, &format!("{what}, none"), none_ns);
        say_change(*count, &format!("{what}, one more"), added);
        say_change(*count, &format!("{what}, one less"), removed);
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
        assert_eq!(set.commit(), Commit::Done, "no worker reads it yet");
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
