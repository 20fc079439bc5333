//! When the frames of a load are due, for their sender and for the program that computes their delay.
//!
//! Arrivals (a frame, or a burst of them) are evenly spaced, a Poisson process, or those of the capture that is
//! replayed. What is not evenly spaced is a table of steps, of which [`STEPS_PER_INTERVAL`] are the mean interval: it
//! is made from a seed or from a capture by every process for itself, comes round when it is at its end, and has the
//! mean interval exactly. So when frame n is due is a pure function of table, plan and n; `bpf/times.h` computes the
//! same.
//!
//! Assumes that the plans of a race were made for its table. It knows no clock, and nothing of what was sent.

use crate::segment::SegmentPlan;
use crate::words::bytes_of;
use laneway_core::{ConfigValue, MapValue};
use laneway_stats::exponential_gaps;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How the arrivals of a load follow one another; `arrivals` in scenarios.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spacing {
    /// Evenly.
    #[default]
    Steady,
    /// At exponentially distributed gaps, each independent of the others.
    Poisson,
    /// As in the capture, sped up or slowed down to the load's mean rate.
    Capture,
}

impl Spacing {
    /// As in scenarios.
    pub fn name(self) -> &'static str {
        match self {
            Spacing::Steady => "steady",
            Spacing::Poisson => "poisson",
            Spacing::Capture => "capture",
        }
    }
}

/// What a timetable is made from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Times {
    /// Nothing: arrivals are evenly spaced.
    #[default]
    Steady,
    /// A seed.
    Poisson {
        /// Of all segments of a race.
        seed: u64,
    },
    /// The time stamps of the frames that are replayed.
    Capture {
        /// The file.
        path: PathBuf,
        /// The longest frame replayed, bytes.
        frame_bytes_max: usize,
    },
}

impl Times {
    pub(crate) fn is_steady(&self) -> bool {
        *self == Times::Steady
    }
}

/// Steps of the mean interval, 2^16; `bpf/times.h` has the same.
const STEPS_PER_INTERVAL: u64 = 1 << 16;
/// Steps in an entry of the programs' map; `LW_STEPS`.
const ROW: usize = 64;
/// Arrivals of a Poisson table: half a megabyte, a twentieth of a second at the highest rates. A power of two.
const POISSON_ARRIVALS: usize = 1 << 16;
/// How much further on in such a table each round begins; odd, so that 65,536 of them begin differently.
const POISSON_STRIDE: u64 = 40_503;
/// Longest pause of a capture within a segment: the generator in the kernel waits for a frame with softirqs off, and
/// nothing else has its CPU meanwhile.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// When arrivals are due, in steps from the first; empty if they are evenly spaced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timetable {
    steps: Arc<[u64]>,
    is_capture: bool,
}

impl Timetable {
    pub(crate) fn poisson(seed: u64) -> Timetable {
        let mut at = 0.0;
        let due = |gap: f64| {
            let due = at;
            at += gap;
            (due * STEPS_PER_INTERVAL as f64) as u64
        };
        let steps = exponential_gaps(seed, POISSON_ARRIVALS).into_iter().map(due).collect();
        Timetable { steps, is_capture: false }
    }

    /// Of a capture's stamps, in file order. A frame stamped before one in front of it is due with that one; from the
    /// last frame to the first of the next pass is the mean gap. `None` where all are due at the same time.
    pub(crate) fn of_stamps(stamps_ns: &[u64]) -> Option<Timetable> {
        let first = *stamps_ns.first()?;
        let mut latest = first;
        let sorted = stamps_ns.iter().map(|&stamp| {
            latest = latest.max(stamp);
            latest - first
        });
        let since_ns: Vec<u64> = sorted.collect();
        let span_ns = u128::from(*since_ns.last()?);
        let gaps = since_ns.len() as u128 - 1;
        // With the gap to the next pass there are `gaps + 1` of them in (gaps + 1) / gaps of the span.
        let steps = |&ns: &u64| {
            (u128::from(ns) * gaps * u128::from(STEPS_PER_INTERVAL)).checked_div(span_ns)
        };
        let steps = since_ns.iter().map(|ns| steps(ns).map(|steps| steps as u64));
        Some(Timetable { steps: steps.collect::<Option<_>>()?, is_capture: true })
    }

    /// When frame `number` is due, CLOCK_MONOTONIC ns.
    #[inline]
    pub(crate) fn due_ns(&self, plan: &SegmentPlan, number: u32) -> u64 {
        let arrival = u64::from(number / plan.burst.max(1));
        if self.steps.is_empty() {
            return plan.t0_ns + arrival * plan.interval_ns;
        }
        let start = self.start(plan.entry);
        let steps = self.steps_to(start + arrival) - self.steps_to(start);
        // The product of both would not fit where a segment is long.
        let (whole, part) = (steps / STEPS_PER_INTERVAL, steps % STEPS_PER_INTERVAL);
        plan.t0_ns + whole * plan.interval_ns + part * plan.interval_ns / STEPS_PER_INTERVAL
    }

    /// When the last frame is due.
    pub(crate) fn end_ns(&self, plan: &SegmentPlan) -> u64 {
        self.due_ns(plan, plan.frames.saturating_sub(1))
    }

    /// How long a segment is by its schedule, the mean interval behind its last arrival included, ns.
    pub(crate) fn length_ns(&self, plan: &SegmentPlan) -> u64 {
        self.end_ns(plan) - plan.t0_ns + plan.interval_ns
    }

    /// Frames per second of a segment; of what is no schedule, a number beyond all rates.
    pub(crate) fn rate_pps(&self, plan: &SegmentPlan) -> f64 {
        if self.steps.is_empty() || plan.is_topspeed() {
            return f64::from(plan.burst) * 1e9 / plan.interval_ns.max(1) as f64;
        }
        f64::from(plan.frames) * 1e9 / self.length_ns(plan) as f64
    }

    /// How many frames a segment has that is to have about so many: a capture is replayed whole, since a part of it has
    /// another mean rate than all of it.
    pub(crate) fn frames(&self, about: u64) -> u64 {
        if !self.is_capture {
            return about;
        }
        let pass = self.steps.len() as u64;
        (about / pass).max(1) * pass
    }

    /// Why a load cannot be offered for `length` with this timetable; `None` if it can. A sentence.
    pub(crate) fn objection(&self, pps: u64, length: Duration) -> Option<String> {
        if !self.is_capture {
            return None;
        }
        let interval_ns = 1e9 / pps.max(1) as f64;
        let pass = Duration::from_nanos((self.steps.len() as f64 * interval_ns) as u64);
        if pass > length {
            return Some(format!(
                "one pass over the capture takes {} ms at this rate, longer than it is offered: raise segment_ms \
                 (of a search `ms`), or cut the capture with `editcap -r`",
                pass.as_millis()
            ));
        }
        let pause = self.steps.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
        let pause_ns = pause as f64 / STEPS_PER_INTERVAL as f64 * interval_ns;
        let pause = Duration::from_nanos(pause_ns as u64);
        (pause > PAUSE_MAX).then(|| {
            format!(
                "the longest pause of the capture is {} ms at this rate, and at most {} ms are waited for a \
                 frame: raise the load, or cut the pause out with `editcap -A` and `-B`",
                pause.as_millis(),
                PAUSE_MAX.as_millis()
            )
        })
    }

    /// Arrivals to the one at place `place`, counted from the first of the first pass, in steps.
    fn steps_to(&self, place: u64) -> u64 {
        let arrivals = self.steps.len() as u64;
        let (pass, rest) = (place / arrivals, place % arrivals);
        pass * arrivals * STEPS_PER_INTERVAL + self.steps[rest as usize]
    }

    /// Where in the table a segment begins. A capture begins with its first frame, whose number is 0.
    fn start(&self, entry: u32) -> u64 {
        match self.is_capture || self.steps.is_empty() {
            true => 0,
            false => u64::from(entry) * POISSON_STRIDE % self.steps.len() as u64,
        }
    }
}

/// What is passed to the programs in the kernel.
impl Timetable {
    /// Of a segment: the words of `struct lw_when`.
    pub(crate) fn words(&self, plan: &SegmentPlan) -> [u64; 5] {
        let start = self.start(plan.entry);
        let steps = if self.steps.is_empty() { 0 } else { self.steps_to(start) };
        [plan.t0_ns, plan.interval_ns, u64::from(plan.burst), start, steps]
    }

    /// Of all: how many arrivals the table has.
    pub(crate) fn config(&self) -> ConfigValue {
        let bytes = (self.steps.len() as u32).to_ne_bytes().to_vec();
        ConfigValue { name: "lw_arrivals", bytes }
    }

    /// The table, as entries of map `steps`.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'static str, Vec<u8>, MapValue)> + '_ {
        (0u32..).zip(self.steps.chunks(ROW)).map(|(row, steps)| {
            let mut bytes = bytes_of(steps);
            bytes.resize(ROW * 8, 0);
            ("steps", row.to_ne_bytes().to_vec(), MapValue::Bytes(bytes))
        })
    }

    /// The size of that map.
    pub(crate) fn map_size(&self) -> (&'static str, u32) {
        ("steps", self.steps.len().div_ceil(ROW).max(1) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plan(segment: u8, frames: u32, interval_ns: u64, burst: u32) -> SegmentPlan {
        let entry = segment.into();
        SegmentPlan { segment, t0_ns: 1_000, frames, interval_ns, burst, entry }
    }

    fn of_stamps(stamps_ns: &[u64]) -> Timetable {
        Timetable::of_stamps(stamps_ns).expect("it has times")
    }

    #[test]
    fn evenly_spaced_bursts_need_no_table() {
        let (steady, plan) = (Timetable::default(), plan(1, 40, 160, 16));
        assert_eq!([0, 15, 16, 39].map(|n| steady.due_ns(&plan, n)), [1000, 1000, 1160, 1320]);
        assert_eq!((steady.end_ns(&plan), steady.rate_pps(&plan)), (1320, 1e8));
        assert_eq!((steady.frames(40), steady.objection(1, Duration::ZERO)), (40, None));
    }

    #[test]
    fn a_poisson_load_has_its_mean_rate_over_a_table_and_about_it_over_a_segment() {
        let table = Timetable::poisson(7);
        let whole = plan(3, POISSON_ARRIVALS as u32 + 1, 2_000, 1);
        let ns = table.end_ns(&whole) - whole.t0_ns;
        assert!(ns.abs_diff(POISSON_ARRIVALS as u64 * 2_000) <= 1, "{ns}");
        for segment in 1..=200 {
            let part = plan(segment, 10_000, 2_000, 1);
            let rate = table.rate_pps(&part) / 500_000.0;
            // Five standard deviations of a mean of 10,000 gaps.
            assert!((rate - 1.0).abs() < 0.05, "segment {segment}: {rate}");
        }
        assert_ne!(table.due_ns(&plan(1, 9, 2_000, 1), 5), table.due_ns(&plan(2, 9, 2_000, 1), 5));
    }

    #[test]
    fn a_poisson_loads_gaps_are_exponential() {
        let table = Timetable::poisson(1);
        let plan = plan(5, 20_000, 10_000, 2);
        let mut gaps: Vec<f64> = (1..10_000)
            .map(|n| (table.due_ns(&plan, 2 * n) - table.due_ns(&plan, 2 * n - 2)) as f64 / 1e4)
            .collect();
        gaps.sort_by(f64::total_cmp);
        let n = gaps.len() as f64;
        let distance = gaps
            .iter()
            .enumerate()
            .map(|(i, gap)| (1.0 - (-gap).exp() - (i as f64 + 0.5) / n).abs());
        // Kolmogorov and Smirnov: exceeded by chance once in a hundred.
        assert!(distance.fold(0.0, f64::max) < 1.63 / n.sqrt());
        assert_eq!(table.due_ns(&plan, 7), table.due_ns(&plan, 6), "a burst is due at once");
    }

    #[test]
    fn a_capture_keeps_its_rhythm_at_another_mean_rate() {
        // Gaps of 1, 0, 3 and, to the next pass, the mean, 4 / 3.
        let table = of_stamps(&[50, 51, 49, 54]);
        let plan = plan(9, 8, 3_000, 1);
        let due: Vec<u64> = (0..6).map(|n| table.due_ns(&plan, n) - 1_000).collect();
        let expected = [0, 2_250, 2_250, 9_000, 12_000, 14_250];
        assert!(due.iter().zip(expected).all(|(due, ns)| due.abs_diff(ns) <= 1), "{due:?}");
        assert!((table.rate_pps(&plan) * 3e-6 - 1.0).abs() < 1e-3, "{}", table.rate_pps(&plan));
        assert_eq!([3, 4, 9, 12].map(|about| table.frames(about)), [4, 4, 8, 12]);
        let ms = Duration::from_millis;
        assert_eq!(table.objection(40, ms(100)), None);
        let long = table.objection(39, ms(100)).expect("4 frames take longer");
        assert!(long.contains("102 ms") && long.contains("segment_ms"), "{long}");
        let pause = table.objection(10, ms(1_000)).expect("3 quarters of it are a pause");
        assert!(pause.contains("225 ms"), "{pause}");
        assert_eq!((Timetable::of_stamps(&[7, 7, 7]), Timetable::of_stamps(&[7])), (None, None));
    }

    proptest! {
        #[test]
        fn no_frame_is_due_before_the_one_in_front_of_it(
            stamps in proptest::collection::vec(any::<u32>(), 2..200),
            burst in 1u32..20, segment: u8, interval_ns in 0u64..10_000_000_000,
        ) {
            let stamps: Vec<u64> = stamps.into_iter().map(u64::from).collect();
            let tables = [Timetable::default(), Timetable::poisson(u64::from(segment))];
            for table in tables.into_iter().chain(Timetable::of_stamps(&stamps)) {
                let plan = plan(segment, 1_000, interval_ns, burst);
                let due: Vec<u64> = (0..1_000).map(|n| table.due_ns(&plan, n)).collect();
                prop_assert!(due[0] == plan.t0_ns && due.is_sorted());
                prop_assert_eq!(table.end_ns(&plan), due[999]);
            }
        }

        #[test]
        fn a_pass_over_a_capture_has_the_mean_rate(
            stamps in proptest::collection::vec(any::<u32>(), 2..200), interval_ns in 1_000u64..1_000_000,
        ) {
            let stamps: Vec<u64> = stamps.into_iter().map(u64::from).collect();
            if let Some(table) = Timetable::of_stamps(&stamps) {
                let frames = stamps.len() as u32;
                let plan = plan(1, 3 * frames, interval_ns, 1);
                let pass = |pass| table.due_ns(&plan, pass * frames) - plan.t0_ns;
                prop_assert!(pass(1).abs_diff(u64::from(frames) * interval_ns) <= 1);
                prop_assert!(pass(2).abs_diff(2 * u64::from(frames) * interval_ns) <= 1);
            }
        }
    }
}
