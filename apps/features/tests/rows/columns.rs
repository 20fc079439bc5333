//! Every column says what it is, and is null exactly where it is undefined.

use crate::support::{ethernet, ipv4, tcp};
use arrow_array::{
    Array, RecordBatch,
    cast::AsArray,
    types::{
        Int8Type, Int16Type, Int32Type, Int64Type, TimestampNanosecondType, UInt8Type, UInt16Type,
        UInt32Type,
    },
};
use arrow_schema::{DataType, Field, TimeUnit};
use laneway_features::{Config, FlowRow, Level, PacketRow, Profile, Stamp, Tables, parse};
use laneway_flow::{FlowLimits, FlowTable, Has, Record, TableOptions};

const PROFILES: [Profile; 2] = [Profile::Core, Profile::Full];

fn tables(level: Level, profile: Profile, first_packets: usize) -> Tables {
    Tables::new(&Config { level, first_packets, ..Config::default() }, profile, 1000)
}

fn packets(rows: &[PacketRow]) -> RecordBatch {
    let Tables::Packets(table) = tables(Level::Packet, Profile::Core, 0) else { unreachable!() };
    table.batch(rows)
}

fn flows(rows: &[FlowRow], profile: Profile, first_packets: usize) -> RecordBatch {
    let Tables::Flows(table) = tables(Level::Flow, profile, first_packets) else { unreachable!() };
    table.batch(rows)
}

fn records() -> Vec<Record> {
    let frames = crate::support::every_kind();
    let stamped = frames.iter().enumerate().map(|(i, bytes)| {
        let stamp = Stamp {
            ts_ns: 1_000_000 * (1 + i as u64),
            seq_no: i as u64,
            wire_len: bytes.len() as u32,
            ..Stamp::default()
        };
        parse(bytes, stamp)
    });
    stamped.collect()
}

/// Every flow of the records.
fn flow_rows(records: &[Record]) -> Vec<FlowRow> {
    let options = TableOptions { hash_seed: 1, ppi_packets: 3 };
    let mut table = FlowTable::new(64, FlowLimits::default(), options).unwrap();
    let mut rows = Vec::new();
    let mut sink = |e: laneway_flow::EndedFlow<'_>| {
        rows.push(FlowRow { source: 0, key: *e.key, flow: *e.flow, first: e.ppi.to_vec() });
    };
    table.add_batch(records, &mut sink);
    table.flush(&mut sink);
    rows
}

fn all_fields() -> Vec<Field> {
    let mut fields = Vec::new();
    for profile in PROFILES {
        for level in [Level::Packet, Level::Flow] {
            let tables = tables(level, profile, 4);
            fields.extend(tables.schema().fields().iter().map(|f| f.as_ref().clone()));
        }
    }
    fields
}

#[test]
fn every_column_states_unit_and_definition() {
    for field in all_fields() {
        for key in ["unit", "definition"] {
            let value = field.metadata().get(key).map_or("", String::as_str);
            assert!(!value.is_empty(), "{} has no {key}", field.name());
            assert!(!value.contains('\n') && !value.contains("  "), "{}: {value:?}", field.name());
        }
    }
}

#[test]
fn names_are_unique_and_end_in_their_unit_where_it_is_time() {
    for profile in PROFILES {
        for level in [Level::Packet, Level::Flow] {
            let schema = tables(level, profile, 4).schema().clone();
            let mut names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
            for field in schema.fields() {
                if field.metadata()["unit"] == "ns" {
                    assert!(field.name().contains("_ns"), "{}", field.name());
                }
            }
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{level:?} {profile:?}");
        }
    }
}

#[test]
fn types_are_those_that_every_reader_has() {
    for field in all_fields() {
        let plain = |t: &DataType| {
            matches!(
                t,
                DataType::Int8
                    | DataType::Int16
                    | DataType::Int32
                    | DataType::Int64
                    | DataType::UInt8
                    | DataType::UInt16
                    | DataType::UInt32
                    | DataType::Float64
                    | DataType::Utf8
                    | DataType::FixedSizeBinary(16)
            )
        };
        let holds = match field.data_type() {
            DataType::Timestamp(TimeUnit::Nanosecond, Some(zone)) => zone.as_ref() == "UTC",
            DataType::FixedSizeList(item, 4 | 8) => plain(item.data_type()),
            other => plain(other),
        };
        assert!(holds, "{}: {}", field.name(), field.data_type());
        let is_counter = ["count", "byte"].contains(&field.metadata()["unit"].as_str())
            && field.name().ends_with("_pkts");
        assert!(!is_counter || field.data_type() == &DataType::Int64, "{}", field.name());
    }
}

#[test]
fn profile_core_has_integers_only_and_full_has_all_of_core() {
    let core = tables(Level::Flow, Profile::Core, 0).schema().clone();
    let full = tables(Level::Flow, Profile::Full, 0).schema().clone();
    assert!(core.fields().iter().all(|f| f.data_type() != &DataType::Float64));
    for field in core.fields() {
        assert_eq!(full.field_with_name(field.name()).unwrap(), field.as_ref());
    }
    assert!(full.fields().len() > core.fields().len());
    assert_eq!(Profile::NAMES.map(|n| Profile::from_name(n).unwrap().name()), Profile::NAMES);
    assert_eq!(Profile::from_name("core "), None);
}

#[test]
fn a_packet_column_is_null_exactly_where_the_frame_has_no_such_field() {
    let records = records();
    let rows: Vec<PacketRow> =
        records.iter().map(|r| PacketRow { source: 3, record: *r }).collect();
    let batch = packets(&rows);
    let column = |name: &str| batch.column_by_name(name).unwrap_or_else(|| panic!("{name}"));
    type There = fn(&Record) -> bool;
    let rules: &[(&[&str], There)] = &[
        (&["ts"], |r| !r.has.contains(Has::NO_TIME)),
        (&["source", "seq_no", "frame_len", "cap_len", "parse_status"], |_| true),
        (&["ifindex", "rx_queue"], |r| r.ifindex > 0),
        (&["eth_type"], |r| r.status != laneway_flow::Status::L2Truncated),
        (&["vlan_id", "vlan_pcp"], |r| r.has.contains(Has::VLAN)),
        (&["vlan_id2"], |r| r.has.contains(Has::VLAN2)),
        (
            &[
                "ip_version",
                "src_ip",
                "dst_ip",
                "proto",
                "ttl",
                "tos",
                "ip_len",
                "ip_len_from",
                "l3_hdr_len",
                "l4_hdr_len",
                "payload_len",
                "direction",
                "flow_id",
            ],
            Record::has_ip,
        ),
        (&["src_port", "dst_port"], |r| r.has.contains(Has::PORTS)),
        (&["tcp_flags", "tcp_seq", "tcp_ack", "tcp_win"], |r| r.has.contains(Has::TCP)),
        (&["tcp_mss"], |r| r.has.contains(Has::MSS)),
        (&["tcp_wscale"], |r| r.has.contains(Has::WSCALE)),
        (&["icmp_type", "icmp_code"], |r| r.has.contains(Has::ICMP)),
        (&["ip_id", "frag_off", "frag_flags"], |r| r.has.intersects(Has::IPV4.with(Has::FRAG))),
    ];
    let named: usize = rules.iter().map(|(names, _)| names.len()).sum();
    assert_eq!(named, batch.num_columns(), "a column without a rule");
    for (names, there) in rules {
        for name in *names {
            for (i, record) in records.iter().enumerate() {
                assert_eq!(column(name).is_valid(i), there(record), "{name} of frame {i}");
            }
            let nullable = batch.schema().field_with_name(name).unwrap().is_nullable();
            assert!(nullable || column(name).null_count() == 0, "{name}");
        }
    }
}

#[test]
fn packet_columns_hold_the_records_values() {
    let mut record = records()[1];
    (record.ifindex, record.rx_queue) = (7, 2);
    let batch = packets(&[PacketRow { source: 3, record }]);
    macro_rules! value {
        ($type:ty, $name:literal) => {
            batch.column_by_name($name).unwrap().as_primitive::<$type>().value(0)
        };
    }
    assert_eq!(value!(TimestampNanosecondType, "ts"), 2_000_000 + 1000, "the offset is added");
    assert_eq!((value!(UInt16Type, "source"), value!(Int64Type, "seq_no")), (3, 1));
    assert_eq!((value!(Int32Type, "ifindex"), value!(Int16Type, "rx_queue")), (7, 2));
    assert_eq!((value!(UInt16Type, "eth_type"), value!(UInt8Type, "ip_version")), (0x0800, 4));
    assert_eq!((value!(UInt16Type, "src_port"), value!(UInt16Type, "dst_port")), (1000, 80));
    assert_eq!((value!(UInt8Type, "proto"), value!(UInt8Type, "ttl")), (6, 61));
    assert_eq!((value!(UInt8Type, "tos"), value!(UInt32Type, "ip_len")), (0x2e, 48));
    assert_eq!((value!(UInt16Type, "l3_hdr_len"), value!(UInt8Type, "l4_hdr_len")), (20, 28));
    assert_eq!((value!(UInt32Type, "payload_len"), value!(UInt32Type, "cap_len")), (0, 62));
    assert_eq!((value!(UInt32Type, "tcp_seq"), value!(UInt32Type, "tcp_ack")), (7, 4));
    assert_eq!((value!(UInt16Type, "tcp_flags"), value!(UInt16Type, "tcp_win")), (2, 0xfff0));
    assert_eq!((value!(UInt16Type, "tcp_mss"), value!(UInt8Type, "tcp_wscale")), (1460, 9));
    assert_eq!((value!(UInt16Type, "ip_id"), value!(UInt8Type, "frag_flags")), (7, 2));
    assert_eq!((value!(UInt8Type, "parse_status"), value!(Int8Type, "direction")), (0, 0));
    let source = batch.column_by_name("src_ip").unwrap().as_fixed_size_binary();
    assert_eq!(source.value(0)[10..], [0xff, 0xff, 10, 0, 0, 1]);
    let (key, _) = laneway_flow::FlowKey::of(&record);
    assert_eq!(value!(Int64Type, "flow_id"), key.flow_id());
}

#[test]
fn both_directions_have_one_flow_id() {
    let there = records()[0];
    let mut back = there;
    std::mem::swap(&mut back.src_ip, &mut back.dst_ip);
    std::mem::swap(&mut back.src_port, &mut back.dst_port);
    let batch = packets(&[there, back].map(|record| PacketRow { source: 0, record }));
    let id = batch.column_by_name("flow_id").unwrap().as_primitive::<Int64Type>();
    assert_eq!(id.value(0), id.value(1));
    let direction = batch.column_by_name("direction").unwrap().as_primitive::<Int8Type>();
    assert_eq!([direction.value(0), direction.value(1)], [0, 1]);
}

#[test]
fn a_flow_of_one_frame_has_no_gaps_no_deviation_and_no_backward_extremes() {
    let rows = flow_rows(&records()[..1]);
    let batch = flows(&rows, Profile::Full, 3);
    let is_null =
        |name: &str| batch.column_by_name(name).unwrap_or_else(|| panic!("{name}")).is_null(0);
    for name in [
        "bi_iat_ns_min",
        "bi_iat_ns_max",
        "bi_iat_ns_sum",
        "fwd_iat_ns_mean",
        "fwd_len_std",
        "bwd_len_min",
        "bwd_len_max",
        "bwd_len_mean",
        "bwd_payload_min",
        "bwd_ttl_min",
        "bwd_ttl_first",
        "bwd_win_min",
        "fwd_win_first",
        "fwd_mss",
        "syn_ack_ns",
        "tcp_rtt_ns",
        "idle_ns_sum",
        "idle_ns_mean",
        "fwd_pkts_per_s",
        "bi_bytes_per_s",
    ] {
        assert!(is_null(name), "{name} of a flow of one UDP frame");
    }
    for name in [
        "fwd_len_min",
        "fwd_len_mean",
        "fwd_ttl_last",
        "bi_pkts",
        "bwd_pkts",
        "down_up_ratio",
        "pcr",
    ] {
        assert!(!is_null(name), "{name}");
    }
    let count =
        |name: &str| batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().value(0);
    assert_eq!((count("fwd_pkts"), count("bwd_pkts"), count("bi_pkts")), (1, 0, 1));
    let first = batch.column_by_name("ppi_len").unwrap().as_fixed_size_list();
    let first = first.value(0);
    assert_eq!((first.len(), first.null_count()), (3, 2), "short sequences are padded with null");
}

#[test]
fn both_sides_together_are_the_sum_of_the_sides() {
    let mut records = records();
    let back: Vec<Record> = records
        .iter()
        .map(|r| {
            let mut back = *r;
            std::mem::swap(&mut back.src_ip, &mut back.dst_ip);
            std::mem::swap(&mut back.src_port, &mut back.dst_port);
            Record { ts_ns: r.ts_ns + 100_000_000, frame_len: r.frame_len + 9, ..back }
        })
        .collect();
    records.extend(back);
    let batch = flows(&flow_rows(&records), Profile::Core, 0);
    let mut checked = 0;
    for field in batch.schema().fields() {
        let Some(name) = field.name().strip_prefix("bi_") else { continue };
        if field.data_type() != &DataType::Int64 || name.contains("iat_ns") {
            continue;
        }
        let sum = |d: &str| {
            let column = batch.column_by_name(&format!("{d}_{name}")).unwrap();
            column.as_primitive::<Int64Type>().clone()
        };
        let (bi, fwd, bwd) = (sum("bi"), sum("fwd"), sum("bwd"));
        for i in 0..batch.num_rows() {
            assert_eq!(bi.value(i), fwd.value(i) + bwd.value(i), "{name} of flow {i}");
        }
        checked += 1;
    }
    assert!(checked > 20, "{checked} columns");
}

#[test]
fn the_sender_of_the_first_packet_is_the_source_whichever_end_is_lower() {
    for swap in [false, true] {
        let mut record = records()[0];
        if swap {
            std::mem::swap(&mut record.src_ip, &mut record.dst_ip);
            std::mem::swap(&mut record.src_port, &mut record.dst_port);
        }
        let batch = flows(&flow_rows(&[record]), Profile::Core, 0);
        let ip = |name: &str| {
            batch.column_by_name(name).unwrap().as_fixed_size_binary().value(0).to_vec()
        };
        let port =
            |name: &str| batch.column_by_name(name).unwrap().as_primitive::<UInt16Type>().value(0);
        assert_eq!((ip("src_ip"), ip("dst_ip")), (record.src_ip.to_vec(), record.dst_ip.to_vec()));
        assert_eq!((port("src_port"), port("dst_port")), (record.src_port, record.dst_port));
    }
}

#[test]
fn a_time_that_is_unknown_or_after_2262_is_null() {
    let mut records = vec![records()[0]; 3];
    records[1].has.insert(Has::NO_TIME);
    records[2].ts_ns = 1 << 63;
    let rows: Vec<PacketRow> =
        records.iter().map(|record| PacketRow { source: 0, record: *record }).collect();
    let batch = packets(&rows);
    let ts = batch.column_by_name("ts").unwrap();
    assert_eq!([0, 1, 2].map(|i| ts.is_null(i)), [false, true, true]);
    for record in [&records[1], &records[2]] {
        let batch = flows(&flow_rows(&[*record]), Profile::Core, 0);
        for name in ["first_ts", "last_ts"] {
            assert!(batch.column_by_name(name).unwrap().is_null(0), "{name} of {record:?}");
        }
    }
}

#[test]
fn a_connection_is_established_with_the_ack_that_completes_its_handshake() {
    let state = |frames: &[(u8, u8)], has_time: bool| {
        let records = frames.iter().enumerate().map(|(i, &(from, flags))| {
            let (to, ports) = if from == 1 { (2, (1000, 80)) } else { (1, (80, 1000)) };
            let bytes = ethernet(0x0800, &ipv4(6, from, to, &tcp(ports, 7, flags, b"")));
            let ts_ns = if has_time { 1_000_000 * (1 + i as u64) } else { 0 };
            let wire_len = bytes.len() as u32;
            let mut record = parse(&bytes, Stamp { ts_ns, wire_len, ..Stamp::default() });
            if !has_time {
                record.has.insert(Has::NO_TIME);
            }
            record
        });
        let batch = flows(&flow_rows(&records.collect::<Vec<_>>()), Profile::Core, 0);
        assert_eq!(batch.num_rows(), 1);
        batch.column_by_name("tcp_state").unwrap().as_string::<i32>().value(0).to_owned()
    };
    let (syn, syn_ack, ack) = ((1, 0x02), (2, 0x12), (1, 0x10));
    for has_time in [true, false] {
        assert_eq!(state(&[syn, syn], has_time), "syn");
        // A flood of SYNs to a port that is open.
        assert_eq!(state(&[syn, syn_ack, syn_ack], has_time), "syn-ack");
        assert_eq!(state(&[syn, syn_ack, ack], has_time), "established");
        assert_eq!(state(&[ack], has_time), "midstream");
    }
}

#[test]
fn a_flow_without_ports_or_tags_has_null_and_not_zero() {
    let tagged = |mut r: Record| {
        (r.vlan_tci, r.vlan_tci2) = (0x2005, 6);
        r.has.insert(Has::VLAN.with(Has::VLAN2));
        r
    };
    let with_ports = records().into_iter().find(|r| r.proto == 17).unwrap();
    let icmp = records().into_iter().find(|r| r.has.contains(Has::ICMP)).unwrap();
    let value = |record: Record, name: &str| {
        let batch = flows(&flow_rows(&[record]), Profile::Core, 0);
        let column = batch.column_by_name(name).unwrap().as_primitive::<UInt16Type>().clone();
        column.is_valid(0).then(|| column.value(0))
    };
    assert_eq!((value(icmp, "src_port"), value(icmp, "dst_port")), (None, None));
    assert_eq!(value(with_ports, "dst_port"), Some(with_ports.dst_port));
    let plain = Record { has: Has::IPV4.with(Has::PORTS), ..with_ports };
    assert_eq!((value(plain, "vlan_id"), value(plain, "vlan_id2")), (None, None));
    let double = tagged(plain);
    assert_eq!((value(double, "vlan_id"), value(double, "vlan_id2")), (Some(5), Some(6)));
}

#[test]
fn no_rows_make_an_empty_batch_of_the_same_schema() {
    assert_eq!(packets(&[]).num_rows(), 0);
    let batch = flows(&[], Profile::Full, 4);
    assert_eq!(
        (batch.num_rows(), &batch.schema()),
        (0, tables(Level::Flow, Profile::Full, 4).schema())
    );
}
