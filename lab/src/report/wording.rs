//! What a result says, in sentences and short phrases, once for all three forms of the report.
//!
//! A result may come from a file, so an index into its arms or loads may point nowhere: the
//! phrase then says so instead of failing. No phrase judges: an adjective is always a verdict of
//! the statistics, with its interval beside it.

use crate::result::{
    Arm, ClaimOutcome, ClaimStatus, Finding, GoalStatus, Outcome, RaceResult, Segment, Summary,
};
use crate::timetable::Spacing;
use laneway_kinds::Metric;
use laneway_page::number::{
    ABSENT, confidence_percent, count, duration, figure, nouns, percent, ratio, tied,
};
use laneway_stats::pairs::{Doubt, Interval};
use laneway_stats::{Direction, LatencySummary, Scale, Verdict};

/// In front of the name of an arm that does not say what it received.
const PER_OFFERED: &str = "[per offered]";

/// The arm's name, behind a label if it obtained less than it asked for, or if its CPU time is not that of what it
/// delivered: whatever is cut to fit a column, the label stays.
pub(super) fn arm_name(result: &RaceResult, arm: usize) -> String {
    let Some(arm) = result.arms.get(arm) else { return format!("arm {arm} (not listed)") };
    let missing = arm.caps.missing();
    match missing.iter().next() {
        None if arm.delivered_unknown => format!("{PER_OFFERED} {}", arm.name),
        None => arm.name.clone(),
        Some(_) => format!("[no {}] {}", caps(missing), arm.name),
    }
}

/// Whether it is unknown what the arm received.
pub(super) fn is_unknown(result: &RaceResult, arm: usize) -> bool {
    result.arms.get(arm).is_some_and(|arm| arm.delivered_unknown)
}

/// Name of the arm that every comparison is against.
pub(super) fn base_name(result: &RaceResult) -> String {
    arm_name(result, 0)
}

/// Where a load would stand, for what is measured without one: real pings, and searches.
pub(super) const NO_LOAD: &str = "no fixed load";

/// Where a load would stand, for a client's closed loop.
const CLOSED_LOOP: &str = "closed loop";

/// The offered load with its unit: `400 000/s`.
pub(super) fn load_name(result: &RaceResult, load: usize) -> String {
    if let Some(requests) = result.requests_of(load) {
        return format!("{CLOSED_LOOP}, {} requests", count(requests));
    }
    if let (Some(own), Some(share)) = (result.own_load(), result.own_share)
        && own == load
    {
        return format!("{:.0} % of each arm's own closed loop", share * 100.0);
    }
    if let Some(rate) = saturating_rate(result, load) {
        return format!("{rate}, saturating");
    }
    match result.loads_pps.get(load) {
        Some(_) if !is_scheduled(result, load) && result.closed_loop => CLOSED_LOOP.to_owned(),
        Some(_) if !is_scheduled(result, load) => "top speed".to_owned(),
        Some(&pps) => rate_name(result, pps),
        None if (result.ping.is_some() || result.capacity.is_some())
            && load == result.loads_pps.len() =>
        {
            NO_LOAD.to_owned()
        }
        None => format!("load {load} (not listed)"),
    }
}

/// The rate of the load that was found out to saturate; `None` of the others, and of one without a schedule.
pub(super) fn saturating_rate(result: &RaceResult, load: usize) -> Option<String> {
    let pps = result.saturating_pps.filter(|pps| result.loads_pps.get(load) == Some(pps))?;
    is_scheduled(result, load).then(|| rate_name(result, pps))
}

/// The load as a race is asked for it: that which saturates is the same, whatever its rate was found to be.
pub(super) fn asked_load(result: &RaceResult, load: usize) -> String {
    match saturating_rate(result, load) {
        Some(_) => format!("the saturating load{}", spacing(result)),
        None => load_name(result, load),
    }
}

fn rate_name(result: &RaceResult, pps: u64) -> String {
    format!("{}/s{}", count(pps), spacing(result))
}

/// How a load's arrivals follow one another, where not evenly.
fn spacing(result: &RaceResult) -> &'static str {
    match result.traffic.spacing {
        Spacing::Steady => "",
        Spacing::Poisson => " poisson",
        Spacing::Capture => " as captured",
    }
}

/// Whether all arms were offered the same frames at times of their own, so that a load has one rate, and a latency.
pub(super) fn is_scheduled(result: &RaceResult, load: usize) -> bool {
    if result.requests_of(load).is_some() || result.own_load() == Some(load) {
        return false;
    }
    !(result.topspeed || result.closed_loop)
        || result.loads_pps.get(load).copied() != result.saturating_pps
}

/// The loads that had a schedule, each with its rate, frames per second.
pub(super) fn scheduled(result: &RaceResult) -> impl Iterator<Item = (usize, u64)> + '_ {
    let loads = result.loads_pps.iter().copied().enumerate();
    loads.filter(|&(load, _)| is_scheduled(result, load))
}

/// The loads that have a latency: those, and a closed loop.
pub(super) fn timed(result: &RaceResult) -> impl Iterator<Item = usize> + '_ {
    let loads = 0..result.loads_pps.len();
    loads.filter(|&load| result.closed_loop || is_scheduled(result, load))
}

/// Whether the arm is the second run of the base.
pub(super) fn is_noise_floor(result: &RaceResult, arm: usize) -> bool {
    result.arms.get(arm).is_some_and(|arm| arm.is_noise_floor)
}

/// The summary of an arm at a load.
pub(super) fn summary_of(result: &RaceResult, arm: usize, load: usize) -> Option<&Summary> {
    result.summaries.iter().find(|summary| summary.arm == arm && summary.load == load)
}

/// The metrics compared, in the order of their first finding.
pub(super) fn metrics(result: &RaceResult) -> Vec<&str> {
    let mut metrics: Vec<&str> = Vec::new();
    for finding in &result.findings {
        if !metrics.contains(&finding.metric.as_str()) {
            metrics.push(&finding.metric);
        }
    }
    metrics
}

/// What a rate is divided by. The window is longer: it ends when all that is queued is handled.
pub(super) const RATE_SCOPE: &str = "delivered, divided by the time of the schedule, or by what sending or arriving took if that is more";

/// Between which two points, or over what, a metric is taken.
pub(super) fn scope(metric: &str) -> &'static str {
    if metric.contains("app only") {
        "from the frame in user hands to the record handled"
    } else if metric.contains("wire to app") {
        "from the scheduled send time to the record in the app's hands"
    } else if metric.contains("due to arrival") {
        "from the scheduled send time to the frame at the driver of the far end, one way"
    } else if metric.contains("round trip") || metric.contains("rtt") {
        "from the scheduled time of a request to its reply, at the generator's driver or read by the client"
    } else if metric.contains("ping") && metric.contains("under load") {
        "as the machine's own ping prints it, beside a load of ours"
    } else if metric.contains("ping") {
        "as the machine's own ping prints it, with nothing else sent"
    } else if metric.contains("zero-loss") {
        "highest rate of which nothing is lost, by bisection in every generation"
    } else if metric.contains("capacity") {
        "highest rate whose loss is within the limit, by bisection in every generation"
    } else if metric.contains("CPU") {
        "the arm's tasks, its NAPI threads and softirqs of its interfaces, on all CPUs"
    } else if metric == Metric::Rate.name() {
        RATE_SCOPE
    } else {
        "whole window, counted where the app receives"
    }
}

/// Which way is good.
pub(super) fn direction(direction: Direction) -> &'static str {
    match direction {
        Direction::HigherIsBetter => "higher is better",
        Direction::LowerIsBetter => "lower is better",
    }
}

/// An effect in its unit: `0.183x` of the base, or a signed difference.
pub(super) fn effect(value: f64, scale: Scale, unit: &str) -> String {
    match scale {
        Scale::Ratio => format!("{}\u{d7}", ratio(value)),
        Scale::Difference => {
            let (value, unit) = shown_unit(value, unit);
            tied(&signed(value), unit)
        }
    }
}

/// How effects of this scale are made.
fn effect_kind(scale: Scale, unit: &str) -> String {
    match (scale, unit) {
        (Scale::Ratio, _) => "ratio arm / base".to_owned(),
        (Scale::Difference, "share") => "difference arm - base, in % of offered frames".to_owned(),
        (Scale::Difference, unit) => format!("difference arm - base, {unit}"),
    }
}

/// How the effects of a metric are made, for captions.
pub(super) fn effect_note(result: &RaceResult, metric: &str) -> String {
    let finding = result.findings.iter().find(|finding| finding.metric == metric);
    finding.map_or_else(String::new, |finding| {
        effect_kind(finding.comparison.rule.scale, &finding.unit)
    })
}

/// The effect, or a dash.
pub(super) fn estimated_effect(finding: &Finding) -> String {
    let scale = finding.comparison.rule.scale;
    finding
        .comparison
        .estimate
        .map_or_else(|| ABSENT.to_owned(), |value| effect(value, scale, &finding.unit))
}

/// What an interval covers with where no confidence stands beside it.
const USUAL_CONFIDENCE_PERCENT: f64 = 95.0;

/// `[0.180, 0.187]`, with its confidence where that is shown by other digits than [`USUAL_CONFIDENCE_PERCENT`].
pub(super) fn interval(finding: &Finding) -> Option<String> {
    let Interval { lower, upper, confidence, .. } = finding.comparison.interval?;
    let end = |value| match finding.comparison.rule.scale {
        Scale::Ratio => ratio(value),
        Scale::Difference => signed(shown_unit(value, &finding.unit).0),
    };
    let percent = confidence_percent(confidence);
    let claim = match percent == USUAL_CONFIDENCE_PERCENT {
        true => String::new(),
        false => format!(" at {}", tied(&percent.to_string(), "%")),
    };
    Some(format!("[{}, {}]{claim}", end(lower), end(upper)))
}

/// Why a verdict is inconclusive, with rounded figures.
pub(super) fn doubt(finding: &Finding) -> Option<String> {
    let width = |value| width(finding, value);
    Some(match finding.judgement.doubt? {
        Doubt::AcrossThreshold { threshold } => format!(
            "the interval reaches across the threshold of {}; race longer",
            width(threshold)
        ),
        Doubt::Coarse { resolution, threshold } => format!(
            "values are known to {} only, the threshold is {}, so that a difference of less than both is not seen; \
             search finer",
            width(resolution),
            width(threshold)
        ),
        Doubt::Imprecise { half_width, target } => format!(
            "the half-width {} misses the target {}; race longer or quieten the machine",
            width(half_width),
            width(target)
        ),
        other => other.to_string(),
    })
}

/// Why a finding has no figure.
pub(super) fn no_figure(finding: &Finding) -> String {
    let compared = finding.comparison.effects.len();
    format!("{} can be compared, of {}", plural(compared, "pair"), finding.comparison.offered())
}

/// Why a percentile that takes so many samples is not given.
pub(super) fn no_percentile(summary: &LatencySummary, needed: u64) -> String {
    let all = summary.n.saturating_add(summary.missing);
    if all >= needed {
        let lost = count(summary.missing);
        return format!("{lost} of {} were lost, which took longer than all others", count(all));
    }
    let samples = plural(usize::try_from(all).unwrap_or(usize::MAX), "sample");
    format!("{samples} recorded, {} needed", count(needed))
}

/// The threshold of a finding's verdict, in words.
pub(super) fn threshold(finding: &Finding) -> String {
    width(finding, finding.judgement.threshold)
}

/// Half the width of a finding's interval.
pub(super) fn half_width(finding: &Finding) -> Option<String> {
    Some(format!("\u{b1}{}", width(finding, finding.comparison.half_width()?)))
}

/// Half the width that the base reaches against itself at the metric and load of `finding`: what
/// the bench cannot tell apart. `None` where the A/A pair gives none.
pub(super) fn noise_floor(result: &RaceResult, finding: &Finding) -> Option<String> {
    let is_pair = |f: &&Finding| {
        is_noise_floor(result, f.arm) && f.load == finding.load && f.metric == finding.metric
    };
    half_width(result.findings.iter().find(is_pair)?)
}

/// The noise floor as it stands beside an effect: `A/A ±1.2 %`. The A/A pair has none beside it.
pub(super) fn noise_floor_beside(result: &RaceResult, finding: &Finding) -> String {
    if is_noise_floor(result, finding.arm) {
        return String::new();
    }
    let floor = noise_floor(result, finding);
    format!("A/A {}", floor.unwrap_or_else(|| "unknown".to_owned()))
}

/// One word for how the race ended.
pub(super) fn outcome_word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "done",
        Outcome::GoalMissed => "goal missed",
        Outcome::Inconclusive => "inconclusive",
        Outcome::Invalid => "invalid",
    }
}

/// How the race ended, in a sentence.
pub(super) fn outcome_sentence(result: &RaceResult) -> String {
    let goals = result.goals.len();
    let with = |status| result.goals.iter().filter(|goal| goal.status == status).count();
    let (met, missed, open) =
        (with(GoalStatus::Met), with(GoalStatus::Missed), with(GoalStatus::Inconclusive));
    let tally = if goals == 0 {
        "no goal was stated".to_owned()
    } else {
        format!("of {goals} goals {met} met, {missed} missed, {open} inconclusive")
    };
    match result.outcome {
        Outcome::Invalid => format!(
            "Not to be believed, for {}. The figures below are shown to find the cause.",
            plural(result.invalid.len(), "reason")
        ),
        Outcome::Inconclusive if result.interrupted => format!(
            "Interrupted: what {} measured is judged; {tally}.",
            plural(result.generations, "generation")
        ),
        Outcome::Inconclusive if !result.too_few.is_empty() => format!(
            "No verdict where too few segments are whole, the machine changed, or an arm ended, for {}; {tally}.",
            plural(result.too_few.len(), "reason")
        ),
        Outcome::Inconclusive if open == 0 => {
            format!("Measured; the base differs from itself; {tally}.")
        }
        _ => format!("Measured; {tally}."),
    }
}

/// Stands beside the verdicts of a race that must not be believed.
pub(super) fn disclaimer(result: &RaceResult) -> Option<&'static str> {
    (result.outcome == Outcome::Invalid)
        .then_some("The race is invalid: no verdict below is to be believed.")
}

/// `1 reason`, `2 reasons`.
pub(super) fn plural(n: usize, noun: &str) -> String {
    format!("{} {}", count(n as u64), nouns(n as u64, noun))
}

/// One word for what became of a goal.
pub(super) fn goal_word(status: GoalStatus) -> &'static str {
    match status {
        GoalStatus::Met => "met",
        GoalStatus::Missed => "missed",
        GoalStatus::Inconclusive => "inconclusive",
    }
}

/// One word for the answer to a claim.
pub(super) fn claim_word(status: ClaimStatus) -> &'static str {
    match status {
        ClaimStatus::Confirmed => "confirmed",
        ClaimStatus::Refuted => "refuted",
        ClaimStatus::Inconclusive => "inconclusive",
        ClaimStatus::Unanswered => "cannot be answered here",
        ClaimStatus::ForTrace => "for a trace",
    }
}

/// What was measured of a claim, and what a reader must know of that.
pub(super) fn claim_figure(claim: &ClaimOutcome) -> String {
    match claim.note.as_str() {
        "" => claim.measured.clone(),
        note => format!("{}; {note}", claim.measured),
    }
}

/// The worst of the generator over some segments.
pub(super) struct GeneratorState {
    /// Largest distance of the achieved from the asked rate, as a share.
    pub(super) deviation: f64,
    /// Worst median lateness, ns.
    pub(super) late_p50_ns: u64,
    /// Worst 99th percentile, ns.
    pub(super) late_p99_ns: u64,
    /// Worst single frame, ns.
    pub(super) late_max_ns: u64,
    /// Frames handed to the kernel.
    pub(super) sent: u64,
    /// Frames that the kernel refused.
    pub(super) refused: u64,
    /// Largest share of one CPU that the generator used.
    pub(super) cpu_share: f64,
}

/// The worst of the generator over `segments`; `None` without any.
pub(super) fn generator_state<'a>(
    segments: impl Iterator<Item = &'a Segment>,
) -> Option<GeneratorState> {
    segments.fold(None, |state, segment| {
        let g = &segment.generator;
        let deviation =
            if g.asked_pps > 0.0 { (g.achieved_pps / g.asked_pps - 1.0).abs() } else { 0.0 };
        let cpu_share = g.cpu_ns as f64 / segment.window_ns.max(1) as f64;
        let so_far = state.unwrap_or(GeneratorState {
            deviation: 0.0,
            late_p50_ns: 0,
            late_p99_ns: 0,
            late_max_ns: 0,
            sent: 0,
            refused: 0,
            cpu_share: 0.0,
        });
        Some(GeneratorState {
            deviation: so_far.deviation.max(deviation),
            late_p50_ns: so_far.late_p50_ns.max(g.late_p50_ns),
            late_p99_ns: so_far.late_p99_ns.max(g.late_p99_ns),
            late_max_ns: so_far.late_max_ns.max(g.late_max_ns),
            sent: so_far.sent.saturating_add(g.sent),
            refused: so_far.refused.saturating_add(g.refused),
            cpu_share: so_far.cpu_share.max(cpu_share),
        })
    })
}

/// The generator over the whole race, one line per statement.
pub(super) fn generator_lines(result: &RaceResult) -> Vec<String> {
    let Some(state) = generator_state(result.segments.iter()) else {
        return vec!["No segment was recorded.".to_owned()];
    };
    vec![
        format!("{}; generator {}", result.traffic.schedule, result.traffic.generator),
        format!("{} off the asked rate at worst", percent(state.deviation)),
        format!(
            "late: p99 {}, longest {}, each at worst",
            duration(state.late_p99_ns as f64),
            duration(state.late_max_ns as f64)
        ),
        format!("{} frames sent, {} refused", count(state.sent), count(state.refused)),
    ]
}

/// The machine's state, one line per statement; findings come first.
pub(super) fn machine_lines(result: &RaceResult) -> Vec<String> {
    let machine = &result.machine;
    let mut lines = machine.findings.clone();
    if lines.is_empty() {
        lines.push("0 findings".to_owned());
    }
    lines.push(format!(
        "steal {}, load average before {}",
        percent(machine.steal_share),
        figure(machine.load_before)
    ));
    lines
}

/// What the machine is, one fact per line.
pub(super) fn fact_lines(result: &RaceResult) -> Vec<String> {
    result.machine.facts.iter().map(|(name, value)| format!("{name}: {value}")).collect()
}

/// Why there is no noise floor, if there is none.
pub(super) fn noise_floor_gap(result: &RaceResult) -> Option<&'static str> {
    if !result.arms.iter().any(|arm| arm.is_noise_floor) {
        Some("No arm is a second run of the base: the noise floor is unknown.")
    } else if !result.findings.iter().any(|finding| is_noise_floor(result, finding.arm)) {
        Some("The A/A pair was not compared: the noise floor is unknown.")
    } else {
        None
    }
}

/// Capability names, comma by comma, or `none`.
pub(super) fn caps(set: laneway_core::CapSet) -> String {
    let names: Vec<&str> = set.iter().map(laneway_core::Cap::name).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// What was asked for and not obtained.
pub(super) struct Missing {
    /// Capability by capability, and whether the spec allowed it to be missing.
    pub(super) words: String,
    /// Whether the spec allowed all of it.
    pub(super) is_allowed: bool,
}

/// What an arm asked for and did not obtain; `None` if it obtained all.
pub(super) fn missing_caps(arm: &Arm) -> Option<Missing> {
    let missing = arm.caps.missing();
    let refused = missing.minus(arm.caps.allowed_missing);
    let allowed = missing.minus(refused);
    let is_allowed = refused.iter().next().is_none();
    let mut parts = Vec::new();
    if !is_allowed {
        parts.push(caps(refused));
    }
    if allowed.iter().next().is_some() {
        parts.push(format!("{} (allowed by the spec)", caps(allowed)));
    }
    (!parts.is_empty()).then(|| Missing { words: parts.join(", "), is_allowed })
}

/// The modes of every arm, asked for and obtained, one line per arm.
pub(super) fn mode_lines(result: &RaceResult) -> Vec<String> {
    let line = |arm: &Arm| {
        let mut parts = vec![
            arm.note.clone(),
            format!("asked for {}", caps(arm.caps.requested)),
            format!("obtained {}", caps(arm.caps.obtained)),
        ];
        parts.extend(missing_caps(arm).map(|missing| format!("missing {}", missing.words)));
        parts.extend(arm.caps.facts.iter().map(|(name, value)| format!("{name} {value}")));
        parts.retain(|part| !part.is_empty());
        format!("{} ({}): {}", arm.name, arm.spec(), parts.join("; "))
    };
    result.arms.iter().map(line).collect()
}

/// The command line, quoted so that a shell reads it back word by word.
pub(super) fn shell_command(command: &[String]) -> String {
    let quoted = |word: &String| {
        let safe = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
        if !word.is_empty() && word.chars().all(safe) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    command.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// A width on the scale of a finding: relative for ratios, else in the unit of the metric.
fn width(finding: &Finding, value: f64) -> String {
    match finding.comparison.rule.scale {
        Scale::Ratio => percent(value),
        Scale::Difference => {
            let (value, unit) = shown_unit(value, &finding.unit);
            tied(&figure(value), unit)
        }
    }
}

/// A value with the unit it is shown in: shares become percentages.
fn shown_unit(value: f64, unit: &str) -> (f64, &str) {
    if unit == "share" { (value * 100.0, "%") } else { (value, unit) }
}

/// A figure with its sign, which zero has not.
fn signed(value: f64) -> String {
    let sign = if value > 0.0 { "+" } else { "" };
    format!("{sign}{}", figure(value))
}

/// A sign for each verdict, so that colour is never the only bearer.
pub(super) fn glyph(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "\u{25b2}",
        Verdict::Worse => "\u{25bc}",
        Verdict::Same => "=",
        Verdict::Inconclusive => "?",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_quoted_word_by_word() {
        let command = ["laneway", "race", "my file's.toml", ""].map(str::to_owned);
        assert_eq!(shell_command(&command), r"laneway race 'my file'\''s.toml' ''");
    }

    #[test]
    fn an_arm_that_obtained_less_is_labelled_wherever_it_is_named() {
        let mut result = super::super::example::race();
        let arm = result.arms.len() - 1;
        result.arms[arm].caps.requested = laneway_core::CapSet::default();
        assert_eq!(arm_name(&result, arm), result.arms[arm].name);
        result.arms[arm].caps.requested =
            laneway_core::CapSet::default().with(laneway_core::Cap::Gro);
        result.arms[arm].caps.obtained = laneway_core::CapSet::default();
        assert_eq!(arm_name(&result, arm), format!("[no gro] {}", result.arms[arm].name));
    }

    #[test]
    fn an_interval_of_another_confidence_than_95_percent_shows_it() {
        let mut finding = super::super::example::race().findings.remove(0);
        let mut shown = |confidence: f64| {
            let ends = finding.comparison.interval.as_mut().expect("the example has one");
            ends.confidence = confidence;
            let shown = interval(&finding).expect("it still has one");
            shown.split_once(']').expect("an end").1.replace('\u{a0}', " ")
        };
        let confidences = [1.0 - 0.05, 0.996, 1.0 - 0.05 / 2_800.0, 0.9].map(&mut shown);
        assert_eq!(confidences, ["", " at 99.6 %", " at 99.9 %", " at 90 %"]);
    }

    #[test]
    fn no_rate_is_called_one_of_the_window() {
        let page = super::super::html(&super::super::example::race());
        assert!(!page.contains("second of the window"));
        assert_eq!(scope(Metric::Rate.name()), RATE_SCOPE);
        let notes = |part: &str| page.matches(&format!("Records {RATE_SCOPE}{part}")).count();
        // Each beside its column, and among what all columns mean.
        assert_eq!([notes(": median over rounds."), notes("; not by the window.")], [2, 2]);
    }

    #[test]
    fn scopes_of_latency_are_distinguished() {
        assert_ne!(scope("p99 app only"), scope("p99 wire to app"));
    }
}
