//! The answer of a race on one screen: what was compared, a line for each arm, and what disturbed.
//!
//! A cost is compared at a load that both arms deliver, the highest there is; where there is none, the rate says what
//! an arm can do. Nothing stands here that the whole report does not hold. The confidence of each interval stands
//! there: it is 95 % or more.

use super::super::wording::{
    arm_name, base_name, is_noise_floor, is_unknown, load_name, outcome_sentence, outcome_word,
    plural, summary_of,
};
use super::{COLUMNS_MAX, Page, Paint, Style};
use crate::result::{ClaimStatus, Finding, GoalStatus, Outcome, RaceResult};
use laneway_kinds::Metric;
use laneway_page::number::{count, figure, percent, ratio};
use laneway_stats::{Direction, Verdict};
use std::cmp::Reverse;

/// Reasons of one kind that are shown.
const REASONS_MAX: usize = 3;
/// Arms of which each may cost least that are named.
const NAMES_MAX: usize = 3;
/// What the CPU time of an arm is called that does not report what it received.
const PER_OFFERED: &str = "CPU per offered packet (delivered: unknown)";
/// Columns in front of the second line of an arm.
const INDENT: &str = "      ";

/// The answer, at most [`COLUMNS_MAX`] wide.
pub(in super::super) fn screen(result: &RaceResult, style: Style) -> String {
    let mut page = Page { out: String::new(), style };
    page.heading(&result.title);
    let others = (0..result.arms.len()).filter(|&arm| arm > 0 && !is_noise_floor(result, arm));
    let others: Vec<usize> = others.collect();
    let what = match others.len() {
        0 => base_name(result),
        n => format!("{} against {}", plural(n, "arm"), base_name(result)),
    };
    page.wrapped(
        "",
        &format!(
            "{what} under app {}; {} in {} of fresh processes, {} s",
            result.app,
            plural(result.rounds, "round"),
            plural(result.generations, "generation"),
            figure(result.seconds)
        ),
    );
    if result.outcome == Outcome::Invalid {
        let word = page.painted(Paint::Bad, "INVALID");
        page.out += &format!("{word}: not to be believed\n");
        reasons(&mut page, &result.invalid);
    }
    page.out.push('\n');
    for &arm in &others {
        line(&mut page, result, arm);
    }
    itself(&mut page, result);
    page.out.push('\n');
    if !others.is_empty() {
        best(&mut page, result, &others);
    }
    asked(&mut page, result);
    missing(&mut page, result);
    if !result.too_few.is_empty() {
        page.wrapped(
            "",
            "No verdict where the machine was busy or changed too fast, the generator was late, or an arm ended:",
        );
        reasons(&mut page, &result.too_few);
        // What of the machine may have been the cause, and what to try.
        page.list("- ", &result.machine.findings);
    }
    if result.outcome == Outcome::GoalMissed || result.outcome == Outcome::Inconclusive {
        page.wrapped(
            "",
            &format!("{}. {}", outcome_word(result.outcome), outcome_sentence(result)),
        );
    }
    if !result.traces.is_empty() {
        page.whys(result);
    }
    page.out
}

/// The arms that did not take part, with their reasons; those that only wait for the long version are counted.
fn missing(page: &mut Page, result: &RaceResult) {
    let skipped = result.notes.iter().filter(|note| note.starts_with("skipped: "));
    let (later, gone): (Vec<&String>, Vec<_>) = skipped.partition(|note| note.contains("--full"));
    for note in gone {
        page.wrapped("", note);
    }
    if !later.is_empty() {
        let sentence = format!(
            "{} in the long version only: --full, or by name with --lane.",
            plural(later.len(), "more arm")
        );
        page.wrapped("", &sentence);
    }
}

/// The first few of them, and how many there are.
fn reasons(page: &mut Page, all: &[String]) {
    page.list("- ", &all[..all.len().min(REASONS_MAX)]);
    if let Some(more) = all.len().checked_sub(REASONS_MAX).filter(|more| *more > 0) {
        page.wrapped("- ", &format!("and {} more; the report has them all", count(more as u64)));
    }
}

/// What is known of an arm against the base.
fn line(page: &mut Page, result: &RaceResult, arm: usize) {
    let unit = if is_unknown(result, arm) { PER_OFFERED } else { "CPU per record" };
    let cost = cost(result, arm).map(|finding| (finding, unit));
    let answer = cost.or_else(|| Some((fastest(result, arm)?, "records/s")));
    let name = arm_name(result, arm);
    let Some((finding, what)) = answer else {
        return page.wrapped(INDENT, &format!("{name}: nothing of it can be compared"));
    };
    let sentence = format!("{name}: {}", compared(result, finding, what));
    for (index, line) in super::wrap(&super::printable(&sentence), COLUMNS_MAX - INDENT.len())
        .into_iter()
        .enumerate()
    {
        let mark = if index == 0 { "  " } else { INDENT };
        let line = page.painted(paint(finding), &line);
        page.out += &format!("{mark}{line}\n");
    }
}

fn paint(finding: &Finding) -> Paint {
    match finding.judgement.verdict {
        Verdict::Better => Paint::Good,
        Verdict::Worse => Paint::Bad,
        Verdict::Same => Paint::Quiet,
        Verdict::Inconclusive => Paint::Open,
    }
}

/// The cost at the highest load that both arms deliver.
fn cost(result: &RaceResult, arm: usize) -> Option<&Finding> {
    costs(result, arm).max_by_key(|finding| result.loads_pps.get(finding.load).copied())
}

/// The costs at the loads that both arms deliver, as far as that is known.
fn costs(result: &RaceResult, arm: usize) -> impl Iterator<Item = &Finding> {
    let delivers = move |arm, load| {
        let summary = summary_of(result, arm, load);
        is_unknown(result, arm) || summary.is_some_and(|s| s.used().delivers())
    };
    let of = findings(result, arm, Metric::Cpu);
    of.filter(move |finding| delivers(0, finding.load) && delivers(arm, finding.load))
}

/// The rate at the highest load.
fn fastest(result: &RaceResult, arm: usize) -> Option<&Finding> {
    let of = findings(result, arm, Metric::Rate);
    of.max_by_key(|finding| result.loads_pps.get(finding.load).copied())
}

fn findings(result: &RaceResult, arm: usize, metric: Metric) -> impl Iterator<Item = &Finding> {
    let is_it = move |finding: &&Finding| finding.arm == arm && finding.metric == metric.name();
    result.findings.iter().filter(is_it)
}

/// `3.9 times less CPU per record than packet (3.6 to 4.2), sure; at 100,000/s`.
fn compared(result: &RaceResult, finding: &Finding, what: &str) -> String {
    let base = base_name(result);
    let at = load_name(result, finding.load);
    let ends =
        finding.comparison.interval.filter(|ends| ends.lower > 0.0 && ends.upper.is_finite());
    let (Some(effect), Some(ends)) = (finding.comparison.estimate.filter(|e| *e > 0.0), ends)
    else {
        return format!("too few pairs to compare its {what} with that of {base}, at {at}");
    };
    let (low, high) = (ends.lower, ends.upper);
    let more = finding.comparison.rule.direction == Direction::HigherIsBetter;
    let (word, [low, effect, high]) = match (effect < 1.0, more) {
        (true, _) => ("less", [1.0 / high, 1.0 / effect, 1.0 / low]),
        (false, _) => ("more", [low, effect, high]),
    };
    let range = format!("({} to {})", ratio(low), ratio(high));
    match finding.judgement.verdict {
        Verdict::Same => {
            format!(
                "as much {what} as {base}, {} times {word} {range}, sure; at {at}",
                ratio(effect)
            )
        }
        Verdict::Inconclusive => {
            format!(
                "{} times {word} {what} than {base} {range}, not decided; at {at}",
                ratio(effect)
            )
        }
        _ => format!("{} times {word} {what} than {base} {range}, sure; at {at}", ratio(effect)),
    }
}

/// By how much the base differs from itself.
fn itself(page: &mut Page, result: &RaceResult) {
    let Some(twin) = (0..result.arms.len()).find(|&arm| is_noise_floor(result, arm)) else {
        return;
    };
    let Some(finding) = cost(result, twin) else { return };
    let Some(width) = finding.comparison.half_width() else { return };
    let sentence =
        format!("{} against itself: CPU per record within {}", base_name(result), percent(width));
    page.wrapped("  ", &sentence);
}

/// The sentence that matters: which arm costs least, if that is sure.
fn best(page: &mut Page, result: &RaceResult, others: &[usize]) {
    // What is offered is no less than what was delivered: the two are not to be ranked.
    let is_known = |arm: &usize| !is_unknown(result, *arm) && !is_unknown(result, 0);
    let known: Vec<usize> = others.iter().copied().filter(is_known).collect();
    let is_cheaper = |arm: &usize| cost(result, *arm).is_some_and(is_better);
    let cheaper: Vec<usize> = known.iter().copied().filter(is_cheaper).collect();
    if cheaper.is_empty() {
        return page.wrapped("", "No arm is surely cheaper than the base.");
    }
    let ranked = ranked(result, &known, &cheaper);
    let Some(least) = ranked.iter().find(|finding| is_better(finding)) else {
        return page
            .wrapped("", "Which arm costs least is not decided: no load is delivered by all.");
    };
    let lies_above = |finding: &Finding| {
        let both = finding.comparison.interval.zip(least.comparison.interval);
        both.is_some_and(|(other, least)| other.lower > least.upper)
    };
    let may_be_least = ranked.iter().filter(|f| f.arm == least.arm || !lies_above(f));
    let names: Vec<String> = may_be_least.map(|finding| arm_name(result, finding.arm)).collect();
    let doubt = if names.len() > 1 { ", not decided;" } else { "," };
    let sentence = format!(
        "Least CPU per record: {}{doubt} at {}.",
        one_of(names),
        load_name(result, least.load)
    );
    page.wrapped("", &sentence);
}

/// What the `known` arms cost at the highest load that all `cheaper` ones deliver, in rising order: at different loads
/// they are not comparable.
fn ranked<'a>(result: &'a RaceResult, known: &[usize], cheaper: &[usize]) -> Vec<&'a Finding> {
    let at = |load: usize| -> Vec<&Finding> {
        let of_arm = |&arm: &usize| costs(result, arm).find(|finding| finding.load == load);
        known.iter().filter_map(of_arm).collect()
    };
    let is_common = |found: &Vec<&Finding>| {
        cheaper.iter().all(|&arm| found.iter().any(|finding| finding.arm == arm))
    };
    let mut loads: Vec<usize> = (0..result.loads_pps.len()).collect();
    loads.sort_by_key(|&load| Reverse(result.loads_pps[load]));
    let mut found = loads.into_iter().map(at).find(is_common).unwrap_or_default();
    let effect = |finding: &Finding| finding.comparison.estimate.unwrap_or(f64::INFINITY);
    found.sort_by(|a, b| effect(a).total_cmp(&effect(b)));
    found
}

fn is_better(finding: &Finding) -> bool {
    finding.judgement.verdict == Verdict::Better
}

/// `afxdp or xdp`; the first few of many.
fn one_of(mut names: Vec<String>) -> String {
    let more = names.len().saturating_sub(NAMES_MAX);
    names.truncate(NAMES_MAX);
    if more > 0 {
        names.push(format!("one of {more} more"));
    }
    names.join(" or ")
}

/// What became of goals and claims.
fn asked(page: &mut Page, result: &RaceResult) {
    for goal in result.goals.iter().filter(|goal| goal.status == GoalStatus::Missed) {
        page.wrapped("missed: ", &format!("{}; measured: {}", goal.goal, goal.measured));
    }
    let claims = |status| result.claims.iter().filter(|claim| claim.status == status).count();
    if !result.claims.is_empty() {
        let counted = [
            (ClaimStatus::Confirmed, "confirmed"),
            (ClaimStatus::Refuted, "refuted"),
            (ClaimStatus::Inconclusive, "not decided"),
            (ClaimStatus::Unanswered, "cannot be answered here"),
            (ClaimStatus::ForTrace, "for a trace"),
        ];
        let counted = counted.map(|(status, word)| (claims(status), word));
        let counted = counted.into_iter().filter(|(n, _)| *n > 0);
        let parts: Vec<String> = counted.map(|(n, word)| format!("{n} {word}")).collect();
        let all = plural(result.claims.len(), "claim");
        page.wrapped("", &format!("Of {all}: {}.", parts.join(", ")));
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::example::race;
    use super::*;

    const BATCH: usize = 2;
    const AFXDP: usize = 3;
    const XDP: usize = 4;

    /// The example, with these intervals around its arms' costs at these loads, and the verdicts that they have.
    fn costing(costs: &[(usize, usize, [f64; 3])]) -> RaceResult {
        let mut result = race();
        for &(arm, load, [lower, estimate, upper]) in costs {
            let is_it =
                |f: &&mut Finding| f.metric == Metric::Cpu.name() && (f.arm, f.load) == (arm, load);
            let found = result.findings.iter_mut().find(is_it).expect("the example compares it");
            let ends = found.comparison.interval.as_mut().expect("it has an interval");
            (ends.lower, ends.upper) = (lower, upper);
            found.comparison.estimate = Some(estimate);
            found.judgement.verdict =
                if upper < 0.95 { Verdict::Better } else { Verdict::Inconclusive };
        }
        result
    }

    /// What the screen says of the arm that costs least.
    fn headline(result: &RaceResult) -> String {
        let screen = screen(result, Style::Plain);
        let line = screen.lines().find_map(|line| line.strip_prefix("Least CPU per record: "));
        line.unwrap_or_else(|| panic!("{screen}")).to_owned()
    }

    #[test]
    fn arms_whose_intervals_overlap_are_named_together() {
        let costs = |xdp| {
            costing(&[
                (BATCH, 1, [0.60, 0.65, 0.70]),
                (AFXDP, 1, [0.28, 0.300, 0.32]),
                (XDP, 1, xdp),
            ])
        };
        let both = headline(&costs([0.28, 0.302, 0.32]));
        assert_eq!(both, "[no zero-copy] afxdp or xdp, not decided; at 200,000/s.");
        // It is not sure to be cheaper than the base, and may be cheaper than any other.
        let open = headline(&costs([0.1, 0.5, 2.0]));
        assert_eq!(open, "[no zero-copy] afxdp or xdp, not decided; at 200,000/s.");
        let alone = headline(&costs([0.20, 0.22, 0.24]));
        assert_eq!(alone, "xdp, at 200,000/s.");
    }

    #[test]
    fn arms_that_deliver_different_loads_are_ranked_at_one_that_all_deliver() {
        let mut result = costing(&[
            (BATCH, 0, [0.60, 0.65, 0.70]),
            (BATCH, 1, [0.60, 0.65, 0.70]),
            (AFXDP, 0, [0.19, 0.20, 0.21]),
            (AFXDP, 1, [0.29, 0.30, 0.31]),
            (XDP, 0, [0.24, 0.25, 0.26]),
            (XDP, 1, [0.24, 0.25, 0.26]),
        ]);
        assert_eq!(headline(&result), "xdp, at 200,000/s.");
        let lost = result.summaries.iter_mut().find(|s| (s.arm, s.load) == (XDP, 1));
        let ledger = &mut lost.expect("it ran").ledger;
        ledger.delivered /= 2;
        // Cheaper at 50,000/s than afxdp is at 200,000/s, and dearer than that is there.
        assert_eq!(headline(&result), "[no zero-copy] afxdp, at 50,000/s.");
    }

    #[test]
    fn of_many_arms_the_first_few_are_named() {
        let names = |n: usize| one_of((0..n).map(|arm| format!("arm{arm}")).collect());
        assert_eq!(names(1), "arm0");
        assert_eq!(names(3), "arm0 or arm1 or arm2");
        assert_eq!(names(6), "arm0 or arm1 or arm2 or one of 3 more");
    }
}
