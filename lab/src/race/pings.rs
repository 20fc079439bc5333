//! What a race of pings has beyond its loads: real pings and capacities, compared arm by arm with the
//! base generation by generation.

use super::analyse::{Judge, spread};
use super::searched::{Search, SearchEnd, capacity, carried, is_cut_short, resolution};
use crate::ping::PingTrial;
use crate::result::{CapacityRow, Finding, PingRow, PingSection};
use crate::round_trips::RoundTrips;
use crate::scenario::{PingPlan, Scenario};
use crate::trial::Trial;
use laneway_stats::pairs::{Comparison, Pair};
use laneway_stats::{Direction, Look, Rule};

/// The trials by arm and generation.
pub(super) struct ByGeneration<'a> {
    pub(super) trials: &'a [Trial],
    pub(super) generations: usize,
}

impl<'a> ByGeneration<'a> {
    fn of(&self, arm: usize) -> impl Iterator<Item = (usize, &'a Trial)> + use<'a> {
        let of_arm = self.trials.iter().filter(move |trial| trial.index == arm);
        of_arm.map(|trial| (trial.generation, trial))
    }

    /// A value per generation.
    fn values(&self, arm: usize, value: impl Fn(&Trial) -> Option<f64>) -> Vec<Option<f64>> {
        let mut values = vec![None; self.generations];
        for (generation, trial) in self.of(arm) {
            if let Some(place) = values.get_mut(generation) {
                *place = value(trial);
            }
        }
        values
    }

    /// What is compared, per generation.
    fn figures(&self, arm: usize, what: &Compared) -> Vec<Option<f64>> {
        match what.value {
            Value::Measured(value) => self.values(arm, value),
            Value::Searched(search) => {
                let is_cut_short = is_cut_short(self.trials, arm, search);
                self.values(arm, |trial| carried(search(trial)?, is_cut_short))
            }
        }
    }
}

/// One thing that is compared.
pub(super) struct Compared {
    pub(super) metric: &'static str,
    pub(super) unit: &'static str,
    pub(super) direction: Direction,
    /// In one trial.
    pub(super) value: Value,
}

/// Where a value of a trial comes from.
pub(super) enum Value {
    Measured(fn(&Trial) -> Option<f64>),
    /// It is known to the resolution of a search.
    Searched(Search),
}

const PINGS_LOADED: [Compared; 2] = [
    Compared {
        metric: "ping avg under load",
        unit: "ns",
        direction: Direction::LowerIsBetter,
        value: Value::Measured(|trial| trial.ping_loaded.as_ref()?.round_trips.figures().avg_ns),
    },
    Compared {
        metric: "ping p50 under load",
        unit: "ns",
        direction: Direction::LowerIsBetter,
        value: Value::Measured(|trial| {
            Some(trial.ping_loaded.as_ref()?.round_trips.figures().summary.p50_ns? as f64)
        }),
    },
];
const PINGS: [Compared; 2] = [
    Compared {
        metric: "ping avg",
        unit: "ns",
        direction: Direction::LowerIsBetter,
        value: Value::Measured(|trial| trial.ping.as_ref()?.round_trips.figures().avg_ns),
    },
    Compared {
        metric: "ping p50",
        unit: "ns",
        direction: Direction::LowerIsBetter,
        value: Value::Measured(|trial| {
            Some(trial.ping.as_ref()?.round_trips.figures().summary.p50_ns? as f64)
        }),
    },
];
pub(super) const CAPACITY: Compared = Compared {
    metric: "capacity",
    unit: "1/s",
    direction: Direction::HigherIsBetter,
    value: Value::Searched(capacity),
};

/// Whether pings are sent, whether they are sent under load as well, and whether a capacity is searched.
fn asked(echo: &PingPlan) -> [bool; 3] {
    let pings = echo.pings > 0;
    [pings, pings && echo.ping_load_pps > 0, echo.capacity_steps > 0]
}

/// What is compared; nothing for another app.
pub(super) fn compared(scenario: &Scenario) -> impl Iterator<Item = &'static Compared> {
    let [pings, loaded, searched] = scenario.ping.as_ref().map_or([false; 3], asked);
    let pings = PINGS.iter().filter(move |_| pings);
    let loaded = PINGS_LOADED.iter().filter(move |_| loaded);
    pings.chain(loaded).chain(Some(&CAPACITY).filter(|_| searched))
}

/// The section of the result; none for another app.
pub(super) fn section(
    trials: &[Trial],
    arms: usize,
    generations: usize,
    scenario: &Scenario,
    program: Option<String>,
) -> Option<PingSection> {
    let echo = scenario.ping.as_ref()?;
    let all = ByGeneration { trials, generations };
    let [pings, loaded, searched] = asked(echo);
    let rows = |is_wanted: bool, of: fn(&Trial) -> Option<&PingTrial>| {
        let arms = (0..arms).filter(|_| is_wanted);
        arms.map(|arm| ping_row(&all, arm, of)).collect()
    };
    Some(PingSection {
        program,
        pings_per_trial: echo.pings,
        interval_us: echo.ping_interval_us,
        pings: rows(pings, |trial| trial.ping.as_ref()),
        pings_loaded: rows(loaded, |trial| trial.ping_loaded.as_ref()),
        ping_load_pps: if loaded { echo.ping_load_pps } else { 0 },
        loss_max_share: echo.loss_max,
        searched_pps: echo.capacity_pps,
        capacities: (0..arms)
            .filter(|_| searched)
            .map(|arm| capacity_row(&all, arm, capacity))
            .collect(),
    })
}

fn ping_row(
    all: &ByGeneration<'_>,
    arm: usize,
    pings: impl Fn(&Trial) -> Option<&PingTrial>,
) -> PingRow {
    let mut round_trips = RoundTrips::default();
    let (mut sent, mut replied, mut duplicates) = (0, 0, 0);
    for ping in all.of(arm).filter_map(|(_, trial)| pings(trial)) {
        round_trips.merge(&ping.round_trips);
        sent += ping.sent;
        replied += ping.replied;
        duplicates += ping.duplicates;
    }
    PingRow { arm, sent, replied, duplicates, rtt: round_trips.figures() }
}

/// The row of an arm, by what a search of each trial found.
pub(super) fn capacity_row(all: &ByGeneration<'_>, arm: usize, search: Search) -> CapacityRow {
    let is_cut_short = is_cut_short(all.trials, arm, search);
    let found: Vec<_> = all.of(arm).filter_map(|(_, trial)| search(trial)).collect();
    let carried = |searched| carried(searched, is_cut_short);
    let rates: Vec<f64> =
        found.iter().filter_map(|it| carried(*it)).filter(|pps| *pps > 0.0).collect();
    let is_open = |end| end == SearchEnd::Open || end == SearchEnd::NotKept && is_cut_short;
    let is_left_out = |end| end == SearchEnd::NotKept && !is_cut_short;
    CapacityRow {
        arm,
        pps: spread(&rates),
        searches: found.len(),
        open_ended: found.iter().filter(|(_, end)| is_open(*end)).count(),
        left_out: found.iter().filter(|(_, end)| is_left_out(*end)).count(),
    }
}

/// The arms against the base when a `share` of the race's time has gone, as of [`Judge::look`]; `load` is that of
/// what has none.
pub(super) fn findings(
    judge: &mut Judge,
    all: &ByGeneration<'_>,
    what: &Compared,
    [arms, load]: [usize; 2],
    scenario: &Scenario,
    share: f64,
) -> Vec<Finding> {
    // A value per generation rests on a few short segments, or on a few pings: it is coarser than a load's.
    let matters = scenario.matters;
    let rule = Rule {
        direction: what.direction,
        threshold_min: matters,
        half_width_target: matters * 2.0,
        resolution: match what.value {
            Value::Measured(_) => 0.0,
            Value::Searched(_) => resolution(scenario),
        },
        ..Rule::COST
    };
    let mut compare = |arm| {
        let [base, other] = [0, arm].map(|arm| all.figures(arm, what));
        let pairs = base.into_iter().zip(other).enumerate();
        let pairs: Vec<Pair> =
            pairs.map(|(generation, (base, arm))| Pair { generation, base, arm }).collect();
        judge.compare((what.metric, arm, load), &pairs, rule, share, arms - 2)
    };
    let comparisons: Vec<_> = (1..arms).map(&mut compare).collect();
    let noise = comparisons[0].0.clone();
    let finding = |(place, (comparison, limit_look)): (usize, (Comparison, Look))| {
        let yardstick = (place > 0).then_some(&noise);
        Finding {
            metric: what.metric.to_owned(),
            unit: what.unit.to_owned(),
            arm: place + 1,
            load,
            judgement: comparison.judge(yardstick),
            is_decided: comparison.is_decided(yardstick),
            comparison,
            limit_look: Some(limit_look),
        }
    };
    comparisons.into_iter().enumerate().map(finding).collect()
}

/// What makes the run invalid: ledgers of loads beside pings, and pings themselves.
pub(super) fn faults(trials: &[Trial]) -> Vec<String> {
    let mut faults = Vec::new();
    for trial in trials {
        for ping in [&trial.ping, &trial.ping_loaded].into_iter().flatten() {
            if ping.duplicates > 0 {
                let twice = ping.duplicates;
                faults.push(format!("{}: {twice} pings were replied to twice", trial.arm));
            }
            if let Some(load) = ping.load.as_ref().filter(|load| !load.ledger.is_closed()) {
                faults.push(format!(
                    "{}, {}/s beside real pings: the ledger is open, {} of {} requests are \
                     unexplained, {} were replied to twice",
                    trial.arm,
                    load.pps,
                    load.ledger.unexplained,
                    load.ledger.offered,
                    load.ledger.duplicates
                ));
            }
        }
    }
    faults
}

/// What a reader of the result must know.
pub(super) fn notes(scenario: &Scenario, program: Option<&str>) -> Vec<String> {
    let mut notes = vec![
        "a round trip is the time a reply is in the driver of the generator's interface minus the \
         time its request was due, never halved; it is read by an XDP program there, in the softirq \
         of the sender, whose cost is in every arm's figure alike"
            .to_owned(),
        "the round trips of a load are those of the load itself: every request is a probe".to_owned(),
    ];
    match (program, &scenario.ping) {
        (Some(program), Some(echo)) => notes.push(format!(
            "{program} sent {} pings per trial, {} us apart, with nothing else on the wire{}. It prints \
             microseconds, and its own wake-up is inside",
            echo.pings,
            echo.ping_interval_us,
            match echo.ping_load_pps {
                0 => String::new(),
                pps => format!(
                    ", and as many beside {pps}/s of ours, where it shares its CPU with a generator \
                     that spins: its waiting for that CPU is in its figures, for every arm alike"
                ),
            }
        )),
        _ => notes.push(
            "no real pings: none were asked for, or there is no `ping` here (`apt install \
             iputils-ping`)"
                .to_owned(),
        ),
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ping::PingLoad;
    use crate::result::Ledger;
    use crate::trial::Capacity;

    fn trial(arm: usize, generation: usize, capacity: Capacity) -> Trial {
        Trial { capacity: Some(capacity), ..Trial::empty(arm, generation) }
    }

    fn capacity(pps: u64) -> Capacity {
        Capacity { pps: Some(pps), beyond_pps: Some(pps + 1), ..Capacity::default() }
    }

    #[test]
    fn capacities_are_paired_by_generation_and_an_open_end_is_reported() {
        let open = Capacity { beyond_pps: None, ..capacity(400) };
        let trials = [
            trial(1, 1, capacity(220)),
            trial(0, 0, capacity(100)),
            trial(0, 1, capacity(110)),
            trial(1, 0, open),
        ];
        let all = ByGeneration { trials: &trials, generations: 2 };
        assert_eq!(all.figures(1, &CAPACITY), [Some(400.0), Some(220.0)]);
        assert_eq!(all.figures(2, &CAPACITY), [None, None]);
        let row = |arm| capacity_row(&all, arm, super::capacity);
        let [none, row, other] = [row(2), row(1), row(0)];
        assert_eq!((row.searches, row.open_ended, row.pps.unwrap()[1]), (2, 1, 220.0));
        assert_eq!((other.open_ended, none.pps), (0, None));
    }

    #[test]
    fn a_search_that_the_generator_cut_short_is_missing_unless_most_are() {
        let short = Capacity { is_generator_limited: true, ..capacity(40) };
        let row = |cut: usize| {
            let at = |generation| if generation < cut { short.clone() } else { capacity(90) };
            let trials: Vec<Trial> = (0..6).map(|g| trial(1, g, at(g))).collect();
            let all = ByGeneration { trials: &trials, generations: 6 };
            let row = capacity_row(&all, 1, super::capacity);
            let whole = all.figures(1, &CAPACITY).iter().flatten().count();
            ([row.searches, row.open_ended, row.left_out, whole], row.pps.unwrap()[1])
        };
        assert_eq!(row(0), ([6, 0, 0, 6], 90.0));
        assert_eq!(row(1), ([6, 0, 1, 5], 90.0));
        assert_eq!(row(3), ([6, 0, 3, 3], 90.0));
        assert_eq!(row(4), ([6, 4, 0, 6], 40.0));
    }

    #[test]
    fn capacities_are_judged_no_finer_than_their_search() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/ping.toml");
        let mut scenario = Scenario::load(std::path::Path::new(file)).expect("it ships");
        assert!(resolution(&scenario) <= scenario.matters / 2.0, "it is finer than what matters");
        scenario.ping.as_mut().expect("it has pings").capacity_steps = 7;
        let step = 1.0 + resolution(&scenario);
        assert!(step > 1.1, "it is coarser than what matters: {step}");
        let judged = |steps: i32| {
            let at = |arm: usize, generation: usize| {
                let steps = if arm == 2 { steps } else { 0 };
                trial(arm, generation, capacity((1e6 * step.powi(steps)) as u64))
            };
            let of = |generation| (0..3).map(move |arm| at(arm, generation));
            let trials: Vec<Trial> = (0..6).flat_map(of).collect();
            let all = ByGeneration { trials: &trials, generations: 6 };
            let judge = &mut Judge::new(None, 0);
            findings(judge, &all, &CAPACITY, [3, 1], &scenario, 1.0).remove(1).judgement.verdict
        };
        use laneway_stats::Verdict::{Better, Inconclusive, Worse};
        assert_eq!(
            [-2, -1, 0, 1, 2].map(judged),
            [Worse, Inconclusive, Inconclusive, Inconclusive, Better]
        );
    }

    #[test]
    fn an_open_ledger_beside_pings_is_a_fault() {
        let mut ledger = Ledger { offered: 10, delivered: 9, ..Ledger::default() };
        ledger.balance();
        let mut beside = trial(0, 1, capacity(1));
        beside.ping_loaded = Some(PingTrial {
            sent: 9,
            replied: 9,
            duplicates: 2,
            summary_ms: None,
            round_trips: RoundTrips::default(),
            is_cut: false,
            load: Some(PingLoad { pps: 7, ledger }),
        });
        let faults = faults(&[trial(0, 0, capacity(1)), beside]);
        let parts = ["arm 0: 2 pings", "arm 0, 7/s beside"];
        assert_eq!(faults.len(), parts.len());
        for (fault, part) in faults.iter().zip(parts) {
            assert!(fault.contains(part), "{fault}");
        }
    }
}
