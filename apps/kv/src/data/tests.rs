//! What the parts do together: walks over splits, deadlines, eviction, memory.

use super::chance::KeyHasher;
use super::directory::{Directory, Keyed, PLACE_END, Shown, walk_all};
use super::numbers::IntegerText;
use super::store::{Eviction, Settings, Store, odds, use_now};
use crate::command::{Call, Outcome, Run};
use crate::effects::{Effects, Logged};
use laneway_random::Random;
use laneway_resp::{Protocol, Reply};
use proptest::prelude::*;
use std::collections::{BTreeSet, HashMap};

#[derive(Clone, Debug)]
struct Number(Box<[u8]>, u32);

impl Keyed for Number {
    fn key(&self) -> &[u8] {
        &self.0
    }
}

fn directory(seed: u64) -> Directory<Number> {
    Directory::new(KeyHasher::new(&mut Random::seeded(seed)))
}

fn key(number: u32) -> Box<[u8]> {
    IntegerText::new(number.into()).bytes().into()
}

proptest! {
    #[test]
    fn a_directory_is_a_map(seed: u64, steps in prop::collection::vec((0_u8..4, 0_u32..3_000), 0..6_000), drains: bool) {
        let (mut directory, mut model) = (directory(seed), HashMap::new());
        let drained = (0..3_000).filter(|_| drains).map(|number| (3, number));
        for (step, (kind, number)) in steps.into_iter().chain(drained).enumerate() {
            let key = key(number);
            let hash = directory.hash(&key);
            match kind {
                0..3 => match directory.find_mut(hash, &key) {
                    Some(there) => {
                        there.1 = step as u32;
                        prop_assert!(model.insert(key, step as u32).is_some());
                    }
                    None => {
                        directory.insert(hash, Number(key.clone(), step as u32));
                        prop_assert!(model.insert(key, step as u32).is_none());
                    }
                },
                _ => prop_assert_eq!(directory.remove(hash, &key).map(|found| found.1), model.remove(&key)),
            }
            prop_assert_eq!(directory.len(), model.len());
        }
        for (key, number) in &model {
            prop_assert_eq!(directory.find(directory.hash(key), key).map(|found| found.1), Some(*number));
        }
        prop_assert_eq!(directory.iter().count(), model.len());
        let (mut walked, mut place) = (0, 0);
        while place < PLACE_END {
            let before = place;
            place = walk_all(&[&directory], place, |_, _| {
                walked += 1;
                if walked % 3 == 0 { Shown::Enough } else { Shown::More }
            });
            prop_assert!(place > before);
        }
        prop_assert_eq!(walked, model.len());
        prop_assert_eq!(directory.random(&mut Random::seeded(seed)).is_some(), !model.is_empty());
    }

    /// SCAN's guarantee: what is there from the first call to the last is shown, however much comes and goes meanwhile.
    #[test]
    fn a_scan_shows_what_stays(seed: u64, count in 1_usize..200, grows: bool, others in 1_u32..4_000) {
        let mut directory = directory(seed);
        let insert = |directory: &mut Directory<Number>, number| {
            directory.insert(directory.hash(&key(number)), Number(key(number), number));
        };
        (0..500).for_each(|number| insert(&mut directory, number));
        if !grows {
            (0..others).for_each(|number| insert(&mut directory, 1_000 + number));
        }
        let (mut seen, mut cursor, mut left) = (BTreeSet::new(), 0, others);
        let mut shown_once = 0;
        loop {
            cursor = directory.scan(cursor, count, |found| {
                seen.insert(found.1);
                shown_once += usize::from(found.1 < 500);
            });
            for _ in 0..left.min(300) {
                left -= 1;
                let number = 1_000 + left;
                match grows {
                    true => insert(&mut directory, number),
                    false => drop(directory.remove(directory.hash(&key(number)), &key(number))),
                }
            }
            if cursor == 0 {
                break;
            }
        }
        prop_assert!((0..500).all(|number| seen.contains(&number)));
        prop_assert_eq!(shown_once, 500, "and not twice");
    }
}

proptest! {
    #[test]
    fn a_use_counts_the_less_the_more_were_counted(seed: u64, count in 0_u32..256, log_factor: u32) {
        prop_assert!(odds(count + 1, log_factor) >= odds(count, log_factor));
        prop_assert!(count <= 5 || odds(count, log_factor) > u64::from(log_factor));
        let (eviction, lfu_decay_minutes) = (Eviction::AllKeysLfu, 0);
        let settings =
            Settings { eviction, lfu_decay_minutes, lfu_log_factor: log_factor, ..Settings::default() };
        let used = use_now(&settings, &mut Random::seeded(seed), Some(count), 0) & 0xff;
        prop_assert!(used == count || used == count + 1);
    }
}

/// Does a command, whose words are between blanks, in database 0.
fn ask(store: &mut Store, now_ms: u64, command: &str) -> (String, Effects) {
    let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
    let rows = super::COMMANDS.iter().copied().flatten();
    let row = rows.into_iter().find(|row| row.name.as_bytes() == words[0]).expect("a command");
    let Run::Data(run) = row.run else { panic!("{command} is the server's") };
    let (mut reply, mut effects) = (Reply::new(Protocol::Resp2), Effects::default());
    effects.wants_touched = true;
    let mut call = Call {
        args: &words,
        store,
        database: 0,
        reply: &mut reply,
        now_ms,
        ready: None,
        effects: &mut effects,
    };
    let outcome = run(&mut call);
    assert!(outcome == Outcome::Done || reply.is_empty());
    (String::from_utf8_lossy(reply.bytes()).into_owned(), effects)
}

fn logged(effects: &Effects) -> Vec<String> {
    let Logged::Instead(commands) = &effects.logged else { return Vec::new() };
    let text =
        |command: &Vec<Box<[u8]>>| String::from_utf8_lossy(&command.join(&b' ')).into_owned();
    commands.iter().map(text).collect()
}

#[test]
fn what_is_popped_by_chance_is_logged_in_pieces_of_what_a_client_may_send() {
    let mut store = Store::with_seed(1);
    let members = |range: std::ops::Range<u32>| {
        range.map(|number| number.to_string()).collect::<Vec<_>>().join(" ")
    };
    ask(&mut store, 0, &format!("sadd s {}", members(0..3_000)));
    let (_, effects) = ask(&mut store, 0, "spop s 2500");
    let pieces = logged(&effects);
    let lens: Vec<usize> = pieces.iter().map(|piece| piece.split(' ').count() - 2).collect();
    assert_eq!((lens, effects.changes), (vec![1024, 1024, 452], 2_500));
    let mut again = Store::with_seed(2);
    ask(&mut again, 0, &format!("sadd s {}", members(0..3_000)));
    for piece in pieces {
        ask(&mut again, 0, &piece.replacen("SREM", "srem", 1));
    }
    let sorted = |store: &mut Store| {
        let reply = ask(store, 0, "smembers s").0;
        let mut lines: Vec<String> = reply.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(sorted(&mut again), sorted(&mut store));
    assert_eq!(logged(&ask(&mut store, 0, "spop s 500").1), ["DEL s"], "nothing is left");

    let long = "m".repeat(700_000);
    ask(&mut store, 0, &format!("sadd s 1{long} 2{long} 3{long} 4"));
    let pieces = logged(&ask(&mut store, 0, "spop s 3").1);
    assert!(pieces.len() > 1 && pieces.iter().all(|piece| piece.len() < 1_100_000));
}

#[test]
fn a_key_that_is_due_is_gone_for_every_command_and_deleted_in_the_log_first() {
    let mut store = Store::with_seed(1);
    ask(&mut store, 1_000, "set k 5 px 10");
    assert_eq!(ask(&mut store, 1_010, "get k").0, "$1\r\n5\r\n", "not before its time has passed");
    let (reply, effects) = ask(&mut store, 1_011, "incr k");
    assert_eq!(reply, ":1\r\n");
    assert_eq!(logged(&effects), ["DEL k", "incr k"]);
    assert_eq!(effects.touched.len(), 2);
    assert_eq!(store.counts().expired, 1);
}

#[test]
fn active_expiry_deletes_what_is_due_the_soonest_first_and_no_more_than_asked() {
    let mut store = Store::with_seed(1);
    for number in (1..=100).rev() {
        ask(&mut store, 1_000, &format!("set k{number} v px {number}"));
    }
    let mut effects = Effects::default();
    assert_eq!(store.expire_some(1_000, 10, &mut effects), None, "nothing is due");
    assert_eq!(store.expire_some(1_051, 3, &mut effects), Some(0));
    assert_eq!(logged(&effects), ["DEL k1", "DEL k2", "DEL k3"]);
    assert_eq!(store.expire_some(1_051, 1_000, &mut effects), Some(0));
    assert_eq!(store.databases().next().map(|counts| counts.keys), Some(50));
    assert_eq!(store.counts().expired, 50);
}

#[test]
fn eviction_frees_what_the_policy_says() {
    for (name, policy) in Eviction::NAMES {
        let mut store = Store::with_seed(1);
        for number in 0..200 {
            let expires = if number % 10 == 0 { "px 1000000" } else { "px 2000000" };
            let expires = if number < 100 { expires } else { "get" };
            ask(&mut store, 1_000_000, &format!("set k{number} v {expires}"));
        }
        store.settings_mut().eviction = policy;
        store.settings_mut().samples = 10;
        (0..50).for_each(|number| drop(ask(&mut store, 1_600_000, &format!("get k{number}"))));
        let limit = store.used_bytes() * 9 / 10;
        store.settings_mut().memory_bytes_max = Some(limit);
        let mut evicted = Vec::new();
        while store.is_over_limit() {
            let mut effects = Effects::default();
            let Some(database) = store.evict_one(1_600_000, &mut effects) else { break };
            assert_eq!(database, 0);
            let number: usize =
                logged(&effects)[0].trim_start_matches("DEL k").parse().expect("a key");
            evicted.push(number);
        }
        assert_eq!(store.is_over_limit(), policy == Eviction::None, "{name}");
        if name.starts_with("volatile") {
            assert!(evicted.iter().all(|number| *number < 100), "{name}: {evicted:?}");
        }
        if name == "volatile-ttl" {
            assert!(evicted[..10].iter().all(|number| number % 10 == 0), "{name}: {evicted:?}");
        }
        if name.ends_with("lru") {
            let used = evicted.iter().filter(|number| **number < 50).count();
            assert!(used * 4 < evicted.len(), "{name}: {evicted:?}");
        }
    }
}

#[test]
fn a_small_string_takes_one_allocation_and_memory_is_counted_back_to_nothing() {
    let mut store = Store::with_seed(1);
    let value = "v".repeat(64);
    for number in 0..10_000 {
        ask(&mut store, 1_000, &format!("set key:{number:012} {value}"));
    }
    assert!(store.used_bytes() <= 10_000 * 123, "{} bytes", store.used_bytes());
    for number in 0..10_000 {
        let command = match number % 5 {
            0 => format!("append key:{number:012} {}", value.repeat(20)),
            1 => format!("expire key:{number:012} 100"),
            2 => format!("hset h{number} a b c {value}{value}"),
            3 => format!("rpush l {value} {value}"),
            _ => format!("zadd z {number} m{number} {number} n{number}"),
        };
        ask(&mut store, 1_000, &command);
    }
    for number in 0..10_000 {
        ask(&mut store, 1_000, &format!("hdel h{number} a c"));
        ask(&mut store, 1_000, &format!("zrem z m{number} n{number}"));
        ask(&mut store, 1_000, "lpop l 2");
        ask(&mut store, 1_000, &format!("del key:{number:012}"));
    }
    assert_eq!(store.used_bytes(), 0);
}

#[test]
fn what_is_large_is_freed_in_pieces() {
    let mut store = Store::with_seed(1);
    for number in 0..6_000 {
        ask(&mut store, 1_000, &format!("zadd z {number} m{number}"));
        ask(&mut store, 1_000, &format!("sadd s m{number}"));
        ask(&mut store, 1_000, &format!("hset h f{number} v"));
        ask(
            &mut store,
            1_000,
            &format!("rpush l value-of-some-bytes-{number} value-of-some-bytes"),
        );
        ask(&mut store, 1_000, &format!("set k{number} v"));
    }
    for command in ["del z", "unlink s", "expire h 1", "flushall"] {
        ask(&mut store, 1_000, command);
    }
    assert_eq!(store.used_bytes(), 0);
    let mut calls = 0;
    while !store.dropped.is_empty() {
        store.expire_some(3_000, 10, &mut Effects::default());
        calls += 1;
        assert!(calls < 1_000, "it comes to an end");
    }
    assert!(calls > 10, "{calls} calls");
}

#[test]
fn a_command_that_is_refused_changes_nothing_and_logs_nothing() {
    let mut store = Store::with_seed(1);
    ask(&mut store, 1_000, "set k v");
    for command in
        ["incr k", "lpush k a", "set k v ex 0", "sadd k a", "zadd k nx xx 1 a", "hset k f"]
    {
        let (reply, effects) = ask(&mut store, 1_000, command);
        assert!(reply.starts_with('-'), "{command}: {reply}");
        assert_eq!((effects.logged, effects.changes), (Logged::Nothing, 0), "{command}");
        assert!(effects.touched.is_empty());
    }
}

#[test]
fn what_depends_on_time_or_chance_is_logged_as_what_it_did() {
    let mut store = Store::with_seed(1);
    ask(&mut store, 1_000, "sadd s a");
    ask(&mut store, 1_000, "set n 1");
    for (command, forms) in [
        ("set k v ex 10", "SET k v PXAT 11000"),
        ("expire k 20", "PEXPIREAT k 21000"),
        ("getex k persist", "PERSIST k"),
        ("incrbyfloat n 0.5", "SET n 1.5 KEEPTTL"),
        ("spop s", "DEL s"),
        ("rpush l a", ""),
        ("blpop l 0", "LPOP l"),
        ("expire k -1", "DEL k"),
    ] {
        let (_, effects) = ask(&mut store, 1_000, command);
        assert_eq!(logged(&effects).join("; "), forms, "{command}");
        assert_eq!(effects.changes, 1, "{command}");
    }
}

#[test]
fn what_is_due_in_another_database_is_replaced_there_in_the_log_too() {
    let mut store = Store::with_seed(1);
    let flush = [("set k old px 5", 1_000), ("swapdb 0 1", 1_000), ("set k new", 2_000)];
    flush.iter().for_each(|(command, now_ms)| drop(ask(&mut store, *now_ms, command)));
    let (reply, effects) = ask(&mut store, 2_000, "copy k k db 1");
    assert_eq!(
        (reply.as_str(), logged(&effects)),
        (":1\r\n", vec!["COPY k k DB 1 REPLACE".into()])
    );
    ask(&mut store, 3_000, "pexpire k 5");
    let moved = "COPY k k DB 2 REPLACE; DEL k";
    assert_eq!(logged(&ask(&mut store, 3_000, "move k 2").1).join("; "), moved);
}

#[test]
fn what_stands_in_the_place_of_a_value_goes_on_with_its_uses() {
    let mut store = Store::with_seed(1);
    store.settings_mut().eviction = Eviction::AllKeysLfu;
    (store.settings_mut().lfu_log_factor, store.settings_mut().lfu_decay_minutes) = (0, 0);
    for (commands, key, uses) in [
        ("set k 1", "k", 5),
        ("get k; get k", "k", 7),
        ("set k 2", "k", 8),
        ("set k 2 ex 100", "k", 9),
        ("incr k", "k", 10),
        ("incrbyfloat k 0.5", "k", 11),
        ("append k 5", "k", 12),
        ("mset k a other b", "k", 13),
        ("rename k r", "r", 14),
        ("sadd s a; sunionstore r s", "r", 15),
        ("zadd z 1 a; zunionstore r 1 z", "r", 16),
        ("set t a; bitop not r t", "r", 17),
        ("move r 1; swapdb 0 1", "r", 18),
        ("copy r c", "c", 5),
        ("set d a px 10", "d", 5),
    ] {
        commands.split("; ").for_each(|command| drop(ask(&mut store, 1_000, command)));
        let reply = ask(&mut store, 1_000, &format!("object|freq of {key}")).0;
        assert_eq!(reply, format!(":{uses}\r\n"), "{commands}");
    }
    ask(&mut store, 2_000, "set d b");
    assert_eq!(ask(&mut store, 2_000, "object|freq of d").0, ":5\r\n", "what was due was another");
}

#[test]
fn bitop_goes_on_with_zeros_behind_a_shorter_string() {
    let mut store = Store::with_seed(1);
    let long = "a".repeat(2_000);
    for command in ["set a abc", "set b AB", &format!("set l {long}")] {
        ask(&mut store, 1_000, command);
    }
    let rest = &long[3..];
    for (command, result) in [
        ("and r a b", "AB\0".to_owned()),
        ("and r b a", "AB\0".to_owned()),
        ("or r b a none", "abc".to_owned()),
        ("xor r none a b", "  c".to_owned()),
        ("and r a none", "\0\0\0".to_owned()),
        ("or r a l", format!("acc{rest}")),
        ("xor r l l a", "abc".to_owned() + &"\0".repeat(rest.len())),
        ("and a a b l", "A@\0".to_owned() + &"\0".repeat(rest.len())),
    ] {
        assert_eq!(
            ask(&mut store, 1_000, &format!("bitop {command}")).0,
            format!(":{}\r\n", result.len())
        );
        let key = command.split(' ').nth(1).expect("where it goes");
        let reply = ask(&mut store, 1_000, &format!("get {key}")).0;
        assert_eq!(reply, format!("${}\r\n{result}\r\n", result.len()), "{command}");
    }
    assert_eq!(ask(&mut store, 1_000, "bitop or r none none2").0, ":0\r\n");
    assert_eq!(ask(&mut store, 1_000, "exists r").0, ":0\r\n");
    ask(&mut store, 1_000, "sadd s a");
    assert!(ask(&mut store, 1_000, "bitop or r a s").0.starts_with("-WRONGTYPE"));
}

#[test]
fn what_is_drawn_has_a_limit_in_bytes() {
    let mut store = Store::with_seed(1);
    let long = "m".repeat(1 << 20);
    for command in [
        format!("sadd s {long}"),
        format!("hset h f {long}"),
        format!("zadd z 1 {long}"),
        "sadd t a".into(),
    ] {
        ask(&mut store, 1_000, &command);
    }
    for command in ["srandmember s", "hrandfield h", "zrandmember z"] {
        let refused = ask(&mut store, 1_000, &format!("{command} -3000")).0;
        // Not shown, for it is long if it is wrong.
        assert!(refused == "-ERR value is out of range\r\n", "{command}");
        assert!(ask(&mut store, 1_000, &format!("{command} -2")).0.starts_with("*2\r\n"));
    }
    assert!(ask(&mut store, 1_000, "srandmember t -1000000").0.starts_with("*1000000\r\n"));
}

/// The scores that Redis 7.0 answers with.
#[test]
fn scores_that_are_no_number_are_zero_and_a_zero_keeps_its_sign_in_a_reply() {
    let mut store = Store::with_seed(1);
    let long = "m".repeat(65);
    let many: String = (1..130).map(|number| format!(" {number} m{number}")).collect();
    for command in [
        "zadd a inf m",
        "zadd b 5 m",
        "zadd zero 0 m",
        &format!("zadd long 0 {long}"),
        &format!("zadd many 0 m0{many}"),
    ] {
        ask(&mut store, 1_000, command);
    }
    for (command, score) in [
        ("zinter 1 a weights 0 withscores", "0"),
        ("zinter 2 a b weights 0 1 withscores", "5"),
        ("zinter 2 b a weights 1 0 withscores", "0"),
        ("zinter 2 b a weights 1 0 aggregate min withscores", "5"),
        ("zinter 2 b a weights -1 0 aggregate max withscores", "-5"),
        ("zinter 2 a b weights 0 1 aggregate min withscores", "0"),
        ("zunion 2 a b weights 0 1 withscores", "5"),
        ("zunion 1 zero weights -1 withscores", "-0"),
        ("zinter 1 zero weights -1 withscores", "-0"),
        ("zinter 2 zero b weights 0 -0 withscores", "0"),
        ("zunion 2 zero zero weights -1 1 aggregate max withscores", "-0"),
        ("zunion 2 zero zero weights 1 -1 aggregate min withscores", "0"),
    ] {
        let reply = ask(&mut store, 1_000, command).0;
        assert_eq!(reply, format!("*2\r\n$1\r\nm\r\n${}\r\n{score}\r\n", score.len()), "{command}");
    }
    // What is kept has its sign if it is large.
    for (source, member, score) in
        [("zero", "m", "0"), ("long", &*long, "-0"), ("many", "m0", "-0")]
    {
        ask(&mut store, 1_000, &format!("zunionstore r 1 {source} weights -1"));
        let reply = ask(&mut store, 1_000, &format!("zscore r {member}")).0;
        assert_eq!(reply, format!("${}\r\n{score}\r\n", score.len()), "{source}");
    }
}

#[test]
fn rows_have_different_names_and_say_what_they_do() {
    let mut names = BTreeSet::new();
    for row in super::COMMANDS.iter().copied().flatten() {
        assert!(names.insert(row.name), "{} is there twice", row.name);
        let writes = row.categories.contains(&"write");
        assert_eq!(row.flags.has(crate::Flags::WRITE), writes, "{}", row.name);
    }
}
