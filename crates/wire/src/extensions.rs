//! The headers between IPv6 and its layer 4 (RFC 8200, 4), one by one.

use crate::{Malformed, be16, be32};

/// Extension headers that [`Extensions`] steps over; a packet with more is a mistake or an attack.
pub const EXTENSIONS_MAX: usize = 8;

/// Next-header numbers that are read here (IANA IPv6 Extension Header Types).
pub mod extension {
    /// Hop-by-hop options, RFC 8200, 4.3.
    pub const HOP_BY_HOP: u8 = 0;
    /// Routing, RFC 8200, 4.4.
    pub const ROUTING: u8 = 43;
    /// Fragment, RFC 8200, 4.5.
    pub const FRAGMENT: u8 = 44;
    /// Authentication, RFC 4302.
    pub const AUTHENTICATION: u8 = 51;
    /// Destination options, RFC 8200, 4.6.
    pub const DESTINATION: u8 = 60;
}

/// True for the next-header numbers that lead to an extension header whose length is known (IANA
/// IPv6 Extension Header Types). ESP (50) is none: what follows it is encrypted.
#[inline]
pub fn is_extension(next_header: u8) -> bool {
    matches!(next_header, 0 | 43 | 44 | 51 | 60 | 135 | 139 | 140)
}

/// One extension header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension {
    /// Its own next-header number.
    pub kind: u8,
    /// What follows it.
    pub next_header: u8,
    /// Its length in bytes.
    pub bytes: usize,
    /// What it says, if it is a fragment header.
    pub fragment: Option<FragmentHeader>,
    /// Stops that are still to come, if it is a routing header.
    pub segments_left: Option<u8>,
}

/// The content of a fragment header (RFC 8200, 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentHeader {
    /// As IPv4 has it: MF 0x2000, offset in units of 8 bytes.
    pub fragment: u16,
    /// Identification.
    pub id: u32,
}

impl FragmentHeader {
    /// True for every part but the first, which alone has the packet's layer 4.
    pub fn is_later(&self) -> bool {
        self.fragment & 0x1fff != 0
    }
}

impl Extension {
    /// Reads the extension header of type `kind` at the start of `bytes`; only its first 8 bytes
    /// need be there.
    ///
    /// # Errors
    /// [`Malformed::Truncated`] below 8 bytes.
    #[inline]
    pub fn parse(kind: u8, bytes: &[u8]) -> Result<Extension, Malformed> {
        let b = bytes.first_chunk::<8>().ok_or(Malformed::Truncated)?;
        let length = usize::from(b[1]);
        let (bytes, fragment) = match kind {
            extension::FRAGMENT => {
                let word = be16(b, 2);
                let fragment = word >> 3 | (word & 1) << 13;
                (8, Some(FragmentHeader { fragment, id: be32(b, 4) }))
            }
            extension::AUTHENTICATION => ((length + 2) * 4, None),
            _ => ((length + 1) * 8, None),
        };
        let segments_left = (kind == extension::ROUTING).then_some(b[3]);
        Ok(Extension { kind, next_header: b[0], bytes, fragment, segments_left })
    }
}

/// Why a packet's extension headers lead to no layer 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtensionError {
    /// The packet ends, by its own length, before the header does.
    BeyondPacket,
    /// The bytes end before the first 8 of the header, where the packet does not.
    Truncated,
    /// A header follows behind [`EXTENSIONS_MAX`] others.
    TooMany,
}

/// A walk over the extension headers of a packet to its layer 4.
///
/// ```
/// use laneway_wire::Extensions;
///
/// // A destination-options header of 8 bytes, then UDP.
/// let payload = [17, 0, 0, 0, 0, 0, 0, 0, 0, 53, 0, 54, 0, 8, 0, 0];
/// let mut headers = Extensions::new(60, &payload, payload.len());
/// while let Some(header) = headers.step() {
///     assert_eq!(header.map(|header| header.bytes), Ok(8));
/// }
/// assert_eq!((headers.next_header(), headers.stepped_bytes(), headers.available()), (17, 8, 8));
/// ```
#[derive(Clone, Debug)]
pub struct Extensions<'a> {
    rest: &'a [u8],
    next_header: u8,
    available: usize,
    stepped_bytes: usize,
    steps: usize,
}

impl<'a> Extensions<'a> {
    /// Of a packet whose fixed header has `next_header` in it and states `available` bytes behind itself, of which
    /// `bytes` are at hand, padding of the frame perhaps included.
    #[inline]
    pub fn new(next_header: u8, bytes: &'a [u8], available: usize) -> Extensions<'a> {
        Extensions { rest: bytes, next_header, available, stepped_bytes: 0, steps: 0 }
    }

    /// Steps over the next extension header and returns it; `None` where none follows. Behind a later fragment's
    /// header ([`FragmentHeader::is_later`]) stands its data: a caller stops there.
    ///
    /// An error leaves the walk where it is.
    #[inline]
    pub fn step(&mut self) -> Option<Result<Extension, ExtensionError>> {
        is_extension(self.next_header).then(|| self.step_over())
    }

    fn step_over(&mut self) -> Result<Extension, ExtensionError> {
        if self.steps == EXTENSIONS_MAX {
            return Err(ExtensionError::TooMany);
        }
        if self.available < 8 {
            return Err(ExtensionError::BeyondPacket);
        }
        let header = Extension::parse(self.next_header, self.rest);
        let header = header.map_err(|_| ExtensionError::Truncated)?;
        if header.bytes > self.available {
            return Err(ExtensionError::BeyondPacket);
        }
        self.rest = self.rest.get(header.bytes..).unwrap_or_default();
        self.next_header = header.next_header;
        self.available -= header.bytes;
        self.stepped_bytes += header.bytes;
        self.steps += 1;
        Ok(header)
    }

    /// The type of what stands where the walk is: layer 4's protocol behind the last header.
    #[inline]
    pub fn next_header(&self) -> u8 {
        self.next_header
    }

    /// The bytes at hand from there on; none if they end inside a header before.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The bytes of the packet from there on, by its own length.
    #[inline]
    pub fn available(&self) -> usize {
        self.available
    }

    /// The bytes of the headers stepped over.
    #[inline]
    pub fn stepped_bytes(&self) -> usize {
        self.stepped_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lengths_of_extension_headers() {
        let parse = |kind, len| Extension::parse(kind, &[6, len, 0, 0, 0, 0, 0, 0]).unwrap().bytes;
        assert_eq!((parse(0, 0), parse(60, 2), parse(51, 4), parse(44, 255)), (8, 24, 24, 8));
    }

    #[test]
    fn a_fragment_header_reads_like_ipv4() {
        let e = Extension::parse(44, &[17, 0, 0x05, 0xa9, 0, 0, 1, 2]).unwrap();
        let fragment = FragmentHeader { fragment: 0x2000 | 0xb5, id: 0x0102 };
        assert_eq!((e.next_header, e.bytes, e.fragment), (17, 8, Some(fragment)));
        assert!(fragment.is_later());
        assert!(!FragmentHeader { fragment: 0x2000, id: 0 }.is_later());
    }

    #[test]
    fn a_routing_header_alone_has_stops() {
        let left = |kind| Extension::parse(kind, &[17, 2, 0, 3, 0, 0, 0, 0]).unwrap().segments_left;
        assert_eq!([left(extension::ROUTING), left(0), left(44)], [Some(3), None, None]);
    }

    fn walk(
        next_header: u8,
        bytes: &[u8],
        available: usize,
    ) -> (Option<ExtensionError>, u8, usize) {
        let mut headers = Extensions::new(next_header, bytes, available);
        let error = loop {
            match headers.step() {
                None => break None,
                Some(Err(error)) => break Some(error),
                Some(Ok(_)) => (),
            }
        };
        (error, headers.next_header(), headers.stepped_bytes())
    }

    #[test]
    fn a_walk_ends_at_layer_4_or_says_why_it_does_not() {
        let eight = [60, 0, 0, 0, 0, 0, 0, 0].repeat(8);
        let mut to_udp = eight.clone();
        to_udp[56] = 17;
        assert_eq!(walk(0, &to_udp, 64), (None, 17, 64));
        assert_eq!(walk(17, &[], 0), (None, 17, 0));
        assert_eq!(walk(0, &[60; 72], 72), (Some(ExtensionError::BeyondPacket), 0, 0));
        assert_eq!(walk(0, &eight[..16], 16), (Some(ExtensionError::BeyondPacket), 60, 16));
        assert_eq!(walk(0, &eight[..12], 64), (Some(ExtensionError::Truncated), 60, 8));
        let nine = eight.repeat(2);
        assert_eq!(walk(0, &nine, 128), (Some(ExtensionError::TooMany), 60, 64));
    }

    proptest! {
        #[test]
        fn a_walk_stays_within_the_packet(
            kind in any::<u8>(),
            bytes in proptest::collection::vec(prop_oneof![Just(0u8), Just(60), Just(44), any::<u8>()], 0..160),
            available in 0usize..200,
        ) {
            let mut headers = Extensions::new(kind, &bytes, available);
            let mut steps = 0;
            while let Some(Ok(header)) = headers.step() {
                steps += 1;
                prop_assert!(header.bytes >= 8);
                prop_assert_eq!(headers.stepped_bytes() + headers.available(), available);
            }
            prop_assert!(steps <= EXTENSIONS_MAX);
        }
    }
}
