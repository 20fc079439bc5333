//! The cases: one row for each hot path. A row prepares the work and gives a closure that does it once.

use crate::far_ends::FarEnds;
use crate::{ctf, relay};
use laneway_core::{FramePool, Verdict};
use laneway_features::{Stamp, parse};
use laneway_flow::{EndedFlow, FlowLimits, FlowTable, Record, TableOptions};
use laneway_forward::{Bounds, Commit, Headers, RuleSet};
use laneway_resp::{Limits, Parser, command};
use laneway_testkit::UdpFrame;
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::Duration;

/// A hot path.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// What a figure is per.
    pub(crate) unit: &'static str,
    pub(crate) about: &'static str,
    /// Units of work in one call of the closure.
    pub(crate) units: u64,
    /// Calls in the shorter of the two runs; the longer one makes three times as many.
    pub(crate) times: u64,
    pub(crate) prepare: fn() -> Box<dyn FnMut()>,
}

/// Frames of a burst, as the lanes have it unless a knob says otherwise.
const BURST: usize = 64;
/// Flows in the table: more than fit the first level of any cache.
const FLOWS: u32 = 1_000;
const RULES: u32 = 1_000;
const CONNECTIONS: usize = 10;
/// Requests between two looks at what the stack answered.
const REQUESTS: usize = 64;
/// Commands in one piece of input.
const COMMANDS: usize = 64;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "burst",
        unit: "frame",
        about: "a frame is added to a burst, gets a verdict and is settled",
        units: BURST as u64,
        times: 400,
        prepare: burst,
    },
    Case {
        name: "parse",
        unit: "frame",
        about: "app `features` parses a UDP frame into a record",
        units: BURST as u64,
        times: 400,
        prepare: parse_frames,
    },
    Case {
        name: "flow-table",
        unit: "record",
        about: "a record is added to a flow, in bursts, among 1,000 flows",
        units: BURST as u64,
        times: 400,
        prepare: flow_table,
    },
    Case {
        name: "rule-match",
        unit: "frame",
        about: "a frame's headers against 1,000 exact rules, in bursts; one of two frames matches",
        units: BURST as u64,
        times: 400,
        prepare: rule_match,
    },
    Case {
        name: "stack-request",
        unit: "request",
        about: "64 bytes over TCP and their answer, 10 connections, the far end's frames included",
        units: REQUESTS as u64,
        times: 40,
        prepare: stack_request,
    },
    Case {
        name: "resp-parse",
        unit: "command",
        about: "a SET of 64 bytes, 64 commands in one piece",
        units: COMMANDS as u64,
        times: 400,
        prepare: resp_parse,
    },
    Case {
        name: "relay-turn",
        unit: "copy",
        about: "datagrams of 1,316 bytes to 8 outputs, through the stack on simulated links",
        units: relay::COPIES,
        times: 10,
        prepare: relay::turns,
    },
    Case {
        name: "ctf-decode",
        unit: "event",
        about: "entries and exits of CTF 1.8, as LTTng-UST records them",
        units: ctf::EVENTS,
        times: 4,
        prepare: ctf::decode,
    },
];

/// The case of this name.
pub(crate) fn find(name: &str) -> Result<&'static Case, String> {
    CASES.iter().find(|case| case.name == name).ok_or_else(|| {
        let names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
        format!("there is no case `{name}`; use one of {}", names.join(", "))
    })
}

/// Distinct conversations: the same ones in every run.
fn frames(count: u32) -> Vec<Vec<u8>> {
    let frame = |n: u32| UdpFrame {
        source: Ipv4Addr::from_bits(0x0a00_0001 + n),
        source_port: 1024 + (n % 50_000) as u16,
        bytes: 128,
        ..UdpFrame::default()
    };
    (0..count).map(|n| frame(n).build()).collect()
}

fn burst() -> Box<dyn FnMut()> {
    let mut pool = FramePool::new(2 * BURST, 2048, BURST);
    Box::new(move || {
        for n in 0..BURST {
            let frame = pool.push(black_box(64), 64, n as u64);
            frame.expect("a pool of two bursts has room for one").set_verdict(Verdict::Tx);
        }
        pool.settle(|verdict, frame| {
            black_box((verdict, frame.wire_len));
        });
    })
}

fn stamp(n: u64, frame: &[u8]) -> Stamp {
    Stamp {
        ts_ns: 1_700_000_000_000_000_000 + n * 10_000,
        seq_no: n,
        wire_len: frame.len() as u32,
        ifindex: 1,
        rx_queue: 0,
    }
}

fn parse_frames() -> Box<dyn FnMut()> {
    let frames = frames(BURST as u32);
    Box::new(move || {
        for (n, frame) in (0..).zip(&frames) {
            black_box(parse(black_box(frame), stamp(n, frame)));
        }
    })
}

fn flow_table() -> Box<dyn FnMut()> {
    let frames = frames(FLOWS);
    let mut records: Vec<Record> =
        (0..).zip(&frames).map(|(n, frame)| parse(frame, stamp(n, frame))).collect();
    let mut table = FlowTable::new(1 << 16, FlowLimits::default(), TableOptions::default())
        .expect("memory for 65,536 flows");
    let mut sink = |ended: EndedFlow<'_>| {
        black_box(ended.flow);
    };
    table.add_batch(&records, &mut sink);
    let mut at = 0;
    Box::new(move || {
        let end = (at + BURST).min(records.len());
        // The packet clock goes on; nothing expires within one run.
        records[at..end].iter_mut().for_each(|record| record.ts_ns += 1_000);
        table.add_batch(black_box(&records[at..end]), &mut sink);
        at = if end + BURST > records.len() { 0 } else { end };
    })
}

fn rule_match() -> Box<dyn FnMut()> {
    let rule = |n: u32| {
        let source = Ipv4Addr::from_bits(0x0a00_0001 + 2 * n);
        let port = 1024 + 2 * n;
        format!(
            "flow create 0 ingress pattern eth / ipv4 src is {source} dst is 198.18.0.2 / \
             udp src is {port} dst is 4001 / end actions drop / end"
        )
    };
    let mut set = RuleSet::for_user(Bounds { ports: 1, queues: 1 });
    let lines: Vec<String> = (0..RULES).map(rule).collect();
    set.load(&lines.join("\n")).expect("rules that the grammar has");
    assert_eq!(set.commit(), Commit::Done);
    let feed = set.feed().expect("a set of user space has a feed");
    let headers: Vec<Headers> = frames(2 * RULES).iter().map(|frame| Headers::of(frame)).collect();
    let mut bursts = headers.chunks_exact(BURST).map(<[Headers]>::to_vec).collect::<Vec<_>>();
    let mut matched = 0;
    Box::new(move || {
        // The set stays alive with its feed.
        black_box(&set);
        bursts.rotate_left(1);
        feed.judge_burst(
            0,
            black_box(&bursts[0]),
            |_| 128,
            |_, fate| {
                matched += usize::from(fate.is_some());
            },
        );
        black_box(matched);
    })
}

fn stack_request() -> Box<dyn FnMut()> {
    let mut ends = FarEnds::open(CONNECTIONS, || Duration::ZERO);
    assert_eq!(ends.connections(), CONNECTIONS);
    Box::new(move || {
        black_box(ends.round(REQUESTS));
    })
}

fn resp_parse() -> Box<dyn FnMut()> {
    let mut bytes = Vec::new();
    for n in 0..COMMANDS {
        let key = format!("key:{n:012}");
        command(&[b"SET", key.as_bytes(), &[b'x'; 64]], &mut bytes);
    }
    let (mut parser, limits) = (Parser::new(), Limits::default());
    Box::new(move || {
        let mut shown = black_box(&bytes[..]);
        while !shown.is_empty() {
            let step = parser.next(shown, &limits).expect("commands");
            black_box(step.command.map(|args| args.iter().map(<[u8]>::len).sum::<usize>()));
            shown = &shown[step.consumed..];
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_case_has_a_name_of_its_own_and_its_work_can_be_done_again() {
        let names: BTreeSet<&str> = CASES.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), CASES.len());
        for case in CASES {
            let mut work = (case.prepare)();
            (0..3).for_each(|_| work());
        }
    }

    #[test]
    fn a_case_that_is_not_there_is_refused_with_those_that_are() {
        let why = find("parser").map(|case| case.name).unwrap_err();
        assert!(why.contains("`parser`") && why.contains("resp-parse"), "{why}");
    }
}
