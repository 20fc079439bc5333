//! What is measured once in a generation, at no load: pings and searched rates, compared while a race goes on.
//!
//! No verdict here is waited for; a goal or a claim on a searched rate is. What is waited for is of the same arms in
//! the same generations, so that the data of these choose a race's end as well: a single look at the end, at the whole
//! error rate, would claim too much. So they are looked at whenever the others are, each look at its own level, and the
//! last one stands.

use super::analyse::Judge;
use super::pings::{ByGeneration, findings};
use super::{capacities, demands, pings};
use crate::result::Finding;
use crate::scenario::Scenario;
use crate::trial::Trial;
use laneway_kinds::Metric;

/// What is compared here and may be demanded.
const COMPARED: [Metric; 3] = [Metric::PingAvg, Metric::Capacity, Metric::ZeroLoss];

/// The looks of a race so far.
pub(super) struct Once<'a> {
    judge: Judge,
    scenario: &'a Scenario,
}

impl<'a> Once<'a> {
    /// No look has been taken yet.
    pub(super) fn new(scenario: &'a Scenario) -> Once<'a> {
        let beside = demands::beside_comparisons(scenario, &COMPARED, true);
        Once { judge: Judge::new(None, beside), scenario }
    }

    /// Every arm against the base when a `share` of the race's time has gone; the last look has 1.
    pub(super) fn look(
        &mut self,
        trials: &[Trial],
        size: [usize; 2],
        generations: usize,
        share: f64,
    ) -> Vec<Finding> {
        let (judge, scenario) = (&mut self.judge, self.scenario);
        let all = ByGeneration { trials, generations };
        let compared = pings::compared(scenario).chain(capacities::compared(scenario));
        compared.flat_map(|what| findings(judge, &all, what, size, scenario, share)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::race::searched;
    use crate::trial::Capacity;
    use laneway_random::Random;
    use std::path::Path;

    const GENERATIONS: usize = 12;
    /// Arms and loads: the base twice, and another.
    const SIZE: [usize; 2] = [3, 1];

    /// A race whose capacities are known to next to nothing.
    fn scenario() -> Scenario {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/ping.toml");
        let mut scenario = Scenario::load(Path::new(file)).expect("it ships");
        let ping = scenario.ping.as_mut().expect("it has pings");
        (ping.pings, ping.capacity_steps) = (0, 30);
        scenario
    }

    /// Arms that are the same, but for what differs from process to process.
    fn generation(generation: usize, random: &mut Random) -> [Trial; 3] {
        [0, 1, 2].map(|arm| {
            let pps = (1e6 * (0.05 * random.normal()).exp()) as u64;
            let found =
                Capacity { pps: Some(pps), beyond_pps: Some(pps + 1), ..Capacity::default() };
            Trial { capacity: Some(found), ..Trial::empty(arm, generation) }
        })
    }

    fn share(generations: usize) -> f64 {
        generations as f64 / GENERATIONS as f64
    }

    /// The finding on the third arm, which is no other than the first.
    fn differs(mut found: Vec<Finding>) -> bool {
        let interval = found.remove(1).comparison.interval;
        interval.is_some_and(|it| !(it.lower..=it.upper).contains(&1.0))
    }

    #[test]
    fn a_scenario_of_pings_may_search_too() {
        let mut scenario = scenario();
        assert!(searched::is_searched(&scenario) && scenario.capacity.is_none());
        scenario.ping.as_mut().expect("it has pings").capacity_steps = 0;
        assert!(!searched::is_searched(&scenario));
    }

    #[test]
    fn a_race_that_ended_early_was_looked_at_early() {
        let (scenario, mut random) = (scenario(), Random::seeded(1));
        let mut once = Once::new(&scenario);
        let mut trials = Vec::new();
        for generations in 1..=4 {
            trials.extend(generation(generations - 1, &mut random));
            let found = once.look(&trials, SIZE, generations, share(generations));
            assert_eq!(found.len(), 2);
            for finding in found {
                let limits = finding.limit_look.expect("it was looked at");
                for look in [finding.comparison.look, limits] {
                    assert_eq!((look.number, look.share), (generations, share(generations)));
                    assert!(look.level.is_none_or(|level| level < look.alpha / 5.0), "{look:?}");
                }
            }
        }
    }

    #[test]
    fn a_race_that_ends_when_arms_seem_to_differ_claims_no_more_often_than_the_rate() {
        let scenario = scenario();
        let (mut ended, mut claimed) = (0, 0);
        let races = 200;
        for seed in 0..races {
            let mut random = Random::seeded(seed);
            let mut once = Once::new(&scenario);
            let mut trials = Vec::new();
            for generations in 1..=GENERATIONS {
                trials.extend(generation(generations - 1, &mut random));
                let found = once.look(&trials, SIZE, generations, share(generations));
                // As the only look it would be, which is the worst that a metric like this one may end a race by.
                let only = Once::new(&scenario).look(&trials, SIZE, generations, 1.0);
                if differs(only) {
                    ended += 1;
                    claimed += u64::from(differs(found));
                    break;
                }
            }
        }
        // One look at the end would claim whenever this ended a race.
        assert!(ended > races / 10, "{ended} of {races}");
        assert!(claimed <= races / 20, "{claimed} of {races}");
    }
}
