//! Two traces compared: what got slower, by how much, and is it more than chance (protocol P12 for unpaired data).
//!
//! The unit is a block of time, never a packet or a call. Blocks of two traces have nothing to do with
//! each other, so they are not paired: the ratio is Hodges and Lehmann's (median of all pairs, on the
//! log scale) with the interval that belongs to Mann and Whitney's test; p values are Holm's over each table.
//! A function that appears in one trace only is named and not tested. Blocks of one run are not runs: a
//! difference found here says that the *traces* differ, and a race says whether the programs do.

use std::collections::HashMap;

use laneway_stats::holm;

use crate::analysis::Report;
use crate::detect::CUT_SHARE_MAX;
use crate::result::{CalibrationSource, DIFF_SCHEMA, Difference, DifferenceRow, Layer};

/// Blocks with a value that either trace needs.
const BLOCKS_MIN: usize = 8;
/// A difference smaller than this does not matter (the lab's threshold).
const THRESHOLD: f64 = 0.02;
const P_MAX: f64 = 0.05;
/// Functions in the table.
const FUNCTIONS_MAX: usize = 200;
/// Functions below this share of corrected time in both traces are left out.
const SHARE_MIN: f64 = 1e-4;

/// Which way is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Good {
    High,
    Low,
}

/// Compares `other` with `base`.
pub fn diff(base: &Report, other: &Report) -> Difference {
    let packets = [base, other].iter().all(|report| {
        report.blocks.iter().filter(|block| block.packets > 0.0).count() >= BLOCKS_MIN
    });
    let unit = if packets { "ns per packet" } else { "ns per second" };
    let mut rates = Vec::new();
    if packets {
        let rate = |report: &Report| -> Vec<f64> {
            let seconds = block_seconds(report);
            report.blocks.iter().map(|block| block.packets / seconds).collect()
        };
        rates.push(row("packets received", "per second", &rate(base), &rate(other), Good::High));
    }
    let layers = Layer::ALL.iter().map(|&layer| {
        let cost = |report: &Report| -> Vec<f64> {
            let ns = report.layer_blocks.iter().map(|layers| layers[layer.index()]);
            per_unit(report, packets, ns)
        };
        row(layer.name(), unit, &cost(base), &cost(other), Good::Low)
    });
    let layers = layers.filter(|row| row.base.is_some() || row.other.is_some()).collect();
    let mut difference = Difference {
        schema: DIFF_SCHEMA.to_owned(),
        base: base.analysis.coverage.clone(),
        other: other.analysis.coverage.clone(),
        blocks: base.blocks.len().max(other.blocks.len()) as u32,
        doubts: doubts(base, other),
        rates,
        layers,
        functions: functions(base, other, packets, unit),
    };
    for table in [&mut difference.rates, &mut difference.layers, &mut difference.functions] {
        judge(table);
    }
    let weight = |row: &DifferenceRow| (row.other.unwrap_or(0.0) - row.base.unwrap_or(0.0)).abs();
    difference.functions.sort_by(|a, b| weight(b).total_cmp(&weight(a)).then(a.name.cmp(&b.name)));
    difference.functions.truncate(FUNCTIONS_MAX);
    difference
}

fn functions(base: &Report, other: &Report, packets: bool, unit: &str) -> Vec<DifferenceRow> {
    let index = |report: &Report| -> HashMap<String, usize> {
        let functions = report.analysis.functions.iter().enumerate();
        functions
            .filter(|(_, row)| row.share_corrected >= SHARE_MIN && !row.dominated)
            .map(|(at, row)| (row.name.clone(), at))
            .collect()
    };
    let (left, right) = (index(base), index(other));
    let mut names: Vec<&String> = left.keys().chain(right.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let series = |report: &Report, name: &String| -> Vec<f64> {
        // A function below the share in one trace is still looked up there.
        let found = report.analysis.functions.iter().position(|row| row.name == *name);
        found.map_or_else(Vec::new, |at| {
            per_unit(report, packets, report.blocks.iter().map(|block| block.corrected_ns[at]))
        })
    };
    names
        .into_iter()
        .map(|name| row(name, unit, &series(base, name), &series(other, name), Good::Low))
        .collect()
}

fn block_seconds(report: &Report) -> f64 {
    let length_ns = report.analysis.coverage.span.length_ns as f64;
    (length_ns / 1e9 / report.blocks.len().max(1) as f64).max(1e-12)
}

/// Costs per packet of each block that has packets, or per second of it.
fn per_unit(report: &Report, packets: bool, ns: impl Iterator<Item = f64>) -> Vec<f64> {
    let seconds = block_seconds(report);
    report
        .blocks
        .iter()
        .zip(ns)
        .filter_map(|(block, ns)| match packets {
            true => (block.packets > 0.0).then(|| ns / block.packets),
            false => Some(ns / seconds),
        })
        .collect()
}

fn doubts(base: &Report, other: &Report) -> Vec<String> {
    let mut doubts = Vec::new();
    for (which, report) in [("first", base), ("second", other)] {
        let coverage = &report.analysis.coverage;
        if coverage.cut_share > CUT_SHARE_MAX {
            doubts.push(format!(
                "The {which} trace has {:.2} % of its calls cut by holes: what fell into them is not compared.",
                100.0 * coverage.cut_share
            ));
        }
    }
    let costs = [&base.analysis.calibration, &other.analysis.calibration];
    if costs[0].source != costs[1].source {
        doubts.push("The tracer's cost is known in different ways in the two traces.".to_owned());
    } else if costs[0].source == CalibrationSource::Estimated
        && (costs[0].inside_ns / costs[1].inside_ns.max(1e-9) - 1.0).abs() > 0.2
    {
        doubts.push(format!(
            "The tracer seems to cost {:.0} ns per call in the first and {:.0} ns in the second: the machine was not the same.",
            costs[0].inside_ns, costs[1].inside_ns
        ));
    }
    if base.analysis.coverage.producers != other.analysis.coverage.producers {
        doubts.push("The traces were written by different tracers; their costs differ for that reason alone.".to_owned());
    }
    doubts
}

/// One row, with its raw p; [`judge`] makes it a verdict.
fn row(name: &str, unit: &str, base: &[f64], other: &[f64], good: Good) -> DifferenceRow {
    let mean = |values: &[f64]| -> Option<f64> {
        let sum: f64 = values.iter().sum();
        (sum > 0.0).then(|| sum / values.len() as f64)
    };
    let mut row = DifferenceRow {
        name: name.to_owned(),
        unit: unit.to_owned(),
        base: mean(base),
        other: mean(other),
        ratio: None,
        low: None,
        high: None,
        p: None,
        verdict: String::new(),
    };
    row.verdict = match (row.base, row.other) {
        (Some(_), None) => "only in the first".to_owned(),
        (None, Some(_)) => "only in the second".to_owned(),
        // The direction, until it is judged.
        _ => if good == Good::High { "high" } else { "low" }.to_owned(),
    };
    let logs = |values: &[f64]| -> Vec<f64> {
        values.iter().filter(|&&value| value > 0.0).map(|value| value.ln()).collect()
    };
    let (base, other) = (logs(base), logs(other));
    if base.len() >= BLOCKS_MIN && other.len() >= BLOCKS_MIN {
        let (shift, low, high) = hodges_lehmann(&base, &other);
        row.ratio = Some(shift.exp());
        row.low = Some(low.exp());
        row.high = Some(high.exp());
        row.p = Some(mann_whitney(&base, &other));
    }
    row
}

fn judge(table: &mut [DifferenceRow]) {
    let raw: Vec<Option<f64>> = table.iter().map(|row| row.p).collect();
    for (row, p) in table.iter_mut().zip(holm(&raw)) {
        row.p = p;
        if row.base.is_none() != row.other.is_none() {
            continue;
        }
        let high_is_good = row.verdict == "high";
        let verdict = match (row.low, row.high, p) {
            (Some(low), Some(high), Some(p)) => {
                let (down, up) = (1.0 / (1.0 + THRESHOLD), 1.0 + THRESHOLD);
                if low > up && p < P_MAX {
                    if high_is_good { "better" } else { "worse" }
                } else if high < down && p < P_MAX {
                    if high_is_good { "worse" } else { "better" }
                } else if low >= down && high <= up {
                    "same"
                } else {
                    "inconclusive"
                }
            }
            _ => "inconclusive",
        };
        row.verdict = verdict.to_owned();
    }
}

/// Median of all differences other - base, with its 95 % interval.
fn hodges_lehmann(base: &[f64], other: &[f64]) -> (f64, f64, f64) {
    let mut differences: Vec<f64> =
        other.iter().flat_map(|b| base.iter().map(move |a| b - a)).collect();
    differences.sort_unstable_by(f64::total_cmp);
    let (n, m) = (base.len() as f64, other.len() as f64);
    let spread = 1.96 * (n * m * (n + m + 1.0) / 12.0).sqrt();
    let rank = ((n * m / 2.0 - spread).floor().max(0.0)) as usize;
    let last = differences.len() - 1;
    let median = 0.5 * (differences[last / 2] + differences[last.div_ceil(2)]);
    (median, differences[rank], differences[last - rank])
}

/// Two-sided p of Mann and Whitney's test: normal approximation with ties and continuity.
fn mann_whitney(base: &[f64], other: &[f64]) -> f64 {
    let mut all: Vec<(f64, bool)> = base
        .iter()
        .map(|&value| (value, false))
        .chain(other.iter().map(|&value| (value, true)))
        .collect();
    all.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let (n, m) = (base.len() as f64, other.len() as f64);
    let (mut ranks, mut ties) = (0.0, 0.0);
    let mut from = 0;
    while from < all.len() {
        let to = all[from..].iter().take_while(|entry| entry.0 == all[from].0).count() + from;
        let rank = (from + to + 1) as f64 / 2.0;
        ranks += rank * all[from..to].iter().filter(|entry| entry.1).count() as f64;
        let tied = (to - from) as f64;
        ties += tied * tied * tied - tied;
        from = to;
    }
    let total = n + m;
    let u = ranks - m * (m + 1.0) / 2.0;
    let variance = n * m / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let z = ((u - n * m / 2.0).abs() - 0.5).max(0.0) / variance.sqrt();
    (2.0 * upper_tail(z)).min(1.0)
}

/// Share of a normal distribution above `z` >= 0 (Abramowitz and Stegun 7.1.26, error below 1e-7).
fn upper_tail(z: f64) -> f64 {
    let x = z / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let series = t
        * (0.254_829_592
            + t * (-0.284_496_736
                + t * (1.421_413_741 + t * (-1.453_152_027 + t * 1.061_405_429))));
    0.5 * series * (-x * x).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    // By counting pairs: U = 23.5 of 25, two values tied; mean 12.5, variance 25/12 (11 - 6/90) = 22.778,
    // z = (11 - 0.5) / 4.7726 = 2.2001, p = 0.0278.
    #[test]
    fn the_test_agrees_with_a_calculation_by_hand() {
        let base = [1.0, 2.0, 3.0, 4.0, 6.0];
        let other = [5.0, 6.0, 7.0, 8.0, 9.0];
        let p = mann_whitney(&base, &other);
        assert!((p - 0.0278).abs() < 2e-4, "{p}");
    }

    #[test]
    fn the_shift_is_the_median_of_all_pairs() {
        let base: Vec<f64> = (0..20).map(f64::from).collect();
        let other: Vec<f64> = (0..20).map(|value| f64::from(value) + 3.0).collect();
        let (shift, low, high) = hodges_lehmann(&base, &other);
        assert_eq!(shift, 3.0);
        assert!(low < 3.0 && 3.0 < high && high - low < 9.0, "{low} {high}");
    }

    #[test]
    fn equal_blocks_have_no_difference() {
        assert_eq!(mann_whitney(&[2.0; 9], &[2.0; 9]), 1.0);
    }
}
