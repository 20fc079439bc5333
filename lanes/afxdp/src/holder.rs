//! Kernel sockets that are members of groups for a stack above this lane: the kernel sees what routers ask on the
//! interface, so it tells them.

use crate::{config::NAME, sys};
use laneway_core::LaneError;
use laneway_kinds::GroupHolder;
use laneway_linux::{Holders, SocketOptions};
use std::{
    ffi::c_int,
    io,
    net::IpAddr,
    os::fd::{AsFd, OwnedFd},
};

struct Holder(OwnedFd);

/// All of them, of one worker.
pub(crate) fn kernel_groups() -> Box<dyn GroupHolder> {
    Box::new(Holders::new(NAME, |any: IpAddr| {
        let family = if any.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        sys::socket(family, libc::SOCK_DGRAM).map(Holder).map_err(|e| {
            LaneError::os(NAME, "open a socket that holds memberships", e, "raise `ulimit -n`")
        })
    }))
}

impl SocketOptions for Holder {
    fn set(&self, level: c_int, option: c_int, value: &[u8]) -> io::Result<()> {
        sys::set_option_bytes(self.0.as_fd(), level, option, value)
    }

    fn get(&self, level: c_int, option: c_int) -> io::Result<c_int> {
        sys::option(self.0.as_fd(), level, option)
    }
}
