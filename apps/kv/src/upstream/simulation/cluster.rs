//! A cluster of the simulation: what nodes answer, which clients they tell of changes, how slots move and owners
//! change.

use laneway_resp::{Limits, Parser, Protocol, Reply};
use std::collections::{BTreeMap, BTreeSet};

/// A connection to a node: the node, the link, and the how-manieth of it.
pub(super) type Wire = (u16, usize, u64);

pub(super) const NODES: u16 = 4;
/// The slots of the keys, and one more that no key has, are those that move.
pub(super) const FIRST_PORT: u16 = 7000;

#[derive(Debug, Default)]
pub(super) struct ModelNode {
    values: BTreeMap<Vec<u8>, u64>,
    /// The connections that have read a key since it changed last.
    tracked: BTreeMap<Vec<u8>, BTreeSet<Wire>>,
    pub(super) is_dead: bool,
}

/// A connection at the node's end.
#[derive(Default)]
pub(super) struct NodeEnd {
    parser: Parser,
    is_tracking: bool,
    is_asking: bool,
}

/// All nodes; a key is at one of them.
pub(super) struct Cluster {
    pub(super) nodes: Vec<ModelNode>,
    /// By key's slot; slots without a key belong to node 0.
    pub(super) owners: BTreeMap<u16, u16>,
    /// A slot that moves, and where to.
    pub(super) moving: Option<(u16, u16)>,
    pub(super) slot_of: fn(&[u8]) -> u16,
    /// Each key's versions, with the time of each.
    pub(super) history: BTreeMap<Vec<u8>, Vec<(u64, u64)>>,
    /// Invalidations to be sent, in their order.
    pub(super) pushed: Vec<(Wire, Vec<u8>)>,
    pub(super) now_us: u64,
}

impl Cluster {
    pub(super) fn new(keys: &[Vec<u8>], slot_of: fn(&[u8]) -> u16) -> Cluster {
        let owner = |(n, key): (u16, &Vec<u8>)| (slot_of(key), n % (NODES - 1));
        Cluster {
            nodes: (0..NODES).map(|_| ModelNode::default()).collect(),
            owners: (0u16..).zip(keys).map(owner).collect(),
            moving: None,
            slot_of,
            history: BTreeMap::new(),
            pushed: Vec::new(),
            now_us: 0,
        }
    }

    pub(super) fn owner(&self, slot: u16) -> u16 {
        // The rest are divided, so that every node has one.
        self.owners.get(&slot).copied().unwrap_or(slot / (16_384 / NODES) % NODES)
    }

    fn touch(&mut self, node: u16, key: &[u8], version: Option<u64>) {
        let of = &mut self.nodes[usize::from(node)];
        match version {
            Some(version) => of.values.insert(key.to_vec(), version),
            None => of.values.remove(key),
        };
        for wire in of.tracked.remove(key).unwrap_or_default() {
            let mut reply = Reply::new(Protocol::Resp3);
            reply.raw(b">2\r\n$10\r\ninvalidate\r\n*1\r\n");
            reply.bulk(key);
            self.pushed.push((wire, reply.bytes().to_vec()));
        }
    }

    /// A write by another client, or by a connection of ours, that node's data take.
    pub(super) fn write(&mut self, node: u16, key: &[u8], version: u64) {
        self.history.entry(key.to_vec()).or_default().push((version, self.now_us));
        self.touch(node, key, Some(version));
    }

    /// Where a key is now.
    pub(super) fn place_of(&self, key: &[u8]) -> u16 {
        let slot = (self.slot_of)(key);
        let owner = self.owner(slot);
        let is_there = self.nodes[usize::from(owner)].values.contains_key(key);
        match self.moving {
            Some((moving, to)) if moving == slot && !is_there => to,
            _ => owner,
        }
    }

    /// One key of the slot that moves goes; when there is none left the slot has another owner.
    pub(super) fn move_on(&mut self) {
        let Some((slot, to)) = self.moving else { return };
        let from = self.owner(slot);
        let of = &self.nodes[usize::from(from)].values;
        let key = of.keys().find(|key| (self.slot_of)(key) == slot).cloned();
        match key {
            Some(key) => {
                let version = self.nodes[usize::from(from)].values.get(&key).copied();
                self.touch(to, &key, version);
                self.touch(from, &key, None);
            }
            None => {
                self.owners.insert(slot, to);
                self.moving = None;
            }
        }
    }

    /// A node dies; its replica has all that it had, and becomes the owner.
    pub(super) fn fail_over(&mut self, dead: u16, heir: u16) {
        // A move that stopped half way would leave its key where no client looks; that is for operators to mend.
        while self.moving.is_some() {
            self.move_on();
        }
        let values = std::mem::take(&mut self.nodes[usize::from(dead)].values);
        self.nodes[usize::from(dead)].tracked.clear();
        self.nodes[usize::from(dead)].is_dead = true;
        for (key, version) in values {
            self.touch(heir, &key, Some(version));
        }
        for owner in self.owners.values_mut().filter(|owner| **owner == dead) {
            *owner = heir;
        }
    }

    /// A connection is gone: its node tells it nothing more.
    pub(super) fn forget(&mut self, wire: Wire) {
        for wires in self.nodes[usize::from(wire.0)].tracked.values_mut() {
            wires.remove(&wire);
        }
    }

    /// What a node answers to bytes of a connection.
    pub(super) fn receive(&mut self, wire: Wire, end: &mut NodeEnd, bytes: &[u8]) -> Vec<u8> {
        let mut parser = std::mem::take(&mut end.parser);
        let mut reply = Reply::new(Protocol::Resp3);
        let (mut at, limits) = (0, Limits::default());
        loop {
            let step = parser.next(&bytes[at..], &limits).expect("the pilot sends commands");
            at += step.consumed;
            let Some(args) = step.command else { break };
            let args: Vec<&[u8]> = args.iter().collect();
            self.command(wire, end, &args, &mut reply);
        }
        end.parser = parser;
        reply.bytes().to_vec()
    }

    fn command(&mut self, wire: Wire, end: &mut NodeEnd, args: &[&[u8]], reply: &mut Reply) {
        let is_asking = std::mem::take(&mut end.is_asking);
        match args {
            [b"HELLO", ..] => reply.ok(),
            [b"CLIENT", b"TRACKING", b"ON"] => {
                end.is_tracking = true;
                reply.ok();
            }
            [b"ASKING"] => {
                end.is_asking = true;
                reply.ok();
            }
            [b"CLUSTER", b"SLOTS"] => self.slots(reply),
            [name, key, rest @ ..] => self.keyed(wire, end, is_asking, (name, key, rest), reply),
            _ => reply.error("ERR unknown command"),
        }
    }

    fn keyed(
        &mut self,
        wire: Wire,
        end: &NodeEnd,
        is_asking: bool,
        (name, key, rest): (&[u8], &[u8], &[&[u8]]),
        reply: &mut Reply,
    ) {
        let (node, slot) = (wire.0, (self.slot_of)(key));
        let owner = self.owner(slot);
        let is_there = self.nodes[usize::from(node)].values.contains_key(key);
        let at = |node: u16| format!("127.0.0.1:{}", FIRST_PORT + node);
        match self.moving {
            Some((moving, to)) if moving == slot && node == owner && !is_there => {
                return reply.error(&format!("ASK {slot} {}", at(to)));
            }
            Some((moving, to)) if moving == slot && node == to && is_asking => {}
            _ if node == owner => {}
            _ => return reply.error(&format!("MOVED {slot} {}", at(owner))),
        }
        let value = self.nodes[usize::from(node)].values.get(key).copied();
        if end.is_tracking && name != b"SET" {
            let of = &mut self.nodes[usize::from(node)];
            of.tracked.entry(key.to_vec()).or_default().insert(wire);
        }
        match (name, rest) {
            (b"GET", _) => match value {
                Some(version) => reply.bulk(version.to_string().as_bytes()),
                None => reply.null(),
            },
            (b"PTTL", _) => reply.integer(if value.is_some() { -1 } else { -2 }),
            (b"EXISTS", _) => reply.integer(value.is_some().into()),
            (b"SET", [version]) => {
                let version = laneway_resp::integer(version).expect("a version");
                self.write(node, key, version as u64);
                reply.ok();
            }
            _ => reply.error("ERR unknown command"),
        }
    }

    fn slots(&self, reply: &mut Reply) {
        let mut ranges: Vec<(u16, u16, u16)> = Vec::new();
        for slot in 0..16_384 {
            let owner = self.owner(slot);
            match ranges.last_mut() {
                Some((_, last, of)) if *of == owner => *last = slot,
                _ => ranges.push((slot, slot, owner)),
            }
        }
        reply.array(ranges.len());
        for (first, last, owner) in ranges {
            reply.array(3);
            reply.integer(first.into());
            reply.integer(last.into());
            reply.array(2);
            reply.bulk(b"127.0.0.1");
            reply.integer((FIRST_PORT + owner).into());
        }
    }
}
