//! Real programs of others, in a namespace of their own: what each does wrong is reported, and nothing of it stays.

use super::output::READER;
use super::*;
use crate::child::forwarders::call;
use crate::client::ClientPlan;
use crate::segment::Plant;
use crate::tables::{Tables, TablesOf};
use crate::timetable::Times;
use laneway_kinds::{Peer, Protocol};
use laneway_netns::Namespace;
use laneway_registry::{Apps, Lanes};
use laneway_testkit::skip;
use rustix::process::Pid;
use rustix::thread::sched_getaffinity;
use std::path::Path;

/// As a race would wait, were it not for the tests that wait in vain.
const PATIENT: Duration = READY_MAX;
const HASTY: Duration = Duration::from_millis(1_500);

/// An app whose traffic is what a client asks, and the suffix that distinguishes it from the app by itself.
const OVER_TCP: &str = " over TCP";
const SERVED: &str = "echo over TCP";

/// Sends each datagram back; what comes of it is put in place of `REPLY`.
const ECHO: &str = "import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], int(sys.argv[2])))
print('up', flush=True)
while True:
    data, peer = s.recvfrom(65535)
    s.sendto(REPLY, peer)
";
/// Leaves a process behind that left its session and its parents, and reports it to no other process.
const LEAVE: &str = "import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
os.wait()
";

/// Python that is given its address.
fn python(text: &str) -> String {
    let words = ["python3", "-c", text];
    let quoted = shlex::try_join(words).expect("no zeros");
    format!("{quoted} {{address}} {{port}}")
}

fn echo(reply: &str) -> String {
    python(&ECHO.replace("REPLY", reply))
}

fn setup(app: &str, command: &str) -> ArmSetup {
    let end = |net, host, port| SocketAddrV4::new([10, net, 0, host].into(), port);
    ArmSetup {
        app: app.strip_suffix(OVER_TCP).unwrap_or(app).to_owned(),
        arguments: Vec::new(),
        peer: Some(Peer::Command),
        counts: true,
        lane: command.to_owned(),
        payload_bytes: Some(64),
        fanout: None,
        client: (app == SERVED).then_some(ClientPlan {
            to: end(77, 2, 7_000).into(),
            protocol: Protocol::Echo,
            connections: 10,
            in_flight: 1,
            request_bytes: [512, 1_024],
            store: None,
            datagrams: None,
            timeout_ms: 1_000,
            seed: 1,
        }),
        interfaces: vec!["sut0".to_owned(), "sut1".to_owned()],
        addresses: vec![end(77, 2, 7_000)],
        onward: end(78, 1, 7_001),
        times: Times::Steady,
        cpu: 0,
        plant: Plant::None,
        mode: None,
        trace: None,
    }
}

/// Starts a program as an arm of `app`; with `then`, asks it something. `None` where that cannot be tried.
fn raced<T: Send>(
    app: &str,
    command: &str,
    patience: Duration,
    then: impl FnOnce(&mut Kept<'_>) -> T + Send,
) -> Option<Result<T, String>> {
    raced_as(&setup(app, command), patience, then)
}

/// The same of this arm.
fn raced_as<T: Send>(
    setup: &ArmSetup,
    patience: Duration,
    then: impl FnOnce(&mut Kept<'_>) -> T + Send,
) -> Option<Result<T, String>> {
    let program = shlex::split(&setup.lane).and_then(|words| words.into_iter().next());
    if let Err(why) = find(&program.unwrap_or_default()) {
        skip(why);
        return None;
    }
    let namespace = match Namespace::create("command") {
        Ok(namespace) => namespace,
        Err(why) => {
            skip(why);
            return None;
        }
    };
    let facts = setup.raced(TablesOf::<Apps, Lanes>::new().app(&setup.app).expect("it is one"));
    // The thread stays until the program has ended: it is its parent.
    let ran = namespace.enter(|| {
        if setup.client.is_none() {
            // Where a client asks, the program borrows the address.
            call("ip", &["address", "add", "10.77.0.2/32", "dev", "lo"]).expect("root may");
        }
        call("ip", &["link", "set", "dev", "lo", "up"]).expect("root may");
        call("ip", &["link", "add", "sut0", "type", "veth", "peer", "name", "sut1"]).expect("so");
        call("ip", &["link", "set", "dev", "sut0", "up"]).expect("so");
        call("ip", &["link", "set", "dev", "sut1", "up"]).expect("so");
        let mut kept = Kept::start(setup, &facts, patience)?;
        Ok(then(&mut kept))
    });
    Some(ran.expect("it is entered"))
}

/// What is reported of a program that does not become an arm.
fn refused(app: &str, command: &str, patience: Duration) -> Option<String> {
    let ran = raced(app, command, patience, |kept| kept.ready.caps.facts.clone());
    ran.map(|ran| ran.expect_err("it is no arm"))
}

/// Processes whose command line has this mark.
fn with_mark(mark: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").expect("it lists").flatten();
    let lines = entries.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.contains(mark)).collect()
}

#[test]
fn a_program_that_sends_datagrams_back_is_an_arm_and_ends_with_it() {
    let mark = "mark-of-the-one-that-works";
    let command = format!("{} {mark}", echo("data"));
    let ran = raced("bounce", &command, PATIENT, |kept| {
        assert!(!with_mark(mark).is_empty());
        kept.expect(1);
        let report = kept.report().unwrap();
        // What it runs in, and itself.
        assert!(kept.ready.processes.len() >= 3, "{:?}", kept.ready);
        assert!(report.memory.rss_bytes > 1 << 20, "{:?}", report.memory);
        assert_eq!((kept.ready.shape, report.lane.rx_frames), (Shape::Datagrams, 0));
        kept.ready.caps.facts["ready"].clone()
    });
    let Some(ran) = ran else { return };
    let wanted = "it listens on UDP 10.77.0.2:7000; datagrams of 64 bytes were returned unchanged";
    assert_eq!(ran.unwrap(), wanted);
    assert_eq!(with_mark(mark), Vec::<String>::new());
}

#[test]
fn a_program_that_forks_for_each_peer_is_an_arm() {
    let command = "socat UDP4-RECVFROM:{port},bind={address},fork PIPE";
    let Some(ran) = raced("bounce", command, PATIENT, |kept| kept.report().map(drop)) else {
        return;
    };
    ran.unwrap().unwrap();
}

#[test]
fn what_a_program_does_wrong_is_reported_in_a_sentence() {
    for (command, patience, parts) in [
        (echo("data[:-1]"), PATIENT, &["answers wrongly: 64 bytes were sent, 63 returned"][..]),
        (
            echo("bytes([data[0] ^ 1]) + data[1:]"),
            PATIENT,
            &["answers wrongly", "byte 0 was returned"],
        ),
        (
            ECHO_ELSEWHERE.to_owned(),
            PATIENT,
            &["answers wrongly", "was returned from 10.77.0.2:7001"],
        ),
        (
            python("import sys; sys.exit('no such key: port')"),
            PATIENT,
            &["exit status 1", "its output: no such key: port"],
        ),
        (python("import os; os.abort()"), PATIENT, &["killed by signal 6"]),
        (
            python("print('done')"),
            PATIENT,
            &["ended by itself (exit status 0)", "its output: done"],
        ),
        (
            python("open('/dev/tty')"),
            PATIENT,
            &["exit status 1", "No such device or address: '/dev/tty'"],
        ),
        (python("input('password: ')"), PATIENT, &["exit status 1", "EOFError"]),
        (python(LEAVE), PATIENT, &["went into the background", "stay in the foreground"]),
        (
            python("import time; time.sleep(600)"),
            HASTY,
            &["did not listen on UDP 10.77.0.2:7000", "on nothing at all", "it printed nothing"],
        ),
        (
            format!("{} {{address}} 7001", echo("data").replace(" {address} {port}", "")),
            HASTY,
            &[
                "did not listen on UDP 10.77.0.2:7000",
                "but on UDP 10.77.0.2:7001",
                "its output: up",
            ],
        ),
        (
            format!("{} 127.0.0.1 {{port}}", echo("data").replace(" {address} {port}", "")),
            HASTY,
            &["but on UDP 127.0.0.1:7000"],
        ),
        (
            "socat TCP4-LISTEN:{port},fork PIPE".to_owned(),
            HASTY,
            &["did not listen on UDP 10.77.0.2:7000", "but on TCP 0.0.0.0:7000"],
        ),
        (
            echo("data").replace("s.sendto(data, peer)", "pass"),
            PATIENT,
            &["it listens on UDP 10.77.0.2:7000 but sends nothing back"],
        ),
    ] {
        let Some(why) = refused("bounce", &command, patience) else { return };
        for part in parts {
            assert!(why.contains(part), "{command}\n{why}");
        }
    }
}

/// The same over IPv6, with IPv4 as well or without.
fn over_ipv6(text: &str, is_alone: bool) -> String {
    let own =
        format!("setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, {})", u8::from(is_alone));
    let text = text.replace("s.bind((sys.argv[1], ", &format!("s.{own}\ns.bind(('::', "));
    python(&text.replace("AF_INET,", "AF_INET6,"))
}

#[test]
fn one_that_listens_for_ipv6_alone_is_no_arm_and_the_sentence_says_so() {
    if !Path::new("/proc/sys/net/ipv6").exists() {
        return skip("this kernel has no IPv6");
    }
    let alone = "it listens on [::]:7000 for IPv6 alone; it is asked over IPv4; its output: up";
    let right = ECHO.replace("REPLY", "data");
    for (app, text) in
        [("bounce", right.as_str()), (SERVED, SERVE.replace("DO", "c.sendall(data)").as_str())]
    {
        let Some(why) = refused(app, &over_ipv6(text, true), PATIENT) else { return };
        assert!(why.starts_with(alone), "{why}");
    }
    let both = raced("bounce", &over_ipv6(&right, false), PATIENT, |kept| kept.ready.clone());
    let ready = both.unwrap().unwrap().caps.facts["ready"].clone();
    assert!(ready.starts_with("it listens on UDP [::]:7000; datagrams"), "{ready}");
    let silent = right.replace("s.sendto(data, peer)", "pass");
    let why = refused("bounce", &over_ipv6(&silent, false), PATIENT).unwrap();
    assert!(why.contains("10.77.0.2:7000 but sends nothing back"), "{why}");
}

/// Lets the process run wherever it may.
const STRAY: &str = "os.sched_setaffinity(0, range(os.cpu_count()))";

#[test]
fn one_that_may_run_on_other_cpus_than_its_own_is_no_arm() {
    if usable_cpus().unwrap().len() < 2 {
        return skip("there is one CPU");
    }
    let text = format!("import os\n{STRAY}\n{}", ECHO.replace("REPLY", "data"));
    let Some(why) = refused("bounce", &python(&text), PATIENT) else { return };
    assert!(why.contains("may run on CPUs 0") && why.contains("kept on its own, CPU 0"), "{why}");
    // The kernel's own threads of io_uring are of that name, and are kept nowhere.
    let worker = format!("open('/proc/self/comm', 'w').write('iou-wrk-1')\n{text}");
    raced("bounce", &python(&worker), PATIENT, |_| ()).unwrap().unwrap();
    let later = format!("    if data == b'go': import os; {STRAY}\n    s.sendto");
    let command = echo("data").replace("    s.sendto", &later);
    let ran = raced("bounce", &command, PATIENT, |kept| {
        kept.report().map(drop).unwrap();
        let socket = std::net::UdpSocket::bind("10.77.0.2:0").unwrap();
        socket.send_to(b"go", "10.77.0.2:7000").unwrap();
        socket.recv(&mut [0; 9]).unwrap();
        kept.report().map(drop).unwrap_err()
    });
    let why = ran.unwrap().unwrap();
    assert!(why.contains("may run on CPUs 0"), "{why}");
}

#[test]
fn what_a_program_prints_is_read_on_another_cpu_where_there_is_one() {
    assert_eq!(readers(vec![0, 1, 2], 0), [1, 2]);
    // The other is the generator's: wherever there is time.
    assert_eq!([readers(vec![0, 1], 0), readers(vec![0], 0)], [vec![0, 1], vec![0]]);
    if usable_cpus().unwrap().len() < 2 {
        return skip("there is one CPU");
    }
    let ran = raced("bounce", &echo("data"), PATIENT, |_| {
        let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
        let reads = |entry: &fs::DirEntry| {
            fs::read_to_string(entry.path().join("comm")).is_ok_and(|name| name.trim() == READER)
        };
        let ids = threads.filter(reads).map(|entry| entry.file_name());
        let ids = ids.filter_map(|id| Pid::from_raw(id.to_str()?.parse().ok()?));
        ids.filter_map(|id| sched_getaffinity(Some(id)).ok()).collect::<Vec<_>>()
    });
    let Some(ran) = ran else { return };
    let readers = ran.unwrap();
    assert!(readers.len() >= 2, "{readers:?}");
    assert!(readers.iter().all(|cpus| cpus.count() > 1 || !cpus.is_set(0)), "{readers:?}");
}

/// Shares memory with three workers, each of which has looked at all of it when it answers.
const SHARE: &str = "import mmap, os, time
shared = mmap.mmap(-1, 64 << 20)
def touch():
    return sum(shared[at] for at in range(0, len(shared), 4096))
for at in range(0, len(shared), 4096): shared[at] = 1
done, do = os.pipe()
for _ in range(3):
    if os.fork() == 0:
        os.write(do, bytes([touch() & 1]))
        time.sleep(600)
for _ in range(3): os.read(done, 1)
";

#[test]
fn memory_that_workers_share_is_counted_once_and_that_of_the_carriers_is_not() {
    let text = format!("{SHARE}{}", ECHO.replace("REPLY", "data"));
    let ran = raced("bounce", &python(&text), PATIENT, |kept| {
        let own = kept.program.own();
        let whole = own.iter().map(|id| memory::of_process(&id.to_string(), &kept.ready.caps));
        let whole: u64 = whole.map(|memory| memory.rss_bytes).sum();
        (own.len(), kept.ready.processes.len(), whole, kept.report().unwrap().memory.rss_bytes)
    });
    let Some(ran) = ran else { return };
    let (own, all, whole, part) = ran.unwrap();
    // Beside them are the first process of the namespace and its parent.
    assert_eq!((own, all), (4, 6));
    let mib = |bytes: u64| bytes >> 20;
    assert!(mib(whole) >= 4 * 64 && (64..128).contains(&mib(part)), "{whole} {part}");
}

/// Answers from a port that no client asked.
const ECHO_ELSEWHERE: &str = "python3 -c 'import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], int(sys.argv[2])))
o = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
o.bind((sys.argv[1], int(sys.argv[2]) + 1))
while True:
    data, peer = s.recvfrom(65535)
    o.sendto(data, peer)
' {address} {port}";

#[test]
fn whatever_a_program_started_ends_with_it() {
    let mark = "mark-of-the-one-that-leaves";
    // Children of its children that have left it are there when it is ready, and one of them hears no request to end.
    let text = format!(
        "{LEAVE}import signal
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.setsid()
    time.sleep(600)
{}",
        ECHO.replace("REPLY", "data")
    );
    let command = format!("{} {mark}", python(&text));
    let ran = raced("bounce", &command, PATIENT, |kept| {
        assert!(with_mark(mark).len() >= 5, "{:?}", with_mark(mark));
        kept.ready.processes.len()
    });
    let Some(ran) = ran else { return };
    assert!(ran.unwrap() >= 5);
    assert_eq!(with_mark(mark), Vec::<String>::new());
}

#[test]
fn one_that_ends_while_it_is_raced_is_reported_at_the_next_report() {
    let ends = "    if data == b'end': sys.exit('enough')\n    s.sendto";
    let command = echo("data").replace("    s.sendto", ends);
    let ran = raced("bounce", &command, PATIENT, |kept| {
        kept.report().map(drop).unwrap();
        let socket = std::net::UdpSocket::bind("10.77.0.2:0").unwrap();
        socket.send_to(b"end", "10.77.0.2:7000").unwrap();
        while kept.program.output.status().is_none() {
            thread::sleep(LOOK);
        }
        kept.report().map(drop).unwrap_err()
    });
    let Some(ran) = ran else { return };
    let why = ran.unwrap();
    assert!(why.contains("exit status 1") && why.contains("enough"), "{why}");
}

/// Prints what it received, three times a second.
const COUNT: &str = "import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], int(sys.argv[2])))
s.settimeout(0.05)
n, due = 10, 0
while True:
    if time.monotonic() >= due:
        print('received=%d' % n, flush=True)
        due = time.monotonic() + 0.3
    try: n += STEP if s.recv(65535) else 0
    except TimeoutError: pass
";

#[test]
fn what_a_program_received_is_what_it_prints() {
    let ask = |step: &str| {
        let command = python(&COUNT.replace("STEP", step));
        raced("count", &command, PATIENT, |kept| {
            let socket = std::net::UdpSocket::bind("10.77.0.2:0").unwrap();
            kept.report()?;
            kept.expect(7);
            kept.report()?;
            for _ in 0..3 {
                socket.send_to(b"datagram", "10.77.0.2:7000").unwrap();
            }
            // A line may have been under way when they arrived.
            kept.report()?;
            kept.report().map(|report| (report.lane.rx_frames, kept.segment.clone().unwrap()))
        })
    };
    let Some(counted) = ask("1") else { return };
    let (counter, segment) = counted.unwrap().unwrap();
    assert_eq!((counter, segment.segment, segment.delivered), (13, 7, 3));
    let why = ask("-1").unwrap().unwrap().map(drop).unwrap_err();
    assert!(why.contains("its counter fell from 10 to"), "{why}");
}

#[test]
fn one_that_says_nothing_of_what_it_received_is_no_arm_of_an_app_that_only_receives() {
    let silent = ECHO.replace("    s.sendto(REPLY, peer)\n", "");
    let Some(why) = refused("count", &python(&silent), HASTY) else { return };
    for part in ["printed no counter", "`received=N`", "flush", "its output: up", "counts = false"]
    {
        assert!(why.contains(part), "{why}");
    }
}

#[test]
fn one_that_need_not_count_is_an_arm_without_a_counter() {
    let silent = ECHO.replace("    s.sendto(REPLY, peer)\n", "");
    let setup = ArmSetup { counts: false, ..setup("count", &python(&silent)) };
    let ran = raced_as(&setup, PATIENT, |kept| {
        kept.expect(3);
        let report = kept.report()?;
        Ok::<_, String>((report.lane.rx_frames, kept.ready.caps.facts["ready"].clone()))
    });
    let Some(ran) = ran else { return };
    let (received, ready) = ran.unwrap().unwrap();
    assert_eq!(received, 0);
    assert!(ready.ends_with("it prints no counter: delivered is unknown"), "{ready}");
}

#[test]
fn one_that_answers_pings_has_their_address_and_the_kernel_is_silent() {
    let text = "import socket, sys, time
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind((sys.argv[1], 0))
time.sleep(600)
";
    let quoted = shlex::try_join(["python3", "-c", text]).unwrap();
    let addresses = || {
        let printed =
            std::process::Command::new("ip").args(["address", "show", "dev", "sut0"]).output();
        String::from_utf8(printed.unwrap().stdout).unwrap()
    };
    let ran = raced("echo", &format!("{quoted} {{interface}} {{address}}"), PATIENT, |kept| {
        let silent = fs::read_to_string(NO_PINGS).unwrap();
        (kept.ready.clone(), silent, addresses())
    });
    let Some(ran) = ran else { return };
    let (ready, silent, addresses) = ran.unwrap();
    assert_eq!((ready.shape, silent.trim()), (Shape::Frames, "1"));
    assert!(addresses.contains("10.77.0.2/32"), "{addresses}");
    let how = &ready.caps.facts["ready"];
    assert_eq!(how, "it has a socket or an XDP program on its interface");
}

#[test]
fn one_that_forwards_without_a_socket_is_given_time() {
    let line = "sh -c 'exec sleep 600' sh {port0} {port1}";
    let Some(ran) = raced("forward", line, HASTY, |kept| kept.ready.clone()) else { return };
    let ready = ran.unwrap();
    assert_eq!(ready.shape, Shape::Frames);
    assert!(ready.caps.facts["ready"].contains("it was given time"), "{ready:?}");
    assert_eq!(ready.caps.facts["program"], "sh -c 'exec sleep 600' sh sut0 sut1");
}

/// Answers over TCP, one connection at a time in a thread each; what comes of a piece is put in place of `DO`.
const SERVE: &str = "import socket, sys, threading, time
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((sys.argv[1], int(sys.argv[2])))
s.listen(64)
print('up', flush=True)
held = []
def serve(c):
    held.append(c)
    while True:
        data = c.recv(65536)
        if not data: return
        DO
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
";

fn serve(on_data: &str) -> String {
    python(&SERVE.replace("DO", on_data))
}

#[test]
fn a_program_that_answers_over_connections_is_an_arm() {
    let ran = raced("echo over TCP", &serve("c.sendall(data)"), PATIENT, |kept| {
        kept.expect(1);
        (kept.ready.clone(), kept.report().map(|report| report.memory.rss_bytes))
    });
    let Some(ran) = ran else { return };
    let (ready, rss_bytes) = ran.unwrap();
    assert!(rss_bytes.unwrap() > 1 << 20);
    let wanted =
        "it listens on TCP 10.77.0.2:7000; 3 requests on each of 3 connections were answered";
    assert_eq!((ready.shape, ready.caps.facts["ready"].as_str()), (Shape::Datagrams, wanted));
}

#[test]
fn what_a_program_does_wrong_over_connections_is_reported_in_a_sentence() {
    let listening = SERVE.replace("s.listen(64)\n", "time.sleep(600)\n");
    let greeting = SERVE.replace("held.append(c)", "c.sendall(b'220 welcome')");
    for (command, patience, parts) in [
        (
            serve("c.sendall(bytes([data[0] ^ 1]) + data[1:])"),
            PATIENT,
            &["connection 1, request 1", "it answers wrongly", "byte 0 was returned as"][..],
        ),
        (
            serve("return c.close()"),
            PATIENT,
            &["closed the connection", "0 returned", "its output: up"],
        ),
        (serve("pass"), PATIENT, &["nothing more was received within 2 s", "0 returned"]),
        (serve("c.sendall(data[:-1])"), PATIENT, &["nothing more was received within 2 s"]),
        (serve("c.sendall(data + b'!')"), PATIENT, &["it answers wrongly"]),
        (python(&greeting), PATIENT, &["it answers wrongly"]),
        (python(&listening), HASTY, &["did not listen on TCP 10.77.0.2:7000", "on nothing at all"]),
        (
            echo("data"),
            HASTY,
            &["did not listen on TCP 10.77.0.2:7000", "but on UDP 10.77.0.2:7000"],
        ),
        (
            serve("sys.stderr.write('oh no'); sys.stderr.flush(); import os; os._exit(3)"),
            PATIENT,
            &["exit status 3", "oh no"],
        ),
    ] {
        let Some(why) = refused("echo over TCP", &command, patience) else { return };
        for part in parts {
            assert!(why.contains(part), "{command}\n{why}");
        }
    }
}
