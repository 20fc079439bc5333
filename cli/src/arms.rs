//! The runner as the lab's children use it: an arm opens its lane where every user's run does.

use laneway_core::{CapsReport, DatagramApp, FrameApp, LaneError};
use laneway_echo::{Config as EchoConfig, EchoKind, EchoRun};
use laneway_engine::{Control, RunReport, WorkerId};
use laneway_features::{Config, FeaturesKind, FeaturesRun, Sink, Sinks};
use laneway_forward::{
    Config as ForwardConfig, Console, ForwardKind, ForwardRun, LiveStats, RuleSet, check_on,
};
use laneway_kinds::{AppKind, Shape as Carried};
use laneway_lab::{Place, Registry, Shape};
use laneway_registry::{Crew, Either, LaneTable, Order, facts_of, run, run_either, run_source};
use laneway_spec::LaneSpec;
use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

/// The lanes of a table, and this program's apps.
pub(crate) struct Arms<L>(PhantomData<fn() -> L>);

impl<L> Arms<L> {
    pub(crate) fn new() -> Arms<L> {
        Arms(PhantomData)
    }
}

/// Runs an app as an arm does: by the calling thread, on the CPU of the arm.
fn arm<A: AppKind, L: LaneTable>(
    place: Place<'_>,
    app: &A::Run,
    control: &Control,
    opened: impl FnOnce(&CapsReport) + Send,
) -> Result<RunReport, LaneError> {
    let spec: LaneSpec = place.lane.parse()?;
    let opened = Mutex::new(Some(opened));
    let on_open = |_: WorkerId, caps: &[CapsReport]| {
        let opened = opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(opened), Some(caps)) = (opened, caps.first()) {
            opened(caps);
        }
    };
    let crew = Crew::Here { control, cpu: Some(place.cpu) };
    let order = Order { spec: &spec, interfaces: place.interfaces, force: false, crew };
    let mut ran = run::<A, L>(app, order, &on_open)?;
    match (ran.failure, ran.workers.pop().and_then(|worker| worker.run)) {
        (Some((_, failure)), _) => Err(failure),
        (None, Some(report)) => Ok(report),
        (None, None) => unreachable!("a run without a failure has the report of its worker"),
    }
}

/// A sink that is there once.
struct Once<S>(Mutex<Option<S>>);

impl<S: Sink + Send> Sinks for Once<S> {
    type Sink = S;

    fn open(&self, _worker: usize) -> S {
        let sink = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        sink.expect("an arm has one worker")
    }
}

impl<L: LaneTable> Registry for Arms<L> {
    fn run_features<S: Sink + Send>(
        &self,
        place: Place<'_>,
        config: &Config,
        sink: S,
        control: &Control,
        opened: impl FnOnce(&CapsReport) + Send,
    ) -> Result<RunReport, LaneError> {
        let sinks = Once(Mutex::new(Some(sink)));
        let run = FeaturesRun { config: config.clone(), sinks };
        arm::<FeaturesKind<Once<S>>, L>(place, &run, control, opened)
    }

    fn run_echo(
        &self,
        place: Place<'_>,
        config: &EchoConfig,
        control: &Control,
        opened: impl FnOnce(&CapsReport) + Send,
    ) -> Result<RunReport, LaneError> {
        let run = EchoRun::Pings { config: config.clone(), before: None };
        arm::<EchoKind, L>(place, &run, control, opened)
    }

    fn run_forward(
        &self,
        place: Place<'_>,
        config: &ForwardConfig,
        rules: &[String],
        control: &Control,
        opened: impl FnOnce(&CapsReport) + Send,
    ) -> Result<RunReport, LaneError> {
        let spec: LaneSpec = place.lane.parse()?;
        let lane = facts_of::<L>(&spec)?;
        let refused = |why: String| {
            let hint = "change `[forward]` of the scenario, or its `rules` of this arm";
            lane.refuse(&place.interfaces.join(","), &why, hint)
        };
        check_on(lane, config).map_err(|why| refused(why.to_string()))?;
        let mut set = match lane.carries.has(Carried::Kernel) {
            true => RuleSet::for_kernel(config.bounds()),
            false => RuleSet::for_user(config.bounds()),
        };
        for line in rules {
            set.run(line).map_err(|why| refused(format!("`{line}`: {why}")))?;
        }
        set.commit();
        // Without a rule there is nothing to look up, as without the options that give some.
        let console = (!set.is_empty()).then(|| Arc::new(Console::new(set, LiveStats::default())));
        let rules = console.clone();
        let opened = |caps: &CapsReport| {
            let mut caps = caps.clone();
            // Ports have been offered the rules by now.
            let rules = rules.map_or_else(|| "none".to_owned(), |rules| told(&rules.rules()));
            caps.fact("rules", rules);
            opened(&caps);
        };
        let run =
            ForwardRun::new(config.clone(), console).map_err(|why| refused(why.to_string()))?;
        arm::<ForwardKind, L>(place, &run, control, opened)
    }

    fn run_frames<A: FrameApp>(
        &self,
        place: Place<'_>,
        app: &mut A,
        control: &Control,
        opened: impl FnOnce(&CapsReport),
    ) -> Result<RunReport, LaneError> {
        let spec: LaneSpec = place.lane.parse()?;
        let crew = Crew::Here { control, cpu: Some(place.cpu) };
        let order = Order { spec: &spec, interfaces: place.interfaces, force: false, crew };
        whole(run_source::<A, L>(app, order, opened)?)
    }

    fn run_either<A: FrameApp + DatagramApp>(
        &self,
        place: Place<'_>,
        app: &mut A,
        control: &Control,
        opened: impl FnOnce(Shape, &CapsReport),
    ) -> Result<RunReport, LaneError> {
        let spec: LaneSpec = place.lane.parse()?;
        let crew = Crew::Here { control, cpu: Some(place.cpu) };
        let order = Order { spec: &spec, interfaces: place.interfaces, force: false, crew };
        let opened = |shape, caps: &CapsReport| match shape {
            Either::Frames => opened(Shape::Frames, caps),
            Either::Datagrams => opened(Shape::Datagrams, caps),
        };
        whole(run_either::<A, L>(app, order, place.addresses, opened)?)
    }
}

fn whole((report, failure): (RunReport, Option<LaneError>)) -> Result<RunReport, LaneError> {
    failure.map_or(Ok(report), Err)
}

/// How many rules there are, where they are executed, and why there.
fn told(set: &RuleSet) -> String {
    let ports = 0..set.ports();
    let places: BTreeSet<String> = ports
        .flat_map(|port| set.rules(port))
        .map(|(_, _, placement)| format!("{} ({})", placement.place.name(), placement.reason))
        .collect();
    let places: Vec<String> = places.into_iter().collect();
    format!("{}, executed in: {}", set.len(), places.join("; "))
}
