//! Several workers: a lane and an app for each, and whatever of the kernel or the device spreads frames
//! over them.
//!
//! Assumes that the calling thread is in the interfaces' network namespace, where the workers' threads
//! begin, too. What must always hold: both directions of a flow, as far as the steering keeps them
//! together, are one worker's, so that no state is shared; nothing is shared per frame.

use super::{Frames, Lane, Lent, WithFrameLane, refused};
use crate::ledger::Ledger;
use laneway_afxdp::{AfXdp, Steering};
use laneway_core::{CapsReport, LaneError};
use laneway_dpdk::{DpdkLane, DpdkPorts};
use laneway_engine::{
    RunFailed, RunReport, Worker, WorkerFailed, WorkerId, Workers, WorkersReport,
};
use laneway_features::{Config, Level, Sink};
use laneway_packet::{FanoutGroup, OpenOptions as PacketOptions, PacketLane};
use laneway_spec::LaneSpec;
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

/// What spreads frames over workers, opened once for all of them.
pub(super) enum Spread {
    Fanout(LaneSpec, FanoutGroup),
    Queues(Steering),
    Ports(DpdkPorts),
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
    let keeps_flows = config.level == Level::Flow;
    let spread = Spread::of(spec, interfaces, force, keeps_flows, workers.count())?;
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
        let run = spread.give(worker, interfaces, force, Lent(frames))?;
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

impl Spread {
    /// What spreads the frames of the lane that `spec` names over `workers` workers. `keeps_flows` asks
    /// that the frames of a flow go to one worker.
    ///
    /// # Errors
    /// With the reason, where nothing does; when the ports cannot be opened.
    pub(super) fn of(
        spec: &LaneSpec,
        interfaces: &[&str],
        force: bool,
        keeps_flows: bool,
        workers: usize,
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
                    Some("lb") if keeps_flows => {
                        return several(
                            "fanout=lb gives the packets of one flow to different workers",
                            "use fanout=hash (features: or --level packet)",
                        );
                    }
                    Some(_) => spec.clone(),
                };
                Ok(Spread::Fanout(spec, FanoutGroup::unique()))
            }
            Lane::AfXdp => Ok(Spread::Queues(Steering::attach(spec, interfaces, force)?)),
            Lane::Xdp => several(
                "its program runs on every CPU that receives, and one reader takes what it emits",
                "leave --workers out; xdp:cpus=0-1 runs the program of features on the CPU of each flow",
            ),
            Lane::Uring => several(
                "its packet sockets have no fan-out, so every worker would see every frame",
                "use packet:fanout=hash or afxdp",
            ),
            Lane::Dpdk => Ok(Spread::Ports(DpdkPorts::open(spec, interfaces, force, workers)?)),
            Lane::Pcap => several(
                "a capture is read in its order",
                "use `laneway features CAPTURE --workers N`, which cuts it up",
            ),
            Lane::Socket | Lane::Sim => {
                several("it has no frames for this app", "use packet:fanout=hash or afxdp")
            }
        }
    }

    /// Opens the lane of this worker, on its thread, and gives it when every worker has one.
    ///
    /// # Errors
    /// When it cannot be opened, or another worker has failed.
    pub(super) fn give<V: WithFrameLane>(
        &self,
        worker: &Worker<'_>,
        interfaces: &[&str],
        force: bool,
        then: V,
    ) -> Result<V::Out, WorkerFailed> {
        Ok(match self {
            Spread::Fanout(spec, group) => {
                let options = PacketOptions { force };
                let lane = PacketLane::open_in(*group, spec, interfaces, options)?;
                worker.all_open()?;
                then.with_lane(lane)
            }
            Spread::Queues(steering) => {
                let lane = AfXdp::open_steered(steering, worker.id.0)?;
                worker.all_open()?;
                then.with_lane(lane)
            }
            Spread::Ports(ports) => {
                let lane = DpdkLane::open_shared(ports, worker.id.0)?;
                worker.all_open()?;
                then.with_lane(lane)
            }
        })
    }
}
