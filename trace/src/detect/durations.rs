//! Shapes of durations: D3 two modes, D4 a period, D5 everything slower together.
//!
//! D3 and D4 look at the costliest functions whose calls can be compared; D5 at many cheap ones.

use crate::account::SHARE_MIN;
use crate::common_mode;
use crate::histogram::{Histogram, bucket_of, bucket_start, level_of};
use crate::levels::{busiest_thread, levels};
use crate::model::Model;
use crate::period;
use crate::recurrence;
use crate::result::{Confidence, Finding, Layer, MARKS_MAX, Mark, State};
use crate::series::Timed;
use crate::shape;

use super::fills::fills_are_cheap;
use super::{Case, Detector, blank, fired, mark, percent};

const DIP_P: f64 = 0.01;
const MODES_APART: f64 = 1.5;
/// Share of the smaller of two modes.
const MODE_SHARE_MIN: f64 = 0.05;
/// Ashman's D below which two components are one.
const SEPARATION_MIN: f64 = 2.0;
/// Share of a function's calls that must have called the same children before its durations are compared.
const UNIFORMITY_MIN: f64 = 0.95;
/// Slow times that end within this share of the trace, in a stretch or with a few gaps from its beginning on, are its start.
const WARM_UP_SHARE: f64 = 0.15;
const WARM_UP_STRETCHES_MAX: usize = 4;
pub(super) const PERIOD_P: f64 = 0.01;
/// Functions looked at for periods and modes.
pub(super) const CANDIDATES: usize = 4;

/// Rows whose own time matters most and whose calls all do the same thing, with a thread that calls them.
pub(super) fn candidates(model: &Model) -> Vec<u32> {
    let mut rows: Vec<u32> = (0..model.rows.len() as u32)
        .filter(|&row| {
            let row = &model.rows[row as usize];
            let idle =
                row.layer_shares[Layer::Idle.index()] + row.layer_shares[Layer::OffCpu.index()];
            row.calls as usize >= shape::POINTS && !row.asynchronous && idle < 0.5
        })
        .collect();
    let weight = |row: u32| {
        let row = &model.rows[row as usize];
        if row.dominated { row.self_ns as f64 * 1e-6 } else { row.self_corrected_ns }
    };
    rows.sort_by(|&a, &b| weight(b).total_cmp(&weight(a)));
    rows
}

/// Do all calls of a row do the same: the same children, each as often, down to the leaves?
pub(super) fn uniform(model: &Model, row: u32) -> bool {
    let row = &model.rows[row as usize];
    let same: u64 = row
        .contexts
        .iter()
        .filter(|&&at| uniform_below(model, at))
        .map(|&at| model.contexts[at as usize].calls)
        .sum();
    same as f64 >= UNIFORMITY_MIN * row.calls as f64
}

fn uniform_below(model: &Model, context: u32) -> bool {
    let context = &model.contexts[context as usize];
    let calls = context.calls as f64;
    let children = || context.children.iter().map(|&child| &model.contexts[child as usize]);
    let called: u64 = children().map(|child| child.calls).sum();
    let usual = f64::from(context.usual_children()) * calls;
    context.uniformity() >= UNIFORMITY_MIN
        && (called as f64 - usual).abs() <= (1.0 - UNIFORMITY_MIN) * calls
        && context.children.iter().all(|&child| {
            // What is called once in a while does not make the calls differ.
            let rare =
                (model.contexts[child as usize].calls as f64) < (1.0 - UNIFORMITY_MIN) * calls;
            rare || uniform_below(model, child)
        })
}

/// Does the function fill the cache of a pool at times, itself or in what it calls?
fn fills(model: &Model, row: u32) -> bool {
    fn below(model: &Model, at: u32) -> bool {
        let context = &model.contexts[at as usize];
        crate::rules::is_refill(&model.rows[context.row as usize].name)
            || context.children.iter().any(|&child| below(model, child))
    }
    model.rows[row as usize].contexts.iter().any(|&at| below(model, at))
}

pub(super) fn two_modes(case: &Case<'_>) -> Finding {
    let mut finding = blank(Detector::TwoModes, "ratio of modes");
    let model = case.model;
    let rows: Vec<u32> = candidates(model)
        .into_iter()
        .filter(|&row| uniform(model, row))
        .take(2 * CANDIDATES)
        .collect();
    if rows.is_empty() {
        return finding.unmeasurable(format!(
            "No function with {} calls that all do the same thing.",
            shape::POINTS
        ));
    }
    // Several functions are asked, so each must answer more clearly.
    let level = DIP_P / rows.len() as f64;
    let mut best: Option<(f64, u32, shape::Two, f64)> = None;
    for &row in &rows {
        let logs = log_quantiles(&model.rows[row as usize].histogram);
        let p = shape::dip_p(shape::dip(&logs));
        let Some(two) = shape::fit_two(&logs) else { continue };
        let apart = (two.means[1] - two.means[0]).exp();
        let small = two.upper_share.min(1.0 - two.upper_share);
        let clear = p <= level.max(0.001)
            && apart > MODES_APART
            && small >= MODE_SHARE_MIN
            && two.separation() > SEPARATION_MIN;
        if clear && best.is_none_or(|(ratio, ..)| apart > ratio) {
            best = Some((apart, row, two, p));
        }
    }
    finding.span = case.whole();
    let Some((apart, row, two, p)) = best else {
        finding.confidence = Confidence::Medium;
        finding.sentence = format!(
            "Among the {} costliest functions whose calls all do the same, none has two modes more than {MODES_APART} times apart.",
            rows.len()
        );
        return finding;
    };
    let name = &model.rows[row as usize].name;
    // Standard error of a difference of component means, on the log scale.
    let n = shape::POINTS as f64;
    let error = (two.deviations[0].powi(2) / (n * (1.0 - two.upper_share))
        + two.deviations[1].powi(2) / (n * two.upper_share))
        .sqrt();
    finding.state = State::Fired;
    finding.value = Some(apart);
    finding.low = Some(apart * (-1.96 * error).exp());
    finding.high = Some(apart * (1.96 * error).exp());
    finding.confidence = Confidence::High;
    finding.figure("function", name.clone());
    finding.figure("dip p", format!("{p:.4}"));
    finding.figure("share of the slow mode", percent(two.upper_share));
    finding.figure("fast mode", format!("{:.0} ns", two.means[0].exp()));
    finding.figure("slow mode", format!("{:.0} ns", two.means[1].exp()));
    let (switching, marks) = slow_stretches(case, row, (two.means[0] + two.means[1]) / 2.0);
    finding.marks = marks;
    finding.sentence = format!(
        "{name} has two modes, {:.0} ns and {:.0} ns, {apart:.1} times apart; {} of its calls are slow, {}.",
        two.means[0].exp(),
        two.means[1].exp(),
        percent(two.upper_share),
        if switching { "in stretches" } else { "mixed with fast ones" }
    );
    finding
}

/// Logarithms of equally spaced quantiles, straight lines inside buckets.
fn log_quantiles(histogram: &Histogram) -> Vec<f64> {
    let total = histogram.total() as f64;
    let mut logs = Vec::with_capacity(shape::POINTS);
    let mut passed = 0.0;
    for (bucket, count) in histogram.buckets() {
        let start = (bucket_start(bucket).max(1) as f64).ln();
        let end = (bucket_start(bucket + 1).max(2) as f64).ln();
        let next = passed + f64::from(count);
        while logs.len() < shape::POINTS {
            let rank = (logs.len() as f64 + 0.5) / shape::POINTS as f64 * total;
            if rank > next {
                break;
            }
            logs.push(start + (rank - passed) / f64::from(count) * (end - start));
        }
        passed = next;
    }
    logs
}

/// Is a function slow in stretches, and where? `middle`: log of the duration between fast and slow.
fn slow_stretches(case: &Case<'_>, row: u32, middle: f64) -> (bool, Vec<Mark>) {
    let model = case.model;
    let Some(thread) = busiest_thread(model, row) else { return (false, Vec::new()) };
    let timed = &model.timed[thread];
    let levels = levels(model, thread, row, 1);
    let middle = f64::from(level_of(bucket_of(middle.exp() as u64)));
    let slow = |level: &Option<f64>| level.is_some_and(|level| level > middle);
    let mut marks: Vec<Mark> = Vec::new();
    let mut changes = 0;
    let mut previous = None;
    for (at, level) in levels.iter().enumerate() {
        let Some(_) = level else { continue };
        let now = slow(level);
        changes += usize::from(previous.is_some_and(|before| before != now));
        if now && previous == Some(true) {
            if let Some(mark) = marks.last_mut() {
                mark.length_ns += timed.width_ns;
            }
        } else if now && marks.len() < MARKS_MAX {
            marks.push(Mark {
                at_ns: model.since(timed.start_ns + at as u64 * timed.width_ns),
                length_ns: timed.width_ns,
                thread: Some(thread as u32),
                label: "slow".to_owned(),
            });
        }
        previous = Some(now);
    }
    let known = levels.iter().flatten().count();
    let share = levels.iter().filter(|level| slow(level)).count() as f64 / known.max(1) as f64;
    // Mixed independently, neighbours would differ in 2 p (1 - p) of the cases.
    let by_chance = 2.0 * share * (1.0 - share) * known as f64;
    (known > 16 && (changes as f64) < 0.5 * by_chance, marks)
}

/// D4's finding, with the period in ns for D6.
pub(super) struct Periodic {
    pub(super) finding: Finding,
    pub(super) period_ns: Option<f64>,
}

pub(super) fn periodic(case: &Case<'_>) -> Periodic {
    let finding = blank(Detector::Period, "ms");
    let model = case.model;
    let silent = |finding| Periodic { finding, period_ns: None };
    if case.is_holey() {
        return silent(case.withheld(finding));
    }
    // Functions that do more where more packets are repeat as the traffic does, which is no fault of theirs.
    let cheap_fills = fills_are_cheap(case);
    let rows: Vec<u32> = candidates(model)
        .into_iter()
        .filter(|&row| uniform(model, row) && !(cheap_fills && fills(model, row)))
        .take(CANDIDATES)
        .collect();
    let mut best: Option<(period::Period, u32, usize, u64)> = None;
    let mut looked = 0;
    for &row in &rows {
        let Some(thread) = busiest_thread(model, row) else { continue };
        let timed = &model.timed[thread];
        let by = timed.buckets.len().div_ceil(period::BUCKETS_MAX).max(1);
        let mut by = by;
        // Buckets with too few calls say little: widen until half of them are filled.
        let levels = loop {
            let levels = while_packets_come(timed, by, levels(model, thread, row, by));
            let filled = levels.iter().flatten().count();
            if 2 * filled >= levels.len() || levels.len() / 2 < period::BUCKETS_MIN {
                break levels;
            }
            by *= 2;
        };
        if levels.len() < period::BUCKETS_MIN {
            continue;
        }
        looked += 1;
        let p_max = PERIOD_P / rows.len() as f64;
        if let Some(found) = period::find(&levels, p_max, case.seed ^ 4)
            && best.as_ref().is_none_or(|(other, ..)| found.resemblance > other.resemblance)
        {
            best = Some((found, row, thread, timed.width_ns * by as u64));
        }
    }
    if let Some(recurrent) = recurring(case, finding.clone()) {
        let in_durations = best.map(|(found, .., width_ns)| found.buckets * width_ns as f64);
        return Periodic { finding: recurrent, period_ns: in_durations };
    }
    if looked == 0 {
        return silent(finding.unmeasurable(format!(
            "No function is called in at least {} buckets of time; the trace is too short or too sparse.",
            period::BUCKETS_MIN
        )));
    }
    let mut finding = finding;
    finding.span = case.whole();
    let Some((found, row, thread, width_ns)) = best else {
        finding.confidence = Confidence::Medium;
        finding.sentence = format!(
            "No period in the durations of the {looked} costliest functions beats chance (1,000 shuffled series, 1 %)."
        );
        return silent(finding);
    };
    let period_ns = found.buckets * width_ns as f64;
    let margin_ns = found.margin.max(0.5) * width_ns as f64;
    let name = &model.rows[row as usize].name;
    finding.state = State::Fired;
    finding.value = Some(period_ns / 1e6);
    finding.low = Some((period_ns - margin_ns) / 1e6);
    finding.high = Some((period_ns + margin_ns) / 1e6);
    // A spectrum has the harmonics of a period as well as the period, and the times at which a kernel does something.
    let tick = recurrence::tick(period_ns, margin_ns);
    finding.confidence = match tick {
        None if found.resemblance > 0.3 => Confidence::Medium,
        _ => Confidence::Low,
    };
    finding.figure("function", name.clone());
    finding.figure("p", format!("{:.3}", found.p));
    finding.figure("correlation one period later", format!("{:.2}", found.resemblance));
    let packets = model.packets.per_second.map(|rate| rate * period_ns / 1e9);
    if let Some(packets) = packets {
        finding.figure("period in packets", format!("{packets:.0}"));
    }
    let timed = &model.timed[thread];
    finding.marks = (0..MARKS_MAX.min((model.span.length_ns as f64 / period_ns) as usize))
        .map(|at| Mark {
            at_ns: model.since(timed.start_ns) + (at as f64 * period_ns) as u64,
            length_ns: 0,
            thread: Some(thread as u32),
            label: "period".to_owned(),
        })
        .collect();
    finding.sentence = format!(
        "The duration of {name} repeats every {:.2} ms{}.",
        period_ns / 1e6,
        packets.map_or_else(String::new, |packets| format!(" (about {packets:.0} packets)"))
    );
    finding.sentence.extend(tick.map(|text| format!(" {text}")));
    Periodic { finding, period_ns: Some(period_ns) }
}

/// What keeps a worker from its loop by a clock, by its account. Its moments are known one by one, so the period is no
/// guess; whatever else a spectrum shows is likely to be one of its harmonics.
fn recurring(case: &Case<'_>, mut finding: Finding) -> Option<Finding> {
    let gaps = case.workers.iter().flat_map(|worker| {
        let span_ns = worker.account.span_ns.max(1) as f64;
        worker.gaps.iter().map(move |gap| (worker, gap, gap.ns as f64 / span_ns))
    });
    let felt = gaps.filter(|&(.., share)| share >= SHARE_MIN);
    let timed = felt.filter_map(|(worker, gap, share)| {
        Some((worker.account.thread, gap, share, recurrence::of(&gap.moments)?))
    });
    let (thread, gap, share, found) = timed.max_by(|a, b| a.2.total_cmp(&b.2))?;
    let name = if gap.name.is_empty() { gap.part.name() } else { &gap.name };
    finding.state = State::Fired;
    finding.value = Some(found.ns / 1e6);
    finding.low = Some((found.ns - found.half_ns) / 1e6);
    finding.high = Some((found.ns + found.half_ns) / 1e6);
    finding.confidence = Confidence::High;
    finding.span = case.whole();
    finding.figure("function", name.to_owned());
    finding.figure("share of the time", percent(share));
    let moments = gap.moments.iter().take(MARKS_MAX);
    finding.marks = moments.map(|&at| mark(case.model.since(at), Some(thread), "period")).collect();
    finding.sentence =
        format!("{name} keeps the worker from its loop by a clock. {}", found.words());
    Some(finding)
}

/// Where a thread tells its packets, what happens in between is its idle time, which has a clock of its own.
fn while_packets_come(timed: &Timed, by: usize, levels: Vec<Option<f64>>) -> Vec<Option<f64>> {
    if timed.buckets.iter().all(|bucket| bucket.packets == 0) {
        return levels;
    }
    let received =
        timed.buckets.chunks(by).map(|chunk| chunk.iter().any(|bucket| bucket.packets > 0));
    levels.into_iter().zip(received).map(|(level, received)| level.filter(|_| received)).collect()
}

pub(super) fn common_slowness(case: &Case<'_>) -> Finding {
    let finding = blank(Detector::CommonSlowness, "ratio");
    let model = case.model;
    let Some(found) = common_mode::find(model) else {
        return finding.unmeasurable(format!(
            "Fewer than {} functions are called throughout one thread.",
            common_mode::FUNCTIONS_MIN
        ));
    };
    let mut finding = finding;
    finding.span = case.whole();
    finding.confidence = Confidence::Medium;
    finding.figure("functions compared", found.functions.to_string());
    finding.figure("share of time that is slow", percent(found.slow_share));
    if !found.switches {
        finding.sentence =
            format!("{} unrelated functions show no common slow and fast times.", found.functions);
        return finding;
    }
    finding.value = Some(found.ratio);
    finding.low = Some(found.low);
    finding.high = Some(found.high);
    finding.figure("ratios equal within 20 %", percent(found.agreement));
    let thread_ns = model.since(model.states[found.thread as usize].first_ns);
    let ends_ns = found.slow.last().map_or(0, |&(at, lasts)| model.since(at + lasts));
    // One stretch from the beginning on.
    let warm_up = found.slow.len() <= WARM_UP_STRETCHES_MAX
        && found.slow.first().is_some_and(|&(at, _)| model.since(at) <= thread_ns)
        && (ends_ns.saturating_sub(thread_ns) as f64) < WARM_UP_SHARE * model.span.length_ns as f64;
    let is_common = found.is_common();
    finding.state = fired(is_common && !warm_up);
    let slow = found.slow;
    finding.marks = slow
        .into_iter()
        .take(MARKS_MAX)
        .map(|(at_ns, length_ns)| Mark {
            at_ns: model.since(at_ns),
            length_ns,
            thread: Some(found.thread),
            label: "slow".to_owned(),
        })
        .collect();
    if finding.state == State::Fired {
        finding.confidence = Confidence::High;
        finding.sentence = format!(
            "In {} of the time {} unrelated functions are all {:.1} times slower: the CPU was shared, slower or taken away, no function of the program is the reason.",
            percent(found.slow_share),
            found.functions,
            found.ratio
        );
    } else if is_common {
        finding.sentence = format!(
            "{} unrelated functions are slower together only in the first {:.3} ms: caches and clocks were cold, which passed.",
            found.functions,
            ends_ns.saturating_sub(thread_ns) as f64 / 1e6
        );
    } else {
        finding.sentence =
            "Slow times are not common to unrelated functions: what is slow then is particular to some of them.".to_owned();
    }
    finding
}
