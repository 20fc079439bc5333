//! Which port of a stream stack a packet is for.

use crate::host::Audience;
use laneway_core::{CapsReport, FrameLane, PortId};
use std::net::{IpAddr, SocketAddr};

/// The addresses listened to; port `i` is the `i`-th of the config.
pub(crate) struct Listeners {
    count: usize,
    /// By transport port, so that one search finds the few that can match.
    sorted: Vec<(u16, IpAddr, u8)>,
}

impl Listeners {
    pub(crate) fn new(addresses: &[SocketAddr]) -> Listeners {
        let mut sorted: Vec<_> =
            addresses.iter().enumerate().map(|(i, a)| (a.port(), a.ip(), i as u8)).collect();
        sorted.sort_unstable_by_key(|&(port, ..)| port);
        Listeners { count: addresses.len(), sorted }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The port that listens to exactly this address, else the one that listens to all of its IP
    /// version.
    pub(crate) fn find(&self, destination: SocketAddr, audience: Audience) -> Option<u8> {
        let first = self.sorted.partition_point(|&(port, ..)| port < destination.port());
        let mut any = None;
        for &(port, address, id) in &self.sorted[first..] {
            if port != destination.port() {
                break;
            }
            if address == destination.ip() && audience != Audience::Everybody {
                return Some(id);
            }
            if address.is_unspecified() && address.is_ipv4() == destination.is_ipv4() {
                any = Some(id);
            }
        }
        any
    }

    /// Listens no more.
    pub(crate) fn close(&mut self) {
        self.sorted.clear();
    }
}

/// What each port of a stack obtained: what its interface did, and the addresses on top.
pub(crate) fn caps<L: FrameLane>(
    lane: &L,
    listen: &[SocketAddr],
    mut interface_of: impl FnMut(IpAddr) -> Option<usize>,
) -> Vec<CapsReport> {
    let report = |address: &SocketAddr| {
        let interface = interface_of(address.ip()).unwrap_or(0);
        let mut caps = lane.caps(PortId(interface as u32)).clone();
        caps.fact("listen", address);
        caps.fact("stack", format!("in user space over lane {}", lane.name()));
        caps
    };
    listen.iter().map(report).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exact_address_wins_over_all_addresses() {
        let parse = |text: &str| text.parse::<SocketAddr>().unwrap();
        let list = ["0.0.0.0:7", "10.0.0.1:7", "[::]:7", "10.0.0.1:9", "239.1.1.1:9"].map(parse);
        let listeners = Listeners::new(&list);
        let find = |text, audience| listeners.find(parse(text), audience);
        assert_eq!(find("10.0.0.1:7", Audience::Us), Some(1));
        assert_eq!(find("10.0.0.2:7", Audience::Us), Some(0));
        assert_eq!(find("[fd00::1]:7", Audience::Us), Some(2));
        assert_eq!(find("239.1.1.1:9", Audience::Group), Some(4));
        assert_eq!(find("10.0.0.255:7", Audience::Everybody), Some(0));
        assert_eq!(find("10.0.0.255:9", Audience::Everybody), None);
        assert_eq!(find("10.0.0.1:8", Audience::Us), None);
    }
}
