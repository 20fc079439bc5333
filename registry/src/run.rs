//! The runner: any app on any lane, by one worker or several, in any shape.
//!
//! Assumes that the calling thread is in the interfaces' network namespace; several workers have threads of their own,
//! which begin there. What must always hold: every lane is opened and every app built on the thread that runs them;
//! frames are taken only when every worker's lane is open; at every end of a run, what each worker left behind comes
//! back. What it does not do: it merges nothing and judges nothing.

use crate::table::{LaneTable, LaneVisitor, lanes_that_run, sockets, visit};
use laneway_core::{
    Bell, CapsReport, Clock, ClockDomain, DatagramLane, FrameApp, KernelApp, KernelHalf, Lane,
    LaneError, PortId, StreamApp, StreamLane,
};
use laneway_engine::{
    Control, HalfInFront, MonotonicClock, PortReport, RunFailed, RunReport, Split, Worker,
    WorkerFailed, WorkerId, Workers, pin_to_cpu, run_datagrams, run_frames, run_kernel, run_split,
    run_streams,
};
use laneway_kinds::{
    AppKind, Asks, Conclude, GroupHolder, KernelOffer, LaneFacts, LaneKind, LinkAddresses, Opening,
    Own, Place, Report, Service, Shape, has_no_shape,
};
use laneway_spec::{IdlePolicy, LaneSpec};
use laneway_stack::{DatagramStack, InterfaceConfig, StackConfig, StreamStack, TcpLimits};
use rustix::net::{AddressFamily, SocketType, netdevice::name_to_index, socket};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

/// The workers that do the work.
#[derive(Clone, Copy, Debug)]
pub enum Crew<'a> {
    /// The calling thread, kept on a CPU if one is named.
    Here {
        /// What ends it, looks at it and traces it.
        control: &'a Control,
        /// The CPU to stay on.
        cpu: Option<usize>,
    },
    /// A thread and a CPU for each of several workers.
    Workers(&'a Workers),
}

/// What is to be run where.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// The lane and its knobs.
    pub spec: &'a LaneSpec,
    /// Interfaces, or files on lanes that read some; one per port.
    pub interfaces: &'a [&'a str],
    /// Use interfaces that carry a default route as well.
    pub force: bool,
    /// The workers that do it.
    pub crew: Crew<'a>,
}

/// What one worker left behind.
#[derive(Clone, Debug)]
pub struct WorkerRan<R> {
    /// The CPU that it was kept on, if any.
    pub cpu: Option<usize>,
    /// What lane and engine say; nothing if the worker never began.
    pub run: Option<RunReport>,
    /// What the app says.
    pub report: Option<R>,
}

/// A run, whatever ended it.
#[derive(Debug)]
pub struct Ran<R> {
    /// By worker.
    pub workers: Vec<WorkerRan<R>>,
    /// The first failure, if that is what ended the run, and whose it was.
    pub failure: Option<(WorkerId, LaneError)>,
}

impl<R: Report + Clone> Ran<R> {
    /// What all workers left behind together; nothing if none began. Ports of one number and label are one; others
    /// stand side by side.
    pub fn together(&self) -> Option<(RunReport, R)> {
        let mut began = self.workers.iter().filter_map(|w| w.run.as_ref().zip(w.report.as_ref()));
        let (mut run, mut report) =
            began.next().map(|(run, report)| (run.clone(), report.clone()))?;
        for (other, others) in began {
            add_ports(&mut run.ports, &other.ports);
            run.join(other);
            report.merge(others);
        }
        Some((run, report))
    }
}

/// Adds the ports of another worker. A rule is one worker's alone, so one may have ports that another has not, or other
/// ones in their places.
fn add_ports(ports: &mut Vec<PortReport>, others: &[PortReport]) {
    let of = |port: &PortReport| (port.id, port.caps.label.clone());
    let places: BTreeMap<_, _> = ports.iter().map(of).zip(0..).collect();
    for other in others {
        match places.get(&of(other)) {
            Some(&place) => {
                let port: &mut PortReport = &mut ports[place];
                port.counters.merge(&other.counters);
            }
            None => ports.push(other.clone()),
        }
    }
}

/// Runs the app on the lane that `order` names, until its control says stop, the app wants to end, or nothing can
/// come any more. When a worker's lane is open, `on_open` is shown what its ports asked for and obtained.
///
/// # Errors
/// Only when a lane cannot be opened, the app cannot be built, or they do not fit; nothing is left behind then.
pub fn run<A: AppKind, T: LaneTable>(
    run: &A::Run,
    order: Order<'_>,
    on_open: &(dyn Fn(WorkerId, &[CapsReport]) + Sync),
) -> Result<Ran<A::Report>, LaneError> {
    let runner = Runner::<A, T> { run, order, on_open, table: PhantomData };
    visit::<T, _>(order.spec, runner)?
}

struct Runner<'a, A: AppKind, T> {
    run: &'a A::Run,
    order: Order<'a>,
    on_open: &'a (dyn Fn(WorkerId, &[CapsReport]) + Sync),
    table: PhantomData<fn() -> T>,
}

impl<A: AppKind, T: LaneTable> LaneVisitor for Runner<'_, A, T> {
    type Out = Result<Ran<A::Report>, LaneError>;

    fn visit<K: LaneKind>(self) -> Self::Out {
        let Runner { run, order, on_open, .. } = self;
        let facts = &K::FACTS;
        let asked = Asked::of::<A>(run, facts, order, unfit::<T>)?;
        let opening = asked.opening(&order);
        if let Crew::Here { cpu: Some(cpu), .. } = order.crew {
            pin_to_cpu(cpu)?;
        }
        let shared = K::share(&opening)?;
        let datagrams = &asked.asks.datagrams;
        let beside = (asked.shape == Shape::Streams && !datagrams.is_empty())
            .then(|| datagrams_beside::<K>(&opening, datagrams))
            .transpose()?;
        let _offered = K::offload(&shared).map(|offload| {
            A::offer(run, offload);
            Offered::<A>(run)
        });
        let site = Site {
            run,
            on_open,
            workers: asked.workers,
            idle: asked.idle,
            interfaces: order.interfaces,
            ifindexes: order.interfaces.iter().map(|name| ifindex(name)).collect(),
            service: &asked.asks.service,
            datagrams,
        };
        let shape = asked.shape;
        let bench = &Bench::<A, K, T> {
            site,
            shape,
            shared: &shared,
            beside,
            tcp: asked.tcp,
            table: PhantomData,
        };
        crewed(order.crew, &|id, control, gate| bench.work(id, control, gate))
    }
}

/// What a run asks of a lane, as far as they fit.
struct Asked {
    asks: Asks,
    /// What the app is handed.
    shape: Shape,
    /// What the lane carries for it.
    carried: Shape,
    /// The lane's own knobs.
    spec: LaneSpec,
    /// Those of a stack of streams.
    tcp: TcpLimits,
    idle: IdlePolicy,
    workers: usize,
}

impl Asked {
    fn of<A: AppKind>(
        run: &A::Run,
        facts: &LaneFacts,
        order: Order<'_>,
        unfit: fn(&LaneFacts, Order<'_>, Shape) -> LaneError,
    ) -> Result<Asked, LaneError> {
        let shape = A::shape(run, facts)?;
        if !facts.runs(shape) {
            return Err(unfit(facts, order, shape));
        }
        let asks = A::asks(run);
        let workers = match order.crew {
            Crew::Here { .. } => 1,
            Crew::Workers(workers) => workers.count(),
        };
        let carried = if facts.carries.has(shape) { shape } else { Shape::Frames };
        let (tcp, spec) = if shape == Shape::Streams && carried != shape {
            TcpLimits::from_spec(order.spec)?
        } else {
            (TcpLimits::default(), order.spec.clone())
        };
        if carried != shape && !asks.datagrams.is_empty() {
            return Err(facts.refuse(
                "streams and datagrams of one worker",
                "its stack carries one of the two",
                "use lane socket, uring or xdp, or leave the datagrams out",
            ));
        }
        let idle = order.spec.knobs().idle()?;
        Ok(Asked { asks, shape, carried, spec, tcp, idle, workers })
    }

    fn opening<'a>(&'a self, order: &Order<'a>) -> Opening<'a> {
        let for_stack = self.carried != self.shape;
        Opening {
            spec: &self.spec,
            shape: self.carried,
            interfaces: order.interfaces,
            listen: &self.asks.service.listen,
            workers: self.workers,
            force: order.force,
            // Both directions of a connection are one worker's, whatever the app asks.
            keeps_flows: self.asks.keeps_flows || for_stack,
            for_stack,
            never_transmits: self.asks.never_transmits,
            outlives_interfaces: self.asks.outlives_interfaces,
        }
    }
}

/// One worker, on its thread.
type Work<'a, R> =
    &'a (dyn Fn(WorkerId, &Control, Gate<'_>) -> Result<Done<R>, WorkerFailed> + Sync);

/// Has every worker of the crew work.
fn crewed<R: Report>(crew: Crew<'_>, work: Work<'_, R>) -> Result<Ran<R>, LaneError> {
    let (control, cpu) = match crew {
        Crew::Here { control, cpu } => (control, cpu),
        Crew::Workers(workers) => return by_several(workers, work),
    };
    let (outcome, report) = match work(WorkerId(0), control, &|| Ok(())) {
        Ok(done) => done,
        Err(WorkerFailed::Open(error)) => return Err(error),
        Err(WorkerFailed::Run(failed)) => return Err(failed.error),
        Err(_) => unreachable!("no other worker can have failed"),
    };
    let (run, failure) = settled(outcome);
    let failure = failure.or_else(|| report.failure());
    let failure = failure.map(|error| (WorkerId(0), error));
    let worker = WorkerRan { cpu, run: Some(run), report: Some(report) };
    Ok(Ran { workers: vec![worker], failure })
}

fn by_several<R: Report>(workers: &Workers, work: Work<'_, R>) -> Result<Ran<R>, LaneError> {
    let reports: Mutex<Vec<Option<R>>> = Mutex::new((0..workers.count()).map(|_| None).collect());
    let each = |worker: &Worker<'_>| -> Result<RunReport, WorkerFailed> {
        let (outcome, report) = work(worker.id, &worker.control, &|| worker.all_open())?;
        let failure = report.failure();
        // Each worker writes its own entry, whole.
        reports.lock().unwrap_or_else(PoisonError::into_inner)[worker.id.0] = Some(report);
        match (outcome?, failure) {
            (run, None) => Ok(run),
            // What the app could not do ends the others as well: the run was asked for all of it.
            (run, Some(error)) => Err(RunFailed { error, report: Box::new(run) }.into()),
        }
    };
    let (report, failure) = match workers.run(&each) {
        Ok(report) => (report, None),
        Err(failed) => (*failed.report, Some((failed.worker, failed.error))),
    };
    let reports = reports.into_inner().unwrap_or_else(PoisonError::into_inner);
    match failure {
        Some((_, error)) if reports.iter().all(Option::is_none) => Err(error),
        failure => {
            let each = report.workers.into_iter().zip(reports);
            let workers = each
                .map(|(worker, report)| WorkerRan {
                    cpu: Some(worker.cpu),
                    run: worker.run,
                    report,
                })
                .collect();
            Ok(Ran { workers, failure })
        }
    }
}

/// The ports' execution of rules, until dropped.
struct Offered<'a, A: AppKind>(&'a A::Run);

impl<A: AppKind> Drop for Offered<'_, A> {
    fn drop(&mut self) {
        A::withdraw(self.0);
    }
}

/// What every worker is given of a run, whichever lane it is on: what needs no more is compiled once per app.
struct Site<'a, A: AppKind> {
    run: &'a A::Run,
    on_open: &'a (dyn Fn(WorkerId, &[CapsReport]) + Sync),
    workers: usize,
    idle: IdlePolicy,
    interfaces: &'a [&'a str],
    ifindexes: Vec<u32>,
    /// Where the app is reached.
    service: &'a Service,
    /// Where datagrams are served beside streams; on a lane of kernel halves, by whichever lane has the kernel's
    /// sockets.
    datagrams: &'a [SocketAddr],
}

/// A lane and an app that fit, and what every worker is given.
struct Bench<'a, A: AppKind, K: LaneKind, T> {
    site: Site<'a, A>,
    shape: Shape,
    shared: &'a K::Shared,
    /// The same of the datagrams that are served beside the streams.
    beside: Option<K::Shared>,
    /// Limits of a stack of streams.
    tcp: TcpLimits,
    table: PhantomData<fn() -> T>,
}

/// Waits until every worker's lane is open.
type Gate<'a> = &'a dyn Fn() -> Result<(), WorkerFailed>;

/// Puts a half of the app in front, if it has one.
type Front<'a> = &'a dyn Fn(Option<KernelHalf>) -> Result<Option<Box<dyn HalfInFront>>, LaneError>;

/// What the workers have in common of datagrams beside streams. Knobs are the streams': the other shape knows other
/// ones, and has its own defaults.
fn datagrams_beside<K: LaneKind>(
    streams: &Opening<'_>,
    listen: &[SocketAddr],
) -> Result<K::Shared, LaneError> {
    let spec: LaneSpec = K::FACTS.name.parse()?;
    K::share(&Opening { spec: &spec, shape: Shape::Datagrams, listen, ..*streams })
}

/// The kernel's sockets of streams and datagrams, behind a half of the same app.
struct Behind<'b, 'a, A: AppKind> {
    site: &'b Site<'a, A>,
    id: WorkerId,
    front: Front<'b>,
    gate: Gate<'b>,
    control: &'b Control,
    bell: &'b Bell,
}

impl<A: AppKind> LaneVisitor for Behind<'_, '_, A> {
    type Out = Result<Done<A::Report>, WorkerFailed>;

    fn visit<S: LaneKind>(self) -> Self::Out {
        let Behind { site, id, front, gate, control, bell } = self;
        let spec: LaneSpec = S::FACTS.name.parse().map_err(LaneError::from)?;
        let opening =
            Opening { listen: &site.service.listen, ..Opening::on(&spec, Shape::Streams, &[]) };
        let streams = S::streams(&S::share(&opening)?, id.0)?;
        let datagrams = S::datagrams(&datagrams_beside::<S>(&opening, site.datagrams)?, id.0)?;
        site.split(id, (streams, datagrams), (front, gate), control, bell)
    }
}

type Done<R> = (Result<RunReport, RunFailed>, R);

impl<A: AppKind, K: LaneKind, T: LaneTable> Bench<'_, A, K, T> {
    /// Whether both have this shape. As for [`by_stack`](Self::by_stack): what would run a shape that one of the two
    /// does not have is not compiled for the pair.
    const fn both(shape: Shape) -> bool {
        A::SHAPES.has(shape) && K::FACTS.carries.has(shape)
    }

    /// Whether a stack on the lane's frames makes this shape for the app.
    const fn by_stack(shape: Shape) -> bool {
        let takes_stack = K::FACTS.takes_stack && !K::FACTS.carries.has(shape);
        A::SHAPES.has(shape) && takes_stack
    }

    /// Whether a half of the app goes in front of the kernel's sockets.
    const fn in_front() -> bool {
        A::SHAPES.has(Shape::Streams) && K::FACTS.carries.has(Shape::Kernel)
    }

    /// One worker, on its thread: opens, builds, runs, concludes.
    fn work(
        &self,
        id: WorkerId,
        control: &Control,
        gate: Gate<'_>,
    ) -> Result<Done<A::Report>, WorkerFailed> {
        let Bench { site, .. } = self;
        let bell = Bell::new().map_err(|e| {
            LaneError::os(K::FACTS.name, "make a worker's bell", e, "raise `ulimit -n`")
        })?;
        let control = &Control { bell: Some(bell.clone()), ..control.clone() };
        match self.shape {
            Shape::Frames if const { Self::both(Shape::Frames) } => {
                let lane = K::frames(self.shared, id.0)?;
                gate()?;
                self.frames(id, lane, control, &bell)
            }
            Shape::Datagrams if const { Self::both(Shape::Datagrams) } => {
                let mut lane = K::datagrams(self.shared, id.0)?;
                gate()?;
                site.datagrams(id, &mut lane, control, &bell)
            }
            Shape::Datagrams if const { Self::by_stack(Shape::Datagrams) } => {
                let lane = K::frames(self.shared, id.0)?;
                gate()?;
                let mut lane = DatagramStack::new(lane, &site.stack())?;
                if let Some(holder) = K::group_holder(self.shared) {
                    lane = lane.with_holder(holder)?;
                }
                if let Some(known) = K::link_addresses(self.shared) {
                    lane = lane.with_link_addresses(known);
                }
                site.datagrams(id, &mut lane, control, &bell)
            }
            Shape::Streams if const { Self::both(Shape::Streams) } => {
                let mut lane = K::streams(self.shared, id.0)?;
                if let Some(beside) = &self.beside {
                    let lanes = (lane, K::datagrams(beside, id.0)?);
                    return site.split(id, lanes, (&|_| Ok(None), gate), control, &bell);
                }
                gate()?;
                site.streams(id, &mut lane, control, &bell)
            }
            Shape::Streams if const { Self::by_stack(Shape::Streams) } => {
                let lane = K::frames(self.shared, id.0)?;
                gate()?;
                let mut config = site.stack();
                config.tcp = self.tcp;
                let mut lane = StreamStack::new(lane, &config)?;
                site.streams(id, &mut lane, control, &bell)
            }
            Shape::Kernel if const { Self::in_front() } && !site.datagrams.is_empty() => {
                let front = |half: Option<KernelHalf>| -> Result<_, LaneError> {
                    let half = half.ok_or_else(|| {
                        let why = "this run has no half in the kernel";
                        K::FACTS.refuse(A::FACTS.name, why, "use another lane")
                    })?;
                    let lane = K::kernel(self.shared, half)?;
                    Ok(Some(Box::new(lane) as Box<dyn HalfInFront>))
                };
                let behind = Behind { site, id, front: &front, gate, control, bell: &bell };
                match sockets::<T>().map(|name| T::visit(name, behind)) {
                    Some(Ok(done)) => done,
                    Some(Err(_)) | None => Err(K::FACTS
                        .refuse(
                            A::FACTS.name,
                            "no lane of this build has the kernel's sockets behind it",
                            "use another lane",
                        )
                        .into()),
                }
            }
            Shape::Kernel if const { Self::both(Shape::Kernel) } => {
                let mut app =
                    A::kernel(site.run, site.place(id, &[], &bell), &Offer::<K>(self.shared))?;
                let mut lane = K::kernel(self.shared, app.half())?;
                gate()?;
                site.opened(id, caps_of(&lane, site.interfaces.len()));
                let outcome = run_kernel(&mut lane, &mut app, &CLOCK, site.idle, control);
                Ok(concluded(outcome, app))
            }
            shape => Err(has_no_shape(A::FACTS.name, shape).into()),
        }
    }

    fn frames(
        &self,
        id: WorkerId,
        mut lane: K::Frames,
        control: &Control,
        bell: &Bell,
    ) -> Result<Done<A::Report>, WorkerFailed> {
        let Bench { site, .. } = self;
        let caps = site.opened(id, caps_of(&lane, lane.ports()));
        let mut app = A::frames(site.run, site.place(id, &caps, bell))?;
        let clock = WorkerClock(K::FACTS.clock);
        let outcome = run_frames(&mut lane, &mut app, &clock, site.idle, control);
        let outcome = match (outcome, K::close(lane)) {
            (Ok(report), Err(error)) => Err(RunFailed { error, report: Box::new(report) }),
            (outcome, _) => outcome,
        };
        Ok(concluded(outcome, app))
    }
}

impl<A: AppKind> Site<'_, A> {
    fn datagrams<L: DatagramLane>(
        &self,
        id: WorkerId,
        lane: &mut L,
        control: &Control,
        bell: &Bell,
    ) -> Result<Done<A::Report>, WorkerFailed> {
        let caps = self.opened(id, caps_of(lane, lane.ports()));
        let mut app = A::datagrams(self.run, self.place(id, &caps, bell))?;
        let outcome = run_datagrams(lane, &mut app, &CLOCK, self.idle, control);
        Ok(concluded(outcome, app))
    }

    fn streams<L: StreamLane>(
        &self,
        id: WorkerId,
        lane: &mut L,
        control: &Control,
        bell: &Bell,
    ) -> Result<Done<A::Report>, WorkerFailed> {
        let caps = self.opened(id, caps_of(lane, lane.ports()));
        let mut app = A::streams(self.run, self.place(id, &caps, bell))?;
        let outcome = run_streams(lane, &mut app, &CLOCK, self.idle, control);
        Ok(concluded(outcome, app))
    }

    /// Both lanes for one app, and its half in front of them, if it has one.
    fn split<S: StreamLane, D: DatagramLane>(
        &self,
        id: WorkerId,
        (streams, datagrams): (S, D),
        (front, gate): (Front<'_>, Gate<'_>),
        control: &Control,
        bell: &Bell,
    ) -> Result<Done<A::Report>, WorkerFailed> {
        let mut caps = caps_of(&streams, streams.ports());
        caps.extend(caps_of(&datagrams, datagrams.ports()));
        let mut app = A::streams(self.run, self.place(id, &caps, bell))?;
        let kernel = front(app.half())?;
        if let Some(kernel) = &kernel {
            caps.extend(caps_of(&**kernel, self.interfaces.len()));
        }
        gate()?;
        self.opened(id, caps);
        let mut lanes = Split::new(streams, datagrams, kernel)?;
        let outcome = run_split(&mut lanes, &mut app, &CLOCK, self.idle, control);
        Ok(concluded(outcome, app))
    }

    /// Shows what each port obtained.
    fn opened(&self, id: WorkerId, caps: Vec<CapsReport>) -> Vec<CapsReport> {
        (self.on_open)(id, &caps);
        caps
    }

    /// What a stack in user space is.
    fn stack(&self) -> StackConfig {
        // The list of interfaces is replaced as a whole.
        let none = InterfaceConfig::new([0; 6], Vec::new());
        let mut config = StackConfig::new(none, self.service.listen.clone());
        config.interfaces = self.service.own.iter().map(interface).collect();
        for (interface, name) in config.interfaces.iter_mut().zip(self.interfaces) {
            (*name).clone_into(&mut interface.name);
        }
        // The interface stays the kernel's, which has addresses and programs of its own there.
        config.pass_rest = true;
        if let Some(hop_limit) = self.service.hop_limit {
            config.hop_limit = hop_limit;
        }
        config
    }

    fn place<'b>(&'b self, id: WorkerId, caps: &'b [CapsReport], bell: &'b Bell) -> Place<'b> {
        Place {
            worker: id.0,
            workers: self.workers,
            interfaces: self.interfaces,
            ifindexes: &self.ifindexes,
            caps,
            bell,
        }
    }
}

/// What the first so many ports of a lane obtained.
fn caps_of(lane: &dyn Lane, ports: usize) -> Vec<CapsReport> {
    (0..ports).map(|at| lane.caps(lane.port(at)).clone()).collect()
}

/// What the lane has for an app with a half in the kernel.
struct Offer<'a, K: LaneKind>(&'a K::Shared);

impl<K: LaneKind> KernelOffer for Offer<'_, K> {
    fn check(&self, half: &KernelHalf) -> Result<(), LaneError> {
        K::check(half)
    }

    fn group_holder(&self) -> Option<Box<dyn GroupHolder>> {
        K::group_holder(self.0)
    }

    fn link_addresses(&self) -> Option<Box<dyn LinkAddresses>> {
        K::link_addresses(self.0)
    }
}

fn concluded<R>(outcome: Result<RunReport, RunFailed>, app: impl Conclude<R>) -> Done<R> {
    let report = match &outcome {
        Ok(report) => app.conclude(report),
        Err(failed) => app.conclude(&failed.report),
    };
    (outcome, report)
}

fn settled(outcome: Result<RunReport, RunFailed>) -> (RunReport, Option<LaneError>) {
    match outcome {
        Ok(report) => (report, None),
        Err(RunFailed { error, report }) => (*report, Some(error)),
    }
}

/// The interface's number in this thread's network namespace; 0 for a file, which has none.
fn ifindex(name: &str) -> u32 {
    socket(AddressFamily::INET, SocketType::DGRAM, None)
        .and_then(|control| name_to_index(control, name))
        .unwrap_or(0)
}

fn interface(own: &Own) -> InterfaceConfig {
    let mut config = InterfaceConfig::new(own.mac, own.addresses.clone());
    if let Some(mtu_bytes) = own.mtu_bytes {
        config.mtu_bytes = mtu_bytes;
    }
    config
}

/// What a lane cannot do for an app.
fn unfit<T: LaneTable>(facts: &LaneFacts, order: Order<'_>, shape: Shape) -> LaneError {
    if let Some((why, hint)) = facts.why_not {
        return facts.refuse(&order.interfaces.join(","), why, hint);
    }
    let why = match shape {
        Shape::Frames => "it carries no frames between an interface and user space".to_owned(),
        shape => format!("it carries no {shape}"),
    };
    let hint = format!("use {}", lanes_that_run::<T>(shape));
    facts.refuse(&order.interfaces.join(","), &why, &hint)
}

const CLOCK: WorkerClock = WorkerClock(ClockDomain::Monotonic);

/// The clock of a worker. On capture files it stands still, because there time is what the packets say: with a
/// clock that runs, flows would end because the reading takes long.
struct WorkerClock(ClockDomain);

impl Clock for WorkerClock {
    #[inline]
    fn now_ns(&self) -> u64 {
        match self.0 {
            ClockDomain::Monotonic => MonotonicClock.now_ns(),
            ClockDomain::Unix | ClockDomain::Virtual => 0,
        }
    }

    fn domain(&self) -> ClockDomain {
        self.0
    }
}

/// Runs one app over frames that stays the caller's on the frame lane that `order` names: traffic sources.
///
/// # Errors
/// Only when the lane cannot be opened, or carries no frames from an interface; nothing is left behind then.
pub fn run_source<A: FrameApp, T: LaneTable>(
    app: &mut A,
    order: Order<'_>,
    on_open: impl FnOnce(&CapsReport),
) -> Result<(RunReport, Option<LaneError>), LaneError> {
    struct Source<'a, A, F, T> {
        app: &'a mut A,
        order: Order<'a>,
        on_open: F,
        table: PhantomData<fn() -> T>,
    }

    impl<A: FrameApp, F: FnOnce(&CapsReport), T: LaneTable> LaneVisitor for Source<'_, A, F, T> {
        type Out = Result<(RunReport, Option<LaneError>), LaneError>;

        fn visit<K: LaneKind>(self) -> Self::Out {
            let Source { app, order, on_open, .. } = self;
            if !K::FACTS.carries.has(Shape::Frames) {
                return Err(unfit::<T>(&K::FACTS, order, Shape::Frames));
            }
            let (control, idle) = begin(&K::FACTS, order)?;
            let opening = Opening {
                force: order.force,
                ..Opening::on(order.spec, Shape::Frames, order.interfaces)
            };
            let mut lane = K::frames(&K::share(&opening)?, 0)?;
            on_open(lane.caps(PortId(0)));
            let clock = WorkerClock(K::FACTS.clock);
            let (report, failure) = settled(run_frames(&mut lane, app, &clock, idle, control));
            Ok((report, failure.or_else(|| K::close(lane).err())))
        }
    }

    visit::<T, _>(order.spec, Source::<A, _, T> { app, order, on_open, table: PhantomData })?
}

/// The control of a single worker, which is pinned by now, and its idle policy.
fn begin<'a>(facts: &LaneFacts, order: Order<'a>) -> Result<(&'a Control, IdlePolicy), LaneError> {
    let Crew::Here { control, cpu } = order.crew else {
        return Err(facts.refuse("several workers", "the app is one", "use one worker"));
    };
    let idle = order.spec.knobs().idle()?;
    if let Some(cpu) = cpu {
        pin_to_cpu(cpu)?;
    }
    Ok((control, idle))
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_core::Counters;
    use laneway_engine::{Stop, usable_cpus};
    use std::thread;
    use std::time::Duration;

    const LOOK: Duration = Duration::from_millis(1);
    const LOOKS_MAX: usize = 10_000;

    #[derive(Clone, Debug, Default)]
    struct Nothing;

    impl Report for Nothing {
        fn merge(&mut self, _: &Self) {}
    }

    fn received(frames: u64) -> Counters {
        let mut counters = Counters::default();
        counters.rx_frames = frames;
        counters
    }

    fn run_with(ports: &[(Option<&str>, u64)]) -> RunReport {
        let port = |(id, &(label, frames)): (u32, &(Option<&str>, u64))| PortReport {
            id: PortId(id),
            caps: CapsReport { label: label.map(str::to_owned), ..CapsReport::default() },
            counters: received(frames),
        };
        RunReport {
            ports: (0..).zip(ports).map(port).collect(),
            ..RunReport::begun("lane", ClockDomain::Monotonic)
        }
    }

    fn together(workers: &[&[(Option<&str>, u64)]]) -> Vec<(Option<String>, u64)> {
        let worker = |ports: &&[_]| WorkerRan {
            cpu: None,
            run: Some(run_with(ports)),
            report: Some(Nothing),
        };
        let ran = Ran { workers: workers.iter().map(worker).collect(), failure: None };
        let (run, _) = ran.together().expect("all began");
        let port = |port: PortReport| (port.caps.label, port.counters.rx_frames);
        run.ports.into_iter().map(port).collect()
    }

    /// A worker without a rule had no port, and what the other's ports counted was in no account.
    #[test]
    fn ports_that_only_a_later_worker_has_are_in_the_account() {
        let only = [(Some("in"), 7), (Some("a"), 5), (Some("b"), 3)];
        let counted = |ports: Vec<(Option<String>, u64)>| -> Vec<u64> {
            ports.into_iter().map(|(_, frames)| frames).collect()
        };
        assert_eq!(counted(together(&[&[], &only])), [7, 5, 3]);
        assert_eq!(counted(together(&[&only[..1], &only])), [14, 5, 3]);
        assert_eq!(counted(together(&[&[], &[], &only])), [7, 5, 3]);
    }

    #[test]
    fn ports_add_up_by_their_number_unless_their_labels_say_that_they_are_others() {
        assert_eq!(together(&[&[(None, 1), (None, 2)], &[(None, 10)]]), [(None, 11), (None, 2)]);
        let label = |label: &str| Some(label.to_owned());
        let others = together(&[&[(Some("a"), 1)], &[(Some("b"), 2), (Some("b"), 4)]]);
        assert_eq!(others, [(label("a"), 1), (label("b"), 2), (label("b"), 4)]);
        let of = |output, frames| [(Some("in"), 1), (Some(output), frames)];
        let three = together(&[&of("a", 2), &of("b", 4), &of("b", 8)]);
        assert_eq!(three, [(label("in"), 3), (label("a"), 2), (label("b"), 12)]);
    }

    #[derive(Clone, Debug)]
    struct Fails(bool);

    impl Report for Fails {
        fn merge(&mut self, _: &Self) {}

        fn failure(&self) -> Option<LaneError> {
            let why = "port 5000 is taken".to_owned();
            self.0.then(|| LaneError::Input { lane: "app".into(), name: "the rules".into(), why })
        }
    }

    /// The app of the last of several workers failed, and the run ended without a word of it.
    #[test]
    fn an_app_that_fails_in_any_crew_ends_the_run_with_what_it_says() {
        let cpus = usable_cpus().unwrap();
        let here = Control::default();
        for count in 0..=cpus.len().min(2) {
            let several = (count > 0).then(|| Workers::new(&cpus[..count], Stop::new()).unwrap());
            let alone = Crew::Here { control: &here, cpu: None };
            let crew = several.as_ref().map_or(alone, Crew::Workers);
            let last = count.saturating_sub(1);
            let ran = crewed(crew, &|id, control, gate| {
                gate()?;
                // The others go on until they are asked to stop.
                let is_over = || id.0 == last || control.stop.is_due(0);
                assert!((0..LOOKS_MAX).any(|_| {
                    thread::sleep(LOOK);
                    is_over()
                }));
                Ok((Ok(run_with(&[(None, 1)])), Fails(id.0 == last)))
            });
            let ran = ran.unwrap();
            let (worker, error) = ran.failure.as_ref().expect("the app's");
            assert_eq!(worker.0, last);
            assert!(error.to_string().contains("port 5000 is taken"), "{error}");
            let all =
                ran.workers.iter().all(|worker| worker.run.is_some() && worker.report.is_some());
            assert!(all, "{ran:?}");
        }
    }
}
