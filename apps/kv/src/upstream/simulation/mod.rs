//! The rules of [`super`] on trial: the whole server, the pilot, and a cluster, with every way between them delayed by
//! chance.
//!
//! ```text
//!   clients ─▶ Kv ─ requests ─▶ Pilot ─ bytes ─▶ nodes ◀─ others' writes, slots that move, owners that die
//!               ◀─ reports ──        ◀─ bytes ─
//! ```
//!
//! No socket, no thread and no clock: each message gets a delay, and none overtakes another on the same way. Ways go
//! silent for a while, and connections are reset with all that is on them. A key's value is its version. Each read is
//! held against what the cluster has done: it shows no version older than one whose write through us was answered
//! before the read began, none older than what was there for longer than the bound, and none older than an earlier GET
//! has shown.

#![expect(clippy::print_stdout, reason = "the seed of a failure")]

mod cluster;

use super::map::UpstreamSettings;
use super::pilot::{Action, LinkId, Pilot};
use super::{Far, Report, Request};
use crate::serve::{World, slot_of};
use cluster::{Cluster, FIRST_PORT, NODES, NodeEnd, Wire};
use laneway_core::ConnId;
use laneway_random::Random;
use laneway_resp::{ValueLimits, Values};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

const BOUND_US: u64 = 40_000;
const STEP_US: u64 = 100;

/// Mostly short, sometimes long.
fn delay_us(chance: &mut Random) -> u64 {
    let most = if chance.below(10) == 0 { 8000 } else { 600 };
    chance.below(most)
}

/// Messages on one way: none overtakes another.
struct Way<T> {
    messages: VecDeque<(u64, T)>,
}

impl<T> Default for Way<T> {
    fn default() -> Way<T> {
        Way { messages: VecDeque::new() }
    }
}

impl<T> Way<T> {
    fn send(&mut self, at_us: u64, message: T) {
        let before = self.messages.back().map_or(0, |(at_us, _)| *at_us);
        self.messages.push_back((at_us.max(before), message));
    }

    fn arrive(&mut self, now_us: u64) -> Option<T> {
        self.messages.pop_front_if(|(at_us, _)| *at_us <= now_us).map(|(_, message)| message)
    }
}

/// The queues between worker and thread.
#[derive(Default)]
struct Queues {
    now_us: u64,
    asked: Vec<Request>,
    reports: Way<Report>,
}

struct SimFar(Rc<RefCell<Queues>>);

impl std::fmt::Debug for SimFar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SimFar")
    }
}

impl Far for SimFar {
    fn now_us(&self) -> u64 {
        self.0.borrow().now_us
    }

    fn ask(&mut self, requests: std::vec::Drain<'_, Request>) {
        self.0.borrow_mut().asked.extend(requests);
    }

    fn report(&mut self) -> Option<Report> {
        let mut queues = self.0.borrow_mut();
        let now_us = queues.now_us;
        queues.reports.arrive(now_us)
    }
}

/// A connection, both ways.
struct Cable {
    wire: Wire,
    opens_us: u64,
    is_open: bool,
    end: NodeEnd,
    there: Way<Vec<u8>>,
    back: Way<Vec<u8>>,
    values: Values,
    raw: Vec<u8>,
    /// Nothing arrives before that.
    silent_us: u64,
}

enum Doing {
    Get(usize),
    Set(usize, u64),
}

/// When a command was asked, what it is, and the least place in the history that its answer may show.
type Asked = (u64, Doing, usize);

struct Sim {
    chance: Random,
    now_us: u64,
    world: World,
    queues: Rc<RefCell<Queues>>,
    to_pilot: Way<Request>,
    pilot: Pilot,
    cluster: Cluster,
    cables: BTreeMap<LinkId, Cable>,
    next_wire: u64,
    keys: Vec<Vec<u8>>,
    clients: Vec<(ConnId, Option<Asked>)>,
    next_version: u64,
    /// By key: the place in its history up to which a write through us was answered, and a GET has shown.
    answered: Vec<usize>,
    shown: Vec<usize>,
    reads: u64,
    writes: u64,
    /// Nothing is disturbed, and nothing new asked.
    is_calm: bool,
}

impl Sim {
    fn new(seed: u64) -> Sim {
        let keys: Vec<Vec<u8>> = (0..6).map(|n| format!("key{n}").into_bytes()).collect();
        let seeds = vec![format!("127.0.0.1:{FIRST_PORT}").parse().expect("an address")];
        let (bound_us, patience_us) = (BOUND_US, 200_000);
        let settings = UpstreamSettings { seeds, login: None, bound_us, patience_us };
        let queues = Rc::new(RefCell::new(Queues::default()));
        let mut world = World::new();
        world.kv.join_cluster(Box::new(SimFar(queues.clone())), BOUND_US);
        let clients = (0..5).map(|_| (world.open(), None)).collect();
        Sim {
            chance: Random::seeded(seed),
            now_us: 0,
            world,
            queues,
            to_pilot: Way::default(),
            pilot: Pilot::new(settings, slot_of),
            cluster: Cluster::new(&keys, slot_of),
            cables: BTreeMap::new(),
            next_wire: 0,
            clients,
            next_version: 0,
            answered: vec![0; keys.len()],
            shown: vec![0; keys.len()],
            keys,
            reads: 0,
            writes: 0,
            is_calm: false,
        }
    }

    fn step(&mut self) {
        self.now_us += STEP_US;
        self.cluster.now_us = self.now_us;
        self.queues.borrow_mut().now_us = self.now_us;
        if !self.is_calm {
            self.disturb();
        }
        self.deliver();
        self.pilot.tick(self.now_us);
        self.act();
        let asked = std::mem::take(&mut self.queues.borrow_mut().asked);
        for request in asked {
            let at_us = self.now_us + delay_us(&mut self.chance) / 4;
            self.to_pilot.send(at_us, request);
        }
        while let Some(request) = self.to_pilot.arrive(self.now_us) {
            self.pilot.ask(request);
        }
        self.act();
        // The worker is not called at once: it is busy, or its thread does not run.
        for report in std::mem::take(&mut self.pilot.reports) {
            let at_us = self.now_us + delay_us(&mut self.chance) / 4;
            self.queues.borrow_mut().reports.send(at_us, report);
        }
        self.world.now_us.set(crate::serve::START_US + self.now_us);
        self.world.pass_ms(0);
        self.clients();
    }

    /// Others write, slots move, owners die, connections are reset or go silent.
    fn disturb(&mut self) {
        if self.chance.below(15) == 0 {
            let key = self.keys[self.chance.below(6) as usize].clone();
            let node = self.cluster.place_of(&key);
            self.next_version += 1;
            self.cluster.write(node, &key, self.next_version);
        }
        if self.chance.below(20) == 0 {
            self.cluster.move_on();
        }
        if self.cluster.moving.is_none() && self.chance.below(400) == 0 {
            let slot = slot_of(&self.keys[self.chance.below(6) as usize]);
            let to = self.chance.below(NODES.into()) as u16;
            if to != self.cluster.owner(slot) && !self.cluster.nodes[usize::from(to)].is_dead {
                self.cluster.moving = Some((slot, to));
            }
        }
        if self.chance.below(3000) == 0 {
            let dead = self.chance.below(NODES.into()) as u16;
            let heir = (dead + 1) % NODES;
            if self.cluster.nodes.iter().all(|node| !node.is_dead) {
                self.cluster.fail_over(dead, heir);
                let ids: Vec<LinkId> = self.cables.keys().copied().collect();
                ids.into_iter().filter(|id| id.0 == dead).for_each(|id| self.reset(id));
            } else {
                self.cluster.nodes.iter_mut().for_each(|node| node.is_dead = false);
            }
        }
        let ids: Vec<LinkId> = self.cables.keys().copied().collect();
        for id in ids {
            match self.chance.below(4000) {
                0 => self.reset(id),
                1 => {
                    let silence_us = self.chance.below(3 * BOUND_US);
                    let until_us = self.now_us + silence_us;
                    if let Some(cable) = self.cables.get_mut(&id) {
                        cable.silent_us = until_us;
                    }
                }
                _ => {}
            }
        }
    }

    fn reset(&mut self, id: LinkId) {
        if let Some(cable) = self.cables.remove(&id) {
            self.cluster.forget(cable.wire);
            self.pilot.lost(id, b"reset");
        }
    }

    fn deliver(&mut self) {
        let ids: Vec<LinkId> = self.cables.keys().copied().collect();
        for id in ids {
            let Some(mut cable) = self.cables.remove(&id) else { continue };
            let is_dead = self.cluster.nodes[usize::from(cable.wire.0)].is_dead;
            if !cable.is_open && cable.opens_us <= self.now_us {
                if is_dead {
                    self.pilot.lost(id, b"refused");
                    continue;
                }
                cable.is_open = true;
                self.pilot.connected(id);
            }
            if cable.silent_us <= self.now_us {
                while let Some(bytes) = cable.there.arrive(self.now_us) {
                    let reply = self.cluster.receive(cable.wire, &mut cable.end, &bytes);
                    let at_us = self.now_us + delay_us(&mut self.chance);
                    // What it has changed for this connection itself is reported behind the reply.
                    cable.back.send(at_us, reply);
                    self.push(Some(&mut cable));
                }
                while let Some(bytes) = cable.back.arrive(self.now_us) {
                    self.hear(id, &mut cable, &bytes);
                }
            }
            if !self.pilot.actions.iter().any(|one| matches!(one, Action::Close(of) if *of == id)) {
                self.cables.insert(id, cable);
            } else {
                self.cluster.forget(cable.wire);
            }
        }
        self.push(None);
    }

    /// Invalidations go on their ways.
    fn push(&mut self, mut own: Option<&mut Cable>) {
        for (wire, bytes) in std::mem::take(&mut self.cluster.pushed) {
            let at_us = self.now_us + delay_us(&mut self.chance);
            match &mut own {
                Some(cable) if cable.wire == wire => cable.back.send(at_us, bytes),
                _ => {
                    let cable = self.cables.values_mut().find(|cable| cable.wire == wire);
                    if let Some(cable) = cable {
                        cable.back.send(at_us, bytes);
                    }
                }
            }
        }
    }

    fn hear(&mut self, id: LinkId, cable: &mut Cable, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            let read = cable.values.next(&bytes[at..], &ValueLimits::default());
            let (taken, value) = read.expect("nodes answer in RESP");
            cable.raw.extend_from_slice(&bytes[at..at + taken]);
            at += taken;
            if let Some(value) = value {
                let raw = std::mem::take(&mut cable.raw);
                self.pilot.received(id, value, &raw);
            }
        }
    }

    fn act(&mut self) {
        while !self.pilot.actions.is_empty() {
            for action in std::mem::take(&mut self.pilot.actions) {
                match action {
                    Action::Connect(id, address) => {
                        self.next_wire += 1;
                        let wire = (address.port - FIRST_PORT, id.1, self.next_wire);
                        let opens_us = self.now_us + delay_us(&mut self.chance);
                        let cable = Cable {
                            wire,
                            opens_us,
                            is_open: false,
                            end: NodeEnd::default(),
                            there: Way::default(),
                            back: Way::default(),
                            values: Values::new(),
                            raw: Vec::new(),
                            silent_us: 0,
                        };
                        self.cables.insert(id, cable);
                    }
                    Action::Send(id, bytes) => {
                        let at_us = self.now_us + delay_us(&mut self.chance);
                        if let Some(cable) = self.cables.get_mut(&id) {
                            cable.there.send(at_us, bytes);
                        }
                    }
                    Action::Close(id) => {
                        if let Some(cable) = self.cables.remove(&id) {
                            self.cluster.forget(cable.wire);
                        }
                    }
                }
            }
        }
    }

    fn clients(&mut self) {
        for at in 0..self.clients.len() {
            let (conn, doing) = &mut self.clients[at];
            let conn = *conn;
            if let Some((began_us, what, least)) = doing.take() {
                let reply = self.world.received(conn);
                if reply.is_empty() {
                    self.clients[at].1 = Some((began_us, what, least));
                    continue;
                }
                self.check(began_us, &what, least, &reply);
            } else if !self.is_calm && self.chance.below(6) == 0 {
                self.begin(at, conn);
            }
        }
    }

    fn begin(&mut self, at: usize, conn: ConnId) {
        let key = self.chance.below(6) as usize;
        let name = String::from_utf8_lossy(&self.keys[key]).into_owned();
        let (line, what) = if self.chance.below(5) == 0 {
            self.next_version += 1;
            let version = self.next_version;
            (format!("SET {name} {version}"), Doing::Set(key, version))
        } else {
            (format!("GET {name}"), Doing::Get(key))
        };
        let history = self.cluster.history.get(&self.keys[key]).map_or(&[][..], Vec::as_slice);
        let settled = history.iter().filter(|(_, at_us)| at_us + BOUND_US + STEP_US < self.now_us);
        let least = settled.count().max(self.answered[key]).max(self.shown[key]);
        let reply = self.world.ask(conn, &line);
        if reply.is_empty() {
            self.clients[at].1 = Some((self.now_us, what, least));
        } else {
            self.check(self.now_us, &what, least, &reply);
        }
    }

    fn check(&mut self, began_us: u64, what: &Doing, least: usize, reply: &str) {
        let (now_us, key) = (
            self.now_us,
            match what {
                Doing::Get(key) | Doing::Set(key, _) => *key,
            },
        );
        let empty = Vec::new();
        let history = self.cluster.history.get(&self.keys[key]).unwrap_or(&empty);
        let place = |version: u64| history.iter().position(|(of, _)| *of == version);
        let at = format!("key{key}, asked at {began_us} us, answered at {now_us} us: {reply:?}");
        if reply.starts_with('-') {
            let is_known = ["IOERR", "CLUSTERDOWN"].iter().any(|code| reply[1..].starts_with(code));
            assert!(is_known, "{at}");
            return;
        }
        match what {
            Doing::Set(_, version) => {
                let place =
                    place(*version).unwrap_or_else(|| panic!("answered and not done: {at}"));
                self.answered[key] = self.answered[key].max(place + 1);
                self.writes += 1;
            }
            Doing::Get(_) => {
                let text = reply.lines().nth(1);
                let version = text.map(|text| text.parse().expect("a version"));
                let shown =
                    version.map_or(0, |version| place(version).expect("it was written") + 1);
                assert!(
                    shown >= least,
                    "version {shown} of its history, at least {least} is due; {at}"
                );
                self.shown[key] = self.shown[key].max(shown);
                self.reads += 1;
            }
        }
    }
}

fn figure(world: &mut World, conn: ConnId, name: &str) -> u64 {
    let info = world.ask(conn, "INFO stats");
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name} in {info}")).trim().parse().expect("a number")
}

/// What the rounds of a trial were.
#[derive(Debug, Default)]
struct Met {
    reads: u64,
    hits: u64,
    writes: u64,
    dropped: u64,
}

impl Met {
    fn round(&mut self, seed: u64) {
        let mut sim = Sim::new(seed);
        (0..15_000).for_each(|_| sim.step());
        // In peace, everything that was asked is answered.
        sim.is_calm = true;
        (0..8_000).for_each(|_| sim.step());
        assert!(sim.clients.iter().all(|(_, doing)| doing.is_none()), "one waits for ever");
        let conn = sim.world.open();
        self.reads += sim.reads;
        self.writes += sim.writes;
        self.hits += figure(&mut sim.world, conn, "upstream_hits");
        self.dropped += figure(&mut sim.world, conn, "upstream_fills_not_kept");
    }
}

#[test]
fn no_read_is_older_than_what_was_promised_however_messages_fall() {
    let seed = laneway_testkit::soak::seed();
    println!("LANEWAY_SOAK_SEED={seed}");
    let mut met = Met::default();
    (0..12).for_each(|round| met.round(seed.wrapping_add(round)));
    println!("{met:?}");
    let Met { reads, hits, writes, dropped } = met;
    assert!(hits * 4 > reads && dropped > 100 && writes > 1000, "it met what it is for");
}

/// `make soak APP=kv-cluster`.
#[test]
#[ignore = "runs until it is stopped"]
fn soak_in_front() {
    let (seed, began) = (laneway_testkit::soak::seed(), std::time::Instant::now());
    println!("LANEWAY_SOAK_SEED={seed}");
    let (mut met, mut round) = (Met::default(), 0);
    while began.elapsed().as_secs() < laneway_testkit::soak::seconds() {
        met.round(seed.wrapping_add(round));
        round += 1;
    }
    println!("{round} rounds: {met:?}");
}
