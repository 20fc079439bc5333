//! A run of any app on a live lane, by one worker or several: what every app has in common.
//!
//! What must always hold: the run's time counts from when every worker's lane is open; what each port obtained is
//! shown when it is.

use super::metrics::Figures;
use super::trace::RunTrace;
use super::{end_after, opened};
use laneway_core::{CapsReport, LaneError};
use laneway_engine::{Control, Stop, Watch, WorkerId, Workers};
use laneway_kinds::{AppCommand, ConfineError, Confinement};
use laneway_metrics::Endpoint;
use laneway_registry::{Crew, LaneTable, Order, Ran};
use laneway_spec::LaneSpec;
use laneway_terminal as terminal;
use laneway_terminal::Failure;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// What the arguments of every run say.
pub(super) struct Live<'a> {
    pub(super) spec: &'a LaneSpec,
    pub(super) interfaces: &'a [String],
    pub(super) force: bool,
    pub(super) duration: Option<Duration>,
    /// The CPU of a single worker.
    pub(super) cpu: Option<usize>,
    /// The CPUs of several workers.
    pub(super) cpus: Option<&'a [usize]>,
    /// Where what is counted is shown meanwhile.
    pub(super) metrics: Option<&'a Endpoint>,
    /// What the run gives up when its lanes are open.
    pub(super) confinement: Option<&'a Arc<Confinement>>,
    pub(super) json: bool,
}

/// What a run left behind.
pub(super) struct Finished<R> {
    pub(super) ran: Ran<R>,
    /// Of the worker that opened first: what each port obtained.
    pub(super) ports: Vec<CapsReport>,
    /// Since every lane was open.
    pub(super) elapsed: Duration,
}

/// Where threads of the run are confined, each by itself. One that cannot be ends the run.
#[derive(Clone)]
struct Entrance {
    confinement: Arc<Confinement>,
    stop: Stop,
    failed: Arc<Mutex<Option<ConfineError>>>,
}

impl Entrance {
    fn new(confinement: &Arc<Confinement>, stop: &Stop) -> Entrance {
        Entrance {
            confinement: Arc::clone(confinement),
            stop: stop.clone(),
            failed: Arc::default(),
        }
    }

    fn enter(&self) {
        if let Err(error) = self.confinement.enter() {
            self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            self.stop.request();
        }
    }

    fn outcome(&self) -> Result<(), Failure> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.take().map_or(Ok(()), |error| Err(Failure::input(error)))
    }
}

#[derive(Default)]
struct Opened {
    ports: Vec<CapsReport>,
    workers: usize,
    started: Option<Instant>,
}

impl Live<'_> {
    /// Runs `run` until `stop` or its own end. Port `i` is at `places[i]`, such as `on eth1`; `begun` is called
    /// when the last lane is open.
    ///
    /// # Errors
    /// Bad CPUs or traces, as a sentence; or the lane's, when it cannot be opened.
    pub(super) fn run<A: AppCommand<Report: Clone>, L: LaneTable>(
        &self,
        run: &A::Run,
        trace: &RunTrace,
        stop: &Stop,
        places: &[String],
        begun: impl Fn() + Sync,
    ) -> Result<Result<Finished<A::Report>, LaneError>, Failure> {
        let state = Mutex::new(Opened::default());
        let gate = self.confinement.map(|confinement| Entrance::new(confinement, stop));
        let on_open = |worker: WorkerId, caps: &[CapsReport]| {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            self.show(worker, places, caps);
            gate.iter().for_each(Entrance::enter);
            if state.workers == 0 {
                state.ports = caps.to_vec();
            }
            state.workers += 1;
            if state.workers == self.cpus.map_or(1, <[usize]>::len) {
                state.started = Some(Instant::now());
                begun();
                if let Some(confinement) = self.confinement.filter(|_| !self.json) {
                    terminal::note(&format!("kept from here on: {confinement}"));
                }
                if let Some(endpoint) = self.metrics.filter(|_| !self.json) {
                    terminal::note(&format!("metrics at http://{}/metrics", endpoint.address()));
                }
                end_after(self.duration, stop);
            }
        };
        let interfaces: Vec<&str> = self.interfaces.iter().map(String::as_str).collect();
        let order =
            |crew| Order { spec: self.spec, interfaces: &interfaces, force: self.force, crew };
        let (ran, ended) = match self.cpus {
            None => {
                let trace = trace.slot(0, self.cpu)?;
                let control = Control { stop: stop.clone(), trace, ..Control::default() };
                let crew = Crew::Here { control: &control, cpu: self.cpu };
                let watches = vec![control.watch.clone()];
                self.shown::<A, _>(run, places, watches, || {
                    laneway_registry::run::<A, L>(run, order(crew), &on_open)
                })?
            }
            Some(cpus) => {
                let workers = Workers::new(cpus, stop.clone()).map_err(Failure::input)?;
                let mut workers = workers.traced(trace.slots(cpus)?);
                if let Some(gate) = gate.clone() {
                    workers = workers.when_open(Arc::new(move || gate.enter()));
                }
                let watches = (0..workers.count()).map(|id| workers.watch(WorkerId(id)).cloned());
                self.shown::<A, _>(run, places, watches.flatten().collect(), || {
                    laneway_registry::run::<A, L>(run, order(Crew::Workers(&workers)), &on_open)
                })?
            }
        };
        gate.map_or(Ok(()), |gate| gate.outcome())?;
        let Opened { ports, started, .. } =
            state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let elapsed = started.map_or(Duration::ZERO, |started| ended - started);
        Ok(ran.map(|ran| Finished { ran, ports, elapsed }))
    }

    /// Does the work of the run while what it counts is shown, if it is to be; also says when the work had ended.
    fn shown<A: AppCommand<Report: Clone>, R>(
        &self,
        run: &A::Run,
        places: &[String],
        watches: Vec<Watch>,
        work: impl FnOnce() -> R,
    ) -> Result<(R, Instant), Failure> {
        // A client that is being answered may outlast it.
        let timed = || (work(), Instant::now());
        let Some(endpoint) = self.metrics else { return Ok(timed()) };
        let figures = Figures::new(A::FACTS.name, self.spec, places, watches);
        let page = || figures.page(|page| A::metrics(run, page));
        thread::scope(|scope| {
            // Threads that serve begin on any CPU: the calling one is not kept on one yet.
            let serve = || endpoint.serve(scope, &page);
            let serving = match self.confinement {
                Some(confinement) => confinement.beside(serve).map_err(Failure::input)?,
                None => serve(),
            };
            let _serving = serving.map_err(Failure::input)?;
            Ok(timed())
        })
    }

    /// What every port of a worker obtained, one line each.
    fn show(&self, worker: WorkerId, places: &[String], caps: &[CapsReport]) {
        if self.json {
            return;
        }
        let who = match self.cpus {
            Some(cpus) => format!("worker {} on CPU {}: ", worker.0, cpus[worker.0]),
            None => String::new(),
        };
        let spec = self.spec.to_string();
        for (place, caps) in places.iter().zip(caps) {
            terminal::note(&format!("{who}{}", opened(&spec, place, caps)));
        }
    }
}
