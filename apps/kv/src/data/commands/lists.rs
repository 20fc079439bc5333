//! Commands on lists.

use super::super::keyspace::*;
use super::super::list::{End, List};
use crate::command::{Command, Flags, Outcome};
use crate::event::{Event, list};
use laneway_resp::Reply;

/// The rows of the table.
pub(crate) static COMMANDS: &[Command] = &[
    row("lpush", -3, GROW_FAST, ONE_KEY, &["write", "list", "fast"], runs!(lpush)),
    row("rpush", -3, GROW_FAST, ONE_KEY, &["write", "list", "fast"], runs!(rpush)),
    row("lpushx", -3, GROW_FAST, ONE_KEY, &["write", "list", "fast"], runs!(lpushx)),
    row("rpushx", -3, GROW_FAST, ONE_KEY, &["write", "list", "fast"], runs!(rpushx)),
    row("lpop", -2, WRITE_FAST, ONE_KEY, &["write", "list", "fast"], runs!(lpop)),
    row("rpop", -2, WRITE_FAST, ONE_KEY, &["write", "list", "fast"], runs!(rpop)),
    row("llen", 2, READ_FAST, ONE_KEY, &["read", "list", "fast"], runs!(llen)),
    row("lindex", 3, READ, ONE_KEY, &["read", "list", "slow"], runs!(lindex)),
    row("linsert", 5, GROW, ONE_KEY, &["write", "list", "slow"], runs!(linsert)),
    row("lrange", 4, READ, ONE_KEY, &["read", "list", "slow"], runs!(lrange)),
    row("lrem", 4, WRITE, ONE_KEY, &["write", "list", "slow"], runs!(lrem)),
    row("lset", 4, GROW, ONE_KEY, &["write", "list", "slow"], runs!(lset)),
    row("ltrim", 4, WRITE, ONE_KEY, &["write", "list", "slow"], runs!(ltrim)),
    row("lpos", -3, READ, ONE_KEY, &["read", "list", "slow"], runs!(lpos)),
    row("lmove", 5, GROW, TWO_KEYS, &["write", "list", "slow"], runs!(lmove)),
    row("rpoplpush", 3, GROW, TWO_KEYS, &["write", "list", "slow"], runs!(rpoplpush)),
    row(
        "lmpop",
        -4,
        WRITE.and(Flags::MOVABLEKEYS),
        counted_at(1),
        &["write", "list", "slow"],
        runs!(lmpop),
    ),
    row(
        "blpop",
        -3,
        WRITE.and(Flags::NOSCRIPT).and(Flags::BLOCKING),
        KEYS_THEN_TIME,
        &["write", "list", "slow", "blocking"],
        runs!(blpop),
    ),
    row(
        "brpop",
        -3,
        WRITE.and(Flags::NOSCRIPT).and(Flags::BLOCKING),
        KEYS_THEN_TIME,
        &["write", "list", "slow", "blocking"],
        runs!(brpop),
    ),
    row(
        "blmove",
        6,
        GROW.and(Flags::NOSCRIPT).and(Flags::BLOCKING),
        TWO_KEYS,
        &["write", "list", "slow", "blocking"],
        runs!(blmove),
    ),
    row(
        "brpoplpush",
        4,
        GROW.and(Flags::NOSCRIPT).and(Flags::BLOCKING),
        TWO_KEYS,
        &["write", "list", "slow", "blocking"],
        runs!(brpoplpush),
    ),
    row(
        "blmpop",
        -5,
        WRITE.and(Flags::BLOCKING).and(Flags::MOVABLEKEYS),
        counted_at(2),
        &["write", "list", "slow", "blocking"],
        runs!(blmpop),
    ),
];

fn lpush(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    push(keys, args, End::Left, reply)
}

fn rpush(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    push(keys, args, End::Right, reply)
}

/// The events of an end.
impl End {
    fn pushed(self) -> Event {
        list(if self == End::Left { "lpush" } else { "rpush" })
    }

    fn popped(self) -> Event {
        list(if self == End::Left { "lpop" } else { "rpop" })
    }
}

fn lpushx(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    push_if_there(keys, args, End::Left, reply)
}

fn rpushx(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    push_if_there(keys, args, End::Right, reply)
}

fn push(keys: &mut Keyspace<'_>, args: &[&[u8]], end: End, reply: &mut Reply) -> Answer {
    let len = keys.edit_or_create(args[1], |list: &mut List| {
        args[2..].iter().for_each(|value| list.push(end, value));
        list.len()
    })?;
    keys.changed(args[1], end.pushed(), args.len() as u64 - 2);
    reply.integer(len as i64);
    DONE
}

fn push_if_there(keys: &mut Keyspace<'_>, args: &[&[u8]], end: End, reply: &mut Reply) -> Answer {
    if keys.peek_at::<List>(args[1])?.is_none() {
        reply.integer(0);
        return DONE;
    }
    push(keys, args, end, reply)
}

fn lpop(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    pop(keys, args, End::Left, reply)
}

fn rpop(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    pop(keys, args, End::Right, reply)
}

fn pop(keys: &mut Keyspace<'_>, args: &[&[u8]], end: End, reply: &mut Reply) -> Answer {
    let key = args[1];
    let Some(wanted) = args.get(2) else {
        match keys.edit(key, |list: &mut List| list.pop(end))?.flatten() {
            Some(value) => {
                reply.bulk(&value);
                keys.changed(key, end.popped(), 1);
            }
            None => reply.null(),
        }
        return DONE;
    };
    if args.len() > 3 {
        return Err(wrong_arity(args[0]));
    }
    let wanted = count(wanted)?;
    let Some(list) = keys.peek_at::<List>(key)? else {
        reply.null_array();
        return DONE;
    };
    let count = wanted.min(list.len());
    if count == 0 {
        reply.array(0);
        return DONE;
    }
    pop_many(keys, key, end, count, reply)?;
    keys.changed(key, end.popped(), count as u64);
    DONE
}

/// Takes `count` values, which are there, from an end and answers with them.
fn pop_many(
    keys: &mut Keyspace<'_>,
    key: &[u8],
    end: End,
    count: usize,
    reply: &mut Reply,
) -> Result<(), Refusal> {
    keys.edit(key, |list: &mut List| {
        reply.array(count);
        let left = list.len() - count;
        match end {
            End::Left => {
                list.iter().take(count).for_each(|value| reply.bulk(value));
                list.remove(0..count);
            }
            End::Right => {
                list.iter().rev().take(count).for_each(|value| reply.bulk(value));
                list.remove(left..left + count);
            }
        }
    })?;
    Ok(())
}

fn llen(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let len = keys.read::<List>(args[1])?.map_or(0, List::len);
    reply.integer(len as i64);
    DONE
}

/// Where an index stands that counts from the end if it is negative.
fn position(index: i64, len: usize) -> Option<usize> {
    let index = if index < 0 { index.checked_add(len as i64)? } else { index };
    usize::try_from(index).ok().filter(|index| *index < len)
}

fn lindex(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let Some(list) = keys.read::<List>(args[1])? else {
        reply.null();
        return DONE;
    };
    let index = integer(args[2])?;
    match position(index, list.len()).and_then(|at| list.get(at)) {
        Some(value) => reply.bulk(value),
        None => reply.null(),
    }
    DONE
}

fn linsert(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let behind = match () {
        () if is(args[2], "before") => 0,
        () if is(args[2], "after") => 1,
        () => return Err(SYNTAX),
    };
    let len = keys.edit(args[1], |list: &mut List| {
        let at = list.iter().position(|value| value == args[3])?;
        list.insert(at + behind, args[4]);
        Some(list.len())
    })?;
    if let Some(Some(_)) = len {
        keys.changed(args[1], list("linsert"), 1);
    }
    reply.integer(match len {
        None => 0,
        Some(None) => -1,
        Some(Some(len)) => len as i64,
    });
    DONE
}

fn lrange(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let (start, stop) = (integer(args[2])?, integer(args[3])?);
    let Some(list) = keys.read::<List>(args[1])? else {
        reply.array(0);
        return DONE;
    };
    let range = range(start, stop, list.len());
    reply.array(range.len());
    list.iter_from(range.start).take(range.len()).for_each(|value| reply.bulk(value));
    DONE
}

fn lrem(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let count = integer(args[2])?;
    let from = if count < 0 { End::Right } else { End::Left };
    let max = match count.unsigned_abs() {
        0 => usize::MAX,
        count => count as usize,
    };
    let removed = keys.edit(args[1], |list: &mut List| list.remove_equal(args[3], from, max))?;
    let removed = removed.unwrap_or(0);
    if removed > 0 {
        keys.changed(args[1], list("lrem"), removed as u64);
    }
    reply.integer(removed as i64);
    DONE
}

fn lset(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let len = keys.peek_at::<List>(args[1])?.ok_or(NO_KEY)?.len();
    let at = position(integer(args[2])?, len).ok_or(refusal("ERR index out of range"))?;
    keys.edit(args[1], |list: &mut List| list.set(at, args[3]))?;
    keys.changed(args[1], list("lset"), 1);
    reply.ok();
    DONE
}

fn ltrim(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let (start, stop) = (integer(args[2])?, integer(args[3])?);
    let trimmed = keys.edit(args[1], |list: &mut List| {
        let (len, kept) = (list.len(), range(start, stop, list.len()));
        list.remove(kept.end..len);
        list.remove(0..kept.start);
        len - kept.len()
    })?;
    match trimmed {
        None => {}
        // As in Redis, a transaction that watches the list is spoiled even if it is as it was.
        Some(0) => {
            keys.effects.touch(keys.database, args[1]);
            keys.notify(args[1], list("ltrim"));
        }
        Some(removed) => keys.changed(args[1], list("ltrim"), removed as u64),
    }
    reply.ok();
    DONE
}

fn lpos(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let (mut rank, mut wanted, mut max_looked) = (1, None, 0);
    let mut options = args[3..].iter();
    while let Some(option) = options.next() {
        let value = options.next().ok_or(SYNTAX)?;
        match () {
            () if is(option, "rank") => {
                rank = integer(value)?;
                if rank == i64::MIN {
                    return Err(NOT_SYMMETRIC);
                }
                if rank == 0 {
                    return Err(refusal(
                        "ERR RANK can't be zero: use 1 to start from the first match, 2 from \
                         the second ... or use negative to start from the end of the list",
                    ));
                }
            }
            () if is(option, "count") => {
                wanted = Some(count_or(value, refusal("ERR COUNT can't be negative"))?);
            }
            () if is(option, "maxlen") => {
                max_looked = count_or(value, refusal("ERR MAXLEN can't be negative"))?;
            }
            () => return Err(SYNTAX),
        }
    }
    let Some(list) = keys.read::<List>(args[1])? else {
        if wanted.is_some() {
            reply.array(0)
        } else {
            reply.null()
        }
        return DONE;
    };
    let len = list.len();
    let looked = if max_looked == 0 { len } else { max_looked };
    let skipped = rank.unsigned_abs() as usize - 1;
    let many = match wanted {
        None => 1,
        Some(0) => usize::MAX,
        Some(count) => count,
    };
    let equal = |(_, value): &(usize, &[u8])| *value == args[2];
    let found: Vec<usize> = if rank > 0 {
        let found = list.iter().enumerate().take(looked).filter(equal).map(|(at, _)| at);
        found.skip(skipped).take(many).collect()
    } else {
        let found = list.iter().rev().enumerate().take(looked).filter(equal);
        found.map(|(at, _)| len - 1 - at).skip(skipped).take(many).collect()
    };
    match wanted {
        Some(_) => {
            reply.array(found.len());
            found.iter().for_each(|at| reply.integer(*at as i64));
        }
        None => match found.first() {
            Some(at) => reply.integer(*at as i64),
            None => reply.null(),
        },
    }
    DONE
}

fn end(arg: &[u8]) -> Result<End, Refusal> {
    match () {
        () if is(arg, "left") => Ok(End::Left),
        () if is(arg, "right") => Ok(End::Right),
        () => Err(SYNTAX),
    }
}

fn lmove(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let (from, to) = (end(args[3])?, end(args[4])?);
    if !move_value(keys, args[1], args[2], from, to, reply)? {
        reply.null();
    }
    DONE
}

fn rpoplpush(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    if !move_value(keys, args[1], args[2], End::Right, End::Left, reply)? {
        reply.null();
    }
    DONE
}

/// Moves a value and answers with it; false if there is none.
fn move_value(
    keys: &mut Keyspace<'_>,
    source: &[u8],
    destination: &[u8],
    from: End,
    to: End,
    reply: &mut Reply,
) -> Result<bool, Refusal> {
    if keys.awaited::<List>(source)?.is_none() {
        return Ok(false);
    }
    keys.peek_at::<List>(destination)?;
    let value = if source == destination {
        keys.find_to_change(destination);
        // Not out and in again: a list of one would be gone between, with its deadline.
        keys.edit(source, |list: &mut List| {
            let at = if from == End::Left { 0 } else { list.len() - 1 };
            let value: Option<Box<[u8]>> = list.get(at).map(Box::from);
            if let (Some(value), true) = (&value, list.len() > 1 && from != to) {
                list.remove(at..at + 1);
                list.push(to, value);
            }
            value
        })?
    } else {
        keys.edit(source, |list: &mut List| list.pop(from))?
    };
    let Some(value) = value.flatten() else { return Ok(false) };
    if source != destination {
        keys.edit_or_create(destination, |list: &mut List| list.push(to, &value))?;
    }
    let ends = [from, to].map(|end| if end == End::Left { &b"LEFT"[..] } else { b"RIGHT" });
    keys.effects.touch(keys.database, destination);
    keys.notify(destination, to.pushed());
    keys.changed_as(source, from.popped(), &[b"LMOVE", source, destination, ends[0], ends[1]]);
    reply.bulk(&value);
    Ok(true)
}

/// What LMPOP and BLMPOP take behind the number of keys.
fn pop_options(options: &[&[u8]]) -> Result<(End, usize), Refusal> {
    let from = end(options.first().ok_or(SYNTAX)?)?;
    let count = match &options[1..] {
        [] => 1,
        [word, count, rest @ ..] if is(word, "count") => {
            let count = at_least_one(count, "ERR count should be greater than 0")?;
            if rest.is_empty() { count } else { return Err(SYNTAX) }
        }
        _ => return Err(SYNTAX),
    };
    Ok((from, count))
}

fn lmpop(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let (names, options) = counted_keys(args, 1)?;
    let (from, count) = pop_options(options)?;
    if !pop_first(keys, names, from, count, reply)? {
        reply.null_array();
    }
    DONE
}

/// Takes values from the first list that is there and answers with its key and them; false if none is.
fn pop_first(
    keys: &mut Keyspace<'_>,
    names: &[&[u8]],
    from: End,
    count: usize,
    reply: &mut Reply,
) -> Result<bool, Refusal> {
    for key in names {
        let Some(list) = keys.awaited::<List>(key)? else { continue };
        let count = count.min(list.len());
        reply.array(2);
        reply.bulk(key);
        pop_many(keys, key, from, count, reply)?;
        let command = if from == End::Left { b"LPOP" } else { b"RPOP" };
        keys.changed_as(key, from.popped(), &[command, key, count.to_string().as_bytes()]);
        return Ok(true);
    }
    Ok(false)
}

fn blpop(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    pop_or_wait(keys, args, End::Left, reply)
}

fn brpop(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    pop_or_wait(keys, args, End::Right, reply)
}

fn pop_or_wait(keys: &mut Keyspace<'_>, args: &[&[u8]], end: End, reply: &mut Reply) -> Answer {
    let [_, names @ .., timeout] = args else { return Err(SYNTAX) };
    let until_ms = super::until(timeout, keys.now_ms)?;
    for key in names {
        if keys.awaited::<List>(key)?.is_none() {
            continue;
        }
        if let Some(value) = keys.edit(key, |list: &mut List| list.pop(end))?.flatten() {
            reply.array(2);
            reply.bulk(key);
            reply.bulk(&value);
            keys.changed_as(
                key,
                end.popped(),
                &[if end == End::Left { b"LPOP" } else { b"RPOP" }, key],
            );
            return DONE;
        }
    }
    Ok(Outcome::Waits { until_ms, null_array: true })
}

fn blmove(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let (from, to) = (end(args[3])?, end(args[4])?);
    move_or_wait(keys, args, from, to, args[5], reply)
}

fn brpoplpush(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    move_or_wait(keys, args, End::Right, End::Left, args[3], reply)
}

fn move_or_wait(
    keys: &mut Keyspace<'_>,
    args: &[&[u8]],
    from: End,
    to: End,
    timeout: &[u8],
    reply: &mut Reply,
) -> Answer {
    let until_ms = super::until(timeout, keys.now_ms)?;
    match move_value(keys, args[1], args[2], from, to, reply)? {
        true => DONE,
        false => Ok(Outcome::Waits { until_ms, null_array: false }),
    }
}

fn blmpop(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let (names, options) = counted_keys(args, 2)?;
    let (from, count) = pop_options(options)?;
    let until_ms = super::until(args[1], keys.now_ms)?;
    match pop_first(keys, names, from, count, reply)? {
        true => DONE,
        false => Ok(Outcome::Waits { until_ms, null_array: true }),
    }
}
