//! What this lane must know about a network interface: index, MTU, kind, whether it is up, and
//! whether the machine's default route leaves by it.
//!
//! Everything is about the network namespace that the socket was made in, which is that of the
//! calling thread. Changes nothing.

use crate::{config::NAME, sys};
use laneway_core::LaneError;
use std::{ffi::CString, fs, io, os::fd::BorrowedFd};

/// Bytes of an Ethernet header, which the MTU does not count.
const ETHERNET_BYTES: usize = 14;

/// An interface as it was when the lane opened.
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) index: libc::c_int,
    pub(crate) mtu_bytes: usize,
}

impl Interface {
    /// Looks `name` up and refuses what cannot carry Ethernet frames now.
    ///
    /// # Errors
    /// No such interface, not up, or without Ethernet headers.
    pub(crate) fn find(socket: BorrowedFd<'_>, name: &str) -> Result<Interface, LaneError> {
        let Ok(c_name) = CString::new(name) else {
            return Err(LaneError::no_interface(NAME, name));
        };
        let ask = |request| sys::interface_request(socket, &c_name, request);
        let failed = |error: io::Error| match error.raw_os_error() {
            Some(libc::ENODEV | libc::ENXIO) => LaneError::no_interface(NAME, name),
            _ => LaneError::os(NAME, format!("look up interface `{name}`"), error, "see `ip link`"),
        };
        let answer = ask(libc::SIOCGIFINDEX).map_err(failed)?;
        // SAFETY: SIOCGIFINDEX filled this member.
        let index = unsafe { answer.ifr_ifru.ifru_ifindex };
        let answer = ask(libc::SIOCGIFFLAGS).map_err(failed)?;
        // SAFETY: SIOCGIFFLAGS filled this member.
        let flags = libc::c_int::from(unsafe { answer.ifr_ifru.ifru_flags });
        let answer = ask(libc::SIOCGIFMTU).map_err(failed)?;
        // SAFETY: SIOCGIFMTU filled this member.
        let mtu = unsafe { answer.ifr_ifru.ifru_mtu };
        let answer = ask(libc::SIOCGIFHWADDR).map_err(failed)?;
        // SAFETY: SIOCGIFHWADDR filled this member.
        let kind = unsafe { answer.ifr_ifru.ifru_hwaddr }.sa_family;

        if !matches!(kind, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK) {
            return Err(LaneError::Refused {
                lane: NAME.to_owned(),
                name: name.to_owned(),
                why: format!("its frames have no Ethernet header (link type {kind})"),
                hint: "use an Ethernet-like interface: veth, tap, bridge, or a device".to_owned(),
            });
        }
        if flags & libc::IFF_UP == 0 {
            let down = io::Error::from_raw_os_error(libc::ENETDOWN);
            let hint = format!("try `ip link set dev {name} up`");
            return Err(LaneError::os(NAME, format!("use interface `{name}`"), down, &hint));
        }
        let mtu_bytes = usize::try_from(mtu).unwrap_or(0);
        Ok(Interface { name: name.to_owned(), index, mtu_bytes })
    }

    /// The longest frame that may leave: the header, the MTU and, as the kernel grants, a VLAN tag
    /// (it refuses four bytes too many that are none).
    pub(crate) fn frame_bytes_max(&self) -> usize {
        ETHERNET_BYTES + self.mtu_bytes + crate::vlan::TAG_BYTES
    }
}

/// True when a default route of this thread's network namespace leaves by the interface.
pub(crate) fn carries_default_route(name: &str) -> bool {
    let read = |file| fs::read_to_string(format!("/proc/thread-self/net/{file}"));
    // A namespace without IPv6 has no such file, and then no such route.
    let v4 = read("route").unwrap_or_default();
    let v6 = read("ipv6_route").unwrap_or_default();
    is_default_v4(&v4, name) || is_default_v6(&v6, name)
}

/// `/proc/net/route`: interface, destination, ..., mask in the eighth column.
fn is_default_v4(table: &str, name: &str) -> bool {
    table.lines().any(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        matches!(columns[..], [interface, "00000000", _, _, _, _, _, "00000000", ..] if interface == name)
    })
}

/// `/proc/net/ipv6_route`: destination, prefix length, ..., flags and interface in the last two
/// columns. Reject routes, which every kernel has on `lo`, are no way out.
fn is_default_v6(table: &str, name: &str) -> bool {
    const REJECT: u32 = 0x200;
    table.lines().any(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let [destination, "00", .., flags, interface] = columns[..] else { return false };
        interface == name
            && destination.bytes().all(|digit| digit == b'0')
            && u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & REJECT == 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_route_names_its_interface() {
        let v4 = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                  eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                  eth1\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        assert!(is_default_v4(v4, "eth0") && !is_default_v4(v4, "eth1"));
    }

    #[test]
    fn a_reject_route_is_no_default_route() {
        let zeros = "0".repeat(32);
        let route = |flags, name| {
            format!("{zeros} 00 {zeros} 00 {zeros} 00000400 00000001 00000000 {flags}     {name}\n")
        };
        let v6 = route("00000003", "eth0") + &route("00200200", "lo");
        assert!(is_default_v6(&v6, "eth0") && !is_default_v6(&v6, "lo"));
    }

    #[test]
    fn hostile_tables_are_no_default_route() {
        for table in ["", "\n\n", "eth0", "eth0 00000000", "x 00 y", "00 eth0"] {
            assert!(!is_default_v4(table, "eth0") && !is_default_v6(table, "eth0"), "{table:?}");
        }
    }
}
