//! Kernel sockets that are members of groups for a half of this lane: what the half takes no socket hears, but the
//! kernel sees what routers ask on the interface, so it tells them, and has the interface let the groups' frames in.

use crate::LANE;
use laneway_core::LaneError;
use laneway_kinds::GroupHolder;
use laneway_linux::{Holders, SocketOptions};
use std::{
    ffi::c_int,
    io,
    net::IpAddr,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

struct Holder(OwnedFd);

/// All of them, of one run.
pub(crate) fn kernel_groups() -> Box<dyn GroupHolder> {
    Box::new(Holders::new(LANE, |any: IpAddr| {
        let family = if any.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        datagram_socket(family).map(Holder).map_err(|e| {
            LaneError::os(LANE, "open a socket that holds memberships", e, "raise `ulimit -n`")
        })
    }))
}

/// A socket of datagrams without an address.
fn datagram_socket(family: c_int) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = check(unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the kernel just gave it to us and nothing else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl SocketOptions for Holder {
    fn set(&self, level: c_int, option: c_int, value: &[u8]) -> io::Result<()> {
        let (at, bytes) = (value.as_ptr().cast(), value.len() as libc::socklen_t);
        // SAFETY: the value lives across the call and has so many bytes.
        check(unsafe { libc::setsockopt(self.0.as_raw_fd(), level, option, at, bytes) }).map(drop)
    }

    fn get(&self, level: c_int, option: c_int) -> io::Result<c_int> {
        let (mut value, mut bytes): (c_int, _) = (0, size_of::<c_int>() as libc::socklen_t);
        let at = (&raw mut value).cast();
        // SAFETY: `value` and `bytes` are ours, and the kernel writes at most `bytes` of the value.
        let result =
            unsafe { libc::getsockopt(self.0.as_raw_fd(), level, option, at, &raw mut bytes) };
        check(result).map(|_| value)
    }
}

/// The value a call returned, or why it failed.
fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
