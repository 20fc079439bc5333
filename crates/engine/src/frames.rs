//! The turn of frame lanes.
//!
//! ```text
//!   for each port:  receive ─▶ on_burst ─▶ settle
//!                   lend ────▶ fill ─────▶ settle     (while the app has something to send)
//! ```

use crate::{
    Control, RunFailed, RunReport,
    idle::Pace,
    ports::ports,
    probe::Probe,
    run::{Shape, run},
};
use laneway_core::{
    BURST_FRAMES_MAX, Cap, Clock, Fill, FrameApp, FrameLane, LaneError, PortId, Turn, Verdict,
};
use laneway_spec::IdlePolicy;
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
    let fills =
        ports(lane).into_iter().map(|port| match lane.caps(port).obtained.has(Cap::Transmit) {
            true => (port, Fill::Again),
            false => (port, Fill::Never),
        });
    let shape = Frames { fills: fills.collect() };
    run(lane, app, shape, clock, idle, control)
}

/// What the app wants to send, by port.
struct Frames {
    fills: Vec<(PortId, Fill)>,
}

impl<L: FrameLane, A: FrameApp> Shape<L, A> for Frames {
    #[inline]
    fn turn(
        &mut self,
        lane: &mut L,
        app: &mut A,
        pace: &mut Pace<'_, impl Clock>,
        probe: &mut Probe,
    ) -> Result<bool, LaneError> {
        let mut worked = false;
        for (port, fill) in &mut self.fills {
            let port = *port;
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
                probe.received_nothing(port, began);
            }
            if wants_to_fill(*fill, pace.now_ns) {
                let began = probe.now();
                let burst = lane.lend(port, BURST_FRAMES_MAX)?;
                let frames = burst.len();
                if frames > 0 {
                    let borrowed = probe.called(points::LEND, began, frames);
                    *fill = app.fill(port, burst, Turn { now_ns: pace.read() });
                    worked |= (0..frames).any(|i| burst.verdict(i) != Verdict::Drop);
                    let filled = probe.called(points::APP_FILL, borrowed, frames);
                    lane.settle(port)?;
                    probe.called(points::SETTLE, filled, frames);
                }
            }
        }
        Ok(worked)
    }

    fn tick(&mut self, _lane: &mut L, app: &mut A, turn: Turn) -> Result<(), LaneError> {
        app.on_tick(turn);
        Ok(())
    }

    /// 0 for at once.
    fn sends_at_ns(&self) -> Option<u64> {
        let times = self.fills.iter().filter_map(|(_, fill)| match *fill {
            Fill::Again => Some(0),
            Fill::At(at_ns) => Some(at_ns),
            Fill::Never | Fill::Done => None,
        });
        times.min()
    }

    /// What a full queue kept back has its last chance.
    fn end(
        &mut self,
        lane: &mut L,
        _app: &mut A,
        _pace: &mut Pace<'_, impl Clock>,
    ) -> Result<(), LaneError> {
        self.fills.iter().try_for_each(|&(port, _)| lane.settle(port))
    }
}

fn wants_to_fill(fill: Fill, now_ns: u64) -> bool {
    match fill {
        Fill::Again => true,
        Fill::At(at_ns) => now_ns >= at_ns,
        Fill::Never | Fill::Done => false,
    }
}
