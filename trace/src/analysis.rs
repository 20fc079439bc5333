//! From a trace to a [`Report`]: reading, then everything that is computed once.
//!
//! [`analyze`] is the whole way; [`Analyzer`] is the same for events that come from elsewhere (tests, a
//! live source). Memory is bounded by the limits of the tables, not by the length of the trace.

mod coverage;
mod tables;

use std::sync::Arc;

use laneway_trace_read::{
    Consumer, Damage, Event, FunctionKey, Loss, Producer, ReadError, Symbols, Thread, ThreadId,
    Trace,
};

use crate::detect::{self, CUT_SHARE_MAX, Case};
use crate::difference::work::Works;
use crate::machine::{Machine, PseudoCall};
use crate::model::{Model, Name};
use crate::only::{Only, Within};
use crate::result::*;
use crate::rules::Rules;
use crate::{account, advice, blocks, causes, cores};
use coverage::coverage;
use tables::Writer;

/// Calls and mean duration beyond which a function is proposed for the exclude list (TAU's rule).
const EXCLUDE_CALLS: u64 = 100_000;
const EXCLUDE_NS: u64 = 10_000;

/// What the user knows beyond the trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Cost of one traced call inside its interval and outside of it, ns, measured on this host with this tracer.
    pub measured_cost_ns: Option<(f64, f64)>,
    /// Rate of the same program without instrumentation, packets/s.
    pub control_per_second: Option<f64>,
    /// Packets dropped elsewhere during the trace (interface counters, a ledger).
    pub drops: Option<u64>,
    /// Seed of everything that is resampled.
    pub seed: u64,
    /// The part of the trace that is analysed.
    pub only: Only,
    /// What names mean.
    pub rules: Arc<Rules>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            measured_cost_ns: None,
            control_per_second: None,
            drops: None,
            seed: 1,
            only: Only::default(),
            rules: Arc::clone(Rules::known()),
        }
    }
}

/// The origin of the events.
#[derive(Debug, Clone, Default)]
pub struct Source {
    /// Their producers.
    pub producers: Vec<Producer>,
    /// As the user named them.
    pub inputs: Vec<String>,
    /// What could not be read.
    pub damages: Vec<Damage>,
    /// Damages beyond those listed.
    pub damages_more: u64,
    /// What must be known of the producer, whole sentences; listed among the limits.
    pub notes: Vec<String>,
    /// Names of points by their number.
    pub points: Vec<String>,
    /// Packets that were lost are counted in the trace, so that none counted means none lost there.
    pub counts_drops: bool,
}

impl Source {
    /// Parts that could not be read, listed or not.
    fn damages_total(&self) -> u64 {
        self.damages.len() as u64 + self.damages_more
    }
}

/// An analysis, with what [`diff`](crate::diff) needs beyond it.
#[derive(Debug, Clone)]
pub struct Report {
    /// The result.
    pub analysis: Analysis,
    /// Time with the tracer's cost still in it.
    pub(crate) works: Works,
}

/// Takes events and makes a [`Report`] of them.
#[derive(Debug)]
pub struct Analyzer {
    machine: Machine,
    options: Options,
}

/// Reads `trace` and analyses it.
///
/// A cost per call that the trace states (`call_inside_ns`, `call_whole_ns` among its facts) is used where
/// `options` has none.
///
/// # Errors
/// [`ReadError`] if the file system fails while reading.
pub fn analyze(trace: &mut Trace, options: Options) -> Result<Report, ReadError> {
    analyze_naming(trace, options, |_, _| Ok(()))
}

/// As [`analyze`]; between reading and naming, `learn` may teach the symbols of the trace more names. It is given
/// the functions that were called, so that a listing can be placed by them and the trace is read only once.
///
/// # Errors
/// [`ReadError`] if the file system fails while reading, or what `learn` fails with.
pub fn analyze_naming<E: From<ReadError>>(
    trace: &mut Trace,
    mut options: Options,
    learn: impl FnOnce(&mut Symbols, Vec<FunctionKey>) -> Result<(), E>,
) -> Result<Report, E> {
    let about = trace.about();
    let fact = |name: &str| -> Option<f64> {
        let (_, value) = about.env.iter().find(|(key, _)| key == name)?;
        value.parse().ok().filter(|cost: &f64| cost.is_finite() && *cost >= 0.0)
    };
    if options.measured_cost_ns.is_none()
        && let (Some(inside), Some(whole)) = (fact("call_inside_ns"), fact("call_whole_ns"))
    {
        options.measured_cost_ns = Some((inside, (whole - inside).max(0.0)));
    }
    let mut source = Source {
        producers: vec![about.producer],
        inputs: vec![about.path.display().to_string()],
        damages: about.damages.clone(),
        damages_more: 0,
        notes: about.notes.clone(),
        points: Vec::new(),
        counts_drops: about.env.iter().any(|(key, value)| key == "counts_drops" && value == "yes"),
    };
    let only = options.only;
    let mut analyzer = Analyzer::new(options);
    let read = if only == Only::default() {
        trace.read(&mut analyzer)?
    } else {
        source.notes.extend(only.note());
        trace.read(&mut Within::new(&mut analyzer, only))?
    };
    source.damages.extend(read.damages);
    source.damages_more = read.damages_more;
    if read.describing > 0 {
        source.notes.push(format!(
            "{} of {} records tell about the process (statedump, libraries) and are no events",
            read.describing, read.records
        ));
    }
    learn(trace.symbols_mut(), analyzer.functions())?;
    let symbols = trace.symbols();
    source.points = symbols.points().to_vec();
    Ok(analyzer.finish(&source, &mut |key| {
        let function = symbols.function(key);
        Name { text: function.demangled, known: function.known }
    }))
}

impl Analyzer {
    /// Starts with nothing.
    pub fn new(options: Options) -> Self {
        Self { machine: Machine::new(), options }
    }

    /// The functions that were called so far.
    pub fn functions(&self) -> Vec<FunctionKey> {
        self.machine.keys[PseudoCall::ALL.len()..].to_vec()
    }

    /// Ends reading. `name` is asked once per function.
    pub fn finish(self, source: &Source, name: &mut dyn FnMut(FunctionKey) -> Name) -> Report {
        let Self { machine, options } = self;
        let model = Model::new(machine, name, options.measured_cost_ns, options.rules);
        let blocks = blocks::cut(&model);
        let workers = account::workers(&model);
        let case = Case {
            model: &model,
            workers: &workers,
            blocks: &blocks,
            seed: options.seed,
            drops: options.drops,
            damages: source.damages_total(),
        };
        let order = order(&model);
        let maxima = model.cut_share() <= CUT_SHARE_MAX;
        let writer = Writer { model: &model, order: &order, maxima };
        // The detectors take about as long as the tables, and neither needs the other.
        let (tables, (findings, facts)) = std::thread::scope(|scope| {
            let tables = scope.spawn(|| writer.tables());
            let found = detect::all(&case);
            let tables = tables.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (tables, found)
        });
        let exclude = exclude(&model);
        let control = options.control_per_second.map(|per_second| Control {
            per_second,
            slow_down: model
                .packets
                .per_second
                .filter(|&traced| traced > 0.0)
                .map(|traced| per_second / traced),
        });
        let losses = causes::losses(&model, source.counts_drops, options.drops);
        let evidence = causes::Evidence {
            model: &model,
            workers: &workers,
            losses: &losses,
            findings: &findings,
            facts: &facts,
        };
        let causes = causes::find(&evidence);
        let mut coverage = coverage(&model, source);
        coverage.withheld.extend(causes::unexplained(&evidence));
        let (advice, silent) =
            advice::all(&model, &findings, &facts, &exclude, control.is_some(), &causes);
        let (worst, windows) = writer.worst();
        let analysis = Analysis {
            schema: SCHEMA.to_owned(),
            coverage,
            calibration: model.calibration,
            causes,
            accounts: workers.into_iter().map(|worker| worker.account).collect(),
            losses,
            threads: writer.threads(),
            cores: cores::rows(&model, &writer.threads()),
            functions: tables.functions,
            contexts: tables.contexts,
            layers: writer.layers(),
            packets: model.packets.clone(),
            polls: writer.polls(),
            sends: writer.sends(),
            points: writer.points(&source.points),
            pools: writer.pools(),
            findings,
            advice,
            silent,
            exclude,
            control,
            time_lines: tables.time_lines,
            courses: cores::courses(&model),
            worst,
            windows,
        };
        let works = Works::of(&model, &order.functions);
        Report { analysis, works }
    }
}

impl Consumer for Analyzer {
    fn thread(&mut self, id: ThreadId, thread: &Thread) {
        self.machine.thread(id, thread);
    }

    fn events(&mut self, id: ThreadId, cpu: Option<u32>, events: &[Event]) {
        self.machine.events(id, cpu, events);
    }

    fn lost(&mut self, loss: &Loss, threads: &[ThreadId]) {
        self.machine.lost(loss, threads);
    }

    fn sample(
        &mut self,
        id: ThreadId,
        cpu: Option<u32>,
        time_ns: u64,
        weight: u64,
        stack: &[FunctionKey],
    ) {
        self.machine.sample(id, cpu, time_ns, weight, stack);
    }
}

/// Which row is which function of the result.
struct Order {
    /// Row by function.
    functions: Vec<u32>,
    /// Function by row; `u32::MAX` for rows without any call.
    of_row: Vec<u32>,
}

fn order(model: &Model) -> Order {
    let mut functions: Vec<u32> = (0..model.rows.len() as u32)
        .filter(|&row| {
            let row = &model.rows[row as usize];
            row.calls + row.cut > 0 || !row.contexts.is_empty()
        })
        .collect();
    functions.sort_by(|&a, &b| {
        let (a, b) = (&model.rows[a as usize], &model.rows[b as usize]);
        (a.dominated.cmp(&b.dominated))
            .then(b.self_corrected_ns.total_cmp(&a.self_corrected_ns))
            .then(b.self_ns.cmp(&a.self_ns))
            .then(a.name.cmp(&b.name))
    });
    let mut of_row = vec![u32::MAX; model.rows.len()];
    for (function, &row) in (0u32..).zip(&functions) {
        of_row[row as usize] = function;
    }
    Order { functions, of_row }
}

fn exclude(model: &Model) -> Vec<String> {
    let mut rows: Vec<&crate::model::Row> = model
        .rows
        .iter()
        .filter(|row| !row.own && row.calls > EXCLUDE_CALLS)
        .filter(|row| row.total_ns / row.calls.max(1) < EXCLUDE_NS)
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.calls));
    rows.into_iter().map(|row| row.name.clone()).collect()
}
