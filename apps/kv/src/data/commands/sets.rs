//! Commands on sets.

use super::super::keyspace::*;
use super::super::set::Set;
use super::keys::{Scan, cursor, reply_scan};
use super::{Drawn, check_drawn, draw_different, stored};
use crate::command::{Command, Flags};
use crate::event::{self, Event};
use laneway_random::Random;
use laneway_resp::Reply;

/// The rows of the table.
pub(crate) static COMMANDS: &[Command] = &[
    row("sadd", -3, GROW_FAST, ONE_KEY, &["write", "set", "fast"], runs!(sadd)),
    row("srem", -3, WRITE_FAST, ONE_KEY, &["write", "set", "fast"], runs!(srem)),
    row("smembers", 2, READ, ONE_KEY, &["read", "set", "slow"], runs!(smembers)),
    row("sismember", 3, READ_FAST, ONE_KEY, &["read", "set", "fast"], runs!(sismember)),
    row("smismember", -3, READ_FAST, ONE_KEY, &["read", "set", "fast"], runs!(smismember)),
    row("scard", 2, READ_FAST, ONE_KEY, &["read", "set", "fast"], runs!(scard)),
    row("spop", -2, WRITE_FAST, ONE_KEY, &["write", "set", "fast"], runs!(spop)),
    row("srandmember", -2, READ, ONE_KEY, &["read", "set", "slow"], runs!(srandmember)),
    row("smove", 4, WRITE_FAST, TWO_KEYS, &["write", "set", "fast"], runs!(smove)),
    row("sinter", -2, READ, ALL_KEYS, &["read", "set", "slow"], runs!(sinter)),
    row("sinterstore", -3, GROW, ALL_KEYS, &["write", "set", "slow"], runs!(sinterstore)),
    row(
        "sintercard",
        -3,
        READ.and(Flags::MOVABLEKEYS),
        counted_at(1),
        &["read", "set", "slow"],
        runs!(sintercard),
    ),
    row("sunion", -2, READ, ALL_KEYS, &["read", "set", "slow"], runs!(sunion)),
    row("sunionstore", -3, GROW, ALL_KEYS, &["write", "set", "slow"], runs!(sunionstore)),
    row("sdiff", -2, READ, ALL_KEYS, &["read", "set", "slow"], runs!(sdiff)),
    row("sdiffstore", -3, GROW, ALL_KEYS, &["write", "set", "slow"], runs!(sdiffstore)),
    row("sscan", -3, READ, ONE_KEY, &["read", "set", "slow"], runs!(sscan)),
];

fn sadd(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let added = keys.edit_or_create(args[1], |set: &mut Set| {
        args[2..].iter().filter(|member| set.insert(member)).count()
    })?;
    reply_changes(keys, args[1], event::set("sadd"), added, reply)
}

fn srem(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let removed = keys.edit(args[1], |set: &mut Set| {
        args[2..].iter().filter(|member| set.remove(member)).count()
    })?;
    reply_changes(keys, args[1], event::set("srem"), removed.unwrap_or(0), reply)
}

/// Answers with how many members changed, and says so.
pub(super) fn reply_changes(
    keys: &mut Keyspace<'_>,
    key: &[u8],
    event: Event,
    changes: usize,
    reply: &mut Reply,
) -> Answer {
    if changes > 0 {
        keys.changed(key, event, changes as u64);
    }
    reply.integer(changes as i64);
    DONE
}

fn smembers(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    match keys.read::<Set>(args[1])? {
        Some(set) => {
            reply.set(set.len());
            set.each(|member| {
                reply.bulk(member);
                true
            });
        }
        None => reply.set(0),
    }
    DONE
}

fn sismember(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let is_member = keys.read::<Set>(args[1])?.is_some_and(|set| set.contains(args[2]));
    reply.integer(i64::from(is_member));
    DONE
}

fn smismember(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let set = keys.read::<Set>(args[1])?;
    reply.array(args.len() - 2);
    for member in &args[2..] {
        reply.integer(i64::from(set.is_some_and(|set| set.contains(member))));
    }
    DONE
}

fn scard(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let len = keys.read::<Set>(args[1])?.map_or(0, Set::len);
    reply.integer(len as i64);
    DONE
}

/// `count` different members by chance.
fn draw(set: &Set, count: usize, chance: &mut Random) -> Vec<Box<[u8]>> {
    draw_different(count, set.len(), chance, |chance| set.random(chance), || set.members())
}

fn spop(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    if args.len() > 3 {
        return Err(SYNTAX);
    }
    let wanted = args.get(2).map(|arg| count(arg)).transpose()?;
    let mut chance = keys.draws();
    let Some(set) = keys.peek_at::<Set>(args[1])? else {
        if wanted.is_some() {
            reply.set(0)
        } else {
            reply.null()
        }
        return DONE;
    };
    let drawn = draw(set, wanted.unwrap_or(1), &mut chance);
    keys.edit(args[1], |set: &mut Set| {
        for member in &drawn {
            set.remove(member);
        }
    })?;
    match wanted {
        Some(_) => {
            reply.set(drawn.len());
            drawn.iter().for_each(|member| reply.bulk(member));
        }
        None => drawn.iter().for_each(|member| reply.bulk(member)),
    }
    if !drawn.is_empty() {
        keys.changed_without(args[1], event::set("spop"), b"SREM", &drawn);
    }
    DONE
}

fn srandmember(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    if args.len() > 3 {
        return Err(SYNTAX);
    }
    let (drawn, _) = Drawn::read(&args[2..], "")?;
    let mut chance = keys.draws();
    let Some(set) = keys.read::<Set>(args[1])? else {
        if drawn.is_some() {
            reply.array(0)
        } else {
            reply.null()
        }
        return DONE;
    };
    match drawn {
        None => reply.bulk(&set.random(&mut chance).unwrap_or_default()),
        Some(Drawn::Different(count)) => {
            let drawn = draw(set, count, &mut chance);
            reply.array(drawn.len());
            drawn.iter().for_each(|member| reply.bulk(member));
        }
        Some(Drawn::Any(count)) => {
            check_drawn(count, set.len(), set.bytes())?;
            reply.array(count);
            for _ in 0..count {
                reply.bulk(&set.random(&mut chance).unwrap_or_default());
            }
        }
    }
    DONE
}

fn smove(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let (from, to, member) = (args[1], args[2], args[3]);
    let Some(set) = keys.peek_at::<Set>(from)? else {
        keys.find_to_change(to);
        reply.integer(0);
        return DONE;
    };
    let is_member = set.contains(member);
    keys.peek_at::<Set>(to)?;
    if !is_member || from == to {
        keys.find_to_change(from);
        keys.find_to_change(to);
    } else {
        keys.edit(from, |set: &mut Set| set.remove(member))?;
        // Its events are before that of a set that is made for the member.
        keys.changed(from, event::set("srem"), 1);
        let is_new = keys.edit_or_create(to, |set: &mut Set| set.insert(member))?;
        if is_new {
            keys.effects.touch(keys.database, to);
            keys.notify(to, event::set("sadd"));
        }
    }
    reply.integer(i64::from(is_member));
    DONE
}

/// What is made of several sets.
#[derive(Clone, Copy)]
enum Operation {
    Intersection,
    Union,
    Difference,
}

impl Operation {
    fn event(self) -> Event {
        event::set(match self {
            Operation::Intersection => "sinterstore",
            Operation::Union => "sunionstore",
            Operation::Difference => "sdiffstore",
        })
    }
}

/// The members of the result.
fn operate(
    keys: &mut Keyspace<'_>,
    names: &[&[u8]],
    operation: Operation,
) -> Result<Vec<Box<[u8]>>, Refusal> {
    for name in names {
        keys.read::<Set>(name)?;
    }
    let sets: Vec<Option<&Set>> = names.iter().map(|name| keys.held(name)).collect();
    let mut found: Vec<Box<[u8]>> = Vec::new();
    match operation {
        Operation::Intersection => intersect(&sets, |member| {
            found.push(member.into());
            true
        }),
        Operation::Union => {
            let mut union = Set::new(keys.hasher());
            for set in sets.iter().flatten() {
                set.each(|member| {
                    if union.insert(member) {
                        found.push(member.into());
                    }
                    true
                });
            }
        }
        Operation::Difference => {
            let Some(first) = sets[0] else { return Ok(found) };
            first.each(|member| {
                if !sets[1..].iter().flatten().any(|set| set.contains(member)) {
                    found.push(member.into());
                }
                true
            });
        }
    }
    Ok(found)
}

/// Shows the members that all sets have until `show` says no more.
fn intersect(sets: &[Option<&Set>], mut show: impl FnMut(&[u8]) -> bool) {
    let Some(sets): Option<Vec<&Set>> = sets.iter().copied().collect() else { return };
    let Some(smallest) = sets.iter().min_by_key(|set| set.len()) else { return };
    smallest.each(|member| !sets.iter().all(|set| set.contains(member)) || show(member));
}

fn show(
    keys: &mut Keyspace<'_>,
    args: &[&[u8]],
    operation: Operation,
    reply: &mut Reply,
) -> Answer {
    let found = operate(keys, &args[1..], operation)?;
    reply.set(found.len());
    found.iter().for_each(|member| reply.bulk(member));
    DONE
}

fn store(
    keys: &mut Keyspace<'_>,
    args: &[&[u8]],
    operation: Operation,
    reply: &mut Reply,
) -> Answer {
    let found = operate(keys, &args[2..], operation)?;
    let mut set = Set::new(keys.hasher());
    for member in &found {
        set.insert(member);
    }
    if keys.store_collection(args[1], set) {
        keys.changed(args[1], stored(operation.event(), found.len()), 1);
    }
    reply.integer(found.len() as i64);
    DONE
}

fn sinter(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    show(keys, args, Operation::Intersection, reply)
}

fn sunion(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    show(keys, args, Operation::Union, reply)
}

fn sdiff(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    show(keys, args, Operation::Difference, reply)
}

fn sinterstore(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    store(keys, args, Operation::Intersection, reply)
}

fn sunionstore(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    store(keys, args, Operation::Union, reply)
}

fn sdiffstore(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    store(keys, args, Operation::Difference, reply)
}

fn sintercard(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let count = at_least_one(args[1], "ERR numkeys should be greater than 0")?;
    let too_many = || refusal("ERR Number of keys can't be greater than number of args");
    let (names, options) = args[2..].split_at_checked(count).ok_or_else(too_many)?;
    let limit = intersection_limit(options)?;
    for name in names {
        keys.read::<Set>(name)?;
    }
    let sets: Vec<Option<&Set>> = names.iter().map(|name| keys.held(name)).collect();
    let mut found = 0;
    intersect(&sets, |_| {
        found += 1;
        found != limit
    });
    reply.integer(found as i64);
    DONE
}

/// LIMIT of SINTERCARD and ZINTERCARD; no limit is 0.
pub(super) fn intersection_limit(options: &[&[u8]]) -> Result<usize, Refusal> {
    let mut limit = 0;
    let (pairs, rest) = options.as_chunks();
    for [option, value] in pairs {
        if !is(option, "limit") {
            return Err(SYNTAX);
        }
        limit = count_or(value, refusal("ERR LIMIT can't be negative"))?;
    }
    if rest.is_empty() { Ok(limit) } else { Err(SYNTAX) }
}

fn sscan(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let cursor = cursor(args[2])?;
    let Some(set) = keys.read::<Set>(args[1])? else {
        reply_scan(reply, 0, &[]);
        return DONE;
    };
    let scan = Scan::options(&args[3..], false)?;
    let mut found: Vec<Box<[u8]>> = Vec::new();
    let next = set.scan(cursor, scan.count, |member| {
        if scan.fits(member) {
            found.push(member.into());
        }
    });
    reply_scan(reply, next, &found);
    DONE
}
