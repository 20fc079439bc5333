//! What the page's script draws from: levels of detail in columns of small numbers.
//!
//! Shares are thousandths, times whole nanoseconds from the start of the span. Every list is bounded by a constant of
//! [`crate::page`] or of [`laneway_trace::result`].

use super::{
    PAGE_BUCKETS_MAX, PAGE_CONTEXTS_MAX, PAGE_FUNCTIONS_MAX, date, is_present, is_whole,
    lines_by_events, name,
};
use crate::flame::{Measure, widths};
use laneway_trace::result::{
    Analysis, FunctionRow, Layer, Mark, TimeBucket, TimeLine, What, Window,
};
use serde::Serialize;
use std::collections::BTreeMap;

/// All of it; the names are those that the script uses.
#[derive(Serialize)]
pub(super) struct Data {
    length: u64,
    /// Seconds since the epoch and ns behind them of the first event, where its clock tells a date.
    began: Option<(u64, u64)>,
    /// When, how long, thread (or -1), events (or -1).
    holes: Vec<(u64, u64, i64, i64)>,
    layers: Vec<&'static str>,
    /// Name, layer, 1 where the tracer's cost is most of it.
    functions: Vec<(String, usize, u8)>,
    histograms: BTreeMap<usize, Histogram>,
    contexts: Contexts,
    timelines: Vec<Line>,
    worst: Vec<Worst>,
    windows: Vec<Detail>,
    marks: Vec<MarkedSpan>,
}

#[derive(Serialize)]
struct Histogram {
    /// All calls, also those that were not seen whole.
    calls: u64,
    buckets: Vec<[u64; 2]>,
    figures: Vec<(&'static str, u64)>,
}

#[derive(Serialize, Default)]
struct Contexts {
    parent: Vec<i64>,
    r#fn: Vec<u32>,
    calls: Vec<u64>,
    raw: Vec<u64>,
    corrected: Vec<u64>,
    productive: Vec<u64>,
}

#[derive(Serialize)]
struct Line {
    thread: u32,
    name: String,
    start: u64,
    width: u64,
    /// Thousandths per bucket, for each layer that occurs.
    shares: BTreeMap<usize, Vec<u16>>,
    /// Function and its thousandths, in turn, most first.
    top: Vec<Vec<u64>>,
    events: Vec<u64>,
    packets: Vec<u64>,
    /// First and last event.
    first: u64,
    last: u64,
}

#[derive(Serialize)]
struct Worst {
    thread: u32,
    r#fn: u32,
    at: u64,
    length: u64,
    cause: String,
    stack: Vec<u32>,
}

#[derive(Serialize)]
struct Detail {
    thread: u32,
    stack: Vec<u32>,
    /// Time, kind, function (or -1), value.
    events: Vec<(u64, What, i64, u64)>,
}

#[derive(Serialize)]
struct MarkedSpan {
    at: u64,
    length: u64,
    thread: i64,
    label: String,
    finding: String,
}

/// The layers that occur in the analysis.
pub(super) fn layers_present(analysis: &Analysis) -> Vec<Layer> {
    Layer::ALL.into_iter().filter(|&layer| is_present(analysis, layer)).collect()
}

pub(super) fn of(analysis: &Analysis) -> Data {
    let start_ns = analysis.coverage.span.start_ns;
    let functions = analysis.functions.iter();
    let histograms = analysis.functions.iter().take(PAGE_FUNCTIONS_MAX).enumerate();
    Data {
        length: analysis.coverage.span.length_ns,
        began: date(start_ns).map(|_| (start_ns / 1_000_000_000, start_ns % 1_000_000_000)),
        holes: holes(analysis),
        layers: Layer::ALL.map(Layer::name).to_vec(),
        functions: functions
            .map(|row| (name(&row.name), row.layer.index(), u8::from(row.dominated)))
            .collect(),
        histograms: histograms
            .filter(|(_, row)| !row.histogram.is_empty())
            .map(|(at, row)| (at, histogram(row)))
            .collect(),
        contexts: contexts(analysis),
        timelines: lines(analysis),
        worst: analysis
            .worst
            .iter()
            .map(|call| Worst {
                thread: call.thread,
                r#fn: call.function,
                at: call.at_ns,
                length: call.duration_ns,
                cause: name(&call.cause),
                stack: call.stack.clone(),
            })
            .collect(),
        windows: analysis.windows.iter().map(detail).collect(),
        marks: marks(analysis),
    }
}

fn holes(analysis: &Analysis) -> Vec<(u64, u64, i64, i64)> {
    let holes = analysis.coverage.holes.iter();
    let number = |n: Option<u64>| n.and_then(|n| i64::try_from(n).ok()).unwrap_or(-1);
    holes
        .map(|hole| {
            (hole.at_ns, hole.length_ns, hole.thread.map_or(-1, i64::from), number(hole.events))
        })
        .collect()
}

fn histogram(row: &FunctionRow) -> Histogram {
    let durations = &row.durations;
    let figures = [
        ("min", durations.min_ns),
        ("p50", durations.p50_ns),
        ("p90", durations.p90_ns),
        ("p99", durations.p99_ns),
        ("p99.9", durations.p999_ns),
        ("max", durations.max.map(|max| max.duration_ns)),
    ];
    Histogram {
        calls: row.calls,
        buckets: row.histogram.clone(),
        figures: figures.into_iter().filter_map(|(name, ns)| Some((name, ns?))).collect(),
    }
}

/// The widest contexts. A caller is at least as wide as what it calls, so callers of kept contexts are kept.
fn contexts(analysis: &Analysis) -> Contexts {
    let rows = &analysis.contexts;
    let widths = widths(rows, Measure::Raw);
    let mut order: Vec<usize> = (0..rows.len()).collect();
    // Stable: of equal widths the caller, which stands first, is kept first.
    order.sort_by(|&a, &b| widths[b].total_cmp(&widths[a]));
    let mut is_kept = vec![false; rows.len()];
    for &at in order.iter().take(PAGE_CONTEXTS_MAX) {
        is_kept[at] = true;
    }
    let mut numbers = vec![-1i64; rows.len()];
    let mut contexts = Contexts::default();
    for (at, row) in rows.iter().enumerate() {
        let parent = row.parent.and_then(|parent| usize::try_from(parent).ok());
        let parent = parent.filter(|&parent| parent < at);
        let is_rooted = parent.is_none_or(|parent| numbers[parent] >= 0);
        if !is_kept[at] || !is_rooted {
            continue;
        }
        numbers[at] = contexts.parent.len() as i64;
        contexts.parent.push(parent.map_or(-1, |parent| numbers[parent]));
        contexts.r#fn.push(row.function);
        contexts.calls.push(row.calls);
        let measured = |measure: Measure| measure.self_ns(row).round() as u64;
        contexts.raw.push(measured(Measure::Raw));
        contexts.corrected.push(measured(Measure::Corrected));
        contexts.productive.push(measured(Measure::Productive));
    }
    contexts
}

fn lines(analysis: &Analysis) -> Vec<Line> {
    let all: usize = analysis.time_lines.iter().map(|line| line.buckets.len()).sum();
    let together = all.div_ceil(PAGE_BUCKETS_MAX).max(1);
    lines_by_events(analysis).iter().map(|(line, _)| merged(analysis, line, together)).collect()
}

/// A time line with so many neighbours as one bucket.
fn merged(analysis: &Analysis, line: &TimeLine, together: usize) -> Line {
    let row = usize::try_from(line.thread).ok().and_then(|at| analysis.threads.get(at));
    let mut merged = Line {
        thread: line.thread,
        name: row.map_or_else(|| format!("thread {}", line.thread), |row| name(&row.name)),
        start: line.start_ns,
        width: line.width_ns * together as u64,
        shares: BTreeMap::new(),
        top: Vec::new(),
        events: Vec::new(),
        packets: Vec::new(),
        first: row.map_or(0, |row| row.first_ns),
        last: row.map_or(analysis.coverage.span.length_ns, |row| row.last_ns),
    };
    let groups: Vec<&[TimeBucket]> = line.buckets.chunks(together).collect();
    for layer in 0..Layer::ALL.len() {
        let share = |bucket: &TimeBucket| bucket.shares.get(layer).copied().unwrap_or(0.0);
        let column: Vec<u16> = groups
            .iter()
            .map(|group| {
                // The last group may be short: what it lacks was not traced.
                let mean = group.iter().map(share).sum::<f32>() / together as f32;
                (mean.clamp(0.0, 1.0) * 1000.0).round() as u16
            })
            .collect();
        if column.iter().any(|&share| share > 0) {
            merged.shares.insert(layer, column);
        }
    }
    for group in groups {
        merged.events.push(group.iter().map(|bucket| u64::from(bucket.events)).sum());
        merged.packets.push(group.iter().map(|bucket| u64::from(bucket.packets)).sum());
        let mut by_function: BTreeMap<u64, u64> = BTreeMap::new();
        for [function, ns] in group.iter().flat_map(|bucket| &bucket.top) {
            *by_function.entry(*function).or_default() += ns;
        }
        let mut top: Vec<(u64, u64)> = by_function.into_iter().collect();
        top.sort_by_key(|&(function, ns)| (std::cmp::Reverse(ns), function));
        top.truncate(laneway_trace::result::TOP_FRAMES_MAX);
        let thousandths =
            |ns: u64| (ns as f64 / merged.width.max(1) as f64 * 1000.0).round() as u64;
        merged.top.push(top.into_iter().flat_map(|(f, ns)| [f, thousandths(ns)]).collect());
    }
    merged
}

fn detail(window: &Window) -> Detail {
    Detail {
        thread: window.thread,
        stack: window.stack.clone(),
        events: window
            .events
            .iter()
            .map(|event| {
                (event.at_ns, event.what, event.function.map_or(-1, i64::from), event.value)
            })
            .collect(),
    }
}

/// What detectors found, in time order.
fn marks(analysis: &Analysis) -> Vec<MarkedSpan> {
    let mut places: Vec<MarkedSpan> = Vec::new();
    for finding in &analysis.findings {
        let mut add = |mark: &Mark| {
            if is_whole(analysis, mark) {
                return;
            }
            places.push(MarkedSpan {
                at: mark.at_ns,
                length: mark.length_ns,
                thread: mark.thread.map_or(-1, i64::from),
                label: name(&mark.label),
                finding: name(&finding.id),
            });
        };
        match finding.marks.as_slice() {
            [] => finding.span.iter().for_each(&mut add),
            marks => marks.iter().for_each(&mut add),
        }
    }
    places.sort_by_key(|place| place.at);
    places
}
