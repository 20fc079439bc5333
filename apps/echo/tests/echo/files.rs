//! The responder on captures: a file of questions in, a file of answers out, by the file's own time.

use crate::{
    Sent,
    build::ping4,
    rows::{responder, rows},
    run,
};
use laneway_capture::{Layout, LinkType, Reader, Record, Writer};
use laneway_core::Lane;
use laneway_echo::{Config, Echo, Fates, Limits, Rate};
use laneway_engine::{Control, Ended, UnixClock, run_frames};
use laneway_pcap::PcapLane;
use laneway_spec::{IdlePolicy, LaneSpec};
use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// When the capture was taken: long before the worker's clock.
const TAKEN_NS: u64 = 1_000_000_000_000_000_000;

/// A folder that is removed when the test ends, however it ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("echo-{}-{number}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&folder).expect("cargo made the folder above");
        Scratch(folder)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn write(path: &Path, frames: &[Sent]) {
    let file = BufWriter::new(File::create(path).expect("the folder is there"));
    let mut writer = Writer::new(file, Layout::Pcapng, &[LinkType::Ethernet]).expect("one link");
    for Sent { at_ns, bytes } in frames {
        let (link, wire_len) = (LinkType::Ethernet, bytes.len() as u32);
        let record = Record { ts_ns: *at_ns, interface: 0, link, wire_len, data: bytes };
        writer.write(&record).unwrap_or_else(|e| panic!("{e}"));
    }
    writer.finish().and_then(|mut file| Ok(file.flush()?)).expect("a disk");
}

fn read(path: &Path) -> Vec<Sent> {
    let mut reader = Reader::open(path).unwrap_or_else(|e| panic!("{e}"));
    let mut frames = Vec::new();
    while let Some(record) = reader.next_record().unwrap_or_else(|e| panic!("{e}")) {
        frames.push(Sent { at_ns: record.ts_ns, bytes: record.data.to_vec() });
    }
    frames
}

/// What the lane writes when the responder sees these frames in a capture.
fn answers(config: &Config, frames: &[Sent]) -> (Vec<Sent>, Fates) {
    let scratch = Scratch::new();
    let (asked, answered) = (scratch.0.join("asked.pcapng"), scratch.0.join("answered.pcapng"));
    write(&asked, frames);
    let spec: LaneSpec = format!("pcap:out={}", answered.display()).parse().expect("a spec");
    let mut echo = Echo::new(config).unwrap_or_else(|e| panic!("{e}"));
    {
        let mut lane = PcapLane::open(&spec, &[&asked]).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(lane.ports(), 1);
        let (clock, control) = (UnixClock::new(), Control::default());
        let report = run_frames(&mut lane, &mut echo, &clock, IdlePolicy::Block, &control);
        let report = report.unwrap_or_else(|e| panic!("{}", e.error));
        assert_eq!(report.ended, Ended::Exhausted);
        assert_eq!(report.counters().tx_frames, echo.fates().answered());
    }
    (read(&answered), *echo.fates())
}

#[test]
fn a_capture_of_questions_becomes_one_of_answers() {
    let has_header = |frame: &Vec<u8>| frame.len() >= 14;
    let frames: Vec<Sent> = (0..)
        .zip(rows().into_iter().map(|row| row.frame).filter(has_header))
        .map(|(i, bytes)| Sent { at_ns: TAKEN_NS + i * 1000, bytes })
        .collect();
    let (outcomes, fates) = run(&responder(), &frames);
    let expected: Vec<Sent> = frames
        .iter()
        .zip(outcomes)
        .filter(|(_, outcome)| outcome.fate.is_answer())
        .map(|(sent, outcome)| Sent { at_ns: sent.at_ns, bytes: outcome.bytes })
        .collect();
    assert_eq!(answers(&responder(), &frames), (expected, fates));
}

#[test]
fn a_capture_is_limited_as_it_was_when_it_was_taken() {
    let limits = Limits {
        per_source: Some(Rate { per_second: 10, burst: 1 }),
        global: None,
        sources_max: 4,
    };
    // Twenty a second for five seconds: every other one is due.
    let at = |i: u64| Sent { at_ns: TAKEN_NS + i * 50_000_000, bytes: ping4().frame() };
    let frames: Vec<Sent> = (0..100).map(at).collect();
    let (answered, _) = answers(&Config { limits, ..responder() }, &frames);
    let times: Vec<u64> = answered.iter().map(|sent| sent.at_ns).collect();
    assert_eq!(times, (0..100).step_by(2).map(|i| at(i).at_ns).collect::<Vec<_>>());
}
