//! Apps that see payload, source, destination and ingress: relay, UDP echo, kv's GET.
//!
//! One entry of a batch may be a *train*: several datagrams of equal size in one buffer, as UDP_GRO
//! delivers them and UDP_SEGMENT sends them. An app that forwards a train uncut keeps it a train.

use crate::{Counters, PortId, Turn};
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

/// Where a datagram app puts what it sends. The lane implements it; every refusal is counted by the
/// lane under a drop reason.
pub trait DatagramOut {
    /// Sends the train's bytes on to `destination` through `egress`, uncut and without a copy where
    /// the lane can.
    fn forward(&mut self, datagram: &Datagram<'_>, egress: PortId, destination: SocketAddr);

    /// Sends new bytes: `write` is given at most `bytes_max` bytes of the lane's memory and returns
    /// how many it used.
    fn send(
        &mut self,
        egress: PortId,
        destination: SocketAddr,
        bytes_max: usize,
        write: &mut dyn FnMut(&mut [u8]) -> usize,
    );
}

/// An application over datagrams.
pub trait DatagramApp {
    /// Looks at a batch, in order of arrival.
    fn on_datagrams<O: DatagramOut>(&mut self, batch: &[Datagram<'_>], turn: Turn, out: &mut O);

    /// Time has passed.
    fn on_tick<O: DatagramOut>(&mut self, _turn: Turn, _out: &mut O) {}

    /// What the app counted.
    fn counters(&self) -> &Counters;
}
