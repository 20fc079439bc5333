//! Rows -> Arrow columns. One list of columns per level is the schema, its documentation and the
//! code that fills it.
//!
//! Types are chosen for what reads them: counters are int64 because Spark has no unsigned 64-bit
//! type, addresses are 16 bytes (IPv4 as ::ffff:a.b.c.d) which ClickHouse maps to its IPv6 type.
//! What is undefined is null, never a stand-in number.

use crate::config::Level;
use arrow_array::{
    ArrayRef, FixedSizeBinaryArray, FixedSizeListArray, PrimitiveArray, RecordBatch, StringArray,
    types::{
        ArrowPrimitiveType, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
        TimestampNanosecondType, UInt8Type, UInt16Type, UInt32Type,
    },
};
use arrow_buffer::{Buffer, NullBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use laneway_flow::{
    Direction, Flow, FlowKey, Has, PpiPacket, Record, Side, Span, TCP_FLAG_COUNT, flow_state,
    side_state,
};
use std::{collections::HashMap, sync::Arc};

/// Which columns a table has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Integers only: what both placements compute exactly.
    #[default]
    Core,
    /// `core` plus the derived floats: means, deviations, rates, ratios.
    Full,
}

impl Profile {
    /// The names a user may give.
    pub const NAMES: [&str; 2] = ["core", "full"];

    /// The profile of a name.
    pub fn from_name(name: &str) -> Option<Profile> {
        match name {
            "core" => Some(Profile::Core),
            "full" => Some(Profile::Full),
            _ => None,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Core => "core",
            Profile::Full => "full",
        }
    }
}

/// A packet row: the record, and which of the run's sources it came from.
#[derive(Clone, Copy, Debug)]
pub struct PacketRow {
    /// Index of the source file or interface.
    pub source: u16,
    /// The record.
    pub record: Record,
}

/// A flow row.
#[derive(Clone, Debug)]
pub struct FlowRow {
    /// Index of the source file or interface.
    pub source: u16,
    /// Its key.
    pub key: FlowKey,
    /// Its accumulators.
    pub flow: Flow,
    /// Its first packets, where they are kept.
    pub first: Vec<PpiPacket>,
}

/// Makes a column's array of a batch of rows.
type Filler<R> = dyn Fn(&[R]) -> ArrayRef + Send + Sync;

struct Column<R> {
    field: Field,
    fill: Box<Filler<R>>,
}

/// What a column says about itself, besides name and type.
struct About {
    unit: &'static str,
    definition: String,
    alias: Vec<(&'static str, String)>,
}

fn about(unit: &'static str, definition: impl Into<String>) -> About {
    About { unit, definition: definition.into(), alias: Vec::new() }
}

impl About {
    fn alias(mut self, of: &'static str, name: impl Into<String>) -> About {
        self.alias.push((of, name.into()));
        self
    }

    fn field(self, name: &str, data_type: DataType, nullable: bool) -> Field {
        let mut metadata = HashMap::from([
            ("unit".to_owned(), self.unit.to_owned()),
            ("definition".to_owned(), self.definition),
        ]);
        for (of, alias) in self.alias {
            metadata.insert(format!("alias.{of}"), alias);
        }
        Field::new(name, data_type, nullable).with_metadata(metadata)
    }
}

/// A column of numbers that every row has.
fn number<R: 'static, T: ArrowPrimitiveType>(
    name: &str,
    about: About,
    value: impl Fn(&R) -> T::Native + Send + Sync + 'static,
) -> Column<R> {
    Column {
        field: about.field(name, T::DATA_TYPE, false),
        fill: Box::new(move |rows| {
            Arc::new(PrimitiveArray::<T>::from_iter_values(rows.iter().map(&value)))
        }),
    }
}

/// A column of numbers that some rows lack.
fn optional<R: 'static, T: ArrowPrimitiveType>(
    name: &str,
    about: About,
    value: impl Fn(&R) -> Option<T::Native> + Send + Sync + 'static,
) -> Column<R> {
    Column {
        field: about.field(name, T::DATA_TYPE, true),
        fill: Box::new(move |rows| {
            Arc::new(rows.iter().map(&value).collect::<PrimitiveArray<T>>())
        }),
    }
}

/// A column of times. A time that is not known, and one after 2262 for which the type has no room, is
/// null.
fn timestamp<R: 'static>(
    name: &str,
    about: About,
    offset_ns: i64,
    value: impl Fn(&R) -> Option<u64> + Send + Sync + 'static,
) -> Column<R> {
    let data_type = DataType::Timestamp(arrow_schema::TimeUnit::Nanosecond, Some("UTC".into()));
    Column {
        field: about.field(name, data_type, true),
        fill: Box::new(move |rows| {
            let unix_ns = |r| i64::try_from(value(r)?).ok()?.checked_add(offset_ns);
            let array: PrimitiveArray<TimestampNanosecondType> = rows.iter().map(unix_ns).collect();
            Arc::new(array.with_timezone("UTC"))
        }),
    }
}

/// A column of 16-byte addresses; rows without an IP header lack it.
fn address<R: 'static>(
    name: &str,
    about: About,
    value: impl Fn(&R) -> Option<[u8; 16]> + Send + Sync + 'static,
) -> Column<R> {
    Column {
        field: about.field(name, DataType::FixedSizeBinary(16), true),
        fill: Box::new(move |rows| {
            let mut bytes = Vec::with_capacity(rows.len() * 16);
            let mut valid = Vec::with_capacity(rows.len());
            for row in rows {
                let address = value(row);
                bytes.extend(address.unwrap_or_default());
                valid.push(address.is_some());
            }
            let nulls = valid.contains(&false).then(|| NullBuffer::from(valid));
            Arc::new(FixedSizeBinaryArray::new(16, Buffer::from_vec(bytes), nulls))
        }),
    }
}

fn text<R: 'static>(
    name: &str,
    about: About,
    value: impl Fn(&R) -> &'static str + Send + Sync + 'static,
) -> Column<R> {
    Column {
        field: about.field(name, DataType::Utf8, false),
        fill: Box::new(move |rows| {
            Arc::new(StringArray::from_iter_values(rows.iter().map(&value)))
        }),
    }
}

/// A column of lists of `size` numbers, short ones padded with null.
fn list<R: 'static, T: ArrowPrimitiveType>(
    name: &str,
    about: About,
    size: usize,
    value: impl Fn(&R, usize) -> Option<T::Native> + Send + Sync + 'static,
) -> Column<R> {
    let item = Arc::new(Field::new_list_field(T::DATA_TYPE, true));
    let data_type = DataType::FixedSizeList(item.clone(), size as i32);
    Column {
        field: about.field(name, data_type, false),
        fill: Box::new(move |rows| {
            let values: PrimitiveArray<T> =
                rows.iter().flat_map(|r| (0..size).map(|i| value(r, i))).collect();
            Arc::new(FixedSizeListArray::new(item.clone(), size as i32, Arc::new(values), None))
        }),
    }
}

/// The columns of one level and profile.
pub struct Table<R> {
    columns: Vec<Column<R>>,
    schema: SchemaRef,
}

impl<R> Table<R> {
    fn new(columns: Vec<Column<R>>) -> Table<R> {
        let fields: Vec<Field> = columns.iter().map(|c| c.field.clone()).collect();
        Table { columns, schema: Arc::new(Schema::new(fields)) }
    }

    /// The schema, with unit and definition of every field.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Name, type, unit and definition of every column, and what other tools call it.
    pub(crate) fn described(&self) -> Vec<Vec<String>> {
        let describe = |field: &Arc<Field>| {
            let said = |key: &str| field.metadata().get(key).cloned().unwrap_or_default();
            let mut others: Vec<String> = field
                .metadata()
                .iter()
                .filter_map(|(key, name)| Some(format!("{}: {name}", key.strip_prefix("alias.")?)))
                .collect();
            others.sort_unstable();
            let null = if field.is_nullable() { ", or null" } else { "" };
            vec![
                field.name().clone(),
                format!("{}{null}", field.data_type()),
                said("unit"),
                said("definition"),
                others.join("; "),
            ]
        };
        self.schema.fields().iter().map(describe).collect()
    }

    /// One batch of rows.
    pub fn batch(&self, rows: &[R]) -> RecordBatch {
        let arrays = self.columns.iter().map(|c| (c.fill)(rows)).collect();
        RecordBatch::try_new(self.schema.clone(), arrays)
            .expect("every column fills its own field's type")
    }
}

/// Packet rows; `offset_ns` turns record time into Unix time.
pub(crate) fn packets(offset_ns: i64) -> Table<PacketRow> {
    let ip = |r: &PacketRow| r.record.has_ip();
    let has = |bit: Has| move |r: &PacketRow| r.record.has.contains(bit);
    let ports = has(Has::PORTS);
    let mut c: Vec<Column<PacketRow>> = Vec::new();
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
        about("index", "which of the run's sources (schema metadata `sources`), from 0"),
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
    Table::new(c)
}

/// The names of the nine flags, in bit order.
const FLAG_NAMES: [&str; TCP_FLAG_COUNT] =
    ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ae"];

/// A direction of the columns: forward, backward, or both together.
#[derive(Clone, Copy)]
enum Of {
    Forward,
    Backward,
    Both,
}

impl Of {
    const ALL: [Of; 3] = [Of::Forward, Of::Backward, Of::Both];

    fn prefix(self) -> &'static str {
        match self {
            Of::Forward => "fwd",
            Of::Backward => "bwd",
            Of::Both => "bi",
        }
    }

    fn nfstream(self) -> &'static str {
        match self {
            Of::Forward => "src2dst",
            Of::Backward => "dst2src",
            Of::Both => "bidirectional",
        }
    }

    fn sides(self, flow: &Flow) -> impl Iterator<Item = &Side> {
        let range = match self {
            Of::Forward => 0..1,
            Of::Backward => 1..2,
            Of::Both => 0..2,
        };
        flow.side[range].iter()
    }

    fn sum(self, flow: &Flow, value: impl Fn(&Side) -> u64) -> i64 {
        self.sides(flow).map(value).sum::<u64>() as i64
    }

    /// Over the sides of which `valid` is true.
    fn fold<T>(
        self,
        flow: &Flow,
        valid: impl Fn(&Side) -> bool,
        value: impl Fn(&Side) -> T,
        better: impl Fn(T, T) -> T,
    ) -> Option<T> {
        self.sides(flow).filter(|s| valid(s)).map(value).reduce(better)
    }

    fn iat(self, flow: &Flow) -> &Span {
        match self {
            Of::Forward => &flow.side[0].iat,
            Of::Backward => &flow.side[1].iat,
            Of::Both => &flow.iat,
        }
    }
}

fn initiator_is_low(row: &FlowRow) -> bool {
    row.flow.fwd_is_lo
}

/// A port of a flow that has ports: no header has 0 for both.
fn port(row: &FlowRow, low: bool) -> Option<u16> {
    let (lo, hi) = (row.key.port_lo, row.key.port_hi);
    (lo | hi > 0).then_some(if low { lo } else { hi })
}

/// What a frame of the flow was stamped, where all of them were.
fn stamp(row: &FlowRow, stamp_ns: u64) -> Option<u64> {
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

fn flow_identity(offset_ns: i64) -> Vec<Column<FlowRow>> {
    vec![
        number::<_, UInt16Type>(
            "source",
            about("index", "which of the run's sources (schema metadata `sources`), from 0"),
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
                 established: handshake seen; syn: SYN only; midstream: no SYN seen",
            ),
            |r: &FlowRow| tcp_state(&r.flow, r.key.proto),
        ),
    ]
}

fn tcp_state(flow: &Flow, proto: u8) -> &'static str {
    let fin = |d: Direction| flow.side(d).state & side_state::FIN != 0;
    match (fin(Direction::Forward), fin(Direction::Backward)) {
        _ if proto != 6 => "none",
        _ if flow.state & flow_state::RST != 0 => "reset",
        (true, true) => "closed",
        (true, false) | (false, true) => "half-closed",
        _ if flow.syn_ack_ns != 0 => "established",
        _ if flow.syn_ns != 0 => "syn",
        _ => "midstream",
    }
}

type Sum = fn(&Side) -> u64;

fn volume(c: &mut Vec<Column<FlowRow>>, of: Of) {
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

type SpanValue = fn(&Span) -> u64;

fn timing(c: &mut Vec<Column<FlowRow>>, of: Of) {
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

fn tcp(c: &mut Vec<Column<FlowRow>>, of: Of) {
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
fn step(from_ns: u64, to_ns: u64) -> Option<i64> {
    (from_ns > 0 && to_ns > 0).then(|| to_ns.wrapping_sub(from_ns) as i64)
}

fn connection(c: &mut Vec<Column<FlowRow>>) {
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
type Moments = (Option<f64>, Option<f64>);

fn derived(c: &mut Vec<Column<FlowRow>>, of: Of) {
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

fn per_second(n: i64, flow: &Flow) -> Option<f64> {
    let ns = flow.duration_ns();
    (ns > 0).then(|| n as f64 * 1e9 / ns as f64)
}

fn moments(
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

fn ratios(c: &mut Vec<Column<FlowRow>>) {
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

fn sequence(c: &mut Vec<Column<FlowRow>>, first_packets: usize) {
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

/// The name of a level in file metadata.
pub(crate) fn level_name(level: Level) -> &'static str {
    match level {
        Level::Packet => "packet",
        Level::Flow => "flow",
    }
}
