//! Whether the accounts of two workers' time explain how their arms differ.
//!
//! A worker that takes `t` ns per frame, polls and waiting included, receives 1/`t` frames per ns. So the accounts of
//! an arm and of the base, each the parts of `t` with the tracer's own taken off, predict the ratio of their rates, and
//! say in which part the difference lies. They explain the difference that was measured without a tracer if the
//! prediction lies within its interval; otherwise the traced segment was not what was measured, or something that is
//! not the worker's makes the difference, and the table says that they do not. Where the interval holds 1, no
//! difference is sure: an account that fits explains nothing then.

use super::table::arm_column;
use super::wording::{arm_name, load_name};
use crate::result::{Finding, RaceResult};
use crate::why::{Explanation, TracedArm};
use laneway_kinds::Metric;
use laneway_page::number::{figure, ratio};
use laneway_page::table::{Cell, Column, Row, Table, column};

/// Parts of a worker's time per frame.
const PARTS: usize = 5;

/// A worker's time per frame received, ns, the tracer's own taken off; in order lane, app, waiting, polls that found
/// nothing, the rest.
struct TimePerFrame([f64; PARTS]);

impl TimePerFrame {
    /// `None` of a worker whose trace counts no frame.
    fn of(explanation: &Explanation) -> Option<TimePerFrame> {
        let frames = explanation.frames.filter(|&frames| frames > 0)?;
        let per_frame = explanation.span_ns as f64 / frames as f64;
        let shares = &explanation.shares;
        let parts =
            [shares.lane, shares.application, shares.waiting, shares.empty_polls, shares.other];
        let parts = parts.map(|share| share * per_frame);
        (parts.iter().sum::<f64>() > 0.0).then_some(TimePerFrame(parts))
    }

    fn sum(&self) -> f64 {
        self.0.iter().sum()
    }
}

/// One row for each traced arm but the base; `None` where there is no such arm.
pub(super) fn table(result: &RaceResult) -> Option<Table> {
    let base = result.traces.iter().find(|traced| traced.arm == 0);
    let arms: Vec<&TracedArm> = result.traces.iter().filter(|traced| traced.arm != 0).collect();
    let load = load_name(result, arms.first()?.load);
    let base_time = base.and_then(|base| time(result, base).ok());
    let rows = arms.into_iter().map(|traced| {
        let mut cells = vec![Cell::Words(arm_name(result, traced.arm))];
        let times = base_time
            .as_ref()
            .ok_or_else(|| "the base has no account".to_owned())
            .and_then(|base| Ok((base, time(result, traced)?)));
        match times {
            Ok((base, arm)) => cells.extend(compared(result, traced, base, &arm)),
            Err(why) => cells.extend((1..columns().len()).map(|_| Cell::Absent(why.clone()))),
        }
        Row { cells, opens_group: false }
    });
    let caption = format!(
        "What the accounts explain: time per frame against that of {}, at {load}",
        arm_name(result, 0)
    );
    Some(Table { caption, columns: columns(), heads: 1, rows: rows.collect() })
}

fn columns() -> Vec<Column> {
    let more = |head: &str, note: &str| column(head, "ns/frame", note);
    vec![
        arm_column(),
        column(
            "time",
            "ns/frame",
            "The worker's time by the clock, divided by the frames it received; the tracer's cost taken off.",
        ),
        more("lane", "More, or less, of it in the lane and its driver than the base's worker."),
        more("app", "Likewise in the app."),
        more("waits", "Likewise blocked until something may be there."),
        more("empty", "Likewise in polls that found nothing."),
        more("rest", "Likewise between recorded calls."),
        column("rate", "times", "Rate of the arm over that of the base by these times alone."),
        column(
            "measured",
            "times",
            "Records per second of the arm over those of the base, without a tracer: the interval.",
        ),
        column(
            "explains",
            "",
            "Whether the rate by the account lies within that interval; \u{201c}level\u{201d} where the interval holds 1, \
             too: then no difference is sure that could be explained.",
        ),
    ]
}

fn time(result: &RaceResult, traced: &TracedArm) -> Result<TimePerFrame, String> {
    let name = arm_name(result, traced.arm);
    let explanation =
        traced.explanation.as_ref().ok_or_else(|| format!("{name} was not traced"))?;
    TimePerFrame::of(explanation).ok_or_else(|| format!("the trace of {name} counts no frame"))
}

fn compared(
    result: &RaceResult,
    traced: &TracedArm,
    base: &TimePerFrame,
    arm: &TimePerFrame,
) -> Vec<Cell> {
    let mut cells = vec![Cell::Figure(figure(arm.sum()), arm.sum())];
    cells.extend(arm.0.iter().zip(base.0).map(|(arm, base)| {
        let more = arm - base;
        let sign = if more > 0.0 { "+" } else { "" };
        Cell::Figure(format!("{sign}{}", figure(more)), more)
    }));
    let predicted = base.sum() / arm.sum();
    cells.push(Cell::Figure(ratio(predicted), predicted));
    let is_rate = |found: &&Finding| {
        found.metric == Metric::Rate.name() && (found.arm, found.load) == (traced.arm, traced.load)
    };
    let found = result.findings.iter().find(is_rate).map(|found| &found.comparison);
    let interval = found.and_then(|found| found.interval.as_ref());
    match interval {
        Some(interval) => {
            let (lower, upper) = (interval.lower, interval.upper);
            let ends = format!("{}\u{2013}{}", ratio(lower), ratio(upper));
            let holds = |rate: f64| (lower..=upper).contains(&rate);
            let answer = match (holds(predicted), holds(1.0)) {
                (false, _) => "no",
                (true, true) => "level",
                (true, false) => "yes",
            };
            cells.extend([Cell::Figure(ends, upper - lower), Cell::Words(answer.to_owned())]);
        }
        None => {
            let why = || Cell::Absent("their rates were not compared at this load".to_owned());
            cells.extend([why(), why()]);
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::super::example::{race, traced};
    use super::*;

    /// The race whose base and whose first other arm were traced; the arm takes so many times the base's time.
    fn both(times: f64) -> RaceResult {
        let mut result = RaceResult { traces: traced().traces, ..race() };
        let mut arm = result.traces[0].clone();
        arm.arm = 3;
        let explanation = arm.explanation.as_mut().expect("it has one");
        // What it takes more, it takes in the lane.
        let (shares, more) = (&mut explanation.shares, times - 1.0);
        shares.lane += more * (1.0 - shares.tracer);
        for share in [
            &mut shares.lane,
            &mut shares.application,
            &mut shares.empty_polls,
            &mut shares.tracer,
            &mut shares.other,
        ] {
            *share /= 1.0 + more * (1.0 - 0.031);
        }
        explanation.span_ns =
            (explanation.span_ns as f64 * (1.0 + more * (1.0 - 0.031))).round() as u64;
        result.traces.push(arm);
        result
    }

    fn measured(result: &RaceResult) -> (f64, f64) {
        let found = result.findings.iter().find(|found| {
            found.metric == "records/s" && (found.arm, found.load) == (3, result.traces[0].load)
        });
        let interval = found.and_then(|found| found.comparison.interval.as_ref());
        let interval = interval.expect("the example compares them");
        (interval.lower, interval.upper)
    }

    fn answer(result: &RaceResult) -> Vec<Cell> {
        let table = table(result).expect("two arms beside the base");
        let name = arm_name(result, 3);
        let is_arm = |row: &&Row| matches!(&row.cells[0], Cell::Words(words) if *words == name);
        table.rows.iter().find(is_arm).expect("its row").cells.clone()
    }

    fn figure_of(cell: &Cell) -> f64 {
        match cell {
            Cell::Figure(_, figure) => *figure,
            other => panic!("{other:?} is no figure"),
        }
    }

    #[test]
    fn an_account_within_the_measured_interval_explains_and_one_beyond_it_does_not() {
        let (lower, upper) = measured(&both(1.0));
        let middle = (lower * upper).sqrt();
        for (rate, explains) in
            [(middle, "yes"), (lower * 0.97, "no"), (upper * 1.03, "no"), (upper * 0.999, "yes")]
        {
            let cells = answer(&both(1.0 / rate));
            assert!((figure_of(&cells[7]) - rate).abs() < 1e-6, "{cells:?}");
            assert_eq!(cells[9], Cell::Words(explains.to_owned()), "{cells:?}");
        }
    }

    #[test]
    fn an_account_explains_nothing_where_no_difference_is_sure() {
        let mut result = both(1.1);
        for found in &mut result.findings {
            if let Some(interval) = &mut found.comparison.interval {
                (interval.lower, interval.upper) = (0.8, 1.2);
            }
        }
        assert_eq!(answer(&result)[9], Cell::Words("level".to_owned()));
    }

    #[test]
    fn the_parts_add_up_to_the_difference() {
        let cells = answer(&both(1.5));
        let base = figure_of(&answer(&both(1.0))[1]);
        let parts: f64 = cells[2..7].iter().map(figure_of).sum();
        assert!((figure_of(&cells[1]) - base - parts).abs() < 1e-6 * base, "{cells:?}");
        // It is all the lane's.
        assert!((figure_of(&cells[2]) - parts).abs() < 1e-6 * base, "{cells:?}");
    }

    #[test]
    fn an_arm_without_an_account_or_a_comparison_says_why() {
        let mut result = both(1.2);
        let table = table(&result).expect("there is one");
        let bridge = &table.rows[0].cells;
        assert_eq!(bridge.len(), table.columns.len());
        let why = Cell::Absent(format!("{} was not traced", arm_name(&result, 2)));
        assert!(bridge[1..].iter().all(|cell| *cell == why), "{bridge:?}");
        result.findings.clear();
        let cells = answer(&result);
        assert!(matches!(cells[9], Cell::Absent(_)) && figure_of(&cells[7]) > 0.0, "{cells:?}");
        result.traces[0].explanation = None;
        assert_eq!(answer(&result)[1], Cell::Absent("the base has no account".to_owned()));
    }
}
