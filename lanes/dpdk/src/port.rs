//! DPDK ports: a device added, all its queues set up, started, and everything undone; and a worker's
//! part of one.
//!
//! ```text
//!   Started (one per device)            Port (one per worker and device)
//!     added, configured, running  ◀──┬──  queues 0..k   of worker 0, which also tells what only the
//!     closed when no user is left    ├──  queues k..2k  of worker 1      device as a whole counts
//! ```
//!
//! Assumes that the workers' threads stand in the network namespace that the device was started in. What
//! must always hold: a device that was added is removed, however far its set-up got, and before the
//! pool goes; a queue belongs to one worker. Receiving and sending make one call of the shim per burst.

mod start;

use crate::{
    borrowed::Borrowed,
    config::{Config, NAME},
    device::{Device, ETHERNET_BYTES, VLAN_TAG_BYTES},
    eal::Eal,
    listener::Listener,
    pool::{Pool, SharedPool},
    shim::{PortStats, QueueStats, ShimFrame, ShimQueue},
    wake::{self, KernelDrops, Sockets, Wake},
};
use laneway_core::{CapsReport, LaneError};
use laneway_linux::Interface;
use start::{
    add, ask_info, check_queues, choose_mtu, find_interface, find_wake, make_promiscuous, report,
    start,
};
use std::{ffi::CString, ops::Range, sync::Arc};

/// Frames up to this length pass every MTU in use, so that none needs to be asked for.
const SHORT_FRAME_BYTES: u32 = 256;
/// The frame check sequence, which drivers count.
const CHECK_BYTES: usize = 4;

/// A device that is removed when dropped.
struct Added {
    eal: &'static Eal,
    bus: CString,
    name: CString,
    port: u16,
    /// Sockets that the driver forgets to close.
    left_open: Vec<u64>,
    /// Where it listens, if it is a net_memif server.
    listener: Option<Listener>,
    /// Made so for this port, on an interface that may not be ours: it ends with the port.
    is_promiscuous: bool,
}

impl Drop for Added {
    fn drop(&mut self) {
        let setup = self.eal.setup();
        if self.is_promiscuous {
            // SAFETY: the port of a device that was added and is not closed yet.
            unsafe { (setup.shim().port_promiscuous)(self.port, 0) };
        }
        // SAFETY: the port of a device that was added and is not closed yet.
        unsafe { (setup.shim().port_close)(self.port) };
        // SAFETY: two terminated strings.
        unsafe { (setup.shim().device_remove)(self.bus.as_ptr(), self.name.as_ptr()) };
        // Under the lock: another port may be about to listen on the same name.
        self.listener = None;
        wake::close_left_open(&self.left_open);
    }
}

/// A started device with all its queues, shared by the workers that have them.
pub(crate) struct Started {
    // Dropped first: a duplicate would keep the driver's socket open.
    wake: Wake,
    device: Added,
    name: String,
    rx_queues: u16,
    has_checksums: bool,
    gathers: bool,
    mtu_bytes: u32,
    /// Received frames of so many bytes or more were cut by the kernel; 0: none are.
    cut_at: u32,
    tx_dropped_before: Option<u64>,
    caps: CapsReport,
    // Dropped last: the device has mbufs of it, and what it changed is undone by then.
    _pool: Arc<SharedPool>,
    _borrowed: Option<Arc<Borrowed>>,
}

/// One worker's queues of a started device.
pub(crate) struct Port {
    // Dropped first: a duplicate would keep the driver's socket open.
    pub(crate) wake: Wake,
    eal: &'static Eal,
    /// The interface that the port stands for, if there is one.
    pub(crate) interface: Option<Interface>,
    inbound: ShimQueue,
    outbound: ShimQueue,
    rx_queues: Range<u16>,
    /// It tells what only the device as a whole counts.
    is_first: bool,
    /// Frames that were received and not yet handed to the app.
    arrived: Box<[ShimFrame]>,
    arrived_count: usize,
    /// Its interface is gone, and the user of the lane knows: its driver is called no more.
    is_given_up: bool,
    /// Frames to send at the next flush.
    outbox: Vec<ShimFrame>,
    frame_bytes_max: u32,
    /// What the driver's buffers were made for.
    mtu_opened: u32,
    transmit_errors: TransmitErrors,
    loses_without_mbuf: bool,
    follows_mtu: bool,
    /// The MTU was read since the last flush.
    knows_mtu: bool,
    pub(crate) caps: CapsReport,
    started: Arc<Started>,
}

/// What a driver's transmit errors are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TransmitErrors {
    /// Frames that the caller still has, and counts itself.
    OurOwn,
    /// Frames that the driver took and lost, counted for the device.
    OfDevice,
    /// As above, and each queue's sent frames are counted apart: what it took beyond them is lost.
    OfQueue,
}

/// What a port lost, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Losses {
    pub(crate) queue_full: u64,
    pub(crate) no_frame: u64,
    pub(crate) rx_error: u64,
    pub(crate) too_long: u64,
    pub(crate) bad_checksum: u64,
    /// Taken from us and not sent, with the bytes that were sent.
    pub(crate) transmit: Option<(u64, u64)>,
    /// Received frames that were copied; no loss.
    pub(crate) copies: u64,
}

impl Started {
    /// DPDK's number of the device.
    pub(crate) fn number(&self) -> u16 {
        self.device.port
    }

    /// Adds, configures and starts port `index` on `name`.
    ///
    /// # Errors
    /// A missing or refused interface, driver or device, or one that cannot do what was asked for.
    pub(crate) fn open(
        eal: &'static Eal,
        config: &Config,
        pool: &Arc<SharedPool>,
        borrowed: Option<&Arc<Borrowed>>,
        index: usize,
        name: &str,
        force: bool,
    ) -> Result<Started, LaneError> {
        let device = &config.device;
        eal.check_driver(device)?;
        let mut interface = find_interface(device, name, force)?;
        let mtu = choose_mtu(config, interface.as_ref())?;
        let before = Sockets::now();
        let mut added = add(eal, config, index, name, mtu)?;
        let info = ask_info(eal, &added, name)?;
        check_queues(device, name, config, &info)?;
        let conf = start(eal, config, pool, &added, &info, name, mtu).inspect_err(|_| {
            // Queues that were bound before another was refused keep their sockets, and the next try would find them
            // in use.
            if let Device::AfXdp { .. } = device {
                added.left_open = wake::xdp_sockets_since(&before);
            }
        })?;
        let is_promiscuous = make_promiscuous(config, &mut added, interface.as_ref(), name)?;
        if let (Some(borrowed), Some(interface)) = (borrowed, &interface) {
            let now = interface.facts().map_err(|e| {
                LaneError::os(NAME, format!("look at interface `{name}`"), e, "see `ip link`")
            })?;
            borrowed.note(&interface.found(), &now, added.is_promiscuous)?;
        }
        if matches!(device, Device::Tap) {
            interface = Some(Interface::find(NAME, name)?);
        }
        let wake = find_wake(eal, config, &added, interface.as_ref(), &before);
        added.left_open = wake.left_open();
        let mut caps = report(eal, config, pool, &conf, &info, &wake, name, &added);
        caps.fact("promiscuous", if is_promiscuous { "on" } else { "off" });
        caps.admit(NAME, |_| None)?;
        Ok(Started {
            wake,
            name: name.to_owned(),
            rx_queues: conf.rx_queues,
            has_checksums: conf.checksums != 0,
            gathers: info.tx_segments != 0 && device.sends_pieces(),
            mtu_bytes: u32::from(conf.mtu),
            cut_at: device.cut_at(config, mtu),
            tx_dropped_before: match (device, &interface) {
                (Device::Tap, Some(tap)) => Some(tx_dropped(tap)),
                _ => None,
            },
            caps,
            device: added,
            _pool: pool.clone(),
            _borrowed: borrowed.cloned(),
        })
    }
}

impl Port {
    /// The part of worker `worker`, by its own pool's view.
    ///
    /// # Errors
    /// When the interface is gone by now.
    pub(crate) fn of_worker(
        started: &Arc<Started>,
        config: &Config,
        pool: &Pool,
        worker: usize,
    ) -> Result<Port, LaneError> {
        let device = &config.device;
        let share = started.rx_queues / config.workers as u16;
        let first = worker as u16 * share;
        let rx_queues = first..first + share;
        // Its own netlink socket: two threads on one would take each other's answers.
        let interface = match device.needs_interface(&started.name) || *device == Device::Tap {
            true => Some(Interface::find(NAME, &started.name)?),
            false => None,
        };
        let mut caps = started.caps.clone();
        caps.queue = Some(first.into());
        caps.fact("queue", first);
        caps.fact("queues", share);
        let queue = |queue| ShimQueue {
            pool: pool.handle(),
            base: pool.layout().base,
            port: started.device.port,
            queue,
            checksums: u32::from(started.has_checksums),
            cut_at: started.cut_at,
            too_long: 0,
            no_mbuf: 0,
            copies: 0,
            bad_checksum: 0,
        };
        let is_alone = config.workers == 1;
        Ok(Port {
            wake: started.wake.of_queues(&rx_queues),
            eal: started.device.eal,
            interface,
            inbound: queue(first),
            // Where both are counted in pairs, the first of its own; else the worker's only one.
            outbound: queue(if device.pairs_queues() { first } else { worker as u16 }),
            rx_queues,
            is_first: worker == 0,
            arrived: vec![ShimFrame::default(); config.burst_frames].into_boxed_slice(),
            arrived_count: 0,
            is_given_up: false,
            // One settle adds no more than one burst.
            outbox: Vec::with_capacity(config.burst_frames),
            frame_bytes_max: started.mtu_bytes + ETHERNET_BYTES as u32,
            mtu_opened: started.mtu_bytes,
            transmit_errors: match device.loses_transmit_errors() {
                false => TransmitErrors::OurOwn,
                true if device.counts_queues() && !is_alone => TransmitErrors::OfQueue,
                true => TransmitErrors::OfDevice,
            },
            loses_without_mbuf: device.loses_without_mbuf(),
            // The kernel refuses what is longer, and net_af_packet then loses count of the others.
            follows_mtu: matches!(device, Device::AfPacket),
            knows_mtu: false,
            caps,
            started: started.clone(),
        })
    }

    /// Its name, for messages.
    pub(crate) fn name(&self) -> &str {
        &self.started.name
    }

    /// True when the device says that its link is up.
    pub(crate) fn is_linked(&self) -> bool {
        // SAFETY: a started port.
        unsafe { (self.eal.shim.port_link)(self.started.device.port) == 1 }
    }

    /// Fetches what is there, unless something fetched earlier is still here. True when there is
    /// something now.
    #[inline]
    pub(crate) fn fetch(&mut self) -> bool {
        if self.arrived_count > 0 {
            return true;
        }
        if self.is_given_up {
            return false;
        }
        // The first queue that has something; the next fetch begins behind it.
        for _ in self.rx_queues.clone() {
            let room = self.arrived.len() as u16;
            // SAFETY: a started port's queue on its thread, and room for `room` frames.
            let got = unsafe {
                (self.eal.shim.receive)(&mut self.inbound, self.arrived.as_mut_ptr(), room)
            };
            self.inbound.queue += 1;
            if self.inbound.queue == self.rx_queues.end {
                self.inbound.queue = self.rx_queues.start;
            }
            if got > 0 {
                self.arrived_count = usize::from(got);
                return true;
            }
        }
        false
    }

    /// Calls its driver no more; returns how many descriptors it has to poll, which wake no worker any more. What was
    /// fetched is still handed over.
    pub(crate) fn give_up(&mut self) -> usize {
        self.is_given_up = true;
        self.wake.descriptors().len()
    }

    /// True when its interface is gone, and the user of the lane knows.
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up
    }

    /// True when its interface is there and up; a device that is none is always there.
    pub(crate) fn is_there(&self) -> bool {
        self.interface.as_ref().is_none_or(Interface::is_up)
    }

    /// Hands over what was fetched; it is the caller's now.
    #[inline]
    pub(crate) fn take(&mut self) -> &[ShimFrame] {
        let count = std::mem::take(&mut self.arrived_count);
        &self.arrived[..count]
    }

    /// See [`DpdkLane::hand_written`](crate::DpdkLane::hand_written).
    #[inline]
    pub(crate) fn read_and_free(&mut self, sum: &mut u64) -> usize {
        let room = self.arrived.len() as u16;
        // SAFETY: a started port's queue on its thread, and room for a sum.
        usize::from(unsafe { (self.eal.shim.read_and_free)(&mut self.inbound, room, sum) })
    }

    /// Takes up to `frames` empty mbufs into `to`; returns how many.
    pub(crate) fn lend(&mut self, to: &mut [ShimFrame]) -> usize {
        // SAFETY: room for as many frames as are asked for, at most a burst.
        let got =
            unsafe { (self.eal.shim.lend)(&mut self.outbound, to.as_mut_ptr(), to.len() as u16) };
        usize::from(got)
    }

    /// Gives mbufs back that are the caller's.
    #[inline]
    pub(crate) fn free(&mut self, numbers: &[u32]) {
        if numbers.is_empty() {
            return;
        }
        // SAFETY: numbers of mbufs of this pool that the shim gave and nothing else has.
        unsafe {
            (self.eal.shim.free)(&mut self.outbound, numbers.as_ptr(), numbers.len() as u32);
        }
    }

    /// True when a frame of `bytes` bytes may leave; `is_tagged` tells whether it has a VLAN tag.
    #[inline]
    pub(crate) fn takes(&mut self, bytes: u32, is_tagged: impl FnOnce() -> bool) -> bool {
        if self.follows_mtu && !self.knows_mtu && bytes > SHORT_FRAME_BYTES {
            self.read_mtu();
        }
        bytes <= self.frame_bytes_max
            || (bytes <= self.frame_bytes_max + VLAN_TAG_BYTES as u32 && is_tagged())
    }

    /// Takes note of the interface's MTU, once per flush.
    fn read_mtu(&mut self) {
        self.knows_mtu = true;
        if let Some(Ok(mtu)) = self.interface.as_ref().map(Interface::mtu_bytes) {
            self.frame_bytes_max = (mtu as u32).min(self.mtu_opened) + ETHERNET_BYTES as u32;
        }
    }

    /// True on one end of a virtual cable: what arrives is as another program of this machine left it.
    pub(crate) fn is_on_veth(&self) -> bool {
        self.interface.as_ref().is_some_and(|interface| interface.found().is_veth)
    }

    /// True when it sends frames that are put together of a head and a part of another.
    pub(crate) fn gathers(&self) -> bool {
        self.started.gathers
    }

    /// True when nothing can be posted before a flush.
    pub(crate) fn is_full(&self) -> bool {
        self.outbox.len() == self.outbox.capacity()
    }

    /// Puts a frame together of a head and a part of a frame, to which it refers until it is sent; nothing when
    /// mbufs are short.
    pub(crate) fn gather(&mut self, head: &[u8], part: &ShimFrame) -> Option<ShimFrame> {
        let mut gathered = ShimFrame::default();
        let bytes = u16::try_from(head.len()).ok()?;
        // SAFETY: a head to read, a part of a frame of this pool that the caller has, and room for a description.
        let is_there = unsafe {
            (self.eal.shim.gather)(&mut self.outbound, head.as_ptr(), bytes, part, &mut gathered)
        };
        is_there.then_some(gathered)
    }

    /// Adds a frame to what the next flush sends.
    #[inline]
    pub(crate) fn post(&mut self, frame: ShimFrame) {
        self.outbox.push(frame);
    }

    /// A copy of a frame in an mbuf of its own.
    pub(crate) fn copy(&mut self, frame: &ShimFrame) -> Option<ShimFrame> {
        let mut copy = ShimFrame::default();
        // SAFETY: a frame of this pool that the caller has, and room for a description.
        unsafe { (self.eal.shim.copy)(&mut self.outbound, frame, &mut copy) }.then_some(copy)
    }

    /// Sends what was posted; returns frames and bytes sent, and frames refused.
    #[inline]
    pub(crate) fn flush(&mut self) -> (u64, u64, u64) {
        if self.outbox.is_empty() {
            return (0, 0, 0);
        }
        self.knows_mtu = false;
        let count = self.outbox.len();
        // SAFETY: frames of this pool that nothing else owns (or shared with further ports by the
        // references they carry); the shim takes all of them.
        let sent = unsafe {
            (self.eal.shim.transmit)(&mut self.outbound, self.outbox.as_ptr(), count as u32)
        } as usize;
        let bytes = self.outbox[..sent].iter().map(|frame| u64::from(frame.bytes)).sum();
        self.outbox.clear();
        (sent as u64, bytes, (count - sent) as u64)
    }

    /// Switches the device's receive interrupts, where it has some to switch.
    pub(crate) fn set_interrupts(&self, on: bool) {
        if let (Wake::Queues(_), false) = (&self.wake, self.is_given_up) {
            for queue in self.rx_queues.clone() {
                let port = self.started.device.port;
                // SAFETY: a queue of a started port. Drivers without the call have nothing to switch.
                unsafe { (self.eal.shim.rx_interrupt)(port, queue, i32::from(on)) };
            }
        }
    }

    /// What the device counted for this worker's queues, by queue; nothing where its driver counts for
    /// the whole device only.
    pub(crate) fn queue_counts(&self) -> Vec<QueueCounts> {
        let counts = self.rx_queues.clone().map(|queue| {
            let stats = self.queue_stats(queue)?;
            Some(QueueCounts { queue, rx_frames: stats.rx_frames, tx_frames: stats.tx_frames })
        });
        counts.collect::<Option<_>>().unwrap_or_default()
    }

    fn queue_stats(&self, queue: u16) -> Option<QueueStats> {
        let mut stats = QueueStats::default();
        let port = self.started.device.port;
        // SAFETY: a started port and room for the record; the shim looks at the queue's number.
        let code = unsafe { (self.eal.shim.queue_stats)(port, queue, &mut stats) };
        (code == 0).then_some(stats)
    }

    /// What the device, the kernel in front of it, and the shim counted. `taken` is how many frames
    /// this worker's queue was given to send and took.
    pub(crate) fn losses(&mut self, taken: u64) -> Losses {
        let mut stats = PortStats::default();
        if self.is_first {
            // SAFETY: a started port and room for the record; untouched when the driver counts nothing.
            unsafe { (self.eal.shim.port_stats)(self.started.device.port, &mut stats) };
        }
        let kernel: KernelDrops = self.wake.kernel_drops();
        let tap = self.started.tx_dropped_before.filter(|_| self.is_first).map_or(0, |before| {
            self.interface.as_ref().map_or(0, |tap| tx_dropped(tap).saturating_sub(before))
        });
        // What net_af_xdp counts as missed is among what its sockets say in more detail.
        let missed = if matches!(self.wake, Wake::Xdp(_)) { 0 } else { stats.missed };
        Losses {
            queue_full: missed + kernel.queue_full + tap,
            no_frame: kernel.no_frame
                + self.inbound.no_mbuf
                + if self.loses_without_mbuf { stats.no_mbuf } else { 0 },
            rx_error: stats.rx_errors,
            too_long: self.inbound.too_long + kernel.too_long,
            bad_checksum: self.inbound.bad_checksum,
            transmit: match self.transmit_errors {
                TransmitErrors::OurOwn => None,
                TransmitErrors::OfDevice => {
                    (stats.tx_errors > 0).then_some((stats.tx_errors, stats.tx_bytes))
                }
                TransmitErrors::OfQueue => self.queue_stats(self.outbound.queue).and_then(|own| {
                    let lost = taken.saturating_sub(own.tx_frames);
                    (lost > 0).then_some((lost, own.tx_bytes))
                }),
            },
            copies: self.inbound.copies,
        }
    }
}

/// What a device counted for one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueCounts {
    /// The queue, counted over all workers.
    pub queue: u16,
    /// Frames that its receive queue gave.
    pub rx_frames: u64,
    /// Frames that the transmit queue of this number sent.
    pub tx_frames: u64,
}

/// Frames that the kernel could not hand to a tap because no program fetched them in time; 0 once it is gone.
fn tx_dropped(tap: &Interface) -> u64 {
    tap.facts().map_or(0, |facts| facts.tx_dropped)
}
