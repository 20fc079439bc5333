//! Whether the machine changed under the race: the base's own cost, generation by generation.
//!
//! Base and arm of a round are neighbours in time, and which of them goes first is shuffled: what changes slowly is the
//! same for both. So a drift is reported with its size, and takes no verdict away, as long as what it comes to from one
//! round to the next is less than a difference that matters. The generation is the unit, since within one the processes
//! are the same and neighbours share more than the trend.

use super::analyse::measured;
use crate::result::{BaseDrift, RaceResult, Segment};
use laneway_stats::pairs::Doubt;
use laneway_stats::{Drift, Verdict, quantile};

/// A trend that chance gives oftener than this is none.
const P_MAX: f64 = 0.01;
/// A trend of less than this over the whole race is not worth a sentence.
const CHANGE_MIN: f64 = 0.05;

/// The drift of a race, if it had one; `matters` is the smallest ratio that does.
pub(super) fn drift(segments: &[Segment], rounds: usize, matters: f64) -> Option<BaseDrift> {
    let Drift { n, change, p } = Drift::of(&costs(segments))?;
    let per_round = change.ln_1p().abs() / rounds.max(1) as f64;
    let is_one = p < P_MAX && change.abs() >= CHANGE_MIN;
    let is_absorbed = per_round < matters;
    is_one.then_some(BaseDrift { generations: n, change, p, per_round, is_absorbed })
}

/// The base's CPU time per record in each generation, ns: of medians at each load, the geometric mean. A generation
/// without a figure at some load is left out, because loads cost differently.
fn costs(segments: &[Segment]) -> Vec<f64> {
    let loads = segments.iter().map(|segment| segment.load + 1).max().unwrap_or(0);
    let generations = segments.iter().map(|segment| segment.generation + 1).max().unwrap_or(0);
    let log = |generation: usize, load: usize| {
        let of = measured(segments, (0, load)).filter(|s| s.generation == generation);
        let usable = of.filter(|segment| segment.invalid.is_empty());
        let costs: Vec<f64> = usable.filter_map(|segment| segment.cpu.ns_per_record).collect();
        Some(quantile(&costs, 0.5).ok()?.ln())
    };
    let of_generation = |generation| {
        let logs: Option<Vec<f64>> = (0..loads).map(|load| log(generation, load)).collect();
        Some((logs?.iter().sum::<f64>() / loads as f64).exp())
    };
    (0..generations).filter_map(of_generation).collect()
}

/// The sentence of a drift.
fn sentence(drift: &BaseDrift) -> String {
    let BaseDrift { generations, change, p, per_round, is_absorbed } = *drift;
    let drifted = format!(
        "the base's own cost drifted by {:+.1} % over the race (Theil-Sen; Mann-Kendall p {p:.4}, {generations} \
         generations), {:.2} % from one round to the next",
        change * 100.0,
        per_round * 100.0
    );
    match is_absorbed {
        true => format!("{drifted}: base and arm of a round share it, so verdicts stand"),
        false => {
            format!("{drifted}: more than base and arm of a round share, so there is no verdict")
        }
    }
}

/// Reports in the result that the base drifted; beyond what pairs absorb no comparison has a verdict.
pub(super) fn report(result: &mut RaceResult) {
    let Some(drift) = &result.drift else { return };
    if drift.is_absorbed {
        result.notes.push(sentence(drift));
        return;
    }
    let doubt = Doubt::Drifted { per_round: drift.per_round };
    result.too_few.push(sentence(drift));
    for finding in &mut result.findings {
        finding.judgement.verdict = Verdict::Inconclusive;
        finding.judgement.doubt = Some(doubt);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report;

    /// The base's segments of 12 generations with 3 rounds each at two loads, whose cost changes by `change` in all;
    /// warm-up and what is invalid cost ten times as much.
    fn segments(change: f64) -> Vec<Segment> {
        let example = report::example().segments.swap_remove(0);
        let mut all = Vec::new();
        for order in 0..12 * 3 * 2 {
            let (generation, round, load) = (order / 6, order / 2, order % 2);
            let along = (1.0 + change).powf(generation as f64 / 11.0);
            let mut segment = Segment { arm: 0, generation, round, load, ..example.clone() };
            segment.warm_up = round % 3 == 0;
            segment.invalid.clear();
            let ns = if load == 0 { 400.0 } else { 250.0 } * along;
            segment.cpu.ns_per_record = Some(if segment.warm_up { ns * 10.0 } else { ns });
            all.push(segment);
        }
        all
    }

    #[test]
    fn a_drift_of_the_base_is_found_and_reported_with_its_size() {
        let found = drift(&segments(0.12), 36, 0.05).expect("it drifted");
        assert!((found.change - 0.12).abs() < 1e-6 && found.is_absorbed, "{found:?}");
        let text = sentence(&found);
        assert!(
            text.contains("drifted by +12.0 % over the race") && text.contains("stand"),
            "{text}"
        );
        assert_eq!(drift(&segments(0.04), 36, 0.05), None, "too small to be reported");
        assert_eq!(drift(&segments(0.12)[..6 * 7], 21, 0.05), None, "too few generations");
    }

    #[test]
    fn beyond_what_pairs_absorb_nothing_has_a_verdict() {
        let mut result = report::example();
        let had_one = result.findings.iter().any(|f| f.judgement.doubt.is_none());
        result.drift = drift(&segments(-0.6), 12, 0.05);
        let found = result.drift.clone().expect("it drifted");
        assert!(had_one && !found.is_absorbed && found.per_round > 0.07, "{found:?}");
        report(&mut result);
        assert!(result.too_few.last().expect("a reason is given").contains("no verdict"));
        let doubts = result.findings.iter().map(|finding| finding.judgement.doubt);
        assert!(doubts.into_iter().all(|doubt| matches!(doubt, Some(Doubt::Drifted { .. }))));
    }
}
