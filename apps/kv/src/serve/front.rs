//! The way to a cluster: which commands go there, and which answers are awaited. [`upstream`](super::upstream) is what
//! the server does with it.

use super::client::{Client, Kept};
use super::key::Key;
use super::shards::{one_slot, slot_of};
use super::table::Row;
use crate::command::{Command, Flags, Run};
use crate::upstream::{Cover, Far, Request, Way};
use std::collections::HashMap;

/// What becomes of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
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
pub(crate) fn manner(command: &Command) -> Manner {
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
pub(crate) fn why_not(row: &Row, args: &[&[u8]]) -> Result<(), String> {
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

/// Bytes of commands on their way to the cluster; beyond it no more are sent.
const ASKED_BYTES_MAX: usize = 64 << 20;

/// A request whose answer is awaited.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) client: (Key, u64),
    pub(super) index: usize,
    pub(super) slot: u16,
    pub(super) bytes: usize,
    pub(super) kind: Kind,
}

impl Waiter {
    pub(crate) fn new(
        client: &Client,
        index: usize,
        slot: u16,
        commands: &[Vec<u8>],
        kind: Kind,
    ) -> Waiter {
        let bytes = commands.iter().map(Vec::len).sum();
        Waiter { client: (client.key, client.id), index, slot, bytes, kind }
    }
}

#[derive(Debug)]
pub(super) enum Kind {
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
    pub(super) cover: Cover,
    pub(super) far: Box<dyn Far>,
    pub(super) waiters: HashMap<u64, Waiter>,
    /// What this turn asks.
    pub(super) outbox: Vec<Request>,
    pub(super) next_id: u64,
    pub(super) asked_bytes: usize,
    pub(super) counts: FrontCounts,
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

    pub(crate) fn ask(
        &mut self,
        client: &mut Client,
        waiter: Waiter,
        way: Way,
        commands: Vec<Vec<u8>>,
    ) {
        let id = self.next_id;
        self.next_id += 1;
        let is_write = matches!(&waiter.kind, Kind::Through { written } if !written.is_empty());
        self.asked_bytes += waiter.bytes;
        self.outbox.push(Request { id, slot: waiter.slot, way, is_write, commands });
        self.waiters.insert(id, waiter);
        client.awaited = Some(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_its_manner() {
        let (table, _) = crate::serve::rows::all();
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
