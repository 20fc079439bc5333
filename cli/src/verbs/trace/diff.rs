//! `laneway trace diff`: how recordings of one side differ from those of another.

use super::{output, source};
use crate::arguments::DiffArguments;
use laneway_terminal as terminal;
use laneway_terminal::{Exit, Failure};
use laneway_trace::{Options, Report, diff, text};
use laneway_trace_export::{Measure, difference_graph};
use std::collections::HashSet;
use std::io::Write;
use std::path::{Path, PathBuf};

pub(super) fn run(arguments: &DiffArguments, json: bool) -> Result<Exit, Failure> {
    let [before, after] = arguments.sides();
    if let Some(path) = &arguments.flamegraph {
        before.iter().chain(after).try_for_each(|trace| output::keep(trace, path))?;
    }
    refuse_twice(before, after)?;
    let read = |path: &PathBuf| -> Result<Report, Failure> {
        let options = Options::default();
        source::analyze_part(path, &arguments.knowledge, &arguments.part, options)
    };
    let side = |paths: &[PathBuf]| paths.iter().map(read).collect::<Result<Vec<_>, _>>();
    let (before, after) = (side(before)?, side(after)?);
    let difference = diff(&before, &after);
    if json {
        let value = serde_json::to_value(&difference).map_err(Failure::input)?;
        terminal::print_json(&value, false)?;
    } else {
        terminal::print(&text::difference(&difference, arguments.style.style()))?;
    }
    if let (Some(path), Some(first), Some(second)) =
        (&arguments.flamegraph, before.first(), after.first())
    {
        let svg = difference_graph(&first.analysis, &second.analysis, Measure::Corrected);
        output::write(path, |to| to.write_all(svg.as_bytes()))?;
        terminal::note(&format!("differential flame graph: {}", path.display()));
    }
    let mut all = before.iter().chain(&after);
    match all.find_map(|report| source::damage(&report.analysis.coverage)) {
        Some(sentence) => Err(Failure::input(sentence)),
        None => Ok(Exit::Done),
    }
}

/// Of several recordings each counts as a run of its own, so none may be given twice.
fn refuse_twice(before: &[PathBuf], after: &[PathBuf]) -> Result<(), Failure> {
    if before.len() + after.len() <= 2 {
        return Ok(());
    }
    let mut seen = HashSet::new();
    let canonical = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    match before.iter().chain(after).find(|path| !seen.insert(canonical(path))) {
        Some(twice) => Err(Failure::input(format!(
            "{} is given twice, and each recording counts as a run of its own; leave one out",
            twice.display()
        ))),
        None => Ok(()),
    }
}
