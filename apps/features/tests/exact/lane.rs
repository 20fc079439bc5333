//! The user-space placement on a lane: the app itself, given bursts of a capture file, with a worker
//! whose clock is years ahead of the capture's.

use crate::{captures::Frame, kernel::Kept};
use laneway_capture::{Layout, LinkType, Record, Writer};
use laneway_core::{App, Counters, FrameApp, FrameLane, Lane, PortId, Turn};
use laneway_features::{Config, Features};
use laneway_pcap::PcapLane;
use laneway_spec::LaneSpec;
use std::{
    fs::{self, File},
    io::BufWriter,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// The worker's clock: in the year 2033, when no capture was made.
const NOW_NS: u64 = 2_000_000_000_000_000_000;

pub(crate) struct Run {
    pub(crate) kept: Kept,
    pub(crate) counters: Counters,
    pub(crate) unflowed: u64,
}

/// A file that is removed when the test ends, however it ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("lane-{}-{number}.pcapng", std::process::id());
        Scratch(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Runs the app on the frames, with a tick after every burst.
pub(crate) fn run(config: &Config, frames: &[Frame]) -> Run {
    run_app(Features::new(config, Vec::new(), Kept::default()), frames, NOW_NS)
}

/// As [`run`], a given app with a given clock of the worker.
pub(crate) fn run_app(mut app: Features<Kept>, frames: &[Frame], now_ns: u64) -> Run {
    let scratch = Scratch::new();
    let file = BufWriter::new(File::create(&scratch.0).expect("cargo made the folder"));
    let mut writer = Writer::new(file, Layout::Pcapng, &[LinkType::Ethernet]).expect("one link");
    for frame in frames {
        let Frame { ts_ns, wire_len, bytes } = frame;
        let (link, data) = (LinkType::Ethernet, &bytes[..]);
        let record = Record { ts_ns: *ts_ns, interface: 0, link, wire_len: *wire_len, data };
        writer.write(&record).unwrap_or_else(|e| panic!("{e}"));
    }
    writer.finish().and_then(|mut file| Ok(std::io::Write::flush(&mut file)?)).expect("a disk");

    let spec: LaneSpec = "pcap".parse().expect("a spec");
    let mut lane = PcapLane::open(&spec, &[&scratch.0]).unwrap_or_else(|e| panic!("{e}"));
    let (port, turn) = (PortId(0), Turn { now_ns });
    while !lane.exhausted() {
        let burst = lane.receive(port).unwrap_or_else(|e| panic!("{e}"));
        app.on_burst(port, burst, turn);
        lane.settle(port).unwrap_or_else(|e| panic!("{e}"));
        app.on_tick(turn);
    }
    app.on_stop(turn);
    Run { counters: app.counters().clone(), unflowed: app.unflowed(), kept: app.into_sink() }
}
