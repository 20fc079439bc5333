//! One worker that serves a lane of streams and a lane of datagrams for one app, perhaps behind a half of the app in
//! the kernel that answers some of the datagrams itself.
//!
//! ```text
//!   frames ─▶ kernel half ─ answered ─▶ back
//!                 │ left                              one wait
//!                 ▼                              ╭────────┴────────╮
//!          the kernel's sockets ───▶ lane of streams        lane of datagrams
//!                 ▲                       ╰─────▶ app ◀─────╯
//!                 ╰──────── maps: on_maps before the replies of a turn leave
//! ```
//!
//! What must always hold: replies of streams leave behind [`StreamApp::on_maps`], so what the half answers is never
//! older than what a reply states; where the maps cannot be made to agree, the half is detached first. The streams'
//! turn ends before the datagrams' begins. At the end the half goes first.

use crate::{
    Control, RunFailed, RunReport,
    idle::Pace,
    probe::Probe,
    run::{Shape, run},
    service::{noted, serve_datagrams, serve_streams},
};
use laneway_core::{
    App, Bell, CapsReport, Clock, ClockDomain, Close, ConnId, Counters, Datagram, DatagramApp,
    DatagramLane, DatagramOut, KernelLane, KernelMaps, Lane, LaneError, Opened, PortId, StreamApp,
    StreamLane, StreamOut, Turn, Wake,
};
use laneway_spec::IdlePolicy;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::Duration;

/// A kernel half in front of sockets, whichever lane runs it: whatever serves those is compiled once for all of them.
pub trait HalfInFront: Lane {
    /// Looks whether its interfaces are there. What the half emits is dropped: no stream app is shown any of it.
    ///
    /// # Errors
    /// Those of [`KernelLane::receive`].
    fn look(&mut self) -> Result<(), LaneError>;

    /// As [`KernelLane::detach`].
    fn detach(&mut self);

    /// As [`KernelLane::maps`].
    fn maps(&self) -> &dyn KernelMaps;
}

impl<K: KernelLane> HalfInFront for K {
    fn look(&mut self) -> Result<(), LaneError> {
        self.receive(|_| {}).map(drop)
    }

    fn detach(&mut self) {
        KernelLane::detach(self);
    }

    fn maps(&self) -> &dyn KernelMaps {
        KernelLane::maps(self)
    }
}

/// Two lanes of one worker, and a kernel half in front of their sockets.
///
/// Its ports are those of the streams, then those of the datagrams, then those of the half. The app sees each
/// lane's own numbers.
pub struct Split<S, D> {
    streams: S,
    datagrams: D,
    kernel: Option<Box<dyn HalfInFront>>,
}

impl<S: StreamLane, D: DatagramLane> Split<S, D> {
    /// Both lanes, and the half if there is one.
    ///
    /// # Errors
    /// One of the two can only be waited for alone.
    pub fn new(
        streams: S,
        datagrams: D,
        kernel: Option<Box<dyn HalfInFront>>,
    ) -> Result<Self, LaneError> {
        for (lane, event) in
            [(streams.name(), streams.event()), (datagrams.name(), datagrams.event())]
        {
            if event.is_none() {
                return Err(LaneError::Refused {
                    lane: lane.to_owned(),
                    name: "streams and datagrams of one worker".to_owned(),
                    why: "its wait cannot be joined with another lane's".to_owned(),
                    hint: "use a lane of the kernel's sockets".to_owned(),
                });
            }
        }
        Ok(Split { streams, datagrams, kernel })
    }

    /// Whose port this is, and its number there.
    fn find(&self, port: PortId) -> Whose {
        let (at, streams, datagrams) = (port.index(), self.streams.ports(), self.datagrams.ports());
        if at < streams {
            Whose::Streams(self.streams.port(at))
        } else if at < streams + datagrams {
            Whose::Datagrams(self.datagrams.port(at - streams))
        } else {
            Whose::Kernel(PortId((at - streams - datagrams) as u32))
        }
    }
}

enum Whose {
    Streams(PortId),
    Datagrams(PortId),
    Kernel(PortId),
}

impl<S: StreamLane, D: DatagramLane> Lane for Split<S, D> {
    /// That of the lane which the user has named.
    fn name(&self) -> &'static str {
        self.kernel.as_ref().map_or_else(|| self.streams.name(), |kernel| kernel.name())
    }

    fn ports(&self) -> usize {
        let kernel = self.kernel.as_ref().map_or(0, |kernel| kernel.ports());
        self.streams.ports() + self.datagrams.ports() + kernel
    }

    fn past(&self) -> Counters {
        let mut past = self.streams.past();
        past.merge(&self.datagrams.past());
        past
    }

    fn clock_domain(&self) -> ClockDomain {
        self.streams.clock_domain()
    }

    fn hear(&mut self, bell: &Bell) {
        self.streams.hear(bell);
        self.datagrams.hear(bell);
    }

    /// Each lane's own wait of no time first: it submits what it has, and looks at what no event tells.
    fn wait(&mut self, timeout: Duration) -> Result<Wake, LaneError> {
        for wake in [self.streams.wait(Duration::ZERO)?, self.datagrams.wait(Duration::ZERO)?] {
            if wake == Wake::Ready {
                return Ok(wake);
            }
        }
        let events = [self.streams.event(), self.datagrams.event()];
        let mut polled = events.map(|event| {
            PollFd::from_borrowed_fd(event.expect("looked for in `new`"), PollFlags::IN)
        });
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // An interruption is an early return.
        Ok(match poll(&mut polled, Some(&timeout)) {
            Ok(0) => Wake::Timeout,
            Ok(_) | Err(_) => Wake::Ready,
        })
    }

    fn due_ns(&self) -> Option<u64> {
        [self.streams.due_ns(), self.datagrams.due_ns()].into_iter().flatten().min()
    }

    fn exhausted(&self) -> bool {
        self.streams.exhausted() && self.datagrams.exhausted()
    }

    fn caps(&self, port: PortId) -> &CapsReport {
        match (self.find(port), &self.kernel) {
            (Whose::Kernel(port), Some(kernel)) => kernel.caps(port),
            (Whose::Streams(port), _) => self.streams.caps(port),
            (Whose::Datagrams(port) | Whose::Kernel(port), _) => self.datagrams.caps(port),
        }
    }

    fn counters(&mut self, port: PortId) -> Counters {
        match (self.find(port), &mut self.kernel) {
            (Whose::Kernel(port), Some(kernel)) => kernel.counters(port),
            (Whose::Streams(port), _) => self.streams.counters(port),
            (Whose::Datagrams(port) | Whose::Kernel(port), _) => self.datagrams.counters(port),
        }
    }

    fn drop_unsent(&mut self) {
        self.streams.drop_unsent();
        self.datagrams.drop_unsent();
        if let Some(kernel) = &mut self.kernel {
            kernel.drop_unsent();
        }
    }
}

/// Runs a stream app on both lanes until `control` says stop, the app wants to end, or nothing can come any more. At
/// the end the half is detached, then every connection is closed.
///
/// # Errors
/// When a lane fails, or the app fails to keep the half's maps; the report up to there comes with the error.
///
/// # Panics
/// If `clock` is not of the lanes' clock domain.
pub fn run_split<S: StreamLane, D: DatagramLane, A: StreamApp>(
    lanes: &mut Split<S, D>,
    app: &mut A,
    clock: &impl Clock,
    idle: IdlePolicy,
    control: &Control,
) -> Result<RunReport, RunFailed> {
    run(lanes, app, Both::default(), clock, idle, control)
}

#[derive(Default)]
struct Both {
    /// Why the half's maps could not be kept; it is detached then.
    failed: Option<LaneError>,
}

impl Both {
    /// What a round ends with.
    fn outcome<T>(&mut self, outcome: Result<T, LaneError>) -> Result<T, LaneError> {
        self.failed.take().map_or(outcome, Err)
    }
}

impl<S: StreamLane, D: DatagramLane, A: StreamApp> Shape<Split<S, D>, A> for Both {
    fn turn(
        &mut self,
        lane: &mut Split<S, D>,
        app: &mut A,
        pace: &mut Pace<'_, impl Clock>,
        probe: &mut Probe,
    ) -> Result<bool, LaneError> {
        let Split { streams, datagrams, kernel } = lane;
        let mut mapped = Mapped { app, kernel, failed: &mut self.failed };
        let served = serve_streams(streams, &mut mapped, pace.clock, probe).and_then(|served| {
            let more = serve_datagrams(datagrams, &mut mapped, pace.clock, probe)?;
            Ok(served + more)
        });
        let served = self.outcome(served)?;
        if let Some(kernel) = kernel.as_mut().filter(|_| served == 0) {
            kernel.look()?;
        }
        Ok(noted(served, pace))
    }

    fn tick(&mut self, lane: &mut Split<S, D>, app: &mut A, turn: Turn) -> Result<(), LaneError> {
        let Split { streams, datagrams, kernel } = lane;
        let mut mapped = Mapped { app, kernel, failed: &mut self.failed };
        let ticked =
            streams.tick(&mut mapped, turn).and_then(|()| datagrams.tick(&mut mapped, turn));
        self.outcome(ticked)
    }

    fn close(&mut self, lane: &mut Split<S, D>, app: &mut A, turn: Turn) {
        let Split { streams, kernel, .. } = lane;
        if let Some(kernel) = kernel {
            kernel.detach();
            // A last look at what the half has counted. Its answers are over, so nothing depends on it.
            let _ = app.on_maps(kernel.maps(), turn);
        }
        streams.finish(app, turn);
    }
}

/// The app, with the half's maps made to agree whenever it has been called.
struct Mapped<'a, A> {
    app: &'a mut A,
    kernel: &'a mut Option<Box<dyn HalfInFront>>,
    failed: &'a mut Option<LaneError>,
}

impl<A: StreamApp> Mapped<'_, A> {
    fn agree(&mut self, turn: Turn) {
        let Some(kernel) = self.kernel.as_mut().filter(|_| self.failed.is_none()) else { return };
        if let Err(error) = self.app.on_maps(kernel.maps(), turn) {
            kernel.detach();
            *self.failed = Some(error);
        }
    }
}

impl<A: StreamApp> App for Mapped<'_, A> {
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

impl<A: StreamApp> StreamApp for Mapped<'_, A> {
    fn on_open<O: StreamOut>(&mut self, opened: Opened, out: &mut O) {
        self.app.on_open(opened, out);
    }

    fn on_bytes<O: StreamOut>(&mut self, conn: ConnId, bytes: &[u8], out: &mut O) -> usize {
        self.app.on_bytes(conn, bytes, out)
    }

    fn on_room<O: StreamOut>(&mut self, conn: ConnId, out: &mut O) {
        self.app.on_room(conn, out);
    }

    fn on_finish<O: StreamOut>(&mut self, conn: ConnId, out: &mut O) {
        self.app.on_finish(conn, out);
    }

    fn on_turn_end<O: StreamOut>(&mut self, turn: Turn, out: &mut O) {
        self.app.on_turn_end(turn, out);
        self.agree(turn);
    }

    fn on_close(&mut self, conn: ConnId, why: Close) {
        self.app.on_close(conn, why);
    }

    fn on_tick<O: StreamOut>(&mut self, turn: Turn, out: &mut O) {
        self.app.on_tick(turn, out);
    }
}

impl<A: StreamApp> DatagramApp for Mapped<'_, A> {
    fn on_datagrams<O: DatagramOut>(&mut self, batch: &[Datagram<'_>], turn: Turn, out: &mut O) {
        self.app.on_datagrams(batch, turn, out);
        self.agree(turn);
    }

    fn on_tick<O: DatagramOut>(&mut self, turn: Turn, out: &mut O) {
        self.app.on_datagrams(&[], turn, out);
        self.agree(turn);
    }
}
