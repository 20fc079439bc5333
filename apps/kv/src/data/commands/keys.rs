//! Commands on keys of any type, and on whole databases.

use super::super::directory::Keyed;
use super::super::entry::Entry;
use super::super::glob;
use super::super::keyspace::*;
use super::super::numbers::{self, IntegerText};
use super::super::store::{DATABASES, idle_ms, uses};
use crate::command::{Command, Flags};
use crate::event::{DELETED, generic};
use laneway_resp::Reply;

/// The rows of the table.
pub(crate) static COMMANDS: &[Command] = &[
    row("del", -2, WRITE, ALL_KEYS, &["keyspace", "write", "slow"], runs!(del)),
    row("unlink", -2, WRITE_FAST, ALL_KEYS, &["keyspace", "write", "fast"], runs!(del)),
    row("exists", -2, READ_FAST, ALL_KEYS, &["keyspace", "read", "fast"], runs!(exists)),
    row("type", 2, READ_FAST, ONE_KEY, &["keyspace", "read", "fast"], runs!(kind)),
    row("ttl", 2, READ_FAST, ONE_KEY, &["keyspace", "read", "fast"], runs!(ttl)),
    row("pttl", 2, READ_FAST, ONE_KEY, &["keyspace", "read", "fast"], runs!(pttl)),
    row("expire", -3, WRITE_FAST, ONE_KEY, &["keyspace", "write", "fast"], runs!(expire)),
    row("pexpire", -3, WRITE_FAST, ONE_KEY, &["keyspace", "write", "fast"], runs!(pexpire)),
    row("expireat", -3, WRITE_FAST, ONE_KEY, &["keyspace", "write", "fast"], runs!(expireat)),
    row("pexpireat", -3, WRITE_FAST, ONE_KEY, &["keyspace", "write", "fast"], runs!(pexpireat)),
    row("expiretime", 2, READ_FAST, ONE_KEY, &["keyspace", "read", "fast"], runs!(expiretime)),
    row("pexpiretime", 2, READ_FAST, ONE_KEY, &["keyspace", "read", "fast"], runs!(pexpiretime)),
    row("persist", 2, WRITE_FAST, ONE_KEY, &["keyspace", "write", "fast"], runs!(persist)),
    row("keys", 2, READ, NO_KEYS, &["keyspace", "read", "slow", "dangerous"], runs!(keys)),
    row("scan", -2, READ, NO_KEYS, &["keyspace", "read", "slow"], runs!(scan)),
    row("randomkey", 1, READ, NO_KEYS, &["keyspace", "read", "slow"], runs!(randomkey)),
    row("rename", 3, WRITE, TWO_KEYS, &["keyspace", "write", "slow"], runs!(rename)),
    row("renamenx", 3, WRITE_FAST, TWO_KEYS, &["keyspace", "write", "fast"], runs!(renamenx)),
    row("copy", -3, GROW, TWO_KEYS, &["keyspace", "write", "slow"], runs!(copy)),
    row("touch", -2, READ_FAST, ALL_KEYS, &["keyspace", "read", "fast"], runs!(touch)),
    row("move", 3, WRITE_FAST, ONE_KEY, &["keyspace", "write", "fast"], runs!(move_key)),
    row(
        "object|encoding",
        3,
        READ,
        keys_at(2, 2, 1),
        &["keyspace", "read", "slow"],
        runs!(object_encoding),
    ),
    row(
        "object|refcount",
        3,
        READ,
        keys_at(2, 2, 1),
        &["keyspace", "read", "slow"],
        runs!(object_refcount),
    ),
    row(
        "object|idletime",
        3,
        READ,
        keys_at(2, 2, 1),
        &["keyspace", "read", "slow"],
        runs!(object_idletime),
    ),
    row(
        "object|freq",
        3,
        READ,
        keys_at(2, 2, 1),
        &["keyspace", "read", "slow"],
        runs!(object_freq),
    ),
    row(
        "object|help",
        2,
        Flags(0).and(Flags::LOADING).and(Flags::STALE),
        NO_KEYS,
        &["keyspace", "slow"],
        runs!(object_help),
    ),
    row("memory|usage", -3, READ, keys_at(2, 2, 1), &["read", "slow"], runs!(memory_usage)),
    row("dbsize", 1, READ_FAST, NO_KEYS, &["keyspace", "read", "fast"], runs!(dbsize)),
    row("flushdb", -1, WRITE, NO_KEYS, &["keyspace", "write", "slow", "dangerous"], runs!(flushdb)),
    row(
        "flushall",
        -1,
        WRITE,
        NO_KEYS,
        &["keyspace", "write", "slow", "dangerous"],
        runs!(flushall),
    ),
    row(
        "swapdb",
        3,
        WRITE_FAST,
        NO_KEYS,
        &["keyspace", "write", "fast", "dangerous"],
        runs!(swapdb),
    ),
];

/// Redis shares numbers below this, and says so.
const SHARED_INTEGERS: std::ops::Range<i64> = 0..10_000;
/// Draws of a random key that is not due, before the reply is that there is none.
const RANDOM_DRAWS_MAX: usize = 100;

fn del(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let mut deleted = 0;
    for key in &args[1..] {
        if let Some(entry) = keys.take(key) {
            keys.store.dropped.entry(entry);
            keys.changed(key, DELETED, 1);
            deleted += 1;
        }
    }
    reply.integer(deleted);
    DONE
}

fn exists(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let found = args[1..].iter().filter(|key| keys.inspect(key).is_some()).count();
    reply.integer(found as i64);
    DONE
}

fn touch(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let found = args[1..].iter().filter(|key| keys.find(key).is_some()).count();
    reply.integer(found as i64);
    DONE
}

fn kind(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    reply.simple(keys.inspect(args[1]).map_or("none", Entry::kind));
    DONE
}

fn ttl(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let now_ms = keys.now_ms;
    reply_deadline(keys, args[1], reply, |ms| ms.saturating_sub(now_ms).saturating_add(500) / 1000)
}

fn pttl(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let now_ms = keys.now_ms;
    reply_deadline(keys, args[1], reply, |ms| ms.saturating_sub(now_ms))
}

fn expiretime(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    reply_deadline(keys, args[1], reply, |ms| ms.saturating_add(500) / 1000)
}

fn pexpiretime(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    reply_deadline(keys, args[1], reply, |ms| ms)
}

/// A deadline as `shown`; -1 if there is none, -2 if there is no key.
fn reply_deadline(
    keys: &mut Keyspace<'_>,
    key: &[u8],
    reply: &mut Reply,
    shown: impl FnOnce(u64) -> u64,
) -> Answer {
    let entry = keys.inspect(key);
    reply.integer(match entry.map(Entry::deadline_ms) {
        None => -2,
        Some(None) => -1,
        Some(Some(ms)) => shown(ms) as i64,
    });
    DONE
}

fn expire(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let now_ms = keys.now_ms;
    expire_by(keys, args, reply, 1000, now_ms)
}

fn pexpire(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let now_ms = keys.now_ms;
    expire_by(keys, args, reply, 1, now_ms)
}

fn expireat(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    expire_by(keys, args, reply, 1000, 0)
}

fn pexpireat(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    expire_by(keys, args, reply, 1, 0)
}

/// Sets a deadline: a time in units of `unit_ms` after `base_ms`.
fn expire_by(
    keys: &mut Keyspace<'_>,
    args: &[&[u8]],
    reply: &mut Reply,
    unit_ms: i64,
    base_ms: u64,
) -> Answer {
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for option in &args[3..] {
        match () {
            () if is(option, "nx") => nx = true,
            () if is(option, "xx") => xx = true,
            () if is(option, "gt") => gt = true,
            () if is(option, "lt") => lt = true,
            () => {
                let option = String::from_utf8_lossy(option);
                return Err(Refusal(format!("ERR Unsupported option {option}").into()));
            }
        }
    }
    if nx && (xx || gt || lt) {
        return Err(refusal("ERR NX and XX, GT or LT options at the same time are not compatible"));
    }
    if gt && lt {
        return Err(refusal("ERR GT and LT options at the same time are not compatible"));
    }
    let time = integer(args[2])?.checked_mul(unit_ms);
    let time = time.and_then(|time| time.checked_add(base_ms as i64));
    let deadline_ms = time.ok_or_else(|| {
        let name = String::from_utf8_lossy(args[0]).to_ascii_lowercase();
        Refusal(format!("ERR invalid expire time in '{name}' command").into())
    })?;
    let entry = keys.find_to_change(args[1]);
    let there = entry.map(|entry| entry.deadline_ms().map(|ms| ms as i64));
    let is_set = match there {
        None => false,
        Some(None) => !(xx || gt),
        Some(Some(before)) => !(nx || gt && deadline_ms <= before || lt && deadline_ms >= before),
    };
    if is_set {
        expire_at(keys, args[1], deadline_ms);
    }
    reply.integer(i64::from(is_set));
    DONE
}

/// Gives a key that is there a deadline; deletes it, if that has passed.
pub(super) fn expire_at(keys: &mut Keyspace<'_>, key: &[u8], deadline_ms: i64) {
    // While a log is done again it is no time at all, and nothing has passed.
    if keys.now_ms > 0 && deadline_ms <= keys.now_ms as i64 {
        keys.take(key);
        keys.changed_as(key, DELETED, &[b"DEL", key]);
    } else {
        keys.set_deadline(key, Some(u64::try_from(deadline_ms).unwrap_or(0)));
        let time = IntegerText::new(deadline_ms);
        keys.changed_as(key, generic("expire"), &[b"PEXPIREAT", key, time.bytes()]);
    }
}

fn persist(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let has_deadline = keys.find_to_change(args[1]).and_then(Entry::deadline_ms).is_some();
    if has_deadline {
        keys.set_deadline(args[1], None);
        keys.changed(args[1], generic("persist"), 1);
    }
    reply.integer(i64::from(has_deadline));
    DONE
}

fn keys(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let entries = keys.data().entries.iter().filter(|entry| !keys.is_due(entry));
    let found: Vec<&[u8]> =
        entries.map(Keyed::key).filter(|key| glob::fits_or_all(args[1], key)).collect();
    reply.array(found.len());
    found.into_iter().for_each(|key| reply.bulk(key));
    DONE
}

/// What a scan is asked for.
pub(super) struct Scan<'a> {
    pub(super) count: usize,
    pattern: Option<&'a [u8]>,
    kind: Option<&'a [u8]>,
}

impl<'a> Scan<'a> {
    /// Reads the options behind a cursor.
    pub(super) fn options(args: &[&'a [u8]], takes_type: bool) -> Result<Scan<'a>, Refusal> {
        let mut scan = Scan { count: 10, pattern: None, kind: None };
        let mut args = args.iter();
        while let Some(option) = args.next() {
            let value = args.next().ok_or(SYNTAX)?;
            match () {
                () if is(option, "count") => {
                    let count = integer(value)?;
                    scan.count = usize::try_from(count).ok().filter(|n| *n > 0).ok_or(SYNTAX)?;
                }
                () if is(option, "match") => scan.pattern = Some(value),
                () if is(option, "type") && takes_type => scan.kind = Some(value),
                () => return Err(SYNTAX),
            }
        }
        Ok(scan)
    }

    pub(super) fn fits(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::fits_or_all(pattern, name))
    }
}

/// The cursor of a scan, as the C library reads it for Redis: a negative one counts from the greatest.
pub(super) fn cursor(arg: &[u8]) -> Result<u64, Refusal> {
    let number = |digits: &[u8]| -> Option<u64> {
        let is_number = digits.iter().all(u8::is_ascii_digit);
        std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()
    };
    let cursor = match arg {
        [] => Some(0),
        [b'-', digits @ ..] => number(digits).map(u64::wrapping_neg),
        [b'+', digits @ ..] => number(digits),
        digits => number(digits),
    };
    cursor.ok_or(refusal("ERR invalid cursor"))
}

/// A cursor and the elements that belong to it.
pub(super) fn reply_scan(reply: &mut Reply, cursor: u64, found: &[Box<[u8]>]) {
    reply.array(2);
    reply.bulk(cursor.to_string().as_bytes());
    reply.array(found.len());
    found.iter().for_each(|element| reply.bulk(element));
}

fn scan(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let cursor = cursor(args[1])?;
    let scan = Scan::options(&args[2..], true)?;
    let mut found: Vec<Box<[u8]>> = Vec::new();
    let next = keys.data().entries.scan(cursor, scan.count, |entry| {
        let has_kind = scan.kind.is_none_or(|kind| is(kind, entry.kind()));
        if has_kind && scan.fits(entry.key()) && !keys.is_due(entry) {
            found.push(entry.key().into());
        }
    });
    reply_scan(reply, next, &found);
    DONE
}

fn randomkey(keys: &mut Keyspace<'_>, _: &[&[u8]], reply: &mut Reply) -> Answer {
    for _ in 0..RANDOM_DRAWS_MAX {
        let store = &mut *keys.store;
        let entries = &store.databases[keys.database].entries;
        let Some(entry) = entries.random(&mut store.chance) else { break };
        if entry.deadline_ms().is_none_or(|deadline_ms| deadline_ms >= keys.now_ms) {
            reply.bulk(entry.key());
            return DONE;
        }
    }
    reply.null();
    DONE
}

fn rename(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    rename_to(keys, args[1], args[2])?;
    reply.ok();
    DONE
}

fn renamenx(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    if !keys.exists(args[1]) {
        return Err(NO_KEY);
    }
    let is_new = keys.find_to_change(args[2]).is_none();
    if is_new {
        rename_to(keys, args[1], args[2])?;
    } else {
        keys.find_to_change(args[1]);
    }
    reply.integer(i64::from(is_new));
    DONE
}

fn rename_to(keys: &mut Keyspace<'_>, from: &[u8], to: &[u8]) -> Result<(), Refusal> {
    if from == to {
        return keys.find_to_change(from).map(|_| ()).ok_or(NO_KEY);
    }
    let entry = keys.take(from).ok_or(NO_KEY)?;
    keys.take(to);
    keys.put_moved(entry.renamed(to));
    keys.effects.touch(keys.database, from);
    keys.notify(from, generic("rename_from"));
    keys.changed(to, generic("rename_to"), 1);
    Ok(())
}

fn copy(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let (from, to) = (args[1], args[2]);
    let databases = keys.store.settings.databases;
    let (mut other, mut replaces) = (keys.database, false);
    let mut options = args[3..].iter();
    while let Some(option) = options.next() {
        match () {
            () if is(option, "replace") => replaces = true,
            () if is(option, "db") => {
                other = database_number(options.next().ok_or(SYNTAX)?, databases)?;
            }
            () => return Err(SYNTAX),
        }
    }
    if other == keys.database && from == to {
        return Err(SAME_OBJECT);
    }
    let Some(entry) = keys.find(from).cloned() else {
        reply.integer(0);
        return DONE;
    };
    let is_copied = keys.in_database(other, |keys| {
        let is_copied = replaces || keys.find_to_change(to).is_none();
        if is_copied {
            keys.take(to);
            keys.put(entry.renamed(to));
            log_copy(keys, from, to, other);
            keys.notify(to, generic("copy_to"));
        }
        is_copied
    });
    reply.integer(i64::from(is_copied));
    DONE
}

/// The log has a copy that replaces: what it replaced may have been due, and is not while the log is done again.
fn log_copy(keys: &mut Keyspace<'_>, from: &[u8], to: &[u8], other: usize) {
    let number = IntegerText::new(other as i64);
    keys.log_as(to, &[b"COPY", from, to, b"DB", number.bytes(), b"REPLACE"]);
}

fn move_key(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let (key, other) = (args[1], database_number(args[2], keys.store.settings.databases)?);
    if other == keys.database {
        return Err(SAME_OBJECT);
    }
    let is_there = |keys: &mut Keyspace<'_>| keys.find_to_change(key).is_some();
    let is_moved = keys.exists(key) && !keys.in_database(other, is_there);
    if is_moved && let Some(entry) = keys.take(key) {
        keys.in_database(other, |keys| {
            keys.put_moved(entry);
            log_copy(keys, key, key, other);
        });
        keys.notify(key, generic("move_from"));
        keys.in_database(other, |keys| keys.notify(key, generic("move_to")));
        keys.log_as(key, &[b"DEL", key]);
    }
    reply.integer(i64::from(is_moved));
    DONE
}

fn object_encoding(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    match keys.inspect_object(args[2]) {
        Some(entry) => reply.bulk(entry.encoding().as_bytes()),
        None => reply.null(),
    }
    DONE
}

fn object_refcount(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    match keys.inspect_object(args[2]) {
        Some(entry) => {
            let number = entry.as_text().and_then(numbers::integer);
            let is_shared = entry.encoding() == "int"
                && number.is_some_and(|number| SHARED_INTEGERS.contains(&number));
            reply.integer(if is_shared { i64::from(i32::MAX) } else { 1 });
        }
        None => reply.null(),
    }
    DONE
}

fn object_idletime(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let (now_ms, counts_uses) = (keys.now_ms, keys.store.settings.eviction.counts_uses());
    match keys.inspect_object(args[2]) {
        None => reply.null(),
        Some(_) if counts_uses => {
            return Err(refusal(
                "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note \
                 that when switching between policies at runtime LRU and LFU data will take \
                 some time to adjust.",
            ));
        }
        Some(entry) => reply.integer((idle_ms(entry.last_use(), now_ms) / 1000) as i64),
    }
    DONE
}

fn object_freq(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let (now_ms, settings) = (keys.now_ms, keys.store.settings.clone());
    match keys.inspect_object(args[2]) {
        None => reply.null(),
        Some(_) if !settings.eviction.counts_uses() => {
            return Err(refusal(
                "ERR An LFU maxmemory policy is not selected, access frequency not tracked. \
                 Please note that when switching between policies at runtime LRU and LFU data \
                 will take some time to adjust.",
            ));
        }
        Some(entry) => reply.integer(i64::from(uses(&settings, entry.last_use(), now_ms))),
    }
    DONE
}

/// Bytes that a key takes in memory, its name and the table's place for it included: our own account of it, and no
/// estimate from samples, so SAMPLES is read and makes no difference.
fn memory_usage(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    for pair in args[3..].chunks(2) {
        match pair {
            [word, count] if word.eq_ignore_ascii_case(b"samples") => {
                if integer(count)? < 0 {
                    return Err(SYNTAX);
                }
            }
            _ => return Err(SYNTAX),
        }
    }
    match keys.peek(args[2]) {
        Some(entry) => reply.integer(entry.bytes() as i64),
        None => reply.null(),
    }
    DONE
}

fn object_help(_: &mut Keyspace<'_>, _: &[&[u8]], reply: &mut Reply) -> Answer {
    let lines = [
        "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "ENCODING <key>",
        "    Return the kind of internal representation used in order to store the value",
        "    associated with a <key>.",
        "FREQ <key>",
        "    Return the access frequency index of the <key>. The returned integer is",
        "    proportional to the logarithm of the recent access frequency of the key.",
        "IDLETIME <key>",
        "    Return the idle time of the <key>, that is the approximated number of",
        "    seconds elapsed since the last access to the key.",
        "REFCOUNT <key>",
        "    Return the number of references of the value associated with the specified",
        "    <key>.",
        "HELP",
        "    Prints this help.",
    ];
    reply.array(lines.len());
    lines.iter().for_each(|line| reply.simple(line));
    DONE
}

fn dbsize(keys: &mut Keyspace<'_>, _: &[&[u8]], reply: &mut Reply) -> Answer {
    reply.integer(keys.data().entries.len() as i64);
    DONE
}

fn flushdb(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    check_flush(args)?;
    let number = keys.database;
    flush(keys, number);
    reply.ok();
    DONE
}

fn flushall(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    check_flush(args)?;
    (0..DATABASES).for_each(|number| flush(keys, number));
    reply.ok();
    DONE
}

fn check_flush(args: &[&[u8]]) -> Result<(), Refusal> {
    match args {
        [_] => Ok(()),
        [_, how] if is(how, "async") || is(how, "sync") => Ok(()),
        _ => Err(SYNTAX),
    }
}

fn flush(keys: &mut Keyspace<'_>, number: usize) {
    let len = keys.store.databases[number].entries.len();
    keys.store.flush(number);
    if keys.effects.wants_touched {
        keys.effects.touched.push((number, None));
    }
    // The log has it even if the database was empty, as Redis's has.
    keys.effects.changed(len as u64);
}

fn swapdb(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let index = |arg: &[u8]| integer(arg).ok().and_then(|index| i32::try_from(index).ok());
    let first = index(args[1]).ok_or(refusal("ERR invalid first DB index"))?;
    let second = index(args[2]).ok_or(refusal("ERR invalid second DB index"))?;
    let databases = keys.store.settings.databases;
    let number = |index: i32| usize::try_from(index).ok().filter(|number| *number < databases);
    let (Some(one), Some(other)) = (number(first), number(second)) else {
        return Err(DATABASE_RANGE);
    };
    if one != other {
        keys.store.databases.swap(one, other);
        if keys.effects.wants_touched {
            keys.effects.touched.extend([(one, None), (other, None)]);
        }
    }
    keys.effects.changed(1);
    reply.ok();
    DONE
}
