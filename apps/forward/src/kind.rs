//! App `forward` as a row of the table of apps.
//!
//! **What its workers share**: the ports; configuration, routes and neighbours, which do not change; the stations of
//! mode `l2`, so that what one worker learned all know; and the rule set, which every worker takes between two of
//! its bursts. **What is each worker's own**: its queue or socket of every port, its copy of what rules matched, and
//! what became of its frames. A worker sends by its own queues, so the frames of a flow stay in order as long as the
//! flow stays with one worker.
//!
//! `queue` and `rss` move a frame to another worker only where the port itself executes them (rte_flow): software
//! never hands a frame over, as that would cost a lock or a copy per frame. What becomes of a frame is the same
//! either way.

use crate::command::Talks;
use crate::{Config, ConfigError, Console, Forward, KernelForward, LiveStats, Mode, Stats};
use laneway_core::{KernelHalf, LaneError};
use laneway_flow::Offload;
use laneway_kinds::{
    AppFacts, AppKind, Asks, Conclude, KernelOffer, LaneFacts, NoApp, Peer, Place, RaceFacts,
    Report, RunReport, Shape,
};
use std::io;
use std::sync::{Arc, PoisonError};

/// The row.
#[derive(Debug)]
pub struct ForwardKind;

/// A run between interfaces.
pub struct ForwardRun {
    pub(crate) config: Config,
    /// Every worker's app over frames is one beside this.
    first: Forward,
    /// The console that answers about rules and frames while it runs; none where there are no rules and none can come.
    pub(crate) console: Option<Arc<Console>>,
    /// What became of the frames so far, for that console and for clients of `--metrics`.
    pub(crate) live: LiveStats,
    /// The clients that may talk to it, of a run by its arguments.
    pub(crate) talks: Talks,
}

impl ForwardRun {
    /// A run under the rules of `console`, which are of the shape that the run has on its lane.
    ///
    /// # Errors
    /// [`ConfigError`] with the value and what to try.
    pub fn new(config: Config, console: Option<Arc<Console>>) -> Result<ForwardRun, ConfigError> {
        let first = Forward::new(config.clone())?;
        let live = console.as_ref().map(|console| console.live().clone()).unwrap_or_default();
        Ok(ForwardRun { config, first, console, live, talks: Talks::default() })
    }
}

/// Whether a configuration can be executed on a lane: a kernel half has limits of its own.
///
/// # Errors
/// One sentence with the value and what to try.
pub fn check_on(lane: &LaneFacts, config: &Config) -> Result<(), ConfigError> {
    config.check()?;
    if lane.carries.has(Shape::Kernel) {
        KernelForward::new(config, &vec![0; config.ports], None)?;
    }
    Ok(())
}

/// What became of a worker's frames.
#[derive(Clone, Debug, Default)]
pub struct ForwardReport {
    /// By fate.
    pub stats: Stats,
    /// Mode `l2`: times that a station was not learned because its place in the table was taken.
    pub unlearned: u64,
    /// The kernel's answer about a map of the kernel half, if it failed.
    failure: Option<String>,
}

impl Report for ForwardReport {
    fn merge(&mut self, other: &ForwardReport) {
        self.stats.add(&other.stats);
        self.unlearned += other.unlearned;
    }

    fn failure(&self) -> Option<LaneError> {
        self.failure.as_ref().map(|why| LaneError::Os {
            lane: ForwardKind::FACTS.name.to_owned(),
            doing: "reading or writing the forwarder's maps".to_owned(),
            source: io::Error::other(why.clone()),
            hint: "start it again".to_owned(),
        })
    }
}

impl AppKind for ForwardKind {
    const FACTS: AppFacts = AppFacts {
        name: "forward",
        about: "forwards between interfaces as testpmd does, with its flow rules",
        race: RaceFacts {
            peers: &[Peer::Testpmd, Peer::Bridge, Peer::XdpBench],
            ..RaceFacts::FORWARDED
        },
    };
    type Run = ForwardRun;
    type Report = ForwardReport;
    type Frames = Forward;
    type Datagrams = NoApp;
    type Streams = NoApp;
    type Kernel = KernelForward;

    fn shape(_run: &ForwardRun, lane: &LaneFacts) -> Result<Shape, LaneError> {
        let in_kernel = lane.carries.has(Shape::Kernel);
        Ok(if in_kernel { Shape::Kernel } else { Shape::Frames })
    }

    fn asks(_run: &ForwardRun) -> Asks {
        Asks { keeps_flows: true, ..Asks::default() }
    }

    fn frames(run: &ForwardRun, place: Place<'_>) -> Result<Forward, LaneError> {
        let mut app = run.first.beside().with_live(run.live.slot());
        if let Some(console) = &run.console {
            // A change of rules waits for this worker from now on.
            app = app.with_rules(
                console.rules().feed().expect("rules of user space").with_bell(place.bell),
            );
        }
        Ok(app)
    }

    fn kernel(
        run: &ForwardRun,
        place: Place<'_>,
        _offer: &dyn KernelOffer,
    ) -> Result<KernelForward, LaneError> {
        let feed = run
            .console
            .as_ref()
            .map(|console| console.rules().kernel_feed().expect("rules of the kernel half"))
            .map(|feed| feed.with_bell(place.bell));
        let app = KernelForward::new(&run.config, place.ifindexes, feed);
        Ok(app.expect("`check_on` has passed it").with_live(run.live.slot()))
    }

    fn sample_half() -> Option<KernelHalf> {
        let config = Config { mode: Mode::Io, ports: 2, ..Config::default() };
        let app = KernelForward::new(&config, &[1, 2], None).ok()?;
        Some(laneway_core::KernelApp::half(&app))
    }

    fn offer(run: &ForwardRun, offload: Box<dyn Offload>) {
        let Some(console) = &run.console else { return };
        let mut rules = console.shared().lock().unwrap_or_else(PoisonError::into_inner);
        rules.offer_to(offload);
        // Nothing waits for the workers; the ports are offered what is there.
        rules.commit();
    }

    fn withdraw(run: &ForwardRun) {
        if let Some(console) = &run.console {
            console.shared().lock().unwrap_or_else(PoisonError::into_inner).withdraw();
        }
    }
}

impl Conclude<ForwardReport> for Forward {
    fn conclude(self, _run: &RunReport) -> ForwardReport {
        ForwardReport { stats: self.stats().clone(), unlearned: self.unlearned(), failure: None }
    }
}

impl Conclude<ForwardReport> for KernelForward {
    fn conclude(self, _run: &RunReport) -> ForwardReport {
        let failure = self.failure().map(ToString::to_string);
        ForwardReport { stats: self.stats().clone(), unlearned: 0, failure }
    }
}
