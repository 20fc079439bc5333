//! What the searches of a trial found: the figure that is made of it, and what it says nothing of.

use crate::scenario::Scenario;
use crate::search;
use crate::trial::{Capacity, Trial};
use laneway_kinds::Metric;

/// How near the searches of a race are to what they search for, as a share: none is farther off. 0 where none is made.
pub(super) fn resolution(scenario: &Scenario) -> f64 {
    let of_capacity = scenario.capacity.as_ref().map(|plan| (plan.pps, plan.steps));
    let of_pings = scenario.ping.as_ref().map(|plan| (plan.capacity_pps, plan.capacity_steps));
    let search = of_capacity.or(of_pings).filter(|(_, steps)| *steps > 0);
    search.map_or(0.0, |(pps, steps)| search::resolution(pps, steps))
}

/// Whether rates are searched.
pub(super) fn is_searched(scenario: &Scenario) -> bool {
    resolution(scenario) > 0.0
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
