//! TCP (RFC 9293): the fixed header and an iterator over options.

use crate::{Malformed, be16, be32};

/// Bytes of the header without options.
pub const TCP_BYTES_MIN: usize = 20;

/// Flag bits as they lie in the header's 13th and 14th byte.
pub mod flags {
    /// No more data from the sender.
    pub const FIN: u16 = 0x001;
    /// Synchronise sequence numbers.
    pub const SYN: u16 = 0x002;
    /// Reset.
    pub const RST: u16 = 0x004;
    /// Push.
    pub const PSH: u16 = 0x008;
    /// The acknowledgement field is significant.
    pub const ACK: u16 = 0x010;
    /// The urgent pointer is significant.
    pub const URG: u16 = 0x020;
    /// ECN echo (RFC 3168).
    pub const ECE: u16 = 0x040;
    /// Congestion window reduced (RFC 3168).
    pub const CWR: u16 = 0x080;
    /// Accurate ECN (RFC 9768), once NS.
    pub const AE: u16 = 0x100;
}

/// The fixed part of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number.
    pub acknowledgement: u32,
    /// Header length in bytes as claimed: 0 to 60, below 20 if wrong.
    pub header_bytes: usize,
    /// The nine flags.
    pub flags: u16,
    /// Window, unscaled.
    pub window: u16,
    /// Checksum as it is.
    pub checksum: u16,
    /// Urgent pointer.
    pub urgent: u16,
}

impl Tcp {
    /// Reads the fixed part; the header length is returned as claimed.
    ///
    /// # Errors
    /// [`Malformed::Truncated`] below 20 bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Tcp, Malformed> {
        let b = bytes.first_chunk::<TCP_BYTES_MIN>().ok_or(Malformed::Truncated)?;
        Ok(Tcp {
            source_port: be16(b, 0),
            destination_port: be16(b, 2),
            sequence: be32(b, 4),
            acknowledgement: be32(b, 8),
            header_bytes: usize::from(b[12] >> 4) * 4,
            flags: u16::from(b[12] & 1) << 8 | u16::from(b[13]),
            window: be16(b, 14),
            checksum: be16(b, 16),
            urgent: be16(b, 18),
        })
    }

    /// Writes the fixed part as it is, reserved bits zero; false without the room.
    #[must_use]
    pub fn emit(&self, bytes: &mut [u8]) -> bool {
        let Some(b) = bytes.first_chunk_mut::<TCP_BYTES_MIN>() else { return false };
        b[..2].copy_from_slice(&self.source_port.to_be_bytes());
        b[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        b[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        b[8..12].copy_from_slice(&self.acknowledgement.to_be_bytes());
        b[12] = ((self.header_bytes / 4) as u8) << 4 | ((self.flags >> 8) as u8 & 1);
        b[13] = (self.flags & 0xff) as u8;
        b[14..16].copy_from_slice(&self.window.to_be_bytes());
        b[16..18].copy_from_slice(&self.checksum.to_be_bytes());
        b[18..20].copy_from_slice(&self.urgent.to_be_bytes());
        true
    }
}

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOption<'a> {
    /// Maximum segment size.
    Mss(u16),
    /// Window scale: the shift, as it is (RFC 7323 caps its effect at 14).
    WindowScale(u8),
    /// Any other, with its content.
    Other(u8, &'a [u8]),
}

/// Iterates over the option bytes of a header; ends at the end-of-options mark or with the first
/// malformed option, which it yields as an error.
#[derive(Clone, Debug)]
pub struct TcpOptions<'a> {
    bytes: &'a [u8],
}

impl<'a> TcpOptions<'a> {
    /// Over the bytes between the fixed part and the payload.
    pub fn new(bytes: &'a [u8]) -> Self {
        TcpOptions { bytes }
    }
}

impl<'a> Iterator for TcpOptions<'a> {
    type Item = Result<TcpOption<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (&kind, rest) = self.bytes.split_first()?;
            match kind {
                0 => return None,
                1 => self.bytes = rest,
                _ => break,
            }
        }
        let bytes = core::mem::take(&mut self.bytes);
        let size = bytes.get(1).map_or(0, |&size| usize::from(size));
        if size < 2 || size > bytes.len() {
            return Some(Err(Malformed::Length));
        }
        self.bytes = &bytes[size..];
        Some(Ok(match (bytes[0], &bytes[2..size]) {
            (2, &[a, b]) => TcpOption::Mss(u16::from_be_bytes([a, b])),
            (3, &[shift]) => TcpOption::WindowScale(shift),
            (kind, content) => TcpOption::Other(kind, content),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn emits_what_it_parses(bytes in any::<[u8; 20]>()) {
            let mut bytes = bytes;
            bytes[12] &= 0xf1;
            let mut out = [0; 20];
            prop_assert!(Tcp::parse(&bytes).unwrap().emit(&mut out));
            prop_assert_eq!(out, bytes);
        }

        #[test]
        fn options_end(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(TcpOptions::new(&bytes).count() <= bytes.len());
        }
    }

    #[test]
    fn a_usual_syn() {
        let bytes = [2, 4, 5, 0xb4, 1, 3, 3, 7, 4, 2, 0, 9];
        let options: Result<Vec<_>, _> = TcpOptions::new(&bytes).collect();
        let want = [TcpOption::Mss(1460), TcpOption::WindowScale(7), TcpOption::Other(4, &[])];
        assert_eq!(options.unwrap(), want);
    }

    #[test]
    fn a_malformed_option_ends_the_walk() {
        for bytes in [&[2, 1][..], &[2, 4, 5], &[8]] {
            let mut options = TcpOptions::new(bytes);
            assert_eq!(options.next(), Some(Err(Malformed::Length)));
            assert_eq!(options.next(), None);
        }
    }

    extern crate std;
    use std::vec::Vec;
}
