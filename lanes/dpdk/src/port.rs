//! DPDK ports: a device added, all its queues set up, started, and everything undone; and a worker's
//! part of one.
//!
//! ```text
//!   Started (one per device)            Port (one per worker and device)
//!     added, configured, running  ◀──┬──  queues 0..k   of worker 0, which also tells what only the
//!     closed when nobody is left     ├──  queues k..2k  of worker 1      device as a whole counts
//! ```
//!
//! Assumes that the workers' threads stand in the network namespace that the device was started in. What
//! must always hold: a device that was added is removed, however far its set-up came, and before the
//! pool goes; a queue belongs to one worker. Receiving and sending make one call of the shim per burst.

use crate::{
    borrowed::Borrowed,
    config::{Config, NAME},
    device::{Device, ETHERNET_BYTES, VLAN_TAG_BYTES},
    eal::{Eal, Setup, is_privileged},
    listener::Listener,
    pool::{Pool, SharedPool},
    shim::{PortConf, PortInfo, PortStats, QueueStats, ShimFrame, ShimQueue},
    wake::{self, KernelDrops, Sockets, Wake},
};
use laneway_core::{Cap, CapSet, CapsReport, LaneError};
use laneway_linux::{Interface, is_name, refuse_default_route};
use std::{ffi::CString, fs, ops::Range, path::Path, sync::Arc};

/// Frames up to this length pass every MTU in use, so that none needs to be asked for.
const SHORT_FRAME_BYTES: u32 = 256;
/// The frame check sequence, which drivers count.
const CHECK_BYTES: usize = 4;
/// Where the kernel lists PCI devices by address.
const PCI_DEVICES: &str = "/sys/bus/pci/devices";
/// The MTU of devices that have none of their own.
const MTU_DEFAULT: usize = 1500;

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
    /// Frames that were received and not yet lent to the app.
    arrived: Box<[ShimFrame]>,
    arrived_count: usize,
    /// Its interface is gone, and whoever uses the lane knows: its driver is called no more.
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
        let conf = start(eal, config, pool, &added, &info, name, mtu)?;
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
            too_long: 0,
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

    /// Calls its driver no more; gives how many descriptors it has to poll, which wake nobody any more. What was fetched is
    /// still handed over.
    pub(crate) fn give_up(&mut self) -> usize {
        self.is_given_up = true;
        self.wake.descriptors().len()
    }

    /// True when its interface is gone, and whoever uses the lane knows.
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
        // SAFETY: numbers of mbufs of this pool that the shim gave and nobody else has.
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
        // SAFETY: frames of this pool that are nobody else's (or shared with further ports by the
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
            no_frame: kernel.no_frame + if self.loses_without_mbuf { stats.no_mbuf } else { 0 },
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

/// The interface that the port borrows, checked.
fn find_interface(
    device: &Device,
    name: &str,
    force: bool,
) -> Result<Option<Interface>, LaneError> {
    let refused = |why: String, hint: &str| LaneError::Refused {
        lane: NAME.to_owned(),
        name: name.to_owned(),
        why,
        hint: hint.to_owned(),
    };
    if let Device::Pci(_) = device {
        if !Path::new(PCI_DEVICES).join(name).exists() {
            return Err(LaneError::NotFound {
                lane: NAME.to_owned(),
                what: "PCI device",
                name: name.to_owned(),
                hint: "`lspci -D` lists those of this machine".to_owned(),
            });
        }
        return match kernel_interface(name) {
            Some((driver, interface)) if !force && !is_bifurcated(&driver) => Err(refused(
                format!("the kernel's driver {driver} uses it as `{interface}`"),
                &format!(
                    "if nobody needs that interface: `dpdk-devbind.py -b vfio-pci {name}`, or \
                     insist with --force"
                ),
            )),
            _ => Ok(None),
        };
    }
    if matches!(device, Device::Tap) {
        return match Interface::find(NAME, name) {
            Ok(_) => Err(refused(
                "net_tap creates the interface, and one of this name exists".to_owned(),
                &format!("choose another name, or `ip link del {name}`"),
            )),
            Err(LaneError::NotFound { .. }) if is_name(name) => Ok(None),
            Err(e) => Err(e),
        };
    }
    if !device.needs_interface(name) {
        return Ok(None);
    }
    let interface = Interface::find(NAME, name)?;
    if !force {
        let hint = "use another interface, or insist with --force";
        refuse_default_route(NAME, name, "its traffic would go to the app", hint)?;
    }
    if !interface.is_up() {
        return Err(refused(
            "the interface is down".to_owned(),
            &format!("try `ip link set dev {name} up`"),
        ));
    }
    Ok(Some(interface))
}

/// Frames that the kernel could not hand to a tap because nobody fetched them in time; 0 once it is gone.
fn tx_dropped(tap: &Interface) -> u64 {
    tap.facts().map_or(0, |facts| facts.tx_dropped)
}

/// Driver and interface by which the kernel uses a PCI device.
fn kernel_interface(address: &str) -> Option<(String, String)> {
    let folder = Path::new(PCI_DEVICES).join(address);
    let driver = fs::read_link(folder.join("driver")).ok()?;
    let driver = driver.file_name()?.to_string_lossy().into_owned();
    // A virtio device has its interface one level below.
    let below = fs::read_dir(&folder).ok()?.flatten().map(|entry| entry.path().join("net"));
    let mut places = [folder.join("net")].into_iter().chain(below);
    let interface = places.find_map(|place| fs::read_dir(place).ok()?.flatten().next())?;
    Some((driver, interface.file_name().to_string_lossy().into_owned()))
}

/// Drivers that DPDK works beside, not instead of.
fn is_bifurcated(driver: &str) -> bool {
    matches!(driver, "mlx4_core" | "mlx5_core" | "mana")
}

/// The MTU that the port is to have.
fn choose_mtu(config: &Config, interface: Option<&Interface>) -> Result<usize, LaneError> {
    let mtu = match (config.mtu, interface) {
        (Some(mtu), _) => usize::from(mtu),
        (None, None) => MTU_DEFAULT,
        (None, Some(interface)) => interface.mtu_bytes().map_err(|e| {
            let doing = format!("read the MTU of `{}`", interface.name());
            LaneError::os(NAME, doing, e, "see `ip link`")
        })?,
    };
    let need = config.device.frame_bytes_needed(mtu);
    if need > config.frame_bytes {
        return Err(LaneError::Refused {
            lane: NAME.to_owned(),
            name: format!("frame={}", config.frame_bytes),
            why: format!("with an MTU of {mtu} bytes {} needs {need}", config.device.name()),
            hint: format!("raise frame= to {}, or lower the MTU", need.next_power_of_two()),
        });
    }
    Ok(mtu)
}

fn add(
    eal: &'static Eal,
    config: &Config,
    index: usize,
    name: &str,
    mtu: usize,
) -> Result<Added, LaneError> {
    let device = &config.device;
    let text = device.arguments(config, index, name, mtu);
    let own = match device.driver() {
        Some(driver) => format!("{}{}", driver.name(), eal.serial()),
        None => name.to_owned(),
    };
    let terminated = |text: &str| {
        CString::new(text).map_err(|_| LaneError::Refused {
            lane: NAME.to_owned(),
            name: text.replace('\0', "?"),
            why: "a name with a zero byte is none".to_owned(),
            hint: "leave the zero byte out".to_owned(),
        })
    };
    let (bus, own, arguments) = (terminated(device.bus())?, terminated(&own)?, terminated(&text)?);
    let mut port = 0;
    let setup = eal.setup();
    // SAFETY: three terminated strings and room for a number.
    let code = unsafe {
        (setup.shim().device_add)(bus.as_ptr(), own.as_ptr(), arguments.as_ptr(), &mut port)
    };
    if code < 0 {
        let doing = format!("add {} with `{text}` for `{name}`", device.name());
        return Err(failed(&setup, device, doing, code));
    }
    let listener = match device {
        Device::Memif { server: true, socket, .. } => Some(Listener::new(socket)),
        _ => None,
    };
    Ok(Added { eal, bus, name: own, port, left_open: Vec::new(), listener, is_promiscuous: false })
}

/// The error for a device that cannot be added or started. Drivers do not tell a missing privilege
/// from other reasons, so this does.
fn failed(setup: &Setup<'_>, device: &Device, doing: String, code: i32) -> LaneError {
    match (device.needs_privilege() && !is_privileged(), setup.failed(doing, code, hint(device))) {
        (true, LaneError::Os { lane, doing, hint, .. }) => LaneError::NotPermitted {
            lane,
            doing,
            hint: format!("run as root, or grant CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF; {hint}"),
        },
        (_, error) => error,
    }
}

/// What to try when a device cannot be added or started.
fn hint(device: &Device) -> &'static str {
    match device {
        Device::AfPacket => "the interface must be up; see rxd= for smaller rings",
        Device::AfXdp { .. } => {
            "the queues must exist (`ethtool -l`; a driver that does not count combined channels, as \
             veth, has one for DPDK: rxq=1), no other XDP program or AF_XDP socket may have them, and \
             the pool must be lockable (`ulimit -l`)"
        }
        Device::Tap => "the kernel needs /dev/net/tun; a name is at most 15 bytes",
        Device::Memif { .. } => "server and client must agree on socket= and id=",
        Device::Pcap(_) => "the file must be a capture that libpcap reads, or the interface be up",
        Device::Ring | Device::Null => "see args=",
        Device::Pci(_) => {
            "the device must be bound to vfio-pci or uio_pci_generic (`dpdk-devbind.py --status`) \
             and be named by the first dpdk lane of the process"
        }
    }
}

fn ask_info(eal: &Eal, added: &Added, name: &str) -> Result<PortInfo, LaneError> {
    let mut info = PortInfo {
        rx_queues_max: 0,
        tx_queues_max: 0,
        frame_bytes_max: 0,
        mtu_max: 0,
        rx_checksums: 0,
        tx_checksums: 0,
        tx_segments: 0,
        rss: 0,
        driver: [0; 64],
    };
    let setup = eal.setup();
    // SAFETY: a port that was added and room for the record.
    match unsafe { (setup.shim().port_info)(added.port, &mut info) } {
        0 => Ok(info),
        code => Err(setup.failed(format!("ask what `{name}` can do"), code, "see the driver")),
    }
}

/// Refuses more queues than the device has.
fn check_queues(
    device: &Device,
    name: &str,
    config: &Config,
    info: &PortInfo,
) -> Result<(), LaneError> {
    for (knob, asked, max) in [
        ("rxq", config.rx_queues, info.rx_queues_max),
        ("txq", config.tx_queues, info.tx_queues_max),
    ] {
        if u32::from(asked) > max {
            return Err(LaneError::Refused {
                lane: NAME.to_owned(),
                name: name.to_owned(),
                why: format!(
                    "{} has {max} queues there, {knob}={asked} asks for more",
                    device.name()
                ),
                hint: format!("use {knob}={max} or fewer"),
            });
        }
    }
    Ok(())
}

fn start(
    eal: &Eal,
    config: &Config,
    pool: &SharedPool,
    added: &Added,
    info: &PortInfo,
    name: &str,
    mtu: usize,
) -> Result<PortConf, LaneError> {
    let device = &config.device;
    let has_checksums = info.rx_checksums != 0 && info.tx_checksums != 0;
    let wants_interrupts = match device {
        Device::Tap => config.rx_interrupt != Some(false),
        Device::Pci(_) => config.rx_interrupt == Some(true),
        _ => false,
    };
    // Drivers that set the MTU of an interface that is not theirs are told nothing.
    let device_mtu = if device.borrows_interface() { 0 } else { mtu };
    // Of the two bounds that drivers give, many leave one at "anything".
    let by_frame = (info.frame_bytes_max as usize).saturating_sub(ETHERNET_BYTES + CHECK_BYTES);
    let mtu_max = by_frame.min(if info.mtu_max == 0 { usize::MAX } else { info.mtu_max as usize });
    if device_mtu > mtu_max {
        return Err(LaneError::Refused {
            lane: NAME.to_owned(),
            name: name.to_owned(),
            why: format!("its MTU is at most {mtu_max}, mtu={mtu} asks for more"),
            hint: format!("use mtu={mtu_max} or less"),
        });
    }
    let mut conf = PortConf {
        pool: pool.handle(),
        rx_queues: config.rx_queues,
        tx_queues: config.tx_queues,
        rx_descriptors: config.rx_descriptors.unwrap_or(0),
        tx_descriptors: config.tx_descriptors.unwrap_or(0),
        mtu: device_mtu as u16,
        checksums: u8::from(config.checksums && has_checksums),
        rx_interrupts: u8::from(wants_interrupts),
        // Drivers of virtual devices know the hash only as an action of flow rules.
        rss: u64::from(device.is_hardware() && config.rx_queues > 1) * RSS_FIELDS,
    };
    let setup = eal.setup();
    // SAFETY: a port that was added and is not started, a pool that outlives it, one record.
    let code = unsafe { (setup.shim().port_start)(added.port, &mut conf) };
    if code < 0 {
        return Err(failed(&setup, device, format!("start {} on `{name}`", device.name()), code));
    }
    if matches!(device, Device::Tap) && mtu != MTU_DEFAULT {
        // Configuring tells only DPDK; this tells the interface.
        // SAFETY: a started port.
        let code = unsafe { (setup.shim().port_set_mtu)(added.port, mtu as u16) };
        if code < 0 {
            return Err(setup.failed(format!("set the MTU of `{name}`"), code, "lower mtu="));
        }
    }
    conf.mtu = mtu as u16;
    if device.is_hardware() && conf.rx_queues > 1 && conf.rss == 0 {
        return Err(LaneError::Refused {
            lane: NAME.to_owned(),
            name: name.to_owned(),
            why: format!(
                "its driver spreads nothing over queues (no RSS), and rxq={} asks for it",
                conf.rx_queues
            ),
            hint: "use rxq=1, and one worker".to_owned(),
        });
    }
    Ok(conf)
}

/// Every field of RTE_ETH_RSS that the shim asks for; it leaves out what the device has not.
const RSS_FIELDS: u64 = u64::MAX;

/// Leaves promiscuous mode as it is.
const ASK_ONLY: i32 = -1;

/// True when the device is in promiscuous mode, asked for or by its nature.
///
/// # Errors
/// When it was asked for and the driver has none.
fn make_promiscuous(
    config: &Config,
    added: &mut Added,
    interface: Option<&Interface>,
    name: &str,
) -> Result<bool, LaneError> {
    // DPDK has ended it with the start; who had set it wants it back, and finds it so when we go.
    let was = interface.is_some_and(|i| i.found().flags & libc::IFF_PROMISC as u32 != 0);
    let is_wanted = config.promiscuous || was;
    let setup = added.eal.setup();
    // SAFETY: a started port.
    let code = unsafe {
        (setup.shim().port_promiscuous)(added.port, if is_wanted { 1 } else { ASK_ONLY })
    };
    if !is_wanted {
        return Ok(code == 1);
    }
    if code == 1 {
        added.is_promiscuous = !was;
        return Ok(true);
    }
    let device = &config.device;
    Err(LaneError::Refused {
        lane: NAME.to_owned(),
        name: format!("promisc on `{name}`"),
        why: format!("{} has no promiscuous mode", device.name()),
        hint: match device.needs_interface(name) {
            true => format!("leave promisc out, and try `ip link set dev {name} promisc on`"),
            false => "leave promisc out: it hands over every frame".to_owned(),
        },
    })
}

fn find_wake(
    eal: &Eal,
    config: &Config,
    added: &Added,
    interface: Option<&Interface>,
    before: &Sockets,
) -> Wake {
    let queues = usize::from(config.rx_queues);
    let setup = eal.setup();
    let queue_descriptors = || {
        let ask = |queue| {
            // SAFETY: a queue of a started port.
            let fd = unsafe { (setup.shim().rx_interrupt_fd)(added.port, queue) };
            (fd >= 0).then_some(fd)
        };
        (0..config.rx_queues).map(ask).collect::<Option<Vec<_>>>().map_or(Wake::Sleep, Wake::Queues)
    };
    match (&config.device, interface) {
        // The sockets are wanted for their statistics, whatever the worker waits for.
        (Device::AfPacket, Some(interface)) => Wake::packet(before, interface.index(), queues),
        (Device::AfXdp { .. }, _) => Wake::xdp(before, queues),
        (Device::Tap, _) if config.rx_interrupt != Some(false) => queue_descriptors(),
        (Device::Pci(_), _) if config.rx_interrupt == Some(true) => queue_descriptors(),
        _ => Wake::Sleep,
    }
}

#[expect(clippy::too_many_arguments, reason = "everything that was asked for and granted is told")]
fn report(
    eal: &Eal,
    config: &Config,
    pool: &SharedPool,
    conf: &PortConf,
    info: &PortInfo,
    wake: &Wake,
    name: &str,
    added: &Added,
) -> CapsReport {
    let device = &config.device;
    let wakes = wake.is_pollable() && config.rx_interrupt != Some(false);
    let mut caps = CapsReport {
        requested: config.requested(),
        obtained: CapSet::default()
            .with_if(Cap::Transmit, device.transmits(name))
            .with(Cap::SharedMemory)
            .with_if(Cap::HugePages, eal.is_huge())
            .with_if(Cap::RxInterrupt, wakes)
            .with_if(Cap::ChecksumOffload, conf.checksums != 0),
        allowed_missing: config.allowed_missing,
        by_redirect: matches!(device, Device::AfXdp { .. }),
        // Its driver asks for a fan-out with PACKET_FANOUT_FLAG_DEFRAG.
        joins_fragments: matches!(device, Device::AfPacket),
        ..CapsReport::default()
    };
    let driver = info.driver.split(|&b| b == 0).next().unwrap_or(&[]);
    caps.fact("driver", String::from_utf8_lossy(driver));
    caps.fact("dpdk", eal.version());
    caps.fact("interface", name);
    caps.fact("device", added.name.to_string_lossy());
    caps.fact("memory", if eal.is_huge() { "hugepages" } else { "no-huge" });
    caps.fact("mempool_mbufs", pool.mbufs());
    caps.fact("mempool_cache", config.cache_mbufs);
    caps.fact("mempool_bytes", pool.bytes());
    caps.fact("frame_bytes", config.frame_bytes);
    caps.fact("burst_frames", config.burst_frames);
    caps.fact("rx_queues", conf.rx_queues);
    caps.fact("rx_queues_asked", config.rx_queues);
    caps.fact("rx_queues_max", info.rx_queues_max);
    caps.fact("workers", config.workers);
    if conf.rx_queues > 1 {
        caps.fact("steering", device.steering());
    }
    if device.is_hardware() && conf.rx_queues > 1 {
        caps.fact("rss_fields", format!("{:#x}", conf.rss));
        caps.fact("rss_key", if info.rss & 1 == 0 { "the driver's" } else { "symmetric" });
    }
    caps.fact("tx_queues", conf.tx_queues);
    caps.fact("rx_descriptors", conf.rx_descriptors);
    caps.fact("tx_descriptors", conf.tx_descriptors);
    caps.fact("mtu_bytes", conf.mtu);
    caps.fact("wake", if wakes { wake.name() } else { Wake::Sleep.name() });
    caps.fact("pass", device.passing());
    let asked = if config.checksums { "checksums" } else { "none" };
    let has = if conf.checksums != 0 { "checksums" } else { "none" };
    caps.fact("offloads_asked", asked);
    caps.fact("offloads_obtained", has);
    caps
}
