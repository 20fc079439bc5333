//! The turn of lanes that run an app's decision in the kernel.
//!
//! The worker only drains records and ticks; frames never come here. At the end the order matters:
//! detach first, so that nothing new is emitted, then drain the rings, then let the app read the
//! maps: what the kernel half saw is then either a record, an accumulator or a counted drop.

use crate::{
    Control, RunFailed, RunReport,
    idle::Pace,
    probe::Probe,
    run::{Shape, run},
};
use laneway_core::{Clock, KernelApp, KernelLane, LaneError, PortId, Turn};
use laneway_spec::IdlePolicy;

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
/// If `clock` is not of the lane's clock domain.
pub fn run_kernel<L: KernelLane, A: KernelApp>(
    lane: &mut L,
    app: &mut A,
    clock: &impl Clock,
    idle: IdlePolicy,
    control: &Control,
) -> Result<RunReport, RunFailed> {
    run(lane, app, Kernel, clock, idle, control)
}

struct Kernel;

impl<L: KernelLane, A: KernelApp> Shape<L, A> for Kernel {
    fn turn(
        &mut self,
        lane: &mut L,
        app: &mut A,
        pace: &mut Pace<'_, impl Clock>,
        probe: &mut Probe,
    ) -> Result<bool, LaneError> {
        let began = probe.now();
        let records = receive(lane, app, pace.clock)?;
        if records > 0 {
            pace.read();
            // The app's share is inside: it sees records one by one, too short to be timed apart.
            probe.received(PortId(0), 0, records, began);
        } else {
            probe.received_nothing(PortId(0), began);
        }
        Ok(records > 0)
    }

    fn tick(&mut self, lane: &mut L, app: &mut A, turn: Turn) -> Result<(), LaneError> {
        app.on_tick(lane.maps(), turn);
        Ok(())
    }

    fn end(
        &mut self,
        lane: &mut L,
        app: &mut A,
        pace: &mut Pace<'_, impl Clock>,
    ) -> Result<(), LaneError> {
        lane.detach();
        for _ in 0..DRAIN_TURNS_MAX {
            if receive(lane, app, pace.clock)? == 0 {
                break;
            }
        }
        Ok(())
    }

    fn close(&mut self, lane: &mut L, app: &mut A, turn: Turn) {
        lane.detach();
        app.on_detached(lane.maps(), turn);
    }
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
