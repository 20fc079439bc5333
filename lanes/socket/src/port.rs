//! One socket of datagrams: opened as its plan and the lane's knobs say, with what was granted.

use crate::{
    config::{Carries, DatagramConfig, NAME},
    options::{self, Kind},
    pings,
    sys::{self, Holder},
};
use laneway_core::{
    Cap, CapsReport, Counters, DropReason, LaneError, Membership, PortId, PortPlan,
};
use laneway_linux::{Groups, apply_plan, hears_errors, is_of_one_host};
use std::{
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
};

/// SO_MEMINFO gives an array; here is the count of datagrams dropped since the socket was made.
const MEMINFO_DROPS: usize = 8;
const MEMINFO_WORDS: usize = 9;

/// One socket.
pub(crate) struct Port {
    pub(crate) id: PortId,
    pub(crate) socket: Rc<OwnedFd>,
    pub(crate) local: SocketAddr,
    pub(crate) caps: CapsReport,
    pub(crate) counters: Counters,
    pub(crate) groups: Groups<Holder>,
    pub(crate) hears_errors: bool,
    /// It takes nothing from its socket.
    pub(crate) is_held: bool,
    /// Another process has the socket as well.
    pub(crate) is_shared: bool,
    /// The kernel's count at the last reading: 32 bits that wrap.
    drops_read: u32,
}

impl Port {
    pub(crate) fn open(
        config: &DatagramConfig,
        id: PortId,
        plan: &PortPlan,
    ) -> Result<Port, LaneError> {
        let address = plan.bind;
        let shared = config.shared.with_plan(plan);
        let protocol = config.carries.protocol(address.is_ipv4());
        let kind = match config.carries {
            Carries::Udp => Kind { kind: libc::SOCK_DGRAM, protocol, listed_by: "ss -ulpn" },
            _ => Kind { kind: libc::SOCK_RAW, protocol, listed_by: "ss -wlpn" },
        };
        let mut caps = CapsReport {
            requested: config.requested(&shared),
            allowed_missing: config.shared.allowed_missing,
            label: plan.label.clone(),
            ..CapsReport::default()
        };
        let socket = options::create(kind, address)?;
        options::apply(socket.as_fd(), &shared, &mut caps);
        if config.carries == Carries::Pings {
            pings::show_requests_alone(socket.as_fd(), address)?;
        }
        let planned = PortPlan { hop_limit: plan.hop_limit.or(config.ttl), ..plan.clone() };
        apply_plan(NAME, &sys::Options(socket.as_fd()), &planned, &mut caps)?;
        ask_what_comes_along(config, socket.as_fd(), address, &mut caps)?;
        caps.admit(NAME, |_| None)?;
        options::bind(socket.as_fd(), kind, address)?;
        let mut local = sys::local_address(socket.as_fd()).map_err(|e| {
            LaneError::os(NAME, format!("ask for the address of {address}"), e, "see `dmesg`")
        })?;
        if config.carries != Carries::Udp {
            local.set_port(0); // the kernel writes the protocol there
        }
        write_facts(&mut caps, config, local);
        let mut port = Port::of(id, plan, socket, local, caps);
        plan.memberships.iter().try_for_each(|membership| port.join(membership))?;
        Ok(port)
    }

    /// Goes on with a socket that another process opened by this plan. Its address, its interface and what it is a
    /// member of are as they are; what comes along with each datagram is as this lane has it.
    pub(crate) fn adopt(
        config: &DatagramConfig,
        id: PortId,
        plan: &PortPlan,
        socket: OwnedFd,
    ) -> Result<Port, LaneError> {
        let address = plan.bind;
        let refused = |why: String, hint: &str| LaneError::Refused {
            lane: NAME.to_owned(),
            name: address.to_string(),
            why,
            hint: hint.to_owned(),
        };
        let local = sys::local_address(socket.as_fd()).ok().filter(|local| *local == address);
        let local = local.ok_or_else(|| {
            refused("the socket that was handed over is at another address".to_owned(), "open one")
        })?;
        let joins = sys::option(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 0);
        if !config.gro && joins.is_ok_and(|joins| joins != 0) {
            let why = "the socket that was handed over has joined what it received".to_owned();
            return Err(refused(why, "add the knob gro, with which trains are read"));
        }
        let shared = config.shared.with_plan(plan);
        let mut caps = CapsReport {
            requested: config.requested(&shared),
            allowed_missing: config.shared.allowed_missing,
            ..CapsReport::default()
        };
        options::apply(socket.as_fd(), &shared, &mut caps);
        ask_what_comes_along(config, socket.as_fd(), address, &mut caps)?;
        caps.admit(NAME, |_| None)?;
        write_facts(&mut caps, config, local);
        let mut port = Port::of(id, plan, socket, local, caps);
        // What was dropped before is another's to count.
        port.read_drops();
        port.counters = Counters::default();
        (port.is_held, port.is_shared) = (true, true);
        let Port { socket, groups, caps, .. } = &mut port;
        let make = || holder(local);
        groups.adopt(&sys::Options(socket.as_fd()), &plan.memberships, make, caps)?;
        Ok(port)
    }

    fn of(
        id: PortId,
        plan: &PortPlan,
        socket: OwnedFd,
        local: SocketAddr,
        caps: CapsReport,
    ) -> Port {
        Port {
            id,
            socket: Rc::new(socket),
            local,
            caps,
            counters: Counters::default(),
            groups: Groups::new(NAME, plan),
            hears_errors: hears_errors(plan),
            is_held: false,
            is_shared: false,
            drops_read: 0,
        }
    }

    /// Becomes a member of a group.
    pub(crate) fn join(&mut self, membership: &Membership) -> Result<(), LaneError> {
        let Port { socket, local, groups, caps, .. } = self;
        let make = || holder(*local);
        groups.join(&sys::Options(socket.as_fd()), membership, make, caps)
    }

    /// Is a member no longer.
    pub(crate) fn leave(&mut self, membership: &Membership) -> Result<(), LaneError> {
        let Port { socket, groups, caps, .. } = self;
        groups.leave(&sys::Options(socket.as_fd()), membership, caps)
    }

    /// Adds what the kernel dropped since the last reading. A socket that cannot be asked adds nothing.
    pub(crate) fn read_drops(&mut self) {
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

/// A socket that holds memberships of the port at `local`.
fn holder(local: SocketAddr) -> Result<Holder, LaneError> {
    let family = if local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let holder = sys::socket(family, libc::SOCK_DGRAM, 0);
    holder.map(Holder).map_err(|e| {
        let doing = format!("open a socket that holds memberships of {local}");
        LaneError::os(NAME, doing, e, "raise `ulimit -n`")
    })
}

/// Asks for what the lane reads beside the bytes of datagrams.
fn ask_what_comes_along(
    config: &DatagramConfig,
    socket: BorrowedFd<'_>,
    address: SocketAddr,
    caps: &mut CapsReport,
) -> Result<(), LaneError> {
    if !is_of_one_host(address) {
        ask_for_destinations(socket, address)?;
    }
    let accepts = |level, option, value| sys::set_option(socket, level, option, value).is_ok();
    let gso = config.gso && accepts(libc::SOL_UDP, libc::UDP_SEGMENT, 0);
    let gro = config.gro && accepts(libc::SOL_UDP, libc::UDP_GRO, 1);
    let stamps = config.kernel_stamps && accepts(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1);
    caps.obtained = caps
        .obtained
        .with_if(Cap::Gso, gso)
        .with_if(Cap::Gro, gro)
        .with_if(Cap::KernelTimestamps, stamps);
    Ok(())
}

/// Has the kernel report with each datagram the address it was sent to.
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
