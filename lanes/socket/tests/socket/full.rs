//! What a full output does: one of eight behind a token bucket (tbf), the seven others unharmed, every datagram
//! that did not leave named, and under `oldest` the newest ones there. Shared by the lanes of kernel sockets;
//! a test that includes it says which lane by `crate::kernel_lane`.

use crate::kernel_lane::{self, Inside, Lane};
use laneway_core::{
    Clock, DatagramLane, DatagramPorts, DropReason, Lane as _, LaneError, PortId, PortPlan, Turn,
    WhenFull,
};
use laneway_netns::{Mac, Namespace, VethEnd, VethOptions, VethPair, can_create};
use laneway_testkit::{
    service::{Answer, DatagramProbe, MonotonicClock, TickSend},
    skip,
};
use std::{
    cell::Cell,
    fs,
    net::{SocketAddr, UdpSocket},
    time::Duration,
};

const OUTPUTS: usize = 8;
/// The one behind the bucket.
const SLOW: usize = OUTPUTS - 1;
const DATAGRAMS: u8 = 60;
const BYTES: usize = 1000;
/// Waits of a millisecond and more, in vain.
const WAITS_MAX: usize = 30_000;

/// Eight cables and what is at their ends; the test's thread is where the lane is.
struct Outputs {
    lane: Lane,
    ports: Vec<PortId>,
    far: Vec<UdpSocket>,
    _inside: Inside,
    _cables: Vec<VethPair>,
    _namespaces: [Namespace; 2],
}

impl Outputs {
    fn new(when_full: WhenFull, sndbuf_bytes: Option<usize>) -> Result<Outputs, String> {
        can_create().map_err(|e| e.to_string())?;
        let create = |label| Namespace::create(label).map_err(|e| e.to_string());
        let (near, far) = (create("full-a")?, create("full-b")?);
        let mut cables = Vec::new();
        for i in 0..OUTPUTS {
            let end = |side: u8| {
                let address = format!("10.79.{i}.{side}/24");
                VethEnd::new(Mac([0x02, 0x4c, 0x57, 0x22, i as u8, side]), &[&address])
                    .expect("an address")
            };
            let options = VethOptions { a: end(1), b: end(2), ..VethOptions::default() };
            let names = (format!("near{i}"), format!("far{i}"));
            let cable = VethPair::create(&near, &names.0, &far, &names.1, &options);
            cables.push(cable.map_err(|e| e.to_string())?);
        }
        let bucket = ["qdisc", "add", "dev", "near7", "root", "tbf", "rate", "1mbit"];
        let size = ["burst", "2000", "limit", "4000"];
        let made = near.command("tc").args(bucket).args(size).status();
        assert!(made.is_ok_and(|status| status.success()), "tc makes a token bucket");
        let sockets = (0..OUTPUTS).map(|i| {
            let bind = || UdpSocket::bind(format!("10.79.{i}.2:7000"));
            let socket = far.enter(bind).expect("a namespace").expect("a free port");
            socket.set_read_timeout(Some(Duration::from_millis(1))).expect("a socket has timeouts");
            socket
        });
        let sockets = sockets.collect();
        let inside = Inside::enter(&near);
        let mut lane = kernel_lane::open(&[]).map_err(|e| e.to_string())?;
        let open = |i: usize| {
            let plan = PortPlan {
                interface: Some(format!("near{i}")),
                when_full,
                sndbuf_bytes,
                tells_full_queue: true,
                fragments: false,
                ..PortPlan::at(format!("10.79.{i}.1:0").parse().expect("an address"))
            };
            lane.open_port(&plan)
        };
        let ports = (0..OUTPUTS).map(open).collect::<Result<Vec<PortId>, LaneError>>();
        let ports = ports.unwrap_or_else(|e| panic!("{e}"));
        let mut outputs = Outputs {
            lane,
            ports,
            far: sockets,
            _inside: inside,
            _cables: cables,
            _namespaces: [near, far],
        };
        // Neighbours are known from here on.
        outputs.send(&[0]);
        for i in 0..OUTPUTS {
            assert_eq!(outputs.receive(i, |numbers| numbers.len() == 1), [0]);
        }
        Ok(outputs)
    }

    /// Sends datagrams of these numbers to every output, the outputs in turn.
    fn send(&mut self, numbers: &[u8]) {
        self.send_of(numbers, |_| BYTES);
    }

    /// As many bytes as `bytes` says of an output.
    fn send_of(&mut self, numbers: &[u8], bytes: impl Fn(usize) -> usize) {
        let mut probe = DatagramProbe::new(Answer::Nothing);
        for number in numbers {
            for (i, (port, far)) in self.ports.iter().zip(&self.far).enumerate() {
                let to: SocketAddr = far.local_addr().expect("it is bound");
                probe.on_tick.push(TickSend::exact(*port, to, vec![*number; bytes(i)]));
            }
        }
        let turn = Turn { now_ns: MonotonicClock.now_ns() };
        self.lane.tick(&mut probe, turn).expect("the lane sends");
    }

    /// The numbers that reach an output, until they are enough; the lane is served meanwhile.
    fn receive(&mut self, i: usize, is_enough: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let mut probe = DatagramProbe::new(Answer::Nothing);
        let (mut numbers, mut buffer) = (Vec::new(), [0; 2048]);
        for _ in 0..WAITS_MAX {
            while let Ok(bytes) = self.far[i].recv(&mut buffer) {
                assert!(bytes == BYTES && buffer[..bytes].iter().all(|byte| *byte == buffer[0]));
                numbers.push(buffer[0]);
            }
            if is_enough(&numbers) {
                break;
            }
            self.lane.serve(&mut probe, &MonotonicClock).expect("the lane serves");
        }
        numbers
    }

    /// What left the slow output since the first datagram, and what is named as lost.
    fn slow(&mut self) -> (u64, u64) {
        let counters = self.lane.counters(self.ports[SLOW]);
        let named = [DropReason::TxInterfaceFull, DropReason::TxSocketFull];
        let named = named.into_iter().map(|reason| counters.drops(reason)).sum();
        assert_eq!(counters.lost(), named, "{counters:?}");
        (counters.tx_frames - 1, named)
    }
}

#[test]
fn a_full_output_drops_what_does_not_fit_by_name_and_seven_others_lose_nothing() {
    let mut outputs = match Outputs::new(WhenFull::Newest, None) {
        Ok(outputs) => outputs,
        Err(reason) => return skip(reason),
    };
    let sent: Vec<u8> = (1..=DATAGRAMS).collect();
    outputs.send(&sent);
    let (left, dropped) = outputs.slow();
    assert!(left > 0 && dropped > 0, "{left} left, {dropped} dropped");
    assert_eq!(left + dropped, u64::from(DATAGRAMS));
    for i in 0..SLOW {
        assert_eq!(outputs.receive(i, |numbers| numbers.len() == sent.len()), sent, "output {i}");
        assert_eq!(outputs.lane.counters(outputs.ports[i]).lost(), 0, "output {i}");
    }
    let arrived = outputs.receive(SLOW, |numbers| numbers.len() as u64 == left);
    // The bucket may have room again while the others are sent.
    assert!(arrived.len() as u64 == left && arrived.is_sorted(), "{arrived:?}");
    assert!(arrived.starts_with(&[1]), "what arrived first fitted: {arrived:?}");
}

#[test]
fn under_oldest_what_arrives_at_a_slow_output_is_the_newest() {
    newest_arrive(None, DropReason::TxInterfaceFull);
}

#[test]
fn under_oldest_a_socket_that_is_full_before_its_interface_is_does_the_same() {
    // What the kernel grants at least: two or three datagrams.
    newest_arrive(Some(2048), DropReason::TxSocketFull);
}

fn newest_arrive(sndbuf_bytes: Option<usize>, reason: DropReason) {
    const KEPT: u8 = 10;
    let oldest = WhenFull::Oldest { bytes: usize::from(KEPT) * BYTES };
    let mut outputs = match Outputs::new(oldest, sndbuf_bytes) {
        Ok(outputs) => outputs,
        Err(reason) => return skip(reason),
    };
    let sent: Vec<u8> = (1..=DATAGRAMS).collect();
    outputs.send(&sent);
    assert!(outputs.lane.due_ns().is_some(), "what waits is offered again in time");
    for i in 0..SLOW {
        assert_eq!(outputs.receive(i, |numbers| numbers.len() == sent.len()), sent, "output {i}");
        assert_eq!(outputs.lane.counters(outputs.ports[i]).lost(), 0, "output {i}");
    }
    let arrived = outputs.receive(SLOW, |numbers| numbers.last() == Some(&DATAGRAMS));
    assert!(arrived.is_sorted() && arrived.len() < sent.len(), "{arrived:?}");
    assert!(arrived.ends_with(&sent[usize::from(DATAGRAMS - KEPT)..]), "{arrived:?}");
    let (left, dropped) = outputs.slow();
    assert_eq!((left, left + dropped), (arrived.len() as u64, u64::from(DATAGRAMS)));
    assert_ne!(outputs.lane.counters(outputs.ports[SLOW]).drops(reason), 0, "{reason:?}");
    assert_eq!(outputs.lane.due_ns(), None, "nothing waits any more");
}

/// It was counted as dropped at each look, and no longer when it had left.
#[test]
fn under_oldest_what_waits_is_dropped_when_the_run_ends_and_not_before() {
    let oldest = WhenFull::Oldest { bytes: 10 * BYTES };
    let mut outputs = match Outputs::new(oldest, None) {
        Ok(outputs) => outputs,
        Err(reason) => return skip(reason),
    };
    let sent: Vec<u8> = (1..=DATAGRAMS).collect();
    outputs.send(&sent);
    let (left, dropped) = outputs.slow();
    assert!(left + dropped < u64::from(DATAGRAMS), "{left} left, {dropped} dropped, none waits");
    outputs.lane.drop_unsent();
    let at_end = outputs.slow();
    assert_eq!(at_end, (left, u64::from(DATAGRAMS) - left));
    assert_eq!(outputs.lane.due_ns(), None, "nothing waits any more");
}

#[test]
fn what_is_longer_than_an_interface_takes_is_counted_by_its_output_and_not_cut() {
    // Beside the slow one, so that there is always room.
    const LONG: usize = 3;
    for when_full in [WhenFull::Newest, WhenFull::Oldest { bytes: 100 * BYTES }] {
        let mut outputs = match Outputs::new(when_full, None) {
            Ok(outputs) => outputs,
            Err(reason) => return skip(reason),
        };
        for number in 1..=20 {
            // A cable takes 1500 bytes, headers included.
            outputs.send_of(&[number], |i| if i == LONG { 1500 } else { BYTES });
        }
        outputs.send(&[21]);
        let all: Vec<u8> = (1..=21).collect();
        for i in 0..SLOW {
            let wanted = if i == LONG { &[21][..] } else { &all };
            assert_eq!(outputs.receive(i, |numbers| numbers.len() == wanted.len()), wanted, "{i}");
            let counters = outputs.lane.counters(outputs.ports[i]);
            let long = if i == LONG { 20 } else { 0 };
            assert_eq!(counters.drops(DropReason::TxTooLong), long, "{i}: {counters:?}");
            assert_eq!(counters.lost(), long, "{i}: {counters:?}");
        }
        // What the kernel queued about them was taken, and wakes nothing.
        let mut probe = DatagramProbe::new(Answer::Nothing);
        for _ in 0..WAITS_MAX {
            outputs.lane.serve(&mut probe, &MonotonicClock).expect("the lane serves");
            let wake = outputs.lane.wait(Duration::from_millis(2)).expect("the lane waits");
            if wake == laneway_core::Wake::Timeout {
                break;
            }
        }
        let wake = outputs.lane.wait(Duration::from_millis(2)).expect("the lane waits");
        assert_eq!(wake, laneway_core::Wake::Timeout, "{when_full:?}");
    }
}

#[test]
fn what_waits_when_its_port_is_closed_is_counted() {
    let mut outputs = match Outputs::new(WhenFull::Oldest { bytes: 20 * BYTES }, None) {
        Ok(outputs) => outputs,
        Err(reason) => return skip(reason),
    };
    outputs.send(&(1..=DATAGRAMS).collect::<Vec<u8>>());
    let counters = outputs.lane.close_port(outputs.ports[SLOW]).expect("it is open");
    assert_eq!(counters.tx_frames - 1 + counters.lost(), u64::from(DATAGRAMS), "{counters:?}");
    let mut probe = DatagramProbe::new(Answer::Nothing);
    outputs.lane.serve(&mut probe, &MonotonicClock).expect("the lane serves");
    assert_eq!(outputs.lane.due_ns(), None);
}

/// A port that receives reports of what became of its datagrams.
struct Refused {
    lane: Lane,
    port: PortId,
    far: UdpSocket,
    /// The address of `far`.
    to: SocketAddr,
    /// No socket is bound there: the kernel answers with an ICMP error.
    closed: SocketAddr,
}

/// Opens it; without a lane, the reason is printed.
fn refused() -> Option<Refused> {
    let bind = || UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let address = |socket: &UdpSocket| socket.local_addr().expect("it is bound");
    let (far, closed) = (bind(), address(&bind()));
    let mut lane = kernel_lane::open(&[]).map_err(skip).ok()?;
    let at = "127.0.0.1:0".parse().expect("an address");
    let plan = PortPlan { tells_full_queue: true, ..PortPlan::at(at) };
    let port = lane.open_port(&plan).expect("opens");
    Some(Refused { to: address(&far), lane, port, far, closed })
}

/// How long a far end waits for what was sent: a busy machine delivers late.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(30));
/// A network beyond the router, all of which it refuses to reach (RFC 4443, section 3.1, code 1).
const PROHIBITED: &str = "fd00:80::/64";
const IN_PROHIBITED: &str = "[fd00:80::1]:9";
/// Another, to which it sends on nothing longer than a link must take, and says so of each host anew.
const NARROW: &str = "fd00:81::/64";
const LINK_BYTES_MIN: &str = "1280";

/// The world of a port in front of a router. The test's thread is where the port is.
struct Routed {
    _inside: Inside,
    _cable: VethPair,
    _namespaces: [Namespace; 2],
}

/// A port that receives reports of what became of its datagrams, with a router between it and other networks. `far` is
/// a socket of the router.
fn routed() -> Result<(Refused, Routed), String> {
    can_create().map_err(|e| e.to_string())?;
    let create = |label| Namespace::create(label).map_err(|e| e.to_string());
    let (near, far) = (create("routed-a")?, create("routed-b")?);
    let end = |side: u8| {
        let mac = Mac([0x02, 0x4c, 0x57, 0x23, 0, side]);
        VethEnd::new(mac, &[&format!("fd00:79::{side}/64")]).expect("an address")
    };
    let options = VethOptions { a: end(1), b: end(2), ..VethOptions::default() };
    let cable = VethPair::create(&near, "near0", &far, "far0", &options);
    let cable = cable.map_err(|e| e.to_string())?;
    let setting = |name: &str, value: &str| {
        let written = far.enter(|| fs::write(format!("/proc/sys/net/ipv6/{name}"), value));
        written.expect("a namespace").unwrap_or_else(|e| panic!("{name}: {e}"));
    };
    setting("conf/all/forwarding", "1");
    // No time has to pass between two errors.
    setting("icmp/ratelimit", "0");
    let route = |namespace: &Namespace, words: &[&str]| {
        let added = namespace.command("ip").args(["-6", "route", "add"]).args(words).status();
        assert!(added.is_ok_and(|status| status.success()), "ip -6 route add {words:?}");
    };
    route(&near, &["default", "via", "fd00:79::2"]);
    route(&far, &["prohibit", PROHIBITED]);
    route(&far, &[NARROW, "dev", "far0", "mtu", "lock", LINK_BYTES_MIN]);
    let bind = || UdpSocket::bind("[fd00:79::2]:7000");
    let socket = far.enter(bind).expect("a namespace").expect("a free port");
    socket.set_read_timeout(PATIENCE).expect("a socket has timeouts");
    let inside = Inside::enter(&near);
    let mut lane = kernel_lane::open(&[]).map_err(|e| e.to_string())?;
    let at = "[fd00:79::1]:0".parse().expect("an address");
    let plan = PortPlan { tells_full_queue: true, ..PortPlan::at(at) };
    let port = lane.open_port(&plan).expect("opens");
    let to = socket.local_addr().expect("it is bound");
    let closed = IN_PROHIBITED.parse().expect("an address");
    let routed = Routed { _inside: inside, _cable: cable, _namespaces: [near, far] };
    Ok((Refused { lane, port, far: socket, to, closed }, routed))
}

/// One such error cost lane `socket` the datagram behind it, and 65 of them ended lane `uring`.
#[test]
fn what_a_router_refuses_costs_no_lane_and_no_other_datagram() {
    let (refused, _routed) = match routed() {
        Ok(routed) => routed,
        Err(reason) => return skip(reason),
    };
    let closed = refused.closed;
    errors_cost_nothing(refused, |_| closed, 10);
}

/// The error is the one of a datagram that is itself too long, and cost the one behind it.
#[test]
fn what_a_router_finds_too_long_costs_no_other_datagram() {
    let (refused, _routed) = match routed() {
        Ok(routed) => routed,
        Err(reason) => return skip(reason),
    };
    let hosts = Cell::new(0u16);
    let next = |_| {
        hosts.set(hosts.get() + 1);
        let address = format!("[fd00:81::{:x}]:9", hosts.get());
        address.parse().expect("an address")
    };
    errors_cost_nothing(refused, next, 1400);
}

/// Sends datagrams that are answered by errors, and in front of each call that may return one, nothing or another
/// datagram, which has to arrive.
fn errors_cost_nothing(refused: Refused, closed: impl Fn(u8) -> SocketAddr, bytes: usize) {
    const ROUNDS: u8 = 100;
    let Refused { mut lane, port, far, to, .. } = refused;
    let mut probe = DatagramProbe::new(Answer::Nothing);
    // The error comes with a receive at first, and then with a send.
    for sends_to_far in [false, true] {
        for number in 0..ROUNDS {
            let dead = TickSend::exact(port, closed(number), vec![number; bytes]);
            let living = sends_to_far.then(|| TickSend::exact(port, to, vec![number; 10]));
            for send in [dead].into_iter().chain(living) {
                probe.on_tick = vec![send];
                let turn = Turn { now_ns: MonotonicClock.now_ns() };
                lane.tick(&mut probe, turn).expect("the lane sends");
            }
            let mut buffer = [0; 16];
            if sends_to_far {
                let received = far.recv(&mut buffer);
                assert_eq!(received.ok(), Some(10), "{number}: {:?}", lane.counters(port));
                assert_eq!(buffer[0], number);
            }
            // A kernel sends a thousand errors a second at most.
            std::thread::sleep(Duration::from_millis(2));
            lane.serve(&mut probe, &MonotonicClock).expect("the lane serves");
        }
    }
    let counters = lane.counters(port);
    assert_eq!((counters.tx_frames, counters.lost()), (3 * u64::from(ROUNDS), 0), "{counters:?}");
    lane.serve(&mut probe, &MonotonicClock).expect("the lane serves");
    let wake = lane.wait(Duration::from_millis(2)).expect("the lane waits");
    assert_eq!(wake, laneway_core::Wake::Timeout, "the errors were taken");
}

#[test]
fn what_is_sent_again_because_of_an_earlier_datagram_keeps_its_place() {
    const NUMBERS: u8 = 24;
    let Some(Refused { mut lane, port, far, to, closed }) = refused() else { return };
    let mut probe = DatagramProbe::new(Answer::Nothing);
    for turn in 0..20u8 {
        // The send after a datagram that nothing listens for fails with its error, and is made again in its own place.
        probe.on_tick = (0..NUMBERS)
            .flat_map(|number| {
                let numbered = TickSend::exact(port, to, vec![turn, number]);
                let dead = (number % 5 == 0).then(|| TickSend::exact(port, closed, vec![0; 9]));
                dead.into_iter().chain([numbered])
            })
            .collect();
        lane.tick(&mut probe, Turn { now_ns: MonotonicClock.now_ns() }).expect("the lane sends");
        for number in 0..NUMBERS {
            let mut buffer = [0; 16];
            assert_eq!(far.recv(&mut buffer).expect("it was sent"), 2);
            assert_eq!(buffer[..2], [turn, number]);
        }
        lane.serve(&mut probe, &MonotonicClock).expect("the lane serves");
    }
    assert_eq!(lane.counters(port).lost(), 0);
}

#[test]
fn an_error_of_an_earlier_datagram_costs_no_later_one_and_no_endless_wakes() {
    let Some(Refused { mut lane, port, far, to, closed }) = refused() else { return };
    let mut probe = DatagramProbe::new(Answer::Nothing);
    for number in 0..100u8 {
        // Nothing listens there, and the kernel says so to the next call.
        probe.on_tick = vec![TickSend::exact(port, closed, vec![number; 10])];
        probe.on_tick.push(TickSend::exact(port, to, vec![number; 10]));
        lane.tick(&mut probe, Turn { now_ns: MonotonicClock.now_ns() }).expect("the lane sends");
        let mut buffer = [0; 16];
        assert_eq!(far.recv(&mut buffer).expect("it was sent"), 10);
        assert_eq!(buffer[0], number);
        lane.serve(&mut probe, &MonotonicClock).expect("the lane serves");
    }
    assert_eq!(lane.counters(port).lost(), 0);
    lane.serve(&mut probe, &MonotonicClock).expect("the lane serves");
    let wake = lane.wait(Duration::from_millis(2)).expect("the lane waits");
    assert_eq!(wake, laneway_core::Wake::Timeout, "the errors were taken");
}
