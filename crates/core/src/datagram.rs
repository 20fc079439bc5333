//! Apps that see payload, source, destination and ingress.
//!
//! One entry of a batch may be a *train*: several datagrams of equal size in one buffer, as UDP_GRO
//! delivers them and UDP_SEGMENT sends them. An app that forwards a train uncut keeps it a train.

use crate::{App, Clock, Lane, LaneError, PortId, Turn};
use std::net::SocketAddr;

/// One datagram, or a train of them, borrowed from the lane.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// The payload bytes of the whole train.
    pub payload: &'a [u8],
    /// Bytes per datagram; every datagram but the last has exactly this many. Equal to
    /// `payload.len()` for a single datagram.
    pub segment_bytes: usize,
    /// Who sent it.
    pub source: SocketAddr,
    /// Whom it was addressed to: our address, or a multicast group.
    pub destination: SocketAddr,
    /// The port it came in on.
    pub ingress: PortId,
    /// When it was received, in the lane's clock domain.
    pub ts_ns: u64,
}

/// Where a datagram app puts what it sends. The lane counts every refusal under a drop reason.
pub trait DatagramOut {
    /// Sends the train's bytes on to `destination` through `egress`, uncut and without a copy where
    /// the lane can.
    fn forward(&mut self, datagram: &Datagram<'_>, egress: PortId, destination: SocketAddr);

    /// Sends new bytes: `write` is given at most `bytes_max` bytes of the lane's memory and returns
    /// how many it used. Where the lane has no memory left, `write` is not called.
    fn send(
        &mut self,
        egress: PortId,
        destination: SocketAddr,
        bytes_max: usize,
        write: impl FnOnce(&mut [u8]) -> usize,
    );
}

/// An application over datagrams.
pub trait DatagramApp: App {
    /// Looks at a batch of one port, in order of arrival.
    fn on_datagrams<O: DatagramOut>(&mut self, batch: &[Datagram<'_>], turn: Turn, out: &mut O);

    /// Time has passed.
    fn on_tick<O: DatagramOut>(&mut self, _turn: Turn, _out: &mut O) {}
}

/// A lane of datagrams: a port is one socket, or one address of a stack.
///
/// Counters: `rx_frames` and `tx_frames` count every datagram of a train; bytes are payload.
pub trait DatagramLane: Lane {
    /// One round over all ports: takes what is there, up to the lane's batch and without waiting to
    /// fill it, shows it to the app (the clock is read once per batch), and puts what the app sends
    /// on its way before it returns. Returns how many datagrams the app saw.
    fn serve<A: DatagramApp>(
        &mut self,
        app: &mut A,
        clock: &impl Clock,
    ) -> Result<usize, LaneError>;

    /// Lets the app send on its own account ([`DatagramApp::on_tick`]), and puts that on its way.
    fn tick<A: DatagramApp>(&mut self, app: &mut A, turn: Turn) -> Result<(), LaneError>;
}
