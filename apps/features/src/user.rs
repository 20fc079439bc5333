//! The user-space placement: a frame app that parses what the lane shows it.

use crate::{
    admit::Admission,
    config::{Config, Disposition, Level},
    parse::{Stamp, parse},
    sink::Sink,
};
use laneway_core::{Burst, Counters, DropReason, FrameApp, PortId, Turn, Verdict};
use laneway_flow::{FlowTable, Record, TableOptions};

/// The extractor over frames.
pub struct Features<S> {
    admission: Admission,
    flows: Option<Flows>,
    sink: S,
    number: u64,
    number_from_mac: bool,
    verdict: Verdict,
    ifindex: Vec<u32>,
    counters: Counters,
}

impl<S: Sink> Features<S> {
    /// An extractor that gives its rows to `sink`. `ifindex` holds the interface index of every
    /// port; ports beyond it (files, simulated links) have none.
    pub fn new(config: &Config, ifindex: Vec<u32>, sink: S) -> Features<S> {
        Features {
            admission: Admission::new(config),
            flows: (config.level == Level::Flow).then(|| Flows::new(config)),
            sink,
            number: 0,
            number_from_mac: config.number_from_mac,
            verdict: match config.disposition {
                Disposition::Pass => Verdict::Pass,
                Disposition::Drop => Verdict::Drop,
            },
            ifindex,
            counters: Counters::default(),
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

    /// Frames that belong to no flow (not IP).
    pub fn unflowed(&self) -> u64 {
        self.flows.as_ref().map_or(0, Flows::unflowed)
    }
}

impl<S: Sink> FrameApp for Features<S> {
    fn on_burst(&mut self, port: PortId, burst: &mut Burst, turn: Turn) {
        let ifindex = self.ifindex.get(port.index()).copied().unwrap_or(0);
        self.sink.burst(turn.now_ns);
        for i in 0..burst.len() {
            burst.set_verdict(i, self.verdict);
            let number = self.number;
            self.number += 1;
            if !self.admission.samples(number) {
                self.counters.drop_one(DropReason::Sampled);
                continue;
            }
            let frame = burst.frame(i);
            let seq_no = match frame.bytes {
                [_, _, _, _, _, _, _, a, b, c, d, e, ..] if self.number_from_mac => {
                    u64::from(*a) << 32 | u64::from(u32::from_be_bytes([*b, *c, *d, *e]))
                }
                _ => number,
            };
            let stamp = Stamp {
                ts_ns: frame.ts_ns,
                seq_no,
                wire_len: frame.wire_len,
                ifindex,
                rx_queue: 0,
            };
            let mut record = parse(frame.bytes, stamp);
            // Headers lie in the first buffer; what follows only counts as captured.
            record.cap_len += burst.tails(i).map(|tail| tail.len() as u32).sum::<u32>();
            if let Err(reason) = self.admission.admits(&record) {
                self.counters.drop_one(reason);
                continue;
            }
            self.counters.rx_frames += 1;
            self.counters.rx_bytes += u64::from(record.cap_len);
            match &mut self.flows {
                None => self.sink.packet(&record),
                Some(flows) => flows.add(&record, &mut self.sink),
            }
        }
    }

    fn on_stop(&mut self, _turn: Turn) {
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
