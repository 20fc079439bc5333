//! Apps that see the bytes of a connection: kv, TCP echo.

use crate::{CapsReport, Clock, ClockDomain, Counters, LaneError, PortId, Turn, Wake};
use std::{net::SocketAddr, time::Duration};

/// One connection of a worker. Never reused while the worker lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// The peer finished in order.
    Peer,
    /// The app asked for it.
    App,
    /// Reset, timeout or another error.
    Error,
    /// The worker stops.
    Stop,
}

/// Where a stream app puts what it sends. The lane implements it and bounds what is queued.
pub trait StreamOut {
    /// Queues bytes for `conn`. False when its queue is full: the app must stop reading from it
    /// (return less than it was given) until the next turn.
    #[must_use]
    fn send(&mut self, conn: ConnId, bytes: &[u8]) -> bool;

    /// Closes `conn` after what is queued has been sent.
    fn close(&mut self, conn: ConnId);
}

/// An application over byte streams.
///
/// Replies queued in a turn leave after [`StreamApp::on_turn_end`] returns, so that one log write
/// can serve all commands of the turn.
pub trait StreamApp {
    /// A connection was accepted.
    fn on_open(&mut self, conn: ConnId, peer: SocketAddr);

    /// All bytes of `conn` that were not consumed before, new ones at the end. Returns how many are
    /// consumed now; the lane keeps the rest.
    fn on_bytes<O: StreamOut>(&mut self, conn: ConnId, bytes: &[u8], out: &mut O) -> usize;

    /// Every connection that had bytes was served. Make durable what must be, then return.
    fn on_turn_end<O: StreamOut>(&mut self, _turn: Turn, _out: &mut O) {}

    /// The connection is gone; its id will not come again.
    fn on_close(&mut self, conn: ConnId, why: Close);

    /// Time has passed.
    fn on_tick<O: StreamOut>(&mut self, _turn: Turn, _out: &mut O) {}

    /// Nothing more will come, every connection is closed: finish what is open.
    fn on_stop(&mut self, _turn: Turn) {}

    /// True when the app wants to end the run.
    fn wants_stop(&self) -> bool {
        false
    }

    /// What the app counted.
    fn counters(&self) -> &Counters;
}

/// All listeners and connections of one worker: a port is one listening address. Used by one
/// thread; shares nothing.
///
/// Counters: `rx_bytes` and `tx_bytes` are stream bytes; `rx_frames` and `tx_frames` count the
/// reads that brought some and the writes that took some.
pub trait StreamLane {
    /// The lane's name in specs and results.
    fn name(&self) -> &'static str;

    /// How many ports there are; their ids are `0..ports`.
    fn ports(&self) -> usize;

    /// The clock that the lane's timers and the app's turns run on.
    fn clock_domain(&self) -> ClockDomain;

    /// One turn: accepts who came, shows every connection's new bytes to the app, ends the app's turn
    /// ([`StreamApp::on_turn_end`]), then puts the replies on their way. A connection whose bytes
    /// the app did not consume because its send queue was full is shown again when that has drained.
    /// Returns how many connections were served.
    ///
    /// # Errors
    /// Only for what ends the lane; a connection that fails is closed.
    fn serve<A: StreamApp>(&mut self, app: &mut A, clock: &impl Clock) -> Result<usize, LaneError>;

    /// Lets the app send on its own account ([`StreamApp::on_tick`]), and puts that on its way.
    ///
    /// # Errors
    /// As for [`serve`](Self::serve).
    fn tick<A: StreamApp>(&mut self, app: &mut A, turn: Turn) -> Result<(), LaneError>;

    /// Closes every connection, telling the app [`Close::Stop`], and listens no longer.
    fn finish<A: StreamApp>(&mut self, app: &mut A, turn: Turn);

    /// Blocks until something may be there on any port, at most for `timeout`. May wake early.
    ///
    /// # Errors
    /// As for [`serve`](Self::serve).
    fn wait(&mut self, timeout: Duration) -> Result<Wake, LaneError>;

    /// When [`serve`](Self::serve) must be called next even if nothing arrives (timers of a stack).
    fn due_ns(&self) -> Option<u64> {
        None
    }

    /// True when nothing will ever come again.
    fn exhausted(&self) -> bool {
        false
    }

    /// What `port` was asked for and what it obtained.
    fn caps(&self, port: PortId) -> &CapsReport;

    /// The counters of `port` and of the connections that it accepted.
    fn counters(&mut self, port: PortId) -> Counters;
}
