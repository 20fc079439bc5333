//! `laneway run features` and `laneway run echo` with several workers.

use crate::live::{Running, attached, world_of};
use crate::output::{Folder, laneway};
use laneway_engine::usable_cpus;
use laneway_netns::{Topology, TopologyOptions};
use laneway_testkit::skip;
use rustix::process::Signal;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::time::Duration;

/// Flows that a test sends, and packets of each.
const FLOWS: usize = 24;
const PACKETS: usize = 25;
const TO: &str = "10.77.0.2:9999";
const FILTER: &str = "eth / ipv4 / udp dst is 9999 / end";

/// DPDK on ordinary packet sockets, which fan out.
const DPDK: &str = "dpdk:net_af_packet,no-huge";
/// An address on the cable that no interface has.
const OURS: &str = "10.77.0.9";
/// How long a client waits for an answer before it asks again, and how often it asks.
const PATIENCE: Duration = Duration::from_millis(500);
const TRIES: usize = 60;

/// True where this program can use DPDK; prints the reason when not.
fn has_dpdk() -> bool {
    let null = "dpdk:net_null,no-huge".parse().unwrap();
    match laneway_dpdk::DpdkLane::open(&null, &["null"], false) {
        Ok(_) => true,
        Err(why) => {
            skip(why);
            false
        }
    }
}

/// Two namespaces and a cable of two queues, or a skip.
fn world() -> Option<Topology> {
    match usable_cpus() {
        Ok(cpus) if cpus.len() >= 2 => {}
        _ => {
            skip("two workers need two CPUs");
            return None;
        }
    }
    let mut options = TopologyOptions::new("workers");
    options.veth.queues = 2;
    world_of(&options)
}

fn send(world: &Topology) {
    let send = || {
        let sockets: Vec<UdpSocket> =
            (0..FLOWS).map(|_| UdpSocket::bind("10.77.0.1:0").unwrap()).collect();
        for i in 0..PACKETS {
            for socket in &sockets {
                // The far end may answer that nothing listens; the frame was sent all the same.
                let _ = socket.send_to(&i.to_be_bytes(), TO);
            }
        }
        let mut ports: Vec<u16> =
            sockets.iter().map(|socket| socket.local_addr().unwrap().port()).collect();
        ports.sort_unstable();
        ports
    };
    let ports: Vec<u16> = world.generator.namespace.enter(send).unwrap();
    assert_eq!(ports.len(), FLOWS);
}

/// Source port and packets of each flow row, sorted; time differs from run to run.
fn flows(path: &str) -> Vec<(u16, u64)> {
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().unwrap();
    let column = |name: &str| header.iter().position(|column| *column == name).unwrap();
    let (port, packets) = (column("src_port"), column("fwd_pkts"));
    let mut flows: Vec<(u16, u64)> =
        lines.map(|row| (row[port].parse().unwrap(), row[packets].parse().unwrap())).collect();
    flows.sort_unstable();
    flows
}

/// The figures of each worker's line: seen and delivered.
fn by_worker(printed: &str) -> Vec<(u64, u64)> {
    let table = printed.lines().skip_while(|line| !line.starts_with("worker  CPU")).skip(1);
    let figure = |word: &str| word.replace(',', "").parse().unwrap();
    table
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .map(|words| (figure(words[2]), figure(words[3])))
        .collect()
}

#[test]
fn two_workers_give_together_the_flow_rows_of_one() {
    let Some(world) = world() else { return };
    let folder = Folder::new();
    let (one, two) = (folder.file("one.csv"), folder.file("two.csv"));
    let level = ["--level", "flow", "--filter", FILTER, "--pass"];
    for spec in ["packet", "packet:ring", "afxdp", DPDK] {
        if spec == DPDK && !has_dpdk() {
            continue;
        }
        // The one beside sees copies of what the two see, unless they take it away: they pass it.
        let on = ["--on", "sut0", "-o", &one];
        let alone =
            Running::app(&world, &[&["features", "--lane", "packet"], &on[..], &level].concat());
        let on = ["--on", "sut0", "-o", &two, "--workers", "2"];
        let lane = ["features", "--lane", spec];
        let mut together = Running::app(&world, &[&lane, &on[..], &level].concat());
        together.await_line("asked for");
        send(&world);
        // What was sent is with them, or in a queue that they empty when they are woken.
        [&alone, &together].iter().for_each(|running| running.await_idle());
        [&alone, &together].iter().for_each(|running| running.signal(Signal::INT));
        let (_, output) = (alone.end().done(), together.end().done());
        let (of_one, of_two) = (flows(&one), flows(&two));
        assert_eq!(of_one.len(), FLOWS, "{spec}: {of_one:?}");
        assert!(of_one.iter().all(|&(_, packets)| packets == PACKETS as u64), "{of_one:?}");
        assert_eq!(of_one, of_two, "{spec}: {}", output.err);
        let workers = by_worker(&output.err);
        assert_eq!(workers.len(), 2, "{spec}: {}", output.err);
        assert!(workers.iter().all(|&(seen, _)| seen > 0), "{spec}: one was idle: {}", output.err);
        let delivered: u64 = workers.iter().map(|&(_, delivered)| delivered).sum();
        assert_eq!(delivered, (FLOWS * PACKETS) as u64, "{spec}: {}", output.err);
        assert_eq!(attached(&world), "", "{spec}");
        assert_eq!(folder.names(), ["one.csv", "two.csv"], "{spec}");
    }
}

#[test]
fn a_count_is_exact_over_all_workers_and_ends_them() {
    let Some(world) = world() else { return };
    let folder = Folder::new();
    let out = folder.file("o.csv");
    let words = ["features", "--lane", "packet", "--on", "sut0", "-o", &out, "--filter", FILTER];
    let more = ["--workers", "2", "--count", "100"];
    let mut running = Running::app(&world, &[&words[..], &more].concat());
    running.await_line("asked for");
    send(&world);
    let output = running.end().done();
    assert_eq!(fs::read_to_string(&out).unwrap().lines().count(), 101, "{}", output.err);
    assert!(output.err.contains("to the count asked for"), "{}", output.err);
}

#[test]
fn more_workers_than_queues_are_refused_with_the_command_that_adds_some() {
    let Some(world) = world() else { return };
    let folder = Folder::new();
    let out = folder.file("o.csv");
    let words = ["run", "features", "--lane", "afxdp:queue=1", "--on", "sut0", "-o", &out];
    let mut command = world.sut.namespace.command(crate::output::LANEWAY);
    let output = command.args(words).args(["--workers", "2", "--drop"]).output().unwrap();
    crate::output::RunOutput::of(output).refused(2, &["afxdp", "queue"]);
    assert_eq!(attached(&world), "");
    assert!(folder.names().is_empty(), "{:?}", folder.names());
}

#[test]
fn lanes_that_spread_nothing_say_why_and_what_does() {
    let folder = Folder::new();
    let out = folder.file("o.csv");
    for (spec, more, part) in [
        ("uring", &[][..], "no fan-out"),
        ("xdp", &[], "leave --workers out"),
        ("pcap", &[], "laneway features"),
        ("packet:fanout=lb", &["--level", "flow"], "fanout=hash"),
    ] {
        let words = ["run", "features", "--lane", spec, "--on", "lo", "-o", &out, "--cpus", "0-1"];
        let lane = spec.split(':').next().unwrap();
        laneway([&words[..], more].concat()).refused(2, &[lane, "several workers", part]);
        assert!(folder.names().is_empty(), "{spec}: {:?}", folder.names());
    }
}

/// Asks each of so many sockets' questions until it is answered; true if all were.
fn all_datagrams_come_back(world: &Topology, to: &str) -> bool {
    let ask = || {
        (0..FLOWS).all(|i| {
            let socket = UdpSocket::bind("10.77.0.1:0").unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            let question = format!("question {i}");
            let mut answer = [0; 64];
            (0..TRIES).any(|_| {
                let _ = socket.send_to(question.as_bytes(), to);
                socket.recv(&mut answer).is_ok_and(|n| &answer[..n] == question.as_bytes())
            })
        })
    };
    world.generator.namespace.enter(ask).unwrap()
}

fn all_streams_come_back(world: &Topology, to: &str) -> bool {
    let ask = || {
        (0..FLOWS).all(|i| {
            let Ok(mut stream) = TcpStream::connect(to) else { return false };
            let question = format!("question {i}");
            stream.set_read_timeout(Some(PATIENCE * TRIES as u32)).unwrap();
            let mut answer = vec![0; question.len()];
            stream.write_all(question.as_bytes()).is_ok()
                && stream.read_exact(&mut answer).is_ok()
                && answer == question.as_bytes()
        })
    };
    world.generator.namespace.enter(ask).unwrap()
}

#[test]
fn two_workers_share_one_service_and_each_is_asked() {
    let Some(world) = world() else { return };
    let kernels = ["--listen", "10.77.0.2:7007"];
    let ours = ["--on", "sut0", "--listen", "10.77.0.9:7007"];
    for (spec, shape, place) in [
        ("socket", "--udp", &kernels[..]),
        ("socket:batch=16", "--tcp", &kernels),
        ("uring", "--udp", &kernels),
        ("uring", "--tcp", &kernels),
        ("packet", "--udp", &ours),
        ("afxdp", "--tcp", &ours),
        (DPDK, "--udp", &ours),
    ] {
        if spec == DPDK && !has_dpdk() {
            continue;
        }
        // The first is a knob of datagrams only.
        let spec = if shape == "--tcp" { spec.split(':').next().unwrap() } else { spec };
        let words = ["echo", "--lane", spec, shape, "--workers", "2"];
        let running = Running::app(&world, &[&words[..], place].concat());
        let to = place.last().unwrap();
        let answered = match shape {
            "--udp" => all_datagrams_come_back(&world, to),
            _ => all_streams_come_back(&world, to),
        };
        running.signal(Signal::INT);
        let output = running.end().done();
        assert!(answered, "{spec} {shape}: {}", output.err);
        if matches!(spec, "socket" | "uring") {
            assert!(output.err.contains("reuseport"), "{spec} {shape}: {}", output.err);
        }
        let workers = by_worker(&output.err);
        assert_eq!(workers.len(), 2, "{spec} {shape}: {}", output.err);
        let idle = workers.iter().any(|&(seen, sent)| seen == 0 || sent == 0);
        assert!(!idle, "{spec} {shape}: one was idle: {}", output.err);
        assert_eq!(attached(&world), "", "{spec}");
    }
}

#[test]
fn pings_are_answered_once_by_two_workers() {
    let Some(world) = world() else { return };
    for spec in ["packet", "afxdp", DPDK] {
        if spec == DPDK && !has_dpdk() {
            continue;
        }
        let words = ["echo", "--lane", spec, "--on", "sut0", "--address", OURS, "--workers", "2"];
        let running = Running::app(&world, &words);
        // All at once: ping then has seen no answer when it decides how long it waits for them.
        let words = ["-c", "5", "-l", "5", "-W", "30", OURS];
        let ping = world.generator.namespace.command("ping").args(words).output();
        running.signal(Signal::INT);
        let output = running.end().done();
        let Ok(ping) = ping else { return skip("no program ping; install iputils-ping") };
        let pinged = String::from_utf8(ping.stdout).unwrap();
        assert!(pinged.contains("5 received"), "{spec}: {pinged}\n{}", output.err);
        assert!(!pinged.contains("duplicate"), "{spec}: both answered: {pinged}");
        assert_eq!(by_worker(&output.err).len(), 2, "{spec}: {}", output.err);
    }
}

#[test]
fn echo_says_in_one_sentence_why_a_lane_takes_one_worker() {
    let pings = ["--on", "lo", "--address", "192.0.2.9", "--mac", "02:00:00:00:00:09"];
    let any = ["--udp", "--listen", "127.0.0.1:0"];
    for (spec, more, part) in [
        ("xdp", &pings[..], "leave --workers out"),
        ("uring", &pings, "no fan-out"),
        ("pcap", &pings, "read in its order"),
        ("socket:raw", &["--address", "192.0.2.9"], "every raw socket is shown every ping"),
        ("socket", &any, "another port"),
    ] {
        let lane = spec.split(':').next().unwrap();
        let words = ["run", "echo", "--lane", spec, "--cpus", "0-1"];
        laneway([&words[..], more].concat()).refused(2, &[lane, "several workers", part]);
    }
}
