//! The kernel loop, on a lane made of a list of rings.

use laneway_core::{
    App, CapsReport, Clock, ClockDomain, Counters, KernelApp, KernelHalf, KernelLane, KernelMaps,
    Lane, LaneError, MapValue, PortId, Turn, Wake,
};
use laneway_engine::{BLOCK_NS_MAX, Control, Ended, RunFailed, RunReport, Stop, run_kernel};
use laneway_spec::IdlePolicy;
use std::{cell::Cell, collections::VecDeque, rc::Rc, time::Duration};

/// Stands for the monotonic clock: goes on with each reading, so that a worker that only polls gets
/// on, and with each wait. The machine's own would make counts of turns and waits depend on what else
/// wants the CPU.
#[derive(Clone, Default)]
struct ScriptClock(Rc<Cell<u64>>);

impl ScriptClock {
    fn advance(&self, by_ns: u64) -> u64 {
        self.0.set(self.0.get() + by_ns);
        self.0.get()
    }
}

impl Clock for ScriptClock {
    fn now_ns(&self) -> u64 {
        self.advance(READING_NS)
    }
    fn domain(&self) -> ClockDomain {
        ClockDomain::Monotonic
    }
}

/// What a reading of the clock takes.
const READING_NS: u64 = 100;

/// Hands over one list of records per receive, an empty one too; afterwards nothing.
struct Script {
    receives: VecDeque<Vec<u8>>,
    /// What appears in the rings while the program is being detached.
    on_detach: Vec<Vec<u8>>,
    attached: Cell<bool>,
    fails_after: Option<usize>,
    timeouts: Vec<Duration>,
    clock: ScriptClock,
    caps: CapsReport,
}

impl Script {
    fn new(receives: &[&[u8]]) -> Script {
        Script {
            receives: receives.iter().map(|r| r.to_vec()).collect(),
            on_detach: Vec::new(),
            attached: Cell::new(true),
            fails_after: None,
            timeouts: Vec::new(),
            clock: ScriptClock::default(),
            caps: CapsReport::default(),
        }
    }
}

impl KernelMaps for Script {
    fn visit(&self, _: &str, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), LaneError> {
        each(&[], &[u8::from(self.attached.get())]);
        Ok(())
    }
    fn remove(&self, _: &str, _: &[u8]) -> Result<(), LaneError> {
        Ok(())
    }
    fn put(&self, _: &str, _: &[u8], _: &[u8]) -> Result<(), LaneError> {
        Ok(())
    }
    fn set(&self, _: &str, _: &[u8], _: &MapValue) -> Result<(), LaneError> {
        Ok(())
    }
}

impl Lane for Script {
    fn name(&self) -> &'static str {
        "script"
    }
    fn ports(&self) -> usize {
        1
    }
    fn clock_domain(&self) -> ClockDomain {
        ClockDomain::Monotonic
    }
    fn wait(&mut self, timeout: Duration) -> Result<Wake, LaneError> {
        self.timeouts.push(timeout);
        self.clock.advance(timeout.as_nanos() as u64);
        Ok(Wake::Timeout)
    }
    fn caps(&self, _: PortId) -> &CapsReport {
        &self.caps
    }
    fn counters(&mut self, _port: PortId) -> Counters {
        let mut counters = Counters::default();
        counters.rx_frames = 7;
        counters
    }
}

impl KernelLane for Script {
    fn receive(&mut self, mut each: impl FnMut(&[u8])) -> Result<usize, LaneError> {
        match &mut self.fails_after {
            Some(0) => {
                return Err(LaneError::Gone { lane: "script".into(), name: "v0".into() });
            }
            Some(left) => *left -= 1,
            None => (),
        }
        let records = self.receives.pop_front().unwrap_or_default();
        if !records.is_empty() {
            each(&records);
        }
        Ok(records.len())
    }
    fn detach(&mut self) {
        self.attached.set(false);
        self.receives.extend(self.on_detach.drain(..));
    }
    fn maps(&self) -> &dyn KernelMaps {
        self
    }
}

/// Collects records of one byte; ends after `limit` of them.
#[derive(Default)]
struct Collector {
    records: Vec<u8>,
    limit: Option<usize>,
    ticks: usize,
    stop_at_first_tick: Option<Stop>,
    /// What the map held at the stop: was the program attached, and how many records were in?
    at_stop: Vec<(u8, usize)>,
    counters: Counters,
}

impl App for Collector {
    fn wants_stop(&self) -> bool {
        self.limit.is_some_and(|limit| self.records.len() >= limit)
    }
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl KernelApp for Collector {
    fn half(&self) -> KernelHalf {
        KernelHalf::new("collector", &[], "")
    }
    fn on_records(&mut self, records: &[u8], _: Turn) {
        self.records.extend_from_slice(records);
    }
    fn on_tick(&mut self, _: &dyn KernelMaps, _: Turn) {
        self.ticks += 1;
        if let Some(stop) = &self.stop_at_first_tick {
            stop.request();
        }
    }
    fn on_detached(&mut self, maps: &dyn KernelMaps, _: Turn) {
        let records = self.records.len();
        maps.visit("any", &mut |_, value| self.at_stop.push((value[0], records)))
            .expect("the script's maps are always readable");
    }
}

fn run(
    lane: &mut Script,
    app: &mut Collector,
    idle: IdlePolicy,
    control: &Control,
) -> Result<RunReport, RunFailed> {
    let clock = lane.clock.clone();
    run_kernel(lane, app, &clock, idle, control)
}

#[test]
fn the_end_is_detach_then_drain_then_on_stop() {
    let mut lane = Script::new(&[&[1, 2], &[], &[3]]);
    lane.on_detach = vec![vec![4], vec![5]];
    let mut app = Collector { limit: Some(3), ..Collector::default() };
    let report = run(&mut lane, &mut app, IdlePolicy::Block, &Control::default()).unwrap();
    assert_eq!(app.records, [1, 2, 3, 4, 5]);
    assert_eq!(app.at_stop, [(0, 5)]);
    assert_eq!((report.ended, report.counters().rx_frames), (Ended::App, 7));
    assert_eq!((report.turns, report.waits), (3, 1));
}

#[test]
fn a_worker_blocks_for_a_bounded_time_and_only_when_it_may() {
    for (idle, blocks) in [(IdlePolicy::Block, true), (IdlePolicy::Spin, false)] {
        let mut lane = Script::new(&[]);
        let stop = Stop::new();
        let mut app = Collector { stop_at_first_tick: Some(stop.clone()), ..Collector::default() };
        let report = run(&mut lane, &mut app, idle, &stop.into()).unwrap();
        assert_eq!((report.ended, app.ticks), (Ended::Stopped, 1));
        assert_eq!(!lane.timeouts.is_empty(), blocks);
        assert!(lane.timeouts.iter().all(|t| t.as_nanos() <= u128::from(BLOCK_NS_MAX)));
    }
}

#[test]
fn a_deadline_that_has_passed_still_drains_the_rings() {
    let mut lane = Script::new(&[&[1], &[2]]);
    let stop = Stop::new().with_deadline_ns(lane.clock.now_ns());
    let mut app = Collector::default();
    run(&mut lane, &mut app, IdlePolicy::Block, &stop.into()).unwrap();
    assert_eq!(app.records, [1, 2]);
}

#[test]
fn a_lane_that_fails_is_detached_and_its_app_finished() {
    let mut lane = Script::new(&[&[1]]);
    lane.fails_after = Some(1);
    let mut app = Collector::default();
    let failed = run(&mut lane, &mut app, IdlePolicy::Block, &Control::default()).unwrap_err();
    assert_eq!(failed.report.ended, Ended::Failed);
    assert_eq!(app.at_stop, [(0, 1)]);
}

#[test]
fn a_running_worker_can_be_looked_at() {
    let control = Control::default();
    let outside = control.clone();
    let looker = std::thread::spawn(move || {
        let look = outside.watch.look(Duration::from_secs(60));
        outside.stop.request();
        look.expect("a running worker answers")
    });
    let mut lane = Script::new(&[]);
    let mut app = Collector::default();
    run(&mut lane, &mut app, IdlePolicy::Block, &control).unwrap();
    let look = looker.join().expect("the looker does not panic");
    assert_eq!((look.ended, look.counters().rx_frames), (Ended::Running, 7));
}
