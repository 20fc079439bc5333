//! From a trace to a [`Report`]: reading, then everything that is computed once.
//!
//! [`analyze`] is the whole way; [`Analyzer`] is the same for events that come from elsewhere (tests, a
//! live source). Memory is bounded by the limits of the tables, not by the length of the trace.

use std::collections::BTreeMap;
use std::sync::Arc;

use laneway_trace_read::{
    Consumer, Damage, Event, FunctionKey, Kind, Loss, Producer, ReadError, Symbols, Thread,
    ThreadId, Trace,
};

use crate::detect::{self, CUT_SHARE_MAX, Case, cause, cause_name};
use crate::difference::work::Works;
use crate::histogram::Histogram;
use crate::machine::{Machine, Own};
use crate::model::{Context, Model, Name};
use crate::only::{Only, Within};
use crate::result::*;
use crate::rules::Rules;
use crate::series::OTHERS;
use crate::worst::{Captured, Join};
use crate::{account, advice, blocks, causes, cores};

/// Calls and mean duration beyond which a function is proposed for the exclude list (TAU's rule).
const EXCLUDE_CALLS: u64 = 100_000;
const EXCLUDE_NS: u64 = 10_000;
/// Points of a pool's course in a result.
const POOL_POINTS_MAX: usize = 512;

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
        self.machine.keys[Own::ALL.len()..].to_vec()
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

fn coverage(model: &Model, source: &Source) -> Coverage {
    let counts = &model.counts;
    let damages = source.damages.iter().take(DAMAGES_MAX);
    let rows = || model.rows.iter().filter(|row| row.calls + row.cut > 0);
    let mut producers: Vec<String> =
        source.producers.iter().map(|&producer| producer_name(producer).to_owned()).collect();
    producers.dedup();
    Coverage {
        producers,
        inputs: source.inputs.clone(),
        span: model.span,
        recorded: [model.since(model.recorded.start_ns), model.recorded.length_ns],
        events: counts.events,
        entries: counts.entries,
        exits: counts.exits,
        points: counts.events - counts.entries - counts.exits,
        kernel_events: counts.kernel,
        discarded: counts.discarded,
        losses: counts.losses,
        losses_uncounted: counts.losses_uncounted,
        holes: holes(model),
        calls: model.calls(),
        cut: counts.cut,
        cut_share: model.cut_share(),
        open: counts.open,
        unmatched: counts.unmatched,
        mismatched: counts.mismatched,
        unsound: counts.unsound,
        clock_backwards: counts.clock_backwards,
        unresolved: rows().filter(|row| !row.known).count() as u64,
        asynchronous: rows().filter(|row| row.asynchronous).map(|row| row.name.clone()).collect(),
        threads: counts.threads,
        damages: damages
            .map(|damage| DamageRow {
                place: damage.place.clone(),
                offset: damage.offset,
                what: damage.what.clone(),
            })
            .collect(),
        damages_total: source.damages.len() as u64 + source.damages_more,
        limits: limits(model, source),
        withheld: withheld(model),
    }
}

fn holes(model: &Model) -> Vec<HoleRow> {
    let counts = &model.counts;
    let holes = counts.holes.iter().zip(&counts.hole_details);
    let row = |(&(from_ns, to_ns), &(events, thread)): (&(u64, u64), &_)| HoleRow {
        at_ns: model.since(from_ns),
        length_ns: to_ns.saturating_sub(from_ns.max(model.span.start_ns)),
        events,
        thread,
    };
    holes.map(row).collect()
}

/// What such a trace cannot say, and why.
fn withheld(model: &Model) -> Vec<Withheld> {
    let counts = &model.counts;
    let cut_share = model.cut_share();
    let mut withheld = Vec::new();
    let mut withhold = |what: &str, why: String| {
        withheld.push(Withheld { what: what.to_owned(), why });
    };
    if cut_share > CUT_SHARE_MAX {
        let why = format!("{:.2} % of the calls are cut, more than 0.1 %", 100.0 * cut_share);
        withhold("maxima, stalls and periods", why);
    }
    if counts.unsound > 0 {
        withhold(
            "calls after a hole",
            format!("{} exits do not name their function and events are missing", counts.unsound),
        );
    }
    if counts.kernel == 0 {
        withhold("causes of stalls", "no kernel events were recorded".to_owned());
    } else if model.states.iter().all(|state| state.kernel_ns[Join::PageFault as usize] == 0) {
        let why =
            "the kernel's part has none, so it is that of the functions that touched the memory";
        withhold("time in page faults", why.to_owned());
    }
    if counts.samples > 0 {
        let why = format!(
            "{} samples of a profiler: times are their weights, in its unit, not durations",
            counts.samples
        );
        withhold("calls, durations and the time line", why);
    }
    if model.packets.received.is_none() {
        withhold("figures per packet", model.packets.source.clone());
    }
    withheld
}

/// Where a bound of the analysis was reached, behind what the reader noted.
fn limits(model: &Model, source: &Source) -> Vec<String> {
    let counts = &model.counts;
    let mut limits = source.notes.clone();
    let mut limit = |reached: u64, what: String| {
        if reached > 0 {
            limits.push(what);
        }
    };
    let refused = counts.functions_refused;
    limit(
        refused,
        format!("{refused} calls of functions beyond the first {FUNCTIONS_MAX} share one row"),
    );
    let refused = model.refused_contexts;
    limit(
        refused,
        format!(
            "{refused} calls found no room among {CONTEXTS_MAX} contexts and count for their caller"
        ),
    );
    let threads = counts.threads.saturating_sub(THREADS_MAX as u64);
    limit(
        threads,
        format!(
            "{threads} threads beyond the first {THREADS_MAX}, with {} of {} events, are counted, not analysed",
            counts.events_refused, counts.events
        ),
    );
    let jumps = counts.clock_jumps;
    limit(
        jumps,
        format!(
            "{jumps} time stamps lie more than 104 days from the first one, which no clock that is right does: \
             each such event counts at the time of the event before"
        ),
    );
    limit(counts.too_deep, format!("{} calls are deeper than 1,024", counts.too_deep));
    let points: u64 = model.states.iter().map(|state| state.points.refused).sum();
    limit(
        points,
        format!("{points} polls or sends are of queues beyond the first 256 of a thread"),
    );
    let pools = model.pools.refused;
    limit(pools, format!("{pools} pool events are of pools beyond the first 64"));
    limits
}

const fn producer_name(producer: Producer) -> &'static str {
    match producer {
        Producer::Lttng => "lttng",
        Producer::Dpdk => "dpdk",
        Producer::Laneway => "laneway",
        Producer::Chrome => "chrome",
        Producer::Uftrace => "uftrace",
        Producer::Perf => "perf",
    }
}

/// Turns the model into rows of a result.
struct Writer<'a> {
    model: &'a Model,
    order: &'a Order,
    /// Maxima are reported: few enough calls are cut.
    maxima: bool,
}

/// The large ones.
struct Tables {
    functions: Vec<FunctionRow>,
    contexts: Vec<ContextRow>,
    time_lines: Vec<TimeLine>,
}

impl Writer<'_> {
    fn tables(&self) -> Tables {
        Tables {
            functions: self.functions(),
            contexts: self.contexts(),
            time_lines: self.time_lines(),
        }
    }

    fn function(&self, row: u32) -> u32 {
        self.order.of_row[row as usize]
    }

    fn durations(&self, contexts: &[(u32, &Context)], histogram: &Histogram) -> Durations {
        let n: u64 = contexts.iter().map(|(_, context)| context.calls).sum();
        let (mut whole, mut squares, mut min) = (0.0, 0.0, u64::MAX);
        let mut longest: Option<Longest> = None;
        for (at, context) in contexts.iter().filter(|(_, context)| context.calls > 0) {
            whole += context.whole_ns as f64;
            squares += context.squares;
            min = min.min(context.min_ns);
            if longest.is_none_or(|longest| context.max_ns > longest.duration_ns) {
                longest = Some(Longest {
                    duration_ns: context.max_ns,
                    at_ns: self.model.since(context.max_at_ns),
                    thread: context.max_thread,
                    context: *at,
                });
            }
        }
        let mean = (n > 0).then(|| whole / n as f64);
        let [p50_ns, p90_ns, p99_ns, p999_ns] = histogram.percentiles([0.5, 0.9, 0.99, 0.999]);
        Durations {
            n,
            min_ns: (n > 0).then_some(min),
            avg_ns: mean,
            sd_ns: mean.map(|mean| (squares / n as f64 - mean * mean).max(0.0).sqrt()),
            p50_ns,
            p90_ns,
            p99_ns,
            p999_ns,
            max: longest.filter(|_| self.maxima),
        }
    }

    fn functions(&self) -> Vec<FunctionRow> {
        let model = self.model;
        let traced = (model.traced_ns() as f64).max(1.0);
        let corrected: f64 = model.rows.iter().map(|row| row.self_corrected_ns).sum();
        let packets = model.packets.received.filter(|&packets| packets > 0);
        let rows = self.order.functions.iter().map(|&row| &model.rows[row as usize]);
        rows.map(|row| {
            let contexts: Vec<(u32, &Context)> =
                row.contexts.iter().map(|&at| (at, &model.contexts[at as usize])).collect();
            // Where most of its time is, not idle time: that is how often it was called in vain.
            let mut best = (Layer::Other, -1.0);
            for (_, context) in &contexts {
                if context.self_ns as f64 > best.1 {
                    best = (context.layer, context.self_ns as f64);
                }
            }
            FunctionRow {
                name: row.name.clone(),
                layer: best.0,
                calls: row.calls,
                cut: row.cut,
                calls_per_packet: packets.map(|packets| row.calls as f64 / packets as f64),
                total_ns: row.total_ns,
                self_ns: row.self_ns,
                total_corrected_ns: row.total_corrected_ns,
                self_corrected_ns: row.self_corrected_ns,
                share: row.self_ns as f64 / traced,
                share_corrected: row.self_corrected_ns / corrected.max(1.0),
                dominated: row.dominated,
                asynchronous: row.asynchronous,
                durations: self.durations(&contexts, &row.histogram),
                histogram: row.histogram.coarse(),
            }
        })
        .collect()
    }

    fn contexts(&self) -> Vec<ContextRow> {
        let contexts = (0u32..).zip(&self.model.contexts);
        contexts
            .map(|(at, context)| ContextRow {
                parent: context.parent,
                function: self.function(context.row),
                calls: context.calls,
                cut: context.cut,
                total_ns: context.total_ns,
                self_ns: context.self_ns,
                total_corrected_ns: context.total_corrected_ns,
                self_corrected_ns: context.self_corrected_ns,
                idle_ns: context.idle_ns,
                durations: self.durations(&[(at, context)], &context.histogram),
            })
            .collect()
    }

    fn threads(&self) -> Vec<ThreadRow> {
        let model = self.model;
        let states = model.states.iter().zip(&model.timed);
        states
            .map(|(state, timed)| {
                let (mut traced, mut idle, mut packets) = (0, 0.0, 0.0);
                for cell in timed.buckets.iter().flat_map(|bucket| &bucket.cells) {
                    traced += cell.self_ns;
                    if cell.function != OTHERS {
                        let row = &model.rows[cell.function as usize];
                        idle += cell.self_ns as f64 * row.layer_shares[Layer::Idle.index()];
                        packets += f64::from(cell.calls) * row.packet_share;
                    }
                }
                let polled: u64 = state.points.polls.iter().map(|row| row.packets).sum();
                let [preempted_ns, waiting_ns, interrupt_ns, syscall_ns, _] = state.kernel_ns;
                let stays = &state.points.stays;
                let [p50_ns, p99_ns] = stays.percentiles([0.5, 0.99]);
                let timed = stays.total();
                ThreadRow {
                    pid: state.thread.pid,
                    tid: state.thread.tid,
                    name: state.thread.name.clone(),
                    cpus: state.cpus.clone(),
                    events: state.events,
                    first_ns: model.since(state.first_ns.min(state.last_ns)),
                    last_ns: model.since(state.last_ns),
                    traced_ns: traced,
                    idle_ns: idle as u64,
                    preempted_ns,
                    waiting_ns,
                    interrupt_ns,
                    syscall_ns,
                    packets: if model.counts.receives > 0 {
                        polled
                    } else {
                        packets.round() as u64
                    },
                    in_worker: (timed > 0).then_some(InWorker { packets: timed, p50_ns, p99_ns }),
                }
            })
            .collect()
    }

    fn layers(&self) -> Vec<LayerRow> {
        let model = self.model;
        let figures = Layer::ALL.map(|layer| (layer, model.layer_ns(layer)));
        let traced: u64 = figures.iter().map(|(_, (raw, _))| raw).sum();
        let corrected: f64 = figures.iter().map(|(_, (_, corrected))| corrected).sum();
        let packets = model.packets.received.filter(|&packets| packets > 0);
        figures
            .iter()
            .map(|&(layer, (self_ns, corrected_ns))| LayerRow {
                layer,
                self_ns,
                corrected_ns,
                share: self_ns as f64 / traced.max(1) as f64,
                share_corrected: corrected_ns / corrected.max(1.0),
                ns_per_packet: packets.map(|packets| corrected_ns / packets as f64),
            })
            .collect()
    }

    fn polls(&self) -> Vec<PollRow> {
        let model = self.model;
        let mut rows = Vec::new();
        for (thread, state) in (0u32..).zip(&model.states) {
            for row in &state.points.polls {
                let productive = row.polls - row.empty;
                let mean = row.packets as f64 / productive.max(1) as f64;
                let variance = row.squares as f64 / productive.max(1) as f64 - mean * mean;
                rows.push(PollRow {
                    thread,
                    port: row.queue.map(|queue| queue.0),
                    queue: row.queue.map(|queue| queue.1),
                    polls: row.polls,
                    empty: row.empty,
                    packets: row.packets,
                    full: row.full,
                    empty_ns: row.empty_ns,
                    productive_ns: row.productive_ns,
                    packets_per_productive: (productive > 0).then_some(mean),
                    packets_sd: (productive > 0).then(|| variance.max(0.0).sqrt()),
                    sizes: (0u64..)
                        .zip(&row.sizes)
                        .filter(|&(_, &polls)| polls > 0)
                        .map(|(size, &polls)| [size, polls])
                        .collect(),
                });
            }
        }
        if rows.is_empty() {
            let received = model.packets.received;
            rows.extend(model.polls.iter().map(|row| {
                let productive = row.polls - row.empty;
                let packets = if model.polls.len() == 1 { received } else { None };
                PollRow {
                    thread: model.contexts[row.context as usize].max_thread,
                    port: None,
                    queue: None,
                    polls: row.polls,
                    empty: row.empty,
                    packets: packets.unwrap_or(0),
                    full: 0,
                    empty_ns: row.empty_ns,
                    productive_ns: row.productive_ns,
                    packets_per_productive: packets
                        .filter(|_| productive > 0)
                        .map(|packets| packets as f64 / productive as f64),
                    packets_sd: None,
                    sizes: Vec::new(),
                }
            }));
        }
        rows
    }

    fn sends(&self) -> Vec<SendRow> {
        let states = (0u32..).zip(&self.model.states);
        states
            .flat_map(|(thread, state)| {
                state.points.sends.iter().map(move |row| SendRow {
                    thread,
                    port: row.queue.0,
                    queue: row.queue.1,
                    calls: row.calls,
                    asked: row.asked,
                    sent: row.sent,
                    short: row.short,
                    first_short_ns: row.first_short_ns.map(|at| self.model.since(at)),
                })
            })
            .collect()
    }

    fn pools(&self) -> Vec<PoolRow> {
        let pools = self.model.pools.pools.iter();
        pools
            .map(|pool| {
                let mut buffers = pool.refill_buffers.clone();
                buffers.sort_unstable();
                let mut intervals: Vec<u64> =
                    pool.intervals.iter().map(|&(taken, _)| taken).collect();
                intervals.sort_unstable();
                let step = pool.course.len().div_ceil(POOL_POINTS_MAX).max(1);
                PoolRow {
                    pool: pool.pool,
                    taken: pool.taken,
                    given: pool.given,
                    in_use_max: pool.in_use_max,
                    refills: pool.refills,
                    refill_buffers: buffers.get(buffers.len() / 2).map(|&n| u64::from(n)),
                    refill_interval: (intervals.len() >= 8)
                        .then(|| intervals[intervals.len() / 2] as f64),
                    drains: pool.drains,
                    failures: pool.failures,
                    first_failure_ns: pool.first_failure_ns.map(|at| self.model.since(at)),
                    in_use: pool
                        .course
                        .iter()
                        .step_by(step)
                        .map(|&(at, in_use)| [self.model.since(at) as i64, in_use])
                        .collect(),
                }
            })
            .collect()
    }

    fn points(&self, names: &[String]) -> Vec<PointRow> {
        let mut rows: BTreeMap<u32, PointRow> = BTreeMap::new();
        let all = self.model.states.iter().flat_map(|state| &state.points.others);
        for (&point, other) in all {
            let name = || match names.get(point as usize) {
                Some(name) => name.clone(),
                None => format!("point {point}"),
            };
            let (first_ns, last_ns) =
                (self.model.since(other.first_ns), self.model.since(other.last_ns));
            let row = rows.entry(point).or_insert_with(|| PointRow {
                name: name(),
                count: 0,
                threads: 0,
                first_ns,
                last_ns,
            });
            row.count += other.count;
            row.threads += 1;
            row.first_ns = row.first_ns.min(first_ns);
            row.last_ns = row.last_ns.max(last_ns);
        }
        let mut rows: Vec<PointRow> = rows.into_values().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.count));
        rows
    }

    fn time_lines(&self) -> Vec<TimeLine> {
        let model = self.model;
        let threads = (0u32..).zip(&model.timed).take(TIME_LINES_MAX);
        threads
            .map(|(thread, timed)| {
                let timed = timed.reduced(TIME_BUCKETS_MAX);
                let buckets = timed
                    .buckets
                    .iter()
                    .map(|bucket| {
                        let mut shares = [0.0; Layer::ALL.len()];
                        let mut top: Vec<[u64; 2]> = Vec::new();
                        let mut packets = f64::from(bucket.packets);
                        for cell in &bucket.cells {
                            let part = cell.self_ns as f64 / timed.width_ns as f64;
                            if cell.function == OTHERS {
                                shares[Layer::Other.index()] += part;
                                continue;
                            }
                            let row = &model.rows[cell.function as usize];
                            for (share, of_row) in shares.iter_mut().zip(row.layer_shares) {
                                *share += part * of_row;
                            }
                            packets += f64::from(cell.calls) * row.packet_share;
                            top.push([u64::from(self.function(cell.function)), cell.self_ns]);
                        }
                        top.sort_by_key(|entry| std::cmp::Reverse(entry[1]));
                        top.truncate(TOP_FRAMES_MAX);
                        TimeBucket {
                            shares: shares.iter().map(|&share| share as f32).collect(),
                            top,
                            events: bucket.events,
                            packets: packets.round() as u32,
                        }
                    })
                    .collect();
                TimeLine {
                    thread,
                    start_ns: model.since(timed.start_ns),
                    width_ns: timed.width_ns,
                    buckets,
                }
            })
            .collect()
    }

    fn worst(&self) -> (Vec<WorstCall>, Vec<Window>) {
        let model = self.model;
        if !self.maxima {
            return (Vec::new(), Vec::new());
        }
        let mut silences: Vec<(u32, &crate::worst::Silence)> = (0u32..)
            .zip(&model.states)
            .flat_map(|(thread, state)| state.worst.silences.iter().map(move |one| (thread, one)))
            .collect();
        silences.sort_by_key(|(_, silence)| std::cmp::Reverse(silence.length_ns));
        silences.truncate(WORST_MAX);
        let mut windows = Vec::new();
        let worst = silences
            .into_iter()
            .map(|(thread, silence)| {
                let stack: Vec<u32> = silence
                    .stack
                    .iter()
                    .map(|&number| self.function(model.row_of[number as usize]))
                    .collect();
                let window = silence.window.as_ref().map(|captured| {
                    windows.push(self.window(thread, &stack, captured));
                    windows.len() as u32 - 1
                });
                WorstCall {
                    thread,
                    function: self.function(model.row_of[silence.function as usize]),
                    context: silence.node,
                    at_ns: model.since(silence.at_ns),
                    duration_ns: silence.length_ns,
                    stack,
                    cause: cause_name(cause(silence)).to_owned(),
                    window,
                }
            })
            .collect();
        (worst, windows)
    }

    fn window(&self, thread: u32, stack: &[u32], captured: &Captured) -> Window {
        // A function that was left out of the table, because no call of it was counted, has no number.
        let is_listed = |function: &u32| (*function as usize) < self.order.functions.len();
        let of_key = |key: FunctionKey| {
            self.model.keys.get(&key).map(|&row| self.function(row)).filter(is_listed)
        };
        let mut open = stack[..captured.kept.min(stack.len())].to_vec();
        open.extend(captured.open.iter().filter_map(|&key| of_key(key)));
        // A window of a thread without calls has the name of its own pseudo call as stack.
        let own: Vec<&str> = Own::ALL.iter().map(|own| own.name()).collect();
        open.retain(|&function| {
            let row = self.order.functions.get(function as usize);
            row.is_some_and(|&row| !own.contains(&self.model.rows[row as usize].name.as_str()))
        });
        let events = captured.events.iter().map(|event| {
            let (what, function, value) = match event.kind {
                Kind::Enter(key) => (What::Enter, of_key(key), 0),
                Kind::Leave(key) => (What::Leave, of_key(key), 0),
                Kind::LeaveInnermost => (What::Leave, None, 0),
                Kind::Receive { got, .. } => (What::Receive, None, u64::from(got)),
                Kind::EmptyRun { polls, .. } => (What::EmptyRun, None, u64::from(polls)),
                Kind::Send { sent, .. } => (What::Send, None, u64::from(sent)),
                Kind::Pool { buffers, .. } => (What::Pool, None, u64::from(buffers)),
                Kind::SwitchedOut { runnable } => (What::SwitchedOut, None, u64::from(runnable)),
                Kind::SwitchedIn => (What::SwitchedIn, None, 0),
                Kind::InterruptIn(vector) => (What::InterruptIn, None, u64::from(vector)),
                Kind::InterruptOut(vector) => (What::InterruptOut, None, u64::from(vector)),
                Kind::SyscallIn(call) => (What::SyscallIn, None, u64::from(call)),
                Kind::SyscallOut(call) => (What::SyscallOut, None, u64::from(call)),
                Kind::Signal(signal) => (What::Signal, None, u64::from(signal)),
                Kind::TookOver(_) => (What::TookOver, None, 0),
                Kind::WokenBy(_) => (What::WokenBy, None, 0),
                Kind::Returned(value) => (What::Returned, None, value.unsigned_abs().into()),
                Kind::Dropped { packets, .. } => (What::Dropped, None, packets.into()),
                Kind::Point { value, .. } => (What::Point, None, value),
            };
            WindowEvent { at_ns: self.model.since(event.time_ns), what, function, value }
        });
        Window { thread, stack: open, events: events.collect() }
    }
}
