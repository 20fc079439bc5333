//! The Rust table and rules against the kernel half's own code, compiled for this machine, and the
//! table's order and capacity against the plainest table in Rust.

mod plain_table;
mod records;

use laneway_flow::{FLOW_RECORD_BYTES, FlowLimits, FlowTable, Record, RecordMatch, TableOptions};
use laneway_testkit::Referee;
use plain_table::{Out, PlainTable};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use records::record;
use std::sync::OnceLock;

/// Limits that the times below step around, in ns: idle, active, end.
const LIMITS_NS: (u64, u64, u64) = (10_000_000_000, 60_000_000_000, 2_000_000_000);

/// A step of packet time in ns; may be backwards.
fn step_ns() -> impl Strategy<Value = i64> {
    let near = |at: u64| (at as i64 - 2)..(at as i64 + 3);
    prop_oneof![
        6 => 0i64..2_000_000,
        2 => Just(0i64),
        3 => 0i64..1_500_000_000,
        1 => near(1_000_000_000),
        1 => near(5_000_000_000),
        1 => near(LIMITS_NS.0),
        1 => near(LIMITS_NS.2),
        1 => 0i64..30_000_000_000,
        2 => -3_000_000_000i64..0,
        1 => -20_000_000_000i64..0,
    ]
}

/// A stream of up to `most` records with times.
fn stream(most: usize) -> impl Strategy<Value = Vec<Record>> {
    proptest::collection::vec((record(), step_ns()), 0..most).prop_map(|steps| {
        let mut now_ns = 1_700_000_000_000_000_000i64;
        let stamped = steps.into_iter().map(|(mut record, step)| {
            now_ns += step;
            record.ts_ns = now_ns as u64;
            record
        });
        stamped.collect()
    })
}

/// The compiled referee; `None`, and says so, without a C compiler.
fn referee() -> Option<&'static Referee> {
    static REFEREE: OnceLock<Option<Referee>> = OnceLock::new();
    let folder = env!("CARGO_TARGET_TMPDIR");
    let compile = || Referee::compile(folder, "crates/flow/tests/referee.c", "apps/features/bpf");
    REFEREE.get_or_init(compile).as_ref()
}

/// These records behind `head`.
fn input(head: &[u8], records: &[Record]) -> Vec<u8> {
    let mut input = head.to_vec();
    records.iter().for_each(|r| input.extend(r.to_bytes()));
    input
}

fn ours(records: &[Record], limits: FlowLimits, batch: usize) -> Vec<[u8; FLOW_RECORD_BYTES]> {
    let mut flows = Vec::new();
    let mut sink = |ended: laneway_flow::EndedFlow<'_>| {
        flows.push(ended.flow.to_record_bytes(ended.key));
    };
    let options = TableOptions { hash_seed: batch as u64, ppi_packets: batch % 5 };
    let mut table = FlowTable::new(512, limits, options).expect("a small table");
    if batch == 1 {
        records.iter().for_each(|r| {
            table.add(r, &mut sink);
        });
    } else {
        records.chunks(batch).for_each(|c| table.add_batch(c, &mut sink));
    }
    table.flush(&mut sink);
    flows
}

#[test]
fn every_byte_of_every_flow_is_the_kernel_halfs() {
    let Some(referee) = referee() else { return };
    let mut runner = TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(200)
    });
    let ends = prop_oneof![2 => Just(LIMITS_NS.2), 1 => Just(0u64)];
    let case = (stream(400), ends, 1usize..100);
    runner
        .run(&case, |(records, end_ns, batch)| {
            let limits = FlowLimits::new(LIMITS_NS.0, LIMITS_NS.1, end_ns).expect("in order");
            let [idle, active, end] = [LIMITS_NS.0, LIMITS_NS.1, end_ns].map(|ns| ns.to_string());
            let output = referee.run(&["flows", &idle, &active, &end], input(&[], &records));
            let (theirs, rest) = output.as_chunks::<FLOW_RECORD_BYTES>();
            prop_assert!(rest.is_empty());
            // The referee has no scan, so its flows come out in another order.
            let (mut theirs, mut ours) = (theirs.to_vec(), ours(&records, limits, batch));
            theirs.sort_unstable();
            ours.sort_unstable();
            prop_assert_eq!(ours.len(), theirs.len());
            for (a, b) in ours.iter().zip(&theirs) {
                if a != b {
                    let at = a.iter().zip(b).position(|(x, y)| x != y);
                    let flow = laneway_flow::Flow::from_record_bytes;
                    prop_assert!(false, "byte {:?}: {:#?}\n{:#?}", at, flow(a), flow(b));
                }
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_small_table_gives_out_what_the_plainest_does_in_the_same_order() {
    let mut runner = TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(300)
    });
    let ends = prop_oneof![2 => Just(LIMITS_NS.2), 1 => Just(0u64)];
    let case = (stream(400), ends, 1usize..40, 1usize..50, 0usize..5, any::<u64>());
    runner
        .run(&case, |(records, end_ns, capacity, batch, ppi_packets, hash_seed)| {
            let limits = FlowLimits::new(LIMITS_NS.0, LIMITS_NS.1, end_ns).expect("in order");
            let options = TableOptions { hash_seed, ppi_packets };
            let mut table = FlowTable::new(capacity, limits, options).expect("a small table");
            let mut ours: Vec<Out> = Vec::new();
            let mut sink = |e: laneway_flow::EndedFlow<'_>| {
                ours.push((e.flow.to_record_bytes(e.key), e.ppi.to_vec()));
            };
            let mut plain = PlainTable::new(capacity, limits, ppi_packets);
            for chunk in records.chunks(batch) {
                table.add_batch(chunk, &mut sink);
                chunk.iter().for_each(|r| plain.add(r));
                prop_assert_eq!(table.len(), plain.len());
            }
            table.flush(&mut sink);
            let counters = *table.counters();
            let theirs = plain.flush();
            prop_assert!(table.is_empty());
            prop_assert!(ours == theirs, "{} and {} flows", ours.len(), theirs.len());
            prop_assert_eq!(counters.started, ours.len() as u64);
            prop_assert_eq!(counters.records + counters.unflowed_total(), records.len() as u64);
            Ok(())
        })
        .unwrap();
}

#[test]
fn the_kernel_half_admits_what_the_rule_matches() {
    let Some(referee) = referee() else { return };
    let rules = [
        "eth",
        "eth / ipv4 src is 10.0.0.0/31 / tcp dst spec 1000 dst last 1000",
        "eth / vlan vid is 1 / ipv6 dst is 2001:db8::1 / end or eth / ipv4 / udp src is 1001",
        "ipv4 tos spec 3 tos last 200 or ipv6 hop is 63 / tcp flags spec 2 flags mask 0x12",
    ];
    let mut runner = TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(20)
    });
    runner
        .run(&stream(300), |records| {
            for text in rules {
                let rule: RecordMatch = text.parse().expect(text);
                let theirs = referee.run(&["filter"], input(&rule.to_bytes(), &records));
                let ours: Vec<_> = records.iter().map(|r| u8::from(rule.matches(r))).collect();
                prop_assert_eq!(ours, theirs);
            }
            Ok(())
        })
        .unwrap();
}
