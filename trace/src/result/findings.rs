//! Where the time of workers went, what was lost, why, what detectors found and what to try, as plain data.

use serde::Serialize;

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
    /// Parts, largest first, at most [`PARTS_MAX`](super::PARTS_MAX).
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
    /// It polls, and waits for another thread: for a lock, or on a condition variable.
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
    /// Places to look at, at most [`MARKS_MAX`](super::MARKS_MAX).
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
