//! App `echo` with several workers: pings over frames, and the echo service over datagrams and streams.
//!
//! Frames are spread as for every app; on lanes whose datagrams and streams are the kernel's, each worker
//! has sockets of its own at the same addresses (SO_REUSEPORT). What must always hold: whoever asked is
//! one worker's as far as the steering keeps it there, so limits for a source are kept by that worker, and
//! each has an even share of the limit for all. What it does not do: it merges no counters;
//! [`EchoWorkersRun::together`] does when asked.

use super::{EchoRun, Pings, Run, TcpService, UdpService};
use crate::registry::service::{
    DatagramsOn, OnDatagramLane, OnStreamLane, StreamsOn, with_datagram_lane, with_stream_lane,
};
use crate::registry::workers::Spread;
use crate::registry::{Lane, Lent, Service, is_the_kernels, refused};
use laneway_core::{CapsReport, DatagramLane, LaneError, StreamLane};
use laneway_echo::{Config, Echo, Limits, Rate, TcpEcho, UdpEcho, UdpEchoConfig};
use laneway_engine::{
    RunFailed, RunReport, Worker, WorkerFailed, WorkerId, Workers, WorkersReport,
};
use laneway_spec::LaneSpec;
use std::sync::{Mutex, PoisonError};

/// What every worker does.
#[derive(Clone, Debug)]
pub enum EchoWork<'a> {
    /// Answers pings on these interfaces.
    Pings(&'a [&'a str], &'a Config),
    /// Is the echo service over UDP.
    Udp(&'a Service<'a>, &'a UdpEchoConfig),
    /// Is the echo service over TCP.
    Tcp(&'a Service<'a>),
}

/// How many had each fate, by its name.
pub type FateCounts = Vec<(&'static str, u64)>;

/// A run of app `echo` by several workers, whatever ended it.
pub struct EchoWorkersRun {
    /// What the engine says of each.
    pub report: WorkersReport,
    /// By worker; nothing for one that never began.
    pub fates: Vec<Option<FateCounts>>,
    /// The first failure, if that is what ended the run, and whose it was.
    pub failure: Option<(WorkerId, LaneError)>,
}

impl EchoWorkersRun {
    /// The sum over all workers, as of one that had the ports of all; nothing if none began. The failure
    /// stays where it is.
    pub fn together(&self) -> Option<EchoRun> {
        let mut runs = self.report.runs();
        let mut report = runs.next()?.clone();
        for run in runs {
            report.ports.extend(run.ports.iter().cloned());
            report.join(run);
        }
        let mut fates: FateCounts = Vec::new();
        for (name, n) in self.fates.iter().flatten().flatten() {
            match fates.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += n,
                None => fates.push((name, *n)),
            }
        }
        Some(EchoRun { report, fates, failure: None })
    }
}

/// Runs app `echo` by `workers` on the lane that `spec` names, until they end. When all lanes are open,
/// `on_open` is shown, by each worker, what its ports asked for and obtained.
///
/// # Errors
/// Only when a lane cannot be opened, or does not take several workers; nothing is left behind then.
///
/// # Panics
/// If the configuration is one that its own check refuses.
pub fn run_echo_workers(
    spec: &LaneSpec,
    work: &EchoWork<'_>,
    force: bool,
    workers: &Workers,
    on_open: impl Fn(WorkerId, &[CapsReport]) + Sync,
) -> Result<EchoWorkersRun, LaneError> {
    let idle = spec.knobs().idle()?;
    let ways = Ways::of(spec, work, force, workers.count())?;
    let fates: Mutex<Vec<Option<FateCounts>>> = Mutex::new(vec![None; workers.count()]);
    let answer = |worker: &Worker<'_>| -> Result<RunReport, WorkerFailed> {
        let on_open = |caps: &[CapsReport]| on_open(worker.id, caps);
        let run = Run { idle, control: &worker.control, on_open };
        let run = ways.answer(work, force, workers.count(), worker, run)?;
        // Each worker writes its own entry, whole.
        fates.lock().unwrap_or_else(PoisonError::into_inner)[worker.id.0] = Some(run.fates);
        match run.failure {
            None => Ok(run.report),
            Some(error) => Err(RunFailed { error, report: Box::new(run.report) }.into()),
        }
    };
    let (report, failure) = match workers.run(answer) {
        Ok(report) => (report, None),
        Err(failed) => (*failed.report, Some((failed.worker, failed.error))),
    };
    let fates = fates.into_inner().unwrap_or_else(PoisonError::into_inner);
    match failure {
        Some((_, error)) if fates.iter().all(Option::is_none) => Err(error),
        failure => Ok(EchoWorkersRun { report, fates, failure }),
    }
}

/// How requests come to the workers.
enum Ways {
    Frames(Spread),
    /// By sockets at the same addresses: the spec with the knob that allows it.
    Sockets(LaneSpec),
}

impl Ways {
    fn of(
        spec: &LaneSpec,
        work: &EchoWork<'_>,
        force: bool,
        workers: usize,
    ) -> Result<Ways, LaneError> {
        let entry = Lane::of(spec)?;
        let several = |why: &str, hint: &str| Err(refused(entry, "several workers", why, hint));
        let service = match work {
            EchoWork::Pings(..) if entry.lane == Lane::Socket => {
                return several(
                    "every raw socket is shown every ping, so each worker would answer it",
                    "leave --workers out, or use lane packet, afxdp or dpdk",
                );
            }
            EchoWork::Pings(..) if entry.lane == Lane::Xdp => {
                return several(
                    "its program answers on every CPU that receives, whoever waits",
                    "leave --workers out",
                );
            }
            EchoWork::Pings(interfaces, _) => {
                return Spread::of(spec, interfaces, force, true, workers).map(Ways::Frames);
            }
            EchoWork::Udp(service, _) | EchoWork::Tcp(service) => service,
        };
        if !is_the_kernels(entry.lane) {
            return Spread::of(spec, service.interfaces, force, true, workers).map(Ways::Frames);
        }
        if let Some(any) = service.listen.iter().find(|address| address.port() == 0) {
            return several(
                &format!("each would get another port for {any}"),
                "name the port that they are to share",
            );
        }
        if spec.knobs().flag("reuseport")? {
            return Ok(Ways::Sockets(spec.clone()));
        }
        let text = spec.to_string();
        if text.contains("reuseport=") {
            return several("they share an address by reuseport", "leave reuseport=off out");
        }
        let joint = if text.contains(':') { ',' } else { ':' };
        Ok(Ways::Sockets(format!("{text}{joint}reuseport").parse()?))
    }

    fn answer<F: FnOnce(&[CapsReport])>(
        &self,
        work: &EchoWork<'_>,
        force: bool,
        workers: usize,
        worker: &Worker<'_>,
        run: Run<'_, F>,
    ) -> Result<EchoRun, WorkerFailed> {
        let checked = "the caller has checked it";
        match (self, work) {
            (Ways::Frames(spread), EchoWork::Pings(interfaces, config)) => {
                let mut config = Config::clone(config);
                config.limits = shared_out(config.limits, workers);
                let pings = Pings { app: Echo::new(&config).expect(checked), run };
                spread.give(worker, interfaces, force, Lent(pings))
            }
            (ways, EchoWork::Udp(service, config)) => {
                let config = UdpEchoConfig {
                    limits: shared_out(config.limits, workers),
                    source_port_min: config.source_port_min,
                };
                let app = UdpEcho::new(&config).expect(checked);
                let then = UdpService { app, run };
                match ways {
                    Ways::Sockets(spec) => {
                        with_datagram_lane(spec, service, force, Gated { worker, then })?
                    }
                    Ways::Frames(spread) => {
                        let stacked = DatagramsOn { config: service.stack(), then };
                        Ok(spread.give(worker, service.interfaces, force, stacked)??)
                    }
                }
            }
            (ways, EchoWork::Tcp(service)) => {
                let then = TcpService { app: TcpEcho::new(), run };
                match ways {
                    Ways::Sockets(spec) => {
                        with_stream_lane(spec, service, force, Gated { worker, then })?
                    }
                    Ways::Frames(spread) => {
                        let stacked = StreamsOn { config: service.stack(), then };
                        Ok(spread.give(worker, service.interfaces, force, stacked)??)
                    }
                }
            }
            (Ways::Sockets(_), EchoWork::Pings(..)) => {
                unreachable!("pings over raw sockets were refused")
            }
        }
    }
}

/// An even share of the limit for all; a source has one worker, and its whole limit there.
fn shared_out(limits: Limits, workers: usize) -> Limits {
    let workers = workers as u32;
    let share = |rate: Rate| Rate {
        per_second: (rate.per_second / workers).max(1),
        burst: (rate.burst / workers).max(1),
    };
    Limits { global: limits.global.map(share), ..limits }
}

/// Runs when every worker's lane is open.
struct Gated<'a, V> {
    worker: &'a Worker<'a>,
    then: V,
}

impl<V: OnDatagramLane> OnDatagramLane for Gated<'_, V> {
    type Out = Result<V::Out, WorkerFailed>;

    fn on_lane<L: DatagramLane>(self, lane: &mut L) -> Self::Out {
        self.worker.all_open()?;
        Ok(self.then.on_lane(lane))
    }
}

impl<V: OnStreamLane> OnStreamLane for Gated<'_, V> {
    type Out = Result<V::Out, WorkerFailed>;

    fn on_lane<L: StreamLane>(self, lane: &mut L) -> Self::Out {
        self.worker.all_open()?;
        Ok(self.then.on_lane(lane))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_for_all_is_shared_out_and_that_of_a_source_is_not() {
        let limits = Limits::default();
        let share = shared_out(limits, 3);
        assert_eq!(share.per_source, limits.per_source);
        let (all, own) = (limits.global.unwrap(), share.global.unwrap());
        assert!(own.per_second * 3 <= all.per_second && own.burst * 3 <= all.burst);
        let none = Limits { global: None, ..limits };
        assert_eq!(shared_out(none, 3).global, None);
    }
}
