//! Loads that an arm does not deliver. It spends its time on what it loses, too: what it then spends for each record
//! that it delivers, and how long those took, is no cost of its work. So that has no verdict, as narrow as its interval
//! may be.

use super::analyse::{Side, ledger_of};
use crate::result::{DELIVERS_LOSS_MAX, PingSection, RaceResult};
use laneway_kinds::Metric;
use laneway_stats::Verdict;
use laneway_stats::pairs::Doubt;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error;

/// In front of the names of what is taken of real pings, some of which are no metrics by themselves.
const OF_PINGS: &str = "ping ";
/// Behind those of pings beside a load.
const LOADED: &str = " under load";

/// Takes the verdicts on costs back where one of the two arms does not deliver the load.
pub(super) fn refuse(result: &mut RaceResult) {
    let mut findings = std::mem::take(&mut result.findings);
    for finding in &mut findings {
        let undone = |arm| undone(result, &finding.metric, (arm, finding.load));
        if let Some(share) = [finding.arm, 0].into_iter().filter_map(undone).reduce(f64::max) {
            finding.judgement.verdict = Verdict::Inconclusive;
            finding.judgement.doubt = Some(Doubt::Collapsed { share });
        }
    }
    result.findings = findings;
}

/// What an arm did not do of a load, as a share, if that is a collapse and the metric with this name is a cost. Where
/// it does not say what it received, this is not known.
fn undone(result: &RaceResult, metric: &str, side: Side) -> Option<f64> {
    if metric.starts_with(OF_PINGS) {
        return result.ping.as_ref().and_then(|pings| unreplied(pings, metric, side.0));
    }
    let named: Result<Metric, Error> = Metric::deserialize(metric.into_deserializer());
    let metric = named.ok().filter(|metric| metric.is_cost())?;
    let ledger = ledger_of(&result.segments, metric, side)?;
    (ledger.unknown.is_none() && !ledger.delivers()).then(|| ledger.undone_share())
}

/// The share of an arm's real pings that had no reply, if what is left of them is no sample of all.
fn unreplied(pings: &PingSection, metric: &str, arm: usize) -> Option<f64> {
    let rows = if metric.ends_with(LOADED) { &pings.pings_loaded } else { &pings.pings };
    let row = rows.iter().find(|row| row.arm == arm && row.sent > 0)?;
    let share = row.sent.saturating_sub(row.replied) as f64 / row.sent as f64;
    (share >= DELIVERS_LOSS_MAX).then_some(share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report;
    use crate::result::{Finding, Ledger};

    const ARM: usize = 2;

    /// The example, in which everything is delivered but for what `spoil` makes of the segments of an arm at a load.
    fn spoilt((arm, load): Side, spoil: impl Fn(&mut Ledger)) -> RaceResult {
        let mut result = report::example();
        for segment in &mut result.segments {
            let ledger = &mut segment.ledger;
            *ledger =
                Ledger { offered: ledger.offered, delivered: ledger.offered, ..Ledger::default() };
            if (segment.arm, segment.load) == (arm, load) {
                spoil(ledger);
            }
        }
        for finding in &mut result.findings {
            (finding.judgement.verdict, finding.judgement.doubt) = (Verdict::Better, None);
        }
        result
    }

    /// The findings without a verdict, once collapses are looked for.
    fn refused(mut result: RaceResult) -> Vec<(String, usize, usize)> {
        refuse(&mut result);
        let is_refused = |f: &&Finding| {
            let is_collapse = matches!(f.judgement.doubt, Some(Doubt::Collapsed { .. }));
            assert_eq!(is_collapse, f.judgement.verdict == Verdict::Inconclusive, "{f:?}");
            is_collapse
        };
        let refused = result.findings.iter().filter(is_refused);
        refused.map(|f| (f.metric.clone(), f.arm, f.load)).collect()
    }

    const COSTS: [&str; 3] = ["CPU per record", "p99 wire to app", "p99 app only"];

    #[test]
    fn what_an_arm_costs_that_loses_half_of_a_load_has_no_verdict_there() {
        let half = refused(spoilt((ARM, 1), |ledger| ledger.delivered /= 2));
        assert_eq!(half, COSTS.map(|metric| (metric.to_owned(), ARM, 1)));
        // What the base loses, no arm is compared with.
        let of_base = refused(spoilt((0, 1), |ledger| ledger.delivered /= 2));
        assert!(of_base.len() == 4 * COSTS.len() && of_base.iter().all(|(_, _, load)| *load == 1));
        assert_eq!(refused(spoilt((ARM, 1), |ledger| ledger.delivered -= 9)), []);
        let unknown = |ledger: &mut Ledger| {
            (ledger.delivered, ledger.unknown) = (0, Some(ledger.offered));
        };
        assert_eq!(refused(spoilt((ARM, 1), unknown)), []);
    }

    #[test]
    fn a_closed_loop_of_fewer_connections_than_were_asked_for_has_no_verdict_on_costs() {
        let looped = |broken| {
            spoilt((ARM, 1), move |ledger| (ledger.loops, ledger.loops_broken) = (1_000, broken))
        };
        assert_eq!(refused(looped(10)), COSTS.map(|metric| (metric.to_owned(), ARM, 1)));
        assert_eq!(refused(looped(9)), []);
    }

    #[test]
    fn pings_without_a_reply_leave_no_verdict_on_the_others() {
        let lost = |replied| {
            let mut result = report::example_of_pings();
            result.segments.clear();
            result.ping.as_mut().expect("it has pings").pings[1].replied = replied;
            result.findings.iter_mut().for_each(|f| {
                (f.judgement.verdict, f.judgement.doubt) = (Verdict::Better, None);
            });
            refused(result)
        };
        assert_eq!(lost(1_981), []);
        let load = report::example_of_pings().loads_pps.len();
        assert_eq!(lost(1_980), [("ping avg".to_owned(), 1, load)]);
    }
}
