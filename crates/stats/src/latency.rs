//! Latencies of one trial: recorded in nanoseconds, merged, summarised, stored raw.
//!
//! The memory is an HDR histogram with three significant digits, so a recording costs a few
//! nanoseconds, takes about 230 KB whatever the trial's length, and is off by at most 0.1 %.
//! Smallest and largest values are kept exactly.
//!
//! Three rules keep tails honest. A percentile p is given only if at least 50 samples lie beyond it
//! (n (1 - p) >= 50): a "p99.9" of 2,000 samples is two samples, not a percentile. Latencies
//! longer than the histogram are counted at its end and counted as clamped, never dropped. And what
//! was waited for and never ended ([`Latency::miss`]) is longer than all that did: percentiles rank
//! among both, and one whose rank is among what never ended is not given. Otherwise a server that
//! sheds what it is slow with would have the shorter tail.
//!
//! It does not know what was measured: the scope (wire to app, round trip) belongs to the caller that
//! records, and latencies of different scopes must not be merged.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::LATENCY_NS_MAX;

/// Samples that must lie beyond a percentile for it to be given.
const TAIL_SAMPLES_MIN: u64 = 50;
/// Digits kept apart: 0.1 %.
const SIGNIFICANT_DIGITS: u8 = 3;
/// Curve points per halving of the share that lies beyond.
const CURVE_POINTS_PER_HALVING: i32 = 5;

/// The latencies of a trial, or of several merged. Stored through [`LatencyRecord`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(into = "LatencyRecord", try_from = "LatencyRecord")]
pub struct Latency {
    histogram: Histogram<u64>,
    /// Exact extremes; `min_ns` is above `max_ns` while nothing is recorded.
    min_ns: u64,
    max_ns: u64,
    clamped: u64,
    missing: u64,
}

/// Figures of a trial's latencies, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Samples.
    pub n: u64,
    /// What was waited for and never ended, beside them: longer than any.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missing: u64,
    /// Samples longer than [`LATENCY_NS_MAX`], counted as that long.
    pub clamped: u64,
    /// Shortest, exact; `None` without samples.
    pub min_ns: Option<u64>,
    /// Half are at most this long; needs 100 samples.
    pub p50_ns: Option<u64>,
    /// 90 % are at most this long; needs 500 samples.
    pub p90_ns: Option<u64>,
    /// 99 % are at most this long; needs 5,000 samples.
    pub p99_ns: Option<u64>,
    /// 99.9 % are at most this long; needs 50,000 samples.
    pub p999_ns: Option<u64>,
    /// Longest, exact up to the clamp. Never compare it between trials of unequal n.
    pub max_ns: Option<u64>,
    /// Packet delay variation: p99.9 - min.
    pub pdv_ns: Option<u64>,
}

impl LatencySummary {
    /// Whether the percentile that one in so many lies beyond is longer than all that ended: there is no lack of
    /// samples, but as many never did.
    pub fn is_endless(&self, one_in: u64) -> bool {
        let beyond = self.n.saturating_add(self.missing) / one_in;
        beyond >= TAIL_SAMPLES_MIN && self.missing >= beyond
    }
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A point of the latency-by-percentile curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Share of the samples beyond `value_ns`, 1 down to 50 / n: plot it on a log axis, as
    /// percentile 100 (1 - beyond).
    pub beyond: f64,
    /// Latency at that percentile, ns.
    pub value_ns: u64,
}

/// The raw form of a trial file: every non-empty bucket, so that nothing but the 0.1 % is lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatencyRecord {
    /// Always "ns".
    pub unit: String,
    /// Significant decimal digits the buckets keep apart.
    pub significant_digits: u8,
    /// Exact extremes [shortest, longest], ns; `None` without samples.
    pub extremes: Option<[u64; 2]>,
    /// Samples counted at the upper limit.
    pub clamped: u64,
    /// What was waited for and never ended. Absent in records before 2026-11-30.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missing: u64,
    /// [longest latency of the bucket in ns, samples], ascending, without empty buckets.
    pub buckets: Vec<[u64; 2]>,
}

/// Why a stored record is not a set of latencies.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LatencyError {
    /// Written with another unit or precision.
    #[error(
        "latency record in {unit:?} with {digits} digits; this version reads \"ns\" with \
         {SIGNIFICANT_DIGITS}, so use the version that wrote it"
    )]
    Format {
        /// Unit found.
        unit: String,
        /// Digits found.
        digits: u8,
    },
    /// A bucket is empty, out of order, beyond the range, or overflows the total.
    #[error("latency record: bucket {index} [{value_ns}, {count}] cannot be; the file is damaged")]
    Bucket {
        /// Its place, from 0.
        index: usize,
        /// Its latency, ns.
        value_ns: u64,
        /// Its samples.
        count: u64,
    },
    /// Extremes or clamped samples do not fit the buckets.
    #[error(
        "latency record: extremes or clamped samples contradict the buckets; the file is damaged"
    )]
    Extremes,
}

impl Default for Latency {
    fn default() -> Self {
        Self::new()
    }
}

impl Latency {
    /// Nothing recorded. Allocates once; recording does not.
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, SIGNIFICANT_DIGITS)
            .expect("constant bounds are valid: 1 <= low, 2 low <= high, digits <= 5");
        Self { histogram, min_ns: u64::MAX, max_ns: 0, clamped: 0, missing: 0 }
    }

    /// Records one latency, ns.
    pub fn record(&mut self, latency_ns: u64) {
        let kept_ns = latency_ns.min(LATENCY_NS_MAX);
        self.clamped += u64::from(latency_ns > LATENCY_NS_MAX);
        self.min_ns = self.min_ns.min(kept_ns);
        self.max_ns = self.max_ns.max(kept_ns);
        self.histogram.saturating_record(kept_ns);
    }

    /// So many more were waited for and never ended.
    pub fn miss(&mut self, n: u64) {
        self.missing = self.missing.saturating_add(n);
    }

    /// Adds the samples of another trial or worker (of the same scope).
    pub fn merge(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("all histograms here have the same bounds");
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.clamped = self.clamped.saturating_add(other.clamped);
        self.missing = self.missing.saturating_add(other.missing);
    }

    /// Samples recorded.
    pub fn n(&self) -> u64 {
        self.histogram.len()
    }

    /// Samples, and what never ended.
    fn awaited(&self) -> u64 {
        self.n().saturating_add(self.missing)
    }

    /// The figures of a table row.
    pub fn summary(&self) -> LatencySummary {
        // The share beyond as a whole denominator: 1 - 0.9 in floating point is below 0.1 and
        // would refuse the 500th sample.
        let percentile = |one_in: u64| {
            let beyond = self.awaited() / one_in;
            let backed = beyond >= TAIL_SAMPLES_MIN && self.missing < beyond;
            backed.then(|| self.value_beyond(1.0 / one_in as f64))
        };
        let some = self.n() > 0;
        let p999_ns = percentile(1_000);
        LatencySummary {
            n: self.n(),
            missing: self.missing,
            clamped: self.clamped,
            min_ns: some.then_some(self.min_ns),
            p50_ns: percentile(2),
            p90_ns: percentile(10),
            p99_ns: percentile(100),
            p999_ns,
            max_ns: some.then_some(self.max_ns),
            pdv_ns: p999_ns.map(|p999_ns| p999_ns.saturating_sub(self.min_ns)),
        }
    }

    /// The latency-by-percentile curve, five points per halving of the share beyond, ending where
    /// fewer than 50 samples lie beyond, or none that ended. Empty below 50 samples.
    pub fn curve(&self) -> Vec<CurvePoint> {
        let least = TAIL_SAMPLES_MIN.max(self.missing.saturating_add(1)) as f64;
        (0..)
            .map(|step| 2f64.powf(-f64::from(step) / f64::from(CURVE_POINTS_PER_HALVING)))
            .take_while(|beyond| self.n() > 0 && beyond * self.awaited() as f64 >= least)
            .map(|beyond| CurvePoint { beyond, value_ns: self.value_beyond(beyond) })
            .collect()
    }

    /// The latency that a share `beyond` of the samples and of what never ended exceeds, rounded up
    /// to its bucket's end but never past a value that occurred.
    fn value_beyond(&self, beyond: f64) -> u64 {
        let among_samples = (1.0 - beyond) * self.awaited() as f64 / self.n().max(1) as f64;
        let quantile = if self.missing == 0 { 1.0 - beyond } else { among_samples.min(1.0) };
        self.histogram.value_at_quantile(quantile).clamp(self.min_ns, self.max_ns)
    }
}

impl From<Latency> for LatencyRecord {
    fn from(latency: Latency) -> Self {
        let buckets = latency
            .histogram
            .iter_recorded()
            .map(|bucket| [bucket.value_iterated_to(), bucket.count_at_value()])
            .collect();
        Self {
            unit: "ns".to_owned(),
            significant_digits: SIGNIFICANT_DIGITS,
            extremes: (latency.n() > 0).then_some([latency.min_ns, latency.max_ns]),
            clamped: latency.clamped,
            missing: latency.missing,
            buckets,
        }
    }
}

impl TryFrom<LatencyRecord> for Latency {
    type Error = LatencyError;

    fn try_from(record: LatencyRecord) -> Result<Self, LatencyError> {
        if record.unit != "ns" || record.significant_digits != SIGNIFICANT_DIGITS {
            let (unit, digits) = (record.unit, record.significant_digits);
            return Err(LatencyError::Format { unit, digits });
        }
        let mut latency = Self::new();
        let value_ns_end = latency.histogram.highest_equivalent(LATENCY_NS_MAX);
        let mut total: u64 = 0;
        let mut last = None;
        for (index, &[value_ns, count]) in record.buckets.iter().enumerate() {
            let damaged = LatencyError::Bucket { index, value_ns, count };
            let known =
                latency.histogram.highest_equivalent(value_ns.min(value_ns_end)) == value_ns;
            if count == 0 || !known || last >= Some(value_ns) {
                return Err(damaged);
            }
            total = total.checked_add(count).ok_or_else(|| damaged.clone())?;
            latency.histogram.record_n(value_ns, count).map_err(|_| damaged)?;
            last = Some(value_ns);
        }
        let ends = record.buckets.first().zip(record.buckets.last());
        match (record.extremes, ends) {
            (None, None) if record.clamped == 0 => {}
            (Some([min_ns, max_ns]), Some((first, last))) => {
                let bucket_of = |value_ns: u64| {
                    latency.histogram.highest_equivalent(value_ns.min(LATENCY_NS_MAX))
                };
                let clamped_fit =
                    record.clamped <= last[1] && (record.clamped == 0 || max_ns == LATENCY_NS_MAX);
                if min_ns > max_ns
                    || max_ns > LATENCY_NS_MAX
                    || bucket_of(min_ns) != first[0]
                    || bucket_of(max_ns) != last[0]
                    || !clamped_fit
                {
                    return Err(LatencyError::Extremes);
                }
                (latency.min_ns, latency.max_ns) = (min_ns, max_ns);
                latency.clamped = record.clamped;
            }
            _ => return Err(LatencyError::Extremes),
        }
        latency.missing = record.missing;
        Ok(latency)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(latencies_ns: impl IntoIterator<Item = u64>) -> Latency {
        let mut latency = Latency::new();
        latencies_ns.into_iter().for_each(|latency_ns| latency.record(latency_ns));
        latency
    }

    #[test]
    fn a_percentile_needs_fifty_samples_beyond_it() {
        for (n, expected) in [
            (99, [false, false, false, false]),
            (100, [true, false, false, false]),
            (499, [true, false, false, false]),
            (500, [true, true, false, false]),
            (5_000, [true, true, true, false]),
            (49_999, [true, true, true, false]),
            (50_000, [true, true, true, true]),
        ] {
            let s = of(1..=n).summary();
            let given = [s.p50_ns, s.p90_ns, s.p99_ns, s.p999_ns].map(|p| p.is_some());
            assert_eq!(given, expected, "{n}");
            assert_eq!(s.pdv_ns.is_some(), expected[3]);
        }
    }

    #[test]
    fn percentiles_are_within_a_thousandth_and_extremes_exact() {
        let s = of((1..=100_000).map(|i| i * 13)).summary();
        for (found, exact) in [
            (s.p50_ns, 650_000.0),
            (s.p90_ns, 1_170_000.0),
            (s.p99_ns, 1_287_000.0),
            (s.p999_ns, 1_298_700.0),
        ] {
            let found = found.expect("enough samples") as f64;
            assert!((found / exact - 1.0).abs() <= 1e-3, "{found} {exact}");
        }
        assert_eq!((s.min_ns, s.max_ns, s.n), (Some(13), Some(1_300_000), 100_000));
    }

    #[test]
    fn too_long_latencies_are_counted_at_the_end_and_as_clamped() {
        let s = of([5, LATENCY_NS_MAX, LATENCY_NS_MAX + 1, u64::MAX]).summary();
        assert_eq!((s.n, s.clamped, s.max_ns), (4, 2, Some(LATENCY_NS_MAX)));
    }

    #[test]
    fn what_never_ended_is_longer_than_all_that_did() {
        let of = |samples: u64, missing: u64| {
            let mut latency = of(1..=samples);
            latency.miss(missing);
            latency
        };
        let s = of(99_800, 200).summary();
        assert_eq!((s.n, s.missing, s.p999_ns, s.pdv_ns), (99_800, 200, None, None));
        assert_eq!([2, 100, 1_000].map(|one_in| s.is_endless(one_in)), [false, false, true]);
        // The rank among all is that of the 99,000th, and of the 50,000th.
        for (found, exact) in [(s.p99_ns, 99_000.0), (s.p50_ns, 50_000.0)] {
            let found = found.expect("it is among the samples") as f64;
            assert!((found / exact - 1.0).abs() <= 1e-3, "{found} {exact}");
        }
        // One that ended is beyond, and its percentile is at the end of those that did.
        let s = of(99_901, 99).summary();
        assert!(s.p999_ns.is_some_and(|ns| ns >= 99_800) && !s.is_endless(1_000), "{s:?}");
        assert!(of(99_900, 100).summary().p999_ns.is_none());
        // Of too few it is not known whether that is so.
        assert!(!of(3_000, 1_000).summary().is_endless(1_000));
        let all_gone = of(0, 100_000);
        assert!(all_gone.summary().is_endless(2) && all_gone.curve().is_empty());
        let last = of(99_800, 200).curve().last().expect("it has points").beyond;
        assert!((0.00201..0.0024).contains(&last), "{last}");
    }

    #[test]
    fn nothing_recorded_has_no_figures() {
        let s = Latency::new().summary();
        assert_eq!((s.n, s.min_ns, s.p50_ns, s.max_ns), (0, None, None, None));
        assert!(Latency::new().curve().is_empty());
    }

    #[test]
    fn the_curve_rises_and_ends_at_fifty_samples() {
        let curve = of((0..20_000).map(|i| 1_000 + i * i % 7_919)).curve();
        assert_eq!(curve[0].beyond, 1.0);
        assert!(curve.windows(2).all(|pair| pair[0].value_ns <= pair[1].value_ns));
        let last = curve.last().expect("enough samples").beyond * 20_000.0;
        assert!((50.0..58.0).contains(&last), "{last}");
    }

    fn refuse(change: impl FnOnce(&mut LatencyRecord), expected: impl Fn(&LatencyError) -> bool) {
        let mut record = LatencyRecord::from(of([10, 20, 20, 3_000_000]));
        change(&mut record);
        let error = Latency::try_from(record).expect_err("the record is damaged");
        assert!(expected(&error), "{error}");
    }

    #[test]
    fn damaged_records_are_refused_by_name() {
        let bucket = |error: &LatencyError| matches!(error, LatencyError::Bucket { .. });
        let extremes = |error: &LatencyError| matches!(error, LatencyError::Extremes);
        refuse(|r| r.unit = "us".into(), |e| matches!(e, LatencyError::Format { .. }));
        refuse(|r| r.buckets.swap(0, 1), bucket);
        refuse(|r| r.buckets[1][1] = 0, bucket);
        refuse(|r| r.buckets[1][1] = u64::MAX, bucket);
        refuse(|r| r.buckets[2][0] = u64::MAX, bucket);
        refuse(|r| r.buckets[2][0] -= 1, bucket);
        refuse(|r| r.extremes = Some([11, 3_000_000]), extremes);
        refuse(|r| r.extremes = None, extremes);
        refuse(|r| r.clamped = 1, extremes);
        refuse(|r| r.buckets.clear(), extremes);
    }

    proptest! {
        #[test]
        fn a_record_survives_json(latencies_ns in prop::collection::vec(any::<u64>(), 0..60)) {
            let mut latency = of(latencies_ns.iter().map(|x| x >> (x % 64)));
            latency.miss(latencies_ns.len() as u64 / 7);
            let text = serde_json::to_string(&latency).expect("plain data");
            let back: Latency = serde_json::from_str(&text).expect("our own text");
            prop_assert_eq!(back.summary(), latency.summary());
            prop_assert_eq!(back, latency);
        }

        #[test]
        fn merging_equals_recording_together(
            ours in prop::collection::vec(0u64..1 << 40, 0..60),
            theirs in prop::collection::vec(0u64..1 << 40, 0..60),
        ) {
            let mut merged = of(ours.iter().copied());
            merged.merge(&of(theirs.iter().copied()));
            prop_assert_eq!(merged, of(ours.into_iter().chain(theirs)));
        }

        #[test]
        fn any_record_is_read_or_refused_without_a_panic(
            buckets in prop::collection::vec(any::<[u64; 2]>(), 0..5),
            extremes: Option<[u64; 2]>,
            clamped: u64,
        ) {
            let record = LatencyRecord {
                unit: "ns".into(), significant_digits: 3, extremes, clamped, missing: clamped, buckets,
            };
            if let Ok(latency) = Latency::try_from(record.clone()) {
                prop_assert_eq!(LatencyRecord::from(latency), record);
            }
        }
    }
}
