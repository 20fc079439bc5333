//! `laneway trace export`: a trace as other programs read it.
//!
//! A trace is read once to learn its names, again to find what detectors mark where the format can show marks, and once
//! to write; each time as a stream.

use super::output;
use super::source::{self, Surveyed};
use crate::arguments::{ExportArguments, ExportFormat};
use laneway_capture::PartialFile;
use laneway_page::text::grouped;
use laneway_terminal as terminal;
use laneway_terminal::{Exit, Failure};
use laneway_trace::Options;
use laneway_trace::result::Analysis;
use laneway_trace_export::{
    CallTable, Calls, Chrome, ExportError, Files, KnownNames, LeftOut, Measure, Nest, Part,
    Perfetto, Selection, Speedscope, Survey, Written, marks, table, write_collapsed, write_parquet,
};
use laneway_trace_read::Trace;
use serde_json::json;
use std::io;
use std::path::Path;

pub(super) fn run(arguments: &ExportArguments, json: bool) -> Result<Exit, Failure> {
    refuse_idle_options(arguments)?;
    output::keep(&arguments.trace, &arguments.output)?;
    let Surveyed { mut trace, survey } = source::survey(&arguments.trace, &arguments.knowledge)?;
    let selection = selection(arguments, &survey)?;
    let report = source::analyze(&mut trace, &arguments.knowledge, Options::default())?;
    let analysis = &report.analysis;
    let events = Events {
        names: survey.names(trace.symbols()),
        origin_ns: survey.from_ns.unwrap_or(0),
        selection,
        trace,
    };
    let written = write(events, analysis, arguments)?;
    print_written(arguments, written.as_ref(), json)?;
    match source::damage(&analysis.coverage) {
        Some(sentence) => Err(Failure::input(sentence)),
        None => Ok(Exit::Done),
    }
}

/// Options that the format has no use for are refused: a user who gives them expects something of them.
fn refuse_idle_options(arguments: &ExportArguments) -> Result<(), Failure> {
    let is_table = matches!(arguments.format, ExportFormat::Collapsed | ExportFormat::Csv);
    let selecting = [
        ("--from", arguments.part.from.is_some()),
        ("--to", arguments.part.to.is_some()),
        ("--longer-than", arguments.longer_than.is_some()),
        ("--thread", arguments.part.thread.is_some()),
    ];
    if is_table && let Some((option, _)) = selecting.iter().find(|(_, is_given)| *is_given) {
        return Err(Failure::input(format!(
            "{option} selects calls, and this format holds sums over the whole trace; leave it out, or use \
             --format perfetto, chrome, speedscope or parquet"
        )));
    }
    if arguments.raw && arguments.format != ExportFormat::Collapsed {
        return Err(Failure::input(
            "--raw is for --format collapsed: the others hold recorded times, tables both; leave it out",
        ));
    }
    Ok(())
}

fn selection(arguments: &ExportArguments, survey: &Survey) -> Result<Selection, Failure> {
    let only = source::part(&arguments.part, survey)?;
    Ok(Selection {
        from_ns: only.from_ns,
        to_ns: only.to_ns,
        shortest_ns: arguments.longer_than.unwrap_or(0),
        thread: only.thread,
    })
}

/// What the formats of events are written from.
struct Events {
    trace: Trace,
    names: KnownNames,
    origin_ns: u64,
    selection: Selection,
}

/// Writes the output; what the formats of events say of it.
fn write(
    events: Events,
    analysis: &Analysis,
    arguments: &ExportArguments,
) -> Result<Option<Written>, Failure> {
    let path = arguments.output.as_path();
    let failed = |error: ExportError| match error {
        ExportError::Write(error) => output::failure(path, &error),
        error => Failure::input(error),
    };
    let create = |path: &Path| PartialFile::create(path).map_err(|e| output::failure(path, &e));
    let finish = |to: PartialFile| to.commit().map_err(|error| output::failure(path, &error));
    let Events { mut trace, names, origin_ns, selection } = events;
    match arguments.format {
        ExportFormat::Perfetto => {
            let mut to = create(path)?;
            let perfetto = Perfetto::new(&mut to, &names, origin_ns);
            let (perfetto, left_out) = stream(&mut trace, perfetto, selection)?;
            let written = perfetto.finish(&marks(analysis), left_out).map_err(failed)?;
            finish(to)?;
            Ok(Some(written))
        }
        ExportFormat::Chrome => {
            let mut to = create(path)?;
            let chrome = Chrome::new(&mut to, &names, origin_ns);
            let (chrome, left_out) = stream(&mut trace, chrome, selection)?;
            let written = chrome.finish(&marks(analysis), left_out).map_err(failed)?;
            finish(to)?;
            Ok(Some(written))
        }
        ExportFormat::Speedscope => {
            output::folder(path)?;
            let speedscope = Speedscope::new(Folder(path), &names);
            let (speedscope, left_out) = stream(&mut trace, speedscope, selection)?;
            speedscope.finish(left_out).map(Some).map_err(failed)
        }
        ExportFormat::Collapsed => {
            let measure = if arguments.raw { Measure::Raw } else { Measure::Corrected };
            output::write(path, |to| write_collapsed(analysis, measure, to))?;
            Ok(None)
        }
        ExportFormat::Csv => {
            super::analyze::write_csv(analysis, path)?;
            Ok(None)
        }
        ExportFormat::Parquet => {
            output::folder(path)?;
            for table in [table::functions(analysis), table::contexts(analysis)] {
                let mut to = create(&path.join(format!("{}.parquet", table.name)))?;
                write_parquet(&table, &mut to).map_err(failed)?;
                finish(to)?;
            }
            let mut to = create(&path.join("calls.parquet"))?;
            let table = CallTable::new(&mut to, &names, origin_ns).map_err(failed)?;
            let (table, left_out) = stream(&mut trace, table, selection)?;
            let written = table.finish(left_out).map_err(failed)?;
            finish(to)?;
            Ok(Some(written))
        }
    }
}

/// Reads the trace into `calls`.
fn stream<C: Calls>(
    trace: &mut Trace,
    calls: C,
    selection: Selection,
) -> Result<(C, LeftOut), Failure> {
    let mut nest = Nest::new(calls, selection);
    trace.read(&mut nest).map_err(Failure::input)?;
    Ok(nest.finish())
}

/// The folder of a speedscope export.
struct Folder<'p>(&'p Path);

impl Files for Folder<'_> {
    type To = PartialFile;

    fn open(&mut self, part: &Part<'_>) -> io::Result<PartialFile> {
        let number = if part.part == 1 { String::new() } else { format!(".part{}", part.part) };
        let name = format!("thread-{}{number}.speedscope.json", part.thread.0);
        PartialFile::create(self.0.join(name))
    }

    fn close(&mut self, to: PartialFile) -> io::Result<()> {
        to.commit()
    }
}

fn print_written(
    arguments: &ExportArguments,
    written: Option<&Written>,
    json: bool,
) -> Result<(), Failure> {
    if json {
        let value = json!({
            "verb": "trace export",
            "trace": arguments.trace,
            "output": arguments.output,
            "written": written,
        });
        return terminal::print_json(&value, false);
    }
    let mut text = format!("written: {}", arguments.output.display());
    if let Some(written) = written {
        let files = if written.files == 1 { "file" } else { "files" };
        text += &format!(
            "; {} calls, {} bytes in {} {files}",
            grouped(written.calls),
            grouped(written.bytes),
            written.files
        );
        if written.left_out.cut > 0 {
            text += &format!("; {} calls are cut", grouped(written.left_out.cut));
        }
        let missing = written.left_out.words();
        if !missing.is_empty() {
            text += &format!("; left out: {missing}");
        }
    }
    terminal::note(&text);
    Ok(())
}
