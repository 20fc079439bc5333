//! The reader on real files, pipes and compressed copies: the same records whatever the way in, errors that name the
//! place, chunks that travel, and nothing left behind.

use flate2::Compression;
use flate2::write::GzEncoder;
use laneway_capture::{
    CHUNK_BYTES_MAX, Capture, FormatError, Layout, LinkType, PartialFile, Progress, ReadError,
    Reader, Record, WriteError, Writer,
};
use std::fs;
use std::io::{Cursor, Read, Write};
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

/// A folder of its own for each test, removed with all content when the test ends, however it ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("laneway-capture-{}-{name}", std::process::id()));
        fs::create_dir(&path).expect("the temporary directory is writable");
        Self(path)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).expect("the temporary directory is writable");
        path
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("the folder exists");
        let mut names: Vec<_> = entries
            .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// `frames` frames of different sizes in one capture.
fn capture(layout: Layout, frames: u32) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), layout, &[LinkType::Ethernet]).expect("valid");
    write_frames(&mut writer, frames);
    writer.finish().expect("memory does not fail")
}

fn write_frames<W: Write>(writer: &mut Writer<W>, frames: u32) {
    for number in 0..frames {
        let data = vec![number as u8; (number as usize * 37) % 1_500];
        let wire_len = data.len() as u32 + number % 3;
        let ts_ns = 1_700_000_000_000_000_000 + u64::from(number);
        let link = LinkType::Ethernet;
        writer
            .write(&Record { ts_ns, interface: 0, link, wire_len, data: &data })
            .expect("a valid record");
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory does not fail");
    encoder.finish().expect("memory does not fail")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).expect("memory does not fail")
}

type Owned = (u64, u32, Vec<u8>);

fn owned(record: Record<'_>) -> Owned {
    (record.ts_ns, record.wire_len, record.data.to_vec())
}

fn drain(mut reader: Reader) -> (Vec<Owned>, Option<ReadError>) {
    let mut records = Vec::new();
    loop {
        match reader.next_record() {
            Ok(Some(record)) => records.push(owned(record)),
            Ok(None) => return (records, None),
            Err(error) => {
                assert!(matches!(reader.next_record(), Ok(None)), "an error comes once");
                return (records, Some(error));
            }
        }
    }
}

fn drain_chunks(mut reader: Reader, records_max: usize) -> (Vec<Owned>, Option<ReadError>) {
    let mut records = Vec::new();
    loop {
        match reader.next_chunk(records_max) {
            Ok(Some(chunk)) => {
                assert_eq!(chunk.first_record(), records.len() as u64);
                assert!((1..=records_max).contains(&chunk.len()));
                records.extend(chunk.records().map(owned));
            }
            Ok(None) => return (records, None),
            Err(error) => return (records, Some(error)),
        }
    }
}

#[test]
fn plain_compressed_and_buffered_copies_read_equal() {
    let folder = Folder::new("copies");
    for layout in [Layout::Pcap, Layout::Pcapng] {
        // Larger than the reader's buffer, so that it has to move and refill.
        let plain = capture(layout, 1_000);
        let half = plain.len() / 2;
        let two_members = [gzip(&plain[..half]), gzip(&plain[half..])].concat();
        let two_frames = [zstd(&plain[..half]), zstd(&plain[half..])].concat();
        // The names lie on purpose: only the first bytes count.
        let copies = [
            folder.file("plain.gz", &plain),
            folder.file("gzip.pcap", &gzip(&plain)),
            folder.file("zstd", &zstd(&plain)),
            folder.file("two.members", &two_members),
            folder.file("two.frames", &two_frames),
        ];
        let (expected, error) = drain(Reader::open(&copies[0]).expect("opens"));
        assert_eq!(expected.len(), 1_000);
        assert!(error.is_none());
        for path in &copies {
            let (records, error) = drain(Reader::open(path).expect("opens"));
            assert!(error.is_none(), "{error:?}");
            assert!(records == expected, "{} in {layout:?}", path.display());
            for records_max in [7, 10_000] {
                let (records, error) =
                    drain_chunks(Reader::open(path).expect("opens"), records_max);
                assert!(error.is_none(), "{error:?}");
                assert!(records == expected, "{} in chunks of {layout:?}", path.display());
            }
        }
    }
}

#[test]
fn a_pipe_that_trickles_reads_like_a_file() {
    struct Trickle(Cursor<Vec<u8>>);
    impl Read for Trickle {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let some = buffer.len().min(3);
            self.0.read(&mut buffer[..some])
        }
    }
    for layout in [Layout::Pcap, Layout::Pcapng] {
        let plain = capture(layout, 50);
        let expected = drain(Reader::from_read(Cursor::new(plain.clone())).expect("opens")).0;
        for bytes in [plain.clone(), gzip(&plain), zstd(&plain)] {
            let reader = Reader::from_read(Trickle(Cursor::new(bytes))).expect("opens");
            let (records, error) = drain(reader);
            assert!(error.is_none(), "{error:?}");
            assert!(records == expected);
        }
    }
}

#[test]
fn a_cut_file_yields_its_complete_records_then_the_place() {
    let folder = Folder::new("cut");
    for layout in [Layout::Pcap, Layout::Pcapng] {
        let mut plain = capture(layout, 20);
        plain.pop();
        let path = folder.file("cut", &plain);
        let (records, error) = drain(Reader::open(&path).expect("opens"));
        assert_eq!(records.len(), 19);
        match error {
            Some(ReadError::Truncated { offset, needed, have, records: 19, .. }) => {
                assert_eq!(offset + have, plain.len() as u64);
                assert_eq!(needed, have + 1);
            }
            other => panic!("{other:?}"),
        }
        let (chunked, error) = drain_chunks(Reader::open(&path).expect("opens"), 1_000);
        assert!(chunked == records);
        assert_eq!(error.map(|error| error.records()), Some(19));
    }
}

#[test]
fn a_cut_compressed_file_yields_what_could_be_decompressed() {
    let plain = capture(Layout::Pcap, 500);
    for (mut bytes, container) in [(gzip(&plain), "gzip stream"), (zstd(&plain), "zstd stream")] {
        bytes.truncate(bytes.len() - 5);
        let (records, error) = drain(Reader::from_read(Cursor::new(bytes)).expect("opens"));
        let error = error.expect("the end is missing");
        assert_eq!(error.records(), records.len() as u64);
        assert!(error.to_string().contains(container), "{error}");
    }
}

#[test]
fn strangers_are_refused_with_their_first_bytes() {
    let folder = Folder::new("strangers");
    let inside = gzip(&gzip(&capture(Layout::Pcap, 1)));
    for (bytes, says) in
        [(&b""[..], "empty"), (b"a", "61"), (b"#!/bin/sh\necho", "23 21 2f 62"), (&inside, "1f 8b")]
    {
        let path = folder.file("stranger", bytes);
        let (records, error) = drain(Reader::open(&path).expect("opens"));
        assert!(records.is_empty());
        match error {
            Some(ReadError::NotUnderstood(reason @ FormatError::NotACapture { .. })) => {
                assert!(reason.to_string().contains(says), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
    for path in [folder.0.join("absent"), folder.0.clone()] {
        match Reader::open(&path) {
            Err(error @ ReadError::Open { .. }) => {
                assert!(error.to_string().contains(path.to_str().expect("ASCII")), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_claimed_length_alone_is_cut_short_and_not_allocated() {
    let mut bytes = capture(Layout::Pcapng, 1);
    bytes.extend(0x0bad_cafeu32.to_le_bytes());
    bytes.extend((16u32 * 1024 * 1024).to_le_bytes());
    let (records, error) = drain(Reader::from_read(Cursor::new(bytes)).expect("opens"));
    assert_eq!(records.len(), 1);
    assert!(
        matches!(error, Some(ReadError::Truncated { needed: 16_777_216, have: 8, .. })),
        "{error:?}"
    );
}

#[test]
fn a_block_larger_than_the_buffer_is_read_through_a_pipe() {
    let mut bytes = capture(Layout::Pcapng, 3);
    let total = (1024u32 * 1024).to_le_bytes();
    bytes.extend(0x0bad_cafeu32.to_le_bytes());
    bytes.extend(total);
    bytes.resize(bytes.len() + 1024 * 1024 - 12, 7);
    bytes.extend(total);
    // A second section behind it, with records of its own.
    bytes.extend(capture(Layout::Pcapng, 2));
    let (records, error) = drain(Reader::from_read(Cursor::new(bytes)).expect("opens"));
    assert!(error.is_none(), "{error:?}");
    assert_eq!(records.len(), 5);
}

#[test]
fn readers_and_chunks_can_change_threads() {
    fn sendable<T: Send>() {}
    sendable::<Reader>();
    sendable::<laneway_capture::Chunk>();
}

#[test]
fn chunks_outlive_their_reader_on_another_thread() {
    let folder = Folder::new("threads");
    let plain = capture(Layout::Pcap, 400);
    for path in [folder.file("plain", &plain), folder.file("packed", &zstd(&plain))] {
        let expected = drain(Reader::open(&path).expect("opens")).0;
        let (sender, receiver) = mpsc::channel();
        let worker = thread::spawn(move || {
            let chunks: Vec<laneway_capture::Chunk> = receiver.iter().collect();
            chunks.iter().flat_map(|chunk| chunk.records().map(owned)).collect::<Vec<_>>()
        });
        let mut reader = Reader::open(&path).expect("opens");
        while let Some(chunk) = reader.next_chunk(64).expect("a whole capture") {
            sender.send(chunk).expect("the worker collects until the channel closes");
        }
        drop((reader, sender));
        assert!(worker.join().expect("the worker does not panic") == expected);
    }
}

#[test]
fn a_file_that_is_shortened_while_it_is_read_ends_where_it_ends() {
    let folder = Folder::new("shortened");
    let path = folder.file("plain", &capture(Layout::Pcap, 40_000));
    let mut reader = Reader::open(&path).expect("opens");
    let first = reader.next_chunk(10).expect("a whole capture").expect("records");
    // As memory of this process it would count as a whole, and end the process where it ends.
    let maps = fs::read_to_string("/proc/self/maps").expect("Linux");
    assert!(!maps.contains(path.to_str().expect("ASCII")), "the file is mapped");
    let bytes = fs::metadata(&path).expect("there").len();
    let file = fs::File::options().write(true).open(&path).expect("there");
    file.set_len(bytes / 2 + 1).expect("it can be shortened");
    let (records, error) = drain(reader);
    assert!(matches!(error, Some(ReadError::Truncated { .. })), "{error:?}");
    assert!(first.len() + records.len() < 40_000);
}

#[test]
fn a_chunk_of_copied_records_ends_at_its_byte_limit() {
    let mut writer =
        Writer::new(Vec::new(), Layout::Pcap, &[LinkType::Raw]).expect("one interface");
    let data = vec![0; 262_144];
    let record =
        Record { ts_ns: 0, interface: 0, link: LinkType::Raw, wire_len: 262_144, data: &data };
    for _ in 0..20 {
        writer.write(&record).expect("the longest record allowed");
    }
    let bytes = writer.finish().expect("memory does not fail");
    let mut reader = Reader::from_read(Cursor::new(bytes)).expect("opens");
    let chunk = reader.next_chunk(1_000).expect("valid").expect("not at the end");
    assert_eq!(chunk.len(), CHUNK_BYTES_MAX / 262_144);
}

#[test]
fn progress_ends_at_the_file_length() {
    let folder = Folder::new("progress");
    let plain = capture(Layout::Pcapng, 100);
    for bytes in [plain.clone(), gzip(&plain), zstd(&plain)] {
        let path = folder.file("capture", &bytes);
        let mut reader = Reader::open(&path).expect("opens");
        let total = bytes.len() as u64;
        assert_eq!(reader.progress().bytes_total, Some(total));
        while reader.next_record().expect("a whole capture").is_some() {
            assert!(reader.progress().bytes_done <= total);
        }
        assert_eq!(reader.progress(), Progress { bytes_done: total, bytes_total: Some(total) });
    }
}

#[test]
fn a_file_gets_its_name_only_when_it_is_whole() {
    let folder = Folder::new("partial");
    let path = folder.0.join("out.pcapng");
    let links = [LinkType::Ethernet];
    let mut writer = Writer::create(&path, Layout::Pcapng, &links).expect("writable");
    write_frames(&mut writer, 3);
    assert_eq!(folder.names(), ["out.pcapng.partial"]);
    drop(writer);
    assert!(folder.names().is_empty(), "dropped without commit");

    let mut writer = Writer::create(&path, Layout::Pcapng, &links).expect("writable");
    write_frames(&mut writer, 3);
    writer.set_counts(0, 5, 2).expect("interface 0 exists");
    writer.commit().expect("writable");
    assert_eq!(folder.names(), ["out.pcapng"]);

    let mut reader = Reader::open(&path).expect("opens");
    while reader.next_record().expect("a whole capture").is_some() {}
    let interface = reader.interfaces()[0];
    assert_eq!((interface.received, interface.dropped), (Some(5), Some(2)));
    assert_eq!(Capture::load(&path, 1_000_000).expect("small").index().len(), 3);

    match Writer::create(folder.0.join("no/such/folder"), Layout::Pcap, &links) {
        Err(error @ WriteError::File { .. }) => assert!(error.to_string().contains("folder")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_full_disk_is_reported_with_the_name() {
    let folder = Folder::new("full");
    let path = folder.0.join("out.pcap");
    // A link to a device stays one: /dev/full refuses every byte.
    if symlink("/dev/full", &path).is_err() || !Path::new("/dev/full").exists() {
        eprintln!("skipped: no /dev/full here");
        return;
    }
    let mut writer =
        Writer::create(&path, Layout::Pcap, &[LinkType::Ethernet]).expect("opening succeeds");
    write_frames(&mut writer, 2);
    let error = writer.commit().expect_err("the device is full");
    assert!(error.to_string().contains("out.pcap"), "{error}");
    assert_eq!(folder.names(), ["out.pcap"], "nothing but the link");
}

fn commit(path: &Path, text: &str) {
    let mut file = PartialFile::create(path).expect("writable");
    file.write_all(text.as_bytes()).expect("writable");
    file.commit().expect("writable");
}

#[test]
fn what_is_there_is_not_written_into() {
    let folder = Folder::new("beside");
    let (path, left) = (folder.0.join("out"), folder.0.join("out.partial"));
    fs::write(&left, "of another run").expect("writable");
    let two = [0, 1].map(|_| PartialFile::create(&path).expect("writable"));
    assert_ne!(two[0].partial_path(), two[1].partial_path());
    drop(two);
    commit(&path, "mine");
    assert_eq!(fs::read_to_string(&left).expect("readable"), "of another run");
    assert_eq!(fs::read_to_string(&path).expect("readable"), "mine");
    assert_eq!(folder.names(), ["out", "out.partial"]);
}

#[test]
fn links_and_devices_stay_what_they_are() {
    let folder = Folder::new("links");
    let (target, link) = (folder.0.join("target"), folder.0.join("link"));
    fs::write(&target, "old").expect("writable");
    symlink("target", &link).expect("a link");
    commit(&link, "new");
    assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
    assert_eq!(fs::read_to_string(&target).expect("readable"), "new");

    let null = folder.0.join("null");
    symlink("/dev/null", &null).expect("a link");
    assert_eq!(PartialFile::create(&null).expect("writable").partial_path(), None);
    commit(&null, "lost");
    assert!(fs::symlink_metadata(&null).expect("there").is_symlink());
    assert!(fs::metadata("/dev/null").expect("there").file_type().is_char_device());
    assert!(PartialFile::create(&folder.0).is_err(), "a folder");
}
