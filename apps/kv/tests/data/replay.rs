//! The log of a store, done again on another one, gives the same data: from the start, and from a snapshot on.

use crate::client::{Args, Local, shown};
use crate::commands::command;
use laneway_kv::{DATABASES, Effects, Logged, SnapshotStep, Store};
use laneway_testkit::Random;

const START_MS: u64 = 1_700_000_000_000;
const COMMANDS: usize = 4_000;
/// Keys there are before: more than one table holds.
const KEYS: usize = 2_000;

/// Commands with the database that each is for.
type Log = Vec<(usize, Args)>;

/// A store that is written to, and what its log has.
struct Written {
    local: Local,
    log: Log,
    draw: Random,
}

impl Written {
    fn new(seed: u64) -> Written {
        let mut draw = Random::seeded(seed);
        let local = Local::new(Store::with_seed(draw.draw()), START_MS);
        Written::of(local, draw)
    }

    /// Whose values are mostly on the disk.
    fn spilling(seed: u64) -> Written {
        let mut draw = Random::seeded(seed);
        let (store, bytes) = (Store::with_seed(draw.draw()), draw.index(100_000));
        Written::of(Local::spilling(store, START_MS, "replay-values", bytes), draw)
    }

    fn of(local: Local, draw: Random) -> Written {
        let mut written = Written { local, log: Log::new(), draw };
        for number in 0..KEYS {
            let command = match number % 4 {
                0 => format!("set p{number} v{number}"),
                1 => format!("set p{number} {number} px {}", 1 + number * 10),
                2 => format!("hset p{number} f v g {number}"),
                _ => format!("zadd p{number} {number} m 2 n"),
            };
            written.ask(command.split(' ').map(|word| word.as_bytes().to_vec()).collect());
        }
        written
    }

    /// A random command, on any of the keys; now and then time passes, keys come due, or a key is evicted.
    fn step(&mut self) {
        let mut args = command(&mut self.draw);
        for arg in &mut args[1..] {
            if arg.starts_with(b"k") && self.draw.index(2) == 0 {
                *arg = format!("p{}", self.draw.index(KEYS)).into_bytes();
            }
        }
        let is_select = args[0] == b"select";
        if is_select && !matches!(&args[1..], [number] if *number == b"0" || *number == b"1") {
            return;
        }
        // A flush leaves little to compare: seldom.
        if !(args[0].starts_with(b"flush") && self.draw.index(20) > 0) {
            self.ask(args);
        }
        let mut effects = Effects::default();
        let database = match self.draw.index(20) {
            0 => {
                self.local.now_ms += self.draw.index(100) as u64;
                None
            }
            1 => self.local.store.expire_some(self.local.now_ms, 3, &mut effects),
            2 if self.draw.index(20) == 0 => {
                self.local.store.evict_one(self.local.now_ms, &mut effects)
            }
            _ => None,
        };
        if let Some(database) = database {
            self.append(database, &effects, &[]);
        }
    }

    fn ask(&mut self, args: Args) {
        self.local.ask(&args);
        let effects = std::mem::take(&mut self.local.effects);
        self.append(self.local.database, &effects, &args);
    }

    fn append(&mut self, database: usize, effects: &Effects, args: &[Vec<u8>]) {
        match &effects.logged {
            Logged::Nothing => {}
            Logged::AsGiven => self.log.push((database, args.to_vec())),
            Logged::Instead(commands) => {
                let owned =
                    |command: &Vec<Box<[u8]>>| command.iter().map(|arg| arg.to_vec()).collect();
                self.log.extend(commands.iter().map(|command| (database, owned(command))));
            }
        }
    }
}

/// Does a log again: at time 0, when nothing is due.
fn replay(store: Store, log: &Log) -> Local {
    let mut local = Local::new(store, 0);
    for (database, args) in log {
        local.database = *database;
        let reply = local.ask(args);
        assert_ne!(reply[0], b'-', "{}: {}", shown(&args.join(&b' ')), shown(&reply));
    }
    local
}

/// All that can be asked of the data, each key with what it holds, as text.
fn contents(local: &mut Local) -> Vec<String> {
    let mut contents = Vec::new();
    for database in 0..DATABASES {
        local.database = database;
        let mut ask = |command: &[&[u8]]| {
            let args: Args = command.iter().map(|arg| arg.to_vec()).collect();
            local.ask(&args)
        };
        let listed = ask(&[b"keys", b"*"]);
        for key in bulks(&listed) {
            let kind = ask(&[b"type", &key]);
            let whole: &[&[u8]] = match kind.as_slice() {
                b"+string\r\n" => &[b"get", &key],
                b"+list\r\n" => &[b"lrange", &key, b"0", b"-1"],
                b"+set\r\n" => &[b"smembers", &key],
                b"+hash\r\n" => &[b"hgetall", &key],
                _ => &[b"zrange", &key, b"0", b"-1", b"withscores"],
            };
            let mut value: Vec<String> =
                bulks(&ask(whole)).iter().map(|part| shown(part)).collect();
            if matches!(kind.as_slice(), b"+set\r\n" | b"+hash\r\n") {
                value.sort();
            }
            let deadline = ask(&[b"pexpiretime", &key]);
            // How a string was made is not in the log: a sum of INCRBYFLOAT is set there.
            let encoding = match kind.as_slice() {
                b"+string\r\n" => Vec::new(),
                _ => ask(&[b"object", b"encoding", &key]),
            };
            let more = [deadline, encoding].concat();
            contents.push(format!(
                "{database} {}: {} {}",
                shown(&key),
                shown(&more),
                value.join(" ")
            ));
        }
    }
    contents.sort();
    contents
}

/// The byte strings of a reply.
fn bulks(reply: &[u8]) -> Vec<Vec<u8>> {
    let (mut rest, mut bulks) = (reply, Vec::new());
    while let Some(end) = rest.iter().position(|byte| *byte == b'\r') {
        let line = String::from_utf8_lossy(&rest[1..end]).into_owned();
        let is_bulk = rest[0] == b'$';
        rest = &rest[end + 2..];
        if let (true, Ok(len)) = (is_bulk, line.parse::<usize>()) {
            bulks.push(rest[..len].to_vec());
            rest = &rest[len + 2..];
        }
    }
    bulks
}

fn assert_same(mut one: Local, mut other: Local) {
    other.now_ms = one.now_ms;
    let (one, other) = (contents(&mut one), contents(&mut other));
    let only = |of: &[String], not: &[String]| {
        let only = of.iter().filter(|line| not.binary_search(line).is_err());
        only.take(5).cloned().collect::<Vec<_>>().join("\n")
    };
    assert!(one == other, "written:\n{}\nread:\n{}", only(&one, &other), only(&other, &one));
}

#[test]
fn the_log_from_the_start_gives_the_data() {
    let seed = laneway_testkit::seed();
    let mut written = Written::new(seed);
    written.local.store.settings_mut().eviction = laneway_kv::Eviction::AllKeysRandom;
    (0..COMMANDS).for_each(|_| written.step());
    let read = replay(Store::with_seed(!seed), &written.log);
    assert_same(written.local, read);
}

#[test]
fn a_snapshot_and_the_log_since_it_began_give_the_data() {
    saved_and_replayed(Written::new);
}

/// A snapshot has what is on the disk as it was when the snapshot began, whatever is fetched, changed or deleted
/// meanwhile.
#[test]
fn a_snapshot_of_values_on_disk_and_the_log_since_it_began_give_the_data() {
    saved_and_replayed(Written::spilling);
}

fn saved_and_replayed(begin: fn(u64) -> Written) {
    let seed = laneway_testkit::seed();
    let mut written = begin(seed);
    for _ in 0..3 {
        written.local.store.settings_mut().eviction = laneway_kv::Eviction::VolatileLru;
        (0..COMMANDS / 8).for_each(|_| written.step());
        let (mut snapshot, mut steps) = (Vec::new(), 0);
        written.log.clear();
        written.local.store.snapshot_begin();
        while written.local.store.snapshot_step(150, usize::MAX, &mut snapshot)
            == SnapshotStep::More
        {
            (0..20).for_each(|_| written.step());
            while written.local.store.snapshot_waits() {
                written.local.store.answered();
                std::thread::yield_now();
            }
            steps += 1;
        }
        assert_eq!(written.local.store.snapshot_failed(), None);
        (0..COMMANDS / 8).for_each(|_| written.step());
        let (mut store, mut at) = (Store::with_seed(!seed), 0);
        while at < snapshot.len() {
            at += store.load_entry(&snapshot[at..]).expect("it was written so");
        }
        eprintln!(
            "{} bytes in {steps} steps, {} commands since; {:?}",
            snapshot.len(),
            written.log.len(),
            written.local.store.spill_counts()
        );
        let read = replay(store, &written.log);
        assert_same(written.local, read);
        written = begin(written.draw.draw());
    }
}

#[test]
fn a_damaged_snapshot_is_refused_and_never_panics() {
    let mut written = Written::new(1);
    for command in ["rpush k1 a b c", "sadd k2 1 2 3", "sadd k3 a b", "hset k4 f v", "zadd k5 1 m"]
    {
        written.ask(command.split(' ').map(|word| word.as_bytes().to_vec()).collect());
    }
    let mut snapshot = Vec::new();
    written.local.store.snapshot_begin();
    while written.local.store.snapshot_step(100, 1, &mut snapshot) == SnapshotStep::More {}
    let (mut at, mut draw) = (0, Random::seeded(2));
    while at < snapshot.len() {
        let len = Store::with_seed(1).load_entry(&snapshot[at..]).expect("it was written so");
        let entry = &snapshot[at..at + len];
        if draw.index(20) == 0 {
            for cut in 0..len {
                let refused = Store::with_seed(1).load_entry(&entry[..cut]);
                assert!(refused.is_err_and(|damaged| damaged.at <= cut), "cut at {cut}");
            }
            for at in 0..len {
                let mut other = entry.to_vec();
                other[at] ^= 1 << draw.index(8);
                // It may still be an entry; that is what checksums are for.
                let _ = Store::with_seed(1).load_entry(&other);
            }
        }
        at += len;
    }
}

/// Arguments at the edges of what commands read.
const STRANGE: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "3",
    "9223372036854775807",
    "-9223372036854775808",
    "-9223372036854775807",
    "9223372036854775808",
    "4611686018427387904",
    "1e308",
    "-1e308",
    "inf",
    "-inf",
    "nan",
    "1e-320",
    "0.1",
    "",
    " ",
    "(",
    "[",
    "#",
    "#1",
    "-",
    "+",
    "*",
    "[a-",
    "\\",
    "k0",
    "k1",
    "k2",
    "k3",
    "k4",
    "a",
    "b",
    "get",
    "set",
    "incrby",
    "i64",
    "u63",
    "u1",
    "overflow",
    "sat",
    "fail",
    "wrap",
    "ex",
    "px",
    "exat",
    "pxat",
    "nx",
    "xx",
    "gt",
    "lt",
    "ch",
    "incr",
    "keepttl",
    "persist",
    "match",
    "count",
    "type",
    "limit",
    "withscores",
    "withvalues",
    "rev",
    "byscore",
    "bylex",
    "weights",
    "aggregate",
    "sum",
    "min",
    "max",
    "left",
    "right",
    "before",
    "after",
    "rank",
    "maxlen",
    "db",
    "replace",
    "idx",
    "len",
    "minmatchlen",
    "withmatchlen",
    "bit",
    "byte",
    "and",
    "not",
    "xor",
    "store",
    "async",
];

#[test]
fn no_arguments_make_a_command_panic() {
    let mut draw = Random::seeded(laneway_testkit::seed());
    let mut local = Local::new(Store::with_seed(1), START_MS);
    let rows: Vec<_> = laneway_kv::DATA_COMMANDS.iter().copied().flatten().collect();
    for round in 0..200_000 {
        let row = rows[draw.index(rows.len())];
        let mut args: Args = row.name.split('|').map(|word| word.as_bytes().to_vec()).collect();
        let least = row.arity.unsigned_abs() as usize;
        let more = if row.arity < 0 { draw.index(6) } else { 0 };
        while args.len() < least + more {
            args.push(draw.one_of(STRANGE).as_bytes().to_vec());
        }
        // Most keys are of a few, so that they hold something.
        if draw.index(4) > 0 && args.len() > 1 && !row.name.contains('|') {
            args[1] = format!("k{}", draw.index(5)).into_bytes();
        }
        let reply = local.ask(&args);
        assert!(!reply.is_empty(), "{} answers nothing", shown(&args.join(&b' ')));
        if round % 1_000 == 0 {
            local.ask(&[b"flushall".to_vec()]);
            local.now_ms += 1_000;
        }
    }
}
