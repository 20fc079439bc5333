//! A flow as both sides can state it, and the comparison.

use crate::{captures::Capture, view::pair};
use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, Ipv6Addr},
};

/// The relative error allowed between means and deviations computed from integer sums (ours) and by
/// running updates (NFStream's).
const FLOAT_ERROR_MAX: f64 = 1e-12;

/// Address (IPv4-mapped) and port.
pub(crate) type End = (Ipv6Addr, u16);

/// The ends of the flow, and the one that sent its first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) proto: u8,
    pub(crate) version: u8,
    pub(crate) vlan: u16,
    pub(crate) source: End,
    pub(crate) destination: End,
}

impl Place {
    /// The same for both directions.
    fn undirected(&self) -> Place {
        let (source, destination) =
            (self.source.min(self.destination), self.source.max(self.destination));
        Place { source, destination, ..*self }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |(ip, port): End| format!("{} {port}", ip.to_canonical());
        let (source, destination) = (show(self.source), show(self.destination));
        write!(f, "{source} > {destination} protocol {} VLAN {}", self.proto, self.vlan)
    }
}

pub(crate) struct Flow {
    pub(crate) place: Place,
    /// In the order of [`Columns::integers`].
    pub(crate) integers: Vec<i64>,
    /// In the order of [`Columns::floats`].
    pub(crate) floats: Vec<f64>,
}

/// A number that both sides have: its names, and how many of our units are one of NFStream's.
pub(crate) struct Column {
    pub(crate) ours: String,
    pub(crate) theirs: String,
    pub(crate) unit: i64,
    /// Bytes behind the IP header.
    is_of_layer_4: bool,
}

/// What is compared besides the [`Place`].
pub(crate) struct Columns {
    pub(crate) integers: Vec<Column>,
    pub(crate) floats: Vec<Column>,
}

/// Where the time of the first packet is among the integers.
const FIRST: usize = 0;
/// Where the packets of both directions are.
const PACKETS: usize = 4;
const NS_PER_MS: i64 = 1_000_000;

impl Columns {
    /// What makes the [`Place`], by our name and NFStream's.
    pub(crate) const IDENTITY: [(&'static str, &'static str); 7] = [
        ("src_ip", "src_ip"),
        ("dst_ip", "dst_ip"),
        ("src_port", "src_port"),
        ("dst_port", "dst_port"),
        ("proto", "protocol"),
        ("ip_version", "ip_version"),
        ("vlan_id", "vlan_id"),
    ];

    pub(crate) fn new() -> Columns {
        let column = |ours: String, theirs: String, unit| {
            let is_of_layer_4 = ours.contains("l4_bytes") || ours.contains("payload_bytes");
            Column { ours, theirs, unit, is_of_layer_4 }
        };
        let named = |ours: &str, theirs: &str, unit| column(ours.into(), theirs.into(), unit);
        let mut integers = vec![
            named("first_ts", "bidirectional_first_seen_ms", NS_PER_MS),
            named("last_ts", "bidirectional_last_seen_ms", NS_PER_MS),
            named("duration_ns", "bidirectional_duration_ms", NS_PER_MS),
            named("end_reason", "expiration_id", 1),
        ];
        assert_eq!(integers.len(), PACKETS, "the first of the columns below");
        let mut floats = Vec::new();
        let directions = [("bi", "bidirectional"), ("fwd", "src2dst"), ("bwd", "dst2src")];
        for (d, direction) in directions {
            let of = |ours: &str, theirs: &str, unit| {
                column(format!("{d}_{ours}"), format!("{direction}_{theirs}"), unit)
            };
            integers.extend([
                of("pkts", "packets", 1),
                of("bytes", "bytes", 1),
                of("len_min", "min_ps", 1),
                of("len_max", "max_ps", 1),
                of("iat_ns_min", "min_piat_ms", NS_PER_MS),
                of("iat_ns_max", "max_piat_ms", NS_PER_MS),
            ]);
            for flag in ["syn", "cwr", "ece", "urg", "ack", "psh", "rst", "fin"] {
                integers.push(of(&format!("{flag}_pkts"), &format!("{flag}_packets"), 1));
            }
            if d != "bi" {
                let bytes = ["ip_bytes", "l4_bytes", "payload_bytes"];
                integers.extend(bytes.map(|name| of(name, name, 1)));
            }
            floats.extend([
                of("len_mean", "mean_ps", 1),
                of("len_std", "stddev_ps", 1),
                of("iat_ns_mean", "mean_piat_ms", NS_PER_MS),
                of("iat_ns_std", "stddev_piat_ms", NS_PER_MS),
            ]);
        }
        Columns { integers, floats }
    }
}

/// IPv4 as `::ffff:a.b.c.d`, as in our rows.
pub(crate) fn mapped(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

/// What has been compared so far.
pub(crate) struct Comparison {
    columns: Columns,
    /// Flows and packets that both sides have.
    pub(crate) flows: usize,
    pub(crate) packets: i64,
    /// Flows of protocols that NFStream does not decode: it has no bytes of layer 4 for them.
    pub(crate) opaque: usize,
    /// Flows of ours and of NFStream's that are not compared, by reason.
    pub(crate) excluded: BTreeMap<String, [usize; 2]>,
    pub(crate) differences: Vec<String>,
}

impl Comparison {
    pub(crate) fn new(columns: Columns) -> Comparison {
        Comparison {
            columns,
            flows: 0,
            packets: 0,
            opaque: 0,
            excluded: BTreeMap::new(),
            differences: Vec::new(),
        }
    }

    /// Flows of NFStream's that are not compared.
    pub(crate) fn excluded_theirs(&self) -> usize {
        self.excluded.values().map(|[_, theirs]| theirs).sum()
    }

    /// Compares a capture's flows.
    pub(crate) fn capture(&mut self, capture: &Capture, ours: &[Flow], theirs: &[Flow]) {
        let mut flows: BTreeMap<Place, [Vec<&Flow>; 2]> = BTreeMap::new();
        for (side, all) in [ours, theirs].into_iter().enumerate() {
            for flow in all {
                match excluded(capture, flow) {
                    Some(why) => self.excluded.entry(why.to_owned()).or_default()[side] += 1,
                    None => flows.entry(flow.place.undirected()).or_default()[side].push(flow),
                }
            }
        }
        for (place, mut sides) in flows {
            // Flows of one key follow each other.
            sides.iter_mut().for_each(|flows| flows.sort_by_key(|flow| flow.integers[FIRST]));
            let [ours, theirs] = &sides;
            if ours.len() != theirs.len() {
                let packets = sides.each_ref().map(|flows| {
                    flows.iter().map(|flow| flow.integers[PACKETS]).collect::<Vec<_>>()
                });
                self.differ(capture, &place, format_args!("packets per flow {packets:?}"));
                continue;
            }
            ours.iter().zip(theirs).for_each(|(ours, theirs)| self.pair(capture, ours, theirs));
        }
    }

    fn pair(&mut self, capture: &Capture, ours: &Flow, theirs: &Flow) {
        self.flows += 1;
        self.packets += theirs.integers[PACKETS];
        let mut found = Vec::new();
        if ours.place != theirs.place {
            found.push(format!("NFStream has {}", theirs.place));
        }
        let is_opaque = !matches!(ours.place.proto, 1 | 6 | 17 | 58);
        self.opaque += usize::from(is_opaque);
        let integers = ours.integers.iter().zip(&theirs.integers);
        for (column, (ours, theirs)) in self.columns.integers.iter().zip(integers) {
            if is_opaque && column.is_of_layer_4 {
                continue;
            }
            if ours != theirs {
                found.push(format!("{} {ours}, {} {theirs}", column.ours, column.theirs));
            }
        }
        let floats = ours.floats.iter().zip(&theirs.floats);
        for (column, (ours, theirs)) in self.columns.floats.iter().zip(floats) {
            if (ours - theirs).abs() > FLOAT_ERROR_MAX * ours.abs().max(theirs.abs()) {
                found.push(format!("{} {ours:e}, {} {theirs:e}", column.ours, column.theirs));
            }
        }
        if !found.is_empty() {
            self.differ(capture, &ours.place, format_args!("{}", found.join("; ")));
        }
    }

    fn differ(&mut self, capture: &Capture, place: &Place, what: fmt::Arguments<'_>) {
        self.differences.push(format!("{}: {place}: {what}", capture.name));
    }
}

/// Why a flow is not compared.
fn excluded<'a>(capture: &'a Capture, flow: &Flow) -> Option<&'a str> {
    let Place { source, destination, proto, .. } = flow.place;
    let rule = || capture.garbled.get(&pair(source.0, destination.0, proto));
    capture.left_out.as_deref().or_else(|| rule().map(|rule| rule.why()))
}
