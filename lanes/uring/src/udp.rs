//! Datagram ports: UDP sockets, one multishot `recvmsg` each (armed, or a look: `receiving.rs`), sends
//! gathered into trains.
//!
//! ```text
//!   kernel ─▶ provided buffer ─▶ completion ─▶ arrivals ─▶ Datagram (in place) ─▶ app
//!      ▲                                                                         │ forward, send
//!      └── give ◀── the app's call is over, and every message with it has left ◀─┘
//! ```
//!
//! What must always hold: a provided buffer is given back when no hold on it is left: neither of the app
//! (one while its call lasts) nor of a message in flight (one each). A receive that ended,
//! for want of buffers or for any other reason, is armed again as soon as the kernel has a buffer to
//! receive into; until then datagrams wait in the socket, and what does not fit there is counted.
//!
//! It waits for no room to send: a datagram that the socket does not take now is counted. Where a port's plan
//! says that the oldest goes instead, what is sent there waits in the port's own queue (`oldest.rs`), and no
//! other port waits for it.

mod lane;
mod out;
mod port;

use crate::{
    address,
    arrival::Fields,
    buffers::{Buffers, Layout, offered},
    config::{NAME, UdpConfig},
    ear::Ear,
    grant::{Grant, report, ring_failed},
    memory::Memory,
    oldest::Oldest,
    receiving::{Receiving, Step},
    ring::{Completion, Ring},
    socket, sys,
    sys::{Holder, failed},
    token::{self, Kind},
    trains::{Flushed, Goal, SLOT_BYTES, Trains, drop_reason},
};
use laneway_core::{
    CapSet, CapsReport, Clock, Counters, Datagram, DatagramApp, DropReason, LaneError, Membership,
    PayloadKey, PortId, PortMask, PortPlan, Turn, WhenFull,
};
use laneway_kinds::{Places, place_of};
use laneway_linux::{Groups, WallClock, hears_errors, is_late_error, monotonic_ns};
use laneway_spec::LaneSpec;
use out::{Out, Way};
use port::{Closing, NO_SOCKET, Port, source, template};
use std::{
    collections::VecDeque,
    io, mem,
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    rc::Rc,
};

/// What each receive asks for beside the payload: an address; destination and segment size.
const FIELDS: Fields = Fields { name_bytes: address::BYTES, control_bytes: 96 };
/// Buffers begin at a cache line.
const ALIGN_BYTES: usize = 64;
/// Receives that end in an error, one after the other, before the lane gives up.
const FAILURES_MAX: u32 = 64;
/// How often the kernel is offered again what it did not take. No event tells of room in an interface's queue.
const RETRY_NS: u64 = 1_000_000;
/// Messages of one queue that are sent at the end of a turn.
const OFFERS_MAX: usize = 64;

/// The one group of provided buffers.
const GROUP: u16 = 0;

/// UDP sockets as a datagram lane, through io_uring. See the crate's documentation.
pub struct UringUdp {
    /// The provided buffers of all ports. Apart from the rest, because a batch borrows them while the app
    /// sends.
    memory: Rc<Memory>,
    core: Core,
    /// Reused from batch to batch; empty in between.
    batch: Vec<Datagram<'static>>,
    shown: Vec<u16>,
    /// Ports that a round has to show; empty in between.
    showing: Vec<PortId>,
    wall_clock: WallClock,
    config: UdpConfig,
}

struct Core {
    // In front of the sockets: it is dropped before they are.
    ring: Ring,
    /// What the ring has of what can be asked for.
    obtained: CapSet,
    ports: Places<Port>,
    /// Ports that are closed and of which the kernel has a request.
    closing: Vec<Closing>,
    /// Ports that have arrivals.
    ready: Vec<PortId>,
    /// Ports whose receives need looking after; those of the others are armed, and nothing moves there.
    restless: Vec<PortId>,
    /// Ports in whose queues something waits, or has waited until now.
    delayed: Vec<PortId>,
    /// When those that the kernel took nothing of are offered again.
    retry_at_ns: u64,
    /// The last turn left some that could have been offered.
    is_behind: bool,
    /// Where an app writes what goes into a queue; empty until there is one.
    scratch: Vec<u8>,
    buffers: Buffers,
    /// Datagrams (trains) of a port that are shown at a time.
    batch_max: usize,
    /// Marks a payload with its buffer.
    key: PayloadKey,
    /// The readers of each buffer that is ours: the app, and messages in flight.
    holds: Box<[u32]>,
    trains: Trains,
    /// The message header that receives are armed with.
    template: Rc<Memory>,
    /// A failure inside an app's call, where it cannot be returned.
    failure: Option<io::Error>,
    ear: Ear,
    /// What is no port's own; reported with the first one's.
    common: Counters,
    zero_copies_copied: u64,
    /// What ports have counted that were closed.
    past: Counters,
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
        let mut grant = Grant::open(&config.common)?;
        let (memory, buffers) = provide(&mut grant.ring, &config)?;
        let hint = "lower depth=, or free memory";
        let slots = config.common.depth as usize;
        let trains = Trains::new(&mut grant.ring, slots, config.sockets.zero_copy_bytes)
            .map_err(failed("map send slots", hint))?;
        let template = template().map_err(failed("map message header", hint)).map(Rc::new)?;
        grant.ring.keep(&template);
        let batch_max = config.sockets.batch;
        let mut lane = UringUdp {
            memory,
            core: Core {
                ring: grant.ring,
                obtained: grant.obtained,
                ports: Places::default(),
                closing: Vec::new(),
                ready: Vec::new(),
                restless: Vec::new(),
                delayed: Vec::new(),
                retry_at_ns: 0,
                is_behind: false,
                scratch: Vec::new(),
                holds: vec![0; usize::from(config.provided.count)].into_boxed_slice(),
                buffers,
                batch_max,
                key: PayloadKey::unique(),
                trains,
                template,
                failure: None,
                ear: Ear::default(),
                common: Counters::default(),
                zero_copies_copied: 0,
                past: Counters::default(),
            },
            batch: Vec::with_capacity(batch_max),
            shown: Vec::with_capacity(batch_max),
            showing: Vec::new(),
            wall_clock: WallClock::measure(),
            config,
        };
        for &at in addresses {
            lane.add(&PortPlan::at(at))?;
        }
        lane.core.receive();
        lane.core.ring.submit().map_err(ring_failed)?;
        Ok(lane)
    }

    /// Opens a port, which is there only if all of it is.
    fn add(&mut self, plan: &PortPlan) -> Result<PortId, LaneError> {
        let UringUdp { core, config, .. } = self;
        core.check_plan(plan)?;
        let sockets = config.sockets.with_plan(plan);
        let requested = config.requested(&sockets);
        let label = plan.label.clone();
        let mut caps = CapsReport { requested, label, ..CapsReport::default() };
        let (socket, bound) = socket::udp(plan, &sockets, config.extras(), &mut caps)?;
        let mut groups = Groups::new(NAME, plan);
        for membership in &plan.memberships {
            join(&mut groups, &socket, bound, membership, &mut caps)?;
        }
        self.enter(plan, socket, bound, groups, caps)
    }

    /// Makes an open socket a port.
    fn enter(
        &mut self,
        plan: &PortPlan,
        socket: OwnedFd,
        bound: SocketAddr,
        groups: Groups<Holder>,
        mut caps: CapsReport,
    ) -> Result<PortId, LaneError> {
        let UringUdp { core, config, .. } = self;
        let id = core.check_plan(plan)?;
        report(&core.ring, core.obtained, &config.common, &mut caps)?;
        write_facts(&mut caps, config, bound);
        let trains = caps.obtained.has(laneway_core::Cap::Gso);
        let oldest = match plan.when_full {
            WhenFull::Newest => None,
            WhenFull::Oldest { bytes } => {
                core.scratch.resize(SLOT_BYTES, 0);
                Some(Box::new(Oldest::new(bytes)))
            }
        };
        if core.ports.is_empty() {
            core.retire_common();
        }
        core.restless.push(id);
        core.trains.enter(place_of(id) as u16, socket.as_raw_fd());
        Ok(core.ports.insert(Port {
            id,
            drops_read: sys::drops(socket.as_fd()).unwrap_or(0),
            socket,
            bound,
            caps,
            counters: Counters::default(),
            groups,
            hears_errors: hears_errors(plan),
            has_sent_to_host: false,
            arrivals: VecDeque::new(),
            oldest,
            is_ready: false,
            is_restless: true,
            receiving: Receiving::new(),
            failures: 0,
            rearms: 0,
            segment_bytes_max: if trains { usize::MAX } else { 0 },
            is_in_doubt: false,
            fallbacks: 0,
            zero_copies: 0,
            drops: 0,
        }))
    }

    /// The address that `port` is bound to, with the number that the kernel chose.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn local_addr(&self, port: PortId) -> SocketAddr {
        self.core.port(port).bound
    }

    /// The socket of `port`, to join multicast groups on it.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn socket(&self, port: PortId) -> BorrowedFd<'_> {
        self.core.port(port).socket.as_fd()
    }

    /// Shows the app one batch of a port; returns how many datagrams it saw.
    fn show<A: DatagramApp>(&mut self, id: PortId, app: &mut A, clock: &impl Clock) -> usize {
        let Core { ports, buffers, batch_max, holds, key, .. } = &mut self.core;
        let Some(port) = ports.get_mut(id) else { return 0 };
        let now_ns = clock.now_ns();
        let mut batch: Vec<Datagram<'_>> = mem::take(&mut self.batch);
        let mut datagrams = 0;
        while batch.len() < *batch_max {
            let Some(arrival) = port.arrivals.pop_front() else { break };
            holds[usize::from(arrival.buffer)] = 1;
            self.shown.push(arrival.buffer);
            let start = buffers.start(arrival.buffer);
            // SAFETY: the buffer became ours with its completion, and goes back to the kernel only
            // when its hold, taken just above, is released behind the app's call. Until then it is
            // only read, by the app and by messages in flight.
            let bytes = unsafe { self.memory.slice(start, arrival.bytes) };
            if let Some(datagram) =
                port.read(bytes, (key, arrival.buffer), (now_ns, &mut self.wall_clock))
            {
                datagrams += count(datagram.payload.len(), datagram.segment_bytes);
                port.counters.rx_bytes += datagram.payload.len() as u64;
                batch.push(datagram);
            }
        }
        port.counters.rx_frames += datagrams as u64;
        if !batch.is_empty() {
            let mut out = Out { core: &mut self.core, ingress: Some(id) };
            app.on_datagrams(&batch, Turn { now_ns }, &mut out);
        }
        self.batch = emptied(batch);
        for buffer in self.shown.drain(..) {
            self.core.release(buffer);
        }
        self.core.buffers.publish();
        datagrams
    }
}

/// The same allocation without the datagrams, so that the next batch, of another lifetime, can have
/// it: collecting a vector's own iterator happens in place.
fn emptied(mut batch: Vec<Datagram<'_>>) -> Vec<Datagram<'static>> {
    batch.clear();
    batch.into_iter().map(|_| unreachable!("it was cleared")).collect()
}

/// True for errors of a send that are most likely about a datagram that left earlier.
fn is_late(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(is_late_error)
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

/// Makes a port a member of a group.
fn join(
    groups: &mut Groups<Holder>,
    socket: &OwnedFd,
    bound: SocketAddr,
    membership: &Membership,
    caps: &mut CapsReport,
) -> Result<(), LaneError> {
    groups.join(&sys::Options(socket.as_fd()), membership, || holder(bound), caps)
}

/// A socket that holds memberships of the port at `bound`.
fn holder(bound: SocketAddr) -> Result<Holder, LaneError> {
    let family = if bound.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let doing = format!("open a socket that holds memberships of {bound}");
    let socket = sys::socket(family, libc::SOCK_DGRAM);
    socket.map(Holder).map_err(failed(doing, "raise `ulimit -n`"))
}

fn no_port(port: PortId) -> LaneError {
    LaneError::NotFound {
        lane: NAME.to_owned(),
        what: "port",
        name: port.0.to_string(),
        hint: "it was closed, or never open".to_owned(),
    }
}

/// The provided buffers of all ports.
fn provide(ring: &mut Ring, config: &UdpConfig) -> Result<(Rc<Memory>, Buffers), LaneError> {
    let bytes = FIELDS.payload_at() + config.provided.bytes;
    let stride_bytes = bytes.next_multiple_of(ALIGN_BYTES);
    let count = config.provided.count;
    let memory = Memory::map(usize::from(count) * stride_bytes)
        .map_err(failed("map provided buffers", "lower buffers= or buffer="))?;
    memory.populate();
    let memory = Rc::new(memory);
    let layout = Layout { stride_bytes, lead_bytes: 0, bytes };
    // SAFETY: the memory is new, and this lane reads a buffer only after it took it.
    let buffers = unsafe { Buffers::register(ring, &memory, layout, offered(count), GROUP) }?;
    Ok((memory, buffers))
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

impl Core {
    /// The number of the next port, which can be what the plan says.
    fn check_plan(&self, plan: &PortPlan) -> Result<PortId, LaneError> {
        let refused = |why: String, hint: &str| LaneError::Refused {
            lane: NAME.to_owned(),
            name: plan.bind.to_string(),
            why,
            hint: hint.to_owned(),
        };
        if let Some(source) = plan.source.filter(|source| *source != plan.bind.ip()) {
            let why = format!("its sends cannot say that they come from {source}");
            return Err(refused(why, "bind the port to that address"));
        }
        self.ports.next().ok_or_else(|| {
            let why = format!("the worker has {} ports", self.ports.len());
            refused(why, "close some, or use more workers")
        })
    }

    fn port(&self, id: PortId) -> &Port {
        self.ports.get(id).unwrap_or_else(|| panic!("there is no port {}", id.0))
    }

    fn find(&mut self, id: PortId) -> Result<&mut Port, LaneError> {
        self.ports.get_mut(id).ok_or_else(|| no_port(id))
    }

    /// One looks at `buffer` no longer; the last gives it back.
    fn release(&mut self, buffer: u16) {
        let holds = &mut self.holds[usize::from(buffer)];
        *holds -= 1;
        if *holds == 0 {
            self.buffers.give(buffer);
        }
    }

    /// Sees to it that every port receives, in a turn of a worker that is awake.
    fn receive(&mut self) {
        self.ask(|port| port.receiving.turn(port.counters.rx_frames + port.counters.tx_frames));
    }

    /// Sees to it that the receive of every port wakes a worker that sleeps.
    fn arm(&mut self) {
        self.ask(|port| port.receiving.rest());
    }

    /// Asks for a step of every port that needs looking after. All receive into the same buffers, and one that
    /// has a batch to show takes no more of them.
    fn ask(&mut self, step: impl Fn(&mut Port) -> Option<Step>) {
        let Core { restless, ports, ring, buffers, batch_max, template, .. } = self;
        buffers.publish();
        let header = template.at_typed::<libc::msghdr>(0);
        if restless.len() > 1 {
            // Another is first each time, or one whose datagrams fill all buffers would starve the rest.
            restless.rotate_left(1);
        }
        restless.retain(|id| {
            let Some(port) = ports.get_mut(*id) else { return false };
            let has_batch = port.arrivals.len() >= *batch_max;
            let step = step(port).filter(|step| !has_batch || *step == Step::Cancel);
            let source = source(*id, port.socket.as_raw_fd());
            // SAFETY: the ring keeps the template, which was written before the first request.
            unsafe { port.receiving.ask(step, ring, buffers, source, header) };
            port.is_restless = !port.receiving.is_settled();
            port.is_restless
        });
    }

    /// Takes every completion that is there.
    fn reap(&mut self) -> io::Result<()> {
        while let Some(completion) = self.ring.next() {
            match token::read(completion.token) {
                Some((Kind::Receive, place, _)) => self.received(place, completion)?,
                Some((Kind::Send, _, slot)) => self.sent(slot, completion),
                Some((Kind::Bell, ..)) => self.ear.completed(),
                Some((Kind::Accept, ..)) | None => (),
            }
        }
        match self.ring.counts().lost {
            0 => Ok(()),
            _ => Err(io::Error::from_raw_os_error(libc::EBADR)),
        }
    }

    fn received(&mut self, place: usize, completion: Completion) -> io::Result<()> {
        let Core { ports, closing, buffers, ready, restless, .. } = self;
        let buffer = completion.buffer().and_then(|buffer| buffers.take(buffer));
        if let Some(port) = ports.at(place) {
            port.received(completion, buffer, buffers)?;
            if !port.arrivals.is_empty() && !mem::replace(&mut port.is_ready, true) {
                ready.push(port.id);
            }
            port.stir(restless);
            return Ok(());
        }
        // It arrived before the port was closed, and no port is left that could show it.
        if let Some(buffer) = buffer {
            buffers.give(buffer);
            buffers.publish();
        }
        if let Some(closing) = closing.iter_mut().find(|closing| place_of(closing.id) == place)
            && !completion.has_more()
        {
            closing.receiving.ended();
        }
        Ok(())
    }

    /// Ends what closed ports have under way; gives their places to others once that is nothing.
    fn bury(&mut self) {
        let Core { closing, ports, trains, ring, buffers, template, .. } = self;
        let header = template.at_typed::<libc::msghdr>(0);
        closing.retain_mut(|closed| {
            // The address is free when the last request of it ends, whatever memory is still read without a copy.
            closed.socket.take_if(|_| !ring.has_queued());
            let end = closed.receiving.end();
            let source = source(closed.id, NO_SOCKET);
            // SAFETY: a cancel names no memory.
            unsafe { closed.receiving.ask(end, ring, buffers, source, header) };
            let is_over = closed.socket.is_none()
                && closed.receiving.has_ended()
                && !trains.is_under_way(source.port);
            if is_over {
                trains.leave(source.port);
                ports.free(closed.id);
            }
            !is_over
        });
    }

    /// What belongs to no port, and was counted at the first so far, stays there: another one is the first from now on.
    fn retire_common(&mut self) {
        self.past.merge(&mem::take(&mut self.common));
    }

    /// Closes a port. What it received and has not shown is not shown any more.
    fn close(&mut self, id: PortId) -> Result<Counters, LaneError> {
        // What is gathered, and as much of what waits as is taken now, leaves first.
        self.tend().and_then(|()| self.flush()).map_err(ring_failed)?;
        let is_first = self.ports.ports().first() == Some(&id);
        let mut port = self.ports.remove(id).ok_or_else(|| no_port(id))?;
        if is_first {
            self.retire_common();
        }
        self.delayed.retain(|delayed| *delayed != id);
        port.read_drops();
        for arrival in port.arrivals.drain(..) {
            self.buffers.give(arrival.buffer);
            port.counters.drop_one(DropReason::RxError);
        }
        self.buffers.publish();
        port.drop_unsent();
        let counters = port.counters();
        let Port { receiving, socket, .. } = port;
        self.closing.push(Closing { id, receiving, socket: Some(socket) });
        self.bury();
        self.ring.submit().and_then(|()| self.reap()).map_err(ring_failed)?;
        self.bury();
        self.past.merge(&counters);
        Ok(counters)
    }

    /// A message, or the memory of one, is back.
    fn sent(&mut self, slot: u32, completion: Completion) {
        let Core { ports, trains, restless, past, .. } = self;
        if let Some(outcome) = trains.outcome(slot, completion) {
            if let Some(port) = ports.at(outcome.egress) {
                port.sent(trains, slot, outcome, completion);
                port.stir(restless);
            } else {
                match &outcome.result {
                    Ok(_) => {
                        past.tx_frames += outcome.segments as u64;
                        past.tx_bytes += outcome.bytes as u64;
                    }
                    Err(error) => past.drop_many(drop_reason(error), outcome.segments as u64),
                }
            }
        } else if completion.was_copied() {
            self.zero_copies_copied += 1;
        }
        if !completion.has_more() {
            let Core { trains, holds, buffers, .. } = self;
            trains.finish(slot, |hold| {
                let held = &mut holds[usize::from(hold.buffer)];
                *held -= 1;
                if *held == 0 {
                    buffers.give(hold.buffer);
                }
                buffers.publish();
            });
        }
    }

    /// Puts everything gathered, and whatever else was asked for, on its way.
    fn flush(&mut self) -> io::Result<()> {
        /// A ring that takes nothing in so many attempts will take nothing.
        const ATTEMPTS_MAX: usize = 64;
        let mut attempts = 0;
        while attempts < ATTEMPTS_MAX {
            let Flushed { taken, left } = self.trains.flush(&mut self.ring);
            self.ring.submit()?;
            self.reap()?;
            if left == 0 {
                return Ok(());
            }
            attempts = if taken > 0 { 0 } else { attempts + 1 };
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
    fn way(&mut self, egress: PortId, destination: SocketAddr) -> Option<Way> {
        let port = self.ports.get_mut(egress)?;
        if port.oldest.is_some() {
            return Some(Way::Queue);
        }
        port.has_sent_to_host |= !destination.ip().is_multicast();
        let in_order = port.hears_errors && port.has_sent_to_host;
        let segment_bytes_max = port.segment_bytes_max;
        let egress = place_of(egress) as u16;
        Some(Way::Ring(Goal { egress, destination, in_order, segment_bytes_max }))
    }

    /// Puts a datagram into the queue of a port. Where that is full, what the kernel takes now makes room,
    /// and then the oldest.
    fn keep(&mut self, id: PortId, datagram: &[u8], destination: SocketAddr) {
        let Some(oldest) = self.oldest(id) else { return };
        oldest.push(datagram, destination);
        let is_over = oldest.is_over();
        if !mem::replace(&mut oldest.is_listed, true) {
            self.delayed.push(id);
        }
        if !is_over {
            return;
        }
        let wants = |oldest: &mut Oldest| oldest.is_over() && oldest.can_offer();
        while self.failure.is_none() && self.oldest(id).is_some_and(wants) {
            match self.offer() {
                Ok(true) => (),
                Ok(false) => break,
                Err(error) => self.failure = Some(error),
            }
        }
        if let Some(Port { oldest: Some(oldest), counters, .. }) = self.ports.get_mut(id) {
            oldest.trim(counters);
        }
    }

    /// The queue of a port that has one.
    fn oldest(&mut self, id: PortId) -> Option<&mut Oldest> {
        self.ports.get_mut(id)?.oldest.as_deref_mut()
    }

    /// Offers the kernel one message of every queue that may; false when there was none.
    fn offer(&mut self) -> io::Result<bool> {
        let mut offered = false;
        let mut at = 0;
        while let Some(&id) = self.delayed.get(at) {
            if !self.trains.has_free() {
                self.flush()?;
            }
            let Core { ports, trains, delayed, .. } = self;
            let port = ports.get_mut(id);
            let Some(Port { oldest: Some(oldest), segment_bytes_max, .. }) = port else {
                delayed.swap_remove(at);
                continue;
            };
            if oldest.is_empty() {
                oldest.is_listed = false;
                delayed.swap_remove(at);
                continue;
            }
            offered |= oldest.offer(place_of(id) as u16, *segment_bytes_max, trains);
            at += 1;
        }
        if offered {
            self.flush()?;
        }
        Ok(offered)
    }

    /// Once at the beginning and once at the end of a turn: offers what waits, and what was refused if it is
    /// time.
    fn tend(&mut self) -> io::Result<()> {
        if self.delayed.is_empty() {
            return Ok(());
        }
        let now_ns = monotonic_ns();
        let is_due = now_ns >= self.retry_at_ns;
        if is_due {
            self.retry_at_ns = now_ns + RETRY_NS;
        }
        let Core { ports, delayed, .. } = self;
        for id in &*delayed {
            if let Some(Port { oldest: Some(oldest), .. }) = ports.get_mut(*id) {
                oldest.turn(is_due);
            }
        }
        self.is_behind = true;
        for _ in 0..OFFERS_MAX {
            if !self.offer()? {
                self.is_behind = false;
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_core::ClockDomain;
    use laneway_core::DatagramLane;
    use laneway_core::DatagramPorts;
    use laneway_core::Lane;
    use laneway_linux::monotonic_ns;
    use laneway_testkit::service::{Answer, DatagramProbe};
    use std::net::{Ipv4Addr, UdpSocket};
    use std::time::Duration;

    struct Monotonic;

    impl Clock for Monotonic {
        fn now_ns(&self) -> u64 {
            monotonic_ns()
        }

        fn domain(&self) -> ClockDomain {
            ClockDomain::Monotonic
        }
    }

    /// Calls of 20 rounds in silence, and of 20 in which one datagram is there and is answered.
    fn calls_of_rounds(lane: &mut UringUdp, far: &UdpSocket) -> [u64; 2] {
        const ROUNDS: usize = 20;
        let mut app = DatagramProbe::new(Answer::ForwardBack);
        let near = lane.local_addr(PortId(0));
        let mut rounds = |sends: bool| {
            lane.wait(Duration::ZERO).expect("it waits");
            let before = lane.core.ring.counts().enters;
            for _ in 0..ROUNDS {
                if sends {
                    far.send_to(&[7; 100], near).expect("loopback takes it");
                }
                let served = lane.serve(&mut app, &Monotonic).expect("it serves");
                assert_eq!(served, usize::from(sends), "loopback delivers within the call");
            }
            lane.core.ring.counts().enters - before
        };
        [rounds(false), rounds(true)]
    }

    #[test]
    fn a_thousand_idle_ports_add_no_system_call_to_a_round() {
        let anywhere: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
        let spec = "uring:gso".parse().expect("well formed");
        let mut lane = match UringUdp::open(&spec, &[anywhere; 3]) {
            Ok(lane) => lane,
            Err(reason) => return laneway_testkit::skip(reason),
        };
        let far = UdpSocket::bind(anywhere).expect("a free port");
        let of_three = calls_of_rounds(&mut lane, &far);
        for opened in 0..1000 {
            if let Err(e) = lane.open_port(&PortPlan::at(anywhere)) {
                return laneway_testkit::skip(format!("after {opened} ports: {e}"));
            }
        }
        // Their receives are armed within two rounds, and are not looked after again.
        calls_of_rounds(&mut lane, &far);
        assert_eq!(lane.core.restless, [PortId(0)], "the one on which something moved");
        assert_eq!(calls_of_rounds(&mut lane, &far), of_three);
        assert!(of_three[0] == 0 && of_three[1] <= 40, "{of_three:?}");
    }

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
