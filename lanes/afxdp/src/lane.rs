//! The lane: one memory, and per interface one socket, its rings and its program.
//!
//! Assumes that the worker stays on the thread and in the network namespace that opened it. What
//! must always hold: receiving costs no system call (but with busy polling), sending a burst costs
//! one per egress port, more only where the kernel takes less per call, none while it asks for none;
//! a port that exists has its program attached in the mode that its report names. What it does not
//! do: frames are moved by the plane, not here.

use crate::{
    config::{self, BusyPoll, Config, NAME, QUEUES_MAX},
    interface::{Interface, check_names, find},
    plane::{Census, Plane, PortLimits},
    program::{Program, Registration},
    socket::Socket,
    steering::Steering,
    sys::{self, Mapping},
    umem::{self, Umem},
};
use laneway_bpf::XdpMode;
use laneway_core::{
    Bell, Burst, Cap, CapSet, CapsReport, ClockDomain, Counters, DropReason, FrameLane, Lane,
    LaneError, PortId, Wake,
};
use laneway_linux::{Stall, finish_checksums, monotonic_ns};
use laneway_spec::LaneSpec;
use std::{
    io,
    os::fd::{AsFd, AsRawFd},
    sync::Arc,
    thread,
    time::Duration,
};

/// How long a wait lasts before it looks whether the interfaces are still there: the kernel does not
/// wake a poller for that.
const LIVENESS_INTERVAL: Duration = Duration::from_millis(50);
/// Empty receives in a row after which a worker that never waits looks for the interface.
const LIVENESS_EMPTY_POLLS: u32 = 8192;
/// How long a wait lasts while the kernel cannot take what is in a transmit ring.
const STALL_INTERVAL: Duration = Duration::from_micros(200);

/// An interface to open a port on, with the program that is attached there already, if there is one.
type InterfaceWithProgram = (Interface, Option<Arc<Program>>);

/// The lane: one worker's queue of every interface, over one memory.
pub struct AfXdp {
    // Dropped first: takes the sockets out of the programs' maps (and detaches the programs, if
    // nothing else uses them), then closes the sockets.
    ports: Vec<Port>,
    plane: Plane,
    /// By port, then the bell if there is one.
    poll: Vec<libc::pollfd>,
    bell: Option<Bell>,
}

/// What belongs to one port besides its rings.
struct Port {
    registration: Registration,
    socket: Socket,
    interface: Interface,
    report: CapsReport,
    statistics: sys::XdpStatistics,
    zero_copy: bool,
    need_wakeup: bool,
    /// In copy mode, descriptors that one call sends.
    tx_budget: u32,
    /// A call that sends shows how far it got (`Granted::shows_place`).
    shows_place: bool,
    busy_poll: Option<BusyPoll>,
    multi_buffer: bool,
    /// Checksums that were left to a device are looked for, and how many there were.
    finishes: bool,
    finished: u64,
    /// The kernel left frames in the transmit ring: its buffers were full.
    stalled: bool,
    /// Since when the driver drops every frame.
    stall: Stall,
    gone: bool,
    /// And the caller knows.
    is_given_up: bool,
    empty_polls: u32,
}

impl AfXdp {
    /// Opens the lane on one queue of each of `interfaces`, in this thread's network namespace; port
    /// ids follow their order. The worker thread must stay in that namespace. Interfaces that carry a
    /// default route are refused unless `force`: with the program attached, the machine's own traffic
    /// on that queue goes to the app.
    ///
    /// # Errors
    /// Bad knobs, unknown, busy or refused interfaces, missing privileges, memory limits, and
    /// [`LaneError::CapMissing`] for what was asked for, not obtained, and not allowed to be missing.
    pub fn open<S: AsRef<str>>(
        spec: &LaneSpec,
        interfaces: &[S],
        force: bool,
    ) -> Result<AfXdp, LaneError> {
        config::check_lane(spec)?;
        let config = Config::read(spec)?;
        let interfaces: Vec<&str> = interfaces.iter().map(AsRef::as_ref).collect();
        check_names(&interfaces)?;
        let places = |config: &Config| {
            let found = interfaces.iter().map(|name| Ok((find(name, config, force)?, None)));
            found.collect()
        };
        AfXdp::open_allowing(config.requested(), config, places)
    }

    /// Opens the lane of one of several workers, counted from 0: it serves queue `queue=` +
    /// `worker` of every interface of `steering`, in the mode that has been obtained there.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`LaneError::Refused`] when an interface has too few queues, with the
    /// number it has and the command that gives it more.
    pub fn open_steered(steering: &Steering, worker: usize) -> Result<AfXdp, LaneError> {
        let mut config = steering.config().clone();
        let requested = config.requested();
        config.generic = steering.is_generic();
        // The map of sockets ends there, whatever the interface has.
        config.queue = config.queue.saturating_add(u32::try_from(worker).unwrap_or(u32::MAX));
        if config.queue as usize >= QUEUES_MAX {
            return Err(LaneError::Refused {
                lane: NAME.to_owned(),
                name: format!("queue {}", config.queue),
                why: format!("a program knows {QUEUES_MAX} queues"),
                hint: "use fewer workers or a lower queue=".to_owned(),
            });
        }
        let places = |config: &Config| {
            let ports = steering.ports();
            // Whether the interface may be used was asked when the program was attached.
            ports
                .map(|(name, program)| Ok((find(name, config, true)?, Some(program.clone()))))
                .collect()
        };
        AfXdp::open_allowing(requested, config, places)
    }

    /// Finishes the checksums of TCP and UDP that a program at the other end of a veth left to a device that is none.
    /// AF_XDP does not say of which frames, so every frame received on a veth is looked at; on others none is. For apps
    /// that send on what they receive, or check it.
    #[must_use]
    pub fn finishing_checksums(mut self) -> AfXdp {
        for port in &mut self.ports {
            port.finishes = port.interface.is_veth();
        }
        self
    }

    /// Opens the lane without what cannot be had and may be missing.
    fn open_allowing(
        requested: CapSet,
        mut config: Config,
        places: impl Fn(&Config) -> Result<Vec<InterfaceWithProgram>, LaneError>,
    ) -> Result<AfXdp, LaneError> {
        loop {
            match AfXdp::open_as(&config, places(&config)?) {
                // All ports share one memory, hence one mode: start anew without the capability.
                Err(LaneError::CapMissing { cap, .. })
                    if config.allowed_missing.has(cap) && config.do_without(cap) => {}
                Err(e) => return Err(e),
                Ok(mut lane) => {
                    for port in &mut lane.ports {
                        port.report.requested = requested;
                    }
                    return Ok(lane);
                }
            }
        }
    }

    fn open_as(config: &Config, places: Vec<InterfaceWithProgram>) -> Result<AfXdp, LaneError> {
        let umem = map_umem(config, places.len())?;
        let mut lane = AfXdp {
            ports: Vec::with_capacity(places.len()),
            poll: Vec::with_capacity(places.len()),
            plane: Plane::new(umem),
            bell: None,
        };
        for place in places {
            lane.add_port(config, place)?;
        }
        Ok(lane)
    }

    fn add_port(&mut self, config: &Config, place: InterfaceWithProgram) -> Result<(), LaneError> {
        let (interface, shared) = place;
        let is_shared = shared.is_some();
        let first = self.ports.first().map(|port| &port.socket);
        let (socket, rings) = Socket::open(config, &interface, &self.plane.umem, first)?;
        let mtu_bytes = interface.mtu_bytes().map_err(|e| {
            LaneError::os(
                NAME,
                format!("read the MTU of `{}`", interface.name()),
                e,
                "see `ip link`",
            )
        })?;
        let limits = PortLimits {
            burst_frames: config.burst_frames,
            fill_frames: config.fill_entries,
            mtu_bytes,
        };
        // The fill ring must have frames before the program sends any.
        self.plane.add_port(rings, limits);
        let program = match shared {
            Some(program) => program,
            None => Arc::new(Program::attach(config, &interface)?),
        };
        let mut report = self.report(config, &interface, &socket, &program, mtu_bytes);
        report.fact("xdp_program_shared", if is_shared { "yes" } else { "no" });
        report.admit(NAME, |_| None)?;
        let registration = Registration::new(program, config.queue, socket.fd())?;
        self.poll.push(libc::pollfd {
            fd: socket.fd().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        });
        self.ports.push(Port {
            zero_copy: socket.granted().zero_copy,
            need_wakeup: config.need_wakeup,
            tx_budget: socket.granted().tx_budget,
            shows_place: socket.granted().shows_place,
            busy_poll: config.busy_poll.filter(|_| socket.granted().busy_poll),
            multi_buffer: config.multi_buffer,
            finishes: false,
            finished: 0,
            registration,
            socket,
            interface,
            report,
            statistics: sys::XdpStatistics::default(),
            stalled: false,
            stall: Stall::default(),
            gone: false,
            is_given_up: false,
            empty_polls: 0,
        });
        Ok(())
    }

    /// What the knobs asked for and what this port has.
    fn report(
        &self,
        config: &Config,
        interface: &Interface,
        socket: &Socket,
        program: &Program,
        mtu_bytes: u32,
    ) -> CapsReport {
        let granted = socket.granted();
        let obtained = CapSet::default()
            .with(Cap::Transmit)
            .with(Cap::SharedMemory)
            .with_if(Cap::NativeXdp, program.mode() == XdpMode::Native)
            .with_if(Cap::ZeroCopy, granted.zero_copy)
            .with_if(Cap::NeedWakeup, config.need_wakeup)
            .with_if(Cap::BusyPoll, granted.busy_poll)
            .with_if(Cap::MultiBuffer, config.multi_buffer);
        let mut report = CapsReport {
            requested: config.requested(),
            obtained,
            allowed_missing: config.allowed_missing,
            queue: Some(config.queue),
            by_redirect: program.mode() == XdpMode::Native,
            ..CapsReport::default()
        };
        let umem = &self.plane.umem;
        report.kernel_memory.pinned_bytes = umem.region().bytes() as u64;
        report.fact("interface", interface.name());
        report.fact("mtu_bytes", mtu_bytes);
        report.fact("queue", config.queue);
        // Read behind the program's attachment: virtio-net then receives by more queues than before.
        let rx_queues = interface.channels().map(|channels| channels.rx);
        report.fact("rx_queues", rx_queues.map_or_else(|| "unknown".to_owned(), |n| n.to_string()));
        report.notes.extend(rx_queues.and_then(|n| unserved_queues(config, interface.name(), n)));
        report.fact("xdp_mode", program.mode());
        report.fact("xdp_program_id", program.id());
        report.fact("copy_mode", if granted.zero_copy { "zero-copy" } else { "copy" });
        report.fact("umem_bytes", umem.region().bytes());
        report.fact("umem_locked_bytes", umem.region().bytes());
        report.fact("umem_hugepages", if config.hugepages { "yes" } else { "no" });
        report.fact("umem_frames", umem.frames());
        report.fact("umem_shared_by_ports", umem.frames() / config.frames_per_port);
        report.fact("frame_bytes", umem.frame_bytes());
        report.fact("headroom_bytes", umem::HEADROOM_BYTES);
        report.fact("rx_entries", config.rx_entries);
        report.fact("tx_entries", config.tx_entries);
        report.fact("fill_entries", config.fill_entries);
        report.fact("completion_entries", config.tx_entries);
        report.fact("tx_frames_per_call", granted.tx_budget);
        if config.busy_poll.is_some() {
            report.fact("busy_poll_us", granted.busy_poll_us);
            report.fact("busy_budget", granted.busy_budget);
        }
        report
    }

    /// Where every frame of the UMEM is now. Adds up to the fact `umem_frames` at any time.
    pub fn census(&self) -> Census {
        self.plane.census()
    }

    /// Ends a port: what has not left by now never will.
    fn gone(&mut self, port: usize) -> LaneError {
        self.plane.close(port);
        let port = &mut self.ports[port];
        port.gone = true;
        LaneError::Gone { lane: NAME.to_owned(), name: port.interface.name().to_owned() }
    }

    /// Fails with [`LaneError::Gone`] when an interface has disappeared or is down; otherwise takes
    /// note of its MTU, because the kernel sends frames of any length from a transmit ring.
    fn check_alive(&mut self) -> Result<(), LaneError> {
        for index in 0..self.ports.len() {
            let port = &self.ports[index];
            if port.is_given_up {
                continue;
            }
            if port.gone || !port.interface.is_up() {
                return Err(self.gone(index));
            }
            if let Ok(mtu_bytes) = port.interface.mtu_bytes() {
                self.plane.set_mtu(index, mtu_bytes);
            }
        }
        Ok(())
    }

    /// Announces published frames to the kernel, if it asks for that, until it has taken them or
    /// cannot take more.
    fn kick(&mut self, index: usize) -> Result<(), LaneError> {
        if self.ports[index].is_given_up {
            return Ok(());
        }
        if self.ports[index].gone {
            return Err(self.gone(index));
        }
        let (port, plane) = (&mut self.ports[index], &mut self.plane);
        if port.need_wakeup && !plane.ports[index].rings.tx.needs_wakeup() {
            return Ok(());
        }
        port.stalled = false;
        let mut waiting = plane.ports[index].rings.tx.waiting();
        // What a kernel that does not show how far it got may have left after its budget: so many calls send it.
        let mut calls_unseen = if port.shows_place { 0 } else { waiting / port.tx_budget };
        while waiting > 0 {
            let answer = sys::wake_transmit(port.socket.fd());
            let left = plane.ports[index].rings.tx.waiting();
            let errno = answer.as_ref().err().and_then(io::Error::raw_os_error);
            match errno {
                // The driver now reads the ring in its own time.
                None if port.zero_copy => return Ok(()),
                // All is sent, or the completion ring is full.
                None => {
                    port.stall.ended();
                    port.stalled = left > 0;
                    return Ok(());
                }
                Some(libc::EINTR) => {}
                Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => return Err(self.gone(index)),
                // In copy mode: the driver dropped the frame it was just given, because its queue is full or the link
                // has no carrier. So it would drop the others: they wait in the ring. What empties that queue may
                // need this CPU (on veth the far end's NAPI thread), and would get it only when this worker's time
                // is up: under overload most frames were forwarded for nothing.
                Some(libc::EBUSY) if !port.zero_copy => {
                    if waiting - left > 1 {
                        port.stall.ended();
                    }
                    let keeps = port.stall.is_bearable(monotonic_ns());
                    // SAFETY: in copy mode the kernel transmits in the calls `wake_transmit` and `poll`, which this
                    // thread alone makes on the socket.
                    unsafe { plane.driver_dropped(index, waiting, port.shows_place, keeps) };
                    port.stalled = plane.ports[index].rings.tx.waiting() > 0;
                    thread::yield_now();
                    return Ok(());
                }
                // The call's budget is used up: go on.
                Some(libc::EAGAIN) if left < waiting => port.stall.ended(),
                Some(libc::EAGAIN) if calls_unseen > 0 => calls_unseen -= 1,
                // No memory, no send buffer, a stopped queue: try again with the next burst.
                Some(_) => {
                    port.stalled = true;
                    return Ok(());
                }
            }
            waiting = left;
        }
        Ok(())
    }

    /// Sends what settling one port put into the transmit rings; by the other ports also when one
    /// is gone.
    fn kick_unsent(&mut self) -> Result<(), LaneError> {
        let mut outcome = Ok(());
        for index in 0..self.ports.len() {
            if self.plane.take_unsent(index) || self.ports[index].stalled {
                let kicked = self.kick(index);
                outcome = outcome.and(kicked);
            }
        }
        outcome
    }

    /// Goes on with what a full queue left in the transmit rings, or dropped and gave back.
    fn send_again(&mut self) -> Result<(), LaneError> {
        let is_unsent = self.plane.publish();
        if is_unsent || self.ports.iter().any(|port| port.stalled) {
            return self.kick_unsent();
        }
        Ok(())
    }

    /// Before a port's burst is used again: the engine has settled it, or gave up in between.
    fn settle_leftover(&mut self, port: PortId) -> Result<(), LaneError> {
        if self.plane.ports[port.index()].burst.is_empty() {
            return Ok(());
        }
        self.settle(port)
    }
}

impl Lane for AfXdp {
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
        self.poll.truncate(self.ports.len());
        let fd = bell.as_fd().as_raw_fd();
        self.poll.push(libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        self.bell = Some(bell.clone());
    }

    fn wait(&mut self, timeout: Duration) -> Result<Wake, LaneError> {
        self.plane.reap();
        self.plane.publish();
        self.kick_unsent()?;
        let mut left = timeout;
        loop {
            if self.ports.iter().any(|port| port.gone && !port.is_given_up) {
                // Polling would transmit, if the interface returned.
                return Ok(Wake::Ready);
            }
            if (0..self.ports.len()).any(|port| self.plane.is_ready(port)) {
                return Ok(Wake::Ready);
            }
            self.plane.ports[0].counters.waits += 1;
            if self.ports.iter().any(|port| port.stalled && !port.is_given_up) {
                // Polling the sockets would transmit as well, without telling what was refused.
                let slice = left.min(STALL_INTERVAL);
                interrupted(sys::poll(&mut [], slice))?;
                self.check_alive()?;
                return Ok(Wake::Ready);
            }
            let slice = left.min(LIVENESS_INTERVAL);
            if interrupted(sys::poll(&mut self.poll, slice))? {
                if self.poll.iter().any(|fd| fd.revents & !libc::POLLIN != 0) {
                    self.check_alive()?;
                }
                return Ok(Wake::Ready);
            }
            self.check_alive()?;
            left -= slice;
            if left.is_zero() {
                return Ok(Wake::Timeout);
            }
        }
    }

    fn caps(&self, port: PortId) -> &CapsReport {
        &self.ports[port.index()].report
    }

    fn counters(&mut self, port: PortId) -> Counters {
        let own = &mut self.ports[port.index()];
        // A socket whose interface is gone may refuse: the last figures stay.
        if let Ok(statistics) = own.socket.statistics() {
            own.statistics = statistics;
        }
        let mut counters = self.plane.ports[port.index()].counters.clone();
        count_kernel_drops(&mut counters, &own.statistics, own.zero_copy, own.multi_buffer);
        if own.finishes {
            own.report.fact("checksums_finished", own.finished);
        }
        counters
    }

    fn drop_unsent(&mut self) {
        self.plane.drop_unsent();
    }
}

impl FrameLane for AfXdp {
    fn receive(&mut self, port: PortId) -> Result<&mut Burst, LaneError> {
        self.settle_leftover(port)?;
        let index = port.index();
        let own = &mut self.ports[index];
        if own.busy_poll.is_some() && !self.plane.is_ready(index) {
            // Drives the device's receive queue on this core; an error shows up in the next wait.
            let _ = sys::wake_receive(own.socket.fd());
        }
        self.plane.receive(index, monotonic_ns);
        let plane_port = &mut self.plane.ports[index];
        if plane_port.burst.is_empty() {
            own.empty_polls += 1;
            let is_news = own.gone && !own.is_given_up;
            if is_news || own.empty_polls >= LIVENESS_EMPTY_POLLS {
                own.empty_polls = 0;
                self.check_alive()?;
            }
            // What a full queue kept back: an empty burst is not settled.
            self.send_again()?;
        } else {
            own.empty_polls = 0;
            if own.finishes {
                own.finished += finish_checksums(&mut plane_port.burst);
            }
        }
        let own = &self.ports[index];
        let plane_port = &mut self.plane.ports[index];
        // In copy mode the kernel looks at the fill ring whenever a frame comes.
        if own.zero_copy && own.need_wakeup && plane_port.rings.fill.needs_wakeup() {
            let _ = sys::wake_receive(own.socket.fd());
        }
        Ok(&mut plane_port.burst)
    }

    fn lend(&mut self, port: PortId, frames: usize) -> Result<&mut Burst, LaneError> {
        self.settle_leftover(port)?;
        let own = &self.ports[port.index()];
        if own.is_given_up {
            return Ok(&mut self.plane.ports[port.index()].burst);
        }
        if own.gone {
            return Err(self.gone(port.index()));
        }
        self.plane.lend(port.index(), frames);
        if self.plane.ports[port.index()].burst.is_empty() {
            self.send_again()?;
        }
        Ok(&mut self.plane.ports[port.index()].burst)
    }

    fn settle(&mut self, port: PortId) -> Result<(), LaneError> {
        let program = self.ports[port.index()].registration.program();
        self.plane.settle(port.index(), &mut |frame| program.pass(frame));
        self.kick_unsent()
    }

    fn refused(&self, port: PortId) -> u64 {
        self.plane.ports[port.index()].counters.drops(DropReason::TxRefused)
    }

    fn give_up(&mut self, port: PortId) {
        self.plane.close(port.index());
        let own = &mut self.ports[port.index()];
        (own.gone, own.is_given_up, own.stalled) = (true, true, false);
        // Left out by poll.
        self.poll[port.index()].fd = -1;
    }
}

/// Of the last worker's lane: queues by which the interface receives and that no worker serves.
fn unserved_queues(config: &Config, interface: &str, rx_queues: u32) -> Option<String> {
    let Config { queue, queues_end, .. } = *config;
    if queue + 1 != queues_end || queues_end >= rx_queues {
        return None;
    }
    let more = rx_queues - queues_end;
    Some(format!(
        "`{interface}` receives by {rx_queues} queues, and no worker serves the last {more}: their frames go to the \
         kernel's stack; use more workers, or have it receive by {queues_end} (`ethtool -X {interface} equal \
         {queues_end}` while this runs)"
    ))
}

/// Adds the kernel's losses under the contract's names.
///
/// In copy mode the kernel counts a frame that finds the fill ring empty twice, as
/// `rx_fill_ring_empty_descs` and as `rx_dropped`; what remains of `rx_dropped` are frames longer
/// than a UMEM frame, or, with multi-buffer, longer than the fill ring's rest. In zero-copy mode
/// `rx_fill_ring_empty_descs` counts the driver's attempts to refill, an upper bound of frames lost.
fn count_kernel_drops(
    counters: &mut Counters,
    statistics: &sys::XdpStatistics,
    zero_copy: bool,
    multi_buffer: bool,
) {
    let empty = statistics.rx_fill_ring_empty_descs;
    counters.drop_many(DropReason::RxQueueFull, statistics.rx_ring_full);
    counters.drop_many(DropReason::RxNoFrame, empty);
    counters.drop_many(DropReason::RxError, statistics.rx_invalid_descs);
    counters.drop_many(DropReason::TxRefused, statistics.tx_invalid_descs);
    let rest = match (zero_copy, multi_buffer) {
        (true, _) => DropReason::RxError,
        (false, true) => DropReason::RxNoFrame,
        (false, false) => DropReason::RxTooLong,
    };
    let counted = if zero_copy { 0 } else { empty };
    counters.drop_many(rest, statistics.rx_dropped.saturating_sub(counted));
}

/// True when something is ready; a signal counts as an early wake-up.
fn interrupted(polled: io::Result<usize>) -> Result<bool, LaneError> {
    match polled {
        Ok(ready) => Ok(ready > 0),
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(true),
        Err(e) => Err(LaneError::os(NAME, "wait for frames", e, "try idle=spin")),
    }
}

/// Maps the memory for `ports` ports.
fn map_umem(config: &Config, ports: usize) -> Result<Umem, LaneError> {
    let frames = u32::try_from(config.frames_per_port as usize * ports)
        .expect("2^20 frames on 32 ports fit 32 bits");
    let bytes = frames as usize * config.frame_bytes;
    let page_bytes = if config.hugepages { sys::huge_page_bytes() } else { sys::page_bytes() };
    let whole = bytes.next_multiple_of(page_bytes);
    if !config.hugepages {
        check_memory(whole, sys::available_memory_bytes())?;
    }
    let mapping = Mapping::anonymous(whole, config.hugepages).map_err(|e| {
        let hint = if config.hugepages {
            let pages = whole / page_bytes;
            format!("reserve {pages} huge pages with `sysctl vm.nr_hugepages={pages}`, or leave hugepages out")
        } else {
            "lower frames=".to_owned()
        };
        LaneError::os(NAME, format!("map a umem of {whole} bytes"), e, &hint)
    })?;
    let base = mapping.base();
    // SAFETY: the mapping is private to this value, is as long as the frames together, and is
    // unmapped when the owner, which the UMEM keeps, is dropped.
    Ok(unsafe { Umem::new(base, config.frame_bytes, frames, Box::new(mapping)) })
}

/// Refuses to lock memory that would be taken from other programs: the kernel would end one of them.
fn check_memory(bytes: usize, available_bytes: Option<u64>) -> Result<(), LaneError> {
    match available_bytes {
        Some(available_bytes) if bytes as u64 > available_bytes => Err(LaneError::Refused {
            lane: NAME.to_owned(),
            name: format!("umem of {bytes} bytes"),
            why: format!("the machine has {available_bytes} bytes available"),
            hint: "lower frames= or frame=, or use fewer ports".to_owned(),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_umem_beyond_the_available_memory_is_refused_with_both_values() {
        assert!(check_memory(4096, Some(4096)).is_ok() && check_memory(usize::MAX, None).is_ok());
        let message = check_memory(8192, Some(4096)).unwrap_err().to_string();
        for words in ["umem of 8192 bytes", "4096 bytes available", "lower frames="] {
            assert!(message.contains(words), "{message}");
        }
    }
}
