//! What an app sends, from the call that queues it to the calls that send it.
//!
//! Forwarded bytes are sent from the receive buffers where they lie; new bytes are written into the
//! outbox's own memory. A flush turns trains into messages and sends them, one call per message or one
//! for many.
//!
//! What must always hold: every datagram that was queued is counted as sent or under one drop
//! reason; one that is refused keeps none behind it back. Where the kernel refuses a whole train that
//! it then takes in pieces (EIO; EINVAL of datagrams that fit every path), trains are given up for that
//! port, once and for good, and nothing is lost by it.

mod sender;

use crate::{
    inbox::{Arrival, Inbox},
    sys::{self},
    train::{Memory, PIECES_MAX, Piece, Room, TRAIN_BYTES_MAX, Trains},
};
use laneway_core::{
    Counters, Datagram, DatagramOut, DropReason, PayloadKey, PortId, PortPlan, WhenFull,
};
use laneway_kinds::Places;
use laneway_linux::{Backlog, hears_errors};
use sender::Sender;
use std::{
    io, mem,
    net::{IpAddr, SocketAddr},
    os::fd::{BorrowedFd, OwnedFd},
    rc::Rc,
};

/// New bytes that wait for a flush; when they are full, the outbox flushes at once.
const OWN_BYTES: usize = 256 << 10;
/// What an app may write at once: more than any packet carries, so that too much is seen as such.
const SEND_BYTES_MAX: usize = 1 << 16;
/// Gathering entries of one call: at least what one train can need.
const VECTORS_MAX: usize = 1024;
/// Pieces of all sockets that wait for one flush.
const WAITING_MAX: usize = 16 * PIECES_MAX;
/// Datagrams of one backlog that are sent in a round.
const DRAIN_MAX: usize = 64;
/// Calls that may be repeated because of a signal or of what became of an earlier datagram.
const REPEATS_MAX: usize = 16;

const _: () = assert!(SEND_BYTES_MAX <= OWN_BYTES && SEND_BYTES_MAX > TRAIN_BYTES_MAX);

/// How messages reach the kernel. A seam: tests put a kernel without UDP_SEGMENT here.
pub(crate) trait Transmit {
    /// Sends messages from the first on; gives how many were taken, or the first's error.
    ///
    /// # Safety
    /// Name, vectors, what they point to and control of every message must be readable for their
    /// lengths.
    unsafe fn transmit(
        &mut self,
        socket: BorrowedFd<'_>,
        messages: &mut [libc::mmsghdr],
    ) -> io::Result<usize>;
}

/// The kernel.
pub(crate) struct Kernel;

impl Transmit for Kernel {
    unsafe fn transmit(
        &mut self,
        socket: BorrowedFd<'_>,
        messages: &mut [libc::mmsghdr],
    ) -> io::Result<usize> {
        match messages {
            // SAFETY: the caller's promise.
            [message] => unsafe { sys::send_one(socket, message) }.map(|()| 1),
            // SAFETY: the caller's promise.
            many => unsafe { sys::send_many(socket, many) },
        }
    }
}

/// The way out of one port.
pub(crate) struct Exit {
    socket: Rc<OwnedFd>,
    trains: Trains,
    /// Trains travel whole.
    gso: bool,
    /// Why they no longer do.
    pub(crate) gave_up_gso: Option<i32>,
    /// The socket has no address of its own: an answer must say where it comes from.
    anywhere: bool,
    /// Where all else comes from then, if that is not the kernel's to choose.
    source: Option<IpAddr>,
    has_ports: bool,
    /// Errors of earlier datagrams may come with a send.
    hears_errors: bool,
    /// What the kernel did not take, where the oldest of it goes first.
    backlog: Option<Backlog>,
    /// It is listed among those whose backlog is not empty.
    is_listed: bool,
    /// Sent and dropped on the way out.
    pub(crate) counters: Counters,
}

impl Exit {
    pub(crate) fn new(
        socket: Rc<OwnedFd>,
        gso: bool,
        (anywhere, source): (bool, Option<IpAddr>),
        has_ports: bool,
    ) -> Exit {
        Exit {
            socket,
            trains: Trains::new(gso),
            gso,
            gave_up_gso: None,
            anywhere,
            source,
            has_ports,
            hears_errors: false,
            backlog: None,
            is_listed: false,
            counters: Counters::default(),
        }
    }
}

impl Exit {
    /// As a port's plan has it.
    pub(crate) fn with_plan(mut self, plan: &PortPlan) -> Exit {
        self.hears_errors = hears_errors(plan);
        if let WhenFull::Oldest { bytes } = plan.when_full {
            self.backlog = Some(Backlog::new(bytes));
        }
        self
    }

    /// Drops what waits to be sent.
    pub(crate) fn drop_unsent(&mut self) {
        if let Some(backlog) = &mut self.backlog {
            backlog.drop_unsent(&mut self.counters);
        }
    }

    fn is_delayed(&self) -> bool {
        self.backlog.as_ref().is_some_and(|backlog| !backlog.is_empty())
    }
}

/// The ways out of all ports of a worker.
pub(crate) struct Outbox<T> {
    /// In the same places as the ports.
    exits: Places<Exit>,
    /// Those for which something waits.
    waiting: Vec<PortId>,
    /// Those whose backlog is not empty.
    delayed: Vec<PortId>,
    /// How many pieces wait.
    pieces: usize,
    /// Room of exits for which nothing waits now.
    rooms: Vec<Room>,
    /// Exits that have given up trains and whose ports have not been notified.
    gave_up: Vec<PortId>,
    own: Vec<u8>,
    own_used: usize,
    sender: Sender,
    transmit: T,
    /// Marks a received payload with its arrival's place in the inbox.
    pub(crate) key: PayloadKey,
}

impl<T: Transmit> Outbox<T> {
    /// Sends up to `messages` at a call.
    pub(crate) fn new(messages: usize, transmit: T) -> Outbox<T> {
        Outbox {
            exits: Places::default(),
            waiting: Vec::new(),
            delayed: Vec::new(),
            pieces: 0,
            rooms: Vec::new(),
            gave_up: Vec::new(),
            own: vec![0; OWN_BYTES],
            own_used: 0,
            sender: Sender::new(messages),
            transmit,
            key: PayloadKey::unique(),
        }
    }

    /// Adds the exit of the next port.
    pub(crate) fn open(&mut self, exit: Exit) -> PortId {
        self.exits.insert(exit)
    }

    /// Takes the exit of a port away.
    pub(crate) fn close(&mut self, port: PortId) -> Option<Exit> {
        let exit = self.exits.remove(port)?;
        self.exits.free(port);
        Some(exit)
    }

    pub(crate) fn exit(&self, port: PortId) -> Option<&Exit> {
        self.exits.get(port)
    }

    /// A port whose exit has given up trains since this was asked.
    pub(crate) fn gave_up_gso(&mut self) -> Option<(PortId, i32)> {
        let port = self.gave_up.pop()?;
        Some((port, self.exits.get(port)?.gave_up_gso?))
    }

    /// Sends all that waits. `received` is the memory that forwarded pieces lie in.
    pub(crate) fn flush(&mut self, received: &[u8]) {
        for port in self.waiting.drain(..) {
            let exit = self.exits.get_mut(port).expect("an exit for which something waits");
            let had_trains = exit.gave_up_gso.is_none();
            self.sender.flush(exit, [received, &self.own], &mut self.transmit);
            self.rooms.push(exit.trains.leave());
            if had_trains && exit.gave_up_gso.is_some() {
                self.gave_up.push(port);
            }
            if exit.is_delayed() && !mem::replace(&mut exit.is_listed, true) {
                self.delayed.push(port);
            }
        }
        self.pieces = 0;
        self.own_used = 0;
    }

    /// Drops what waits to be sent by any exit.
    pub(crate) fn drop_unsent(&mut self) {
        let Outbox { delayed, exits, .. } = self;
        for port in delayed.drain(..) {
            if let Some(exit) = exits.get_mut(port) {
                exit.drop_unsent();
                exit.is_listed = false;
            }
        }
    }

    /// True while something waits that the kernel did not take.
    pub(crate) fn is_delayed(&self) -> bool {
        !self.delayed.is_empty()
    }

    /// Offers the kernel again what it did not take.
    pub(crate) fn retry(&mut self) {
        let Outbox { delayed, exits, sender, transmit, .. } = self;
        delayed.retain(|port| {
            let Some(exit) = exits.get_mut(*port) else { return false };
            sender.drain(exit, transmit);
            exit.is_listed = exit.is_delayed();
            exit.is_listed
        });
    }

    /// Room for `bytes` new bytes, which are at most [`OWN_BYTES`].
    fn room(&mut self, bytes: usize, received: &[u8]) -> &mut [u8] {
        if self.own.len() - self.own_used < bytes {
            self.flush(received);
        }
        &mut self.own[self.own_used..self.own_used + bytes]
    }

    /// The exit of a port that was admitted.
    fn at(&mut self, egress: PortId) -> &mut Exit {
        self.exits.get_mut(egress).expect("an exit that was admitted")
    }

    /// Queues a piece for `exit`, after making room for it.
    fn push(
        &mut self,
        egress: PortId,
        piece: Piece,
        segment_bytes: usize,
        destination: SocketAddr,
        from: Option<IpAddr>,
        received: &[u8],
    ) {
        if self.pieces == WAITING_MAX || self.at(egress).trains.is_full() {
            // The piece's own bytes stay where they are until they leave: nothing is written between.
            self.flush(received);
        }
        if piece.memory == Memory::Own {
            self.own_used = piece.at + piece.bytes;
        }
        self.pieces += 1;
        if self.at(egress).trains.is_empty() {
            let room = self.rooms.pop().unwrap_or_default();
            self.at(egress).trains.enter(room);
            self.waiting.push(egress);
        }
        self.at(egress).trains.push(piece, segment_bytes, destination, from);
    }
}

/// Where an app puts what it sends, during one call of the app.
pub(crate) struct Out<'a, T> {
    pub(crate) outbox: &'a mut Outbox<T>,
    /// The receive buffers, and what arrived in them, when the app is shown a batch.
    pub(crate) received: &'a [u8],
    pub(crate) arrivals: &'a [Arrival],
    pub(crate) ingress: Option<PortId>,
    /// Where the last answered arrival was: apps answer in order.
    pub(crate) answered: usize,
    /// Datagrams for ports that are not there.
    pub(crate) no_port: u64,
}

impl<'a, T: Transmit> Out<'a, T> {
    /// During a batch of `ingress`.
    pub(crate) fn of_batch(
        outbox: &'a mut Outbox<T>,
        inbox: &'a Inbox,
        ingress: PortId,
    ) -> Out<'a, T> {
        Out {
            outbox,
            received: inbox.memory(),
            arrivals: inbox.arrivals(),
            ingress: Some(ingress),
            answered: 0,
            no_port: 0,
        }
    }

    /// During a tick.
    pub(crate) fn of_tick(outbox: &'a mut Outbox<T>) -> Out<'a, T> {
        Out { outbox, received: &[], arrivals: &[], ingress: None, answered: 0, no_port: 0 }
    }

    /// Sends all that waits; gives how many datagrams named a port that is not there.
    pub(crate) fn finish(self) -> u64 {
        self.outbox.flush(self.received);
        self.no_port
    }

    /// Where what goes to `destination` comes from, where there is a choice: the port's own, or what
    /// `destination` wrote to, if it did in this batch.
    fn from(&mut self, egress: PortId, destination: SocketAddr) -> Option<IpAddr> {
        let exit = self.outbox.exit(egress).filter(|exit| exit.anywhere)?;
        let source = exit.source;
        if self.ingress != Some(egress) {
            return source;
        }
        let later = self.answered..self.arrivals.len();
        let found = later.chain(0..self.answered).find(|&i| self.arrivals[i].source == destination);
        let Some(found) = found else { return source };
        self.answered = found;
        source.or(self.arrivals[found].answer_from)
    }

    /// The port's exit, if there is one that `datagrams` datagrams to `destination` can take.
    fn admits(&mut self, egress: PortId, destination: SocketAddr, datagrams: u64) -> bool {
        let Some(exit) = self.outbox.exits.get_mut(egress) else {
            self.no_port += datagrams;
            return false;
        };
        // The kernel answers EINVAL, which must not be taken for a fault of trains.
        let refused = exit.has_ports && destination.port() == 0;
        if refused {
            exit.counters.drop_many(DropReason::TxRefused, datagrams);
        }
        !refused
    }
}

impl<T: Transmit> DatagramOut for Out<'_, T> {
    fn forward(&mut self, datagram: &Datagram<'_>, egress: PortId, destination: SocketAddr) {
        let Datagram { payload, segment_bytes, .. } = *datagram;
        let segment_bytes = if segment_bytes == 0 { payload.len() } else { segment_bytes };
        let datagrams = payload.len().div_ceil(segment_bytes.max(1)).max(1) as u64;
        if !self.admits(egress, destination, datagrams) {
            return;
        }
        let from = self.from(egress, destination);
        let piece = if let Some((arrival, offset)) = self.outbox.key.find(payload) {
            let at = self.arrivals[arrival as usize].at + offset;
            Piece { memory: Memory::Received, at, bytes: payload.len() }
        } else if payload.len() <= OWN_BYTES {
            // Bytes that the lane did not receive must be kept until the flush.
            self.outbox.room(payload.len(), self.received).copy_from_slice(&payload);
            self.outbox.at(egress).counters.copies += 1;
            Piece { memory: Memory::Own, at: self.outbox.own_used, bytes: payload.len() }
        } else {
            let counters = &mut self.outbox.at(egress).counters;
            counters.drop_many(DropReason::TxTooLong, datagrams);
            return;
        };
        self.outbox.push(egress, piece, segment_bytes, destination, from, self.received);
    }

    fn send(
        &mut self,
        egress: PortId,
        destination: SocketAddr,
        bytes_max: usize,
        write: impl FnOnce(&mut [u8]) -> usize,
    ) {
        if !self.admits(egress, destination, 1) {
            return;
        }
        let from = self.from(egress, destination);
        let room = self.outbox.room(bytes_max.min(SEND_BYTES_MAX), self.received);
        let bytes = write(room).min(room.len());
        let piece = Piece { memory: Memory::Own, at: self.outbox.own_used, bytes };
        self.outbox.push(egress, piece, bytes, destination, from, self.received);
    }
}

#[cfg(test)]
mod tests;
