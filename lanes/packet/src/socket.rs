//! The socket of one port, set up as the knobs say.
//!
//! What must always hold: every option is set before the socket is bound. Until then it has no
//! protocol and receives nothing, so no frame of another interface, and none without its tag or
//! stamp, can get in. (A fan-out group is the exception: the kernel lets only bound sockets join.)
//! A step that fails says which knob to turn.

use crate::{
    config::{Config, Fanout, Mode, NAME, RingSize},
    ring::{RESERVE_BYTES, Ring},
    sys,
};
use laneway_core::{LaneError, PortId};
use laneway_linux::{Interface, refuse_default_route};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// Opens the socket of port `id` on interface `name`; with `force` also on one that carries a
/// default route.
pub(crate) fn open(
    config: &Config,
    id: PortId,
    name: &str,
    force: bool,
) -> Result<(OwnedFd, Interface), LaneError> {
    let failed = |what: &str, hint: &'static str| {
        let doing = format!("{what} `{name}`");
        move |error: io::Error| LaneError::os(NAME, doing, error, hint)
    };
    let socket = sys::packet_socket().map_err(failed(
        "open a packet socket for",
        "this kernel needs CONFIG_PACKET (`modprobe af_packet`)",
    ))?;
    let fd = socket.as_fd();
    let interface = Interface::find(NAME, name)?;
    interface.check_usable(NAME)?;
    if !force {
        let hint = "use another interface, or insist with --force";
        refuse_default_route(NAME, name, "frames sent there leave this machine", hint)?;
    }
    set(fd, libc::PACKET_IGNORE_OUTGOING, 1)
        .map_err(failed("leave out what is sent on", "this lane needs Linux 4.20 or newer"))?;
    if config.qdisc_bypass {
        set(fd, libc::PACKET_QDISC_BYPASS, 1).map_err(failed(
            "pass the queueing discipline by on",
            "leave qdisc_bypass out of the spec",
        ))?;
    }
    match config.mode {
        Mode::Ring(size) => make_ring(fd, size)
            .map_err(failed("make a TPACKET_V3 ring on", "lower block= or blocks="))?,
        Mode::Single | Mode::Many(_) => make_queue(fd, config)
            .map_err(failed("set up the receive queue of", "lower rcvbuf="))?,
    }
    sys::bind(fd, interface.index() as libc::c_int)
        .map_err(failed("bind to", "see `ip link`: the interface may just have gone"))?;
    if let Some(fanout) = config.fanout {
        join(fd, fanout, id).map_err(failed(
            "join the fan-out group on",
            "another program, or fan-out of another kind, may have this group: choose group=",
        ))?;
    }
    Ok((socket, interface))
}

fn set(fd: BorrowedFd<'_>, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    sys::set_option(fd, libc::SOL_PACKET, name, value)
}

fn make_ring(fd: BorrowedFd<'_>, size: RingSize) -> io::Result<()> {
    set(fd, libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V3 as libc::c_int)?;
    set(fd, libc::PACKET_RESERVE, RESERVE_BYTES as libc::c_int)?;
    sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, Ring::request(size))
}

fn make_queue(fd: BorrowedFd<'_>, config: &Config) -> io::Result<()> {
    set(fd, libc::PACKET_AUXDATA, 1)?;
    if config.kernel_stamps {
        sys::set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
    }
    let asked = config.rcvbuf_bytes as libc::c_int;
    // FORCE is for CAP_NET_ADMIN only; without it net.core.rmem_max is the bound.
    sys::set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, asked)
        .or_else(|_| sys::set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, asked))
}

fn join(fd: BorrowedFd<'_>, fanout: Fanout, id: PortId) -> io::Result<()> {
    set(fd, libc::PACKET_FANOUT, libc::c_int::from(fanout.group_of(id)) | fanout.kind << 16)
}
