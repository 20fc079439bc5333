//! Random records for the tests: few ends and ports, so that flows meet; fields that need not make
//! sense together, because the kernel half would take them too.

use laneway_flow::{Has, Record, Status};
use proptest::prelude::*;

fn address(version: u8, host: u8) -> [u8; 16] {
    match version {
        4 => [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, host],
        _ => [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host],
    }
}

/// One record without its time.
pub(crate) fn record() -> impl Strategy<Value = Record> {
    let ends = (0u8..3, 0u8..3, 0u16..2, 0u16..2, prop_oneof![3 => Just(4u8), 1 => Just(6)]);
    let lengths = (
        prop_oneof![40u32..120, 60u32..9000, any::<u32>()],
        any::<u16>(),
        prop_oneof![Just(20u16), Just(40), 0u16..100, any::<u16>()],
        prop_oneof![Just(20u8), Just(8), any::<u8>()],
        prop_oneof![20u16..100, any::<u16>()],
    );
    let tcp = (
        prop_oneof![0u32..20_000, 0xffff_f000u32..=u32::MAX],
        0u32..4,
        0u16..4,
        prop_oneof![4 => Just(0x10u16), 2 => Just(0x18), 1 => Just(2), 1 => Just(0x12), 1 => Just(0x11),
            1 => 0u16..0x200],
        any::<u16>(),
        0u8..15,
    );
    let rest = (
        any::<u16>(),
        0u8..4,
        any::<u8>(),
        prop_oneof![3 => Just(6u8), 2 => Just(17), 1 => Just(1), 1 => Just(58), 1 => Just(132)],
        prop_oneof![4 => Just(0x60u16), 1 => any::<u16>()],
        0u8..11,
    );
    (ends, lengths, tcp, rest).prop_map(|(ends, lengths, tcp, rest)| {
        let (src, dst, src_port, dst_port, version) = ends;
        let (frame_len, _, l3_hdr_len, l4_hdr_len, ip_len) = lengths;
        let (tcp_seq, tcp_ack, tcp_win, tcp_flags, tcp_mss, tcp_wscale) = tcp;
        let (vlan_tci, ttl, tos, proto, has, status) = rest;
        let ip = match status {
            2 => Has::default(),
            _ if version == 4 => Has::IPV4,
            _ => Has::IPV6,
        };
        let other = has & !Has::IPV4.with(Has::IPV6).bits();
        let tcp_bit = if proto == 6 { Has::TCP } else { Has::default() };
        Record {
            src_ip: address(version, src),
            dst_ip: address(version, dst),
            src_port: 1000 + src_port,
            dst_port: 1000 + dst_port,
            frame_len,
            cap_len: frame_len,
            eth_type: if version == 4 { 0x0800 } else { 0x86dd },
            ip_len,
            l3_hdr_len,
            l4_hdr_len,
            tcp_seq,
            tcp_ack,
            tcp_win,
            tcp_flags,
            tcp_mss,
            tcp_wscale,
            vlan_tci: vlan_tci & 0xf001,
            vlan_tci2: vlan_tci & 0x7,
            icmp_type: ttl,
            icmp_code: tos & 3,
            ttl: 62 + ttl,
            tos,
            proto,
            has: ip.with(Has::from_bits(other)).with(tcp_bit),
            status: Status::from_code(status).expect("the range ends at COUNT"),
            ..Record::default()
        }
    })
}
