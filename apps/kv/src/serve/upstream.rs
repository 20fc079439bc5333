//! The server in front of a cluster: which commands are done here, which there, and what becomes of the answers.
//!
//! Whether a value may be kept and read is decided by [`Cover`]; its module says why. A client has one command at the
//! cluster at a time, and is held until its answer is here: so its commands take effect and are answered in order.

use super::client::{Client, Kept, Key, Replies};
use super::server::Server;
use super::shards::slot_of;
use super::table::{Row, keys_of};
use crate::command::{Command, Flags, Run};
use crate::upstream::{Answer, Cover, Far, Report, Request, Way};
use laneway_resp::{Reply, Value, command};
use std::collections::HashMap;

/// What becomes of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// It concerns this server and no data.
    Here,
    /// It reads strings: from the store, where they may be read; one that is missing is fetched.
    Read,
    /// The node that has its keys does it.
    Through,
    /// It cannot be done for a client among many: it waits, remembers something of its connection, or concerns all
    /// keys.
    Refused,
}

/// What becomes of a row of the table of commands.
pub(super) fn manner(command: &Command) -> Manner {
    let is_of = |category| command.categories.contains(&category);
    let is_fetched = is_of("string") || is_of("bitmap");
    if is_of("pubsub") || is_of("transaction") || command.flags.has(Flags::BLOCKING) {
        return Manner::Refused;
    }
    match command.run {
        Run::Server => Manner::Here,
        Run::Data(_) if command.keys.first == 0 && command.keys.numkeys == 0 => Manner::Refused,
        Run::Data(_) if command.flags.has(Flags::READONLY) && is_fetched => Manner::Read,
        Run::Data(_) => Manner::Through,
    }
}

/// Why a command cannot be done in front of a cluster.
pub(super) fn why_not(row: &Row, args: &[&[u8]]) -> Result<(), String> {
    let command = &row.command;
    match manner(command) {
        Manner::Here => Ok(()),
        Manner::Refused => Err(format!(
            "ERR '{}' is not served in front of a cluster: ask a node of it",
            command.name
        )),
        Manner::Read | Manner::Through => one_slot(command, args).map(|_| ()),
    }
}

/// The slot of all keys of a command.
fn one_slot(command: &Command, args: &[&[u8]]) -> Result<u16, String> {
    let mut slots = keys_of(command.keys, args).into_iter().map(slot_of);
    // Without a key the node that is asked says what is wrong with that.
    let first = slots.next().unwrap_or_default();
    match slots.all(|slot| slot == first) {
        true => Ok(first),
        false => Err("CROSSSLOT Keys in request don't hash to the same slot".to_owned()),
    }
}

/// Bytes of commands on their way to the cluster; beyond it no more are taken.
const ASKED_BYTES_MAX: usize = 64 << 20;

/// A request whose answer is awaited.
#[derive(Debug)]
struct Waiter {
    client: (Key, u64),
    index: usize,
    slot: u16,
    bytes: usize,
    kind: Kind,
}

impl Waiter {
    fn new(client: &Client, index: usize, slot: u16, commands: &[Vec<u8>], kind: Kind) -> Waiter {
        let bytes = commands.iter().map(Vec::len).sum();
        Waiter { client: (client.key, client.id), index, slot, bytes, kind }
    }
}

#[derive(Debug)]
enum Kind {
    /// A read of one key that is fetched, and when that was asked for.
    Fill { call: Kept, asked_ms: u64 },
    /// The keys that are written; none of a read.
    Through { written: Vec<Box<[u8]>> },
}

/// Figures for INFO.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FrontCounts {
    /// Reads that were answered from the store.
    pub(crate) hits: u64,
    /// Reads whose key was fetched.
    pub(crate) fills: u64,
    /// Of them, those that were not stored.
    pub(crate) not_kept: u64,
    /// Commands that a node did.
    pub(crate) through: u64,
    /// Values that were taken out of the store for a report of the cluster's.
    pub(crate) invalidated: u64,
    /// Connections and slots that were lost with what they covered.
    pub(crate) lost: u64,
    /// Requests without an answer of a node.
    pub(crate) failed: u64,
}

/// The worker's part of the way to a cluster.
#[derive(Debug)]
pub(crate) struct Front {
    cover: Cover,
    far: Box<dyn Far>,
    waiters: HashMap<u64, Waiter>,
    /// What this turn asks.
    outbox: Vec<Request>,
    next_id: u64,
    asked_bytes: usize,
    counts: FrontCounts,
}

impl Front {
    pub(crate) fn new(far: Box<dyn Far>, bound_us: u64) -> Front {
        Front {
            cover: Cover::new(bound_us),
            far,
            waiters: HashMap::new(),
            outbox: Vec::new(),
            next_id: 0,
            asked_bytes: 0,
            counts: FrontCounts::default(),
        }
    }

    /// True while no further command is to be sent.
    pub(crate) fn is_full(&self) -> bool {
        self.asked_bytes >= ASKED_BYTES_MAX
    }

    /// The value of a key is in the store no longer.
    pub(crate) fn forget(&mut self, key: &[u8]) {
        self.cover.forget(slot_of(key), key);
    }

    /// Figures by their names in INFO.
    pub(crate) fn figures(&self) -> [(&'static str, u64); 9] {
        let FrontCounts { hits, fills, not_kept, through, invalidated, lost, failed } = self.counts;
        [
            ("upstream_hits", hits),
            ("upstream_fills", fills),
            ("upstream_fills_not_kept", not_kept),
            ("upstream_through", through),
            ("upstream_invalidated", invalidated),
            ("upstream_lost", lost),
            ("upstream_failed", failed),
            ("upstream_kept_keys", self.cover.kept() as u64),
            ("upstream_awaited", self.waiters.len() as u64),
        ]
    }

    fn ask(&mut self, client: &mut Client, waiter: Waiter, way: Way, commands: Vec<Vec<u8>>) {
        let id = self.next_id;
        self.next_id += 1;
        let is_write = matches!(&waiter.kind, Kind::Through { written } if !written.is_empty());
        self.asked_bytes += waiter.bytes;
        self.outbox.push(Request { id, slot: waiter.slot, way, is_write, commands });
        self.waiters.insert(id, waiter);
        client.awaited = Some(id);
    }
}

impl Server {
    /// Asks the cluster what a client's command says; false if the store here may do it.
    pub(crate) fn ask_cluster(
        &mut self,
        client: &mut Client,
        index: usize,
        args: &[&[u8]],
    ) -> bool {
        let row = self.table.command(index);
        let (keys, now_ms) = (keys_of(row.keys, args), self.time.now_ms());
        let Some(front) = &mut self.front else { return false };
        let slot = keys.first().map_or(0, |key| slot_of(key));
        if manner(&row) == Manner::Read {
            let now_us = front.far.now_us();
            let mut is_here = !keys.is_empty();
            for key in &keys {
                // At its deadline a value is the cluster's again: it may live there for some microseconds more.
                let ends_ms = self.store.deadline_ms(0, key);
                let lives = ends_ms.is_some_and(|at| at.is_none_or(|at_ms| at_ms > now_ms));
                is_here &= lives && front.cover.may_read(slot, key, now_us);
            }
            if is_here {
                front.counts.hits += 1;
                return false;
            }
            if row.keys.last == 1 {
                front.counts.fills += 1;
                front.cover.begin_fill(slot, keys[0], front.next_id);
                let (mut value, mut ends) = (Vec::new(), Vec::new());
                command(&[b"GET", keys[0]], &mut value);
                command(&[b"PTTL", keys[0]], &mut ends);
                let commands = vec![value, ends];
                let kind = Kind::Fill { call: Kept::new(index, args), asked_ms: now_ms };
                let waiter = Waiter::new(client, index, slot, &commands, kind);
                front.ask(client, waiter, Way::Fill, commands);
                return true;
            }
        }
        self.pass_through(client, index, args);
        true
    }

    /// Has the node of a command's keys do it.
    fn pass_through(&mut self, client: &mut Client, index: usize, args: &[&[u8]]) {
        let row = self.table.command(index);
        let keys = keys_of(row.keys, args);
        let Some(front) = &mut self.front else { return };
        let slot = keys.first().map_or(0, |key| slot_of(key));
        front.counts.through += 1;
        let mut written: Vec<Box<[u8]>> = Vec::new();
        let mut spoiled = Vec::new();
        if row.flags.has(Flags::WRITE) {
            for key in keys {
                if front.cover.begin_write(slot, key) {
                    spoiled.push(Box::from(key));
                }
                written.push(key.into());
            }
        }
        let mut bytes = Vec::new();
        command(args, &mut bytes);
        let commands = vec![bytes];
        let way = Way::Through(client.out.protocol());
        let waiter = Waiter::new(client, index, slot, &commands, Kind::Through { written });
        front.ask(client, waiter, way, commands);
        self.drop_values(&spoiled);
    }

    /// Takes values out of the store.
    fn drop_values(&mut self, keys: &[Box<[u8]>]) {
        for key in keys {
            self.apply_here(&[b"del", key]);
        }
    }

    /// Has the store do a command that no client asked for; false if it does not take it.
    fn apply_here(&mut self, args: &[&[u8]]) -> bool {
        let row = self.table.index_of(args[0]).map(|index| self.table.command(index).run);
        let Some(Run::Data(run)) = row else { return false };
        let mut reply = Reply::default();
        self.restore(run, 0, args, &mut reply);
        reply.bytes().first() != Some(&b'-')
    }

    /// Hands over what this turn asks.
    pub(crate) fn send_to_cluster(&mut self) {
        if let Some(front) = self.front.as_mut().filter(|front| !front.outbox.is_empty()) {
            front.far.ask(front.outbox.drain(..));
        }
    }

    /// Hears what the cluster has to say, in its order.
    pub(crate) fn read_cluster(&mut self) {
        let was_full = self.front.as_ref().is_some_and(|front| front.is_full());
        while let Some(report) = self.front.as_mut().and_then(|front| front.far.report()) {
            self.hear(report);
        }
        if was_full && self.front.as_ref().is_some_and(|front| !front.is_full()) {
            self.try_postponed();
        }
    }

    fn hear(&mut self, report: Report) {
        let Some(front) = &mut self.front else { return };
        let gone = front.cover.apply(&report, slot_of);
        front.counts.invalidated += gone.len() as u64;
        front.counts.lost +=
            u64::from(matches!(report, Report::Lost { .. } | Report::Owner { .. }));
        let mut ended = None;
        if let Report::Answer { id, answer } = report {
            front.counts.failed += u64::from(matches!(answer, Answer::Failed(_)));
            ended = front.waiters.remove(&id).map(|waiter| (id, waiter, answer));
        }
        self.drop_values(&gone);
        if let Some((id, waiter, answer)) = ended {
            self.answered_by_cluster(id, waiter, answer);
        }
    }

    fn answered_by_cluster(&mut self, id: u64, waiter: Waiter, answer: Answer) {
        let Some(front) = &mut self.front else { return };
        let Waiter { client: (key, number), index, slot, bytes, kind } = waiter;
        front.asked_bytes -= bytes;
        if let Kind::Through { written } = &kind {
            written.iter().for_each(|key| front.cover.end_write(key));
        }
        // One that is gone left its place to another, perhaps; its command was done all the same.
        let is_his = |one: &Client| one.id == number && one.awaited == Some(id);
        let waits = self.clients.get(key).is_some_and(is_his);
        let mut client = if waits { self.clients.take(key) } else { None };
        let from = client.as_ref().map_or(0, |client| client.out.len());
        if let Some(client) = &mut client {
            client.awaited = None;
        }
        match (kind, answer) {
            (Kind::Fill { call, asked_ms }, Answer::Filled { value, left_ms, is_covered }) => {
                self.fill(
                    id,
                    slot,
                    &call,
                    asked_ms,
                    value,
                    left_ms,
                    is_covered,
                    client.as_deref_mut(),
                );
            }
            (Kind::Fill { call, .. }, answer) => {
                if let Some(front) = &mut self.front {
                    front.cover.end_fill(&call.args[1], id);
                }
                reply(client.as_deref_mut(), answer);
            }
            (Kind::Through { .. }, answer) => reply(client.as_deref_mut(), answer),
        }
        let Some(mut client) = client else { return };
        if client.out.bytes().get(from) == Some(&b'-') {
            self.table.row(index).failed += 1;
            self.count_error(&client, from);
        }
        if matches!(client.replies, Replies::Off | Replies::Skip) {
            client.out.truncate(from);
        }
        self.note_taken(&mut client);
        self.clients.put_back(client);
    }

    /// A fetched value is here: the client's command is done on it, and it stays if it may.
    #[expect(clippy::too_many_arguments, reason = "the parts of one answer")]
    fn fill(
        &mut self,
        id: u64,
        slot: u16,
        call: &Kept,
        asked_ms: u64,
        value: Value,
        left_ms: i64,
        is_covered: bool,
        client: Option<&mut Client>,
    ) {
        let key = call.args[1].clone();
        let Some(front) = &mut self.front else { return };
        let has_ticket = front.cover.end_fill(&key, id);
        front.cover.forget(slot, &key);
        self.apply_here(&[b"del", &key]);
        let is_there = matches!(value, Value::Bulk(_));
        if let Value::Bulk(bytes) = &value {
            let ends = u64::try_from(left_ms).ok().map(|left_ms| asked_ms.saturating_add(left_ms));
            let at = ends.unwrap_or_default().clamp(1, i64::MAX as u64).to_string();
            let args: [&[u8]; 5] = [b"set", &key, bytes, b"pxat", at.as_bytes()];
            if !self.apply_here(if ends.is_some() { &args } else { &args[..3] }) {
                // It is longer than any here: the node does the command itself.
                if let Some(client) = client {
                    self.pass_through(client, call.index, &call.args());
                }
                return;
            }
        }
        if let (Some(client), Run::Data(run)) = (client, self.table.command(call.index).run) {
            // The value was there when the node was asked, so its deadline has not passed for this reader.
            let now_us = std::mem::replace(&mut self.time.now_us, asked_ms * 1000);
            self.call_data(run, client, call.index, &call.args());
            self.time.now_us = now_us;
        }
        let Some(front) = &mut self.front else { return };
        // -2: it went between the two commands.
        if has_ticket && is_covered && is_there && left_ms != -2 {
            front.cover.keep(slot, &key);
            if !self.is_out_of_memory() {
                return;
            }
        }
        let Some(front) = &mut self.front else { return };
        front.counts.not_kept += u64::from(is_there);
        front.cover.forget(slot, &key);
        self.apply_here(&[b"del", &key]);
    }
}

/// Gives a client the node's reply, or the error that stands for one.
fn reply(client: Option<&mut Client>, answer: Answer) {
    let Some(client) = client else { return };
    match answer {
        Answer::Raw(bytes) => client.out.raw(&bytes),
        Answer::Failed(text) => client.out.error(&text),
        Answer::Filled { .. } => client.out.error("ERR a value is the answer to no such command"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::COMMANDS;
    use crate::serve::table::Table;

    #[test]
    fn every_command_has_its_manner() {
        let table = Table::new(COMMANDS);
        let of = |name: &str| {
            let index = table.index_of(name.as_bytes()).unwrap_or_else(|| panic!("no `{name}`"));
            manner(&table.command(index))
        };
        for name in ["ping", "info", "config|set", "auth", "client|list", "acl|setuser", "shutdown"]
        {
            assert_eq!(of(name), Manner::Here, "{name}");
        }
        for name in ["get", "strlen", "getrange", "mget", "bitcount", "getbit"] {
            assert_eq!(of(name), Manner::Read, "{name}");
        }
        for name in
            ["set", "del", "hset", "hget", "getex", "getdel", "exists", "ttl", "zadd", "mset"]
        {
            assert_eq!(of(name), Manner::Through, "{name}");
        }
        for name in ["multi", "watch", "blpop", "subscribe", "publish", "keys", "scan", "flushall"]
        {
            assert_eq!(of(name), Manner::Refused, "{name}");
        }
        // What is done here touches no data, and what is done there says by its keys where.
        for row in table.rows() {
            let command = &row.command;
            let has_keys = command.keys.first > 0 || command.keys.numkeys > 0;
            match manner(command) {
                Manner::Here => assert!(matches!(command.run, Run::Server), "{}", command.name),
                Manner::Read => assert!(!command.flags.has(Flags::WRITE), "{}", command.name),
                Manner::Through => assert!(has_keys, "{}", command.name),
                Manner::Refused => {}
            }
        }
    }
}
