//! Apps that see payload, source, destination and ingress.
//!
//! One entry of a batch may be a *train*: several datagrams of equal size in one buffer, as UDP_GRO
//! delivers them and UDP_SEGMENT sends them. An app that forwards a train uncut keeps it a train.

use crate::{App, Clock, DatagramPorts, LaneError, PortId, Turn};
use std::{
    net::SocketAddr,
    ops::{Deref, Range},
    sync::atomic::{AtomicU64, Ordering},
};

/// Bytes of datagrams, read as a slice, with a token of where the lane that received them keeps them:
/// that lane forwards them from there. Every other lane, and every lane that is given an app's own
/// bytes, copies them, and counts that. No token can be put on other bytes than its own.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    bytes: &'a [u8],
    /// The token: number of the lane's key (0: none), the lane's index, and bytes left out in front.
    key: u64,
    index: u32,
    offset: u32,
}

impl<'a> Payload<'a> {
    /// Bytes of the app's own, without a token.
    pub fn own(bytes: &'a [u8]) -> Payload<'a> {
        Payload { bytes, key: 0, index: 0, offset: 0 }
    }

    /// A part of the bytes, whose token says where the part lies. Panics as a slice does.
    #[must_use]
    pub fn narrowed(self, part: Range<usize>) -> Payload<'a> {
        // What a lane received is far shorter than 4 GiB; the offset of an app's own is not read.
        let offset = self.offset.wrapping_add(part.start as u32);
        Payload { bytes: &self.bytes[part], offset, ..self }
    }
}

impl Deref for Payload<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

/// What a lane marks its payloads with: without the key a token can neither be made nor read.
#[derive(Debug)]
pub struct PayloadKey(u64);

impl PayloadKey {
    /// A key that no other lane of the process has.
    pub fn unique() -> PayloadKey {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Nothing else is ordered by it.
        PayloadKey(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Lane: a payload that lies where `index` says in the batch that is to be shown.
    pub fn mark<'a>(&self, bytes: &'a [u8], index: u32) -> Payload<'a> {
        Payload { bytes, key: self.0, index, offset: 0 }
    }

    /// Lane: the index that this key marked the payload with, and where it begins in those bytes. The
    /// batch is the one that is being shown, because no app can keep a datagram for longer.
    pub fn find(&self, payload: Payload<'_>) -> Option<(u32, usize)> {
        (payload.key == self.0).then_some((payload.index, payload.offset as usize))
    }
}

/// One datagram, or a train of them, borrowed from the lane. An app may forward it as it is, or a
/// copy with other fields: a [narrowed](Payload::narrowed) payload, one of its [own](Payload::own).
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// The payload bytes of the whole train.
    pub payload: Payload<'a>,
    /// Bytes per datagram; every datagram but the last has exactly this many. Equal to
    /// `payload.len()` for a single datagram; a lane takes more than that for the same.
    pub segment_bytes: usize,
    /// Its sender.
    pub source: SocketAddr,
    /// The address it was sent to: ours, a multicast group, or a broadcast address.
    pub destination: SocketAddr,
    /// It was sent to all hosts of a network, which the broadcast address of a subnet does not show.
    pub is_broadcast: bool,
    /// The port that received it.
    pub ingress: PortId,
    /// When it was received, in the lane's clock domain.
    pub ts_ns: u64,
}

/// Where a datagram app puts what it sends. The lane counts every refusal under a drop reason.
pub trait DatagramOut {
    /// Sends the payload on to `destination` through `egress`, uncut and uncopied where it can.
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
///
/// The echo service of RFC 862 over UDP, and a lane of the example's own that keeps what is sent:
///
/// ```
/// use laneway_core::{App, Counters, Datagram, DatagramApp, DatagramOut, Payload, PortId, Turn};
/// use std::net::SocketAddr;
///
/// /// Sends every datagram back to its source; a train goes back as a train.
/// #[derive(Default)]
/// struct Echo(Counters);
///
/// impl App for Echo {
///     fn counters(&self) -> &Counters {
///         &self.0
///     }
/// }
///
/// impl DatagramApp for Echo {
///     fn on_datagrams<O: DatagramOut>(&mut self, batch: &[Datagram<'_>], _turn: Turn, out: &mut O) {
///         for datagram in batch {
///             out.forward(datagram, datagram.ingress, datagram.source);
///         }
///     }
/// }
///
/// #[derive(Default)]
/// struct Sent(Vec<(SocketAddr, Vec<u8>)>);
///
/// impl DatagramOut for Sent {
///     fn forward(&mut self, datagram: &Datagram<'_>, _egress: PortId, destination: SocketAddr) {
///         self.0.push((destination, datagram.payload.to_vec()));
///     }
///
///     fn send(
///         &mut self,
///         _egress: PortId,
///         destination: SocketAddr,
///         bytes_max: usize,
///         write: impl FnOnce(&mut [u8]) -> usize,
///     ) {
///         let mut bytes = vec![0; bytes_max];
///         let written = write(&mut bytes);
///         bytes.truncate(written);
///         self.0.push((destination, bytes));
///     }
/// }
///
/// let source = SocketAddr::from(([192, 0, 2, 1], 7_007));
/// let datagram = Datagram {
///     payload: Payload::own(b"hello"),
///     segment_bytes: 5,
///     source,
///     destination: SocketAddr::from(([192, 0, 2, 9], 7)),
///     is_broadcast: false,
///     ingress: PortId(0),
///     ts_ns: 0,
/// };
/// let mut sent = Sent::default();
/// Echo::default().on_datagrams(&[datagram], Turn::default(), &mut sent);
/// assert_eq!(sent.0, [(source, b"hello".to_vec())]);
/// ```
pub trait DatagramApp: App {
    /// Looks at a batch of one port, in order of arrival.
    fn on_datagrams<O: DatagramOut>(&mut self, batch: &[Datagram<'_>], turn: Turn, out: &mut O);

    /// Opens and closes ports, and looks at them: behind every [`on_bell`](App::on_bell). An app that
    /// wants some when it begins rings its bell when it is built.
    fn on_ports<P: DatagramPorts>(&mut self, _ports: &mut P, _turn: Turn) {}

    /// Time has passed.
    fn on_tick<O: DatagramOut>(&mut self, _turn: Turn, _out: &mut O) {}

    /// True when the app wants to be called behind the sends of this round ([`on_sent`](Self::on_sent)), which
    /// costs a reading of the clock. Asked behind every round.
    fn awaits_sent(&self) -> bool {
        false
    }

    /// The lane has put on its way what the app sent in this round, by any of its ports: `turn` is the time behind
    /// its last send call (or submission of sends to a ring), not that of a departure from an interface.
    fn on_sent(&mut self, _turn: Turn) {}
}

/// A lane of datagrams: a port is one socket, or one address of a stack.
///
/// Counters: `rx_frames` and `tx_frames` count every datagram of a train; bytes are payload.
pub trait DatagramLane: DatagramPorts {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_finds_what_it_marked_and_every_part_of_it() {
        let (key, bytes) = (PayloadKey::unique(), [1, 2, 3, 4, 5]);
        let payload = key.mark(&bytes, 7);
        assert_eq!((&payload[..], key.find(payload)), (&bytes[..], Some((7, 0))));
        let part = payload.narrowed(1..5).narrowed(2..3);
        assert_eq!((&part[..], key.find(part)), (&[4][..], Some((7, 3))));
        let nothing = payload.narrowed(5..5);
        assert_eq!((nothing.len(), key.find(nothing)), (0, Some((7, 5))));
    }

    #[test]
    fn what_another_lane_marked_and_what_no_lane_marked_is_not_found() {
        let (mine, other) = (PayloadKey::unique(), PayloadKey::unique());
        let bytes = [1, 2, 3];
        for payload in [other.mark(&bytes, 0), Payload::own(&bytes)] {
            assert_eq!(mine.find(payload), None);
            assert_eq!(mine.find(payload.narrowed(1..2)), None);
        }
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn a_part_beyond_the_payload_is_refused() {
        let payload = PayloadKey::unique().mark(&[1, 2, 3], 0).narrowed(0..2);
        let _ = payload.narrowed(0..3);
    }
}
