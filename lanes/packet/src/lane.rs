//! The lane: sockets of all ports of one worker, and the frame contract on top of them.
//!
//! Assumes one thread and the network namespace of the thread that opens it. What must always hold:
//! every buffer of a port's pool is in exactly one place (free list or burst), and
//! every frame of its ring is counted in its block until it is settled. On an error that ends the
//! lane, frames received before it are delivered first.

use crate::{
    config::{Config, FRAME_AT, Mode, NAME},
    group::FanoutGroup,
    inbox::Inbox,
    memory::Memory,
    outbox::{Loan, Outbox, is_gone},
    ring::Ring,
    socket, sys,
};
use laneway_core::{
    Bell, Burst, CapsReport, ClockDomain, Counters, DropReason, FrameLane, FrameSpan, GATHERED_MAX,
    Lane, LaneError, PortId, PortMask, Verdict, Wake,
};
use laneway_linux::{Interface, Repairs, WallClock, monotonic_ns};
use laneway_spec::LaneSpec;
use std::{
    io, iter,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    rc::Rc,
    time::Duration,
};

/// Set in the number of a frame that lies in the ring; the rest is its block. Without it the number
/// is that of a buffer of the pool.
const IN_RING: u32 = 1 << 31;
/// A ring makes no system call that would tell of a lost interface, so a worker that never waits
/// asks once in so many empty receives.
const EMPTY_RECEIVES_PER_CHECK: u32 = 1024;
/// The kernel looks at a block at most twice before it hands it over, and looks late by less than a
/// timeout.
const BLOCK_TIMEOUTS_PER_RETIREMENT: u64 = 3;
/// It counts those in ticks, of 10 ms at 100 Hz: each look, and the beginning, may be a tick later.
const TICKS_NS: u64 = 4 * 10_000_000;

/// What a spec cannot say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Open interfaces that carry a default route as well. Without it they are refused, because
    /// frames sent there go out into the real network.
    pub force: bool,
}

/// AF_PACKET sockets as a frame lane. See the crate's documentation.
pub struct PacketLane {
    ports: Vec<Port>,
    /// Apart from the ports, because a frame of one port leaves by another.
    exits: Vec<Exit>,
    counters: Vec<Counters>,
    /// By port, then the bell if there is one.
    polled: Vec<libc::pollfd>,
    bell: Option<Bell>,
}

/// The way out of one port.
struct Exit {
    socket: Rc<OwnedFd>,
    outbox: Outbox,
    /// As the port's.
    is_given_up: bool,
}

/// The way in of one port, and its memory.
struct Port {
    id: PortId,
    interface: Interface,
    socket: Rc<OwnedFd>,
    caps: CapsReport,
    memory: Memory,
    burst: Burst,
    /// Buffers of the pool that nothing uses.
    free: Vec<u32>,
    /// Buffers of the burst, until what they send is sent.
    settled: Vec<u32>,
    /// The burst was provided by `lend`, not received.
    is_borrowed: bool,
    source: Source,
    wall_clock: WallClock,
    measures: Measures,
    /// Accumulated: the kernel clears its own count on each reading.
    kernel_drops: u64,
    freezes: u64,
    /// Frames whose checksum their sender left to a device.
    finished: u64,
    empty_receives: u32,
    /// How long after the end frames can still come up in the ring.
    linger_ns: u64,
    end: Option<End>,
    /// Its interface is gone, and the caller knows.
    is_given_up: bool,
}

/// Nothing more will arrive on a port; what arrived before is still delivered.
#[derive(Clone, Copy)]
struct End {
    /// The kernel's error code.
    code: i32,
    /// Until when the last block of a ring may be handed over.
    last_ns: u64,
}

/// Where a port's frames come from.
enum Source {
    Copy { inbox: Inbox, arrived: Vec<(u32, FrameSpan, Repairs)>, trains: Trains },
    Ring(Ring),
}

/// How many frames to ask for when each costs a call: as many as arrived between the last two receives that
/// found nothing. So the call that would find nothing is made once per train of frames, by the receive
/// behind it, and not at the end of each burst as well.
struct Trains {
    /// Frames of the last train.
    last: usize,
    /// Frames of this one so far.
    now: usize,
}

impl Trains {
    /// The most frames to ask for now. A train that is longer than the last one is taken in bursts that
    /// grow.
    fn ask(&self) -> usize {
        if self.now == 0 { self.last } else { 2 * self.now }
    }

    /// A receive found so many.
    fn found(&mut self, frames: usize) {
        self.now += frames;
        if frames == 0 && self.now > 0 {
            (self.last, self.now) = (self.now, 0);
        }
    }
}

/// How the pool is cut into buffers.
#[derive(Clone, Copy)]
struct Measures {
    pool_at: usize,
    buffer_bytes: usize,
    frame_bytes: usize,
}

impl Measures {
    /// Buffer `number` as an empty frame.
    fn span(self, number: u32) -> FrameSpan {
        FrameSpan {
            start: self.pool_at + number as usize * self.buffer_bytes + FRAME_AT,
            headroom: FRAME_AT as u32,
            len_max: (self.buffer_bytes - FRAME_AT) as u32,
            ..FrameSpan::default()
        }
    }
}

impl PacketLane {
    /// Opens one socket per interface; port `i` is `interfaces[i]`, in the network namespace of this
    /// thread. With `fanout=` and no `group=`, all lanes of this process that are opened like this
    /// share one group.
    ///
    /// # Errors
    /// A wrong spec, no privilege (CAP_NET_RAW), an interface that is missing, down or without
    /// Ethernet headers, the interface of a default route without [`OpenOptions::force`], or a ring
    /// that the kernel cannot allocate.
    pub fn open(
        spec: &LaneSpec,
        interfaces: &[&str],
        options: OpenOptions,
    ) -> Result<PacketLane, LaneError> {
        PacketLane::open_in(FanoutGroup::of_process(), spec, interfaces, options)
    }

    /// As [`open`](Self::open), for one of several workers: with `fanout=` the lane joins the run's
    /// own `group`, unless the spec names one.
    ///
    /// # Errors
    /// As [`open`](Self::open), and when a group of that number is of another kind.
    pub fn open_in(
        group: FanoutGroup,
        spec: &LaneSpec,
        interfaces: &[&str],
        options: OpenOptions,
    ) -> Result<PacketLane, LaneError> {
        let config = Config::read(spec, group.number())?;
        if !(1..=PortMask::PORTS_MAX).contains(&interfaces.len()) {
            return Err(LaneError::Refused {
                lane: NAME.to_owned(),
                name: format!("{} interfaces", interfaces.len()),
                why: "verdicts can name no others".to_owned(),
                hint: format!("give 1 to {} interfaces", PortMask::PORTS_MAX),
            });
        }
        let mut ports = Vec::new();
        for (i, name) in interfaces.iter().enumerate() {
            ports.push(Port::open(&config, PortId(i as u32), name, options)?);
        }
        let exits = ports.iter().map(|port| Exit {
            socket: port.socket.clone(),
            // One settle adds no more than one burst to what is kept of one burst from `lend`, which
            // provides none before that has left.
            outbox: Outbox::new(2 * config.burst, port.interface.found().frame_bytes_max()),
            is_given_up: false,
        });
        let polled = ports.iter().map(|port| libc::pollfd {
            fd: port.socket.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        });
        Ok(PacketLane {
            exits: exits.collect(),
            polled: polled.collect(),
            bell: None,
            counters: vec![Counters::default(); ports.len()],
            ports,
        })
    }
}

impl Port {
    fn open(
        config: &Config,
        id: PortId,
        name: &str,
        options: OpenOptions,
    ) -> Result<Port, LaneError> {
        let (socket, interface) = socket::open(config, id, name, options.force)?;
        let config = &config.following(interface.found());
        let mut caps = CapsReport {
            requested: config.requested(),
            // Every option of the socket was accepted, or `open` had failed.
            obtained: config.requested(),
            allowed_missing: config.allowed_missing,
            ..CapsReport::default()
        };
        let pool_bytes = config.frames * config.buffer_bytes();
        let memory = Memory::map(socket.as_fd(), config.ring_bytes(), pool_bytes).map_err(|e| {
            let doing = format!("map memory for `{name}`");
            LaneError::os(NAME, doing, e, "lower frames=, frame= or blocks=")
        })?;
        let source = match config.mode {
            Mode::Ring(size) => Source::Ring(Ring::new(size)),
            Mode::Single => Source::copy(Inbox::new(1, false), config.burst),
            Mode::Many(frames) => Source::copy(Inbox::new(frames, true), config.burst),
        };
        let granted =
            sys::option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, 0).map_err(|e| {
                LaneError::os(NAME, format!("read SO_RCVBUF of `{name}`"), e, "see `dmesg`")
            })?;
        write_facts(&mut caps, config, &interface, id, granted);
        caps.admit(NAME, |_| None)?;

        Ok(Port {
            id,
            burst: Burst::new(memory.region(), config.burst).gathering(GATHERED_MAX),
            free: (0..config.frames as u32).rev().collect(),
            settled: Vec::with_capacity(config.burst),
            is_borrowed: false,
            source,
            wall_clock: WallClock::measure(),
            measures: Measures {
                pool_at: config.ring_bytes(),
                buffer_bytes: config.buffer_bytes(),
                frame_bytes: config.frame_bytes,
            },
            linger_ns: match config.mode {
                Mode::Ring(size) => linger_ns(size.timeout_ms),
                Mode::Single | Mode::Many(_) => 0,
            },
            kernel_drops: 0,
            freezes: 0,
            finished: 0,
            empty_receives: 0,
            end: None,
            is_given_up: false,
            socket: Rc::new(socket),
            interface,
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

    /// Remembers an error that the kernel left on the socket. It tells each only once.
    fn check_socket(&mut self) {
        if let Ok(Some(error)) | Err(error) = sys::take_error(self.socket.as_fd()) {
            if self.is_given_up {
                return;
            }
            let linger_ns = self.linger_ns;
            self.end.get_or_insert_with(|| End::now(&error, linger_ns));
        }
    }

    /// Fails if nothing will come any more.
    fn check_end(&self) -> Result<(), LaneError> {
        match self.end {
            Some(end) if end.remaining().is_zero() => {
                Err(self.failed("receive", io::Error::from_raw_os_error(end.code)))
            }
            _ => Ok(()),
        }
    }

    /// Fills the empty burst.
    fn receive(&mut self) {
        match &mut self.source {
            Source::Copy { .. } => self.receive_copies(),
            Source::Ring(_) => self.receive_in_place(),
        }
    }

    fn receive_copies(&mut self) {
        let Source::Copy { inbox, arrived, trains } = &mut self.source else {
            unreachable!("the caller looked");
        };
        let (measures, memory) = (self.measures, &self.memory);
        let room = match inbox.frames_max() {
            1 => self.burst.capacity().min(trains.ask()),
            _ => self.burst.capacity(),
        };
        while arrived.len() < room && !self.free.is_empty() {
            let space = room - arrived.len();
            let asked = space.min(self.free.len()).min(inbox.frames_max());
            let buffers = self
                .free
                .iter()
                .rev()
                .take(asked)
                .map(|&number| (memory.at(measures.span(number).start), measures.frame_bytes));
            // SAFETY: buffers on the free list are free, and each has room for `frame_bytes`
            // behind FRAME_AT.
            let received = match unsafe { inbox.receive(self.socket.as_fd(), buffers) } {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) if self.end.is_some() => break,
                Err(error) => {
                    // Reported once; what is queued can be received behind it.
                    self.end = Some(End::now(&error, self.linger_ns));
                    continue;
                }
            };
            for i in 0..received {
                let number = self.free.pop().expect("received <= asked <= free");
                let arrival = inbox.arrival(i);
                let span = FrameSpan {
                    len: arrival.bytes.min(measures.frame_bytes as u32),
                    wire_len: arrival.bytes,
                    ts_ns: arrival.real_ns.map_or(0, |real| self.wall_clock.monotonic(real)),
                    ..measures.span(number)
                };
                arrived.push((number, span, arrival.repairs));
            }
            if received < asked {
                break;
            }
        }
        trains.found(arrived.len());
        // One reading for all, after the last arrival: no frame is stamped before it was there.
        let now_ns = if arrived.is_empty() { 0 } else { monotonic_ns() };
        for (number, mut span, repairs) in arrived.drain(..) {
            if span.ts_ns == 0 {
                span.ts_ns = now_ns;
            }
            // SAFETY: the buffer left the free list above, the kernel is done with it, and buffers
            // do not overlap; it returns to the list only when this frame is settled.
            unsafe { self.burst.extend([(number, span)]) };
            self.finished += u64::from(repairs.make(&mut self.burst));
        }
    }

    fn receive_in_place(&mut self) {
        let Source::Ring(ring) = &mut self.source else { unreachable!("the caller looked") };
        while self.burst.space() > 0 {
            let Some(frame) = ring.take(&self.memory) else { break };
            let span = FrameSpan {
                start: frame.start,
                ts_ns: self.wall_clock.monotonic(frame.real_ns),
                len: frame.bytes,
                wire_len: frame.wire_bytes,
                headroom: (frame.start - frame.room_start) as u32,
                len_max: (frame.room_end - frame.start) as u32,
            };
            // SAFETY: the frame's block is ours until its last frame is released, `take` gives each
            // frame once, and the rooms of its frames do not overlap.
            unsafe { self.burst.extend([(IN_RING | frame.block, span)]) };
            self.finished += u64::from(frame.repairs.make(&mut self.burst));
        }
        if self.burst.is_empty() {
            self.empty_receives = self.empty_receives.wrapping_add(1);
            if self.empty_receives.is_multiple_of(EMPTY_RECEIVES_PER_CHECK) {
                self.check_socket();
            }
        }
    }

    /// True when a receive would find something, as far as that is known without a system call.
    fn is_ready(&self) -> Option<bool> {
        match &self.source {
            Source::Copy { .. } => None,
            Source::Ring(ring) => Some(ring.is_ready(&self.memory)),
        }
    }

    /// Reads what the kernel dropped since the last reading. A socket that cannot be asked any more
    /// adds nothing.
    fn read_statistics(&mut self) {
        let zero = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
        let fd = self.socket.as_fd();
        let Ok(read) = sys::option(fd, libc::SOL_PACKET, libc::PACKET_STATISTICS, zero) else {
            return;
        };
        self.kernel_drops += u64::from(read.tp_drops);
        if self.finished > 0 {
            self.caps.fact("checksums_finished", self.finished);
        }
        if read.tp_freeze_q_cnt > 0 {
            self.freezes += u64::from(read.tp_freeze_q_cnt);
            self.caps.fact("ring_freezes", self.freezes);
        }
    }
}

/// How long after the end of a ring its last block may be handed over.
fn linger_ns(timeout_ms: usize) -> u64 {
    BLOCK_TIMEOUTS_PER_RETIREMENT * timeout_ms as u64 * 1_000_000 + TICKS_NS
}

impl End {
    fn now(error: &io::Error, linger_ns: u64) -> End {
        let code = error.raw_os_error().expect("an error of a system call has a code");
        End { code, last_ns: monotonic_ns() + linger_ns }
    }

    fn remaining(self) -> Duration {
        Duration::from_nanos(self.last_ns.saturating_sub(monotonic_ns()))
    }
}

impl Source {
    fn copy(inbox: Inbox, burst: usize) -> Source {
        let trains = Trains { last: burst, now: 0 };
        Source::Copy { inbox, arrived: Vec::with_capacity(burst), trains }
    }
}

/// Returns a frame's memory to its source.
fn release(source: &mut Source, free: &mut Vec<u32>, memory: &Memory, frame: u32) {
    match source {
        Source::Ring(ring) if frame & IN_RING != 0 => ring.release(memory, frame & !IN_RING),
        _ => free.push(frame),
    }
}

fn write_facts(
    caps: &mut CapsReport,
    config: &Config,
    interface: &Interface,
    id: PortId,
    rcvbuf_bytes: libc::c_int,
) {
    let call = match config.mode {
        Mode::Single => "one recvmsg per frame".to_owned(),
        Mode::Many(frames) => format!("one recvmmsg per {frames} frames"),
        Mode::Ring(_) => "TPACKET_V3 ring".to_owned(),
    };
    caps.fact("receive", call);
    caps.fact("interface", interface.name());
    caps.fact("mtu_bytes", interface.found().mtu_bytes);
    caps.fact("burst_frames", config.burst);
    caps.fact("pool_frames", config.frames);
    caps.fact("frame_bytes", config.frame_bytes);
    caps.fact("qdisc_bypass", config.qdisc_bypass);
    caps.fact("timestamps", if config.kernel_stamps { "kernel" } else { "lane, per receive" });
    match config.mode {
        Mode::Ring(size) => {
            caps.kernel_memory.socket_bytes = (size.block_bytes * size.blocks) as u64;
            caps.fact("ring_block_bytes", size.block_bytes);
            caps.fact("ring_blocks", size.blocks);
            caps.fact("ring_block_timeout_ms", size.timeout_ms);
            caps.fact("ring_freezes", 0);
        }
        Mode::Single | Mode::Many(_) => {
            caps.fact("rcvbuf_bytes_asked", config.rcvbuf_bytes);
            // As read back: twice what was asked, because the kernel counts its own overhead too.
            caps.fact("rcvbuf_bytes", rcvbuf_bytes);
            caps.kernel_memory.socket_bytes = u64::try_from(rcvbuf_bytes).unwrap_or(0);
        }
    }
    if let Some(fanout) = config.fanout {
        caps.fact("fanout", fanout.name);
        caps.fact("fanout_group", fanout.group_of(id));
    }
}

/// Adds a frame of `ingress` to the outboxes that its verdict names. True when an outbox has the
/// buffer of `loan` now, and will return it.
///
/// # Safety
/// The bytes stay as they are until those outboxes are flushed, and those of a loan until it is returned.
unsafe fn dispatch(
    exits: &mut [Exit],
    counters: &mut [Counters],
    ingress: PortId,
    verdict: Verdict,
    (start, span): (*const u8, FrameSpan),
    loan: Option<Loan>,
) -> bool {
    // A frame for several ports is not kept: it would be in several outboxes at a time.
    let loan = loan.filter(|_| matches!(verdict, Verdict::Tx | Verdict::TxTo(_)));
    let mut is_taken = false;
    let mut send = |egress: PortId| match exits.get_mut(egress.index()) {
        Some(exit) => {
            is_taken = loan.is_some();
            // SAFETY: the caller's promise.
            unsafe { exit.outbox.add((start, &span), loan, &mut counters[egress.index()]) }
        }
        None => counters[ingress.index()].drop_one(DropReason::TxNoPort),
    };
    match verdict {
        Verdict::Drop => (),
        Verdict::Pass => counters[ingress.index()].passed += 1,
        Verdict::Tx => send(ingress),
        Verdict::TxTo(egress) => send(egress),
        Verdict::Fanout(set) => set.iter().for_each(send),
    }
    is_taken
}

/// Adds what is gathered from the burst of `ingress` to the outboxes, and flushes those that are full.
///
/// # Safety
/// The frames of the burst stay as they are, and the burst is not cleared, until the outboxes are flushed.
unsafe fn gather(
    exits: &mut [Exit],
    counters: &mut [Counters],
    ingress: PortId,
    burst: &Burst,
    failure: &mut Option<(usize, io::Error)>,
) {
    for gathered in burst.gathered() {
        let at = gathered.egress.index();
        let Some(exit) = exits.get_mut(at) else {
            counters[ingress.index()].drop_one(DropReason::TxNoPort);
            continue;
        };
        if exit.outbox.is_full() {
            exit.flush(at, &mut counters[at], failure);
        }
        let pieces = [burst.head(gathered), burst.part(gathered)];
        // SAFETY: the caller's promise.
        unsafe { exit.outbox.add_gathered(pieces, &mut counters[at]) };
    }
}

impl Exit {
    /// Sends what its outbox has; the first failure of all exits, by number, is the one that is kept.
    fn flush(
        &mut self,
        at: usize,
        counters: &mut Counters,
        failure: &mut Option<(usize, io::Error)>,
    ) {
        if let Err(error) = self.outbox.flush(self.socket.as_fd(), counters)
            && !self.is_given_up
        {
            failure.get_or_insert((at, error));
        }
    }
}

impl Lane for PacketLane {
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
        self.polled.truncate(self.ports.len());
        let fd = bell.as_fd().as_raw_fd();
        self.polled.push(libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        self.bell = Some(bell.clone());
    }

    /// Counted on port 0, as one wait for all ports.
    fn wait(&mut self, timeout: Duration) -> Result<Wake, LaneError> {
        self.counters[0].waits += 1;
        if self.ports.iter().any(|port| port.is_ready() == Some(true)) {
            return Ok(Wake::Ready);
        }
        if self.exits.iter().any(|exit| exit.outbox.kept() > 0) {
            // No event tells that a discipline or a device has room again.
            std::thread::sleep(FULL_QUEUE_NAP.min(timeout));
            return Ok(Wake::Ready);
        }
        // The socket wakes nothing a second time for its end, which receive is to tell.
        let end = self.ports.iter().filter_map(|port| port.end).min_by_key(|end| end.last_ns);
        let patience = end.map_or(timeout, |end| timeout.min(end.remaining()));
        let ready = sys::poll(&mut self.polled, patience)
            .map_err(|e| LaneError::os(NAME, "wait for frames", e, "see `dmesg`"))?;
        if ready == 0 {
            return Ok(if end.is_some() { Wake::Ready } else { Wake::Timeout });
        }
        let mut may_receive = self.bell.as_ref().is_some_and(Bell::is_rung);
        for (port, polled) in self.ports.iter_mut().zip(&self.polled) {
            if polled.revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0 {
                port.check_socket();
            }
            may_receive |= polled.revents & libc::POLLIN != 0 && port.is_ready() != Some(false);
        }
        if !may_receive {
            // A burst that is not settled pins the block that its ring filled last: until then poll
            // returns at once, and blocking would become spinning.
            std::thread::sleep(NAP.min(timeout));
        }
        Ok(Wake::Ready)
    }

    fn caps(&self, port: PortId) -> &CapsReport {
        &self.ports[port.index()].caps
    }

    fn counters(&mut self, port: PortId) -> Counters {
        let near = &mut self.ports[port.index()];
        near.read_statistics();
        let mut counters = self.counters[port.index()].clone();
        counters.set_drops(DropReason::RxQueueFull, near.kernel_drops);
        counters
    }

    fn drop_unsent(&mut self) {
        let PacketLane { ports, exits, counters, .. } = self;
        for (exit, counters) in exits.iter_mut().zip(counters) {
            exit.outbox.drop_kept(counters);
            exit.outbox.returned().for_each(|loan| ports[loan.port].free.push(loan.frame));
        }
    }
}

/// How long a wait lasts while frames wait for room in a queue.
const FULL_QUEUE_NAP: Duration = Duration::from_micros(50);

impl FrameLane for PacketLane {
    /// Settles first what the caller left unsettled.
    fn receive(&mut self, port: PortId) -> Result<&mut Burst, LaneError> {
        self.settle(port)?;
        let near = &mut self.ports[port.index()];
        near.is_borrowed = false;
        if near.is_given_up {
            return Ok(&mut near.burst);
        }
        near.receive();
        let counters = &mut self.counters[port.index()];
        if near.burst.is_empty() {
            near.check_end()?;
            counters.polls_empty += 1;
        }
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
        if near.is_given_up || self.exits.iter().any(|exit| exit.outbox.kept() > 0) {
            return Ok(&mut near.burst);
        }
        near.is_borrowed = true;
        let frames = frames.min(near.burst.space());
        let Port { burst, free, measures, .. } = near;
        let empty = iter::from_fn(|| free.pop().map(|number| (number, measures.span(number))));
        // SAFETY: the buffers were on the free list, so nothing refers to them, and buffers do not overlap;
        // they return to the list only when these frames are settled.
        unsafe { burst.extend(empty.take(frames)) };
        Ok(&mut near.burst)
    }

    fn settle(&mut self, port: PortId) -> Result<(), LaneError> {
        let PacketLane { ports, exits, counters, .. } = self;
        let Port { id, burst, memory, source, free, settled, is_borrowed, .. } =
            &mut ports[port.index()];
        for (i, &number) in burst.numbers().iter().enumerate() {
            let span = burst.span(i);
            let frame = (memory.at(span.start).cast_const(), span);
            let loan = is_borrowed.then_some(Loan { port: port.index(), frame: number });
            // SAFETY: the frame is released only after the flush below, or when its outbox returns it,
            // and nothing borrows the burst.
            if !unsafe { dispatch(exits, counters, *id, burst.verdict(i), frame, loan) } {
                settled.push(number);
            }
        }
        let mut failure = None;
        // SAFETY: heads and parts lie in the burst and its frames, which are cleared and released only behind the
        // last flush.
        unsafe { gather(exits, counters, *id, burst, &mut failure) };
        for (i, exit) in exits.iter_mut().enumerate() {
            exit.flush(i, &mut counters[i], &mut failure);
        }
        burst.clear();
        for number in settled.drain(..) {
            release(source, free, memory, number);
        }
        for exit in exits.iter_mut() {
            exit.outbox.returned().for_each(|loan| ports[loan.port].free.push(loan.frame));
        }
        match failure {
            Some((i, error)) => Err(ports[i].failed("send", error)),
            None => Ok(()),
        }
    }

    fn refused(&self, port: PortId) -> u64 {
        self.counters[port.index()].drops(DropReason::TxRefused)
    }

    fn give_up(&mut self, port: PortId) {
        let near = &mut self.ports[port.index()];
        (near.is_given_up, near.end) = (true, None);
        self.exits[port.index()].is_given_up = true;
        // Left out by poll.
        self.polled[port.index()].fd = -1;
    }
}

/// How long a wait lasts when poll is no help: the block timeout's own unit, because a ring hands
/// over frames no more often.
const NAP: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// Receives trains of so many frames, in bursts of 64 at most, and gives how many calls were made.
    fn calls(trains: &mut Trains, frames: usize) -> usize {
        let (mut left, mut calls) = (frames, 0);
        loop {
            let asked = trains.ask().min(64);
            let got = asked.min(left);
            // One that finds nothing ends a burst that is not full.
            calls += got + usize::from(got < asked);
            left -= got;
            trains.found(got);
            if got == 0 {
                return calls;
            }
        }
    }

    /// With the default of 1 ms a tick of the kernel was longer than all that was waited.
    #[test]
    fn a_ring_waits_at_its_end_for_looks_that_the_kernel_rounds_up_to_ticks() {
        for tick_ms in [1, 4, 10] {
            for timeout_ms in [1, 3, 10, 11, 1000_usize] {
                // Two looks, the timer of each at the tick behind its time, and the work behind a third.
                let look_ms = timeout_ms.next_multiple_of(tick_ms) + tick_ms;
                let last_ms = 2 * look_ms + timeout_ms;
                assert!(
                    linger_ns(timeout_ms) >= last_ms as u64 * 1_000_000,
                    "{timeout_ms} ms, ticks of {tick_ms} ms"
                );
            }
        }
    }

    #[test]
    fn a_train_costs_a_call_per_frame_and_one_that_finds_nothing() {
        let mut trains = Trains { last: 64, now: 0 };
        assert_eq!(calls(&mut trains, 1), 3, "as it was for every train");
        assert_eq!(calls(&mut trains, 1), 2);
        assert!(calls(&mut trains, 9) <= 11);
        assert_eq!(calls(&mut trains, 9), 10);
        assert_eq!(calls(&mut trains, 0), 1);
        assert_eq!(calls(&mut trains, 9), 10);
        assert!(calls(&mut trains, 640) <= 642);
    }
}
