//! What rules look at: the header fields of a frame, at fixed places in 72 bytes.
//!
//! The same bytes as `struct lw_fields` of `bpf/forward.h`, filled by an independent implementation;
//! the tests hold the two against each other. Values stand as they do on the wire (big-endian), so a
//! pattern is a mask and a value over nine words and needs no knowledge of fields.
//!
//! Lengths are believed in this order: what was captured bounds every read, the IP length bounds
//! layer 4. A header that contradicts itself is not there; what lies behind it is not looked at.
//! Nothing beyond [`HEADERS_BYTES_MAX`] is looked at, in any placement. Of the two outermost VLAN tags
//! both are seen; later fragments have no layer 4.

use laneway_wire::{
    Ethernet, Extensions, ICMP_BYTES, IPV6_BYTES, Ipv4, Ipv6, Layer2, TCP_BYTES_MIN, UDP_BYTES,
    ether_type, protocol,
};

/// 64-bit words of [`Fields`].
pub(crate) const WORDS: usize = 9;
/// Bytes of [`Fields`].
pub(crate) const FIELDS_BYTES: usize = WORDS * 8;
/// Headers are looked for in so many bytes from the start of a frame.
pub const HEADERS_BYTES_MAX: usize = 512;
/// RFC 7348.
const VXLAN_PORT: u16 = 4789;
const VXLAN_BYTES: usize = 8;

/// Where each field stands, in bytes.
pub(crate) mod at {
    pub(crate) const SRC_IP: usize = 0;
    pub(crate) const DST_IP: usize = 16;
    pub(crate) const ETH_DST: usize = 32;
    pub(crate) const ETH_SRC: usize = 38;
    pub(crate) const ETH_TYPE: usize = 44;
    pub(crate) const VLAN_TCI: usize = 46;
    pub(crate) const VLAN_TCI2: usize = 48;
    pub(crate) const SRC_PORT: usize = 50;
    pub(crate) const DST_PORT: usize = 52;
    pub(crate) const PROTO: usize = 54;
    pub(crate) const TTL: usize = 55;
    pub(crate) const TOS: usize = 56;
    pub(crate) const TCP_FLAGS: usize = 57;
    pub(crate) const ICMP_TYPE: usize = 58;
    pub(crate) const ICMP_CODE: usize = 59;
    pub(crate) const VNI: usize = 60;
    pub(crate) const HAS: usize = 64;
    pub(crate) const FRAGMENT: usize = 66;
}

/// Headers that are there, as bits of the field at [`at::HAS`].
pub(crate) mod has {
    pub(crate) const ETH: u16 = 0x001;
    pub(crate) const VLAN: u16 = 0x002;
    pub(crate) const VLAN2: u16 = 0x004;
    pub(crate) const IPV4: u16 = 0x008;
    pub(crate) const IPV6: u16 = 0x010;
    pub(crate) const TCP: u16 = 0x020;
    pub(crate) const UDP: u16 = 0x040;
    pub(crate) const ICMP: u16 = 0x080;
    pub(crate) const ICMP6: u16 = 0x100;
    pub(crate) const VXLAN: u16 = 0x200;
}

/// The fields of one frame; zero where a header is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fields([u8; FIELDS_BYTES]);

impl Default for Fields {
    fn default() -> Fields {
        Fields([0; FIELDS_BYTES])
    }
}

impl Fields {
    #[inline]
    pub(crate) fn word(&self, i: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.0[i * 8..i * 8 + 8]);
        u64::from_ne_bytes(word)
    }

    #[inline]
    pub(crate) fn bytes(&self, at: usize, bytes: usize) -> &[u8] {
        &self.0[at..at + bytes]
    }

    #[inline]
    pub(crate) fn set(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    #[inline]
    pub(crate) fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }

    #[inline]
    pub(crate) fn u8(&self, at: usize) -> u8 {
        self.0[at]
    }

    #[inline]
    pub(crate) fn has(&self, header: u16) -> bool {
        self.u16(at::HAS) & header != 0
    }

    fn add(&mut self, header: u16) {
        let both = self.u16(at::HAS) | header;
        self.set(at::HAS, &both.to_be_bytes());
    }

    /// The destination address of an IP packet as a number, highest bit first; IPv4 on the left.
    #[inline]
    pub(crate) fn destination(&self) -> u128 {
        let mut address = [0; 16];
        match self.has(has::IPV4) {
            true => address[..4].copy_from_slice(&self.0[at::DST_IP + 12..at::DST_IP + 16]),
            false => address.copy_from_slice(&self.0[at::DST_IP..at::DST_IP + 16]),
        }
        u128::from_be_bytes(address)
    }
}

/// A frame's fields and where its headers start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parsed {
    pub(crate) fields: Fields,
    /// Offset of the IP header; meaningful with [`has::IPV4`] or [`has::IPV6`].
    pub(crate) l3: usize,
    /// Offset of the layer-4 header; meaningful with one of its bits.
    pub(crate) l4: usize,
}

impl Parsed {
    /// Looks at a frame.
    #[inline]
    pub(crate) fn of(frame: &[u8]) -> Parsed {
        let mut parsed = Parsed::default();
        parsed.read(&frame[..frame.len().min(HEADERS_BYTES_MAX)]);
        parsed
    }

    fn read(&mut self, bytes: &[u8]) {
        let Ok(ethernet) = Ethernet::parse(bytes) else { return };
        let f = &mut self.fields;
        f.add(has::ETH);
        f.set(at::ETH_DST, &ethernet.destination);
        f.set(at::ETH_SRC, &ethernet.source);
        // Ethernet is whole: so is what is read here, tags aside.
        let Ok(layer2) = Layer2::parse(bytes) else { return };
        let places = [(has::VLAN, at::VLAN_TCI), (has::VLAN2, at::VLAN_TCI2)];
        for (tag, (header, place)) in layer2.tags.into_iter().flatten().zip(places) {
            f.add(header);
            f.set(place, &tag.tci.to_be_bytes());
        }
        f.set(at::ETH_TYPE, &layer2.ether_type.to_be_bytes());
        self.l3 = layer2.layer3_at;
        match layer2.ether_type {
            ether_type::IPV4 => self.read_ipv4(bytes),
            ether_type::IPV6 => self.read_ipv6(bytes),
            _ => {}
        }
    }

    fn read_ipv4(&mut self, bytes: &[u8]) {
        let Ok(ip) = Ipv4::parse(&bytes[self.l3..]) else { return };
        self.l4 = self.l3 + ip.header_bytes;
        if self.l4 > bytes.len() {
            return;
        }
        let f = &mut self.fields;
        f.add(has::IPV4);
        for (place, address) in [(at::SRC_IP, ip.source), (at::DST_IP, ip.destination)] {
            f.set(place + 10, &[0xff, 0xff]);
            f.set(place + 12, &address.octets());
        }
        f.set(at::PROTO, &[ip.protocol, ip.ttl, ip.tos]);
        f.set(at::FRAGMENT, &ip.fragment.to_be_bytes());
        if ip.fragment_offset_bytes() == 0 {
            let avail = usize::from(ip.total_bytes) - ip.header_bytes;
            self.read_l4(bytes, ip.protocol, avail, protocol::ICMP, has::ICMP);
        }
    }

    fn read_ipv6(&mut self, bytes: &[u8]) {
        let Ok(ip) = Ipv6::parse(&bytes[self.l3..]) else { return };
        let f = &mut self.fields;
        f.add(has::IPV6);
        f.set(at::SRC_IP, &ip.source.octets());
        f.set(at::DST_IP, &ip.destination.octets());
        let behind = &bytes[self.l3 + IPV6_BYTES..];
        let mut headers = Extensions::new(ip.next_header, behind, ip.payload_bytes.into());
        let has_layer4 = loop {
            match headers.step() {
                None => break true,
                Some(Err(_)) => break false,
                Some(Ok(header)) if header.fragment.is_some_and(|part| part.is_later()) => {
                    break false;
                }
                Some(Ok(_)) => (),
            }
        };
        let next = headers.next_header();
        f.set(at::PROTO, &[next, ip.hop_limit, ip.traffic_class]);
        self.l4 = self.l3 + IPV6_BYTES + headers.stepped_bytes();
        if has_layer4 {
            self.read_l4(bytes, next, headers.available(), protocol::ICMPV6, has::ICMP6);
        }
    }

    /// Layer 4, of which the IP packet has `avail` bytes. ICMP is only ICMP in its own IP.
    fn read_l4(&mut self, bytes: &[u8], next: u8, avail: usize, icmp: u8, icmp_bit: u16) {
        let Some(bytes) = bytes.get(self.l4..) else { return };
        let bytes = &bytes[..bytes.len().min(avail)];
        let f = &mut self.fields;
        match next {
            protocol::TCP if bytes.len() >= TCP_BYTES_MIN && bytes[12] >> 4 >= 5 => {
                f.add(has::TCP);
                f.set(at::SRC_PORT, &bytes[..4]);
                f.set(at::TCP_FLAGS, &[bytes[13]]);
            }
            protocol::UDP if bytes.len() >= UDP_BYTES => {
                f.add(has::UDP);
                f.set(at::SRC_PORT, &bytes[..4]);
                let vxlan = bytes.get(UDP_BYTES..UDP_BYTES + VXLAN_BYTES);
                if let Some(&[flags, _, _, _, a, b, c, _]) = vxlan
                    && f.u16(at::DST_PORT) == VXLAN_PORT
                    && flags & 0x08 != 0
                {
                    f.add(has::VXLAN);
                    f.set(at::VNI, &[a, b, c]);
                }
            }
            _ if next == icmp && bytes.len() >= ICMP_BYTES => {
                f.add(icmp_bit);
                f.set(at::ICMP_TYPE, &bytes[..2]);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Ethernet, IPv4 with these bytes behind it.
    fn four(next: u8, rest: &[u8]) -> Vec<u8> {
        let total = (20 + rest.len() as u16).to_be_bytes();
        let ip = [0x45, 0, total[0], total[1], 0, 0, 0, 0, 9, next, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        [&[1; 6][..], &[2; 6], &[8, 0], &ip, rest].concat()
    }

    #[test]
    fn fields_stand_where_rules_look_for_them() {
        let parsed = Parsed::of(&four(17, &[0, 53, 18, 0xb5, 0, 16, 0, 0, 8, 0, 0, 0, 1, 2, 3, 0]));
        let f = parsed.fields;
        assert_eq!((parsed.l3, parsed.l4), (14, 34));
        assert!(f.has(has::ETH) && f.has(has::IPV4) && f.has(has::UDP) && f.has(has::VXLAN));
        assert_eq!(f.bytes(at::ETH_SRC, 6), [2; 6]);
        assert_eq!(f.bytes(at::DST_IP + 12, 4), [10, 0, 0, 2]);
        assert_eq!((f.u16(at::SRC_PORT), f.u16(at::DST_PORT)), (53, 4789));
        assert_eq!((f.u8(at::PROTO), f.u8(at::TTL)), (17, 9));
        assert_eq!(f.bytes(at::VNI, 4), [1, 2, 3, 0]);
        assert_eq!(f.destination() >> 96, 0x0a00_0002);
    }

    #[test]
    fn padding_is_no_header_and_a_later_fragment_has_no_ports() {
        let mut padded = four(17, &[0, 1, 0, 2, 0, 8, 0, 0]);
        padded[17] = 24; // the IP packet ends after four bytes of UDP
        assert!(!Parsed::of(&padded).fields.has(has::UDP));
        let mut later = four(17, &[0, 1, 0, 2, 0, 8, 0, 0]);
        later[21] = 1;
        let f = Parsed::of(&later).fields;
        assert!(f.has(has::IPV4) && !f.has(has::UDP));
    }

    proptest! {
        #[test]
        fn any_bytes_have_fields(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = Parsed::of(&bytes);
        }

        #[test]
        fn any_bytes_behind_a_sound_start_have_fields(
            kind in prop::sample::select(vec![0x0800u16, 0x86dd, 0x8100, 0x88a8]),
            bytes in proptest::collection::vec(any::<u8>(), 0..120),
        ) {
            let first = if kind == 0x0800 { 0x45 } else { 0x60 };
            let frame = [&[2; 12][..], &kind.to_be_bytes(), &[first], &bytes].concat();
            let parsed = Parsed::of(&frame);
            prop_assert!(parsed.fields.has(has::ETH));
        }
    }
}
