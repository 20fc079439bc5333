//! The judge on trial: races on a simulated machine whose truth is known (protocol P15).
//!
//! Every figure here counts whole races: how often an A/A pair is called different, how often the
//! interval holds the true ratio, how often a real 5 % is found. Seeds are fixed, so a failure is
//! a change of the statistics and never bad luck; bounds are the protocol's.

use laneway_stats::simulator::{Episode, Machine};
use laneway_stats::{BlockOrder, Bootstrap, Comparison, Rule, Verdict};

const RACES: u64 = 1_500;
const BLOCKS: usize = 20;
const RESAMPLES: u32 = 600;

/// The machines: each disturbance alone, then all together.
const MACHINES: [(&str, Machine); 6] = [
    ("independent noise", Machine::QUIET),
    ("AR(1) noise", Machine { memory: 0.7, ..Machine::QUIET }),
    ("drift", Machine { drift: -0.002, ..Machine::QUIET }),
    ("two modes", Machine { mode: Episode { share: 0.3, factor: 0.95 }, ..Machine::QUIET }),
    ("rare stalls", Machine { stall: Episode { share: 0.04, factor: 0.5 }, ..Machine::QUIET }),
    (
        "all together",
        Machine {
            noise: 0.015,
            memory: 0.5,
            drift: -0.001,
            mode: Episode { share: 0.2, factor: 0.97 },
            stall: Episode { share: 0.02, factor: 0.6 },
        },
    ),
];

/// A race of the base, the base again (A/A), and an arm that is truly `ratio` times the base.
fn race(machine: &Machine, ratio: f64, seed: u64) -> (Comparison, Comparison) {
    let order = BlockOrder::new(3, BLOCKS, seed).expect("inside the limits");
    let values = machine.race(&order, &[1.0, 1.0, ratio], seed ^ 0x5eed);
    let bootstrap = Bootstrap::new(RESAMPLES, seed).expect("inside the limits");
    let compare = |arm: usize| {
        Comparison::new(&values[0], &values[arm], Rule::RATE, bootstrap).expect("paired")
    };
    (compare(1), compare(2))
}

/// The share of races in which something happens.
fn share(races: u64, happens: impl FnMut(u64) -> bool) -> f64 {
    (0..races).map(happens).filter(|&happened| happened).count() as f64 / races as f64
}

#[test]
fn an_a_a_pair_is_rarely_called_different() {
    for (name, machine) in &MACHINES {
        let wrong = share(RACES, |seed| {
            let (noise, arm) = race(machine, 1.0, seed);
            [noise.judge(None), arm.judge(Some(&noise))]
                .iter()
                .any(|judged| matches!(judged.verdict, Verdict::Better | Verdict::Worse))
        });
        println!("{name}: {:.2} % false verdicts", wrong * 100.0);
        assert!(wrong <= 0.05, "{name}: {wrong}");
    }
}

#[test]
fn the_interval_covers_the_true_ratio() {
    for (name, machine) in &MACHINES {
        for ratio in [0.9, 1.0, 1.1] {
            let covered = share(RACES, |seed| {
                let (_, arm) = race(machine, ratio, seed);
                let interval = arm.interval.expect("twenty blocks");
                (interval.lower..=interval.upper).contains(&ratio)
            });
            println!("{name}, ratio {ratio}: {:.1} % covered", covered * 100.0);
            assert!(covered >= 0.93, "{name}, ratio {ratio}: {covered}");
        }
    }
}

#[test]
fn a_true_five_percent_is_found_under_moderate_noise() {
    let moderate = [("independent noise", Machine::QUIET), MACHINES[1], MACHINES[5]];
    for (name, machine) in &moderate {
        for (ratio, expected) in [(1.05, Verdict::Better), (1.0 / 1.05, Verdict::Worse)] {
            let found = share(RACES, |seed| {
                let (noise, arm) = race(machine, ratio, seed);
                arm.judge(Some(&noise)).verdict == expected
            });
            println!("{name}, ratio {ratio:.3}: {:.1} % found", found * 100.0);
            assert!(found >= 0.90, "{name}, ratio {ratio}: {found}");
        }
    }
}

#[test]
fn a_planted_twenty_percent_is_found_on_every_machine() {
    for (name, machine) in &MACHINES {
        let found = share(RACES / 5, |seed| {
            let (noise, arm) = race(machine, 0.8, seed);
            arm.judge(Some(&noise)).verdict == Verdict::Worse
        });
        println!("{name}: {:.1} % found", found * 100.0);
        assert!(found >= 0.99, "{name}: {found}");
    }
}

#[test]
fn paired_blocks_cancel_a_drift_that_fools_a_fixed_order() {
    let machine = Machine { drift: -0.03, noise: 0.002, ..Machine::QUIET };
    let (_, arm) = race(&machine, 1.0, 3);
    let interval = arm.interval.expect("twenty blocks");
    assert!(interval.lower <= 1.0 && interval.upper >= 1.0, "{interval:?}");
}
