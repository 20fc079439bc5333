//! The judge of pairs on trial: races on a simulated machine whose truth is known, looked at after
//! every generation and stopped as soon as everything is decided.
//!
//! Every figure counts whole races. Seeds are fixed, so a failure is a change of the statistics and
//! never bad luck; bounds are the protocol's, and a failure names machine and seed. The ignored tests
//! are the long version: `cargo test --release -p laneway-stats -- --ignored --nocapture`.

#![expect(clippy::print_stdout, reason = "`--nocapture` shows the measured shares")]

mod pair_machine;

use laneway_stats::pairs::{Answer, Comparison, Limit, Pair, information, next_shares};
use laneway_stats::{Family, Look, Looks, Rule, Spending, Verdict};
use pair_machine::{Episode, NoiseBurst, PairMachine, Plan};

/// A race of a minute, as the engine plans it.
const MINUTE: Plan = Plan { generations: 24, pairs: 8 };
/// Precise enough to be reached in some races and not in others.
const RULE: Rule = Rule { half_width_target: 0.04, ..Rule::COST };

const BURSTS: NoiseBurst = NoiseBurst { begins: 0.03, segments: 4.0, factor: 1.5, loses: 0.6 };

const TWO_KINDS: Episode = Episode { share: 0.2, factor: 1.1 };

/// The machines: as measured, each disturbance alone, then all together.
const MACHINES: [(&str, PairMachine); 9] = [
    ("as measured", PairMachine::MEASURED),
    ("normal noise", PairMachine { tail: 0, ..PairMachine::MEASURED }),
    ("AR(1) noise", PairMachine { memory: 0.8, ..PairMachine::MEASURED }),
    ("drift", PairMachine { drift: -0.001, ..PairMachine::MEASURED }),
    ("bursts that lose segments", PairMachine { burst: BURSTS, ..PairMachine::MEASURED }),
    ("a third of the segments lost", PairMachine { loses: 0.2, ..PairMachine::MEASURED }),
    ("generations differ widely", PairMachine { generation: 0.1, ..PairMachine::MEASURED }),
    ("processes of two kinds", PairMachine { mode: TWO_KINDS, ..PairMachine::MEASURED }),
    (
        "all together",
        PairMachine {
            tail: 3,
            mode: TWO_KINDS,
            memory: 0.6,
            drift: 0.0005,
            generation: 0.05,
            burst: BURSTS,
            loses: 0.05,
            ..PairMachine::MEASURED
        },
    ),
];

/// The looks after every generation from the third on, if no pair is lost. The same for all races
/// of a plan: what is lost changes them by too little to matter.
fn looks(plan: Plan, alpha: f64, spending: Spending) -> Vec<Look> {
    let mut looks = Looks::new(spending);
    (3..=plan.generations)
        .map(|gone| {
            let share = gone as f64 / plan.generations as f64;
            looks.look(share, gone as f64, alpha).expect("a share")
        })
        .collect()
}

/// Arm 0 is the base again (the A/A pair), the others are judged by its noise floor.
fn noise_of(found: &[Comparison], arm: usize) -> Option<&Comparison> {
    (arm > 0).then_some(&found[0])
}

/// Runs a race until everything is decided or its time is over: the comparisons then, and the
/// generations run.
fn race(
    machine: &PairMachine,
    plan: Plan,
    truth: &[f64],
    (rule, looks): (Rule, &[Look]),
    seed: u64,
) -> (Vec<Comparison>, usize) {
    let pairs = machine.race(plan, truth, seed);
    for look in looks {
        let gone = plan.generations - looks.len() + look.number;
        let compare = |pairs: &Vec<Pair>| {
            Comparison::of_pairs(&pairs[..gone * plan.pairs], rule, *look).expect("within limits")
        };
        let found: Vec<Comparison> = pairs.iter().map(compare).collect();
        let decided =
            found.iter().enumerate().all(|(arm, one)| one.is_decided(noise_of(&found, arm)));
        if decided || gone == plan.generations {
            return (found, gone);
        }
    }
    unreachable!("the last look ends the race")
}

/// The share of races in which something happens.
fn share(races: u64, happens: impl FnMut(u64) -> bool) -> f64 {
    (0..races).map(happens).filter(|&happened| happened).count() as f64 / races as f64
}

fn covers(found: &Comparison, truth: f64) -> bool {
    let interval = found.interval.expect("three generations");
    (interval.lower..=interval.upper).contains(&truth)
}

/// Whether anything is claimed of arms that are truly equal: verdicts, and goals at "equal".
fn claims_falsely(found: &[Comparison]) -> bool {
    found.iter().enumerate().any(|(arm, one)| {
        let noise = noise_of(found, arm);
        let verdict = one.judge(noise).verdict;
        let goals = [Limit::AtMost(1.0), Limit::AtLeast(1.0)].map(|limit| one.answer(limit, noise));
        matches!(verdict, Verdict::Better | Verdict::Worse)
            || goals.iter().any(|goal| goal.answer != Answer::Undecided)
    })
}

/// Coverage, bias and false claims of a machine, over races that end as soon as they are decided.
fn prove(name: &str, machine: &PairMachine, races: u64) {
    let all = looks(MINUTE, 0.05, Spending::default());
    for (truth, seeds) in [(1.0, 0), (0.9, 1 << 20), (1.5, 2 << 20)] {
        let (mut off, mut gone) = (0.0, 0);
        let covered = share(races, |seed| {
            let (found, generations) = race(machine, MINUTE, &[truth], (RULE, &all), seeds + seed);
            off += (found[0].estimate.expect("pairs") / truth).ln() / races as f64;
            gone += generations;
            covers(&found[0], truth)
        });
        println!(
            "{name}, ratio {truth}: {:.1} % covered, {:+.2} % off, {:.1} generations",
            covered * 100.0,
            off * 100.0,
            gone as f64 / races as f64
        );
        assert!(covered >= 0.93, "{name}, ratio {truth}: {covered}");
        assert!(off.abs() < 0.01, "{name}, ratio {truth}: {off}");
    }
}

/// The share of races with equal arms that claim anything: the A/A pair and `arms` more.
fn false_claims(machine: &PairMachine, arms: usize, alpha: f64, races: u64) -> f64 {
    let family = Family::new(alpha, arms + 1).expect("a family");
    let all = looks(MINUTE, family.alpha_each(0), Spending::default());
    let truth = vec![1.0; arms + 1];
    share(races, |seed| {
        claims_falsely(&race(machine, MINUTE, &truth, (RULE, &all), (3 << 20) + seed).0)
    })
}

fn no_claim_of_equal_arms(races: u64) {
    for (name, machine) in &MACHINES {
        let wrong = false_claims(machine, 1, 0.05, races);
        println!("{name}: {:.2} % false claims", wrong * 100.0);
        assert!(wrong <= 0.05, "{name}: {wrong}");
    }
    for (arms, alpha) in [(0, 0.05), (4, 0.05), (1, 0.02)] {
        let wrong = false_claims(&PairMachine::MEASURED, arms, alpha, races);
        println!("{arms} arms at {alpha}: {:.2} % false claims", wrong * 100.0);
        // Three standard errors above the rate.
        let most = alpha + 3.0 * (alpha * (1.0 - alpha) / races as f64).sqrt();
        assert!(wrong <= most, "{arms} arms at {alpha}: {wrong}");
    }
}

/// A draw from 0 to 1, for parameters.
fn draw(seed: u64, which: u64) -> f64 {
    let mixed = (seed ^ which << 40).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    ((mixed ^ (mixed >> 32)) >> 11) as f64 / (1u64 << 53) as f64
}

/// A machine, a plan and a truth out of a seed.
fn any_race(seed: u64) -> (PairMachine, Plan, f64) {
    let between = |which, low: f64, high: f64| low + (high - low) * draw(seed, which);
    let machine = PairMachine {
        noise: between(1, 0.005, 0.2),
        tail: [0, 3, 4, 8][(draw(seed, 2) * 4.0) as usize],
        memory: between(3, 0.0, 0.95),
        drift: between(4, -0.002, 0.002),
        mode: Episode { share: between(14, 0.0, 0.5), factor: between(15, 0.8, 1.3) },
        generation: between(5, 0.0, 0.1),
        burst: NoiseBurst {
            begins: between(6, 0.0, 0.06),
            segments: between(7, 1.0, 8.0),
            factor: between(8, 0.7, 3.0),
            loses: between(9, 0.3, 1.0),
        },
        loses: between(10, 0.0, 0.1),
    };
    let generations = between(11, 6.0, 30.0) as usize;
    let plan = Plan { generations, pairs: between(12, 4.0, 14.0) as usize };
    (machine, plan, between(13, -0.4, 0.4).exp())
}

/// Coverage over machines, plans and truths drawn at random, a few races of each.
fn any_machine_covers(machines: u64, races: u64) {
    let mut covered = 0;
    for machine_seed in 0..machines {
        let (machine, plan, truth) = any_race(machine_seed);
        let all = looks(plan, 0.05, Spending::default());
        let hits = (0..races)
            .filter(|seed| {
                let seed = machine_seed << 20 | seed;
                let (found, _) = race(&machine, plan, &[truth], (RULE, &all), seed);
                // Without an interval nothing is claimed.
                found[0].interval.is_none() || covers(&found[0], truth)
            })
            .count() as u64;
        let too_few = (0.95 * races as f64 - 5.0 * (0.0475 * races as f64).sqrt()) as u64;
        assert!(
            hits >= too_few,
            "machine {machine_seed}: {hits} of {races}; {machine:?} {plan:?} {truth}"
        );
        covered += hits;
    }
    let covered = covered as f64 / (machines * races) as f64;
    println!("any machine: {:.1} % covered", covered * 100.0);
    assert!(covered >= 0.93, "{covered}");
}

#[test]
fn intervals_cover_on_every_machine_however_early_the_race_stops() {
    for (name, machine) in &MACHINES {
        prove(name, machine, 150);
    }
}

#[test]
fn equal_arms_are_rarely_called_different_goals_included() {
    no_claim_of_equal_arms(200);
}

#[test]
fn intervals_cover_on_machines_drawn_at_random() {
    any_machine_covers(50, 20);
}

/// The share of races in which the interval excludes "equal".
fn sees(plan: Plan, ratio: f64, alpha: f64, races: u64) -> f64 {
    let all = looks(plan, alpha, Spending::default());
    share(races, |seed| {
        let (found, _) =
            race(&PairMachine::MEASURED, plan, &[ratio], (Rule::COST, &all), (4 << 20) + seed);
        !covers(&found[0], 1.0)
    })
}

#[test]
fn five_percent_are_seen_in_nine_of_ten_races_of_a_minute() {
    for ratio in [1.05, 1.0 / 1.05] {
        let seen = sees(MINUTE, ratio, 0.05, 400);
        println!("ratio {ratio:.3}: {:.1} % seen", seen * 100.0);
        assert!(seen >= 0.9, "{ratio}: {seen}");
    }
}

#[test]
fn a_large_difference_ends_the_race_early() {
    let all = looks(MINUTE, 0.01, Spending::default());
    let mut gone = 0;
    let found = share(100, |seed| {
        let (found, generations) = race(&PairMachine::MEASURED, MINUTE, &[3.9], (RULE, &all), seed);
        gone += generations;
        found[0].judge(None).verdict == Verdict::Worse
    });
    println!(
        "3.9 times: {:.1} % found, after {:.1} generations",
        found * 100.0,
        gone as f64 / 100.0
    );
    assert!(found == 1.0 && gone <= 1_200, "{found} {gone}");
}

#[test]
fn looking_at_half_a_generation_keeps_the_rate() {
    let plan = Plan { generations: 16, pairs: 6 };
    let pairs_in_all = plan.generations * plan.pairs;
    let moments: Vec<usize> = (3 * plan.pairs..=pairs_in_all).step_by(2).collect();
    let whole = PairMachine::MEASURED.race(plan, &[1.0], 0);
    let mut looks = Looks::new(Spending::default());
    let all: Vec<Look> = moments
        .iter()
        .map(|&pairs| {
            let share = pairs as f64 / pairs_in_all as f64;
            looks.look(share, information(&whole[0][..pairs]), 0.05).expect("a look")
        })
        .collect();
    let wrong = share(400, |seed| {
        let pairs = PairMachine::MEASURED.race(plan, &[1.0], (7 << 20) + seed);
        moments.iter().zip(&all).any(|(&until, look)| {
            let found = Comparison::of_pairs(&pairs[0][..until], RULE, *look).expect("limits");
            found.interval.is_some() && !covers(&found, 1.0)
        })
    });
    println!("{} looks: {:.2} % ever exclude the truth", all.len(), wrong * 100.0);
    // Two standard errors above the rate: this counts every look, not the one that stops.
    assert!(wrong <= 0.05 + 2.0 * 0.0109, "{wrong}");
}

/// A race as the engine runs it: each comparison has its own looks, found differences hand their
/// error rate on, and segments go where doubt is left. The comparisons at the end.
fn adaptive_race(
    machine: &PairMachine,
    truth: &[f64],
    rule: Rule,
    seed: u64,
) -> (Vec<Comparison>, Vec<usize>) {
    let family = Family::new(0.05, truth.len()).expect("a family");
    let plenty = machine.race(Plan { generations: 24, pairs: 24 }, truth, seed);
    let mut looks = vec![Looks::new(Spending::default()); truth.len()];
    let mut pairs: Vec<Vec<Pair>> = vec![Vec::new(); truth.len()];
    let mut found: Vec<Comparison> = Vec::new();
    let mut shares = vec![1.0 / truth.len() as f64; truth.len()];
    let mut differences = vec![false; truth.len()];
    for generation in 0..24 {
        for (arm, share) in shares.iter().enumerate() {
            let taken = (share * 8.0 * truth.len() as f64).round().min(24.0) as usize;
            pairs[arm].extend(&plenty[arm][generation * 24..generation * 24 + taken]);
        }
        let gone = (generation + 1) as f64 / 24.0;
        let alpha = family.alpha_each(differences.iter().filter(|found| **found).count());
        found = (0..truth.len())
            .map(|arm| {
                let news = information(&pairs[arm]).max(1e-9);
                let look = looks[arm].look(gone, news, alpha).expect("a look");
                Comparison::of_pairs(&pairs[arm], rule, look).expect("within limits")
            })
            .collect();
        let entries: Vec<_> =
            found.iter().enumerate().map(|(arm, one)| (one, noise_of(&found, arm))).collect();
        for (arm, (one, noise)) in entries.iter().enumerate() {
            differences[arm] |=
                matches!(one.judge(*noise).verdict, Verdict::Better | Verdict::Worse);
        }
        shares = next_shares(&entries);
        if shares.iter().all(|share| *share == 0.0) {
            break;
        }
    }
    let offered = pairs.iter().map(Vec::len).collect();
    (found, offered)
}

#[test]
fn moving_segments_to_where_doubt_is_keeps_the_family_honest() {
    let machine = MACHINES[8].1;
    let truth = [1.0, 1.0, 1.0, 1.6];
    let (mut found_it, mut pairs) = (0, [0, 0]);
    let races = 120;
    let wrong = share(races, |seed| {
        let (found, offered) = adaptive_race(&machine, &truth, RULE, (5 << 20) + seed);
        found_it += u64::from(found[3].judge(Some(&found[0])).verdict == Verdict::Worse);
        pairs = [pairs[0] + offered[1], pairs[1] + offered[3]];
        claims_falsely(&found[..3])
    });
    println!(
        "with one arm 1.6 times: {:.1} % false claims, {found_it} of {races} found, pairs {pairs:?}",
        wrong * 100.0
    );
    assert!(wrong <= 0.05, "{wrong}");
    assert!(found_it >= races * 9 / 10, "{found_it}");
    assert!(pairs[1] < pairs[0], "the decided arm needs fewer: {pairs:?}");
}

#[test]
#[ignore = "long: minutes, part of `make bench`"]
fn long_intervals_cover_on_every_machine() {
    for (name, machine) in &MACHINES {
        prove(name, machine, 10_000);
    }
    any_machine_covers(1_000, 50);
}

#[test]
#[ignore = "long: minutes, part of `make bench`"]
fn long_equal_arms_are_rarely_called_different() {
    no_claim_of_equal_arms(10_000);
}

#[test]
#[ignore = "prints the table that plans of races are made from"]
fn half_widths_to_be_expected() {
    for total in [120, 200, 320] {
        for generations in [8, 12, 16, 24, 30, 40] {
            let plan = Plan { generations, pairs: (total + generations / 2) / generations };
            let last = *looks(plan, 0.05, Spending::default()).last().expect("many looks");
            let width = |seed| {
                let pairs = PairMachine::MEASURED.race(plan, &[1.0], seed);
                let found = Comparison::of_pairs(&pairs[0], RULE, last).expect("within limits");
                found.half_width().expect("many generations") * 100.0
            };
            let mut widths: Vec<f64> = (0..500).map(width).collect();
            widths.sort_by(f64::total_cmp);
            println!(
                "{total} pairs in {generations} generations: {:.2} %, 9 of 10 below {:.2} %",
                widths[250], widths[450]
            );
        }
    }
}
