//! A segment as both sides know it: what is offered and when, what an arm does to it, and what became of it.

use laneway_stats::Latency;
use serde::{Deserialize, Serialize};

/// Segments of a trial; the number's place in the source MAC is one byte.
pub(crate) const SEGMENTS_MAX: usize = 200;

/// One offered load: `frames` frames in bursts of `burst`, the first due at `t0_ns`, and one every `interval_ns` on
/// average: exactly when, a [`Timetable`](crate::timetable::Timetable) says. With an interval of 0 all are due at once,
/// which is no schedule: they leave as fast as the generator can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SegmentPlan {
    /// Its number, 1 up to [`SEGMENTS_MAX`]; 0 is reserved for frames without a number.
    pub segment: u8,
    /// When the first burst is due, CLOCK_MONOTONIC ns.
    pub t0_ns: u64,
    /// How many frames.
    pub frames: u32,
    /// Between bursts, on average, ns.
    pub interval_ns: u64,
    /// Frames per burst.
    pub burst: u32,
    /// Where in the timetable it begins, where that can be chosen: those of a round begin alike.
    pub entry: u32,
}

impl SegmentPlan {
    /// Whether its frames have no times of their own.
    pub(crate) fn is_topspeed(&self) -> bool {
        self.interval_ns == 0
    }
}

/// A fault planted in an arm, so that a user can see the race find it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Plant {
    /// An honest arm.
    #[default]
    None,
    /// The worker burns this share of the processor time it used once more: 0.2 is 20 % slower.
    Slow {
        /// Of its own time.
        share: f64,
    },
    /// Every so many records one is handed over twice.
    CountTwice {
        /// Records between two.
        every: u64,
    },
}

/// Most wake-up probes that an arm remembers.
pub(crate) const PROBES_MAX: usize = 10_000;

/// What the sink saw of a segment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SegmentSeen {
    /// Its number.
    pub segment: u8,
    /// Distinct frames delivered.
    pub delivered: u64,
    /// Records of a frame already delivered.
    pub duplicates: u64,
    /// Records whose frame was sent before one delivered earlier.
    pub reordered: u64,
    /// Records of frame numbers beyond the segment's plan.
    pub foreign: u64,
    /// When the first and the last record arrived, CLOCK_MONOTONIC ns; of sampled records.
    pub first_ns: u64,
    /// See `first_ns`.
    pub last_ns: u64,
    /// Records sampled.
    pub samples: u64,
    /// Sum over the sampled records of a mix of their features: arms that saw all
    /// frames agree on it.
    pub checksum: u64,
    /// Scheduled send to record in the app's hands, sampled by frame number.
    pub wire_to_app: Latency,
    /// Frame (or record) in user hands to record handled, same samples.
    pub app_only: Latency,
}
