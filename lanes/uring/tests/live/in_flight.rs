//! Lanes with requests in flight: dropped, starved of buffers, and flooded with completions.

use crate::{
    datagrams::set_segment,
    world::{World, until_free},
};
use laneway_core::{
    App, Cap, Clock, Close, ConnId, Counters, Datagram, DatagramApp, DatagramLane, DatagramOut,
    DatagramPorts, DropReason, Lane, LaneError, Opened, PortId, PortPlan, StreamApp, StreamLane,
    StreamOut, Turn, WhenFull,
};
use laneway_testkit::{
    Patience,
    service::{Answer, DatagramProbe, MonotonicClock, TickSend},
    skip,
};
use laneway_uring::{UringTcp, UringUdp};
use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream, UdpSocket},
    time::Duration,
};

const PORT: PortId = PortId(0);
/// Turns of 10 ms in vain after which something should have come.
const TURNS_MAX: usize = 3000;
/// How long a far end waits for what was sent: a busy machine delivers late even on the loopback.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(30));

pub(crate) fn world() -> Option<World> {
    World::new().map_err(skip).ok()
}

pub(crate) fn anywhere() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// A lane and a far end, in the namespace.
fn udp(world: &World, spec: &str) -> (UringUdp, UdpSocket) {
    let spec = spec.parse().expect("well formed");
    world.inside(|| {
        let lane = UringUdp::open(&spec, &[anywhere()]).unwrap_or_else(|e| panic!("{e}"));
        (lane, UdpSocket::bind(anywhere()).expect("the namespace is ours"))
    })
}

/// Keeps what it saw, and sends it on to each of `to` without the first `left_out` bytes.
#[derive(Default)]
pub(crate) struct Relay {
    seen: Vec<Vec<u8>>,
    to: Vec<SocketAddr>,
    left_out: usize,
    through: PortId,
    counters: Counters,
}

impl App for Relay {
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl DatagramApp for Relay {
    fn on_datagrams<O: DatagramOut>(&mut self, batch: &[Datagram<'_>], _turn: Turn, out: &mut O) {
        for datagram in batch {
            let cut = datagram.payload.chunks(datagram.segment_bytes.max(1));
            self.seen.extend(cut.map(<[u8]>::to_vec));
            let payload = datagram.payload.narrowed(self.left_out..datagram.payload.len());
            for &to in &self.to {
                out.forward(&Datagram { payload, ..*datagram }, self.through, to);
            }
        }
    }
}

fn serve(lane: &mut UringUdp, app: &mut Relay, wanted: usize) {
    let mut patience = Patience::new(TURNS_MAX);
    while !patience.is_over() {
        let before = app.seen.len();
        lane.serve(app, &MonotonicClock).expect("the lane serves");
        if app.seen.len() >= wanted {
            return;
        }
        if app.seen.len() > before {
            patience.note_arrival();
        }
        patience.wait(|| lane.wait(Duration::from_millis(10)).expect("the lane waits"));
    }
    panic!("{} of {wanted} datagrams", app.seen.len());
}

#[test]
fn a_datagram_lane_can_be_dropped_with_requests_in_flight() {
    let Some(world) = world() else { return };
    for round in 0..200usize {
        let spec = ["uring:gso,send_zc=1", "uring:depth=2,buffers=2", "uring:gso,gro"][round % 3];
        let (mut lane, far) = udp(&world, spec);
        let mut app = Relay { to: vec![far.local_addr().expect("bound")], ..Relay::default() };
        for _ in 0..round % 7 {
            far.send_to(&[round as u8; 700], lane.local_addr(PORT)).expect("the far end sends");
        }
        if round % 2 == 0 {
            // Some are shown and sent on, without a wait for their ends.
            lane.serve(&mut app, &MonotonicClock).expect("the lane serves");
            far.send_to(&[0; 100], lane.local_addr(PORT)).expect("the far end sends");
        }
        drop(lane);
    }
}

#[test]
fn running_out_of_buffers_delays_datagrams_and_loses_none() {
    let Some(world) = world() else { return };
    let (mut lane, far) = udp(&world, "uring:buffers=2,rcvbuf=1m");
    let sent: Vec<Vec<u8>> = (0..300u16).map(|i| i.to_be_bytes().to_vec()).collect();
    for bytes in &sent {
        far.send_to(bytes, lane.local_addr(PORT)).expect("the far end sends");
    }
    let mut app = Relay::default();
    serve(&mut lane, &mut app, sent.len());
    assert_eq!(app.seen, sent);
    let counters = lane.counters(PORT);
    assert_eq!((counters.rx_frames, counters.lost()), (300, 0), "{counters:?}");
    assert_ne!(lane.caps(PORT).facts["rearms"], "0", "two buffers were enough for 300");
}

/// Ports were asked in a fixed order, and the first took every buffer that was given back.
#[test]
fn a_port_that_is_flooded_leaves_buffers_to_another() {
    const SENT: usize = 10;
    /// Turns of eight datagrams of a port.
    const TURNS: usize = 40;
    let Some(world) = world() else { return };
    for spec in ["uring:batch=8,buffers=64", "uring:batch=8,buffers=64,gro"] {
        let parsed = spec.parse().expect("well formed");
        let lane = world.inside(|| UringUdp::open(&parsed, &[anywhere(); 2]));
        let mut lane = lane.unwrap_or_else(|e| panic!("{e}"));
        let far = world.inside(|| UdpSocket::bind(anywhere()).expect("the namespace is ours"));
        let [flooded, other] = [0, 1].map(|port| lane.local_addr(PortId(port)));
        let mut probe = DatagramProbe::new(Answer::Nothing);
        // Both as armed receives and, behind so many turns with traffic, as looks.
        for round in 0..4 {
            for turn in 0..TURNS {
                // More than there are buffers waits before each turn.
                for _ in 0..if turn == 0 { 200 } else { 8 } {
                    far.send_to(&[1; 100], flooded).expect("the far end sends");
                }
                if turn == 5 {
                    for _ in 0..SENT {
                        far.send_to(&[2; 100], other).expect("the far end sends");
                    }
                }
                lane.serve(&mut probe, &MonotonicClock).expect("the lane serves");
            }
            let of_other = probe.seen.iter().filter(|seen| seen.ingress == PortId(1)).count();
            assert_eq!(of_other, SENT, "{spec}, round {round}: of {}", probe.seen.len());
            assert!(probe.seen.len() >= SENT + TURNS, "{spec}, round {round}: was it flooded?");
            probe.seen.clear();
        }
    }
}

#[test]
fn a_burst_waits_for_its_worker() {
    /// Ten times what a socket holds that is asked for nothing (208 KiB), beside the 512 buffers of the ring.
    const DATAGRAMS: usize = 1_500;
    let Some(world) = world() else { return };
    for spec in ["uring", "uring:gso,gro"] {
        let (mut lane, far) = udp(&world, spec);
        if let Some(raise) = lane.caps(PORT).facts.get("rcvbuf_bytes_raise") {
            return skip(format!("this host grants no receive queue of 4 MiB: {raise}"));
        }
        for _ in 0..DATAGRAMS {
            far.send_to(&[7; 1316], lane.local_addr(PORT)).expect("the far end sends");
        }
        let mut app = Relay::default();
        serve(&mut lane, &mut app, DATAGRAMS);
        assert_eq!(lane.counters(PORT).lost(), 0, "{spec}");
    }
}

#[test]
fn more_completions_than_the_queue_holds_are_counted_and_lose_nothing() {
    let Some(world) = world() else { return };
    // Eight completions fit; 32 datagrams complete at once.
    let (mut lane, far) = udp(&world, "uring:depth=2,buffers=64");
    let mut app = Relay::default();
    let mut sent = 0;
    for _ in 0..20 {
        for _ in 0..32 {
            far.send_to(&[7; 64], lane.local_addr(PORT)).expect("the far end sends");
            sent += 1;
        }
        serve(&mut lane, &mut app, sent);
    }
    let counters = lane.counters(PORT);
    assert_eq!((counters.rx_frames, counters.lost()), (640, 0), "{counters:?}");
    let facts = &lane.caps(PORT).facts;
    assert_eq!(facts["cq_entries"], "8");
    assert_ne!(facts["cq_overflows"], "0");
    assert_eq!(facts["cq_lost"], "0");
}

#[test]
fn a_train_forwarded_to_many_leaves_whole_from_one_buffer() {
    let Some(world) = world() else { return };
    let (mut lane, far) = udp(&world, "uring:gso,gro");
    let outputs: Vec<UdpSocket> =
        world.inside(|| (0..20).map(|_| UdpSocket::bind(anywhere()).expect("ours")).collect());
    let to = outputs.iter().map(|socket| socket.local_addr().expect("bound")).collect();
    let mut app = Relay { to, ..Relay::default() };
    let mut sent = Vec::new();
    for i in 0..40u8 {
        sent.push(vec![i; 500]);
        far.send_to(&sent[usize::from(i)], lane.local_addr(PORT)).expect("the far end sends");
    }
    serve(&mut lane, &mut app, sent.len());
    for output in &outputs {
        output.set_read_timeout(PATIENCE).expect("a socket can");
        let mut buffer = [0; 2048];
        for wanted in &sent {
            let bytes = output.recv(&mut buffer).expect("it was sent");
            assert_eq!(&buffer[..bytes], wanted);
        }
    }
    let counters = lane.counters(PORT);
    assert_eq!((counters.tx_frames, counters.copies, counters.lost()), (800, 0, 0), "{counters:?}");
    assert_eq!(lane.caps(PORT).facts["buffers_in_use"], "0", "every buffer is back");
}

#[test]
fn a_queue_shorter_than_what_the_kernel_takes_loses_nothing_and_keeps_the_order() {
    let Some(world) = world() else { return };
    for spec in ["uring", "uring:gso", "uring:depth=2,send_zc=1"] {
        let (mut lane, far) = udp(&world, spec);
        far.set_read_timeout(PATIENCE).expect("a socket can");
        // Less than one of the longest.
        let when_full = WhenFull::Oldest { bytes: 1000 };
        let plan = PortPlan { when_full, ..PortPlan::at(anywhere()) };
        let port = world.inside(|| lane.open_port(&plan)).expect("it opens");
        let to = far.local_addr().expect("bound");
        let mut probe = DatagramProbe::new(Answer::Nothing);
        for turn in 0..20u8 {
            let lengths = [1400, 1400, 1400, 100, 0, 300, 300, 300, 20, 700];
            let datagrams = lengths.map(|bytes| vec![turn; bytes]);
            probe.on_tick =
                datagrams.iter().map(|bytes| TickSend::exact(port, to, bytes.clone())).collect();
            lane.tick(&mut probe, Turn { now_ns: MonotonicClock.now_ns() }).expect("it sends");
            let mut buffer = [0; 2048];
            for datagram in &datagrams {
                let bytes = far.recv(&mut buffer).expect("it was sent");
                assert_eq!(&buffer[..bytes], datagram, "{spec}");
            }
        }
        let counters = lane.counters(port);
        assert_eq!((counters.tx_frames, counters.lost()), (200, 0), "{spec}: {counters:?}");
    }
}

#[test]
fn the_kernel_stamps_datagrams_when_they_arrive() {
    /// What converting between clocks may cost; far less than the pause before receiving.
    const MARGIN_NS: u64 = 5_000_000;
    /// The kernel switches stamping on a moment after it was asked to.
    const ATTEMPTS: usize = 50;
    let Some(world) = world() else { return };
    let (mut lane, far) = udp(&world, "uring:timestamps");
    assert!(lane.caps(PORT).obtained.has(Cap::KernelTimestamps));
    let stamped_on_arrival = (0..ATTEMPTS).any(|_| {
        let mut probe = DatagramProbe::new(Answer::Nothing);
        let before_ns = MonotonicClock.now_ns();
        far.send_to(b"early", lane.local_addr(PORT)).expect("the far end sends");
        let sent_ns = MonotonicClock.now_ns();
        std::thread::sleep(Duration::from_millis(30));
        let mut patience = 0..TURNS_MAX;
        while probe.seen.is_empty() && patience.next().is_some() {
            lane.wait(Duration::from_millis(10)).expect("it waits");
            lane.serve(&mut probe, &MonotonicClock).expect("it serves");
        }
        let stamp_ns = probe.seen[0].ts_ns;
        assert!(before_ns <= stamp_ns + MARGIN_NS, "stamped {stamp_ns}, sent after {before_ns}");
        stamp_ns <= sent_ns + MARGIN_NS
    });
    assert!(stamped_on_arrival, "stamps tell of the receiving, not of the arrival");
}

#[test]
fn a_received_train_leaves_through_a_queue_as_it_arrived() {
    let Some(world) = world() else { return };
    let (mut lane, far) = udp(&world, "uring:gso,gro");
    let when_full = WhenFull::Oldest { bytes: 4000 };
    let plan = PortPlan { when_full, ..PortPlan::at(anywhere()) };
    let port = world.inside(|| lane.open_port(&plan)).expect("it opens");
    set_segment(&far, 500);
    let sent: Vec<u8> = (0..20u8).flat_map(|i| [i; 500]).collect();
    far.send_to(&sent, lane.local_addr(port)).expect("the far end sends");
    set_segment(&far, 0);
    far.set_read_timeout(PATIENCE).expect("a socket can");
    let to = vec![far.local_addr().expect("bound")];
    let mut app = Relay { to, through: port, ..Relay::default() };
    serve(&mut lane, &mut app, 20);
    let mut buffer = [0; 2048];
    for wanted in sent.chunks(500) {
        let bytes = far.recv(&mut buffer).expect("it was sent");
        assert_eq!(&buffer[..bytes], wanted);
    }
    let counters = lane.counters(port);
    assert_eq!((counters.tx_frames, counters.lost()), (20, 0), "{counters:?}");
    assert_ne!(counters.copies, 0, "what goes through a queue is copied");
    assert_eq!(lane.due_ns(), None, "nothing waits");
}

#[test]
fn zero_copy_sends_are_distinguished_from_those_that_the_kernel_copied() {
    let Some(world) = world() else { return };
    let (mut lane, far) = udp(&world, "uring:send_zc=400");
    let mut app = Relay { to: vec![far.local_addr().expect("bound")], ..Relay::default() };
    for bytes in [100, 500, 1000] {
        far.send_to(&vec![1; bytes], lane.local_addr(PORT)).expect("the far end sends");
    }
    serve(&mut lane, &mut app, 3);
    // Their notifications come when the far end has taken them.
    let mut buffer = [0; 2048];
    for _ in 0..3 {
        far.recv(&mut buffer).expect("the far end receives");
    }
    for _ in 0..TURNS_MAX {
        lane.serve(&mut app, &MonotonicClock).expect("the lane serves");
        lane.counters(PORT);
        if lane.caps(PORT).facts["buffers_in_use"] == "0" {
            break;
        }
        lane.wait(Duration::from_millis(10)).expect("the lane waits");
    }
    assert_eq!(lane.caps(PORT).facts["buffers_in_use"], "0", "every buffer is back");
    assert_eq!(lane.caps(PORT).facts["send_zc"], "2", "the shortest was copied by choice");
}

#[test]
fn a_datagram_longer_than_a_buffer_is_counted_and_not_shown() {
    let Some(world) = world() else { return };
    let (mut lane, far) = udp(&world, "uring:buffer=128");
    for bytes in [64, 129, 128] {
        far.send_to(&vec![3; bytes], lane.local_addr(PORT)).expect("the far end sends");
    }
    let mut app = Relay::default();
    serve(&mut lane, &mut app, 2);
    assert_eq!(app.seen.iter().map(Vec::len).collect::<Vec<_>>(), [64, 128]);
    assert_eq!(lane.counters(PORT).drops(DropReason::RxTooLong), 1);
}

#[test]
fn a_train_arrives_whole_and_is_sent_on_by_one_request() {
    let Some(world) = world() else { return };
    let (mut lane, far) = udp(&world, "uring:gso,gro,batch=1");
    far.set_read_timeout(PATIENCE).expect("a socket can");
    let mut app = Relay { to: vec![far.local_addr().expect("bound")], ..Relay::default() };
    let train: Vec<u8> = (0..7 * 800 + 50).map(|i| (i / 800) as u8).collect();
    set_segment(&far, 800);
    far.send_to(&train, lane.local_addr(PORT)).expect("the far end sends");
    // A batch of one entry shows all eight datagrams.
    serve(&mut lane, &mut app, 1);
    let cut: Vec<Vec<u8>> = train.chunks(800).map(<[u8]>::to_vec).collect();
    assert_eq!(app.seen, cut);
    let mut buffer = [0; 2048];
    for wanted in &cut {
        let bytes = far.recv(&mut buffer).expect("it was sent");
        assert_eq!(&buffer[..bytes], wanted);
    }
    let counters = lane.counters(PORT);
    assert_eq!(
        (counters.rx_frames, counters.tx_frames, counters.copies),
        (8, 8, 0),
        "{counters:?}"
    );
}

#[test]
fn a_part_of_a_train_leaves_from_the_trains_buffer() {
    let Some(world) = world() else { return };
    let (mut lane, far) = udp(&world, "uring:gso,gro,batch=1");
    far.set_read_timeout(PATIENCE).expect("a socket can");
    let to = vec![far.local_addr().expect("bound")];
    let mut app = Relay { to, left_out: 250, ..Relay::default() };
    let train: Vec<u8> = (0..4 * 100).map(|i| i as u8).collect();
    set_segment(&far, 100);
    far.send_to(&train, lane.local_addr(PORT)).expect("the far end sends");
    serve(&mut lane, &mut app, 4);
    let mut buffer = [0; 2048];
    for wanted in train[250..].chunks(100) {
        let bytes = far.recv(&mut buffer).expect("it was sent");
        assert_eq!(&buffer[..bytes], wanted);
    }
    let counters = lane.counters(PORT);
    assert_eq!((counters.tx_frames, counters.copies, counters.lost()), (2, 0, 0), "{counters:?}");
    assert_eq!(lane.caps(PORT).facts["buffers_in_use"], "0", "every buffer is back");
}

#[test]
fn a_train_that_the_path_refuses_is_sent_apart_and_trains_stay_off() {
    let Some(world) = world() else { return };
    let mtu = ["link", "set", "dev", "lo", "mtu", "1300"];
    assert!(world.namespace.command("ip").args(mtu).status().expect("ip runs").success());
    let (mut lane, far) = udp(&world, "uring:gso");
    let mut app = Relay { to: vec![far.local_addr().expect("bound")], ..Relay::default() };
    far.set_read_timeout(PATIENCE).expect("a socket can");
    for round in 1..=3 {
        let sent: Vec<_> = (0..6u8).map(|i| vec![i; 1400]).collect();
        for bytes in &sent {
            far.send_to(bytes, lane.local_addr(PORT)).expect("the far end sends");
        }
        serve(&mut lane, &mut app, round * sent.len());
        let mut buffer = [0; 2048];
        for wanted in &sent {
            let bytes = far.recv(&mut buffer).expect("it was sent");
            assert_eq!(&buffer[..bytes], wanted);
        }
    }
    let counters = lane.counters(PORT);
    assert_eq!((counters.tx_frames, counters.lost()), (18, 0), "{counters:?}");
    assert_eq!(lane.caps(PORT).facts["gso_fallbacks"], "1");
}

#[test]
fn what_is_behind_a_train_that_the_path_refuses_does_not_overtake_it() {
    let Some(world) = world() else { return };
    let mtu = ["link", "set", "dev", "lo", "mtu", "1300"];
    assert!(world.namespace.command("ip").args(mtu).status().expect("ip runs").success());
    let (mut lane, far) = udp(&world, "uring:gso");
    far.set_read_timeout(PATIENCE).expect("a socket can");
    let to = far.local_addr().expect("bound");
    let mut probe = DatagramProbe::new(Answer::Nothing);
    let mut trains_of = |bytes: usize| {
        // Two trains, a datagram that neither takes between them.
        let sent: Vec<Vec<u8>> = [bytes, bytes, bytes, bytes + 50, bytes, bytes]
            .into_iter()
            .enumerate()
            .map(|(i, bytes)| vec![i as u8; bytes])
            .collect();
        probe.on_tick = sent.iter().map(|bytes| TickSend::exact(PORT, to, bytes.clone())).collect();
        lane.tick(&mut probe, Turn { now_ns: MonotonicClock.now_ns() }).expect("it sends");
        let mut buffer = [0; 2048];
        for wanted in &sent {
            let bytes = far.recv(&mut buffer).expect("it was sent");
            assert!(buffer[..bytes] == wanted[..], "{} of {bytes} bytes arrived", buffer[0]);
        }
    };
    trains_of(1000);
    trains_of(1400);
    trains_of(1000);
    assert_eq!(lane.counters(PORT).lost(), 0);
    // Both trains of 1400 were gathered before the first was refused.
    assert_eq!(lane.caps(PORT).facts["gso_fallbacks"], "2");
}

#[test]
fn a_port_of_ipv6_tells_addresses_of_ipv6() {
    struct Addresses(Vec<(SocketAddr, SocketAddr)>, Counters);
    impl App for Addresses {
        fn counters(&self) -> &Counters {
            &self.1
        }
    }

    impl DatagramApp for Addresses {
        fn on_datagrams<O: DatagramOut>(&mut self, batch: &[Datagram<'_>], _: Turn, out: &mut O) {
            for datagram in batch {
                self.0.push((datagram.source, datagram.destination));
                out.send(PORT, datagram.source, 4, |room| {
                    room.copy_from_slice(b"back");
                    4
                });
            }
        }
    }
    let Some(world) = world() else { return };
    let any: SocketAddr = (Ipv6Addr::UNSPECIFIED, 0).into();
    let here: SocketAddr = (Ipv6Addr::LOCALHOST, 0).into();
    let spec = "uring:gro".parse().expect("well formed");
    let (lane, far) = world.inside(|| (UringUdp::open(&spec, &[any]), UdpSocket::bind(here)));
    let Ok(far) = far else { return skip("this kernel has no IPv6") };
    let mut lane = lane.unwrap_or_else(|e| panic!("{e}"));
    let to = (Ipv6Addr::LOCALHOST, lane.local_addr(PORT).port()).into();
    far.send_to(b"there", to).expect("the far end sends");
    let mut app = Addresses(Vec::new(), Counters::default());
    for _ in 0..TURNS_MAX {
        if lane.serve(&mut app, &MonotonicClock).expect("the lane serves") > 0 {
            break;
        }
        lane.wait(Duration::from_millis(10)).expect("the lane waits");
    }
    // Bound to any address, the lane still knows which one was meant.
    assert_eq!(app.0, [(far.local_addr().expect("bound"), to)]);
    far.set_read_timeout(PATIENCE).expect("a socket can");
    let mut buffer = [0; 16];
    assert_eq!(far.recv_from(&mut buffer).expect("it was sent"), (4, to));
}

#[test]
fn a_second_lane_on_one_address_is_refused_with_reuseport_as_the_way() {
    let Some(world) = world() else { return };
    let (lane, _) = udp(&world, "uring");
    let taken = lane.local_addr(PORT);
    let second = world.inside(|| UringUdp::open(&"uring".parse().expect("well formed"), &[taken]));
    let sentence = second.err().expect("the address is taken").to_string();
    assert!(sentence.contains("reuseport") && sentence.contains(&taken.to_string()), "{sentence}");
    drop(lane);
    let shared = "uring:reuseport".parse().expect("well formed");
    let open = || UringUdp::open(&shared, &[taken]);
    let is_taken = |e: &LaneError| matches!(e, LaneError::Busy { .. });
    let both = world.inside(|| [(); 2].map(|()| until_free(open, is_taken)));
    assert!(both.iter().all(Result::is_ok));
}

#[test]
fn an_address_that_is_not_here_is_named() {
    let Some(world) = world() else { return };
    let elsewhere = (Ipv4Addr::new(198, 18, 0, 1), 7001).into();
    let opened =
        world.inside(|| UringUdp::open(&"uring".parse().expect("well formed"), &[elsewhere]));
    let sentence = opened.err().expect("it is not here").to_string();
    assert!(sentence.contains("198.18.0.1") && sentence.contains("ip addr"), "{sentence}");
}

/// Sends everything back, and refuses to consume what it cannot.
#[derive(Default)]
pub(crate) struct Echo {
    open: usize,
    ended: Vec<Close>,
    counters: Counters,
}

impl App for Echo {
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl StreamApp for Echo {
    fn on_open<O: StreamOut>(&mut self, _opened: Opened, _out: &mut O) {
        self.open += 1;
    }

    fn on_bytes<O: StreamOut>(&mut self, conn: ConnId, bytes: &[u8], out: &mut O) -> usize {
        out.send(conn, bytes)
    }

    fn on_close(&mut self, _conn: ConnId, why: Close) {
        self.open -= 1;
        self.ended.push(why);
    }
}

pub(crate) fn tcp(world: &World, spec: &str) -> UringTcp {
    let spec = spec.parse().expect("well formed");
    world.inside(|| UringTcp::open(&spec, &[anywhere()])).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn a_stream_lane_can_be_dropped_with_requests_in_flight() {
    let Some(world) = world() else { return };
    let specs = ["uring:bundle", "uring:send_zc=1", "uring:depth=2,buffers=2,buffer=64"];
    let specs = world.obtained(&specs);
    for round in 0..100usize {
        let mut lane = tcp(&world, specs[round % specs.len()]);
        let mut app = Echo::default();
        let at = lane.local_addr(PORT);
        let mut far: Vec<_> = world.inside(|| {
            (0..round % 5).map(|_| TcpStream::connect(at).expect("it listens")).collect()
        });
        for _ in 0..round % 4 {
            for stream in &mut far {
                // Nothing reads what comes back, so sends stay in flight.
                stream.set_nonblocking(true).expect("a socket can");
                let _ = stream.write(&[round as u8; 1 << 18]);
            }
            lane.serve(&mut app, &MonotonicClock).expect("the lane serves");
        }
        if round % 2 == 0 {
            lane.finish(&mut app, Turn { now_ns: MonotonicClock.now_ns() });
            assert_eq!(app.open, 0);
        }
        drop(lane);
    }
}

#[test]
fn places_of_connections_are_used_again_and_none_is_lost() {
    let Some(world) = world() else { return };
    let mut lane = tcp(&world, "uring:conns=4");
    let mut app = Echo::default();
    let at = lane.local_addr(PORT);
    for round in 1..=50 {
        let far: Vec<TcpStream> =
            world.inside(|| (0..4).map(|_| TcpStream::connect(at).expect("it listens")).collect());
        let turns = |lane: &mut UringTcp, app: &mut Echo, done: &dyn Fn(&Echo, usize) -> bool| {
            (0..TURNS_MAX).any(|_| {
                lane.serve(app, &MonotonicClock).expect("the lane serves");
                let is_done = done(app, lane.connections());
                if !is_done {
                    lane.wait(Duration::from_millis(10)).expect("the lane waits");
                }
                is_done
            })
        };
        assert!(turns(&mut lane, &mut app, &|app, _| app.open == 4), "round {round}");
        drop(far);
        assert!(turns(&mut lane, &mut app, &|app, places| app.open == 0 && places == 0));
    }
    assert_eq!(app.ended.len(), 200);
    assert_eq!(lane.counters(PORT).drops(DropReason::ConnTableFull), 0);
}

/// The 513th connection was closed at once: the table had 512 places unless a spec asked for more.
#[test]
fn six_hundred_connections_are_kept_without_asking_for_them() {
    const CONNECTIONS: usize = 600;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is ours, for one call.
    let failed = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0;
    if failed || limit.rlim_cur < 2 * CONNECTIONS as u64 + 100 {
        return skip(format!("`ulimit -n` is {}: too low for both ends", limit.rlim_cur));
    }
    let Some(world) = world() else { return };
    let mut lane = tcp(&world, "uring");
    let mut app = Echo::default();
    let at = lane.local_addr(PORT);
    let mut far = Vec::new();
    while far.len() < CONNECTIONS {
        // Fewer at a time than wait in the listener's queue.
        far.extend((0..50).map(|_| world.inside(|| TcpStream::connect(at).expect("it listens"))));
        let is_open = (0..TURNS_MAX).any(|_| {
            lane.serve(&mut app, &MonotonicClock).expect("the lane serves");
            let is_open = app.open == far.len();
            if !is_open {
                lane.wait(Duration::from_millis(10)).expect("the lane waits");
            }
            is_open
        });
        assert!(is_open, "{} of {} connections, {:?}", app.open, far.len(), lane.counters(PORT));
    }
    assert_eq!(lane.connections(), CONNECTIONS);
    // One of each step of the table answers.
    for i in [0, 300, CONNECTIONS - 1] {
        let stream = &mut far[i];
        stream.write_all(&[i as u8; 3]).expect("it is connected");
        let mut answer = [0; 3];
        stream.set_nonblocking(true).expect("a socket can");
        let is_answered = (0..TURNS_MAX).any(|_| {
            lane.serve(&mut app, &MonotonicClock).expect("the lane serves");
            let is_answered = stream.read_exact(&mut answer).is_ok();
            if !is_answered {
                lane.wait(Duration::from_millis(10)).expect("the lane waits");
            }
            is_answered
        });
        assert!(is_answered && answer == [i as u8; 3], "connection {i}");
    }
    assert_eq!(lane.counters(PORT).drops(DropReason::ConnTableFull), 0);
}

#[test]
fn a_request_longer_than_the_queue_ends_its_connection() {
    /// Waits for a line that never ends.
    #[derive(Default)]
    struct Waiting(Echo);
    impl App for Waiting {
        fn counters(&self) -> &Counters {
            &self.0.counters
        }
    }

    impl StreamApp for Waiting {
        fn on_open<O: StreamOut>(&mut self, opened: Opened, out: &mut O) {
            self.0.on_open(opened, out);
        }
        fn on_bytes<O: StreamOut>(&mut self, _conn: ConnId, _bytes: &[u8], _out: &mut O) -> usize {
            0
        }
        fn on_close(&mut self, conn: ConnId, why: Close) {
            self.0.on_close(conn, why);
        }
    }
    let Some(world) = world() else { return };
    let mut lane = tcp(&world, "uring:queue=4k");
    let mut app = Waiting::default();
    let at = lane.local_addr(PORT);
    let mut far = world.inside(|| TcpStream::connect(at).expect("it listens"));
    far.write_all(&[b'x'; 8192]).expect("the kernel queues that much");
    let ended = (0..TURNS_MAX).any(|_| {
        lane.serve(&mut app, &MonotonicClock).expect("the lane serves");
        lane.wait(Duration::from_millis(10)).expect("the lane waits");
        !app.0.ended.is_empty()
    });
    assert!(ended && app.0.ended == [Close::Error]);
    assert_eq!(lane.counters(PORT).drops(DropReason::RxTooLong), 1);
}

/// It was read again only when it was resumed, so its peer's end was not seen.
#[test]
fn a_connection_that_is_paused_when_there_is_room_again_tells_that_its_peer_has_finished() {
    /// Turns of 10 ms without room after which a peer that does not read counts as having stopped the sends.
    const STILL_TURNS: usize = 20;
    /// Consumes nothing, and sends more than there is room for until it is to pause.
    #[derive(Default)]
    struct Flooding {
        rooms: usize,
        pauses: bool,
        is_paused: bool,
        is_finished: bool,
        counters: Counters,
    }
    impl App for Flooding {
        fn counters(&self) -> &Counters {
            &self.counters
        }
    }

    impl StreamApp for Flooding {
        fn on_open<O: StreamOut>(&mut self, _opened: Opened, _out: &mut O) {}
        fn on_bytes<O: StreamOut>(&mut self, conn: ConnId, _bytes: &[u8], out: &mut O) -> usize {
            assert!(out.send(conn, &[7; 8192]) < 8192);
            0
        }
        fn on_room<O: StreamOut>(&mut self, conn: ConnId, out: &mut O) {
            self.rooms += 1;
            if self.pauses {
                out.pause(conn);
                self.is_paused = true;
            } else {
                assert!(out.send(conn, &[7; 8192]) < 8192);
            }
        }
        fn on_finish<O: StreamOut>(&mut self, _conn: ConnId, _out: &mut O) {
            self.is_finished = true;
        }
        fn on_close(&mut self, _conn: ConnId, _why: Close) {}
    }
    let Some(world) = world() else { return };
    let mut lane = tcp(&world, "uring:queue=4k,sndbuf=16k");
    let mut app = Flooding::default();
    let at = lane.local_addr(PORT);
    let mut far = world.inside(|| TcpStream::connect(at).expect("it listens"));
    far.write_all(b"left over").expect("the kernel queues that much");
    let mut still = 0;
    for _ in 0..100 * TURNS_MAX {
        let rooms = app.rooms;
        lane.serve(&mut app, &MonotonicClock).expect("the lane serves");
        lane.wait(Duration::from_millis(10)).expect("the lane waits");
        still = if app.rooms == rooms && rooms > 0 { still + 1 } else { 0 };
        if still == STILL_TURNS {
            break;
        }
    }
    assert_eq!(still, STILL_TURNS, "{:?}", lane.counters(PORT));
    app.pauses = true;
    far.set_nonblocking(true).expect("a socket can");
    let mut turns = |app: &mut Flooding, far: &mut TcpStream, done: &dyn Fn(&Flooding) -> bool| {
        let mut buffer = [0; 1 << 16];
        (0..TURNS_MAX).any(|_| {
            while far.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
            lane.serve(app, &MonotonicClock).expect("the lane serves");
            lane.wait(Duration::from_millis(10)).expect("the lane waits");
            done(app)
        })
    };
    assert!(turns(&mut app, &mut far, &|app| app.is_paused), "there is no room again");
    far.shutdown(Shutdown::Write).expect("it is connected");
    assert!(turns(&mut app, &mut far, &|app| app.is_finished), "its end was not seen");
}

#[test]
fn a_bundle_fills_several_buffers_with_one_completion() {
    const BYTES: usize = 2000;
    let Some(world) = world() else { return };
    let specs = ["uring:buffer=64", "uring:buffer=64,bundle"];
    for (spec, completions) in world.obtained(&specs).into_iter().zip([32..=40, 1..=8]) {
        let mut lane = tcp(&world, spec);
        let mut app = Echo::default();
        let at = lane.local_addr(PORT);
        let mut far = world.inside(|| TcpStream::connect(at).expect("it listens"));
        let sent: Vec<u8> = (0..BYTES).map(|i| (i / 7) as u8).collect();
        far.write_all(&sent).expect("the kernel queues that much");
        let echoed = (0..TURNS_MAX).any(|_| {
            lane.serve(&mut app, &MonotonicClock).expect("the lane serves");
            lane.wait(Duration::from_millis(10)).expect("the lane waits");
            lane.counters(PORT).tx_bytes == BYTES as u64
        });
        assert!(echoed, "{spec}: {:?}", lane.counters(PORT));
        let mut back = vec![0; BYTES];
        far.read_exact(&mut back).expect("it has been sent");
        assert!(back == sent, "{spec}");
        let counters = lane.counters(PORT);
        assert!(completions.contains(&counters.rx_frames), "{spec}: {counters:?}");
    }
}
