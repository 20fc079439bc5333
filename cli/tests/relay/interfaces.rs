//! Interfaces that go and come under a running relay: rules wait, begin and begin again, the network is notified of the
//! groups, and the outputs of other interfaces lose nothing.

use crate::{Over, PATIENCE, SOCKETS, STACKS, World, receive, text};
use laneway_core::{FrameLane, Lane, PortId};
use laneway_netns::{Mac, Namespace, VethEnd, VethOptions, VethPair};
use laneway_packet::{OpenOptions, PacketLane};
use laneway_testkit::skip;
use laneway_xdp::PassGuard;
use serde_json::Value;
use std::{
    cell::Cell,
    net::UdpSocket,
    sync::{
        atomic::{AtomicBool, AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

const RULES: &str = r#"
allow = ["198.51.100.0/24", "203.0.113.0/24"]

[[rule]]
name = "tv"
input = { interface = "in0", group = "239.1.1.1", port = 5000 }
outputs = [ { destination = "198.51.100.4:6000", interface = "out0" },
            { destination = "203.0.113.4:6001", interface = "out1" } ]
"#;
const GROUP: &str = "239.1.1.1:5000";
/// Between two datagrams: slow enough for any sink.
const GAP: Duration = Duration::from_millis(2);

fn ip(namespace: &Namespace, arguments: &str) {
    let output = namespace.command("ip").args(arguments.split(' ')).output().expect("iproute2");
    assert!(output.status.success(), "ip {arguments}: {}", text(&output.stderr));
}

/// Lays the cable that is not there at first.
fn lay_out1(world: &World) -> VethPair {
    let end = |side: u8, address: &str| {
        VethEnd::new(Mac([0x02, 0x4c, 0x57, 0x37, 2, side]), &[address]).expect("an address")
    };
    let (a, b) = (end(1, "203.0.113.1/24"), end(2, "203.0.113.4/24"));
    let options = VethOptions { a, b, ..VethOptions::default() };
    VethPair::create(&world.relay, "out1", &world.sink, "dst1", &options).expect("a cable")
}

fn state(world: &World) -> Value {
    serde_json::from_str(&world.done(&["--json", "status"])).expect("JSON")
}

/// Why the input and each of the two outputs wait.
fn waits(state: &Value) -> [Option<String>; 3] {
    let rule = &state["rules"][0];
    [&rule["missing"], &rule["outputs"][0]["missing"], &rule["outputs"][1]["missing"]]
        .map(|why| why.as_str().map(str::to_owned))
}

#[track_caller]
fn until(world: &World, what: &str, is_so: impl Fn(&Value) -> bool) {
    let begun = Instant::now();
    loop {
        let state = state(world);
        if is_so(&state) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: {state:#}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Numbered datagrams to the group, until dropped; the last one is returned to the caller that asks.
struct Sender<'a> {
    is_over: &'a AtomicBool,
    sent: &'a AtomicU32,
}

impl Sender<'_> {
    fn send(&self, source: &UdpSocket) {
        while !self.is_over.load(Ordering::Relaxed) {
            let n = self.sent.load(Ordering::Relaxed);
            // Where the way is gone for the moment, the number is sent when it is back.
            if source.send_to(&n.to_be_bytes(), GROUP).is_ok() {
                self.sent.store(n + 1, Ordering::Relaxed);
            }
            thread::sleep(GAP);
        }
    }
}

/// Waits for a number that was not sent yet when this was called.
#[track_caller]
fn hears_anew(sink: &UdpSocket, sent: &AtomicU32) {
    let from = sent.load(Ordering::Relaxed);
    let mut bytes = [0; 4];
    loop {
        receive(sink, &mut bytes).expect("a new number arrives");
        if u32::from_be_bytes(bytes) >= from {
            return;
        }
    }
}

#[test]
fn a_rule_waits_for_its_interface_and_follows_it_under_traffic_and_the_others_lose_nothing() {
    let Some(world) = World::new() else { return };
    let rules = world.rules("rules.toml", RULES);
    for lane in ["socket", "uring:gso,gro"] {
        let running = world.start(lane, &["--config", &rules]);
        let missing = Some("there is no interface `out1`".to_owned());
        assert_eq!(waits(&state(&world)), [None, None, missing.clone()], "{lane}");
        assert!(world.done(&["status"]).contains("waits: there is no interface `out1`"));
        let (is_over, sent) = (AtomicBool::new(false), AtomicU32::new(0));
        let source = world.at_source("0.0.0.0:0");
        let (first, second) =
            (world.at_sink("198.51.100.4:6000"), world.at_sink("203.0.113.4:6001"));
        let received = thread::scope(|scope| {
            let over = Over(&is_over);
            scope.spawn(|| Sender { is_over: &is_over, sent: &sent }.send(&source));
            let receiver = scope.spawn(|| {
                let (mut numbers, mut bytes) = (Vec::new(), [0; 4]);
                while receive(&first, &mut bytes).is_ok() && bytes != [0xff; 4] {
                    numbers.push(u32::from_be_bytes(bytes));
                }
                numbers
            });
            // It appears, goes and comes again as another interface.
            for _ in 0..2 {
                let cable = lay_out1(&world);
                until(&world, "it begins", |state| waits(state) == [None, None, None]);
                hears_anew(&second, &sent);
                drop(cable);
                until(&world, "it waits", |state| waits(state)[2] == missing);
            }
            let _cable = lay_out1(&world);
            hears_anew(&second, &sent);
            // Down and up.
            ip(&world.relay, "link set dev out1 down");
            thread::sleep(5 * GAP);
            ip(&world.relay, "link set dev out1 up");
            hears_anew(&second, &sent);
            // Another name, and its own again.
            ip(&world.relay, "link set dev out1 down");
            ip(&world.relay, "link set dev out1 name other1");
            until(&world, "it waits", |state| waits(state)[2] == missing);
            ip(&world.relay, "link set dev other1 name out1");
            ip(&world.relay, "link set dev out1 up");
            hears_anew(&second, &sent);
            drop(over);
            // Behind the last number.
            thread::sleep(5 * GAP);
            source.send_to(&u32::MAX.to_be_bytes(), GROUP).expect("it is there");
            receiver.join().expect("it does not panic")
        });
        let sent = sent.load(Ordering::Relaxed);
        assert!(received.iter().copied().eq(0..sent), "{lane}: {} of {sent}", received.len());
        let account = running.account(lane);
        let copies = &account["copies"];
        let n = |value: &Value| value.as_u64().unwrap_or_default();
        assert_eq!(n(&copies["asked"]), 2 * u64::from(sent + 1), "{lane}: {account:#}");
        assert!(n(&copies["passed_over"]) > 0, "{lane}: {account:#}");
        let drops = account["lane_drops"].as_object().expect("by name");
        let dropped: u64 = drops.values().map(n).sum();
        assert_eq!(
            n(&copies["asked"]),
            n(&copies["sent"]) + n(&copies["passed_over"]) + dropped,
            "{lane}: {account:#}"
        );
    }
}

/// Whether an IGMP report names the group, in either version that Linux speaks by itself.
fn reports(frame: &[u8], group: [u8; 4]) -> bool {
    let is_igmp = frame.len() > 14 + 24 && frame[12..14] == [0x08, 0x00] && frame[14 + 9] == 2;
    is_igmp && frame[14 + 20..].windows(4).any(|bytes| bytes == group)
}

#[test]
fn groups_are_reported_to_the_network_again_when_the_input_is_made_again_or_comes_up() {
    let Some(world) = World::new() else { return };
    let rules = world.rules("rules.toml", RULES);
    for lane in ["socket", "uring"] {
        let running = world.start(lane, &["--config", &rules]);
        for anew in [false, true] {
            if anew {
                // The far end is up before the near one is, so that every report is received.
                ip(&world.relay, "link del dev in0");
                until(&world, "it waits", |state| waits(state)[0].is_some());
                let far = world.source.path().display().to_string();
                ip(
                    &world.relay,
                    &format!("link add in0 index 4711 type veth peer name src0 netns {far}"),
                );
                ip(&world.source, "address add 192.0.2.7/24 dev src0");
                ip(&world.source, "link set dev src0 up");
                ip(&world.source, "route add 224.0.0.0/4 dev src0");
                ip(&world.relay, "address add 192.0.2.1/24 dev in0");
            } else {
                ip(&world.relay, "link set dev in0 down");
            }
            let spec = "packet".parse().expect("a spec");
            let (opened, is_open) = mpsc::channel();
            let world = &world;
            let is_reported = thread::scope(|scope| {
                let watch = scope.spawn(move || {
                    let hear = || {
                        let open = PacketLane::open(&spec, &["src0"], OpenOptions::default());
                        let mut lane = open.unwrap_or_else(|e| panic!("{e}"));
                        opened.send(()).expect("the test waits");
                        let begun = Instant::now();
                        while begun.elapsed() < PATIENCE {
                            let burst = lane.receive(PortId(0)).expect("it receives");
                            let mut frames = (0..burst.len()).map(|i| burst.frame(i).bytes);
                            if frames.any(|frame| reports(frame, [239, 1, 1, 1])) {
                                return true;
                            }
                            lane.settle(PortId(0)).expect("it settles");
                            lane.wait(Duration::from_millis(20)).expect("it waits");
                        }
                        false
                    };
                    world.source.enter(hear).expect("a namespace")
                });
                is_open.recv().expect("it opens");
                ip(&world.relay, "link set dev in0 up");
                watch.join().expect("it does not panic")
            });
            assert!(is_reported, "{lane}: no report (made anew: {anew})");
            until(world, "it receives", |state| waits(state)[0].is_none());
            // And what is sent there arrives.
            let (source, sink) = (world.at_source("0.0.0.0:0"), world.at_sink("198.51.100.4:6000"));
            sink.set_read_timeout(Some(Duration::from_millis(100))).expect("it has one");
            let begun = Instant::now();
            let mut bytes = [0; 8];
            while begun.elapsed() < PATIENCE {
                let _ = source.send_to(b"again", GROUP);
                if receive(&sink, &mut bytes).is_ok() {
                    break;
                }
            }
            assert_eq!(&bytes[..5], b"again", "{lane}");
        }
        running.account(lane);
    }
}

#[test]
fn a_group_that_names_no_interface_is_joined_again_where_the_kernel_chooses_by_then() {
    let Some(world) = World::new() else { return };
    let rules = world.rules("rules.toml", &RULES.replace("interface = \"in0\", ", ""));
    let _cable = lay_out1(&world);
    let route = "route add 239.1.1.1 dev in0";
    ip(&world.relay, route);
    for (lane, index) in [("socket", 4711), ("uring", 4712)] {
        let running = world.start(lane, &["--config", &rules]);
        let sink = world.at_sink("198.51.100.4:6000");
        let relays = |source: &UdpSocket| {
            sink.set_read_timeout(Some(Duration::from_millis(100))).expect("it has one");
            let begun = Instant::now();
            let mut bytes = [0; 8];
            loop {
                let _ = source.send_to(b"again", GROUP);
                if receive(&sink, &mut bytes).is_ok_and(|n| &bytes[..n] == b"again") {
                    return;
                }
                assert!(begun.elapsed() < PATIENCE, "{lane}: nothing comes");
            }
        };
        relays(&world.at_source("0.0.0.0:0"));
        let far = world.source.path().display().to_string();
        ip(&world.relay, "link del dev in0");
        // The route of all other groups leads to out0, and there it is a member meanwhile.
        until_member(&world, "out0");
        ip(
            &world.relay,
            &format!("link add in0 index {index} type veth peer name src0 netns {far}"),
        );
        ip(&world.source, "address add 192.0.2.7/24 dev src0");
        ip(&world.source, "link set dev src0 up");
        ip(&world.source, "route add 224.0.0.0/4 dev src0");
        ip(&world.relay, "address add 192.0.2.1/24 dev in0");
        ip(&world.relay, "link set dev in0 up");
        // A route by itself is news as well.
        thread::sleep(Duration::from_millis(50));
        ip(&world.relay, route);
        relays(&world.at_source("0.0.0.0:0"));
        assert!(!is_member(&world, "out0"), "{lane}: it has left the other");
        running.account(lane);
    }
}

/// Whether a socket in the relay's namespace is a member of the group on this interface.
fn is_member(world: &World, interface: &str) -> bool {
    let output = world.relay.command("ip").args(["maddr", "show", "dev", interface]).output();
    text(&output.expect("iproute2").stdout).contains("239.1.1.1")
}

#[track_caller]
fn until_member(world: &World, interface: &str) {
    let begun = Instant::now();
    while !is_member(world, interface) {
        assert!(begun.elapsed() < PATIENCE, "no member on {interface}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn on_lanes_of_interfaces_one_that_is_gone_is_reported_and_the_others_go_on() {
    let Some(world) = World::new() else { return };
    let rules = world.rules("rules.toml", RULES);
    // DPDK's port takes `out0` down, and the kernel forgets the neighbours there that lane xdp needs.
    for lane in ["xdp", "packet", "afxdp", "dpdk:net_af_packet,no-huge"] {
        let in_kernel = lane == "xdp";
        if lane.starts_with("dpdk") && !laneway_dpdk::DpdkLane::is_built() {
            skip("this program carries no DPDK");
            continue;
        }
        let cable = lay_out1(&world);
        // An end of a veth takes redirected frames only with a program of its own.
        let pass = |end| world.sink.enter(move || PassGuard::attach(end)).expect("a namespace");
        let guards = ["dst0", "dst1"].map(|end| in_kernel.then(|| pass(end).expect("it attaches")));
        let addresses = "192.0.2.1/24@in0,198.51.100.1/24@out0,203.0.113.1/24@out1";
        let running = world.start(lane, &["--config", &rules, "--address", addresses]);
        let source = world.at_source("0.0.0.0:0");
        let (first, second) =
            (world.at_sink("198.51.100.4:6000"), world.at_sink("203.0.113.4:6001"));
        let relays = |n: u32, both: bool| {
            source.send_to(&n.to_be_bytes(), GROUP).expect("it sends");
            let mut bytes = [0; 4];
            for sink in [Some(&first), both.then_some(&second)].into_iter().flatten() {
                receive(sink, &mut bytes).unwrap_or_else(|e| panic!("{lane}: {n}: {e}"));
                assert_eq!(u32::from_be_bytes(bytes), n, "{lane}");
            }
        };
        (0..20).for_each(|n| relays(n, true));
        drop(cable);
        (20..60).for_each(|n| relays(n, false));
        until(&world, "it is reported", |state| {
            waits(state)[2]
                .as_ref()
                .is_some_and(|why| why.contains("`out1`") && why.contains("gone"))
        });
        let next = Cell::new(60);
        if in_kernel {
            let name = "gone.toml";
            let more = world.rules(name, &RULES.replace("203.0.113.4:6001", "239.7.7.7:5000"));
            let refused = world.ask(&["replace", &more]);
            let why = text(&refused.stderr);
            assert!(
                !refused.status.success() && why.contains("`out1` of this run is gone"),
                "{why}"
            );
            let one = RULES.lines().filter(|line| !line.contains("out1"));
            let one = one.collect::<Vec<_>>().join("\n").replace("\"out0\" },", "\"out0\" } ]");
            let one = world.rules(name, &one);
            relays(next.replace(next.get() + 1), false);
            let account = {
                world.done(&["replace", &one]);
                relays(next.replace(next.get() + 1), false);
                running.account(lane)
            };
            // The last one was to leave once.
            assert_eq!(account["copies"]["asked"], 2 * next.get() - 1, "{account:#}");
            assert!(account["copies"]["passed_over"].as_u64() > Some(0), "{account:#}");
            drop(guards);
            continue;
        }
        // A lane may look for its interfaces now and then; from then on what is sent there has a name.
        until(&world, "what does not leave is named", |state| {
            relays(next.replace(next.get() + 1), false);
            state["rules"][0]["outputs"][1]["drops"]["no_route"].as_u64() > Some(0)
        });
        let state = state(&world);
        let sent = next.get();
        assert_eq!(state["rules"][0]["outputs"][0]["sent"], sent, "{lane}: {state:#}");
        assert_eq!(waits(&state)[..2], [None, None], "{lane}");
        let account = running.account(lane);
        assert_eq!(account["copies"]["asked"], 2 * sent, "{lane}: {account:#}");
        let named = account["lane_drops"]["no_route"].as_u64().unwrap_or_default();
        assert!(named > 0, "{lane}: {account:#}");
    }
}

#[test]
fn what_is_longer_than_an_outputs_interface_takes_is_counted_there_on_every_lane() {
    let Some(world) = World::new() else { return };
    let rules = world.rules("rules.toml", RULES);
    let _cable = lay_out1(&world);
    ip(&world.relay, "link set dev out1 mtu 1000");
    for lane in SOCKETS.iter().chain(&STACKS) {
        let addresses = "192.0.2.1/24@in0,198.51.100.1/24@out0,203.0.113.1/24@out1";
        let own: &[&str] = if STACKS.contains(lane) { &["--address", addresses] } else { &[] };
        let running = world.start(lane, &[&["--config", &rules], own].concat());
        let source = world.at_source("0.0.0.0:0");
        let sinks = [world.at_sink("198.51.100.4:6000"), world.at_sink("203.0.113.4:6001")];
        let mut bytes = [0; 2048];
        for n in 0..10 {
            source.send_to(&vec![n; 1200], GROUP).expect("it sends");
            assert_eq!(receive(&sinks[0], &mut bytes).expect("it arrives"), 1200, "{lane}: {n}");
        }
        source.send_to(b"short", GROUP).expect("it sends");
        for sink in &sinks {
            let n = receive(sink, &mut bytes).expect("it arrives");
            assert_eq!(&bytes[..n], b"short", "{lane}");
        }
        let state = state(&world);
        let outputs = &state["rules"][0]["outputs"];
        assert_eq!(outputs[0]["drops"], serde_json::json!({}), "{lane}: {state:#}");
        assert_eq!(
            outputs[1]["drops"],
            serde_json::json!({ "tx_too_long": 10 }),
            "{lane}: {state:#}"
        );
        assert_eq!((&outputs[0]["sent"], &outputs[1]["sent"]), (&11.into(), &1.into()), "{lane}");
        running.account(lane);
    }
}
