//! The header that ICMP (RFC 792) and ICMPv6 (RFC 4443) share.

use crate::{Malformed, be16};

/// Bytes of the header.
pub const ICMP_BYTES: usize = 8;

/// The header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icmp {
    /// Message type; its meaning depends on the IP version.
    pub kind: u8,
    /// Code within the type.
    pub code: u8,
    /// Checksum as it is.
    pub checksum: u16,
    /// The four bytes whose meaning depends on the type (identifier and sequence of an echo).
    pub rest: [u8; 4],
}

impl Icmp {
    /// Reads the header.
    ///
    /// # Errors
    /// [`Malformed::Truncated`] below 8 bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Icmp, Malformed> {
        let b = bytes.first_chunk::<ICMP_BYTES>().ok_or(Malformed::Truncated)?;
        Ok(Icmp { kind: b[0], code: b[1], checksum: be16(b, 2), rest: [b[4], b[5], b[6], b[7]] })
    }
}
