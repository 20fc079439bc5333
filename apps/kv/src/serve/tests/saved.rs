//! Snapshots: what a start from one has, on a simulated disk and whatever happens meanwhile; what operators ask; and
//! what a turn may take.

use super::durable::logged;
use super::*;
use crate::file_log;
use laneway_journal::faults::{Disk, Fault};
use laneway_journal::{Journal as OnDisk, Next, OpenError, Options, Policy, Recovered, Writer};
use laneway_random::Random;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;

/// Longer than [`save::PAUSE_US`].
const STEP_US: u64 = 150;
const DATABASES: usize = 3;
/// No test comes to it.
const LATER_MS: u64 = START_US / 1000 + 90_000_000;

/// A server on a simulated disk, whose writer does its work when the test asks it to.
struct OnADisk {
    world: World,
    writer: Writer,
    recovered: Recovered,
    conn: ConnId,
}

impl OnADisk {
    fn start(disk: &Disk, policy: Policy, now_us: u64) -> Result<OnADisk, OpenError> {
        OnADisk::with_room(disk, policy, now_us, 64 << 10)
    }

    /// The same, where so many bytes may wait for the writer.
    fn with_room(
        disk: &Disk,
        policy: Policy,
        now_us: u64,
        waiting_bytes_max: usize,
    ) -> Result<OnADisk, OpenError> {
        let mut world = World::new();
        world.now_us.set(now_us);
        // So that a snapshot of few keys takes many turns.
        let bounds = &mut world.kv.server.saving.bounds;
        (bounds.keys_max, bounds.step_bytes) = (2, 300);
        let options = Options {
            policy,
            segment_bytes: 4096,
            snapshot_chunk_bytes: 256,
            waiting_bytes_max,
            clock: disk.clock(),
            ..Options::default()
        };
        let files = Box::new(disk.clone());
        let restore =
            |restored: laneway_journal::Restored<'_>| file_log::restore(&mut world.kv, restored);
        let (journal, writer, recovered) =
            OnDisk::open_by_hand(files, Path::new("data"), options, restore)?;
        file_log::join(&mut world.kv, journal, &recovered)?;
        let conn = world.open();
        Ok(OnADisk { world, writer, recovered, conn })
    }

    /// A turn of the server, and one of the writer.
    fn turn(&mut self) -> Next {
        self.world.now_us.set(self.world.now_us.get() + STEP_US);
        self.world.turn();
        self.writer.turn()
    }

    fn ask(&mut self, line: &str) -> String {
        self.world.arrive(self.conn, &array(line));
        self.turn();
        self.turn();
        self.world.received(self.conn)
    }

    fn is_saving(&self) -> bool {
        self.world.kv.server.saving.due_us().is_some()
            || self.world.kv.server.journal.snapshot() == Snapshot::Writing
    }

    fn save(&mut self) {
        assert_eq!(self.ask("BGSAVE"), "+Background saving started\r\n");
        while self.is_saving() {
            self.turn();
        }
        self.turn();
    }

    fn dump(&mut self) -> Vec<String> {
        dump(&mut self.world)
    }
}

/// What the data are, key by key, as they are at time 0: nothing is due then.
fn dump(world: &mut World) -> Vec<String> {
    let mut reply = Reply::default();
    let mut ask = |database: usize, words: &[&str]| -> Vec<String> {
        let args: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let Found::Row(index) = world.kv.server.table.find(&args) else { panic!("{words:?}") };
        let Run::Data(run) = world.kv.server.table.command(index).run else { panic!("{words:?}") };
        reply.clear();
        world.kv.server.restore(run, database, &args, &mut reply);
        let text = String::from_utf8_lossy(reply.bytes()).into_owned();
        let heads = ['$', '*'];
        text.split("\r\n").filter(|line| !line.starts_with(heads)).map(str::to_owned).collect()
    };
    let mut lines = Vec::new();
    for database in 0..DATABASES {
        for key in ask(database, &["KEYS", "*"]).iter().filter(|key| !key.is_empty()) {
            let kind = ask(database, &["TYPE", key])[0].clone();
            let mut value = match kind.as_str() {
                "+string" => ask(database, &["GET", key]),
                "+list" => ask(database, &["LRANGE", key, "0", "-1"]),
                "+set" => ask(database, &["SMEMBERS", key]),
                "+hash" => ask(database, &["HGETALL", key]),
                _ => ask(database, &["ZRANGE", key, "0", "-1", "WITHSCORES"]),
            };
            match kind.as_str() {
                "+set" => value.sort(),
                "+hash" => {
                    let mut pairs: Vec<String> =
                        value.chunks(2).map(|pair| pair.join("=")).collect();
                    pairs.sort();
                    value = pairs;
                }
                _ => {}
            }
            let deadline = ask(database, &["PEXPIRETIME", key]);
            lines.push(format!("{database} {key} {kind} {} {}", deadline[0], value.join(" ")));
        }
    }
    lines.sort();
    lines
}

/// A random write to one of a few keys of every kind; each is answered by one line, or a line with its length.
/// `is_known`: what it does follows from the data alone, and no time comes due.
fn write(random: &mut Random, is_known: bool) -> String {
    let mut key = |kind: &str| format!("{kind}{}", random.below(8));
    let (t, u) = (key("t"), key("t"));
    let [l, m] = [key("l"), key("l")];
    let [s, p] = [key("s"), key("s")];
    let [h, z, any] = [key("h"), key("z"), key(["t", "l", "s", "h", "z"][0])];
    let n = random.below(40);
    let long = "x".repeat(random.below(400) as usize);
    let other = random.below(DATABASES as u64);
    let choice = random.below(if is_known { 36 } else { 44 });
    match choice {
        0 => format!("SET {t} {n}"),
        1 => format!("SET {t} v{long}"),
        2 => format!("INCRBY n{} {n}", n % 4),
        3 => format!("APPEND {t} {n}"),
        4 => format!("SETRANGE {t} {n} ab"),
        5 => format!("SETBIT b{} {n} 1", n % 3),
        6 => format!("INCRBYFLOAT f{} 0.{n}", n % 3),
        7 => format!("GETDEL {t}"),
        8 => format!("SET {t} {n} PXAT {}", LATER_MS + n),
        9 => format!("RPUSH {l} a{n} {long}b"),
        10 => format!("LPUSH {l} c{n}"),
        11 => format!("LMOVE {l} {m} LEFT RIGHT"),
        12 => format!("LINSERT {l} BEFORE c{n} d"),
        13 => format!("LTRIM {l} 1 9"),
        14 => format!("LREM {l} 1 a{n}"),
        15 => format!("SADD {s} {n} {}", n + 1),
        16 => format!("SADD {s} w{n}"),
        17 => format!("SMOVE {s} {p} {n}"),
        18 => format!("SREM {s} {n}"),
        19 => format!("SUNIONSTORE {s} {p} s0 s1"),
        20 => format!("HSET {h} f{n} {n} g {long}v"),
        21 => format!("HINCRBY {h} i{} {n}", n % 3),
        22 => format!("HDEL {h} f{n}"),
        23 => format!("ZADD {z} {n} m{n} 2 o"),
        24 => format!("ZINCRBY {z} 1.5 m{n}"),
        25 => format!("ZREM {z} m{n}"),
        26 => format!("ZRANGESTORE {z} z0 0 3"),
        27 => format!("PEXPIREAT {any} {}", LATER_MS + n),
        28 => format!("PERSIST {any}"),
        29 => format!("RENAME {l} {m}"),
        30 => format!("COPY {s} {p} REPLACE"),
        31 => format!("MOVE {t} {other}"),
        32 => format!("DEL {t} {l} {h}"),
        33 if n < 3 => format!("SWAPDB 0 {other}"),
        34 if n < 3 => "FLUSHDB".to_owned(),
        33..36 => format!("SELECT {other}"),
        36 => format!("SPOP {s}"),
        37 => format!("SET {t} {n} PX {}", 1 + n),
        38 => format!("PEXPIRE {l} {n}"),
        39 => format!("EXPIRE {u} 1"),
        40 => format!("HSET {h} e 1"),
        41 => format!("PEXPIRE {h} {n}"),
        42 => format!("LPOP {l} 2"),
        _ => format!("ZPOPMIN {z} 2"),
    }
}

/// How many replies there are: each is a line, and what a `$` announces is one more.
fn replies(text: &str) -> usize {
    let (mut lines, mut count) = (text.split("\r\n").filter(|line| !line.is_empty()), 0);
    while let Some(line) = lines.next() {
        if line.starts_with('$') && line != "$-1" {
            lines.next();
        }
        count += 1;
    }
    count
}

/// What commands the tests of crashes do, and where they ask for a snapshot.
const COMMANDS: usize = 110;
const SAVES_AT: [usize; 3] = [40, 60, 85];

struct Script {
    lines: Vec<String>,
    /// The data when so many of them are done.
    states: Vec<Vec<String>>,
}

impl Script {
    fn new(seed: u64) -> Script {
        let mut random = Random::seeded(seed);
        let lines: Vec<String> = (0..COMMANDS).map(|_| write(&mut random, true)).collect();
        let mut world = World::new();
        let conn = world.open();
        let mut states = vec![dump(&mut world)];
        for line in &lines {
            let reply = world.ask(conn, line);
            assert_eq!(replies(&reply), 1, "{line}: {reply}");
            states.push(dump(&mut world));
        }
        Script { lines, states }
    }

    /// Does it until the disk, or the log, is gone: how many commands were answered, and how many done.
    fn run(&self, disk: &Disk) -> (usize, usize) {
        let Ok(mut server) = OnADisk::start(disk, Policy::Always, START_US) else { return (0, 0) };
        let operator = server.world.open();
        let (mut answered, mut done) = (0, 0);
        for line in &self.lines {
            if SAVES_AT.contains(&done) {
                server.world.arrive(operator, &array("BGSAVE SCHEDULE"));
            }
            server.world.arrive(server.conn, &array(line));
            done += 1;
            server.turn();
            answered += replies(&server.world.received(server.conn));
            if disk.is_cut() || server.world.kv.log_failed().is_some() {
                break;
            }
        }
        // What is on its way when it ends is answered or not.
        server.turn();
        server.world.turn();
        (answered + replies(&server.world.received(server.conn)), done)
    }
}

#[test]
fn no_fault_during_a_snapshot_loses_what_was_answered_under_always() {
    let seed = RandomState::new().hash_one(1);
    let script = Script::new(seed);
    let (mut from_snapshots, mut failed, mut operation) = (0, 0, 0);
    for fault in [None, Some(Fault::Io), Some(Fault::NoSpace)] {
        operation = 0;
        loop {
            let disk = Disk::new(seed ^ operation);
            match fault {
                None => disk.cut_power_at(operation),
                Some(fault) => disk.fail_at(operation, fault),
            }
            let (answered, done) = script.run(&disk);
            let is_over = disk.operations() <= operation;
            // A cut of the power, or the end of the process.
            if fault.is_none() || operation % 2 == 0 {
                disk.restart();
            }
            disk.repair();
            let what = format!("seed {seed}, {fault:?} at operation {operation}");
            let mut server = OnADisk::start(&disk, Policy::Always, START_US)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            let (dump, recovered) = (server.dump(), &server.recovered);
            let may_be = &script.states[answered..=done];
            assert!(
                may_be.contains(&dump),
                "{what}: {answered} of {done} were answered; {recovered}; the data are those of {:?}",
                script.states.iter().rposition(|state| *state == dump)
            );
            from_snapshots += u64::from(recovered.snapshot.is_some());
            failed += u64::from(done < COMMANDS);
            if is_over {
                assert_eq!((answered, done), (COMMANDS, COMMANDS), "{what}: no fault was met");
                break;
            }
            operation += 1;
        }
        assert!(operation > 100, "{operation} operations");
    }
    assert!(from_snapshots > 100 && failed > 100, "{from_snapshots}, {failed} of {operation}");
}

#[test]
fn a_start_has_the_data_of_before_whatever_was_being_saved() {
    let mut from_snapshots = 0;
    for world in 0..40 {
        let seed = RandomState::new().hash_one(world);
        let (mut random, disk) = (Random::seeded(seed), Disk::new(seed));
        let policy = [Policy::Always, Policy::EverySecond, Policy::No][(seed % 3) as usize];
        let mut now_us = START_US;
        let mut before = Vec::new();
        for life in 0..5 {
            let what = format!("seed {seed}, {policy}, life {life}");
            let mut server = OnADisk::start(&disk, policy, now_us)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            let after = server.dump();
            assert!(after == before, "{what}: {}\n{before:#?}\n{after:#?}", server.recovered);
            from_snapshots += u64::from(server.recovered.snapshot.is_some());
            for _ in 0..random.below(250) {
                match random.below(30) {
                    0 => server.world.arrive(server.conn, &array("BGSAVE")),
                    1 => server.world.arrive(server.conn, &array("BGREWRITEAOF")),
                    2 => server.world.pass_ms(random.below(40)),
                    3 => {
                        let lines = [write(&mut random, false), write(&mut random, false)];
                        let [one, two] = lines.each_ref().map(|line| array(line));
                        let all = [array("MULTI"), one, two, array("EXEC")].concat();
                        server.world.arrive(server.conn, &all);
                    }
                    4..12 => server.world.arrive(server.conn, &array(&write(&mut random, false))),
                    12..16 => {
                        server.writer.turn();
                    }
                    _ => {
                        server.turn();
                    }
                }
            }
            // What was done is written, and nothing closed: a kill. A snapshot may be on its way.
            server.turn();
            server.turn();
            disk.pass_ns(2_000_000_000);
            server.writer.turn();
            before = server.dump();
            now_us = server.world.now_us.get();
        }
    }
    assert!(from_snapshots > 20, "{from_snapshots} starts from snapshots");
}

/// What a server leaves that has saved twice, with a write behind each.
struct Saved {
    disk: Disk,
    /// The files before the second.
    older: Vec<(String, Vec<u8>)>,
    dump: Vec<String>,
}

fn saved() -> Saved {
    let disk = Disk::new(1);
    let mut server = OnADisk::start(&disk, Policy::Always, START_US).expect("a new folder");
    for number in 0..200 {
        server.ask(&format!("SET k{number} {number}"));
    }
    server.save();
    let files = |disk: &Disk| {
        let content = |name: String| disk.content(&name).map(|content| (name, content));
        disk.names().into_iter().filter_map(content).collect()
    };
    server.ask("SET k1 one");
    let older = files(&disk);
    server.save();
    server.ask("SET k2 two");
    let dump = server.dump();
    Saved { disk, older, dump }
}

/// Damages the newest snapshot; its name.
fn damage(disk: &Disk) -> String {
    let names = disk.names();
    let name = names.iter().rfind(|name| name.ends_with(".snapshot")).expect("it is there");
    let mut content = disk.content(name).expect("it is there");
    content[100] ^= 1;
    disk.put(name, &content);
    name.clone()
}

#[test]
fn a_snapshot_takes_the_place_of_older_records_and_a_damaged_one_is_reported() {
    let Saved { disk, older, dump } = saved();
    let count = |end: &str| disk.names().iter().filter(|name| name.ends_with(end)).count();
    assert_eq!((count(".snapshot"), count(".log")), (1, 1), "{:?}", disk.names());
    let mut server = OnADisk::start(&disk, Policy::Always, START_US).expect("it is whole");
    assert_eq!(server.dump(), dump);
    assert_eq!((server.recovered.records, server.recovered.segments), (1, 1));
    assert!(server.ask("INFO persistence").contains("rdb_last_load_keys_loaded:200\r\n"));
    drop(server);
    let name = damage(&disk);
    let refused = OnADisk::start(&disk, Policy::Always, START_US).map(|_| ());
    let why = refused.expect_err("what it held is nowhere else").to_string();
    assert!(why.contains(&name) && why.contains("restore the folder from a copy"), "{why}");
    // With the older one and the log behind it, put back, that one is begun with.
    for (name, content) in &older {
        disk.put(name, content);
    }
    let mut server = OnADisk::start(&disk, Policy::Always, START_US).expect("the older one");
    assert_eq!(server.dump(), dump);
    let reply = server.ask("INFO persistence");
    assert!(reply.contains(&name) && reply.contains("is damaged"), "{reply}");
}

#[test]
fn a_value_longer_than_a_piece_is_loaded_again() {
    let disk = Disk::new(1);
    let mut server = OnADisk::start(&disk, Policy::Always, START_US).expect("a new folder");
    server.ask("SET short 1");
    for _ in 0..8 {
        server.ask(&format!("APPEND long {}", "v".repeat(30_000)));
    }
    server.save();
    let dump = server.dump();
    drop(server);
    let mut server = OnADisk::start(&disk, Policy::Always, START_US).expect("it is whole");
    assert_eq!((server.dump(), server.recovered.records), (dump, 0));
    assert!(server.recovered.entries > 3, "{}", server.recovered);
}

#[test]
fn pieces_that_no_server_writes_are_refused() {
    let mut world = World::new();
    let conn = world.open();
    for (piece, why) in [
        (&b""[..], "a piece of the snapshot is empty"),
        (&[7, 1][..], "the snapshot has a piece of an unknown kind, 7"),
        (&[1, 0, 0, 9][..], "the entry of the snapshot cannot be read from its byte 3 on"),
    ] {
        let refused = world.kv.load(piece);
        assert_eq!(refused, Err(why.to_owned()));
    }
    // Half an entry, and no more of it.
    assert_eq!(world.kv.load(&[0, 0]), Ok(()));
    assert_eq!(
        world.kv.restore(&array("SET k 1")),
        Err("the snapshot before it ends inside an entry".to_owned())
    );
    let mut config = Config::default();
    config.data.databases = 2;
    let mut few = World::with(config, None);
    let (mut other, mut entries) = (World::new(), vec![1]);
    let conn_of_other = other.open();
    other.ask(conn_of_other, "SELECT 2");
    other.ask(conn_of_other, "SET k 1");
    other.kv.server.store.snapshot_begin();
    let whole = other.kv.server.store.snapshot_step(100, 1_000, &mut entries);
    assert_eq!(whole, crate::data::SnapshotStep::Done);
    let why = few.kv.load(&entries).expect_err("there are two");
    assert_eq!(why, "the snapshot has keys of database 2, which there is not; raise --databases");
    world.close(conn);
}

#[test]
fn a_turn_gives_a_snapshot_a_bounded_number_of_keys() {
    let (mut world, memory) = logged(Fsync::No);
    let conn = world.open();
    for number in 0..1_000 {
        world.ask(conn, &format!("SET k{number} {number}"));
    }
    let keys_max = world.kv.server.saving.bounds.keys_max;
    assert_eq!(world.ask(conn, "BGSAVE"), "+Background saving started\r\n");
    let mut turns = 0;
    let mut pieces = memory.borrow().pieces.len();
    while memory.borrow().snapshot == Some(Snapshot::Writing) {
        let due_ns = world.kv.due_ns().expect("it wants a turn although nothing comes");
        let now_ns = (world.now_us.get() - START_US) * 1000;
        assert!(due_ns > now_ns && due_ns <= now_ns + 1_000_000, "{due_ns}, {now_ns}");
        // A turn that comes early gives nothing.
        world.turn();
        assert_eq!(memory.borrow().pieces.len(), pieces);
        world.now_us.set(world.now_us.get() + STEP_US);
        world.turn();
        pieces = memory.borrow().pieces.len();
        turns += 1;
    }
    assert!(turns + 1 >= 1_000 / keys_max, "{turns} turns");
    assert_eq!(world.kv.due_ns(), None);
    let mut again = World::new();
    let keys = |kv: &Kv| kv.server.store.databases().map(|one| one.keys).sum::<usize>();
    for piece in &memory.borrow().pieces {
        let before = keys(&again.kv);
        again.kv.load(piece).expect("as it was written");
        assert!(keys(&again.kv) <= before + keys_max, "a turn's piece");
    }
    assert_eq!(dump(&mut again), dump(&mut world));
}

#[test]
fn writes_wait_while_more_is_copied_than_may_be_and_reads_do_not() {
    let (mut world, memory) = logged(Fsync::No);
    let conn = world.open();
    for number in 0..500 {
        world.ask(conn, &format!("SET k{number} {number}"));
    }
    world.kv.server.saving.bounds.copied_bytes_max = 600;
    memory.borrow_mut().is_behind = true;
    world.ask(conn, "BGSAVE");
    let reader = world.open();
    let mut reply = String::new();
    for number in 0..500 {
        world.now_us.set(world.now_us.get() + STEP_US);
        reply = world.ask(conn, &format!("SET k{number} other"));
        if reply.is_empty() {
            break;
        }
    }
    assert!(reply.is_empty(), "a bound is reached");
    assert!(world.kv.server.store.snapshot_copied_bytes() < 2_000);
    assert_eq!(world.kv.due_ns(), None, "the bell says when there is room");
    assert_eq!(world.ask(reader, "GET none"), "$-1\r\n");
    memory.borrow_mut().is_behind = false;
    for _ in 0..100 {
        world.now_us.set(world.now_us.get() + STEP_US);
        world.turn();
    }
    assert_eq!(world.received(conn), "+OK\r\n");
    assert_eq!(memory.borrow().snapshot, Some(Snapshot::InPlace));
    let mut again = World::new();
    for piece in &memory.borrow().pieces {
        again.kv.load(piece).expect("as it was written");
    }
    let lines = dump(&mut again);
    assert_eq!(lines.len(), 500);
    assert!(lines.iter().all(|line| !line.contains("other")), "of the moment when it began");
}

#[test]
fn operators_ask_for_snapshots_as_of_redis() {
    let (mut world, memory) = logged(Fsync::No);
    let (conn, other) = (world.open(), world.open());
    for number in 0..400 {
        world.ask(conn, &format!("SET k{number} {number}"));
    }
    let field = |world: &mut World, name: &str| {
        let reply = world.ask(other, "INFO persistence");
        let line = reply.split("\r\n").find_map(|line| line.strip_prefix(&format!("{name}:")));
        line.unwrap_or_else(|| panic!("no {name} in {reply}")).to_owned()
    };
    let pass = |world: &mut World, turns: usize| {
        for _ in 0..turns {
            world.now_us.set(world.now_us.get() + STEP_US);
            world.turn();
        }
    };
    let started_s = START_US / 1_000_000;
    assert_eq!(world.ask(other, "LASTSAVE"), format!(":{started_s}\r\n"));
    assert_eq!(field(&mut world, "rdb_changes_since_last_save"), "400");
    world.now_us.set(world.now_us.get() + 5_000_000);
    // SAVE is answered when it has ended; others are served.
    assert_eq!(world.ask(conn, "SAVE"), "");
    assert_eq!(field(&mut world, "rdb_bgsave_in_progress"), "1");
    for line in ["SAVE", "BGSAVE", "BGSAVE SCHEDULE"] {
        assert_eq!(world.ask(other, line), "-ERR Background save already in progress\r\n");
    }
    assert_eq!(world.ask(conn, "SET k0 queued"), "", "behind SAVE");
    assert_eq!(
        world.ask(other, "BGREWRITEAOF"),
        "+Background append only file rewriting scheduled\r\n"
    );
    assert_eq!(field(&mut world, "aof_rewrite_scheduled"), "1");
    assert_eq!(
        world.ask(other, "BGREWRITEAOF"),
        "-ERR Background append only file rewriting already in progress\r\n"
    );
    while field(&mut world, "rdb_bgsave_in_progress") == "1" {
        pass(&mut world, 1);
    }
    assert_eq!(world.received(conn), "+OK\r\n+OK\r\n");
    assert_eq!(world.ask(other, "LASTSAVE"), format!(":{}\r\n", started_s + 5));
    assert_eq!(field(&mut world, "rdb_changes_since_last_save"), "1", "SET k0 was behind it");
    // The scheduled one follows.
    pass(&mut world, 1);
    assert_eq!(field(&mut world, "aof_rewrite_in_progress"), "1");
    let refused = world.ask(other, "BGSAVE");
    assert!(refused.starts_with("-ERR Another child process is active (AOF?)"), "{refused}");
    assert_eq!(world.ask(other, "BGSAVE SCHEDULE"), "+Background saving scheduled\r\n");
    pass(&mut world, 30);
    for (name, value) in [
        ("aof_rewrite_in_progress", "0"),
        ("aof_rewrite_scheduled", "0"),
        ("rdb_bgsave_in_progress", "0"),
        ("rdb_last_bgsave_status", "ok"),
        ("aof_last_bgrewrite_status", "ok"),
        ("rdb_saves", "3"),
        ("rdb_changes_since_last_save", "0"),
    ] {
        assert_eq!(field(&mut world, name), value, "{name}");
    }
    let size = memory.borrow().bytes.total().to_string();
    assert_eq!(field(&mut world, "aof_base_size"), size);
    for (line, reply) in [
        ("BGSAVE NOW", "-ERR syntax error\r\n"),
        ("SAVE now", "-ERR wrong number of arguments for 'save' command\r\n"),
    ] {
        assert_eq!(world.ask(other, line), reply);
    }
    world.ask(other, "MULTI");
    assert_eq!(world.ask(other, "SAVE"), "-ERR Command not allowed inside a transaction\r\n");
    let mut without = World::new();
    let conn = without.open();
    for line in ["SAVE", "BGSAVE", "BGREWRITEAOF"] {
        let reply = without.ask(conn, line);
        assert!(reply.contains("start with --appendonly yes --dir PATH"), "{line}: {reply}");
    }
}

#[test]
fn a_snapshot_that_fails_is_reported_and_the_next_one_may_do() {
    let (mut world, memory) = logged(Fsync::No);
    let (conn, other) = (world.open(), world.open());
    world.ask(conn, "SET k 1");
    memory.borrow_mut().is_behind = true;
    assert_eq!(world.ask(conn, "SAVE"), "");
    memory.borrow_mut().snapshot = Some(Snapshot::Failed("the disk is full".to_owned()));
    world.turn();
    assert_eq!(world.received(conn), "-ERR the disk is full\r\n");
    let reply = world.ask(other, "INFO persistence");
    assert!(reply.contains("rdb_last_bgsave_status:err\r\n"), "{reply}");
    assert!(reply.contains("last_bgsave_error:the disk is full\r\n"), "{reply}");
    assert_eq!(world.ask(conn, "SET k 2"), "+OK\r\n");
    memory.borrow_mut().is_behind = false;
    assert_eq!(world.ask(conn, "SAVE"), "");
    world.pass_ms(1);
    world.turn();
    assert_eq!(world.received(conn), "+OK\r\n");
    let reply = world.ask(other, "INFO persistence");
    assert!(
        reply.contains("rdb_last_bgsave_status:ok\r\n") && !reply.contains("_error:"),
        "{reply}"
    );
}

#[test]
fn a_client_that_waits_for_save_may_go() {
    let (mut world, memory) = logged(Fsync::No);
    let conn = world.open();
    world.ask(conn, "SET k 1");
    memory.borrow_mut().is_behind = true;
    assert_eq!(world.ask(conn, "SAVE"), "");
    world.close(conn);
    // Another one has its place in the table.
    let next = world.open();
    memory.borrow_mut().is_behind = false;
    world.pass_ms(1);
    world.turn();
    assert_eq!(memory.borrow().snapshot, Some(Snapshot::InPlace));
    assert_eq!(world.ask(next, "PING"), "+PONG\r\n");
}

#[test]
fn a_log_that_has_outgrown_its_snapshot_gets_another() {
    let (mut world, memory) = logged(Fsync::No);
    let conn = world.open();
    for number in 0..50 {
        world.ask(conn, &format!("SET k{number} {number}"));
    }
    let mut is_saved_at = |snapshot: u64, records: u64| {
        let mut memory_now = memory.borrow_mut();
        memory_now.bytes = LogBytes { snapshot, records };
        memory_now.snapshot = None;
        drop(memory_now);
        for _ in 0..5 {
            world.pass_ms(1);
        }
        let is_saved = memory.borrow().snapshot.is_some();
        let ask = world.ask(conn, "INFO persistence");
        assert!(ask.contains("aof_rewrite_in_progress:0"), "{ask}");
        is_saved
    };
    assert!(!is_saved_at(0, 64 << 20), "auto-aof-rewrite-min-size");
    assert!(is_saved_at(0, (64 << 20) + 1));
    // The base is what was left: some hundred bytes, then 100 MiB.
    assert!(is_saved_at(100 << 20, 0));
    world.kv.server.saving.begin_from(100 << 20);
    let mut is_saved_at = |snapshot: u64, records: u64, set: &str| {
        world.ask(conn, set);
        memory.borrow_mut().bytes = LogBytes { snapshot, records };
        memory.borrow_mut().snapshot = None;
        for _ in 0..5 {
            world.pass_ms(1);
        }
        memory.borrow().snapshot.is_some()
    };
    assert!(!is_saved_at(100 << 20, 99 << 20, "PING"));
    assert!(!is_saved_at(100 << 20, 100 << 20, "CONFIG SET auto-aof-rewrite-percentage 0"));
    assert!(!is_saved_at(
        100 << 20,
        100 << 20,
        "CONFIG SET auto-aof-rewrite-percentage 100 auto-aof-rewrite-min-size 300mb"
    ));
    assert!(is_saved_at(100 << 20, 100 << 20, "CONFIG SET auto-aof-rewrite-min-size 64mb"));
}

#[test]
fn a_clock_that_is_set_back_puts_off_no_snapshot_behind_one_that_failed() {
    let (mut world, memory) = logged(Fsync::No);
    let conn = world.open();
    world.ask(conn, "SET k 1");
    world.pass_ms(7_200_000);
    memory.borrow_mut().is_behind = true;
    memory.borrow_mut().bytes = LogBytes { snapshot: 0, records: (64 << 20) + 1 };
    world.pass_ms(1);
    assert_eq!(memory.borrow().snapshot, Some(Snapshot::Writing));
    memory.borrow_mut().snapshot = Some(Snapshot::Failed("the disk is full".to_owned()));
    world.turn();
    memory.borrow_mut().snapshot = None;
    world.pass_ms(30_000);
    assert_eq!(memory.borrow().snapshot, None, "a minute later at the earliest");
    world.now_us.set(world.now_us.get() - 3_600_000_000);
    world.pass_ms(61_000);
    assert_eq!(memory.borrow().snapshot, Some(Snapshot::Writing));
}

#[test]
fn no_snapshot_begins_while_what_was_done_is_in_no_record() {
    let (mut world, memory) = logged(Fsync::No);
    let conn = world.open();
    memory.borrow_mut().is_full = true;
    assert_eq!(world.ask(conn, "INCR n"), ":1\r\n");
    // The record of it would be done again on a snapshot that has it.
    assert_eq!(world.ask(conn, "BGSAVE"), "+Background saving started\r\n");
    world.pass_ms(1);
    assert_eq!(memory.borrow().snapshot, None);
    memory.borrow_mut().is_full = false;
    world.pass_ms(1);
    world.pass_ms(1);
    assert_eq!(memory.borrow().snapshot, Some(Snapshot::InPlace));
    assert_eq!(memory.borrow().records.len(), 1);
}

/// What is too long to be copied behind what waits is left on the server's side, and no other write need follow it.
#[test]
fn a_long_record_behind_a_busy_writer_needs_no_further_write_to_be_durable() {
    let disk = Disk::new(1);
    let room = OnADisk::with_room(&disk, Policy::Always, START_US, 4 << 20);
    let mut server = room.expect("a new folder");
    let long = format!("SET c {}", "v".repeat(300 << 10));
    for line in ["SET a 1", "SET b 2", &long] {
        assert_eq!(server.world.ask(server.conn, line), "");
    }
    let mut replies = String::new();
    for _ in 0..3 {
        server.turn();
        replies += &server.world.received(server.conn);
    }
    assert_eq!(replies, "+OK\r\n".repeat(3));
}

#[test]
fn what_was_left_on_the_servers_side_makes_room_for_what_it_has_no_room_for() {
    let disk = Disk::new(1);
    let room = OnADisk::with_room(&disk, Policy::Always, START_US, 1 << 20);
    let mut server = room.expect("a new folder");
    let set = |key: &str, bytes: usize| format!("SET {key} {}", "v".repeat(bytes));
    for line in ["SET a 1", &set("b", 300 << 10), &set("c", 900 << 10)] {
        assert_eq!(server.world.ask(server.conn, line), "");
    }
    assert!(server.world.kv.server.holds_writes(), "both together are longer than may wait");
    let other = server.world.open();
    assert_eq!(server.world.ask(other, "SET d 4"), "");
    let mut replies = String::new();
    for _ in 0..6 {
        server.turn();
        replies += &server.world.received(server.conn);
    }
    assert_eq!(replies, "+OK\r\n".repeat(3));
    assert_eq!(server.world.received(other), "+OK\r\n");
}

#[test]
fn info_says_what_syncs_have_made_durable() {
    let disk = Disk::new(1);
    let mut server = OnADisk::start(&disk, Policy::Always, START_US).expect("an empty disk");
    for line in ["SET a 1", "GET a", "MSET a 2 b 2", "RPUSH l x y z"] {
        server.ask(line);
    }
    let reply = server.ask("INFO persistence");
    for line in [
        "aof_pending_records:0",
        "aof_syncs:3",
        "aof_synced_records:3",
        "aof_synced_commands:3",
        "aof_synced_commands_max:1",
        "aof_syncs_held:0",
    ] {
        assert!(reply.contains(&format!("{line}\r\n")), "{line}: {reply}");
    }
}
