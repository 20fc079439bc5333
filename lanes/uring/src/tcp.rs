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

mod net;
mod out;

use crate::{
    buffers::{Buffers, Layout},
    config::{NAME, TcpConfig},
    conn::id,
    ear::Ear,
    grant::{Grant, report_counts, ring_failed},
    memory::Memory,
    socket, sys,
    sys::failed,
    udp::check_ports,
};
use laneway_core::{
    Bell, Cap, CapsReport, Clock, ClockDomain, Close, Counters, DropReason, Lane, LaneError,
    Opened, PortId, StreamApp, StreamLane, Turn, Wake,
};
use laneway_linux::{Reserve, connections_max};
use laneway_spec::LaneSpec;
use net::{Event, Listener, Net, What, ended_at_last};
use out::Out;
use std::{
    collections::VecDeque,
    mem,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd},
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
        let (conns_max, fewer) = connections_max(NAME, config.conns_wanted(), opened.len())?;
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
        let reserve =
            Reserve::open().map_err(failed("open a spare descriptor", "raise `ulimit -n`"))?;
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
            reserve,
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
        let mut called = false;
        if conn.is_live() && conn.has_room_again(queue_bytes) {
            conn.wants_room = false;
            conn.show_again = true;
            called = true;
            app.on_room(name, &mut Out { net: &mut self.net });
            // Also if the app pauses now: the end of its peer is to be seen.
            self.net.arm_later(place);
        }
        let conn = &mut self.net.conns[place as usize];
        if conn.show_again && conn.may_show() {
            conn.show_again = false;
            called |= deliver(&mut self.net, app, place, &[]);
            self.net.arm_later(place);
        }
        let conn = &mut self.net.conns[place as usize];
        if conn.finish_is_due() {
            conn.finish_reported = true;
            called = true;
            app.on_finish(name, &mut Out { net: &mut self.net });
        }
        called
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
            let is_peers = in_order && conn.finish_reported;
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
        self.net.conns.iter_mut().for_each(|conn| conn.is_open = false);
        // Without memory for requests the kernel takes none: then sockets go with the lane, behind the ring.
        if !self.net.ring.has_queued() {
            self.net.close_sockets();
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
        let is_ready = self.net.ring.wait(timeout).map_err(ring_failed)?;
        Ok(if is_ready || has_work { Wake::Ready } else { Wake::Timeout })
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
        report_counts(ring, &mut listener.caps, (listener.id.0 == 0).then_some(&mut counters));
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
        self.net.reserve.renew();
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
