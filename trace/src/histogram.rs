//! Durations counted in buckets of equal ratio: 32 per doubling, so a percentile is off by at most 3 %.
//!
//! Recording is a shift, a mask and an increment. Only the range that occurs is kept in memory,
//! because there is one histogram per calling context and most contexts span few buckets.

/// Buckets per doubling, as a power of two.
const FINE_BITS: u32 = 5;
const FINE: u64 = 1 << FINE_BITS;
/// Coarse buckets per doubling, for results.
const COARSE_BITS: u32 = 2;
/// Samples that must lie beyond a percentile for it to be given.
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

/// 32 times the logarithm to base 2 of a bucket's duration: what levels of durations are counted in.
///
/// Not the number of the bucket: below 32 ns that is the duration itself, and a function of 12 ns on a CPU of half the
/// speed would seem to get slower by less than one of 100 ns.
#[inline]
pub(crate) fn level_of(bucket: u32) -> u32 {
    /// `round(32 log2(n))` for durations that are buckets of their own.
    const SHORT: [u8; FINE as usize] = [
        0, 0, 32, 51, 64, 74, 83, 90, 96, 101, 106, 111, 115, 118, 122, 125, 128, 131, 133, 136,
        138, 141, 143, 145, 147, 149, 150, 152, 154, 155, 157, 159,
    ];
    match SHORT.get(bucket as usize) {
        Some(&level) => u32::from(level),
        None => bucket + FINE as u32 * (FINE_BITS - 1),
    }
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

fn bucket_middle(bucket: u32) -> u64 {
    let (start, end) = (bucket_start(bucket), bucket_end(bucket));
    start + (end - start) / 2
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

    /// The same `times` times.
    pub(crate) fn record_many(&mut self, bucket: u32, times: u32) {
        self.reach(bucket, bucket);
        let count = &mut self.counts[(bucket - self.first) as usize];
        *count = count.saturating_add(times);
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
                return Some(bucket_middle(bucket));
            }
        }
        None
    }

    /// The same for several shares, ascending, each only with enough samples beyond it.
    pub(crate) fn percentiles<const N: usize>(&self, shares: [f64; N]) -> [Option<u64>; N] {
        let total = self.total() as f64;
        // 1e-6: 1 - 0.999 is not exact.
        let enough = |q: f64| total * (1.0 - q) + 1e-6 >= TAIL_SAMPLES_MIN;
        let ranks = shares.map(|q| (q * total).ceil().max(1.0) as u64);
        let mut found = [None; N];
        let (mut wanted, mut passed) = (0, 0);
        for (bucket, &count) in (self.first..).zip(&self.counts) {
            passed += u64::from(count);
            while wanted < N && passed >= ranks[wanted] {
                found[wanted] = enough(shares[wanted]).then(|| bucket_middle(bucket));
                wanted += 1;
            }
            if wanted == N || !enough(shares[wanted]) {
                break;
            }
        }
        found
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
        fn percentiles_are_quantiles_with_enough_samples_beyond(
            sample in prop::collection::vec((1u64..1_000_000, 1u32..400), 0..30),
        ) {
            let mut histogram = Histogram::default();
            for &(value, times) in &sample {
                (0..times).for_each(|_| histogram.record(bucket_of(value)));
            }
            let shares = [0.5, 0.9, 0.99, 0.999];
            let total = histogram.total() as f64;
            let expected = shares.map(|q| {
                histogram.quantile(q).filter(|_| total * (1.0 - q) + 1e-6 >= TAIL_SAMPLES_MIN)
            });
            prop_assert_eq!(histogram.percentiles(shares), expected);
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
    fn levels_are_logarithms_of_short_and_long_durations_alike() {
        for duration in (1..4_000).chain([1 << 20, 1 << 40]) {
            let level = f64::from(level_of(bucket_of(duration)));
            let exact = 32.0 * (duration as f64).log2();
            // Within a doubling buckets are equally wide, which is off by 2.8 of 32 at most, and a duration is less
            // than one bucket, at most 1.5, behind the start of its own.
            assert!((level - exact).abs() <= 4.3, "{duration}: {level} {exact}");
        }
    }

    #[test]
    fn a_percentile_needs_fifty_samples_beyond_it() {
        let mut histogram = Histogram::default();
        (0..99).for_each(|_| histogram.record(bucket_of(100)));
        assert_eq!(histogram.percentiles([0.5]), [None]);
        histogram.record(bucket_of(100));
        assert!(histogram.percentiles([0.5])[0].is_some());
    }
}
