//! The app that the datagram suite runs: it keeps what it saw and answers as configured.
//!
//! What must always hold: it checks on every call what the contract promises about a batch (one
//! port, entries with a sane segment size, time that does not go back), so that every behaviour
//! checks it.

use super::TICKS_WITHOUT_BELL_MAX;
use laneway_core::{
    App, Counters, Datagram, DatagramApp, DatagramOut, Payload, PayloadKey, PortId, Turn,
};
use std::{
    net::SocketAddr,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// What the probe does with every datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answer {
    /// Looks.
    #[default]
    Nothing,
    /// Sends the bytes back to the sender as new bytes, datagram by datagram of a train.
    Reply,
    /// Forwards the entry, uncut, to its sender.
    ForwardBack,
    /// Forwards the entry, uncut, through a port to an address.
    ForwardTo(PortId, SocketAddr),
    /// Forwards to its sender, as a part of the entry, every datagram of it without its first three
    /// and last two bytes.
    ForwardParts,
    /// Forwards to its sender what has the entry's bytes backwards and lies elsewhere: the app's own
    /// bytes for one entry, marked by a lane that does not exist for the next.
    ForwardForeign,
}

/// The part of a datagram of `bytes` bytes that [`Answer::ForwardParts`] forwards.
pub(super) fn middle(bytes: usize) -> Range<usize> {
    3..bytes - 2
}

/// One entry of a batch, as the probe saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The bytes of the datagram or train.
    pub payload: Vec<u8>,
    /// Bytes per datagram of a train.
    pub segment_bytes: usize,
    /// Its sender.
    pub source: SocketAddr,
    /// Its destination.
    pub destination: SocketAddr,
    /// That is a broadcast address.
    pub is_broadcast: bool,
    /// The port that received it.
    pub ingress: PortId,
    /// When, in the lane's clock domain.
    pub ts_ns: u64,
}

impl Seen {
    /// The datagrams of the entry.
    pub fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        // A datagram without payload is one datagram, although it has no chunk.
        let empty = self.payload.is_empty().then_some(&self.payload[..]);
        empty.into_iter().chain(self.payload.chunks(self.segment_bytes.max(1)))
    }
}

/// What the probe sends on the next tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TickSend {
    /// Through which port.
    pub egress: PortId,
    /// Its destination.
    pub destination: SocketAddr,
    /// What.
    pub payload: Vec<u8>,
    /// How many bytes to ask for; at least the payload's.
    pub bytes_max: usize,
}

impl TickSend {
    /// Asks for just the payload's bytes.
    pub fn exact(egress: PortId, destination: SocketAddr, payload: Vec<u8>) -> TickSend {
        TickSend { egress, destination, bytes_max: payload.len(), payload }
    }
}

/// An app that keeps what it saw.
#[derive(Debug, Default)]
pub struct DatagramProbe {
    /// What to do with every datagram.
    pub answer: Answer,
    /// Every entry of every batch, in order.
    pub seen: Vec<Seen>,
    /// Entries of each batch.
    pub batches: Vec<usize>,
    /// Sent, and taken out, on the next tick.
    pub on_tick: Vec<TickSend>,
    /// Sends for which the lane gave fewer bytes than asked, so that nothing was written.
    pub shortened: usize,
    /// Ticks, also to be read by another thread while the worker runs.
    pub ticks: Arc<AtomicUsize>,
    /// Times `on_stop` was called.
    pub stops: usize,
    /// Times `on_bell` was called.
    pub bells: usize,
    /// Sends on a tick only behind a bell, and then wants to end.
    pub until_bell: bool,
    now_ns: u64,
    counters: Counters,
}

impl DatagramProbe {
    /// A probe that answers like this.
    pub fn new(answer: Answer) -> DatagramProbe {
        DatagramProbe { answer, ..DatagramProbe::default() }
    }

    /// Every datagram seen, trains cut.
    pub fn datagrams(&self) -> Vec<&[u8]> {
        self.seen.iter().flat_map(Seen::datagrams).collect()
    }

    fn time_passes(&mut self, turn: Turn) {
        assert!(turn.now_ns >= self.now_ns, "time went back from {} ns", self.now_ns);
        self.now_ns = turn.now_ns;
    }
}

impl App for DatagramProbe {
    fn on_bell(&mut self, turn: Turn) {
        self.time_passes(turn);
        self.bells += 1;
    }

    fn wants_stop(&self) -> bool {
        let ticks = self.ticks.load(Ordering::SeqCst);
        self.until_bell && (self.bells > 0 || ticks > TICKS_WITHOUT_BELL_MAX)
    }

    fn on_stop(&mut self, _turn: Turn) {
        self.stops += 1;
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl DatagramApp for DatagramProbe {
    fn on_datagrams<O: DatagramOut>(&mut self, batch: &[Datagram<'_>], turn: Turn, out: &mut O) {
        assert!(!batch.is_empty(), "an empty batch is not shown");
        self.time_passes(turn);
        self.batches.push(batch.len());
        for datagram in batch {
            assert_eq!(datagram.ingress, batch[0].ingress, "a batch is of one port");
            assert!(
                datagram.segment_bytes <= datagram.payload.len(),
                "a segment of {} bytes in {}",
                datagram.segment_bytes,
                datagram.payload.len()
            );
            assert!(
                datagram.segment_bytes > 0 || datagram.payload.is_empty(),
                "a train of {} bytes without a segment size",
                datagram.payload.len()
            );
            self.seen.push(Seen {
                payload: datagram.payload.to_vec(),
                segment_bytes: datagram.segment_bytes,
                source: datagram.source,
                destination: datagram.destination,
                is_broadcast: datagram.is_broadcast,
                ingress: datagram.ingress,
                ts_ns: datagram.ts_ns,
            });
            match self.answer {
                Answer::Nothing => {}
                Answer::ForwardBack => out.forward(datagram, datagram.ingress, datagram.source),
                Answer::ForwardTo(egress, destination) => {
                    out.forward(datagram, egress, destination);
                }
                Answer::ForwardParts => {
                    let (whole, segment_bytes) = (datagram.payload, datagram.segment_bytes.max(1));
                    for at in (0..whole.len()).step_by(segment_bytes) {
                        let one = whole.narrowed(at..whole.len().min(at + segment_bytes));
                        let payload = one.narrowed(middle(one.len()));
                        let part = Datagram { payload, segment_bytes: payload.len(), ..*datagram };
                        out.forward(&part, datagram.ingress, datagram.source);
                    }
                }
                Answer::ForwardForeign => {
                    let backwards: Vec<u8> = datagram.payload.iter().rev().copied().collect();
                    let payload = match self.seen.len() % 2 {
                        0 => Payload::own(&backwards),
                        _ => PayloadKey::unique().mark(&backwards, 0),
                    };
                    let foreign = Datagram { payload, ..*datagram };
                    out.forward(&foreign, datagram.ingress, datagram.source);
                }
                Answer::Reply => {
                    let seen = self.seen.last().expect("just pushed");
                    for bytes in seen.datagrams() {
                        out.send(datagram.ingress, datagram.source, bytes.len(), |room| {
                            assert!(room.len() <= bytes.len(), "more room than asked for");
                            room.copy_from_slice(&bytes[..room.len()]);
                            room.len()
                        });
                    }
                }
            }
        }
    }

    fn on_tick<O: DatagramOut>(&mut self, turn: Turn, out: &mut O) {
        self.time_passes(turn);
        self.ticks.fetch_add(1, Ordering::SeqCst);
        if self.until_bell && self.bells == 0 {
            return;
        }
        for send in self.on_tick.drain(..) {
            let shortened = &mut self.shortened;
            out.send(send.egress, send.destination, send.bytes_max, |room| {
                assert!(room.len() <= send.bytes_max, "more room than asked for");
                if room.len() < send.payload.len() {
                    *shortened += 1;
                    return 0;
                }
                room[..send.payload.len()].copy_from_slice(&send.payload);
                send.payload.len()
            });
        }
    }
}
