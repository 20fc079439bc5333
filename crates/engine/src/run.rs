//! The one loop: when a lane has its turn, when the app ticks, and when the worker spins, blocks and
//! stops. What a turn is depends on what the lane carries: see [`Shape`].

use crate::{
    Control, Ended, PortReport, RunFailed, RunReport, idle::Pace, ports::ports, probe::Probe,
};
use laneway_core::{App, Bell, Clock, ClockDomain, Counters, Lane, LaneError, Turn};
use laneway_spec::IdlePolicy;
use laneway_tracer::points;

/// How a lane and an app of one shape work together. `self` is what the loop keeps for them.
pub(crate) trait Shape<L: Lane, A: App> {
    /// Takes what is there to the app and what the app sends to the lane. Returns true if there was
    /// anything; the clock was read then.
    fn turn(
        &mut self,
        lane: &mut L,
        app: &mut A,
        pace: &mut Pace<'_, impl Clock>,
        probe: &mut Probe,
    ) -> Result<bool, LaneError>;

    /// Tells the app that time has passed.
    fn tick(&mut self, lane: &mut L, app: &mut A, turn: Turn) -> Result<(), LaneError>;

    /// Lets the app act behind a bell, and then as if time had passed.
    fn bell(&mut self, lane: &mut L, app: &mut A, turn: Turn) -> Result<(), LaneError> {
        self.tick(lane, app, turn)
    }

    /// When the app next wants to send; nothing if it does not, or not on its own.
    fn sends_at_ns(&self) -> Option<u64> {
        None
    }

    /// Ends the work of a lane that has not failed; the app's `on_stop` follows.
    fn end(
        &mut self,
        _lane: &mut L,
        _app: &mut A,
        _pace: &mut Pace<'_, impl Clock>,
    ) -> Result<(), LaneError> {
        Ok(())
    }

    /// What must be done at every end of a run, after [`end`](Self::end).
    fn close(&mut self, _lane: &mut L, _app: &mut A, _turn: Turn) {}
}

/// Runs `app` on `lane` until something ends it.
pub(crate) fn run<L: Lane, A: App>(
    lane: &mut L,
    app: &mut A,
    mut shape: impl Shape<L, A>,
    clock: &impl Clock,
    idle: IdlePolicy,
    control: &Control,
) -> Result<RunReport, RunFailed> {
    assert_eq!(clock.domain(), lane.clock_domain(), "the worker's clock and lane {}", lane.name());
    control.watch.begin();
    let mut pace = Pace::new(clock, idle);
    let mut probe = Probe::of(control);
    if let Some(bell) = &control.bell {
        lane.hear(bell);
    }
    let mut outcome = turns(lane, app, &mut shape, &mut pace, control, &mut probe);
    if outcome.is_ok() {
        outcome = shape.end(lane, app, &mut pace).and(outcome);
    }
    let turn = Turn { now_ns: pace.read() };
    shape.close(lane, app, turn);
    app.on_stop(turn);
    lane.drop_unsent();
    probe.count(lane, app.counters());
    let ended = outcome.as_ref().map_or(Ended::Failed, |&ended| ended);
    let report = report(lane, app.counters(), &pace, ended, usize::MAX);
    control.watch.end(report.clone());
    match outcome {
        Ok(_) => Ok(report),
        Err(error) => Err(RunFailed { error, report: Box::new(report) }),
    }
}

fn turns<L: Lane, A: App, C: Clock>(
    lane: &mut L,
    app: &mut A,
    shape: &mut impl Shape<L, A>,
    pace: &mut Pace<'_, C>,
    control: &Control,
    probe: &mut Probe,
) -> Result<Ended, LaneError> {
    // Where time is what a file says, the worker's own clock stands still, and there is no tick to answer a look in.
    let stands_still = pace.clock.domain() == ClockDomain::Unix;
    loop {
        if control.stop.is_due(pace.now_ns) {
            return Ok(Ended::Stopped);
        }
        if app.wants_stop() {
            return Ok(Ended::App);
        }
        if control.bell.as_ref().is_some_and(Bell::answer) {
            let turn = Turn { now_ns: pace.read() };
            let began = probe.now();
            app.on_bell(turn);
            shape.bell(lane, app, turn)?;
            probe.called(points::APP_TICK, began, 0);
        }
        let worked = shape.turn(lane, app, pace, probe)?;
        let is_tick = pace.tick_is_due(app.due_ns());
        let is_looked_at = (is_tick || stands_still) && control.watch.is_wanted();
        if is_tick {
            let began = probe.now();
            shape.tick(lane, app, Turn { now_ns: pace.now_ns })?;
            probe.called(points::APP_TICK, began, 0);
            probe.count(lane, app.counters());
        }
        if is_looked_at {
            let ports_max = control.watch.ports_max();
            let now = report(lane, app.counters(), pace, Ended::Running, ports_max);
            control.watch.publish(now);
        }
        if worked {
            pace.worked();
            continue;
        }
        let sends_at_ns = shape.sends_at_ns();
        if sends_at_ns.is_none() && lane.exhausted() {
            return Ok(Ended::Exhausted);
        }
        let due_ns = [lane.due_ns(), app.due_ns()].into_iter().flatten().min();
        if let Some(timeout) = pace.found_nothing(&control.stop, due_ns, sends_at_ns) {
            let began = probe.now();
            lane.wait(timeout)?;
            probe.called(points::WAIT, began, 0);
            pace.blocked();
        }
    }
}

fn report(
    lane: &mut dyn Lane,
    of_app: &Counters,
    pace: &Pace<'_, impl Clock>,
    ended: Ended,
    ports_max: usize,
) -> RunReport {
    let ports = ports(lane)
        .into_iter()
        .take(ports_max)
        .map(|id| {
            // In this order: a lane writes facts when it is asked for counters.
            let counters = lane.counters(id);
            PortReport { id, caps: lane.caps(id).clone(), counters }
        })
        .collect();
    pace.report(lane.name(), ended, (ports, lane.past()), of_app)
}
