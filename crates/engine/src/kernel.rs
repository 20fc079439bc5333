//! The loop for lanes that run an app's decision in the kernel.
//!
//! The worker only drains records and ticks; frames never come here. At the end the order matters:
//! detach first, so that nothing new is emitted, then drain the rings, then let the app read the
//! maps: what the kernel half saw is then either a record, an accumulator or a counted drop.

use crate::{Control, Ended, PortReport, RunFailed, RunReport, idle::Pace, probe::Probe};
use laneway_core::{
    Clock, ClockDomain, IdlePolicy, KernelApp, KernelLane, LaneError, PortId, Turn,
};
use laneway_tracer::points;

/// Turns in which the rings are drained after the program is detached. Rings are finite and
/// nothing refills them, so this is reached only if a detached program still runs.
pub const DRAIN_TURNS_MAX: u64 = 1 << 20;

/// Runs `app` on what its kernel half emits until `control` says stop or the app wants to end, then
/// detaches, drains, and finishes the app.
///
/// # Errors
/// When the lane fails; the report up to there comes with the error. The lane is detached then, too.
///
/// # Panics
/// If `clock` is not monotonic: eBPF programs stamp with no other.
pub fn run_kernel<L: KernelLane, A: KernelApp>(
    lane: &mut L,
    app: &mut A,
    clock: &impl Clock,
    idle: IdlePolicy,
    control: &Control,
) -> Result<RunReport, RunFailed> {
    assert_eq!(clock.domain(), ClockDomain::Monotonic, "the worker's clock");
    let mut pace = Pace::new(clock, idle);
    let mut probe = Probe::of(control);
    let outcome = turns(lane, app, &mut pace, control, &mut probe);
    lane.detach();
    let outcome = outcome.and_then(|ended| drain(lane, app, clock).map(|()| ended));
    app.on_stop(lane.maps(), Turn { now_ns: pace.read() });
    match outcome {
        Ok(ended) => Ok(report(lane, app, &pace, ended)),
        Err(error) => {
            Err(RunFailed { error, report: Box::new(report(lane, app, &pace, Ended::Failed)) })
        }
    }
}

fn turns<L: KernelLane, A: KernelApp>(
    lane: &mut L,
    app: &mut A,
    pace: &mut Pace<'_, impl Clock>,
    control: &Control,
    probe: &mut Probe,
) -> Result<Ended, LaneError> {
    loop {
        if control.stop.is_due(pace.now_ns) {
            return Ok(Ended::Stopped);
        }
        if app.wants_stop() {
            return Ok(Ended::App);
        }
        let began = probe.now();
        let records = receive(lane, app, pace.clock)?;
        if records > 0 {
            pace.read();
            // The app's share is inside: it sees records one by one, too short to be told apart.
            probe.received(PortId(0), 0, records, began);
        } else {
            probe.received_nothing(began);
        }
        if pace.tick_is_due() {
            let watched = control.watch.is_wanted();
            let began = probe.now();
            app.on_tick(lane.maps(), Turn { now_ns: pace.now_ns });
            probe.called(points::APP_TICK, began, 0);
            if watched {
                control.watch.publish(report(lane, app, pace, Ended::Running));
            }
        }
        if records > 0 {
            pace.worked();
        } else if let Some(timeout) = pace.found_nothing(&control.stop, None, None) {
            let began = probe.now();
            lane.wait(timeout)?;
            probe.called(points::WAIT, began, 0);
            pace.blocked();
        }
    }
}

fn drain<L: KernelLane, A: KernelApp>(
    lane: &mut L,
    app: &mut A,
    clock: &impl Clock,
) -> Result<(), LaneError> {
    for _ in 0..DRAIN_TURNS_MAX {
        if receive(lane, app, clock)? == 0 {
            break;
        }
    }
    Ok(())
}

fn receive<L: KernelLane, A: KernelApp>(
    lane: &mut L,
    app: &mut A,
    clock: &impl Clock,
) -> Result<usize, LaneError> {
    // Read at the first record, so that an empty turn costs no reading, and then kept: a reading
    // costs as much as handling a record.
    let mut turn = None;
    lane.receive(|records| {
        let turn = *turn.get_or_insert_with(|| Turn { now_ns: clock.now_ns() });
        app.on_records(records, turn);
    })
}

fn report<L: KernelLane, A: KernelApp>(
    lane: &mut L,
    app: &A,
    pace: &Pace<'_, impl Clock>,
    ended: Ended,
) -> RunReport {
    let counters = lane.counters();
    let ports = vec![PortReport { caps: lane.caps(PortId(0)).clone(), counters }];
    pace.report(lane.name(), ended, ports, app.counters())
}
