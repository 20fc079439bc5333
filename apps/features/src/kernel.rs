//! The kernel placement: the same extractor as an XDP program (`bpf/features.bpf.c`), described as
//! data for the `xdp` lane, and its user-space part.

use crate::{
    config::{Aggregation, Config, Disposition, Level, RATE_BURST_NS},
    sink::{Sink, count_lost},
    user::Flows,
};
use laneway_core::{
    App, ConfigValue, Counters, KernelApp, KernelHalf, KernelMaps, RecordStream, Turn,
};
use laneway_flow::{
    Disorder, EndReason, EndedFlow, FLOW_BYTES, FLOW_RECORD_BYTES, Flow, FlowKey, RECORD_BYTES,
    Record, RecordMatch,
};

/// The compiled program.
pub static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/features.bpf.o"));

/// Bytes of each per-CPU ring unless a knob says otherwise: 40,000 records, 10 ms at 4 M/s.
pub const RING_BYTES_DEFAULT: u32 = 4 << 20;

/// Flows that the kernel half aggregates at a time unless asked otherwise: 60 MB per CPU.
pub const KERNEL_FLOWS_DEFAULT: usize = 1 << 16;

const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
/// How often idle flows are taken out of the kernel's table.
const SWEEP_NS: u64 = 1_000_000_000;

/// The extractor with its decision in the kernel.
pub struct KernelFeatures<S> {
    config: Config,
    flows: Option<Flows>,
    sink: S,
    counters: Counters,
    damaged: u64,
    swept_ns: u64,
    unflowed: u64,
}

impl<S: Sink> KernelFeatures<S> {
    /// An extractor that gives its rows to `sink`.
    pub fn new(config: Config, sink: S) -> KernelFeatures<S> {
        let in_user = config.level == Level::Flow && config.aggregation == Aggregation::User;
        KernelFeatures {
            flows: in_user.then(|| Flows::new(&config)),
            config,
            sink,
            counters: Counters::default(),
            damaged: 0,
            swept_ns: 0,
            unflowed: 0,
        }
    }

    /// The sink back, when the run is over.
    pub fn into_sink(self) -> S {
        self.sink
    }

    /// The sink, to look at during a run.
    pub fn sink(&self) -> &S {
        &self.sink
    }

    /// What it extracts.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Records and flows whose bytes were none (a program of another version), and reads of the
    /// kernel's maps that failed at the end.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Frames that belong to no flow (not IP).
    pub fn unflowed(&self) -> u64 {
        self.unflowed + self.flows.as_ref().map_or(0, Flows::unflowed)
    }

    /// How the stamps were ordered, where flows are put together in user space.
    pub fn disorder(&self) -> Disorder {
        self.flows.as_ref().map_or_else(Disorder::default, Flows::disorder)
    }

    fn aggregates(&self) -> bool {
        self.config.level == Level::Flow && self.config.aggregation == Aggregation::Kernel
    }

    /// Takes quiet flows out of the kernel's table. A flow of which frames still come is left
    /// alone, past its active timeout too: its next frame ends it, as in [`laneway_flow::FlowTable`].
    ///
    /// Reading and removing an entry are two calls. A frame of that very flow in between is lost to
    /// it or, if it ended the flow as well, the flow is handed over twice; either leaves the ledger
    /// open. So an entry is removed as soon as it is read.
    fn sweep(&mut self, maps: &dyn KernelMaps, now_ns: u64) {
        let limits = self.config.limits;
        let (counters, sink) = (&mut self.counters, &mut self.sink);
        // A map that cannot be read leaves its flows where they are; the next sweep tries again.
        let _ = maps.visit("flows", &mut |key, per_cpu| {
            let Some((key, mut flow, _)) = entry(key, per_cpu) else { return };
            let Some(reason @ (EndReason::Idle | EndReason::EndSeen)) =
                flow.ended(&limits, None, now_ns)
            else {
                return;
            };
            if maps.remove("flows", &key.to_bytes()).is_ok() {
                flow.close(reason);
                counters.rx_frames += flow.pkts();
                sink.flow(&EndedFlow { key: &key, flow: &flow, ppi: &[] });
            }
        });
    }

    /// Hands over every flow and reads the counts; the program is detached.
    fn finish_in_kernel(&mut self, maps: &dyn KernelMaps, now_ns: u64) {
        let limits = self.config.limits;
        let (counters, sink, damaged) = (&mut self.counters, &mut self.sink, &mut self.damaged);
        let flows = maps.visit("flows", &mut |key, per_cpu| {
            let Some((key, mut flow, bad)) = entry(key, per_cpu) else { return };
            *damaged += bad;
            flow.close(flow.ended(&limits, None, now_ns).unwrap_or(EndReason::Forced));
            counters.rx_frames += flow.pkts();
            sink.flow(&EndedFlow { key: &key, flow: &flow, ppi: &[] });
        });
        let mut unflowed = 0;
        let counts = maps.visit("unflowed", &mut |_, per_cpu| {
            for word in per_cpu.chunks_exact(8) {
                unflowed += u64::from_ne_bytes(word.try_into().expect("chunks of 8"));
            }
        });
        self.damaged += u64::from(flows.is_err()) + u64::from(counts.is_err());
        self.unflowed = unflowed;
        self.counters.rx_frames += unflowed;
    }
}

/// An entry of the kernel's table: the parts of all CPUs as one flow, and how many parts were none.
/// `None` for an entry without frames.
fn entry(key: &[u8], per_cpu: &[u8]) -> Option<(FlowKey, Flow, u64)> {
    let key = FlowKey::from_bytes(key.try_into().ok()?);
    let (mut whole, mut bad) = (Flow::default(), 0);
    for bytes in per_cpu.chunks_exact(FLOW_BYTES) {
        match bytes.try_into().ok().and_then(Flow::from_bytes) {
            Some(part) => whole.merge(&part),
            None => bad += 1,
        }
    }
    (whole.pkts() > 0).then_some((key, whole, bad))
}

impl<S: Sink> App for KernelFeatures<S> {
    fn wants_stop(&self) -> bool {
        self.sink.is_done()
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl<S: Sink> KernelApp for KernelFeatures<S> {
    fn half(&self) -> KernelHalf {
        half(&self.config)
    }

    fn on_records(&mut self, records: &[u8], _turn: Turn) {
        if self.aggregates() {
            for bytes in records.chunks_exact(FLOW_RECORD_BYTES) {
                match bytes.try_into().ok().and_then(Flow::from_record_bytes) {
                    Some((key, flow)) => {
                        self.counters.rx_frames += flow.pkts();
                        self.sink.flow(&EndedFlow { key: &key, flow: &flow, ppi: &[] });
                    }
                    None => self.damaged += 1,
                }
            }
            return;
        }
        for bytes in records.chunks_exact(RECORD_BYTES) {
            self.sink.take(seq_no(bytes));
            match bytes.try_into().ok().and_then(Record::from_bytes) {
                Some(record) => {
                    self.counters.rx_frames += 1;
                    self.counters.rx_bytes += u64::from(record.cap_len);
                    match &mut self.flows {
                        None => self.sink.packet(&record),
                        Some(flows) => flows.add(&record, &mut self.sink),
                    }
                }
                None => self.damaged += 1,
            }
        }
    }

    fn on_tick(&mut self, maps: &dyn KernelMaps, turn: Turn) {
        if let Some(flows) = &mut self.flows {
            flows.advance(turn.now_ns, &mut self.sink);
        }
        if self.aggregates() && turn.now_ns.saturating_sub(self.swept_ns) >= SWEEP_NS {
            self.swept_ns = turn.now_ns;
            self.sweep(maps, turn.now_ns);
        }
        self.sink.tick(turn.now_ns);
        count_lost(&mut self.counters, &self.sink);
    }

    fn on_detached(&mut self, maps: &dyn KernelMaps, turn: Turn) {
        self.sink.take_time();
        if self.aggregates() {
            self.finish_in_kernel(maps, turn.now_ns);
        }
        if let Some(flows) = &mut self.flows {
            flows.advance(turn.now_ns, &mut self.sink);
            flows.finish(&mut self.sink);
        }
        self.sink.tick(turn.now_ns);
        count_lost(&mut self.counters, &self.sink);
    }
}

/// The number in a record's bytes, read before anything else is done with them.
#[inline]
fn seq_no(record: &[u8]) -> u64 {
    let word = record.get(8..16).and_then(|w| w.try_into().ok());
    word.map_or(0, u64::from_ne_bytes)
}

/// Flows of the kernel's table: it is allocated at once and for every CPU, so the default is smaller
/// than that of user space.
fn flows_max(config: &Config) -> u32 {
    let flows = if config.flows_max == 0 { KERNEL_FLOWS_DEFAULT } else { config.flows_max };
    u32::try_from(flows).unwrap_or(u32::MAX)
}

/// The kernel half for a configuration.
pub fn half(config: &Config) -> KernelHalf {
    let in_kernel = config.level == Level::Flow && config.aggregation == Aggregation::Kernel;
    let number = |name, bytes: &[u8]| ConfigValue { name, bytes: bytes.to_vec() };
    let verdict = match config.disposition {
        Disposition::Pass => XDP_PASS,
        Disposition::Drop => XDP_DROP,
    };
    let filter = config
        .filter
        .as_ref()
        .map_or_else(|| RecordMatch::default().to_bytes(), RecordMatch::to_bytes);
    KernelHalf {
        name: "features",
        object: OBJECT,
        program: if in_kernel { "features_flows" } else { "features_packets" },
        config: vec![
            number("lw_verdict", &verdict.to_ne_bytes()),
            number("lw_sample", &config.sample.max(1).to_ne_bytes()),
            number("lw_rate_interval_ns", &config.rate_interval_ns().to_ne_bytes()),
            number("lw_rate_burst_ns", &RATE_BURST_NS.to_ne_bytes()),
            number("lw_seq_from_mac", &[u8::from(config.number_from_mac)]),
            number("lw_filter", &filter),
            number("lw_limits", &config.limits.to_bytes()),
        ],
        entries: Vec::new(),
        map_sizes: if in_kernel { vec![("flows", flows_max(config))] } else { Vec::new() },
        records: Some(RecordStream {
            map: "rings",
            record_bytes: if in_kernel { FLOW_RECORD_BYTES } else { RECORD_BYTES },
            ring_bytes: RING_BYTES_DEFAULT,
            wanted_map: "wanted",
        }),
        drops_map: Some("drops"),
        seen_map: Some("seen"),
    }
}
