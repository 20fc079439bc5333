//! Everything that can be wrong with what was asked: exit 2, one sentence with the value and what to
//! try, and nothing left behind.

use crate::captures;
use crate::live::as_unprivileged;
use crate::output::{Folder, LANEWAY, RunOutput, command, laneway, words};
use laneway_netns::can_create;
use laneway_testkit::skip;
use std::fs::{self, File};
use std::io::Write;
use std::process::{Command, Stdio};

#[test]
fn wrong_words_are_answered_with_the_nearest_right_ones() {
    for (line, parts) in [
        ("featurs a.pcap", &["'featurs'", "'features'", "`laneway --help`"][..]),
        ("run feature --lane packet", &["'feature'", "'features'", "`laneway run --help`"]),
        ("run features --lane pakcet --on lo", &["`pakcet`", "did you mean `packet`?"]),
        ("run features --lane packet:rng --on lo", &["`rng`", "did you mean `ring`?"]),
        ("run features --lane packet:burst=0 --on lo", &["burst=0", "from 1 to"]),
        ("run features --lane : --on lo", &["':'", "LANE[:KNOB"]),
        ("run features --lane packet", &["packet needs --on", "--on IFACE", "lane pcap"]),
        ("run features --on lo", &["--lane <SPEC>", "`laneway run features --help`"]),
        ("run features --lane packet --on lo --drop --pass", &["'--drop'", "'--pass'"]),
        ("features a.pcap --format parket", &["'parket'", "'parquet'"]),
        ("features a.pcap --leve flow", &["'--leve'", "'--level'"]),
        ("features a.pcap --sample 0", &["0", "--sample", "`laneway features --help`"]),
        ("features a.pcap --idle-timeout 0", &["'0'", "more than 0"]),
        ("features a.pcap --active-timeout often", &["'often'", "or never"]),
        ("features a.pcap --end-timeout 3m", &["180000000000 ns", "idle timeout"]),
        ("features a.pcap --join", &["--join", "--level flow"]),
        ("features a.pcap --first-packets 33", &["33", "32"]),
        ("features a.pcap --first-packets 8", &["--first-packets cannot", "--level flow"]),
        ("features a.pcap --profile full", &["--profile full cannot", "--level flow"]),
        (
            "run features --lane xdp --on lo --level flow --in-kernel --first-packets 8",
            &["--first-packets cannot", "--in-kernel"],
        ),
        ("features a.pcap --flows-max 4000000000", &["4000000000", "use"]),
        ("features a.pcap -o rows.txt", &["rows.txt", "--format"]),
        ("run features --lane packet --on lo --workers 65", &["65", "--workers", "1..=64"]),
        ("run features --lane packet --on lo --workers 2 --cpu 1", &["'--cpu", "'--workers"]),
        ("run features --lane packet --on lo --cpus 7-4", &["'7-4'", "4 comes before 7"]),
        ("run features --lane packet --on lo --cpus x", &["'x'", "0,2 or 4-7"]),
        ("run features --lane packet --on lo --workers 3 --cpus 0,1", &["--workers 3", "2 CPUs"]),
        ("run features --lane packet --on lo --cpus 0,0", &["CPU 0", "given twice"]),
        ("run ecko --lane packet", &["'ecko'", "'echo'", "`laneway run --help`"]),
        ("run echo --lane pcket --on lo --address 10.0.0.9", &["did you mean `packet`?"]),
        ("run echo --lane packet --on lo --addres 10.0.0.9", &["'--addres'", "'--address'"]),
        ("run echo --lane packet --on lo --address 10.0.0.999", &["'10.0.0.999'", "--address"]),
        (
            "run echo --lane packet --on lo --mac 02:00:00:00:00:09 --address 224.0.0.1",
            &["224.0.0.1"],
        ),
        ("run echo --lane packet --on lo --address 10.0.0.9 --mac 1:2", &["'1:2'", "02:00:00"]),
        ("run echo --lane packet --on lo", &["--on IFACE", "--address ADDR", "--udp"]),
        ("run echo --lane packet --address 10.0.0.9", &["--on IFACE", "--listen ADDR:PORT"]),
        ("run echo --lane packet --on lo --address 10.0.0.9", &["`lo`", "--mac"]),
        ("run echo --lane packet --on lp --address 10.0.0.9", &["`lp`", "did you mean `lo`?"]),
        ("run echo --lane pcap --on a.pcap --address 10.0.0.9", &["`a.pcap`", "--mac"]),
        (
            "run echo --lane socket --address 10.0.0.9",
            &["`socket`", "socket:raw", "--udp or --tcp"],
        ),
        (
            "run echo --lane socket:raw=icmp --address 127.0.0.1",
            &["`socket:raw=icmp`", "socket:raw "],
        ),
        ("run echo --lane socket:rwa --address 10.0.0.9", &["socket:raw"]),
        ("run echo --lane socket:raw,mut --address 10.0.0.9", &["`mut`", "did you mean `mute`?"]),
        ("run echo --lane socket:raw,ttl=0 --address 10.0.0.9", &["ttl=0", "from 1 to 255"]),
        ("run echo --lane socket:raw", &["--address ADDR"]),
        ("run echo --lane socket:raw --on lo --address 10.0.0.9", &["--on cannot", "kernel's"]),
        ("run echo --lane socket:raw --ttl 9 --address 10.0.0.9", &["--ttl cannot", "ttl=N"]),
        ("run echo --lane socket:raw --udp --listen 127.0.0.1:7", &["leave --udp out", "raw"]),
        (
            "run echo --lane packet --on lo --address 10.0.0.9 --before 7",
            &["--before cannot", "xdp"],
        ),
        ("run echo --lane xdp --on lo --address 10.0.0.9 --before 7", &["`lo`", "--mac"]),
        ("run echo --lane socket --udp", &["--listen ADDR:PORT"]),
        ("run echo --lane socket --udp --listen 127.0.0.1", &["'127.0.0.1'", "--listen"]),
        ("run echo --lane socket --udp --tcp --listen 127.0.0.1:7", &["'--udp'", "'--tcp'"]),
        ("run echo --lane socket --udp --on lo --listen 127.0.0.1:7", &["--on cannot", "kernel's"]),
        ("run echo --lane uring --tcp --ttl 9 --listen 127.0.0.1:7", &["--ttl cannot", "kernel's"]),
        ("run echo --lane socket --tcp --source-rate 9 --listen 127.0.0.1:7", &["conns="]),
        ("run echo --lane socket --udp --no-neighbours --listen 127.0.0.1:7", &["--no-neighbours"]),
        ("run echo --lane xdp --on lo --tcp --listen 10.0.0.9:7", &["lane xdp has no streams"]),
        ("run echo --lane pcap --on lo --udp --listen 10.0.0.9:7", &["lane pcap has no datagrams"]),
        ("run echo --lane afxdp --udp --listen 10.0.0.9:7", &["--on IFACE"]),
        ("run echo --lane afxdp --udp --on lo --listen 0.0.0.0:7", &["--address ADDR"]),
        (
            "run echo --lane packet --on lo --address 10.0.0.9 --listen 10.0.0.9:7",
            &["--udp or --tcp"],
        ),
        ("run echo --lane packet --on lo --address 10.0.0.9 --source-rate 0", &["'0'", "500/50"]),
        ("run echo --lane packet --on lo --address 10.0.0.9 --ttl 0", &["0", "--ttl"]),
        ("features", &["Extract"][..0]),
        ("completions csh", &["'csh'", "bash"]),
    ] {
        let output = laneway(words(line));
        match parts {
            [] => assert_eq!(output.code, Some(2), "{line}"),
            parts => output.refused(2, parts),
        }
        assert!(output.out.is_empty(), "{line}");
    }
}

#[test]
fn a_wrong_filter_is_refused_with_its_place() {
    laneway(["features", "a.pcap", "--filter", "eth / ipv5 / end"])
        .refused(2, &["'eth / ipv5 / end', column 7", "did you mean `ipv4`?"]);
}

#[test]
fn what_is_no_capture_is_refused_before_anything_is_written() {
    let folder = Folder::new();
    let (good, text, out) = (folder.file("a.pcap"), folder.file("notes"), folder.file("o.csv"));
    fs::write(&good, captures::udp(3)).unwrap();
    fs::write(&text, "dear diary").unwrap();
    let empty = folder.file("empty");
    fs::write(&empty, "").unwrap();
    let missing = folder.file("gone.pcap");
    let here = folder.path().to_str().unwrap();
    for (bad, parts) in [
        (text.as_str(), &[text.as_str(), "not a capture", "pcapng"][..]),
        (&empty, &[&empty, "not a capture"]),
        (&missing, &[&missing, "No such file", "check"]),
        (here, &[here, "directory"]),
    ] {
        // The good one does not help: one output, all or nothing.
        laneway(["features", &good, bad, "-o", &out]).refused(2, parts);
        assert_eq!(folder.names(), ["a.pcap", "empty", "notes"], "{bad}");
    }
    laneway(["run", "features", "--lane", "pcap", "--on", &text, "-o", &out])
        .refused(2, &[&text, "not a capture"]);
    laneway(["run", "features", "--lane", "pcap", "--on", &missing, "-o", &out])
        .refused(2, &[&missing]);
    assert_eq!(folder.names(), ["a.pcap", "empty", "notes"]);
}

#[test]
fn standard_input_that_is_no_capture_is_refused_before_anything_is_written() {
    let folder = Folder::new();
    let mut child = command(["features", "-", "-o", &folder.file("o.csv")])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"dear diary, today").unwrap();
    RunOutput::of(child.wait_with_output().unwrap()).refused(2, &["-: not a capture"]);
    assert!(folder.names().is_empty());
}

#[test]
fn an_output_that_cannot_be_written_is_named() {
    let folder = Folder::new();
    let capture = folder.file("a.pcap");
    fs::write(&capture, captures::udp(3)).unwrap();
    let nowhere = folder.file("no/such/o.csv");
    laneway(["features", &capture, "-o", &nowhere]).refused(2, &[&nowhere, "create the folder"]);
    let here = folder.path().to_str().unwrap();
    laneway(["features", &capture, "-o", here, "--format", "csv"])
        .refused(2, &[here, "cannot create"]);
    laneway(["features", &capture, "-o", &capture, "--format", "csv"])
        .refused(2, &[&capture, "would replace the capture"]);
    let line = ["run", "features", "--lane", "pcap", "--on", &capture, "-o", &capture];
    laneway([&line[..], &["--format", "csv"]].concat())
        .refused(2, &[&capture, "would replace the capture"]);
    assert_eq!(fs::read(&capture).unwrap(), captures::udp(3), "untouched");
    assert_eq!(folder.names(), ["a.pcap"]);
}

#[test]
fn a_place_that_one_may_not_write_to_is_named() {
    let folder = Folder::new();
    let (capture, out) = (folder.file("a.pcap"), folder.file("o.parquet"));
    fs::write(&capture, captures::udp(3)).unwrap();
    let Some(mut unprivileged) = as_unprivileged(&["features", &capture, "-o", &out]) else {
        return;
    };
    RunOutput::of(unprivileged.output().unwrap()).refused(2, &[&out, "denied", "may write to"]);
    assert_eq!(folder.names(), ["a.pcap"]);
}

#[test]
fn a_full_disk_ends_the_run_and_leaves_nothing_on_it() {
    let folder = Folder::new();
    let capture = folder.file("a.pcap");
    fs::write(&capture, captures::udp(20_000)).unwrap();

    for format in ["parquet", "arrow", "arrows", "csv", "jsonl"] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = command(["features", &capture, "--format", format]).stdout(full).output();
        RunOutput::of(output.unwrap())
            .refused(2, &["-: cannot write", "No space left", "free some"]);
    }

    if let Err(why) = can_create() {
        return skip(why);
    }
    let disk = folder.file("disk");
    fs::create_dir(&disk).unwrap();
    for format in ["parquet", "arrow", "arrows", "csv", "jsonl"] {
        // Mounted for this child alone.
        let script = format!(
            "mount -t tmpfs -o size=64k tmpfs {disk} && \
             {LANEWAY} features {capture} -o {disk}/o --format {format}; code=$?; ls -A {disk}; exit $code"
        );
        let output =
            Command::new("unshare").args(["--mount", "sh", "-c", &script]).output().unwrap();
        let output = RunOutput::of(output);
        output.refused(2, &["/o: cannot write", "No space left"]);
        assert!(output.out.is_empty(), "{format} left {}", String::from_utf8_lossy(&output.out));
    }
}

#[test]
fn a_trace_that_cannot_be_written_does_not_keep_back_the_account() {
    let folder = Folder::new();
    let (capture, traced) = (folder.file("a.pcap"), folder.file("t"));
    fs::write(&capture, captures::udp(30)).unwrap();
    // No file may grow, as on a full disk.
    let script = format!(
        "trap '' XFSZ; ulimit -f 0; \
         exec {LANEWAY} run features --lane pcap --on {capture} --trace {traced}"
    );
    let output = RunOutput::of(Command::new("sh").args(["-c", &script]).output().unwrap());
    assert_eq!(output.code, Some(2), "{}", output.err);
    assert_eq!(output.lines().len(), 31, "a header and a row per frame");
    assert!(output.err.contains("frames seen"), "{}", output.err);
    let last = output.err.lines().last().unwrap();
    assert!(last.contains("worker-0.lwt") && last.contains("make room"), "{}", output.err);
}

#[test]
fn interfaces_that_cannot_be_used_are_named_and_nothing_is_left() {
    if let Err(why) = can_create() {
        return skip(why);
    }
    let folder = Folder::new();
    let out = folder.file("o.csv");
    let run = |spec: &str, on: &str| {
        let line = ["run", "features", "--lane", spec, "--on", on, "-o", &out, "--pass"];
        laneway([&line[..], &["--duration", "1ms"]].concat())
    };
    for spec in ["packet", "packet:ring", "xdp", "afxdp"] {
        run(spec, "nosuch0").refused(2, &[spec.split(':').next().unwrap(), "`nosuch0`", "ip link"]);
    }
    run("packet", "l0").refused(2, &["`l0`", "did you mean `lo`?"]);
    run("xdp", "lo").refused(2, &["native-xdp", "allow=native-xdp"]);
    run("sim", "x").refused(2, &["sim", "use lane pcap"]);
    let routes = Command::new("ip").args(["route", "show", "default"]).output().unwrap();
    let routes = String::from_utf8(routes.stdout).unwrap();
    if let Some(outside) = routes.split_whitespace().skip_while(|word| *word != "dev").nth(1) {
        for spec in ["packet", "xdp", "afxdp"] {
            run(spec, outside).refused(2, &[outside, "default route", "--force"]);
        }
    }
    let cpu = ["run", "features", "--lane", "packet", "--on", "lo", "--cpu", "9999", "-o", &out];
    laneway(cpu).refused(2, &["no CPU `9999`"]);
    assert!(folder.names().is_empty(), "{:?}", folder.names());
}

#[test]
fn only_lane_xdp_puts_flows_together_in_the_kernel() {
    for line in [
        "run features --lane packet --on lo --in-kernel --level flow",
        "run features --lane xdp --on lo --in-kernel",
    ] {
        laneway(words(line)).refused(2, &["--in-kernel", "use --lane xdp --level flow"]);
    }
}

#[test]
fn a_lane_on_which_passing_has_a_price_asks_for_pass_or_drop() {
    let line = "run features --lane afxdp --on lo";
    laneway(words(line)).refused(2, &["afxdp", "one BPF_PROG_RUN", "--drop", "--pass"]);
}

#[test]
fn without_privilege_each_lane_says_what_it_needs() {
    let folder = Folder::new();
    for spec in ["packet", "packet:ring", "xdp:generic", "afxdp"] {
        let out = format!("/tmp/laneway-cli-unprivileged-{}.csv", std::process::id());
        let line = ["run", "features", "--lane", spec, "--on", "lo", "-o", &out, "--drop"];
        let Some(mut unprivileged) = as_unprivileged(&line) else { return };
        RunOutput::of(unprivileged.output().unwrap())
            .refused(2, &[spec.split(':').next().unwrap(), "root"]);
        for name in [out.clone(), format!("{out}.partial")] {
            assert!(!fs::exists(&name).unwrap(), "{name} is left");
        }
    }
    drop(folder);
}
