//! Traces with a planted truth, made from a seed: a forwarding loop as a function tracer sees it.
//!
//! For tests of whatever draws conclusions from a trace: what is wrong with it is known, and so is that nothing else
//! is. The loop polls, allocates per packet, sends and frees, as testpmd does on net_tap; every
//! duration is noisy, arrivals are random, and the tracer costs what it is set to. [`Planted::new`] makes one
//! situation per fault, [`Planted::drawn`] as many as there are seeds.
#![forbid(unsafe_code)]

mod run;
mod setting;

use laneway_random::Random;
use laneway_trace::Name;
use laneway_trace_read::{Consumer, Event, FunctionKey, Loss, Thread, ThreadId};
use run::Run;
use setting::Setting;

/// What is wrong with a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: few packets, much idling, no loss.
    Healthy,
    /// One function gets slow every so often, at a fixed period.
    Period,
    /// The pool runs out of buffers.
    Depletion,
    /// The cache of the pool is filled from the backend again and again, at great cost.
    Cycle,
    /// Long silences; nothing tells why.
    Stall,
    /// Long silences, and the kernel tells that the thread was preempted.
    Preemption,
    /// Events are missing in several places.
    Loss,
    /// The tracer costs more than the work.
    Overhead,
    /// The CPU is slower at times, for everything.
    Contention,
    /// One of four workers gets most packets.
    Imbalance,
    /// Send takes less than it is given.
    Backpressure,
    /// Offered load exceeds the capacity of a worker that receives so many packets a call at most, at times or always.
    Backlog,
    /// One worker falls behind while others poll empty queues.
    Misplaced,
}

/// What looks unusual and is no fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Benign {
    /// Packets come just as many at once as one call takes; the worker keeps up.
    FullBursts,
    /// Packets come several calls' worth at once; the worker keeps up.
    Batches,
    /// One packet a call.
    OneByOne,
    /// Calls ask for few packets or for many.
    OtherSizes,
    /// The ring is full when the program starts.
    FullRing,
    /// All flows are on one queue, and its worker has time to spare.
    IdleQueue,
    /// A long silence in the first polls: pages, libraries and threads come up.
    SlowStart,
    /// All is slower at first: caches are cold.
    WarmUp,
    /// A little work every so often, by a clock.
    Housekeeping,
    /// The pool's cache is filled from the backend, cheaply, as it is meant to be.
    CheapFills,
    /// The worker sleeps when there is nothing.
    Sleeping,
    /// Nothing comes at all.
    Nothing,
}

/// A trace in memory, with its truth.
#[derive(Debug, Clone)]
pub struct Planted {
    /// What was planted.
    pub fault: Fault,
    /// Packets received.
    pub packets: u64,
    /// Calls that holes cut, and holes.
    pub cut: u64,
    /// Period planted, ns; 0 without one.
    pub period_ns: u64,
    /// Events that each hole is reported to have swallowed.
    missing_per_hole: u64,
    names: Vec<&'static str>,
    workers: Vec<WorkerTrace>,
}

/// Events of one thread, in pieces between holes.
#[derive(Debug, Clone)]
struct WorkerTrace {
    pieces: Vec<Vec<Event>>,
}

/// Draws of benign situations are others than those of faults.
const BENIGN: u64 = 1 << 63;
/// Epoch time of the first event.
const START_NS: u64 = 1_795_192_290_000_000_000;

impl Planted {
    /// A trace of about `polls` polls per worker with `fault`.
    pub fn new(fault: Fault, seed: u64, polls: u32) -> Self {
        let random = Random::seeded(seed ^ (fault as u64) << 32);
        Self::run(fault, &Setting::plain(fault, polls), random)
    }

    /// A trace with `fault`, all else by chance: program, costs, CPU, traffic, and how large the fault is, from
    /// just above the limit of its detector on. What is near the limit of another detector stays below it.
    pub fn drawn(fault: Fault, seed: u64) -> Self {
        let mut random = Random::seeded(!(seed ^ (fault as u64) << 32));
        let setting = Setting::drawn(fault, &mut random);
        Self::run(fault, &setting, random)
    }

    /// A healthy trace in an unusual situation, all else by chance.
    pub fn benign(benign: Benign, seed: u64) -> Self {
        let mut random = Random::seeded(!(seed ^ (benign as u64) << 32 ^ BENIGN));
        let setting = Setting::benign(benign, &mut random);
        Self::run(Fault::Healthy, &setting, random)
    }

    fn run(fault: Fault, setting: &Setting, mut random: Random) -> Self {
        let mut planted = Self {
            fault,
            packets: 0,
            cut: 0,
            period_ns: 0,
            missing_per_hole: setting.holes.map_or(0, |holes| holes.events),
            names: Vec::new(),
            workers: Vec::new(),
        };
        let mut until_ns = f64::INFINITY;
        for worker in 0..setting.workers {
            let names = std::mem::take(&mut planted.names);
            let mut run = Run::new(fault, setting.clone(), worker, random.draw(), names);
            run.until_ns = until_ns;
            run.work();
            if setting.arrivals[0].is_some() && worker == 0 {
                until_ns = run.now;
            }
            planted.packets += run.packets;
            planted.cut += run.cut;
            planted.period_ns = run.period_ns;
            planted.names = run.names;
            run.pieces.push(run.events);
            planted.workers.push(WorkerTrace { pieces: run.pieces });
        }
        planted
    }

    /// The situation of the founding report: 48.7 k calls of the loop in 1.56 s, 491 of them with packets, 3.1 k
    /// packets, no loss, a tracer that costs more than anything else, and stalls that nothing explains.
    pub fn founding_report(seed: u64) -> Self {
        let setting = Setting::plain(Fault::Overhead, 48_727);
        let mut run = Run::new(Fault::Overhead, setting, 0, seed, Vec::new());
        run.founding_report();
        let packets = run.packets;
        run.pieces.push(run.events);
        Self {
            fault: Fault::Overhead,
            packets,
            cut: 0,
            period_ns: 0,
            missing_per_hole: 0,
            names: run.names,
            workers: vec![WorkerTrace { pieces: run.pieces }],
        }
    }

    /// Gives all events to `consumer`, in batches.
    pub fn feed(&self, consumer: &mut dyn Consumer) {
        for (id, worker) in (0u32..).map(ThreadId).zip(&self.workers) {
            let name = format!("rte-worker-{}", id.0 + 1);
            consumer.thread(id, &Thread { pid: 100, tid: 101 + id.0, name });
            let mut before: Option<&Event> = None;
            for piece in &worker.pieces {
                if let (Some(before), Some(first)) = (before, piece.first()) {
                    let place = format!("planted/worker-{}", id.0);
                    let (from_ns, to_ns) = (before.time_ns, first.time_ns);
                    let events = Some(self.missing_per_hole);
                    consumer.lost(&Loss { from_ns, to_ns, events, place }, &[id]);
                }
                for batch in piece.chunks(1_000) {
                    consumer.events(id, Some(id.0), batch);
                }
                before = piece.last().or(before);
            }
        }
    }

    /// Name of a function of the trace.
    pub fn name(&self, key: FunctionKey) -> Name {
        let text = usize::try_from(key.0).ok().and_then(|at| self.names.get(at));
        Name { text: text.map_or("?", |text| text).to_owned(), known: text.is_some() }
    }

    /// Events in it.
    pub fn events(&self) -> usize {
        self.workers.iter().flat_map(|worker| &worker.pieces).map(Vec::len).sum()
    }
}
