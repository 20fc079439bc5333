//! A path, opened as a trace, with the names that the user has for it.

use crate::arguments::KnowledgeArguments;
use crate::exit::Failure;
use laneway_trace::result::Coverage;
use laneway_trace::{Options, Report};
use laneway_trace_export::Survey;
use laneway_trace_read::{ListingPlace, Trace};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// A trace, and what a first look at it found.
pub(super) struct Surveyed {
    pub(super) trace: Trace,
    pub(super) survey: Survey,
}

/// Opens `path`; a listing of symbols is placed by the functions that the trace holds.
pub(super) fn open(path: &Path, knowledge: &KnowledgeArguments) -> Result<Trace, Failure> {
    match &knowledge.symbols {
        Some(_) => survey(path, knowledge).map(|surveyed| surveyed.trace),
        None => Trace::open(path).map_err(Failure::input),
    }
}

/// Opens `path` and reads it once.
pub(super) fn survey(path: &Path, knowledge: &KnowledgeArguments) -> Result<Surveyed, Failure> {
    if let Some(symbols) = &knowledge.symbols {
        is_listing(symbols)?;
    }
    let mut trace = Trace::open(path).map_err(Failure::input)?;
    let mut survey = Survey::default();
    trace.read(&mut survey).map_err(Failure::input)?;
    if let Some(symbols) = &knowledge.symbols {
        let functions = survey.functions();
        if functions.is_empty() {
            return Err(Failure::input(format!(
                "--symbols {}: {} holds no calls of functions to be named; leave it out",
                symbols.display(),
                path.display()
            )));
        }
        let place = ListingPlace::Fit(functions);
        let fit = trace.symbols_mut().add_listing(symbols, &place);
        fit.map_err(|error| Failure::input(format!("--symbols {error}")))?;
    }
    Ok(Surveyed { trace, survey })
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
    let name = trace.about().path.display().to_string();
    let report = laneway_trace::analyze(trace, options).map_err(Failure::input)?;
    if report.analysis.coverage.events == 0 {
        let coverage = &report.analysis.coverage;
        let why = match coverage.damages.first() {
            Some(damage) => format!("{}, byte {}: {}", damage.place, damage.offset, damage.what),
            None => {
                "nothing was recorded; see that the events are enabled, and record again".to_owned()
            }
        };
        return Err(Failure::input(format!("{name} holds no events: {why}")));
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
