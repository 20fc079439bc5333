//! Our side: what [`offline::run`] writes, read back from its file.

use crate::{
    captures::{Capture, Folder, Frame},
    flows::{Column, Columns, Flow, Place},
};
use arrow_array::{
    ArrayRef, RecordBatch,
    cast::AsArray,
    types::{Float64Type, Int64Type},
};
use arrow_schema::{DataType, Field};
use laneway_features::{
    Config, Format, Level, Output, Profile, Provenance, Tables,
    offline::{self, Chunk, OfflineFrame, Progress, Source},
};
use laneway_flow::FlowLimits;
use std::{collections::BTreeMap, fs::File, net::Ipv6Addr, sync::Arc};

const S: u64 = 1_000_000_000;
/// More flows than any capture here has.
const FLOWS_MAX: usize = 1 << 14;

/// A capture as a source of one chunk.
struct Frames<'a>(Option<Whole<'a>>);

struct Whole<'a>(&'a [Frame]);

impl Chunk for Whole<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn each(&self, show: &mut dyn FnMut(OfflineFrame<'_>)) {
        for Frame { ts_ns, wire_len, link_extra, bytes } in self.0 {
            let (ts_ns, wire_len, link_extra) = (Some(*ts_ns), *wire_len, *link_extra);
            show(OfflineFrame { ts_ns, wire_len, link_extra, bytes: Some(bytes) });
        }
    }
}

impl<'a> Source for Frames<'a> {
    type Chunk = Whole<'a>;

    fn next_chunk(&mut self) -> Result<Option<Whole<'a>>, String> {
        Ok(self.0.take())
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (0, None)
    }
}

/// Our flows of each capture, with NFStream's timeouts and, like it, without looking at FIN and RST.
pub(crate) fn flows(captures: &[Capture], columns: &Columns, folder: &Folder) -> Vec<Vec<Flow>> {
    let limits = FlowLimits::new(120 * S, 1800 * S, 0).expect("NFStream's defaults make sense");
    let config = Config { level: Level::Flow, limits, flows_max: FLOWS_MAX, ..Config::default() };
    let tables = Tables::new(&config, Profile::Full, 0);
    let path = folder.path("rows.arrows");
    let provenance = Provenance::new(config.level, "full");
    let output = Output::open(&path, Format::ArrowStream, tables.schema(), &provenance)
        .expect("our own folder");
    let sources = captures.iter().map(|capture| Frames(Some(Whole(&capture.frames))));
    let progress = Progress::default();
    let summary =
        offline::run(&config, Profile::Full, sources, output, 2, &progress, |_| BTreeMap::new())
            .expect("the disk is not full");
    assert_eq!(summary.evicted, 0, "raise FLOWS_MAX");

    let mut flows: Vec<Vec<Flow>> = captures.iter().map(|_| Vec::new()).collect();
    let file = File::open(&path).expect("just written");
    let batches = arrow_ipc::reader::StreamReader::try_new(file, None).expect("just written");
    for batch in batches {
        read(&batch.expect("just written"), columns, &mut flows);
    }
    flows
}

/// The columns of our schema that say they are one of NFStream's: their names and its.
pub(crate) fn aliases() -> Vec<(String, String)> {
    let config = Config { level: Level::Flow, ..Config::default() };
    let tables = Tables::new(&config, Profile::Full, 0);
    let alias = |field: &Arc<Field>| {
        let theirs = field.metadata().get("alias.nfstream")?;
        Some((field.name().clone(), theirs.clone()))
    };
    tables.schema().fields().iter().filter_map(alias).collect()
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> &'a ArrayRef {
    batch.column_by_name(name).unwrap_or_else(|| panic!("flow rows have no column {name}"))
}

/// A column of numbers in NFStream's unit; null is its 0.
fn integers(batch: &RecordBatch, name: &str, unit: i64) -> Vec<i64> {
    let column = arrow_cast::cast(column(batch, name), &DataType::Int64).expect("an integer");
    let column = column.as_primitive::<Int64Type>();
    column.iter().map(|value| value.unwrap_or(0) / unit).collect()
}

fn floats(batch: &RecordBatch, Column { ours, unit, .. }: &Column) -> Vec<f64> {
    let column = column(batch, ours).as_primitive::<Float64Type>();
    column.iter().map(|value| value.unwrap_or(0.0) / *unit as f64).collect()
}

fn addresses(batch: &RecordBatch, name: &str) -> Vec<Ipv6Addr> {
    let column = column(batch, name).as_fixed_size_binary();
    let address = |ip: &[u8]| <[u8; 16]>::try_from(ip).expect("16 bytes").into();
    column.iter().map(|ip| address(ip.expect("a flow has addresses"))).collect()
}

fn read(batch: &RecordBatch, columns: &Columns, flows: &mut [Vec<Flow>]) {
    let identity = |name| integers(batch, name, 1);
    let capture = identity("source");
    let [src_ip, dst_ip, rest @ ..] = Columns::IDENTITY.map(|(ours, _)| ours);
    let [src_port, dst_port, proto, version, vlan] = rest.map(identity);
    let [src_ip, dst_ip] = [src_ip, dst_ip].map(|name| addresses(batch, name));
    let values: Vec<Vec<i64>> = columns
        .integers
        .iter()
        .map(|Column { ours, unit, .. }| match ours.as_str() {
            // Of the reasons, NFStream tells the active timeout from all others.
            "end_reason" => identity(ours).iter().map(|code| i64::from(*code == 2)).collect(),
            _ => integers(batch, ours, *unit),
        })
        .collect();
    let moments: Vec<Vec<f64>> =
        columns.floats.iter().map(|column| floats(batch, column)).collect();
    for row in 0..batch.num_rows() {
        let place = Place {
            proto: proto[row] as u8,
            version: version[row] as u8,
            vlan: vlan[row] as u16,
            source: (src_ip[row], src_port[row] as u16),
            destination: (dst_ip[row], dst_port[row] as u16),
        };
        flows[capture[row] as usize].push(Flow {
            place,
            integers: values.iter().map(|column| column[row]).collect(),
            floats: moments.iter().map(|column| column[row]).collect(),
        });
    }
}
