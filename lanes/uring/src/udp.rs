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
//! It waits for no room to send: a datagram that the socket does not take now is counted. Where a port's plan
//! says that the oldest goes instead, what is sent there waits in the port's own queue (`oldest.rs`), and no
//! other port waits for it.

use crate::{
    address,
    arrival::{Fields, Message, Notes},
    buffers::{Buffers, Layout, offered},
    config::{NAME, UdpConfig},
    ear::Ear,
    grant::{Grant, ring_failed, tell, tell_counts},
    memory::Memory,
    oldest::{Oldest, Then},
    receiving::{Receiving, Step},
    ring::{Completion, Ring},
    socket, sys,
    sys::{Holder, failed},
    token::{self, Kind},
    trains::{Flushed, Goal, Hold, Outcome, SLOT_BYTES, Trains, drop_reason, fall_back},
};
use laneway_core::{
    Bell, CapSet, CapsReport, Clock, ClockDomain, Counters, Datagram, DatagramApp, DatagramLane,
    DatagramOut, DatagramPorts, DropReason, Lane, LaneError, Membership, Payload, PayloadKey,
    PortId, PortMask, PortPlan, Turn, Wake, WhenFull,
};
use laneway_kinds::{Places, place_of};
use laneway_linux::{Groups, WallClock, hears_errors, monotonic_ns, open_files_max};
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
    /// Marks a payload with its buffer.
    key: PayloadKey,
    /// Who looks at each buffer that is ours: the app, and messages in flight.
    holds: Box<[u32]>,
    trains: Trains,
    /// The message header that receives are armed with.
    template: Rc<Memory>,
    /// A failure inside an app's call, where it cannot be returned.
    failure: Option<io::Error>,
    ear: Ear,
    /// What is no port's own; told with the first one's.
    common: Counters,
    zero_copies_copied: u64,
    /// What ports have counted that were closed.
    past: Counters,
}

struct Port {
    id: PortId,
    socket: OwnedFd,
    bound: SocketAddr,
    caps: CapsReport,
    counters: Counters,
    groups: Groups<Holder>,
    /// Errors of earlier datagrams come with receives and sends.
    hears_errors: bool,
    /// It has sent to a host. Nobody answers what was sent to a group with an error (RFC 1122, section 3.2.2).
    has_sent_to_host: bool,
    arrivals: VecDeque<Arrival>,
    /// What waits to be sent, where the oldest of it goes first. Boxed: few ports have it.
    oldest: Option<Box<Oldest>>,
    /// It is listed among those that have arrivals, and among those that need looking after.
    is_ready: bool,
    is_restless: bool,
    receiving: Receiving,
    failures: u32,
    /// Receives armed again because the kernel had run out of buffers.
    rearms: u64,
    /// Trains of segments up to this length; 0 when they are off.
    segment_bytes_max: usize,
    fallbacks: u64,
    zero_copies: u64,
    /// The socket's own count of drops, as last read, and its sum: the kernel's wraps.
    drops_read: u32,
    drops: u64,
}

/// What is left of a port that was closed.
struct Closing {
    id: PortId,
    receiving: Receiving,
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
        // As many places as there may be ports, if the process may open so many files.
        let places = PortId::OPEN_MAX.min(open_files_max()).max(addresses.len());
        grant.fix_files(&vec![-1; places])?;
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
        tell(&core.ring, core.obtained, &config.common, &mut caps)?;
        write_facts(&mut caps, config, bound);
        core.ring.fix_file(place_of(id) as u32, socket.as_raw_fd()).map_err(failed(
            format!("register the socket at {bound} with the ring"),
            "raise `ulimit -n` before the lane is opened: the ring has as many places",
        ))?;
        let trains = caps.obtained.has(laneway_core::Cap::Gso);
        let oldest = match plan.when_full {
            WhenFull::Newest => None,
            WhenFull::Oldest { bytes } => {
                core.scratch.resize(SLOT_BYTES, 0);
                Some(Box::new(Oldest::new(bytes)))
            }
        };
        core.restless.push(id);
        core.trains.forget(place_of(id) as u16);
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
        let Core { ports, buffers, holds, key, .. } = &mut self.core;
        let Some(port) = ports.get_mut(id) else { return 0 };
        let now_ns = clock.now_ns();
        let mut batch: Vec<Datagram<'_>> = mem::take(&mut self.batch);
        let mut datagrams = 0;
        while batch.len() < self.config.sockets.batch {
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

/// True for errors that may tell of a datagram that left earlier.
fn is_late(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNREFUSED
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::EPROTO
                | libc::ENOPROTOOPT
        )
    )
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

/// The message header of every receive: only its two lengths matter.
fn template() -> io::Result<Memory> {
    let memory = Memory::map(size_of::<libc::msghdr>())?;
    let header = memory.at_typed::<libc::msghdr>(0);
    // SAFETY: inside a new mapping that nobody else knows; zero is a value of a header.
    let header = unsafe { &mut *header };
    header.msg_namelen = FIELDS.name_bytes as libc::socklen_t;
    header.msg_controllen = FIELDS.control_bytes as _;
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
    fn read<'a>(
        &mut self,
        bytes: &'a [u8],
        (key, buffer): (&PayloadKey, u16),
        (now_ns, wall_clock): (u64, &mut WallClock),
    ) -> Option<Datagram<'a>> {
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
        if !self.groups.let_through(ip, source.ip()) {
            let datagrams = count(payload.len(), segment_bytes) as u64;
            self.counters.drop_many(DropReason::NotForUs, datagrams);
            return None;
        }
        Some(Datagram {
            payload: key.mark(payload, buffer.into()),
            segment_bytes,
            source,
            destination: SocketAddr::new(ip, self.bound.port()),
            ingress: self.id,
            ts_ns: notes.real_ns.map_or(now_ns, |real_ns| wall_clock.monotonic(real_ns)),
        })
    }

    /// A receive of this port has completed; `buffer` is ours now.
    fn received(
        &mut self,
        completion: Completion,
        buffer: Option<u16>,
        buffers: &mut Buffers,
    ) -> io::Result<()> {
        match (completion.outcome(), buffer) {
            (Ok(bytes), Some(buffer)) => {
                self.failures = 0;
                let bytes = bytes.min(buffers.bytes_max());
                self.arrivals.push_back(Arrival { buffer, bytes });
            }
            (Ok(_), None) => self.counters.drop_one(DropReason::RxError),
            (Err(error), buffer) => {
                if let Some(buffer) = buffer {
                    buffers.give(buffer);
                    buffers.publish();
                }
                match error.raw_os_error() {
                    // Nothing is lost: the datagram waits in the socket.
                    Some(libc::ENOBUFS) => {
                        self.rearms += 1;
                        buffers.ran_out();
                    }
                    // A look has taken everything; an armed one ends because it was told to.
                    Some(libc::EAGAIN | libc::ECANCELED) => (),
                    _ if self.hears_errors && is_late(&error) => {
                        sys::drain_errors(self.socket.as_fd());
                    }
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

    /// Has the receive of the port looked after: something moved.
    fn stir(&mut self, restless: &mut Vec<PortId>) {
        if !mem::replace(&mut self.is_restless, true) {
            restless.push(self.id);
        }
    }

    /// A message of this port was sent or not.
    fn sent(&mut self, trains: &Trains, slot: u32, outcome: Outcome, completion: Completion) {
        self.zero_copies += u64::from(completion.has_more());
        let counters = &mut self.counters;
        if self.hears_errors
            && matches!(&outcome.result, Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE))
        {
            // The kernel queues it for who asks as well, and wakes receives until it is taken.
            sys::drain_errors(self.socket.as_fd());
        }
        if let Some(oldest) = &mut self.oldest {
            let is_late = |error: &io::Error| self.hears_errors && is_late(error);
            match oldest.ended(&outcome, is_late, counters) {
                Then::Nothing => (),
                Then::DrainErrors => sys::drain_errors(self.socket.as_fd()),
                Then::Shorten(bytes_max) => {
                    self.segment_bytes_max = self.segment_bytes_max.min(bytes_max);
                    self.fallbacks += 1;
                }
            }
            return;
        }
        match outcome.result {
            Err(error) if self.hears_errors && is_late(&error) => {
                sys::drain_errors(self.socket.as_fd());
                self.send_apart(trains, slot);
            }
            Ok(_) => {
                counters.tx_frames += outcome.segments as u64;
                counters.tx_bytes += outcome.bytes as u64;
            }
            Err(error) => match fall_back(&error, outcome.segment_bytes) {
                Some(bytes_max) if outcome.segments > 1 => {
                    self.segment_bytes_max = self.segment_bytes_max.min(bytes_max);
                    self.fallbacks += 1;
                    self.send_apart(trains, slot);
                }
                _ => counters.drop_many(drop_reason(&error), outcome.segments as u64),
            },
        }
    }

    /// Sends the datagrams of a slot once more, one by one.
    fn send_apart(&mut self, trains: &Trains, slot: u32) {
        let Port { socket, counters, hears_errors, .. } = self;
        let socket = socket.as_fd();
        let again = |error: &io::Error| {
            let again = *hears_errors && is_late(error);
            if again {
                sys::drain_errors(socket);
            }
            again
        };
        trains.send_apart(slot, socket, again, |bytes, sent| match sent {
            Ok(()) => {
                counters.tx_frames += 1;
                counters.tx_bytes += bytes as u64;
            }
            Err(error) => counters.drop_one(drop_reason(&error)),
        });
    }

    /// What was counted so far; what waits will not leave if the run ends here.
    fn counters(&self) -> Counters {
        let mut counters = self.counters.clone();
        if let Some(oldest) = &self.oldest {
            oldest.count_unsent(&mut counters);
        }
        counters.set_drops(DropReason::RxQueueFull, self.drops);
        counters
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

    /// Asks for a step of every port that needs looking after.
    fn ask(&mut self, step: impl Fn(&mut Port) -> Option<Step>) {
        let Core { restless, ports, ring, buffers, template, .. } = self;
        buffers.publish();
        let header = template.at_typed::<libc::msghdr>(0);
        restless.retain(|id| {
            let Some(port) = ports.get_mut(*id) else { return false };
            let step = step(port);
            let place = (place_of(*id) as u16, GROUP);
            // SAFETY: the ring keeps the template, which was written before the first request.
            unsafe { port.receiving.ask(step, ring, buffers, place, header) };
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
        // It came before the port was closed, and nobody is there to see it.
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

    /// Gives the places of closed ports to others, once the kernel has no request of theirs.
    fn bury(&mut self) {
        let Core { closing, ports, trains, .. } = self;
        closing.retain(|closed| {
            let place = place_of(closed.id) as u16;
            let is_over = closed.receiving.has_ended() && !trains.is_under_way(place);
            if is_over {
                ports.free(closed.id);
            }
            !is_over
        });
    }

    /// Closes a port. What it received and has not shown is not shown any more.
    fn close(&mut self, id: PortId) -> Result<Counters, LaneError> {
        // What is gathered, and as much of what waits as is taken now, leaves first.
        self.tend().and_then(|()| self.flush()).map_err(ring_failed)?;
        let mut port = self.ports.remove(id).ok_or_else(|| no_port(id))?;
        self.delayed.retain(|delayed| *delayed != id);
        port.read_drops();
        for arrival in port.arrivals.drain(..) {
            self.buffers.give(arrival.buffer);
            port.counters.drop_one(DropReason::RxError);
        }
        self.buffers.publish();
        let (place, header) = (place_of(id), self.template.at_typed::<libc::msghdr>(0));
        let counters = port.counters();
        let mut receiving = port.receiving;
        let end = receiving.end();
        // SAFETY: a cancel names no memory.
        unsafe {
            receiving.ask(end, &mut self.ring, &self.buffers, (place as u16, GROUP), header);
        }
        self.closing.push(Closing { id, receiving });
        // Fails only where nothing is.
        let _ = self.ring.fix_file(place as u32, -1);
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

/// How a datagram leaves.
enum Way {
    /// In a slot, at once.
    Ring(Goal),
    /// Through the queue of its port.
    Queue,
}

/// Where the app puts what it sends during one call.
struct Out<'a> {
    core: &'a mut Core,
    /// The port whose batch the app sees.
    ingress: Option<PortId>,
}

impl Out<'_> {
    fn no_port(&mut self, datagrams: usize) {
        let port = self.ingress.and_then(|port| self.core.ports.get_mut(port));
        let counters = port.map_or(&mut self.core.common, |port| &mut port.counters);
        counters.drop_many(DropReason::TxNoPort, datagrams as u64);
    }

    /// The counters of a port that is there.
    fn counted(&mut self, egress: PortId) -> &mut Counters {
        &mut self.core.ports.get_mut(egress).expect("it was found before").counters
    }

    /// The buffer that a payload of the batch lies in.
    fn hold_of(&self, payload: Payload<'_>) -> Option<Hold> {
        let (buffer, _) = self.core.key.find(payload)?;
        Some(Hold { buffer: buffer as u16 })
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
            self.core.holds[usize::from(hold.buffer)] += 1;
        }
        taken
    }

    /// Puts a copy of each datagram of a train into the queue of a port.
    fn keep(
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

    fn port(&self, at: usize) -> PortId {
        self.core.ports.ports()[at]
    }

    fn past(&self) -> Counters {
        let mut past = self.core.past.clone();
        if self.core.ports.is_empty() {
            past.merge(&self.core.common);
        }
        past
    }

    fn clock_domain(&self) -> ClockDomain {
        ClockDomain::Monotonic
    }

    fn hear(&mut self, bell: &Bell) {
        self.core.ear.hear(bell);
    }

    /// Counted on the first port, as one wait for all ports.
    fn wait(&mut self, timeout: Duration) -> Result<Wake, LaneError> {
        let core = &mut self.core;
        core.common.waits += 1;
        core.arm();
        core.ear.ask(&mut core.ring);
        let is_waiting = !core.ready.is_empty();
        let timeout = if is_waiting { Duration::ZERO } else { timeout };
        let came = core.ring.wait(timeout).map_err(ring_failed)?;
        Ok(if came || is_waiting { Wake::Ready } else { Wake::Timeout })
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.core.ring.event())
    }

    fn due_ns(&self) -> Option<u64> {
        let retry_at_ns = if self.core.is_behind { 0 } else { self.core.retry_at_ns };
        (!self.core.delayed.is_empty()).then_some(retry_at_ns)
    }

    fn caps(&self, port: PortId) -> &CapsReport {
        &self.core.port(port).caps
    }

    fn counters(&mut self, id: PortId) -> Counters {
        let Core { ring, ports, common, buffers, zero_copies_copied, .. } = &mut self.core;
        let is_first = ports.ports().first() == Some(&id);
        let Some(port) = ports.get_mut(id) else { return Counters::default() };
        port.read_drops();
        let mut counters = port.counters();
        if is_first {
            counters.merge(common);
        }
        tell_counts(ring, &mut port.caps, is_first.then_some(&mut counters));
        port.caps.fact("rearms", port.rearms);
        port.caps.fact("looks", port.receiving.looks);
        port.caps.fact("buffers_in_use", buffers.in_use());
        port.caps.fact("gso_fallbacks", port.fallbacks);
        if port.caps.requested.has(laneway_core::Cap::SendZeroCopy) {
            port.caps.fact("send_zc", port.zero_copies);
            port.caps.fact("send_zc_copied", *zero_copies_copied);
        }
        counters
    }
}

impl DatagramPorts for UringUdp {
    fn open_port(&mut self, plan: &PortPlan) -> Result<PortId, LaneError> {
        self.add(plan)
    }

    fn close_port(&mut self, port: PortId) -> Result<Counters, LaneError> {
        self.core.close(port)
    }

    fn join(&mut self, id: PortId, membership: &Membership) -> Result<(), LaneError> {
        let Port { groups, socket, bound, caps, .. } = self.core.find(id)?;
        join(groups, socket, *bound, membership, caps)
    }

    fn leave(&mut self, id: PortId, membership: &Membership) -> Result<(), LaneError> {
        let Port { groups, socket, caps, .. } = self.core.find(id)?;
        groups.leave(&sys::Options(socket.as_fd()), membership, caps)
    }

    fn share_port(&mut self, id: PortId) -> Result<Option<OwnedFd>, LaneError> {
        let Port { socket, bound, .. } = self.core.find(id)?;
        let doing = format!("share the socket at {bound}");
        socket.try_clone().map(Some).map_err(failed(doing, "raise `ulimit -n`"))
    }

    fn adopt_port(&mut self, plan: &PortPlan, socket: OwnedFd) -> Result<PortId, LaneError> {
        let UringUdp { core, config, .. } = self;
        core.check_plan(plan)?;
        let sockets = config.sockets.with_plan(plan);
        let requested = config.requested(&sockets);
        let mut caps = CapsReport { requested, ..CapsReport::default() };
        let bound = socket::adopt(&socket, plan, &sockets, config.extras(), &mut caps)?;
        let mut groups = Groups::new(NAME, plan);
        let options = sys::Options(socket.as_fd());
        groups.adopt(&options, &plan.memberships, || holder(bound), &mut caps)?;
        let id = self.enter(plan, socket, bound, groups, caps)?;
        self.hold_port(id, true)?;
        Ok(id)
    }

    fn hold_port(&mut self, id: PortId, is_held: bool) -> Result<(), LaneError> {
        self.core.find(id)?.receiving.hold(is_held);
        let Core { ports, restless, .. } = &mut self.core;
        if let Some(port) = ports.get_mut(id) {
            port.stir(restless);
        }
        Ok(())
    }

    fn has_settled(&mut self) -> bool {
        let Core { ports, ready, delayed, trains, .. } = &self.core;
        let settled = |id: &PortId| ports.get(*id).is_none_or(|port| port.receiving.has_settled());
        ready.is_empty()
            && delayed.is_empty()
            && !trains.are_under_way()
            && ports.ports().iter().all(settled)
    }

    fn bound(&self, port: PortId) -> Option<SocketAddr> {
        self.core.ports.get(port).map(|port| port.bound)
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
        self.core.tend().map_err(ring_failed)?;
        let mut datagrams = 0;
        self.core.common.polls_empty += u64::from(self.core.ready.is_empty());
        mem::swap(&mut self.showing, &mut self.core.ready);
        for i in 0..self.showing.len() {
            let id = self.showing[i];
            datagrams += self.show(id, app, clock);
            // What a batch left, or came meanwhile.
            if let Some(port) = self.core.ports.get_mut(id) {
                port.is_ready = !port.arrivals.is_empty();
                if port.is_ready {
                    self.core.ready.push(id);
                }
            }
        }
        self.showing.clear();
        if !self.core.closing.is_empty() {
            self.core.bury();
        }
        self.core.receive();
        self.core.tend().map_err(ring_failed)?;
        self.core.flush().map_err(ring_failed)?;
        self.core.check()?;
        Ok(datagrams)
    }

    fn tick<A: DatagramApp>(&mut self, app: &mut A, turn: Turn) -> Result<(), LaneError> {
        app.on_tick(turn, &mut Out { core: &mut self.core, ingress: None });
        self.core.tend().map_err(ring_failed)?;
        self.core.flush().map_err(ring_failed)?;
        self.core.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_linux::monotonic_ns;
    use laneway_testkit::service::{Answer, DatagramProbe};
    use std::net::{Ipv4Addr, UdpSocket};

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
