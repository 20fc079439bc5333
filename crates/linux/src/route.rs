//! Whether the machine's default route leaves by an interface, so that a lane can keep off it: what drops or
//! answers frames there would cut the machine off.
//!
//! Reads the kernel's own tables: the main table of IPv4 and all tables of IPv6. Default routes in other
//! IPv4 tables are not seen.

use laneway_core::LaneError;
use std::{fs, io};

/// `RTF_REJECT` of `<linux/route.h>`: a route that refuses, through no interface. Every kernel has one on `lo`.
const REJECT: u32 = 0x200;
/// `RTF_ADDRCONF` of `<linux/ipv6_route.h>`: from a router advertisement.
const ADVERTISED: u32 = 0x4_0000;

/// Refuses `interface` for `lane` when a default route of this thread's network namespace leaves by it.
///
/// # Errors
/// [`LaneError::Refused`] with `why` and how to insist; an OS error when the tables cannot be read: without /proc
/// it is not known.
pub fn refuse_default_route(
    lane: &'static str,
    interface: &str,
    why: &str,
    hint: &str,
) -> Result<(), LaneError> {
    // `thread-self`, because `/proc/net` speaks of the main thread's namespace.
    let ipv4 = table(lane, "/proc/thread-self/net/route")?;
    let ipv6 = table(lane, "/proc/thread-self/net/ipv6_route")?;
    let mut of_ipv6 = default_ipv6(&ipv6).filter(|(name, _)| *name == interface);
    let carries = match of_ipv6.next() {
        _ if default_ipv4(&ipv4).any(|name| name == interface) => "the default route".to_owned(),
        None => return Ok(()),
        Some((_, true)) => format!(
            "an IPv6 default route, which a router advertisement gave it (`ip -6 route del default dev {interface}` \
             takes it away, `sysctl net.ipv6.conf.{interface}.accept_ra=0` keeps others off)"
        ),
        Some((_, false)) => "the default route".to_owned(),
    };
    Err(LaneError::Refused {
        lane: lane.to_owned(),
        name: interface.to_owned(),
        why: format!("it carries {carries}, and {why}"),
        hint: hint.to_owned(),
    })
}

fn table(lane: &str, path: &str) -> Result<String, LaneError> {
    match fs::read_to_string(path) {
        // The kernel was built without this protocol, and then there is no such route.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(e) => Err(LaneError::os(lane, format!("read {path}"), e, "is /proc mounted?")),
        Ok(text) => Ok(text),
    }
}

/// Interfaces with a default route in the form of `/proc/net/route`: name, destination, gateway,
/// flags, three counts, mask, all hexadecimal.
fn default_ipv4(table: &str) -> impl Iterator<Item = &str> {
    table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let flags = u32::from_str_radix(fields.get(3)?, 16).ok()?;
        let is_default = fields[1] == "00000000" && *fields.get(7)? == "00000000";
        (is_default && flags & REJECT == 0).then_some(fields[0])
    })
}

/// Interfaces with a default route in the form of `/proc/net/ipv6_route`: destination, its prefix
/// length, source, its prefix length, next hop, metric, two counts, flags, name. True of those that a router
/// advertisement gave.
fn default_ipv6(table: &str) -> impl Iterator<Item = (&str, bool)> {
    table.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (&flags, &name) = (fields.get(8)?, fields.get(9)?);
        let flags = u32::from_str_radix(flags, 16).ok()?;
        let is_default = fields[0].bytes().all(|b| b == b'0') && fields[1] == "00";
        (is_default && flags & REJECT == 0).then_some((name, flags & ADVERTISED != 0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_default_route_has_no_destination_and_no_mask() {
        let table = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
                     eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                     eth1\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
                     eth2\t00000000\t00000000\t0001\t0\t0\t0\t00000080\t0\t0\t0\n\
                     *\t00000000\t00000000\t0201\t0\t0\t0\t00000000\t0\t0\t0\n\
                     cut off";
        assert_eq!(default_ipv4(table).collect::<Vec<_>>(), ["eth0"]);
    }

    #[test]
    fn hostile_tables_are_no_default_route() {
        for table in ["", "\n\n", "eth0", "eth0 00000000", "x 00 y", "00 eth0"] {
            assert_eq!(default_ipv4(table).count() + default_ipv6(table).count(), 0, "{table:?}");
        }
    }

    #[test]
    fn an_ipv6_default_route_is_not_the_one_that_refuses() {
        let zero = "0".repeat(32);
        let table = format!(
            "{zero} 00 {zero} 00 fd000000000000000000000000000001 00000400 2 0 00000003 eth0\n\
             {zero} 80 {zero} 00 {zero} 00000000 2 0 80200001 eth1\n\
             {zero} 00 {zero} 00 fe800000000000000000000000000001 00000400 1 0 00450003 eth2\n\
             {zero} 00 {zero} 00 {zero} ffffffff 1 0 00200200 lo\n\
             cut off"
        );
        assert_eq!(default_ipv6(&table).collect::<Vec<_>>(), [("eth0", false), ("eth2", true)]);
    }
}
