//! What a traced run records: every frame that the report counts, in calls that nest, and nothing without a
//! tracer.

mod nowhere;

use laneway_core::{
    App, Burst, CapsReport, Clock, ClockDomain, Counters, Datagram, DatagramApp, DatagramLane,
    DatagramOut, DatagramPorts, DropReason, Fill, FrameApp, Lane, LaneError, PortId, Turn, Verdict,
    Wake,
};
use laneway_engine::{
    Control, MonotonicClock, RunReport, Stop, TICK_NS, Worker, Workers, run_datagrams, run_frames,
    usable_cpus,
};
use laneway_sim::SimLane;
use laneway_spec::IdlePolicy;
use laneway_testkit::udp_frames;
use laneway_tracer::{
    Happening, PointId, Session, SessionOptions, ThreadInfo, TraceFile, TraceSlot, What, points,
};
use nowhere::{Nowhere, datagram};
use std::{cell::Cell, collections::BTreeMap, env, fs, path::PathBuf, process, time::Duration};

const MS: u64 = 1_000_000;

/// A folder of its own that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = env::temp_dir().join(format!("laneway-engine-{}-{name}", process::id()));
        fs::create_dir(&folder).unwrap();
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs `run` with a control that is traced; gives what the trace says.
fn traced(name: &str, run: impl FnOnce(Control) -> RunReport) -> (RunReport, Vec<Happening>) {
    let folder = Folder::new(name);
    let session = Session::create(&folder.0, SessionOptions::default()).unwrap();
    let recorder = session.recorder(&ThreadInfo::current("worker-0")).unwrap();
    let trace = TraceSlot::holding(recorder);
    let report = run(Control { trace, ..Control::default() });
    let summary = session.finish().unwrap().remove(0);
    assert_eq!(summary.lost, 0);
    let bytes = fs::read(summary.path).unwrap();
    let file = TraceFile::open(&bytes).unwrap();
    assert_eq!(file.damage(), []);
    let happenings: Vec<Happening> = file.happenings().collect();
    assert!(happenings.is_sorted_by_key(|h| h.time_ns));
    (report, happenings)
}

/// Calls by function; every exit matches its entry.
fn calls(happenings: &[Happening]) -> BTreeMap<PointId, u64> {
    let mut open = Vec::new();
    let mut calls = BTreeMap::new();
    for happening in happenings {
        match happening.what {
            What::Enter(function) => open.push(function),
            What::Leave(function) => {
                assert_eq!(open.pop(), Some(function), "calls do not nest");
                *calls.entry(function).or_default() += 1;
            }
            _ => {}
        }
    }
    assert!(open.is_empty(), "{open:?} were never left");
    calls
}

fn sum(happenings: &[Happening], of: impl Fn(What) -> u64) -> u64 {
    happenings.iter().map(|h| of(h.what)).sum()
}

#[derive(Default)]
struct Bounce(Counters);

impl App for Bounce {
    fn counters(&self) -> &Counters {
        &self.0
    }
}

impl FrameApp for Bounce {
    fn on_burst(&mut self, _port: PortId, burst: &mut Burst, _turn: Turn) {
        (0..burst.len()).for_each(|i| burst.set_verdict(i, Verdict::Tx));
    }
}

fn bounce(control: &Control, idle: IdlePolicy) -> RunReport {
    let (mut lane, world) = SimLane::open(&"sim".parse().unwrap(), 2).unwrap();
    for port in 0..2 {
        for (i, frame) in udp_frames(0, 200, 64).iter().enumerate() {
            world.inject_at(PortId(port), i as u64 * 100_000, frame);
        }
    }
    world.finish();
    run_frames(&mut lane, &mut Bounce::default(), &world.clock(), idle, control).unwrap()
}

#[test]
fn a_run_over_frames_tells_every_frame_every_poll_and_every_wait() {
    for (name, idle) in [("spin", IdlePolicy::Spin), ("block", IdlePolicy::Block)] {
        let (report, happenings) = traced(name, |control| bounce(&control, idle));
        assert_eq!(report.counters().rx_frames, 400);
        let received = sum(&happenings, |what| match what {
            What::Receive { got, .. } => u64::from(got),
            _ => 0,
        });
        assert_eq!(received, 400);
        let (asked, sent) = happenings.iter().fold((0, 0), |(a, s), h| match h.what {
            What::Send { asked, sent, .. } => (a + u64::from(asked), s + u64::from(sent)),
            _ => (a, s),
        });
        assert_eq!((asked, sent), (400, report.counters().tx_frames));
        let calls = calls(&happenings);
        assert_eq!(calls[&points::RECEIVE], calls[&points::APP_FRAMES]);
        // An app that sends nothing on its own is asked once per port.
        assert_eq!((calls[&points::LEND], calls[&points::APP_FILL]), (2, 2));
        assert_eq!(calls[&points::SETTLE], calls[&points::RECEIVE] + calls[&points::LEND]);
        assert_eq!(calls.get(&points::WAIT).copied().unwrap_or(0), report.waits);
        // Two ports, so each turn polls twice.
        let empty = sum(&happenings, |what| match what {
            What::EmptyRun { polls, .. } => u64::from(polls),
            _ => 0,
        });
        // The one that finds that nothing will come is not counted.
        assert_eq!(empty + calls[&points::RECEIVE], 2 * (report.turns + 1));
    }
}

/// Sends all that it gets to fill.
#[derive(Default)]
struct Source(Counters);

impl App for Source {
    fn counters(&self) -> &Counters {
        &self.0
    }
}

impl FrameApp for Source {
    fn on_burst(&mut self, _port: PortId, _burst: &mut Burst, _turn: Turn) {}

    fn fill(&mut self, _port: PortId, burst: &mut Burst, _turn: Turn) -> Fill {
        for i in 0..burst.len() {
            assert!(burst.frame_mut(i).set_len(64));
            burst.set_verdict(i, Verdict::Tx);
        }
        Fill::Again
    }
}

fn dropped(happenings: &[Happening]) -> u64 {
    sum(happenings, |what| match what {
        What::Dropped { packets, .. } => packets,
        _ => 0,
    })
}

/// What waited at a tick was recorded as dropped, and again when as much waited at a later one.
#[test]
fn what_waits_to_be_sent_is_dropped_in_the_trace_when_the_run_ends() {
    let (report, happenings) = traced("waits", |control| {
        let stop = Stop::new().with_deadline_ns(100 * MS);
        let spec = "sim:queue=8,delay_us=5000".parse().unwrap();
        let (mut lane, world) = SimLane::open(&spec, 1).unwrap();
        let (control, mut app) = (Control { stop, ..control }, Source::default());
        run_frames(&mut lane, &mut app, &world.clock(), IdlePolicy::Spin, &control).unwrap()
    });
    let counters = report.counters();
    assert!(counters.drops(DropReason::TxRefused) > 0, "nothing waits at the end: {counters:?}");
    assert_eq!(dropped(&happenings), counters.lost());
    let sent = sum(&happenings, |what| match what {
        What::Send { sent, .. } => u64::from(sent),
        _ => 0,
    });
    assert_eq!(sent, counters.tx_frames);
}

#[test]
fn nothing_is_written_when_no_tracer_runs() {
    let control = Control::default();
    assert!(control.trace.take().is_none());
    assert_eq!(bounce(&control, IdlePolicy::Spin).counters().rx_frames, 400);
}

/// Ten rounds of three datagrams each, an empty one before each.
struct Rounds {
    left: usize,
    empty: bool,
    caps: CapsReport,
}

impl Lane for Rounds {
    fn name(&self) -> &'static str {
        "rounds"
    }
    fn ports(&self) -> usize {
        1
    }
    fn clock_domain(&self) -> ClockDomain {
        ClockDomain::Monotonic
    }
    fn wait(&mut self, _timeout: Duration) -> Result<Wake, LaneError> {
        Ok(Wake::Ready)
    }
    fn exhausted(&self) -> bool {
        self.left == 0
    }
    fn caps(&self, _port: PortId) -> &CapsReport {
        &self.caps
    }
    fn counters(&mut self, _port: PortId) -> Counters {
        Counters::default()
    }
}

impl DatagramPorts for Rounds {}

impl DatagramLane for Rounds {
    fn serve<A: DatagramApp>(
        &mut self,
        app: &mut A,
        clock: &impl Clock,
    ) -> Result<usize, LaneError> {
        self.empty = !self.empty;
        if self.empty || self.left == 0 {
            return Ok(0);
        }
        self.left -= 1;
        app.on_datagrams(&[datagram(b"x", 0); 3], Turn { now_ns: clock.now_ns() }, &mut Nowhere);
        Ok(3)
    }
    fn tick<A: DatagramApp>(&mut self, app: &mut A, turn: Turn) -> Result<(), LaneError> {
        app.on_tick(turn, &mut Nowhere);
        Ok(())
    }
}

#[derive(Default)]
struct Listener(Counters);

impl App for Listener {
    fn counters(&self) -> &Counters {
        &self.0
    }
}

impl DatagramApp for Listener {
    fn on_datagrams<O: DatagramOut>(&mut self, batch: &[Datagram<'_>], _: Turn, _: &mut O) {
        self.0.rx_frames += batch.len() as u64;
    }
}

#[test]
fn a_round_tells_the_apps_share_inside_it() {
    let (report, happenings) = traced("rounds", |control| {
        let mut lane = Rounds { left: 10, empty: false, caps: CapsReport::default() };
        let mut app = Listener::default();
        run_datagrams(&mut lane, &mut app, &MonotonicClock, IdlePolicy::Spin, &control).unwrap()
    });
    assert_eq!(report.app.rx_frames, 30);
    let calls = calls(&happenings);
    assert_eq!((calls[&points::SERVE], calls[&points::APP_DATAGRAMS]), (10, 10));
    let enter = |function| move |h: &Happening| h.what == What::Enter(function);
    let serve = happenings.iter().position(enter(points::SERVE)).unwrap();
    assert!(happenings[serve..].iter().position(enter(points::APP_DATAGRAMS)) == Some(1));
    let got = sum(&happenings, |what| match what {
        What::Receive { got, .. } => u64::from(got),
        _ => 0,
    });
    assert_eq!(got, 30);
}

/// Ports beyond those that a trace tells apart, each with what it has lost.
struct Losing {
    ports: Vec<(PortId, u64)>,
    past: u64,
    closes: bool,
    ticks: u32,
    caps: CapsReport,
}

fn lost(packets: u64) -> Counters {
    let mut counters = Counters::default();
    counters.drop_many(DropReason::RxQueueFull, packets);
    counters
}

impl Lane for Losing {
    fn name(&self) -> &'static str {
        "losing"
    }
    fn ports(&self) -> usize {
        self.ports.len()
    }
    fn port(&self, at: usize) -> PortId {
        self.ports[at].0
    }
    fn past(&self) -> Counters {
        lost(self.past)
    }
    fn clock_domain(&self) -> ClockDomain {
        ClockDomain::Virtual
    }
    fn wait(&mut self, _timeout: Duration) -> Result<Wake, LaneError> {
        Ok(Wake::Ready)
    }
    fn exhausted(&self) -> bool {
        self.ticks == 5
    }
    fn caps(&self, _port: PortId) -> &CapsReport {
        &self.caps
    }
    fn counters(&mut self, port: PortId) -> Counters {
        lost(self.ports.iter().filter(|(id, _)| *id == port).map(|(_, packets)| packets).sum())
    }
}

impl DatagramPorts for Losing {}

impl DatagramLane for Losing {
    fn serve<A: DatagramApp>(
        &mut self,
        _app: &mut A,
        _clock: &impl Clock,
    ) -> Result<usize, LaneError> {
        Ok(0)
    }
    /// In the third tick the second port loses two more and is closed, and a port that loses four comes and goes.
    fn tick<A: DatagramApp>(&mut self, _app: &mut A, _turn: Turn) -> Result<(), LaneError> {
        self.ticks += 1;
        if self.closes && self.ticks == 3 {
            let (_, packets) = self.ports.remove(1);
            self.past += packets + 2 + 4;
        }
        Ok(())
    }
}

/// A clock on which every look is a tick later.
struct Hasty(Cell<u64>);

impl Clock for Hasty {
    fn now_ns(&self) -> u64 {
        self.0.replace(self.0.get() + TICK_NS)
    }
    fn domain(&self) -> ClockDomain {
        ClockDomain::Virtual
    }
}

/// Two ports had one account: each tick what one had lost more than the other was recorded again.
#[test]
fn what_many_ports_lost_is_recorded_once_also_of_those_that_are_closed() {
    for (name, closes, all) in [("losing", false, 13), ("closing", true, 19)] {
        let (report, happenings) = traced(name, |control| {
            let ports = vec![(PortId(300), 10), (PortId(301), 3)];
            let caps = CapsReport::default();
            let mut lane = Losing { ports, past: 0, closes, ticks: 0, caps };
            let (mut app, clock) = (Listener::default(), Hasty(Cell::new(0)));
            run_datagrams(&mut lane, &mut app, &clock, IdlePolicy::Spin, &control).unwrap()
        });
        assert_eq!((report.counters().lost(), dropped(&happenings)), (all, all), "{name}");
    }
}

#[test]
fn each_worker_has_a_trace_of_its_own() {
    let folder = Folder::new("workers");
    let session = Session::create(&folder.0, SessionOptions::default()).unwrap();
    let cpus = usable_cpus().unwrap();
    let slots = (0..cpus.len()).map(|i| {
        let thread = ThreadInfo::current(format!("worker-{i}"));
        TraceSlot::holding(session.recorder(&thread).unwrap())
    });
    let workers = Workers::new(&cpus, Stop::new()).unwrap().traced(slots);
    let work = |worker: &Worker<'_>| Ok(bounce(&worker.control, IdlePolicy::Block));
    workers.run(&work).unwrap();
    drop(workers);
    let summaries = session.finish().unwrap();
    assert_eq!(summaries.len(), cpus.len());
    let mut tids = Vec::new();
    for summary in summaries {
        let bytes = fs::read(&summary.path).unwrap();
        let file = TraceFile::open(&bytes).unwrap();
        assert!(file.happenings().any(|h| matches!(h.what, What::Receive { .. })));
        tids.push(file.threads()[0].tid);
    }
    tids.dedup();
    assert_eq!(tids.len(), cpus.len(), "the workers recorded, not the thread that started them");
}

#[test]
fn a_trace_of_a_stopped_run_has_its_end() {
    let (_, happenings) = traced("stopped", |control| {
        let stop = Stop::new().with_deadline_ns(30 * MS);
        let (mut lane, world) = SimLane::open(&"sim".parse().unwrap(), 1).unwrap();
        let control = Control { stop, ..control };
        let idle = IdlePolicy::Spin;
        run_frames(&mut lane, &mut Bounce::default(), &world.clock(), idle, &control).unwrap()
    });
    assert!(
        matches!(happenings.last().unwrap().what, What::EmptyRun { .. }),
        "{:?}",
        happenings.last()
    );
    assert_eq!(calls(&happenings)[&points::APP_TICK], 2);
}
