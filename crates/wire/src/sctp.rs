//! SCTP (RFC 9260): the common header only.

use crate::{Malformed, be16, be32};

/// Bytes of the common header.
pub const SCTP_BYTES: usize = 12;

/// The common header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sctp {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Verification tag.
    pub tag: u32,
}

impl Sctp {
    /// Reads the common header.
    ///
    /// # Errors
    /// [`Malformed::Truncated`] below 12 bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Sctp, Malformed> {
        let b = bytes.first_chunk::<SCTP_BYTES>().ok_or(Malformed::Truncated)?;
        Ok(Sctp { source_port: be16(b, 0), destination_port: be16(b, 2), tag: be32(b, 4) })
    }
}
