//! ARP over Ethernet for IPv4 (RFC 826): the packet, as values.

use laneway_wire::Mac;
use std::net::Ipv4Addr;

/// Bytes of a packet.
pub(crate) const ARP_BYTES: usize = 28;
/// Ethernet, IPv4, and their address lengths.
const PREAMBLE: [u8; 6] = [0, 1, 8, 0, 6, 4];
const REQUEST: u16 = 1;
const REPLY: u16 = 2;

/// One packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arp {
    /// Asks; otherwise it answers.
    pub(crate) is_request: bool,
    pub(crate) sender_mac: Mac,
    pub(crate) sender: Ipv4Addr,
    pub(crate) target_mac: Mac,
    pub(crate) target: Ipv4Addr,
}

impl Arp {
    /// Reads a packet; `None` for what is cut or no ARP of this kind.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Arp> {
        let b = bytes.first_chunk::<ARP_BYTES>()?;
        let is_request = match u16::from_be_bytes([b[6], b[7]]) {
            REQUEST => true,
            REPLY => false,
            _ => return None,
        };
        if b[..6] != PREAMBLE {
            return None;
        }
        Some(Arp {
            is_request,
            sender_mac: [b[8], b[9], b[10], b[11], b[12], b[13]],
            sender: Ipv4Addr::new(b[14], b[15], b[16], b[17]),
            target_mac: [b[18], b[19], b[20], b[21], b[22], b[23]],
            target: Ipv4Addr::new(b[24], b[25], b[26], b[27]),
        })
    }

    /// The packet's bytes.
    pub(crate) fn bytes(&self) -> [u8; ARP_BYTES] {
        let mut b = [0; ARP_BYTES];
        b[..6].copy_from_slice(&PREAMBLE);
        b[6..8].copy_from_slice(&(if self.is_request { REQUEST } else { REPLY }).to_be_bytes());
        b[8..14].copy_from_slice(&self.sender_mac);
        b[14..18].copy_from_slice(&self.sender.octets());
        b[18..24].copy_from_slice(&self.target_mac);
        b[24..].copy_from_slice(&self.target.octets());
        b
    }

    /// Says which host has `address` (RFC 5227, 2.3: an announcement is a request for oneself).
    pub(crate) fn announcement(mac: Mac, address: Ipv4Addr) -> Arp {
        Arp {
            is_request: true,
            sender_mac: mac,
            sender: address,
            target_mac: [0; 6],
            target: address,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused_and_what_is_read_is_written_the_same(
            bytes in proptest::collection::vec(any::<u8>(), 0..60), shaped: bool, operation in 0u8..4
        ) {
            let mut bytes = bytes;
            if shaped && bytes.len() >= 8 {
                bytes[..6].copy_from_slice(&PREAMBLE);
                bytes[6..8].copy_from_slice(&[0, operation]);
            }
            if let Some(arp) = Arp::parse(&bytes) {
                prop_assert_eq!(&arp.bytes()[..], &bytes[..ARP_BYTES]);
            }
        }
    }

    #[test]
    fn an_announcement_asks_for_itself() {
        let own = Ipv4Addr::new(10, 0, 0, 1);
        let arp = Arp::parse(&Arp::announcement([2; 6], own).bytes()).unwrap();
        assert!(arp.is_request && arp.sender == own && arp.target == own);
    }
}
