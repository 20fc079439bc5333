//! The statistics of a race: in which order arms run, what their numbers mean together, and when
//! to stop.
//!
//! A race keeps its arms alive at once and offers each a short *segment* in every *round*; an arm and the base of
//! the same round are a *pair*, which cancels what the machine did to both. After some rounds all processes are
//! replaced: that *generation* is the unit of every interval, never the segment and never the packet. A race may be
//! looked at as often as one likes ([`Looks`]) and shares one error rate among all it may claim ([`Family`]).
//!
//! The crate is pure: no I/O, no clock, no global randomness. Seeds are arguments and every result
//! carries the seed it used, so a recorded race can be judged again and gives the same digits.
//! No result holds a NaN or an infinity: what cannot be computed is absent, with a named reason.
//!
//! What it does not do: it measures nothing, drops no outlier, and never turns an absent number
//! into a verdict.
//!
//! ```
//! use laneway_stats::pairs::{Comparison, Pair, information};
//! use laneway_stats::{Family, Looks, Rule, Spending, Verdict};
//!
//! // An arm that costs twice what the base costs, in 24 generations of 8 pairs, each a few per cent from the next.
//! let measured = |generation: usize, pair: usize| {
//!     let machine = 1.0 + 0.04 * (generation % 5) as f64 + 0.02 * (pair % 3) as f64;
//!     let noise = 1.0 + 0.03 * ((generation * 7 + pair * 5) % 11) as f64 / 11.0;
//!     Pair { generation, base: Some(100.0 * machine), arm: Some(200.0 * machine * noise) }
//! };
//! let all: Vec<Pair> = (0..24 * 8).map(|i| measured(i / 8, i % 8)).collect();
//!
//! let family = Family::new(0.05, 1)?;
//! let mut looks = Looks::new(Spending::default());
//! for generation in 1..=24 {
//!     let pairs = &all[..generation * 8];
//!     let share = generation as f64 / 24.0;
//!     let look = looks.look(share, information(pairs), family.alpha_each(0))?;
//!     let found = Comparison::of_pairs(pairs, Rule::COST, look)?;
//!     if found.is_decided(None) {
//!         assert_eq!(found.judge(None).verdict, Verdict::Worse);
//!         assert!(generation < 12, "long before the time is over");
//!         return Ok(());
//!     }
//! }
//! unreachable!("twice the cost is seen");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod compare;
mod drift;
mod family;
mod gaps;
mod holm;
mod latency;
mod normal;
mod order;
pub mod pairs;
mod sequential;
pub mod sides;
mod student;
mod summary;
mod verdict;

pub use compare::{Direction, Rule, Scale, Side};
pub use drift::Drift;
pub use family::{Family, FamilyError};
pub use gaps::exponential_gaps;
pub use holm::holm;
pub use latency::{CurvePoint, Latency, LatencyError, LatencyRecord, LatencySummary};
pub use order::{BlockOrder, OrderError};
pub use sequential::{Look, LookError, Looks, Spending};
pub use summary::{SampleError, Summary, quantile};
pub use verdict::Verdict;

/// Named limits of this crate.
pub mod limits {
    /// Arms in one race.
    pub const ARMS_MAX: usize = 64;
    /// Blocks in one race.
    pub const BLOCKS_MAX: usize = 10_000;
    /// Pairs in one comparison.
    pub const PAIRS_MAX: usize = 100_000;
    /// Pairs of one comparison in one generation: a robust centre looks at all pairs of them.
    pub const PAIRS_PER_GENERATION_MAX: usize = 1_000;
    /// Least share of a comparison's pairs that must be whole for a verdict: where more than half
    /// are lost, those left are no longer the machine one wanted to know.
    pub const WHOLE_PAIRS_SHARE_MIN: f64 = 0.5;
    /// Most values, as a share of the pairs, that may be there and yet not be comparable.
    pub const BROKEN_SHARE_MAX: f64 = 0.01;
    /// Largest magnitude of a measured value, in the metric's own unit. Beyond it sums and squares
    /// could overflow; a year in nanoseconds is 3e16.
    pub const VALUE_MAX: f64 = 1e18;
    /// Longest latency kept apart, ns: a 60 s trial plus a generous drain. Longer ones are counted
    /// as this value, and counted as clamped.
    pub const LATENCY_NS_MAX: u64 = 100_000_000_000;
}
