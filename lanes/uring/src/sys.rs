//! The system calls of this lane, one wrapper each.
//!
//! A wrapper turns a call into a safe function with an `io::Result` and does nothing else. `rustix` makes those that it
//! knows. What must always hold: it passes only pointers to memory that it owns or borrows for the call. What
//! outlives a call goes through `ring`, next to the proof.

use crate::config::NAME;
use laneway_core::LaneError;
use laneway_linux::SocketOptions;
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvFlags, SendFlags, Shutdown, SocketFlags,
    SocketType,
};
use std::{
    ffi::c_int,
    io,
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
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
// SAFETY: two u32 in repr(C).
unsafe impl OptionValue for libc::tpacket_stats {}
// SAFETY: integers.
unsafe impl OptionValue for [u32; MEMINFO_WORDS] {}
// SAFETY: integers.
unsafe impl<const N: usize> OptionValue for [u64; N] {}

/// `SO_MEMINFO` (Linux 4.12): an array of counters of a socket, which libc does not name.
const SO_MEMINFO: c_int = 55;
const MEMINFO_WORDS: usize = 9;
/// `SK_MEMINFO_DROPS`.
const MEMINFO_DROPS: usize = 8;
/// Connections that the kernel accepts on its own before the lane takes them.
const BACKLOG: c_int = 4096;

/// The value a call returned, or why it failed.
pub(crate) fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A socket. A blocking one, because the ring would end a request on a non-blocking one, where it
/// should wait, with EAGAIN; calls of this lane that must not block say so themselves.
pub(crate) fn socket(family: c_int, kind: c_int) -> io::Result<OwnedFd> {
    let family = AddressFamily::from_raw(family as u16);
    let kind = SocketType::from_raw(kind as u32);
    Ok(net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// A descriptor that a completion brought.
///
/// # Safety
/// The kernel made it for this process, and nothing else owns it.
pub(crate) unsafe fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: the caller's promise.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Binds a packet socket to one interface and lets frames of every protocol in.
pub(crate) fn bind_interface(fd: BorrowedFd<'_>, interface_index: c_int) -> io::Result<()> {
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

/// Binds to an internet address.
pub(crate) fn bind_address(fd: BorrowedFd<'_>, at: SocketAddr) -> io::Result<()> {
    Ok(net::bind(fd, &at)?)
}

/// `listen`.
pub(crate) fn listen(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(net::listen(fd, BACKLOG)?)
}

/// Accepts a connection that waits at a listener that blocks; an error when there is none.
pub(crate) fn accept_waiting(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    rustix::io::ioctl_fionbio(fd, true)?;
    let accepted = net::accept_with(fd, SocketFlags::CLOEXEC);
    rustix::io::ioctl_fionbio(fd, false)?;
    Ok(accepted?)
}

/// `shutdown`: no more is sent. A connection that is gone already cannot be shut down, which is as
/// well.
pub(crate) fn shutdown_writing(fd: BorrowedFd<'_>) {
    let _ = net::shutdown(fd, Shutdown::Write);
}

/// Makes closing a connection throw away what it has queued (`SO_LINGER` of 0). A connection that is
/// gone already has nothing queued.
pub(crate) fn reset_on_close(fd: BorrowedFd<'_>) {
    let _ = net::sockopt::set_socket_linger(fd, Some(Duration::ZERO));
}

/// Resets a connection now, whatever the kernel still reads for it, and drops what it has queued. One that
/// is gone already needs no reset.
pub(crate) fn reset(fd: BorrowedFd<'_>) {
    reset_on_close(fd);
    let _ = net::connect_unspec(fd);
}

/// Bytes that the peer of a TCP connection has acknowledged; 0 where the kernel does not say.
pub(crate) fn acked_bytes(fd: BorrowedFd<'_>) -> u64 {
    /// Of `tcpi_bytes_acked` in `struct tcp_info`, in words of 8 bytes.
    const AT: usize = 15;
    option(fd, libc::IPPROTO_TCP, libc::TCP_INFO, [0u64; AT + 1]).map_or(0, |info| info[AT])
}

/// The address a socket is bound to.
pub(crate) fn local_address(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    Ok(SocketAddr::try_from(net::getsockname(fd)?)?)
}

/// The address at the other end of a connection.
pub(crate) fn peer_address(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    Ok(SocketAddr::try_from(net::getpeername(fd)?.ok_or(Errno::AFNOSUPPORT)?)?)
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

/// What the socket has dropped since it was made, for want of room or for a bad checksum. Wraps.
pub(crate) fn drops(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let words = option(fd, libc::SOL_SOCKET, SO_MEMINFO, [0u32; MEMINFO_WORDS])?;
    Ok(words[MEMINFO_DROPS])
}

/// Asks for a socket buffer of `bytes` and returns how many the kernel granted, without its own
/// overhead. `forced` is the option for CAP_NET_ADMIN, `plain` the one that `net.core.*mem_max`
/// bounds.
pub(crate) fn set_buffer(
    fd: BorrowedFd<'_>,
    bytes: usize,
    forced: c_int,
    plain: c_int,
) -> io::Result<usize> {
    let asked = bytes as c_int;
    set_option(fd, libc::SOL_SOCKET, forced, asked)
        .or_else(|_| set_option(fd, libc::SOL_SOCKET, plain, asked))?;
    buffer(fd, plain)
}

/// The granted bytes of a socket buffer. The kernel doubles what it is asked for, and says so.
pub(crate) fn buffer(fd: BorrowedFd<'_>, plain: c_int) -> io::Result<usize> {
    let doubled = option(fd, libc::SOL_SOCKET, plain, 0)?;
    Ok(usize::try_from(doubled).unwrap_or(0) / 2)
}

/// Throws away what the kernel reports of earlier datagrams (MSG_ERRQUEUE); a call has returned the error.
pub(crate) fn drain_errors(fd: BorrowedFd<'_>) {
    /// Further ones are reported again.
    const ERRORS_MAX: usize = 64;
    let flags = RecvFlags::ERRQUEUE | RecvFlags::DONTWAIT;
    for _ in 0..ERRORS_MAX {
        let mut none = RecvAncillaryBuffer::default();
        if net::recvmsg(fd, &mut [], &mut none, flags).is_err() {
            return;
        }
    }
}

/// Sends one datagram at once, or not at all.
pub(crate) fn send_to(fd: BorrowedFd<'_>, bytes: &[u8], to: SocketAddr) -> io::Result<()> {
    net::sendto(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL, &to)?;
    Ok(())
}

/// `io_uring_enter` with an extended argument (a timeout), or without.
///
/// # Safety
/// Every request in the submission queue names memory that outlives it.
pub(crate) unsafe fn enter(
    ring: RawFd,
    to_submit: u32,
    wait_for: u32,
    flags: u32,
    timeout: Option<&libc::timespec>,
) -> io::Result<u32> {
    /// `struct io_uring_getevents_arg`.
    #[repr(C)]
    struct Argument {
        sigmask: u64,
        sigmask_bytes: u32,
        min_wait_us: u32,
        timeout: u64,
    }
    let argument = Argument {
        sigmask: 0,
        sigmask_bytes: 0,
        min_wait_us: 0,
        timeout: timeout.map_or(0, |timeout| ptr::from_ref(timeout) as u64),
    };
    let (flags, argument_at, bytes) = match timeout {
        None => (flags, ptr::null(), 0),
        Some(_) => (flags | ENTER_EXT_ARG, &raw const argument, size_of::<Argument>()),
    };
    // SAFETY: argument and timeout live across the call; a 64-bit timespec is what the kernel reads
    // (32-bit targets are refused below); requests are the caller's promise.
    let result = unsafe {
        libc::syscall(
            libc::SYS_io_uring_enter,
            ring,
            to_submit,
            wait_for,
            flags,
            argument_at,
            bytes,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as u32) }
}

const _: () = assert!(size_of::<libc::timespec>() == 16, "io_uring takes 64-bit time stamps only");

/// `IORING_ENTER_EXT_ARG`.
const ENTER_EXT_ARG: u32 = 1 << 3;

/// Registers the ring's descriptor with itself, so that no call looks it up; returns its number.
pub(crate) fn register_ring(ring: RawFd) -> io::Result<u32> {
    const REGISTER_RING_FDS: u32 = 20;
    let mut update = RingUpdate { offset: u32::MAX, reserved: 0, data: ring as u64 };
    // SAFETY: one update, which lives across the call; the kernel writes its offset.
    let done = unsafe {
        libc::syscall(libc::SYS_io_uring_register, ring, REGISTER_RING_FDS, &raw mut update, 1)
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(update.offset) }
}

/// Undoes [`register_ring`]: a thread has only 16 such places.
pub(crate) fn unregister_ring(ring: RawFd, number: u32) {
    const UNREGISTER_RING_FDS: u32 = 21;
    let update = RingUpdate { offset: number, reserved: 0, data: 0 };
    // SAFETY: one update, which lives across the call.
    unsafe {
        libc::syscall(libc::SYS_io_uring_register, ring, UNREGISTER_RING_FDS, &raw const update, 1)
    };
}

/// `struct io_uring_rsrc_update`.
#[repr(C)]
struct RingUpdate {
    offset: u32,
    reserved: u32,
    data: u64,
}

/// A failed call of this lane as an error that says what it was about.
pub(crate) fn failed(doing: impl Into<String>, hint: &str) -> impl FnOnce(io::Error) -> LaneError {
    let (doing, hint) = (doing.into(), hint.to_owned());
    move |error| LaneError::os(NAME, doing, error, &hint)
}
