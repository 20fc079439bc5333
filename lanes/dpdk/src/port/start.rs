//! How a device becomes a port: its interface is looked at, the device added, its queues set up and started, and what
//! was obtained is reported. An error undoes what was done so far.

use super::{Added, CHECK_BYTES};
use crate::{
    config::{Config, NAME},
    device::{Device, ETHERNET_BYTES},
    eal::{Eal, Setup, is_privileged},
    listener::Listener,
    pool::SharedPool,
    shim::{PortConf, PortInfo},
    wake::{Sockets, Wake},
};
use laneway_core::{Cap, CapSet, CapsReport, LaneError};
use laneway_linux::{Interface, is_name, refuse_default_route};
use std::{ffi::CString, fs, path::Path};

/// Where the kernel lists PCI devices by address.
pub(super) const PCI_DEVICES: &str = "/sys/bus/pci/devices";

/// The MTU of devices that have none of their own.
pub(super) const MTU_DEFAULT: usize = 1500;

/// The interface that the port borrows, checked.
pub(super) fn find_interface(
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
                    "if no program needs that interface: `dpdk-devbind.py -b vfio-pci {name}`, or \
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

/// Driver and interface by which the kernel uses a PCI device.
pub(super) fn kernel_interface(address: &str) -> Option<(String, String)> {
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
pub(super) fn is_bifurcated(driver: &str) -> bool {
    matches!(driver, "mlx4_core" | "mlx5_core" | "mana")
}

/// The MTU that the port is to have.
pub(super) fn choose_mtu(
    config: &Config,
    interface: Option<&Interface>,
) -> Result<usize, LaneError> {
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

pub(super) fn add(
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
pub(super) fn failed(setup: &Setup<'_>, device: &Device, doing: String, code: i32) -> LaneError {
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
pub(super) fn hint(device: &Device) -> &'static str {
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

pub(super) fn ask_info(eal: &Eal, added: &Added, name: &str) -> Result<PortInfo, LaneError> {
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
pub(super) fn check_queues(
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

pub(super) fn start(
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
    // Drivers that set the MTU of an interface that is not theirs are given none.
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
pub(super) const RSS_FIELDS: u64 = u64::MAX;

/// Leaves promiscuous mode as it is.
pub(super) const ASK_ONLY: i32 = -1;

/// True when the device is in promiscuous mode, asked for or by its nature.
///
/// # Errors
/// When it was asked for and the driver has none.
pub(super) fn make_promiscuous(
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

pub(super) fn find_wake(
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

#[expect(
    clippy::too_many_arguments,
    reason = "everything that was asked for and granted is reported"
)]
pub(super) fn report(
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
