//! Traffic sources on the lanes: any frame app that fills what it is lent, on one interface.
//!
//! What must always hold: whatever ends a run, what was counted until then comes back.

use super::{OnFrameLane, OpenOptions, settled, with_frame_lane};
use laneway_core::{CapsReport, FrameApp, FrameLane, LaneError, PortId};
use laneway_engine::{Control, MonotonicClock, RunReport, pin_to_cpu, run_frames};
use laneway_spec::{IdlePolicy, LaneSpec};

/// What a source left behind.
pub struct SourceRun {
    /// What the engine says.
    pub report: RunReport,
    /// The lane's failure, if that is what ended the run.
    pub failure: Option<LaneError>,
}

/// Runs a source on the lane that `spec` names, on the calling thread, until it wants to stop or
/// `control` says so.
///
/// # Errors
/// Only when the lane cannot be opened (or the thread not pinned), or carries no frames to an
/// interface; nothing is left behind then.
pub fn run_source<A: FrameApp>(
    spec: &LaneSpec,
    interface: &str,
    app: &mut A,
    options: OpenOptions,
    control: &Control,
    on_open: impl FnOnce(&CapsReport),
) -> Result<SourceRun, LaneError> {
    let idle = spec.knobs().idle()?;
    if let Some(cpu) = options.cpu {
        pin_to_cpu(cpu)?;
    }
    let sending = Sending { app, idle, control, on_open };
    with_frame_lane(spec, &[interface], options.force, sending)
}

struct Sending<'a, A, F> {
    app: &'a mut A,
    idle: IdlePolicy,
    control: &'a Control,
    on_open: F,
}

impl<A: FrameApp, F: FnOnce(&CapsReport)> OnFrameLane for Sending<'_, A, F> {
    type Out = SourceRun;

    fn on_lane<L: FrameLane>(self, lane: &mut L) -> SourceRun {
        (self.on_open)(lane.caps(PortId(0)));
        let outcome = run_frames(lane, self.app, &MonotonicClock, self.idle, self.control);
        let (report, failure) = settled(outcome);
        SourceRun { report, failure }
    }
}
