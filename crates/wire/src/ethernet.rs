//! Ethernet II and 802.1Q/802.1ad tags.

use crate::{Malformed, be16};

/// Bytes of the header without tags.
pub const ETHERNET_BYTES: usize = 14;
/// Bytes of one tag, including the EtherType behind it.
pub const VLAN_BYTES: usize = 4;

/// EtherTypes used here (IEEE 802 Numbers registry).
pub mod ether_type {
    /// IPv4, RFC 894.
    pub const IPV4: u16 = 0x0800;
    /// ARP, RFC 826.
    pub const ARP: u16 = 0x0806;
    /// IPv6, RFC 2464.
    pub const IPV6: u16 = 0x86dd;
    /// 802.1Q customer tag.
    pub const VLAN: u16 = 0x8100;
    /// 802.1ad service tag.
    pub const QINQ: u16 = 0x88a8;
    /// The tag that some switches used before 802.1ad.
    pub const QINQ_OLD: u16 = 0x9100;
}

/// A MAC address.
pub type Mac = [u8; 6];

/// True for the EtherTypes behind which a VLAN tag follows.
#[inline]
pub fn is_vlan_type(ether_type: u16) -> bool {
    matches!(ether_type, ether_type::VLAN | ether_type::QINQ | ether_type::QINQ_OLD)
}

/// The Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ethernet {
    /// Destination address.
    pub destination: Mac,
    /// Source address.
    pub source: Mac,
    /// EtherType, or an 802.3 length below 0x0600.
    pub ether_type: u16,
}

impl Ethernet {
    /// Reads the header.
    ///
    /// # Errors
    /// [`Malformed::Truncated`] below 14 bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Ethernet, Malformed> {
        let b = bytes.first_chunk::<ETHERNET_BYTES>().ok_or(Malformed::Truncated)?;
        let mut header = Ethernet { destination: [0; 6], source: [0; 6], ether_type: be16(b, 12) };
        header.destination.copy_from_slice(&b[..6]);
        header.source.copy_from_slice(&b[6..12]);
        Ok(header)
    }

    /// Writes the header; false without the room.
    #[must_use]
    pub fn emit(&self, bytes: &mut [u8]) -> bool {
        let Some(b) = bytes.first_chunk_mut::<ETHERNET_BYTES>() else { return false };
        b[..6].copy_from_slice(&self.destination);
        b[6..12].copy_from_slice(&self.source);
        b[12..].copy_from_slice(&self.ether_type.to_be_bytes());
        true
    }
}

/// One tag as it lies behind its own EtherType.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanTag {
    /// Priority (3 bits), drop eligible (1), VLAN id (12).
    pub tci: u16,
    /// The EtherType behind the tag.
    pub ether_type: u16,
}

impl VlanTag {
    /// Reads a tag.
    ///
    /// # Errors
    /// [`Malformed::Truncated`] below 4 bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<VlanTag, Malformed> {
        let b = bytes.first_chunk::<VLAN_BYTES>().ok_or(Malformed::Truncated)?;
        Ok(VlanTag { tci: be16(b, 0), ether_type: be16(b, 2) })
    }

    /// Writes the tag; false without the room.
    #[must_use]
    pub fn emit(&self, bytes: &mut [u8]) -> bool {
        let Some(b) = bytes.first_chunk_mut::<VLAN_BYTES>() else { return false };
        b[..2].copy_from_slice(&self.tci.to_be_bytes());
        b[2..].copy_from_slice(&self.ether_type.to_be_bytes());
        true
    }

    /// The 12-bit VLAN id.
    pub fn id(&self) -> u16 {
        self.tci & 0x0fff
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn emits_what_it_parses(bytes in any::<[u8; 18]>()) {
            let mut out = [0; 18];
            prop_assert!(Ethernet::parse(&bytes).unwrap().emit(&mut out));
            prop_assert!(VlanTag::parse(&bytes[14..]).unwrap().emit(&mut out[14..]));
            prop_assert_eq!(out, bytes);
        }
    }

    #[test]
    fn refuses_a_cut_header() {
        assert_eq!(Ethernet::parse(&[0; 13]), Err(Malformed::Truncated));
        assert_eq!(VlanTag::parse(&[0; 3]), Err(Malformed::Truncated));
    }
}
