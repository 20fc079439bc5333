//! The lane's knobs: what a spec asks for, checked before DPDK is loaded.
//!
//! Assumes nothing about the machine. What must always hold: a [`Config`] that exists names one kind
//! of device, its pool has an mbuf for every place they can be, and no knob of another kind of device
//! was given. What it does not do: it does not know what a device will grant.

use crate::device::{Device, Driver, Pcap};
use laneway_core::{Cap, CapSet, HEADROOM_BYTES_MIN, LaneError, PortMask};
use laneway_spec::{Knobs, LaneSpec, SpecError};

/// The lane's name in specs, results and messages.
pub(crate) const NAME: &str = "dpdk";

/// Queues of one port; DPDK's own bound.
const QUEUES_MAX: usize = 1024;
const DESCRIPTORS_MAX: usize = 1 << 15;
/// mbufs per port.
const MBUFS_DEFAULT: usize = 8192;
const MBUFS_MAX: usize = 1 << 20;
/// mbufs that a worker keeps at hand; DPDK's own bound (RTE_MEMPOOL_CACHE_MAX_SIZE).
const CACHE_MBUFS_DEFAULT: usize = 256;
const CACHE_MBUFS_MAX: usize = 512;
/// Bytes of a frame that an mbuf holds behind its headroom. Net_af_packet copies up to 2048 bytes
/// without looking.
const FRAME_BYTES_DEFAULT: usize = 2048;
const FRAME_BYTES_MAX: usize = 1 << 15;
/// Memory of the whole process without huge pages, in MiB. Not touched before it is used.
const MEMORY_MB_DEFAULT: usize = 512;
const MEMORY_MB_MAX: usize = 1 << 16;
const HUGE_PAGES_MAX: usize = 1 << 16;
const MTU_MAX: usize = 16 << 10;

/// Where packet memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// Huge pages if some are free, else ordinary ones.
    Either,
    /// Huge pages that the machine has reserved.
    Huge,
    /// Huge pages: so many are reserved first, and given back with the lane.
    Reserve(usize),
    /// Ordinary pages.
    Ordinary,
}

/// The knobs of one lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) device: Device,
    /// Workers that share the queues of each port.
    pub(crate) workers: usize,
    /// Free arguments for the device, as DPDK reads them.
    pub(crate) arguments: Option<String>,
    pub(crate) rx_queues: u16,
    pub(crate) tx_queues: u16,
    pub(crate) rx_descriptors: Option<u16>,
    pub(crate) tx_descriptors: Option<u16>,
    pub(crate) burst_frames: usize,
    pub(crate) mbufs_per_port: usize,
    pub(crate) cache_mbufs: usize,
    pub(crate) frame_bytes: usize,
    pub(crate) memory: Memory,
    pub(crate) memory_mb: usize,
    /// Asked for (true), forbidden (false), or left to the lane.
    pub(crate) rx_interrupt: Option<bool>,
    pub(crate) checksums: bool,
    pub(crate) promiscuous: bool,
    pub(crate) mtu: Option<u16>,
    pub(crate) allowed_missing: CapSet,
}

impl Config {
    /// Reads every knob of `spec`, for so many workers.
    pub(crate) fn read(spec: &LaneSpec, workers: usize) -> Result<Config, LaneError> {
        if spec.lane() != NAME {
            return Err(spec.unknown_lane(&[NAME]).into());
        }
        let knobs = spec.knobs();
        let device = read_device(spec, &knobs)?;
        let queues_max = device.queues_max().unwrap_or(QUEUES_MAX);
        if !(1..=queues_max).contains(&workers) {
            return Err(LaneError::Refused {
                lane: NAME.to_owned(),
                name: format!("{workers} workers"),
                why: format!(
                    "each needs a queue of its own, and a port of {} has at most {queues_max}",
                    device.name()
                ),
                hint: format!("use 1 to {queues_max} workers"),
            });
        }
        let each = workers as u16;
        let rx_queues = read_queues(&knobs, "rxq", each, queues_max, &device)?;
        if rx_queues % each != 0 {
            let (below, above) = (rx_queues - rx_queues % each, rx_queues.next_multiple_of(each));
            let want = format!(
                "{workers} workers share the queues evenly: use rxq={}",
                if below == 0 || usize::from(above) <= queues_max { above } else { below }
            );
            return Err(knobs.bad("rxq", &rx_queues.to_string(), want).into());
        }
        let default = if device.pairs_queues() { rx_queues } else { each };
        let tx_queues = read_queues(&knobs, "txq", default, queues_max, &device)?;
        if tx_queues < each {
            let want =
                format!("each of {workers} workers sends by a queue of its own: use txq={each}");
            return Err(knobs.bad("txq", &tx_queues.to_string(), want).into());
        }
        if device.pairs_queues() && rx_queues != tx_queues {
            let want = format!("{} has as many queues each way: leave txq= out", device.name());
            return Err(knobs.bad("txq", &tx_queues.to_string(), want).into());
        }
        let mbufs_per_port = knobs.number("mempool", MBUFS_DEFAULT, 2..=MBUFS_MAX)?;
        let cache_default = CACHE_MBUFS_DEFAULT.min(mbufs_per_port / 8);
        let config = Config {
            workers,
            arguments: knobs.text("args")?.map(|text| text.replace(';', ",")),
            rx_queues,
            tx_queues,
            rx_descriptors: read_descriptors(&knobs, "rxd")?,
            tx_descriptors: read_descriptors(&knobs, "txd")?,
            burst_frames: knobs.burst()?,
            mbufs_per_port,
            cache_mbufs: knobs.number("cache", cache_default, 0..=CACHE_MBUFS_MAX)?,
            frame_bytes: knobs.number(
                "frame",
                FRAME_BYTES_DEFAULT,
                FRAME_BYTES_DEFAULT..=FRAME_BYTES_MAX,
            )?,
            memory: read_memory(&knobs)?,
            memory_mb: knobs.number("mem", MEMORY_MB_DEFAULT, 16..=MEMORY_MB_MAX)?,
            rx_interrupt: match knobs.text("intr") {
                Ok(None) => None,
                _ => Some(knobs.flag("intr")?),
            },
            checksums: knobs.flag("csum")?,
            promiscuous: knobs.flag("promisc")?,
            mtu: read_mtu(&knobs, &device)?,
            allowed_missing: knobs.allowed_missing()?,
            device,
        };
        config
            .check_pool()
            .map_err(|want| knobs.bad("mempool", &mbufs_per_port.to_string(), want))?;
        // The worker follows it; here it only has to be one.
        knobs.idle()?;
        knobs.finish()?;
        Ok(config)
    }

    /// Refuses a pool that cannot feed the device while a burst is out.
    fn check_pool(&self) -> Result<(), String> {
        let device = self.device_mbufs();
        let burst = self.burst_frames;
        let need = device + burst;
        let have = self.mbufs_per_port;
        if have < need {
            return Err(format!(
                "pool too small: {have} mbufs per port, need {need} (device {device} + burst \
                 {burst}); raise mempool=, or lower rxd= or burst="
            ));
        }
        // DPDK's own condition.
        if self.cache_mbufs * 3 / 2 > have {
            return Err(format!("cache={} needs a pool half as large again", self.cache_mbufs));
        }
        Ok(())
    }

    /// mbufs that the device keeps to receive into, for each worker.
    fn device_mbufs(&self) -> usize {
        let queues = usize::from(self.rx_queues) / self.workers;
        let descriptors = usize::from(self.rx_descriptors.unwrap_or(DESCRIPTORS_ASSUMED));
        match self.device.keeps_mbufs() {
            None => 0,
            Some(0) => queues * descriptors,
            Some(fixed) => queues * fixed,
        }
    }

    /// Bytes of one mbuf's buffer: headroom and frame.
    pub(crate) fn buffer_bytes(&self) -> usize {
        HEADROOM_BYTES_MIN + self.frame_bytes
    }

    /// The capabilities that these knobs ask for.
    pub(crate) fn requested(&self) -> CapSet {
        let huge = matches!(self.memory, Memory::Huge | Memory::Reserve(_));
        CapSet::default()
            // Whether a capture can be written depends on the interface's name.
            .with_if(Cap::Transmit, !matches!(self.device, Device::Pcap(_)))
            .with(Cap::SharedMemory)
            .with_if(Cap::HugePages, huge)
            .with_if(Cap::RxInterrupt, self.rx_interrupt == Some(true))
            .with_if(Cap::ChecksumOffload, self.checksums)
    }
}

/// DPDK's own choice where neither the user nor the driver has one.
const DESCRIPTORS_ASSUMED: u16 = 512;

fn read_device(spec: &LaneSpec, knobs: &Knobs<'_>) -> Result<Device, SpecError> {
    let mut found: Vec<Driver> = Vec::new();
    for driver in Driver::ALL {
        if knobs.flag(driver.name())? {
            found.push(*driver);
        }
    }
    let pci = knobs.text("pci")?;
    // Every knob of every device is read, so that a wrong one is refused for the right reason.
    let queue = knobs.number("queue", 0, 0..=QUEUES_MAX)? as u16;
    let role = knobs.text("role")?;
    let socket = knobs.text("socket")?;
    let id = knobs.number("id", 0, 0..=u32::MAX as usize - PortMask::PORTS_MAX)? as u32;
    let (rx_pcap, tx_pcap) = (knobs.text("rx_pcap")?, knobs.text("tx_pcap")?);
    let device = match (found[..].first(), pci) {
        (Some(_), None) if found.len() > 1 => {
            return Err(knobs.bad(
                found[1].name(),
                "on",
                "a lane has one driver; keep one of them",
            ));
        }
        (Some(driver), Some(_)) => {
            return Err(knobs.bad("pci", driver.name(), "keep either the driver or pci="));
        }
        (None, None) => {
            let names: Vec<_> = Driver::ALL.iter().map(|d| d.name()).collect();
            // A misspelt driver is a knob that the lane does not know: that sentence helps more.
            let known: Vec<_> = names.iter().copied().chain(["pci"]).collect();
            let text = spec.to_string();
            let first = text.split([':', ',']).nth(1).unwrap_or("");
            let near = laneway_spec::nearest(first, &known)
                .map(|near| format!("; did you mean `{near}`?"))
                .unwrap_or_default();
            return Err(SpecError::Syntax {
                spec: text.clone(),
                why: format!("it names no driver (one of {}) and no pci={near}", names.join(", ")),
            });
        }
        (None, Some(addresses)) => Device::Pci(read_addresses(knobs, addresses)?),
        (Some(Driver::AfPacket), None) => Device::AfPacket,
        (Some(Driver::AfXdp), None) => Device::AfXdp { queue },
        (Some(Driver::Tap), None) => Device::Tap,
        (Some(Driver::Ring), None) => Device::Ring,
        (Some(Driver::Null), None) => Device::Null,
        (Some(Driver::Memif), None) => Device::Memif {
            server: match role {
                None | Some("client") => false,
                Some("server") => true,
                Some(other) => return Err(knobs.bad("role", other, "use client or server")),
            },
            socket: socket.unwrap_or("@laneway-memif").to_owned(),
            id,
        },
        (Some(Driver::Pcap), None) => Device::Pcap(Pcap {
            receive: rx_pcap.map(str::to_owned),
            transmit: tx_pcap.map(str::to_owned),
        }),
    };
    for (knob, owner) in [
        ("queue", Driver::AfXdp),
        ("role", Driver::Memif),
        ("socket", Driver::Memif),
        ("id", Driver::Memif),
        ("rx_pcap", Driver::Pcap),
        ("tx_pcap", Driver::Pcap),
    ] {
        if let Some(value) = knobs.text(knob)?
            && device.driver() != Some(owner)
        {
            return Err(knobs.bad(knob, value, format!("belongs to {}", owner.name())));
        }
    }
    Ok(device)
}

/// `0000:01:00.0+0000:01:00.1`: the devices of ports 0 and 1.
fn read_addresses(knobs: &Knobs<'_>, text: &str) -> Result<Vec<String>, SpecError> {
    let addresses: Vec<String> = text.split('+').map(str::to_owned).collect();
    match addresses.iter().find(|address| !is_pci_address(address)) {
        None => Ok(addresses),
        Some(_) => Err(knobs.bad(
            "pci",
            text,
            "use full addresses like 0000:01:00.0, joined by + (`lspci -D` lists them)",
        )),
    }
}

fn is_pci_address(text: &str) -> bool {
    let parts: Vec<&str> = text.split([':', '.']).collect();
    let hex = |part: &str, digits: usize| {
        part.len() == digits && part.bytes().all(|b| b.is_ascii_hexdigit())
    };
    matches!(parts[..], [domain, bus, slot, function]
        if hex(domain, 4) && hex(bus, 2) && hex(slot, 2) && hex(function, 1))
        && text.as_bytes()[10] == b'.'
}

fn read_queues(
    knobs: &Knobs<'_>,
    knob: &'static str,
    default: u16,
    max: usize,
    device: &Device,
) -> Result<u16, SpecError> {
    let queues = knobs.number(knob, default.into(), 1..=QUEUES_MAX)?;
    if queues <= max {
        return Ok(queues as u16);
    }
    Err(knobs.bad(
        knob,
        &queues.to_string(),
        format!("a port of {} has at most {max} queues", device.name()),
    ))
}

fn read_descriptors(knobs: &Knobs<'_>, knob: &'static str) -> Result<Option<u16>, SpecError> {
    // 0 is outside the range, so it can only be the absent knob.
    let descriptors = knobs.number(knob, 0, 1..=DESCRIPTORS_MAX)?;
    Ok((descriptors > 0).then_some(descriptors as u16))
}

fn read_memory(knobs: &Knobs<'_>) -> Result<Memory, SpecError> {
    let ordinary = knobs.flag("no-huge")?;
    let huge = match knobs.flag("hugepages") {
        Ok(true) => Memory::Huge,
        Ok(false) => Memory::Either,
        Err(_) => Memory::Reserve(knobs.number("hugepages", 0, 1..=HUGE_PAGES_MAX)?),
    };
    match (ordinary, huge) {
        (false, memory) => Ok(memory),
        (true, Memory::Either) => Ok(Memory::Ordinary),
        (true, _) => Err(knobs.bad("no-huge", "on", "contradicts hugepages; keep one of them")),
    }
}

fn read_mtu(knobs: &Knobs<'_>, device: &Device) -> Result<Option<u16>, SpecError> {
    let mtu = knobs.number("mtu", 0, 68..=MTU_MAX)?;
    if mtu > 0 && device.borrows_interface() {
        let want = "the interface has its own; change it with `ip link set dev NAME mtu BYTES`";
        return Err(knobs.bad("mtu", &mtu.to_string(), want));
    }
    Ok((mtu > 0).then_some(mtu as u16))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(spec: &str) -> Result<Config, String> {
        Config::read(&spec.parse().expect("well formed"), 1).map_err(|e| e.to_string())
    }

    #[track_caller]
    fn refused(spec: &str, words: &[&str]) {
        let message = read(spec).expect_err(spec);
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }

    #[test]
    fn the_first_knob_names_the_driver() {
        assert_eq!(read("dpdk:net_tap").unwrap().device, Device::Tap);
        assert_eq!(read("dpdk:net_af_xdp,queue=3").unwrap().device, Device::AfXdp { queue: 3 });
        let pci = Device::Pci(vec!["0000:01:00.0".to_owned(), "0000:01:00.1".to_owned()]);
        assert_eq!(read("dpdk:pci=0000:01:00.0+0000:01:00.1").unwrap().device, pci);
        refused("dpdk", &["names no driver", "net_tap"]);
        refused("dpdk:net_afpacket", &["did you mean `net_af_packet`?"]);
        refused("dpdk:net_tap,net_ring", &["one driver"]);
        refused("dpdk:net_tap,pci=0000:01:00.0", &["either"]);
        for address in ["01:00.0", "0000:01:00:0", "eth0", "0000:01:00.0+"] {
            refused(&format!("dpdk:pci={address}"), &["0000:01:00.0"]);
        }
    }

    #[test]
    fn knobs_of_another_driver_are_refused() {
        refused("dpdk:net_tap,queue=1", &["belongs to net_af_xdp"]);
        refused("dpdk:net_ring,socket=@x", &["belongs to net_memif"]);
        refused("dpdk:net_null,rx_pcap=a.pcap", &["belongs to net_pcap"]);
        refused("dpdk:net_af_packet,mtu=9000", &["ip link set"]);
        assert_eq!(read("dpdk:net_tap,mtu=9000,frame=16k").unwrap().mtu, Some(9000));
    }

    #[test]
    fn queues_beyond_the_drivers_bound_are_refused_with_it() {
        refused("dpdk:net_tap,rxq=17", &["rxq=17", "at most 16"]);
        refused("dpdk:net_af_packet,rxq=2,txq=3", &["as many queues each way"]);
        assert_eq!(read("dpdk:net_af_packet,rxq=2").unwrap().tx_queues, 2);
    }

    #[test]
    fn workers_share_the_queues_of_a_port_evenly() {
        let read = |spec: &str, workers| {
            Config::read(&spec.parse().expect("well formed"), workers)
                .map(|config| (config.rx_queues, config.tx_queues))
                .map_err(|e| e.to_string())
        };
        assert_eq!(read("dpdk:net_null", 2), Ok((2, 2)));
        assert_eq!(read("dpdk:net_null,rxq=4", 2), Ok((4, 2)));
        assert_eq!(read("dpdk:net_tap,rxq=4", 2), Ok((4, 4)));
        for (spec, workers, words) in [
            ("dpdk:net_tap", 17, ["17 workers", "at most 16", "1 to 16"]),
            ("dpdk:net_pcap", 2, ["2 workers", "at most 1", "1 to 1"]),
            ("dpdk:net_null,rxq=3", 2, ["rxq=3", "2 workers", "rxq=4"]),
            ("dpdk:net_null,txq=1", 2, ["txq=1", "2 workers", "txq=2"]),
        ] {
            let sentence = read(spec, workers).expect_err(spec);
            assert!(words.iter().all(|word| sentence.contains(word)), "{sentence}");
        }
    }

    #[test]
    fn a_pool_that_cannot_feed_the_device_is_refused_with_the_sum() {
        refused("dpdk:net_af_xdp,mempool=2048", &["need 2112", "device 2048", "raise mempool="]);
        refused("dpdk:net_tap,mempool=256", &["device 512"]);
        assert!(read("dpdk:net_tap,mempool=256,rxd=32").is_ok());
        refused("dpdk:net_ring,mempool=64,burst=128", &["burst 128"]);
    }

    #[test]
    fn memory_is_asked_for_in_one_way() {
        assert_eq!(read("dpdk:net_null").unwrap().memory, Memory::Either);
        assert_eq!(read("dpdk:net_null,hugepages").unwrap().memory, Memory::Huge);
        assert_eq!(read("dpdk:net_null,hugepages=64").unwrap().memory, Memory::Reserve(64));
        assert_eq!(read("dpdk:net_null,no-huge").unwrap().memory, Memory::Ordinary);
        refused("dpdk:net_null,no-huge,hugepages", &["contradicts"]);
        refused("dpdk:net_null,hugepages=many", &["from 1 to"]);
        assert!(read("dpdk:net_null,hugepages").unwrap().requested().has(Cap::HugePages));
    }

    #[test]
    fn interrupts_are_asked_for_forbidden_or_left_to_the_lane() {
        assert_eq!(read("dpdk:net_tap").unwrap().rx_interrupt, None);
        assert_eq!(read("dpdk:net_tap,intr=off").unwrap().rx_interrupt, Some(false));
        let asked = read("dpdk:net_tap,intr").unwrap();
        assert!(asked.rx_interrupt == Some(true) && asked.requested().has(Cap::RxInterrupt));
        refused("dpdk:net_tap,intr=maybe", &["on or off"]);
    }

    #[test]
    fn free_arguments_are_joined_as_dpdk_wants_them() {
        let config = read("dpdk:net_null,args=size=128;copy=1").unwrap();
        assert_eq!(config.arguments.as_deref(), Some("size=128,copy=1"));
    }

    #[test]
    fn a_misspelt_knob_names_its_neighbour() {
        refused("dpdk:net_tap,mempol=64", &["did you mean `mempool`?"]);
    }
}
