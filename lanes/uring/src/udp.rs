//! Datagram ports: UDP sockets, one multishot `recvmsg` each (armed, or a look: `receiving.rs`), sends
//! gathered into trains.
//!
//! ```text
//!   kernel ─▶ provided buffer ─▶ completion ─▶ arrivals ─▶ Datagram (in place) ─▶ app
//!      ▲                                                                         │ forward, send
//!      └── give ◀── the app's call is over, and every message with it has left ◀─┘
//! ```
//!
//! What must always hold: a provided buffer is given back when nobody looks at it: neither the app
//! (one hold while its call lasts) nor a message in flight (one hold each). A receive that ended,
//! for want of buffers or for any other reason, is armed again as soon as the kernel has a buffer to
//! receive into; until then datagrams wait in the socket, and what does not fit there is counted.
//!
//! It waits for no room to send: a datagram that the socket does not take now is counted.

use crate::{
    address,
    arrival::{Fields, Message, Notes},
    buffers::{Buffers, Layout},
    config::{NAME, UdpConfig},
    grant::{Grant, ring_failed, tell_counts},
    memory::Memory,
    receiving::{Receiving, Step},
    ring::{Completion, Ring},
    socket, sys,
    sys::failed,
    token::{self, Kind},
    trains::{Goal, Hold, Trains, drop_reason, fall_back},
};
use laneway_core::{
    CapsReport, Clock, ClockDomain, Counters, Datagram, DatagramApp, DatagramLane, DatagramOut,
    DropReason, Lane, LaneError, Payload, PayloadKey, PortId, PortMask, Turn, Wake,
};
use laneway_spec::LaneSpec;
use std::{
    collections::VecDeque,
    io, mem,
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    rc::Rc,
    time::Duration,
};

/// What each receive asks for beside the payload: an address; destination and segment size.
const FIELDS: Fields = Fields { name_bytes: address::BYTES, control_bytes: 96 };
/// Buffers begin at a cache line.
const ALIGN_BYTES: usize = 64;
/// Receives that end in an error, one after the other, before the lane gives up.
const FAILURES_MAX: u32 = 64;

/// UDP sockets as a datagram lane, through io_uring. See the crate's documentation.
pub struct UringUdp {
    /// The provided buffers of each port. Apart from the rest, because a batch borrows them while
    /// the app sends.
    memories: Vec<Rc<Memory>>,
    core: Core,
    /// Reused from batch to batch; empty in between.
    batch: Vec<Datagram<'static>>,
    shown: Vec<u16>,
    batch_max: usize,
}

struct Core {
    ring: Ring,
    ports: Vec<Port>,
    trains: Trains,
    /// The message headers that receives are armed with.
    templates: Rc<Memory>,
    /// A failure inside an app's call, where it cannot be returned.
    failure: Option<io::Error>,
}

struct Port {
    id: PortId,
    socket: OwnedFd,
    bound: SocketAddr,
    caps: CapsReport,
    counters: Counters,
    buffers: Buffers,
    /// Marks a payload with its buffer.
    key: PayloadKey,
    arrivals: VecDeque<Arrival>,
    /// Who looks at each buffer that is ours: the app, and messages in flight.
    holds: Box<[u32]>,
    receiving: Receiving,
    failures: u32,
    /// Receives armed again because the kernel had run out of buffers.
    rearms: u64,
    /// Trains of segments up to this length; 0 when they are off.
    segment_bytes_max: usize,
    fallbacks: u64,
    zero_copies: u64,
    zero_copies_copied: u64,
    /// The socket's own count of drops, as last read, and its sum: the kernel's wraps.
    drops_read: u32,
    drops: u64,
}

/// A filled buffer.
#[derive(Clone, Copy)]
struct Arrival {
    buffer: u16,
    bytes: usize,
}

impl UringUdp {
    /// Binds one socket per address; port `i` is `addresses[i]`, in the network namespace of this
    /// thread, which must also be the one to use and drop the lane. A port number of 0 lets the
    /// kernel choose: see [`local_addr`](Self::local_addr).
    ///
    /// # Errors
    /// A wrong spec, an io_uring that is missing or disabled, an address that is taken or not here,
    /// or a capability that was asked for and not obtained.
    pub fn open(spec: &LaneSpec, addresses: &[SocketAddr]) -> Result<UringUdp, LaneError> {
        let config = UdpConfig::read(spec)?;
        check_ports(addresses.len())?;
        let mut grant = Grant::open(&config.common)?;
        let mut opened = Vec::new();
        for &at in addresses {
            let mut caps = CapsReport { requested: config.requested(), ..CapsReport::default() };
            let trains = (config.gso, config.gro);
            let (socket, bound) = socket::udp(at, &config.sockets, trains, &mut caps)?;
            opened.push((socket, bound, caps));
        }
        let files: Vec<_> = opened.iter().map(|(socket, ..)| socket.as_raw_fd()).collect();
        grant.fix_files(&files)?;
        let mut memories = Vec::new();
        let mut ports = Vec::new();
        for (i, (socket, bound, mut caps)) in opened.into_iter().enumerate() {
            grant.tell(&config.common, &mut caps)?;
            write_facts(&mut caps, &config, bound);
            let (memory, buffers) = provide(&mut grant.ring, &config, i)?;
            let count = usize::from(config.provided.count);
            let trains = caps.obtained.has(laneway_core::Cap::Gso);
            ports.push(Port {
                id: PortId(i as u8),
                drops_read: sys::drops(socket.as_fd()).unwrap_or(0),
                socket,
                bound,
                caps,
                counters: Counters::default(),
                buffers,
                key: PayloadKey::unique(),
                arrivals: VecDeque::with_capacity(count),
                holds: vec![0; count].into_boxed_slice(),
                receiving: Receiving::new(),
                failures: 0,
                rearms: 0,
                segment_bytes_max: if trains { usize::MAX } else { 0 },
                fallbacks: 0,
                zero_copies: 0,
                zero_copies_copied: 0,
                drops: 0,
            });
            memories.push(memory);
        }
        let hint = "lower depth=, or free memory";
        let slots = config.common.depth as usize;
        let trains = Trains::new(&mut grant.ring, slots, config.sockets.zero_copy_bytes)
            .map_err(failed("map send slots", hint))?;
        let templates =
            templates(ports.len()).map_err(failed("map message headers", hint)).map(Rc::new)?;
        grant.ring.keep(&templates);
        let batch_max = config.sockets.batch;
        let mut lane = UringUdp {
            memories,
            core: Core { ring: grant.ring, ports, trains, templates, failure: None },
            batch: Vec::with_capacity(batch_max),
            shown: Vec::with_capacity(batch_max),
            batch_max,
        };
        lane.core.receive();
        lane.core.ring.submit().map_err(ring_failed)?;
        Ok(lane)
    }

    /// The address that `port` is bound to, with the number that the kernel chose.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn local_addr(&self, port: PortId) -> SocketAddr {
        self.core.ports[port.index()].bound
    }

    /// The socket of `port`, to join multicast groups on it.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn socket(&self, port: PortId) -> BorrowedFd<'_> {
        self.core.ports[port.index()].socket.as_fd()
    }

    /// Shows the app one batch of port `i`; returns how many datagrams it saw.
    fn show<A: DatagramApp>(&mut self, i: usize, app: &mut A, clock: &impl Clock) -> usize {
        let port = &mut self.core.ports[i];
        if port.arrivals.is_empty() {
            port.counters.polls_empty += 1;
            return 0;
        }
        let now_ns = clock.now_ns();
        let mut batch: Vec<Datagram<'_>> = mem::take(&mut self.batch);
        let mut datagrams = 0;
        while batch.len() < self.batch_max {
            let Some(arrival) = port.arrivals.pop_front() else { break };
            port.holds[usize::from(arrival.buffer)] = 1;
            self.shown.push(arrival.buffer);
            let start = port.buffers.start(arrival.buffer);
            // SAFETY: the buffer became ours with its completion, and goes back to the kernel only
            // when its hold, taken just above, is released behind the app's call. Until then it is
            // only read, by the app and by messages in flight.
            let bytes = unsafe { self.memories[i].slice(start, arrival.bytes) };
            if let Some(datagram) = port.read(bytes, arrival.buffer, now_ns) {
                datagrams += count(datagram.payload.len(), datagram.segment_bytes);
                port.counters.rx_bytes += datagram.payload.len() as u64;
                batch.push(datagram);
            }
        }
        port.counters.rx_frames += datagrams as u64;
        if !batch.is_empty() {
            let mut out = Out { core: &mut self.core, ingress: Some(i) };
            app.on_datagrams(&batch, Turn { now_ns }, &mut out);
        }
        self.batch = emptied(batch);
        for buffer in self.shown.drain(..) {
            self.core.ports[i].release(buffer);
        }
        self.core.ports[i].buffers.publish();
        datagrams
    }
}

/// The same allocation without the datagrams, so that the next batch, of another lifetime, can have
/// it: collecting a vector's own iterator happens in place.
fn emptied(mut batch: Vec<Datagram<'_>>) -> Vec<Datagram<'static>> {
    batch.clear();
    batch.into_iter().map(|_| unreachable!("it was cleared")).collect()
}

/// Datagrams in a train.
fn count(bytes: usize, segment_bytes: usize) -> usize {
    bytes.div_ceil(segment_bytes.max(1)).max(1)
}

/// Refuses more ports than verdicts and requests can name.
pub(crate) fn check_ports(ports: usize) -> Result<(), LaneError> {
    if (1..=PortMask::PORTS_MAX).contains(&ports) {
        return Ok(());
    }
    Err(LaneError::Refused {
        lane: NAME.to_owned(),
        name: format!("{ports} addresses"),
        why: "a worker has at least one port and a bounded number of them".to_owned(),
        hint: format!("give 1 to {}", PortMask::PORTS_MAX),
    })
}

/// The provided buffers of one port.
fn provide(
    ring: &mut Ring,
    config: &UdpConfig,
    port: usize,
) -> Result<(Rc<Memory>, Buffers), LaneError> {
    let bytes = FIELDS.payload_at() + config.provided.bytes;
    let stride_bytes = bytes.next_multiple_of(ALIGN_BYTES);
    let count = config.provided.count;
    let memory = Memory::map(usize::from(count) * stride_bytes)
        .map_err(failed("map provided buffers", "lower buffers= or buffer="))?;
    memory.populate();
    let memory = Rc::new(memory);
    let layout = Layout { stride_bytes, lead_bytes: 0, bytes };
    // SAFETY: the memory is new, and this lane reads a buffer only after it took it.
    let buffers = unsafe { Buffers::register(ring, &memory, layout, count, port as u16) }?;
    Ok((memory, buffers))
}

/// The message header of every port's receive: only its two lengths matter.
fn templates(ports: usize) -> io::Result<Memory> {
    let memory = Memory::map(ports * size_of::<libc::msghdr>())?;
    for port in 0..ports {
        let header = memory.at_typed::<libc::msghdr>(port * size_of::<libc::msghdr>());
        // SAFETY: inside a new mapping that nobody else knows; zero is a value of a header.
        let header = unsafe { &mut *header };
        header.msg_namelen = FIELDS.name_bytes as libc::socklen_t;
        header.msg_controllen = FIELDS.control_bytes as _;
    }
    Ok(memory)
}

fn write_facts(caps: &mut CapsReport, config: &UdpConfig, bound: SocketAddr) {
    caps.fact("address", bound);
    caps.fact("batch", config.sockets.batch);
    caps.fact("buffers", config.provided.count);
    caps.fact("buffer_bytes", config.provided.bytes);
    caps.fact("send_slots", config.common.depth);
    if let Some(bytes) = config.sockets.zero_copy_bytes {
        caps.fact("send_zc_bytes_min", bytes);
    }
}

impl Port {
    /// What lies in a filled buffer; if it cannot be shown, the reason is counted.
    fn read<'a>(&mut self, bytes: &'a [u8], buffer: u16, now_ns: u64) -> Option<Datagram<'a>> {
        let message = Message::parse(bytes, FIELDS);
        let source = message.and_then(|message| address::read(message.name));
        let (Some(message), Some(source)) = (message, source) else {
            self.counters.drop_one(DropReason::RxError);
            return None;
        };
        let notes = Notes::parse(message.control);
        let payload = message.payload;
        let segment = notes.segment_bytes.filter(|&bytes| bytes > 0 && bytes < payload.len());
        let segment_bytes = segment.unwrap_or(payload.len());
        if message.is_cut {
            // What is left of a train cannot be counted: the kernel does not say how long it was.
            self.counters
                .drop_many(DropReason::RxTooLong, count(payload.len(), segment_bytes) as u64);
            return None;
        }
        let ip = notes.destination.unwrap_or_else(|| self.bound.ip());
        Some(Datagram {
            payload: self.key.mark(payload, buffer.into()),
            segment_bytes,
            source,
            destination: SocketAddr::new(ip, self.bound.port()),
            ingress: self.id,
            ts_ns: now_ns,
        })
    }

    /// One looks at `buffer` no longer; the last gives it back.
    fn release(&mut self, buffer: u16) {
        let holds = &mut self.holds[usize::from(buffer)];
        *holds -= 1;
        if *holds == 0 {
            self.buffers.give(buffer);
        }
    }

    /// A receive of this port has completed.
    fn received(&mut self, completion: Completion) -> io::Result<()> {
        let buffer = completion.buffer().and_then(|buffer| self.buffers.take(buffer));
        match (completion.outcome(), buffer) {
            (Ok(bytes), Some(buffer)) => {
                self.failures = 0;
                let bytes = bytes.min(self.buffers.bytes_max());
                self.arrivals.push_back(Arrival { buffer, bytes });
            }
            (Ok(_), None) => self.counters.drop_one(DropReason::RxError),
            (Err(error), buffer) => {
                if let Some(buffer) = buffer {
                    self.buffers.give(buffer);
                    self.buffers.publish();
                }
                match error.raw_os_error() {
                    // Nothing is lost: the datagram waits in the socket.
                    Some(libc::ENOBUFS) => self.rearms += 1,
                    // A look has taken everything; an armed one ends because it was told to.
                    Some(libc::EAGAIN | libc::ECANCELED) => (),
                    _ => {
                        self.failures += 1;
                        if self.failures > FAILURES_MAX {
                            return Err(error);
                        }
                    }
                }
            }
        }
        if !completion.has_more() {
            self.receiving.ended();
        }
        Ok(())
    }

    /// Reads the socket's own count of what it dropped.
    fn read_drops(&mut self) {
        if let Ok(read) = sys::drops(self.socket.as_fd()) {
            self.drops += u64::from(read.wrapping_sub(self.drops_read));
            self.drops_read = read;
        }
    }
}

impl Core {
    /// Sees to it that every port receives, in a turn of a worker that is awake.
    fn receive(&mut self) {
        self.ask(|port| port.receiving.turn(port.counters.rx_frames + port.counters.tx_frames));
    }

    /// Sees to it that the receive of every port wakes a worker that sleeps.
    fn arm(&mut self) {
        self.ask(|port| port.receiving.rest());
    }

    fn ask(&mut self, step: impl Fn(&mut Port) -> Option<Step>) {
        for (i, port) in self.ports.iter_mut().enumerate() {
            let step = step(port);
            let header = self.templates.at_typed::<libc::msghdr>(i * size_of::<libc::msghdr>());
            let Port { receiving, buffers, id, .. } = port;
            // SAFETY: the ring keeps the templates, which were written before the first request.
            unsafe { receiving.ask(step, &mut self.ring, buffers, id.0, header) };
        }
    }

    /// Takes every completion that is there.
    fn reap(&mut self) -> io::Result<()> {
        while let Some(completion) = self.ring.next() {
            match token::read(completion.token) {
                Some((Kind::Receive, port, _)) => {
                    if let Some(port) = self.ports.get_mut(port) {
                        port.received(completion)?;
                    }
                }
                Some((Kind::Send, _, slot)) => self.sent(slot, completion),
                Some((Kind::Accept, ..)) | None => (),
            }
        }
        match self.ring.counts().lost {
            0 => Ok(()),
            _ => Err(io::Error::from_raw_os_error(libc::EBADR)),
        }
    }

    /// A message, or the memory of one, is back.
    fn sent(&mut self, slot: u32, completion: Completion) {
        let Core { ports, trains, .. } = self;
        if let Some(outcome) = trains.outcome(slot, completion) {
            let port = &mut ports[outcome.egress];
            port.zero_copies += u64::from(completion.has_more());
            match outcome.result {
                Ok(_) => {
                    port.counters.tx_frames += outcome.segments as u64;
                    port.counters.tx_bytes += outcome.bytes as u64;
                }
                Err(error) => match fall_back(&error, outcome.segment_bytes) {
                    Some(bytes_max) if outcome.segments > 1 => {
                        port.segment_bytes_max = port.segment_bytes_max.min(bytes_max);
                        port.fallbacks += 1;
                        let counters = &mut port.counters;
                        trains.send_apart(slot, port.socket.as_fd(), |bytes, sent| match sent {
                            Ok(()) => {
                                counters.tx_frames += 1;
                                counters.tx_bytes += bytes as u64;
                            }
                            Err(error) => counters.drop_one(drop_reason(&error)),
                        });
                    }
                    _ => port.counters.drop_many(drop_reason(&error), outcome.segments as u64),
                },
            }
        } else if completion.was_copied() {
            self.ports[0].zero_copies_copied += 1;
        }
        if !completion.has_more() {
            self.trains.finish(slot, |hold| {
                let port = &mut self.ports[usize::from(hold.port)];
                port.release(hold.buffer);
                port.buffers.publish();
            });
        }
    }

    /// Puts everything gathered, and whatever else was asked for, on its way.
    fn flush(&mut self) -> io::Result<()> {
        /// A ring that takes nothing in so many attempts will take nothing.
        const ATTEMPTS_MAX: usize = 64;
        for _ in 0..ATTEMPTS_MAX {
            let flushed = self.trains.flush(&mut self.ring);
            self.ring.submit()?;
            self.reap()?;
            if flushed {
                return Ok(());
            }
        }
        Err(io::Error::from_raw_os_error(libc::EBUSY))
    }

    /// Sees to it that a slot can be opened, if that is possible now.
    fn make_room(&mut self) -> bool {
        if !self.trains.has_free()
            && self.failure.is_none()
            && let Err(error) = self.flush()
        {
            self.failure = Some(error);
        }
        self.trains.has_free()
    }

    fn check(&mut self) -> Result<(), LaneError> {
        match self.failure.take() {
            Some(error) => Err(ring_failed(error)),
            None => Ok(()),
        }
    }

    /// Where a message to `destination` through `egress` goes; nothing for a port that is not there.
    fn goal(&self, egress: PortId, destination: SocketAddr) -> Option<Goal> {
        let port = self.ports.get(egress.index())?;
        Some(Goal { egress: egress.0, destination, segment_bytes_max: port.segment_bytes_max })
    }
}

/// Where the app puts what it sends during one call.
struct Out<'a> {
    core: &'a mut Core,
    /// The port whose batch the app sees.
    ingress: Option<usize>,
}

impl Out<'_> {
    fn no_port(&mut self, datagrams: usize) {
        let port = self.ingress.unwrap_or(0);
        self.core.ports[port].counters.drop_many(DropReason::TxNoPort, datagrams as u64);
    }

    /// The buffer that a payload of the batch lies in.
    fn hold_of(&self, payload: Payload<'_>) -> Option<Hold> {
        let port = self.ingress?;
        let (buffer, _) = self.core.ports[port].key.find(payload)?;
        Some(Hold { port: port as u8, buffer: buffer as u16 })
    }

    /// Sends one piece (a datagram, or a train of `segment_bytes`) from where it lies.
    fn refer(&mut self, goal: Goal, piece: &[u8], segment_bytes: usize, hold: Hold) -> bool {
        self.core.make_room();
        let start = piece.as_ptr().cast_mut();
        // SAFETY: the bytes lie in buffer `hold` of the batch, memory that the ring keeps: only `read`
        // has the key that their token was found by, and it marks a buffer's own bytes. The buffer is
        // ours, so the kernel does not write it, and the hold taken below keeps it ours until the
        // message has left. Messages are only read.
        let taken =
            unsafe { self.core.trains.refer(goal, (start, piece.len()), segment_bytes, hold) };
        if taken {
            let port = &mut self.core.ports[usize::from(hold.port)];
            port.holds[usize::from(hold.buffer)] += 1;
        }
        taken
    }

    /// Sends a copy of one datagram.
    fn copy(&mut self, goal: Goal, datagram: &[u8]) -> bool {
        self.core.make_room();
        self.core.trains.write(goal, datagram.len(), |room| {
            let bytes = datagram.len().min(room.len());
            room[..bytes].copy_from_slice(&datagram[..bytes]);
            bytes
        })
    }
}

impl DatagramOut for Out<'_> {
    fn forward(&mut self, datagram: &Datagram<'_>, egress: PortId, destination: SocketAddr) {
        let payload = datagram.payload;
        let segment_bytes = datagram.segment_bytes.clamp(1, payload.len().max(1));
        let Some(goal) = self.core.goal(egress, destination) else {
            return self.no_port(count(payload.len(), segment_bytes));
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
                self.core.ports[egress.index()].counters.copies += 1;
            }
        }
        let counters = &mut self.core.ports[egress.index()].counters;
        counters.drop_many(DropReason::TxRefused, refused as u64);
    }

    fn send(
        &mut self,
        egress: PortId,
        destination: SocketAddr,
        bytes_max: usize,
        write: impl FnOnce(&mut [u8]) -> usize,
    ) {
        let Some(goal) = self.core.goal(egress, destination) else { return self.no_port(1) };
        if !self.core.make_room() || !self.core.trains.write(goal, bytes_max, write) {
            let counters = &mut self.core.ports[egress.index()].counters;
            counters.drop_one(DropReason::TxRefused);
        }
    }
}

/// Datagrams of a forwarded train that go into one piece: the kernel's bound on a train. (A longer
/// one can only be made by hand.)
const TRAIN_PIECE_SEGMENTS: usize = 64;

impl Lane for UringUdp {
    fn name(&self) -> &'static str {
        NAME
    }

    fn ports(&self) -> usize {
        self.core.ports.len()
    }

    fn clock_domain(&self) -> ClockDomain {
        ClockDomain::Monotonic
    }

    /// Counted on port 0, as one wait for all ports.
    fn wait(&mut self, timeout: Duration) -> Result<Wake, LaneError> {
        let core = &mut self.core;
        core.ports[0].counters.waits += 1;
        core.arm();
        let is_waiting = core.ports.iter().any(|port| !port.arrivals.is_empty());
        let timeout = if is_waiting { Duration::ZERO } else { timeout };
        let came = core.ring.wait(timeout).map_err(ring_failed)?;
        Ok(if came || is_waiting { Wake::Ready } else { Wake::Timeout })
    }

    fn caps(&self, port: PortId) -> &CapsReport {
        &self.core.ports[port.index()].caps
    }

    fn counters(&mut self, port: PortId) -> Counters {
        let Core { ring, ports, .. } = &mut self.core;
        let port = &mut ports[port.index()];
        port.read_drops();
        let mut counters = port.counters.clone();
        counters.set_drops(DropReason::RxQueueFull, port.drops);
        tell_counts(ring, &mut port.caps, (port.id.0 == 0).then_some(&mut counters));
        port.caps.fact("rearms", port.rearms);
        port.caps.fact("looks", port.receiving.looks);
        port.caps.fact("buffers_in_use", port.buffers.ours());
        port.caps.fact("gso_fallbacks", port.fallbacks);
        if port.caps.requested.has(laneway_core::Cap::SendZeroCopy) {
            port.caps.fact("send_zc", port.zero_copies);
            port.caps.fact("send_zc_copied", port.zero_copies_copied);
        }
        counters
    }
}

impl DatagramLane for UringUdp {
    fn serve<A: DatagramApp>(
        &mut self,
        app: &mut A,
        clock: &impl Clock,
    ) -> Result<usize, LaneError> {
        self.core.ring.submit().map_err(ring_failed)?;
        self.core.reap().map_err(ring_failed)?;
        let mut datagrams = 0;
        for port in 0..self.core.ports.len() {
            datagrams += self.show(port, app, clock);
        }
        self.core.receive();
        self.core.flush().map_err(ring_failed)?;
        self.core.check()?;
        Ok(datagrams)
    }

    fn tick<A: DatagramApp>(&mut self, app: &mut A, turn: Turn) -> Result<(), LaneError> {
        app.on_tick(turn, &mut Out { core: &mut self.core, ingress: None });
        self.core.flush().map_err(ring_failed)?;
        self.core.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    /// Here and not among the tests that start programs: a child between fork and exec has copies of
    /// all descriptors, and keeps addresses taken.
    #[test]
    fn the_address_of_a_dropped_lane_is_free_at_once() {
        let spec = "uring".parse().expect("well formed");
        let mut at = (Ipv4Addr::LOCALHOST, 0).into();
        for _ in 0..50 {
            match UringUdp::open(&spec, &[at]) {
                Ok(lane) => at = lane.local_addr(PortId(0)),
                Err(e @ LaneError::Busy { .. }) => panic!("{e}"),
                Err(reason) => return laneway_testkit::skip(reason),
            }
        }
    }
}
