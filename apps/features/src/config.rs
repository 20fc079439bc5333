//! What a run of the extractor is asked to do; the same for every lane and placement.

use laneway_flow::{FlowLimits, RecordMatch};

/// How far ahead of its schedule a rate-limited extractor may run: 10 ms worth of records.
pub(crate) const RATE_BURST_NS: u64 = 10_000_000;

/// One row per packet, or one per flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// A row for every frame.
    #[default]
    Packet,
    /// A row for every bidirectional flow, when it ends.
    Flow,
}

/// What becomes of a frame after it was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Disposition {
    /// The kernel's stack gets it: a monitor.
    #[default]
    Pass,
    /// It ends here: a terminal, as behind a mirror port.
    Drop,
}

/// Where flows are put together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aggregation {
    /// In user space, from the records of every packet: all features.
    #[default]
    User,
    /// In the kernel half, per CPU: the same integers, no first-packets sequence; only ended flows
    /// cross to user space.
    Kernel,
}

/// The knobs of a run.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Rows.
    pub level: Level,
    /// What becomes of frames.
    pub disposition: Disposition,
    /// Keep one frame in so many, by its number; 0 and 1 keep all.
    pub sample: u32,
    /// At most so many records per second and worker (per CPU in the kernel half); 0: no limit.
    pub rate_max: u32,
    /// Keep only what one of these patterns matches; `None` keeps all.
    pub filter: Option<RecordMatch>,
    /// When flows end.
    pub limits: FlowLimits,
    /// Flows at a time; beyond it the least recently used one is ended (user space), or new ones
    /// are counted as `flow_table_full` (kernel half).
    pub flows_max: usize,
    /// Packets of a flow whose length, gap, direction and flags are kept; at most 32.
    pub first_packets: usize,
    /// Where flows are put together, on the `xdp` lane.
    pub aggregation: Aggregation,
    /// Offline: the sources are parts of one capture, and flows go on from one to the next.
    pub join: bool,
    /// The lab: frames carry their number in the source MAC.
    pub number_from_mac: bool,
}

impl Config {
    /// Flows at a time unless asked otherwise.
    pub const FLOWS_DEFAULT: usize = 1 << 18;

    /// Flows at a time in user space.
    pub(crate) fn flows_max_or_default(&self) -> usize {
        if self.flows_max == 0 { Config::FLOWS_DEFAULT } else { self.flows_max }
    }

    /// Nanoseconds per record at the rate limit, rounded up so that it is never exceeded; 0 without
    /// one.
    pub(crate) fn rate_interval_ns(&self) -> u64 {
        if self.rate_max == 0 { 0 } else { 1_000_000_000u64.div_ceil(self.rate_max.into()) }
    }
}
