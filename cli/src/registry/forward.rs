//! App `forward` on the lanes: in user space on lanes that carry frames, in the kernel on lane `xdp`.
//!
//! What must always hold: whatever ends a run, its fates come back, and the rule set stays its owner's:
//! it is locked here only to take its feed.

use super::{
    CaptureClock, Lane, OnFrameLane, OpenOptions, caps_of, ifindex, settled, with_frame_lane,
};
use laneway_core::{
    CapsReport, Clock, FrameLane, IdlePolicy, KernelApp, KernelLane, LaneError, LaneSpec, SpecError,
};
use laneway_engine::{Control, MonotonicClock, RunReport, pin_to_cpu, run_frames, run_kernel};
use laneway_forward::{Config, ConfigError, Forward, KernelForward, RuleSet, Stats};
use laneway_pcap::PcapLane;
use laneway_xdp::XdpLane;
use std::io;
use std::sync::{Mutex, PoisonError};

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
    let lane = Lane::of(spec)?.lane;
    let idle = spec.knobs().idle()?;
    if let Some(cpu) = options.cpu {
        pin_to_cpu(cpu)?;
    }
    let checked = "the caller has checked it";
    let rules = rules.map(|rules| rules.lock().unwrap_or_else(PoisonError::into_inner));
    if lane == Lane::Xdp {
        let feed = rules.map(|mut rules| rules.kernel_feed().expect("rules of the kernel half"));
        let ifindexes: Vec<u32> = interfaces.iter().map(|name| ifindex(name)).collect();
        let mut app = KernelForward::new(config, &ifindexes, feed).expect(checked);
        let options = laneway_xdp::Options { force: options.force };
        let mut lane = XdpLane::open(spec, interfaces, app.half(), options)?;
        on_open(&caps_of(lane.ports(), |port| lane.caps(port).clone()));
        let outcome = run_kernel(&mut lane, &mut app, &MonotonicClock, idle, control);
        let (report, failure) = settled(outcome);
        let failure = failure.or_else(|| app.failure().map(of_maps));
        return Ok(ForwardRun { report, stats: app.stats().clone(), unlearned: 0, failure });
    }
    let feed = rules.map(|mut rules| rules.feed().expect("rules of user space"));
    let app = Forward::new(config.clone()).expect(checked);
    let app = match feed {
        Some(feed) => app.with_rules(feed),
        None => app,
    };
    let frames = Frames { app, idle, control, on_open };
    if lane == Lane::Pcap {
        let mut lane = PcapLane::open(spec, interfaces)?;
        let mut run = frames.forward(&mut lane, &CaptureClock);
        let finished = lane.finish();
        run.failure = run.failure.or_else(|| finished.err());
        return Ok(run);
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
    idle: IdlePolicy,
    control: &'a Control,
    on_open: F,
}

impl<F: FnOnce(&[CapsReport])> Frames<'_, F> {
    fn forward<L: FrameLane>(mut self, lane: &mut L, clock: &impl Clock) -> ForwardRun {
        (self.on_open)(&caps_of(lane.ports(), |port| lane.caps(port).clone()));
        let outcome = run_frames(lane, &mut self.app, clock, self.idle, self.control);
        let (report, failure) = settled(outcome);
        let (stats, unlearned) = (self.app.stats().clone(), self.app.unlearned());
        ForwardRun { report, stats, unlearned, failure }
    }
}

impl<F: FnOnce(&[CapsReport])> OnFrameLane for Frames<'_, F> {
    type Out = ForwardRun;

    fn on_lane<L: FrameLane>(self, lane: &mut L) -> ForwardRun {
        self.forward(lane, &MonotonicClock)
    }
}
