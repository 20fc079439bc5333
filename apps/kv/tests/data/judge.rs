//! The judge: a real `redis-server` 7.0 and the store are sent the same random commands, and must give the same
//! replies, byte for byte. Where Redis's own order is by chance (members of a large set), the elements are compared in order.
//! `LANEWAY_JUDGE_COMMANDS=n` sends so many; others each time.

use crate::client::{Local, Redis, shown};
use crate::commands::{Draw, command};
use laneway_kv::Store;
use laneway_resp::Protocol;
use std::time::{SystemTime, UNIX_EPOCH};

/// In a run of the tests, of each version of the protocol.
const COMMANDS: usize = 6_000;
/// Set: so many.
const MORE: &str = "LANEWAY_JUDGE_COMMANDS";
/// After the first difference the two sides may go apart: a few show whether they did.
const DIFFERING_MAX: usize = 12;

/// Commands that draw, that wait for long or that are the server's to refuse: a strange argument may have made them so.
fn is_by_chance(args: &[Vec<u8>]) -> bool {
    let count = args.get(2).map_or(&b""[..], Vec::as_slice);
    match args[0].as_slice() {
        b"object" => !matches!(args.get(1).map(Vec::as_slice), Some(b"encoding" | b"refcount")),
        b"scan" => !is_plain(args.get(1)),
        b"sscan" | b"hscan" | b"zscan" => !is_plain(args.get(2)),
        // Ranges by member mean something where all scores are the same.
        b"zadd" if args.get(1).is_some_and(|key| key == b"lex") => {
            args[2..].iter().step_by(2).any(|score| score != b"0")
        }
        b"spop" => count != b"9223372036854775807" && count != b"x",
        b"srandmember" | b"hrandfield" | b"zrandmember" => count != b"0",
        b"blpop" | b"brpop" | b"blmove" | b"brpoplpush" | b"blmpop" | b"bzpopmin" | b"bzpopmax"
        | b"bzmpop" => args.iter().any(|arg| arg == b"-0" || arg == b"+1"),
        _ => false,
    }
}

/// A cursor that both sides understand alike.
fn is_plain(cursor: Option<&Vec<u8>>) -> bool {
    matches!(cursor.map(Vec::as_slice), Some(b"0" | b"x" | b""))
}

/// Replies whose elements come in an order of chance.
fn is_unordered(args: &[Vec<u8>]) -> bool {
    let name = String::from_utf8_lossy(&args[0]).to_ascii_lowercase();
    const UNORDERED: [&str; 12] = [
        "smembers", "sinter", "sunion", "sdiff", "spop", "hgetall", "hkeys", "hvals", "keys",
        "scan", "sscan", "hscan",
    ];
    UNORDERED.contains(&name.as_str()) || name == "zscan"
}

/// The elements of a reply, sorted. Pairs may be told apart: no reply here has two pairs of the same parts in other ways.
fn sorted(reply: &[u8]) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> = reply.split(|byte| *byte == b'\n').collect();
    lines.sort_unstable();
    lines
}

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
    let memory_bytes_max = Draw(std::process::id().into()).below(3_000);
    compare("judge-lsm", Protocol::Resp2, Some(memory_bytes_max));
}

fn compare(test: &str, protocol: Protocol, memory_bytes_max: Option<usize>) {
    let mut redis = match Redis::start(test) {
        Ok(redis) => redis,
        Err(why) => return laneway_testkit::skip(why),
    };
    let seed = Draw::seed();
    let mut draw = Draw(seed);
    let store = Store::with_seed(draw.next());
    let mut local = match memory_bytes_max {
        None => Local::new(store, now_ms()),
        Some(bytes) => Local::spilling(store, now_ms(), "judge-values", bytes),
    };
    if protocol == Protocol::Resp3 {
        redis.ask(&[b"HELLO".to_vec(), b"3".to_vec()]);
        local.reply.set_protocol(protocol);
    }
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
        if !is_same && !is_excused(&args, &ours, &theirs) {
            let last =
                &asked[asked.len().saturating_sub(if differing.is_empty() { 40 } else { 1 })..];
            differing.push(format!(
                "command {}:\n  {}\nours:   {}\ntheirs: {}",
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

/// What may differ.
fn is_excused(args: &[Vec<u8>], ours: &[u8], theirs: &[u8]) -> bool {
    let name = String::from_utf8_lossy(&args[0]).to_ascii_lowercase();
    match name.as_str() {
        // Inside MULTI Redis says nothing as a value; at the end of a wait, as an array.
        "blmove" | "brpoplpush" => ours == b"$-1\r\n" && theirs == b"*-1\r\n",
        // Whether two keys hold the same small number as one object.
        "object" => theirs == b":1\r\n",
        // Relative deadlines are a millisecond apart on the two sides.
        "pexpiretime" | "expiretime" | "ttl" => {
            let number = |reply: &[u8]| {
                String::from_utf8_lossy(reply).trim().trim_start_matches(':').parse::<i64>()
            };
            matches!((number(ours), number(theirs)), (Ok(one), Ok(other)) if one > 0 && (one - other).abs() < 60_000)
        }
        _ => false,
    }
}
