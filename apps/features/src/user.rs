//! The user-space placement: a frame app that parses what the lane shows it.

use crate::{
    admit::Admission,
    config::{Config, Disposition, Level},
    parse::{Stamp, parse},
    sink::{Sink, count_lost},
};
use laneway_core::{App, Burst, Counters, DropReason, FrameApp, PortId, Turn, Verdict};
use laneway_flow::{Disorder, FlowTable, Record, TableError, TableOptions, random_seed};

/// How far a frame's stamp may be from the worker's clock to be traffic of now. What is further
/// away (a capture of the past) ends flows by its own time alone: a tick would end them all.
const LIVE_NS_MAX: u64 = 10_000_000_000;

/// The extractor over frames.
pub struct Features<S> {
    admission: Admission,
    flows: Option<Flows>,
    sink: S,
    number: u64,
    number_from_mac: bool,
    verdict: Verdict,
    ifindex: Vec<u32>,
    rx_queue: u16,
    /// The frames' stamps are near the worker's clock, so that ticks can end flows.
    is_live: bool,
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
            rx_queue: 0,
            is_live: false,
            counters: Counters::default(),
        }
    }

    /// For a lane that receives from this queue of its interfaces; without it rows say queue 0.
    #[must_use]
    pub fn on_queue(mut self, rx_queue: u16) -> Features<S> {
        self.rx_queue = rx_queue;
        self
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

    /// How the stamps were ordered; nothing at level packet.
    pub fn disorder(&self) -> Disorder {
        self.flows.as_ref().map_or_else(Disorder::default, Flows::disorder)
    }
}

impl<S: Sink> App for Features<S> {
    fn on_stop(&mut self, turn: Turn) {
        self.sink.take_time();
        if let Some(flows) = &mut self.flows {
            if self.is_live {
                flows.advance(turn.now_ns, &mut self.sink);
            }
            flows.finish(&mut self.sink);
        }
        self.sink.tick(turn.now_ns);
        count_lost(&mut self.counters, &self.sink);
    }

    fn wants_stop(&self) -> bool {
        self.sink.is_done()
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl<S: Sink> FrameApp for Features<S> {
    fn on_burst(&mut self, port: PortId, burst: &mut Burst, turn: Turn) {
        let ifindex = self.ifindex.get(port.index()).copied().unwrap_or(0);
        if let Some(last) = burst.len().checked_sub(1) {
            self.is_live = turn.now_ns.abs_diff(burst.frame(last).ts_ns) <= LIVE_NS_MAX;
        }
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
            self.sink.take(seq_no);
            let stamp = Stamp {
                ts_ns: frame.ts_ns,
                seq_no,
                wire_len: frame.wire_len,
                ifindex,
                rx_queue: self.rx_queue,
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

    fn on_tick(&mut self, turn: Turn) {
        if let Some(flows) = &mut self.flows
            && self.is_live
        {
            flows.advance(turn.now_ns, &mut self.sink);
        }
        self.sink.tick(turn.now_ns);
        count_lost(&mut self.counters, &self.sink);
    }
}

/// Records on their way into flows: the flow table, fed a batch at a time because with many flows
/// most of the cost is memory that can be fetched ahead.
pub(crate) struct Flows {
    table: FlowTable,
    batch: Vec<Record>,
}

/// Records fed to the table at a time.
const BATCH_RECORDS: usize = 64;

impl Flows {
    /// # Panics
    /// If the configuration asks for more flows than memory holds: the caller has checked with
    /// [`crate::check`].
    pub(crate) fn new(config: &Config) -> Flows {
        let table = table(config).expect("the configuration was checked");
        Flows { table, batch: Vec::with_capacity(BATCH_RECORDS) }
    }

    #[inline]
    pub(crate) fn add(&mut self, record: &Record, sink: &mut impl Sink) {
        self.batch.push(*record);
        if self.batch.len() == BATCH_RECORDS {
            self.flush(sink);
        }
    }

    fn flush(&mut self, sink: &mut impl Sink) {
        self.table.add_batch(&self.batch, &mut |ended| sink.flow(&ended));
        self.batch.clear();
    }

    /// Ends what has ended by `now_ns` although no frame arrived.
    pub(crate) fn advance(&mut self, now_ns: u64, sink: &mut impl Sink) {
        self.flush(sink);
        self.table.advance(now_ns, &mut |ended| sink.flow(&ended));
    }

    /// Ends every flow.
    pub(crate) fn finish(&mut self, sink: &mut impl Sink) {
        self.flush(sink);
        self.table.flush(&mut |ended| sink.flow(&ended));
    }

    pub(crate) fn unflowed(&self) -> u64 {
        self.table.counters().unflowed_total()
    }

    pub(crate) fn disorder(&self) -> Disorder {
        *self.table.clock().disorder()
    }
}

/// The flow table that a configuration asks for.
pub(crate) fn table(config: &Config) -> Result<FlowTable, TableError> {
    // A seed unknown outside the process: hostile traffic cannot aim at one chain of the index.
    let options = TableOptions { hash_seed: random_seed(), ppi_packets: config.first_packets };
    FlowTable::new(config.flows_max_or_default(), config.limits, options)
}
