//! The judge on trial: races on a simulated machine whose truth is known (protocol P15).
//!
//! Every figure here counts whole races: how often an A/A pair is called different, how often the
//! interval holds the true ratio, how often a real 5 % is found. Seeds are fixed, so a failure is
//! a change of the statistics and never bad luck; bounds are the protocol's.

#![expect(clippy::print_stdout, reason = "`--nocapture` shows the measured shares")]

use laneway_stats::simulator::{Episode, Machine};
use laneway_stats::{BlockOrder, Bootstrap, Comparison, Rule, Step, StopRule, Verdict};

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

/// A race of the base, the base again (A/A), and an arm that is truly `ratio` times the base: each of
/// these arms (1 and 2) against the base.
fn race_of<const N: usize>(
    machine: &Machine,
    ratio: f64,
    seed: u64,
    arms: [usize; N],
) -> [Comparison; N] {
    let order = BlockOrder::new(3, BLOCKS, seed).expect("inside the limits");
    let values = machine.race(&order, &[1.0, 1.0, ratio], seed ^ 0x5eed);
    let bootstrap = Bootstrap::new(RESAMPLES, seed).expect("inside the limits");
    arms.map(|arm| {
        Comparison::new(&values[0], &values[arm], Rule::RATE, bootstrap).expect("paired")
    })
}

/// Both arms.
fn race(machine: &Machine, ratio: f64, seed: u64) -> (Comparison, Comparison) {
    race_of(machine, ratio, seed, [1, 2]).into()
}

/// The share of races in which something happens.
fn share(races: u64, happens: impl FnMut(u64) -> bool) -> f64 {
    (0..races).map(happens).filter(|&happened| happened).count() as f64 / races as f64
}

/// Runs equal arms until the stop rule is satisfied; the blocks run, the A/A pair and the arm.
fn race_until_settled(machine: &Machine, rule: Rule, seed: u64) -> (usize, Comparison, Comparison) {
    let stop = StopRule::FULL;
    let order = BlockOrder::new(3, stop.blocks_max(), seed).expect("inside the limits");
    let values = machine.race(&order, &[1.0, 1.0, 1.0], seed ^ 0x5eed);
    let bootstrap = Bootstrap::new(RESAMPLES, seed).expect("inside the limits");
    let mut blocks = stop.blocks_min();
    loop {
        let compare = |arm: usize| {
            let (base, arm) = (&values[0][..blocks], &values[arm][..blocks]);
            Comparison::new(base, arm, rule, bootstrap).expect("paired")
        };
        let (noise, arm) = (compare(1), compare(2));
        match stop.step(blocks, [&noise, &arm]) {
            Step::Continue => blocks += 1,
            Step::Settled | Step::Exhausted => return (blocks, noise, arm),
        }
    }
}

#[test]
fn stopping_when_precise_keeps_a_a_verdicts_and_coverage_honest() {
    // Noisy enough that races end anywhere between the fewest and the most blocks, then so noisy
    // that none settles.
    for noise in [0.03, 0.1] {
        let machine = Machine { noise, memory: 0.5, ..Machine::QUIET };
        let (mut wrong, mut covered, mut blocks_run) = (0, 0, 0);
        let races = 600;
        for seed in 0..races {
            let (blocks, floor, arm) = race_until_settled(&machine, Rule::RATE, seed);
            let verdicts = [floor.judge(None).verdict, arm.judge(Some(&floor)).verdict];
            let different = |verdict: &Verdict| matches!(verdict, Verdict::Better | Verdict::Worse);
            wrong += u64::from(verdicts.iter().any(different));
            let interval = arm.interval.expect("ten blocks");
            covered += u64::from((interval.lower..=interval.upper).contains(&1.0));
            blocks_run += blocks;
        }
        let of_races = |count: u64| count as f64 / races as f64;
        println!(
            "noise {noise}: {:.2} % false, {:.1} % covered, {:.1} blocks",
            of_races(wrong) * 100.0,
            of_races(covered) * 100.0,
            blocks_run as f64 / races as f64,
        );
        assert!(of_races(wrong) <= 0.05, "noise {noise}: {wrong}");
        assert!(of_races(covered) >= 0.93, "noise {noise}: {covered}");
    }
}

#[test]
fn equal_arms_are_called_the_same_when_half_the_threshold_is_asked_for() {
    let machine = Machine { memory: 0.5, ..Machine::QUIET };
    let rule = Rule { half_width_target: 0.01, ..Rule::RATE };
    let same = share(RACES / 3, |seed| {
        let (_, noise, arm) = race_until_settled(&machine, rule, seed);
        [noise.judge(None), arm.judge(Some(&noise))].iter().all(|j| j.verdict == Verdict::Same)
    });
    println!("equal arms: {:.1} % same", same * 100.0);
    assert!(same >= 0.85, "{same}");
}

#[test]
fn six_blocks_suffice_against_false_verdicts_on_a_noisy_machine() {
    let machine = Machine { noise: 0.1, ..Machine::QUIET };
    let wrong = share(RACES, |seed| {
        let order = BlockOrder::new(2, 6, seed).expect("inside the limits");
        let values = machine.race(&order, &[1.0, 1.0], seed);
        let bootstrap = Bootstrap::new(RESAMPLES, seed).expect("inside the limits");
        let noise = Comparison::new(&values[0], &values[1], Rule::COST, bootstrap).expect("paired");
        matches!(noise.judge(None).verdict, Verdict::Better | Verdict::Worse)
    });
    println!("six blocks: {:.2} % false verdicts", wrong * 100.0);
    assert!(wrong <= 0.05, "{wrong}");
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
        for (ratio, seeds) in [(0.9, 10_000), (1.0, 20_000), (1.1, 30_000)] {
            let covered = share(RACES, |seed| {
                let [arm] = race_of(machine, ratio, seeds + seed, [2]);
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
fn a_pair_of_blocks_cancels_a_steady_drift() {
    let machine = Machine { drift: -0.03, noise: 0.0, ..Machine::QUIET };
    let (_, arm) = race(&machine, 1.0, 3);
    for pair in arm.effects.chunks(2) {
        assert!((pair[0].value - 1.0).abs() > 0.02, "the drift is felt: {pair:?}");
        assert!((pair[0].value * pair[1].value - 1.0).abs() < 1e-9, "and cancels: {pair:?}");
    }
}
