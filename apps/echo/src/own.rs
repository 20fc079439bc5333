//! Addresses: which are ours, which may be answered, and the key that both placements know them by.
//!
//! A key is 16 bytes: an IPv6 address as it is; an IPv4 address behind twelve bytes of ones, where
//! IPv6 has a group that no packet comes from. So an IPv6 packet can never pass for the IPv4 host of
//! the same bytes, as it could with mapped addresses.

use laneway_wire::Mac;
use std::net::IpAddr;

/// An address of either family.
pub(crate) type Key = [u8; 16];

/// The key of an IPv4 address.
#[inline]
pub(crate) fn key_v4(address: [u8; 4]) -> Key {
    let mut key = [0xff; 16];
    key[12..].copy_from_slice(&address);
    key
}

/// The key of any address; a mapped one counts as IPv4.
pub(crate) fn key(address: IpAddr) -> Key {
    match address.to_canonical() {
        IpAddr::V4(v4) => key_v4(v4.octets()),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// True for what may stand in the source field of a packet that expects an answer.
pub(crate) fn is_sender(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_sender_v4(v4.octets()),
        IpAddr::V6(v6) => is_sender_v6(v6.octets()),
    }
}

/// 0/8, 224/4 and 240/4 name no single host (RFC 1122, 3.2.1.3), 127/8 never travels.
#[inline]
pub(crate) fn is_sender_v4(address: [u8; 4]) -> bool {
    !(address[0] == 0 || address[0] == 127 || address[0] >= 224)
}

/// The unspecified and the loopback address are all zeros but for the last bit; ff00::/8 are groups.
#[inline]
pub(crate) fn is_sender_v6(address: [u8; 16]) -> bool {
    address[0] != 0xff && (address[..15] != [0; 15] || address[15] > 1)
}

/// What is ours.
#[derive(Clone, Debug)]
pub(crate) struct AnsweredAddresses {
    pub(crate) mac: Mac,
    pub(crate) answers_neighbours: bool,
    /// Sorted, each once.
    keys: Vec<Key>,
}

impl AnsweredAddresses {
    pub(crate) fn new(
        mac: Mac,
        addresses: &[IpAddr],
        answers_neighbours: bool,
    ) -> AnsweredAddresses {
        let mut keys: Vec<Key> = addresses.iter().map(|&address| key(address)).collect();
        keys.sort_unstable();
        keys.dedup();
        AnsweredAddresses { mac, answers_neighbours, keys }
    }

    pub(crate) fn keys(&self) -> &[Key] {
        &self.keys
    }

    #[inline]
    pub(crate) fn has_v4(&self, address: [u8; 4]) -> bool {
        self.has(&key_v4(address))
    }

    /// A group is never ours, whatever its bytes.
    #[inline]
    pub(crate) fn has_v6(&self, address: [u8; 16]) -> bool {
        address[0] != 0xff && self.has(&address)
    }

    /// Of either family.
    #[inline]
    pub(crate) fn has_ip(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(v4) => self.has_v4(v4.octets()),
            IpAddr::V6(v6) => self.has_v6(v6.octets()),
        }
    }

    #[inline]
    fn has(&self, key: &Key) -> bool {
        match &self.keys[..] {
            [only] => only == key,
            keys => keys.binary_search(key).is_ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_whose_bytes_are_the_key_of_an_ipv4_address_is_not_ours() {
        let own = AnsweredAddresses::new([0; 6], &["10.0.0.1".parse().unwrap()], true);
        assert!(own.has_v4([10, 0, 0, 1]));
        assert!(!own.has_v6(key_v4([10, 0, 0, 1])));
        assert!(!own.has_v6("::ffff:10.0.0.1".parse::<std::net::Ipv6Addr>().unwrap().octets()));
    }

    #[test]
    fn addresses_given_twice_are_known_once() {
        let addresses = ["10.0.0.2", "::ffff:10.0.0.2", "10.0.0.1"].map(|a| a.parse().unwrap());
        let own = AnsweredAddresses::new([0; 6], &addresses, true);
        assert_eq!(own.keys(), [key_v4([10, 0, 0, 1]), key_v4([10, 0, 0, 2])]);
    }
}
