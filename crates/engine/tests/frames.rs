//! The frame loop on simulated links: every test is exact, because time is virtual.

use laneway_core::{
    App, Bell, Burst, Clock, ClockDomain, Counters, Fill, FrameApp, FrameLane, Lane, LaneError,
    PortId, Turn, Verdict,
};
use laneway_engine::{
    BLOCK_NS_MAX, Control, Ended, MonotonicClock, RunReport, Stop, TICK_NS, run_frames,
};
use laneway_sim::{Direction, SimLane, SimWorld};
use laneway_spec::IdlePolicy;
use laneway_testkit::{UdpFrame, sequence, udp_frames};
use proptest::prelude::*;
use std::time::Duration;

const PORT: PortId = PortId(0);
const MS: u64 = 1_000_000;

/// Bounces everything, fills on a schedule, and remembers when it was called.
#[derive(Default)]
struct Probe {
    counters: Counters,
    seen: Vec<u64>,
    ticks_ns: Vec<u64>,
    fills_ns: Vec<u64>,
    stops: usize,
    /// Frames to send, one per `gap_ns` (0: as fast as possible).
    to_send: u64,
    gap_ns: u64,
    sent: u64,
    /// Ends the run after this many frames.
    limit: Option<usize>,
    /// Requested from within a tick, as a signal would come at any time.
    stop_at_tick: Option<(usize, Stop)>,
}

impl App for Probe {
    fn on_stop(&mut self, _turn: Turn) {
        self.stops += 1;
    }

    fn wants_stop(&self) -> bool {
        self.limit.is_some_and(|limit| self.seen.len() >= limit)
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl FrameApp for Probe {
    fn on_burst(&mut self, _port: PortId, burst: &mut Burst, turn: Turn) {
        for i in 0..burst.len() {
            assert!(burst.frame(i).ts_ns <= turn.now_ns);
            self.seen.extend(sequence(burst.frame(i).bytes));
            self.counters.rx_frames += 1;
            burst.set_verdict(i, Verdict::Tx);
        }
    }

    fn fill(&mut self, _port: PortId, burst: &mut Burst, turn: Turn) -> Fill {
        if self.to_send == 0 {
            return Fill::Never;
        }
        self.fills_ns.push(turn.now_ns);
        let frames = if self.gap_ns > 0 { 1 } else { burst.len() };
        for i in 0..frames.min((self.to_send - self.sent) as usize) {
            let bytes = UdpFrame { sequence: self.sent, ..UdpFrame::default() }.build();
            assert!(burst.frame_mut(i).set_len(bytes.len()));
            burst.frame_mut(i).bytes_mut().copy_from_slice(&bytes);
            burst.set_verdict(i, Verdict::Tx);
            self.sent += 1;
        }
        match (self.sent == self.to_send, self.gap_ns) {
            (true, _) => Fill::Done,
            (false, 0) => Fill::Again,
            (false, gap_ns) => Fill::At(self.sent * gap_ns),
        }
    }

    fn on_tick(&mut self, turn: Turn) {
        self.ticks_ns.push(turn.now_ns);
        if let Some((tick, stop)) = &self.stop_at_tick
            && self.ticks_ns.len() == *tick
        {
            stop.request();
        }
    }
}

fn open(spec: &str, ports: usize) -> (SimLane, SimWorld) {
    SimLane::open(&spec.parse().expect("well formed"), ports).expect("a valid spec")
}

fn run(
    lane: &mut SimLane,
    world: &SimWorld,
    app: &mut Probe,
    idle: IdlePolicy,
    control: &Control,
) -> RunReport {
    let report = run_frames(lane, app, &world.clock(), idle, control).expect("sim does not fail");
    assert_eq!(app.stops, 1, "on_stop is called once");
    report
}

/// Runs until the deadline.
fn run_until(spec: &str, app: &mut Probe, idle: IdlePolicy, deadline_ns: u64) -> RunReport {
    let (mut lane, world) = open(spec, 1);
    run(&mut lane, &world, app, idle, &Stop::new().with_deadline_ns(deadline_ns).into())
}

const POLICIES: [IdlePolicy; 3] =
    [IdlePolicy::Spin, IdlePolicy::SpinThenBlock(Duration::from_micros(50)), IdlePolicy::Block];

#[test]
fn every_frame_is_seen_once_and_bounced_on_every_port_under_every_policy() {
    for idle in POLICIES {
        let (mut lane, world) = open("sim:delay_us=20", 3);
        for (i, frame) in udp_frames(0, 300, 90).iter().enumerate() {
            world.inject_at(PortId((i % 3) as u32), i as u64 * 7_000, frame);
        }
        world.finish();
        let mut app = Probe::default();
        let report = run(&mut lane, &world, &mut app, idle, &Control::default());
        assert_eq!(report.ended, Ended::Exhausted);
        assert!(app.seen.iter().copied().eq(0..300), "{idle}");
        assert_eq!(report.ports.len(), 3);
        assert!(report.ports.iter().all(|p| p.counters.tx_frames == 100), "{idle}");
        assert_eq!((report.counters().rx_frames, report.app.rx_frames), (300, 300));
        assert_eq!((report.lane.as_str(), report.clock), ("sim", ClockDomain::Virtual));
        world.advance_to(world.clock().now_ns() + MS);
        assert_eq!((0..3).map(|p| world.collect(PortId(p)).len()).sum::<usize>(), 300);
    }
}

#[test]
fn the_same_seed_gives_the_same_report() {
    let once = || {
        let (mut lane, world) = open("sim:seed=3,loss=0.1,dup=0.1,reorder=0.1,jitter_us=90", 1);
        let frames = udp_frames(0, 400, 64);
        frames.iter().zip(0..).for_each(|(f, i)| world.inject_at(PORT, i * 5_000, f));
        world.finish();
        let mut app = Probe::default();
        let report = run(&mut lane, &world, &mut app, IdlePolicy::default(), &Control::default());
        (report, app.seen)
    };
    assert_eq!(once(), once());
}

#[test]
fn the_app_ticks_at_its_interval_with_and_without_traffic() {
    for idle in POLICIES {
        let (mut lane, world) = open("sim", 1);
        // Traffic in the second half only.
        for (i, frame) in udp_frames(0, 1000, 64).iter().enumerate() {
            world.inject_at(PORT, 50 * MS + i as u64 * 50_000, frame);
        }
        let mut app = Probe::default();
        let stop = Stop::new().with_deadline_ns(100 * MS);
        run(&mut lane, &world, &mut app, idle, &stop.into());
        assert_eq!(app.ticks_ns.len(), 9, "{idle}: {:?}", app.ticks_ns);
        let gaps = app.ticks_ns.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.max().is_some_and(|gap| gap <= TICK_NS + MS / 10), "{:?}", app.ticks_ns);
    }
}

#[test]
fn a_request_to_stop_ends_the_run_within_one_block() {
    for idle in POLICIES {
        let (mut lane, world) = open("sim", 1);
        let stop = Stop::new();
        let mut app = Probe { stop_at_tick: Some((3, stop.clone())), ..Probe::default() };
        let report = run(&mut lane, &world, &mut app, idle, &stop.into());
        assert_eq!(report.ended, Ended::Stopped);
        let seen_after_ns = report.ended_ns - app.ticks_ns[2];
        assert!(seen_after_ns <= BLOCK_NS_MAX, "{idle}: {seen_after_ns}");
        assert_eq!(app.ticks_ns.len(), 3);
    }
}

#[test]
fn a_deadline_ends_the_run_on_time() {
    for idle in POLICIES {
        let report = run_until("sim", &mut Probe::default(), idle, 33_333_300);
        assert_eq!((report.ended, report.started_ns), (Ended::Stopped, 0));
        assert_eq!(report.ended_ns, 33_333_300, "{idle}");
    }
}

#[test]
fn an_app_may_end_the_run() {
    let (mut lane, world) = open("sim:burst=4", 1);
    udp_frames(0, 100, 64).iter().for_each(|frame| world.inject(PORT, frame));
    let mut app = Probe { limit: Some(10), ..Probe::default() };
    let report = run(&mut lane, &world, &mut app, IdlePolicy::Block, &Control::default());
    assert_eq!(report.ended, Ended::App);
    assert_eq!(app.seen.len(), 12, "the burst in hand is finished");
    assert_eq!(report.counters().tx_frames, 12);
}

#[test]
fn spin_never_blocks_and_block_hardly_spins() {
    let report = |idle| run_until("sim", &mut Probe::default(), idle, 50 * MS);
    let spin = report(IdlePolicy::Spin);
    assert_eq!((spin.waits, spin.blocked_ns), (0, 0));
    assert!(spin.spun_ns >= 50 * MS - laneway_sim::POLL_NS, "{spin:?}");
    let block = report(IdlePolicy::Block);
    assert!(block.waits <= 6 && block.turns <= 20, "{block:?}");
    assert!(block.blocked_ns >= 49 * MS, "{block:?}");
}

#[test]
fn adaptive_spins_its_time_after_each_frame_and_then_blocks() {
    let (mut lane, world) = open("sim", 1);
    let frames = udp_frames(0, 3, 64);
    frames.iter().zip(1..).for_each(|(frame, i)| world.inject_at(PORT, i * MS, frame));
    world.finish();
    let idle = IdlePolicy::SpinThenBlock(Duration::from_micros(200));
    let report = run(&mut lane, &world, &mut Probe::default(), idle, &Control::default());
    // Before the first frame and after the first two; the third ends the run.
    assert!((599_000..620_000).contains(&report.spun_ns), "{report:?}");
    assert_eq!(report.waits, 3);
}

#[test]
fn an_app_that_says_never_is_asked_once_per_port() {
    struct Never(usize, Counters);
    impl App for Never {
        fn counters(&self) -> &Counters {
            &self.1
        }
    }

    impl FrameApp for Never {
        fn on_burst(&mut self, _: PortId, _: &mut Burst, _: Turn) {}
        fn fill(&mut self, _: PortId, _: &mut Burst, _: Turn) -> Fill {
            self.0 += 1;
            Fill::Never
        }
    }
    let (mut lane, world) = open("sim", 2);
    let mut app = Never(0, Counters::default());
    let stop = Stop::new().with_deadline_ns(30 * MS);
    run_frames(&mut lane, &mut app, &world.clock(), IdlePolicy::Block, &stop.into()).unwrap();
    assert_eq!(app.0, 2);
}

#[test]
fn a_source_that_says_again_sends_all_it_has_and_is_then_left_alone() {
    let mut app = Probe { to_send: 1000, ..Probe::default() };
    let report = run_until("sim:queue=4096", &mut app, IdlePolicy::Block, 100 * MS);
    assert_eq!(report.counters().tx_frames, 1000);
    assert_eq!(app.fills_ns.len(), 1000usize.div_ceil(64));
}

#[test]
fn a_schedule_is_kept_to_the_poll_under_every_policy() {
    for idle in POLICIES {
        let mut app = Probe { to_send: 40, gap_ns: 730_000, ..Probe::default() };
        let report = run_until("sim", &mut app, idle, 100 * MS);
        assert_eq!(report.counters().tx_frames, 40, "{idle}");
        for (i, &at_ns) in app.fills_ns.iter().enumerate() {
            let late_ns = at_ns - i as u64 * 730_000;
            assert!(late_ns <= 3 * laneway_sim::POLL_NS, "{idle}: frame {i} is {late_ns} ns late");
        }
    }
}

/// A sim that wakes up late, as a machine does.
struct Oversleeping(SimLane, SimWorld);

impl Lane for Oversleeping {
    fn name(&self) -> &'static str {
        "oversleeping"
    }
    fn ports(&self) -> usize {
        self.0.ports()
    }
    fn clock_domain(&self) -> ClockDomain {
        self.0.clock_domain()
    }
    fn wait(&mut self, timeout: Duration) -> Result<laneway_core::Wake, LaneError> {
        let woken = self.0.wait(timeout);
        self.1.advance_to(self.1.clock().now_ns() + 94_000);
        woken
    }
    fn exhausted(&self) -> bool {
        self.0.exhausted()
    }
    fn caps(&self, port: PortId) -> &laneway_core::CapsReport {
        self.0.caps(port)
    }
    fn counters(&mut self, port: PortId) -> Counters {
        self.0.counters(port)
    }
}

impl FrameLane for Oversleeping {
    fn receive(&mut self, port: PortId) -> Result<&mut Burst, LaneError> {
        self.0.receive(port)
    }
    fn lend(&mut self, port: PortId, frames: usize) -> Result<&mut Burst, LaneError> {
        self.0.lend(port, frames)
    }
    fn settle(&mut self, port: PortId) -> Result<(), LaneError> {
        self.0.settle(port)
    }
}

/// A frame every 10 us left in trains of nine, as far apart as the worker overslept.
#[test]
fn a_worker_that_wakes_up_late_keeps_a_schedule_all_the_same() {
    for gap_ns in [10_000, 150_000] {
        let (lane, world) = open("sim", 1);
        world.finish();
        let mut app = Probe { to_send: 100, gap_ns, ..Probe::default() };
        let mut lane = Oversleeping(lane, world.clone());
        let (idle, control) = (IdlePolicy::Block, Control::default());
        let report = run_frames(&mut lane, &mut app, &world.clock(), idle, &control).unwrap();
        assert_eq!(app.sent, 100);
        for (i, &at_ns) in app.fills_ns.iter().enumerate() {
            let late_ns = at_ns - i as u64 * gap_ns;
            assert!(
                late_ns <= 3 * laneway_sim::POLL_NS,
                "{gap_ns}: frame {i} is {late_ns} ns late"
            );
        }
        // It spins before a due time, and blocks where that is far away.
        assert_eq!(report.waits > 0, gap_ns > laneway_engine::WAKE_NS, "{} waits", report.waits);
    }
}

#[test]
fn a_run_goes_on_until_the_schedule_is_done_although_nothing_comes() {
    let (mut lane, world) = open("sim", 1);
    world.finish();
    let mut app = Probe { to_send: 5, gap_ns: 20 * MS, ..Probe::default() };
    let report = run(&mut lane, &world, &mut app, IdlePolicy::Block, &Control::default());
    assert_eq!((report.ended, app.sent), (Ended::Exhausted, 5));
}

#[test]
#[should_panic(expected = "the worker's clock and lane sim")]
fn a_clock_of_another_domain_is_refused() {
    let (mut lane, _world) = open("sim", 1);
    let mut app = Probe::default();
    let _ =
        run_frames(&mut lane, &mut app, &MonotonicClock, IdlePolicy::Block, &Control::default());
}

/// A sim whose interface goes away after some receives.
struct Vanishing(SimLane, usize);

impl Lane for Vanishing {
    fn name(&self) -> &'static str {
        "vanishing"
    }
    fn ports(&self) -> usize {
        self.0.ports()
    }
    fn clock_domain(&self) -> ClockDomain {
        self.0.clock_domain()
    }
    fn wait(&mut self, timeout: Duration) -> Result<laneway_core::Wake, LaneError> {
        self.0.wait(timeout)
    }
    fn caps(&self, port: PortId) -> &laneway_core::CapsReport {
        self.0.caps(port)
    }
    fn counters(&mut self, port: PortId) -> Counters {
        self.0.counters(port)
    }
}

impl FrameLane for Vanishing {
    fn receive(&mut self, port: PortId) -> Result<&mut Burst, LaneError> {
        if self.1 == 0 {
            return Err(LaneError::Gone { lane: "vanishing".into(), name: "v0".into() });
        }
        self.1 -= 1;
        self.0.receive(port)
    }
    fn lend(&mut self, port: PortId, frames: usize) -> Result<&mut Burst, LaneError> {
        self.0.lend(port, frames)
    }
    fn settle(&mut self, port: PortId) -> Result<(), LaneError> {
        self.0.settle(port)
    }
}

#[test]
fn a_lane_that_fails_leaves_its_counters_and_a_finished_app() {
    let (lane, world) = open("sim:burst=2", 1);
    udp_frames(0, 20, 64).iter().for_each(|frame| world.inject(PORT, frame));
    let mut app = Probe::default();
    let failed = run_frames(
        &mut Vanishing(lane, 5),
        &mut app,
        &world.clock(),
        IdlePolicy::Block,
        &Control::default(),
    )
    .unwrap_err();
    assert_eq!(failed.report.ended, Ended::Failed);
    assert_eq!((failed.report.counters().rx_frames, app.seen.len(), app.stops), (10, 10, 1));
    assert!(matches!(LaneError::from(failed), LaneError::Gone { .. }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn injected_is_delivered_plus_named_drops(
        seed: u64, loss in 0.0..1.0f64, dup in 0.0..0.5f64, reorder in 0.0..0.5f64,
        queue in 1..64usize, frames in 1..64usize, burst in 1..80usize, policy in 0..3usize,
        gap_ns in 0..20_000u64,
    ) {
        let (mut lane, world) = open(
            &format!(
                "sim:seed={seed},loss={loss},dup={dup},reorder={reorder},queue={queue},\
                 frames={frames},burst={burst}"
            ),
            2,
        );
        for (i, frame) in udp_frames(0, 300, 64).iter().enumerate() {
            world.inject_at(PortId((i % 2) as u32), i as u64 * gap_ns, frame);
        }
        world.finish();
        let mut app = Probe::default();
        let report = run(&mut lane, &world, &mut app, POLICIES[policy], &Control::default());
        prop_assert_eq!(report.ended, Ended::Exhausted);
        world.advance_to(world.clock().now_ns() + 1000 * MS);
        let link = |port, direction| world.link_counters(PortId(port), direction);
        let copies: u64 = (0..2).map(|p| link(p, Direction::ToLane).duplicated).sum();
        let counters = report.counters();
        prop_assert_eq!(300 + copies, counters.rx_frames + link_drops(&counters));
        prop_assert_eq!(counters.rx_frames, app.seen.len() as u64);
        prop_assert_eq!(
            counters.rx_frames,
            counters.tx_frames + counters.drops(laneway_core::DropReason::TxRefused)
        );
        let out: Vec<_> = (0..2).map(|p| link(p, Direction::FromLane)).collect();
        let collected: u64 = (0..2).map(|p| world.collect(PortId(p)).len() as u64).sum();
        // Of copies that found the queue full, the link alone knows.
        let copied: u64 = out.iter().map(|l| l.duplicated).sum();
        let lost: u64 = out.iter().map(|l| l.lost + l.queue_full).sum();
        let refused = counters.drops(laneway_core::DropReason::TxRefused);
        prop_assert_eq!(counters.tx_frames + refused + copied, collected + lost);
    }
}

/// What the links lost on the way to the lane.
fn link_drops(counters: &Counters) -> u64 {
    use laneway_core::DropReason::{LinkLoss, LinkQueueFull};
    counters.drops(LinkLoss) + counters.drops(LinkQueueFull)
}

#[test]
fn a_running_worker_can_be_looked_at_and_a_stopped_one_cannot() {
    let (mut lane, world) = open("sim", 2);
    let control = Control::default();
    let outside = control.clone();
    let looker = std::thread::spawn(move || {
        let looks = [2, 1, 0].map(|ports_max| {
            outside.watch.look_at_most(ports_max);
            outside.watch.look(Duration::from_secs(60))
        });
        outside.stop.request();
        looks.map(|look| look.expect("a running worker answers"))
    });
    let ended = run(&mut lane, &world, &mut Probe::default(), IdlePolicy::Block, &control);
    let looks = looker.join().expect("the looker does not panic");
    assert!(looks.iter().all(|look| look.ended == Ended::Running));
    assert!(looks[0].turns < looks[2].turns && looks[2].turns <= ended.turns);
    assert_eq!(looks.map(|look| look.ports.len()), [2, 1, 0]);
    // At once: a test that waits for it does not end.
    assert!(control.watch.look(Duration::MAX).is_none());
    assert_eq!(control.watch.last(), Some(RunReport { ports: Vec::new(), ..ended }));
}

/// A look that waited when the worker ended waited for as long as it may, and with it who asked.
#[test]
fn the_end_of_a_worker_ends_a_look_that_waits_for_it() {
    let (mut lane, world) = open("sim", 1);
    world.finish();
    let control = Control::default();
    let outside = control.clone();
    let (begins, begun) = std::sync::mpsc::channel();
    let looker = std::thread::spawn(move || {
        begins.send(()).expect("the test waits for it");
        (outside.watch.look(Duration::MAX), outside.watch.last())
    });
    begun.recv().expect("the looker begins");
    let ended = run(&mut lane, &world, &mut Probe::default(), IdlePolicy::Block, &control);
    let (look, last) = looker.join().expect("the looker does not panic");
    assert!(look.is_none_or(|look| look.ended == Ended::Running));
    assert!(last.is_none_or(|last| last == ended));
    // A control that is used again is that of a running worker again.
    let (mut lane, world) = open("sim", 1);
    let stop = Stop::new();
    stop.request();
    let again = Control { stop, watch: control.watch.clone(), ..Control::default() };
    let again = run(&mut lane, &world, &mut Probe::default(), IdlePolicy::Block, &again);
    assert_eq!(control.watch.last(), Some(again));
}

/// Rings its own bell with every burst, and remembers when it was called for it.
struct Ringer {
    counters: Counters,
    bell: Bell,
    bells_ns: Vec<u64>,
    ticks_ns: Vec<u64>,
}

impl App for Ringer {
    fn on_bell(&mut self, turn: Turn) {
        self.bells_ns.push(turn.now_ns);
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl FrameApp for Ringer {
    fn on_burst(&mut self, _port: PortId, _burst: &mut Burst, _turn: Turn) {
        self.counters.rx_frames += 1;
        (0..5).for_each(|_| self.bell.ring());
    }

    fn on_tick(&mut self, turn: Turn) {
        self.ticks_ns.push(turn.now_ns);
    }
}

#[test]
fn a_bell_that_rings_while_the_worker_is_busy_is_heard_in_the_next_turn_with_a_tick() {
    for idle in POLICIES {
        let (mut lane, world) = open("sim:burst=1", 1);
        udp_frames(0, 3, 90).iter().for_each(|frame| world.inject(PORT, frame));
        let bell = Bell::new().expect("a descriptor");
        let stop = Stop::new().with_deadline_ns(MS);
        let control = Control { bell: Some(bell.clone()), ..Control::from(stop) };
        let (bells_ns, ticks_ns) = (Vec::new(), Vec::new());
        let mut app = Ringer { counters: Counters::default(), bell, bells_ns, ticks_ns };
        run_frames(&mut lane, &mut app, &world.clock(), idle, &control).expect("sim does not fail");
        assert_eq!(app.counters.rx_frames, 3, "{idle}");
        assert_eq!(app.bells_ns.len(), 3, "{idle}: five rings of one burst are one call");
        assert_eq!(app.bells_ns, app.ticks_ns, "{idle}: a tick follows, and comes not by time");
    }
}
