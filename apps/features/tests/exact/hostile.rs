//! Damaged frames and times: nothing panics in any placement, all agree, and every frame is a row or
//! is counted.

use crate::{
    assert_flows, assert_records, both_limits,
    captures::{Frame, captures, shipped},
    flow_config, flows_of,
    kernel::{Kernel, runs},
    lane, records_of,
    referee::referee,
};
use laneway_features::{
    Aggregation, Config, Format, Level, Output, Profile, Provenance, Tables,
    offline::{self, Chunk, OfflineFrame, Progress, Source},
};
use laneway_flow::{Flow, Has, Record, Status};
use laneway_testkit::skip;
use proptest::{prelude::*, sample::Index, test_runner::TestRunner};
use std::{collections::BTreeMap, path::Path};

/// Damaged frames per case.
const FRAMES: usize = 300;

/// Undamaged frames to start from: the shipped ones of every kind, and odd ones of others.
fn seeds() -> Vec<Frame> {
    let odd = captures().iter().flat_map(|c| c.frames.iter().take(3));
    shipped("tiny.pcap").frames.iter().chain(odd).cloned().collect()
}

/// What is done to a frame.
#[derive(Clone, Debug)]
enum Damage {
    Flip(Index, u8),
    Set(Index, u8),
    Cut(Index),
    Grow(Vec<u8>),
    Noise(Index, [u8; 6]),
}

/// Most damage lies in the headers.
const HEADERS_BYTES: usize = 100;

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        3 => (any::<Index>(), 0u8..8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        3 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        2 => any::<Index>().prop_map(Damage::Cut),
        1 => proptest::collection::vec(any::<u8>(), 1..90).prop_map(Damage::Grow),
        1 => (any::<Index>(), any::<[u8; 6]>()).prop_map(|(at, noise)| Damage::Noise(at, noise)),
    ]
}

fn apply(damage: &Damage, bytes: &mut Vec<u8>) {
    let reach = bytes.len().min(HEADERS_BYTES);
    match damage {
        Damage::Grow(more) => bytes.extend(more),
        _ if reach == 0 => {}
        Damage::Flip(at, bit) => bytes[at.index(reach)] ^= 1 << bit,
        Damage::Set(at, byte) => bytes[at.index(reach)] = *byte,
        Damage::Cut(at) => bytes.truncate(at.index(reach)),
        Damage::Noise(at, noise) => {
            bytes.iter_mut().skip(at.index(reach)).zip(noise).for_each(|(b, n)| *b = *n);
        }
    }
}

/// A step of time, mostly small and forward.
fn time() -> impl Strategy<Value = u64> {
    prop_oneof![
        20 => 1_700_000_000_000_000_000u64..1_700_000_010_000_000_000,
        1 => Just(0u64),
        1 => 0u64..1_000_000_000,
        1 => any::<u64>(),
        1 => Just(u64::MAX),
    ]
}

fn frames() -> impl Strategy<Value = Vec<Frame>> {
    let seeds = seeds();
    let one = (any::<Index>(), proptest::collection::vec(damage(), 0..4), time(), 0u32..3);
    proptest::collection::vec(one, 1..FRAMES).prop_map(move |choices| {
        let frames = choices.into_iter().map(|(seed, damages, ts_ns, longer)| {
            let mut bytes = seed.get(&seeds).bytes.clone();
            damages.iter().for_each(|d| apply(d, &mut bytes));
            Frame { ts_ns, wire_len: bytes.len() as u32 + longer, bytes }
        });
        frames.collect()
    })
}

fn runner(cases: u32) -> TestRunner {
    TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    })
}

/// What holds for every record, whatever the frame was.
fn check_invariants(r: &Record, frame: &Frame) {
    let has = |bit| r.has.contains(bit);
    assert_eq!((r.cap_len as usize, r.frame_len), (frame.bytes.len(), frame.wire_len));
    assert!(!(has(Has::IPV4) && has(Has::IPV6)), "{r:?}");
    if r.status == Status::Ok {
        assert!(r.has_ip() && r.l4_hdr_len >= 8, "{r:?}");
        assert!(has(Has::PORTS) || has(Has::ICMP), "{r:?}");
    }
    if matches!(r.status, Status::L2Truncated | Status::L3Unknown) {
        assert!(!r.has_ip(), "{r:?}");
    }
    if !r.has_ip() {
        let rest = (r.src_ip, r.dst_ip, r.proto, r.ttl, r.ip_len, r.l3_hdr_len);
        assert_eq!(rest, ([0; 16], [0; 16], 0, 0, 0, 0), "{r:?}");
    }
    if !has(Has::PORTS) {
        assert_eq!((r.src_port, r.dst_port), (0, 0), "{r:?}");
    }
    if !has(Has::TCP) {
        let rest = (r.tcp_seq, r.tcp_ack, r.tcp_win, r.tcp_flags, r.tcp_mss, r.tcp_wscale);
        assert_eq!(rest, (0, 0, 0, 0, 0, 0), "{r:?}");
        assert!(!r.has.intersects(Has::MSS.with(Has::WSCALE)), "{r:?}");
    }
    if !has(Has::ICMP) {
        assert_eq!((r.icmp_type, r.icmp_code), (0, 0), "{r:?}");
    }
    let (vlan, vlan2) = (has(Has::VLAN), has(Has::VLAN2));
    assert!((vlan || r.vlan_tci == 0) && (vlan2 || r.vlan_tci2 == 0) && (vlan || !vlan2), "{r:?}");
}

#[test]
fn any_bytes_have_a_record_that_keeps_its_promises() {
    let noise = proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..120), 1..50);
    runner(200)
        .run(&(frames(), noise), |(mut frames, noise)| {
            frames.extend(noise.into_iter().map(|bytes| Frame {
                ts_ns: 0,
                wire_len: bytes.len() as u32,
                bytes,
            }));
            records_of(&frames).iter().zip(&frames).for_each(|(r, f)| check_invariants(r, f));
            Ok(())
        })
        .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn the_referee_agrees_on_damaged_frames() {
    let Some(referee) = referee() else { return };
    runner(60)
        .run(&frames(), |frames| {
            let theirs = referee.parse(&frames);
            let theirs: Vec<Record> =
                theirs.iter().map(|b| Record::from_bytes(b).expect("a known status")).collect();
            assert_records("damaged", &records_of(&frames), &theirs);
            Ok(())
        })
        .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn the_loaded_programs_agree_on_damaged_frames_and_account_for_each() {
    let packets = Config { rate_max: 500_000, ..Config::default() };
    let flows = flow_config(both_limits()[1], Aggregation::Kernel);
    let (Some(packets_kernel), Some(flows_kernel)) =
        (Kernel::load(packets.clone()), Kernel::load(flows.clone()))
    else {
        return;
    };
    let kernels = std::cell::RefCell::new((packets_kernel, flows_kernel));
    runner(25)
        .run(&frames(), |mut frames| {
            frames.retain(runs);
            let (packets_kernel, flows_kernel) = &mut *kernels.borrow_mut();
            let run = packets_kernel.run((0..).zip(&frames));
            let user = lane::run(&packets, &frames);
            assert_records("damaged", &user.kept.packets, &run.kept.packets);
            let rows = run.kept.packets.len() as u64;
            assert_eq!(rows + run.dropped(), frames.len() as u64);
            assert_eq!(user.counters.rx_frames, rows);
            let left_out: u64 = user.counters.nonzero_drops().map(|(_, n)| n).sum();
            assert_eq!(left_out, run.dropped());

            let run = flows_kernel.run((0..).zip(&frames));
            let user = lane::run(&flows, &frames);
            let in_flows = |flows: &[_]| -> u64 {
                flows.iter().filter_map(Flow::from_record_bytes).map(|(_, f)| f.pkts()).sum()
            };
            assert_eq!(in_flows(&run.kept.flows) + run.unflowed, frames.len() as u64);
            assert_eq!(in_flows(&user.kept.flows) + user.unflowed, frames.len() as u64);
            let (ours, _) = flows_of(&records_of(&frames), flows.limits);
            assert_flows("damaged", ours, run.kept.flows);
            Ok(())
        })
        .unwrap_or_else(|e| panic!("{e}"));
}

struct Memory(Option<Vec<Frame>>);
struct Frames(Vec<Frame>);

impl Chunk for Frames {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn each(&self, show: &mut dyn FnMut(OfflineFrame<'_>)) {
        for frame in &self.0 {
            let Frame { ts_ns, wire_len, bytes } = frame;
            let (ts_ns, wire_len) = (Some(*ts_ns), *wire_len);
            show(OfflineFrame { ts_ns, wire_len, link_extra: 0, bytes: Some(bytes) });
        }
    }
}

impl Source for Memory {
    type Chunk = Frames;

    fn next_chunk(&mut self) -> Result<Option<Frames>, String> {
        Ok(self.0.take().map(Frames))
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (0, None)
    }
}

#[test]
fn damaged_frames_pass_through_files_of_every_format() {
    if !Path::new("/dev/null").exists() {
        return skip("there is no /dev/null");
    }
    let formats =
        [Format::Parquet, Format::Arrow, Format::ArrowStream, Format::Csv, Format::JsonLines];
    runner(12)
        .run(&(frames(), any::<Index>()), |(frames, format)| {
            for level in [Level::Packet, Level::Flow] {
                let config = Config { level, first_packets: 4, ..Config::default() };
                let tables = Tables::new(&config, Profile::Full, 0);
                let to = Path::new("/dev/null");
                let format = *format.get(&formats);
                let output = Output::open(to, format, tables.schema(), &Provenance::default());
                let summary = offline::run(
                    &config,
                    Profile::Full,
                    [Memory(Some(frames.clone()))],
                    output.expect("it takes everything"),
                    2,
                    &Progress::default(),
                    |_| BTreeMap::new(),
                )
                .unwrap_or_else(|e| panic!("{e}"));
                assert_eq!(summary.counters.rx_frames, frames.len() as u64);
                assert_eq!(summary.by_status.iter().sum::<u64>(), frames.len() as u64);
                if level == Level::Packet {
                    assert_eq!(summary.rows, frames.len() as u64);
                }
            }
            Ok(())
        })
        .unwrap_or_else(|e| panic!("{e}"));
}
