//! The registry as the lab's children use it: an arm opens its lane where every user's run does.

use super::{OpenOptions, run_features, run_frame_app};
use laneway_core::{CapsReport, FrameApp, LaneError, LaneSpec};
use laneway_engine::{Control, RunReport};
use laneway_features::{Config, Sink};
use laneway_lab::{Place, Registry};

/// This program's lanes and apps.
#[derive(Clone, Copy, Debug, Default)]
pub struct LabRegistry;

impl Registry for LabRegistry {
    fn run_features<S: Sink>(
        &self,
        place: Place<'_>,
        config: &Config,
        sink: S,
        control: &Control,
        opened: impl FnOnce(&CapsReport),
    ) -> Result<RunReport, LaneError> {
        let spec: LaneSpec = place.lane.parse()?;
        let options = OpenOptions { force: false, cpu: Some(place.cpu) };
        let on_open = |caps: &[CapsReport]| opened(&caps[0]);
        let config = config.clone();
        let run = run_features(&spec, &[place.interface], config, sink, options, control, on_open)?;
        match run.failure {
            None => Ok(run.report),
            Some(failure) => Err(failure),
        }
    }

    fn run_frames<A: FrameApp>(
        &self,
        place: Place<'_>,
        app: &mut A,
        control: &Control,
        opened: impl FnOnce(&CapsReport),
    ) -> Result<RunReport, LaneError> {
        let spec: LaneSpec = place.lane.parse()?;
        let options = OpenOptions { force: false, cpu: Some(place.cpu) };
        run_frame_app(&spec, place.interface, app, options, control, opened)
    }
}
