//! Apps that see the bytes of a connection.

use crate::{
    App, Clock, Datagram, DatagramOut, KernelHalf, KernelMaps, Lane, LaneError, PortId, Turn,
};
use std::net::SocketAddr;

/// One connection of a worker. Never reused while the worker lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// A connection that has just opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Its name.
    pub conn: ConnId,
    /// The other end.
    pub peer: SocketAddr,
    /// The listening address that it arrived at.
    pub local: SocketAddr,
    /// The port of that address.
    pub port: PortId,
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// The peer finished in order, then the app closed.
    Peer,
    /// The app closed or aborted it.
    App,
    /// Reset, timeout or another error.
    Error,
    /// The worker stops.
    Stop,
}

/// Where a stream app puts what it sends. A connection that is closed or gone takes nothing, and its
/// [`StreamApp::on_close`] has been called or will be.
pub trait StreamOut {
    /// Queues as much of `bytes` as the connection's send queue, which the lane bounds, has room for;
    /// returns how many bytes. Less than given: [`StreamApp::on_room`] follows once, when at least half
    /// of the queue is free.
    #[must_use]
    fn send(&mut self, conn: ConnId, bytes: &[u8]) -> usize;

    /// Bytes queued that the peer's TCP has not been handed.
    fn queued(&self, conn: ConnId) -> usize;

    /// Closes `conn` after what is queued has been sent. A peer that takes none of it for the lane's
    /// closing time is reset ([`Close::Error`]).
    fn close(&mut self, conn: ConnId);

    /// Resets `conn` now and drops what is queued.
    fn abort(&mut self, conn: ConnId);

    /// Shows no more bytes of `conn`. The lane keeps a bounded number of them, so the peer must wait.
    fn pause(&mut self, conn: ConnId);

    /// Shows bytes again, in this turn or the next, those kept included.
    fn resume(&mut self, conn: ConnId);
}

/// An application over byte streams.
///
/// Replies leave after [`StreamApp::on_turn_end`] returns: one log write serves a turn's commands.
///
/// A server that answers every whole line with its length, and a lane of the example's own with a
/// send queue without a bound:
///
/// ```
/// use laneway_core::{App, Close, ConnId, Counters, Opened, StreamApp, StreamOut};
///
/// #[derive(Default)]
/// struct Lengths(Counters);
///
/// impl App for Lengths {
///     fn counters(&self) -> &Counters {
///         &self.0
///     }
/// }
///
/// impl StreamApp for Lengths {
///     fn on_open<O: StreamOut>(&mut self, _opened: Opened, _out: &mut O) {}
///
///     fn on_bytes<O: StreamOut>(&mut self, conn: ConnId, bytes: &[u8], out: &mut O) -> usize {
///         let mut taken = 0;
///         while let Some(end) = bytes[taken..].iter().position(|&byte| byte == b'\n') {
///             let reply = format!("{end}\n");
///             if out.send(conn, reply.as_bytes()) < reply.len() {
///                 out.abort(conn); // the peer does not read its replies
///             }
///             taken += end + 1;
///         }
///         taken // a line that is not whole yet stays with the lane and is shown again, with more
///     }
///
///     fn on_close(&mut self, _conn: ConnId, _why: Close) {}
/// }
///
/// #[derive(Default)]
/// struct Queue(Vec<u8>);
///
/// impl StreamOut for Queue {
///     fn send(&mut self, _conn: ConnId, bytes: &[u8]) -> usize {
///         self.0.extend_from_slice(bytes);
///         bytes.len()
///     }
///
///     fn queued(&self, _conn: ConnId) -> usize {
///         self.0.len()
///     }
///
///     fn close(&mut self, _conn: ConnId) {}
///     fn abort(&mut self, _conn: ConnId) {}
///     fn pause(&mut self, _conn: ConnId) {}
///     fn resume(&mut self, _conn: ConnId) {}
/// }
///
/// let (mut app, mut queue, conn) = (Lengths::default(), Queue::default(), ConnId(1));
/// assert_eq!(app.on_bytes(conn, b"hel", &mut queue), 0);
/// assert_eq!(app.on_bytes(conn, b"hello\nab\nc", &mut queue), 9);
/// assert_eq!(queue.0, b"5\n2\n");
/// ```
pub trait StreamApp: App {
    /// A connection was accepted. The app may answer, close or abort it.
    fn on_open<O: StreamOut>(&mut self, opened: Opened, out: &mut O);

    /// All bytes of `conn` that were not consumed before, new ones at the end. Returns how many are
    /// consumed now; the lane keeps the rest, up to a bound. It shows them again when more has arrived, or
    /// behind [`on_room`](Self::on_room) if a send on `conn` took less than given.
    fn on_bytes<O: StreamOut>(&mut self, conn: ConnId, bytes: &[u8], out: &mut O) -> usize;

    /// A send took less than given; now at least half of the queue is free.
    fn on_room<O: StreamOut>(&mut self, _conn: ConnId, _out: &mut O) {}

    /// The peer has finished sending; once, behind its last bytes and not while the app waits for room,
    /// but at once while `conn` is paused. An app that owes a reply closes later.
    fn on_finish<O: StreamOut>(&mut self, conn: ConnId, out: &mut O) {
        out.close(conn);
    }

    /// The last call of a turn, or behind a tick or a bell, in which the app was called. Make durable
    /// what must be, then return.
    fn on_turn_end<O: StreamOut>(&mut self, _turn: Turn, _out: &mut O) {}

    /// The connection is gone; its id will not come again.
    fn on_close(&mut self, conn: ConnId, why: Close);

    /// Time has passed.
    fn on_tick<O: StreamOut>(&mut self, _turn: Turn, _out: &mut O) {}

    /// Datagrams of a lane that the worker serves beside the streams, if it does: a batch of one of its
    /// ports, or behind each tick and bell none, so that the app may send on its own account. Replies of
    /// streams are on their way by then.
    fn on_datagrams<O: DatagramOut>(&mut self, _batch: &[Datagram<'_>], _turn: Turn, _out: &mut O) {
    }

    /// The app's half in the kernel, for a lane that runs one in front of the streams' and datagrams' sockets.
    fn half(&self) -> Option<KernelHalf> {
        None
    }

    /// The maps of that half: behind [`on_turn_end`](Self::on_turn_end), *before* the turn's replies leave, and
    /// behind [`on_datagrams`](Self::on_datagrams). An app whose half answers in its place makes the maps agree
    /// with what its replies say. One that cannot fails: the half is detached before a reply leaves, and the run ends.
    fn on_maps(&mut self, _maps: &dyn KernelMaps, _turn: Turn) -> Result<(), LaneError> {
        Ok(())
    }
}

/// A lane of connections: a port is one listening address.
///
/// Counters: bytes are stream bytes; frames are the reads and writes that moved some.
pub trait StreamLane: Lane {
    /// One turn: accepts new connections, shows every connection's new bytes to the app, ends the app's turn,
    /// then puts the replies on their way. Returns how many connections were served; one that fails is
    /// closed. What the app is called for behind the end of a turn belongs to the next, which comes at once.
    fn serve<A: StreamApp>(&mut self, app: &mut A, clock: &impl Clock) -> Result<usize, LaneError>;

    /// Lets the app send on its own account ([`StreamApp::on_tick`]), ends its turn, and puts that on
    /// its way.
    fn tick<A: StreamApp>(&mut self, app: &mut A, turn: Turn) -> Result<(), LaneError>;

    /// Closes every connection, telling the app [`Close::Stop`], and listens no longer.
    fn finish<A: StreamApp>(&mut self, app: &mut A, turn: Turn);
}
