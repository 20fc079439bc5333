//! From segments to findings, faults, goals and the outcome. Pure: everything here can be done again
//! from the files of a race.

use super::searched;
use crate::client::WRONG;
use crate::result::{
    Disturber, Finding, GoalStatus, Ledger, Memory, Outcome, RaceResult, Segment, Summary,
};
use crate::round_trips::RoundTrips;
use crate::scenario::Scenario;
use crate::trial::Trial;
use laneway_kinds::Metric;
use laneway_stats::limits::WHOLE_PAIRS_SHARE_MIN;
use laneway_stats::pairs::{Comparison, Judgement, Pair, information};
use laneway_stats::{
    Direction, Family, Latency, LatencySummary, Look, Looks, Rule, Spending, Verdict, quantile,
};
use std::collections::{BTreeMap, BTreeSet};

/// The error rate of the verdicts on one metric, over all arms, loads and looks.
const ALPHA: f64 = 0.05;
/// A difference in loss below this share does not matter.
const LOSS_MATTERS: f64 = 0.001;
/// Largest share of a generation's rounds that may be warm-up.
const WARM_UP_MAX: f64 = 0.34;
/// An arm that lost less than this share of the saturating load was not saturated: what it took is what
/// the generator sent.
const SATURATED_LOSS_MIN: f64 = 0.01;

/// How a metric is compared.
pub(super) fn rule(metric: Metric, scenario: &Scenario) -> Rule {
    let matters = scenario.matters;
    let relative = Rule { threshold_min: matters, half_width_target: matters, ..Rule::COST };
    match metric {
        Metric::Rate | Metric::PerCpu => Rule { direction: Direction::HigherIsBetter, ..relative },
        Metric::Capacity | Metric::ZeroLoss => Rule {
            direction: Direction::HigherIsBetter,
            half_width_target: matters * 2.0,
            resolution: searched::resolution(scenario),
            ..relative
        },
        _ if metric.is_loss() => Rule::difference(Direction::LowerIsBetter, LOSS_MATTERS),
        // A tail is estimated from a hundredth of the samples, and so is what rests on a few pings.
        _ if is_of_trial(metric) => Rule { half_width_target: matters * 2.0, ..relative },
        _ => relative,
    }
}

/// Whether a segment is too short for the metric: it is one of all segments of a generation.
fn is_of_trial(metric: Metric) -> bool {
    use Metric::{AppOnly, ArrivalP99, RttP99, RttP999, WireToApp};
    let is_far_out = matches!(metric, WireToApp | AppOnly | RttP99 | RttP999 | ArrivalP99);
    is_far_out || metric.has_no_load()
}

/// A percentile that one in so many lies beyond, ns; `None` where it has too few samples. Where as many had no end it
/// is no number: were it missing, an arm would be judged by what it was quick with.
fn percentile(summary: &LatencySummary, ns: Option<u64>, one_in: u64) -> Option<f64> {
    ns.map(|ns| ns as f64).or_else(|| summary.is_endless(one_in).then_some(f64::INFINITY))
}

/// A metric's value in one trial, of the segments that can be used; `None` where they have too few samples.
fn of_trial(metric: Metric, trial: &Trial, load: usize) -> Option<f64> {
    let p99 = |latency: &Latency| {
        let summary = latency.summary();
        percentile(&summary, summary.p99_ns, 100)
    };
    let pings = || Some(trial.ping.as_ref()?.round_trips.figures());
    match metric {
        Metric::WireToApp => p99(trial.wire_to_app.get(load)?),
        Metric::AppOnly => p99(trial.app_only.get(load)?),
        Metric::RttP99 => p99(trial.round_trips.get(load)?.latency()),
        Metric::RttP999 => {
            let summary = trial.round_trips.get(load)?.latency().summary();
            percentile(&summary, summary.p999_ns, 1_000)
        }
        Metric::ArrivalP99 => p99(trial.due_to_arrival.get(load)?.latency()),
        Metric::PingAvg => pings()?.avg_ns,
        Metric::PingMin => Some(pings()?.summary.min_ns? as f64),
        Metric::PingMax => Some(pings()?.summary.max_ns? as f64),
        Metric::PingMdev => pings()?.mdev_ns,
        _ => None,
    }
}

/// Whether the metric's figure may be made of this segment: what was disturbed has its CPU time.
fn is_used(metric: Metric, segment: &Segment) -> bool {
    segment.invalid.is_empty() && (metric.is_of_cpu() || segment.disturbed.is_none())
}

/// Where all went in the segments that the metric's figure of an arm at a load is made of; `None` where there are none.
pub(super) fn ledger_of(segments: &[Segment], metric: Metric, side: Side) -> Option<Ledger> {
    let mut used = measured(segments, side).filter(|s| is_used(metric, s)).peekable();
    used.peek()?;
    let mut sum = Ledger::default();
    used.for_each(|segment| add(&mut sum, &segment.ledger));
    sum.balance();
    Some(sum)
}

/// A metric's value in one segment; `None` if it cannot be used.
fn of_segment(metric: Metric, segment: &Segment) -> Option<f64> {
    if !is_used(metric, segment) {
        return None;
    }
    let Segment { cpu, ledger, generator, memory, .. } = segment;
    if metric.is_of_delivery() && ledger.unknown.is_some() {
        return None;
    }
    let median = |summary: &LatencySummary| percentile(summary, summary.p50_ns, 2);
    match metric {
        Metric::Rate => Some(segment.records_per_s),
        Metric::Cpu => ns_per_record(segment),
        Metric::PerCpu => ns_per_record(segment).filter(|ns| *ns > 0.0).map(|ns| 1e9 / ns),
        // The window is longer than the schedule, in which all of it was due.
        Metric::CpuUsed => (ledger.offered > 0)
            .then(|| cpu.own_ns as f64 / 1e9 * generator.asked_pps / ledger.packets() as f64),
        Metric::WireToAppP50 => median(&segment.wire_to_app?),
        Metric::RttP50 => median(&segment.rtt?.summary),
        Metric::ArrivalP50 => median(&segment.due_to_arrival?.summary),
        Metric::Loss => Some(ledger.loss_share()),
        Metric::LossOfOthers => ledger.loss_share_of_others(),
        Metric::RingMemory => {
            Some((memory.bpf_bytes + memory.socket_bytes + memory.locked_bytes) as f64)
        }
        Metric::Resident => Some((memory.rss_bytes + memory.huge_bytes) as f64),
        _ => None,
    }
}

/// CPU time per record: of what delivered nothing of what it was offered it is no number. Were it missing, an arm would
/// be judged by the segments in which it worked. Where something disturbed it, that it delivered nothing may be that.
fn ns_per_record(segment: &Segment) -> Option<f64> {
    let is_its_own = segment.ledger.offered > 0 && segment.disturbed.is_none();
    segment.cpu.ns_per_record.or_else(|| is_its_own.then_some(f64::INFINITY))
}

/// False for the latency of a load that is no schedule: it was not measured.
fn is_measured(segments: &[Segment], metric: Metric, load: usize) -> bool {
    let mut at_load = segments.iter().filter(|s| s.load == load);
    match metric {
        Metric::RttP50 | Metric::RttP99 | Metric::RttP999 => at_load.any(|s| s.rtt.is_some()),
        Metric::ArrivalP50 | Metric::ArrivalP99 => at_load.any(|s| s.due_to_arrival.is_some()),
        _ => true,
    }
}

/// False for what is unknown of an arm that does not report what it received.
fn is_known(segments: &[Segment], metric: Metric, arm: usize) -> bool {
    let mut of_arm = segments.iter().filter(|s| s.arm == arm);
    !metric.is_of_delivery() || of_arm.all(|s| s.ledger.unknown.is_none())
}

/// The segments of an arm at a load that are no warm-up, and were not replaced.
pub(super) fn measured(segments: &[Segment], (arm, load): Side) -> impl Iterator<Item = &Segment> {
    let counts = |s: &Segment| !s.warm_up && !s.replaced;
    segments.iter().filter(move |s| s.arm == arm && s.load == load && counts(s))
}

/// What was measured.
#[derive(Clone, Copy)]
pub(super) struct Data<'a> {
    pub(super) segments: &'a [Segment],
    pub(super) trials: &'a [Trial],
}

/// An arm at a load, both by their indexes.
pub(super) type Side = (usize, usize);

/// Two sides, generation by generation.
fn by_generation(trials: &[Trial], metric: Metric, [base, arm]: [Side; 2]) -> Vec<Pair> {
    let values = |(arm, load): Side| {
        let search = searched::search_of(metric);
        let is_cut_short = search.is_some_and(|of| searched::is_cut_short(trials, arm, of));
        let value = move |trial: &Trial| match search {
            Some(of) => searched::carried(of(trial)?, is_cut_short),
            None => of_trial(metric, trial, load),
        };
        let of_arm = trials.iter().filter(move |trial| trial.index == arm);
        of_arm.map(move |trial| (trial.generation, value(trial)))
    };
    let pairs = values(base).zip(values(arm));
    pairs.map(|((_, base), (generation, arm))| Pair { generation, base, arm }).collect()
}

/// Two sides, round by round.
fn by_round(
    segments: &[Segment],
    [base, arm]: [Side; 2],
    value: impl Fn(&Segment) -> Option<f64>,
) -> Vec<Pair> {
    let mut of_base = measured(segments, base).peekable();
    let pair = |segment: &Segment| {
        // Both are in order of round.
        while of_base.next_if(|s| s.round < segment.round).is_some() {}
        let base = of_base.peek().filter(|s| s.round == segment.round)?;
        Some(Pair { generation: segment.generation, base: value(base), arm: value(segment) })
    };
    measured(segments, arm).filter_map(pair).collect()
}

/// Two sides, whichever the metric's unit is.
pub(super) fn paired(data: Data<'_>, metric: Metric, sides: [Side; 2]) -> Vec<Pair> {
    match is_of_trial(metric) {
        true => by_generation(data.trials, metric, sides),
        false => by_round(data.segments, sides, |segment| of_segment(metric, segment)),
    }
}

/// Which comparison: its metric, arm and load.
type ComparisonKey = (&'static str, usize, usize);

/// Judges a race while it runs. The verdicts on a metric have an error rate of [`ALPHA`] for all its arms and loads
/// together, however often one looks; and so have the goals and claims on it.
pub(super) struct Judge {
    /// At each comparison: for its verdict, by what others handed on, and for limits, by its own part alone.
    looks: BTreeMap<ComparisonKey, [Looks; 2]>,
    /// Differences that were called: they are final, and hand their part of the error rate to the others.
    called: BTreeMap<ComparisonKey, Judgement>,
    /// The load at which every arm has a rate of its own: rates there are no finding.
    own_load: Option<usize>,
    /// Goals and claims that look at what is no comparison here: each has a part of the error rate of limits, too.
    beside: usize,
}

impl Judge {
    /// No look has been taken yet.
    pub(super) fn new(own_load: Option<usize>, beside: usize) -> Judge {
        Judge { looks: BTreeMap::new(), called: BTreeMap::new(), own_load, beside }
    }

    /// Every metric of every arm at every load against the base, when a `share` of the race's time has gone; the last
    /// look has 1.
    pub(super) fn look(
        &mut self,
        data: Data<'_>,
        [arms, loads]: [usize; 2],
        metrics: &[Metric],
        scenario: &Scenario,
        share: f64,
    ) -> Vec<Finding> {
        let mut findings = Vec::new();
        let own_load = self.own_load;
        for &metric in metrics {
            let is_known = |arm| is_known(data.segments, metric, arm);
            let is_given = |load| metric == Metric::Rate && own_load == Some(load);
            let is_measured =
                |&load: &usize| is_measured(data.segments, metric, load) && !is_given(load);
            for load in (0..loads).filter(is_measured).filter(|_| is_known(0)) {
                let others = (arms - 2) * loads;
                let twin = paired(data, metric, [(0, load), (1, load)]);
                let rule = rule(metric, scenario);
                let (noise, noise_look) =
                    self.compare((metric.name(), 1, load), &twin, rule, share, others);
                for arm in (1..arms).filter(|&arm| is_known(arm)) {
                    let place = (metric.name(), arm, load);
                    let (comparison, limit_look) = match arm {
                        1 => (noise.clone(), noise_look),
                        _ => {
                            let pairs = paired(data, metric, [(0, load), (arm, load)]);
                            self.compare(place, &pairs, rule, share, others)
                        }
                    };
                    let judgement = self.judge(place, &comparison, (arm > 1).then_some(&noise));
                    findings.push(Finding {
                        metric: metric.name().to_owned(),
                        unit: metric.unit().to_owned(),
                        arm,
                        load,
                        judgement,
                        is_decided: comparison.is_decided((arm > 1).then_some(&noise)),
                        comparison,
                        limit_look: Some(limit_look),
                    });
                }
            }
        }
        findings
    }

    /// One comparison among `others` of them, and the look at it that limits rest on.
    pub(super) fn compare(
        &mut self,
        place: ComparisonKey,
        pairs: &[Pair],
        rule: Rule,
        share: f64,
        others: usize,
    ) -> (Comparison, Look) {
        let is_of_family =
            |called: &&ComparisonKey| called.0 == place.0 && called.1 > 1 && **called != place;
        let called = self.called.keys().filter(is_of_family).count();
        let family = |n: usize| Family::new(ALPHA, n.max(1)).expect("a rate, and one at least");
        // The twin is the yardstick of verdicts, and no member of their family.
        let of_verdict = family(if place.1 == 1 { 1 } else { others }).alpha_each(called);
        // What is demanded of the base alone has the looks at the twin.
        let of_limits = family(others + self.beside).alpha_each(0);
        let new = || [(); 2].map(|()| Looks::new(Spending::default()));
        let [verdict, limits] = self.looks.entry(place).or_insert_with(new);
        let look = |looks: &mut Looks, alpha| {
            // Without a whole pair there is nothing to look at.
            let nothing = Look { number: 0, share, alpha, level: None };
            looks.look(share, information(pairs), alpha).unwrap_or(nothing)
        };
        let look_at_limits = look(limits, of_limits);
        let comparison = Comparison::of_pairs(pairs, rule, look(verdict, of_verdict));
        (comparison.expect("the scenario was checked"), look_at_limits)
    }

    /// A verdict; one of a difference is kept, once it was given.
    pub(super) fn judge(
        &mut self,
        place: ComparisonKey,
        comparison: &Comparison,
        noise: Option<&Comparison>,
    ) -> Judgement {
        let now = comparison.judge(noise);
        let is_difference = matches!(now.verdict, Verdict::Better | Verdict::Worse);
        match self.called.get(&place) {
            Some(called) if !is_difference => Judgement { threshold: now.threshold, ..*called },
            _ => {
                if is_difference {
                    self.called.insert(place, now);
                }
                now
            }
        }
    }
}

/// The findings that decide when a race has run long enough: cost and rate. Tails and losses come along as precise as
/// they are.
pub(super) fn awaited(findings: &[Finding]) -> impl Iterator<Item = &Finding> {
    let names = [Metric::Rate.name(), Metric::Cpu.name()];
    findings.iter().filter(move |finding| names.contains(&finding.metric.as_str()))
}

/// How many of those are not decided, and how many there are.
pub(super) fn undecided(findings: &[Finding]) -> [usize; 2] {
    let open = awaited(findings).filter(|finding| !finding.is_decided);
    [open.count(), awaited(findings).count()]
}

/// Marks the rounds of a generation in which its arms were not yet what they are later: as many of the first as make
/// the mean of the rest surest (MSER: White, "An Effective Truncation Heuristic for Bias Reduction in Simulation
/// Output", 1997), the same for all arms. The first round behind them.
pub(super) fn mark_warm_up(segments: &mut [Segment]) -> usize {
    let Some(first) = segments.iter().map(|s| s.round).min() else { return 0 };
    let rounds = segments.iter().map(|s| s.round + 1 - first).max().unwrap_or(0);
    let mut costs = vec![Vec::new(); rounds];
    let places: BTreeSet<(usize, usize)> = segments.iter().map(|s| (s.arm, s.load)).collect();
    for (arm, load) in places {
        let of = || measured(segments, (arm, load)).filter_map(|s| Some((s, s.cpu.ns_per_record?)));
        let usual: Vec<f64> = of().map(|(_, ns)| ns).collect();
        let Ok(usual) = quantile(&usual, 0.5) else { continue };
        for (segment, ns) in of().filter(|(s, ns)| s.invalid.is_empty() && *ns > 0.0) {
            costs[segment.round - first].push((ns / usual).ln());
        }
    }
    let means: Vec<f64> =
        costs.iter().map(|c| c.iter().sum::<f64>() / c.len().max(1) as f64).collect();
    let warm = first + warm_up(&means);
    segments.iter_mut().filter(|s| s.round < warm).for_each(|s| s.warm_up = true);
    warm
}

/// How many of the first values are left out.
fn warm_up(values: &[f64]) -> usize {
    let most = (values.len() as f64 * WARM_UP_MAX) as usize;
    let doubt = |skipped: usize| {
        let rest = &values[skipped..];
        let n = rest.len() as f64;
        let mean = rest.iter().sum::<f64>() / n;
        rest.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n * n)
    };
    (0..=most).min_by(|&a, &b| doubt(a).total_cmp(&doubt(b))).unwrap_or(0)
}

/// Arms and loads of whose segments, or of whose pairs with the base, too few can be used; and the reason. A pair needs
/// both, so that fewer pairs than segments are whole.
pub(super) fn too_few(segments: &[Segment], names: &[String], loads: &[String]) -> Vec<String> {
    let mut all = Vec::new();
    for (load, at) in loads.iter().enumerate() {
        let base: Vec<&Segment> = measured(segments, (0, load)).collect();
        let few_of_base = few_segments(&base);
        all.extend(few_of_base.iter().map(|few| format!("{} at {at}: {few}", names[0])));
        for (arm, name) in names.iter().enumerate().skip(1) {
            let of: Vec<&Segment> = measured(segments, (arm, load)).collect();
            let few = few_segments(&of).or_else(|| {
                let sides = [(0, load), (arm, load)];
                // Where the base has too few, that says it of all its pairs.
                let few = few_of_base.is_none().then(|| few_pairs(segments, sides))??;
                let both: Vec<&Segment> = base.iter().chain(&of).copied().collect();
                Some(format!("{few}: {}", why_left_out(&both)))
            });
            all.extend(few.map(|few| format!("{name} at {at}: {few}")));
        }
    }
    all
}

/// That too few of these segments can be used, if so, and why.
fn few_segments(of: &[&Segment]) -> Option<String> {
    let gone = of.iter().filter(|s| !s.invalid.is_empty() || s.disturbed.is_some()).count();
    let n = of.len();
    is_too_few(n - gone, n).then(|| {
        let why = why_left_out(of);
        format!("{gone} of {n} segments cannot be used, or only for CPU time: {why}")
    })
}

/// That too few pairs have two segments that can be used, if so.
fn few_pairs(segments: &[Segment], sides: [Side; 2]) -> Option<String> {
    let pairs = by_round(segments, sides, |segment| segment.invalid.is_empty().then_some(1.0));
    let whole = pairs.iter().filter(|pair| pair.base.and(pair.arm).is_some()).count();
    let n = pairs.len();
    let sentence = || format!("{whole} of {n} pairs with the base have two segments of use");
    is_too_few(whole, n).then(sentence)
}

/// A verdict needs more.
fn is_too_few(whole: usize, all: usize) -> bool {
    (whole as f64) < WHOLE_PAIRS_SHARE_MIN * all as f64
}

/// Why some of these segments are left out.
fn why_left_out(of: &[&Segment]) -> String {
    let late = of.iter().find_map(|s| s.invalid.first()).cloned();
    let first = |by| disturbed_by(by, of).find_map(|s| s.disturbed.clone());
    let [arms, lost] = [Disturber::Arms, Disturber::Cable].map(first);
    let why = [busy(of), arms, taken(of), lost, late];
    why.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn disturbed_by<'a>(by: Disturber, segments: &[&'a Segment]) -> impl Iterator<Item = &'a Segment> {
    segments.iter().copied().filter(move |segment| segment.disturbed_by == Some(by))
}

/// The CPU that the hypervisor took away first, and in how many segments more; `None` where it disturbed none.
fn taken(segments: &[&Segment]) -> Option<String> {
    let mut of = disturbed_by(Disturber::Hypervisor, segments);
    let first = of.next()?.disturbed.as_ref()?;
    Some(match of.count() {
        0 => first.clone(),
        more => format!("{first}, and a CPU in {more} more of them"),
    })
}

/// How much of a CPU other programs used beside the race, and which used most; `None` where none disturbed it.
fn busy(segments: &[&Segment]) -> Option<String> {
    disturbed_by(Disturber::Programs, segments).next()?;
    let window_ns: u64 = segments.iter().map(|s| s.window_ns).sum();
    let foreign_ns: u64 = segments.iter().map(|s| s.cpu.foreign_ns).sum();
    let mut names = BTreeMap::<&str, u64>::new();
    for (name, ns) in segments.iter().flat_map(|s| &s.cpu.foreigners) {
        *names.entry(name).or_default() += ns;
    }
    let most = names.into_iter().max_by_key(|(_, ns)| *ns);
    let who = most.map_or_else(String::new, |(name, _)| format!(", most of it `{name}`"));
    let share = foreign_ns as f64 / window_ns.max(1) as f64;
    Some(format!("other programs used {:.0} % of a CPU{who}", share * 100.0))
}

/// How many segments were left out, and why, in a sentence for each kind of reason.
pub(super) fn left_out(segments: &[Segment]) -> Vec<String> {
    let all = segments.len();
    let mut notes = Vec::new();
    let invalid = |is_replaced: bool| {
        let of = segments.iter().filter(move |s| s.replaced == is_replaced);
        of.filter_map(|s| s.invalid.first()).collect::<Vec<&String>>()
    };
    let again = invalid(true);
    if let Some(first) = again.first() {
        notes.push(format!(
            "{} of {all} segments were left out and offered once more in the same round; the first: {first}",
            again.len()
        ));
    }
    let gone = invalid(false);
    if let Some(first) = gone.first() {
        notes.push(format!("{} of {all} segments were left out; the first: {first}", gone.len()));
    }
    let every: Vec<&Segment> = segments.iter().collect();
    for (by, why) in [
        (Disturber::Programs, "because other programs ran (their CPU time is in no figure)"),
        (Disturber::Arms, "because other arms ran (their CPU time is in no figure)"),
        (Disturber::Hypervisor, "because the hypervisor took a CPU away (their CPU time is used)"),
        (Disturber::Cable, "because the cable dropped packets (their CPU time is used)"),
    ] {
        let reasons = disturbed_by(by, &every).filter_map(|segment| segment.disturbed.as_ref());
        let reasons: Vec<&String> = reasons.collect();
        if let Some(first) = reasons.first() {
            let n = reasons.len();
            notes.push(format!(
                "rate, loss and latency of {n} of {all} segments were left out, {why}; the first: {first}"
            ));
        }
    }
    notes.extend(metering(segments));
    notes.extend(interrupted(segments));
    let warm = segments.iter().filter(|s| s.warm_up).count();
    if warm > 0 {
        notes.push(format!("{warm} of {all} segments were warm-up, and were left out"));
    }
    notes
}

/// How much of the arms' CPU time is the meter's, from the arm that it burdens least to the one that it burdens most.
fn metering(segments: &[Segment]) -> Option<String> {
    let mut by_arm = BTreeMap::<usize, (u64, u64)>::new();
    for segment in segments {
        let (metering_ns, own_ns) = by_arm.entry(segment.arm).or_default();
        *metering_ns += segment.cpu.metering_ns?;
        *own_ns += segment.cpu.own_ns;
    }
    let shares = by_arm.into_values().filter(|(_, own_ns)| *own_ns > 0);
    let percent: Vec<f64> =
        shares.map(|(metering_ns, own_ns)| metering_ns as f64 * 100.0 / own_ns as f64).collect();
    let least = percent.iter().copied().reduce(f64::min)?;
    let most = percent.iter().copied().reduce(f64::max)?;
    Some(format!(
        "the meter's own work is about {least:.1} to {most:.1} % of an arm's CPU time, and inside it"
    ))
}

/// What interrupted an arm's own tasks and has no known cause as a share of its own CPU time: the median of these
/// segments; `None` where it is not known.
pub(super) fn beside_share<'a>(segments: impl Iterator<Item = &'a Segment>) -> Option<f64> {
    let of_use = segments.filter(|segment| segment.cpu.own_ns > 0);
    let share = |s: &Segment| Some(s.cpu.beside_ns? as f64 / s.cpu.own_ns as f64);
    quantile(&of_use.filter_map(share).collect::<Vec<_>>(), 0.5).ok()
}

/// How much interrupted the arms' own tasks, and has no known cause, from the arm with the least to that with the most.
fn interrupted(segments: &[Segment]) -> Option<String> {
    let arms: BTreeSet<usize> = segments.iter().map(|segment| segment.arm).collect();
    let of_use = |s: &&Segment| s.invalid.is_empty() && !s.warm_up;
    let of_arm = |arm| segments.iter().filter(move |s| s.arm == arm).filter(of_use);
    let percent: Vec<f64> =
        arms.into_iter().filter_map(|arm| Some(beside_share(of_arm(arm))? * 100.0)).collect();
    let least = percent.iter().copied().reduce(f64::min)?;
    let most = percent.iter().copied().reduce(f64::max)?;
    Some(format!(
        "interrupts and softirqs of unknown cause that interrupted an arm's own tasks are {least:.1} to {most:.1} % of its CPU \
         time, and in no figure: a verdict or an answer on CPU time holds with them. That is no upper bound: what interrupts an \
         idle CPU is among `unattributed, of the host`"
    ))
}

/// The arms of which nothing arrived at all, a sentence each: where most of what they were offered was lost.
pub(super) fn silent(segments: &[Segment], names: &[String]) -> Vec<String> {
    let of = |(arm, name): (usize, &String)| {
        let mut sum = Ledger::default();
        let ledgers = segments.iter().filter(|s| s.arm == arm).map(|s| &s.ledger);
        ledgers.for_each(|ledger| add(&mut sum, ledger));
        if sum.offered == 0 || sum.delivered > 0 || sum.unknown.is_some() {
            return None;
        }
        let most = sum.drops.iter().max_by_key(|(_, n)| **n);
        let place = most.map_or(String::new(), |(place, n)| format!(", {n} of them as `{place}`"));
        Some(format!(
            "nothing arrived from arm `{name}`: all {} that it was offered were lost{place}; compare it with nothing, and try \
             its command by hand",
            sum.offered
        ))
    };
    names.iter().enumerate().filter_map(of).collect()
}

/// Per arm and load, over all rounds.
pub(super) fn summaries(
    segments: &[Segment],
    trials: &[Trial],
    arms: usize,
    loads: usize,
) -> Vec<Summary> {
    let mut summaries = Vec::new();
    for arm in 0..arms {
        for load in 0..loads {
            let of: Vec<&Segment> =
                segments.iter().filter(|s| s.arm == arm && s.load == load).collect();
            let mut ledger = Ledger::default();
            let mut memory = Memory::default();
            for segment in &of {
                add(&mut ledger, &segment.ledger);
                largest(&mut memory, &segment.memory);
            }
            ledger.balance();
            let (mut wire_to_app, mut app_only) = (Latency::new(), Latency::new());
            let [mut round_trips, mut ways]: [Option<RoundTrips>; 2] = [None, None];
            for trial in trials.iter().filter(|trial| trial.index == arm) {
                trial.wire_to_app.get(load).inspect(|l| wire_to_app.merge(l));
                trial.app_only.get(load).inspect(|l| app_only.merge(l));
                if let Some(trips) = trial.round_trips.get(load) {
                    round_trips.get_or_insert_default().merge(trips);
                }
                if let Some(trips) = trial.due_to_arrival.get(load) {
                    ways.get_or_insert_default().merge(trips);
                }
            }
            // Of an app that ticks nothing off, nothing is known of its inside.
            let looks_inside = of.iter().any(|segment| segment.wire_to_app.is_some());
            let usable: Vec<&&Segment> =
                of.iter().filter(|s| s.invalid.is_empty() && !s.warm_up).collect();
            // What other programs took away is no rate of the arm's.
            let whole = usable.iter().filter(|s| s.disturbed.is_none());
            let known = whole.filter(|s| s.ledger.unknown.is_none());
            let rates: Vec<f64> = known.map(|s| s.records_per_s).collect();
            let costs: Vec<f64> = usable.iter().filter_map(|s| s.cpu.ns_per_record).collect();
            summaries.push(Summary {
                arm,
                load,
                ledger,
                used: ledger_of(segments, Metric::Loss, (arm, load)),
                records_per_s: spread(&rates),
                cpu_ns_per_record: spread(&costs),
                contexts_ns_per_record: contexts_ns_per_record(segments, (arm, load)),
                wire_to_app: looks_inside.then(|| wire_to_app.summary()),
                wire_to_app_curve: wire_to_app.curve(),
                app_only: looks_inside.then(|| app_only.summary()),
                app_only_curve: app_only.curve(),
                rtt: round_trips.as_ref().map(RoundTrips::figures),
                rtt_curve: round_trips.map_or_else(Vec::new, |trips| trips.latency().curve()),
                due_to_arrival: ways.as_ref().filter(|w| w.n() > 0).map(RoundTrips::figures),
                due_to_arrival_curve: ways.map_or_else(Vec::new, |ways| ways.latency().curve()),
                memory,
            });
        }
    }
    summaries
}

/// CPU time by context, of the segments that the figure of CPU time is made of.
fn contexts_ns_per_record(segments: &[Segment], side: Side) -> BTreeMap<String, f64> {
    let mut contexts = BTreeMap::<String, f64>::new();
    for segment in measured(segments, side).filter(|s| is_used(Metric::Cpu, s)) {
        for (context, &ns) in &segment.cpu.contexts_ns {
            *contexts.entry(context.clone()).or_default() += ns as f64;
        }
    }
    let records =
        ledger_of(segments, Metric::Cpu, side).map_or(1, |ledger| ledger.paid_for().max(1));
    contexts.values_mut().for_each(|ns| *ns /= records as f64);
    contexts
}

fn add(sum: &mut Ledger, ledger: &Ledger) {
    sum.offered += ledger.offered;
    sum.delivered += ledger.delivered;
    sum.unknown = sum.unknown.map_or(ledger.unknown, |sum| Some(sum + ledger.unknown.unwrap_or(0)));
    sum.duplicates += ledger.duplicates;
    sum.reordered += ledger.reordered;
    sum.foreign += ledger.foreign;
    sum.copies = ledger.copies.or(sum.copies);
    sum.trains += ledger.trains;
    sum.in_trains += ledger.in_trains;
    sum.is_first_limited |= ledger.is_first_limited;
    sum.loops += ledger.loops;
    sum.loops_broken += ledger.loops_broken;
    sum.by_cable.resize(sum.by_cable.len().max(ledger.by_cable.len()), 0);
    for (sum, copies) in sum.by_cable.iter_mut().zip(&ledger.by_cable) {
        *sum += copies;
    }
    for (what, copies) in &ledger.wrong {
        *sum.wrong.entry(what.clone()).or_default() += copies;
    }
    for (place, frames) in &ledger.drops {
        *sum.drops.entry(place.clone()).or_default() += frames;
    }
}

fn largest(most: &mut Memory, memory: &Memory) {
    most.rss_bytes = most.rss_bytes.max(memory.rss_bytes);
    most.locked_bytes = most.locked_bytes.max(memory.locked_bytes);
    most.huge_bytes = most.huge_bytes.max(memory.huge_bytes);
    most.bpf_bytes = most.bpf_bytes.max(memory.bpf_bytes);
    most.socket_bytes = most.socket_bytes.max(memory.socket_bytes);
}

pub(super) fn spread(values: &[f64]) -> Option<[f64; 3]> {
    let at = |q| quantile(values, q).ok();
    Some([at(0.5)?, at(0.0)?, at(1.0)?])
}

/// Everything that makes the run invalid.
pub(super) fn faults(
    segments: &[Segment],
    trials: &[Trial],
    names: &[String],
    loads: &[String],
) -> Vec<String> {
    let mut faults = Vec::new();
    let place = |s: &Segment| format!("round {}, {} at {}", s.round, names[s.arm], loads[s.load]);
    for segment in segments {
        let ledger = &segment.ledger;
        if ledger.duplicates > 0 {
            faults.push(format!(
                "{}: {} frames were delivered twice",
                place(segment),
                ledger.duplicates
            ));
        }
        for (what, n) in &ledger.wrong {
            faults.push(format!("{}: {n} copies {what}", place(segment)));
        }
        if ledger.unexplained != 0 {
            faults.push(format!(
                "{}: the ledger is open, {} of {} frames are unexplained",
                place(segment),
                ledger.unexplained,
                ledger.offered
            ));
        }
    }
    faults.extend(wrong_answers(segments, &place));
    faults.extend(disagreements(trials, loads));
    faults
}

/// Answers that a client did not ask for, or that were not what they must be.
fn wrong_answers(segments: &[Segment], place: &impl Fn(&Segment) -> String) -> Vec<String> {
    let mut faults = Vec::new();
    for segment in segments.iter().filter(|segment| segment.connections.is_some()) {
        let ledger = &segment.ledger;
        if let Some(n) = ledger.drops.get(WRONG) {
            faults.push(format!("{}: {n} requests were answered wrongly", place(segment)));
        }
        if ledger.foreign > 0 {
            let n = ledger.foreign;
            faults.push(format!("{}: {n} answers without a request", place(segment)));
        }
    }
    faults
}

/// Arms that delivered every frame of a load must have delivered the same features.
fn disagreements(trials: &[Trial], loads: &[String]) -> Vec<String> {
    let mut faults = Vec::new();
    for (load, at) in loads.iter().enumerate() {
        let mut first: Option<(&Trial, (u64, u64))> = None;
        let all = trials.iter().flat_map(|trial| {
            let segments = trial.segments.iter().zip(&trial.checksums);
            segments.filter(|(s, _)| s.load == load).map(move |(s, sum)| (trial, s, *sum))
        });
        for (trial, segment, sum) in all {
            let complete = segment.ledger.delivered == segment.ledger.offered
                && segment.ledger.duplicates == 0;
            // A peer samples nothing: it is known by its counters only.
            if !complete || sum.0 == 0 {
                continue;
            }
            match first {
                None => first = Some((trial, sum)),
                Some((other, expected)) if sum != expected => {
                    faults.push(format!(
                        "at {at} {} and {} delivered every frame but not the same features",
                        other.arm, trial.arm
                    ));
                    break;
                }
                Some(_) => {}
            }
        }
    }
    faults
}

/// The arms that the saturating load did not saturate, a sentence for all of them.
pub(super) fn unsaturated(result: &RaceResult) -> Option<String> {
    // In a closed loop nothing is offered that is not taken.
    let pps = result.saturating_pps.filter(|_| !result.closed_loop)?;
    let load = load_of(result, None)?;
    let arms: Vec<&str> = (0..result.arms.len())
        .filter(|&arm| !is_saturated(result, arm, load))
        .map(|arm| result.arms[arm].name.as_str())
        .collect();
    (!arms.is_empty()).then(|| {
        let load = if result.topspeed {
            "at top speed".to_owned()
        } else {
            format!("at {pps}/s, the saturating load,")
        };
        format!(
            "{load} {} lost less than {:.0} %: what they took there is what the \
             generator sent, and they can do that much or more",
            arms.join(", "),
            SATURATED_LOSS_MIN * 100.0
        )
    })
}

/// Whether the arm took less than it was offered; in a closed loop, it always takes what it can.
pub(super) fn is_saturated(result: &RaceResult, arm: usize, load: usize) -> bool {
    if result.closed_loop {
        return true;
    }
    let ledger = ledger_of(&result.segments, Metric::Rate, (arm, load));
    ledger.is_some_and(|ledger| ledger.loss_share() >= SATURATED_LOSS_MIN)
}

/// The index of a load, `None` being the saturating one; `None` if it was not offered.
pub(super) fn load_of(result: &RaceResult, load_pps: Option<u64>) -> Option<usize> {
    let pps = load_pps.or(result.saturating_pps)?;
    result.loads_pps.iter().position(|&offered| offered == pps)
}

/// How it all ended.
pub(super) fn outcome(result: &RaceResult) -> Outcome {
    let any = |status| result.goals.iter().any(|goal| goal.status == status);
    // The noise floor of what every report leads with: does the base agree with itself?
    let noise_differs = result
        .findings
        .iter()
        .filter(|f| result.arms.get(f.arm).is_some_and(|arm| arm.is_noise_floor))
        .filter(|f| f.metric == Metric::Cpu.name())
        .any(|f| matches!(f.judgement.verdict, Verdict::Better | Verdict::Worse));
    if !result.invalid.is_empty() {
        Outcome::Invalid
    } else if any(GoalStatus::Missed) {
        Outcome::GoalMissed
    } else if result.interrupted
        || any(GoalStatus::Inconclusive)
        || noise_differs
        || !result.too_few.is_empty()
    {
        Outcome::Inconclusive
    } else {
        Outcome::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report;
    use laneway_stats::pairs::Doubt;

    #[test]
    fn programs_the_hypervisor_and_the_cable_are_named_apart() {
        let mut segments = report::example().segments;
        let before = left_out(&segments).len();
        for (segment, (by, why)) in segments.iter_mut().zip([
            (Disturber::Cable, "7 packets found no room"),
            (Disturber::Programs, "other programs used 40 % of a CPU"),
            (Disturber::Hypervisor, "the hypervisor took CPU 1 away for 30 ms"),
            (Disturber::Hypervisor, "the hypervisor took CPU 0 away for 40 ms"),
        ]) {
            (segment.disturbed_by, segment.disturbed) = (Some(by), Some(why.to_owned()));
        }
        let notes = left_out(&segments);
        let is_there =
            |why: &str, first: &str| notes.iter().any(|n| n.contains(why) && n.ends_with(first));
        assert!(is_there("the cable dropped packets", "found no room"), "{notes:?}");
        assert!(is_there("other programs ran", "40 % of a CPU"), "{notes:?}");
        assert!(is_there("2 of ", "CPU 1 away for 30 ms"), "{notes:?}");
        assert_eq!(notes.len(), before + 3, "{notes:?}");
        // Where the hypervisor alone disturbed it, other programs are not blamed.
        let every: Vec<&Segment> = segments.iter().collect();
        let (by_others, by_hypervisor) = every[..4].split_at(2);
        assert!(busy(by_others).is_some() && taken(by_others).is_none());
        assert_eq!(busy(by_hypervisor), None);
        let why = "the hypervisor took CPU 1 away for 30 ms, and a CPU in 1 more of them";
        assert_eq!(taken(by_hypervisor).as_deref(), Some(why));
        for metric in [Metric::Rate, Metric::Cpu] {
            assert_eq!(of_segment(metric, &segments[0]).is_some(), metric == Metric::Cpu);
        }
    }

    #[test]
    fn a_loss_in_a_segment_that_is_in_no_figure_is_in_the_ledger_alone() {
        let mut result = report::example();
        let (arms, loads) = (result.arms.len(), result.loads_pps.len());
        let sum = |segments: &[Segment]| summaries(segments, &[], arms, loads);
        result.summaries = sum(&result.segments);
        let spoils: [fn(&mut Segment); 3] = [
            |s| {
                s.disturbed = Some("other programs used 40 % of a CPU".to_owned());
                // Its CPU time would count.
                s.cpu.ns_per_record = None;
                s.cpu.contexts_ns.clear();
            },
            |s| s.invalid = vec!["the generator was late".to_owned()],
            |s| s.warm_up = true,
        ];
        for spoil in spoils {
            let mut spoiled = result.clone();
            let lost = result.segments.iter().filter(|s| s.load < 2).map(|segment| {
                let mut lost = segment.clone();
                lost.ledger = Ledger { offered: segment.ledger.offered, ..Ledger::default() };
                lost.ledger.drops.insert("its pool".to_owned(), lost.ledger.offered);
                spoil(&mut lost);
                lost
            });
            let segments: Vec<Segment> = result.segments.iter().cloned().chain(lost).collect();
            spoiled.summaries = sum(&segments);
            assert_ne!(spoiled.summaries[0].ledger, result.summaries[0].ledger);
            let parts = |result: &RaceResult| {
                let [text, page] = [report::text(result), report::html(result)];
                let between = |whole: &str, from: &str, to: &str| {
                    let part = whole.split_once(from).expect("it begins").1;
                    part.split_once(to).expect("it ends").0.to_owned()
                };
                [
                    report::screen(result, report::Style::Plain),
                    between(&text, "Rate, loss and CPU", "Ledger, all rounds added"),
                    between(&page, "<h3>CPU by context</h3>", "</figure>"),
                    between(&page, "<h3>Loss by place</h3>", "</figure>"),
                ]
            };
            for (spoiled, whole) in parts(&spoiled).iter().zip(parts(&result)) {
                assert!(*spoiled == whole, "{spoiled:.2000}");
            }
            assert!(report::text(&spoiled).contains("its pool"), "the ledger has it");
        }
    }

    #[test]
    fn what_interrupted_the_arms_is_noted_from_least_to_most() {
        let mut segments = report::example().segments;
        assert_eq!(interrupted(&segments), None, "it is not known");
        for segment in &mut segments {
            segment.cpu.own_ns = 1_000;
            segment.cpu.beside_ns = Some(10 * segment.arm as u64);
        }
        // What cannot be used is no part of it.
        (segments[0].cpu.beside_ns, segments[0].warm_up) = (Some(500), true);
        let note = left_out(&segments).into_iter().find(|note| note.contains("unknown cause"));
        let note = note.expect("it is known");
        assert!(note.contains("are 0.0 to 4.0 % of its CPU time"), "{note}");
        assert!(note.contains("no upper bound"), "{note}");
    }

    #[test]
    fn pairs_are_too_few_where_either_of_two_segments_is_left_out() {
        let one = report::example().segments.remove(0);
        let at = |arm, round| Segment { arm, round, load: 0, warm_up: false, ..one.clone() };
        let mut segments: Vec<Segment> =
            (0..10).flat_map(|round| [at(0, round), at(1, round)]).collect();
        let [names, loads] = [vec!["base".to_owned(), "arm".to_owned()], vec!["9/s".to_owned()]];
        assert_eq!(too_few(&segments, &names, &loads), [""; 0]);
        // Six of ten segments are whole on either side, and two of ten pairs.
        for segment in &mut segments {
            let is_late = if segment.arm == 0 { segment.round < 4 } else { segment.round >= 6 };
            segment.invalid =
                is_late.then(|| "the generator was late".to_owned()).into_iter().collect();
        }
        let few = too_few(&segments, &names, &loads);
        let asked = "arm at 9/s: 2 of 10 pairs with the base have two segments of use: the generator was late";
        assert_eq!(few, [asked]);
        // One more of the base: it has too few for all its pairs.
        segments[8].invalid = segments[0].invalid.clone();
        segments[10].invalid = segments[0].invalid.clone();
        let few = too_few(&segments, &names, &loads);
        assert!(few.len() == 1 && few[0].starts_with("base at 9/s: 6 of 10 segments"), "{few:?}");
    }

    #[test]
    fn an_arm_that_delivers_nothing_now_and_then_has_no_verdict_on_its_cost() {
        let one = report::example().segments.remove(0);
        let at = |arm, round, ns_per_record: Option<f64>| {
            let mut segment = Segment {
                arm,
                round,
                generation: round / 2,
                load: 0,
                warm_up: false,
                ..one.clone()
            };
            segment.ledger = Ledger { offered: 100, delivered: 100, ..Ledger::default() };
            if ns_per_record.is_none() {
                segment.ledger.delivered = 0;
            }
            segment.cpu.ns_per_record = ns_per_record;
            segment
        };
        let judged = |metric, silent: usize| {
            let arm = |round| if round < silent { None } else { Some(200.0) };
            let segments: Vec<Segment> = (0..12)
                .flat_map(|round| [at(0, round, Some(100.0)), at(1, round, arm(round))])
                .collect();
            let data = Data { segments: &segments, trials: &[] };
            let pairs = paired(data, metric, [(0, 0), (1, 0)]);
            let comparison = Comparison::of_pairs(&pairs, Rule::COST, Look::only(0.05));
            comparison.expect("within limits").judge(None)
        };
        for metric in [Metric::Cpu, Metric::PerCpu] {
            assert!(judged(metric, 0).doubt.is_none(), "{}", metric.name());
            let doubt = judged(metric, 4).doubt;
            assert!(matches!(doubt, Some(Doubt::BrokenValues { .. })), "{doubt:?}");
        }
        // What was not offered anything is missing, and so is what something else may have lost.
        let idle = Segment { ledger: Ledger::default(), ..at(1, 0, None) };
        let disturbed = Segment { disturbed: Some("it was".to_owned()), ..at(1, 0, None) };
        assert_eq!([idle, disturbed].map(|s| of_segment(Metric::Cpu, &s)), [None; 2]);
    }

    #[test]
    fn an_arm_that_answers_the_quick_requests_alone_has_no_percentile_to_compare() {
        let value = |metric, unanswered: u64| {
            let mut trips = RoundTrips::default();
            (unanswered..50_000).for_each(|_| trips.record(100_000));
            trips.miss(unanswered);
            let trial = Trial { round_trips: vec![trips], ..Trial::empty(0, 0) };
            of_trial(metric, &trial, 0)
        };
        let near = |value: Option<f64>| value.is_some_and(|ns| (ns / 1e5 - 1.0).abs() < 0.001);
        assert!(near(value(Metric::RttP999, 0)) && near(value(Metric::RttP999, 49)));
        assert_eq!(value(Metric::RttP999, 50), Some(f64::INFINITY));
        assert!(near(value(Metric::RttP99, 499)));
        assert_eq!(value(Metric::RttP99, 500), Some(f64::INFINITY));
        let mut segment = report::example().segments.remove(0);
        let mut latency = Latency::new();
        (0..60).for_each(|_| latency.record(7));
        segment.wire_to_app = Some(latency.summary());
        assert_eq!(of_segment(Metric::WireToAppP50, &segment), None, "too few");
        latency.miss(60);
        segment.wire_to_app = Some(latency.summary());
        assert_eq!(of_segment(Metric::WireToAppP50, &segment), Some(f64::INFINITY));
    }

    #[test]
    fn limits_rest_on_looks_to_which_nothing_was_handed_on() {
        let pair = |round: usize, ratio: f64| Pair {
            generation: round / 2,
            base: Some(100.0),
            arm: Some(ratio * (100.0 + (round * 7 % 3) as f64)),
        };
        let pairs = |ratio| (0..24).map(|round| pair(round, ratio)).collect::<Vec<_>>();
        let mut judge = Judge::new(None, 2);
        let mut alphas = |arm: usize, ratio| {
            let place = (Metric::Cpu.name(), arm, 0);
            let (found, look) = judge.compare(place, &pairs(ratio), Rule::COST, 1.0, 4);
            judge.judge(place, &found, None);
            [found.look.alpha, look.alpha]
        };
        // Of four arms the first differs, and hands its part on to the verdicts on the others.
        let near = |[verdict, limits]: [f64; 2], parts: f64| {
            assert!((verdict - ALPHA / parts).abs() < 1e-12, "{verdict}");
            assert!((limits - ALPHA / 6.0).abs() < 1e-12, "{limits}");
        };
        near(alphas(2, 3.0), 4.0);
        near(alphas(3, 1.0), 3.0);
        near(alphas(1, 1.0), 1.0);
    }

    #[test]
    fn a_segment_that_was_replaced_is_no_part_of_a_pair_and_the_one_behind_it_is() {
        let one = report::example().segments.remove(0);
        let at = |arm, round| Segment { arm, round, load: 0, warm_up: false, ..one.clone() };
        let late = |arm, round, replaced| Segment {
            invalid: vec!["the generator was late".to_owned()],
            replaced,
            ..at(arm, round)
        };
        let cost = |segments: &[Segment]| {
            let pairs = by_round(segments, [(0, 0), (1, 0)], |s| of_segment(Metric::Cpu, s));
            pairs.iter().map(|p| [p.base.is_some(), p.arm.is_some()]).collect::<Vec<_>>()
        };
        // Of the base in the first round, of the arm in the second, and in vain in the third.
        let segments = [
            [late(0, 0, true), at(0, 0), at(1, 0)],
            [late(1, 1, true), at(1, 1), at(0, 1)],
            [late(1, 2, true), late(1, 2, false), at(0, 2)],
        ]
        .concat();
        assert_eq!(cost(&segments), [[true, true], [true, true], [true, false]]);
        let notes = left_out(&segments);
        assert!(
            notes[0].starts_with("3 of 9 segments were left out and offered once"),
            "{notes:?}"
        );
        assert!(notes[1].starts_with("1 of 9 segments were left out; the first"), "{notes:?}");
    }

    #[test]
    fn an_arm_that_loses_everything_is_named_with_where() {
        let mut segments = report::example().segments;
        let names = ["first", "second"].map(str::to_owned);
        assert_eq!(silent(&segments, &names), [""; 0]);
        for ledger in segments.iter_mut().filter(|s| s.arm == 1).map(|s| &mut s.ledger) {
            ledger.drops = [("its pool".to_owned(), ledger.offered)].into();
            (ledger.delivered, ledger.unknown) = (0, None);
        }
        let notes = silent(&segments, &names);
        assert!(notes[0].starts_with("nothing arrived from arm `second`"), "{notes:?}");
        assert!(notes[0].contains("as `its pool`") && notes.len() == 1, "{notes:?}");
    }

    #[test]
    fn warm_up_is_what_differs_from_the_rest_and_never_most_of_a_generation() {
        let settled = [0.01, -0.01, 0.02, 0.0, -0.02, 0.01, -0.01];
        let warm = [&[0.9, 0.5][..], &settled].concat();
        assert_eq!((warm_up(&warm), warm_up(&settled[..2]), warm_up(&[])), (2, 0, 0));
        let rising: Vec<f64> = (0..30).map(f64::from).collect();
        assert!(warm_up(&rising) <= 10);
    }
}
