//! What an analysis finds, as plain data: the one vocabulary of tables, page, exports and diff.
//!
//! Everything is bounded, whatever the trace: see the `*_MAX` constants. Times (`at_ns`, `start_ns`
//! of a mark) are nanoseconds since [`Span::start_ns`], so that they fit a JavaScript number; only
//! that one field counts from the Unix epoch. Functions, contexts and threads are referred to by
//! their index in [`Analysis::functions`], [`Analysis::contexts`] and [`Analysis::threads`].
//!
//! A value that cannot be known is `None`, and [`Coverage::withheld`] says why. Nothing here computes.

use serde::{Deserialize, Serialize};

mod difference;

pub use difference::*;

/// Schema of an [`Analysis`] as JSON.
pub const SCHEMA: &str = "laneway-trace-analysis/2";
/// Most functions with a row of their own; further ones share the row "(other functions)".
pub const FUNCTIONS_MAX: usize = 8_192;
/// Most calling contexts; deeper calls are then charged to the last context that exists.
pub const CONTEXTS_MAX: usize = 32_768;
/// Most threads that are analysed; events of further ones are counted, and stated among the limits of the
/// coverage.
pub const THREADS_MAX: usize = 4_096;
/// Threads with a [`TimeLine`]: the busiest.
pub const TIME_LINES_MAX: usize = 64;
/// Most buckets of a [`TimeLine`].
pub const TIME_BUCKETS_MAX: usize = 2_048;
/// Most functions named per bucket of a [`TimeLine`].
pub const TOP_FRAMES_MAX: usize = 3;
/// Most [`WorstCall`]s.
pub const WORST_MAX: usize = 32;
/// Most events in a [`Window`].
pub const WINDOW_EVENTS_MAX: usize = 512;
/// Most marks of a [`Finding`].
pub const MARKS_MAX: usize = 64;
/// Most damages listed; [`Coverage::damages_total`] has all.
pub const DAMAGES_MAX: usize = 32;
/// Most holes with a place of their own; [`Coverage::losses`] has all.
pub const HOLES_MAX: usize = 64;
/// Most workers with an [`Account`].
pub const ACCOUNTS_MAX: usize = 64;
/// Most parts of an [`Account`]; smaller ones are added up per kind under the detail "others".
pub const PARTS_MAX: usize = 48;
/// Threads with a [`Course`]: the busiest.
pub const COURSES_MAX: usize = 16;
/// Most buckets of a [`Course`].
pub const COURSE_BUCKETS_MAX: usize = 256;
/// Most contexts per bucket of a [`Course`]: those with most time.
pub const COURSE_CONTEXTS_MAX: usize = 6;
/// Most threads named per CPU in a [`CoreRow`]: those with most time there.
pub const CORE_THREADS_MAX: usize = 8;
/// Most [`Cause`]s.
pub const CAUSES_MAX: usize = 16;

/// Everything known about one trace.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Analysis {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// What was read, what is missing, and what is therefore withheld. Show it first.
    pub coverage: Coverage,
    /// What the tracer itself costs.
    pub calibration: Calibration,
    /// What is wrong, by packets lost and then by share of a worker's time; the first is to be reported first. Empty
    /// where nothing is.
    pub causes: Vec<Cause>,
    /// Where the time of each worker went, the busiest worker first.
    pub accounts: Vec<Account>,
    /// What the trace says of packets that were lost.
    pub losses: Losses,
    /// Threads, the busiest first: by time on the CPU in calls and polls, then by events.
    pub threads: Vec<ThreadRow>,
    /// How far the threads of the trace used each CPU, ascending by its number.
    pub cores: Vec<CoreRow>,
    /// Functions, by corrected self time, largest first; unranked ones last.
    pub functions: Vec<FunctionRow>,
    /// The calling-context tree, parents before children, over all threads.
    pub contexts: Vec<ContextRow>,
    /// Time by layer over all threads, one row per [`Layer`] in [`Layer::ALL`]'s order.
    pub layers: Vec<LayerRow>,
    /// Packets received, by events or counted by the calls a driver makes per packet.
    pub packets: Packets,
    /// Receive polls per thread, port and queue.
    pub polls: Vec<PollRow>,
    /// Send calls per thread, port and queue; empty where the producer does not tell.
    pub sends: Vec<SendRow>,
    /// Events that no rule gives a meaning, by name, the most frequent first.
    pub points: Vec<PointRow>,
    /// Buffer pools.
    pub pools: Vec<PoolRow>,
    /// One finding per detector, D1 to D12, whatever its state.
    pub findings: Vec<Finding>,
    /// Advice that may be given.
    pub advice: Vec<Advice>,
    /// Advice that was considered and is not given, with the reason.
    pub silent: Vec<SilentAdvice>,
    /// Names for the tracer's exclude list: over 100,000 calls of less than 10 us.
    pub exclude: Vec<String>,
    /// The same program without instrumentation, if its rate was given.
    pub control: Option<Control>,
    /// One per thread.
    pub time_lines: Vec<TimeLine>,
    /// In which contexts the busiest threads were, over the whole span.
    pub courses: Vec<Course>,
    /// Longest stretches in one function without any event, longest first.
    pub worst: Vec<WorstCall>,
    /// Events around the worst calls, bounded.
    pub windows: Vec<Window>,
}

/// What was read and what is missing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Coverage {
    /// The producers of the trace: "lttng", "dpdk", "laneway", "chrome", "uftrace", "perf"; several for a join.
    pub producers: Vec<String>,
    /// Inputs, as the user named them.
    pub inputs: Vec<String>,
    /// First and last event.
    pub span: Span,
    /// When the program's own events begin, and how long it records some, ns: the kernel's view begins before. Rates
    /// are of this part.
    pub recorded: [u64; 2],
    /// Events read.
    pub events: u64,
    /// Function entries among them.
    pub entries: u64,
    /// Function exits among them.
    pub exits: u64,
    /// Everything else: polls, pools, kernel events, points.
    pub points: u64,
    /// Events of the kernel join among `points`; without any, causes cannot be known.
    pub kernel_events: u64,
    /// Events the producer discarded or overwrote, as far as it counted them.
    pub discarded: u64,
    /// Holes in the trace; a hole of unknown size counts here only.
    pub losses: u64,
    /// Holes whose size the producer did not tell.
    pub losses_uncounted: u64,
    /// Where they are, in the order in which they were read, the first [`HOLES_MAX`].
    pub holes: Vec<HoleRow>,
    /// Calls seen whole.
    pub calls: u64,
    /// Calls of which a part is missing (a hole, or unwound by an exit further out): in totals, not in percentiles.
    pub cut: u64,
    /// `cut` / (`calls` + `cut`), 0 to 1.
    pub cut_share: f64,
    /// Calls still open at the end; in totals, not in percentiles.
    pub open: u64,
    /// Exits without an entry: of calls that began before the trace or in a hole.
    pub unmatched: u64,
    /// Exits that skipped open calls.
    pub mismatched: u64,
    /// Exits that could not be trusted, because the producer does not name the function and events are missing.
    pub unsound: u64,
    /// Events whose time lay before that of their predecessor in the thread.
    pub clock_backwards: u64,
    /// Functions without a name, shown by address or module offset.
    pub unresolved: u64,
    /// Functions charged to themselves because they run inside arbitrary others (signal handlers).
    pub asynchronous: Vec<String>,
    /// Threads read; those beyond [`THREADS_MAX`] have no tables.
    pub threads: u64,
    /// Parts that could not be read, the first [`DAMAGES_MAX`].
    pub damages: Vec<DamageRow>,
    /// All of them.
    pub damages_total: u64,
    /// What must be known of the producer, and limits that were reached, as sentences.
    pub limits: Vec<String>,
    /// What is withheld, and why.
    pub withheld: Vec<Withheld>,
}

/// The time a trace covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Span {
    /// First event, ns since the Unix epoch. All other times of an analysis count from here.
    pub start_ns: u64,
    /// From the first to the last event, ns.
    pub length_ns: u64,
}

/// A place where events are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct HoleRow {
    /// Last moment known before it.
    pub at_ns: u64,
    /// From there to the first moment known after it, ns.
    pub length_ns: u64,
    /// Events that are missing, where the producer counted them.
    pub events: Option<u64>,
    /// Thread, where it concerns only one.
    pub thread: Option<u32>,
}

/// A part of the input that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DamageRow {
    /// File.
    pub place: String,
    /// Offset in it, bytes.
    pub offset: u64,
    /// What was found there.
    pub what: String,
}

/// Something an analysis refuses to say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Withheld {
    /// What: "maxima", "periods", "percentiles", "causes of stalls", ...
    pub what: String,
    /// Why, with the figure.
    pub why: String,
}

/// Where the tracer's cost per call comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CalibrationSource {
    /// A null call was measured on the same host, core and tracer.
    Measured,
    /// Half of the calls of the shortest leaf take so long inside. The shortest gap between neighbouring calls, longer
    /// by as much as that is longer than the shortest leaf calls of all, is the outside.
    Estimated,
    /// Nothing to correct: the trace has no calls, or too few leaves.
    None,
}

/// What the tracer costs per call.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Calibration {
    /// Where the figures come from.
    pub source: CalibrationSource,
    /// Cost inside the interval of the called function, ns.
    pub inside_ns: f64,
    /// Cost in the caller, outside the called function's interval, ns.
    pub outside_ns: f64,
    /// A call costs so many ns more or less, inside and outside together, in 95 % of cases.
    pub uncertainty_ns: f64,
    /// Traced call time that is the tracer's, by this calibration, 0 to 1.
    pub overhead_share: f64,
}

/// A thread.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ThreadRow {
    /// Process, 0 where unknown.
    pub pid: u32,
    /// Thread, 0 where unknown.
    pub tid: u32,
    /// Name.
    pub name: String,
    /// CPUs it was recorded on, ascending, at most 16; empty where unknown.
    pub cpus: Vec<u32>,
    /// Events.
    pub events: u64,
    /// First event.
    pub first_ns: u64,
    /// Last event.
    pub last_ns: u64,
    /// Time with a call open (or between points, for a producer without calls), ns.
    pub traced_ns: u64,
    /// Time that went to empty polls, ns.
    pub idle_ns: u64,
    /// Off the CPU though it could have run (kernel join), ns.
    pub preempted_ns: u64,
    /// Off the CPU, waiting (kernel join), ns.
    pub waiting_ns: u64,
    /// Taken by interrupts and softirqs (kernel join), ns.
    pub interrupt_ns: u64,
    /// In system calls (kernel join), ns.
    pub syscall_ns: u64,
    /// Packets received in it.
    pub packets: u64,
    /// How long a packet was in it; `None` where no points tell.
    pub in_worker: Option<InWorker>,
}

/// How long packets were in a worker: from the return of the poll that found one to the next send of the thread.
///
/// All packets of a poll have the same time. Of a poll that is followed by another one before anything was sent,
/// nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct InWorker {
    /// Packets whose time is known.
    pub packets: u64,
    /// Half of them were in it at most so long, ns, to 3 %; given from 100 packets on.
    pub p50_ns: Option<u64>,
    /// 99 % ...; from 5,000 packets on.
    pub p99_ns: Option<u64>,
}

/// How far the threads of the trace used a CPU. Other threads of the machine are not in it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CoreRow {
    /// Its number; `None` for threads of which the producer does not tell where they ran.
    pub cpu: Option<u32>,
    /// Time that threads of the trace were on it, ns. Without kernel events the time between the events of a thread.
    pub used_ns: u64,
    /// ... as a share of the span, 0 to 1.
    pub share: f64,
    /// Of `used_ns`, in polls that found nothing, ns.
    pub idle_ns: u64,
    /// The threads with most of it, at most [`CORE_THREADS_MAX`]: [thread, ns].
    pub threads: Vec<[u64; 2]>,
}

/// In which contexts a thread was, over the whole span.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Course {
    /// Thread.
    pub thread: u32,
    /// Where the first bucket begins.
    pub start_ns: u64,
    /// Length of a bucket, ns.
    pub bucket_ns: u64,
    /// Per bucket, at most twice [`COURSE_BUCKETS_MAX`] of them: [context, ns in it without its callees], longest
    /// first, at most [`COURSE_CONTEXTS_MAX`].
    pub buckets: Vec<Vec<[u64; 2]>>,
}

/// Where time goes, coarsely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// The application's loop and what it calls of its own.
    Application,
    /// The device API above the driver.
    Ethdev,
    /// The driver.
    Driver,
    /// Buffers and their pools (`rte_mempool_*`, `rte_pktmbuf_*`).
    Mempool,
    /// System calls and their wrappers.
    Kernel,
    /// The tracer's own helpers.
    Tracer,
    /// Polls that found nothing, with all they called.
    Idle,
    /// Off the CPU: preempted or interrupted (kernel join), or in a wait of our own loop.
    OffCpu,
    /// No rule names it.
    Other,
}

/// Figures of a set of durations, ns. Only calls seen whole are in it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Durations {
    /// Calls.
    pub n: u64,
    /// Shortest.
    pub min_ns: Option<u64>,
    /// Mean.
    pub avg_ns: Option<f64>,
    /// Standard deviation (population).
    pub sd_ns: Option<f64>,
    /// Half are at most this long; given from 100 calls on, to 3 %.
    pub p50_ns: Option<u64>,
    /// 90 % ...; from 500 calls on.
    pub p90_ns: Option<u64>,
    /// 99 % ...; from 5,000 calls on.
    pub p99_ns: Option<u64>,
    /// 99.9 % ...; from 50,000 calls on.
    pub p999_ns: Option<u64>,
    /// Longest, exact. `None` also where maxima are withheld.
    pub max: Option<Longest>,
}

/// Events of one name that no rule gives a meaning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PointRow {
    /// As the producer calls it.
    pub name: String,
    /// How many, over all threads.
    pub count: u64,
    /// Threads in which it happened.
    pub threads: u64,
    /// When the first one was.
    pub first_ns: u64,
    /// When the last one was.
    pub last_ns: u64,
}

/// The longest call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Longest {
    /// How long, ns.
    pub duration_ns: u64,
    /// When it began.
    pub at_ns: u64,
    /// In which thread.
    pub thread: u32,
    /// In which context.
    pub context: u32,
}

/// One function over all contexts and threads.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FunctionRow {
    /// Name; `module+offset` or the address where unresolved.
    pub name: String,
    /// Layer by the rules of its producer.
    pub layer: Layer,
    /// Calls seen whole.
    pub calls: u64,
    /// Calls of which a part is missing, or still open at the end.
    pub cut: u64,
    /// Calls per packet received, where packets are known.
    pub calls_per_packet: Option<f64>,
    /// Time inside, callees included, recursion counted once, cut calls as far as seen, ns.
    pub total_ns: u64,
    /// Time inside, callees excluded, ns.
    pub self_ns: u64,
    /// `total_ns` less the tracer's cost, never below 0, ns.
    pub total_corrected_ns: f64,
    /// `self_ns` less the tracer's cost, never below 0, ns.
    pub self_corrected_ns: f64,
    /// Share of all traced self time, 0 to 1.
    pub share: f64,
    /// Share of all corrected self time, 0 to 1.
    pub share_corrected: f64,
    /// The correction is more than half of its self time: it has no rank, nothing is concluded from it.
    pub dominated: bool,
    /// Runs inside arbitrary functions; not charged to them.
    pub asynchronous: bool,
    /// Figures of its calls, raw.
    pub durations: Durations,
    /// [longest duration of the bucket in ns, calls], ascending, without empty buckets, at most 4 buckets per doubling.
    pub histogram: Vec<[u64; 2]>,
}

/// One calling context: a function as called along one path.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ContextRow {
    /// Index of the context that called it; `None` for a root. Always smaller than its own index.
    pub parent: Option<u32>,
    /// Index of its function.
    pub function: u32,
    /// Calls seen whole.
    pub calls: u64,
    /// Calls of which a part is missing, or still open.
    pub cut: u64,
    /// Callees included, ns. At least the sum over its children.
    pub total_ns: u64,
    /// Callees excluded, ns.
    pub self_ns: u64,
    /// Callees included, less the tracer's cost, ns.
    pub total_corrected_ns: f64,
    /// Callees excluded, less the tracer's cost, ns.
    pub self_corrected_ns: f64,
    /// Of `self_ns`, in polls that found nothing, ns.
    pub idle_ns: u64,
    /// Figures of its calls, raw.
    pub durations: Durations,
}

/// One layer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LayerRow {
    /// Which.
    pub layer: Layer,
    /// Self time of its functions, without what polls that found nothing cost, ns.
    pub self_ns: u64,
    /// The same, less the tracer's cost, ns.
    pub corrected_ns: f64,
    /// Share of traced time, 0 to 1.
    pub share: f64,
    /// Share of corrected time, 0 to 1.
    pub share_corrected: f64,
    /// Corrected, per packet received, ns.
    pub ns_per_packet: Option<f64>,
}

/// Packets, and how they are known.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Packets {
    /// Received; `None` where nothing tells.
    pub received: Option<u64>,
    /// Sent; `None` where nothing tells.
    pub sent: Option<u64>,
    /// Where the figure comes from, as a sentence.
    pub source: String,
    /// Received per second of what was recorded: [`Coverage::recorded`] without holes.
    pub per_second: Option<f64>,
}

/// Polls of one queue by one thread.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PollRow {
    /// Thread.
    pub thread: u32,
    /// Port; `None` where only calls were traced.
    pub port: Option<u16>,
    /// Queue of the port; `None` where only calls were traced.
    pub queue: Option<u16>,
    /// Polls.
    pub polls: u64,
    /// Polls that found nothing.
    pub empty: u64,
    /// Packets.
    pub packets: u64,
    /// Polls that found as many packets as they asked for.
    pub full: u64,
    /// Time in empty polls, ns.
    pub empty_ns: u64,
    /// Time in productive polls, as far as the producer tells, ns.
    pub productive_ns: u64,
    /// Packets per productive poll, mean.
    pub packets_per_productive: Option<f64>,
    /// Packets per productive poll, standard deviation (population).
    pub packets_sd: Option<f64>,
    /// Polls by packets found: [packets, polls], ascending, without zeros; sizes above 1,024 counted as 1,024. Empty
    /// where unknown.
    pub sizes: Vec<[u64; 2]>,
}

/// Send calls of one queue by one thread.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SendRow {
    /// Thread.
    pub thread: u32,
    /// Port.
    pub port: u16,
    /// Queue of the port.
    pub queue: u16,
    /// Calls.
    pub calls: u64,
    /// Packets handed over.
    pub asked: u64,
    /// Packets taken.
    pub sent: u64,
    /// Calls that took fewer than they were handed.
    pub short: u64,
    /// The first of these.
    pub first_short_ns: Option<u64>,
}

/// A buffer pool.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PoolRow {
    /// Number of the pool, as the reader counts; 0 where only calls were traced.
    pub pool: u16,
    /// Buffers taken.
    pub taken: u64,
    /// Buffers given back.
    pub given: u64,
    /// Largest `taken - given` seen since the start; what was taken before is not in it.
    pub in_use_max: i64,
    /// Fills of a core's cache from the backend.
    pub refills: u64,
    /// Buffers per fill, median; `None` where unknown.
    pub refill_buffers: Option<u64>,
    /// Buffers taken between two fills, median; `None` below 8 fills.
    pub refill_interval: Option<f64>,
    /// Drains of a core's cache into the backend.
    pub drains: u64,
    /// Times there was none.
    pub failures: u64,
    /// The first of these.
    pub first_failure_ns: Option<u64>,
    /// In use by time bucket: [at_ns, taken - given], at most 512 points.
    pub in_use: Vec<[i64; 2]>,
}

/// Where every nanosecond of a worker went.
///
/// A worker is a thread that polls for packets, or, where no poll is known, one that does most of the traced work. Its
/// span reaches from its first to its last event that is not the kernel's.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Account {
    /// Thread.
    pub thread: u32,
    /// Its name.
    pub name: String,
    /// What the parts add up to, exactly, ns.
    pub span_ns: u64,
    /// Packets received in it.
    pub packets: u64,
    /// Parts, largest first, at most [`PARTS_MAX`].
    pub parts: Vec<AccountPart>,
}

/// A part of a worker's time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AccountPart {
    /// What of.
    pub part: Part,
    /// Which of these: a layer, a queue, a program, a system call, a function; empty where there is nothing to tell
    /// apart.
    pub detail: String,
    /// How long, ns.
    pub ns: u64,
    /// Share of the span, 0 to 1.
    pub share: f64,
    /// The truth lies within so many ns of it, in 95 % of cases: what the tracer costs is known no better.
    pub uncertainty_ns: u64,
}

/// What a worker's time can go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Work on packets; the detail is the layer.
    Work,
    /// Polls that found nothing; the detail is the port and queue.
    EmptyPolls,
    /// Blocked until packets come.
    Waiting,
    /// Off the CPU though it could have run; the detail is the thread that ran instead.
    Preempted,
    /// In a system call, on the CPU; the detail is its name.
    SystemCall,
    /// Blocked in something else; the detail says in what, and which thread ended it.
    Blocked,
    /// In page faults.
    PageFaults,
    /// Taken by interrupts and softirqs; the detail is which.
    Interrupts,
    /// A function of the program that kept it from polling; the detail is its name.
    Function,
    /// The tracer itself.
    Tracer,
    /// Not known; the detail is what is.
    Unknown,
}

/// Packets that were lost, as far as the trace or the user tells.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Losses {
    /// Losses were counted by the recorder of the trace, or given by the user. If not, nothing is known of loss.
    pub known: bool,
    /// By place, most first.
    pub rows: Vec<LossRow>,
}

/// Packets lost in one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LossRow {
    /// Thread whose port it was; `None` for what the user gave.
    pub thread: Option<u32>,
    /// Port; `None` where it belongs to none.
    pub port: Option<u16>,
    /// Where, by the name of its counter.
    pub reason: String,
    /// Packets.
    pub packets: u64,
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cause {
    /// What.
    pub cause: CauseKind,
    /// Which: the counter of a loss, the preempting thread, the system call, the function; empty where there is nothing
    /// to tell apart.
    pub detail: String,
    /// Worker.
    pub thread: Option<u32>,
    /// Share of that worker's span that it takes, 0 to 1.
    pub share: f64,
    /// Packets lost by it; `None` where that is not known.
    pub lost_packets: Option<u64>,
    /// Its period, ns, if it has one that beats chance.
    pub period_ns: Option<u64>,
    /// Half of the 95 % interval of that, ns.
    pub period_half_ns: Option<u64>,
    /// Lower end of the 95 % interval of `share`.
    pub low: Option<f64>,
    /// Upper end of it.
    pub high: Option<f64>,
    /// How sure.
    pub confidence: Confidence,
    /// The whole in a sentence or two, with figures.
    pub sentence: String,
}

impl Cause {
    /// Its kind, and in parentheses which of these, where there are several.
    pub fn title(&self) -> String {
        match self.detail.as_str() {
            "" => self.cause.name().to_owned(),
            detail => format!("{} ({detail})", self.cause.name()),
        }
    }
}

/// What can be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CauseKind {
    /// Packets were lost; the detail is where.
    Loss,
    /// Offered load exceeds the capacity of the worker.
    Overload,
    /// Others run on the worker's CPU; the detail is which.
    Preempted,
    /// A system call; the detail is which.
    SystemCall,
    /// The worker sleeps in its own code.
    Sleep,
    /// It waits for a lock.
    Lock,
    /// Page faults.
    PageFaults,
    /// Interrupts and softirqs.
    Interrupts,
    /// A function keeps the loop from polling; the detail is its name.
    Housekeeping,
    /// One function dominates the work per packet; the detail is its name.
    SlowFunction,
    /// One worker or queue has more than the others.
    Imbalance,
    /// Sends are refused, or the queue of the way out is full.
    FarEnd,
    /// Taking and giving back memory.
    Allocation,
    /// The tracer costs too much for the rest to be known.
    Tracer,
    /// The start of the program.
    ColdStart,
}

/// What a detector says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The condition holds.
    Fired,
    /// It was looked for and does not hold.
    Silent,
    /// The trace has too many holes for it.
    Withheld,
    /// The trace does not hold what it needs.
    NotMeasurable,
}

/// How sure a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Something, but not enough to act on.
    Low,
    /// Worth an experiment.
    Medium,
    /// Counted, or beyond its null hypothesis at 1 %.
    High,
}

impl Confidence {
    /// Its name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Confidence::Low => "low",
            Confidence::Medium => "medium",
            Confidence::High => "high",
        }
    }
}

/// What one detector found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// "D1" to "D12".
    pub id: String,
    /// Its name, as in "empty polls".
    pub title: String,
    /// Its state.
    pub state: State,
    /// Its figure; `None` unless measured.
    pub value: Option<f64>,
    /// Unit of `value`, `low` and `high`: "share", "ratio", "ms", "per packet".
    pub unit: String,
    /// Lower end of the 95 % interval of `value`.
    pub low: Option<f64>,
    /// Upper end of it.
    pub high: Option<f64>,
    /// Where in the trace the evidence lies.
    pub span: Option<Mark>,
    /// How sure.
    pub confidence: Confidence,
    /// What was found, or why nothing can be concluded, in a sentence or two, with figures.
    pub sentence: String,
    /// Further figures, [name, value with unit].
    pub figures: Vec<[String; 2]>,
    /// Places to look at, at most [`MARKS_MAX`].
    pub marks: Vec<Mark>,
}

/// A place on the time line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mark {
    /// When it begins.
    pub at_ns: u64,
    /// How long it lasts, 0 for a moment, ns.
    pub length_ns: u64,
    /// Thread, where it belongs to one.
    pub thread: Option<u32>,
    /// What it is, in a few words.
    pub label: String,
}

/// Something worth trying.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// Name of the rule.
    pub rule: String,
    /// What to do.
    pub text: String,
    /// Why: the findings and their figures.
    pub because: String,
    /// What should change if it is right.
    pub expected: String,
    /// The command that tells whether it is.
    pub confirm: String,
}

/// Advice that is not given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SilentAdvice {
    /// Name of the rule.
    pub rule: String,
    /// What it would say.
    pub text: String,
    /// Why it does not.
    pub why: String,
}

/// The program without instrumentation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Control {
    /// Its rate, packets/s, as given by the user.
    pub per_second: f64,
    /// Its rate over the traced one: how much the instrumentation slows; `None` without packets in the trace.
    pub slow_down: Option<f64>,
}

/// How one thread spent its time, in buckets of equal width.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TimeLine {
    /// Thread.
    pub thread: u32,
    /// Start of the first bucket.
    pub start_ns: u64,
    /// Width of a bucket, ns.
    pub width_ns: u64,
    /// Buckets, at most [`TIME_BUCKETS_MAX`].
    pub buckets: Vec<TimeBucket>,
}

/// One bucket of a time line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TimeBucket {
    /// Share of the bucket per layer in [`Layer::ALL`]'s order, 0 to 1; the rest was not traced.
    pub shares: Vec<f32>,
    /// Functions with the most self time, most first, at most [`TOP_FRAMES_MAX`]: [function, self ns].
    pub top: Vec<[u64; 2]>,
    /// Events recorded.
    pub events: u32,
    /// Packets received.
    pub packets: u32,
}

/// A long stretch in one function without any event of its thread.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorstCall {
    /// Thread.
    pub thread: u32,
    /// Function that was innermost.
    pub function: u32,
    /// Its context.
    pub context: u32,
    /// When it began.
    pub at_ns: u64,
    /// How long, ns.
    pub duration_ns: u64,
    /// Functions open, outermost first, at most 64.
    pub stack: Vec<u32>,
    /// What the kernel join says of the time; "unattributed" without one.
    pub cause: String,
    /// Index of its window in [`Analysis::windows`].
    pub window: Option<u32>,
}

/// Every event of one thread for a short time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Window {
    /// Thread.
    pub thread: u32,
    /// Functions open before the first event, outermost first, at most 64.
    pub stack: Vec<u32>,
    /// Events in order, at most [`WINDOW_EVENTS_MAX`].
    pub events: Vec<WindowEvent>,
}

/// One event of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct WindowEvent {
    /// When.
    pub at_ns: u64,
    /// What.
    pub what: What,
    /// Function, for an entry or exit whose function has a row.
    pub function: Option<u32>,
    /// Packets received or sent, buffers, number of the system call, vector; else 0.
    pub value: u64,
}

/// Kind of a [`WindowEvent`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Function entered.
    Enter,
    /// Function left.
    Leave,
    /// A poll returned.
    Receive,
    /// Empty polls; `value` is how many.
    EmptyRun,
    /// A send returned.
    Send,
    /// A pool was used.
    Pool,
    /// Off the CPU; `value` is 1 if it could have run.
    SwitchedOut,
    /// On a CPU again.
    SwitchedIn,
    /// Interrupt or softirq begins.
    InterruptIn,
    /// ... ends.
    InterruptOut,
    /// System call begins.
    SyscallIn,
    /// ... ends.
    SyscallOut,
    /// The thread that has the CPU which this thread left.
    TookOver,
    /// Another thread made the thread runnable.
    WokenBy,
    /// What the system call that ends returned; `value` without its sign.
    Returned,
    /// Packets were lost; `value` is how many.
    Dropped,
    /// A signal arrived.
    Signal,
    /// Anything else.
    Point,
}

impl Part {
    /// Every part, in the order of tables.
    pub const ALL: [Self; 11] = [
        Self::Work,
        Self::EmptyPolls,
        Self::Waiting,
        Self::Preempted,
        Self::SystemCall,
        Self::Blocked,
        Self::PageFaults,
        Self::Interrupts,
        Self::Function,
        Self::Tracer,
        Self::Unknown,
    ];

    /// As tables and pages call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::EmptyPolls => "empty polls",
            Self::Waiting => "waiting for packets",
            Self::Preempted => "preempted",
            Self::SystemCall => "system call",
            Self::Blocked => "blocked",
            Self::PageFaults => "page faults",
            Self::Interrupts => "interrupts",
            Self::Function => "function",
            Self::Tracer => "tracer itself",
            Self::Unknown => "unknown",
        }
    }
}

impl CauseKind {
    /// As tables and pages call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loss => "packets were lost",
            Self::Overload => "overload",
            Self::Preempted => "preempted",
            Self::SystemCall => "system call",
            Self::Sleep => "sleep",
            Self::Lock => "lock",
            Self::PageFaults => "page faults",
            Self::Interrupts => "interrupts",
            Self::Housekeeping => "housekeeping",
            Self::SlowFunction => "slow function",
            Self::Imbalance => "imbalance",
            Self::FarEnd => "far end",
            Self::Allocation => "allocation",
            Self::Tracer => "tracer",
            Self::ColdStart => "cold start",
        }
    }
}

impl Layer {
    /// Every layer, in the order of tables and of [`TimeBucket::shares`].
    pub const ALL: [Self; 9] = [
        Self::Application,
        Self::Ethdev,
        Self::Driver,
        Self::Mempool,
        Self::Kernel,
        Self::Tracer,
        Self::Idle,
        Self::OffCpu,
        Self::Other,
    ];

    /// As tables and pages call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Application => "application loop",
            Self::Ethdev => "ethdev API",
            Self::Driver => "driver",
            Self::Mempool => "mempool and mbuf",
            Self::Kernel => "kernel crossing",
            Self::Tracer => "tracer itself",
            Self::Idle => "idle polling",
            Self::OffCpu => "off the CPU",
            Self::Other => "other",
        }
    }

    /// Its place in [`Layer::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}
