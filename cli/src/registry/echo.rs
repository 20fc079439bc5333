//! App `echo` on the lanes: pings over frames, over raw sockets or in the kernel, and the echo service
//! over datagrams and streams.
//!
//! What must always hold: whatever ends a run, its fates come back. What it does not do: it finds no
//! addresses and chooses no shape; the caller names both.

mod workers;

pub use workers::{EchoWork, EchoWorkersRun, FateCounts, run_echo_workers};

use super::service::{OnDatagramLane, OnStreamLane, with_datagram_lane, with_stream_lane};
use super::{
    CaptureClock, Lane, OnFrameLane, OpenOptions, Service, caps_of, settled, with_frame_lane,
};
use laneway_core::{
    CapsReport, Clock, DatagramLane, FrameLane, KernelApp, Lane as _, LaneError, StreamLane,
};
use laneway_echo::{
    Config, Echo, Fate, Fates, IcmpEcho, KernelEcho, TcpEcho, UdpEcho, UdpEchoConfig,
};
use laneway_engine::{
    Control, MonotonicClock, RunReport, pin_to_cpu, run_datagrams, run_frames, run_kernel,
    run_streams,
};
use laneway_pcap::PcapLane;
use laneway_socket::UdpLane;
use laneway_spec::{IdlePolicy, LaneSpec};
use laneway_xdp::{XdpLane, XdpProgram};
use std::net::SocketAddr;
use std::os::fd::AsFd;

/// A run of app `echo`, whatever ended it.
pub struct EchoRun {
    /// What the engine says.
    pub report: RunReport,
    /// How many frames, datagrams or connections had each fate, by its name, those of none included.
    pub fates: Vec<(&'static str, u64)>,
    /// The lane's failure, if that is what ended the run.
    pub failure: Option<LaneError>,
}

/// What every run is told beside its app.
struct Run<'a, F> {
    idle: IdlePolicy,
    control: &'a Control,
    on_open: F,
}

fn begin<'a, F>(
    spec: &LaneSpec,
    options: OpenOptions,
    control: &'a Control,
    on_open: F,
) -> Result<Run<'a, F>, LaneError> {
    let idle = spec.knobs().idle()?;
    if let Some(cpu) = options.cpu {
        pin_to_cpu(cpu)?;
    }
    Ok(Run { idle, control, on_open })
}

/// Answers pings on the lane that `spec` names, on the calling thread, until `control` says stop or
/// nothing can come any more: in user space on lanes that carry frames, in the kernel on lane `xdp`,
/// which calls `next` with what is passed, and by raw sockets at the addresses on lane `socket`.
/// `interfaces` are capture files on lane `pcap`.
///
/// # Errors
/// Only when the lane cannot be opened (or the thread not pinned); nothing is left behind then.
///
/// # Panics
/// If `config` is one that [`Config::check`] refuses.
pub fn run_pings(
    spec: &LaneSpec,
    interfaces: &[&str],
    config: &Config,
    next: Option<&XdpProgram>,
    options: OpenOptions,
    control: &Control,
    on_open: impl FnOnce(&[CapsReport]),
) -> Result<EchoRun, LaneError> {
    let lane = Lane::of(spec)?.lane;
    let run = begin(spec, options, control, on_open)?;
    let checked = "the caller has checked it";
    match lane {
        Lane::Xdp => {
            let mut app = match next {
                None => KernelEcho::new(config).expect(checked),
                Some(next) => calling(|| KernelEcho::new(config).expect(checked), next)?,
            };
            let options =
                laneway_xdp::Options { force: options.force, ..laneway_xdp::Options::default() };
            let mut lane = XdpLane::open(spec, interfaces, app.half(), options)?;
            (run.on_open)(&caps_of(lane.ports(), |port| lane.caps(port).clone()));
            let outcome = run_kernel(&mut lane, &mut app, &MonotonicClock, run.idle, control);
            let (report, failure) = settled(outcome);
            Ok(EchoRun { report, fates: by_name(app.fates()), failure })
        }
        Lane::Socket => {
            let listen = config.addresses.iter().map(|&ip| SocketAddr::new(ip, 0));
            let mut lane = UdpLane::open(spec, &listen.collect::<Vec<_>>())?;
            let mut app = IcmpEcho::new(&config.addresses, &config.limits).expect(checked);
            (run.on_open)(&caps_of(lane.ports(), |port| lane.caps(port).clone()));
            let outcome = run_datagrams(&mut lane, &mut app, &MonotonicClock, run.idle, control);
            let (report, failure) = settled(outcome);
            Ok(EchoRun { report, fates: by_name(app.fates()), failure })
        }
        Lane::Pcap => {
            let mut lane = PcapLane::open(spec, interfaces)?;
            let pings = Pings { app: Echo::new(config).expect(checked), run };
            let mut run = pings.answer(&mut lane, &CaptureClock);
            let finished = lane.finish();
            run.failure = run.failure.or_else(|| finished.err());
            Ok(run)
        }
        _ => {
            let pings = Pings { app: Echo::new(config).expect(checked), run };
            with_frame_lane(spec, interfaces, options.force, pings)
        }
    }
}

/// The responder that calls `next`, of the kind that may: with frames in fragments, or without.
fn calling(app: impl Fn() -> KernelEcho, next: &XdpProgram) -> Result<KernelEcho, LaneError> {
    for app in [app().before(next.as_fd()), app().before_linear(next.as_fd())] {
        match laneway_xdp::check(&app.half()) {
            Ok(()) => return Ok(app),
            Err(denied @ LaneError::NotPermitted { .. }) => return Err(denied),
            // Told below, whatever the kernel calls it.
            Err(_) => {}
        }
    }
    Err(LaneError::Refused {
        lane: "xdp".to_owned(),
        name: next.to_string(),
        why: "the kernel lets no program of ours call it, as it was loaded for a device, a CPU or \
              another map"
            .to_owned(),
        hint: "load it as an ordinary XDP program (section `xdp` or `xdp.frags`) and give that"
            .to_owned(),
    })
}

fn by_name(fates: &Fates) -> Vec<(&'static str, u64)> {
    Fate::ALL.iter().map(|&fate| (fate.name(), fates.of(fate))).collect()
}

struct Pings<'a, F> {
    app: Echo,
    run: Run<'a, F>,
}

impl<F: FnOnce(&[CapsReport])> Pings<'_, F> {
    fn answer<L: FrameLane>(mut self, lane: &mut L, clock: &impl Clock) -> EchoRun {
        let run = self.run;
        (run.on_open)(&caps_of(lane.ports(), |port| lane.caps(port).clone()));
        let outcome = run_frames(lane, &mut self.app, clock, run.idle, run.control);
        let (report, failure) = settled(outcome);
        EchoRun { report, fates: by_name(self.app.fates()), failure }
    }
}

impl<F: FnOnce(&[CapsReport])> OnFrameLane for Pings<'_, F> {
    type Out = EchoRun;

    fn on_lane<L: FrameLane>(self, lane: &mut L) -> EchoRun {
        self.answer(lane, &MonotonicClock)
    }
}

/// Is the echo service over UDP on the lane that `spec` names, as [`run_pings`].
///
/// # Errors
/// As [`run_pings`].
///
/// # Panics
/// If the limits of `config` are such that [`UdpEcho::new`] refuses them.
pub fn run_udp_echo(
    spec: &LaneSpec,
    service: &Service<'_>,
    config: &UdpEchoConfig,
    options: OpenOptions,
    control: &Control,
    on_open: impl FnOnce(&[CapsReport]),
) -> Result<EchoRun, LaneError> {
    let run = begin(spec, options, control, on_open)?;
    let app = UdpEcho::new(config).expect("the caller has checked it");
    with_datagram_lane(spec, service, options.force, UdpService { app, run })
}

struct UdpService<'a, F> {
    app: UdpEcho,
    run: Run<'a, F>,
}

impl<F: FnOnce(&[CapsReport])> OnDatagramLane for UdpService<'_, F> {
    type Out = EchoRun;

    fn on_lane<L: DatagramLane>(mut self, lane: &mut L) -> EchoRun {
        let run = self.run;
        (run.on_open)(&caps_of(lane.ports(), |port| lane.caps(port).clone()));
        let outcome = run_datagrams(lane, &mut self.app, &MonotonicClock, run.idle, run.control);
        let (report, failure) = settled(outcome);
        let fates = self.app.fates();
        let fates = vec![
            ("answered", fates.answered),
            ("dropped_port", fates.dropped_port),
            ("dropped_address", fates.dropped_address),
            ("dropped_source_limit", fates.dropped_source_limit),
            ("dropped_global_limit", fates.dropped_global_limit),
        ];
        EchoRun { report, fates, failure }
    }
}

/// Is the echo service over TCP on the lane that `spec` names, as [`run_pings`].
///
/// # Errors
/// As [`run_pings`].
pub fn run_tcp_echo(
    spec: &LaneSpec,
    service: &Service<'_>,
    options: OpenOptions,
    control: &Control,
    on_open: impl FnOnce(&[CapsReport]),
) -> Result<EchoRun, LaneError> {
    let run = begin(spec, options, control, on_open)?;
    with_stream_lane(spec, service, options.force, TcpService { app: TcpEcho::new(), run })
}

struct TcpService<'a, F> {
    app: TcpEcho,
    run: Run<'a, F>,
}

impl<F: FnOnce(&[CapsReport])> OnStreamLane for TcpService<'_, F> {
    type Out = EchoRun;

    fn on_lane<L: StreamLane>(mut self, lane: &mut L) -> EchoRun {
        let run = self.run;
        (run.on_open)(&caps_of(lane.ports(), |port| lane.caps(port).clone()));
        let outcome = run_streams(lane, &mut self.app, &MonotonicClock, run.idle, run.control);
        let (report, failure) = settled(outcome);
        let (accepted, failed) = (self.app.accepted(), self.app.failed());
        let fates = vec![("ended_well", accepted - failed), ("ended_in_error", failed)];
        EchoRun { report, fates, failure }
    }
}
