//! What the lane promises beyond the contract: every record is a frame or a counted reason, damage comes after the
//! frames before it, passes go on in time, and what is written is whole or not there.

use laneway_capture::{Layout, LinkType, Reader, Record, Writer};
use laneway_core::{Burst, Cap, Counters, DropReason, FrameLane, Lane, LaneError, PortId, Verdict};
use laneway_pcap::{LOOKS_MAX, LOOP_GAP_NS, PcapLane};
use laneway_testkit::{sequence, skip, udp_frames};
use proptest::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

const PORT: PortId = PortId(0);

/// A folder of its own for each test, removed with all content when the test ends, however it ends.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("laneway-pcap-lane-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("the temporary directory is writable");
        Folder(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).expect("the temporary directory is writable");
        path
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("the folder exists");
        let names = entries.map(|entry| entry.expect("readable").file_name());
        let mut names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// A pcapng capture with one interface per link type met.
fn capture(records: &[(u64, LinkType, &[u8])]) -> Vec<u8> {
    let mut links: Vec<LinkType> = vec![LinkType::Ethernet];
    for (_, link, _) in records {
        if !links.contains(link) {
            links.push(*link);
        }
    }
    let mut writer = Writer::new(Vec::new(), Layout::Pcapng, &links).expect("valid links");
    for &(ts_ns, link, data) in records {
        let interface = links.iter().position(|l| *l == link).expect("collected above") as u32;
        let wire_len = data.len() as u32;
        writer.write(&Record { ts_ns, interface, link, wire_len, data }).expect("a valid record");
    }
    writer.set_counts(0, 9, 4).expect("interface 0 exists");
    writer.finish().expect("memory does not fail")
}

/// `count` Ethernet frames, a microsecond apart from 1000 on.
fn ethernet_capture(count: usize) -> Vec<u8> {
    let frames = udp_frames(0, count, 100);
    let records: Vec<_> = frames
        .iter()
        .enumerate()
        .map(|(i, frame)| (1000 * (i as u64 + 1), LinkType::Ethernet, &frame[..]))
        .collect();
    capture(&records)
}

fn open(spec: &str, captures: &[PathBuf]) -> Result<PcapLane, LaneError> {
    PcapLane::open(&spec.parse().expect("well formed"), captures)
}

fn refusal(spec: &str, captures: &[PathBuf]) -> String {
    open(spec, captures).err().expect("refused").to_string()
}

/// A frame as it was received: time, bytes on the wire, bytes.
type Owned = (u64, u32, Vec<u8>);

/// Works all ports to their end, as an engine would.
fn drain(
    lane: &mut PcapLane,
    mut each: impl FnMut(&mut Burst, usize),
) -> (Vec<Owned>, Option<LaneError>) {
    let mut frames = Vec::new();
    while !lane.exhausted() {
        for port in (0..lane.ports()).map(|port| PortId(port as u32)) {
            if let Err(error) = turn(lane, port, &mut frames, &mut each) {
                return (frames, Some(error));
            }
        }
    }
    (frames, None)
}

fn turn(
    lane: &mut PcapLane,
    port: PortId,
    frames: &mut Vec<Owned>,
    each: &mut impl FnMut(&mut Burst, usize),
) -> Result<(), LaneError> {
    let burst = lane.receive(port)?;
    for i in 0..burst.len() {
        let frame = burst.frame(i);
        frames.push((frame.ts_ns, frame.wire_len, frame.bytes.to_vec()));
        each(burst, i);
    }
    lane.settle(port)
}

fn read_back(path: &Path) -> Vec<(u32, Owned)> {
    let mut reader = Reader::open(path).expect("the capture is there");
    let mut records = Vec::new();
    while let Some(record) = reader.next_record().expect("a whole capture") {
        let frame = (record.ts_ns, record.wire_len, record.data.to_vec());
        records.push((record.interface, frame));
    }
    records
}

#[test]
fn a_frame_carries_its_captures_time_and_wire_length() {
    let folder = Folder::new();
    let mut writer = Writer::new(Vec::new(), Layout::Pcap, &[LinkType::Ethernet]).expect("valid");
    let (ts_ns, link) = (1_700_000_000_123_456_789, LinkType::Ethernet);
    writer
        .write(&Record { ts_ns, interface: 0, link, wire_len: 1514, data: &[7; 96] })
        .expect("valid");
    let path = folder.file("cut", &writer.finish().expect("memory does not fail"));
    let mut lane = open("pcap", &[path]).expect("opens");
    let (frames, error) = drain(&mut lane, |_, _| ());
    assert!(error.is_none(), "{error:?}");
    assert_eq!(frames, [(ts_ns, 1514, vec![7; 96])]);
    assert_eq!(lane.counters(PORT).copies, 1);
}

#[test]
fn link_layers_that_carry_ip_become_ethernet_and_others_are_counted() {
    let folder = Folder::new();
    let bytes = capture(&[
        (1, LinkType::Raw, &[0x45, 1]),
        (2, LinkType::Other(147), &[1, 2, 3]),
        (3, LinkType::Null, &[0, 0, 0, 30, 0x60]),
        (4, LinkType::Raw, &[0x10]),
        (5, LinkType::Ethernet, &[5; 14]),
    ]);
    let mut lane = open("pcap", &[folder.file("mixed", &bytes)]).expect("opens");
    let (frames, error) = drain(&mut lane, |_, _| ());
    assert!(error.is_none(), "{error:?}");
    let made =
        |ether_type: u16, rest: &[u8]| [&[0; 12], &ether_type.to_be_bytes()[..], rest].concat();
    let bytes: Vec<_> = frames.iter().map(|frame| (frame.0, frame.2.clone())).collect();
    assert_eq!(
        bytes,
        [(1, made(0x0800, &[0x45, 1])), (3, made(0x86dd, &[0x60])), (5, vec![5; 14])]
    );
    let counters = lane.counters(PORT);
    assert_eq!(counters.drops(DropReason::LinkTypeUnknown), 2);
    assert_eq!((counters.rx_frames, counters.rx_bytes, counters.lost()), (3, 16 + 15 + 14, 2));
    let facts = &lane.caps(PORT).facts;
    assert_eq!(facts["link_types"], "Ethernet Raw Other(147) Null");
    assert_eq!(facts["capture_dropped"], "4");
}

#[test]
fn a_record_without_a_time_keeps_the_time_of_the_passes() {
    let folder = Folder::new();
    let ts_ns = 1_700_000_000_000_000_000;
    let mut bytes = capture(&[(ts_ns, LinkType::Ethernet, &[5; 60])]);
    // A simple packet block: kind, length, bytes on the wire, the frame, length.
    let frame = vec![6; 60];
    bytes.extend([3u32, 76, 60].map(u32::to_le_bytes).as_flattened());
    bytes.extend(&frame);
    bytes.extend(76u32.to_le_bytes());
    let mut lane = open("pcap:loop=3", &[folder.file("simple", &bytes)]).expect("opens");
    let (frames, error) = drain(&mut lane, |_, _| ());
    assert!(error.is_none(), "{error:?}");
    let times: Vec<u64> = frames.iter().map(|frame| frame.0).collect();
    let pass = |n: u64| ts_ns + n * LOOP_GAP_NS;
    assert_eq!(times, [pass(0), pass(0), pass(1), pass(1), pass(2), pass(2)]);
}

#[test]
fn a_capture_of_any_number_of_link_types_has_some_named() {
    let folder = Folder::new();
    let links: Vec<LinkType> = (1000..61_000).map(LinkType::Other).collect();
    let mut writer = Writer::new(Vec::new(), Layout::Pcapng, &links).expect("valid links");
    let data = [5; 60];
    writer
        .write(&Record { ts_ns: 1, interface: 0, link: links[0], wire_len: 60, data: &data })
        .expect("a valid record");
    let bytes = writer.finish().expect("memory does not fail");
    let lane = open("pcap", &[folder.file("links", &bytes)]).expect("opens");
    let fact = &lane.caps(PORT).facts["link_types"];
    assert!(fact.starts_with("Other(1000) Other(1001) "), "{fact}");
    assert!(fact.ends_with(" Other(1015) and 59984 more"), "{fact}");
}

#[test]
fn what_a_capture_says_that_it_missed_is_no_more_than_a_number_holds() {
    let folder = Folder::new();
    let mut writer =
        Writer::new(Vec::new(), Layout::Pcapng, &[LinkType::Ethernet; 2]).expect("valid links");
    let (link, data) = (LinkType::Ethernet, [5; 60]);
    writer
        .write(&Record { ts_ns: 1, interface: 0, link, wire_len: 60, data: &data })
        .expect("valid");
    for interface in [0, 1] {
        writer.set_counts(interface, 9, u64::MAX).expect("the interface exists");
    }
    let bytes = writer.finish().expect("memory does not fail");
    let mut lane = open("pcap", &[folder.file("missed", &bytes)]).expect("opens");
    drain(&mut lane, |_, _| ());
    assert_eq!(lane.caps(PORT).facts["capture_dropped"], u64::MAX.to_string());
}

#[test]
fn a_capture_without_any_frame_cannot_keep_the_worker() {
    let folder = Folder::new();
    let strange: Vec<_> =
        (0..2 * LOOKS_MAX).map(|_| (0, LinkType::Other(147), &[0u8][..])).collect();
    let mut lane = open("pcap", &[folder.file("strange", &capture(&strange))]).expect("opens");
    assert!(lane.receive(PORT).expect("readable").is_empty());
    assert!(!lane.exhausted());
    assert_eq!(lane.counters(PORT).drops(DropReason::LinkTypeUnknown), LOOKS_MAX as u64);
    assert!(drain(&mut lane, |_, _| ()).0.is_empty());
    assert_eq!(lane.counters(PORT).drops(DropReason::LinkTypeUnknown), 2 * LOOKS_MAX as u64);
}

#[test]
fn a_cut_capture_gives_its_frames_and_then_says_where_it_ends() {
    let folder = Folder::new();
    let mut bytes = ethernet_capture(70);
    bytes.truncate(bytes.len() - 100); // the statistics block and a part of the last record
    // More passes do not start behind damage.
    for spec in ["pcap", "pcap:burst=7", "pcap:loop=3"] {
        let path = folder.file("cut.pcapng", &bytes);
        let mut lane = open(spec, &[path]).expect("the first record is whole");
        let (frames, error) = drain(&mut lane, |_, _| ());
        assert_eq!(frames.len(), 69, "{spec}");
        let message = error.expect("damaged").to_string();
        assert!(message.starts_with("pcap: "), "{message}");
        assert!(message.contains("cut.pcapng: the capture is cut short at byte"), "{message}");
        assert!(message.contains("69 complete records"), "{message}");
        assert!(lane.exhausted() && lane.receive(PORT).expect("reported once").is_empty());
        assert_eq!(lane.counters(PORT).rx_frames, 69);
    }
}

#[test]
fn passes_go_on_in_time() {
    let folder = Folder::new();
    let path = folder.file("three", &ethernet_capture(3));
    let mut lane = open("pcap:loop=3,burst=2", &[path]).expect("opens");
    let (frames, error) = drain(&mut lane, |_, _| ());
    assert!(error.is_none(), "{error:?}");
    let sequences: Vec<_> = frames.iter().filter_map(|frame| sequence(&frame.2)).collect();
    assert_eq!(sequences, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
    let (second, third) = (3000 + LOOP_GAP_NS, 5000 + 2 * LOOP_GAP_NS);
    let times: Vec<_> = frames.iter().map(|frame| frame.0).collect();
    let pass = |start: u64| [start, start + 1000, start + 2000];
    assert_eq!(times, [pass(1000), pass(second), pass(third)].concat());
}

#[test]
fn an_empty_capture_ends_at_once_however_often_it_is_read() {
    let folder = Folder::new();
    let mut lane = open("pcap:loop=1m", &[folder.file("empty", &capture(&[]))]).expect("opens");
    assert!(lane.receive(PORT).expect("readable").is_empty());
    assert!(lane.exhausted());
}

#[test]
fn longer_frames_than_the_buffers_are_cut_and_keep_their_wire_length() {
    let folder = Folder::new();
    let long = [LinkType::Ethernet, LinkType::Ipv4].map(|link| (0, link, &[9; 200][..]));
    let mut lane = open("pcap:frame=100", &[folder.file("long", &capture(&long))]).expect("opens");
    let (frames, _) = drain(&mut lane, |_, _| ());
    let lengths: Vec<_> =
        frames.iter().map(|(_, wire_len, bytes)| (bytes.len(), *wire_len)).collect();
    assert_eq!(lengths, [(100, 200), (100, 214)]);
}

#[test]
fn what_is_sent_keeps_its_time_and_its_port() {
    let folder = Folder::new();
    let frames = udp_frames(0, 4, 100);
    let records: Vec<_> = frames
        .iter()
        .enumerate()
        .map(|(i, frame)| (10 + i as u64, LinkType::Ethernet, &frame[..]))
        .collect();
    let captures = [folder.file("a", &capture(&records)), folder.file("b", &capture(&[]))];
    let out = folder.path("out.pcapng");
    let mut lane = open(&format!("pcap:out={}", out.display()), &captures).expect("opens");
    assert!(lane.caps(PORT).obtained.has(Cap::Transmit));
    drain(&mut lane, |burst, i| match i {
        1 => burst.set_verdict(1, Verdict::TxTo(PortId(1))),
        2 => burst.set_verdict(2, Verdict::Tx),
        _ => (),
    });
    let borrowed = lane.lend(PORT, 1).expect("writable");
    assert!(borrowed.frame_mut(0).set_len(60));
    borrowed.frame_mut(0).bytes_mut().fill(0);
    borrowed.set_verdict(0, Verdict::Tx);
    assert_eq!(folder.names(), ["a", "b", "out.pcapng.partial"]);
    // What is not settled yet is sent too.
    lane.finish().expect("writable");
    assert_eq!(folder.names(), ["a", "b", "out.pcapng"]);
    let summary: Vec<_> = read_back(&out).iter().map(|(i, f)| (*i, f.0, sequence(&f.2))).collect();
    let expected = [(1, 11, Some(1)), (0, 12, Some(2)), (0, 13, None)];
    assert_eq!(summary, expected);
}

#[test]
fn a_dropped_lane_completes_its_capture_and_a_panic_does_not() {
    let folder = Folder::new();
    let path = folder.file("in", &ethernet_capture(2));
    let out = folder.path("out.pcap");
    let bounce = |fails: bool| {
        let spec = format!("pcap:out={}", out.display());
        let mut lane = open(&spec, std::slice::from_ref(&path)).expect("opens");
        drain(&mut lane, |burst, i| burst.set_verdict(i, Verdict::Tx));
        assert!(!fails, "planted");
    };
    assert!(std::panic::catch_unwind(|| bounce(true)).is_err());
    assert_eq!(folder.names(), ["in"]);
    bounce(false);
    assert_eq!(folder.names(), ["in", "out.pcap"]);
    assert_eq!(read_back(&out), read_back(&path));
}

#[test]
fn without_an_output_nothing_can_be_sent_and_that_is_counted() {
    let folder = Folder::new();
    let mut lane = open("pcap", &[folder.file("in", &ethernet_capture(3))]).expect("opens");
    assert!(!lane.caps(PORT).obtained.has(Cap::Transmit));
    assert!(lane.lend(PORT, 8).expect("nothing fails").is_empty());
    drain(&mut lane, |burst, i| burst.set_verdict(i, Verdict::Tx));
    let counters = lane.counters(PORT);
    assert_eq!((counters.drops(DropReason::TxRefused), counters.tx_frames), (3, 0));
}

#[test]
fn a_full_disk_ends_the_lane_with_the_files_name() {
    let folder = Folder::new();
    let path = folder.file("in", &ethernet_capture(200));
    // A link to a device stays one: /dev/full refuses every byte.
    if !Path::new("/dev/full").exists()
        || std::os::unix::fs::symlink("/dev/full", folder.path("out")).is_err()
    {
        return skip("no /dev/full here");
    }
    let spec = format!("pcap:out={}", folder.path("out").display());
    let mut lane = open(&spec, &[path]).expect("opening succeeds");
    let (_, error) = drain(&mut lane, |burst, i| burst.set_verdict(i, Verdict::Tx));
    let message = error.expect("the device is full").to_string();
    assert!(
        message.contains(&format!("writing capture `{}", folder.path("out").display())),
        "{message}"
    );
    assert!(message.contains("out="), "{message}");
    assert_eq!(folder.names(), ["in", "out"], "nothing but the link");
    let counters = lane.counters(PORT);
    assert_eq!(counters.tx_frames + counters.drops(DropReason::TxRefused), counters.rx_frames);
}

#[test]
fn what_cannot_be_opened_is_refused_in_one_sentence_and_leaves_nothing() {
    let folder = Folder::new();
    let good = folder.file("good", &ethernet_capture(1));
    let (script, header) =
        (folder.file("script", b"#!/bin/sh\n"), folder.file("short", b"\xd4\xc3\xb2\xa1\x02"));
    let absent = folder.path("absent.pcap");
    let before = folder.names();
    let says = |spec: &str, captures: &[PathBuf], words: &str| {
        let message = refusal(spec, captures);
        assert!(message.starts_with("pcap: ") && message.contains(words), "{message}");
        assert!(!message.contains('\n'), "{message}");
        assert_eq!(folder.names(), before);
    };
    says("pcap", &[absent], "there is no capture file");
    says("pcap", std::slice::from_ref(&folder.0), "directory");
    says("pcap", std::slice::from_ref(&script), "not a capture file: it starts with 23 21 2f 62");
    says("pcap", &[header], "cut short at byte 0");
    says("pcap", &[], "give 1 to 32 captures");
    says("pcap:loop=2", &[PathBuf::from("/dev/null")], "leave out loop=");
    says("pcap:loop=2", &[PathBuf::from("-")], "leave out loop=");
    let out = |name: &str| format!("pcap:out={}", folder.path(name).display());
    says(&out("no/folder/out"), std::slice::from_ref(&good), "folder");
    says(&out("good"), std::slice::from_ref(&good), "it is the capture to read");
    says(&out("two.pcap"), &[good.clone(), good.clone()], "end in .pcapng");
    // The output is looked at last: a bad second port must not leave it.
    says(&out("new.pcapng"), &[good, script], "not a capture file");
}

/// Records that the reader finds, and whether it fails behind them.
fn records_of(bytes: &[u8]) -> (u64, bool) {
    let mut reader =
        Reader::from_read(std::io::Cursor::new(bytes.to_vec())).expect("memory does not fail");
    loop {
        match reader.next_record() {
            Ok(Some(_)) => (),
            Ok(None) => return (reader.counts().records, false),
            Err(error) => return (error.records(), true),
        }
    }
}

fn seen(counters: &Counters) -> u64 {
    counters.rx_frames + counters.drops(DropReason::LinkTypeUnknown)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_capture_never_panics_and_every_record_is_a_frame_or_counted(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
        burst in 1..20usize,
    ) {
        let links = [LinkType::Ethernet, LinkType::LinuxSll, LinkType::Raw, LinkType::Other(9)];
        let records: Vec<_> =
            (0..20).map(|i| (i as u64, links[i % links.len()], &[0x45; 40][..])).collect();
        let mut bytes = capture(&records);
        let len = bytes.len();
        for (index, value) in flips {
            bytes[index.index(len)] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(len));
        }
        let folder = Folder::new();
        let (records, is_damaged) = records_of(&bytes);
        match open(&format!("pcap:burst={burst},frame=60"), &[folder.file("in", &bytes)]) {
            Ok(mut lane) => {
                let (frames, error) = drain(&mut lane, |_, _| ());
                let counters = lane.counters(PORT);
                prop_assert_eq!(error.is_some(), is_damaged);
                prop_assert_eq!(counters.rx_frames, frames.len() as u64);
                prop_assert_eq!(seen(&counters), records);
            }
            Err(_) => prop_assert_eq!((records, is_damaged), (0, true)),
        }
    }
}
