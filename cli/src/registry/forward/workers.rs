//! App `forward` by several workers, each with a lane of its own over the same interfaces.
//!
//! **What is shared**: the ports; configuration, routes and neighbours, which nobody changes; the stations
//! of mode `l2`, so that what one worker learned all know; and the rule set, which every worker takes
//! between two of its bursts. **What is each worker's own**: its queue or socket of every port, its
//! copy of what rules matched, and what became of its frames; who asks is told the sums. A worker sends by
//! its own queues, so the frames of a flow stay in order as long as the flow stays with one worker: the
//! kernel's fan-out by hash, which is taken unless the spec says otherwise, and a device's RSS keep it
//! there; `fanout=lb` does not, and is refused.
//!
//! `queue` and `rss` move a frame to another worker only where the port itself executes them
//! (rte_flow): software never hands a frame over, as that would cost a lock or a copy per frame. What
//! becomes of a frame is the same either way.

use super::{ForwardRun, Frames, Offered, Under};
use crate::registry::workers::Spread;
use crate::registry::{Lane, Lent, refused};
use laneway_core::{CapsReport, LaneError};
use laneway_engine::{
    RunFailed, RunReport, Worker, WorkerFailed, WorkerId, Workers, WorkersReport,
};
use laneway_forward::{Config, Console, Forward, Stats};
use laneway_spec::LaneSpec;
use std::sync::{Mutex, PoisonError};

/// What became of one worker's frames.
#[derive(Clone, Debug)]
pub struct WorkerFates {
    /// By fate.
    pub stats: Stats,
    /// Mode `l2`: times this worker found no place for a station.
    pub unlearned: u64,
}

/// A run of app `forward` by several workers, whatever ended it.
pub struct ForwardWorkersRun {
    /// What the engine says of each.
    pub report: WorkersReport,
    /// By worker; nothing for one that never began.
    pub fates: Vec<Option<WorkerFates>>,
    /// The first failure, if that is what ended the run, and whose it was.
    pub failure: Option<(WorkerId, LaneError)>,
}

impl ForwardWorkersRun {
    /// The sum over all workers, as of one that had all queues of every port; nothing if none began.
    pub fn together(self) -> Option<ForwardRun> {
        let mut runs = self.report.runs();
        let mut report = runs.next()?.clone();
        for run in runs {
            for (port, other) in report.ports.iter_mut().zip(&run.ports) {
                port.counters.merge(&other.counters);
            }
            report.join(run);
        }
        let (mut stats, mut unlearned) = (Stats::default(), 0);
        for fates in self.fates.iter().flatten() {
            stats.add(&fates.stats);
            unlearned += fates.unlearned;
        }
        Some(ForwardRun { report, stats, unlearned, failure: self.failure.map(|(_, error)| error) })
    }
}

/// Forwards by `workers` between `interfaces` on the lane that `spec` names, until they end. When all
/// lanes are open, `on_open` is shown, by each worker, what its ports asked for and obtained. What is
/// said to `console` while it runs comes into force for all workers.
///
/// # Errors
/// Only when a lane cannot be opened, or does not take several workers; nothing is left behind then.
///
/// # Panics
/// If [`check_forward`](super::check_forward) refuses `config`, or the rules are not of
/// [`forward_rules`](super::forward_rules).
pub fn run_forward_workers(
    console: Option<&Console>,
    spec: &LaneSpec,
    interfaces: &[&str],
    config: &Config,
    force: bool,
    workers: &Workers,
    on_open: impl Fn(WorkerId, &[CapsReport]) + Sync,
) -> Result<ForwardWorkersRun, LaneError> {
    let idle = spec.knobs().idle()?;
    let entry = Lane::of(spec)?;
    let several = |why: &str| Err(refused(entry, "several workers", why, "leave --workers out"));
    match entry.lane {
        Lane::Xdp => {
            return several("its program forwards on every CPU that receives, whoever waits");
        }
        Lane::Pcap => return several("a capture is forwarded in its order"),
        _ => {}
    }
    let spread = Spread::of(spec, interfaces, force, true, workers.count())?;
    let under = Under { rules: console.map(Console::shared), live: console.map(Console::live) };
    // Every worker's app is one beside this.
    let first = Forward::new(config.clone()).expect("the caller has checked it");
    let _offered = match (&spread, under.rules) {
        (Spread::Ports(ports), Some(rules)) => Some(Offered::to(ports, rules)),
        _ => None,
    };
    let fates: Mutex<Vec<Option<WorkerFates>>> = Mutex::new(vec![None; workers.count()]);
    let forward = |worker: &Worker<'_>| -> Result<RunReport, WorkerFailed> {
        let frames = Frames {
            app: first.beside(),
            under,
            idle,
            control: &worker.control,
            on_open: |caps: &[CapsReport]| on_open(worker.id, caps),
        };
        let ForwardRun { report, stats, unlearned, failure } =
            spread.give(worker, interfaces, force, Lent(frames))?;
        // Each worker writes its own entry, whole.
        fates.lock().unwrap_or_else(PoisonError::into_inner)[worker.id.0] =
            Some(WorkerFates { stats, unlearned });
        match failure {
            None => Ok(report),
            Some(error) => Err(RunFailed { error, report: Box::new(report) }.into()),
        }
    };
    let (report, failure) = match workers.run(forward) {
        Ok(report) => (report, None),
        Err(failed) => (*failed.report, Some((failed.worker, failed.error))),
    };
    let fates = fates.into_inner().unwrap_or_else(PoisonError::into_inner);
    match failure {
        Some((_, error)) if fates.iter().all(Option::is_none) => Err(error),
        failure => Ok(ForwardWorkersRun { report, fates, failure }),
    }
}
