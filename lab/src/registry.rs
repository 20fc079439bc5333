//! What the lab needs from whoever knows the lanes and apps by name: the binary's registry.
//!
//! The lab races lanes without naming one, so its children are handed the things that only the
//! registry can do. All run on the calling thread until `control` says stop or the app is done.

use crate::plan::Shape;
use laneway_core::{CapsReport, DatagramApp, FrameApp, LaneError};
use laneway_echo::Config as EchoConfig;
use laneway_engine::{Control, RunReport};
use laneway_features::{Config, Sink};
use laneway_forward::Config as ForwardConfig;
use std::net::SocketAddr;

/// A lane to open, and where.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Lane spec as text.
    pub lane: &'a str,
    /// Interfaces of the calling thread's network namespace, one per port.
    pub interfaces: &'a [&'a str],
    /// Where a lane of datagrams listens, one per port: the address is the interface's own.
    pub addresses: &'a [SocketAddr],
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
    fn run_features<S: Sink + Send>(
        &self,
        place: Place<'_>,
        config: &Config,
        sink: S,
        control: &Control,
        opened: impl FnOnce(&CapsReport) + Send,
    ) -> Result<RunReport, LaneError>;

    /// Runs the echo responder, in the kernel where the lane does so.
    ///
    /// # Errors
    /// As for [`run_features`](Self::run_features).
    fn run_echo(
        &self,
        place: Place<'_>,
        config: &EchoConfig,
        control: &Control,
        opened: impl FnOnce(&CapsReport) + Send,
    ) -> Result<RunReport, LaneError>;

    /// Runs the forwarder with these flow rules, in the kernel where the lane does so; `opened` is
    /// told in the facts of the report how many rules there are, where they are executed and why there.
    ///
    /// # Errors
    /// As for [`run_features`](Self::run_features); also for a configuration or rule that the lane
    /// cannot execute.
    fn run_forward(
        &self,
        place: Place<'_>,
        config: &ForwardConfig,
        rules: &[String],
        control: &Control,
        opened: impl FnOnce(&CapsReport) + Send,
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

    /// Runs an app that is one for frames and one for datagrams on any lane, as whichever of the
    /// two the lane carries; `opened` is told which.
    ///
    /// # Errors
    /// As for [`run_features`](Self::run_features).
    fn run_either<A: FrameApp + DatagramApp>(
        &self,
        place: Place<'_>,
        app: &mut A,
        control: &Control,
        opened: impl FnOnce(Shape, &CapsReport),
    ) -> Result<RunReport, LaneError>;
}
