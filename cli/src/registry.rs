//! Lanes and apps by name: one line per lane, one function per app.
//!
//! The only place that knows both sides. A [`LaneSpec`] chooses a [`Lane`] once, at start-up; from
//! there everything is compiled per lane and app, so nothing is looked up per frame. The verbs and
//! the lab's arms open lanes here and nowhere else, so what is measured is what users run.
//!
//! Assumes that the calling thread is the worker and is in the interfaces' network namespace. It
//! prints nothing, catches no signal, and starts no thread.

mod captures;
mod echo;
mod forward;
mod lab;
mod probe;
mod replay;
mod service;
mod workers;

pub use captures::{CaptureChunk, CaptureSource, UnreadLinks};
pub use echo::{
    EchoRun, EchoWork, EchoWorkersRun, FateCounts, run_echo_workers, run_pings, run_tcp_echo,
    run_udp_echo,
};
pub use forward::{
    ForwardRun, ForwardWorkersRun, WorkerFates, check_forward, forward_rules, run_forward,
    run_forward_with, run_forward_workers,
};
pub use lab::LabRegistry;
pub use probe::{Needs, needs, probe};
pub use replay::{SourceRun, run_source};
pub use service::{Service, is_the_kernels, takes_a_stack};
pub use workers::{WorkersRun, run_features_workers};

use crate::ledger::Ledger;
use laneway_afxdp::AfXdp;
use laneway_core::{
    CapsReport, Clock, ClockDomain, FrameApp, FrameLane, IdlePolicy, KernelLane, LaneError,
    LaneSpec, PortId, SpecError,
};
use laneway_dpdk::DpdkLane;
use laneway_engine::{
    Control, MonotonicClock, RunFailed, RunReport, pin_to_cpu, run_frames, run_kernel,
};
use laneway_features::{Config, Features, KernelFeatures, Sink};
use laneway_packet::PacketLane;
use laneway_pcap::PcapLane;
use laneway_uring::UringFrames;
use laneway_xdp::XdpLane;
use rustix::net::{AddressFamily, SocketType, netdevice::name_to_index, socket};

/// A lane of this build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// AF_PACKET sockets.
    Packet,
    /// Kernel halves at the XDP hook.
    Xdp,
    /// AF_XDP sockets.
    AfXdp,
    /// UDP, TCP and raw sockets.
    Socket,
    /// The kernel's sockets, packet sockets among them, through io_uring.
    Uring,
    /// DPDK's ports.
    Dpdk,
    /// Capture files.
    Pcap,
    /// Simulated links.
    Sim,
}

/// What a lane's entry says.
#[derive(Clone, Copy, Debug)]
pub struct LaneEntry {
    /// The lane.
    pub lane: Lane,
    /// Its name in specs.
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// What its frames' stamps count from.
    pub clock: ClockDomain,
    /// Specs that a machine can be asked about, one per mode.
    pub modes: &'static [&'static str],
}

const MONOTONIC: ClockDomain = ClockDomain::Monotonic;

/// The lanes, one line each.
#[rustfmt::skip] // a table
pub const LANES: [LaneEntry; 8] = [
    LaneEntry { lane: Lane::Packet, name: "packet", about: "AF_PACKET sockets, on every interface",     clock: MONOTONIC,            modes: &["packet", "packet:mmsg=64", "packet:ring", "packet:fanout=hash"] },
    LaneEntry { lane: Lane::Socket, name: "socket", about: "UDP, TCP and raw sockets",                  clock: MONOTONIC,            modes: &["socket", "socket:batch=64", "socket:gso,gro,batch=64", "socket:reuseport", "socket:busy_poll=20"] },
    LaneEntry { lane: Lane::Uring,  name: "uring",  about: "sockets through io_uring, packet sockets too", clock: MONOTONIC,         modes: &["uring", "uring:gso,gro", "uring:send_zc=4096", "uring:bundle", "uring:napi=20"] },
    LaneEntry { lane: Lane::Xdp,    name: "xdp",    about: "the app's decision at the XDP hook",        clock: MONOTONIC,            modes: &["xdp", "xdp:generic"] },
    LaneEntry { lane: Lane::AfXdp,  name: "afxdp",  about: "AF_XDP sockets: rings shared with the kernel", clock: MONOTONIC,         modes: &["afxdp", "afxdp:generic", "afxdp:sg", "afxdp:busy_poll=20", "afxdp:hugepages", "afxdp:zero-copy"] },
    LaneEntry { lane: Lane::Dpdk,   name: "dpdk",   about: "DPDK's ports, loaded at run time",          clock: MONOTONIC,            modes: &["dpdk:net_af_packet", "dpdk:net_af_xdp", "dpdk:net_tap", "dpdk:net_memif,role=server", "dpdk:net_pcap", "dpdk:net_ring", "dpdk:net_null", "dpdk:net_null,hugepages"] },
    LaneEntry { lane: Lane::Pcap,   name: "pcap",   about: "capture files: pcap and pcapng, gzip, zstd", clock: ClockDomain::Unix,   modes: &["pcap"] },
    LaneEntry { lane: Lane::Sim,    name: "sim",    about: "seeded links on a virtual clock, for tests", clock: ClockDomain::Virtual, modes: &["sim"] },
];

impl Lane {
    /// The entry of the lane that a spec names.
    ///
    /// # Errors
    /// [`SpecError::UnknownLane`] with the nearest name.
    pub fn of(spec: &LaneSpec) -> Result<&'static LaneEntry, SpecError> {
        LANES.iter().find(|entry| entry.name == spec.lane()).ok_or_else(|| {
            let names: Vec<&str> = LANES.iter().map(|entry| entry.name).collect();
            spec.unknown_lane(&names)
        })
    }
}

/// What a spec cannot say about opening a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Open interfaces that carry a default route as well.
    pub force: bool,
    /// Keep the calling thread on this CPU.
    pub cpu: Option<usize>,
}

/// A run of app `features`, whatever ended it.
pub struct FeaturesRun<S> {
    /// What the engine says.
    pub report: RunReport,
    /// What became of every frame.
    pub ledger: Ledger,
    /// The lane's failure, if that is what ended the run. Everything until then is kept.
    pub failure: Option<LaneError>,
    /// The sink back, with all that it was given.
    pub sink: S,
}

/// Runs app `features` on the lane that `spec` names, on the calling thread, until `control` says
/// stop, the sink is done, or nothing can come any more. `interfaces` are capture files on lane
/// `pcap`. Once the lane is open, `on_open` is shown what each port asked for and obtained.
///
/// # Errors
/// Only when the lane cannot be opened (or the thread not pinned); nothing is left behind then.
///
/// # Panics
/// If `config` is one that [`laneway_features::check`] refuses.
pub fn run_features<S: Sink>(
    spec: &LaneSpec,
    interfaces: &[&str],
    config: Config,
    sink: S,
    options: OpenOptions,
    control: &Control,
    on_open: impl FnOnce(&[CapsReport]),
) -> Result<FeaturesRun<S>, LaneError> {
    let lane = Lane::of(spec)?.lane;
    let idle = spec.knobs().idle()?;
    if let Some(cpu) = options.cpu {
        pin_to_cpu(cpu)?;
    }
    let force = options.force;
    let frames = Frames { interfaces, config, sink, idle, control, on_open };
    match lane {
        Lane::Pcap => {
            let mut lane = PcapLane::open(spec, interfaces)?;
            let mut run = frames.features(&mut lane, &CaptureClock);
            let finished = lane.finish();
            run.failure = run.failure.or_else(|| finished.err());
            Ok(run)
        }
        Lane::Xdp => {
            let Frames { config, sink, on_open, .. } = frames;
            let mut app = KernelFeatures::new(config.clone(), sink);
            let half = laneway_core::KernelApp::half(&app);
            // It passes or drops, so it may run on the CPUs that flows hash to.
            let options = laneway_xdp::Options { force, never_transmits: true };
            let mut lane = XdpLane::open(spec, interfaces, half, options)?;
            on_open(&caps_of(lane.ports(), |port| lane.caps(port).clone()));
            let outcome = run_kernel(&mut lane, &mut app, &MonotonicClock, idle, control);
            let (report, failure) = settled(outcome);
            let ledger = Ledger::of_kernel(&report, &app, &config);
            Ok(FeaturesRun { report, ledger, failure, sink: app.into_sink() })
        }
        _ => with_frame_lane(spec, interfaces, force, frames),
    }
}

/// What is done with a frame lane once it is open; compiled once per lane.
pub(crate) trait OnFrameLane {
    /// What comes of it.
    type Out;

    /// The lane's frames are stamped with `CLOCK_MONOTONIC`.
    fn on_lane<L: FrameLane>(self, lane: &mut L) -> Self::Out;
}

/// As [`OnFrameLane`], for what keeps the lane: a stack on top of it.
pub(crate) trait WithFrameLane {
    /// What comes of it.
    type Out;

    /// The lane's frames are stamped with `CLOCK_MONOTONIC`.
    fn with_lane<L: FrameLane>(self, lane: L) -> Self::Out;
}

/// Lends the lane to who does not keep it.
struct Lent<V>(V);

impl<V: OnFrameLane> WithFrameLane for Lent<V> {
    type Out = V::Out;

    fn with_lane<L: FrameLane>(self, mut lane: L) -> V::Out {
        self.0.on_lane(&mut lane)
    }
}

/// Opens the frame lane that `spec` names on `interfaces`, and closes it again.
///
/// # Errors
/// When the lane cannot be opened, or carries no frames between interfaces and user space.
pub(crate) fn with_frame_lane<V: OnFrameLane>(
    spec: &LaneSpec,
    interfaces: &[&str],
    force: bool,
    then: V,
) -> Result<V::Out, LaneError> {
    give_frame_lane(spec, interfaces, force, Lent(then))
}

/// Opens the frame lane that `spec` names on `interfaces`: the one place that does.
///
/// # Errors
/// When the lane cannot be opened, or carries no frames between interfaces and user space.
pub(crate) fn give_frame_lane<V: WithFrameLane>(
    spec: &LaneSpec,
    interfaces: &[&str],
    force: bool,
    then: V,
) -> Result<V::Out, LaneError> {
    let entry = Lane::of(spec)?;
    Ok(match entry.lane {
        Lane::Packet => {
            let options = laneway_packet::OpenOptions { force };
            then.with_lane(PacketLane::open(spec, interfaces, options)?)
        }
        Lane::AfXdp => then.with_lane(AfXdp::open(spec, interfaces, force)?),
        Lane::Uring => {
            let options = laneway_uring::OpenOptions { force };
            then.with_lane(UringFrames::open(spec, interfaces, options)?)
        }
        Lane::Dpdk => then.with_lane(DpdkLane::open(spec, interfaces, force)?),
        Lane::Socket | Lane::Xdp | Lane::Pcap | Lane::Sim => {
            let (why, hint) = match entry.lane {
                Lane::Sim => (
                    "a simulated link has no traffic unless a test puts it there",
                    "use lane pcap to run on recorded traffic",
                ),
                Lane::Socket => (
                    "its sockets show datagrams and streams, and this app wants frames",
                    "use packet, uring or afxdp",
                ),
                _ => (
                    "it carries no frames between an interface and user space",
                    "use packet, uring, afxdp or dpdk",
                ),
            };
            return Err(refused(entry, interfaces.join(","), why, hint));
        }
    })
}

/// Runs any frame app on the frame lane that `spec` names, as the lab's generator does; `on_open` is
/// shown what its first port obtained.
///
/// # Errors
/// When the lane cannot be opened or fails, or carries no frames from an interface.
pub fn run_frame_app<A: FrameApp>(
    spec: &LaneSpec,
    interfaces: &[&str],
    app: &mut A,
    options: OpenOptions,
    control: &Control,
    on_open: impl FnOnce(&CapsReport),
) -> Result<RunReport, LaneError> {
    let idle = spec.knobs().idle()?;
    if let Some(cpu) = options.cpu {
        pin_to_cpu(cpu)?;
    }
    let run = FrameRun { app, idle, control, on_open };
    Ok(with_frame_lane(spec, interfaces, options.force, run)??)
}

/// Runs a frame app on whatever lane it is given.
struct FrameRun<'a, A, F> {
    app: &'a mut A,
    idle: IdlePolicy,
    control: &'a Control,
    on_open: F,
}

impl<A: FrameApp, F: FnOnce(&CapsReport)> OnFrameLane for FrameRun<'_, A, F> {
    type Out = Result<RunReport, RunFailed>;

    fn on_lane<L: FrameLane>(self, lane: &mut L) -> Self::Out {
        (self.on_open)(lane.caps(PortId(0)));
        run_frames(lane, self.app, &MonotonicClock, self.idle, self.control)
    }
}

/// What every frame lane needs to run the app.
struct Frames<'a, S, F> {
    interfaces: &'a [&'a str],
    config: Config,
    sink: S,
    idle: IdlePolicy,
    control: &'a Control,
    on_open: F,
}

impl<S: Sink, F: FnOnce(&[CapsReport])> OnFrameLane for Frames<'_, S, F> {
    type Out = FeaturesRun<S>;

    fn on_lane<L: FrameLane>(self, lane: &mut L) -> FeaturesRun<S> {
        self.features(lane, &MonotonicClock)
    }
}

impl<S: Sink, F: FnOnce(&[CapsReport])> Frames<'_, S, F> {
    fn features<L: FrameLane>(self, lane: &mut L, clock: &impl Clock) -> FeaturesRun<S> {
        (self.on_open)(&caps_of(lane.ports(), |port| lane.caps(port).clone()));
        let ifindex = self.interfaces.iter().map(|name| ifindex(name)).collect();
        // A lane that is bound to one receive queue says which.
        let queue = lane.caps(PortId(0)).facts.get("queue").and_then(|q| q.parse().ok());
        let app = Features::new(&self.config, ifindex, self.sink);
        let mut app = app.on_queue(queue.unwrap_or(0));
        let outcome = run_frames(lane, &mut app, clock, self.idle, self.control);
        let (report, failure) = settled(outcome);
        let ledger = Ledger::of_frames(&report, &app);
        FeaturesRun { report, ledger, failure, sink: app.into_sink() }
    }
}

fn settled(outcome: Result<RunReport, RunFailed>) -> (RunReport, Option<LaneError>) {
    match outcome {
        Ok(report) => (report, None),
        Err(RunFailed { error, report }) => (*report, Some(error)),
    }
}

/// What a lane of this kind cannot do.
fn refused(entry: &LaneEntry, name: impl ToString, why: &str, hint: &str) -> LaneError {
    LaneError::Refused {
        lane: entry.name.to_owned(),
        name: name.to_string(),
        why: why.to_owned(),
        hint: hint.to_owned(),
    }
}

fn caps_of(ports: usize, caps: impl Fn(PortId) -> CapsReport) -> Vec<CapsReport> {
    (0..ports).map(|port| caps(PortId(port as u8))).collect()
}

/// The interface's number in this thread's network namespace; 0 for a file, which has none.
fn ifindex(name: &str) -> u32 {
    socket(AddressFamily::INET, SocketType::DGRAM, None)
        .and_then(|control| name_to_index(control, name))
        .unwrap_or(0)
}

/// The clock of a worker on capture files: it stands still, because there time is what the packets
/// say. With a clock that runs, flows would end because the reading takes long.
struct CaptureClock;

impl Clock for CaptureClock {
    fn now_ns(&self) -> u64 {
        0
    }

    fn domain(&self) -> ClockDomain {
        ClockDomain::Unix
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lane_is_found_by_its_name_and_its_modes_name_it() {
        for entry in &LANES {
            for mode in entry.modes {
                let spec: LaneSpec = mode.parse().unwrap();
                assert_eq!(Lane::of(&spec).unwrap().lane, entry.lane, "{mode}");
            }
        }
    }

    #[test]
    fn an_unknown_lane_is_answered_with_the_nearest() {
        let message = Lane::of(&"afxpd".parse().unwrap()).unwrap_err().to_string();
        assert!(message.contains("did you mean `afxdp`?"), "{message}");
    }
}
