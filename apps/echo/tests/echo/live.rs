//! Real programs that ask over a real cable, on every lane that takes one: the kernel of the asking
//! side resolves the address, sends, and verifies what comes back.
//!
//! Needs root. The responder's address is no interface's, except where a test says so, so that only
//! the responder can have answered; and its TTL says that it was.

use crate::{
    MAC,
    rows::{Row, responder, rows},
};
use laneway_afxdp::AfXdp;
use laneway_core::{
    Cap, CapsReport, Clock, ClockDomain, DropReason, FrameLane, KernelApp, Lane, PortId, Verdict,
};
use laneway_echo::{Config, Echo, Fate, Fates, IcmpEcho, KernelEcho, Limits, Rate};
use laneway_engine::{
    Control, MonotonicClock, RunReport, Stop, UnixClock, run_datagrams, run_frames, run_kernel,
};
use laneway_netns::{Mac, Topology, TopologyOptions, VethEnd, VethOptions, can_create};
use laneway_packet::{OpenOptions, PacketLane};
use laneway_socket::UdpLane;
use laneway_spec::{IdlePolicy, LaneSpec};
use laneway_testkit::skip;
use laneway_xdp::{Options, PassGuard, XdpLane};
use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::mpsc,
    thread,
    time::Duration,
};

/// What tells our answers from the kernel's.
const MARKER: u8 = 96;
/// Waits of 10 ms for an answer before it counts as not coming.
const WAITS_MAX: usize = 3000;
/// What the cable's MTU takes, with two tags.
const FRAME_BYTES_MAX: usize = 1514;
const SUT_MAC: [u8; 6] = [0x02, 0x4c, 0x57, 0, 0, 2];

fn topology(name: &str) -> Option<Topology> {
    if let Err(e) = can_create() {
        skip(e);
        return None;
    }
    let end = |last: u8| {
        let addresses = [format!("10.77.0.{last}/24"), format!("fd00:77::{last}/64")];
        let addresses = addresses.each_ref().map(String::as_str);
        VethEnd::new(Mac([0x02, 0x4c, 0x57, 0, 0, last]), &addresses).expect("well formed")
    };
    let mut options = TopologyOptions::new(format!("echo-{name}"));
    options.veth = VethOptions { a: end(1), b: end(2), ..VethOptions::default() };
    Some(Topology::create(&options).unwrap_or_else(|e| panic!("{e}")))
}

fn config() -> Config {
    let addresses: [IpAddr; 2] =
        ["10.77.0.9", "fd00:77::9"].map(|a| a.parse().expect("an address"));
    Config { ttl_marker: Some(MARKER), ..Config::new(MAC, addresses) }
}

/// Ends the worker however the test ends.
struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.request();
    }
}

struct Served {
    fates: Fates,
    report: RunReport,
}

impl Served {
    fn caps(&self) -> &CapsReport {
        &self.report.ports[0].caps
    }
}

/// Runs the responder on `sut0` while `ask` asks from the other side.
fn serve(topology: &Topology, spec: &str, config: &Config, ask: impl FnOnce()) -> Served {
    let spec: LaneSpec = spec.parse().expect("well formed");
    let stop = Stop::new();
    let (opened, is_open) = mpsc::channel();
    thread::scope(|scope| {
        let _ends = StopOnDrop(stop.clone());
        let control = Control::from(stop.clone());
        let worker = scope.spawn(move || {
            let work = move || work(&spec, config, &control, &opened);
            topology.sut.namespace.enter(work).unwrap_or_else(|e| panic!("{e}"))
        });
        // An error means that the worker panicked; joining it says why.
        if is_open.recv().is_ok() {
            ask();
        }
        stop.request();
        worker.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause))
    })
}

fn work(spec: &LaneSpec, config: &Config, control: &Control, opened: &mpsc::Sender<()>) -> Served {
    let on = ["sut0"];
    let open = match spec.lane() {
        "packet" => {
            let lane = PacketLane::open(spec, &on, OpenOptions::default());
            return frames(lane.unwrap_or_else(|e| panic!("{e}")), config, control, opened);
        }
        "afxdp" => {
            let lane = AfXdp::open(spec, &on, false);
            return frames(lane.unwrap_or_else(|e| panic!("{e}")), config, control, opened);
        }
        "socket" => return messages(spec, config, control, opened),
        _ => XdpLane::open,
    };
    let mut app = KernelEcho::new(config).unwrap_or_else(|e| panic!("{e}"));
    let lane = open(spec, &on, app.half(), Options::default());
    let mut lane = lane.unwrap_or_else(|e| panic!("{e}"));
    assert!(lane.caps(PortId(0)).obtained.has(Cap::NativeXdp) || spec.to_string().contains("gen"));
    opened.send(()).expect("the test waits for it");
    let report = run_kernel(&mut lane, &mut app, &MonotonicClock, IdlePolicy::Block, control);
    let report = report.unwrap_or_else(|e| panic!("{}", e.error));
    assert_eq!(app.unread(), 0);
    Served { fates: *app.fates(), report }
}

fn messages(
    spec: &LaneSpec,
    config: &Config,
    control: &Control,
    opened: &mpsc::Sender<()>,
) -> Served {
    let listen: Vec<_> = config.addresses.iter().map(|&ip| SocketAddr::new(ip, 0)).collect();
    let mut lane = UdpLane::open(spec, &listen).unwrap_or_else(|e| panic!("{e}"));
    let app = IcmpEcho::new(&config.addresses, &config.limits);
    let mut app = app.unwrap_or_else(|e| panic!("{e}"));
    opened.send(()).expect("the test waits for it");
    let report = run_datagrams(&mut lane, &mut app, &MonotonicClock, IdlePolicy::Block, control);
    let report = report.unwrap_or_else(|e| panic!("{}", e.error));
    Served { fates: *app.fates(), report }
}

fn frames<L: FrameLane>(
    mut lane: L,
    config: &Config,
    control: &Control,
    opened: &mpsc::Sender<()>,
) -> Served {
    let mut app = Echo::new(config).unwrap_or_else(|e| panic!("{e}"));
    opened.send(()).expect("the test waits for it");
    let report = match lane.clock_domain() {
        ClockDomain::Monotonic => go(&mut lane, &mut app, &MonotonicClock, control),
        _ => go(&mut lane, &mut app, &UnixClock::new(), control),
    };
    Served { fates: *app.fates(), report }
}

fn go<L: FrameLane>(
    lane: &mut L,
    app: &mut Echo,
    clock: &impl Clock,
    control: &Control,
) -> RunReport {
    run_frames(lane, app, clock, IdlePolicy::Block, control)
        .unwrap_or_else(|e| panic!("{}", e.error))
}

/// The output of a program run on the asking side; `None`, reported as a skip, when it is not installed.
fn output_of(topology: &Topology, program: &str, arguments: &str) -> Option<String> {
    if let Err(e) = std::process::Command::new(program).arg("-V").output()
        && e.kind() == io::ErrorKind::NotFound
    {
        skip(format!("there is no program `{program}`"));
        return None;
    }
    let mut command = topology.generator.namespace.command(program);
    let output = command.args(arguments.split_whitespace()).output().expect("ip runs");
    let text = [output.stdout, output.stderr].concat();
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// Pings, and expects every one to be answered; by us, if `is_marked`. With all of them sent at once
/// (`-l`) ping has seen no answer when it decides how long it waits for them; later it would wait no
/// longer than twice the longest time so far.
fn pings(topology: &Topology, arguments: &str, count: usize, is_marked: bool) {
    let arguments = format!("-c {count} -W 30 {arguments}");
    let Some(text) = output_of(topology, "ping", &arguments) else { return };
    let want = format!("{count} packets transmitted, {count} received");
    assert!(text.contains(&want), "ping {arguments}: {text}");
    assert!(!text.contains("DUP!") && !text.contains("wrong data"), "{text}");
    let shown = text.contains(&format!("ttl={MARKER}"));
    assert!(shown == is_marked || arguments.contains("-f"), "ping {arguments}: {text}");
}

/// All programs, all of which must be satisfied.
fn ask_everything(topology: &Topology) {
    pings(topology, "-l 5 10.77.0.9", 5, true);
    pings(topology, "-6 -l 5 fd00:77::9", 5, true);
    pings(topology, "-l 5 -s 1400 10.77.0.9", 5, true);
    pings(topology, "-l 5 -s 0 10.77.0.9", 5, true);
    // Data of zeros alone, the case in which both forms of a zero checksum can come up.
    pings(topology, "-l 5 -p 00 -e 0 10.77.0.9", 5, true);
    pings(topology, "-6 -l 5 -s 1400 fd00:77::9", 5, true);
    if let Some(text) = output_of(topology, "arping", "-c 3 -I gen0 10.77.0.9") {
        let is_answered = ["Received 3 response", "3 packets received"];
        assert!(is_answered.iter().any(|want| text.contains(want)), "{text}");
    }
    if let Some(text) = output_of(topology, "hping3", "-1 -c 5 -i u10000 10.77.0.9") {
        assert!(text.contains("5 packets received"), "{text}");
    }
    // It ends with its last request and, after a turn without its CPU, counts a reply less: asked again then.
    let all = |text: &String| text.contains("Rcvd: 5");
    let asked = || output_of(topology, "nping", "--icmp -c 5 --delay 10ms 10.77.0.9");
    if let Some(text) = asked() {
        let again = (0..3).filter_map(|_| asked());
        assert!(all(&text) || again.take(3).any(|text| all(&text)), "{text}");
    }
}

fn check(served: &Served) {
    let fates = &served.fates;
    assert!(fates.of(Fate::AnsweredEchoV4) >= 20, "{fates:?}");
    assert!(fates.of(Fate::AnsweredEchoV6) >= 10, "{fates:?}");
    assert!(fates.of(Fate::AnsweredArp) >= 1 && fates.of(Fate::AnsweredNd) >= 1, "{fates:?}");
    assert_eq!(fates.dropped(), 0, "{fates:?}");
    let app = &served.report.app;
    assert_eq!((app.tx_frames, app.passed), (fates.answered(), fates.passed()));
    assert_eq!(app.rx_frames, fates.total());
}

/// Whatever the lane needs at the far end.
fn far_end(topology: &Topology, spec: &str) -> Option<PassGuard> {
    spec.starts_with("xdp").then(|| {
        let guard = topology.generator.namespace.enter(|| PassGuard::attach("gen0"));
        guard.expect("the namespace is there").unwrap_or_else(|e| panic!("{e}"))
    })
}

fn every_program_is_answered(name: &str, spec: &str) {
    let Some(topology) = topology(name) else { return };
    let _far_end = far_end(&topology, spec);
    let served = serve(&topology, spec, &config(), || ask_everything(&topology));
    check(&served);
    let limits =
        Limits { per_source: Some(Rate { per_second: 1, burst: 1000 }), ..Limits::default() };
    let flooded = serve(&topology, spec, &Config { limits, ..config() }, || {
        pings(&topology, "-f 10.77.0.9", 1000, true);
    });
    assert_eq!(flooded.fates.of(Fate::AnsweredEchoV4), 1000);
}

#[test]
fn packet() {
    every_program_is_answered("packet", "packet");
}

#[test]
fn packet_ring() {
    every_program_is_answered("ring", "packet:ring");
}

#[test]
fn afxdp() {
    every_program_is_answered("afxdp", "afxdp:copy");
}

#[test]
fn xdp() {
    every_program_is_answered("xdp", "xdp");
}

#[test]
fn xdp_generic() {
    every_program_is_answered("generic", "xdp:generic");
}

#[test]
fn raw_sockets_answer_every_program_and_the_kernel_answers_none_of_it_twice() {
    let Some(topology) = topology("raw") else { return };
    for address in ["10.77.0.9/32", "fd00:77::9/128"] {
        let mut ip = topology.sut.namespace.command("ip");
        let added = ip.args(["address", "add", address, "dev", "sut0", "nodad"]).status();
        assert!(added.expect("ip runs").success());
    }
    let limits =
        Limits { per_source: Some(Rate { per_second: 10, burst: 2000 }), ..Limits::default() };
    let spec = format!("socket:raw,mute,ttl={MARKER}");
    let served = serve(&topology, &spec, &Config { limits, ..config() }, || {
        ask_everything(&topology);
        // The kernel puts fragments together before the socket sees them.
        pings(&topology, "-l 3 -s 4000 10.77.0.9", 3, true);
        pings(&topology, "-6 -l 3 -s 4000 fd00:77::9", 3, true);
        pings(&topology, "-f 10.77.0.9", 1000, true);
    });
    let fates = &served.fates;
    assert!(fates.of(Fate::AnsweredEchoV4) >= 1023, "{fates:?}");
    assert!(fates.of(Fate::AnsweredEchoV6) >= 13, "{fates:?}");
    assert_eq!(fates.dropped() + fates.passed(), 0, "{fates:?}");
    let counters = served.report.counters();
    assert_eq!((counters.tx_frames, counters.rx_frames), (fates.answered(), fates.total()));
    pings(&topology, "-l 2 10.77.0.9", 2, false);
    pings(&topology, "-6 -l 2 fd00:77::9", 2, false);
}

#[test]
fn the_kernel_still_answers_for_its_own_address_behind_the_responder() {
    for spec in ["packet", "xdp"] {
        let Some(topology) = topology("behind") else { return };
        let _far_end = far_end(&topology, spec);
        let served = serve(&topology, spec, &config(), || {
            pings(&topology, "-l 5 10.77.0.2", 5, false);
            pings(&topology, "-6 -l 5 fd00:77::2", 5, false);
        });
        assert_eq!(served.fates.answered(), 0, "{:?}", served.fates);
        assert!(served.fates.of(Fate::PassedForeignMac) >= 10, "{:?}", served.fates);
    }
}

#[test]
fn in_the_kernel_the_stacks_own_address_is_answered_before_the_stack_does() {
    let Some(topology) = topology("before") else { return };
    let _far_end = far_end(&topology, "xdp");
    let addresses = ["10.77.0.2", "fd00:77::2"].map(|a| a.parse().expect("an address"));
    let config = Config { ttl_marker: Some(MARKER), ..Config::new(SUT_MAC, addresses) };
    let served = serve(&topology, "xdp", &config, || {
        pings(&topology, "-l 5 10.77.0.2", 5, true);
        pings(&topology, "-6 -l 5 fd00:77::2", 5, true);
        // Fragments are the stack's: it answers them, and it knows no marker.
        pings(&topology, "-l 3 -s 4000 10.77.0.2", 3, false);
    });
    assert_eq!(served.caps().facts["attach_mode"], "native");
    assert!(served.fates.of(Fate::PassedFragment) >= 9, "{:?}", served.fates);
    assert_eq!(served.fates.answered(), 10, "{:?}", served.fates);
}

/// What real programs send that is no plain ping: a program, its arguments, and the fate of at least
/// so many of its frames.
const UNUSUAL: [(&str, &str, Fate, u64); 7] = [
    // Record route: options in the header.
    ("ping", "-c 3 -i 0.01 -W 1 -R 10.77.0.9", Fate::PassedOptions, 3),
    ("ping", "-c 3 -i 0.01 -W 1 -T tsonly 10.77.0.9", Fate::PassedOptions, 3),
    // To all hosts on the cable.
    ("ping", "-c 3 -i 0.2 -W 1 -b 10.77.0.255", Fate::PassedGroup, 3),
    ("ping", "-6 -c 3 -i 0.01 -W 1 -I gen0 ff02::1", Fate::PassedGroup, 3),
    ("ping", "-c 2 -i 0.01 -W 1 -s 4000 10.77.0.9", Fate::PassedFragment, 6),
    // Timestamp requests.
    ("hping3", "-1 -c 3 -i u10000 --icmptype 13 10.77.0.9", Fate::PassedOtherIcmp, 3),
    ("hping3", "-2 -c 3 -i u10000 -p 9 10.77.0.9", Fate::PassedProtocol, 3),
];

#[test]
fn what_real_programs_send_that_is_no_plain_ping_is_left_to_the_stack() {
    for spec in ["packet", "xdp"] {
        let Some(topology) = topology("unusual") else { return };
        let _far_end = far_end(&topology, spec);
        let mut wanted = [0; Fate::COUNT];
        let served = serve(&topology, spec, &config(), || {
            for (program, arguments, fate, frames) in UNUSUAL {
                if output_of(&topology, program, arguments).is_some() {
                    wanted[fate as usize] += frames;
                }
            }
            all_have_been_seen(&topology);
        });
        let fates = &served.fates;
        for &fate in Fate::ALL {
            assert!(fates.of(fate) >= wanted[fate as usize], "{spec}: {fate:?}: {fates:?}");
        }
        let echoed = fates.of(Fate::AnsweredEchoV4) + fates.of(Fate::AnsweredEchoV6);
        assert_eq!(echoed, 0, "{spec}: {fates:?}");
    }
}

#[test]
fn a_flood_with_made_up_sources_is_held_by_the_limit_of_all() {
    let limits = Limits {
        per_source: Some(Rate { per_second: 1, burst: 1 }),
        global: Some(Rate { per_second: 1, burst: 50 }),
        sources_max: 1024,
    };
    for spec in ["packet", "xdp"] {
        let Some(topology) = topology("flood") else { return };
        let _far_end = far_end(&topology, spec);
        let mut is_flooded = false;
        let served = serve(&topology, spec, &Config { limits, ..config() }, || {
            // So that the flood itself need not ask.
            let _ = output_of(&topology, "ping", "-c 1 -W 1 10.77.0.9");
            let flood = "-1 -c 300 -i u1000 --rand-source 10.77.0.9";
            is_flooded = output_of(&topology, "hping3", flood).is_some();
            all_have_been_seen(&topology);
        });
        if !is_flooded {
            return;
        }
        let fates = &served.fates;
        let answered = fates.of(Fate::AnsweredEchoV4);
        // One more each second, however long this takes; it has begun and ended within one.
        let took_ns = served.report.ended_ns - served.report.started_ns;
        let answers_max = 50 + took_ns / 1_000_000_000 + 1;
        assert!((1..=answers_max).contains(&answered), "{spec}: {fates:?}");
        assert!(fates.of(Fate::DroppedGlobalLimit) > 100, "{spec}: {fates:?}");
        // Some sources are none that can be answered: groups, loopback.
        let refused = fates.of(Fate::DroppedSource) + fates.of(Fate::DroppedSourceLimit);
        let all = answered + fates.of(Fate::DroppedGlobalLimit) + refused;
        assert!(all >= 300, "{spec}: {fates:?}");
    }
}

/// Puts `frames` on `gen0` one by one, and returns what comes back from the responder for each.
fn exchange(topology: &Topology, frames: &[Vec<u8>]) -> Vec<Option<Vec<u8>>> {
    let ask = || {
        let spec: LaneSpec = "packet".parse().expect("well formed");
        let lane = PacketLane::open(&spec, &["gen0"], OpenOptions::default());
        let mut lane = lane.unwrap_or_else(|e| panic!("{e}"));
        frames.iter().map(|frame| ask_one(&mut lane, frame)).collect()
    };
    topology.generator.namespace.enter(ask).unwrap_or_else(|e| panic!("{e}"))
}

fn transmit(lane: &mut PacketLane, frame: &[u8]) {
    let port = PortId(0);
    let burst = lane.lend(port, 1).unwrap_or_else(|e| panic!("{e}"));
    let mut borrowed = burst.frame_mut(0);
    assert!(borrowed.set_len(frame.len()), "a buffer holds it");
    borrowed.bytes_mut().copy_from_slice(frame);
    borrowed.set_verdict(Verdict::Tx);
    lane.settle(port).unwrap_or_else(|e| panic!("{e}"));
}

fn ask_one(lane: &mut PacketLane, frame: &[u8]) -> Option<Vec<u8>> {
    let port = PortId(0);
    transmit(lane, frame);
    for _ in 0..WAITS_MAX {
        let burst = lane.receive(port).unwrap_or_else(|e| panic!("{e}"));
        let mut frames = (0..burst.len()).map(|i| burst.frame(i).bytes);
        let answer = frames.find(|bytes| bytes.get(6..12) == Some(&MAC)).map(<[u8]>::to_vec);
        lane.settle(port).unwrap_or_else(|e| panic!("{e}"));
        if answer.is_some() {
            return answer;
        }
        lane.wait(Duration::from_millis(10)).unwrap_or_else(|e| panic!("{e}"));
    }
    None
}

#[test]
fn every_answer_of_the_table_crosses_a_real_cable_as_it_is() {
    // Tags among them: they are bytes of the frame, as no interface here can be made for them.
    let fits = |row: &Row| row.answer.is_some() && row.frame.len() <= FRAME_BYTES_MAX;
    let rows: Vec<Row> = rows().into_iter().filter(fits).collect();
    let frames: Vec<Vec<u8>> = rows.iter().map(|row| row.frame.clone()).collect();
    for spec in ["packet", "packet:ring", "afxdp:copy", "xdp", "xdp:generic"] {
        let Some(topology) = topology("table") else { return };
        let _far_end = far_end(&topology, spec);
        let mut answers = Vec::new();
        let served = serve(&topology, spec, &responder(), || {
            answers = exchange(&topology, &frames);
        });
        for (row, answer) in rows.iter().zip(answers) {
            assert!(answer == row.answer, "{spec}: {}: {answer:02x?}", row.what);
        }
        assert_eq!(served.fates.answered(), rows.len() as u64, "{spec}");
    }
}

/// Asks for the responder's MAC address, and counts the echoes that have come before the answer: those
/// to all pings before, because the responder takes frames in order.
fn echoes_before_an_answer_to_arp(lane: &mut PacketLane) -> u64 {
    let port = PortId(0);
    let mut request = vec![0xff; 6];
    request.extend([0x02, 0x4c, 0x57, 0, 0, 1, 0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1]);
    // From an address of its own, so that its answer is distinguished from that to the kernel's question.
    request.extend([0x02, 0x4c, 0x57, 0, 0, 1, 10, 77, 0, 7, 0, 0, 0, 0, 0, 0, 10, 77, 0, 9]);
    transmit(lane, &request);
    let mut echoes = 0;
    for _ in 0..WAITS_MAX {
        let burst = lane.receive(port).unwrap_or_else(|e| panic!("{e}"));
        let frames = (0..burst.len()).map(|i| burst.frame(i).bytes);
        for bytes in frames.filter(|bytes| bytes.get(6..12) == Some(&MAC)) {
            match (&bytes[12..14], bytes.get(23), bytes.get(34)) {
                ([0x08, 0x06], ..) if bytes[38..42] == [10, 77, 0, 7] => return echoes,
                ([0x08, 0x00], Some(1), Some(0)) => echoes += 1,
                _ => {}
            }
        }
        lane.settle(port).unwrap_or_else(|e| panic!("{e}"));
        lane.wait(Duration::from_millis(10)).unwrap_or_else(|e| panic!("{e}"));
    }
    panic!("no answer to ARP after {echoes} echoes");
}

/// Waits until the responder has seen every frame that was sent before: for those that it does not
/// answer, the sender receives nothing.
fn all_have_been_seen(topology: &Topology) {
    let ask = || {
        let spec: LaneSpec = "packet".parse().expect("well formed");
        let lane = PacketLane::open(&spec, &["gen0"], OpenOptions::default());
        echoes_before_an_answer_to_arp(&mut lane.unwrap_or_else(|e| panic!("{e}")));
    };
    topology.generator.namespace.enter(ask).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn what_the_limit_refuses_is_counted_once_and_never_answered() {
    let limits = Limits {
        per_source: Some(Rate { per_second: 1, burst: 3 }),
        global: None,
        sources_max: 16,
    };
    let config = Config { limits, ..config() };
    for spec in ["packet", "xdp"] {
        let Some(topology) = topology("limit") else { return };
        let _far_end = far_end(&topology, spec);
        let mut received = None;
        let served = serve(&topology, spec, &config, || {
            let ask = || {
                let spec: LaneSpec = "packet".parse().expect("well formed");
                let lane = PacketLane::open(&spec, &["gen0"], OpenOptions::default());
                let mut lane = lane.unwrap_or_else(|e| panic!("{e}"));
                // How many of its answers ping sees depends on how long it waits for the last.
                output_of(&topology, "ping", "-c 20 -i 0.005 -W 1 10.77.0.9")?;
                Some(echoes_before_an_answer_to_arp(&mut lane))
            };
            received = topology.generator.namespace.enter(ask).unwrap_or_else(|e| panic!("{e}"));
        });
        let Some(received) = received else { return };
        let fates = &served.fates;
        assert_eq!(fates.of(Fate::AnsweredEchoV4), received, "{spec}");
        assert_eq!(received + fates.of(Fate::DroppedSourceLimit), 20, "{spec}");
        assert!(received >= 3, "{spec}");
        // In the kernel the lane has counted it, in user space the app.
        let limited = served.report.app.drops(DropReason::RateLimited)
            + served.report.counters().drops(DropReason::RateLimited);
        assert_eq!(limited, fates.of(Fate::DroppedSourceLimit), "{spec}");
    }
}
