//! The statistics of a race: in which order arms run, what their numbers mean together, and when
//! to stop.
//!
//! A race runs *blocks*; a block runs every *arm* once. The unit of every test here is the block,
//! never the packet: packets of one trial share a process, a core and a moment, so a million of
//! them is still one observation. Arms are compared inside a block (paired), which cancels what
//! the machine did to both.
//!
//! A race that keeps both arms alive at once compares [`pairs`] of short segments instead, over
//! generations of fresh processes; there the unit is the generation. It may be looked at as often as one
//! likes ([`Looks`]) and shares one error rate among all it may claim ([`Family`]).
//!
//! The crate is pure: no I/O, no clock, no global randomness. Seeds are arguments and every result
//! carries the seed it used, so a recorded race can be judged again and gives the same digits.
//! No result holds a NaN or an infinity: what cannot be computed is absent, with a named reason.
//!
//! What it does not do: it measures nothing, drops no outlier, and never turns an absent number
//! into a verdict.
//!
//! ```
//! use laneway_stats::{BlockOrder, Bootstrap, Comparison, Rule, Verdict};
//!
//! // Arms: 0 is the base, 1 the base again (the A/A pair), 2 the candidate.
//! let order = BlockOrder::new(3, 10, 2024)?;
//! assert_eq!(order.block(0).len(), 3);
//!
//! let base = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8, 100.1, 99.9, 100.0].map(Some);
//! let again = [100.2, 100.6, 99.1, 100.4, 99.6, 100.0, 100.0, 99.9, 100.2, 99.8].map(Some);
//! let fast = base.map(|rate| rate.map(|rate: f64| rate * 1.2));
//!
//! let seeded = Bootstrap::new(2_000, 7)?;
//! let noise = Comparison::new(&base, &again, Rule::RATE, seeded)?;
//! let gain = Comparison::new(&base, &fast, Rule::RATE, seeded)?;
//! assert_eq!(noise.judge(None).verdict, Verdict::Same);
//! assert_eq!(gain.judge(Some(&noise)).verdict, Verdict::Better);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! And by pairs, here on a simulated machine, until the race is decided:
//!
//! ```
//! use laneway_stats::pairs::{Comparison, information};
//! use laneway_stats::simulator::{PairMachine, Plan};
//! use laneway_stats::{Family, Looks, Rule, Spending, Verdict};
//!
//! let family = Family::new(0.05, 1)?;
//! let mut looks = Looks::new(Spending::default());
//! let all = PairMachine::MEASURED.race(Plan { generations: 24, pairs: 8 }, &[2.0], 7);
//! for generation in 1..=24 {
//!     let pairs = &all[0][..generation * 8];
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

mod bootstrap;
mod compare;
mod family;
mod latency;
mod normal;
mod order;
pub mod pairs;
mod random;
mod rank;
mod sequential;
pub mod simulator;
mod stop;
mod student;
mod summary;
mod verdict;

pub use bootstrap::{Bootstrap, BootstrapError, Interval, IntervalMethod};
pub use compare::{CompareError, Comparison, Direction, Effect, Rule, Scale, Side, Unusable};
pub use family::{Family, FamilyError};
pub use latency::{CurvePoint, Latency, LatencyError, LatencyRecord, LatencySummary};
pub use order::{BlockOrder, OrderError};
pub use rank::holm;
pub use sequential::{Look, LookError, Looks, Spending};
pub use stop::{Step, StopError, StopRule};
pub use summary::{SampleError, Summary, quantile};
pub use verdict::{Doubt, Judgement, Verdict};

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
    /// Fewest bootstrap resamples: below this the 2.5 % tail rests on a handful of draws.
    pub const RESAMPLES_MIN: u32 = 200;
    /// Most bootstrap resamples, so that a typing error does not run for hours.
    pub const RESAMPLES_MAX: u32 = 1_000_000;
    /// Longest latency kept apart, ns: a 60 s trial plus a generous drain. Longer ones are counted
    /// as this value, and counted as clamped.
    pub const LATENCY_NS_MAX: u64 = 100_000_000_000;
}
