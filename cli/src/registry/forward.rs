//! App `forward` on the lanes: in user space on lanes that carry frames, in the kernel on lane `xdp`.
//!
//! What must always hold: whatever ends a run, its fates come back, and the rule set stays its owner's:
//! it is locked here only to take its feeds, and to offer rules to DPDK ports and take them back.

mod workers;

pub use workers::{ForwardWorkersRun, WorkerFates, run_forward_workers};

use super::{
    CaptureClock, Lane, OnFrameLane, OpenOptions, caps_of, ifindex, settled, with_frame_lane,
};
use laneway_core::{CapsReport, Clock, FrameLane, KernelApp, Lane as _, LaneError};
use laneway_dpdk::{DpdkLane, DpdkPorts, FlowRules};
use laneway_engine::{Control, MonotonicClock, RunReport, pin_to_cpu, run_frames, run_kernel};
use laneway_forward::{
    Config, ConfigError, Console, Forward, KernelForward, LiveStats, RuleSet, Stats,
};
use laneway_pcap::PcapLane;
use laneway_spec::{IdlePolicy, LaneSpec, SpecError};
use laneway_xdp::XdpLane;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A run of app `forward`, whatever ended it.
pub struct ForwardRun {
    /// What the engine says.
    pub report: RunReport,
    /// What became of every frame.
    pub stats: Stats,
    /// Mode `l2`: times a station was not learned because its place in the table was taken.
    pub unlearned: u64,
    /// The lane's failure, if that is what ended the run.
    pub failure: Option<LaneError>,
}

/// Whether the lane that `spec` names can do what `config` says.
///
/// # Errors
/// One sentence with the value and what to try.
pub fn check_forward(spec: &LaneSpec, config: &Config) -> Result<(), ConfigError> {
    config.check()?;
    if Lane::of(spec).is_ok_and(|entry| entry.lane == Lane::Xdp) {
        KernelForward::new(config, &vec![0; config.ports], None)?;
    }
    Ok(())
}

/// An empty rule set for the lane that `spec` names: of the kernel half, or of user space.
///
/// # Errors
/// When there is no such lane.
pub fn forward_rules(spec: &LaneSpec, config: &Config) -> Result<RuleSet, SpecError> {
    Ok(match Lane::of(spec)?.lane {
        Lane::Xdp => RuleSet::for_kernel(config.bounds()),
        _ => RuleSet::for_user(config.bounds()),
    })
}

/// Forwards between `interfaces` on the lane that `spec` names, on the calling thread, until `control`
/// says stop or nothing can come any more. `interfaces` are capture files on lane `pcap`. What is
/// committed to `rules` while it runs comes into force.
///
/// # Errors
/// Only when the lane cannot be opened (or the thread not pinned); nothing is left behind then.
///
/// # Panics
/// If [`check_forward`] refuses `config`, or `rules` are not of [`forward_rules`].
pub fn run_forward(
    spec: &LaneSpec,
    interfaces: &[&str],
    config: &Config,
    rules: Option<&Mutex<RuleSet>>,
    options: OpenOptions,
    control: &Control,
    on_open: impl FnOnce(&[CapsReport]),
) -> Result<ForwardRun, LaneError> {
    run(spec, interfaces, config, Under { rules, live: None }, options, control, on_open)
}

/// As [`run_forward`], with whom one can talk about rules and frames meanwhile.
///
/// # Errors
/// As [`run_forward`].
///
/// # Panics
/// As [`run_forward`].
pub fn run_forward_with(
    console: &Console,
    spec: &LaneSpec,
    interfaces: &[&str],
    config: &Config,
    options: OpenOptions,
    control: &Control,
    on_open: impl FnOnce(&[CapsReport]),
) -> Result<ForwardRun, LaneError> {
    let under = Under { rules: Some(console.shared()), live: Some(console.live()) };
    run(spec, interfaces, config, under, options, control, on_open)
}

/// What a run is under: its rules, and where it says what it does.
#[derive(Clone, Copy)]
struct Under<'a> {
    rules: Option<&'a Mutex<RuleSet>>,
    live: Option<&'a LiveStats>,
}

impl Under<'_> {
    /// The app under these rules, from now on: a change of rules waits for it.
    fn put(&self, mut app: Forward) -> Forward {
        if let Some(rules) = self.rules {
            app = app.with_rules(locked(rules).feed().expect("rules of user space"));
        }
        if let Some(live) = self.live {
            app = app.with_live(live.slot());
        }
        app
    }
}

/// Gives the ports of a DPDK lane the rules that they take, until dropped.
struct Offered<'a>(&'a Mutex<RuleSet>);

impl<'a> Offered<'a> {
    fn to(ports: &DpdkPorts, rules: &'a Mutex<RuleSet>) -> Offered<'a> {
        let mut set = locked(rules);
        set.offer_to(Box::new(FlowRules::new(ports)));
        // Nothing waits for the workers; the ports are offered what is there.
        set.commit();
        Offered(rules)
    }
}

impl Drop for Offered<'_> {
    fn drop(&mut self) {
        locked(self.0).withdraw();
    }
}

/// Whoever panicked with the set in hand had changed nothing or everything.
fn locked(rules: &Mutex<RuleSet>) -> MutexGuard<'_, RuleSet> {
    rules.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(
    spec: &LaneSpec,
    interfaces: &[&str],
    config: &Config,
    under: Under<'_>,
    options: OpenOptions,
    control: &Control,
    on_open: impl FnOnce(&[CapsReport]),
) -> Result<ForwardRun, LaneError> {
    let lane = Lane::of(spec)?.lane;
    let idle = spec.knobs().idle()?;
    if let Some(cpu) = options.cpu {
        pin_to_cpu(cpu)?;
    }
    let checked = "the caller has checked it";
    if lane == Lane::Xdp {
        let feed =
            under.rules.map(|rules| locked(rules).kernel_feed().expect("rules of the kernel half"));
        let ifindexes: Vec<u32> = interfaces.iter().map(|name| ifindex(name)).collect();
        let mut app = KernelForward::new(config, &ifindexes, feed).expect(checked);
        if let Some(live) = under.live {
            app = app.with_live(live.slot());
        }
        let options =
            laneway_xdp::Options { force: options.force, ..laneway_xdp::Options::default() };
        let mut lane = XdpLane::open(spec, interfaces, app.half(), options)?;
        on_open(&caps_of(lane.ports(), |port| lane.caps(port).clone()));
        let outcome = run_kernel(&mut lane, &mut app, &MonotonicClock, idle, control);
        let (report, failure) = settled(outcome);
        let failure = failure.or_else(|| app.failure().map(of_maps));
        return Ok(ForwardRun { report, stats: app.stats().clone(), unlearned: 0, failure });
    }
    let app = Forward::new(config.clone()).expect(checked);
    let frames = Frames { app, under, idle, control, on_open };
    if lane == Lane::Pcap {
        let mut lane = PcapLane::open(spec, interfaces)?;
        let mut run = frames.forward(&mut lane, &CaptureClock);
        let finished = lane.finish();
        run.failure = run.failure.or_else(|| finished.err());
        return Ok(run);
    }
    if let (Lane::Dpdk, Some(rules)) = (lane, under.rules) {
        // Opened here and not with the other lanes: its ports may take rules.
        let ports = DpdkPorts::open(spec, interfaces, options.force, 1)?;
        let mut lane = DpdkLane::open_shared(&ports, 0)?;
        let _offered = Offered::to(&ports, rules);
        return Ok(frames.forward(&mut lane, &MonotonicClock));
    }
    with_frame_lane(spec, interfaces, options.force, frames)
}

/// The kernel's answer about a map of the kernel half.
fn of_maps(error: &LaneError) -> LaneError {
    LaneError::Os {
        lane: "xdp".to_owned(),
        doing: "reading or writing the forwarder's maps".to_owned(),
        source: io::Error::other(error.to_string()),
        hint: "start it again".to_owned(),
    }
}

struct Frames<'a, F> {
    app: Forward,
    under: Under<'a>,
    idle: IdlePolicy,
    control: &'a Control,
    on_open: F,
}

impl<F: FnOnce(&[CapsReport])> Frames<'_, F> {
    fn forward<L: FrameLane>(self, lane: &mut L, clock: &impl Clock) -> ForwardRun {
        let mut app = self.under.put(self.app);
        (self.on_open)(&caps_of(lane.ports(), |port| lane.caps(port).clone()));
        let outcome = run_frames(lane, &mut app, clock, self.idle, self.control);
        let (report, failure) = settled(outcome);
        let (stats, unlearned) = (app.stats().clone(), app.unlearned());
        ForwardRun { report, stats, unlearned, failure }
    }
}

impl<F: FnOnce(&[CapsReport])> OnFrameLane for Frames<'_, F> {
    type Out = ForwardRun;

    fn on_lane<L: FrameLane>(self, lane: &mut L) -> ForwardRun {
        self.forward(lane, &MonotonicClock)
    }
}
