//! Every target on its seeds, on captures that ship, and on seeded changes of both: a few seconds, on stable Rust.

use laneway_fuzz::{Mutator, TARGETS, samples};
use laneway_capture::Reader;
use std::path::{Path, PathBuf};

const CHANGED: usize = 20_000;
/// Each input of these is read several times, by threads.
const CHANGED_TRACES: usize = 3_000;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The frames of a capture that ships.
fn frames() -> Vec<Vec<u8>> {
    let path = repository().join("scenarios/captures/tiny.pcap");
    let mut reader = Reader::open(&path).expect("it ships");
    let mut frames = Vec::new();
    while let Some(record) = reader.next_record().expect("a whole capture") {
        frames.push(record.data.to_vec());
    }
    frames
}

fn check(name: &str, seeds: &[Vec<u8>]) {
    check_times(name, seeds, CHANGED);
}

fn check_times(name: &str, seeds: &[Vec<u8>], changed: usize) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target of the table");
    assert!(!seeds.is_empty());
    seeds.iter().for_each(|seed| (target.run)(seed));
    let mut mutator = Mutator::new(1);
    for _ in 0..changed {
        (target.run)(&mutator.input(seeds));
    }
}

#[test]
fn wire_headers_survive() {
    let headers = frames().iter().flat_map(|f| [f.clone(), f[14..].to_vec()]).collect::<Vec<_>>();
    check("wire", &headers);
}

#[test]
fn features_survive() {
    check("features", &frames());
}

#[test]
fn rules_survive() {
    let mut seeds = samples(&repository().join("fuzz/seeds/rule")).expect("they ship");
    // A record behind the rule, so that the matching is reached.
    let records: Vec<_> = frames()
        .iter()
        .map(|f| laneway_features::parse(f, laneway_features::Stamp::default()).to_bytes())
        .collect();
    for (i, seed) in seeds.iter_mut().enumerate() {
        let text = std::str::from_utf8(seed).expect("seeds are text");
        text.parse::<laneway_flow::RecordMatch>().expect("seeds are rules");
        seed.push(0);
        seed.extend(records[i % records.len()]);
    }
    check("rule", &seeds);
}

#[test]
fn resp_survives() {
    let seeds: [&[u8]; 4] = [
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nvalue\r\n*1\r\n$4\r\nPING\r\n",
        b"PING\r\nSET k \"a b\\x41\" 'c'\r\n*0\r\n\r\nGET k\n",
        b"*2\r\n:1\r\n*2\r\n$-1\r\n+OK\r\n%1\r\n+a\r\n,1.5\r\n",
        b"_\r\n#t\r\n=5\r\ntxt:a\r\n-ERR no\r\n>1\r\n(99\r\n~1\r\n!3\r\nERR\r\n",
    ];
    check("resp", &seeds.map(<[u8]>::to_vec));
}

#[test]
fn relays_survive() {
    check("relay", &samples(&repository().join("fuzz/seeds/relay")).expect("they ship"));
}

#[test]
fn control_lines_survive() {
    check("control", &samples(&repository().join("fuzz/seeds/control")).expect("they ship"));
}

#[test]
fn captures_survive() {
    let captures = ["tiny.pcap", "tiny-ns.pcapng"].map(|name| {
        let path = repository().join("scenarios/captures").join(name);
        // The first records tell as much as all, and are changed more often.
        std::fs::read(path).expect("they ship")[..2048].to_vec()
    });
    check("pcap", &captures);
}

fn traces_survive(kind: &str) {
    // Written by the tests of `trace/read`, which also hold them to what they were made from.
    let seeds = samples(&repository().join("fuzz/seeds").join(kind)).expect("they ship");
    check_times(kind, &seeds, CHANGED_TRACES);
}

#[test]
fn ctf_traces_survive() {
    traces_survive("trace_ctf");
}

#[test]
fn traces_of_our_own_survive() {
    traces_survive("trace_own");
}

#[test]
fn chrome_traces_survive() {
    traces_survive("trace_chrome");
}

#[test]
fn uftrace_dumps_survive() {
    traces_survive("trace_uftrace");
}

#[test]
fn perf_scripts_survive() {
    traces_survive("trace_perf");
}

#[test]
fn symbols_survive() {
    traces_survive("trace_symbols");
}
