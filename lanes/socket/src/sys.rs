//! The system calls of this lane, one wrapper each.
//!
//! A wrapper turns a raw call into a function with an `io::Result` and does nothing else. What must
//! always hold: a safe wrapper passes only pointers to memory that it owns or borrows for the call.
//! The two that take message headers are unsafe, because a header points to more memory.

use laneway_linux::SocketOptions;
use std::{
    ffi::c_int,
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
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
    let kind = kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers.
    let fd = check(unsafe { libc::socket(family, kind, protocol) })?;
    // SAFETY: the kernel just gave it to us and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `bind`.
pub(crate) fn bind(fd: BorrowedFd<'_>, address: SocketAddr) -> io::Result<()> {
    let name = Name::from(address);
    // SAFETY: the name lives across the call and has so many bytes.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const name.raw).cast(), name.bytes) }).map(drop)
}

/// `listen`.
pub(crate) fn listen(fd: BorrowedFd<'_>, backlog: usize) -> io::Result<()> {
    let backlog = c_int::try_from(backlog).unwrap_or(c_int::MAX);
    // SAFETY: no pointers.
    check(unsafe { libc::listen(fd.as_raw_fd(), backlog) }).map(drop)
}

/// `accept4`: a connection that never blocks, and its peer.
pub(crate) fn accept(fd: BorrowedFd<'_>) -> io::Result<(OwnedFd, SocketAddr)> {
    let mut name = Name::EMPTY;
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the kernel writes at most `bytes`, the size of `raw`; both live across the call.
    let accepted = unsafe {
        libc::accept4(fd.as_raw_fd(), (&raw mut name.raw).cast(), &raw mut name.bytes, flags)
    };
    let accepted = check(accepted)?;
    // SAFETY: the kernel just gave it to us and nobody else has it.
    let socket = unsafe { OwnedFd::from_raw_fd(accepted) };
    let peer = name.address().ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))?;
    Ok((socket, peer))
}

/// `getsockname`.
pub(crate) fn local_address(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    let mut name = Name::EMPTY;
    // SAFETY: the kernel writes at most `bytes`, the size of `raw`; both live across the call.
    let result = unsafe {
        libc::getsockname(fd.as_raw_fd(), (&raw mut name.raw).cast(), &raw mut name.bytes)
    };
    check(result)?;
    name.address().ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))
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

/// Throws away what the kernel tells of earlier datagrams (MSG_ERRQUEUE); the next call has told the error.
pub(crate) fn drain_errors(fd: BorrowedFd<'_>) {
    /// Further ones are told of again.
    const ERRORS_MAX: usize = 64;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    for _ in 0..ERRORS_MAX {
        let mut header = EMPTY_HEADER;
        // SAFETY: the header points nowhere, so that the kernel writes nothing but its lengths and flags.
        let taken = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, flags) };
        if check_bytes(taken).is_err() {
            return;
        }
    }
}

/// `recv` into `room`; 0 at the end of a stream.
pub(crate) fn receive(fd: BorrowedFd<'_>, room: &mut [u8]) -> io::Result<usize> {
    let (at, bytes) = (room.as_mut_ptr().cast(), room.len());
    // SAFETY: the room lives across the call and has so many bytes.
    check_bytes(unsafe { libc::recv(fd.as_raw_fd(), at, bytes, 0) })
}

/// `send` of a piece of a stream; how many bytes were taken.
pub(crate) fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let (at, count) = (bytes.as_ptr().cast(), bytes.len());
    // SAFETY: the bytes live across the call, which only reads them.
    check_bytes(unsafe { libc::send(fd.as_raw_fd(), at, count, libc::MSG_NOSIGNAL) })
}

/// A message header that points nowhere.
pub(crate) const EMPTY_HEADER: libc::msghdr = {
    // SAFETY: integers and null pointers; zero is a value of all of them.
    unsafe { std::mem::zeroed() }
};

/// `shutdown` of the sending direction.
pub(crate) fn finish_sending(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_WR) }).map(drop)
}

/// Has the socket reset its connection when it is closed, and drop what it has not sent.
pub(crate) fn reset_on_close(fd: BorrowedFd<'_>) -> io::Result<()> {
    // `struct linger`: on, for no time.
    set_option(fd, libc::SOL_SOCKET, libc::SO_LINGER, [1u32, 0])
}

/// Bytes that the peer of a TCP connection has acknowledged; 0 where the kernel does not say.
pub(crate) fn acked_bytes(fd: BorrowedFd<'_>) -> u64 {
    /// Of `tcpi_bytes_acked` in `struct tcp_info`, in words of 8 bytes.
    const AT: usize = 15;
    option(fd, libc::IPPROTO_TCP, libc::TCP_INFO, [0u64; AT + 1]).map_or(0, |info| info[AT])
}

/// `epoll_create1`.
pub(crate) fn epoll() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    // SAFETY: the kernel just gave it to us and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Watches `fd` for `events`, telling them with `token`. It is watched until it is closed.
pub(crate) fn epoll_add(
    epoll: BorrowedFd<'_>,
    fd: BorrowedFd<'_>,
    events: c_int,
    token: u64,
) -> io::Result<()> {
    let mut event = libc::epoll_event { events: events as u32, u64: token };
    let (epoll, fd) = (epoll.as_raw_fd(), fd.as_raw_fd());
    // SAFETY: the event lives across the call.
    check(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event) }).map(drop)
}

/// Watches `fd` no longer. To be called where another process has the socket too, whose events would go on.
pub(crate) fn epoll_remove(epoll: BorrowedFd<'_>, fd: BorrowedFd<'_>) -> io::Result<()> {
    let (epoll, fd) = (epoll.as_raw_fd(), fd.as_raw_fd());
    let no_event = ptr::null_mut::<libc::epoll_event>();
    // SAFETY: the kernel reads no event for this.
    check(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, fd, no_event) }).map(drop)
}

/// `epoll_pwait2`: how many events were written. A signal is no event.
pub(crate) fn epoll_wait(
    epoll: BorrowedFd<'_>,
    events: &mut [libc::epoll_event],
    timeout: Duration,
) -> io::Result<usize> {
    let timeout = timespec(timeout);
    let (at, count) = (events.as_mut_ptr(), events.len());
    let no_mask = ptr::null::<libc::sigset_t>();
    // SAFETY: the kernel writes at most `count` events, which is how many there are, and reads the
    // timeout; no signal mask.
    let result = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.as_raw_fd(),
            at,
            count,
            &raw const timeout,
            no_mask,
            0usize,
        )
    };
    match check(result as c_int) {
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(0),
        other => other.map(|count| count as usize),
    }
}

fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(duration.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: duration.subsec_nanos().into(),
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
