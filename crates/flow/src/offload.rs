//! Flow rules for ports that match frames themselves: what an app asks for, and what a lane hands to
//! its device.
//!
//! It stands here because both see it: the app makes a [`PortRule`] of its own kind of rule, the lane
//! makes of it what its device understands. A pattern is the headers as they stand on the wire, each
//! with the bytes that must be there, so neither side needs the other's names. What must always hold:
//! what is asked for is all that is asked for; a lane that cannot express a part of it refuses the
//! whole. It does not say what a frame means, and touches no device.

/// Bytes of the longest header of a pattern (IPv6).
pub const HEADER_BYTES_MAX: usize = 40;
/// Headers of a pattern: Ethernet, two tags, IP, UDP, VXLAN, and room.
pub const HEADERS_MAX: usize = 8;

/// A header that a port can be asked to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Header {
    /// Ethernet: destination, source, type (of what follows, a tag included).
    Eth = 0,
    /// A VLAN tag behind its type: control information, type of what follows.
    Vlan = 1,
    /// IPv4 without options.
    Ipv4 = 2,
    /// IPv6 without extension headers.
    Ipv6 = 3,
    /// TCP without options.
    Tcp = 4,
    /// UDP.
    Udp = 5,
    /// ICMP: type, code, checksum.
    Icmp = 6,
    /// ICMPv6: type, code, checksum.
    Icmp6 = 7,
    /// VXLAN.
    Vxlan = 8,
}

impl Header {
    /// How many bytes of it can be asked for.
    pub fn bytes(self) -> usize {
        match self {
            Header::Eth => 14,
            Header::Ipv4 | Header::Tcp => 20,
            Header::Ipv6 => HEADER_BYTES_MAX,
            Header::Udp | Header::Vxlan => 8,
            Header::Vlan | Header::Icmp | Header::Icmp6 => 4,
        }
    }
}

/// A header that must be there, and what it must hold, byte by byte as on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderMatch {
    /// Which one.
    pub header: Header,
    /// The bits that must be there, where the mask has ones; zero elsewhere.
    pub spec: [u8; HEADER_BYTES_MAX],
    /// Where a whole field is a range: its last value. Zero elsewhere.
    pub last: [u8; HEADER_BYTES_MAX],
    /// Which bits count.
    pub mask: [u8; HEADER_BYTES_MAX],
}

impl HeaderMatch {
    /// The header with any contents.
    pub fn any(header: Header) -> HeaderMatch {
        let zeros = [0; HEADER_BYTES_MAX];
        HeaderMatch { header, spec: zeros, last: zeros, mask: zeros }
    }

    /// Asks for these bits of the bytes from `at` on, besides those asked for before. A range where
    /// `last` differs from `spec`; then the mask is of all bits.
    ///
    /// # Panics
    /// If the three are of different lengths or go beyond the header.
    pub fn ask(&mut self, at: usize, spec: &[u8], last: &[u8], mask: &[u8]) {
        let bytes = at..at + mask.len();
        assert!(bytes.end <= self.header.bytes(), "{:?} has no byte {}", self.header, bytes.end);
        assert!(spec.len() == mask.len() && last.len() == mask.len(), "three of one length");
        let or = |to: &mut [u8], from: &[u8]| to.iter_mut().zip(from).for_each(|(t, f)| *t |= f);
        or(&mut self.spec[bytes.clone()], spec);
        or(&mut self.mask[bytes.clone()], mask);
        if last != spec {
            or(&mut self.last[bytes], last);
        }
    }

    /// True when nothing but its presence is asked for.
    pub fn is_any(&self) -> bool {
        self.mask.iter().all(|byte| *byte == 0)
    }
}

/// What a port does with a frame that matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortAction {
    /// It ends in the port.
    Drop,
    /// It is received on this queue.
    Queue(u16),
    /// It is received with this number.
    Mark(u32),
    /// It is counted.
    Count,
}

/// A rule for frames that arrive on a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortRule {
    /// Lower numbers first; among equals in no order.
    pub priority: u32,
    /// The headers, outermost first; others may follow the last one. At most [`HEADERS_MAX`].
    pub pattern: Vec<HeaderMatch>,
    /// What is done, all of it.
    pub actions: Vec<PortAction>,
}

/// What a rule in a port has matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortHits {
    /// Frames.
    pub frames: u64,
    /// Bytes, as the port counts them.
    pub bytes: u64,
}

/// Ports that execute rules themselves.
pub trait Offload: Send {
    /// Gives the rule to the port, under a number that the port has no other rule under.
    ///
    /// # Errors
    /// Why the port does not take it, as part of a sentence; nothing has changed then.
    fn install(&mut self, port: u16, id: u32, rule: &PortRule) -> Result<(), String>;

    /// Takes the rule away again and says what it matched in all.
    fn remove(&mut self, port: u16, id: u32) -> PortHits;

    /// What the rule has matched so far.
    fn hits(&self, port: u16, id: u32) -> PortHits;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_one_word_are_asked_for_one_after_the_other() {
        let mut tag = HeaderMatch::any(Header::Vlan);
        assert!(tag.is_any());
        tag.ask(0, &[0, 5], &[0, 5], &[0x0f, 0xff]);
        tag.ask(0, &[0x60, 0], &[0x60, 0], &[0xe0, 0]);
        assert_eq!(
            (&tag.spec[..4], &tag.mask[..4]),
            (&[0x60, 5, 0, 0][..], &[0xef, 0xff, 0, 0][..])
        );
        assert!(tag.last.iter().all(|byte| *byte == 0), "no range");
    }

    #[test]
    fn a_range_has_its_last_value_and_nothing_else_does() {
        let mut udp = HeaderMatch::any(Header::Udp);
        udp.ask(0, &[0, 7], &[0, 7], &[0xff; 2]);
        udp.ask(2, &[0, 1], &[1, 0], &[0xff; 2]);
        assert_eq!(udp.last[..8], [0, 0, 1, 0, 0, 0, 0, 0]);
    }

    #[test]
    #[should_panic(expected = "has no byte 9")]
    fn nothing_beyond_the_header_can_be_asked_for() {
        HeaderMatch::any(Header::Udp).ask(8, &[1], &[1], &[1]);
    }
}
