//! The system calls of this lane, one wrapper each.
//!
//! A wrapper turns a call into a safe function with an `io::Result` and does nothing else; `rustix` makes those that it
//! knows. What must always hold: it passes only pointers to memory that it owns or borrows for the call. Calls
//! that take pointers to frames are in `inbox`, `outbox` and `memory`, next to the proof.

use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use std::{
    ffi::c_int,
    io,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
    ptr,
    time::Duration,
};

/// A plain value that socket options carry: the kernel may read and write its bytes.
///
/// # Safety
/// The type has no padding and every bit pattern is a value of it.
pub(crate) unsafe trait OptionValue: Copy {}

// SAFETY: an integer.
unsafe impl OptionValue for c_int {}
// SAFETY: seven u32 in repr(C).
unsafe impl OptionValue for libc::tpacket_req3 {}
// SAFETY: three u32 in repr(C).
unsafe impl OptionValue for libc::tpacket_stats_v3 {}

/// The value a call returned, or why it failed.
pub(crate) fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A packet socket without a protocol: it receives nothing until it is bound.
pub(crate) fn packet_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?)
}

/// A socket of datagrams without an address.
pub(crate) fn datagram_socket(family: c_int) -> io::Result<OwnedFd> {
    let family = AddressFamily::from_raw(family as u16);
    Ok(net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

/// Binds to one interface and lets frames of every protocol in.
pub(crate) fn bind(fd: BorrowedFd<'_>, interface_index: c_int) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: interface_index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let bytes = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address lives across the call and `bytes` is its size.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), bytes) }).map(drop)
}

/// `setsockopt`.
pub(crate) fn set_option<T: OptionValue>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: T,
) -> io::Result<()> {
    let bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value lives across the call and `bytes` is its size.
    let result =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), bytes) };
    check(result).map(drop)
}

/// `setsockopt` of a value that is given as its bytes.
pub(crate) fn set_option_bytes(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &[u8],
) -> io::Result<()> {
    let (at, bytes) = (value.as_ptr().cast(), value.len() as libc::socklen_t);
    // SAFETY: the value lives across the call and has so many bytes.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, at, bytes) }).map(drop)
}

/// `getsockopt`, into a value that keeps what the kernel does not fill.
pub(crate) fn option<T: OptionValue>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    mut value: T,
) -> io::Result<T> {
    let mut bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes`, the size of `value`, and OptionValue promises that
    // any bytes are a value.
    let result = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut bytes)
    };
    check(result).map(|_| value)
}

/// The error that the kernel left on the socket, which this takes away; nothing if there is none.
pub(crate) fn take_error(fd: BorrowedFd<'_>) -> io::Result<Option<io::Error>> {
    Ok(net::sockopt::socket_error(fd)?.err().map(io::Error::from))
}

/// `ppoll`: waits until a descriptor is ready, the time is up (then 0), or a signal arrived (then 0).
pub(crate) fn poll(sockets: &mut [libc::pollfd], timeout: Duration) -> io::Result<usize> {
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let count = sockets.len() as libc::nfds_t;
    // SAFETY: the slice and the timeout live across the call; no signal mask.
    let ready =
        unsafe { libc::ppoll(sockets.as_mut_ptr(), count, &raw const timeout, ptr::null()) };
    match check(ready) {
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(0),
        other => other.map(|ready| ready as usize),
    }
}
