//! Commands on hashes.

use super::super::extended::{Extended, Reading};
use super::super::hash::Hash;
use super::super::keyspace::*;
use super::super::numbers::IntegerText;
use super::keys::{Scan, cursor, reply_scan};
use super::sets::reply_changes;
use super::{Drawn, check_drawn, draw_different};
use crate::command::Command;
use crate::event::hash;
use laneway_resp::{Protocol, Reply};

/// The rows of the table.
pub(crate) static COMMANDS: &[Command] = &[
    row("hset", -4, GROW_FAST, ONE_KEY, &["write", "hash", "fast"], runs!(hset)),
    row("hmset", -4, GROW_FAST, ONE_KEY, &["write", "hash", "fast"], runs!(hmset)),
    row("hsetnx", 4, GROW_FAST, ONE_KEY, &["write", "hash", "fast"], runs!(hsetnx)),
    row("hget", 3, READ_FAST, ONE_KEY, &["read", "hash", "fast"], runs!(hget)),
    row("hmget", -3, READ_FAST, ONE_KEY, &["read", "hash", "fast"], runs!(hmget)),
    row("hgetall", 2, READ, ONE_KEY, &["read", "hash", "slow"], runs!(hgetall)),
    row("hdel", -3, WRITE_FAST, ONE_KEY, &["write", "hash", "fast"], runs!(hdel)),
    row("hexists", 3, READ_FAST, ONE_KEY, &["read", "hash", "fast"], runs!(hexists)),
    row("hincrby", 4, GROW_FAST, ONE_KEY, &["write", "hash", "fast"], runs!(hincrby)),
    row("hincrbyfloat", 4, GROW_FAST, ONE_KEY, &["write", "hash", "fast"], runs!(hincrbyfloat)),
    row("hkeys", 2, READ, ONE_KEY, &["read", "hash", "slow"], runs!(hkeys)),
    row("hvals", 2, READ, ONE_KEY, &["read", "hash", "slow"], runs!(hvals)),
    row("hlen", 2, READ_FAST, ONE_KEY, &["read", "hash", "fast"], runs!(hlen)),
    row("hstrlen", 3, READ_FAST, ONE_KEY, &["read", "hash", "fast"], runs!(hstrlen)),
    row("hrandfield", -2, READ, ONE_KEY, &["read", "hash", "slow"], runs!(hrandfield)),
    row("hscan", -3, READ, ONE_KEY, &["read", "hash", "slow"], runs!(hscan)),
];

fn hset(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let added = set_all(keys, args)?;
    reply.integer(added as i64);
    DONE
}

fn hmset(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    set_all(keys, args)?;
    reply.ok();
    DONE
}

/// Sets fields; how many are new.
fn set_all(keys: &mut Keyspace<'_>, args: &[&[u8]]) -> Result<usize, Refusal> {
    let (pairs, rest) = args[2..].as_chunks();
    if !rest.is_empty() {
        return Err(wrong_arity(args[0]));
    }
    let added = keys.edit_or_create(args[1], |hash: &mut Hash| {
        // One long field or value makes it large before any is set, as in Redis.
        if args[2..].iter().any(|arg| Hash::is_long(arg)) {
            hash.use_directory();
        }
        pairs.iter().filter(|[field, value]| hash.set(field, value)).count()
    })?;
    keys.changed(args[1], hash("hset"), pairs.len() as u64);
    Ok(added)
}

fn hsetnx(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let hash = keys.peek_at::<Hash>(args[1])?;
    let is_there = hash.is_some_and(|hash| hash.get(args[2]).is_some());
    if is_there {
        keys.find_to_change(args[1]);
    } else {
        set_all(keys, args)?;
    }
    reply.integer(i64::from(!is_there));
    DONE
}

fn hget(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    match keys.read::<Hash>(args[1])?.and_then(|hash| hash.get(args[2])) {
        Some(value) => reply.bulk(value),
        None => reply.null(),
    }
    DONE
}

fn hmget(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let hash = keys.read::<Hash>(args[1])?;
    reply.array(args.len() - 2);
    for field in &args[2..] {
        match hash.and_then(|hash| hash.get(field)) {
            Some(value) => reply.bulk(value),
            None => reply.null(),
        }
    }
    DONE
}

fn hgetall(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    match keys.read::<Hash>(args[1])? {
        Some(hash) => {
            reply.map(hash.len());
            hash.each(|field, value| {
                reply.bulk(field);
                reply.bulk(value);
            });
        }
        None => reply.map(0),
    }
    DONE
}

fn hkeys(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let hash = keys.read::<Hash>(args[1])?;
    reply.array(hash.map_or(0, Hash::len));
    if let Some(hash) = hash {
        hash.each(|field, _| reply.bulk(field));
    }
    DONE
}

fn hvals(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let hash = keys.read::<Hash>(args[1])?;
    reply.array(hash.map_or(0, Hash::len));
    if let Some(hash) = hash {
        hash.each(|_, value| reply.bulk(value));
    }
    DONE
}

fn hdel(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let removed = keys.edit(args[1], |hash: &mut Hash| {
        args[2..].iter().filter(|field| hash.remove(field)).count()
    })?;
    reply_changes(keys, args[1], hash("hdel"), removed.unwrap_or(0), reply)
}

fn hexists(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let is_there = keys.read::<Hash>(args[1])?.is_some_and(|hash| hash.get(args[2]).is_some());
    reply.integer(i64::from(is_there));
    DONE
}

fn hlen(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let len = keys.read::<Hash>(args[1])?.map_or(0, Hash::len);
    reply.integer(len as i64);
    DONE
}

fn hstrlen(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let value = keys.read::<Hash>(args[1])?.and_then(|hash| hash.get(args[2]));
    reply.integer(value.map_or(0, <[u8]>::len) as i64);
    DONE
}

fn hincrby(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let added = integer(args[3])?;
    let value = keys.peek_at::<Hash>(args[1])?.and_then(|hash| hash.get(args[2]));
    let not_integer = |_| refusal("ERR hash value is not an integer");
    let number = integer(value.unwrap_or(b"0")).map_err(not_integer)?;
    let sum = number.checked_add(added).ok_or(OVERFLOW)?;
    let text = IntegerText::new(sum);
    keys.edit_or_create(args[1], |hash: &mut Hash| hash.set(args[2], text.bytes()))?;
    keys.changed(args[1], hash("hincrby"), 1);
    reply.integer(sum);
    DONE
}

fn hincrbyfloat(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let Reading::Finite(added) = Extended::read(args[3]).ok_or(NOT_FLOAT)? else {
        return Err(refusal("ERR value is NaN or Infinity"));
    };
    let value = keys.peek_at::<Hash>(args[1])?.and_then(|hash| hash.get(args[2]));
    let there = Extended::read(value.unwrap_or(b"0"));
    let sum = match there.ok_or(refusal("ERR hash value is not a float"))? {
        Reading::Finite(there) => there.add(added),
        Reading::Infinite => None,
    };
    let sum = sum.ok_or(refusal("ERR increment would produce NaN or Infinity"))?.text();
    keys.edit_or_create(args[1], |hash: &mut Hash| hash.set(args[2], sum.as_bytes()))?;
    let set: [&[u8]; 4] = [b"HSET", args[1], args[2], sum.as_bytes()];
    keys.changed_as(args[1], hash("hincrbyfloat"), &set);
    reply.bulk(sum.as_bytes());
    DONE
}

fn hrandfield(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let (drawn, with_values) = Drawn::read(&args[2..], "withvalues")?;
    let mut chance = keys.draws();
    let Some(hash) = keys.read::<Hash>(args[1])? else {
        if drawn.is_some() {
            reply.array(0)
        } else {
            reply.null()
        }
        return DONE;
    };
    let drawn = match drawn {
        None => {
            reply.bulk(hash.random(&mut chance).unwrap_or_default().0);
            return DONE;
        }
        Some(Drawn::Any(count)) => {
            check_drawn(count, hash.len(), hash.bytes())?;
            let packed = hash.packed();
            let draws = std::iter::repeat_with(|| match &packed {
                Some(pairs) => pairs[chance.index(pairs.len())],
                None => hash.random(&mut chance).unwrap_or_default(),
            });
            begin_pairs(reply, count, with_values);
            draws.take(count).for_each(|(f, v)| reply_pair(reply, f, with_values.then_some(v)));
            return DONE;
        }
        Some(Drawn::Different(count)) => draw_different(
            count,
            hash.len(),
            &mut chance,
            |chance| hash.random(chance).map(|(field, value)| (field.to_vec(), value.to_vec())),
            || {
                let mut all = Vec::with_capacity(hash.len());
                hash.each(|field, value| all.push((field.to_vec(), value.to_vec())));
                all
            },
        ),
    };
    begin_pairs(reply, drawn.len(), with_values);
    for (field, value) in &drawn {
        reply_pair(reply, field, with_values.then_some(value));
    }
    DONE
}

/// So many fields, each perhaps with its value: pairs of their own in version 3.
fn begin_pairs(reply: &mut Reply, count: usize, with_values: bool) {
    let is_flat = with_values && reply.protocol() == Protocol::Resp2;
    reply.array(if is_flat { count * 2 } else { count });
}

fn reply_pair(reply: &mut Reply, field: &[u8], value: Option<&[u8]>) {
    if value.is_some() && reply.protocol() == Protocol::Resp3 {
        reply.array(2);
    }
    reply.bulk(field);
    if let Some(value) = value {
        reply.bulk(value);
    }
}

fn hscan(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let cursor = cursor(args[2])?;
    let Some(hash) = keys.read::<Hash>(args[1])? else {
        reply_scan(reply, 0, &[]);
        return DONE;
    };
    let scan = Scan::options(&args[3..], false)?;
    let mut found: Vec<Box<[u8]>> = Vec::new();
    let next = hash.scan(cursor, scan.count, |field, value| {
        if scan.fits(field) {
            found.extend([field.into(), value.into()]);
        }
    });
    reply_scan(reply, next, &found);
    DONE
}
