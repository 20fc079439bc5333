//! What was read, what is missing, and what the tracer costs, as plain data.

use serde::Serialize;

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
