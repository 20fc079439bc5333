//! `laneway race --arm 'COMMAND'`: programs of others, raced like ours. These tests ask whether every datagram is
//! accounted for, what is reported of a program that does wrong, and that nothing of it stays, never how fast it is.

#![expect(clippy::print_stdout, reason = "a skipped test says why")]

mod shipped;
mod turn;

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use turn::Turn;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guide/any-program");
/// How long a start may take on a busy host, and an end that nothing hurries.
const PATIENCE: Duration = Duration::from_secs(60);

/// Races UDP echo between the plain socket and `arm`.
fn race(folder: &Path, arm: &str) -> Output {
    let mut command = shipped::race(folder, "udp-echo", &[]);
    command.args(["--lane", "socket", "--arm", arm, "--load", "2000"]);
    command
        .args(["--generations", "2", "--rounds", "2", "--segment-ms", "100"])
        .output()
        .expect("the program starts")
}

fn has_python() -> bool {
    let output = Command::new("python3").arg("--version").output();
    let is_there = output.is_ok_and(|output| output.status.success());
    if !is_there {
        println!("skipped: no python3 in PATH");
    }
    is_there
}

/// Processes whose command line has this mark, the race's own left out.
fn with_mark(mark: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").expect("it lists").flatten();
    let lines = entries.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.contains(mark) && !line.contains("\0race\0")).collect()
}

/// Kills whatever runs a verb of ours with this word in its environment.
fn kill_children(word: &str) {
    for entry in fs::read_dir("/proc").expect("it lists").flatten() {
        let read = |file: &str| fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        let is_ours =
            ["\0arm\0", "\0generate\0"].iter().any(|verb| read("cmdline").ends_with(verb));
        let id = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(id) = id.and_then(Pid::from_raw).filter(|_| is_ours)
            && read("environ").split('\0').any(|other| other == word)
        {
            // It may have ended.
            let _ = kill_process(id, Signal::KILL);
        }
    }
}

fn wait(mut is_so: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        if Instant::now() > until {
            return false;
        }
        thread::sleep(Duration::from_millis(50));
    }
    true
}

#[test]
fn a_python_server_is_raced_and_every_datagram_is_accounted_for() {
    let Some(turn) = Turn::new("command-echo") else { return };
    if !has_python() {
        return;
    }
    let arm = format!("python3 {EXAMPLES}/echo.py {{address}} {{port}}");
    let output = race(&turn.folder, &arm);
    assert!(output.status.code().is_some_and(|code| code != 2), "{output:?}");
    let result = turn.result("");
    let names: Vec<&str> = result.arms.iter().map(|arm| arm.name.as_str()).collect();
    assert_eq!(names, ["socket", "socket again", "python3 echo.py"]);
    let facts = &result.arms[2].caps.facts;
    let ready = "it listens on UDP 10.77.0.2:7000; datagrams of 64 bytes were returned unchanged";
    assert_eq!(facts["ready"], ready);
    assert!(facts["program"].ends_with("echo.py 10.77.0.2 7000"), "{facts:?}");
    for segment in &result.segments {
        let (name, ledger) = (names[segment.arm], &segment.ledger);
        assert!(ledger.is_closed() && ledger.delivered > 0, "{name}: {ledger:?}");
        assert!(segment.memory.rss_bytes > 0, "{name}");
        if segment.arm == 2 {
            assert!(segment.cpu.contexts_ns["arm"] > 0, "{:?}", segment.cpu);
            assert_eq!(segment.wire_to_app.and_then(|latency| latency.p50_ns), None);
        }
    }
    let open = |why: &&String| why.contains("ledger is open") || why.contains("twice");
    assert_eq!(result.invalid.iter().find(open), None);
    let page = fs::read_to_string(turn.folder.join("report.html")).expect("it is written");
    assert!(page.contains("python3 echo.py") && page.contains("were returned unchanged"));
}

#[test]
fn servers_that_are_compiled_are_raced_in_one_race() {
    let Some(turn) = Turn::new("command-compiled") else { return };
    let [c, go] = ["echo-c", "echo-go"].map(|name| turn.folder.join(name));
    let mut arms = Vec::new();
    if is_built(Command::new("cc").args(["-O2", "-o"]).arg(&c).arg(format!("{EXAMPLES}/echo.c"))) {
        arms.push(format!("{} {{address}} {{port}}", c.display()));
    }
    let mut compiler = Command::new("go");
    compiler.args(["build", "-o"]).arg(&go).arg(format!("{EXAMPLES}/echo.go"));
    // What it makes of its own library stays in the target folder, for the next time.
    compiler.env("GOCACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/go")).env("GO111MODULE", "off");
    if is_built(&mut compiler) {
        arms.push(format!("{} --listen {{address}}:{{port}}", go.display()));
    }
    if arms.is_empty() {
        return;
    }
    let result = {
        let mut command = shipped::race(&turn.folder, "udp-echo", &[]);
        command.args(["--lane", "socket", "--load", "2000", "--generations", "2", "--rounds", "1"]);
        for arm in &arms {
            command.args(["--arm", arm]);
        }
        let output = command.args(["--segment-ms", "100"]).output().expect("the program starts");
        assert!(output.status.code().is_some_and(|code| code != 2), "{output:?}");
        turn.result("")
    };
    assert_eq!(result.arms.len(), 2 + arms.len());
    for segment in &result.segments {
        let (name, ledger) = (&result.arms[segment.arm].name, &segment.ledger);
        assert!(ledger.is_closed() && ledger.delivered > 0, "{name}: {ledger:?}");
    }
}

/// Whether the compiler is there; one that is must be able to build.
fn is_built(compiler: &mut Command) -> bool {
    let name = compiler.get_program().to_string_lossy().into_owned();
    let Ok(output) = compiler.output() else {
        println!("skipped: there is no {name} in PATH");
        return false;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    true
}

#[test]
fn what_a_program_received_is_reported_by_its_counter() {
    let Some(turn) = Turn::new("command-count") else { return };
    if !has_python() {
        return;
    }
    let mut command = shipped::race(&turn.folder, "lanes", &[("burst = 64", "burst = 16")]);
    let arm = format!("python3 {EXAMPLES}/count.py {{address}} {{port}}");
    command.args(["--variant", "count-64", "--lane", "socket:rcvbuf=4m", "--arm", &arm]);
    let output = command
        .args(["--load", "2000", "--generations", "2", "--rounds", "2", "--segment-ms", "100"])
        .output();
    let output = output.expect("the program starts");
    assert!(output.status.code().is_some_and(|code| code != 2), "{output:?}");
    let result = turn.result("count-64");
    for segment in &result.segments {
        let (name, ledger) = (&result.arms[segment.arm].name, &segment.ledger);
        assert!(ledger.is_closed() && ledger.delivered > 0, "{name}: {ledger:?}");
    }
    // At this load no arm loses any, so a counter that was read too early would show.
    let of_program = result.segments.iter().filter(|segment| segment.arm == 2);
    let lost: u64 = of_program.map(|segment| segment.ledger.dropped()).sum();
    assert_eq!(lost, 0);
}

/// Receives, and does not report how much.
const SILENT: &str = "import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], int(sys.argv[2])))
while True:
    s.recv(65535)
";

#[test]
fn a_program_that_does_not_count_is_raced_for_its_cpu_time_alone() {
    let Some(turn) = Turn::new("command-silent") else { return };
    if !has_python() {
        return;
    }
    let script = turn.folder.join("silent.py");
    fs::write(&script, SILENT).expect("writable");
    let arm = format!("python3 {} {{address}} {{port}}", script.display());
    let race = |option: &str| {
        let mut command = shipped::race(&turn.folder, "lanes", &[("burst = 64", "burst = 16")]);
        command.args(["--variant", "count-64", "--lane", "socket:rcvbuf=4m", option, &arm]);
        let load = ["--load", "2000", "--generations", "3", "--rounds", "1", "--segment-ms", "100"];
        command.args(load).output().expect("the program starts")
    };
    let output = race("--arm-uncounted");
    assert!(output.status.code().is_some_and(|code| code != 2), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stdout).replace("\n      ", " ");
    assert!(printed.contains("[per offered] python3 silent.py: "), "{printed}");
    assert!(printed.contains("CPU per offered packet (delivered: unknown)"), "{printed}");
    let result = turn.result("count-64");
    assert!(result.arms[2].delivered_unknown && !result.arms[1].delivered_unknown);
    for segment in &result.segments {
        let (ledger, is_silent) = (&segment.ledger, segment.arm == 2);
        assert!(ledger.is_closed() && ledger.unknown.is_some() == is_silent, "{ledger:?}");
        let ns = segment.cpu.ns_per_record.expect("something was offered");
        let paid_for = if is_silent { ledger.offered } else { ledger.delivered };
        assert!((ns * paid_for as f64 - segment.cpu.own_ns as f64).abs() < 1.0, "{segment:?}");
    }
    let metrics = |arm: usize| {
        let of = result.findings.iter().filter(move |finding| finding.arm == arm);
        of.map(|finding| finding.metric.as_str()).collect::<Vec<_>>()
    };
    assert!(metrics(1).contains(&"records/s") && metrics(1).contains(&"loss"));
    assert!(metrics(2).contains(&"CPU per record"), "{:?}", metrics(2));
    assert!(!metrics(2).contains(&"records/s") && !metrics(2).contains(&"loss"));
    assert!(
        result
            .notes
            .iter()
            .any(|note| note.contains("delivered is unknown of `python3 silent.py`"))
    );

    let refused = race("--arm");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(why.contains("printed no counter") && why.contains("--arm-uncounted"), "{why}");
}

/// Answers pings on the interface that it is given, by frames.
const RESPONDER: &str = "import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
s.bind((sys.argv[1], 0x0800))
while True:
    frame, (_, _, kind, _, _) = s.recvfrom(65535)
    if kind == socket.PACKET_OUTGOING or frame[23] != 1 or frame[34] != 8:
        continue
    f = bytearray(frame)
    f[0:6], f[6:12], f[26:30], f[30:34], f[34] = f[6:12], f[0:6], f[30:34], f[26:30], 0
    total = int.from_bytes(f[36:38], 'big') + 0x0800
    f[36:38] = ((total & 0xffff) + (total >> 16)).to_bytes(2, 'big')
    s.send(f)
";
/// Sends what comes in by the first interface out by the second.
const FORWARDER: &str = "import socket, sys
a, b = (socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) for _ in range(2))
a.bind((sys.argv[1], 3))
b.bind((sys.argv[2], 3))
while True:
    b.send(a.recv(65535))
";

#[test]
fn a_program_answers_pings_in_place_of_the_kernel_which_answers_again_behind_it() {
    let Some(turn) = Turn::new("command-ping") else { return };
    if !has_python() {
        return;
    }
    let changes = [
        ("pings = 250", "pings = 0"),
        ("ping_load_pps = 50_000", "ping_load_pps = 0"),
        ("capacity_steps = 10", "capacity_steps = 0"),
    ];
    let mut command = shipped::race(&turn.folder, "ping", &changes);
    let arm = format!("python3 -c \"{RESPONDER}\" {{interface}}");
    command.args(["--variant", "live", "--lane", "kernel", "--arm", &arm, "--load", "500"]);
    let output =
        command.args(["--generations", "2", "--rounds", "2", "--segment-ms", "200"]).output();
    let output = output.expect("the program starts");
    assert!(output.status.code().is_some_and(|code| code != 2), "{output:?}");
    let result = turn.result("live");
    assert_eq!(result.arms[2].name, "python3");
    for segment in &result.segments {
        let (name, ledger) = (&result.arms[segment.arm].name, &segment.ledger);
        assert!(ledger.is_closed() && ledger.duplicates == 0, "{name}: {ledger:?}");
        assert!(ledger.delivered > 0, "{name}: {ledger:?}");
    }
}

#[test]
fn a_program_forwards_between_two_interfaces() {
    let Some(turn) = Turn::new("command-forward") else { return };
    if !has_python() {
        return;
    }
    let mut command = shipped::race(&turn.folder, "forward", &[("burst = 64", "burst = 16")]);
    let arm = format!("python3 -c \"{FORWARDER}\" {{port0}} {{port1}}");
    command.args(["--variant", "live", "--lane", "bridge", "--arm", &arm, "--load", "500"]);
    let output =
        command.args(["--generations", "2", "--rounds", "2", "--segment-ms", "200"]).output();
    let output = output.expect("the program starts");
    assert!(output.status.code().is_some_and(|code| code != 2), "{output:?}");
    let result = turn.result("live");
    for segment in &result.segments {
        let (name, ledger) = (&result.arms[segment.arm].name, &segment.ledger);
        assert!(ledger.is_closed() && ledger.delivered > 0, "{name}: {ledger:?}");
        assert_eq!((ledger.duplicates, ledger.foreign), (0, 0), "{name}: {ledger:?}");
    }
}

#[test]
fn a_program_that_cannot_be_an_arm_ends_the_race_with_a_sentence() {
    let Some(turn) = Turn::new("command-wrong") else { return };
    for (arm, parts) in [
        ("no-such-server {port}", &["command of arm `no-such-server`", "in PATH; install it"][..]),
        ("cat {prot}", &["command of arm `cat`", "did you mean `{port}`", "{address}, {port}"]),
        ("", &["command", "empty"]),
        ("cat 'x", &["left open"]),
        ("sh -c 'echo no config; exit 3'", &["arm `sh`", "exit status 3", "its output: no config"]),
        ("cat {address} {port}", &["arm `cat`", "No such file or directory"]),
    ] {
        let output = race(&turn.folder, arm);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arm}: {printed}");
        for part in parts {
            assert!(printed.contains(part), "{arm}: {printed}");
        }
    }
}

#[test]
fn nothing_of_a_program_outlives_a_race_that_is_killed() {
    let Some(turn) = Turn::new("command-killed") else { return };
    if !has_python() {
        return;
    }
    let mark = format!("mark-of-{}", std::process::id());
    // A process that left its parent and its session, and hears no request to end.
    let text = "import os, signal, socket, sys, time
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        time.sleep(6000)
    os._exit(0)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], int(sys.argv[2])))
while True:
    data, peer = s.recvfrom(65535)
    s.sendto(data, peer)
";
    // In place of the base, so that it comes first in any order.
    let arm = format!(
        "name = 'mine'\ncommand = '''python3 -c \"{text}\" {{address}} {{port}} {mark}'''\nnote"
    );
    let changes = [("lane = \"socket\"\nnote", arm.as_str())];
    let mut command = shipped::race(&turn.folder, "udp-echo", &changes);
    // Busy for longer than this test waits.
    command.args([
        "--lane",
        "mine",
        "--generations",
        "2",
        "--rounds",
        "2",
        "--segment-ms",
        "600000",
        "--load",
        "100",
    ]);
    command.env("LANEWAY_COMMANDS_TEST", &mark);
    let log = turn.folder.join("stderr");
    let errors = fs::File::create(&log).expect("writable");
    let mut race = command.stdout(Stdio::null()).stderr(errors).spawn().expect("it starts");
    // What it runs in, itself, and the one that left.
    let began = wait(|| with_mark(&mark).len() >= 4);
    // The process that keeps the program has no time to end it.
    kill_children(&format!("LANEWAY_COMMANDS_TEST={mark}"));
    race.kill().expect("it is our child");
    race.wait().expect("it is our child");
    assert!(began, "it was never started: {}", fs::read_to_string(log).unwrap_or_default());
    assert!(wait(|| with_mark(&mark).is_empty()), "{:?}", with_mark(&mark));
}
