//! The judge: a real `redis-server` 7.0 and the store are sent the same random commands, and must give the same
//! replies, byte for byte, and have the same events of keys. Where Redis's own order is by chance (members of a large
//! set), the elements are compared in order.
//! `LANEWAY_JUDGE_COMMANDS=n` sends so many; others each time.

use crate::client::{Local, Redis, shown};
use crate::commands::command;
use crate::excused::{is_by_chance, is_excused, is_unordered, sorted};
use laneway_kv::{Events, KeyEvent, Store};
use laneway_resp::Protocol;
use laneway_testkit::Random;
use std::time::{SystemTime, UNIX_EPOCH};

/// In a run of the tests, of each version of the protocol.
const COMMANDS: usize = 6_000;
/// Set: so many.
const MORE: &str = "LANEWAY_JUDGE_COMMANDS";
/// After the first difference the two sides may go apart: a few show whether they did.
const DIFFERING_MAX: usize = 12;

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock behind 1970").as_millis() as u64
}

#[test]
fn the_store_answers_as_redis_does() {
    compare("judge-2", Protocol::Resp2, None);
}

#[test]
fn the_store_answers_as_redis_does_in_version_3() {
    compare("judge-3", Protocol::Resp3, None);
}

/// With so little memory that most values are in the LSM tree when they are asked for.
#[test]
fn a_store_whose_values_are_on_disk_answers_as_redis_does() {
    let memory_bytes_max = Random::seeded(std::process::id().into()).index(3_000);
    compare("judge-lsm", Protocol::Resp2, Some(memory_bytes_max));
}

fn events(events: &[KeyEvent]) -> Vec<String> {
    let text = |it: &KeyEvent| format!("{} {} {}", it.database, shown(&it.key), it.name);
    events.iter().map(text).collect()
}

fn compare(test: &str, protocol: Protocol, memory_bytes_max: Option<usize>) {
    let mut redis = match Redis::start(test) {
        Ok(redis) => redis,
        Err(why) => return laneway_testkit::skip(why),
    };
    let seed = laneway_testkit::seed();
    let mut draw = Random::seeded(seed);
    let store = Store::with_seed(draw.draw());
    let mut local = match memory_bytes_max {
        None => Local::new(store, now_ms()),
        Some(bytes) => Local::spilling(store, now_ms(), "judge-values", bytes),
    };
    if protocol == Protocol::Resp3 {
        redis.ask(&[b"HELLO".to_vec(), b"3".to_vec()]);
        local.reply.set_protocol(protocol);
    }
    // Expiry and eviction happen when each sees fit.
    let classes = format!("Kg$lshz{}", ["", "n", "m", "nm"][draw.index(4)]);
    local.events = Events::parse(&classes).expect("each is a class");
    let mut listener = redis.listen(&classes);
    let (mut asked, mut differing): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    let asked_for = std::env::var(MORE).ok();
    let commands = asked_for.map_or(COMMANDS, |text| {
        text.parse().unwrap_or_else(|_| panic!("{MORE}={text} is no number"))
    });
    for _ in 0..commands {
        let args = command(&mut draw);
        let is_select = args[0] == b"select";
        if is_select && !matches!(&args[1..], [number] if *number == b"0" || *number == b"1") {
            continue;
        }
        if is_by_chance(&args) {
            continue;
        }
        asked.push(args.iter().map(|arg| shown(arg)).collect::<Vec<_>>().join(" "));
        local.now_ms = now_ms();
        let (ours, theirs) = (local.ask(&args), redis.ask(&args));
        let is_same = match is_unordered(&args) {
            true => sorted(&ours) == sorted(&theirs),
            false => ours == theirs,
        };
        let is_same = is_same || is_excused(&args, &ours, &theirs);
        let events = [events(&local.effects.events), listener.heard()];
        if !is_same || events[0] != events[1] {
            let last =
                &asked[asked.len().saturating_sub(if differing.is_empty() { 40 } else { 1 })..];
            differing.push(format!(
                "command {}:\n  {}\nours:   {}\ntheirs: {}\nevents, ours and theirs, of {classes}: {events:?}",
                asked.len(),
                last.join("\n  "),
                shown(&ours),
                shown(&theirs)
            ));
            if differing.len() == DIFFERING_MAX {
                break;
            }
        }
    }
    assert!(differing.is_empty(), "seed {seed}\n{}", differing.join("\n"));
    if let (Some(counts), Some(bytes)) = (local.store.spill_counts(), memory_bytes_max) {
        eprintln!("maxmemory {bytes}: {counts:?}");
        assert!(counts.written > 0 && counts.fetched > 0, "hardly anything was on the disk");
    }
}
