//! The columns of packets: one row per record.

use super::PacketRow;
use super::kit::{Column, Table, about, address, number, optional, timestamp};
use arrow_array::types::{
    Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type,
};
use laneway_flow::{FlowKey, Has};

type Columns = Vec<Column<PacketRow>>;

/// Packet rows; `offset_ns` turns record time into Unix time.
pub(crate) fn packets(offset_ns: i64) -> Table<PacketRow> {
    let mut c = Columns::new();
    arrival(&mut c, offset_ns);
    link(&mut c);
    network(&mut c);
    lengths(&mut c);
    tcp_and_icmp(&mut c);
    fragments(&mut c);
    outcome(&mut c);
    Table::new(c)
}

fn ip(r: &PacketRow) -> bool {
    r.record.has_ip()
}

/// Whether a record has what `bit` stands for.
fn has(bit: Has) -> impl Fn(&PacketRow) -> bool + Copy {
    move |r: &PacketRow| r.record.has.contains(bit)
}

/// When and where the frame was received.
fn arrival(c: &mut Columns, offset_ns: i64) {
    c.push(timestamp(
        "ts",
        about(
            "ns since 1970 UTC",
            "when the frame was received; null where the capture has no time, or one before 1970 or \
             after 2262",
        ),
        offset_ns,
        |r: &PacketRow| (!r.record.has.contains(Has::NO_TIME)).then_some(r.record.ts_ns),
    ));
    c.push(number::<_, UInt16Type>(
        "source",
        about(
            "index",
            "which of the captures (schema metadata `laneway.source.N`), from 0; 0 on a lane",
        ),
        |r: &PacketRow| r.source,
    ));
    c.push(number::<_, Int64Type>(
        "seq_no",
        about(
            "count",
            "number of the frame at its source, from 0; gaps show frames without a row; on lane xdp \
             every CPU counts for itself",
        ),
        |r: &PacketRow| r.record.seq_no as i64,
    ));
    c.push(optional::<_, Int32Type>(
        "ifindex",
        about("index", "receiving interface; null for a capture file"),
        |r: &PacketRow| (r.record.ifindex > 0).then_some(r.record.ifindex as i32),
    ));
    c.push(optional::<_, Int16Type>(
        "rx_queue",
        about("index", "receive queue; null for a capture file"),
        |r: &PacketRow| (r.record.ifindex > 0).then_some(r.record.rx_queue as i16),
    ));
}

/// Ethernet and VLAN tags.
fn link(c: &mut Columns) {
    c.push(optional::<_, UInt16Type>(
        "eth_type",
        about("EtherType", "behind VLAN tags; below 1536 an 802.3 length"),
        |r: &PacketRow| {
            (r.record.status != laneway_flow::Status::L2Truncated).then_some(r.record.eth_type)
        },
    ));
    c.push(optional::<_, UInt16Type>("vlan_id", about("id", "outer VLAN tag"), |r: &PacketRow| {
        r.record.vlan_id()
    }));
    c.push(optional::<_, UInt8Type>(
        "vlan_pcp",
        about("priority", "outer VLAN tag, 3 bits"),
        |r: &PacketRow| r.record.vlan_id().map(|_| (r.record.vlan_tci >> 13) as u8),
    ));
    c.push(optional::<_, UInt16Type>(
        "vlan_id2",
        about("id", "inner VLAN tag"),
        |r: &PacketRow| r.record.vlan_id2(),
    ));
}

/// Addresses, ports, and what an IP header says beside lengths.
fn network(c: &mut Columns) {
    let ports = has(Has::PORTS);
    c.push(optional::<_, UInt8Type>(
        "ip_version",
        about("4 or 6", "IP version"),
        |r: &PacketRow| r.record.ip_version(),
    ));
    c.push(address(
        "src_ip",
        about("16 bytes", "source address; IPv4 as ::ffff:a.b.c.d").alias("nfstream", "src_ip"),
        move |r| ip(r).then_some(r.record.src_ip),
    ));
    c.push(address(
        "dst_ip",
        about("16 bytes", "destination address; IPv4 as ::ffff:a.b.c.d")
            .alias("nfstream", "dst_ip"),
        move |r| ip(r).then_some(r.record.dst_ip),
    ));
    c.push(optional::<_, UInt16Type>(
        "src_port",
        about("port", "source port; null where the protocol or fragment has none"),
        move |r: &PacketRow| ports(r).then_some(r.record.src_port),
    ));
    c.push(optional::<_, UInt16Type>(
        "dst_port",
        about("port", "destination port; null where the protocol or fragment has none"),
        move |r: &PacketRow| ports(r).then_some(r.record.dst_port),
    ));
    c.push(optional::<_, UInt8Type>(
        "proto",
        about("IANA number", "IP protocol; IPv6: behind extension headers"),
        move |r| ip(r).then_some(r.record.proto),
    ));
    c.push(optional::<_, UInt8Type>(
        "ttl",
        about("hops", "time to live, hop limit"),
        move |r: &PacketRow| ip(r).then_some(r.record.ttl),
    ));
    c.push(optional::<_, UInt8Type>(
        "tos",
        about("bits", "DSCP << 2 + ECN; IPv6 traffic class"),
        move |r| ip(r).then_some(r.record.tos),
    ));
}

/// Lengths of the frame, of headers and of the payload.
fn lengths(c: &mut Columns) {
    c.push(number::<_, UInt32Type>(
        "frame_len",
        about(
            "byte",
            "length on the wire, with the link's own header, without frame check sequence",
        ),
        |r: &PacketRow| r.record.frame_len,
    ));
    c.push(number::<_, UInt32Type>("cap_len", about("byte", "captured of it"), |r: &PacketRow| {
        r.record.cap_len
    }));
    c.push(optional::<_, UInt32Type>(
        "ip_len",
        about("byte", "IP packet, header included; see `ip_len_from`"),
        move |r| ip(r).then_some(r.record.ip_total_bytes()),
    ));
    c.push(optional::<_, UInt8Type>(
        "ip_len_from",
        about(
            "code",
            "where ip_len is from: 0 the IP header; 1 the frame, because the header states 0 \
             (segmentation offload, jumbogram); 2 the frame, because the header states more",
        ),
        move |r: &PacketRow| {
            let code = match r.record.has {
                has if has.contains(Has::LEN_UNSTATED) => 1,
                has if has.contains(Has::LEN_BEYOND) => 2,
                _ => 0,
            };
            ip(r).then_some(code)
        },
    ));
    c.push(optional::<_, UInt16Type>(
        "l3_hdr_len",
        about("byte", "IP header with options or extension headers"),
        move |r| ip(r).then_some(r.record.l3_hdr_len),
    ));
    c.push(optional::<_, UInt8Type>(
        "l4_hdr_len",
        about("byte", "layer-4 header; 0 where it is not decoded"),
        move |r| ip(r).then_some(r.record.l4_hdr_len),
    ));
    c.push(optional::<_, UInt32Type>(
        "payload_len",
        about("byte", "behind the layer-4 header, by the IP length, never from padding"),
        move |r| ip(r).then_some(r.record.payload_bytes()),
    ));
}

/// What the headers of TCP and ICMP say.
fn tcp_and_icmp(c: &mut Columns) {
    let tcp = has(Has::TCP);
    c.push(optional::<_, UInt16Type>(
        "tcp_flags",
        about("bits", "FIN 1 SYN 2 RST 4 PSH 8 ACK 16 URG 32 ECE 64 CWR 128 AE 256"),
        move |r| tcp(r).then_some(r.record.tcp_flags),
    ));
    c.push(optional::<_, UInt32Type>(
        "tcp_seq",
        about("byte", "sequence number"),
        move |r: &PacketRow| tcp(r).then_some(r.record.tcp_seq),
    ));
    c.push(optional::<_, UInt32Type>(
        "tcp_ack",
        about("byte", "acknowledgement number"),
        move |r: &PacketRow| tcp(r).then_some(r.record.tcp_ack),
    ));
    c.push(optional::<_, UInt16Type>(
        "tcp_win",
        about("byte", "window, unscaled"),
        move |r: &PacketRow| tcp(r).then_some(r.record.tcp_win),
    ));
    let (mss, wscale, icmp) = (has(Has::MSS), has(Has::WSCALE), has(Has::ICMP));
    c.push(optional::<_, UInt16Type>(
        "tcp_mss",
        about("byte", "MSS option of a SYN"),
        move |r: &PacketRow| mss(r).then_some(r.record.tcp_mss),
    ));
    c.push(optional::<_, UInt8Type>(
        "tcp_wscale",
        about("shift", "window scale option of a SYN"),
        move |r| wscale(r).then_some(r.record.tcp_wscale),
    ));
    c.push(optional::<_, UInt8Type>(
        "icmp_type",
        about("type", "ICMP or ICMPv6 type"),
        move |r: &PacketRow| icmp(r).then_some(r.record.icmp_type),
    ));
    c.push(optional::<_, UInt8Type>(
        "icmp_code",
        about("code", "ICMP or ICMPv6 code"),
        move |r: &PacketRow| icmp(r).then_some(r.record.icmp_code),
    ));
}

/// Fields of fragments.
fn fragments(c: &mut Columns) {
    let v4_or_fragment = |r: &PacketRow| r.record.has.intersects(Has::IPV4.with(Has::FRAG));
    c.push(optional::<_, UInt16Type>(
        "ip_id",
        about("id", "IPv4 identification; low 16 bits of an IPv6 fragment's"),
        move |r| v4_or_fragment(r).then_some(r.record.ip_id),
    ));
    c.push(optional::<_, UInt16Type>("frag_off", about("8 bytes", "fragment offset"), move |r| {
        v4_or_fragment(r).then_some(r.record.frag & 0x1fff)
    }));
    c.push(optional::<_, UInt8Type>(
        "frag_flags",
        about("bits", "more fragments 1, do not fragment 2, reserved 4"),
        move |r| v4_or_fragment(r).then_some((r.record.frag >> 13) as u8),
    ));
}

/// The flow of the packet, and how its parsing ended.
fn outcome(c: &mut Columns) {
    c.push(optional::<_, Int8Type>(
        "direction",
        about("0 or 1", "0 if the source is the lower end of the flow key (address, then port)"),
        move |r| ip(r).then(|| i8::from(!FlowKey::of(&r.record).1)),
    ));
    c.push(optional::<_, Int64Type>(
        "flow_id",
        about("hash", "of the flow key, equal for both directions"),
        move |r| ip(r).then(|| FlowKey::of(&r.record).0.flow_id()),
    ));
    c.push(number::<_, UInt8Type>(
        "parse_status",
        about(
            "code",
            laneway_flow::Status::ALL
                .iter()
                .map(|s| format!("{} {}", *s as u8, s.name()))
                .collect::<Vec<_>>()
                .join(", "),
        ),
        |r: &PacketRow| r.record.status as u8,
    ));
}
