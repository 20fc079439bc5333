//! Opening a socket at an address, with what was asked for and what was granted.
//!
//! Options are set before the socket is bound, so that nothing arrives that they do not apply to. What
//! must always hold: a capability is reported as obtained only after it was read back or accepted, and
//! a failure names the address and what to try.

use crate::{config::NAME, config::Shared, sys};
use laneway_core::{Cap, CapsReport, LaneError};
use std::{
    ffi::c_int,
    io,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// What `bind` and `socket` are given.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    /// `SOCK_DGRAM`, `SOCK_STREAM` or `SOCK_RAW`.
    pub(crate) kind: c_int,
    pub(crate) protocol: c_int,
    /// How `ss` lists sockets that may hold the address.
    pub(crate) listed_by: &'static str,
}

/// A socket of the address's family, without address yet.
pub(crate) fn create(kind: Kind, address: SocketAddr) -> Result<OwnedFd, LaneError> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let socket = sys::socket(family, kind.kind, kind.protocol).map_err(|e| {
        if e.kind() == io::ErrorKind::PermissionDenied {
            return LaneError::NotPermitted {
                lane: NAME.to_owned(),
                doing: format!("open a raw socket for {}", address.ip()),
                hint: "run as root, or grant CAP_NET_RAW".to_owned(),
            };
        }
        let hint = match e.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => "raise `ulimit -n`: a port is an open file",
            _ => "is this address family or protocol switched off in the kernel?",
        };
        LaneError::os(NAME, format!("open a socket for {address}"), e, hint)
    })?;
    // A raw socket of IPv6 is of IPv6 only anyway, and takes no such option.
    if address.is_ipv6() && kind.kind != libc::SOCK_RAW {
        // So that both wildcards can be opened side by side, each with addresses of its family.
        set(socket.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1, address, "IPV6_V6ONLY")?;
    }
    Ok(socket)
}

/// Gives the socket its address.
pub(crate) fn bind(
    socket: BorrowedFd<'_>,
    kind: Kind,
    address: SocketAddr,
) -> Result<(), LaneError> {
    let lane = NAME.to_owned();
    sys::bind(socket, address).map_err(|e| match e.raw_os_error() {
        Some(libc::EADDRINUSE) => LaneError::Busy {
            lane,
            name: address.to_string(),
            why: "another socket has this address".to_owned(),
            hint: format!(
                "`{}` names its owner; stop it, choose another port, or give all of them reuseport",
                kind.listed_by
            ),
        },
        Some(libc::EADDRNOTAVAIL) => LaneError::NotFound {
            lane,
            what: "local address",
            name: address.ip().to_string(),
            hint: "`ip address` lists those of this network namespace".to_owned(),
        },
        Some(libc::EACCES) => LaneError::NotPermitted {
            lane,
            doing: format!("listen at {address}"),
            hint: "choose a port from 1024 up, grant CAP_NET_BIND_SERVICE, or lower \
                   net.ipv4.ip_unprivileged_port_start"
                .to_owned(),
        },
        _ => LaneError::os(NAME, format!("bind to {address}"), e, "check the address"),
    })
}

/// Sets an option that every kernel of today has.
pub(crate) fn set(
    socket: BorrowedFd<'_>,
    level: c_int,
    option: c_int,
    value: c_int,
    address: SocketAddr,
    name: &str,
) -> Result<(), LaneError> {
    sys::set_option(socket, level, option, value).map_err(|e| {
        let doing = format!("set {name} of the socket for {address}");
        LaneError::os(NAME, doing, e, "this lane needs Linux 5.11 or newer")
    })
}

/// Applies what both kinds of socket can be asked for, before the socket is bound.
pub(crate) fn apply(socket: BorrowedFd<'_>, shared: &Shared, caps: &mut CapsReport) {
    caps.obtained = caps.obtained.with(Cap::Transmit);
    let mut buffers_granted = true;
    for (asked, default, side) in [
        (shared.rcvbuf_bytes, shared.rcvbuf_bytes_default, &RECEIVE),
        (shared.sndbuf_bytes, None, &SEND),
    ] {
        let is_enough = apply_buffer(socket, asked.or(default), side, caps);
        buffers_granted &= is_enough || asked.is_none();
    }
    let buffers_asked = shared.rcvbuf_bytes.or(shared.sndbuf_bytes).is_some();
    caps.obtained = caps.obtained.with_if(Cap::SocketBuffers, buffers_asked && buffers_granted);
    if shared.reuse_port {
        let accepted = sys::set_option(socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1).is_ok();
        caps.obtained = caps.obtained.with_if(Cap::ReusePort, accepted);
    }
    if let Some(us) = shared.busy_poll_us {
        let level = libc::SOL_SOCKET;
        let accepted = sys::set_option(socket, level, libc::SO_BUSY_POLL, us as c_int).is_ok();
        let granted_us = sys::option(socket, level, libc::SO_BUSY_POLL, 0).unwrap_or(0);
        caps.obtained = caps.obtained.with_if(Cap::BusyPoll, accepted && granted_us as usize == us);
        caps.fact("busy_poll_us", granted_us);
    }
}

/// One direction's buffer: its options, and what its figures are called.
struct Buffer {
    option: c_int,
    force: c_int,
    asked: &'static str,
    granted: &'static str,
    raise: &'static str,
    sysctl: &'static str,
}

const RECEIVE: Buffer = Buffer {
    option: libc::SO_RCVBUF,
    force: libc::SO_RCVBUFFORCE,
    asked: "rcvbuf_bytes_asked",
    granted: "rcvbuf_bytes",
    raise: "rcvbuf_raise",
    sysctl: "net.core.rmem_max",
};

const SEND: Buffer = Buffer {
    option: libc::SO_SNDBUF,
    force: libc::SO_SNDBUFFORCE,
    asked: "sndbuf_bytes_asked",
    granted: "sndbuf_bytes",
    raise: "sndbuf_raise",
    sysctl: "net.core.wmem_max",
};

/// Asks for a buffer and reads back what there is. True when that is enough.
///
/// The kernel doubles what it is asked for, because it counts its own overhead as well, and cuts it to
/// the sysctl first. Past that it goes by force only, which takes CAP_NET_ADMIN: plain first, so
/// that an ordinary size is an ordinary request.
fn apply_buffer(
    socket: BorrowedFd<'_>,
    asked: Option<usize>,
    buffer: &Buffer,
    caps: &mut CapsReport,
) -> bool {
    let level = libc::SOL_SOCKET;
    let read = || sys::option(socket, level, buffer.option, 0).unwrap_or(0) as usize;
    let mut enough = true;
    if let Some(bytes) = asked {
        let value = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        // Refusals show in what is read back.
        let _ = sys::set_option(socket, level, buffer.option, value);
        if read() / 2 < bytes {
            let _ = sys::set_option(socket, level, buffer.force, value);
        }
        enough = read() / 2 >= bytes;
        caps.fact(buffer.asked, bytes);
        if !enough {
            caps.fact(buffer.raise, format!("sysctl -w {}={bytes}", buffer.sysctl));
        }
    }
    caps.fact(buffer.granted, read());
    if buffer.option == libc::SO_RCVBUF {
        caps.kernel_memory.socket_bytes = read() as u64;
    }
    enough
}
