//! The columns of flows: ends and times, then volume, timing, TCP and derived values of each direction.

use super::kit::{Column, Table, about, address, list, number, optional, text, timestamp};
use super::{FLAG_NAMES, FlowRow, Profile};
use arrow_array::types::{Float64Type, Int8Type, Int64Type, UInt8Type, UInt16Type, UInt32Type};
use laneway_flow::{Direction, Flow, Handshake, Side, Span, flow_state, side_state};

/// A direction of the columns: forward, backward, or both together.
#[derive(Clone, Copy)]
pub(super) enum Of {
    Forward,
    Backward,
    Both,
}

impl Of {
    pub(super) const ALL: [Of; 3] = [Of::Forward, Of::Backward, Of::Both];

    pub(super) fn prefix(self) -> &'static str {
        match self {
            Of::Forward => "fwd",
            Of::Backward => "bwd",
            Of::Both => "bi",
        }
    }

    pub(super) fn nfstream(self) -> &'static str {
        match self {
            Of::Forward => "src2dst",
            Of::Backward => "dst2src",
            Of::Both => "bidirectional",
        }
    }

    pub(super) fn sides(self, flow: &Flow) -> impl Iterator<Item = &Side> {
        let range = match self {
            Of::Forward => 0..1,
            Of::Backward => 1..2,
            Of::Both => 0..2,
        };
        flow.side[range].iter()
    }

    pub(super) fn sum(self, flow: &Flow, value: impl Fn(&Side) -> u64) -> i64 {
        self.sides(flow).map(value).sum::<u64>() as i64
    }

    /// Over the sides of which `valid` is true.
    pub(super) fn fold<T>(
        self,
        flow: &Flow,
        valid: impl Fn(&Side) -> bool,
        value: impl Fn(&Side) -> T,
        better: impl Fn(T, T) -> T,
    ) -> Option<T> {
        self.sides(flow).filter(|s| valid(s)).map(value).reduce(better)
    }

    pub(super) fn iat(self, flow: &Flow) -> &Span {
        match self {
            Of::Forward => &flow.side[0].iat,
            Of::Backward => &flow.side[1].iat,
            Of::Both => &flow.iat,
        }
    }
}

pub(super) fn initiator_is_low(row: &FlowRow) -> bool {
    row.flow.fwd_is_lo
}

/// A port of a flow that has ports: no header has 0 for both.
pub(super) fn port(row: &FlowRow, low: bool) -> Option<u16> {
    let (lo, hi) = (row.key.port_lo, row.key.port_hi);
    (lo | hi > 0).then_some(if low { lo } else { hi })
}

/// What a frame of the flow was stamped, where all of them were.
pub(super) fn stamp(row: &FlowRow, stamp_ns: u64) -> Option<u64> {
    (row.flow.state & flow_state::NO_TIME == 0).then_some(stamp_ns)
}

/// Flow rows; `offset_ns` turns record time into Unix time, `first_packets` is how many packets'
/// sequence is kept.
pub(crate) fn flows(profile: Profile, offset_ns: i64, first_packets: usize) -> Table<FlowRow> {
    let mut c = flow_identity(offset_ns);
    for of in Of::ALL {
        volume(&mut c, of);
        timing(&mut c, of);
        tcp(&mut c, of);
        if profile == Profile::Full {
            derived(&mut c, of);
        }
    }
    connection(&mut c);
    if profile == Profile::Full {
        ratios(&mut c);
    }
    if first_packets > 0 {
        sequence(&mut c, first_packets);
    }
    Table::new(c)
}

pub(super) fn flow_identity(offset_ns: i64) -> Vec<Column<FlowRow>> {
    vec![
        number::<_, UInt16Type>(
            "source",
            about("index", "which of the captures (schema metadata `laneway.source.N`), from 0; 0 on a lane"),
            |r: &FlowRow| r.source,
        ),
        number::<_, Int64Type>(
            "flow_id",
            about("hash", "of the flow key, equal for both directions"),
            |r: &FlowRow| r.key.flow_id(),
        ),
        number::<_, UInt8Type>(
            "ip_version",
            about("4 or 6", "IP version").alias("nfstream", "ip_version"),
            |r: &FlowRow| r.key.version,
        ),
        address(
            "src_ip",
            about("16 bytes", "sender of the first packet").alias("nfstream", "src_ip").alias("cic", "Src IP"),
            |r: &FlowRow| Some(if initiator_is_low(r) { r.key.ip_lo } else { r.key.ip_hi }),
        ),
        address(
            "dst_ip",
            about("16 bytes", "receiver of the first packet").alias("nfstream", "dst_ip").alias("cic", "Dst IP"),
            |r: &FlowRow| Some(if initiator_is_low(r) { r.key.ip_hi } else { r.key.ip_lo }),
        ),
        optional::<_, UInt16Type>(
            "src_port",
            about("port", "of the sender of the first packet; null without ports").alias("nfstream", "src_port").alias("cic", "Src Port"),
            |r: &FlowRow| port(r, initiator_is_low(r)),
        ),
        optional::<_, UInt16Type>(
            "dst_port",
            about("port", "of the receiver of the first packet; null without ports").alias("nfstream", "dst_port").alias("cic", "Dst Port"),
            |r: &FlowRow| port(r, !initiator_is_low(r)),
        ),
        number::<_, UInt8Type>(
            "proto",
            about("IANA number", "IP protocol").alias("nfstream", "protocol").alias("cic", "Protocol"),
            |r: &FlowRow| r.key.proto,
        ),
        optional::<_, UInt16Type>(
            "vlan_id",
            about("id", "outer VLAN id; null without a tag, or with id 0, which names no VLAN")
                .alias("nfstream", "vlan_id"),
            |r: &FlowRow| (r.key.vlan > 0).then_some(r.key.vlan),
        ),
        optional::<_, UInt16Type>(
            "vlan_id2",
            about("id", "inner VLAN id; null without a second tag, or with id 0"),
            |r: &FlowRow| (r.key.vlan2 > 0).then_some(r.key.vlan2),
        ),
        timestamp(
            "first_ts",
            about("ns since 1970 UTC", "first packet, as it was stamped; null as `ts` of packets is"),
            offset_ns,
            |r: &FlowRow| stamp(r, r.flow.first_stamp_ns),
        ),
        timestamp(
            "last_ts",
            about(
                "ns since 1970 UTC",
                "last packet, as it was stamped; before first_ts where the clock was set back",
            ),
            offset_ns,
            |r: &FlowRow| stamp(r, r.flow.last_stamp_ns),
        ),
        number::<_, Int64Type>(
            "duration_ns",
            about("ns", "from first to last packet, without the steps of a clock that was set back").alias("cic", "Flow Duration"),
            |r: &FlowRow| r.flow.duration_ns() as i64,
        ),
        number::<_, UInt8Type>(
            "end_reason",
            about(
                "IPFIX flowEndReason",
                "1 idle timeout, 2 active timeout, 3 end seen (RST or both FINs), 4 forced, 5 lack of resources",
            )
            .alias("ipfix", "136"),
            |r: &FlowRow| r.flow.end.map_or(0, |end| end as u8),
        ),
        text(
            "tcp_state",
            about(
                "name",
                "none: no TCP; reset: RST seen; closed: FIN from both; half-closed: FIN from one; \
                 established: SYN, SYN-ACK and ACK seen; syn-ack: SYN and SYN-ACK only; syn: SYN only; \
                 midstream: no SYN seen",
            ),
            |r: &FlowRow| tcp_state(&r.flow, r.key.proto),
        ),
    ]
}

pub(super) fn tcp_state(flow: &Flow, proto: u8) -> &'static str {
    let fin = |d: Direction| flow.side(d).state & side_state::FIN != 0;
    match (fin(Direction::Forward), fin(Direction::Backward)) {
        _ if proto != 6 => "none",
        _ if flow.state & flow_state::RST != 0 => "reset",
        (true, true) => "closed",
        (true, false) | (false, true) => "half-closed",
        _ => match flow.handshake() {
            Handshake::Complete => "established",
            Handshake::SynAck => "syn-ack",
            Handshake::Syn => "syn",
            Handshake::Unseen => "midstream",
        },
    }
}

pub(super) type Sum = fn(&Side) -> u64;

pub(super) fn volume(c: &mut Vec<Column<FlowRow>>, of: Of) {
    let d = of.prefix();
    let sums: [(&str, &str, &str, Sum); 7] = [
        ("pkts", "count", "packets", |s| s.pkts),
        ("bytes", "byte", "frame lengths on the wire", |s| s.bytes),
        ("ip_bytes", "byte", "IP packets, headers included", |s| s.ip_bytes),
        ("l4_bytes", "byte", "behind the IP header", |s| s.l4_bytes),
        ("payload_bytes", "byte", "behind the layer-4 header", |s| s.payload_bytes),
        ("hdr_bytes", "byte", "IP and layer-4 headers", |s| s.hdr_bytes),
        ("data_pkts", "count", "packets with payload", |s| s.data_pkts),
    ];
    for (name, unit, definition, value) in sums {
        let mut about = about(unit, definition);
        if name == "pkts" {
            about = about.alias("nfstream", format!("{}_packets", of.nfstream()));
        } else if name == "bytes" {
            about = about.alias("nfstream", format!("{}_bytes", of.nfstream()));
        }
        c.push(number::<_, Int64Type>(&format!("{d}_{name}"), about, move |r: &FlowRow| {
            of.sum(&r.flow, value)
        }));
    }
    type Ends = (&'static str, &'static str, fn(&Side) -> u32, fn(&Side) -> u32);
    let ends: [Ends; 2] = [
        ("len", "frame length", |s| s.len_min, |s| s.len_max),
        ("payload", "payload length", |s| s.payload_min, |s| s.payload_max),
    ];
    for (name, what, min, max) in ends {
        c.push(optional::<_, UInt32Type>(
            &format!("{d}_{name}_min"),
            about("byte", format!("smallest {what}")),
            move |r: &FlowRow| of.fold(&r.flow, |s| s.pkts > 0, min, u32::min),
        ));
        c.push(optional::<_, UInt32Type>(
            &format!("{d}_{name}_max"),
            about("byte", format!("largest {what}")),
            move |r: &FlowRow| of.fold(&r.flow, |s| s.pkts > 0, max, u32::max),
        ));
    }
    c.push(list::<_, UInt32Type>(
        &format!("{d}_len_hist"),
        about(
            "count",
            "frames shorter than 64, 128, 256, 512, 1024, 1519, 4096 bytes, and the rest",
        ),
        8,
        move |r: &FlowRow, i| Some(of.sides(&r.flow).map(|s| s.len_hist[i]).sum()),
    ));
    let ttl_valid = |s: &Side| s.pkts > 0;
    c.push(optional::<_, UInt8Type>(
        &format!("{d}_ttl_min"),
        about("hops", "smallest TTL or hop limit"),
        move |r: &FlowRow| of.fold(&r.flow, ttl_valid, |s| s.ttl_min, u8::min),
    ));
    c.push(optional::<_, UInt8Type>(
        &format!("{d}_ttl_max"),
        about("hops", "largest TTL or hop limit"),
        move |r: &FlowRow| of.fold(&r.flow, ttl_valid, |s| s.ttl_max, u8::max),
    ));
    if !matches!(of, Of::Both) {
        c.push(optional::<_, UInt8Type>(
            &format!("{d}_ttl_first"),
            about("hops", "TTL of the first packet"),
            move |r: &FlowRow| of.fold(&r.flow, ttl_valid, |s| s.ttl_first, |a, _| a),
        ));
        c.push(optional::<_, UInt8Type>(
            &format!("{d}_ttl_last"),
            about("hops", "TTL of the last packet"),
            move |r: &FlowRow| of.fold(&r.flow, ttl_valid, |s| s.ttl_last, |a, _| a),
        ));
    }
    let bulks: [(&str, &str, &str, Sum); 4] = [
        ("bulk_n", "count", "runs of 4 or more data packets of one side, gaps at most 1 s", |s| {
            s.bulk_n
        }),
        ("bulk_pkts", "count", "packets in bulks", |s| s.bulk_pkts),
        ("bulk_bytes", "byte", "payload in bulks", |s| s.bulk_bytes),
        ("bulk_ns", "ns", "duration of bulks", |s| s.bulk_ns),
    ];
    for (name, unit, definition, value) in bulks {
        c.push(number::<_, Int64Type>(
            &format!("{d}_{name}"),
            about(unit, definition),
            move |r: &FlowRow| of.sum(&r.flow, value),
        ));
    }
}

pub(super) type SpanValue = fn(&Span) -> u64;

pub(super) fn timing(c: &mut Vec<Column<FlowRow>>, of: Of) {
    let d = of.prefix();
    let spans: [(&str, &str, SpanValue); 3] = [
        ("min", "shortest gap between packets", |s| s.min),
        ("max", "longest gap between packets", |s| s.max),
        ("sum", "all gaps between packets", |s| s.sum),
    ];
    for (name, definition, value) in spans {
        c.push(optional::<_, Int64Type>(
            &format!("{d}_iat_ns_{name}"),
            about("ns", definition),
            move |r: &FlowRow| {
                let span = of.iat(&r.flow);
                (span.n > 0).then(|| value(span) as i64)
            },
        ));
    }
    if !matches!(of, Of::Both) {
        c.push(list::<_, UInt32Type>(
            &format!("{d}_iat_hist"),
            about("count", "gaps shorter than 10 us, 100 us, 1, 10, 100 ms, 1, 10 s, and the rest"),
            8,
            move |r: &FlowRow, i| Some(of.sides(&r.flow).map(|s| s.iat_hist[i]).sum()),
        ));
    }
}

pub(super) fn tcp(c: &mut Vec<Column<FlowRow>>, of: Of) {
    let d = of.prefix();
    for (bit, flag) in FLAG_NAMES.into_iter().enumerate() {
        let meaning = about("count", format!("packets with {}", flag.to_uppercase()));
        let meaning = match flag {
            "ae" => meaning, // younger than NFStream's columns
            _ => meaning.alias("nfstream", format!("{}_{flag}_packets", of.nfstream())),
        };
        c.push(number::<_, Int64Type>(&format!("{d}_{flag}_pkts"), meaning, move |r: &FlowRow| {
            of.sum(&r.flow, |s| u64::from(s.flags[bit]))
        }));
    }
    let counts: [(&str, &str, Sum); 4] = [
        (
            "retrans_pkts",
            "TCP segments that start before the highest sequence number seen from this side: \
             retransmitted or reordered",
            |s| u64::from(s.retrans_pkts),
        ),
        (
            "ahead_pkts",
            "TCP segments that start beyond the highest sequence number seen from this side: \
             something before them is missing",
            |s| u64::from(s.ahead_pkts),
        ),
        ("dup_ack_pkts", "ACKs without data that repeat acknowledgement and window", |s| {
            u64::from(s.dup_ack_pkts)
        }),
        ("zero_win_pkts", "TCP packets with window 0, RST aside", |s| u64::from(s.zero_win_pkts)),
    ];
    for (name, definition, value) in counts {
        c.push(number::<_, Int64Type>(
            &format!("{d}_{name}"),
            about("count", definition),
            move |r: &FlowRow| of.sum(&r.flow, value),
        ));
    }
    let seen = |s: &Side| s.state & side_state::WIN != 0;
    c.push(optional::<_, UInt16Type>(
        &format!("{d}_win_min"),
        about("byte", "smallest TCP window, unscaled"),
        move |r: &FlowRow| of.fold(&r.flow, seen, |s| s.win_min, u16::min),
    ));
    c.push(optional::<_, UInt16Type>(
        &format!("{d}_win_max"),
        about("byte", "largest TCP window, unscaled"),
        move |r: &FlowRow| of.fold(&r.flow, seen, |s| s.win_max, u16::max),
    ));
    if !matches!(of, Of::Both) {
        let cic =
            if matches!(of, Of::Forward) { "FWD Init Win Bytes" } else { "Bwd Init Win Bytes" };
        c.push(optional::<_, UInt16Type>(
            &format!("{d}_win_first"),
            about("byte", "first TCP window, unscaled").alias("cic", cic),
            move |r: &FlowRow| of.fold(&r.flow, seen, |s| s.win_first, |a, _| a),
        ));
        c.push(optional::<_, UInt16Type>(
            &format!("{d}_win_last"),
            about("byte", "last TCP window, unscaled"),
            move |r: &FlowRow| of.fold(&r.flow, seen, |s| s.win_last, |a, _| a),
        ));
        c.push(optional::<_, UInt16Type>(
            &format!("{d}_mss"),
            about("byte", "MSS option of the SYN"),
            move |r: &FlowRow| {
                of.fold(&r.flow, |s| s.state & side_state::MSS != 0, |s| s.mss, |a, _| a)
            },
        ));
        c.push(optional::<_, UInt8Type>(
            &format!("{d}_wscale"),
            about("shift", "window scale option of the SYN"),
            move |r: &FlowRow| {
                of.fold(&r.flow, |s| s.state & side_state::WSCALE != 0, |s| s.wscale, |a, _| a)
            },
        ));
    }
}

/// Time of a handshake step in ns, where both ends of it were seen.
pub(super) fn step(from_ns: u64, to_ns: u64) -> Option<i64> {
    (from_ns > 0 && to_ns > 0).then(|| to_ns.wrapping_sub(from_ns) as i64)
}

pub(super) fn connection(c: &mut Vec<Column<FlowRow>>) {
    c.push(number::<_, Int64Type>(
        "len_odd_pkts",
        about(
            "count",
            "packets whose IP length is the frame's, because the header states 0 (segmentation \
             offload, jumbogram) or more than the frame has",
        ),
        |r: &FlowRow| r.flow.len_odd_pkts.into(),
    ));
    c.push(optional::<_, Int64Type>("syn_ack_ns", about("ns", "SYN to SYN-ACK"), |r: &FlowRow| {
        step(r.flow.syn_ns, r.flow.syn_ack_ns)
    }));
    c.push(optional::<_, Int64Type>(
        "ack_dat_ns",
        about("ns", "SYN-ACK to the ACK that completes the handshake"),
        |r: &FlowRow| step(r.flow.syn_ack_ns, r.flow.ack_ns),
    ));
    c.push(optional::<_, Int64Type>(
        "tcp_rtt_ns",
        about("ns", "SYN to the ACK that completes the handshake"),
        |r: &FlowRow| step(r.flow.syn_ns, r.flow.ack_ns),
    ));
    c.push(number::<_, Int64Type>(
        "subflows",
        about("count", "stretches without a gap over 1 s"),
        |r: &FlowRow| r.flow.subflows as i64,
    ));
    type Part = (&'static str, &'static str, fn(&Flow) -> &Span);
    let parts: [Part; 2] = [
        ("active", "stretches without a gap over 5 s", |f| &f.active),
        ("idle", "gaps over 5 s", |f| &f.idle),
    ];
    for (name, what, span) in parts {
        c.push(number::<_, Int64Type>(
            &format!("{name}_n"),
            about("count", format!("number of {what}")),
            move |r: &FlowRow| span(&r.flow).n as i64,
        ));
        let values: [(&str, SpanValue); 3] =
            [("sum", |s| s.sum), ("min", |s| s.min), ("max", |s| s.max)];
        for (end, value) in values {
            c.push(optional::<_, Int64Type>(
                &format!("{name}_ns_{end}"),
                about("ns", format!("{end} over {what}")),
                move |r: &FlowRow| {
                    let span = span(&r.flow);
                    (span.n > 0).then(|| value(span) as i64)
                },
            ));
        }
    }
}

/// Mean and sample standard deviation, each where it is defined.
pub(super) type Moments = (Option<f64>, Option<f64>);

pub(super) fn derived(c: &mut Vec<Column<FlowRow>>, of: Of) {
    let d = of.prefix();
    let len = move |f: &Flow| -> Moments {
        match of {
            Of::Forward => f.side[0].len_stats(),
            Of::Backward => f.side[1].len_stats(),
            Of::Both => f.len_stats(),
        }
    };
    let payload = move |f: &Flow| -> Moments {
        match of {
            Of::Forward => f.side[0].payload_stats(),
            Of::Backward => f.side[1].payload_stats(),
            Of::Both => f.payload_stats(),
        }
    };
    let iat = move |f: &Flow| -> Moments {
        match of {
            Of::Forward => f.side[0].iat_stats(),
            Of::Backward => f.side[1].iat_stats(),
            Of::Both => f.iat_stats(),
        }
    };
    moments(c, &format!("{d}_len"), "byte", "frame length", len);
    moments(c, &format!("{d}_payload"), "byte", "payload length", payload);
    moments(c, &format!("{d}_iat_ns"), "ns", "gap between packets", iat);
    c.push(optional::<_, Float64Type>(
        &format!("{d}_pkts_per_s"),
        about("1/s", "packets per second of the flow's duration; null at zero duration"),
        move |r: &FlowRow| per_second(of.sum(&r.flow, |s| s.pkts), &r.flow),
    ));
    c.push(optional::<_, Float64Type>(
        &format!("{d}_bytes_per_s"),
        about("byte/s", "frame bytes per second of the flow's duration; null at zero duration"),
        move |r: &FlowRow| per_second(of.sum(&r.flow, |s| s.bytes), &r.flow),
    ));
}

pub(super) fn per_second(n: i64, flow: &Flow) -> Option<f64> {
    let ns = flow.duration_ns();
    (ns > 0).then(|| n as f64 * 1e9 / ns as f64)
}

pub(super) fn moments(
    c: &mut Vec<Column<FlowRow>>,
    name: &str,
    unit: &'static str,
    what: &str,
    value: impl Fn(&Flow) -> Moments + Copy + Send + Sync + 'static,
) {
    c.push(optional::<_, Float64Type>(
        &format!("{name}_mean"),
        about(unit, format!("mean {what}")),
        move |r: &FlowRow| value(&r.flow).0,
    ));
    c.push(optional::<_, Float64Type>(
        &format!("{name}_std"),
        about(unit, format!("sample standard deviation of the {what}; null below 2 values")),
        move |r: &FlowRow| value(&r.flow).1,
    ));
}

pub(super) fn ratios(c: &mut Vec<Column<FlowRow>>) {
    moments(c, "active_ns", "ns", "stretch without a gap over 5 s", Flow::active_stats);
    moments(c, "idle_ns", "ns", "gap over 5 s", Flow::idle_stats);
    c.push(optional::<_, Float64Type>(
        "pcr",
        about("-1 to 1", "producer-consumer ratio: (fwd - bwd) / (fwd + bwd) payload bytes"),
        |r: &FlowRow| {
            let [fwd, bwd] = [0, 1].map(|i| r.flow.side[i].payload_bytes as f64);
            (fwd + bwd > 0.0).then(|| (fwd - bwd) / (fwd + bwd))
        },
    ));
    c.push(optional::<_, Float64Type>(
        "down_up_ratio",
        about("ratio", "backward packets per forward packet").alias("cic", "Down/Up Ratio"),
        |r: &FlowRow| {
            let [fwd, bwd] = [0, 1].map(|i| r.flow.side[i].pkts as f64);
            (fwd > 0.0).then(|| bwd / fwd)
        },
    ));
}

pub(super) fn sequence(c: &mut Vec<Column<FlowRow>>, first_packets: usize) {
    c.push(list::<_, UInt32Type>(
        "ppi_len",
        about("byte", "frame length of the first packets").alias("nfstream", "splt_ps"),
        first_packets,
        |r: &FlowRow, i| r.first.get(i).map(|p| p.len),
    ));
    c.push(list::<_, Int64Type>(
        "ppi_iat_ns",
        about("ns", "gap before each of the first packets, 0 for the first"),
        first_packets,
        |r: &FlowRow, i| r.first.get(i).map(|p| p.iat_ns as i64),
    ));
    c.push(list::<_, Int8Type>(
        "ppi_dir",
        about("0 or 1", "direction of the first packets: 0 forward")
            .alias("nfstream", "splt_direction"),
        first_packets,
        |r: &FlowRow, i| r.first.get(i).map(|p| p.direction as i8),
    ));
    c.push(list::<_, UInt16Type>(
        "ppi_tcp_flags",
        about("bits", "TCP flags of the first packets; 0 for other protocols"),
        first_packets,
        |r: &FlowRow, i| r.first.get(i).map(|p| p.tcp_flags),
    ));
}
