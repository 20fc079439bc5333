//! The loop for datagrams and streams, on a lane made of a script: time is virtual, so every test is
//! exact. Both shapes run each test.

mod nowhere;

use laneway_core::{
    App, Bell, CapsReport, Clock, ClockDomain, Close, ConnId, Counters, Datagram, DatagramApp,
    DatagramLane, DatagramOut, DatagramPorts, Lane, LaneError, Opened, PortId, PortPlan, StreamApp,
    StreamLane, StreamOut, Turn, Wake,
};
use laneway_engine::{
    BLOCK_NS_MAX, Control, Ended, MonotonicClock, RunFailed, RunReport, Stop, TICK_NS,
    run_datagrams, run_streams,
};
use laneway_spec::IdlePolicy;
use nowhere::{Nowhere, datagram};
use std::{cell::Cell, collections::VecDeque, rc::Rc, time::Duration};

const MS: u64 = 1_000_000;
/// What a call of serve takes, so that a worker that only polls gets on.
const SERVE_NS: u64 = 100;
const POLICIES: [IdlePolicy; 3] =
    [IdlePolicy::Spin, IdlePolicy::SpinThenBlock(Duration::from_micros(50)), IdlePolicy::Block];

#[derive(Clone, Default)]
struct VirtualClock(Rc<Cell<u64>>);

impl VirtualClock {
    fn advance_to(&self, ns: u64) {
        self.0.set(self.0.get().max(ns));
    }
}

impl Clock for VirtualClock {
    fn now_ns(&self) -> u64 {
        self.0.get()
    }
    fn domain(&self) -> ClockDomain {
        ClockDomain::Virtual
    }
}

/// A lane of both shapes on which one message arrives at each of some times.
#[derive(Default)]
struct Script {
    clock: VirtualClock,
    arrivals: VecDeque<u64>,
    /// Nothing comes after the last arrival.
    ends: bool,
    /// A timer of the lane's own: served once at or after this time.
    timer_ns: Option<u64>,
    timer_served_ns: Option<u64>,
    /// Fails instead of serving for the nth time, counted from 0.
    fails_at_serve: Option<usize>,
    fails_to_tick: bool,
    fails_to_wait: bool,
    serves: usize,
    timeouts: Vec<Duration>,
    finishes: usize,
    caps: CapsReport,
    counters: Counters,
}

impl Script {
    fn new(arrivals: impl IntoIterator<Item = u64>) -> Script {
        Script { arrivals: arrivals.into_iter().collect(), ..Script::default() }
    }

    /// Takes the messages that are there; `each` sees each.
    fn take(&mut self, mut each: impl FnMut(u64)) -> Result<usize, LaneError> {
        if self.fails_at_serve == Some(self.serves) {
            return Err(gone());
        }
        self.serves += 1;
        let now_ns = self.clock.now_ns();
        self.clock.advance_to(now_ns + SERVE_NS);
        if self.timer_ns.is_some_and(|at| at <= now_ns) {
            (self.timer_ns, self.timer_served_ns) = (None, Some(now_ns));
        }
        let mut taken = 0;
        while let Some(at_ns) = self.arrivals.pop_front_if(|at| *at <= now_ns) {
            each(at_ns);
            self.counters.rx_frames += 1;
            taken += 1;
        }
        Ok(taken)
    }

    fn tick_once(&self) -> Result<(), LaneError> {
        if self.fails_to_tick { Err(gone()) } else { Ok(()) }
    }

    fn block(&mut self, timeout: Duration) -> Result<Wake, LaneError> {
        if self.fails_to_wait {
            return Err(gone());
        }
        self.timeouts.push(timeout);
        let until_ns = self.clock.now_ns() + timeout.as_nanos() as u64;
        match self.arrivals.front().filter(|&&at| at <= until_ns) {
            Some(&at_ns) => {
                self.clock.advance_to(at_ns);
                Ok(Wake::Ready)
            }
            None => {
                self.clock.advance_to(until_ns);
                Ok(Wake::Timeout)
            }
        }
    }

    fn is_exhausted(&self) -> bool {
        self.ends && self.arrivals.is_empty()
    }
}

fn gone() -> LaneError {
    LaneError::Gone { lane: "script".into(), name: "s0".into() }
}

impl Lane for Script {
    fn name(&self) -> &'static str {
        "script"
    }
    fn ports(&self) -> usize {
        1
    }
    fn clock_domain(&self) -> ClockDomain {
        ClockDomain::Virtual
    }
    fn wait(&mut self, timeout: Duration) -> Result<Wake, LaneError> {
        self.block(timeout)
    }
    fn due_ns(&self) -> Option<u64> {
        self.timer_ns
    }
    fn exhausted(&self) -> bool {
        self.is_exhausted()
    }
    fn caps(&self, _: PortId) -> &CapsReport {
        &self.caps
    }
    fn counters(&mut self, _: PortId) -> Counters {
        self.caps.fact("received", self.counters.rx_frames);
        self.counters.clone()
    }
}

impl DatagramPorts for Script {}

impl DatagramLane for Script {
    fn serve<A: DatagramApp>(
        &mut self,
        app: &mut A,
        clock: &impl Clock,
    ) -> Result<usize, LaneError> {
        self.take(|ts_ns| {
            app.on_datagrams(
                &[datagram(b"message", ts_ns)],
                Turn { now_ns: clock.now_ns() },
                &mut Nowhere,
            );
        })
    }

    fn tick<A: DatagramApp>(&mut self, app: &mut A, turn: Turn) -> Result<(), LaneError> {
        self.tick_once()?;
        DatagramApp::on_tick(app, turn, &mut Nowhere);
        Ok(())
    }
}

impl StreamLane for Script {
    fn serve<A: StreamApp>(&mut self, app: &mut A, clock: &impl Clock) -> Result<usize, LaneError> {
        let served = self.take(|_| {
            app.on_bytes(ConnId(1), b"message", &mut Nowhere);
        })?;
        if served > 0 {
            app.on_turn_end(Turn { now_ns: clock.now_ns() }, &mut Nowhere);
        }
        Ok(served)
    }

    fn tick<A: StreamApp>(&mut self, app: &mut A, turn: Turn) -> Result<(), LaneError> {
        self.tick_once()?;
        StreamApp::on_tick(app, turn, &mut Nowhere);
        app.on_turn_end(turn, &mut Nowhere);
        Ok(())
    }

    fn finish<A: StreamApp>(&mut self, app: &mut A, _: Turn) {
        self.finishes += 1;
        app.on_close(ConnId(1), Close::Stop);
    }
}

/// Counts messages and remembers when it ticked.
#[derive(Default)]
struct Probe {
    /// What was called, in order.
    calls: Vec<&'static str>,
    counters: Counters,
    ticks_ns: Vec<u64>,
    closes: usize,
    stops: usize,
    /// How many connections were closed when it was asked to stop.
    closes_at_stop: usize,
    limit: Option<u64>,
    /// It wants to know when a round is sent, and how often it was called; when it was shown something last.
    asks_for_sent: bool,
    sent: usize,
    shown_ns: u64,
    /// It wants each tick so much behind the last, and this is when.
    due_after_ns: Option<u64>,
    due_ns: Option<u64>,
    /// Requested from within a tick, as a signal would come at any time.
    stop_at_tick: Option<(usize, Stop)>,
}

impl Probe {
    fn tick(&mut self, turn: Turn) {
        self.calls.push("tick");
        self.ticks_ns.push(turn.now_ns);
        self.due_ns = self.due_after_ns.map(|after_ns| turn.now_ns + after_ns);
        if let Some((tick, stop)) = &self.stop_at_tick
            && self.ticks_ns.len() == *tick
        {
            stop.request();
        }
    }

    fn stop(&mut self) {
        self.stops += 1;
        self.closes_at_stop = self.closes;
    }

    fn is_done(&self) -> bool {
        self.limit.is_some_and(|limit| self.counters.rx_frames >= limit)
    }
}

impl App for Probe {
    fn on_bell(&mut self, _: Turn) {
        self.calls.push("bell");
    }
    fn on_stop(&mut self, _: Turn) {
        self.stop();
    }
    fn wants_stop(&self) -> bool {
        self.is_done()
    }
    fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl DatagramApp for Probe {
    fn on_datagrams<O: DatagramOut>(&mut self, batch: &[Datagram<'_>], turn: Turn, _: &mut O) {
        assert!(batch.iter().all(|datagram| datagram.ts_ns <= turn.now_ns));
        self.counters.rx_frames += batch.len() as u64;
        self.shown_ns = turn.now_ns;
    }
    fn on_ports<P: DatagramPorts>(&mut self, ports: &mut P, _: Turn) {
        let fixed = ports.open_port(&PortPlan::at(([127, 0, 0, 1], 0).into()));
        assert!(matches!(fixed, Err(LaneError::Refused { .. })), "{fixed:?}");
        self.calls.push("ports");
    }
    fn on_tick<O: DatagramOut>(&mut self, turn: Turn, _: &mut O) {
        self.tick(turn);
    }
    fn awaits_sent(&self) -> bool {
        self.asks_for_sent && self.counters.rx_frames > self.sent as u64
    }
    fn on_sent(&mut self, turn: Turn) {
        assert!(turn.now_ns >= self.shown_ns, "behind what was shown");
        self.sent += 1;
    }
}

impl StreamApp for Probe {
    fn on_open<O: StreamOut>(&mut self, _: Opened, _: &mut O) {}
    fn on_bytes<O: StreamOut>(&mut self, _: ConnId, bytes: &[u8], _: &mut O) -> usize {
        self.counters.rx_frames += 1;
        bytes.len()
    }
    fn on_close(&mut self, _: ConnId, _: Close) {
        self.closes += 1;
    }
    fn on_tick<O: StreamOut>(&mut self, turn: Turn, _: &mut O) {
        self.tick(turn);
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    Datagrams,
    Streams,
}

const SHAPES: [Shape; 2] = [Shape::Datagrams, Shape::Streams];

/// Runs `app` on `lane`; whatever ends it, the app is notified once, after its connections were closed.
fn run(
    shape: Shape,
    lane: &mut Script,
    app: &mut Probe,
    idle: IdlePolicy,
    control: &Control,
) -> Result<RunReport, RunFailed> {
    let clock = lane.clock.clone();
    let outcome = match shape {
        Shape::Datagrams => run_datagrams(lane, app, &clock, idle, control),
        Shape::Streams => run_streams(lane, app, &clock, idle, control),
    };
    let finishes = if shape == Shape::Streams { 1 } else { 0 };
    assert_eq!((app.stops, lane.finishes), (1, finishes), "{shape:?}: stopped once");
    assert_eq!(app.closes_at_stop, finishes, "{shape:?}: connections close before the app stops");
    outcome
}

/// Every shape under every policy.
fn each(mut test: impl FnMut(Shape, IdlePolicy)) {
    for shape in SHAPES {
        POLICIES.into_iter().for_each(|idle| test(shape, idle));
    }
}

fn until(deadline_ns: u64) -> Control {
    Stop::new().with_deadline_ns(deadline_ns).into()
}

#[test]
fn every_message_is_seen_and_the_end_of_all_ends_the_run() {
    each(|shape, idle| {
        let mut lane = Script { ends: true, ..Script::new((0..100).map(|i| i * 77_000)) };
        let mut app = Probe::default();
        let report = run(shape, &mut lane, &mut app, idle, &Control::default()).unwrap();
        assert_eq!((report.ended, report.lane.as_str()), (Ended::Exhausted, "script"));
        assert_eq!((report.counters().rx_frames, report.app.rx_frames), (100, 100), "{idle}");
        assert_eq!(report.clock, ClockDomain::Virtual);
    });
}

/// The facts of a report were those of the reading before.
#[test]
fn a_report_has_the_facts_that_a_lane_writes_when_it_counts() {
    each(|shape, idle| {
        let mut lane = Script { ends: true, ..Script::new([0, 1, 2]) };
        let mut app = Probe::default();
        let report = run(shape, &mut lane, &mut app, idle, &Control::default()).unwrap();
        let facts = &report.ports[0].caps.facts;
        assert_eq!(facts.get("received").map(String::as_str), Some("3"), "{shape:?} {idle}");
    });
}

#[test]
fn an_app_that_awaits_it_is_called_behind_the_sends_of_each_round() {
    for (asks_for_sent, sent) in [(true, 100), (false, 0)] {
        let mut lane = Script { ends: true, ..Script::new((0..100).map(|i| i * 77_000)) };
        let mut app = Probe { asks_for_sent, ..Probe::default() };
        let control = Control::default();
        run(Shape::Datagrams, &mut lane, &mut app, IdlePolicy::Block, &control).unwrap();
        assert_eq!((app.counters.rx_frames, app.sent), (100, sent));
    }
}

#[test]
fn the_app_ticks_at_its_interval_with_and_without_traffic() {
    each(|shape, idle| {
        // Traffic in the second half only.
        let mut lane = Script::new((0..1000).map(|i| 50 * MS + i * 50_000));
        let mut app = Probe::default();
        run(shape, &mut lane, &mut app, idle, &until(100 * MS)).unwrap();
        assert_eq!(app.ticks_ns.len(), 9, "{shape:?} {idle}: {:?}", app.ticks_ns);
        let gaps = app.ticks_ns.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.max().is_some_and(|gap| gap <= TICK_NS + MS / 10), "{:?}", app.ticks_ns);
    });
}

#[test]
fn an_app_ticks_when_it_is_due_and_a_tick_that_it_puts_off_comes_all_the_same() {
    for shape in SHAPES {
        for (due_after_ns, ticks) in [(2 * MS, 45), (3_600_000 * MS, 9)] {
            let mut lane = Script::new([]);
            // The first tick is the usual one.
            let mut app = Probe { due_after_ns: Some(due_after_ns), ..Probe::default() };
            run(shape, &mut lane, &mut app, IdlePolicy::Block, &until(100 * MS)).unwrap();
            assert_eq!(app.ticks_ns.len(), ticks, "{shape:?}: {:?}", app.ticks_ns);
        }
    }
}

#[test]
fn a_request_to_stop_ends_the_run_within_one_block() {
    each(|shape, idle| {
        let stop = Stop::new();
        let mut app = Probe { stop_at_tick: Some((3, stop.clone())), ..Probe::default() };
        let report = run(shape, &mut Script::default(), &mut app, idle, &stop.into()).unwrap();
        assert_eq!((report.ended, app.ticks_ns.len()), (Ended::Stopped, 3));
        let seen_after_ns = report.ended_ns - app.ticks_ns[2];
        assert!(seen_after_ns <= BLOCK_NS_MAX + SERVE_NS, "{idle}: {seen_after_ns}");
    });
}

#[test]
fn a_deadline_ends_the_run_on_time() {
    each(|shape, idle| {
        let mut app = Probe::default();
        let control = until(33_333_300);
        let report = run(shape, &mut Script::default(), &mut app, idle, &control).unwrap();
        assert_eq!((report.ended, report.started_ns), (Ended::Stopped, 0));
        assert!((33_333_300..=33_333_300 + SERVE_NS).contains(&report.ended_ns), "{report:?}");
    });
}

#[test]
fn an_app_may_end_the_run() {
    each(|shape, idle| {
        let mut app = Probe { limit: Some(10), ..Probe::default() };
        let mut lane = Script::new((0..100).map(|i| i * MS));
        let report = run(shape, &mut lane, &mut app, idle, &Control::default()).unwrap();
        assert_eq!((report.ended, report.app.rx_frames), (Ended::App, 10));
    });
}

#[test]
fn a_lane_that_fails_to_serve_leaves_its_counters_and_a_finished_app() {
    each(|shape, idle| {
        let mut lane = Script { fails_at_serve: Some(5), ..Script::new([0, 0, 0]) };
        let mut app = Probe::default();
        let failed = run(shape, &mut lane, &mut app, idle, &Control::default()).unwrap_err();
        assert_eq!(failed.report.ended, Ended::Failed);
        assert_eq!((failed.report.counters().rx_frames, failed.report.app.rx_frames), (3, 3));
        assert!(matches!(LaneError::from(failed), LaneError::Gone { .. }));
    });
}

#[test]
fn a_lane_that_fails_to_tick_or_to_wait_ends_the_run_as_well() {
    for shape in SHAPES {
        for (fails_to_tick, fails_to_wait) in [(true, false), (false, true)] {
            let mut lane = Script { fails_to_tick, fails_to_wait, ..Script::new([0]) };
            let (mut app, idle) = (Probe::default(), IdlePolicy::Block);
            let failed = run(shape, &mut lane, &mut app, idle, &Control::default()).unwrap_err();
            assert_eq!(failed.report.counters().rx_frames, 1, "{shape:?}");
            assert!(app.ticks_ns.is_empty());
        }
    }
}

#[test]
fn no_block_is_longer_than_the_bound_nor_than_the_time_to_the_next_tick() {
    for shape in SHAPES {
        let mut lane = Script::default();
        let mut app = Probe::default();
        let report = run(shape, &mut lane, &mut app, IdlePolicy::Block, &until(95 * MS)).unwrap();
        assert!(lane.timeouts.iter().all(|t| t.as_nanos() as u64 <= BLOCK_NS_MAX.min(TICK_NS)));
        assert_eq!(report.waits, lane.timeouts.len() as u64);
        assert!(report.waits <= 12 && report.turns <= 40, "{shape:?}: {report:?}");
        assert!(report.blocked_ns >= 94 * MS, "{report:?}");
    }
}

#[test]
fn a_timer_of_the_lane_is_served_on_time_although_nothing_arrives() {
    each(|shape, idle| {
        let mut lane = Script { timer_ns: Some(13_700_000), ..Script::default() };
        let mut app = Probe::default();
        run(shape, &mut lane, &mut app, idle, &until(30 * MS)).unwrap();
        let served_ns = lane.timer_served_ns.expect("the timer was due");
        assert!((13_700_000..=13_700_000 + 3 * SERVE_NS).contains(&served_ns), "{served_ns}");
    });
}

#[test]
fn a_timer_that_is_overdue_makes_the_next_serve_come_at_once() {
    for shape in SHAPES {
        let mut lane = Script { timer_ns: Some(0), ..Script::default() };
        run(shape, &mut lane, &mut Probe::default(), IdlePolicy::Block, &until(MS)).unwrap();
        assert_eq!(lane.timer_served_ns, Some(0), "{shape:?}");
    }
}

#[test]
fn spin_never_blocks() {
    for shape in SHAPES {
        let mut lane = Script::default();
        let spin = run(shape, &mut lane, &mut Probe::default(), IdlePolicy::Spin, &until(20 * MS));
        let spin = spin.unwrap();
        assert_eq!((spin.waits, spin.blocked_ns, lane.timeouts.len()), (0, 0, 0));
        assert!(spin.spun_ns >= 19 * MS, "{spin:?}");
    }
}

#[test]
fn adaptive_spins_its_time_after_each_message_and_then_blocks() {
    for shape in SHAPES {
        let mut lane = Script { ends: true, ..Script::new([MS, 2 * MS, 3 * MS]) };
        let idle = IdlePolicy::SpinThenBlock(Duration::from_micros(200));
        let report = run(shape, &mut lane, &mut Probe::default(), idle, &Control::default());
        let report = report.unwrap();
        // Before the first message and after the first two; the third ends the run.
        assert!((599_000..620_000).contains(&report.spun_ns), "{report:?}");
        assert_eq!(report.waits, 3);
    }
}

#[test]
#[should_panic(expected = "the worker's clock and lane script")]
fn a_clock_of_another_domain_is_refused_for_datagrams() {
    let (mut lane, mut app) = (Script::default(), Probe::default());
    let idle = IdlePolicy::Block;
    let _ = run_datagrams(&mut lane, &mut app, &MonotonicClock, idle, &Control::default());
}

#[test]
#[should_panic(expected = "the worker's clock and lane script")]
fn a_clock_of_another_domain_is_refused_for_streams() {
    let (mut lane, mut app) = (Script::default(), Probe::default());
    let idle = IdlePolicy::Block;
    let _ = run_streams(&mut lane, &mut app, &MonotonicClock, idle, &Control::default());
}

#[test]
fn a_running_worker_can_be_looked_at() {
    for shape in SHAPES {
        let control = Control::default();
        let outside = control.clone();
        let looker = std::thread::spawn(move || {
            let look = outside.watch.look(Duration::from_secs(60));
            outside.stop.request();
            look.expect("a running worker answers")
        });
        let mut lane = Script::new([0]);
        let ended = run(shape, &mut lane, &mut Probe::default(), IdlePolicy::Block, &control);
        let look = looker.join().expect("the looker does not panic");
        assert_eq!((look.ended, look.counters().rx_frames), (Ended::Running, 1));
        assert!(look.turns <= ended.unwrap().turns);
    }
}

/// A lane whose time is what its file says: the worker's clock stands still, and it never ticks.
#[derive(Default)]
struct OfFile(CapsReport);

impl Lane for OfFile {
    fn name(&self) -> &'static str {
        "file"
    }
    fn ports(&self) -> usize {
        1
    }
    fn clock_domain(&self) -> ClockDomain {
        ClockDomain::Unix
    }
    fn wait(&mut self, _: Duration) -> Result<Wake, LaneError> {
        Ok(Wake::Ready)
    }
    fn caps(&self, _: PortId) -> &CapsReport {
        &self.0
    }
    fn counters(&mut self, _: PortId) -> Counters {
        Counters::default()
    }
}

impl DatagramPorts for OfFile {}

impl DatagramLane for OfFile {
    fn serve<A: DatagramApp>(&mut self, _: &mut A, _: &impl Clock) -> Result<usize, LaneError> {
        Ok(1)
    }
    fn tick<A: DatagramApp>(&mut self, _: &mut A, _: Turn) -> Result<(), LaneError> {
        panic!("no time passes")
    }
}

struct Still;

impl Clock for Still {
    fn now_ns(&self) -> u64 {
        0
    }
    fn domain(&self) -> ClockDomain {
        ClockDomain::Unix
    }
}

/// Each look at it lasted as long as a look may.
#[test]
fn a_worker_whose_clock_stands_still_answers_a_look() {
    let control = Control::default();
    let outside = control.clone();
    let looker = std::thread::spawn(move || {
        let look = outside.watch.look(Duration::from_secs(60));
        outside.stop.request();
        look
    });
    let (mut lane, mut app) = (OfFile::default(), Probe::default());
    run_datagrams(&mut lane, &mut app, &Still, IdlePolicy::Spin, &control).unwrap();
    let look = looker.join().expect("the looker does not panic");
    assert_eq!(look.map(|look| look.ended), Some(Ended::Running));
}

#[test]
fn behind_a_bell_come_the_ports_of_datagrams_and_a_tick() {
    for (shape, wanted) in [
        (Shape::Datagrams, &["bell", "ports", "tick"][..]),
        (Shape::Streams, &["bell", "tick"][..]),
    ] {
        let bell = Bell::new().expect("a descriptor");
        bell.ring();
        let stop = Stop::new();
        let control = Control { bell: Some(bell), ..Control::from(stop.clone()) };
        let mut app = Probe { stop_at_tick: Some((1, stop)), ..Probe::default() };
        run(shape, &mut Script::new([]), &mut app, IdlePolicy::Block, &control)
            .unwrap_or_else(|failed| panic!("{shape:?}: {}", failed.error));
        assert_eq!(app.calls, wanted, "{shape:?}");
    }
}
