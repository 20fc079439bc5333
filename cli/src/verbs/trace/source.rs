//! A path, opened as a trace, with the names that the user has for it.

use crate::arguments::KnowledgeArguments;
use laneway_terminal::Failure;
use laneway_trace::result::Coverage;
use laneway_trace::{Options, Report};
use laneway_trace_export::Survey;
use laneway_trace_read::{FunctionKey, ListingPlace, ReadError, Symbols, Trace};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// A trace, and what a first look at it found.
pub(super) struct Surveyed {
    pub(super) trace: Trace,
    pub(super) survey: Survey,
}

/// Opens `path`.
pub(super) fn open(path: &Path, knowledge: &KnowledgeArguments) -> Result<Trace, Failure> {
    if let Some(symbols) = &knowledge.symbols {
        is_listing(symbols)?;
    }
    Trace::open(path).map_err(Failure::input)
}

/// Opens `path` and reads it once.
pub(super) fn survey(path: &Path, knowledge: &KnowledgeArguments) -> Result<Surveyed, Failure> {
    let mut trace = open(path, knowledge)?;
    let mut survey = Survey::default();
    trace.read(&mut survey).map_err(Failure::input)?;
    let functions = survey.functions();
    learn(path, knowledge, trace.symbols_mut(), functions)?;
    Ok(Surveyed { trace, survey })
}

/// Adds the user's listing of symbols, placed by the functions that the trace holds.
fn learn(
    path: &Path,
    knowledge: &KnowledgeArguments,
    symbols: &mut Symbols,
    functions: Vec<FunctionKey>,
) -> Result<(), Failure> {
    let Some(listing) = &knowledge.symbols else { return Ok(()) };
    if functions.is_empty() {
        return Err(Failure::input(format!(
            "--symbols {}: {} holds no calls of functions to be named; leave it out",
            listing.display(),
            path.display()
        )));
    }
    let fit = symbols.add_listing(listing, &ListingPlace::Fit(functions));
    fit.map_err(|error| Failure::input(format!("--symbols {error}")))?;
    Ok(())
}

/// Why an analysis ended early.
struct Stopped(Failure);

impl From<ReadError> for Stopped {
    fn from(error: ReadError) -> Self {
        Self(Failure::input(error))
    }
}

/// A program is taken for a listing easily, and would only be said to name nothing.
fn is_listing(path: &Path) -> Result<(), Failure> {
    const ELF: [u8; 4] = *b"\x7fELF";
    let mut begin = [0; ELF.len()];
    let name = path.display();
    let mut file = File::open(path).map_err(|error| {
        Failure::input(format!("--symbols: cannot read {name}: {error}; check its name"))
    })?;
    if file.read(&mut begin).is_ok_and(|read| read == ELF.len()) && begin == ELF {
        return Err(Failure::input(format!(
            "--symbols {name} is a program; give what `nm {name}` prints"
        )));
    }
    Ok(())
}

/// Analyses one trace.
pub(super) fn analyze(
    trace: &mut Trace,
    knowledge: &KnowledgeArguments,
    options: Options,
) -> Result<Report, Failure> {
    let measured = knowledge.call_cost.map(|cost| (cost.inside_ns, cost.outside_ns));
    let options = Options { measured_cost_ns: measured, ..options };
    let path = trace.about().path.clone();
    let report = laneway_trace::analyze_naming(trace, options, |symbols, functions| {
        learn(&path, knowledge, symbols, functions).map_err(Stopped)
    });
    let report = report.map_err(|Stopped(failure)| failure)?;
    if report.analysis.coverage.events == 0 {
        let coverage = &report.analysis.coverage;
        let why = match coverage.damages.first() {
            Some(damage) => format!("{}, byte {}: {}", damage.place, damage.offset, damage.what),
            None => {
                "nothing was recorded; see that the events are enabled, and record again".to_owned()
            }
        };
        return Err(Failure::input(format!("{} holds no events: {why}", path.display())));
    }
    Ok(report)
}

/// What is wrong with what was read, as a sentence; `None` if it was read to its end.
pub(super) fn damage(coverage: &Coverage) -> Option<String> {
    let first = coverage.damages.first()?;
    let rest = match coverage.damages_total {
        0 | 1 => String::new(),
        total => format!(" (the first of {total} such parts)"),
    };
    Some(format!(
        "{}, byte {}: {}{rest}; what could be read is shown",
        first.place, first.offset, first.what
    ))
}
