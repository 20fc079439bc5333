//! The highest rates that arms carry, compared arm by arm with the base generation by generation: with at most a stated
//! share lost in every one of several trials, and with nothing lost.

use super::pings::{ByGeneration, CAPACITY, Compared, Value, capacity_row};
use super::searched::{capacity, resolution, zero_loss};
use crate::result::CapacitySection;
use crate::scenario::Scenario;
use crate::trial::Trial;
use laneway_stats::Direction;

const ZERO_LOSS: Compared = Compared {
    metric: "zero-loss rate",
    unit: "1/s",
    direction: Direction::HigherIsBetter,
    value: Value::Searched(zero_loss),
};

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

/// What is compared; nothing where nothing is searched.
pub(super) fn compared(scenario: &Scenario) -> impl Iterator<Item = &'static Compared> {
    let is_searched = scenario.capacity.is_some();
    [&CAPACITY, &ZERO_LOSS].into_iter().filter(move |_| is_searched)
}

/// The section of the result; none where nothing was searched.
pub(super) fn section(
    trials: &[Trial],
    arms: usize,
    generations: usize,
    scenario: &Scenario,
) -> Option<CapacitySection> {
    let plan = scenario.capacity.as_ref()?;
    let all = ByGeneration { trials, generations };
    Some(CapacitySection {
        loss_max_share: plan.loss_max,
        searched_pps: plan.pps,
        trials: plan.trials,
        trial_ms: plan.ms,
        capacities: (0..arms).map(|arm| capacity_row(&all, arm, capacity)).collect(),
        zero_loss: (0..arms).map(|arm| capacity_row(&all, arm, zero_loss)).collect(),
    })
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
