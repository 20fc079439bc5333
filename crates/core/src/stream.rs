//! Apps that see the bytes of a connection.

use crate::{App, Clock, Lane, LaneError, Turn};
use std::net::SocketAddr;

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
/// Replies leave after [`StreamApp::on_turn_end`] returns: one log write serves a turn's commands.
pub trait StreamApp: App {
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
}

/// A lane of connections: a port is one listening address.
///
/// Counters: bytes are stream bytes; frames are the reads and writes that moved some.
pub trait StreamLane: Lane {
    /// One turn: accepts who came, shows every connection's new bytes to the app, ends the app's turn
    /// ([`StreamApp::on_turn_end`]), then puts the replies on their way. A connection whose bytes
    /// the app did not consume because its send queue was full is shown again when that has drained.
    /// Returns how many connections were served; one that fails is closed.
    fn serve<A: StreamApp>(&mut self, app: &mut A, clock: &impl Clock) -> Result<usize, LaneError>;

    /// Lets the app send on its own account ([`StreamApp::on_tick`]), and puts that on its way.
    fn tick<A: StreamApp>(&mut self, app: &mut A, turn: Turn) -> Result<(), LaneError>;

    /// Closes every connection, telling the app [`Close::Stop`], and listens no longer.
    fn finish<A: StreamApp>(&mut self, app: &mut A, turn: Turn);
}
