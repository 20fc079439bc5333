//! Rows to files and back; what is left behind when that fails.

use crate::support::Folder;
use arrow_array::{Array, RecordBatch, cast::AsArray, types::TimestampNanosecondType};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_schema::{DataType, Schema};
use laneway_features::{
    Config, FlowRow, Format, Level, Output, OutputError, PacketRow, Profile, Provenance, Stamp,
    Tables, parse,
};
use laneway_flow::{FlowLimits, FlowTable, Record, TableOptions};
use laneway_testkit::skip;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::{
    collections::BTreeMap,
    env, fs,
    fs::File,
    io::{Seek, SeekFrom, Write},
    net::Ipv6Addr,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
};

const FORMATS: [Format; 5] =
    [Format::Parquet, Format::Arrow, Format::ArrowStream, Format::Csv, Format::JsonLines];

fn records() -> Vec<Record> {
    let kinds = crate::support::every_kind();
    let stamped = kinds.iter().cycle().take(500).enumerate().map(|(i, bytes)| {
        let stamp = Stamp {
            ts_ns: 1_700_000_000_000_000_000 + 1_000_003 * i as u64,
            seq_no: i as u64,
            wire_len: bytes.len() as u32 + i as u32 % 3,
            ..Stamp::default()
        };
        parse(bytes, stamp)
    });
    stamped.collect()
}

/// A batch of packet rows and one of flow rows, with many nulls in both.
fn batches() -> [(Level, RecordBatch); 2] {
    let records = records();
    let packet_rows: Vec<PacketRow> =
        records.iter().map(|r| PacketRow { source: 1, record: *r }).collect();
    let options = TableOptions { hash_seed: 1, ppi_packets: 4 };
    let mut table = FlowTable::new(64, FlowLimits::default(), options).unwrap();
    let mut flow_rows = Vec::new();
    let mut sink = |e: laneway_flow::EndedFlow<'_>| {
        flow_rows.push(FlowRow { source: 0, key: *e.key, flow: *e.flow, first: e.ppi.to_vec() });
    };
    table.add_batch(&records, &mut sink);
    table.flush(&mut sink);
    let (Tables::Packets(packets), Tables::Flows(flows)) =
        (tables(Level::Packet), tables(Level::Flow))
    else {
        unreachable!()
    };
    [(Level::Packet, packets.batch(&packet_rows)), (Level::Flow, flows.batch(&flow_rows))]
}

fn tables(level: Level) -> Tables {
    Tables::new(&Config { level, first_packets: 4, ..Config::default() }, Profile::Full, 0)
}

fn provenance() -> Provenance {
    let mut provenance = Provenance::new(Level::Packet, "full");
    provenance.fact("sources", "a.pcap");
    provenance
}

fn open(path: &Path, format: Format, schema: &Schema) -> Output {
    Output::open(path, format, schema, &provenance()).unwrap_or_else(|e| panic!("{e}"))
}

fn losses() -> BTreeMap<String, u64> {
    BTreeMap::from([("record_ring_full".to_owned(), 17), ("rx_queue_full".to_owned(), 4)])
}

/// Writes a batch in three parts and completes the file.
fn write(path: &Path, format: Format, batch: &RecordBatch) {
    let mut output = open(path, format, &batch.schema());
    let cut = batch.num_rows() / 3;
    for part in [(0, cut), (cut, 0), (cut, batch.num_rows() - cut)] {
        output.write(&batch.slice(part.0, part.1)).unwrap();
    }
    assert_eq!(output.rows(), batch.num_rows() as u64);
    assert_eq!(output.finish(&losses()).unwrap(), batch.num_rows() as u64);
}

/// The cells of a batch as the text formats print them; `None` is null.
fn cells(batch: &RecordBatch, row: usize) -> Vec<Option<String>> {
    let options = FormatOptions::default();
    let text = |array: &dyn Array, i: usize| -> Option<String> {
        if array.is_null(i) {
            return None;
        }
        Some(match array.data_type() {
            DataType::FixedSizeBinary(16) => {
                let octets: [u8; 16] = array.as_fixed_size_binary().value(i).try_into().unwrap();
                Ipv6Addr::from(octets).to_canonical().to_string()
            }
            DataType::FixedSizeList(..) => {
                let list = array.as_fixed_size_list().value(i);
                let items = ArrayFormatter::try_new(&list, &options).unwrap();
                let items: Vec<_> = (0..list.len()).map(|i| items.value(i).to_string()).collect();
                items.join(";")
            }
            DataType::Timestamp(..) => {
                let ns = array.as_primitive::<TimestampNanosecondType>().value(i);
                assert_eq!(ns / 1_000_000_000, 1_700_000_000, "the first second of the test");
                let fraction = format!("{:09}", ns % 1_000_000_000);
                let fraction = match fraction.as_str() {
                    "000000000" => String::new(),
                    other if other.ends_with("000000") => format!(".{}", &other[..3]),
                    other if other.ends_with("000") => format!(".{}", &other[..6]),
                    other => format!(".{other}"),
                };
                format!("2023-11-14T22:13:20{fraction}Z")
            }
            _ => ArrayFormatter::try_new(array, &options).unwrap().value(i).to_string(),
        })
    };
    batch.columns().iter().map(|c| text(c.as_ref(), row)).collect()
}

fn metadata(schema: &Schema, key: &str) -> String {
    schema.metadata().get(key).unwrap_or_else(|| panic!("{key}")).clone()
}

fn check_metadata(schema: &Schema, original: &Schema) {
    assert_eq!(metadata(schema, "laneway.lost.record_ring_full"), "17");
    assert_eq!(metadata(schema, "laneway.lost.rx_queue_full"), "4");
    assert_eq!(metadata(schema, "laneway.lost.total"), "21");
    assert_eq!(metadata(schema, "laneway.sources"), "a.pcap");
    assert_eq!(metadata(schema, "laneway.profile"), "full");
    assert_eq!(schema.fields(), original.fields(), "names, types and definitions");
}

#[test]
fn parquet_reads_back_equal_with_losses_in_its_schema() {
    let folder = Folder::new("parquet");
    for (level, batch) in batches() {
        let path = folder.path(&format!("{level:?}.parquet"));
        write(&path, Format::Parquet, &batch);
        let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap()).unwrap();
        check_metadata(builder.schema(), &batch.schema());
        let mut read = builder.with_batch_size(batch.num_rows()).build().unwrap();
        let whole = read.next().unwrap().unwrap();
        assert_eq!(whole.columns(), batch.columns());
        assert!(read.next().is_none());
    }
}

/// That these batches, put together, are `batch`.
fn check_batches(
    parts: impl Iterator<Item = Result<RecordBatch, arrow_schema::ArrowError>>,
    batch: &RecordBatch,
) {
    let mut at = 0;
    for part in parts {
        let part = part.unwrap();
        let original = batch.slice(at, part.num_rows());
        assert_eq!(part.columns(), original.columns());
        at += part.num_rows();
    }
    assert_eq!(at, batch.num_rows());
}

#[test]
fn an_arrow_stream_reads_back_equal_with_losses_in_its_schema() {
    let folder = Folder::new("arrows");
    for (level, batch) in batches() {
        let path = folder.path(&format!("{level:?}.arrows"));
        write(&path, Format::ArrowStream, &batch);
        let reader = StreamReader::try_new(File::open(&path).unwrap(), None).unwrap();
        check_metadata(&reader.schema(), &batch.schema());
        check_batches(reader, &batch);
    }
}

#[test]
fn an_arrow_file_reads_back_equal_with_losses_in_its_schema() {
    let folder = Folder::new("arrow");
    for (level, batch) in batches() {
        let path = folder.path(&format!("{level:?}.arrow"));
        write(&path, Format::Arrow, &batch);
        let reader = FileReader::try_new(File::open(&path).unwrap(), None).unwrap();
        assert_eq!(reader.num_batches(), 3);
        check_metadata(&reader.schema(), &batch.schema());
        check_batches(reader, &batch);
        // A reader that takes it as a stream, from behind the magic, finds the batches too.
        let mut file = File::open(&path).unwrap();
        file.seek(SeekFrom::Start(64)).unwrap();
        check_batches(StreamReader::try_new(file, None).unwrap(), &batch);
    }
}

#[test]
fn an_arrow_file_is_one_to_the_readers_that_people_use() {
    let folder = Folder::new("python");
    let [(_, batch), _] = batches();
    let path = folder.path("rows.arrow");
    write(&path, Format::Arrow, &batch);
    let script = "import sys, pyarrow.ipc, pyarrow.feather as f\n\
                  file = pyarrow.ipc.open_file(sys.argv[1])\n\
                  lost = file.schema.metadata[b'laneway.lost.total'].decode()\n\
                  print(file.read_all().num_rows, f.read_table(sys.argv[1]).num_rows, lost)";
    let python = env::var_os("LANEWAY_TEST_PYTHON").unwrap_or_else(|| "python3".into());
    let child = Command::new(python).args(["-c", script]).arg(&path).output();
    match child {
        Ok(child) if child.status.success() => {
            let rows = batch.num_rows();
            assert_eq!(String::from_utf8_lossy(&child.stdout), format!("{rows} {rows} 21\n"));
        }
        Ok(child) => {
            let printed = String::from_utf8_lossy(&child.stderr);
            assert!(printed.contains("No module named"), "{printed}");
            skip("no pyarrow; pip install pyarrow, and name its Python in LANEWAY_TEST_PYTHON");
        }
        Err(error) => skip(format!("no program `python3`: {error}")),
    }
}

#[test]
fn rows_that_are_not_all_there_say_so_where_the_format_has_a_place_for_it() {
    let folder = Folder::new("incomplete");
    let schema = tables(Level::Packet).schema().clone();
    for (why, complete) in [(None, "true"), (Some("interrupted"), "false")] {
        for format in FORMATS.into_iter().filter(|format| format.has_metadata()) {
            let path = folder.path("rows");
            let mut output = open(&path, format, &schema);
            if let Some(why) = why {
                output.mark_incomplete(why);
            }
            output.finish(&BTreeMap::new()).unwrap();
            let file = File::open(&path).unwrap();
            let schema = match format {
                Format::Parquet => {
                    ParquetRecordBatchReaderBuilder::try_new(file).unwrap().schema().clone()
                }
                Format::Arrow => FileReader::try_new(file, None).unwrap().schema(),
                _ => StreamReader::try_new(file, None).unwrap().schema(),
            };
            assert_eq!(metadata(&schema, "laneway.complete"), complete, "{format:?}");
            let reason = schema.metadata().get("laneway.incomplete").map(String::as_str);
            assert_eq!(reason, why, "{format:?}");
        }
    }
}

#[test]
fn two_runs_to_one_name_each_write_their_own_file() {
    let folder = Folder::new("two");
    let path = folder.path("rows.jsonl");
    let [(_, batch), _] = batches();
    let mut first = open(&path, Format::JsonLines, &batch.schema());
    let mut second = open(&path, Format::JsonLines, &batch.schema());
    assert_eq!(folder.names(), ["rows.jsonl.1.partial", "rows.jsonl.partial"]);
    first.write(&batch).unwrap();
    second.write(&batch.slice(0, 1)).unwrap();
    assert_eq!(first.finish(&losses()).unwrap(), batch.num_rows() as u64);
    let lines = || fs::read_to_string(&path).unwrap().lines().count();
    assert_eq!(lines(), batch.num_rows(), "the rows of the run that ended");
    second.finish(&losses()).unwrap();
    assert_eq!((lines(), folder.names()), (1, vec!["rows.jsonl".to_owned()]));
}

#[test]
fn a_stream_that_is_written_again_is_written_over_nothing() {
    let folder = Folder::new("again");
    let [(_, batch), _] = batches();
    let others = ["rows.arrows.partial.again", "rows.arrows.partial.partial"];
    let led_to = folder.path("led to");
    fs::write(&led_to, "theirs").unwrap();
    others.iter().for_each(|name| symlink(&led_to, folder.path(name)).unwrap());
    let path = folder.path("rows.arrows");
    write(&path, Format::ArrowStream, &batch);
    let reader = StreamReader::try_new(File::open(&path).unwrap(), None).unwrap();
    check_metadata(&reader.schema(), &batch.schema());
    assert_eq!(fs::read_to_string(&led_to).unwrap(), "theirs");
    assert_eq!(folder.names(), ["led to", "rows.arrows", others[0], others[1]]);
}

#[test]
fn a_name_that_is_a_link_stays_one() {
    let folder = Folder::new("link");
    let [(_, batch), _] = batches();
    let rows = folder.path("rows.csv");
    fs::create_dir(folder.path("there")).unwrap();
    fs::write(folder.path("there/old"), "yesterday").unwrap();
    // One leads to a file that is there, one to a link to a file that is not.
    for (target, file) in [("there/old", "there/old"), ("there/link", "there/new")] {
        let _ = fs::remove_file(&rows);
        symlink(target, &rows).unwrap();
        let _ = symlink("new", folder.path("there/link"));
        write(&rows, Format::Csv, &batch);
        assert_eq!(fs::read_link(&rows).unwrap(), Path::new(target));
        let text = fs::read_to_string(folder.path(file)).unwrap();
        assert_eq!(text.lines().count(), 1 + batch.num_rows(), "{file}");
    }
    assert_eq!(folder.names(), ["rows.csv", "there"]);
    assert_eq!(fs::read_dir(folder.path("there")).unwrap().count(), 3, "old, link, new");
}

#[test]
fn csv_has_a_header_and_every_cell() {
    let folder = Folder::new("csv");
    for (level, batch) in batches() {
        let path = folder.path(&format!("{level:?}.csv"));
        write(&path, Format::Csv, &batch);
        let text = fs::read_to_string(&path).unwrap();
        let mut lines = text.lines();
        let schema = batch.schema();
        let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        assert_eq!(lines.next().unwrap().split(',').collect::<Vec<_>>(), names);
        for row in 0..batch.num_rows() {
            let expected: Vec<String> =
                cells(&batch, row).into_iter().map(Option::unwrap_or_default).collect();
            assert_eq!(lines.next().unwrap().split(',').collect::<Vec<_>>(), expected, "row {row}");
        }
        assert_eq!(lines.next(), None);
    }
}

#[test]
fn json_lines_have_every_field_of_every_row_nulls_included() {
    let folder = Folder::new("jsonl");
    for (level, batch) in batches() {
        let path = folder.path(&format!("{level:?}.jsonl"));
        write(&path, Format::JsonLines, &batch);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), batch.num_rows());
        for (row, line) in text.lines().enumerate() {
            let object: serde_json::Map<String, serde_json::Value> =
                serde_json::from_str(line).unwrap();
            assert_eq!(object.len(), batch.num_columns());
            for (field, cell) in batch.schema().fields().iter().zip(cells(&batch, row)) {
                let value = match &object[field.name()] {
                    serde_json::Value::Null => None,
                    serde_json::Value::String(text) => Some(text.clone()),
                    // A JSON number need not be spelt as Arrow does, and serde_json rounds.
                    serde_json::Value::Number(_) if field.data_type() == &DataType::Float64 => {
                        let (_, text) = line.split_once(&format!("\"{}\":", field.name())).unwrap();
                        let text = text.split([',', '}']).next().unwrap();
                        let (a, b) = (text.parse::<f64>(), cell.as_ref().unwrap().parse::<f64>());
                        assert_eq!(a, b, "{} of row {row}", field.name());
                        continue;
                    }
                    other => Some(other.to_string()),
                };
                assert_eq!(value, cell, "{} of row {row}", field.name());
            }
        }
    }
}

#[test]
fn a_file_without_rows_still_says_what_its_columns_are() {
    let folder = Folder::new("empty");
    let schema = tables(Level::Packet).schema().clone();
    for format in FORMATS {
        open(&folder.path("rows"), format, &schema).finish(&BTreeMap::new()).unwrap();
        let file = File::open(folder.path("rows")).unwrap();
        match format {
            Format::Parquet => {
                let builder = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
                assert_eq!(builder.schema().fields(), schema.fields());
                assert_eq!(metadata(builder.schema(), "laneway.lost.total"), "0");
            }
            Format::Arrow => {
                let mut reader = FileReader::try_new(file, None).unwrap();
                assert_eq!(reader.schema().fields(), schema.fields());
                assert_eq!(metadata(&reader.schema(), "laneway.lost.total"), "0");
                assert!(reader.next().is_none());
            }
            Format::ArrowStream => {
                let mut reader = StreamReader::try_new(file, None).unwrap();
                assert_eq!(reader.schema().fields(), schema.fields());
                assert_eq!(metadata(&reader.schema(), "laneway.lost.total"), "0");
                assert!(reader.next().is_none());
            }
            Format::Csv => {
                let text = fs::read_to_string(folder.path("rows")).unwrap();
                assert_eq!(text.trim_end().split(',').count(), schema.fields().len());
                assert_eq!(text.lines().count(), 1);
            }
            Format::JsonLines => assert_eq!(file.metadata().unwrap().len(), 0),
        }
    }
}

#[test]
fn a_file_has_its_name_only_when_it_is_complete() {
    let folder = Folder::new("partial");
    let [(_, batch), _] = batches();
    for format in FORMATS {
        let path = folder.path("rows");
        fs::write(&path, "the file of yesterday").unwrap();
        let mut output = open(&path, format, &batch.schema());
        output.write(&batch).unwrap();
        assert_eq!(folder.names(), ["rows", "rows.partial"], "{format:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "the file of yesterday");
        output.finish(&losses()).unwrap();
        assert_eq!(folder.names(), ["rows"], "{format:?}");
        assert_ne!(fs::read(&path).unwrap(), b"the file of yesterday");
    }
}

#[test]
fn what_is_not_completed_is_removed_and_the_old_file_stays() {
    let folder = Folder::new("dropped");
    let [(_, batch), _] = batches();
    for format in FORMATS {
        let path = folder.path("rows");
        fs::write(&path, "the file of yesterday").unwrap();
        let mut output = open(&path, format, &batch.schema());
        output.write(&batch).unwrap();
        drop(output);
        assert_eq!(folder.names(), ["rows"], "{format:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "the file of yesterday");
    }
}

/// The error of opening `path`; nothing may be created.
fn refusal(path: &Path) -> String {
    let schema = tables(Level::Packet).schema().clone();
    match Output::open(path, Format::Csv, &schema, &provenance()) {
        Ok(_) => panic!("{} opened", path.display()),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_place_that_cannot_be_written_is_refused_before_any_work() {
    let folder = Folder::new("refused");
    fs::write(folder.path("file"), "").unwrap();
    fs::create_dir(folder.path("folder")).unwrap();
    let missing = refusal(&folder.path("nowhere/rows.csv"));
    assert!(
        missing.contains("nowhere/rows.csv") && missing.contains("create the folder"),
        "{missing}"
    );
    let in_file = refusal(&folder.path("file/rows.csv"));
    assert!(in_file.contains("create the folder"), "{in_file}");
    let directory = refusal(&folder.path("folder"));
    assert!(directory.contains("name a file in it"), "{directory}");
    assert!(refusal(Path::new("/")).contains("names no file"));
    // Not even root may create files here.
    let read_only = refusal(Path::new("/proc/rows.csv"));
    assert!(read_only.contains("/proc/rows.csv: cannot create"), "{read_only}");
    assert_eq!(folder.names(), ["file", "folder"]);
}

#[test]
fn a_full_disk_is_named_whatever_the_format() {
    let [(_, batch), (_, flows)] = batches();
    for format in FORMATS {
        for batch in [&batch, &flows] {
            // The device stays a device: it is written to, not replaced.
            let mut output = open(Path::new("/dev/full"), format, &batch.schema());
            let mut outcome = Ok(());
            for _ in 0..50 {
                outcome = outcome.and_then(|()| output.write(batch));
            }
            let outcome = outcome.and_then(|()| output.finish(&losses()).map(drop));
            let error = outcome.expect_err("the device is always full");
            assert!(
                matches!(&error, OutputError::Io { doing: "write", .. }),
                "{format:?}: {error}"
            );
            assert!(error.to_string().contains("free some space"), "{format:?}: {error}");
        }
    }
    use std::os::unix::fs::FileTypeExt;
    assert!(fs::metadata("/dev/full").unwrap().file_type().is_char_device());
    assert!(!Path::new("/dev/full.partial").exists());
}

/// Set for the child that runs inside a mount namespace with a small file system.
const SMALL_DISK: &str = "LANEWAY_TEST_SMALL_DISK";

#[test]
fn a_disk_that_fills_up_leaves_nothing_behind() {
    if env::var_os(SMALL_DISK).is_some() {
        return fill_the_small_disk();
    }
    if !rustix::process::geteuid().is_root() {
        return skip("a small file system of its own needs root");
    }
    let folder = Folder::new("small-disk");
    // The mount is in a namespace of its own and ends with it.
    let script = "mount -t tmpfs -o size=256k none \"$LANEWAY_TEST_SMALL_DISK\" && exec \"$@\"";
    let child = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(env::current_exe().unwrap())
        .args(["--exact", "output::a_disk_that_fills_up_leaves_nothing_behind", "--nocapture"])
        .env(SMALL_DISK, folder.path(""))
        .stdin(Stdio::null())
        .output();
    match child {
        Err(error) => skip(format!("no program `unshare`: {error}")),
        Ok(child) => {
            let printed =
                String::from_utf8_lossy(&child.stdout) + String::from_utf8_lossy(&child.stderr);
            if printed.contains("mount:") {
                return skip(format!("no file system may be mounted: {printed}"));
            }
            assert!(child.status.success() && printed.contains("1 passed"), "{printed}");
        }
    }
}

fn fill_the_small_disk() {
    let disk = Path::new(&env::var_os(SMALL_DISK).unwrap()).to_owned();
    let [(_, batch), _] = batches();
    for format in FORMATS {
        let mut output = open(&disk.join("rows"), format, &batch.schema());
        let mut outcome = Ok(());
        for i in 0..4000u32 {
            // Other rows each time, so that compression does not make them disappear.
            let rows: Vec<PacketRow> = records()
                .iter()
                .map(|r| {
                    let noise = (i * 997 + r.seq_no as u32).wrapping_mul(2_654_435_761);
                    let record = Record { tcp_seq: noise, frame_len: noise >> 3, ..*r };
                    PacketRow { source: 0, record }
                })
                .collect();
            let Tables::Packets(table) = tables(Level::Packet) else { unreachable!() };
            outcome = output.write(&table.batch(&rows));
            if outcome.is_err() {
                break;
            }
        }
        let outcome = outcome.and_then(|()| output.finish(&losses()).map(drop));
        let error = outcome.expect_err("256 KiB do not hold this").to_string();
        assert!(error.contains("free some space"), "{format:?}: {error}");
        let left: Vec<_> = fs::read_dir(&disk).unwrap().collect();
        assert!(left.is_empty(), "{format:?} left {left:?}");
    }
}

#[test]
fn a_format_is_recognised_by_its_name_or_suffix() {
    for (name, format, suffixes) in Format::NAMES {
        assert_eq!(Format::from_name(name), Some(format));
        for suffix in suffixes {
            let upper = suffix.to_ascii_uppercase();
            assert_eq!(Format::from_suffix(Path::new(&format!("a.b.{suffix}"))), Some(format));
            assert_eq!(Format::from_suffix(Path::new(&format!("a.{upper}"))), Some(format));
        }
    }
    assert_eq!(Format::from_name("xlsx"), None);
    for path in ["rows", "rows.txt", "parquet", ".csv"] {
        assert_eq!(Format::from_suffix(Path::new(path)), None, "{path}");
    }
}

/// Set for the child whose standard output is looked at.
const TO_STDOUT: &str = "LANEWAY_TEST_STDOUT";

#[test]
fn rows_go_to_standard_output_as_they_would_to_a_file() {
    let [(_, batch), _] = batches();
    if env::var_os(TO_STDOUT).is_some() {
        // Past the test harness's capture, as the rows go.
        std::io::stdout().write_all(b"\nrows begin\n").unwrap();
        let mut output = open(Path::new("-"), Format::Csv, &batch.schema());
        output.write(&batch).unwrap();
        output.finish(&losses()).unwrap();
        return;
    }
    let child = Command::new(env::current_exe().unwrap())
        .args([
            "--exact",
            "output::rows_go_to_standard_output_as_they_would_to_a_file",
            "--nocapture",
        ])
        .env(TO_STDOUT, "1")
        .output()
        .unwrap();
    let text = String::from_utf8(child.stdout).unwrap();
    let folder = Folder::new("stdout");
    write(&folder.path("rows.csv"), Format::Csv, &batch);
    let file = fs::read_to_string(folder.path("rows.csv")).unwrap();
    assert!(text.contains(&format!("rows begin\n{file}")), "{text}");
    assert!(!Path::new("-").exists() && !Path::new("-.partial").exists());
}
