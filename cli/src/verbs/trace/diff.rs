//! `laneway trace diff`: how one trace differs from another.

use super::{output, source};
use crate::arguments::DiffArguments;
use laneway_terminal as terminal;
use laneway_terminal::{Exit, Failure};
use laneway_trace::{Options, Report, diff, text};
use laneway_trace_export::{Measure, difference_graph};
use std::io::Write;
use std::path::Path;

pub(super) fn run(arguments: &DiffArguments, json: bool) -> Result<Exit, Failure> {
    if let Some(path) = &arguments.flamegraph {
        output::keep(&arguments.base, path)?;
        output::keep(&arguments.other, path)?;
    }
    let read = |path: &Path| -> Result<Report, Failure> {
        let mut trace = source::open(path, &arguments.knowledge)?;
        source::analyze(&mut trace, &arguments.knowledge, Options::default())
    };
    let (base, other) = (read(&arguments.base)?, read(&arguments.other)?);
    let difference = diff(&base, &other);
    if json {
        let value = serde_json::to_value(&difference).map_err(Failure::input)?;
        terminal::print_json(&value, false)?;
    } else {
        terminal::print(&text::difference(&difference))?;
    }
    if let Some(path) = &arguments.flamegraph {
        let svg = difference_graph(&base.analysis, &other.analysis, Measure::Corrected);
        output::write(path, |to| to.write_all(svg.as_bytes()))?;
        terminal::note(&format!("differential flame graph: {}", path.display()));
    }
    let damaged = [&base, &other].map(|report| source::damage(&report.analysis.coverage));
    match damaged.into_iter().flatten().next() {
        Some(sentence) => Err(Failure::input(sentence)),
        None => Ok(Exit::Done),
    }
}
