//! A machine whose truth is known, which makes runs one after the other and measures many quantities in each.
//! Everything is a function of its seed.
//!
//! What disturbs a run disturbs its quantities together, to a part that is drawn; the machine drifts steadily and
//! walks; some runs are hit by something else. So the quantities of a table are no independent tests, and neighbouring
//! runs are more alike than distant ones.

use laneway_random::Random;
use laneway_stats::Side;

/// How a simulated machine disturbs runs. All on the log scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RunMachine {
    /// Standard deviation from run to run.
    pub(crate) between: f64,
    /// Part of any deviation, as a variance, that all quantities of a run share, 0 to 1.
    pub(crate) shared: f64,
    /// Steady change from run to run.
    pub(crate) drift: f64,
    /// Standard deviation of the step that a walk takes from run to run.
    pub(crate) walk: f64,
    /// Probability that a run is hit, and by how much that raises it.
    pub(crate) hit: (f64, f64),
}

/// In which order the runs of two sides are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunOrder {
    /// All runs of the base, then those of the arm.
    OneByOne,
    /// The sides take turns.
    InTurns,
    /// By lot.
    Drawn,
}

impl RunMachine {
    /// A random machine: from one that hardly deviates to one that is unfit for measurements.
    pub(crate) fn drawn(seed: u64) -> Self {
        let mut random = Random::seeded(seed);
        let mut between = |low: f64, high: f64| low * (high / low).powf(random.unit());
        let (spread, drift, walk) =
            (between(0.002, 0.1), between(0.0005, 0.05), between(0.001, 0.05));
        let mut part = |of: f64| if random.unit() < of { 1.0 } else { 0.0 };
        Self {
            between: spread,
            drift: drift * (part(0.4) - part(0.4)),
            walk: walk * part(0.5),
            hit: (0.15 * part(0.3), 0.5),
            shared: random.unit(),
        }
    }

    /// Runs of equal sides: a row per quantity, each in the order of the runs.
    pub(crate) fn equal_sides(
        &self,
        order: RunOrder,
        runs: [usize; 2],
        rows: usize,
        seed: u64,
    ) -> Vec<Vec<(Side, f64)>> {
        let mut random = Random::seeded(seed);
        let sides = sides(order, runs, &mut random);
        let mut walks = vec![0.0; rows];
        let (own, common) = ((1.0 - self.shared).sqrt(), self.shared.sqrt());
        let mut table = vec![Vec::with_capacity(sides.len()); rows];
        for (place, side) in (0u32..).zip(sides) {
            let (deviation, step) = (random.normal(), random.normal());
            let hit = if random.unit() < self.hit.0 { self.hit.1 } else { 0.0 };
            for (row, walked) in table.iter_mut().zip(&mut walks) {
                *walked += self.walk * (common * step + own * random.normal());
                let run = self.between * (common * deviation + own * random.normal());
                row.push((side, self.drift * f64::from(place) + *walked + run + hit));
            }
        }
        table
    }
}

fn sides(order: RunOrder, [bases, arms]: [usize; 2], random: &mut Random) -> Vec<Side> {
    let mut sides = vec![Side::Base; bases];
    sides.resize(bases + arms, Side::Arm);
    match order {
        RunOrder::OneByOne => {}
        RunOrder::Drawn => random.shuffle(&mut sides),
        RunOrder::InTurns => {
            let (mut base, mut arm) = (0, 0);
            for side in &mut sides {
                // The task that lags behind its share is next.
                if base * arms <= arm * bases && base < bases {
                    *side = Side::Base;
                    base += 1;
                } else {
                    *side = Side::Arm;
                    arm += 1;
                }
            }
        }
    }
    sides
}

mod tests {
    use super::*;

    #[test]
    fn the_sides_take_turns_and_none_is_left_over() {
        let mut random = Random::seeded(1);
        let word = |sides: Vec<Side>| -> String {
            sides.iter().map(|side| if *side == Side::Base { 'b' } else { 'a' }).collect()
        };
        assert_eq!(word(sides(RunOrder::InTurns, [3, 3], &mut random)), "bababa");
        assert_eq!(word(sides(RunOrder::InTurns, [2, 4], &mut random)), "baabaa");
        assert_eq!(word(sides(RunOrder::OneByOne, [2, 3], &mut random)), "bbaaa");
        let drawn = word(sides(RunOrder::Drawn, [4, 3], &mut random));
        assert_eq!(drawn.matches('b').count(), 4, "{drawn}");
    }

    #[test]
    fn a_still_machine_drifts_and_does_nothing_else() {
        let still =
            RunMachine { between: 0.0, shared: 0.5, drift: 0.1, walk: 0.0, hit: (0.0, 0.0) };
        let table = still.equal_sides(RunOrder::InTurns, [2, 2], 2, 7);
        for row in table {
            for (place, (_, value)) in (0u32..).zip(row) {
                assert!((value - 0.1 * f64::from(place)).abs() < 1e-12);
            }
        }
    }
}
