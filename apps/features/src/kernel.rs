//! The kernel placement: the same extractor as an XDP program (`bpf/features.bpf.c`), described as
//! data for the `xdp` lane, and its user-space part.

use crate::{
    config::{Aggregation, Config, Disposition, Level, RATE_BURST_NS},
    sink::Sink,
    user::Flows,
};
use laneway_core::{
    ConfigValue, Counters, KernelApp, KernelHalf, KernelMaps, RecordStream, Turn,
};
use laneway_flow::{
    EndReason, EndedFlow, FLOW_RECORD_BYTES, Flow, FlowKey, RECORD_BYTES, Record, RecordMatch,
};

/// The compiled program.
pub static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/features.bpf.o"));

/// Bytes of each per-CPU ring unless a knob says otherwise: 40,000 records, 10 ms at 4 M/s.
pub const RING_BYTES_DEFAULT: u32 = 4 << 20;

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

    /// Records whose bytes were none: a program of another version.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Frames that belong to no flow (not IP).
    pub fn unflowed(&self) -> u64 {
        self.unflowed + self.flows.as_ref().map_or(0, Flows::unflowed)
    }

    fn aggregates(&self) -> bool {
        self.config.level == Level::Flow && self.config.aggregation == Aggregation::Kernel
    }

    /// Takes the flows out of the kernel's table that `ended` says have ended.
    fn sweep(
        &mut self,
        maps: &dyn KernelMaps,
        ended: impl Fn(&Flow) -> Option<EndReason>,
    ) {
        // A map that cannot be read leaves its flows where they are; the next sweep tries again.
        let mut due = Vec::new();
        let _ = maps.visit("flows", &mut |key, per_cpu| {
            let Some(key) = key.try_into().ok().and_then(FlowKey::from_bytes) else { return };
            let mut merged: Option<Flow> = None;
            for bytes in per_cpu.chunks_exact(laneway_flow::FLOW_BYTES) {
                let flow = bytes.try_into().ok().and_then(Flow::from_bytes);
                if let Some(flow) = flow.filter(|f| f.packets() > 0) {
                    match &mut merged {
                        None => merged = Some(flow),
                        Some(whole) => whole.merge(&flow),
                    }
                }
            }
            if let Some(flow) = merged
                && let Some(reason) = ended(&flow)
            {
                due.push((key, flow, reason));
            }
        });
        for (key, mut flow, reason) in due {
            if maps.remove("flows", &key.to_bytes()).is_ok() {
                flow.close(reason);
                self.counters.rx_frames += flow.packets();
                self.sink.flow(&EndedFlow { key: &key, flow: &flow, ppi: &[] });
            }
        }
    }
}

impl<S: Sink> KernelApp for KernelFeatures<S> {
    fn half(&self) -> KernelHalf {
        half(&self.config)
    }

    fn on_records(&mut self, records: &[u8], turn: Turn) {
        self.sink.burst(turn.now_ns);
        if self.aggregates() {
            for bytes in records.chunks_exact(FLOW_RECORD_BYTES) {
                match laneway_flow::flow_record_from_bytes(bytes) {
                    Some((key, flow)) => {
                        self.counters.rx_frames += flow.packets();
                        self.sink.flow(&EndedFlow { key: &key, flow: &flow, ppi: &[] });
                    }
                    None => self.damaged += 1,
                }
            }
            return;
        }
        for bytes in records.chunks_exact(RECORD_BYTES) {
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
        if self.aggregates() && turn.now_ns.saturating_sub(self.swept_ns) >= SWEEP_NS {
            self.swept_ns = turn.now_ns;
            let limits = self.config.limits;
            self.sweep(maps, |flow| flow.ended(&limits, None, turn.now_ns));
        }
    }

    fn on_stop(&mut self, maps: &dyn KernelMaps, _turn: Turn) {
        if self.aggregates() {
            self.sweep(maps, |_| Some(EndReason::Forced));
            let _ = maps.visit("unflowed", &mut |_, per_cpu| {
                for word in per_cpu.chunks_exact(8) {
                    self.unflowed += u64::from_ne_bytes(word.try_into().expect("chunks of 8"));
                }
            });
        }
        if let Some(flows) = &mut self.flows {
            flows.finish(&mut self.sink);
        }
    }

    fn wants_stop(&self) -> bool {
        self.sink.is_done()
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

/// The kernel half for a configuration.
pub fn half(config: &Config) -> KernelHalf {
    let in_kernel = config.level == Level::Flow && config.aggregation == Aggregation::Kernel;
    let number = |name, bytes: &[u8]| ConfigValue { name, bytes: bytes.to_vec() };
    let verdict = match config.disposition {
        Disposition::Pass => XDP_PASS,
        Disposition::Drop => XDP_DROP,
    };
    let filter = config.filter.as_ref().map_or_else(|| RecordMatch::default().to_bytes(), RecordMatch::to_bytes);
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
        map_sizes: if in_kernel {
            vec![("flows", u32::try_from(config.flows_max).unwrap_or(u32::MAX))]
        } else {
            Vec::new()
        },
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
