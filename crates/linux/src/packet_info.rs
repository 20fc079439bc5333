//! What the kernel tells beside a received IPv4 datagram (`IP_PKTINFO`, ip(7)).

use std::net::Ipv4Addr;

/// `struct in_pktinfo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Info {
    /// The number of the interface that it arrived at; 0 where the kernel does not say.
    pub interface: u32,
    /// The address of ours that an answer leaves from; unspecified where the kernel knows no route.
    pub own: Ipv4Addr,
    /// The destination in the header.
    pub destination: Ipv4Addr,
}

impl Ipv4Info {
    /// By the bytes of the control message; `None` of fewer than there are.
    pub fn read(data: &[u8]) -> Option<Ipv4Info> {
        let &[i, j, k, l, a, b, c, d, e, f, g, h] = data.first_chunk()?;
        let (own, destination) = (Ipv4Addr::new(a, b, c, d), Ipv4Addr::new(e, f, g, h));
        Some(Ipv4Info { interface: u32::from_ne_bytes([i, j, k, l]), own, destination })
    }

    /// True for what was sent to all hosts of a network, which the broadcast address of a subnet does not show: what
    /// was sent to one host was sent to our own address.
    pub fn is_broadcast(&self) -> bool {
        self.own != self.destination
            && !self.own.is_unspecified()
            && !self.destination.is_multicast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_to_another_address_than_ours_was_sent_to_many() {
        for (own, destination, is_broadcast) in [
            ([10, 0, 0, 7], [10, 0, 0, 7], false),
            ([10, 0, 0, 7], [10, 0, 0, 255], true),
            ([10, 0, 0, 7], [239, 1, 2, 3], false),
            ([0; 4], [10, 0, 0, 7], false),
        ] {
            let data = [&7u32.to_ne_bytes()[..], &own, &destination].concat();
            let info = Ipv4Info::read(&data).unwrap();
            assert_eq!((info.own, info.destination), (own.into(), destination.into()));
            assert_eq!(info.interface, 7);
            assert_eq!(info.is_broadcast(), is_broadcast, "{info:?}");
            assert_eq!(Ipv4Info::read(&data[..11]), None);
        }
    }
}
