//! The registry as the lab's children use it: an arm opens its lane where every user's run does.

use super::{
    Lane, OnFrameLane, OpenOptions, check_forward, forward_rules, run_features, run_forward,
    run_frame_app, run_pings, with_frame_lane,
};
use laneway_core::{CapsReport, DatagramApp, DatagramLane, FrameApp, FrameLane, LaneError, PortId};
use laneway_echo::Config as EchoConfig;
use laneway_engine::{
    Control, MonotonicClock, RunFailed, RunReport, pin_to_cpu, run_datagrams, run_frames,
};
use laneway_features::{Config, Sink};
use laneway_forward::{Config as ForwardConfig, RuleSet};
use laneway_lab::{Place, Registry, Shape};
use laneway_socket::UdpLane;
use laneway_spec::{IdlePolicy, LaneSpec};
use laneway_uring::UringUdp;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

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
        let run = run_features(&spec, place.interfaces, config, sink, options, control, on_open)?;
        match run.failure {
            None => Ok(run.report),
            Some(failure) => Err(failure),
        }
    }

    fn run_echo(
        &self,
        place: Place<'_>,
        config: &EchoConfig,
        control: &Control,
        opened: impl FnOnce(&CapsReport),
    ) -> Result<RunReport, LaneError> {
        let spec: LaneSpec = place.lane.parse()?;
        let options = OpenOptions { force: false, cpu: Some(place.cpu) };
        let on_open = |caps: &[CapsReport]| opened(&caps[0]);
        let run = run_pings(&spec, place.interfaces, config, None, options, control, on_open)?;
        match run.failure {
            None => Ok(run.report),
            Some(failure) => Err(failure),
        }
    }

    fn run_forward(
        &self,
        place: Place<'_>,
        config: &ForwardConfig,
        rules: &[String],
        control: &Control,
        opened: impl FnOnce(&CapsReport),
    ) -> Result<RunReport, LaneError> {
        let spec: LaneSpec = place.lane.parse()?;
        let refused = |why: String| LaneError::Refused {
            lane: spec.lane().to_owned(),
            name: place.interfaces.join(","),
            why,
            hint: "change `[forward]` of the scenario, or its `rules` of this arm".to_owned(),
        };
        check_forward(&spec, config).map_err(|why| refused(why.to_string()))?;
        let mut set = forward_rules(&spec, config)?;
        for line in rules {
            set.run(line).map_err(|why| refused(format!("`{line}`: {why}")))?;
        }
        set.commit();
        // Without a rule there is nothing to look up, as without the options that give some.
        let set = (!set.is_empty()).then(|| Mutex::new(set));
        let on_open = |caps: &[CapsReport]| {
            let mut caps = caps[0].clone();
            // Ports have been offered the rules by now.
            let rules = set.as_ref().map(|set| set.lock().unwrap_or_else(PoisonError::into_inner));
            caps.fact("rules", rules.map_or_else(|| "none".to_owned(), |rules| told(&rules)));
            opened(&caps);
        };
        let options = OpenOptions { force: false, cpu: Some(place.cpu) };
        let (interfaces, set) = (place.interfaces, set.as_ref());
        let run = run_forward(&spec, interfaces, config, set, options, control, on_open)?;
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
        run_frame_app(&spec, place.interfaces, app, options, control, opened)
    }

    fn run_either<A: FrameApp + DatagramApp>(
        &self,
        place: Place<'_>,
        app: &mut A,
        control: &Control,
        opened: impl FnOnce(Shape, &CapsReport),
    ) -> Result<RunReport, LaneError> {
        let spec: LaneSpec = place.lane.parse()?;
        let lane = Lane::of(&spec)?.lane;
        pin_to_cpu(place.cpu)?;
        let either = Either { idle: spec.knobs().idle()?, app, control, opened };
        match lane {
            Lane::Socket => either.datagrams(UdpLane::open(&spec, place.addresses)?),
            Lane::Uring => either.datagrams(UringUdp::open(&spec, place.addresses)?),
            _ => Ok(with_frame_lane(&spec, place.interfaces, false, either)??),
        }
    }
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

/// What every lane needs to run an app of either shape.
struct Either<'a, A, F> {
    idle: IdlePolicy,
    app: &'a mut A,
    control: &'a Control,
    opened: F,
}

impl<A: FrameApp, F: FnOnce(Shape, &CapsReport)> OnFrameLane for Either<'_, A, F> {
    type Out = Result<RunReport, RunFailed>;

    fn on_lane<L: FrameLane>(self, lane: &mut L) -> Self::Out {
        (self.opened)(Shape::Frames, lane.caps(PortId(0)));
        run_frames(lane, self.app, &MonotonicClock, self.idle, self.control)
    }
}

impl<A: DatagramApp, F: FnOnce(Shape, &CapsReport)> Either<'_, A, F> {
    fn datagrams<L: DatagramLane>(self, mut lane: L) -> Result<RunReport, LaneError> {
        (self.opened)(Shape::Datagrams, lane.caps(PortId(0)));
        Ok(run_datagrams(&mut lane, self.app, &MonotonicClock, self.idle, self.control)?)
    }
}
