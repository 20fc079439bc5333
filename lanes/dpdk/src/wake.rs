//! How a blocked worker of this lane wakes, and what the kernel dropped before the driver saw it.
//!
//! net_af_packet and net_af_xdp work on kernel sockets, which could wake a worker and count their
//! drops, but the drivers offer neither. So the lane finds the sockets that appeared while a port was
//! set up and keeps duplicates of them: to poll, and to read statistics that the drivers do not read.
//! net_tap and devices with interrupts give a descriptor by DPDK's own call. Where there is nothing
//! to poll the lane sleeps.
//!
//! What must always hold: nothing is ever read from or written to these sockets. A duplicate keeps a
//! socket alive, so it is dropped before its port closes.

use std::{
    collections::HashSet,
    fs, io,
    ops::Range,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
};

const SOL_XDP: libc::c_int = 283;
const XDP_STATISTICS: libc::c_int = 7;

/// Sockets of this process at one moment, by inode.
pub(crate) struct Sockets(HashSet<u64>);

impl Sockets {
    /// Those that are open now.
    pub(crate) fn now() -> Sockets {
        Sockets(open_sockets().into_iter().map(|(_, inode)| inode).collect())
    }

    /// Duplicates of those that appeared since. Other threads open sockets too, so `is_ours` looks at
    /// each.
    fn since(&self, is_ours: impl Fn(RawFd) -> bool) -> Vec<OwnedFd> {
        let mut new = open_sockets();
        new.retain(|(fd, inode)| !self.0.contains(inode) && is_ours(*fd));
        // Drivers open them queue by queue, and the kernel gives the lowest number that is free.
        new.sort_unstable();
        new.into_iter().filter_map(|(fd, _)| duplicate(fd).ok()).collect()
    }
}

/// The inodes of net_af_xdp's sockets that appeared since `before`: see [`close_left_open`].
pub(crate) fn xdp_sockets_since(before: &Sockets) -> Vec<u64> {
    before.since(is_xdp_socket).iter().filter_map(|socket| inode(socket.as_raw_fd())).collect()
}

/// Descriptor and inode of every open socket.
pub(crate) fn open_sockets() -> Vec<(RawFd, u64)> {
    let Ok(folder) = fs::read_dir("/proc/self/fd") else { return Vec::new() };
    folder
        .flatten()
        .filter_map(|entry| {
            let target = fs::read_link(entry.path()).ok()?;
            let inode = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some((entry.file_name().to_str()?.parse().ok()?, inode.parse().ok()?))
        })
        .collect()
}

fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: plain integers; a descriptor that is gone by now is an error.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, nothing else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Reads an integer option.
pub(crate) fn option(fd: RawFd, level: libc::c_int, name: libc::c_int) -> Option<libc::c_int> {
    read_option::<1>(fd, level, name).map(|[value]| value as libc::c_int)
}

/// Reads an option made of 32-bit words; `None` unless the kernel fills all of them.
fn read_option<const WORDS: usize>(
    fd: RawFd,
    level: libc::c_int,
    name: libc::c_int,
) -> Option<[u32; WORDS]> {
    let mut value = [0u32; WORDS];
    let mut bytes = size_of_val(&value) as libc::socklen_t;
    // SAFETY: room for `bytes` bytes.
    let result =
        unsafe { libc::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &mut bytes) };
    (result == 0 && bytes as usize == size_of_val(&value)).then_some(value)
}

/// True for a TPACKET_V2 socket on interface `index`: what net_af_packet opens, and nothing else here.
fn is_packet_socket(fd: RawFd, index: u32) -> bool {
    if option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) != Some(libc::AF_PACKET)
        || option(fd, libc::SOL_PACKET, libc::PACKET_VERSION)
            != Some(libc::tpacket_versions::TPACKET_V2 as i32)
    {
        return false;
    }
    // SAFETY: made of integers.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut bytes = size_of_val(&address) as libc::socklen_t;
    // SAFETY: room for an address of that many bytes.
    let result = unsafe { libc::getsockname(fd, (&raw mut address).cast(), &mut bytes) };
    result == 0 && address.sll_ifindex as u32 == index
}

fn is_xdp_socket(fd: RawFd) -> bool {
    option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Some(libc::AF_XDP)
}

/// The inode of an open socket.
fn inode(fd: RawFd) -> Option<u64> {
    let target = fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Closes sockets of a driver that is gone. net_af_xdp of DPDK 22.11.11 miscounts the users of its
/// memory and never closes its socket, which would keep the queue until the process ends.
pub(crate) fn close_left_open(inodes: &[u64]) {
    if inodes.is_empty() {
        return;
    }
    for (fd, inode) in open_sockets() {
        if inodes.contains(&inode) {
            // SAFETY: the driver's own descriptor of this socket; the driver freed what knew of it,
            // and the lane's duplicate is closed already.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }
}

/// Frames that the kernel dropped in front of a driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelDrops {
    /// The ring was full.
    pub(crate) queue_full: u64,
    /// The kernel had nothing to receive into.
    pub(crate) no_frame: u64,
    /// Longer than the frames to receive into.
    pub(crate) too_long: u64,
}

/// What wakes the worker of one port.
pub(crate) enum Wake {
    /// Sockets of net_af_packet, one per queue. The kernel forgets its count when it is read.
    Packet { sockets: Vec<OwnedFd>, drops: u64 },
    /// Sockets of net_af_xdp, one per queue.
    Xdp(Vec<OwnedFd>),
    /// Descriptors that DPDK gave, one per queue; they belong to the driver.
    Queues(Vec<RawFd>),
    /// Nothing: the worker sleeps.
    Sleep,
}

impl Wake {
    /// The sockets of net_af_packet that appeared since `before`.
    pub(crate) fn packet(before: &Sockets, index: u32, queues: usize) -> Wake {
        let sockets = before.since(|fd| is_packet_socket(fd, index));
        // Another number: those of another program are among them.
        if sockets.len() == queues { Wake::Packet { sockets, drops: 0 } } else { Wake::Sleep }
    }

    /// The sockets of net_af_xdp that appeared since `before`.
    pub(crate) fn xdp(before: &Sockets, queues: usize) -> Wake {
        let sockets = before.since(is_xdp_socket);
        if sockets.len() == queues { Wake::Xdp(sockets) } else { Wake::Sleep }
    }

    /// The part of a worker that has these queues; asleep if it cannot be distinguished.
    pub(crate) fn of_queues(&self, queues: &Range<u16>) -> Wake {
        let range = usize::from(queues.start)..usize::from(queues.end);
        let copies = |sockets: &[OwnedFd]| -> Option<Vec<OwnedFd>> {
            sockets.get(range.clone())?.iter().map(|socket| socket.try_clone().ok()).collect()
        };
        match self {
            Wake::Packet { sockets, .. } => {
                copies(sockets).map_or(Wake::Sleep, |sockets| Wake::Packet { sockets, drops: 0 })
            }
            Wake::Xdp(sockets) => copies(sockets).map_or(Wake::Sleep, Wake::Xdp),
            Wake::Queues(fds) => {
                fds.get(range).map_or(Wake::Sleep, |fds| Wake::Queues(fds.to_vec()))
            }
            Wake::Sleep => Wake::Sleep,
        }
    }

    /// For reports.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Wake::Packet { .. } | Wake::Xdp(_) => "the driver's socket",
            Wake::Queues(_) => "rx interrupt",
            Wake::Sleep => "bounded sleep",
        }
    }

    /// True when there is something to poll.
    pub(crate) fn is_pollable(&self) -> bool {
        !matches!(self, Wake::Sleep)
    }

    /// The inodes of net_af_xdp's sockets, which its close leaves open: see [`close_left_open`].
    pub(crate) fn left_open(&self) -> Vec<u64> {
        let Wake::Xdp(sockets) = self else { return Vec::new() };
        sockets.iter().filter_map(|socket| inode(socket.as_raw_fd())).collect()
    }

    /// The descriptors to poll.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        match self {
            Wake::Packet { sockets, .. } | Wake::Xdp(sockets) => {
                sockets.iter().map(AsRawFd::as_raw_fd).collect()
            }
            Wake::Queues(queues) => queues.clone(),
            Wake::Sleep => Vec::new(),
        }
    }

    /// What the kernel dropped since the port was opened, where the driver does not count it.
    pub(crate) fn kernel_drops(&mut self) -> KernelDrops {
        let mut all = KernelDrops::default();
        match self {
            Wake::Packet { sockets, drops } => {
                for socket in sockets.iter() {
                    // struct tpacket_stats: packets, drops.
                    let read =
                        read_option(socket.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS);
                    *drops += read.map_or(0, |[_, dropped]: [u32; 2]| u64::from(dropped));
                }
                all.queue_full = *drops;
            }
            Wake::Xdp(sockets) => {
                for socket in sockets.iter() {
                    // struct xdp_statistics: six numbers of 64 bits.
                    let read: Option<[u32; 12]> =
                        read_option(socket.as_raw_fd(), SOL_XDP, XDP_STATISTICS);
                    let number = |words: &[u32; 12], at: usize| {
                        let mut bytes = [0u8; 8];
                        bytes[..4].copy_from_slice(&words[2 * at].to_ne_bytes());
                        bytes[4..].copy_from_slice(&words[2 * at + 1].to_ne_bytes());
                        u64::from_ne_bytes(bytes)
                    };
                    if let Some(words) = read {
                        let no_frame = number(&words, RX_FILL_RING_EMPTY);
                        all.queue_full += number(&words, RX_RING_FULL);
                        all.no_frame += no_frame;
                        // In copy mode a frame that finds nothing to go into is counted twice.
                        all.too_long += number(&words, RX_DROPPED).saturating_sub(no_frame);
                    }
                }
            }
            Wake::Queues(_) | Wake::Sleep => {}
        }
        all
    }
}

/// Places in `struct xdp_statistics`.
const RX_DROPPED: usize = 0;
const RX_RING_FULL: usize = 3;
const RX_FILL_RING_EMPTY: usize = 4;

/// True for a counter that must be read to fall silent; a tap's queue would lose a frame by that.
pub(crate) fn is_counter(fd: RawFd) -> bool {
    fs::read_link(format!("/proc/self/fd/{fd}"))
        .is_ok_and(|target| target.to_string_lossy().contains("eventfd"))
}

/// Reads a readable counter, so that it is silent until the next event.
pub(crate) fn clear_counter(fd: RawFd) {
    let mut count = 0u64;
    // SAFETY: room for the eight bytes of a counter; poll reported that it is readable.
    unsafe { libc::read(fd, (&raw mut count).cast(), size_of_val(&count)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_that_are_new_and_ours_are_duplicated() {
        let _old = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let before = Sockets::now();
        let new = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let is_inet = |fd| option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Some(libc::AF_INET);
        let found = before.since(|fd| is_inet(fd) && fd == new.as_raw_fd());
        assert_eq!(found.len(), 1);
        assert!(before.since(|fd| is_packet_socket(fd, 1) || is_xdp_socket(fd)).is_empty());
    }

    #[test]
    fn a_port_without_sockets_sleeps() {
        let mut wake = Wake::packet(&Sockets::now(), 1, 1);
        assert!(!wake.is_pollable() && wake.descriptors().is_empty());
        assert_eq!(wake.kernel_drops(), KernelDrops::default());
    }
}
