//! One interface's settings, state and counters, set and read back.
//!
//! Everything acts in the network namespace of the calling thread and reads what the kernel says now, from
//! `/sys/class/net` and from `ip` and `ethtool`. Nothing is cached and nothing is assumed to have taken effect: a
//! setter reads back and fails when the answer differs. It does not create or delete interfaces.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::tool::{ETHTOOL, IP};
use laneway_linux::{Cidr, Mac};

/// Longest interface name, bytes (the kernel's IFNAMSIZ less the final zero).
const NAME_BYTES_MAX: usize = 15;
/// How long a link may take to come up, milliseconds.
const CARRIER_WAIT_MS: u64 = 2_000;
/// How often a state is looked at while waiting for it, milliseconds.
pub(crate) const POLL_INTERVAL_MS: u64 = 1;

/// The offloads that change which frames a lane sees or what a sender pays; `true` is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offloads {
    /// Generic receive offload. On veth it also starts NAPI.
    pub gro: bool,
    /// Generic segmentation offload.
    pub gso: bool,
    /// TCP segmentation offload.
    pub tso: bool,
    /// Transmit checksums left to the device; on veth that means never computed.
    pub tx_checksum: bool,
    /// UDP segmentation offload: on veth, trains cross uncut.
    pub tx_udp_segmentation: bool,
    /// VLAN tags taken out of received frames.
    pub rx_vlan: bool,
    /// VLAN tags left for the device to insert.
    pub tx_vlan: bool,
}

impl Default for Offloads {
    /// Frames as they would be on a wire: complete checksums, tags in place, one frame per packet. GRO is on because
    /// on veth NAPI, and so a fair receive path, depends on it.
    fn default() -> Self {
        Offloads {
            gro: true,
            gso: false,
            tso: false,
            tx_checksum: false,
            tx_udp_segmentation: false,
            rx_vlan: false,
            tx_vlan: false,
        }
    }
}

/// What `ethtool -K` takes and what `ethtool -k` prints, in the order of [`Offloads::values`].
const FEATURES: [(&str, &str); 7] = [
    ("gro", "generic-receive-offload"),
    ("gso", "generic-segmentation-offload"),
    // Not the heading `tcp-segmentation-offload`, which is on when any of its five kinds is.
    ("tso", "tx-tcp-segmentation"),
    ("tx", "tx-checksumming"),
    ("tx-udp-segmentation", "tx-udp-segmentation"),
    ("rxvlan", "rx-vlan-offload"),
    ("txvlan", "tx-vlan-offload"),
];

impl Offloads {
    fn values(self) -> [bool; 7] {
        let Offloads { gro, gso, tso, tx_checksum, tx_udp_segmentation, rx_vlan, tx_vlan } = self;
        [gro, gso, tso, tx_checksum, tx_udp_segmentation, rx_vlan, tx_vlan]
    }

    fn from_values(values: [bool; 7]) -> Self {
        let [gro, gso, tso, tx_checksum, tx_udp_segmentation, rx_vlan, tx_vlan] = values;
        Offloads { gro, gso, tso, tx_checksum, tx_udp_segmentation, rx_vlan, tx_vlan }
    }
}

fn on_off(value: bool) -> &'static str {
    if value { "on" } else { "off" }
}

/// Sets all offloads of `interface` and returns what it reads back; fails if any differs from what was asked.
pub fn set_offloads(interface: &str, asked: Offloads) -> Result<Offloads, Error> {
    check_name(interface)?;
    let mut arguments = vec!["-K", interface];
    for ((feature, _), value) in FEATURES.iter().zip(asked.values()) {
        arguments.extend([*feature, on_off(value)]);
    }
    ETHTOOL.run(&arguments)?;
    let got = read_offloads(interface)?;
    for (((_, feature), asked), got) in FEATURES.iter().zip(asked.values()).zip(got.values()) {
        if asked != got {
            return Err(Error::NotApplied {
                setting: (*feature).to_owned(),
                interface: interface.to_owned(),
                asked: on_off(asked).to_owned(),
                got: on_off(got).to_owned(),
            });
        }
    }
    Ok(got)
}

/// Reads the offloads of `interface`; attaching XDP can change them, so read again after it.
pub fn read_offloads(interface: &str) -> Result<Offloads, Error> {
    check_name(interface)?;
    parse_offloads(&ETHTOOL.run(&["-k", interface])?)
}

fn parse_offloads(text: &str) -> Result<Offloads, Error> {
    let mut values = [false; 7];
    for (value, (_, feature)) in values.iter_mut().zip(FEATURES) {
        let state = text
            .lines()
            .filter_map(|line| line.trim().split_once(": "))
            .find_map(|(name, state)| (name == feature).then_some(state));
        // `off [fixed]` and `on [requested off]` state the effective value first.
        *value = match state.and_then(|state| state.split_ascii_whitespace().next()) {
            Some("on") => true,
            Some("off") => false,
            _ => return Err(Error::unreadable("output of ethtool -k", state.unwrap_or(feature))),
        };
    }
    Ok(Offloads::from_values(values))
}

/// What an interface has moved since it was made, from `/sys/class/net/<interface>/statistics`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceCounters {
    /// Frames received.
    pub rx_packets: u64,
    /// Bytes received. veth with NAPI leaves the Ethernet header out for frames that come from sockets.
    pub rx_bytes: u64,
    /// Received frames dropped by the driver or the backlog. On veth: no memory to take them over.
    pub rx_dropped: u64,
    /// Received frames with errors.
    pub rx_errors: u64,
    /// Frames the device had no room for.
    pub rx_missed_errors: u64,
    /// Received frames that no protocol handler took.
    pub rx_nohandler: u64,
    /// Frames sent. On veth also those the peer's XDP program then drops.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Frames dropped before sending. On veth: the peer's ring was full or the peer was down.
    pub tx_dropped: u64,
    /// Frames that failed in sending.
    pub tx_errors: u64,
}

/// Reads the counters every interface has.
pub fn interface_counters(interface: &str) -> Result<InterfaceCounters, Error> {
    let read = |counter: &str| read_number(interface, &format!("statistics/{counter}"));
    Ok(InterfaceCounters {
        rx_packets: read("rx_packets")?,
        rx_bytes: read("rx_bytes")?,
        rx_dropped: read("rx_dropped")?,
        rx_errors: read("rx_errors")?,
        rx_missed_errors: read("rx_missed_errors")?,
        rx_nohandler: read("rx_nohandler")?,
        tx_packets: read("tx_packets")?,
        tx_bytes: read("tx_bytes")?,
        tx_dropped: read("tx_dropped")?,
        tx_errors: read("tx_errors")?,
    })
}

/// Reads the driver's own counters (`ethtool -S`), by the driver's names.
///
/// veth counts per queue: `rx_queue_0_drops`, `rx_queue_0_xdp_drops`, `tx_queue_0_xdp_xmit_errors` and more. A driver
/// without counters gives an empty map.
pub fn driver_counters(interface: &str) -> Result<BTreeMap<String, u64>, Error> {
    check_name(interface)?;
    match ETHTOOL.run(&["-S", interface]) {
        Ok(text) => Ok(parse_driver_counters(&text)),
        // ethtool's exit status for this is the same as for every failure.
        Err(Error::Tool { stderr, .. }) if stderr.contains("no stats available") => {
            Ok(BTreeMap::new())
        }
        Err(error) => Err(error),
    }
}

fn parse_driver_counters(text: &str) -> BTreeMap<String, u64> {
    let pair = |line: &str| {
        let (name, value) = line.trim().rsplit_once(": ")?;
        Some((name.to_owned(), value.parse().ok()?)) // the heading has no number
    };
    text.lines().filter_map(pair).collect()
}

/// A neighbour that needs no asking for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// Its IP address.
    pub address: std::net::IpAddr,
    /// Where frames for it go.
    pub mac: Mac,
}

/// What the kernel says about one interface, read in one go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceState {
    /// Its number in its namespace.
    pub ifindex: u32,
    /// Largest network-layer packet, bytes.
    pub mtu_bytes: u32,
    /// Its hardware address.
    pub mac: Mac,
    /// `up`, `down`, `lowerlayerdown`...: RFC 2863 state, in the kernel's words.
    pub operstate: String,
    /// Receive queues in use.
    pub rx_queues: u32,
    /// Transmit queues in use.
    pub tx_queues: u32,
    /// Its IP addresses.
    pub addresses: Vec<Cidr>,
    /// Its permanent neighbours.
    pub neighbours: Vec<Neighbour>,
    /// Its offloads.
    pub offloads: Offloads,
    /// Whether NAPI runs in kernel threads.
    pub threaded: bool,
}

/// Reads the state of `interface`.
pub fn interface_state(interface: &str) -> Result<InterfaceState, Error> {
    let mac = read_text(interface, "address")?;
    Ok(InterfaceState {
        ifindex: ifindex(interface)?,
        mtu_bytes: read_number(interface, "mtu")?,
        mac: mac.parse().map_err(|_| Error::unreadable("hardware address", &mac))?,
        operstate: read_text(interface, "operstate")?,
        rx_queues: queue_count(interface, "rx-")?,
        tx_queues: queue_count(interface, "tx-")?,
        addresses: parse_addresses(&IP.run(&["-o", "address", "show", "dev", interface])?)?,
        neighbours: parse_neighbours(&IP.run(&[
            "neighbour",
            "show",
            "dev",
            interface,
            "nud",
            "permanent",
        ])?)?,
        offloads: read_offloads(interface)?,
        threaded: is_threaded(interface)?,
    })
}

fn parse_addresses(text: &str) -> Result<Vec<Cidr>, Error> {
    // `3: sut0    inet 10.0.0.2/24 scope global sut0\ ...`
    let mut addresses = Vec::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace().skip(2);
        if !matches!(words.next(), Some("inet" | "inet6")) {
            continue;
        }
        let address = words.next().and_then(|word| word.parse().ok());
        addresses.push(address.ok_or_else(|| Error::unreadable("output of ip address", line))?);
    }
    Ok(addresses)
}

fn parse_neighbours(text: &str) -> Result<Vec<Neighbour>, Error> {
    // `10.0.0.1 lladdr 02:00:00:00:00:01 PERMANENT`; an entry without `lladdr` is no host
    let mut neighbours = Vec::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let address = words.next().and_then(|word| word.parse().ok());
        let mac = words.skip_while(|word| *word != "lladdr").nth(1);
        let Some(mac) = mac else { continue };
        let (Some(address), Ok(mac)) = (address, mac.parse()) else {
            return Err(Error::unreadable("output of ip neighbour", line));
        };
        neighbours.push(Neighbour { address, mac });
    }
    Ok(neighbours)
}

/// Waits until `interface` is operationally up, polling for at most two seconds.
pub fn wait_for_carrier(interface: &str) -> Result<(), Error> {
    let started = Instant::now();
    loop {
        let state = read_text(interface, "operstate")?;
        if state == "up" {
            return Ok(());
        }
        if started.elapsed() >= Duration::from_millis(CARRIER_WAIT_MS) {
            return Err(Error::NoCarrier {
                interface: interface.to_owned(),
                state,
                waited_ms: CARRIER_WAIT_MS,
            });
        }
        thread::sleep(Duration::from_millis(POLL_INTERVAL_MS));
    }
}

/// Refuses names the kernel would refuse or a path could misread.
pub(crate) fn check_name(interface: &str) -> Result<(), Error> {
    let allowed = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b':';
    let is_dots = matches!(interface, "." | "..");
    if interface.is_empty()
        || interface.len() > NAME_BYTES_MAX
        || is_dots
        // An option to `ip` or `ethtool`, not a name.
        || interface.starts_with('-')
        || !interface.bytes().all(allowed)
    {
        return Err(Error::BadName {
            what: "interface name",
            name: interface.to_owned(),
            rule: "1 to 15 printable characters without blanks, `/` and `:`, not starting with `-`",
        });
    }
    Ok(())
}

pub(crate) fn ifindex(interface: &str) -> Result<u32, Error> {
    read_number(interface, "ifindex")
}

pub(crate) fn sysfs_path(interface: &str, attribute: &str) -> Result<PathBuf, Error> {
    check_name(interface)?;
    Ok(PathBuf::from(format!("/sys/class/net/{interface}/{attribute}")))
}

/// Whether its receive work runs in threads of the kernel's (threaded NAPI).
pub(crate) fn is_threaded(interface: &str) -> Result<bool, Error> {
    Ok(read_text(interface, "threaded")? != "0")
}

pub(crate) fn read_text(interface: &str, attribute: &str) -> Result<String, Error> {
    let path = sysfs_path(interface, attribute)?;
    let text = fs::read_to_string(&path).map_err(Error::path("read", path))?;
    Ok(text.trim_end().to_owned())
}

fn read_number<N: std::str::FromStr>(interface: &str, attribute: &str) -> Result<N, Error> {
    let text = read_text(interface, attribute)?;
    text.parse().map_err(|_| Error::unreadable("number in /sys/class/net", &text))
}

/// Counts the queues whose name starts with `kind`, `rx-` or `tx-`.
pub(crate) fn queue_count(interface: &str, kind: &str) -> Result<u32, Error> {
    let path = sysfs_path(interface, "queues")?;
    let mut count = 0;
    for entry in fs::read_dir(&path).map_err(Error::path("list", &path))? {
        let name = entry.map_err(Error::path("list", &path))?.file_name();
        count += u32::from(name.to_string_lossy().starts_with(kind));
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_the_effective_value_of_an_offload() {
        let mut text = String::from("Features for sut0:\n");
        for (_, feature) in FEATURES {
            text += &format!("{feature}: off [fixed]\n");
        }
        let text = text
            .replace("generic-receive-offload: off [fixed]", "generic-receive-offload: on")
            .replace("tx-vlan-offload: off [fixed]", "\ttx-vlan-offload: on [requested off]");
        let offloads = parse_offloads(&text).expect("every feature is listed");
        let none = Offloads::from_values([false; 7]);
        assert_eq!(offloads, Offloads { gro: true, tx_vlan: true, ..none });
    }

    #[test]
    fn a_feature_that_is_not_listed_is_an_error() {
        let error = parse_offloads("generic-receive-offload: on\n").expect_err("six are missing");
        assert!(error.to_string().contains("generic-segmentation-offload"), "{error}");
    }

    #[test]
    fn reads_addresses_and_neighbours_as_ip_prints_them() {
        let text = "3: sut0    inet 10.0.0.2/24 scope global sut0\\       valid_lft forever\n\
                    3: sut0    inet6 fd00::2/64 scope global nodad \\       valid_lft forever\n";
        let addresses = parse_addresses(text).expect("two addresses");
        assert_eq!(
            addresses.iter().map(Cidr::to_string).collect::<Vec<_>>(),
            ["10.0.0.2/24", "fd00::2/64"]
        );
        let text = "10.0.0.1 lladdr 02:00:00:00:00:01 PERMANENT \nfd00::1 lladdr 02:00:00:00:00:01 \
                    PERMANENT\n224.0.0.1 PERMANENT\n";
        assert_eq!(parse_neighbours(text).expect("two neighbours").len(), 2);
    }

    #[test]
    fn refuses_names_that_are_paths_or_options() {
        for name in ["", ".", "..", "../x", "-K", "a b", "a:1", "sixteen-bytes-xx"] {
            assert!(matches!(check_name(name), Err(Error::BadName { .. })), "{name}");
        }
        check_name("fifteen-bytes-x").expect("the longest name");
    }

    #[test]
    fn a_missing_interface_is_named_in_the_error() {
        let error = interface_counters("laneway-none").expect_err("no such interface");
        assert!(error.to_string().contains("laneway-none"), "{error}");
    }

    proptest! {
        #[test]
        fn offloads_survive_their_array(values: [bool; 7]) {
            prop_assert_eq!(Offloads::from_values(values).values(), values);
        }

        #[test]
        fn parsers_never_panic(text in any::<String>()) {
            let _ = parse_offloads(&text);
            let _ = parse_driver_counters(&text);
            let _ = parse_addresses(&text);
            let _ = parse_neighbours(&text);
        }

        #[test]
        fn driver_counters_survive_their_text(
            counters in proptest::collection::btree_map("[a-z_0-9]{1,20}", any::<u64>(), 0..20)
        ) {
            let mut text = String::from("NIC statistics:\n");
            for (name, value) in &counters {
                text += &format!("     {name}: {value}\n");
            }
            prop_assert_eq!(parse_driver_counters(&text), counters);
        }
    }
}
