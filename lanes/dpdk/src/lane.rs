//! The lane: a pool, one port per interface, and the frame contract on top of them.
//!
//! Several workers share pool and ports ([`DpdkPorts`]): each opens a lane of its own, with its own
//! queues of every port.
//!
//! ```text
//!                receive                      settle: Tx, TxTo, Fanout
//!   device ─────────────────▶ burst ──────────────────────────────────▶ outbox of a port ─▶ device
//!     ▲                        │ ▲                                                            │
//!     │ takes mbufs itself     │ └─ lend ── pool                                              │ frees them
//!     └───────── pool ◀────────┴─ settle: Drop, Pass, refused                                │ when sent
//!                 ▲───────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Assumes that the worker stays on the thread and in the network namespace that opened it. What must
//! always hold: every mbuf is in exactly one place; receiving makes one call of the shim per burst,
//! sending one per egress port, dropping one. A gathered frame is an mbuf with its head and one that refers to the
//! part; a frame that parts of are gathered is referred to by the lane, too, until they are. What it does not do: hand
//! frames back to the kernel's stack. A passed frame is consumed, as the port's facts say.

use crate::{
    borrowed::Borrowed,
    config::{Config, Memory, NAME},
    device::{Device, ETHERNET_BYTES},
    eal::{Eal, Lcore},
    hugepages::Reservation,
    pool::{Layout, Pool, SharedPool},
    port::{Port, QueueCounts, Started},
    shim::{Shim, ShimFrame},
    wake,
};
use laneway_core::{
    Bell, Burst, CapsReport, ClockDomain, Counters, DropReason, FrameLane, FrameSpan, GATHERED_MAX,
    Gathered, Lane, LaneError, PortId, PortMask, Verdict, Wake,
};
use laneway_linux::{finish_checksums, monotonic_ns};
use laneway_spec::LaneSpec;
use std::{
    os::fd::{AsFd, AsRawFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// How long a wait lasts before it looks whether the interfaces are still there: nothing wakes a
/// worker for that.
const LIVENESS_INTERVAL: Duration = Duration::from_millis(50);
/// Empty receives in a row after which a worker that never waits looks for the interface.
const LIVENESS_EMPTY_POLLS: u32 = 8192;
/// First and longest sleep of a wait that has nothing to poll. The longest is what the first frame
/// after a silence may have to wait, and costs an idle worker well under 1 % of a core.
const NAP_MIN: Duration = Duration::from_micros(50);
const NAP_MAX: Duration = Duration::from_millis(1);

/// Attempts to open net_af_xdp ports, and the pause between two: the kernel frees a queue some time
/// after its last socket is closed.
const AF_XDP_TRIES: usize = 10;
const AF_XDP_PAUSE: Duration = Duration::from_millis(20);

/// DPDK ports as a frame lane. See the crate's documentation.
pub struct DpdkLane {
    // Dropped in this order: ports before the pool, and the thread leaves DPDK last.
    ports: Vec<Port>,
    bursts: Vec<PortBurst>,
    counters: Vec<Counters>,
    scratch: Scratch,
    /// What the ports have to poll, then the bell if there is one.
    polled: Vec<libc::pollfd>,
    bell: Option<Bell>,
    /// True when every port has something to poll.
    wakes: bool,
    /// When a wait next looks whether the interfaces are still there.
    next_check: Instant,
    hands_mbufs_over: bool,
    layout: Layout,
    pool: Pool,
    _lcore: Lcore,
}

/// What a port lends to the app.
struct PortBurst {
    burst: Burst,
    empty_polls: u32,
    gone: bool,
    /// Checksums that were left to a device, where they are looked for.
    finished: Option<u64>,
}

/// Reused by every settle.
struct Scratch {
    /// mbufs to give back.
    freed: Vec<u32>,
    received: Box<[ShimFrame]>,
    /// Ports of a fan-out that take the frame.
    egresses: Vec<usize>,
    /// By frame of the burst, where any is: parts of it are gathered.
    held: Vec<bool>,
}

impl DpdkLane {
    /// True when this program carries the shim, that is, was built where DPDK was installed. Whether
    /// DPDK is installed here as well shows when a lane opens.
    pub fn is_built() -> bool {
        Shim::is_built()
    }

    /// Opens one port per interface, in this thread's network namespace; port ids follow their order.
    ///
    /// `interfaces` are network interfaces for net_af_packet and net_af_xdp, names of interfaces to
    /// create for net_tap, capture files or interfaces for net_pcap, and mere names for net_memif,
    /// net_ring and net_null. With `pci=` they are its addresses, or empty.
    /// Interfaces that carry a default route, and PCI devices that the kernel uses, are refused unless
    /// `force`.
    ///
    /// # Errors
    /// Bad knobs; no DPDK, driver, huge pages, interface or privilege; a device that cannot do what
    /// was asked for.
    pub fn open<S: AsRef<str>>(
        spec: &LaneSpec,
        interfaces: &[S],
        force: bool,
    ) -> Result<DpdkLane, LaneError> {
        let ports = DpdkPorts::open(spec, interfaces, force, 1)?;
        DpdkLane::open_shared(&ports, 0)
    }

    /// Opens the lane of worker `worker`, counted from 0, on the thread that will use it: its queues of
    /// each of `ports`.
    ///
    /// # Errors
    /// [`LaneError::Refused`] when there is no such worker, or its queues are taken; an interface that is
    /// gone by now.
    pub fn open_shared(ports: &DpdkPorts, worker: usize) -> Result<DpdkLane, LaneError> {
        let Shared { config, started, pool, taken, eal } = &*ports.shared;
        let refused = |why: String| LaneError::Refused {
            lane: NAME.to_owned(),
            name: format!("worker {worker}"),
            why,
            hint: "open the ports anew, for as many workers as there are".to_owned(),
        };
        let Some(taken) = taken.get(worker) else {
            return Err(refused(format!("the ports were opened for {} workers", config.workers)));
        };
        // Relaxed: the first to swap has the queues; nothing else is passed by it.
        if taken.swap(true, Ordering::Relaxed) {
            return Err(refused("another lane has its queues".to_owned()));
        }
        let lcore = Lcore::enter(eal);
        let pool = Pool::of(pool);
        let own = started.iter().map(|started| {
            let mut port = Port::of_worker(started, config, &pool, worker)?;
            if !lcore.has_cache() {
                port.caps.fact("mempool_cache", "0: DPDK has no number left for this thread");
            }
            Ok(port)
        });
        let own = own.collect::<Result<Vec<_>, LaneError>>()?;
        Ok(DpdkLane::assemble(config, own, pool, lcore))
    }

    /// Finishes the checksums of TCP and UDP that a program at the other end of a veth left to a device that is none.
    /// No driver says of which frames, so every frame received on a veth is looked at; on others none is. For apps
    /// that send on what they receive, or check it.
    #[must_use]
    pub fn finishing_checksums(mut self) -> DpdkLane {
        for (near, port) in self.bursts.iter_mut().zip(&self.ports) {
            near.finished = port.is_on_veth().then_some(0);
        }
        self
    }

    fn assemble(config: &Config, ports: Vec<Port>, pool: Pool, lcore: Lcore) -> DpdkLane {
        let gathered = if ports.iter().all(Port::gathers) { GATHERED_MAX } else { 0 };
        let bursts = ports.iter().map(|_| {
            let burst = Burst::new(pool.region().clone(), config.burst_frames).gathering(gathered);
            PortBurst { burst, empty_polls: 0, gone: false, finished: None }
        });
        let polled = ports.iter().flat_map(|port| port.wake.descriptors());
        let polled = polled.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        DpdkLane {
            bursts: bursts.collect(),
            counters: vec![Counters::default(); ports.len()],
            scratch: Scratch {
                freed: Vec::with_capacity(config.burst_frames),
                received: vec![ShimFrame::default(); config.burst_frames].into_boxed_slice(),
                egresses: Vec::with_capacity(ports.len()),
                held: Vec::with_capacity(config.burst_frames),
            },
            polled: polled.collect(),
            bell: None,
            wakes: config.rx_interrupt != Some(false)
                && ports.iter().all(|port| port.wake.is_pollable()),
            next_check: Instant::now() + LIVENESS_INTERVAL,
            hands_mbufs_over: config.device.hands_mbufs_over(),
            layout: pool.layout(),
            ports,
            pool,
            _lcore: lcore,
        }
    }

    /// mbufs that are not free now: with a device or in a burst. Slow; for tests and reports.
    pub fn mbufs_in_use(&self) -> usize {
        self.pool.mbufs_in_use()
    }

    /// True when the device of `port` says that its link is up: a net_memif port is connected, a cable
    /// is plugged in.
    pub fn is_linked(&self, port: PortId) -> bool {
        self.ports[port.index()].is_linked()
    }

    /// What the device counted for each of this lane's queues of `port`; empty where its driver counts
    /// for the whole device only.
    pub fn queue_counts(&self, port: PortId) -> Vec<QueueCounts> {
        self.ports[port.index()].queue_counts()
    }

    /// The yardstick of `examples/contract_cost.rs`: one turn of the loop that a program would write by
    /// hand against DPDK, in C and past the contract. Takes a burst from `port`, adds the first 16
    /// bytes of each frame to `sum` as two numbers in the machine's order, frees all, and returns how
    /// many there were. Nothing is counted and no mbuf stays away; not for applications.
    pub fn hand_written(&mut self, port: PortId, sum: &mut u64) -> usize {
        self.ports[port.index()].read_and_free(sum)
    }

    /// Fails with [`LaneError::Gone`] when an interface has disappeared or is down, and was not given up.
    fn check_alive(&mut self) -> Result<(), LaneError> {
        for (port, near) in self.ports.iter().zip(&mut self.bursts) {
            if port.is_given_up() {
                continue;
            }
            near.gone |= !port.is_there();
            if near.gone {
                return Err(LaneError::Gone {
                    lane: NAME.to_owned(),
                    name: port.name().to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Before a port's burst is used again: the engine has settled it, or gave up in between.
    fn settle_leftover(&mut self, port: PortId) -> Result<(), LaneError> {
        if self.bursts[port.index()].burst.is_empty() {
            return Ok(());
        }
        self.settle(port)
    }

    /// Waits for a descriptor, or sleeps where there is none; false when it could not wait for one.
    fn pause(&mut self, longest: Duration, nap: Duration) -> bool {
        if !self.wakes {
            match &self.bell {
                Some(bell) => drop(bell.wait(nap.min(longest))),
                None => thread::sleep(nap.min(longest)),
            }
            return false;
        }
        for port in &self.ports {
            port.set_interrupts(true);
        }
        // A frame that arrived before the interrupts were on wakes nothing.
        let is_there = self.ports.iter_mut().any(Port::fetch);
        let mut is_ready = false;
        if !is_there {
            let timeout = libc::timespec {
                tv_sec: longest.as_secs() as libc::time_t,
                tv_nsec: longest.subsec_nanos().into(),
            };
            let count = self.polled.len() as libc::nfds_t;
            // SAFETY: that many records of ours and a timeout. An interruption (net_tap works with
            // signals) is an early wake-up.
            let ready =
                unsafe { libc::ppoll(self.polled.as_mut_ptr(), count, &timeout, std::ptr::null()) };
            is_ready = ready > 0;
        }
        // The bell is the engine's to answer.
        let ports = self.polled.len() - usize::from(self.bell.is_some());
        for polled in self.polled[..ports].iter().filter(|_| is_ready) {
            if polled.revents & libc::POLLIN != 0 && wake::is_counter(polled.fd) {
                wake::clear_counter(polled.fd);
            }
        }
        for port in &self.ports {
            port.set_interrupts(false);
        }
        is_there || is_ready
    }
}

/// Devices that were opened once, with as many queues as their workers need. Clones share them; they are
/// closed when the last clone and the last lane are gone, on whatever thread that is.
#[derive(Clone)]
pub struct DpdkPorts {
    shared: Arc<Shared>,
}

struct Shared {
    config: Config,
    started: Vec<Arc<Started>>,
    pool: Arc<SharedPool>,
    /// By worker: a lane has its queues.
    taken: Box<[AtomicBool]>,
    eal: &'static Eal,
}

impl DpdkPorts {
    /// Opens and starts one port per interface, as [`DpdkLane::open`] does, with queues for `workers`
    /// workers: each is to call [`DpdkLane::open_shared`] on its own thread. From here on frames wait in
    /// the queues.
    ///
    /// What spreads frames over the queues depends on the driver; the fact `steering` says it.
    ///
    /// # Errors
    /// As [`DpdkLane::open`], and more workers than a port has queues.
    pub fn open<S: AsRef<str>>(
        spec: &LaneSpec,
        interfaces: &[S],
        force: bool,
        workers: usize,
    ) -> Result<DpdkPorts, LaneError> {
        let config = Config::read(spec, workers)?;
        let given: Vec<&str> = interfaces.iter().map(AsRef::as_ref).collect();
        let names: Vec<&str> = match &config.device {
            Device::Pci(addresses) => {
                let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
                if !given.is_empty() && given != addresses {
                    return Err(LaneError::Refused {
                        lane: NAME.to_owned(),
                        name: given.join(","),
                        why: format!("pci= names the ports, {}", addresses.join(",")),
                        hint: "leave out --on".to_owned(),
                    });
                }
                addresses
            }
            _ => given,
        };
        check_names(&config, &names)?;
        let reservation = match config.memory {
            Memory::Reserve(pages) => Some(Arc::new(Reservation::take(pages)?)),
            _ => None,
        };
        // Before DPDK has its memory, if it is the first lane: see the guard's text.
        let borrowed = match config.device.borrows_interface() {
            true => Some(Arc::new(Borrowed::stand_by()?)),
            false => None,
        };
        let eal = Eal::get(&config)?;
        let mut tries =
            if matches!(config.device, Device::AfXdp { .. }) { AF_XDP_TRIES } else { 1 };
        loop {
            tries -= 1;
            match DpdkPorts::open_once(
                eal,
                &config,
                &names,
                force,
                reservation.clone(),
                borrowed.as_ref(),
            ) {
                Err(LaneError::Os { .. }) if tries > 0 => thread::sleep(AF_XDP_PAUSE),
                opened => return opened,
            }
        }
    }

    /// Opens pool and ports. A net_af_xdp port that fails to start keeps mbufs, so each attempt has a
    /// pool of its own; the pages are of all of them.
    fn open_once(
        eal: &'static Eal,
        config: &Config,
        names: &[&str],
        force: bool,
        reservation: Option<Arc<Reservation>>,
        borrowed: Option<&Arc<Borrowed>>,
    ) -> Result<DpdkPorts, LaneError> {
        let pool = Arc::new(SharedPool::make(eal, config, names.len(), reservation)?);
        let started = names.iter().enumerate().map(|(index, name)| {
            Started::open(eal, config, &pool, borrowed, index, name, force).map(Arc::new)
        });
        let started = started.collect::<Result<_, _>>()?;
        let taken = (0..config.workers).map(|_| AtomicBool::new(false)).collect();
        let shared = Shared { config: config.clone(), started, pool, taken, eal };
        Ok(DpdkPorts { shared: Arc::new(shared) })
    }

    /// DPDK's numbers of them, by port.
    pub(crate) fn numbers(&self) -> Vec<u16> {
        self.shared.started.iter().map(|started| started.number()).collect()
    }

    pub(crate) fn eal(&self) -> &'static Eal {
        self.shared.eal
    }

    /// What they are.
    pub(crate) fn device(&self) -> &Device {
        &self.shared.config.device
    }

    /// How many workers they were opened for.
    pub fn workers(&self) -> usize {
        self.shared.config.workers
    }
}

/// Workers take them to their threads.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<DpdkPorts>();
};

/// Refuses what cannot be a list of ports.
fn check_names(config: &Config, names: &[&str]) -> Result<(), LaneError> {
    let refused = |name: String, why: &str, hint: &str| {
        let (why, hint) = (why.to_owned(), hint.to_owned());
        Err(LaneError::Refused { lane: NAME.to_owned(), name, why, hint })
    };
    if !(1..=PortMask::PORTS_MAX).contains(&names.len()) {
        return refused(
            format!("{} interfaces", names.len()),
            "verdicts can name no others",
            &format!("give 1 to {} interfaces", PortMask::PORTS_MAX),
        );
    }
    for (i, name) in names.iter().enumerate() {
        if names[..i].contains(name) {
            return refused((*name).to_owned(), "it is given twice", "give each interface once");
        }
        // A comma would begin another argument of the device.
        if name.contains(',') {
            return refused(
                (*name).to_owned(),
                "DPDK takes no name with a comma",
                "rename it, or use a link to it",
            );
        }
    }
    if let Device::Pcap(files) = &config.device
        && (files.receive.is_some() || files.transmit.is_some())
        && names.len() > 1
    {
        return refused(
            format!("{} interfaces", names.len()),
            "rx_pcap= and tx_pcap= describe one port",
            "give one name, or the capture files as names",
        );
    }
    Ok(())
}

/// What acts on the frames of a burst on their way out.
struct Leaving<'l> {
    ports: &'l mut [Port],
    counters: &'l mut [Counters],
    scratch: &'l mut Scratch,
    layout: Layout,
    hands_mbufs_over: bool,
    base: usize,
}

/// One frame of that burst.
struct LeavingFrame {
    number: u32,
    span: FrameSpan,
    /// The lane needs it longer than those that send it.
    is_held: bool,
}

impl Leaving<'_> {
    /// Acts on one verdict; transmissions are posted, not yet sent.
    #[inline]
    fn settle(&mut self, ingress: usize, frame: &LeavingFrame, verdict: Verdict) {
        match verdict {
            Verdict::Drop => self.scratch.freed.push(frame.number),
            Verdict::Pass => {
                self.counters[ingress].passed += 1;
                self.scratch.freed.push(frame.number);
            }
            Verdict::Tx => self.transmit(ingress, frame, ingress),
            Verdict::TxTo(egress) => self.transmit(ingress, frame, egress.index()),
            Verdict::Fanout(set) => self.fan_out(ingress, frame, set),
        }
    }

    #[inline]
    fn transmit(&mut self, ingress: usize, frame: &LeavingFrame, egress: usize) {
        let is_taken = self.admit(ingress, frame, egress);
        if is_taken {
            let references = u16::from(frame.is_held);
            let posted = self.layout.frame(frame.number, &frame.span);
            self.ports[egress].post(ShimFrame { references, ..posted });
        }
        if frame.is_held || !is_taken {
            self.scratch.freed.push(frame.number);
        }
    }

    /// Posts a frame that is put together of a head and a part of a frame of the burst, which is referred to.
    fn gather(&mut self, ingress: usize, burst: &Burst, gathered: &Gathered) {
        let (egress, head) = (gathered.egress.index(), burst.head(gathered));
        let is_tagged = || head.get(12..14).is_some_and(|kind| is_tag([kind[0], kind[1]]));
        if !self.admit_bytes(ingress, egress, gathered.total_bytes() as u32, is_tagged) {
            return;
        }
        let number = burst.numbers()[gathered.frame as usize];
        let part = self.layout.part(number, gathered.start, gathered.bytes);
        if self.ports[egress].is_full() {
            self.flush();
        }
        let mut frame = self.ports[egress].gather(head, &part);
        if frame.is_none() {
            // What is posted has mbufs.
            self.flush();
            frame = self.ports[egress].gather(head, &part);
        }
        match frame {
            Some(frame) => self.ports[egress].post(frame),
            None => self.counters[egress].drop_one(DropReason::TxRefused),
        }
    }

    /// Sends what was posted: by the lowest port first, which brings the references of a fan-out.
    fn flush(&mut self) {
        for (port, counters) in self.ports.iter_mut().zip(&mut *self.counters) {
            let (frames, bytes, refused) = port.flush();
            counters.tx_frames += frames;
            counters.tx_bytes += bytes;
            if refused > 0 {
                counters.drop_many(DropReason::TxRefused, refused);
            }
        }
    }

    /// One mbuf for all ports: each holds a reference and frees it when it has sent.
    fn fan_out(&mut self, ingress: usize, frame: &LeavingFrame, set: PortMask) {
        let mut egresses = std::mem::take(&mut self.scratch.egresses);
        egresses.clear();
        egresses.extend(
            set.iter().map(PortId::index).filter(|&egress| self.admit(ingress, frame, egress)),
        );
        let is_held = frame.is_held;
        let frame = self.layout.frame(frame.number, &frame.span);
        if is_held || egresses.is_empty() {
            self.scratch.freed.push(frame.number);
        }
        match egresses.split_last() {
            None => (),
            Some((&last, others)) if self.hands_mbufs_over => {
                for &egress in others {
                    match self.ports[egress].copy(&frame) {
                        Some(copy) => {
                            self.ports[egress].post(copy);
                            self.counters[egress].copies += 1;
                        }
                        None => self.counters[egress].drop_one(DropReason::TxRefused),
                    }
                }
                self.ports[last].post(frame);
            }
            Some(_) => {
                // The lowest port is flushed first, so it brings the references of all.
                let mut references = (egresses.len() - 1) as u16 + u16::from(is_held);
                for &egress in &egresses {
                    self.ports[egress].post(ShimFrame { references, ..frame });
                    references = 0;
                }
            }
        }
        self.scratch.egresses = egresses;
    }

    /// True when `egress` may take the frame; counts the reason when it may not.
    #[inline]
    fn admit(&mut self, ingress: usize, frame: &LeavingFrame, egress: usize) -> bool {
        let base = self.base;
        self.admit_bytes(ingress, egress, frame.span.len, || is_tagged(base, &frame.span))
    }

    #[inline]
    fn admit_bytes(
        &mut self,
        ingress: usize,
        egress: usize,
        bytes: u32,
        is_tagged: impl FnOnce() -> bool,
    ) -> bool {
        let Some(port) = self.ports.get_mut(egress) else {
            self.counters[ingress].drop_one(DropReason::TxNoPort);
            return false;
        };
        let reason = if port.is_given_up() || (bytes as usize) < ETHERNET_BYTES {
            DropReason::TxRefused
        } else if port.takes(bytes, is_tagged) {
            return true;
        } else {
            DropReason::TxTooLong
        };
        self.counters[egress].drop_one(reason);
        false
    }
}

/// True for a frame with a VLAN tag, which may be longer than the MTU by the tag.
fn is_tagged(base: usize, span: &FrameSpan) -> bool {
    let at = (base + span.start + 12) as *const [u8; 2];
    // SAFETY: the frame has more than 14 bytes (it is longer than an MTU) inside the pool's region,
    // its app is done with it, and bytes need no alignment.
    is_tag(unsafe { at.read() })
}

/// True for the type that a VLAN tag begins with.
fn is_tag(kind: [u8; 2]) -> bool {
    matches!(u16::from_be_bytes(kind), 0x8100 | 0x88a8)
}

impl Lane for DpdkLane {
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
        if self.bell.replace(bell.clone()).is_some() {
            self.polled.pop();
        }
        let fd = bell.as_fd().as_raw_fd();
        self.polled.push(libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    }

    /// Counted on port 0, as one wait for all ports. Without anything to poll it sleeps, at most a
    /// millisecond at a time, and looks.
    fn wait(&mut self, timeout: Duration) -> Result<Wake, LaneError> {
        self.counters[0].waits += 1;
        let deadline = Instant::now().checked_add(timeout);
        let mut nap = NAP_MIN;
        loop {
            // What is fetched here is handed over by the next receive.
            if self.ports.iter_mut().fold(false, |any, port| port.fetch() | any)
                || self.bell.as_ref().is_some_and(Bell::is_rung)
            {
                return Ok(Wake::Ready);
            }
            let now = Instant::now();
            if now >= self.next_check {
                self.check_alive()?;
                self.next_check = now + LIVENESS_INTERVAL;
            }
            let left = deadline.map_or(LIVENESS_INTERVAL, |end| end.saturating_duration_since(now));
            if left.is_zero() {
                return Ok(Wake::Timeout);
            }
            if self.pause(left.min(LIVENESS_INTERVAL), nap)
                && !self.ports.iter_mut().fold(false, |any, port| port.fetch() | any)
            {
                // Readable, and the driver has nothing yet (net_tap waits for a signal), or no mbuf
                // to receive into: do not spin on it.
                thread::sleep(NAP_MIN.min(left));
            }
            nap = (nap * 2).min(NAP_MAX);
        }
    }

    fn caps(&self, port: PortId) -> &CapsReport {
        &self.ports[port.index()].caps
    }

    fn counters(&mut self, port: PortId) -> Counters {
        let mut counters = self.counters[port.index()].clone();
        let losses = self.ports[port.index()].losses(counters.tx_frames);
        counters.copies += losses.copies;
        counters.drop_many(DropReason::RxQueueFull, losses.queue_full);
        counters.drop_many(DropReason::RxNoFrame, losses.no_frame);
        counters.drop_many(DropReason::RxError, losses.rx_error);
        counters.drop_many(DropReason::RxTooLong, losses.too_long);
        counters.drop_many(DropReason::BadChecksum, losses.bad_checksum);
        if let Some((frames, bytes_sent)) = losses.transmit {
            counters.drop_many(DropReason::TxRefused, frames);
            counters.tx_frames = counters.tx_frames.saturating_sub(frames);
            counters.tx_bytes = counters.tx_bytes.min(bytes_sent);
        }
        if let Some(finished) = self.bursts[port.index()].finished {
            self.ports[port.index()].caps.fact("checksums_finished", finished);
        }
        counters
    }
}

impl FrameLane for DpdkLane {
    /// Settles first what the caller left unsettled.
    fn receive(&mut self, port: PortId) -> Result<&mut Burst, LaneError> {
        self.settle_leftover(port)?;
        let index = port.index();
        let near = &mut self.bursts[index];
        let counters = &mut self.counters[index];
        if self.ports[index].fetch() {
            near.empty_polls = 0;
            // One reading, when all of them were there: no frame is stamped before it arrived.
            let now_ns = monotonic_ns();
            let arrived = self.ports[index].take();
            let layout = self.layout;
            let frames = arrived.iter().map(|frame| layout.span(frame, now_ns));
            // SAFETY: the driver gave the mbufs up, they lie in our pool in one piece each (the shim
            // saw to it), and nothing else gets them before they are settled.
            unsafe { near.burst.extend(frames) };
            counters.rx_frames += arrived.len() as u64;
            counters.rx_bytes += arrived.iter().map(|frame| u64::from(frame.bytes)).sum::<u64>();
            if let Some(finished) = &mut near.finished {
                *finished += finish_checksums(&mut near.burst);
            }
        } else {
            counters.polls_empty += 1;
            near.empty_polls += 1;
            if near.gone || near.empty_polls >= LIVENESS_EMPTY_POLLS {
                near.empty_polls = 0;
                self.check_alive()?;
            }
        }
        Ok(&mut self.bursts[index].burst)
    }

    /// Settles first what the caller left unsettled. Frames from `lend` carry no time stamp (0).
    fn lend(&mut self, port: PortId, frames: usize) -> Result<&mut Burst, LaneError> {
        self.settle_leftover(port)?;
        let near = &mut self.bursts[port.index()];
        if self.ports[port.index()].is_given_up() {
            return Ok(&mut near.burst);
        }
        let want = frames.min(near.burst.space());
        let got = self.ports[port.index()].lend(&mut self.scratch.received[..want]);
        let layout = self.layout;
        let frames = self.scratch.received[..got].iter().map(|frame| layout.span(frame, 0));
        // SAFETY: fresh from the pool: nothing else refers to the mbufs before they are settled.
        unsafe { near.burst.extend(frames) };
        Ok(&mut near.burst)
    }

    fn settle(&mut self, port: PortId) -> Result<(), LaneError> {
        let index = port.index();
        let DpdkLane { ports, bursts, counters, scratch, layout, hands_mbufs_over, .. } = self;
        let PortBurst { burst, .. } = &mut bursts[index];
        // Most bursts of most apps: nothing goes on, and where the frames lie does not matter.
        let is_consumed = burst.is_consumed();
        if is_consumed {
            ports[index].free(burst.numbers());
        }
        let mut leaving = Leaving {
            ports,
            counters,
            scratch,
            layout: *layout,
            hands_mbufs_over: *hands_mbufs_over,
            base: layout.base,
        };
        if !is_consumed {
            let mut held = std::mem::take(&mut leaving.scratch.held);
            held.clear();
            if !burst.gathered().is_empty() {
                held.resize(burst.len(), false);
                burst.gathered().iter().for_each(|gathered| held[gathered.frame as usize] = true);
            }
            for i in 0..burst.len() {
                let (number, span) = (burst.numbers()[i], burst.span(i));
                let is_held = held.get(i).copied().unwrap_or(false);
                leaving.settle(index, &LeavingFrame { number, span, is_held }, burst.verdict(i));
            }
            leaving.scratch.held = held;
            if !burst.gathered().is_empty() {
                leaving.flush();
                for gathered in burst.gathered() {
                    leaving.gather(index, burst, gathered);
                }
            }
        }
        burst.clear();
        leaving.flush();
        ports[index].free(&scratch.freed);
        scratch.freed.clear();
        Ok(())
    }

    fn refused(&self, port: PortId) -> u64 {
        self.counters[port.index()].drops(DropReason::TxRefused)
    }

    fn give_up(&mut self, port: PortId) {
        let index = port.index();
        let before: usize =
            self.ports[..index].iter().map(|port| port.wake.descriptors().len()).sum();
        let own = self.ports[index].give_up();
        // Left out by poll.
        self.polled[before..before + own].iter_mut().for_each(|polled| polled.fd = -1);
        self.bursts[index].gone = false;
    }
}
