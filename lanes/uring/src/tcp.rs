//! Stream ports: TCP listeners and their connections; multishot accept and receive, one send of a
//! connection at a time.
//!
//! ```text
//!   kernel ─▶ provided buffer ─▶ event ─▶ on_bytes (in place, or behind what was left) ─▶ give
//!   on_bytes ─▶ send queue ─▶ on_turn_end ─▶ SEND, all of a turn's replies in one request
//! ```
//!
//! What must always hold: events of a connection are shown in the order of its completions, its end
//! last. A place is given to another connection only when the kernel has no request of the last one,
//! and events carry the generation, so that none reaches the wrong connection. Replies leave after
//! the turn has ended. A connection is read no further while its app waits for room in its send queue, or
//! leaves more than a queue's length of what it received.
//!
//! All replies of a turn lie side by side in the send queue already, so a bundle of send buffers has
//! nothing to add: `bundle` is about receiving.

use crate::{
    buffers::{Buffers, Layout},
    config::{NAME, TcpConfig},
    conn::{Conn, id, parts},
    ear::Ear,
    grant::{Grant, ring_failed, tell_counts},
    memory::Memory,
    ring::{CANCEL_TOKEN, Completion, Ring},
    socket, sys,
    sys::failed,
    token::{self, Kind},
    udp::check_ports,
};
use io_uring::{opcode, types};
use laneway_core::{
    Bell, Cap, CapsReport, Clock, ClockDomain, Close, ConnId, Counters, DropReason, Lane,
    LaneError, Opened, PortId, StreamApp, StreamLane, StreamOut, Turn, Wake,
};
use laneway_linux::connections_max;
use laneway_spec::LaneSpec;
use std::{
    collections::VecDeque,
    io, mem,
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    rc::Rc,
    time::Duration,
};

/// The one group of provided buffers.
const GROUP: u16 = 0;
/// `IORING_SEND_ZC_REPORT_USAGE`.
const REPORT_USAGE: u16 = 1 << 3;
/// Places by which the table of connections grows, so that a worker with few of them maps little.
const PLACES_PER_STEP: usize = 256;

/// How long a closed connection waits for its peer to finish too.
const LINGER_NS: u64 = 2_000_000_000;
/// What a closed connection may still be sent before it is cut off.
const LINGER_BYTES_MAX: usize = 4 << 20;

/// How often 10 ms a lane that ends waits for what is in flight before it resets connections.
const GRACE_WAITS: usize = 3;

/// TCP listeners and connections as a stream lane, through io_uring. See the crate's documentation.
pub struct UringTcp {
    /// The provided buffers. Apart from the rest, because the app reads them while it sends.
    memory: Rc<Memory>,
    net: Net,
    batch_max: usize,
    turn: u64,
    /// Reused: the connections looked at in this turn.
    looked_at: Vec<u32>,
    /// The app was called, and its turn has not ended since.
    called: bool,
    close_ns: u64,
    is_finished: bool,
}

/// Everything but the bytes received.
struct Net {
    ring: Ring,
    listeners: Vec<Listener>,
    /// Grows in steps up to `conns_max`, and never shrinks.
    conns: Vec<Conn>,
    conns_max: usize,
    free: Vec<u32>,
    buffers: Buffers,
    /// Two halves per connection; one mapping per step of `conns`.
    queues: Vec<Rc<Memory>>,
    queue_bytes: usize,
    zero_copy_bytes: usize,
    bundle: bool,
    events: VecDeque<Event>,
    /// Connections that may be shown their bytes again, or may end.
    noted: Vec<u32>,
    /// Closed connections with bytes queued, by when their peers must have taken some.
    timed: VecDeque<(u64, ConnId)>,
    /// Closed connections whose peers have not finished, by when they are cut off.
    lingering: VecDeque<(u64, ConnId)>,
    dirty: Vec<u32>,
    /// Halves for which the ring had no room.
    unasked: Vec<(ConnId, usize)>,
    to_arm: Vec<u32>,
    rearms: u64,
    zero_copies: u64,
    zero_copies_copied: u64,
    ear: Ear,
}

struct Listener {
    id: PortId,
    socket: Option<OwnedFd>,
    bound: SocketAddr,
    caps: CapsReport,
    counters: Counters,
    is_armed: bool,
    /// Accepting failed for want of something (descriptors, memory): not again before the next tick.
    rests: bool,
}

/// What happened to a connection.
#[derive(Clone, Copy)]
struct Event {
    conn: ConnId,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    Opened,
    Bytes { buffer: u16, bytes: usize },
    Finished,
    Broken,
}

impl UringTcp {
    /// Listens at each address; port `i` is `addresses[i]`, in the network namespace of this thread,
    /// which must also be the one to use and drop the lane. A port number of 0 lets the kernel choose:
    /// see [`local_addr`](Self::local_addr).
    ///
    /// # Errors
    /// A wrong spec, an io_uring that is missing or disabled, an address that is taken or not here, a
    /// limit of open files below `conns`, or a capability that was asked for and not obtained.
    pub fn open(spec: &LaneSpec, addresses: &[SocketAddr]) -> Result<UringTcp, LaneError> {
        let config = TcpConfig::read(spec)?;
        check_ports(addresses.len())?;
        let mut grant = Grant::open(&config.common)?;
        let mut opened = Vec::new();
        for &at in addresses {
            let mut caps = CapsReport { requested: config.requested(), ..CapsReport::default() };
            let (socket, bound) = socket::tcp(at, &config, &mut caps)?;
            opened.push((socket, bound, caps));
        }
        let mut files: Vec<_> = opened.iter().map(|(socket, ..)| socket.as_raw_fd()).collect();
        let (conns_max, fewer) = connections_max(NAME, config.conns_wanted(), files.len())?;
        files.resize(files.len() + conns_max, -1);
        grant.fix_files(&files)?;
        let mut listeners = Vec::new();
        for (i, (socket, bound, mut caps)) in opened.into_iter().enumerate() {
            grant.report(&config.common, &mut caps)?;
            write_facts(&mut caps, &config, conns_max, bound);
            caps.notes.extend(fewer.clone());
            listeners.push(Listener {
                id: PortId(i as u32),
                socket: Some(socket),
                bound,
                caps,
                counters: Counters::default(),
                is_armed: false,
                rests: false,
            });
        }
        let bytes = config.provided.bytes;
        let count = usize::from(config.provided.count);
        let hint = "lower buffers= or buffer=";
        let memory = Memory::map(count * bytes).map_err(failed("map provided buffers", hint))?;
        memory.populate();
        let memory = Rc::new(memory);
        let layout = Layout { stride_bytes: bytes, lead_bytes: 0, bytes };
        // SAFETY: the memory is new, and this lane reads a buffer only after it took it.
        let buffers = unsafe {
            Buffers::register(
                &mut grant.ring,
                &memory,
                layout,
                (config.provided.count, config.provided.count),
                GROUP,
            )
        }?;
        let net = Net {
            ring: grant.ring,
            bundle: listeners[0].caps.obtained.has(Cap::Bundle),
            listeners,
            conns: Vec::new(),
            conns_max,
            free: Vec::new(),
            buffers,
            queues: Vec::new(),
            queue_bytes: config.queue_bytes,
            zero_copy_bytes: config.sockets.zero_copy_bytes.unwrap_or(usize::MAX),
            // Each buffer is in one event at most.
            events: VecDeque::with_capacity(count),
            noted: Vec::new(),
            timed: VecDeque::new(),
            lingering: VecDeque::new(),
            dirty: Vec::new(),
            unasked: Vec::new(),
            to_arm: Vec::new(),
            rearms: 0,
            zero_copies: 0,
            zero_copies_copied: 0,
            ear: Ear::default(),
        };
        let mut lane = UringTcp {
            memory,
            net,
            batch_max: config.sockets.batch,
            turn: 0,
            looked_at: Vec::new(),
            called: false,
            close_ns: config.close_ns,
            is_finished: false,
        };
        lane.net.add_places().map_err(failed("map send queues", "lower conns= or queue="))?;
        lane.net.flush().map_err(ring_failed)?;
        Ok(lane)
    }

    /// The address that `port` listens at, with the number that the kernel chose.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn local_addr(&self, port: PortId) -> SocketAddr {
        self.net.listeners[port.index()].bound
    }

    /// Connections that the worker has now.
    pub fn connections(&self) -> usize {
        self.net.conns.len() - self.net.free.len()
    }

    /// Shows the app what happened, up to a batch of it. Returns how many connections it saw.
    fn show<A: StreamApp>(&mut self, app: &mut A) -> usize {
        let mut served = 0;
        for _ in 0..self.batch_max {
            let Some(Event { conn, what }) = self.net.events.pop_front() else { break };
            let place = self.net.find(conn);
            match what {
                What::Opened => {
                    if let Some(place) = place {
                        let there = &mut self.net.conns[place as usize];
                        there.is_open = true;
                        let (peer, listener) = (there.peer, &self.net.listeners[there.port]);
                        let (local, port) = (listener.bound, listener.id);
                        let opened = Opened { conn, peer, local, port };
                        app.on_open(opened, &mut Out { net: &mut self.net });
                        self.called = true;
                        served += usize::from(self.is_new_in_turn(place));
                    }
                }
                What::Bytes { buffer, bytes } => {
                    if let Some(place) = place {
                        // SAFETY: the buffer became ours with its completion and goes back to the
                        // kernel below, when the app has seen it.
                        let bytes =
                            unsafe { self.memory.slice(self.net.buffers.start(buffer), bytes) };
                        if deliver(&mut self.net, app, place, bytes) {
                            self.called = true;
                            served += usize::from(self.is_new_in_turn(place));
                        }
                    }
                    self.net.buffers.give(buffer);
                }
                What::Finished => {
                    if let Some(place) = place {
                        let there = &mut self.net.conns[place as usize];
                        there.peer_finished = true;
                        there.is_dying |= there.lingers;
                        self.net.note(place);
                    }
                }
                What::Broken => {
                    if let Some(place) = place {
                        self.net.end(place, Close::Error);
                    }
                }
            }
        }
        self.net.buffers.publish();
        served
    }

    /// True the first time in a turn.
    fn is_new_in_turn(&mut self, place: u32) -> bool {
        let turn = self.turn;
        mem::replace(&mut self.net.conns[place as usize].turn, turn) != turn
    }

    /// Looks at the connections that were noted: tells of room and of finished peers, shows bytes again,
    /// and ends what is to end.
    fn look<A: StreamApp>(&mut self, app: &mut A, clock: &impl Clock) -> usize {
        let mut served = 0;
        mem::swap(&mut self.looked_at, &mut self.net.noted);
        for i in 0..self.looked_at.len() {
            let place = self.looked_at[i];
            self.net.conns[place as usize].is_noted = false;
            if self.notify(place, app) {
                self.called = true;
                served += usize::from(self.is_new_in_turn(place));
            }
            self.end_if_done(place, app, clock);
            if self.net.conns[place as usize].is_dying {
                self.net.bury(place);
            }
        }
        self.looked_at.clear();
        served
    }

    /// Tells the app what there is to tell of a connection without new bytes. True when it was called.
    fn notify<A: StreamApp>(&mut self, place: u32, app: &mut A) -> bool {
        let queue_bytes = self.net.queue_bytes;
        let conn = &mut self.net.conns[place as usize];
        let name = id(place, conn.generation);
        let mut told = false;
        if conn.is_live() && conn.has_room_again(queue_bytes) {
            conn.wants_room = false;
            conn.show_again = true;
            told = true;
            app.on_room(name, &mut Out { net: &mut self.net });
        }
        let conn = &mut self.net.conns[place as usize];
        if conn.show_again && conn.may_show() {
            conn.show_again = false;
            told |= deliver(&mut self.net, app, place, &[]);
            self.net.arm_later(place);
        }
        let conn = &mut self.net.conns[place as usize];
        if conn.finish_is_due() {
            conn.finish_told = true;
            told = true;
            app.on_finish(name, &mut Out { net: &mut self.net });
        }
        told
    }

    /// Tells the app of the end of a connection that is to end and has nothing left to send.
    fn end_if_done<A: StreamApp>(&mut self, place: u32, app: &mut A, clock: &impl Clock) {
        let conn = &mut self.net.conns[place as usize];
        let Some(why) = conn.closing.filter(|_| conn.is_open) else { return };
        let name = id(place, conn.generation);
        // What is sent without a copy is still read here until the peer has taken it.
        let is_sent = conn.halves.is_empty() && conn.halves.is_quiet();
        if why == Close::Error || conn.is_reset || is_sent {
            let in_order = !conn.is_reset && why == Close::App;
            let is_peers = in_order && conn.finish_told;
            conn.is_open = false;
            conn.lingers = in_order && !conn.has_ended;
            conn.is_dying = !conn.lingers;
            if let Some(socket) = conn.socket.as_ref().filter(|_| conn.lingers) {
                sys::shutdown_writing(socket.as_fd());
                let until_ns = clock.now_ns().saturating_add(LINGER_NS);
                self.net.lingering.push_back((until_ns, name));
                self.net.arm_later(place);
            }
            self.called = true;
            app.on_close(name, if is_peers { Close::Peer } else { why });
        } else if !mem::replace(&mut conn.is_timed, true) {
            conn.acked_bytes = conn.taken_by_peer();
            self.net.timed.push_back((clock.now_ns().saturating_add(self.close_ns), name));
        }
    }

    /// Resets closed connections whose peers take nothing of what is queued, and cuts off those whose peers
    /// do not finish.
    fn expire(&mut self, now_ns: u64) {
        while let Some((until_ns, name)) = self.net.lingering.front().copied()
            && now_ns >= until_ns
        {
            self.net.lingering.pop_front();
            if let Some(place) = self.net.find(name) {
                self.net.conns[place as usize].is_dying = true;
                self.net.note(place);
            }
        }
        while let Some((until_ns, name)) = self.net.timed.front().copied()
            && now_ns >= until_ns
        {
            self.net.timed.pop_front();
            let Some(place) = self.net.find(name) else { continue };
            let conn = &mut self.net.conns[place as usize];
            if !conn.is_open {
                continue;
            }
            let acked_bytes = conn.taken_by_peer();
            if acked_bytes > conn.acked_bytes {
                conn.acked_bytes = acked_bytes;
                self.net.timed.push_back((now_ns.saturating_add(self.close_ns), name));
            } else {
                self.net.reset(place, Close::Error);
            }
        }
    }

    /// Ends every request and lets go of every socket.
    fn shut(&mut self) {
        if mem::replace(&mut self.is_finished, true) {
            return;
        }
        let Net { ring, conns, .. } = &mut self.net;
        let drained = ring.drain(GRACE_WAITS, |completion| ended_at_last(conns, completion));
        self.net.ring.release_files();
        for listener in &mut self.net.listeners {
            listener.socket = None;
        }
        for conn in &mut self.net.conns {
            conn.is_open = false;
            if let Some(socket) = conn.socket.take().filter(|_| !conn.halves.is_quiet()) {
                // Its peer does not take what was sent without a copy, and the kernel would read that
                // memory until it does.
                sys::reset_on_close(socket.as_fd());
            }
        }
        if !drained {
            let Net { ring, conns, .. } = &mut self.net;
            // What is still in flight after this is the ring's concern when it is dropped.
            ring.drain(GRACE_WAITS, |completion| ended_at_last(conns, completion));
        }
        self.net.events.clear();
        self.net.noted.clear();
    }
}

/// A completion that came while the lane ends.
fn ended_at_last(conns: &mut [Conn], completion: Completion) {
    match token::read(completion.token) {
        Some((Kind::Accept, ..)) if completion.result >= 0 => {
            // SAFETY: an accept brought it, and nobody else has it.
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

/// Shows the app new bytes of a connection behind those it left. True when it saw any.
fn deliver<A: StreamApp>(net: &mut Net, app: &mut A, place: u32, bytes: &[u8]) -> bool {
    let queue_bytes = net.queue_bytes;
    let conn = &mut net.conns[place as usize];
    if conn.lingers {
        conn.lingered_bytes += bytes.len();
        // It has not understood, and would go on for ever.
        conn.is_dying |= conn.lingered_bytes > LINGER_BYTES_MAX;
        if conn.is_dying {
            net.note(place);
        }
        return false;
    }
    if !conn.is_live() {
        return false;
    }
    if !conn.may_show() {
        conn.received.extend_from_slice(bytes);
        if conn.wants_room || conn.received.len() > queue_bytes {
            net.halt(place);
        }
        return false;
    }
    let name = id(place, conn.generation);
    let mut received = mem::take(&mut conn.received);
    if received.is_empty() && bytes.is_empty() {
        conn.received = received;
        return false;
    }
    let consumed = if received.is_empty() {
        let consumed = app.on_bytes(name, bytes, &mut Out { net }).min(bytes.len());
        received.extend_from_slice(&bytes[consumed..]);
        consumed
    } else {
        received.extend_from_slice(bytes);
        let consumed = app.on_bytes(name, &received, &mut Out { net }).min(received.len());
        received.drain(..consumed);
        consumed
    };
    let left = received.len();
    let conn = &mut net.conns[place as usize];
    conn.received = received;
    if conn.wants_room && left > 0 {
        net.halt(place);
    } else if left > queue_bytes && conn.may_show() {
        if consumed == 0 {
            // The app waits for more than may be kept: it would wait for ever.
            net.listeners[conn.port].counters.drop_one(DropReason::RxTooLong);
            net.end(place, Close::Error);
        } else {
            conn.show_again = true;
            net.note(place);
            net.halt(place);
        }
    }
    net.arm_later(place);
    true
}

fn write_facts(caps: &mut CapsReport, config: &TcpConfig, conns_max: usize, bound: SocketAddr) {
    caps.fact("address", bound);
    caps.fact("batch", config.sockets.batch);
    caps.fact("buffers", config.provided.count);
    caps.fact("buffer_bytes", config.provided.bytes);
    caps.fact("conns", conns_max);
    caps.fact("queue_bytes", config.queue_bytes);
    caps.fact("close_ms", config.close_ns / 1_000_000);
    caps.fact("keepalive_s", config.keepalive_s);
    if let Some(bytes) = config.sockets.zero_copy_bytes {
        caps.fact("send_zc_bytes_min", bytes);
    }
}

impl Net {
    /// Adds a step of free places and the memory of their send queues; nothing when there are as
    /// many as there may be.
    fn add_places(&mut self) -> io::Result<()> {
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
    fn queue_at(&self, place: u32, half: usize, at: usize) -> (&Memory, usize) {
        let (step, place) = (place as usize / PLACES_PER_STEP, place as usize % PLACES_PER_STEP);
        (&self.queues[step], (place * 2 + half) * self.queue_bytes + at)
    }

    /// The place of a connection that is still in it.
    fn find(&self, conn: ConnId) -> Option<u32> {
        let (place, generation) = parts(conn);
        let there = self.conns.get(place as usize)?;
        (there.generation == generation && there.socket.is_some()).then_some(place)
    }

    /// Where the ring holds the socket of a place.
    fn file(&self, place: u32) -> types::Fixed {
        types::Fixed(self.listeners.len() as u32 + place)
    }

    /// Has the connection looked at in the next turn.
    fn note(&mut self, place: u32) {
        if !mem::replace(&mut self.conns[place as usize].is_noted, true) {
            self.noted.push(place);
        }
    }

    fn arm_later(&mut self, place: u32) {
        if !mem::replace(&mut self.conns[place as usize].is_to_be_armed, true) {
            self.to_arm.push(place);
        }
    }

    /// The connection is to end, for the first reason given (a break overrides an order).
    fn end(&mut self, place: u32, why: Close) {
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

    /// Resets a connection that the app has not been told the end of.
    fn reset(&mut self, place: u32, why: Close) {
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
    fn halt(&mut self, place: u32) {
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
    fn queue(&mut self, place: u32, bytes: &[u8]) -> usize {
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
    fn begin_send(&mut self, place: u32) {
        if let Some(half) = self.conns[place as usize].halves.begin() {
            self.send(place, half);
        }
    }

    /// Asks the kernel to take the rest of a half.
    fn send(&mut self, place: u32, half: usize) {
        let (sent, bytes) = self.conns[place as usize].halves.rest(half);
        let (queues, at) = self.queue_at(place, half, sent);
        let start = queues.at(at);
        let (file, length) = (self.file(place), bytes as u32);
        // The kernel goes on by itself when a socket takes only a part.
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let request = if bytes >= self.zero_copy_bytes {
            opcode::SendZc::new(file, start, length).flags(flags).zc_flags(REPORT_USAGE).build()
        } else {
            opcode::Send::new(file, start, length).flags(flags).build()
        };
        let token = token::token(Kind::Send, half as u16, place);
        // SAFETY: the bytes lie in memory that the ring keeps, in a half that nobody writes until its
        // last request has ended.
        if unsafe { self.ring.push(request, token) } {
            self.conns[place as usize].halves.requested(half);
        } else {
            // The kernel wants completions taken first.
            self.unasked.push((id(place, self.conns[place as usize].generation), half));
        }
    }

    /// Takes every completion that is there.
    fn reap(&mut self) -> io::Result<()> {
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

    fn accepted(&mut self, port: usize, completion: Completion) {
        let Some(listener) = self.listeners.get_mut(port) else { return };
        listener.is_armed = completion.has_more();
        let socket = match completion.outcome() {
            // SAFETY: an accept brought it, and nobody else has it.
            Ok(fd) => unsafe { sys::own(fd as i32) },
            Err(error) => {
                let short = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS];
                if error.raw_os_error().is_some_and(|code| short.contains(&code)) {
                    listener.counters.drop_one(DropReason::ConnTableFull);
                    listener.rests = true;
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
        let file = self.listeners.len() as u32 + place;
        if self.ring.fix_file(file, socket.as_raw_fd()).is_err() {
            self.free.push(place);
            return self.listeners[port].counters.drop_one(DropReason::ConnTableFull);
        }
        let conn = &mut self.conns[place as usize];
        conn.occupy(port, socket, peer);
        let conn = id(place, conn.generation);
        self.events.push_back(Event { conn, what: What::Opened });
        self.arm_later(place);
    }

    fn received(&mut self, place: u32, completion: Completion) {
        let Some(conn) = self.conns.get_mut(place as usize) else { return };
        conn.is_armed &= completion.has_more();
        let name = id(place, conn.generation);
        let mut tell = |what| self.events.push_back(Event { conn: name, what });
        // Nothing more will come after an end.
        let mut goes_on = true;
        match (completion.outcome(), completion.buffer()) {
            (Ok(bytes @ 1..), Some(first)) => {
                let counters = &mut self.listeners[conn.port].counters;
                counters.rx_frames += 1;
                counters.rx_bytes += bytes as u64;
                let complete = self.buffers.take_bundle(first, bytes, |buffer, bytes| {
                    tell(What::Bytes { buffer, bytes });
                });
                if !complete {
                    goes_on = false;
                    tell(What::Broken);
                }
            }
            (Ok(bytes), _) => {
                goes_on = false;
                tell(if bytes == 0 { What::Finished } else { What::Broken });
            }
            (Err(error), _) => match error.raw_os_error() {
                // Nothing is lost: the bytes wait in the socket.
                Some(libc::ENOBUFS) => self.rearms += 1,
                Some(libc::ECANCELED | libc::EINTR | libc::EAGAIN) => (),
                _ => {
                    goes_on = false;
                    tell(What::Broken);
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

    fn sent(&mut self, place: u32, half: usize, completion: Completion) {
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

    fn bury_if_dead(&mut self, place: u32) {
        if self.conns[place as usize].is_dying {
            self.bury(place);
        }
    }

    /// Ends the requests of a dying connection; when it has none any more, its place is free.
    fn bury(&mut self, place: u32) {
        let file = self.file(place);
        let conn = &mut self.conns[place as usize];
        let Some(socket) = conn.socket.as_ref() else { return };
        if !conn.is_quiet() {
            sys::shutdown_writing(socket.as_fd());
            let cancel = opcode::AsyncCancel2::new(types::CancelBuilder::fd(file).all()).build();
            // SAFETY: a cancel names no memory.
            if !unsafe { self.ring.push(cancel, CANCEL_TOKEN) } {
                self.note(place);
            }
            return;
        }
        // Emptying a place of the table cannot fail: the table has it.
        let _ = self.ring.fix_file(file.0, -1);
        conn.socket = None;
        conn.is_dying = false;
        // Generations must not wrap; a place that had four billion connections retires.
        if conn.generation < u32::MAX {
            self.free.push(place);
        }
    }

    /// Arms every accept and receive that has ended and should not have.
    fn arm(&mut self) {
        for (port, listener) in self.listeners.iter_mut().enumerate() {
            if listener.is_armed || listener.rests || listener.socket.is_none() {
                continue;
            }
            let file = types::Fixed(port as u32);
            let request = opcode::AcceptMulti::new(file).flags(libc::SOCK_CLOEXEC).build();
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
            let file = self.file(place);
            let conn = &mut self.conns[place as usize];
            let is_read = conn.closing.is_none()
                && !conn.wants_room
                && conn.received.len() <= self.queue_bytes;
            let is_wanted = conn.socket.is_some()
                && !conn.is_armed
                && !conn.is_dying
                && !conn.has_ended
                && (is_read || conn.lingers);
            if is_wanted && self.buffers.has_any() {
                let request = if self.bundle {
                    opcode::RecvMultiBundle::new(file, GROUP).build()
                } else {
                    opcode::RecvMulti::new(file, GROUP).build()
                };
                let token = token::token(Kind::Receive, 0, place);
                // SAFETY: the group's buffers are kept by the ring, and the kernel's while it has
                // them.
                conn.is_armed = unsafe { self.ring.push(request, token) };
            }
            conn.is_to_be_armed = is_wanted && !conn.is_armed;
            conn.is_to_be_armed
        });
        self.to_arm = to_arm;
    }

    /// Puts what was queued, and what is to be armed, on its way.
    fn flush(&mut self) -> io::Result<()> {
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

    /// True when there is something to do without anything arriving.
    fn has_work(&self) -> bool {
        !self.events.is_empty() || !self.noted.is_empty() || !self.unasked.is_empty()
    }
}

/// Where the app puts what it sends.
struct Out<'a> {
    net: &'a mut Net,
}

impl StreamOut for Out<'_> {
    fn send(&mut self, conn: ConnId, bytes: &[u8]) -> usize {
        self.net.find(conn).map_or(0, |place| self.net.queue(place, bytes))
    }

    fn queued(&self, conn: ConnId) -> usize {
        let place = self.net.find(conn);
        place.map_or(0, |place| self.net.conns[place as usize].halves.queued_bytes())
    }

    fn close(&mut self, conn: ConnId) {
        if let Some(place) = self.live(conn) {
            self.net.end(place, Close::App);
        }
    }

    fn abort(&mut self, conn: ConnId) {
        if let Some(place) = self.net.find(conn) {
            self.net.reset(place, Close::App);
        }
    }

    fn pause(&mut self, conn: ConnId) {
        if let Some(place) = self.live(conn) {
            self.net.conns[place as usize].is_paused = true;
            if self.net.conns[place as usize].peer_finished {
                self.net.note(place);
            }
        }
    }

    fn resume(&mut self, conn: ConnId) {
        if let Some(place) = self.live(conn)
            && mem::replace(&mut self.net.conns[place as usize].is_paused, false)
        {
            self.net.conns[place as usize].show_again = true;
            self.net.note(place);
        }
    }
}

impl Out<'_> {
    /// The place of a connection that the app has not closed.
    fn live(&self, conn: ConnId) -> Option<u32> {
        self.net.find(conn).filter(|&place| self.net.conns[place as usize].is_live())
    }
}

impl Lane for UringTcp {
    fn name(&self) -> &'static str {
        NAME
    }

    fn ports(&self) -> usize {
        self.net.listeners.len()
    }

    fn clock_domain(&self) -> ClockDomain {
        ClockDomain::Monotonic
    }

    fn hear(&mut self, bell: &Bell) {
        self.net.ear.hear(bell);
    }

    /// Counted on port 0, as one wait for all ports.
    fn wait(&mut self, timeout: Duration) -> Result<Wake, LaneError> {
        self.net.listeners[0].counters.waits += 1;
        self.net.arm();
        self.net.ear.ask(&mut self.net.ring);
        let has_work = self.net.has_work();
        let timeout = if has_work { Duration::ZERO } else { timeout };
        let came = self.net.ring.wait(timeout).map_err(ring_failed)?;
        Ok(if came || has_work { Wake::Ready } else { Wake::Timeout })
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.net.ring.event())
    }

    fn caps(&self, port: PortId) -> &CapsReport {
        &self.net.listeners[port.index()].caps
    }

    fn counters(&mut self, port: PortId) -> Counters {
        let Net { ring, listeners, buffers, rearms, zero_copies, zero_copies_copied, .. } =
            &mut self.net;
        let listener = &mut listeners[port.index()];
        let mut counters = listener.counters.clone();
        tell_counts(ring, &mut listener.caps, (listener.id.0 == 0).then_some(&mut counters));
        listener.caps.fact("rearms", *rearms);
        listener.caps.fact("buffers_in_use", buffers.in_use());
        if listener.caps.requested.has(Cap::SendZeroCopy) {
            listener.caps.fact("send_zc", *zero_copies);
            listener.caps.fact("send_zc_copied", *zero_copies_copied);
        }
        counters
    }
}

impl StreamLane for UringTcp {
    fn serve<A: StreamApp>(&mut self, app: &mut A, clock: &impl Clock) -> Result<usize, LaneError> {
        if self.is_finished {
            return Ok(0);
        }
        self.turn += 1;
        self.net.ring.submit().map_err(ring_failed)?;
        self.net.reap().map_err(ring_failed)?;
        let has_work = self.net.has_work();
        let mut served = self.show(app);
        served += self.look(app, clock);
        if mem::take(&mut self.called) {
            let turn = Turn { now_ns: clock.now_ns() };
            app.on_turn_end(turn, &mut Out { net: &mut self.net });
        }
        self.net.listeners[0].counters.polls_empty += u64::from(!has_work);
        self.net.flush().map_err(ring_failed)?;
        Ok(served)
    }

    fn tick<A: StreamApp>(&mut self, app: &mut A, turn: Turn) -> Result<(), LaneError> {
        if self.is_finished {
            return Ok(());
        }
        for listener in &mut self.net.listeners {
            listener.rests = false;
        }
        let mut out = Out { net: &mut self.net };
        app.on_tick(turn, &mut out);
        app.on_turn_end(turn, &mut out);
        self.expire(turn.now_ns);
        self.net.flush().map_err(ring_failed)
    }

    /// What is queued and fits the sockets leaves first.
    fn finish<A: StreamApp>(&mut self, app: &mut A, _turn: Turn) {
        if self.is_finished {
            return;
        }
        // A ring that fails now has nothing more to send.
        let _ = self.net.flush();
        for place in 0..self.net.conns.len() {
            if mem::replace(&mut self.net.conns[place].is_open, false) {
                app.on_close(id(place as u32, self.net.conns[place].generation), Close::Stop);
            }
        }
        self.shut();
    }
}

impl Drop for UringTcp {
    fn drop(&mut self) {
        self.shut();
    }
}
