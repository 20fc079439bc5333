//! Commands on strings.

use super::super::entry::{Entry, Form};
use super::super::extended::{Extended, Reading};
use super::super::keyspace::*;
use super::super::numbers::IntegerText;
use crate::command::Command;
use crate::event::{DELETED, Event, generic, string};
use laneway_resp::Reply;

/// The rows of the table.
pub(crate) static COMMANDS: &[Command] = &[
    row("get", 2, READ_FAST, ONE_KEY, &["read", "string", "fast"], runs!(get)),
    row("set", -3, GROW, ONE_KEY, &["write", "string", "slow"], runs!(set)),
    row("setnx", 3, GROW_FAST, ONE_KEY, &["write", "string", "fast"], runs!(setnx)),
    row("setex", 4, GROW, ONE_KEY, &["write", "string", "slow"], runs!(setex)),
    row("psetex", 4, GROW, ONE_KEY, &["write", "string", "slow"], runs!(psetex)),
    row("getex", -2, WRITE_FAST, ONE_KEY, &["write", "string", "fast"], runs!(getex)),
    row("getdel", 2, WRITE_FAST, ONE_KEY, &["write", "string", "fast"], runs!(getdel)),
    row("getset", 3, GROW_FAST, ONE_KEY, &["write", "string", "fast"], runs!(getset)),
    row("mget", -2, READ_FAST, ALL_KEYS, &["read", "string", "fast"], runs!(mget)),
    row("mset", -3, GROW, keys_at(1, -1, 2), &["write", "string", "slow"], runs!(mset)),
    row("msetnx", -3, GROW, keys_at(1, -1, 2), &["write", "string", "slow"], runs!(msetnx)),
    row("append", 3, GROW_FAST, ONE_KEY, &["write", "string", "fast"], runs!(append)),
    row("strlen", 2, READ_FAST, ONE_KEY, &["read", "string", "fast"], runs!(strlen)),
    row("incr", 2, GROW_FAST, ONE_KEY, &["write", "string", "fast"], runs!(incr)),
    row("decr", 2, GROW_FAST, ONE_KEY, &["write", "string", "fast"], runs!(decr)),
    row("incrby", 3, GROW_FAST, ONE_KEY, &["write", "string", "fast"], runs!(incrby)),
    row("decrby", 3, GROW_FAST, ONE_KEY, &["write", "string", "fast"], runs!(decrby)),
    row("incrbyfloat", 3, GROW_FAST, ONE_KEY, &["write", "string", "fast"], runs!(incrbyfloat)),
    row("getrange", 4, READ, ONE_KEY, &["read", "string", "slow"], runs!(getrange)),
    row("substr", 4, READ, ONE_KEY, &["read", "string", "slow"], runs!(getrange)),
    row("setrange", 4, GROW, ONE_KEY, &["write", "string", "slow"], runs!(setrange)),
    row("lcs", -3, READ, TWO_KEYS, &["read", "string", "slow"], runs!(lcs)),
];

/// A longer common subsequence than of so many pairs of bytes is not looked for: 4 bytes each.
const LCS_PAIRS_MAX: usize = 32 << 20;

fn get(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    match keys.text(args[1])? {
        Some(text) => reply.bulk(text),
        None => reply.null(),
    }
    DONE
}

/// What SET and GETEX take behind the value.
#[derive(Default)]
struct Options<'a> {
    if_missing: bool,
    if_there: bool,
    returns: bool,
    keeps_deadline: bool,
    persists: bool,
    expires: Option<(Unit, &'a [u8])>,
}

/// How a time to live is given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Seconds,
    Milliseconds,
    AtSeconds,
    AtMilliseconds,
}

/// Reads the options of SET, or of GETEX.
fn options<'a>(args: &[&'a [u8]], is_set: bool) -> Result<Options<'a>, Refusal> {
    let mut options = Options::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let has_time = options.expires.is_some();
        let unit = match () {
            () if is(arg, "nx") && is_set && !options.if_there => {
                options.if_missing = true;
                continue;
            }
            () if is(arg, "xx") && is_set && !options.if_missing => {
                options.if_there = true;
                continue;
            }
            () if is(arg, "get") && is_set => {
                options.returns = true;
                continue;
            }
            () if is(arg, "keepttl") && is_set && !has_time => {
                options.keeps_deadline = true;
                continue;
            }
            () if is(arg, "persist") && !is_set && !has_time => {
                options.persists = true;
                continue;
            }
            () if is(arg, "ex") => Unit::Seconds,
            () if is(arg, "px") => Unit::Milliseconds,
            () if is(arg, "exat") => Unit::AtSeconds,
            () if is(arg, "pxat") => Unit::AtMilliseconds,
            () => return Err(SYNTAX),
        };
        // The same unit twice is allowed, and the last one counts.
        let has_other = options.expires.is_some_and(|(other, _)| other != unit);
        if has_other || options.keeps_deadline || options.persists {
            return Err(SYNTAX);
        }
        options.expires = Some((unit, args.next().ok_or(SYNTAX)?));
    }
    Ok(options)
}

/// The deadline that an option asks for.
fn deadline(unit: Unit, time: &[u8], now_ms: u64, command: &str) -> Result<u64, Refusal> {
    let time = integer(time)?;
    let is_seconds = matches!(unit, Unit::Seconds | Unit::AtSeconds);
    let is_relative = matches!(unit, Unit::Seconds | Unit::Milliseconds);
    let time_ms = if is_seconds { time.checked_mul(1000) } else { Some(time) };
    let base_ms = if is_relative { now_ms as i64 } else { 0 };
    let deadline = time_ms.filter(|_| time > 0).and_then(|time_ms| time_ms.checked_add(base_ms));
    deadline
        .and_then(|deadline| u64::try_from(deadline).ok())
        .ok_or_else(|| Refusal(format!("ERR invalid expire time in '{command}' command").into()))
}

/// The event of all that put a string in the place of what was there.
const SET: Event = string("set");

fn set(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let (key, value) = (args[1], args[2]);
    if args.len() == 3 {
        keys.set_text(key, value, Form::Whole, None);
        keys.changed(key, SET, 1);
        reply.ok();
        return DONE;
    }
    let options = options(&args[3..], true)?;
    let expires = options.expires;
    let deadline_ms = expires.map(|(unit, time)| deadline(unit, time, keys.now_ms, "set"));
    let mut deadline_ms = deadline_ms.transpose()?;
    if options.returns {
        get(keys, args, reply)?;
    }
    let there = keys.peek(key);
    let is_refused = if there.is_some() { options.if_missing } else { options.if_there };
    if is_refused {
        keys.find_to_change(key);
        if !options.returns {
            reply.null();
        }
        return DONE;
    }
    if options.keeps_deadline {
        deadline_ms = there.and_then(Entry::deadline_ms);
    }
    keys.set_text(key, value, Form::Whole, deadline_ms);
    if expires.is_some() {
        log_set(keys, key, value, deadline_ms);
    } else {
        keys.changed(key, SET, 1);
    }
    if !options.returns {
        reply.ok();
    }
    DONE
}

/// The log has a string and its deadline as a time of the calendar.
fn log_set(keys: &mut Keyspace<'_>, key: &[u8], value: &[u8], deadline_ms: Option<u64>) {
    let deadline = IntegerText::new(deadline_ms.unwrap_or(0) as i64);
    keys.changed_as(key, SET, &[b"SET", key, value, b"PXAT", deadline.bytes()]);
    keys.notify(key, generic("expire"));
}

fn setnx(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let is_new = keys.find_to_change(args[1]).is_none();
    if is_new {
        keys.set_text(args[1], args[2], Form::Whole, None);
        keys.changed(args[1], SET, 1);
    }
    reply.integer(i64::from(is_new));
    DONE
}

fn setex(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let deadline_ms = deadline(Unit::Seconds, args[2], keys.now_ms, "setex")?;
    set_until(keys, args, deadline_ms, reply)
}

fn psetex(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let deadline_ms = deadline(Unit::Milliseconds, args[2], keys.now_ms, "psetex")?;
    set_until(keys, args, deadline_ms, reply)
}

fn set_until(
    keys: &mut Keyspace<'_>,
    args: &[&[u8]],
    deadline_ms: u64,
    reply: &mut Reply,
) -> Answer {
    keys.set_text(args[1], args[3], Form::Whole, Some(deadline_ms));
    log_set(keys, args[1], args[3], Some(deadline_ms));
    reply.ok();
    DONE
}

fn getex(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let options = options(&args[2..], false)?;
    let key = args[1];
    let Some(text) = keys.text(key)? else {
        reply.null();
        return DONE;
    };
    reply.bulk(text);
    if let Some((unit, time)) = options.expires {
        let deadline_ms = deadline(unit, time, keys.now_ms, "getex")?;
        super::keys::expire_at(keys, key, deadline_ms as i64);
    } else if options.persists && keys.peek(key).and_then(Entry::deadline_ms).is_some() {
        keys.set_deadline(key, None);
        keys.changed_as(key, generic("persist"), &[b"PERSIST", key]);
    }
    DONE
}

fn getdel(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    get(keys, args, reply)?;
    if keys.take(args[1]).is_some() {
        keys.changed_as(args[1], DELETED, &[b"DEL", args[1]]);
    }
    DONE
}

fn getset(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    get(keys, args, reply)?;
    keys.set_text(args[1], args[2], Form::Whole, None);
    keys.changed_as(args[1], SET, &[b"SET", args[1], args[2]]);
    DONE
}

fn mget(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    reply.array(args.len() - 1);
    for key in &args[1..] {
        match keys.find(key).and_then(Entry::as_text) {
            Some(text) => reply.bulk(text),
            None => reply.null(),
        }
    }
    DONE
}

fn mset(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    set_all(keys, args)?;
    reply.ok();
    DONE
}

fn msetnx(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    if args.len().is_multiple_of(2) {
        return Err(wrong_arity(args[0]));
    }
    let are_new = !args[1..].iter().step_by(2).any(|key| keys.find_to_change(key).is_some());
    if are_new {
        set_all(keys, args)?;
    }
    reply.integer(i64::from(are_new));
    DONE
}

fn set_all(keys: &mut Keyspace<'_>, args: &[&[u8]]) -> Result<(), Refusal> {
    let (pairs, rest) = args[1..].as_chunks();
    if !rest.is_empty() {
        return Err(wrong_arity(args[0]));
    }
    for [key, value] in pairs {
        keys.set_text(key, value, Form::Whole, None);
        keys.changed(key, SET, 1);
    }
    Ok(())
}

fn append(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let (key, added) = (args[1], args[2]);
    let len = match keys.peek_text(key)? {
        None => {
            keys.set_text(key, added, Form::Whole, None);
            added.len()
        }
        Some(text) if text.len() + added.len() > VALUE_BYTES_MAX => return Err(TOO_LONG),
        Some(_) => keys.edit_text(key, |text| {
            text.extend_from_slice(added);
            text.len()
        })?,
    };
    keys.changed(key, string("append"), 1);
    reply.integer(len as i64);
    DONE
}

fn strlen(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let len = keys.text(args[1])?.map_or(0, <[u8]>::len);
    reply.integer(len as i64);
    DONE
}

fn incr(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    add(keys, args[1], 1, reply)
}

fn decr(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    add(keys, args[1], -1, reply)
}

fn incrby(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    add(keys, args[1], integer(args[2])?, reply)
}

fn decrby(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let taken = integer(args[2])?.checked_neg();
    add(keys, args[1], taken.ok_or(refusal("ERR decrement would overflow"))?, reply)
}

fn add(keys: &mut Keyspace<'_>, key: &[u8], added: i64, reply: &mut Reply) -> Answer {
    let number = integer(keys.peek_text(key)?.unwrap_or(b"0"))?;
    let sum = number.checked_add(added).ok_or(OVERFLOW)?;
    let deadline_ms = keys.peek(key).and_then(Entry::deadline_ms);
    keys.set_text(key, IntegerText::new(sum).bytes(), Form::Whole, deadline_ms);
    keys.changed(key, string("incrby"), 1);
    reply.integer(sum);
    DONE
}

fn incrbyfloat(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let key = args[1];
    let there = Extended::read(keys.peek_text(key)?.unwrap_or(b"0")).ok_or(NOT_FLOAT)?;
    let added = Extended::read(args[2]).ok_or(NOT_FLOAT)?;
    let sum = match (there, added) {
        (Reading::Finite(there), Reading::Finite(added)) => there.add(added),
        _ => None,
    };
    let sum = sum.ok_or(refusal("ERR increment would produce NaN or Infinity"))?.text();
    let deadline_ms = keys.peek(key).and_then(Entry::deadline_ms);
    keys.set_text(key, sum.as_bytes(), Form::Text, deadline_ms);
    let set: [&[u8]; 4] = [b"SET", key, sum.as_bytes(), b"KEEPTTL"];
    keys.changed_as(key, string("incrbyfloat"), &set);
    reply.bulk(sum.as_bytes());
    DONE
}

fn getrange(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let (start, stop) = (integer(args[2])?, integer(args[3])?);
    let text = keys.text(args[1])?.unwrap_or(&[]);
    // Both before the text is nothing; only the end before it is its first byte, as in Redis.
    let is_empty = text.is_empty() || (start < 0 && stop < 0 && start > stop);
    let stop = if stop < 0 { stop.saturating_add(text.len() as i64).max(0) } else { stop };
    let part = if is_empty { 0..0 } else { range(start, stop, text.len()) };
    reply.bulk(&text[part]);
    DONE
}

fn setrange(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let (key, value) = (args[1], args[3]);
    let offset = usize::try_from(integer(args[2])?);
    let offset = offset.map_err(|_| refusal("ERR offset is out of range"))?;
    let len = keys.peek_text(key)?.map_or(0, <[u8]>::len);
    if value.is_empty() {
        reply.integer(len as i64);
        return DONE;
    }
    let end = offset.saturating_add(value.len());
    if end > VALUE_BYTES_MAX {
        return Err(TOO_LONG);
    }
    let len = keys.edit_text(key, |text| {
        text.resize(text.len().max(end), 0);
        text[offset..end].copy_from_slice(value);
        text.len()
    })?;
    keys.changed(key, string("setrange"), 1);
    reply.integer(len as i64);
    DONE
}

fn lcs(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let not_text = || refusal("ERR The specified keys must contain string values");
    let mut text = |key| match keys.find(key) {
        None => Ok(Vec::new()),
        Some(entry) => entry.as_text().map(<[u8]>::to_vec).ok_or_else(not_text),
    };
    // Both are looked up, whatever the first is.
    let (one, other) = (text(args[1]), text(args[2]));
    let (one, other) = (one?, other?);
    let (mut wants_len, mut wants_matches, mut with_len, mut len_min) = (false, false, false, 0);
    let mut options = args[3..].iter();
    while let Some(option) = options.next() {
        match () {
            () if is(option, "idx") => wants_matches = true,
            () if is(option, "len") => wants_len = true,
            () if is(option, "withmatchlen") => with_len = true,
            () if is(option, "minmatchlen") => len_min = integer(options.next().ok_or(SYNTAX)?)?,
            () => return Err(SYNTAX),
        }
    }
    if wants_len && wants_matches {
        return Err(refusal("ERR If you want both the length and indexes, please just use IDX."));
    }
    let width = other.len() + 1;
    if (one.len() + 1).saturating_mul(width) > LCS_PAIRS_MAX {
        return Err(refusal("ERR Insufficient memory, failed allocating transient memory for LCS"));
    }
    // The length of the longest common subsequence of every two beginnings.
    let mut table = vec![0_u32; (one.len() + 1) * width];
    for (row, byte) in one.iter().enumerate() {
        for (column, against) in other.iter().enumerate() {
            let at = (row + 1) * width + column + 1;
            table[at] = match byte == against {
                true => table[at - width - 1] + 1,
                false => table[at - 1].max(table[at - width]),
            };
        }
    }
    let len = i64::from(table[table.len() - 1]);
    if wants_len {
        reply.integer(len);
        return DONE;
    }
    let (common, matches) = walk_back(&one, &other, &table, usize::try_from(len_min).unwrap_or(0));
    if !wants_matches {
        reply.bulk(&common);
        return DONE;
    }
    reply.map(2);
    reply.bulk(b"matches");
    reply.array(matches.len());
    for (in_one, in_other) in matches {
        reply.array(if with_len { 3 } else { 2 });
        for range in [&in_one, &in_other] {
            reply.array(2);
            reply.integer(range.start as i64);
            reply.integer(range.end as i64 - 1);
        }
        if with_len {
            reply.integer(in_one.len() as i64);
        }
    }
    reply.bulk(b"len");
    reply.integer(len);
    DONE
}

type Match = (std::ops::Range<usize>, std::ops::Range<usize>);

/// The subsequence, and its runs of at least `len_min` bytes, the last first.
fn walk_back(one: &[u8], other: &[u8], table: &[u32], len_min: usize) -> (Vec<u8>, Vec<Match>) {
    let width = other.len() + 1;
    let (mut row, mut column) = (one.len(), other.len());
    let (mut common, mut matches) = (Vec::new(), Vec::<Match>::new());
    let mut run: Option<Match> = None;
    while row > 0 && column > 0 {
        if one[row - 1] == other[column - 1] {
            (row, column) = (row - 1, column - 1);
            common.push(one[row]);
            run = match run {
                Some((a, b)) if a.start == row + 1 && b.start == column + 1 => {
                    Some((row..a.end, column..b.end))
                }
                ended => {
                    matches.extend(ended);
                    Some((row..row + 1, column..column + 1))
                }
            };
        } else if table[(row - 1) * width + column] > table[row * width + column - 1] {
            row -= 1;
        } else {
            column -= 1;
        }
    }
    matches.extend(run);
    matches.retain(|(run, _)| run.len() >= len_min);
    common.reverse();
    (common, matches)
}
