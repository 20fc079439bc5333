//! Every capture at hand, hostile ones included, compared with foreign readers: each record's time,
//! lengths and bytes with libpcap (tcpdump rewrites the file in one normal form), times and lengths of files that
//! libpcap gives up on with tshark, each file's count with capinfos. And what our writer writes, read by libpcap.
//!
//! Reads what the tree holds, and what `LANEWAY_CAPTURES` names. Skips with a printed reason where the programs are
//! absent.

use laneway_capture::{Layout, LinkType, ReadError, Reader, Record, Writer};
use laneway_testkit::{CaptureFile, captures, skip};
use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};

const NS_PER_S: u64 = 1_000_000_000;

/// Those of the public captures that we do not read to the end, and the records before that.
const STOPPED: [(&str, usize); 1] = [
    ("test901.pcapng", 1), // its second section has version 2.0; libpcap and Wireshark stop there too
];

/// The captures that the foreign readers can read, too: libpcap opens no compressed file.
fn uncompressed() -> Vec<CaptureFile> {
    let is_plain = |file: &CaptureFile| {
        file.path.extension().is_some_and(|suffix| suffix == "pcap" || suffix == "pcapng")
    };
    captures().into_iter().filter(is_plain).collect()
}

#[derive(Debug)]
struct Ours {
    ts_ns: u64,
    wire_len: u32,
    snaplen: u32,
    data: Vec<u8>,
}

fn ours(path: &Path) -> (Vec<Ours>, Option<ReadError>) {
    let mut records = Vec::new();
    let mut interfaces = Vec::new();
    let mut reader = Reader::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let error = loop {
        match reader.next_record() {
            Ok(Some(record)) => {
                interfaces.push(record.interface as usize);
                records.push(Ours {
                    ts_ns: record.ts_ns,
                    wire_len: record.wire_len,
                    snaplen: 0,
                    data: record.data.to_vec(),
                });
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    for (record, interface) in records.iter_mut().zip(interfaces) {
        record.snaplen = reader.interfaces()[interface].snaplen;
    }
    if let Some(error) = &error {
        assert_eq!(error.records(), records.len() as u64, "{}: {error}", path.display());
    }
    (records, error)
}

#[derive(Debug)]
struct Theirs {
    seconds: u64,
    nanos: u64,
    wire_len: u32,
    data: Vec<u8>,
}

/// What libpcap reads, and its complaint if it had one.
fn libpcap(path: &Path) -> std::io::Result<(Vec<Theirs>, Option<String>)> {
    let output = Command::new("tcpdump")
        .args(["--time-stamp-precision=nano", "-w", "-", "-r"])
        .arg(path)
        .stdin(Stdio::null())
        .output()?;
    let complaint = (!output.status.success())
        .then(|| String::from_utf8_lossy(&output.stderr).trim().to_owned());
    let mut records = Vec::new();
    let mut rest = output.stdout.get(24..).unwrap_or_default();
    while let Some((header, behind)) = rest.split_first_chunk::<16>() {
        let field = |at: usize| {
            u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let (data, behind) = behind.split_at(field(8) as usize);
        records.push(Theirs {
            seconds: field(0).into(),
            nanos: field(4).into(),
            wire_len: field(12),
            data: data.to_vec(),
        });
        rest = behind;
    }
    Ok((records, complaint))
}

/// Asserts that two readings of one record say the same, but for three known habits of libpcap and tcpdump.
fn assert_same(ours: &Ours, theirs: &Theirs, place: &str) {
    // tcpdump writes seconds in 32 bits.
    let ts_ns = ours.ts_ns % ((1 << 32) * NS_PER_S);
    // libpcap holds nanoseconds in 32 bits: an impossible fraction of microseconds wraps there and carries here.
    let fraction_ns = ts_ns.checked_sub(theirs.seconds * NS_PER_S);
    assert_eq!(fraction_ns.map(|ns| ns % (1 << 32)), Some(theirs.nanos), "time, {place}");
    // libpcap cuts a record to the snaplen its file states; Wireshark and we keep what is there.
    let cut = (ours.snaplen as usize).min(ours.data.len());
    assert!(
        ours.data == theirs.data || ours.data[..cut] == theirs.data,
        "bytes, {place}: {ours:?} against {theirs:?}"
    );
    assert_eq!(ours.wire_len, theirs.wire_len.max(ours.data.len() as u32), "length, {place}");
}

/// Time, wire length and captured length of each record, as tshark prints them.
fn tshark(path: &Path) -> std::io::Result<Vec<(u64, u32, usize)>> {
    let fields = ["-e", "frame.time_epoch", "-e", "frame.len", "-e", "frame.cap_len"];
    let output = Command::new("tshark")
        .arg("-r")
        .arg(path)
        // Custom and journal blocks are frames to tshark, too; only packets have an encapsulation.
        .args(["-Y", "frame.encap_type", "-T", "fields"])
        .args(fields)
        .stdin(Stdio::null())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let parse = |line: &str| {
        let [time, wire_len, len] = line.split('\t').collect::<Vec<_>>().try_into().ok()?;
        // A simple packet block has no time: the field is empty there.
        let (seconds, nanos) = time.split_once('.').unwrap_or(("0", "0"));
        let ts_ns = seconds.parse::<u64>().ok()? * NS_PER_S + nanos.parse::<u64>().ok()?;
        Some((ts_ns, wire_len.parse().ok()?, len.parse().ok()?))
    };
    Ok(text
        .lines()
        .map(|line| parse(line).unwrap_or_else(|| panic!("tshark says {line}")))
        .collect())
}

#[test]
fn every_record_equals_libpcaps_or_tsharks() {
    let captures = uncompressed();
    let mut stopped = Vec::new();
    for CaptureFile { name, path } in &captures {
        let (theirs, complaint) = match libpcap(path) {
            Ok(read) => read,
            Err(error) => {
                skip(format!("tcpdump does not run ({error}); install the package tcpdump"));
                return;
            }
        };
        let (ours, error) = ours(path);
        for (number, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            assert_same(ours, theirs, &format!("{name}, record {number}"));
        }
        if error.is_some() {
            stopped.push((name.rsplit('/').next().unwrap_or(name), ours.len()));
        }
        if complaint.is_none() {
            assert_eq!(ours.len(), theirs.len(), "{name}");
            continue;
        }
        match tshark(path) {
            Ok(theirs) => {
                let ours: Vec<_> = ours
                    .iter()
                    .map(|record| (record.ts_ns, record.wire_len, record.data.len()))
                    .collect();
                assert_eq!(ours, theirs, "{name}");
            }
            Err(error) => skip(format!(
                "{name}, which libpcap gives up on: tshark does not run ({error}); install the \
                 package tshark"
            )),
        }
    }
    let is_here = |stopped: &(&str, usize)| captures.iter().any(|c| c.name.ends_with(stopped.0));
    let expected: Vec<_> = STOPPED.into_iter().filter(is_here).collect();
    assert_eq!(stopped, expected, "the captures that we do not read to the end");
}

#[test]
fn every_count_equals_capinfos() {
    let captures = uncompressed();
    let paths = captures.iter().map(|file| &file.path);
    let output = match Command::new("capinfos").args(["-T", "-r", "-c", "-M"]).args(paths).output()
    {
        Ok(output) => output,
        Err(error) => {
            skip(format!("capinfos does not run ({error}); install the package tshark"));
            return;
        }
    };
    let table = String::from_utf8_lossy(&output.stdout);
    let counts: HashMap<&str, usize> = table
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .filter_map(|(path, count)| Some((path, count.trim().parse().ok()?)))
        .collect();
    let mut compared = 0;
    for CaptureFile { path, .. } in &captures {
        let records = ours(path).0.len();
        match counts.get(path.to_str().expect("ASCII names")) {
            Some(&count) => {
                assert_eq!(records, count, "{}", path.display());
                compared += 1;
            }
            // Wireshark refuses a file whose link type it cannot dissect.
            None => skip(format!("capinfos gives no count for {}", path.display())),
        }
    }
    assert!(compared * 10 >= captures.len() * 9, "capinfos counted only {compared} files");
}

#[test]
fn libpcap_reads_what_the_writer_writes() {
    let path = std::env::temp_dir().join(format!("laneway-capture-{}-written", std::process::id()));
    for layout in [Layout::Pcap, Layout::Pcapng] {
        let mut writer =
            Writer::create(&path, layout, &[LinkType::Ethernet]).expect("temporary files work");
        for number in 0..10u8 {
            let data = vec![number; usize::from(number)];
            let record = Record {
                ts_ns: 1_700_000_000_123_456_789 + u64::from(number),
                interface: 0,
                link: LinkType::Ethernet,
                wire_len: u32::from(number) * 2,
                data: &data,
            };
            writer.write(&record).expect("a valid record");
        }
        writer.set_counts(0, 12, 2).expect("interface 0 exists");
        writer.commit().expect("temporary files work");
        let (written, _) = ours(&path);
        let read = libpcap(&path);
        std::fs::remove_file(&path).expect("it was just written");
        match read {
            Ok((read, complaint)) => {
                assert_eq!(complaint, None);
                assert_eq!((written.len(), read.len()), (10, 10));
                for (number, (ours, theirs)) in written.iter().zip(&read).enumerate() {
                    assert_same(ours, theirs, &format!("{layout:?}, record {number}"));
                }
            }
            Err(error) => {
                skip(format!("tcpdump does not run ({error}); install the package tcpdump"));
            }
        }
    }
}
