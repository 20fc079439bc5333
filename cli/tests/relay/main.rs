//! `laneway run relay` and `laneway relay` as a user meets them: between two real cables, its rules from files,
//! the command line and the control socket, with sockets and programs of others at both ends.
//!
//! Tests that need root say so and pass without it.
#![forbid(unsafe_code)]

mod interfaces;
mod soak;

use laneway_core::{FrameLane, Lane, PortId};
use laneway_netns::{Mac, Namespace, VethEnd, VethOptions, VethPair, can_create};
use laneway_packet::{OpenOptions, PacketLane};
use laneway_spec::LaneSpec;
use laneway_testkit::skip;
use laneway_xdp::PassGuard;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{self, Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

mod service;
mod video;

/// The binary under test.
const LANEWAY: &str = env!("CARGO_BIN_EXE_laneway");
/// A test that waits for a datagram that does not come gives up; long, because it ends nothing but a test that fails.
const PATIENCE: Duration = Duration::from_secs(30);
/// Lanes of the kernel's sockets.
const SOCKETS: [&str; 4] = ["socket", "socket:batch=64,gso,gro", "uring", "uring:gso,gro"];
/// Lanes with a stack of the relay's own.
const STACKS: [&str; 2] = ["packet", "afxdp"];
/// The relay's address there.
const ADDRESSES: &str = "192.0.2.1/24@in0,fd01::1/64@in0,198.51.100.1/24@out0,fd02::1/64@out0";

/// A source, the relay and a sink, a cable between each two.
struct World {
    _cables: [VethPair; 2],
    source: Namespace,
    relay: Namespace,
    sink: Namespace,
    folder: Folder,
}

impl World {
    /// Builds it; `None`, and says so, where that cannot be done.
    fn new() -> Option<World> {
        if let Err(why) = can_create() {
            skip(why);
            return None;
        }
        let create = |label| Namespace::create(label).unwrap();
        let (source, relay, sink) = (create("relay-a"), create("relay-b"), create("relay-c"));
        let cable =
            |n: u8, near: (&Namespace, &str, [&str; 2]), far: (&Namespace, &str, [&str; 2])| {
                let end = |side: u8, addresses: &[&str]| {
                    VethEnd::new(Mac([0x02, 0x4c, 0x57, 0x37, n, side]), addresses).unwrap()
                };
                let options =
                    VethOptions { a: end(1, &near.2), b: end(2, &far.2), ..VethOptions::default() };
                VethPair::create(near.0, near.1, far.0, far.1, &options).unwrap()
            };
        let first = cable(
            0,
            (&source, "src0", ["192.0.2.7/24", "fd01::7/64"]),
            (&relay, "in0", ["192.0.2.1/24", "fd01::1/64"]),
        );
        let second = cable(
            1,
            (&relay, "out0", ["198.51.100.1/24", "fd02::1/64"]),
            (&sink, "dst0", ["198.51.100.4/24", "fd02::4/64"]),
        );
        let route = ["route", "add", "224.0.0.0/4", "dev"];
        for (namespace, interface) in [(&source, "src0"), (&relay, "out0"), (&sink, "dst0")] {
            let made = namespace.command("ip").args(route).arg(interface).status();
            assert!(made.is_ok_and(|status| status.success()), "a route for groups");
        }
        Some(World { _cables: [first, second], source, relay, sink, folder: Folder::new() })
    }

    fn control(&self) -> String {
        self.folder.file("relay.sock")
    }

    /// Begins to relay, with a control socket; its rules are in force when this returns.
    fn start(&self, lane: &str, arguments: &[&str]) -> Running {
        let control = self.control();
        let mut command = self.relay.command(LANEWAY);
        command
            .args(["run", "relay", "--json", "--lane", lane, "--control", &control])
            .args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = Running { child: Some(command.spawn().unwrap()) };
        let begun = Instant::now();
        loop {
            // Answered when the first rules are in force, and not before there is a socket.
            let output = self.ask(&["status"]);
            if output.status.success() {
                return running;
            }
            let is_over = running.child.as_mut().unwrap().try_wait().unwrap().is_some();
            if is_over || begun.elapsed() > PATIENCE {
                let output = running.end();
                panic!("{lane}: {}{}", text(&output.stdout), text(&output.stderr));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// `laneway relay`, at the control socket.
    fn ask(&self, arguments: &[&str]) -> Output {
        laneway(&[&["relay"], arguments, &["--control", &self.control()]].concat())
    }

    #[track_caller]
    fn done(&self, arguments: &[&str]) -> String {
        let output = self.ask(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn rules(&self, name: &str, text: &str) -> String {
        let path = self.folder.file(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn at_source(&self, bind: &str) -> UdpSocket {
        let socket = self.source.enter(|| UdpSocket::bind(bind).unwrap()).unwrap();
        socket.set_multicast_ttl_v4(4).ok();
        socket
    }

    /// A socket at the sink, member of the group where it is one.
    fn at_sink(&self, at: &str) -> UdpSocket {
        let at: SocketAddr = at.parse().unwrap();
        let open = || {
            let any: IpAddr = match at.ip() {
                IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
            };
            let socket = UdpSocket::bind((any, at.port())).unwrap();
            match at.ip() {
                IpAddr::V4(group) if group.is_multicast() => {
                    socket.join_multicast_v4(&group, &[198, 51, 100, 4].into()).unwrap();
                }
                IpAddr::V6(group) if group.is_multicast() => {
                    let index = rustix_index("dst0");
                    socket.join_multicast_v6(&group, index).unwrap();
                }
                _ => {}
            }
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket
        };
        self.sink.enter(open).unwrap()
    }
}

/// The number of an interface of this thread's namespace.
fn rustix_index(interface: &str) -> u32 {
    // `/sys` may show another namespace; `ip` asks this one.
    let output =
        Command::new("ip").args(["-o", "link", "show", "dev", interface]).output().unwrap();
    text(&output.stdout).split(':').next().and_then(|n| n.trim().parse().ok()).unwrap()
}

/// The program, with its rules in force.
struct Running {
    child: Option<Child>,
}

/// A test that fails leaves nothing running.
impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Running {
    /// Ends it as Ctrl-C does.
    fn end(mut self) -> Output {
        let mut child = self.child.take().expect("it is ended once");
        if child.try_wait().unwrap().is_none() {
            kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        }
        child.wait_with_output().unwrap()
    }

    /// Ends it; what it says is a closed account.
    #[track_caller]
    fn account(self, lane: &str) -> Value {
        let output = self.end();
        assert_eq!(output.status.code(), Some(0), "{lane}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// Receives a datagram. A call may be interrupted without one: a deadline keeps the kernel from beginning it again.
fn receive(socket: &UdpSocket, bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        match socket.recv(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            received => return received,
        }
    }
}

/// Ends the threads of a test that look at it, when it is dropped: in a panic, too, which they would outlast.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn laneway(arguments: &[&str]) -> Output {
    Command::new(LANEWAY).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// The run ended with exit code 2 and one sentence that says each of `parts`.
#[track_caller]
fn refused(output: &Output, parts: &[&str]) {
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(err.starts_with("laneway: ") && err.trim_end().lines().count() == 1, "{err}");
    parts.iter().for_each(|part| assert!(err.contains(part), "`{part}` is missing in: {err}"));
}

/// A folder of its own, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("laneway-relay-{}-{n}", process::id()));
        fs::create_dir(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A test that failed has reported why already.
        let _ = fs::remove_dir_all(&self.0);
    }
}

const RULES: &str = r#"
allow = ["198.51.100.0/24"]

[[rule]]
name = "tv"
input = { interface = "in0", group = "239.1.1.1", port = 5000 }
outputs = [ { destination = "198.51.100.4:6000", interface = "out0", dscp = 34 },
            { destination = "239.2.2.2:5000", interface = "out0", ttl = 4 } ]

[[rule]]
input = { interface = "in0", group = "ff15::1", port = 5001 }
outputs = [ { destination = "[ff15::2]:5002", interface = "out0", ttl = 7, dscp = 46 } ]
"#;

/// What a frame says that a relay has to see to: source and destination, TTL, class, payload.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    source: IpAddr,
    destination: SocketAddr,
    ttl: u8,
    dscp: u8,
    payload: Vec<u8>,
}

/// Reads an Ethernet frame of UDP; the sums are checked with it.
fn read(frame: &[u8]) -> Option<Seen> {
    let sum = |parts: &[&[u8]]| {
        let words = parts.iter().flat_map(|part| part.chunks(2));
        let sum: u32 =
            words.map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        (folded & 0xffff) + (folded >> 16)
    };
    let packet = &frame[14..];
    let (source, to, ttl, class, udp): (IpAddr, IpAddr, u8, u8, &[u8]) = match frame[12..14] {
        [0x08, 0x00] if packet[9] == 17 => {
            assert_eq!(sum(&[&packet[..20]]), 0xffff, "the header's sum");
            let ip = |at: usize| <[u8; 4]>::try_from(&packet[at..at + 4]).unwrap().into();
            (ip(12), ip(16), packet[8], packet[1], &packet[20..])
        }
        [0x86, 0xdd] if packet[6] == 17 => {
            let ip = |at: usize| <[u8; 16]>::try_from(&packet[at..at + 16]).unwrap().into();
            (ip(8), ip(24), packet[7], packet[0] << 4 | packet[1] >> 4, &packet[40..])
        }
        _ => return None,
    };
    let bytes = usize::from(u16::from_be_bytes([udp[4], udp[5]]));
    let udp = &udp[..bytes];
    Some(Seen {
        source,
        destination: SocketAddr::new(to, u16::from_be_bytes([udp[2], udp[3]])),
        ttl,
        dscp: class >> 2,
        payload: udp[8..].to_vec(),
    })
}

/// What arrives at the sink, until there is as much as is wanted.
fn frames_at_sink(lane: &mut PacketLane, wanted: usize) -> Vec<Seen> {
    let mut seen = Vec::new();
    let begun = Instant::now();
    while seen.len() < wanted && begun.elapsed() < PATIENCE {
        let burst = lane.receive(PortId(0)).unwrap();
        seen.extend((0..burst.len()).filter_map(|i| read(burst.frame(i).bytes)));
        let is_idle = burst.is_empty();
        lane.settle(PortId(0)).unwrap();
        if is_idle {
            lane.wait(Duration::from_millis(20)).unwrap();
        }
    }
    seen
}

#[test]
fn the_same_rules_give_the_same_datagrams_on_every_lane() {
    let Some(world) = World::new() else { return };
    let rules = world.rules("rules.toml", RULES);
    let payload = |n: u8| vec![n; 100 + 7 * usize::from(n)];
    let mut expected = Vec::new();
    for n in 0..20 {
        let seen = |source: &str, destination: &str, ttl, dscp| Seen {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            ttl,
            dscp,
            payload: payload(n),
        };
        expected.push(seen("198.51.100.1", "198.51.100.4:6000", 64, 34));
        expected.push(seen("198.51.100.1", "239.2.2.2:5000", 4, 0));
        expected.push(seen("fd02::1", "[ff15::2]:5002", 7, 46));
    }
    expected.sort();
    for lane in SOCKETS.iter().chain(&STACKS) {
        let own: &[&str] = if STACKS.contains(lane) { &["--address", ADDRESSES] } else { &[] };
        let running = world.start(lane, &[&["--config", &rules], own].concat());
        let spec: LaneSpec = "packet".parse().unwrap();
        let open = move || PacketLane::open(&spec, &["dst0"], OpenOptions::default()).unwrap();
        // A ring of a packet socket belongs to the thread that opened it.
        let (opened, is_open) = mpsc::channel();
        let (world, expected) = (&world, &expected);
        let mut seen = thread::scope(|scope| {
            let watch = scope.spawn(move || {
                world.sink.enter(move || {
                    let mut sink = open();
                    opened.send(()).unwrap();
                    frames_at_sink(&mut sink, expected.len())
                })
            });
            is_open.recv().unwrap();
            let (four, six) = (world.at_source("0.0.0.0:0"), world.at_source("[::]:0"));
            for n in 0..20 {
                four.send_to(&payload(n), "239.1.1.1:5000").unwrap();
                let scope_id = world.source.enter(|| rustix_index("src0")).unwrap();
                let to = std::net::SocketAddrV6::new("ff15::1".parse().unwrap(), 5001, 0, scope_id);
                six.send_to(&payload(n), to).unwrap();
            }
            watch.join().unwrap().unwrap()
        });
        seen.sort();
        assert_eq!(seen.len(), expected.len(), "{lane}: {}", world.done(&["status"]));
        assert!(seen == *expected, "{lane}: {seen:#?}");
        let account = running.account(lane);
        assert_eq!(account["fates"]["relayed"], 40, "{lane}: {account:#}");
        assert_eq!(account["copies"]["asked"], 60, "{lane}: {account:#}");
    }
}

/// As [`RULES`], with one output per interface and rule.
const KERNEL_RULES: &str = r#"
allow = ["198.51.100.0/24"]

[[rule]]
name = "tv"
input = { interface = "in0", group = "239.1.1.1", port = 5000 }
outputs = [ { destination = "198.51.100.4:6000", interface = "out0", dscp = 34 } ]

[[rule]]
input = { interface = "in0", group = "239.1.1.2", port = 5000, sources = ["192.0.2.7"] }
outputs = [ { destination = "239.2.2.2:5000", interface = "out0", ttl = 4 } ]

[[rule]]
input = { interface = "in0", group = "239.1.1.3", port = 5000, sources = ["192.0.2.99"] }
outputs = [ { destination = "239.2.2.3:5000", interface = "out0" } ]

[[rule]]
input = { interface = "in0", group = "ff15::1", port = 5001 }
outputs = [ { destination = "[ff15::2]:5002", interface = "out0", ttl = 7, dscp = 46 } ]
"#;

#[test]
fn in_the_kernel_the_same_rules_give_the_same_datagrams_and_change_while_it_runs() {
    let Some(world) = World::new() else { return };
    // An end of a veth takes redirected frames only with a program of its own.
    let _pass = world.sink.enter(|| PassGuard::attach("dst0").unwrap()).unwrap();
    let rules = world.rules("rules.toml", KERNEL_RULES);
    let arguments = ["--config", &rules, "--address", "198.51.100.1/24@out0,fd02::1/64@out0"];
    // The ends of a cable know each other; no other host is there.
    let strange = world.rules("strange.toml", &KERNEL_RULES.replace("100.4:", "100.77:"));
    let mut command = world.relay.command(LANEWAY);
    command.args(["run", "relay", "--lane", "xdp", "--duration", "30s", "--config", &strange]);
    let output = command.args(&arguments[2..]).output().unwrap();
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    let why = printed.lines().find(|line| line.starts_with("laneway: ")).unwrap_or(&printed);
    for part in ["`tv`", "198.51.100.77", "ping"] {
        assert!(why.contains(part), "`{part}` is missing in: {printed}");
    }
    let running = world.start("xdp", &arguments);
    for group in ["239.1.1.1", "239.1.1.2", "239.1.1.3", "ff15::1"] {
        assert!(is_member(&world.relay, "in0", group), "{group}");
    }
    let payload = |n: u8| vec![n; 100 + 7 * usize::from(n)];
    let mut expected = Vec::new();
    for n in 0..20 {
        let seen = |source: &str, destination: &str, ttl, dscp| Seen {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            ttl,
            dscp,
            payload: payload(n),
        };
        expected.push(seen("198.51.100.1", "198.51.100.4:6000", 64, 34));
        expected.push(seen("198.51.100.1", "239.2.2.2:5000", 4, 0));
        expected.push(seen("fd02::1", "[ff15::2]:5002", 7, 46));
    }
    expected.sort();
    let spec: LaneSpec = "packet".parse().unwrap();
    let (opened, is_open) = mpsc::channel();
    let (world, wanted) = (&world, expected.len());
    let mut seen = thread::scope(|scope| {
        let watch = scope.spawn(move || {
            world.sink.enter(move || {
                let mut sink = PacketLane::open(&spec, &["dst0"], OpenOptions::default()).unwrap();
                opened.send(()).unwrap();
                frames_at_sink(&mut sink, wanted)
            })
        });
        is_open.recv().unwrap();
        let (four, six) = (world.at_source("0.0.0.0:0"), world.at_source("[::]:0"));
        let scope_id = world.source.enter(|| rustix_index("src0")).unwrap();
        for n in 0..20 {
            for group in ["239.1.1.1:5000", "239.1.1.2:5000", "239.1.1.3:5000"] {
                four.send_to(&payload(n), group).unwrap();
            }
            let to = std::net::SocketAddrV6::new("ff15::1".parse().unwrap(), 5001, 0, scope_id);
            six.send_to(&payload(n), to).unwrap();
        }
        watch.join().unwrap().unwrap()
    });
    seen.sort();
    assert!(seen == expected, "{}: {seen:#?}", world.done(&["status"]));
    let state = || -> Value { serde_json::from_str(&world.done(&["--json", "status"])).unwrap() };
    let tv = |state: &Value| {
        let rules = state["rules"].as_array().unwrap().clone();
        rules.into_iter().find(|rule| rule["name"] == "tv").unwrap()
    };
    assert_eq!(tv(&state())["outputs"][0]["sent"], 20);
    assert_eq!(state()["unmatched"]["source"], 20);
    // A change that the kernel half cannot have changes nothing.
    let before = world.done(&["list"]);
    for (from, to, parts) in [
        ("dscp = 34", "sample = 2", ["`sample`", "lane socket"]),
        ("198.51.100.4", "198.51.100.77", ["198.51.100.77", "ping"]),
        ("\"out0\", dscp = 34", "\"lo\"", ["`lo`", "--on"]),
    ] {
        let edited = world.rules("edited.toml", &KERNEL_RULES.replacen(from, to, 1));
        refused(&world.ask(&["replace", &edited]), &parts);
        assert_eq!(world.done(&["list"]), before);
    }
    // One that it can is in force when it is answered, and a rule that stays goes on counting.
    let edited = world.rules("edited.toml", &KERNEL_RULES.replacen("239.1.1.2", "239.1.1.9", 1));
    world.done(&["replace", &edited]);
    assert!(is_member(&world.relay, "in0", "239.1.1.9"));
    assert!(!is_member(&world.relay, "in0", "239.1.1.2"));
    let (source, sink) = (world.at_source("0.0.0.0:0"), world.at_sink("239.2.2.2:5000"));
    source.send_to(b"there", "239.1.1.9:5000").unwrap();
    let mut bytes = [0; 16];
    let n = receive(&sink, &mut bytes).unwrap();
    assert_eq!(&bytes[..n], b"there");
    assert_eq!(tv(&state())["outputs"][0]["sent"], 20);
    let account = running.account("xdp");
    assert_eq!(account["fates"]["relayed"], 61, "{account:#}");
    assert_eq!(account["fates"]["other_source"], 20, "{account:#}");
    assert_eq!(account["copies"]["asked"], 61, "{account:#}");
    assert_eq!(account["copies"]["sent"], 61, "{account:#}");
}

/// So many rules of other groups, each with outputs to this UDP port.
fn many_rules(rules: u16, port: u16) -> String {
    let mut text = "allow = [\"198.51.100.0/24\"]\n".to_owned();
    text.push_str(
        "[[rule]]\nname = \"untouched\"\ninput = { interface = \"in0\", group = \"239.9.9.9\", port = 5000 }\n\
         outputs = [ { destination = \"198.51.100.4:6000\", interface = \"out0\" } ]\n",
    );
    for n in 0..rules {
        let group = Ipv4Addr::new(239, 1, (n >> 8) as u8, n as u8);
        let _ = write!(
            text,
            "[[rule]]\ninput = {{ interface = \"in0\", group = \"{group}\", port = 5000 }}\n\
             outputs = [ {{ destination = \"198.51.100.4:{port}\", interface = \"out0\" }} ]\n",
        );
    }
    text
}

#[test]
fn rules_are_replaced_under_traffic_and_the_others_lose_nothing() {
    const RULES: u16 = 1000;
    let Some(world) = World::new() else { return };
    let files = [7001, 7002].map(|port| world.rules(&port.to_string(), &many_rules(RULES, port)));
    for lane in ["socket", "uring"] {
        let running = world.start(lane, &["--config", &files[0]]);
        let (source, sink) = (world.at_source("0.0.0.0:0"), world.at_sink("198.51.100.4:6000"));
        let is_over = AtomicBool::new(false);
        let (sent, received) = thread::scope(|scope| {
            let over = Over(&is_over);
            let sender = scope.spawn(|| {
                let mut n = 0u32;
                while !is_over.load(Ordering::Relaxed) {
                    source.send_to(&n.to_be_bytes(), "239.9.9.9:5000").unwrap();
                    n += 1;
                    thread::sleep(Duration::from_millis(2));
                }
                // The last, by which the receiver knows.
                source.send_to(&u32::MAX.to_be_bytes(), "239.9.9.9:5000").unwrap();
                n
            });
            let receiver = scope.spawn(|| {
                let (mut numbers, mut bytes) = (Vec::new(), [0; 4]);
                while receive(&sink, &mut bytes).is_ok() && bytes != [0xff; 4] {
                    numbers.push(u32::from_be_bytes(bytes));
                }
                numbers
            });
            for round in 1..=3usize {
                let answer = world.done(&["replace", &files[round % 2]]);
                assert!(answer.contains("1 rules untouched"), "{answer}");
                assert_eq!(answer.matches(" in force").count(), usize::from(RULES), "{lane}");
            }
            drop(over);
            (sender.join().unwrap(), receiver.join().unwrap())
        });
        assert!(
            received.iter().copied().eq(0..sent),
            "{lane}: {sent} sent, {} received",
            received.len()
        );
        // What is in force is what the last file says.
        let far = world.at_sink("198.51.100.4:7002");
        source.send_to(b"there", "239.1.0.77:5000").unwrap();
        let mut bytes = [0; 16];
        let n = receive(&far, &mut bytes).unwrap();
        assert_eq!(&bytes[..n], b"there", "{lane}");
        running.account(lane);
    }
}

#[test]
fn a_change_that_cannot_be_had_changes_nothing_and_says_why() {
    let Some(world) = World::new() else { return };
    let rules = world.rules("rules.toml", RULES);
    let running = world.start("socket", &["--config", &rules]);
    let before = world.done(&["list"]);
    let edit = |name: &str, from: &str, to: &str| {
        assert!(RULES.contains(from), "{from}");
        world.rules(name, &RULES.replacen(from, to, 1))
    };
    for (file, parts) in [
        (edit("1", "\"in0\"", "\"none0\""), ["rule `tv`", "none0"]),
        (edit("2", "198.51.100.4", "203.0.113.1"), ["203.0.113.1", "allow"]),
        (edit("3", "port = 5000", "prot = 5000"), ["line 6, column", "prot"]),
        (
            edit(
                "4",
                "239.2.2.2:5000\", interface = \"out0\"",
                "239.1.1.1:5000\", interface = \"in0\"",
            ),
            ["output 2", "again"],
        ),
        (edit("5", "ff15::1", "224.0.0.9"), ["224.0.0.9", "--local-groups"]),
    ] {
        refused(&world.ask(&["replace", &file]), &parts);
        assert_eq!(world.done(&["list"]), before, "{parts:?}");
    }
    refused(&world.ask(&["remove", "0123456789ab"]), &["0123456789ab", "laneway relay list"]);
    refused(&world.ask(&["remove", "12"]), &["12", "hexadecimal"]);
    // What is saved is what is in force.
    let saved = world.rules("saved.toml", &world.done(&["save"]));
    // And another run may begin with it: what is permitted is in it.
    let checked = laneway(&["relay", "check", &saved]);
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    let json: Value = serde_json::from_str(&world.done(&["save", "--json"])).unwrap();
    assert!(json["rule"].is_array(), "{json}");
    assert!(world.done(&["replace", &saved]).contains("2 rules untouched"));
    let id = before.split([' ', ':']).next().unwrap();
    assert!(world.done(&["remove", id]).contains(&format!("rule {id} removed")));
    assert_eq!(world.done(&["list"]).matches(" on in0").count(), 1);
    assert!(world.done(&["add", &saved]).contains(" in force"));
    assert_eq!(world.done(&["list"]), before);
    running.account("socket");
}

#[test]
fn two_workers_share_a_hundred_groups_and_every_datagram_leaves_once() {
    const GROUPS: u16 = 100;
    let Some(world) = World::new() else { return };
    let rules = world.rules("rules.toml", &many_rules(GROUPS, 7001));
    for lane in ["socket:batch=64,gso,gro", "uring"] {
        let running = world.start(lane, &["--config", &rules, "--workers", "2"]);
        let (source, sink) = (world.at_source("0.0.0.0:0"), world.at_sink("198.51.100.4:7001"));
        let mut received = BTreeMap::new();
        for n in 0..GROUPS {
            let to = SocketAddr::new([239, 1, (n >> 8) as u8, n as u8].into(), 5000);
            source.send_to(&n.to_be_bytes(), to).unwrap();
            let mut bytes = [0; 2];
            receive(&sink, &mut bytes).unwrap();
            *received.entry(u16::from_be_bytes(bytes)).or_insert(0) += 1;
        }
        let once: BTreeMap<u16, u32> = (0..GROUPS).map(|n| (n, 1)).collect();
        assert_eq!(received, once, "{lane}");
        let status: Value = serde_json::from_str(&world.done(&["--json", "status"])).unwrap();
        let by_rule: BTreeSet<u64> = status["rules"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|rule| rule["name"].is_null())
            .map(|rule| rule["outputs"][0]["sent"].as_u64().unwrap())
            .collect();
        assert_eq!(by_rule, BTreeSet::from([1]), "{lane}: counted by each rule's output");
        let account = running.account(lane);
        let workers = account["workers"].as_array().unwrap();
        let each: Vec<u64> =
            workers.iter().map(|worker| worker["relayed"].as_u64().unwrap()).collect();
        assert_eq!(each.iter().sum::<u64>(), u64::from(GROUPS), "{lane}: {account:#}");
        assert!(each.iter().all(|n| *n > 0), "{lane}: both work: {each:?}");
    }
}

/// The worker that could not have its rule ended alone: the other went on with half of the rules, and all ended well.
#[test]
fn a_rule_that_one_of_two_workers_cannot_have_ends_the_run_and_is_named() {
    if laneway_engine::usable_cpus().is_ok_and(|cpus| cpus.len() < 2) {
        return skip("two workers need two CPUs");
    }
    let Some(world) = World::new() else { return };
    let bind = || UdpSocket::bind("192.0.2.1:5001").unwrap();
    let _taken = world.relay.enter(bind).unwrap();
    let rule = |input: &str| {
        format!(
            "[[rule]]\ninput = {{ {input} }}\n\
             outputs = [ {{ destination = \"198.51.100.4:6000\", interface = \"out0\" }} ]\n"
        )
    };
    let free = "interface = \"in0\", group = \"239.1.1.1\", port = 5000";
    let both = [rule(free), rule("address = \"192.0.2.1\", port = 5001")];
    let both = format!("allow = [\"198.51.100.0/24\"]\n{}", both.concat());
    let rules = world.rules("rules.toml", &both);
    for lane in ["socket", "uring"] {
        let mut command = world.relay.command(LANEWAY);
        command.args(["run", "relay", "--lane", lane, "--config", &rules, "--workers", "2"]);
        let output = command.args(["--duration", "10"]).stdin(Stdio::null()).output().unwrap();
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{lane}: {err}");
        let why = err.lines().last().unwrap();
        assert!(why.starts_with("laneway: ") && why.contains("192.0.2.1:5001"), "{lane}: {err}");
    }
}

#[test]
fn socat_sends_a_file_through_it_and_socat_receives_the_same() {
    if Command::new("socat").arg("-V").output().is_err() {
        return skip("socat is not installed");
    }
    let Some(world) = World::new() else { return };
    // What a socket's buffer holds, whichever end is slow.
    let bytes: Vec<u8> =
        (0..60 * 1316u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let (sent, received) = (world.folder.file("sent"), world.folder.file("received"));
    fs::write(&sent, &bytes).unwrap();
    for lane in ["socket:batch=64,gso,gro", "uring:gso,gro"] {
        let group = "239.1.1.1:5000@in0";
        let running = world.start(lane, &["--input", group, "--output", "239.2.2.2:5000@out0"]);
        let receive = "UDP4-RECV:5000,ip-add-membership=239.2.2.2:198.51.100.4";
        let mut sink = world
            .sink
            .command("socat")
            .args(["-u", "-b2000", "-T5", receive, &format!("CREATE:{received}")])
            .spawn()
            .unwrap();
        let begun = Instant::now();
        // A member of the group: the kernel's own list says so.
        while !is_member(&world.sink, "dst0", "239.2.2.2") && begun.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(10));
        }
        let send = "UDP4-DATAGRAM:239.1.1.1:5000,ip-multicast-if=192.0.2.7";
        let status = world
            .source
            .command("socat")
            .args(["-u", "-b1316", &format!("FILE:{sent}"), send])
            .status();
        assert!(status.unwrap().success());
        let status = sink.wait().unwrap();
        assert!(status.success(), "{status}");
        assert!(fs::read(&received).unwrap() == bytes, "{lane}: other bytes");
        let account = running.account(lane);
        assert_eq!(account["copies"]["sent"], 60, "{account:#}");
    }
}

fn is_member(namespace: &Namespace, interface: &str, group: &str) -> bool {
    let output =
        namespace.command("ip").args(["maddr", "show", "dev", interface]).output().unwrap();
    text(&output.stdout).split_whitespace().any(|word| word == group)
}

#[test]
fn a_watcher_is_sent_news_until_it_leaves_and_the_socket_goes_with_the_run() {
    let Some(world) = World::new() else { return };
    let running = world.start("socket", &[]);
    assert_eq!(world.done(&["list"]), "no rules\n");
    let mut watcher = Command::new(LANEWAY)
        .args(["relay", "watch", "--control", &world.control()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
    for _ in 0..2 {
        assert!(lines.next().unwrap().unwrap().contains("0 datagrams"));
    }
    // A run of the tests in the background of a shell has its children ignore SIGINT.
    kill_process(Pid::from_child(&watcher), Signal::TERM).unwrap();
    watcher.wait().unwrap();
    running.account("socket");
    assert!(!PathBuf::from(world.control()).exists());
    refused(&world.ask(&["status"]), &["cannot talk to"]);
}

#[test]
fn what_cannot_be_run_is_refused_with_what_to_try() {
    let folder = Folder::new();
    let file = |name: &str, text: &str| {
        fs::write(folder.file(name), text).unwrap();
        folder.file(name)
    };
    let rules = file("rules.toml", RULES);
    let run = |arguments: &[&str]| laneway(&[&["run", "relay"], arguments].concat());
    for (arguments, parts) in [
        (&["--lane", "socket"][..], &["--config", "--input", "--control"][..]),
        (&["--lane", "socket", "--on", "eth9", "--config", &rules], &["--on", "@IFACE"]),
        (&["--lane", "packet", "--config", &rules], &["in0"]),
        (
            &["--lane", "socket", "--config", &rules, "--address", "192.0.2.1/24@in0"],
            &["--address"],
        ),
        (&["--lane", "socket", "--input", "239.1.1.1:5000"], &["--output"]),
        (
            &["--lane", "socket", "--input", "239.1.1.1", "--output", "239.2.2.2:1"],
            &["239.1.1.1:5000@eth1"],
        ),
        (
            &["--lane", "socket", "--input", "239.1.1.1:5", "--output", "192.0.2.9:5"],
            &["192.0.2.9", "--allow"],
        ),
        (&["--lane", "socket", "--input", "239.1.1.1:5", "--output", "239.1.1.1:5"], &["again"]),
        (&["--lane", "socket", "--config", "/none.toml"], &["/none.toml"]),
    ] {
        refused(&run(arguments), parts);
    }
    let wrong = file("wrong.toml", "[[rule]]\ninput = 7\n");
    refused(&laneway(&["relay", "check", &wrong]), &["wrong.toml: line 2, column"]);
    let checked = laneway(&["relay", "check", &rules]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
}
