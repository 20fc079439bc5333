//! The measuring part of a race: generations of fresh processes, and rounds of short segments within each.
//!
//! Every arm has its own bench. In each generation the arms are dealt to the benches anew, so that no arm owns a
//! cable; all start, and all are parked. Then one arm at a time is offered one load for one segment. The segments
//! of a round at one load are neighbours in time, and what changes slowly on the machine is the same for them.
//! When a race could end and does not, its rounds go where doubt is left ([`Doubt`]).
//!
//! It assumes that the scenario was checked, and judges nothing.

use super::analyse::{Data, Judge};
use super::doubt::Doubt;
use super::once::Once;
use super::{
    Entrant, Options, Progress, RaceError, analyse, beside, demands, entrants_names, files,
    interrupted, round_down, searched, trial_plan,
};
use crate::arrivals::ARRIVALS_MAX;
use crate::bench::Bench;
use crate::copies;
use crate::headroom::Sink;
use crate::result::{EndedArm, Finding, Headroom, Segment};
use crate::scenario::{Extent, ROUNDS_MAX, Scenario};
use crate::traffic::Sending;
use crate::trial::{self, Alive, Trial, TrialPlan};
use laneway_kinds::AppFacts;
use laneway_stats::BlockOrder;
use laneway_stats::limits::PAIRS_MAX;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Fewest generations before a race may end early.
pub(super) const GENERATIONS_MIN: usize = 3;
/// Share of the time that a look counts at most while others may follow.
const SHARE_MAX: f64 = 0.999;
/// Fewest rounds of a generation, whatever its time.
pub(super) const ROUNDS_MIN: usize = 2;

/// What is measured, and where.
#[derive(Clone, Copy)]
pub(super) struct Contest<'a> {
    /// One for each entrant.
    pub(super) benches: &'a [Bench],
    pub(super) scenario: &'a Scenario,
    pub(super) extent: &'a Extent,
    pub(super) sending: &'a Sending,
    pub(super) entrants: &'a [Entrant],
    /// The rate of each at the load of which every arm has its own; empty while it is not known, and without one.
    pub(super) own_pps: &'a [u64],
    /// The load that a demand without a rate means; none while it is not known, and without one.
    pub(super) saturating_pps: Option<u64>,
    pub(super) options: &'a Options<'a>,
}

/// Its outcome.
#[derive(Default)]
pub(super) struct Measured {
    /// In the order in which they were offered.
    pub(super) segments: Vec<Segment>,
    /// One per arm and generation.
    pub(super) trials: Vec<Trial>,
    pub(super) rounds: usize,
    pub(super) generations: usize,
    /// What the last look found.
    pub(super) findings: Vec<Finding>,
    /// The same of what is measured once in a generation.
    pub(super) once: Vec<Finding>,
    /// More was to be measured.
    pub(super) is_interrupted: bool,
    /// The same, and this arm ended.
    pub(super) ended: Option<EndedArm>,
}

impl<'a> Contest<'a> {
    /// Measures until every verdict is decided, the time is over, or the race is interrupted. An interval is valid at
    /// any look, so those of the last one stand then.
    ///
    /// # Errors
    /// When a child failed, or the race was interrupted, before there were [`GENERATIONS_MIN`]; or one that is no arm.
    pub(super) fn run(
        &self,
        app: &AppFacts,
        show: &mut impl FnMut(&Progress<'_>),
    ) -> Result<Measured, RaceError> {
        let Contest { extent, scenario, entrants, .. } = *self;
        let time = Duration::from_secs(extent.time_s);
        let began = Instant::now();
        let mut all = Measured::default();
        let beside = demands::beside_comparisons(scenario, app.race.metrics, false);
        let mut judge = Judge::new(extent.own_load(), beside);
        let mut once = Once::new(scenario);
        let mut doubt = Doubt::new(entrants.len(), extent.loads_pps.len());
        for generation in 0..extent.generations {
            let share = (generation + 1) as f64 / extent.generations as f64;
            let [first, segments] = [all.trials.len(), all.segments.len()];
            let rounds = all.rounds;
            let until = began + time.mul_f64(share);
            if let Err(error) = self.generation(generation, until, &mut doubt, &mut all) {
                let has_begun = generation > 0 || all.segments.len() > segments;
                all.segments.truncate(segments);
                all.trials.truncate(first);
                all.rounds = rounds;
                let names = entrants_names(entrants);
                end_early(error, &mut all, &names, has_begun, began.elapsed())?;
                break;
            }
            all.generations = generation + 1;
            files::write_trials(&all.trials[first..], first, self.options.out)?;
            let is_over = is_over(extent, [all.generations, all.rounds], began.elapsed());
            let share = match extent.rounds {
                Some(_) => share,
                None => began.elapsed().as_secs_f64() / time.as_secs_f64(),
            };
            let data = Data { segments: &all.segments, trials: &all.trials };
            let size = [entrants.len(), extent.loads_pps.len()];
            let looked = if is_over { 1.0 } else { share.min(SHARE_MAX) };
            all.findings = judge.look(data, size, app.race.metrics, scenario, looked);
            all.once = once.look(&all.trials, size, all.generations, looked);
            beside::reopen(&mut all.findings, &all.segments);
            let looked_at = [&all.findings[..], &all.once[..]].concat();
            let [open, limits] =
                demands::undecided_limits(&self.field(), data, &looked_at, scenario);
            let [undecided, verdicts] = analyse::undecided(&all.findings);
            let undecided = [undecided + open, verdicts + limits];
            let may_end = all.generations >= GENERATIONS_MIN && extent.rounds.is_none();
            if may_end {
                doubt.learn(&all.findings);
            }
            let most = match extent.rounds {
                Some(_) => began.elapsed().div_f64(share),
                // Fewer generations than an interval needs end no race, however long they take.
                None => time
                    .max(began.elapsed().mul_f64(GENERATIONS_MIN as f64 / all.generations as f64)),
            };
            show(&Progress {
                generations: [all.generations, extent.generations],
                rounds: all.rounds,
                time: [began.elapsed(), most],
                undecided,
                trials: &all.trials[first..],
                is_traced: false,
            });
            if is_over || may_end && undecided[0] == 0 {
                break;
            }
        }
        Ok(all)
    }

    /// What goals and claims may look at.
    fn field(&self) -> demands::Field<'_> {
        let Contest { entrants, extent, saturating_pps, .. } = *self;
        let name =
            |entrant: &'a Entrant| (!entrant.is_noise_floor).then_some(entrant.name.as_str());
        demands::Field {
            arms: entrants.iter().map(name).collect(),
            loads_pps: &extent.loads_pps,
            saturating_pps,
            counts_requests: !extent.closed_requests.is_empty(),
            is_searched: searched::is_searched(self.scenario),
            is_pinged: false,
        }
    }

    /// One generation, until its time is over: those that are alive together, and then each that is to be alone, in as
    /// many rounds and under their numbers.
    fn generation(
        &self,
        generation: usize,
        until: Instant,
        doubt: &mut Doubt,
        all: &mut Measured,
    ) -> Result<(), RaceError> {
        let [segments, trials] = [all.segments.len(), all.trials.len()];
        let first_round = all.rounds;
        let arms = 0..self.entrants.len();
        let (alone, together): (Vec<usize>, Vec<usize>) =
            arms.partition(|&arm| self.entrants[arm].is_alone);
        let now = Instant::now();
        let part = together.len() as f64 / self.entrants.len() as f64;
        let until = now + until.saturating_duration_since(now).mul_f64(part);
        let is_over = |round: usize| match self.extent.rounds {
            Some(rounds) => round >= rounds,
            None => round >= ROUNDS_MIN && Instant::now() >= until,
        };
        let visited = |round, load, order: &[usize]| doubt.visited(round, load, order);
        self.rounds(generation, &together, all, is_over, visited)?;
        let rounds = all.rounds - first_round;
        // Without the base there is no pair.
        let of_base = all.segments[segments..].iter().filter(|segment| segment.arm == 0);
        let paired: BTreeSet<[usize; 2]> = of_base.map(|base| [base.round, base.load]).collect();
        for arm in alone {
            all.rounds = first_round;
            let visited =
                |round, load, _: &[usize]| match paired.contains(&[first_round + round, load]) {
                    true => vec![arm],
                    false => Vec::new(),
                };
            self.rounds(generation, &[arm], all, |round| round >= rounds, visited)?;
        }
        all.trials[trials..].sort_by_key(|trial| trial.index);
        let warm = analyse::mark_warm_up(&mut all.segments[segments..]);
        all.trials[trials..].iter_mut().for_each(|trial| trial.settle(warm));
        Ok(())
    }

    /// Rounds of arms that are alive at the same time, until the number of a round `is_over`; those that are `visited`
    /// by it at a load have a segment.
    fn rounds(
        &self,
        generation: usize,
        arms: &[usize],
        all: &mut Measured,
        is_over: impl Fn(usize) -> bool,
        mut visited: impl FnMut(usize, usize, &[usize]) -> Vec<usize>,
    ) -> Result<(), RaceError> {
        let mut alive = self.start(generation, arms)?;
        let loads = self.extent.loads_pps.len();
        let order = self.order(ROUNDS_MAX, generation as u64 + 1);
        for (round, order) in order.blocks().enumerate() {
            if is_over(round) {
                break;
            }
            for turn in 0..loads {
                let load = (turn + round) % loads;
                for arm in visited(round, load, order) {
                    let Some(alive) = alive.get_mut(&arm) else { continue };
                    let turn = alive.turn(load, all.rounds);
                    let turn = turn.map_err(|error| interrupted(self.options, error))?;
                    for segment in turn {
                        all.segments.push(Segment { order: all.segments.len(), ..segment.clone() });
                    }
                }
            }
            all.rounds += 1;
        }
        if let Some(echo) = &self.scenario.ping {
            for arm in alive.values_mut() {
                arm.ping(echo).map_err(|error| interrupted(self.options, error))?;
            }
        }
        if let Some(plan) = &self.scenario.capacity {
            for arm in alive.values_mut() {
                arm.search(plan).map_err(|error| interrupted(self.options, error))?;
            }
        }
        for arm in alive.into_values() {
            all.trials.push(arm.end().map_err(|error| interrupted(self.options, error))?);
        }
        Ok(())
    }

    /// These arms, alive and parked, on benches dealt anew.
    fn start(
        &self,
        generation: usize,
        arms: &[usize],
    ) -> Result<BTreeMap<usize, Alive<'a>>, RaceError> {
        let dealt = self.order(generation + 1, 0);
        let seats = dealt.block(generation);
        let start = |&arm: &usize| {
            Alive::start(&self.benches[seats[arm]], self.plan(arm, generation))
                .map(|alive| (arm, alive))
                .map_err(|error| interrupted(self.options, error))
        };
        arms.iter().map(start).collect()
    }

    /// An order of the arms for each of so many rounds.
    fn order(&self, rounds: usize, number: u64) -> BlockOrder {
        let seed = self.scenario.seed.wrapping_add(number);
        BlockOrder::new(self.entrants.len(), rounds, seed).expect("the scenario was checked")
    }

    fn plan(&self, arm: usize, generation: usize) -> TrialPlan<'a> {
        let Contest { scenario, extent, sending, entrants, own_pps, options, .. } = *self;
        TrialPlan {
            own_load: extent.own_load().zip(own_pps.get(arm).copied()),
            ..trial_plan(scenario, extent, sending, &entrants[arm], [arm, generation], options)
        }
    }

    /// The load beyond all others, if the scenario wants one: in two digits, or a sentence why there is none.
    ///
    /// # Errors
    /// As for a run.
    pub(super) fn saturating(&self) -> Result<Option<Result<Saturating, String>>, RaceError> {
        if !self.extent.closed_requests.is_empty() {
            return Ok(None);
        }
        if self.extent.closed_loop {
            let rate = trial::closed_rate(&self.benches[0], self.plan(0, 0));
            let pps = round_down(rate.map_err(|error| interrupted(self.options, error))?);
            // It is a name only, and stands behind the others.
            let last = self.extent.loads_pps.last().copied().unwrap_or(0);
            return Ok(Some(Ok(Saturating { pps: pps.max(last + 1), headroom: None })));
        }
        if self.extent.topspeed {
            let top = trial::top_rate(&self.benches[0], self.plan(0, 0));
            let pps = round_down(top.map_err(|error| interrupted(self.options, error))?);
            return Ok(Some(Ok(Saturating { pps, headroom: None })));
        }
        self.extent.saturate.then(|| self.kept_by_all()).transpose()
    }

    /// The rate of each arm at the load that is a share of its own, per second; empty if there is no such load.
    ///
    /// # Errors
    /// As for a run.
    pub(super) fn own_rates(&self) -> Result<Vec<u64>, RaceError> {
        let Some(share) = self.extent.own_share else { return Ok(Vec::new()) };
        let mut rates: Vec<u64> = Vec::new();
        for (arm, entrant) in self.entrants.iter().enumerate() {
            // The base's second run is the base.
            if let (true, Some(&of_base)) = (entrant.is_noise_floor, rates.first()) {
                rates.push(of_base);
                continue;
            }
            let closed = trial::closed_rate(&self.benches[arm], self.plan(arm, 0));
            let closed = closed.map_err(|error| interrupted(self.options, error))?;
            rates.push(round_down((closed as f64 * share) as u64).max(1));
        }
        Ok(rates)
    }

    /// What the generator keeps of half as much again as each load.
    ///
    /// # Errors
    /// As for a run.
    pub(super) fn headroom(&self) -> Result<Vec<Headroom>, RaceError> {
        // A sink answers no request, so it cannot measure a client. Whether the client is the limit is known from
        // its share of its CPU.
        if self.sending.traffic.client().is_some() {
            return Ok(Vec::new());
        }
        let mut sink = self.sink()?;
        self.extent.loads_pps.iter().map(|&pps| self.headroom_at(&mut sink, pps)).collect()
    }

    fn sink(&self) -> Result<Sink<'a>, RaceError> {
        let sink = Sink::open(&self.benches[0], self.plan(0, 0));
        sink.map_err(|error| interrupted(self.options, error))
    }

    fn headroom_at(&self, sink: &mut Sink<'_>, pps: u64) -> Result<Headroom, RaceError> {
        sink.headroom(pps).map_err(|error| interrupted(self.options, error))
    }

    /// A step below the highest load that the generator keeps against every arm.
    ///
    /// All arms are offered the same, and the schedule is held to the same limits as at any other load, so
    /// no check is weaker here. The search sees each arm for some short segments only, in which a generator may
    /// keep by luck what it does not keep for a race: hence the step. A segment in which it is late after all is
    /// left out, as ever. What the generator then keeps only just is lowered until it has headroom.
    fn kept_by_all(&self) -> Result<Result<Saturating, String>, RaceError> {
        let room = self.sending.traffic.fanout().map_or(ARRIVALS_MAX, copies::frames_max);
        let most = u64::from(room) * 1_000 / self.extent.segment_ms;
        let mut kept: Option<u64> = None;
        // The twin of the base is the base.
        for (arm, entrant) in self.entrants.iter().enumerate().filter(|(_, e)| !e.is_noise_floor) {
            let rate = trial::rate_kept(&self.benches[arm], self.plan(arm, 0), kept)
                .map_err(|error| interrupted(self.options, error))?;
            let Some(rate) = rate else {
                return Ok(Err(format!(
                    "no saturating load: the generator kept none of the rates tried against arm `{}`; the \
                     host was busy, or the arm takes the generator's CPU",
                    entrant.name
                )));
            };
            kept = Some(rate.min(most));
        }
        let last = self.extent.loads_pps.last().copied().unwrap_or(0);
        let mut sink = self.sink()?;
        let mut pps = kept.unwrap_or(0);
        loop {
            pps = round_down((pps as f64 * trial::KEPT_SHARE) as u64);
            if pps <= last {
                return Ok(Err(format!(
                    "no saturating load: the generator keeps {pps}/s at most against every arm and with headroom, \
                     no more than the {last}/s that are offered anyway"
                )));
            }
            let headroom = self.headroom_at(&mut sink, pps)?;
            if headroom.is_kept() {
                return Ok(Ok(Saturating { pps, headroom: Some(headroom) }));
            }
        }
    }
}

/// Ends a race in which something failed or that was interrupted, with the generations that were whole until then. The
/// arms have these `names`; it `has_begun` if a segment was measured.
///
/// # Errors
/// With what failed: where these are too few, and where it was no arm, so that nothing can be relied on.
fn end_early(
    error: RaceError,
    all: &mut Measured,
    names: &[String],
    has_begun: bool,
    elapsed: Duration,
) -> Result<(), RaceError> {
    let (generations, needed) = (all.generations, GENERATIONS_MIN);
    let is_enough = generations >= needed;
    match error {
        RaceError::Interrupted if is_enough => all.is_interrupted = true,
        RaceError::Interrupted => {
            return Err(RaceError::InterruptedEarly { generations, needed });
        }
        error if !has_begun => return Err(error),
        error => {
            let generation = generations + 1;
            let arm = names.iter().position(|name| is_of(&error, name));
            let Some(arm) = arm.filter(|_| is_enough) else {
                let (seconds, error) = (elapsed.as_secs(), Box::new(error));
                return Err(RaceError::Ended { generation, seconds, error });
            };
            let (seconds, why) = (elapsed.as_secs_f64(), error.to_string());
            all.ended = Some(EndedArm { arm, generation, seconds, why });
        }
    }
    Ok(())
}

/// Whether it was the arm with this name that failed, or what is asked of it.
fn is_of(error: &RaceError, arm: &str) -> bool {
    matches!(error, RaceError::Child { what, .. } if what.ends_with(&format!("arm `{arm}`")))
}

/// The load beyond all others.
pub(super) struct Saturating {
    /// Frames per second; at top speed no rate, but a number of them.
    pub(super) pps: u64,
    /// Of what is a schedule: that the generator could send more.
    pub(super) headroom: Option<Headroom>,
}

/// Whether no generation follows. Of the last look there is only one, so a race whose first generations outlast its
/// time is not over before an interval is possible.
fn is_over(extent: &Extent, [generations, rounds]: [usize; 2], elapsed: Duration) -> bool {
    let is_late = extent.rounds.is_none() && elapsed >= Duration::from_secs(extent.time_s);
    generations >= extent.generations
        || (is_late && generations >= GENERATIONS_MIN)
        || rounds + ROUNDS_MAX > PAIRS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arm_that_ends_in_a_late_generation_ends_the_race_and_throws_nothing_away() {
        let names = ["base", "base again", "mine"].map(str::to_owned);
        let failed = |what: &str| {
            let why = "it ended with exit status 3; its output: oh no".to_owned();
            RaceError::Child { what: what.to_owned(), why }
        };
        let end = |error, generations, has_begun| {
            let mut all = Measured { generations, ..Measured::default() };
            let elapsed = Duration::from_millis(41_900);
            end_early(error, &mut all, &names, has_begun, elapsed)
                .map(|()| (all.is_interrupted, all.ended))
                .map_err(|error| error.to_string())
        };
        for what in ["arm `mine`", "the client of arm `mine`"] {
            let (is_interrupted, ended) = end(failed(what), 3, true).unwrap();
            let ended = ended.expect("it is known which");
            assert_eq!((is_interrupted, ended.arm, ended.generation), (false, 2, 4));
            assert_eq!(
                ended.why,
                format!("{what}: it ended with exit status 3; its output: oh no")
            );
        }
        let why = end(failed("arm `mine`"), 2, true).unwrap_err();
        assert!(why.contains("oh no; that was in generation 3, 41 s after"), "{why}");
        // What is no arm's leaves nothing to rely on.
        let why = end(failed("generator"), 9, true).unwrap_err();
        assert!(why.contains("in generation 10, 41 s after"), "{why}");
        // It did not start.
        let why = end(failed("arm `mine`"), 0, false).unwrap_err();
        assert!(why.ends_with("its output: oh no"), "{why}");
        assert_eq!(end(RaceError::Interrupted, 3, true).unwrap(), (true, None));
        let why = end(RaceError::Interrupted, 2, true).unwrap_err();
        assert!(why.contains("2 of the 3 generations"), "{why}");
    }

    #[test]
    fn a_race_whose_generations_outlast_its_time_still_has_enough_of_them() {
        let extent = |generations, rounds| Extent {
            loads_pps: vec![1],
            saturate: false,
            topspeed: false,
            closed_loop: false,
            closed_requests: Vec::new(),
            own_share: None,
            segment_ms: 100,
            time_s: 1,
            generations,
            rounds,
        };
        let late = Duration::from_secs(5);
        let over = |extent: &Extent, generations| is_over(extent, [generations, 9], late);
        let timed = extent(30, None);
        assert_eq!([1, 2, 3].map(|n| over(&timed, n)), [false, false, true]);
        assert!(!is_over(&timed, [3, 9], Duration::ZERO) && over(&extent(1, None), 1));
        let counted = extent(4, Some(1));
        assert_eq!([3, 4].map(|n| over(&counted, n)), [false, true]);
        assert!(is_over(&counted, [1, PAIRS_MAX], Duration::ZERO));
    }
}
