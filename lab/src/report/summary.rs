//! The report as Markdown for the measurements page: enough to judge a claim without opening the
//! HTML file. Command, version, machine, placement, repetitions, medians with their range, and
//! verdicts with their intervals; everything else stays in the result.

use super::pings;
use super::table::{self, Scope};
use super::terminal::printable;
use super::why;
use super::wording::{
    arm_name, base_name, claim_figure, claim_word, disclaimer, doubt, estimated_effect, fact_lines,
    generator_lines, goal_word, half_width, interval, is_noise_floor, load_name, machine_lines,
    mode_lines, noise_floor, noise_floor_gap, outcome_sentence, outcome_word, plural,
    shell_command, threshold,
};
use crate::result::{ClaimOutcome, Finding, RaceResult};
use laneway_page::markup::put;
use laneway_page::number::{ABSENT, figure, utc};
use laneway_page::table::{Cell, Table};

/// The whole summary, ending in a line feed.
pub(super) fn summary(result: &RaceResult) -> String {
    let mut out = String::new();
    put!(&mut out, "## {}\n\n", inline(&result.title));
    put!(
        &mut out,
        "**{}** (exit {}). {}\n\n",
        outcome_word(result.outcome),
        result.outcome.exit_code(),
        inline(&outcome_sentence(result))
    );
    bullets(&mut out, &result.invalid);
    bullets(&mut out, &result.too_few);
    circumstances(&mut out, result);
    verdicts(&mut out, result);
    tables(&mut out, result);
    // One line feed at the end, as text files have it.
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

/// The command, and under which circumstances it ran: what a figure is worth nothing without.
pub(super) fn circumstances(out: &mut String, result: &RaceResult) {
    put!(out, "```\n{}\n```\n\n", fenced(&shell_command(&result.command)));
    let mut lines = vec![
        format!("Version: laneway {}; app {}", result.version, result.app),
        format!("Started: {}, took {} s", utc(result.started_unix_ns), figure(result.seconds)),
        format!(
            "Repetitions: {} in {} of fresh processes, {} at {}; seed {}",
            plural(result.rounds, "round"),
            plural(result.generations, "generation"),
            plural(result.arms.len(), "arm"),
            plural(result.loads_pps.len(), "load"),
            result.seed
        ),
        format!("Placement: {}", result.placement.sentence),
        format!("Traffic: {} (sha256 {})", result.traffic.capture, result.traffic.sha256),
        format!("Generator: {}", generator_lines(result).join("; ")),
        format!("State: {}", one_sentence(&machine_lines(result))),
    ];
    lines.extend(fact_lines(result));
    bullets(out, &lines);
}

/// Everything behind the verdicts.
fn tables(out: &mut String, result: &RaceResult) {
    for table in pings::tables(result) {
        markdown_table(out, &table);
    }
    markdown_table(out, &table::rates(result));
    for scope in Scope::tabled(result) {
        markdown_table(out, &table::latency(result, scope));
    }
    markdown_table(out, &table::ledger(result));
    markdown_table(out, &table::memory_per_arm(result));
    whys(out, result);
    if !result.arms.is_empty() {
        out.push_str("### Modes asked for and obtained\n\n");
        bullets(out, &mode_lines(result));
    }
    if !result.goals.is_empty() {
        out.push_str("### Goals\n\n");
        let goals: Vec<String> = result
            .goals
            .iter()
            .map(|goal| format!("{}: {}; {}", goal_word(goal.status), goal.goal, goal.measured))
            .collect();
        bullets(out, &goals);
    }
    if !result.claims.is_empty() {
        out.push_str("### Claims\n\n");
        let line = |c: &ClaimOutcome| {
            format!("{}: {} ({}); {}", claim_word(c.status), c.says, c.test, claim_figure(c))
        };
        let claims: Vec<String> = result.claims.iter().map(line).collect();
        bullets(out, &claims);
    }
    if !result.notes.is_empty() {
        out.push_str("### Notes\n\n");
        bullets(out, &result.notes);
    }
}

fn whys(out: &mut String, result: &RaceResult) {
    if result.traces.is_empty() {
        return;
    }
    put!(out, "### {}\n\n{}\n\n", why::HEADING, inline(&why::preface(result)));
    for table in why::tables(result, true) {
        markdown_table(out, &table);
    }
    for (arm, lines) in why::explanations(result) {
        put!(out, "#### {}\n\n", inline(&arm));
        bullets(out, &lines);
    }
}

fn verdicts(out: &mut String, result: &RaceResult) {
    put!(out, "### Verdicts against {}\n\n", inline(&base_name(result)));
    if let Some(disclaimer) = disclaimer(result) {
        put!(out, "**{disclaimer}**\n\n");
    }
    if let Some(gap) = noise_floor_gap(result) {
        put!(out, "{gap}\n\n");
    }
    if result.findings.is_empty() {
        out.push_str("Nothing was compared.\n\n");
        return;
    }
    out.push_str(
        "| metric | arm | offered | effect | interval | half-width | A/A | threshold | verdict |\n\
         |---|---|--:|--:|---|--:|--:|--:|---|\n",
    );
    let row = |out: &mut String, finding: &Finding| {
        let name = arm_name(result, finding.arm);
        let aa = if is_noise_floor(result, finding.arm) { " (A/A pair)" } else { "" };
        let why = doubt(finding).map(|doubt| format!(": {doubt}")).unwrap_or_default();
        let cells = [
            finding.metric.clone(),
            format!("{name}{aa}"),
            load_name(result, finding.load),
            estimated_effect(finding),
            interval(finding).unwrap_or_else(|| ABSENT.to_owned()),
            half_width(finding).unwrap_or_else(|| ABSENT.to_owned()),
            noise_floor(result, finding).unwrap_or_else(|| ABSENT.to_owned()),
            threshold(finding),
            format!("{}{why}", finding.judgement.verdict),
        ];
        put!(out, "| {} |\n", cells.map(|cell| inline(&cell)).join(" | "));
    };
    result.findings.iter().for_each(|finding| row(out, finding));
    out.push('\n');
}

fn markdown_table(out: &mut String, table: &Table) {
    put!(out, "### {}\n\n", inline(&table.caption));
    if table.rows.is_empty() {
        out.push_str("No figures.\n\n");
        return;
    }
    out.push('|');
    for column in &table.columns {
        let unit =
            if column.unit.is_empty() { String::new() } else { format!(", {}", column.unit) };
        put!(out, " {} |", inline(&format!("{}{unit}", column.head)));
    }
    out.push_str("\n|");
    for (index, _) in table.columns.iter().enumerate() {
        out.push_str(if table.has_figures(index) { "--:|" } else { "---|" });
    }
    out.push('\n');
    for row in &table.rows {
        out.push('|');
        for cell in &row.cells {
            let text = match cell {
                Cell::Check(text, false) => format!("**{}**", inline(text)),
                Cell::Absent(_) => printable(ABSENT),
                cell => inline(&cell.text()),
            };
            put!(out, " {text} |");
        }
        out.push('\n');
    }
    out.push('\n');
}

/// Lines, some of them sentences, as one.
fn one_sentence(lines: &[String]) -> String {
    let lines: Vec<&str> = lines.iter().map(|line| line.trim_end_matches('.')).collect();
    lines.join("; ")
}

fn bullets(out: &mut String, lines: &[String]) {
    for line in lines {
        put!(out, "- {}\n", inline(line));
    }
    if !lines.is_empty() {
        out.push('\n');
    }
}

/// Text that Markdown shows as it is, on one line.
pub(super) fn inline(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in printable(text).chars() {
        if matches!(c, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '#' | '&' | '~') {
            shown.push('\\');
        }
        shown.push(c);
    }
    shown
}

/// Text that cannot end the fence it stands in.
fn fenced(text: &str) -> String {
    printable(text).replace("```", "'''")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_breaks_out_of_a_cell_or_a_fence() {
        assert_eq!(inline("a|b\n<c> `d`"), r"a\|b \<c\> \`d\`");
        assert_eq!(fenced("x\n```\ny"), "x ''' y");
    }
}
