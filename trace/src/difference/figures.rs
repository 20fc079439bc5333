//! What of a recording is compared: the figures of one recording, each under the three costs of the tracer.

use crate::analysis::Report;
use crate::result::{ChangeScale, Layer, Part};

use super::work::Cost;

/// Functions whose calls are compared by percentile.
const CALLS_MAX: usize = 12;
/// Percentiles are known to 3 % (logarithm).
const PERCENTILE_WITHIN: f64 = 0.03;

/// The row that tells the load.
pub(super) const RECEIVED: &str = "packets received";

/// Which way is good, at the same load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Good {
    Low,
    /// Under any load.
    AlwaysLow,
    Neither,
}

/// The tables, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Table {
    Load,
    Losses,
    Causes,
    Accounts,
    Stalls,
    Layers,
    Functions,
    Calls,
}

/// One figure of one recording.
#[derive(Debug, Clone)]
pub(super) struct Figure {
    pub(super) table: Table,
    pub(super) name: String,
    pub(super) unit: &'static str,
    pub(super) scale: ChangeScale,
    /// A change within this does not matter: of the ratio less 1, or in the unit.
    pub(super) threshold: f64,
    pub(super) good: Good,
    /// What a recording without it is taken to have.
    pub(super) absent: Option<f64>,
    /// How far the value may be from what it stands for, on the scale it is compared on.
    pub(super) known_to: f64,
    /// Share of the worked time: rows of little weight on both sides are left out.
    pub(super) weight: f64,
    /// At the least, the estimated and the largest cost of the tracer; `None` where nothing is left.
    pub(super) values: [Option<f64>; 3],
}

impl Table {
    pub(super) const ALL: [Self; 8] = [
        Self::Load,
        Self::Losses,
        Self::Causes,
        Self::Accounts,
        Self::Stalls,
        Self::Layers,
        Self::Functions,
        Self::Calls,
    ];

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Losses => "packets lost, of those that arrived",
            Self::Causes => "what is wrong, as a share of a worker's time",
            Self::Accounts => "where the time of the workers went",
            Self::Stalls => "stalls",
            Self::Layers => "time by layer, the tracer taken off",
            Self::Functions => "time by function, callees excluded, the tracer taken off",
            Self::Calls => "99 % of the calls are shorter than, callees included, as recorded",
        }
    }

    /// Its rows stand in an order that means something.
    pub(super) const fn is_ordered(self) -> bool {
        matches!(self, Self::Load | Self::Layers)
    }
}

impl Figure {
    /// A figure that is compared by ratio and does not depend on the tracer's cost.
    fn ratio(table: Table, name: &str, unit: &'static str, value: Option<f64>) -> Self {
        Self {
            table,
            name: name.to_owned(),
            unit,
            scale: ChangeScale::Ratio,
            threshold: 0.02,
            good: Good::Neither,
            absent: None,
            known_to: 0.0,
            weight: 1.0,
            values: [value.filter(|&value| value > 0.0); 3],
        }
    }

    /// A part of a whole, which may be nothing.
    fn share(table: Table, name: &str, threshold: f64, value: Option<f64>) -> Self {
        let scale = ChangeScale::Difference;
        Self { scale, threshold, values: [value; 3], ..Self::ratio(table, name, "share", None) }
    }
}

/// All figures of a recording; `per_packet`: every recording tells its packets.
pub(super) fn of(report: &Report, costs: [Cost; 3], per_packet: bool) -> Vec<Figure> {
    let mut figures = load(report);
    losses(report, &mut figures);
    accounts(report, &mut figures);
    stalls(report, &mut figures);
    let analysis = &report.analysis;
    let seconds = analysis.coverage.span.length_ns as f64 / 1e9;
    let packets = analysis.packets.received.unwrap_or(0) as f64;
    let (per, unit) =
        if per_packet { (packets, "ns per packet") } else { (seconds, "ns per second") };
    let good = if per_packet { Good::Low } else { Good::Neither };
    let timed = |table, name: &str, work: &super::work::Work| {
        let values = costs.map(|cost| Some(work.less(cost) / per).filter(|&value| value > 0.0));
        Figure { good, values, ..Figure::ratio(table, name, unit, None) }
    };
    for (layer, work) in Layer::ALL.into_iter().zip(&report.works.layers) {
        let good = if matches!(layer, Layer::Idle | Layer::Tracer) { Good::Neither } else { good };
        figures.push(Figure { good, ..timed(Table::Layers, layer.name(), work) });
    }
    let worked: f64 = report.works.functions.iter().map(|work| work.less(costs[1])).sum();
    for (row, work) in analysis.functions.iter().zip(&report.works.functions) {
        let weight = work.less(costs[1]) / worked.max(1.0);
        figures.push(Figure { weight, ..timed(Table::Functions, &row.name, work) });
    }
    let functions = analysis.functions.iter().zip(&report.works.functions);
    let functions = functions.filter_map(|(row, work)| Some((row, work, row.durations.p99_ns?)));
    for (row, work, p99_ns) in functions.take(CALLS_MAX) {
        figures.push(Figure {
            good,
            known_to: PERCENTILE_WITHIN,
            weight: work.less(costs[1]) / worked.max(1.0),
            ..Figure::ratio(Table::Calls, &row.name, "ns", Some(p99_ns as f64))
        });
    }
    figures
}

fn load(report: &Report) -> Vec<Figure> {
    let analysis = &report.analysis;
    let sum = |of: fn(&crate::result::PollRow) -> u64| -> f64 {
        analysis.polls.iter().map(of).sum::<u64>() as f64
    };
    let (polls, empty, full) = (sum(|row| row.polls), sum(|row| row.empty), sum(|row| row.full));
    let productive = polls - empty;
    let part = |of: f64, whole: f64| (whole > 0.0).then(|| of / whole);
    let received = analysis.packets.per_second;
    let per_poll = part(sum(|row| row.packets), productive);
    vec![
        Figure::ratio(Table::Load, RECEIVED, "per second", received),
        Figure::ratio(Table::Load, "packets per poll with any", "packets", per_poll),
        Figure::share(Table::Load, "polls that found nothing", 0.02, part(empty, polls)),
        Figure::share(Table::Load, "polls that were full", 0.02, part(full, productive)),
    ]
}

/// Packets lost, where the trace counts them: a loss is not wanted under any load.
fn losses(report: &Report, figures: &mut Vec<Figure>) {
    let analysis = &report.analysis;
    if !analysis.losses.known {
        return;
    }
    let lost: u64 = analysis.losses.rows.iter().map(|row| row.packets).sum();
    let offered = analysis.packets.received.unwrap_or(0) + lost;
    let share = (offered > 0).then(|| lost as f64 / offered as f64);
    let lost = Figure::share(Table::Losses, "packets lost", 0.001, share);
    figures.push(Figure { good: Good::AlwaysLow, ..lost });
}

/// Causes, and the parts of the account of all workers; what a recording does not have takes nothing in it.
fn accounts(report: &Report, figures: &mut Vec<Figure>) {
    let analysis = &report.analysis;
    for cause in &analysis.causes {
        let name = cause.title();
        let share = Figure::share(Table::Causes, &name, 0.01, Some(cause.share));
        match figures.iter_mut().find(|f| f.table == Table::Causes && f.name == name) {
            // Of several workers the worst counts.
            Some(known) => {
                known.values = known.values.map(|value| value.map(|share| share.max(cause.share)));
            }
            None => figures.push(Figure { good: Good::Low, absent: Some(0.0), ..share }),
        }
    }
    let span: u64 = analysis.accounts.iter().map(|account| account.span_ns).sum();
    let mut parts: Vec<(Part, u64)> = Vec::new();
    for part in analysis.accounts.iter().flat_map(|account| &account.parts) {
        match parts.iter_mut().find(|(kind, _)| *kind == part.part) {
            Some((_, ns)) => *ns += part.ns,
            None => parts.push((part.part, part.ns)),
        }
    }
    for (part, ns) in parts {
        let share = Some(ns as f64 / span.max(1) as f64);
        let share = Figure::share(Table::Accounts, part.name(), 0.01, share);
        let is_wanted = matches!(
            part,
            Part::Work | Part::EmptyPolls | Part::Waiting | Part::Tracer | Part::Unknown
        );
        let good = if is_wanted { Good::Neither } else { Good::Low };
        figures.push(Figure { good, absent: Some(0.0), ..share });
    }
}

fn stalls(report: &Report, figures: &mut Vec<Figure>) {
    let longest = report.analysis.worst.first().map(|call| call.duration_ns as f64);
    let longest = Figure::ratio(Table::Stalls, "longest time without an event", "ns", longest);
    figures.push(Figure { good: Good::Low, ..longest });
}
