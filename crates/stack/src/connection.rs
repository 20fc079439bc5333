//! One TCP connection: smoltcp's socket with an interface of its own, and what lies around it.
//!
//! ```text
//!   segment ─▶ socket's receive buffer ──▶ app      (what it leaves unread may move to `unread`)
//!   app ─▶ socket's send buffer ─▶ free frames      (what does not fit waits in `backlog`)
//! ```
//!
//! An interface and a set of one socket per connection cost a few hundred bytes and make every
//! operation independent of how many connections there are; a shared set is searched from its
//! beginning for every packet. The memory of a connection serves the next one in its slot.
//!
//! smoltcp is given whole, checked packets, and never asked to send without a frame to send in: it
//! would take a fast retransmission for done.

mod challenge;

use crate::{
    config::TcpLimits,
    device::{Egress, Ingress, ReadOnlyDevice, Reply},
    ends::Ends,
    growth::Growth,
    ip, isn,
    limit::RateLimit,
    outbox::Hop,
    recovery::{self, Looked, Recovery},
    reset::Segment,
    sequence::{Received, Scale, Sent},
    syn::{Imagined, SynOptions, WINDOW_SHIFT_MAX},
};
use laneway_core::{Burst, Close};
use laneway_wire::{IPV6_BYTES, Mac, TCP_BYTES_MIN, tcp_flags};
use smoltcp::{
    iface::{Config, Interface, PollResult, SocketHandle, SocketSet},
    socket::tcp::{CongestionControl, Socket, SocketBuffer, State},
    time::{Duration, Instant},
    wire::{HardwareAddress, IpCidr, IpListenEndpoint},
};
/// Memory that a closed connection keeps for the next one's unread bytes or backlog.
const KEPT_BYTES_MAX: usize = 16 << 10;

/// A segment that congestion control counts as carried: what it begins with, so that it
/// has room for one from the start.
const STEP_BYTES: usize = 1024;

/// How far a connection is, for the app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The slot is free.
    Free,
    /// The handshake is not complete; the app knows nothing.
    HalfOpen,
    /// The app was notified that it opened.
    Open,
    /// Nothing more is shown or accepted; what is queued is still sent, then the app is notified.
    Closing(Close),
    /// The app was notified that it closed; TCP has to finish.
    Lingering,
}

/// A slot for a connection.
pub(crate) struct Connection {
    pub(crate) phase: Phase,
    /// How many connections this slot had before; part of the id.
    pub(crate) generation: u32,
    pub(crate) ends: Ends,
    /// The port of the stack that accepted it, and the interface that received it.
    pub(crate) port: u8,
    pub(crate) link: u8,
    /// Where segments go: the MAC address of the last segment that moved the connection. A host
    /// that can send such a one knows its sequence numbers.
    pub(crate) peer_mac: Mac,
    mtu_bytes: usize,
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    /// When the handshake, or the closing, must be over.
    pub(crate) deadline_ns: u64,
    /// On the list of connections to look at, and to let send.
    pub(crate) is_listed: bool,
    pub(crate) is_sending: bool,
    /// Bytes that were shown and left, at the last look.
    pub(crate) shown: usize,
    /// A send took less than given, and the app has not been notified of room since.
    pub(crate) wants_room: bool,
    /// The app wants to see no bytes.
    pub(crate) is_paused: bool,
    /// What is left is shown although nothing new arrived.
    pub(crate) show_again: bool,
    /// The app was notified that the peer has finished.
    pub(crate) finish_reported: bool,
    /// The app aborted it.
    pub(crate) is_reset: bool,
    /// The app waits for more than it may leave unread.
    pub(crate) is_broken: bool,
    /// Bytes that the app left and that made way for new ones in the receive buffer.
    pub(crate) unread: Vec<u8>,
    /// Bytes that the send buffer had no room for; those before `backlog_at` have moved on.
    backlog: Vec<u8>,
    backlog_at: usize,
    finished: bool,
    sent: Sent,
    received: Received,
    recovery: Recovery,
    challenges: RateLimit,
    /// What the peer's SYN stated.
    peer: SynOptions,
    /// When the SYN arrived; nothing if it left no trace.
    syn_ns: Option<u64>,
    growth: Growth,
    /// What the receive and the send buffer may grow to.
    rx_bytes_max: usize,
    tx_bytes_max: usize,
}

pub(crate) fn instant(now_ns: u64) -> Instant {
    Instant::from_micros((now_ns / 1000) as i64)
}

fn duration(ns: u64) -> Duration {
    Duration::from_micros(ns / 1000)
}

fn interface(ends: Ends, seed: u64, mtu_bytes: usize, now_ns: u64) -> Interface {
    let mut reply = Reply::new();
    let mut config = Config::new(HardwareAddress::Ip);
    config.random_seed = seed;
    let mut device = Ingress::new(&[], &mut reply, mtu_bytes);
    let mut interface = Interface::new(config, &mut device, instant(now_ns));
    let own = ends.local.ip();
    let bits = if own.is_ipv4() { 32 } else { 128 };
    interface.update_ip_addrs(|addresses| {
        let pushed = addresses.push(IpCidr::new(own.into(), bits));
        debug_assert!(pushed.is_ok(), "an interface has room for an address");
    });
    interface
}

fn socket(rx_bytes: usize, tx_bytes: usize) -> Socket<'static> {
    let buffer = |bytes: usize| SocketBuffer::new(vec![0; bytes]);
    Socket::new(buffer(rx_bytes), buffer(tx_bytes))
}

impl Connection {
    /// A free slot with its buffers.
    pub(crate) fn new(limits: &TcpLimits, ends: Ends) -> Connection {
        let mut sockets = SocketSet::new(Vec::with_capacity(1));
        let handle = sockets.add(socket(limits.rx_bytes, limits.tx_bytes));
        Connection {
            phase: Phase::Free,
            generation: 0,
            ends,
            port: 0,
            link: 0,
            peer_mac: [0; 6],
            mtu_bytes: crate::config::MTU_BYTES_MIN,
            interface: interface(ends, 0, crate::config::MTU_BYTES_MIN, 0),
            sockets,
            handle,
            deadline_ns: u64::MAX,
            is_listed: false,
            is_sending: false,
            shown: 0,
            wants_room: false,
            is_paused: false,
            show_again: false,
            finish_reported: false,
            is_reset: false,
            is_broken: false,
            unread: Vec::new(),
            backlog: Vec::new(),
            backlog_at: 0,
            finished: false,
            sent: Sent::default(),
            received: Received::default(),
            recovery: Recovery::default(),
            challenges: challenge::limit(),
            peer: SynOptions::of_mss(0),
            syn_ns: None,
            growth: Growth::new(0, 0, u64::MAX, 0),
            rx_bytes_max: 0,
            tx_bytes_max: 0,
        }
    }

    /// Makes the slot ready for a SYN between `ends`. False if the socket refuses, which it has no
    /// reason to.
    #[must_use]
    pub(crate) fn listen(
        &mut self,
        ends: Ends,
        (seed, mtu_bytes): (u64, usize),
        limits: &TcpLimits,
        hop_limit: u8,
        now_ns: u64,
    ) -> bool {
        self.ends = ends;
        self.mtu_bytes = mtu_bytes;
        self.interface = interface(ends, seed, mtu_bytes, now_ns);
        self.phase = Phase::HalfOpen;
        self.deadline_ns = now_ns.saturating_add(limits.handshake_ns);
        self.tx_bytes_max = limits.window_bytes_max.max(limits.tx_bytes);
        self.socket().abort();
        self.listens(limits, hop_limit)
    }

    /// Makes the socket, which is closed, wait for a SYN.
    fn listens(&mut self, limits: &TcpLimits, hop_limit: u8) -> bool {
        let own = self.ends.local;
        let endpoint = IpListenEndpoint { addr: Some(own.ip().into()), port: own.port() };
        let socket = self.socket();
        if socket.listen(endpoint).is_err() {
            return false;
        }
        // The app gathers a turn's replies by itself; waiting for more would only add delay.
        socket.set_nagle_enabled(false);
        socket.set_congestion_control(CongestionControl::Reno);
        socket.set_hop_limit(Some(hop_limit));
        socket.set_keep_alive(Some(duration(limits.keep_alive_ns)));
        socket.set_timeout(Some(duration(limits.timeout_ns)));
        true
    }

    /// A SYN comes to a socket that listens. It learns now what the windows of this connection may
    /// come to be.
    pub(crate) fn meet(
        &mut self,
        sequence: u32,
        options: SynOptions,
        limits: &TcpLimits,
        now_ns: u64,
    ) {
        self.received = Received::behind_syn(sequence);
        self.peer = options;
        self.syn_ns = Some(now_ns);
        let window_bytes_max = limits.window_bytes_max.max(limits.rx_bytes);
        self.rx_bytes_max = match options.window_shift {
            Some(_) => window_bytes_max,
            // One more than an unscaled window can state.
            None => window_bytes_max.min(1 << u16::BITS).max(limits.rx_bytes),
        };
        self.sent.scale = match options.window_shift {
            Some(_) => {
                let socket = Scale::of(self.seen().recv_capacity());
                Scale { socket, promised: Scale::of(window_bytes_max).min(WINDOW_SHIFT_MAX) }
            }
            None => Scale::default(),
        };
    }

    /// The handshake is complete: from here on windows are watched.
    pub(crate) fn opened(&mut self, now_ns: u64) {
        let round_ns = self.syn_ns.map_or(u64::MAX, |syn_ns| now_ns.saturating_sub(syn_ns));
        let window_bytes = self.seen().recv_capacity();
        self.growth = Growth::new(self.received.end, window_bytes, round_ns, now_ns);
        self.recovery = Recovery::new(self.received.acknowledged, round_ns, now_ns);
    }

    /// Looks at a segment that [`Connection::receive`] was given.
    pub(crate) fn follow(&mut self, segment: &Segment, now_ns: u64) {
        let buffer_bytes = self.seen().recv_capacity();
        let tcp = segment.tcp;
        let is_duplicate = tcp.flags & tcp_flags::ACK != 0
            && segment.sequence_bytes == 0
            && tcp.acknowledgement == self.received.acknowledged
            && tcp.window == self.received.window;
        self.received.follow(segment, buffer_bytes);
        self.growth.receive(self.received.end, buffer_bytes, now_ns);
        let acknowledged = self.received.acknowledged;
        let sent = self.sent.end.unwrap_or(acknowledged);
        let looked = Looked { acknowledged, sent, is_duplicate };
        if self.recovery.look(looked, now_ns) && self.under_way_bytes() > 0 {
            self.send_again(false, now_ns);
        }
    }

    /// Bytes that were sent and not acknowledged.
    fn under_way_bytes(&self) -> usize {
        match self.seen().send_queue() {
            // A FIN counts for a byte in what was sent.
            0 => 0,
            _ => self.received.under_way_bytes(&self.sent),
        }
    }

    /// Has smoltcp send the first segment again that is not acknowledged, by showing it what it does that for: three
    /// duplicate acknowledgements. It counts them from the last new one; where it may have counted three already, two
    /// changes of the window begin anew.
    fn send_again(&mut self, has_counted: bool, now_ns: u64) {
        let Received { acknowledged, window, .. } = self.received;
        let sequence = self.next_of_peer();
        let windows = [window ^ 1, window].into_iter().filter(|_| has_counted);
        let duplicates = std::iter::repeat_n(window, recovery::DUPLICATES.into());
        let mut reply = Reply::new();
        for window in windows.chain(duplicates) {
            let segment = Imagined::segment(self.ends, (sequence, acknowledged, window), 0);
            self.receive(segment.bytes(), &mut reply, now_ns);
        }
    }

    /// Sends the first segment again that is not acknowledged, if it is time to. Returns when it will be.
    fn probe(&mut self, now_ns: u64) -> Option<u64> {
        let due_ns = self.probe_due_ns()?;
        match self.sent.end {
            Some(sent) if due_ns <= now_ns => {
                self.recovery.probe(sent, now_ns);
                self.send_again(true, now_ns);
                self.probe_due_ns()
            }
            _ => Some(due_ns),
        }
    }

    fn probe_due_ns(&self) -> Option<u64> {
        let can_send = matches!(self.state(), State::Established | State::CloseWait);
        let mss_bytes = usize::from(self.peer.mss_bytes);
        self.recovery.due_ns(self.under_way_bytes(), mss_bytes).filter(|_| can_send)
    }

    /// Takes a socket that listens through a handshake that the app never sees, as far as its SYN-ACK: the
    /// SYN's number and window are given, its options are known, and the next segment acknowledges the
    /// SYN-ACK.
    pub(crate) fn imagine_syn(
        &mut self,
        (sequence, window): (u32, u16),
        (reply, sent): (&mut Reply, &mut Vec<u8>),
        now_ns: u64,
    ) {
        let syn = Imagined::syn(self.ends, sequence, window, &self.peer);
        self.syn_ns = None;
        self.receive(syn.bytes(), reply, now_ns);
        self.send_nowhere(sent, now_ns);
        self.sent.follow(sent);
    }

    /// Lets TCP send one packet that never leaves.
    fn send_nowhere(&mut self, sent: &mut Vec<u8>, now_ns: u64) {
        let mut device = ReadOnlyDevice { sent, mtu_bytes: self.mtu_bytes };
        self.interface.poll_egress(instant(now_ns), &mut device, &mut self.sockets);
    }

    /// The buffers that the connection should have, if it wants larger ones and nothing is under way
    /// that only its socket knows.
    pub(crate) fn wanted_bytes(&mut self) -> Option<(usize, usize)> {
        let Growth { wants_receive, wants_send, .. } = self.growth;
        if !(wants_receive || wants_send) || self.phase != Phase::Open {
            return None;
        }
        let socket = self.seen();
        let (rx_bytes, tx_bytes) = (socket.recv_capacity(), socket.send_capacity());
        let all_acknowledged = socket.send_queue() == 0;
        let all_taken = socket.recv_queue() == 0 && !self.received.has_holes();
        // A new socket would not ask again after a window that is closed.
        let may_send = socket.state() == State::Established && self.received.window > 0;
        if !(all_acknowledged && all_taken && may_send) {
            if all_acknowledged {
                self.growth.give_up();
            }
            return None;
        }
        let double = |wants, bytes: usize, bytes_max| match wants {
            true => (2 * bytes).min(bytes_max).max(bytes),
            false => bytes,
        };
        let wanted = (
            double(wants_receive, rx_bytes, self.rx_bytes_max),
            double(wants_send, tx_bytes, self.tx_bytes_max),
        );
        if wanted == (rx_bytes, tx_bytes) {
            self.growth.give_up();
            return None;
        }
        Some(wanted)
    }

    /// The connection stays as it is for now.
    pub(crate) fn stay(&mut self) {
        self.growth.give_up();
    }

    /// Bytes of both buffers.
    pub(crate) fn buffers_bytes(&self) -> usize {
        self.seen().recv_capacity() + self.seen().send_capacity()
    }

    /// Gives the connection, of which nothing is under way, a socket with larger buffers: a handshake
    /// that the app never sees ends with the numbers of now. False, and nothing changed, if smoltcp does not
    /// take them.
    #[must_use]
    pub(crate) fn grow(
        &mut self,
        (rx_bytes, tx_bytes): (usize, usize),
        (limits, hop_limit): (&TcpLimits, u8),
        (reply, sent): (&mut Reply, &mut Vec<u8>),
        now_ns: u64,
    ) -> bool {
        let Received { end: theirs, acknowledged: own, window, .. } = self.received;
        let ends = self.ends;
        let their_byte = |ago: u32, acknowledgement, bytes| {
            Imagined::segment(ends, (theirs.wrapping_sub(ago), acknowledgement, window), bytes)
        };
        let proven_bytes = self.proven_bytes();
        let first = own.wrapping_sub(proven_bytes as u32);
        let seed = isn::seed_for(first.wrapping_sub(1));
        let fresh = interface(ends, seed, self.mtu_bytes, now_ns);
        let before = (
            std::mem::replace(&mut self.interface, fresh),
            std::mem::replace(self.socket(), socket(rx_bytes, tx_bytes)),
            self.sent,
            self.received,
        );
        let listens = self.listens(limits, hop_limit);
        self.imagine_syn((theirs.wrapping_sub(2), window), (reply, sent), now_ns);
        self.receive(their_byte(1, first, 0).bytes(), reply, now_ns);
        // Slow start would take as many round trips again as it took before, with this buffer as with
        // the last one. What the path has carried is not carried once more.
        for at in (STEP_BYTES..=proven_bytes).step_by(STEP_BYTES) {
            let taken = self.socket().send_slice(&[0; STEP_BYTES]);
            debug_assert_eq!(taken, Ok(STEP_BYTES), "the buffer is empty");
            self.send_nowhere(sent, now_ns);
            let acknowledgement = first.wrapping_add(at as u32);
            self.receive(their_byte(1, acknowledgement, 0).bytes(), reply, now_ns);
        }
        // smoltcp takes the window of its SYN-ACK for a shifted one, and would let the peer send more
        // than there is room for. Its answer to an old byte, which goes nowhere, sets that right.
        self.receive(their_byte(2, own, 1).bytes(), reply, now_ns);
        // The peer has to learn the new window: a byte that was received is received again, so that
        // this turn ends with an acknowledgement.
        let delay = self.socket().ack_delay();
        self.socket().set_ack_delay(None);
        self.receive(their_byte(1, own, 1).bytes(), reply, now_ns);
        self.socket().set_ack_delay(delay);
        let queues = (self.seen().recv_queue(), self.seen().send_queue());
        let is_there = listens && self.state() == State::Established && queues == (1, 0);
        self.consume(1);
        (self.sent, self.received) = (before.2, before.3);
        self.sent.end = Some(own);
        if !is_there {
            self.interface = before.0;
            *self.socket() = before.1;
            return false;
        }
        if self.peer.window_shift.is_some() {
            self.sent.scale.socket = Scale::of(rx_bytes);
        }
        (self.growth.wants_receive, self.growth.wants_send) = (false, false);
        true
    }

    /// How much the path is known to carry at once: the send buffer, if all of it has been under way,
    /// and none of it was lost.
    fn proven_bytes(&self) -> usize {
        let window_bytes = usize::from(self.received.window) << self.peer.window_shift.unwrap_or(0);
        let fits = usize::from(self.peer.mss_bytes) >= STEP_BYTES
            && self.mtu_bytes >= STEP_BYTES + IPV6_BYTES + TCP_BYTES_MIN
            && window_bytes >= STEP_BYTES;
        let is_proven = self.growth.wants_send && !self.sent.has_repeated && fits;
        if is_proven { self.seen().send_capacity() / STEP_BYTES * STEP_BYTES } else { 0 }
    }

    /// Gives a free slot buffers of these sizes, if it has larger ones.
    pub(crate) fn shrink(&mut self, rx_bytes: usize, tx_bytes: usize) {
        *self.socket() = socket(rx_bytes, tx_bytes);
    }

    /// Empties the slot.
    pub(crate) fn clear(&mut self) {
        self.socket().abort();
        self.phase = Phase::Free;
        self.generation = self.generation.wrapping_add(1);
        self.deadline_ns = u64::MAX;
        self.shown = 0;
        self.wants_room = false;
        self.is_paused = false;
        self.show_again = false;
        self.finish_reported = false;
        self.is_reset = false;
        self.is_broken = false;
        self.backlog_at = 0;
        self.finished = false;
        self.sent = Sent::default();
        self.recovery = Recovery::default();
        self.challenges = challenge::limit();
        for memory in [&mut self.unread, &mut self.backlog] {
            memory.clear();
            memory.shrink_to(KEPT_BYTES_MAX);
        }
    }

    fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut::<Socket<'static>>(self.handle)
    }

    fn seen(&self) -> &Socket<'static> {
        self.sockets.get::<Socket<'static>>(self.handle)
    }

    pub(crate) fn state(&self) -> State {
        self.seen().state()
    }

    /// True when TCP has nothing more to do: reset, or ended, and nothing left to say.
    pub(crate) fn is_over(&self) -> bool {
        self.seen().remote_endpoint().is_none()
    }

    /// The smallest path MTU reported so far.
    pub(crate) fn shrink_mtu(&mut self, mtu_bytes: usize, now_ns: u64) {
        if mtu_bytes < self.mtu_bytes {
            self.mtu_bytes = mtu_bytes;
            // Its sequence numbers are drawn already: the seed no longer matters.
            self.interface = interface(self.ends, 0, mtu_bytes, now_ns);
        }
    }

    /// Lets TCP look at a packet of this connection. True if the packet moved the connection.
    pub(crate) fn receive(&mut self, packet: &[u8], reply: &mut Reply, now_ns: u64) -> bool {
        let look = |socket: &Socket<'_>| (socket.state(), socket.recv_queue(), socket.send_queue());
        let before = look(self.seen());
        let mut device = Ingress::new(packet, reply, self.mtu_bytes);
        self.interface.poll_ingress_single(instant(now_ns), &mut device, &mut self.sockets);
        self.sent.follow(reply.bytes_mut());
        let after = look(self.seen());
        if before.0 == State::SynReceived && after.0 != before.0 {
            // Nothing but the SYN-ACK was sent. Not later: this segment states the peer's window.
            self.received.open(self.sent.end.unwrap_or_default());
        }
        self.received.take(after.1 - before.1, before.2 - after.2);
        after != before
    }

    /// Bytes that wait for the app.
    pub(crate) fn readable(&self) -> usize {
        self.unread.len() + self.seen().recv_queue()
    }

    /// Copies the receive buffer's bytes to `into`, in one piece, and leaves them there.
    pub(crate) fn peek(&mut self, into: &mut Vec<u8>) {
        let bytes = self.seen().recv_queue();
        into.resize(bytes, 0);
        // It fails in no state: it looks at the buffer alone.
        let peeked = self.socket().peek_slice(into).unwrap_or(0);
        into.truncate(peeked);
    }

    /// Takes `bytes` from the receive buffer.
    pub(crate) fn consume(&mut self, bytes: usize) {
        let mut left = bytes;
        while left > 0 {
            // The buffer is a ring: two pieces at most.
            let taken = self.socket().recv(|piece| {
                let taken = piece.len().min(left);
                (taken, taken)
            });
            match taken {
                Ok(taken) if taken > 0 => left -= taken,
                _ => break,
            }
        }
    }

    /// Moves what fits under `unread_bytes_max` from the receive buffer to the unread bytes.
    pub(crate) fn put_aside(&mut self, unread_bytes_max: usize) {
        let bytes =
            self.seen().recv_queue().min(unread_bytes_max.saturating_sub(self.unread.len()));
        let at = self.unread.len();
        self.unread.resize(at + bytes, 0);
        let mut unread = std::mem::take(&mut self.unread);
        let taken = self.socket().recv_slice(&mut unread[at..]).unwrap_or(0);
        unread.truncate(at + taken);
        self.unread = unread;
    }

    /// True when half of the receive buffer is taken by bytes that the app left: the peer may hold
    /// back whole segments for want of a window.
    pub(crate) fn is_cramped(&self) -> bool {
        let socket = self.seen();
        socket.recv_queue() * 2 > socket.recv_capacity()
    }

    /// True when the peer reported that it sends nothing more, and all it sent has arrived.
    pub(crate) fn peer_finished(&self) -> bool {
        matches!(self.state(), State::CloseWait | State::LastAck | State::Closing | State::TimeWait)
    }

    /// Bytes that may be queued, and those that are.
    fn queue(&self, backlog_bytes_max: usize) -> (usize, usize) {
        (self.seen().send_capacity() + backlog_bytes_max, self.queued_bytes())
    }

    /// Bytes queued that the peer has not acknowledged.
    pub(crate) fn queued_bytes(&self) -> usize {
        if self.is_reset { 0 } else { self.seen().send_queue() + self.waiting_bytes() }
    }

    fn waiting_bytes(&self) -> usize {
        self.backlog.len() - self.backlog_at
    }

    /// Queues as much of `bytes` as there is room for; returns how many.
    pub(crate) fn send(&mut self, bytes: &[u8], backlog_bytes_max: usize) -> usize {
        let (most, queued) = self.queue(backlog_bytes_max);
        let taken = bytes.len().min(most.saturating_sub(queued));
        self.wants_room |= taken < bytes.len();
        let mut rest = &bytes[..taken];
        if self.waiting_bytes() == 0 {
            match self.socket().send_slice(rest) {
                Ok(sent) => rest = &rest[sent..],
                // The connection ends; the app will be notified.
                Err(_) => return 0,
            }
        } else if self.backlog_at > self.backlog.len() / 2 {
            // Each byte is moved once at most, on average.
            self.backlog.drain(..self.backlog_at);
            self.backlog_at = 0;
        }
        self.backlog.extend_from_slice(rest);
        taken
    }

    /// The app waits for room, and half of the queue is free.
    pub(crate) fn has_room_again(&self, backlog_bytes_max: usize) -> bool {
        let (most, queued) = self.queue(backlog_bytes_max);
        self.wants_room && queued * 2 <= most
    }

    /// Bytes may be shown to the app.
    pub(crate) fn may_show(&self) -> bool {
        self.phase == Phase::Open && !self.wants_room && !self.is_paused
    }

    /// The app is to be notified that the peer has finished: it saw all there was to see, or is paused.
    pub(crate) fn finish_is_due(&self) -> bool {
        let seen = self.is_paused || !self.wants_room && !self.show_again;
        self.phase == Phase::Open && seen && self.peer_finished() && !self.finish_reported
    }

    /// True when everything queued was sent and acknowledged.
    pub(crate) fn is_flushed(&self) -> bool {
        self.backlog.is_empty() && self.seen().send_queue() == 0
    }

    /// True when more is queued than the send buffer holds.
    pub(crate) fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Breaks the connection; a reset is sent when there is a frame for it.
    pub(crate) fn abort(&mut self) {
        self.socket().abort();
        self.backlog_at = 0;
        self.backlog.clear();
    }

    /// Fills the send buffer from the backlog and, when a closing connection has nothing left,
    /// queues the FIN. Gives when TCP next wants to send.
    pub(crate) fn prepare(&mut self, now_ns: u64) -> Option<u64> {
        if self.has_backlog() {
            let under_way_bytes = self.received.under_way_bytes(&self.sent);
            let buffer_bytes = self.seen().send_capacity();
            if buffer_bytes < self.tx_bytes_max && self.phase == Phase::Open {
                let wanted = self.growth.wants_send;
                self.growth.send(under_way_bytes, buffer_bytes);
                self.sent.has_repeated &= wanted;
            }
        }
        if self.has_backlog() && !self.is_draining() {
            let Connection { sockets, handle, backlog, backlog_at, .. } = self;
            let socket = sockets.get_mut::<Socket<'static>>(*handle);
            *backlog_at += socket.send_slice(&backlog[*backlog_at..]).unwrap_or(0);
            if *backlog_at == backlog.len() {
                backlog.clear();
                *backlog_at = 0;
            }
        }
        let closes = matches!(self.phase, Phase::Closing(_) | Phase::Lingering);
        if closes && self.backlog.is_empty() && !self.finished {
            self.finished = true;
            self.socket().close();
        }
        if closes {
            // The app reads no more; a full buffer would stop the peer from ending.
            let unread = self.seen().recv_queue();
            self.consume(unread);
        }
        // First: what is sent again is due at once.
        let probe_due_ns = self.probe(now_ns);
        [self.due_ns(now_ns), probe_due_ns].into_iter().flatten().min()
    }

    /// The send buffer is let run empty, so that a larger one can take its place.
    fn is_draining(&self) -> bool {
        self.growth.wants_send && self.phase == Phase::Open && self.seen().send_queue() > 0
    }

    fn due_ns(&mut self, now_ns: u64) -> Option<u64> {
        let due = self.interface.poll_at(instant(now_ns), &self.sockets)?;
        Some(due.total_micros().max(0) as u64 * 1000)
    }

    /// Lets TCP send in frames of `burst` from `used` on. False when it would send more than there
    /// are frames.
    pub(crate) fn transmit(
        &mut self,
        burst: &mut Burst,
        used: &mut usize,
        hop: Hop,
        spill: (&mut Vec<u8>, &mut u64),
        now_ns: u64,
    ) -> bool {
        let before = (self.sent.end, self.under_way_bytes());
        let is_done = self.fill(burst, used, hop, spill, now_ns);
        if let Some(end) = self.sent.end
            && before.0 != Some(end)
        {
            self.recovery.send(end, before.1, now_ns);
        }
        is_done
    }

    /// Does so, and looks at nothing.
    fn fill(
        &mut self,
        burst: &mut Burst,
        used: &mut usize,
        hop: Hop,
        spill: (&mut Vec<u8>, &mut u64),
        now_ns: u64,
    ) -> bool {
        let mut device = Egress {
            burst,
            used,
            hop,
            ether_type: ip::ether_type_of(self.ends.remote.ip()),
            mtu_bytes: self.mtu_bytes,
            sent: &mut self.sent,
            spill: spill.0,
            spilled: spill.1,
        };
        let now = instant(now_ns);
        loop {
            if *device.used == device.burst.len() {
                return false;
            }
            let sent = self.interface.poll_egress(now, &mut device, &mut self.sockets);
            let due = self.interface.poll_at(now, &self.sockets);
            if sent == PollResult::None || due.is_none_or(|due| due > now) {
                return true;
            }
        }
    }
}

#[cfg(test)]
mod tests;
