//! `laneway race tcp-echo`: a client asks over TCP connections, on our lanes and of programs of others. These tests ask
//! whether every request is accounted for and every wrong answer seen, never how fast: a host that is busy leaves
//! segments out and the ledgers closed.

#![expect(clippy::print_stdout, reason = "a skipped test says why")]

mod turn;

use laneway_lab::result::{Ledger, RaceResult, Segment};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use turn::Turn;

/// In the closed loop, and at a rate.
const CLAIMS: &str = r#"
[[claim]]
says = "a stack in user space answers as many"
test = { metric = "records/s", arm = "packet", over = "socket", at_least = 1.0 }

[[claim]]
says = "a thousandth of a second is enough"
test = { metric = "p50 rtt", arm = "packet", load_pps = 500, at_most = 1_000_000 }
"#;

/// Runs a variant of the shipped scenario, shortened and less patient with a busy host.
fn race(turn: &Turn, variant: &str, more: &[&str]) -> Output {
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/tcp-echo.toml");
    let mut text = std::fs::read_to_string(shipped).expect("it ships");
    for (theirs, ours) in [
        ("late_p99_us_max = 300", "late_p99_us_max = 10_000_000\nothers_max = 1_000.0"),
        ("loads_pps = [5_000]", "loads_pps = [500]"),
        ("connections = 10\n", "connections = 10\ntimeout_ms = 5_000\n"),
        ("connections = 1_000,", "connections = 1_000, timeout_ms = 20_000,"),
    ] {
        assert!(text.contains(theirs), "the scenario has no {theirs}");
        text = text.replacen(theirs, ours, 1);
    }
    let scenario = turn.folder.join("scenario.toml");
    std::fs::write(&scenario, text + CLAIMS).expect("writable");
    let mut command = Command::new(env!("CARGO_BIN_EXE_laneway"));
    command.arg("race").arg(scenario).args(["--variant", variant, "--out"]).arg(&turn.folder);
    command.args(["--generations", "2", "--rounds", "1", "--segment-ms", "50"]);
    command.args(more).output().expect("the program starts")
}

/// The outcome of a race that ran to its end.
fn raced(turn: &Turn, variant: &str, more: &[&str]) -> RaceResult {
    let output = race(turn, variant, more);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code().is_some_and(|code| code != 2), "{printed}");
    turn.result(variant)
}

/// Segments of the arm whose name begins so.
fn segments<'a>(result: &'a RaceResult, name: &str) -> Vec<&'a Segment> {
    let arm = result.arms.iter().rposition(|arm| arm.name.starts_with(name)).expect("it raced");
    result.segments.iter().filter(|segment| segment.arm == arm).collect()
}

/// Every ledger is closed, and all that was asked was answered.
fn all_is_answered(result: &RaceResult) {
    assert_eq!(result.invalid, Vec::<String>::new());
    for segment in &result.segments {
        let (ledger, name) = (&segment.ledger, &result.arms[segment.arm].name);
        assert!(ledger.is_closed() && ledger.offered > 0, "{name}: {ledger:?}");
        assert_eq!((ledger.delivered, ledger.foreign), (ledger.offered, 0), "{name}: {ledger:?}");
        assert_eq!(segment.rtt.expect("it was asked").summary.n, ledger.delivered);
        assert!(segment.cpu.own_ns > 0 && segment.cpu.generator_side_ns > 0, "{name}");
    }
}

fn python(script: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/any-program");
    format!("python3 {} {{address}} {{port}}", path.join(script).display())
}

fn has(program: &str) -> bool {
    let is_there = Command::new(program).arg("--version").output().is_ok();
    if !is_there {
        println!("skipped: there is no {program}");
    }
    is_there
}

#[test]
fn what_is_asked_over_connections_is_answered_on_every_kind_of_lane() {
    let Some(turn) = Turn::new("tcp-lanes") else { return };
    let result = raced(&turn, "c10", &[]);
    all_is_answered(&result);
    let names: Vec<&str> = result.arms.iter().map(|arm| arm.name.as_str()).collect();
    assert!(
        names.starts_with(&["socket", "socket again"]) && names.contains(&"packet"),
        "{names:?}"
    );
    assert!(result.closed_loop && result.loads_pps.len() == 2, "{:?}", result.loads_pps);
    // Half a request per ms in the open loop; in the closed loop what each arm answers.
    for segment in result.segments.iter().filter(|segment| segment.load == 0) {
        assert_eq!((segment.ledger.offered, segment.connections.unwrap().open), (25, 10));
    }
    let commands = result.arms.iter().map(|arm| &arm.caps.facts["command"]);
    assert!(
        commands.clone().all(|it| it.contains("--tcp --listen 10.77.0.3:7000")),
        "{commands:?}"
    );
    let report = std::fs::read_to_string(turn.folder.join("c10/report.md")).expect("it is written");
    let tests: Vec<&str> = result.claims.iter().map(|claim| claim.test.as_str()).collect();
    let wanted = [
        "records/s of packet in the closed loop: at least 1 times socket",
        "p50 rtt of packet at 500/s: at most 1000000 ns",
    ];
    assert_eq!(tests, wanted);
    for part in ["closed loop", "round trip", "p99 rtt", "TCP, 10 connections to 10.77.0.3:7000"] {
        assert!(report.contains(part), "{part}");
    }
}

#[test]
fn a_thousand_connections_stay_open_while_their_arm_is_parked() {
    let Some(turn) = Turn::new("tcp-1000") else { return };
    let result = raced(&turn, "c1000", &["--lane", "socket", "--lane", "uring"]);
    all_is_answered(&result);
    let lost: u32 = result.segments.iter().map(|s| s.connections.unwrap().lost).sum();
    assert_eq!(lost, 0);
    assert!(result.segments.iter().all(|s| s.connections.unwrap().open == 1_000));
}

#[test]
fn programs_of_others_are_asked_the_same() {
    let Some(turn) = Turn::new("tcp-others") else { return };
    if !has("python3") {
        return;
    }
    let mut arms = vec![python("tcp_echo.py")];
    if has("cc") {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guide/any-program/tcp_echo.c");
        let program = turn.folder.join("tcp-echo-c");
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-Wall", "-Werror", "-o"]).arg(&program).arg(source);
        assert!(compiler.status().expect("it is there").success());
        arms.push(format!("{} {{address}} {{port}}", program.display()));
    }
    let mut more = vec!["--lane", "socket"];
    arms.iter().for_each(|arm| more.extend(["--arm", arm]));
    let result = raced(&turn, "c10-p16", &more);
    all_is_answered(&result);
    assert_eq!(result.arms.len(), 2 + arms.len());
    let ready = &result.arms[2].caps.facts["ready"];
    assert!(ready.contains("3 requests on each of 3 connections were answered"), "{ready}");
}

/// A server of Python, whose threads do this with each piece `data` that comes, the `n`th of its connection.
fn server(on_data: &str) -> String {
    let text = "import socket, sys, threading, time
s = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=64)
def serve(c):
    n = 0
    while data := c.recv(65536):
        n += 1
        DO
    c.close()
while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"
    .replace("DO", on_data);
    format!("python3 -c \"{text}\" {{address}} {{port}}")
}

#[test]
fn wrong_answers_make_a_race_invalid_and_lost_connections_do_not() {
    let Some(turn) = Turn::new("tcp-wrong") else { return };
    if !has("python3") {
        return;
    }
    // Each is right when it is asked before the race.
    let lies = server("c.sendall(data if n < 6 else bytes([data[0] ^ 1]) + data[1:])");
    let leaves = server("c.sendall(data)\n        if n == 4: break");
    let more = ["--lane", "socket", "--load", "2000", "--arm", &lies, "--arm", &leaves];
    let output = race(&turn, "c10", &more);
    let result = turn.result("c10");
    assert_eq!(output.status.code(), Some(4), "{:?}", result.invalid);
    assert!(
        result.invalid.iter().all(|why| why.contains("answered wrongly")),
        "{:?}",
        result.invalid
    );
    assert!(result.segments.iter().all(|segment| segment.ledger.is_closed()));
    let segments = segments(&result, "python3 2");
    let sum = |of: fn(&Segment) -> u64| segments.iter().map(|s| of(s)).sum::<u64>();
    assert!(sum(|s| s.ledger.delivered) > 0, "{segments:?}");
    assert!(sum(|s| s.connections.unwrap().reopened.into()) > 0, "{segments:?}");
    let lost = sum(|s| s.ledger.drops.get("connection lost").copied().unwrap_or(0));
    let dropped = sum(|s| s.ledger.dropped());
    assert_eq!(lost, dropped, "{segments:?}");
    assert!(result.notes.iter().any(|note| note.contains("python3 2: connections were lost")));
}

#[test]
fn one_that_stops_reading_is_not_waited_for_beyond_the_limit() {
    let Some(turn) = Turn::new("tcp-hangs") else { return };
    if !has("python3") {
        return;
    }
    let hangs = server("c.sendall(data) if n < 5 else time.sleep(600)");
    let result = raced(&turn, "c10", &["--lane", "socket", "--load", "2000", "--arm", &hangs]);
    let segments = segments(&result, "python3");
    assert!(segments.iter().all(|segment| segment.ledger.is_closed()));
    let timed_out = segments.iter().filter_map(|s| s.ledger.drops.get("timed out")).sum::<u64>();
    assert!(timed_out > 0, "{segments:?}");
}

#[test]
fn the_client_by_hand_tells_where_every_request_went() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let to = listener.local_addr().expect("it listens").to_string();
    let serve = |wrong_from: usize| {
        let (mut stream, _) = listener.accept().expect("the client comes");
        let mut bytes = [0; 4_096];
        let mut all = 0;
        while let Ok(n @ 1..) = stream.read(&mut bytes) {
            all += n;
            if all > wrong_from {
                bytes[n - 1] ^= 1;
            }
            if stream.write_all(&bytes[..n]).is_err() {
                return;
            }
        }
    };
    for (wrong_from, code) in [(usize::MAX, 0), (2_000, 4)] {
        let output = std::thread::scope(|scope| {
            scope.spawn(|| serve(wrong_from));
            let mut command = Command::new(env!("CARGO_BIN_EXE_laneway"));
            command.args(["gen", "tcp", "--to", &to, "--rate", "400", "--bytes", "90-110"]);
            command.args(["--duration", "0.1", "--timeout-ms", "5000", "--json"]);
            command.output().expect("the program starts")
        });
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{printed}");
        let report: Value = serde_json::from_slice(&output.stdout).expect("it says JSON");
        let ledger: Ledger = serde_json::from_value(report["answered"]["ledger"].clone()).unwrap();
        assert!(ledger.is_closed() && ledger.offered == 40, "{ledger:?}");
        assert_eq!(ledger.delivered == 40, code == 0, "{ledger:?}");
        assert_eq!(printed.contains("it answers wrongly: of "), code == 4, "{printed}");
    }
}

#[test]
fn a_closed_loop_of_so_many_requests_is_a_load_of_its_own_on_every_lane() {
    let Some(turn) = Turn::new("kv-echo") else { return };
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/kv-echo.toml");
    let mut text = std::fs::read_to_string(shipped).expect("it ships");
    for (theirs, ours, times) in [
        ("late_p99_us_max = 300", "late_p99_us_max = 10_000_000\nothers_max = 1_000.0", 1),
        ("closed_requests = [10_000, 100_000]", "closed_requests = [60, 500]", 1),
        ("requests = 100_000,", "requests = 500,", usize::MAX),
        ("over_requests = 10_000,", "over_requests = 60,", usize::MAX),
        ("timeout_ms = 5_000", "timeout_ms = 20_000", usize::MAX),
    ] {
        assert!(text.contains(theirs), "the scenario has no {theirs}");
        text = text.replacen(theirs, ours, times);
    }
    let scenario = turn.folder.join("scenario.toml");
    std::fs::write(&scenario, text).expect("writable");
    let mut command = Command::new(env!("CARGO_BIN_EXE_laneway"));
    command.arg("race").arg(scenario).args(["--variant", "c100", "--out"]).arg(&turn.folder);
    command.args(["--generations", "2", "--rounds", "1"]);
    let output = command.output().expect("the program starts");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code().is_some_and(|code| code != 2), "{printed}");
    let result = turn.result("c100");
    all_is_answered(&result);
    assert_eq!((&result.loads_pps, &result.closed_requests), (&vec![60, 500], &vec![60, 500]));
    for segment in &result.segments {
        let requests = result.closed_requests[segment.load];
        assert_eq!(segment.ledger.offered, requests, "{segment:?}");
        assert!(segment.invalid.is_empty() && segment.records_per_s > 0.0, "{segment:?}");
    }
    let report = std::fs::read_to_string(turn.folder.join("c100/report.md")).expect("written");
    assert!(report.contains("closed loop, 500 requests"), "{report}");
    let more = result.claims.iter().find(|claim| claim.test.contains("times that in 60 requests"));
    assert!(more.is_some(), "{:?}", result.claims);
}

/// A store on a free port, killed when this is dropped.
struct Store(std::process::Child, String);

impl Store {
    /// `redis-server`, if it is there.
    fn redis(turn: &Turn) -> Option<Store> {
        if !has("redis-server") {
            return None;
        }
        let port = TcpListener::bind("127.0.0.1:0").expect("loopback").local_addr().unwrap().port();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
        command.arg("--dir").arg(&turn.folder).stdout(Stdio::null());
        let redis = Store(command.spawn().expect("it is there"), format!("127.0.0.1:{port}"));
        let until = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(&redis.1).is_err() {
            assert!(Instant::now() < until, "it does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(redis)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_client_of_a_store_by_hand_sets_gets_and_checks() {
    let Some(turn) = Turn::new("gen-kv") else { return };
    let Some(redis) = Store::redis(&turn) else { return };
    let mut command = Command::new(env!("CARGO_BIN_EXE_laneway"));
    command.args(["gen", "kv", "--to", &redis.1, "--connections", "20", "--pipeline", "4"]);
    command.args(["--keys", "500", "--zipf", "0.99", "--get-share", "0.8", "--requests", "3000"]);
    command.args(["--value-bytes", "64-2000", "--timeout-ms", "30000", "--json"]);
    let output = command.output().expect("the program starts");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("it says JSON");
    let answered = &report["answered"];
    let ledger: Ledger = serde_json::from_value(answered["ledger"].clone()).unwrap();
    assert!(ledger.is_closed(), "{ledger:?}");
    assert_eq!((ledger.offered, ledger.delivered), (3_000, 3_000), "{ledger:?}");
    assert_eq!((&report["loop"], &answered["opening"]), (&"closed".into(), &500.into()));
    assert_eq!(answered["kinds"]["GET, nothing"], 0);
    assert!(answered["kinds"]["GET, a value"].as_u64() > Some(2_000), "{report}");

    // In words, open loop, and a plan that cannot be.
    let gen_kv = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_laneway"));
        command.args(["gen", "kv", "--to", &redis.1, "--keys", "100"]).args(more);
        let output = command.output().expect("the program starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, printed) = gen_kv(&["--rate", "2000", "--requests", "400", "--timeout-ms", "30000"]);
    assert_eq!(code, Some(0), "{printed}");
    for part in ["400 requests to TCP", "keys set before", "GET, a value", "asked for 2000.0"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let (code, printed) = gen_kv(&["--value-bytes", "8"]);
    assert!(code == Some(2) && printed.contains("each 16 to 1048576"), "{printed}");
}

#[test]
fn a_store_that_answers_with_another_value_is_found_out_by_hand() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let to = listener.local_addr().expect("it listens").to_string();
    let output = std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("the client comes");
            let mut bytes = [0; 4_096];
            // One request at a time, each read whole.
            while let Ok(n @ 1..) = stream.read(&mut bytes) {
                let is_get = bytes[..n].starts_with(b"*2");
                let answer = if is_get { &b"$3\r\nfoo\r\n"[..] } else { b"+OK\r\n" };
                if stream.write_all(answer).is_err() {
                    return;
                }
            }
        });
        let mut command = Command::new(env!("CARGO_BIN_EXE_laneway"));
        command.args(["gen", "kv", "--to", &to, "--keys", "1", "--get-share", "1"]);
        command.args(["--requests", "5", "--timeout-ms", "30000", "--json"]);
        command.output().expect("the program starts")
    });
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{printed}");
    let why = "GET key:000000000000 was answered with 3 bytes that were never set for it";
    assert!(printed.contains(why), "{printed}");
}

#[test]
fn a_store_is_asked_by_datagrams_in_a_race_and_by_hand() {
    let Some(turn) = Turn::new("kv-udp") else { return };
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/kv.toml");
    let text = std::fs::read_to_string(shipped).expect("it ships");
    // Its goals are of another number of requests.
    let (mut text, _) =
        text.split_once("# At equal promises").map(|(arms, rest)| (arms.to_owned(), rest)).unwrap();
    for (theirs, ours) in [
        ("late_p99_us_max = 300", "late_p99_us_max = 10_000_000\nothers_max = 1_000.0"),
        ("loads_pps = [5_000]", "loads_pps = [500]"),
        ("closed_requests = [10_000, 100_000]", "closed_requests = [2_000]"),
        ("get_share = 1.0 }, timeout_ms = 1_000", "get_share = 1.0 }, timeout_ms = 3_000"),
    ] {
        assert!(text.contains(theirs), "the scenario has no {theirs}");
        text = text.replace(theirs, ours);
    }
    let scenario = turn.folder.join("scenario.toml");
    std::fs::write(&scenario, text).expect("writable");
    let mut command = Command::new(env!("CARGO_BIN_EXE_laneway"));
    command.arg("race").arg(scenario).args(["--variant", "get-udp", "--out"]).arg(&turn.folder);
    command.args(["--lane", "socket", "--lane", "xdp udp"]);
    command.args(["--generations", "2", "--rounds", "1", "--segment-ms", "50"]);
    let output = command.output().expect("the program starts");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code().is_some_and(|code| code != 2), "{printed}");
    let result = turn.result("get-udp");
    all_is_answered(&result);
    let names: Vec<&str> = result.arms.iter().map(|arm| arm.name.as_str()).collect();
    if !names.contains(&"xdp udp") {
        return println!("skipped: no arm by datagrams: {:?}", result.notes);
    }
    assert!(segments(&result, "xdp udp").len() >= 4);
    // Half of what each answered in a closed loop of its own; the base's second run is the base.
    let own: Vec<u64> = result.arms.iter().map(|arm| arm.own_pps.expect("measured")).collect();
    assert!(own.iter().all(|pps| *pps > 0) && own[0] == own[1], "{own:?}");
    assert_eq!((result.own_share, &result.loads_pps), (Some(0.5), &vec![1, 2_000]));
    for segment in result.segments.iter().filter(|segment| segment.load == 0) {
        // An interval is a whole number of nanoseconds.
        let (asked, own) = (segment.generator.asked_pps, own[segment.arm] as f64);
        assert!((asked / own - 1.0).abs() < 1e-3, "asked {asked}/s of {own}/s");
    }
    let is_of_own = |metric: &str| {
        let mut of = result.findings.iter().filter(|finding| finding.metric == metric);
        of.any(|finding| finding.load == 0)
    };
    assert!(is_of_own("p50 rtt") && !is_of_own("records/s"), "{:?}", result.findings);
    let report = std::fs::read_to_string(turn.folder.join("get-udp/report.md")).expect("written");
    assert!(report.contains("50 % of each arm's own closed loop"), "{report}");

    let port = TcpListener::bind("127.0.0.1:0").expect("loopback").local_addr().unwrap().port();
    let at = format!("127.0.0.1:{port}");
    let mut store = Command::new(env!("CARGO_BIN_EXE_laneway"));
    store.args(["run", "kv", "--lane", "socket", "--listen", &at, "--udp-listen", &at]);
    let store = store.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut store = Store(store.expect("the program starts"), at.clone());
    let until = Instant::now() + Duration::from_secs(60);
    while TcpStream::connect(&at).is_err() {
        assert!(Instant::now() < until && store.0.try_wait().unwrap().is_none(), "it serves");
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_laneway"));
    command.args(["gen", "kv", "--to", &at, "--udp", "--connections", "7", "--keys", "50"]);
    command.args(["--value-bytes", "16-1400", "--requests", "900", "--timeout-ms", "30000"]);
    let output = command.output().expect("the program starts");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    for part in [&format!("900 requests to UDP {at}"), "over 7 sockets", "keys set before"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
}

#[test]
fn a_thousand_connections_need_as_many_descriptors() {
    for (limit, part) in
        [(64, "1000 connections need 1032 descriptors"), (2_000, "connection 1 of")]
    {
        let line = format!(
            "ulimit -n {limit}; exec {} gen tcp --to 127.0.0.1:1 --connections 1000 --duration 1",
            env!("CARGO_BIN_EXE_laneway")
        );
        let output = Command::new("sh").args(["-c", &line]).output().expect("there is a shell");
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && printed.contains(part), "{printed}");
    }
}
