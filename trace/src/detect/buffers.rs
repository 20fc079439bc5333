//! The pool of buffers: D6 what its cycle does, D11 what it costs.
//!
//! A pool is blamed for what is seen of it (failed allocations, fills that show in durations), never for being there.
//! That none failed is never stated: DPDK writes its trace points whatever a request ended with, and calls of functions
//! are without their results.

use laneway_page::number::nouns;

use crate::blocks::{count_interval, ratio_interval};
use crate::levels::{busiest_thread, levels};
use crate::model::Row;
use crate::points::Pool;
use crate::result::{CalibrationSource, Confidence, Finding, Layer, MARKS_MAX, State};
use laneway_random::Random;

use super::durations::{CANDIDATES, PERIOD_P, Periodic, candidates, uniform};
use super::fills::{fills_are_cheap, named_fills};
use super::{Case, Detector, Facts, blank, fired, mark, percent};

/// Period of refills and period of a function count as one within this.
const PERIODS_AGREE: f64 = 0.25;
/// Fills needed before they can be called periodic, and their largest coefficient of variation.
const REFILLS_MIN: usize = 8;
const REFILLS_VARIATION_MAX: f64 = 0.5;
const ALLOCATION_SHARE: f64 = 0.25;
/// Durations around fills must rise by this to be called slower.
const SHOWN_TIMES_MIN: f64 = 1.1;
/// Draws of other places by chance.
const DRAWS: usize = 1_000;
/// Levels of durations are counted in these.
const LEVELS_PER_DOUBLING: f64 = 32.0;
/// Of a trace without a failed allocation.
const RESULTS_UNKNOWN: &str = "Failed allocations are not in this trace";

pub(super) fn mempool_cycle(case: &Case<'_>, period: &Periodic, facts: &mut Facts) -> Finding {
    let finding = blank(Detector::MempoolCycle, "fills per packet");
    let model = case.model;
    let pools = &model.pools.pools;
    facts.failures = case.failures();
    let (named, named_ns) = named_fills(model);
    facts.refills = pools.iter().map(|pool| pool.refills).sum::<u64>().max(named);
    let productive = case.productive_ns();
    facts.refill_share = if productive > 0.0 { named_ns / productive } else { 0.0 };
    let buffers_seen = model.rows.iter().any(|row| {
        row.calls > 0 && crate::rules::layer(&row.name) == Some(Layer::Mempool) && !row.own
    });
    if pools.is_empty() && !buffers_seen {
        return finding
            .unmeasurable("The trace holds neither pool events nor calls of the mempool.");
    }
    let mut finding = finding;
    finding.span = case.whole();
    let packets = model.packets.received.unwrap_or(0);
    finding.value = (packets > 0).then(|| facts.refills as f64 / packets as f64);
    finding = finding.interval((packets > 0).then(|| {
        let (low, high) = count_interval(facts.refills);
        (low / packets as f64, high / packets as f64)
    }));
    finding.figure("fills from the backend", facts.refills.to_string());
    if facts.failures > 0 {
        finding.figure("failed allocations", facts.failures.to_string());
        return ran_out(case, finding, facts.failures);
    }
    finding.confidence = Confidence::Medium;
    if fills_are_cheap(case) {
        finding.sentence = format!(
            "{RESULTS_UNKNOWN}; {} {} from the backend took {} of the productive time, which is what a cache is for.",
            facts.refills,
            nouns(facts.refills, "fill"),
            percent(facts.refill_share)
        );
        return finding;
    }
    for pool in pools {
        if cycle_shows(case, pool, period, &mut finding) {
            return finding;
        }
    }
    finding.sentence = if facts.refills == 0 {
        format!("{RESULTS_UNKNOWN}, nor is a fill of the cache from the backend.")
    } else {
        format!(
            "{RESULTS_UNKNOWN}; {} {} from the backend left no trace in the durations.",
            facts.refills,
            nouns(facts.refills, "fill")
        )
    };
    finding
}

/// The finding where allocations failed.
fn ran_out(case: &Case<'_>, mut finding: Finding, failures: u64) -> Finding {
    let (model, pools) = (case.model, &case.model.pools.pools);
    finding.state = State::Fired;
    finding.confidence = Confidence::High;
    let first = pools.iter().filter_map(|pool| pool.first_failure_ns).min().unwrap_or(0);
    finding.marks = pools
        .iter()
        .flat_map(|pool| &pool.failures_ns)
        .take(MARKS_MAX)
        .map(|&at| mark(model.since(at), None, "no buffer"))
        .collect();
    finding.sentence = format!(
        "The pool ran out: {failures} {} failed, the first {:.3} s into the trace.",
        nouns(failures, "allocation"),
        model.since(first) as f64 / 1e9
    );
    finding
}

/// Whether fills of one pool come regularly and durations show it; the finding says so then.
fn cycle_shows(case: &Case<'_>, pool: &Pool, period: &Periodic, finding: &mut Finding) -> bool {
    let n = pool.intervals.len();
    if n < REFILLS_MIN {
        return false;
    }
    let taken: Vec<f64> = pool.intervals.iter().map(|&(taken, _)| taken as f64).collect();
    let mean = taken.iter().sum::<f64>() / n as f64;
    let variance = taken.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n as f64;
    let variation = variance.sqrt() / mean.max(1e-9);
    let first = pool.intervals[0].1;
    let last = pool.intervals[n - 1].1;
    let cycle_ns = (last - first) as f64 / (n - 1) as f64;
    finding.figure("buffers between fills", format!("{mean:.0}"));
    finding.figure("time between fills", format!("{:.3} ms", cycle_ns / 1e6));
    let periodic = period.period_ns.is_some_and(|period| {
        // The detector of periods may see the cycle itself or its half.
        let ratio = period / cycle_ns;
        (ratio - 1.0).abs() < PERIODS_AGREE || (ratio - 0.5).abs() < PERIODS_AGREE / 2.0
    });
    if variation >= REFILLS_VARIATION_MAX {
        return false;
    }
    let shown = if periodic { None } else { shown_in_durations(case, &pool.intervals) };
    if let Some((name, times)) = &shown {
        finding.figure("slower around fills", format!("{name}, {times:.1} times"));
    }
    if !periodic && shown.is_none() {
        return false;
    }
    finding.state = State::Fired;
    finding.confidence = Confidence::Medium;
    finding.marks = pool
        .intervals
        .iter()
        .take(MARKS_MAX)
        .map(|&(_, at)| mark(case.model.since(at), None, "fill"))
        .collect();
    let seen = shown.map_or_else(
        || "and durations repeat at that period".to_owned(),
        |(name, times)| format!("and around fills {name} takes {times:.1} times as long"),
    );
    finding.sentence =
        format!("The cache is filled every {mean:.0} buffers, {:.3} ms, {seen}.", cycle_ns / 1e6);
    true
}

pub(super) fn buffer_cost(case: &Case<'_>) -> Finding {
    let finding = blank(Detector::BufferCost, "share of productive time");
    let model = case.model;
    let buffers: Vec<&Row> =
        model.rows.iter().filter(|row| row.layer_shares[Layer::Mempool.index()] > 0.5).collect();
    let productive = case.productive_ns();
    if buffers.is_empty() || productive <= 0.0 {
        return finding.unmeasurable("The trace holds no calls of mempool or mbuf.");
    }
    let (raw, corrected) = model.layer_ns(Layer::Mempool);
    let blocks = case.quiet_blocks();
    let part: Vec<f64> = blocks.iter().map(|block| block.layer_ns(model, Layer::Mempool)).collect();
    let whole: Vec<f64> = blocks
        .iter()
        .map(|block| {
            block.weighted(model, |row| {
                let out = [Layer::Idle, Layer::OffCpu, Layer::Tracer];
                1.0 - out.iter().map(|layer| row.layer_shares[layer.index()]).sum::<f64>()
            })
        })
        .collect();
    let share = part.iter().sum::<f64>() / whole.iter().sum::<f64>().max(1.0);
    let mut finding = finding.interval(ratio_interval(&part, &whole, case.seed ^ 11));
    finding.value = Some(share);
    finding.span = case.whole();
    finding.figure("raw", format!("{:.3} ms", raw as f64 / 1e6));
    finding.figure("corrected", format!("{:.3} ms", corrected / 1e6));
    let mostly_tracer = corrected < 0.5 * raw as f64;
    if mostly_tracer {
        finding.state = State::Withheld;
        finding.sentence = format!(
            "{} of what mempool and mbuf seem to cost is the tracer: nothing can be concluded from the rest.",
            percent(1.0 - corrected / raw.max(1) as f64)
        );
        return finding;
    }
    let is_felt = case.is_worth_it(corrected) && case.is_cost_known();
    finding.state = fired(is_felt && finding.low.is_some_and(|low| low > ALLOCATION_SHARE));
    finding.confidence = match model.calibration.source {
        CalibrationSource::Measured => Confidence::High,
        _ => Confidence::Medium,
    };
    finding.sentence = format!(
        "Mempool and mbuf take {} of the productive time, the tracer taken off.",
        percent(share)
    );
    finding
}

/// The costly function whose durations rise most where fills happen, and how many times; `None` if chance would do.
///
/// A cycle counted in buffers is no clock: when packets come unevenly, it has no line in a spectrum. But where the fills
/// are is known, so durations there are compared with those elsewhere, and that with as many other places by chance.
/// Only functions that do the same in every call are asked: others take longer where more packets are, and
/// there the fills are as well.
fn shown_in_durations(case: &Case<'_>, fills: &[(u64, u64)]) -> Option<(String, f64)> {
    let model = case.model;
    let alike = candidates(model).into_iter().filter(|&row| uniform(model, row));
    let rows: Vec<u32> = alike.take(2 * CANDIDATES).collect();
    let mut random = Random::seeded(case.seed ^ 6);
    let mut best: Option<(String, f64)> = None;
    for &row in &rows {
        let Some(thread) = busiest_thread(model, row) else { continue };
        let timed = &model.timed[thread];
        let levels = levels(model, thread, row, 1);
        let mut places: Vec<usize> = fills
            .iter()
            .filter_map(|&(_, at)| at.checked_sub(timed.start_ns))
            .map(|after| (after / timed.width_ns.max(1)) as usize)
            .collect();
        places.dedup();
        let there: Vec<f64> =
            places.iter().filter_map(|&at| levels.get(at).copied().flatten()).collect();
        let mut all: Vec<f64> = levels.iter().flatten().copied().collect();
        // Fills everywhere, or nowhere in this thread: nothing to compare.
        if there.len() < REFILLS_MIN || 2 * there.len() > all.len() {
            continue;
        }
        let (count, whole) = (there.len(), all.iter().sum::<f64>());
        let rest = (all.len() - count) as f64;
        let rise = |part: &[f64]| {
            let part: f64 = part.iter().sum();
            part / count as f64 - (whole - part) / rest
        };
        let found = rise(&there);
        let times = (found / LEVELS_PER_DOUBLING).exp2();
        let better = best.as_ref().is_none_or(|(_, other)| times > *other);
        if times < SHOWN_TIMES_MIN || !better {
            continue;
        }
        let mut higher = 0;
        for _ in 0..DRAWS {
            for at in 0..count {
                let other = at + random.index(all.len() - at);
                all.swap(at, other);
            }
            higher += usize::from(rise(&all[..count]) >= found);
        }
        if higher as f64 <= PERIOD_P / rows.len() as f64 * DRAWS as f64 {
            best = Some((model.rows[row as usize].name.clone(), times));
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use laneway_trace_read::{Consumer, Event, Kind, PoolAction, Thread, ThreadId};

    use super::*;
    use crate::{Analyzer, Name, Options, Source};

    #[test]
    fn requests_without_a_result_are_no_proof_that_none_failed() {
        let mut analyzer = Analyzer::new(Options::default());
        let thread = Thread { pid: 1, tid: 1, name: "worker-0".to_owned() };
        analyzer.thread(ThreadId(0), &thread);
        let get = Kind::Pool { action: PoolAction::Get, pool: 0, buffers: 32 };
        let events: Vec<Event> =
            (1..500).map(|at| Event { time_ns: 1_000 * at, kind: get }).collect();
        analyzer.events(ThreadId(0), Some(0), &events);
        let mut name = |_| Name { text: String::new(), known: false };
        let analysis = analyzer.finish(&Source::default(), &mut name).analysis;
        let cycle = &analysis.findings[Detector::MempoolCycle.place()];
        assert_eq!((cycle.state, cycle.confidence), (State::Silent, Confidence::Medium));
        assert!(cycle.sentence.starts_with(RESULTS_UNKNOWN), "{}", cycle.sentence);
        assert_eq!(analysis.pools[0].taken, 499 * 32);
    }
}
