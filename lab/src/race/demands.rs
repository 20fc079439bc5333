//! What became of goals and claims: the comparisons of a race, set against limits. Pure, as what it rests on.
//!
//! A claim is a sentence of another author, so it is asked whether this race can answer it at all: a load that was not
//! offered and an arm that did not run are answered with the reason, never with a verdict; for a goal that is
//! inconclusive. So is a cost that would be the cost of a collapse, for either.

use super::analyse::{Data, Side, is_saturated, ledger_of, load_of, paired, rule};
use super::beside::Reach;
use super::ended;
use super::limiter::{Limiter, limiter};
use crate::result::{
    ClaimOutcome, ClaimStatus, DELIVERS_LOSS_MAX, Finding, GoalOutcome, GoalStatus, RaceResult,
};
use crate::scenario::{Answer, Arithmetic, Claim, Goal, Scenario};
use crate::trial::Trial;
use laneway_kinds::Metric;
use laneway_page::number::{confidence_percent, ratio};
use laneway_stats::pairs::{self, Comparison, Doubt, Limit, Pair};
use laneway_stats::{Look, Rule, quantile};

/// The answer to a claim that waits for a trace.
const BY_TRACE: &str = "laneway race --trace and laneway trace analyze look there";

/// The answer to a demand.
#[derive(Debug, PartialEq)]
enum DemandAnswer {
    /// A figure with its interval, and what it answers.
    Measured(String, pairs::Answer),
    /// Too little to decide it, for this reason.
    Undecided(String),
    /// This race cannot answer it, for this reason.
    Unanswerable(String),
}

/// True for a goal at a load that this version of the race offered, or at the saturating one if that was `sought`:
/// that it was not found must not hide what is demanded there.
fn is_asked(goal: &Goal, result: &RaceResult, sought: bool) -> bool {
    let is_of_pings = goal.metric.is_of_pings() && result.ping.is_some();
    let is_searched = goal.metric.is_searched() && is_searched(result);
    let is_offered = load_of(result, goal.load_pps).is_some();
    is_of_pings || is_searched || is_offered || (goal.is_saturating() && sought)
}

/// Whether a search was made for a capacity.
fn is_searched(result: &RaceResult) -> bool {
    result.capacity.is_some()
        || result.ping.as_ref().is_some_and(|ping| !ping.capacities.is_empty())
}

/// What became of the scenario's demands at the loads that this version of it offered.
pub(super) fn goals(
    result: &RaceResult,
    trials: &[Trial],
    scenario: &Scenario,
    sought: bool,
) -> Vec<GoalOutcome> {
    let outcome = |goal: &Goal| {
        let barred = barred(goal, result).map(DemandAnswer::Undecided);
        let answer = barred.unwrap_or_else(|| judge(goal, result, trials, scenario));
        let (measured, status) = match answer {
            DemandAnswer::Measured(measured, answer) => (
                measured,
                match answer {
                    pairs::Answer::Met => GoalStatus::Met,
                    pairs::Answer::Missed => GoalStatus::Missed,
                    pairs::Answer::Undecided => GoalStatus::Inconclusive,
                },
            ),
            DemandAnswer::Undecided(why) | DemandAnswer::Unanswerable(why) => {
                (why, GoalStatus::Inconclusive)
            }
        };
        GoalOutcome {
            goal: goal.sentence_of(without_rate(result), &counted(scenario)),
            measured,
            status,
        }
    };
    scenario.goals.iter().filter(|goal| is_asked(goal, result, sought)).map(outcome).collect()
}

/// What became of each of the scenario's claims, of a race in which a saturating load was `sought`, or not.
pub(super) fn claims(
    result: &RaceResult,
    trials: &[Trial],
    scenario: &Scenario,
    sought: bool,
) -> Vec<ClaimOutcome> {
    let outcome = |claim: &Claim| {
        let (measured, status) = match &claim.answer {
            Answer::Race(test) if test.is_saturating() && !sought => (
                "no saturating load was asked for in this race".to_owned(),
                ClaimStatus::Unanswered,
            ),
            Answer::Race(test) => raced(test, result, trials, scenario),
            Answer::Arithmetic(figures) => calculated(figures),
            Answer::Trace => (BY_TRACE.to_owned(), ClaimStatus::ForTrace),
            Answer::Nothing(reason) => (reason.clone(), ClaimStatus::Unanswered),
        };
        ClaimOutcome {
            says: claim.says.clone(),
            then: claim.then.clone(),
            test: claim.sentence_of(without_rate(result), &counted(scenario)),
            measured,
            note: claim.note.clone(),
            status,
        }
    };
    scenario.claims.iter().map(outcome).collect()
}

/// The loads that are numbers of requests, in a race of either length.
fn counted(scenario: &Scenario) -> Vec<u64> {
    [&scenario.quick, &scenario.full]
        .iter()
        .flat_map(|extent| &extent.closed_requests)
        .copied()
        .collect()
}

/// Where a demand without a rate is one in this race.
fn without_rate(result: &RaceResult) -> &'static str {
    match result.closed_loop {
        true => "in the closed loop",
        false => "at the saturating load",
    }
}

/// What the race says to a claim.
fn raced(
    test: &Goal,
    result: &RaceResult,
    trials: &[Trial],
    scenario: &Scenario,
) -> (String, ClaimStatus) {
    if let Some(why) = barred(test, result) {
        return (why, ClaimStatus::Unanswered);
    }
    match judge(test, result, trials, scenario) {
        DemandAnswer::Measured(measured, answer) => {
            let status = match answer {
                pairs::Answer::Met => ClaimStatus::Confirmed,
                pairs::Answer::Missed => ClaimStatus::Refuted,
                pairs::Answer::Undecided => ClaimStatus::Inconclusive,
            };
            (measured, status)
        }
        DemandAnswer::Undecided(why) => (why, ClaimStatus::Inconclusive),
        DemandAnswer::Unanswerable(why) => (why, ClaimStatus::Unanswered),
    }
}

/// What a calculation says to a claim.
fn calculated(figures: &Arithmetic) -> (String, ClaimStatus) {
    let (holds, value) = figures.holds();
    let is = short(value);
    match holds {
        true => (format!("{} = {is}", figures.figure), ClaimStatus::Confirmed),
        false => {
            let off = ratio(value / figures.is);
            let figure = format!("{} = {is}, {off} times the claim", figures.figure);
            (figure, ClaimStatus::Refuted)
        }
    }
}

/// Why nothing is answered there, as far as that is known of the arms; `None` where something may be.
fn barred(test: &Goal, result: &RaceResult) -> Option<String> {
    let (arm, over) = Field::of(result).sides(test).ok()?;
    let arms = [Some(arm), over].into_iter().flatten().map(|(arm, _)| arm);
    ended::sentence(result, arms).or_else(|| collapse(test, result))
}

/// Why a cost cannot be compared there; `None` where it can. An arm that loses packets spends its time on them, too,
/// and what it then spends for each that it delivers is no cost of its work.
fn collapse(test: &Goal, result: &RaceResult) -> Option<String> {
    let (arm, over) = Field::of(result).sides(test).ok()?;
    let is_cost = test.metric.is_cost() && !test.is_of_overload();
    let mut both = [Some(arm), over].into_iter().flatten().filter(|_| is_cost);
    both.find_map(|(arm, load)| {
        let name = &result.arms[arm].name;
        if test.metric.is_of_pings() {
            let row = result.ping.as_ref()?.pings.iter().find(|row| row.arm == arm)?;
            let lost = row.sent.saturating_sub(row.replied);
            let is_lossy = lost as f64 >= row.sent as f64 * DELIVERS_LOSS_MAX;
            let (sent, why) = (row.sent, "what is left is no sample of all");
            return is_lossy.then(|| format!("{name} lost {lost} of {sent} pings: {why}"));
        }
        // Of what the figure is made of, and of nothing that was left out of it.
        let ledger = ledger_of(&result.segments, test.metric, (arm, load))?;
        let at = result.loads_pps[load];
        match ledger {
            ledger if ledger.unknown.is_some() => {
                Some(format!("what {name} received of {at}/s is not known, nor what that cost it"))
            }
            ledger if ledger.delivers() => None,
            ledger if ledger.own_loss_share() < DELIVERS_LOSS_MAX => Some(format!(
                "{name} left {:.1} % of the connections of the closed loop without an answer: that is a collapse, and no cost",
                ledger.undone_share() * 100.0
            )),
            ledger => Some(format!(
                "{name} lost {:.1} % of {at}/s: that is a collapse, and no cost",
                ledger.own_loss_share() * 100.0
            )),
        }
    })
}

/// What a demand is about: an arm at a load, and what it is compared with.
type Sides = (Side, Option<Side>);

/// What a demand may look at: the arms and the loads of a race.
pub(super) struct Field<'a> {
    /// The arms by name; nothing stands for the base's second run.
    pub(super) arms: Vec<Option<&'a str>>,
    pub(super) loads_pps: &'a [u64],
    /// The load that a demand without a rate means, if there is one.
    pub(super) saturating_pps: Option<u64>,
    /// Loads are numbers of requests.
    pub(super) counts_requests: bool,
    /// Capacities were searched.
    pub(super) is_searched: bool,
    /// Pings were sent.
    pub(super) is_pinged: bool,
}

impl Field<'_> {
    fn of(result: &RaceResult) -> Field<'_> {
        let arms = result.arms.iter();
        Field {
            arms: arms.map(|arm| (!arm.is_noise_floor).then_some(arm.name.as_str())).collect(),
            loads_pps: &result.loads_pps,
            saturating_pps: result.saturating_pps,
            counts_requests: !result.closed_requests.is_empty(),
            is_searched: is_searched(result),
            is_pinged: result.ping.as_ref().is_some_and(|ping| !ping.pings.is_empty()),
        }
    }

    /// Where a demand looks.
    ///
    /// # Errors
    /// Why there is nothing to look at.
    fn sides(&self, goal: &Goal) -> Result<Sides, DemandAnswer> {
        let unanswerable = |why: &str| DemandAnswer::Unanswerable(why.to_owned());
        let none = self.loads_pps.len();
        let load = match (goal.metric.has_no_load(), goal.load_pps) {
            (true, _) if goal.metric.is_searched() => {
                let load = self.is_searched.then_some(none);
                load.ok_or_else(|| unanswerable("no capacity was searched"))?
            }
            (true, _) => {
                let load = self.is_pinged.then_some(none);
                load.ok_or_else(|| unanswerable("no pings were sent"))?
            }
            (false, Some(pps)) => self.offered(pps)?,
            (false, None) => {
                self.saturating_pps.and_then(|pps| self.load(pps)).ok_or_else(|| {
                    DemandAnswer::Undecided("no saturating load was found".to_owned())
                })?
            }
        };
        let index = |name: &String| {
            let place = self.arms.iter().position(|arm| *arm == Some(name.as_str()));
            place.ok_or_else(|| DemandAnswer::Unanswerable(format!("arm `{name}` did not run")))
        };
        let arm = index(&goal.arm)?;
        let over = match (goal.other_arm(), goal.over_load_pps) {
            (Some(other), _) => Some((index(other)?, load)),
            (None, Some(pps)) => Some((arm, self.offered(pps)?)),
            (None, None) => None,
        };
        Ok(((arm, load), over))
    }

    fn load(&self, pps: u64) -> Option<usize> {
        self.loads_pps.iter().position(|&offered| offered == pps)
    }

    fn offered(&self, pps: u64) -> Result<usize, DemandAnswer> {
        let why = || match self.counts_requests {
            false => format!("{pps}/s was not offered in this race"),
            true => {
                format!(
                    "a closed loop of {pps} requests was not part of this race; --full may have it"
                )
            }
        };
        self.load(pps).ok_or_else(|| DemandAnswer::Unanswerable(why()))
    }
}

/// A demand's figure, and what it is set against.
struct Figure {
    found: Comparison,
    /// The base against itself, of a figure that compares two arms.
    noise: Option<Comparison>,
    /// Of CPU time: where it may be as well, for what interrupted the arms, and why.
    moved: Option<([Comparison; 2], Doubt)>,
}

impl Figure {
    /// `None` where nothing of it was looked at.
    fn of(
        goal: &Goal,
        (arm, over): Sides,
        data: Data<'_>,
        findings: &[Finding],
        scenario: &Scenario,
    ) -> Option<Figure> {
        let pairs = match over {
            Some(over) => paired(data, goal.metric, [over, arm]),
            None => alone(data, goal.metric, arm),
        };
        let (look, rule) = (look_of(goal, (arm, over), findings)?, rule_of(goal, scenario));
        let mut found = Comparison::of_pairs(&pairs, rule, look).expect("as the findings were");
        if let Some(interval) = found.interval.as_mut().filter(|_| over.is_none()) {
            // What a search found was carried, so that an arm's own rate is not below it: a step too wide.
            interval.lower *= 1.0 + rule.resolution;
        }
        let twin = paired(data, goal.metric, [(0, arm.1), (1, arm.1)]);
        let noise = Comparison::of_pairs(&twin, rule, look).ok().filter(|_| over.is_some());
        let usual = |value: fn(&Pair) -> Option<f64>| {
            let values: Vec<f64> = pairs.iter().filter_map(value).collect();
            quantile(&values, 0.5).unwrap_or_default()
        };
        let usual = [usual(|pair| pair.arm), usual(|pair| pair.base)];
        let reach = Reach::of(data.segments, goal.metric, arm, over);
        let moved = reach.map(|reach| (reach.moved(&found, usual), reach.doubt()));
        Some(Figure { found, noise, moved })
    }

    /// What it answers to each limit of the demand.
    fn answers(&self, goal: &Goal) -> Vec<(Limit, pairs::Answered)> {
        let limits = [goal.at_most.map(Limit::AtMost), goal.at_least.map(Limit::AtLeast)];
        let limits = limits.into_iter().flatten();
        limits.map(|limit| (limit, self.answer(limit))).collect()
    }

    /// That to one limit: with whatever interrupted the arms.
    fn answer(&self, limit: Limit) -> pairs::Answered {
        let noise = self.noise.as_ref();
        let answered = self.found.answer(limit, noise);
        let is_so = |moved: &Comparison| moved.answer(limit, noise).answer == answered.answer;
        match &self.moved {
            Some((moved, doubt)) if answered.doubt.is_none() && !moved.iter().all(is_so) => {
                let (answer, doubt) = (pairs::Answer::Undecided, Some(*doubt));
                pairs::Answered { answer, doubt, ..answered }
            }
            _ => answered,
        }
    }
}

/// The look that a demand rests on: that at the comparison of the same two, or else at the arm's with the base, and at
/// the twin's where there is the base alone. Of a metric that is not compared it is one of another:
/// [`beside_comparisons`] has counted each such demand, so that its part of the error rate is small enough.
fn look_of(goal: &Goal, (arm, over): Sides, findings: &[Finding]) -> Option<Look> {
    let of_base = over.filter(|over| arm.0 == 0 && over.1 == arm.1).map_or(1, |over| over.0);
    let looked = if arm.0 == 0 { of_base } else { arm.0 };
    let of_arm = || {
        let at = findings.iter().filter(move |f| (f.arm, f.load) == (looked, arm.1));
        at.filter_map(|f| Some((f, f.limit_look.filter(|look| look.number > 0)?)))
    };
    let own = of_arm().find(|(finding, _)| finding.metric == goal.metric.name());
    own.or_else(|| of_arm().next()).map(|(_, look)| look)
}

/// How many goals and claims on metrics with, or without, a load look at what is no comparison of an arm with the base
/// in one of `metrics`.
pub(super) fn beside_comparisons(
    scenario: &Scenario,
    metrics: &[Metric],
    has_no_load: bool,
) -> usize {
    let base = scenario.arms.first().map(|arm| arm.name.as_str());
    let is_compared = |goal: &&Goal| {
        let names = [Some(goal.arm.as_str()), goal.over.as_deref()];
        goal.over.is_some() && names.contains(&base) && metrics.contains(&goal.metric)
    };
    let all = demands(scenario).filter(|goal| goal.metric.has_no_load() == has_no_load);
    all.filter(|goal| !is_compared(goal)).count()
}

/// The goals, and the claims that a race may answer.
fn demands(scenario: &Scenario) -> impl Iterator<Item = &Goal> {
    let of_claims = scenario.claims.iter().filter_map(|claim| match &claim.answer {
        Answer::Race(test) => Some(test),
        _ => None,
    });
    scenario.goals.iter().chain(of_claims)
}

/// How many of the goals and claims that are set against a rate, a searched one too, or a cost are not decided, and how
/// many there are: as long as one is not, more pairs may decide it.
pub(super) fn undecided_limits(
    field: &Field<'_>,
    data: Data<'_>,
    findings: &[Finding],
    scenario: &Scenario,
) -> [usize; 2] {
    // As of findings: tails and losses come along as precise as they are.
    let is_awaited = |goal: &&Goal| {
        matches!(goal.metric, Metric::Rate | Metric::Cpu | Metric::PerCpu | Metric::CpuUsed)
            || goal.metric.is_searched()
    };
    let tests = demands(scenario).filter(is_awaited);
    let figures = tests.filter_map(|goal| {
        let sides = field.sides(goal).ok()?;
        Some((goal, Figure::of(goal, sides, data, findings, scenario)?))
    });
    let is_open = |(goal, figure): (&Goal, Figure)| {
        let answers = figure.answers(goal);
        all(answers.iter().map(|(_, it)| it.answer)) == pairs::Answer::Undecided
    };
    let open: Vec<bool> = figures.map(is_open).collect();
    [open.iter().filter(|open| **open).count(), open.len()]
}

fn judge(goal: &Goal, result: &RaceResult, trials: &[Trial], scenario: &Scenario) -> DemandAnswer {
    let data = Data { segments: &result.segments, trials };
    if result.drift.as_ref().is_some_and(|drift| !drift.is_absorbed) {
        return DemandAnswer::Undecided(
            "the base's own cost drifted faster than pairs absorb".to_owned(),
        );
    }
    let (arm, over) = match Field::of(result).sides(goal) {
        Ok(sides) => sides,
        Err(answer) => return answer,
    };
    let Some(figure) = Figure::of(goal, (arm, over), data, &result.findings, scenario) else {
        return DemandAnswer::Undecided("nothing of it can be compared".to_owned());
    };
    let found = &figure.found;
    let (Some(estimate), Some(interval)) = (found.estimate, found.interval) else {
        let doubt = found.judge(None).doubt.map_or_else(String::new, |doubt| format!(": {doubt}"));
        return DemandAnswer::Undecided(format!("no interval{doubt}"));
    };
    let percent = confidence_percent(interval.confidence);
    let pairs = found.effects.len();
    let unit = |value: f64| goal.metric.in_unit(&short(value));
    let measured = match over {
        Some(_) if goal.above.is_some() => format!(
            "{} above it ({} to {}, {percent} % confidence, {pairs} pairs)",
            unit(estimate),
            short(interval.lower),
            short(interval.upper),
        ),
        Some(_) => format!(
            "{estimate:.3} times ({:.3} to {:.3}, {percent} % confidence, {pairs} pairs)",
            interval.lower, interval.upper,
        ),
        None => format!(
            "{} ({} to {}, {percent} % confidence, {pairs} {})",
            unit(estimate),
            short(interval.lower),
            short(interval.upper),
            if goal.metric.has_no_load() { "generations" } else { "segments" },
        ),
    };
    let answered = figure.answers(goal);
    let bounded = |&(limit, it): &(Limit, pairs::Answered)| {
        bounded(goal, result, arm, over, (limit, it.answer))
    };
    let answer = all(answered.iter().map(bounded));
    let ends = open_ends(goal, result, arm, over);
    let doubt = answered.iter().find_map(|(_, it)| it.doubt.as_ref());
    let doubt = doubt.filter(|_| ends.is_empty() && answer == pairs::Answer::Undecided);
    let doubt = doubt.map_or_else(String::new, |doubt| format!("; {}", undecided(doubt, goal)));
    DemandAnswer::Measured(measured + &ends + &doubt, answer)
}

/// Why a figure with an interval answers nothing.
fn undecided(doubt: &Doubt, goal: &Goal) -> String {
    match *doubt {
        Doubt::AcrossLimit { margin, .. } if goal.over.is_some() && margin > 0.0 => format!(
            "the interval is not beyond the limit by more than the base differs from itself, {:.2} %",
            margin * 100.0
        ),
        Doubt::AcrossLimit { .. } => "the interval reaches across the limit".to_owned(),
        ref other => other.to_string(),
    }
}

/// How the values that a demand is about are compared: what is to be no more than so much above another arm's, by
/// difference, to as small a share of that limit as matters of a ratio.
fn rule_of(goal: &Goal, scenario: &Scenario) -> Rule {
    let rule = rule(goal.metric, scenario);
    let limit = goal.at_most.or(goal.at_least).filter(|_| goal.above.is_some());
    limit.map_or(rule, |limit| Rule::difference(rule.direction, limit.abs() * scenario.matters))
}

/// The values of one arm, each against one unit.
fn alone(data: Data<'_>, metric: Metric, side: Side) -> Vec<Pair> {
    let unit = if metric.is_loss() { 0.0 } else { 1.0 };
    let pairs = paired(data, metric, [side, side]);
    pairs.into_iter().map(|pair| Pair { base: Some(unit), ..pair }).collect()
}

/// The answer to several limits: within all, or beyond one.
fn all(answers: impl Iterator<Item = pairs::Answer>) -> pairs::Answer {
    use pairs::Answer::{Met, Missed, Undecided};
    answers.fold(Met, |all, answer| match (all, answer) {
        (Missed, _) | (_, Missed) => Missed,
        (Undecided, _) | (_, Undecided) => Undecided,
        (Met, Met) => Met,
    })
}

/// A figure with as many digits as say something.
fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 0.001 => format!("{value:.2e}"),
        size if size < 10.0 => format!("{value:.4}"),
        size if size < 1_000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Why the figure of an arm may be higher than it is.
#[derive(Clone, Copy)]
enum Open {
    /// A rate at the saturating load is a capacity only where the arm was saturated.
    Unsaturated,
    Client,
    Search,
}

impl Open {
    /// What to say of a figure, or two, that bounds from one side only.
    fn words(self, [arm, over]: [bool; 2]) -> &'static str {
        match (self, arm, over) {
            (Open::Unsaturated, true, true) => "neither was saturated: the generator is the limit",
            (Open::Unsaturated, true, false) => "or more: the arm was not saturated",
            (Open::Unsaturated, ..) => "or less: the other arm was not saturated",
            (Open::Client, true, true) => "the client was the limit of both, not the arms",
            (Open::Client, true, false) => "or more: the client was the limit, not the arm",
            (Open::Client, ..) => "or less: the client was the limit of the other arm",
            (Open::Search, true, true) => "searches of both had no upper end",
            (Open::Search, true, false) => "or more: a search had no upper end",
            (Open::Search, ..) => "or less: a search of the other arm had no upper end",
        }
    }
}

/// Whether, and why, the figure of an arm and that of the other may be higher than they are.
fn open(goal: &Goal, result: &RaceResult, arm: Side, over: Option<Side>) -> [Option<Open>; 2] {
    let is_capacity = goal.metric == Metric::Rate && goal.load_pps.is_none();
    let open = |side: Side| match limiter(result, goal.metric.name(), side) {
        Some(Limiter::Client) => Some(Open::Client),
        Some(Limiter::Search) => Some(Open::Search),
        Some(Limiter::Generator) | None => {
            (is_capacity && !is_saturated(result, side.0, side.1)).then_some(Open::Unsaturated)
        }
    };
    [open(arm), over.and_then(open)]
}

/// Whether what an arm took at the load is as much the generator's doing, or what the other did at its.
fn lacks_headroom(goal: &Goal, result: &RaceResult, arm: Side, over: Option<Side>) -> bool {
    let is_limit = |side| limiter(result, goal.metric.name(), side) == Some(Limiter::Generator);
    is_limit(arm) || over.is_some_and(is_limit)
}

/// What to say of a figure that bounds from one side only.
fn open_ends(goal: &Goal, result: &RaceResult, arm: Side, over: Option<Side>) -> String {
    if lacks_headroom(goal, result, arm, over) {
        return "; the generator has no headroom there: it is the limit".to_owned();
    }
    let open = open(goal, result, arm, over);
    let why = open.into_iter().flatten().next();
    let words = why.map(|why| format!("; {}", why.words(open.map(|end| end.is_some()))));
    words.unwrap_or_default()
}

/// What is more, or less, than was measured may be beyond any limit.
fn bounded(
    goal: &Goal,
    result: &RaceResult,
    arm: Side,
    over: Option<Side>,
    (limit, answer): (Limit, pairs::Answer),
) -> pairs::Answer {
    if lacks_headroom(goal, result, arm, over) {
        return pairs::Answer::Undecided;
    }
    let [above, below] = open(goal, result, arm, over).map(|end| end.is_some());
    let is_at_most = matches!(limit, Limit::AtMost(_));
    match answer {
        pairs::Answer::Met if !(if is_at_most { above } else { below }) => answer,
        pairs::Answer::Missed if !(if is_at_most { below } else { above }) => answer,
        _ => pairs::Answer::Undecided,
    }
}

#[cfg(test)]
mod tests;
