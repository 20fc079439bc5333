//! All connections of a stack: which peers may open one, which of them want attention, and when.
//!
//! Nothing here depends on how many connections there are: a segment finds its connection by a keyed
//! hash of its ends, a timer wheel keeps their times, and only connections that got a segment, a byte
//! of the app, or whose time has come are looked at.
//!
//! What must always hold: every connection is in exactly one slot, known under its ends while the
//! slot is taken; the counts of half-open connections and of those per source agree with the slots;
//! a connection that is over leaves its slot at once, and gives back the memory that it has grown by.

mod admission;
mod challenge;

use self::admission::{Cookies, Newcomer};
use crate::{
    config::TcpLimits,
    connection::{Connection, Phase},
    device::Reply,
    ends::Ends,
    host::{Audience, Flow, Host, Sorted, sender_mac},
    ip::{self, Packet},
    limit::RateLimit,
    listen::Listeners,
    outbox::Hop,
    reset::Segment,
    siphash::Keyed,
    syn::SynOptions,
    wheel::Wheel,
};
use laneway_core::{
    Burst, Close, ConnId, Counters, DropReason, FrameLane, FrameMut, LaneError, Opened, PortId,
    StreamApp, StreamOut, Verdict,
};
use laneway_wire::{ETHERNET_BYTES, Tcp, tcp_flags};
use smoltcp::socket::tcp::State;
use std::{
    collections::{HashMap, VecDeque},
    net::{IpAddr, SocketAddr},
};

/// Frames borrowed at a time: a lane's usual burst.
const LEND_FRAMES_MAX: usize = 64;
/// Attempts to send what [`Connections::finish`] leaves, as far as frames can be had.
const FINISH_ROUNDS_MAX: usize = 64;

/// The table.
pub(crate) struct Connections {
    limits: TcpLimits,
    secret: [u64; 2],
    hop_limit: u8,
    slots: Vec<Connection>,
    free: Vec<u32>,
    index: HashMap<Ends, u32, Keyed>,
    per_source: HashMap<IpAddr, u32, Keyed>,
    half_open: usize,
    lingering: usize,
    /// Connections with larger buffers than they began with, and how many bytes that is more.
    grown: usize,
    grown_bytes: usize,
    /// Lingering connections, oldest first, with the generation that lingers; and some that do not
    /// linger any more.
    lingerers: VecDeque<(u32, u32)>,
    wheel: Wheel,
    /// Slots to look at for the app's sake.
    listed: Vec<u32>,
    /// Slots that may have something to send.
    sending: Vec<u32>,
    /// Memory of the two lists while they are worked off.
    spare_list: Vec<u32>,
    reply: Reply,
    /// The bytes that an app is shown.
    shown: Vec<u8>,
    spill: Vec<u8>,
    resets: RateLimit,
    cookies: Cookies,
    /// The present turn's time.
    now_ns: u64,
    /// Where each port listens.
    listen: Vec<SocketAddr>,
    /// The app was called, and its turn has not ended since.
    pub(crate) called: bool,
    pub(crate) counters: Vec<Counters>,
}

/// How many connections there are, by what they do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// In any state.
    pub total: usize,
    /// Whose handshake is not complete.
    pub half_open: usize,
    /// That have ended for the app and not yet for TCP.
    pub lingering: usize,
    /// That have larger buffers than they began with.
    pub grown: usize,
    /// Bytes that these buffers are larger, of all connections together.
    pub grown_bytes: usize,
    /// Slots with buffers, taken or free: the most connections there ever were at once.
    pub slots: usize,
}

impl Connections {
    pub(crate) fn new(
        limits: TcpLimits,
        secret: [u64; 2],
        hop_limit: u8,
        listen: Vec<SocketAddr>,
    ) -> Connections {
        let resets = limits.resets_per_second;
        Connections {
            secret,
            hop_limit,
            slots: Vec::new(),
            free: Vec::new(),
            index: HashMap::with_hasher(Keyed(secret)),
            per_source: HashMap::with_hasher(Keyed(secret)),
            half_open: 0,
            lingering: 0,
            grown: 0,
            grown_bytes: 0,
            lingerers: VecDeque::new(),
            wheel: Wheel::new(),
            listed: Vec::new(),
            sending: Vec::new(),
            spare_list: Vec::new(),
            reply: Reply::new(),
            shown: Vec::with_capacity(limits.rx_bytes),
            spill: Vec::new(),
            resets: RateLimit::new(resets, resets.min(50)),
            cookies: Cookies::new(limits.syn_cookies_per_second),
            now_ns: 0,
            counters: vec![Counters::default(); listen.len()],
            listen,
            called: false,
            limits,
        }
    }

    pub(crate) fn counts(&self) -> ConnectionCounts {
        ConnectionCounts {
            total: self.index.len(),
            half_open: self.half_open,
            lingering: self.lingering,
            grown: self.grown,
            grown_bytes: self.grown_bytes,
            slots: self.slots.len(),
        }
    }

    /// True when a turn has something to do although nothing arrived.
    pub(crate) fn is_busy(&self) -> bool {
        !(self.listed.is_empty() && self.sending.is_empty())
    }

    /// When the first timer is due.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.wheel.due_ns()
    }

    /// A TCP packet for us, in frame `i` of a burst from `link`.
    pub(crate) fn receive(
        &mut self,
        host: &mut Host,
        listeners: &Listeners,
        (link, burst, i): (PortId, &mut Burst, usize),
        (packet, audience): (&Packet, Audience),
        now_ns: u64,
    ) -> Verdict {
        let bytes = burst.frame(i).bytes;
        let Ok(tcp) = Tcp::parse(packet.payload(bytes)) else {
            return rest(host, DropReason::Malformed);
        };
        let ends = Ends {
            local: SocketAddr::new(packet.destination, tcp.destination_port),
            remote: SocketAddr::new(packet.source, tcp.source_port),
        };
        let known = self.index.get(&ends).copied();
        let listener = listeners.find(ends.local, audience);
        if audience != Audience::Us || (host.pass_rest && known.is_none() && listener.is_none()) {
            return rest(host, DropReason::NoListener);
        }
        let segment = match Segment::parse(bytes, packet) {
            Ok(segment) => segment,
            Err(reason) => {
                let port = known.map(|slot| self.slots[slot as usize].port).or(listener);
                match port {
                    Some(port) => self.counters[usize::from(port)].drop_one(reason),
                    None => host.counters.drop_one(reason),
                }
                return Verdict::Drop;
            }
        };
        if tcp.flags & (tcp_flags::SYN | tcp_flags::RST) != 0
            && let Some(slot) = known
            && let Some(verdict) =
                self.challenge(host, slot, (link, &mut *burst, i), (packet, &segment), now_ns)
        {
            return verdict;
        }
        let opens = tcp.flags & (tcp_flags::SYN | tcp_flags::ACK | tcp_flags::RST)
            == tcp_flags::SYN
            && tcp.source_port != 0;
        let known_as = |slot| (self.slots[slot as usize].state(), self.slots[slot as usize].phase);
        let is_left = |slot| match known_as(slot) {
            // A client that returns to a connection that has ended begins a new one (RFC 9293, 3.6.1;
            // our new number is beyond the old ones).
            (State::TimeWait, Phase::Lingering) => opens,
            // The handshake was reset in this turn. smoltcp would begin the next one with a number of its own.
            (State::Listen, _) => true,
            // It was reset in this turn, or is about to leave its slot.
            (State::Closed, Phase::HalfOpen | Phase::Lingering) => opens,
            _ => false,
        };
        let slot = match known {
            Some(slot) if is_left(slot) => {
                self.release(slot);
                None
            }
            slot => slot,
        };
        let newcomer = listener.map(|port| Newcomer { ends, port, link });
        let is_half_open = |slot| self.slots[slot as usize].state() == State::SynReceived;
        if let Some(newcomer) = newcomer
            && slot.is_none_or(is_half_open)
            && let Some(mss_bytes) = self.cookie_in(&ends, &segment, now_ns)
        {
            // A second SYN may have found room meanwhile; its peer answers the first SYN-ACK.
            if let Some(slot) = slot {
                self.release(slot);
            }
            let (frame, seen) = ((burst, i), (packet, &segment));
            return self.redeem(host, newcomer, frame, seen, (mss_bytes, now_ns));
        }
        let slot = match (slot, newcomer) {
            (Some(slot), _) => slot,
            (None, Some(newcomer)) if opens => match self.admit(host, newcomer, None, now_ns) {
                Ok(slot) => slot,
                Err(refusal) => {
                    let (frame, seen) = ((burst, i), (packet, &segment));
                    return self.refuse(host, newcomer, frame, seen, (refusal, now_ns));
                }
            },
            (None, newcomer) => {
                host.counters.drop_one(DropReason::NoListener);
                if newcomer.is_some() && self.may_be_early(&segment, now_ns) {
                    return Verdict::Drop;
                }
                let (frame, limit) = (&mut burst.frame_mut(i), &mut self.resets);
                return host.reset(link, frame, packet, &segment, (limit, now_ns));
            }
        };
        self.deliver(host, slot, (link, burst, i), (packet, &segment), now_ns)
    }

    /// Gives a packet to its connection; what TCP answers at once leaves in the same frame.
    fn deliver(
        &mut self,
        host: &Host,
        slot: u32,
        (link, burst, i): (PortId, &mut Burst, usize),
        (packet, segment): (&Packet, &Segment),
        now_ns: u64,
    ) -> Verdict {
        let mut frame = burst.frame_mut(i);
        let from = sender_mac(&frame);
        let connection = &mut self.slots[slot as usize];
        if connection.state() == State::Listen {
            let tcp = segment.tcp;
            let options = SynOptions::parse(packet.payload(frame.bytes()), tcp.header_bytes);
            connection.meet(tcp.sequence, options, &self.limits, now_ns);
        }
        if connection.is_overtaken(segment) {
            connection.renew(segment, &mut frame.bytes_mut()[packet.payload.clone()]);
        }
        let bytes = packet.plain(frame.bytes_mut());
        let queued_bytes = connection.queued_bytes();
        if connection.receive(bytes, &mut self.reply, now_ns) {
            connection.peer_mac = from;
            connection.link = link.0 as u8;
            let took = connection.queued_bytes() < queued_bytes;
            if matches!(connection.phase, Phase::Closing(_)) && took {
                // A slow reader may take as long as it likes, if it only reads.
                connection.deadline_ns = now_ns.saturating_add(self.limits.linger_ns);
            }
        }
        connection.follow(segment, now_ns);
        self.list(slot);
        self.let_send(slot);
        if self.reply.is_too_long() {
            self.counters[usize::from(self.slots[slot as usize].port)]
                .drop_one(DropReason::TxTooLong);
        }
        // Most often; the turn's own segments acknowledge it.
        if self.reply.bytes().is_empty() {
            return Verdict::Drop;
        }
        self.answer(host, link, &mut frame, packet)
    }

    /// Makes the frame that brought `packet` what TCP answers to it at once, if that is anything.
    fn answer(
        &self,
        host: &Host,
        link: PortId,
        frame: &mut FrameMut<'_>,
        packet: &Packet,
    ) -> Verdict {
        let reply = self.reply.bytes();
        if reply.is_empty() {
            return Verdict::Drop;
        }
        let from = sender_mac(frame);
        if !frame.set_len(ETHERNET_BYTES + reply.len()) {
            // Shorter than any Ethernet frame: TCP asks again.
            return Verdict::Drop;
        }
        let hop = host.hop(link.0 as u8, from);
        let bytes = frame.bytes_mut();
        ip::emit_ethernet(bytes, hop.to, hop.from, ip::ether_type_of(packet.source));
        bytes[ETHERNET_BYTES..].copy_from_slice(reply);
        Verdict::Tx
    }

    /// A router says that packets of `flow` are too long.
    pub(crate) fn shrink_mtu(&mut self, flow: Flow, mtu_bytes: usize, now_ns: u64) {
        let ends = Ends { local: flow.local, remote: flow.remote };
        if let Some(&slot) = self.index.get(&ends) {
            self.slots[slot as usize].shrink_mtu(mtu_bytes, now_ns);
        }
    }

    /// Empties a slot.
    fn release(&mut self, slot: u32) {
        let connection = &mut self.slots[slot as usize];
        let Ends { remote, .. } = connection.ends;
        match connection.phase {
            Phase::HalfOpen => self.half_open -= 1,
            Phase::Lingering => self.lingering -= 1,
            Phase::Free | Phase::Open | Phase::Closing(_) => (),
        }
        self.index.remove(&connection.ends);
        let was_counted = connection.phase != Phase::Lingering;
        connection.clear();
        let (rx_bytes, tx_bytes) = (self.limits.rx_bytes, self.limits.tx_bytes);
        let more_bytes = connection.buffers_bytes() - (rx_bytes + tx_bytes);
        if more_bytes > 0 {
            connection.shrink(rx_bytes, tx_bytes);
            self.grown -= 1;
            self.grown_bytes -= more_bytes;
        }
        if was_counted {
            self.uncount(remote.ip());
        }
        self.wheel.cancel(slot);
        self.free.push(slot);
    }

    /// Puts a connection on the list of those to look at.
    fn list(&mut self, slot: u32) {
        let connection = &mut self.slots[slot as usize];
        if !std::mem::replace(&mut connection.is_listed, true) {
            self.listed.push(slot);
        }
    }

    /// Puts a connection on the list of those that may have something to send.
    fn let_send(&mut self, slot: u32) {
        let connection = &mut self.slots[slot as usize];
        if !std::mem::replace(&mut connection.is_sending, true) {
            self.sending.push(slot);
        }
    }

    /// Begins a turn: lists the connections whose time has come.
    pub(crate) fn begin(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        while let Some(slot) = self.wheel.take(now_ns) {
            self.list(slot);
            self.let_send(slot);
        }
    }

    /// Tells the app what happened to the listed connections, and shows their bytes. Returns how
    /// many were served.
    pub(crate) fn show<A: StreamApp>(&mut self, app: &mut A) -> usize {
        let mut served = 0;
        let spare = std::mem::take(&mut self.spare_list);
        let mut listed = std::mem::replace(&mut self.listed, spare);
        for &slot in &listed {
            self.slots[slot as usize].is_listed = false;
            served += usize::from(self.look(slot, app));
        }
        listed.clear();
        self.spare_list = listed;
        served
    }

    /// Takes one connection as far as it can get. True if the app was shown something.
    fn look<A: StreamApp>(&mut self, slot: u32, app: &mut A) -> bool {
        let now_ns = self.now_ns;
        let connection = &mut self.slots[slot as usize];
        let id = id_of(slot, connection.generation);
        let mut served = false;
        if connection.phase == Phase::HalfOpen {
            match connection.state() {
                State::SynReceived if now_ns < connection.deadline_ns => return false,
                // No answer in time, or a reset in place of one.
                State::SynReceived | State::Listen | State::Closed => {
                    self.release(slot);
                    return false;
                }
                _ => {
                    connection.phase = Phase::Open;
                    connection.deadline_ns = u64::MAX;
                    connection.opened(now_ns);
                    self.half_open -= 1;
                    let (peer, port) = (connection.ends.remote, connection.port);
                    let local = self.listen[usize::from(port)];
                    let opened = Opened { conn: id, peer, local, port: PortId(port.into()) };
                    app.on_open(opened, &mut Out { table: self });
                    served = true;
                }
            }
        }
        if self.slots[slot as usize].phase == Phase::Open {
            served |= self.report_room(slot, id, app);
            served |= self.show_bytes(slot, id, app);
            served |= self.judge(slot, id, app);
        }
        self.called |= served;
        self.settle_close(slot, id, app);
        served
    }

    /// Tells an app that waits for room in a queue that there is some again.
    fn report_room<A: StreamApp>(&mut self, slot: u32, id: ConnId, app: &mut A) -> bool {
        let connection = &mut self.slots[slot as usize];
        let has_room = connection.has_room_again(self.limits.backlog_bytes_max);
        if has_room {
            connection.wants_room = false;
            connection.show_again = true;
            app.on_room(id, &mut Out { table: self });
        }
        has_room
    }

    /// Shows the bytes of an open connection, if there are new ones or the app may try again.
    fn show_bytes<A: StreamApp>(&mut self, slot: u32, id: ConnId, app: &mut A) -> bool {
        let connection = &mut self.slots[slot as usize];
        if !connection.may_show() {
            return false;
        }
        let readable = connection.readable();
        let again = std::mem::take(&mut connection.show_again);
        let is_new = readable > connection.shown;
        if readable == 0 || !(is_new || again) {
            return false;
        }
        if is_new {
            let counters = &mut self.counters[usize::from(connection.port)];
            counters.rx_frames += 1;
            counters.rx_bytes += (readable - connection.shown) as u64;
        }
        let from_unread = !connection.unread.is_empty();
        let mut shown = if from_unread {
            connection.put_aside(self.limits.unread_bytes_max);
            std::mem::take(&mut connection.unread)
        } else {
            let mut shown = std::mem::take(&mut self.shown);
            connection.peek(&mut shown);
            shown
        };
        let consumed = app.on_bytes(id, &shown, &mut Out { table: self }).min(shown.len());
        let connection = &mut self.slots[slot as usize];
        if from_unread {
            shown.drain(..consumed);
            connection.unread = shown;
        } else {
            self.shown = shown;
            connection.consume(consumed);
        }
        connection.shown = connection.readable();
        if connection.may_show() && connection.is_cramped() {
            connection.put_aside(self.limits.unread_bytes_max);
            let is_full = connection.unread.len() >= self.limits.unread_bytes_max;
            if is_full && connection.is_cramped() {
                // Full and not even looked at: nothing that may still come can change that.
                connection.is_broken |= consumed == 0;
                connection.show_again |= consumed > 0;
                self.list(slot);
            }
        }
        // Taking bytes may reopen the window.
        self.let_send(slot);
        true
    }

    /// Decides whether an open connection ends, and tells the app of a peer that has finished. True if
    /// the app was called.
    fn judge<A: StreamApp>(&mut self, slot: u32, id: ConnId, app: &mut A) -> bool {
        let connection = &mut self.slots[slot as usize];
        if connection.phase != Phase::Open {
            return false; // The app closed it meanwhile.
        }
        if connection.is_broken {
            connection.abort();
            self.close(slot, Close::Error);
        } else if matches!(connection.state(), State::Closed | State::Listen) {
            self.close(slot, Close::Error);
        } else if connection.finish_is_due() {
            connection.finish_reported = true;
            app.on_finish(id, &mut Out { table: self });
            return true;
        }
        false
    }

    /// From here on nothing is shown or accepted.
    fn close(&mut self, slot: u32, why: Close) {
        let connection = &mut self.slots[slot as usize];
        connection.phase = Phase::Closing(why);
        connection.deadline_ns = self.now_ns.saturating_add(self.limits.linger_ns);
        self.let_send(slot);
    }

    /// Tells the app of the end of a connection when what was queued has arrived, and frees the slot
    /// when TCP is done.
    fn settle_close<A: StreamApp>(&mut self, slot: u32, id: ConnId, app: &mut A) {
        let connection = &mut self.slots[slot as usize];
        let is_late = self.now_ns >= connection.deadline_ns;
        match connection.phase {
            Phase::Closing(why) => {
                let is_over = is_late || connection.is_over();
                if connection.is_reset || is_over || connection.state() == State::Closed {
                    let kept = connection.is_flushed() && why != Close::Error;
                    let why = if kept || connection.is_reset { why } else { Close::Error };
                    connection.abort();
                    self.linger(slot);
                    self.called = true;
                    app.on_close(id, why);
                } else if connection.is_flushed() {
                    self.linger(slot);
                    self.called = true;
                    app.on_close(id, why);
                }
            }
            Phase::Lingering if is_late => connection.abort(),
            Phase::Free | Phase::HalfOpen | Phase::Open | Phase::Lingering => return,
        }
        self.let_send(slot);
    }

    /// What an app sends with.
    pub(crate) fn out(&mut self) -> impl StreamOut {
        Out { table: self }
    }

    /// Lets every connection send that has something to send, into borrowed frames.
    pub(crate) fn transmit<L: FrameLane>(
        &mut self,
        host: &mut Host,
        lane: &mut L,
    ) -> Result<(), LaneError> {
        let now_ns = self.now_ns;
        // First those that need no frame drop out: most have just been served.
        let spare = std::mem::take(&mut self.spare_list);
        let mut sending = std::mem::replace(&mut self.sending, spare);
        sending.retain(|&slot| {
            let connection = &mut self.slots[slot as usize];
            if connection.phase == Phase::Free {
                connection.is_sending = false;
                return false;
            }
            let due_ns = self.grow(host, slot).prepare(now_ns);
            let wants = due_ns.is_some_and(|due_ns| due_ns <= now_ns);
            if !wants {
                self.rest_until(slot, due_ns, now_ns);
            }
            wants
        });
        let mut from = 0;
        for link in 0..lane.ports() as u8 {
            let slots = &self.slots;
            // Grouped by link, in order.
            let mut to = from;
            for at in from..sending.len() {
                if slots[sending[at] as usize].link == link {
                    sending.swap(at, to);
                    to += 1;
                }
            }
            let mut spilled = 0;
            while from < to {
                let burst = lane.lend(PortId(link.into()), (to - from).min(LEND_FRAMES_MAX))?;
                let (mut used, borrowed) = (0, burst.len());
                while from < to && used < borrowed {
                    let slot = sending[from];
                    let connection = &mut self.slots[slot as usize];
                    let hop: Hop = host.hop(link, connection.peer_mac);
                    let spill = (&mut self.spill, &mut spilled);
                    if !connection.transmit(burst, &mut used, hop, spill, now_ns) {
                        break;
                    }
                    let due_ns = connection.prepare(now_ns);
                    self.rest_until(slot, due_ns, now_ns);
                    from += 1;
                }
                lane.settle(PortId(link.into()))?;
                if borrowed == 0 {
                    break;
                }
            }
            host.counters.drop_many(DropReason::TxTooLong, spilled);
            // Without frames, the rest of this link waits for the next turn.
            for &slot in &sending[from..to] {
                self.sending.push(slot);
            }
            from = to;
        }
        sending.clear();
        self.spare_list = sending;
        Ok(())
    }

    /// Gives a connection larger buffers, if it wants some, can have them now, and there is memory.
    fn grow(&mut self, host: &mut Host, slot: u32) -> &mut Connection {
        let connection = &mut self.slots[slot as usize];
        if let Some((rx_bytes, tx_bytes)) = connection.wanted_bytes() {
            let has_bytes = connection.buffers_bytes();
            let more_bytes = rx_bytes + tx_bytes - has_bytes;
            let fits = self.grown_bytes + more_bytes <= self.limits.grown_bytes_max;
            let terms = (&self.limits, self.hop_limit);
            let (room, now_ns) = ((&mut self.reply, &mut self.spill), self.now_ns);
            if fits && connection.grow((rx_bytes, tx_bytes), terms, room, now_ns) {
                let is_first = has_bytes == self.limits.rx_bytes + self.limits.tx_bytes;
                self.grown += usize::from(is_first);
                self.grown_bytes += more_bytes;
                host.events.buffers_grown += 1;
            } else {
                connection.stay();
            }
        }
        connection
    }

    /// A connection has nothing to send before `due_ns`.
    fn rest_until(&mut self, slot: u32, due_ns: Option<u64>, now_ns: u64) {
        let backlog_bytes_max = self.limits.backlog_bytes_max;
        let connection = &mut self.slots[slot as usize];
        connection.is_sending = false;
        let over = connection.is_over() || connection.state() == State::Closed;
        match connection.phase {
            Phase::Lingering | Phase::HalfOpen if over => return self.release(slot),
            // The app has to be notified.
            Phase::Open | Phase::Closing(_) if over => return self.list(slot),
            Phase::Open if connection.has_room_again(backlog_bytes_max) => self.list(slot),
            Phase::Closing(_) if connection.is_flushed() => self.list(slot),
            _ => (),
        }
        let connection = &self.slots[slot as usize];
        let due_ns = due_ns.unwrap_or(u64::MAX).min(connection.deadline_ns);
        if due_ns != u64::MAX {
            // Not now again: a connection in that state could not use a frame that it was offered.
            self.wheel.set(slot, due_ns.max(now_ns), now_ns);
        }
    }

    /// Closes every connection for the stop: tells the app, and sends what is queued as far as the
    /// peers' windows let it leave now. One with more than that ends with a reset.
    pub(crate) fn finish<L: FrameLane, A: StreamApp>(
        &mut self,
        host: &mut Host,
        lane: &mut L,
        app: &mut A,
    ) -> Result<(), LaneError> {
        for slot in 0..self.slots.len() as u32 {
            let connection = &mut self.slots[slot as usize];
            let id = id_of(slot, connection.generation);
            match connection.phase {
                Phase::Free => continue,
                Phase::HalfOpen => connection.abort(),
                Phase::Open | Phase::Closing(_) => {
                    app.on_close(id, Close::Stop);
                    self.linger(slot);
                }
                Phase::Lingering => (),
            }
            self.let_send(slot);
        }
        self.send_out(host, lane)?;
        for slot in 0..self.slots.len() as u32 {
            let connection = &mut self.slots[slot as usize];
            if connection.phase == Phase::Lingering && connection.has_backlog() {
                connection.abort();
                self.let_send(slot);
            }
        }
        self.send_out(host, lane)
    }

    fn send_out<L: FrameLane>(&mut self, host: &mut Host, lane: &mut L) -> Result<(), LaneError> {
        for _ in 0..FINISH_ROUNDS_MAX {
            if self.sending.is_empty() {
                break;
            }
            self.transmit(host, lane)?;
        }
        Ok(())
    }

    /// The connection that the app has been notified of, and not of its end.
    fn find(&self, id: ConnId) -> Option<(u32, &Connection)> {
        let (slot, generation) = (id.0 as u32, (id.0 >> 32) as u32);
        let connection = self.slots.get(slot as usize)?;
        let is_known = matches!(connection.phase, Phase::Open | Phase::Closing(_));
        (connection.generation == generation && is_known).then_some((slot, connection))
    }

    /// The connection that the app has not closed.
    fn find_open(&mut self, id: ConnId) -> Option<(u32, &mut Connection)> {
        let (slot, _) = self.find(id)?;
        let connection = &mut self.slots[slot as usize];
        (connection.phase == Phase::Open).then_some((slot, connection))
    }
}

fn rest(host: &mut Host, reason: DropReason) -> Verdict {
    match host.rest(reason) {
        Sorted::Done(verdict) => verdict,
        Sorted::Transport(..) | Sorted::TooBig(..) => Verdict::Drop,
    }
}

fn id_of(slot: u32, generation: u32) -> ConnId {
    ConnId(u64::from(generation) << 32 | u64::from(slot))
}

/// What an app sends with.
struct Out<'a> {
    table: &'a mut Connections,
}

impl StreamOut for Out<'_> {
    fn send(&mut self, conn: ConnId, bytes: &[u8]) -> usize {
        let backlog_bytes_max = self.table.limits.backlog_bytes_max;
        let Some((slot, connection)) = self.table.find_open(conn) else { return 0 };
        let (taken, port) = (connection.send(bytes, backlog_bytes_max), connection.port);
        if taken > 0 {
            let counters = &mut self.table.counters[usize::from(port)];
            counters.tx_frames += 1;
            counters.tx_bytes += taken as u64;
        }
        self.table.let_send(slot);
        taken
    }

    fn queued(&self, conn: ConnId) -> usize {
        self.table.find(conn).map_or(0, |(_, connection)| connection.queued_bytes())
    }

    fn close(&mut self, conn: ConnId) {
        if let Some((slot, connection)) = self.table.find_open(conn) {
            let why = if connection.finish_reported { Close::Peer } else { Close::App };
            self.table.close(slot, why);
            self.table.list(slot);
        }
    }

    fn abort(&mut self, conn: ConnId) {
        if let Some((slot, _)) = self.table.find(conn) {
            let connection = &mut self.table.slots[slot as usize];
            connection.abort();
            connection.is_reset = true;
            self.table.close(slot, Close::App);
            self.table.list(slot);
        }
    }

    fn pause(&mut self, conn: ConnId) {
        if let Some((slot, connection)) = self.table.find_open(conn) {
            connection.is_paused = true;
            if connection.finish_is_due() {
                self.table.list(slot);
            }
        }
    }

    fn resume(&mut self, conn: ConnId) {
        if let Some((slot, connection)) = self.table.find_open(conn)
            && std::mem::replace(&mut connection.is_paused, false)
        {
            connection.show_again = true;
            self.table.list(slot);
        }
    }
}
