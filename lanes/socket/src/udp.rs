//! The datagram lane: UDP and raw sockets of all ports of one worker, and the datagram contract on
//! top of them.
//!
//! Assumes one thread and the network namespace of the thread that opens it. What must always hold:
//! forwarded bytes leave before their buffers receive again, because every batch is flushed before the
//! next receive.

use crate::{
    config::{Carries, DatagramConfig, NAME},
    inbox::Inbox,
    options::{self, Kind},
    outbox::{Exit, Kernel, Out, Outbox},
    pings::{self, Alone},
    sys,
};
use laneway_core::{
    Cap, CapSet, CapsReport, Clock, ClockDomain, Counters, Datagram, DatagramApp, DatagramLane,
    DropReason, Lane, LaneError, PortId, Turn, Wake,
};
use laneway_linux::WallClock;
use laneway_spec::LaneSpec;
use std::{
    io, mem,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    rc::Rc,
    time::Duration,
};

/// SO_MEMINFO gives an array; here is the count of datagrams dropped since the socket was made.
const MEMINFO_DROPS: usize = 8;
const MEMINFO_WORDS: usize = 9;

/// UDP or raw sockets as a datagram lane. See the crate's documentation.
pub struct UdpLane {
    ports: Vec<Port>,
    outbox: Outbox<Kernel>,
    inbox: Inbox,
    wall_clock: WallClock,
    polled: Vec<libc::pollfd>,
    /// Empty between two rounds; keeps its memory.
    batch: Vec<Datagram<'static>>,
    /// Sent on the app's own account through ports that are not there.
    tick_no_port: u64,
    /// Declared last: the kernel answers pings again when the sockets are closed.
    _alone: Option<Alone>,
}

/// One socket.
struct Port {
    id: PortId,
    socket: Rc<OwnedFd>,
    local: SocketAddr,
    caps: CapsReport,
    counters: Counters,
    /// The kernel's count at the last reading: 32 bits that wrap.
    drops_read: u32,
}

impl UdpLane {
    /// Opens one socket per address; port `i` is `listen[i]`, in the network namespace of this
    /// thread. With the knob `raw` the sockets are raw and the addresses' ports 0.
    ///
    /// # Errors
    /// A wrong spec; an address that is taken, foreign, or not permitted; no privilege for a raw
    /// socket; something asked for that was not granted; for pings, somebody else (the kernel
    /// included) who would answer as well.
    pub fn open(spec: &LaneSpec, listen: &[SocketAddr]) -> Result<UdpLane, LaneError> {
        let config = DatagramConfig::read(spec, listen)?;
        // Before there are sockets: what they queued would be answered by the kernel and by us.
        let alone = match config.carries {
            Carries::Pings => Some(Alone::take(listen, config.mute)?),
            _ => None,
        };
        let mut ports = Vec::new();
        for (i, address) in listen.iter().enumerate() {
            let mut port = Port::open(&config, PortId(i as u8), *address)?;
            if let Some(alone) = &alone {
                port.caps.fact("kernel_answers", alone.kernel_answers(address.is_ipv4()));
            }
            ports.push(port);
        }
        let exits = ports.iter().map(|port| {
            let gso = port.caps.obtained.has(Cap::Gso);
            let has_ports = config.carries == Carries::Udp;
            Exit::new(port.socket.clone(), gso, port.local.ip().is_unspecified(), has_ports)
        });
        let messages = if config.many { config.burst } else { 1 };
        let polled = ports.iter().map(|port| libc::pollfd {
            fd: port.socket.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        });
        Ok(UdpLane {
            outbox: Outbox::new(exits.collect(), messages, Kernel),
            inbox: Inbox::new(&config),
            wall_clock: WallClock::measure(),
            polled: polled.collect(),
            batch: Vec::with_capacity(config.burst),
            tick_no_port: 0,
            ports,
            _alone: alone,
        })
    }

    /// The address that `port` is bound to, with the UDP port that the kernel chose if it was to.
    pub fn local_address(&self, port: PortId) -> SocketAddr {
        self.ports[port.index()].local
    }

    /// Shows one port's arrivals to the app and sends its answers. Returns how many datagrams it saw.
    fn show<A: DatagramApp>(&mut self, port: usize, app: &mut A, turn: Turn) -> usize {
        let port = &mut self.ports[port];
        let mut shown = 0;
        // A batch of longer-lived datagrams is one of shorter-lived ones: it is empty.
        let mut batch: Vec<Datagram<'_>> = mem::take(&mut self.batch);
        for (i, arrival) in self.inbox.arrivals().iter().enumerate() {
            let datagrams = arrival.datagrams();
            shown += datagrams;
            port.counters.rx_frames += datagrams as u64;
            port.counters.rx_bytes += arrival.bytes as u64;
            let stamp = arrival.real_ns.map(|real_ns| self.wall_clock.monotonic(real_ns));
            let bytes = &self.inbox.memory()[arrival.at..][..arrival.bytes];
            batch.push(Datagram {
                payload: self.outbox.key.mark(bytes, i as u32),
                segment_bytes: arrival.segment_bytes,
                source: arrival.source,
                destination: match arrival.destination {
                    Some(ip) => with_ip(port.local, ip),
                    None => port.local,
                },
                ingress: port.id,
                ts_ns: stamp.unwrap_or(turn.now_ns),
            });
        }
        if !batch.is_empty() {
            let mut out = Out::of_batch(&mut self.outbox, &self.inbox, port.id);
            app.on_datagrams(&batch, turn, &mut out);
            port.counters.drop_many(DropReason::TxNoPort, out.finish());
        }
        self.batch = emptied(batch);
        shown
    }

    /// Says in the report when the kernel refused trains.
    fn note_gso(&mut self) {
        for port in &mut self.ports {
            let gave_up = self.outbox.exit(port.id).gave_up_gso;
            if let Some(error) = gave_up.filter(|_| port.caps.obtained.has(Cap::Gso)) {
                port.caps.obtained = port.caps.obtained.minus(CapSet::default().with(Cap::Gso));
                let why = io::Error::from_raw_os_error(error);
                port.caps.fact("gso_given_up", format!("the kernel refused a train: {why}"));
            }
        }
    }
}

/// The batch without its datagrams, fit for others.
fn emptied(mut batch: Vec<Datagram<'_>>) -> Vec<Datagram<'static>> {
    batch.clear();
    let mut batch = mem::ManuallyDrop::new(batch);
    let (at, capacity) = (batch.as_mut_ptr(), batch.capacity());
    // SAFETY: memory, capacity and layout are the vector's own, which is not dropped; it holds
    // nothing, so no borrow is made longer.
    unsafe { Vec::from_raw_parts(at.cast(), 0, capacity) }
}

/// `address` with another IP address of the same family.
fn with_ip(mut address: SocketAddr, ip: IpAddr) -> SocketAddr {
    address.set_ip(ip);
    address
}

impl Port {
    fn open(config: &DatagramConfig, id: PortId, address: SocketAddr) -> Result<Port, LaneError> {
        let protocol = config.carries.protocol(address.is_ipv4());
        let kind = match config.carries {
            Carries::Udp => Kind { kind: libc::SOCK_DGRAM, protocol, listed_by: "ss -ulpn" },
            _ => Kind { kind: libc::SOCK_RAW, protocol, listed_by: "ss -wlpn" },
        };
        let mut caps = CapsReport {
            requested: config.requested(),
            allowed_missing: config.shared.allowed_missing,
            ..CapsReport::default()
        };
        let socket = options::create(kind, address)?;
        options::apply(socket.as_fd(), &config.shared, &mut caps);
        if config.carries == Carries::Pings {
            pings::show_requests_alone(socket.as_fd(), address)?;
        }
        if let Some(ttl) = config.ttl {
            let (level, option, name) = match address.is_ipv4() {
                true => (libc::IPPROTO_IP, libc::IP_TTL, "IP_TTL"),
                false => (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, "IPV6_UNICAST_HOPS"),
            };
            options::set(socket.as_fd(), level, option, ttl.into(), address, name)?;
            caps.fact("ttl", ttl);
        }
        if address.ip().is_unspecified() {
            ask_for_destinations(socket.as_fd(), address)?;
        }
        let accepts =
            |level, option, value| sys::set_option(socket.as_fd(), level, option, value).is_ok();
        let gso = config.gso && accepts(libc::SOL_UDP, libc::UDP_SEGMENT, 0);
        let gro = config.gro && accepts(libc::SOL_UDP, libc::UDP_GRO, 1);
        let stamps = config.kernel_stamps && accepts(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1);
        caps.obtained = caps
            .obtained
            .with_if(Cap::Gso, gso)
            .with_if(Cap::Gro, gro)
            .with_if(Cap::KernelTimestamps, stamps);
        caps.admit(NAME, |_| None)?;
        options::bind(socket.as_fd(), kind, address)?;
        let mut local = sys::local_address(socket.as_fd()).map_err(|e| {
            LaneError::os(NAME, format!("ask for the address of {address}"), e, "see `dmesg`")
        })?;
        if config.carries != Carries::Udp {
            local.set_port(0); // the kernel writes the protocol there
        }
        write_facts(&mut caps, config, local);
        let socket = Rc::new(socket);
        Ok(Port { id, socket, local, caps, counters: Counters::default(), drops_read: 0 })
    }

    /// Adds what the kernel dropped since the last reading. A socket that cannot be asked adds nothing.
    fn read_drops(&mut self) {
        let fd = self.socket.as_fd();
        let none = [0u32; MEMINFO_WORDS];
        if let Ok(meminfo) = sys::option(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, none) {
            let drops = meminfo[MEMINFO_DROPS];
            let new = drops.wrapping_sub(self.drops_read);
            self.drops_read = drops;
            self.counters.drop_many(DropReason::RxQueueFull, u64::from(new));
        }
    }
}

/// Has the kernel say with each datagram whom it was addressed to.
fn ask_for_destinations(socket: BorrowedFd<'_>, address: SocketAddr) -> Result<(), LaneError> {
    let (level, option, name) = if address.is_ipv4() {
        (libc::IPPROTO_IP, libc::IP_PKTINFO, "IP_PKTINFO")
    } else {
        (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, "IPV6_RECVPKTINFO")
    };
    options::set(socket, level, option, 1, address, name)
}

fn write_facts(caps: &mut CapsReport, config: &DatagramConfig, local: SocketAddr) {
    caps.fact("local_address", local);
    caps.fact("calls", if config.many { "mmsg" } else { "one-per-datagram" });
    caps.fact("burst", config.burst);
    caps.fact("buffer_bytes", config.buffer_bytes);
    // The kernel adds 1 to its count of drops for a train as well.
    let drops = if caps.obtained.has(Cap::Gro) { "trains-or-datagrams" } else { "datagrams" };
    caps.fact("rx_queue_full_counts", drops);
    if config.carries != Carries::Udp {
        caps.fact("ip_protocol", config.carries.protocol(local.is_ipv4()));
    }
}

impl Lane for UdpLane {
    fn name(&self) -> &'static str {
        NAME
    }

    fn ports(&self) -> usize {
        self.ports.len()
    }

    fn clock_domain(&self) -> ClockDomain {
        ClockDomain::Monotonic
    }

    fn wait(&mut self, timeout: Duration) -> Result<Wake, LaneError> {
        self.ports[0].counters.waits += 1;
        let ready = sys::poll(&mut self.polled, timeout);
        let ready =
            ready.map_err(|e| LaneError::os(NAME, "wait for datagrams", e, "see `dmesg`"))?;
        Ok(if ready > 0 { Wake::Ready } else { Wake::Timeout })
    }

    fn caps(&self, port: PortId) -> &CapsReport {
        &self.ports[port.index()].caps
    }

    fn counters(&mut self, port: PortId) -> Counters {
        let owner = &mut self.ports[port.index()];
        owner.read_drops();
        let mut counters = owner.counters.clone();
        counters.merge(&self.outbox.exit(port).counters);
        if port == PortId(0) {
            counters.drop_many(DropReason::TxNoPort, self.tick_no_port);
        }
        counters
    }
}

impl DatagramLane for UdpLane {
    fn serve<A: DatagramApp>(
        &mut self,
        app: &mut A,
        clock: &impl Clock,
    ) -> Result<usize, LaneError> {
        let mut shown = 0;
        for i in 0..self.ports.len() {
            let port = &mut self.ports[i];
            let received = self.inbox.receive(port.socket.as_fd(), &mut port.counters);
            received.map_err(|e| {
                let doing = format!("receive at {}", port.local);
                LaneError::os(NAME, doing, e, "see `dmesg`")
            })?;
            if self.inbox.arrivals().is_empty() {
                port.counters.polls_empty += 1;
                continue;
            }
            shown += self.show(i, app, Turn { now_ns: clock.now_ns() });
        }
        if shown > 0 {
            self.note_gso();
        }
        Ok(shown)
    }

    fn tick<A: DatagramApp>(&mut self, app: &mut A, turn: Turn) -> Result<(), LaneError> {
        let mut out = Out::of_tick(&mut self.outbox);
        app.on_tick(turn, &mut out);
        self.tick_no_port += out.finish();
        self.note_gso();
        Ok(())
    }
}
