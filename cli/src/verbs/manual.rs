//! `laneway manual`: manual pages of every verb, completion scripts of every shell, and the tables of the reference, in
//! a folder, as a package and the guide want them.
//!
//! ```text
//!   DIR/man/laneway.1, laneway-run.1, laneway-run-echo.1, ...    one page for each verb that a user may call
//!   DIR/completions/laneway.bash, _laneway, laneway.fish, ...
//!   DIR/reference/lanes.md, drop-reasons.md, features-packets.md, ...   made from the code's own tables
//! ```

use crate::arguments::command;
use crate::verbs::RunVerb;
use clap::ValueEnum;
use clap_complete::Shell;
use laneway_core::DropReason;
use laneway_kinds::{LaneFacts, ReferenceTable};
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
    for table in [lane_table(lanes), drop_reasons()].into_iter().chain(of_apps) {
        fs::write(reference.join(format!("{}.md", table.name)), page(&table))?;
    }
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
