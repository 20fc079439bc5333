//! What an app sends in a round, and by which way: a train of the port's, a received buffer forwarded from where it
//! lies, or the backlog of a full output.

use super::{Core, count};
use crate::trains::{Goal, Hold, SLOT_BYTES};
use laneway_core::{Counters, Datagram, DatagramOut, DropReason, Payload, PortId};
use std::{mem, net::SocketAddr};

/// How a datagram leaves.
pub(super) enum Way {
    /// In a slot, at once.
    Ring(Goal),
    /// Through the queue of its port.
    Queue,
}

/// Where the app puts what it sends during one call.
pub(super) struct Out<'a> {
    pub(super) core: &'a mut Core,
    /// The port whose batch the app sees.
    pub(super) ingress: Option<PortId>,
}

impl Out<'_> {
    pub(super) fn no_port(&mut self, datagrams: usize) {
        let port = self.ingress.and_then(|port| self.core.ports.get_mut(port));
        let counters = port.map_or(&mut self.core.common, |port| &mut port.counters);
        counters.drop_many(DropReason::TxNoPort, datagrams as u64);
    }

    /// The counters of a port that is there.
    pub(super) fn counted(&mut self, egress: PortId) -> &mut Counters {
        &mut self.core.ports.get_mut(egress).expect("it was found before").counters
    }

    /// The buffer that a payload of the batch lies in.
    pub(super) fn hold_of(&self, payload: Payload<'_>) -> Option<Hold> {
        let (buffer, _) = self.core.key.find(payload)?;
        Some(Hold { buffer: buffer as u16 })
    }

    /// Sends one piece (a datagram, or a train of `segment_bytes`) from where it lies.
    pub(super) fn refer(
        &mut self,
        goal: Goal,
        piece: &[u8],
        segment_bytes: usize,
        hold: Hold,
    ) -> bool {
        self.core.make_room();
        let start = piece.as_ptr().cast_mut();
        // SAFETY: the bytes lie in buffer `hold` of the batch, memory that the ring keeps: only `read`
        // has the key that their token was found by, and it marks a buffer's own bytes. The buffer is
        // ours, so the kernel does not write it, and the hold taken below keeps it ours until the
        // message has left. Messages are only read.
        let taken =
            unsafe { self.core.trains.refer(goal, (start, piece.len()), segment_bytes, hold) };
        if taken {
            self.core.holds[usize::from(hold.buffer)] += 1;
        }
        taken
    }

    /// Puts a copy of each datagram of a train into the queue of a port.
    pub(super) fn keep(
        &mut self,
        egress: PortId,
        payload: &[u8],
        segment_bytes: usize,
        destination: SocketAddr,
    ) {
        if payload.is_empty() {
            self.core.keep(egress, payload, destination);
        }
        for datagram in payload.chunks(segment_bytes) {
            self.core.keep(egress, datagram, destination);
        }
        self.counted(egress).copies += 1;
    }

    /// Sends a copy of one datagram.
    pub(super) fn copy(&mut self, goal: Goal, datagram: &[u8]) -> bool {
        self.core.make_room();
        self.core.trains.write(goal, datagram.len(), |room| {
            let bytes = datagram.len().min(room.len());
            room[..bytes].copy_from_slice(&datagram[..bytes]);
            bytes
        })
    }
}

/// Datagrams of a forwarded train that go into one piece: the kernel's bound on a train. (A longer
/// one can only be made by hand.)
pub(super) const TRAIN_PIECE_SEGMENTS: usize = 64;

impl DatagramOut for Out<'_> {
    fn forward(&mut self, datagram: &Datagram<'_>, egress: PortId, destination: SocketAddr) {
        let payload = datagram.payload;
        let segment_bytes = datagram.segment_bytes.clamp(1, payload.len().max(1));
        let goal = match self.core.way(egress, destination) {
            Some(Way::Ring(goal)) => goal,
            Some(Way::Queue) => return self.keep(egress, &payload, segment_bytes, destination),
            None => return self.no_port(count(payload.len(), segment_bytes)),
        };
        let hold = if payload.is_empty() { None } else { self.hold_of(payload) };
        let fits = segment_bytes <= goal.segment_bytes_max;
        let mut refused = 0;
        match hold {
            Some(hold) => {
                let piece_bytes =
                    if fits { TRAIN_PIECE_SEGMENTS * segment_bytes } else { segment_bytes };
                for piece in payload.chunks(piece_bytes) {
                    let segment = segment_bytes.min(piece.len());
                    if !self.refer(goal, piece, segment, hold) {
                        refused += count(piece.len(), segment_bytes);
                    }
                }
            }
            None if payload.is_empty() => refused += usize::from(!self.copy(goal, &payload)),
            // Bytes that the lane did not receive: copied, and counted as that.
            None => {
                for piece in payload.chunks(segment_bytes) {
                    refused += usize::from(!self.copy(goal, piece));
                }
                self.counted(egress).copies += 1;
            }
        }
        self.counted(egress).drop_many(DropReason::TxRefused, refused as u64);
    }

    fn send(
        &mut self,
        egress: PortId,
        destination: SocketAddr,
        bytes_max: usize,
        write: impl FnOnce(&mut [u8]) -> usize,
    ) {
        let goal = match self.core.way(egress, destination) {
            Some(Way::Ring(goal)) => goal,
            Some(Way::Queue) => {
                let mut scratch = mem::take(&mut self.core.scratch);
                let room = &mut scratch[..bytes_max.min(SLOT_BYTES)];
                let bytes = write(room).min(room.len());
                self.core.keep(egress, &room[..bytes], destination);
                self.core.scratch = scratch;
                return;
            }
            None => return self.no_port(1),
        };
        if !self.core.make_room() || !self.core.trains.write(goal, bytes_max, write) {
            self.counted(egress).drop_one(DropReason::TxRefused);
        }
    }
}
