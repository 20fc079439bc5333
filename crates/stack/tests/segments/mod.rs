//! Segments made by hand, and what a stack answers to them.

use crate::{
    apps::Server,
    far::{Bench, PORT, framed, near},
};
use laneway_core::StreamLane;
use laneway_wire::{Ipv4, Ipv6, Tcp, checksum, protocol, tcp_flags};
use std::net::{IpAddr, SocketAddr};

/// A SYN from anywhere.
pub(crate) fn syn(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    segment(from, to, tcp_flags::SYN, 1000, 0)
}

pub(crate) fn segment(
    from: SocketAddr,
    to: SocketAddr,
    flags: u16,
    sequence: u32,
    ack: u32,
) -> Vec<u8> {
    segment_with(from, to, (flags, sequence, ack), 4096, &[])
}

pub(crate) fn segment_with(
    from: SocketAddr,
    to: SocketAddr,
    (flags, sequence, ack): (u16, u32, u32),
    window: u16,
    payload: &[u8],
) -> Vec<u8> {
    let tcp = Tcp {
        source_port: from.port(),
        destination_port: to.port(),
        sequence,
        acknowledgement: ack,
        header_bytes: 20,
        flags,
        window,
        checksum: 0,
        urgent: 0,
    };
    tcp_frame(from.ip(), to.ip(), tcp, payload)
}

/// A SYN with options, four bytes each.
pub(crate) fn syn_with(from: SocketAddr, to: SocketAddr, options: &[u8]) -> Vec<u8> {
    let tcp = Tcp {
        source_port: from.port(),
        destination_port: to.port(),
        sequence: 1000,
        acknowledgement: 0,
        header_bytes: 20 + options.len(),
        flags: tcp_flags::SYN,
        window: 4096,
        checksum: 0,
        urgent: 0,
    };
    tcp_frame(from.ip(), to.ip(), tcp, options)
}

/// A segment in a frame; `rest` are its options and its payload.
pub(crate) fn tcp_frame(from: IpAddr, to: IpAddr, tcp: Tcp, rest: &[u8]) -> Vec<u8> {
    let mut segment = vec![0; 20];
    assert!(tcp.emit(&mut segment));
    segment.extend_from_slice(rest);
    frame_behind((from, to), (protocol::TCP, &[]), &segment)
}

/// A segment, whose checksum is filled in, in a frame: behind IPv4 options, or behind IPv6 extension headers, the
/// first of which is of the given type.
pub(crate) fn frame_behind(
    (from, to): (IpAddr, IpAddr),
    (first, between): (u8, &[u8]),
    segment: &[u8],
) -> Vec<u8> {
    let payload_bytes = between.len() + segment.len();
    let mut packet = match (from, to) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let ip = Ipv4 {
                header_bytes: 20,
                tos: 0,
                total_bytes: 20 + payload_bytes as u16,
                id: 0,
                fragment: 0x4000,
                ttl: 64,
                protocol: protocol::TCP,
                checksum: 0,
                source,
                destination,
            };
            let mut packet = vec![0; 20];
            assert!(ip.emit(&mut packet));
            packet[0] += between.len() as u8 / 4;
            packet
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let ip = Ipv6 {
                traffic_class: 0,
                flow_label: 0,
                payload_bytes: payload_bytes as u16,
                next_header: first,
                hop_limit: 64,
                source,
                destination,
            };
            let mut packet = vec![0; 40];
            assert!(ip.emit(&mut packet));
            packet
        }
        _ => panic!("two versions"),
    };
    packet.extend_from_slice(between);
    if from.is_ipv4() {
        assert!(Ipv4::seal(&mut packet));
    }
    let at = packet.len();
    packet.extend_from_slice(segment);
    packet[at + 16..at + 18].fill(0);
    let address_sum = |ip| match ip {
        IpAddr::V4(v4) => checksum::sum(&v4.octets()),
        IpAddr::V6(v6) => checksum::sum(&v6.octets()),
    };
    let pseudo = address_sum(from) + address_sum(to) + 6 + segment.len() as u64;
    let sum = !checksum::fold(pseudo + checksum::sum(&packet[at..]));
    packet[at + 16..at + 18].copy_from_slice(&sum.to_be_bytes());
    framed(&packet)
}

/// The TCP headers that arrived at the far end.
pub(crate) fn collected(bench: &Bench<Server>) -> Vec<Tcp> {
    let arrivals = bench.world.collect(PORT);
    let of_tcp = arrivals.iter().filter_map(|a| match (&a.bytes[12..14], &a.bytes[14..]) {
        ([8, 0], packet) if packet[9] == protocol::TCP => Some(&packet[20..]),
        ([0x86, 0xdd], packet) if packet[6] == protocol::TCP => Some(&packet[40..]),
        _ => None,
    });
    of_tcp.map(|segment| Tcp::parse(segment).unwrap()).collect()
}

/// The TCP headers that answer a segment.
pub(crate) fn answers(bench: &mut Bench<Server>, frame: &[u8]) -> Vec<Tcp> {
    bench.world.inject(PORT, frame);
    let clock = bench.world.clock();
    bench.stack.serve(&mut bench.app, &clock).unwrap();
    collected(bench)
}

/// Opens a connection from there to port 7, of which the far end's next number is 1001; gives ours.
pub(crate) fn opened(bench: &mut Bench<Server>, from: SocketAddr) -> u32 {
    let own = answers(bench, &syn(from, near(7)))[0].sequence.wrapping_add(1);
    assert_eq!(answers(bench, &segment(from, near(7), tcp_flags::ACK, 1001, own)), []);
    own
}
