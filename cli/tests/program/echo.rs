//! `laneway run echo`: a real `ping`, real sockets of the kernel, and captures, on every lane.

use crate::captures;
use crate::live::{Running, attached, world, world_of};
use crate::said::{Folder, LANEWAY, Said, laneway};
use laneway_netns::{Topology, TopologyOptions};
use laneway_pcap::{LinkType, Reader};
use laneway_testkit::skip;
use laneway_xdp::PassGuard;
use rustix::process::Signal;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

/// An address of nobody's on the cable.
const OURS: &str = "10.77.0.9";
/// How long a client waits for an answer before it asks again, and how often it asks: the first
/// question may be on its way before anybody knows the address.
const PATIENCE: Duration = Duration::from_secs(1);
const TRIES: usize = 10;

/// Pings in the generator's namespace; nothing where there is no such program, which is printed.
fn ping(world: &Topology) -> Option<String> {
    if let Err(error) = Command::new("ping").arg("-V").output() {
        skip(format!("ping: {error}; install iputils-ping"));
        return None;
    }
    let words = ["-c", "5", "-i", "0.02", "-W", "2", OURS];
    let output = world.generator.namespace.command("ping").args(words).output().unwrap();
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_real_ping_is_answered_on_every_lane_and_its_fates_are_told() {
    let Some(world) = world() else { return };
    for spec in ["packet", "packet:ring", "uring", "afxdp", "xdp", "xdp:generic"] {
        // A native program transmits over veth only to a far end that has one as well.
        let far_end = (spec == "xdp").then(|| {
            let attach = || PassGuard::attach(world.generator.interface);
            world.generator.namespace.enter(attach).unwrap().unwrap()
        });
        let words = ["echo", "--lane", spec, "--on", "sut0", "--address", OURS, "--ttl", "99"];
        let mut running = Running::app(&world, &words);
        running.await_line("answering pings for 10.77.0.9");
        let pinged = ping(&world);
        running.signal(Signal::INT);
        let said = running.end().done();
        drop(far_end);
        let Some(pinged) = pinged else { return };
        assert!(pinged.contains("5 received"), "{spec}: {pinged}");
        assert!(pinged.contains("ttl=99"), "{spec}: somebody else answered: {pinged}");
        let fate = said.err.lines().find(|line| line.contains("answered_echo_v4")).unwrap();
        assert_eq!(fate.split_whitespace().last(), Some("5"), "{spec}: {}", said.err);
        if spec.starts_with("xdp") {
            let mode = if spec == "xdp" { "attach_mode native" } else { "attach_mode generic" };
            assert!(said.err.contains(mode), "{spec}: {}", said.err);
        }
        assert_eq!(attached(&world), "", "{spec}");
    }
}

/// A cable without GRO at our end: a stack on lane `packet` wants segments as they were sent.
fn wire() -> Option<Topology> {
    let mut options = TopologyOptions::new("echo");
    options.veth.b.offloads.gro = false;
    world_of(&options)
}

/// The lane, what else it must be told, and the address that it then answers at.
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
        let said = running.end().done();
        assert_eq!(answered, Some((b"are you there?".to_vec(), to)), "{spec}: {}", said.err);
        assert!(said.err.contains("answered"), "{spec}: {}", said.err);
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
            let mut stream = TcpStream::connect_timeout(&to, 10 * PATIENCE).unwrap();
            stream.set_read_timeout(Some(10 * PATIENCE)).unwrap();
            let mut writing = stream.try_clone().unwrap();
            let mut received = vec![0; sent.len()];
            std::thread::scope(|scope| {
                scope.spawn(|| writing.write_all(&sent).unwrap());
                stream.read_exact(&mut received).unwrap();
            });
            received
        };
        let received = world.generator.namespace.enter(asked).unwrap();
        running.signal(Signal::TERM);
        let said = running.end().done();
        assert!(received == sent, "{spec}: other bytes came back");
        for part in ["connections accepted", "bytes sent back", "400,000"] {
            assert!(said.err.contains(part), "{spec}: {part}: {}", said.err);
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
    let said = Said::of(
        Command::new(LANEWAY).args(words).args(["--mac", "02:00:00:00:00:09"]).output().unwrap(),
    );
    let json = said.done().json();
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
    let said = Said::of(Command::new(LANEWAY).args(words).args(more).output().unwrap());
    let fates = said.done().json()["fates"].clone();
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
        let said = laneway(["run", "echo", "--lane", lane, "--udp", "--listen", &address]);
        if said.err.contains("io_uring") {
            skip(said.err);
            continue;
        }
        said.refused(2, &[lane, &address]);
    }
}
