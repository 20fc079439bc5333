//! What else than an arm set one of its figures. The arm can do that much or more, so the figure bounds from one side:
//! where it is the arm's, their ratio may be higher, and where it is the base's, lower. What still follows from such a
//! ratio is stated, and nothing else.

use super::analyse::Side;
use super::clients;
use crate::result::{CapacityRow, RaceResult};
use laneway_kinds::Metric;
use laneway_stats::Verdict;
use laneway_stats::pairs::Doubt;

/// Which of the lab's parts was at its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limiter {
    /// A generator without headroom: what an arm took is as much its doing, so nothing follows at all.
    Generator,
    /// A client that was busy all the time.
    Client,
    /// A search of a generation ended at its highest rate, or most of them at what the generator keeps.
    Search,
}

impl Limiter {
    fn doubt(self) -> Doubt {
        match self {
            Limiter::Generator => Doubt::NoHeadroom,
            Limiter::Client => Doubt::ClientLimited,
            Limiter::Search => Doubt::OpenSearch,
        }
    }
}

/// What set the figure of an arm at a load, of the metric with this name, if it was not the arm.
pub(super) fn limiter(result: &RaceResult, metric: &str, side: Side) -> Option<Limiter> {
    if metric == Metric::Rate.name() {
        let generator = (!result.has_headroom(side.1)).then_some(Limiter::Generator);
        return generator.or_else(|| clients::is_limit(result, side).then_some(Limiter::Client));
    }
    let rows: [&[CapacityRow]; 2] = match metric {
        it if it == Metric::Capacity.name() => [
            result.ping.as_ref().map_or(&[], |ping| &ping.capacities),
            result.capacity.as_ref().map_or(&[], |searched| &searched.capacities),
        ],
        it if it == Metric::ZeroLoss.name() => {
            [&[], result.capacity.as_ref().map_or(&[], |searched| &searched.zero_loss)]
        }
        _ => return None,
    };
    let mut of_arm = rows.into_iter().flatten().filter(|row| row.arm == side.0);
    of_arm.any(|row| row.open_ended > 0).then_some(Limiter::Search)
}

/// Takes the verdicts back that do not follow from figures which bound from one side only.
pub(super) fn refuse(result: &mut RaceResult) {
    let mut findings = std::mem::take(&mut result.findings);
    for finding in &mut findings {
        let limiter = |arm| limiter(result, &finding.metric, (arm, finding.load));
        let [arm, base] = [limiter(finding.arm), limiter(0)];
        let Some(limiter) = arm.or(base) else { continue };
        // Of all that may be limited, more is better.
        let follows = match finding.judgement.verdict {
            Verdict::Better => base.is_none(),
            Verdict::Worse => arm.is_none(),
            Verdict::Same | Verdict::Inconclusive => false,
        };
        if limiter == Limiter::Generator || !follows {
            finding.judgement.verdict = Verdict::Inconclusive;
            finding.judgement.doubt = Some(limiter.doubt());
        }
    }
    result.findings = findings;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report;
    use crate::result::{CapacitySection, ClientShare};

    #[test]
    fn a_rate_has_no_verdict_where_the_generator_has_no_headroom() {
        let mut result = report::example();
        let before = result.findings.clone();
        result.headroom[0].missing.push("the generator was late".to_owned());
        refuse(&mut result);
        for (finding, before) in result.findings.iter().zip(&before) {
            let is_one = finding.metric == Metric::Rate.name() && finding.load == 0;
            let is_refused = finding.judgement.doubt == Some(Doubt::NoHeadroom);
            assert_eq!(is_refused, is_one, "{} at {}", finding.metric, finding.load);
            assert!(is_one || finding.judgement == before.judgement);
        }
    }

    /// What is left of a verdict on `metric` of arm 2 at load 0.
    fn left(result: &RaceResult, metric: Metric, verdict: Verdict) -> (Verdict, Option<Doubt>) {
        let mut result = result.clone();
        let load = if metric.has_no_load() { result.loads_pps.len() } else { 0 };
        let rate = result.findings.iter().find(|f| (f.arm, f.load) == (2, 0)).expect("it has one");
        let mut finding = rate.clone();
        (finding.metric, finding.load) = (metric.name().to_owned(), load);
        (finding.judgement.verdict, finding.judgement.doubt) = (verdict, None);
        result.findings = vec![finding];
        refuse(&mut result);
        (result.findings[0].judgement.verdict, result.findings[0].judgement.doubt)
    }

    #[test]
    fn of_a_figure_that_the_lab_limited_only_what_it_bounds_is_kept() {
        let client = |arm: usize| RaceResult {
            client_shares: vec![ClientShare { arm, load: 0, share: 0.97 }],
            ..report::example()
        };
        let search = |arm: usize| {
            let row = |at| CapacityRow {
                arm: at,
                pps: None,
                searches: 9,
                open_ended: usize::from(at == arm),
                left_out: 0,
            };
            let capacity = CapacitySection {
                loss_max_share: 0.0,
                searched_pps: [1, 2],
                trials: 1,
                trial_ms: 1,
                capacities: (0..3).map(row).collect(),
                zero_loss: Vec::new(),
            };
            RaceResult { capacity: Some(capacity), ..report::example() }
        };
        use Verdict::{Better, Inconclusive, Same, Worse};
        for (limited, metric, doubt) in [
            (&client as &dyn Fn(usize) -> RaceResult, Metric::Rate, Doubt::ClientLimited),
            (&search, Metric::Capacity, Doubt::OpenSearch),
        ] {
            let refused = (Inconclusive, Some(doubt));
            let [arm, base, other] = [2, 0, 1].map(limited);
            // The arm can do that or more, so what is better stays so.
            assert_eq!(left(&arm, metric, Better), (Better, None));
            assert_eq!([Worse, Same].map(|it| left(&arm, metric, it)), [refused; 2]);
            assert_eq!(left(&base, metric, Worse), (Worse, None));
            assert_eq!([Better, Same].map(|it| left(&base, metric, it)), [refused; 2]);
            assert_eq!(left(&other, metric, Same), (Same, None));
            assert_eq!(left(&arm, Metric::Cpu, Same), (Same, None), "a cost is the arm's own");
        }
        let spare = ClientShare { arm: 2, load: 0, share: 0.9 };
        let result = RaceResult { client_shares: vec![spare], ..report::example() };
        assert_eq!(left(&result, Metric::Rate, Same), (Same, None));
    }
}
