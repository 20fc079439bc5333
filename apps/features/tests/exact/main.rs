//! The headline: rows made in user space, by the kernel half's headers on the host, and by the
//! loaded XDP programs are equal in every column, on every capture.
//!
//! Flows are compared as the bytes of `struct lw_flow_record`, which hold every integer that a row
//! has; records as those of `struct lw_record`. What needs root or a compiler says so when it is
//! not there.

mod captures;
mod hostile;
mod kernel;
mod lane;
mod made;
mod referee;

use captures::{Capture, Frame, captures, shipped};
use kernel::{Kept, Kernel, runs};
use laneway_core::DropReason;
use laneway_features::{Aggregation, Config, Features, Level, Stamp, parse};
use laneway_flow::{
    BEHIND_NS, EndReason, FLOW_RECORD_BYTES, Flow, FlowLimits, FlowTable, Record, RecordMatch,
    TableOptions,
};
use laneway_testkit::skip;
use referee::referee;

/// With how many of the kinds of conversations made by hand each matches.
const RULES: [(&str, usize); 5] = [
    ("eth", 5),
    ("ipv4 / tcp dst is 80 or ipv4 / tcp src is 80 or udp dst is 53", 2),
    ("ipv6", 1),
    ("vlan / ipv4 or vlan / vlan or eth type is 0x0806", 2),
    ("ipv4 ttl spec 1 ttl last 63 / tcp flags spec 2 flags mask 0x12", 1),
];

/// The record of a frame of a capture file, numbered by its place.
fn record_of(frame: &Frame, number: u64) -> Record {
    let stamp =
        Stamp { ts_ns: frame.ts_ns, seq_no: number, wire_len: frame.wire_len, ..Stamp::default() };
    parse(&frame.bytes, stamp)
}

fn records_of(frames: &[Frame]) -> Vec<Record> {
    (0..).zip(frames).map(|(number, frame)| record_of(frame, number)).collect()
}

/// The frames that can be run, with their numbers.
fn runnable(capture: &Capture) -> impl Iterator<Item = (u64, &Frame)> {
    (0..).zip(&capture.frames).filter(|(_, frame)| runs(frame))
}

fn say_how_many_cannot_run() {
    let cannot = captures().iter().flat_map(|c| &c.frames).filter(|f| !runs(f)).count();
    if cannot > 0 {
        skip(format!("{cannot} frames that BPF_PROG_RUN does not take (below 14 bytes, or huge)"));
    }
}

fn assert_records(capture: &str, ours: &[Record], theirs: &[Record]) {
    for (a, b) in ours.iter().zip(theirs) {
        assert!(a.to_bytes() == b.to_bytes(), "{capture}: ours {a:#?}, theirs {b:#?}");
    }
    assert_eq!(ours.len(), theirs.len(), "{capture}");
}

fn assert_flows(
    capture: &str,
    mut ours: Vec<[u8; FLOW_RECORD_BYTES]>,
    mut theirs: Vec<[u8; FLOW_RECORD_BYTES]>,
) {
    ours.sort_unstable();
    theirs.sort_unstable();
    assert_eq!(ours.len(), theirs.len(), "{capture}: flows");
    for (a, b) in ours.iter().zip(&theirs) {
        if a != b {
            let (a, b) = (Flow::from_record_bytes(a), Flow::from_record_bytes(b));
            panic!("{capture}: ours {a:?}, theirs {b:?}");
        }
    }
}

/// The flows of records in user space, and how many records belong to none.
fn flows_of(records: &[Record], limits: FlowLimits) -> (Vec<[u8; FLOW_RECORD_BYTES]>, u64) {
    let mut flows = Vec::new();
    let mut sink = |ended: laneway_flow::EndedFlow<'_>| {
        flows.push(ended.flow.to_record_bytes(ended.key));
    };
    let mut table = FlowTable::new(1 << 14, limits, TableOptions::default()).expect("it fits");
    table.add_batch(records, &mut sink);
    table.flush(&mut sink);
    (flows, table.counters().unflowed_total())
}

fn flow_config(limits: FlowLimits, aggregation: Aggregation) -> Config {
    Config { level: Level::Flow, limits, flows_max: 1 << 13, aggregation, ..Config::default() }
}

/// Default limits, and ones that end most flows of a capture of seconds.
fn both_limits() -> [FlowLimits; 2] {
    let tight = FlowLimits::new(800_000_000, 2_000_000_000, 50_000_000).expect("in order");
    [FlowLimits::default(), tight]
}

#[test]
fn the_referee_parses_every_frame_to_the_same_bytes() {
    let Some(referee) = referee() else { return };
    let mut frames = 0;
    for capture in captures() {
        let theirs = referee.parse(&capture.frames);
        let ours = records_of(&capture.frames);
        for (a, b) in ours.iter().zip(&theirs) {
            let b = Record::from_bytes(b).unwrap_or_else(|| panic!("{}: {b:?}", capture.name));
            assert!(a.to_bytes() == b.to_bytes(), "{}: ours {a:#?}, theirs {b:#?}", capture.name);
        }
        assert_eq!(ours.len(), theirs.len());
        frames += ours.len();
    }
    assert!(frames > 8000, "{frames} frames are too few to show anything");
}

#[test]
fn every_frame_made_by_hand_has_its_status() {
    for (status, bytes) in made::statuses() {
        let frame = Frame { ts_ns: 0, wire_len: bytes.len() as u32, bytes };
        assert_eq!(record_of(&frame, 0).status, status, "{:02x?}", frame.bytes);
    }
}

#[test]
fn the_captures_reach_every_status() {
    let mut seen = [false; laneway_flow::Status::COUNT];
    for capture in captures() {
        records_of(&capture.frames).iter().for_each(|r| seen[r.status as usize] = true);
    }
    let missing: Vec<&str> = laneway_flow::Status::ALL
        .iter()
        .filter(|s| !seen[**s as usize])
        .map(|s| s.name())
        .collect();
    assert!(missing.is_empty(), "no frame of status {}", missing.join(", "));
}

#[test]
fn the_loaded_program_gives_the_same_rows_in_every_column() {
    let Some(mut kernel) = Kernel::load(Config::default()) else { return };
    say_how_many_cannot_run();
    for capture in captures() {
        let run = kernel.run(runnable(capture));
        let ours: Vec<Record> = runnable(capture).map(|(n, frame)| record_of(frame, n)).collect();
        assert_records(&capture.name, &ours, &run.kept.packets);
        assert_eq!((run.seen, run.dropped()), (ours.len() as u64, 0), "{}", capture.name);
        // What the lab measures latency by: each number once, in order.
        assert!(run.kept.taken.iter().eq(ours.iter().map(|r| &r.seq_no)), "{}", capture.name);
    }
}

#[test]
fn the_referee_admits_what_a_rule_matches() {
    let Some(referee) = referee() else { return };
    let records: Vec<Record> = captures().iter().flat_map(|c| records_of(&c.frames)).collect();
    for (text, _) in RULES {
        let rule: RecordMatch = text.parse().expect(text);
        let theirs = referee.admits(&rule, &records);
        assert_eq!(theirs.len(), records.len());
        for (record, theirs) in records.iter().zip(theirs) {
            assert_eq!(rule.matches(record), theirs, "{text}: {record:?}");
        }
    }
}

#[test]
fn the_loaded_program_admits_what_a_rule_matches_and_counts_the_rest() {
    for (text, kinds) in RULES {
        let rule: RecordMatch = text.parse().expect(text);
        let config = Config { filter: Some(rule), ..Config::default() };
        let Some(mut kernel) = Kernel::load(config) else { return };
        let mut admitted = 0;
        for capture in captures() {
            let run = kernel.run(runnable(capture));
            let all: Vec<Record> = runnable(capture).map(|(n, f)| record_of(f, n)).collect();
            let ours: Vec<Record> = all.iter().filter(|r| rule.matches(r)).copied().collect();
            assert_records(&capture.name, &ours, &run.kept.packets);
            let left_out = (all.len() - ours.len()) as u64;
            assert_eq!(run.drops(DropReason::Filtered), left_out);
            assert_eq!(run.dropped(), left_out);
            if capture.name == "conversations" {
                assert_eq!(ours.len(), kinds * made::FRAMES_PER_KIND, "{text}");
            }
            admitted += ours.len();
        }
        assert!(admitted > 20, "{text} admits {admitted} frames, too few to show anything");
    }
}

#[test]
fn every_knob_has_the_same_rows_in_both_placements() {
    let configs = [
        Config { sample: 3, ..Config::default() },
        Config { rate_max: 50, ..Config::default() },
        Config { number_from_mac: true, ..Config::default() },
        Config {
            sample: 2,
            rate_max: 70,
            filter: Some("ipv4".parse().expect("a rule")),
            ..Config::default()
        },
    ];
    for config in configs {
        let Some(mut kernel) = Kernel::load(config.clone()) else { return };
        let capture = shipped("mixed.pcap.zst");
        let run = kernel.run(runnable(capture));
        let user = lane::run(&config, &capture.frames);
        assert!(!user.kept.packets.is_empty());
        assert_records(&capture.name, &user.kept.packets, &run.kept.packets);
        for reason in [DropReason::Sampled, DropReason::Filtered, DropReason::RateLimited] {
            assert_eq!(user.counters.drops(reason), run.drops(reason), "{reason:?}");
        }
        assert_eq!(run.kept.packets.len() as u64 + run.dropped(), run.seen);
    }
}

#[test]
fn a_lane_with_the_app_gives_the_same_rows_as_the_parser() {
    for capture in captures() {
        let user = lane::run(&Config::default(), &capture.frames);
        assert_records(&capture.name, &records_of(&capture.frames), &user.kept.packets);
    }
}

#[test]
fn a_capture_of_the_past_ends_its_flows_by_its_own_time_on_a_lane() {
    for limits in both_limits() {
        let config = flow_config(limits, Aggregation::User);
        let capture = shipped("mixed.pcap.zst");
        let user = lane::run(&config, &capture.frames);
        let (flows, unflowed) = flows_of(&records_of(&capture.frames), limits);
        assert_flows(&capture.name, flows, user.kept.flows);
        assert_eq!(user.unflowed, unflowed);
    }
}

#[test]
fn live_flows_end_by_the_workers_clock_when_no_frame_comes() {
    let limits = FlowLimits::new(1_000_000_000, 60_000_000_000, 0).expect("in order");
    let frames = &shipped("tiny.pcap").frames[..1];
    let ends = |now_ns: u64| -> Vec<_> {
        let app = Features::new(&flow_config(limits, Aggregation::User), vec![], Kept::default());
        let run = lane::run_app(app, frames, now_ns);
        run.kept.flows.iter().filter_map(Flow::from_record_bytes).map(|(_, f)| f.end).collect()
    };
    let sent_ns = frames[0].ts_ns;
    assert_eq!(ends(sent_ns + BEHIND_NS + 900_000_000), [Some(EndReason::Forced)]);
    assert_eq!(ends(sent_ns + BEHIND_NS + 1_000_000_000), [Some(EndReason::Idle)]);
    assert_eq!(ends(sent_ns + 3_600_000_000_000), [Some(EndReason::Forced)], "not of now");
}

#[test]
fn rows_name_interface_and_queue_where_there_is_one() {
    let frames = &shipped("tiny.pcap").frames[..3];
    let app = Features::new(&Config::default(), vec![7], Kept::default()).on_queue(2);
    let run = lane::run_app(app, frames, 0);
    assert!(run.kept.packets.iter().all(|r| (r.ifindex, r.rx_queue) == (7, 2)));
    assert_eq!(run.kept.taken, [0, 1, 2]);
}

#[test]
fn flows_put_together_in_the_kernel_have_the_same_integers() {
    say_how_many_cannot_run();
    for limits in both_limits() {
        let config = flow_config(limits, Aggregation::Kernel);
        let Some(mut kernel) = Kernel::load(config) else { return };
        let (mut flows, mut ended_early) = (0, 0);
        for capture in captures() {
            let run = kernel.run(runnable(capture));
            let records: Vec<Record> = runnable(capture).map(|(n, f)| record_of(f, n)).collect();
            let (ours, unflowed) = flows_of(&records, limits);
            let forced = Some(EndReason::Forced);
            let early = ours
                .iter()
                .filter_map(Flow::from_record_bytes)
                .filter(|(_, flow)| flow.end != forced)
                .count();
            if capture.name == "conversations" {
                assert_eq!((ours.len(), early), (made::FLOWS, made::FLOWS_ENDED_EARLY));
            }
            flows += ours.len();
            ended_early += early;
            assert_eq!((run.unflowed, run.dropped()), (unflowed, 0), "{}", capture.name);
            assert_eq!((run.seen, run.received), (records.len() as u64, run.seen));
            assert_flows(&capture.name, ours, run.kept.flows);
        }
        assert!(flows > 1000 && ended_early > 20, "{flows} flows, {ended_early} ended early");
    }
}

#[test]
fn flows_put_together_from_the_kernels_records_are_the_same_too() {
    for limits in both_limits() {
        let config = flow_config(limits, Aggregation::User);
        let Some(mut kernel) = Kernel::load(config) else { return };
        let capture = shipped("mixed.pcap.zst");
        let run = kernel.run(runnable(capture));
        let records: Vec<Record> = runnable(capture).map(|(n, f)| record_of(f, n)).collect();
        let (ours, unflowed) = flows_of(&records, limits);
        assert_flows(&capture.name, ours, run.kept.flows);
        assert_eq!((run.unflowed, run.received), (unflowed, records.len() as u64));
    }
}

#[test]
fn a_full_table_of_the_kernel_counts_the_frames_of_the_flows_it_does_not_take() {
    let config = Config { flows_max: 8, ..flow_config(FlowLimits::default(), Aggregation::Kernel) };
    let Some(mut kernel) = Kernel::load(config) else { return };
    let run = kernel.run(runnable(shipped("mixed.pcap.zst")));
    let refused = run.drops(DropReason::FlowTableFull);
    assert!(refused > 100, "{refused}");
    assert_eq!(run.dropped(), refused);
    assert_eq!(run.received + refused, run.seen, "every frame is in a flow or counted");
    let in_flows: u64 =
        run.kept.flows.iter().filter_map(Flow::from_record_bytes).map(|(_, f)| f.pkts()).sum();
    assert_eq!(in_flows + run.unflowed, run.received);
}
