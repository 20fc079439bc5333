//! The report in a terminal: at most [`COLUMNS_MAX`] columns, tables aligned, no control code
//! unless the style asks for colour.
//!
//! Strings from a result may hold anything, so what a terminal would obey is replaced before it is
//! printed. Names are cut to fit, with an ellipsis; figures never are.

mod screen;

pub(super) use screen::screen;

use super::pings;
use super::table::{self, Scope};
use super::why;
use super::wording::{
    arm_name, base_name, claim_figure, claim_word, direction, disclaimer, doubt, effect_note,
    estimated_effect, fact_lines, generator_lines, goal_word, half_width, interval, is_noise_floor,
    load_name, machine_lines, metrics, mode_lines, noise_floor_beside, noise_floor_gap,
    outcome_sentence, outcome_word, plural, shell_command,
};
use crate::result::{ClaimStatus, Finding, GoalStatus, Outcome, RaceResult};
use laneway_page::markup::{is_unprintable, put};
use laneway_page::number::{ABSENT, figure, plain, utc};
use laneway_page::table::{Cell, Table};
use laneway_stats::Verdict;

/// Widest line.
pub(super) const COLUMNS_MAX: usize = 100;
/// Between two columns of a table.
const GUTTER: usize = 2;
/// Names are never cut below this.
const NAME_CHARS_MIN: usize = 8;

/// How the report is written to a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Text only: for files, pipes and tests.
    #[default]
    Plain,
    /// With ANSI colour on verdicts and headings, which still carry their words.
    Colour,
}

/// The whole report.
pub(super) fn report(result: &RaceResult, style: Style) -> String {
    let mut page = Page { out: String::new(), style };
    page.heading(&result.title);
    page.wrapped(
        "",
        &format!(
            "{}, {} at {}, {}; laneway {}; {}, {} s",
            result.app,
            plural(result.arms.len(), "arm"),
            plural(result.loads_pps.len(), "load"),
            plural(result.rounds, "round"),
            result.version,
            utc(result.started_unix_ns),
            figure(result.seconds)
        ),
    );
    let (word, code) = (outcome_word(result.outcome), result.outcome.exit_code());
    let paint = match result.outcome {
        Outcome::Done => Paint::Good,
        Outcome::GoalMissed | Outcome::Invalid => Paint::Bad,
        Outcome::Inconclusive => Paint::Open,
    };
    let outcome = page.painted(paint, &word.to_uppercase());
    put!(&mut page.out, "{outcome} (exit {code})\n");
    page.wrapped("  ", &outcome_sentence(result));
    page.list("- ", &result.invalid);
    page.list("- ", &result.too_few);

    page.verdicts(result);
    page.noise_floor(result);
    page.goals(result);
    page.claims(result);
    for table in pings::tables(result) {
        page.table(&table);
    }
    for table in [table::rates(result), table::ledger_totals(result)] {
        page.table(&table);
    }
    page.drops(result);
    for scope in Scope::tabled(result) {
        page.table(&table::latency(result, scope));
    }
    page.table(&table::memory_per_arm(result));
    page.whys(result);
    page.heading("Modes asked for and obtained");
    page.list("- ", &mode_lines(result));
    page.heading("Machine");
    page.list("- ", &machine_lines(result));
    page.list("- ", &fact_lines(result));
    page.wrapped("- ", &result.placement.sentence);
    page.heading("Generator");
    page.list("- ", &generator_lines(result));
    if !result.notes.is_empty() {
        page.heading("Notes");
        page.list("- ", &result.notes);
    }
    page.heading("Run it again");
    page.wrapped("  ", &shell_command(&result.command));
    page.out
}

/// What a colour stands for.
#[derive(Clone, Copy)]
enum Paint {
    Heading,
    Good,
    Bad,
    Open,
    Quiet,
}

struct Page {
    out: String,
    style: Style,
}

impl Page {
    fn painted(&self, paint: Paint, text: &str) -> String {
        if self.style == Style::Plain {
            return text.to_owned();
        }
        let code = match paint {
            Paint::Heading => "1",
            Paint::Good => "36",
            Paint::Bad => "31",
            Paint::Open => "33",
            Paint::Quiet => "2",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }

    fn heading(&mut self, text: &str) {
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        for line in wrap(&printable(text), COLUMNS_MAX) {
            let line = self.painted(Paint::Heading, &line);
            put!(&mut self.out, "{line}\n");
        }
    }

    /// A paragraph whose first line begins with `mark` and whose others are indented as far.
    fn wrapped(&mut self, mark: &str, text: &str) {
        let indent = mark.chars().count();
        for (index, line) in wrap(&printable(text), COLUMNS_MAX - indent).iter().enumerate() {
            if index == 0 {
                put!(&mut self.out, "{mark}{line}\n");
            } else {
                put!(&mut self.out, "{:indent$}{line}\n", "");
            }
        }
    }

    fn list(&mut self, mark: &str, lines: &[String]) {
        for line in lines {
            self.wrapped(mark, line);
        }
    }

    fn verdicts(&mut self, result: &RaceResult) {
        if let Some(disclaimer) = disclaimer(result) {
            self.out.push('\n');
            let line = self.painted(Paint::Bad, disclaimer);
            put!(&mut self.out, "{line}\n");
        }
        for metric in metrics(result) {
            let findings: Vec<&Finding> = result
                .findings
                .iter()
                .filter(|f| f.metric == metric && !is_noise_floor(result, f.arm))
                .collect();
            let Some(first) = findings.first() else { continue };
            self.heading(&format!(
                "{metric} against {}: {}, {}",
                base_name(result),
                effect_note(result, metric),
                direction(first.comparison.rule.direction)
            ));
            for finding in findings {
                self.verdict(result, finding);
            }
        }
    }

    fn verdict(&mut self, result: &RaceResult, finding: &Finding) {
        let verdict = finding.judgement.verdict;
        let paint = match verdict {
            Verdict::Better => Paint::Good,
            Verdict::Worse => Paint::Bad,
            Verdict::Same => Paint::Quiet,
            Verdict::Inconclusive => Paint::Open,
        };
        let word = self.painted(paint, &format!("{verdict:<12}"));
        let arm = fitted(&printable(&arm_name(result, finding.arm)), 20);
        let load = printable(&load_name(result, finding.load));
        let effect = printable(&estimated_effect(finding));
        let interval = printable(&interval(finding).unwrap_or_else(|| "no interval".to_owned()));
        let floor = printable(&noise_floor_beside(result, finding));
        let figures = format!("{effect:>10}  {interval:<16}  {floor}");
        put!(&mut self.out, "  {arm}  {load:>12}  {word}");
        let used = 2 + 20 + 2 + load.chars().count().max(12) + 2 + 12;
        if used + 2 + figures.chars().count() <= COLUMNS_MAX {
            put!(&mut self.out, "  {}\n", figures.trim_end());
        } else {
            self.out.push('\n');
            self.wrapped("      ", &format!("{effect}  {interval}  {floor}"));
        }
        if let Some(doubt) = doubt(finding) {
            self.wrapped("      ", &doubt);
        }
    }

    fn noise_floor(&mut self, result: &RaceResult) {
        self.heading("Noise floor: the base against itself (A/A pair), half-width of the interval");
        if let Some(gap) = noise_floor_gap(result) {
            self.wrapped("  ", gap);
            return;
        }
        for metric in metrics(result) {
            let parts: Vec<String> = result
                .findings
                .iter()
                .filter(|f| f.metric == metric && is_noise_floor(result, f.arm))
                .map(|f| {
                    let width = half_width(f).unwrap_or_else(|| ABSENT.to_owned());
                    let load = load_name(result, f.load);
                    format!("{width} at {load} ({})", f.judgement.verdict)
                })
                .collect();
            if !parts.is_empty() {
                self.wrapped("  ", &format!("{metric}: {}", parts.join("; ")));
            }
        }
    }

    fn goals(&mut self, result: &RaceResult) {
        if result.goals.is_empty() {
            return;
        }
        self.heading("Goals");
        for goal in &result.goals {
            let paint = match goal.status {
                GoalStatus::Met => Paint::Good,
                GoalStatus::Missed => Paint::Bad,
                GoalStatus::Inconclusive => Paint::Open,
            };
            let word = self.painted(paint, goal_word(goal.status));
            put!(&mut self.out, "- {word}\n");
            self.wrapped("  ", &goal.goal);
            self.wrapped("  ", &format!("measured: {}", goal.measured));
        }
    }

    fn claims(&mut self, result: &RaceResult) {
        if result.claims.is_empty() {
            return;
        }
        self.heading("Claims");
        for claim in &result.claims {
            // Neither answer is a failure.
            let paint = match claim.status {
                ClaimStatus::Confirmed | ClaimStatus::Refuted => Paint::Good,
                ClaimStatus::Inconclusive => Paint::Open,
                ClaimStatus::Unanswered | ClaimStatus::ForTrace => Paint::Quiet,
            };
            let word = self.painted(paint, claim_word(claim.status));
            put!(&mut self.out, "- {word}\n");
            self.wrapped("  ", &claim.says);
            self.wrapped("  ", &format!("that is: {}", claim.test));
            self.wrapped("  ", &format!("measured: {}", claim_figure(claim)));
        }
    }

    fn whys(&mut self, result: &RaceResult) {
        if result.traces.is_empty() {
            return;
        }
        self.heading(why::HEADING);
        self.wrapped("  ", &why::preface(result));
        for table in why::tables(result, false) {
            self.table(&table);
        }
        for (arm, lines) in why::explanations(result) {
            self.heading(&arm);
            self.list("- ", &lines);
        }
    }

    fn drops(&mut self, result: &RaceResult) {
        let lost = |s: &&crate::result::Summary| s.ledger.drops.values().any(|&frames| frames > 0);
        if !result.summaries.iter().any(|s| lost(&s)) {
            return;
        }
        self.heading("Drops by place");
        for summary in result.summaries.iter().filter(lost) {
            let line = format!(
                "{} at {}: {}",
                arm_name(result, summary.arm),
                load_name(result, summary.load),
                table::drop_list(&summary.ledger).join(", ")
            );
            self.wrapped("- ", &line);
        }
    }

    fn table(&mut self, table: &Table) {
        self.heading(&table.caption);
        if table.rows.is_empty() {
            self.out.push_str("  no figures\n");
            return;
        }
        for line in aligned(table) {
            put!(&mut self.out, "{line}\n");
        }
    }
}

/// The lines of a table: heads, units, a rule, rows; a blank line before each group but the first.
fn aligned(table: &Table) -> Vec<String> {
    let heads: Vec<String> = table.columns.iter().map(|c| printable(&c.head)).collect();
    let units: Vec<String> = table.columns.iter().map(|c| printable(c.unit)).collect();
    let rows: Vec<Vec<String>> = table
        .rows
        .iter()
        .map(|row| row.cells.iter().map(|cell| printable(&cell.text())).collect())
        .collect();
    let is_name = |column: usize| {
        table.rows.iter().all(|row| matches!(row.cells.get(column), Some(Cell::Words(_))))
            && column < table.heads
    };
    let mut widths: Vec<usize> = (0..heads.len())
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            let all = cells.chain([&heads[column], &units[column]]);
            all.map(|text| text.chars().count()).max().unwrap_or(0)
        })
        .collect();
    // Names give way, the widest first, until the table fits.
    let total = |widths: &[usize]| widths.iter().sum::<usize>() + GUTTER * widths.len() + 1;
    while total(&widths) > COLUMNS_MAX {
        let widest = (0..widths.len())
            .filter(|&column| is_name(column) && widths[column] > NAME_CHARS_MIN)
            .max_by_key(|&column| widths[column]);
        match widest {
            Some(column) => widths[column] -= 1,
            None => break,
        }
    }
    let line = |cells: &[String]| {
        let mut text = String::from(" ");
        for (column, cell) in cells.iter().enumerate() {
            let width = widths[column];
            if is_name(column) {
                put!(&mut text, " {}{:2$}", fitted(cell, width), "", GUTTER - 1);
            } else {
                put!(&mut text, " {cell:>width$}{:1$}", "", GUTTER - 1);
            }
        }
        text.trim_end().to_owned()
    };
    let mut lines = vec![line(&heads), line(&units)];
    let mut last_group = None;
    for (row, cells) in table.rows.iter().zip(&rows) {
        if row.opens_group && last_group.is_some() {
            lines.push(String::new());
        }
        last_group = Some(());
        lines.push(line(cells));
    }
    lines
}

/// Text without anything that a terminal obeys, on one line.
pub(super) fn printable(text: &str) -> String {
    plain(text)
        .chars()
        .map(|c| match c {
            '\n' | '\t' => ' ',
            c if is_unprintable(c) => '?',
            c => c,
        })
        .collect()
}

/// `text` in exactly `width` characters.
fn fitted(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return format!("{text:<width$}");
    }
    let mut kept: String = text.chars().take(width.saturating_sub(1)).collect();
    kept.push('\u{2026}');
    kept
}

/// Lines of at most `width` characters, broken between words, and inside a word that is longer.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut used = 0;
    for word in text.split(' ') {
        let mut rest: Vec<char> = word.chars().collect();
        if used > 0 && used + 1 + rest.len() > width {
            lines.push(std::mem::take(&mut line));
            used = 0;
        }
        while rest.len() > width {
            let tail = rest.split_off(width);
            lines.push(rest.into_iter().collect());
            rest = tail;
        }
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        used += rest.len();
        line.extend(rest);
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapping_keeps_every_word_and_the_width() {
        let text = "a bb ccc dddddddddddddddd ee";
        let lines = wrap(text, 6);
        assert!(lines.iter().all(|line| line.chars().count() <= 6), "{lines:?}");
        assert_eq!(lines.concat().replace(' ', ""), text.replace(' ', ""));
    }

    #[test]
    fn what_a_terminal_obeys_is_replaced() {
        assert_eq!(printable("\u{1b}[2J\u{7}a\nb\u{202e}"), "?[2J?a b?");
    }
}
