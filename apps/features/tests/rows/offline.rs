//! Whole captures: the same rows whatever the number of workers, and an account of every frame.

use crate::support::{Folder, Frame};
use arrow_array::{Array, RecordBatch, cast::AsArray, types::Int64Type};
use laneway_core::DropReason;
use laneway_features::{
    Config, Format, Level, Output, Profile, Provenance, Tables,
    offline::{self, CHUNK_FRAMES, Chunk, OfflineFrame, Progress, Source, Summary},
};
use laneway_flow::FlowLimits;
use laneway_testkit::Random;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::{
    collections::{BTreeMap, VecDeque},
    fs::File,
    path::Path,
    sync::atomic::Ordering,
};

const S: u64 = 1_000_000_000;
const START_NS: u64 = 1_700_000_000 * S;
/// The time of frames that the capture has no time for.
const UNTIMED: u64 = u64::MAX;

/// Frames in memory, in chunks of a given size; `None` bytes are frames of another link layer.
struct Memory {
    chunks: VecDeque<Part>,
    damage: Option<String>,
}

struct Part(Vec<(Frame, bool)>);

impl Chunk for Part {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn each(&self, show: &mut dyn FnMut(OfflineFrame<'_>)) {
        for (frame, is_ethernet) in &self.0 {
            show(OfflineFrame {
                ts_ns: (frame.ts_ns != UNTIMED).then_some(frame.ts_ns),
                wire_len: frame.wire_len,
                link_extra: frame.link_extra,
                bytes: is_ethernet.then_some(&frame.bytes[..]),
            });
        }
    }
}

impl Memory {
    fn new(frames: &[Frame], chunk_frames: usize) -> Memory {
        let part = |frames: &[Frame]| Part(frames.iter().map(|f| (f.clone(), true)).collect());
        Memory { chunks: frames.chunks(chunk_frames).map(part).collect(), damage: None }
    }
}

impl Source for Memory {
    type Chunk = Part;

    fn next_chunk(&mut self) -> Result<Option<Part>, String> {
        match (self.chunks.pop_front(), self.damage.take()) {
            (Some(chunk), damage) => {
                self.damage = damage;
                Ok(Some(chunk))
            }
            (None, Some(why)) => Err(why),
            (None, None) => Ok(None),
        }
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.chunks.len() as u64, None)
    }
}

/// Traffic of many flows: TCP connections that open, close and are opened again, UDP, frames
/// without IP; some stamped seconds before their predecessors.
fn traffic(frames: usize) -> Vec<Frame> {
    let mut choices = Random::seeded(7);
    let mut now_ns = START_NS;
    let mut traffic = Vec::new();
    for _ in 0..frames {
        now_ns += choices.draw() % 3_000_000;
        if choices.index(400) == 0 {
            now_ns += choices.draw() % (3 * S);
        }
        let late = if choices.index(20) == 0 { choices.draw() % (4 * S) } else { 0 };
        let (host, port) = (choices.index(12) as u8, 1000 + choices.index(30) as u16);
        let flags = [0x02, 0x12, 0x10, 0x18, 0x18, 0x11, 0x04][choices.index(7)];
        let payload = vec![b'x'; choices.index(200)];
        let bytes = match choices.index(10) {
            0 => crate::support::ethernet(0x0806, &[0; 28]),
            1..4 => crate::support::ethernet(
                0x0800,
                &crate::support::ipv4(17, host, 99, &crate::support::udp((port, 53), &payload)),
            ),
            n => {
                let ports = if n % 2 == 0 { (port, 80) } else { (80, port) };
                let (from, to) = if n % 2 == 0 { (host, 99) } else { (99, host) };
                let tcp = crate::support::tcp(ports, choices.draw() as u32, flags, &payload);
                crate::support::ethernet(0x0800, &crate::support::ipv4(6, from, to, &tcp))
            }
        };
        let wire_len = bytes.len() as u32;
        traffic.push(Frame { ts_ns: now_ns - late, wire_len, link_extra: 0, bytes });
    }
    traffic
}

fn flow_config() -> Config {
    let limits = FlowLimits::new(2 * S, 6 * S, S / 2).unwrap();
    Config { level: Level::Flow, limits, first_packets: 3, ..Config::default() }
}

struct Run {
    summary: Summary,
    rows: Vec<RecordBatch>,
}

impl Run {
    /// Every row as text, in order.
    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for batch in &self.rows {
            for row in 0..batch.num_rows() {
                let cells = batch.columns().iter().map(|c| format!("{:?}", c.slice(row, 1)));
                lines.push(cells.collect());
            }
        }
        lines
    }

    fn sorted(&self) -> Vec<String> {
        let mut lines = self.lines();
        lines.sort_unstable();
        lines
    }

    fn integers(&self, name: &str) -> Vec<i64> {
        let columns = self.rows.iter().map(|b| b.column_by_name(name).unwrap());
        columns.flat_map(|c| c.as_primitive::<Int64Type>().values().to_vec()).collect()
    }
}

fn run_sources(config: &Config, sources: Vec<Memory>, workers: usize, progress: &Progress) -> Run {
    let folder = Folder::new(&format!(
        "offline-{:?}-{workers}-{}",
        std::thread::current().id(),
        config.sample
    ));
    let path = folder.path("rows.arrows");
    let tables = Tables::new(config, Profile::Full, 0);
    let provenance = Provenance::new(config.level, "full");
    let output = Output::open(&path, Format::ArrowStream, tables.schema(), &provenance).unwrap();
    let losses = |summary: &Summary| {
        let dropped = summary.counters.nonzero_drops();
        dropped.map(|(reason, n)| (reason.name().to_owned(), n)).collect::<BTreeMap<_, _>>()
    };
    let summary =
        offline::run(config, Profile::Full, sources, output, workers, progress, losses).unwrap();
    let reader =
        arrow_ipc::reader::StreamReader::try_new(File::open(&path).unwrap(), None).unwrap();
    let rows: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
    let written: usize = rows.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(summary.rows, written as u64);
    Run { summary, rows }
}

fn run(config: &Config, frames: &[Frame], workers: usize) -> Run {
    run_sources(config, vec![Memory::new(frames, 100)], workers, &Progress::default())
}

#[test]
fn packet_rows_are_the_same_in_the_same_order_for_any_number_of_workers() {
    let frames = traffic(5000);
    let one = run(&Config::default(), &frames, 1);
    assert_eq!(one.integers("seq_no"), (0..5000).collect::<Vec<i64>>());
    for workers in [2, 3, 8] {
        assert_eq!(run(&Config::default(), &frames, workers).lines(), one.lines(), "{workers}");
    }
}

#[test]
fn flow_rows_are_the_same_set_for_any_number_of_workers() {
    let frames = traffic(6000);
    let one = run(&flow_config(), &frames, 1);
    assert!(one.rows.iter().map(RecordBatch::num_rows).sum::<usize>() > 300);
    for workers in [2, 3, 8] {
        let many = run(&flow_config(), &frames, workers);
        let (one, many) = (one.sorted(), many.sorted());
        assert_eq!(one.len(), many.len(), "{workers} workers");
        for (a, b) in one.iter().zip(&many) {
            assert_eq!(a, b, "{workers} workers");
        }
    }
}

/// A datagram of a host, so many ns behind the start.
fn datagram(host: u8, at_ns: i64) -> Frame {
    let udp = crate::support::udp((1000, 53), b"x");
    let bytes = crate::support::ethernet(0x0800, &crate::support::ipv4(17, host, 99, &udp));
    let ts_ns = START_NS.wrapping_add_signed(at_ns);
    Frame { ts_ns, wire_len: bytes.len() as u32, link_extra: 0, bytes }
}

/// A stray in one shard, a clock that is set back, frames without a time: every shard goes by the one
/// clock of the capture, wherever chunks begin.
#[test]
fn stamps_out_of_order_give_the_same_rows_for_any_number_of_workers() {
    let ms = |n: i64| n * 1_000_000;
    let mut frames: Vec<Frame> = (0..4000).map(|i| datagram((i % 16) as u8, ms(i))).collect();
    frames[1000].ts_ns += 3600 * S;
    frames[1500].ts_ns = UNTIMED;
    frames[2000].ts_ns -= 3600 * S;
    frames[3000..].iter_mut().for_each(|frame| frame.ts_ns -= 90 * S);
    let config = flow_config();
    let one = run(&config, &frames, 1);
    let disorder = one.summary.disorder;
    assert_eq!((disorder.strays, disorder.steps, disorder.untimed), (2, 1, 1));
    let schema = one.rows[0].schema();
    assert_eq!(schema.metadata()["laneway.disorder.steps"], "1");
    // The flow of the first stray is cut around it; the others are whole.
    assert_eq!(one.summary.rows, 18);
    for workers in [1, 2, 5] {
        for chunk in [100, 17, 3] {
            let sources = vec![Memory::new(&frames, chunk)];
            let many = run_sources(&config, sources, workers, &Progress::default());
            assert_eq!(many.sorted(), one.sorted(), "{workers} workers, chunks of {chunk}");
            assert_eq!(many.summary.disorder, disorder);
        }
    }
}

#[test]
fn parts_of_one_capture_have_its_flows_where_they_are_joined() {
    let frames = traffic(3000);
    let whole = run(&flow_config(), &frames, 1);
    let parts = || frames.chunks(700).map(|part| Memory::new(part, 100)).collect();
    for workers in [1, 3] {
        let cut = run_sources(&flow_config(), parts(), workers, &Progress::default());
        assert!(cut.summary.rows > whole.summary.rows);
        let config = Config { join: true, ..flow_config() };
        let joined = run_sources(&config, parts(), workers, &Progress::default());
        // All but the source of a row, which is the part that it ended in.
        let rows = |run: &Run| {
            let mut ids = run.integers("flow_id");
            let bytes = run.integers("bi_bytes");
            ids.iter_mut().zip(bytes).for_each(|(id, bytes)| *id = id.wrapping_mul(31) ^ bytes);
            ids.sort_unstable();
            ids
        };
        assert_eq!(rows(&joined), rows(&whole), "{workers} workers");
        assert_eq!(joined.summary.unflowed, whole.summary.unflowed);
    }
}

/// LINKTYPE_RAW has no link header, LINUX_SLL one of 16 bytes.
#[test]
fn rows_state_the_lengths_of_the_link_that_the_frames_arrived_by() {
    for link_extra in [-14, -10, 2] {
        let mut frame = datagram(1, 0);
        frame.link_extra = link_extra;
        let own = i64::from(frame.wire_len) + i64::from(link_extra);
        let packets = run(&Config::default(), std::slice::from_ref(&frame), 1);
        let text = |name: &str| {
            let column = packets.rows[0].column_by_name(name).unwrap();
            i64::from(column.as_primitive::<arrow_array::types::UInt32Type>().value(0))
        };
        assert_eq!((text("frame_len"), text("cap_len"), text("payload_len")), (own, own, 1));
        let flows = run(&flow_config(), &[frame], 1);
        assert_eq!(flows.integers("bi_bytes"), [own]);
        assert_eq!(flows.integers("bi_ip_bytes"), [29]);
    }
}

#[test]
fn a_packet_without_a_stated_length_has_it_on_every_link() {
    for (link_extra, payload) in [(0, 1), (-14, 1), (2, 70_000)] {
        let mut frame = datagram(1, 0);
        frame.bytes[16..18].fill(0);
        frame.bytes.resize(42 + payload, 0);
        (frame.wire_len, frame.link_extra) = (frame.bytes.len() as u32, link_extra);
        let flows = run(&flow_config(), &[frame], 1);
        assert_eq!(flows.integers("bi_payload_bytes"), [payload as i64]);
        assert_eq!(flows.integers("len_odd_pkts"), [1]);
    }
}

#[test]
fn flows_and_the_frames_without_one_add_up_to_all_frames() {
    let frames = traffic(3000);
    for workers in [1, 3] {
        let run = run(&flow_config(), &frames, workers);
        let in_flows: i64 = run.integers("bi_pkts").iter().sum();
        assert!(run.summary.unflowed > 0);
        assert_eq!(in_flows as u64 + run.summary.unflowed, 3000);
        assert_eq!((run.summary.counters.rx_frames, run.summary.evicted), (3000, 0));
        assert_eq!(run.summary.by_status.iter().sum::<u64>(), 3000);
    }
}

#[test]
fn a_full_flow_table_evicts_counts_and_loses_no_frame() {
    let frames = traffic(3000);
    for workers in [1, 2] {
        let run = run(&Config { flows_max: 8, ..flow_config() }, &frames, workers);
        assert!(run.summary.evicted > 100, "{}", run.summary.evicted);
        let in_flows: i64 = run.integers("bi_pkts").iter().sum();
        assert_eq!(in_flows as u64 + run.summary.unflowed, 3000);
    }
}

#[test]
fn knobs_hold_over_the_bounds_of_chunks_and_every_frame_is_accounted_for() {
    let frames = traffic(4000);
    let configs = [
        Config { sample: 7, ..Config::default() },
        Config { rate_max: 200, ..Config::default() },
        Config { filter: Some("ipv4 / udp".parse().unwrap()), ..Config::default() },
        Config {
            sample: 3,
            rate_max: 150,
            filter: Some("ipv4 src is 10.0.0.0/29 or eth type is 0x0806".parse().unwrap()),
            ..Config::default()
        },
    ];
    for config in configs {
        let one =
            run_sources(&config, vec![Memory::new(&frames, frames.len())], 1, &Progress::default());
        let rows = one.summary.rows;
        assert!(rows > 20 && rows < 3000, "{config:?}: {rows}");
        let dropped: u64 = one.summary.counters.nonzero_drops().map(|(_, n)| n).sum();
        assert_eq!(rows + dropped, 4000, "{config:?}");
        assert_eq!(one.summary.counters.lost(), 0);
        for (workers, chunk) in [(1, 100), (3, 100), (2, 7)] {
            let sources = vec![Memory::new(&frames, chunk)];
            let many = run_sources(&config, sources, workers, &Progress::default());
            assert_eq!(many.lines(), one.lines(), "{config:?}, {workers} workers");
            assert_eq!(many.summary.counters, one.summary.counters);
        }
    }
}

#[test]
fn sampling_keeps_the_frames_whose_number_it_divides() {
    let run = run(&Config { sample: 9, ..Config::default() }, &traffic(1000), 2);
    assert_eq!(run.integers("seq_no"), (0..1000).step_by(9).collect::<Vec<i64>>());
    assert_eq!(run.summary.counters.drops(DropReason::Sampled), 1000 - 112);
}

#[test]
fn a_damaged_source_keeps_its_rows_so_far_and_is_named() {
    for workers in [1, 3] {
        let mut damaged = Memory::new(&traffic(450), 100);
        damaged.damage = Some("a.pcap: cut at byte 77".to_owned());
        let sources = vec![damaged, Memory::new(&traffic(50), 100)];
        let run = run_sources(&Config::default(), sources, workers, &Progress::default());
        assert_eq!(run.summary.damaged, ["a.pcap: cut at byte 77"]);
        assert!(!run.summary.interrupted);
        // The next source is read all the same, with numbers of its own.
        let mut numbers: Vec<i64> = (0..450).collect();
        numbers.extend(0..50);
        assert_eq!(run.integers("seq_no"), numbers);
    }
}

#[test]
fn rows_name_their_source() {
    let sources = (0..3).map(|_| Memory::new(&traffic(10), 100)).collect();
    let run = run_sources(&Config::default(), sources, 2, &Progress::default());
    let named: Vec<u16> = run
        .rows
        .iter()
        .flat_map(|b| {
            let column = b.column_by_name("source").unwrap();
            column.as_primitive::<arrow_array::types::UInt16Type>().values().to_vec()
        })
        .collect();
    assert_eq!(named, [[0; 10], [1; 10], [2; 10]].concat());
}

#[test]
fn frames_of_another_link_layer_are_counted() {
    for level in [Level::Packet, Level::Flow] {
        let mut source = Memory::new(&traffic(100), 30);
        source.chunks.iter_mut().for_each(|part| part.0[0].1 = false);
        let config = Config { level, ..flow_config() };
        let run = run_sources(&config, vec![source], 2, &Progress::default());
        assert_eq!(run.summary.counters.drops(DropReason::LinkTypeUnknown), 4);
        assert_eq!(run.summary.counters.rx_frames, 96);
        assert_eq!(run.summary.counters.lost(), 4);
    }
}

/// A source that asks for the end of the run after some chunks.
struct Stopping<'a> {
    inner: Memory,
    chunks_left: usize,
    progress: &'a Progress,
}

impl Source for Stopping<'_> {
    type Chunk = Part;

    fn next_chunk(&mut self) -> Result<Option<Part>, String> {
        self.chunks_left -= 1;
        if self.chunks_left == 0 {
            self.progress.stop.store(true, Ordering::Relaxed);
        }
        self.inner.next_chunk()
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (0, Some(9))
    }
}

#[test]
fn a_run_that_is_stopped_finishes_what_it_has_read() {
    for workers in [1, 3] {
        let folder = Folder::new(&format!("stopped-{workers}"));
        let path = folder.path("rows.csv");
        let config = Config::default();
        let tables = Tables::new(&config, Profile::Core, 0);
        let output =
            Output::open(&path, Format::Csv, tables.schema(), &Provenance::default()).unwrap();
        let progress = Progress::default();
        let inner = Memory::new(&traffic(5000), 100);
        let source = Stopping { inner, chunks_left: 4, progress: &progress };
        let summary =
            offline::run(&config, Profile::Core, [source], output, workers, &progress, |_| {
                BTreeMap::new()
            })
            .unwrap();
        assert!(summary.interrupted);
        assert_eq!(summary.rows, 400);
        assert_eq!(progress.frames.load(Ordering::Relaxed), 400);
        assert_eq!(progress.bytes_total.load(Ordering::Relaxed), 9);
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 401);
    }
}

#[test]
fn an_output_that_fails_ends_the_run_for_every_number_of_workers() {
    let frames = traffic(40_000);
    let formats = [Format::JsonLines, Format::Parquet, Format::Arrow];
    let runs = [(1, Level::Packet), (3, Level::Packet), (3, Level::Flow)];
    for ((workers, level), format) in runs.into_iter().flat_map(|run| formats.map(|f| (run, f))) {
        let config = Config { level, ..flow_config() };
        let tables = Tables::new(&config, Profile::Core, 0);
        let output =
            Output::open(Path::new("/dev/full"), format, tables.schema(), &Provenance::default())
                .unwrap();
        let sources = vec![Memory::new(&frames, CHUNK_FRAMES / 8)];
        let error = offline::run(
            &config,
            Profile::Core,
            sources,
            output,
            workers,
            &Progress::default(),
            |_| BTreeMap::new(),
        )
        .expect_err("the device is full")
        .to_string();
        assert!(error.contains("/dev/full: cannot write"), "{error}");
    }
}

#[test]
fn a_parquet_file_is_the_same_byte_for_byte_with_any_number_of_encoders() {
    // One whole row group and part of another, over the end of a source.
    let frames = traffic(100_000);
    let config = Config { level: Level::Packet, ..Config::default() };
    let folder = Folder::new("row-groups");
    let file = |workers: usize| {
        let path = folder.path("rows.parquet");
        let tables = Tables::new(&config, Profile::Core, 0);
        let output =
            Output::open(&path, Format::Parquet, tables.schema(), &Provenance::default()).unwrap();
        let sources =
            [&frames[..], &frames[..70_000]].map(|frames| Memory::new(frames, CHUNK_FRAMES));
        let progress = Progress::default();
        let run = offline::run(&config, Profile::Core, sources, output, workers, &progress, |_| {
            BTreeMap::new()
        });
        assert_eq!(run.unwrap().rows, 170_000);
        std::fs::read(&path).unwrap()
    };
    let one = file(1);
    let reader =
        ParquetRecordBatchReaderBuilder::try_new(File::open(folder.path("rows.parquet")).unwrap());
    let reader = reader.unwrap();
    let groups = reader.metadata().row_groups().iter().map(|group| group.num_rows());
    assert_eq!(groups.collect::<Vec<_>>(), [131_072, 170_000 - 131_072]);
    for workers in [2, 5] {
        assert!(file(workers) == one, "{workers} workers");
    }
}

#[test]
fn no_frames_are_no_rows() {
    for level in [Level::Packet, Level::Flow] {
        let config = Config { level, ..Config::default() };
        let run = run_sources(&config, vec![Memory::new(&[], 1)], 3, &Progress::default());
        assert_eq!((run.summary.rows, run.summary.counters.rx_frames), (0, 0));
    }
}
