//! What a look-up leaves behind: after each command a real `redis-server` 7.0 and the store have the same hits and
//! misses, and the keys were used as often. Every command of the table is tried, on keys that are there and on others.

use crate::client::{Local, Redis, find, shown};
use laneway_kv::{DATA_COMMANDS, Eviction, Store};
use std::collections::BTreeSet;

/// What is there before each command.
const BEFORE: &[&str] = &[
    "flushall",
    "select 0",
    "set s abc",
    "set s2 xyz",
    "set n 10",
    "set f 1.5",
    "set d abc px 100000000",
    "rpush l a b c",
    "rpush l2 a",
    "sadd t a b c",
    "sadd t2 b c d",
    "hset h a 1 b x",
    "zadd z 1 a 2 b",
    "zadd z2 1 b 2 c",
];
const KEYS: &[&str] =
    &["s", "s2", "n", "f", "d", "l", "l2", "t", "t2", "h", "z", "z2", "none", "none2"];
const NOW_MS: u64 = 1_000_000_000_000;

const COMMANDS: &[&str] = &[
    "get s|none|l",
    "set s|none|l v",
    "set s v nx",
    "set none v nx",
    "set s v xx",
    "set none v xx",
    "set s|none v get",
    "set s v nx get",
    "set d v keepttl",
    "set s|none v ex 100",
    "setnx s|none|l v",
    "setex s|none 100 v",
    "psetex s|none 100000 v",
    "getex s|none|l",
    "getex s|none ex 100",
    "getex d persist",
    "getdel s|none|l",
    "getset s|none|l v",
    "mget s none l s",
    "mset s v none v s w",
    "msetnx none v s v s2 v",
    "msetnx none v none2 v",
    "append s|n|none|l v",
    "strlen s|none|l",
    "incr n|none|s|l",
    "decr n|none",
    "incrby n|none 5",
    "decrby n|none 5",
    "incrbyfloat f|none|l 0.5",
    "getrange s|none|l 0 1",
    "substr s|none 0 1",
    "setrange s|none|l 1 v",
    "lcs s|none s2|none2|l",
    "setbit s|none|l 3 1",
    "getbit s|none|l 3",
    "bitcount s|none|l",
    "bitpos s|none|l 1",
    "bitop and s|none|l s s2 none",
    "bitop not none2 s",
    "bitop or s none none2",
    "bitfield s|none|l get u8 0",
    "bitfield s|none|l set u8 0 1",
    "bitfield s|none incrby u8 0 1 get u8 0",
    "bitfield_ro s|none|l get u8 0",
    "del s none l",
    "unlink s none l",
    "exists s none l s",
    "type s|none|l",
    "ttl s|d|none",
    "pttl s|d|none",
    "expire s|d|none|l 100",
    "expire d 100 nx",
    "expire s -1",
    "pexpire s|none 100000",
    "expireat s|none 4000000000",
    "pexpireat s|none 4000000000000",
    "expiretime s|d|none",
    "pexpiretime s|d|none",
    "persist s|d|none",
    "keys *",
    "scan 0",
    "randomkey",
    "rename s|d|l|none s2|none2",
    "rename s s",
    "renamenx s|d|l|none s2|none2",
    "copy s|l|none s2|none2",
    "copy s|l|none s2|none2 replace",
    "copy s s db 1",
    "touch s none l s",
    "move s|l|none 1",
    "object encoding s|none",
    "object refcount s|none",
    "object freq s|none",
    "object idletime none",
    "object help",
    "memory usage s|none",
    "dbsize",
    "flushdb",
    "flushall",
    "swapdb 0 1",
    "lpush l|none|s v w",
    "rpush l|none|s v",
    "lpushx l|none|s v",
    "rpushx l|none|s v",
    "lpop l|l2|none|s",
    "rpop l|l2|none|s",
    "lpop l|none 2",
    "llen l|none|s",
    "lindex l|none|s 0",
    "linsert l|none|s before b v",
    "linsert l before v v",
    "lrange l|none|s 0 -1",
    "lrem l|none|s 0 a",
    "lrem l 0 v",
    "lset l|none 0 v",
    "ltrim l|none 0 1",
    "lpos l|none|s b",
    "lmove l|l2|none l2|none2|s left right",
    "rpoplpush l|none l2|none2",
    "lmpop 2 none l left",
    "lmpop 2 none none2 left",
    "blpop none l 0.001",
    "blpop none none2 0.001",
    "brpop none l 0.001",
    "blmove l|none l2|none2 left right 0.001",
    "brpoplpush l|none l2|none2 0.001",
    "blmpop 0.001 2 none l left",
    "blmpop 0.001 1 none left",
    "sadd t|none|s a v",
    "sadd t a",
    "srem t|none|s a",
    "srem t v",
    "smembers t|none|s",
    "sismember t|none|s a",
    "smismember t|none|s a v",
    "scard t|none|s",
    "spop t|none|s",
    "spop t|none 1",
    "spop t 100",
    "srandmember t|none|s",
    "srandmember t|none 1",
    "smove t|none t2|none2|s a",
    "smove t t2 v",
    "sinter t|none t2|s",
    "sinterstore t2|s|none2 t|none t2",
    "sintercard 2 t|none t2",
    "sunion t|none t2|s",
    "sunionstore t2|s|none2 t|none t2",
    "sdiff t|none t2|s",
    "sdiffstore t2|s|none2 t|none t2",
    "sscan t|none|s 0",
    "hset h|none|s a 2",
    "hmset h|none a 2",
    "hsetnx h|none|s v 2",
    "hsetnx h a 2",
    "hget h|none|s a",
    "hmget h|none|s a v",
    "hgetall h|none|s",
    "hdel h|none|s a",
    "hdel h v",
    "hexists h|none|s a",
    "hincrby h|none|s a 2",
    "hincrbyfloat h|none|s a 2",
    "hkeys h|none|s",
    "hvals h|none|s",
    "hlen h|none|s",
    "hstrlen h|none|s a",
    "hrandfield h|none|s",
    "hrandfield h|none 1",
    "hscan h|none|s 0",
    "zadd z|none|s 5 a",
    "zadd z|none xx 5 a",
    "zadd z nx 5 a",
    "zincrby z|none|s 5 a",
    "zrem z|none|s a",
    "zrem z v",
    "zcard z|none|s",
    "zscore z|none|s a",
    "zmscore z|none|s a v",
    "zrank z|none|s a",
    "zrevrank z|none|s a",
    "zpopmin z|none|s",
    "zpopmax z|none 2",
    "bzpopmin none z 0.001",
    "bzpopmin none none2 0.001",
    "bzpopmax none z 0.001",
    "zmpop 2 none z min",
    "zmpop 1 none min",
    "bzmpop 0.001 2 none z min",
    "bzmpop 0.001 1 none min",
    "zrandmember z|none|s",
    "zrandmember z|none 1",
    "zscan z|none|s 0",
    "zrange z|none|s 0 -1",
    "zrangestore z2|s|none2 z|none 0 -1",
    "zrevrange z|none 0 -1",
    "zrangebyscore z|none 0 5",
    "zrevrangebyscore z|none 5 0",
    "zrangebylex z|none - +",
    "zrevrangebylex z|none + -",
    "zcount z|none|s 0 5",
    "zlexcount z|none - +",
    "zremrangebyrank z|none 0 0",
    "zremrangebyscore z|none 1 1",
    "zremrangebyscore z 7 8",
    "zremrangebylex z|none [a [a",
    "zunion 2 z|none|t z2|s",
    "zinter 2 z|none|t z2|s",
    "zdiff 2 z|none|t z2|s",
    "zunionstore z2|s|none2 2 z|none z2",
    "zinterstore z2|s|none2 2 z|none z2",
    "zdiffstore z2|s|none2 2 z|none z2",
    "zintercard 2 z|none z2",
];

/// A command for every choice of the words between bars.
fn choices(form: &str) -> Vec<String> {
    let mut commands = vec![String::new()];
    for word in form.split(' ') {
        let each = |command: &String| {
            let choices = word.split('|').map(|one| format!("{command} {one}"));
            choices.collect::<Vec<_>>()
        };
        commands = commands.iter().flat_map(each).collect();
    }
    commands.iter().map(|command| command.trim_start().to_owned()).collect()
}

fn args(command: &str) -> Vec<Vec<u8>> {
    command.split(' ').map(|arg| arg.as_bytes().to_vec()).collect()
}

/// The two sides, of which one is asked at a time.
enum Side {
    Ours(Box<Local>),
    Theirs(Redis),
}

impl Side {
    fn ask(&mut self, command: &str) -> String {
        shown(&match self {
            Side::Ours(local) => local.ask(&args(command)),
            Side::Theirs(redis) => redis.ask(&args(command)),
        })
    }

    /// Hits and misses since the last time.
    fn counts(&mut self) -> (u64, u64) {
        match self {
            Side::Ours(local) => {
                let counts = local.store.counts();
                local.store.reset_counts();
                (counts.hits, counts.misses)
            }
            Side::Theirs(redis) => {
                let info = redis.ask(&args("info stats"));
                let info = String::from_utf8_lossy(&info).into_owned();
                let count = |name: &str| {
                    let line = info.lines().find_map(|line| line.strip_prefix(name));
                    line.expect("INFO has it").parse().expect("a number")
                };
                let counts = (count("keyspace_hits:"), count("keyspace_misses:"));
                redis.ask(&args("config resetstat"));
                counts
            }
        }
    }

    /// What a command leaves behind: its reply, hits and misses, and how often each key was used.
    fn left_by(&mut self, command: &str) -> (String, (u64, u64), Vec<String>) {
        for before in BEFORE {
            self.ask(before);
        }
        self.counts();
        let reply = self.ask(command);
        let counts = self.counts();
        let mut uses = Vec::new();
        for database in ["select 0", "select 1"] {
            self.ask(database);
            uses.extend(KEYS.iter().map(|key| self.ask(&format!("object freq {key}"))));
        }
        (reply, counts, uses)
    }
}

/// Where Redis may use a key more often, which matters little: where it refuses after it has looked at it, and where it
/// looks whether there is something to wait for.
fn is_excused(command: &str, reply: &str) -> bool {
    let waits = ["blmove", "brpoplpush", "bzpopmin", "bzpopmax", "bzmpop"];
    reply.starts_with('-') || waits.iter().any(|name| command.starts_with(name))
}

#[test]
fn look_ups_are_counted_and_keys_are_used_as_in_redis() {
    let mut redis = match Redis::start("uses") {
        Ok(redis) => redis,
        Err(why) => return laneway_testkit::skip(why),
    };
    // Every use counts, none is forgotten, and no value is shared between keys.
    for setting in [
        "maxmemory 1000000000",
        "maxmemory-policy allkeys-lfu",
        "lfu-log-factor 0",
        "lfu-decay-time 0",
    ] {
        assert_eq!(redis.ask(&args(&format!("config set {setting}"))), b"+OK\r\n");
    }
    let mut store = Store::with_seed(1);
    store.settings_mut().eviction = Eviction::AllKeysLfu;
    (store.settings_mut().lfu_log_factor, store.settings_mut().lfu_decay_minutes) = (0, 0);
    let mut ours = Side::Ours(Box::new(Local::new(store, NOW_MS)));
    let mut theirs = Side::Theirs(redis);
    let (mut tried, mut differing) = (BTreeSet::new(), Vec::new());
    for command in COMMANDS.iter().flat_map(|form| choices(form)) {
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        tried.insert(find(&words).expect("a row of the table").name);
        let (ours, theirs) = (ours.left_by(&command), theirs.left_by(&command));
        let uses = ours.2.iter().zip(&theirs.2).enumerate();
        let uses: Vec<_> = uses.filter(|(_, (one, other))| one != other).collect();
        let is_used_alike = uses.is_empty() || is_excused(&command, &theirs.0);
        // All members of a set are popped by a look-up that reads.
        if ours.1 != theirs.1 && command != "spop t 100" || !is_used_alike {
            differing.push(format!("{command}: counts {:?} {:?}, uses {uses:?}", ours.1, theirs.1));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
    for row in DATA_COMMANDS.iter().copied().flatten() {
        assert!(tried.contains(row.name), "{} is not tried", row.name);
    }
}
