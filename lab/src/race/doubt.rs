//! Where the next segments of a race go: to the arms and loads of which least is known.
//!
//! Every cell, an arm at a load, has a share: of so many rounds it is visited in one. The cell in most doubt is visited
//! in each round, the others in proportion to the pairs that they want, and none in fewer than one of four: what was
//! decided stays under observation, and tails gather samples. The base is visited whenever an arm is, because a
//! pair needs both. Shares change between generations only; that this leaves the intervals valid is shown in
//! `stats/tests/pair_proof.rs`.

use super::analyse;
use crate::result::Finding;
use laneway_stats::pairs::{Comparison, next_shares};

/// Smallest share of the rounds in which a cell is visited.
const SHARE_MIN: f64 = 0.25;
/// Rounds at the beginning of a generation that visit every cell: each has its pairs, and warm-up is seen.
const WHOLE_ROUNDS: usize = 2;

/// The shares, and what of them is saved up.
pub(super) struct Doubt {
    loads: usize,
    /// By arm and load, `arm * loads + load`, from 0 to 1.
    share: Vec<f64>,
    saved: Vec<f64>,
}

impl Doubt {
    /// About everything.
    pub(super) fn new(arms: usize, loads: usize) -> Doubt {
        Doubt { loads, share: vec![1.0; arms * loads], saved: vec![0.0; arms * loads] }
    }

    /// Deals the rounds to come by what a look found: to a cell as to the metric that wants most pairs there.
    pub(super) fn learn(&mut self, findings: &[Finding]) {
        let awaited: Vec<&Finding> = analyse::awaited(findings).collect();
        let noise_of = |found: &Finding| -> Option<&Comparison> {
            let is_twin = |twin: &&&Finding| {
                (twin.arm, twin.load) == (1, found.load) && twin.metric == found.metric
            };
            awaited.iter().find(is_twin).filter(|_| found.arm > 1).map(|twin| &twin.comparison)
        };
        let entries: Vec<_> =
            awaited.iter().map(|found| (&found.comparison, noise_of(found))).collect();
        let dealt = next_shares(&entries);
        let most = dealt.iter().copied().fold(0.0, f64::max);
        self.share.fill(if most > 0.0 { SHARE_MIN } else { 1.0 });
        for (found, dealt) in awaited.iter().zip(dealt).filter(|_| most > 0.0) {
            let share = &mut self.share[found.arm * self.loads + found.load];
            *share = share.max(dealt / most);
        }
    }

    /// The arms that this round of a generation visits at a load, of those in `order`, and in that order.
    pub(super) fn visited(&mut self, round: usize, load: usize, order: &[usize]) -> Vec<usize> {
        let mut is_due = |&arm: &usize| {
            let cell = arm * self.loads + load;
            self.saved[cell] += self.share[cell];
            let is_due = self.saved[cell] >= 1.0;
            self.saved[cell] -= f64::from(u8::from(is_due));
            is_due
        };
        let due: Vec<usize> = order.iter().copied().filter(|arm| *arm > 0 && is_due(arm)).collect();
        if round < WHOLE_ROUNDS {
            return order.to_vec();
        }
        let is_visited = |arm: &usize| due.contains(arm) || (*arm == 0 && !due.is_empty());
        order.iter().copied().filter(is_visited).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report;

    /// Rounds of 100 in which each arm is visited at a load.
    fn visits(doubt: &mut Doubt, arms: usize, load: usize) -> Vec<usize> {
        let order: Vec<usize> = (0..arms).rev().collect();
        let mut visits = vec![0; arms];
        for round in WHOLE_ROUNDS..WHOLE_ROUNDS + 100 {
            doubt.visited(round, load, &order).into_iter().for_each(|arm| visits[arm] += 1);
        }
        visits
    }

    #[test]
    fn rounds_go_to_the_cell_that_wants_most_pairs() {
        let race = report::example();
        let [arms, loads] = [race.arms.len(), race.loads_pps.len()];
        let mut doubt = Doubt::new(arms, loads);
        doubt.learn(&race.findings);
        let is_open = |cell: usize| {
            let mut of = analyse::awaited(&race.findings);
            of.any(|f| f.arm * loads + f.load == cell && !f.is_decided)
        };
        let most = (0..arms * loads).max_by(|&a, &b| doubt.share[a].total_cmp(&doubt.share[b]));
        assert!(most.is_some_and(|cell| doubt.share[cell] == 1.0 && is_open(cell)));
        for (cell, &share) in doubt.share.iter().enumerate() {
            assert!((SHARE_MIN..=1.0).contains(&share), "{share}");
            assert!(is_open(cell) || share == SHARE_MIN, "cell {cell} is decided: {share}");
        }
    }

    #[test]
    fn until_a_look_every_round_visits_everything() {
        let mut doubt = Doubt::new(3, 2);
        assert_eq!(visits(&mut doubt, 3, 0), [100; 3]);
        assert_eq!(visits(&mut doubt, 3, 1), [100; 3]);
    }

    #[test]
    fn the_first_rounds_of_a_generation_are_whole() {
        let mut doubt = Doubt::new(3, 1);
        doubt.share = vec![0.25; 3];
        assert_eq!(doubt.visited(0, 0, &[2, 0, 1]), [2, 0, 1]);
    }

    #[test]
    fn the_base_is_visited_with_an_arm_and_never_alone() {
        let mut doubt = Doubt::new(3, 1);
        doubt.share = vec![0.25, 0.25, 0.5];
        let visits = visits(&mut doubt, 3, 0);
        assert_eq!(visits[1..], [25, 50]);
        assert!((50..=75).contains(&visits[0]), "{visits:?}");
        for round in 2..50 {
            assert_ne!(doubt.visited(round, 0, &[0, 1, 2]), [0]);
        }
    }
}
