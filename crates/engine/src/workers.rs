//! Several workers: one thread, one CPU, one lane and one app each, ended together.
//!
//! The caller's closure does in each thread what it would do for a single worker: open the lane,
//! make the app, run. So lane and app never cross a thread, and state is sharded by what spreads
//! frames over the lanes (fan-out, queues). What the workers share is what the closure borrows, the
//! flag that ends them, and the gate in front of the first frame; nothing is shared per frame.
//!
//! Assumes that the caller's thread stands in the network namespace of the interfaces: threads begin
//! where they are started. What must always hold: when [`Workers::run`] returns, every thread has
//! ended; a worker that fails or panics ends the others within
//! [`BLOCK_NS_MAX`](crate::BLOCK_NS_MAX) plus the turn they are in, and a panic goes on in the caller.
//! A worker that ends for another reason (its app wanted to, nothing will come) ends alone. What it
//! does not do: it steers no frame, and catches no signal.

use crate::{Control, RunFailed, RunReport, Stop, Watch, pin_to_cpu};
use laneway_core::{Counters, LaneError};
use laneway_tracer::TraceSlot;
use serde::Serialize;
use std::{
    any::Any,
    fmt,
    panic::resume_unwind,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

/// The most workers of one run: what a lane's queues and the kernel's fan-out groups are good for.
pub const WORKERS_MAX: usize = 64;

/// One worker's place among the others, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct WorkerId(pub usize);

/// What each worker does, on its thread.
pub type Work<'a> = &'a (dyn Fn(&Worker<'_>) -> Result<RunReport, WorkerFailed> + Sync);

/// What a worker's closure is given.
#[derive(Debug)]
pub struct Worker<'a> {
    /// Which worker it is.
    pub id: WorkerId,
    /// The CPU that its thread is pinned to.
    pub cpu: usize,
    /// What ends it and looks at it; to be given to the loop.
    pub control: Control,
    gate: &'a Gate,
}

impl Worker<'_> {
    /// To be called when this worker's lane is open: returns when every worker's is, so that traffic
    /// is spread over all of them from the first frame on. Until then frames wait in the lane's
    /// queues. A worker may leave the call out; the others wait until it has ended.
    ///
    /// # Errors
    /// [`WorkerFailed::Abandoned`] when another worker failed meanwhile.
    pub fn all_open(&self) -> Result<(), WorkerFailed> {
        if self.gate.pass(self.id) { Ok(()) } else { Err(WorkerFailed::Abandoned) }
    }
}

/// Why one worker has no report of a good end. Made by `?` from what opening and running return.
#[derive(Debug, thiserror::Error)]
pub enum WorkerFailed {
    /// Its lane could not be opened, or its thread not be started or pinned.
    #[error(transparent)]
    Open(#[from] LaneError),
    /// Its lane failed.
    #[error(transparent)]
    Run(#[from] RunFailed),
    /// It was fine, but another worker failed before all were open. Only
    /// [`Worker::all_open`] says so.
    #[non_exhaustive]
    #[error("not started, because another worker failed")]
    Abandoned,
}

impl WorkerFailed {
    /// What the worker did until then.
    fn report(self) -> Option<RunReport> {
        match self {
            WorkerFailed::Run(failed) => Some(*failed.report),
            WorkerFailed::Open(_) | WorkerFailed::Abandoned => None,
        }
    }
}

/// What one worker left behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorkerReport {
    /// Which worker it was.
    pub worker: WorkerId,
    /// Where it ran.
    pub cpu: usize,
    /// What it did; nothing if it never began.
    pub run: Option<RunReport>,
}

/// What all workers left behind, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WorkersReport {
    /// By worker.
    pub workers: Vec<WorkerReport>,
}

impl WorkersReport {
    /// The reports of the workers that ran.
    pub fn runs(&self) -> impl Iterator<Item = &RunReport> {
        self.workers.iter().filter_map(|worker| worker.run.as_ref())
    }

    /// The sum over all ports of all workers.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        self.runs().for_each(|run| sum.merge(&run.counters()));
        sum
    }

    /// The sum of what the apps counted.
    pub fn app_counters(&self) -> Counters {
        let mut sum = Counters::default();
        self.runs().for_each(|run| sum.merge(&run.app));
        sum
    }
}

/// The first failure of a run, and what every worker did until it ended.
#[derive(Debug, thiserror::Error)]
#[error("worker {}: {error}", worker.0)]
pub struct WorkersFailed {
    /// The worker that failed first.
    pub worker: WorkerId,
    /// What happened.
    pub error: LaneError,
    /// Of all workers; the one that failed included, if it had begun.
    pub report: Box<WorkersReport>,
}

impl From<WorkersFailed> for LaneError {
    fn from(failed: WorkersFailed) -> LaneError {
        failed.error
    }
}

/// Workers to be run. Its watches can be looked at from other threads meanwhile.
#[derive(Clone, Debug)]
pub struct Workers {
    cpus: Vec<usize>,
    stop: Stop,
    watches: Vec<Watch>,
    traces: Vec<TraceSlot>,
    when_open: WhenOpen,
}

/// What the calling thread does once.
#[derive(Clone, Default)]
struct WhenOpen(Option<Arc<dyn Fn() + Send + Sync>>);

impl fmt::Debug for WhenOpen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WhenOpen").field(&self.0.is_some()).finish()
    }
}

impl Workers {
    /// One worker per CPU of `cpus`, in this order. `stop` ends all of them; the first failure
    /// requests it, so it should be this run's own.
    ///
    /// # Errors
    /// No CPU, more than [`WORKERS_MAX`], or one given twice: two workers on one core would take
    /// turns, which no measurement of either survives.
    pub fn new(cpus: &[usize], stop: Stop) -> Result<Workers, LaneError> {
        let refused = |name: String, why: &str, hint: &str| LaneError::Refused {
            lane: LANE.to_owned(),
            name,
            why: why.to_owned(),
            hint: hint.to_owned(),
        };
        if !(1..=WORKERS_MAX).contains(&cpus.len()) {
            let hint = format!("name 1 to {WORKERS_MAX} CPUs, one per worker");
            let name = format!("{} CPUs", cpus.len());
            return Err(refused(name, "every worker needs one of its own", &hint));
        }
        if let Some(i) = (1..cpus.len()).find(|&i| cpus[..i].contains(&cpus[i])) {
            let hint = "give each worker a CPU of its own, or use fewer workers";
            return Err(refused(format!("CPU {}", cpus[i]), "it was given twice", hint));
        }
        let watches = cpus.iter().map(|_| Watch::new()).collect();
        let traces = vec![TraceSlot::empty(); cpus.len()];
        let when_open = WhenOpen::default();
        Ok(Workers { cpus: cpus.to_vec(), stop, watches, traces, when_open })
    }

    /// Has the calling thread, which only waits while the workers run, do this when every worker's lane is open.
    #[must_use]
    pub fn when_open(mut self, act: Arc<dyn Fn() + Send + Sync>) -> Workers {
        self.when_open = WhenOpen(Some(act));
        self
    }

    /// Traces the workers: each takes the recorder that waits in its slot. Slots beyond the number of
    /// workers are left alone, workers beyond the number of slots are not traced.
    #[must_use]
    pub fn traced(mut self, slots: impl IntoIterator<Item = TraceSlot>) -> Workers {
        self.traces.iter_mut().zip(slots).for_each(|(trace, slot)| *trace = slot);
        self
    }

    /// The CPU that each worker will be pinned to, in their order.
    pub fn cpus(&self) -> &[usize] {
        &self.cpus
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.cpus.len()
    }

    /// The way to look at one of them while it runs; nothing if there is no such worker.
    pub fn watch(&self, worker: WorkerId) -> Option<&Watch> {
        self.watches.get(worker.0)
    }

    /// Runs `work` once per worker, each on a thread of its own that is pinned to its CPU, and
    /// returns when all have ended.
    ///
    /// # Errors
    /// When a worker fails: the first failure, with the reports of all.
    ///
    /// # Panics
    /// With the panic of a worker, after all have ended.
    pub fn run(&self, work: Work<'_>) -> Result<WorkersReport, WorkersFailed> {
        let shared = Shared { gate: Gate::new(self.count()), first_failure: Mutex::new(None) };
        let mut outcomes = Vec::with_capacity(self.count());
        thread::scope(|scope| {
            let threads: Vec<_> = (0..self.count())
                .map(|i| {
                    let shared = &shared;
                    let body = move || self.work(WorkerId(i), shared, work);
                    let started = thread::Builder::new()
                        .name(format!("worker-{i}"))
                        .spawn_scoped(scope, body);
                    started.map_err(|e| {
                        let hint = "raise `ulimit -u`, or use fewer workers";
                        let failed =
                            WorkerFailed::Open(LaneError::os(LANE, "start a thread", e, hint));
                        self.end_all(WorkerId(i), shared, &failed);
                        failed
                    })
                })
                .collect();
            if let Some(act) = self.when_open.0.as_ref().filter(|_| shared.gate.wait()) {
                act();
            }
            for thread in threads {
                outcomes.push(match thread {
                    Ok(thread) => thread.join(),
                    Err(failed) => Ok(Err(failed)),
                });
            }
        });
        self.report(outcomes, shared)
    }

    /// One worker's thread.
    fn work(
        &self,
        id: WorkerId,
        shared: &Shared,
        work: Work<'_>,
    ) -> Result<RunReport, WorkerFailed> {
        // Also when `work` panics.
        let _ending = Ending { id, gate: &shared.gate, stop: &self.stop };
        let cpu = self.cpus[id.0];
        let control = Control {
            stop: self.stop.clone(),
            watch: self.watches[id.0].clone(),
            trace: self.traces[id.0].clone(),
            bell: None,
        };
        let worker = Worker { id, cpu, control, gate: &shared.gate };
        let outcome = pin_to_cpu(cpu).map_err(WorkerFailed::Open).and_then(|()| work(&worker));
        if let Err(failed) = &outcome {
            self.end_all(id, shared, failed);
        }
        outcome
    }

    /// Remembers which worker failed first and asks all to stop.
    fn end_all(&self, id: WorkerId, shared: &Shared, failed: &WorkerFailed) {
        if !matches!(failed, WorkerFailed::Abandoned) {
            locked(&shared.first_failure).get_or_insert(id);
        }
        self.stop.request();
        shared.gate.close();
    }

    fn report(
        &self,
        outcomes: Vec<thread::Result<Result<RunReport, WorkerFailed>>>,
        shared: Shared,
    ) -> Result<WorkersReport, WorkersFailed> {
        let first = shared.first_failure.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut error = None;
        let mut panic: Option<Box<dyn Any + Send>> = None;
        let mut report = WorkersReport::default();
        for (i, outcome) in outcomes.into_iter().enumerate() {
            let worker = WorkerId(i);
            let run = match outcome {
                Ok(Ok(run)) => Some(run),
                Ok(Err(failed)) if first == Some(worker) => match failed {
                    WorkerFailed::Run(RunFailed { error: e, report }) => {
                        error = Some((worker, e));
                        Some(*report)
                    }
                    WorkerFailed::Open(e) => {
                        error = Some((worker, e));
                        None
                    }
                    WorkerFailed::Abandoned => None,
                },
                Ok(Err(failed)) => failed.report(),
                Err(payload) => {
                    panic.get_or_insert(payload);
                    None
                }
            };
            report.workers.push(WorkerReport { worker, cpu: self.cpus[i], run });
        }
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
        match error {
            None => Ok(report),
            Some((worker, error)) => Err(WorkersFailed { worker, error, report: Box::new(report) }),
        }
    }
}

/// The name in errors of this module, as in those of pinning.
const LANE: &str = "worker";

/// What the threads of one run share, none of it while frames flow.
struct Shared {
    gate: Gate,
    first_failure: Mutex<Option<WorkerId>>,
}

/// A worker that has ended needs no waiting for; one that panics ends the others.
struct Ending<'a> {
    id: WorkerId,
    gate: &'a Gate,
    stop: &'a Stop,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.stop.request();
            self.gate.close();
        }
        self.gate.arrive(self.id);
    }
}

/// Opens when every worker has reached it (or has ended), unless it was closed before; once open it
/// stays so: a thread that wakes late must not take a failure after the beginning for one before it.
#[derive(Debug)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug)]
struct GateState {
    missing: Vec<bool>,
    opened: bool,
    closed: bool,
}

impl Gate {
    fn new(workers: usize) -> Gate {
        let state = GateState { missing: vec![true; workers], opened: false, closed: false };
        Gate { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn arrive(&self, id: WorkerId) {
        let mut state = locked(&self.state);
        state.missing[id.0] = false;
        state.opened |= !state.closed && !state.missing.contains(&true);
        drop(state);
        self.changed.notify_all();
    }

    fn close(&self) {
        locked(&self.state).closed = true;
        self.changed.notify_all();
    }

    /// Arrives and waits for the others; false if the gate was closed first.
    fn pass(&self, id: WorkerId) -> bool {
        self.arrive(id);
        self.wait()
    }

    /// Waits for all; false if the gate was closed first.
    fn wait(&self) -> bool {
        let waits = |state: &mut GateState| !state.opened && !state.closed;
        let state = self
            .changed
            .wait_while(locked(&self.state), waits)
            .unwrap_or_else(PoisonError::into_inner);
        state.opened
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing between the changes can panic: a panic leaves it whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
