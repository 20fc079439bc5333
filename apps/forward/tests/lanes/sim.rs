//! On simulated links: nothing is lost without a name, whatever the links do; the bridge learns; a
//! rule set changes under traffic and no frame sees half of it.

use crate::expected::{MODES, after, config, frames, to_port};
use laneway_core::{App, Burst, Counters, Fill, FrameApp, FrameLane, Lane, PortId, Turn};
use laneway_engine::{Control, Ended, run_frames};
use laneway_forward::{Commit, Config, Fate, Forward, Mode, RuleSet};
use laneway_sim::{Direction, SimLane, SimWorld};
use laneway_spec::IdlePolicy;
use proptest::{collection::vec, prelude::*, strategy::ValueTree, test_runner::TestRunner};
use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

const SPEC: &str = "sim:seed=11,loss=0.1,dup=0.05,reorder=0.05,reorder_us=40,delay_us=20,jitter_us=30,\
                    queue=100000,frames=256";

fn open(spec: &str, ports: usize) -> (SimLane, SimWorld) {
    SimLane::open(&spec.parse().expect("a spec"), ports).unwrap_or_else(|e| panic!("{e}"))
}

/// Runs the app until all is received, and lets what it sent arrive.
fn run(lane: &mut SimLane, world: &SimWorld, app: &mut impl FrameApp) {
    world.finish();
    let control = Control::default();
    let report = run_frames(lane, app, &world.clock(), IdlePolicy::Block, &control);
    assert_eq!(report.expect("a simulated lane does not fail").ended, Ended::Exhausted);
    world.advance_to(u64::MAX / 2);
}

#[test]
fn the_ledger_closes_over_links_that_lose_duplicate_and_reorder() {
    for mode in MODES {
        let (mut lane, world) = open(SPEC, 2);
        let mut set = RuleSet::for_user(config(mode).bounds());
        set.run("flow create 1 ingress pattern ipv4 / udp / end actions count / end")
            .expect("a rule");
        set.commit();
        let feed = set.feed().expect("a set of user space");
        let mut app = Forward::new(config(mode)).expect("it can run").with_rules(feed);
        let sent = frames(700);
        for (port, sent) in (0u8..).zip(&sent) {
            for (i, frame) in sent.iter().enumerate() {
                world.inject_at(PortId(port.into()), i as u64 * 1000, frame);
            }
        }
        run(&mut lane, &world, &mut app);

        let stats = app.stats();
        let to_lane: Vec<_> =
            (0..2).map(|p| world.link_counters(PortId(p), Direction::ToLane)).collect();
        let received: u64 = to_lane.iter().map(|link| link.delivered).sum();
        assert!(to_lane.iter().all(|link| link.lost > 20 && link.duplicated > 10));
        assert_eq!(
            (stats.total(), stats.frames(Fate::Forwarded)),
            (received, received),
            "{mode:?}"
        );
        assert_eq!(app.counters().rx_frames, received);
        assert_eq!(set.hits(1, 0).expect("there").frames, to_lane[1].delivered);
        for egress in 0..2 {
            let port = PortId(egress as u32);
            let from_lane = world.link_counters(port, Direction::FromLane);
            assert_eq!(from_lane.offered, to_lane[1 - egress].delivered);
            assert_eq!(lane.counters(port).tx_frames, from_lane.offered);
            let arrived = world.collect(port);
            assert_eq!(arrived.len() as u64, from_lane.delivered);
            let possible: HashSet<Vec<u8>> =
                sent[1 - egress].iter().map(|frame| after(mode, egress, frame)).collect();
            assert!(arrived.iter().all(|a| possible.contains(&a.bytes)), "{mode:?}");
        }
    }
}

#[test]
fn no_bytes_whatsoever_make_the_app_panic_or_lose_count() {
    const RULES: &str = "\
        flow create 0 ingress pattern ipv4 / udp / end actions set_ipv4_src ipv4_addr 192.0.2.7 / \
        set_tp_dst port 9 / dec_ttl / passthru / end\n\
        flow create 0 ingress pattern ipv6 / end actions set_ipv6_dst ipv6_addr ::7 / rss / end\n\
        flow create 0 ingress pattern eth src spec 00:00:00:00:00:00 src mask 00:00:00:00:00:80 / end \
        actions set_mac_dst mac_addr 2:0:0:0:0:1 / passthru / end\n\
        flow create 0 ingress pattern vlan / end actions port_id id 1 / end";
    for (&mode, with_rules) in Mode::ALL.iter().flat_map(|mode| [(mode, false), (mode, true)]) {
        let (mut lane, world) = open("sim:burst=64,mtu=1500", 2);
        let mut app =
            Forward::new(Config { routes: config(Mode::L3).routes, mode, ..Config::default() })
                .expect("it can run");
        if with_rules {
            let mut set = RuleSet::for_user(Config::default().bounds());
            set.load(RULES).unwrap_or_else(|e| panic!("{e}"));
            set.commit();
            app = app.with_rules(set.feed().expect("a set of user space"));
        }
        let mut runner = TestRunner::deterministic();
        let start = prop_oneof![
            Just(vec![]),
            Just([&[2; 12][..], &[8, 0, 0x45]].concat()),
            Just([&[2; 12][..], &[0x86, 0xdd, 0x60]].concat()),
            Just([&[2; 12][..], &[0x81, 0, 0, 1, 8, 0, 0x4f]].concat()),
        ];
        let frame = (start, vec(any::<u8>(), 0..150)).prop_map(|(a, b)| [a, b].concat());
        for sent in 1..=2000 {
            let frame = frame.new_tree(&mut runner).expect("no filter").current();
            world.inject(PortId(0), &frame);
            let burst = lane.receive(PortId(0)).expect("a simulated lane does not fail");
            app.on_burst(PortId(0), burst, Turn::default());
            lane.settle(PortId(0)).expect("a simulated lane does not fail");
            assert_eq!(app.stats().total(), sent);
        }
    }
}

/// What is done to a sound frame.
type Damage = fn(&mut Vec<u8>);

#[test]
fn every_drop_of_the_router_has_its_name() {
    let (mut lane, world) = open("sim", 2);
    let mut app = Forward::new(config(Mode::L3)).expect("it can run");
    let sound = frames(1)[0].remove(0);
    let cases: [(Fate, Damage); 7] = [
        (Fate::Forwarded, |_| {}),
        (Fate::TtlExpired, |f| f[22] = 1),
        (Fate::NoRoute, |f| f[30] = 9),
        (Fate::NoNeighbour, |f| f[32] = 0),
        (Fate::Malformed, |f| f.truncate(20)),
        (Fate::BadChecksum, |f| f[24] ^= 1),
        (Fate::NotForUs, |f| f[5] ^= 0x40),
    ];
    for (fate, change) in cases {
        let mut frame = sound.clone();
        change(&mut frame);
        if !matches!(fate, Fate::BadChecksum | Fate::Malformed) {
            assert!(laneway_wire::Ipv4::seal(&mut frame[14..34]));
        }
        let before = app.stats().frames(fate);
        world.inject(PortId(0), &frame);
        let burst = lane.receive(PortId(0)).expect("a simulated lane does not fail");
        app.on_burst(PortId(0), burst, Turn::default());
        lane.settle(PortId(0)).expect("a simulated lane does not fail");
        assert_eq!(app.stats().frames(fate), before + 1, "{}", fate.name());
        if let Some(reason) = fate.drop_reason() {
            assert!(app.counters().drops(reason) > 0, "{}", fate.name());
        }
    }
    assert_eq!(world.collect(PortId(1)).len(), 1);
}

/// One frame into a port at a time; gives the ports that it was sent out of.
struct Bridge {
    lane: SimLane,
    world: SimWorld,
    app: Forward,
}

impl Bridge {
    fn new() -> Bridge {
        let (lane, world) = open("sim", 4);
        let config = Config { mode: Mode::L2, ports: 4, age_ns: 1000, ..Config::default() };
        Bridge { lane, world, app: Forward::new(config).expect("it can run") }
    }

    fn send(&mut self, port: u8, destination: u8, source: u8, vlan: u8, now_ns: u64) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, destination, 2, 0, 0, 0, 0, source];
        if destination == 0xff {
            frame[..6].fill(0xff);
        }
        frame.extend([0x81, 0, 0, vlan, 0x08, 0x06]);
        frame.resize(60, 0);
        self.world.inject(PortId(port.into()), &frame);
        let burst = self.lane.receive(PortId(port.into())).expect("a simulated lane does not fail");
        self.app.on_burst(PortId(port.into()), burst, Turn { now_ns });
        self.lane.settle(PortId(port.into())).expect("a simulated lane does not fail");
        let arrived = |port: &u8| {
            let arrived = self.world.collect(PortId((*port).into()));
            assert!(arrived.iter().all(|a| a.bytes == frame), "a bridge changes nothing");
            arrived.len() == 1
        };
        (0..4).filter(arrived).collect()
    }
}

#[test]
fn the_bridge_floods_learns_filters_and_forgets() {
    let mut bridge = Bridge::new();
    assert_eq!(bridge.send(0, 2, 1, 5, 0), [1, 2, 3], "unknown: everywhere but back");
    assert_eq!(bridge.send(2, 1, 2, 5, 10), [0], "learned");
    assert_eq!(bridge.send(0, 2, 1, 5, 20), [2]);
    assert_eq!(bridge.send(0, 2, 1, 6, 30), [1, 2, 3], "another VLAN knows no address");
    assert_eq!(bridge.send(2, 2, 9, 5, 40), [] as [u8; 0], "the station is on that side");
    assert_eq!(bridge.send(3, 2, 1, 5, 50), [2], "station 1 has moved to port 3");
    assert_eq!(bridge.send(2, 1, 2, 5, 60), [3]);
    assert_eq!(bridge.send(2, 0xff, 2, 5, 70), [0, 1, 3], "broadcast");
    assert_eq!(bridge.send(2, 1, 2, 5, 2000), [0, 1, 3], "forgotten after the age");
    let stats = bridge.app.stats();
    assert_eq!((stats.frames(Fate::NotForUs), stats.frames(Fate::Flooded)), (1, 4));
}

/// Lets another thread change the rules between its bursts, and counts them. Of so many bursts each
/// meets a generation of its own at the latest, or the machine might keep the other thread from its CPU
/// until all frames are through.
struct Watched<'a> {
    app: Forward,
    bursts: &'a AtomicU64,
    generations: &'a AtomicU64,
}

impl Watched<'_> {
    const BURSTS_PER_GENERATION: u64 = 100;
    /// Of a millisecond each, for one generation.
    const NAPS_MAX: usize = 30_000;

    /// What was handed over before has been taken, so the other thread does not wait for this one.
    fn await_generation(&self, generation: u64) {
        for _ in 0..Self::NAPS_MAX {
            if self.generations.load(Ordering::Relaxed) >= generation {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl App for Watched<'_> {
    fn counters(&self) -> &Counters {
        self.app.counters()
    }
}

impl FrameApp for Watched<'_> {
    fn on_burst(&mut self, port: PortId, burst: &mut Burst, turn: Turn) {
        self.await_generation(self.bursts.load(Ordering::Relaxed) / Self::BURSTS_PER_GENERATION);
        self.app.on_burst(port, burst, turn);
        self.bursts.fetch_add(1, Ordering::Relaxed);
        thread::yield_now();
    }

    fn fill(&mut self, port: PortId, burst: &mut Burst, turn: Turn) -> Fill {
        self.app.fill(port, burst, turn)
    }

    fn on_tick(&mut self, turn: Turn) {
        self.app.on_tick(turn);
    }
}

#[test]
fn rules_that_change_under_traffic_lose_nothing_and_no_frame_sees_half_a_set() {
    const FRAMES: usize = 20_000;
    let mut set = RuleSet::for_user(Config::default().bounds());
    // The generation stands in both addresses, written by two rules.
    let file = |generation: u8| {
        format!(
            "flow create 0 ingress pattern ipv4 / end actions \
             set_mac_src mac_addr 02:00:00:00:00:{generation:02x} / passthru / end\n\
             flow create 0 ingress pattern udp dst is 7 / end actions drop / end\n\
             flow create 0 ingress pattern udp dst is 53 / end actions \
             set_mac_dst mac_addr 02:00:00:00:00:{generation:02x} / count / end\n"
        )
    };
    set.load(&file(0)).expect("rules");
    set.commit();
    let (feed, done, bursts) =
        (set.feed().expect("a set of user space"), AtomicBool::new(false), AtomicU64::new(0));
    let generations = AtomicU64::new(0);
    let arrived = thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let (mut lane, world) = open("sim:queue=100000,frames=256,burst=8", 2);
            for (i, frame) in to_port(53, FRAMES).iter().enumerate() {
                world.inject_at(PortId(0), i as u64 * 100, frame);
            }
            let app = Forward::new(Config::default()).expect("it can run").with_rules(feed);
            let (bursts, generations) = (&bursts, &generations);
            run(&mut lane, &world, &mut Watched { app, bursts, generations });
            done.store(true, Ordering::Relaxed);
            world.collect(PortId(1)).into_iter().map(|a| a.bytes).collect::<Vec<_>>()
        });
        while !done.load(Ordering::Relaxed) {
            let next = generations.load(Ordering::Relaxed) + 1;
            set.load(&file(next as u8)).expect("rules");
            while set.commit() == Commit::Waiting && !done.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            generations.store(next, Ordering::Relaxed);
        }
        worker.join().expect("the worker does not panic")
    });
    let generations = generations.into_inner();
    assert!(generations > 10 && bursts.load(Ordering::Relaxed) > 100, "{generations} generations");
    assert_eq!(arrived.len(), FRAMES);
    let mut seen = HashSet::new();
    for (frame, sent) in arrived.iter().zip(to_port(53, FRAMES)) {
        assert_eq!(frame[..6], frame[6..12], "half of one set and half of another");
        assert_eq!(frame[12..], sent[12..], "order and bytes stay");
        seen.insert(frame[5]);
    }
    assert!(seen.len() > 10, "only {} of {generations} generations met frames", seen.len());
}
