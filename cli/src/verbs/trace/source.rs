//! A path, opened as a trace, with the names that the user has for it.

use crate::arguments::{KnowledgeArguments, Moment, PartArguments};
use laneway_page::number::utc;
use laneway_terminal::Failure;
use laneway_trace::result::Coverage;
use laneway_trace::{Only, Options, Report};
use laneway_trace_export::Survey;
use laneway_trace_read::{FunctionKey, ListingPlace, ReadError, Symbols, Trace};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

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
    Trace::open_with(path, knowledge.rules().calls()).map_err(Failure::input)
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

/// The part of the trace that the user means.
pub(super) fn part(arguments: &PartArguments, survey: &Survey) -> Result<Only, Failure> {
    let origin_ns = survey.from_ns.unwrap_or(0);
    let from_ns = arguments.from.map(|from| moment("--from", from, survey)).transpose()?;
    let to_ns = arguments.to.map(|to| moment("--to", to, survey)).transpose()?;
    let seconds = |ns: u64| ns.saturating_sub(origin_ns) as f64 / 1e9;
    if let (Some(from_ns), Some(to_ns)) = (from_ns, to_ns)
        && from_ns >= to_ns
    {
        return Err(Failure::input(format!(
            "--from {} s is not before --to {} s; turn them round",
            seconds(from_ns),
            seconds(to_ns)
        )));
    }
    if let Some(from_ns) = from_ns.filter(|&from_ns| from_ns > survey.to_ns) {
        return Err(Failure::input(format!(
            "--from {} s lies behind the end of the trace, which is {} s long",
            seconds(from_ns),
            seconds(survey.to_ns)
        )));
    }
    let thread = match &arguments.thread {
        None => None,
        Some(wanted) => {
            Some(survey.thread_named(wanted).ok_or_else(|| no_such_thread(wanted, survey))?)
        }
    };
    Ok(Only { from_ns, to_ns, thread })
}

/// A clock that shows an earlier time tells no time of day.
const YEAR_2000_NS: u64 = 946_684_800_000_000_000;
const DAY_NS: u64 = 86_400_000_000_000;

/// The moment on the clock of the trace.
fn moment(option: &str, moment: Moment, survey: &Survey) -> Result<u64, Failure> {
    let origin_ns = survey.from_ns.unwrap_or(0);
    let of_day_ns = match moment {
        Moment::Since(ns) => return Ok(origin_ns.saturating_add(ns)),
        Moment::OfDay(ns) => ns,
    };
    if origin_ns < YEAR_2000_NS {
        return Err(Failure::input(format!(
            "{option} is a time of day, and the clock of this trace tells none; count from its begin, as in 1.5s"
        )));
    }
    // A trace may reach over midnight.
    let midnight_ns = origin_ns - origin_ns % DAY_NS;
    let days = [midnight_ns, midnight_ns + DAY_NS].map(|day_ns| day_ns + of_day_ns);
    let is_inside = |at: &&u64| (origin_ns..=survey.to_ns).contains(*at);
    days.iter().find(is_inside).copied().ok_or_else(|| {
        Failure::input(format!(
            "{option} lies outside of the trace, which lasts from {} to {}",
            utc(origin_ns),
            utc(survey.to_ns)
        ))
    })
}

/// Threads that are named in an error.
const THREADS_NAMED_MAX: usize = 8;

fn no_such_thread(wanted: &str, survey: &Survey) -> Failure {
    let threads = survey.threads.values().take(THREADS_NAMED_MAX);
    let known: Vec<String> =
        threads.map(|thread| format!("{} ({})", thread.tid, thread.name.escape_debug())).collect();
    let more = if survey.threads.len() > THREADS_NAMED_MAX { ", ..." } else { "" };
    Failure::input(format!(
        "--thread {wanted} means no thread, or several; the trace has {}{more}",
        known.join(", ")
    ))
}

/// Opens `path` and analyses the part of it that is wanted; the trace is read once more only to find that.
pub(super) fn analyze_part(
    path: &Path,
    knowledge: &KnowledgeArguments,
    wanted: &PartArguments,
    options: Options,
) -> Result<Report, Failure> {
    let is_whole = wanted.from.is_none() && wanted.to.is_none() && wanted.thread.is_none();
    if is_whole {
        return analyze(&mut open(path, knowledge)?, knowledge, options);
    }
    let Surveyed { mut trace, survey } = survey(path, knowledge)?;
    let only = part(wanted, &survey)?;
    analyze(&mut trace, knowledge, Options { only, ..options })
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

/// A program is easily given in place of a listing, and the error would state only that it names nothing.
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
    let rules = Arc::clone(knowledge.rules());
    let options = Options { measured_cost_ns: measured, rules, ..options };
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
