//! The arm: one lane, one app, its tally; a worker thread that races and a control thread that
//! talks.

use super::peer::Lent;
use super::tracing::Tracing;
use super::{ChildEnd, memory, peer, pipe};
use crate::apps::{Bounce, Count, Way};
use crate::bench::SUT_MAC;
use crate::plan::{App, ArmReport, ArmSetup, Order, Ready, Reply, Shape};
use crate::registry::{Place, Registry};
use crate::sink::LedgerSink;
use crate::tally::{Seen, Tally, Tell};
use crate::why::TRACER;
use laneway_core::{CapsReport, Counters, LaneError};
use laneway_echo::{Config as EchoConfig, Limits};
use laneway_engine::{Control, RunReport};
use laneway_features::{Config, Disposition};
use laneway_forward::Config as ForwardConfig;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// The lane whose addresses are the machine's own.
const KERNELS: &str = "socket";
/// How long a worker may take to answer; it ticks every 10 ms.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Is an arm until told to stop, or until its lane fails.
///
/// # Errors
/// When nobody says what to be, or the worker panicked.
pub fn serve(registry: &(impl Registry + Sync)) -> Result<ChildEnd, String> {
    let setup: ArmSetup = pipe::setup()?;
    if let Some(kind) = setup.peer {
        return Ok(peer::serve(kind, &setup));
    }
    let mut control = Control::default();
    let mut tracing = None;
    if let Some(plan) = &setup.trace {
        match Tracing::begin(plan, setup.cpu) {
            Ok((begun, slot)) => {
                tracing = Some(begun);
                control.trace = slot;
            }
            Err(error) => {
                pipe::reply(&Reply::Failed(format!("its trace: {error}")));
                return Ok(ChildEnd::FailureTold);
            }
        }
    }
    let (tell, tells) = mpsc::channel();
    let (answers, seen) = mpsc::channel();
    let (opened, open) = mpsc::channel();
    let end = thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let tally = Tally::new(tells, answers, setup.plant);
            let done = run(registry, &setup, tally, &control, |shape, caps| {
                // The control thread waits for it.
                let _ = opened.send((shape, caps.clone()));
            });
            drop(opened);
            match done {
                Ok(_) => ChildEnd::Done,
                Err(error) => {
                    pipe::reply(&Reply::Failed(error.to_string()));
                    ChildEnd::FailureTold
                }
            }
        });
        if let Ok((shape, caps)) = open.recv() {
            let mut ready = Ready { caps: caps.clone(), shape, processes: Vec::new() };
            if setup.trace.as_ref().is_some_and(|trace| trace.folder.is_none()) {
                ready.caps.fact(TRACER, "records what the worker does while it is measured");
            }
            pipe::reply(&Reply::Ready(ready));
            let tally = setup.app.ticks_off().then_some((&tell, &seen));
            converse(&control, tally, tracing.as_ref(), caps);
        }
        control.stop.request();
        worker.join().map_err(|_| "the arm's worker panicked".to_owned())
    })?;
    match (end, tracing) {
        (ChildEnd::Done, Some(tracing)) => Ok(match tracing.end() {
            Ok(end) => {
                pipe::reply(&Reply::Traced(end));
                ChildEnd::Done
            }
            Err(error) => {
                pipe::reply(&Reply::Failed(format!("its trace: {error}")));
                ChildEnd::FailureTold
            }
        }),
        (end, _) => Ok(end),
    }
}

/// Runs the arm's app on its lane until told to stop.
fn run(
    registry: &impl Registry,
    setup: &ArmSetup,
    tally: Tally,
    control: &Control,
    opened: impl FnOnce(Shape, &CapsReport) + Send,
) -> Result<RunReport, LaneError> {
    let interfaces: Vec<&str> = setup.interfaces.iter().map(String::as_str).collect();
    let addresses: Vec<SocketAddr> = setup.addresses.iter().map(|&at| at.into()).collect();
    let place =
        Place { lane: &setup.lane, interfaces: &interfaces, addresses: &addresses, cpu: setup.cpu };
    match setup.app {
        App::Features => {
            // What the extractor keeps is not to go on into the stack where the lane can prevent
            // it: an interface that is read by one consumer, as behind a mirror port.
            let config = Config {
                disposition: Disposition::Drop,
                number_from_mac: true,
                ..Config::default()
            };
            let sink = LedgerSink::new(tally);
            let opened = |caps: &CapsReport| opened(Shape::Frames, caps);
            registry.run_features(place, &config, sink, control, opened)
        }
        App::Count => registry.run_either(place, &mut Count::new(tally), control, opened),
        App::Bounce => {
            registry.run_either(place, &mut Bounce::new(tally, Way::Back), control, opened)
        }
        App::Across => {
            let way = Way::Across(setup.onward.into());
            registry.run_either(place, &mut Bounce::new(tally, way), control, opened)
        }
        App::Echo => {
            let _lent = lent(setup)?;
            let own = addresses.iter().map(SocketAddr::ip);
            // What is measured is answering, not refusing.
            let config = EchoConfig { limits: Limits::none(), ..EchoConfig::new(SUT_MAC, own) };
            let opened = |caps: &CapsReport| opened(Shape::Frames, caps);
            registry.run_echo(place, &config, control, opened)
        }
        App::Forward => {
            let (config, rules) = forwarder(setup)?;
            let opened = |caps: &CapsReport| opened(Shape::Frames, caps);
            registry.run_forward(place, &config, rules, control, opened)
        }
    }
}

/// The addresses of a responder on a lane that answers at the kernel's: the interface has them meanwhile.
fn lent(setup: &ArmSetup) -> Result<Vec<Lent<'_>>, LaneError> {
    if setup.lane.split(':').next() != Some(KERNELS) {
        return Ok(Vec::new());
    }
    let pairs = setup.interfaces.iter().zip(&setup.addresses);
    pairs.map(|(interface, at)| Lent::new(interface, *at.ip())).collect::<Result<_, _>>().map_err(
        |why| LaneError::Refused {
            lane: KERNELS.to_owned(),
            name: setup.lane.clone(),
            why,
            hint: "run `ip address` by hand to see why".to_owned(),
        },
    )
}

/// What the forwarder is told. The race has checked it, so only another version's race can be refused.
fn forwarder(setup: &ArmSetup) -> Result<(ForwardConfig, &[String]), LaneError> {
    let refused = |(what, value, why): (&str, String, String)| LaneError::Refused {
        lane: setup.lane.clone(),
        name: format!("{what} `{value}`"),
        why,
        hint: "run `laneway race forward`".to_owned(),
    };
    let plan = setup.forward.as_ref();
    let plan = plan.ok_or_else(|| refused(("mode", String::new(), "none was told".to_owned())))?;
    Ok((plan.config().map_err(refused)?, &plan.rules))
}

/// Obeys until told to stop, or the worker is gone.
fn converse(
    control: &Control,
    tally: Option<(&mpsc::Sender<Tell>, &mpsc::Receiver<Seen>)>,
    tracing: Option<&Tracing>,
    mut caps: CapsReport,
) {
    loop {
        match pipe::order() {
            Order::Stop => return,
            Order::Segment(plan) => {
                if let Some(tracing) = tracing {
                    tracing.expect(&plan);
                }
                if tally.is_some_and(|(tell, _)| tell.send(Tell::Segment(plan)).is_err()) {
                    return;
                }
            }
            Order::Report => {
                // The tally is told before the worker is looked at, so the same tick serves both.
                if tally.is_some_and(|(tell, _)| tell.send(Tell::Report).is_err()) {
                    return;
                }
                let Some(run) = control.watch.look(ANSWER_MAX) else { return };
                let seen = match tally {
                    Some((_, seen)) => seen.recv_timeout(ANSWER_MAX),
                    None => Ok(Seen::default()),
                };
                let Ok(seen) = seen else { return };
                let mut lane = Counters::default();
                for port in &run.ports {
                    lane.merge(&port.counters);
                    caps.clone_from(&port.caps);
                }
                pipe::reply(&Reply::Report(Box::new(ArmReport {
                    lane,
                    app: run.app,
                    segments: seen.segments,
                    foreign: seen.foreign,
                    wakeups_ns: seen.wakeups_ns,
                    memory: memory::read(&caps),
                })));
            }
        }
    }
}
