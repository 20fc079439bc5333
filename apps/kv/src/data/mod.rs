//! The data: databases of keys, their values, and the commands on them. No client, no I/O, no clock of its own.

pub(crate) mod glob;

use crate::command::{Call, Command, Effects, Flags, Keys, Outcome, Run};
use std::collections::BTreeMap;

/// databases
pub(crate) const DATABASES: usize = 16;

/// What goes when memory is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// Nothing.
    #[default]
    None,
}

impl Eviction {
    /// Every policy, by Redis's name.
    pub const NAMES: [(&'static str, Eviction); 1] = [("noeviction", Eviction::None)];
}

/// What an operator may set while the store runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// maxmemory
    pub memory_bytes_max: Option<usize>,
    /// policy
    pub eviction: Eviction,
    /// samples
    pub samples: usize,
    /// lfu
    pub lfu_log_factor: u32,
    /// lfu
    pub lfu_decay_minutes: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            memory_bytes_max: None,
            eviction: Eviction::None,
            samples: 5,
            lfu_log_factor: 10,
            lfu_decay_minutes: 1,
        }
    }
}

/// counts
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreCounts {
    /// a
    pub hits: u64,
    /// a
    pub misses: u64,
    /// a
    pub expired: u64,
    /// a
    pub evicted: u64,
}

/// counts
#[derive(Clone, Copy, Debug, Default)]
pub struct DatabaseCounts {
    /// a
    pub keys: usize,
    /// a
    pub deadlines: usize,
}

#[derive(Clone, Debug)]
enum Value {
    Text(Vec<u8>),
    List(Vec<Vec<u8>>),
}

/// All databases of one shard.
#[derive(Debug, Default)]
pub struct Store {
    databases: BTreeMap<(usize, Vec<u8>), Value>,
    settings: Settings,
}

impl Store {
    /// a
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
    /// a
    pub fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }
    /// a
    pub fn counts(&self) -> StoreCounts {
        StoreCounts::default()
    }
    /// a
    pub fn reset_counts(&mut self) {}
    /// a
    pub fn databases(&self) -> impl Iterator<Item = DatabaseCounts> {
        (0..16).map(|n| DatabaseCounts {
            keys: self.databases.keys().filter(|(d, _)| *d == n).count(),
            deadlines: 0,
        })
    }
    /// a
    pub fn used_bytes(&self) -> usize {
        self.databases.len() * 64
    }
    /// a
    pub fn is_over_limit(&self) -> bool {
        self.settings.memory_bytes_max.is_some_and(|max| self.used_bytes() > max)
    }
    /// a
    pub fn expire_some(&mut self, _: u64, _: usize, _: &mut Effects) -> Option<usize> {
        None
    }
    /// a
    pub fn evict_one(&mut self, _: u64, _: &mut Effects) -> Option<usize> {
        None
    }
}

fn get(call: &mut Call<'_>) -> Outcome {
    match call.store.databases.get(&(call.database, call.args[1].to_vec())) {
        Some(Value::Text(text)) => call.reply.bulk(text),
        Some(_) => {
            call.reply.error("WRONGTYPE Operation against a key holding the wrong kind of value")
        }
        None => call.reply.null(),
    }
    Outcome::Done
}

fn set(call: &mut Call<'_>) -> Outcome {
    let value = Value::Text(call.args[2].to_vec());
    call.store.databases.insert((call.database, call.args[1].to_vec()), value);
    call.effects.touch(call.database, call.args[1]);
    call.effects.changed(1);
    call.reply.ok();
    Outcome::Done
}

fn del(call: &mut Call<'_>) -> Outcome {
    let mut gone = 0;
    for key in &call.args[1..] {
        if call.store.databases.remove(&(call.database, key.to_vec())).is_some() {
            gone += 1;
            call.effects.touch(call.database, key);
            call.effects.changed(1);
        }
    }
    call.reply.integer(gone);
    Outcome::Done
}

fn incr(call: &mut Call<'_>) -> Outcome {
    let key = (call.database, call.args[1].to_vec());
    let number = match call.store.databases.get(&key) {
        None => Some(0),
        Some(Value::Text(text)) => laneway_resp::integer(text),
        Some(_) => None,
    };
    let Some(number) = number else {
        call.reply.error("ERR value is not an integer or out of range");
        return Outcome::Done;
    };
    call.store.databases.insert(key, Value::Text((number + 1).to_string().into_bytes()));
    call.effects.touch(call.database, call.args[1]);
    call.effects.changed(1);
    call.reply.integer(number + 1);
    Outcome::Done
}

fn rpush(call: &mut Call<'_>) -> Outcome {
    let list = call
        .store
        .databases
        .entry((call.database, call.args[1].to_vec()))
        .or_insert(Value::List(Vec::new()));
    let Value::List(list) = list else {
        call.reply.error("WRONGTYPE Operation against a key holding the wrong kind of value");
        return Outcome::Done;
    };
    list.extend(call.args[2..].iter().map(|v| v.to_vec()));
    call.reply.integer(list.len() as i64);
    call.effects.touch(call.database, call.args[1]);
    call.effects.changed(1);
    Outcome::Done
}

fn blpop(call: &mut Call<'_>) -> Outcome {
    let last = call.args.len() - 1;
    for key in &call.args[1..last] {
        let at = (call.database, key.to_vec());
        match call.store.databases.get_mut(&at) {
            Some(Value::List(list)) => {
                let value = list.remove(0);
                if list.is_empty() {
                    call.store.databases.remove(&at);
                }
                call.reply.array(2);
                call.reply.bulk(key);
                call.reply.bulk(&value);
                call.effects.touch(call.database, key);
                call.effects.changed(1);
                return Outcome::Done;
            }
            Some(_) => {
                call.reply
                    .error("WRONGTYPE Operation against a key holding the wrong kind of value");
                return Outcome::Done;
            }
            None => {}
        }
    }
    let seconds = laneway_resp::integer(call.args[last]).unwrap_or(0);
    let until_ms = (seconds > 0).then(|| call.now_ms + seconds as u64 * 1000);
    Outcome::Waits { until_ms, null_array: true }
}

fn dbsize(call: &mut Call<'_>) -> Outcome {
    let count = call.store.databases().nth(call.database).map_or(0, |d| d.keys);
    call.reply.integer(count as i64);
    Outcome::Done
}

fn flushall(call: &mut Call<'_>) -> Outcome {
    call.store.databases.clear();
    if call.effects.wants_touched {
        call.effects.touched.extend((0..16).map(|d| (d, None)));
    }
    call.effects.changed(1);
    call.reply.ok();
    Outcome::Done
}

const KEY: Keys = Keys { first: 1, last: 1, step: 1, numkeys: 0 };

/// rows
pub(crate) const COMMANDS: &[Command] = &[
    Command {
        name: "get",
        arity: 2,
        flags: Flags::READONLY.and(Flags::FAST),
        keys: KEY,
        categories: &["read", "string", "fast"],
        run: Run::Data(get),
    },
    Command {
        name: "set",
        arity: -3,
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: KEY,
        categories: &["write", "string", "slow"],
        run: Run::Data(set),
    },
    Command {
        name: "incr",
        arity: 2,
        flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST),
        keys: KEY,
        categories: &["write", "string", "fast"],
        run: Run::Data(incr),
    },
    Command {
        name: "del",
        arity: -2,
        flags: Flags::WRITE,
        keys: Keys { last: -1, ..KEY },
        categories: &["write", "keyspace", "slow"],
        run: Run::Data(del),
    },
    Command {
        name: "rpush",
        arity: -3,
        flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST),
        keys: KEY,
        categories: &["write", "list", "fast"],
        run: Run::Data(rpush),
    },
    Command {
        name: "blpop",
        arity: -3,
        flags: Flags::WRITE.and(Flags::BLOCKING),
        keys: Keys { last: -2, ..KEY },
        categories: &["write", "list", "slow", "blocking"],
        run: Run::Data(blpop),
    },
    Command {
        name: "dbsize",
        arity: 1,
        flags: Flags::READONLY.and(Flags::FAST),
        keys: Keys { first: 0, last: 0, step: 0, numkeys: 0 },
        categories: &["read", "keyspace", "fast"],
        run: Run::Data(dbsize),
    },
    Command {
        name: "flushall",
        arity: -1,
        flags: Flags::WRITE,
        keys: Keys { first: 0, last: 0, step: 0, numkeys: 0 },
        categories: &["write", "keyspace", "slow", "dangerous"],
        run: Run::Data(flushall),
    },
];
