//! The sockets of ports, set up as the knobs say, and what the kernel granted.
//!
//! What must always hold: every option is set before the socket is bound, so that nothing arrives
//! that lacks what was asked for. A step that fails says which knob to turn. An IPv6 socket takes
//! IPv6 only: a port has addresses of one family.

use crate::{
    config::{Extras, FramesConfig, NAME, Sockets, TcpConfig},
    sys::{self, failed},
};
use laneway_core::{Cap, CapsReport, LaneError, PortPlan};
use laneway_linux::{Interface, apply_plan, refuse_default_route};
use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// What `udp` and `tcp` sockets have in common, bound.
fn open(
    kind: libc::c_int,
    at: SocketAddr,
    sockets: &Sockets,
    caps: &mut CapsReport,
    prepare: impl FnOnce(BorrowedFd<'_>, &mut CapsReport) -> Result<(), LaneError>,
) -> Result<(OwnedFd, SocketAddr), LaneError> {
    let family = if at.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let socket = sys::socket(family, kind)
        .map_err(failed(format!("open a socket for {at}"), "see `ulimit -n`"))?;
    let fd = socket.as_fd();
    if at.is_ipv6() {
        sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)
            .map_err(failed(format!("restrict {at} to IPv6"), "this kernel needs CONFIG_IPV6"))?;
    }
    if sockets.reuseport {
        let shared = sys::set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1).is_ok();
        caps.obtained = caps.obtained.with_if(Cap::ReusePort, shared);
    }
    size_buffers(fd, sockets, caps).map_err(failed(
        format!("set the socket buffers of {at}"),
        "leave sndbuf= and rcvbuf= out of the spec",
    ))?;
    prepare(fd, caps)?;
    sys::bind_address(fd, at).map_err(|error| unbindable(at, error))?;
    let bound = sys::local_address(fd).map_err(failed("ask for the bound address", "see `ss`"))?;
    Ok((socket, bound))
}

fn unbindable(at: SocketAddr, error: io::Error) -> LaneError {
    let lane = NAME.to_owned();
    match error.raw_os_error() {
        Some(libc::EADDRINUSE) => LaneError::Busy {
            lane,
            name: at.to_string(),
            why: "another socket is bound to it".to_owned(),
            hint: "`ss -lnp` shows whose; choose another port, or share it with reuseport on all"
                .to_owned(),
        },
        Some(libc::EADDRNOTAVAIL) => LaneError::NotFound {
            lane,
            what: "local address",
            name: at.ip().to_string(),
            hint: "`ip addr` lists the addresses of this network namespace".to_owned(),
        },
        Some(libc::EACCES) => LaneError::NotPermitted {
            lane,
            doing: format!("bind to {at}"),
            hint: "ports below net.ipv4.ip_unprivileged_port_start need CAP_NET_BIND_SERVICE"
                .to_owned(),
        },
        _ => LaneError::os(NAME, format!("bind to {at}"), error, "see `ip addr`"),
    }
}

/// Asks for buffers, and writes down what was granted.
fn size_buffers(fd: BorrowedFd<'_>, sockets: &Sockets, caps: &mut CapsReport) -> io::Result<()> {
    let mut granted_all = true;
    for (asked, default, name, forced, plain, limit) in [
        (
            sockets.sndbuf_bytes,
            None,
            "sndbuf_bytes",
            libc::SO_SNDBUFFORCE,
            libc::SO_SNDBUF,
            "net.core.wmem_max",
        ),
        (
            sockets.rcvbuf_bytes,
            sockets.rcvbuf_bytes_default,
            "rcvbuf_bytes",
            libc::SO_RCVBUFFORCE,
            libc::SO_RCVBUF,
            "net.core.rmem_max",
        ),
    ] {
        let granted = match asked.or(default) {
            None => sys::buffer(fd, plain)?,
            Some(bytes) => {
                let granted = sys::set_buffer(fd, bytes, forced, plain)?;
                caps.fact(&format!("{name}_asked"), bytes);
                if granted < bytes {
                    granted_all &= asked.is_none();
                    caps.fact(&format!("{name}_raise"), format!("sysctl -w {limit}={bytes}"));
                }
                granted
            }
        };
        caps.fact(name, granted);
        if plain == libc::SO_RCVBUF {
            caps.kernel_memory.socket_bytes = granted as u64;
        }
    }
    let asked = sockets.sndbuf_bytes.is_some() || sockets.rcvbuf_bytes.is_some();
    caps.obtained = caps.obtained.with_if(Cap::SocketBuffers, asked && granted_all);
    Ok(())
}

/// A bound UDP socket that tells each datagram's destination, with trains as asked for.
pub(crate) fn udp(
    plan: &PortPlan,
    sockets: &Sockets,
    extras: Extras,
    caps: &mut CapsReport,
) -> Result<(OwnedFd, SocketAddr), LaneError> {
    let at = plan.bind;
    open(libc::SOCK_DGRAM, at, sockets, caps, |fd, caps| {
        apply_plan(NAME, &sys::Options(fd), plan, caps)?;
        ask_what_comes_along(fd, at, extras, caps)
    })
}

/// Asks for what the lane reads beside the bytes of datagrams.
fn ask_what_comes_along(
    fd: BorrowedFd<'_>,
    at: SocketAddr,
    extras: Extras,
    caps: &mut CapsReport,
) -> Result<(), LaneError> {
    let (level, name) = match at {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_PKTINFO),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    };
    sys::set_option(fd, level, name, 1)
        .map_err(failed("ask for destination addresses", "this lane needs IP_PKTINFO"))?;
    let asks = |yes: bool, name: libc::c_int, value: libc::c_int| {
        yes && sys::set_option(fd, libc::SOL_UDP, name, value).is_ok()
    };
    // No segment size for the socket: each train brings its own. Setting shows whether it can.
    let Extras { gso, gro, kernel_stamps } = extras;
    let stamps = || sys::set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1).is_ok();
    caps.obtained = caps
        .obtained
        .with_if(Cap::Gso, asks(gso, libc::UDP_SEGMENT, 0))
        .with_if(Cap::Gro, asks(gro, libc::UDP_GRO, 1))
        .with_if(Cap::KernelTimestamps, kernel_stamps && stamps());
    Ok(())
}

/// The address of a UDP socket that another process opened by this plan, which is set up as the knobs say: its
/// address, its interface and what it is a member of are as they are.
pub(crate) fn adopt(
    socket: &OwnedFd,
    plan: &PortPlan,
    sockets: &Sockets,
    extras: Extras,
    caps: &mut CapsReport,
) -> Result<SocketAddr, LaneError> {
    let (fd, at) = (socket.as_fd(), plan.bind);
    let refused = |why: &str, hint: &str| {
        Err(LaneError::Refused {
            lane: NAME.to_owned(),
            name: at.to_string(),
            why: why.to_owned(),
            hint: hint.to_owned(),
        })
    };
    if !sys::local_address(fd).is_ok_and(|bound| bound == at) {
        return refused("the socket that was handed over is at another address", "open one");
    }
    let joins = sys::option(fd, libc::SOL_UDP, libc::UDP_GRO, 0);
    if !extras.gro && joins.is_ok_and(|joins| joins != 0) {
        let why = "the socket that was handed over has joined what it received";
        return refused(why, "add the knob gro, with which trains are read");
    }
    if sockets.reuseport {
        let shared = sys::set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1).is_ok();
        caps.obtained = caps.obtained.with_if(Cap::ReusePort, shared);
    }
    size_buffers(fd, sockets, caps).map_err(failed(
        format!("set the socket buffers of {at}"),
        "leave sndbuf= and rcvbuf= out of the spec",
    ))?;
    ask_what_comes_along(fd, at, extras, caps)?;
    Ok(at)
}

/// A bound and listening TCP socket.
pub(crate) fn tcp(
    at: SocketAddr,
    config: &TcpConfig,
    caps: &mut CapsReport,
) -> Result<(OwnedFd, SocketAddr), LaneError> {
    /// Questions to an idle peer that may go unanswered.
    const KEEPALIVES: libc::c_int = 4;
    let (socket, bound) = open(libc::SOCK_STREAM, at, &config.sockets, caps, |fd, _| {
        // A server that starts again must not wait for connections of its last life to time out.
        sys::set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)
            .map_err(failed(format!("reuse {at}"), "see `ss -tn`"))?;
        // Accepted connections inherit these.
        let (tcp, seconds) = (libc::IPPROTO_TCP, config.keepalive_s as libc::c_int);
        for (level, option, value) in [
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
            (tcp, libc::TCP_KEEPIDLE, seconds),
            (tcp, libc::TCP_KEEPINTVL, seconds),
            (tcp, libc::TCP_KEEPCNT, KEEPALIVES),
        ] {
            sys::set_option(fd, level, option, value)
                .map_err(failed(format!("keep peers of {at} alive"), "give another keepalive="))?;
        }
        Ok(())
    })?;
    sys::listen(socket.as_fd()).map_err(|error| unbindable(at, error))?;
    Ok((socket, bound))
}

/// A packet socket bound to interface `name`; with `force` also to one that carries a default route.
pub(crate) fn packet(
    config: &FramesConfig,
    name: &str,
    force: bool,
    caps: &mut CapsReport,
) -> Result<(OwnedFd, Interface), LaneError> {
    let doing = |what: &str| format!("{what} `{name}`");
    let socket = sys::socket(libc::AF_PACKET, libc::SOCK_RAW).map_err(failed(
        doing("open a packet socket for"),
        "this kernel needs CONFIG_PACKET (`modprobe af_packet`)",
    ))?;
    let fd = socket.as_fd();
    let interface = Interface::find(NAME, name)?;
    interface.check_usable(NAME)?;
    if !force {
        let hint = "use another interface, or insist with --force";
        refuse_default_route(NAME, name, "frames sent there leave this machine", hint)?;
    }
    sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1).map_err(failed(
        doing("leave out what is sent on"),
        "this lane needs Linux 4.20 or newer",
    ))?;
    sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_AUXDATA, 1)
        .map_err(failed(doing("ask for the VLAN tags of"), "this lane needs PACKET_AUXDATA"))?;
    let granted = sys::set_buffer(fd, config.rcvbuf_bytes, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)
        .map_err(failed(doing("set up the receive queue of"), "lower rcvbuf="))?;
    caps.fact("rcvbuf_bytes_asked", config.rcvbuf_bytes);
    caps.fact("rcvbuf_bytes", granted);
    caps.kernel_memory.socket_bytes = granted as u64;
    sys::bind_interface(fd, interface.index() as libc::c_int)
        .map_err(failed(doing("bind to"), "see `ip link`: the interface may just have gone"))?;
    Ok((socket, interface))
}
