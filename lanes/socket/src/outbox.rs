//! What an app sends, from the call that queues it to the calls that send it.
//!
//! Forwarded bytes are sent from the receive buffers where they lie; new bytes are written into the
//! outbox's own memory. A flush turns trains into messages and sends them, one call per message or one
//! for many.
//!
//! What must always hold: every datagram that was queued is counted as sent or under one drop
//! reason; one that is refused keeps none behind it back. Where the kernel refuses a whole train that
//! it then takes in pieces (EIO, EINVAL), trains are given up for that port, once and for good, and
//! nothing is lost by it.

use crate::{
    control::Control,
    inbox::{Arrival, Inbox},
    sys::{self, Name},
    train::{Cursor, Memory, Message, PIECES_MAX, Piece, Room, TRAIN_BYTES_MAX, Trains, Travels},
};
use laneway_core::{
    Counters, Datagram, DatagramOut, DropReason, PayloadKey, PortId, PortPlan, WhenFull,
};
use laneway_kinds::Places;
use laneway_linux::{Backlog, Delayed, hears_errors};
use std::{
    io, mem,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
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

    /// What was sent and dropped; what waits will not leave if the run ends here.
    pub(crate) fn counters(&self) -> Counters {
        let mut counters = self.counters.clone();
        if let Some(backlog) = &self.backlog {
            backlog.count_unsent(&mut counters);
        }
        counters
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
    /// Exits that have given up trains and whose ports have not been told.
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
    /// The receive buffers, and what came in them, when the app is shown a batch.
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

/// The headers of one send call.
struct Sender {
    messages_max: usize,
    names: Vec<Name>,
    controls: Vec<Control>,
    vectors: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
    planned: Vec<Message>,
}

impl Sender {
    fn new(messages_max: usize) -> Sender {
        let messages_max = messages_max.clamp(1, PIECES_MAX);
        Sender {
            messages_max,
            names: Vec::with_capacity(messages_max),
            controls: Vec::with_capacity(messages_max),
            vectors: Vec::with_capacity(VECTORS_MAX),
            messages: Vec::with_capacity(messages_max),
            planned: Vec::with_capacity(messages_max),
        }
    }

    /// Sends everything that waits at `exit`.
    fn flush(&mut self, exit: &mut Exit, memories: [&[u8]; 2], transmit: &mut impl Transmit) {
        let mut cursor = Cursor::default();
        let mut repeats = 0;
        if exit.is_delayed() {
            // What came before goes first.
            self.drain(exit, transmit);
            if exit.is_delayed() {
                return keep(exit, cursor, memories);
            }
        }
        loop {
            self.plan(exit, cursor, memories);
            if self.planned.is_empty() {
                break;
            }
            // SAFETY: `plan` aimed every header at names, controls and vectors of this sender and at
            // bytes of `memories`, all of which outlive the call.
            let sent = unsafe { transmit.transmit(exit.socket.as_fd(), &mut self.messages) };
            match sent.map_err(|e| e.raw_os_error().unwrap_or_default()) {
                Ok(taken) => {
                    for message in &self.planned[..taken] {
                        exit.counters.tx_frames += message.segments as u64;
                        exit.counters.tx_bytes += message.bytes as u64;
                        cursor = message.next;
                        let train = exit.trains.train_mut(message);
                        if let Travels::OnTrial(error) = train.travels {
                            train.travels = Travels::Cut;
                            exit.gso = false;
                            exit.gave_up_gso.get_or_insert(error);
                        }
                    }
                }
                // A signal, or what became of a datagram that left earlier.
                Err(libc::EINTR | libc::ECONNREFUSED) if repeats < REPEATS_MAX => repeats += 1,
                Err(error) if exit.hears_errors && is_late(error) && repeats < REPEATS_MAX => {
                    repeats += 1;
                }
                Err(error @ (libc::EAGAIN | libc::ENOBUFS)) if exit.backlog.is_some() => {
                    exit.backlog.iter_mut().for_each(|backlog| backlog.refused(why_dropped(error)));
                    return keep(exit, cursor, memories);
                }
                Err(error) => {
                    let message = &self.planned[0];
                    let train = exit.trains.train_mut(message);
                    match error {
                        _ if message.segments == 1 => {
                            exit.counters.drop_one(why_dropped(error));
                            cursor = message.next;
                        }
                        // Its datagrams may be as long as the path takes only when cut there.
                        libc::EMSGSIZE => train.travels = Travels::Cut,
                        libc::EIO | libc::EINVAL => train.travels = Travels::OnTrial(error),
                        _ => {
                            let datagrams = message.segments as u64;
                            exit.counters.drop_many(why_dropped(error), datagrams);
                            cursor = message.next;
                        }
                    }
                }
            }
        }
        if exit.gave_up_gso.is_some() {
            exit.trains.stop_merging();
        }
    }

    /// Sends what waits in the backlog, until the kernel takes no more.
    fn drain(&mut self, exit: &mut Exit, transmit: &mut impl Transmit) {
        let mut repeats = 0;
        let Exit { backlog: Some(backlog), counters, socket, hears_errors, .. } = exit else {
            return;
        };
        for _ in 0..DRAIN_MAX {
            let Some(item) = backlog.get(0) else { break };
            self.plan_item(item);
            // SAFETY: `plan_item` aimed the header at name, control and vector of this sender and at the
            // item's bytes, all of which outlive the call.
            let sent = unsafe { transmit.transmit(socket.as_fd(), &mut self.messages) };
            match sent.map_err(|e| e.raw_os_error().unwrap_or_default()) {
                Ok(_) => {
                    counters.tx_frames += 1;
                    counters.tx_bytes += item.payload.len() as u64;
                    backlog.pop();
                }
                Err(error @ (libc::EAGAIN | libc::ENOBUFS)) => {
                    return backlog.refused(why_dropped(error));
                }
                Err(libc::EINTR | libc::ECONNREFUSED) if repeats < REPEATS_MAX => repeats += 1,
                Err(error) if *hears_errors && is_late(error) && repeats < REPEATS_MAX => {
                    repeats += 1
                }
                Err(error) => {
                    counters.drop_one(why_dropped(error));
                    backlog.pop();
                }
            }
        }
    }

    /// Writes the header of one datagram of a backlog.
    fn plan_item(&mut self, item: &Delayed) {
        let mut control = Control::EMPTY;
        let control_bytes = control.write(None, item.from);
        let name = Name::from(item.destination);
        let name_bytes = name.bytes();
        let iov_base = item.payload.as_ptr().cast_mut().cast();
        self.names.clear();
        self.names.push(name);
        self.controls.clear();
        self.controls.push(control);
        self.vectors.clear();
        self.vectors.push(libc::iovec { iov_base, iov_len: item.payload.len() });
        let msg_control = match control_bytes {
            0 => std::ptr::null_mut(),
            _ => self.controls.as_mut_ptr().cast(),
        };
        self.messages.clear();
        self.messages.push(libc::mmsghdr {
            msg_hdr: libc::msghdr {
                msg_name: self.names.as_mut_ptr().cast(),
                msg_namelen: name_bytes,
                msg_iov: self.vectors.as_mut_ptr(),
                msg_iovlen: 1,
                msg_control,
                msg_controllen: control_bytes as _,
                ..sys::EMPTY_HEADER
            },
            msg_len: 0,
        });
    }

    /// Writes the headers of the messages from `cursor` on, as many as one call takes.
    fn plan(&mut self, exit: &Exit, mut cursor: Cursor, memories: [&[u8]; 2]) {
        self.names.clear();
        self.controls.clear();
        self.vectors.clear();
        self.messages.clear();
        self.planned.clear();
        while self.planned.len() < self.messages_max
            && let Some(message) = exit.trains.message(cursor, exit.gso)
        {
            let train = exit.trains.train(&message);
            let first_vector = self.vectors.len();
            if first_vector + message.pieces.len() > VECTORS_MAX {
                break;
            }
            self.gather(&exit.trains, &message, memories);
            let vectors = self.vectors.len() - first_vector;
            let mut control = Control::EMPTY;
            let segment_bytes = (message.segments > 1).then_some(train.segment_bytes);
            let control_bytes = control.write(segment_bytes, train.from);
            let name = Name::from(train.destination);
            self.messages.push(libc::mmsghdr {
                msg_hdr: libc::msghdr {
                    msg_namelen: name.bytes(),
                    msg_iovlen: vectors as _,
                    msg_controllen: control_bytes as _,
                    ..sys::EMPTY_HEADER
                },
                msg_len: 0,
            });
            self.names.push(name);
            self.controls.push(control);
            cursor = message.next;
            self.planned.push(message);
        }
        // Pointers last: nothing is pushed any more.
        let (name, control) = (self.names.as_mut_ptr(), self.controls.as_mut_ptr());
        let mut vector = self.vectors.as_mut_ptr();
        for (i, message) in self.messages.iter_mut().enumerate() {
            let header = &mut message.msg_hdr;
            header.msg_name = name.wrapping_add(i).cast();
            header.msg_iov = vector;
            vector = vector.wrapping_add(header.msg_iovlen);
            if header.msg_controllen > 0 {
                header.msg_control = control.wrapping_add(i).cast();
            }
        }
    }

    /// Adds the vectors of one message; neighbouring pieces share one.
    fn gather(&mut self, trains: &Trains, message: &Message, memories: [&[u8]; 2]) {
        let mut left = message.bytes;
        let mut offset = message.offset;
        let first_vector = self.vectors.len();
        for piece in trains.pieces(message) {
            let memory = memories[usize::from(piece.memory == Memory::Own)];
            let bytes = left.min(piece.bytes - offset);
            let place = &memory[piece.at + offset..][..bytes];
            let base = place.as_ptr().cast_mut();
            (left, offset) = (left - bytes, 0);
            match self.vectors[first_vector..].last_mut() {
                Some(last)
                    if last.iov_base.cast::<u8>().wrapping_add(last.iov_len) == base
                        && piece.memory == Memory::Own =>
                {
                    last.iov_len += bytes;
                }
                _ => self.vectors.push(libc::iovec { iov_base: base.cast(), iov_len: bytes }),
            }
        }
    }
}

/// Puts the datagrams from `cursor` on into the backlog.
fn keep(exit: &mut Exit, mut cursor: Cursor, memories: [&[u8]; 2]) {
    let Exit { backlog: Some(backlog), trains, counters, .. } = exit else { return };
    while let Some(message) = trains.message(cursor, false) {
        cursor = message.next;
        let train = trains.train(&message);
        let piece = trains.pieces(&message)[0];
        let memory = memories[usize::from(piece.memory == Memory::Own)];
        let payload = &memory[piece.at + message.offset..][..message.bytes];
        backlog.push(payload, train.destination, train.from);
        backlog.trim(counters);
    }
}

/// True for errors that may tell of a datagram that left earlier.
fn is_late(error: i32) -> bool {
    matches!(error, libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EPROTO | libc::ENOPROTOOPT)
}

fn why_dropped(error: i32) -> DropReason {
    match error {
        libc::EAGAIN => DropReason::TxSocketFull,
        libc::ENOBUFS => DropReason::TxInterfaceFull,
        libc::EMSGSIZE => DropReason::TxTooLong,
        libc::ENETUNREACH | libc::EHOSTUNREACH => DropReason::NoRoute,
        // The interface that the socket is kept to is down, or no more.
        libc::ENETDOWN | libc::ENODEV | libc::ENXIO => DropReason::NoRoute,
        _ => DropReason::TxRefused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_core::Payload;
    use std::{cell::RefCell, net::UdpSocket};

    const PORT: PortId = PortId(0);

    /// A kernel that refuses what it is told to, and keeps the datagrams it took.
    #[derive(Default)]
    struct Fussy {
        /// Trains are refused with this error.
        trains: Option<i32>,
        /// Datagrams to this UDP port are refused, alone or in trains, with this error.
        port: Option<(u16, i32)>,
        /// One call is interrupted before anything is taken.
        interrupted: bool,
        took: Rc<RefCell<Took>>,
    }

    #[derive(Default)]
    struct Took {
        /// Destination port and bytes.
        datagrams: Vec<(u16, Vec<u8>)>,
        calls: usize,
    }

    impl Transmit for Fussy {
        unsafe fn transmit(
            &mut self,
            _socket: BorrowedFd<'_>,
            messages: &mut [libc::mmsghdr],
        ) -> io::Result<usize> {
            let mut took = self.took.borrow_mut();
            took.calls += 1;
            if mem::take(&mut self.interrupted) {
                return Err(io::Error::from_raw_os_error(libc::EINTR));
            }
            for (i, message) in messages.iter().enumerate() {
                let header = &message.msg_hdr;
                // SAFETY: the caller promises a name of at least an IPv4 address.
                let name = unsafe { *header.msg_name.cast::<libc::sockaddr_in>() };
                let port = u16::from_be(name.sin_port);
                let mut bytes = Vec::new();
                for v in 0..header.msg_iovlen {
                    // SAFETY: the caller promises so many vectors.
                    let vector = unsafe { *header.msg_iov.wrapping_add(v) };
                    // SAFETY: the caller promises that they are readable.
                    bytes.extend_from_slice(unsafe {
                        std::slice::from_raw_parts(vector.iov_base.cast::<u8>(), vector.iov_len)
                    });
                }
                let segment = if header.msg_controllen == 0 {
                    None
                } else {
                    // SAFETY: the only control here is a segment size: header, then two bytes.
                    let at = unsafe { header.msg_control.cast::<u8>().add(16) };
                    // SAFETY: as above; the bytes may lie at any address.
                    Some(usize::from(unsafe { at.cast::<u16>().read_unaligned() }))
                };
                let refusal = match (self.port, segment, self.trains) {
                    (Some((refused, error)), ..) if refused == port => Some(error),
                    (_, Some(_), Some(error)) => Some(error),
                    _ => None,
                };
                match refusal {
                    Some(error) if i == 0 => return Err(io::Error::from_raw_os_error(error)),
                    Some(_) => return Ok(i),
                    None => {}
                }
                let pieces = bytes.chunks(segment.unwrap_or(bytes.len()).max(1));
                took.datagrams.extend(pieces.map(|piece| (port, piece.to_vec())));
            }
            Ok(messages.len())
        }
    }

    fn outbox(messages: usize, kernel: Fussy) -> (Outbox<Fussy>, Rc<RefCell<Took>>) {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let took = kernel.took.clone();
        let mut outbox = Outbox::new(messages, kernel);
        let exit = Exit::new(Rc::new(socket.into()), true, (false, None), true);
        assert_eq!(outbox.open(exit), PORT);
        (outbox, took)
    }

    fn exit(outbox: &Outbox<Fussy>) -> &Exit {
        outbox.exit(PORT).expect("the port is open")
    }

    fn to(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], port))
    }

    fn send_all(outbox: &mut Outbox<Fussy>, sends: &[(u16, Vec<u8>)]) {
        let mut out = Out::of_tick(outbox);
        for (port, bytes) in sends {
            out.send(PORT, to(*port), bytes.len(), |room| {
                room.copy_from_slice(bytes);
                bytes.len()
            });
        }
        assert_eq!(out.finish(), 0);
    }

    fn train(bytes: &[u8], segment_bytes: usize) -> Datagram<'_> {
        let (payload, source, destination) = (Payload::own(bytes), to(1), to(2));
        Datagram { payload, segment_bytes, source, destination, ingress: PORT, ts_ns: 0 }
    }

    fn sends(port: u16, count: u8, bytes: usize) -> Vec<(u16, Vec<u8>)> {
        (0..count).map(|i| (port, vec![i; bytes])).collect()
    }

    #[test]
    fn a_refused_train_is_sent_again_cut_and_no_other_is_tried() {
        for error in [libc::EIO, libc::EINVAL] {
            for messages in [1, 8] {
                let kernel = Fussy { trains: Some(error), ..Fussy::default() };
                let (mut outbox, took) = outbox(messages, kernel);
                let mut wanted = sends(7, 20, 300);
                wanted.push((7, vec![9; 100]));
                send_all(&mut outbox, &wanted);
                assert_eq!(took.borrow().datagrams, wanted, "the same batch, whole");
                assert_eq!(exit(&outbox).gave_up_gso, Some(error));
                assert_eq!(exit(&outbox).counters.tx_frames, 21);
                assert_eq!(exit(&outbox).counters.lost(), 0);
                let calls = took.borrow().calls;
                assert_eq!(calls, 1 + 21usize.div_ceil(messages));
                send_all(&mut outbox, &wanted);
                assert_eq!(took.borrow().datagrams.len(), 42);
                assert_eq!(took.borrow().calls, calls + 21usize.div_ceil(messages), "sticky");
                // A train that came as one is cut as well, before it is refused again.
                let calls = took.borrow().calls;
                let mut out = Out::of_tick(&mut outbox);
                out.forward(&train(&[5; 500], 250), PORT, to(7));
                out.finish();
                assert_eq!(took.borrow().calls, calls + 2usize.div_ceil(messages));
            }
        }
    }

    #[test]
    fn a_destination_that_is_refused_anyway_does_not_cost_the_others_their_trains() {
        let kernel = Fussy { port: Some((5, libc::EINVAL)), ..Fussy::default() };
        let (mut outbox, took) = outbox(8, kernel);
        let mut all = sends(7, 3, 300);
        all.extend(sends(5, 3, 300));
        all.extend(sends(7, 3, 300));
        send_all(&mut outbox, &all);
        all.retain(|(port, _)| *port == 7);
        assert_eq!(took.borrow().datagrams, all);
        assert_eq!(exit(&outbox).gave_up_gso, None);
        assert_eq!(exit(&outbox).counters.drops(DropReason::TxRefused), 3);
    }

    #[test]
    fn a_train_too_long_for_the_path_is_cut_without_giving_up_trains() {
        let kernel = Fussy { trains: Some(libc::EMSGSIZE), ..Fussy::default() };
        let (mut outbox, took) = outbox(8, kernel);
        let wanted = sends(7, 5, 300);
        send_all(&mut outbox, &wanted);
        assert_eq!(took.borrow().datagrams, wanted);
        assert_eq!(exit(&outbox).gave_up_gso, None);
    }

    #[test]
    fn what_the_kernel_says_decides_the_drop_reason() {
        for (error, reason) in [
            (libc::EAGAIN, DropReason::TxSocketFull),
            (libc::ENOBUFS, DropReason::TxInterfaceFull),
            (libc::EPERM, DropReason::TxRefused),
            (libc::EMSGSIZE, DropReason::TxTooLong),
            (libc::ENETUNREACH, DropReason::NoRoute),
            (libc::ENODEV, DropReason::NoRoute),
        ] {
            let kernel = Fussy { port: Some((5, error)), ..Fussy::default() };
            let (mut outbox, took) = outbox(8, kernel);
            send_all(&mut outbox, &[(7, vec![1; 9]), (5, vec![2; 9]), (7, vec![3; 9])]);
            assert_eq!(took.borrow().datagrams, [(7, vec![1; 9]), (7, vec![3; 9])]);
            assert_eq!(exit(&outbox).counters.drops(reason), 1);
            assert_eq!(exit(&outbox).counters.lost(), 1);
        }
    }

    #[test]
    fn a_signal_costs_nothing() {
        let (mut outbox, took) = outbox(8, Fussy { interrupted: true, ..Fussy::default() });
        let wanted = sends(7, 2, 30);
        send_all(&mut outbox, &wanted);
        assert_eq!(took.borrow().datagrams, wanted);
    }

    #[test]
    fn equal_sends_cost_one_call() {
        let (mut outbox, took) = outbox(1, Fussy::default());
        send_all(&mut outbox, &sends(7, 64, 900));
        assert_eq!(took.borrow().calls, 1);
        assert_eq!(took.borrow().datagrams, sends(7, 64, 900));
    }

    #[test]
    fn more_than_the_outbox_holds_leaves_in_order() {
        let (mut outbox, took) = outbox(8, Fussy::default());
        let mut wanted = sends(7, 200, 9000);
        wanted.extend((0..2 * PIECES_MAX).map(|i| (7 + (i % 2) as u16, vec![i as u8; 3])));
        send_all(&mut outbox, &wanted);
        assert!(took.borrow().datagrams == wanted, "every datagram, in order");
        assert_eq!(exit(&outbox).counters.tx_frames, wanted.len() as u64);
    }

    #[test]
    fn bytes_of_the_apps_own_are_kept_until_they_leave() {
        let (mut outbox, took) = outbox(8, Fussy::default());
        let mut out = Out::of_tick(&mut outbox);
        for i in 0..4u8 {
            let mine = vec![i; 500];
            out.forward(&train(&mine, 200), PORT, to(7));
        }
        out.finish();
        let lengths: Vec<_> = took.borrow().datagrams.iter().map(|(_, d)| d.len()).collect();
        assert_eq!(lengths, [200, 200, 100].repeat(4));
        assert!(took.borrow().datagrams.chunks(3).zip(0u8..).all(|(three, i)| {
            three.iter().all(|(_, datagram)| datagram.iter().all(|byte| *byte == i))
        }));
        assert_eq!(exit(&outbox).counters.copies, 4);
    }

    /// Forwards with `manner` the second of three arrivals, of bytes 10 to 19; what left, and what was
    /// copied for it.
    fn forward_second(manner: impl FnOnce(Datagram<'_>) -> Datagram<'_>) -> (Vec<u8>, u64) {
        let (mut outbox, took) = outbox(8, Fussy::default());
        let received = Vec::from_iter(0..30);
        let arrivals = [0, 10, 20].map(|at| Arrival {
            at,
            bytes: 10,
            segment_bytes: 10,
            source: to(1),
            destination: None,
            answer_from: None,
            real_ns: None,
        });
        let payload = outbox.key.mark(&received[10..20], 1);
        let datagram = manner(Datagram { payload, ..train(&[], 10) });
        let mut out = Out {
            outbox: &mut outbox,
            received: &received,
            arrivals: &arrivals,
            ingress: Some(PORT),
            answered: 0,
            no_port: 0,
        };
        out.forward(&datagram, PORT, to(7));
        out.finish();
        let copies = exit(&outbox).counters.copies;
        let (_, bytes) = took.borrow_mut().datagrams.remove(0);
        (bytes, copies)
    }

    #[test]
    fn received_bytes_leave_from_where_they_lie_whole_or_in_part() {
        assert_eq!(forward_second(|whole| whole), ((10..20).collect(), 0));
        let sent = forward_second(|whole| {
            let payload = whole.payload.narrowed(2..9).narrowed(1..4);
            Datagram { payload, ..whole }
        });
        assert_eq!(sent, (vec![13, 14, 15], 0));
    }

    #[test]
    fn bytes_that_the_lane_did_not_receive_are_copied() {
        let marked_by_another = PayloadKey::unique().mark(&[99; 10], 1);
        for payload in [Payload::own(&[99; 10]), marked_by_another] {
            let sent = forward_second(|whole| Datagram { payload, ..whole });
            assert_eq!(sent, (vec![99; 10], 1));
        }
    }

    #[test]
    fn a_destination_without_port_is_refused_before_the_kernel_is_asked() {
        let (mut outbox, took) = outbox(8, Fussy::default());
        send_all(&mut outbox, &sends(0, 3, 10));
        assert_eq!(took.borrow().calls, 0);
        assert_eq!(exit(&outbox).counters.drops(DropReason::TxRefused), 3);
    }
}
