//! `laneway manual`: manual pages of every verb, completion scripts of every shell, and the tables of the reference, in
//! a folder, as a package and the guide want them.
//!
//! ```text
//!   DIR/man/laneway.1, laneway-run.1, laneway-run-echo.1, ...    one page for each verb that a user may call
//!   DIR/completions/laneway.bash, _laneway, laneway.fish, ...
//!   DIR/reference/lanes.md, knobs.md, drop-reasons.md, metrics.md, ...   made from the code's own tables
//! ```

use crate::command_line::command;
use crate::verbs::RunVerb;
use clap::ValueEnum;
use clap_complete::Shell;
use laneway_core::DropReason;
use laneway_kinds::{LaneFacts, ReferenceTable};
use laneway_metrics::table;
use laneway_registry::{LaneTable, lanes};
use laneway_terminal as terminal;
use laneway_terminal::{Exit, Failure};
use serde_json::json;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) fn run<L: LaneTable>(
    out: &Path,
    apps: &[Box<dyn RunVerb>],
    json: bool,
) -> Result<Exit, Failure> {
    let written = write(out, apps, &lanes::<L>()).map_err(|why| {
        Failure::input(format!(
            "cannot write to {}: {why}; give another folder by --out",
            out.display()
        ))
    })?;
    if json {
        terminal::print_json(&json!({ "verb": "manual", "files": written }), false)?;
    } else {
        terminal::print(&format!("{} files in {}\n", written.len(), out.display()))?;
    }
    Ok(Exit::Done)
}

fn write(out: &Path, apps: &[Box<dyn RunVerb>], lanes: &[&LaneFacts]) -> io::Result<Vec<PathBuf>> {
    let folders = ["man", "completions", "reference"].map(|name| out.join(name));
    let [man, completions, reference] = &folders;
    folders.iter().try_for_each(fs::create_dir_all)?;
    // The generator names pages by the path of their command, and leaves hidden ones out.
    clap_mangen::generate_to(command(apps), man)?;
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut command(apps), "laneway", completions)?;
    }
    let of_apps = apps.iter().flat_map(|app| app.reference());
    for table in [lane_table(lanes), drop_reasons(), metrics()].into_iter().chain(of_apps) {
        fs::write(reference.join(format!("{}.md", table.name)), page(&table))?;
    }
    fs::write(reference.join("knobs.md"), knobs(lanes))?;
    let mut written = Vec::new();
    for folder in folders {
        for entry in fs::read_dir(folder)? {
            written.push(entry?.path());
        }
    }
    written.sort_unstable();
    Ok(written)
}

fn lane_table(lanes: &[&LaneFacts]) -> ReferenceTable {
    let row = |lane: &&LaneFacts| {
        let modes: Vec<String> = lane.modes.iter().map(|mode| format!("`{}`", mode.spec)).collect();
        vec![format!("`{}`", lane.name), lane.about.to_owned(), modes.join(", ")]
    };
    ReferenceTable {
        name: "lanes".to_owned(),
        title: "Lanes and their modes".to_owned(),
        headings: vec!["lane", "what it is", "modes that `laneway lanes` asks the machine for"],
        rows: lanes.iter().map(row).collect(),
    }
}

fn drop_reasons() -> ReferenceTable {
    let row = |reason: &DropReason| {
        vec![format!("`{}`", reason.name()), reason.definition().trim().to_owned()]
    };
    ReferenceTable {
        name: "drop-reasons".to_owned(),
        title: "Why a frame, a datagram or a row was lost or left out".to_owned(),
        headings: vec!["reason", "what is counted"],
        rows: DropReason::ALL.iter().map(row).collect(),
    }
}

/// What `--metrics` serves of every run.
fn metrics() -> ReferenceTable {
    let row = |family: laneway_metrics::Family| {
        vec![format!("`{}`", family.name), family.kind.name().to_owned(), family.help.to_owned()]
    };
    ReferenceTable {
        name: "metrics".to_owned(),
        title: "What `--metrics` serves of every run".to_owned(),
        headings: vec!["name", "kind", "what it is"],
        rows: table::families().into_iter().map(row).collect(),
    }
}

/// The knobs of every lane, from the tables of its README.
fn knobs(lanes: &[&LaneFacts]) -> String {
    let mut text = "# Knobs of the lanes\n\nWritten by `laneway manual` from the lanes' own tables. A lane spec is \
                    `LANE:KNOB=VALUE,...`.\n"
        .to_owned();
    for lane in lanes {
        let tables = knob_tables(lane.readme);
        if !tables.is_empty() {
            text += &format!("\n## `{}`: {}\n", lane.name, lane.about);
        }
        for (heading, rows) in tables {
            text += &format!("\n### {heading}\n\n");
            text.extend(rows.iter().map(|row| unlinked(row) + "\n"));
        }
    }
    text
}

/// The tables of a README whose first column is a knob or a whole spec, each with the heading that it stands under.
fn knob_tables(readme: &str) -> Vec<(&str, Vec<&str>)> {
    let mut tables: Vec<(&str, Vec<&str>)> = Vec::new();
    let (mut heading, mut is_inside) = ("Knobs", false);
    for line in readme.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            heading = title;
        }
        if line.starts_with("| knob |") || line.starts_with("| spec |") {
            tables.push((heading, Vec::new()));
            is_inside = true;
        }
        is_inside &= line.starts_with('|');
        if let Some((_, rows)) = tables.last_mut().filter(|_| is_inside) {
            rows.push(line);
        }
    }
    tables
}

/// The text of a row without its links, which lead to files beside the README.
fn unlinked(row: &str) -> String {
    let mut text = String::new();
    let mut rest = row;
    while let Some((before, link)) = rest.split_once('[') {
        let parts =
            link.split_once("](").and_then(|(shown, rest)| Some((shown, rest.split_once(')')?.1)));
        let Some((shown, behind)) = parts else { break };
        text += before;
        text += shown;
        rest = behind;
    }
    text + rest
}

/// The table as a page of Markdown.
fn page(table: &ReferenceTable) -> String {
    let line = |cells: Vec<String>| {
        // A bar would end the cell.
        let cells: Vec<String> = cells.into_iter().map(|cell| cell.replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let mut text =
        format!("# {}\n\nWritten by `laneway manual` from the code's own tables.\n\n", table.title);
    text += &line(table.headings.iter().map(|&heading| heading.to_owned()).collect());
    text += &format!("|{}\n", "---|".repeat(table.headings.len()));
    text.extend(table.rows.iter().cloned().map(line));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_for_a_drop_is_in_the_reference_with_its_definition() {
        let text = page(&drop_reasons());
        for reason in DropReason::ALL {
            let row = text.lines().find(|line| line.contains(&format!("`{}`", reason.name())));
            let row = row.unwrap_or_else(|| panic!("{} is missing", reason.name()));
            assert!(row.len() > reason.name().len() + 20, "{row}");
        }
    }

    #[test]
    fn the_knobs_of_every_mode_are_in_the_reference() {
        for lane in lanes::<laneway_registry::Lanes>() {
            let tables = knob_tables(lane.readme);
            let text: String = tables.iter().flat_map(|(_, rows)| rows.iter().copied()).collect();
            assert!(!tables.is_empty(), "{} has no table of knobs", lane.name);
            for mode in lane.modes {
                let spec = mode.spec.split_once(':').map_or("", |(_, knobs)| knobs);
                for knob in spec.split(',').filter(|knob| !knob.is_empty()) {
                    let name = knob.split('=').next().unwrap_or(knob);
                    let is_there = [format!("`{name}`"), format!("`{name}="), format!(":{name}")];
                    assert!(is_there.iter().any(|it| text.contains(it)), "{}: {name}", mode.spec);
                }
            }
        }
    }

    #[test]
    fn tables_of_knobs_are_cut_out_with_their_headings() {
        let readme = "# A\n| x | y |\n\n## First\n| knob | a |\n|---|---|\n| `b=` | c |\n\n\
                      | other | d |\n## Second\n| knob | e |\n";
        let tables = knob_tables(readme);
        let shapes: Vec<_> = tables.iter().map(|(heading, rows)| (*heading, rows.len())).collect();
        assert_eq!(shapes, [("First", 3), ("Second", 1)]);
        assert_eq!(unlinked("| [a](b.md) and [c] |"), "| a and [c] |");
    }

    #[test]
    fn a_bar_in_a_cell_does_not_end_it() {
        let table = ReferenceTable {
            name: "t".to_owned(),
            title: "T".to_owned(),
            headings: vec!["a"],
            rows: vec![vec!["x|y".to_owned()]],
        };
        assert!(page(&table).ends_with("| x\\|y |\n"), "{}", page(&table));
    }
}
