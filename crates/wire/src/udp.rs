//! UDP (RFC 768).

use crate::{Malformed, be16};

/// Bytes of the header.
pub const UDP_BYTES: usize = 8;

/// The header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Header and payload bytes as claimed.
    pub total_bytes: u16,
    /// Checksum as it is; 0 means none over IPv4.
    pub checksum: u16,
}

impl Udp {
    /// Reads the header.
    ///
    /// # Errors
    /// [`Malformed::Truncated`] below 8 bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Udp, Malformed> {
        let b = bytes.first_chunk::<UDP_BYTES>().ok_or(Malformed::Truncated)?;
        Ok(Udp {
            source_port: be16(b, 0),
            destination_port: be16(b, 2),
            total_bytes: be16(b, 4),
            checksum: be16(b, 6),
        })
    }

    /// Writes the header as it is; false without the room.
    #[must_use]
    pub fn emit(&self, bytes: &mut [u8]) -> bool {
        let Some(b) = bytes.first_chunk_mut::<UDP_BYTES>() else { return false };
        b[..2].copy_from_slice(&self.source_port.to_be_bytes());
        b[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        b[4..6].copy_from_slice(&self.total_bytes.to_be_bytes());
        b[6..].copy_from_slice(&self.checksum.to_be_bytes());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn emits_what_it_parses(bytes in any::<[u8; 8]>()) {
            let mut out = [0; 8];
            prop_assert!(Udp::parse(&bytes).unwrap().emit(&mut out));
            prop_assert_eq!(out, bytes);
        }
    }
}
