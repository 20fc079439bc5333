//! `laneway trace analyze`: where the time goes, with evidence, and what the trace cannot tell.

use super::{output, source};
use crate::arguments::AnalyzeArguments;
use laneway_terminal as terminal;
use laneway_terminal::{Exit, Failure};
use laneway_trace::result::Analysis;
use laneway_trace::{Options, text};
use laneway_trace_export::{Measure, flame_graph, page, table};
use std::io::Write;
use std::path::Path;

pub(super) fn run(arguments: &AnalyzeArguments, json: bool) -> Result<Exit, Failure> {
    let outputs = [
        ("--html", &arguments.html),
        ("--csv", &arguments.csv),
        ("--flamegraph", &arguments.flamegraph),
    ];
    for (option, path) in outputs {
        let Some(path) = path else { continue };
        if arguments.traces.len() > 1 {
            return Err(Failure::input(format!(
                "{option} {} holds one trace, and {} are given; analyse them one by one",
                path.display(),
                arguments.traces.len()
            )));
        }
        output::keep(&arguments.traces[0], path)?;
    }
    let options = Options {
        control_per_second: arguments.control_pps,
        drops: arguments.drops,
        ..Options::default()
    };
    let mut damaged = Vec::new();
    for path in &arguments.traces {
        let report =
            source::analyze_part(path, &arguments.knowledge, &arguments.part, options.clone())?;
        let analysis = &report.analysis;
        if json {
            let value = serde_json::to_value(analysis).map_err(Failure::input)?;
            terminal::print_json(&value, false)?;
        } else {
            terminal::print(&text::analysis_in(analysis, arguments.style.style()))?;
        }
        write(arguments, analysis)?;
        damaged.extend(source::damage(&analysis.coverage));
    }
    match damaged.as_slice() {
        [] => Ok(Exit::Done),
        [one] => Err(Failure::input(one)),
        several => Err(Failure::input(format!(
            "{} traces could not be read to the end, the first: {}",
            several.len(),
            several[0]
        ))),
    }
}

fn write(arguments: &AnalyzeArguments, analysis: &Analysis) -> Result<(), Failure> {
    if let Some(path) = &arguments.html {
        output::write(path, |to| to.write_all(page(analysis).as_bytes()))?;
        terminal::note(&format!("page: {}", path.display()));
    }
    if let Some(folder) = &arguments.csv {
        write_csv(analysis, folder)?;
        terminal::note(&format!("tables: {}", folder.display()));
    }
    if let Some(path) = &arguments.flamegraph {
        let svg = flame_graph(analysis, Measure::Corrected);
        output::write(path, |to| to.write_all(svg.as_bytes()))?;
        terminal::note(&format!("flame graph: {}", path.display()));
    }
    Ok(())
}

/// Writes all tables into a folder; their sizes together.
pub(super) fn write_csv(analysis: &Analysis, folder: &Path) -> Result<(), Failure> {
    output::folder(folder)?;
    for table in table::tables(analysis) {
        let path = folder.join(format!("{}.csv", table.name));
        output::write(&path, |to| table::write_csv(&table, to))?;
    }
    Ok(())
}
