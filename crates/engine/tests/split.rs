//! One worker for streams and datagrams, behind a kernel half: what is called when, and what a failure does first.

mod nowhere;

use laneway_core::{
    App, Bell, CapsReport, Clock, ClockDomain, Close, ConnId, Counters, Datagram, DatagramApp,
    DatagramLane, DatagramOut, DatagramPorts, KernelLane, KernelMaps, Lane, LaneError, MapValue,
    Opened, PortId, StreamApp, StreamLane, StreamOut, Turn, Wake,
};
use laneway_engine::{Control, Ended, MonotonicClock, Split, Stop, run_split};
use laneway_spec::IdlePolicy;
use nowhere::{Nowhere, datagram};
use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::time::Duration;

type Journal = Rc<RefCell<Vec<&'static str>>>;

/// Any of the three lanes: one message at its first turn.
struct Script {
    journal: Journal,
    messages: usize,
    event: Option<Bell>,
    caps: CapsReport,
}

impl Script {
    fn new(journal: &Journal) -> Script {
        let event = Some(Bell::new().expect("a descriptor"));
        Script { journal: journal.clone(), messages: 1, event, caps: CapsReport::default() }
    }

    fn say(&self, what: &'static str) {
        self.journal.borrow_mut().push(what);
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
        assert_eq!(timeout, Duration::ZERO, "only both together wait");
        Ok(Wake::Timeout)
    }
    fn event(&self) -> Option<BorrowedFd<'_>> {
        self.event.as_ref().map(AsFd::as_fd)
    }
    fn caps(&self, _: PortId) -> &CapsReport {
        &self.caps
    }
    fn counters(&mut self, _: PortId) -> Counters {
        Counters::default()
    }
}

impl StreamLane for Script {
    fn serve<A: StreamApp>(&mut self, app: &mut A, clock: &impl Clock) -> Result<usize, LaneError> {
        let served = std::mem::take(&mut self.messages);
        if served > 0 {
            app.on_bytes(ConnId(1), b"write", &mut Nowhere);
            app.on_turn_end(Turn { now_ns: clock.now_ns() }, &mut Nowhere);
            self.say("replies leave");
        }
        Ok(served)
    }
    fn tick<A: StreamApp>(&mut self, app: &mut A, turn: Turn) -> Result<(), LaneError> {
        StreamApp::on_tick(app, turn, &mut Nowhere);
        app.on_turn_end(turn, &mut Nowhere);
        Ok(())
    }
    fn finish<A: StreamApp>(&mut self, app: &mut A, _: Turn) {
        app.on_close(ConnId(1), Close::Stop);
    }
}

impl DatagramPorts for Script {}

impl DatagramLane for Script {
    fn serve<A: DatagramApp>(
        &mut self,
        app: &mut A,
        clock: &impl Clock,
    ) -> Result<usize, LaneError> {
        let served = std::mem::take(&mut self.messages);
        if served > 0 {
            app.on_datagrams(
                &[datagram(b"read", 0)],
                Turn { now_ns: clock.now_ns() },
                &mut Nowhere,
            );
        }
        Ok(served)
    }
    fn tick<A: DatagramApp>(&mut self, app: &mut A, turn: Turn) -> Result<(), LaneError> {
        DatagramApp::on_tick(app, turn, &mut Nowhere);
        Ok(())
    }
}

impl KernelMaps for Script {
    fn visit(&self, _: &str, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), LaneError> {
        each(&[1], &[10]);
        each(&[2], &[20]);
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

impl KernelLane for Script {
    fn receive(&mut self, _: impl FnMut(&[u8])) -> Result<usize, LaneError> {
        Ok(0)
    }
    fn detach(&mut self) {
        self.say("detached");
    }
    fn maps(&self) -> &dyn KernelMaps {
        self
    }
}

struct Probe {
    journal: Journal,
    counters: Counters,
    /// The maps cannot be kept.
    fails: bool,
    is_done: bool,
}

impl Probe {
    fn say(&self, what: &'static str) {
        self.journal.borrow_mut().push(what);
    }
}

impl App for Probe {
    fn wants_stop(&self) -> bool {
        self.is_done
    }
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl StreamApp for Probe {
    fn on_open<O: StreamOut>(&mut self, _: Opened, _: &mut O) {}
    fn on_bytes<O: StreamOut>(&mut self, _: ConnId, bytes: &[u8], _: &mut O) -> usize {
        self.say("bytes");
        bytes.len()
    }
    fn on_turn_end<O: StreamOut>(&mut self, _: Turn, _: &mut O) {
        self.say("turn ends");
    }
    fn on_close(&mut self, _: ConnId, _: Close) {
        self.say("closed");
    }
    fn on_datagrams<O: DatagramOut>(&mut self, batch: &[Datagram<'_>], _: Turn, _: &mut O) {
        if !batch.is_empty() {
            self.say("datagrams");
            self.is_done = true;
        }
    }
    fn on_maps(&mut self, maps: &dyn KernelMaps, _: Turn) -> Result<(), LaneError> {
        assert_eq!(maps.look_up("any", &[2])?, Some(vec![20]));
        assert_eq!(maps.look_up("any", &[3])?, None);
        self.say("maps");
        if self.fails {
            return Err(LaneError::Gone { lane: "script".into(), name: "the maps".into() });
        }
        Ok(())
    }
}

fn run(fails: bool) -> (Vec<&'static str>, Result<Ended, String>) {
    let journal = Journal::default();
    let lane = || Script::new(&journal);
    let mut lanes = Split::new(lane(), lane(), Some(Box::new(lane()))).expect("both have an event");
    assert_eq!(lanes.ports(), 3);
    let mut app =
        Probe { journal: journal.clone(), counters: Counters::default(), fails, is_done: false };
    let control = Control::from(Stop::new());
    let outcome = run_split(&mut lanes, &mut app, &MonotonicClock, IdlePolicy::Block, &control);
    let steps = journal.borrow().clone();
    (steps, outcome.map(|report| report.ended).map_err(|failed| failed.error.to_string()))
}

#[test]
fn the_maps_agree_before_replies_leave_and_the_streams_turn_ends_first() {
    let (steps, outcome) = run(false);
    let wanted = ["bytes", "turn ends", "maps", "replies leave", "datagrams", "maps"];
    assert_eq!(steps[..6], wanted);
    assert_eq!(steps[steps.len() - 3..], ["detached", "maps", "closed"]);
    assert_eq!(outcome, Ok(Ended::App));
}

#[test]
fn where_the_maps_cannot_agree_the_half_goes_before_a_reply_leaves() {
    let (steps, outcome) = run(true);
    assert_eq!(steps[..5], ["bytes", "turn ends", "maps", "detached", "replies leave"]);
    assert!(outcome.is_err_and(|why| why.contains("the maps")));
}

#[test]
fn one_wait_ends_for_either_lane() {
    let journal = Journal::default();
    for at in 0..2 {
        let lanes = [Script::new(&journal), Script::new(&journal)];
        let bell = lanes[at].event.clone().expect("it has one");
        let [streams, datagrams] = lanes;
        let mut lanes = Split::new(streams, datagrams, None).expect("two events");
        assert_eq!(lanes.wait(Duration::from_millis(1)).expect("a wait"), Wake::Timeout);
        bell.ring();
        assert_eq!(lanes.wait(Duration::MAX).expect("a wait"), Wake::Ready);
    }
    let mute = Script { event: None, ..Script::new(&journal) };
    let refused = Split::new(Script::new(&journal), mute, None).map(|_| ());
    assert!(matches!(refused, Err(LaneError::Refused { .. })));
}
