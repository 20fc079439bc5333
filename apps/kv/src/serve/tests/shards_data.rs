//! What becomes of keys that are another worker's: eviction, expiry, SLOWLOG, snapshots.

use super::durable::logged;
use super::shards::Crew;
use super::*;
use crate::data::Eviction;

/// Of two workers the first has `{b}`, the second `{a}`.
const TAGS: [&str; 2] = ["{b}", "{a}"];

fn field(crew: &mut Crew, section: &str, name: &str) -> u64 {
    let conn = crew.open(0);
    let info = crew.ask(conn, &format!("INFO {section}"));
    let found = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.unwrap_or_else(|| panic!("{name}: {info}")).parse().expect("a number")
}

#[test]
fn each_worker_evicts_from_its_own_share_of_the_memory() {
    let mut config = Config::default();
    config.data.memory_bytes_max = Some(40_000);
    config.data.eviction = Eviction::AllKeysLru;
    let mut crew = Crew::with(2, config);
    let (conn, other) = (crew.open(0), crew.open(1));
    let value = "v".repeat(100);
    // All at the other worker of either client: the home of none of them is full.
    for number in 0..400 {
        for (conn, tag) in [(conn, TAGS[1]), (other, TAGS[0])] {
            assert_eq!(crew.ask(conn, &format!("SET {tag}{number} {value}")), "+OK\r\n");
        }
    }
    for world in &crew.worlds {
        let used = world.kv.server.store.used_bytes();
        assert!((10_000..=20_500).contains(&used), "{used}");
    }
    let keys: u64 = crew.ask(conn, "DBSIZE")[1..].trim().parse().expect("a number");
    let evicted = field(&mut crew, "stats", "evicted_keys");
    assert_eq!(keys + evicted, 800, "every key is there or counted");
    assert!(evicted > 400);
    // Where nothing may go, the worker of the key refuses every client, and the other goes on.
    assert_eq!(crew.ask(conn, "CONFIG SET maxmemory-policy noeviction"), "+OK\r\n");
    let long = "w".repeat(3_000);
    while crew.ask(other, &format!("APPEND {}more {long}", TAGS[1])).starts_with(':') {}
    let refused = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";
    for asked in [conn, other] {
        assert_eq!(crew.ask(asked, &format!("SET {}x v", TAGS[1])), refused);
        assert_eq!(crew.ask(asked, &format!("DEL {}none", TAGS[1])), ":0\r\n");
        assert_eq!(crew.ask(asked, &format!("GET {}none", TAGS[1])), "$-1\r\n");
    }
    crew.ask(conn, &format!("DEL {}399 {}398 {}397", TAGS[0], TAGS[0], TAGS[0]));
    assert_eq!(crew.ask(conn, &format!("SET {}x v", TAGS[0])), "+OK\r\n");
}

#[test]
fn a_worker_without_memory_queues_nothing_for_another() {
    let mut crew = Crew::new(2);
    let conn = crew.open(0);
    for tag in TAGS {
        assert_eq!(crew.ask(conn, &format!("SET {tag} v")), "+OK\r\n");
    }
    assert_eq!(crew.ask(conn, "CONFIG SET maxmemory 2"), "+OK\r\n");
    let refused = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";
    let discarded = "-EXECABORT Transaction discarded because of previous errors.\r\n";
    for tag in TAGS {
        for command in ["SET", "GET"] {
            let value = if command == "SET" { "v" } else { "" };
            assert_eq!(crew.ask(conn, "MULTI"), "+OK\r\n");
            assert_eq!(crew.ask(conn, &format!("{command} {tag} {value}")), refused);
            assert_eq!(crew.ask(conn, "EXEC"), discarded);
        }
    }
}

#[test]
fn keys_of_another_worker_expire_whether_they_are_asked_for_or_not() {
    let mut crew = Crew::new(2);
    let conn = crew.open(0);
    for tag in TAGS {
        assert_eq!(crew.ask(conn, &format!("SET {tag}k v PX 50")), "+OK\r\n");
        assert_eq!(crew.ask(conn, &format!("RPUSH {tag}l a b")), ":2\r\n");
        assert_eq!(crew.ask(conn, &format!("PEXPIRE {tag}l 1000")), ":1\r\n");
        assert_eq!(crew.ask(conn, &format!("PTTL {tag}k")), ":50\r\n");
    }
    // Their time passes, and no worker has had a tick since.
    for world in &crew.worlds {
        world.now_us.set(world.now_us.get() + 60_000);
    }
    let own = crew.worlds[0].ask(conn.1, &format!("GET {}k", TAGS[0]));
    assert_eq!(own, "$-1\r\n");
    assert_eq!(crew.ask(conn, &format!("EXISTS {}k", TAGS[1])), ":0\r\n");
    assert_eq!(crew.ask(conn, "DBSIZE"), ":2\r\n");
    assert_eq!(crew.ask(conn, &format!("TTL {}l", TAGS[1])), ":1\r\n");
    assert_eq!(crew.ask(conn, &format!("PERSIST {}l", TAGS[0])), ":1\r\n");
    crew.pass_ms(1_000);
    assert_eq!(crew.ask(conn, "DBSIZE"), ":1\r\n", "no client has asked for it");
    assert_eq!(field(&mut crew, "stats", "expired_keys"), 3);
    assert_eq!(crew.ask(conn, &format!("LLEN {}l", TAGS[0])), ":2\r\n");
}

#[test]
fn the_slow_log_is_that_of_all_workers() {
    let mut crew = Crew::new(2);
    let conn = crew.open(0);
    assert_eq!(crew.ask(conn, "CONFIG SET slowlog-log-slower-than 0"), "+OK\r\n");
    assert_eq!(crew.ask(conn, "SLOWLOG RESET"), "+OK\r\n");
    for (at, tag) in [TAGS[1], TAGS[0], TAGS[1]].into_iter().enumerate() {
        assert_eq!(crew.ask(conn, &format!("SET {tag}slow {at}")), "+OK\r\n");
        crew.pass_ms(1_000);
    }
    let reply = crew.ask(conn, "SLOWLOG GET 100");
    let at = |text: String| reply.find(&text).unwrap_or_else(|| panic!("{text}: {reply}"));
    let newest_first = [(TAGS[1], 2), (TAGS[0], 1), (TAGS[1], 0)]
        .map(|(tag, value)| at(format!("$7\r\n{tag}slow\r\n$1\r\n{value}\r\n$15\r\n{HOME}\r\n")));
    assert!(newest_first.is_sorted(), "{reply}");
    let newest = crew.ask(conn, "SLOWLOG GET 1");
    assert!(newest.starts_with("*1\r\n*6\r\n:"), "{newest}");
    let len: u64 = crew.ask(conn, "SLOWLOG LEN")[1..].trim().parse().expect("a number");
    assert!(len >= 3);
    assert_eq!(crew.ask(conn, "CONFIG SET slowlog-log-slower-than -1"), "+OK\r\n");
    assert_eq!(crew.ask(conn, "SLOWLOG RESET"), "+OK\r\n");
    assert_eq!(crew.ask(conn, "SLOWLOG LEN"), ":0\r\n");
    assert_eq!(crew.ask(conn, "SLOWLOG GET"), "*0\r\n");
}

#[test]
fn a_snapshot_is_of_all_workers_and_saved_when_all_are() {
    let (worlds, logs): (Vec<World>, Vec<_>) = (0..2).map(|_| logged(Fsync::No)).unzip();
    let mut crew = Crew::of(worlds);
    let conn = crew.open(1);
    for number in 0..20 {
        for tag in TAGS {
            assert_eq!(crew.ask(conn, &format!("SET {tag}{number} {number}")), "+OK\r\n");
        }
    }
    // One worker's writer is behind: nothing is in place before it has caught up.
    logs[0].borrow_mut().is_behind = true;
    assert_eq!(crew.ask(conn, "SAVE"), "");
    let other = crew.open(0);
    crew.pass_ms(5);
    assert_eq!(crew.received(conn), "", "the other worker alone is none");
    assert_eq!(field(&mut crew, "persistence", "rdb_bgsave_in_progress"), 1);
    assert_eq!(crew.ask(other, &format!("SET {}0 meanwhile", TAGS[1])), "+OK\r\n");
    logs[0].borrow_mut().is_behind = false;
    crew.pass_ms(5);
    crew.pass_ms(5);
    assert_eq!(crew.received(conn), "+OK\r\n");
    assert_eq!(crew.ask(conn, "BGSAVE"), "+Background saving started\r\n");
    crew.pass_ms(5);
    crew.pass_ms(5);
    assert_eq!(field(&mut crew, "persistence", "rdb_saves"), 2);
    assert_eq!(field(&mut crew, "persistence", "rdb_bgsave_in_progress"), 0);
    let mut again = Crew::new(2);
    for (world, log) in again.worlds.iter_mut().zip(&logs) {
        for piece in &log.borrow().pieces {
            world.kv.load(piece).expect("what was saved");
        }
    }
    let conn = again.open(0);
    assert_eq!(again.ask(conn, "DBSIZE"), ":40\r\n");
    assert_eq!(again.ask(conn, &format!("GET {}0", TAGS[1])), "$9\r\nmeanwhile\r\n");
    assert_eq!(again.ask(conn, &format!("GET {}19", TAGS[0])), "$2\r\n19\r\n");
    let keys = |world: &World| world.kv.server.store.databases().map(|d| d.keys).sum::<usize>();
    assert_eq!(again.worlds.iter().map(keys).collect::<Vec<_>>(), [20, 20]);
}
