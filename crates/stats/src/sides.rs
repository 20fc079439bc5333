//! Two sides of a few runs each, not paired: by how much one side differs from the other when the machine drifts.
//!
//! A run gives one value per quantity, so runs are the unit. Values of neighbouring runs are more alike than others,
//! for a machine warms up, is moved, or gets other neighbours; runs of one side that were made before all runs of the
//! other differ by that alone. Two models of it are fitted, and a difference counts only where it stands against both:
//!
//! - *A walk*: every run adds a step of its own to a common path. The spread of the steps, with the change of side
//!   taken out, says how far the mean of one side may have walked from that of the other. For values without any drift
//!   the same formula is right where the sides took turns, and wide where they did not.
//! - *A line*: least squares on side and place in the order. It takes a steady drift off; and where the sides take
//!   turns on a calm machine the steps hang together, so that the walk's interval alone is a little too narrow (it
//!   covers in 92 %).
//!
//! The interval reported spans both, the p-value is the larger. What must always hold: of equal sides at most 5 % are
//! found to differ, whatever the drift (`tests/sides_proof.rs`); where the sides took turns little power is paid for
//! it. It assumes that a step between two sides is like one within a side: a machine that was exchanged in between is
//! not covered.

use crate::compare::Side;
use crate::student::{critical, two_sided_p};

/// Fewest runs of each side that give a result.
pub const RUNS_MIN: usize = 3;
/// One minus the confidence of an interval.
const LEVEL: f64 = 0.05;
/// A difference below this is rounding, on any scale that values are compared on.
const ROUNDING: f64 = 1e-12;

/// By how much the arm's side lies above the base's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shift {
    /// Difference of the means.
    pub estimate: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
    /// Two-sided p-value of no difference.
    pub p: f64,
}

/// Compares the sides of `runs`, which stand in the order in which they were made.
///
/// `known_to` is how far any value may be from what it stands for, all in one direction even: the resolution of a
/// histogram. `None` with fewer than [`RUNS_MIN`] runs of a side, or with a value that is no number.
pub fn shift(runs: &[(Side, f64)], known_to: f64) -> Option<Shift> {
    let is_arm = |side: Side| if side == Side::Arm { 1.0 } else { 0.0 };
    let arms = runs.iter().filter(|(side, _)| *side == Side::Arm).count();
    let bases = runs.len() - arms;
    if arms < RUNS_MIN || bases < RUNS_MIN || runs.iter().any(|(_, value)| !value.is_finite()) {
        return None;
    }
    let weight = |side: Side| match side {
        Side::Arm => 1.0 / arms as f64,
        Side::Base => -1.0 / bases as f64,
    };
    let estimate: f64 = runs.iter().map(|&(side, value)| weight(side) * value).sum();
    let (walk, line) = (walk(runs, estimate, weight), line(runs, is_arm));
    let mut shift = Shift { estimate, low: estimate, high: estimate, p: 0.0 };
    for fit in [walk, line] {
        let half = critical(LEVEL, fit.freedom)? * fit.error;
        shift.low = shift.low.min(fit.estimate - half - known_to);
        shift.high = shift.high.max(fit.estimate + half + known_to);
        shift.p = shift.p.max(fit.p(known_to));
    }
    Some(shift)
}

/// A difference as one model sees it.
struct Fit {
    estimate: f64,
    /// Standard error.
    error: f64,
    freedom: usize,
}

impl Fit {
    fn p(&self, known_to: f64) -> f64 {
        let beyond = self.estimate.abs() - known_to;
        if beyond <= ROUNDING {
            return 1.0;
        }
        two_sided_p(beyond / self.error.max(f64::MIN_POSITIVE), self.freedom)
    }
}

/// The difference of the means, were all values on one random walk.
fn walk(runs: &[(Side, f64)], estimate: f64, weight: impl Fn(Side) -> f64) -> Fit {
    let steps = runs.windows(2).map(|pair| {
        let ((before, from), (after, to)) = (pair[0], pair[1]);
        let change = match (before, after) {
            (Side::Base, Side::Arm) => estimate,
            (Side::Arm, Side::Base) => -estimate,
            _ => 0.0,
        };
        to - from - change
    });
    let freedom = runs.len() - 2;
    let variance = steps.map(|step| step * step).sum::<f64>() / freedom as f64;
    // A step moves all runs after it: it enters the difference with the sum of their weights.
    let (mut behind, mut sum) = (0.0, 0.0);
    for &(side, _) in runs[1..].iter().rev() {
        behind += weight(side);
        sum += behind * behind;
    }
    Fit { estimate, error: (variance * sum).sqrt(), freedom }
}

/// The difference beside a straight drift, by least squares.
fn line(runs: &[(Side, f64)], is_arm: impl Fn(Side) -> f64) -> Fit {
    let n = runs.len() as f64;
    let middle = (n - 1.0) / 2.0;
    let places = || (0..runs.len()).map(|place| place as f64 - middle);
    let squares: f64 = places().map(|place| place * place).sum();
    let mean_of = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / n;
    // What is left of a column when its mean and its slope are taken off.
    let rest = |column: Vec<f64>| -> Vec<f64> {
        let mean = mean_of(&mut column.iter().copied());
        let slope = places().zip(&column).map(|(place, v)| place * v).sum::<f64>() / squares;
        places().zip(&column).map(|(place, v)| v - mean - slope * place).collect()
    };
    let sides = rest(runs.iter().map(|&(side, _)| is_arm(side)).collect());
    let values = rest(runs.iter().map(|&(_, value)| value).collect());
    let spread: f64 = sides.iter().map(|side| side * side).sum();
    let estimate = sides.iter().zip(&values).map(|(side, v)| side * v).sum::<f64>() / spread;
    let left = sides.iter().zip(&values).map(|(side, value)| (value - estimate * side).powi(2));
    let freedom = runs.len() - 3;
    let variance = left.sum::<f64>() / freedom as f64;
    Fit { estimate, error: (variance / spread).sqrt(), freedom }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_turns(values: &[f64]) -> Vec<(Side, f64)> {
        let sides = [Side::Base, Side::Arm].into_iter().cycle();
        sides.zip(values.iter().copied()).collect()
    }

    // By hand: base 1, 2, 4 and arm 3, 5, 5 in turns; means 7/3 and 13/3, difference 2. Steps 2, -1, 3, -1, 1 less
    // +2, -2, +2, -2, +2 are 0, 1, 1, 1, -1: variance 4/4 = 1. Weights behind each step, from the end: 1/3, 0, 1/3, 0,
    // 1/3: sum of squares 1/3, error 0.57735, t 3.4641 at 4 degrees of freedom: p = 0.02572, half-width 2.77645 x
    // 0.57735.
    #[test]
    fn a_walk_agrees_with_a_calculation_by_hand() {
        let runs = in_turns(&[1.0, 3.0, 2.0, 5.0, 4.0, 5.0]);
        let weight = |side| if side == Side::Arm { 1.0 / 3.0 } else { -1.0 / 3.0 };
        let fit = walk(&runs, 2.0, weight);
        assert_eq!(fit.freedom, 4);
        assert!((fit.error - 0.577_350).abs() < 1e-6, "{}", fit.error);
        assert!((fit.p(0.0) - 0.025_72).abs() < 1e-4, "{}", fit.p(0.0));
    }

    #[test]
    fn a_straight_drift_is_no_difference_in_any_order() {
        for sides in ["bbbaaa", "bababa", "abbaab", "bbbbbbbbbbaaaaaaaaaa"] {
            let runs: Vec<(Side, f64)> = (0u32..)
                .zip(sides.bytes())
                .map(|(place, side)| {
                    let wobble = f64::from(place * 7 % 5) * 1e-4;
                    let side = if side == b'a' { Side::Arm } else { Side::Base };
                    (side, 0.05 * f64::from(place) + wobble)
                })
                .collect();
            let found = shift(&runs, 0.0).expect("enough runs");
            assert!(found.p > 0.05 && found.low < 0.0 && found.high > 0.0, "{sides}: {found:?}");
        }
    }

    #[test]
    fn a_clear_difference_is_found_best_where_the_sides_took_turns() {
        let values = [1.00, 1.01, 0.99];
        let turns: Vec<f64> = values.iter().flat_map(|&value| [value, value + 0.4]).collect();
        let turns = shift(&in_turns(&turns), 0.0).expect("enough runs");
        let one_by_one: Vec<(Side, f64)> = values
            .iter()
            .map(|&value| (Side::Base, value))
            .chain(values.iter().map(|&value| (Side::Arm, value + 0.4)))
            .collect();
        let one_by_one = shift(&one_by_one, 0.0).expect("enough runs");
        assert!((turns.estimate - 0.4).abs() < 1e-12 && (one_by_one.estimate - 0.4).abs() < 1e-12);
        assert!(turns.p < 1e-3 && turns.p < one_by_one.p, "{turns:?} {one_by_one:?}");
        assert!(turns.low > 0.35 && one_by_one.low > 0.2, "{turns:?} {one_by_one:?}");
    }

    #[test]
    fn what_a_histogram_cannot_tell_apart_is_no_difference() {
        let runs = in_turns(&[1.0, 1.03, 1.0, 1.03, 1.0, 1.03]);
        assert!(shift(&runs, 0.0).is_some_and(|found| found.p < 1e-6));
        let found = shift(&runs, 0.031).expect("enough runs");
        assert!(found.p == 1.0 && found.low < 0.0, "{found:?}");
    }

    #[test]
    fn equal_values_do_not_differ_and_too_few_say_nothing() {
        let equal = shift(&in_turns(&[0.1; 6]), 0.0).expect("enough runs");
        assert!(equal.p == 1.0 && equal.high.abs() < 1e-12, "{equal:?}");
        assert_eq!(shift(&in_turns(&[1.0, 2.0, 1.0, 2.0, 1.0]), 0.0), None);
        assert_eq!(shift(&in_turns(&[1.0, 2.0, 1.0, f64::NAN, 1.0, 2.0]), 0.0), None);
        assert_eq!(shift(&[], 0.0), None);
    }
}
