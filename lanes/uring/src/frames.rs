//! Frame ports: AF_PACKET sockets, one multishot `recvmsg` each, frames shown where the kernel wrote
//! them.
//!
//! ```text
//!   buffer:  │ room for headers │ recvmsg header, control │ frame ...              │
//!            0                                            FRAME_AT (headroom of the app)
//!
//!   kernel ─▶ arrivals ─▶ Burst ─▶ settle ─▶ (SEND in flight) ─▶ give ─▶ kernel
//!   lendable ──────────▶ Burst ─▶ settle ─▶ (SEND in flight) ─▶ lendable
//! ```
//!
//! What must always hold: every buffer of a port is in exactly one place: with the kernel to receive
//! into, among the arrivals, in the burst, in flight, or lendable. A buffer that is
//! sent by several ports, or parts of which are sent behind other heads (one SENDMSG of two vectors each), is in
//! flight until the last has it. The lane never sees what it sent itself
//! (PACKET_IGNORE_OUTGOING) and sees frames of its own interface only; VLAN tags that the kernel took
//! off are put back; what the kernel dropped for want of room is counted. On an error that ends the
//! lane, frames received before it are delivered first.
//!
//! It takes no frame away from the kernel's own stack, so `pass` equals `drop`, and switches no
//! interface to promiscuous mode.

mod exits;

use crate::{
    arrival::{Fields, Message, Notes},
    buffers::{Buffers, Layout, offered},
    config::{FramesConfig, NAME},
    ear::Ear,
    grant::{Grant, report_counts, ring_failed},
    memory::Memory,
    receiving::{Receiving, Source, Step},
    ring::{Completion, Ring},
    socket, sys,
    sys::failed,
    token::{self, Kind},
    udp::check_ports,
};
use exits::{Exits, GatherMessage, Queue, Send};
use laneway_core::{
    Bell, Burst, CapsReport, ClockDomain, Counters, DropReason, FrameLane, FrameSpan, GATHERED_MAX,
    HEADROOM_BYTES_MIN, Lane, LaneError, PortId, Region, Verdict, Wake,
};
use laneway_linux::{Interface, TAG_BYTES, monotonic_ns, reason_not_to_send};
use laneway_spec::LaneSpec;
use std::{
    collections::VecDeque,
    io, iter,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    rc::Rc,
    time::{Duration, Instant},
};

/// What each receive asks for beside the frame: PACKET_AUXDATA (20 bytes behind their header).
const FIELDS: Fields = Fields { name_bytes: 0, control_bytes: 40 };
/// Where a frame is received in its buffer: room for the contract's headroom and a tag, and such
/// that the network header behind 14 bytes of Ethernet lies on 16 bytes.
const FRAME_AT: usize = 146;
/// Where the kernel begins to write; once read, what lies before the frame is headroom.
const LEAD_BYTES: usize = FRAME_AT - FIELDS.payload_at();
/// Buffers start at a cache line.
const ALIGN_BYTES: usize = 64;
/// How long a wait lasts while frames wait for room in a queue.
const FULL_QUEUE_NAP: Duration = Duration::from_micros(50);
/// Receives that end in an error, one after the other, before the lane gives up.
const FAILURES_MAX: u32 = 64;

const _: () =
    assert!(FRAME_AT >= HEADROOM_BYTES_MIN + TAG_BYTES && (FRAME_AT + 14).is_multiple_of(16));

/// What a spec cannot say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Open interfaces that carry a default route as well. Without it they are refused, because
    /// frames sent there go out into the real network.
    pub force: bool,
}

/// AF_PACKET sockets as a frame lane, through io_uring. See the crate's documentation.
pub struct UringFrames {
    // In front of the sockets: its ring is dropped before they are.
    exits: Exits,
    ports: Vec<Port>,
    ear: Ear,
}

/// One interface.
struct Port {
    interface: Interface,
    socket: OwnedFd,
    caps: CapsReport,
    memory: Rc<Memory>,
    burst: Burst,
    buffers: Buffers,
    arrivals: VecDeque<(u16, usize)>,
    /// Buffers that nothing uses and the kernel does not receive into.
    lendable: Vec<u32>,
    /// Sends of each buffer that have not ended, and one while the lane itself settles it.
    uses: Box<[u32]>,
    measures: Measures,
    receiving: Receiving,
    failures: u32,
    rearms: u64,
    /// Accumulated: the kernel clears its own count on each reading.
    kernel_drops: u64,
    /// Frames whose checksum their sender left to a device.
    finished: u64,
    end: Option<i32>,
    /// And the caller knows.
    is_given_up: bool,
}

/// How the memory of a port is cut into buffers: those to receive into first.
#[derive(Clone, Copy)]
struct Measures {
    stride_bytes: usize,
    received: u32,
}

impl Measures {
    /// Buffer `number` as an empty frame.
    fn span(self, number: u32) -> FrameSpan {
        FrameSpan {
            start: number as usize * self.stride_bytes + FRAME_AT,
            headroom: FRAME_AT as u32,
            len_max: (self.stride_bytes - FRAME_AT) as u32,
            ..FrameSpan::default()
        }
    }
}

impl UringFrames {
    /// Opens one socket per interface; port `i` is `interfaces[i]`, in the network namespace of this
    /// thread, which must also be the one to use and drop the lane.
    ///
    /// # Errors
    /// A wrong spec, an io_uring that is missing or disabled, no privilege (CAP_NET_RAW), an
    /// interface that is missing, down or without Ethernet headers, or the interface of a default
    /// route without [`OpenOptions::force`].
    pub fn open(
        spec: &LaneSpec,
        interfaces: &[&str],
        options: OpenOptions,
    ) -> Result<UringFrames, LaneError> {
        let config = FramesConfig::read(spec)?;
        check_ports(interfaces.len())?;
        let mut grant = Grant::open(&config.common)?;
        let mut opened = Vec::new();
        for name in interfaces {
            let mut caps = CapsReport { requested: config.requested(), ..CapsReport::default() };
            let (socket, interface) = socket::packet(&config, name, options.force, &mut caps)?;
            opened.push((socket, interface, caps));
        }
        let mut ports = Vec::new();
        for (i, (socket, interface, mut caps)) in opened.into_iter().enumerate() {
            grant.report(&config.common, &mut caps)?;
            let config = config.following(interface.found());
            write_facts(&mut caps, &config, &interface);
            ports.push(Port::new(&mut grant.ring, &config, i, (socket, interface), caps)?);
        }
        let header = Memory::map(size_of::<libc::msghdr>())
            .map_err(failed("map message header", "free memory"))?;
        let template = header.at_typed::<libc::msghdr>(0);
        // SAFETY: inside a new mapping that nothing else knows; zero is a value of a header. Of it only
        // the length of the control area matters.
        unsafe { (*template).msg_controllen = FIELDS.control_bytes as _ };
        let header = Rc::new(header);
        grant.ring.keep(&header);
        // As many sends in flight as requests fit the ring.
        let sends = config.common.depth as usize;
        let messages = Memory::map(sends * size_of::<GatherMessage>())
            .map_err(failed("map headers of sends", "lower depth="))?;
        let messages = Rc::new(messages);
        grant.ring.keep(&messages);
        let count = ports.len();
        let mut lane = UringFrames {
            exits: Exits {
                sockets: ports.iter().map(|port| port.socket.as_raw_fd()).collect(),
                frame_bytes_max: ports
                    .iter()
                    .map(|p| p.interface.found().frame_bytes_max())
                    .collect(),
                counters: vec![Counters::default(); count],
                sent: Vec::with_capacity(sends),
                gone: vec![None; count],
                template: header,
                sends: vec![Send::default(); sends].into_boxed_slice(),
                messages,
                free_sends: (0..sends as u32).rev().collect(),
                queues: (0..count).map(|_| Queue::new(sends)).collect(),
                asked: 0,
                ring: grant.ring,
            },
            ports,
            ear: Ear::default(),
        };
        lane.turn()?;
        Ok(lane)
    }

    /// Asks the ring for a step of every port; its counters tell what has moved there.
    fn ask(&mut self, step: impl Fn(&mut Receiving, &Counters) -> Option<Step>) {
        let Exits { ring, template, counters, .. } = &mut self.exits;
        let header = template.at_typed::<libc::msghdr>(0);
        let ports = self.ports.iter_mut().zip(counters).enumerate();
        for (i, (port, counters)) in ports.filter(|(_, (port, _))| !port.is_given_up) {
            let step = step(&mut port.receiving, counters);
            let (socket, place) = (port.socket.as_raw_fd(), i as u16);
            let source = Source { socket, port: place, group: place };
            // SAFETY: the ring keeps the template, which was written before the first request.
            unsafe { port.receiving.ask(step, ring, &port.buffers, source, header) };
        }
    }

    /// Takes every completion that is there.
    fn reap(&mut self) -> Result<(), LaneError> {
        while let Some(completion) = self.exits.ring.next() {
            match token::read(completion.token) {
                Some((Kind::Receive, port, _)) => {
                    if let Some(port) = self.ports.get_mut(port) {
                        port.received(completion)?;
                    }
                }
                Some((Kind::Send, _, send)) => self.exits.ended(send, completion),
                Some((Kind::Bell, ..)) => self.ear.completed(),
                Some((Kind::Accept, ..)) | None => (),
            }
        }
        for (port, frame) in self.exits.sent.drain(..) {
            self.ports[port].release(frame);
        }
        for port in &mut self.ports {
            port.buffers.publish();
        }
        match self.exits.ring.counts().lost {
            0 => Ok(()),
            _ => Err(ring_failed(io::Error::from_raw_os_error(libc::EBADR))),
        }
    }

    /// Sees to it that every port receives, submits what is queued and takes what completes.
    fn turn(&mut self) -> Result<(), LaneError> {
        self.ask(|receiving, moved| receiving.turn(moved.rx_frames + moved.tx_frames));
        self.offer_again();
        self.exits.ring.submit().map_err(ring_failed)?;
        self.reap()
    }

    /// Fails once for a port that a send found gone.
    fn check_exits(&mut self) -> Result<(), LaneError> {
        match self.exits.gone.iter().position(Option::is_some) {
            Some(at) if self.ports[at].is_given_up => {
                self.exits.gone[at] = None;
                Ok(())
            }
            Some(at) => {
                let code = self.exits.gone[at].take().expect("just found");
                Err(self.ports[at].failed("send", io::Error::from_raw_os_error(code)))
            }
            None => Ok(()),
        }
    }

    /// Sends `frame` of `ingress` by the ports that its verdict names. The caller holds one use.
    fn dispatch(&mut self, ingress: usize, (number, span): (u32, FrameSpan), verdict: Verdict) {
        match verdict {
            Verdict::Drop => (),
            Verdict::Pass => self.exits.counters[ingress].passed += 1,
            Verdict::Tx => self.send(ingress, ingress, (number, span)),
            Verdict::TxTo(egress) => self.send(ingress, egress.index(), (number, span)),
            Verdict::Fanout(set) => {
                set.iter().for_each(|egress| self.send(ingress, egress.index(), (number, span)));
            }
        }
    }

    /// Offers each queue again what it refused: the first alone while it takes nothing. What it has refused
    /// for too long is counted.
    fn offer_again(&mut self) {
        if !self.exits.are_kept() {
            return;
        }
        let now_ns = monotonic_ns();
        let mut is_one_full = false;
        for egress in 0..self.exits.queues.len() {
            let Queue { again, is_full, stall } = &mut self.exits.queues[egress];
            if again.is_empty() {
                continue;
            }
            if !stall.is_bearable(now_ns) {
                self.refuse_again(egress);
                continue;
            }
            is_one_full |= *is_full;
            let offered = if *is_full { 1 } else { again.len() };
            for _ in 0..offered {
                let Some(number) = self.exits.queues[egress].again.pop_front() else { break };
                let Send { ingress, .. } = self.exits.sends[number as usize];
                // SAFETY: the send has not ended, so the use that it was counted for still keeps its buffer.
                if !unsafe { self.exits.ask_to_send(number, &self.ports[ingress].memory) } {
                    self.exits.queues[egress].again.push_front(number);
                    break;
                }
                self.exits.counters[egress].tx_retries += 1;
            }
        }
        if is_one_full {
            // What empties the queue may need this CPU: a softirq thread, or the far end.
            std::thread::yield_now();
        }
    }

    /// Counts what waits for the queue of a port as refused, and lets its buffers go.
    fn refuse_again(&mut self, egress: usize) {
        while let Some(number) = self.exits.queues[egress].again.pop_front() {
            let Send { ingress, frame, .. } = self.exits.sends[number as usize];
            self.exits.counters[egress].drop_one(DropReason::TxRefused);
            self.exits.free_sends.push(number);
            self.ports[ingress].release(frame);
        }
    }

    fn send(&mut self, ingress: usize, egress: usize, (frame, span): (u32, FrameSpan)) {
        let bytes_max = self.exits.frame_bytes_max.get(egress);
        if let Some(reason) = bytes_max.and_then(|&max| reason_not_to_send(&span, max)) {
            return self.exits.counters[egress].drop_one(reason);
        }
        let Some(number) = self.free_send(ingress, egress, span.len as usize) else { return };
        let (start, bytes) = (span.start, span.len as usize);
        let is_borrowed = frame >= self.ports[ingress].measures.received;
        self.begin(
            number,
            Send { ingress, egress, frame, start, bytes, is_borrowed, ..Send::default() },
        );
    }

    /// Sends what is gathered from the burst of `ingress`. The caller holds a use of each of its frames.
    fn send_gathered(&mut self, ingress: usize) {
        for at in 0..self.ports[ingress].burst.gathered().len() {
            let gathered = self.ports[ingress].burst.gathered()[at];
            let egress = gathered.egress.index();
            let Some(number) = self.free_send(ingress, egress, gathered.total_bytes()) else {
                continue;
            };
            let UringFrames { ports, exits, .. } = self;
            let burst = &ports[ingress].burst;
            let (frame, head) = (burst.numbers()[gathered.frame as usize], burst.head(&gathered));
            let send = Send {
                ingress,
                egress,
                frame,
                start: gathered.start,
                bytes: gathered.bytes as usize,
                head_bytes: head.len(),
                ..Send::default()
            };
            let message = exits.message(number);
            // SAFETY: the send is free, so the kernel reads no message of its number.
            let room = unsafe { &mut (&mut *message).head };
            room[..head.len()].copy_from_slice(head);
            self.begin(number, send);
        }
    }

    /// The number of a send of `bytes` bytes by `egress`; counts why there is none.
    fn free_send(&mut self, ingress: usize, egress: usize, bytes: usize) -> Option<u32> {
        let Some(&bytes_max) = self.exits.frame_bytes_max.get(egress) else {
            self.exits.counters[ingress].drop_one(DropReason::TxNoPort);
            return None;
        };
        if bytes > bytes_max {
            self.exits.counters[egress].drop_one(DropReason::TxTooLong);
            return None;
        }
        if self.exits.free_sends.is_empty() {
            // An error comes back when the caller submits.
            let _ = self.turn();
        }
        let number = self.exits.free_sends.pop();
        if number.is_none() {
            self.exits.counters[egress].drop_one(DropReason::TxRefused);
        }
        number
    }

    /// Begins a send, of a frame of which the caller holds a use.
    fn begin(&mut self, number: u32, send: Send) {
        let UringFrames { exits, ports, .. } = self;
        let port = &mut ports[send.ingress];
        exits.sends[number as usize] = Send { sequence: exits.asked, ..send };
        exits.asked += 1;
        // SAFETY: the use counted below keeps the frame's buffer from being given, handed out or shown until
        // the send has ended, so nothing writes what is sent of it.
        if unsafe { exits.ask_to_send(number, &port.memory) } {
            port.uses[send.frame as usize] += 1;
        } else {
            exits.free_sends.push(number);
            exits.counters[send.egress].drop_one(DropReason::TxRefused);
        }
    }
}

impl Port {
    fn new(
        ring: &mut Ring,
        config: &FramesConfig,
        i: usize,
        (socket, interface): (OwnedFd, Interface),
        caps: CapsReport,
    ) -> Result<Port, LaneError> {
        let stride_bytes = (FRAME_AT + config.frame_bytes).next_multiple_of(ALIGN_BYTES);
        let frames = usize::from(config.buffers) + config.frames;
        let hint = "lower buffers=, frames= or frame=";
        let memory = Memory::map(frames * stride_bytes).map_err(failed("map frames", hint))?;
        memory.populate();
        let memory = Rc::new(memory);
        let bytes = FIELDS.payload_at() + config.frame_bytes;
        let layout = Layout { stride_bytes, lead_bytes: LEAD_BYTES, bytes };
        // SAFETY: the memory is new, and this lane uses one of these buffers only after it took it.
        let buffers =
            unsafe { Buffers::register(ring, &memory, layout, offered(config.buffers), i as u16) }?;
        // SAFETY: mapped until the last owner lets go, and the region is one of them; this module
        // makes references only to filled buffers that are not in a burst yet.
        let region =
            unsafe { Region::mapped(memory.base(), memory.bytes(), Box::new(memory.clone())) };
        Ok(Port {
            burst: Burst::new(region, config.burst).gathering(GATHERED_MAX),
            buffers,
            arrivals: VecDeque::with_capacity(usize::from(config.buffers)),
            lendable: (u32::from(config.buffers)..frames as u32).rev().collect(),
            uses: vec![0; frames].into_boxed_slice(),
            measures: Measures { stride_bytes, received: u32::from(config.buffers) },
            receiving: Receiving::new(),
            failures: 0,
            rearms: 0,
            kernel_drops: 0,
            finished: 0,
            end: None,
            is_given_up: false,
            interface,
            socket,
            caps,
            memory,
        })
    }

    /// An error of this port's socket: the interface is gone, or something unexpected.
    fn failed(&self, doing: &str, error: io::Error) -> LaneError {
        let name = self.interface.name();
        if is_gone(&error) {
            return LaneError::Gone { lane: NAME.to_owned(), name: name.to_owned() };
        }
        LaneError::os(NAME, format!("{doing} on `{name}`"), error, "see `dmesg`")
    }

    /// A receive of this port has completed.
    fn received(&mut self, completion: Completion) -> Result<(), LaneError> {
        let buffer = completion.buffer().and_then(|buffer| self.buffers.take(buffer));
        if !completion.has_more() {
            self.receiving.ended();
        }
        match (completion.outcome(), buffer) {
            (Ok(bytes), Some(buffer)) => {
                self.failures = 0;
                self.arrivals.push_back((buffer, bytes.min(self.buffers.bytes_max())));
            }
            (Ok(_), None) => self.failures += 1,
            (Err(error), buffer) => {
                if let Some(buffer) = buffer {
                    self.buffers.give(buffer);
                }
                match error.raw_os_error() {
                    // Nothing is lost: the frame waits in the socket.
                    Some(libc::ENOBUFS) => {
                        self.rearms += 1;
                        self.buffers.ran_out();
                    }
                    // A look has taken everything; an armed one ends because it was cancelled.
                    Some(libc::EAGAIN | libc::ECANCELED) => (),
                    // Reported once; what is queued can be received behind it.
                    code @ Some(_) if is_gone(&error) => self.end = code,
                    _ => self.failures += 1,
                }
                if self.failures > FAILURES_MAX {
                    return Err(self.failed("receive", error));
                }
            }
        }
        Ok(())
    }

    /// Puts arrivals into the empty burst.
    fn fill(&mut self, now_ns: u64, counters: &mut Counters) {
        while self.burst.space() > 0 {
            let Some((buffer, bytes)) = self.arrivals.pop_front() else { break };
            let start = self.buffers.start(buffer);
            // SAFETY: the buffer became ours with its completion, and no burst shows it yet.
            let bytes = unsafe { self.memory.slice(start, bytes) };
            let Some(message) = Message::parse(bytes, FIELDS) else {
                counters.drop_one(DropReason::RxError);
                self.buffers.give(buffer);
                continue;
            };
            let notes = Notes::parse(message.control);
            let len = message.payload.len() as u32;
            let span = FrameSpan {
                len,
                wire_len: notes.wire_bytes.unwrap_or(len).max(len),
                ts_ns: now_ns,
                ..self.measures.span(u32::from(buffer))
            };
            // SAFETY: the buffer is ours, in no other place, and goes back to the kernel only when
            // this frame is settled; the slice above is not used any more.
            unsafe { self.burst.extend([(u32::from(buffer), span)]) };
            self.finished += u64::from(notes.repairs.make(&mut self.burst));
        }
    }

    /// One use of buffer `frame` has ended; the last returns it to its source.
    fn release(&mut self, frame: u32) {
        let uses = &mut self.uses[frame as usize];
        *uses -= 1;
        if *uses > 0 {
            return;
        }
        if frame < self.measures.received {
            self.buffers.give(frame as u16);
        } else {
            self.lendable.push(frame);
        }
    }

    /// Reads what the kernel dropped since the last reading. A socket that cannot be asked any more
    /// adds nothing.
    fn read_statistics(&mut self) {
        let zero = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let fd = self.socket.as_fd();
        if let Ok(read) = sys::option(fd, libc::SOL_PACKET, libc::PACKET_STATISTICS, zero) {
            self.kernel_drops += u64::from(read.tp_drops);
        }
    }
}

/// True for the answers of a full queue: the socket's (EAGAIN), the discipline's or the device's.
fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS))
}

/// True for the answers of a socket whose interface is down or removed.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENETDOWN | libc::ENODEV | libc::ENXIO))
}

fn write_facts(caps: &mut CapsReport, config: &FramesConfig, interface: &Interface) {
    caps.fact("receive", "multishot recvmsg");
    caps.fact("interface", interface.name());
    caps.fact("mtu_bytes", interface.found().mtu_bytes);
    caps.fact("burst_frames", config.burst);
    caps.fact("buffers", config.buffers);
    caps.fact("pool_frames", config.frames);
    caps.fact("frame_bytes", config.frame_bytes);
    caps.fact("timestamps", "lane, per receive");
}

impl Lane for UringFrames {
    fn name(&self) -> &'static str {
        NAME
    }

    fn ports(&self) -> usize {
        self.ports.len()
    }

    fn clock_domain(&self) -> ClockDomain {
        ClockDomain::Monotonic
    }

    fn hear(&mut self, bell: &Bell) {
        self.ear.hear(bell);
    }

    /// Counted on port 0, as one wait for all ports.
    fn wait(&mut self, timeout: Duration) -> Result<Wake, LaneError> {
        self.exits.counters[0].waits += 1;
        let begun = Instant::now();
        loop {
            self.turn()?;
            if self.ear.ends_wait()
                || self.ports.iter().any(|port| {
                    !port.arrivals.is_empty() || port.end.is_some() && !port.is_given_up
                })
            {
                return Ok(Wake::Ready);
            }
            if self.exits.are_kept() {
                // No event tells that a discipline or a device has room again.
                std::thread::sleep(FULL_QUEUE_NAP.min(timeout));
                return Ok(Wake::Ready);
            }
            self.ask(|receiving, _| receiving.rest());
            self.ear.ask(&mut self.exits.ring);
            let left = timeout.saturating_sub(begun.elapsed());
            if !self.exits.ring.wait(left).map_err(ring_failed)? {
                return Ok(Wake::Timeout);
            }
        }
    }

    fn caps(&self, port: PortId) -> &CapsReport {
        &self.ports[port.index()].caps
    }

    fn counters(&mut self, port: PortId) -> Counters {
        let near = &mut self.ports[port.index()];
        near.read_statistics();
        let mut counters = self.exits.counters[port.index()].clone();
        counters.set_drops(DropReason::RxQueueFull, near.kernel_drops);
        let is_first = port.index() == 0;
        report_counts(&mut self.exits.ring, &mut near.caps, is_first.then_some(&mut counters));
        near.caps.fact("rearms", near.rearms);
        if near.finished > 0 {
            near.caps.fact("checksums_finished", near.finished);
        }
        near.caps.fact("looks", near.receiving.looks);
        near.caps.fact("buffers_in_use", near.buffers.in_use());
        counters
    }

    fn drop_unsent(&mut self) {
        (0..self.exits.queues.len()).for_each(|egress| self.refuse_again(egress));
    }
}

impl FrameLane for UringFrames {
    /// Settles first what the caller left unsettled.
    fn receive(&mut self, port: PortId) -> Result<&mut Burst, LaneError> {
        let i = port.index();
        if !self.ports[i].burst.is_empty() {
            self.settle(port)?;
        }
        if self.ports[i].arrivals.is_empty() {
            self.turn()?;
            self.check_exits()?;
        }
        if self.ports[i].arrivals.is_empty() && self.ports[i].end.is_some() {
            // What the socket had queued arrived with the receive that was armed since.
            self.turn()?;
        }
        let (near, counters) = (&mut self.ports[i], &mut self.exits.counters[i]);
        if near.arrivals.is_empty() {
            if let Some(code) = near.end.filter(|_| !near.is_given_up) {
                return Err(near.failed("receive", io::Error::from_raw_os_error(code)));
            }
            counters.polls_empty += 1;
            return Ok(&mut near.burst);
        }
        // One reading for all, after the last arrival: no frame is stamped before it was there.
        near.fill(monotonic_ns(), counters);
        counters.rx_frames += near.burst.len() as u64;
        for i in 0..near.burst.len() {
            counters.rx_bytes += u64::from(near.burst.span(i).len);
        }
        Ok(&mut near.burst)
    }

    /// Settles first what the caller left unsettled. Frames from `lend` carry no time stamp (0).
    fn lend(&mut self, port: PortId, frames: usize) -> Result<&mut Burst, LaneError> {
        self.settle(port)?;
        let near = &mut self.ports[port.index()];
        let sends = if self.exits.are_kept() { 0 } else { self.exits.free_sends.len() };
        let frames = frames.min(sends).min(near.burst.space());
        let Port { burst, lendable, measures, .. } = near;
        let empty = iter::from_fn(|| lendable.pop().map(|number| (number, measures.span(number))));
        // SAFETY: nothing refers to a lendable buffer, the kernel never receives into it, and buffers do not
        // overlap; it is lendable again only when its frame is settled.
        unsafe { burst.extend(empty.take(frames)) };
        Ok(&mut near.burst)
    }

    fn settle(&mut self, port: PortId) -> Result<(), LaneError> {
        let i = port.index();
        for at in 0..self.ports[i].burst.len() {
            let burst = &self.ports[i].burst;
            let (number, span, verdict) = (burst.numbers()[at], burst.span(at), burst.verdict(at));
            self.ports[i].uses[number as usize] += 1;
            self.dispatch(i, (number, span), verdict);
        }
        self.send_gathered(i);
        for at in 0..self.ports[i].burst.len() {
            let number = self.ports[i].burst.numbers()[at];
            self.ports[i].release(number);
        }
        self.ports[i].burst.clear();
        for port in &mut self.ports {
            port.buffers.publish();
        }
        self.turn()?;
        self.check_exits()
    }

    fn refused(&self, port: PortId) -> u64 {
        self.exits.counters[port.index()].drops(DropReason::TxRefused)
    }

    fn give_up(&mut self, port: PortId) {
        self.ports[port.index()].is_given_up = true;
    }
}
