//! The packet record: what the extractor says about one frame.
//!
//! Mirror of `struct lw_record` (record.h): host byte order, addresses as on the wire with IPv4 as
//! `::ffff:a.b.c.d`. A field whose [`Has`] bit is clear is zero. The record claims what the frame
//! claimed. Lengths are the IP header's where it states one that the frame has room for, else the
//! frame's ([`Has::LEN_UNSTATED`], [`Has::LEN_BEYOND`]); a record read from bytes may hold any.

use crate::layout::{CField, c_struct};
use std::{fmt, net::Ipv6Addr};

/// Bytes of a record outside Rust: in rings, files and tests.
pub const RECORD_BYTES: usize = 104;

macro_rules! statuses {
    ($($(#[doc = $doc:literal])+ $variant:ident = $code:literal $name:literal,)+) => {
        /// Why a frame has no more fields than it has. Codes as in record.h.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Status {
            #[default]
            $($(#[doc = $doc])+ $variant = $code,)+
        }

        impl Status {
            /// Every status, in the order of its code.
            pub const ALL: &[Status] = &[$(Status::$variant),+];
            /// How many there are; codes are `0..COUNT`.
            pub const COUNT: usize = Self::ALL.len();

            /// The name used in results and metrics.
            pub fn name(self) -> &'static str {
                match self { $(Status::$variant => $name),+ }
            }

            /// What it means, in one sentence.
            pub fn definition(self) -> &'static str {
                match self { $(Status::$variant => concat!($($doc),+)),+ }
            }

            /// The status of a code; `None` from [`Status::COUNT`] on.
            #[inline]
            pub fn from_code(code: u8) -> Option<Status> {
                match code { $($code => Some(Status::$variant),)+ _ => None }
            }
        }
    };
}

statuses! {
    /// Parsed through layer 4.
    Ok = 0 "ok",
    /// Fewer than 14 bytes, or a cut VLAN tag.
    L2Truncated = 1 "l2_truncated",
    /// Neither IPv4 nor IPv6: ARP, LLC, a third VLAN tag.
    L3Unknown = 2 "l3_unknown",
    /// The IP header is cut.
    L3Truncated = 3 "l3_truncated",
    /// EtherType and version nibble disagree.
    L3BadVersion = 4 "l3_bad_version",
    /// Header length below the minimum, or total below header length.
    L3BadLength = 5 "l3_bad_length",
    /// More than 8 IPv6 extension headers.
    L3ExtLimit = 6 "l3_ext_limit",
    /// Not the first fragment: no layer-4 header here.
    Fragment = 7 "fragment",
    /// A protocol whose header is not decoded: ESP, GRE, OSPF.
    L4Unknown = 8 "l4_unknown",
    /// The layer-4 header is cut by the capture.
    L4Truncated = 9 "l4_truncated",
    /// The IP packet is too short for its layer-4 header.
    L4BadLength = 10 "l4_bad_length",
}

impl CField for Status {
    const BYTES: usize = 1;

    #[inline(always)]
    fn read(bytes: &[u8]) -> Option<Self> {
        Status::from_code(u8::read(bytes)?)
    }

    #[inline(always)]
    fn write(&self, bytes: &mut [u8]) {
        (*self as u8).write(bytes);
    }
}

/// Which groups of fields a record has: a set of the bits `LW_HAS_*`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Has(u16);

impl Has {
    /// An IPv4 header was understood.
    pub const IPV4: Has = Has(0x0001);
    /// An IPv6 header was understood.
    pub const IPV6: Has = Has(0x0002);
    /// `vlan_tci`.
    pub const VLAN: Has = Has(0x0004);
    /// `vlan_tci2`.
    pub const VLAN2: Has = Has(0x0008);
    /// Part of a fragmented packet (IPv4: MF or offset; IPv6: a fragment header).
    pub const FRAG: Has = Has(0x0010);
    /// `src_port`, `dst_port`.
    pub const PORTS: Has = Has(0x0020);
    /// The TCP fields.
    pub const TCP: Has = Has(0x0040);
    /// `icmp_type`, `icmp_code`.
    pub const ICMP: Has = Has(0x0080);
    /// `tcp_mss`.
    pub const MSS: Has = Has(0x0100);
    /// `tcp_wscale`.
    pub const WSCALE: Has = Has(0x0200);
    /// IPv4 options or IPv6 extension headers.
    pub const IP_OPTIONS: Has = Has(0x0400);
    /// Options of a SYN that do not parse, or are cut.
    pub const BAD_TCP_OPTIONS: Has = Has(0x0800);
    /// The IP header states length 0 (segmentation offload, jumbogram): `ip_len` is the frame's.
    pub const LEN_UNSTATED: Has = Has(0x1000);
    /// The IP header states more than the frame has: `ip_len` is the frame's.
    pub const LEN_BEYOND: Has = Has(0x2000);
    /// The capture has no time for the frame: `ts_ns` is 0.
    pub const NO_TIME: Has = Has(0x4000);

    const NAMES: [(Has, &'static str); 15] = [
        (Has::IPV4, "IPV4"),
        (Has::IPV6, "IPV6"),
        (Has::VLAN, "VLAN"),
        (Has::VLAN2, "VLAN2"),
        (Has::FRAG, "FRAG"),
        (Has::PORTS, "PORTS"),
        (Has::TCP, "TCP"),
        (Has::ICMP, "ICMP"),
        (Has::MSS, "MSS"),
        (Has::WSCALE, "WSCALE"),
        (Has::IP_OPTIONS, "IP_OPTIONS"),
        (Has::BAD_TCP_OPTIONS, "BAD_TCP_OPTIONS"),
        (Has::LEN_UNSTATED, "LEN_UNSTATED"),
        (Has::LEN_BEYOND, "LEN_BEYOND"),
        (Has::NO_TIME, "NO_TIME"),
    ];

    /// The set of these bits, known or not.
    #[inline]
    pub const fn from_bits(bits: u16) -> Has {
        Has(bits)
    }

    /// The bits.
    #[inline]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Both sets together.
    #[inline]
    #[must_use]
    pub const fn with(self, other: Has) -> Has {
        Has(self.0 | other.0)
    }

    /// Adds another set to this one.
    #[inline]
    pub fn insert(&mut self, other: Has) {
        self.0 |= other.0;
    }

    /// True if every bit of `other` is here.
    #[inline]
    pub const fn contains(self, other: Has) -> bool {
        self.0 & other.0 == other.0
    }

    /// True if any bit of `other` is here.
    #[inline]
    pub const fn intersects(self, other: Has) -> bool {
        self.0 & other.0 != 0
    }
}

impl fmt::Debug for Has {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> =
            Self::NAMES.iter().filter(|(bit, _)| self.contains(*bit)).map(|(_, n)| *n).collect();
        write!(f, "Has({:#06x}: {})", self.0, names.join(" "))
    }
}

impl CField for Has {
    const BYTES: usize = 2;

    #[inline(always)]
    fn read(bytes: &[u8]) -> Option<Self> {
        u16::read(bytes).map(Has)
    }

    #[inline(always)]
    fn write(&self, bytes: &mut [u8]) {
        self.0.write(bytes);
    }
}

/// What the extractor says about one frame. Units and meaning as in record.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Record {
    /// Time stamp in ns; the clock is the source's.
    pub ts_ns: u64,
    /// Number of the frame at its source; gaps show loss.
    pub seq_no: u64,
    /// Source address.
    pub src_ip: [u8; 16],
    /// Destination address.
    pub dst_ip: [u8; 16],
    /// Bytes on the wire, without FCS.
    pub frame_len: u32,
    /// Bytes captured.
    pub cap_len: u32,
    /// TCP sequence number.
    pub tcp_seq: u32,
    /// TCP acknowledgement number.
    pub tcp_ack: u32,
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// EtherType behind the VLAN tags.
    pub eth_type: u16,
    /// Outer tag: PCP, DEI, VID.
    pub vlan_tci: u16,
    /// Inner tag.
    pub vlan_tci2: u16,
    /// IPv4 total length, IPv6 payload length; the low 16 bits of it with [`Has::LEN_UNSTATED`].
    pub ip_len: u16,
    /// IPv4 identification; low half of the IPv6 fragment's.
    pub ip_id: u16,
    /// IPv4's word: DF 0x4000, MF 0x2000, offset in units of 8 bytes.
    pub frag: u16,
    /// TCP window as on the wire, unscaled.
    pub tcp_win: u16,
    /// Maximum segment size option of a SYN, in bytes.
    pub tcp_mss: u16,
    /// FIN 1 SYN 2 RST 4 PSH 8 ACK 16 URG 32 ECE 64 CWR 128 AE 256.
    pub tcp_flags: u16,
    /// Bytes of the IP header; IPv6 with extension headers.
    pub l3_hdr_len: u16,
    /// Bytes of the layer-4 header.
    pub l4_hdr_len: u8,
    /// Protocol; IPv6: the one behind the extension headers.
    pub proto: u8,
    /// Time to live, hop limit.
    pub ttl: u8,
    /// DSCP and ECN.
    pub tos: u8,
    /// ICMP or ICMPv6 type.
    pub icmp_type: u8,
    /// ICMP or ICMPv6 code.
    pub icmp_code: u8,
    /// Window scale option of a SYN.
    pub tcp_wscale: u8,
    /// How far parsing got.
    pub status: Status,
    /// Which fields mean something.
    pub has: Has,
    /// Receive queue.
    pub rx_queue: u16,
    /// Interface index; 0: not from an interface.
    pub ifindex: u32,
}

c_struct!(Record, "lw_record", RECORD_BYTES, {
    ts_ns @ 0,
    seq_no @ 8,
    src_ip @ 16,
    dst_ip @ 32,
    frame_len @ 48,
    cap_len @ 52,
    tcp_seq @ 56,
    tcp_ack @ 60,
    src_port @ 64,
    dst_port @ 66,
    eth_type @ 68,
    vlan_tci @ 70,
    vlan_tci2 @ 72,
    ip_len @ 74,
    ip_id @ 76,
    frag @ 78,
    tcp_win @ 80,
    tcp_mss @ 82,
    tcp_flags @ 84,
    l3_hdr_len @ 86,
    l4_hdr_len @ 88,
    proto @ 89,
    ttl @ 90,
    tos @ 91,
    icmp_type @ 92,
    icmp_code @ 93,
    tcp_wscale @ 94,
    status @ 95,
    has @ 96,
    rx_queue @ 98,
    ifindex @ 100,
});

impl Record {
    /// Reads `struct lw_record`; `None` if its status is no code of [`Status`], so that these
    /// bytes are no record of this version.
    #[inline]
    pub fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Option<Record> {
        Record::read(bytes)
    }

    /// Writes `struct lw_record`.
    #[inline]
    pub fn to_bytes(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        self.write(&mut bytes);
        bytes
    }

    /// True if the record belongs to a flow: its IP header was understood.
    #[inline]
    pub fn has_ip(&self) -> bool {
        self.has.intersects(Has::IPV4.with(Has::IPV6))
    }

    /// 4, 6, or `None` without an IP header.
    pub fn ip_version(&self) -> Option<u8> {
        if self.has.contains(Has::IPV4) {
            Some(4)
        } else if self.has.contains(Has::IPV6) {
            Some(6)
        } else {
            None
        }
    }

    /// VLAN id of the outer tag.
    pub fn vlan_id(&self) -> Option<u16> {
        self.has.contains(Has::VLAN).then_some(self.vlan_tci & 0x0fff)
    }

    /// VLAN id of the inner tag.
    pub fn vlan_id2(&self) -> Option<u16> {
        self.has.contains(Has::VLAN2).then_some(self.vlan_tci2 & 0x0fff)
    }

    /// Source address, IPv4-mapped for IPv4.
    pub fn source(&self) -> Ipv6Addr {
        self.src_ip.into()
    }

    /// Destination address, IPv4-mapped for IPv4.
    pub fn destination(&self) -> Ipv6Addr {
        self.dst_ip.into()
    }

    /// Bytes of the IP packet, header included; 0 without an IP header.
    #[inline]
    pub fn ip_total_bytes(&self) -> u32 {
        if self.has_ip() { self.claimed_bytes().0 } else { 0 }
    }

    /// Bytes behind the IP header: layer-4 header and payload.
    #[inline]
    pub fn l4_bytes(&self) -> u32 {
        if self.has_ip() { self.claimed_bytes().1 } else { 0 }
    }

    /// Bytes behind the layer-4 header; where that header is not decoded, behind the IP header.
    #[inline]
    pub fn payload_bytes(&self) -> u32 {
        if self.has_ip() { self.claimed_bytes().2 } else { 0 }
    }

    /// IP packet, layer 4, payload of a record with an IP header.
    #[inline]
    pub(crate) fn claimed_bytes(&self) -> (u32, u32, u32) {
        let fixed = if self.has.contains(Has::IPV4) { 0 } else { 40 };
        let mut ip = fixed + u32::from(self.ip_len);
        if self.has.contains(Has::LEN_UNSTATED) {
            // It may exceed 16 bits, but it ends with the frame and begins less than 64 KiB behind
            // its start: the low bits tell.
            ip = self.frame_len.saturating_sub(self.frame_len.wrapping_sub(ip) & 0xffff);
        }
        let l4 = ip.saturating_sub(u32::from(self.l3_hdr_len));
        (ip, l4, l4.saturating_sub(u32::from(self.l4_hdr_len)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_survive_the_round_trip(
            mut bytes in proptest::collection::vec(any::<u8>(), RECORD_BYTES), status in 0u8..11,
        ) {
            bytes[95] = status;
            let bytes: [u8; RECORD_BYTES] = bytes.try_into().unwrap();
            prop_assert_eq!(Record::from_bytes(&bytes).unwrap().to_bytes(), bytes);
        }
    }

    #[test]
    fn a_status_of_another_version_is_no_record() {
        let mut bytes = Record::default().to_bytes();
        bytes[95] = Status::COUNT as u8;
        assert_eq!(Record::from_bytes(&bytes), None);
    }

    #[test]
    fn statuses_are_those_of_the_header() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../apps/features/bpf/record.h");
        let header = std::fs::read_to_string(path).expect("the header is part of the tree");
        for (code, status) in Status::ALL.iter().enumerate() {
            assert_eq!(*status as usize, code);
            assert_eq!(Status::from_code(code as u8), Some(*status));
            let line = format!("LW_{} = {code},", status.name().to_uppercase());
            assert!(header.contains(&line), "{path} lacks `{line}`");
        }
        assert!(header.contains(&format!("LW_STATUS_COUNT = {},", Status::COUNT)));
        for (bit, name) in Has::NAMES {
            let line = format!("#define LW_HAS_{name} {:#06x}", bit.bits());
            assert!(header.contains(&line), "{path} lacks `{line}`");
        }
    }

    #[test]
    fn lengths_are_claims_and_never_wrap() {
        let mut record = Record { has: Has::IPV6, ip_len: 28, l3_hdr_len: 40, ..Record::default() };
        record.l4_hdr_len = 8;
        assert_eq!(
            (record.ip_total_bytes(), record.l4_bytes(), record.payload_bytes()),
            (68, 28, 20)
        );
        record.has = Has::IPV4;
        assert_eq!(
            (record.ip_total_bytes(), record.l4_bytes(), record.payload_bytes()),
            (28, 0, 0)
        );
        record.has = Has::VLAN;
        assert_eq!(record.ip_total_bytes(), 0);
    }
}
