//! The loaded programs, run on given frames: one CPU, the capture's stamps as metadata.

use crate::captures::Frame;
use laneway_bpf::{Loaded, RunInput, prog_run};
use laneway_core::{App, ConfigValue, DropReason, KernelApp, KernelMaps, Turn};
use laneway_features::{Config, KernelFeatures, Sink};
use laneway_flow::{EndedFlow, FLOW_RECORD_BYTES, PacketClock, Record};
use laneway_testkit::skip;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::ops::RangeInclusive;

/// What BPF_PROG_RUN takes.
const FRAME_BYTES: RangeInclusive<usize> = 14..=64 << 10;
/// Frames run between two looks at the rings.
const FRAMES_PER_TURN: usize = 500;

/// Keeps what it is given.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) packets: Vec<Record>,
    pub(crate) flows: Vec<[u8; FLOW_RECORD_BYTES]>,
    pub(crate) taken: Vec<u64>,
}

impl Sink for Kept {
    fn packet(&mut self, record: &Record) {
        self.packets.push(*record);
    }

    fn flow(&mut self, ended: &EndedFlow<'_>) {
        self.flows.push(ended.flow.to_record_bytes(ended.key));
    }

    fn take(&mut self, seq_no: u64) {
        self.taken.push(seq_no);
    }
}

/// A loaded kernel half and its user-space part.
pub(crate) struct Kernel {
    loaded: Loaded,
    config: Config,
}

/// What a run gave.
pub(crate) struct Run {
    pub(crate) kept: Kept,
    /// Frames that the program saw.
    pub(crate) seen: u64,
    /// Frames that belong to no flow.
    pub(crate) unflowed: u64,
    /// Frames that became a row or part of one.
    pub(crate) received: u64,
    drops: Vec<u64>,
}

impl Run {
    pub(crate) fn drops(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    /// All drops of the program.
    pub(crate) fn dropped(&self) -> u64 {
        self.drops.iter().sum()
    }
}

/// True for a frame that can be run.
pub(crate) fn runs(frame: &Frame) -> bool {
    FRAME_BYTES.contains(&frame.bytes.len())
}

impl Kernel {
    /// Loads the program for `config` and stays on this CPU; `None`, and says so, without root.
    pub(crate) fn load(config: Config) -> Option<Kernel> {
        if !rustix::process::geteuid().is_root() {
            skip("loading eBPF programs needs root");
            return None;
        }
        // A run happens on the calling CPU, whose ring and accumulators it uses.
        let allowed = sched_getaffinity(None).expect("a thread may ask");
        let cpu = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).expect("one is allowed");
        let mut one = CpuSet::new();
        one.set(cpu);
        sched_setaffinity(None, &one).expect("a part of what is allowed");

        let mut half = laneway_features::half(&config);
        half.config.push(ConfigValue { name: "lw_stamped", bytes: vec![1] });
        let loaded = Loaded::load(&half).unwrap_or_else(|e| panic!("{e}"));
        Some(Kernel { loaded, config })
    }

    /// Runs the program on every frame, numbered by place, with ticks and the end as in a live run.
    /// The maps are as new before.
    pub(crate) fn run<'a>(&mut self, frames: impl IntoIterator<Item = (u64, &'a Frame)>) -> Run {
        self.empty();
        let mut app = KernelFeatures::new(self.config.clone(), Kept::default());
        let mut turn = Turn::default();
        // Live, no frame's time is before the worker's clock was read; here, none is before the floor.
        let mut clock = PacketClock::default();
        for (i, (number, frame)) in frames.into_iter().enumerate() {
            let stamped = Record { ts_ns: frame.ts_ns, ..Record::default() };
            turn.now_ns = clock.tick(&stamped).floor_ns;
            let mut stamp = frame.ts_ns.to_ne_bytes().to_vec();
            stamp.extend(number.to_ne_bytes());
            stamp.extend(frame.wire_len.to_ne_bytes());
            stamp.extend([0; 4]);
            let input = RunInput { frame: &frame.bytes, meta: &stamp, repeat: 1 };
            prog_run(self.loaded.program(), input).unwrap_or_else(|e| panic!("{e}"));
            if i % FRAMES_PER_TURN == FRAMES_PER_TURN - 1 {
                self.consume(&mut app, turn);
                app.on_tick(self.loaded.maps(), turn);
            }
        }
        self.consume(&mut app, turn);
        app.on_detached(self.loaded.maps(), turn);
        assert_eq!(app.damaged(), 0);
        let sums = |map| self.loaded.maps().per_cpu_sums(map).unwrap_or_else(|e| panic!("{e}"));
        Run {
            seen: sums("seen")[0],
            unflowed: app.unflowed(),
            received: app.counters().rx_frames,
            drops: sums("drops"),
            kept: app.into_sink(),
        }
    }

    fn consume(&mut self, app: &mut KernelFeatures<Kept>, turn: Turn) {
        let rings = self.loaded.rings().expect("the half emits records");
        rings.consume(|records| app.on_records(records, turn)).unwrap_or_else(|e| panic!("{e}"));
    }

    /// Leaves no flow, count or clock of the run before.
    fn empty(&mut self) {
        let maps = self.loaded.maps();
        let mut flows = Vec::new();
        maps.visit("flows", &mut |key, _| flows.push(key.to_vec())).expect("it is there");
        flows.iter().for_each(|key| maps.remove("flows", key).expect("it is a hash map"));
        for map in ["seen", "drops", "unflowed", "scratch"] {
            let mut entries = Vec::new();
            let mut keep = |key: &[u8], values: &[u8]| entries.push((key.to_vec(), values.len()));
            maps.visit(map, &mut keep).expect("it is there");
            for (key, bytes) in entries {
                maps.put(map, &key, &vec![0; bytes / maps.cpus()]).expect("a value of its length");
            }
        }
    }
}
