//! A lane that a child of a race opens by itself: for sources of traffic, and for far ends.

use laneway_core::{CapsReport, FrameApp, LaneError};
use laneway_engine::{Control, RunReport};
use laneway_registry::{Crew, LaneTable, Order, run_source};
use laneway_spec::LaneSpec;

/// A lane to open, and where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneTarget<'a> {
    /// Lane spec as text.
    pub(crate) lane: &'a str,
    /// Interfaces of the calling thread's network namespace, one per port.
    pub(crate) interfaces: &'a [&'a str],
    /// CPU to stay on.
    pub(crate) cpu: usize,
}

impl LaneTarget<'_> {
    /// Runs a frame app that stays the caller's, until `control` says stop or the app is done; `opened` is called
    /// once the lane is open.
    ///
    /// # Errors
    /// When the lane cannot be opened, or fails.
    pub(crate) fn run<A: FrameApp, L: LaneTable>(
        self,
        app: &mut A,
        control: &Control,
        opened: impl FnOnce(&CapsReport),
    ) -> Result<RunReport, LaneError> {
        let spec: LaneSpec = self.lane.parse()?;
        let crew = Crew::Here { control, cpu: Some(self.cpu) };
        let order = Order { spec: &spec, interfaces: self.interfaces, force: false, crew };
        let (report, failure) = run_source::<A, L>(app, order, opened)?;
        failure.map_or(Ok(report), Err)
    }
}
