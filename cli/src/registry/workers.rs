//! App `features` with several workers: a lane, an extractor and a sink for each, and whatever of the
//! kernel spreads flows over them.
//!
//! Assumes that the calling thread is in the interfaces' network namespace, where the workers' threads
//! begin, too. What must always hold: both directions of a flow, as far as the kernel's steering keeps
//! them together, are one worker's, so that no state is shared; nothing is shared per frame.

use super::{FeaturesRun, Frames, Lane, refused};
use crate::ledger::Ledger;
use laneway_afxdp::{AfXdp, Steering};
use laneway_core::{CapsReport, FrameLane, LaneError, LaneSpec};
use laneway_engine::{
    MonotonicClock, RunFailed, RunReport, Worker, WorkerFailed, WorkerId, Workers, WorkersReport,
};
use laneway_features::{Config, Level, Sink};
use laneway_packet::{FanoutGroup, OpenOptions as PacketOptions, PacketLane};
use std::sync::{Mutex, PoisonError};

/// A run of app `features` by several workers, whatever ended it.
pub struct WorkersRun {
    /// What the engine says of each.
    pub report: WorkersReport,
    /// What became of every frame, by worker; nothing for one that never began.
    pub ledgers: Vec<Option<Ledger>>,
    /// The first failure, if that is what ended the run, and whose it was.
    pub failure: Option<(WorkerId, LaneError)>,
}

/// What spreads frames over workers.
enum Spread {
    Fanout(LaneSpec, FanoutGroup),
    Queues(Steering),
}

/// Runs app `features` by `workers` on the lane that `spec` names, until they end. Each worker has a
/// sink of its own, made on its thread by `sink` and given back to `close` there. When all lanes are
/// open, `on_open` is shown, by each worker, what its ports asked for and obtained.
///
/// # Errors
/// Only when a lane cannot be opened, or does not take several workers; nothing is left behind then.
///
/// # Panics
/// If `config` is one that [`laneway_features::check`] refuses.
#[expect(clippy::too_many_arguments, reason = "what a run is told, once per program")]
pub fn run_features_workers<S: Sink>(
    spec: &LaneSpec,
    interfaces: &[&str],
    config: &Config,
    force: bool,
    workers: &Workers,
    sink: impl Fn() -> S + Sync,
    close: impl Fn(S) + Sync,
    on_open: impl Fn(WorkerId, &[CapsReport]) + Sync,
) -> Result<WorkersRun, LaneError> {
    let idle = spec.knobs().idle()?;
    let spread = spread(spec, interfaces, config.level, force)?;
    let ledgers: Mutex<Vec<Option<Ledger>>> = Mutex::new(vec![None; workers.count()]);
    let extract = |worker: &Worker<'_>| -> Result<RunReport, WorkerFailed> {
        let frames = Frames {
            interfaces,
            config: config.clone(),
            sink: sink(),
            idle,
            control: &worker.control,
            on_open: |caps: &[CapsReport]| on_open(worker.id, caps),
        };
        let run = match &spread {
            Spread::Fanout(spec, group) => {
                let options = PacketOptions { force };
                let lane = PacketLane::open_in(*group, spec, interfaces, options)?;
                when_all_are_open(worker, lane, frames)?
            }
            Spread::Queues(steering) => {
                let lane = AfXdp::open_steered(steering, worker.id.0)?;
                when_all_are_open(worker, lane, frames)?
            }
        };
        close(run.sink);
        // Each worker writes its own entry, whole.
        ledgers.lock().unwrap_or_else(PoisonError::into_inner)[worker.id.0] = Some(run.ledger);
        match run.failure {
            None => Ok(run.report),
            Some(error) => Err(RunFailed { error, report: Box::new(run.report) }.into()),
        }
    };
    let (report, failure) = match workers.run(extract) {
        Ok(report) => (report, None),
        Err(failed) => (*failed.report, Some((failed.worker, failed.error))),
    };
    let ledgers = ledgers.into_inner().unwrap_or_else(PoisonError::into_inner);
    match failure {
        Some((_, error)) if ledgers.iter().all(Option::is_none) => Err(error),
        failure => Ok(WorkersRun { report, ledgers, failure }),
    }
}

fn when_all_are_open<L: FrameLane, S: Sink, F: FnOnce(&[CapsReport])>(
    worker: &Worker<'_>,
    mut lane: L,
    frames: Frames<'_, S, F>,
) -> Result<FeaturesRun<S>, WorkerFailed> {
    worker.all_open()?;
    Ok(frames.features(&mut lane, &MonotonicClock))
}

/// What spreads the frames of this lane.
///
/// # Errors
/// With the reason, where nothing does.
fn spread(
    spec: &LaneSpec,
    interfaces: &[&str],
    level: Level,
    force: bool,
) -> Result<Spread, LaneError> {
    let entry = Lane::of(spec)?;
    let several = |why: &str, hint: &str| Err(refused(entry, "several workers", why, hint));
    match entry.lane {
        Lane::Packet => {
            let text = spec.to_string();
            let spec = match spec.knobs().text("fanout")? {
                None => {
                    let joint = if text.contains(':') { ',' } else { ':' };
                    format!("{text}{joint}fanout=hash").parse()?
                }
                Some("lb") if level == Level::Flow => {
                    return several(
                        "fanout=lb gives the packets of one flow to different workers",
                        "use fanout=hash, or --level packet",
                    );
                }
                Some(_) => spec.clone(),
            };
            Ok(Spread::Fanout(spec, FanoutGroup::unique()))
        }
        Lane::AfXdp => Ok(Spread::Queues(Steering::attach(spec, interfaces, force)?)),
        Lane::Xdp => several(
            "its program runs on every CPU that receives, and one reader takes what it emits",
            "leave --workers out",
        ),
        Lane::Uring => several(
            "its packet sockets have no fan-out, so every worker would see every frame",
            "use packet:fanout=hash or afxdp",
        ),
        Lane::Dpdk => several(
            "a DPDK port belongs to one worker, with all its queues",
            "use packet:fanout=hash or afxdp",
        ),
        Lane::Pcap => several(
            "a capture is read in its order",
            "use `laneway features CAPTURE --workers N`, which cuts it up",
        ),
        Lane::Socket | Lane::Sim => {
            several("it has no frames for this app", "use packet:fanout=hash or afxdp")
        }
    }
}
