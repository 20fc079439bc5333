//! App `echo` as a row of the table of apps.
//!
//! Pings are answered over frames, in the kernel where the lane runs kernel halves, and by raw sockets where the
//! lane has nothing below datagrams; the echo service runs over datagrams or streams.

use crate::{
    Config, Echo, Fate, Fates, IcmpEcho, KernelEcho, Limits, Rate, TcpEcho, UdpEcho, UdpEchoConfig,
};
use laneway_bpf::XdpProgram;
use laneway_core::{
    App, Counters, Datagram, DatagramApp, DatagramOut, KernelApp, KernelHalf, LaneError, Turn,
};
use laneway_kinds::{
    AppFacts, AppKind, Asks, Conclude, Counted, FateReport, KernelOffer, LaneFacts, Metric, Peer,
    Place, Protocol, RaceFacts, RunReport, Service, Shape, Traffic,
};
use std::net::SocketAddr;
use std::os::fd::AsFd;

/// The row.
#[derive(Debug)]
pub struct EchoKind;

/// What a run answers; its configuration is one that the app's own check has passed.
pub enum EchoRun {
    /// Pings for addresses.
    Pings {
        /// The addresses it answers for, and how many.
        config: Config,
        /// The XDP program that sees what the responder leaves.
        before: Option<XdpProgram>,
    },
    /// The echo service over UDP.
    Udp {
        /// Where it listens.
        service: Service,
        /// The sources it answers, and how many.
        config: UdpEchoConfig,
    },
    /// The echo service over TCP.
    Tcp {
        /// Where it listens.
        service: Service,
    },
}

const CHECKED: &str = "the run's configuration was checked when it was made";

impl AppKind for EchoKind {
    const FACTS: AppFacts = AppFacts {
        name: "echo",
        about: "answers pings before the kernel does, or is an echo service over UDP or TCP",
        race: RaceFacts {
            traffic: &[Traffic::Pings, Traffic::Tcp(Protocol::Echo)],
            counted: Counted::Replies,
            ports: 1,
            metrics: &[Metric::RttP50, Metric::RttP99, Metric::Rate, Metric::Cpu, Metric::Loss],
            peers: &[Peer::Testpmd, Peer::Stack],
        },
    };
    type Run = EchoRun;
    type Report = FateReport;
    type Frames = Echo;
    type Datagrams = EchoDatagrams;
    type Streams = TcpEcho;
    type Kernel = KernelEcho;

    fn shape(run: &EchoRun, lane: &LaneFacts) -> Result<Shape, LaneError> {
        Ok(match run {
            EchoRun::Pings { .. } if lane.carries.has(Shape::Kernel) => Shape::Kernel,
            EchoRun::Pings { .. } if lane.carries.has(Shape::Frames) => Shape::Frames,
            EchoRun::Pings { .. } if lane.is_the_kernels() => Shape::Datagrams,
            EchoRun::Pings { .. } => Shape::Frames,
            EchoRun::Udp { .. } => Shape::Datagrams,
            EchoRun::Tcp { .. } => Shape::Streams,
        })
    }

    fn asks(run: &EchoRun) -> Asks {
        let service = match run {
            // Of raw sockets: they have no ports.
            EchoRun::Pings { config, .. } => Service {
                listen: config.addresses.iter().map(|&ip| SocketAddr::new(ip, 0)).collect(),
                ..Service::default()
            },
            EchoRun::Udp { service, .. } | EchoRun::Tcp { service } => service.clone(),
        };
        Asks { service, keeps_flows: true, ..Asks::default() }
    }

    fn frames(run: &EchoRun, place: Place<'_>) -> Result<Echo, LaneError> {
        Ok(Echo::new(&pings(run, place)).expect(CHECKED))
    }

    fn datagrams(run: &EchoRun, place: Place<'_>) -> Result<EchoDatagrams, LaneError> {
        Ok(match run {
            EchoRun::Udp { config, .. } => {
                let limits = shared_out(config.limits, place.workers);
                let config = UdpEchoConfig { limits, source_port_min: config.source_port_min };
                EchoDatagrams::Udp(UdpEcho::new(&config).expect(CHECKED))
            }
            EchoRun::Pings { .. } | EchoRun::Tcp { .. } => {
                let config = pings(run, place);
                let app = IcmpEcho::new(&config.addresses, &config.limits).expect(CHECKED);
                EchoDatagrams::Pings(app)
            }
        })
    }

    fn streams(_run: &EchoRun, _place: Place<'_>) -> Result<TcpEcho, LaneError> {
        Ok(TcpEcho::new())
    }

    fn kernel(
        run: &EchoRun,
        place: Place<'_>,
        offer: &dyn KernelOffer,
    ) -> Result<KernelEcho, LaneError> {
        let config = pings(run, place);
        let app = || KernelEcho::new(&config).expect(CHECKED);
        match run {
            EchoRun::Pings { before: Some(next), .. } => calling(app, next, offer),
            _ => Ok(app()),
        }
    }

    fn sample_half() -> Option<KernelHalf> {
        let config = Config::new([2, 0, 0, 0, 0, 1], [[192, 0, 2, 1].into()]);
        crate::half(&config).ok()
    }
}

/// The configuration of one of the workers.
fn pings(run: &EchoRun, place: Place<'_>) -> Config {
    let EchoRun::Pings { config, .. } = run else {
        unreachable!("an echo service has neither frames nor raw sockets")
    };
    Config { limits: shared_out(config.limits, place.workers), ..config.clone() }
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

/// The responder that calls `next`, of the kind that may: with frames in fragments, or without.
fn calling(
    app: impl Fn() -> KernelEcho,
    next: &XdpProgram,
    offer: &dyn KernelOffer,
) -> Result<KernelEcho, LaneError> {
    for app in [app().before(next.as_fd()), app().before_linear(next.as_fd())] {
        match offer.check(&app.half()) {
            Ok(()) => return Ok(app),
            Err(denied @ LaneError::NotPermitted { .. }) => return Err(denied),
            // Reported below, whatever the kernel calls it.
            Err(_) => {}
        }
    }
    Err(LaneError::Refused {
        lane: EchoKind::FACTS.name.to_owned(),
        name: next.to_string(),
        why: "the kernel lets no program of ours call it, as it was loaded for a device, a CPU or \
              another map"
            .to_owned(),
        hint: "load it as an ordinary XDP program (section `xdp` or `xdp.frags`) and give that"
            .to_owned(),
    })
}

/// The app over datagrams: the service, or the messages that raw sockets show.
pub enum EchoDatagrams {
    /// The echo service.
    Udp(UdpEcho),
    /// Pings.
    Pings(IcmpEcho),
}

impl DatagramApp for EchoDatagrams {
    fn on_datagrams<O: DatagramOut>(&mut self, batch: &[Datagram<'_>], turn: Turn, out: &mut O) {
        match self {
            EchoDatagrams::Udp(app) => app.on_datagrams(batch, turn, out),
            EchoDatagrams::Pings(app) => app.on_datagrams(batch, turn, out),
        }
    }

    fn on_tick<O: DatagramOut>(&mut self, turn: Turn, out: &mut O) {
        match self {
            EchoDatagrams::Udp(app) => app.on_tick(turn, out),
            EchoDatagrams::Pings(app) => app.on_tick(turn, out),
        }
    }
}

impl App for EchoDatagrams {
    fn counters(&self) -> &Counters {
        match self {
            EchoDatagrams::Udp(app) => app.counters(),
            EchoDatagrams::Pings(app) => app.counters(),
        }
    }
}

fn by_name(fates: &Fates) -> FateReport {
    let fates = Fate::ALL.iter().map(|&fate| (fate.name(), fates.of(fate))).collect();
    FateReport { fates }
}

impl Conclude<FateReport> for Echo {
    fn conclude(self, _run: &RunReport) -> FateReport {
        by_name(self.fates())
    }
}

impl Conclude<FateReport> for KernelEcho {
    fn conclude(self, _run: &RunReport) -> FateReport {
        by_name(self.fates())
    }
}

impl Conclude<FateReport> for EchoDatagrams {
    fn conclude(self, _run: &RunReport) -> FateReport {
        match self {
            EchoDatagrams::Pings(app) => by_name(app.fates()),
            EchoDatagrams::Udp(app) => {
                let fates = app.fates();
                let fates = vec![
                    ("answered", fates.answered),
                    ("dropped_port", fates.dropped_port),
                    ("dropped_address", fates.dropped_address),
                    ("dropped_source_limit", fates.dropped_source_limit),
                    ("dropped_global_limit", fates.dropped_global_limit),
                ];
                FateReport { fates }
            }
        }
    }
}

impl Conclude<FateReport> for TcpEcho {
    fn conclude(self, _run: &RunReport) -> FateReport {
        let (accepted, failed) = (self.accepted(), self.failed());
        FateReport { fates: vec![("ended_well", accepted - failed), ("ended_in_error", failed)] }
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
        assert_eq!(shared_out(limits, 1), limits);
    }
}
