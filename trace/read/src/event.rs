//! One vocabulary for all producers.
//!
//! An [`Event`] is 24 bytes and carries no text: functions are keys, threads are numbers, and names are asked for once,
//! after the reading. Times are nanoseconds since the Unix epoch on the clock of the trace, offset applied, so that
//! traces of one host join on one axis.
//!
//! What must hold for every reader: events of one thread reach the consumer in the order in which they happened; a
//! thread is announced before its first event; a loss is reported once, at the place where events are missing, for
//! all threads that may have lost some.

/// A function as the trace names it: an address in the traced process, or a number the reader gave to a name.
///
/// Only the reader that made it can tell what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionKey(pub u64);

/// A thread of one trace, counted from 0 in the order of first appearance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadId(pub u32);

/// The thread of a [`ThreadId`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Process, 0 where the producer does not tell.
    pub pid: u32,
    /// Thread, 0 where the producer does not tell.
    pub tid: u32,
    /// Name of the thread as the kernel or the producer knows it.
    pub name: String,
}

/// What happened at one moment in one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds since the Unix epoch.
    pub time_ns: u64,
    /// What it was.
    pub kind: Kind,
}

/// What an [`Event`] tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A function was entered.
    Enter(FunctionKey),
    /// A function was left.
    Leave(FunctionKey),
    /// The innermost function was left; the producer does not say which (cyg_profile-fast). Sound only without loss.
    LeaveInnermost,
    /// One call to receive returned. `got` = 0 is an empty poll.
    Receive {
        /// Port number of the producer.
        port: u16,
        /// Queue of that port.
        queue: u16,
        /// Most frames it could have returned, 0 where unknown.
        asked: u16,
        /// Frames it returned.
        got: u16,
    },
    /// Receive calls that returned nothing, one after the other, written as one record at the end of the run.
    /// The time of the event is that end.
    EmptyRun {
        /// Port and queue; `None` where the producer does not tell them apart.
        queue: Option<(u16, u16)>,
        /// How many.
        polls: u32,
        /// From the first to the last of them, ns; saturates at 4.29 s.
        lasted_ns: u32,
    },
    /// One call to send returned.
    Send {
        /// Port number of the producer.
        port: u16,
        /// Queue of that port.
        queue: u16,
        /// Frames it was given, 0 where unknown (DPDK's `tx.burst` tells only what was taken).
        asked: u16,
        /// Frames it took; fewer than `asked` is backpressure.
        sent: u16,
    },
    /// Buffers were taken from a pool or given back.
    Pool {
        /// What was done.
        action: PoolAction,
        /// Which pool, counted by the reader.
        pool: u16,
        /// Buffers; for a failure those that were asked for.
        buffers: u32,
    },
    /// The thread left the CPU (kernel join).
    SwitchedOut {
        /// It could have gone on: it was preempted and did not wait for anything.
        runnable: bool,
    },
    /// The task of this name has the CPU that the thread has just left, or, at the time of its
    /// [`SwitchedIn`](Kind::SwitchedIn), had it until then (kernel join). The key is that of a name.
    TookOver(FunctionKey),
    /// The task of this name made the thread runnable (kernel join); without a name it was an interrupt.
    WokenBy(FunctionKey),
    /// The thread is on a CPU again (kernel join).
    SwitchedIn,
    /// An interrupt or softirq took the CPU from the thread (kernel join). The number is the vector; softirqs count
    /// from [`SOFTIRQ_BASE`], and a page fault is [`PAGE_FAULT`].
    InterruptIn(u32),
    /// ... and gave it back.
    InterruptOut(u32),
    /// The thread entered the kernel: system call number.
    SyscallIn(u32),
    /// What the system call that ends now returned; a negative number is an error.
    Returned(i32),
    /// ... and returned from it.
    SyscallOut(u32),
    /// A signal reached the thread; what follows until the handler returns is not the interrupted function's doing.
    Signal(u32),
    /// Packets were lost, by the count of the producer, since its last report.
    Dropped {
        /// Port number of the producer; `u16::MAX` where it is none's.
        port: u16,
        /// How many; more come in several events.
        packets: u32,
        /// The name of the reason.
        reason: FunctionKey,
    },
    /// A point that the analysis has no rule for; the reader can name it.
    Point {
        /// Number of the point, given by the reader.
        point: u32,
        /// Its first integer field, 0 without one.
        value: u64,
    },
}

/// Softirqs are interrupts with their vector plus this.
pub const SOFTIRQ_BASE: u32 = 1 << 16;
/// A page fault is an interrupt with this number.
pub const PAGE_FAULT: u32 = 1 << 17;

/// What was done with buffers of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolAction {
    /// The application took buffers (through the cache of its core, where there is one). Of DPDK it is an attempt: its
    /// event has no result.
    Get,
    /// The application gave buffers back.
    Put,
    /// The cache was filled from the backend (`rte_mempool_ops_dequeue_bulk`).
    Refill,
    /// The cache was drained into the backend (`rte_mempool_ops_enqueue_bulk`).
    Drain,
    /// Buffers were asked for and there were none.
    Failed,
}

/// Events that were not recorded, or not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Last moment known before the hole, ns since the epoch.
    pub from_ns: u64,
    /// First moment known after it.
    pub to_ns: u64,
    /// How many, where the producer counted them.
    pub events: Option<u64>,
    /// Where: file or stream, as a person would look for it.
    pub place: String,
}

/// A part of the input that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// File.
    pub place: String,
    /// Offset in it, bytes.
    pub offset: u64,
    /// What was found there, with its value, and what is left out because of it.
    pub what: String,
}

/// The producer of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Producer {
    /// LTTng-UST (CTF 1.8): cyg_profile, cyg_profile-fast, statedump.
    Lttng,
    /// DPDK's rte_trace (CTF 1.8).
    Dpdk,
    /// Our own tracer.
    Laneway,
    /// Chrome trace JSON.
    Chrome,
    /// `uftrace dump`.
    Uftrace,
    /// `perf script`: samples, not calls.
    Perf,
}

/// Takes the events of a trace as they are read.
///
/// Called from one thread. Slices are borrowed for the call.
pub trait Consumer {
    /// A thread is seen for the first time, or again under the same number if it changed its name.
    fn thread(&mut self, id: ThreadId, thread: &Thread);

    /// The next events of one thread, in time order, never empty. `cpu` is where they were recorded, if known.
    fn events(&mut self, id: ThreadId, cpu: Option<u32>, events: &[Event]);

    /// Events are missing here for the named threads: what is open in them cannot be trusted to be closed.
    fn lost(&mut self, loss: &Loss, threads: &[ThreadId]);

    /// A profiler found the thread in this stack, innermost function first; `weight` is what the sample stands for in
    /// the unit of the producer (`perf script`: its period). Only [`Producer::Perf`] tells samples; they are no calls.
    fn sample(
        &mut self,
        id: ThreadId,
        cpu: Option<u32>,
        time_ns: u64,
        weight: u64,
        stack: &[FunctionKey],
    ) {
        let _ = (id, cpu, time_ns, weight, stack);
    }
}
