//! Ranges of sorted sets: by rank, by score, by member. Every kind becomes a range of ranks first.

use super::super::keyspace::*;
use super::super::numbers;
use super::super::sorted::Sorted;
use super::sets::reply_changes;
use super::sorted_sets::{begin_scores, reply_scored};
use super::stored;
use crate::command::Command;
use crate::event::sorted;
use laneway_resp::Reply;
use std::ops::Range;

/// The rows of the table.
pub(crate) static COMMANDS: &[Command] = &[
    row("zrange", -4, READ, ONE_KEY, &["read", "sortedset", "slow"], runs!(zrange)),
    row("zrangestore", -5, GROW, TWO_KEYS, &["write", "sortedset", "slow"], runs!(zrangestore)),
    row("zrevrange", -4, READ, ONE_KEY, &["read", "sortedset", "slow"], runs!(zrevrange)),
    row("zrangebyscore", -4, READ, ONE_KEY, &["read", "sortedset", "slow"], runs!(zrangebyscore)),
    row(
        "zrevrangebyscore",
        -4,
        READ,
        ONE_KEY,
        &["read", "sortedset", "slow"],
        runs!(zrevrangebyscore),
    ),
    row("zrangebylex", -4, READ, ONE_KEY, &["read", "sortedset", "slow"], runs!(zrangebylex)),
    row("zrevrangebylex", -4, READ, ONE_KEY, &["read", "sortedset", "slow"], runs!(zrevrangebylex)),
    row("zcount", 4, READ_FAST, ONE_KEY, &["read", "sortedset", "fast"], runs!(zcount)),
    row("zlexcount", 4, READ_FAST, ONE_KEY, &["read", "sortedset", "fast"], runs!(zlexcount)),
    row(
        "zremrangebyrank",
        4,
        WRITE,
        ONE_KEY,
        &["write", "sortedset", "slow"],
        runs!(zremrangebyrank),
    ),
    row(
        "zremrangebyscore",
        4,
        WRITE,
        ONE_KEY,
        &["write", "sortedset", "slow"],
        runs!(zremrangebyscore),
    ),
    row(
        "zremrangebylex",
        4,
        WRITE,
        ONE_KEY,
        &["write", "sortedset", "slow"],
        runs!(zremrangebylex),
    ),
];

/// By what a range is given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Member,
}

/// The bounds of a range.
enum Bounds<'a> {
    Ranks(i64, i64),
    Scores { min: f64, above_min: bool, max: f64, below_max: bool },
    Members { min: Bound<'a>, max: Bound<'a> },
}

/// A bound by member.
#[derive(Clone, Copy)]
enum Bound<'a> {
    Lowest,
    Highest,
    With(&'a [u8]),
    Without(&'a [u8]),
}

impl<'a> Bounds<'a> {
    fn read(by: By, min: &'a [u8], max: &'a [u8]) -> Result<Bounds<'a>, Refusal> {
        match by {
            By::Rank => Ok(Bounds::Ranks(integer(min)?, integer(max)?)),
            By::Score => {
                let not_float = || refusal("ERR min or max is not a float");
                let score = |text: &[u8]| numbers::bound(text).ok_or_else(not_float);
                let bound = |text: &'a [u8]| match text {
                    [b'(', rest @ ..] => score(rest).map(|score| (score, true)),
                    text => score(text).map(|score| (score, false)),
                };
                let ((min, above_min), (max, below_max)) = (bound(min)?, bound(max)?);
                Ok(Bounds::Scores { min, above_min, max, below_max })
            }
            By::Member => {
                let bound = |text: &'a [u8]| match text {
                    b"-" => Ok(Bound::Lowest),
                    b"+" => Ok(Bound::Highest),
                    [b'[', member @ ..] => Ok(Bound::With(member)),
                    [b'(', member @ ..] => Ok(Bound::Without(member)),
                    _ => Err(refusal("ERR min or max not valid string range item")),
                };
                Ok(Bounds::Members { min: bound(min)?, max: bound(max)? })
            }
        }
    }

    /// The ranks between them.
    fn ranks(&self, sorted: &Sorted, reverse: bool) -> Range<usize> {
        let (from, to) = match *self {
            Bounds::Ranks(start, stop) => {
                let Range { start, end } = range(start, stop, sorted.len());
                return match reverse {
                    true => sorted.len() - end..sorted.len() - start,
                    false => start..end,
                };
            }
            Bounds::Scores { min, above_min, max, below_max } => (
                sorted.partition(|score, _| score < min || above_min && score == min),
                sorted.partition(|score, _| score < max || !below_max && score == max),
            ),
            Bounds::Members { min, max } => (
                sorted.partition(|_, member| !min.allows(member, false)),
                sorted.partition(|_, member| max.allows(member, true)),
            ),
        };
        from..to.max(from)
    }
}

impl Bound<'_> {
    /// True if a member is within this bound, as the upper or the lower one.
    fn allows(self, member: &[u8], is_upper: bool) -> bool {
        match self {
            Bound::Lowest => !is_upper,
            Bound::Highest => is_upper,
            Bound::With(bound) if is_upper => member <= bound,
            Bound::With(bound) => member >= bound,
            Bound::Without(bound) if is_upper => member < bound,
            Bound::Without(bound) => member > bound,
        }
    }
}

/// A range as a command asks for it.
struct Query<'a> {
    bounds: Bounds<'a>,
    reverse: bool,
    with_scores: bool,
    /// How many to pass over, and how many to take; all, if negative.
    limit: Option<(i64, i64)>,
}

impl Query<'_> {
    /// The ranks, and whether they are read from the last.
    fn ranks(&self, sorted: &Sorted) -> Range<usize> {
        let Range { start, end } = self.bounds.ranks(sorted, self.reverse);
        let Some((passed, taken)) = self.limit else { return start..end };
        let Ok(passed) = usize::try_from(passed) else { return start..start };
        let passed = passed.min(end - start);
        let taken = usize::try_from(taken).unwrap_or(usize::MAX).min(end - start - passed);
        match self.reverse {
            true => end - passed - taken..end - passed,
            false => start + passed..start + passed + taken,
        }
    }
}

/// What a command lets its arguments choose.
#[derive(Clone, Copy)]
struct Form {
    by: Option<By>,
    reverse: Option<bool>,
    stores: bool,
}

fn query<'a>(args: &[&'a [u8]], form: Form) -> Result<Query<'a>, Refusal> {
    let (mut by, mut reverse, mut with_scores, mut limit) = (form.by, form.reverse, false, None);
    let mut options = args[2..].iter();
    while let Some(option) = options.next() {
        match () {
            () if is(option, "withscores") && !form.stores => with_scores = true,
            () if is(option, "limit") && options.len() >= 2 => {
                let mut number = || integer(options.next().ok_or(SYNTAX)?);
                limit = Some((number()?, number()?));
            }
            () if is(option, "rev") && reverse.is_none() => reverse = Some(true),
            () if is(option, "bylex") && by.is_none() => by = Some(By::Member),
            () if is(option, "byscore") && by.is_none() => by = Some(By::Score),
            () => return Err(SYNTAX),
        }
    }
    let (by, reverse) = (by.unwrap_or(By::Rank), reverse.unwrap_or(false));
    if by == By::Rank && limit.is_some_and(|(_, taken)| taken != -1) {
        return Err(refusal(
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or \
             BYLEX",
        ));
    }
    if by == By::Member && with_scores {
        return Err(refusal(
            "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
        ));
    }
    // From the last to the first, the greater bound is given first.
    let (min, max) = match reverse && by != By::Rank {
        true => (args[1], args[0]),
        false => (args[0], args[1]),
    };
    let limit = limit.filter(|_| by != By::Rank);
    Ok(Query { bounds: Bounds::read(by, min, max)?, reverse, with_scores, limit })
}

fn show(keys: &mut Keyspace<'_>, args: &[&[u8]], form: Form, reply: &mut Reply) -> Answer {
    let query = query(&args[2..], form)?;
    let Some(sorted) = keys.read::<Sorted>(args[1])? else {
        reply.array(0);
        return DONE;
    };
    let ranks = query.ranks(sorted);
    begin_scores(reply, ranks.len(), query.with_scores);
    sorted.visit(ranks, query.reverse, |member, score| {
        reply_scored(reply, member, query.with_scores.then_some(score));
    });
    DONE
}

fn zrange(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    show(keys, args, Form { by: None, reverse: None, stores: false }, reply)
}

fn zrevrange(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    show(keys, args, Form { by: Some(By::Rank), reverse: Some(true), stores: false }, reply)
}

fn zrangebyscore(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    show(keys, args, Form { by: Some(By::Score), reverse: Some(false), stores: false }, reply)
}

fn zrevrangebyscore(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    show(keys, args, Form { by: Some(By::Score), reverse: Some(true), stores: false }, reply)
}

fn zrangebylex(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    show(keys, args, Form { by: Some(By::Member), reverse: Some(false), stores: false }, reply)
}

fn zrevrangebylex(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    show(keys, args, Form { by: Some(By::Member), reverse: Some(true), stores: false }, reply)
}

fn zrangestore(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let query = query(&args[3..], Form { by: None, reverse: None, stores: true })?;
    let hasher = keys.hasher().clone();
    let mut result = Sorted::new(&hasher);
    if let Some(sorted) = keys.read::<Sorted>(args[2])? {
        sorted.visit(query.ranks(sorted), false, |member, score| {
            result.set(member, score);
        });
    }
    let len = result.len();
    if keys.store_collection(args[1], result) {
        keys.changed(args[1], stored(sorted("zrangestore"), len), 1);
    }
    reply.integer(len as i64);
    DONE
}

fn zcount(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    count_between(keys, args, By::Score, reply)
}

fn zlexcount(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    count_between(keys, args, By::Member, reply)
}

fn count_between(keys: &mut Keyspace<'_>, args: &[&[u8]], by: By, reply: &mut Reply) -> Answer {
    let bounds = Bounds::read(by, args[2], args[3])?;
    let sorted = keys.read::<Sorted>(args[1])?;
    let count = sorted.map_or(0, |sorted| bounds.ranks(sorted, false).len());
    reply.integer(count as i64);
    DONE
}

fn zremrangebyrank(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    remove_between(keys, args, By::Rank, reply)
}

fn zremrangebyscore(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    remove_between(keys, args, By::Score, reply)
}

fn zremrangebylex(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    remove_between(keys, args, By::Member, reply)
}

fn remove_between(keys: &mut Keyspace<'_>, args: &[&[u8]], by: By, reply: &mut Reply) -> Answer {
    let bounds = Bounds::read(by, args[2], args[3])?;
    let removed = keys.edit(args[1], |sorted: &mut Sorted| {
        let items = sorted.items(bounds.ranks(sorted, false), false);
        for (member, _) in &items {
            sorted.remove(member);
        }
        items.len()
    })?;
    let event = match by {
        By::Rank => "zremrangebyrank",
        By::Score => "zremrangebyscore",
        By::Member => "zremrangebylex",
    };
    reply_changes(keys, args[1], sorted(event), removed.unwrap_or(0), reply)
}
