//! Flows of captures whose stamps are out of order: what one wrong stamp may change, what bounded
//! disorder may not, and what becomes of a clock that is set.

use laneway_flow::{
    AHEAD_NS, BEHIND_NS, Disorder, FlowKey, FlowLimits, FlowTable, Has, Record, TableOptions,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

const S: u64 = 1_000_000_000;
const START_NS: u64 = 1_700_000_000 * S;
const IDLE_NS: u64 = 120 * S;

/// Frame `number` of a flow: its length is the number, so that sums say which frames a flow has.
fn frame(flow: u8, number: u32, ts_ns: u64) -> Record {
    let mut r = Record {
        ts_ns,
        proto: 17,
        src_port: 1000,
        dst_port: 53,
        frame_len: number,
        ip_len: 46,
        l3_hdr_len: 20,
        l4_hdr_len: 8,
        has: Has::IPV4.with(Has::PORTS),
        ..Record::default()
    };
    (r.src_ip[15], r.dst_ip[15]) = (flow, 255);
    r
}

/// What a flow is: its key, how many frames, the sum and the sum of squares of their numbers, its
/// stamps, the gaps between its frames.
type Row = (FlowKey, u64, u64, u64, (u64, u64), (u64, u64));

fn rows(records: &[Record]) -> (Vec<Row>, Disorder) {
    let limits = FlowLimits::new(IDLE_NS, 1800 * S, 0).expect("in order");
    let mut table = FlowTable::new(1000, limits, TableOptions::default()).expect("a small table");
    let mut rows = Vec::new();
    let mut sink = |ended: laneway_flow::EndedFlow<'_>| {
        let (f, side) = (ended.flow, &ended.flow.side[0]);
        let stamps = (f.first_stamp_ns, f.last_stamp_ns);
        rows.push((*ended.key, f.pkts(), side.bytes, side.len_sq, stamps, (f.iat.sum, f.iat.max)));
    };
    table.add_batch(records, &mut sink);
    table.flush(&mut sink);
    let disorder = *table.clock().disorder();
    rows.sort_unstable();
    (rows, disorder)
}

/// Which frames belong together, whatever their times.
fn membership(rows: &[Row]) -> Vec<(FlowKey, u64, u64, u64)> {
    let mut flows: Vec<_> = rows.iter().map(|r| (r.0, r.1, r.2, r.3)).collect();
    flows.sort_unstable();
    flows
}

/// Frames in the order of their stamps. Gaps within a flow are below 50 s or above 200 s, so that no
/// gap is near the idle timeout; the link is busy, or quiet between any two frames.
fn in_order() -> impl Strategy<Value = Vec<Record>> {
    let gap = prop_oneof![8 => 0..S, 2 => S..20 * S, 1 => 200 * S..900 * S];
    let flow = proptest::collection::vec(gap, 1..12);
    let flows = proptest::collection::vec((flow, 0..300 * S), 1..12);
    flows.prop_map(|flows| {
        let mut frames = Vec::new();
        for (flow, (gaps, begin)) in flows.into_iter().enumerate() {
            let mut ts_ns = START_NS + begin;
            for gap in gaps {
                frames.push((flow as u8, ts_ns));
                ts_ns += gap;
            }
        }
        frames.sort_by_key(|(_, ts_ns)| *ts_ns);
        (1..).zip(frames).map(|(number, (flow, ts_ns))| frame(flow, number, ts_ns)).collect()
    })
}

/// How wrong a stamp is: anything, and near the bounds.
fn wrong() -> impl Strategy<Value = i64> {
    let near = |at: u64| (at as i64 - 3)..(at as i64 + 4);
    let size = prop_oneof![
        4 => 0..86_400_000 * S as i64 / 1000,
        1 => near(AHEAD_NS),
        1 => near(BEHIND_NS),
        1 => near(IDLE_NS),
        1 => 0..5 * S as i64,
        1 => Just(1_600_000_000 * S as i64),
    ];
    (size, any::<bool>()).prop_map(|(size, ahead)| if ahead { size } else { -size })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn one_wrong_stamp_changes_at_most_the_flow_it_belongs_to(
        frames in in_order(), at in any::<prop::sample::Index>(), wrong in wrong(),
    ) {
        let at = at.index(frames.len());
        let mut damaged = frames.clone();
        damaged[at].ts_ns = damaged[at].ts_ns.wrapping_add_signed(wrong);
        let others = |records: &[Record]| -> Vec<Row> {
            let (rows, _) = rows(records);
            rows.into_iter().filter(|row| row.0 != FlowKey::of(&frames[at]).0).collect()
        };
        prop_assert_eq!(others(&damaged), others(&frames));
        let (_, disorder) = rows(&damaged);
        prop_assert!(disorder.steps == 0 && disorder.strays <= 2, "{:?}", disorder);
    }

    #[test]
    fn disorder_of_up_to_a_second_changes_no_flows_frames(
        frames in in_order(), delays in proptest::collection::vec(0..=AHEAD_NS, 150),
    ) {
        let mut arrived: Vec<(u64, Record)> =
            frames.iter().zip(&delays).map(|(r, delay)| (r.ts_ns + delay, *r)).collect();
        arrived.sort_by_key(|(at_ns, _)| *at_ns);
        let arrived: Vec<Record> = arrived.into_iter().map(|(_, r)| r).collect();
        let (there, disorder) = rows(&arrived);
        prop_assert_eq!(membership(&there), membership(&rows(&frames).0));
        prop_assert_eq!(disorder.steps, 0);
    }

    /// What comes late by more than the window may share its flow with other frames than it would
    /// have; no frame is lost, and none is in two flows.
    #[test]
    fn every_frame_is_in_one_flow_whatever_the_stamps(
        stamps in proptest::collection::vec((0u8..4, prop_oneof![
            3 => START_NS..START_NS + 500 * S, 1 => any::<u64>(),
        ]), 1..200),
    ) {
        let frames: Vec<Record> =
            (1..).zip(stamps).map(|(number, (flow, ts_ns))| frame(flow, number, ts_ns)).collect();
        let (rows, _) = rows(&frames);
        let mut per_key: BTreeMap<FlowKey, u64> = BTreeMap::new();
        rows.iter().for_each(|row| *per_key.entry(row.0).or_default() += row.2);
        for (key, sum) in per_key {
            let of_key = |r: &&Record| FlowKey::of(r).0 == key;
            let numbers: u64 = frames.iter().filter(of_key).map(|r| u64::from(r.frame_len)).sum();
            prop_assert_eq!(sum, numbers);
        }
    }
}

/// A minute of ten flows, a frame of each every 100 ms.
fn a_minute(from_s: u64, from_number: u32) -> Vec<Record> {
    (0..6000u32)
        .map(|i| {
            let ts_ns = START_NS + from_s * S + u64::from(i) * 10_000_000;
            frame((i % 10) as u8, from_number + i, ts_ns)
        })
        .collect()
}

#[test]
fn a_frame_an_hour_ahead_stands_alone_and_its_flow_goes_on() {
    let mut frames = a_minute(0, 1);
    frames[3000].ts_ns += 3600 * S;
    let (rows, disorder) = rows(&frames);
    // The flow before it, the frame, the flow behind it.
    assert_eq!(rows.len(), 12);
    assert_eq!((disorder.strays, disorder.steps), (1, 0));
}

#[test]
fn a_clock_that_is_set_back_cuts_no_flow() {
    for back_s in [3, 59, 200, 3600] {
        let mut frames = a_minute(0, 1);
        let mut later = a_minute(60, 7000);
        later.iter_mut().for_each(|r| r.ts_ns -= back_s * S);
        frames.append(&mut later);
        let (rows, disorder) = rows(&frames);
        assert_eq!(rows.len(), 10, "{back_s} s back");
        assert_eq!((disorder.strays, disorder.steps), (0, 1), "{back_s} s back");
        // The stamps are reported as they were; the gaps are those of time going on.
        let (first_ns, last_ns) = rows[0].4;
        assert_eq!(first_ns, START_NS);
        assert!(last_ns + back_s * S < START_NS + 121 * S, "{last_ns}");
        assert!(rows[0].5.0 < 121 * S && rows[0].5.1 <= S / 5, "{:?}", rows[0]);
    }
}

#[test]
fn files_put_together_in_the_wrong_order_keep_their_flows() {
    let (first, second) = (a_minute(0, 1), a_minute(4000, 7000));
    let (rows, disorder) = rows(&[second, first].concat());
    assert_eq!(rows.len(), 10, "at the seam time goes on");
    assert_eq!(disorder.steps, 1);
}

#[test]
fn frames_of_two_clocks_in_turns_are_cut_once_at_most() {
    let mut frames = a_minute(0, 1);
    for (i, frame) in frames.iter_mut().enumerate() {
        // Five flows are stamped by a clock that is an hour behind.
        if i % 10 >= 5 {
            frame.ts_ns -= 3600 * S;
        }
    }
    let (rows, disorder) = rows(&frames);
    assert_eq!((rows.len(), disorder.steps), (10, 1), "{disorder:?}");
}
