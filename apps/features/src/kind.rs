//! App `features` as a row of the table of apps: an extractor in user space, or its half in the kernel.
//!
//! Each worker has a sink of its own, made by [`Sinks`] on the worker's thread and closed there. What becomes of the
//! rows is the sink's; what becomes of every frame is the [`Ledger`], which a worker leaves behind.

use crate::{Config, Features, KernelFeatures, Ledger, Level, Sink, half};
use laneway_core::{KernelHalf, LaneError};
use laneway_kinds::{
    AppFacts, AppKind, Asks, Conclude, Counted, KernelOffer, LaneFacts, Metric, NoApp, Place,
    RaceFacts, RunReport, Shape, Traffic,
};
use std::marker::PhantomData;

/// Makes the sinks of a run.
pub trait Sinks: Sync {
    /// Where a worker's records and flows go.
    type Sink: Sink;

    /// The sink of worker `worker`, made on its thread.
    fn open(&self, worker: usize) -> Self::Sink;
}

/// The row, for sinks of one kind.
#[derive(Debug)]
pub struct FeaturesKind<S>(PhantomData<S>);

/// An extraction from a live lane, or from captures in their order.
#[derive(Debug)]
pub struct FeaturesRun<S> {
    /// What is extracted; one that [`crate::check`] has passed.
    pub config: Config,
    /// Where it goes.
    pub sinks: S,
}

impl<S: Sinks> AppKind for FeaturesKind<S> {
    const FACTS: AppFacts = AppFacts {
        name: "features",
        about: "packet and flow features for machine learning",
        race: RaceFacts {
            traffic: &[Traffic::Capture { tagged: true }],
            counted: Counted::Records,
            ports: 1,
            metrics: &[Metric::Rate, Metric::Cpu, Metric::WireToApp, Metric::AppOnly, Metric::Loss],
            peers: &[],
        },
    };
    type Run = FeaturesRun<S>;
    type Report = Ledger;
    type Frames = Features<S::Sink>;
    type Datagrams = NoApp;
    type Streams = NoApp;
    type Kernel = KernelFeatures<S::Sink>;

    fn shape(_run: &FeaturesRun<S>, lane: &LaneFacts) -> Result<Shape, LaneError> {
        let in_kernel = lane.carries.has(Shape::Kernel);
        Ok(if in_kernel { Shape::Kernel } else { Shape::Frames })
    }

    fn asks(run: &FeaturesRun<S>) -> Asks {
        let keeps_flows = run.config.level == Level::Flow;
        // It passes or drops, so a kernel half may run on the CPUs that flows hash to.
        Asks { keeps_flows, never_transmits: true, ..Asks::default() }
    }

    fn frames(run: &FeaturesRun<S>, place: Place<'_>) -> Result<Features<S::Sink>, LaneError> {
        // A lane that is bound to one receive queue says which.
        let queue = place.caps.first().and_then(|caps| caps.queue);
        let sink = run.sinks.open(place.worker);
        let app = Features::new(&run.config, place.ifindexes.to_vec(), sink);
        Ok(app.on_queue(queue.map_or(0, |queue| u16::try_from(queue).unwrap_or(u16::MAX))))
    }

    fn kernel(
        run: &FeaturesRun<S>,
        place: Place<'_>,
        _offer: &dyn KernelOffer,
    ) -> Result<KernelFeatures<S::Sink>, LaneError> {
        Ok(KernelFeatures::new(run.config.clone(), run.sinks.open(place.worker)))
    }

    fn sample_half() -> Option<KernelHalf> {
        Some(half(&Config::default()))
    }
}

impl<S: Sink> Conclude<Ledger> for Features<S> {
    fn conclude(self, run: &RunReport) -> Ledger {
        let ledger = Ledger::of_frames(run, &self);
        self.into_sink().close();
        ledger
    }
}

impl<S: Sink> Conclude<Ledger> for KernelFeatures<S> {
    fn conclude(self, run: &RunReport) -> Ledger {
        let ledger = Ledger::of_kernel(run, &self, self.config());
        self.into_sink().close();
        ledger
    }
}
