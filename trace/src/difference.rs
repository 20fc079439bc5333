//! Recordings of two sides compared: what differs, by how much, and is it more than chance.
//!
//! The unit is the recording: never a packet, a call or a stretch of one run, which hang together. So one recording per
//! side shows what differs and has no verdict; several have ([`laneway_stats::sides`] says how, drift included). All
//! figures of all tables are one family under Holm: of two sides that are equal, at most 5 % have any row that is
//! called otherwise (`tests/difference.rs`, and on simulated machines `crates/stats/tests/sides_proof.rs`).
//!
//! The tracer's cost is one estimate for all recordings. Each comparison is made at its least, its estimate and its
//! most; the interval spans the three and the largest p counts. What costs less per packet is better only at the same
//! load: under overload every poll is full and each packet cheap, and nothing is better for that.

mod figures;
pub(crate) mod work;

use laneway_stats::sides::{RUNS_MIN, Shift, shift};
use laneway_stats::{Side, holm};

use crate::analysis::Report;
use crate::detect::CUT_SHARE_MAX;
use crate::result::*;
use figures::{Figure, Good, Table};

const P_MAX: f64 = 0.05;
/// Least share of the worked time on either side for a function to have a row.
const WEIGHT_MIN: f64 = 0.01;
/// Packets per second within which two loads are the same.
const LOAD_WITHIN: f64 = 0.05;
/// A clock that shows an earlier time tells no date.
const YEAR_2000_NS: u64 = 946_684_800_000_000_000;

/// Compares the recordings `after` with those `before`.
pub fn diff(before: &[Report], after: &[Report]) -> Difference {
    let (order, recordings) = in_order(before, after);
    let reports: Vec<&Report> = recordings.iter().map(|(_, report)| *report).collect();
    let calibrations: Vec<Calibration> =
        reports.iter().map(|report| report.analysis.calibration).collect();
    let cost = work::common_cost(&calibrations);
    let per_packet =
        reports.iter().all(|report| report.analysis.packets.received.is_some_and(|n| n > 0));
    let mut rows = Row::of(&recordings, cost, per_packet);
    let same_load = same_load(&rows);
    let p = holm(&rows.iter().map(|row| row.compared.map(|found| found.p)).collect::<Vec<_>>());
    for (row, p) in rows.iter_mut().zip(p) {
        row.judge(p, same_load);
    }
    let covered = |side: Side| -> Vec<Coverage> {
        let of_side = recordings.iter().filter(|(which, _)| *which == side);
        of_side.map(|(_, report)| report.analysis.coverage.clone()).collect()
    };
    Difference {
        schema: DIFF_SCHEMA.to_owned(),
        before: covered(Side::Base),
        after: covered(Side::Arm),
        order,
        cost,
        same_load,
        doubts: doubts(before, after, order, same_load),
        tables: Table::ALL.into_iter().filter_map(|table| reported_table(table, &rows)).collect(),
        findings: fired(before, after),
    }
}

/// All recordings as they were made; where that is not known, those before and then those after.
fn in_order<'a>(
    before: &'a [Report],
    after: &'a [Report],
) -> (RecordingOrder, Vec<(Side, &'a Report)>) {
    let sides = before.iter().map(|report| (Side::Base, report));
    let mut all: Vec<_> = sides.chain(after.iter().map(|report| (Side::Arm, report))).collect();
    let start = |report: &Report| report.analysis.coverage.span.start_ns;
    if all.iter().any(|(_, report)| start(report) < YEAR_2000_NS) {
        return (RecordingOrder::Unknown, all);
    }
    all.sort_by_key(|(_, report)| start(report));
    let changes = all.windows(2).filter(|pair| pair[0].0 != pair[1].0).count();
    let order = if changes > 1 { RecordingOrder::InTurns } else { RecordingOrder::OneByOne };
    (order, all)
}

/// One figure of all recordings.
struct Row {
    figure: Figure,
    /// In the order of the recordings.
    sides: Vec<Side>,
    values: Vec<[Option<f64>; 3]>,
    weights: Vec<f64>,
    compared: Option<Shift>,
    reported: DifferenceRow,
}

impl Row {
    fn of(recordings: &[(Side, &Report)], cost: CommonCost, per_packet: bool) -> Vec<Self> {
        let costs = work::costs(&cost);
        let sides: Vec<Side> = recordings.iter().map(|(side, _)| *side).collect();
        let mut rows: Vec<Self> = Vec::new();
        let mut places = std::collections::HashMap::new();
        for (at, (_, report)) in recordings.iter().enumerate() {
            for figure in figures::of(report, costs, per_packet) {
                let key = (figure.table as u8, figure.name.clone());
                let place = *places.entry(key).or_insert_with(|| {
                    rows.push(Self::new(figure.clone(), sides.clone()));
                    rows.len() - 1
                });
                rows[place].values[at] = figure.values;
                rows[place].weights[at] = figure.weight;
            }
        }
        rows.retain(Self::matters);
        for row in &mut rows {
            row.compare();
        }
        rows
    }

    fn new(figure: Figure, sides: Vec<Side>) -> Self {
        let reported = DifferenceRow {
            name: figure.name.clone(),
            unit: figure.unit.to_owned(),
            before: None,
            after: None,
            scale: figure.scale,
            change: None,
            low: None,
            high: None,
            p: None,
            verdict: ChangeVerdict::NoVerdict,
        };
        let all = sides.len();
        Self {
            values: vec![[figure.absent; 3]; all],
            figure,
            sides,
            weights: vec![0.0; all],
            compared: None,
            reported,
        }
    }

    fn of_side<T: Copy>(&self, side: Side, of: &[T]) -> Vec<T> {
        self.sides.iter().zip(of).filter(|(which, _)| **which == side).map(|(_, v)| *v).collect()
    }

    /// It is there at all, and takes some time on either side.
    fn matters(&self) -> bool {
        let median = |side| {
            let mut weights = self.of_side(side, &self.weights);
            weights.sort_unstable_by(f64::total_cmp);
            weights.get(weights.len() / 2).copied().unwrap_or(0.0)
        };
        let is_there = self.values.iter().any(|values| values[1].is_some());
        is_there && median(Side::Base).max(median(Side::Arm)) >= WEIGHT_MIN
    }

    /// Values on the scale that they are compared on.
    fn scaled(&self, at: usize) -> Vec<Option<f64>> {
        let scaled = |value: f64| match self.figure.scale {
            ChangeScale::Ratio => value.ln(),
            ChangeScale::Difference => value,
        };
        self.values.iter().map(|values| values[at].map(scaled)).collect()
    }

    fn unscaled(&self, value: f64) -> f64 {
        match self.figure.scale {
            ChangeScale::Ratio => value.exp(),
            ChangeScale::Difference => value,
        }
    }

    fn compare(&mut self) {
        let middle = self.scaled(1);
        let mean = |side| {
            let known: Vec<f64> = self.of_side(side, &middle).into_iter().flatten().collect();
            (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
        };
        let (before, after) = (mean(Side::Base), mean(Side::Arm));
        let change = before.zip(after).map(|(before, after)| self.unscaled(after - before));
        self.reported.before = before.map(|value| self.unscaled(value));
        self.reported.after = after.map(|value| self.unscaled(value));
        self.reported.change = change;
        let at_each_cost: Option<Vec<Shift>> = [0, 1, 2]
            .into_iter()
            .map(|at| {
                let known: Option<Vec<f64>> = self.scaled(at).into_iter().collect();
                let runs: Vec<_> = self.sides.iter().copied().zip(known?).collect();
                shift(&runs, self.figure.known_to)
            })
            .collect();
        self.compared = at_each_cost.map(|found| Shift {
            estimate: found[1].estimate,
            low: found.iter().map(|found| found.low).fold(f64::INFINITY, f64::min),
            high: found.iter().map(|found| found.high).fold(f64::NEG_INFINITY, f64::max),
            p: found.iter().map(|found| found.p).fold(0.0, f64::max),
        });
    }

    fn judge(&mut self, p: Option<f64>, same_load: Option<bool>) {
        self.reported.p = p;
        self.reported.low = self.compared.map(|found| self.unscaled(found.low));
        self.reported.high = self.compared.map(|found| self.unscaled(found.high));
        self.reported.verdict = self.verdict(p, same_load);
    }

    fn verdict(&self, p: Option<f64>, same_load: Option<bool>) -> ChangeVerdict {
        let there =
            |side| self.of_side(side, &self.values).iter().filter(|v| v[1].is_some()).count();
        let all = |side| self.sides.iter().filter(|which| **which == side).count();
        let [before, after] = [Side::Base, Side::Arm].map(|side| (there(side), all(side)));
        if before.1 < RUNS_MIN || after.1 < RUNS_MIN {
            return ChangeVerdict::NoVerdict;
        }
        if before.0 == before.1 && after.0 == 0 {
            return ChangeVerdict::Gone;
        }
        if after.0 == after.1 && before.0 == 0 {
            return ChangeVerdict::New;
        }
        let Some((found, p)) = self.compared.zip(p) else { return ChangeVerdict::Unclear };
        let (down, up) = match self.figure.scale {
            ChangeScale::Ratio => {
                let up = (1.0 + self.figure.threshold).ln();
                (-up, up)
            }
            ChangeScale::Difference => (-self.figure.threshold, self.figure.threshold),
        };
        let is_judged = match self.figure.good {
            Good::Low => same_load == Some(true),
            Good::AlwaysLow => true,
            Good::Neither => false,
        };
        match () {
            () if p < P_MAX && found.low > up && is_judged => ChangeVerdict::Worse,
            () if p < P_MAX && found.low > up => ChangeVerdict::Higher,
            () if p < P_MAX && found.high < down && is_judged => ChangeVerdict::Better,
            () if p < P_MAX && found.high < down => ChangeVerdict::Lower,
            () if found.low >= down && found.high <= up => ChangeVerdict::Same,
            () => ChangeVerdict::Unclear,
        }
    }
}

/// Whether the sides were under the same load.
fn same_load(rows: &[Row]) -> Option<bool> {
    let change = rows.iter().find(|row| row.figure.name == figures::RECEIVED)?.reported.change?;
    Some(change.max(1.0 / change) <= 1.0 + LOAD_WITHIN)
}

/// A table as it is reported; the largest change first, in what it takes.
fn reported_table(table: Table, rows: &[Row]) -> Option<DifferenceTable> {
    let of_table = rows.iter().filter(|row| row.figure.table == table);
    let mut reported: Vec<DifferenceRow> = of_table.map(|row| row.reported.clone()).collect();
    if !table.is_ordered() {
        let change =
            |row: &DifferenceRow| (row.after.unwrap_or(0.0) - row.before.unwrap_or(0.0)).abs();
        reported.sort_by(|a, b| change(b).total_cmp(&change(a)).then(a.name.cmp(&b.name)));
    }
    (!reported.is_empty())
        .then(|| DifferenceTable { title: table.title().to_owned(), rows: reported })
}

/// Findings that fired in any recording.
fn fired(before: &[Report], after: &[Report]) -> Vec<FiredRow> {
    let mut rows: Vec<FiredRow> = Vec::new();
    for (reports, is_after) in [(before, false), (after, true)] {
        for finding in reports.iter().flat_map(|report| &report.analysis.findings) {
            if finding.state != State::Fired {
                continue;
            }
            let place = rows.iter().position(|row| row.id == finding.id).unwrap_or_else(|| {
                let (id, title) = (finding.id.clone(), finding.title.clone());
                rows.push(FiredRow { id, title, before: 0, after: 0 });
                rows.len() - 1
            });
            let row = &mut rows[place];
            *(if is_after { &mut row.after } else { &mut row.before }) += 1;
        }
    }
    rows
}

fn doubts(
    before: &[Report],
    after: &[Report],
    order: RecordingOrder,
    same_load: Option<bool>,
) -> Vec<String> {
    let mut doubts = Vec::new();
    if before.len() < RUNS_MIN || after.len() < RUNS_MIN {
        doubts.push(format!(
            "No verdict: {} and {} are compared, and two runs of one program differ as well. Make at least {RUNS_MIN} \
             of each side, in turns: laneway trace diff --before A1 A2 A3 --after B1 B2 B3",
            recordings(before.len()),
            recordings(after.len())
        ));
    } else if order != RecordingOrder::InTurns {
        let why = match order {
            RecordingOrder::Unknown => "The traces do not tell their date",
            _ => "All recordings of one side were made before those of the other",
        };
        doubts.push(format!(
            "{why}: a drift of the machine looks like a difference, and intervals are wide for it. Record in turns: \
             before, after, before, after."
        ));
    }
    if same_load == Some(false) {
        doubts.push(
            "The load was not the same: what a packet costs changes with it, so nothing is called better or worse."
                .to_owned(),
        );
    }
    for (side, reports) in [("before", before), ("after", after)] {
        let cut = reports.iter().map(|report| report.analysis.coverage.cut_share);
        let worst = cut.fold(0.0, f64::max);
        if worst > CUT_SHARE_MAX {
            doubts.push(format!(
                "A recording {side} has {:.2} % of its calls cut by holes: what fell into them is not compared.",
                100.0 * worst
            ));
        }
    }
    let all = || before.iter().chain(after).map(|report| &report.analysis);
    let mut sources = all().map(|analysis| analysis.calibration.source);
    let first = sources.next();
    if sources.any(|source| Some(source) != first) {
        doubts.push("The tracer's cost is known in different ways in the recordings.".to_owned());
    }
    let mut producers = all().map(|analysis| &analysis.coverage.producers);
    let first = producers.next();
    if producers.any(|producers| Some(producers) != first) {
        doubts.push(
            "The recordings are of different tracers; their costs differ for that reason alone."
                .to_owned(),
        );
    }
    doubts
}

fn recordings(n: usize) -> String {
    if n == 1 { "1 recording".to_owned() } else { format!("{n} recordings") }
}
