//! Link types: which header stands before the network header, and where the network header starts.
//!
//! A capture states a LINKTYPE number per interface. Ethernet frames go to the frame parser as they are; for the few
//! link types that carry plain IP behind a small header, [`network`] says where the packet starts and which EtherType
//! it has. Everything else is named, so that the application counts it by reason instead of guessing.
//!
//! Assumes nothing about the bytes. Does not walk VLAN tags, LLC/SNAP or any tunnel. Source of the numbers and header
//! layouts: <https://www.tcpdump.org/linktypes.html>.

use thiserror::Error;

/// EtherType of IPv4.
const ETHERTYPE_IPV4: u16 = 0x0800;
/// EtherType of IPv6.
const ETHERTYPE_IPV6: u16 = 0x86dd;
/// Below this value the field is an 802.3 length or a Linux pseudo protocol (`ETH_P_802_3` and relatives), not an
/// EtherType (IEEE 802.3 clause 3.2.6).
const ETHERTYPE_MIN: u16 = 0x0600;

/// ARPHRD values under which a Linux cooked header's protocol field holds no EtherType.
const ARPHRD_WITHOUT_ETHERTYPE: [u16; 3] = [
    803, // IEEE80211_RADIOTAP: the field is ignored
    824, // NETLINK: the field is a netlink family
    280, // CAN: the field is a CAN frame kind
];

/// What stands at the start of each record's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkType {
    /// LINKTYPE 1: an Ethernet header.
    Ethernet,
    /// LINKTYPE 101 (and the DLT values 12 and 14 that some systems wrote): an IPv4 or IPv6 header, by its version.
    Raw,
    /// LINKTYPE 228: an IPv4 header.
    Ipv4,
    /// LINKTYPE 229: an IPv6 header.
    Ipv6,
    /// LINKTYPE 0: four bytes of address family in the byte order of the capturing host.
    Null,
    /// LINKTYPE 108: four bytes of address family in network byte order.
    Loop,
    /// LINKTYPE 113: Linux cooked header, 16 bytes.
    LinuxSll,
    /// LINKTYPE 276: Linux cooked header, version 2, 20 bytes.
    LinuxSll2,
    /// Any other number, as the file states it.
    Other(u32),
}

impl LinkType {
    /// The link type with this LINKTYPE number.
    pub fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Null,
            1 => Self::Ethernet,
            12 | 14 | 101 => Self::Raw,
            108 => Self::Loop,
            113 => Self::LinuxSll,
            228 => Self::Ipv4,
            229 => Self::Ipv6,
            276 => Self::LinuxSll2,
            other => Self::Other(other),
        }
    }

    /// The link type for a person: its number, and its name where captures with it are common.
    /// Source: <https://www.tcpdump.org/linktypes.html>.
    pub fn described(self) -> String {
        let number = self.number();
        let name = match number {
            0 => "NULL",
            1 => "Ethernet",
            9 | 50 => "PPP",
            101 => "raw IP",
            104 => "C-HDLC",
            105 => "IEEE 802.11",
            108 => "LOOP",
            113 => "Linux cooked",
            119 => "IEEE 802.11 with a Prism header",
            127 => "IEEE 802.11 with a radiotap header",
            187 | 201 => "Bluetooth",
            189 | 220 | 249 => "USB",
            195 | 230 => "IEEE 802.15.4",
            227 => "CAN",
            228 => "IPv4",
            229 => "IPv6",
            239 => "NFLOG",
            253 => "netlink",
            276 => "Linux cooked, version 2",
            _ => return number.to_string(),
        };
        format!("{number} ({name})")
    }

    /// The LINKTYPE number, as a writer puts it in a file.
    pub fn number(self) -> u32 {
        match self {
            Self::Null => 0,
            Self::Ethernet => 1,
            Self::Raw => 101,
            Self::Loop => 108,
            Self::LinuxSll => 113,
            Self::Ipv4 => 228,
            Self::Ipv6 => 229,
            Self::LinuxSll2 => 276,
            Self::Other(number) => number,
        }
    }
}

/// Why [`network`] found no network header: each variant is one reason to count.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Unsupported {
    /// The link type is not one this crate knows.
    #[error("link type {0} is not understood")]
    LinkType(u32),
    /// The record ends inside its link header.
    #[error("the record has {have} bytes, its link header needs {need}")]
    Truncated {
        /// Bytes the link header needs.
        need: u8,
        /// Bytes the record has.
        have: u8,
    },
    /// LINKTYPE_RAW with a first nibble that is neither 4 nor 6.
    #[error("raw IP with version {0}")]
    IpVersion(u8),
    /// LINKTYPE_NULL or LINKTYPE_LOOP with an address family other than IPv4 and IPv6.
    #[error("address family {0} is neither IPv4 nor IPv6")]
    AddressFamily(u32),
    /// The protocol field holds no EtherType (802.3 length, CAN, netlink, radiotap).
    #[error("protocol field {0:#06x} is not an EtherType")]
    NotEtherType(u16),
}

/// Where the network header of `data` starts: `(EtherType, offset in bytes)`.
///
/// The EtherType may be anything from 0x0600 up (ARP, VLAN tags, MPLS ...); the offset is at most `data.len()`. For
/// Ethernet this is the field behind the addresses: frames with VLAN tags are the frame parser's matter.
///
/// ```
/// use laneway_capture::{LinkType, network};
/// assert_eq!(network(LinkType::Null, &[0, 0, 0, 2, 0x45]), Ok((0x0800, 4)));
/// ```
///
/// # Errors
/// [`Unsupported`], one reason to count per variant.
pub fn network(link: LinkType, data: &[u8]) -> Result<(u16, usize), Unsupported> {
    match link {
        LinkType::Ethernet => {
            let header: &[u8; 14] = header(data)?;
            ethertype([header[12], header[13]], 14)
        }
        LinkType::Raw => {
            let [first]: &[u8; 1] = header(data)?;
            match first >> 4 {
                4 => Ok((ETHERTYPE_IPV4, 0)),
                6 => Ok((ETHERTYPE_IPV6, 0)),
                version => Err(Unsupported::IpVersion(version)),
            }
        }
        LinkType::Ipv4 => Ok((ETHERTYPE_IPV4, 0)),
        LinkType::Ipv6 => Ok((ETHERTYPE_IPV6, 0)),
        LinkType::Null | LinkType::Loop => {
            let header: &[u8; 4] = header(data)?;
            // The writer's byte order is not recorded per frame, and files are carried between machines. Families
            // are small numbers, so of the two readings the smaller one is meant.
            let family = u32::from_be_bytes(*header).min(u32::from_le_bytes(*header));
            match family {
                2 => Ok((ETHERTYPE_IPV4, 4)),
                // AF_INET6 is 10 on Linux, 24 on NetBSD and OpenBSD, 28 on FreeBSD, 30 on Darwin.
                10 | 24 | 28 | 30 => Ok((ETHERTYPE_IPV6, 4)),
                other => Err(Unsupported::AddressFamily(other)),
            }
        }
        LinkType::LinuxSll => {
            let header: &[u8; 16] = header(data)?;
            cooked([header[2], header[3]], [header[14], header[15]], 16)
        }
        LinkType::LinuxSll2 => {
            let header: &[u8; 20] = header(data)?;
            cooked([header[8], header[9]], [header[0], header[1]], 20)
        }
        LinkType::Other(number) => Err(Unsupported::LinkType(number)),
    }
}

fn header<const N: usize>(data: &[u8]) -> Result<&[u8; N], Unsupported> {
    // Both fit: every header here is shorter than 256 bytes, and `data` is shorter than N.
    data.first_chunk().ok_or(Unsupported::Truncated { need: N as u8, have: data.len() as u8 })
}

fn ethertype(field: [u8; 2], offset: usize) -> Result<(u16, usize), Unsupported> {
    let value = u16::from_be_bytes(field);
    if value < ETHERTYPE_MIN { Err(Unsupported::NotEtherType(value)) } else { Ok((value, offset)) }
}

fn cooked(
    hardware: [u8; 2],
    protocol: [u8; 2],
    offset: usize,
) -> Result<(u16, usize), Unsupported> {
    if ARPHRD_WITHOUT_ETHERTYPE.contains(&u16::from_be_bytes(hardware)) {
        return Err(Unsupported::NotEtherType(u16::from_be_bytes(protocol)));
    }
    ethertype(protocol, offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_link_type_survives_its_number() {
        for number in 0..400 {
            let link = LinkType::from_number(number);
            assert_eq!(LinkType::from_number(link.number()), link);
        }
        assert_eq!(LinkType::from_number(12).number(), 101);
    }

    #[test]
    fn raw_ip_is_recognised_by_its_version() {
        assert_eq!(network(LinkType::Raw, &[0x45]), Ok((0x0800, 0)));
        assert_eq!(network(LinkType::Raw, &[0x60]), Ok((0x86dd, 0)));
        assert_eq!(network(LinkType::Raw, &[0x50]), Err(Unsupported::IpVersion(5)));
        assert_eq!(network(LinkType::Raw, &[]), Err(Unsupported::Truncated { need: 1, have: 0 }));
    }

    #[test]
    fn null_reads_the_family_in_either_byte_order() {
        for family in [10u32, 24, 28, 30] {
            assert_eq!(network(LinkType::Null, &family.to_be_bytes()), Ok((0x86dd, 4)));
            assert_eq!(network(LinkType::Null, &family.to_le_bytes()), Ok((0x86dd, 4)));
        }
        assert_eq!(network(LinkType::Loop, &2u32.to_be_bytes()), Ok((0x0800, 4)));
        assert_eq!(
            network(LinkType::Null, &7u32.to_le_bytes()),
            Err(Unsupported::AddressFamily(7))
        );
    }

    #[test]
    fn cooked_headers_name_the_ethertype_unless_the_hardware_has_none() {
        let mut sll = [0u8; 16];
        sll[14..].copy_from_slice(&0x86ddu16.to_be_bytes());
        assert_eq!(network(LinkType::LinuxSll, &sll), Ok((0x86dd, 16)));
        sll[2..4].copy_from_slice(&824u16.to_be_bytes());
        assert_eq!(network(LinkType::LinuxSll, &sll), Err(Unsupported::NotEtherType(0x86dd)));

        let mut sll2 = [0u8; 20];
        sll2[..2].copy_from_slice(&0x0806u16.to_be_bytes());
        assert_eq!(network(LinkType::LinuxSll2, &sll2), Ok((0x0806, 20)));
        assert_eq!(
            network(LinkType::LinuxSll2, &sll2[..19]),
            Err(Unsupported::Truncated { need: 20, have: 19 })
        );
    }

    #[test]
    fn an_ethernet_length_field_is_not_an_ethertype() {
        let mut frame = [0u8; 14];
        frame[12..].copy_from_slice(&100u16.to_be_bytes());
        assert_eq!(network(LinkType::Ethernet, &frame), Err(Unsupported::NotEtherType(100)));
    }
}
