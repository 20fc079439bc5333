//! The tables of an analysis, column by column: what CSV and Parquet both write.
//!
//! Names of columns carry their units. What is not known is an empty cell, never a zero. Times count from the start of
//! the span, as in [`laneway_trace::result`].

use laneway_trace::result::{Analysis, Durations, Finding, State};
use std::io::{self, Write};

/// One table.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Name, fit for a file name.
    pub name: &'static str,
    /// Columns of equal length.
    pub columns: Vec<Column>,
}

/// One column.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Name, with the unit.
    pub name: &'static str,
    /// Its cells, from the first row on.
    pub cells: Cells,
}

/// Cells of one type.
#[derive(Clone, Debug, PartialEq)]
pub enum Cells {
    /// Words.
    Text(Vec<String>),
    /// Counts, numbers and whole nanoseconds.
    Count(Vec<Option<u64>>),
    /// Measured values.
    Value(Vec<Option<f64>>),
    /// Yes or no.
    Flag(Vec<bool>),
}

impl Cells {
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Cells::Text(cells) => cells.len(),
            Cells::Count(cells) => cells.len(),
            Cells::Value(cells) => cells.len(),
            Cells::Flag(cells) => cells.len(),
        }
    }

    /// None at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Builds the columns of a table from its rows.
struct Columns<'r, R> {
    rows: &'r [R],
    columns: Vec<Column>,
}

impl<'r, R> Columns<'r, R> {
    fn of(rows: &'r [R]) -> Self {
        Columns { rows, columns: Vec::new() }
    }

    fn push(mut self, name: &'static str, cells: Cells) -> Self {
        self.columns.push(Column { name, cells });
        self
    }

    fn text(self, name: &'static str, cell: impl Fn(&R) -> String) -> Self {
        let cells = Cells::Text(self.rows.iter().map(cell).collect());
        self.push(name, cells)
    }

    fn count(self, name: &'static str, cell: impl Fn(&R) -> u64) -> Self {
        self.maybe_count(name, |row| Some(cell(row)))
    }

    fn maybe_count(self, name: &'static str, cell: impl Fn(&R) -> Option<u64>) -> Self {
        let cells = Cells::Count(self.rows.iter().map(cell).collect());
        self.push(name, cells)
    }

    fn value(self, name: &'static str, cell: impl Fn(&R) -> f64) -> Self {
        self.maybe_value(name, |row| Some(cell(row)))
    }

    fn maybe_value(self, name: &'static str, cell: impl Fn(&R) -> Option<f64>) -> Self {
        let cells = Cells::Value(self.rows.iter().map(cell).collect());
        self.push(name, cells)
    }

    fn flag(self, name: &'static str, cell: impl Fn(&R) -> bool) -> Self {
        let cells = Cells::Flag(self.rows.iter().map(cell).collect());
        self.push(name, cells)
    }

    fn durations(self, of: impl Fn(&R) -> &Durations) -> Self {
        self.maybe_count("min_ns", |row| of(row).min_ns)
            .maybe_value("avg_ns", |row| of(row).avg_ns)
            .maybe_value("sd_ns", |row| of(row).sd_ns)
            .maybe_count("p50_ns", |row| of(row).p50_ns)
            .maybe_count("p90_ns", |row| of(row).p90_ns)
            .maybe_count("p99_ns", |row| of(row).p99_ns)
            .maybe_count("p999_ns", |row| of(row).p999_ns)
            .maybe_count("max_ns", |row| of(row).max.map(|max| max.duration_ns))
            .maybe_count("max_at_ns", |row| of(row).max.map(|max| max.at_ns))
            .maybe_count("max_thread", |row| of(row).max.map(|max| u64::from(max.thread)))
    }

    fn table(self, name: &'static str) -> Table {
        Table { name, columns: self.columns }
    }
}

/// All tables: functions, contexts, layers, polls, findings, in this order.
#[must_use]
pub fn tables(analysis: &Analysis) -> Vec<Table> {
    vec![
        functions(analysis),
        contexts(analysis),
        layers(analysis),
        polls(analysis),
        findings(analysis),
    ]
}

/// One row per function.
#[must_use]
pub fn functions(analysis: &Analysis) -> Table {
    Columns::of(&analysis.functions)
        .text("function", |row| row.name.clone())
        .text("layer", |row| row.layer.name().to_owned())
        .count("calls", |row| row.calls)
        .count("cut", |row| row.cut)
        .maybe_value("calls_per_packet", |row| row.calls_per_packet)
        .count("total_ns", |row| row.total_ns)
        .count("self_ns", |row| row.self_ns)
        .value("total_corrected_ns", |row| row.total_corrected_ns)
        .value("self_corrected_ns", |row| row.self_corrected_ns)
        .value("share", |row| row.share)
        .value("share_corrected", |row| row.share_corrected)
        .flag("instrumentation_dominated", |row| row.dominated)
        .flag("asynchronous", |row| row.asynchronous)
        .durations(|row| &row.durations)
        .table("functions")
}

/// One row per calling context; `context` is its number, `parent` that of its caller.
#[must_use]
pub fn contexts(analysis: &Analysis) -> Table {
    let numbers: Vec<u64> = (0..analysis.contexts.len() as u64).collect();
    let name = |function: u32| {
        let function = usize::try_from(function).ok().and_then(|at| analysis.functions.get(at));
        function.map_or_else(String::new, |function| function.name.clone())
    };
    let columns = Columns::of(&analysis.contexts)
        .push("context", Cells::Count(numbers.into_iter().map(Some).collect()));
    columns
        .maybe_count("parent", |row| row.parent.map(u64::from))
        .text("function", |row| name(row.function))
        .count("calls", |row| row.calls)
        .count("cut", |row| row.cut)
        .count("total_ns", |row| row.total_ns)
        .count("self_ns", |row| row.self_ns)
        .value("total_corrected_ns", |row| row.total_corrected_ns)
        .value("self_corrected_ns", |row| row.self_corrected_ns)
        .count("idle_ns", |row| row.idle_ns)
        .durations(|row| &row.durations)
        .table("contexts")
}

/// One row per layer.
#[must_use]
pub fn layers(analysis: &Analysis) -> Table {
    Columns::of(&analysis.layers)
        .text("layer", |row| row.layer.name().to_owned())
        .count("self_ns", |row| row.self_ns)
        .value("corrected_ns", |row| row.corrected_ns)
        .value("share", |row| row.share)
        .value("share_corrected", |row| row.share_corrected)
        .maybe_value("ns_per_packet", |row| row.ns_per_packet)
        .table("layers")
}

/// One row per thread, port and queue.
#[must_use]
pub fn polls(analysis: &Analysis) -> Table {
    Columns::of(&analysis.polls)
        .count("thread", |row| u64::from(row.thread))
        .maybe_count("port", |row| row.port.map(u64::from))
        .maybe_count("queue", |row| row.queue.map(u64::from))
        .count("polls", |row| row.polls)
        .count("empty", |row| row.empty)
        .count("full", |row| row.full)
        .count("packets", |row| row.packets)
        .count("empty_ns", |row| row.empty_ns)
        .count("productive_ns", |row| row.productive_ns)
        .maybe_value("packets_per_productive", |row| row.packets_per_productive)
        .maybe_value("packets_sd", |row| row.packets_sd)
        .table("polls")
}

/// One row per detector.
#[must_use]
pub fn findings(analysis: &Analysis) -> Table {
    Columns::of(&analysis.findings)
        .text("id", |row| row.id.clone())
        .text("title", |row| row.title.clone())
        .text("state", |row| state_name(row.state).to_owned())
        .maybe_value("value", |row| row.value)
        .text("unit", |row| row.unit.clone())
        .maybe_value("low", |row| row.low)
        .maybe_value("high", |row| row.high)
        .text("confidence", |row| confidence_of(row).to_owned())
        .maybe_count("evidence_at_ns", |row| row.span.as_ref().map(|span| span.at_ns))
        .maybe_count("evidence_length_ns", |row| row.span.as_ref().map(|span| span.length_ns))
        .text("sentence", |row| row.sentence.clone())
        .table("findings")
}

/// A state, in words.
pub(crate) fn state_name(state: State) -> &'static str {
    match state {
        State::Fired => "fired",
        State::Silent => "silent",
        State::Withheld => "withheld",
        State::NotMeasurable => "not measurable",
    }
}

/// How sure a finding is, in a word; nothing where nothing was measured.
pub(crate) fn confidence_of(finding: &Finding) -> &'static str {
    match finding.state {
        State::Withheld | State::NotMeasurable => "",
        State::Fired | State::Silent => finding.confidence.name(),
    }
}

/// Writes a table as CSV (RFC 4180): a line of names, then the rows.
///
/// Text that a spreadsheet would take for a formula is quoted with an apostrophe in front: names come from traced
/// programs.
///
/// # Errors
/// What `to` says.
pub fn write_csv(table: &Table, to: &mut impl Write) -> io::Result<()> {
    let names: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
    writeln!(to, "{}", names.join(","))?;
    let rows = table.columns.first().map_or(0, |column| column.cells.len());
    for row in 0..rows {
        for (at, column) in table.columns.iter().enumerate() {
            if at > 0 {
                to.write_all(b",")?;
            }
            match &column.cells {
                Cells::Text(cells) => write_text(&cells[row], to)?,
                Cells::Count(cells) => {
                    if let Some(count) = cells[row] {
                        write!(to, "{count}")?;
                    }
                }
                Cells::Value(cells) => {
                    if let Some(value) = cells[row].filter(|value| value.is_finite()) {
                        write!(to, "{value}")?;
                    }
                }
                Cells::Flag(cells) => write!(to, "{}", cells[row])?,
            }
        }
        writeln!(to)?;
    }
    Ok(())
}

fn write_text(text: &str, to: &mut impl Write) -> io::Result<()> {
    let guard = if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { "'" } else { "" };
    if text.contains(['"', ',', '\n', '\r']) {
        write!(to, "\"{guard}{}\"", text.replace('"', "\"\""))
    } else {
        write!(to, "{guard}{text}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    fn csv(table: &Table) -> String {
        let mut bytes = Vec::new();
        write_csv(table, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn hostile_names_stay_in_their_cell() {
        let cells = ["a,b", "\"q\"", "=1+1", "plain", "x\ny"].map(str::to_owned).to_vec();
        let column = Column { name: "function", cells: Cells::Text(cells) };
        let table = Table { name: "t", columns: vec![column] };
        assert_eq!(csv(&table), "function\n\"a,b\"\n\"\"\"q\"\"\"\n'=1+1\nplain\n\"x\ny\"\n");
    }

    #[test]
    fn what_is_not_known_is_an_empty_cell() {
        let table = layers(&example::analysis());
        let text = csv(&table);
        assert_eq!(
            text.lines().next(),
            Some("layer,self_ns,corrected_ns,share,share_corrected,ns_per_packet")
        );
        assert!(text.contains("\noff the CPU,0,0,0,0,\n"), "{text}");
    }

    #[test]
    fn every_table_has_columns_of_one_length() {
        for table in tables(&example::analysis()) {
            let rows = table.columns[0].cells.len();
            assert!(rows > 0, "{}", table.name);
            for column in &table.columns {
                assert_eq!(column.cells.len(), rows, "{}.{}", table.name, column.name);
            }
        }
    }
}
