//! `laneway features`: captures to rows.

use crate::captures::{self, FRAME_BYTES, HEADER_BYTES, RECORD_HEADER_BYTES};
use crate::output::{Folder, RunOutput, command, laneway};
use laneway_capture::LinkType;
use laneway_testkit::UdpFrame;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Stdio};

const FORMATS: [&str; 5] = ["parquet", "arrow", "arrows", "csv", "jsonl"];

#[test]
fn every_capture_is_rows_or_a_counted_reason_in_every_format() {
    let folder = Folder::new();
    let (many, damaged) = (folder.file("many-flows.pcap"), folder.file("damaged.pcap"));
    // A flow per frame, and half a frame.
    let frames: Vec<Vec<u8>> = (0..1200)
        .map(|i| UdpFrame { source_port: 4000 + i, ..UdpFrame::default() }.build())
        .collect();
    let made = captures::capture(LinkType::Ethernet, &frames);
    fs::write(&damaged, &made[..HEADER_BYTES + RECORD_HEADER_BYTES + FRAME_BYTES / 2]).unwrap();
    fs::write(&many, made).unwrap();
    let mut captures: Vec<_> =
        laneway_testkit::captures().into_iter().map(|file| file.path).collect();
    captures.extend([many, damaged].map(PathBuf::from));
    for (level, profile) in [("packet", "core"), ("flow", "full")] {
        let mut figures = Vec::new();
        for format in FORMATS {
            let out = folder.file(&format!("{level}.{format}"));
            let options =
                ["features", "--json", "--level", level, "--profile", profile, "-o", &out];
            let output = RunOutput::of(command(options).args(&captures).output().unwrap());
            let json = output.json();
            // Ours, and perhaps others.
            assert_eq!(output.code, Some(2), "{output:?}");
            let damaged = json["damaged"].to_string();
            assert!(damaged.contains("damaged.pcap"), "{damaged}");
            assert_eq!(json["closed"], true);
            let rows = json["rows"].as_u64().unwrap();
            assert!(rows > 1000, "{rows} rows");
            check_file(&out, format, rows);
            figures.push((rows, json["ledger"].clone()));
        }
        assert!(figures.iter().all(|figure| *figure == figures[0]), "{figures:?}");
    }
    assert_eq!(folder.names().len(), 2 + 2 * FORMATS.len(), "{:?}", folder.names());
}

/// Checks what can be checked without a reader of the format (the app's own tests have those).
fn check_file(path: &str, format: &str, rows: u64) {
    let bytes = fs::read(path).unwrap();
    let lines = bytes.iter().filter(|&&b| b == b'\n').count() as u64;
    match format {
        "parquet" => assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1")),
        "arrow" => assert!(bytes.starts_with(b"ARROW1") && bytes.ends_with(b"ARROW1")),
        "arrows" => assert!(bytes.starts_with(&[0xff; 4]) && bytes.ends_with(&[0; 4])),
        "csv" => assert_eq!(lines, rows + 1),
        _ => assert_eq!(lines, rows),
    }
}

#[test]
fn rows_go_to_standard_output_unless_a_file_is_named() {
    let folder = Folder::new();
    let (capture, out) = (folder.file("a.pcap"), folder.file("o.csv"));
    fs::write(&capture, captures::udp(30)).unwrap();
    let printed = laneway(["features", &capture]).done();
    assert_eq!(printed.lines().len(), 31, "a header and a row per frame");
    assert!(printed.err.contains("frames seen"), "{}", printed.err);
    laneway(["features", &capture, "-o", &out]).done();
    assert_eq!(fs::read(&out).unwrap(), printed.out);

    let json = laneway(["features", &capture, "--json"]).done();
    assert_eq!(json.out, printed.out, "rows alone");
    let report: serde_json::Value = serde_json::from_str(&json.err).unwrap();
    assert_eq!(report["rows"], 30);
}

#[test]
fn running_twice_gives_the_same_file_and_nothing_else() {
    let folder = Folder::new();
    let (capture, out) = (folder.file("a.pcap"), folder.file("o.parquet"));
    fs::write(&capture, captures::udp(500)).unwrap();
    let run = || {
        laneway(["features", &capture, "-o", &out, "--workers", "2"]).done();
        fs::read(&out).unwrap()
    };
    assert_eq!(run(), run());
    assert_eq!(folder.names(), ["a.pcap", "o.parquet"]);
}

#[test]
fn what_is_left_out_as_asked_is_named_in_the_ledger() {
    let folder = Folder::new();
    let capture = folder.file("a.pcap");
    fs::write(&capture, captures::udp(100)).unwrap();
    let out = folder.file("o.csv");
    let sampled = laneway(["features", &capture, "-o", &out, "--json", "--sample", "10"]).done();
    let ledger = &sampled.json()["ledger"];
    assert_eq!((&ledger["delivered"], &ledger["drops"]["sampled_out"]), (&10.into(), &90.into()));

    let filter = ["--filter", "eth / ipv4 / udp src is 4003 / end", "--strict"];
    let line = ["features", &capture, "-o", &out, "--json"];
    let filtered = RunOutput::of(command(line).args(filter).output().unwrap()).done();
    let ledger = &filtered.json()["ledger"];
    assert_eq!((&ledger["delivered"], &ledger["drops"]["filtered_out"]), (&10.into(), &90.into()));

    let flows = laneway(["features", &capture, "-o", &out, "--json", "--level", "flow"]).done();
    assert_eq!(flows.json()["rows"], 10);
}

#[test]
fn plain_ip_behind_another_link_layer_becomes_rows_and_what_cannot_is_a_loss() {
    let folder = Folder::new();
    let out = folder.file("o.csv");
    let frame = UdpFrame::default().build();
    let raw = folder.file("raw.pcap");
    fs::write(&raw, captures::capture(LinkType::Raw, &[frame[14..].to_vec()])).unwrap();
    let output = laneway(["features", &raw, "-o", &out, "--json", "--strict"]).done();
    assert_eq!(output.json()["rows"], 1);

    let radio = folder.file("radio.pcap");
    fs::write(&radio, captures::capture(LinkType::Other(127), &[frame])).unwrap();
    let output = laneway(["features", &radio, "-o", &out, "--json"]);
    let json = output.json();
    assert_eq!(json["ledger"]["drops"]["link_type_unknown"], 1);
    let radiotap = "127 (IEEE 802.11 with a radiotap header)";
    assert_eq!(json["link_types_unknown"][radiotap], 1);
    output.refused(2, &["no frame could be read", radiotap]);
    let printed = laneway(["features", &radio, "-o", &out]);
    assert_eq!(printed.code, Some(2), "an empty file is no success");
    assert!(printed.err.contains(&format!("1 frames of link type {radiotap}")), "{}", printed.err);
    // Frames that are understood make a run, with or without others.
    let both = laneway(["features", &raw, &radio, "-o", &out]).done();
    assert!(both.err.contains(radiotap), "{}", both.err);
    let strict = laneway(["features", &radio, "-o", &out, "--strict"]);
    assert_eq!(strict.code, Some(1));
    assert!(strict.err.contains("--strict: lost 1 link_type_unknown"), "{}", strict.err);
}

#[test]
fn a_capture_that_is_cut_short_keeps_its_rows_and_the_code_says_so() {
    let folder = Folder::new();
    let (capture, out) = (folder.file("cut.pcap"), folder.file("o.csv"));
    let whole = captures::udp(100);
    let cut = HEADER_BYTES + 40 * (RECORD_HEADER_BYTES + FRAME_BYTES) + 5;
    fs::write(&capture, &whole[..cut]).unwrap();
    for strict in [&[][..], &["--strict"]] {
        let line = ["features", &capture, "-o", &out];
        let output = RunOutput::of(command(line).args(strict).output().unwrap());
        assert_eq!(output.code, Some(2));
        let sentence = output.err.lines().last().unwrap();
        for part in [&capture, "cut short at byte 3224", "the 40 complete", "kept"] {
            assert!(sentence.contains(part), "{part}: {sentence}");
        }
        check_file(&out, "csv", 40);
    }
    // The same on the lane that reads captures.
    let output = laneway(["run", "features", "--lane", "pcap", "--on", &capture, "-o", &out]);
    assert_eq!(output.code, Some(2), "{}", output.err);
    assert!(output.err.lines().last().unwrap().contains("cut short"), "{}", output.err);
    check_file(&out, "csv", 40);
    assert_eq!(folder.names(), ["cut.pcap", "o.csv"]);
}

#[test]
fn rows_of_a_cut_capture_say_in_their_file_that_they_are_not_all() {
    let folder = Folder::new();
    let capture = folder.file("cut.pcap");
    let whole = captures::udp(40);
    fs::write(&capture, &whole[..whole.len() - 1]).unwrap();
    for (name, is_marked) in [("o.parquet", true), ("o.arrow", true), ("o.csv", false)] {
        let out = folder.file(name);
        let output = laneway(["features", &capture, "-o", &out]);
        assert_eq!(output.code, Some(2), "{}", output.err);
        assert_eq!(output.err.contains("marked as incomplete"), is_marked, "{}", output.err);
        // Metadata is text in both formats.
        let bytes = fs::read(&out).unwrap();
        let marks = ["laneway.incomplete", "cut short"].map(str::as_bytes);
        let has = |mark: &[u8]| bytes.windows(mark.len()).any(|part| part == mark);
        assert_eq!(marks.map(has), [is_marked; 2], "{name}");
    }
}

#[test]
fn names_that_are_no_unicode_are_reported_as_json_all_the_same() {
    let folder = Folder::new();
    let name = |bytes: &[u8]| Path::new(&folder.file("")).join(OsStr::from_bytes(bytes));
    let (capture, out) = (name(b"a\xff.pcap"), name(b"o\xff.csv"));
    fs::write(&capture, captures::udp(3)).unwrap();
    let offline = command(["features", "--json", "-o"]).arg(&out).arg(&capture).output().unwrap();
    let json = RunOutput::of(offline).done().json();
    assert_eq!(json["rows"], 3);
    for name in [&json["captures"][0], &json["output"]] {
        assert!(name.as_str().unwrap().contains('\u{fffd}'), "{name}");
    }
    let plain = folder.file("a.pcap");
    fs::write(&plain, captures::udp(3)).unwrap();
    let live = command(["run", "features", "--lane", "pcap", "--json", "--on", &plain, "-o"])
        .arg(&out)
        .output()
        .unwrap();
    let json = RunOutput::of(live).done().json();
    assert!(json["output"].as_str().unwrap().contains('\u{fffd}'), "{json}");
}

#[test]
fn lane_pcap_and_the_offline_run_give_the_same_rows() {
    let folder = Folder::new();
    let (capture, all, one) = (folder.file("a.pcap"), folder.file("a.csv"), folder.file("b.csv"));
    fs::write(&capture, captures::udp(1000)).unwrap();
    for (level, first_packets) in [("packet", "0"), ("flow", "4")] {
        let level = ["--level", level, "--idle-timeout", "50ms", "--first-packets", first_packets];
        let offline = ["features", &capture, "-o", &all, "--workers", "1"];
        RunOutput::of(command(offline).args(level).output().unwrap()).done();
        let lane = ["run", "features", "--lane", "pcap", "--on", &capture, "-o", &one];
        RunOutput::of(command(lane).args(level).output().unwrap()).done();
        assert_eq!(sorted_lines(&all), sorted_lines(&one), "{level:?}");
    }
}

/// As `tcpdump -C` leaves them.
#[test]
fn parts_of_a_capture_are_marked_as_cut_and_can_be_joined() {
    let folder = Folder::new();
    let (first, second) = (folder.file("a.pcap"), folder.file("b.pcap"));
    fs::write(&first, captures::udp(30)).unwrap();
    fs::write(&second, captures::udp(30)).unwrap();
    let cut = laneway(["features", &first, &second, "--level", "flow"]).done();
    assert_eq!(cut.lines().len(), 1 + 20);
    assert!(cut.err.contains("--join"), "{}", cut.err);
    // The second part is stamped as the first: late, and in order.
    let joined = laneway(["features", &first, &second, "--level", "flow", "--join"]).done();
    assert_eq!(joined.lines().len(), 1 + 10);
    assert!(!joined.err.contains("--join"), "{}", joined.err);
    let json = laneway([
        "features",
        &first,
        "--level",
        "flow",
        "--json",
        "-o",
        "/dev/null",
        "--format",
        "csv",
    ]);
    assert_eq!(json.json()["ledger"]["disorder"]["steps"], 0, "{json:?}");
}

fn sorted_lines(path: &str) -> Vec<String> {
    let mut lines: Vec<String> =
        fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_run_quietly() {
    let folder = Folder::new();
    let capture = folder.file("a.pcap");
    // More rows than any pipe holds.
    fs::write(&capture, captures::udp(50_000)).unwrap();
    for format in FORMATS {
        let mut child = command(["features", &capture, "--format", format])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A reader that reads a little and goes.
        child.stdout.take().unwrap().read_exact(&mut [0; 4]).unwrap();
        let output = RunOutput::of(child.wait_with_output().unwrap());
        assert_eq!((output.code, output.err.as_str()), (Some(0), ""), "{format}");
    }
}

/// A run that was interrupted once while it waits for the rest of its capture, and its standard
/// error from there on.
fn interrupted(out: &str) -> (Child, BufReader<ChildStderr>) {
    let mut child = command(["features", "-", "-o", out])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.as_mut().unwrap().write_all(&captures::udp(20)).unwrap();
    // Before the one, SIGINT would end the program as it ends any; before the other, nothing would
    // be left to do.
    while !(catches_interrupt(&child) && reads_standard_input(&child)) {
        std::thread::yield_now();
    }
    interrupt(&child);
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    err.read_line(&mut line).unwrap();
    assert_eq!(line, "laneway: finishing; a second signal ends at once\n");
    (child, err)
}

fn interrupt(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).unwrap();
}

fn catches_interrupt(child: &Child) -> bool {
    const INTERRUPT_BIT: u64 = 1 << (2 - 1);
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & INTERRUPT_BIT != 0
}

/// The number of the system call `read`.
const READ: u32 = if cfg!(target_arch = "x86_64") { 0 } else { 63 };

/// True when a thread waits in `read` on descriptor 0.
fn reads_standard_input(child: &Child) -> bool {
    let tasks = fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
    let read = format!("{READ} 0x0 ");
    tasks.flatten().any(|task| {
        fs::read_to_string(task.path().join("syscall")).is_ok_and(|call| call.starts_with(&read))
    })
}

#[test]
fn the_first_interrupt_keeps_the_rows_so_far() {
    let folder = Folder::new();
    let (mut child, mut err) = interrupted(&folder.file("o.csv"));
    drop(child.stdin.take());
    let mut printed = String::new();
    err.read_to_string(&mut printed).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3), "{printed}");
    assert!(printed.lines().last().unwrap().contains("interrupted"), "{printed}");
    assert_eq!(folder.names(), ["o.csv"]);
}

#[test]
fn the_second_interrupt_ends_at_once_and_leaves_nothing() {
    let folder = Folder::new();
    let (mut child, _) = interrupted(&folder.file("o.csv"));
    // Kept open, so that its capture does not end: only the signal ends it.
    let _stdin = child.stdin.take();
    // One right behind the first is the same wish.
    std::thread::sleep(std::time::Duration::from_millis(600));
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(folder.names().is_empty(), "{:?}", folder.names());
}
