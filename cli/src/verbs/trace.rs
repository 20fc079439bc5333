//! `laneway trace`: what a trace says, how two differ, and traces as other programs read them.
//!
//! Reading, analysis and formats are crates of their own; here paths become traces and outputs become files. What must
//! always hold: an output has its name only when it is complete, and no output replaces the trace it was made from.

mod analyze;
mod diff;
mod export;
mod output;
mod record;
mod source;

use crate::arguments::{KnowledgeArguments, TraceVerb};
use laneway_terminal::{Exit, Failure};
use laneway_trace::Options;
use laneway_trace::result::Analysis;
use std::io::Write;
use std::path::Path;

pub(crate) fn run(verb: &TraceVerb, json: bool) -> Result<Exit, Failure> {
    match verb {
        TraceVerb::Analyze(arguments) => analyze::run(arguments, json),
        TraceVerb::Diff(arguments) => diff::run(arguments, json),
        TraceVerb::Export(arguments) => export::run(arguments, json),
        TraceVerb::Record(arguments) => record::run(arguments, json),
    }
}

/// As `analyze TRACE --html PAGE`, with nothing printed.
pub(crate) fn explain(trace: &Path, page: &Path, options: Options) -> Result<Analysis, Failure> {
    let knowledge = KnowledgeArguments::default();
    let report = source::analyze(&mut source::open(trace, &knowledge)?, &knowledge, options)?;
    let html = laneway_trace_export::page(&report.analysis);
    output::write(page, |to| to.write_all(html.as_bytes()))?;
    Ok(report.analysis)
}
