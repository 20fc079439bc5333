//! UDP, ARP, ND and ICMP on simulated links, frame by frame.

#![forbid(unsafe_code)]
#[expect(dead_code, reason = "each test file uses a part")]
mod far;

use far::{FAR_MAC, NEAR_MAC, PORT, config, framed};
use laneway_core::{
    Clock, Counters, Datagram, DatagramApp, DatagramLane, DatagramOut, DatagramPorts, DropReason,
    Lane, Membership, Payload, PortId, PortPlan, Turn, WhenFull,
};
use laneway_kinds::LinkAddresses;
use laneway_sim::{SimLane, SimWorld};
use laneway_stack::{DatagramStack, InterfaceConfig, StackConfig, StreamStack};
use laneway_wire::{Ipv4, Ipv6, Udp, checksum, ether_type, protocol};
use proptest::prelude::*;
use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

/// What a test's app does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Echo,
    /// New bytes in place of the old ones.
    Reply,
    /// To two others, in this order.
    Fan([SocketAddr; 2]),
    /// As a train of two datagrams.
    Train,
    /// To so many groups: all datagrams to one and then to the next, as a relay does it, or each
    /// datagram to all.
    Many {
        outputs: usize,
        is_by_output: bool,
    },
    /// To some of eight groups, as these bits have it: whole, a part, a train, new bytes, or a copy.
    Mixed {
        picks: u64,
    },
}

/// Sends a datagram on in one of the ways of [`Manner::Mixed`].
fn send_mixed<O: DatagramOut>(datagram: &Datagram<'_>, pick: u64, to: SocketAddr, out: &mut O) {
    let (payload, port) = (datagram.payload, datagram.ingress);
    let half = payload.len() / 2;
    match pick % 6 {
        0 | 1 => out.forward(datagram, port, to),
        2 => {
            let payload = payload.narrowed(half..payload.len());
            out.forward(&Datagram { payload, segment_bytes: payload.len(), ..*datagram }, port, to);
        }
        3 => out.forward(&Datagram { segment_bytes: half.max(1), ..*datagram }, port, to),
        4 => out.send(port, to, 64, |room| {
            room[..2].copy_from_slice(&[pick as u8, 7]);
            2
        }),
        _ => {
            let payload = Payload::own(&payload);
            out.forward(&Datagram { payload, ..*datagram }, port, to);
        }
    }
}

/// The `i`-th of many groups.
fn output(i: usize) -> SocketAddr {
    SocketAddr::from(([239, 9, (i >> 8) as u8, i as u8], 5000))
}

struct App {
    manner: Manner,
    seen: Vec<(SocketAddr, SocketAddr, Vec<u8>)>,
    broadcasts: usize,
    on_tick: Vec<(SocketAddr, Vec<u8>)>,
    /// The port that a tick sends through, if not the first.
    through: Option<PortId>,
    counters: Counters,
}

impl laneway_core::App for App {
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl DatagramApp for App {
    fn on_datagrams<O: DatagramOut>(&mut self, batch: &[Datagram<'_>], _turn: Turn, out: &mut O) {
        if let Manner::Many { outputs, is_by_output: true } = self.manner {
            for to in (0..outputs).map(output) {
                batch.iter().for_each(|datagram| out.forward(datagram, datagram.ingress, to));
            }
        }
        for datagram in batch {
            self.broadcasts += usize::from(datagram.is_broadcast);
            self.seen.push((datagram.source, datagram.destination, datagram.payload.to_vec()));
            match self.manner {
                Manner::Echo => out.forward(datagram, datagram.ingress, datagram.source),
                Manner::Reply => out.send(datagram.ingress, datagram.source, 64, |room| {
                    room[..5].copy_from_slice(b"reply");
                    5
                }),
                Manner::Fan(to) => {
                    to.iter().for_each(|to| out.forward(datagram, datagram.ingress, *to));
                }
                Manner::Many { outputs, is_by_output: false } => {
                    (0..outputs).for_each(|i| out.forward(datagram, datagram.ingress, output(i)));
                }
                Manner::Many { is_by_output: true, .. } => {}
                Manner::Mixed { picks } => {
                    for i in 0..8 {
                        // Another pick for every datagram and group, the same on every lane.
                        let n = (self.seen.len() * 8 + i) as u64;
                        let pick = (picks ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
                        if pick & 64 == 0 {
                            send_mixed(datagram, pick, output(i), out);
                        }
                    }
                }
                Manner::Train => {
                    let segment_bytes = datagram.payload.len().div_ceil(2);
                    let train = Datagram { segment_bytes, ..*datagram };
                    out.forward(&train, datagram.ingress, datagram.source);
                }
            }
        }
    }

    fn on_tick<O: DatagramOut>(&mut self, _turn: Turn, out: &mut O) {
        for (to, bytes) in self.on_tick.drain(..) {
            out.send(self.through.unwrap_or(PORT), to, bytes.len(), |room| {
                room.copy_from_slice(&bytes);
                bytes.len()
            });
        }
    }
}

struct Bench {
    stack: DatagramStack<SimLane>,
    world: SimWorld,
    app: App,
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn all_ports() -> StackConfig {
    config(&["0.0.0.0:7", "[::]:7"])
}

impl Bench {
    /// A stack that has made its announcements.
    fn new(config: &StackConfig, manner: Manner) -> Bench {
        Bench::on("sim", config, manner)
    }

    fn on(spec: &str, config: &StackConfig, manner: Manner) -> Bench {
        let (lane, world) = SimLane::open(&spec.parse().unwrap(), 1).unwrap();
        let stack = DatagramStack::new(lane, config).unwrap();
        let app = App {
            manner,
            seen: Vec::new(),
            broadcasts: 0,
            on_tick: Vec::new(),
            through: None,
            counters: Counters::default(),
        };
        let mut bench = Bench { stack, world, app };
        bench.serve();
        bench
    }

    /// One turn; the frames that reach the far end.
    fn serve(&mut self) -> Vec<Vec<u8>> {
        self.stack.serve(&mut self.app, &self.world.clock()).unwrap();
        self.world.collect(PORT).into_iter().map(|arrival| arrival.bytes).collect()
    }

    /// The answers to a frame.
    fn ask(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        self.world.inject(PORT, frame);
        self.serve()
    }

    fn tick(&mut self, to: &str, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.app.on_tick.push((at(to), bytes.to_vec()));
        let turn = Turn { now_ns: self.world.clock().now_ns() };
        self.stack.tick(&mut self.app, turn).unwrap();
        self.world.collect(PORT).into_iter().map(|arrival| arrival.bytes).collect()
    }

    fn pass(&self, seconds: u64) {
        self.world.advance_to(self.world.clock().now_ns() + seconds * 1_000_000_000);
    }

    fn drops(&mut self, reason: DropReason) -> u64 {
        self.stack.counters(PORT).drops(reason)
    }
}

/// An IP packet with a right header.
fn packet(from: IpAddr, to: IpAddr, kind: u8, hop_limit: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; if from.is_ipv4() { 20 } else { 40 }];
    match (from, to) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let header = Ipv4 {
                header_bytes: 20,
                tos: 0,
                total_bytes: 20 + payload.len() as u16,
                id: 9,
                fragment: 0,
                ttl: hop_limit,
                protocol: kind,
                checksum: 0,
                source,
                destination,
            };
            assert!(header.emit(&mut packet) && Ipv4::seal(&mut packet));
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let header = Ipv6 {
                traffic_class: 0,
                flow_label: 0,
                payload_bytes: payload.len() as u16,
                next_header: kind,
                hop_limit,
                source,
                destination,
            };
            assert!(header.emit(&mut packet));
        }
        _ => panic!("two versions"),
    }
    packet.extend_from_slice(payload);
    packet
}

fn sum(from: IpAddr, to: IpAddr, kind: u8, payload: &[u8]) -> u16 {
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let ends = checksum::sum(&octets(from)) + checksum::sum(&octets(to));
    let length = payload.len() as u64 + u64::from(kind);
    checksum::fold(ends + length + checksum::sum(payload))
}

/// A whole UDP frame from the far end.
fn udp(from: &str, to: &str, payload: &[u8]) -> Vec<u8> {
    let (from, to) = (at(from), at(to));
    let mut datagram = vec![0; 8];
    let header = Udp {
        source_port: from.port(),
        destination_port: to.port(),
        total_bytes: 8 + payload.len() as u16,
        checksum: 0,
    };
    assert!(header.emit(&mut datagram));
    datagram.extend_from_slice(payload);
    let checksum = !sum(from.ip(), to.ip(), protocol::UDP, &datagram);
    datagram[6..8].copy_from_slice(&checksum.to_be_bytes());
    framed(&packet(from.ip(), to.ip(), protocol::UDP, 64, &datagram))
}

/// A UDP frame of the stack, its checksums checked: MAC, ends, payload.
fn read_udp(frame: &[u8]) -> ([u8; 6], SocketAddr, SocketAddr, Vec<u8>) {
    let v4 = frame[12..14] == [8, 0];
    let (from, to, at): (IpAddr, IpAddr, usize) = if v4 {
        let header = Ipv4::parse(&frame[14..]).unwrap();
        assert_eq!(checksum::of(&frame[14..34]), 0, "the header's checksum");
        assert_eq!(usize::from(header.total_bytes), frame.len() - 14);
        (header.source.into(), header.destination.into(), 34)
    } else {
        let header = Ipv6::parse(&frame[14..]).unwrap();
        assert_eq!(usize::from(header.payload_bytes), frame.len() - 54);
        (header.source.into(), header.destination.into(), 54)
    };
    let header = Udp::parse(&frame[at..]).unwrap();
    assert_ne!(header.checksum, 0);
    assert_eq!(sum(from, to, protocol::UDP, &frame[at..]), 0xffff, "the datagram's checksum");
    let source = SocketAddr::new(from, header.source_port);
    let destination = SocketAddr::new(to, header.destination_port);
    assert_eq!(frame[6..12], NEAR_MAC);
    (frame[..6].try_into().unwrap(), source, destination, frame[at + 8..].to_vec())
}

fn arp(operation: u8, sender: ([u8; 6], [u8; 4]), target: ([u8; 6], [u8; 4])) -> Vec<u8> {
    let mut frame = [0xff; 6].to_vec();
    frame.extend_from_slice(&sender.0);
    frame.extend_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, operation]);
    frame.extend_from_slice(&sender.0);
    frame.extend_from_slice(&sender.1);
    frame.extend_from_slice(&target.0);
    frame.extend_from_slice(&target.1);
    frame
}

const OWN: [u8; 4] = [10, 0, 0, 1];
const PEER: [u8; 4] = [10, 0, 0, 2];

#[test]
fn an_echo_leaves_in_the_frame_of_its_request() {
    let mut bench = Bench::new(&all_ports(), Manner::Echo);
    for (from, to) in [
        ("10.0.0.2:999", "10.0.0.1:7"),
        ("172.16.9.9:1", "10.0.0.1:7"),
        ("[fd00::2]:5", "[fd00::1]:7"),
    ] {
        for payload in [&b"some payload"[..], b"odd", b"", &[0; 1400]] {
            let back = bench.ask(&udp(from, to, payload));
            let want = (FAR_MAC, at(to), at(from), payload.to_vec());
            assert_eq!(back.iter().map(|f| read_udp(f)).collect::<Vec<_>>(), [want]);
        }
    }
    let counters = bench.stack.counters(PORT);
    assert_eq!((counters.rx_frames, counters.tx_frames), (8, 8));
    assert_eq!(counters.copies, 2, "only the announcements were copied");
    assert_eq!(bench.stack.counters(PortId(1)).tx_frames, 4);
    assert_eq!(bench.stack.neighbours(), 0, "no address was asked for, none learned");
}

#[test]
fn new_bytes_go_to_the_sender_without_a_question() {
    let mut bench = Bench::new(&all_ports(), Manner::Reply);
    let back = bench.ask(&udp("10.0.0.2:999", "10.0.0.1:7", b"question"));
    assert_eq!(back.len(), 1);
    let want = (FAR_MAC, at("10.0.0.1:7"), at("10.0.0.2:999"), b"reply".to_vec());
    assert_eq!(read_udp(&back[0]), want);
}

#[test]
fn an_ipv4_datagram_without_a_checksum_is_taken_and_an_ipv6_one_is_not() {
    let mut bench = Bench::new(&all_ports(), Manner::Echo);
    let mut v4 = udp("10.0.0.2:999", "10.0.0.1:7", b"unsummed");
    v4[40..42].fill(0);
    let back = bench.ask(&v4);
    assert_eq!(read_udp(&back[0]).3, b"unsummed");
    let mut v6 = udp("[fd00::2]:5", "[fd00::1]:7", b"unsummed");
    v6[60..62].fill(0);
    assert!(bench.ask(&v6).is_empty());
    assert_eq!(bench.stack.counters(PortId(1)).drops(DropReason::BadChecksum), 1);
    let mut damaged = udp("10.0.0.2:999", "10.0.0.1:7", b"damaged");
    damaged[43] ^= 4;
    assert!(bench.ask(&damaged).is_empty());
    assert_eq!(bench.drops(DropReason::BadChecksum), 1);
}

#[test]
fn a_fan_keeps_the_order_for_each_destination() {
    let others = [at("10.0.0.3:1"), at("10.0.0.4:2")];
    let mut bench = Bench::new(&all_ports(), Manner::Fan(others));
    for last in [3, 4] {
        let mac = [2, 0, 0, 0, 0, last];
        bench.ask(&arp(1, (mac, [10, 0, 0, last]), ([0; 6], OWN)));
    }
    for i in 0..20u8 {
        bench.world.inject(PORT, &udp("10.0.0.2:999", "10.0.0.1:7", &[i; 30]));
    }
    // Neighbours that only asked are asked back as soon as they are used.
    let out = bench.serve();
    let out: Vec<_> = out.iter().filter(|f| f[12..14] == [8, 0]).map(|f| read_udp(f)).collect();
    for (other, mac) in others.into_iter().zip([3, 4]) {
        let to_it: Vec<u8> = out.iter().filter(|d| d.2 == other).map(|d| d.3[0]).collect();
        assert!(to_it.into_iter().eq(0..20), "{other}");
        assert!(out.iter().filter(|d| d.2 == other).all(|d| d.0[5] == mac));
    }
    let counters = bench.stack.counters(PORT);
    assert_eq!((counters.tx_frames, counters.copies), (40, 40 + 4), "no more copies than outputs");
}

/// The datagrams of a burst to many outputs in one turn, and the counters of the port.
fn fanned(
    spec: &str,
    config: &StackConfig,
    outputs: usize,
    is_by_output: bool,
) -> (Vec<Vec<u8>>, Counters) {
    let mut bench = Bench::on(spec, config, Manner::Many { outputs, is_by_output });
    let copies = bench.stack.counters(PORT).copies;
    for i in 0..64 {
        bench.world.inject(PORT, &udp("10.0.0.2:999", "10.0.0.1:7", &[i; 1316]));
    }
    let mut out = bench.serve();
    // What waited for the wire.
    for _ in 0..3 {
        bench.pass(1);
        out.extend(bench.serve());
    }
    // Without announcements that were still on their way.
    out.retain(|frame| frame.len() > 1316);
    assert_eq!(bench.app.seen.len(), 64);
    let mut counters = bench.stack.counters(PORT);
    counters.copies -= copies;
    (out, counters)
}

#[test]
fn a_burst_leaves_for_256_outputs_in_one_turn_with_one_copy_each_or_none() {
    let runs = [true, false].map(|is| [("sim:queue=64k", is), ("sim:queue=64k,gather", is)]);
    for (spec, is_by_output) in runs.into_iter().flatten() {
        let (out, counters) = fanned(spec, &all_ports(), 256, is_by_output);
        assert_eq!((counters.tx_frames, counters.lost()), (64 * 256, 0), "{counters:?}");
        assert_eq!(counters.tx_bytes, 64 * 256 * 1316);
        let mut next = vec![0u8; 256];
        for frame in &out {
            let (.., to, payload) = read_udp(frame);
            let IpAddr::V4(group) = to.ip() else { panic!("{to}") };
            let next = &mut next[usize::from(group.octets()[3])];
            assert_eq!((payload.len(), payload[0]), (1316, *next), "to {to}");
            *next += 1;
        }
        assert!(next.iter().all(|next| *next == 64), "{next:?}");
        // Where a datagram goes to all before the next does, two destinations may look alike.
        let alike = if is_by_output { 0 } else { 64 };
        let copies = if spec.contains("gather") { 0 } else { 64 * 256 + alike };
        assert!(counters.copies <= copies, "{spec}: {} copies", counters.copies);
    }
}

#[test]
fn what_a_fan_loses_has_a_reason_of_its_port() {
    let mut few = all_ports();
    few.limits.outbox_packets = 5000;
    let mut small = all_ports();
    small.limits.outbox_bytes = 30_000;
    for (spec, config) in [
        ("sim:queue=64k", &few),
        ("sim:queue=64k", &small),
        ("sim:delay_us=100", &all_ports()),
        ("sim:delay_us=100,gather", &all_ports()),
    ] {
        let (out, counters) = fanned(spec, config, 256, true);
        assert!(!out.is_empty() && counters.lost() > 0, "{spec}: {counters:?}");
        assert_eq!(counters.tx_frames, out.len() as u64, "{spec}: {counters:?}");
        assert_eq!(counters.tx_frames + counters.drops(DropReason::TxRefused), 64 * 256, "{spec}");
    }
}

#[test]
fn what_the_lane_refuses_is_no_longer_counted_as_sent() {
    for spec in ["sim:queue=100,delay_us=100", "sim:queue=100,delay_us=100,gather"] {
        refuses(spec, false);
        refuses(spec, true);
    }
}

/// `ends`: before what waits in the lane has left.
fn refuses(spec: &str, ends: bool) {
    const IN: usize = 100;
    // A copy in the frame that carried it, and one more; the link has room for half of them at a time.
    let manner = Manner::Many { outputs: 2, is_by_output: true };
    let mut bench = Bench::on(spec, &all_ports(), manner);
    bench.pass(1);
    bench.world.collect(PORT);
    let before = bench.stack.counters(PORT);
    for i in 0..IN {
        bench.world.inject(PORT, &udp("10.0.0.2:999", "10.0.0.1:7", &[i as u8; 100]));
    }
    bench.pass(1);
    let clock = bench.world.clock();
    for _ in 0..3 {
        bench.stack.serve(&mut bench.app, &clock).unwrap();
    }
    // A copy that the lane is to offer again counts as sent, and not as refused as well.
    let early = bench.stack.counters(PORT);
    let (sent, refused) = (early.tx_frames - before.tx_frames, early.drops(DropReason::TxRefused));
    assert_eq!(sent + refused, 2 * IN as u64, "{early:?}");
    if ends {
        bench.stack.drop_unsent();
    }
    let mut out = Vec::new();
    for _ in 0..3 {
        bench.pass(1);
        out.extend(bench.serve());
    }
    let counters = bench.stack.counters(PORT);
    let sent = counters.tx_frames - before.tx_frames;
    let refused = counters.drops(DropReason::TxRefused);
    assert_eq!((bench.app.seen.len(), sent), (IN, out.len() as u64), "{counters:?}");
    assert!(refused > 0, "{counters:?}");
    // What a lane gathers is of frames that were received: those do not wait.
    let waited = ends && !spec.contains("gather");
    let is_more = refused > early.drops(DropReason::TxRefused);
    assert_eq!(is_more, waited, "what waits is a drop at the end alone: {early:?} {counters:?}");
    assert_eq!(sent + refused, 2 * IN as u64, "{counters:?}");
    assert_eq!(counters.tx_bytes, sent * 100, "{counters:?}");
}

/// What leaves by a lane that gathers is what leaves by one that does not, per destination and in order, whatever an
/// app does with a batch: parts, trains, bytes of its own, payloads without a checksum.
#[test]
fn a_lane_that_gathers_sends_what_others_copy() {
    proptest!(|(burst in proptest::collection::vec(0..1400usize, 1..40), picks in any::<u64>())| {
        let run = |spec: &str| {
            let mut bench = Bench::on(spec, &all_ports(), Manner::Mixed { picks });
            for (i, bytes) in burst.iter().enumerate() {
                let mut frame = udp("10.0.0.2:999", "10.0.0.1:7", &vec![i as u8; *bytes]);
                if (picks >> (i % 64)) & 1 == 1 {
                    frame[40..42].fill(0);
                }
                bench.world.inject(PORT, &frame);
            }
            let mut by_destination: BTreeMap<SocketAddr, Vec<Vec<u8>>> = BTreeMap::new();
            // Without announcements, which are longer on the way.
            for frame in bench.serve().iter().filter(|frame| frame[30..32] == [239, 9]) {
                let (.., to, payload) = read_udp(frame);
                by_destination.entry(to).or_default().push(payload);
            }
            (by_destination, bench.stack.counters(PORT))
        };
        let (copied, before) = run("sim:queue=64k");
        let (gathered, after) = run("sim:queue=64k,gather");
        prop_assert_eq!(copied, gathered);
        prop_assert_eq!((before.tx_frames, before.tx_bytes), (after.tx_frames, after.tx_bytes));
        prop_assert_eq!((before.lost(), after.lost()), (0, 0));
        prop_assert!(after.copies <= before.copies);
    });
}

#[test]
fn a_train_is_cut_into_its_datagrams() {
    let mut bench = Bench::new(&all_ports(), Manner::Train);
    let back = bench.ask(&udp("10.0.0.2:999", "10.0.0.1:7", b"firstlast"));
    let payloads: Vec<_> = back.iter().map(|f| read_udp(f).3).collect();
    assert_eq!(payloads, [b"first".to_vec(), b"last".to_vec()]);
}

#[test]
fn what_waits_for_a_neighbour_leaves_when_it_answers() {
    let mut bench = Bench::new(&all_ports(), Manner::Echo);
    let asked = bench.tick("10.0.0.2:5", b"hello");
    assert_eq!(asked, [arp(1, (NEAR_MAC, OWN), ([0; 6], PEER))]);
    assert!(bench.tick("10.0.0.2:5", b"again").is_empty(), "one question is enough");
    let out = bench.ask(&arp(2, (FAR_MAC, PEER), (NEAR_MAC, OWN)));
    let payloads: Vec<_> = out.iter().map(|f| read_udp(f)).map(|d| (d.0, d.3)).collect();
    assert_eq!(payloads, [(FAR_MAC, b"hello".to_vec()), (FAR_MAC, b"again".to_vec())]);
    assert_eq!(read_udp(&bench.tick("10.0.0.2:5", b"now")[0]).3, b"now");
}

/// Knows two neighbours, one of them for sure.
struct Known;

impl LinkAddresses for Known {
    fn find(&mut self, interface: &str, address: IpAddr) -> Option<([u8; 6], bool)> {
        assert_eq!(interface, "left");
        match address.to_string().as_str() {
            "10.0.0.2" => Some((FAR_MAC, true)),
            "10.0.0.3" => Some(([2, 0, 0, 0, 0, 3], false)),
            _ => None,
        }
    }
}

#[test]
fn a_neighbour_that_the_kernel_knows_is_not_asked_for() {
    let (lane, world) = SimLane::open(&"sim".parse().unwrap(), 1).unwrap();
    let mut config = all_ports();
    config.interfaces[0].name = "left".to_owned();
    let stack = DatagramStack::new(lane, &config).unwrap().with_link_addresses(Box::new(Known));
    let app = Bench::new(&all_ports(), Manner::Echo).app;
    let mut bench = Bench { stack, world, app };
    bench.serve();
    for _ in 0..3 {
        let out = bench.tick("10.0.0.2:5", b"sure");
        assert_eq!((out.len(), read_udp(&out[0]).0), (1, FAR_MAC));
        // Its confirmation runs out, and it is looked up again.
        bench.pass(40);
        assert!(bench.serve().is_empty());
    }
    let out = bench.tick("10.0.0.3:5", b"doubted");
    assert_eq!((out.len(), read_udp(&out[0]).0), (1, [2, 0, 0, 0, 0, 3]));
    let out = bench.tick("10.0.0.3:5", b"again");
    assert_eq!(out.len(), 2, "used, and asked for");
    assert_eq!((&out[1][..6], &out[1][12..14]), (&[2, 0, 0, 0, 0, 3][..], &[8, 6][..]));
    let out = bench.tick("10.0.0.4:5", b"unknown");
    assert_eq!(out, [arp(1, (NEAR_MAC, OWN), ([0; 6], [10, 0, 0, 4]))]);
}

#[test]
fn a_neighbour_that_never_answers_costs_three_questions_and_a_counted_packet() {
    let mut bench = Bench::new(&all_ports(), Manner::Echo);
    let mut questions = bench.tick("10.0.0.2:5", b"hello").len();
    for _ in 0..10 {
        bench.pass(1);
        questions += bench.serve().len();
    }
    assert_eq!((questions, bench.drops(DropReason::NoNeighbour)), (3, 1));
    assert_eq!(bench.stack.neighbours(), 0);
}

#[test]
fn an_ipv6_neighbour_is_found_by_its_solicited_node_group() {
    let mut bench = Bench::new(&all_ports(), Manner::Echo);
    bench.app.on_tick.push((at("[fd00::2]:5"), b"ignored".to_vec()));
    let asked = bench.tick("[fd00::2]:6", b"hello");
    // Port 0 listens to IPv4 only, so neither can leave by it.
    assert!(asked.is_empty());
    assert_eq!(bench.drops(DropReason::NoRoute), 2);

    let mut bench = Bench::new(&config(&["[fd00::1]:7"]), Manner::Echo);
    let asked = bench.tick("[fd00::2]:6", b"hello");
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0][..6], [0x33, 0x33, 0xff, 0, 0, 2]);
    let mut advertisement = vec![136, 0, 0, 0, 0x60, 0, 0, 0];
    advertisement.extend_from_slice(&"fd00::2".parse::<std::net::Ipv6Addr>().unwrap().octets());
    advertisement.extend_from_slice(&[2, 1]);
    advertisement.extend_from_slice(&FAR_MAC);
    let (from, to) = (ip("fd00::2"), ip("fd00::1"));
    let checksum = !sum(from, to, protocol::ICMPV6, &advertisement);
    advertisement[2..4].copy_from_slice(&checksum.to_be_bytes());
    let forwarded = packet(from, to, protocol::ICMPV6, 254, &advertisement);
    assert!(bench.ask(&framed(&forwarded)).is_empty(), "a router forwarded it");
    let out = bench.ask(&framed(&packet(from, to, protocol::ICMPV6, 255, &advertisement)));
    assert_eq!(read_udp(&out[0]).3, b"hello");
}

/// An answer of `fd00::2` to a question of ours, with its link address or without.
fn advertisement(target_mac: Option<[u8; 6]>) -> Vec<u8> {
    let (from, to) = (ip("fd00::2"), ip("fd00::1"));
    let mut message = vec![136, 0, 0, 0, 0x40, 0, 0, 0];
    message.extend_from_slice(&"fd00::2".parse::<std::net::Ipv6Addr>().unwrap().octets());
    if let Some(mac) = target_mac {
        message.extend_from_slice(&[2, 1]);
        message.extend_from_slice(&mac);
    }
    let checksum = !sum(from, to, protocol::ICMPV6, &message);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    framed(&packet(from, to, protocol::ICMPV6, 255, &message))
}

/// One that was asked alone may leave it out (RFC 4861, 7.2.4), as BSD does.
#[test]
fn an_answer_without_a_link_address_confirms_the_known_one_and_teaches_none() {
    let mut bench = Bench::new(&config(&["[fd00::1]:7"]), Manner::Echo);
    let asked = |bench: &mut Bench| {
        let out = bench.tick("[fd00::2]:9", b"payload");
        let questions = out.iter().filter(|f| f[12..14] == [0x86, 0xdd] && f[54] == 135).count();
        (questions, out.len() - questions)
    };
    assert_eq!(asked(&mut bench), (1, 0));
    assert!(bench.ask(&advertisement(None)).is_empty(), "nothing can leave yet");
    assert_eq!(bench.ask(&advertisement(Some(FAR_MAC))).len(), 1);
    for round in 0..3 {
        assert_eq!(asked(&mut bench), (0, 1), "round {round}");
        bench.pass(31);
        assert_eq!(asked(&mut bench), (1, 1), "round {round}");
        bench.ask(&advertisement(None));
        // Unconfirmed, it would have been given up meanwhile.
        bench.pass(5);
    }
}

#[test]
fn questions_for_our_addresses_are_answered_and_others_are_not() {
    let mut bench = Bench::new(&all_ports(), Manner::Echo);
    let answer = bench.ask(&arp(1, (FAR_MAC, PEER), ([0; 6], OWN)));
    let mut want = arp(2, (NEAR_MAC, OWN), (FAR_MAC, PEER));
    want[..6].copy_from_slice(&FAR_MAC);
    assert_eq!(answer, [want.clone()]);
    assert!(bench.ask(&arp(1, (FAR_MAC, PEER), ([0; 6], [10, 0, 0, 9]))).is_empty());
    // A probe has no sender address.
    let probe = bench.ask(&arp(1, (FAR_MAC, [0; 4]), ([0; 6], OWN)));
    assert_eq!(probe.len(), 1);
    assert_eq!(bench.stack.events().solicitations_answered, 2);
}

#[test]
fn a_claim_to_our_address_is_answered_once_in_a_while() {
    let mut bench = Bench::new(&all_ports(), Manner::Echo);
    let claim = arp(1, (FAR_MAC, OWN), ([0; 6], OWN));
    assert_eq!(bench.ask(&claim), [arp(1, (NEAR_MAC, OWN), ([0; 6], OWN))]);
    assert!(bench.ask(&claim).is_empty());
    bench.pass(10);
    assert_eq!(bench.ask(&claim).len(), 1);
    assert_eq!(bench.stack.events().address_conflicts, 3);
}

#[test]
fn addresses_are_announced_at_the_start() {
    let (lane, world) = SimLane::open(&"sim".parse().unwrap(), 1).unwrap();
    let mut stack = DatagramStack::new(lane, &all_ports()).unwrap();
    let mut app = Bench::new(&all_ports(), Manner::Echo).app;
    assert_eq!(stack.due_ns(), Some(0));
    stack.serve(&mut app, &world.clock()).unwrap();
    let frames: Vec<_> = world.collect(PORT).into_iter().map(|a| a.bytes).collect();
    assert_eq!(frames[0], arp(1, (NEAR_MAC, OWN), ([0; 6], OWN)));
    assert_eq!((frames[1][..6].to_vec(), frames[1][54]), (vec![0x33, 0x33, 0, 0, 0, 1], 136));
    assert_eq!((frames.len(), stack.due_ns()), (2, None));
}

fn echo_request(from: &str, to: &str) -> Vec<u8> {
    let (from, to) = (ip(from), ip(to));
    let (kind, proto) = if from.is_ipv4() { (8, protocol::ICMP) } else { (128, protocol::ICMPV6) };
    let mut message = vec![kind, 0, 0, 0, 0x12, 0x34, 0, 1];
    message.extend_from_slice(b"ping payload");
    let checksum =
        if from.is_ipv4() { checksum::of(&message) } else { !sum(from, to, proto, &message) };
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    framed(&packet(from, to, proto, 64, &message))
}

#[test]
fn what_was_sent_to_all_hosts_is_shown_as_that() {
    let mut bench = Bench::new(&all_ports(), Manner::Echo);
    for (to, broadcasts) in
        [("10.0.255.255:7", 1), ("255.255.255.255:7", 2), ("10.0.0.1:7", 2), ("[fd00::1]:7", 2)]
    {
        let from = if to.starts_with('[') { "[fd00::2]:999" } else { "10.0.0.2:999" };
        bench.ask(&udp(from, to, b"x"));
        assert_eq!(bench.app.broadcasts, broadcasts, "{to}");
    }
    assert_eq!(bench.app.seen.len(), 4);
}

#[test]
fn a_ping_is_answered_with_its_data() {
    let mut bench = Bench::new(&all_ports(), Manner::Echo);
    let v4 = bench.ask(&echo_request("10.0.0.2", "10.0.0.1"));
    assert_eq!((v4.len(), v4[0][34], checksum::of(&v4[0][34..])), (1, 0, 0));
    assert_eq!(v4[0][38..], *b"\x12\x34\0\x01ping payload");
    assert_eq!(checksum::of(&v4[0][14..34]), 0);
    let v6 = bench.ask(&echo_request("fd00::2", "fd00::1"));
    assert_eq!((v6.len(), v6[0][54]), (1, 129));
    assert_eq!(sum(ip("fd00::1"), ip("fd00::2"), protocol::ICMPV6, &v6[0][54..]), 0xffff);
    assert!(bench.ask(&echo_request("10.0.0.2", "10.0.255.255")).is_empty(), "a broadcast");
    let mut silent = all_ports();
    silent.answer_echo = false;
    assert!(
        Bench::new(&silent, Manner::Echo).ask(&echo_request("10.0.0.2", "10.0.0.1")).is_empty()
    );
}

#[test]
fn a_port_without_a_listener_is_reported_unreachable_at_a_bounded_rate() {
    let mut config = all_ports();
    config.limits.icmp_errors_per_second = 5;
    let mut bench = Bench::new(&config, Manner::Echo);
    let request = udp("10.0.0.2:999", "10.0.0.1:8", b"unheard");
    let error = bench.ask(&request);
    assert_eq!((error.len(), &error[0][34..36]), (1, &[3, 3][..]));
    assert_eq!((checksum::of(&error[0][34..]), checksum::of(&error[0][14..34])), (0, 0));
    assert_eq!(error[0][42..], request[14..], "the packet is quoted");
    let v6 = bench.ask(&udp("[fd00::2]:999", "[fd00::1]:8", b"unheard"));
    assert_eq!(&v6[0][54..56], &[1, 4][..]);
    assert_eq!(sum(ip("fd00::1"), ip("fd00::2"), protocol::ICMPV6, &v6[0][54..]), 0xffff);
    for _ in 0..10 {
        bench.world.inject(PORT, &request);
    }
    assert_eq!(bench.serve().len(), 3);
    assert_eq!(bench.stack.events().icmp_errors_suppressed, 7);
    assert_eq!(bench.drops(DropReason::NoListener), 12);
    let odd = framed(&packet(ip("10.0.0.2"), ip("10.0.0.1"), 99, 64, b"unknown"));
    bench.pass(1);
    assert_eq!(&bench.ask(&odd)[0][34..36], &[3, 2][..]);
}

#[test]
fn errors_answer_no_broadcast_no_fragment_and_no_error() {
    let mut bench = Bench::new(&config(&["10.0.0.1:7"]), Manner::Echo);
    assert!(bench.ask(&udp("10.0.0.2:9", "10.0.255.255:8", b"all")).is_empty());
    assert!(bench.ask(&udp("255.255.255.255:9", "10.0.0.1:8", b"all")).is_empty());
    assert!(bench.ask(&udp("10.0.0.1:9", "10.0.0.1:8", b"from ourselves")).is_empty());
    let mut fragment = udp("10.0.0.2:9", "10.0.0.1:8", b"part");
    fragment[21] = 1;
    assert!(Ipv4::seal(&mut fragment[14..]));
    assert!(bench.ask(&fragment).is_empty());
    assert_eq!(bench.drops(DropReason::Fragment), 1);
    let mut to_all = udp("10.0.0.2:9", "10.0.0.1:8", b"in a frame for all");
    to_all[..6].fill(0xff);
    assert!(bench.ask(&to_all).is_empty());
    let mut message = vec![3, 3, 0, 0, 0, 0, 0, 0];
    message.extend_from_slice(&udp("10.0.0.1:7", "10.0.0.2:9", b"")[14..]);
    let checksum = checksum::of(&message);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    let error = packet(ip("10.0.0.2"), ip("10.0.0.1"), protocol::ICMP, 64, &message);
    assert!(bench.ask(&framed(&error)).is_empty());
}

#[test]
fn what_is_too_long_for_the_link_or_a_reported_path_mtu_is_counted() {
    let mut bench = Bench::new(&all_ports(), Manner::Echo);
    bench.ask(&arp(1, (FAR_MAC, PEER), ([0; 6], OWN)));
    // The packet, and a question to a neighbour that was never confirmed.
    assert_eq!(bench.tick("10.0.0.2:5", &[1; 1472]).len(), 2);
    assert!(bench.tick("10.0.0.2:5", &[1; 1473]).is_empty());
    assert_eq!(bench.drops(DropReason::TxTooLong), 1);
    let mut message = vec![3, 4, 0, 0, 0, 0, 5, 0x14];
    message.extend_from_slice(&udp("10.0.0.1:7", "10.0.0.2:5", &[1; 8])[14..]);
    let checksum = checksum::of(&message);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    let too_big = packet(ip("10.0.0.9"), ip("10.0.0.1"), protocol::ICMP, 64, &message);
    bench.ask(&framed(&too_big));
    assert_eq!(bench.stack.events().path_mtus_learned, 1);
    assert!(bench.tick("10.0.0.2:5", &[1; 1273]).is_empty());
    assert_eq!(bench.tick("10.0.0.2:5", &[1; 1272]).len(), 1);
    assert_eq!(bench.drops(DropReason::TxTooLong), 2);
}

#[test]
fn routers_lead_where_no_link_does() {
    let mut config = all_ports();
    let mut bench = Bench::new(&config, Manner::Echo);
    assert!(bench.tick("192.168.1.1:5", b"far").is_empty());
    assert_eq!(bench.drops(DropReason::NoRoute), 1);
    config.interfaces[0].gateways = vec![ip("10.0.0.254")];
    let mut bench = Bench::new(&config, Manner::Echo);
    let asked = bench.tick("192.168.1.1:5", b"far");
    assert_eq!(asked, [arp(1, (NEAR_MAC, OWN), ([0; 6], [10, 0, 0, 254]))]);
    let out = bench.ask(&arp(2, (FAR_MAC, [10, 0, 0, 254]), (NEAR_MAC, OWN)));
    assert_eq!(
        read_udp(&out[0]),
        (FAR_MAC, at("10.0.0.1:7"), at("192.168.1.1:5"), b"far".to_vec())
    );
}

#[test]
fn groups_are_heard_if_accepted_and_sent_to_without_a_question() {
    let mut config = config(&["239.1.2.3:7"]);
    config.interfaces[0].addresses.truncate(1);
    assert!(
        DatagramStack::new(SimLane::open(&"sim".parse().unwrap(), 1).unwrap().0, &config).is_err()
    );
    config.interfaces[0].groups = vec![ip("239.1.2.3")];
    let mut bench = Bench::new(&config, Manner::Fan([at("239.9.9.9:5"), at("239.9.9.8:5")]));
    let mut frame = udp("10.0.0.2:9", "239.1.2.3:7", b"news");
    frame[..6].copy_from_slice(&[1, 0, 0x5e, 1, 2, 3]);
    let out: Vec<_> = bench.ask(&frame).iter().map(|f| read_udp(f)).collect();
    assert_eq!(out.len(), 2);
    assert_eq!((out[0].0, out[0].1), ([1, 0, 0x5e, 9, 9, 9], at("10.0.0.1:7")));
    let mut other = udp("10.0.0.2:9", "239.1.2.4:7", b"news");
    other[..6].copy_from_slice(&[1, 0, 0x5e, 1, 2, 4]);
    assert!(bench.ask(&other).is_empty());
}

#[test]
fn frames_for_others_are_dropped_by_name_or_passed() {
    for pass_rest in [false, true] {
        let mut config = all_ports();
        config.pass_rest = pass_rest;
        let mut bench = Bench::new(&config, Manner::Echo);
        let mut other_mac = udp("10.0.0.2:9", "10.0.0.1:7", b"x");
        other_mac[5] = 99;
        let mut tagged = udp("10.0.0.2:9", "10.0.0.1:7", b"x");
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        let frames = [
            other_mac,
            tagged,
            udp("10.0.0.2:9", "10.0.0.9:7", b"x"),
            udp("10.0.0.2:9", "10.0.0.1:8", b"x"),
        ];
        for frame in &frames {
            bench.ask(frame);
        }
        let counters = bench.stack.counters(PORT);
        if pass_rest {
            assert_eq!((counters.passed, counters.lost()), (4, 0), "{counters:?}");
        } else {
            assert_eq!(counters.drops(DropReason::NotForUs), 3, "{counters:?}");
            assert_eq!(counters.drops(DropReason::NoListener), 1, "{counters:?}");
        }
        assert!(bench.app.seen.is_empty());
    }
}

#[test]
fn a_datagram_leaves_by_another_interface() {
    let (lane, world) = SimLane::open(&"sim".parse().unwrap(), 2).unwrap();
    let mut config = config(&["10.0.0.1:7", "10.9.0.1:7"]);
    let other = InterfaceConfig::new([2, 0, 0, 0, 9, 1], vec![(ip("10.9.0.1"), 24)]);
    config.interfaces.push(other);
    let stack = DatagramStack::new(lane, &config).unwrap();
    let manner = Manner::Fan([at("10.9.0.2:1"), at("10.9.0.3:1")]);
    let mut bench = Bench { stack, world, app: Bench::new(&all_ports(), manner).app };
    bench.serve();
    for last in [2, 3] {
        let mut asks = arp(1, ([2, 0, 0, 0, 9, last], [10, 9, 0, last]), ([0; 6], [10, 9, 0, 1]));
        asks[..6].fill(0xff);
        bench.world.inject(PortId(1), &asks);
    }
    bench.serve();
    bench.world.collect(PortId(1));
    assert!(bench.ask(&udp("10.0.0.2:9", "10.0.0.1:7", b"across")).is_empty());
    let mut out = bench.world.collect(PortId(1));
    out.retain(|a| a.bytes[12..14] == [8, 0]);
    assert_eq!(out.len(), 2);
    assert!(out.iter().all(|a| a.bytes[6..12] == [2, 0, 0, 0, 9, 1]));
    assert_eq!(out[0].bytes[26..34], [10, 0, 0, 1, 10, 9, 0, 2]);
}

/// Two interfaces, `left` and `right`, and no ports.
fn two_interfaces(manner: Manner) -> Bench {
    let (lane, world) = SimLane::open(&"sim".parse().unwrap(), 2).unwrap();
    let mut config = config(&[]);
    config.interfaces[0].name = "left".to_owned();
    let own = vec![(ip("10.9.0.1"), 24), (ip("fd09::1"), 64)];
    let right = InterfaceConfig::new([2, 0, 0, 0, 9, 1], own);
    config.interfaces.push(InterfaceConfig { name: "right".to_owned(), ..right });
    let stack = DatagramStack::new(lane, &config).unwrap();
    let mut bench = Bench { stack, world, app: Bench::new(&all_ports(), manner).app };
    bench.serve();
    bench.world.collect(PortId(1));
    bench
}

/// What leaves through a port to a destination: the interface, and the frame.
fn sent(bench: &mut Bench, port: PortId, to: &str) -> Vec<(u32, Vec<u8>)> {
    bench.app.through = Some(port);
    let left = bench.tick(to, b"sent").into_iter().map(|frame| (0, frame));
    let right = bench.world.collect(PortId(1)).into_iter().map(|arrival| (1, arrival.bytes));
    left.chain(right).collect()
}

#[test]
fn a_port_sends_as_its_plan_says() {
    let mut bench = two_interfaces(Manner::Echo);
    let open = |bench: &mut Bench, plan: PortPlan| {
        bench.stack.open_port(&plan).unwrap_or_else(|e| panic!("{e}"))
    };
    let on = |bind: &str, interface: &str| PortPlan {
        interface: Some(interface.to_owned()),
        hop_limit: Some(9),
        dscp: Some(34),
        ..PortPlan::at(at(bind))
    };
    for (bind, group, source, interface) in [
        ("0.0.0.0:5000", "239.1.1.1:6000", "10.0.0.1:5000", "left"),
        ("0.0.0.0:5000", "239.1.1.1:6000", "10.9.0.1:5000", "right"),
        ("[::]:5000", "[ff15::1]:6000", "[fd09::1]:5000", "right"),
    ] {
        let port = open(&mut bench, on(bind, interface));
        let out = sent(&mut bench, port, group);
        assert_eq!(out.len(), 1, "{group} on {interface}");
        let (left_by, frame) = &out[0];
        assert_eq!(*left_by, u32::from(interface == "right"));
        // Only the interface's own frames are read by `read_udp`.
        let mut own = frame.clone();
        own[6..12].copy_from_slice(&NEAR_MAC);
        assert_eq!(read_udp(&own).1, at(source));
        let (traffic_class, hops) = match frame[12..14] == [8, 0] {
            true => (frame[15], frame[22]),
            false => (frame[14] << 4 | frame[15] >> 4, frame[21]),
        };
        assert_eq!((traffic_class, hops), (34 << 2, 9), "{group}");
    }
    // No way leads there by the interface that the port keeps to.
    let port = open(&mut bench, on("0.0.0.0:5001", "right"));
    assert!(sent(&mut bench, port, "10.0.0.7:1").is_empty());
    assert_eq!(bench.stack.counters(port).drops(DropReason::NoRoute), 1);
    let source = Some(ip("10.9.0.1"));
    let port = open(&mut bench, PortPlan { source, ..PortPlan::at(at("0.0.0.0:5002")) });
    let out = sent(&mut bench, port, "239.1.1.1:6000");
    assert_eq!((out.len(), read_udp(&out[0].1).1), (1, at("10.9.0.1:5002")));
}

#[test]
fn a_port_of_one_interface_hears_no_other() {
    let mut bench = two_interfaces(Manner::Echo);
    let on = |interface: Option<&str>| PortPlan {
        interface: interface.map(str::to_owned),
        ..PortPlan::at(at("0.0.0.0:5000"))
    };
    let [left, right] = ["left", "right"]
        .map(|name| bench.stack.open_port(&on(Some(name))).unwrap_or_else(|e| panic!("{e}")));
    let mut to_right = udp("10.9.0.2:9", "10.9.0.1:5000", b"right");
    to_right[..6].copy_from_slice(&[2, 0, 0, 0, 9, 1]);
    bench.world.inject(PORT, &udp("10.0.0.2:9", "10.0.0.1:5000", b"left"));
    bench.world.inject(PortId(1), &to_right);
    bench.serve();
    for port in [left, right] {
        let counters = bench.stack.counters(port);
        assert_eq!((counters.rx_frames, counters.tx_frames), (1, 1), "{counters:?}");
    }
    bench.stack.close_port(right).unwrap_or_else(|e| panic!("{e}"));
    bench.world.inject(PortId(1), &to_right);
    bench.serve();
    assert_eq!(bench.app.seen.len(), 2, "its port is closed");
    let taken = bench.stack.open_port(&on(Some("left"))).unwrap_err().to_string();
    assert!(taken.contains("0.0.0.0:5000"), "{taken}");
    let any = bench.stack.open_port(&on(None)).unwrap_or_else(|e| panic!("{e}"));
    bench.world.inject(PortId(1), &to_right);
    bench.serve();
    assert_eq!(bench.stack.counters(any).rx_frames, 1);
    assert_eq!(bench.stack.past().rx_frames, 1, "what the closed one counted");
}

#[test]
fn what_no_stack_can_do_is_refused_in_words() {
    let mut bench = two_interfaces(Manner::Echo);
    let plan = PortPlan::at(at("0.0.0.0:5000"));
    let oldest = WhenFull::Oldest { bytes: 4096 };
    for (plan, says) in [
        (PortPlan { when_full: oldest, ..plan.clone() }, "4096 bytes"),
        (PortPlan { priority: Some(3), ..plan.clone() }, "priority 3"),
        (PortPlan { interface: Some("up".to_owned()), ..plan.clone() }, "`up`"),
        (PortPlan { source: Some(ip("192.0.2.1")), ..plan.clone() }, "192.0.2.1"),
        (PortPlan { source: Some(ip("fd00::1")), ..plan.clone() }, "other family"),
    ] {
        let refused = bench.stack.open_port(&plan).unwrap_err().to_string();
        assert!(refused.contains(says), "{refused}");
    }
    assert_eq!((bench.stack.ports(), bench.stack.open_port(&plan).unwrap()), (0, PortId(0)));
}

#[test]
fn an_app_that_asks_for_any_udp_port_gets_one_that_is_free() {
    let mut bench = two_interfaces(Manner::Echo);
    let any = |interface: Option<&str>| PortPlan {
        interface: interface.map(str::to_owned),
        ..PortPlan::at(at("0.0.0.0:0"))
    };
    let mut bound = std::collections::HashSet::new();
    let mut kept = Vec::new();
    for interface in [Some("left"), None, Some("right"), Some("left")] {
        let port = bench.stack.open_port(&any(interface)).unwrap_or_else(|e| panic!("{e}"));
        bound.insert(bench.stack.bound(port).unwrap());
        kept.push(port);
    }
    assert_eq!(bound.len(), kept.len());
    // All the way round, and past those that are taken.
    for _ in 0..40_000 {
        let port = bench.stack.open_port(&any(Some("left"))).unwrap_or_else(|e| panic!("{e}"));
        bench.stack.close_port(port).unwrap();
    }
}

#[test]
fn as_many_ports_as_there_may_be_are_distinguished() {
    const STEP: usize = 97;
    let mut bench = Bench::new(&config(&[]), Manner::Echo);
    let udp_port = |i: usize| 1000 + i as u16;
    for i in 0..PortId::OPEN_MAX {
        let plan = PortPlan::at(SocketAddr::new(ip("10.0.0.1"), udp_port(i)));
        assert_eq!(bench.stack.open_port(&plan).unwrap(), PortId(i as u32));
    }
    let full = bench.stack.open_port(&PortPlan::at(at("10.0.0.1:0"))).unwrap_err().to_string();
    assert!(full.contains("16384 ports"), "{full}");
    for i in (0..PortId::OPEN_MAX).step_by(STEP) {
        let to = format!("10.0.0.1:{}", udp_port(i));
        let back = bench.ask(&udp("10.0.0.2:9", &to, &[i as u8]));
        assert_eq!(read_udp(&back[0]).1, at(&to));
        assert_eq!(bench.stack.counters(PortId(i as u32)).rx_frames, 1);
    }
    let all: u64 =
        (0..PortId::OPEN_MAX).map(|i| bench.stack.counters(PortId(i as u32)).rx_frames).sum();
    assert_eq!(all, PortId::OPEN_MAX.div_ceil(STEP) as u64);
}

fn group(group: &str, source: Option<&str>) -> Membership {
    Membership { group: ip(group), interface: Some("left".to_owned()), source: source.map(ip) }
}

/// A datagram in a frame to its group.
fn to_group(from: &str, to: &str, payload: &[u8]) -> Vec<u8> {
    let mut frame = udp(from, to, payload);
    let mac = match ip(to.rsplit_once(':').unwrap().0.trim_matches(['[', ']'])) {
        IpAddr::V4(v4) => {
            let [_, b, c, d] = v4.octets();
            [1, 0, 0x5e, b & 0x7f, c, d]
        }
        IpAddr::V6(v6) => {
            let o = v6.octets();
            [0x33, 0x33, o[12], o[13], o[14], o[15]]
        }
    };
    frame[..6].copy_from_slice(&mac);
    frame
}

/// What a report of groups says, its sums and its way out checked: kind, group, senders.
fn read_report(frame: &[u8]) -> Vec<(u8, IpAddr, Vec<IpAddr>)> {
    let v4 = frame[12..14] == [8, 0];
    let (at, bytes) = if v4 {
        assert_eq!((&frame[..6], frame[22]), (&[1, 0, 0x5e, 0, 0, 22][..], 1));
        assert_eq!((checksum::of(&frame[14..38]), checksum::of(&frame[38..])), (0, 0));
        (38, 4)
    } else {
        assert_eq!((&frame[..6], frame[21]), (&[0x33, 0x33, 0, 0, 0, 0x16][..], 1));
        let source: [u8; 16] = frame[22..38].try_into().unwrap();
        let source = std::net::Ipv6Addr::from(source);
        assert!(source.is_unicast_link_local(), "{source}");
        let whole = sum(source.into(), ip("ff02::16"), protocol::ICMPV6, &frame[62..]);
        assert_eq!(whole, 0xffff);
        (62, 16)
    };
    assert_eq!(frame[at], if v4 { 0x22 } else { 143 });
    let read = |bytes: &[u8]| match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).unwrap()),
        _ => IpAddr::from(<[u8; 16]>::try_from(bytes).unwrap()),
    };
    let (count, mut rest) = (frame[at + 7], &frame[at + 8..]);
    let records = (0..count).map(|_| {
        let (kind, senders) = (rest[0], usize::from(rest[3]));
        let ips: Vec<_> = rest[4..][..bytes * (1 + senders)].chunks(bytes).map(read).collect();
        rest = &rest[4 + bytes * (1 + senders)..];
        (kind, ips[0], ips[1..].to_vec())
    });
    records.collect()
}

/// What is reported to routers until nothing more is due.
fn reported(bench: &mut Bench) -> Vec<(u8, IpAddr, Vec<IpAddr>)> {
    let mut reported = Vec::new();
    while let Some(due_ns) = bench.stack.due_ns() {
        bench.world.advance_to(due_ns.max(bench.world.clock().now_ns()));
        reported.extend(bench.serve().iter().flat_map(|frame| read_report(frame)));
    }
    reported
}

#[test]
fn a_thousand_groups_come_and_go_and_are_reported_to_routers() {
    const GROUPS: usize = 1000;
    let name = |i: usize| format!("239.7.{}.{}", i / 250, i % 250 + 1);
    let mut bench = two_interfaces(Manner::Echo);
    let plan = PortPlan {
        memberships: (0..GROUPS).map(|i| group(&name(i), None)).collect(),
        ..PortPlan::at(at("0.0.0.0:5000"))
    };
    let port = bench.stack.open_port(&plan).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(bench.stack.caps(port).facts["memberships"], "1000");
    let joined = reported(&mut bench);
    assert_eq!(joined.len(), 2 * GROUPS, "each twice");
    for half in joined.chunks(GROUPS) {
        assert!(half.iter().all(|(kind, _, senders)| *kind == 4 && senders.is_empty()));
        let groups: std::collections::HashSet<_> = half.iter().map(|record| record.1).collect();
        assert_eq!(groups.len(), GROUPS);
    }
    for i in (0..GROUPS).step_by(37) {
        bench.ask(&to_group("10.0.0.2:9", &format!("{}:5000", name(i)), &[i as u8]));
        assert_eq!(bench.app.seen.last().unwrap().1.ip(), ip(&name(i)));
    }
    let seen = bench.app.seen.len();
    bench.stack.leave(port, &group(&name(500), None)).unwrap_or_else(|e| panic!("{e}"));
    let left = (3, ip(&name(500)), vec![]);
    assert_eq!(reported(&mut bench), [left.clone(), left]);
    let again = bench.stack.leave(port, &group(&name(500), None)).unwrap_err().to_string();
    assert!(again.contains("239.7.2.1"), "{again}");
    bench.ask(&to_group("10.0.0.2:9", &format!("{}:5000", name(500)), b"left"));
    bench.ask(&to_group("10.0.0.2:9", "239.9.9.9:5000", b"never joined"));
    assert_eq!(bench.app.seen.len(), seen);
    bench.stack.close_port(port).unwrap_or_else(|e| panic!("{e}"));
    let closed = reported(&mut bench);
    assert_eq!(closed.iter().filter(|(kind, ..)| *kind == 3).count(), 2 * (GROUPS - 1));
}

#[test]
fn a_sender_that_is_not_listed_does_not_come_through() {
    for (any, one, [listed, other]) in [
        ("239.1.1.1", "232.1.1.1", ["10.0.0.2", "10.0.0.3"]),
        ("ff15::1", "ff35::1", ["fd00::2", "fd00::3"]),
    ] {
        let mut bench = two_interfaces(Manner::Echo);
        let with_port = |ip: &str| match ip.contains(':') {
            true => format!("[{ip}]:5000"),
            false => format!("{ip}:5000"),
        };
        let everywhere = with_port(if any.contains(':') { "::" } else { "0.0.0.0" });
        let plan =
            |of: Membership| PortPlan { memberships: vec![of], ..PortPlan::at(at(&everywhere)) };
        let port = bench.stack.open_port(&plan(group(one, Some(listed)))).unwrap();
        let allowed = (5, ip(one), vec![ip(listed)]);
        assert_eq!(reported(&mut bench), [allowed.clone(), allowed]);
        for from in [listed, other] {
            bench.ask(&to_group(&with_port(from), &with_port(one), b"news"));
        }
        assert_eq!(bench.app.seen.len(), 1, "{one}");
        assert_eq!(bench.app.seen[0].0.ip(), ip(listed));
        assert_eq!(bench.stack.counters(port).drops(DropReason::NotForUs), 1);
        // Another port that hears all senders there changes nothing for the first.
        let at_group =
            PortPlan { memberships: vec![group(one, None)], ..PortPlan::at(at(&with_port(one))) };
        let second = bench.stack.open_port(&at_group).unwrap();
        for from in [listed, other] {
            bench.ask(&to_group(&with_port(from), &with_port(one), b"news"));
        }
        let heard = |bench: &mut Bench, port| bench.stack.counters(port).rx_frames;
        assert_eq!((heard(&mut bench, port), heard(&mut bench, second)), (2, 2), "{one}");
        bench.stack.join(port, &group(any, None)).unwrap_or_else(|e| panic!("{e}"));
        bench.ask(&to_group(&with_port(other), &with_port(any), b"news"));
        assert_eq!(heard(&mut bench, port), 3, "{any}");
    }
}

/// A question of a router about a group of each version, or about all.
fn question(of: &str, senders: &[&str], hop_limit: u8) -> Vec<u8> {
    let of = ip(of);
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    // Ten seconds.
    let mut message = match of {
        IpAddr::V4(_) => vec![0x11, 100, 0, 0],
        IpAddr::V6(_) => vec![130, 0, 0, 0, 0x27, 0x10, 0, 0],
    };
    message.extend_from_slice(&octets(of));
    message.extend_from_slice(&[2, 125, 0, senders.len() as u8]);
    senders.iter().for_each(|sender| message.extend_from_slice(&octets(ip(sender))));
    let all = of.is_unspecified();
    let (from, to) = match of {
        IpAddr::V4(_) => (ip("10.0.0.254"), if all { ip("224.0.0.1") } else { of }),
        IpAddr::V6(_) => (ip("fe80::9"), if all { ip("ff02::1") } else { of }),
    };
    let checksum = match of {
        IpAddr::V4(_) => checksum::of(&message),
        IpAddr::V6(_) => !sum(from, to, protocol::ICMPV6, &message),
    };
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    let mut asked = match of {
        IpAddr::V4(_) => packet(from, to, 2, hop_limit, &[&[0x94, 4, 0, 0], &message[..]].concat()),
        IpAddr::V6(_) => {
            packet(from, to, 0, hop_limit, &[&[58, 0, 5, 2, 0, 0, 1, 0], &message[..]].concat())
        }
    };
    if of.is_ipv4() {
        asked[0] = 0x46;
        (asked[10], asked[11]) = (0, 0);
        let checksum = checksum::of(&asked[..24]);
        asked[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    let mut frame = framed(&asked);
    frame[..6].copy_from_slice(if of.is_ipv4() {
        &[1, 0, 0x5e, 0, 0, 1]
    } else {
        &[0x33, 0x33, 0, 0, 0, 1]
    });
    frame
}

#[test]
fn a_question_of_a_router_is_answered_within_its_time() {
    let mut due = Vec::new();
    for (no_group, any, one, [sender, other]) in [
        ("0.0.0.0", "239.1.1.1", "232.1.1.1", ["10.0.0.2", "10.0.0.3"]),
        ("::", "ff15::1", "ff35::1", ["fd00::2", "fd00::3"]),
    ] {
        let mut bench = two_interfaces(Manner::Echo);
        let everywhere = if ip(any).is_ipv4() { "0.0.0.0:5000" } else { "[::]:5000" };
        let memberships = vec![group(any, None), group(one, Some(sender))];
        let plan = PortPlan { memberships, ..PortPlan::at(at(everywhere)) };
        bench.stack.open_port(&plan).unwrap_or_else(|e| panic!("{e}"));
        reported(&mut bench);
        let is_any = (2, ip(any), vec![]);
        let is_one = (1, ip(one), vec![ip(sender)]);
        for (asked, answer) in [
            (question(no_group, &[], 1), vec![is_one.clone(), is_any.clone()]),
            (question(any, &[], 1), vec![is_any]),
            (question(one, &[sender, other], 1), vec![is_one]),
            (question(one, &[other], 1), vec![]),
            (question(any, &[], 64), vec![]),
        ] {
            bench.pass(60);
            let asked_ns = bench.world.clock().now_ns();
            assert!(bench.ask(&asked).is_empty(), "an answer takes its time");
            if let Some(due_ns) = bench.stack.due_ns() {
                assert!(due_ns < asked_ns + 10_000_000_000, "within what was asked for");
                due.push(due_ns - asked_ns);
            }
            let mut answered = reported(&mut bench);
            answered.sort_unstable();
            assert_eq!(answered, answer, "{asked:02x?}");
        }
        assert_eq!(bench.stack.events().group_queries_heard, 4);
    }
    due.sort_unstable();
    due.dedup();
    assert_eq!(due.len(), 4, "of each version, at times that differ: {due:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Sound frames with bytes changed, cut or added, and noise: whatever comes, both stacks go on,
    /// and count or pass what they do not take.
    #[test]
    fn any_frames_are_survived(
        frames in proptest::collection::vec(
            (0usize..10, proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
             any::<prop::sample::Index>(), any::<bool>()), 1..12),
        noise in proptest::collection::vec(any::<u8>(), 0..100), pass_rest: bool
    ) {
        let mut config = config(&["10.0.0.1:7", "[fd00::1]:7"]);
        config.pass_rest = pass_rest;
        config.interfaces[0].groups = vec![ip("239.1.1.1"), ip("ff15::1")];
        let mut bench = Bench::new(&config, Manner::Echo);
        let (lane, world) = SimLane::open(&"sim".parse().unwrap(), 1).unwrap();
        let mut streams = StreamStack::new(lane, &config).unwrap();
        let mut echo = Echo(Counters::default());
        for (kind, changes, cut, is_cut) in frames {
            let tcp = |from: &str, to: &str| {
                let (from, to) = (at(from), at(to));
                let mut segment = vec![0; 20];
                segment[..4].copy_from_slice(&[0x13, 0x88, 0, 7]);
                (segment[12], segment[13], segment[14]) = (0x50, 2, 16);
                let checksum = !sum(from.ip(), to.ip(), protocol::TCP, &segment);
                segment[16..18].copy_from_slice(&checksum.to_be_bytes());
                framed(&packet(from.ip(), to.ip(), protocol::TCP, 64, &segment))
            };
            let mut frame = match kind {
                0 => udp("10.0.0.2:9", "10.0.0.1:7", b"payload"),
                1 => udp("[fd00::2]:9", "[fd00::1]:7", b"payload"),
                2 => echo_request("10.0.0.2", "10.0.0.1"),
                3 => echo_request("fd00::2", "fd00::1"),
                4 => arp(1, (FAR_MAC, PEER), ([0; 6], OWN)),
                5 => tcp("10.0.0.2:5000", "10.0.0.1:7"),
                6 => tcp("[fd00::2]:5000", "[fd00::1]:7"),
                7 => question("0.0.0.0", &[], 1),
                8 => question("ff15::1", &["fd00::9"], 1),
                _ => [&NEAR_MAC[..], &noise].concat(),
            };
            for (at, value) in changes {
                let at = at.index(frame.len());
                frame[at] = value;
            }
            if is_cut {
                frame.truncate(cut.index(frame.len()));
            }
            // IPv4 headers are sealed, or hardly any change would get past their checksum.
            if frame.len() > 34 && frame[12..14] == ether_type::IPV4.to_be_bytes() {
                let _ = Ipv4::seal(&mut frame[14..]);
            }
            bench.ask(&frame);
            world.inject(PORT, &frame);
            laneway_core::StreamLane::serve(&mut streams, &mut echo, &world.clock()).unwrap();
        }
        bench.pass(100);
        bench.serve();
    }
}

struct Echo(Counters);

impl laneway_core::App for Echo {
    fn counters(&self) -> &Counters {
        &self.0
    }
}

impl laneway_core::StreamApp for Echo {
    fn on_open<O: laneway_core::StreamOut>(&mut self, _: laneway_core::Opened, _: &mut O) {}

    fn on_bytes<O: laneway_core::StreamOut>(
        &mut self,
        conn: laneway_core::ConnId,
        bytes: &[u8],
        out: &mut O,
    ) -> usize {
        out.send(conn, bytes)
    }

    fn on_close(&mut self, _conn: laneway_core::ConnId, _why: laneway_core::Close) {}
}
