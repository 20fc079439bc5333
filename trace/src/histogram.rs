//! Durations counted in buckets of equal ratio: 32 per doubling, so a percentile is off by at most 3 %.
//!
//! Recording is a shift, a mask and an increment. Only the range that occurs is kept in memory,
//! because there is one histogram per calling context and most contexts span few buckets.

/// Buckets per doubling, as a power of two.
const FINE_BITS: u32 = 5;
const FINE: u64 = 1 << FINE_BITS;
/// Coarse buckets per doubling, for results.
const COARSE_BITS: u32 = 2;
/// Samples that must lie beyond a percentile for it to be given (protocol P7).
const TAIL_SAMPLES_MIN: f64 = 50.0;

/// The bucket of a duration. Linear below 32 ns, then 32 per doubling.
#[inline]
pub(crate) const fn bucket_of(duration_ns: u64) -> u32 {
    if duration_ns < FINE {
        return duration_ns as u32;
    }
    let shift = 63 - duration_ns.leading_zeros() - FINE_BITS;
    ((shift + 1) << FINE_BITS) + ((duration_ns >> shift) - FINE) as u32
}

/// Longest duration of a bucket, ns.
pub(crate) const fn bucket_end(bucket: u32) -> u64 {
    if bucket < FINE as u32 {
        return bucket as u64;
    }
    let shift = (bucket >> FINE_BITS) - 1;
    let start = (FINE + (bucket as u64 & (FINE - 1))) << shift;
    start + ((1u64 << shift) - 1)
}

/// Shortest duration of a bucket, ns.
pub(crate) const fn bucket_start(bucket: u32) -> u64 {
    if bucket == 0 { 0 } else { bucket_end(bucket - 1) + 1 }
}

/// Counts per bucket.
#[derive(Debug, Clone, Default)]
pub(crate) struct Histogram {
    first: u32,
    counts: Vec<u32>,
}

impl Histogram {
    #[inline]
    pub(crate) fn record(&mut self, bucket: u32) {
        let place = bucket.wrapping_sub(self.first) as usize;
        match self.counts.get_mut(place) {
            Some(count) => *count = count.saturating_add(1),
            None => self.grow_and_record(bucket),
        }
    }

    #[cold]
    fn grow_and_record(&mut self, bucket: u32) {
        self.reach(bucket, bucket);
        self.counts[(bucket - self.first) as usize] += 1;
    }

    /// Makes room for the buckets `low` to `high`, with some to spare on the side that grew.
    fn reach(&mut self, low: u32, high: u32) {
        const SPARE: u32 = 16;
        if self.counts.is_empty() {
            self.first = low.saturating_sub(SPARE);
        } else if low < self.first {
            let first = low.saturating_sub(SPARE);
            let more = (self.first - first) as usize;
            self.counts.splice(0..0, std::iter::repeat_n(0, more));
            self.first = first;
        }
        let length = (high - self.first) as usize + 1;
        if length > self.counts.len() {
            self.counts.resize(length + SPARE as usize, 0);
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        let Some((low, high)) = other.range() else { return };
        self.reach(low, high);
        for (bucket, count) in other.buckets() {
            let mine = &mut self.counts[(bucket - self.first) as usize];
            *mine = mine.saturating_add(count);
        }
    }

    fn range(&self) -> Option<(u32, u32)> {
        let low = self.buckets().next()?.0;
        let high = self.buckets().last()?.0;
        Some((low, high))
    }

    /// Non-empty buckets, ascending.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        (self.first..).zip(self.counts.iter().copied()).filter(|&(_, count)| count > 0)
    }

    pub(crate) fn total(&self) -> u64 {
        self.counts.iter().map(|&count| u64::from(count)).sum()
    }

    /// The duration that a share `q` of the samples does not exceed: middle of its bucket.
    pub(crate) fn quantile(&self, q: f64) -> Option<u64> {
        let rank = (q * self.total() as f64).ceil().max(1.0) as u64;
        let mut passed = 0;
        for (bucket, count) in self.buckets() {
            passed += u64::from(count);
            if passed >= rank {
                let (start, end) = (bucket_start(bucket), bucket_end(bucket));
                return Some(start + (end - start) / 2);
            }
        }
        None
    }

    /// The same, only with enough samples beyond it.
    pub(crate) fn percentile(&self, q: f64) -> Option<u64> {
        // 1e-6: 1 - 0.999 is not exact.
        let beyond = self.total() as f64 * (1.0 - q) + 1e-6;
        if beyond < TAIL_SAMPLES_MIN { None } else { self.quantile(q) }
    }

    /// [longest duration, samples], 4 buckets per doubling.
    pub(crate) fn coarse(&self) -> Vec<[u64; 2]> {
        let mut rows: Vec<[u64; 2]> = Vec::new();
        let width = 1 << (FINE_BITS - COARSE_BITS);
        for (bucket, count) in self.buckets() {
            let end = bucket_end(bucket | (width - 1));
            match rows.last_mut() {
                Some(row) if row[0] == end => row[1] += u64::from(count),
                _ => rows.push([end, u64::from(count)]),
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_duration_lies_in_its_bucket_and_buckets_are_narrow(duration in any::<u64>()) {
            let bucket = bucket_of(duration);
            let (start, end) = (bucket_start(bucket), bucket_end(bucket));
            prop_assert!(start <= duration && duration <= end);
            prop_assert!((end - start) as f64 <= 0.032 * start as f64);
        }

        #[test]
        fn quantiles_are_those_of_the_sorted_sample_to_three_percent(
            mut sample in prop::collection::vec(1u64..10_000_000_000, 1..300), q in 0.0f64..1.0,
        ) {
            let mut histogram = Histogram::default();
            sample.iter().for_each(|&value| histogram.record(bucket_of(value)));
            sample.sort_unstable();
            let rank = ((q * sample.len() as f64).ceil() as usize).max(1);
            let exact = sample[rank - 1] as f64;
            let found = histogram.quantile(q).expect("not empty") as f64;
            prop_assert!((found / exact - 1.0).abs() <= 0.032, "{found} {exact}");
        }

        #[test]
        fn merging_counts_what_recording_both_would(
            left in prop::collection::vec(any::<u64>(), 0..60),
            right in prop::collection::vec(any::<u64>(), 0..60),
        ) {
            let (mut a, mut b, mut both) =
                (Histogram::default(), Histogram::default(), Histogram::default());
            left.iter().for_each(|&value| a.record(bucket_of(value)));
            right.iter().for_each(|&value| b.record(bucket_of(value)));
            left.iter().chain(&right).for_each(|&value| both.record(bucket_of(value)));
            a.merge(&b);
            prop_assert!(a.buckets().eq(both.buckets()));
            let coarse: u64 = both.coarse().iter().map(|row| row[1]).sum();
            prop_assert_eq!(coarse, (left.len() + right.len()) as u64);
        }
    }

    #[test]
    fn a_percentile_needs_fifty_samples_beyond_it() {
        let mut histogram = Histogram::default();
        (0..99).for_each(|_| histogram.record(bucket_of(100)));
        assert_eq!(histogram.percentile(0.5), None);
        histogram.record(bucket_of(100));
        assert!(histogram.percentile(0.5).is_some());
    }
}
