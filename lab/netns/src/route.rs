//! Which interfaces carry a default route, so that a lane can refuse to cut the machine off.
//!
//! Reads the main routing table of the calling thread's namespace for IPv4 and IPv6. It does not see policy routing
//! tables, nor the further next hops of a multipath route: `/proc` shows only the first.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use crate::Error;

// Route flags, from the kernel's linux/route.h.
const RTF_UP: u32 = 0x0001;
const RTF_REJECT: u32 = 0x0200;

/// The interfaces that carry a default route (IPv4 or IPv6) in the current namespace, sorted; empty if none does.
///
/// More than one is common: the two families may differ, and so may metrics. Attaching to any of them is a risk.
pub fn default_route_interfaces() -> Result<Vec<String>, Error> {
    // thread-self: /proc/net would show the namespace of the main thread.
    let ipv4 = read_table("/proc/thread-self/net/route")?;
    let ipv6 = read_table("/proc/thread-self/net/ipv6_route")?;
    let mut interfaces = BTreeSet::new();
    interfaces.extend(ipv4.lines().filter_map(default_ipv4));
    interfaces.extend(ipv6.lines().filter_map(default_ipv6));
    Ok(interfaces.into_iter().map(str::to_owned).collect())
}

fn read_table(path: &str) -> Result<String, Error> {
    match fs::read_to_string(Path::new(path)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()), // family not built
        result => result.map_err(Error::path("read", path)),
    }
}

/// `Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT`, numbers in hex.
fn default_ipv4(line: &str) -> Option<&str> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let (interface, destination, flags, mask) =
        (fields.first()?, fields.get(1)?, fields.get(3)?, fields.get(7)?);
    (is_zero(destination) && is_zero(mask) && is_usable(flags)?).then_some(interface)
}

/// `destination prefix source prefix next-hop metric refcount use flags interface`, numbers in hex.
fn default_ipv6(line: &str) -> Option<&str> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let (destination, prefix, flags, interface) =
        (fields.first()?, fields.get(1)?, fields.get(8)?, fields.get(9)?);
    // An interface-less default is the kernel's own `unreachable` entry on lo, which carries RTF_REJECT.
    (is_zero(destination) && is_zero(prefix) && is_usable(flags)?).then_some(interface)
}

fn is_zero(hex: &str) -> bool {
    !hex.is_empty() && hex.bytes().all(|digit| digit == b'0')
}

fn is_usable(flags: &str) -> Option<bool> {
    let flags = u32::from_str_radix(flags, 16).ok()?;
    Some(flags & RTF_UP != 0 && flags & RTF_REJECT == 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn finds_the_default_route_and_no_other() {
        let check = |line: &str, expected: Option<&str>| {
            assert_eq!(default_ipv4(line), expected, "{line}");
        };
        check("Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU", None);
        check("eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0", Some("eth0"));
        check("eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0", None);
        check("*\t00000000\t00000000\t0201\t0\t0\t0\t00000000\t0\t0\t0", None);
    }

    #[test]
    fn skips_the_unreachable_default_that_every_kernel_has_for_ipv6() {
        let zero = "0".repeat(32);
        let line = |prefix: &str, flags: &str| {
            format!("{zero} {prefix} {zero} 00 {zero} 00000400 00000002 00000000 {flags}     eth0")
        };
        assert_eq!(default_ipv6(&line("00", "00000003")), Some("eth0"));
        assert_eq!(default_ipv6(&line("00", "00200200")), None);
        assert_eq!(default_ipv6(&line("40", "00000001")), None);
    }

    proptest! {
        #[test]
        fn parsers_never_panic(line in any::<String>()) {
            let _ = default_ipv4(&line);
            let _ = default_ipv6(&line);
        }
    }
}
