//! One AF_XDP socket: created, given its rings, bound to a queue, and asked what it obtained.
//!
//! The order is the kernel's: memory, ring sizes, mappings, options, bind; afterwards nothing of it
//! can change. The first socket of a lane registers the UMEM, the others share it by name of the
//! first (`XDP_SHARED_UMEM`), with fill and completion rings of their own because their devices
//! differ. What must always hold: a socket that exists is bound. What it does not do: move frames.

use crate::{
    config::{BusyPoll, Config, CopyMode, NAME},
    interface::Interface,
    plane::Rings,
    ring::{Consumer, Producer, SharedMemory},
    sys::{self, Mapping, XdpRingOffset},
    umem::Umem,
};
use laneway_core::{Cap, LaneError};
use laneway_linux::is_older_than;
use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    ptr::NonNull,
    sync::atomic::AtomicU32,
    thread,
    time::Duration,
};

/// What the kernel granted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Granted {
    /// Frames are not copied, as read back by `XDP_OPTIONS`.
    pub(crate) zero_copy: bool,
    /// Busy polling is preferred, as read back.
    pub(crate) busy_poll: bool,
    /// `SO_BUSY_POLL` as read back, in microseconds.
    pub(crate) busy_poll_us: i32,
    /// The busy poll budget that the kernel accepted, in packets.
    pub(crate) busy_budget: u32,
    /// Frames that one send call may carry in copy mode.
    pub(crate) tx_budget: u32,
    /// In copy mode the consumer's index of the transmit ring shows, after a call that sent a frame, what the kernel
    /// took: since Linux 6.17 (`__xsk_tx_release`). Before, it lags until the kernel runs out of what it had seen.
    pub(crate) shows_place: bool,
}

/// Frames per send call before Linux 6.17, and its lowest setting since.
const TX_BUDGET_DEFAULT: u32 = 32;

/// How often binding to a busy queue is tried again, and the pause before: the kernel lets go of a
/// closed socket's queue some time after the close, on a thread of its own.
const BUSY_TRIES: u32 = 100;
const BUSY_PAUSE: Duration = Duration::from_millis(2);

/// A bound AF_XDP socket.
pub(crate) struct Socket {
    fd: OwnedFd,
    granted: Granted,
}

impl Socket {
    /// Opens a socket on `config.queue` of `interface`, over `umem`, which `first` has registered
    /// already if there is one.
    ///
    /// # Errors
    /// [`LaneError::CapMissing`] when zero copy was asked for and the driver has none, and what the
    /// kernel answers, as a sentence.
    pub(crate) fn open(
        config: &Config,
        interface: &Interface,
        umem: &Umem,
        first: Option<&Socket>,
    ) -> Result<(Socket, Rings), LaneError> {
        let name = interface.name();
        let failed = |doing: &str, e, hint: &str| {
            LaneError::os(NAME, format!("{doing} for `{name}`"), e, hint)
        };
        let fd = sys::socket(libc::AF_XDP, libc::SOCK_RAW).map_err(|e| {
            failed("open an AF_XDP socket", e, "the kernel needs CONFIG_XDP_SOCKETS")
        })?;
        if first.is_none() {
            register(fd.as_fd(), umem)?;
        }
        let rings = map_rings(fd.as_fd(), config)
            .map_err(|e| failed("make the rings", e, "try smaller rx=, tx= or fill="))?;
        let mut granted = Granted { tx_budget: TX_BUDGET_DEFAULT, ..Granted::default() };
        set_transmit_limits(fd.as_fd(), config, &mut granted);
        if let Some(busy_poll) = config.busy_poll {
            set_busy_poll(fd.as_fd(), busy_poll, &mut granted).map_err(|e| {
                if config.allowed_missing.has(Cap::BusyPoll) {
                    return LaneError::CapMissing {
                        lane: NAME.to_owned(),
                        cap: Cap::BusyPoll,
                        needs: Some("Linux 5.11"),
                    };
                }
                failed("set up busy polling", e, "leave busy_poll= out, or allow=busy-poll")
            })?;
        }
        bind(fd.as_fd(), config, interface, first)?;
        let options: sys::XdpOptions = sys::option(fd.as_fd(), sys::SOL_XDP, sys::XDP_OPTIONS)
            .map_err(|e| failed("read back the copy mode", e, "Linux 5.3 or later is needed"))?;
        granted.zero_copy = options.flags & sys::XDP_OPTIONS_ZEROCOPY != 0;
        Ok((Socket { fd, granted }, rings))
    }

    /// What was obtained.
    pub(crate) fn granted(&self) -> Granted {
        self.granted
    }

    /// The socket's own counters, as the kernel has them now.
    pub(crate) fn statistics(&self) -> io::Result<sys::XdpStatistics> {
        sys::option(self.fd(), sys::SOL_XDP, sys::XDP_STATISTICS)
    }

    /// The descriptor.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Registers the UMEM, which pins its pages.
fn register(fd: BorrowedFd<'_>, umem: &Umem) -> Result<(), LaneError> {
    let bytes = umem.region().bytes();
    let memory = sys::XdpUmemReg {
        addr: umem.base().addr().get() as u64,
        len: bytes as u64,
        chunk_size: umem.frame_bytes() as u32,
        ..sys::XdpUmemReg::default()
    };
    sys::set_option(fd, sys::SOL_XDP, sys::XDP_UMEM_REG, &memory).map_err(|e| {
        let doing = format!("register a umem of {bytes} bytes");
        // ENOBUFS is the kernel's word for the limit on locked memory.
        let hint = match (e.raw_os_error(), sys::memlock_limit_bytes()) {
            (Some(libc::ENOBUFS), Some(limit)) => format!(
                "RLIMIT_MEMLOCK allows {limit} bytes of locked memory: raise it with `ulimit -l`, \
                 grant CAP_IPC_LOCK, or lower frames="
            ),
            _ => "lower frames=".to_owned(),
        };
        LaneError::os(NAME, doing, e, &hint)
    })
}

/// Sets the ring sizes and maps the rings.
fn map_rings(fd: BorrowedFd<'_>, config: &Config) -> io::Result<Rings> {
    let set = |ring, entries: u32| sys::set_option(fd, sys::SOL_XDP, ring, &entries);
    set(sys::XDP_UMEM_FILL_RING, config.fill_entries)?;
    set(sys::XDP_UMEM_COMPLETION_RING, config.tx_entries)?;
    set(sys::XDP_RX_RING, config.rx_entries)?;
    set(sys::XDP_TX_RING, config.tx_entries)?;
    let at: sys::XdpMmapOffsets = sys::option(fd, sys::SOL_XDP, sys::XDP_MMAP_OFFSETS)?;
    if at.rx.flags == 0 {
        // Kernels before 5.4 fill a shorter record, without the flags of need_wakeup.
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    Ok(Rings {
        fill: Producer::new(map(fd, sys::PGOFF_FILL_RING, at.fill, config.fill_entries)?),
        completion: Consumer::new(map(
            fd,
            sys::PGOFF_COMPLETION_RING,
            at.completion,
            config.tx_entries,
        )?),
        rx: Consumer::new(map(fd, sys::PGOFF_RX_RING, at.rx, config.rx_entries)?),
        tx: Producer::new(map(fd, sys::PGOFF_TX_RING, at.tx, config.tx_entries)?),
    })
}

/// A type that a ring has in its slots: valid with any bits.
trait RingSlot: Copy {}
impl RingSlot for u64 {}
impl RingSlot for sys::XdpDesc {}

fn map<T: RingSlot>(
    fd: BorrowedFd<'_>,
    page_offset: i64,
    at: XdpRingOffset,
    entries: u32,
) -> io::Result<SharedMemory<T>> {
    let bytes = at.desc as usize + entries as usize * size_of::<T>();
    let mapping = Mapping::ring(fd, bytes, page_offset)?;
    let base = mapping.base();
    let part = |offset: u64, part_bytes: usize, align: usize| -> NonNull<u8> {
        let offset = offset as usize;
        assert!(
            offset + part_bytes <= mapping.bytes() && offset.is_multiple_of(align),
            "the kernel's ring offsets lie inside the ring"
        );
        // SAFETY: inside the mapping, just checked.
        unsafe { base.add(offset) }
    };
    let index = |offset| part(offset, size_of::<AtomicU32>(), align_of::<AtomicU32>()).cast();
    let indices = [index(at.producer), index(at.consumer), index(at.flags)];
    let slots = part(at.desc, entries as usize * size_of::<T>(), align_of::<T>()).cast();
    // SAFETY: the pointers lie in the mapping, aligned (checked by `part`), and the mapping goes
    // with the ring; the kernel made it zeroed, takes any bits, and is the one other side: each
    // ring of a socket is mapped once, here.
    Ok(unsafe { SharedMemory::new(indices, slots, entries, Box::new(mapping)) })
}

/// Lets one send call carry as many frames as the ring holds, and the socket's send buffer too: in
/// copy mode each frame in flight is charged to it.
fn set_transmit_limits(fd: BorrowedFd<'_>, config: &Config, granted: &mut Granted) {
    let budget = config.tx_entries;
    if sys::set_option(fd, sys::SOL_XDP, sys::XDP_MAX_TX_SKB_BUDGET, &budget).is_ok() {
        granted.tx_budget = budget;
        // Of the same release as the option.
        granted.shows_place = true;
    }
    let bytes = (config.tx_entries as usize * config.frame_bytes).min(i32::MAX as usize / 2);
    // Without the privilege the default stays, which means shorter bursts, nothing worse.
    let _ = sys::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &(bytes as i32));
}

fn set_busy_poll(fd: BorrowedFd<'_>, want: BusyPoll, granted: &mut Granted) -> io::Result<()> {
    let set = |name, value: i32| sys::set_option(fd, libc::SOL_SOCKET, name, &value);
    set(libc::SO_PREFER_BUSY_POLL, 1)?;
    set(libc::SO_BUSY_POLL, want.time.as_micros() as i32)?;
    set(libc::SO_BUSY_POLL_BUDGET, want.budget as i32)?;
    let prefer: i32 = sys::option(fd, libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL)?;
    granted.busy_poll_us = sys::option(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL)?;
    granted.busy_poll = prefer != 0 && granted.busy_poll_us > 0;
    // The kernel has no way to read the budget back; it refuses what it does not accept.
    granted.busy_budget = want.budget;
    Ok(())
}

fn bind(
    fd: BorrowedFd<'_>,
    config: &Config,
    interface: &Interface,
    first: Option<&Socket>,
) -> Result<(), LaneError> {
    // A socket that shares a UMEM inherits the first one's flags and must not give any.
    let flags = match (first, config.copy_mode) {
        (Some(_), _) => sys::XDP_SHARED_UMEM,
        (None, CopyMode::Copy) => sys::XDP_COPY | optional_flags(config),
        (None, CopyMode::ZeroCopy) => sys::XDP_ZEROCOPY | optional_flags(config),
    };
    let to = sys::SockaddrXdp {
        family: libc::AF_XDP as u16,
        flags,
        ifindex: interface.index(),
        queue_id: config.queue,
        shared_umem_fd: first.map_or(0, |first| first.fd.as_raw_fd() as u32),
    };
    let name = interface.name();
    let mut bound = sys::bind(fd, &to);
    for _ in 0..BUSY_TRIES {
        match &bound {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => thread::sleep(BUSY_PAUSE),
            _ => break,
        }
        bound = sys::bind(fd, &to);
    }
    let missing = |cap, needs| LaneError::CapMissing { lane: NAME.to_owned(), cap, needs };
    bound.map_err(|e| match e.raw_os_error() {
        Some(libc::EOPNOTSUPP | sys::ENOTSUPP) if config.copy_mode == CopyMode::ZeroCopy => {
            missing(Cap::ZeroCopy, None)
        }
        Some(libc::EOPNOTSUPP | sys::ENOTSUPP) if config.multi_buffer => {
            missing(Cap::MultiBuffer, None)
        }
        // A flag that the kernel does not know.
        Some(libc::EINVAL) if config.multi_buffer && is_older_than(6, 6) => {
            missing(Cap::MultiBuffer, Some("Linux 6.6"))
        }
        Some(libc::EBUSY) => LaneError::Busy {
            lane: NAME.to_owned(),
            name: name.to_owned(),
            why: format!("another AF_XDP socket is bound to queue {}", config.queue),
            hint: "end that program, or choose another queue=".to_owned(),
        },
        Some(libc::ENODEV) => LaneError::no_interface(NAME, name),
        _ => LaneError::os(
            NAME,
            format!("bind to queue {} of `{name}`", config.queue),
            e,
            "the interface must be up and have this queue",
        ),
    })
}

fn optional_flags(config: &Config) -> u16 {
    let flag = |yes, flag| if yes { flag } else { 0 };
    flag(config.need_wakeup, sys::XDP_USE_NEED_WAKEUP) | flag(config.multi_buffer, sys::XDP_USE_SG)
}
