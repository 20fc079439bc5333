//! The queue between workers and the thread that writes: what is taken is written, what is not taken is
//! counted.

use crate::support::Folder;
use laneway_core::{App, Counters, DropReason, FrameApp, FrameLane, Lane, PortId, Turn};
use laneway_features::{
    Config, Features, Format, Level, Output, Profile, Provenance, Queue, RowSink, RowWriter, Sink,
    Stamp, Tables, WhenFull, parse,
};
use laneway_flow::{EndedFlow, Flow, FlowKey, Record};
use laneway_pcap::PcapLane;
use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, PipeReader, Read, pipe},
    os::fd::AsRawFd,
    path::Path,
    thread,
};

/// Rows of a full buffer, by level.
const PACKET_ROWS: u64 = 8192;
const FLOW_ROWS: u64 = 2048;

fn records() -> Vec<Record> {
    let kinds = crate::support::every_kind();
    kinds.iter().map(|bytes| parse(bytes, Stamp::default())).collect()
}

fn config(level: Level) -> Config {
    Config { level, ..Config::default() }
}

fn start(path: &Path, config: &Config, queue: Queue) -> RowWriter {
    let tables = Tables::new(config, Profile::Core, 0);
    let output =
        Output::open(path, Format::JsonLines, tables.schema(), &Provenance::default()).unwrap();
    RowWriter::start(tables, output, queue).unwrap()
}

/// A writer to a pipe that nothing reads yet, with a queue of two buffers. It stays in its first buffer,
/// whose rows are more than a pipe holds.
fn stuck(config: &Config) -> (RowWriter, PipeReader) {
    let (reader, writer) = pipe().unwrap();
    let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
    let queue = Queue { sinks_max: 1, batches_max: 2, when_full: WhenFull::Lose };
    (start(Path::new(&path), config, queue), reader)
}

/// Lets a stuck writer write what it has, and says how many rows that was.
fn release(writer: RowWriter, mut reader: PipeReader) -> u64 {
    thread::scope(|scope| {
        let lines = scope.spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            text.lines().count() as u64
        });
        let output = writer.into_output().unwrap();
        let rows = output.rows();
        assert_eq!(output.finish(&BTreeMap::new()).unwrap(), rows);
        assert_eq!(lines.join().unwrap(), rows, "what was written was counted");
        rows
    })
}

fn give(sink: &mut RowSink, records: &[Record], rows: u64) {
    (0..rows as usize).for_each(|i| sink.packet(&records[i % records.len()]));
}

#[test]
fn full_buffers_are_written_at_once_and_the_rest_after_a_while() {
    let folder = Folder::new("sink");
    let path = folder.path("rows.jsonl");
    let config = config(Level::Packet);
    let writer = start(&path, &config, Queue::new(&config, 1, WhenFull::Lose));
    let mut sink = writer.sink();
    let records = records();
    give(&mut sink, &records, PACKET_ROWS + 5);
    sink.tick(1);
    assert!(!sink.is_done());
    sink.tick(1_000_000_000);
    give(&mut sink, &records, 1);
    assert_eq!(sink.lost_frames(), 0);
    sink.close();
    let output = writer.into_output().unwrap();
    assert_eq!(output.rows(), PACKET_ROWS + 6);
    output.finish(&BTreeMap::new()).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count() as u64, PACKET_ROWS + 6);
}

/// Without it, rows of a quiet link waited for the end of the run, or for 256 KiB of others.
#[test]
fn the_reader_of_a_pipe_has_the_rows_of_a_quiet_link_meanwhile() {
    let (reader, to) = pipe().unwrap();
    let path = format!("/proc/self/fd/{}", to.as_raw_fd());
    let config = config(Level::Packet);
    let writer = start(Path::new(&path), &config, Queue::new(&config, 1, WhenFull::Lose));
    let mut sink = writer.sink();
    give(&mut sink, &records(), 3);
    sink.tick(1);
    sink.tick(1_000_000_000);
    let lines: Vec<_> = BufReader::new(&reader).lines().take(3).map(Result::unwrap).collect();
    assert_eq!(lines.len(), 3);
    sink.close();
    assert_eq!(writer.into_output().unwrap().rows(), 3);
}

#[test]
fn the_sinks_of_several_workers_lose_and_double_no_row() {
    let folder = Folder::new("shared");
    let path = folder.path("rows.jsonl");
    let config = config(Level::Packet);
    let writer = start(&path, &config, Queue::new(&config, 3, WhenFull::Lose));
    let records = records();
    // More than a buffer each, and not the same number.
    let rows = [9000, 100, 17_000];
    let all: u64 = rows.iter().sum();
    thread::scope(|scope| {
        for rows in rows {
            let (writer, records) = (&writer, &records);
            scope.spawn(move || {
                let mut sink = writer.sink();
                give(&mut sink, records, rows);
                assert_eq!(sink.lost_frames(), 0);
                sink.close();
            });
        }
    });
    let output = writer.into_output().unwrap();
    assert_eq!(output.rows(), all);
    output.finish(&BTreeMap::new()).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count() as u64, all);
}

#[test]
fn a_writer_that_is_slow_loses_the_rows_beyond_its_queue_and_counts_each() {
    let (writer, reader) = stuck(&config(Level::Packet));
    let mut sink = writer.sink();
    give(&mut sink, &records(), 5 * PACKET_ROWS + 7);
    assert_eq!(sink.lost_frames(), 3 * PACKET_ROWS + 7);
    assert!(!sink.has_room() && !sink.is_done(), "losing rows ends no run");
    sink.close();
    assert_eq!(release(writer, reader), 2 * PACKET_ROWS);
}

#[test]
fn a_flow_that_is_lost_counts_all_its_frames() {
    let (writer, reader) = stuck(&config(Level::Flow));
    let mut sink = writer.sink();
    let record = records()[0];
    let (key, _) = FlowKey::of(&record);
    let mut flow = Flow::default();
    flow.side[0].pkts = 3;
    let ended = EndedFlow { key: &key, flow: &flow, ppi: &[] };
    (0..2 * FLOW_ROWS + 10).for_each(|_| sink.flow(&ended));
    assert_eq!(sink.lost_frames(), 30);
    sink.close();
    assert_eq!(release(writer, reader), 2 * FLOW_ROWS);
}

#[test]
fn a_sink_that_may_wait_loses_nothing() {
    let (writer, reader) = stuck(&config(Level::Packet));
    let mut sink = writer.sink();
    let records = records();
    give(&mut sink, &records, 2 * PACKET_ROWS + 1);
    assert_eq!(sink.lost_frames(), 1);
    sink.take_time();
    let rest = thread::spawn(move || {
        give(&mut sink, &records, 3 * PACKET_ROWS + 1);
        assert_eq!(sink.lost_frames(), 1, "only what was before");
        sink.close();
        writer
    });
    let mut text = String::new();
    thread::scope(|scope| {
        let (mut reader, text) = (reader, &mut text);
        scope.spawn(move || reader.read_to_string(text).unwrap());
        let output = rest.join().unwrap().into_output().unwrap();
        output.finish(&BTreeMap::new()).unwrap();
    });
    assert_eq!(text.lines().count() as u64, 5 * PACKET_ROWS + 1);
}

/// What the app counts of a capture that it sees so many times, with a writer that is stuck; the frames
/// that it saw, and the rows that were written.
fn extracted(config: &Config, passes: usize) -> (Counters, u64, u64) {
    let capture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/captures/tiny.pcap");
    let capture = capture.to_str().expect("a name of the tree");
    let spec = format!("pcap:loop={passes}").parse().unwrap();
    let mut lane = PcapLane::open(&spec, &[capture]).unwrap();
    let (writer, reader) = stuck(config);
    let mut app = Features::new(config, Vec::new(), writer.sink());
    let mut seen = 0;
    while !lane.exhausted() {
        let burst = lane.receive(PortId(0)).unwrap();
        seen += burst.len() as u64;
        app.on_burst(PortId(0), burst, Turn::default());
        lane.settle(PortId(0)).unwrap();
        app.on_tick(Turn::default());
    }
    let counters = app.counters().clone();
    app.into_sink().close();
    (counters, seen, release(writer, reader))
}

#[test]
fn the_frames_of_lost_rows_are_dropped_by_the_app_and_not_delivered() {
    let (counters, seen, rows) = extracted(&config(Level::Packet), 400);
    assert!(seen > 3 * PACKET_ROWS, "{seen} frames do not fill the queue");
    assert_eq!((counters.rx_frames, rows), (2 * PACKET_ROWS, 2 * PACKET_ROWS));
    assert_eq!(counters.drops(DropReason::SinkFull), seen - rows);
}

#[test]
fn an_output_that_fails_ends_every_sink_and_keeps_the_reason() {
    let config = config(Level::Packet);
    let writer = start(Path::new("/dev/full"), &config, Queue::new(&config, 2, WhenFull::Wait));
    let (mut busy, idle) = (writer.sink(), writer.sink());
    let records = records();
    // Until the writer has seen it, which is not at once.
    while !busy.is_done() {
        give(&mut busy, &records, PACKET_ROWS);
    }
    assert!(idle.is_done());
    busy.close();
    idle.close();
    let error = writer.into_output().err().expect("the device is full").to_string();
    assert!(error.contains("/dev/full: cannot write"), "{error}");
}

#[test]
fn a_writer_that_is_given_up_leaves_no_partial_file() {
    let folder = Folder::new("given-up");
    let config = config(Level::Packet);
    let writer = start(&folder.path("rows"), &config, Queue::new(&config, 1, WhenFull::Lose));
    let mut sink = writer.sink();
    give(&mut sink, &records(), 2 * PACKET_ROWS);
    drop(sink);
    drop(writer);
    assert_eq!(folder.names(), [""; 0]);
}
