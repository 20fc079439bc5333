//! The loop for frame lanes.
//!
//! ```text
//!   turn: for each port:  receive ─▶ on_burst ─▶ settle     (settle also takes held frames back)
//!                         lend ────▶ fill ─────▶ settle     (while the app has something to send)
//!         tick when due; when nothing was found on any port: spin or block
//! ```

use crate::{Control, Ended, PortReport, RunFailed, RunReport, idle::Pace, probe::Probe};
use laneway_core::{
    BURST_FRAMES_MAX, Cap, Clock, Fill, FrameApp, FrameLane, IdlePolicy, LaneError, PortId, Turn,
    Verdict,
};
use laneway_tracer::points;

/// Runs `app` on `lane` until `control` says stop, the app wants to end, or nothing can come any more
/// and the app has nothing to send.
///
/// Ports that obtained no [`Cap::Transmit`] are not asked to be filled.
///
/// # Errors
/// When the lane fails; the report up to there comes with the error.
///
/// # Panics
/// If `clock` is not of the lane's clock domain.
pub fn run_frames<L: FrameLane, A: FrameApp>(
    lane: &mut L,
    app: &mut A,
    clock: &impl Clock,
    idle: IdlePolicy,
    control: &Control,
) -> Result<RunReport, RunFailed> {
    assert_eq!(clock.domain(), lane.clock_domain(), "the worker's clock and lane {}", lane.name());
    let ports: Vec<PortId> = (0..lane.ports()).map(|port| PortId(port as u8)).collect();
    let mut fills: Vec<Fill> = ports
        .iter()
        .map(|&port| match lane.caps(port).obtained.has(Cap::Transmit) {
            true => Fill::Again,
            false => Fill::Never,
        })
        .collect();
    let mut pace = Pace::new(clock, idle);
    let mut probe = Probe::of(control);

    let outcome = turns(lane, app, &ports, &mut fills, &mut pace, control, &mut probe);

    app.on_stop(Turn { now_ns: pace.read() });
    // What the app released on its way out is still to be sent.
    let outcome = outcome.and_then(|ended| {
        ports.iter().try_for_each(|&port| lane.settle(port))?;
        Ok(ended)
    });
    probe.count_transmits(&ports, |port| lane.counters(port));
    match outcome {
        Ok(ended) => Ok(report(lane, app, &ports, &pace, ended)),
        Err(error) => {
            let report = report(lane, app, &ports, &pace, Ended::Failed);
            Err(RunFailed { error, report: Box::new(report) })
        }
    }
}

fn turns<L: FrameLane, A: FrameApp>(
    lane: &mut L,
    app: &mut A,
    ports: &[PortId],
    fills: &mut [Fill],
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
        let mut worked = false;
        for (&port, fill) in ports.iter().zip(fills.iter_mut()) {
            let began = probe.now();
            let burst = lane.receive(port)?;
            let frames = burst.len();
            if frames > 0 {
                let received = probe.received(port, burst.capacity(), frames, began);
                app.on_burst(port, burst, Turn { now_ns: pace.read() });
                let looked = probe.called(points::APP_FRAMES, received, frames);
                worked = true;
                lane.settle(port)?;
                probe.called(points::SETTLE, looked, frames);
            } else {
                // What the app released is sent here, so this is no empty call.
                lane.settle(port)?;
                probe.received_nothing(began);
            }
            if wants_to_fill(*fill, pace.now_ns) {
                let began = probe.now();
                let burst = lane.lend(port, BURST_FRAMES_MAX)?;
                let frames = burst.len();
                if frames > 0 {
                    let lent = probe.called(points::LEND, began, frames);
                    *fill = app.fill(port, burst, Turn { now_ns: pace.read() });
                    worked |= (0..frames).any(|i| burst.verdict(i) != Verdict::Drop);
                    let filled = probe.called(points::APP_FILL, lent, frames);
                    lane.settle(port)?;
                    probe.called(points::SETTLE, filled, frames);
                } else {
                    lane.settle(port)?;
                }
            }
        }
        let ticked = pace.tick_is_due();
        if ticked {
            let watched = control.watch.is_wanted();
            let began = probe.now();
            app.on_tick(Turn { now_ns: pace.now_ns });
            probe.called(points::APP_TICK, began, 0);
            probe.count_transmits(ports, |port| lane.counters(port));
            if watched {
                control.watch.publish(report(lane, app, ports, pace, Ended::Running));
            }
        }
        if worked {
            pace.worked();
            continue;
        }
        if ticked {
            // The app may have released held frames: settle them before blocking.
            pace.turned();
            continue;
        }
        let sends_nothing = fills.iter().all(|fill| matches!(fill, Fill::Never | Fill::Done));
        if sends_nothing && lane.exhausted() {
            return Ok(Ended::Exhausted);
        }
        if let Some(timeout) = pace.found_nothing(&control.stop, None, next_fill_at_ns(fills)) {
            let began = probe.now();
            lane.wait(timeout)?;
            probe.called(points::WAIT, began, 0);
            pace.blocked();
        }
    }
}

fn report<L: FrameLane, A: FrameApp>(
    lane: &mut L,
    app: &A,
    ports: &[PortId],
    pace: &Pace<'_, impl Clock>,
    ended: Ended,
) -> RunReport {
    let ports = ports
        .iter()
        .map(|&port| PortReport { caps: lane.caps(port).clone(), counters: lane.counters(port) });
    let ports = ports.collect();
    pace.report(lane.name(), ended, ports, app.counters())
}

fn wants_to_fill(fill: Fill, now_ns: u64) -> bool {
    match fill {
        Fill::Again => true,
        Fill::At(at_ns) => now_ns >= at_ns,
        Fill::Never | Fill::Done => false,
    }
}

/// When the app next wants to send; 0 for at once.
fn next_fill_at_ns(fills: &[Fill]) -> Option<u64> {
    let times = fills.iter().filter_map(|fill| match *fill {
        Fill::Again => Some(0),
        Fill::At(at_ns) => Some(at_ns),
        Fill::Never | Fill::Done => None,
    });
    times.min()
}
