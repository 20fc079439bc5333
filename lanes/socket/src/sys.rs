//! The system calls of this lane, one wrapper each.
//!
//! A wrapper turns a call into a function with an `io::Result` and does nothing else. `rustix` makes those that it
//! knows; by hand are options as bytes, and calls that take message headers, which are unsafe, because a header points
//! to more memory. What must always hold: a safe wrapper passes only pointers to memory that it owns or borrows for the
//! call.

use laneway_linux::SocketOptions;
pub(crate) use rustix::event::epoll::Event;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, Protocol, RecvAncillaryBuffer, RecvFlags, SendFlags, Shutdown,
    SocketFlags, SocketType,
};
use std::{
    ffi::c_int,
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
    num::NonZeroU32,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
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
// SAFETY: integers.
unsafe impl<const N: usize> OptionValue for [u32; N] {}
// SAFETY: integers.
unsafe impl<const N: usize> OptionValue for [u64; N] {}

/// The value a call returned, or why it failed.
fn check(result: c_int) -> io::Result<c_int> {
    #[cfg(test)]
    calls::count();
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The byte count a call returned, or why it failed.
fn check_bytes(result: isize) -> io::Result<usize> {
    #[cfg(test)]
    calls::count();
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// A call that `rustix` made.
fn made<T>(result: rustix::io::Result<T>) -> io::Result<T> {
    #[cfg(test)]
    calls::count();
    Ok(result?)
}

/// How many system calls this thread has made, for tests of what a round costs.
#[cfg(test)]
pub(crate) mod calls {
    use std::cell::Cell;

    thread_local! {
        static MADE: Cell<u64> = const { Cell::new(0) };
    }

    pub(super) fn count() {
        MADE.set(made() + 1);
    }

    pub(crate) fn made() -> u64 {
        MADE.get()
    }
}

/// An address in the kernel's form, of either family. The kernel may be pointed at the whole.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Name {
    /// First, so that a pointer to the name is one to it. A `sockaddr_in` is put and read as bytes of this, which is larger and as strictly aligned.
    raw: libc::sockaddr_in6,
    bytes: libc::socklen_t,
}

impl Name {
    /// Bytes that the kernel may write.
    pub(crate) const BYTES_MAX: libc::socklen_t =
        size_of::<libc::sockaddr_in6>() as libc::socklen_t;

    /// Room for any address.
    pub(crate) const EMPTY: Name = Name {
        raw: libc::sockaddr_in6 {
            sin6_family: libc::AF_UNSPEC as libc::sa_family_t,
            sin6_port: 0,
            sin6_flowinfo: 0,
            sin6_addr: libc::in6_addr { s6_addr: [0; 16] },
            sin6_scope_id: 0,
        },
        bytes: Name::BYTES_MAX,
    };

    /// The address itself; nothing if the kernel wrote another family.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        let port = u16::from_be(self.raw.sin6_port);
        match c_int::from(self.raw.sin6_family) {
            libc::AF_INET6 => Some(SocketAddr::V6(SocketAddrV6::new(
                Ipv6Addr::from(self.raw.sin6_addr.s6_addr),
                port,
                0,
                self.raw.sin6_scope_id,
            ))),
            // Family and port lie at the same place in both; the IPv4 address is where the flow
            // label is.
            libc::AF_INET => Some(SocketAddr::V4(SocketAddrV4::new(
                Ipv4Addr::from(self.raw.sin6_flowinfo.to_ne_bytes()),
                port,
            ))),
            _ => None,
        }
    }

    /// How many bytes there are.
    pub(crate) fn bytes(&self) -> libc::socklen_t {
        self.bytes
    }
}

const _: () = assert!(
    size_of::<libc::sockaddr_in>() <= size_of::<libc::sockaddr_in6>()
        && align_of::<libc::sockaddr_in>() <= align_of::<libc::sockaddr_in6>()
        && std::mem::offset_of!(libc::sockaddr_in, sin_port)
            == std::mem::offset_of!(libc::sockaddr_in6, sin6_port)
        && std::mem::offset_of!(libc::sockaddr_in, sin_addr)
            == std::mem::offset_of!(libc::sockaddr_in6, sin6_flowinfo)
);

impl From<SocketAddr> for Name {
    fn from(address: SocketAddr) -> Name {
        let mut name = Name::EMPTY;
        name.raw.sin6_port = address.port().to_be();
        match address {
            SocketAddr::V4(v4) => {
                name.raw.sin6_family = libc::AF_INET as libc::sa_family_t;
                name.raw.sin6_flowinfo = u32::from_ne_bytes(v4.ip().octets());
                name.bytes = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            }
            SocketAddr::V6(v6) => {
                name.raw.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                name.raw.sin6_addr.s6_addr = v6.ip().octets();
                name.raw.sin6_scope_id = v6.scope_id();
            }
        }
        name
    }
}

/// A socket that never blocks and is not inherited.
pub(crate) fn socket(family: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    let family = AddressFamily::from_raw(family as u16);
    let kind = SocketType::from_raw(kind as u32);
    let protocol = NonZeroU32::new(protocol as u32).map(Protocol::from_raw);
    made(net::socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, protocol))
}

/// `bind`.
pub(crate) fn bind(fd: BorrowedFd<'_>, address: SocketAddr) -> io::Result<()> {
    made(net::bind(fd, &address))
}

/// `listen`.
pub(crate) fn listen(fd: BorrowedFd<'_>, backlog: usize) -> io::Result<()> {
    made(net::listen(fd, c_int::try_from(backlog).unwrap_or(c_int::MAX)))
}

/// `accept4`: a connection that never blocks, and its peer.
pub(crate) fn accept(fd: BorrowedFd<'_>) -> io::Result<(OwnedFd, SocketAddr)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (socket, peer) = made(net::acceptfrom_with(fd, flags))?;
    Ok((socket, SocketAddr::try_from(peer.ok_or(Errno::AFNOSUPPORT)?)?))
}

/// `getsockname`.
pub(crate) fn local_address(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    Ok(SocketAddr::try_from(made(net::getsockname(fd))?)?)
}

/// The options of a socket, for what applies a plan.
pub(crate) struct Options<'a>(pub(crate) BorrowedFd<'a>);

impl SocketOptions for Options<'_> {
    fn set(&self, level: c_int, option: c_int, value: &[u8]) -> io::Result<()> {
        let (at, bytes) = (value.as_ptr().cast(), value.len() as libc::socklen_t);
        // SAFETY: the value lives across the call and has so many bytes.
        check(unsafe { libc::setsockopt(self.0.as_raw_fd(), level, option, at, bytes) }).map(drop)
    }

    fn get(&self, level: c_int, option: c_int) -> io::Result<c_int> {
        self::option(self.0, level, option, 0)
    }
}

/// A socket that is a member of groups and receives nothing.
pub(crate) struct Holder(pub(crate) OwnedFd);

impl SocketOptions for Holder {
    fn set(&self, level: c_int, option: c_int, value: &[u8]) -> io::Result<()> {
        Options(self.0.as_fd()).set(level, option, value)
    }

    fn get(&self, level: c_int, option: c_int) -> io::Result<c_int> {
        Options(self.0.as_fd()).get(level, option)
    }
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

/// `recvmsg`, one message.
///
/// # Safety
/// Name, vectors, what they point to and control of `message` must be writable for their lengths.
pub(crate) unsafe fn receive_one(
    fd: BorrowedFd<'_>,
    message: &mut libc::mmsghdr,
) -> io::Result<()> {
    let header = &raw mut message.msg_hdr;
    // SAFETY: the caller promises that what the header points to may be written.
    let bytes = check_bytes(unsafe { libc::recvmsg(fd.as_raw_fd(), header, 0) })?;
    message.msg_len = bytes as u32;
    Ok(())
}

/// `recvmmsg`: as many messages as there are now, at most one per header.
///
/// # Safety
/// As for [`receive_one`], for every message.
pub(crate) unsafe fn receive_many(
    fd: BorrowedFd<'_>,
    messages: &mut [libc::mmsghdr],
) -> io::Result<usize> {
    let count = messages.len() as u32;
    let at = messages.as_mut_ptr();
    // SAFETY: `count` headers lie at `at`; the caller promises what they point to. No timeout.
    let result = unsafe {
        libc::recvmmsg(fd.as_raw_fd(), at, count, libc::MSG_DONTWAIT as _, ptr::null_mut())
    };
    check(result).map(|count| count as usize)
}

/// `sendmsg`, one message.
///
/// # Safety
/// Name, vectors, what they point to and control of `message` must be readable for their lengths.
pub(crate) unsafe fn send_one(fd: BorrowedFd<'_>, message: &libc::mmsghdr) -> io::Result<()> {
    let header = &raw const message.msg_hdr;
    // SAFETY: the caller promises that what the header points to may be read.
    check_bytes(unsafe { libc::sendmsg(fd.as_raw_fd(), header, libc::MSG_NOSIGNAL) }).map(drop)
}

/// `sendmmsg`: how many messages the kernel took, from the first on; an error is the first's.
///
/// # Safety
/// As for [`send_one`], for every message.
pub(crate) unsafe fn send_many(
    fd: BorrowedFd<'_>,
    messages: &mut [libc::mmsghdr],
) -> io::Result<usize> {
    let count = messages.len() as u32;
    let at = messages.as_mut_ptr();
    // SAFETY: `count` headers lie at `at`; the caller promises what they point to.
    let result = unsafe { libc::sendmmsg(fd.as_raw_fd(), at, count, libc::MSG_NOSIGNAL as _) };
    check(result).map(|count| count as usize)
}

/// Throws away what the kernel reports of earlier datagrams (MSG_ERRQUEUE); the next call has returned the error.
pub(crate) fn drain_errors(fd: BorrowedFd<'_>) {
    /// Further ones are reported again.
    const ERRORS_MAX: usize = 64;
    let flags = RecvFlags::ERRQUEUE | RecvFlags::DONTWAIT;
    for _ in 0..ERRORS_MAX {
        let mut none = RecvAncillaryBuffer::default();
        if made(net::recvmsg(fd, &mut [], &mut none, flags)).is_err() {
            return;
        }
    }
}

/// `recv` into `room`; 0 at the end of a stream.
pub(crate) fn receive(fd: BorrowedFd<'_>, room: &mut [u8]) -> io::Result<usize> {
    made(net::recv(fd, room, RecvFlags::empty())).map(|(bytes, _)| bytes)
}

/// `send` of a piece of a stream; how many bytes were taken.
pub(crate) fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    made(net::send(fd, bytes, SendFlags::NOSIGNAL))
}

/// A message header that points nowhere.
pub(crate) const EMPTY_HEADER: libc::msghdr = {
    // SAFETY: integers and null pointers; zero is a value of all of them.
    unsafe { std::mem::zeroed() }
};

/// `shutdown` of the sending direction.
pub(crate) fn finish_sending(fd: BorrowedFd<'_>) -> io::Result<()> {
    made(net::shutdown(fd, Shutdown::Write))
}

/// Has the socket reset its connection when it is closed, and drop what it has not sent.
pub(crate) fn reset_on_close(fd: BorrowedFd<'_>) -> io::Result<()> {
    made(net::sockopt::set_socket_linger(fd, Some(Duration::ZERO)))
}

/// Bytes that the peer of a TCP connection has acknowledged; 0 where the kernel does not say.
pub(crate) fn acked_bytes(fd: BorrowedFd<'_>) -> u64 {
    /// Of `tcpi_bytes_acked` in `struct tcp_info`, in words of 8 bytes.
    const AT: usize = 15;
    option(fd, libc::IPPROTO_TCP, libc::TCP_INFO, [0u64; AT + 1]).map_or(0, |info| info[AT])
}

/// Room for an event.
pub(crate) const NO_EVENT: Event =
    Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };

/// `epoll_create1`.
pub(crate) fn epoll() -> io::Result<OwnedFd> {
    made(epoll::create(epoll::CreateFlags::CLOEXEC))
}

/// Watches `fd` for `events`, telling them with `token`. It is watched until it is closed.
pub(crate) fn epoll_add(
    epoll: BorrowedFd<'_>,
    fd: BorrowedFd<'_>,
    events: c_int,
    token: u64,
) -> io::Result<()> {
    let events = epoll::EventFlags::from_bits_retain(events as u32);
    made(epoll::add(epoll, fd, epoll::EventData::new_u64(token), events))
}

/// Watches `fd` no longer. To be called where another process has the socket too, whose events would go on.
pub(crate) fn epoll_remove(epoll: BorrowedFd<'_>, fd: BorrowedFd<'_>) -> io::Result<()> {
    made(epoll::delete(epoll, fd))
}

/// `epoll_pwait2`: how many events were written. A signal is no event.
pub(crate) fn epoll_wait(
    epoll: BorrowedFd<'_>,
    events: &mut [Event],
    timeout: Duration,
) -> io::Result<usize> {
    let timeout = Timespec::try_from(timeout).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
    match made(epoll::wait(epoll, events, Some(&timeout))) {
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(0),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_the_kernels_form() {
        for text in ["192.0.2.7:4789", "[2001:db8::7]:53", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().expect("an address");
            assert_eq!(Name::from(address).address(), Some(address));
        }
        assert_eq!(Name::EMPTY.address(), None);
    }
}
