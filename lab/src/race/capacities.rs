//! The highest rates that arms carry, compared arm by arm with the base generation by generation: with at most a stated
//! share lost in every one of several trials, and with nothing lost.

use super::pings::{ByGeneration, CAPACITY, Compared, Value, capacity_row, findings};
use crate::result::{CapacitySection, Finding};
use crate::scenario::Scenario;
use crate::search;
use crate::trial::{Capacity, Trial};
use laneway_kinds::Metric;
use laneway_stats::Direction;

const ZERO_LOSS: Compared = Compared {
    metric: "zero-loss rate",
    unit: "1/s",
    direction: Direction::HigherIsBetter,
    value: Value::Searched(zero_loss),
};

/// How near the searches of a race are to what they search for, as a share: none is farther off. 0 where none is made.
pub(super) fn resolution(scenario: &Scenario) -> f64 {
    let of_capacity = scenario.capacity.as_ref().map(|plan| (plan.pps, plan.steps));
    let of_pings = scenario.ping.as_ref().map(|plan| (plan.capacity_pps, plan.capacity_steps));
    let search = of_capacity.or(of_pings).filter(|(_, steps)| *steps > 0);
    search.map_or(0.0, |(pps, steps)| search::resolution(pps, steps))
}

/// What a search found, and what is above that.
pub(super) type Searched<'a> = (&'a Capacity, SearchEnd);

/// A search that a trial may have.
pub(super) type Search = for<'a> fn(&'a Trial) -> Option<Searched<'a>>;

/// What is above the rate that a search found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SearchEnd {
    /// A rate that the arm did not carry.
    Failed,
    /// A rate that says nothing of the arm: the generator did not keep it, or something disturbed it, the lowest.
    NotKept,
    /// Nothing that was asked.
    Open,
}

/// The search that finds this metric.
pub(super) fn search_of(metric: Metric) -> Option<Search> {
    match metric {
        Metric::Capacity => Some(capacity),
        Metric::ZeroLoss => Some(zero_loss),
        _ => None,
    }
}

fn end(found: &Capacity) -> SearchEnd {
    match found.beyond_pps {
        None => SearchEnd::Open,
        Some(_) if found.is_generator_limited || found.is_disturbed => SearchEnd::NotKept,
        Some(_) => SearchEnd::Failed,
    }
}

/// What the search for a capacity found.
pub(super) fn capacity(trial: &Trial) -> Option<Searched<'_>> {
    trial.capacity.as_ref().map(|found| (found, end(found)))
}

/// What the search for a rate without a loss found. One that ended at the capacity has the end of that.
pub(super) fn zero_loss(trial: &Trial) -> Option<Searched<'_>> {
    let found = trial.zero_loss.as_ref()?;
    let of_capacity = capacity(trial).filter(|(capacity, _)| capacity.pps == found.pps);
    let of_capacity = of_capacity.map(|(_, end)| end).filter(|end| *end != SearchEnd::Failed);
    Some((found, of_capacity.unwrap_or_else(|| end(found))))
}

/// Whether most searches of an arm ended at what the generator keeps: what they found are bounds then, and that of a
/// few else, which chance cut short, is no figure.
pub(super) fn is_cut_short(trials: &[Trial], arm: usize, search: Search) -> bool {
    let of_arm = trials.iter().filter(|trial| trial.index == arm);
    let ends: Vec<SearchEnd> = of_arm.filter_map(search).map(|(_, end)| end).collect();
    2 * ends.iter().filter(|end| **end == SearchEnd::NotKept).count() > ends.len()
}

/// The rate that a search found of an arm of which most, or few, are cut short: none at all of one that did not carry
/// the lowest.
pub(super) fn carried((found, end): Searched<'_>, is_cut_short: bool) -> Option<f64> {
    match (found.pps, end) {
        (Some(_), SearchEnd::NotKept) if !is_cut_short => None,
        (Some(pps), _) => Some(pps as f64),
        (None, SearchEnd::Failed) => Some(0.0),
        (None, _) => None,
    }
}

/// What a reader must know of the rates that were searched; `None` where none were.
pub(super) fn note(scenario: &Scenario) -> Option<String> {
    let percent = resolution(scenario) * 100.0;
    (percent > 0.0).then(|| {
        format!(
            "a search asks the same rates of every arm, {percent:.1} % apart in the end: what it finds is the last that \
             was carried, and the arm's own is below the next. So every interval of a ratio of two is that much wider \
             at either end, and no smaller difference is called"
        )
    })
}

/// The section of the result and its findings; neither where nothing was searched.
pub(super) fn section(
    trials: &[Trial],
    arms: usize,
    loads: usize,
    generations: usize,
    scenario: &Scenario,
) -> (Option<CapacitySection>, Vec<Finding>) {
    let Some(plan) = &scenario.capacity else { return (None, Vec::new()) };
    let all = ByGeneration { trials, generations };
    let section = CapacitySection {
        loss_max_share: plan.loss_max,
        searched_pps: plan.pps,
        trials: plan.trials,
        trial_ms: plan.ms,
        capacities: (0..arms).map(|arm| capacity_row(&all, arm, capacity)).collect(),
        zero_loss: (0..arms).map(|arm| capacity_row(&all, arm, zero_loss)).collect(),
    };
    let compared = [&CAPACITY, &ZERO_LOSS];
    let findings =
        compared.into_iter().flat_map(|what| findings(&all, what, arms, loads, scenario));
    (Some(section), findings.collect())
}

/// What makes the run invalid: a search is made of segments, and theirs are ledgers, too.
pub(super) fn faults(trials: &[Trial]) -> Vec<String> {
    let mut faults = Vec::new();
    for trial in trials {
        let searches = [&trial.capacity, &trial.zero_loss].into_iter().flatten();
        for step in searches.flat_map(|capacity| &capacity.steps) {
            let place = format!("{}, capacity search at {}/s", trial.arm, step.pps);
            let ledger = &step.ledger;
            if !ledger.is_closed() {
                faults.push(format!(
                    "{place}: the ledger is open, {} of {} packets are unexplained, {} were delivered twice",
                    ledger.unexplained, ledger.offered, ledger.duplicates
                ));
            }
            for (what, n) in &ledger.wrong {
                faults.push(format!("{place}: {n} copies {what}"));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Ledger;
    use crate::trial::{Capacity, CapacityStep};

    #[test]
    fn what_was_not_carried_is_nothing_and_what_was_not_offered_is_unknown() {
        let trial = |found: Capacity, zero_loss: Capacity| Trial {
            capacity: Some(found),
            zero_loss: Some(zero_loss),
            ..Trial::empty(1, 0)
        };
        let none = Capacity { beyond_pps: Some(10), ..Capacity::default() };
        let at = |pps, beyond_pps| Capacity { pps: Some(pps), beyond_pps, ..Capacity::default() };
        let limited = |found: Capacity| Capacity { is_generator_limited: true, ..found };
        let of = |trial: &Trial| {
            let found = [capacity(trial), zero_loss(trial)];
            found.map(|it| it.expect("both were searched")).map(|it| (carried(it, false), it.1))
        };
        use SearchEnd::{Failed, NotKept, Open};
        assert_eq!(of(&trial(none.clone(), none.clone())), [(Some(0.0), Failed); 2]);
        assert_eq!(of(&trial(limited(none.clone()), none.clone())), [(None, NotKept); 2]);
        let disturbed = Capacity { is_disturbed: true, ..none.clone() };
        assert_eq!(of(&trial(disturbed, none)), [(None, NotKept); 2]);
        let [highest, lower] = [at(90, None), at(40, Some(60))];
        assert_eq!(
            of(&trial(highest.clone(), lower.clone())),
            [(Some(90.0), Open), (Some(40.0), Failed)]
        );
        // Without a loss at the very capacity, above which the generator kept nothing.
        let kept = at(70, Some(80));
        assert_eq!(of(&trial(limited(kept.clone()), kept)), [(None, NotKept); 2]);
        assert_eq!(of(&trial(lower.clone(), lower)), [(Some(40.0), Failed); 2]);
    }

    #[test]
    fn an_open_ledger_and_a_wrong_copy_of_either_search_are_faults() {
        let mut ledger = Ledger { offered: 10, delivered: 9, ..Ledger::default() };
        ledger.balance();
        let mut wrong = Ledger { offered: 10, delivered: 10, ..Ledger::default() };
        wrong.wrong.insert("where they should not".to_owned(), 2);
        let found = |pps, ledger| {
            let step = CapacityStep { pps, loss_share: 0.1, passed: false, ledger };
            Some(Capacity { steps: vec![step], ..Capacity::default() })
        };
        let trial =
            Trial { capacity: found(5, ledger), zero_loss: found(4, wrong), ..Trial::empty(1, 0) };
        let faults = faults(&[trial, Trial::empty(0, 0)]);
        let parts = ["arm 1, capacity search at 5/s: the ledger is open", "at 4/s: 2 copies"];
        assert_eq!(faults.len(), parts.len(), "{faults:?}");
        for (fault, part) in faults.iter().zip(parts) {
            assert!(fault.contains(part), "{fault}");
        }
    }
}
