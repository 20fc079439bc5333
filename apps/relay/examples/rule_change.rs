//! What one change among a thousand rules costs, and what a thousand rules of eight outputs cost in memory.
//!
//! ```text
//! cargo run --release -p laneway-relay --example rule_change [LANE]
//! ```
//!
//! Runs a relay on lane `socket` (or `uring`) in a network namespace of its own, on the loopback interface there, so
//! it needs root. A change is what `laneway relay replace` does with a file in which one output has another DSCP: the
//! whole set is checked, one port is opened, the set is swapped, one port is closed, and the answer comes. Memory is
//! the process's own (`VmRSS`); what sockets hold in the kernel is not in it and is reported beside it.

#![expect(clippy::print_stdout, reason = "what an example is run for")]

use laneway_core::{Bell, DatagramLane};
use laneway_engine::{Control, MonotonicClock, run_datagrams};
use laneway_kinds::{AppKind, Place};
use laneway_netns::{Namespace, can_create};
use laneway_relay::{Book, Input, Output, Policy, RelayKind, RelayRun, Rule, check};
use laneway_socket::UdpLane;
use laneway_spec::IdlePolicy;
use laneway_uring::UringUdp;
use std::{
    env, fs,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

const RULES: u16 = 1000;
const OUTPUTS: u16 = 8;
const CHANGES: usize = 200;

/// The rules; one output of one of them is as `odd` says.
fn rules(odd: u8) -> Vec<Rule> {
    let on = || Some("lo".to_owned());
    let rule = |n: u16| Rule {
        name: None,
        input: Input {
            interface: on(),
            group: Some([239, 1, (n >> 8) as u8, n as u8].into()),
            address: None,
            family: None,
            port: 5000,
            sources: Vec::new(),
        },
        outputs: (0..OUTPUTS)
            .map(|to| {
                let is_odd = (n, to) == (RULES / 2, OUTPUTS / 2);
                let destination = ([239, 2, (n >> 8) as u8, n as u8], 6000 + to).into();
                Output { dscp: is_odd.then_some(odd), ..Output::to(destination, on()) }
            })
            .collect(),
        bytes_per_second: None,
    };
    (0..RULES).map(rule).collect()
}

/// A line of a file of /proc.
fn line_of(path: &str, name: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or("unknown").trim().to_owned()
}

fn resident_kb() -> u64 {
    let text = line_of("/proc/self/status", "VmRSS:");
    text.trim_end_matches(" kB").parse().unwrap_or(0)
}

fn measure<L: DatagramLane>(open: impl FnOnce() -> L + Send) {
    let book = Arc::new(Book::new(Vec::new(), Policy::default(), 1).expect("no rule is wrong"));
    let run = RelayRun::new(Arc::clone(&book));
    let control = Control::default();
    thread::scope(|scope| {
        let (run, inside) = (&run, control.clone());
        let worker = scope.spawn(move || {
            let bell = Bell::new().expect("a descriptor");
            let place = Place {
                worker: 0,
                workers: 1,
                interfaces: &[],
                ifindexes: &[],
                caps: &[],
                bell: &bell,
            };
            let mut app = RelayKind::datagrams(run, place).expect("a relay");
            let mut lane = open();
            let control = Control { bell: Some(bell.clone()), ..inside };
            run_datagrams(&mut lane, &mut app, &MonotonicClock, IdlePolicy::Block, &control)
                .unwrap_or_else(|failed| panic!("{failed}"));
        });
        book.state().expect("it runs");
        let empty_kb = resident_kb();
        let begun = Instant::now();
        book.replace(rules(0), false).unwrap_or_else(|why| panic!("{why}"));
        println!("{RULES} rules of {OUTPUTS} outputs in force after {:.1?}", begun.elapsed());
        // The list that they were passed in is given back.
        book.state().expect("it runs");
        let full_kb = resident_kb();
        println!("resident memory: {empty_kb} KiB without rules, {full_kb} KiB with them");
        println!("sockets of the namespace: {}", line_of("/proc/thread-self/net/sockstat", "UDP:"));
        let (all, policy) = (rules(0), Policy::default());
        let begun = Instant::now();
        check(&all.iter().collect::<Vec<_>>(), &policy).unwrap_or_else(|why| panic!("{why}"));
        println!("of a change the check of the whole set: {:.1?}", begun.elapsed());
        drop(all);
        let mut took: Vec<Duration> = Vec::with_capacity(CHANGES);
        for change in 0..CHANGES {
            let next = rules(1 + (change % 60) as u8);
            let begun = Instant::now();
            let changed = book.replace(next, false).unwrap_or_else(|why| panic!("{why}"));
            took.push(begun.elapsed());
            assert_eq!(changed.kept, usize::from(RULES) - 1, "one rule was another");
        }
        took.sort_unstable();
        let at = |part: usize| took[part * (CHANGES - 1) / 100];
        println!(
            "one change among {RULES}, {CHANGES} times: median {:.1?}, p99 {:.1?}, longest {:.1?}",
            at(50),
            at(99),
            at(100)
        );
        println!("resident memory behind them: {} KiB", resident_kb());
        control.stop.request();
        worker.join().expect("it does not panic");
    });
}

fn main() {
    let lane = env::args().nth(1).unwrap_or_else(|| "socket".to_owned());
    if let Err(why) = can_create() {
        return println!("skipped: {why}");
    }
    let namespace = Namespace::create("rule-change").unwrap_or_else(|e| panic!("{e}"));
    let up = namespace.command("ip").args(["link", "set", "dev", "lo", "up"]).status();
    assert!(up.is_ok_and(|status| status.success()), "iproute2 is here");
    let spec = lane.parse().unwrap_or_else(|e| panic!("{e}"));
    let measured = namespace.enter(|| match lane.split(':').next() {
        Some("socket") => measure(|| UdpLane::open(&spec, &[]).unwrap_or_else(|e| panic!("{e}"))),
        Some("uring") => measure(|| UringUdp::open(&spec, &[]).unwrap_or_else(|e| panic!("{e}"))),
        _ => panic!(
            "`{lane}` is no lane of kernel sockets; give socket or uring, with knobs or without"
        ),
    });
    measured.unwrap_or_else(|e| panic!("{e}"));
}
