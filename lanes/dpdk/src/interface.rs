//! What this lane must know about a network interface: index, MTU, whether it is up, what its driver
//! dropped, and whether the machine's default route leaves by it.
//!
//! Assumes Linux's interface ioctls and `/proc/thread-self/net`; everything is about the network
//! namespace of the calling thread. What it does not do: it changes nothing.

use crate::config::NAME;
use laneway_core::LaneError;
use std::{
    ffi::c_ulong,
    fs, io, mem,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

/// An interface, asked by name.
pub(crate) struct Interface {
    name: String,
    control: OwnedFd,
}

impl Interface {
    /// Finds `name` in this thread's network namespace.
    ///
    /// # Errors
    /// [`LaneError::NotFound`] when it is not there.
    pub(crate) fn find(name: &str) -> Result<Interface, LaneError> {
        if !is_name(name) {
            return Err(LaneError::no_interface(NAME, name));
        }
        let failed =
            |e| LaneError::os(NAME, format!("look up interface `{name}`"), e, "see `ip link`");
        let interface = Interface { name: name.to_owned(), control: control().map_err(failed)? };
        match interface.index() {
            Ok(_) => Ok(interface),
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => {
                Err(LaneError::no_interface(NAME, name))
            }
            Err(e) => Err(failed(e)),
        }
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its index.
    pub(crate) fn index(&self) -> io::Result<u32> {
        let answer = self.ask(libc::SIOCGIFINDEX)?;
        // SAFETY: SIOCGIFINDEX filled this member.
        Ok(unsafe { answer.ifr_ifru.ifru_ifindex } as u32)
    }

    /// Its MTU in bytes, without the Ethernet header.
    pub(crate) fn mtu_bytes(&self) -> io::Result<usize> {
        let answer = self.ask(libc::SIOCGIFMTU)?;
        // SAFETY: SIOCGIFMTU filled this member.
        Ok(usize::try_from(unsafe { answer.ifr_ifru.ifru_mtu }).unwrap_or(0))
    }

    /// True while the interface exists and is up.
    pub(crate) fn is_up(&self) -> bool {
        self.ask(libc::SIOCGIFFLAGS).is_ok_and(|answer| {
            // SAFETY: SIOCGIFFLAGS filled this member.
            let flags = unsafe { answer.ifr_ifru.ifru_flags };
            libc::c_int::from(flags) & libc::IFF_UP != 0
        })
    }

    /// Frames that the kernel wanted to send by this interface and its driver dropped: on a tap, those
    /// that nobody fetched in time.
    pub(crate) fn tx_dropped(&self) -> u64 {
        let table = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
        tx_dropped(&table, &self.name).unwrap_or(0)
    }

    /// True when a default route of this network namespace leaves by this interface.
    pub(crate) fn carries_default_route(&self) -> bool {
        let read = |file| fs::read_to_string(format!("/proc/thread-self/net/{file}"));
        // A namespace without IPv6 has no such file, and then no such route.
        let v4 = read("route").unwrap_or_default();
        let v6 = read("ipv6_route").unwrap_or_default();
        is_default_v4(&v4, &self.name) || is_default_v6(&v6, &self.name)
    }

    fn ask(&self, request: c_ulong) -> io::Result<libc::ifreq> {
        // SAFETY: made of integers, bytes and a pointer; zero is a value of each.
        let mut question: libc::ifreq = unsafe { mem::zeroed() };
        for (to, from) in question.ifr_name.iter_mut().zip(self.name.bytes()) {
            *to = from as libc::c_char;
        }
        // SAFETY: an ifreq, as each of these requests reads and writes.
        match unsafe { libc::ioctl(self.control.as_raw_fd(), request, &mut question) } {
            0 => Ok(question),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// True for a text that can be an interface's name.
pub(crate) fn is_name(name: &str) -> bool {
    (1..libc::IFNAMSIZ).contains(&name.len())
        && !name.bytes().any(|b| b == b'/' || b == 0 || b == b',' || b.is_ascii_whitespace())
}

fn control() -> io::Result<OwnedFd> {
    // SAFETY: plain integers.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just given to us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `/proc/net/dev`: name, colon, eight receive columns, then sent bytes, packets, errors, drops.
fn tx_dropped(table: &str, name: &str) -> Option<u64> {
    table.lines().find_map(|line| {
        let (interface, columns) = line.split_once(':')?;
        (interface.trim() == name).then(|| columns.split_whitespace().nth(11)?.parse().ok())?
    })
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
        let zeros = "0".repeat(32);
        let route = |flags, name| {
            format!("{zeros} 00 {zeros} 00 {zeros} 00000400 00000001 00000000 {flags}     {name}\n")
        };
        let v6 = route("00000003", "eth0") + &route("00200200", "lo");
        assert!(is_default_v6(&v6, "eth0") && !is_default_v6(&v6, "lo"));
    }

    #[test]
    fn the_drops_of_an_interface_are_in_its_row() {
        let table = "Inter-|   Receive                            |  Transmit\n \
                     face |bytes    packets errs drop fifo frame compressed multicast|bytes\n\
                         lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n\
                       tap7: 0 0 0 0 0 0 0 0 60 1 0 42 0 0 0 0\n";
        assert_eq!(tx_dropped(table, "tap7"), Some(42));
        assert_eq!(tx_dropped(table, "tap"), None);
        assert_eq!(tx_dropped("tap7: 1", "tap7"), None);
    }

    #[test]
    fn names_that_could_be_no_interface_are_refused() {
        for name in ["", "a-name-that-is-too-long", "a,b", "a/b", "a b"] {
            assert!(!is_name(name), "{name}");
            assert!(Interface::find(name).is_err(), "{name}");
        }
        let lo = Interface::find("lo").unwrap();
        assert!(lo.mtu_bytes().unwrap() > 1000 && !lo.carries_default_route());
    }
}
