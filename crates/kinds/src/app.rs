//! An app as a row of a table: the shapes that it has, how each is built for one worker, and what it reports.

use crate::{GroupHolder, LaneFacts, LinkAddresses, RaceFacts, RunReport, Shape, Shapes};
use laneway_core::{
    Bell, CapsReport, DatagramApp, FrameApp, KernelApp, KernelHalf, LaneError, StreamApp,
};
use laneway_flow::Offload;
use std::net::{IpAddr, SocketAddr};

/// Facts of an app that hold in every configuration.
#[derive(Clone, Copy, Debug)]
pub struct AppFacts {
    /// Its name on the command line and in results.
    pub name: &'static str,
    /// What it does, in a few words.
    pub about: &'static str,
    /// What a race of it is.
    pub race: RaceFacts,
}

/// The addresses of a service, for a stack in user space below it. The kernel's sockets need none of it but the
/// addresses to listen at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// Where it listens; port `i` of the lane is `listen[i]`.
    pub listen: Vec<SocketAddr>,
    /// Its addresses on each interface, in their order; empty on lanes whose sockets are the kernel's.
    pub own: Vec<Own>,
    /// Time to live of what the stack sends; its own default if not given.
    pub hop_limit: Option<u8>,
}

/// The addresses of a stack on one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// Link address.
    pub mac: [u8; 6],
    /// Addresses with the length of their prefix; length 0 answers every host directly.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Largest IP packet, bytes; the usual one if not given.
    pub mtu_bytes: Option<usize>,
}

/// What a run asks of its lane.
#[derive(Clone, Debug, Default)]
pub struct Asks {
    /// Of a datagram or stream app.
    pub service: Service,
    /// Of a stream app: where it is sent datagrams as well, by sockets of the kernel that the same worker serves
    /// ([`StreamApp::on_datagrams`]). On a lane of kernel halves the app's half runs in front of both.
    pub datagrams: Vec<SocketAddr>,
    /// The packets of a flow must be one worker's.
    pub keeps_flows: bool,
    /// The app sends nothing.
    pub never_transmits: bool,
    /// The app goes on where one of several interfaces of its kernel half is gone.
    pub outlives_interfaces: bool,
}

/// The worker that an app is built for, when its lane is open.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Which of the workers, from 0.
    pub worker: usize,
    /// How many workers there are.
    pub workers: usize,
    /// Interfaces or files, by port.
    pub interfaces: &'a [&'a str],
    /// The number of each interface; 0 for a file, which has none.
    pub ifindexes: &'a [u32],
    /// What each port asked for and obtained. Empty for a kernel half, which is built before its lane is open.
    pub caps: &'a [CapsReport],
    /// Wakes the worker and has the app called: to be cloned by what another thread does for it.
    pub bell: &'a Bell,
}

/// What an app says when its run is over.
pub trait Conclude<R> {
    /// False of the app of a shape that is not there: nothing that would run it is compiled.
    const IS_THERE: bool = true;

    /// Consumes the app; `run` is what lane and engine say of the same worker.
    fn conclude(self, run: &RunReport) -> R;
}

/// What a worker's app leaves behind; it adds up over workers.
pub trait Report: Send {
    /// Adds the report of another worker of the same run.
    fn merge(&mut self, other: &Self);

    /// What went wrong beside the lane, if that is what ended the run.
    fn failure(&self) -> Option<LaneError> {
        None
    }
}

/// What a lane offers to an app that has a half in the kernel, before it is loaded for good.
pub trait KernelOffer {
    /// Whether the kernel would take this half: loads it and lets it go again.
    ///
    /// # Errors
    /// Why it does not.
    fn check(&self, half: &KernelHalf) -> Result<(), LaneError>;

    /// What makes the kernel a member of groups on the run's interfaces; as
    /// [`LaneKind::group_holder`](crate::LaneKind::group_holder).
    fn group_holder(&self) -> Option<Box<dyn GroupHolder>>;

    /// What the kernel knows of neighbours on them; as
    /// [`LaneKind::link_addresses`](crate::LaneKind::link_addresses).
    fn link_addresses(&self) -> Option<Box<dyn LinkAddresses>>;
}

/// An app, as a row of a table. Each app implements it once, in its own folder.
///
/// The types of shapes that it does not have are [`crate::NoApp`].
pub trait AppKind {
    /// Facts that hold in every configuration.
    const FACTS: AppFacts;
    /// The shapes that it has, as its types say.
    const SHAPES: Shapes = Shapes::NONE
        .and(Shapes::FRAMES.only_if(<Self::Frames as Conclude<Self::Report>>::IS_THERE))
        .and(Shapes::DATAGRAMS.only_if(<Self::Datagrams as Conclude<Self::Report>>::IS_THERE))
        .and(Shapes::STREAMS.only_if(<Self::Streams as Conclude<Self::Report>>::IS_THERE))
        .and(Shapes::KERNEL.only_if(<Self::Kernel as Conclude<Self::Report>>::IS_THERE));

    /// A run: its configuration, checked, and what its workers share. Nothing of it is looked at per frame.
    type Run: Sync;
    /// What a worker leaves behind.
    type Report: Report;

    /// The app over frames.
    type Frames: FrameApp + Conclude<Self::Report>;
    /// The app over datagrams.
    type Datagrams: DatagramApp + Conclude<Self::Report>;
    /// The app over streams.
    type Streams: StreamApp + Conclude<Self::Report>;
    /// The user-space part of the app whose decision is the kernel's.
    type Kernel: KernelApp + Conclude<Self::Report>;

    /// Which of its shapes this run has on a lane.
    ///
    /// # Errors
    /// When the lane carries none that fits: the reason and what to try.
    fn shape(run: &Self::Run, lane: &LaneFacts) -> Result<Shape, LaneError>;

    /// What this run asks of the lane.
    fn asks(run: &Self::Run) -> Asks;

    /// Builds a worker's app over frames, on its thread.
    ///
    /// # Errors
    /// When it cannot be, or the app has no such shape.
    fn frames(_run: &Self::Run, _place: Place<'_>) -> Result<Self::Frames, LaneError> {
        Err(has_no_shape(Self::FACTS.name, Shape::Frames))
    }

    /// Builds a worker's app over datagrams, on its thread.
    ///
    /// # Errors
    /// As [`frames`](Self::frames).
    fn datagrams(_run: &Self::Run, _place: Place<'_>) -> Result<Self::Datagrams, LaneError> {
        Err(has_no_shape(Self::FACTS.name, Shape::Datagrams))
    }

    /// Builds a worker's app over streams, on its thread.
    ///
    /// # Errors
    /// As [`frames`](Self::frames).
    fn streams(_run: &Self::Run, _place: Place<'_>) -> Result<Self::Streams, LaneError> {
        Err(has_no_shape(Self::FACTS.name, Shape::Streams))
    }

    /// Builds the app whose half is about to be loaded.
    ///
    /// # Errors
    /// As [`frames`](Self::frames).
    fn kernel(
        _run: &Self::Run,
        _place: Place<'_>,
        _offer: &dyn KernelOffer,
    ) -> Result<Self::Kernel, LaneError> {
        Err(has_no_shape(Self::FACTS.name, Shape::Kernel))
    }

    /// The kernel half of a plain run, for asking a machine whether a lane can load one.
    fn sample_half() -> Option<KernelHalf> {
        None
    }

    /// The ports' own execution of flow rules, before the first worker runs.
    fn offer(_run: &Self::Run, _offload: Box<dyn Offload>) {}

    /// Every worker has ended: the ports' execution of rules is given back.
    fn withdraw(_run: &Self::Run) {}
}

/// That an app has no such shape.
pub fn has_no_shape(app: &str, shape: Shape) -> LaneError {
    LaneError::Refused {
        lane: app.to_owned(),
        name: shape.name().to_owned(),
        why: format!("the app has no {shape}"),
        hint: "use a lane that carries what the app has".to_owned(),
    }
}
