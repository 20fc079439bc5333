//! What rules cost in user space: nanoseconds per match, and milliseconds per added rule.
//!
//! Question: does a match stay below 100 ns at 1,000 exact or prefix rules, and does adding a rule to
//! 100,000, the swap and the worker's taking it included, stay below a millisecond?
//!
//! Sets of 10, 1,000 and 100,000 rules of two kinds: `exact` names both addresses and both ports,
//! `prefix` a destination prefix of 8 to 32 bits. Half of the frames match a rule drawn at random, half
//! match none; their headers are parsed beforehand, and once more as a column of its own. Frames are matched
//! one by one, and in bursts of 64 as a worker does it, where their waits for memory overlap. Every round
//! measures every set once, so that what the machine does meanwhile meets all alike; reported are the median
//! over the rounds and the quartiles. `cargo run --release -p laneway-forward --example rules_cost`;
//! `LANEWAY_ROUNDS` (default 101) says how many rounds.

use laneway_forward::{Bounds, Commit, Headers, RuleFeed, RuleSet};
use laneway_testkit::{Random, UdpFrame};
use std::{env, hint::black_box, time::Instant};

const SIZES: [usize; 3] = [10, 1_000, 100_000];
/// Frames of a round: more than the branch predictor learns by heart.
const FRAMES: usize = 8192;
/// The lanes' default.
const BURST: usize = 64;
const ROUNDS_DEFAULT: usize = 101;
/// Rules that are added to the largest set, one by one.
const ADDED: usize = 2_000;

/// Addresses and ports of a conversation.
#[derive(Clone, Copy)]
struct Tuple {
    source: [u8; 4],
    destination: [u8; 4],
    ports: [u16; 2],
    prefix_bits: u32,
}

impl Tuple {
    /// Of first bytes from 1 to 111; frames that match nothing have 120 to 219.
    fn draw(draw: &mut Random, first: u8) -> Tuple {
        let bytes = draw.draw().to_be_bytes();
        let address = |b: &[u8]| [first + b[0] % 100, b[1], b[2], b[3]];
        let ports = draw.draw();
        Tuple {
            source: address(&bytes[..4]),
            destination: address(&bytes[4..]),
            ports: [ports as u16 | 1, (ports >> 16) as u16 | 1],
            prefix_bits: 8 + (ports >> 32) as u32 % 25,
        }
    }

    fn rule(&self, kind: &str) -> String {
        let text = |a: [u8; 4]| format!("{}.{}.{}.{}", a[0], a[1], a[2], a[3]);
        let (source, destination) = (text(self.source), text(self.destination));
        let [from, to] = self.ports;
        let pattern = match kind {
            "exact" => {
                format!("ipv4 src is {source} dst is {destination} / udp src is {from} dst is {to}")
            }
            _ => format!("ipv4 dst is {destination}/{}", self.prefix_bits),
        };
        format!("flow create 0 ingress pattern eth / {pattern} / end actions drop / end")
    }

    fn headers(&self) -> (Vec<u8>, Headers) {
        let mut frame = UdpFrame {
            source_port: self.ports[0],
            destination_port: self.ports[1],
            ..UdpFrame::default()
        }
        .build();
        frame[26..30].copy_from_slice(&self.source);
        frame[30..34].copy_from_slice(&self.destination);
        let headers = Headers::of(&frame);
        (frame, headers)
    }
}

struct Case {
    kind: &'static str,
    rules: usize,
    set: RuleSet,
    feed: RuleFeed,
    frames: Vec<Vec<u8>>,
    headers: Vec<Headers>,
    /// Others, as the first ones are in the cache when it is the turn of the bursts.
    in_bursts: Vec<Headers>,
    match_ns: Vec<f64>,
    burst_ns: Vec<f64>,
    matched: usize,
}

impl Case {
    fn new(kind: &'static str, rules: usize) -> Case {
        let mut draw = Random::seeded(rules as u64);
        let tuples: Vec<Tuple> = (0..rules).map(|_| Tuple::draw(&mut draw, 1)).collect();
        let mut set = RuleSet::for_user(Bounds { ports: 1, queues: 1 });
        let lines: Vec<String> = tuples.iter().map(|tuple| tuple.rule(kind)).collect();
        set.load(&lines.join("\n")).expect("rules");
        assert_eq!(set.commit(), Commit::Done);
        let feed = set.feed().expect("a set of user space");
        let mut frames_of_a_round = || {
            (0..FRAMES)
                .map(|i| match i % 2 {
                    0 => tuples[draw.index(rules)].headers(),
                    _ => Tuple::draw(&mut draw, 120).headers(),
                })
                .unzip()
        };
        let (frames, headers) = frames_of_a_round();
        let (_, in_bursts): (Vec<Vec<u8>>, _) = frames_of_a_round();
        Case {
            kind,
            rules,
            set,
            feed,
            frames,
            headers,
            in_bursts,
            match_ns: Vec::new(),
            burst_ns: Vec::new(),
            matched: 0,
        }
    }

    fn measure(&mut self) {
        let started = Instant::now();
        let bytes = self.frames[0].len() as u64;
        let judge = |headers: &&Headers| self.feed.judge(0, black_box(headers), bytes).is_some();
        let matched = self.headers.iter().filter(judge).count();
        self.match_ns.push(started.elapsed().as_nanos() as f64 / FRAMES as f64);
        self.matched = black_box(matched);
        let (started, mut in_bursts) = (Instant::now(), 0);
        for burst in self.in_bursts.chunks(BURST) {
            self.feed.judge_burst(
                0,
                black_box(burst),
                |_| bytes,
                |_, fate| {
                    in_bursts += usize::from(fate.is_some());
                },
            );
        }
        self.burst_ns.push(started.elapsed().as_nanos() as f64 / FRAMES as f64);
        // Half of the frames are of a rule, and the others of none.
        assert_eq!(in_bursts, matched);
    }
}

/// Lower quartile, median, upper quartile.
fn quartiles(values: &mut [f64]) -> [f64; 3] {
    values.sort_unstable_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

#[expect(clippy::print_stdout, reason = "an example that tells what it measured")]
fn main() {
    let rounds = env::var("LANEWAY_ROUNDS").ok().and_then(|text| text.parse().ok());
    let rounds: usize = rounds.unwrap_or(ROUNDS_DEFAULT).max(1);
    let mut cases: Vec<Case> = ["exact", "prefix"]
        .into_iter()
        .flat_map(|kind| SIZES.map(|rules| Case::new(kind, rules)))
        .collect();
    let mut parse_ns = Vec::new();
    for _ in 0..rounds {
        cases.iter_mut().for_each(Case::measure);
        let started = Instant::now();
        for frame in &cases[0].frames {
            black_box(Headers::of(black_box(frame)));
        }
        parse_ns.push(started.elapsed().as_nanos() as f64 / FRAMES as f64);
    }
    let [low, median, high] = quartiles(&mut parse_ns);
    println!(
        "parse                      {median:8.1} ns per frame, quartiles {low:.1} to {high:.1}"
    );
    for case in &mut cases {
        let shape = case.set.shape();
        let (masks, in_line, bytes) = (shape.masks, shape.in_line, shape.bytes);
        for (how, ns) in [("alone", &mut case.match_ns), ("burst", &mut case.burst_ns)] {
            let [low, median, high] = quartiles(ns);
            println!(
                "{how} {:>6} x {:<7} rules {median:8.1} ns per frame, quartiles {low:.1} to {high:.1}; \
                 {} of {FRAMES} match; {masks} hash tables, {in_line} in a line, {bytes} bytes",
                case.kind, case.rules, case.matched
            );
        }
    }
    for case in cases.iter_mut().filter(|case| case.rules == SIZES[2]) {
        let mut draw = Random::seeded(99);
        let mut add_ms = Vec::new();
        for _ in 0..ADDED {
            let line = Tuple::draw(&mut draw, 1).rule(case.kind);
            let started = Instant::now();
            case.set.run(&line).expect("a rule");
            assert_eq!(case.set.commit(), Commit::Done);
            case.feed.take();
            add_ms.push(started.elapsed().as_nanos() as f64 / 1e6);
        }
        let worst = add_ms.iter().copied().fold(0.0, f64::max);
        let [low, median, high] = quartiles(&mut add_ms);
        println!(
            "add   {:>6} to {} rules {median:8.4} ms with the swap, quartiles {low:.4} to {high:.4}, \
             worst of {ADDED} {worst:.3}",
            case.kind, case.rules
        );
    }
}
