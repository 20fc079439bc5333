//! Everything of the lane but the app: sockets, connections, their requests in the ring and what completes.

use super::{GROUP, PLACES_PER_STEP, REPORT_USAGE};
use crate::{
    buffers::Buffers,
    conn::{Conn, id, parts},
    ear::Ear,
    memory::Memory,
    ring::{CANCEL_TOKEN, Completion, Ring},
    sys,
    token::{self, Kind},
};
use io_uring::{opcode, types};
use laneway_core::{CapsReport, Close, ConnId, Counters, DropReason, PortId};
use laneway_linux::Reserve;
use std::{
    collections::VecDeque,
    io, mem,
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    rc::Rc,
};

/// Everything but the bytes received.
pub(super) struct Net {
    // In front of the sockets: it is dropped before they are.
    pub(super) ring: Ring,
    pub(super) listeners: Vec<Listener>,
    /// Grows in steps up to `conns_max`, and never shrinks.
    pub(super) conns: Vec<Conn>,
    pub(super) conns_max: usize,
    pub(super) free: Vec<u32>,
    pub(super) buffers: Buffers,
    /// Two halves per connection; one mapping per step of `conns`.
    pub(super) queues: Vec<Rc<Memory>>,
    pub(super) queue_bytes: usize,
    pub(super) zero_copy_bytes: usize,
    pub(super) bundle: bool,
    pub(super) events: VecDeque<Event>,
    /// Connections that may be shown their bytes again, or may end.
    pub(super) noted: Vec<u32>,
    /// Closed connections with bytes queued, by when their peers must have taken some.
    pub(super) timed: VecDeque<(u64, ConnId)>,
    /// Closed connections whose peers have not finished, by when they are cut off.
    pub(super) lingering: VecDeque<(u64, ConnId)>,
    pub(super) dirty: Vec<u32>,
    /// Halves for which the ring had no room.
    pub(super) unasked: Vec<(ConnId, usize)>,
    pub(super) to_arm: Vec<u32>,
    pub(super) rearms: u64,
    pub(super) zero_copies: u64,
    pub(super) zero_copies_copied: u64,
    pub(super) ear: Ear,
    /// For connections that are refused when there is no other descriptor.
    pub(super) reserve: Reserve,
}

/// Connections that are closed for want of descriptors between two ticks.
const REFUSED_MAX: usize = 64;

pub(super) struct Listener {
    pub(super) id: PortId,
    pub(super) socket: Option<OwnedFd>,
    pub(super) bound: SocketAddr,
    pub(super) caps: CapsReport,
    pub(super) counters: Counters,
    pub(super) is_armed: bool,
    /// Accepting failed for want of something (descriptors, memory): not again before the next tick.
    pub(super) rests: bool,
}

/// What happened to a connection.
#[derive(Clone, Copy)]
pub(super) struct Event {
    pub(super) conn: ConnId,
    pub(super) what: What,
}

#[derive(Clone, Copy)]
pub(super) enum What {
    Opened,
    Bytes { buffer: u16, bytes: usize },
    Finished,
    Broken,
}

impl Net {
    /// Adds a step of free places and the memory of their send queues; nothing when there are as
    /// many as there may be.
    pub(super) fn add_places(&mut self) -> io::Result<()> {
        let first = self.conns.len();
        let places = PLACES_PER_STEP.min(self.conns_max - first);
        if places == 0 {
            return Ok(());
        }
        let memory = Rc::new(Memory::map(places * 2 * self.queue_bytes)?);
        self.ring.keep(&memory);
        self.queues.push(memory);
        self.conns.extend((0..places).map(|_| Conn::free()));
        self.free.extend((first as u32..(first + places) as u32).rev());
        // A connection is on each list at most once, and begins and ends once.
        let conns = self.conns.len();
        for list in [&mut self.noted, &mut self.dirty, &mut self.to_arm] {
            list.reserve(conns - list.len());
        }
        self.events.reserve(2 * places);
        Ok(())
    }

    /// The memory of half `half` of a place, and where in it byte `at` of that half lies.
    pub(super) fn queue_at(&self, place: u32, half: usize, at: usize) -> (&Memory, usize) {
        let (step, place) = (place as usize / PLACES_PER_STEP, place as usize % PLACES_PER_STEP);
        (&self.queues[step], (place * 2 + half) * self.queue_bytes + at)
    }

    /// The place of a connection that is still in it.
    pub(super) fn find(&self, conn: ConnId) -> Option<u32> {
        let (place, generation) = parts(conn);
        let there = self.conns.get(place as usize)?;
        (there.generation == generation && there.socket.is_some()).then_some(place)
    }

    /// Has the connection looked at in the next turn.
    pub(super) fn note(&mut self, place: u32) {
        if !mem::replace(&mut self.conns[place as usize].is_noted, true) {
            self.noted.push(place);
        }
    }

    pub(super) fn arm_later(&mut self, place: u32) {
        if !mem::replace(&mut self.conns[place as usize].is_to_be_armed, true) {
            self.to_arm.push(place);
        }
    }

    /// The connection is to end, for the first reason given (a break overrides an order).
    pub(super) fn end(&mut self, place: u32, why: Close) {
        let conn = &mut self.conns[place as usize];
        if conn.is_reset {
            return;
        }
        conn.is_dying |= conn.lingers;
        if conn.closing.is_none() || why == Close::Error {
            conn.closing = Some(why);
        }
        if why == Close::Error {
            conn.halves.discard();
        }
        self.note(place);
    }

    /// Resets a connection whose end has not been reported to the app.
    pub(super) fn reset(&mut self, place: u32, why: Close) {
        let conn = &mut self.conns[place as usize];
        if !conn.is_open || mem::replace(&mut conn.is_reset, true) {
            return;
        }
        conn.closing = Some(why);
        conn.halves.discard();
        if let Some(socket) = &conn.socket {
            sys::reset(socket.as_fd());
        }
        self.note(place);
    }

    /// Reading pauses: the peer's bytes stay in the socket.
    pub(super) fn halt(&mut self, place: u32) {
        if self.conns[place as usize].is_armed {
            let receive = token::token(Kind::Receive, 0, place);
            let builder = types::CancelBuilder::user_data(receive);
            let cancel = opcode::AsyncCancel2::new(builder).build();
            // Where the ring has no room, reading goes on, bounded by the provided buffers.
            // SAFETY: a cancel names no memory.
            let _ = unsafe { self.ring.push(cancel, CANCEL_TOKEN) };
        }
    }

    /// Queues what fits of the bytes for a connection; returns how many.
    pub(super) fn queue(&mut self, place: u32, bytes: &[u8]) -> usize {
        let conn = &mut self.conns[place as usize];
        if !conn.is_live() {
            return 0;
        }
        let (half, at, room) = conn.halves.room(self.queue_bytes).unwrap_or_default();
        let taken = room.min(bytes.len());
        conn.wants_room |= taken < bytes.len();
        if taken == 0 {
            return 0;
        }
        let (queues, at) = self.queue_at(place, half, at);
        // SAFETY: `room` gives only what lies behind the bytes of a half that is not being sent, so
        // the kernel does not read it.
        let room = unsafe { queues.slice_mut(at, taken) };
        room.copy_from_slice(&bytes[..taken]);
        let conn = &mut self.conns[place as usize];
        conn.halves.filled(half, taken);
        if !mem::replace(&mut conn.is_dirty, true) {
            self.dirty.push(place);
        }
        taken
    }

    /// Sends the next half of a connection, if there is one and none is being sent.
    pub(super) fn begin_send(&mut self, place: u32) {
        if let Some(half) = self.conns[place as usize].halves.begin() {
            self.send(place, half);
        }
    }

    /// Asks the kernel to take the rest of a half.
    pub(super) fn send(&mut self, place: u32, half: usize) {
        let (sent, bytes) = self.conns[place as usize].halves.rest(half);
        let (queues, at) = self.queue_at(place, half, sent);
        let start = queues.at(at);
        let Some(socket) = self.conns[place as usize].file() else { return };
        let length = bytes as u32;
        // The kernel goes on by itself when a socket takes only a part.
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let request = if bytes >= self.zero_copy_bytes {
            opcode::SendZc::new(socket, start, length).flags(flags).zc_flags(REPORT_USAGE).build()
        } else {
            opcode::Send::new(socket, start, length).flags(flags).build()
        };
        let token = token::token(Kind::Send, half as u16, place);
        // SAFETY: the bytes lie in memory that the ring keeps, in a half that nothing writes until its
        // last request has ended.
        if unsafe { self.ring.push(request, token) } {
            self.conns[place as usize].halves.requested(half);
        } else {
            // The kernel wants completions taken first.
            self.unasked.push((id(place, self.conns[place as usize].generation), half));
        }
    }

    /// Takes every completion that is there.
    pub(super) fn reap(&mut self) -> io::Result<()> {
        while let Some(completion) = self.ring.next() {
            match token::read(completion.token) {
                Some((Kind::Accept, port, _)) => self.accepted(port, completion),
                Some((Kind::Receive, _, place)) => self.received(place, completion),
                Some((Kind::Send, half, place)) => self.sent(place, half, completion),
                Some((Kind::Bell, ..)) => self.ear.completed(),
                None => (),
            }
        }
        match self.ring.counts().lost {
            0 => Ok(()),
            _ => Err(io::Error::from_raw_os_error(libc::EBADR)),
        }
    }

    pub(super) fn accepted(&mut self, port: usize, completion: Completion) {
        let Some(listener) = self.listeners.get_mut(port) else { return };
        listener.is_armed = completion.has_more();
        let socket = match completion.outcome() {
            // SAFETY: an accept brought it, and nothing else owns it.
            Ok(fd) => unsafe { sys::own(fd as i32) },
            Err(error) => {
                match error.raw_os_error() {
                    Some(libc::EMFILE | libc::ENFILE) => {
                        listener.rests = true;
                        self.refuse_waiting(port);
                    }
                    // Nothing can be done now: the kernel's queue holds them.
                    Some(libc::ENOMEM | libc::ENOBUFS) => listener.rests = true,
                    _ => (),
                }
                return;
            }
        };
        // A peer that is gone already has no address, and is not worth telling of.
        let Ok(peer) = sys::peer_address(socket.as_fd()) else { return };
        // Replies of a turn leave together anyway; Nagle would only delay them.
        let _ = sys::set_option(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
        if self.free.is_empty() {
            // Without memory for more places the table is full: that is counted below.
            let _ = self.add_places();
        }
        let Some(place) = self.free.pop() else {
            return self.listeners[port].counters.drop_one(DropReason::ConnTableFull);
        };
        let conn = &mut self.conns[place as usize];
        conn.occupy(port, socket, peer);
        let conn = id(place, conn.generation);
        self.events.push_back(Event { conn, what: What::Opened });
        self.arm_later(place);
    }

    /// Closes the connections that wait at a port, so that no peer hangs, by a descriptor that is kept for that. The
    /// kernel looks for a descriptor in front of a connection, so perhaps there is none.
    fn refuse_waiting(&mut self, port: usize) {
        let Net { listeners, reserve, .. } = self;
        let Listener { socket: Some(socket), counters, .. } = &mut listeners[port] else { return };
        for _ in 0..REFUSED_MAX {
            if reserve.refuse(|| sys::accept_waiting(socket.as_fd())).is_err() {
                break;
            }
            counters.drop_one(DropReason::ConnTableFull);
        }
    }

    pub(super) fn received(&mut self, place: u32, completion: Completion) {
        let Some(conn) = self.conns.get_mut(place as usize) else { return };
        conn.is_armed &= completion.has_more();
        let name = id(place, conn.generation);
        let mut push = |what| self.events.push_back(Event { conn: name, what });
        // Nothing more will come after an end.
        let mut goes_on = true;
        match (completion.outcome(), completion.buffer()) {
            (Ok(bytes @ 1..), Some(first)) => {
                let counters = &mut self.listeners[conn.port].counters;
                counters.rx_frames += 1;
                counters.rx_bytes += bytes as u64;
                let complete = self.buffers.take_bundle(first, bytes, |buffer, bytes| {
                    push(What::Bytes { buffer, bytes });
                });
                if !complete {
                    goes_on = false;
                    push(What::Broken);
                }
            }
            (Ok(bytes), _) => {
                goes_on = false;
                push(if bytes == 0 { What::Finished } else { What::Broken });
            }
            (Err(error), _) => match error.raw_os_error() {
                // Nothing is lost: the bytes wait in the socket.
                Some(libc::ENOBUFS) => self.rearms += 1,
                Some(libc::ECANCELED | libc::EINTR | libc::EAGAIN) => (),
                _ => {
                    goes_on = false;
                    push(What::Broken);
                }
            },
        }
        self.conns[place as usize].has_ended |= !goes_on;
        if completion.result <= 0
            && let Some(buffer) = completion.buffer().and_then(|buffer| self.buffers.take(buffer))
        {
            self.buffers.give(buffer);
            self.buffers.publish();
        }
        if !self.conns[place as usize].is_armed {
            if goes_on {
                self.arm_later(place);
            }
            self.bury_if_dead(place);
        }
    }

    pub(super) fn sent(&mut self, place: u32, half: usize, completion: Completion) {
        let Some(conn) = self.conns.get_mut(place as usize).filter(|_| half < 2) else { return };
        if completion.is_notification() {
            self.zero_copies_copied += u64::from(completion.was_copied());
        } else {
            self.zero_copies += u64::from(completion.has_more());
            match completion.outcome() {
                Ok(bytes) => {
                    let counters = &mut self.listeners[conn.port].counters;
                    counters.tx_frames += u64::from(bytes > 0);
                    counters.tx_bytes += bytes as u64;
                    if conn.closing != Some(Close::Error) {
                        if bytes > 0 && !conn.halves.took(half, bytes) {
                            self.send(place, half);
                        } else if bytes == 0 {
                            self.end(place, Close::Error);
                        }
                    }
                }
                Err(_) => self.end(place, Close::Error),
            }
        }
        let conn = &mut self.conns[place as usize];
        if !completion.has_more() {
            conn.halves.ended(half);
        }
        if !conn.is_dying && conn.closing != Some(Close::Error) {
            // What waits was queued in turns that have ended: completions are taken between turns.
            self.begin_send(place);
        }
        let conn = &self.conns[place as usize];
        if conn.closing.is_some() || conn.has_room_again(self.queue_bytes) {
            self.note(place);
        }
        self.bury_if_dead(place);
    }

    pub(super) fn bury_if_dead(&mut self, place: u32) {
        if self.conns[place as usize].is_dying {
            self.bury(place);
        }
    }

    /// Ends the requests of a dying connection; when it has none any more, its place is free.
    pub(super) fn bury(&mut self, place: u32) {
        let conn = &mut self.conns[place as usize];
        let (Some(socket), Some(file)) = (&conn.socket, conn.file()) else { return };
        if !conn.is_quiet() {
            sys::shutdown_writing(socket.as_fd());
            // The ring takes it before any request that is pushed later, so it ends none of another connection that is
            // given this descriptor.
            let cancel = opcode::AsyncCancel2::new(types::CancelBuilder::fd(file).all()).build();
            // SAFETY: a cancel names no memory.
            if !unsafe { self.ring.push(cancel, CANCEL_TOKEN) } {
                self.note(place);
            }
            return;
        }
        conn.socket = None;
        conn.is_dying = false;
        // Generations must not wrap; a place that had four billion connections retires.
        if conn.generation < u32::MAX {
            self.free.push(place);
        }
    }

    /// Arms every accept and receive that has ended and should not have.
    pub(super) fn arm(&mut self) {
        for (port, listener) in self.listeners.iter_mut().enumerate() {
            let Some(socket) =
                listener.socket.as_ref().filter(|_| !listener.is_armed && !listener.rests)
            else {
                continue;
            };
            let socket = types::Fd(socket.as_raw_fd());
            let request = opcode::AcceptMulti::new(socket).flags(libc::SOCK_CLOEXEC).build();
            let token = token::token(Kind::Accept, port as u16, 0);
            // SAFETY: a multishot accept names no memory.
            listener.is_armed = unsafe { self.ring.push(request, token) };
        }
        let mut to_arm = mem::take(&mut self.to_arm);
        if to_arm.len() > 1 {
            // Another is first each time, or one whose bytes fill all buffers would starve the rest.
            to_arm.rotate_left(1);
        }
        to_arm.retain(|&place| {
            let conn = &mut self.conns[place as usize];
            let is_read = conn.closing.is_none()
                && !conn.wants_room
                && conn.received.len() <= self.queue_bytes;
            let is_idle = !conn.is_armed && !conn.is_dying && !conn.has_ended;
            let wanted = conn.file().filter(|_| is_idle && (is_read || conn.lingers));
            if let Some(socket) = wanted.filter(|_| self.buffers.has_any()) {
                let request = if self.bundle {
                    opcode::RecvMultiBundle::new(socket, GROUP).build()
                } else {
                    opcode::RecvMulti::new(socket, GROUP).build()
                };
                let token = token::token(Kind::Receive, 0, place);
                // SAFETY: the group's buffers are kept by the ring, and the kernel's while it has
                // them.
                conn.is_armed = unsafe { self.ring.push(request, token) };
            }
            conn.is_to_be_armed = wanted.is_some() && !conn.is_armed;
            conn.is_to_be_armed
        });
        self.to_arm = to_arm;
    }

    /// Puts what was queued, and what is to be armed, on its way.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        for _ in 0..self.unasked.len() {
            let (conn, half) = self.unasked.swap_remove(0);
            let place = self.find(conn).filter(|&place| {
                let conn = &self.conns[place as usize];
                !conn.is_dying && conn.halves.rest(half).1 > 0
            });
            if let Some(place) = place {
                self.send(place, half);
            }
        }
        let mut dirty = mem::take(&mut self.dirty);
        for place in dirty.drain(..) {
            self.conns[place as usize].is_dirty = false;
            self.begin_send(place);
        }
        self.dirty = dirty;
        self.arm();
        self.ring.submit()?;
        self.reap()
    }

    /// Lets go of every socket; requests that the kernel has taken go on until they are cancelled.
    pub(super) fn close_sockets(&mut self) {
        for listener in &mut self.listeners {
            listener.socket = None;
        }
        for conn in &mut self.conns {
            if let Some(socket) = conn.socket.take().filter(|_| !conn.halves.is_quiet()) {
                // Its peer does not take what was sent without a copy, and the kernel would read that
                // memory until it does.
                sys::reset_on_close(socket.as_fd());
            }
        }
    }

    /// True when there is something to do without anything arriving.
    pub(super) fn has_work(&self) -> bool {
        !self.events.is_empty() || !self.noted.is_empty() || !self.unasked.is_empty()
    }
}

/// A completion that arrived while the lane ends.
pub(super) fn ended_at_last(conns: &mut [Conn], completion: Completion) {
    match token::read(completion.token) {
        Some((Kind::Accept, ..)) if completion.result >= 0 => {
            // SAFETY: an accept brought it, and nothing else owns it.
            drop(unsafe { sys::own(completion.result) });
        }
        Some((Kind::Send, half, place)) if !completion.has_more() => {
            if let Some(conn) = conns.get_mut(place as usize).filter(|_| half < 2) {
                conn.halves.ended(half);
            }
        }
        _ => (),
    }
}
