//! `laneway run echo`: a real `ping`, real sockets of the kernel, and captures, on every lane.

use crate::captures;
use crate::live::{Running, attached, world, world_of};
use crate::output::{Folder, LANEWAY, RunOutput, laneway};
use laneway_bpf::Loaded;
use laneway_capture::{LinkType, Reader};
use laneway_core::KernelHalf;
use laneway_echo::{Config, OBJECT_LINEAR};
use laneway_netns::{Namespace, Topology, TopologyOptions};
use laneway_testkit::skip;
use laneway_xdp::PassGuard;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// An address on the cable that no interface has.
const OURS: &str = "10.77.0.9";
/// How long a client waits for an answer before it asks again, and how often it asks: the first
/// question may be on its way before any host knows the address.
const PATIENCE: Duration = Duration::from_secs(1);
const TRIES: usize = 30;

/// Pings our address from the generator's namespace; nothing where there is no such program, which is
/// printed.
fn ping(world: &Topology) -> Option<String> {
    ping_to(world, OURS, "30")
}

/// Waits so many seconds at most for what is not answered.
fn ping_to(world: &Topology, address: &str, seconds: &str) -> Option<String> {
    if let Err(error) = Command::new("ping").arg("-V").output() {
        skip(format!("ping: {error}; install iputils-ping"));
        return None;
    }
    // All at once: ping then has seen no answer when it decides how long it waits for them.
    let words = ["-c", "5", "-l", "5", "-W", seconds, address];
    let output = world.generator.namespace.command("ping").args(words).output().unwrap();
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_real_ping_is_answered_on_every_lane_and_its_fates_are_reported() {
    let Some(world) = world() else { return };
    for spec in ["packet", "packet:ring", "uring", "afxdp", "xdp", "xdp:generic"] {
        let far_end = (spec == "xdp").then(|| far_end(&world));
        let words = ["echo", "--lane", spec, "--on", "sut0", "--address", OURS, "--ttl", "99"];
        let mut running = Running::app(&world, &words);
        running.await_line("answering pings for 10.77.0.9");
        running.await_line("limits: 1,000 replies/s to a source (1,000 at once)");
        let pinged = ping(&world);
        running.signal(Signal::INT);
        let output = running.end().done();
        drop(far_end);
        let Some(pinged) = pinged else { return };
        assert!(pinged.contains("5 received"), "{spec}: {pinged}");
        assert!(pinged.contains("ttl=99"), "{spec}: another host answered: {pinged}");
        let fate = output.err.lines().find(|line| line.contains("answered_echo_v4")).unwrap();
        assert_eq!(fate.split_whitespace().last(), Some("5"), "{spec}: {}", output.err);
        if spec.starts_with("xdp") {
            let mode = if spec == "xdp" { "attach_mode native" } else { "attach_mode generic" };
            assert!(output.err.contains(mode), "{spec}: {}", output.err);
        }
        assert_eq!(attached(&world), "", "{spec}");
    }
}

/// Pings beyond the limit were lost without a word that names it.
#[test]
fn pings_beyond_the_limit_are_counted_with_the_flag_that_held_them_back() {
    let Some(world) = world() else { return };
    for spec in ["packet", "xdp:generic"] {
        let words = ["echo", "--lane", spec, "--on", "sut0", "--address", OURS];
        let words = [&words[..], &["--source-rate", "1/2"]].concat();
        let mut running = Running::app(&world, &words);
        running.await_line("answering pings");
        running.await_line("limits: 1 replies/s to a source (2 at once)");
        // Some are never answered.
        let pinged = ping_to(&world, OURS, "3");
        running.signal(Signal::INT);
        let output = running.end().done();
        let Some(pinged) = pinged else { return };
        assert!(!pinged.contains("5 received"), "{spec}: {pinged}");
        let line = output.err.lines().find(|line| line.contains("dropped_source_limit"));
        assert!(line.is_some_and(|line| line.contains("--source-rate")), "{spec}: {}", output.err);
    }
}

#[test]
fn answers_that_the_kernel_drops_behind_the_program_are_reported() {
    let Some(world) = world() else { return };
    // Pings alone are answered: without a program at the far end no answer to ARP gets there either.
    let known = ["neighbour", "replace", OURS, "lladdr", "02:4c:57:00:00:02", "nud", "permanent"];
    let mut ip = world.generator.namespace.command("ip");
    assert!(ip.args(known).args(["dev", world.generator.interface]).status().unwrap().success());
    gro_off(&world.generator.namespace, world.generator.interface);
    let ask = || {
        let mut command = world.generator.namespace.command("ping");
        let output = command.args(["-c", "5", "-l", "5", "-W", "1", OURS]).output();
        output.map(|output| String::from_utf8(output.stdout).unwrap())
    };
    let words = ["run", "echo", "--lane", "xdp", "--on", "sut0", "--address", OURS];
    for has_program in [false, true] {
        let far_end = has_program.then(|| far_end(&world));
        let mut running = Running::app(&world, &words[1..]);
        running.await_line("answering pings for 10.77.0.9");
        let asked = ask();
        running.signal(Signal::INT);
        let output = running.end().done();
        drop(far_end);
        let Ok(asked) = asked else { return skip("ping is missing; install iputils-ping") };
        assert_eq!(frames_of(&output, "answered_echo_v4"), 5, "{}", output.err);
        let (received, lost) = if has_program { ("5 received", 0) } else { ("0 received", 5) };
        assert!(asked.contains(received), "{asked}");
        assert_eq!(frames_of(&output, "tx_refused"), lost, "{}", output.err);
        assert!(output.err.contains("note: `sut0` is a veth"), "{}", output.err);
    }
    let mut command = world.sut.namespace.command(LANEWAY);
    let child = command.args(words).arg("--json").stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = child.spawn().unwrap();
    while attached(&world).is_empty() {
        thread::sleep(Duration::from_millis(10));
    }
    let _ = ask();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let report = RunOutput::of(child.wait_with_output().unwrap()).done().json();
    assert_eq!(report["lane_drops"]["tx_refused"], 5, "{report:#}");
}

/// A veth's far end with GRO takes frames without a program.
fn gro_off(namespace: &Namespace, interface: &str) {
    let mut command = namespace.command("ethtool");
    assert!(command.args(["-K", interface, "gro", "off"]).status().unwrap().success());
}

/// A native program transmits over veth only to a far end that has one as well.
fn far_end(world: &Topology) -> PassGuard {
    let attach = || PassGuard::attach(world.generator.interface);
    world.generator.namespace.enter(attach).unwrap().unwrap()
}

/// A run in the namespace under test that ends by itself.
fn run_there(world: &Topology, words: &[&str]) -> RunOutput {
    let mut command = world.sut.namespace.command(LANEWAY);
    RunOutput::of(command.arg("run").args(words).output().unwrap())
}

/// Frames of all fates that begin with `class`.
fn frames_of(output: &RunOutput, class: &str) -> u64 {
    let lines = output.err.lines().filter(|line| line.trim_start().starts_with(class));
    let last = lines.filter_map(|line| line.split_whitespace().nth(1));
    last.map(|n| n.replace(',', "").parse::<u64>().unwrap()).sum()
}

/// Runs echo on lane xdp in front of the program `before`.
fn in_front_of(world: &Topology, before: &str) -> Running {
    let words = ["echo", "--lane", "xdp", "--on", "sut0", "--address", OURS, "--ttl", "99"];
    let mut running = Running::app(world, &[&words[..], &["--before", before]].concat());
    running.await_line(&format!("the rest goes on to XDP program {before} `"));
    running
}

#[test]
fn pings_are_answered_and_all_the_rest_reaches_the_program_behind() {
    let Some(world) = world() else { return };
    let _far_end = far_end(&world);
    let extractor = laneway_features::half(&laneway_features::Config::default());
    let second = Loaded::load(&extractor).unwrap();
    let running = in_front_of(&world, &second.program_id().unwrap().to_string());
    let (ours, kernels) = (ping(&world), ping_to(&world, "10.77.0.2", "30"));
    running.signal(Signal::INT);
    let output = running.end().done();
    let (Some(ours), Some(kernels)) = (ours, kernels) else { return };
    assert!(ours.contains("5 received") && ours.contains("ttl=99"), "{ours}");
    assert!(kernels.contains("5 received") && !kernels.contains("ttl=99"), "{kernels}");
    let seen = second.maps().per_cpu_sums("seen").unwrap()[0];
    assert!(seen >= 5, "the second saw {seen}");
    assert_eq!(frames_of(&output, "passed_"), seen, "{}", output.err);
    assert_eq!(frames_of(&output, "answered_echo_v4"), 5, "{}", output.err);
}

#[test]
fn a_program_behind_that_takes_no_fragments_answers_what_is_its() {
    let Some(world) = world() else { return };
    let _far_end = far_end(&world);
    let theirs = "10.77.0.10";
    let mac = [0x02, 0x4c, 0x57, 0, 0, 2];
    let config = Config { ttl_marker: Some(77), ..Config::new(mac, [theirs.parse().unwrap()]) };
    let half = KernelHalf { object: OBJECT_LINEAR, ..laneway_echo::half(&config).unwrap() };
    let second = Loaded::load(&half).unwrap();
    let running = in_front_of(&world, &second.program_id().unwrap().to_string());
    for (address, ttl) in [(OURS, "ttl=99"), (theirs, "ttl=77")] {
        let Some(pinged) = ping_to(&world, address, "30") else { return };
        assert!(pinged.contains("5 received") && pinged.contains(ttl), "{address}: {pinged}");
    }
    running.signal(Signal::INT);
    running.end().done();
    assert_eq!(attached(&world), "");
}

#[test]
fn a_program_that_cannot_run_behind_is_refused_before_anything_is_attached() {
    let Some(world) = world() else { return };
    for (before, parts) in [
        ("4000000000", &["4000000000", "no BPF program of this number", "bpftool prog list"][..]),
        ("filter", &["filter", "neither the number", "/sys/fs/bpf/filter"]),
        ("/sys/fs/bpf/laneway-gone", &["/sys/fs/bpf/laneway-gone", "nothing is pinned", "pin id"]),
        ("/proc/self/exe", &["/proc/self/exe", "no pinned BPF program"]),
    ] {
        let words = ["echo", "--lane", "xdp", "--on", "sut0", "--address", OURS];
        let output = run_there(&world, &[&words[..], &["--before", before]].concat());
        output.refused(2, parts);
        assert_eq!(attached(&world), "");
    }
}

#[test]
fn a_program_that_is_attached_already_is_named_with_the_way_to_run_beside_it() {
    let Some(world) = world() else { return };
    let words = ["echo", "--lane", "xdp", "--on", "sut0", "--address", OURS];
    let running = Running::app(&world, &words);
    run_there(&world, &words).refused(2, &["`sut0` is busy", "XDP program", "`echo`", "--before"]);
    running.signal(Signal::INT);
    running.end().done();
}

#[test]
fn raw_sockets_answer_while_the_kernel_is_silent_and_it_answers_again_afterwards() {
    let Some(world) = world() else { return };
    let mut ip = world.sut.namespace.command("ip");
    assert!(ip.args(["address", "add", "10.77.0.9/32", "dev", "sut0"]).status().unwrap().success());
    let plain = ["echo", "--lane", "socket:raw", "--address", OURS];
    run_there(&world, &plain).refused(2, &[OURS, "answered twice", "icmp_echo_ignore_all", "mute"]);
    let gone = ["echo", "--lane", "socket:raw,mute", "--address", "10.77.0.99"];
    run_there(&world, &gone).refused(2, &["local address", "10.77.0.99", "`ip address`"]);

    let muted = ["echo", "--lane", "socket:raw,mute,ttl=99", "--address", OURS];
    for signal in [Signal::INT, Signal::TERM] {
        let mut running = Running::app(&world, &muted);
        running.await_line("answering pings for 10.77.0.9 by raw sockets");
        run_there(&world, &plain).refused(2, &[OURS, "busy", "another run"]);
        let Some(pinged) = ping(&world) else { return };
        running.signal(signal);
        let output = running.end().done();
        assert!(pinged.contains("5 received") && pinged.contains("ttl=99"), "{pinged}");
        assert!(!pinged.contains("DUP!"), "{pinged}");
        assert!(output.err.contains("kernel_answers off while this runs"), "{}", output.err);
        assert_eq!(frames_of(&output, "answered_echo_v4"), 5, "{}", output.err);
        let kernels = ping(&world).expect("it was there a moment ago");
        assert!(kernels.contains("5 received") && kernels.contains("ttl=64"), "{kernels}");
    }
}

/// A cable without GRO at our end: a stack on lane `packet` wants segments as they were sent.
fn wire() -> Option<Topology> {
    let mut options = TopologyOptions::new("echo");
    options.veth.b.offloads.gro = false;
    world_of(&options)
}

/// The lane, what else it must be given, and the address that it then answers at.
fn services() -> [(&'static str, &'static [&'static str], &'static str); 5] {
    let on: &[&str] = &["--on", "sut0"];
    [
        ("socket", &[], "10.77.0.2:7777"),
        ("uring", &[], "10.77.0.2:7777"),
        ("packet", on, "10.77.0.9:7777"),
        ("packet:ring", on, "10.77.0.9:7777"),
        ("afxdp", on, "10.77.0.9:7777"),
    ]
}

#[test]
fn datagrams_of_a_real_socket_come_back_on_every_lane() {
    let Some(world) = wire() else { return };
    for (spec, on, address) in services() {
        let words = ["echo", "--lane", spec, "--udp", "--listen", address];
        let mut running = Running::app(&world, &[&words, on].concat());
        running.await_line("echoing datagrams");
        let to: SocketAddr = address.parse().unwrap();
        let asked = || {
            let socket = UdpSocket::bind("10.77.0.1:0").unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut answer = [0; 64];
            (0..TRIES).find_map(|_| {
                socket.send_to(b"are you there?", to).unwrap();
                let (bytes, from) = socket.recv_from(&mut answer).ok()?;
                Some((answer[..bytes].to_vec(), from))
            })
        };
        let answered = world.generator.namespace.enter(asked).unwrap();
        running.signal(Signal::INT);
        let output = running.end().done();
        assert_eq!(answered, Some((b"are you there?".to_vec(), to)), "{spec}: {}", output.err);
        assert!(output.err.contains("answered"), "{spec}: {}", output.err);
    }
}

#[test]
fn streams_of_a_real_socket_come_back_whole_on_every_lane() {
    let Some(world) = wire() else { return };
    // More than any queue on the way holds at once.
    let sent: Vec<u8> = (0..400_000u32).map(|i| (i % 251) as u8).collect();
    for (spec, on, address) in services() {
        let words = ["echo", "--lane", spec, "--tcp", "--listen", address];
        let mut running = Running::app(&world, &[&words, on].concat());
        running.await_line("echoing streams");
        let to: SocketAddr = address.parse().unwrap();
        let asked = || {
            let mut stream = TcpStream::connect_timeout(&to, 30 * PATIENCE).unwrap();
            stream.set_read_timeout(Some(30 * PATIENCE)).unwrap();
            let mut writing = stream.try_clone().unwrap();
            let mut received = vec![0; sent.len()];
            thread::scope(|scope| {
                scope.spawn(|| writing.write_all(&sent).unwrap());
                stream.read_exact(&mut received).unwrap();
            });
            received
        };
        let received = world.generator.namespace.enter(asked).unwrap();
        running.signal(Signal::TERM);
        let output = running.end().done();
        assert!(received == sent, "{spec}: other bytes were returned");
        for part in ["connections accepted", "bytes sent back", "400,000"] {
            assert!(output.err.contains(part), "{spec}: {part}: {}", output.err);
        }
    }
}

#[test]
fn pings_of_a_capture_are_answered_into_a_capture() {
    let folder = Folder::new();
    let (pings, answers) = (folder.file("pings.pcap"), folder.file("answers.pcapng"));
    let frames = [ping_frame([10, 77, 0, 9]), ping_frame([10, 77, 0, 10])];
    fs::write(&pings, captures::capture(LinkType::Ethernet, &frames)).unwrap();
    let lane = format!("pcap:out={answers}");
    let words = ["run", "echo", "--lane", &lane, "--on", &pings, "--address", OURS, "--json"];
    let output = RunOutput::of(
        Command::new(LANEWAY).args(words).args(["--mac", "02:00:00:00:00:09"]).output().unwrap(),
    );
    let json = output.done().json();
    assert_eq!((&json["seen"], &json["closed"]), (&2.into(), &true.into()));
    assert_eq!(json["fates"]["answered_echo_v4"], 1);
    assert_eq!(json["fates"]["passed_foreign_address"], 1);
    assert_eq!(json["fates"]["dropped_checksum"], 0, "those of none are there as well");
    let mut reader = Reader::open(&answers).unwrap();
    let answer = reader.next_record().unwrap().expect("one answer").data.to_vec();
    assert_eq!(
        (answer.len(), answer[34]),
        (frames[0].len(), 0),
        "an echo reply of the same length"
    );
    assert_eq!(answer[26..30], [10, 77, 0, 9], "from the address that was asked");
    assert!(reader.next_record().unwrap().is_none());
}

/// An ICMP echo request to this address at 02:00:00:00:00:09.
fn ping_frame(to: [u8; 4]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 8, 0];
    let mut ip = vec![0x45, 0, 0, 36, 0, 1, 0, 0, 64, 1, 0, 0, 10, 77, 0, 1];
    ip.extend(to);
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut icmp = vec![8, 0, 0, 0, 0, 7, 0, 1, b'h', b'e', b'l', b'l', b'o', b'!', b'!', b'!'];
    let sum = checksum(&icmp);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    frame.extend(ip);
    frame.extend(icmp);
    frame
}

fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    !((sum & 0xffff) + (sum >> 16)) as u16
}

#[test]
fn what_goes_beyond_the_rate_is_dropped_by_name() {
    let folder = Folder::new();
    let pings = folder.file("pings.pcap");
    // 1 ms apart: 10 at once, and one more every 100 ms.
    let frames = vec![ping_frame([10, 77, 0, 9]); 60];
    fs::write(&pings, captures::capture(LinkType::Ethernet, &frames)).unwrap();
    let words = ["run", "echo", "--lane", "pcap", "--on", &pings, "--address", OURS, "--json"];
    let more = ["--mac", "02:00:00:00:00:09", "--source-rate", "10/10"];
    let output = RunOutput::of(Command::new(LANEWAY).args(words).args(more).output().unwrap());
    let fates = output.done().json()["fates"].clone();
    assert_eq!(
        (&fates["answered_echo_v4"], &fates["dropped_source_limit"]),
        (&10.into(), &50.into())
    );
}

#[test]
fn a_port_that_somebody_has_is_busy() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for lane in ["socket", "uring"] {
        let output = laneway(["run", "echo", "--lane", lane, "--udp", "--listen", &address]);
        if output.err.contains("io_uring") {
            skip(output.err);
            continue;
        }
        output.refused(2, &[lane, &address]);
    }
}
