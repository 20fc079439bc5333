//! The arm: one lane, one app, its tally; a worker thread that races and a control thread that
//! talks.

use super::borrowed_address::BorrowedAddress;
use super::tracing::Tracing;
use super::{ChildEnd, memory, peer, pipe};
use crate::addresses::SUT_MAC;
use crate::apps::Eye;
use crate::disk::Disk;
use crate::fanout::ArmFanout;
use crate::plan::{ArmReport, ArmSetup, Order, Ready, Reply, Shape};
use crate::tables::{Raced, Tables, TablesOf, arm_words, has, parse, program, sentence_of};
use crate::tally::{Seen, Tally, TallyOrder};
use crate::timetable::Timetable;
use crate::why::TRACER;
use laneway_core::{CapsReport, Counters};
use laneway_engine::{Control, WorkerId};
use laneway_kinds::{
    AppCommand, AppFacts, ArmPlace, Confinement, Counted, Finished, LaneFacts, On, Privileges,
    Session, Shape as Carried,
};
use laneway_registry::{AppTable, AppVisitor, Crew, LaneTable, Ran, facts_of};
use laneway_spec::LaneSpec;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// The fact of an arm's report that says what a user types for the same.
const COMMAND: &str = "command";
/// The fact of an arm's report that says what its worker has kept, as one of `run` has.
const CONFINED: &str = "kept_from_here_on";
/// In front of the command, for an app of the lab's own.
const NOT_TYPED: &str = "as if `run` had the lab's own app";
/// How long an app may take to open its own ports, how often it is looked at, and how many looks see no more of them.
const PORTS_MAX: Duration = Duration::from_secs(10);
const PORTS_LOOK: Duration = Duration::from_millis(15);
const PORTS_SAME: usize = 4;
/// How long a worker may take to answer; it ticks every 10 ms.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Is an arm until asked to stop, or until its lane fails.
///
/// # Errors
/// When it receives no setup, or the worker panicked.
pub fn serve<P: AppTable, L: LaneTable>() -> Result<ChildEnd, String> {
    let setup: ArmSetup = pipe::setup()?;
    let facts = setup.raced(TablesOf::<P, L>::new().app(&setup.app)?);
    if let Some(kind) = setup.peer {
        return Ok(peer::serve(kind, &setup, &facts));
    }
    let is_witnessed = facts.race.counted.by_witness();
    let times = match Timetable::of(&setup.times) {
        Ok(times) => times,
        Err(error) => {
            pipe::reply(&Reply::Failed(error.to_string()));
            return Ok(ChildEnd::FailureReported);
        }
    };
    // Threads that are there already would not see it.
    let memory = laneway_netns::memory_folder().map_err(|error| error.to_string())?;
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
                return Ok(ChildEnd::FailureReported);
            }
        }
    }
    let (sender, orders) = mpsc::channel();
    let (answers, seen) = mpsc::channel();
    let (opened, open) = mpsc::channel();
    let end = thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let eye = Eye::new(Tally::new(orders, answers, setup.plant).by(times.clone()));
            let done = run::<P, L>(&setup, &memory, eye, &control, |shape, caps| {
                // The control thread waits for it.
                let _ = opened.send((shape, caps.clone()));
            });
            drop(opened);
            match done {
                Ok(()) => ChildEnd::Done,
                Err(sentence) => {
                    pipe::reply(&Reply::Failed(sentence));
                    ChildEnd::FailureReported
                }
            }
        });
        if let Ok((shape, mut caps)) = open.recv() {
            if setup.fanout.is_some() {
                await_ports(&control, &mut caps);
            }
            let mut ready = Ready { caps: caps.clone(), shape, processes: Vec::new() };
            if setup.trace.as_ref().is_some_and(|trace| trace.folder.is_none()) {
                ready.caps.fact(TRACER, "records what the worker does while it is measured");
            }
            pipe::reply(&Reply::Ready(ready));
            let tally = is_witnessed.then_some((&sender, &seen));
            converse(&control, tally, tracing.as_ref().map(|tracing| (tracing, &times)), caps);
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
                ChildEnd::FailureReported
            }
        }),
        (end, _) => Ok(end),
    }
}

/// Waits until an app that opens its own ports has all of them: there are some, and no more of them for a while. Some
/// facts of what the first obtained join `caps`. One that never has any has its datagrams counted as lost.
fn await_ports(control: &Control, caps: &mut CapsReport) {
    let until = Instant::now() + PORTS_MAX;
    let (mut ports, mut same) = (0, 0);
    while same < PORTS_SAME && Instant::now() < until {
        let Some(run) = control.watch.look(ANSWER_MAX) else { return };
        same = if run.ports.len() == ports && ports > 0 { same + 1 } else { 0 };
        ports = run.ports.len();
        if let Some(first) = run.ports.first() {
            let facts = std::mem::take(&mut caps.facts);
            caps.clone_from(&first.caps);
            caps.facts.extend(facts);
        }
        thread::sleep(PORTS_LOOK);
    }
}

/// Runs the arm's app on its lane until asked to stop.
fn run<P: AppTable, L: LaneTable>(
    setup: &ArmSetup,
    memory: &Path,
    eye: Eye,
    control: &Control,
    opened: impl FnOnce(Shape, &CapsReport) + Send,
) -> Result<(), String> {
    let can_type = has::<P>(&setup.app);
    let arm = Arm::<_, L> { setup, can_type, memory, eye, control, opened, table: PhantomData };
    let visited = Raced::<P>::visit(&setup.app, arm);
    visited.unwrap_or_else(|_| Err(format!("there is no app `{}`", setup.app)))
}

/// What is run, for the app that its name finds.
struct Arm<'a, F, L> {
    setup: &'a ArmSetup,
    /// Whether `run` has the app, too.
    can_type: bool,
    memory: &'a Path,
    eye: Eye,
    control: &'a Control,
    opened: F,
    table: PhantomData<fn() -> L>,
}

impl<F: FnOnce(Shape, &CapsReport) + Send, L: LaneTable> AppVisitor for Arm<'_, F, L> {
    type Out = Result<(), String>;

    fn visit<A: AppCommand<Report: Clone> + 'static>(self) -> Self::Out {
        let Arm { setup, can_type, memory, eye, control, opened, .. } = self;
        let spec: LaneSpec = setup.lane.parse().map_err(sentence)?;
        let lane = facts_of::<L>(&spec).map_err(sentence)?;
        let _borrowed = borrowed_addresses(setup, lane, &setup.raced(&A::FACTS))?;
        let addresses: Vec<SocketAddr> = setup.addresses.iter().map(|&at| at.into()).collect();
        let fanout = setup.fanout.map(|plan| ArmFanout::new(&plan.fanout));
        let input = setup.interfaces.first().map_or("", String::as_str);
        // What is asked for values may be asked to keep them.
        let keeps = setup.client.as_ref().is_some_and(|client| client.store.is_some());
        let disk = keeps.then(Disk::create).transpose()?;
        let place = ArmPlace {
            lane,
            cpu: setup.cpu,
            interfaces: &setup.interfaces,
            addresses: &addresses,
            fanout: fanout.as_ref().map(|fanout| fanout.by(input)),
            protocol: setup.client.as_ref().map(|client| client.protocol),
            mac: SUT_MAC,
            onward: setup.onward.into(),
            memory,
            disk: disk.as_ref().map(Disk::path),
        };
        let words = arm_words::<A>(&place, &setup.arguments)?;
        let arguments = parse::<A>(&words)?;
        // The kernel's sockets are given addresses only, as by a user.
        let interfaces = if listens(setup, lane) { &[][..] } else { &setup.interfaces };
        let on = On { spec: &spec, lane, interfaces, workers: 1 };
        let planned = A::plan(&arguments, on).map_err(sentence_of)?;
        // As `run` does it, so that what is raced is what is run. The lab's own threads enter nothing.
        let privileges = Privileges::of::<A>(&planned, on, setup.trace.is_some());
        let confinement = privileges.map_err(sentence)?.confinement();
        let unconfined = Mutex::new(None);
        let stop = control.stop.clone();
        let session = Session {
            json: true,
            worker_cpus: &[setup.cpu],
            stop: Arc::new(move || stop.request()),
            confinement: confinement.as_ref(),
        };
        A::begin(&planned, on, &session).map_err(sentence_of)?;

        let shape = A::shape(&planned, lane).map_err(sentence)?;
        let opened = Mutex::new(Some(opened));
        let on_open = |_: WorkerId, caps: &[CapsReport]| {
            // By the worker, on its own thread.
            if let Some(Err(error)) = confinement.as_ref().map(Confinement::enter) {
                *unconfined.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                control.stop.request();
                return;
            }
            let opened = opened.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(opened) = opened {
                // An app that opens its own ports has none yet.
                let mut caps = caps.first().cloned().unwrap_or_default();
                let command = command(setup, A::FACTS.name, interfaces, &words);
                caps.fact(
                    COMMAND,
                    if can_type { command } else { format!("{NOT_TYPED}: {command}") },
                );
                // Ports have been offered what the app has for them by now.
                for (name, fact) in A::opened_facts(&planned) {
                    caps.fact(name, fact);
                }
                if let Some(confinement) = &confinement {
                    caps.fact(CONFINED, confinement);
                }
                if let Some(disk) = &disk {
                    caps.fact("disk", disk.fact());
                }
                opened(carried(shape), &caps);
            }
        };
        let names: Vec<&str> = interfaces.iter().map(String::as_str).collect();
        let crew = Crew::Here { control, cpu: Some(setup.cpu) };
        let order = laneway_registry::Order { spec: &spec, interfaces: &names, force: false, crew };
        let ran =
            laneway_registry::run::<A::Arm<'_, Eye>, L>(&A::arm(&planned, eye), order, &on_open);
        if let Some(error) = unconfined.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(sentence(error));
        }
        let failure = match &ran {
            Ok(ran) => ran.failure.as_ref().map(|(_, error)| error),
            Err(error) => Some(error),
        };
        let together = ran.as_ref().ok().and_then(Ran::together);
        let went = together.as_ref().map(|(lane, report)| Finished { lane, report, failure });
        // Why the lane failed says more than what comes of closing the rest.
        let finished = A::finish(&planned, on, went).map_err(sentence_of);
        failure.map_or(finished, |error| Err(error.to_string()))
    }
}

fn sentence(error: impl ToString) -> String {
    error.to_string()
}

/// What the worker is handed; the lab's frames are made for either.
fn carried(shape: Carried) -> Shape {
    match shape {
        Carried::Frames | Carried::Kernel => Shape::Frames,
        Carried::Datagrams | Carried::Streams => Shape::Datagrams,
    }
}

/// What a user types for the same run.
fn command(setup: &ArmSetup, app: &str, interfaces: &[String], words: &[String]) -> String {
    let on = match interfaces {
        [] => String::new(),
        names => format!("--on {} ", names.join(",")),
    };
    let quoted = |word: &String| match word.contains([' ', '/', '\'']) {
        true => format!("'{word}'"),
        false => word.clone(),
    };
    let words: Vec<String> = words.iter().map(quoted).collect();
    let line = format!(
        "{} run {app} --lane {} {on}--cpu {} {}",
        program(),
        setup.lane,
        setup.cpu,
        words.join(" ")
    );
    line.trim_end().to_owned()
}

/// Whether the lane has nothing but the kernel's sockets for the arm.
fn listens(setup: &ArmSetup, lane: &LaneFacts) -> bool {
    let carries = |shape| lane.carries.has(shape);
    lane.is_sockets_alone()
        || setup.client.is_some() && carries(Carried::Streams)
        || setup.fanout.is_some() && carries(Carried::Datagrams)
}

/// The addresses of an arm that answers on a lane with the kernel's sockets: the interface has them meanwhile.
fn borrowed_addresses<'a>(
    setup: &'a ArmSetup,
    lane: &LaneFacts,
    app: &AppFacts,
) -> Result<Vec<BorrowedAddress<'a>>, String> {
    let answers = matches!(app.race.counted, Counted::Replies | Counted::Answered);
    // Where the lane runs a half in the kernel, a client's connections are those of the kernel's sockets behind it.
    let is_behind = setup.client.is_some() && lane.carries.has(Carried::Kernel);
    if !answers || !(listens(setup, lane) || is_behind) {
        return Ok(Vec::new());
    }
    let pairs = setup.interfaces.iter().zip(&setup.addresses);
    pairs.map(|(interface, at)| BorrowedAddress::new(interface, *at.ip())).collect()
}

/// Obeys until asked to stop, or the worker is gone.
fn converse(
    control: &Control,
    tally: Option<(&mpsc::Sender<TallyOrder>, &mpsc::Receiver<Seen>)>,
    tracing: Option<(&Tracing, &Timetable)>,
    mut caps: CapsReport,
) {
    loop {
        match pipe::order() {
            Order::Stop => return,
            Order::Ask(_) => {}
            Order::Segment(plan) => {
                if let Some((tracing, times)) = tracing {
                    tracing.expect(&plan, times.end_ns(&plan));
                }
                if tally.is_some_and(|(sender, _)| sender.send(TallyOrder::Segment(plan)).is_err())
                {
                    return;
                }
            }
            Order::Report => {
                // The tally receives its order before the worker is looked at, so the same tick serves both.
                if tally.is_some_and(|(sender, _)| sender.send(TallyOrder::Report).is_err()) {
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
                    segment: seen.segment,
                    records: seen.records,
                    foreign: seen.foreign,
                    wakeups_ns: seen.wakeups_ns,
                    memory: memory::read(&caps),
                })));
            }
        }
    }
}
