//! What an analysis finds, as plain data: the one vocabulary of tables, page, exports and diff.
//!
//! Everything is bounded, whatever the trace: see the `*_MAX` constants. Times (`at_ns`, `start_ns`
//! of a mark) are nanoseconds since [`Span::start_ns`], so that they fit a JavaScript number; only
//! that one field counts from the Unix epoch. Functions, contexts and threads are referred to by
//! their index in [`Analysis::functions`], [`Analysis::contexts`] and [`Analysis::threads`].
//!
//! A value that cannot be known is `None`, and [`Coverage::withheld`] says why. Nothing here computes.

use serde::{Deserialize, Serialize};

mod coverage;
mod difference;
mod findings;

pub use coverage::*;
pub use difference::*;
pub use findings::*;

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
    /// Buffers asked for: taken, but for requests that failed. DPDK's trace points are the same for both.
    pub taken: u64,
    /// Buffers given back.
    pub given: u64,
    /// Largest `taken - given` seen since the start; what was taken before is not in it. `None` where several threads
    /// take and give: in which order is not known so exactly.
    pub in_use_max: Option<i64>,
    /// Fills of a core's cache from the backend.
    pub refills: u64,
    /// Buffers per fill, median; `None` where unknown.
    pub refill_buffers: Option<u64>,
    /// Buffers taken between two fills, median; `None` below 8 fills.
    pub refill_interval: Option<f64>,
    /// Drains of a core's cache into the backend.
    pub drains: u64,
    /// Times there was none, where the trace tells; 0 says nothing.
    pub failures: u64,
    /// The first of these.
    pub first_failure_ns: Option<u64>,
    /// In use by time bucket: [at_ns, taken - given by its end], at most 512 points.
    pub in_use: Vec<[i64; 2]>,
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
    /// The thread that has the CPU which this thread left, or had it until this thread is on it.
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
