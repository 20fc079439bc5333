//! A difference as plain text, for a terminal of 80 columns.

use super::{Page, ROWS_SHOWN, Style, duration, names, number, seconds};
use crate::result::{
    ChangeScale, ChangeVerdict, Coverage, Difference, DifferenceRow, DifferenceTable,
    RecordingOrder,
};

/// Widest line.
const COLUMNS: usize = 80;
/// Columns of the names.
const NAME: usize = 28;
/// Recordings named per side.
const RECORDINGS_SHOWN: usize = 6;

/// The difference for people.
pub fn difference(difference: &Difference, style: Style) -> String {
    let mut page = Page { style, columns: COLUMNS, ..Page::default() };
    recordings(&mut page, "before", &difference.before);
    recordings(&mut page, "after", &difference.after);
    for doubt in &difference.doubts {
        page.paragraph("doubt: ", doubt);
    }
    page.paragraph("tracer: ", &cost(difference));
    let order = match difference.order {
        RecordingOrder::InTurns => "recorded in turns",
        RecordingOrder::OneByOne => "recorded one side after the other",
        RecordingOrder::Unknown => "recorded in an order that is not known",
    };
    page.paragraph("", &format!(
        "A change is after over before, or after less before where it has a sign, over recordings {order}. [ ] is its \
         95 % interval: drift of the machine and the tracer's cost are in it. Verdicts are Holm's over all tables."
    ));
    difference.tables.iter().for_each(|one| table(&mut page, one));
    fired(&mut page, difference);
    page.text
}

fn recordings(page: &mut Page, side: &str, recordings: &[Coverage]) {
    for covered in recordings.iter().take(RECORDINGS_SHOWN) {
        let missing = match covered.discarded {
            0 => String::new(),
            lost => format!(", {} missing", number(lost)),
        };
        let (events, span) = (number(covered.events), seconds(covered.span.length_ns));
        let input = covered.inputs.join(", ");
        page.paragraph(
            &format!("{side:<7} "),
            &format!("{input}: {events} events{missing}, {span}"),
        );
    }
    page.more(recordings.len(), RECORDINGS_SHOWN);
}

fn cost(difference: &Difference) -> String {
    let [least, estimate, most] = difference.cost.inside_ns;
    if most == 0.0 && difference.cost.outside_ns[2] == 0.0 {
        return "its cost per call is not known; nothing is taken off".to_owned();
    }
    let [outside_least, outside, outside_most] = difference.cost.outside_ns;
    format!(
        "{estimate:.0} ns inside each call ({least:.0} to {most:.0}) and {outside:.0} ns outside \
         ({outside_least:.0} to {outside_most:.0}), for all recordings"
    )
}

fn table(page: &mut Page, table: &DifferenceTable) {
    let Some(first) = table.rows.first() else { return };
    let one_unit = table.rows.iter().all(|row| row.unit == first.unit);
    let unit = if one_unit { format!(" ({})", first.unit) } else { String::new() };
    page.head(&format!("{}{unit}", table.title));
    page.line(&format!(
        "{:<NAME$} {:>10} {:>10} {:>8} {:<17} {}",
        "", "before", "after", "change", "[95 %]", ""
    ));
    let shown = &table.rows[..table.rows.len().min(2 * ROWS_SHOWN)];
    let labels = names::labels(shown.iter().map(|row| row.name.as_str()), NAME);
    for (row, label) in shown.iter().zip(labels) {
        page.line(&format!(
            "{:<NAME$} {:>10} {:>10} {:>8} {:<17} {}",
            label,
            figure(row, row.before),
            figure(row, row.after),
            row.change.map_or_else(|| "-".to_owned(), |change| changed(row, change)),
            interval(row),
            verdict(row)
        ));
        page.whole(&label, &row.name);
    }
    page.more(table.rows.len(), 2 * ROWS_SHOWN);
}

/// A figure with what it is counted in, as far as the head of the table does not say.
fn figure(row: &DifferenceRow, value: Option<f64>) -> String {
    let Some(value) = value else { return "-".to_owned() };
    match row.unit.as_str() {
        "share" => format!("{:.2} %", 100.0 * value),
        "ns" => duration(value as u64),
        "per second" => format!("{}/s", number(value.round() as u64)),
        _ if value >= 1000.0 => number(value.round() as u64),
        _ => format!("{value:.1}"),
    }
}

fn changed(row: &DifferenceRow, change: f64) -> String {
    match row.scale {
        ChangeScale::Ratio => format!("x{change:.3}"),
        ChangeScale::Difference => format!("{:+.2} %", 100.0 * change),
    }
}

fn interval(row: &DifferenceRow) -> String {
    match (row.low, row.high, row.scale) {
        (Some(low), Some(high), ChangeScale::Ratio) => format!("[{low:.3} {high:.3}]"),
        (Some(low), Some(high), ChangeScale::Difference) => {
            format!("[{:+.2} {:+.2}]", 100.0 * low, 100.0 * high)
        }
        _ => String::new(),
    }
}

/// Only what was found is loud.
fn verdict(row: &DifferenceRow) -> String {
    match row.verdict {
        ChangeVerdict::Better | ChangeVerdict::Worse => row.verdict.name().to_uppercase(),
        ChangeVerdict::NoVerdict => String::new(),
        other => other.name().to_owned(),
    }
}

fn fired(page: &mut Page, difference: &Difference) {
    if difference.findings.is_empty() {
        return;
    }
    page.head("findings that fired, and in how many recordings");
    let (before, after) = (difference.before.len(), difference.after.len());
    for row in &difference.findings {
        page.line(&format!(
            "{:<44} {:>2} of {before} before, {:>2} of {after} after",
            names::label(&format!("{} {}", row.id, row.title), 44),
            row.before,
            row.after
        ));
    }
}
