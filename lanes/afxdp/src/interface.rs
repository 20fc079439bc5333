//! What this lane must know about a network interface: index, MTU, queues, whether it is up, and
//! whether the machine's default route leaves by it.
//!
//! Assumes Linux's interface ioctls and `/proc/thread-self/net`; everything is about the network
//! namespace of the calling thread. What it does not do: it changes nothing.

use crate::{
    config::NAME,
    sys::{self, Channels},
};
use laneway_core::LaneError;
use std::{
    fs, io,
    os::fd::{AsFd, OwnedFd},
};

/// The kernel's bound on names, with the terminating zero.
const NAME_BYTES_MAX: usize = libc::IFNAMSIZ;

/// An interface, asked by name.
pub(crate) struct Interface {
    name: String,
    index: u32,
    control: OwnedFd,
}

impl Interface {
    /// Finds `name` in this thread's network namespace.
    ///
    /// # Errors
    /// [`LaneError::NotFound`] when it is not there.
    pub(crate) fn find(name: &str) -> Result<Interface, LaneError> {
        let failed =
            |e| LaneError::os(NAME, format!("look up interface `{name}`"), e, "see `ip link`");
        if name.is_empty() || name.len() >= NAME_BYTES_MAX || name.contains('\0') {
            return Err(LaneError::no_interface(NAME, name));
        }
        let control = sys::socket(libc::AF_INET, libc::SOCK_DGRAM).map_err(failed)?;
        match sys::interface_index(control.as_fd(), name) {
            Ok(index) => Ok(Interface { name: name.to_owned(), index, control }),
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
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Its MTU in bytes, without the Ethernet header.
    pub(crate) fn mtu_bytes(&self) -> io::Result<u32> {
        sys::interface_mtu(self.control.as_fd(), &self.name)
    }

    /// Its queues; `None` when the driver does not say.
    pub(crate) fn channels(&self) -> Option<Channels> {
        sys::interface_channels(self.control.as_fd(), &self.name).ok()
    }

    /// Refuses a queue that the interface does not have; says what would give it that queue.
    ///
    /// # Errors
    /// [`LaneError::Refused`] with the number of queues there are.
    pub(crate) fn check_queue(&self, queue: u32) -> Result<(), LaneError> {
        match self.channels() {
            Some(channels) if queue >= channels.rx => Err(no_queue(&self.name, queue, channels)),
            _ => Ok(()),
        }
    }

    /// True while the interface exists and is up.
    pub(crate) fn is_up(&self) -> bool {
        sys::interface_flags(self.control.as_fd(), &self.name)
            .is_ok_and(|flags| flags & libc::IFF_UP != 0)
    }

    /// True when a default route of this network namespace leaves by this interface.
    pub(crate) fn carries_default_route(&self) -> bool {
        let read = |file| fs::read_to_string(format!("/proc/thread-self/net/{file}"));
        // A namespace without IPv6 has no such file, and then no such route.
        let v4 = read("route").unwrap_or_default();
        let v6 = read("ipv6_route").unwrap_or_default();
        is_default_v4(&v4, &self.name) || is_default_v6(&v6, &self.name)
    }
}

fn no_queue(name: &str, queue: u32, channels: Channels) -> LaneError {
    let want = queue + 1;
    let hint = if want <= channels.max_combined {
        format!(
            "raise the number with `ethtool -L {name} combined {want}`, or use fewer workers or a lower queue="
        )
    } else if want <= channels.max_rx {
        format!(
            "raise the number with `ethtool -L {name} rx {want} tx {want}`, or use fewer workers or a lower queue="
        )
    } else {
        let most = channels.max_combined.max(channels.max_rx);
        format!(
            "it can have at most {most} (`ethtool -l {name}`): use fewer workers or a lower queue="
        )
    };
    LaneError::Refused {
        lane: NAME.to_owned(),
        name: name.to_owned(),
        why: format!("it has {} receive queues, so no queue {queue}", channels.rx),
        hint,
    }
}

/// `/proc/net/route`: interface, destination, gateway, flags, ..., mask in the eighth column.
fn is_default_v4(table: &str, name: &str) -> bool {
    table.lines().skip(1).any(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        columns.len() > 7
            && columns[0] == name
            && columns[1] == "00000000"
            && columns[7] == "00000000"
    })
}

/// `/proc/net/ipv6_route`: destination, prefix length, ..., flags in the ninth and the interface in
/// the tenth column. Reject routes (on `lo`, flag 0x200) are no way out.
fn is_default_v6(table: &str, name: &str) -> bool {
    const REJECT: u32 = 0x200;
    table.lines().any(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        columns.len() > 9
            && columns[9] == name
            && columns[1] == "00"
            && columns[0].bytes().all(|b| b == b'0')
            && u32::from_str_radix(columns[8], 16).is_ok_and(|flags| flags & REJECT == 0)
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
        let zeros = "00000000000000000000000000000000";
        let route = |flags, name| {
            format!("{zeros} 00 {zeros} 00 {zeros} 00000400 00000001 00000000 {flags} {name}\n")
        };
        let v6 = route("00000003", "eth0") + &route("00200200", "lo");
        assert!(is_default_v6(&v6, "eth0") && !is_default_v6(&v6, "lo"));
    }

    #[test]
    fn a_queue_that_is_not_there_is_refused_with_the_count_and_the_command() {
        let sentence = |max_combined, max_rx| {
            no_queue("eth7", 5, Channels { rx: 2, max_combined, max_rx }).to_string()
        };
        for (text, words) in [
            (sentence(8, 0), "`ethtool -L eth7 combined 6`"),
            (sentence(0, 8), "`ethtool -L eth7 rx 6 tx 6`"),
            (sentence(0, 4), "at most 4"),
            (sentence(4, 0), "at most 4"),
        ] {
            assert!(text.contains("2 receive queues, so no queue 5"), "{text}");
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn an_unknown_interface_is_named() {
        for name in ["no-such-if0", "", "a-name-that-is-too-long-to-exist"] {
            let message = Interface::find(name).err().expect("not found").to_string();
            assert!(message.contains(&format!("no interface `{name}`")), "{message}");
        }
    }

    #[test]
    fn loopback_is_found_and_has_an_mtu() {
        let lo = Interface::find("lo").unwrap();
        assert_eq!(lo.index(), 1);
        assert!(lo.mtu_bytes().unwrap() > 1000 && !lo.carries_default_route());
    }
}
