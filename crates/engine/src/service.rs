//! The turns of lanes that carry datagrams or streams.
//!
//! Both lanes do a whole round themselves ([`DatagramLane::serve`], [`StreamLane::serve`]): what they
//! read, and what an answer costs, is theirs. So the loop sees neither where the app's share of a
//! round begins nor where it ends; a run that is traced puts a [`Traced`] around the app for that, and
//! no other run does.

use crate::{
    Control, RunFailed, RunReport,
    idle::Pace,
    probe::{Probe, Tracing},
    run::{Shape, run},
};
use laneway_core::{
    App, Clock, Close, ConnId, Counters, Datagram, DatagramApp, DatagramLane, DatagramOut,
    DatagramPorts, LaneError, Opened, StreamApp, StreamLane, StreamOut, Turn,
};
use laneway_spec::IdlePolicy;
use laneway_tracer::points;

/// Runs a datagram app on a lane until `control` says stop, the app wants to end, or nothing can come
/// any more.
///
/// # Errors
/// When the lane fails; the report up to there comes with the error.
///
/// # Panics
/// If `clock` is not of the lane's clock domain.
pub fn run_datagrams<L: DatagramLane, A: DatagramApp>(
    lane: &mut L,
    app: &mut A,
    clock: &impl Clock,
    idle: IdlePolicy,
    control: &Control,
) -> Result<RunReport, RunFailed> {
    run(lane, app, Datagrams, clock, idle, control)
}

/// Runs a stream app on a lane, as [`run_datagrams`]. At the end every connection is closed.
///
/// # Errors
/// When the lane fails; the report up to there comes with the error.
///
/// # Panics
/// If `clock` is not of the lane's clock domain.
pub fn run_streams<L: StreamLane, A: StreamApp>(
    lane: &mut L,
    app: &mut A,
    clock: &impl Clock,
    idle: IdlePolicy,
    control: &Control,
) -> Result<RunReport, RunFailed> {
    run(lane, app, Streams, clock, idle, control)
}

struct Datagrams;

impl<L: DatagramLane, A: DatagramApp> Shape<L, A> for Datagrams {
    fn turn(
        &mut self,
        lane: &mut L,
        app: &mut A,
        pace: &mut Pace<'_, impl Clock>,
        probe: &mut Probe,
    ) -> Result<bool, LaneError> {
        let served = serve_datagrams(lane, app, pace.clock, probe)?;
        if app.awaits_sent() {
            app.on_sent(Turn { now_ns: pace.clock.now_ns() });
        }
        Ok(noted(served, pace))
    }

    fn tick(&mut self, lane: &mut L, app: &mut A, turn: Turn) -> Result<(), LaneError> {
        lane.tick(app, turn)
    }

    fn bell(&mut self, lane: &mut L, app: &mut A, turn: Turn) -> Result<(), LaneError> {
        app.on_ports(lane, turn);
        lane.tick(app, turn)
    }
}

struct Streams;

impl<L: StreamLane, A: StreamApp> Shape<L, A> for Streams {
    fn turn(
        &mut self,
        lane: &mut L,
        app: &mut A,
        pace: &mut Pace<'_, impl Clock>,
        probe: &mut Probe,
    ) -> Result<bool, LaneError> {
        let served = serve_streams(lane, app, pace.clock, probe)?;
        Ok(noted(served, pace))
    }

    fn tick(&mut self, lane: &mut L, app: &mut A, turn: Turn) -> Result<(), LaneError> {
        lane.tick(app, turn)
    }

    fn close(&mut self, lane: &mut L, app: &mut A, turn: Turn) {
        lane.finish(app, turn);
    }
}

/// A round of a lane of datagrams.
pub(crate) fn serve_datagrams<L: DatagramLane, A: DatagramApp>(
    lane: &mut L,
    app: &mut A,
    clock: &impl Clock,
    probe: &mut Probe,
) -> Result<usize, LaneError> {
    let Some(tracing) = probe.tracing() else { return lane.serve(app, clock) };
    let mut app = Traced::new(app, tracing);
    let served = lane.serve(&mut app, clock)?;
    Ok(app.end_round(served))
}

/// A round of a lane of streams.
pub(crate) fn serve_streams<L: StreamLane, A: StreamApp>(
    lane: &mut L,
    app: &mut A,
    clock: &impl Clock,
    probe: &mut Probe,
) -> Result<usize, LaneError> {
    let Some(tracing) = probe.tracing() else { return lane.serve(app, clock) };
    let mut app = Traced::new(app, tracing);
    let served = lane.serve(&mut app, clock)?;
    Ok(app.end_round(served))
}

/// Reads the clock after a round that served something.
pub(crate) fn noted(served: usize, pace: &mut Pace<'_, impl Clock>) -> bool {
    if served > 0 {
        pace.read();
    }
    served > 0
}

/// An app in a round that is traced: it passes every call on and tells how long it took. A round in
/// which the app is not called tells nothing of itself.
struct Traced<'a, A> {
    app: &'a mut A,
    tracing: &'a mut Tracing,
    began: u64,
    entered: bool,
}

impl<'a, A: App> Traced<'a, A> {
    fn new(app: &'a mut A, tracing: &'a mut Tracing) -> Self {
        let began = tracing.now();
        Traced { app, tracing, began, entered: false }
    }

    /// The app is about to be called.
    fn enter(&mut self) -> u64 {
        if !self.entered {
            self.entered = true;
            self.tracing.enter_round(self.began);
        }
        self.tracing.now()
    }

    /// The lane has served so many.
    fn end_round(self, served: usize) -> usize {
        self.tracing.served(self.began, self.entered, served);
        served
    }
}

impl<A: App> App for Traced<'_, A> {
    fn on_bell(&mut self, turn: Turn) {
        self.app.on_bell(turn);
    }

    fn on_stop(&mut self, turn: Turn) {
        self.app.on_stop(turn);
    }

    fn wants_stop(&self) -> bool {
        self.app.wants_stop()
    }

    fn due_ns(&self) -> Option<u64> {
        self.app.due_ns()
    }

    fn counters(&self) -> &Counters {
        self.app.counters()
    }
}

impl<A: DatagramApp> DatagramApp for Traced<'_, A> {
    fn on_datagrams<O: DatagramOut>(&mut self, batch: &[Datagram<'_>], turn: Turn, out: &mut O) {
        let began = self.enter();
        self.app.on_datagrams(batch, turn, out);
        self.tracing.called(points::APP_DATAGRAMS, began, batch.len());
    }

    fn on_ports<P: DatagramPorts>(&mut self, ports: &mut P, turn: Turn) {
        self.app.on_ports(ports, turn);
    }

    fn on_tick<O: DatagramOut>(&mut self, turn: Turn, out: &mut O) {
        self.app.on_tick(turn, out);
    }
}

impl<A: StreamApp> StreamApp for Traced<'_, A> {
    fn on_open<O: StreamOut>(&mut self, opened: Opened, out: &mut O) {
        self.app.on_open(opened, out);
    }

    fn on_bytes<O: StreamOut>(&mut self, conn: ConnId, bytes: &[u8], out: &mut O) -> usize {
        let began = self.enter();
        let consumed = self.app.on_bytes(conn, bytes, out);
        self.tracing.called(points::APP_BYTES, began, bytes.len());
        consumed
    }

    fn on_room<O: StreamOut>(&mut self, conn: ConnId, out: &mut O) {
        self.app.on_room(conn, out);
    }

    fn on_finish<O: StreamOut>(&mut self, conn: ConnId, out: &mut O) {
        self.app.on_finish(conn, out);
    }

    /// Recorded only in a round that had bytes.
    fn on_turn_end<O: StreamOut>(&mut self, turn: Turn, out: &mut O) {
        let began = self.tracing.now();
        self.app.on_turn_end(turn, out);
        if self.entered {
            self.tracing.called(points::APP_TURN_END, began, 0);
        }
    }

    fn on_close(&mut self, conn: ConnId, why: Close) {
        self.app.on_close(conn, why);
    }

    fn on_tick<O: StreamOut>(&mut self, turn: Turn, out: &mut O) {
        self.app.on_tick(turn, out);
    }
}
