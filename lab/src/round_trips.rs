//! Round trips of one probe: what a histogram keeps, and what the table of a ping says. Of what is forwarded it is one
//! way only, from the time a frame was due to its arrival at the far end.
//!
//! A [`Latency`] keeps percentiles; a ping's table also has the mean and the mean deviation, which
//! need the sums of all values and of their squares, and exact extremes. Round trips of different
//! probes end at different places (see [`crate::replies`] and [`crate::ping`]) and must not be merged.

use laneway_stats::{Latency, LatencySummary};
use serde::{Deserialize, Serialize};

/// A program in the kernel that sees one take longer counts it as late, and books it as long as it took.
pub(crate) const LATE_NS: u64 = 10_000_000;
/// `LW_TRIP_BINS`.
const BINS: usize = 2_048;
/// `u64` words of `struct lw_trips` in front of its bins.
const HEADER_WORDS: usize = 6;
/// All of them.
pub(crate) const TRIP_WORDS: usize = HEADER_WORDS + BINS;

/// Round trips of one probe: the whole way, never halved. Or one way, where that is what was timed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rtt {
    /// Percentiles; extremes exact.
    pub summary: LatencySummary,
    /// Mean, ns.
    pub avg_ns: Option<f64>,
    /// As `ping` has it: the root of (mean of squares - square of the mean), ns.
    pub mdev_ns: Option<f64>,
    /// Replies later than 10 ms: counted here, and booked as long as they took.
    pub late: u64,
}

/// Round trips, mergeable over blocks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoundTrips {
    /// For percentiles.
    latency: Latency,
    /// Exact; `None` without any.
    extremes_ns: Option<[u64; 2]>,
    /// Of all, ns.
    sum_ns: f64,
    /// Of all, ns squared.
    squares_ns2: f64,
    /// Replies that arrived later than the probe's limit.
    late: u64,
}

impl RoundTrips {
    /// Books one.
    pub(crate) fn record(&mut self, ns: u64) {
        self.latency.record(ns);
        self.stretch([ns, ns]);
        self.sum_ns += ns as f64;
        self.squares_ns2 += (ns as f64).powi(2);
    }

    /// Books one that is late beyond a limit.
    pub(crate) fn record_with_limit(&mut self, ns: u64, late_ns: u64) {
        self.record(ns);
        self.late += u64::from(ns > late_ns);
    }

    /// So many more were asked for and had no end.
    pub(crate) fn miss(&mut self, n: u64) {
        self.latency.miss(n);
    }

    /// From bins: each with the value that stands for it and how often it occurred. Sums and extremes are
    /// exact, as the recorder of the bins kept them.
    pub(crate) fn of_bins(
        bins: impl Iterator<Item = (u64, u64)>,
        extremes_ns: [u64; 2],
        sum_ns: f64,
        squares_ns2: f64,
        late: u64,
    ) -> RoundTrips {
        let mut trips = RoundTrips { sum_ns, squares_ns2, late, ..RoundTrips::default() };
        for (ns, n) in bins {
            let ns = ns.clamp(extremes_ns[0], extremes_ns[1]);
            (0..n).for_each(|_| trips.latency.record(ns));
        }
        if trips.latency.n() > 0 {
            trips.stretch(extremes_ns);
        }
        trips
    }

    /// From the words of `struct lw_trips`.
    pub(crate) fn of_words(words: &[u64]) -> RoundTrips {
        let (header, bins) = words.split_at(HEADER_WORDS);
        let [late, shortest_ns, longest_ns, sum_ns, squares_low, squares_high] =
            *header.first_chunk().expect("it was split there");
        let filled = bins.iter().enumerate().filter(|(_, n)| **n > 0);
        RoundTrips::of_bins(
            filled.map(|(bin, &n)| (middle_ns(bin), n)),
            [shortest_ns, longest_ns],
            sum_ns as f64,
            squares_high as f64 * 2f64.powi(64) + squares_low as f64,
            late,
        )
    }

    /// Adds those of another block, of the same probe.
    pub(crate) fn merge(&mut self, other: &RoundTrips) {
        self.latency.merge(&other.latency);
        if let Some(extremes_ns) = other.extremes_ns {
            self.stretch(extremes_ns);
        }
        self.sum_ns += other.sum_ns;
        self.squares_ns2 += other.squares_ns2;
        self.late += other.late;
    }

    /// The histogram, for a curve.
    pub(crate) fn latency(&self) -> &Latency {
        &self.latency
    }

    /// How many.
    pub(crate) fn n(&self) -> u64 {
        self.latency.n()
    }

    /// The figures of a table's row.
    pub(crate) fn figures(&self) -> Rtt {
        let mut summary = self.latency.summary();
        let n = self.n() as f64;
        let avg_ns = (n > 0.0).then(|| self.sum_ns / n);
        if let Some([shortest_ns, longest_ns]) = self.extremes_ns {
            summary.min_ns = Some(shortest_ns);
            summary.max_ns = Some(longest_ns);
        }
        Rtt {
            summary,
            avg_ns,
            // As ping has it: the root of the mean square minus the squared mean.
            mdev_ns: avg_ns.map(|avg| (self.squares_ns2 / n - avg * avg).max(0.0).sqrt()),
            late: self.late,
        }
    }

    fn stretch(&mut self, [shortest_ns, longest_ns]: [u64; 2]) {
        let [low, high] = self.extremes_ns.unwrap_or([u64::MAX, 0]);
        self.extremes_ns = Some([low.min(shortest_ns), high.max(longest_ns)]);
    }
}

/// The value in the middle of a bin.
fn middle_ns(bin: usize) -> u64 {
    if bin < 64 {
        return bin as u64;
    }
    let (power, part) = (bin / 64 + 5, bin as u64 % 64);
    let width = 1u64 << (power - 6);
    (1 << power) + part * width + width / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_lie_end_to_end_and_hold_their_middle() {
        assert_eq!([0, 63, 64, 65, 127, 128].map(middle_ns), [0, 63, 64, 65, 127, 129]);
        let middles: Vec<u64> = (0..BINS).map(middle_ns).collect();
        assert!(middles.windows(2).all(|pair| pair[0] < pair[1]));
        // The last covers more than 100 s.
        assert!(middles[BINS - 1] > 100_000_000_000);
    }

    #[test]
    fn sums_of_squares_beyond_64_bits_are_kept() {
        let mut words = vec![0; TRIP_WORDS];
        (words[1], words[2], words[3]) = (4_000_000_000, 4_000_000_000, 8_000_000_000);
        // 2 * (4e9)^2 = 3.2e19 is beyond 2^64.
        let squares = 2 * 4_000_000_000u128.pow(2);
        (words[4], words[5]) = (squares as u64, (squares >> 64) as u64);
        words[HEADER_WORDS + 1_700] = 2;
        let figures = RoundTrips::of_words(&words).figures();
        assert_eq!((figures.avg_ns, figures.mdev_ns), (Some(4e9), Some(0.0)));
    }

    fn of(values: &[u64]) -> RoundTrips {
        let mut trips = RoundTrips::default();
        values.iter().for_each(|&ns| trips.record(ns));
        trips
    }

    #[test]
    fn mean_and_mean_deviation_are_those_of_a_ping() {
        let figures = of(&[1_000, 2_000, 3_000, 6_000]).figures();
        assert_eq!(figures.avg_ns, Some(3_000.0));
        // (1 + 4 + 9 + 36) / 4 - 9 = 3.5
        assert!((figures.mdev_ns.unwrap() - 3.5f64.sqrt() * 1e3).abs() < 1e-6);
        assert_eq!((figures.summary.min_ns, figures.summary.max_ns), (Some(1_000), Some(6_000)));
    }

    #[test]
    fn merging_is_the_same_as_booking_all_in_one() {
        let mut merged = of(&[5, 700]);
        merged.merge(&of(&[90_000]));
        merged.merge(&RoundTrips::default());
        assert_eq!(merged, of(&[5, 700, 90_000]));
    }

    #[test]
    fn bins_keep_the_exact_sums_and_extremes_that_they_arrived_with() {
        let bins = [(1_000, 2), (4_000, 1)];
        let trips = RoundTrips::of_bins(bins.into_iter(), [990, 3_950], 5_930.0, 17_562_500.0, 1);
        let figures = trips.figures();
        assert_eq!((figures.summary.n, figures.late), (3, 1));
        assert_eq!((figures.summary.min_ns, figures.summary.max_ns), (Some(990), Some(3_950)));
        assert!((figures.avg_ns.unwrap() - 5_930.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn without_any_there_are_no_figures() {
        let figures = RoundTrips::default().figures();
        assert_eq!((figures.avg_ns, figures.mdev_ns, figures.summary.min_ns), (None, None, None));
        let none = RoundTrips::of_bins([].into_iter(), [0, 0], 0.0, 0.0, 0);
        assert_eq!(none.figures().summary.max_ns, None);
    }
}
