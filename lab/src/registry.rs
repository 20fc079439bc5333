//! What the lab needs from whoever knows the lanes and apps by name: the binary's registry.
//!
//! The lab races lanes without naming one, so its children are handed the two things that only the
//! registry can do. Both run on the calling thread until `control` says stop or the app is done.

use laneway_core::{CapsReport, FrameApp, LaneError};
use laneway_engine::{Control, RunReport};
use laneway_features::{Config, Sink};

/// A lane to open, and where.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Lane spec as text.
    pub lane: &'a str,
    /// Interface of the calling thread's network namespace.
    pub interface: &'a str,
    /// CPU to stay on.
    pub cpu: usize,
}

/// Opens lanes and runs apps on them.
pub trait Registry {
    /// Runs the feature extractor; `opened` is called once the lane is open, before its first
    /// frame.
    ///
    /// # Errors
    /// When the lane cannot be opened, or fails.
    fn run_features<S: Sink>(
        &self,
        place: Place<'_>,
        config: &Config,
        sink: S,
        control: &Control,
        opened: impl FnOnce(&CapsReport),
    ) -> Result<RunReport, LaneError>;

    /// Runs any frame app on a frame lane.
    ///
    /// # Errors
    /// As for [`run_features`](Self::run_features).
    fn run_frames<A: FrameApp>(
        &self,
        place: Place<'_>,
        app: &mut A,
        control: &Control,
        opened: impl FnOnce(&CapsReport),
    ) -> Result<RunReport, LaneError>;
}
