//! The one table of commands: the data's rows and the server's, found by name.

use super::{
    acl, blocked,
    client::Client,
    connection, describe, messages, operate, save,
    server::Server,
    shards::{Reach, reach_of},
    transaction,
};
use crate::command::{Command, Flags, Keys, Run};
pub(crate) use crate::command::{key_places, keys_of};
use std::collections::BTreeMap;

/// Does a command of the server's.
pub(crate) type ServerFn = fn(&mut Server, &mut Client, &[&[u8]]);

/// A row, with what is counted of it.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) command: Command,
    pub(crate) server: ServerFn,
    /// The workers that it concerns, where there are several.
    pub(crate) reach: Reach,
    /// Its second word may name a row of its own.
    has_subcommands: bool,
    pub(crate) calls: u64,
    pub(crate) usec: u64,
    pub(crate) rejected: u64,
    pub(crate) failed: u64,
}

/// What a client's words name.
pub(crate) enum Found {
    /// A command.
    Row(usize),
    /// A command that has subcommands, and not this one.
    NoSubcommand,
    /// Nothing.
    Unknown,
}

/// The table.
pub(crate) struct Table {
    rows: Vec<Row>,
    /// Rows by the hash of their name: open addressing.
    slots: Box<[u16]>,
    /// Names that have subcommands, with their rows.
    containers: BTreeMap<&'static str, Vec<usize>>,
}

/// The longest name, its subcommand's included; no client's word is longer and a name.
const NAME_BYTES_MAX: usize = 32;
/// Several times as many as there are rows.
const SLOTS: usize = 2048;
const EMPTY: u16 = u16::MAX;

impl Table {
    pub(crate) fn new(data: &[&'static [Command]]) -> Table {
        let of_data = data.iter().copied().flatten().map(|&command| (command, none as ServerFn));
        let rows = of_data.chain(SERVER.iter().copied());
        let rows: Vec<Row> = rows
            .map(|(command, server)| Row {
                command,
                server,
                reach: reach_of(&command),
                has_subcommands: false,
                calls: 0,
                usec: 0,
                rejected: 0,
                failed: 0,
            })
            .collect();
        let mut table = Table {
            slots: vec![EMPTY; SLOTS].into_boxed_slice(),
            containers: BTreeMap::new(),
            rows,
        };
        assert!(table.rows.len() * 2 < SLOTS, "the table has room for every row");
        for index in 0..table.rows.len() {
            let name = table.rows[index].command.name;
            assert!(
                name.len() <= NAME_BYTES_MAX,
                "`{name}` is longer than the names that are looked for"
            );
            let mut slot = hash(name.as_bytes());
            while table.slots[slot] != EMPTY {
                slot = (slot + 1) % SLOTS;
            }
            table.slots[slot] = index as u16;
            if let Some((container, _)) = name.split_once('|') {
                table.containers.entry(container).or_default().push(index);
            }
        }
        for row in &mut table.rows {
            row.has_subcommands = table.containers.contains_key(row.command.name);
        }
        table
    }

    /// The row that a command's words name, in any case.
    pub(crate) fn find(&self, args: &[&[u8]]) -> Found {
        let mut name = [0; NAME_BYTES_MAX];
        let Some(len) = lower(args[0], &mut name, 0) else { return Found::Unknown };
        if let Some(index) = self.index_of(&name[..len])
            && !(self.rows[index].has_subcommands && args.len() > 1)
        {
            return Found::Row(index);
        }
        let Ok(container) = std::str::from_utf8(&name[..len]) else { return Found::Unknown };
        if !self.containers.contains_key(container) {
            return Found::Unknown;
        }
        let Some(sub) = args.get(1) else { return Found::NoSubcommand };
        if len + 1 >= name.len() {
            return Found::NoSubcommand;
        }
        name[len] = b'|';
        let found = lower(sub, &mut name, len + 1).and_then(|len| self.index_of(&name[..len]));
        found.map_or(Found::NoSubcommand, Found::Row)
    }

    /// The row of a name as in the table.
    pub(crate) fn index_of(&self, name: &[u8]) -> Option<usize> {
        let mut slot = hash(name);
        loop {
            let index = self.slots[slot];
            if index == EMPTY {
                return None;
            }
            if self.rows[usize::from(index)].command.name.as_bytes() == name {
                return Some(usize::from(index));
            }
            slot = (slot + 1) % SLOTS;
        }
    }

    pub(crate) fn command(&self, index: usize) -> Command {
        self.rows[index].command
    }

    pub(crate) fn row(&mut self, index: usize) -> &mut Row {
        &mut self.rows[index]
    }

    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub(crate) fn rows_mut(&mut self) -> &mut [Row] {
        &mut self.rows
    }

    pub(crate) fn containers(&self) -> &BTreeMap<&'static str, Vec<usize>> {
        &self.containers
    }
}

/// A word in lower case behind the first `from` bytes; where it ends.
fn lower(word: &[u8], into: &mut [u8], from: usize) -> Option<usize> {
    let end = from + word.len();
    let place = into.get_mut(from..end)?;
    place.copy_from_slice(word);
    place.make_ascii_lowercase();
    Some(end)
}

/// FNV-1a. The names are fixed: no client can make them collide.
fn hash(name: &[u8]) -> usize {
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (hash ^ (hash >> 32)) as usize % SLOTS
}

/// Of a row whose command is the data's.
fn none(_: &mut Server, _: &mut Client, _: &[&[u8]]) {}

const fn row(
    name: &'static str,
    arity: i32,
    flags: Flags,
    categories: &'static [&'static str],
) -> Command {
    let keys = Keys { first: 0, last: 0, step: 0, numkeys: 0 };
    Command { name, arity, flags, keys, categories, run: Run::Server }
}

const ALL_KEYS: Keys = Keys { first: 1, last: -1, step: 1, numkeys: 0 };

const CONNECTION: &[&str] = &["fast", "connection"];
const CONNECTION_SLOW: &[&str] = &["slow", "connection"];
const OPERATE: &[&str] = &["admin", "slow", "dangerous"];
const CLIENT_OPERATE: &[&str] = &["admin", "slow", "dangerous", "connection"];
const MESSAGES: &[&str] = &["pubsub", "slow"];
const TRANSACTION: &[&str] = &["fast", "transaction"];

const LOOSE: Flags = Flags::LOADING.and(Flags::STALE).and(Flags::NOSCRIPT);
const OPEN: Flags = LOOSE.and(Flags::FAST).and(Flags::NO_AUTH);
const ADMIN: Flags = LOOSE.and(Flags::ADMIN);
const SAVING: Flags = Flags::ADMIN.and(Flags::NOSCRIPT);
const PUBSUB: Flags = LOOSE.and(Flags::PUBSUB);

/// The server's rows.
#[rustfmt::skip] // a table
const SERVER: &[(Command, ServerFn)] = &[
    (row("ping", -1, Flags::FAST, CONNECTION), connection::ping),
    (row("echo", 2, Flags::FAST, CONNECTION), connection::echo),
    (row("quit", -1, OPEN, CONNECTION), connection::quit),
    (row("select", 2, Flags::LOADING.and(Flags::STALE).and(Flags::FAST), CONNECTION), connection::select),
    (row("auth", -2, OPEN, CONNECTION), connection::auth),
    (row("hello", -1, OPEN, CONNECTION), connection::hello),
    (row("reset", 1, OPEN, CONNECTION), connection::reset),
    (row("client|id", 2, LOOSE, CONNECTION_SLOW), connection::client_id),
    (row("client|setname", 3, LOOSE, CONNECTION_SLOW), connection::client_setname),
    (row("client|getname", 2, LOOSE, CONNECTION_SLOW), connection::client_getname),
    (row("client|setinfo", 4, LOOSE, CONNECTION_SLOW), connection::client_setinfo),
    (row("client|info", 2, LOOSE, CONNECTION_SLOW), connection::client_info),
    (row("client|list", -2, ADMIN, CLIENT_OPERATE), connection::client_list),
    (row("client|kill", -3, ADMIN, CLIENT_OPERATE), connection::client_kill),
    (row("client|no-evict", 3, ADMIN, CLIENT_OPERATE), connection::client_no_evict),
    (row("client|reply", 3, LOOSE, CONNECTION_SLOW), connection::client_reply),
    (row("client|pause", -3, ADMIN, CLIENT_OPERATE), blocked::client_pause),
    (row("client|unpause", 2, ADMIN, CLIENT_OPERATE), blocked::client_unpause),
    (row("client|unblock", -3, ADMIN, CLIENT_OPERATE), blocked::client_unblock),
    (row("client|help", 2, LOOSE, CONNECTION_SLOW), describe::help),
    (row("command", -1, Flags::LOADING.and(Flags::STALE), CONNECTION_SLOW), describe::command),
    (row("command|count", 2, Flags::LOADING.and(Flags::STALE), CONNECTION_SLOW), describe::count),
    (row("command|docs", -2, Flags::LOADING.and(Flags::STALE), CONNECTION_SLOW), describe::docs),
    (row("command|info", -2, Flags::LOADING.and(Flags::STALE), CONNECTION_SLOW), describe::info),
    (row("command|list", -2, Flags::LOADING.and(Flags::STALE), CONNECTION_SLOW), describe::list),
    (row("command|getkeys", -4, Flags::LOADING.and(Flags::STALE), CONNECTION_SLOW), describe::getkeys),
    (row("config|get", -3, ADMIN, OPERATE), operate::config_get),
    (row("config|set", -4, ADMIN, OPERATE), operate::config_set),
    (row("config|resetstat", 2, ADMIN, OPERATE), operate::config_resetstat),
    (row("info", -1, Flags::LOADING.and(Flags::STALE), &["slow", "dangerous"]), operate::info),
    (row("time", 1, Flags::LOADING.and(Flags::STALE).and(Flags::FAST), &["fast"]), operate::time),
    (row("lastsave", 1, Flags::LOADING.and(Flags::STALE).and(Flags::FAST), &["admin", "fast", "dangerous"]), save::lastsave),
    (row("save", 1, SAVING.and(Flags::NO_MULTI), OPERATE), save::save),
    (row("bgsave", -1, SAVING, OPERATE), save::bgsave),
    (row("bgrewriteaof", 1, SAVING, OPERATE), save::bgrewriteaof),
    (row("slowlog|get", -2, ADMIN, OPERATE), operate::slowlog_get),
    (row("slowlog|len", 2, ADMIN, OPERATE), operate::slowlog_len),
    (row("slowlog|reset", 2, ADMIN, OPERATE), operate::slowlog_reset),
    (row("latency|latest", 2, ADMIN, OPERATE), operate::latency_none),
    (row("latency|history", 3, ADMIN, OPERATE), operate::latency_none),
    (row("latency|reset", -2, ADMIN, OPERATE), operate::latency_reset),
    (row("memory|stats", 2, Flags(0), &["slow"]), operate::memory_stats),
    (row("shutdown", -1, ADMIN.and(Flags::NO_MULTI), OPERATE), operate::shutdown),
    (row("multi", 1, LOOSE.and(Flags::FAST), TRANSACTION), transaction::multi),
    (row("exec", 1, LOOSE, &["slow", "transaction"]), transaction::exec),
    (row("discard", 1, LOOSE.and(Flags::FAST), TRANSACTION), transaction::discard),
    (Command { keys: ALL_KEYS, ..row("watch", -2, LOOSE.and(Flags::FAST), TRANSACTION) }, transaction::watch),
    (row("unwatch", 1, LOOSE.and(Flags::FAST), TRANSACTION), transaction::unwatch),
    (row("subscribe", -2, PUBSUB, MESSAGES), messages::subscribe),
    (row("unsubscribe", -1, PUBSUB, MESSAGES), messages::unsubscribe),
    (row("psubscribe", -2, PUBSUB, MESSAGES), messages::psubscribe),
    (row("punsubscribe", -1, PUBSUB, MESSAGES), messages::punsubscribe),
    (row("publish", 3, Flags::PUBSUB.and(Flags::LOADING).and(Flags::STALE).and(Flags::FAST), &["pubsub", "fast"]), messages::publish),
    (row("pubsub|channels", -2, Flags::PUBSUB.and(Flags::LOADING).and(Flags::STALE), MESSAGES), messages::channels),
    (row("pubsub|numsub", -2, Flags::PUBSUB.and(Flags::LOADING).and(Flags::STALE), MESSAGES), messages::numsub),
    (row("pubsub|numpat", 2, Flags::PUBSUB.and(Flags::LOADING).and(Flags::STALE), MESSAGES), messages::numpat),
    (row("acl|setuser", -3, ADMIN, OPERATE), acl::setuser),
    (row("acl|getuser", 3, ADMIN, OPERATE), acl::getuser),
    (row("acl|deluser", -3, ADMIN, OPERATE), acl::deluser),
    (row("acl|list", 2, ADMIN, OPERATE), acl::list),
    (row("acl|users", 2, ADMIN, OPERATE), acl::users),
    (row("acl|whoami", 2, LOOSE, &["slow"]), acl::whoami),
    (row("acl|cat", -2, LOOSE, &["slow"]), acl::cat),
];
