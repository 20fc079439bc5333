//! `laneway gen` as a user meets it: captures over real cables and into captures.
//!
//! Tests that need root or a foreign program say so and pass where those are absent.
#![forbid(unsafe_code)]

use laneway_capture::{Layout, LinkType, Reader, Record, Writer};
use laneway_core::{FrameLane, Lane, PortId, Wake};
use laneway_netns::{Topology, TopologyOptions, can_create};
use laneway_packet::{OpenOptions, PacketLane};
use laneway_testkit::{is_ours, skip, udp_frames};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{self, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The binary under test.
const LANEWAY: &str = env!("CARGO_BIN_EXE_laneway");
/// Waits in vain of 20 ms before the far end gives up on a program that runs: it starts late on a busy
/// machine.
const WAITS_MAX: usize = 1500;
/// ... and on the frames of one that has ended.
const WAITS_AFTER_MAX: usize = 250;

/// A folder of its own, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("laneway-gen-{}-{n}", process::id()));
        fs::create_dir(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// A capture of these frames, 10 us apart.
    fn capture(&self, name: &str, frames: &[Vec<u8>]) -> String {
        let path = self.file(name);
        let (layout, links) = (Layout::Pcap, [LinkType::Ethernet]);
        let mut writer = Writer::create(&path, layout, &links).unwrap();
        for (i, data) in (0..).zip(frames) {
            let record = Record {
                ts_ns: 1_600_000_000_000_000_000 + i * 10_000,
                interface: 0,
                link: LinkType::Ethernet,
                wire_len: data.len() as u32,
                data,
            };
            writer.write(&record).unwrap();
        }
        writer.commit().unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A test that failed has reported why already.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Two namespaces, or a skip.
fn world() -> Option<Topology> {
    match can_create() {
        Ok(()) => Some(Topology::create(&TopologyOptions::new("gen")).unwrap()),
        Err(why) => {
            skip(why);
            None
        }
    }
}

/// Runs `command` in the generator's namespace and takes what arrives at the far end, until there are
/// `expected` frames of ours or patience ends.
fn at_the_far_end(world: &Topology, command: Command, expected: usize) -> (Vec<Vec<u8>>, Output) {
    of_these_at_the_far_end(world, command, expected, is_ours)
}

/// The same of frames of which this is true.
fn of_these_at_the_far_end(
    world: &Topology,
    mut command: Command,
    expected: usize,
    is_wanted: fn(&[u8]) -> bool,
) -> (Vec<Vec<u8>>, Output) {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let look = move || {
        let spec = "packet".parse().unwrap();
        let mut lane = PacketLane::open(&spec, &["sut0"], OpenOptions::default()).unwrap();
        let mut child = command.spawn().unwrap();
        let (mut frames, mut waits, mut waits_after) = (Vec::new(), 0, 0);
        while frames.len() < expected && waits < WAITS_MAX && waits_after < WAITS_AFTER_MAX {
            let burst = lane.receive(PortId(0)).unwrap();
            let found = burst.len();
            let arrived = (0..found).map(|i| burst.frame(i).bytes.to_vec());
            frames.extend(arrived.filter(|bytes| is_wanted(bytes)));
            lane.settle(PortId(0)).unwrap();
            if found == 0 {
                let woken = lane.wait(Duration::from_millis(20)).unwrap();
                let has_ended = child.try_wait().unwrap().is_some();
                waits += usize::from(woken == Wake::Timeout);
                waits_after += usize::from(woken == Wake::Timeout && has_ended);
            }
        }
        (frames, child.wait_with_output().unwrap())
    };
    world.sut.namespace.enter(look).unwrap()
}

fn generator(world: &Topology, capture: &str, more: &[&str]) -> Command {
    let mut command = world.generator.namespace.command(LANEWAY);
    command.args(["gen", "pcap", capture, "--on", "gen0", "--json"]).args(more);
    command
}

fn json(output: &Output) -> Value {
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{err}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {err}"))
}

/// The run ended with exit code 2 and one sentence that says each of `parts`.
#[track_caller]
fn refused(output: &Output, parts: &[&str]) {
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(err.starts_with("laneway: ") && err.trim_end().lines().count() == 1, "{err}");
    parts.iter().for_each(|part| assert!(err.contains(part), "`{part}` is missing in: {err}"));
}

#[test]
fn the_far_end_receives_the_captures_bytes_in_its_order_on_every_lane() {
    let Some(world) = world() else { return };
    let folder = Folder::new();
    let mut frames = udp_frames(0, 150, 60);
    frames.extend(udp_frames(150, 50, 1_514));
    let capture = folder.capture("a.pcap", &frames);
    for lane in ["packet", "packet:ring", "uring", "afxdp", "dpdk:net_af_packet"] {
        let command = generator(&world, &capture, &["--lane", lane, "--pps", "20000"]);
        let (arrived, output) = at_the_far_end(&world, command, frames.len());
        let err = String::from_utf8_lossy(&output.stderr);
        if lane.starts_with("dpdk") && output.status.code() == Some(2) {
            skip(format!("{lane}: {err}"));
            continue;
        }
        let report = json(&output);
        assert_eq!(arrived.len(), frames.len(), "{lane}: {report:#}");
        assert!(arrived == frames, "{lane}: other bytes, or another order");
        let figures = ["read", "given", "sent", "unconfirmed"].map(|name| report[name].as_u64());
        assert_eq!(figures, [Some(200), Some(200), Some(200), Some(0)], "{lane}");
        assert_eq!((&report["whole"], &report["left_out"]), (&true.into(), &serde_json::json!({})));
    }
}

#[test]
fn datagrams_to_groups_are_numbered_and_a_burst_is_one_groups() {
    let Some(world) = world() else { return };
    let mut command = world.generator.namespace.command(LANEWAY);
    command.args(["gen", "mcast", "--on", "gen0", "--to", "239.1.1.1:5000", "--groups", "2"]);
    command.args(["--rate", "2000", "--burst", "4", "--bytes", "100", "--duration", "20ms"]);
    command.args(["--from", "192.0.2.7:9", "--ttl", "3", "--json"]);
    let to_a_group = |frame: &[u8]| frame.starts_with(&[1, 0, 0x5e, 1, 1]) && frame.len() == 142;
    let (arrived, output) = of_these_at_the_far_end(&world, command, 40, to_a_group);
    let report = json(&output);
    assert_eq!(arrived.len(), 40, "{report:#}");
    for (number, frame) in (0u8..).zip(&arrived) {
        // TTL, source, group, port, and the number behind its mark and segment.
        assert_eq!((frame[22], &frame[26..30]), (3, &[192, 0, 2, 7][..]));
        assert_eq!(frame[30..34], [239, 1, 1, 1 + number / 4 % 2], "datagram {number}");
        assert_eq!((&frame[36..38], frame[47]), (&5_000u16.to_be_bytes()[..], number));
    }
    assert_eq!(
        (&report["sent"]["generator"]["sent"], &report["plan"]["groups"]),
        (&40.into(), &2.into())
    );
    let mut wrong = world.generator.namespace.command(LANEWAY);
    wrong.args(["gen", "mcast", "--on", "gen0", "--to", "10.0.0.1:5"]);
    refused(&wrong.output().unwrap(), &["10.0.0.1:5", "239.1.1.1"]);
}

#[test]
fn the_reported_rate_is_that_of_the_frames_sent_and_none_is_too_early() {
    let Some(world) = world() else { return };
    let folder = Folder::new();
    let frames = udp_frames(0, 50, 100);
    let capture = folder.capture("a.pcap", &frames);
    let cases: [(&[&str], f64); 4] = [
        (&["--pps", "1000", "--loop", "2"], 1_000.0),
        // 100 bytes are 800 bits.
        (&["--mbps", "1.6", "--count", "60", "--loop", "0", "--preload"], 2_000.0),
        (&["--multiplier", "0.1"], 10_000.0),
        (&[], 100_000.0),
    ];
    for (more, asked_pps) in cases {
        let report = json(&generator(&world, &capture, more).output().unwrap());
        let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{report:#}"));
        let (sent, span_ns) = (number(&report["sent"]), number(&report["span_ns"]));
        let achieved = number(&report["achieved"]["pps"]);
        assert!(
            (number(&report["asked"]["pps"]) - asked_pps).abs() < 1e-3 * asked_pps,
            "{report:#}"
        );
        assert!((achieved - (sent - 1.0) * 1e9 / span_ns).abs() < 1e-6 * achieved, "{report:#}");
        // The first may be late and the last not: by so much the rate may be higher.
        let late_ns = number(&report["late"]["max_ns"]);
        assert!(span_ns + late_ns >= (sent - 1.0) * 1e9 / asked_pps - 1.0, "{report:#}");
        let mbps = achieved * 800.0 / 1e6;
        assert!((number(&report["achieved"]["mbps"]) - mbps).abs() < 1e-6 * mbps, "{report:#}");
    }
}

#[test]
fn a_frame_beyond_the_mtu_is_counted_and_the_others_are_sent() {
    let Some(world) = world() else { return };
    let folder = Folder::new();
    let mut frames = udp_frames(0, 3, 60);
    frames.insert(1, vec![2; 1_600]);
    let capture = folder.capture("a.pcap", &frames);
    for lane in ["packet", "uring", "afxdp"] {
        let command = generator(&world, &capture, &["--lane", lane, "--topspeed"]);
        let (arrived, output) = at_the_far_end(&world, command, 3);
        let report = json(&output);
        assert_eq!(arrived, udp_frames(0, 3, 60), "{lane}");
        assert_eq!((&report["sent"], &report["unconfirmed"]), (&3.into(), &0.into()), "{lane}");
        assert_eq!(report["refused"]["tx_too_long"], 1, "{lane}: {report:#}");
    }
}

#[test]
fn tcpdump_at_the_far_end_sees_the_same() {
    let Some(world) = world() else { return };
    let folder = Folder::new();
    let frames = udp_frames(0, 100, 200);
    let (capture, seen) = (folder.capture("a.pcap", &frames), folder.file("seen.pcap"));
    let mut tcpdump = world.sut.namespace.command("tcpdump");
    let count = frames.len().to_string();
    // Dropping privileges would keep it from writing where only root may.
    let line = ["-i", "sut0", "-w", &seen, "-c", &count, "-Z", "root", "udp"];
    let spawned = tcpdump.args(line).stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut tcpdump = match spawned {
        Ok(child) => child,
        Err(error) => return skip(format!("tcpdump: {error}; install tcpdump")),
    };
    let mut err = BufReader::new(tcpdump.stderr.take().unwrap());
    let mut printed = String::new();
    while err.read_line(&mut printed).unwrap() > 0 && !printed.contains("listening on") {}
    if !printed.contains("listening on") {
        tcpdump.wait().unwrap();
        return skip(format!("tcpdump: {printed}"));
    }
    json(&generator(&world, &capture, &["--multiplier", "2"]).output().unwrap());
    let mut rest = String::new();
    while err.read_line(&mut rest).unwrap() > 0 {}
    assert!(tcpdump.wait().unwrap().success(), "{rest}");
    assert_eq!(records(&seen), frames);
}

#[test]
fn tcpreplay_sends_the_same() {
    let Some(world) = world() else { return };
    if let Err(error) = Command::new("tcpreplay").arg("--version").output() {
        return skip(format!("tcpreplay: {error}; install tcpreplay"));
    }
    let folder = Folder::new();
    let frames = udp_frames(0, 40, 300);
    let capture = folder.capture("a.pcap", &frames);
    let mut tcpreplay = world.generator.namespace.command("tcpreplay");
    tcpreplay.args(["--intf1=gen0", "--loop=2", "--pps=5000", &capture]);
    let (theirs, output) = at_the_far_end(&world, tcpreplay, 80);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let ours = generator(&world, &capture, &["--loop", "2", "--pps", "5000"]);
    let (ours, output) = at_the_far_end(&world, ours, 80);
    json(&output);
    assert_eq!(ours.len(), 80);
    assert!(ours == theirs);
}

#[test]
fn an_interrupt_ends_an_endless_replay_which_tells_what_it_did() {
    let Some(world) = world() else { return };
    let folder = Folder::new();
    let capture = folder.capture("a.pcap", &udp_frames(0, 10, 60));
    for lane in ["packet", "uring", "afxdp"] {
        let mut command = world.generator.namespace.command(LANEWAY);
        command.args(["gen", "pcap", &capture, "--on", "gen0", "--lane", lane]);
        command.args(["--loop", "0", "--pps", "1000"]);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut err = BufReader::new(child.stderr.take().unwrap());
        let mut printed = String::new();
        err.read_line(&mut printed).unwrap();
        assert!(printed.contains("asked for") && printed.contains("obtained"), "{printed}");
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        while err.read_line(&mut printed).unwrap() > 0 {}
        assert_eq!(child.wait().unwrap().code(), Some(0), "{lane}: {printed}");
        for part in ["ended before the captures did", "given to the lane", "rate: "] {
            assert!(printed.contains(part), "{lane}: {printed}");
        }
    }
}

fn records(path: &str) -> Vec<Vec<u8>> {
    let mut reader = Reader::open(path).unwrap();
    let mut frames = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        frames.push(record.data.to_vec());
    }
    frames
}

fn laneway(arguments: &[&str]) -> Output {
    Command::new(LANEWAY).args(arguments).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn a_capture_is_written_with_its_statistics_and_needs_no_privilege() {
    let folder = Folder::new();
    let frames = udp_frames(0, 10, 60);
    let capture = folder.capture("a.pcap", &frames);
    let out = folder.file("out.pcapng");
    let line = ["gen", "pcap", &capture, "--lane", "pcap", "--on", &out];
    let report = json(&laneway(&[&line[..], &["--json", "--pps", "100", "--loop", "2"]].concat()));
    assert_eq!(records(&out), [&frames[..], &frames[..]].concat());
    assert_eq!((&report["sent"], &report["span_ns"]), (&20.into(), &190_000_000.into()));
    let mut reader = Reader::open(&out).unwrap();
    while reader.next_record().unwrap().is_some() {}
    assert_eq!(reader.interfaces()[0].dropped, Some(0));
    let output = laneway(&line);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(
        err.contains("10 frames written to") && err.contains("rate: 100000.0 packets/s"),
        "{err}"
    );
}

#[test]
fn what_cannot_be_is_refused_in_a_sentence_and_leaves_nothing() {
    let folder = Folder::new();
    let capture = folder.capture("a.pcap", &udp_frames(0, 2, 60));
    let (text, out) = (folder.file("notes"), folder.file("o.pcapng"));
    fs::write(&text, "dear diary, today").unwrap();
    let into = |more: &[&str], input: &str, on: &str| {
        laneway(&[&["gen", "pcap", input, "--lane", "pcap", "--on", on], more].concat())
    };
    refused(&into(&[], &text, &out), &[&text, "not a capture"]);
    refused(&into(&[], &folder.file("gone"), &out), &["gone", "No such file"]);
    refused(&into(&["--topspeed"], &capture, &out), &["--topspeed", "--multiplier"]);
    refused(&into(&["--loop", "0"], &capture, &out), &["--loop 0", "--count"]);
    refused(&into(&[], &capture, &capture), &["would replace", "--on"]);
    refused(&into(&[], &capture, "/nowhere/o.pcap"), &["/nowhere/o.pcap", "--on"]);
    refused(&into(&["--pps", "5", "--mbps", "1"], &capture, &out), &["--pps", "--mbps"]);
    refused(&into(&["--pps", "0"], &capture, &out), &["--pps", "above 0"]);
    refused(&laneway(&["gen", "pcap", &capture, "--on", "x", "--lane", "sim"]), &["sim", "use"]);
    refused(&laneway(&["gen", "pcap", &capture, "--on", "x", "--lane", "xdp"]), &["xdp", "use"]);
    assert!(!Path::new(&out).exists() && !Path::new(&format!("{out}.partial")).exists());
    if let Err(why) = can_create() {
        return skip(why);
    }
    refused(&laneway(&["gen", "pcap", &capture, "--on", "nosuch0"]), &["`nosuch0`", "ip link"]);
}
