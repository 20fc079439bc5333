//! Apps that see the bytes of a connection: kv, TCP echo.

use crate::{Counters, Turn};
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

    /// What the app counted.
    fn counters(&self) -> &Counters;
}
