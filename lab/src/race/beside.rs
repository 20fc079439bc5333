//! What interrupted the tasks of an arm and has no known cause. It is in no figure, and some of it may be the arm's
//! doing: so a verdict or an answer on CPU time must hold with it, too.
//!
//! This is no upper bound. What the arm caused on a CPU that was idle is among the host's
//! (`unattributed, of the host`).

use super::analyse::{self, Side};
use crate::result::{Finding, RaceResult, Segment};
use laneway_kinds::Metric;
use laneway_stats::pairs::{Comparison, Doubt, Interval};
use laneway_stats::{Scale, Verdict};

/// What interrupted an arm at a load as a share of its own CPU time: the median of its segments that can be used.
/// `None` where it is not known.
fn share_of(segments: &[Segment], side: Side) -> Option<f64> {
    let used = analyse::measured(segments, side).filter(|segment| segment.invalid.is_empty());
    analyse::beside_share(used)
}

/// How far what interrupted two arms may move a comparison of their CPU time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reach {
    /// As a share of the arm's own time, and of the other's: 0 where there is none.
    shares: [f64; 2],
    /// The effect is that of values per CPU time, and not of CPU time.
    is_inverse: bool,
    /// Between which factors the value of the arm lies, and that of the other.
    factors: [[f64; 2]; 2],
}

impl Reach {
    /// Of a figure of an arm, over another's; `None` where it is not of CPU time, or this is not known.
    pub(super) fn of(
        segments: &[Segment],
        metric: Metric,
        arm: Side,
        over: Option<Side>,
    ) -> Option<Reach> {
        if !metric.is_of_cpu() {
            return None;
        }
        let other = over.map_or(Some(0.0), |over| share_of(segments, over))?;
        let shares = [share_of(segments, arm)?, other];
        let is_inverse = metric == Metric::PerCpu;
        let factors = shares.map(|share| match is_inverse {
            false => [1.0, 1.0 + share],
            true => [1.0 / (1.0 + share), 1.0],
        });
        Some(Reach { shares, is_inverse, factors })
    }

    pub(super) fn doubt(self) -> Doubt {
        let [arm, other] = self.shares;
        Doubt::Unattributed { share: arm.max(other) }
    }

    /// The comparison where all of it was the arm's, and where all of it was the other's; of values that are usually
    /// these.
    pub(super) fn moved(self, found: &Comparison, [arm, other]: [f64; 2]) -> [Comparison; 2] {
        let [of_arm, of_other] = self.factors;
        let ends = match found.rule.scale {
            Scale::Ratio => [of_arm[1] / of_other[0], of_arm[0] / of_other[1]],
            Scale::Difference => {
                [0, 1].map(|end| arm * (of_arm[1 - end] - 1.0) - other * (of_other[end] - 1.0))
            }
        };
        ends.map(|by| shifted(found, by))
    }

    /// A ratio where all of it was the arm's that was interrupted.
    fn with_both(self, found: &Comparison) -> Comparison {
        let [arm, other] = self.shares.map(|share| 1.0 + share);
        shifted(found, if self.is_inverse { other / arm } else { arm / other })
    }
}

/// With an interval that lies elsewhere.
fn shifted(found: &Comparison, by: f64) -> Comparison {
    let scale = found.rule.scale;
    let moved = |end: f64| match scale {
        Scale::Ratio => end * by,
        Scale::Difference => end + by,
    };
    let interval =
        found.interval.map(|it| Interval { lower: moved(it.lower), upper: moved(it.upper), ..it });
    Comparison { interval, ..found.clone() }
}

/// Takes the verdicts on CPU time back that do not hold with what interrupted the arms.
pub(super) fn refuse(result: &mut RaceResult) {
    for (finding, doubt) in doubts(&result.findings, &result.segments) {
        let judgement = &mut result.findings[finding].judgement;
        (judgement.verdict, judgement.doubt) = (Verdict::Inconclusive, Some(doubt));
    }
}

/// Has a race go on for the verdicts that would be taken back at its end.
pub(super) fn reopen(findings: &mut [Finding], segments: &[Segment]) {
    for (finding, _) in doubts(findings, segments) {
        findings[finding].is_decided = false;
    }
}

/// The findings of which the verdict does not hold, and why.
fn doubts(findings: &[Finding], segments: &[Segment]) -> Vec<(usize, Doubt)> {
    let doubt = |finding: &Finding| {
        let is_twin =
            |f: &&Finding| (f.arm, f.load) == (1, finding.load) && f.metric == finding.metric;
        let noise =
            findings.iter().find(is_twin).filter(|_| finding.arm > 1).map(|f| &f.comparison);
        let metrics = [Metric::Cpu, Metric::PerCpu, Metric::CpuUsed];
        let metric = metrics.into_iter().find(|metric| metric.name() == finding.metric)?;
        let sides = [(finding.arm, finding.load), (0, finding.load)];
        let reach = Reach::of(segments, metric, sides[0], Some(sides[1]))?;
        (!holds(finding, reach, noise)).then(|| reach.doubt())
    };
    let of_each = |(at, finding)| Some((at, doubt(finding)?));
    findings.iter().enumerate().filter_map(of_each).collect()
}

/// Whether a verdict holds with it.
fn holds(finding: &Finding, reach: Reach, noise: Option<&Comparison>) -> bool {
    let verdict = finding.judgement.verdict;
    let mut found = finding.comparison.clone();
    if found.judge(noise).verdict != verdict
        && let (Some(interval), Some(estimate)) = (&mut found.interval, found.estimate)
    {
        // Called at an earlier look, the interval of which is gone.
        (interval.lower, interval.upper) = (estimate, estimate);
    }
    let is_so = |found: &Comparison| found.judge(noise).verdict == verdict;
    match verdict {
        Verdict::Inconclusive => true,
        // Whatever was the one's, so much of the other's was, too.
        Verdict::Same => is_so(&reach.with_both(&found)),
        Verdict::Better | Verdict::Worse => reach.moved(&found, [0.0; 2]).iter().all(is_so),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report;
    use laneway_stats::pairs::{Limit, Pair};
    use laneway_stats::{Direction, Look, Rule};

    const ARM: usize = 2;

    /// The example, in which so much of their own time interrupted an arm and the base.
    fn interrupted([arm, base]: [f64; 2]) -> RaceResult {
        let mut result = report::example();
        for segment in &mut result.segments {
            let share = if segment.arm == ARM { arm } else { base };
            segment.cpu.own_ns = 1_000_000;
            segment.cpu.beside_ns = Some((share * 1e6) as u64);
        }
        result
    }

    /// An arm of so many times the base's value, to 1 %.
    fn compared(times: f64, rule: Rule) -> Comparison {
        let pair = |round: usize| Pair {
            generation: round,
            base: Some(100.0),
            arm: Some(100.0 * times * [0.995, 1.0, 1.005][round % 3]),
        };
        let pairs: Vec<Pair> = (0..12).map(pair).collect();
        Comparison::of_pairs(&pairs, rule, Look::only(0.05)).expect("within limits")
    }

    /// What is left of the verdict on a ratio.
    fn left(shares: [f64; 2], metric: Metric, times: f64) -> (Verdict, Verdict) {
        let mut result = interrupted(shares);
        let per_cpu = Rule { direction: Direction::HigherIsBetter, ..Rule::COST };
        let rule = if metric == Metric::PerCpu { per_cpu } else { Rule::COST };
        let of = |arm, times| {
            let comparison = compared(times, rule);
            let mut finding = result.findings[0].clone();
            (finding.metric, finding.arm, finding.load) = (metric.name().to_owned(), arm, 0);
            finding.judgement = comparison.judge(None);
            Finding { comparison, ..finding }
        };
        result.findings = vec![of(1, 1.0), of(ARM, times)];
        let before = result.findings[1].judgement.verdict;
        refuse(&mut result);
        let after = result.findings[1].judgement;
        let is_refused = matches!(after.doubt, Some(Doubt::Unattributed { share }) if share > 0.0);
        assert_eq!(is_refused, after.verdict != before, "{after:?}");
        (before, after.verdict)
    }

    #[test]
    fn a_verdict_on_cpu_time_holds_with_what_interrupted_the_arms() {
        use Verdict::{Better, Inconclusive, Same, Worse};
        for (shares, metric, times, verdict, left_of_it) in [
            ([0.0, 0.0], Metric::Cpu, 0.9, Better, Better),
            // Were all of it the arm's, it would be no better.
            ([0.1, 0.0], Metric::Cpu, 0.9, Better, Inconclusive),
            ([0.1, 0.0], Metric::Cpu, 0.7, Better, Better),
            ([0.0, 0.1], Metric::Cpu, 0.9, Better, Better),
            ([0.0, 0.1], Metric::Cpu, 1.1, Worse, Inconclusive),
            ([0.1, 0.0], Metric::Cpu, 1.1, Worse, Worse),
            ([0.0, 0.1], Metric::CpuUsed, 1.1, Worse, Inconclusive),
            // Per CPU time it is the other way round.
            ([0.1, 0.0], Metric::PerCpu, 1.1, Better, Inconclusive),
            ([0.0, 0.1], Metric::PerCpu, 1.1, Better, Better),
            ([0.0, 0.1], Metric::PerCpu, 0.9, Worse, Inconclusive),
            // As much of both leaves them the same.
            ([0.1, 0.1], Metric::Cpu, 1.0, Same, Same),
            ([0.1, 0.0], Metric::Cpu, 1.0, Same, Inconclusive),
            ([0.1, 0.0], Metric::PerCpu, 1.0, Same, Inconclusive),
            ([0.1, 0.1], Metric::PerCpu, 1.0, Same, Same),
            ([0.1, 0.1], Metric::Rate, 0.9, Better, Better),
        ] {
            let is = left(shares, metric, times);
            assert_eq!(is, (verdict, left_of_it), "{shares:?} {} {times}", metric.name());
        }
    }

    #[test]
    fn a_verdict_of_an_earlier_look_rests_on_the_estimate() {
        let mut result = interrupted([0.03, 0.0]);
        let mut finding = result.findings[0].clone();
        (finding.metric, finding.arm, finding.load) = (Metric::Cpu.name().to_owned(), 1, 0);
        finding.comparison = compared(0.9, Rule::COST);
        finding.judgement = finding.comparison.judge(None);
        finding.comparison.interval.as_mut().expect("it has one").upper = 1.2;
        for segment in &mut result.segments {
            segment.cpu.beside_ns = Some(if segment.arm == 1 { 30_000 } else { 0 });
        }
        result.findings = vec![finding];
        refuse(&mut result);
        assert_eq!(result.findings[0].judgement.verdict, Verdict::Better);
        result.segments.iter_mut().for_each(|s| s.cpu.beside_ns = Some(100_000));
        refuse(&mut result);
        assert_eq!(result.findings[0].judgement.verdict, Verdict::Inconclusive);
    }

    #[test]
    fn what_is_not_known_moves_nothing() {
        let result = report::example();
        let side = (ARM, 0);
        assert_eq!(Reach::of(&result.segments, Metric::Cpu, side, Some((0, 0))), None);
        let known = interrupted([0.1, 0.0]).segments;
        assert_eq!(Reach::of(&known, Metric::Rate, side, None), None);
        assert!(Reach::of(&known, Metric::Cpu, side, None).is_some());
    }

    #[test]
    fn a_difference_is_moved_by_what_it_is_of_the_values() {
        let rule = Rule::difference(Direction::LowerIsBetter, 1.0);
        let found = compared(1.5, rule);
        let reach = |metric| {
            let segments = interrupted([0.1, 0.2]).segments;
            Reach::of(&segments, metric, (ARM, 0), Some((0, 0))).expect("it is known")
        };
        let ends = |metric| {
            let centre = found.estimate.expect("it has one");
            reach(metric).moved(&found, [150.0, 100.0]).map(|moved| {
                let it = moved.interval.expect("it has one");
                ((it.lower + it.upper) / 2.0 - centre).round()
            })
        };
        assert_eq!(ends(Metric::Cpu), [15.0, -20.0]);
        assert_eq!(ends(Metric::PerCpu), [17.0, -14.0]);
        let met = |found: &Comparison, most| found.answer(Limit::AtMost(most), None).answer;
        use laneway_stats::pairs::Answer::{Met, Missed};
        assert_eq!((met(&found, 60.0), met(&found, 40.0)), (Met, Missed));
    }
}
