//! The system calls this lane makes and the kernel's AF_XDP constants and records.
//!
//! Debian 12 ships the interface headers of Linux 6.1, which lack multi-buffer, so the constants of
//! `linux/if_xdp.h` and a few socket options are written down here. Declarations and one wrapper per
//! call: a wrapper turns a raw call into a safe function, nothing more. What must always hold: a
//! wrapper passes only pointers to memory that it owns or borrows for the call.

use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::process::{Resource, getrlimit};
use std::{
    io, mem,
    num::NonZeroUsize,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
    ptr::{self, NonNull},
    time::Duration,
};

pub(crate) const SOL_XDP: i32 = 283;
pub(crate) const XDP_MMAP_OFFSETS: i32 = 1;
pub(crate) const XDP_RX_RING: i32 = 2;
pub(crate) const XDP_TX_RING: i32 = 3;
pub(crate) const XDP_UMEM_REG: i32 = 4;
pub(crate) const XDP_UMEM_FILL_RING: i32 = 5;
pub(crate) const XDP_UMEM_COMPLETION_RING: i32 = 6;
pub(crate) const XDP_STATISTICS: i32 = 7;
pub(crate) const XDP_OPTIONS: i32 = 8;
/// Frames that one copy-mode send call may carry; since Linux 6.17, 32 before.
pub(crate) const XDP_MAX_TX_SKB_BUDGET: i32 = 9;

/// Bind flags.
pub(crate) const XDP_SHARED_UMEM: u16 = 1 << 0;
pub(crate) const XDP_COPY: u16 = 1 << 1;
pub(crate) const XDP_ZEROCOPY: u16 = 1 << 2;
pub(crate) const XDP_USE_NEED_WAKEUP: u16 = 1 << 3;
pub(crate) const XDP_USE_SG: u16 = 1 << 4;

/// In `XdpOptions::flags`: the socket obtained zero copy.
pub(crate) const XDP_OPTIONS_ZEROCOPY: u32 = 1 << 0;
/// In `XdpDesc::options`: the frame goes on in the next descriptor.
pub(crate) const XDP_PKT_CONTD: u32 = 1 << 0;

/// Where `mmap` finds the rings of a socket.
pub(crate) const PGOFF_RX_RING: i64 = 0;
pub(crate) const PGOFF_TX_RING: i64 = 0x8000_0000;
pub(crate) const PGOFF_FILL_RING: i64 = 0x1_0000_0000;
pub(crate) const PGOFF_COMPLETION_RING: i64 = 0x1_8000_0000;

/// `ENOTSUPP`, which the kernel leaks to user space from drivers without zero copy.
pub(crate) const ENOTSUPP: i32 = 524;

/// `struct xdp_umem_reg`: the memory to register.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct XdpUmemReg {
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) chunk_size: u32,
    pub(crate) headroom: u32,
    pub(crate) flags: u32,
    pub(crate) tx_metadata_len: u32,
}

/// `struct sockaddr_xdp`: what to bind to.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct SockaddrXdp {
    pub(crate) family: u16,
    pub(crate) flags: u16,
    pub(crate) ifindex: u32,
    pub(crate) queue_id: u32,
    pub(crate) shared_umem_fd: u32,
}

/// `struct xdp_ring_offset`: where a ring's parts lie in its mapping, in bytes.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct XdpRingOffset {
    pub(crate) producer: u64,
    pub(crate) consumer: u64,
    pub(crate) desc: u64,
    pub(crate) flags: u64,
}

/// `struct xdp_mmap_offsets`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct XdpMmapOffsets {
    pub(crate) rx: XdpRingOffset,
    pub(crate) tx: XdpRingOffset,
    pub(crate) fill: XdpRingOffset,
    pub(crate) completion: XdpRingOffset,
}

/// `struct xdp_desc`: one buffer of a received or sent frame.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct XdpDesc {
    /// Offset of the first byte in the UMEM.
    pub(crate) addr: u64,
    /// Bytes.
    pub(crate) len: u32,
    /// `XDP_PKT_CONTD` and others.
    pub(crate) options: u32,
}

/// `struct xdp_statistics`: what the kernel counted for one socket.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct XdpStatistics {
    pub(crate) rx_dropped: u64,
    pub(crate) rx_invalid_descs: u64,
    pub(crate) tx_invalid_descs: u64,
    pub(crate) rx_ring_full: u64,
    pub(crate) rx_fill_ring_empty_descs: u64,
    pub(crate) tx_ring_empty_descs: u64,
}

/// `struct xdp_options`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct XdpOptions {
    pub(crate) flags: u32,
}

/// A record that may be handed to the kernel byte by byte and filled by it.
///
/// # Safety
/// The type is `repr(C)` without padding and every bit pattern is a value of it.
pub(crate) unsafe trait Record: Copy + Default {}

// SAFETY: an integer.
unsafe impl Record for i32 {}
// SAFETY: an integer.
unsafe impl Record for u32 {}
// SAFETY: repr(C), two u64 and four u32: no padding, all integers.
unsafe impl Record for XdpUmemReg {}
// SAFETY: repr(C), sixteen u64.
unsafe impl Record for XdpMmapOffsets {}
// SAFETY: repr(C), six u64.
unsafe impl Record for XdpStatistics {}
// SAFETY: repr(C), one u32.
unsafe impl Record for XdpOptions {}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A new socket of `family` and `kind`, closed on exec.
pub(crate) fn socket(family: i32, kind: i32) -> io::Result<OwnedFd> {
    let family = AddressFamily::from_raw(family as u16);
    let kind = SocketType::from_raw(kind as u32);
    Ok(net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// Sets a socket option.
pub(crate) fn set_option<T: Record>(
    fd: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: &T,
) -> io::Result<()> {
    // SAFETY: `value` is borrowed for the call and the length is its size.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            ptr::from_ref(value).cast(),
            size_of::<T>() as u32,
        )
    })?;
    Ok(())
}

/// `setsockopt` of a value that is given as its bytes.
pub(crate) fn set_option_bytes(
    fd: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: &[u8],
) -> io::Result<()> {
    let (at, bytes) = (value.as_ptr().cast(), value.len() as libc::socklen_t);
    // SAFETY: the value lives across the call and has so many bytes.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, at, bytes) }).map(drop)
}

/// Reads a socket option; what an older kernel does not fill stays at its default.
pub(crate) fn option<T: Record>(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<T> {
    let mut value = T::default();
    let mut bytes = size_of::<T>() as u32;
    // SAFETY: `value` is ours and the kernel writes at most `bytes` of it; T takes any bits.
    check(unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, ptr::from_mut(&mut value).cast(), &mut bytes)
    })?;
    Ok(value)
}

/// Binds an AF_XDP socket.
pub(crate) fn bind(fd: BorrowedFd<'_>, to: &SockaddrXdp) -> io::Result<()> {
    // SAFETY: `to` is borrowed for the call and the length is its size.
    check(unsafe {
        libc::bind(fd.as_raw_fd(), ptr::from_ref(to).cast(), size_of::<SockaddrXdp>() as u32)
    })?;
    Ok(())
}

/// Tells the kernel to look at the transmit ring. Never blocks.
#[inline]
pub(crate) fn wake_transmit(fd: BorrowedFd<'_>) -> io::Result<()> {
    // No bytes and no address: the ring is the message.
    net::send(fd, &[], SendFlags::DONTWAIT)?;
    Ok(())
}

/// Tells the kernel to look at the fill ring, or to poll the device. Never blocks.
#[inline]
pub(crate) fn wake_receive(fd: BorrowedFd<'_>) -> io::Result<()> {
    // No room and no address: the ring takes what there is.
    net::recv(fd, &mut [0u8; 0][..], RecvFlags::DONTWAIT)?;
    Ok(())
}

/// Waits for events; returns how many descriptors have some.
pub(crate) fn poll(fds: &mut [libc::pollfd], timeout: Duration) -> io::Result<usize> {
    let time = libc::timespec {
        tv_sec: timeout.as_secs() as libc::time_t,
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // SAFETY: `fds` and `time` are borrowed for the call, the count is the slice's.
    let ready = unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as _, &time, ptr::null()) };
    Ok(check(ready)? as usize)
}

/// Bytes per page.
pub(crate) fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// Bytes per huge page of the default size, as the kernel states it; 2 MiB if it does not.
pub(crate) fn huge_page_bytes() -> usize {
    const USUAL: usize = 2 << 20;
    let Ok(text) = std::fs::read_to_string("/proc/meminfo") else { return USUAL };
    text.lines()
        .find_map(|line| {
            line.strip_prefix("Hugepagesize:")?.trim().strip_suffix(" kB")?.parse().ok()
        })
        .map_or(USUAL, |kib: usize| kib << 10)
}

/// The memory that can be had without taking it from others, in bytes, as the kernel estimates it;
/// `None` if it does not.
pub(crate) fn available_memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

/// The limit on locked memory in bytes; `None` when there is none.
pub(crate) fn memlock_limit_bytes() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}

/// Memory mapped for this value; unmapped when it is dropped.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: NonZeroUsize,
}

impl Mapping {
    /// Zeroed memory, populated now so that no frame takes a page fault later; on huge pages of the
    /// system's default size if asked for.
    pub(crate) fn anonymous(bytes: usize, huge: bool) -> io::Result<Mapping> {
        let huge = if huge { libc::MAP_HUGETLB } else { 0 };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE | huge;
        Mapping::new(bytes, flags, -1, 0)
    }

    /// A ring of an AF_XDP socket.
    pub(crate) fn ring(fd: BorrowedFd<'_>, bytes: usize, offset: i64) -> io::Result<Mapping> {
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        Mapping::new(bytes, flags, fd.as_raw_fd(), offset)
    }

    fn new(bytes: usize, flags: i32, fd: i32, offset: i64) -> io::Result<Mapping> {
        let bytes = NonZeroUsize::new(bytes).ok_or(io::ErrorKind::InvalidInput)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
        let base =
            unsafe { libc::mmap(ptr::null_mut(), bytes.get(), protection, flags, fd, offset) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).expect("the kernel does not map address 0");
        Ok(Mapping { base, bytes })
    }

    /// The first byte.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Length in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.get()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping was made in `new`, is unmapped only here, and every user of its memory
        // keeps it alive.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes.get()) };
    }
}

/// `union bpf_attr` for the commands on one map entry.
#[repr(C)]
struct BpfMapEntry {
    map_fd: u32,
    _padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

const BPF_MAP_UPDATE_ELEM: i32 = 2;
const BPF_MAP_DELETE_ELEM: i32 = 3;
const BPF_ANY: u64 = 0;

/// `bpf(2)` on the entry `key` of a map whose keys and values have 32 bits.
fn bpf_map_entry(command: i32, map: BorrowedFd<'_>, key: u32, value: u32) -> io::Result<()> {
    let entry = BpfMapEntry {
        map_fd: map.as_raw_fd() as u32,
        _padding: 0,
        key: ptr::from_ref(&key).expose_provenance() as u64,
        value: ptr::from_ref(&value).expose_provenance() as u64,
        flags: BPF_ANY,
    };
    // SAFETY: the record and the two integers it points to live across the call, which reads them
    // and, as the map's maker says, no more of them than 32 bits each.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            ptr::from_ref(&entry),
            size_of::<BpfMapEntry>() as u32,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Puts a socket into the XSKMAP `map` as that of `queue`.
pub(crate) fn put_socket(
    map: BorrowedFd<'_>,
    queue: u32,
    socket: BorrowedFd<'_>,
) -> io::Result<()> {
    bpf_map_entry(BPF_MAP_UPDATE_ELEM, map, queue, socket.as_raw_fd() as u32)
}

/// Takes the socket of `queue` out of the XSKMAP `map`.
pub(crate) fn remove_socket(map: BorrowedFd<'_>, queue: u32) -> io::Result<()> {
    bpf_map_entry(BPF_MAP_DELETE_ELEM, map, queue, 0)
}

/// `struct ethtool_channels`, which an interface request may point to.
#[repr(C)]
#[derive(Default)]
struct EthtoolChannels {
    cmd: u32,
    max_rx: u32,
    max_tx: u32,
    max_other: u32,
    max_combined: u32,
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// An interface request for `name`, which must be shorter than the kernel's bound.
fn interface_request(name: &str) -> libc::ifreq {
    assert!(name.len() < libc::IFNAMSIZ, "checked when the interface was looked up");
    // SAFETY: all-zero is a valid ifreq: integers, and a null pointer in the union.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

fn interface_ioctl(fd: BorrowedFd<'_>, call: u64, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: `request` is ours; what it may point to is set by the callers below and outlives the
    // call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), call as _, ptr::from_mut(request)) })?;
    Ok(())
}

/// The queues of an interface, as `ethtool -l` tells them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Channels {
    /// Receive queues in use.
    pub(crate) rx: u32,
    /// Queues for both directions that can be had; 0 when the device tells them apart.
    pub(crate) max_combined: u32,
    /// Receive queues that can be had besides those.
    pub(crate) max_rx: u32,
}

/// The queues of interface `name`.
pub(crate) fn interface_channels(fd: BorrowedFd<'_>, name: &str) -> io::Result<Channels> {
    let mut channels = EthtoolChannels { cmd: ETHTOOL_GCHANNELS, ..EthtoolChannels::default() };
    let mut request = interface_request(name);
    request.ifr_ifru.ifru_data = ptr::from_mut(&mut channels).cast();
    interface_ioctl(fd, libc::SIOCETHTOOL, &mut request)?;
    Ok(Channels {
        rx: channels.rx + channels.combined,
        max_combined: channels.max_combined,
        max_rx: channels.max_rx,
    })
}
