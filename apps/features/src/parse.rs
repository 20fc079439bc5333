//! Frame -> record, in Rust: the counterpart of `bpf/parse.h`, written from the same rules and
//! compared with it byte for byte on every capture.
//!
//! Lengths are believed in this order: what was captured bounds every read; the IP length bounds
//! layer 4, so that Ethernet padding is never taken for a header or payload. Where the IP header
//! states no length (0: segmentation offload, jumbograms) or more than the frame has, the record's
//! `ip_len` is what the frame has. No bytes make it panic.

use laneway_flow::{Has, Record, Status};
use laneway_wire::{
    ExtensionError, Extensions, ICMP_BYTES, IPV6_BYTES, Icmp, Ipv4, Ipv6, Layer2, Malformed,
    SCTP_BYTES, Sctp, TCP_BYTES_MIN, Tcp, TcpOption, TcpOptions, UDP_BYTES, Udp, ether_type,
    protocol, tcp_flags,
};

/// What is known of a frame besides its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stamp {
    /// When it was received, ns in the source's clock.
    pub ts_ns: u64,
    /// Its number at the source.
    pub seq_no: u64,
    /// Bytes on the wire.
    pub wire_len: u32,
    /// Interface index; 0: not from an interface.
    pub ifindex: u32,
    /// Receive queue.
    pub rx_queue: u16,
}

/// Parses a frame of which `bytes` were captured in one piece.
#[inline]
pub fn parse(bytes: &[u8], stamp: Stamp) -> Record {
    let mut record = Record {
        ts_ns: stamp.ts_ns,
        seq_no: stamp.seq_no,
        frame_len: stamp.wire_len,
        cap_len: bytes.len() as u32,
        ifindex: stamp.ifindex,
        rx_queue: stamp.rx_queue,
        ..Record::default()
    };
    record.status = layer2(bytes, &mut record);
    record
}

fn layer2(bytes: &[u8], r: &mut Record) -> Status {
    let Ok(layer2) = Layer2::parse(bytes) else { return Status::L2Truncated };
    r.eth_type = layer2.ether_type;
    if let [Some(outer), inner] = layer2.tags {
        r.vlan_tci = outer.tci;
        r.has.insert(Has::VLAN);
        if let Some(inner) = inner {
            r.vlan_tci2 = inner.tci;
            r.has.insert(Has::VLAN2);
        }
    }
    if layer2.is_cut {
        return Status::L2Truncated;
    }
    let rest = &bytes[layer2.layer3_at..];
    let wire_bytes = r.frame_len.saturating_sub(layer2.layer3_at as u32);
    match r.eth_type {
        ether_type::IPV4 => ipv4(rest, wire_bytes, r),
        ether_type::IPV6 => ipv6(rest, wire_bytes, r),
        _ => Status::L3Unknown,
    }
}

fn bad_layer3(malformed: Malformed) -> Status {
    match malformed {
        Malformed::Truncated => Status::L3Truncated,
        Malformed::Version => Status::L3BadVersion,
        Malformed::Length => Status::L3BadLength,
    }
}

/// The length that counts for layer 4 and the one for the record, of a packet whose header states
/// `stated` bytes where the frame has `wire_bytes`; marks the record where they differ.
#[inline]
fn lengths(stated: u16, is_stated: bool, wire_bytes: u32, r: &mut Record) -> (u32, u16) {
    if !is_stated {
        r.has.insert(Has::LEN_UNSTATED);
        return (wire_bytes, wire_bytes as u16);
    }
    if u32::from(stated) > wire_bytes {
        r.has.insert(Has::LEN_BEYOND);
        return (stated.into(), wire_bytes as u16);
    }
    (stated.into(), stated)
}

#[inline]
fn ipv4(bytes: &[u8], wire_bytes: u32, r: &mut Record) -> Status {
    let ip = match Ipv4::parse_unstated(bytes) {
        Ok(ip) => ip,
        Err(malformed) => return bad_layer3(malformed),
    };
    let is_stated = ip.total_bytes != 0;
    if !is_stated && (wire_bytes as usize) < ip.header_bytes {
        return Status::L3BadLength;
    }
    let Some(rest) = bytes.get(ip.header_bytes..) else { return Status::L3Truncated };
    r.has.insert(Has::IPV4);
    r.tos = ip.tos;
    let (total_bytes, ip_len) = lengths(ip.total_bytes, is_stated, wire_bytes, r);
    r.ip_len = ip_len;
    r.ip_id = ip.id;
    r.frag = ip.fragment;
    r.ttl = ip.ttl;
    r.proto = ip.protocol;
    r.src_ip = ip.source.to_ipv6_mapped().octets();
    r.dst_ip = ip.destination.to_ipv6_mapped().octets();
    r.l3_hdr_len = ip.header_bytes as u16;
    if ip.header_bytes > 20 {
        r.has.insert(Has::IP_OPTIONS);
    }
    if ip.is_fragment() {
        r.has.insert(Has::FRAG);
    }
    if ip.fragment_offset_bytes() > 0 {
        return Status::Fragment;
    }
    layer4(rest, total_bytes as usize - ip.header_bytes, r)
}

/// IPv6 "next header" of a packet that ends behind its header (RFC 8200, 4.7).
const NO_NEXT_HEADER: u8 = 59;

#[inline]
fn ipv6(bytes: &[u8], wire_bytes: u32, r: &mut Record) -> Status {
    let ip = match Ipv6::parse(bytes) {
        Ok(ip) => ip,
        Err(malformed) => return bad_layer3(malformed),
    };
    r.has.insert(Has::IPV6);
    r.tos = ip.traffic_class;
    let is_stated = ip.payload_bytes != 0 || ip.next_header == NO_NEXT_HEADER;
    let wire_payload = wire_bytes.saturating_sub(IPV6_BYTES as u32);
    let (payload_bytes, ip_len) = lengths(ip.payload_bytes, is_stated, wire_payload, r);
    r.ip_len = ip_len;
    r.ttl = ip.hop_limit;
    r.proto = ip.next_header;
    r.src_ip = ip.source.octets();
    r.dst_ip = ip.destination.octets();
    r.l3_hdr_len = IPV6_BYTES as u16;

    let mut headers = Extensions::new(r.proto, &bytes[IPV6_BYTES..], payload_bytes as usize);
    while let Some(header) = headers.step() {
        let extension = match header {
            Ok(extension) => extension,
            Err(ExtensionError::BeyondPacket) => return Status::L3BadLength,
            Err(ExtensionError::Truncated) => return Status::L3Truncated,
            Err(ExtensionError::TooMany) => return Status::L3ExtLimit,
        };
        r.l3_hdr_len += extension.bytes as u16;
        r.proto = extension.next_header;
        r.has.insert(Has::IP_OPTIONS);
        if let Some(header) = extension.fragment {
            r.has.insert(Has::FRAG);
            r.frag = header.fragment;
            r.ip_id = header.id as u16;
            if header.is_later() {
                return Status::Fragment;
            }
        }
    }
    layer4(headers.rest(), headers.available(), r)
}

/// Layer 4 at the start of `bytes`, for which the IP packet has `available` bytes.
#[inline]
fn layer4(bytes: &[u8], available: usize, r: &mut Record) -> Status {
    let is_v4 = r.has.contains(Has::IPV4);
    let need = match r.proto {
        protocol::TCP => TCP_BYTES_MIN,
        protocol::UDP => UDP_BYTES,
        protocol::SCTP => SCTP_BYTES,
        protocol::ICMP if is_v4 => ICMP_BYTES,
        protocol::ICMPV6 if !is_v4 => ICMP_BYTES,
        _ => return Status::L4Unknown,
    };
    if available < need {
        some_ports(bytes, available, r);
        return Status::L4BadLength;
    }
    let parsed = match r.proto {
        protocol::TCP => tcp(bytes, available, r),
        protocol::UDP => Udp::parse(bytes).map(|udp| {
            ports(udp.source_port, udp.destination_port, UDP_BYTES, r);
            Status::Ok
        }),
        protocol::SCTP => Sctp::parse(bytes).map(|sctp| {
            ports(sctp.source_port, sctp.destination_port, SCTP_BYTES, r);
            Status::Ok
        }),
        _ => Icmp::parse(bytes).map(|icmp| {
            r.icmp_type = icmp.kind;
            r.icmp_code = icmp.code;
            r.l4_hdr_len = ICMP_BYTES as u8;
            r.has.insert(Has::ICMP);
            Status::Ok
        }),
    };
    parsed.unwrap_or_else(|_| {
        some_ports(bytes, available, r);
        Status::L4Truncated
    })
}

/// The ports of a layer-4 header that is not whole, by its packet's length (a short first fragment)
/// or by the capture's: they stand in its first four bytes.
#[inline]
fn some_ports(bytes: &[u8], available: usize, r: &mut Record) {
    let has_ports = matches!(r.proto, protocol::TCP | protocol::UDP | protocol::SCTP);
    if let Some(&[a, b, c, d]) = bytes.get(..4)
        && available >= 4
        && has_ports
    {
        ports(u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]), 0, r);
    }
}

#[inline]
fn ports(source: u16, destination: u16, header_bytes: usize, r: &mut Record) {
    r.src_port = source;
    r.dst_port = destination;
    r.l4_hdr_len = header_bytes as u8;
    r.has.insert(Has::PORTS);
}

#[inline]
fn tcp(bytes: &[u8], available: usize, r: &mut Record) -> Result<Status, Malformed> {
    let tcp = Tcp::parse(bytes)?;
    // Ports are as sure as ever; the rest of a header whose length is wrong is not.
    ports(tcp.source_port, tcp.destination_port, 0, r);
    if tcp.header_bytes < TCP_BYTES_MIN || tcp.header_bytes > available {
        return Ok(Status::L4BadLength);
    }
    r.tcp_seq = tcp.sequence;
    r.tcp_ack = tcp.acknowledgement;
    r.tcp_flags = tcp.flags;
    r.tcp_win = tcp.window;
    r.l4_hdr_len = tcp.header_bytes as u8;
    r.has.insert(Has::TCP);
    let Some(options) = bytes.get(TCP_BYTES_MIN..tcp.header_bytes) else {
        return Ok(Status::L4Truncated);
    };
    if tcp.flags & tcp_flags::SYN != 0 {
        syn_options(options, r);
    }
    Ok(Status::Ok)
}

/// MSS and window scale; of a repeated option the last counts.
fn syn_options(options: &[u8], r: &mut Record) {
    for option in TcpOptions::new(options) {
        match option {
            Ok(TcpOption::Mss(mss)) => {
                r.tcp_mss = mss;
                r.has.insert(Has::MSS);
            }
            Ok(TcpOption::WindowScale(shift)) => {
                r.tcp_wscale = shift;
                r.has.insert(Has::WSCALE);
            }
            Ok(TcpOption::Other(..)) => {}
            Err(_) => r.has.insert(Has::BAD_TCP_OPTIONS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record_of(bytes: &[u8]) -> Record {
        parse(bytes, Stamp { wire_len: bytes.len() as u32, ..Stamp::default() })
    }

    fn frame(ether_type: u16, layer3: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend(ether_type.to_be_bytes());
        frame.extend(layer3);
        frame
    }

    fn ipv4_of(protocol: u8, total: u16, layer4: &[u8]) -> Vec<u8> {
        let mut ip = vec![0x45, 0x2e, 0, 0, 0, 7, 0x40, 0, 61, protocol, 0, 0];
        ip[2..4].copy_from_slice(&total.to_be_bytes());
        ip.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        ip.extend(layer4);
        ip
    }

    #[test]
    fn padding_is_no_payload_and_no_header() {
        let mut udp = frame(0x0800, &ipv4_of(17, 29, &[0, 1, 0, 2, 0, 9, 0, 0, b'x']));
        udp.resize(60, 0xee);
        let r = record_of(&udp);
        assert_eq!((r.status, r.src_port, r.payload_bytes()), (Status::Ok, 1, 1));
        let mut empty = frame(0x0800, &ipv4_of(17, 20, &[]));
        empty.resize(60, 0xee);
        let r = record_of(&empty);
        assert_eq!((r.status, r.has.contains(Has::PORTS)), (Status::L4BadLength, false));
    }

    /// Windows and Linux hand frames to the card without a length when the card is to cut them.
    #[test]
    fn a_packet_without_a_stated_length_ends_with_the_frame_and_is_marked() {
        let segment = |bytes: usize| {
            let mut tcp = vec![0, 1, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0x50, 0x10, 1, 1, 0, 0, 0, 0];
            tcp.resize(20 + bytes, b'x');
            tcp
        };
        for bytes in [1usize, 1460, 65_535, 70_000] {
            let r = record_of(&frame(0x0800, &ipv4_of(6, 0, &segment(bytes))));
            assert_eq!((r.status, r.src_port), (Status::Ok, 1), "{bytes}");
            assert_eq!(r.payload_bytes() as usize, bytes);
            assert_eq!(r.ip_total_bytes() as usize, 40 + bytes);
            assert!(r.has.contains(Has::LEN_UNSTATED) && !r.has.contains(Has::LEN_BEYOND));
            let mut ip = vec![0x60, 0, 0, 0, 0, 0, 6, 64];
            ip.extend([0x20; 32]);
            ip.extend(segment(bytes));
            let r = record_of(&frame(0x86dd, &ip));
            assert_eq!((r.status, r.src_port), (Status::Ok, 1), "{bytes}");
            assert_eq!(r.payload_bytes() as usize, bytes);
            assert!(r.has.contains(Has::LEN_UNSTATED));
        }
        // As a capture keeps it: the first bytes of a long frame.
        let whole = frame(0x0800, &ipv4_of(6, 0, &segment(9000)));
        let stamp = Stamp { wire_len: whole.len() as u32, ..Stamp::default() };
        assert_eq!(parse(&whole[..60], stamp).payload_bytes(), 9000);
    }

    /// RFC 2675: payload length 0, and a hop-by-hop option with the length in 32 bits.
    #[test]
    fn a_jumbogram_is_as_long_as_its_frame() {
        let mut ip = vec![0x60, 0, 0, 0, 0, 0, 0, 64];
        ip.extend([0x20; 32]);
        ip.extend([17, 0, 0xc2, 4, 0, 1, 0x11, 0x78]);
        ip.extend([0, 53, 0, 54, 0, 0, 0, 0]);
        ip.resize(40 + 8 + 70_000, 0);
        let r = record_of(&frame(0x86dd, &ip));
        assert_eq!((r.status, r.src_port, r.l3_hdr_len), (Status::Ok, 53, 48));
        assert_eq!((r.ip_total_bytes(), r.payload_bytes()), (70_048, 69_992));
        // A packet that ends behind its header is not one without a stated length.
        let mut empty = vec![0x60, 0, 0, 0, 0, 0, 59, 64];
        empty.extend([0x20; 32]);
        empty.extend([0; 6]);
        let r = record_of(&frame(0x86dd, &empty));
        assert_eq!((r.l4_bytes(), r.has), (0, Has::IPV6));
    }

    #[test]
    fn no_payload_is_longer_than_its_frame() {
        let udp = [0, 1, 0, 2, 0x75, 0x30, 0, 0, b'x'];
        let r = record_of(&frame(0x0800, &ipv4_of(17, 30_000, &udp)));
        assert_eq!((r.status, r.payload_bytes(), r.ip_total_bytes()), (Status::Ok, 1, 29));
        assert!(r.has.contains(Has::LEN_BEYOND));
        // What the capture cut off was in the frame.
        let cut = frame(0x0800, &ipv4_of(17, 1500, &udp));
        let r = parse(&cut, Stamp { wire_len: 1514, ..Stamp::default() });
        assert_eq!((r.payload_bytes(), r.has.contains(Has::LEN_BEYOND)), (1472, false));
    }

    /// The least that a router may leave in a first fragment (RFC 791, 3.2: 8 bytes).
    #[test]
    fn ports_are_read_where_the_rest_of_the_header_is_missing() {
        let start = [0x12, 0x34, 0, 80, 0, 0, 0, 1];
        let mut fragment = ipv4_of(6, 28, &start);
        fragment[6] = 0x20;
        let r = record_of(&frame(0x0800, &fragment));
        assert_eq!((r.status, r.src_port, r.dst_port), (Status::L4BadLength, 0x1234, 80));
        assert!(r.has.contains(Has::PORTS.with(Has::FRAG)) && !r.has.contains(Has::TCP));
        let cut = record_of(&frame(0x0800, &ipv4_of(6, 60, &start)));
        assert_eq!((cut.status, cut.dst_port), (Status::L4Truncated, 80));
        let short = record_of(&frame(0x0800, &ipv4_of(6, 23, &start[..3])));
        assert_eq!((short.dst_port, short.has.contains(Has::PORTS)), (0, false));
    }

    #[test]
    fn two_tags_are_followed_and_a_third_is_not() {
        let mut tagged = frame(0x88a8, &[0x20, 5, 0x81, 0, 0, 6, 0x08, 0]);
        tagged.extend(ipv4_of(50, 20, &[]));
        let r = record_of(&tagged);
        assert_eq!((r.vlan_id(), r.vlan_id2(), r.vlan_tci >> 13), (Some(5), Some(6), 1));
        assert_eq!(r.status, Status::L4Unknown);
        let third = frame(0x8100, &[0, 1, 0x81, 0, 0, 2, 0x81, 0, 0, 3, 8, 0]);
        assert_eq!(record_of(&third).status, Status::L3Unknown);
        assert_eq!(record_of(&frame(0x8100, &[0, 1, 8])).status, Status::L2Truncated);
    }

    #[test]
    fn extension_headers_are_walked_to_the_limit() {
        let six = |next: u8, payload: &[u8]| {
            let mut ip = vec![0x60, 0, 0, 0, 0, payload.len() as u8, next, 64];
            ip.extend([0x20; 32]);
            ip.extend(payload);
            frame(0x86dd, &ip)
        };
        let mut eight: Vec<u8> = [60, 0, 0, 0, 0, 0, 0, 0].repeat(7);
        eight.extend([17, 0, 0, 0, 0, 0, 0, 0]);
        let udp = [0, 53, 0, 54, 0, 8, 0, 0];
        let r = record_of(&six(0, &[&eight[..], &udp].concat()));
        assert_eq!((r.status, r.src_port, r.l3_hdr_len), (Status::Ok, 53, 104));
        let nine: Vec<u8> = [60, 0, 0, 0, 0, 0, 0, 0].repeat(9);
        assert_eq!(record_of(&six(0, &nine)).status, Status::L3ExtLimit);
        let later = [17, 0, 0x05, 0xa8, 0, 0, 1, 2, 9, 9];
        let r = record_of(&six(44, &later));
        assert_eq!((r.status, r.proto, r.frag, r.ip_id), (Status::Fragment, 17, 181, 0x0102));
    }

    #[test]
    fn a_syn_shows_its_options_and_a_bad_one_is_marked() {
        let syn = |options: &[u8]| {
            let mut tcp = vec![0, 1, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 2, 0xff, 0xff, 0, 0, 0, 0];
            tcp[12] = ((20 + options.len()) / 4 * 16) as u8;
            tcp.extend(options);
            record_of(&frame(0x0800, &ipv4_of(6, 20 + tcp.len() as u16, &tcp)))
        };
        let r = syn(&[2, 4, 5, 0xb4, 1, 3, 3, 9]);
        assert_eq!((r.tcp_mss, r.tcp_wscale), (1460, 9));
        assert!(r.has.contains(Has::MSS.with(Has::WSCALE)));
        assert!(syn(&[8, 44, 0, 0]).has.contains(Has::BAD_TCP_OPTIONS));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = record_of(&bytes);
        }

        #[test]
        fn cutting_a_frame_never_invents_fields(cut in 0usize..80) {
            let mut tcp = vec![0, 1, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0x80, 2, 1, 1, 0, 0, 0, 0];
            tcp.extend([2, 4, 5, 0xb4, 1, 3, 3, 9, 1, 1, 1, 0]);
            let whole = frame(0x0800, &ipv4_of(6, 52, &tcp));
            let r = record_of(&whole[..cut.min(whole.len())]);
            prop_assert_eq!(r.has.contains(Has::TCP), cut >= 14 + 20 + 20);
            prop_assert_eq!(r.has.contains(Has::MSS), cut >= 14 + 52);
        }
    }
}
