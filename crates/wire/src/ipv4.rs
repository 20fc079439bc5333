//! IPv4 (RFC 791).

use crate::{Malformed, be16, checksum};
use core::net::Ipv4Addr;

/// Bytes of the header without options.
pub const IPV4_BYTES_MIN: usize = 20;

/// Protocol numbers used here (IANA Assigned Internet Protocol Numbers).
pub mod protocol {
    /// ICMP, RFC 792.
    pub const ICMP: u8 = 1;
    /// TCP, RFC 9293.
    pub const TCP: u8 = 6;
    /// UDP, RFC 768.
    pub const UDP: u8 = 17;
    /// ICMPv6, RFC 4443.
    pub const ICMPV6: u8 = 58;
    /// SCTP, RFC 9260.
    pub const SCTP: u8 = 132;
}

/// The fixed part of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4 {
    /// Header length in bytes, options included: 20 to 60.
    pub header_bytes: usize,
    /// DSCP and ECN.
    pub tos: u8,
    /// Length of header and payload as claimed; at least `header_bytes`, or 0 out of
    /// [`Ipv4::parse_unstated`].
    pub total_bytes: u16,
    /// Identification.
    pub id: u16,
    /// Flags and fragment offset: DF 0x4000, MF 0x2000, offset in units of 8 bytes.
    pub fragment: u16,
    /// Time to live.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Header checksum as it is, right or wrong.
    pub checksum: u16,
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
}

impl Ipv4 {
    /// Reads the fixed part. The options need not be there.
    ///
    /// # Errors
    /// Fewer than 20 bytes, another version, a header length below 20, a total below the header.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Ipv4, Malformed> {
        let ip = Ipv4::parse_unstated(bytes)?;
        if ip.total_bytes == 0 { Err(Malformed::Length) } else { Ok(ip) }
    }

    /// As [`Ipv4::parse`], but takes a header that states a total of 0, too: what a host hands to
    /// a card that is to cut it (segmentation offload), and a packet above 65,535 bytes that Linux
    /// keeps whole (BIG TCP), have no other. Then the packet ends where the frame ends.
    ///
    /// # Errors
    /// As [`Ipv4::parse`], a total of 0 aside.
    #[inline]
    pub fn parse_unstated(bytes: &[u8]) -> Result<Ipv4, Malformed> {
        let b = bytes.first_chunk::<IPV4_BYTES_MIN>().ok_or(Malformed::Truncated)?;
        if b[0] >> 4 != 4 {
            return Err(Malformed::Version);
        }
        let header_bytes = usize::from(b[0] & 0x0f) * 4;
        let total_bytes = be16(b, 2);
        let is_stated = total_bytes != 0;
        if header_bytes < IPV4_BYTES_MIN || (is_stated && usize::from(total_bytes) < header_bytes) {
            return Err(Malformed::Length);
        }
        Ok(Ipv4 {
            header_bytes,
            tos: b[1],
            total_bytes,
            id: be16(b, 4),
            fragment: be16(b, 6),
            ttl: b[8],
            protocol: b[9],
            checksum: be16(b, 10),
            source: Ipv4Addr::new(b[12], b[13], b[14], b[15]),
            destination: Ipv4Addr::new(b[16], b[17], b[18], b[19]),
        })
    }

    /// Writes the fixed part as it is, checksum included; false without the room.
    #[must_use]
    pub fn emit(&self, bytes: &mut [u8]) -> bool {
        let Some(b) = bytes.first_chunk_mut::<IPV4_BYTES_MIN>() else { return false };
        b[0] = 0x40 | (self.header_bytes / 4) as u8;
        b[1] = self.tos;
        b[2..4].copy_from_slice(&self.total_bytes.to_be_bytes());
        b[4..6].copy_from_slice(&self.id.to_be_bytes());
        b[6..8].copy_from_slice(&self.fragment.to_be_bytes());
        b[8] = self.ttl;
        b[9] = self.protocol;
        b[10..12].copy_from_slice(&self.checksum.to_be_bytes());
        b[12..16].copy_from_slice(&self.source.octets());
        b[16..20].copy_from_slice(&self.destination.octets());
        true
    }

    /// Computes the checksum over a written header (options included) and writes it.
    /// False if `bytes` is shorter than its header length says.
    #[must_use]
    pub fn seal(bytes: &mut [u8]) -> bool {
        let Some(first) = bytes.first() else { return false };
        let header_bytes = usize::from(first & 0x0f) * 4;
        match bytes.get_mut(..header_bytes) {
            Some(header) if header_bytes >= IPV4_BYTES_MIN => {
                header[10..12].fill(0);
                let sum = checksum::of(header);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
                true
            }
            _ => false,
        }
    }

    /// Fragment offset in bytes.
    pub fn fragment_offset_bytes(&self) -> usize {
        usize::from(self.fragment & 0x1fff) * 8
    }

    /// True for every part of a fragmented packet, the first included.
    pub fn is_fragment(&self) -> bool {
        self.fragment & 0x3fff != 0
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
            bytes[0] = 0x45 | (bytes[0] & 0x0a);
            bytes[2] |= 1;
            let mut out = [0; 20];
            prop_assert!(Ipv4::parse(&bytes).unwrap().emit(&mut out));
            prop_assert_eq!(out, bytes);
        }

        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut bytes = bytes;
            let _ = Ipv4::parse(&bytes);
            let _ = Ipv4::seal(&mut bytes);
        }
    }

    #[test]
    fn says_what_is_wrong() {
        let mut bytes = [0; 20];
        assert_eq!(Ipv4::parse(&bytes[..19]), Err(Malformed::Truncated));
        bytes[0] = 0x65;
        assert_eq!(Ipv4::parse(&bytes), Err(Malformed::Version));
        bytes[0] = 0x44;
        assert_eq!(Ipv4::parse(&bytes), Err(Malformed::Length));
        bytes[0] = 0x45;
        bytes[3] = 19;
        assert_eq!(Ipv4::parse(&bytes), Err(Malformed::Length));
        assert_eq!(Ipv4::parse_unstated(&bytes), Err(Malformed::Length));
    }

    #[test]
    fn a_total_of_0_is_taken_only_where_it_is_asked_for() {
        let mut bytes = [0; 20];
        bytes[0] = 0x45;
        assert_eq!(Ipv4::parse(&bytes), Err(Malformed::Length));
        assert_eq!(Ipv4::parse_unstated(&bytes).map(|ip| ip.total_bytes), Ok(0));
    }

    #[test]
    fn a_sealed_header_sums_to_zero() {
        let mut bytes = [0x45, 0, 0, 40, 1, 2, 0x40, 0, 64, 6, 9, 9, 10, 0, 0, 1, 10, 0, 0, 2];
        assert!(Ipv4::seal(&mut bytes));
        assert_eq!(checksum::of(&bytes), 0);
    }
}
