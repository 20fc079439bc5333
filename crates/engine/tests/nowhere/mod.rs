//! The far side of lanes that are made of a script: nothing that is sent goes anywhere, and all comes from here.

use laneway_core::{ConnId, Datagram, DatagramOut, Payload, PortId, StreamOut};
use std::net::SocketAddr;

/// Where nothing goes.
pub(crate) struct Nowhere;

impl DatagramOut for Nowhere {
    fn forward(&mut self, _: &Datagram<'_>, _: PortId, _: SocketAddr) {}
    fn send(&mut self, _: PortId, _: SocketAddr, _: usize, _: impl FnOnce(&mut [u8]) -> usize) {}
}

impl StreamOut for Nowhere {
    fn send(&mut self, _: ConnId, bytes: &[u8]) -> usize {
        bytes.len()
    }
    fn queued(&self, _: ConnId) -> usize {
        0
    }
    fn close(&mut self, _: ConnId) {}
    fn abort(&mut self, _: ConnId) {}
    fn pause(&mut self, _: ConnId) {}
    fn resume(&mut self, _: ConnId) {}
}

/// A datagram of these bytes that arrived at the first port at this time.
pub(crate) fn datagram(bytes: &[u8], ts_ns: u64) -> Datagram<'_> {
    let here = SocketAddr::from(([127, 0, 0, 1], 9));
    Datagram {
        payload: Payload::own(bytes),
        segment_bytes: bytes.len(),
        source: here,
        destination: here,
        is_broadcast: false,
        ingress: PortId(0),
        ts_ns,
    }
}
