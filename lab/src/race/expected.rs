//! How long a race takes, estimated before it starts: from its arms, loads, segments and generations.
//!
//! An estimate for a user who waits. Nothing is decided by it, and what a race finds out first (a saturating load,
//! the arms that do not start) is not in it.

use super::{Length, contest, entrants, extent_of};
use crate::scenario::{CapacityPlan, PingPlan, Scenario};
use std::time::Duration;

/// What a segment takes beyond its length: the lead, the drain, and counters read before and behind it.
const TURN_MORE: Duration = Duration::from_millis(60);
/// What it takes to start an arm and its generator, and to end them.
const START: Duration = Duration::from_millis(200);
/// Requests per second of a closed loop that ends with their number: an arm of a usual speed.
const CLOSED_PER_S: u32 = 50_000;
/// What real pings beside a load take, in times of those without, and beyond that.
const BESIDE_TIMES: f64 = 1.3;
const BESIDE_MORE: Duration = Duration::from_millis(500);

/// How long a race takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Arms, the base's second run among them.
    pub arms: usize,
    /// Offered loads.
    pub loads: usize,
    /// Generations of fresh processes, at most.
    pub generations: usize,
    /// A segment for every arm at every load.
    pub round: Duration,
    /// If every verdict is decided as early as may be.
    pub least: Duration,
    /// If some never is.
    pub most: Duration,
}

/// How long this version of `scenario`, which was checked, takes.
pub fn expected(scenario: &Scenario, length: Length) -> Expected {
    let extent = extent_of(scenario, length);
    let arms = entrants(scenario, length).len();
    let counts = &extent.closed_requests;
    let is_one_more = extent.saturate || extent.topspeed || extent.closed_loop;
    let long = extent.loads_pps.len()
        + usize::from(is_one_more && counts.is_empty())
        + usize::from(extent.own_share.is_some());
    let loads = long + counts.len();
    let times = |duration: Duration, n: usize| duration.saturating_mul(n as u32);
    let segment = Duration::from_millis(extent.segment_ms);
    let counted = counts.iter().map(|&n| Duration::from_secs(n) / CLOSED_PER_S + TURN_MORE);
    let round = times(times(segment + TURN_MORE, long) + counted.sum::<Duration>(), arms);
    let pings = scenario.ping.as_ref().map_or(Duration::ZERO, pinging);
    let search = scenario.capacity.as_ref().map_or(Duration::ZERO, searching);
    let rest = times(START + pings + search, arms);
    let shortest = rest + times(round, contest::ROUNDS_MIN);
    let (least, most) = match extent.rounds {
        Some(rounds) => {
            let all = times(rest + times(round, rounds), extent.generations);
            (all, all)
        }
        None => {
            let time = Duration::from_secs(extent.time_s);
            let each = (time / extent.generations as u32).max(shortest);
            let few = times(each, contest::GENERATIONS_MIN.min(extent.generations));
            // The last generation began before the time was over.
            (few, few.max(time + shortest.saturating_sub(time / extent.generations as u32)))
        }
    };
    Expected { arms, loads, generations: extent.generations, round, least, most }
}

/// What pings and the search of an arm take in a generation.
fn pinging(plan: &PingPlan) -> Duration {
    let pings = Duration::from_micros(u64::from(plan.pings) * u64::from(plan.ping_interval_us));
    let beside = match u64::from(plan.pings) * plan.ping_load_pps {
        0 => Duration::ZERO,
        _ => pings.mul_f64(BESIDE_TIMES) + BESIDE_MORE,
    };
    let step = Duration::from_millis(plan.capacity_ms) + TURN_MORE;
    pings + beside + step * plan.capacity_steps
}

/// What both searches of an arm take in a generation, if every rate but the last of each is carried.
fn searching(plan: &CapacityPlan) -> Duration {
    let trial = Duration::from_millis(plan.ms) + TURN_MORE;
    trial * plan.trials * plan.steps * 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::TablesOf;
    use laneway_registry::{Apps, Lanes};
    use std::path::Path;

    fn shipped(name: &str) -> Scenario {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios"));
        let mut scenario = Scenario::load(&folder.join(name)).expect("it ships");
        scenario.check(&TablesOf::<Apps, Lanes>::new()).expect("it ships");
        scenario
    }

    #[test]
    fn a_race_is_expected_to_take_what_it_took() {
        // docs/measurements/features.md: 36 rounds in 18 generations, 79 s, of at most 25 in 75 s.
        let mut features = shipped("features.toml");
        features.quick.loads_pps = vec![100_000, 200_000];
        let Expected { arms, loads, generations, round, least, most } =
            expected(&features, Length::Quick);
        assert_eq!((arms, loads, generations), (5, 2, 25));
        assert_eq!(round, Duration::from_millis(1_600));
        assert!((9..=15).contains(&least.as_secs()), "{least:?}");
        assert!((75..=80).contains(&most.as_secs()), "{most:?}");
    }

    #[test]
    fn rounds_instead_of_a_time_take_as_long_as_they_are() {
        let mut tap = shipped("tap.toml");
        tap.race_these(&["tap".into(), "packet".into()]);
        tap.quick.rounds = Some(2);
        tap.quick.generations = 4;
        let Expected { arms, loads, least, most, .. } = expected(&tap, Length::Quick);
        // Two loads, and the saturating one.
        assert_eq!((arms, loads, least), (3, 3, most));
        assert_eq!(most, 4 * (3 * START + 2 * 9 * (Duration::from_millis(100) + TURN_MORE)));
    }

    #[test]
    fn a_generation_that_outlasts_its_share_is_counted_whole() {
        let pings = shipped("ping.toml");
        let Expected { least, most, .. } = expected(&pings, Length::Quick);
        assert!(most > Duration::from_secs(90) && least < most, "{least:?} {most:?}");
    }
}
