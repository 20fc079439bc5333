//! What the suites do not ask: refusals in words, what the kernel granted, limits, and the cost of a
//! turn in memory.

use crate::{
    datagrams::set_segment,
    place::{Inside, Loopback, Powerless, run},
};
use laneway_core::{
    App, Cap, Clock, Close, DatagramApp, DatagramLane, DatagramPorts, DropReason, Lane, LaneError,
    PortId, PortPlan, StreamLane, Turn,
};
use laneway_netns::{Cidr, Mac, Namespace, Offloads, VethEnd, VethOptions, VethPair, can_create};
use laneway_socket::{TcpLane, UdpLane};
use laneway_spec::LaneSpec;
use laneway_testkit::{
    Patience,
    service::{
        Answer, DatagramProbe, Manner, MonotonicClock, StreamProbe, TickSend, payload, payloads,
    },
    skip,
};
use std::{
    fs::File,
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    time::Duration,
};

const PORT: PortId = PortId(0);
/// Waits of 10 ms for traffic that is on its way: a busy machine delivers late.
const WAITS_MAX: usize = 3000;
/// How long a far end waits for the same.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(30));

fn spec(text: &str) -> LaneSpec {
    text.parse().expect("a well-formed spec")
}

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn open_udp(text: &str, listen: &str) -> Result<UdpLane, LaneError> {
    UdpLane::open(&spec(text), &[at(listen)])
}

fn open_tcp(text: &str, listen: &str) -> Result<TcpLane, LaneError> {
    TcpLane::open(&spec(text), &[at(listen)])
}

/// The sentence of an opening that must fail.
fn refusal<L>(opened: Result<L, LaneError>) -> (LaneError, String) {
    let error = opened.err().expect("this must not open");
    let sentence = error.to_string();
    (error, sentence)
}

/// Serves until `done`, or patience ends.
fn serve_udp(lane: &mut UdpLane, probe: &mut DatagramProbe, done: impl Fn(&DatagramProbe) -> bool) {
    let mut patience = Patience::new(WAITS_MAX);
    while !patience.is_over() {
        while lane.serve(probe, &MonotonicClock).expect("the lane serves") > 0 {}
        if done(probe) {
            return;
        }
        patience.wait(|| lane.wait(Duration::from_millis(10)).expect("the lane waits"));
    }
    panic!("patience ended with {} entries seen", probe.seen.len());
}

fn serve_tcp(
    lane: &mut TcpLane,
    probe: &mut StreamProbe,
    mut done: impl FnMut(&mut TcpLane, &StreamProbe) -> bool,
) {
    let mut patience = Patience::new(WAITS_MAX);
    while !patience.is_over() {
        lane.serve(probe, &MonotonicClock).expect("the lane serves");
        if done(lane, probe) {
            return;
        }
        patience.wait(|| lane.wait(Duration::from_millis(10)).expect("the lane waits"));
    }
    panic!("patience ended with {} connections open", probe.open());
}

#[test]
fn an_address_in_use_is_named_with_the_way_out() {
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let taken = udp.local_addr().expect("it is bound").to_string();
    let (error, sentence) = refusal(open_udp("socket", &taken));
    assert!(matches!(error, LaneError::Busy { .. }), "{error:?}");
    assert!(sentence.contains(&taken) && sentence.contains("reuseport"), "{sentence}");

    let tcp = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = tcp.local_addr().expect("it is bound").to_string();
    let (error, sentence) = refusal(open_tcp("socket", &taken));
    assert!(matches!(error, LaneError::Busy { .. }), "{error:?}");
    assert!(sentence.contains(&taken) && sentence.contains("ss -tlpn"), "{sentence}");
}

#[test]
fn a_foreign_address_is_named() {
    for opened in [open_udp("socket", "192.0.2.1:0").err(), open_tcp("socket", "192.0.2.1:0").err()]
    {
        let error = opened.expect("this must not open");
        assert!(matches!(error, LaneError::NotFound { what: "local address", .. }), "{error:?}");
        assert!(error.to_string().contains("192.0.2.1"), "{error}");
    }
}

#[test]
fn without_privilege_the_sentence_says_what_is_needed() {
    let ports = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let _powerless = Powerless::new();
    let (error, sentence) = refusal(open_udp("socket:raw=icmp", "127.0.0.1:0"));
    assert!(matches!(error, LaneError::NotPermitted { .. }), "{error:?}");
    assert!(sentence.contains("CAP_NET_RAW"), "{sentence}");
    if ports.is_ok_and(|start| start.trim() == "0") {
        return skip("this machine has no privileged ports");
    }
    let (error, sentence) = refusal(open_tcp("socket", "127.0.0.1:81"));
    assert!(matches!(error, LaneError::NotPermitted { .. }), "{error:?}");
    assert!(sentence.contains("127.0.0.1:81") && sentence.contains("1024"), "{sentence}");
}

#[test]
fn a_buffer_past_the_limit_is_refused_or_named_with_its_sysctl() {
    let _powerless = Powerless::new();
    let (error, _) = refusal(open_udp("socket:sndbuf=900m", "127.0.0.1:0"));
    assert!(matches!(error, LaneError::CapMissing { cap: Cap::SocketBuffers, .. }), "{error:?}");
    let lane = open_udp("socket:sndbuf=900m,allow=socket-buffers", "127.0.0.1:0");
    let lane = lane.expect("its absence is allowed");
    let facts = &lane.caps(PORT).facts;
    assert_eq!(facts["sndbuf_bytes_asked"], (900 << 20).to_string());
    assert!(facts["sndbuf_bytes"].parse::<u64>().expect("a number") < 900 << 20);
    assert_eq!(facts["sndbuf_raise"], format!("sysctl -w net.core.wmem_max={}", 900 << 20));
}

#[test]
fn a_buffer_is_granted_and_reported() {
    let lane = open_udp("socket:rcvbuf=64k", "127.0.0.1:0").expect("64 KiB are below any limit");
    let report = lane.caps(PORT);
    assert!(report.obtained.has(Cap::SocketBuffers));
    // The kernel doubles what it is asked for.
    assert_eq!(report.facts["rcvbuf_bytes"], "131072");
    assert_eq!(report.kernel_memory.socket_bytes, 131_072);
}

#[test]
fn a_burst_waits_for_its_worker() {
    /// Ten times what a socket holds that is asked for nothing (208 KiB).
    const DATAGRAMS: usize = 1_000;
    for spec in ["socket", "socket:batch=64,gso,gro"] {
        let mut lane = open_udp(spec, "127.0.0.1:0").expect("a free port");
        if let Some(raise) = lane.caps(PORT).facts.get("rcvbuf_raise") {
            return skip(format!("this host grants no receive queue of 4 MiB: {raise}"));
        }
        let peer = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        for number in 0..DATAGRAMS {
            let bytes = payload(number as u64, 1316);
            peer.send_to(&bytes, lane.local_address(PORT)).expect("loopback takes it");
        }
        let mut probe = DatagramProbe::default();
        serve_udp(&mut lane, &mut probe, |probe| probe.seen.len() == DATAGRAMS);
        assert_eq!(lane.counters(PORT).lost(), 0);
    }
}

#[test]
fn the_kernel_fits_the_window_of_a_stream() {
    // Any SO_RCVBUF ends its tuning (tcp(7), tcp_moderate_rcvbuf).
    let lane = open_tcp("socket", "127.0.0.1:0").expect("a free port");
    assert!(!lane.caps(PORT).facts.contains_key("rcvbuf_bytes_asked"));
}

#[test]
fn workers_share_an_address_when_all_of_them_say_so() {
    let first = open_udp("socket:reuseport", "127.0.0.1:0").expect("a free port");
    let address = first.local_address(PORT).to_string();
    let second = open_udp("socket:reuseport", &address).expect("shared");
    assert!(second.caps(PORT).obtained.has(Cap::ReusePort));
    assert!(open_udp("socket", &address).is_err());
    let first = open_tcp("socket:reuseport", "127.0.0.1:0").expect("a free port");
    let address = first.local_address(PORT).to_string();
    assert!(open_tcp("socket:reuseport", &address).is_ok());
    assert!(open_tcp("socket", &address).is_err());
}

#[test]
fn the_longest_datagram_passes_both_ways() {
    let mut lane = open_udp("socket:gso", "127.0.0.1:0").expect("a free port");
    let peer = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    peer.set_read_timeout(PATIENCE).expect("a socket has timeouts");
    let mut probe = DatagramProbe::new(Answer::ForwardBack);
    let sent = payload(1, 65_507);
    peer.send_to(&sent, lane.local_address(PORT)).expect("loopback takes it");
    serve_udp(&mut lane, &mut probe, |probe| probe.seen.len() == 1);
    let mut back = vec![0; 1 << 16];
    let bytes = peer.recv(&mut back).expect("it was returned");
    assert!(back[..bytes] == sent[..]);
}

#[test]
fn a_datagram_longer_than_its_buffer_is_counted_not_cut() {
    let mut lane = open_udp("socket:buffer=512,batch=4", "127.0.0.1:0").expect("a free port");
    let peer = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let mut probe = DatagramProbe::default();
    for bytes in [512, 513, 9000, 12] {
        peer.send_to(&payload(bytes, bytes as usize), lane.local_address(PORT)).expect("taken");
    }
    serve_udp(&mut lane, &mut probe, |probe| probe.seen.len() == 2);
    assert_eq!(probe.datagrams(), [&payload(512, 512)[..], &payload(12, 12)[..]]);
    assert_eq!(lane.counters(PORT).drops(DropReason::RxTooLong), 2);
}

#[test]
fn a_train_that_is_dropped_counts_as_one_and_the_report_says_so() {
    const TRAINS: usize = 200;
    const SEGMENTS: usize = 8;
    let mut lane = open_udp("socket:gro,rcvbuf=16k", "127.0.0.1:0").expect("a free port");
    assert_eq!(lane.caps(PORT).facts["rx_queue_full_counts"], "trains-or-datagrams");
    let peer = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    set_segment(&peer, 500);
    for train in 0..TRAINS {
        let bytes = payload(train as u64, SEGMENTS * 500);
        peer.send_to(&bytes, lane.local_address(PORT)).expect("loopback takes trains");
    }
    let mut probe = DatagramProbe::default();
    for _ in 0..WAITS_MAX {
        while lane.serve(&mut probe, &MonotonicClock).expect("the lane serves") > 0 {}
        if probe.seen.len() as u64 + lane.counters(PORT).lost() >= TRAINS as u64 {
            break;
        }
        lane.wait(Duration::from_millis(10)).expect("the lane waits");
    }
    let counters = lane.counters(PORT);
    assert!(counters.lost() > 0, "{TRAINS} trains did not overrun 16 KiB");
    assert_eq!(probe.seen.len() as u64 + counters.lost(), TRAINS as u64, "{counters:?}");
    assert_eq!(counters.rx_frames, (SEGMENTS * probe.seen.len()) as u64);
}

#[test]
fn an_app_is_given_kernel_stamps_in_the_workers_clock() {
    let mut lane = open_udp("socket:timestamps", "127.0.0.1:0").expect("a free port");
    assert!(lane.caps(PORT).obtained.has(Cap::KernelTimestamps));
    let peer = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    /// What converting between clocks may cost; far less than the pause before receiving.
    const MARGIN_NS: u64 = 5_000_000;
    /// The kernel switches stamping on a moment after it was asked to.
    const ATTEMPTS: usize = 50;
    let stamped_on_arrival = (0..ATTEMPTS).any(|_| {
        let mut probe = DatagramProbe::default();
        let before_ns = MonotonicClock.now_ns();
        peer.send_to(b"early", lane.local_address(PORT)).expect("loopback takes it");
        let sent_ns = MonotonicClock.now_ns();
        std::thread::sleep(Duration::from_millis(30));
        serve_udp(&mut lane, &mut probe, |probe| probe.seen.len() == 1);
        let stamp_ns = probe.seen[0].ts_ns;
        assert!(before_ns <= stamp_ns + MARGIN_NS, "stamped {stamp_ns}, sent after {before_ns}");
        stamp_ns <= sent_ns + MARGIN_NS
    });
    assert!(stamped_on_arrival, "stamps tell of the receiving, not of the arrival");
}

/// A cable between two namespaces with addresses, complete checksums and no offload.
struct Cable {
    near: Namespace,
    far: Namespace,
    _pair: VethPair,
}

impl Cable {
    fn new() -> Result<Cable, String> {
        can_create().map_err(|e| e.to_string())?;
        let build = || {
            let (near, far) = (Namespace::create("socket-a")?, Namespace::create("socket-b")?);
            let end = |side: u8| VethEnd {
                mac: Mac([0x02, 0x4c, 0x57, 0x20, 0, side]),
                addresses: vec![Cidr::new([10, 77, 0, side], 24).expect("a prefix of IPv4")],
                offloads: Offloads { tx_checksum: false, ..Offloads::default() },
            };
            let options = VethOptions { a: end(1), b: end(2), ..VethOptions::default() };
            let pair = VethPair::create(&near, "near0", &far, "far0", &options)?;
            Ok(Cable { near, far, _pair: pair })
        };
        build().map_err(|e: laneway_netns::Error| panic!("{e}"))
    }
}

#[test]
fn without_checksum_offload_every_datagram_still_leaves_and_the_report_says_how() {
    let cable = match Cable::new() {
        Ok(cable) => cable,
        Err(reason) => return skip(reason),
    };
    let peer = cable.far.enter(|| UdpSocket::bind("10.77.0.2:0")).expect("the namespace is there");
    let peer = peer.expect("a free port");
    peer.set_read_timeout(PATIENCE).expect("a socket has timeouts");
    let _inside = Inside::enter(&cable.near);
    for knobs in ["socket:gso", "socket:gso,batch=32"] {
        let mut lane = open_udp(knobs, "10.77.0.1:0").expect("a free port");
        let to = peer.local_addr().expect("it is bound");
        let sent = payloads(0, 40, 1200);
        let mut probe = DatagramProbe::default();
        for round in 0..2 {
            probe.on_tick =
                sent.iter().map(|bytes| TickSend::exact(PORT, to, bytes.clone())).collect();
            let turn = Turn { now_ns: MonotonicClock.now_ns() };
            lane.tick(&mut probe, turn).expect("the lane sends");
            let mut buffer = vec![0; 1 << 16];
            for (i, wanted) in sent.iter().enumerate() {
                let bytes = peer.recv(&mut buffer).expect("every datagram comes");
                assert!(buffer[..bytes] == wanted[..], "{knobs}: round {round}, datagram {i}");
            }
        }
        let counters = lane.counters(PORT);
        assert_eq!((counters.tx_frames, counters.lost()), (80, 0), "{counters:?}");
        // Kernels before 6.11 refuse trains here; then the report must say so.
        let report = lane.caps(PORT);
        let gave_up = report.facts.contains_key("gso_given_up");
        assert_eq!(report.obtained.has(Cap::Gso), !gave_up, "{report:?}");
    }
}

#[test]
fn a_train_of_datagrams_longer_than_the_mtu_is_cut_not_lost() {
    let cable = match Cable::new() {
        Ok(cable) => cable,
        Err(reason) => return skip(reason),
    };
    let peer = cable.far.enter(|| UdpSocket::bind("10.77.0.2:0")).expect("the namespace is there");
    let peer = peer.expect("a free port");
    peer.set_read_timeout(PATIENCE).expect("a socket has timeouts");
    let _inside = Inside::enter(&cable.near);
    let mut lane = open_udp("socket:gso", "10.77.0.1:0").expect("a free port");
    let to = peer.local_addr().expect("it is bound");
    let sent = payloads(0, 4, 3000);
    let mut probe = DatagramProbe::default();
    probe.on_tick = sent.iter().map(|bytes| TickSend::exact(PORT, to, bytes.clone())).collect();
    let turn = Turn { now_ns: MonotonicClock.now_ns() };
    lane.tick(&mut probe, turn).expect("the lane sends");
    let mut buffer = vec![0; 1 << 16];
    for wanted in &sent {
        let bytes = peer.recv(&mut buffer).expect("every datagram comes, in fragments");
        assert!(buffer[..bytes] == wanted[..]);
    }
    assert_eq!(lane.counters(PORT).lost(), 0);
}

#[test]
fn a_destination_without_route_is_counted() {
    let _place = match Loopback::new(&[]) {
        Ok(place) => place,
        Err(reason) => return skip(reason),
    };
    let mut lane = open_udp("socket", "0.0.0.0:0").expect("a free port");
    let mut probe = DatagramProbe::default();
    probe.on_tick = vec![TickSend::exact(PORT, at("192.0.2.1:9"), payload(0, 64))];
    let turn = Turn { now_ns: MonotonicClock.now_ns() };
    lane.tick(&mut probe, turn).expect("the lane goes on");
    assert_eq!(lane.counters(PORT).drops(DropReason::NoRoute), 1);
}

/// An app that answers echo requests, as the kernel would.
struct Pong {
    answers: DatagramProbe,
}

impl App for Pong {
    fn counters(&self) -> &laneway_core::Counters {
        self.answers.counters()
    }
}

impl DatagramApp for Pong {
    fn on_datagrams<O: laneway_core::DatagramOut>(
        &mut self,
        batch: &[laneway_core::Datagram<'_>],
        _turn: Turn,
        out: &mut O,
    ) {
        for datagram in batch.iter().filter(|datagram| datagram.payload.first() == Some(&8)) {
            let bytes = datagram.payload.len();
            out.send(datagram.ingress, datagram.source, bytes, |room| {
                room.copy_from_slice(&datagram.payload);
                room[0] = 0;
                // RFC 1624: the type went from 8 to 0, so the checksum rises by as much.
                let old = u16::from_be_bytes([room[2], room[3]]);
                let (sum, carry) = old.overflowing_add(0x0800);
                room[2..4].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
                bytes
            });
        }
    }
}

#[test]
fn a_raw_socket_answers_pings_from_the_address_that_was_pinged() {
    let cable = match Cable::new() {
        Ok(cable) => cable,
        Err(reason) => return skip(reason),
    };
    // Not the first of the interface, so that a reply from a chosen address would be seen.
    run(&cable.near, "ip", &["address", "add", "10.77.0.5/24", "dev", "near0"]);
    run(&cable.near, "sh", &["-c", "echo 1 > /proc/sys/net/ipv4/icmp_echo_ignore_all"]);
    let _inside = Inside::enter(&cable.near);
    // Before the first ping: one that reaches no socket gets no answer.
    let mut lane = open_udp("socket:raw=icmp", "0.0.0.0:0").expect("root may");
    let mut pong = Pong { answers: DatagramProbe::default() };
    // All at once, so that ping has seen no answer when it decides how long it waits for them.
    let ping = ["-c", "3", "-l", "3", "-W", "30", "10.77.0.5"];
    let mut ping = match cable.far.command("ping").args(ping).spawn() {
        Ok(child) => child,
        Err(e) => return skip(format!("ping does not run: {e}")),
    };
    let status = loop {
        lane.serve(&mut pong, &MonotonicClock).expect("the lane serves");
        lane.wait(Duration::from_millis(10)).expect("the lane waits");
        if let Some(status) = ping.try_wait().expect("it was started") {
            break status; // ping ends by itself, after its last wait
        }
    };
    assert!(status.success(), "ping: {status}");
}

#[test]
fn bytes_that_an_app_never_consumes_end_at_the_buffers_limit() {
    let mut lane = open_tcp("socket:buffer=4k", "127.0.0.1:0").expect("a free port");
    let mut probe = StreamProbe::new(Manner::Lines);
    let mut peer = TcpStream::connect(lane.local_address(PORT)).expect("the backlog has room");
    peer.write_all(&[b'x'; 8 << 10]).expect("the kernel takes 8 KiB");
    serve_tcp(&mut lane, &mut probe, |_, probe| {
        probe.conns.values().any(|conn| conn.closed == Some(Close::Error))
    });
    assert_eq!(lane.counters(PORT).drops(DropReason::RxTooLong), 1);
    assert_eq!(lane.connections(), 0);
}

#[test]
fn a_close_over_unread_bytes_does_not_cost_the_peer_its_answer() {
    const MORE_BYTES: usize = 300 << 10;
    let mut lane = open_tcp("socket", "127.0.0.1:0").expect("a free port");
    let mut probe = StreamProbe::new(Manner::EchoAndClose);
    let mut peer = TcpStream::connect(lane.local_address(PORT)).expect("the backlog has room");
    // More than the lane reads before it closes.
    peer.set_nonblocking(true).expect("a socket can be non-blocking");
    let written = peer.write(&vec![b'y'; MORE_BYTES]).expect("the kernel takes some");
    serve_tcp(&mut lane, &mut probe, |_, probe| {
        probe.conns.values().any(|conn| conn.closed == Some(Close::App))
    });
    let mut back = Vec::new();
    serve_tcp(&mut lane, &mut probe, |_, _| match peer.read_to_end(&mut back) {
        Ok(_) => true,
        Err(e) => {
            assert_eq!(e.kind(), ErrorKind::WouldBlock, "an end, no reset: {e}");
            false
        }
    });
    let taken = probe.conns.values().next().map(|conn| conn.taken.len());
    assert_eq!(Some(back.len()), taken);
    assert!(back.len() < written, "the lane closed before it had read all");
    assert_eq!(lane.connections(), 1, "it waits for its peer to finish");
    drop(peer);
    serve_tcp(&mut lane, &mut probe, |lane, _| lane.connections() == 0);
}

#[test]
fn a_peer_that_never_finishes_is_cut_off_after_a_while() {
    let mut lane = open_tcp("socket", "127.0.0.1:0").expect("a free port");
    let mut probe = StreamProbe::new(Manner::EchoAndClose);
    let mut peer = TcpStream::connect(lane.local_address(PORT)).expect("the backlog has room");
    peer.write_all(b"some").expect("the kernel takes it");
    serve_tcp(&mut lane, &mut probe, |_, probe| {
        probe.conns.values().any(|conn| conn.closed == Some(Close::App))
    });
    assert_eq!(lane.connections(), 1);
    // Time is a value: an hour passes in a tick.
    let later = Turn { now_ns: MonotonicClock.now_ns() + 3_600_000_000_000 };
    lane.tick(&mut probe, later).expect("the lane ticks");
    assert_eq!(lane.connections(), 0);
}

#[test]
fn without_descriptors_connections_are_refused_counted_and_the_lane_goes_on() {
    // The limit is the process's, so another process has it: this test again, with a variable that states so.
    const ALONE: &str = "LANEWAY_SOCKET_TEST_ALONE";
    let name =
        "behaviour::without_descriptors_connections_are_refused_counted_and_the_lane_goes_on";
    if std::env::var_os(ALONE).is_none() {
        let own = std::env::current_exe().expect("a test has a file");
        let ran = std::process::Command::new(own)
            .args([name, "--exact", "--test-threads=1"])
            .env(ALONE, "1")
            .output();
        let output = ran.expect("a test runs itself");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{printed}");
        return;
    }
    let mut lane = open_tcp("socket", "127.0.0.1:0").expect("a free port");
    let mut probe = StreamProbe::new(Manner::Echo);
    let mut first = TcpStream::connect(lane.local_address(PORT)).expect("the backlog has room");
    serve_tcp(&mut lane, &mut probe, |_, probe| probe.open() == 1);
    let mut late = TcpStream::connect(lane.local_address(PORT)).expect("the backlog has room");
    let hoard: Vec<File> = (0..1 << 20).map_while(|_| File::open("/dev/null").ok()).collect();
    assert!(hoard.len() < 1 << 20, "the process has no limit of open files");
    serve_tcp(&mut lane, &mut probe, |lane, _| {
        lane.counters(PORT).drops(DropReason::ConnTableFull) == 1
    });
    drop(hoard);
    late.set_read_timeout(PATIENCE).expect("a socket has timeouts");
    assert!(!late.read(&mut [0]).is_ok_and(|bytes| bytes > 0), "the late one was turned away");
    first.write_all(b"some").expect("the kernel takes it");
    first.set_nonblocking(true).expect("a socket can be non-blocking");
    let mut back = [0; 8];
    serve_tcp(&mut lane, &mut probe, |_, _| first.read(&mut back).is_ok_and(|bytes| bytes == 4));
    let third = TcpStream::connect(lane.local_address(PORT)).expect("the backlog has room");
    serve_tcp(&mut lane, &mut probe, |_, probe| probe.open() == 2);
    drop(third);
}

#[test]
fn what_a_port_at_every_address_sends_leaves_from_the_source_of_its_plan() {
    let far = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    far.set_read_timeout(PATIENCE).expect("a socket has timeouts");
    let mut lane = open_udp("socket", "127.0.0.1:0").expect("a free port");
    let source = "127.0.0.9".parse().expect("an address");
    let anywhere = "0.0.0.0:0".parse().expect("an address");
    let plan = PortPlan { source: Some(source), ..PortPlan::at(anywhere) };
    let port = lane.open_port(&plan).expect("a free port");
    let from = SocketAddr::new(source, lane.bound(port).expect("it is open").port());
    let to = far.local_addr().expect("it is bound");
    let mut probe = DatagramProbe::new(Answer::Reply);
    // Of its own accord, and as an answer to a peer that wrote to another address of ours.
    probe.on_tick = vec![TickSend::exact(port, to, payload(1, 50))];
    lane.tick(&mut probe, Turn { now_ns: MonotonicClock.now_ns() }).expect("the lane sends");
    far.send_to(b"asked", ("127.0.0.1", from.port())).expect("loopback takes it");
    lane.serve(&mut probe, &MonotonicClock).expect("the lane serves");
    let mut buffer = [0; 64];
    for bytes in [50, 5] {
        assert_eq!(far.recv_from(&mut buffer).expect("it was sent"), (bytes, from));
    }
}
