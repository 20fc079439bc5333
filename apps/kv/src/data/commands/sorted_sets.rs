//! Commands on members of sorted sets.

use super::super::keyspace::*;
use super::super::numbers;
use super::super::sorted::{Items, Sorted};
use super::keys::{Scan, cursor, reply_scan};
use super::sets::reply_changes;
use super::{Drawn, check_drawn, draw_different};
use crate::command::{Command, Flags, Outcome};
use crate::event::{Event, sorted};
use laneway_random::Random;
use laneway_resp::{Protocol, Reply};

/// The rows of the table.
pub(crate) static COMMANDS: &[Command] = &[
    row("zadd", -4, GROW_FAST, ONE_KEY, &["write", "sortedset", "fast"], runs!(zadd)),
    row("zincrby", 4, GROW_FAST, ONE_KEY, &["write", "sortedset", "fast"], runs!(zincrby)),
    row("zrem", -3, WRITE_FAST, ONE_KEY, &["write", "sortedset", "fast"], runs!(zrem)),
    row("zcard", 2, READ_FAST, ONE_KEY, &["read", "sortedset", "fast"], runs!(zcard)),
    row("zscore", 3, READ_FAST, ONE_KEY, &["read", "sortedset", "fast"], runs!(zscore)),
    row("zmscore", -3, READ_FAST, ONE_KEY, &["read", "sortedset", "fast"], runs!(zmscore)),
    row("zrank", 3, READ_FAST, ONE_KEY, &["read", "sortedset", "fast"], runs!(zrank)),
    row("zrevrank", 3, READ_FAST, ONE_KEY, &["read", "sortedset", "fast"], runs!(zrevrank)),
    row("zpopmin", -2, WRITE_FAST, ONE_KEY, &["write", "sortedset", "fast"], runs!(zpopmin)),
    row("zpopmax", -2, WRITE_FAST, ONE_KEY, &["write", "sortedset", "fast"], runs!(zpopmax)),
    row(
        "bzpopmin",
        -3,
        WRITE_FAST.and(Flags::NOSCRIPT).and(Flags::BLOCKING),
        KEYS_THEN_TIME,
        &["write", "sortedset", "fast", "blocking"],
        runs!(bzpopmin),
    ),
    row(
        "bzpopmax",
        -3,
        WRITE_FAST.and(Flags::NOSCRIPT).and(Flags::BLOCKING),
        KEYS_THEN_TIME,
        &["write", "sortedset", "fast", "blocking"],
        runs!(bzpopmax),
    ),
    row(
        "zmpop",
        -4,
        WRITE.and(Flags::MOVABLEKEYS),
        counted_at(1),
        &["write", "sortedset", "slow"],
        runs!(zmpop),
    ),
    row(
        "bzmpop",
        -5,
        WRITE.and(Flags::BLOCKING).and(Flags::MOVABLEKEYS),
        counted_at(2),
        &["write", "sortedset", "slow", "blocking"],
        runs!(bzmpop),
    ),
    row("zrandmember", -2, READ, ONE_KEY, &["read", "sortedset", "slow"], runs!(zrandmember)),
    row("zscan", -3, READ, ONE_KEY, &["read", "sortedset", "slow"], runs!(zscan)),
];

/// What ZADD takes before the scores.
#[derive(Default)]
struct Options {
    if_missing: bool,
    if_there: bool,
    if_greater: bool,
    if_less: bool,
    counts_changes: bool,
    adds: bool,
}

fn zadd(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let mut options = Options::default();
    let mut at = 2;
    while let Some(option) = args.get(at) {
        match () {
            () if is(option, "nx") => options.if_missing = true,
            () if is(option, "xx") => options.if_there = true,
            () if is(option, "gt") => options.if_greater = true,
            () if is(option, "lt") => options.if_less = true,
            () if is(option, "ch") => options.counts_changes = true,
            () if is(option, "incr") => options.adds = true,
            () => break,
        }
        at += 1;
    }
    add(keys, args[1], &args[at..], &options, reply)
}

fn zincrby(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let options = Options { adds: true, ..Options::default() };
    add(keys, args[1], &args[2..], &options, reply)
}

fn add(
    keys: &mut Keyspace<'_>,
    key: &[u8],
    elements: &[&[u8]],
    options: &Options,
    reply: &mut Reply,
) -> Answer {
    let Options { if_missing, if_there, if_greater, if_less, counts_changes, adds } = *options;
    let (pairs, rest) = elements.as_chunks();
    if pairs.is_empty() || !rest.is_empty() {
        return Err(SYNTAX);
    }
    if if_missing && if_there {
        return Err(refusal("ERR XX and NX options at the same time are not compatible"));
    }
    if (if_missing && (if_greater || if_less)) || (if_greater && if_less) {
        return Err(refusal("ERR GT, LT, and/or NX options at the same time are not compatible"));
    }
    if adds && pairs.len() > 1 {
        return Err(refusal("ERR INCR option supports a single increment-element pair"));
    }
    let scores = pairs.iter().map(|[score, _]| numbers::double(score).ok_or(NOT_FLOAT));
    let scores: Vec<f64> = scores.collect::<Result<_, _>>()?;
    if keys.peek_at::<Sorted>(key)?.is_none() && if_there {
        if adds {
            reply.null()
        } else {
            reply.integer(0)
        }
        return DONE;
    }
    let (mut added, mut updated, mut result) = (0, 0, None);
    let done = keys.edit_or_create(key, |sorted: &mut Sorted| {
        for ([_, member], score) in pairs.iter().zip(scores) {
            let before = sorted.score(member);
            if before.is_some() && if_missing || before.is_none() && if_there {
                continue;
            }
            let score = match before.filter(|_| adds) {
                Some(before) => before + score,
                None => score,
            };
            if score.is_nan() {
                return Err(refusal("ERR resulting score is not a number (NaN)"));
            }
            let is_kept = before
                .is_some_and(|before| if_greater && score <= before || if_less && score >= before);
            if is_kept {
                continue;
            }
            result = Some(score);
            match before {
                None => added += 1,
                Some(before) => updated += usize::from(before != score),
            }
            sorted.set(member, score);
        }
        Ok(())
    })?;
    done?;
    if added + updated > 0 {
        let event = sorted(if adds { "zincr" } else { "zadd" });
        keys.changed(key, event, (added + updated) as u64);
    }
    match (adds, result) {
        (true, Some(score)) => reply_double(reply, score),
        (true, None) => reply.null(),
        (false, _) => reply.integer(if counts_changes { added + updated } else { added } as i64),
    }
    DONE
}

fn zrem(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let removed = keys.edit(args[1], |sorted: &mut Sorted| {
        args[2..].iter().filter(|member| sorted.remove(member).is_some()).count()
    })?;
    reply_changes(keys, args[1], sorted("zrem"), removed.unwrap_or(0), reply)
}

fn zcard(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let len = keys.read::<Sorted>(args[1])?.map_or(0, Sorted::len);
    reply.integer(len as i64);
    DONE
}

fn zscore(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    match keys.read::<Sorted>(args[1])?.and_then(|sorted| sorted.score(args[2])) {
        Some(score) => reply_double(reply, score),
        None => reply.null(),
    }
    DONE
}

fn zmscore(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let sorted = keys.read::<Sorted>(args[1])?;
    reply.array(args.len() - 2);
    for member in &args[2..] {
        match sorted.and_then(|sorted| sorted.score(member)) {
            Some(score) => reply_double(reply, score),
            None => reply.null(),
        }
    }
    DONE
}

fn zrank(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    rank(keys, args, false, reply)
}

fn zrevrank(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    rank(keys, args, true, reply)
}

fn rank(keys: &mut Keyspace<'_>, args: &[&[u8]], reverse: bool, reply: &mut Reply) -> Answer {
    let found = keys.read::<Sorted>(args[1])?.and_then(|sorted| {
        let rank = sorted.rank_of(args[2], sorted.score(args[2])?);
        Some(if reverse { sorted.len() - 1 - rank } else { rank })
    });
    match found {
        Some(rank) => reply.integer(rank as i64),
        None => reply.null(),
    }
    DONE
}

/// Which end of a sorted set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Least,
    Greatest,
}

impl End {
    fn command(self) -> &'static [u8] {
        match self {
            End::Least => b"ZPOPMIN",
            End::Greatest => b"ZPOPMAX",
        }
    }

    fn event(self) -> Event {
        sorted(match self {
            End::Least => "zpopmin",
            End::Greatest => "zpopmax",
        })
    }
}

/// Takes members from an end of a sorted set that is there.
fn take(keys: &mut Keyspace<'_>, key: &[u8], end: End, count: usize) -> Result<Items, Refusal> {
    let taken = keys.edit(key, |sorted: &mut Sorted| {
        let (len, count) = (sorted.len(), count.min(sorted.len()));
        let taken = match end {
            End::Least => sorted.items(0..count, false),
            End::Greatest => sorted.items(len - count..len, true),
        };
        for (member, _) in &taken {
            sorted.remove(member);
        }
        taken
    })?;
    let taken = taken.unwrap_or_default();
    if !taken.is_empty() {
        let count = taken.len().to_string();
        keys.changed_as(key, end.event(), &[end.command(), key, count.as_bytes()]);
    }
    Ok(taken)
}

fn zpopmin(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    pop(keys, args, End::Least, reply)
}

fn zpopmax(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    pop(keys, args, End::Greatest, reply)
}

fn pop(keys: &mut Keyspace<'_>, args: &[&[u8]], end: End, reply: &mut Reply) -> Answer {
    if args.len() > 3 {
        return Err(SYNTAX);
    }
    let wanted = args.get(2).map(|arg| count(arg)).transpose()?;
    let taken = take(keys, args[1], end, wanted.unwrap_or(1))?;
    let nests = wanted.is_some() && reply.protocol() == Protocol::Resp3;
    reply.array(if nests { taken.len() } else { taken.len() * 2 });
    for (member, score) in &taken {
        if nests {
            reply.array(2);
        }
        reply.bulk(member);
        reply_double(reply, *score);
    }
    DONE
}

fn bzpopmin(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    pop_or_wait(keys, args, End::Least, reply)
}

fn bzpopmax(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    pop_or_wait(keys, args, End::Greatest, reply)
}

fn pop_or_wait(keys: &mut Keyspace<'_>, args: &[&[u8]], end: End, reply: &mut Reply) -> Answer {
    let [_, names @ .., timeout] = args else { return Err(SYNTAX) };
    let until_ms = super::until(timeout, keys.now_ms)?;
    for key in names {
        if keys.awaited::<Sorted>(key)?.is_none() {
            continue;
        }
        if let Some((member, score)) = take(keys, key, end, 1)?.first() {
            reply.array(3);
            reply.bulk(key);
            reply.bulk(member);
            reply_double(reply, *score);
            return DONE;
        }
    }
    Ok(Outcome::Waits { until_ms, null_array: true })
}

/// What ZMPOP and BZMPOP take behind the keys.
fn pop_options(options: &[&[u8]]) -> Result<(End, usize), Refusal> {
    let (end, options) = match options {
        [end, options @ ..] if is(end, "min") => (End::Least, options),
        [end, options @ ..] if is(end, "max") => (End::Greatest, options),
        _ => return Err(SYNTAX),
    };
    match options {
        [] => Ok((end, 1)),
        [word, count, rest @ ..] if is(word, "count") => {
            let count = at_least_one(count, "ERR count should be greater than 0")?;
            if rest.is_empty() { Ok((end, count)) } else { Err(SYNTAX) }
        }
        _ => Err(SYNTAX),
    }
}

/// Takes members from the first sorted set that is there and answers with its key and them; false if none is.
fn pop_first(
    keys: &mut Keyspace<'_>,
    names: &[&[u8]],
    end: End,
    count: usize,
    reply: &mut Reply,
) -> Result<bool, Refusal> {
    for key in names {
        if keys.awaited::<Sorted>(key)?.is_none() {
            continue;
        }
        let taken = take(keys, key, end, count)?;
        reply.array(2);
        reply.bulk(key);
        reply.array(taken.len());
        for (member, score) in &taken {
            reply.array(2);
            reply.bulk(member);
            reply_double(reply, *score);
        }
        return Ok(true);
    }
    Ok(false)
}

fn zmpop(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let (names, options) = counted_keys(args, 1)?;
    let (end, count) = pop_options(options)?;
    if !pop_first(keys, names, end, count, reply)? {
        reply.null_array();
    }
    DONE
}

fn bzmpop(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let (names, options) = counted_keys(args, 2)?;
    let (end, count) = pop_options(options)?;
    let until_ms = super::until(args[1], keys.now_ms)?;
    match pop_first(keys, names, end, count, reply)? {
        true => DONE,
        false => Ok(Outcome::Waits { until_ms, null_array: true }),
    }
}

fn zrandmember(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let (drawn, with_scores) = Drawn::read(&args[2..], "withscores")?;
    let mut chance = keys.draws();
    let Some(sorted) = keys.read::<Sorted>(args[1])? else {
        if drawn.is_some() {
            reply.array(0)
        } else {
            reply.null()
        }
        return DONE;
    };
    let len = sorted.len();
    let ranks = match drawn {
        None => {
            let rank = chance.index(len);
            sorted.visit(rank..rank + 1, false, |member, _| reply.bulk(member));
            return DONE;
        }
        Some(Drawn::Any(count)) => {
            check_drawn(count, len, sorted.bytes())?;
            (0..count).map(|_| chance.index(len)).collect()
        }
        Some(Drawn::Different(count)) => {
            let draw = |chance: &mut Random| Some(chance.index(len));
            draw_different(count, len, &mut chance, draw, || (0..len).collect())
        }
    };
    begin_scores(reply, ranks.len(), with_scores);
    for rank in ranks {
        sorted.visit(rank..rank + 1, false, |member, score| {
            reply_scored(reply, member, with_scores.then_some(score));
        });
    }
    DONE
}

/// So many members, each perhaps with its score: pairs of their own in version 3.
pub(super) fn begin_scores(reply: &mut Reply, count: usize, with_scores: bool) {
    let is_flat = with_scores && reply.protocol() == Protocol::Resp2;
    reply.array(if is_flat { count * 2 } else { count });
}

pub(super) fn reply_scored(reply: &mut Reply, member: &[u8], score: Option<f64>) {
    if score.is_some() && reply.protocol() == Protocol::Resp3 {
        reply.array(2);
    }
    reply.bulk(member);
    if let Some(score) = score {
        reply_double(reply, score);
    }
}

fn zscan(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let cursor = cursor(args[2])?;
    let Some(sorted) = keys.read::<Sorted>(args[1])? else {
        reply_scan(reply, 0, &[]);
        return DONE;
    };
    let scan = Scan::options(&args[3..], false)?;
    let mut found: Vec<Box<[u8]>> = Vec::new();
    let next = sorted.scan(cursor, scan.count, |member, score| {
        if scan.fits(member) {
            let score = numbers::double_text(score).into_bytes();
            found.extend([member.into(), score.into_boxed_slice()]);
        }
    });
    reply_scan(reply, next, &found);
    DONE
}
