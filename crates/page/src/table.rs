//! Tables as plain data, and as HTML.
//!
//! A column carries its unit and the sentence that explains it, so notes on the method cannot drift from the tables.
//! A figure that was not measured is [`Cell::Absent`] with its reason, never a zero.

use crate::markup::{escape, put};
use crate::number::ABSENT;

/// Words longer than this get a column wide enough to read.
const PROSE_BYTES_MIN: usize = 40;

/// One table.
pub struct Table {
    /// What it shows; empty where a heading says it.
    pub caption: String,
    /// Left to right.
    pub columns: Vec<Column>,
    /// Leading columns that name the row.
    pub heads: usize,
    /// Top to bottom.
    pub rows: Vec<Row>,
}

impl Table {
    /// A table whose first column names the row, without a caption.
    pub fn of(columns: Vec<Column>, rows: impl IntoIterator<Item = Vec<Cell>>) -> Self {
        let rows = rows.into_iter().map(|cells| Row { cells, opens_group: false }).collect();
        Self { caption: String::new(), columns, heads: 1, rows }
    }

    /// Whether a column holds figures, which line up at their right.
    pub fn has_figures(&self, column: usize) -> bool {
        self.rows.iter().any(|row| matches!(row.cells.get(column), Some(Cell::Figure(..))))
    }
}

/// One column.
pub struct Column {
    /// Its head.
    pub head: String,
    /// Unit of its figures, or what they count; empty for words.
    pub unit: &'static str,
    /// One sentence: what the figures mean. Empty where the head says it.
    pub note: String,
}

/// A column.
pub fn column(head: &str, unit: &'static str, note: &str) -> Column {
    Column { head: head.to_owned(), unit, note: note.to_owned() }
}

/// One row.
pub struct Row {
    /// One per column.
    pub cells: Vec<Cell>,
    /// True where a new group (a load, a metric) begins.
    pub opens_group: bool,
}

/// One cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Words.
    Words(String),
    /// A figure as shown, and its value for sorting.
    Figure(String, f64),
    /// One word of a fixed set, with the class that colours it and a sign, so that colour is never the only bearer.
    Word {
        /// The class of the style sheet.
        class: &'static str,
        /// The sign, for pages only.
        sign: &'static str,
        /// The word.
        word: String,
    },
    /// A check: what it found, and whether that is as it must be.
    Check(String, bool),
    /// Not measured, for this reason; it may be empty.
    Absent(String),
    /// Words, and the reference that they lead to.
    Link(String, String),
    /// Words behind a patch of the colour that a class has.
    Key(&'static str, usize, String),
    /// A bar as long as a share, in the colour that a class with this number has.
    Bar(&'static str, usize, f64),
}

impl Cell {
    /// Words.
    pub fn words(words: impl Into<String>) -> Self {
        Self::Words(words.into())
    }

    /// A figure, or a dash where there is none.
    pub fn maybe<T: Copy + IntoFigure>(value: Option<T>, shown: impl Fn(T) -> String) -> Self {
        match value {
            Some(value) => Self::Figure(shown(value), value.figure()),
            None => Self::Absent(String::new()),
        }
    }

    /// A figure.
    pub fn figure<T: Copy + IntoFigure>(value: T, shown: impl Fn(T) -> String) -> Self {
        Self::Figure(shown(value), value.figure())
    }

    /// The text of the cell without any markup.
    pub fn text(&self) -> String {
        match self {
            Self::Words(text) | Self::Figure(text, _) | Self::Check(text, _) => text.clone(),
            Self::Key(_, _, text) => text.clone(),
            Self::Word { word, .. } => word.clone(),
            Self::Absent(_) => ABSENT.to_owned(),
            Self::Link(text, path) => format!("{text}: {path}"),
            Self::Bar(_, _, share) => crate::number::percent(*share),
        }
    }
}

/// What sorts as a number.
pub trait IntoFigure {
    /// Its value, exact up to 2^53.
    fn figure(self) -> f64;
}

impl IntoFigure for f64 {
    fn figure(self) -> f64 {
        self
    }
}

impl IntoFigure for u64 {
    fn figure(self) -> f64 {
        self as f64
    }
}

impl IntoFigure for i64 {
    fn figure(self) -> f64 {
        self as f64
    }
}

/// The table as HTML, in a box that scrolls; its rows sort where the page has [`TABLES`](crate::script::TABLES).
pub fn html(out: &mut String, table: &Table) {
    if table.rows.is_empty() {
        put!(out, "<p class=\"gap\">{}: no figures.</p>\n", escape(&table.caption));
        return;
    }
    out.push_str("<div class=\"scroll\" tabindex=\"0\">\n<table class=\"sortable\">\n");
    if !table.caption.is_empty() {
        put!(out, "<caption>{}</caption>\n", escape(&table.caption));
    }
    out.push_str("<thead><tr>");
    for (index, column) in table.columns.iter().enumerate() {
        let class = if table.has_figures(index) { " class=\"number\"" } else { "" };
        put!(out, "<th scope=\"col\"{class}");
        if !column.note.is_empty() {
            put!(out, " title=\"{}\"", escape(&column.note));
        }
        put!(out, ">{}", escape(&column.head));
        if !column.unit.is_empty() {
            put!(out, " <span class=\"unit\">{}</span>", column.unit);
        }
        out.push_str("</th>");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        out.push_str(if row.opens_group { "<tr class=\"opens\">" } else { "<tr>" });
        for (index, cell) in row.cells.iter().enumerate() {
            html_cell(out, cell, index < table.heads);
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
}

fn html_cell(out: &mut String, cell: &Cell, is_head: bool) {
    let (tag, scope) = if is_head { ("th", " scope=\"row\"") } else { ("td", "") };
    match cell {
        Cell::Words(words) => {
            let class = if words.len() > PROSE_BYTES_MIN { " class=\"prose\"" } else { "" };
            put!(out, "<{tag}{scope}{class}>{}</{tag}>", escape(words));
        }
        Cell::Figure(shown, value) if value.is_finite() => put!(
            out,
            "<{tag}{scope} class=\"number\" data-value=\"{value}\">{}</{tag}>",
            escape(shown)
        ),
        Cell::Figure(..) => absent(out, "the value is not a number"),
        Cell::Word { class, sign, word } => put!(
            out,
            "<td class=\"verdict {class}\"><span class=\"word\">{sign} {}</span></td>",
            escape(word)
        ),
        Cell::Check(found, true) => put!(out, "<td>{}</td>", escape(found)),
        Cell::Check(found, false) => {
            let prose = if found.len() > PROSE_BYTES_MIN { " prose" } else { "" };
            put!(out, "<td class=\"bad{prose}\">{}</td>", escape(found));
        }
        Cell::Absent(reason) => absent(out, reason),
        Cell::Link(words, reference) => put!(
            out,
            "<{tag}{scope}><a href=\"{}\">{}</a></{tag}>",
            escape(reference),
            escape(words)
        ),
        Cell::Key(class, number, words) => put!(
            out,
            "<{tag}{scope}><span class=\"key {class}{number}\"></span>{}</{tag}>",
            escape(words)
        ),
        Cell::Bar(class, number, share) => put!(
            out,
            "<td class=\"bar\" data-value=\"{share}\"><span class=\"{class}{number}\" style=\"width:{:.2}%\"></span></td>",
            share.clamp(0.0, 1.0) * 100.0
        ),
    }
}

/// The cell of a figure that is not there.
pub fn absent(out: &mut String, reason: &str) {
    match reason {
        "" => put!(out, "<td class=\"absent\">{ABSENT}</td>"),
        reason => put!(
            out,
            "<td class=\"absent\" title=\"{0}\"><abbr title=\"{0}\">{ABSENT}</abbr></td>",
            escape(reason)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_cell_is_escaped_and_figures_sort_by_value() {
        let evil = || "<b>&\"".to_owned();
        let cells = vec![
            Cell::Words(evil()),
            Cell::figure(1_500u64, |_| evil()),
            Cell::Word { class: "better", sign: "=", word: evil() },
            Cell::Check(evil(), true),
            Cell::Check(evil(), false),
            Cell::Absent(evil()),
            Cell::Link(evil(), evil()),
            Cell::Key("p", 3, evil()),
            Cell::Bar("l", 2, 7.0),
            Cell::Figure(evil(), f64::NAN),
            Cell::maybe(None::<f64>, |_| evil()),
        ];
        let columns = cells.iter().map(|_| column(&evil(), "ns", &evil())).collect();
        let table = Table { caption: evil(), ..Table::of(columns, [cells]) };
        assert!(table.has_figures(1) && !table.has_figures(0));
        let mut page = String::new();
        html(&mut page, &table);
        assert!(!page.contains("<b>"), "{page}");
        assert!(page.contains("data-value=\"1500\"") && page.contains("class=\"key p3\""));
        assert!(page.contains("class=\"l2\" style=\"width:100.00%\""));
        assert_eq!(page.matches("class=\"absent\"").count(), 3);
    }

    #[test]
    fn an_empty_table_is_a_sentence() {
        let mut page = String::new();
        let table = Table { caption: "Pools".to_owned(), ..Table::of(Vec::new(), []) };
        html(&mut page, &table);
        assert_eq!(page, "<p class=\"gap\">Pools: no figures.</p>\n");
    }
}
