//! What addresses mean: which are a sender's, a group's, for all hosts, and where they lie on Ethernet.

use laneway_wire::Mac;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// All hosts on the link.
pub(crate) const BROADCAST_MAC: Mac = [0xff; 6];
/// All nodes of the link (RFC 4291, 2.7.1).
pub(crate) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// An address of ours and how many of its bits are the link's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OnLink {
    pub(crate) address: IpAddr,
    pub(crate) prefix_bits: u8,
}

impl OnLink {
    /// True when `other` lies on the same link.
    pub(crate) fn contains(&self, other: IpAddr) -> bool {
        match (self.address, other) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (own.to_bits() ^ other.to_bits()) & self.mask_v4() == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix_bits)).unwrap_or(0);
                (own.to_bits() ^ other.to_bits()) & mask == 0
            }
            _ => false,
        }
    }

    /// The link's directed broadcast address; a /31 or /32 has none (RFC 3021).
    pub(crate) fn is_broadcast(&self, other: Ipv4Addr) -> bool {
        match self.address {
            IpAddr::V4(own) if self.prefix_bits < 31 => {
                other.to_bits() == own.to_bits() | !self.mask_v4()
            }
            _ => false,
        }
    }

    fn mask_v4(&self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.prefix_bits)).unwrap_or(0)
    }
}

/// True for what may stand in the source field of a packet that expects an answer.
pub(crate) fn is_sender(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let first = v4.octets()[0];
            // 0/8 and 240/4 name no host (RFC 1122, 3.2.1.3), 127/8 never travels.
            !(first == 0 || first == 127 || first >= 224)
        }
        IpAddr::V6(v6) => !(v6.is_unspecified() || v6.is_loopback() || v6.is_multicast()),
    }
}

/// The MAC address that a group's frames go to (RFC 1112, 6.4; RFC 2464, 7).
pub(crate) fn group_mac(group: IpAddr) -> Mac {
    match group {
        IpAddr::V4(v4) => {
            let [_, b, c, d] = v4.octets();
            [0x01, 0x00, 0x5e, b & 0x7f, c, d]
        }
        IpAddr::V6(v6) => {
            let o = v6.octets();
            [0x33, 0x33, o[12], o[13], o[14], o[15]]
        }
    }
}

/// The address of its link that a MAC address stands for (RFC 4291, appendix A).
pub(crate) fn link_local(mac: Mac) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac;
    let [first, last] = [[a ^ 2, b, c, 0xff], [0xfe, d, e, f]].map(u32::from_be_bytes);
    Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(first) << 32 | u128::from(last))
}

/// The group that asks for the MAC address of `target` go to (RFC 4291, 2.7.1).
pub(crate) fn solicited_node(target: Ipv6Addr) -> Ipv6Addr {
    let o = target.octets();
    let low = u16::from_be_bytes([o[14], o[15]]);
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(o[13]), low)
}

/// True for a MAC address that one interface has.
pub(crate) fn is_unicast_mac(mac: Mac) -> bool {
    mac[0] & 1 == 0 && mac != [0; 6]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_link(address: &str, prefix_bits: u8) -> OnLink {
        OnLink { address: address.parse().unwrap(), prefix_bits }
    }

    #[test]
    fn prefixes_of_every_length_hold_what_they_should() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(on_link("10.0.0.1", 24).contains(ip("10.0.0.200")));
        assert!(!on_link("10.0.0.1", 24).contains(ip("10.0.1.1")));
        assert!(on_link("10.0.0.1", 0).contains(ip("1.2.3.4")));
        assert!(!on_link("10.0.0.1", 32).contains(ip("10.0.0.2")));
        assert!(on_link("fd00::1", 64).contains(ip("fd00::ffff:1")));
        assert!(!on_link("fd00::1", 128).contains(ip("fd00::2")));
        assert!(!on_link("fd00::1", 0).contains(ip("10.0.0.1")));
    }

    #[test]
    fn a_link_of_two_has_no_broadcast() {
        assert!(on_link("10.0.0.1", 24).is_broadcast(Ipv4Addr::new(10, 0, 0, 255)));
        assert!(!on_link("10.0.0.0", 31).is_broadcast(Ipv4Addr::new(10, 0, 0, 1)));
    }

    #[test]
    fn groups_have_the_macs_of_the_rfcs() {
        assert_eq!(group_mac("239.129.2.3".parse().unwrap()), [1, 0, 0x5e, 1, 2, 3]);
        let own = link_local([2, 0, 0, 0x12, 0x34, 0x56]);
        assert_eq!(own, "fe80::ff:fe12:3456".parse::<Ipv6Addr>().unwrap());
        let node = solicited_node("fd00::1234:5678".parse().unwrap());
        assert_eq!(node, "ff02::1:ff34:5678".parse::<Ipv6Addr>().unwrap());
        assert_eq!(group_mac(node.into()), [0x33, 0x33, 0xff, 0x34, 0x56, 0x78]);
    }

    #[test]
    fn the_unspecified_address_is_no_sender() {
        for bad in ["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "::", "::1", "ff02::1"]
        {
            assert!(!is_sender(bad.parse().unwrap()), "{bad}");
        }
        assert!(is_sender("10.0.0.1".parse().unwrap()) && is_sender("fe80::1".parse().unwrap()));
    }
}
