//! Over real cables: what is sent to a group at one end of a cable arrives at the far ends of two others, as
//! each output says; what the kernel drops or passes over on the way has a name; rules change under traffic.
//!
//! The far ends are in a namespace of their own, with an XDP program each: a veth end takes redirected frames
//! only with one.

use crate::{checked, frames::Made, model};
use laneway_core::{DropReason, FrameLane, KernelApp, KernelLane, Lane, PortId, Verdict};
use laneway_engine::{Control, MonotonicClock, run_kernel};
use laneway_netns::{
    Cidr, Mac, Namespace, VethEnd, VethOptions, VethPair, can_create, interface_state,
};
use laneway_packet::{OpenOptions, PacketLane};
use laneway_relay::kernel::{
    KernelCounts, KernelFate, KernelFeed, KernelOutput, KernelRelay, KernelRule,
};
use laneway_spec::IdlePolicy;
use laneway_testkit::skip;
use laneway_wire::checksum;
use laneway_xdp::{Options, PassGuard, XdpLane};
use std::{
    net::{IpAddr, UdpSocket},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

const NEAR: [&str; 3] = ["near0", "near1", "near2"];
const FAR: [&str; 3] = ["far0", "far1", "far2"];
const PORTS: usize = NEAR.len();
/// A test that waits knows what is to come, so this ends nothing but a test that fails.
const PATIENCE: Duration = Duration::from_secs(20);
/// Frames sent before anything is waited for: less than a socket's buffer and a veth's ring hold.
const WINDOW: usize = 16;
/// The receiver behind the third cable.
const HOST: &str = "198.51.100.4";

struct World {
    _cables: Vec<VethPair>,
    near: Namespace,
    far: Namespace,
    ifindexes: [u32; PORTS],
}

impl World {
    /// Builds it; `None`, and says so, where that cannot be done.
    fn new() -> Option<World> {
        if let Err(error) = can_create() {
            skip(error);
            return None;
        }
        Some(World::build().unwrap_or_else(|e| panic!("{e}")))
    }

    fn build() -> Result<World, laneway_netns::Error> {
        let (near, far) = (Namespace::create("relay-near")?, Namespace::create("relay-far")?);
        let cable = |port: usize| {
            let end = |side: u8, addresses: Vec<Cidr>| VethEnd {
                mac: mac(side, port),
                addresses,
                ..VethOptions::default().a
            };
            let host = Cidr::new([198, 51, 100, 4], 24).expect("24 bits fit IPv4");
            let of_far = if port == 2 { vec![host] } else { Vec::new() };
            let (a, b) = (end(0, Vec::new()), end(1, of_far));
            let options = VethOptions { a, b, ..VethOptions::default() };
            VethPair::create(&near, NEAR[port], &far, FAR[port], &options)
        };
        let _cables = vec![cable(0)?, cable(1)?, cable(2)?];
        let index = |name| interface_state(name).unwrap_or_else(|e| panic!("{e}")).ifindex;
        let ifindexes = near.enter(|| NEAR.map(index))?;
        Ok(World { _cables, near, far, ifindexes })
    }

    /// Runs a command in the namespace of the relay.
    fn near_ip(&self, arguments: &str) {
        let output = self.near.command("ip").args(arguments.split(' ')).output();
        let output = output.expect("iproute2 is here");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Runs the relay until the far side is done; gives what it counted, and what the lane lost.
    fn run<R: Send>(
        &self,
        rules: &[KernelRule],
        far: impl FnOnce(&mut FarEnds, &KernelFeed) -> R + Send,
    ) -> (KernelCounts, u64, R) {
        let mut app = KernelRelay::new(checked(rules), 1);
        let (feed, control) = (app.feed(), Control::default());
        let (ready, is_ready) = mpsc::channel();
        thread::scope(|scope| {
            let inside = control.clone();
            let worker = scope.spawn(move || {
                let run = || {
                    let spec = "xdp:native".parse().expect("a spec");
                    let mut lane = XdpLane::open(&spec, &NEAR, app.half(), Options::default())
                        .unwrap_or_else(|e| panic!("{e}"));
                    ready.send(()).expect("the far side waits");
                    let idle = IdlePolicy::Block;
                    run_kernel(&mut lane, &mut app, &MonotonicClock, idle, &inside)
                        .unwrap_or_else(|e| panic!("{e}"));
                    assert!(app.failure().is_none(), "{:?}", app.failure());
                    let of_exits: u64 =
                        self.ifindexes.iter().map(|i| lane.maps().exit_drops(*i).lost()).sum();
                    assert_eq!(lane.counters(PortId(0)).lost(), of_exits);
                    (app.counts().clone(), of_exits)
                };
                self.near.enter(run).unwrap_or_else(|e| panic!("{e}"))
            });
            let feed = &feed;
            // Also where the far side panics, which otherwise waits for a relay that waits for it.
            let stop = Stopping(&control);
            let seen = self.far.enter(move || {
                let _guards =
                    FAR.map(|end| PassGuard::attach(end).unwrap_or_else(|e| panic!("{e}")));
                let mut ends = FarEnds::open();
                is_ready.recv().ok().map(|()| far(&mut ends, feed))
            });
            drop(stop);
            let done = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let seen = seen.unwrap_or_else(|e| panic!("{e}"));
            (done.0, done.1, seen.expect("the near side says that it is ready or panics"))
        })
    }

    /// A rule from a group at the first cable to an output at each of the others.
    fn rule(&self, group: &str, port: u16) -> KernelRule {
        let destination: IpAddr = group.parse().expect("an address");
        let (source, to_group, to_host) = match destination {
            IpAddr::V4(_) => ("198.51.100.1", "239.2.2.2:6000", "198.51.100.4:7000"),
            IpAddr::V6(_) => ("2001:db8::1", "[ff3e::2:2]:6000", "[2001:db8::4]:7000"),
        };
        let output = |port: usize, next_hop_mac, to: &str| KernelOutput {
            ifindex: self.ifindexes[port],
            own_mac: mac(0, port).0,
            next_hop_mac,
            source_ip: source.parse().expect("an address"),
            source_port: 5004,
            destination: to.parse().expect("an address"),
            hop_limit: 3 + port as u8,
            dscp: 33 + port as u8,
        };
        KernelRule {
            ifindex: self.ifindexes[0],
            vlan: 0,
            destination,
            port,
            sources: Vec::new(),
            outputs: vec![output(1, None, to_group), output(2, Some(mac(1, 2).0), to_host)],
        }
    }
}

/// Stops the relay when dropped.
struct Stopping<'a>(&'a Control);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.stop.request();
    }
}

fn mac(side: u8, port: usize) -> Mac {
    Mac([0x02, 0x4c, 0x57, 0x31, side, port as u8])
}

/// The far ends of the cables.
struct FarEnds(PacketLane);

impl FarEnds {
    fn open() -> FarEnds {
        let spec = "packet".parse().expect("a spec");
        let lane = PacketLane::open(&spec, &FAR, OpenOptions::default());
        FarEnds(lane.unwrap_or_else(|e| panic!("{e}")))
    }

    /// Sends by the first cable.
    fn send(&mut self, mut frames: &[Vec<u8>]) {
        let port = PortId(0);
        while !frames.is_empty() {
            let burst = self.0.lend(port, frames.len()).unwrap_or_else(|e| panic!("{e}"));
            let sent = burst.len().min(frames.len());
            for (i, bytes) in frames[..sent].iter().enumerate() {
                let mut frame = burst.frame_mut(i);
                assert!(frame.set_len(bytes.len()));
                frame.bytes_mut().copy_from_slice(bytes);
                frame.set_verdict(Verdict::Tx);
            }
            frames = &frames[sent..];
            self.0.settle(port).unwrap_or_else(|e| panic!("{e}"));
        }
    }

    /// What comes of the relay's, by port, until each has as many as expected or patience ends.
    fn collect(&mut self, expected: [usize; PORTS]) -> [Vec<Vec<u8>>; PORTS] {
        let mut received: [Vec<Vec<u8>>; PORTS] = Default::default();
        let mut since = Instant::now();
        while (0..PORTS).any(|port| received[port].len() < expected[port]) {
            let mut found = false;
            for (port, received) in received.iter_mut().enumerate() {
                let id = PortId(port as u32);
                let burst = self.0.receive(id).unwrap_or_else(|e| panic!("{e}"));
                found |= !burst.is_empty();
                let frames = (0..burst.len()).map(|i| burst.frame(i).bytes);
                let ours = frames.filter(|frame| frame[6..12] == mac(0, port).0);
                received.extend(ours.map(<[u8]>::to_vec));
                self.0.settle(id).unwrap_or_else(|e| panic!("{e}"));
            }
            if found {
                since = Instant::now();
            } else if since.elapsed() > PATIENCE {
                break;
            } else {
                self.0.wait(Duration::from_millis(20)).unwrap_or_else(|e| panic!("{e}"));
            }
        }
        received
    }
}

/// A datagram to a group, with its number.
fn numbered(group: &str, port: u16, number: u32) -> Vec<u8> {
    let source = if group.contains(':') { "2001:db8::7" } else { "192.0.2.7" };
    let payload = [&number.to_be_bytes()[..], &[number as u8; 40]].concat();
    Made { ports: [4000, port], payload, ..Made::between(source, group) }.build()
}

/// The sums over an IPv4 header and over UDP with its pseudo header, inverted: 0 if right.
fn sums(frame: &[u8]) -> (u16, u16) {
    let (header, addresses, udp) = match frame[12] {
        0x08 => (checksum::of(&frame[14..34]), &frame[26..34], &frame[34..]),
        _ => (0, &frame[22..54], &frame[54..]),
    };
    let pseudo = checksum::sum(addresses) + 17 + udp.len() as u64;
    (header, !checksum::fold(pseudo + checksum::sum(udp)))
}

#[test]
fn a_group_arrives_at_two_outputs_as_each_of_them_says() {
    const FRAMES: usize = 3 * WINDOW;
    let Some(world) = World::new() else { return };
    let groups = ["239.1.1.1", "ff3e::1:1"];
    let rules = groups.map(|group| world.rule(group, 5000));
    let (counts, lost, ()) = world.run(&rules, |far, _| {
        let host = UdpSocket::bind((HOST, 7000)).unwrap_or_else(|e| panic!("{e}"));
        host.set_read_timeout(Some(PATIENCE)).unwrap_or_else(|e| panic!("{e}"));
        for (group, rule) in groups.iter().zip(&rules) {
            let sent: Vec<_> = (0..FRAMES as u32).map(|n| numbered(group, 5000, n)).collect();
            let mut received: [Vec<Vec<u8>>; PORTS] = Default::default();
            for window in sent.chunks(WINDOW) {
                far.send(window);
                // Relayed to no output: no rule asks for it.
                far.send(&[numbered(group, 5001, 0)]);
                let arrived = far.collect([0, window.len(), window.len()]);
                received.iter_mut().zip(arrived).for_each(|(all, more)| all.extend(more));
            }
            assert!(received[0].is_empty());
            for (received, output) in received[1..].iter().zip(&rule.outputs) {
                let expected: Vec<Vec<u8>> = sent
                    .iter()
                    .map(|frame| {
                        let datagram = model::read(frame, 1).expect("a datagram");
                        model::output(frame, &datagram, output)
                    })
                    .collect();
                assert_eq!(received.len(), expected.len());
                assert!(*received == expected, "{group}: {:02x?}", received[0]);
                assert!(received.iter().all(|frame| sums(frame) == (0, 0)));
                let (ttl, class) = match frame_family(&received[0]) {
                    4 => (received[0][22], received[0][15] >> 2),
                    _ => (received[0][21], (received[0][14] << 4 | received[0][15] >> 4) >> 2),
                };
                assert_eq!((ttl, class), (output.hop_limit, output.dscp));
            }
        }
        // The kernel of the receiver takes them, too.
        for number in 0..FRAMES as u32 {
            let mut payload = [0; 100];
            let (bytes, from) = host.recv_from(&mut payload).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!((bytes, from.to_string().as_str()), (44, "198.51.100.1:5004"));
            assert_eq!(payload[..4], number.to_be_bytes());
        }
    });
    let all = (FRAMES * groups.len()) as u64;
    assert_eq!((counts.taken.count, counts.sent.count), (all, 2 * all));
    assert_eq!((counts.taken.bytes, counts.sent.bytes), (44 * all, 2 * 44 * all));
    assert_eq!((lost, counts.passed_over), (0, 0));
    assert_eq!(counts.fates[KernelFate::Sent as usize], all);
    for rule in &counts.rules {
        assert_eq!(rule.taken.count, FRAMES as u64);
        assert!(rule.outputs.iter().all(|output| output.sent == rule.taken));
    }
}

fn frame_family(frame: &[u8]) -> u8 {
    frame[14] >> 4
}

#[test]
fn every_copy_that_does_not_arrive_has_a_name() {
    let Some(world) = World::new() else { return };
    let rules = [world.rule("239.1.1.1", 5000)];
    world.near_ip("link set near1 mtu 200");
    let (counts, lost, ()) = world.run(&rules, |far, feed| {
        let long = Made { payload: vec![7; 400], ..Made::between("192.0.2.7", "239.1.1.1") };
        let long = long.build();
        // The first output is too small for the long ones.
        far.send(
            &[vec![long; 5], (0..3).map(|n| numbered("239.1.1.1", 5000, n)).collect()].concat(),
        );
        let received = far.collect([0, 3, 8]);
        assert_eq!(received.map(|frames| frames.len()), [0, 3, 8]);
        // From here on no receiver is there. What is sent is all taken when the counts say so.
        world.far_down("far2");
        far.send(&(0..4).map(|n| numbered("239.1.1.1", 5000, n)).collect::<Vec<_>>());
        let since = Instant::now();
        while feed.counts().taken.count < 12 && since.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(10));
        }
    });
    assert_eq!(counts.taken.count, 12);
    assert_eq!(counts.passed_over, 5, "longer than the MTU");
    assert_eq!(counts.sent.count, 7 + 12);
    let drops = |port: usize| {
        let found = counts.interfaces.iter().find(|(index, _)| *index == world.ifindexes[port]);
        found.expect("an output's").1.drops(DropReason::TxRefused)
    };
    assert_eq!((drops(1), drops(2), lost), (0, 4, 4));
}

impl World {
    fn far_down(&self, name: &str) {
        let output = self.far.command("ip").args(["link", "set", name, "down"]).output();
        assert!(output.expect("iproute2 is here").status.success());
    }
}

#[test]
fn rules_are_replaced_under_traffic_and_the_others_lose_nothing() {
    const RULES: u16 = 1000;
    const ROUNDS: u32 = 20;
    let Some(world) = World::new() else { return };
    // All but the first change with the round.
    let rules = |round: u32| -> Vec<KernelRule> {
        let change = |port: u16| {
            let mut rule = world.rule("239.1.1.1", port);
            if port > 1 {
                rule.outputs[0].source_port = 1 + round as u16;
            }
            rule
        };
        (1..=RULES).map(change).collect()
    };
    let sets: Vec<_> = (1..=ROUNDS).map(|round| checked(&rules(round))).collect();
    let (counts, lost, sent) = world.run(&rules(0), |far, feed| {
        let (mut number, mut sent) = (0, 0);
        for set in sets {
            let asked = feed.replace(set);
            let mut is_in_force = false;
            while !is_in_force {
                // Before the window, so that one at least is sent after.
                is_in_force = feed.wait(asked, Duration::ZERO);
                let window: Vec<_> =
                    (number..number + WINDOW as u32).map(|n| numbered("239.1.1.1", 1, n)).collect();
                far.send(&window);
                let received = far.collect([0, WINDOW, WINDOW]);
                for received in &received[1..] {
                    let numbers: Vec<u32> = received
                        .iter()
                        .map(|frame| u32::from_be_bytes(*frame[42..].first_chunk().expect("44")))
                        .collect();
                    let all: Vec<u32> = (number..number + WINDOW as u32).collect();
                    assert_eq!(numbers, all, "all there, in order, once");
                }
                number += WINDOW as u32;
                sent += WINDOW as u64;
            }
        }
        sent
    });
    assert_eq!((counts.rules[0].taken.count, counts.sent.count), (sent, 2 * sent));
    assert_eq!((lost, counts.passed_over), (0, 0));
}
