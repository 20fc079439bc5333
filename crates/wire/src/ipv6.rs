//! IPv6 (RFC 8200).

use crate::{Malformed, be16, be32};
use core::net::Ipv6Addr;

/// Bytes of the fixed header.
pub const IPV6_BYTES: usize = 40;

/// The fixed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6 {
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Bytes behind this header as claimed, extension headers included; 0 for a jumbogram.
    pub payload_bytes: u16,
    /// What follows: an extension header or layer 4.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
}

impl Ipv6 {
    /// Reads the header.
    ///
    /// # Errors
    /// Fewer than 40 bytes, or another version.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Ipv6, Malformed> {
        let b = bytes.first_chunk::<IPV6_BYTES>().ok_or(Malformed::Truncated)?;
        if b[0] >> 4 != 6 {
            return Err(Malformed::Version);
        }
        let address = |at: usize| {
            let mut a = [0; 16];
            a.copy_from_slice(&b[at..at + 16]);
            Ipv6Addr::from(a)
        };
        Ok(Ipv6 {
            traffic_class: b[0] << 4 | b[1] >> 4,
            flow_label: be32(b, 0) & 0x000f_ffff,
            payload_bytes: be16(b, 4),
            next_header: b[6],
            hop_limit: b[7],
            source: address(8),
            destination: address(24),
        })
    }

    /// Writes the header; false without the room.
    #[must_use]
    pub fn emit(&self, bytes: &mut [u8]) -> bool {
        let Some(b) = bytes.first_chunk_mut::<IPV6_BYTES>() else { return false };
        let word = 6 << 28 | u32::from(self.traffic_class) << 20 | (self.flow_label & 0x000f_ffff);
        b[..4].copy_from_slice(&word.to_be_bytes());
        b[4..6].copy_from_slice(&self.payload_bytes.to_be_bytes());
        b[6] = self.next_header;
        b[7] = self.hop_limit;
        b[8..24].copy_from_slice(&self.source.octets());
        b[24..40].copy_from_slice(&self.destination.octets());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn emits_what_it_parses(bytes in proptest::array::uniform32(any::<u8>()), more in any::<[u8; 8]>()) {
            let mut all = [0; 40];
            all[..32].copy_from_slice(&bytes);
            all[32..].copy_from_slice(&more);
            all[0] = 0x60 | all[0] & 0x0f;
            let mut out = [0; 40];
            prop_assert!(Ipv6::parse(&all).unwrap().emit(&mut out));
            prop_assert_eq!(out, all);
        }
    }
}
